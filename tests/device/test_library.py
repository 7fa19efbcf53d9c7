"""The library on the device, compared with the CPU: encoders, losses, recurrent layers, EventProp, NIR, monitors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from test_encode import CALLS, X
from test_event_lists import lists_of, random_counts
from test_monitor import Net, everything, flat, gradients, inputs
from test_regularisers import TABLE, X as ACTIVITY
from test_spike_losses import LABELS, LOSSES, REAL, SPIKES, outputs_for

import snncell
from snncell import Tensor, jit, nn, ops, value_and_grad
from snncell.errors import ArgumentError, DeviceError
from snncell.tape import structure

MODES = {"eager": lambda fn: fn, "jit": snncell.jit}


def same_on_both(fn: Callable[..., Any], *arrays: Any) -> None:
    """Check that `fn` gives the CPU's results on the device, and that they are on the device."""
    found = []
    for device in ("cpu", "gpu"):
        snncell.set_seed(3)
        results = fn(*[Tensor(x).to(device) for x in arrays])
        found.append(results if isinstance(results, tuple) else (results,))
    for here, there in zip(*found, strict=True):
        assert there.device == "gpu"
        np.testing.assert_allclose(there.asnumpy(), here.asnumpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", CALLS)
def test_encoders_and_decoders_equal_cpu(name: str, mode: str) -> None:
    same_on_both(MODES[mode](CALLS[name][0]), X)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", LOSSES)
def test_spike_losses_equal_cpu(name: str, mode: str) -> None:
    kind, arguments, _ = LOSSES[name]
    x = outputs_for(kind, arguments).astype(np.float32)
    same_on_both(MODES[mode](ops.value_and_grad(kind(**arguments))), x, LABELS)


@pytest.mark.parametrize("mode", MODES)
def test_van_rossum_loss_equals_cpu(mode: str) -> None:
    both = ops.value_and_grad(nn.VanRossumLoss(3.0))
    same_on_both(MODES[mode](both), REAL.astype(np.float32), SPIKES.astype(np.float32))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", TABLE)
def test_regularisers_equal_cpu(name: str, mode: str) -> None:
    kind, arguments, _ = TABLE[name]
    same_on_both(MODES[mode](ops.value_and_grad(kind(**arguments))), ACTIVITY.astype(np.float32))


# --- recurrent layers -------------------------------------------------------------------------------------------------


def run_on(device: str, kind: type[Any], lengths: list[int] | None) -> list[np.ndarray[Any, Any]]:
    """Loss and gradients on a device, for a network with the same weights and input."""
    rng = np.random.default_rng(3)
    snncell.set_context(device_target=device)
    try:
        net = kind(3, 2, bidirectional=True, dtype="float64")
        for p in net.get_parameters():
            p.set_data(Tensor(rng.standard_normal(p.shape)))
        given = None if lengths is None else Tensor(lengths)

        def loss(x: Tensor) -> Tensor:
            return ops.square(net(x, seq_length=given)[0]).sum()

        x = Tensor(rng.standard_normal((3, 2, 3)))
        found = structure.flatten(snncell.value_and_grad(loss, 0, net.trainable_params())(x))[0]
        assert {one.device for one in found} == {device.lower()}
        return [one.asnumpy() for one in found]
    finally:
        snncell.set_context(device_target="CPU")


@pytest.mark.parametrize("lengths", [None, [1, 3]], ids=["all steps", "lengths"])
@pytest.mark.parametrize("kind", [nn.RNN, nn.GRU, nn.LSTM])
def test_recurrent_layer_equals_cpu(kind, lengths):
    for mine, theirs in zip(run_on("GPU", kind, lengths), run_on("CPU", kind, lengths), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-11, atol=1e-12)


# --- EventProp --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("run", [lambda fn: fn, jit], ids=["eager", "jit"])
def test_eventprop_spike_times_and_gradients_equal_cpu(run):
    times = np.random.default_rng(0).uniform(0.0, 30.0, (3, 4, 2))
    times[0, 1], times[1, :, 1] = np.inf, np.inf
    net = nn.SequentialCell(
        nn.EventPropLIF(4, 3, spikes=2, dtype="float64"), nn.EventPropLIF(3, 2, t_max=90.0, dtype="float64")
    )

    def loss(x):
        first = net[0](x)
        return ops.minimum(first, 50.0).sum() + ops.square(ops.minimum(net[1](first), 50.0)).sum(), first

    found = {}
    for device in ("cpu", "gpu"):
        net.to(device)
        step = run(value_and_grad(loss, 0, net.trainable_params(), has_aux=True))
        (value, first), (of_times, of_weights) = step(Tensor(times).to(device))
        found[device] = [value, first, of_times, *of_weights]
        assert [x.device for x in found[device]] == [device] * 5
    assert np.isfinite(found["cpu"][1].asnumpy()).mean() > 0.3
    for ours, theirs in zip(found["gpu"], found["cpu"], strict=True):
        np.testing.assert_allclose(ours.asnumpy(), theirs.asnumpy(), rtol=1e-9, atol=1e-12)


def test_invalid_spike_times_raise():
    layer = nn.EventPropLIF(2, 1).to("gpu")
    with pytest.raises(ArgumentError, match="EventPropLIF, EventDense: times contains NaN or -inf"):
        layer(Tensor([[1.0, np.nan]]).to("gpu"))


@pytest.mark.parametrize("run", [lambda fn: fn, jit], ids=["eager", "jit"])
def test_solver_of_event_driven_neurons_refuses_the_gpu(run):
    layer = nn.EventDense(nn.EventLIF(), 2, 1, t_max=9.0, step=1.0, weight_init=1.0).to("gpu")
    with pytest.raises(DeviceError, match=r"EventDense runs on the CPU only\. Move .* by \.to"):
        run(layer)(ops.ones((1, 2)).to("gpu"))


def test_recurrent_eventprop_refuses_the_gpu():
    layer = nn.EventPropLIF(2, 1, recurrent_init=1.0).to("gpu")
    with pytest.raises(DeviceError, match=r"recurrent layers run on the CPU only\. Move .* by \.to"):
        layer(ops.ones((1, 2)).to("gpu"))


def test_eventprop_forward_and_backward_are_one_operation_each():
    layer = nn.EventPropLIF(2, 1, spikes=2).to("gpu")
    text = snncell.explain(snncell.grad(lambda x: layer(x).sum()), ops.ones((1, 2)).to("gpu"), detail="launches")
    assert text.count("call spike_times") == text.count("call sent_back") == 1 and "scan" not in text


# --- networks imported from NIR ---------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:from_nir. dt=")
@pytest.mark.parametrize("seed", [4, 24, 42])
def test_nir_graph_equals_cpu(seed: int) -> None:
    pytest.importorskip("nir")
    pytest.importorskip("h5py")
    from nir_graphs import random_graph

    from snncell.nir import from_nir

    graph, shape = random_graph(seed)
    net = from_nir(graph, 1e-3)
    x = Tensor(np.random.default_rng(seed).normal(0.5, 1.0, (4, 2, *shape)).astype(np.float32))
    want = net(x).asnumpy()
    np.testing.assert_allclose(net.to("gpu")(x.to("gpu")).asnumpy(), want, rtol=1e-4, atol=1e-5)


# --- event lists ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["uint8", "bool", "float16", "float32", "float64"])
@pytest.mark.parametrize("layer", ["dense", "conv"])
def test_event_list_layers_equal_cpu(dtype: str, layer: str) -> None:
    rng = np.random.default_rng(0)
    x = random_counts(rng, (3, 2, 2, 5, 4), 0.2, dtype)
    snncell.set_seed(1)
    net = nn.Dense(40, 6) if layer == "dense" else nn.TimeDistributed(nn.Conv2d(2, 3, 3))

    def value(lists: object) -> Tensor:
        return (net(ops.flatten(lists, 2) if layer == "dense" else lists) ** 2).sum()

    lists = lists_of(x, 2, room=2)
    step = snncell.value_and_grad(value, None, net.trainable_params())
    want = step(lists)
    net.to("gpu")
    there = structure.map_leaves(lambda leaf: leaf.to("gpu"), lists)
    found = step(there)
    for one, other in zip((want[0], *want[1]), (found[0], *found[1]), strict=True):
        np.testing.assert_allclose(other.asnumpy(), one.asnumpy(), rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(there.to_dense().asnumpy(), x)


# --- monitors ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("jitted", [False, True], ids=["eager", "jit"])
def test_monitor_records_equal_cpu(jitted):
    snncell.set_seed(3)
    net, x = Net(), inputs()
    with everything(net) as expected:
        gradients(net)(x)
    net.to("gpu")
    run = snncell.jit(gradients(net)) if jitted else gradients(net)
    plain = flat(run(x.to("gpu")))
    with everything(net, every=2) as m:
        recorded = flat(run(x.to("gpu")))
    for a, b in zip(plain, recorded, strict=True):
        np.testing.assert_array_equal(a, b)
    assert expected.spikes["layer2"].any()
    for name in expected.layers:
        for quantity in ("spikes", "v", "grad"):
            found, wanted = getattr(m, quantity)[name], getattr(expected, quantity)[name]
            np.testing.assert_allclose(found, wanted[::2], rtol=1e-4, atol=1e-6)
    assert m.costs()["dense1"] == expected.costs()["dense1"]
    assert m.energy().dense == pytest.approx(expected.energy().dense)  # as often as it ran, whatever fired
