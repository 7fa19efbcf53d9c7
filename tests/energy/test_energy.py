"""Energy estimates: operation counts compared with loops over every spike and synapse of random nets; prices; texts."""

import dataclasses
import math
import pickle
import subprocess
import sys

import numpy as np
import pytest
from neuron_table import NEURONS as NEURON_TABLE

import snncell
from snncell import Tensor, data, errors, monitoring, nn, ops

compiled = pytest.mark.compiled

# --- independent count ------------------------------------------------------------------------------------------------


def one(value, axis):
    return value if isinstance(value, int) else value[axis]


def before(length, kernel, stride, dilation, layer, axis):
    """The padding before an axis, and the length of the result."""
    span = (kernel - 1) * dilation + 1
    if layer.pad_mode == "valid":
        return 0, (length - span) // stride + 1
    if layer.pad_mode == "pad":
        pad = one(layer.padding, axis)
        return pad, (length + 2 * pad - span) // stride + 1
    results = -(-length // stride)
    return max((results - 1) * stride + span - length, 0) // 2, results


def taps(place, length, axis, layer):
    """The number of results along one axis that an input at `place` reaches."""
    kernel, stride, dilation = layer.kernel_size[axis], one(layer.stride, axis), one(layer.dilation, axis)
    if isinstance(layer, nn.Conv2dTranspose):  # the inputs are the results of a convolution of what it gives
        assert layer.pad_mode == "same"
        results = length * stride
        pad, _ = before(results, kernel, stride, dilation, layer, axis)
        return sum(0 <= place * stride + k * dilation - pad < results for k in range(kernel))
    pad, results = before(length, kernel, stride, dilation, layer, axis)
    return sum(result * stride - pad + k * dilation == place for result in range(results) for k in range(kernel))


def synapses(layer, place, shape):
    """The number of weights that an input of a layer uses, without those on padding."""
    if isinstance(layer, nn.Dense):
        return sum(1 for _ in range(layer.out_channels))
    reached = math.prod(taps(place[1 + n], shape[1 + n], n, layer) for n in range(layer.axes))
    return reached * layer.out_channels // layer.group


def count_operations(layer, x, lengths=None):
    """Count synaptic operations of spikes and of all inputs (T, B, ...), one element after the other."""
    features = x.shape[2:]
    synops, macs = 0, 0
    for t, b in np.ndindex(x.shape[:2]):
        if lengths is not None and t >= lengths[b]:
            continue
        for place in np.ndindex(features):
            count = synapses(layer, place, features)
            macs += count
            synops += count if x[(t, b, *place)] != 0 else 0
    return synops, macs


# --- random nets ------------------------------------------------------------------------------------------------------


class Stack(nn.Cell):
    """Layers with weights, each followed by neurons; it records the input of each layer."""

    def __init__(self, parts, way):
        super().__init__()
        self.weights, self.neurons, self.way = (
            nn.CellList([w for w, _ in parts]),
            nn.CellList([n for _, n in parts]),
            way,
        )

    def construct(self, x, lengths=None):
        options = {} if lengths is None else {"lengths": lengths}
        for weights, neurons in zip(self.weights, self.neurons, strict=True):
            if isinstance(weights, nn.Dense) and x.ndim > 3:
                x = x.flatten(start_dim=2)
            x = neurons(self.over_time(weights, x), **options)
        return x

    def over_time(self, weights, x):
        if self.way == "steps":
            return ops.stack([weights(now) for now in x])
        if isinstance(weights, nn.Dense) and self.way == "whole":
            return weights(x)
        return nn.TimeDistributed(weights)(x)

    def inputs(self, x, lengths):
        """The inputs of each layer, (T, B, ...), by running one after the other; of a feedback what came before."""
        options = {} if lengths is None else {"lengths": lengths}
        found = {}
        for number, (weights, neurons) in enumerate(zip(self.weights, self.neurons, strict=True)):
            if isinstance(weights, nn.Dense) and x.ndim > 3:
                x = x.flatten(start_dim=2)
            found[f"weights.{number}"] = weights, x.asnumpy()
            x = neurons(self.over_time(weights, x), **options)
            if isinstance(neurons.cell, nn.Recurrent):
                fed_back = np.concatenate([np.zeros_like(x.asnumpy()[:1]), x.asnumpy()[:-1]])
                found[f"neurons.{number}.cell.feedback"] = neurons.cell.feedback, fed_back
        return found


def draw_conv(rng, channels):
    kind = rng.choice(["Conv1d", "Conv2d", "Conv2dTranspose"])
    group = int(rng.choice([1, 2])) if channels % 2 == 0 else 1
    options = {"stride": int(rng.integers(1, 3)), "group": group, "has_bias": bool(rng.random() < 0.5)}
    if kind == "Conv2dTranspose":
        return nn.Conv2dTranspose(channels, 2 * group, int(rng.integers(1, 4)), **options)
    options |= {"pad_mode": str(rng.choice(["same", "valid", "pad"])), "dilation": int(rng.integers(1, 3))}
    options |= {"padding": int(rng.integers(0, 3))} if options["pad_mode"] == "pad" else {}
    return getattr(nn, str(kind))(channels, 2 * group, int(rng.integers(1, 4)), **options)


def draw_net(rng, way):
    """A random net and its input (T, B, ...): optional convolution, dense layers, some with feedback."""
    steps, samples, channels = int(rng.integers(2, 7)), int(rng.integers(1, 4)), int(rng.integers(1, 3)) * 2
    neuron = lambda: nn.IFNode(v_threshold=float(rng.uniform(0.1, 0.4)), reset="zero")  # noqa: E731
    parts, shape = [], (int(rng.integers(3, 9)),)
    if rng.random() < 0.7:
        conv = draw_conv(rng, channels)
        shape = (channels, *rng.integers(5, 8, conv.axes).tolist())
        parts.append((conv, nn.MultiStep(neuron())))
        features = math.prod(conv(ops.zeros((1, *shape))).shape)
    else:
        features = math.prod(shape)
    for _ in range(int(rng.integers(1, 3))):
        wide = int(rng.integers(2, 7))
        cell = neuron()
        if rng.random() < 0.4:
            cell = nn.Recurrent(cell, nn.Dense(wide, wide, has_bias=bool(rng.random() < 0.5)))
        parts.append((nn.Dense(features, wide, has_bias=bool(rng.random() < 0.5)), nn.MultiStep(cell)))
        features = wide
    x = (rng.random((steps, samples, *shape)) < rng.uniform(0.05, 0.6)).astype(np.float32)
    return Stack(parts, way), Tensor(x)


@compiled
@pytest.mark.sampled(2)
@pytest.mark.parametrize("padded", [False, True], ids=["whole", "padded"])
@pytest.mark.parametrize("way", ["whole", "at once", "steps"])
@pytest.mark.parametrize("seed", range(8))
def test_synaptic_operations_equal_loop_over_spikes_and_synapses(seed, way, padded):
    rng = np.random.default_rng(seed)
    snncell.set_seed(seed)
    net, x = draw_net(rng, way)
    steps, samples = x.shape[:2]
    lengths = rng.integers(0, steps + 1, samples) if padded else None
    inputs = net.inputs(x, lengths)
    options = {} if lengths is None else {"lengths": Tensor(lengths)}
    run = snncell.jit(net) if rng.random() < 0.5 else net
    with snncell.monitor(net, inputs=True) as m:
        run(x, **options)
    costs, energy = m.costs(), m.energy()
    expected = {name: count_operations(layer, got, lengths) for name, (layer, got) in inputs.items()}
    assert {name: (cost.synops, cost.macs) for name, cost in costs.items()} == expected
    assert monitoring.synops(net, x, **options) == m.synops() == pytest.approx(energy.synops)
    assert energy.synops == pytest.approx(sum(synops for synops, _ in expected.values()) / samples)
    assert energy.counts("dense").macs == pytest.approx(sum(macs for _, macs in expected.values()) / samples)
    one_pass = {name: count_operations(layer, got[:1, :1]) for name, (layer, got) in inputs.items()}
    assert energy.counts("one_pass").macs == pytest.approx(sum(macs for _, macs in one_pass.values()))
    for name, (layer, got) in inputs.items():
        work, there = energy.layers[name].work, np.ones(got.shape[:2], bool)
        if lengths is not None:
            there = np.arange(steps)[:, None] < lengths
        assert work.spiking.events_read == pytest.approx((got[there] != 0).sum() / samples)
        biases = there.sum() / samples * work.outputs if getattr(layer, "has_bias", False) else 0.0
        assert work.spiking.weights_read == pytest.approx(expected[name][0] / samples + biases)
        weights = sum(math.prod(p.shape) for p in layer.get_parameters())
        assert work.dense.weights_read == pytest.approx(weights * there.sum() / samples)
    ran = steps if lengths is None else np.minimum(lengths, steps).mean()
    neurons = sum(math.prod(m.spikes[name].shape[2:]) for name in m.layers)
    assert energy.counts().updates == pytest.approx(ran * neurons)
    fired = sum(np.count_nonzero(m.spikes[name]) for name in m.layers)
    assert energy.counts().events_written == pytest.approx(fired / samples)


# --- sources of nets and ways to run them -----------------------------------------------------------------------------


def spikes_of(rng, *shape, density=0.3):
    return Tensor((rng.random(shape) < density).astype(np.float32))


def plain(wide=5, **options):
    return nn.SequentialCell(
        nn.Dense(6, wide, **options), nn.MultiStep(nn.LIFNode(2.0, 0.2)), nn.Dense(wide, 3, **options),
        nn.MultiStep(nn.LINode(3.0)),
    )  # fmt: skip


@compiled
@pytest.mark.parametrize("kind", ["dense", "conv"])
def test_energy_of_nir_net_equals_cost_of_its_spikes(kind):
    nir = pytest.importorskip("nir", reason="the extra 'nir' brings nir, and it is not installed")
    rng = np.random.default_rng(3)
    ones = np.ones
    neurons = lambda *shape: nir.LIF(  # noqa: E731
        tau=0.02 * ones(shape), r=4.0 * ones(shape), v_leak=0 * ones(shape), v_threshold=0.2 * ones(shape),
        v_reset=0 * ones(shape),
    )  # fmt: skip
    if kind == "dense":
        shape, first = (8,), [nir.Affine(rng.normal(0, 0.8, (20, 8)), np.zeros(20)), neurons(20)]
        last = nir.Linear(rng.normal(0, 1.0, (2, 20)))
    else:
        shape, weight = (2, 6, 5), rng.normal(0, 1.0, (3, 2, 3, 3))
        first = [nir.Conv2d((6, 5), weight, 1, 1, 1, 1, np.zeros(3)), neurons(3, 6, 5), nir.Flatten((3, 6, 5), 0, -1)]
        last = nir.Linear(rng.normal(0, 1.0, (2, 90)))
    graph = nir.NIRGraph.from_list(*first, last, nir.LI(*(np.full(2, c) for c in (0.05, 1.0, 0.0))))
    net = snncell.nir.from_nir(graph, dt=1e-3)
    x = spikes_of(rng, 12, 2, *shape, density=0.4)
    with snncell.monitor(net, inputs=True) as m:
        net(x)
    costs = m.costs()
    layers = {name: cell for name, cell in net.cells_and_names() if name in costs}
    fired = m.spikes[m.layers[0]]
    assert fired.any()
    got = [x.asnumpy(), fired.reshape(*fired.shape[:2], -1)]
    expected = [count_operations(layer, inputs) for layer, inputs in zip(layers.values(), got, strict=True)]
    assert [(cost.synops, cost.macs) for cost in costs.values()] == expected
    assert m.energy().synops == pytest.approx(sum(synops for synops, _ in expected) / 2)


@compiled
def test_energy_of_event_lists_equals_energy_of_dense_array():
    events = data.Events([0, 5, 9, 9, 13], x=[1, 0, 1, 2, 1], p=[1, 0, 1, 0, 0], sensor_size=(3, 1, 2))
    net = nn.SequentialCell(nn.Flatten(2), plain())
    lists = data.to_event_lists([events, events], n_bins=4)
    found = monitoring.energy(net, lists)
    assert found.synops > 0
    assert repr(found) == repr(monitoring.energy(net, lists.to_dense()))


class Stepped(nn.Cell):
    """One step of a whole net, run over time by another Cell."""

    def __init__(self):
        super().__init__()
        self.dense1, self.lif1, self.dense2, self.lif2 = (
            nn.Dense(6, 5),
            nn.LIFNode(2.0, 0.2),
            nn.Dense(5, 3),
            nn.IFNode(),
        )

    def construct(self, x, v1, v2):
        s1, v1 = self.lif1(self.dense1(x), v1)
        s2, v2 = self.lif2(self.dense2(s1), v2)
        return s2, v1, v2

    def init_state(self, x):
        return ops.zeros((len(x), 5)), ops.zeros((len(x), 3))


class Looped(nn.Cell):
    """The same in a Python loop."""

    def __init__(self):
        super().__init__()
        self.steps = Stepped()

    def construct(self, x, lengths=None):
        states, out = self.steps.init_state(x[0]), []
        for now in x:
            y, *states = self.steps(now, *states)
            out.append(y)
        return ops.stack(out)


@pytest.mark.sampled(1)
@compiled
@pytest.mark.parametrize("padded", [False, True])
def test_python_loop_scan_and_layers_over_time_cost_the_same(padded):
    rng = np.random.default_rng(2)
    x, looped = spikes_of(rng, 7, 3, 6), Looped()
    steps = looped.steps
    layers = nn.SequentialCell(steps.dense1, nn.MultiStep(steps.lif1), steps.dense2, nn.MultiStep(steps.lif2))

    class Layers(nn.Cell):
        def __init__(self):
            super().__init__()
            self.layers = layers

        def construct(self, x, lengths=None):
            return self.layers(x)

    options = {"lengths": Tensor([7, 2, 0])} if padded else {}
    nets = [looped, snncell.jit(looped), Layers()] + ([] if padded else [nn.MultiStep(steps)])
    found = []
    for net in nets:
        cell = looped if net is nets[1] else net
        with snncell.monitor(cell, inputs=True) as m:
            net(x, **options)
        found.append(m.energy())
    for other in found[1:]:
        for execution in ("spiking", "dense", "one_pass"):
            assert dataclasses.astuple(other.counts(execution)) == pytest.approx(
                dataclasses.astuple(found[0].counts(execution))
            )
    assert (found[0].samples, found[0].steps) == (3, 7)


@compiled
def test_layer_called_once_per_sample_has_one_pass():
    class Mean(nn.Cell):
        def __init__(self):
            super().__init__()
            self.dense, self.run, self.read = nn.Dense(6, 5), nn.MultiStep(nn.LIFNode(2.0, 0.1)), nn.Dense(5, 3)

        def construct(self, x):
            return self.read(self.run(self.dense(x)).mean(0))

    found = monitoring.energy(Mean(), spikes_of(np.random.default_rng(0), 8, 4, 6))
    assert found.layers["read"].work.dense.macs == found.layers["read"].work.one_pass.macs == 15
    assert found.layers["dense"].work.dense.macs == 8 * found.layers["dense"].work.one_pass.macs == 8 * 30


@compiled
def test_layer_called_twice_per_step_has_two_products_in_one_pass():
    class Twice(nn.Cell):
        def __init__(self):
            super().__init__()
            self.dense, self.run = nn.Dense(6, 6, has_bias=False), nn.MultiStep(nn.LIFNode(2.0, 0.1))

        def construct(self, x):
            return self.run(self.dense(x) + self.dense(1.0 - x))

    found = monitoring.energy(Twice(), spikes_of(np.random.default_rng(0), 5, 3, 6))
    work = found.layers["dense"].work
    assert (work.spiking.acs, work.dense.macs, work.one_pass.macs) == (5 * 36, 5 * 72, 72)


@compiled
def test_analog_values_cost_multiplications():
    net = nn.SequentialCell(nn.Dense(4, 3, has_bias=False), nn.MultiStep(nn.IFNode(fire=False)))
    x = Tensor([[[0.0, 0.5, 0.0, 2.0]]])
    counts, spikes = (
        monitoring.energy(net, x).counts(),
        monitoring.energy(net, Tensor([[[0.0, 2.0, 0.0, 2.0]]])).counts(),
    )
    assert (counts.macs, counts.acs, counts.values_read, counts.events_read) == (6, 0, 2, 2)
    assert (spikes.macs, spikes.acs, spikes.values_read, spikes.events_read) == (0, 6, 0, 2)


@compiled
def test_recording_a_share_of_steps_neurons_samples_gives_an_estimate():
    net, x = plain(40), spikes_of(np.random.default_rng(0), 60, 8, 6)
    whole = monitoring.energy(net, x)
    for options, close in (({"samples": 3}, 0.2), ({"neurons": 30}, 0.2), ({"every": 2}, 0.2)):
        with snncell.monitor(net, inputs=True, **options) as m:
            net(x)
        found = m.energy()
        assert found.synops == pytest.approx(whole.synops)  # inputs of layers are recorded whole here
        assert found.counts().updates == whole.counts().updates
        assert found.counts().events_written == pytest.approx(whole.counts().events_written, rel=close)


# --- operations of a neuron -------------------------------------------------------------------------------------------


class Branching(nn.Cell):
    """A neuron with value-dependent branches, which only runs in a Python loop."""

    def construct(self, x, v):
        v = v + x
        return (v > 1.0).astype(snncell.float32) if float(v.sum()) > 0.5 else ops.zeros_like(v), v

    def init_state(self, x):
        return (ops.zeros_like(x),)


class OfSteps(nn.Cell):
    def __init__(self, cell):
        super().__init__()
        self.dense, self.cell = nn.Dense(6, 5), cell

    def construct(self, x):
        (v,), out = self.cell.init_state(ops.zeros((x.shape[1], 5))), []
        for now in x:
            y, v = self.cell(self.dense(now), v)
            out.append(y)
        return ops.stack(out)


# Multiplications, additions with comparisons, and states of a step, by the equations in each neuron's docstring.
NEURONS = {
    "v + x, h - 1, > 0, h - s": (nn.IFNode(), 0, 4, 1),
    "a spike of its size, s v_threshold": (nn.IFNode(v_threshold=0.5), 1, 4, 1),
    "v + (x - v) / tau": (nn.LIFNode(2.0), 1, 5, 1),
    "it does not fire": (nn.LINode(3.0), 1, 2, 1),
    "two states": (nn.CubaLIFNode(0.5, 0.9), 2, 5, 2),
}


@compiled
@pytest.mark.parametrize("name", NEURONS)
def test_operations_and_states_of_neuron_step_match_equations(name):
    cell, multiplications, additions, states = NEURONS[name]
    net = nn.SequentialCell(nn.Dense(6, 5, has_bias=False), nn.MultiStep(cell))
    counts = monitoring.energy(net, spikes_of(np.random.default_rng(0), 4, 2, 6)).counts()
    assert counts.updates == 20
    assert counts.multiplications == pytest.approx(20 * multiplications)
    assert counts.additions == pytest.approx(20 * additions)
    assert counts.states_read - counts.acs == 20 * (states + 1)  # with the sum of its inputs
    assert counts.states_written - counts.acs == 20 * states


def test_untraceable_neuron_is_named():
    found = monitoring.energy(OfSteps(Branching()), spikes_of(np.random.default_rng(0), 4, 2, 6))
    assert found.untraced == ("cell",) and repr(found).endswith("equations not counted: cell")
    assert found.counts().updates == 20


@compiled
def test_weights_inside_neurons_are_counted_and_named():
    net = nn.SequentialCell(nn.Dense(6, 5), nn.PSN(4))
    found = monitoring.energy(net, spikes_of(np.random.default_rng(0), 4, 2, 6))
    assert found.uncounted == ("1.weight",) and repr(found).endswith("products not counted: 1.weight")
    assert found.counts().multiplications == 20 * 4  # each step sees all four


def test_products_of_attention_are_named_as_not_counted():
    net = nn.SequentialCell(nn.SpikingSelfAttention(8, 2), nn.Dense(8, 3))
    found = monitoring.energy(net, ops.ones((3, 2, 4, 8)))
    assert found.uncounted == ("0 (q k^T v)",) and repr(found).endswith("products not counted: 0 (q k^T v)")


# --- prices -----------------------------------------------------------------------------------------------------------


def test_every_price_has_a_source_and_is_unique():
    assert all(row.source and row.node and row.picojoules > 0 for row in monitoring.PRICES)
    names = [(row.operation, row.precision, row.node) for row in monitoring.PRICES]
    assert len(set(names)) == len(names)
    assert all(each.source in {row.source for row in monitoring.PRICES} for each in monitoring.HARDWARE.values())
    assert pickle.loads(pickle.dumps(monitoring.HARDWARE)) == monitoring.HARDWARE


@compiled
def test_energy_of_one_spike_equals_manual_sum():
    net = nn.SequentialCell(nn.Dense(10, 20, weight_init=2.0, has_bias=False), nn.MultiStep(nn.IFNode()))
    x = np.zeros((1, 1, 10), np.float32)
    x[0, 0, 3] = 1.0
    found = monitoring.energy(net, Tensor(x))
    word = 4 * 10.0 / 8  # 4 bytes from 8 kB, of which 64 bits take 10 pJ
    by_hand = {
        "MACs": 0.0,
        "ACs": 20 * 0.9,
        "neurons": 20 * 4 * 0.9,
        "weights": 20 * word,
        "states": (2 * 20 + 3 * 20) * word,  # a sum is read and written; the sum and the potential read, one written
        "inputs and outputs": (1 + 20) * word,
    }
    assert found.by_kind() == pytest.approx({kind: pico * 1e-12 for kind, pico in by_hand.items()})
    assert found.joules == pytest.approx(sum(by_hand.values()) * 1e-12)
    one_pass = 200 * 4.6 + 20 * 0.9 + 200 * word + (10 + 20) * word
    assert found.one_pass == pytest.approx(one_pass * 1e-12)
    assert found.bytes() == {"weights": 80, "states": 400, "inputs and outputs": 84}
    loihi = monitoring.energy(net, Tensor(x), hardware="loihi")
    assert loihi.joules == pytest.approx((20 * 23.6 + 20 * 81) * 1e-12)
    assert loihi.one_pass == pytest.approx((200 * 23.6 + 20 * 81) * 1e-12)


@compiled
def test_larger_weights_are_placed_in_larger_memory():
    net = nn.SequentialCell(nn.Dense(50, 50, has_bias=False), nn.MultiStep(nn.IFNode()))  # 10,000 bytes of float32
    x = spikes_of(np.random.default_rng(0), 3, 2, 50)
    found, narrow = (monitoring.energy(net, x, hardware=name) for name in ("45nm", "45nm-int8"))
    assert found.by_kind()["weights"] == pytest.approx(found.synops * 4 * 20 / 8 * 1e-12)
    assert narrow.by_kind()["weights"] == pytest.approx(found.synops * 1 * 10 / 8 * 1e-12)


@compiled
def test_products_without_reuse_read_weight_and_input_per_mac():
    net = nn.SequentialCell(nn.TimeDistributed(nn.Conv2d(2, 3, 3, has_bias=True)), nn.MultiStep(nn.LIFNode()))
    x = spikes_of(np.random.default_rng(0), 4, 2, 2, 6, 5)
    kept, read = (monitoring.energy(net, x, reuse=reuse).counts("dense") for reuse in (True, False))
    outputs = 4 * 3 * 6 * 5
    assert read.macs == kept.macs == 4 * count_operations(net[0].cell, np.zeros((1, 1, 2, 6, 5)))[1]
    assert (read.weights_read, kept.weights_read) == (read.macs + outputs, 4 * (3 * 2 * 9 + 3))
    assert read.values_read - kept.values_read == read.macs - 4 * 2 * 6 * 5


def test_array_is_placed_in_smallest_sufficient_memory():
    hardware = monitoring.HARDWARE["45nm"]
    sizes = (1, 8192, 8193, 32768, 32769, 2**20, 2**20 + 1, 1e12)
    assert [8 * hardware.access(size) for size in sizes] == [10, 10, 20, 20, 100, 100, 1300, 1300]
    assert monitoring.HARDWARE["loihi"].access(1e9) == 0
    bounded = dataclasses.replace(hardware, memories=((100, 1.0), (200, 2.0)))
    assert [bounded.access(size) for size in (100, 101, 1e9)] == [1.0, 2.0, 2.0]


@compiled
def test_custom_hardware_and_baseline_can_be_used():
    net, x = plain(), spikes_of(np.random.default_rng(0), 5, 2, 6)
    mine = monitoring.Hardware("mine", mac=2.0, ac=1.0, update=10.0)
    found = monitoring.energy(net, x, hardware=mine, baseline="45nm-int8")
    assert found.joules == pytest.approx((found.synops + 10 * found.counts().updates) * 1e-12)
    other = monitoring.energy(net, x, hardware="45nm-int8")
    assert (found.dense, found.one_pass) == (other.dense, other.one_pass)
    assert found.bytes("dense") == other.bytes("dense") != monitoring.energy(net, x).bytes("dense")
    assert "per sample on mine" in repr(found) and "without spikes on 45nm-int8, one pass" in repr(found)


# --- text -------------------------------------------------------------------------------------------------------------


@compiled
def test_repr_is_a_table():
    lines = repr(monitoring.energy(plain(), spikes_of(np.random.default_rng(0), 5, 2, 6))).splitlines()
    assert lines[0].startswith("Energy per sample on 45nm, an estimate: ") and lines[0].endswith("2 samples of 5 steps")
    assert lines[1].split()[:4] == ["layer", "MACs", "ACs", "updates"]
    assert [line.split()[0] for line in lines[2:6]] == ["0", "1", "2", "3"]
    assert lines[6].startswith("without spikes, 5 passes: ") and lines[7].startswith("without spikes, one pass: ")
    assert len(lines) == 8


REFUSALS = {
    "unknown hardware 'Loihi'. Did you mean 'loihi'": lambda net, x: monitoring.energy(net, x, hardware="Loihi"),
    "Known names are 45nm, 45nm-float16": lambda net, x: monitoring.energy(net, x, hardware="abacus"),
    "unknown baseline '45 nm'. Did you mean '45nm'": lambda net, x: monitoring.energy(net, x, baseline="45 nm"),
    "hardware must be a name .* or a Hardware, not 45": lambda net, x: monitoring.energy(net, x, hardware=45),
    "energy: net is a Cell": lambda net, x: monitoring.energy(x, net),
    "synops: net is a Cell": lambda net, x: monitoring.synops(x, net),
    "Hardware: mac is a finite number of at least 0": lambda net, x: monitoring.Hardware("x", mac=-1, ac=0),
    "Hardware: update is a finite number": lambda net, x: monitoring.Hardware("x", mac=1, ac=0, update=math.nan),
    "Hardware: memories is a list, of": lambda net, x: monitoring.Hardware("x", mac=1, ac=0, memories=(8192, 1.0)),
    "memories must be pairs .* the smallest first": lambda net, x: monitoring.Hardware(
        "x", mac=1, ac=0, memories=((2, 1.0), (1, 1.0))
    ),
    r"memories must .* not \(\(0, ": lambda net, x: monitoring.Hardware("x", mac=1, ac=0, memories=((0, 1.0),)),
    "execution must be one of 'spiking', 'dense'": lambda net, x: monitoring.energy(net, x).by_kind("sparse"),
}


@compiled
@pytest.mark.parametrize("message", REFUSALS)
def test_invalid_arguments_raise(message):
    with pytest.raises(errors.ArgumentError, match=message):
        REFUSALS[message](plain(), spikes_of(np.random.default_rng(0), 5, 2, 6))


@compiled
def test_neurons_without_weights_cost_only_updates():
    net, x = nn.MultiStep(nn.IFNode()), spikes_of(np.random.default_rng(0), 5, 2, 6)
    assert monitoring.energy(net, x, hardware="loihi").joules == pytest.approx(30 * 81e-12)
    with pytest.raises(errors.RecordError, match=r"no inputs of Dense or Conv layers were recorded\. None of them ran"):
        monitoring.synops(net, x)


@compiled
@pytest.mark.parametrize("estimate", [monitoring.energy, monitoring.synops])
def test_empty_batch_raises(estimate):
    with pytest.raises(errors.RecordError, match="at least one sample, but the batch is empty"):
        estimate(plain(), spikes_of(np.random.default_rng(0), 5, 0, 6))


@compiled
def test_energy_without_recorded_inputs_and_spikes_raises():
    net, x = plain(), spikes_of(np.random.default_rng(0), 5, 2, 6)
    with snncell.monitor(net) as m:
        net(x)
    with pytest.raises(errors.RecordError, match=r"no inputs of Dense or Conv layers.*inputs=True"):
        m.energy()
    with snncell.monitor(net, spikes="1", inputs=True) as m:
        net(x)
    with pytest.raises(
        errors.RecordError, match="energy needs the spikes of every layer, but layer '3' was not recorded"
    ):
        m.energy()
    assert m.synops() == monitoring.synops(net, x)


# --- every neuron, and layers around them -----------------------------------------------------------------------------


@compiled
@pytest.mark.sampled(8)
@pytest.mark.parametrize("name", NEURON_TABLE)
def test_every_library_neuron_is_counted(name):
    entry = NEURON_TABLE[name]
    _, states = entry.drawn(steps=5, neurons=7)
    net = nn.SequentialCell(nn.Dense(6, 7, has_bias=False), nn.MultiStep(entry.make(entry.resets[0])))
    found = monitoring.energy(net, spikes_of(np.random.default_rng(0), 5, 3, 6))
    (work,) = (layer.work for name, layer in found.layers.items() if name != "0")
    assert not found.untraced and not found.uncounted
    assert work.spiking.updates == 5 * 7 and work.states == 7 * len(states)
    assert work.spiking.additions >= work.spiking.updates  # its input is added to something
    fired = found.layers["0"].work
    assert work.spiking.states_read == 35 * (len(states) + 1) and fired.spiking.states_read == fired.spiking.acs


class WithWeights(nn.Cell):
    """A custom neuron that contains its input weights."""

    def __init__(self):
        super().__init__()
        self.dense = nn.Dense(6, 5, has_bias=False)

    def construct(self, x, v):
        v = 0.5 * v + self.dense(x)
        spike = (v > 0.2).astype(snncell.float32)
        return spike, v - spike

    def init_state(self, x):
        return (ops.zeros((len(x), 5)),)


@compiled
def test_weights_inside_custom_neuron_are_counted_once():
    x = spikes_of(np.random.default_rng(0), 5, 3, 6)
    net = nn.MultiStep(WithWeights())
    found = monitoring.energy(net, x)
    assert list(found.layers) == ["cell.dense", "WithWeights"]
    counts = found.counts()
    assert counts.acs == pytest.approx(count_operations(net.cell.dense, x.asnumpy())[0] / 3)
    assert (counts.updates, counts.multiplications, counts.additions) == (25, 25, 75)
    assert not found.uncounted


def over_time(cell):
    return nn.MultiStep(cell)


# Layers between spikes and a Dense(5, 2), and the weights that are not followed.
BETWEEN = {
    "SynapseFilter": (lambda: over_time(nn.SynapseFilter()), ()),
    "AxonalDelay": (lambda: nn.AxonalDelay(5, 3), ()),
    "DelayedDense": (lambda: nn.DelayedDense(5, 5, 3), ("2.delay", "2.weight")),
    "SparseDense": (lambda: nn.SparseDense(5, 5, 0.5), ()),
    "WinnerTakeAll": (nn.WinnerTakeAll, ()),
    "Dropout": (lambda: nn.Dropout(p=0.5), ()),
    "BatchNormThroughTime": (lambda: nn.BatchNormThroughTime(5, 6), ()),
    "LayerNorm": (lambda: nn.LayerNorm((5,)), ()),
    "Truncated": (lambda: over_time(nn.Truncated(nn.LIFNode(2.0, 0.1), 2)), ()),
    "SEWBlock": (lambda: nn.SEWBlock(nn.SequentialCell(nn.Dense(5, 5), over_time(nn.LIFNode(2.0, 0.1)))), ()),
    "SlidingPSN": (lambda: nn.SlidingPSN(3), ()),
    "PSN": (lambda: nn.PSN(6), ("2.weight",)),
    "OTTTDense": (lambda: over_time(nn.OTTTDense(5, 5)), ("2.cell.weight",)),
    "EProp": (lambda: nn.EProp(5, 5), ("2.weight", "2.recurrent")),
}


@pytest.mark.sampled(5)
@compiled
@pytest.mark.parametrize("name", BETWEEN)
def test_intermediate_layers_are_followed_and_unknown_ones_named(name):
    make, unfollowed = BETWEEN[name]
    before = nn.SequentialCell(nn.Dense(6, 5), over_time(nn.LIFNode(2.0, 0.05)))
    between, last = make(), nn.FeedbackDense(5, 2)
    net = nn.SequentialCell(*before, between, last, over_time(nn.LINode(2.0)))
    net.set_train(False)
    x = spikes_of(np.random.default_rng(0), 6, 3, 6, density=0.5)
    got = between(before(x))
    found = monitoring.energy(net, x)
    assert found.layers["3"].work.spiking.acs + found.layers["3"].work.spiking.macs == pytest.approx(
        count_operations(last, got.asnumpy())[0] / 3
    )
    assert set(found.uncounted) == set(unfollowed)
    assert (found.samples, found.steps) == (3, 6)


@compiled
def test_every_kth_step_of_padded_samples_estimates_from_valid_steps():
    net = nn.MultiStep(nn.Recurrent(nn.IFNode(v_threshold=0.3), nn.Dense(5, 5, has_bias=False)))
    x, lengths = spikes_of(np.random.default_rng(4), 9, 3, 5, density=0.6), np.array([9, 4, 2])
    fed_back = np.concatenate([np.zeros((1, 3, 5), np.float32), net(x, lengths=Tensor(lengths)).asnumpy()[:-1]])
    with snncell.monitor(net, inputs=True, every=2) as m:
        net(x, lengths=Tensor(lengths))
    there = np.arange(0, 9, 2)[:, None] < lengths
    (cost,) = m.costs().values()
    assert cost.synops == round(9 / 5 * 5 * np.count_nonzero(fed_back[::2][there]))
    assert cost.macs == round(9 / 5 * 25 * there.sum())
    assert cost.density == pytest.approx((fed_back[::2][there] != 0).mean())


# --- consistent numbers -----------------------------------------------------------------------------------------------


class Masked(nn.Dense):
    """A dense layer with a mask on its weights."""

    def __init__(self, mask):
        super().__init__(mask.shape[1], mask.shape[0], has_bias=False)
        self.mask = Tensor(mask)

    def construct(self, x):
        return ops.matmul(x, (self.weight * self.mask).T)


def test_masked_layer_reads_only_unmasked_weights():
    mask = (np.random.default_rng(0).random((40, 30)) < 0.05).astype(np.float32)
    net = nn.SequentialCell(Masked(mask), nn.MultiStep(nn.IFNode()))
    energy = monitoring.energy(net, ops.ones((6, 2, 30)))
    dense = energy.layers["0"].work.dense
    assert dense.macs == dense.weights_read == 6 * mask.sum()
    full = monitoring.energy(
        nn.SequentialCell(nn.Dense(30, 40, has_bias=False), nn.MultiStep(nn.IFNode())), ops.ones((6, 2, 30))
    )
    assert full.layers["0"].work.dense.weights_read == 6 * mask.size


def test_passes_equal_mean_length_of_samples():
    net = Padded()
    energy = monitoring.energy(net, ops.ones((10, 2, 3)), lengths=Tensor(np.array([10, 3], np.int32)))
    assert energy.mean_steps == 6.5 and energy.steps == 10
    assert "2 samples of 6.5 steps on average, at most 10 steps" in repr(energy)
    assert "without spikes, 6.5 passes" in repr(energy)
    assert energy.layers["dense"].work.dense.macs == 6.5 * 12


class Padded(nn.Cell):
    """A net that takes lengths."""

    def __init__(self):
        super().__init__()
        self.dense, self.lif = nn.Dense(3, 4), nn.MultiStep(nn.IFNode())

    def construct(self, x, lengths=None):
        return self.lif(self.dense(x), lengths=lengths)


def test_energy_of_unrecordable_net_raises_with_layer_names():
    net = nn.SequentialCell(nn.EventPropLIF(3, 4))
    with pytest.raises(errors.RecordError, match=r"no operations to count.*themselves: 0 \(EventPropLIF\).*nn.Dense"):
        monitoring.energy(net, Tensor(np.full((2, 3), 0.5, np.float32)))


# --- imports ----------------------------------------------------------------------------------------------------------

LAZY = """
import sys
import snncell
from snncell import monitoring, nn, ops, plot
print("snncell.energy" in sys.modules)
with snncell.monitor(nn.MultiStep(nn.IFNode()), inputs=True) as m:
    pass
print("snncell.energy" in sys.modules)
from snncell.monitoring import Energy, energy
from snncell.plot import energy_by_layer
print(Energy is snncell.energy.Energy, energy is snncell.energy.energy, energy_by_layer.__module__)
"""


def test_energy_is_imported_at_first_use():
    done = subprocess.run([sys.executable, "-W", "error", "-c", LAZY], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False", "True", "True", "snncell.energy"]


def test_public_names_are_listed_in_dir_and_all():
    of_energy = {"Cost", "Counts", "Energy", "HARDWARE", "Hardware", "LayerEnergy", "PRICES", "Price", "Work"}
    assert of_energy | {"energy", "synops"} <= set(dir(monitoring)) & set(monitoring.__all__) & set(dir(snncell.energy))
    assert "energy_by_layer" in set(dir(snncell.plot)) & set(snncell.plot.__all__)
    with pytest.raises(AttributeError, match=r"Did you mean monitoring\.LayerEnergy\?"):
        monitoring.LayerEnregy  # noqa: B018
