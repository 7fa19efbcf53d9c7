"""MindSpore-style training: training Cells, Model, metrics and callbacks give the same bits as train.fit."""

from __future__ import annotations

import itertools
import math
import os
import re

import numpy as np
import pytest

import snncell
from snncell import Parameter, Tensor, errors, jit, nn, ops, train
from snncell.errors import ArgumentError, ParameterError, ShapeError, TrainingError

RNG = np.random.default_rng(0)
X = RNG.normal(size=(22, 4)).astype(np.float32)
LABELS = X[:, :3].argmax(1).astype(np.int64)
LOSS = nn.CrossEntropyLoss()


class Net(nn.Cell):
    """Three time steps of spikes, a statistic, and random numbers."""

    def __init__(self):
        super().__init__()
        self.first, self.norm, self.drop = nn.Dense(4, 6), nn.BatchNorm1d(6), nn.Dropout(p=0.2)
        self.spike, self.last = nn.MultiStep(nn.LIFNode()), nn.Dense(6, 3)

    def construct(self, x):
        current = self.drop(self.norm(self.first(x)))
        return self.last(self.spike(ops.stack([current, current * 2.0, current])).mean(0))


class Plain(nn.Cell):
    def __init__(self):
        super().__init__()
        self.last = nn.Dense(4, 3)

    def construct(self, x):
        return self.last(x)


def made(kind=Plain, rate=0.05, **options):
    snncell.set_seed(5)
    net = kind()
    return net, nn.Adam(net.trainable_params(), rate, **options)


class Halved(nn.TrainOneStepCell):
    """A custom training step, which Model cannot reproduce from its parts."""

    def construct(self, *inputs):
        loss, grads = ops.value_and_grad(self.network, None, self.optimizer.parameters)(*inputs)
        self.optimizer(tuple(g * 0.5 for g in grads))
        return loss


def stepping(kind=nn.TrainOneStepCell, **options):
    net, adam = made()
    return kind(nn.WithLossCell(net, LOSS), adam, **options)


def hooked():
    step = stepping()
    step.register_forward_hook(lambda cell, inputs, loss: loss * 2.0)
    return step


def bits(net):
    return [p.asnumpy().tobytes() for p in net.get_parameters()]


def batches(shuffle=True, n=22):
    return train.Batches(X[:n], LABELS[:n], batch_size=8, shuffle=shuffle)


class Dataset:
    """A dataset with MindSpore's interface: these two methods, without length and iteration."""

    def create_tuple_iterator(self, num_epochs=1, output_numpy=False):
        for chosen in np.split(np.arange(16), 2):
            yield [X[chosen], LABELS[chosen]]

    def get_dataset_size(self):
        return 2


# --- training Cells ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize("kind", [Plain, Net])
def test_train_one_step_cell_equals_compiled_step(kind, graph):
    net, adam = made(kind)
    step = train.training_step(net, LOSS, adam)
    net.set_train()
    expected = [step(X[:8], LABELS[:8])["loss"].item() for _ in range(3)]
    other, adam = made(kind)
    cell = nn.TrainOneStepCell(nn.WithLossCell(other, LOSS), adam).set_train()
    try:
        if graph:
            snncell.set_context(mode=snncell.GRAPH_MODE)
        run = cell if graph else jit(cell)
        assert [run(X[:8], LABELS[:8]).item() for _ in range(3)] == expected
    finally:
        snncell.set_context(mode=snncell.PYNATIVE_MODE)
    assert bits(other) == bits(net)


def test_eager_step_equals_compiled_step_up_to_rounding():
    net, adam = made()
    other, own = made()
    step = train.training_step(net, LOSS, adam)
    cell = nn.TrainOneStepCell(nn.WithLossCell(other, LOSS), own)
    for _ in range(3):
        np.testing.assert_allclose(cell(X, LABELS).item(), step(X, LABELS)["loss"].item(), rtol=1e-5)


@pytest.mark.parametrize("compiled", [False, True])
def test_loss_scale_divided_by_optimiser_changes_nothing(compiled):
    results = []
    for scale in (None, 1024.0):
        net = made()[0]
        sgd = nn.SGD(net.trainable_params(), 0.1, momentum=0.9, weight_decay=0.01, loss_scale=scale or 1.0)
        cell = nn.TrainOneStepCell(nn.WithLossCell(net, LOSS), sgd, scale, return_grad=True)
        run = jit(cell) if compiled else cell
        for _ in range(3):
            loss, grads = run(X, LABELS)
        assert list(grads) == [p.name for p in net.trainable_params()]
        results.append([loss.item(), *bits(net), *(g.asnumpy() / (scale or 1.0) for g in grads.values())])
    for plain, scaled in zip(*results, strict=True):
        assert np.array_equal(plain, scaled)


@pytest.mark.parametrize("sens", [None, 2.0, Tensor(2.0)])
def test_with_grad_cell_equals_grad(sens):
    net, _ = made()
    whole = nn.WithLossCell(net, LOSS)
    expected = snncell.grad(whole, None, net.trainable_params())(Tensor(X), Tensor(LABELS))
    found = nn.WithGradCell(net, LOSS, sens)(Tensor(X), Tensor(LABELS))
    also = nn.WithGradCell(whole, sens=sens)(Tensor(X), Tensor(LABELS))
    for mine, theirs, other in zip(expected, found, also, strict=True):
        factor = 1.0 if sens is None else 2.0
        np.testing.assert_allclose(theirs.asnumpy(), mine.asnumpy() * factor, rtol=1e-6)
        np.testing.assert_array_equal(theirs.asnumpy(), other.asnumpy())


@pytest.mark.parametrize(("get_all", "get_by_list", "sens"), [*itertools.product([False, True], repeat=3)])
def test_value_and_gradients_come_from_one_run(get_all, get_by_list, sens):
    w, calls = Parameter([2.0, 3.0], name="w"), []

    def fn(x, y):
        calls.append(1)
        return x * y * w

    given = [Tensor([1.0, 2.0]), Tensor([3.0, 4.0])] + [Tensor([1.0, 10.0])] * sens
    weights = [w] if get_by_list else None
    value, grads = nn.ForwardValueAndGrad(fn, weights, get_all, get_by_list, sens)(*given)
    assert value.tolist() == [6.0, 24.0] and len(calls) == 1
    expected = ops.GradOperation(get_all, get_by_list, sens)(fn, *([weights] if get_by_list else []))(*given)
    assert repr(grads) == repr(expected)


def test_eval_accumulation_and_update_cells_compute_expected_values():
    net, _ = made()
    loss, y, label = nn.WithEvalCell(net, LOSS, add_cast_fp32=True)(Tensor(X), Tensor(LABELS))
    assert y.shape == (22, 3) and label.dtype == snncell.int64
    assert loss.item() == nn.WithLossCell(net, LOSS)(Tensor(X), Tensor(LABELS)).item()
    assert nn.WithLossCell(net, LOSS).backbone_network is net
    whole, parts = nn.WithLossCell(net, nn.MSELoss(reduction="sum")), Tensor(np.eye(22, 3, dtype=np.float32))
    split = nn.GradAccumulationCell(whole, 2)
    np.testing.assert_allclose(split(Tensor(X), parts).item(), whole(Tensor(X), parts).item(), rtol=1e-6)
    p = Parameter([1.0, 2.0], name="p")
    run = jit(nn.ParameterUpdate(p))
    assert run(Tensor([5.0, 6.0])).tolist() == [5.0, 6.0] and p.tolist() == [5.0, 6.0]


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: nn.TrainOneStepCell(made()[0], made()[1]), ArgumentError, "which is not in the Plain"),
        (lambda: nn.TrainOneStepCell(made()[0], LOSS), ArgumentError, "optimizer must be an optimiser"),
        (lambda: nn.WithGradCell(nn.ReLU()), ParameterError, "the ReLU has no Parameters to train"),
        (lambda: nn.WithGradCell(made()[0], sens=Tensor([1.0]))(Tensor(X)), ShapeError, r"sens has shape \(1,\)"),
        (lambda: nn.GradAccumulationCell(nn.ReLU(), 3)(Tensor(X)), ShapeError, "cannot be cut into 3 equal parts"),
        (lambda: nn.ParameterUpdate(Tensor(1.0)), ParameterError, "param must be a Parameter, not a Tensor"),
        (lambda: train.Model(stepping(Halved)), ArgumentError, "the Halved has its own construct"),
        (lambda: train.Model(stepping(sens=2.0)), ArgumentError, "the TrainOneStepCell has sens=2, a factor"),
        (lambda: train.Model(hooked()), ArgumentError, "the TrainOneStepCell has its own hooks"),
        (lambda: train.Model(LOSS, made()[1]), ArgumentError, r"Model\(network, loss_fn, optimizer\)"),
        (lambda: train.Model(made()[0], LOSS).train(1, batches()), ArgumentError, "the optimiser is missing"),
        (lambda: train.Model(made()[0], LOSS).eval(batches()), ArgumentError, "there are no metrics"),
        (lambda: train.Model(made()[0], LOSS, metrics={"acuracy"}), ArgumentError, "there is no metric 'acuracy'"),
        (lambda: train.Model(made()[0], LOSS, metrics={"a": 3}), ArgumentError, "must be a Metric, a function"),
        (lambda: train.Model(made()[0], LOSS, metrics={"a": train.Metric()}), ArgumentError, "no method measured"),
        (lambda: train.Model(made()[0], LOSS, made()[1], amp_level="O2"), ArgumentError, '"O0" or "O1"'),
        (lambda: train.Model(*_fitting(loss_scale=8.0)).train(1, batches()), ArgumentError, "Leave it out there"),
        (lambda: train.Model(*_fitting()).train(1, [X]), ArgumentError, "a batch must be a tuple"),
        (lambda: train.Model(*_fitting()).train(1, None), ArgumentError, "train_dataset: there are no data"),
        (lambda: train.Model(*_fitting()).train(1, batches(), initial_epoch=2), ArgumentError, "initial_epoch is 2"),
        (
            lambda: train.Model(*_fitting()).train(1, batches(), print),
            ArgumentError,
            "must be a list of train.Callback",
        ),
        (lambda: train.ModelCheckpoint("a/b"), ArgumentError, "prefix must be the beginning of file names"),
        (lambda: train.CheckpointConfig(0), ArgumentError, "must be above 0"),
        (lambda: train.LambdaCallback(3), ArgumentError, "on_train_epoch_begin must be a function"),
        (lambda: train.Accuracy().eval(), ArgumentError, "no batch was measured"),
        (lambda: train.MAE().update(Tensor([1.0]), Tensor([1.0, 2.0])), ShapeError, r"shape \(1,\), the target"),
    ],
)
def test_invalid_arguments_of_training_cells_raise(call, error, message):
    with pytest.raises(error, match=message):
        call()


def _fitting(**options):
    net, adam = made(**options)
    return net, LOSS, adam


# --- Model compared with train.fit ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Plain, Net])
@pytest.mark.parametrize("way", ["model", "with its loss", "a step"])
def test_model_training_has_bits_of_fit(way, kind):
    net, adam = made(kind)
    expected = train.fit(net, LOSS, adam, batches(), 3, accuracy=None, progress=False)
    other, own = made(kind)
    whole = nn.WithLossCell(other, LOSS)
    model = {
        "model": lambda: train.Model(other, LOSS, own),
        "with its loss": lambda: train.Model(whole, None, own),
        "a step": lambda: train.Model(nn.TrainOneStepCell(whole, own)),
    }[way]()
    result = model.train(3, batches())
    assert bits(other) == bits(net) and result.history == expected.history


def test_model_eval_and_predict_equal_evaluate():
    net, adam = made()
    metrics = {"accuracy": train.Accuracy(), "loss": "loss", "top": train.TopKCategoricalAccuracy(2), "own": _margin}
    model = snncell.Model(net, LOSS, adam, metrics)
    result = model.fit(2, batches(), batches(False), callbacks=[])
    found = model.eval(batches(False))
    own = {"accuracy": train.accuracy, "top": train.top_k(2), "own": _margin}
    expected = train.evaluate(net, LOSS, batches(False), accuracy=None, metrics=own)
    assert found == {name: expected[name] for name in metrics}
    assert {name: result.history[-1][f"test_{name}"] for name in metrics} == found
    assert net.training is False
    np.testing.assert_allclose(model.predict(X[:2]).asnumpy(), net(Tensor(X[:2])).asnumpy(), rtol=1e-6)


def _margin(output, target):
    return output.max(-1) - output.mean(-1)


@pytest.mark.parametrize("indexes", [None, (2, 0, 1)])
def test_eval_network_returns_loss_output_and_label(indexes):
    net, adam = made()

    class Turned(nn.WithEvalCell):
        def construct(self, data, label):
            loss, y, label = super().construct(data, label)
            return (loss, y, label) if indexes is None else (y, label, loss)

    metrics = {"accuracy", "loss", "mae"} - {"mae"}
    plain = train.Model(net, LOSS, adam, metrics).eval(batches(False))
    assert train.Model(net, LOSS, adam, metrics, Turned(net, LOSS), indexes).eval(batches(False)) == plain


def test_mindspore_style_dataset_can_be_used():
    net, adam = made()
    expected = train.fit(
        net, LOSS, adam, [(X[:8], LABELS[:8]), (X[8:16], LABELS[8:16])], 2, accuracy=None, progress=False
    )
    other, own = made()
    steps = train.LambdaCallback(on_train_step_end=lambda run: numbers.append(run.original_args().batch_num))
    numbers = []
    assert train.Model(other, LOSS, own).train(2, Dataset(), steps).history == expected.history
    assert bits(other) == bits(net) and numbers == [2] * 4
    # The last column appears twice if the network takes all columns.
    third, own = made()
    train.Model(nn.WithLossCell(third, LOSS), None, own).train(2, Dataset())
    assert bits(third) == bits(net)


def test_metric_objects_equal_numpy():
    output, label = RNG.normal(size=(40, 3)), RNG.integers(0, 3, 40)
    said = output.argmax(1)
    right = np.array([((said == c) & (label == c)).sum() for c in range(3)])
    precision = right / [(said == c).sum() for c in range(3)]
    recall = right / [(label == c).sum() for c in range(3)]
    expected = {
        train.Accuracy: (said == label).mean(),
        train.Precision: precision,
        train.Recall: recall,
        train.F1: 2 * precision * recall / (precision + recall),
        train.Top1CategoricalAccuracy: (said == label).mean(),
        lambda: train.TopKCategoricalAccuracy(2): (np.argsort(-output, 1)[:, :2] == label[:, None]).any(1).mean(),
        lambda: train.F1(True): (2 * precision * recall / (precision + recall)).mean(),
    }
    for make, value in expected.items():
        metric = make()
        for part in np.split(np.arange(40), [5, 17]):  # of different sizes
            metric.update(output[part], label[part])
        np.testing.assert_allclose(metric.eval(), value, rtol=1e-6)
        metric.clear()
        metric.update(output[:1], label[:1])
        assert np.shape(metric.eval()) == np.shape(value)
    for make, value in ((train.MAE, np.abs(output - 1).mean()), (train.MSE, np.square(output - 1).mean())):
        metric = make()
        metric.update(output, np.ones_like(output))
        np.testing.assert_allclose(metric.eval(), value, rtol=1e-6)
    loss = train.Loss()
    for value in (1.0, 3.0):
        loss.update(Tensor(value))
    assert loss.eval() == 2.0


# --- callbacks --------------------------------------------------------------------------------------------------------

EVENTS = [f"on_{kind}_{event}" for kind in ("train", "eval") for event in (
    "begin", "epoch_begin", "step_begin", "step_end", "epoch_end", "end")]  # fmt: skip
OLDER = ["begin", "epoch_begin", "step_begin", "step_end", "epoch_end", "end"]


def listening(names, calls):
    """A callback that records the state of the run in the given methods."""

    def told(name):
        def method(self, run_context):
            args = run_context.original_args()
            calls.append((name, args.mode, args.cur_epoch_num, args.cur_step_num))
            assert dict(args.items())["cur_step_num"] == args["cur_step_num"] == args.cur_step_num
            assert {"network", "epoch_num"} < {*args.keys()} and not {"keys", "items"} & {*args.keys()}

        return method

    return type("Listening", (train.Callback,), {name: told(name) for name in names})()


def expected_events(epochs, steps, evaluated, first=1):
    """The events of a training, generated by plain loops."""
    found, step = [("on_train_begin", "train", first - 1, 0)], 0
    for epoch in range(first, epochs + 1):
        found.append(("on_train_epoch_begin", "train", epoch, step))
        for _ in range(steps):
            step += 1
            found += [(f"on_train_step_{when}", "train", epoch, step) for when in ("begin", "end")]
        if evaluated(epoch):
            found += [(f"on_eval_{what}begin", "eval", epoch, 0) for what in ("", "epoch_")]
            for n in range(1, steps + 1):
                found += [(f"on_eval_step_{when}", "eval", epoch, n) for when in ("begin", "end")]
            found += [(f"on_eval_{what}end", "eval", epoch, steps) for what in ("epoch_", "")]
        found.append(("on_train_epoch_end", "train", epoch, step))
    return [*found, ("on_train_end", "train", epochs, step)]


@pytest.mark.parametrize("older", [False, True])
@pytest.mark.parametrize(("frequency", "initial"), [(None, 0), (1, 0), (2, 0), ([1, 3], 0), (1, 2)])
def test_callback_methods_are_called_in_order(frequency, initial, older):
    net, adam = made()
    calls = []
    listener = listening(OLDER if older else EVENTS, calls)
    data = {} if frequency is None else {"valid_dataset": batches(False), "valid_frequency": frequency}
    train.Model(net, LOSS, adam, {"accuracy"}).fit(4, batches(), callbacks=listener, initial_epoch=initial, **data)
    counts = [frequency] if isinstance(frequency, int) else frequency

    def evaluated(epoch):
        if frequency is None:
            return False
        return epoch in counts if isinstance(frequency, list) else (epoch - initial) % frequency == 0

    expected = expected_events(4, 3, evaluated, initial + 1)
    if older:
        expected = [(re.sub("on_(train|eval)_", "", name), *rest) for name, *rest in expected]
    assert calls == expected


def test_snncell_and_mindspore_callbacks_work_in_fit_and_eval():
    net, adam = made()
    calls, ours = [], []

    class Ours(train.Callback):
        def on_step_end(self, training):
            ours.append((training.epoch, training.batch))

    train.fit(
        net, LOSS, adam, batches(), 1, accuracy=None, progress=False, callbacks=[Ours(), listening(EVENTS, calls)]
    )
    assert calls == expected_events(1, 3, lambda epoch: False) and ours == [(1, 1), (1, 2), (1, 3)]
    calls.clear()
    train.Model(net, LOSS, metrics={"accuracy"}).eval(batches(), listening(EVENTS, calls))
    assert [name for name, *_ in calls] == [
        "on_eval_begin", "on_eval_epoch_begin", *["on_eval_step_begin", "on_eval_step_end"] * 3, "on_eval_epoch_end",
        "on_eval_end",
    ]  # fmt: skip


def test_run_context_has_parts_of_run_and_keeps_attributes():
    net, adam = made()
    seen = []

    class Timed(train.Callback):
        def begin(self, run_context):
            run_context.original_args().init_time = 7

        def step_end(self, run_context):
            args = run_context.original_args()
            seen.append(
                (args.init_time, args.get("nothing", 3), args.epoch_num, args.batch_num, args.net_outputs.shape)
            )
            assert args.network is net and args.optimizer is adam and args.loss_fn is LOSS
            assert args.list_callback == [timed] and args.train_network is net
            with pytest.raises(errors.MissingNameError, match="batch_num can only be read"):
                args.batch_num = 3
            if args.cur_step_num == 4:
                assert not run_context.get_stop_requested()
                run_context.request_stop()

    timed = Timed()
    result = train.Model(net, LOSS, adam).train(9, batches(), timed)
    assert seen == [(7, 3, 9, 3, ())] * 4
    assert result.stopped == "stopped by a callback" and len(result.history) == 1


def test_monitors_print_expected_lines(capsys):
    net, adam = made()
    model = train.Model(net, LOSS, adam, {"accuracy": "accuracy"})
    history = train.History()
    result = model.fit(2, batches(), batches(False), callbacks=[train.LossMonitor(2), train.TimeMonitor(), history])
    printed = capsys.readouterr().out.splitlines()
    number, milliseconds = r"\d+\.\d+(e-\d+)?", r"\d+\.\d{3} ms"
    first = [
        rf"epoch: 1 step: 2, loss is {number}",
        rf"Eval epoch time: {milliseconds}, per step time: {milliseconds}",
        rf"Eval result: epoch 1, metrics: {{'accuracy': {number}}}",
        rf"Train epoch time: {milliseconds}, per step time: {milliseconds}",
    ]
    second = [rf"epoch: 2 step: {n}, loss is {number}" for n in (1, 3)] + [*first[1:]]
    second = [line.replace("epoch 1", "epoch 2") for line in second]
    assert len(printed) == len(first + second)
    for line, pattern in zip(printed, first + second, strict=True):
        assert re.fullmatch(pattern, line), line
    assert history.epoch == {"epoch": [1, 2]}
    assert history.history["eval_accuracy"] == [record["test_accuracy"] for record in result.history]
    assert history.history["net_output"][-1] == float(printed[5].rpartition(" ")[2])


def test_epochs_without_evaluation_have_no_results(capsys):
    net, adam = made()
    model, history = train.Model(net, LOSS, adam, {"accuracy"}), train.History()
    result = model.fit(5, batches(), batches(False), 2, [train.LossMonitor(0), history])
    found = [record.get("test_accuracy") for record in result.history]
    assert [value is None for value in found] == [True, False, True, False, True]
    assert history.epoch["epoch"] == [1, 2, 3, 4, 5] and history.history["eval_accuracy"] == found
    assert re.findall(r"Eval result: epoch (\d)", capsys.readouterr().out) == ["2", "4"]
    assert "eval" not in repr(history) and "None" not in history._repr_html_()


def test_nonfinite_loss_ends_training():
    net, adam = made()
    data = [(X[:8] * np.float32("nan"), LABELS[:8])]
    with pytest.raises(TrainingError, match="in epoch 1, step 1 the loss is nan"):
        train.Model(net, LOSS, adam).train(1, data, train.LossMonitor())


def test_checkpoints_are_numbered_and_can_be_loaded(tmp_path):
    net, adam = made()
    config = train.CheckpointConfig(save_checkpoint_steps=2, keep_checkpoint_max=3)
    saved = train.ModelCheckpoint("run", tmp_path, config)
    model = train.Model(net, LOSS, adam)
    model.train(3, batches(), saved)
    # Nine steps, three per epoch: written after steps 2, 4, 6, 8, and at the end.
    assert sorted(os.listdir(tmp_path)) == ["run-2_3.ckpt", "run-3_2.ckpt", "run-3_3.ckpt"]
    assert saved.latest_ckpt_file_name == str(tmp_path / "run-3_3.ckpt")
    other = made()[0]
    snncell.load_param_into_net(other, snncell.load_checkpoint(saved.latest_ckpt_file_name))
    assert bits(other) == bits(net)
    model.train(1, batches(), train.ModelCheckpoint("run", tmp_path))
    assert {f"run_1-1_{n}.ckpt" for n in (1, 2, 3)} <= set(os.listdir(tmp_path))


def test_early_stopping_accepts_mindspore_arguments():
    net, adam = made(rate=0.0 + 1e-30)
    stopping = snncell.EarlyStopping(monitor="eval_loss", patience=2, mode="min", restore_best_weights=False)
    result = train.Model(net, LOSS, adam, {"accuracy"}).fit(9, batches(), batches(False), callbacks=stopping)
    assert result.stopped_early and len(result.history) == 3
    assert train.EarlyStopping(2, "loss", mode="max").higher_is_better is True
    for name in ("eval_top5", "test_top5", "eval_accuracy"):
        assert train.EarlyStopping(2, name).higher_is_better is train.ReduceLROnPlateau(name).higher_is_better is True


@pytest.mark.parametrize(("patience", "cooldown"), [*itertools.product((1, 2, 3), (0, 1, 2))])
def test_reduce_lr_on_plateau_equals_plain_loop(patience, cooldown):
    values = [5.0, 4.0, 4.0, 4.0, 4.5, 4.0, 4.0, 3.0, 3.0, 3.0, 3.0, 3.0]
    net = made()[0]
    sgd = nn.SGD(net.trainable_params(), 1.0)
    slower = train.ReduceLROnPlateau("told", 0.5, patience, min_delta=0.0, cooldown=cooldown, min_lr=0.1)

    class Telling(train.Callback):
        def on_evaluation_end(self, training):
            training.record["told"] = values[training.epoch - 1]

    data = [(X, np.zeros((22, 3), np.float32))]
    options = {"accuracy": None, "progress": False, "test": data, "callbacks": [Telling(), slower]}
    result = train.fit(net, nn.MSELoss(), sgd, data, len(values), **options)
    rate, best, waited, cooling, rates = 1.0, math.inf, 0, 0, []
    for value in values:
        rates.append(rate)
        if cooling:
            cooling, waited = cooling - 1, 0
        if value < best:
            best, waited = value, 0
        elif not cooling:
            waited += 1
            if waited >= patience:
                rate, cooling, waited = max(rate * 0.5, 0.1), cooldown, 0
    assert [record["learning_rate"] for record in result.history] == rates
    for group in sgd.groups:
        group.set_learning_rate(1.0, "test")
    again = train.fit(net, nn.MSELoss(), sgd, data, len(values), **{**options, "callbacks": [Telling(), slower]})
    assert [record["learning_rate"] for record in again.history] == rates  # it begins anew with another training


def test_lambda_callback_calls_functions():
    told = []
    given = {name: (lambda run, name=name: told.append(name)) for name in EVENTS}
    net, adam = made()
    train.Model(net, LOSS, adam, {"accuracy"}).fit(
        1, batches(), batches(False), callbacks=train.LambdaCallback(**given)
    )
    assert told == [name for name, *_ in expected_events(1, 3, lambda epoch: True)]


def test_names_of_training_are_importable_from_snncell():
    for name in ("Model", "Callback", "LossMonitor", "TimeMonitor", "ModelCheckpoint", "CheckpointConfig", "History"):
        assert getattr(snncell, name) is getattr(train, name)


# --- evaluation every few epochs --------------------------------------------------------------------------------------


def test_fit_evaluates_every_few_epochs(tmp_path):
    net, adam = made()
    best = train.Checkpoint(tmp_path / "best.ckpt", best="test_loss")
    result = train.fit(
        net, LOSS, adam, batches(), 5, validation=batches(False), test_every=2, progress=False, callbacks=[best]
    )
    assert [record["epoch"] for record in result.history if "test_loss" in record] == [2, 4]
    assert (tmp_path / "best.ckpt").is_file()
    with pytest.raises(ArgumentError, match=r"log into a \.jsonl"):
        train.fit(
            net, LOSS, adam, batches(), 1, validation=batches(), test_every=2, log=tmp_path / "a.csv", progress=False
        )
    with pytest.raises(ArgumentError, match="test_every must be a number of epochs"):
        train.fit(net, LOSS, adam, batches(), 1, validation=batches(), test_every=0, progress=False)


class Largest(train.Metric):
    """A metric in MindSpore's form with its own update: the largest error."""

    def clear(self):
        self.largest, self.batches = 0.0, 0

    def update(self, *inputs):
        output, target = (np.asarray(x) for x in inputs)
        self.largest = max(self.largest, float(np.abs(output.argmax(1) - target).max()))
        self.batches += 1

    def eval(self):
        return self.largest


def test_metric_with_update_receives_each_batch():
    net, adam = made()
    metric = Largest()
    model = train.Model(net, LOSS, adam, {"largest": metric, "accuracy": "accuracy"})
    result = model.fit(2, batches(), batches(False))
    expected = float(np.abs(net(Tensor(X)).asnumpy().argmax(1) - LABELS).max())
    assert model.eval(batches(False))["largest"] == expected == result.history[-1]["test_largest"]
    assert metric.batches == 3 and "largest" not in result.history[-1]
    alone = train.Model(net, LOSS, metrics={"largest": Largest()}).eval(batches(False))
    assert alone == {"largest": expected}
    with pytest.raises(ArgumentError, match="'largest' has its own update"):
        train.Model(net, LOSS, metrics={"largest": Largest()}, eval_network=nn.WithEvalCell(net, LOSS)).eval(batches())
    kept = nn.SequentialCell(nn.Dense(4, 3), nn.Stateful(nn.LIFNode()))
    with pytest.raises(ArgumentError, match="This would change the states of the Stateful in it"):
        train.Model(kept, LOSS, metrics={"largest": Largest()}).eval(batches())


def test_missing_part_of_run_raises_with_suggestion():
    class Asks(train.Callback):
        def on_train_step_end(self, run_context):
            self.step = run_context.original_args().cur_step_number

    net, adam = made()
    with pytest.raises(AttributeError, match=r"has no 'cur_step_number'\. Did you mean cur_step_num\?"):
        train.Model(net, LOSS, adam).train(1, batches(), Asks())


def test_callback_function_without_run_argument_raises():
    with pytest.raises(ArgumentError, match=r"on_train_end is called as on_train_end\(run_context\): too many"):
        train.LambdaCallback(on_train_end=lambda: None)
