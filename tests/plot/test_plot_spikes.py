"""Plots of spikes: drawn data equal the input, figures are legible in a paper, and match baseline images."""

from collections import OrderedDict

import matplotlib as mpl
import numpy as np
import pytest

import snncell
from snncell import Tensor, errors, nn, plot, surrogate
from snncell.plot.rates import fractions, time_differences, whole_percent
from snncell.plot.sources import all_layers, one_layer

mpl.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.animation import FFMpegWriter
from PIL import Image
from readable import assert_readable, assert_told_apart

# --- data of all plots ------------------------------------------------------------------------------------------------

T, B, N = 40, 6, 12
_t, _b, _n = np.indices((T, B, N))
_late = _t - 14 - _n + _b
_current = 0.03 + 0.25 * np.maximum(0.0, 1.0 - (_late / 10) ** 2) + (37 * _n + 43 * _b + 5 * _n * _b) % 64 / 512
V, SPIKES = np.zeros((2, T, B, N), np.float32)
for _step in range(1, T):
    _h = 0.9375 * V[_step - 1] + _current[_step]
    SPIKES[_step] = _h > 1.25
    V[_step] = np.where(_h > 1.25, 0.0, _h)
LATER = np.roll(SPIKES, 2, 0) * (_n % 3 > 0)
LATER[20:25, :, 4:] = 1.0
OUTPUT = np.roll(SPIKES, 3, 0)[:, :, :10] * (_n[:, :, :10] > 1)
OUTPUT[:, :, 7:] = 1.0
# A front that moves over a hill, and a second one in the opposite direction.
_y, _x = np.indices((16, 20))
HILL = (_x + 1.0) * (20 - _x) * (_y + 1) * (16 - _y)
_fronts = (_x - 2, 17 - _x)
ARC = np.array([[front + _y * _y // 32 == step for front in _fronts] for step in range(12)], np.float32)
TRIALS = np.array(["left", "right", "left", "up", "right", "up"])


class Recording:
    """A replacement for a monitor, with the interface that plots use."""

    layers = ("lif1", "lif2", "out")

    def __init__(self, every=1, **quantities):
        self.every = every
        vars(self).update({"spikes": {}, "v": {}, "above": {}, "grad": {}} | quantities)

    def steps(self, name, kind="spikes"):
        return np.arange(T)[:: self.every]

    def neurons(self, name):
        return np.arange((self.spikes or self.v)[name][0, 0].size)

    def fires(self, name):
        return True

    def cell(self, name):
        return nn.LIFNode(tau=2.0, v_threshold=1.25)


RECORDED = Recording(spikes={"lif1": SPIKES, "lif2": LATER, "out": OUTPUT}, v={"lif1": V})


def animation_of(frame, *args, **options):
    animation = plot.animate(*args, **options)
    animation._draw_was_started = True  # it is looked at frame by frame here, and need not be run
    animation._func(frame)
    return animation


PICTURES = {
    "raster": lambda: plot.raster(SPIKES[:, 0], title="layer 1"),
    "raster_psth": lambda: plot.raster(RECORDED, layer="lif1", psth=4),
    "raster_classes": lambda: plot.raster(SPIKES, neuron=3, classes=TRIALS, psth=5, title="neuron 3"),
    "raster_ten_classes": lambda: plot.raster(SPIKES[:, :5].reshape(T, 60), classes=np.arange(60) // 6, psth=4),
    "membrane": lambda: plot.membrane(RECORDED),
    "membrane_many": lambda: plot.membrane(V[:, 0, :10], labels=[f"digit {n}" for n in range(10)], title="readout"),
    "psth": lambda: plot.psth(SPIKES, title="layer 1", width=2),
    "psth_classes": lambda: plot.psth(SPIKES, classes=TRIALS, width=4),
    "firing_rates": lambda: plot.firing_rates(RECORDED, title="a batch of 6"),
    "dead_and_saturated": lambda: plot.dead_and_saturated(RECORDED, title="a batch of 6"),
    "first_spikes": lambda: plot.spike_time_differences(SPIKES[:, :, :10], OUTPUT, title="hidden"),
    "all_spikes": lambda: plot.spike_time_differences(
        SPIKES[:, :, :10], OUTPUT, match="all", labels=("ours", "reference")
    ),
    "target_times": lambda: plot.spike_time_differences(SPIKES, 8.0 + _n[0], labels=("output", "target")),
    "animation": lambda: animation_of(9, ARC[:, 0], HILL, title="input")._fig.axes[0],
    "animation_channels": lambda: animation_of(9, ARC, HILL, fade=0.8)._fig.axes[0],
}


@pytest.mark.sampled(8)
@pytest.mark.parametrize("name", PICTURES)
def test_figures_are_legible_at_column_width_and_in_grey(name):
    axes = PICTURES[name]()
    assert axes.figure.get_figwidth() == 3.3
    for dots in (80, 200):  # letters are broader where there are few
        axes.figure.set_dpi(dots)
        assert_readable(axes)


@pytest.mark.sampled(9)
@pytest.mark.parametrize("name", PICTURES)
@pytest.mark.mpl_image_compare(savefig_kwargs={"dpi": 80})
def test_figures_match_baseline(name):
    return PICTURES[name]().figure


@pytest.mark.parametrize("draw", [plot.firing_rates, plot.dead_and_saturated])
def test_ten_layers_fit_in_column_width(draw):
    layers = {f"encoder.{number}.lif": np.roll(SPIKES, number, 0) for number in range(10)}
    axes = draw(layers)
    assert_readable(axes)
    assert axes.get_window_extent().height / axes.figure.dpi > 1.0  # inches


def test_figures_are_legible_side_by_side():
    figure, axes = plt.subplots(3, 2, figsize=(10, 9), layout="constrained")
    plot.raster(SPIKES[:, 0], ax=axes[0, 0], title="layer 1, shown a 5 as a constant current", psth=4)
    plot.membrane(RECORDED, ax=axes[0, 1], title="layer 1, the potential after the reset")
    plot.dead_and_saturated(RECORDED, ax=axes[1, 0])
    plot.firing_rates(RECORDED, ax=axes[1, 1])
    plot.psth(SPIKES, classes=TRIALS, ax=axes[2, 0])
    plot.spike_time_differences(SPIKES[:, :, :10], OUTPUT, ax=axes[2, 1])
    assert_readable(axes[0, 0], widest=10)
    assert figure.get_figwidth() == 10


# Faults that the legibility check must find.
def small(axes):
    axes.set_title("small", fontsize=5)


def cut(axes):
    axes.set_title("a title that is far too long for the breadth of a column of a paper of two columns", fontsize=8)


def over(axes):
    axes.text(0.5, 0.5, "one")
    axes.text(0.51, 0.5, "two")


def alike(axes):
    axes.plot([0, 1], color="#CC79A7", label="a")
    axes.plot([1, 0], color="#56B4E9", label="b")


FAULTS = {small: "under 6.0 pt", cut: "cut off", over: "one over the other", alike: "in grey, a looks like b"}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_legibility_check_finds_planted_faults(fault):
    axes = plt.subplots(figsize=(3.3, 2.2), layout="constrained")[1]
    fault(axes)
    with pytest.raises(AssertionError, match=FAULTS[fault]):
        assert_readable(axes)


def test_twelve_series_differ_in_grey_and_twenty_eight_in_colour():
    assert_told_apart(plot.membrane(np.random.default_rng(0).random((5, 12))))
    axes = plot.membrane(np.random.default_rng(0).random((5, 28)), neurons=range(28))
    assert len({(line.get_color(), line.get_linestyle()) for line in axes.lines}) == 28


# --- sources ----------------------------------------------------------------------------------------------------------


def test_spikes_can_be_monitor_mapping_array_or_tensor():
    assert list(all_layers(RECORDED, "spikes", "f")) == ["lif1", "lif2", "out"]
    assert list(all_layers(RECORDED, "v", "f")) == ["lif1"]
    assert list(all_layers({"a": Tensor(SPIKES), "b": V}, "spikes", "f")) == ["a", "b"]
    for name, array in (one_layer(Tensor(V), "v", None, "f"), one_layer([[0.0, 1.0]], "v", None, "f")):
        assert name == "" and array.ndim > 1
    assert one_layer(RECORDED, "v", None, "f")[0] == "lif1"
    np.testing.assert_array_equal(one_layer(RECORDED, "spikes", "out", "f")[1], OUTPUT)
    np.testing.assert_array_equal(one_layer(Tensor([[1.0]], "bfloat16"), "v", None, "f")[1], [[1.0]])


# --- raster -----------------------------------------------------------------------------------------------------------


def marks(axes):
    return np.concatenate([np.asarray(each.get_offsets()) for each in axes.collections])


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"layer": "lif1"}, SPIKES[:, 0]),
        ({"layer": "lif1", "sample": 4}, SPIKES[:, 4]),
        ({"layer": "out", "sample": -1}, OUTPUT[:, -1]),
        ({"layer": "lif1", "neuron": 5}, SPIKES[:, :, 5]),
    ],
)
def test_raster_of_monitor_has_a_mark_for_every_spike(options, expected):
    axes = plot.raster(RECORDED, **options)
    found = np.zeros(expected.shape)
    found[tuple(marks(axes).astype(int).T)] = 1.0
    np.testing.assert_array_equal(found, expected)
    assert axes.get_ylabel() == ("sample" if "neuron" in options else "neuron")
    assert axes.get_title().startswith(f"{options['layer']}: {int(expected.sum())} spikes, ")


def test_raster_of_images_numbers_neurons_consecutively():
    spikes = np.zeros((5, 2, 3, 4))
    spikes[2, 1, 2, 1] = 1.0
    np.testing.assert_array_equal(marks(plot.raster(spikes, sample=1)), [[2, 9]])


def test_raster_of_every_third_step_has_marks_at_those_steps():
    axes = plot.raster(Recording(3, spikes={"lif1": SPIKES[::3]}), psth=2)
    steps, _ = np.nonzero(SPIKES[::3, 0])
    np.testing.assert_array_equal(np.sort(marks(axes)[:, 0]), np.sort(3 * steps))
    assert axes.get_xlim() == (-1.5, 40.5)
    assert list(axes.figure.axes[-1].patches[0].get_data().edges[:3]) == [-1.5, 4.5, 10.5]


@pytest.mark.parametrize("count", [1, 3, 20, 128, 500])
def test_raster_marks_of_first_and_last_neuron_are_not_clipped(count):
    axes = plot.raster(np.ones((5, count)))
    axes.figure.draw_without_rendering()
    marks = axes.collections[0]
    half = 0.5 * np.sqrt(marks.get_sizes()[0]) * axes.figure.dpi / 72
    heights = axes.transData.transform(marks.get_offsets())[:, 1]
    assert heights.min() - half >= axes.bbox.y0 - 0.01 and heights.max() + half <= axes.bbox.y1 + 0.01


def test_raster_by_class_groups_and_labels_rows():
    axes = plot.raster(SPIKES, neuron=3, classes=TRIALS)
    assert [label.get_text() for label in axes.get_yticklabels()] == ["left", "right", "up"]
    np.testing.assert_array_equal(axes.get_yticks(), [0.5, 2.5, 4.5])
    for number, (name, each) in enumerate(zip(["left", "right", "up"], axes.collections, strict=True)):
        rows = SPIKES[:, name == TRIALS, 3]
        steps, row = np.nonzero(rows)
        np.testing.assert_array_equal(each.get_offsets(), np.stack([steps, row + 2 * number], 1))
    assert len({tuple(each.get_facecolor()[0]) for each in axes.collections}) == 3
    assert len({str(each.get_paths()[0].vertices) for each in axes.collections}) == 3
    assert [line.get_ydata()[0] for line in axes.lines] == [1.5, 3.5]  # between the classes
    assert axes.get_ylabel() == "samples by class"


@pytest.mark.parametrize("width", [1, 4, 7, 100])
def test_histogram_below_raster_sums_to_its_spikes(width):
    axes = plot.raster(SPIKES[:, 0], psth=width)
    below = axes.figure.axes[-1]
    (stairs,) = below.patches
    values, edges, _ = stairs.get_data()
    assert len(values) == -(-T // width) and (edges[0], edges[-1]) == (-0.5, T - 0.5)
    np.testing.assert_allclose((values * np.diff(edges)).sum() * N, SPIKES[:, 0].sum())
    assert below.get_xlim() == axes.get_xlim() and (below.get_xlabel(), axes.get_xlabel()) == ("time step", "")


@pytest.mark.parametrize("layout", ["constrained", None])
def test_histogram_takes_space_only_from_its_raster(layout):
    figure, (upper, lower) = plt.subplots(2, 1, layout=layout)
    plot.raster(SPIKES[:, 0], ax=upper, psth=4)
    figure.draw_without_rendering()
    below = figure.axes[-1]
    assert lower.get_position().y1 < below.get_position().y0 < below.get_position().y1 < upper.get_position().y0


def test_histogram_fits_on_freely_placed_axes():
    axes = plt.figure().add_axes((0.1, 0.1, 0.8, 0.8))
    plot.raster(SPIKES[:, 0], ax=axes, psth=4)
    below = axes.figure.axes[-1].get_position()
    assert below.y0 == pytest.approx(0.1) and below.y1 < axes.get_position().y0 and axes.get_position().y1 == 0.9


# --- membrane ---------------------------------------------------------------------------------------------------------


def test_membranes_of_monitor_show_spikes_threshold_and_layer():
    axes = plot.membrane(RECORDED, neurons=[2, 5], sample=1)
    lines = {line.get_label(): line for line in axes.lines}
    np.testing.assert_array_equal(lines["neuron 2"].get_ydata(), V[:, 1, 2])
    np.testing.assert_array_equal(lines["neuron 5"].get_ydata(), V[:, 1, 5])
    assert set(lines["threshold"].get_ydata()) == {1.25}
    triangles = [line for line in axes.lines if line.get_label() == "_spikes"]
    for neuron, triangle in zip([2, 5], triangles, strict=True):
        np.testing.assert_array_equal(triangle.get_xdata(), np.nonzero(SPIKES[:, 1, neuron])[0])
        np.testing.assert_array_equal(triangle.get_ydata(), V[SPIKES[:, 1, neuron] != 0, 1, neuron])  # on the line
        assert triangle.get_color() == lines[f"neuron {neuron}"].get_color()
    assert axes.get_title() == "lif1"


@pytest.mark.parametrize(
    ("neuron", "before"),
    [
        (nn.LIFNode(v_threshold=0.3), True),
        (nn.LIFNode(v_threshold=0.3, reset="value"), True),
        (nn.IFNode(v_threshold=0.6), True),
        (nn.ALIFNode(v_threshold=0.3), False),
    ],
    ids=lambda x: type(x).__name__,
)
def test_membranes_of_monitor_show_potentials_before_reset_if_recorded(neuron, before):
    net = nn.MultiStep(neuron)
    with snncell.monitor(net, v=True, above=True) as m:
        net(Tensor(np.random.default_rng(0).uniform(0.0, 0.7, (40, 2, 3)).astype(np.float32)))
    name = m.layers[0]
    axes = plot.membrane(m, neurons=range(3))
    assert axes.get_ylabel() == f"membrane potential\n{'before' if before else 'after'} reset"
    lines = [line for line in axes.lines if line.get_label().startswith("neuron")]
    for neuron_number, line in enumerate(lines):
        fires = m.spikes[name][:, 0, neuron_number] != 0
        assert fires.any() and not fires.all()
        if before:
            np.testing.assert_array_equal(line.get_ydata() > neuron.v_threshold, fires)
        else:
            np.testing.assert_array_equal(line.get_ydata(), m.v[name][:, 0, neuron_number])


def test_membranes_of_silent_monitor_show_first_four_neurons():
    axes = plot.membrane(Recording(v={"lif1": V}))
    names = [f"neuron {n}" for n in range(4)]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == [*names, "threshold"]
    assert not [line for line in axes.lines if line.get_label() == "_spikes"]  # no spikes were recorded


def test_membranes_of_monitor_show_four_most_active_neurons():
    axes = plot.membrane(RECORDED)
    counts = SPIKES[:, 0].sum(0)
    shown = [int(line.get_label().split()[1]) for line in axes.lines if line.get_label().startswith("neuron")]
    assert len(shown) == 4 and counts[shown].min() >= np.delete(counts, shown).max()
    assert axes.get_ylabel() == "membrane potential\nafter reset"


def test_spike_markers_of_neurons_differ_in_grey():
    axes = plot.membrane(V[:, 0, :8], SPIKES[:, 0, :8], 1.25)
    triangles = [line for line in axes.lines if line.get_label() == "_spikes"]
    looks = {(line.get_marker(), line.get_markerfacecolor() == "white") for line in triangles}
    assert len(looks) == len(triangles) == 8
    shown = [(line.get_marker(), line.get_markerfacecolor() == "white") for line in axes.get_legend().get_lines()]
    assert set(shown[:8]) == looks


def test_membranes_show_threshold_of_each_neuron():
    axes = plot.membrane(V, v_threshold=Tensor(np.repeat([0.5, 1.0], 6)), sample=0)
    dashed = [line.get_ydata()[0] for line in axes.lines if line.get_label().endswith("threshold")]
    assert dashed == [0.5, 1.0]
    assert [text.get_text() for text in axes.get_legend().get_texts()][-1] == "threshold"


# --- monitors ---------------------------------------------------------------------------------------------------------


def watched(**options):
    """A monitor of a layer of 40 spiking neurons, and of a readout of 3 without spikes."""
    a = nn.MultiStep(nn.LIFNode(surrogate_function=surrogate.ATan(), v_threshold=0.2))
    net = nn.SequentialCell(OrderedDict(a=a, dense=nn.Dense(40, 3), out=nn.MultiStep(nn.LINode())))
    with snncell.monitor(net, **options) as m:
        net(Tensor((np.arange(6 * 2 * 40).reshape(6, 2, 40) * 7 % 11 / 11).astype(np.float32)))
    return m


def test_nonspiking_layers_are_not_in_rate_plots():
    m = watched()
    assert list(fractions(m)) == ["a"]
    assert [text.get_text().split(":")[0] for text in plot.firing_rates(m).get_legend().get_texts()] == ["a"]
    assert [label.get_text() for label in plot.dead_and_saturated(m).get_yticklabels()] == ["a"]
    assert plot.raster(m).get_title().startswith("a: ")  # the only one that fires


def test_membranes_of_nonspiking_layers_have_no_markers_or_threshold():
    axes = plot.membrane(watched(v=True), layer="out")
    assert [line.get_label() for line in axes.lines] == ["neuron 0", "neuron 1", "neuron 2"]
    assert axes.get_ylabel() == "membrane potential"


def test_selected_neurons_keep_their_numbers():
    m = watched(spikes="a", v="a", neurons=[0, 5, 39])
    assert [text.get_text() for text in plot.membrane(m).get_legend().get_texts()[:3]] == [
        "neuron 0",
        "neuron 5",
        "neuron 39",
    ]
    np.testing.assert_array_equal(plot.membrane(m, neurons=39).lines[0].get_ydata(), m.v["a"][:, 0, 2])
    rows = plot.raster(m, layer="a", neuron=39).collections[0].get_offsets()
    at, sample = np.nonzero(m.spikes["a"][:, :, 2])
    np.testing.assert_array_equal(rows, np.stack([at, sample], 1))
    axes = plot.raster(m, layer="a")
    axes.figure.canvas.draw()
    assert [label.get_text() for label in axes.get_yticklabels() if label.get_text()] == ["0", "5", "39"]


def test_potential_and_gradient_plots_need_no_spikes():
    assert plot.membrane(watched(spikes=False, v=True), layer="a").get_title() == "a"
    assert plot.membrane({"0.cell": V[:, 0]}).get_title() == "layer 0.cell"  # not a lone number


WATCHED = {
    "raster": (lambda: plot.raster(watched(), layer="out"), "raster: the layer 'out' does not fire.*plot.membrane"),
    "psth": (lambda: plot.psth(watched(), layer="out"), "psth: the layer 'out' does not fire.*plot.membrane"),
    "only": (lambda: plot.firing_rates(watched(spikes="out")), "firing_rates: the layer 'out' does not fire"),
    "dead": (lambda: plot.dead_and_saturated(watched(spikes="out")), "the layer 'out' does not fire"),
    "grad": (
        lambda: plot.gradient_norms(watched(grad=True)),
        r"has not recorded 'grad'\. The last call.*evaluation.*calls=None",
    ),
    "asked": (
        lambda: plot.gradient_norms(watched()),
        r"has not recorded 'grad'\. Record it with monitor\(net, grad=True\)",
    ),
    "v": (
        lambda: plot.membrane(watched(v="a"), layer="out"),
        r"no v of the layer 'out'\. Record it with monitor\(net, v=",
    ),
    "layer": (lambda: plot.raster(watched(), layer="b"), "no spikes of the layer 'b'. Recorded layers: a, out"),
    "neuron": (lambda: plot.raster(watched(neurons=2), layer="a", neuron=7), "neuron 7 was not recorded.* are 0, 39"),
    "many": (lambda: plot.membrane(np.zeros((5, 13))), r"13 neurons in one plot.*neurons=range\(12\)"),
    "figure": (lambda: plot.raster(SPIKES[:, 0], ax=plt.figure()), r"one Axes.*not a Figure.*figure\.axes\[0\]"),
    "array": (lambda: plot.raster(SPIKES[:, 0], ax=plt.subplots(2)[1]), r"one Axes.*not a ndarray.*axes\[0, 0\]"),
}


@pytest.mark.parametrize("what", WATCHED)
def test_missing_monitor_records_raise_with_fix(what):
    draw, message = WATCHED[what]
    with pytest.raises(errors.ArgumentError, match=message):
        draw()


# --- rates ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("spikes", "rows"), [(SPIKES, SPIKES.mean(2)), (SPIKES[:, 0], SPIKES[:, 0])], ids=["B", "N"])
def test_psth_is_mean_over_rows_with_standard_error(spikes, rows):
    axes = plot.psth(Tensor(spikes), width=4)
    line, band = axes.patches
    bins = rows.reshape(10, 4, -1).mean(1, dtype=float)
    np.testing.assert_allclose(line.get_data().values, bins.mean(1))
    error = bins.std(1, ddof=1) / np.sqrt(bins.shape[1])
    np.testing.assert_allclose(band.get_data().values, bins.mean(1) + error)
    np.testing.assert_allclose(band.get_data().baseline, bins.mean(1) - error)
    assert axes.get_xlim() == (-0.5, 39.5) and axes.get_ylim()[0] == 0.0
    assert axes.get_legend() is None


def test_psth_has_a_line_for_each_class():
    axes = plot.psth(RECORDED, layer="lif1", classes=TRIALS, width=4)
    lines = {patch.get_label(): patch for patch in axes.patches if patch.get_label()}
    assert list(lines) == [text.get_text() for text in axes.get_legend().get_texts()] == ["left", "right", "up"]
    for name, line in lines.items():
        values = line.get_data().values
        np.testing.assert_allclose(values.sum() * 4 * N * 2, SPIKES[:, name == TRIALS].sum(), rtol=1e-6)


def test_firing_rates_show_fractions_of_neurons_and_median():
    axes = plot.firing_rates(RECORDED, bins=10)
    rates = [array.mean((0, 1)) for array in RECORDED.spikes.values()]
    for rate, stairs, line in zip(rates, axes.patches, axes.lines, strict=True):
        heights, edges, _ = stairs.get_data()
        np.testing.assert_allclose(heights * rate.size, np.histogram(rate, edges)[0])
        assert (edges[0], edges[-1], len(heights), heights.sum()) == (0.0, 1.0, 10, pytest.approx(1.0))
        assert line.get_xdata()[0] == pytest.approx(np.median(rate))
    texts = [text.get_text() for text in axes.get_legend().get_texts()]
    assert texts == [f"{n}: median {np.median(r):.3g}" for n, r in zip(RECORDED.layers, rates, strict=True)]
    (line,) = plot.firing_rates(SPIKES[:, 0]).lines  # (T, N)
    assert line.get_xdata()[0] == pytest.approx(np.median(SPIKES[:, 0].mean(0)))


@pytest.mark.parametrize("width", [1.6, 2.0, 3.3])
@pytest.mark.parametrize("layers", [1, 3])
def test_legend_of_firing_rates_is_above_all_bins(width, layers):
    figure, axes = plt.subplots(figsize=(2 * width, 2.5), ncols=2, layout="constrained")
    axes[1].set_yticks([0.5], ["a name that takes room"])
    panel = plot.firing_rates({n: RECORDED.spikes[n] for n in RECORDED.layers[:layers]}, ax=axes[0], bins=7)
    figure.draw_without_rendering()
    key = panel.get_legend()
    bottom = panel.transData.inverted().transform(key.get_window_extent())[0, 1]
    highest = max(patch.get_data().values.max() for patch in panel.patches)
    assert bottom > highest or key.get_window_extent().y1 < panel.get_window_extent().y0
    assert {line.get_marker() for line in key.get_lines()} == {"None"}  # nothing there looks like a median


def test_firing_rates_of_silent_layers_are_drawn():
    axes = plot.firing_rates(np.zeros((3, 2, 5)))
    assert axes.patches[0].get_data().values[0] == 1.0
    assert axes.get_legend().get_texts()[0].get_text() == "all: median 0"


KNOWN = np.zeros((20, 2, 8))
KNOWN[:, :, 0] = 1.0  # always
KNOWN[1:, :, 1] = 1.0  # 95 % of the steps
KNOWN[2:, :, 2] = 1.0  # 90 %
KNOWN[3, 1, 3] = -2.0  # one spike, of another size
FRACTIONS = [
    ({}, (4 / 8, 2 / 8, 2 / 8)),
    ({"saturated": 1.0}, (4 / 8, 3 / 8, 1 / 8)),
    ({"saturated": 0.9}, (4 / 8, 1 / 8, 3 / 8)),
    ({"dead": 0.025}, (5 / 8, 1 / 8, 2 / 8)),
]


@pytest.mark.parametrize(("options", "expected"), FRACTIONS)
def test_dead_and_saturated_neurons_are_counted_and_drawn(options, expected):
    found = fractions({"a": KNOWN, "b": KNOWN[:, 0]}, **options)
    assert found["a"] == expected and (found["a"].dead, found["a"].saturated) == (expected[0], expected[2])
    axes = plot.dead_and_saturated({"a": Tensor(KNOWN)}, **options)
    assert tuple(bar.get_width() for bar in axes.patches) == pytest.approx(expected)
    assert [bar.get_x() for bar in axes.patches] == pytest.approx([0, expected[0], expected[0] + expected[1]])
    assert axes.texts[0].get_text() == " / ".join(f"{100 * part:.0f}" for part in expected) + " %"
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["dead", "healthy", "saturated"]


def test_single_layer_has_bar_of_normal_height():
    figure, axes = plt.subplots(figsize=(3.0, 3.0), layout="constrained")
    plot.dead_and_saturated({"a": KNOWN}, ax=axes)
    figure.draw_without_rendering()
    assert axes.patches[0].get_window_extent().height * 72 / figure.dpi < 30
    assert not [text for text in axes.texts if "\n" in text.get_text()]


def test_first_layer_is_on_top():
    axes = plot.dead_and_saturated(RECORDED)
    assert [label.get_text() for label in axes.get_yticklabels()] == ["lif1", "lif2", "out"]
    assert axes.yaxis_inverted() and len(axes.patches) == 9


@pytest.mark.parametrize(
    ("part", "text"), [(0.0, "0"), (0.001, "<1"), (0.005, "0"), (0.126, "13"), (0.996, ">99"), (1.0, "100")]
)
def test_percentages_are_rounded_to_0_or_100_only_if_exact(part, text):
    assert whole_percent(part) == text


# --- spike times ------------------------------------------------------------------------------------------------------


def train(*steps):
    spikes = np.zeros((20, 1))
    spikes[list(steps)] = 1.0
    return spikes


TIMES = [
    # a, b, options: differences, and the unmatched parts of a and b
    (train(3, 9), train(5, 6), {}, [-2], 0, 0),
    (train(), train(5), {}, [], 0, 1),
    (train(5), train(), {}, [], 1, 0),
    (train(), train(), {}, [], 0, 0),
    (train(3, 9), train(5, 7), {"match": "all"}, [-2, 2], 0, 0),
    (train(3, 9), train(5, 6), {"match": "all"}, [-2], 1 / 2, 1 / 2),
    (train(3, 9), train(3, 9, 10), {"match": "all"}, [0, 0], 0, 1 / 3),
    (train(3), train(2, 4), {"match": "all"}, [1], 0, 1 / 2),
    (train(3, 9), train(4, 19), {"match": "all", "within": 2}, [-1], 1 / 2, 1 / 2),
    (train(3), train(9), {"within": 5}, [], 1, 1),
    (train(3, 9), np.array([4.5]), {}, [-1.5], 0, 0),
    (train(3, 9), np.array([np.nan]), {}, [], 1, 0),
    (train(3, 9), np.array([-1]), {"match": "all"}, [], 1, 0),
    (train(3, 9), np.array([8]), {"match": "all"}, [1], 1 / 2, 0),
]


@pytest.mark.parametrize(("a", "b", "options", "expected", "alone_a", "alone_b"), TIMES)
def test_spike_time_differences_are_taken_between_matched_spikes(a, b, options, expected, alone_a, alone_b):
    found = time_differences(a, b, **options)
    assert sorted(found.steps) == sorted(expected)
    assert (found.alone_a, found.alone_b) == pytest.approx((alone_a, alone_b))
    other = plot.spike_time_differences(a, b, labels=("ours", "theirs"), **options)
    assert other.patches[0].get_data().values.sum() == len(expected)
    assert f"alone: {whole_percent(alone_a)} % of ours, {whole_percent(alone_b)} % of theirs" in other.get_title()


def test_spike_time_histogram_has_one_bin_centred_on_each_step():
    late = np.roll(SPIKES, 2, 0)
    late[:2] = 0.0
    axes = plot.spike_time_differences(late, SPIKES, match="all", within=3)
    heights, edges, _ = axes.patches[0].get_data()
    found = time_differences(late, SPIKES, match="all", within=3).steps
    middles = (edges[:-1] + edges[1:]) / 2
    np.testing.assert_array_equal(heights, [(found == middle).sum() for middle in middles])
    assert middles[heights.argmax()] == 2.0 and np.median(found) == 2.0
    assert axes.get_title().startswith(f"{len(found)} pairs, median +2 steps\n")
    assert axes.get_xlabel() == "a later than b by (steps)" and axes.get_ylabel() == "pairs of spikes"


def test_wide_spike_time_histogram_has_wide_bins_with_all_pairs():
    a, b = np.zeros((2, 500, 3))
    a[[400, 10, 7], [0, 1, 2]] = b[[5, 200, 7], [0, 1, 2]] = 1.0
    axes = plot.spike_time_differences(a, b)
    heights, edges, _ = axes.patches[0].get_data()
    assert heights.sum() == 3 and len(heights) <= 63 and axes.get_ylabel() == "pairs per 13 steps"
    np.testing.assert_allclose(np.diff(edges), 13)


def test_spike_times_of_two_monitors_can_be_compared():
    axes = plot.spike_time_differences(RECORDED, RECORDED, layer="lif1")
    first = (SPIKES.sum(0) > 0).sum()
    assert axes.get_title().startswith(f"{first} pairs, median +0 steps")
    same = plot.spike_time_differences(RECORDED, SPIKES, layer="lif1")
    assert same.get_title() == axes.get_title()


# --- animation --------------------------------------------------------------------------------------------------------


def test_animation_shows_spike_and_fades_it():
    spikes = np.zeros((4, 3, 5))
    spikes[1, 2, 4] = 1.0
    animation = animation_of(0, spikes, fade=0.5, title="input")
    axes = animation._fig.axes[0]
    for frame, opacity in enumerate([0.0, 1.0, 0.5, 0.25]):
        animation._func(frame)
        light = axes.images[-1].get_array()
        assert light.shape == (3, 5, 4) and light[2, 4, 3] == opacity and light[:, :, 3].sum() == opacity
        assert (axes.get_title(), axes.get_xlabel()) == ("input", f"step {frame}")
    assert animation._save_count == 4


@pytest.mark.parametrize(
    ("spikes", "options", "size", "channels"),
    [
        (np.ones((4, 6, 5)), {}, (6, 5), 1),
        (np.ones((4, 2, 6, 5)), {}, (6, 5), 2),
        (np.ones((4, 9, 6, 5)), {}, (6, 5), 1),
        (np.ones((4, 12)), {}, (3, 4), 1),
        (np.ones((4, 7)), {}, (1, 7), 1),
        (np.ones((4, 12)), {"shape": (2, 6)}, (2, 6), 1),
        (np.ones((4, 12)), {"shape": (2, 2, 3)}, (2, 3), 2),
        (np.ones((4, 3, 12)), {"sample": 1}, (3, 4), 1),
        (np.ones((4, 3, 2, 6, 5)), {"sample": 1}, (6, 5), 2),
        (RECORDED, {"layer": "lif1"}, (3, 4), 1),
    ],
)
def test_animation_accepts_planes_channels_and_layers(spikes, options, size, channels):
    axes = animation_of(0, spikes, **options)._fig.axes[0]
    assert [image.get_array().shape[:2] for image in axes.images] == [size] * channels
    assert (axes.get_legend() is not None) == (channels > 1)


def test_animation_shows_background_images_per_step():
    images = np.arange(4 * 9.0).reshape(4, 3, 3)
    animation = animation_of(2, np.ones((4, 6, 6)), images)
    background = animation._fig.axes[0].images[0]
    np.testing.assert_array_equal(background.get_array(), images[2])
    assert background.get_extent() == [-0.5, 5.5, 5.5, -0.5]  # stretched to the plane of spikes
    still = animation_of(2, np.ones((4, 6, 6)), images[1])._fig.axes[0].images[0]
    np.testing.assert_array_equal(still.get_array(), images[1])


def test_animation_is_saved_as_gif(tmp_path):
    axes = plt.subplots(figsize=(1, 1), dpi=50)[1]
    plot.animate(SPIKES[:5], sample=0, path=tmp_path / "a.gif", fps=4, ax=axes)
    with Image.open(tmp_path / "a.gif") as picture:
        assert picture.n_frames == 5 and picture.info["duration"] == 250 and picture.size == (50, 50)


def test_animation_is_saved_as_mp4_with_ffmpeg(tmp_path):
    if not FFMpegWriter.isAvailable():
        pytest.skip("ffmpeg is not installed: there is nothing to write an .mp4 with")
    plot.animate(SPIKES[:5], sample=0, path=tmp_path / "a.mp4")
    assert (tmp_path / "a.mp4").read_bytes()[4:8] == b"ftyp"


def test_animation_to_mp4_without_ffmpeg_raises(tmp_path, monkeypatch):
    monkeypatch.setattr(FFMpegWriter, "isAvailable", classmethod(lambda cls: False))
    with pytest.raises(errors.ArgumentError, match=r"a\.mp4' needs ffmpeg.*Install it, or write a \.gif"):
        plot.animate(SPIKES, sample=0, path=str(tmp_path / "a.mp4"))
    assert not plt.get_fignums()


# --- errors -----------------------------------------------------------------------------------------------------------

NAN = np.full((3, 2), np.nan)
WRONG = [
    (lambda: plot.raster(SPIKES), errors.ShapeError, r"raster: takes \(T, N\), not shape \(40, 6, 12\)\. Choose one"),
    (
        lambda: plot.raster(RECORDED),
        errors.ArgumentError,
        "choose one of the layers 'lif1', 'lif2', 'out'.*layer='lif1'",
    ),
    (
        lambda: plot.raster(RECORDED, layer="lif9"),
        errors.ArgumentError,
        "unknown layer 'lif9'; the layers are 'lif1', 'lif2'",
    ),
    (lambda: plot.raster(SPIKES[:, 0], layer="a"), errors.ArgumentError, "unknown layer 'a'; this is one array"),
    (
        lambda: plot.raster(Recording(v={"a": V})),
        errors.ArgumentError,
        r"has not recorded 'spikes'.*monitor\(net, spikes=True\)",
    ),
    (lambda: plot.raster({}), errors.ArgumentError, "the mapping is empty"),
    (lambda: plot.raster("a"), errors.ArgumentError, "spikes must be an array or a Tensor of .*, not a str"),
    (lambda: plot.raster([[1], [1, 2]]), errors.ArgumentError, "not a list of object"),
    (lambda: plot.raster(nn.LIFNode(2.0)), errors.ArgumentError, "or a monitor, not a LIFNode"),
    (lambda: plot.raster(NAN), errors.ArgumentError, "raster: the spikes contain NaN.*check_finite"),
    (lambda: plot.raster(SPIKES, sample=6), errors.ArgumentError, "no sample 6; there are 6, from 0"),
    (lambda: plot.raster(SPIKES, neuron=1.5), errors.ArgumentError, r"neuron is an integer, not 1\.5"),
    (
        lambda: plot.raster(SPIKES, sample=1, neuron=1),
        errors.ArgumentError,
        "sample=1 and neuron=1 select a single row",
    ),
    (lambda: plot.raster(SPIKES[0], sample=1), errors.ShapeError, r"pass \(T, B, \.\.\.\), not shape"),
    (lambda: plot.raster(SPIKES[:, 0], classes=TRIALS), errors.ShapeError, r"12 neurons, so .* \(12,\), not \(6,\)"),
    (lambda: plot.raster(SPIKES[:, 0], psth=0), errors.ArgumentError, "psth is an integer of at least 1"),
    (lambda: plot.membrane(RECORDED, neurons=[0, 12]), errors.ArgumentError, "no neuron 12; there are 12, from 0"),
    (lambda: plot.membrane(V[:, 0], SPIKES), errors.ShapeError, r"v has shape \(40, 12\), spikes .* they must agree"),
    (lambda: plot.membrane(V[:, 0], labels=["a"]), errors.ShapeError, "12 neurons are drawn, but there are 1 labels"),
    (lambda: plot.membrane(V[:, 0], v_threshold=[1, 2]), errors.ShapeError, "one for each of 12 neurons, not 2"),
    (lambda: plot.psth(SPIKES[:, 0, 0]), errors.ShapeError, r"psth: takes \(T, N\) or .* One neuron: x\[:, None\]"),
    (lambda: plot.psth(SPIKES, width=1.5), errors.ArgumentError, r"psth: width is an integer of at least 1, not 1\.5"),
    (
        lambda: plot.psth(SPIKES, classes=[1]),
        errors.ShapeError,
        r"psth: there are 6 samples, so classes must have shape",
    ),
    (lambda: plot.firing_rates({"a": V[:, 0, 0]}), errors.ShapeError, "firing_rates: takes"),
    (lambda: plot.firing_rates(SPIKES, bins=0), errors.ArgumentError, "firing_rates: bins is an integer of at least 1"),
    (lambda: plot.firing_rates(SPIKES[:0]), errors.ArgumentError, "shape .0, 6, 12. is empty, so there are no spikes"),
    (lambda: plot.dead_and_saturated(SPIKES, dead=0.5, saturated=0.4), errors.ArgumentError, "0 <= dead < saturated"),
    (lambda: plot.dead_and_saturated(NAN), errors.ArgumentError, "dead_and_saturated: the spikes contain NaN"),
    (
        lambda: plot.spike_time_differences(SPIKES, V[1:]),
        errors.ShapeError,
        r"for spikes, or \(6, 12\), for times, not",
    ),
    (lambda: plot.spike_time_differences(V, V, match="last"), errors.ArgumentError, 'match must be "first" or "all"'),
    (lambda: plot.spike_time_differences(V, V, within=-1), errors.ArgumentError, "within must be a number of steps"),
    (lambda: plot.animate(SPIKES, fps=0), errors.ArgumentError, "animate: fps is a finite number above 0, not 0"),
    (lambda: plot.animate(SPIKES, fade=1.0), errors.ArgumentError, r"fade must be .* below 1, not 1\.0"),
    (
        lambda: plot.animate(SPIKES, path="a.avi"),
        errors.ArgumentError,
        r"path must end in \.gif or \.mp4, not 'a\.avi'",
    ),
    (lambda: plot.animate(SPIKES, sample=7), errors.ArgumentError, "no sample 7; there are 6, from 0"),
    (lambda: plot.animate(SPIKES[:, 0], sample=0), errors.ShapeError, r"sample needs spikes of shape \(T, B, \.\.\.\)"),
    (lambda: plot.animate(SPIKES[:, 0], shape=(3, 5)), errors.ShapeError, r"of 12 neurons, not \(3, 5\)"),
    (lambda: plot.animate(np.ones((2, 1, 1, 2, 2))), errors.ShapeError, "For a batch, choose one sample: sample=0"),
    (lambda: plot.animate(SPIKES[:0, 0]), errors.ArgumentError, "is empty, so there is nothing to show"),
    (lambda: plot.animate(SPIKES, np.ones((3, 2, 2))), errors.ShapeError, r"or \(40, h, w\), one for each step, not"),
]


@pytest.mark.parametrize(("draw", "kind", "match"), WRONG)
def test_invalid_data_raise_with_fix(draw, kind, match):
    with pytest.raises(kind, match=match):
        draw()
    assert not plt.get_fignums(), "an empty figure is left behind"


# --- samples of different lengths -------------------------------------------------------------------------------------


def test_raster_title_excludes_padded_steps():
    net = nn.MultiStep(nn.IFNode())
    x, lengths = Tensor(np.full((10, 2, 3), 2.0, np.float32)), Tensor(np.array([10, 4], np.int32))
    with snncell.monitor(net) as recorded:
        net(x, lengths=lengths)
    drawn = [plot.raster(recorded, **chosen) for chosen in ({"sample": 0}, {"sample": 1}, {"neuron": 0})]
    titles = [axes.get_title().replace("\n", " ") for axes in drawn]
    for title, count in zip(titles, (30, 12, 14), strict=True):
        assert title.startswith(f"IFNode: {count} spikes, 1.000 per")
    plt.close("all")


class Padded(nn.Cell):
    """A layer of neurons for padded sequences."""

    def __init__(self):
        super().__init__()
        self.layer = nn.MultiStep(nn.IFNode())

    def construct(self, x, lengths):
        return self.layer(x, lengths=lengths)


def test_report_rasters_exclude_padded_steps(tmp_path):
    x, lengths = np.full((10, 2, 3), 2.0, np.float32), np.array([4, 3], np.int32)
    batch, path = (Tensor(x), Tensor(lengths), Tensor([0, 1])), tmp_path / "page.html"
    report = plot.report(Padded(), batch, lambda out, target: out.mean() + 0.0 * target.sum(), path=path)
    pictures = [picture for part in report.sections for picture in part.pictures if picture.figure is not None]
    titles = [axes.get_title().replace("\n", " ") for picture in pictures for axes in picture.figure.axes]
    assert any(title.startswith("layer: 12 spikes, 1.000 per") for title in titles), titles
