"""Energy plot: bar lengths, title, legibility, and comparison with baseline images."""

import dataclasses

import matplotlib as mpl
import numpy as np
import pytest

mpl.use("Agg")
from readable import assert_drawn_where_asked, assert_readable

from snncell import errors, monitoring, nn, plot
from snncell.energy.estimate import KINDS, joules_of
from snncell.monitoring import Counts, Work


def dense(name, rows, columns, spikes, steps=20):
    """The work of a dense layer for a given number of input spikes."""
    synops, whole = columns * spikes, rows * columns
    spiking = Counts(acs=synops, weights_read=synops, states_read=synops, states_written=synops, events_read=spikes)
    once = Counts(macs=whole, weights_read=whole, values_read=rows, values_written=columns)
    return Work(name, nn.Dense(1, 1), whole, columns, rows, columns, spiking, once.times(steps), once)


def neurons(name, count, fired, steps=20):
    updates = steps * count
    step = Counts(
        updates=updates, multiplications=updates, additions=4 * updates, states_read=updates, states_written=updates
    )
    spiking, whole = Counts(events_written=fired), Counts(values_read=updates, values_written=updates)
    return Work(name, nn.LIFNode(), 0, count, count, count, step + spiking, step + whole, Counts(additions=count))


def energy_of(works, hardware="45nm", baseline=None):
    machine = monitoring.HARDWARE[hardware]
    other = machine if baseline is None else monitoring.HARDWARE[baseline]
    layers = {
        work.name: monitoring.LayerEnergy(
            work, joules_of(work.spiking, work, machine), joules_of(work.dense, work, other),
            joules_of(work.one_pass, work, other),
        )
        for work in works
    }  # fmt: skip
    return monitoring.Energy(machine, other, 8, 20, True, layers)


NET = (
    dense("dense1", 700, 128, 900), dense("layer1.cell.feedback", 128, 128, 200), neurons("layer1", 128, 200),
    dense("dense2", 128, 64, 200), neurons("layer2", 64, 90), dense("readout", 64, 10, 90),
)  # fmt: skip
DEEP = [
    work
    for n in range(8)
    for work in (dense(f"encoder.{n}.dense", 64, 64, 90 + n), neurons(f"encoder.{n}.lif", 64, 90 + n))
]

PICTURES = {
    "energy": lambda **o: plot.energy_by_layer(energy_of(NET), **o),
    "energy_both": lambda **o: plot.energy_by_layer(energy_of(NET), beside="both", title="spoken digits", **o),
    "energy_alone": lambda **o: plot.energy_by_layer(energy_of(NET, "45nm-int8"), beside=None, **o),
    "energy_chip": lambda **o: plot.energy_by_layer(energy_of(NET, "loihi", "45nm-int8"), **o),
    "energy_deep": lambda **o: plot.energy_by_layer(energy_of(DEEP), **o),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", PICTURES)
def test_figures_are_legible_at_column_width_and_in_grey(name):
    axes = PICTURES[name]()
    assert axes.figure.get_figwidth() == 3.3
    for dots in (80, 200):  # letters are broader where there are few
        axes.figure.set_dpi(dots)
        assert_readable(axes)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", PICTURES)
@pytest.mark.mpl_image_compare(savefig_kwargs={"dpi": 80})
def test_figures_match_baseline(name):
    return PICTURES[name]().figure


@pytest.mark.parametrize("name", PICTURES)
def test_figures_are_drawn_on_given_axes(name):
    assert_drawn_where_asked(PICTURES[name])


@pytest.mark.parametrize("beside", ["one_pass", "dense", "both", None])
def test_bar_lengths_equal_energies_of_weights_and_neurons(beside):
    energy = energy_of(NET)
    axes = plot.energy_by_layer(energy, beside=beside)
    shown = {"both": ("spiking", "dense", "one_pass"), None: ("spiking",)}.get(beside, ("spiking", beside))
    groups = [("dense1", "layer1.cell.feedback", "layer1"), ("dense2", "layer2"), ("readout",)]
    expected = [
        sum(getattr(energy.layers[name], execution)[kind] for name in group for kind in KINDS)
        for group in groups
        for execution in shown
    ]
    rows = sorted({round(bar.get_y(), 6) for bar in axes.patches})
    lengths = [sum(bar.get_width() for bar in axes.patches if round(bar.get_y(), 6) == row) for row in rows]
    unit = {"energy per sample (µJ)": 1e-6, "energy per sample (nJ)": 1e-9}[axes.get_xlabel()]
    np.testing.assert_allclose(np.array(lengths) * unit, expected)
    names = {"dense": "20 steps, dense", "one_pass": "ANN, one pass"}
    expected = [names.get(execution, f"{group[-1]}, spiking") for group in groups for execution in shown]
    assert [text.get_text() for text in axes.get_yticklabels()] == expected


def test_title_has_totals_and_both_machines():
    energy = energy_of(NET, "loihi", "45nm")
    spiking, one_pass = plot.energy_by_layer(energy).get_title().split("\n")
    assert spiking.startswith("loihi, spiking: ") and one_pass.startswith("45nm, ANN, one pass: ")
    assert plot.energy_by_layer(energy, beside=None).get_title() == spiking
    assert plot.energy_by_layer(energy, title="mine").get_title() == "mine"


def test_legend_omits_kinds_without_cost():
    texts = {
        text.get_text() for text in plot.energy_by_layer(energy_of(NET, "loihi"), beside=None).get_legend().get_texts()
    }
    assert texts == {"ACs", "neurons"}


def test_invalid_energy_raises():
    with pytest.raises(errors.ArgumentError, match="energy_by_layer: energy is an Energy, not"):
        plot.energy_by_layer(np.ones(3))
    with pytest.raises(errors.ArgumentError, match=r"energy_by_layer: energy\.layers is empty"):
        plot.energy_by_layer(dataclasses.replace(energy_of(NET), layers={}))
    with pytest.raises(errors.ArgumentError, match='energy_by_layer: beside is "one_pass", "dense" or "both"'):
        plot.energy_by_layer(energy_of(NET), beside="ann")
