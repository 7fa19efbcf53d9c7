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
from snncell.testing.bprops import Checked, Row, distance, index_of, perturb, ratio_text, relative_difference
from snncell.testing.gradients import check_bprops, choose_calls, explanation, is_surrogate, single_cell
from snncell.testing.problem import (
    Array,
    Called,
    InFloat64,
    ObservedNet,
    Problem,
    Tolerance,
    cells_of_function,
    choose_weights,
    count_steps,
    is_real,
)
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
    """Check all gradients of a spiking network in float64: custom gradients, paths through time, and compiled kernels.

    - bprop: each called Cell with a `bprop` goes through `check_bprop`, at inputs of 4 evenly spaced calls.
    - smooth: each spike function is replaced by its smooth primitive. Then the gradients of the inputs and all
      Parameters are compared with finite differences, as in `check_grads`, also at kinks.
    - fused: with real spikes, outputs and gradients of the kernels are compared with those of the tape step by step, up
      to 1e-9 of the largest entry; within `unfused()` this is skipped. An error here takes precedence over others. The
      result notes a spike that differs because its potential equals the threshold up to rounding.

    Args:
        net: a Cell, or a function that calls Cells by their names, for example a loss.
        inputs: the arguments, for example x (T, B, ...). Float Tensors are converted to float64 and checked.
        weights: the Parameters to check. Default: all trainable ones; () for none.
        detached: True if stopped gradients, such as a detached reset, are intended. Finite differences then keep the
            results of `ops.stop_gradient` constant. Otherwise a stopped gradient is an error.
        eps: the step of the finite differences, of fourth order; if they disagree, 10, 0.1 and 0.01 times this step.
        rtol, atol: the tolerance: atol + rtol * the larger value, plus an allowance for rounding.
        seed: the seed of the random directions.
    Returns: The comparisons, to print: part, Cell or Parameter, worst relative difference, time step, entry.
    Raises: GradientCheckError with the worst layer, time step and entry, and the cause: a surrogate, a custom bprop, a
        detached reset or other stopped path, a layer, a kernel, or a Parameter that is used in comparisons only.
    Example:
        >>> net = nn.SequentialCell(nn.Dense(3, 4), nn.MultiStep(nn.LIFNode()))
        >>> snncell.testing.check_through_time(net, ops.uniform((5, 2, 3))).worst < 1e-5
        True
    """
    owners = cells_of_function(net)
    if not owners:
        raise ArgumentError(
            f"{WHO}: takes a Cell, or a function that calls Cells by their names, not {net!r:.60}. Use "
            f"check_grads for any other function."
        )
    cells = ObservedNet(owners)
    named = choose_weights(owners, weights)
    with InFloat64([cell for _, cell in owners], [p for _, p in named]) as in_float64:
        problem = Problem(net, inputs, named, in_float64, seed, detached, WHO)
        try:
            rows = _check_bprops(problem, cells)
            rows += _check_smooth(problem, cells, Tolerance(eps, rtol, atol, fine=True, others=(10.0, 0.1, 0.01)))
        except GradientCheckError as blamed:
            with suppress(BpropError):  # a bprop that raises has no gradients to compare
                check_kernels(problem, cells)  # raises if the kernels are the cause
            raise blamed from None
        refuse_cut_gradients(problem, cells)
        rows += check_kernels(problem, cells)
    return Checked(WHO, rows)


def _check_bprops(problem: Problem, net: ObservedNet) -> list[Row]:
    with unfused():
        rows, wrong = check_bprops(net, net.sample_calls(problem.run), smooth=False)
    if wrong:
        raise GradientCheckError(f"{WHO}: {wrong}")
    return rows


def _check_smooth(problem: Problem, net: ObservedNet, tolerance: Tolerance) -> list[Row]:
    with settings(smooth=True), unfused():
        rows, wrong = compare_arrays(problem, problem.scalar, tolerance, "smooth", range(len(problem.names)), False)
        if wrong is None:
            return rows
        assert wrong.number is not None  # each array is compared separately
        first = (
            f"{WHO}: with smooth spikes the backward pass gives {wrong.analytic:.10g} along a random direction of "
            f"{problem.names[wrong.number]}, finite differences {wrong.numeric:.10g}."
        )
        raise GradientCheckError(" ".join([first, *explanation(wrong.search, net, wrong.number)]).strip())


# --- cut gradients: Parameters that reach the output only through comparisons or roundings ----------------------------

# Finite differences do not find them, because the function is constant around a point and so its derivative is 0.

SCALES = (0.01, 0.3, 3.0)  # relative changes of a Parameter to test whether the output depends on it


def refuse_cut_gradients(problem: Problem, net: ObservedNet) -> None:
    """Raise for a Parameter that changes the output although the tape has no path from it to the output."""
    with settings(smooth=True), unfused():
        cut = [n for n in _without_path(problem) if _changes_output(problem, n)]
        if not cut:
            return
        cells = net.sample_calls(problem.run)
        places = (path for path in net.deepest_first(cells) if _cut_places(net.cells[path], cells[path].calls[0]))
        where = next(places, None)
    names = ", ".join(problem.names[n] for n in cut)
    cause = "" if where is None else f" It ends in {net.layer(where)}, whose output has no path from its inputs."
    raise GradientCheckError(
        f"{problem.who}: the gradient of {names} is exactly zero, but the output depends on it: every path goes "
        f"through a comparison, a rounding or a cast to integers.{cause} Use a spike function of snncell.surrogate, or "
        f"a Cell with a method bprop(self, x, out, dout). Set requires_grad=False if you do not want to train the "
        f"Parameter."
    )


def _without_path(problem: Problem) -> list[int]:
    """The numbers of the Parameters from which no path on the tape leads to the output."""
    with problem.at() as moving, replaying(problem.key):
        recording = Recording(problem.scalar, moving, (), tuple(problem.weights), {}, problem.who)
    reached = _reached_entries([recording.out])
    return [len(moving) + n for n, source in enumerate(recording.sources) if source._entry not in reached]


def _changes_output(problem: Problem, number: int) -> bool:
    """True if a change of an array changes the output, with the results of stop_gradient kept constant."""
    rng, noted = np.random.default_rng(0), problem.detached_values(problem.scalar, problem.point)
    here = problem.value(problem.scalar, problem.point, noted)
    for scale in SCALES:
        point = list(problem.point)
        point[number] = perturb(point[number], scale, rng)
        if problem.value(problem.scalar, point, noted) != here:
            return True
    return False


def _cut_places(cell: Any, call: Called) -> bool:
    """True if a Cell without a bprop returns floats that have no gradient path from its inputs."""
    positions = [n for n, x in enumerate(call.inputs) if is_real(x)]
    if cell.bprop is not None or not positions:
        return False
    try:
        recording = Recording(cell, call.inputs, positions, tuple(cell.trainable_params()) or None, {}, "call")
    except SnncellError:  # it cannot be called alone
        return False
    floats = [x for x in structure.flatten(recording.out)[0] if is_real(x)]
    return any(not _reached_entries([x]) & {source._entry for source in recording.sources} for x in floats)


def _reached_entries(outputs: Sequence[Tensor]) -> set[Entry | None]:
    """The tape entries that a gradient of these outputs goes through."""
    pending, reached = [x._entry for x in outputs], set[Entry | None]()
    while pending:
        entry = pending.pop()
        if entry is not None and entry not in reached:
            reached.add(entry)
            pending += entry.parents
    return reached


# --- fused kernels compared with the step-by-step tape, with real spikes ----------------------------------------------

ROUNDING = 1e-9  # allowed difference of outputs and gradients, relative to their largest entry
LEAST = 1e-4  # lower bound of that largest entry, relative to all gradients, because zeros may have rounding errors
AT_THRESHOLD = 1e-12  # distance from the threshold where rounding may decide, relative to the largest potential


class Nearest(NamedTuple):
    """The potential nearest to the threshold of its layer, and the size of the potentials there."""

    path: str
    step: int | None
    entry: tuple[int, ...]
    distance: float
    size: float

    @property
    def undecided(self) -> bool:
        """True if rounding decides whether the neuron spikes."""
        return self.distance <= AT_THRESHOLD * max(self.size, 1.0)


def check_kernels(problem: Problem, net: ObservedNet) -> list[Row]:
    """Compare outputs and gradients of the kernels with those of the tape; one row for each array."""
    if TRACING.unfused:
        return [Row("fused", "kernels", 0.0, note="not compared: within unfused()")]
    rows, text = _compare_kernels(problem, net, problem.point)
    if not text:
        return rows
    nearest = _nearest(problem, net)
    if nearest is not None and nearest.undecided:
        rows, text_near = _compare_kernels(problem, net, point_near(problem.point))
        if not text_near:
            note = f"near the inputs, because at them rounding decides a spike: {_describe_potential(net, nearest)}"
            return [row.with_note(note) for row in rows]
        text = text_near
    raise GradientCheckError(
        f"{problem.who}: the fused kernels differ from the tape running step by step: {text} "
        f"{_blame_layer(problem, net)}{_no_spike(net, nearest)} The kernel is wrong, not your net: please "
        f"report it, with snncell.explain(net, x); `with snncell.testing.unfused():` computes without it."
    )


def _compare_kernels(problem: Problem, net: ObservedNet, point: Sequence[Array]) -> tuple[list[Row], str]:
    """The rows, and a description of the first array that differs by more than rounding."""
    with unfused():
        outs, grads = problem.outputs_and_gradients(point)
        steps = count_steps(net.sample_calls(lambda: problem.run(point)))
    fused_outs, fused_grads = problem.outputs_and_gradients(point)
    least = [LEAST * max(_largest_entry(part) for part in parts) for parts in (outs, grads)]
    names = [f"output {n}" for n in range(len(outs))] + [f"gradient of {name}" for name in problem.names]
    rows: list[Row] = []
    for name, mine, theirs in zip(names, [*fused_outs, *fused_grads], [*outs, *grads], strict=True):
        floor = least[name.startswith("gradient")]
        # They are not equal to the bit, because the compiler moves sums over time before products.
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
    """The potential nearest to its threshold, over all inputs of spike functions in a step-by-step run."""
    nearest: list[Nearest] = []

    def note(path: str, inputs: tuple[Any, ...], out: Any) -> None:
        if is_surrogate(net, path) and inputs and isinstance(inputs[0], Tensor) and inputs[0].size:
            x = inputs[0].asnumpy()
            # A function that counts spikes has a threshold at each whole number, or at each half.
            counts = isinstance(out, Tensor) and _largest_entry(out.asnumpy()) > 1
            above = np.abs(x - np.rint(2 * x) / 2) if counts else np.abs(x)
            entry = index_of(int(np.argmin(above)), above.shape)
            new = Nearest(path, TRACING.step, entry, float(above[entry]), _largest_entry(x))
            if not nearest or new.distance < nearest[0].distance:
                nearest[:] = [new]

    with unfused():
        net.visit_calls(problem.run, note)
    return nearest[0] if nearest else None


def _describe_potential(net: ObservedNet, nearest: Nearest) -> str:
    step = "" if nearest.step is None else f"time step {nearest.step}, "
    return f"{net.describe(nearest.path)} at {step}index {nearest.entry}, {nearest.distance:.1e} from its threshold"


def _no_spike(net: ObservedNet, nearest: Nearest | None) -> str:
    if nearest is None:
        return ""
    if nearest.undecided:
        return (
            f" A spike that rounding decides ({_describe_potential(net, nearest)}) is not the reason, because they "
            f"also differ near it."
        )
    return f" Rounding does not decide any spike: the nearest potential is {_describe_potential(net, nearest)}."


def _blame_layer(problem: Problem, net: ObservedNet) -> str:
    """A description of the innermost Cell whose kernel alone differs, or ""."""
    with unfused():
        samples = net.sample_calls(problem.run)
    # Cells inside a time loop have no separate kernel.
    outside = {path: sample for path, sample in samples.items() if not sample.calls[0].looped}
    for path in net.deepest_first(outside):
        alone = ObservedNet([(path, net.cells[path])])
        with suppress(SnncellError):  # it cannot be called alone
            for call in choose_calls(outside[path]):
                with single_cell(net.cells[path], call) as own:
                    text = "" if own is None else _compare_kernels(own, alone, own.point)[1]
                if text:
                    return f"Alone, {net.layer(path)} differs: {text}"
    return ""
