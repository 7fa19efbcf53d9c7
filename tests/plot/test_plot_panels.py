"""Plots in small panels: every plot is legible three inches wide, in any figure layout, alone and in a mosaic.

By default each plot is drawn once in each layout, alone and in a mosaic. SNNCELL_PANELS=all draws every plot in all
panels of a mosaic, with and without a title, and in mosaics of one column's width.
"""

import inspect
import itertools
import os
import warnings

import matplotlib as mpl
import numpy as np
import pytest

from snncell import monitoring, nn, plot, surrogate, train

mpl.use("Agg")
import matplotlib.pyplot as plt
from readable import overlap, shown_texts

RNG = np.random.default_rng(0)
T, B, N = 40, 6, 12
SPIKES = (RNG.random((T, B, N)) < np.linspace(0.0, 0.3, N)).astype(np.float32)
ALWAYS = np.ones((T, B, 4), np.float32)
LAYERS = {"lif1": SPIKES, "lif2": np.roll(SPIKES, 3, 0), "out": ALWAYS}
V = np.cumsum(RNG.normal(0, 0.2, (T, B, N)), 0)
GRADIENTS = {f"layer{n}": np.exp(RNG.normal(size=(T, 9)) - 0.1 * n * np.arange(T)[:, None]) for n in range(4)}
STRANGE = {**GRADIENTS, "silent": np.zeros((T, 1)), "broken": np.full((T, 1), np.nan)}
EPOCHS = 1.0 / np.arange(1, 21)
LOG = {"loss": EPOCHS, "test_loss": 1.2 * EPOCHS, "accuracy": 1 - 0.5 * EPOCHS, "test_accuracy": 1 - 0.6 * EPOCHS}
NET = nn.SequentialCell(nn.Dense(4, 5), nn.Dense(5, 3))
RATIOS = {f"layer{n}.weight": 10 ** RNG.normal(-3, 0.3, 50) for n in range(4)}
CLASSES = np.array(["left", "right", "left", "up", "right", "up"])
SHAPES = [surrogate.ATan(), surrogate.Sigmoid(), surrogate.Triangle()]
GUESSES = RNG.integers(0, 10, (2, 500))
RATES = np.logspace(-5, 0, 60)
SMOOTHED = 2.3 - 1.5 / (1 + (3e-3 / RATES) ** 2) + 4.0 * RATES**2
SEARCH = train.RateSearch(RATES, SMOOTHED * RNG.normal(1.0, 0.05, 60), SMOOTHED, 2e-3, False)
SPIKING = nn.SequentialCell(nn.Dense(4, 5), nn.MultiStep(nn.LIFNode()), nn.Dense(5, 3), nn.MultiStep(nn.LIFNode()))
ENERGY = monitoring.energy(SPIKING, RNG.random((6, 2, 4)).astype(np.float32))


def animated(**options):
    animation = plot.animate(SPIKES[:, 0], shape=(2, 2, 3), **options)
    animation._draw_was_started = True  # it is looked at frame by frame here, and need not be run
    return options["ax"]


# The plots: for each function one with little and one with much content next to the Axes.
PLOTS = {
    "raster": lambda **o: plot.raster(SPIKES[:, 0], **o),
    "raster, psth": lambda **o: plot.raster(SPIKES[:, 0], psth=5, **o),
    "raster, classes": lambda **o: plot.raster(SPIKES, neuron=11, classes=CLASSES, psth=5, **o),
    "raster, ten classes": lambda **o: plot.raster(SPIKES.reshape(T, -1)[:, :60], classes=np.arange(60) // 6, **o),
    "psth": lambda **o: plot.psth(SPIKES, **o),
    "psth, classes": lambda **o: plot.psth(SPIKES, classes=CLASSES, width=4, **o),
    "membrane": lambda **o: plot.membrane(V[:, 0, :3], SPIKES[:, 0, :3], 1.0, **o),
    "membrane, ten": lambda **o: plot.membrane(V[:, 0, :10], **o),
    "firing_rates": lambda **o: plot.firing_rates(LAYERS, **o),
    "dead_and_saturated": lambda **o: plot.dead_and_saturated(LAYERS, **o),
    "spike_time_differences": lambda **o: plot.spike_time_differences(SPIKES, np.roll(SPIKES, 2, 0), **o),
    "gradient_norms": lambda **o: plot.gradient_norms(GRADIENTS, **o),
    "gradient_flow": lambda **o: plot.gradient_flow(GRADIENTS, **o),
    "gradient_flow, broken": lambda **o: plot.gradient_flow(STRANGE, **o),
    "weight_histograms": lambda **o: plot.weight_histograms(NET, **o),
    "weight_histograms, before": lambda **o: plot.weight_histograms(NET, before=NET, **o),
    "gradient_to_weight": lambda **o: plot.gradient_to_weight(RATIOS, **o),
    "surrogate": lambda **o: plot.surrogate(SHAPES[0], **o),
    "surrogate, three": lambda **o: plot.surrogate(SHAPES, **o),
    "surrogate_and_membrane": lambda **o: plot.surrogate_and_membrane(V, SHAPES[2], **o),
    "training_curves": lambda **o: plot.training_curves(LOG, **o),
    "training_curves, loss": lambda **o: plot.training_curves({"loss": EPOCHS}, **o),
    "confusion_matrix": lambda **o: plot.confusion_matrix(*GUESSES, **o),
    "confusion_matrix, names": lambda **o: plot.confusion_matrix(*GUESSES % 4, ["left", "right", "up", "down"], **o),
    "learning_rate_search": lambda **o: plot.learning_rate_search(SEARCH, **o),
    "energy_by_layer": lambda **o: plot.energy_by_layer(ENERGY, **o),
    "energy_by_layer, both": lambda **o: plot.energy_by_layer(ENERGY, beside="both", **o),
    "animate": animated,
}
LAYOUTS = ("constrained", "tight", None)
ALL = os.environ.get("SNNCELL_PANELS") == "all"
# The minimum share of a panel's width and height for the Axes; images keep their aspect ratio.
WIDTH, HEIGHT = 0.45, 0.35


def test_every_plot_function_has_panel_cases():
    drawn = {
        name
        for name in plot.__all__
        if inspect.isfunction(getattr(plot, name)) and "ax" in signature(getattr(plot, name))
    }
    assert drawn == {name.split(",")[0] for name in PLOTS} - {"report"}


def signature(function):
    return inspect.signature(function).parameters


def draw(panels, names, title):
    """The figure of these panels, each with one plot; warnings are errors."""
    for axes, name in zip(panels, itertools.cycle(names), strict=False):
        assert PLOTS[name](ax=axes, title=title) is axes
    figure = panels[0].figure
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure.draw_without_rendering()
    return figure


def look(panels, names, title, width, height, least=(WIDTH, HEIGHT)):
    """The layout faults of the panels, each of the given size in inches."""
    layout = panels[0].figure.get_layout_engine()
    before = [axes.get_position().frozen() for axes in panels]
    figure = draw(panels, names, title)
    wrong = []
    for axes, name, was in zip(panels, itertools.cycle(names), before, strict=False):
        box = axes.get_window_extent()
        shares = box.width / figure.dpi / width, box.height / figure.dpi / height
        image = name.split(",")[0] in ("confusion_matrix", "animate")
        if max(shares) < max(least) if image else (shares[0] < least[0] or shares[1] < least[1]):
            wrong.append(f"{name} keeps {shares[0]:.2f} x {shares[1]:.2f} of its panel")
        if title is not None and axes.get_title() != title:
            wrong.append(f"{name} is called {axes.get_title()!r}")
        if layout is None and not (was.x0 - 1e-6 <= axes.get_position().x0 and axes.get_position().y1 <= was.y1 + 1e-6):
            wrong.append(f"{name} leaves its place")
    boxes = [(text.get_text(), text.get_window_extent()) for text in shown_texts(figure)]
    if layout is not None:
        page = figure.bbox
        wrong += [f"{text!r} is cut off" for text, box in boxes if not within(box, page)]
        pairs = itertools.combinations(boxes, 2)
        wrong += [f"{a!r} lies over {b!r}" for (a, first), (b, second) in pairs if overlap(first, second)]
    else:
        for axes, name in zip(panels, itertools.cycle(names), strict=False):
            key = axes.get_legend()
            if key is not None and not within(key.get_window_extent(), axes.bbox):
                wrong.append(f"the key of {name} is not inside")
    return wrong


def within(box, page):
    return box.x0 >= page.x0 - 1 and box.y0 >= page.y0 - 1 and box.x1 <= page.x1 + 1 and box.y1 <= page.y1 + 1


@pytest.mark.uncompiled
@pytest.mark.sampled(10)
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("name", PLOTS)
def test_plot_is_legible_in_three_inch_panel(name, layout):
    for title in ("a", None) if ALL else ("a",):
        axes = plt.subplots(figsize=(3.0, 2.2), layout=layout, dpi=72)[1]
        assert not look([axes], [name], title, 3.0, 2.2)


# Adjacent plots, chosen so that each is in a corner once.
FOURS = [list(PLOTS)[n::7] for n in range(7)]


@pytest.mark.uncompiled
@pytest.mark.sampled(2)
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("names", [[name] for name in PLOTS] if ALL else FOURS, ids=",".join)
def test_adjacent_plots_are_legible(names, layout):
    for title in ("(a)", None) if ALL else ("(a)",):
        panels = plt.subplots(2, 2, figsize=(7.0, 5.0), layout=layout, dpi=72)[1].ravel()
        assert not look(panels, names, title, 3.5, 2.5, (0.4, 0.3))


@pytest.mark.parametrize("layout", ["constrained", "tight"])
@pytest.mark.parametrize("names", [[name] for name in PLOTS] if ALL else [["raster, psth"]], ids=",".join)
def test_four_plots_fit_in_one_column(names, layout):
    panels = plt.subplots(2, 2, figsize=(3.3, 3.3), layout=layout, dpi=72)[1].ravel()
    assert not [line for line in look(panels, names, "a", 1.65, 1.65, (0.2, 0.2)) if " keeps " in line]


@pytest.mark.uncompiled
@pytest.mark.sampled(8)
@pytest.mark.parametrize("name", PLOTS)
def test_user_title_is_unchanged(name):
    for title in ("(a)  $x + y$: 3\n  b", ""):
        assert PLOTS[name](ax=plt.figure(figsize=(3.0, 2.2)).add_subplot(), title=title).get_title() == title


TITLES = {
    "hid: 57 spikes, 0.178 per neuron and step": "hid: 57 spikes,\n0.178 per neuron and step",
    "hid: 0.0195 % of neuron-steps out of reach": "hid: 0.0195 % of\nneuron-steps out of reach",
    "1: 161 spikes, 0.268 per neuron and step": "1: 161 spikes,\n0.268 per neuron and step",
    "a_layer_with_a_very_long_name.lif1: 5 spikes, 0.25 per neuron and step": (
        "a_layer_with_a_very_long_name.lif1\n5 spikes, 0.25 per neuron and step"
    ),
    "an_even_longer_name_that_does_not_fit_on_a_line: 3": "an_even_longer_name_that_does_not_fit_on_a_line\n3",
    "lif1: 5 spikes": "lif1: 5 spikes",
    "x" * 60: "x" * 60,
}


@pytest.mark.parametrize("line", TITLES)
def test_long_title_is_broken_into_lines_of_similar_length(line):
    from snncell.plot.axes import break_line

    assert break_line(line, 36) == TITLES[line]


@pytest.mark.parametrize("name", ["h", "hid", "lif_layer", "encoder.hidden.lif", "a" * 40])
@pytest.mark.parametrize("share", ["5.67 %", "0.0195 %", "100 %"])
@pytest.mark.parametrize("letters", [20, 26, 36, 50])
def test_no_title_line_is_a_single_word(name, share, letters):
    from snncell.plot.axes import break_line

    line = f"{name}: {share} of neuron-steps out of reach"
    lines = break_line(line, letters).split("\n")
    assert "".join(lines).replace(" ", "").replace(":", "") == line.replace(" ", "").replace(":", "")
    assert max(map(len, lines)) <= max(letters, len(name))
    assert not any(part.endswith(":") or part.startswith("%") for part in lines)
    assert min(map(len, lines[1:]), default=9) > 7


# --- position of the legend -------------------------------------------------------------------------------------------


def key_of(layout, draw, size=(3.3, 2.2)):
    """The Axes, and the box of their legend in Axes coordinates."""
    figure, axes = plt.subplots(figsize=size, layout=layout)
    draw(axes)
    figure.draw_without_rendering()
    return axes, axes.get_legend().get_window_extent().transformed(axes.transAxes.inverted())


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("falls", [True, False])
def test_legend_is_inside_empty_region_of_axes(layout, falls):
    lines = np.linspace(5.0, 0.0, 20) if falls else np.linspace(0.0, 5.0, 20)
    _, box = key_of(layout, lambda ax: plot.training_curves({"loss": lines}, ax))
    assert box.x0 >= 0 and box.x1 <= 1 and box.y0 >= 0 and box.y1 <= 1
    drawn = np.stack([np.linspace(0, 1, 400), np.linspace(1, 0, 400) if falls else np.linspace(0, 1, 400)], 1)
    assert not ((drawn > box.min) & (drawn < box.max)).all(1).any()


@pytest.mark.parametrize("layout", ["constrained", "tight"])
def test_legend_is_below_full_axes(layout):
    full = {"a": np.tile([0.0, 5.0], 40), "b": np.tile([5.0, 0.0], 40)}
    box = key_of(layout, lambda ax: plot.membrane(np.stack([*full.values()], 1), ax=ax))[1]
    assert box.y1 < 0


@pytest.mark.sampled(2)
@pytest.mark.parametrize("layout", ["constrained", "tight"])
@pytest.mark.parametrize("size", [(6.0, 6.0), (7.0, 5.0), (7.0, 7.0)])
def test_legend_of_training_curves_does_not_cover_curves(layout, size):
    both = {"firing_rate": 0.2 + 0.0 * EPOCHS, "test_firing_rate": 0.21 + 0.0 * EPOCHS}
    log = {**LOG, "loss": np.linspace(2.0, 0.2, 20), "test_loss": np.linspace(2.0, 0.3, 20), **both}
    figure, panels = plt.subplots(2, 2, figsize=size, layout=layout)
    axes = plot.training_curves(log, ax=panels[0, 1])
    figure.draw_without_rendering()
    key = axes.get_legend().get_window_extent()
    assert len(axes.get_legend().get_texts()) == 7
    assert key.y1 < axes.get_window_extent().y0 and within(key, figure.bbox)
    assert not [
        text for text in shown_texts(figure) if text.axes is panels[1, 1] and overlap(key, text.get_window_extent())
    ]


def test_legend_covers_full_axes_without_layout_engine():
    full = np.stack([np.tile([0.0, 5.0], 40), np.tile([5.0, 0.0], 40)], 1)
    axes, box = key_of(None, lambda ax: plot.membrane(full, ax=ax))
    assert box.y0 >= 0 and box.y1 <= 1 and axes.get_legend().get_frame().get_alpha() == 0.8
