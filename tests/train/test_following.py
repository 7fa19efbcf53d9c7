"""Tracking a training: metrics of a net's activity, TensorBoard, Weights & Biases and MLflow."""

import re
import struct
import sys
from pathlib import Path

import numpy as np
import pytest

import snncell
from snncell import Tensor, encode, monitoring, nn, ops, plot, train
from snncell.errors import ArgumentError

STEPS, SAMPLES, FEATURES, CLASSES = 6, 10, 5, 3
LOSS = nn.CrossEntropyLoss()
INSIDE = ["spikes", "synops", "energy"]


class Sequences(nn.Cell):
    """A net of sequences (T, B, features), of one of several kinds."""

    def __init__(self, kind):
        super().__init__()
        self.first, self.last = nn.Dense(FEATURES, 8, weight_init=0.4), nn.Dense(8, CLASSES)
        body = {
            "dense": lambda: nn.MultiStep(nn.LIFNode(tau=3.0)),
            "recurrent": lambda: nn.MultiStep(nn.Recurrent(nn.LIFNode(tau=3.0), nn.Dense(8, 8))),
            "drawing": lambda: nn.SequentialCell(nn.Dropout(p=0.3), nn.MultiStep(nn.LIFNode(tau=3.0))),
            "streaming": lambda: nn.Stateful(nn.MultiStep(nn.LIFNode(tau=3.0))),
        }
        self.body = body[kind]()
        self.read = nn.MultiStep(nn.LINode(tau=3.0))

    def construct(self, x):
        return self.read(self.last(self.body(self.first(x)))).mean(0)


class Padded(Sequences):
    """A net of sequences with lengths."""

    def construct(self, x, lengths):
        return encode.max_membrane(self.read(self.last(self.body(self.first(x)))), lengths=lengths)


KINDS = ["dense", "recurrent", "drawing", "streaming"]


def batches(sizes=(4, 4, 2), lengths=False):
    rng = np.random.default_rng(1)
    found = []
    for size in sizes:
        x = (rng.random((STEPS, size, FEATURES)) < 0.4).astype(np.float32)
        y = rng.integers(0, CLASSES, size)
        found.append((x, rng.integers(1, STEPS + 1, size), y) if lengths else (x, y))
    return found


def whole(some):
    return tuple(np.concatenate(parts, 1 if parts[0].ndim == 3 else 0) for parts in zip(*some, strict=True))


def trained(net, epochs=2, some=None, **options):
    snncell.set_seed(3)
    adam = nn.Adam(net.trainable_params(), 0.01)
    return train.fit(net, LOSS, adam, some or batches(), epochs, progress=False, **options)


def weights(net):
    return {name: p.asnumpy().copy() for name, p in net.parameters_and_names()}


def same(one, other):
    return all(np.array_equal(one[name], other[name]) for name in one)


# --- metrics of a net's activity --------------------------------------------------------------------------------------


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", ["dense", "recurrent"])
@pytest.mark.parametrize("lengths", [False, True], ids=["whole", "padded"])
def test_named_activity_metrics_equal_metrics_of_all_samples(kind, lengths):
    some = batches(lengths=lengths)
    net = (Padded if lengths else Sequences)(kind)
    found = train.evaluate(net, LOSS, some, metrics=[*INSIDE, "accuracy"], accuracy=None)
    inputs = whole(some)[:-1]
    with snncell.monitor(net, inputs=True) as m:
        net(*map(Tensor, inputs))
    fired = sum(np.count_nonzero(m.spikes[name]) for name in m.layers if m.fires(name))
    assert found["spikes"] == pytest.approx(fired / SAMPLES, rel=1e-6) and fired
    assert found["synops"] == pytest.approx(monitoring.synops(net, *map(Tensor, inputs)), rel=1e-6)
    assert found["energy"] == pytest.approx(monitoring.energy(net, *map(Tensor, inputs)).joules, rel=1e-6)


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.compiled
@pytest.mark.parametrize("kind", KINDS)
def test_tracking_changes_no_bit_of_training(kind, tmp_path):
    results = []
    for watched in (False, True):
        snncell.set_seed(0)
        net = Sequences(kind)
        some = batches((4, 4))
        board = train.TensorBoard(tmp_path, steps=1, batch=some[0], report=kind != "streaming")
        options = {"metrics": ["confusion", *INSIDE], "callbacks": [board]} if watched else {}
        result = trained(net, some=some, test=some, **options)
        results.append((weights(net), [r["test_loss"] for r in result.history]))
    assert same(results[0][0], results[1][0]) and results[0][1] == results[1][1]


def test_best_weights_can_be_selected_by_energy():
    net = Sequences("dense")
    result = trained(net, 3, test=batches(), metrics=["energy"], monitor="test_energy")
    assert result.best["test_energy"] == min(record["test_energy"] for record in result.history)
    found = train.evaluate(net, LOSS, batches(), metrics=["energy"])["energy"]
    assert found == result.best["test_energy"]


def test_custom_monitor_metric_is_measured_and_checked():
    net = Sequences("dense")
    highest = train.Monitored(lambda m: m.v["body"].max(), v=True)
    found = train.evaluate(net, LOSS, batches(), metrics={"highest": highest, "loihi": on_loihi})
    assert 0.0 < found["highest"] <= 1.0 and found["loihi"] > 0.0
    for wrong, words in (
        (train.Monitored(lambda m: m.v["body"].max()), "metric 'own': .*monitor.net, v=True"),
        (train.Monitored(lambda m: m.spikes["body"]), "metric 'own' is a function of a monitor that returns a number"),
        (train.Monitored(lambda m: "much"), "metric 'own' is a function of a monitor that returns a number"),
        (train.Monitored, "not the class Monitored"),
    ):
        with pytest.raises(ArgumentError, match=words):
            train.evaluate(net, LOSS, batches(), metrics={"own": wrong})


on_loihi = train.Monitored(lambda m: m.energy("loihi").joules, inputs=True)


def test_invalid_metric_raises_before_first_step():
    net = Sequences("dense")
    before = weights(net)
    with pytest.raises(ArgumentError, match="'energy' is measured on validation data; give validation="):
        trained(net, metrics=["energy"])
    with snncell.monitor(net), pytest.raises(ArgumentError, match="another monitor"):
        trained(net, metrics=["spikes"], test=batches())
    dense, flat = nn.Dense(FEATURES, CLASSES), (np.ones((4, FEATURES), np.float32), np.zeros(4, np.int64))
    sgd = nn.SGD(dense.trainable_params(), 0.1)
    with pytest.raises(ArgumentError, match="Dense has no neurons"):
        train.fit(dense, LOSS, sgd, flat, 1, validation=flat, metrics=["spikes"], progress=False)
    assert same(before, weights(net))


# --- TensorBoard ------------------------------------------------------------------------------------------------------


def written(folder):
    """The contents of a folder's files: (step, tag) -> kind or number, and the steps that hide others."""
    from tensorboardX.proto import event_pb2

    values, hidden = {}, []
    for path in sorted(folder.glob("events.out.tfevents.*")):
        content, at = path.read_bytes(), 0
        while at < len(content):
            (length,) = struct.unpack_from("<Q", content, at)
            event = event_pb2.Event.FromString(content[at + 12 : at + 12 + length])
            at += 16 + length
            if event.HasField("session_log"):
                hidden.append(event.step)
            for value in event.summary.value:
                kind = value.WhichOneof("value")
                values[event.step, value.tag] = value.simple_value if kind == "simple_value" else kind
    return values, hidden


@pytest.mark.slow
def test_tensorboard_has_scalars_histograms_rasters_and_reports(tmp_path):
    net = Sequences("dense")
    slow = [net.first.weight, net.first.bias]
    other = [p for p in net.trainable_params() if all(p is not q for q in slow)]
    adam = nn.Adam([{"params": slow, "lr": 0.25}, {"params": other}], 0.5)
    board = train.TensorBoard(tmp_path / "deep" / "run", steps=2, every=2, batch=batches()[0], report=True)
    options = {"test": batches(), "metrics": ["confusion", "spikes"], "progress": False}
    result = train.fit(net, LOSS, adam, batches(), 3, callbacks=[board], **options)
    values, _ = written(tmp_path / "deep" / "run")
    for record in result.history:
        for name, number in record.items():
            if name not in ("epoch", "step") and not isinstance(number, list):
                assert values[record["step"], name] == pytest.approx(number, rel=1e-6)
        assert values[record["step"], "test_confusion"] == "image"
    assert {step for step, tag in values if tag == "batch/loss"} == {2, 5, 8}  # the second of three batches
    assert {step for step, tag in values if tag == "weights/first.weight"} == {0, 6}
    assert {step for step, tag in values if tag == "spikes/body"} == {0, 6}
    assert {tag for _, tag in values if tag.startswith("spikes/")} == {"spikes/body"}  # the read-out does not fire
    assert {step for step, tag in values if tag.startswith("report/")} == {6}
    assert (tmp_path / "deep" / "run" / "report-2.html").is_file()
    assert values[3, "learning_rate"] == 0.25 and values[3, "learning_rate_1"] == 0.5


def test_tensorboard_hides_steps_repeated_after_resume(tmp_path):
    file, stop = tmp_path / "a.ckpt", Stop(4)
    options = {"checkpoint": file, "test": batches()}
    net = Sequences("dense")
    trained(net, 3, callbacks=[train.TensorBoard(tmp_path, steps=1), stop], **options)
    net = Sequences("dense")
    trained(net, 3, callbacks=[train.TensorBoard(tmp_path, steps=1)], resume=True, **options)
    values, hidden = written(tmp_path)
    assert hidden == [1, 5]
    assert {step for step, tag in values if tag == "batch/loss"} == {*range(1, 10)}
    assert {step for step, tag in values if tag == "test_loss"} == {3, 6, 9}
    assert {step for step, tag in values if tag == "weights/first.weight"} == {0, 3, 6, 9}


class Stop(train.Callback):
    def __init__(self, step):
        self.step = step

    def on_step_end(self, training):
        if training.step == self.step:
            training.stop()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda folder: train.TensorBoard(folder / "file" / "run"), "TensorBoard: cannot write into the folder"),
        (lambda folder: train.TensorBoard(folder, report=True), "pass batch="),
        (lambda folder: train.TensorBoard(folder, batch=ops.ones((3, 3, 99))), "99"),
    ],
    ids=["a file in the way", "a report on nothing", "another batch"],
)
def test_tensorboard_errors_are_raised_before_first_step(make, words, tmp_path):
    (tmp_path / "file").write_text("")
    net = Sequences("dense")
    before = weights(net)
    with pytest.raises(snncell.errors.SnncellError, match=words):
        trained(net, callbacks=[make(tmp_path)])
    assert same(before, weights(net))


def test_missing_tensorboard_package_raises(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    with pytest.raises(ArgumentError, match=r'pip install "snncell\[tensorboard\]"'):
        train.TensorBoard(tmp_path)


def test_tensorboard_is_closed_when_training_fails(tmp_path):
    class Fails(train.Callback):
        def on_epoch_end(self, training):
            raise RuntimeError("of the user's own")

    board = train.TensorBoard(tmp_path)
    with pytest.raises(RuntimeError, match="own"):
        trained(Sequences("dense"), callbacks=[board, Fails()])
    assert board._writer is None and (0, "weights/first.weight") in written(tmp_path)[0]


# --- Weights & Biases and MLflow --------------------------------------------------------------------------------------


class WandbRun:
    """The methods of a Weights & Biases run that the page uses, with the same arguments."""

    def __init__(self, **settings):
        self.settings, self.numbers, self.finished = settings, {}, False

    def log(self, data, step=None, commit=None):
        assert not self.finished and all(isinstance(x, (int, float)) for x in data.values())
        self.numbers[step] = data

    def finish(self, exit_code=None, quiet=None):
        self.finished = True


class Mlflow:
    """The same for MLflow."""

    def __init__(self):
        self.numbers, self.active = {}, False

    def start_run(self, run_id=None, experiment_id=None, run_name=None):
        self.active = True

    def log_metrics(self, metrics, step=None, synchronous=None, run_id=None):
        assert self.active and all(isinstance(x, (int, float)) for x in metrics.values())
        self.numbers[step] = metrics

    def end_run(self, status="FINISHED"):
        self.active = False


def test_documented_callbacks_log_to_wandb_and_mlflow(monkeypatch):
    runs, mlflow = [], Mlflow()

    class Wandb:
        @staticmethod
        def init(project=None, config=None, name=None):
            runs.append(WandbRun(project=project))
            return runs[0]

    monkeypatch.setitem(sys.modules, "wandb", Wandb)
    monkeypatch.setitem(sys.modules, "mlflow", mlflow)
    text = (Path(__file__).parents[2] / "docs" / "training.md").read_text(encoding="utf-8")
    (block,) = [code for code in re.findall(r"^```python\n(.*?)^```$", text, re.M | re.S) if "import wandb" in code]
    names = {"train": train}
    exec(block, names)
    callbacks = [names["WeightsAndBiases"](project="words"), names["MLflow"]()]
    result = trained(Sequences("dense"), test=batches(), metrics=["confusion"], callbacks=callbacks)
    kept = {r["step"]: {k: x for k, x in r.items() if not isinstance(x, list)} for r in result.history}
    assert runs[0].numbers == mlflow.numbers == kept and len(kept) == 2
    assert runs[0].finished and not mlflow.active and runs[0].settings == {"project": "words"}


# --- plots of records -------------------------------------------------------------------------------------------------


def test_recorded_confusion_matrix_is_drawn_like_that_of_predictions():
    net = Sequences("dense")
    some = batches()
    result = trained(net, test=some, metrics=["confusion"])
    x, y = whole(some)
    of_record = plot.confusion_matrix(result.history[-1]["test_confusion"])
    net.set_train(False)
    of_scores = plot.confusion_matrix(net(Tensor(x)).asnumpy(), y)
    np.testing.assert_allclose(of_record.images[0].get_array(), of_scores.images[0].get_array(), atol=1e-6)
    assert of_record.get_title().split(" %")[0] in of_scores.get_title()
    assert sum(int(text.get_text()) for text in of_record.texts) in range(98, 103)  # percentages, rounded
    of_counts = plot.confusion_matrix(np.array([[3, 1], [0, 4]]), names=["a", "b"])
    assert of_counts.get_title() == "7 of 8 right (87.5 %)"


@pytest.mark.parametrize(
    "wrong",
    [
        [0, 1],
        np.ones((2, 3)),
        np.zeros((2, 2)),
        [[0.5, -0.1], [0.1, 0.5]],
        [[np.nan, 1.0], [1.0, 1.0]],
        np.ones((2, 2, 2)),
    ],
)
def test_invalid_confusion_matrix_raises(wrong):
    with pytest.raises(snncell.errors.SnncellError, match=r"confusion_matrix: .*matrix"):
        plot.confusion_matrix(wrong)
    with pytest.raises(ArgumentError, match="3 names, but 2 classes"):
        plot.confusion_matrix(np.eye(2), names=["a", "b", "c"])


@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_curves_of_log_with_matrices_and_units_are_drawn(ending, tmp_path):
    log = tmp_path / f"log.{ending}"
    result = trained(Sequences("dense"), test=batches(), metrics=["confusion", *INSIDE], log=log)
    for source in (result, log):
        axes = plot.training_curves(source)
        drawn = {line.get_label() for part in axes.figure.axes for line in part.lines}
        assert {"loss, training", "loss, evaluation", "accuracy, training", "accuracy, evaluation"} <= drawn
        assert not any(name in label for label in drawn for name in ("confusion", *INSIDE))
        axes = plot.training_curves(source, names="energy")
        assert [line.get_label() for line in axes.lines] == ["energy, evaluation"]
        np.testing.assert_allclose(axes.lines[0].get_ydata(), [r["test_energy"] for r in result.history])
        with pytest.raises(ArgumentError, match="there is no 'power'"):
            plot.training_curves(source, names=["energy", "power"])


def test_update_sizes_are_logged_per_group():
    net = Sequences("dense")
    two = [{"params": net.first.trainable_params(), "lr": 0.5}, {"params": net.last.trainable_params()}]
    sgd = nn.SGD(two, 0.25)
    before = weights(net)
    sgd([ops.ones_like(p) for p in sgd.parameters])
    found = plot.update_ratios(before, net, sgd)
    for number, (layer, rate) in enumerate(((net.first, 0.5), (net.last, 0.25))):
        of_layer = {id(p) for p in layer.trainable_params()}
        names = [name for name, p in net.parameters_and_names() if id(p) in of_layer]
        size = np.sqrt(sum((before[name].astype(np.float64) ** 2).sum() for name in names))
        moved = rate * np.sqrt(sum(before[name].size for name in names))
        assert found[f"group {number}"] == pytest.approx(moved / size, rel=1e-5)
    with pytest.raises(ArgumentError, match=r"'first.weight' is not in the optimiser"):
        plot.update_ratios(before, net, nn.SGD(net.last.trainable_params(), 0.1))


def test_report_names_group_with_too_large_updates(tmp_path):
    net = Sequences("dense")
    two = [{"params": net.first.trainable_params()}, {"params": net.last.trainable_params(), "lr": 1000.0}]
    report = plot.report(net, batches()[0], LOSS, nn.SGD(two, 1e-3), path=tmp_path / "report.html")
    (finding,) = report.of("learning rate")
    assert finding.layer == "last.weight" and "it is in group 1 of the optimiser" in str(finding)
    assert {weight.name: weight.group for weight in report.facts.weights}["first.bias"] == 0
