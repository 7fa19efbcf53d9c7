"""Energy: counts beside loops over every spike and each of its synapses, of nets that are drawn; prices; words."""

import dataclasses
import math

import numpy as np
import pytest

import snncell
from snncell import Tensor, data, errors, monitoring, nn, ops

compiled = pytest.mark.compiled

# --- a count of its own -----------------------------------------------------------------------------------------------


def before(length, kernel, stride, dilation, layer):
    """The padding before an axis, and the length of the result."""
    span = (kernel - 1) * dilation + 1
    if layer.pad_mode == "valid":
        return 0, (length - span) // stride + 1
    if layer.pad_mode == "pad":
        return layer.padding, (length + 2 * layer.padding - span) // stride + 1
    results = -(-length // stride)
    return max((results - 1) * stride + span - length, 0) // 2, results


def taps(place, length, axis, layer):
    """How many results of one axis an input at `place` reaches."""
    kernel, stride, dilation = layer.kernel_size[axis], layer.stride, layer.dilation
    if isinstance(layer, nn.Conv2dTranspose):  # the inputs are the results of a convolution of what it gives
        assert layer.pad_mode == "same"
        results = length * stride
        pad, _ = before(results, kernel, stride, dilation, layer)
        return sum(0 <= place * stride + k * dilation - pad < results for k in range(kernel))
    pad, results = before(length, kernel, stride, dilation, layer)
    return sum(result * stride - pad + k * dilation == place for result in range(results) for k in range(kernel))


def synapses(layer, place, shape):
    """How many weights an input of a layer goes through: those that are not on padding."""
    if isinstance(layer, nn.Dense):
        return sum(1 for _ in range(layer.out_channels))
    reached = math.prod(taps(place[1 + n], shape[1 + n], n, layer) for n in range(layer.axes))
    return reached * layer.out_channels // layer.group


def counted(layer, x, lengths=None):
    """Of inputs (T, B, ...): the synapses of every spike, and of every input, one after the other."""
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


# --- nets that are drawn ----------------------------------------------------------------------------------------------


class Stack(nn.Cell):
    """Layers with weights, each followed by neurons; it keeps what each layer got."""

    def __init__(self, parts, way):
        super().__init__()
        self.weights, self.neurons, self.way = nn.CellList([w for w, _ in parts]), nn.CellList([n for _, n in parts]), way

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


def drawn_conv(rng, channels):
    kind = rng.choice(["Conv1d", "Conv2d", "Conv2dTranspose"])
    group = int(rng.choice([1, 2])) if channels % 2 == 0 else 1
    options = {"stride": int(rng.integers(1, 3)), "group": group, "has_bias": bool(rng.random() < 0.5)}
    if kind == "Conv2dTranspose":
        return nn.Conv2dTranspose(channels, 2 * group, int(rng.integers(1, 4)), **options)
    options |= {"pad_mode": str(rng.choice(["same", "valid", "pad"])), "dilation": int(rng.integers(1, 3))}
    options |= {"padding": int(rng.integers(0, 3))} if options["pad_mode"] == "pad" else {}
    return getattr(nn, str(kind))(channels, 2 * group, int(rng.integers(1, 4)), **options)


def drawn(rng, way):
    """A net and its input (T, B, ...): a convolution or none, and dense layers, some of them with a feedback."""
    steps, samples, channels = int(rng.integers(2, 7)), int(rng.integers(1, 4)), int(rng.integers(1, 3)) * 2
    neuron = lambda: nn.IFNode(v_threshold=float(rng.uniform(0.1, 0.4)), reset="zero")  # noqa: E731
    parts, shape = [], (int(rng.integers(3, 9)),)
    if rng.random() < 0.7:
        conv = drawn_conv(rng, channels)
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
@pytest.mark.sampled(12)
@pytest.mark.parametrize("padded", [False, True], ids=["whole", "padded"])
@pytest.mark.parametrize("way", ["whole", "at once", "steps"])
@pytest.mark.parametrize("seed", range(8))
def test_synaptic_operations_are_those_of_a_loop_over_every_spike_and_synapse(seed, way, padded):
    rng = np.random.default_rng(seed)
    snncell.set_seed(seed)
    net, x = drawn(rng, way)
    steps, samples = x.shape[:2]
    lengths = rng.integers(0, steps + 1, samples) if padded else None
    inputs = net.inputs(x, lengths)
    options = {} if lengths is None else {"lengths": Tensor(lengths)}
    run = snncell.jit(net) if rng.random() < 0.5 else net
    with snncell.monitor(net, inputs=True) as m:
        run(x, **options)
    costs, energy = m.costs(), m.energy()
    expected = {name: counted(layer, got, lengths) for name, (layer, got) in inputs.items()}
    assert {name: (cost.synops, cost.macs) for name, cost in costs.items()} == expected
    assert monitoring.synops(net, x, **options) == m.synops() == pytest.approx(energy.synops)
    assert energy.synops == pytest.approx(sum(synops for synops, _ in expected.values()) / samples)
    assert energy.counts("dense").macs == pytest.approx(sum(macs for _, macs in expected.values()) / samples)
    one_pass = {name: counted(layer, got[:1, :1]) for name, (layer, got) in inputs.items()}
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
