"""Pictures are checked by their meaning: what was drawn, where, and what it says."""

import matplotlib as mpl
import numpy as np
import pytest

from snncell import Tensor, errors, plot

mpl.use("Agg")
import matplotlib.pyplot as plt


def test_a_raster_has_a_mark_for_every_spike():
    spikes = np.zeros((6, 4), np.float32)
    spikes[[0, 3, 5], [1, 3, 0]] = 1.0
    axes = plot.raster({"layer": Tensor(spikes)})
    marks = axes.collections[0].get_offsets()
    np.testing.assert_array_equal(np.sort(marks, axis=0), np.sort([[0, 1], [3, 3], [5, 0]], axis=0))
    assert axes.get_title() == "layer: 3 spikes, 0.125 per neuron and step"
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("time step", "neuron")
    assert axes.get_xlim() == (-0.5, 5.5)


def test_a_raster_without_spikes_is_empty_not_an_error():
    axes = plot.raster(np.zeros((3, 2)))
    assert len(axes.collections[0].get_offsets()) == 0


def test_membranes_show_lines_spikes_and_the_threshold():
    v = np.array([[0.2, 0.9], [1.2, 0.1], [0.3, 1.1]])
    axes = plot.membrane(v, v > 1.0, v_threshold=1.0, labels=["a", "b"])
    lines = {line.get_label(): line for line in axes.lines}
    np.testing.assert_array_equal(lines["a"].get_ydata(), v[:, 0])
    np.testing.assert_array_equal(lines["b"].get_ydata(), v[:, 1])
    assert set(lines["threshold"].get_ydata()) == {1.0}
    triangles = [line for line in axes.lines if line.get_label() == "_spikes"]
    assert [(list(t.get_xdata()), list(t.get_ydata())) for t in triangles] == [([1], [1.2]), ([2], [1.1])]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["a", "b", "threshold"]


def test_many_membranes_can_be_told_apart():
    axes = plot.membrane(np.random.default_rng(0).random((5, 20)), neurons=range(20))
    assert len({(line.get_color(), line.get_linestyle()) for line in axes.lines}) == 20


def test_gradient_norms_are_the_norms_and_leave_zeros_out():
    gradient = np.zeros((3, 2, 2))
    gradient[1] = 3.0
    gradient[2, 0, 0] = 5.0
    axes = plot.gradient_norms({"layer 1": gradient})
    np.testing.assert_allclose(axes.lines[0].get_ydata(), [np.nan, 6.0, 5.0])
    assert axes.get_yscale() == "log"


def test_plots_draw_on_the_axes_they_are_given():
    _, axes = plt.subplots()
    assert plot.raster(np.ones((2, 2)), ax=axes) is axes
    assert plot.membrane(np.ones((2, 2)), ax=axes, title="v") is axes
    assert plot.gradient_norms({"a": np.ones((2, 2))}, ax=axes, title="g") is axes
    assert axes.get_title() == "g"


def test_plots_refuse_what_does_not_fit():
    with pytest.raises(errors.ShapeError, match=r"raster: takes \(T, N\), not shape \(2, 3, 4\)"):
        plot.raster(np.zeros((2, 3, 4)))
    with pytest.raises(errors.ShapeError, match=r"v has shape .* they must agree"):
        plot.membrane(np.zeros((2, 3)), np.zeros((2, 4)))
    with pytest.raises(errors.ArgumentError, match="no gradients to draw"):
        plot.gradient_norms({})
