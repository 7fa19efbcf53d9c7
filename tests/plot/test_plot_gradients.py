"""Plots of gradients and surrogates: drawn data, labels, legibility, and comparison with baseline images."""

from types import SimpleNamespace

import matplotlib as mpl
import numpy as np
import pytest
from readable import assert_drawn_where_asked, assert_readable, grey

import snncell
from snncell import Parameter, Tensor, errors, nn, ops, plot, surrogate
from snncell.ops.random import present_key

mpl.use("Agg")
from matplotlib.colors import LogNorm


def monitor(every: int = 1, surrogate_function=None, **recorded):
    """A replacement for a monitor, with the layer names of the first recording."""
    names = tuple(next(iter(recorded.values())))
    quantities = {"spikes": {}, "v": {}, "above": {}, "grad": {}} | recorded
    length = len(next(iter(next(iter(recorded.values())).values())))
    return SimpleNamespace(
        layers=names,
        steps=lambda name, kind: every * np.arange(length),
        cell=lambda name: SimpleNamespace(),
        spike_function=lambda name: surrogate_function,
        **quantities,
    )


def vanishing(steps=40, layers=4, samples=8):
    """Gradients that shrink towards earlier steps and layers."""
    rng = np.random.default_rng(0)
    found = {}
    for layer in range(layers):
        sizes = 10.0 ** (layer - layers - 0.08 * (layers - layer) / layers * np.arange(steps)[::-1])
        found[f"lif{layer + 1}"] = rng.normal(size=(steps, samples, 16)) * sizes[:, None, None]
    return found


def broken():
    """The same with zeros, NaN and infinity."""
    found = vanishing()
    found["lif1"][:6], found["lif2"][5:12] = 0.0, 0.0
    found["lif1"][30, 0, 0], found["lif1"][31, 2, 3] = np.nan, np.inf
    return found


def legend_of(axes):
    return [text.get_text() for text in axes.get_legend().get_texts()]


# --- norms ------------------------------------------------------------------------------------------------------------


def test_gradient_norms_count_nonfinite_values():
    gradient = np.ones((4, 2, 2))
    gradient[1, 0, 0], gradient[2] = np.nan, 0.0
    axes = plot.gradient_norms({"lif1": gradient, "lif2": np.ones((4, 3))})
    np.testing.assert_allclose(axes.lines[0].get_ydata(), [2.0, np.nan, np.nan, 2.0])
    assert legend_of(axes) == ["lif1 (1 NaN or inf)", "lif2"]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ([0.0, 0.0, 0.0], "lif1 (zero)"),
        ([0.0, np.nan, 0.0], "lif1 (1 NaN or inf, else zero)"),
        ([np.nan, np.inf, np.nan], "lif1 (3 NaN or inf)"),
        ([0.0, 1.0, 0.0], "lif1"),
    ],
)
def test_gradient_norms_name_layers_without_line(values, said):
    axes = plot.gradient_norms({"lif1": np.array(values)[:, None], "lif2": np.ones((3, 3))})
    assert legend_of(axes) == [said, "lif2"]


def test_gradient_norm_of_step_between_gaps_has_a_marker():
    gradient = np.ones(40)
    gradient[[9, 11]] = 0.0
    marked = plot.gradient_norms({"lif1": gradient}).lines[0].get_markevery()
    assert marked == sorted([*range(0, 40, 4), 10])


def test_gradient_norms_of_monitor_are_at_recorded_steps():
    axes = plot.gradient_norms(monitor(every=5, grad={"a": np.ones((3, 2, 2)), "b": np.full((3, 2, 2), 2.0)}))
    assert [list(line.get_xdata()) for line in axes.lines] == [[0, 5, 10]] * 2
    assert [list(line.get_ydata()) for line in axes.lines] == [[2.0] * 3, [4.0] * 3]


def test_norm_of_large_gradients_does_not_overflow():
    axes = plot.gradient_norms({"a": np.array([[3e200, 4e200], [3e-200, 4e-200]])})
    np.testing.assert_allclose(axes.lines[0].get_ydata(), [5e200, 5e-200], rtol=1e-12)


# --- heat map ---------------------------------------------------------------------------------------------------------


def test_gradient_flow_shows_norm_of_each_layer_and_step():
    gradients = vanishing(steps=7, layers=3)
    axes = plot.gradient_flow(gradients, title="flow")
    mesh = axes.collections[0]
    norms = [[np.linalg.norm(step) for step in gradient] for gradient in gradients.values()]
    np.testing.assert_allclose(mesh.get_array(), norms, rtol=1e-12)
    assert isinstance(mesh.norm, LogNorm)
    assert (axes.get_xlabel(), axes.get_title()) == ("time step", "flow")
    assert [text.get_text() for text in axes.get_yticklabels()] == ["lif1", "lif2", "lif3"]  # from below
    assert axes.get_ylim() == (-0.5, 2.5) and axes.get_xlim() == (-0.5, 6.5)
    assert axes.figure.axes[1].get_ylabel() == "gradient norm (L2)"
    assert axes.get_legend() is None  # nothing is hatched


@pytest.mark.parametrize("values", [(0.02, 3.0), (0.3, 0.9), (1.0, 1.0), (0.95, 1.05), (2.0, 30.0)])
def test_colour_range_spans_data_and_at_least_a_factor_of_two(values):
    axes = plot.gradient_flow({"a": np.array(values)})
    norm = axes.collections[0].norm
    middle = np.sqrt(np.prod(values))
    expected = values if values[1] >= 2 * values[0] else (middle / np.sqrt(2), middle * np.sqrt(2))
    np.testing.assert_allclose((norm.vmin, norm.vmax), expected)
    assert_readable(axes)


def test_tick_labels_within_a_decade_have_normal_size():
    axes = plot.gradient_norms({"a": np.array([0.3, 0.5, 0.9])})
    axes.figure.draw_without_rendering()
    numbers = [*axes.get_yticklabels(), *axes.get_yticklabels(minor=True)]
    assert {text.get_fontsize() for text in numbers if text.get_text()} == {7.0}


def test_colours_increase_in_brightness_in_grey():
    colours = mpl.colormaps[plot.gradient_flow(vanishing()).collections[0].get_cmap().name]
    values = [grey(colours(x)) for x in np.linspace(0, 1, 64)]
    assert (np.diff(values) > 0).all() and values[-1] - values[0] > 0.6


def test_zeros_and_nonfinite_values_are_hatched():
    axes = plot.gradient_flow(broken())
    boxes = {(patch.get_x(), patch.get_y(), patch.get_width()): patch.get_hatch() for patch in axes.patches}
    assert boxes == {(-0.5, -0.5, 6.0): "////", (4.5, 0.5, 7.0): "////", (29.5, -0.5, 2.0): "xxxx"}
    assert legend_of(axes) == ["zero", "NaN or inf"]
    masked = np.ma.getmaskarray(axes.collections[0].get_array())
    assert masked.sum() == 6 + 7 + 2 and masked[0, :6].all() and masked[1, 5:12].all() and masked[0, 30:32].all()


def test_gradient_flow_without_gradient_has_no_colour_bar():
    axes = plot.gradient_flow({"lif1": np.zeros((5, 3)), "lif2": np.zeros((5, 4, 4))})
    assert [patch.get_width() for patch in axes.patches] == [5.0, 5.0]
    assert legend_of(axes) == ["zero"]
    assert axes.figure.axes == [axes]
    axes.figure.draw_without_rendering()


def test_gradient_flow_of_monitor_has_a_column_per_recorded_step():
    axes = plot.gradient_flow(monitor(every=4, grad={"a": np.ones((3, 2, 2))}))
    assert axes.get_xlim() == (-2.0, 10.0)  # steps 0, 4, 8


def test_gradient_flow_of_one_step_is_drawn():
    axes = plot.gradient_flow(Tensor(np.ones((1, 4))))
    assert axes.get_xlim() == (-0.5, 0.5)
    np.testing.assert_array_equal(axes.collections[0].get_array(), [[2.0]])


def test_gradient_flow_of_many_layers_labels_some():
    axes = plot.gradient_flow({f"layer{n}": np.ones(3) for n in range(40)})
    names = [text.get_text() for text in axes.get_yticklabels()]
    assert len(names) <= 16 and names[:2] == ["layer0", "layer3"]
    assert list(axes.get_yticks()[:2]) == [0, 3]


def test_gradient_plots_with_invalid_data_raise():
    with pytest.raises(errors.ArgumentError, match="gradient_flow: there are no gradients to draw"):
        plot.gradient_flow({})
    with pytest.raises(errors.ShapeError, match=r"different numbers of steps \('a': 3, 'b': 4\)"):
        plot.gradient_flow({"a": np.ones((3, 1)), "b": np.ones((4, 1))})
    with pytest.raises(errors.ShapeError, match=r"gradient_norms: the gradient of 'a' must be \(T, \.\.\.\)"):
        plot.gradient_norms({"a": np.float32(1.0)})
    with pytest.raises(
        errors.ArgumentError, match=r"has not recorded 'grad'\. Record it with monitor\(net, grad=True\)"
    ):
        plot.gradient_flow(monitor(spikes={"a": np.ones((3, 1))}))


# --- spike functions --------------------------------------------------------------------------------------------------


class Tent(nn.Cell):
    """A custom spike function whose `bprop` needs a value that `construct` keeps."""

    def construct(self, x):
        self.save_for_bprop(ops.abs(x))
        return (x > 0).astype(x.dtype)

    def bprop(self, x, out, dout):
        (distance,) = self.saved_for_bprop
        return (dout * ops.relu(1.0 - distance),)


class WholeTent(Tent):
    """The same with its primitive."""

    def primitive(self, x):
        near = ops.clip(x, -1.0, 1.0)
        return near - near * ops.abs(near) / 2.0 + 0.5


def lines_of(axes):
    return {line.get_label(): (np.asarray(line.get_xdata()), np.asarray(line.get_ydata())) for line in axes.lines}


def test_surrogate_draws_spike_primitive_and_derivative():
    axes = plot.surrogate(WholeTent(), range=(-1.5, 1.5))
    lines = lines_of(axes)
    x, derivative = lines["WholeTent: derivative"]
    assert (x[0], x[-1]) == (-1.5, 1.5) == axes.get_xlim()
    np.testing.assert_allclose(derivative, np.maximum(0.0, 1.0 - np.abs(x)), atol=1e-12)
    np.testing.assert_array_equal(lines["WholeTent: spike"][1], x > 0)
    near = np.clip(x, -1, 1)
    np.testing.assert_allclose(lines["WholeTent: primitive"][1], near - near * np.abs(near) / 2 + 0.5, atol=1e-12)
    assert legend_of(axes) == ["spike", "primitive", "derivative"]
    assert (axes.get_title(), axes.get_xlabel()) == ("WholeTent", "potential minus threshold")


def test_spike_function_without_primitive_has_two_lines():
    axes = plot.surrogate(Tent())
    assert list(lines_of(axes)) == ["Tent: spike", "Tent: derivative"]
    assert legend_of(axes) == ["spike", "derivative"]


@pytest.mark.parametrize("name", [name for name in surrogate.__all__ if name not in ("Surrogate", "smooth")])
def test_every_spike_function_can_be_drawn(name):
    kind = getattr(surrogate, name)
    cell = kind(surrogate.ATan()) if name in ("Inclusive", "Scaled", "StochasticSpike") else kind()
    lines = lines_of(plot.surrogate(cell))
    x, derivative = lines[f"{name}: derivative"]
    assert len(lines) == 3 and all(np.isfinite(y).all() for _, y in lines.values())
    primitive = lines[f"{name}: primitive"][1]
    rise = np.cumsum((derivative[1:] + derivative[:-1]) / 2 * np.diff(x))
    np.testing.assert_allclose(rise, primitive[1:] - primitive[0], atol=0.02 * np.ptp(primitive))


def test_several_spike_functions_are_labelled_with_name_and_constants():
    axes = plot.surrogate([surrogate.Sigmoid(alpha=4.0), surrogate.Sigmoid(alpha=10.0), surrogate.ATan()])
    names = ["Sigmoid(alpha=4.0)", "Sigmoid(alpha=10.0)", "ATan"]
    assert legend_of(axes) == [*names, "spike", "primitive", "derivative"]
    assert len(axes.lines) == 9
    peaks = [lines_of(axes)[f"{name}: derivative"][1].max() for name in names]
    np.testing.assert_allclose(peaks, [1.0, 2.5, 1.0])
    assert legend_of(plot.surrogate([surrogate.ATan()] * 2))[:2] == ["ATan(alpha=2.0) 1", "ATan(alpha=2.0) 2"]
    assert legend_of(plot.surrogate({"narrow": surrogate.Rect(), "wide": Tent()}))[:2] == ["narrow", "wide"]


def test_plotting_stochastic_spike_function_keeps_random_state():
    before = present_key().asnumpy().copy()
    lines = lines_of(plot.surrogate(surrogate.StochasticSpike(surrogate.Sigmoid(alpha=4.0))))
    np.testing.assert_array_equal(present_key().asnumpy(), before)
    x, spike = lines["StochasticSpike: spike"]
    assert np.abs(spike - 1 / (1 + np.exp(-4.0 * x))).max() < 5 * 0.5 / 8  # five deviations of a mean of 64
    assert len(np.unique(spike)) > 20


def test_plotting_spike_function_triggers_no_hooks_or_monitors():
    cell, heard = WholeTent(), []
    cell.register_forward_hook(lambda *call: heard.append(call))
    plot.surrogate(cell)
    plot.surrogate_and_membrane(np.zeros(3), cell)
    assert not heard


def test_surrogate_with_array_constants_draws_their_mean():
    both = surrogate.Sigmoid(alpha=Parameter(np.array([2.0, 6.0], np.float32)))
    _, mean = lines_of(plot.surrogate(both))["Sigmoid: derivative"]
    each = [lines_of(plot.surrogate(surrogate.Sigmoid(alpha=alpha)))["Sigmoid: derivative"][1] for alpha in (2.0, 6.0)]
    np.testing.assert_allclose(mean, np.mean(each, axis=0), rtol=1e-6)


def test_surrogate_draws_step_inside_smooth_context():
    with surrogate.smooth():
        x, spike = lines_of(plot.surrogate(surrogate.ATan()))["ATan: spike"]
    np.testing.assert_array_equal(spike, x > 0)


def test_surrogate_plot_of_invalid_object_raises():
    with pytest.raises(
        errors.ArgumentError, match=r"surrogate: surrogate_function must be a spike function \(a Cell with a b"
    ):
        plot.surrogate(nn.Dense(1, 1))
    with pytest.raises(errors.ArgumentError, match=r"LIFNode is a neuron.*: neuron\.surrogate_function"):
        plot.surrogate(nn.LIFNode())
    with pytest.raises(errors.ArgumentError, match="there is no spike function to draw"):
        plot.surrogate([])
    with pytest.raises(
        errors.ArgumentError, match=r"range must be \(low, high\), two finite numbers that rise, not \(1, 1\)"
    ):
        plot.surrogate(surrogate.ATan(), range=(1, 1))


# --- potentials and derivative ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cell", "below", "wanted"),
    [
        (surrogate.Triangle(), 1e-3, 4 / 7),  # 1 - |x|: -3, -1, 1 and NaN get nothing
        (surrogate.Triangle(), 0.5, 5 / 7),  # -0.5 gets just half
        (surrogate.StraightThrough(), 1e-3, 1 / 7),
        (surrogate.Scaled(surrogate.Triangle(), 0.01), 1e-3, 4 / 7),  # of its own maximum
        (Tent(), 1e-3, 4 / 7),
    ],
)
def test_share_outside_counts_potentials_with_small_derivative(cell, below, wanted):
    above = Tensor([[-3.0, -1.0, -0.5, 0.0, 0.25, 1.0, np.nan]])
    assert plot.share_outside(above, cell, below) == pytest.approx(wanted)


def test_share_outside_is_one_without_any_gradient():
    class Nothing(Tent):
        def bprop(self, x, out, dout):
            return (ops.zeros_like(dout),)

    assert plot.share_outside(np.zeros((2, 3)), Nothing()) == 1.0


def test_share_outside_uses_maximum_of_each_neuron():
    each = surrogate.Scaled(surrogate.Triangle(width=Tensor(np.array([0.1, 10.0], np.float32))), 1.0)
    above = np.full((5, 4, 2), 1.0)  # (T, B, N): outside for the first neuron, inside for the second
    assert plot.share_outside(above, each) == 0.5


def test_share_outside_equals_formula(rng):
    above = rng.normal(-1.0, 1.0, (10, 8, 32)).astype(np.float32)
    slope = 1.0 / (1.0 + (np.pi * above) ** 2)  # ATan(alpha=2), whose largest value is 1
    assert plot.share_outside(above, surrogate.ATan(alpha=2.0), 0.1) == pytest.approx((slope <= 0.1).mean(), abs=1e-4)


def test_share_outside_with_invalid_arguments_raises():
    with pytest.raises(
        errors.ArgumentError, match=r"share_outside: there are no potentials in an array of shape \(0,\)"
    ):
        plot.share_outside(np.zeros(0), surrogate.ATan())
    with pytest.raises(errors.ArgumentError, match="share_outside: surrogate_function must be a spike function"):
        plot.share_outside(np.zeros(1), "ATan")


def test_surrogate_and_membrane_shows_all_potentials_and_share_in_title(rng):
    above = rng.normal(-1.5, 1.0, (10, 4, 25))
    given = {"lif1": Tensor(above.astype(np.float32))}
    axes = plot.surrogate_and_membrane(given, surrogate.Rect(), bins=30)
    values, edges, _ = axes.patches[0].get_data()
    assert len(values) == 30 and round(float(values.sum()) * above.size) == above.size
    middle = slice(1, -1)  # the outermost bins hold more
    counts = np.histogram(above.astype(np.float32), edges)[0][middle]
    np.testing.assert_allclose(values[middle] * above.size, counts, atol=1.0)  # at an edge one may go either way
    share = (np.abs(above) > 0.5).mean()
    assert axes.get_title() == f"lif1: {100 * share:.3g} % of neuron-steps out of reach"
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("potential minus threshold", "share of neuron-steps")


def test_surrogate_and_membrane_draws_derivative_on_separate_axis():
    axes = plot.surrogate_and_membrane(np.array([-2.0, 0.0, 1.5]), surrogate.Triangle())
    (right,) = [other for other in axes.figure.axes if other is not axes]
    (line,) = right.lines
    np.testing.assert_allclose(line.get_ydata(), np.maximum(0, 1 - np.abs(line.get_xdata())), atol=1e-6)
    assert right.get_ylabel() == "derivative"
    assert legend_of(axes) == ["potentials", "derivative", "out of reach (≤ 0.001 max)"]
    ground = axes.collections[0].get_paths()  # left and right of the triangle
    ends = sorted((path.vertices[:, 0].min(), path.vertices[:, 0].max()) for path in ground)
    np.testing.assert_allclose(ends, [(-2.0, -1.0), (1.0, 1.5)], atol=0.01)


def test_surrogate_and_membrane_explains_grey_only_if_present():
    axes = plot.surrogate_and_membrane(np.array([-2.0, 0.0, 1.5]), surrogate.ATan())
    assert legend_of(axes) == ["potentials", "derivative"]
    assert axes.collections[0].get_paths() == []


def test_surrogate_and_membrane_of_monitor_finds_spike_function(rng):
    above = {"lif1": rng.normal(size=(5, 2, 3)), "lif2": np.full((5, 2, 3), 0.9)}
    seen = monitor(above=above, surrogate_function=surrogate.Rect())
    axes = plot.surrogate_and_membrane(seen, layer="lif2")
    assert axes.get_title() == "lif2: 100 % of neuron-steps out of reach"
    axes = plot.surrogate_and_membrane(seen, surrogate.ATan(), layer="lif2")
    assert axes.get_title() == "lif2: 0 % of neuron-steps out of reach"


class Spike(nn.Cell):
    """A custom spike function; `steep` is its constant."""

    def __init__(self, steep=10.0):
        super().__init__()
        self.steep = steep

    def construct(self, x):
        return (x > 0).astype(x.dtype)

    def bprop(self, x, out, dout):
        return (dout / (1.0 + self.steep * ops.abs(x)) ** 2,)


class Adaptive(nn.Cell):
    """A neuron whose spike function has a custom name, next to another Cell with `bprop`."""

    def __init__(self, spike):
        super().__init__()
        self.unused = Spike(1e-6)
        self.spike = spike

    def construct(self, x, v):
        v = 0.9 * v + x
        s = self.spike(v - 1.0)
        return s, v - s

    def init_state(self, x):
        return ops.zeros_like(x)


class Inline(Adaptive):
    """A neuron that creates its spike function during the call."""

    def __init__(self):
        nn.Cell.__init__(self)

    def spike(self, x):
        return Spike(20.0)(x)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("jitted", [False, True])
@pytest.mark.parametrize(
    "neuron",
    [
        Adaptive(Spike(20.0)),
        Adaptive(surrogate.ATan()),
        Adaptive(surrogate.Sigmoid(alpha=Parameter(Tensor(4.0)))),
        Adaptive(surrogate.Inclusive(surrogate.ATan())),
        Inline(),
        nn.LIFNode(surrogate_function=Spike(20.0)),
    ],
    ids=lambda neuron: f"{type(neuron).__name__}",
)
def test_surrogate_and_membrane_finds_spike_function_of_any_name(neuron, jitted):
    net = nn.MultiStep(neuron)
    run = snncell.jit(net) if jitted else net
    for _ in range(2):  # the second replays what the first has traced
        with snncell.monitor(net, above=True) as m:
            run(ops.uniform((6, 2, 3), 0.0, 1.0))
        within, name = neuron.name_cells(), m.layers[0]
        cell = within.get("surrogate_function") or within.get("spike") or Spike(20.0)
        assert type(m.spike_function(name)) is type(cell)
        axes, wanted = plot.surrogate_and_membrane(m), plot.surrogate_and_membrane(m.above[name], cell)
        right, expected = (each.figure.axes[-1].lines[0].get_xydata() for each in (axes, wanted))
        np.testing.assert_array_equal(right, expected)


def test_surrogate_and_membrane_puts_outliers_in_last_bin():
    above = np.concatenate([np.zeros(9990), np.full(5, 1e6), np.full(5, -1e6)])
    axes = plot.surrogate_and_membrane(above, surrogate.ATan(), bins=10)
    values, edges, _ = axes.patches[0].get_data()
    assert (edges[0], edges[-1]) == (-1.0, 1.0)
    assert values[0] == values[-1] == 5 / 10000


def test_surrogate_and_membrane_counts_nonfinite_values():
    axes = plot.surrogate_and_membrane(np.array([0.0, 0.1, np.nan, np.inf]), surrogate.Triangle())
    assert axes.get_title().replace("\n", " ") == "50 % of neuron-steps out of reach (2 NaN or inf)"


def test_surrogate_and_membrane_with_invalid_data_raises():
    with pytest.raises(
        errors.ArgumentError, match=r"an array has no spike function\. .* surrogate_function=surrogate\.ATan"
    ):
        plot.surrogate_and_membrane(np.zeros(3))
    with pytest.raises(errors.ArgumentError, match=r"no finite potential in an array of shape \(2,\)"):
        plot.surrogate_and_membrane(np.full(2, np.nan), surrogate.ATan())
    with pytest.raises(errors.ArgumentError, match="choose one of the layers 'a', 'b'"):
        plot.surrogate_and_membrane({"a": np.zeros(2), "b": np.zeros(2)}, surrogate.ATan())
    with pytest.raises(errors.ArgumentError, match="bins is an integer of at least 1, not 0"):
        plot.surrogate_and_membrane(np.zeros(3), surrogate.ATan(), bins=0)
    with pytest.raises(errors.ArgumentError, match="below is a finite number above 0, not -1"):
        plot.share_outside(np.zeros(3), surrogate.ATan(), below=-1)


# --- appearance -------------------------------------------------------------------------------------------------------


def potentials():
    return np.random.default_rng(0).normal(-1.5, 1.0, (20, 16, 64)).astype(np.float32)


PICTURES = {
    "gradient_norms": lambda **on: plot.gradient_norms(broken(), title="gradient of the loss", **on),
    "gradient_flow": lambda **on: plot.gradient_flow(broken(), title="gradient of the loss", **on),
    "gradient_flow_deep": lambda **on: plot.gradient_flow(vanishing(100, 24, 1), **on),
    "surrogate": lambda **on: plot.surrogate(surrogate.ATan(), **on),
    "surrogates": lambda **on: plot.surrogate([surrogate.ATan(), WholeTent(), surrogate.SuperSpike()], **on),
    "surrogate_at_random": lambda **on: plot.surrogate(surrogate.StochasticSpike(), **on),
    "surrogate_narrow": lambda **on: plot.surrogate_and_membrane(potentials(), surrogate.Rect(), title="lif1", **on),
    "surrogate_wide": lambda **on: plot.surrogate_and_membrane(0.3 * potentials(), surrogate.ATan(), **on),
}


@pytest.mark.parametrize("name", PICTURES)
def test_figures_are_legible_on_paper(name):
    assert_readable(PICTURES[name]())


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", PICTURES)
@pytest.mark.mpl_image_compare(savefig_kwargs={"dpi": 80})
def test_figures_match_baseline(name):
    return PICTURES[name]().figure


@pytest.mark.parametrize("name", PICTURES)
def test_figures_are_drawn_on_given_axes(name):
    assert_drawn_where_asked(PICTURES[name])
