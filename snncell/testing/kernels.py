"""Compare the fused kernels of a net with the step-by-step tape, with real spikes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from snncell.errors import GradientCheckError, SnncellError
from snncell.tape.state import TRACING, unfused
from snncell.tape.tensor import Tensor
from snncell.testing.blame import by_itself, choose_calls, is_surrogate
from snncell.testing.calls import CallSample, ObservedNet, count_steps
from snncell.testing.compare import distance, index_of, ratio_text, relative_difference
from snncell.testing.problem import Array, Problem
from snncell.testing.result import Row
from snncell.testing.search import point_near

ROUNDING = 1e-9  # how far outputs and gradients may be apart, as a part of their largest entry
LEAST = 1e-4  # what is smaller than this part of all gradients is compared with that: it may be zero but for rounding
AT_THRESHOLD = 1e-12  # how far from the threshold rounding may decide, as a part of the largest potential


class Nearest(NamedTuple):
    """The potential that is nearest to the threshold of its layer, and how large potentials are there."""

    path: str
    step: int | None
    entry: tuple[int, ...]
    distance: float
    size: float

    @property
    def undecided(self) -> bool:
        """True if rounding decides about the spike."""
        return self.distance <= AT_THRESHOLD * max(self.size, 1.0)


def check_kernels(problem: Problem, net: ObservedNet) -> list[Row]:
    """Compare outputs and gradients of kernels and tape; a row for each.

    Raises:
        GradientCheckError: naming the array, step and entry that is worst, the layer whose kernel it is, and whether a
            potential was so near its threshold that rounding decides.
    """
    if TRACING.unfused:
        return [Row("fused", "kernels", 0.0, note="not compared: within unfused()")]
    rows, text = _compare_kernels(problem, net, problem.point)
    if not text:
        return rows
    nearest = _nearest(problem, net)
    if nearest is not None and nearest.undecided:
        rows, text_beside = _compare_kernels(problem, net, point_near(problem.point))
        if not text_beside:
            note = f"beside the inputs: at them rounding decides about a spike, {_describe_potential(net, nearest)}"
            return [row.noted(note) for row in rows]
        text = text_beside
    raise GradientCheckError(
        f"{problem.who}: the fused kernels differ from the tape that goes step by step: {text} "
        f"{_blame_layer(problem, net)}"
        f"{_no_spike(net, nearest)} The kernel is wrong, not your net: please report it, with snncell.explain(net, x); "
        f"`with snncell.testing.unfused():` computes without it."
    )


def _compare_kernels(problem: Problem, net: ObservedNet, point: Sequence[Array]) -> tuple[list[Row], str]:
    """Rows, and in words the first array that differs by more than rounding."""
    with unfused():
        outs, grads = problem.pulled(point)
        steps = count_steps(net.watched(lambda: problem.run(point)))
    fused_outs, fused_grads = problem.pulled(point)
    least = [LEAST * max(_largest_entry(part) for part in parts) for parts in (outs, grads)]
    names = [f"output {n}" for n in range(len(outs))] + [f"gradient of {name}" for name in problem.names]
    rows: list[Row] = []
    for name, mine, theirs in zip(names, [*fused_outs, *fused_grads], [*outs, *grads], strict=True):
        floor = least[name.startswith("gradient")]
        # Not to the bit: the compiler takes sums over time before products.
        difference, entry = relative_difference(mine, theirs, floor)
        timed = entry is not None and mine.ndim > 1 and len(mine) == steps and "Parameter" not in name
        step = entry[0] if timed and entry is not None else None
        if entry is not None and not difference <= ROUNDING:
            excess = distance(mine, theirs) - ROUNDING * max(_largest_entry(theirs), floor)
            at = f"at index {entry}" if step is None else f"at time step {step}, index {entry}"
            return rows, (
                f"{name} {at} is {mine[entry]:.8g} from the kernel and {theirs[entry]:.8g} from the tape"
                f"{ratio_text(mine, theirs, entry, excess)}."
            )
        same = np.array_equal(mine, theirs, equal_nan=True)
        rows.append(Row("fused", name, difference, step, entry, "equal to the bit" if same else "equal to rounding"))
    return rows, ""


def _largest_entry(x: Array) -> float:
    return float(np.max(np.abs(x), initial=0.0))


def _nearest(problem: Problem, net: ObservedNet) -> Nearest | None:
    """The potential nearest to its threshold, of all that spike functions get in a run step by step."""
    nearest: list[Nearest] = []

    def note(path: str, inputs: tuple[Any, ...], out: Any) -> None:
        if is_surrogate(net, path) and inputs and isinstance(inputs[0], Tensor) and inputs[0].size:
            x = inputs[0].asnumpy()
            # One that counts spikes has a threshold at each whole number, or at each half.
            counts = isinstance(out, Tensor) and _largest_entry(out.asnumpy()) > 1
            above = np.abs(x - np.rint(2 * x) / 2) if counts else np.abs(x)
            entry = index_of(int(np.argmin(above)), above.shape)
            new = Nearest(path, TRACING.step, entry, float(above[entry]), _largest_entry(x))
            if not nearest or new.distance < nearest[0].distance:
                nearest[:] = [new]

    with unfused():
        net.visited(problem.run, note)
    return nearest[0] if nearest else None


def _describe_potential(net: ObservedNet, nearest: Nearest) -> str:
    step = "" if nearest.step is None else f"time step {nearest.step}, "
    return f"{net.describe(nearest.path)} at {step}index {nearest.entry}, {nearest.distance:.1e} from its threshold"


def _no_spike(net: ObservedNet, nearest: Nearest | None) -> str:
    if nearest is None:
        return ""
    if nearest.undecided:
        return (
            f" A spike that rounding decides about ({_describe_potential(net, nearest)}) is not the reason: beside it "
            f"they differ."
        )
    return f" It is no spike that rounding decides about: the nearest potential is {_describe_potential(net, nearest)}."


def _blame_layer(problem: Problem, net: ObservedNet) -> str:
    """The innermost Cell whose kernel differs, taken by itself."""
    with unfused():
        samples = net.watched(problem.run)
    # What runs inside of a loop has no kernel of its own.
    outside = {path: sample for path, sample in samples.items() if not sample.calls[0].looped}
    for path in net.deepest_first(outside):
        if text := _differs_alone(net, path, outside[path]):
            return f"Taken by itself, {net.layer(path)} differs: {text}"
    return ""


def _differs_alone(net: ObservedNet, path: str, sample: CallSample) -> str:
    cell = net.cells[path]
    for call in choose_calls(sample):
        try:
            with by_itself(cell, call) as problem:
                text = (
                    "" if problem is None else _compare_kernels(problem, ObservedNet([(path, cell)]), problem.point)[1]
                )
        except SnncellError:
            return ""  # it cannot be called by itself
        if text:
            return text
    return ""
