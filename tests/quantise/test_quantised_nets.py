"""Quantised networks: rounding of weights and states, training, checkpoints, export, and batch-norm folding."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import snncell as ms
from snncell import Parameter, Tensor, amp, nn, ops, quantise, surrogate, testing, train
from snncell.errors import ArgumentError, NirError, ShapeError
from snncell.monitoring import energy
from snncell.nn.time.multistep import initial_states

Q = quantise
T, B = 7, 4


def spikes(*shape: int, seed: int = 0) -> Tensor:
    return Tensor((np.random.default_rng(seed).random(shape) < 0.4).astype(np.float32))


def network(recurrent: bool = True) -> Any:
    ms.set_seed(3)
    lif = nn.LIFNode(3.0, v_threshold=0.3, surrogate_function=surrogate.ATan())
    hidden = nn.Recurrent(lif, nn.Dense(8, 8)) if recurrent else lif
    net = nn.SequentialCell(
        nn.Dense(6, 8),
        nn.MultiStep(nn.CubaLIFNode(0.5, 0.9, v_threshold=0.4)),
        nn.Dense(8, 8),
        nn.MultiStep(hidden),
        nn.Dense(8, 3, has_bias=False),
        nn.MultiStep(nn.LINode(4.0)),
    )
    for i in (0, 2, 4):  # so that it fires
        net[i].weight.set_data(net[i].weight * 3.0)
    return net


KINDS: dict[str, dict[str, Any]] = {
    "weights": {"weights": Q.Uniform(4)},
    "learned": {"weights": Q.Uniform(4, "learned", per_channel=True), "states": Q.FixedPoint(12, 6)},
    "states": {"states": Q.FixedPoint(8, 4), "decay_bits": 4},
    "all": {"weights": Q.Ternary(), "states": Q.FixedPoint(12, 8), "activations": Q.FixedPoint(8, 4)},
    "moving": {"weights": Q.PowerOfTwo(), "activations": Q.Uniform(6, "moving")},
}


def loss_of(net: Any) -> Callable[[Tensor], Tensor]:
    return lambda x: ops.sum(ops.square(net(x)))


def same(first: Any, second: Any, rtol: float = 1e-5) -> None:
    for a, b in zip(first, second, strict=True):
        np.testing.assert_allclose(a.asnumpy(), b.asnumpy(), rtol=rtol, atol=rtol)


# --- rounding ---------------------------------------------------------------------------------------------------------

LAYERS: dict[str, tuple[Callable[[], Any], tuple[int, ...]]] = {
    "dense": (lambda: nn.Dense(6, 3), (B, 6)),
    "dense over time": (lambda: nn.Dense(6, 3, has_bias=False), (T, B, 6)),
    "conv1d": (lambda: nn.Conv1d(2, 3, 3, has_bias=True), (B, 2, 7)),
    "conv2d": (lambda: nn.Conv2d(2, 4, 3, stride=2, group=2, has_bias=True), (B, 2, 7, 7)),
    "transposed": (lambda: nn.Conv2dTranspose(2, 3, 3, has_bias=True), (B, 2, 5, 5)),
}


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("kind", LAYERS)
def test_layer_computes_with_quantised_weights_and_bias(kind: str, per_channel: bool) -> None:
    make, shape = LAYERS[kind]
    if kind == "transposed" and per_channel:
        with pytest.raises(ArgumentError, match="its outputs on axis 1"):
            Q.prepare(make(), Q.Uniform(4, per_channel=True))
        return
    layer, plain = make(), make()
    Q.prepare(layer, Q.Uniform(3, per_channel=per_channel, scale_bits=4))
    levels, step = layer.quantisers.weight.integers(layer.weight)
    plain.weight.set_data(Tensor((levels * step).astype(np.float32)))
    if layer.has_bias:
        steps = step.reshape(-1)  # one for each channel, or one
        plain.bias.set_data(Tensor((np.rint(layer.bias.asnumpy() / steps) * steps).astype(np.float32)))
    x = spikes(*shape)
    before = layer.weight.asnumpy().copy()
    np.testing.assert_array_equal(layer(x).asnumpy(), plain(x).asnumpy())
    np.testing.assert_array_equal(layer.weight.asnumpy(), before)
    # Straight through: nothing is clipped, so the gradient is that of the layer with those weights.
    both = [ms.grad(lambda x, n=n: ops.sum(ops.square(n(x))), None, n.trainable_params())(x) for n in (layer, plain)]
    same(*both)


NEURONS: dict[str, Callable[[], Any]] = {
    "LIF": lambda: nn.LIFNode(3.0),
    "Leaky": lambda: nn.LeakyNode(0.9, learnable="beta"),
    "zero": lambda: nn.LeakyNode(0.9, reset="zero", v_threshold=0.7),
    "delayed": lambda: nn.LeakyNode(0.9, delay="reset", v_threshold=0.7),
    "IF": lambda: nn.IFNode(0.7),
    "Cuba": lambda: nn.CubaLIFNode(0.5, 0.9),
    "adaptive": nn.ALIFNode,
    "izhikevich": lambda: nn.AdaptiveQIFNode(),
    "readout": lambda: nn.LINode(5.0),
    "parametric": nn.ParametricLIFNode,
}


@pytest.mark.parametrize("name", NEURONS)
def test_states_are_on_grid_and_saturate(name: str) -> None:
    grid = Q.FixedPoint(7, 4)
    node = Q.prepare(NEURONS[name](), states=grid, decay_bits=6)
    x = Tensor(np.random.default_rng(1).normal(0, 6, (T, B, 5)).astype(np.float32))
    states = initial_states(node, x[0])
    extremes = []
    for now in x:
        out, *states = node(now, *states)
        for state in states:
            np.testing.assert_array_equal(state.asnumpy() * 16, np.rint(state.asnumpy() * 16))
            extremes.append(np.abs(state.asnumpy()).max())
        assert np.isfinite(out.asnumpy()).all()
    assert max(extremes) <= 4.0 and max(extremes) > 1.0


def test_step_equals_integer_arithmetic() -> None:
    node = Q.prepare(nn.LeakyNode(0.9, v_threshold=0.7), states=Q.FixedPoint(8, 4), decay_bits=3)
    out, v = node(Tensor([0.3, 1.0, -99.0, 99.0]), Tensor([0.5, 0.25, 0.0, 0.0]))
    # beta = 7 / 8, threshold = 11 / 16; 0.4375 + 0.3 = 11.8 / 16, 0.21875 + 1 = 19.5 / 16
    assert out.asnumpy().tolist() == [1.0, 1.0, 0.0, 1.0]
    assert (v.asnumpy() * 16).tolist() == [12 - 11, 20 - 11, -128, 127 - 11]


def test_initial_states_are_on_grid() -> None:
    node = Q.prepare(nn.LIFNode(2.0, v_reset=0.3, v_threshold=0.9, reset="value"), states=Q.FixedPoint(8, 3))
    assert initial_states(node, ops.zeros((1, 2)))[0].asnumpy().tolist() == [[0.25, 0.25]]
    assert node.v_reset == 0.3


@pytest.mark.parametrize("tau", [2.0, 3.0, 300.0])
def test_time_constants_become_nonzero_multipliers(tau: float) -> None:
    for learnable in ((), "tau"):
        node = Q.prepare(
            nn.LIFNode(tau, v_threshold=99.0, learnable=learnable), states=Q.FixedPoint(16, 8), decay_bits=6
        )
        v = node(Tensor([64.0]), Tensor([0.0]))[1].item()
        assert v == 64.0 * max(round(64 / tau), 1) / 64


# --- operations on networks -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.sampled(1)
def test_loops_jit_and_single_steps_agree(kind: str, training: bool, run: Callable[[Any], Any]) -> None:
    x, nets = spikes(T, B, 6), [Q.prepare(network(), **KINDS[kind]).set_train(training) for _ in range(2)]
    with testing.unfused():
        expected, slopes = ms.value_and_grad(loss_of(nets[0]), None, nets[0].trainable_params())(x)
    found = ms.value_and_grad(loss_of(nets[1]), None, nets[1].trainable_params())
    value, others = run(found)(x)
    np.testing.assert_allclose(value.asnumpy(), expected.asnumpy(), rtol=1e-6)
    same(others, slopes, 2e-5)
    assert any(np.any(g.asnumpy() != 0) for g in slopes)


@pytest.mark.compiled
def test_loop_is_one_kernel_forward_and_backward() -> None:
    net = Q.prepare(network(), Q.Uniform(4), Q.FixedPoint(12, 6))
    text = str(ms.explain(ms.grad(loss_of(net), None, net.trainable_params()), spikes(T, B, 6), detail="launches"))
    assert "6 loops over time" in text and text.count("one kernel") >= 6


@pytest.mark.parametrize("kind", ["states", "weights"])
def test_smooth_network_passes_finite_differences(kind: str) -> None:
    net = network(recurrent=False)
    options = {"weights": {"weights": Q.Uniform(4, 0.25)}, "states": {"states": Q.FixedPoint(14, 10)}}[kind]
    Q.prepare(net, **options)
    for parameter in list(net.trainable_params()):
        parameter.set_data(parameter * 0.5)
    doubles = copy.deepcopy(net)
    x = Tensor(np.random.default_rng(2).normal(0, 0.3, (3, 2, 6)))
    with surrogate.smooth(), testing.unfused():
        testing.check_grads(lambda x: doubles(x), x, rtol=1e-2, atol=1e-4)


def test_second_order_gradient_exists() -> None:
    net = Q.prepare(network(recurrent=False), Q.Uniform(6), Q.FixedPoint(14, 10))
    x = spikes(T, B, 6)
    once = ms.grad(loss_of(net))
    twice = ms.grad(lambda x: ops.sum(ops.square(once(x))))(x)
    assert np.isfinite(twice.asnumpy()).all() and np.any(twice.asnumpy() != 0)


def test_shared_parameter_is_rounded_at_each_use() -> None:
    first, second = nn.Dense(4, 4, has_bias=False), nn.Dense(4, 4, has_bias=False)
    second.weight = first.weight
    net = nn.SequentialCell(first, second)
    Q.prepare(net, Q.Uniform(4), skip=["1"])
    assert second.quantisers is None and len(net.trainable_params()) == 1
    x = spikes(B, 4)
    rounded = first.quantisers.weight(first.weight)
    expected = ops.matmul(ops.matmul(x, rounded.T), first.weight.T)
    np.testing.assert_allclose(net(x).asnumpy(), expected.asnumpy(), rtol=1e-6)
    (slope,) = ms.grad(lambda x: ops.sum(net(x)), None, net.trainable_params())(x)
    assert np.all(slope.asnumpy() != 0)


def test_checkpoints_copies_and_pickles_keep_learned_scales(tmp_path: Any) -> None:
    net, other = (Q.prepare(network(), **KINDS["learned"]) for _ in range(2))
    for parameter in net.trainable_params():
        parameter.set_data(parameter * 1.25)
    assert "0.quantisers.weight.step_size" in net.parameters_dict()
    x = spikes(T, B, 6)
    ms.save_checkpoint(net, tmp_path / "net.ckpt")
    ms.load_checkpoint(tmp_path / "net.ckpt", other)
    for one in (other, copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        np.testing.assert_array_equal(one(x).asnumpy(), net(x).asnumpy())


def test_restore_recovers_every_bit() -> None:
    net, x = network(), spikes(T, B, 6)
    before, names = net(x).asnumpy(), list(net.parameters_dict())
    Q.prepare(net, **KINDS["all"])
    assert np.any(net(x).asnumpy() != before)
    assert Q.restore(net) is net
    np.testing.assert_array_equal(net(x).asnumpy(), before)
    assert list(net.parameters_dict()) == names


def test_restore_can_keep_rounded_values() -> None:
    ms.set_seed(0)
    node = nn.LIFNode(3.0, v_threshold=0.7, v_reset=0.1, reset="value", learnable="v_threshold")
    net = nn.SequentialCell(nn.Dense(6, 5), nn.MultiStep(node), nn.Dense(5, 3), nn.MultiStep(nn.LINode(4.0)))
    Q.prepare(net, Q.Uniform(3), Q.FixedPoint(12, 3), decay_bits=4)
    weight = net[0].quantisers.weight(net[0].weight).asnumpy()
    Q.restore(net, rounded=True)
    np.testing.assert_array_equal(net[0].weight.asnumpy(), weight)
    assert (node.v_threshold.item(), node.v_reset, node.tau, node.v_rest) == (0.75, 0.125, 16 / 5, 0.125)
    assert isinstance(node.v_threshold, Parameter) and net[0].quantisers is None


def test_nir_export_of_quantisers_raises_and_of_rounded_values_works() -> None:
    pytest.importorskip("nir")
    net = nn.SequentialCell(nn.Dense(6, 5), nn.MultiStep(nn.LIFNode(2.0, reset="zero")))
    Q.prepare(net, Q.Uniform(3), Q.FixedPoint(12, 8))
    with pytest.raises(NirError, match=r"0 \(Dense\) is quantised.*restore"):
        ms.nir.to_nir(net, 1e-3, 6)
    weight = net[0].quantisers.weight(net[0].weight).asnumpy()
    graph = ms.nir.to_nir(Q.restore(net, rounded=True), 1e-3, 6)
    np.testing.assert_array_equal(graph.nodes["0"].weight, weight)


@pytest.mark.slow
def test_fit_trains_groups_and_resumes_from_checkpoint(tmp_path: Any) -> None:
    def trained(epochs: list[int]) -> Any:
        for until in epochs:
            net = Q.prepare(network(recurrent=False), **KINDS["learned"])
            net.append(nn.Readout("max"))
            scales = [p for p in net.trainable_params() if p.name.endswith(".step_size")]
            others = [p for p in net.trainable_params() if not p.name.endswith(".step_size")]
            adam = nn.Adam([{"params": others, "lr": 1e-2}, {"params": scales, "lr": 1e-4}])
            x, y = spikes(T, 40, 6).asnumpy(), np.arange(40) % 3
            data = train.Batches(x, y, batch_size=20, time_first=True)
            file = tmp_path / f"{len(epochs)}.state"
            resume = {"resume": file} if file.exists() else {}
            result = train.fit(net, nn.CrossEntropyLoss(), adam, data, until, progress=False, checkpoint=file, **resume)
        return net, result

    (net, result), (again, _) = trained([4]), trained([2, 4])
    assert len(result.history) == 4
    same(net.get_parameters(), again.get_parameters(), 0.0)


def test_costs_and_energies_are_counted() -> None:
    net, x = Q.prepare(network(), **KINDS["all"]), spikes(T, B, 6)
    with ms.monitor(net, v=True, inputs=True) as monitor:
        net(x)
    with ms.monitor(Q.restore(net), inputs=True) as plain:
        net(x)
    assert [c.macs for c in monitor.costs().values()] == [c.macs for c in plain.costs().values()]
    found = energy(Q.prepare(net, **KINDS["all"]), x, hardware="45nm-int8")
    assert found.joules > 0.0


# --- errors -----------------------------------------------------------------------------------------------------------


class WithBprop(nn.Dense):
    """A Dense with a custom `bprop`."""

    def bprop(self, x: Tensor, out: Tensor, dout: Tensor) -> Any:
        return (ops.matmul(dout, self.weight),)


class Own(nn.Cell):
    """A Cell of one step that is not an nn.Neuron."""

    def construct(self, x: Tensor, v: Tensor) -> Any:
        v = v * 0.5 + x
        return v, v


class Remembers(nn.Dense):
    """A Dense that stores a value on itself."""

    def construct(self, x: Tensor) -> Tensor:
        self.seen = Parameter(Tensor(1.0))
        return super().construct(x)


def half(net: Any) -> Any:
    return amp.auto_mixed_precision(net, "O1")


ERRORS: dict[str, tuple[str, Callable[[], Any]]] = {
    "nothing": ("pass weights, states or activations", lambda: Q.prepare(network())),
    "no layer": ("SequentialCell has nothing to round", lambda: Q.prepare(nn.SequentialCell(), Q.Uniform(4))),
    "no neuron": (
        "states need neurons .nn.Neuron, nn.LINode.",
        lambda: Q.prepare(nn.Dense(1, 1), states=Q.FixedPoint()),
    ),
    "twice": (
        r"0 \(Dense\) is already prepared\. quantise.restore",
        lambda: Q.prepare(Q.prepare(network(), Q.Binary()), Q.Binary()),
    ),
    "half": (r'computes in float16.*"O0"', lambda: Q.prepare(half(network()), Q.Binary())),
    "half later": (
        r"0 \(Dense\) is quantised, and float16 has (fewer|too few) bits.*restore",
        lambda: half(Q.prepare(network(), Q.Binary())),
    ),
    "bprop": (r"WithBprop has a bprop.*skip=", lambda: Q.prepare(WithBprop(2, 2), Q.Binary())),
    "path": (
        r"skip='9' names no Cell. The Cells to round are 0, 1.cell, 2",
        lambda: Q.prepare(network(), Q.Binary(), skip=["9"]),
    ),
    "skip": (
        "a list of paths and of classes of Cells, not of a int",
        lambda: Q.prepare(network(), Q.Binary(), skip=[3]),
    ),
    "learned input": (
        "activations must share one scale that is not learned",
        lambda: Q.prepare(network(), activations=Q.Uniform(4, "learned")),
    ),
    "states": ("states is a FixedPoint", lambda: Q.prepare(network(), states=Q.Uniform(4))),
    "weights": ("weights is a Quantiser", lambda: Q.prepare(network(), 4)),
    "attribute": (
        "lost in a quantised Cell.*skip=.Remembers",
        lambda: Q.prepare(Remembers(2, 2), Q.Binary())(spikes(B, 2)),
    ),
}


@pytest.mark.parametrize("case", ERRORS)
def test_errors_name_layer_and_fix(case: str) -> None:
    text, wrong = ERRORS[case]
    with pytest.raises(ArgumentError, match=text):
        wrong()


def test_cells_that_are_not_neurons_raise_unless_skipped() -> None:
    net = nn.SequentialCell(nn.MultiStep(nn.LIFNode()), nn.MultiStep(Own()))
    with pytest.raises(ArgumentError, match=r"1.cell \(Own\) is not an nn.Neuron, so its states.*skip=\[Own\]"):
        Q.prepare(net, states=Q.FixedPoint(12, 8))
    assert net[0].cell.quantisers is None
    assert Q.prepare(net, states=Q.FixedPoint(12, 8), skip=[Own])[0].cell.quantisers is not None


def test_synapse_and_neuron_are_both_rounded() -> None:
    net = Q.prepare(
        nn.MultiStep(nn.WithSynapse(nn.CubaLIFNode(0.5, 0.9), 0.7), return_states=True), states=Q.FixedPoint(9, 5)
    )
    out, states = net(Tensor(np.random.default_rng(0).normal(0, 2, (T, B, 5)).astype(np.float32)))
    assert len(states) == 3 and out.shape == (T, B, 5)
    for state in states:
        np.testing.assert_array_equal(state.asnumpy() * 32, np.rint(state.asnumpy() * 32))


def test_error_leaves_network_unchanged() -> None:
    net = nn.SequentialCell(nn.Dense(2, 2), WithBprop(2, 2))
    with pytest.raises(ArgumentError, match=r"1 \(WithBprop\) has a bprop"):
        Q.prepare(net, Q.Binary())
    assert net[0].quantisers is None
    assert Q.prepare(net, Q.Binary(), skip=[WithBprop])[0].quantisers is not None


# --- folding ----------------------------------------------------------------------------------------------------------

FOLDED: dict[str, tuple[Callable[[], Any], tuple[int, ...]]] = {
    "dense": (lambda: nn.SequentialCell(nn.Dense(5, 4), nn.BatchNorm1d(4)), (B, 5)),
    "no bias": (lambda: nn.SequentialCell(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4)), (B, 2, 6, 6)),
    "groups": (lambda: nn.SequentialCell(nn.Conv2d(2, 4, 3, group=2, has_bias=True), nn.BatchNorm2d(4)), (B, 2, 6, 6)),
    "conv1d": (lambda: nn.SequentialCell(nn.Conv1d(2, 4, 3), nn.BatchNorm1d(4)), (B, 2, 6)),
    "distributed": (
        lambda: nn.SequentialCell(
            nn.TimeDistributed(nn.Conv2d(2, 4, 3)), nn.TimeDistributed(nn.BatchNorm2d(4)), nn.Flatten(2)
        ),
        (T, B, 2, 6, 6),
    ),
    "inside": (
        lambda: nn.SequentialCell(nn.TimeDistributed(nn.SequentialCell(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4)))),
        (T, B, 2, 6, 6),
    ),
    "threshold": (lambda: nn.SequentialCell(nn.Dense(5, 4), nn.ThresholdBatchNorm(4, 0.5), nn.Dense(4, 2)), (T, B, 5)),
    "named": (
        lambda: nn.SequentialCell({"in": nn.Dense(5, 4), "norm": nn.BatchNorm1d(4), "out": nn.Dense(4, 3)}),
        (B, 5),
    ),
}


@pytest.mark.parametrize("name", FOLDED)
def test_folded_network_equals_network(name: str) -> None:
    make, shape = FOLDED[name]
    ms.set_seed(1)
    net, rng = make(), np.random.default_rng(0)
    for path, p in net.parameters_and_names():
        if p.name.endswith((".gamma", ".beta", ".moving_mean", ".moving_variance")):
            p.set_data(
                Tensor(
                    rng.uniform(0.3, 2.0, p.shape).astype(np.float32)
                    * (1 if "var" in path else np.float32(rng.choice([-1, 1])))
                )
            )
    x = spikes(*shape)
    folded = Q.fold(net)
    np.testing.assert_allclose(folded(x).asnumpy(), net(x).asnumpy(), rtol=1e-4, atol=1e-5)
    assert not any("moving" in p.name for p in folded.get_parameters()) and any(
        "moving" in p.name for p in net.get_parameters()
    )
    assert all(cell is not None for cell in folded) and len(folded) <= len(net)
    if name == "named":
        assert list(folded.name_cells()) == ["in", "out"]
    folded.append(nn.Flatten())
    folded(x)


BN = nn.BatchNorm1d
FOLDS: dict[str, tuple[str, Callable[[], Any]]] = {
    "none": ("SequentialCell has no batch normalisation", lambda: network()),
    "first": (r"0 \(BatchNorm1d\) does not directly follow", lambda: nn.SequentialCell(BN(2), nn.Dense(2, 2))),
    "neuron": (
        "does not directly follow",
        lambda: nn.SequentialCell(nn.Dense(2, 2), nn.MultiStep(nn.LIFNode()), BN(2)),
    ),
    "activation": ("or an activation", lambda: nn.SequentialCell(nn.Dense(2, 2, activation="relu"), BN(2))),
    "batch": ("statistics of each batch", lambda: nn.SequentialCell(nn.Dense(2, 2), BN(2, use_batch_statistics=True))),
    "channels": ("has 3 channels, but the layer before it 2", lambda: nn.SequentialCell(nn.Dense(2, 2), BN(3))),
    "axis": (
        "normalises another axis than that of the outputs",
        lambda: nn.SequentialCell(nn.Dense(2, 2), nn.BatchNorm2d(2)),
    ),
    "time": ("normalises another axis", lambda: nn.SequentialCell(nn.TimeDistributed(nn.Dense(2, 2)), BN(2))),
    "steps": ("statistics for each step", lambda: nn.SequentialCell(nn.Dense(2, 2), nn.BatchNormThroughTime(2, T))),
    "prepared": ("Call fold first", lambda: Q.prepare(nn.SequentialCell(nn.Dense(2, 2), BN(2)), Q.Binary())),
}


@pytest.mark.parametrize("case", FOLDS)
def test_errors_of_folding_name_normalisation(case: str) -> None:
    text, make = FOLDS[case]
    with pytest.raises(ArgumentError, match=text):
        Q.fold(make())


def test_folded_dense_refuses_outputs_on_another_axis_than_normalisation() -> None:
    """(B, C, L) has the outputs of a Dense on axis 2, and BatchNorm1d normalises axis 1 of the same length."""
    folded = Q.fold(nn.SequentialCell(nn.Dense(5, 4), BN(4)))
    with pytest.raises(
        ShapeError, match=r"at most 2 axes\. .* over axis 1 into .* axis 1 must be the last axis of the"
    ):
        folded(ops.ones((3, 4, 5)))
    ordered = nn.SequentialCell(nn.Dense(5, 4), nn.TimeDistributed(BN(4)))
    np.testing.assert_allclose(Q.fold(ordered)(ops.ones((3, 2, 5))), ordered(ops.ones((3, 2, 5))), rtol=1e-5)


def test_shared_layer_is_not_folded() -> None:
    shared = nn.Dense(2, 2)
    with pytest.raises(ArgumentError, match="also used elsewhere"):
        Q.fold(nn.SequentialCell(shared, BN(2), nn.SequentialCell(shared, BN(2))))
