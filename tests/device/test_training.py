"""Layers over time, states that are kept, and a training that is resumed, on the device: as on the CPU."""

import copy

import numpy as np
import pytest

import snncell
from snncell import Tensor, nn, ops, train

LAYERS = {
    "AxonalDelay": lambda: nn.AxonalDelay(3, 3, Tensor([0.3, 1.5, 3.0])),
    "SynapseFilter": lambda: nn.MultiStep(nn.SynapseFilter([2.0, 3.0, 4.0], learnable=True)),
    "ThresholdBatchNorm": lambda: nn.ThresholdBatchNorm(3, 0.5),
    "BatchNormThroughTime": lambda: nn.BatchNormThroughTime(3, 4),
    "SEWBlock": lambda: nn.SEWBlock(nn.Dense(3, 3), "IAND"),
    "WinnerTakeAll": lambda: nn.WinnerTakeAll(2),
    "TimeFixedDropout": lambda: nn.TimeFixedDropout(p=0.4),
}


@pytest.fixture
def x():
    return Tensor(np.random.default_rng(0).uniform(0, 1.2, (4, 2, 3)).astype(np.float32))


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("wrap", [lambda fn: fn, snncell.jit], ids=["eager", "jit"])
def test_layers_are_those_of_the_cpu(x, name, wrap):
    here = LAYERS[name]().set_train()
    there = copy.deepcopy(here).to("gpu")
    results = []
    for layer, given in ((here, x), (there, x.to("gpu"))):
        snncell.set_seed(1)

        def loss(x, layer=layer):
            return ops.square(layer(x)).sum()

        value, gradient = wrap(lambda x, loss=loss: ops.value_and_grad(loss)(x))(given)
        assert gradient.device == given.device
        results.append([value, gradient, *layer.get_parameters()])
    for mine, theirs in zip(*results, strict=True):
        np.testing.assert_allclose(mine.asnumpy(), theirs.asnumpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("wrap", [lambda fn: fn, snncell.jit], ids=["eager", "jit"])
def test_kept_states_are_where_the_inputs_are(x, wrap):
    here, there = (nn.Stateful(nn.MultiStep(nn.LIFNode(decay_input=False))) for _ in range(2))
    mine, theirs = wrap(here), wrap(there)
    for _ in range(2):
        for _ in range(2):
            np.testing.assert_array_equal(mine(x).asnumpy(), theirs(x.to("gpu")).asnumpy())
            assert there.states[0].device == "gpu"
        here.reset()
        there.reset()
    np.testing.assert_array_equal(there(x).asnumpy(), here(x).asnumpy())


def test_a_resume_on_the_device_continues_to_the_bit(tmp_path):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(8, 4)).astype(np.float32), rng.integers(0, 2, 8)

    def run(seed, epochs, file, **options):
        snncell.set_seed(seed)
        layer = nn.MultiStep(nn.LIFNode(v_threshold=0.5))
        net = nn.SequentialCell(nn.Dense(4, 4), nn.Dropout(p=0.2), Repeat(), layer, Mean(), nn.Dense(4, 2)).to("gpu")
        adam = nn.Adam(net.trainable_params(), 0.02)
        options |= {"batch_size": 4, "test": (x, y), "firing_rate": layer, "clip_norm": 0.1, "progress": False}
        found = train.fit(net, nn.CrossEntropyLoss(), adam, (x, y), epochs, checkpoint=tmp_path / file, **options)
        assert {p.device for p in net.get_parameters()} == {"gpu"}
        return found.history, [p.asnumpy().tobytes() for p in (*net.get_parameters(), *adam.get_parameters())]

    snncell.set_context(device_target="GPU")
    try:
        whole = run(1, 2, "whole")
        run(1, 1, "parts")
        assert run(9, 2, "parts", resume=True) == whole
    finally:
        snncell.set_context(device_target="CPU")


class Repeat(nn.Cell):
    """The same current at three steps."""

    def construct(self, x):
        return ops.broadcast_to(x, (3, *x.shape))


class Mean(nn.Cell):
    """Over time."""

    def construct(self, x):
        return x.mean(0)
