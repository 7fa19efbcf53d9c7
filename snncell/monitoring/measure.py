"""Figures of merit of a net on data: energy and synaptic operations per sample."""

from __future__ import annotations

from typing import Any

from snncell.cell.cell import Cell
from snncell.monitoring.estimate import Energy
from snncell.monitoring.hardware import hardware_of
from snncell.monitoring.monitor import Monitor
from snncell.tape.state import recording_on


def energy(
    net: Cell, *inputs: Any, hardware: Any = "45nm", baseline: Any = None, reuse: bool = True, **options: Any
) -> Energy:
    """Estimate the energy that a net takes for a sample of data: run it once, count, and multiply by a table.

    It is `Monitor.energy` of the call `net(*inputs, **options)`.

    Args:
        net: the network.
        inputs: as for a call of it, (T, B, ...); several samples give their mean.
        hardware: a name of `monitoring.HARDWARE`, or a `Hardware`.
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
        >>> found = snncell.monitoring.energy(net, spikes, hardware="loihi")
        >>> found.synops, round(found.joules * 1e12, 1)  # 12 of 23.6 pJ, and 12 updates of 81 pJ
        (12.0, 1255.2)
    """
    chosen = hardware_of(hardware, "energy")
    beside = chosen if baseline is None else hardware_of(baseline, "energy", "baseline")
    with recording_on(None), Monitor(net, inputs=True) as monitor:
        net(*inputs, **options)
    return monitor.energy(chosen, beside, reuse)


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
        >>> snncell.monitoring.synops(net, ops.eye(4).reshape((4, 1, 4)))  # four spikes, each to 3 neurons
        12.0
    """
    with recording_on(None), Monitor(net, spikes=False, inputs=True) as monitor:
        net(*inputs, **options)
    return monitor.synops()
