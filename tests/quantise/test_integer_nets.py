"""Integer networks: exported networks give the bits of the quantised ones, or the export raises."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from interpreting import plainly

import snncell as ms
from snncell import Tensor, nn, ops, quantise, surrogate
from snncell.errors import ArgumentError, CheckpointError, ShapeError
from snncell.io import write_arrays
from snncell.kernels.conv import winograd
from snncell.quantise import integer
from snncell.quantise.integer import shift_round

Q = quantise
T, B = 6, 3


def spikes(*shape: int, seed: int = 0) -> Any:
    return (np.random.default_rng(seed).random(shape) < 0.4).astype(np.float32)


class Drawn:
    """A random network, its quantisation, and its input, reproducible by seed."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        ms.set_seed(seed)
        self.signed = False
        convolutional = self.one_of(False, True)
        layers, features = self.images() if convolutional else self.rows()
        if self.one_of(False, True):
            layers.append(nn.AxonalDelay(features, 3, Tensor(self.rng.integers(0, 4, features).astype(np.float32))))
        self.recurrent = bool(self.one_of(False, True))
        neuron = self.neuron()
        hidden = nn.Recurrent(neuron, nn.Dense(7, 7)) if self.recurrent else neuron
        layers += [nn.Dense(features, 7, has_bias=self.one_of(True, False)), nn.MultiStep(hidden), nn.Dropout(p=0.3)]
        layers += [nn.Dense(7, 4), nn.MultiStep(self.neuron())]
        layers += [nn.Readout(self.one_of("sum", "max", "last"))] if self.one_of(False, True) else []
        self.net = nn.SequentialCell(*layers)
        for parameter in self.net.get_parameters():
            if parameter.name.endswith((".weight", ".bias")):
                parameter.set_data(parameter * float(self.one_of(1, 2, 3)))
        self.prepare()

    def one_of(self, *values: Any) -> Any:
        return values[self.rng.integers(len(values))]

    def rows(self) -> tuple[list[Any], int]:
        self.x = (self.rng.random((T, B, 9)) < 0.4).astype(np.float32)
        return [], 9

    def images(self) -> tuple[list[Any], int]:
        self.x = (self.rng.random((T, B, 2, 10, 10)) < 0.4).astype(np.float32)
        channels = self.one_of(3, 8)
        pool = self.one_of(nn.SumPool2d(2, 2), nn.AvgPool2d(2, 2), nn.MaxPool2d(2, 2))
        first = nn.Conv2d(
            2,
            channels,
            self.one_of(3, 2, 5),
            stride=self.one_of(1, 2),
            has_bias=self.one_of(True, False),
            **self.one_of({"pad_mode": "same"}, {"pad_mode": "valid"}, {"pad_mode": "pad", "padding": (1, 2, 0, 1)}),
        )
        second = nn.Conv2d(channels, 8, 3, group=self.one_of(1, channels if channels == 8 else 1))
        layers: list[Any] = [nn.TimeDistributed(nn.SequentialCell(first)), nn.MultiStep(self.neuron())]
        layers += [nn.TimeDistributed(pool), nn.TimeDistributed(second), nn.MultiStep(self.neuron()), nn.Flatten(2)]
        return layers, nn.SequentialCell(*layers)(Tensor(self.x)).shape[-1]

    def options(self) -> dict[str, Any]:
        options = {
            "reset": self.one_of("subtract", "zero", "value", None),
            "compare": self.one_of(">", ">="),
            "delay": self.one_of(None, None, "reset", "reset+input", "spike"),
            "max_spikes": self.one_of(1, 1, 1, 3, None),
            "v_threshold": self.one_of(1.0, 0.7, 0.31),
            "input_gain": self.one_of(1.0, 1.0, 2.0, 0.6),
        }
        return options | ({"v_reset": self.one_of(-0.5, 0.25, 0.1)} if options["reset"] == "value" else {})

    def neuron(self) -> Any:
        orders = ("decay jump read", "jump read decay", "jump decay read", "read decay jump")
        kinds: tuple[Callable[[], Any], ...] = (
            lambda: nn.IFNode(**self.options()),
            lambda: nn.LIFNode(self.one_of(2.0, 3.0, 7.0), decay_input=self.one_of(True, False), **self.options()),
            lambda: nn.LeakyNode(self.one_of(0.5, 0.9, 0.97), **self.options()),
            lambda: nn.CubaLIFNode(
                self.one_of(0.5, 0.8),
                self.one_of(0.9, 0.6),
                current_gain=self.one_of(1.0, 0.4),
                v_rest=self.one_of(0.0, 0.0, 0.2),
                order=self.one_of(*orders),
                **self.options(),
            ),
            lambda: nn.LINode(self.one_of(2.0, 5.0), decay_input=self.one_of(True, False)),
        )
        return self.one_of(*kinds)()

    def prepare(self) -> None:
        options = {"per_channel": self.one_of(False, True), "scale_bits": self.one_of(8, 4, 1)}
        scale = self.one_of("max", "mse", "percentile", "learned")
        kinds: tuple[Callable[[], Any], ...] = (
            lambda: Q.Uniform(self.one_of(2, 4, 8), scale, **options),
            lambda: Q.Uniform(4, symmetric=False, **options),
            lambda: Q.Ternary(**options),
            lambda: Q.Binary(**options),
            lambda: Q.PowerOfTwo(self.one_of(3, 4), per_channel=options["per_channel"]),
        )
        activations = None if self.recurrent else self.one_of(None, None, Q.FixedPoint(8, 4))
        states = Q.FixedPoint(self.one_of(8, 10, 12), self.one_of(4, 6, 8))
        Q.prepare(self.net, self.one_of(*kinds)(), states, activations, decay_bits=self.one_of(4, 8))


def compare(seed: int, folder: Any, run: Callable[[Any], Any]) -> bool:
    """True if a random network is exported and gives the same bits."""
    drawn = Drawn(seed)
    try:
        whole = Q.export(drawn.net)
    except ArgumentError:
        return False
    x = drawn.x
    if any(isinstance(layer, integer.Encode) for layer in whole.layers):
        x = np.random.default_rng(seed).normal(0, 2, x.shape).astype(np.float32)
    expected = run(drawn.net)(Tensor(x)).asnumpy()
    whole.save(folder / "net.safetensors")
    for net in (whole, Q.IntegerNet.load(folder / "net.safetensors")):
        found = net.run(x)
        assert found.dtype == np.int32
        np.testing.assert_array_equal(found * net.step, expected, err_msg=f"seed {seed}: {drawn.net!r}")
    return True


@pytest.mark.parametrize("start", range(0, 600, 20))
@pytest.mark.sampled(1)
@pytest.mark.uncompiled
def test_random_networks_give_same_bits(start: int, tmp_path: Any) -> None:
    with plainly():  # it is not kernels that decide here, and each network has others
        agreed = [compare(seed, tmp_path, lambda net: net) for seed in range(start, start + 20)]
    assert sum(agreed) >= 10  # the others are refused


@pytest.mark.compiled
@pytest.mark.parametrize("seed", range(1000, 1040))
@pytest.mark.sampled(1)
def test_compiled_networks_give_same_bits(seed: int, tmp_path: Any) -> None:
    compare(seed, tmp_path, ms.jit)


@pytest.mark.sampled(1)
@pytest.mark.compiled
@pytest.mark.parametrize(("window", "stride"), [(3, 1), (5, 2), (2, 1)])
def test_winograd_convolutions_are_exact_where_exported(window: int, stride: int, monkeypatch: Any) -> None:
    ms.set_seed(window)
    net = nn.SequentialCell(nn.Conv2d(32, 64, window, stride=stride, pad_mode="valid", has_bias=True))
    Q.prepare(net, Q.Uniform(3, scale_bits=1, per_channel=True))
    x = np.random.default_rng(0).integers(1, 3, (2, 32, 24, 24)).astype(np.float32)  # too many for events
    whole, by_tiles, correlate = Q.export(net, largest_input=2), [], winograd.correlate
    monkeypatch.setattr(winograd, "correlate", lambda *given: by_tiles.append(given) or correlate(*given))
    for run in (net, ms.jit(net)):
        np.testing.assert_array_equal(whole.run(x) * whole.step, run(Tensor(x)).asnumpy())
    assert by_tiles or window == 2


def small(neuron: Any = None, layer: Any = None, **options: Any) -> Any:
    ms.set_seed(0)
    net = nn.SequentialCell(layer or nn.Dense(6, 5), nn.MultiStep(neuron or nn.LeakyNode(0.9, v_threshold=0.3)))
    return Q.prepare(net, **{"weights": Q.Uniform(4), "states": Q.FixedPoint(12, 8), **options})


class Halved(nn.Neuron):
    """A custom neuron with a linear equation."""

    def charge(self, x: Tensor, v: Tensor) -> Any:
        return (v + x) / 2.0 - 0.125


class Named(nn.Neuron):
    """A custom neuron with an additional constant."""

    def __init__(self, keeps: float = 0.85, **options: Any) -> None:
        super().__init__({"keeps": keeps}, **options)

    def charge(self, x: Tensor, v: Tensor) -> Any:
        return self.keeps * v + self.gained(x)


class Thirds(Q.Quantiser):
    """A custom quantiser whose step differs from that of its values."""

    def grid(self, x: Tensor) -> Any:
        return (0.25,)

    def rounded(self, x: Tensor, *grid: Any) -> Any:
        return ops.round(x * 3.0) / 3.0


class Cubic(nn.Neuron):
    """A custom neuron with a nonlinear equation."""

    def charge(self, x: Tensor, v: Tensor) -> Any:
        return v - v * v * v * 0.5 + x


def test_custom_neuron_is_exported_if_linear() -> None:
    net = small(Halved({}, v_threshold=0.3))
    x = spikes(20, B, 6)
    np.testing.assert_array_equal(Q.export(net).run(x), net(Tensor(x)).asnumpy())


@pytest.mark.parametrize("learnable", [(), ("keeps",)])
def test_constants_of_custom_neuron_are_multipliers(learnable: tuple[str, ...]) -> None:
    net, x = small(Named(0.8513, learnable=learnable, v_threshold=0.3)), spikes(20, B, 6)
    np.testing.assert_array_equal(Q.export(net).run(x), net(Tensor(x)).asnumpy())
    rounded = Q.restore(net, rounded=True)[1].cell.keeps
    assert float(rounded) == round(0.8513 * 256) / 256
    net = nn.SequentialCell(nn.Dense(6, 5), nn.MultiStep(Named(0.001, learnable=learnable)))
    with pytest.raises(ArgumentError, match=r"1\.cell \(Named\): its keeps = 0\.001 would be 0 with 8 bits"):
        Q.prepare(net, Q.Uniform(4), Q.FixedPoint(12, 8))
    assert not hasattr(net[0], "quantisers") or net[0].quantisers is None
    Q.prepare(net, Q.Uniform(4), Q.FixedPoint(12, 8), decay_bits=12)


def test_per_neuron_and_learned_constants_are_exported() -> None:
    beta = Tensor(np.linspace(0.5, 0.95, 5).astype(np.float32))
    node = nn.LeakyNode(beta, v_threshold=Tensor([0.2, 0.3, 0.4, 0.5, 0.6]), learnable=("beta", "v_threshold"))
    net, x = small(node), spikes(20, B, 6)
    whole = Q.export(net)
    np.testing.assert_array_equal(whole.run(x), net(Tensor(x)).asnumpy())
    assert whole.layers[1].neuron.threshold.tolist() == [51, 77, 102, 128, 154]
    net, x = small(nn.LIFNode(3.0, learnable="tau", v_threshold=0.2)), spikes(20, B, 6)
    np.testing.assert_array_equal(Q.export(net).run(x), net(Tensor(x)).asnumpy())


def test_spike_counts_and_analog_inputs_give_same_bits() -> None:
    net = small(weights=Q.Uniform(4, scale_bits=2), states=Q.FixedPoint(10, 6))
    x = np.random.default_rng(0).integers(0, 8, (T, B, 6))
    np.testing.assert_array_equal(Q.export(net, largest_input=7).run(x), net(Tensor(x.astype(np.float32))).asnumpy())
    x = np.random.default_rng(0).normal(0, 2, (T, B, 6)).astype(np.float32)
    options = {"weights": Q.Uniform(4, scale_bits=2), "states": Q.FixedPoint(10, 6)}
    net = small(activations=Q.Uniform(6, "moving", scale_bits=2), **options).set_train()
    net(Tensor(x))
    whole = Q.export(net)
    assert net.training
    np.testing.assert_array_equal(whole.run(x), net.set_train(False)(Tensor(x)).asnumpy())


def test_float64_networks_are_exported_as_integers() -> None:
    net = Q.prepare(
        nn.SequentialCell(nn.Dense(6, 5, dtype=ms.float64), nn.MultiStep(nn.LeakyNode(0.9, v_threshold=0.3))),
        Q.Uniform(8),
        Q.FixedPoint(16, 10),
        decay_bits=10,
    )
    x = spikes(20, B, 6).astype(np.float64)
    np.testing.assert_array_equal(Q.export(net).run(x), net(Tensor(x)).asnumpy())


def test_layers_describe_bits_and_shifts_for_hardware() -> None:
    whole = Q.export(small(weights=Q.Uniform(4, per_channel=True, scale_bits=1), decay_bits=4))
    product, steps = whole.layers
    neuron = steps.neuron
    assert product.weight.dtype == np.int8 and np.abs(product.weight).max() == 7
    assert product.multiplier.dtype == neuron.v_from_v.dtype == np.int32
    assert all(m & (m - 1) == 0 for m in product.multiplier.tolist())  # shifts
    assert neuron.v_from_v / 2**neuron.shift == 14 / 16 and (neuron.low, neuron.high) == (-2048, 2047)
    assert neuron.threshold == round(0.3 * 256) and whole.step == 1.0
    assert "Product dense (5, 6) int8" in repr(whole) and whole.weight_bytes == 30 + 5 * 4


def test_shifts_round_half_to_even() -> None:
    x = np.arange(-40, 41)
    for bits in range(5):
        np.testing.assert_array_equal(shift_round(x, bits), np.rint(x / 2**bits).astype(np.int64))
    np.testing.assert_array_equal(shift_round(x, -2), x * 4)


# --- errors -----------------------------------------------------------------------------------------------------------


def over_time(cell: Any) -> Any:
    return nn.TimeDistributed(cell)


REFUSED: dict[str, tuple[str, Callable[[], Any]]] = {
    "weights": (r"0 \(Dense\): its weights are not quantised.*Uniform\(8\)", lambda: small(weights=None)),
    "states": (r"1.cell \(LeakyNode\): its states are not quantised", lambda: small(states=None)),
    "batch norm": (
        r"1 \(BatchNorm1d\).*quantise.fold",
        lambda: Q.prepare(nn.SequentialCell(nn.Dense(2, 2), nn.BatchNorm1d(2)), Q.Binary()),
    ),
    "layer": (
        r"1 \(GELU\): there is no integer layer",
        lambda: Q.prepare(nn.SequentialCell(nn.Dense(2, 2), nn.GELU()), Q.Binary()),
    ),
    "own net": (
        r"^export: Conv2dTranspose: there is no integer layer",
        lambda: Q.prepare(nn.Conv2dTranspose(2, 2, 3), Q.Binary()),
    ),
    "activation": (
        "its activation has no integer form",
        lambda: Q.prepare(nn.Dense(2, 2, activation="relu"), Q.Binary()),
    ),
    "cubic": (r"1.cell \(Cubic\): its equation of h is not linear", lambda: small(Cubic({}))),
    "refractory": (r"RefractoryLIFNode\): it defines its own step", lambda: small(nn.RefractoryLIFNode())),
    "integers": (r"ILIFNode\): it defines its own spikes", lambda: small(nn.ILIFNode())),
    "stochastic": (
        "StochasticSpike may fire by another rule",
        lambda: small(nn.LeakyNode(surrogate_function=surrogate.StochasticSpike())),
    ),
    "adaptive": (r"ALIFNode\)", lambda: small(nn.ALIFNode())),
    "threshold": (
        r"on the grid of its states its threshold is 0.*more than 2 bits after the point",
        lambda: small(nn.LeakyNode(v_threshold=0.1), states=Q.FixedPoint(8, 2)),
    ),
    "potential": (
        r"its potential needs \S+ bits before rounding, of 24.*fewer decay_bits",
        lambda: small(nn.LeakyNode(0.9, v_threshold=0.3), states=Q.FixedPoint(16, 12), decay_bits=14),
    ),
    "sums": (
        "its sums reach .* but are exact up to 1.68e.07.*scale_bits",
        lambda: small(layer=nn.Dense(3000, 5, weight_init="ones"), weights=Q.Uniform(8)),
    ),
    "moving": ("its moving scale has seen no inputs", lambda: small(activations=Q.Uniform(8, "moving"))),
    "max": ("depends on the inputs", lambda: small(activations=Q.Uniform(8))),
    "delays": (
        r"AxonalDelay\): its delays are not whole steps",
        lambda: nn.SequentialCell(nn.AxonalDelay(2, 3, Tensor([0.5, 1.0]))),
    ),
    "mean": (r"Readout\): 'mean' is not a sum of integers", lambda: nn.SequentialCell(nn.Readout("mean"))),
    "mean of 9": (
        r"cell.0 \(AvgPool2d\): a mean of 9 is not a shift",
        lambda: over_time(nn.SequentialCell(nn.AvgPool2d(3, 3))),
    ),
    "padded pool": ('pad_mode="valid"', lambda: over_time(nn.MaxPool2d(2, 2, pad_mode="same"))),
    "ceil mode": ("it has ceil_mode", lambda: over_time(nn.MaxPool2d(2, 2, ceil_mode=True))),
    "return states": ("return_states=False", lambda: nn.MultiStep(nn.LeakyNode(), return_states=True)),
    "thirds": (r"transforms contain thirds.*at most 3 elements", lambda: Q.prepare(nn.Conv2d(8, 8, 5), Q.Ternary())),
    "nan": (
        "its weights are not finite",
        lambda: small(layer=nn.Dense(2, 2, weight_init=Tensor([[np.nan, 1.0], [1.0, 1.0]]))),
    ),
    "synapse": (r"WithSynapse\): it defines its own step", lambda: small(nn.WithSynapse(nn.LeakyNode(0.9), 0.5))),
    "float16": (
        r"0 \(Dense\): its Parameters are [Ff]loat16.*dtype=float32",
        lambda: small(layer=nn.Dense(6, 5, dtype=ms.float16)),
    ),
    "thirds of weights": (
        "the values of Thirds are not multiples of its step",
        lambda: small(layer=nn.Dense(6, 5, weight_init=0.3), weights=Thirds()),
    ),
    "axis": ("its scales are along another axis", lambda: small(weights=Q.Uniform(4, per_channel=True, axis=1))),
    "class": ("net is a Cell", lambda: nn.LIFNode),
}


@pytest.mark.parametrize("case", REFUSED)
def test_inexact_export_raises_with_fix(case: str) -> None:
    text, make = REFUSED[case]
    with pytest.raises(ArgumentError, match=text), np.errstate(all="ignore"):
        Q.export(make())


def test_feedback_is_exported_as_dense_layer() -> None:
    net = nn.MultiStep(nn.Recurrent(nn.LeakyNode(), nn.SequentialCell(nn.Dense(3, 3))))
    with pytest.raises(ArgumentError, match=r"cell.feedback \(SequentialCell\): the feedback of a neuron"):
        Q.export(Q.prepare(net, Q.Binary(), Q.FixedPoint(12, 8)))


def test_inputs_must_be_integers() -> None:
    whole = Q.export(small())
    with pytest.raises(ArgumentError, match=r"x must be integers.*activations="):
        whole.run(np.full((T, B, 6), 0.5))
    with pytest.raises(ArgumentError, match="x must be an array of numbers"):
        whole.run(np.full((T, B, 6), "a"))
    with pytest.raises(ShapeError, match=r"takes 6 channels on axis -1, but the shape is \(6, 3, 7\)"):
        whole.run(np.zeros((T, B, 7)))
    for dtype in (bool, np.uint8, np.int64, np.float64):
        np.testing.assert_array_equal(whole.run(spikes(T, B, 6).astype(dtype)), whole.run(spikes(T, B, 6)))


def test_sums_over_time_beyond_int32_raise() -> None:
    readout = integer.IntegerReadout(-8, "sum", 2.0**15)
    x = np.full((65536, 1, 1), 2**15 - 1, np.int32)
    assert readout.run(x).item() == 65536 * (2**15 - 1)
    with pytest.raises(ArgumentError, match=r"run: the sums over 65539 steps do not fit into int32.*nn.Readout"):
        readout.run(np.concatenate([x, x[:3]]))


def test_damaged_and_foreign_files_raise(tmp_path: Any) -> None:
    file = tmp_path / "net.safetensors"
    net = small()
    Q.export(net).save(file)
    content = file.read_bytes()
    file.write_bytes(content[:-9])
    with pytest.raises(CheckpointError, match="damaged or no safetensors file"):
        Q.IntegerNet.load(file)
    file.write_bytes(content.replace(b"Product", b"Pr0duct"))
    with pytest.raises(CheckpointError, match="is damaged"):
        Q.IntegerNet.load(file)
    ms.save_checkpoint(net, file)
    with pytest.raises(CheckpointError, match=r"must have the format .* of IntegerNet\.save"):
        Q.IntegerNet.load(file)
    with pytest.raises(CheckpointError, match="there is no file"):
        Q.IntegerNet.load(tmp_path / "none")


@pytest.mark.parametrize("layers", ["[", "3", "[3]", '[{"kind": "Flatten", "fields": []}]', "[" * 100_000])
def test_damaged_description_of_layers_raises(layers: str, tmp_path: Any) -> None:
    file = tmp_path / "net.safetensors"
    write_arrays(file, {}, {"format": integer.FORMAT, "layers": layers}, "save")
    with pytest.raises(CheckpointError, match=r"load: .* is damaged"):
        Q.IntegerNet.load(file)


def test_forward_hook_raises_and_phases_are_kept():
    net = Q.prepare(
        nn.SequentialCell(nn.Dense(3, 4), nn.MultiStep(nn.LeakyNode(0.9))), Q.Uniform(4), Q.FixedPoint(12, 8)
    )
    net.set_train()
    net[0].set_train(False)
    Q.export(net)
    assert [cell.training for cell in (net, net[0], net[1])] == [True, False, True]
    handle = net[0].register_forward_hook(lambda cell, inputs, out: out * 2.0)
    with pytest.raises(ArgumentError, match=r"export: 0 \(Dense\) has a forward hook"):
        Q.export(net)
    handle.remove()
    net[0].register_backward_hook(lambda cell, grad_input, grad_output: None)
    assert len(Q.export(net).layers) > 0
