"""Estimate the energy of a net from its operations and memory accesses, compared with the same net without spikes.

The picture of it, `energy_by_layer`, is drawn here too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np

from snncell.base.arguments.shown import show
from snncell.cell.cell import Cell
from snncell.energy.counts import (
    Cost,
    Counts,
    Work,
    extent_of,
    find_uncounted,
    mean_steps,
    tally_of,
    work_of_neurons,
    work_of_weights,
)
from snncell.energy.hardware import Hardware, hardware_of
from snncell.errors import ArgumentError, RecordError
from snncell.monitoring.layers import Neurons
from snncell.monitoring.monitor import Monitor
from snncell.monitoring.recorder import Array, Recorded, RecordedCall
from snncell.plot.axes import SMALL, axes_or_new, axes_size, label_axis, legend, name_rows, set_title, text_width
from snncell.tape.state import recording_on

Execution = Literal["spiking", "dense", "one_pass"]
EXECUTIONS = ("spiking", "dense", "one_pass")
KINDS = ("MACs", "ACs", "neurons", "weights", "states", "inputs and outputs")
_PICO = 1e-12


def joules_of(counts: Counts, work: Work, hardware: Hardware) -> dict[str, float]:
    """The energy, in J, of the counts of a layer by kind."""
    equations = counts.multiplications * hardware.multiplication + counts.additions * hardware.addition
    events = hardware.event_bytes * (
        counts.events_read * hardware.access(work.inputs * hardware.event_bytes)
        + counts.events_written * hardware.access(work.outputs * hardware.event_bytes)
    )
    values = hardware.value_bytes * (
        counts.values_read * hardware.access(work.inputs * hardware.value_bytes)
        + counts.values_written * hardware.access(work.outputs * hardware.value_bytes)
    )
    moved = bytes_of(counts, hardware)
    energies = (
        counts.macs * hardware.mac,
        counts.acs * hardware.ac,
        equations if hardware.update is None else counts.updates * hardware.update,
        moved["weights"] * hardware.access(work.weights * hardware.weight_bytes),
        moved["states"] * hardware.access(work.states * hardware.state_bytes),
        events + values,
    )
    return {kind: energy * _PICO for kind, energy in zip(KINDS, energies, strict=True)}


def bytes_of(counts: Counts, hardware: Hardware) -> dict[str, float]:
    """The bytes that the counts of a layer read and write, by what they are."""
    return {
        "weights": counts.weights_read * hardware.weight_bytes,
        "states": (counts.states_read + counts.states_written) * hardware.state_bytes,
        "inputs and outputs": (counts.events_read + counts.events_written) * hardware.event_bytes
        + (counts.values_read + counts.values_written) * hardware.value_bytes,
    }


@dataclass(frozen=True)
class LayerEnergy:
    """The energy of a layer, in J per sample, by kind.

    Attributes:
        work: the operations and accesses that it is made of.
        spiking: of the net as it is, event-driven.
        dense: of the same steps with all products.
        one_pass: of an ANN of the same layers in one pass.
    """

    work: Work
    spiking: Mapping[str, float]
    dense: Mapping[str, float]
    one_pass: Mapping[str, float]


@dataclass(frozen=True, repr=False)
class Energy:
    """An estimate of the energy that a net takes for a sample, beside the same net without spikes.

    E = sum over kinds of operations and accesses of (how many) (energy of one), from counts of a call of the net and
    the table of a `Hardware`. Three executions are told apart:

    spiking: event-driven; an input of 0 costs nothing, a spike reads its weights and adds them to sums.
    dense: the same steps with all products, as a machine that does not look for spikes makes them.
    one_pass: an ANN of the same layers without time: all products once, an activation function for each neuron.

    It is an estimate of arithmetic and accesses: docs/energy.md says what it leaves out.

    Attributes:
        hardware: of the spiking net.
        baseline: of the other two.
        samples, steps: of the call that was counted; samples may be shorter.
        unseen: spiking layers that run their time steps themselves, and are not counted here.
        mean_steps: the mean number of steps of a sample, which is what is counted.
        reuse: whether dense products keep what they have read.
        layers: by path, weights and neurons in the order in which they were called.
        uncounted: weights that no layer counted here holds: neither accesses to them nor their spikes are counted.
        untraced: neurons whose equations could not be traced, and so cost no arithmetic here.
    """

    hardware: Hardware
    baseline: Hardware
    samples: int
    steps: int
    reuse: bool
    layers: Mapping[str, LayerEnergy]
    uncounted: tuple[str, ...] = ()
    untraced: tuple[str, ...] = ()
    mean_steps: float = 0.0
    unseen: tuple[str, ...] = ()

    @property
    def joules(self) -> float:
        """Of the spiking net, in J per sample."""
        return sum(self.by_kind().values())

    @property
    def dense(self) -> float:
        """Of the same steps with all products, in J per sample."""
        return sum(self.by_kind("dense").values())

    @property
    def one_pass(self) -> float:
        """Of an ANN of the same layers in one pass, in J per sample."""
        return sum(self.by_kind("one_pass").values())

    @property
    def synops(self) -> float:
        """Synaptic operations per sample: products whose input is not 0."""
        return sum(layer.work.spiking.macs + layer.work.spiking.acs for layer in self.layers.values())

    def by_kind(self, execution: Execution = "spiking") -> dict[str, float]:
        """The energy of all layers, in J per sample: "MACs", "ACs", "neurons", "weights", "states", ..."""
        _refuse_execution(execution)
        return _sum_by_kind([getattr(layer, execution) for layer in self.layers.values()], KINDS)

    def bytes(self, execution: Execution = "spiking") -> dict[str, float]:
        """The bytes per sample that all layers read and write, of "weights", "states" and "inputs and outputs"."""
        _refuse_execution(execution)
        hardware = self.hardware if execution == "spiking" else self.baseline
        parts = [bytes_of(getattr(layer.work, execution), hardware) for layer in self.layers.values()]
        return _sum_by_kind(parts, KINDS[3:])

    def counts(self, execution: Execution = "spiking") -> Counts:
        """The operations and accesses of all layers, per sample."""
        _refuse_execution(execution)
        return sum((getattr(layer.work, execution) for layer in self.layers.values()), Counts())

    def __repr__(self) -> str:
        steps = f"{self.mean_steps or self.steps:.4g}"
        shorter = "" if steps == f"{self.steps}" else f"{steps} steps on average, at most "
        beside = "" if self.baseline is self.hardware else f" on {self.baseline.name}"
        lines = [
            f"Energy per sample on {self.hardware.name}, an estimate: {in_units(self.joules)}; {self.samples} "
            f"sample{'' if self.samples == 1 else 's'} of {shorter}{self.steps} step{'' if self.steps == 1 else 's'}",
            *_table(self),
        ]
        for passes, other in ((f"{steps} passes", self.dense), ("one pass", self.one_pass)):
            ratio = f"{other / self.joules:.3g} times as much" if self.joules > 0 else "the spiking net takes nothing"
            lines.append(f"without spikes{beside}, {passes}: {in_units(other)}, {ratio}")
        left_out = {"weights not followed": self.uncounted, "spiking layers not counted": self.unseen}
        left_out["equations not counted"] = self.untraced
        return "\n".join(lines + [f"{what}: {', '.join(names)}" for what, names in left_out.items() if names])


def _refuse_execution(execution: Any) -> None:
    if execution not in EXECUTIONS:
        raise ArgumentError(f"Energy: execution is one of {', '.join(map(repr, EXECUTIONS))}, not {show(execution)}.")


def _sum_by_kind(parts: Sequence[Mapping[str, float]], kinds: Sequence[str]) -> dict[str, float]:
    return {kind: sum(part[kind] for part in parts) for kind in kinds}


# --- in words ---------------------------------------------------------------------------------------------------------


_UNITS = ((1.0, "J"), (1e-3, "mJ"), (1e-6, "µJ"), (1e-9, "nJ"), (_PICO, "pJ"))


def _unit_of(joules: float) -> tuple[float, str]:
    return next((unit for unit in _UNITS if joules >= 0.9995 * unit[0]), _UNITS[-1])


def in_units(joules: float) -> str:
    """An energy with a unit: "12.3 nJ"."""
    scale, unit = _unit_of(joules)
    return f"{joules / scale:.3g} {unit}"


def _table(energy: Energy) -> list[str]:
    head = ["layer", "MACs", "ACs", "updates", "bytes moved", "spiking", "dense", "one pass"]
    rows = [head]
    for name, layer in energy.layers.items():
        counts = layer.work.spiking
        moved = f"{sum(bytes_of(counts, energy.hardware).values()):,.0f}" if energy.hardware.memories else "-"
        numbers = [*(f"{number:,.0f}" for number in (counts.macs, counts.acs, counts.updates)), moved]
        energies = [in_units(sum(part.values())) for part in (layer.spiking, layer.dense, layer.one_pass)]
        rows.append([f"{name} ({type(layer.work.cell).__name__})", *numbers, *energies])
    wide = [max(len(row[n]) for row in rows) for n in range(len(head))]
    parts = ([row[0].ljust(wide[0]), *(x.rjust(w) for x, w in zip(row[1:], wide[1:], strict=True))] for row in rows)
    return ["  ".join(part) for part in parts]


# --- of a recorded call -----------------------------------------------------------------------------------------------


def estimate_energy(
    neurons: Neurons,
    call: RecordedCall,
    spikes: Recorded,
    there: Callable[[str], Array | None],
    hardware: Hardware,
    baseline: Hardware,
    reuse: bool,
) -> Energy:
    """Estimate the energy of a recorded call: `spikes` of its neurons, `there` the steps before a sample's end."""
    works, untraced, cells = [], [], neurons.paths
    for name in call.order:
        if name in call.inputs:
            works.append(work_of_weights(name, cells[name], tally_of(cells[name], name, call), call, reuse))
            continue
        if name not in call.series.get("spikes", ()):
            raise RecordError(
                f"monitor: energy needs the spikes of every layer, and those of {name!r} were not recorded: "
                f"monitor(net, inputs=True), which records spikes too unless it is told not to."
            )
        cell = call.updates[name][0].cell
        work, traced = work_of_neurons(name, cell, call, spikes[name], there(name))
        works.append(work)
        untraced += [] if traced else [name]
    samples, steps = extent_of(call)
    layers = {
        work.name: LayerEnergy(
            work,
            joules_of(work.spiking, work, hardware),
            joules_of(work.dense, work, baseline),
            joules_of(work.one_pass, work, baseline),
        )
        for work in works
    }
    weighted = [cells[name] for name in call.inputs]
    mean = mean_steps(call.lengths_of(next(iter(call.updates))), steps) if call.updates else float(steps)
    left = find_uncounted(neurons.net, weighted)
    return Energy(hardware, baseline, samples, steps, reuse, layers, left, tuple(untraced), mean, neurons.unseen)


def energy_estimator(hardware: Any, baseline: Any, reuse: bool) -> Callable[..., Energy]:
    """Check the hardware, and return `estimate_energy` for it, which `Monitor.energy` calls."""
    own = hardware_of(hardware, "monitor.energy")
    other = hardware_of(baseline or own, "monitor.energy", "baseline")
    return partial(estimate_energy, hardware=own, baseline=other, reuse=reuse)


def layer_costs(neurons: Neurons, call: RecordedCall) -> dict[str, Cost]:
    """The cost of each layer with weights in a recorded call."""
    return {name: tally_of(neurons.paths[name], name, call).cost() for name in call.inputs}


def synops_per_sample(neurons: Neurons, call: RecordedCall) -> float:
    """The synaptic operations of all layers with weights in a recorded call, per sample."""
    return sum(tally_of(neurons.paths[name], name, call).synops for name in call.inputs) / extent_of(call)[0]


# --- of a net on data -------------------------------------------------------------------------------------------------


def energy(
    net: Cell, *inputs: Any, hardware: Any = "45nm", baseline: Any = None, reuse: bool = True, **options: Any
) -> Energy:
    """Estimate the energy that a net takes for a sample of data: run it once, count, and multiply by a table.

    It is `Monitor.energy` of the call `net(*inputs, **options)`.

    Args:
        net: the network.
        inputs: as for a call of it, (T, B, ...); several samples give their mean.
        hardware: a name of `HARDWARE`, or a `Hardware`.
        baseline: the same, of the net without spikes; the same hardware if it is left out.
        reuse: whether the dense products of the baseline keep what they have read, so that each weight, input and
            output goes through memory once a pass; else each multiply-accumulate reads its weight and its input.
        options: further arguments of the call by name, such as `lengths`.

    Returns:
        An `Energy`: `.joules` per sample, by layer and kind, beside the same net without spikes.

    Raises:
        ArgumentError: for unknown hardware, a net that is no Cell or has no neurons, or within a monitor.
        RecordError: an ArgumentError, if no layer ran.

    Example:
        >>> net = nn.SequentialCell(nn.Dense(4, 3, weight_init=0.5, has_bias=False), nn.MultiStep(nn.IFNode()))
        >>> spikes = ops.eye(4).reshape((4, 1, 4))  # (T, B, N), one at each step
        >>> found = snncell.energy.energy(net, spikes, hardware="loihi")
        >>> found.synops, round(found.joules * 1e12, 1)  # 12 of 23.6 pJ, and 12 updates of 81 pJ
        (12.0, 1255.2)
    """
    chosen = hardware_of(hardware, "energy")
    beside = chosen if baseline is None else hardware_of(baseline, "energy", "baseline")
    with recording_on(None), Monitor(net, inputs=True) as monitor:
        net(*inputs, **options)
    estimate: Energy = monitor.energy(chosen, beside, reuse)
    return estimate


def synops(net: Cell, *inputs: Any, **options: Any) -> float:
    """Count the synaptic operations of a net for a sample of data: products of its layers whose input is not 0.

    Args:
        net: the network.
        inputs: as for a call of it, (T, B, ...); several samples give their mean.
        options: further arguments of the call by name, such as `lengths`.

    Raises:
        ArgumentError: for a net that is no Cell or has no neurons, or within a monitor.
        RecordError: an ArgumentError, if no layer with weights ran.

    Example:
        >>> net = nn.SequentialCell(nn.Dense(4, 3), nn.MultiStep(nn.IFNode()))
        >>> snncell.energy.synops(net, ops.eye(4).reshape((4, 1, 4)))  # four spikes, each to 3 neurons
        12.0
    """
    with recording_on(None), Monitor(net, spikes=False, inputs=True) as monitor:
        net(*inputs, **options)
    return monitor.synops()


# Arithmetic is dark and plain, memory light or hatched, so that the two are told apart in grey.
_LOOKS = {
    "MACs": {"facecolor": "#000000", "hatch": ""},
    "ACs": {"facecolor": "#0072B2", "hatch": ""},
    "neurons": {"facecolor": "#009E73", "hatch": "\\\\\\\\"},
    "weights": {"facecolor": "#E69F00", "hatch": "////"},
    "states": {"facecolor": "#56B4E9", "hatch": "...."},
    "inputs and outputs": {"facecolor": "#F0F0F0", "hatch": ""},
}
_BESIDE: dict[Any, tuple[str, ...]] = {"both": ("dense", "one_pass"), None: ()}  # else the one that is named
_THICK = 0.8  # of a row
_APART = 0.5  # rows between layers


def energy_by_layer(
    energy: Energy,
    ax: Any = None,
    title: str | None = None,
    *,
    beside: Literal["one_pass", "dense", "both"] | None = "one_pass",
) -> Any:
    """Draw the energy of each layer as a stacked bar of its kinds, beside that of the same layer without spikes.

    A layer is its weights and the neurons behind them, and has the name of the neurons. Plain parts of a bar are
    arithmetic, light or hatched ones memory; the number at its end is the sum, per sample.

    Args:
        energy: what `monitoring.energy`, or `Monitor.energy`, gave.
        ax: the Axes to draw on; a new one if it is left out.
        title: above it; left out, the sums of all layers.
        beside: "one_pass", an ANN of the same layers without time; "dense", the same steps with all products; "both";
            or None, the spiking net alone.

    Raises:
        ArgumentError: for what is no Energy, or another `beside`.
    """
    if not energy.layers:
        raise ArgumentError("energy_by_layer: there are no layers to draw: energy.layers is empty.")
    executions = ("spiking", *_BESIDE.get(beside, (str(beside),)))
    names = {"dense": f"{energy.steps} steps, dense", "one_pass": "ANN, one pass"}
    # A layer is its weights with the neurons that come next, by the name of those.
    layers: dict[str, list[LayerEnergy]] = {}
    waiting: dict[str, LayerEnergy] = {}
    for name, layer in energy.layers.items():
        waiting[name] = layer
        if layer.work.spiking.updates:
            layers[name], waiting = list(waiting.values()), {}
    layers |= {name: [layer] for name, layer in waiting.items()}
    rows, labels, bars = [], [], []
    for number, (name, parts) in enumerate(layers.items()):
        for place, execution in enumerate(executions):
            rows.append(number * (len(executions) + _APART) + place)
            labels.append(f"{name}, spiking" if execution == "spiking" else names[execution])
            bars.append([sum(getattr(part, execution)[kind] for part in parts) for kind in KINDS])
    axes = axes_or_new(ax, height=1.2 + 0.1 * len(executions) + 0.155 * (rows[-1] + 1))
    _draw_bars(axes, np.array(rows), np.array(bars))
    name_rows(axes, rows, labels)
    legend(axes, inside=False)
    totals = [f"{energy.hardware.name}, spiking: {in_units(energy.joules)}"]
    other = "" if energy.baseline.name == energy.hardware.name else f"{energy.baseline.name}, "
    totals += [f"{other}{names[each]}: {in_units(getattr(energy, each))}" for each in executions[1:]]
    set_title(axes, title, "\n".join(totals))
    return axes


def _draw_bars(axes: Any, rows: Any, bars: Any) -> None:
    """Stacked bars, with their sums at the end; kinds that cost nothing anywhere have no place in the key."""
    sums = bars.sum(1)
    longest = float(sums.max()) or 1e-12
    scale, unit = _unit_of(longest)
    left = np.zeros(len(rows))
    for column, kind in enumerate(KINDS):
        lengths = bars[:, column] / scale
        if lengths.any():
            style = {"height": _THICK, "edgecolor": "0.2", "linewidth": 0.5, **_LOOKS[kind]}
            axes.barh(rows, lengths, left=left, label=kind, **style)
        left += lengths
    texts = [in_units(total) for total in sums]
    for row, total, text in zip(rows, sums, texts, strict=True):
        options = {"xytext": (3, 0), "textcoords": "offset points", "va": "center", "fontsize": SMALL}
        axes.annotate(text, (total / scale, row), **options)
    beside = 6.0 + max(text_width(text, SMALL) for text in texts)
    wide = max(axes_size(axes)[0] - 60.0, 2.0 * beside)  # points: names of rows stand on the left
    axes.set_xlim(0.0, longest / scale * wide / (wide - beside))
    axes.set_ylim(rows[-1] + 0.7, -0.7)
    label_axis(axes.xaxis, f"energy per sample ({unit})", f"energy ({unit})", unit)
