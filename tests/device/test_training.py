"""Training on the device, compared with the CPU: layers over time, online learning, mixed precision, resuming."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

import snncell
from snncell import Tensor, amp, grad, jit, nn, ops, surrogate, train, value_and_grad
from snncell.data import digits
from snncell.demo import DigitNet
from snncell.tape import structure

LAYERS = {
    "AxonalDelay": lambda: nn.AxonalDelay(3, 3, Tensor([0.3, 1.5, 3.0])),
    "DelayedDense": lambda: nn.DelayedDense(3, 2, 5),
    "SparseDense": lambda: nn.SequentialCell(nn.SparseDense(3, 5, 0.5), nn.SparseDense(5, 2, 0.5)),
    "DelayedConv1d": lambda: nn.SequentialCell(nn.Unflatten(2, (1, 3)), nn.DelayedConv1d(1, 2, 2, 3)),
    "RecurrentDelay": lambda: nn.MultiStep(nn.RecurrentDelay(nn.LIFNode(v_threshold=0.4), nn.DelayedDense(3, 3, 2))),
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
def test_layers_equal_cpu(x, name, wrap):
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


def test_gradients_of_sparse_weights_equal_cpu(x):
    here = nn.SparseDense(3, 5, 0.5)
    there = copy.deepcopy(here).to("gpu")
    mine, theirs = (
        grad(lambda x, net=net: ops.square(net(x)).sum(), None, net.weight)(given)
        for net, given in ((here, x), (there, x.to("gpu")))
    )
    np.testing.assert_allclose(mine.asnumpy(), theirs.asnumpy(), rtol=1e-5, atol=1e-6)


def test_predictions_of_whole_delays_equal_cpu(x):
    here = nn.DelayedDense(3, 2, 5)
    there = copy.deepcopy(here).to("gpu")
    np.testing.assert_allclose(here(x).asnumpy(), there(x.to("gpu")).asnumpy(), rtol=1e-5, atol=1e-6)
    mine, theirs = (
        grad(lambda x, net=net: ops.square(net(x)).sum())(given) for net, given in ((here, x), (there, x.to("gpu")))
    )
    np.testing.assert_allclose(mine.asnumpy(), theirs.asnumpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("wrap", [lambda fn: fn, snncell.jit], ids=["eager", "jit"])
def test_kept_states_are_on_device_of_inputs(x, wrap):
    here, there = (nn.Stateful(nn.MultiStep(nn.LIFNode(decay_input=False))) for _ in range(2))
    mine, theirs = wrap(here), wrap(there)
    for _ in range(2):
        for _ in range(2):
            np.testing.assert_array_equal(mine(x).asnumpy(), theirs(x.to("gpu")).asnumpy())
            assert there.states[0].device == "gpu"
        here.reset()
        there.reset()
    np.testing.assert_array_equal(there(x).asnumpy(), here(x).asnumpy())


def test_resumed_training_on_device_has_same_bits(tmp_path):
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
    """The same current at three time steps."""

    def construct(self, x):
        return ops.broadcast_to(x, (3, *x.shape))


class Mean(nn.Cell):
    """The mean over time."""

    def construct(self, x):
        return x.mean(0)


# --- network of the demo ----------------------------------------------------------------------------------------------


def losses(device: str, steps: int) -> tuple[list[float], list[Any]]:
    """The losses of some steps, and the Parameters after them."""
    snncell.set_seed(1)
    (images, labels), _ = digits()
    net = DigitNet(steps=4).set_train().to(device)
    optimiser, loss_fn = nn.Adam(net.trainable_params(), 0.005), nn.CrossEntropyLoss(label_smoothing=0.1)
    both = value_and_grad(lambda x, y: loss_fn(net(x), y), None, net.trainable_params())

    @jit
    def step(x: Tensor, y: Tensor) -> Tensor:
        loss, grads = both(x, y)
        optimiser(grads)
        return loss  # type: ignore[no-any-return]

    found = []
    for n in range(steps):
        part = slice(6 * n, 6 * n + 6)
        x, y = Tensor(images[part].reshape(-1, 64)).to(device), Tensor(labels[part]).to(device)
        found.append(float(step(x, y)))
    return found, [p.asnumpy() for p in net.trainable_params()]


def test_training_steps_on_digits_equal_cpu() -> None:
    (mine, weights), (theirs, others) = losses("cpu", 3), losses("gpu", 3)
    assert len(set(mine)) == 3
    np.testing.assert_allclose(theirs, mine, rtol=1e-5)
    for one, other in zip(weights, others, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-3, atol=1e-4)


# --- online learning and BPTT -----------------------------------------------------------------------------------------


def neuron():
    return nn.LIFNode(2.5, decay_input=False, surrogate_function=surrogate.ATan())


class DenseStep(nn.Cell):
    """A dense layer and its neurons: one time step."""

    def __init__(self):
        super().__init__()
        self.dense, self.neuron = nn.Dense(3, 2), neuron()

    def construct(self, x, v):
        return self.neuron(self.dense(x), v)

    def init_state(self, x):
        return ops.zeros((x.shape[0], 2))


NETS = {
    "Online": lambda: nn.MultiStep(nn.Online(DenseStep(), "RTRL")),
    "Truncated": lambda: nn.MultiStep(nn.Truncated(neuron(), 2)),
    "Truncated Recurrent": lambda: nn.MultiStep(nn.Truncated(nn.Recurrent(neuron(), nn.Dense(3, 3)), 2)),
    "OTTT": lambda: nn.MultiStep(nn.OTTTDense(3, 2)),
    "e-prop": lambda: nn.SequentialCell(nn.EProp(3, 4), nn.FeedbackDense(4, 2)),
    "e-prop, adapting": lambda: nn.SequentialCell(nn.EProp(3, 4, adaptation=0.2), nn.Dense(4, 2)),
    "STDP": lambda: nn.MultiStep(nn.PlasticDense(3, 2, neuron(), nn.STDP(bounds="soft", a_plus=0.1))),
}


def found(name, device, how):
    """The value, and the gradients of the input and of the weights."""
    snncell.set_seed(0)
    net = NETS[name]().to(device)
    x = (np.random.default_rng(0).uniform(size=(5, 2, 3)) < 0.5).astype(np.float32)
    fn = ops.value_and_grad(lambda x: ops.square(net(x) + 0.5).sum(), 0, net.trainable_params() or None)
    return structure.flatten(how(fn)(Tensor(x).to(device)))[0]


@pytest.mark.parametrize("how", [lambda fn: fn, snncell.jit], ids=["eager", "jit"])
@pytest.mark.parametrize("name", NETS)
def test_online_learning_values_and_gradients_equal_cpu(name, how):
    mine = found(name, "gpu", how)
    for a, b in zip(mine, found(name, "cpu", lambda fn: fn), strict=True):
        assert a.device == "gpu"
        np.testing.assert_allclose(a.asnumpy(), b.asnumpy(), rtol=1e-4, atol=1e-5)
    assert len(mine) > 1 and all(a.asnumpy().any() for a in mine)


# --- mixed precision, dynamic loss scale, learning-rate finder --------------------------------------------------------

X = np.random.default_rng(0).random((4, 4, 6)).astype(np.float32)
BAD = np.where(X.max() == X, np.inf, X).astype(np.float32)  # spikes of it are finite, gradients are not
Y = np.arange(4) % 2


def begun(device: str, half: str) -> tuple[Any, nn.Optimizer]:
    snncell.set_seed(1)
    net = nn.SequentialCell(nn.Dense(6, 8), nn.MultiStep(nn.LIFNode(v_threshold=0.3)), nn.Dense(8, 2))
    net = amp.auto_mixed_precision(net, "O1", half).to(device)
    return net, nn.Adam(net.trainable_params(), 0.01)


@pytest.mark.parametrize("half", ["float16", "bfloat16"])
def test_taken_and_skipped_steps_of_loss_scale_equal_cpu(half: str) -> None:
    found = []
    for device in ("cpu", "gpu"):
        net, adam = begun(device, half)
        scaler = amp.DynamicLossScaler(2.0**20, 4.0, 2)
        step = train.training_step(net, nn.CECountLoss(), adam, None, None, loss_scale=scaler)
        losses = [float(step(Tensor(x).to(device), Tensor(Y).to(device))["loss"]) for x in (X, X, BAD, X, X, X)]
        counts = scaler.taken.item(), scaler.skipped.item(), scaler.scale_value.item(), adam.global_step.item()
        found.append((losses, counts, [p.asnumpy() for p in net.trainable_params()]))
    (mine, counts, weights), (theirs, others, moved) = found
    assert counts == others and min(counts[:2]) > 0
    np.testing.assert_allclose(theirs, mine, rtol=1e-3)
    for one, other in zip(weights, moved, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-2, atol=1e-3)


def test_rate_finder_restores_everything_on_device() -> None:
    net, adam = begun("gpu", "float16")
    before = [p.asnumpy().copy() for p in adam.get_parameters()]
    batches = [(Tensor(X).to("gpu"), Tensor(Y).to("gpu"))]
    found = train.find_learning_rate(net, nn.CECountLoss(), adam, batches, steps=5)
    assert np.isfinite(found.losses).all() and len(set(found.losses)) > 1
    assert {p.device for p in net.get_parameters()} == {"gpu"}
    for old, parameter in zip(before, adam.get_parameters(), strict=True):
        np.testing.assert_array_equal(parameter.asnumpy(), old)
