"""Plot functions: drawn data, labels, and names with characters that Matplotlib treats specially."""

import io

import matplotlib as mpl
import numpy as np
import pytest
from random_cases import random_cases

from snncell import Tensor, errors, monitoring, nn, plot, surrogate

mpl.use("Agg")
import matplotlib.pyplot as plt


def test_raster_has_a_mark_for_every_spike():
    spikes = np.zeros((6, 4), np.float32)
    spikes[[0, 3, 5], [1, 3, 0]] = 1.0
    axes = plot.raster({"layer": Tensor(spikes)})
    marks = axes.collections[0].get_offsets()
    np.testing.assert_array_equal(np.sort(marks, axis=0), np.sort([[0, 1], [3, 3], [5, 0]], axis=0))
    assert axes.get_title() == "layer: 3 spikes, 0.125 per neuron and step"
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("time step", "neuron")
    assert axes.get_xlim() == (-0.5, 5.5)


def test_raster_without_spikes_is_empty():
    axes = plot.raster(np.zeros((3, 2)))
    assert len(axes.collections[0].get_offsets()) == 0


def test_membrane_plot_shows_lines_spikes_and_threshold():
    v = np.array([[0.2, 0.9], [1.2, 0.1], [0.3, 1.1]])
    axes = plot.membrane(v, v > 1.0, v_threshold=1.0, labels=["a", "b"])
    lines = {line.get_label(): line for line in axes.lines}
    np.testing.assert_array_equal(lines["a"].get_ydata(), v[:, 0])
    np.testing.assert_array_equal(lines["b"].get_ydata(), v[:, 1])
    assert set(lines["threshold"].get_ydata()) == {1.0}
    triangles = [line for line in axes.lines if line.get_label() == "_spikes"]
    assert [(list(t.get_xdata()), list(t.get_ydata())) for t in triangles] == [([1], [1.2]), ([2], [1.1])]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["a", "b", "threshold"]


def test_many_membranes_have_distinct_styles():
    axes = plot.membrane(np.random.default_rng(0).random((5, 20)), neurons=range(20))
    assert len({(line.get_color(), line.get_linestyle()) for line in axes.lines}) == 20


def test_gradient_norms_equal_norms_and_omit_zeros():
    gradient = np.zeros((3, 2, 2))
    gradient[1] = 3.0
    gradient[2, 0, 0] = 5.0
    axes = plot.gradient_norms({"layer 1": gradient})
    np.testing.assert_allclose(axes.lines[0].get_ydata(), [np.nan, 6.0, 5.0])
    assert axes.get_yscale() == "log"


def test_plots_draw_on_given_axes():
    _, axes = plt.subplots()
    assert plot.raster(np.ones((2, 2)), ax=axes) is axes
    assert plot.membrane(np.ones((2, 2)), ax=axes, title="v") is axes
    assert plot.gradient_norms({"a": np.ones((2, 2))}, ax=axes, title="g") is axes
    assert axes.get_title() == "g"


def test_invalid_data_raise():
    with pytest.raises(errors.ShapeError, match=r"raster: takes \(T, N\), not shape \(2, 3, 4\)"):
        plot.raster(np.zeros((2, 3, 4)))
    with pytest.raises(errors.ShapeError, match=r"v has shape .* they must agree"):
        plot.membrane(np.zeros((2, 3)), np.zeros((2, 4)))
    with pytest.raises(errors.ArgumentError, match="no gradients to draw"):
        plot.gradient_norms({})


# --- names that users give to cells, classes and curves are drawn as they are, whatever matplot -----------------------

RNG = np.random.default_rng(0)
SPIKES = (RNG.random((12, 3, 5)) < 0.3).astype(np.float32)
CURRENTS = RNG.normal(size=(12, 3, 5)).astype(np.float32)
# An invalid formula, one that Matplotlib cannot read, and names that it hides from legends, wraps, or escapes.
NAMES = [
    r"$\frac{$",
    "$",
    "a$b",
    "$$",
    r"$\nothing$",
    "$x_1$",
    "_hidden",
    r"\alpha",
    "a%b_{c}",
    "two\nlines",
    "a name of more words",
]


class Net(nn.Cell):
    """A net with a layer of any name."""

    def __init__(self, name):
        super().__init__()
        self.dense = nn.Dense(5, 4)
        self.insert_child_to_cell(name, nn.MultiStep(nn.LIFNode()))
        self.__dict__["named"] = name
        self.last = nn.Dense(4, 3)

    def construct(self, x):
        return self.last(getattr(self, self.__dict__["named"])(self.dense(x))).sum(0)


def page(name, folder):
    if "." in name or not name.replace("\n", "").strip():
        return None
    x, y = Tensor(np.abs(CURRENTS) * 3), Tensor(np.array([0, 1, 2], np.int32))
    plot.report(Net(name), (x, y), nn.CrossEntropyLoss(), path=folder / "page.html", title=name)
    return None


def energy(name, folder):
    return plot.energy_by_layer(monitoring.energy(Net(name), Tensor(np.abs(CURRENTS) * 3)), title=name)


def cell_of(name):
    return type(name, (surrogate.ATan,), {})()


PLOTS = {
    "raster": lambda name, _: plot.raster({name: SPIKES}, layer=name, sample=0),
    "raster, classes": lambda name, _: plot.raster(
        SPIKES[:, 0], title=name, classes=[name, "b", name, "b", "c"], psth=3
    ),
    "membrane": lambda name, _: plot.membrane(CURRENTS[:, 0, :2], labels=[name, "b"], title=name),
    "psth": lambda name, _: plot.psth({name: SPIKES}, title=name, layer=name, width=3),
    "firing_rates": lambda name, _: plot.firing_rates({name: SPIKES, "b": SPIKES}, title=name),
    "dead_and_saturated": lambda name, _: plot.dead_and_saturated({name: SPIKES, "b": SPIKES}, title=name),
    "gradient_flow": lambda name, _: plot.gradient_flow({name: CURRENTS, "b": CURRENTS}, title=name),
    "gradient_norms": lambda name, _: plot.gradient_norms({name: CURRENTS, "b": CURRENTS}, title=name),
    "weight_histograms": lambda name, _: plot.weight_histograms({name: CURRENTS, "b": CURRENTS}, title=name),
    "surrogate": lambda name, _: plot.surrogate([cell_of(name), surrogate.ATan()], title=name),
    "confusion_matrix": lambda name, _: plot.confusion_matrix([0, 1, 1], [0, 1, 0], [name, "b"], title=name),
    "training_curves": lambda name, _: plot.training_curves({name: [1.0, 2.0], "loss": [2.0, 1.0]}, title=name),
    "spike_time_differences": lambda name, _: plot.spike_time_differences(
        SPIKES, SPIKES[::-1], title=name, labels=(name, "b")
    ),
    "energy_by_layer": energy,
    "report": page,
}


@pytest.mark.sampled(3)
@random_cases(16)
def test_names_with_special_characters_are_drawn_literally(seed, tmp_path):
    pairs = [(of, name) for name in NAMES for of in PLOTS]
    of, name = pairs[np.random.default_rng(seed // len(pairs)).permutation(len(pairs))[seed % len(pairs)]]
    axes = PLOTS[of](name, tmp_path)
    if axes is not None:
        axes.figure.savefig(io.BytesIO(), dpi=40)
        plt_close(axes.figure)


def test_report_of_cell_with_invalid_formula_as_name_is_written(tmp_path):
    page(NAMES[0], tmp_path)
    assert r"$\frac{$" in (tmp_path / "page.html").read_text(encoding="utf-8")


def plt_close(figure):
    import matplotlib.pyplot as plt

    plt.close(figure)


@pytest.mark.parametrize("of", ["membrane", "gradient_norms", "training_curves", "firing_rates", "surrogate"])
def test_name_with_leading_underscore_is_in_legend(of, tmp_path):
    axes = PLOTS[of]("_hidden", tmp_path)
    names = [text.get_text().strip() for text in axes.get_legend().get_texts()]
    plt_close(axes.figure)
    assert any(name.startswith(("_hidden", "hidden")) for name in names), names
