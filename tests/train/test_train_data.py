"""Errors of `fit` for data that do not fit the network, and the stated cause of NaN and infinite values."""

import numpy as np
import pytest
from random_cases import random_cases

import snncell
from snncell import Parameter, Tensor, data, nn, ops, testing, train
from snncell.errors import ArgumentError, ShapeError, TrainingError
from snncell.train.batches import refuse_swapped_axes

STEPS, BATCH, FEATURES, CLASSES = 7, 4, 3, 5
LOSS = nn.CrossEntropyLoss()


class OverTime(nn.Cell):
    """A layer over time, averaged over the axis assumed to be time."""

    def __init__(self, layer, axis):
        super().__init__()
        self.dense, self.layer, self.axis = nn.Dense(FEATURES, CLASSES), layer, axis

    def construct(self, x):
        return self.layer(self.dense(x)).mean(self.axis)


class Turned(OverTime):
    """The same, but it transposes batch-first data itself."""

    def construct(self, x):
        return super().construct(x.swapaxes(0, 1))


LAYERS = {
    "MultiStep": lambda: nn.MultiStep(nn.LIFNode()),
    "MultiStep of Recurrent": lambda: nn.MultiStep(nn.Recurrent(nn.LIFNode(), nn.Dense(CLASSES, CLASSES))),
    "SlidingPSN": lambda: nn.SlidingPSN(2),
    "PSN": lambda: nn.PSN(BATCH),
    "EProp": lambda: nn.EProp(CLASSES, CLASSES),
}
TARGETS = {
    "labels": np.arange(BATCH) % CLASSES,
    "probabilities": np.eye(CLASSES, dtype=np.float32)[np.arange(BATCH) % CLASSES],
}


def batch_first():
    return np.random.default_rng(0).random((BATCH, STEPS, FEATURES)).astype(np.float32)


def passed(call, *args):
    with testing.unfused():
        return call(*args)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("layer", LAYERS)
def test_batch_first_data_raise(layer, target):
    net, y = OverTime(LAYERS[layer](), 1), TARGETS[target]
    adam = nn.Adam(net.trainable_params())
    message = rf"batch first: a layer over time got \({BATCH}, {STEPS}, {CLASSES}\).*{BATCH} samples.*swapaxes\(0, 1\)"
    for call in (
        lambda: train.fit(net, LOSS, adam, (batch_first(), y), 1, progress=False),
        lambda: train.evaluate(net, LOSS, (batch_first(), y)),
        lambda: train.measure(net, LOSS)(batch_first(), y),
    ):
        with pytest.raises(ShapeError, match=message):
            passed(call)


@pytest.mark.compiled
def test_batch_first_data_raise_in_compiled_step():
    net = OverTime(nn.MultiStep(nn.LIFNode()), 1)
    with pytest.raises(ShapeError, match="batch first"):
        train.evaluate(net, LOSS, (batch_first(), TARGETS["labels"]))


def test_transposing_net_and_time_first_batches_are_accepted():
    y = TARGETS["labels"]
    net = Turned(nn.MultiStep(nn.LIFNode()), 0)
    assert np.isfinite(passed(train.evaluate, net, LOSS, (batch_first(), y))["loss"])
    net = OverTime(nn.MultiStep(nn.LIFNode()), 0)
    data = train.Batches(batch_first().swapaxes(0, 1), y, time_first=True)
    assert np.isfinite(passed(train.evaluate, net, LOSS, data)["loss"])


@pytest.mark.parametrize(
    ("x", "y"),
    [
        ((BATCH, BATCH, FEATURES), (BATCH,)),  # either may be time
        ((STEPS, 2 * STEPS, FEATURES), (STEPS,)),  # two positions of each sample
        ((STEPS, BATCH, FEATURES), (STEPS, BATCH)),  # a target for each step
        ((STEPS, 1, FEATURES), (STEPS,)),  # the steps of one sample
        ((STEPS, FEATURES), (STEPS,)),  # no batch at all
    ],
)
def test_plausible_shapes_are_accepted(x, y):
    layer = nn.MultiStep(nn.LIFNode())
    net, loss = OverTime(layer, 0), lambda out, target: ops.square(out).mean() + 0.0 * target.sum()
    found, _ = passed(train.measure(net, loss, None), Tensor(np.ones(x, np.float32)), Tensor(np.ones(y, np.float32)))
    assert np.isfinite(float(found))


def test_time_first_arrays_without_option_raise_with_fix():
    with pytest.raises(ShapeError, match=r"lengths \[7, 4\].*For inputs \(T, N, \.\.\.\) use.*time_first=True"):
        train.Batches(batch_first().swapaxes(0, 1), TARGETS["labels"])
    with pytest.raises(ShapeError, match=r"for each sample\.$"):
        train.Batches(np.ones((7, 3, 2)), TARGETS["labels"])


# --- as many steps as samples -----------------------------------------------------------------------------------------

SQUARE_LAYERS = {
    **LAYERS,
    "Stateful": lambda: nn.Stateful(nn.MultiStep(nn.LIFNode())),
    "BatchNorm and Dropout": lambda: nn.SequentialCell(
        nn.TimeDistributed(nn.BatchNorm1d(CLASSES)), nn.Dropout(p=0.5), nn.MultiStep(nn.LIFNode())
    ),
    "LSTM": lambda: FirstOf(nn.LSTM(CLASSES, CLASSES)),
}


class FirstOf(nn.Cell):
    """The first result of a layer."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def construct(self, x):
        return self.layer(x)[0]


def source_of(kind, x, y):
    """A dataset with samples (N, T, F), and whether its batches are time first."""
    if kind == "Batches, time first":
        return train.Batches(x.swapaxes(0, 1), y, batch_size=BATCH, time_first=True), True
    if kind == "Loader":
        return data.Loader(list(zip(x, y, strict=True)), BATCH, lengths=False, seed=0), True
    if kind == "Loader, stacked":
        return data.Loader(list(zip(x, y, strict=True)), BATCH, sequences=(), seed=0), False
    return (x, y), False


@random_cases(64)
def test_batch_first_data_with_equal_steps_and_samples_raise(seed):
    rng = np.random.default_rng(seed)
    layer = SQUARE_LAYERS[list(SQUARE_LAYERS)[seed % len(SQUARE_LAYERS)]]()
    kinds = ["arrays", "Batches, time first", "Loader", "Loader, stacked"]
    x = rng.random((BATCH * int(rng.integers(1, 3)), BATCH, FEATURES)).astype(np.float32)
    source, time_first = source_of(kinds[seed // len(SQUARE_LAYERS) % 4], x, rng.integers(0, CLASSES, len(x)))
    swaps = bool(rng.integers(2))
    net = (Turned if swaps else OverTime)(layer, 0)
    adam = nn.Adam(net.trainable_params())

    def call():
        return train.fit(net, LOSS, adam, source, 1, batch_size=BATCH, progress=False)

    if swaps != time_first:  # layers run over time
        assert np.isfinite(passed(call).best["loss"])
        return
    words = "the net swaps time and batch" if swaps else "the data are batch first"
    with pytest.raises(ShapeError, match=rf"{words}.*with one sample more.*{BATCH} samples.*swapaxes\(0, 1\)"):
        passed(call)


def test_batch_first_check_has_no_side_effects():
    calls = []

    class Counting(Turned):
        def construct(self, x):
            calls.append(tuple(x.shape))
            self.seen = x
            return super().construct(x)

    net = Counting(SQUARE_LAYERS["BatchNorm and Dropout"](), 0)
    stateful = nn.Stateful(nn.MultiStep(nn.LIFNode()))
    net.layer.append(stateful)
    x = Tensor(np.ones((BATCH, BATCH, FEATURES), np.float32))
    y = Tensor(TARGETS["labels"])
    before = {p.name: p.asnumpy().copy() for p in net.get_parameters()}
    snncell.set_seed(3)
    wanted = ops.uniform((2,)).asnumpy()
    snncell.set_seed(3)
    refuse_swapped_axes(net, train.Batches(x, y), (x, y))
    assert np.array_equal(ops.uniform((2,)).asnumpy(), wanted)
    assert all(np.array_equal(p.asnumpy(), before[p.name]) for p in net.get_parameters())
    assert stateful.states == ()
    assert not hasattr(net, "seen")
    assert calls == [(BATCH, BATCH, FEATURES), (BATCH + 1, BATCH, FEATURES)]
    longer = Tensor(np.ones((BATCH, STEPS, FEATURES), np.float32))
    refuse_swapped_axes(net, train.Batches(longer, y), (longer, y))  # shapes tell: no trace
    refuse_swapped_axes(net, [(x, y)], (x, y))  # nobody knows the axis of the samples
    assert len(calls) == 2


@pytest.mark.parametrize("source", ["arrays", "Batches", "Loader"])
@pytest.mark.parametrize("layer", [lambda: nn.MultiStep(nn.LIFNode()), lambda: nn.Stateful(nn.MultiStep(nn.LIFNode()))])
def test_samples_without_time_axis_are_accepted(layer, source, rng):
    class OverSamples(nn.Cell):
        def __init__(self):
            super().__init__()
            self.layer, self.out = layer(), nn.Dense(FEATURES, CLASSES)

        def construct(self, x):
            return self.out(self.layer(x))

    x, y = rng.random((8, FEATURES), np.float32), rng.integers(0, CLASSES, 8)
    data = {
        "arrays": (x, y),
        "Batches": train.Batches(x, y, batch_size=4),
        "Loader": snncell.data.Loader(list(zip(x, y, strict=True)), 4, sequences=()),
    }[source]
    net = OverSamples()
    sgd = nn.SGD(net.trainable_params(), 0.1)
    with pytest.raises(
        ShapeError, match=r"no time axis.*treats the \d samples as time steps.*ops\.stack\(\[x\] \* 20\)"
    ):
        train.fit(net, LOSS, sgd, data, 1, batch_size=4, progress=False)
    recording = train.Batches(x, y, batch_size=4, shuffle=False)  # rows in their order may be the steps of one
    assert np.isfinite(train.fit(net, LOSS, sgd, recording, 1, progress=False).best["loss"])


# --- accuracy ---------------------------------------------------------------------------------------------------------

BOTH = [pytest.param(lambda f: f, id="eager"), pytest.param(snncell.jit, id="jit", marks=pytest.mark.compiled)]
SCORES = np.array([[0.1, 0.9, 0.0], [0.8, 0.1, 0.2]], np.float32)


@pytest.mark.parametrize("run", BOTH)
@pytest.mark.parametrize("labels", [[0, 1], [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]], ids=["numbers", "probabilities"])
@pytest.mark.parametrize("steps", [None, 2])
def test_accuracy_of_nan_is_nan(labels, steps, run):
    scores = np.full_like(SCORES, np.nan)
    scores[1] = SCORES[1]
    given = Tensor(scores if steps is None else np.stack([scores] * steps))
    assert np.isnan(run(train.accuracy)(given, Tensor(labels)).item())


@pytest.mark.parametrize("run", BOTH)
@pytest.mark.parametrize("label", [3, -1, 255])
@pytest.mark.parametrize("steps", [None, 2])
def test_label_out_of_range_raises(label, steps, run):
    given = Tensor(SCORES if steps is None else np.stack([SCORES] * steps))
    with pytest.raises(
        ArgumentError, match=rf"accuracy: the outputs have 3 class\(es\).*Label {label} is out of range"
    ):
        run(train.accuracy)(given, Tensor([0, label]))


@pytest.mark.parametrize("run", BOTH)
def test_accuracy_skips_ignored_labels(run):
    assert run(train.accuracy)(Tensor(SCORES), Tensor([1, -100])).item() == 1.0
    assert run(lambda s, y: train.accuracy(s, y, ignore_index=2))(Tensor(SCORES), Tensor([2, 0])).item() == 1.0


@pytest.mark.parametrize("accuracy", [train.accuracy, None], ids=["given", "the default"])
def test_accuracy_ignores_labels_that_loss_ignores(accuracy):
    net, given = nn.Dense(FEATURES, CLASSES), {} if accuracy is None else {"accuracy": accuracy}
    x = np.random.default_rng(0).random((BATCH, FEATURES)).astype(np.float32)
    y = net(Tensor(x)).asnumpy().argmax(1)
    y[2] = -1
    found = passed(lambda: train.evaluate(net, nn.CrossEntropyLoss(ignore_index=-1), (x, y), **given))
    assert found["accuracy"] == 1.0
    with pytest.raises(ArgumentError, match=r"[Ll]abel -1 is out of range"):
        passed(lambda: train.evaluate(net, LOSS, (x, y), **given))


# --- cause of nonfinite losses and weights ----------------------------------------------------------------------------


class Growing(nn.Cell):
    """A recurrence with bounded values and a gradient that grows by `factor` per step backwards in time."""

    def __init__(self, factor):
        super().__init__()
        self.factor, self.weight = factor, Parameter(Tensor(np.ones(3, np.float32)), name="weight")

    def construct(self, x):
        def step(state, now):
            state = self.factor * (state - ops.stop_gradient(state)) + now * self.weight
            return state, state

        return ops.scan(step, ops.zeros(x.shape[1:]), x)[1].sum(0)


def first_sum(out, target):
    return out.sum()


def last_infinite_step(steps, factor):
    """The last time step with an infinite gradient, counted backwards in float32; -1 for none."""
    gradient = np.float32(0)
    for step in reversed(range(steps)):
        with np.errstate(over="ignore"):
            gradient = np.float32(1) + np.float32(factor) * gradient
        if not np.isfinite(gradient):
            return step
    return -1


def message_of(net, loss, data, rate, epochs=2, **options):
    optimiser = nn.SGD(net.trainable_params(), rate)
    with pytest.raises(TrainingError) as caught:
        train.fit(net, loss, optimiser, data, epochs, accuracy=None, progress=False, **options)
    return str(caught.value)


@pytest.mark.sampled(3)
@random_cases(6)
def test_error_names_time_step_where_backward_pass_overflows(seed):
    rng = np.random.default_rng(seed)
    factor, batch = float(2.0 ** rng.integers(8, 30)), int(rng.integers(2, 6))
    steps = int(rng.integers(150 // np.log2(factor) + 2, 40))
    step = last_infinite_step(steps, factor)
    assert step >= 0  # or this would be another test
    count = batch * int(rng.integers(1, 4))  # of one batch an epoch has a finite loss, and its weights are refused
    x, y = np.ones((steps, count, 3), np.float32), np.zeros(count, np.int32)
    data = train.Batches(x, y, batch_size=batch, time_first=True)
    options = {"clip_norm": 1.0} if rng.random() < 0.5 else {}
    message = message_of(Growing(factor), first_sum, data, 1e-8, **options)
    assert f"before any clipping: the backward pass overflows at time step {step} of {steps}." in message
    assert "Lower the learning rate" not in message


def test_infinite_gradient_without_time_axis_is_named_without_step():
    def steep(out, target):
        return ops.sqrt(out.sum())  # its gradient at 0 is infinite

    net = nn.Dense(3, 1, weight_init="zeros", has_bias=False)
    data = (np.ones((8, 3), np.float32), np.zeros((8, 1), np.float32))
    message = message_of(net, steep, data, 1e-8)
    assert "its gradient is infinite or NaN for batch 0, before any clipping. A lower learning rate" in message
    assert not np.isfinite(net.weight.asnumpy()).all()  # the search leaves the weights as the training did


@pytest.mark.parametrize("clip", [None, 1.0])
def test_too_large_learning_rate_is_named_for_nonfinite_loss(clip):
    net = nn.SequentialCell(nn.Dense(3, 4, weight_init="ones"), nn.Dense(4, 1, weight_init="ones"))
    x, y = np.ones((32, 3), np.float32), np.zeros((32, 1), np.float32)
    message = message_of(net, nn.MSELoss(), (x, y), 1e30, batch_size=4, clip_norm=clip)
    limit = "" if clip else ", or limit the gradients (clip_norm=1.0)"
    assert f". Lower the learning rate{limit}." in message
