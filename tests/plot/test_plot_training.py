"""Plots of weights and training curves: drawn data, labels, legibility, and comparison with baseline images."""

import matplotlib as mpl
import numpy as np
import pytest
from readable import assert_drawn_where_asked, assert_readable

import snncell
from snncell import Tensor, errors, nn, ops, plot, train

mpl.use("Agg")
import matplotlib.pyplot as plt


def legend_of(axes):
    return [text.get_text() for text in axes.get_legend().get_texts()]


def data_of(axes):
    return {line.get_label(): list(line.get_ydata()) for line in axes.lines if not line.get_label().startswith("_")}


# --- updates relative to weights --------------------------------------------------------------------------------------


def copies(net):
    return {name: parameter.asnumpy().copy() for name, parameter in net.parameters_and_names()}


def test_update_ratios_are_ratios_of_norms(rng):
    before = {"a": rng.normal(size=(3, 4)), "b": rng.normal(size=5)}
    after = {name: value + 0.01 * rng.normal(size=value.shape) for name, value in before.items()}
    wanted = {name: np.linalg.norm(after[name] - before[name]) / np.linalg.norm(before[name]) for name in before}
    assert plot.update_ratios(before, after) == pytest.approx(wanted, rel=1e-12)


def test_update_ratios_of_net_cover_trained_parameters():
    net = nn.SequentialCell(nn.Dense(3, 2), nn.BatchNorm1d(2))
    net.set_train()
    before = {name: p.asnumpy().copy() for name, p in net.parameters_and_names() if p.requires_grad}
    optimiser = nn.SGD(net.trainable_params(), 0.1)
    _, gradients = snncell.value_and_grad(lambda x: (net(x) ** 3).mean(), None, net.trainable_params())(
        ops.uniform((8, 3))
    )
    optimiser(gradients)
    ratios = plot.update_ratios(before, net)
    assert list(ratios) == [name for name, p in net.parameters_and_names() if p.requires_grad]
    step = 0.1 * np.linalg.norm(gradients[0].asnumpy()) / np.linalg.norm(before["0.weight"])
    assert ratios["0.weight"] == pytest.approx(step, rel=1e-4)


def test_update_ratios_of_zero_weights_are_inf_or_zero():
    before, after = {"still": np.ones(2), "begun": np.zeros(2), "none": np.zeros(2)}, {"still": np.ones(2)}
    found = plot.update_ratios(before, after | {"begun": np.ones(2), "none": np.zeros(2)})
    assert found == {"still": 0.0, "begun": np.inf, "none": 0.0}


def test_update_ratios_with_invalid_data_raise():
    net = nn.Dense(2, 1)
    with pytest.raises(errors.ArgumentError, match=r"'weight' before and after are the same Parameter\. Copy it"):
        plot.update_ratios(net, net)
    with pytest.raises(errors.ArgumentError, match="only one has 'bias'"):
        plot.update_ratios({"weight": net.weight.asnumpy()}, net)
    with pytest.raises(errors.ShapeError, match=r"'a' has shape \(2,\) before the update, \(3,\) after it"):
        plot.update_ratios({"a": np.ones(2)}, {"a": np.ones(3)})
    with pytest.raises(errors.ArgumentError, match=r"update_ratios: before must be a Cell, or a mapping .* not a list"):
        plot.update_ratios([], net)
    with pytest.raises(errors.ArgumentError, match="the dict has no Parameters"):
        plot.update_ratios({}, {})


def test_gradient_to_weight_draws_a_line_per_weight_and_the_band():
    axes = plot.gradient_to_weight({"a": [1e-3, 2e-3, 0.0], "b": [np.inf, 1e-1, np.nan]}, title="Adam")
    first, second = axes.lines
    np.testing.assert_array_equal(first.get_xdata(), [1, 2, 3])
    np.testing.assert_array_equal(first.get_ydata(), [1e-3, 2e-3, np.nan])
    np.testing.assert_array_equal(second.get_ydata(), [np.nan, 1e-1, np.nan])
    assert legend_of(axes) == ["a", "b (2 NaN or inf)", "usual: 0.0001 to 0.01"]
    box = axes.patches[0].get_extents().transformed(axes.transData.inverted())
    np.testing.assert_allclose((box.y0, box.y1), (1e-4, 1e-2))
    assert (axes.get_yscale(), axes.get_xlabel(), axes.get_title()) == ("log", "update", "Adam")


def test_gradient_to_weight_accepts_list_of_update_ratios():
    axes = plot.gradient_to_weight([{"a": 1e-3}, {"a": 2e-3, "b": 1e-2}], band=(1e-3, 1e-1))
    np.testing.assert_array_equal(axes.lines[0].get_ydata(), [1e-3, 2e-3])
    np.testing.assert_array_equal(axes.lines[1].get_ydata(), [np.nan, 1e-2])
    assert legend_of(axes)[-1] == "usual: 0.001 to 0.1"


def test_many_weights_have_distinct_styles():
    axes = plot.gradient_to_weight({f"w{n}": [1e-3] for n in range(28)})
    assert len({(line.get_color(), line.get_marker(), line.get_linestyle()) for line in axes.lines}) == 28


def test_gradient_to_weight_with_invalid_data_raises():
    for nothing in ({}, [], None, [1e-3]):
        with pytest.raises(errors.ArgumentError, match="gradient_to_weight: takes the ratios of each weight by name"):
            plot.gradient_to_weight(nothing)
    with pytest.raises(errors.ShapeError, match=r"the ratios of 'a' must be \(updates,\), not \(\)"):
        plot.gradient_to_weight({"a": 1e-3})
    with pytest.raises(errors.ArgumentError, match=r"band must be \(low, high\) with 0 < low < high, not \(0, 1\)"):
        plot.gradient_to_weight({"a": [1e-3]}, band=(0, 1))


# --- histograms of weights --------------------------------------------------------------------------------------------


def counts_of(axes, size):
    """The number of elements per bin of each histogram, from its height: the fullest bin fills a whole row."""
    found = []
    for patch in axes.patches:
        values, edges, baseline = patch.get_data()
        heights = np.nan_to_num(values - baseline)
        found.append((heights / heights.sum() * size[len(found)], edges))
    return found


def test_weight_histograms_count_each_element_of_each_parameter(rng):
    weights = {"wide": rng.normal(size=(20, 30)), "narrow": 0.1 * rng.normal(size=200), "one": np.array(0.5)}
    axes = plot.weight_histograms(weights, bins=50, title="weights")
    found = counts_of(axes, [600, 200, 1])
    assert [round(counts.sum()) for counts, _ in found] == [600, 200, 1]
    for (counts, edges), array in zip(found, weights.values(), strict=True):
        inside = np.histogram(np.clip(array, edges[0], edges[-1]), edges)[0]
        np.testing.assert_allclose(counts, inside, atol=1e-9)
    assert [text.get_text() for text in axes.get_yticklabels()] == ["wide", "narrow", "one"]
    assert list(axes.get_yticks()) == sorted(axes.get_yticks(), reverse=True)  # the first is at the top
    assert [text.get_text() for text in axes.texts] == ["sd 1", "sd 0.1", "= 0.5"]
    assert (axes.get_xlabel(), axes.get_title()) == ("value", "weights")


def test_weight_histograms_of_net_show_trainable_parameters():
    net = nn.SequentialCell(nn.Dense(3, 2), nn.BatchNorm1d(2))
    names = [name for name, p in net.parameters_and_names() if p.requires_grad]
    axes = plot.weight_histograms(net)
    assert [text.get_text() for text in axes.get_yticklabels()] == names
    axes = plot.weight_histograms(net, trained=False)
    assert [text.get_text() for text in axes.get_yticklabels()] == [name for name, _ in net.parameters_and_names()]


def test_weight_histograms_show_earlier_weights_as_outline():
    axes = plot.weight_histograms({"a": np.ones(4)}, before={"a": np.zeros(4), "more": np.ones(3)})
    now, before = axes.patches
    assert now.get_fill() and not before.get_fill()
    assert legend_of(axes) == ["now", "before"]
    for patch, value in ((now, 1.0), (before, 0.0)):
        heights, edges, _ = patch.get_data()
        at = int(np.nanargmax(heights))
        assert edges[at] <= value <= edges[at + 1]


def test_weight_histograms_count_nonfinite_values():
    axes = plot.weight_histograms({"a": np.array([1.0, 3.0, np.nan]), "b": np.array([np.inf])})
    assert [text.get_text() for text in axes.texts] == ["sd 1\n1 NaN or inf", "nothing finite"]


def test_weight_histograms_print_value_of_constant_weights():
    axes = plot.weight_histograms({"gain": np.array(0.8), "bias": np.zeros(5), "one": [np.nan, 2.0]})
    assert [text.get_text() for text in axes.texts] == ["= 0.8", "all 0", "= 2\n1 NaN or inf"]


def test_weight_histograms_with_outliers_show_other_weights(rng):
    weights = np.concatenate([rng.uniform(-1, 1, 9990), np.full(5, 1e4)])
    heights, edges, baseline = plot.weight_histograms({"a": weights}).patches[0].get_data()
    assert edges[-1] < 1.1
    assert np.nan_to_num(heights - baseline)[-1] > 0  # they are in the outermost bin


def test_weight_histograms_with_invalid_data_raise():
    with pytest.raises(errors.ArgumentError, match="the IFNode has no Parameters with requires_grad"):
        plot.weight_histograms(nn.IFNode())
    with pytest.raises(errors.ArgumentError, match="weight_histograms: before has no 'bias'"):
        plot.weight_histograms(nn.Dense(1, 1), before={"weight": np.ones(1)})
    with pytest.raises(errors.ArgumentError, match="must be a Cell, or a mapping from names to arrays, not a ndarray"):
        plot.weight_histograms(np.ones(3))
    with pytest.raises(errors.ArgumentError, match="must be an array or a Tensor of numbers"):
        plot.weight_histograms({"a": "weights"})
    with pytest.raises(errors.ArgumentError, match=r"bins is an integer of at least 1, not 1.5"):
        plot.weight_histograms({"a": np.ones(3)}, bins=1.5)


# --- curves -----------------------------------------------------------------------------------------------------------

LOSS, TEST_LOSS = [1.0, 0.5, 0.25], [1.1, 0.6, 0.7]
ACCURACY, TEST_ACCURACY = [0.5, 0.75, 0.875], [0.5, 0.625, 0.6875]


def history():
    return [
        {
            "epoch": n + 1,
            "step": 10 * n,
            "learning_rate": 0.1,
            "loss": a,
            "accuracy": b,
            "test_loss": c,
            "test_accuracy": d,
        }
        for n, (a, b, c, d) in enumerate(zip(LOSS, ACCURACY, TEST_LOSS, TEST_ACCURACY, strict=True))
    ]


def logged(folder, name):
    log = snncell.train.Log(folder / name)
    for record in history():
        log.add(record)
    return folder / name


LOGS = {
    "history": lambda folder: history(),
    "result": lambda folder: snncell.train.Result(history(), history()[-1]),
    "csv": lambda folder: logged(folder, "run.csv"),
    "jsonl": lambda folder: str(logged(folder, "run.jsonl")),
    "mapping": lambda folder: {
        "loss": LOSS,
        "accuracy": Tensor(ACCURACY),
        "val_loss": TEST_LOSS,
        "val_accuracy": np.array(TEST_ACCURACY),
    },
}


@pytest.mark.parametrize("kind", LOGS)
def test_training_curves_accept_every_kind_of_log(kind, tmp_path):
    axes = plot.training_curves(LOGS[kind](tmp_path), title="digits")
    (right,) = [other for other in axes.figure.axes if other is not axes]
    left, best = data_of(axes), "best loss: epoch 2"
    assert left == {"loss, training": LOSS, "loss, evaluation": TEST_LOSS, best: [0.6]}
    assert data_of(right) == {"accuracy, training": ACCURACY, "accuracy, evaluation": TEST_ACCURACY}
    assert [list(line.get_xdata()) for line in axes.lines[:2]] == [[1, 2, 3]] * 2
    dashed = {line.get_label(): line.get_linestyle() for other in (axes, right) for line in other.lines}
    assert dashed["loss, training"] == dashed["accuracy, training"] == "-"
    assert dashed["loss, evaluation"] == dashed["accuracy, evaluation"] == "--"
    assert (axes.get_xlabel(), axes.get_ylabel(), right.get_ylabel()) == ("epoch", "loss", "accuracy")
    assert axes.get_title() == "digits"
    names = ["loss, training", "loss, evaluation", "accuracy, training", "accuracy, evaluation", best]
    assert legend_of(axes) == names


def test_best_epoch_follows_given_metric():
    axes = plot.training_curves(history(), best="test_accuracy")
    right = axes.figure.axes[1]
    assert data_of(right)["best accuracy: epoch 3"] == [0.6875]
    (dotted,) = [line for line in axes.lines if line.get_label() == "_best"]
    assert list(dotted.get_xdata()) == [3, 3]


def test_metrics_are_on_left_axis_without_loss():
    axes = plot.training_curves({"accuracy": ACCURACY, "firing_rate": [0.1, 0.1, 0.1]})
    assert axes.figure.axes == [axes]
    assert axes.get_ylabel() == "accuracy, firing rate"
    assert data_of(axes) == {"accuracy, training": ACCURACY, "firing rate, training": [0.1] * 3}


@pytest.mark.parametrize("monitored", ["test_accuracy", "learning_rate"])
def test_best_epoch_marker_is_at_epoch_kept_by_fit(monitored):
    records = [
        {"epoch": n + 1, "loss": loss, "test_accuracy": accuracy, "learning_rate": 0.1}
        for n, (loss, accuracy) in enumerate([(1.0, 0.5), (0.5, 0.7), (0.4, 0.705), (0.2, 0.6)])
    ]
    result = train.Result(records, best=records[1], monitored=monitored)  # by min_delta not the highest one
    axes = plot.training_curves(result)
    (dotted,) = [line for line in axes.lines if line.get_label() == "_best"]
    assert list(dotted.get_xdata()) == [2.0, 2.0]
    keys = [text.get_text() for text in axes.get_legend().get_texts()]
    assert ("best accuracy: epoch 2" if monitored == "test_accuracy" else "kept: epoch 2") in keys


def test_fit_history_names_metric_of_kept_epoch():
    net, x, y = nn.Dense(3, 2), np.eye(3, dtype=np.float32), np.array([0, 1, 0], np.int32)
    data = [(Tensor(x), Tensor(y))]
    result = train.fit(
        net,
        nn.CrossEntropyLoss(),
        nn.SGD(net.trainable_params(), 5.0),
        data,
        validation=data,
        epochs=3,
        monitor="test_accuracy",
        progress=False,
    )
    assert result.monitored == "test_accuracy" and result.best["epoch"] <= 3


def test_nonfinite_loss_is_never_best():
    axes = plot.training_curves({"loss": [np.inf, 2.0, np.nan, -np.inf]})
    assert data_of(axes)["best loss: epoch 2"] == [2.0]
    assert list(data_of(plot.training_curves({"loss": [np.nan]}))) == ["loss, training"]


def test_missing_values_of_records_are_omitted(tmp_path):
    axes = plot.training_curves([{"loss": 1.0}, {"loss": 0.5, "test_loss": 0.0}])
    np.testing.assert_array_equal(data_of(axes)["loss, evaluation"], [np.nan, 0.0])
    (tmp_path / "gaps.csv").write_text("epoch,loss,accuracy\n1,0.5,\n2,0.25,0.75\n")
    axes = plot.training_curves(tmp_path / "gaps.csv")
    np.testing.assert_array_equal(data_of(axes.figure.axes[1])["accuracy, training"], [np.nan, 0.75])


@pytest.mark.compiled
def test_training_curves_draw_history_of_fit():
    x = ops.uniform((64, 2))
    net, y = nn.Dense(2, 2), (x[:, 0] > x[:, 1]).astype("int64")
    adam = nn.Adam(net.trainable_params(), 0.1)
    result = snncell.train.fit(net, nn.CrossEntropyLoss(), adam, (x, y), 4, validation=(x, y), progress=False)
    axes = plot.training_curves(result)
    losses = [record["test_loss"] for record in result.history]
    assert data_of(axes)["loss, evaluation"] == losses
    assert data_of(axes)[f"best loss: epoch {int(np.argmin(losses)) + 1}"] == [min(losses)]


def test_training_curves_of_invalid_log_raise(tmp_path):
    with pytest.raises(errors.ArgumentError, match=r"there is no file .*run\.csv'\. Pass the \*\.csv or \*\.jsonl"):
        plot.training_curves(tmp_path / "run.csv")
    (tmp_path / "run.txt").touch()
    with pytest.raises(errors.ArgumentError, match="is not a log"):
        plot.training_curves(tmp_path / "run.txt")
    (tmp_path / "half.jsonl").write_text('{"epoch": 1, "loss": 0.5}\n{"epoch": 2, "lo')
    with pytest.raises(errors.ArgumentError, match=r"line 2 of .*half\.jsonl' is not a record"):
        plot.training_curves(tmp_path / "half.jsonl")
    (tmp_path / "bad.csv").write_text("epoch,loss\n1,low\n")
    with pytest.raises(errors.ArgumentError, match="training_curves: 'loss' must be numbers, one per epoch, not 'low'"):
        plot.training_curves(tmp_path / "bad.csv")
    for nothing in ([], [1.0, 2.0], 3, snncell.train.Result()):
        with pytest.raises(errors.ArgumentError, match=r"takes the result of train.fit with at least one epoch"):
            plot.training_curves(nothing)
    for nothing in ({}, {"epoch": [1, 2]}, {"loss": []}):
        with pytest.raises(errors.ArgumentError, match="there is nothing to draw"):
            plot.training_curves(nothing)
    with pytest.raises(
        errors.ShapeError, match=r"each name needs one value per epoch, not 'loss': \(3,\), 'acc': \(2,\)"
    ):
        plot.training_curves({"loss": LOSS, "acc": [0.1, 0.2]})
    with pytest.raises(errors.ArgumentError, match=r"best must be one of loss, accuracy, .* there is no 'f1'"):
        plot.training_curves(history(), best="f1")


# --- classes ----------------------------------------------------------------------------------------------------------


def test_confusion_matrix_shows_counts_and_shares():
    predicted, labels = [0, 1, 1, 2, 2, 2], [0, 0, 1, 2, 2, 1]
    axes = plot.confusion_matrix(predicted, labels)
    np.testing.assert_allclose(axes.images[0].get_array(), [[0.5, 0.5, 0], [0, 0.5, 0.5], [0, 0, 1]])
    written = {(text.get_position()[1], text.get_position()[0]): text.get_text() for text in axes.texts}
    assert written == {(0, 0): "1", (0, 1): "1", (1, 1): "1", (1, 2): "1", (2, 2): "2"}
    assert axes.get_title() == "4 of 6 right (66.7 %)"
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("predicted class", "true class")
    assert axes.images[0].get_clim() == (0.0, 1.0)
    assert axes.figure.axes[1].get_ylabel() == "share of the true class"


def test_confusion_matrix_accepts_counts():
    axes = plot.confusion_matrix(np.array([0, 0, 0, 1]), np.array([0, 0, 1, 1]), normalise=False)
    np.testing.assert_array_equal(axes.images[0].get_array(), [[2, 0], [1, 1]])
    assert axes.images[0].get_clim() == (0.0, 2.0)
    assert axes.figure.axes[1].get_ylabel() == "samples"


def test_confusion_matrix_of_scores_uses_largest():
    scores = Tensor(np.array([[0.1, 0.7, 0.2], [0.9, 0.0, 0.1]], np.float32))
    axes = plot.confusion_matrix(scores, Tensor(np.array([1, 2])), normalise=False)
    np.testing.assert_array_equal(axes.images[0].get_array(), [[0, 0, 0], [0, 1, 0], [1, 0, 0]])


def test_class_without_samples_has_empty_row():
    axes = plot.confusion_matrix([0, 0], [0, 0], names=["left", "right"])
    np.testing.assert_array_equal(axes.images[0].get_array(), [[1, 0], [0, 0]])
    assert [text.get_text() for text in axes.get_yticklabels()] == ["left", "right"]
    assert [text.get_text() for text in axes.get_xticklabels()] == ["left", "right"]


def test_numbers_contrast_with_their_cells():
    axes = plot.confusion_matrix([0] * 9 + [1] * 10, [0] * 10 + [1] * 9)
    colours = {text.get_position(): text.get_color() for text in axes.texts}
    assert colours == {(0, 0): "white", (1, 1): "white", (1, 0): "black"}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("layout", ["constrained", "tight", None])
@pytest.mark.parametrize("side", [1.2, 2.0, 3.0, 6.0])
def test_numbers_fit_in_cells_and_colour_bar_has_height_of_matrix(layout, side, rng):
    figure, panels = plt.subplots(2, 2, figsize=(2 * side, 2 * side), layout=layout)
    panels[1, 0].set_yticks([0.5], ["a name that takes much of the panel"[: int(12 * side)]])
    axes = plot.confusion_matrix(rng.integers(0, 10, 900), rng.integers(0, 10, 900), ax=panels[0, 0])
    figure.draw_without_rendering()
    matrix, bar = axes.get_window_extent(), figure.axes[-1].get_window_extent()
    assert (bar.y0, bar.y1) == pytest.approx((matrix.y0, matrix.y1), abs=1.0)
    assert matrix.x1 < bar.x0 < matrix.x1 + 0.15 * side * figure.dpi
    for text in axes.texts:
        if text.get_text():
            box = text.get_window_extent()
            assert text.get_fontsize() >= 6 and max(box.width, box.height) <= matrix.width / 10 + 2.5


def test_numbers_appear_depending_on_figure_size(rng):
    axes = plot.confusion_matrix(rng.integers(0, 10, 500), rng.integers(0, 10, 500))
    for inches, there in ((3.3, True), (1.5, False), (6.0, True)):
        axes.figure.set_size_inches(inches, inches)
        axes.figure.draw_without_rendering()
        assert any(text.get_text() for text in axes.texts) is there


def test_numbers_that_do_not_fit_are_omitted(rng):
    axes = plot.confusion_matrix(rng.integers(0, 40, 500), rng.integers(0, 40, 500))
    assert len(axes.texts) == 0
    assert len(axes.get_xticks()) == 20


def test_confusion_matrix_with_invalid_data_raises():
    with pytest.raises(errors.ArgumentError, match="labels has class 3 at 1; with 3 classes they must be 0 to 2"):
        plot.confusion_matrix(np.eye(3)[[0, 1]], [0, 3])
    with pytest.raises(errors.ArgumentError, match="predicted has class 2 at 0; with 2 classes they must be 0 to 1"):
        plot.confusion_matrix([2, 1], [0, 1], names=["a", "b"])
    with pytest.raises(errors.ArgumentError, match="labels has class -1 at 1"):
        plot.confusion_matrix([0, 1], [0, -1])
    with pytest.raises(errors.ArgumentError, match="2 names, but scores of 3 classes"):
        plot.confusion_matrix(np.eye(3), [0, 1, 2], names=["a", "b"])
    with pytest.raises(errors.DTypeError, match=r"labels must be integers, not float64\. Convert them"):
        plot.confusion_matrix([0, 1], [0.0, 1.0])
    with pytest.raises(
        errors.ShapeError, match=r"predicted must be \(N,\) or \(N, C\) and labels \(N,\), not \(2,\) and \(3,\)"
    ):
        plot.confusion_matrix([0, 1], [0, 1, 1])
    with pytest.raises(errors.ShapeError, match=r"not \(\) and \(1,\)"):
        plot.confusion_matrix(0, [0])
    with pytest.raises(errors.ArgumentError, match="there are no samples"):
        plot.confusion_matrix(np.zeros(0, int), np.zeros(0, int))
    with pytest.raises(errors.ArgumentError, match="the scores of sample 1 are NaN"):
        plot.confusion_matrix([[0.0, 1.0], [np.nan, 0.0]], [0, 1])


# --- appearance -------------------------------------------------------------------------------------------------------


def digits():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 10, 500)
    return np.where(rng.random(500) < 0.8, labels, rng.integers(0, 10, 500)), labels


def gestures():
    predicted, labels = digits()
    return predicted % 4, labels % 4, ["left hand", "right hand", "wave", "drums"]


def words():
    labels = np.arange(700) % 35
    return np.where(np.arange(700) % 3, labels, (labels * 3) % 35), labels


def updates():
    rng, sizes = np.random.default_rng(0), {"dense1": 1e-3, "dense2": 1e-2, "dense3": 1e-4}
    return {
        f"{layer}.{kind}": size * np.exp(0.3 * rng.normal(size=60))
        for layer, size in sizes.items()
        for kind in ("weight", "bias")
    }


def weights(scale=1.0):
    rng = np.random.default_rng(0)
    sizes = {"dense1.weight": 0.05, "dense1.bias": 0.02, "dense2.weight": 0.1, "dense2.bias": 0.03, "lif2.tau": 0.01}
    return {name: scale * rng.normal(0.0, sd, 40 if "bias" in name else 4000) for name, sd in sizes.items()}


def run():
    epochs = np.arange(1, 31)
    falling = 2 * np.exp(-epochs / 8)
    return {
        "epoch": epochs,
        "loss": falling,
        "accuracy": 1 - 0.9 * np.exp(-epochs / 6),
        "firing_rate": 0.1 + 0.05 * np.exp(-epochs / 5),
        "test_loss": falling + 0.0015 * epochs**1.6,
        "test_accuracy": 0.95 - 0.85 * np.exp(-epochs / 6),
        "test_firing_rate": 0.1 + 0.06 * np.exp(-epochs / 5),
    }


PICTURES = {
    "gradient_to_weight": lambda **on: plot.gradient_to_weight(updates(), title="Adam, 0.001", **on),
    "weight_histograms": lambda **on: plot.weight_histograms(weights(), **on),
    "weight_histograms_before": lambda **on: plot.weight_histograms(weights(), before=weights(0.5), title="w", **on),
    "training_curves": lambda **on: plot.training_curves(run(), title="digits", **on),
    "training_curves_loss": lambda **on: plot.training_curves({"loss": run()["loss"]}, **on),
    "confusion_matrix": lambda **on: plot.confusion_matrix(*digits(), **on),
    "confusion_matrix_names": lambda **on: plot.confusion_matrix(*gestures(), title="gestures", **on),
    "confusion_matrix_many": lambda **on: plot.confusion_matrix(*words(), **on),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", PICTURES)
def test_figures_are_legible_on_paper(name):
    assert_readable(PICTURES[name]())


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", PICTURES)
@pytest.mark.mpl_image_compare(savefig_kwargs={"dpi": 80})
def test_figures_match_baseline(name):
    return PICTURES[name]().figure


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", PICTURES)
def test_figures_are_drawn_on_given_axes(name):
    assert_drawn_where_asked(PICTURES[name])
