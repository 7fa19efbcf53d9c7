"""Estimate the energy of a network, compare it with the same network without spikes, and plot it by layer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np

from snncell.base.arguments.shown import cut_lines, join_parts, show, titled_table
from snncell.cell.cell import Cell
from snncell.energy import counts as counting
from snncell.energy.counts import Cost, Counts, Work, extent_of, mean_steps, tally_of
from snncell.energy.hardware import Hardware, hardware_of
from snncell.errors import ArgumentError, RecordError
from snncell.monitoring.layers import Neurons
from snncell.monitoring.monitor import Monitor, Recorded
from snncell.monitoring.recorder import Array, RecordedCall
from snncell.plot.axes import axes_or_new, label_axis, legend, name_rows, set_title, stacked_bars
from snncell.tape.state import recording_on

Execution = Literal["spiking", "dense", "one_pass"]
EXECUTIONS = ("spiking", "dense", "one_pass")
KINDS = ("MACs", "ACs", "neurons", "weights", "states", "inputs and outputs")
_PICO = 1e-12


def joules_of(counts: Counts, work: Work, hardware: Hardware) -> dict[str, float]:
    """The energy of a layer by kind, in J, for counts of one way to compute it."""
    equations = counts.multiplications * hardware.multiplication + counts.additions * hardware.addition
    events = hardware.event_bytes, counts.events_read, counts.events_written
    values = hardware.value_bytes, counts.values_read, counts.values_written
    ends = sum(
        size * (read * hardware.access(work.inputs * size) + written * hardware.access(work.outputs * size))
        for size, read, written in (events, values)
    )
    moved = bytes_of(counts, hardware)
    energies = (
        counts.macs * hardware.mac,
        counts.acs * hardware.ac,
        equations if hardware.update is None else counts.updates * hardware.update,
        moved["weights"] * hardware.access(work.weights * hardware.weight_bytes),
        moved["states"] * hardware.access(work.states * hardware.state_bytes),
        ends,
    )
    return {kind: energy * _PICO for kind, energy in zip(KINDS, energies, strict=True)}


def bytes_of(counts: Counts, hardware: Hardware) -> dict[str, float]:
    """The bytes that a layer reads and writes, by kind."""
    return {
        "weights": counts.weights_read * hardware.weight_bytes,
        "states": (counts.states_read + counts.states_written) * hardware.state_bytes,
        "inputs and outputs": (counts.events_read + counts.events_written) * hardware.event_bytes
        + (counts.values_read + counts.values_written) * hardware.value_bytes,
    }


@dataclass(frozen=True)
class LayerEnergy:
    """The energy of a layer by kind, in J per sample.

    Attributes:
        work: the operations and accesses behind the estimate.
        spiking, dense, one_pass: energies of the three ways to compute the layer, as in `Energy`.
    """

    work: Work
    spiking: Mapping[str, float]
    dense: Mapping[str, float]
    one_pass: Mapping[str, float]


@dataclass(frozen=True, repr=False)
class Energy:
    """An energy estimate per sample, for a spiking network and for the same network without spikes.

    E = sum of count * energy of one, over the kinds of operations and memory accesses

    Counts come from a call of the network, energies from a `Hardware`. There are three ways to compute the network:

    spiking: event-driven. An input of 0 costs nothing; a spike reads its weights and adds them to sums.
    dense: the same steps with all products, on a machine that does not look for spikes.
    one_pass: an ANN of the same layers without time: all products once, an activation function for each neuron.

    The estimate covers arithmetic and memory accesses; docs/energy.md lists what it leaves out.

    Attributes:
        hardware: the hardware of the spiking network.
        baseline: the hardware of `dense` and `one_pass`.
        samples, steps: the number of samples and time steps of the counted call. A sample may have fewer steps.
        mean_steps: the mean number of steps of a sample, without padding; only these are counted.
        reuse: True if dense products read each weight once per pass.
        layers: a mapping from paths to the energies of layers with weights and of neurons, in the order of their calls.
        uncounted: paths of weights that belong to no counted layer, and of attention layers. The estimate leaves out
            the products and accesses of these weights, and the products of q, k and v.
        untraced: neurons whose arithmetic is not counted, because their equations could not be traced.
        unseen: spiking layers that are not counted, because they run their time steps themselves.
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
        """Energy of the spiking network, in J per sample."""
        return sum(self.by_kind().values())

    @property
    def dense(self) -> float:
        """Energy of the same steps with all products, in J per sample."""
        return sum(self.by_kind("dense").values())

    @property
    def one_pass(self) -> float:
        """Energy of an ANN of the same layers in one pass, in J per sample."""
        return sum(self.by_kind("one_pass").values())

    @property
    def synops(self) -> float:
        """Synaptic operations per sample: products whose input is not 0."""
        return sum(layer.work.spiking.macs + layer.work.spiking.acs for layer in self.layers.values())

    def by_kind(self, execution: Execution = "spiking") -> dict[str, float]:
        """Energy of all layers by kind, in J per sample: "MACs", "ACs", "neurons", "weights", "states", ..."""
        _refuse_execution(execution)
        return _sum_by_kind([getattr(layer, execution) for layer in self.layers.values()], KINDS)

    def bytes(self, execution: Execution = "spiking") -> dict[str, float]:
        """Bytes per sample that all layers read and write: "weights", "states" and "inputs and outputs"."""
        _refuse_execution(execution)
        hardware = self.hardware if execution == "spiking" else self.baseline
        parts = [bytes_of(getattr(layer.work, execution), hardware) for layer in self.layers.values()]
        return _sum_by_kind(parts, KINDS[3:])

    def counts(self, execution: Execution = "spiking") -> Counts:
        """Operations and accesses of all layers, per sample."""
        _refuse_execution(execution)
        return sum((getattr(layer.work, execution) for layer in self.layers.values()), Counts())

    def __repr__(self) -> str:
        steps = f"{self.mean_steps or self.steps:.4g}"
        shorter = "" if steps == f"{self.steps}" else f"{steps} steps on average, at most "
        beside = "" if self.baseline is self.hardware else f" on {self.baseline.name}"
        lines = [
            f"Energy per sample on {self.hardware.name}, an estimate: {in_units(self.joules)}; {self.samples} "
            f"sample{'' if self.samples == 1 else 's'} of {shorter}{self.steps} step{'' if self.steps == 1 else 's'}",
            *cut_lines(_text_table(self)),
        ]
        for passes, other in ((f"{steps} passes", self.dense), ("one pass", self.one_pass)):
            ratio = f"{other / self.joules:.3g} times as much" if self.joules > 0 else "the spiking net needs none"
            lines.append(f"without spikes{beside}, {passes}: {in_units(other)}, {ratio}")
        left_out = zip(_LEFT_OUT, (self.uncounted, self.unseen, self.untraced), strict=True)
        return "\n".join(lines + [f"{words}: {', '.join(names)}" for words, names in left_out if names])

    def _repr_html_(self) -> str:
        """For notebooks: a table of the layers."""
        first, *_ = lines = repr(self).splitlines()
        table = titled_table(first, _HEAD, _rows(self), numbers=len(_HEAD) - 1)
        return join_parts([table, "\n".join(line for line in lines if line.startswith(("without", *_LEFT_OUT)))])


def _refuse_execution(name: Any) -> None:
    if name not in EXECUTIONS:
        raise ArgumentError(f"Energy: execution must be one of {', '.join(map(repr, EXECUTIONS))}, not {show(name)}.")


def _sum_by_kind(parts: Sequence[Mapping[str, float]], kinds: Sequence[str]) -> dict[str, float]:
    return {kind: sum(part[kind] for part in parts) for kind in kinds}


# --- text -------------------------------------------------------------------------------------------------------------


_UNITS = ((1.0, "J"), (1e-3, "mJ"), (1e-6, "µJ"), (1e-9, "nJ"), (_PICO, "pJ"))


def _unit_of(joules: float) -> tuple[float, str]:
    return next((unit for unit in _UNITS if joules >= 0.9995 * unit[0]), _UNITS[-1])


def in_units(joules: float) -> str:
    """An energy with a unit: "12.3 nJ"."""
    scale, unit = _unit_of(joules)
    return f"{joules / scale:.3g} {unit}"


_HEAD = ("layer", "MACs", "ACs", "updates", "bytes moved", "spiking", "dense", "one pass")
_LEFT_OUT = ("products not counted", "spiking layers not counted", "equations not counted")


def _rows(energy: Energy) -> list[list[str]]:
    rows = []
    for name, layer in energy.layers.items():
        counts = layer.work.spiking
        moved = f"{sum(bytes_of(counts, energy.hardware).values()):,.0f}" if energy.hardware.memories else "-"
        numbers = [*(f"{number:,.0f}" for number in (counts.macs, counts.acs, counts.updates)), moved]
        energies = [in_units(sum(part.values())) for part in (layer.spiking, layer.dense, layer.one_pass)]
        rows.append([f"{name} ({type(layer.work.cell).__name__})", *numbers, *energies])
    return rows


def _text_table(energy: Energy) -> list[str]:
    rows: list[Sequence[str]] = [_HEAD, *_rows(energy)]
    wide = [max(map(len, column)) for column in zip(*rows, strict=True)]
    parts = ([row[0].ljust(wide[0]), *(x.rjust(w) for x, w in zip(row[1:], wide[1:], strict=True))] for row in rows)
    return ["  ".join(part) for part in parts]


# --- estimates from a recorded call -----------------------------------------------------------------------------------


def estimate_energy(
    neurons: Neurons,
    call: RecordedCall,
    spikes: Recorded,
    there: Callable[[str], Array | None],
    hardware: Hardware,
    baseline: Hardware,
    reuse: bool,
) -> Energy:
    """Estimate the energy of a recorded call; `there(layer)` masks the steps (T, B) before the end of each sample."""
    works, untraced, cells = [], [], neurons.paths
    samples, steps = _samples_and_steps(call)
    for name in call.order:
        if name in call.inputs:
            works.append(counting.work_of_weights(name, cells[name], tally_of(cells[name], name, call), call, reuse))
            continue
        if name not in call.series.get("spikes", ()):
            raise RecordError(
                f"monitor: energy needs the spikes of every layer, but layer {name!r} was not recorded. Use "
                f"monitor(net, inputs=True), and do not pass spikes=False."
            )
        cell = call.updates[name][0].cell
        work, traced = counting.work_of_neurons(name, cell, call, spikes[name], there(name))
        works.append(work)
        untraced += [] if traced else [name]
    layers = {}
    for work in works:
        without = (joules_of(counts, work, baseline) for counts in (work.dense, work.one_pass))
        layers[work.name] = LayerEnergy(work, joules_of(work.spiking, work, hardware), *without)
    weighted = [cells[name] for name in call.inputs]
    mean = mean_steps(call.lengths_of(next(iter(call.updates))), steps) if call.updates else float(steps)
    left = counting.find_uncounted(neurons.net, weighted)
    return Energy(hardware, baseline, samples, steps, reuse, layers, left, tuple(untraced), mean, neurons.unseen)


def energy_estimator(hardware: Any, baseline: Any, reuse: bool) -> Callable[..., Energy]:
    """Check the hardware, and return the function that `Monitor.energy` calls."""
    own = hardware_of(hardware, "monitor.energy")
    other = hardware_of(baseline or own, "monitor.energy", "baseline")
    return partial(estimate_energy, hardware=own, baseline=other, reuse=reuse)


def layer_costs(neurons: Neurons, call: RecordedCall) -> dict[str, Cost]:
    """Costs of the layers with weights in a recorded call, by path."""
    return {name: tally_of(neurons.paths[name], name, call).cost() for name in call.inputs}


def synops_per_sample(neurons: Neurons, call: RecordedCall) -> float:
    """Synaptic operations of all layers with weights in a recorded call, per sample."""
    samples, _ = _samples_and_steps(call)
    return sum(tally_of(neurons.paths[name], name, call).synops for name in call.inputs) / samples


def _samples_and_steps(call: RecordedCall) -> tuple[int, int]:
    samples, steps = extent_of(call)
    if not samples:
        raise RecordError("monitor: an estimate per sample needs at least one sample, but the batch is empty.")
    return samples, steps


# --- of a net on data -------------------------------------------------------------------------------------------------


def energy(
    net: Cell, *inputs: Any, hardware: Any = "45nm", baseline: Any = None, reuse: bool = True, **options: Any
) -> Energy:
    """Estimate the energy of a network per sample: count operations in one call, and multiply by their energies.

    Use it to report joules, MACs and synaptic operations. It is `Monitor.energy` of the call `net(*inputs, **options)`.

    Args:
        net: the network.
        inputs: the inputs of the network, (T, B, ...). The estimate is the mean over the B samples.
        hardware: a name in `HARDWARE`, or a `Hardware`.
        baseline: hardware for the network without spikes; `hardware` by default.
        reuse: True if a dense product reads each weight and input once per pass; False: once per multiply-accumulate.
        options: further arguments of the call by name, such as `lengths`.
    Returns: An `Energy`: `.joules` per sample, by layer and kind, and the same for the network without spikes.
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
    """Count synaptic operations (SynOps) per sample: the multiplications of a weight by an input that is not 0.

    Args:
        net: the network.
        inputs: the inputs of the network, (T, B, ...). The result is the mean over the B samples.
        options: further arguments of the call by name, such as `lengths`.
    Example:
        >>> net = nn.SequentialCell(nn.Dense(4, 3), nn.MultiStep(nn.IFNode()))
        >>> snncell.energy.synops(net, ops.eye(4).reshape((4, 1, 4)))  # four spikes, each to 3 neurons
        12.0
    """
    with recording_on(None), Monitor(net, spikes=False, inputs=True) as monitor:
        net(*inputs, **options)
    return monitor.synops()


# Arithmetic is dark and plain, memory light or hatched, so that both are distinct in greyscale.
_LOOKS = {  # colour and hatch
    "MACs": ("#000000", ""), "ACs": ("#0072B2", ""), "neurons": ("#009E73", "\\\\\\\\"),
    "weights": ("#E69F00", "////"), "states": ("#56B4E9", "...."), "inputs and outputs": ("#F0F0F0", ""),
}  # fmt: skip
_BESIDE: dict[Any, tuple[str, ...]] = {"both": ("dense", "one_pass"), None: ()}  # other values name one execution
_APART = 0.5  # rows between layers


def energy_by_layer(
    energy: Energy,
    ax: Any = None,
    title: str | None = None,
    *,
    beside: Literal["one_pass", "dense", "both"] | None = "one_pass",
) -> Any:
    """Plot the energy of each layer as stacked bars, compared with the same layer without spikes.

    A row contains the weights of a layer and the neurons that follow, whose name it has. Plain parts of a bar are
    arithmetic, light or hatched parts memory. The number at the end of a bar is its sum per sample.

    Args:
        energy: the result of `monitoring.energy` or `Monitor.energy`.
        ax, title: the Axes to draw on (new Axes by default), and the title, by default the sums of all layers.
        beside: the bars below that of the spiking network: "one_pass" for an ANN of the same layers without time,
            "dense" for the same steps with all products, "both", or None for no other bars.
    """
    if not energy.layers:
        raise ArgumentError("energy_by_layer: energy.layers is empty, so there is nothing to draw.")
    executions = ("spiking", *_BESIDE.get(beside, (str(beside),)))
    names = {"dense": f"{energy.steps} steps, dense", "one_pass": "ANN, one pass"}
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
    sums = np.array(bars).sum(1)
    scale, unit = _unit_of(float(sums.max()) or _PICO)
    columns = dict(zip(KINDS, np.array(bars).T / scale, strict=True))
    stacked_bars(axes, rows, columns, _LOOKS, list(map(in_units, sums)))
    label_axis(axes.xaxis, f"energy per sample ({unit})", f"energy ({unit})", unit)
    name_rows(axes, rows, labels)
    legend(axes, inside=False)
    totals = [f"{energy.hardware.name}, spiking: {in_units(energy.joules)}"]
    other = "" if energy.baseline.name == energy.hardware.name else f"{energy.baseline.name}, "
    totals += [f"{other}{names[each]}: {in_units(getattr(energy, each))}" for each in executions[1:]]
    set_title(axes, title, "\n".join(totals))
    return axes
