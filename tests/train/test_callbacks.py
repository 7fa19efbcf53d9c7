"""Callbacks, metrics, gradient accumulation and weight averages; trainings that stop anywhere and are resumed."""

import copy
import csv
import itertools
import json
import math
import pickle
import random
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

import snncell
from snncell import Tensor, data, nn, ops, plot, train
from snncell.errors import ArgumentError, CheckpointError

FEATURES, CLASSES, SAMPLES, BATCH = 6, 3, 22, 4
LOSS = nn.CrossEntropyLoss()


def samples(n=SAMPLES, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, FEATURES)).astype(np.float32)
    return x, x[:, :CLASSES].argmax(1).astype(np.int64)


class Net(nn.Cell):
    """A net that draws random numbers, and has statistics."""

    def __init__(self):
        super().__init__()
        self.first, self.norm, self.drop, self.last = (
            nn.Dense(FEATURES, 8),
            nn.BatchNorm1d(8),
            nn.Dropout(p=0.2),
            nn.Dense(8, CLASSES),
        )
        self.register_buffer("factor", Tensor(1.0))
        self.register_buffer("whole", Tensor([3, 4]))

    def construct(self, x):
        return self.last(self.drop(ops.relu(self.norm(self.first(x)) * self.factor)))


class Weighing(nn.Cell):
    """A loss that is multiplied by a buffer."""

    def __init__(self):
        super().__init__()
        self.register_buffer("factor", Tensor(1.0))

    def construct(self, out, y):
        return LOSS(out, y) * self.factor


class Stream(nn.Cell):
    """A net that continues from one batch to the next."""

    def __init__(self):
        super().__init__()
        self.first, self.stream, self.last = nn.Dense(FEATURES, 8), nn.Stateful(nn.LIFNode()), nn.Dense(8, CLASSES)

    def construct(self, x):
        return self.last(self.stream(self.first(x)))


class Drawing:
    """Data that draw from snncell's random numbers, batch by batch."""

    def __iter__(self):
        x, y = samples()
        for _ in range(5):
            chosen = ops.randint(0, len(x), (BATCH,)).asnumpy()
            yield x[chosen], y[chosen]


class Pairs:
    """A data set of single steps."""

    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        x, y = samples()
        return x[index], y[index]


def loader(**options):
    return data.Loader(Pairs(), BATCH, sequences=(), **options)


class Lower(train.Callback):
    """Lower constant learning rates, as ReduceLROnPlateau does."""

    def on_epoch_end(self, training):
        for number, group in enumerate(training.optimiser.groups):
            if group.schedule is None:
                training.optimiser.set_learning_rate(0.7 * training.optimiser.rates()[number].item(), group=number)


FACTORS = (1.0, 1.2, 0.5, 1.3, 1.1)  # of each epoch, of which the second is the best


class Counting(train.Callback):
    """Change buffers of net and loss in each epoch."""

    def on_epoch_begin(self, training):
        for cell in (training.net, training.loss):
            if "factor" in vars(cell):
                cell.factor = Tensor(FACTORS[training.epoch])


DATA = {
    "arrays": samples,
    "Batches": lambda: train.Batches(*samples(), batch_size=BATCH),
    "a list": lambda: [tuple(a[i : i + BATCH] for a in samples()) for i in range(0, 20, BATCH)],
    "drawing": Drawing,
    "Loader": loader,
    "seeded Loader": lambda: loader(seed=5, workers=0),
}
OPTIMISERS = {
    "Adam": lambda net: nn.Adam(net.trainable_params(), 0.02),
    "groups": lambda net: nn.SGD(
        [{"params": net.first.trainable_params(), "lr": 0.3}, {"params": net.last.trainable_params()}], 0.1, 0.9
    ),
    "schedule": lambda net: nn.AdamW(net.trainable_params(), nn.CosineDecayLR(0.0, 0.1, 9)),
}
CALLBACKS = {
    "none": lambda folder: [],
    "average": lambda folder: [train.EMA(0.8)],
    "best": lambda folder: [train.Checkpoint(folder / "best", best="test_loss"), train.EMA(0.5)],
    "average with statistics": lambda folder: [Counting(), train.EMA(0.8, use_buffers=True)],
    "stopping": lambda folder: [train.EarlyStopping(1, "loss"), Counting()],
    "rates": lambda folder: [Lower(), train.EMA(0.7)],
}
SETTINGS = {
    "net": [Net, Stream],
    "data": list(DATA),
    "optimiser": list(OPTIMISERS),
    "callbacks": list(CALLBACKS),
    "accumulate": [1, 2, 3],
    "prefetch": [None, True],
    "monitor": [None, "test_loss", "accuracy"],
    "metrics": [(), ["top2", "confusion"]],
    "stop": [(1, 1), (1, 3), (1, 5), (2, 1), (2, 4), (2, 6), (3, 2)],
    "again": [None, None, (1, 4), (1, 6), (2, 2), (2, 5), (3, 4)],
}


class StopAt(train.Callback):
    """Stop within an epoch."""

    def __init__(self, place):
        self.place = place

    def on_step_end(self, training):
        if (training.epoch, training.batch) >= self.place:
            training.stop("it is enough")


def trained(chosen, seed, folder, *more, **options):
    snncell.set_seed(seed)
    net = chosen["net"]()
    optimiser = OPTIMISERS[chosen["optimiser"]](net)
    # All batches of a stream have one size.
    size = 11 if chosen["net"] is Stream else BATCH
    given = samples() if chosen["net"] is Stream else DATA[chosen["data"]]()
    test = samples(size if chosen["net"] is Stream else 9, 1)
    names = {name: chosen[name] for name in ("accumulate", "prefetch", "monitor", "metrics")}
    callbacks = [*CALLBACKS[chosen["callbacks"]](folder), *more]
    made = {"batch_size": size, "test": test, "callbacks": callbacks, "progress": False, **names, **options}
    result = train.fit(net, LOSS, optimiser, given, 3, **made)
    bits = [p.asnumpy().tobytes() for p in (*net.get_parameters(), *net.buffers(), *optimiser.get_parameters())]
    return result, bits, ops.uniform(3).asnumpy().tolist()


def choices(count):
    """Random settings in which each value occurs with many values of the others."""
    chance = random.Random(19)
    return [{name: chance.choice(values) for name, values in SETTINGS.items()} for _ in range(count)]


@pytest.mark.sampled(2)
@pytest.mark.compiled
@pytest.mark.parametrize(
    "chosen", choices(36), ids=lambda c: "-".join(str(getattr(x, "__name__", x)) for x in c.values())
)
def test_training_stopped_anywhere_resumes_bit_for_bit(chosen, tmp_path):
    expected, weights, after = trained(chosen, 3, tmp_path)
    first, *_ = trained(chosen, 3, tmp_path, StopAt(chosen["stop"]), checkpoint=tmp_path / "run")
    assert first.stopped
    if chosen["again"] is not None:  # once more, in the same epoch or another one
        trained(chosen, 98, tmp_path, StopAt(chosen["again"]), checkpoint=tmp_path / "run", resume=True)
    found, again, drawn = trained(chosen, 99, tmp_path, checkpoint=tmp_path / "run", resume=True)
    assert found.history == expected.history and found.best == expected.best
    assert again == weights and drawn == after


@pytest.mark.parametrize("kept", ["on_epoch_begin", "on_step_begin", "on_step_end"])
def test_loader_resumes_where_callback_saved(kept, tmp_path):
    class Save(train.Callback):
        """Saves at the second of what is told, after a resume too."""

        def __init__(self, file):
            self.file, self.count = file, 0

    def save(self, training):
        self.count += 1
        if self.count == 2:
            training.save(self.file)

    setattr(Save, kept, save)
    chosen = {name: values[0] for name, values in SETTINGS.items()} | {"data": "Loader"}
    expected, weights, _ = trained(chosen, 3, tmp_path, Save(tmp_path / "one"))
    for file, next_file, seed in (("one", "two", 4), ("two", "three", 5), ("three", "four", 6)):
        found, again, _ = trained(chosen, seed, tmp_path, Save(tmp_path / next_file), resume=tmp_path / file)
        assert found.history == expected.history and again == weights, file
        if not (tmp_path / next_file).exists():
            break
    else:
        assert kept != "on_epoch_begin"
    assert file != "one"


def test_interruption_before_first_step_writes_checkpoint(tmp_path):
    net = nn.Dense(FEATURES, CLASSES)
    options = {"loss_scale": snncell.amp.DynamicLossScaler(2.0**120), "progress": False, "batch_size": BATCH}
    adam = nn.Adam(net.trainable_params(), 0.1)
    x, y = samples()
    huge = x * 1e30, y  # gradients of these times the scale are not finite
    train.fit(net, LOSS, adam, huge, 1, checkpoint=tmp_path / "run", callbacks=[StopAt((1, 1))], **options)
    assert adam.global_step.item() == 0 and (tmp_path / "run").is_file()


# --- calls of callbacks -----------------------------------------------------------------------------------------------


class Heard(train.Callback):
    """Record the calls of its methods."""

    def __init__(self, name="", order=0, calls=None):
        self.name, self.calls = name, [] if calls is None else calls
        self.__class__ = type("Heard", (Heard,), {"order": order})

    def __getattribute__(self, name):
        found = super().__getattribute__(name)
        if not name.startswith("on_"):
            return found

        def told(training, *error):
            self.calls.append((self.name + name, training.epoch, training.batch))

        return told


def simple(epochs=2, n=8, net=None, **options):
    net = net or nn.Dense(FEATURES, CLASSES)
    return net, train.fit(
        net, LOSS, nn.SGD(net.trainable_params(), 0.1), samples(n), epochs, batch_size=4, progress=False, **options
    )


@pytest.mark.parametrize("test", [None, samples(4, 1)])
def test_callback_methods_are_called_in_order(test):
    heard = Heard()
    simple(test=test, callbacks=[heard])
    evaluation = [("on_evaluation_begin", 1, 0), ("on_evaluation_end", 1, 0)] if test else []
    steps = [(f"on_step_{when}", 1, n) for n in (1, 2) for when in ("begin", "end")]
    steps = [(name, epoch, n - (name == "on_step_begin")) for name, epoch, n in steps]
    epoch = [("on_epoch_begin", 1, 0), *steps, *evaluation, ("on_epoch_end", 1, 0)]
    again = [(name, 2, batch) for name, _, batch in epoch]
    assert heard.calls == [("on_fit_begin", 0, 0), *epoch, *again, ("on_fit_end", 2, 0)]


def test_callbacks_are_called_in_list_order_and_end_in_reverse():
    calls = []
    simple(1, 4, callbacks=[Heard("late ", 1, calls), Heard("a ", 0, calls), Heard("b ", 0, calls)])
    begun = [name for name, *_ in calls if "fit_begin" in name]
    ended = [name for name, *_ in calls if "fit_end" in name]
    assert begun == ["a on_fit_begin", "b on_fit_begin", "late on_fit_begin"]
    assert ended == ["late on_fit_end", "b on_fit_end", "a on_fit_end"]


def test_error_is_reported_once_to_callbacks_and_propagates():
    class Broken(train.Callback):
        def on_step_end(self, training):
            raise KeyError("mine")

    heard = Heard()
    with pytest.raises(KeyError, match="mine"):
        simple(callbacks=[heard, Broken()])
    assert heard.calls[-1][0] == "on_error" and "on_fit_end" not in [name for name, *_ in heard.calls]


def test_callback_reads_and_adds_numbers_of_history_log_and_best(tmp_path):
    class Own(train.Callback):
        def on_fit_begin(self, training):
            assert (training.epochs, training.batches, training.step) == (2, 2, 0) and training.test is not None

        def on_step_end(self, training):
            assert training.updated and math.isfinite(training.measured["loss"].item())

        def on_evaluation_end(self, training):
            training.record["gap"] = training.record["test_loss"] - training.record["loss"]

    _, result = simple(test=samples(4, 1), callbacks=[Own()], log=tmp_path / "log.jsonl", monitor="gap")
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert lines == result.history and result.best == min(result.history, key=lambda record: record["gap"])
    assert all(r["gap"] == r["test_loss"] - r["loss"] for r in lines)


class Misnamed(train.Callback):
    def on_train_step_ends(self, run_context): ...


class FromElsewhere(train.Callback):
    def on_train_batch_end(self, *args): ...


class NoEvent(train.Callback):
    def on_sunday(self, training): ...


class WithoutTraining(train.Callback):
    def on_epoch_end(self): ...


WRONG = [
    ([3], r"callbacks must be train\.Callback, but one of them is an? int"),
    ("Log", r"callbacks must be a list of train\.Callback, not a str"),
    (train.EarlyStopping, "create an instance"),
    ([print], r"Make a function f the method of a class"),
    ([train.EMA], r"the class EMA; create an instance: train\.EMA\(decay\)\. Make"),
    ([Misnamed()], r"method on_train_step_ends, which fit does not call\. Did you mean on_train_step_end\?"),
    ([FromElsewhere()], r"on_train_batch_end, .* Did you mean on_train_step_end\?"),
    ([NoEvent()], r"on_sunday, which fit does not call\. There are .*on_fit_begin"),
    ([WithoutTraining()], r"called as on_epoch_end\(self, training\), which its method does not take"),
]


@pytest.mark.parametrize(("given", "words"), WRONG, ids=[row[1][:30] for row in WRONG])
def test_invalid_callback_raises_with_its_name(given, words):
    with pytest.raises(ArgumentError, match=words):
        simple(callbacks=given)
    twice = Heard()
    with pytest.raises(ArgumentError, match="occurs twice"):
        simple(callbacks=[twice, twice])

    class Own(train.Callback):
        def on_evaluation_end(self, training):
            training.record["x"] = ops.ones(2)

    with pytest.raises(ArgumentError, match=r"put a Tensor at 'x' into it\. Convert it by float\(x\)"):
        simple(test=samples(4, 1), callbacks=[Own()])


def test_result_repr_is_one_line():
    _, result = simple(test=samples(4, 1), metrics=["confusion"])
    line = repr(result)
    last = result.history[-1]
    assert line.startswith(f"Result({len(result.history)} epochs; best: epoch={last['epoch']}, ")
    assert f"test_loss={last['test_loss']:.4g}" in line and "confusion" not in line and "\n" not in line
    result.stopped = "interrupted"
    assert "; stopped: interrupted; " in repr(result)
    assert repr(train.Result()) == "Result(0 epochs; best: none; 0.0 s)"


# --- best weights, averages, accumulation -----------------------------------------------------------------------------


def test_monitor_alone_keeps_best_weights_and_trains_to_the_end():
    snncell.set_seed(1)
    net = nn.Dense(FEATURES, CLASSES)
    sgd, test = nn.SGD(net.trainable_params(), 30.0), samples(20, 1)
    result = train.fit(net, LOSS, sgd, samples(), 9, validation=test, monitor="test_loss", progress=False)
    losses = [record["test_loss"] for record in result.history]
    assert len(losses) == 9 and result.best["test_loss"] == min(losses) != losses[-1]
    assert not result.stopped and not result.stopped_early
    assert train.evaluate(net, LOSS, test)["loss"] == min(losses)


@pytest.mark.parametrize("decay", [0.0, 0.5, 0.9])
def test_weight_average_equals_formula_and_does_not_affect_steps(decay):
    def run(*callbacks):
        snncell.set_seed(2)
        net = nn.Dense(FEATURES, CLASSES)
        seen = [net.weight.asnumpy()]

        class Look(train.Callback):
            def on_step_end(self, training):
                seen.append(net.weight.asnumpy())

        adam = nn.Adam(net.trainable_params(), 0.1)
        train.fit(net, LOSS, adam, samples(), 2, batch_size=8, callbacks=[Look(), *callbacks], progress=False)
        return net.weight.asnumpy(), seen

    (_, plain), (averaged, seen) = run(), run(train.EMA(decay))
    np.testing.assert_array_equal(plain, seen)
    expected = seen[0].astype(np.float64)
    for weight in seen[1:]:
        expected = decay * expected + (1 - decay) * weight
    np.testing.assert_allclose(averaged, expected, rtol=1e-5)


@pytest.mark.parametrize("use_buffers", [False, True])
def test_statistics_and_buffers_are_averaged_on_request(use_buffers):
    def run(*callbacks):
        snncell.set_seed(2)
        net = Net()
        net.first.bias.requires_grad = False
        seen = [shown(net)]

        class Look(train.Callback):
            order = -1  # before the average takes its place

            def on_step_end(self, training):
                seen.append(shown(net))

        adam = nn.Adam(net.trainable_params(), 0.1)
        data = train.Batches(*samples(), batch_size=BATCH, shuffle=False)
        options = {"test": samples(9, 1), "progress": False}
        train.fit(net, LOSS, adam, data, 2, callbacks=[Counting(), Look(), *callbacks], **options)
        return shown(net), seen, {p.name for p in net.trainable_params()}

    def shown(net):
        return {path: np.array(x.asnumpy()) for path, x in net.state_dict().items()}

    plain, seen, trained = run()
    found, again, _ = run(train.EMA(0.8, use_buffers=use_buffers))
    assert all((a[path] == b[path]).all() for a, b in zip(seen, again, strict=True) for path in a)
    assert {"norm.moving_mean", "factor", "whole", "first.bias"} <= plain.keys() - trained
    for path, end in found.items():
        expected = seen[0][path].astype(np.float64)
        for each in seen[1:]:
            expected = 0.8 * expected + 0.2 * each[path]
        if path in trained or (use_buffers and path != "whole"):
            np.testing.assert_allclose(end, expected, rtol=2e-5, atol=1e-6, err_msg=path)
            if path == "first.bias":
                assert (end == plain[path]).all()  # to the bit, for it has never changed
            else:
                assert (end != plain[path]).any(), path
        else:
            assert (end == plain[path]).all(), path


@pytest.mark.parametrize("restore", [True, False])
@pytest.mark.parametrize("average", [False, True])
def test_best_weights_come_with_statistics_of_their_epoch(average, restore):
    snncell.set_seed(1)
    net, loss = Net(), Weighing()
    callbacks = [Counting(), train.EarlyStopping(None, restore_best_weights=restore)]
    callbacks += [train.EMA(0.5, use_buffers=True)] if average else []
    options = {"test": samples(20, 1), "callbacks": callbacks, "progress": False, "batch_size": BATCH}
    result = train.fit(net, loss, nn.SGD(net.trainable_params(), 3.0), samples(), 4, **options)
    losses = [record["test_loss"] for record in result.history]
    best = min(losses) if restore else losses[-1]
    assert min(losses) != losses[-1]
    assert train.evaluate(net, loss, options["test"], batch_size=BATCH)["loss"] == pytest.approx(best, rel=1e-6)
    epoch = losses.index(best) + 1
    if not average:
        assert net.factor.item() == loss.factor.item() == pytest.approx(FACTORS[epoch])


def test_resumed_training_averages_statistics_as_saved(tmp_path):
    def run(use_buffers, **options):
        net = Net()
        sgd = nn.SGD(net.trainable_params(), 0.1)
        callbacks = [train.EMA(0.5, use_buffers)]
        train.fit(
            net, LOSS, sgd, samples(), 1, callbacks=callbacks, checkpoint=tmp_path / "run", progress=False, **options
        )

    run(True)
    with pytest.raises(CheckpointError, match="use_buffers was True and is False"):
        run(False, resume=True)


@pytest.mark.parametrize("accumulate", [1, 2, 3, 6, 7])
@pytest.mark.parametrize("clip", [None, 0.01])
def test_accumulated_steps_equal_steps_of_larger_batches(accumulate, clip):
    def run(batch_size, accumulate):
        snncell.set_seed(4)
        net = nn.Dense(FEATURES, CLASSES)
        batches = train.Batches(*samples(), batch_size=batch_size, shuffle=False)
        adam = nn.Adam(net.trainable_params(), 0.1)
        options = {"accumulate": accumulate, "clip_norm": clip, "progress": False}
        return net, train.fit(net, LOSS, adam, batches, 2, **options)

    (small, found), (large, expected) = run(4, accumulate), run(4 * accumulate, 1)
    for a, b in zip(small.get_parameters(), large.get_parameters(), strict=True):
        np.testing.assert_allclose(a.asnumpy(), b.asnumpy(), rtol=2e-4, atol=2e-6)
    for ours, theirs in zip(found.history, expected.history, strict=True):
        assert ours["step"] == theirs["step"]


# --- checkpoints ------------------------------------------------------------------------------------------------------


def test_checkpoints_are_written_by_epoch_step_and_best_metric(tmp_path):
    best = train.Checkpoint(tmp_path / "best-{epoch}-{test_loss:.2f}", best="test_loss", keep=1)
    each = train.Checkpoint(tmp_path / "each-{epoch:03d}", every=2)
    steps = train.Checkpoint(tmp_path / "at-{step}", steps=5, keep=2)
    _, result = simple(5, 16, test=samples(8, 1), callbacks=[best, each, steps])
    least = min(result.history, key=lambda record: record["test_loss"])
    names = sorted(path.name for path in tmp_path.iterdir())
    assert best.state() == {"value": least["test_loss"]}
    assert names == ["at-15", "at-20", f"best-{least['epoch']}-{least['test_loss']:.2f}", "each-002", "each-004"]


@pytest.mark.parametrize("wrong", [ops.ones(()), np.float32(1), np.ones(2), "x"], ids=lambda x: type(x).__name__)
@pytest.mark.parametrize("told", ["on_evaluation_end", "on_epoch_end"])
def test_value_that_is_not_a_number_raises_before_logging(told, wrong, tmp_path):
    class Adds(train.Callback):
        """Adds something to the second record."""

    def add(self, training):
        if training.epoch == 2:
            training.record["x"] = wrong

    setattr(Adds, told, add)
    words = f"the callback Adds has put a {type(wrong).__name__} at 'x' into it"
    with pytest.raises(ArgumentError, match=words):
        simple(test=samples(4, 1), callbacks=[Adds()], log=tmp_path / "log.jsonl", checkpoint=tmp_path / "run")
    assert len((tmp_path / "log.jsonl").read_text().splitlines()) == 1
    assert len(simple(1, resume=tmp_path / "run", test=samples(4, 1))[1].history) == 1


def test_metric_missing_in_some_epochs_keeps_its_log_column(tmp_path):
    class Adds(train.Callback):
        """Adds a number of its own to each record but the first."""

        def on_epoch_end(self, training):
            if training.epoch > 1:
                training.record[f"x{training.epoch}"] = 10.0 * training.epoch

    _, result = simple(4, callbacks=[Adds()], log=tmp_path / "log.csv")
    lines = [*csv.DictReader((tmp_path / "log.csv").read_text().splitlines())]
    assert [*lines[0]] == ["epoch", "step", "learning_rate", "loss", "accuracy", "x2", "x3", "x4"]
    for line, record in zip(lines, result.history, strict=True):
        assert {name: float(text) for name, text in line.items() if text} == record
    train.Log(tmp_path / "log.csv").add({"epoch": 5, "loss": 0.5})  # of another process
    assert len([*csv.DictReader((tmp_path / "log.csv").read_text().splitlines())]) == 5
    assert len(plot.training_curves(tmp_path / "log.csv", names=["loss", "x3"]).lines) >= 1


@pytest.mark.parametrize("name", ["at-{step}", "at-{epoch}-{step}"])
@pytest.mark.parametrize("steps", [None, 1])
def test_old_checkpoints_are_deleted_also_after_resume(tmp_path, name, steps):
    for epochs in (3, 6):
        each = train.Checkpoint(tmp_path / name, steps=steps, keep=2)
        simple(epochs, checkpoint=tmp_path / "run", resume=epochs == 6, callbacks=[each])
        (tmp_path / "at-of-another").touch()
    kept = {path.name for path in tmp_path.iterdir()} - {"run", "at-of-another"}
    assert (tmp_path / "at-of-another").exists() and len(kept) == 2
    assert {Path(file).name for file in each.written} == kept


@pytest.mark.parametrize(
    "make",
    [
        lambda monitor: train.EarlyStopping(2, monitor),
        lambda monitor: train.Checkpoint("best", best=monitor),
        lambda monitor: train.ReduceLROnPlateau(monitor),
        lambda monitor: simple(1, test=samples(9, 1), monitor=monitor),
    ],
)
def test_metric_names_of_other_libraries_raise_with_suggestion(make):
    with pytest.raises(ArgumentError, match=r"no record has 'val_loss'; fit\(validation=.*measures 'test_loss'"):
        make("val_loss")
    with pytest.raises(ArgumentError, match="measures 'test_accuracy'"):
        make("val_acc")


@pytest.mark.parametrize(
    "make",
    [
        lambda folder: train.EarlyStopping(1),
        lambda folder: train.EarlyStopping(None),
        lambda folder: train.EarlyStopping(sys.maxsize),
        lambda folder: train.EMA(0.8),
        lambda folder: train.Checkpoint(folder / "best-{epoch}", best="test_loss"),
        lambda folder: train.Checkpoint(folder / "each-{epoch}", keep=2),
    ],
)
def test_callback_can_be_reused_for_another_training(make, tmp_path):
    callback, ends = make(tmp_path), []
    for _ in range(2):
        snncell.set_seed(1)
        net, result = simple(4, test=samples(9, 1), callbacks=[callback])
        ends.append((result.history, result.best, net.weight.asnumpy().tobytes(), sorted(tmp_path.iterdir())))
        for path in tmp_path.iterdir():
            path.unlink()
    assert ends[0] == ends[1]


def every_callback(folder):
    """One of each class of callbacks in `train`, made without arguments where it can be."""
    arguments = {
        "EMA": (0.8,),
        "EarlyStopping": (9,),
        "Checkpoint": (folder / "each-{epoch}",),
        "ReduceLROnPlateau": ("loss",),
        "TensorBoard": (folder / "board",),
        "TimeMonitor": (4,),
        "Log": (folder / "log.csv",),
    }
    kinds = [one for one in vars(train).values() if isinstance(one, type) and issubclass(one, train.Callback)]
    return [kind(*arguments.get(kind.__name__, ())) for kind in kinds]


def test_each_callback_can_be_pickled_and_copied_after_training(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # where ModelCheckpoint writes
    callbacks = every_callback(tmp_path)
    assert {"EMA", "Checkpoint", "EarlyStopping"} <= {type(one).__name__ for one in callbacks}
    sparse = nn.SparseDense(FEATURES, CLASSES, density=0.5)  # for the callbacks that move its synapses
    simple(2, net=sparse, test=samples(9, 1), callbacks=callbacks, monitor="test_loss")
    for callback in callbacks:
        for copied in (pickle.loads(pickle.dumps(callback)), copy.deepcopy(callback)):
            assert type(copied) is type(callback)
            simple(1, net=sparse, test=samples(9, 1), callbacks=[copied])


def test_any_metric_can_be_declared_higher_is_better(tmp_path):
    class Count(train.Callback):
        """Numbers that rise and fall."""

        def on_epoch_end(self, training):
            training.record["f1"] = [0.1, 0.5, 0.3, 0.9][training.epoch - 1]

    def written(higher):
        file = f"{higher}-{{epoch}}"
        best = train.Checkpoint(tmp_path / file, best="f1", higher_is_better=higher)
        simple(4, callbacks=[Count(), best])
        return sorted(path.name for path in tmp_path.glob(f"{higher}-*"))

    assert written(True) == ["True-1", "True-2", "True-4"]
    assert written(None) == ["None-1"]
    with pytest.raises(ArgumentError, match="higher_is_better needs best"):
        train.Checkpoint(tmp_path / "x", higher_is_better=True)


def test_training_resumes_from_any_step_checkpoint(tmp_path):
    def run(seed, epochs, **options):
        snncell.set_seed(seed)
        return simple(epochs, 16, callbacks=[train.Checkpoint(tmp_path / "at-{step}", steps=3)], **options)

    net, expected = run(1, 3)
    for step in (3, 6, 9, 12):
        again, found = run(7, 3, resume=tmp_path / f"at-{step}")
        assert found.history == expected.history
        assert again.weight.asnumpy().tobytes() == net.weight.asnumpy().tobytes()


REFUSED = [
    (lambda folder: train.Checkpoint(folder / "a", every=1, steps=2), "steps writes within epochs, every after"),
    (lambda folder: train.Checkpoint(folder / "a", steps=2, best="loss"), "steps writes within epochs, best after"),
    (lambda folder: train.Checkpoint(folder / "a", keep=2), r'always the same; write "a-\{epoch\}"'),
    (
        lambda folder: simple(callbacks=[train.Checkpoint(folder / "{f1}")]),
        "needs 'f1', but the record has only epoch, step",
    ),
    (lambda folder: simple(callbacks=[train.Checkpoint(folder / "a", best="f1")]), "not 'f1'"),
    (lambda folder: simple(metrics=["top"]), "there is no metric 'top'.*Did you mean 'top5'"),
    (lambda folder: simple(metrics=[lambda out, y: out.mean()]), "a lambda among metrics has no name; give a dict"),
    (lambda folder: simple(metrics=["top2", "top2"]), "two metrics are called 'top2'"),
    (lambda folder: simple(metrics={"loss": "top2"}), "'loss' cannot be the name of a metric"),
    (lambda folder: simple(metrics=[3]), "metrics must be names or functions"),
    (lambda folder: train.EMA(1.0), r"decay is .* in \[0, 1\)"),
]


@pytest.mark.parametrize(("call", "words"), REFUSED, ids=[row[1][:40] for row in REFUSED])
def test_invalid_settings_raise(call, words, tmp_path):
    with pytest.raises(ArgumentError, match=words):
        call(tmp_path)


def test_resume_with_other_callbacks_raises_and_changes_nothing(tmp_path):
    def run(*callbacks, **options):
        net = nn.Dense(FEATURES, CLASSES)
        before = net.weight.asnumpy()
        sgd, options = nn.SGD(net.trainable_params(), 0.1), {"progress": False, "callbacks": callbacks, **options}
        try:
            train.fit(net, LOSS, sgd, samples(), 2, checkpoint=tmp_path / "run", **options)
        except CheckpointError as error:
            np.testing.assert_array_equal(net.weight.asnumpy(), before)
            return str(error)
        return ""

    assert run(train.EMA(0.9)) == ""
    assert "written with these callbacks that have a state: EMA; now there are none" in run(resume=True)
    assert "decay was 0.9 and is 0.5" in run(train.EMA(0.5), resume=True)
    assert "now there are EarlyStopping, EMA" in run(train.EMA(0.9), train.EarlyStopping(2, "loss"), resume=True)


SCRIPT = """
    import os, signal, sys, time
    import numpy as np, snncell
    from snncell import nn, train

    def run(file, seed, number=None):
        class Send(train.Callback):
            def on_step_end(self, training):
                if (training.epoch, training.batch) == (2, 2) and number:
                    os.kill(os.getpid(), number)

        snncell.set_seed(seed)
        net = nn.Dense(3, 2)
        x, y = np.random.default_rng(0).normal(size=(20, 3)).astype("float32"), np.arange(20) % 2
        options = {"checkpoint": file, "resume": os.path.exists(file), "progress": False}
        result = train.fit(net, nn.CrossEntropyLoss(), nn.Adam(net.trainable_params(), 0.1), (x, y), 3, batch_size=4,
                           callbacks=[Send()], **options)
        print(repr(result.stopped), net.weight.asnumpy().tobytes().hex(), flush=True)
"""


@pytest.mark.sampled(1)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "a scheduler's"])
def test_interruption_writes_checkpoint_and_ends_cleanly(number, tmp_path):
    def in_a_process(*calls):
        command = [sys.executable, "-c", "\n".join([textwrap.dedent(SCRIPT), *calls])]
        return subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=tmp_path)

    left = in_a_process("run('whole', 1)", f"run('run', 1, {int(number)})")
    whole, *interrupted = left.stdout.splitlines()
    if number == signal.SIGINT:
        assert left.returncode == 0 and interrupted[0].startswith("'interrupted'"), left.stderr
    else:
        assert left.returncode == -number and not interrupted, left.stderr
    assert in_a_process("run('run', 2)").stdout == whole + "\n"


# --- metrics ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [1, 2, 3, 9])
@pytest.mark.parametrize("over_time", [False, True])
@pytest.mark.parametrize("ignored", [False, True])
def test_metrics_equal_numpy(k, over_time, ignored, rng, run):
    scores = rng.normal(size=(5, 11, 4) if over_time else (11, 4)).astype(np.float32)
    labels = rng.integers(0, 4, 11)
    labels[rng.integers(0, 11, 3)] = -100 if ignored else 0
    summed, there = scores.sum(0) if over_time else scores, labels >= 0
    order = np.argsort(-summed, 1)[:, :k]
    expected = np.mean([label in row for label, row in zip(labels[there], order[there], strict=True)])
    found = run(train.top_k(k))(Tensor(scores), Tensor(labels))
    assert found.item() == pytest.approx(expected)
    matrix = np.zeros((4, 4))
    np.add.at(matrix, (labels[there], summed.argmax(1)[there]), 1 / there.sum())
    np.testing.assert_allclose(run(train.confusion)(Tensor(scores), Tensor(labels)).asnumpy()[0], matrix, rtol=1e-5)
    if k == 1:
        assert np.trace(matrix) == pytest.approx(found.item())


def test_training_metrics_are_named_means_over_all_samples():
    def worst(output, labels):
        return ops.abs(output).max()

    own = {"mine": worst, "second": "top2", "matrix": "confusion"}
    net, result = simple(1, 10, test=samples(7, 1), metrics=own)
    record, again = result.best, train.evaluate(net, LOSS, samples(7, 1), batch_size=4, metrics=own)
    assert {name: record[f"test_{name}"] for name in again} == again
    assert np.shape(record["matrix"]) == (CLASSES, CLASSES)
    assert np.sum(record["matrix"]) == pytest.approx(1.0)
    names = [*itertools.takewhile(lambda name: not name.startswith("test_"), record)]
    assert names == ["epoch", "step", "learning_rate", "loss", "accuracy", *own]


def test_mindspore_named_methods_can_be_pickled():
    names = [name for name in dir(train.Callback) if name.startswith(("on_train_", "on_eval_"))]
    assert len(names) == 12
    for name in names:
        assert pickle.loads(pickle.dumps(getattr(train.Callback(), name))).__name__ == name
