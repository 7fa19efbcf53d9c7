"""Facts of one layer: what a monitor has recorded of it, and what its neuron says of itself."""

from __future__ import annotations

from typing import Any

import numpy as np

from snncell import ops
from snncell.cell.cell import Cell
from snncell.errors import SnncellError
from snncell.monitoring import Monitor
from snncell.monitoring.layers import number_of_v
from snncell.nn.time.multistep import MultiStep, initial_states
from snncell.nn.time.recurrent import Recurrent
from snncell.ops.seeds import present_key, replaying
from snncell.report.facts import ConstantFacts, LayerFacts
from snncell.report.slopes import Array, slope_of
from snncell.tape.state import settings
from snncell.tape.tensor import Tensor, beside

LARGEST_FEEDBACK = 1024  # neurons: the eigenvalues of a larger matrix take longer than all the rest
NUDGE = 1e-3  # by how much a potential is moved to see what a step keeps of it, in thresholds


def layer_of(monitor: Monitor, name: str, net: Cell) -> LayerFacts:
    """The facts of a layer that was recorded."""
    cell = monitor.cell(name)
    recorded = {kind: getattr(monitor, kind) for kind in ("spikes", "above", "v", "grad")}
    arrays = {kind: of_kind.get(name) for kind, of_kind in recorded.items()}
    shape = next((a.shape for a in arrays.values() if a is not None), (0, 0))
    grad = arrays.pop("grad")  # of the layer's input, which may be of another width
    arrays = {kind: _as_large(array, shape) for kind, array in arrays.items()}
    before_end = None if arrays["spikes"] is None else monitor.spikes.before_end(name)
    if before_end is not None and not before_end.any():
        before_end = None  # there is nothing but padding
    arrays |= {kind: _as_at_end(arrays[kind], before_end) for kind in ("above", "v")}
    threshold = getattr(cell, "v_threshold", None)
    place = next((p.device for p in net.get_parameters()), "cpu")
    around = next((c for _, c in net.cells_and_names() if isinstance(c, Recurrent) and _holds(c, cell)), None)
    return LayerFacts(
        name=name,
        neuron=type(cell).__name__,
        spiking=monitor.fires(name),
        **arrays,
        grad=grad if grad is not None and grad.shape[:1] == shape[:1] else _as_large(grad, shape),
        before_end=before_end,
        slope=slope_of(monitor.spike_function(name), shape[2:]),
        threshold=None if threshold is None else float(np.mean(_values(threshold))),
        reach=_reach(cell, shape[2:], place),
        constants=_constants(cell),
        detached=bool(getattr(cell, "detach_reset", False)) and getattr(cell, "reset", None) is not None,
        leak=_leak(cell, shape[2:], place),
        drop=_drop(cell),
        recurrent=around is not None,
        radius=None if around is None else _radius(around.feedback, shape[2:], place),
    )


def _as_large(array: Array | None, shape: tuple[int, ...]) -> Array | None:
    """A recording in the shape of the output; a neuron may look at all steps at once, or at something else."""
    return None if array is None or array.size != np.prod(shape) else array.reshape(shape)


def _as_at_end(array: Array | None, before_end: Array | None) -> Array | None:
    """A recording (T, B, ...) that keeps the values of the last step of each sample after its end."""
    if array is None or before_end is None or array.shape[:2] != before_end.shape:
        return array
    last = np.maximum(before_end.sum(0) - 1, 0)
    numbers = np.minimum(np.arange(len(array))[:, None], last)
    return np.take_along_axis(array, numbers.reshape(*numbers.shape, *(1,) * (array.ndim - 2)), 0)


def _holds(outer: Recurrent, cell: Cell) -> bool:
    return any(below is cell for _, below in outer.cell.cells_and_names())


def _values(x: Any) -> Array:
    return x.asnumpy() if isinstance(x, Tensor) else np.asarray(x, np.float64)


def _constants(cell: Cell) -> list[ConstantFacts]:
    """The constants that a neuron, and its spike function, say the ranges of."""
    return [
        ConstantFacts(
            f"{path}.{constant.name}".lstrip("."),
            np.asarray(constant.value, np.float64),
            _values(constant.range.low).astype(np.float64),
            _values(constant.range.high).astype(np.float64),
            constant.range.closed,
            constant.range.text,
            constant.learned,
        )
        for path, below in cell.cells_and_names()
        for constant in getattr(below, "constants_and_ranges", ())
    ]


def _reach(cell: Cell, features: tuple[int, ...], place: str) -> float | None:
    """The distance from rest to the threshold, in the units of the spike function: what that sees without input."""
    run = MultiStep(cell)
    try:
        with settings(unfused=True), replaying(present_key()), Monitor(run, spikes=False, above=True) as seen:
            run(ops.zeros((1, 1, *features)).to(place))
        above = next(iter(seen.above.values()), None)
    except (SnncellError, IndexError, TypeError, ValueError):
        return None  # a neuron of another form, of which nothing is said in thresholds
    reach = None if above is None else -float(np.mean(above))
    return reach if reach is not None and np.isfinite(reach) and reach > 0 else None


def _drop(cell: Cell) -> float:
    """By how much a spike at the threshold lowers the potential, where that is differentiated."""
    reset = getattr(cell, "reset", None)
    if reset is None or getattr(cell, "detach_reset", False) or not hasattr(cell, "v_threshold"):
        return 0.0
    floor = _values(getattr(cell, "v_reset", 0.0)) if reset == "value" else 0.0
    return float(np.mean(_values(cell.v_threshold) - floor))


def _leak(cell: Cell, features: tuple[int, ...], place: str) -> float | None:
    """The factor that a step without input keeps of a small change of the potential; None where it is not known."""
    try:
        x = ops.zeros((1, *features)).to(place)
        with beside(x):
            states = list(initial_states(cell, x))
        number = number_of_v(cell, len(states))
        moved = [state + NUDGE if n == number else state for n, state in enumerate(states)]
        with replaying(present_key()):
            before, after = (cell(x, *each)[1 + number].asnumpy() for each in (states, moved))
    except (SnncellError, IndexError, TypeError, ValueError):
        return None  # a neuron of another form; it is an explanation that is missing, no finding
    leak = float(np.mean(after.astype(np.float64) - before) / NUDGE)
    return leak if np.isfinite(leak) else None


def _radius(feedback: Cell, features: tuple[int, ...], place: str) -> float | None:
    """The spectral radius of what comes back to the neurons, as a matrix from outputs to inputs."""
    count = int(np.prod(features))
    if not 0 < count <= LARGEST_FEEDBACK:
        return None
    units = np.eye(count, dtype=np.float32).reshape(count, *features)
    with replaying(present_key()):
        of_units, of_zeros = (
            feedback(Tensor(x).to(place)).asnumpy().reshape(count, -1) for x in (units, np.zeros_like(units))
        )
    matrix = of_units - of_zeros
    if matrix.shape != (count, count) or not np.isfinite(matrix).all():
        return None
    return float(np.abs(np.linalg.eigvals(matrix)).max())
