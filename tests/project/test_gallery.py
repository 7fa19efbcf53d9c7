"""Gallery: every figure has its script and caption, figures are legible, and captions agree with the data."""

from __future__ import annotations

import ast
import sys
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image
from readable import APART, assert_readable

from snncell import plot

PLOTS = Path(__file__).parents[2] / "plots"
# Before the training that most of them show, which needs the compiler, so that a list of names does not.
specification = spec_from_file_location("gallery_build", PLOTS / "build.py")
assert specification is not None and specification.loader is not None
build = module_from_spec(specification)
specification.loader.exec_module(build)
NAMES = build.names()


def source(name: str) -> ast.Module:
    return ast.parse((PLOTS / f"{name}.py").read_text(encoding="utf-8"))


@cache
def drawn(name: str) -> Figure:
    """The figures of the script, drawn once for all tests."""
    with plt.rc_context():  # a script may choose a style
        figure = build.load(name).main()
    plt.close("all")
    return figure


# --- files ------------------------------------------------------------------------------------------------------------


def test_figures_and_scripts_correspond():
    pictures = {path.name for kind in ("png", "gif") for path in PLOTS.glob(f"*.{kind}")}
    assert pictures == {build.picture(name) for name in NAMES}
    assert len(pictures) >= 14


@pytest.mark.parametrize("name", NAMES)
def test_script_is_short_and_describes_figure(name):
    text = (PLOTS / f"{name}.py").read_text(encoding="utf-8")
    assert 15 <= len(text.splitlines()) <= 45
    words = ast.get_docstring(source(name))
    assert words and words.endswith(".") and 60 < len(words) < 360
    assert any(isinstance(node, ast.FunctionDef) and node.name == "main" for node in source(name).body)


@pytest.mark.parametrize("name", NAMES)
def test_figure_has_column_or_page_width_and_small_size(name):
    path = PLOTS / build.picture(name)
    with Image.open(path) as picture:
        if path.suffix == ".gif":
            assert picture.n_frames > 10
            assert path.stat().st_size < 400_000
        else:
            assert picture.size[0] in (660, 1400)  # 3.3 and 7 inches, 200 dots each
            assert path.stat().st_size < 250_000


def test_gallery_page_shows_every_figure_with_its_caption():
    page = build.page()
    for name in NAMES:
        words = " ".join((ast.get_docstring(source(name)) or "").split())
        assert f"](../plots/{build.picture(name)})\n\n{words} [`{name}.py`](../plots/{name}.py)\n" in page
    assert build.PAGE.read_text(encoding="utf-8") == page, "written anew by: python plots/build.py --page"


# --- figures ----------------------------------------------------------------------------------------------------------


@pytest.mark.sampled(1)
@pytest.mark.compiled
@pytest.mark.parametrize("name", NAMES)
def test_script_draws_legible_figure(name):
    figure = drawn(name)
    assert isinstance(figure, Figure)
    assert figure.get_size_inches()[0] in (3.3, 7.0)
    assert_readable(figure.axes[0], widest=7.0)


@pytest.mark.slow
@pytest.mark.compiled
def test_two_builds_give_same_pixels(tmp_path):
    for folder, names in (("first", ["reset_detached", "spike_codes"]), ("again", ["spike_codes", "reset_detached"])):
        build.main([*names, "--folder", str(tmp_path / folder)])
    for name in ("reset_detached", "spike_codes"):
        first, again = (np.asarray(Image.open(tmp_path / folder / f"{name}.png")) for folder in ("first", "again"))
        np.testing.assert_array_equal(first, again)


def test_unknown_figure_name_exits_with_message(capsys):
    with pytest.raises(SystemExit):
        build.main(["rastr"])
    assert "unknown picture rastr; the pictures are" in capsys.readouterr().err


def test_too_large_figure_exits_with_message(monkeypatch, tmp_path):
    monkeypatch.setattr(build, "SIZE", (1000, 1000))
    with pytest.raises(SystemExit, match=r"surrogates\.png has \d+ bytes, more than the limit of 1000"):
        build.build("surrogates", tmp_path)


def test_loading_gallery_shadows_no_module():
    for name in NAMES:
        build.load(name)
    assert not {"build", *NAMES} & {key for key, module in sys.modules.items() if str(PLOTS) in str(module)}


# --- captions ---------------------------------------------------------------------------------------------------------


def shared(name: str):
    build.load("raster")  # which brings the folder onto the path
    return getattr(__import__("trained"), name)


@pytest.mark.slow
@pytest.mark.compiled
def test_neuron_by_class_figure_separates_three_digits():
    axes = drawn("raster_by_class").axes
    least, less, most = sorted(patch.get_data().values.mean() for patch in axes[1].patches)
    assert 1.5 * less < most and 3 * least < less


@pytest.mark.compiled
def test_layer_statistics_agree_with_captions():
    monitor = shared("recorded")()
    spikes1, spikes2 = monitor.spikes["layer1"], monitor.spikes["layer2"]
    assert spikes1[0].any() and not spikes2[0, 0].any() and spikes2[1, 0].any()
    rates = [monitor.rates(layer) for layer in ("layer1", "layer2")]
    # A training's last bits, and so its spikes, depend on the BLAS of the machine: the second layer's is 1/8 on some.
    assert all(np.median(rate) < 1 / 6 for rate in rates) and rates[0].max() > 0.9
    steps = [np.sqrt((g**2).sum((1, 2))) for g in monitor.grad.values()]
    assert all(g[0] > 4 * g[-1] for g in steps)
    rises = monitor.v["layer3"][-1, 0]
    assert rises.argmax() == shared("images")(1)[1][0]


@pytest.mark.compiled
def test_small_weights_silence_deep_layers_and_larger_ones_do_not():
    left, right = drawn("dead_neurons").axes
    dead = [[bar.get_width() for bar in ax.containers[0]] for ax in (left, right)]
    assert dead[0][-1] == 1.0 and max(dead[1]) < 0.2


@pytest.mark.compiled
def test_narrow_surrogate_reaches_few_potentials():
    above = shared("recorded")().above["layer2"]
    triangle = build.load("surrogate_fit").surrogate.Triangle
    assert plot.share_outside(above, triangle(width=0.05)) > 0.8
    assert plot.share_outside(above, triangle(width=1.0)) < 0.05


@pytest.mark.compiled
def test_gradient_flow_of_surrogate_widths_agrees_with_captions():
    narrow, middle, wide = (heat(ax) for ax in drawn("surrogate_widths").axes[:3])
    assert narrow[0].mean() < 0.01 * narrow[-1].mean() and wide[0].mean() > 10 * wide[-1].mean()
    assert narrow[0].mean() < middle[0].mean() < wide[0].mean()
    strong, weak = (heat(ax) for ax in drawn("gradient_flow").axes[:2])
    assert strong[0, 0] > 100 * strong[0, 30] and weak[0, 0] < 5 * weak[0, 30]


def heat(axes):
    """(layers, steps), from the first layer, which is at the bottom of the figure."""
    return np.asarray(axes.collections[0].get_array())


@pytest.mark.compiled
def test_exact_gradients_move_spikes_to_target_times():
    before, after = (abs(moments(ax)) for ax in drawn("spike_times").axes)
    assert before > 1.0 and after < 0.3


def moments(axes) -> float:
    """The mean of a histogram's absolute values."""
    values, edges, _ = axes.patches[0].get_data()
    return float((values * np.abs(edges[1:] + edges[:-1]) / 2).sum() / values.sum())


@pytest.mark.compiled
def test_reset_in_gradient_removes_gradient_of_early_steps():
    kept, detached = (line.get_ydata() for line in drawn("reset_detached").axes[0].lines)
    assert kept[0] < 1e-8 * kept[-1] and detached[0] > 1e-3 * detached[-1]


@pytest.mark.compiled
def test_high_learning_rate_leaves_band():
    left, right = drawn("learning_rates").axes
    usual, high = (np.concatenate([line.get_ydata() for line in ax.lines]) for ax in (left, right))
    assert np.nanmedian(usual) < 1e-2 and np.nanmin(high) > 1e-2


def test_channels_of_moving_digit_differ_in_grey():
    with Image.open(PLOTS / "moving_digit.gif") as picture:
        picture.seek(3)
        colours = picture.convert("L").getcolors(1 << 16)
    seen = sorted(grey for count, grey in colours if count > 600)
    assert max(np.diff(seen)) > 255 * APART
