"""`check_through_time`: check all gradients of a spiking network."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np

from snncell.base.arguments.kinds import NotNegative, Positive, Size
from snncell.errors import ArgumentError, BpropError, GradientCheckError, SnncellError
from snncell.ops.random import replaying
from snncell.tape import structure
from snncell.tape.parameter import Parameter
from snncell.tape.state import TRACING, Entry, settings, unfused
from snncell.tape.tensor import Tensor
from snncell.tape.transforms import Recording
from snncell.testing.blame import bprop_text, by_itself, check_bprops, choose_calls, is_surrogate
from snncell.testing.calls import Called, ObservedNet, cells_of_function, choose_weights, count_steps
from snncell.testing.compare import Checked, Row, distance, index_of, perturb, ratio_text, relative_difference
from snncell.testing.gradients import explanation
from snncell.testing.problem import Array, InFloat64, Problem, Tolerance, is_real
from snncell.testing.search import compare_arrays, point_near

WHO = "check_through_time"


def check_through_time(
    net: Callable[..., Any],
    *inputs: Any,
    weights: Parameter | Iterable[Parameter] | None = None,
    detached: bool = False,
    eps: Positive = 1e-4,
    rtol: NotNegative = 1e-5,
    atol: NotNegative = 1e-10,
    seed: Size = 0,
) -> Checked:
    """Check all gradients of a spiking network, in float64: its custom reverses, its paths through time, its kernels.

    1. bprop: each Cell with a `bprop` that the net calls goes through `check_bprop`, at inputs that it met in a run
       with real spikes (of each Cell 4 calls, evenly spaced).
    2. smooth: with each spike replaced by its smooth primitive, the gradients with respect to the inputs and all
       Parameters are compared with finite differences, as by `check_grads`.
    3. fused: with real spikes, outputs and gradients from the kernels are compared with those of the tape that goes
       step by step, to 1e-9 of the largest entry, before a Cell is blamed for anything. Within `unfused()` this part is
       left out, and takes no compiler.

    At a kink (a silent input, equal values in a window of max pooling) several gradients are right. A comparison that
    fails is therefore repeated at random points near the inputs, and counts only where the function is smooth. If there
    is no such point, the result says that the array was not checked. A spike that differs between kernels and tape,
    because its potential is within rounding of the threshold, is noted in the result.

    Args:
        net: a Cell, or a function that calls Cells, such as a loss; those that its body names are found.
        inputs: its arguments, for example x (T, B, ...); float Tensors are converted to float64 and checked.
        weights: the Parameters that are checked: all trainable ones if it is left out, () for none.
        detached: whether what is stopped, such as a detached reset, is meant to be: finite differences then hold
            constant what `ops.stop_gradient` gives. Otherwise it is found, and is an error.
        eps: the step of the differences, which are of the fourth order; if they do not agree with the gradient, steps
            of 10, 0.1 and 0.01 times that are tried.
        rtol, atol: how far they may differ: atol + rtol * the larger of them, and what rounding may make.
        seed: of the directions.

    Returns:
        What was compared, to print: part, Cell or Parameter, worst relative difference, time step, entry.

    Raises:
        GradientCheckError: naming the layer, time step and entry that is worst, and the cause: a surrogate, a custom
            bprop, a path that is stopped (a detached reset), a layer, or a kernel; and for a Parameter whose gradient
            is exactly zero, because all its paths go through a comparison.
        ArgumentError: for a function without Cells.

    Example:
        >>> net = nn.SequentialCell(nn.Dense(3, 4), nn.MultiStep(nn.LIFNode()))
        >>> snncell.testing.check_through_time(net, ops.uniform((5, 2, 3))).worst < 1e-5
        True
    """
    owners = cells_of_function(net)
    if not owners:
        raise ArgumentError(
            f"{WHO}: takes a Cell, or a function whose body names the Cells that it calls, not {net!r:.60}. For any "
            f"other function there is check_grads."
        )
    cells = ObservedNet(owners)
    named = choose_weights(owners, weights)
    with InFloat64([cell for _, cell in owners], [p for _, p in named]) as in_float64:
        problem = Problem(net, inputs, named, in_float64, seed, detached, WHO)
        try:
            rows = _check_bprops(problem, cells)
            rows += _check_smooth(problem, cells, Tolerance(eps, rtol, atol, fine=True, others=(10.0, 0.1, 0.01)))
        except GradientCheckError as blamed:
            with suppress(BpropError):  # a reverse that raises has no gradients to compare
                check_kernels(problem, cells)  # which is the cause if it differs
            raise blamed from None
        refuse_cut_gradients(problem, cells)
        rows += check_kernels(problem, cells)
    return Checked(WHO, rows)


def _check_bprops(problem: Problem, net: ObservedNet) -> list[Row]:
    with unfused():
        samples = net.watched(problem.run)
        rows, wrong = check_bprops(net, samples, smooth=False)
    if wrong is not None:
        raise GradientCheckError(f"{WHO}: {bprop_text(net, wrong, count_steps(samples))}")
    return rows


def _check_smooth(problem: Problem, net: ObservedNet, tolerance: Tolerance) -> list[Row]:
    with settings(smooth=True), unfused():
        rows, wrong = compare_arrays(problem, problem.scalar, tolerance, "smooth", range(len(problem.names)), False)
        if wrong is None:
            return rows
        assert wrong.number is not None  # each array is compared by itself
        first = (
            f"{WHO}: with smooth spikes the reverse gives {wrong.analytic:.10g} along a random direction of "
            f"{problem.names[wrong.number]}, finite differences {wrong.numeric:.10g}."
        )
        raise GradientCheckError(" ".join([first, *explanation(wrong.search, net, wrong.number)]).strip())


# --- cut gradients: Parameters that reach the output only through comparisons or roundings ----------------------------

# Finite differences do not find them: the function is constant around a point, so its derivative is 0 as well.

SCALES = (0.01, 0.3, 3.0)  # by how much of its size a Parameter is moved, to see whether the output depends on it


def refuse_cut_gradients(problem: Problem, net: ObservedNet) -> None:
    """Raise for a Parameter that changes the output, and from which the tape has no path to the output."""
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
    with problem.at() as moving, replaying(problem.key):
        recording = Recording(problem.scalar, moving, (), tuple(problem.weights), {}, problem.who)
    reached = _reached_entries([recording.out])
    return [len(moving) + n for n, source in enumerate(recording.sources) if source._entry not in reached]


def _changes_output(problem: Problem, number: int) -> bool:
    """True if the output is another one with another value of an array; what stop_gradient gives is held constant."""
    rng, noted = np.random.default_rng(0), problem.noted(problem.scalar, problem.point)
    here = problem.value(problem.scalar, problem.point, noted)
    for scale in SCALES:
        point = list(problem.point)
        point[number] = perturb(point[number], scale, rng)
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


# --- the fused kernels and the tape that goes step by step, with real spikes ------------------------------------------

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
    """Compare outputs and gradients of kernels and tape; a row for each."""
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
        f"{_blame_layer(problem, net)}{_no_spike(net, nearest)} The kernel is wrong, not your net: please "
        f"report it, with snncell.explain(net, x); `with snncell.testing.unfused():` computes without it."
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
        alone = ObservedNet([(path, net.cells[path])])
        with suppress(SnncellError):  # raised where it cannot be called by itself
            for call in choose_calls(outside[path]):
                with by_itself(net.cells[path], call) as own:
                    text = "" if own is None else _compare_kernels(own, alone, own.point)[1]
                if text:
                    return f"Taken by itself, {net.layer(path)} differs: {text}"
    return ""
