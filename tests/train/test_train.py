"""`fit` and its parts, compared with an explicit training loop; checkpoints that resume bit for bit."""

import csv
import json
import math
import warnings

import numpy as np
import pytest

import snncell
from snncell import Tensor, nn, ops, train
from snncell.base.arguments.shown import LOSSES
from snncell.errors import ArgumentError, ArgumentTypeError, CheckpointError, DTypeError, ShapeError, TrainingError
from snncell.io import read_arrays, write_arrays
from snncell.train import state

STEPS, FEATURES, CLASSES = 4, 6, 3


class Net(nn.Cell):
    """A spiking layer with dropout and batch norm, for random numbers and statistics, and a readout."""

    def __init__(self, hidden=8, v_threshold=0.5):
        super().__init__()
        self.dense1, self.norm = nn.Dense(FEATURES, hidden, has_bias=False), nn.BatchNorm1d(hidden)
        self.layer = nn.MultiStep(nn.LIFNode(v_threshold=v_threshold))
        self.drop, self.dense2 = nn.TimeFixedDropout(p=0.2), nn.Dense(hidden, CLASSES)

    def construct(self, x):
        current = self.norm(self.dense1(x))
        spikes = self.layer(ops.broadcast_to(current, (STEPS, *current.shape)))
        return self.dense2(self.drop(spikes)).mean(0)


def samples(count=40, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(count, FEATURES)).astype(np.float32)
    return x, (x @ rng.normal(size=(FEATURES, CLASSES))).argmax(1)


def adam(net, rate=0.02):
    return nn.Adam(net.trainable_params(), rate)


LOSS = nn.CrossEntropyLoss()


def fit(net, optimiser, epochs, **options):
    options = {"batch_size": 16, "progress": False, "validation": samples(20, 1), "firing_rate": net.layer, **options}
    return train.fit(net, LOSS, optimiser, options.pop("data", samples()), epochs, **options)


def bits(*cells):
    return {
        f"{n} {path}": p.asnumpy().tobytes()
        for n, cell in enumerate(cells)
        for path, p in cell.parameters_dict().items()
    }


# --- fit -------------------------------------------------------------------------------------------------------------


@pytest.mark.compiled
def test_fit_equals_explicit_loop():
    x, y = samples()
    test_x, test_y = samples(20, 1)
    snncell.set_seed(5)
    net = Net()
    optimiser = adam(net)
    found = fit(net, optimiser, 3)

    snncell.set_seed(5)
    mine = Net()
    other = adam(mine)
    rates = []
    mine.layer.register_forward_hook(lambda cell, inputs, out: rates.append(out))

    def forward(x, y):
        out = mine(x)
        return LOSS(out, y), (out.argmax(1) == y).astype("float32").mean(), rates.pop().mean()

    gradients = snncell.value_and_grad(forward, None, mine.trainable_params(), has_aux=True)
    for record in found.history:
        mine.set_train()
        seen = []
        for bx, by in snncell.data.batches(x, y, batch_size=16):
            values, grads = gradients(bx, by)
            other(grads)
            seen.append([len(by), *map(float, values)])
        mine.set_train(False)
        tested = forward(Tensor(test_x), Tensor(test_y))
        seen = np.array(seen)
        means = (seen[:, :1] * seen[:, 1:]).sum(0) / 40
        expected = dict(zip(("loss", "accuracy", "firing_rate"), means, strict=True))
        expected |= {f"test_{k}": float(v) for k, v in zip(expected, tested, strict=True)}
        for name, value in expected.items():
            assert record[name] == pytest.approx(value, rel=1e-4, abs=1e-6), name
    assert [record["step"] for record in found.history] == [3, 6, 9]
    for a, b in zip(net.get_parameters(), mine.get_parameters(), strict=True):
        np.testing.assert_allclose(a.asnumpy(), b.asnumpy(), rtol=1e-3, atol=1e-4)
    assert found.best is found.history[-1] and not found.stopped_early and found.seconds > 0


@pytest.mark.compiled
def test_fit_learns_and_restores_phases():
    x = np.random.default_rng(0).normal(size=(200, FEATURES)).astype(np.float32)
    y = (x[:, 0] > 0).astype(np.int64)
    net = Net()
    net.norm.set_train()
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # nothing is traced again and again
        found = fit(net, adam(net, 0.05), 12, data=(x, y), validation=(x, y))
    assert found.best["test_accuracy"] > 0.9 > found.history[0]["accuracy"]
    assert 0 < found.best["firing_rate"] < 1
    assert net.norm.training and not net.training and not net.drop.training
    assert not net.layer._hooks


@pytest.mark.compiled
def test_history_contains_only_requested_values():
    net = nn.Dense(2, 1)
    x, y = np.ones((5, 2), np.float32), np.zeros((5, 1), np.float32)
    options = {"accuracy": None, "progress": False}
    found = train.fit(net, nn.MSELoss(), nn.SGD(net.trainable_params(), 0.1), (x, y), 2, **options)
    assert list(found.history[0]) == ["epoch", "step", "learning_rate", "loss"]
    assert found.history[0]["learning_rate"] == 0.1
    assert train.fit(net, nn.MSELoss(), nn.SGD(net.trainable_params(), 0.1), (x, y), 0, **options).history == []


@pytest.mark.compiled
def test_data_can_be_batches_of_several_inputs():
    class Sum(nn.Cell):
        def __init__(self):
            super().__init__()
            self.dense = nn.Dense(2, 1)

        def construct(self, a, b):
            return self.dense(a + b)

    net, one = Sum(), ops.ones((4, 2))
    data = [(one, one, ops.zeros((4, 1)))] * 3
    found = train.fit(net, nn.MSELoss(), nn.SGD(net.trainable_params(), 0.02), data, 5, accuracy=None, progress=False)
    assert found.history[-1]["step"] == 15 and found.history[-1]["loss"] < found.history[0]["loss"]


@pytest.mark.compiled
def test_batches_can_be_time_first():
    x, y = np.arange(42.0).reshape(2, 7, 3), np.arange(7)
    data = train.Batches(x, y, batch_size=3, time_first=True)
    found = list(data)
    assert [tuple(a.shape) for a, _ in found] == [(2, 3, 3), (2, 3, 3), (2, 1, 3)] and len(data) == 3
    for patterns, labels in found:
        np.testing.assert_array_equal(patterns.asnumpy(), x[:, labels.asnumpy()])
    assert data.description() != train.Batches(x.swapaxes(0, 1), y, batch_size=3).description()
    with pytest.raises(ShapeError, match="with time_first inputs are"):
        train.Batches(y, y, time_first=True)
    with pytest.raises(ShapeError, match="leave out time_first=True"):
        train.Batches(x.swapaxes(0, 1), y, batch_size=3, time_first=True)


@pytest.mark.compiled
def test_learning_rate_follows_schedule_and_is_logged():
    net = Net()
    schedule = nn.WarmUpLR(nn.CosineDecayLR(0.0, 0.1, 9), 3)
    found = fit(net, nn.SGD(net.trainable_params(), schedule), 3)
    expected = [schedule(Tensor(np.array(float(step)))).item() for step in (3, 6, 9)]
    assert [record["learning_rate"] for record in found.history] == expected


@pytest.mark.compiled
def test_gradient_limits_are_applied():
    start = np.ones((1, 2), np.float32)
    data = (np.full((4, 2), 100, np.float32), np.full((4, 1), -1000, np.float32))
    for limits, norm in (({"clip_norm": 0.5}, 0.5), ({"clip_value": 0.25}, 0.25 * math.sqrt(2)), ({}, None)):
        net = nn.Dense(2, 1, Tensor(start), has_bias=False)
        train.fit(net, nn.MSELoss(), nn.SGD([net.weight], 1.0), data, 1, accuracy=None, progress=False, **limits)
        moved = np.linalg.norm(net.weight.asnumpy() - start)
        assert moved == pytest.approx(norm, rel=1e-5) if norm else moved > 1000


@pytest.mark.compiled
def test_stateful_cell_starts_each_pass_from_rest():
    net = nn.SequentialCell(nn.Dense(2, 2), nn.Stateful(nn.MultiStep(nn.IFNode())))
    data = [(ops.full((3, 4, 2), 0.7), ops.zeros((3, 4, 2)))] * 2
    first = train.evaluate(net, nn.MSELoss(), data, accuracy=None)
    assert net[1].states == ()  # as before
    assert train.evaluate(net, nn.MSELoss(), data, accuracy=None) == first
    whole = ops.concat([x for x, _ in data])  # within a pass, states go from batch to batch
    net[1].reset()
    assert first["loss"] == pytest.approx(ops.square(net(whole)).mean().item(), rel=1e-6)


@pytest.mark.compiled
def test_evaluate_restores_states_and_phases():
    class Loss(nn.Cell):
        def __init__(self):
            super().__init__()
            self.drop = nn.Dropout(p=0.5)

        def construct(self, out, y):
            return nn.MSELoss()(self.drop(out), y)

    net, loss = nn.SequentialCell(nn.Stateful(nn.IFNode())), Loss()
    loss.set_train()
    stream, again = snncell.jit(lambda x: net(x)), nn.Stateful(nn.IFNode())
    x = ops.full((4, 3), 0.4)
    assert not stream(x).asnumpy().any() and not again(x).asnumpy().any()
    data = np.full((9, 3), 2.0, np.float32), np.zeros((9, 3), np.float32)
    found = [train.evaluate(net, loss, data, batch_size=9, accuracy=None) for _ in range(2)]
    assert found[0] == found[1] == {"loss": 1.0}
    assert loss.training and loss.drop.training and not net.training
    for _ in range(3):
        np.testing.assert_array_equal(stream(x).asnumpy(), again(x).asnumpy())
    np.testing.assert_array_equal(net[0].states[0].asnumpy(), again.states[0].asnumpy())


# --- stopping --------------------------------------------------------------------------------------------------------


@pytest.mark.compiled
def test_early_stopping_restores_best_weights():
    net = Net()
    test_x, test_y = samples(20, 1)
    found = fit(net, adam(net, 0.3), 40, patience=3)
    losses = [record["test_loss"] for record in found.history]
    best = int(np.argmin(losses))
    assert found.stopped_early and len(losses) == best + 4 and found.best is found.history[best]
    again = train.evaluate(net, LOSS, (test_x, test_y), batch_size=16)
    assert again["loss"] == found.best["test_loss"] != losses[-1]


def test_early_stopping_direction_depends_on_metric():
    net = nn.Dense(1, 1)
    high = train.EarlyStopping(2, "test_accuracy", min_delta=0.01)
    told = [high.update({"epoch": n, "test_accuracy": x}, net) for n, x in enumerate((0.5, 0.6, 0.605, 0.4))]
    assert told == [False, False, False, True] and high.best_epoch == 1


class ScaledLoss(nn.Cell):
    """A loss with a trainable Parameter."""

    def __init__(self, begin=1.0):
        super().__init__()
        self.scale = snncell.Parameter(Tensor(np.float32(begin)))

    def construct(self, out, y):
        return LOSS(out * self.scale, y)


def with_loss(epochs, rate=0.3, **options):
    net, loss = nn.Dense(FEATURES, CLASSES), ScaledLoss()
    optimiser = nn.Adam(net.trainable_params() + loss.trainable_params(), rate)
    found = train.fit(net, loss, optimiser, samples(), epochs, validation=samples(9, 1), progress=False, **options)
    return (net, loss, optimiser), found


@pytest.mark.compiled
def test_weights_of_loss_are_restored_and_resumed(tmp_path):
    snncell.set_seed(3)
    whole, expected = with_loss(4)
    snncell.set_seed(3)
    with_loss(2, checkpoint=tmp_path / "run")
    snncell.set_seed(8)
    parts, found = with_loss(4, checkpoint=tmp_path / "run", resume=True)
    assert bits(*parts) == bits(*whole) and found.history == expected.history
    with pytest.raises(CheckpointError, match=r"another loss: Parameter scale was missing|another loss: class was"):
        train.load_state(tmp_path / "run", *parts[::2], loss=LOSS)
    (net, loss, _), found = with_loss(40, 3.0, patience=2)
    assert found.stopped_early and found.best is not found.history[-1]
    assert train.evaluate(net, loss, samples(9, 1))["loss"] == found.best["test_loss"]


# --- checkpoints -----------------------------------------------------------------------------------------------------

OPTIMISERS = {
    "Adam": adam,
    "SGD momentum schedule": lambda net: nn.SGD(net.trainable_params(), nn.CosineDecayLR(0.0, 0.1, 12), 0.9),
}


@pytest.mark.sampled(2)
@pytest.mark.compiled
@pytest.mark.parametrize("name", OPTIMISERS)
@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_resume_continues_bit_for_bit(tmp_path, name, ending):
    def begin(seed):
        snncell.set_seed(seed)
        net = Net()
        return net, OPTIMISERS[name](net)

    def run(net, optimiser, epochs, what, **options):
        files = {"checkpoint": tmp_path / f"{what}.ckpt", "log": tmp_path / f"{what}.{ending}"}
        return fit(net, optimiser, epochs, patience=9, monitor="test_accuracy", **files, **options)

    whole = begin(3)
    expected = run(*whole, 4, "whole")
    after = ops.uniform(3).asnumpy()
    run(*begin(3), 2, "parts")
    parts = begin(99)  # as in another process: other weights, other random numbers
    found = run(*parts, 4, "parts", resume=True)
    np.testing.assert_array_equal(ops.uniform(3).asnumpy(), after)
    assert bits(*parts) == bits(*whole)
    assert found.history == expected.history and found.best == expected.best and len(found.history) == 4
    assert (tmp_path / f"parts.{ending}").read_bytes() == (tmp_path / f"whole.{ending}").read_bytes()
    (mine, _), (theirs, _) = (read_arrays(tmp_path / f"{what}.ckpt", "test") for what in ("parts", "whole"))
    assert {k: v.tobytes() for k, v in mine.items()} == {k: v.tobytes() for k, v in theirs.items()}
    assert run(*begin(1), 4, "parts", resume=True).history == expected.history  # there is nothing left to do


@pytest.mark.compiled
def test_interrupted_epoch_is_repeated_after_resume(tmp_path):
    def interrupted(count):
        for batch in train.Batches(*samples(), batch_size=16):
            count[0] -= 1
            if count[0] < 0:
                raise KeyboardInterrupt
            yield batch

    class Data:
        def __init__(self, count):
            self.count = [count]

        def __iter__(self):
            return interrupted(self.count)

    def run(seed, data, **options):
        snncell.set_seed(seed)
        net = Net()
        optimiser = adam(net)
        return net, optimiser, fit(net, optimiser, 3, data=data, checkpoint=tmp_path / "run", **options)

    *whole, expected = run(4, Data(1000))
    with pytest.raises(KeyboardInterrupt):
        run(4, Data(5))
    *again, found = run(7, Data(1000), resume=True)
    assert bits(*again) == bits(*whole) and found.history == expected.history


@pytest.mark.compiled
def test_resumed_stopped_training_stays_stopped(tmp_path):
    net = Net()
    first = fit(net, adam(net, 0.3), 40, patience=2, checkpoint=tmp_path / "run")
    weights = bits(net)
    net = Net()
    again = fit(net, adam(net, 0.3), 40, patience=2, checkpoint=tmp_path / "run", resume=True)
    assert again.history == first.history and again.best == first.best and again.stopped_early
    assert bits(net) == weights


OTHER = {
    "layers": ({"net": lambda: Net(hidden=9)}, r"another net: dense1\.out_channels was 8 and is 9"),
    "threshold": ({"net": lambda: Net(v_threshold=0.6)}, r"another net: layer\.cell\.v_threshold was 0\.5 and is 0\.6"),
    "optimiser": (
        {"optimiser": lambda net: nn.AdamW(net.trainable_params(), 0.02)},
        "another optimiser: class was .Adam. and is .AdamW.",
    ),
    "momentum": (
        {"optimiser": lambda net: nn.Adam(net.trainable_params(), 0.02, beta1=0.8)},
        r"another optimiser: beta1 was 0\.9 and is 0\.8",
    ),
    "rate": ({"optimiser": lambda net: adam(net, 0.03)}, r"another optimiser: learning_rate was 0\.02 and is 0\.03"),
    "schedule": (
        {"optimiser": lambda net: adam(net, nn.CosineDecayLR(0.0, 0.02, 5))},
        "another optimiser: .*schedule",
    ),
    "samples": ({"data": samples(seed=2)}, r"another data: array 0 was \[\[40, 6\], .float32., "),
    "number of samples": ({"data": samples(41)}, r"another data: array 0 was .* and is \[\[41, 6\]"),
    "batch size": ({"batch_size": 8}, r"another data: batch_size was 16 and is 8"),
    "test samples": ({"validation": None}, "another test data: .*"),
    "clipping": ({"clip_norm": 1.0}, r"another setting: clip_norm was null and is 1\.0"),
    "measures": ({"firing_rate": ()}, "another setting: firing_rate was 1 and is 0"),
}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    file = tmp_path_factory.mktemp("runs") / "run"
    net = Net()
    fit(net, adam(net), 1, checkpoint=file)
    return file


@pytest.mark.compiled
@pytest.mark.parametrize("name", OTHER)
def test_resume_with_other_net_or_optimiser_raises(checkpoint, name):
    options, message = OTHER[name]
    options = dict(options)
    net = options.pop("net", Net)()
    optimiser = options.pop("optimiser", adam)(net)
    before = bits(net, optimiser)
    with pytest.raises(
        CheckpointError, match=f"run was written with {message}.*Use the same .*, or start a new training.*resume=False"
    ):
        fit(net, optimiser, 2, checkpoint=checkpoint, resume=True, **options)
    assert bits(net, optimiser) == before  # nothing is loaded


def test_resume_compares_array_constants_of_nets(tmp_path):
    class Fixed(nn.Cell):
        def __init__(self, constants):
            super().__init__()
            self.dense, self._constants = nn.Dense(2, 3), constants

    def save_and_load(name, before, now):
        train.save_state(tmp_path / name, before, nn.SGD(before.trainable_params(), 0.1))
        train.load_state(tmp_path / name, now, nn.SGD(now.trainable_params(), 0.1))

    def neurons(tau):
        return nn.SequentialCell(nn.Dense(2, 3), nn.MultiStep(nn.LIFNode(tau=np.array(tau))))

    save_and_load("same", neurons([2.0, 3.0, 4.0]), neurons([2.0, 3.0, 4.0]))
    with pytest.raises(CheckpointError, match=r"another net: 1\.cell\.\w*tau\w* was \[\[3\], "):
        save_and_load("tau", neurons([2.0, 3.0, 4.0]), neurons([5.0, 3.0, 4.0]))
    with pytest.raises(CheckpointError, match=r"another net: _constants\.1 was \[\[2\], "):
        save_and_load("list", Fixed([0, ops.ones(2)]), Fixed([0, ops.zeros(2)]))


@pytest.mark.compiled
def test_resume_from_missing_file_or_weights_only_raises(tmp_path, checkpoint):
    net = Net()
    with pytest.raises(CheckpointError, match=r"fit: resume: there is no file .*none; resume=Path"):
        fit(net, adam(net), 1, checkpoint=tmp_path / "none", resume=True)
    snncell.save_checkpoint(net, tmp_path / "weights")
    with pytest.raises(CheckpointError, match=r"weights contains no training.*snncell\.load_checkpoint"):
        train.load_state(tmp_path / "weights", net, adam(net))
    with pytest.raises(CheckpointError, match=r"checkpoint of a training: train\.load_state\(file, net\) loads"):
        snncell.load_checkpoint(checkpoint, net)
    (tmp_path / "half").write_bytes(checkpoint.read_bytes()[:-100])
    with pytest.raises(CheckpointError, match="half is damaged"):
        train.load_state(tmp_path / "half", net, adam(net))
    with pytest.raises(CheckpointError, match="there is no folder"):
        fit(net, adam(net), 1, checkpoint=tmp_path / "no" / "run")
    assert [path.name for path in tmp_path.iterdir()] != [] and not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("of_loss", [False, True])
def test_net_for_inference_loads_without_optimiser(tmp_path, of_loss):
    def make():
        net = nn.SequentialCell(nn.Dense(3, 2), nn.BatchNorm1d(2))
        loss = Learned() if of_loss else nn.MSELoss()
        return net, nn.Adam([*net.trainable_params(), *loss.trainable_params()], 0.1), loss

    class Learned(nn.Cell):
        def __init__(self):
            super().__init__()
            self.scale = snncell.Parameter(1.0)

        def construct(self, out, target):
            return (self.scale * (out - target) ** 2).mean()

    net, optimiser, loss = make()
    x = Tensor(samples()[0][:, :3])
    train.fit(net, loss, optimiser, (x, ops.zeros((len(x), 2))), 1, accuracy=None, progress=False)
    train.save_state(tmp_path / "run", net, optimiser, loss=loss)
    other, _, _ = make()
    snncell.set_seed(5)
    expected = ops.normal((3,), 0.0, 1.0).asnumpy()
    snncell.set_seed(5)
    train.load_state(tmp_path / "run", other)
    np.testing.assert_array_equal(other(x).asnumpy(), net(x).asnumpy())
    np.testing.assert_array_equal(ops.normal((3,), 0.0, 1.0).asnumpy(), expected)  # random numbers go on


@pytest.mark.compiled
def test_save_state_and_load_state_work_in_custom_loop(tmp_path):
    net = Net()
    optimiser = adam(net)
    step = train.training_step(net, LOSS, optimiser)
    net.set_train()
    x, y = map(Tensor, samples())
    step(x, y)
    train.save_state(tmp_path / "s", net, optimiser, {"note": [1, "two"]}, {"extra": np.arange(3)})
    step(x, y)
    expected = bits(net, optimiser)
    notes, arrays = train.load_state(tmp_path / "s", net, optimiser)
    assert notes == {"note": [1, "two"]}
    np.testing.assert_array_equal(arrays["extra"], np.arange(3))
    assert optimiser.global_step.item() == 1
    step(x, y)
    assert bits(net, optimiser) == expected


# --- log, progress ---------------------------------------------------------------------------------------------------


@pytest.mark.compiled
def test_logs_equal_history(tmp_path):
    net = Net()
    found = fit(net, adam(net), 2, log=tmp_path / "run.csv")
    with (tmp_path / "run.csv").open(newline="") as file:
        rows = [{name: float(x) for name, x in row.items()} for row in csv.DictReader(file)]
    assert rows == found.history
    found = fit(net, adam(net), 2, log=tmp_path / "run.jsonl")
    assert [json.loads(line) for line in (tmp_path / "run.jsonl").read_text().splitlines()] == found.history
    names = ["epoch", "step", "learning_rate", "loss", "accuracy", "firing_rate"]
    assert list(rows[0]) == [*names, "test_loss", "test_accuracy", "test_firing_rate"]


@pytest.mark.compiled
def test_progress_bar_shows_loss_accuracy_and_firing_rate(capsys):
    net = Net()
    fit(net, adam(net), 2, progress=True)
    shown = capsys.readouterr().err
    for word in ("6/6", "epoch=2", "loss=0.", "accuracy=", "firing_rate=", "test_loss="):
        assert word in shown, shown


# --- parts of fit -----------------------------------------------------------------------------------------------------


def test_clipping_equals_numpy(rng, run):
    gradients = [rng.normal(size=(3, 4)) * 5, rng.normal(size=2)]
    norm = math.sqrt(sum((g**2).sum() for g in gradients))
    for limit in (norm * 0.3, norm * 2):
        found = run(lambda *g, limit=limit: train.clip_by_global_norm(g, limit))(*map(Tensor, gradients))
        for g, clipped in zip(gradients, found, strict=True):
            np.testing.assert_allclose(clipped.asnumpy(), g * min(1, limit / norm), rtol=1e-12)
    for g, clipped in zip(gradients, train.clip_by_value(map(Tensor, gradients), 0.7), strict=True):
        np.testing.assert_array_equal(clipped.asnumpy(), np.clip(g, -0.7, 0.7))
    (zero,) = train.clip_by_global_norm([ops.zeros(3)], 1.0)
    np.testing.assert_array_equal(zero.asnumpy(), 0)


EXTREMES = {
    "float16 large": (np.float16([300, 2]), 1.0),
    "float16 small": (np.float16([1e-4] * 4), 1e-5),
    "float32 large": (np.float32([3e20, 4e20]), 1.0),
    "float32 small": (np.float32([3e-25, 4e-25]), 1e-25),
    "within": (np.float32([3e-25, 4e-25]), 1.0),
}


@pytest.mark.parametrize("name", EXTREMES)
def test_clipping_norm_neither_overflows_nor_underflows(name, run):
    g, limit = EXTREMES[name]
    (found,) = run(lambda g: train.clip_by_global_norm([g], limit))(Tensor(g))
    exact = g.astype(np.float64)
    expected = exact * min(1, limit / math.sqrt((exact**2).sum()))
    assert found.dtype.name == g.dtype
    np.testing.assert_allclose(found.asnumpy(), expected, rtol=1e-2 if g.dtype == np.float16 else 1e-6)


def test_clipping_propagates_nan_and_accepts_no_gradients():
    assert train.clip_by_global_norm([], 1.0) == ()
    for bad in (math.nan, math.inf):
        found = train.clip_by_global_norm([ops.ones(2), Tensor([1.0, bad]), ops.zeros(0)], 1.0)
        assert all(np.isnan(g.asnumpy()).all() for g in found)


def test_accuracy_accepts_potentials_counts_and_tuples():
    scores = Tensor(np.array([[0.1, 0.9], [0.8, 0.2], [0.3, 0.7]], np.float32))
    labels = Tensor([1, 1, 1])
    assert train.accuracy(scores, labels).item() == pytest.approx(2 / 3)
    assert train.accuracy((scores, None), labels).item() == pytest.approx(2 / 3)
    spikes = Tensor(np.array([[[0, 1.0]], [[1, 0]], [[0, 1]]]))
    assert train.accuracy(spikes, Tensor([1])).item() == 1.0


def test_spike_count_includes_nonzero_values_of_all_cells():
    a, b = nn.MultiStep(nn.IFNode(0.25)), nn.MultiStep(nn.IFNode(), return_states=True)
    with train.Spikes([a, b]) as spikes:
        a(ops.full((4, 1, 3), 0.25))  # 3 of 4 steps are above the threshold, in each of 3 neurons, then 0 is left
        b(ops.full((2, 1, 2), 0.75))
        first = a(ops.full((4, 1, 3), 0.3)).asnumpy()
        heard = [x.asnumpy() for x in spikes.heard]
        assert spikes.rate().item() == pytest.approx(sum((x != 0).sum() for x in heard) / sum(x.size for x in heard))
        np.testing.assert_array_equal(heard[2], first)
        with pytest.raises(ArgumentError, match="none of its Cells was called"):
            spikes.rate()
    assert not a._hooks and not b._hooks


def test_evaluate_weights_batches_by_size():
    net = nn.Dense(2, 1, "ones", has_bias=False)
    x, y = np.arange(10, dtype=np.float32).reshape(5, 2), np.zeros((5, 1), np.float32)
    found = train.evaluate(net, nn.MSELoss(), (x, y), batch_size=2, accuracy=None)
    assert found == {"loss": pytest.approx((x.sum(1) ** 2).mean())}
    assert train.evaluate(net, nn.MSELoss(), train.Batches(x, y, batch_size=2, drop_last=True), accuracy=None)[
        "loss"
    ] != (pytest.approx(found["loss"]))


XY = (np.ones((5, FEATURES), np.float32), np.zeros(5, np.int64))
REFUSED = [
    (lambda n, o: train.fit(n, LOSS, o, XY, -1), ArgumentError, "epochs is an integer of at least 0, not -1"),
    (lambda n, o: train.fit(n, LOSS, o, XY, 1, resume=True), ArgumentError, "resume=True continues from the file"),
    (
        lambda n, o: train.fit(n, LOSS, o, XY, 1, monitor="test_loss"),
        ArgumentError,
        "monitor='test_loss' is measured on",
    ),
    (lambda n, o: train.fit(n, LOSS, o, XY, 1, patience=0), ArgumentError, "patience is an integer of at least 1"),
    (
        lambda n, o: train.fit(n, LOSS, o, XY, 1, patience=1, monitor="f1", progress=False),
        ArgumentError,
        "monitor must be one of epoch, step, learning_rate, loss, accuracy, not 'f1'",
    ),
    (lambda n, o: train.fit(n, LOSS, o, XY, 1, clip_norm=0), ArgumentError, "clip_norm is a finite number above 0"),
    (lambda n, o: train.fit(n, LOSS, o, XY, 1, clip_value=-1), ArgumentError, "clip_value is a finite number above"),
    (
        lambda n, o: train.fit(n, LOSS, o, XY, 1, log="run.txt"),
        ArgumentError,
        r"Log: the file log must be named \*\.csv or \*\.jsonl",
    ),
    (lambda n, o: train.fit(n, LOSS, o, XY, 1, log="no/run.csv"), ArgumentError, "Log: there is no folder no"),
    (
        lambda n, o: train.fit(n, LOSS, adam(Net()), XY, 1),
        ArgumentError,
        r"'dense1\.weight' of shape .* which is not in the Net",
    ),
    (
        lambda n, o: train.fit(n, LOSS, n, XY, 1),
        ArgumentError,
        "takes a Cell, a loss and an optimiser.*not a Net and a",
    ),
    (lambda n, o: train.fit(n, LOSS, o, list(XY), 1, progress=False), ArgumentError, "all samples as a tuple, too"),
    (lambda n, o: train.fit(n, LOSS, o, None, 1), ArgumentError, "there are no data"),
    (lambda n, o: train.fit(n, LOSS, o, iter([XY]), 1), ArgumentError, "iterated again and again, not a list_iter"),
    (lambda n, o: train.fit(n, LOSS, o, 3, 1), ArgumentError, "data must be a tuple of arrays, or batches"),
    (lambda n, o: train.fit(n, LOSS, o, [], 1), ArgumentError, "data give no batch"),
    (lambda n, o: train.fit(n, LOSS, o, XY, 1, validation=[]), ArgumentError, "fit: validation data give no batch"),
    (lambda n, o: train.fit(n, LOSS, o, XY, 1, validation=3), ArgumentError, "fit: validation data must be a tuple"),
    (
        lambda n, o: train.fit(n, LOSS, o, [Tensor(XY[0])], 1),
        ArgumentError,
        r"a batch must be a tuple \(inputs, \.\.\., tar",
    ),
    (lambda n, o: train.fit(n, LOSS, o, (XY[0], XY[1][:3]), 1), ShapeError, r"different lengths \[5, 3\]"),
    (lambda n, o: train.fit(n, LOSS, o, XY, 1, batch_size=0), ArgumentError, "batch_size is an integer of at least 1"),
    (lambda n, o: train.Batches(*XY, batch_size=6, drop_last=True), ArgumentError, "5 samples give no batch of 6 with"),
    (
        lambda n, o: train.fit(n, LOSS, o, XY, 1, firing_rate=n.layer.cell),
        ArgumentError,
        "one step of the MultiStep 'l",
    ),
    (lambda n, o: train.fit(n, LOSS, o, XY, 1, firing_rate=[1]), ArgumentError, "takes Cells that return spikes"),
    (lambda n, o: train.fit(n, LOSS, o, XY, 1, firing_rate="a"), ArgumentError, "^fit: firing_rate takes Cells.*'a'"),
    (lambda n, o: train.fit(n, LOSS, o, XY, 1, firing_rate=3), ArgumentError, "^fit: firing_rate takes Cells .* not 3"),
    (lambda n, o: train.Spikes("a"), ArgumentError, "^Spikes: cells takes Cells .* not 'a'"),
    (lambda n, o: train.fit(n, LOSS, o, XY, 1, firing_rate=nn.ReLU()), ArgumentError, "none of its Cells was called"),
    (lambda n, o: train.accuracy(ops.ones((2, 3)), ops.ones(2)), DTypeError, "labels must be integers.*accuracy=None"),
    (lambda n, o: train.accuracy(ops.ones((2, 3)), Tensor([1])), ShapeError, r"shape \(2, 3\) do not fit .*\(1,\)"),
    (lambda n, o: train.fit(n, LOSS, o, (XY[0], XY[1] + 9), 1), ArgumentError, "Label 9 is out of range"),
]


@pytest.mark.compiled
@pytest.mark.parametrize(("call", "kind", "message"), REFUSED, ids=[row[2][:40] for row in REFUSED])
def test_invalid_arguments_raise(call, kind, message, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    net = Net()
    with pytest.raises(kind, match=message):
        call(net, adam(net))
    assert not net.layer._hooks


@pytest.mark.compiled
def test_nonfinite_loss_ends_training_and_keeps_checkpoint(tmp_path):
    net = Net()
    fit(net, adam(net), 1, checkpoint=tmp_path / "run")
    kept = (tmp_path / "run").read_bytes()

    def broken(out, y):
        return LOSS(out, y) * math.nan

    with pytest.raises(
        TrainingError, match=r"the loss of epoch 1 is nan\. It is nan for batch 0 at the initial weights"
    ):
        train.fit(net, broken, adam(net), samples(), 3, checkpoint=tmp_path / "run", progress=False)
    assert (tmp_path / "run").read_bytes() == kept


@pytest.mark.compiled
def test_nan_weights_end_training_and_keep_checkpoint(tmp_path):
    net = nn.SequentialCell(nn.Dense(2, 4), nn.MultiStep(nn.LIFNode()), nn.Dense(4, 2), nn.Readout("mean"))
    x, y = np.ones((3, 8, 2), np.float32), np.arange(8) % 2
    path, broken = tmp_path / "run", x.copy()
    broken[1, 3, 0] = np.nan

    def trained(x, **more):
        data = train.Batches(x, y, batch_size=8, time_first=True)
        return train.fit(net, LOSS, optimiser, data, checkpoint=path, progress=False, **more)

    optimiser = adam(net)
    assert math.isfinite(trained(x, epochs=1).best["loss"])
    kept = path.read_bytes()
    assert math.isfinite(float(LOSS(net(Tensor(broken)), Tensor(y))))  # or this would be another test
    message = (
        r"epoch 1 .* Parameter '0\.weight' are NaN or inf.*NaN potential does not spike\. "
        r"The data contain NaN: .* 3\. .*check_fin"
    )
    with pytest.raises(TrainingError, match=message):
        trained(broken, epochs=2)
    assert path.read_bytes() == kept


def holed(arrays, place, at=3):
    """Arrays with a NaN in sample 3 of one of them."""
    found = [np.array(x, np.float32) if n == place else x for n, x in enumerate(arrays)]
    found[place][at] = np.nan
    return tuple(found)


GIVEN = {
    "arrays": lambda arrays: arrays,
    "Batches": lambda arrays: train.Batches(*arrays, batch_size=4),
    "a list": lambda arrays: [tuple(x[i : i + 4] for x in arrays) for i in range(0, len(arrays[0]), 4)],
    "Tensors": lambda arrays: [tuple(Tensor(x[i : i + 4]) for x in arrays) for i in range(0, len(arrays[0]), 4)],
}
SQUARES = (np.ones((8, 3), np.float32), np.zeros((8, 2), np.float32))


@pytest.mark.parametrize("given", GIVEN)
@pytest.mark.parametrize("place", [0, 1])
def test_nan_data_are_named_instead_of_learning_rate(place, given):
    net, name = nn.Dense(3, 2), ("input", "target")[place]
    where = "of sample 3" if given in ("arrays", "Batches") else "of batch 0"
    words = rf"the loss of epoch 1 is nan\. The data contain NaN: the {name} {where}\. Remove them"
    data = GIVEN[given](holed(SQUARES, place))
    with pytest.raises(TrainingError, match=words) as caught:
        train.fit(net, nn.MSELoss(), adam(net), data, 1, accuracy=None, progress=False)
    assert "learning rate" not in str(caught.value)


@pytest.mark.parametrize("patience", [None, 2])
@pytest.mark.parametrize("given", GIVEN)
@pytest.mark.parametrize("place", [0, 1])
def test_nan_in_test_data_warns_and_ends_training(place, given, patience):
    net, test = nn.Dense(3, 2), GIVEN[given](holed(SQUARES, place))
    options = {"test": test, "patience": patience, "accuracy": None, "progress": False}
    words = r"the test loss of epoch 1 is nan\. The test data contain NaN: the .*Remove"
    with warnings.catch_warnings(record=True, action="always") as warned, pytest.raises(TrainingError, match=words):
        train.fit(net, nn.MSELoss(), adam(net), SQUARES, 3, **options)
    assert str(warned[0].message).startswith("fit: The test data contain NaN: the ")
    assert len(warned) == 1 and warned[0].filename == __file__


def test_nan_in_test_data_of_spiking_net_warns_once_despite_finite_loss():
    net = nn.SequentialCell(nn.Dense(2, 4), nn.MultiStep(nn.LIFNode()), nn.Dense(4, 2), nn.Readout("mean"))
    arrays = np.ones((8, 3, 2), np.float32), np.arange(8) % 2
    good, bad = (
        train.Batches(x.swapaxes(0, 1), y, batch_size=8, time_first=True)
        for x, y in (arrays, holed(arrays, 0, (slice(3, 5), 1)))
    )
    with pytest.warns(
        RuntimeWarning, match=r"The test data contain NaN: the input of sample 3 and 1 more\. "
    ) as warned:
        result = train.fit(net, LOSS, adam(net), good, 3, validation=bad, progress=False)
    assert len(warned) == 1
    assert all(math.isfinite(record["test_loss"]) for record in result.history)


def test_nan_test_loss_of_finite_data_raises_and_inf_does_not():
    def loss(out, y, worst):
        return nn.MSELoss()(out, y) + ops.select(y.max() > 0.0, worst, 0.0)

    test, options = (SQUARES[0], SQUARES[1] + 1.0), {"accuracy": None, "progress": False, "patience": 1}
    net = nn.Dense(3, 2)
    with pytest.raises(
        TrainingError, match=r"test loss of epoch 1 is nan\. The loss of the training data is finite, so check"
    ):
        train.fit(net, lambda *a: loss(*a, math.nan), adam(net), SQUARES, 3, validation=test, **options)
    result = train.fit(net, lambda *a: loss(*a, math.inf), adam(net), SQUARES, 3, validation=test, **options)
    assert result.history[0]["test_loss"] == math.inf


@pytest.mark.parametrize("monitor", ["test_loss", "test_accuracy", "loss"])
def test_early_stopping_rejects_nan(monitor):
    net, stopping = nn.Dense(1, 1), train.EarlyStopping(2, monitor)
    stopping.update({"epoch": 1, monitor: 0.5}, net)
    with pytest.raises(TrainingError, match=rf"{monitor} of epoch 2 is nan, which is neither better nor worse"):
        stopping.update({"epoch": 2, monitor: math.nan}, net)
    assert (stopping.best_epoch, stopping.waited) == (1, 0)


def test_loss_must_be_scalar_and_samplewise_accuracy_is_averaged():
    net = nn.Dense(3, 2, Tensor([[1.0, 1.0, 1.0], [0.0, 0.0, 0.0]]), "zeros")  # answers 0
    optimiser, data = nn.SGD(net.trainable_params(), 0.0), (np.ones((6, 3), np.float32), np.array([0, 0, 0, 0, 1, 1]))

    def right(output, labels):
        return (output.argmax(1) == labels).astype("float32")

    found = train.fit(net, nn.CrossEntropyLoss(), optimiser, data, 1, accuracy=right, progress=False)
    assert found.best["accuracy"] == pytest.approx(4 / 6)
    with pytest.raises(ShapeError, match=r"The loss must be one number, not of shape \(6,\)\. Use reduction=\"mean\""):
        train.fit(net, nn.CrossEntropyLoss(reduction="none"), optimiser, data, 1, progress=False)


def optimisers():
    """Optimisers with their default arguments, by name."""
    kinds = [kind for kind in vars(nn).values() if isinstance(kind, type) and issubclass(kind, nn.Optimizer)]
    return {kind.__name__: kind for kind in kinds if kind is not nn.Optimizer}


@pytest.mark.parametrize("name", optimisers())
def test_setting_missing_in_older_file_gets_default(tmp_path, name):
    """If a newer version adds a setting, the file is read if the setting has its default value, else rejected."""
    kind, file = optimisers()[name], tmp_path / "run"
    net = nn.SequentialCell(nn.Dense(2, 3), nn.MultiStep(nn.LIFNode()))
    required = {"learning_rate": 0.1} | ({"momentum": 0.5} if kind is nn.Momentum else {})
    optimiser = kind(net.trainable_params(), **required)
    train.save_state(file, net, optimiser)
    arrays, text = read_arrays(file, "test")
    plain = {setting: value for setting, value in state._defaults(kind).items() if setting in vars(optimiser)}
    for cell, path, settings in (("optimiser", "", plain), ("net", "0", {"has_bias": True})):
        for setting in settings:
            makes = json.loads(text["made"])
            del makes[cell][path][setting]
            write_arrays(file, arrays, {**text, "made": json.dumps(makes)}, "test")
            train.load_state(file, net, optimiser)
    for setting, value in plain.items():
        makes = json.loads(text["made"])
        del makes["optimiser"][""][setting]
        write_arrays(file, arrays, {**text, "made": json.dumps(makes)}, "test")
        object.__setattr__(optimiser, setting, not value if isinstance(value, bool) else value + 0.125)
        with pytest.raises(CheckpointError, match=f"another optimiser: {setting} was missing and is"):
            train.load_state(file, net, optimiser)
        object.__setattr__(optimiser, setting, value)
    assert "momentum" not in plain or kind is not nn.Momentum  # it has to be written


def test_files_from_before_settings_became_fields_are_read(tmp_path):
    """EventPropLIF kept its settings in private attributes, and losses kept the num_classes that they do not have."""
    net, loss, file = nn.EventPropLIF(2, 3, tau_mem=3.0), nn.TETLoss(), tmp_path / "run"
    optimiser = nn.SGD(net.trainable_params(), 0.1)
    train.save_state(file, net, optimiser, loss=loss)
    arrays, text = read_arrays(file, "test")
    makes = json.loads(text["made"])
    for setting in ("tau_mem", "tau_syn", "v_threshold", "spikes", "t_max"):
        del makes["net"][""][setting]
    makes["loss"][""]["num_classes"] = None
    write_arrays(file, arrays, {**text, "made": json.dumps(makes)}, "test")
    train.load_state(file, net, optimiser, loss=loss)
    makes["loss"][""]["num_classes"] = 3
    write_arrays(file, arrays, {**text, "made": json.dumps(makes)}, "test")
    with pytest.raises(CheckpointError, match="another loss: num_classes was 3 and is missing"):
        train.load_state(file, net, optimiser, loss=loss)


def test_setting_of_user_class_must_be_in_file(tmp_path):
    class Own(nn.SGD):
        def __init__(self, params, learning_rate, own=3):
            super().__init__(params, learning_rate)
            self.own = own

    net = nn.Dense(2, 3)
    optimiser = Own(net.trainable_params(), 0.1)
    train.save_state(tmp_path / "run", net, optimiser)
    arrays, text = read_arrays(tmp_path / "run", "test")
    makes = json.loads(text["made"])
    del makes["optimiser"][""]["own"]
    write_arrays(tmp_path / "run", arrays, {**text, "made": json.dumps(makes)}, "test")
    with pytest.raises(CheckpointError, match="own was missing and is 3"):
        train.load_state(tmp_path / "run", net, optimiser)


@pytest.mark.parametrize("name", [*LOSSES, "cross_entropy", "mse_loss", "MSELoss"])
def test_loss_given_by_name_raises_with_its_class(name):
    net, data = nn.Dense(2, 2), (np.ones((4, 2), np.float32), np.ones((4, 2), np.float32))
    with pytest.raises(
        ArgumentTypeError, match=r"loss is a function, not '.*'; create an instance: nn\.(\w+)\(\)"
    ) as caught:
        train.fit(net, name, nn.SGD(net.trainable_params(), 0.1), data, 1, progress=False)
    assert hasattr(nn, str(caught.value).partition("instance: nn.")[2].partition("(")[0])
