"""Metrics of what a net does inside, measured by a monitor: spikes, synaptic operations, energy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from snncell.base.arguments.shown import came
from snncell.cell.cell import Cell
from snncell.errors import ArgumentError, RecordError
from snncell.monitoring import Monitor


class Monitored:
    """A metric of what `snncell.monitor` records of a net, rather than of its output and the target.

    `fit(test=..., metrics=...)` and `evaluate` measure it in prediction, batch by batch; records have it as
    "test_" and its name. Steps of the training are not recorded, which would slow them down.

    Args:
        of: a function of the `Monitor` of one batch that gives a number, a mean over the samples.
        v, above, inputs: what the monitor records beside spikes, as in `snncell.monitor`.

    Example:
        >>> net = nn.SequentialCell(nn.Dense(4, 3, weight_init=0.5), nn.MultiStep(nn.IFNode()))
        >>> on_loihi = snncell.train.Monitored(lambda m: m.energy("loihi").joules, inputs=True)
        >>> data = [(ops.ones((5, 2, 4)), ops.zeros((5, 2, 3)))]
        >>> metrics = {"spikes": "spikes", "synops": "synops", "on_loihi": on_loihi}
        >>> found = snncell.train.evaluate(net, nn.MSELoss(), data, accuracy=None, metrics=metrics)
        >>> found["spikes"], found["synops"], 1e-9 < found["on_loihi"] < 1e-8
        (15.0, 60.0, True)
    """

    def __init__(self, of: Callable[[Any], Any], v: bool = False, above: bool = False, inputs: bool = False) -> None:
        self.of, self.records = of, {"v": v, "above": above, "inputs": inputs}
        self.__name__ = getattr(of, "__name__", type(of).__name__)


def spikes(monitor: Monitor) -> float:
    """The spikes of all layers that fire, per sample."""
    fired = [monitor.spikes[name] for name in monitor.layers if monitor.fires(name)]
    return float(sum(np.count_nonzero(array) / array.shape[1] for array in fired))


def synops(monitor: Monitor) -> float:
    """The synaptic operations per sample."""
    return monitor.synops()


def energy(monitor: Monitor) -> float:
    """The energy per sample, in J, by the table of `monitoring.energy` that it takes by default."""
    return float(monitor.energy().joules)


BY_NAME = {
    "spikes": Monitored(spikes),
    "synops": Monitored(synops, inputs=True),
    "energy": Monitored(energy, inputs=True),
}


@contextmanager
def watching(net: Cell, metrics: dict[str, Monitored]) -> Iterator[Callable[[], dict[str, float]]]:
    """Record the net's calls; a function that gives the metrics of the last one.

    Raises:
        ArgumentError: for a net without neurons, within another monitor, and a metric that gives no number.
    """
    if not metrics:
        yield dict
        return
    wanted = {kind: any(one.records[kind] for one in metrics.values()) for kind in ("v", "above", "inputs")}
    with Monitor(net, **wanted) as monitor:
        yield lambda: {name: _number(name, one, monitor) for name, one in metrics.items()}


def _number(name: str, metric: Monitored, monitor: Monitor) -> float:
    try:
        found = metric.of(monitor)
    except RecordError as error:
        raise RecordError(f"metric {name!r}: {error}") from None
    value = np.asarray(found.asnumpy() if hasattr(found, "asnumpy") else found)
    if value.ndim or value.dtype.kind not in "biuf":
        raise ArgumentError(f"metric {name!r} is a function of a monitor that gives a number; it gave {came(found)}.")
    return float(value)
