"""Cut gradients: Parameters that reach the output only through comparisons or roundings.

Finite differences do not find that. The function is constant around a point, so its derivative is 0 as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from snncell.errors import GradientCheckError, SnncellError
from snncell.ops.random import replaying
from snncell.tape import structure
from snncell.tape.state import Entry, settings, unfused
from snncell.tape.tensor import Tensor
from snncell.tape.transforms import Recording
from snncell.testing.calls import Called, ObservedNet
from snncell.testing.precision import is_real
from snncell.testing.problem import Problem

SCALES = (0.01, 0.3, 3.0)  # by how much of its size a Parameter is moved, to see whether the output depends on it


def refuse_cut_gradients(problem: Problem, net: ObservedNet) -> None:
    """Raise for a Parameter that changes the output, and from which the tape has no path to the output.

    Raises:
        GradientCheckError: naming the Parameter, and the innermost Cell whose output has no path from its inputs.
    """
    with settings(smooth=True), unfused():
        cut = [n for n in _without_path(problem) if _changes_output(problem, n)]
        if not cut:
            return
        cells = net.watched(problem.run)
        where = next(
            (path for path in net.deepest_first(cells) if _cut_places(net.cells[path], cells[path].calls[0])), None
        )
    names = ", ".join(problem.names[n] for n in cut)
    cause = "" if where is None else f" It ends in {net.layer(where)}, whose output has no path from its inputs."
    raise GradientCheckError(
        f"{problem.who}: the gradient of {names} is exactly zero, but the output depends on it: every path goes "
        f"through a comparison, a rounding or a cast to integers.{cause} A spike function is a Cell with a method "
        f"bprop(self, x, out, dout), or one of snncell.surrogate. A Parameter that is not to be trained has "
        f"requires_grad=False."
    )


def _without_path(problem: Problem) -> list[int]:
    """The numbers of the Parameters that no entry of the tape leads to from the output."""
    inputs = len(problem.positions)
    tensors = [Tensor(x).to(source.device) for x, source in zip(problem.point, problem.sources, strict=True)]
    with problem.cells.evaluation(), replaying(problem.key):
        recording = Recording(problem.scalar, tensors[:inputs], (), tuple(problem.weights), {}, problem.who)
    reached = _reached_entries([recording.out])
    return [inputs + n for n, source in enumerate(recording.sources) if source._entry not in reached]


def _changes_output(problem: Problem, number: int) -> bool:
    """True if the output is another one with another value of an array; what stop_gradient gives is held constant."""
    rng, noted = np.random.default_rng(0), problem.noted(problem.scalar, problem.point)
    here = problem.value(problem.scalar, problem.point, noted)
    for scale in SCALES:
        point = list(problem.point)
        point[number] = point[number] + scale * (0.1 + np.abs(point[number])) * rng.standard_normal(point[number].shape)
        if problem.value(problem.scalar, point, noted) != here:
            return True
    return False


def _cut_places(cell: Any, call: Called) -> bool:
    """True if a Cell without a bprop gives floats that no gradient leads from to what it was called with."""
    positions = [n for n, x in enumerate(call.inputs) if is_real(x)]
    if cell.bprop is not None or not positions:
        return False
    try:
        recording = Recording(cell, call.inputs, positions, tuple(cell.trainable_params()) or None, {}, "call")
    except SnncellError:  # it cannot be called by itself
        return False
    floats = [x for x in structure.flatten(recording.out)[0] if is_real(x)]
    return any(not _reached_entries([x]) & {source._entry for source in recording.sources} for x in floats)


def _reached_entries(outputs: Sequence[Tensor]) -> set[Entry | None]:
    """The entries of the tape that a gradient of some outputs goes through."""
    pending, reached = [x._entry for x in outputs], set[Entry | None]()
    while pending:
        entry = pending.pop()
        if entry is not None and entry not in reached:
            reached.add(entry)
            pending += entry.parents
    return reached
