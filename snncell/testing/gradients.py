"""`check_grads`: compare the gradients of a function or Cell with finite differences.

The cause of a wrong gradient is found by experiments: a custom bprop, a stopped path, a spike function, or a layer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from snncell.base.arguments.kinds import Count, NotNegative, Positive, Size
from snncell.errors import BpropError, GradientCheckError, SnncellError
from snncell.tape.parameter import Parameter
from snncell.tape.state import CHECKING, settings, unfused
from snncell.tape.tensor import Tensor
from snncell.testing.bprops import KINK, Checked, Row, check_bprop
from snncell.testing.problem import (
    Array,
    Called,
    CallSample,
    InFloat64,
    ObservedNet,
    Opened,
    Problem,
    Site,
    Tolerance,
    cells_of_function,
    choose_weights,
    count_steps,
    directional_derivative,
    is_real,
)
from snncell.testing.search import Search, WrongGradient, compare_arrays, describe_entry


def check_grads(
    fn: Callable[..., Any],
    *inputs: Any,
    order: Count = 1,
    weights: Parameter | Iterable[Parameter] | None = None,
    detached: bool = False,
    eps: Positive = 1e-6,
    rtol: NotNegative = 1e-5,
    atol: NotNegative = 1e-7,
    seed: Size = 0,
) -> Checked:
    """Gradient check: compare the gradients of `fn` with finite differences along random directions, in float64.

    The outputs are projected on a random vector u, and the inputs are moved along a random direction v. The derivative
    <u, J v> from central differences, (f(x + eps v) - f(x - eps v)) / (2 eps), must equal <J^T u, v> from the backward
    pass. First, all inputs and Parameters are moved together. For order 1, each one is then also moved alone.

    If they differ, the check compares the worst array entry by entry. An array of more than 64 entries is halved until
    at most 64 are left, each time keeping the half that differs more. Then it searches for the cause by experiments. It
    checks each custom bprop alone, at the inputs of the failed run. It lets gradients pass through `ops.stop_gradient`,
    first at all places together, then at one place after another. It checks each Cell alone. The error names a time
    step if the first axis of an input is as long as a time loop, or as the number of calls of a Cell.

    A spike is a step function, so finite differences contradict its surrogate gradient. Check a spiking network within
    `with snncell.surrogate.smooth():`, which replaces each spike by its primitive.

    At a kink several gradients are correct, for example for equal values in a max-pooling window. The gradients are
    then compared at random points near the inputs. If these are at kinks, too, the array counts as not checked.

    Args:
        fn: a function or Cell of Tensors.
        inputs: its arguments. Float Tensors are converted to float64 and checked; others are constant.
        order: 2 also checks the gradient of the gradient, and so on.
        weights: Parameters to check, too, in float64. Default: the trainable ones of a Cell; () for none.
        detached: True if you use `ops.stop_gradient` on purpose, for example by a detached reset. Finite differences
            then keep its results constant too, so that the check passes.
        eps, rtol, atol: the step of the central differences, and the tolerance: atol + rtol * the larger value.
        seed: the seed of the random directions.
    Returns: The comparisons, to print: for each input and Parameter the relative difference.
    Raises: GradientCheckError with both numbers, the order at which they differ, the worst entry, and the cause.
    Example:
        >>> print(snncell.testing.check_grads(lambda x: ops.sin(x) * x, Tensor([1.0, 2.0])).rows[0].name)
        input 0
    """
    own = [("", fn)] if hasattr(fn, "cells_and_names") else []
    net, named = ObservedNet(cells_of_function(fn)), choose_weights(own, weights)
    with InFloat64([cell for _, cell in cells_of_function(fn)], [p for _, p in named]) as cells:
        problem = Problem(fn, inputs, named, cells, seed, detached)
        number, rows, tolerance = problem.scalar, [], Tolerance(eps, rtol, atol)
        for level in range(1, order + 1):
            # First along one direction of all arrays together; this is enough for higher orders.
            separate = range(len(problem.names)) if len(problem.names) > 1 and level == 1 else ()
            found, wrong = compare_arrays(problem, number, tolerance, f"order {level}", [None, *separate], True)
            if wrong is not None:
                raise GradientCheckError(_message(wrong, net, level))
            rows += found
            number = problem.differentiate(number, level)
    return Checked("check_grads", rows)


def _message(wrong: WrongGradient, net: ObservedNet, level: int) -> str:
    search, number = wrong.search, wrong.number
    of = "" if number is None else f" of {search.problem.names[number]}"
    first = (
        f"check_grads, order {level}: the backward pass gives {wrong.analytic:.10g} along a random direction{of}, "
        f"finite differences {wrong.numeric:.10g}."
    )
    number = search.worst_array() if number is None else number
    return " ".join([first, *explanation(search, net, number, explain=level == 1)]).strip()


def explanation(search: Search, net: ObservedNet, number: int, explain: bool = True) -> list[str]:
    """Sentences about the worst entry, the time step of the inputs, and the cause."""
    problem = search.problem

    def run() -> Any:
        return problem.run(search.point)

    with unfused():
        steps = count_steps(net.sample_calls(run)) if net.cells else None
    sentences = [
        describe_entry(search.worst_entry(number), problem.names[number], has_time_axis(problem, number, steps))
    ]
    sentences += _other_input(search, number, steps)
    if explain:
        sentences.append(cause(net, search, run))
    return sentences


def has_time_axis(problem: Problem, number: int, steps: int | None) -> bool:
    """True if the array is an input with more than one axis, whose first axis has as many entries as steps."""
    shape = problem.point[number].shape
    return number < len(problem.positions) and len(shape) > 1 and shape[0] == steps


def _other_input(search: Search, number: int, steps: int | None) -> list[str]:
    """If the worst array is a Parameter: a sentence about an input and time step where the error shows, too."""
    problem = search.problem
    if number < len(problem.positions):
        return []
    for other in range(len(problem.positions)):
        if has_time_axis(problem, other, steps) and not search.tolerance.agree(*search.along(search.only(other))):
            return ["Also: " + describe_entry(search.worst_entry(other), problem.names[other], True)]
    return []


# --- the cause of a wrong gradient ------------------------------------------------------------------------------------

CALLS = 4  # the number of calls of each Cell to check


class WrongBprop(NamedTuple):
    """A Cell with a wrong bprop, the call, and the error."""

    path: str
    call: Called
    error: Exception


def check_bprops(net: ObservedNet, samples: dict[str, CallSample], smooth: bool) -> tuple[list[Row], str]:
    """Check each Cell with a bprop at inputs of the run, innermost first. Return rows, and a text on a wrong bprop."""
    rows: list[Row] = []
    for path in net.deepest_first(samples):
        cell = net.cells[path]
        # With smooth spikes, a Cell with a primitive has run its primitive, not construct.
        if getattr(cell, "bprop", None) is None or (smooth and getattr(cell, "primitive", None) is not None):
            continue
        calls = choose_calls(samples[path])
        # All inputs of a spike function may lie below the threshold, where any surrogate gradient is about 0.
        for group in (calls, _call_on_both_sides(calls) if is_surrogate(net, path) else []):
            rows_of_calls, wrong = _check_calls(net, path, group)
            rows += rows_of_calls
            if wrong:  # report the worst call
                worst = max(wrong, key=lambda fault: getattr(fault.error, "difference", 0.0))
                return rows, _describe_bprop(net, worst, count_steps(samples))
    return _worst_of_each(rows), ""


def _check_calls(net: ObservedNet, path: str, calls: Sequence[Called]) -> tuple[list[Row], list[WrongBprop]]:
    rows: list[Row] = []
    wrong: list[WrongBprop] = []
    for call in calls:
        try:
            with settings(smooth=False):  # with smooth spikes, the primitive would be compared with itself
                rows_of_call = check_bprop(net.cells[path], *call.inputs).rows
        except (GradientCheckError, BpropError) as error:
            wrong.append(WrongBprop(path, call, error))
            continue
        except SnncellError as error:
            return [Row("bprop", net.describe(path), math.nan, note=f"not checked: {error}")], wrong
        if rows_of_call:
            row = max(rows_of_call, key=lambda row: row.difference)
            rows.append(row._replace(name=f"{net.describe(path)}, {row.name}", step=call.step))
    return rows, wrong


def choose_calls(sample: CallSample) -> list[Called]:
    """A few calls of a sample, including the first and the last."""
    places = np.linspace(0, len(sample.calls) - 1, min(CALLS, len(sample.calls))).round().astype(int)
    return [sample.calls[n] for n in places]


def _call_on_both_sides(calls: Sequence[Called]) -> list[Called]:
    """A call of a spike function with inputs on both sides of its threshold, if it takes one Tensor."""
    if not (len(calls[0].inputs) == 1 and is_real(calls[0].inputs[0])):
        return []
    x = calls[0].inputs[0]
    return [Called((Tensor(np.random.default_rng(0).uniform(-1.0, 1.0, x.shape)).to(x.device),), None, None, False)]


def _worst_of_each(rows: Sequence[Row]) -> list[Row]:
    """The worst row of each name, with a note if any row of this name was at a kink."""
    worst: dict[str, Row] = {}
    for row in rows:
        before = worst.setdefault(row.name, row)
        if (row.difference, not row.note) > (before.difference, not before.note):
            worst[row.name] = row
    kinks = {row.name for row in rows if KINK in row.note}
    return [row.with_note(KINK) if row.name in kinks and KINK not in row.note else row for row in worst.values()]


def _describe_bprop(net: ObservedNet, wrong: WrongBprop, steps: int | None) -> str:
    step = "" if wrong.call.step is None else f", at time step {wrong.call.step}"
    if _got_all_steps(wrong.call, steps):
        step = ", which takes all time steps at once, as its first axis"
    if is_surrogate(net, wrong.path):
        neuron = _neuron_of(net, wrong.path)
        what = f"the surrogate {net.describe(wrong.path)}"
        what += "" if neuron is None else f", the spike function of {net.layer(neuron)}"
        hint = "Fix its bprop or its primitive; you can check it alone by check_bprop."
    else:
        what = f"the custom bprop of {net.layer(wrong.path)}"
        hint = "Fix it; you can check it alone by check_bprop."
    return f"The cause is {what}{step}: {str(wrong.error).rstrip('.')}. {hint}"


def is_surrogate(net: ObservedNet, path: str) -> bool:
    """True if a Cell is a spike function: it has a primitive, or is the surrogate_function of a neuron."""
    return _neuron_of(net, path) is not None or getattr(net.cells[path], "primitive", None) is not None


def _neuron_of(net: ObservedNet, path: str) -> str | None:
    """The path of the neuron with this surrogate_function."""
    parent = net.parent(path)
    named = parent is not None and getattr(net.cells[parent], "surrogate_function", None) is net.cells[path]
    return parent if named else None


def _got_all_steps(call: Called, steps: int | None) -> bool:
    shapes = [x.shape for x in call.inputs if isinstance(x, Tensor)]
    return not call.looped and steps is not None and any(len(s) > 1 and s[0] == steps for s in shapes)


def describe_step_functions(net: ObservedNet, samples: dict[str, CallSample]) -> str:
    """Name the spike functions that ran as step functions, which finite differences cannot check; or ""."""
    spiking = [path for path in samples if getattr(net.cells[path], "primitive", None) is not None]
    if CHECKING.smooth or not spiking:
        return ""
    return (
        f"The cause is the surrogate: {', '.join(map(net.describe, spiking))} ran as a step function, so finite "
        f"differences are useless. Check with smooth spikes, `with snncell.surrogate.smooth():`, or by "
        f"check_through_time."
    )


# --- stopped paths ---------------------------------------------------------------------------------------------------


class Probe:
    """Finite differences along random directions, to test gradients. They ignore stop_gradient."""

    def __init__(self, search: Search) -> None:
        self.search = search
        eps, others = search.tolerance.eps, search.tolerance.others
        self.rounding = search.problem.rounding(search.point, eps)
        directions = [search.only(number) for number in range(len(search.point))]
        self.expected = [(v, [(by, search.along(v, eps * by)[1]) for by in (1.0, *others)]) for v in directions]

    def right(self, gradients: Sequence[Array]) -> bool:
        """True if gradients agree with the finite differences."""
        for direction, expected in self.expected:
            slope = directional_derivative(gradients, direction)
            if not any(self.search.tolerance.agree(slope, n, self.rounding / by) for by, n in expected):
                return False
        return True

    def right_with(self, stops: Opened) -> bool:
        """True if the gradients are right with these paths open."""
        search = self.search
        with settings(stops=stops, unfused=True):
            return self.right(search.problem.gradient(search.fn, search.point))


def describe_stopped_paths(net: ObservedNet, search: Search) -> str:
    """Describe the stopped paths that make the gradient wrong, or return ""."""
    probe, opened = Probe(search), Opened(net.paths)
    if not probe.right_with(opened) or not opened.seen:
        return ""
    sites = list(opened.seen)
    # Stop one path at a time and open the others. If no path alone is guilty, all of them are.
    guilty = [site for site in sites if not probe.right_with(Opened(net.paths, frozenset({site})))] or sites
    return (
        f"Without any ops.stop_gradient the gradient is correct, so a stopped path is the cause: "
        f"{'; '.join(_site_text(net, probe, site) for site in guilty)}. If you want this path stopped, pass "
        f"detached=True."
    )


def _site_text(net: ObservedNet, probe: Probe, site: Site) -> str:
    if site.path is None:
        return f"ops.stop_gradient at {site.line}"
    layer = net.layer(site.path)
    if _is_its_reset(net, probe, site):
        return (
            f"{layer}: its reset is detached (detach_reset=True), so no gradient flows through it; set "
            f"detach_reset=False"
        )
    return f"{layer}: ops.stop_gradient at {site.line}; remove it if a gradient should flow there"


def _is_its_reset(net: ObservedNet, probe: Probe, site: Site) -> bool:
    """True if the gradient is right when this site stops gradients, and the layer's reset is not detached."""
    assert site.path is not None  # the caller checks it
    cell = net.cells[site.path]
    if not getattr(cell, "detach_reset", False):
        return False
    cell.__dict__["detach_reset"] = False  # bypass __setattr__, so that traces stay valid afterwards
    try:
        return probe.right_with(Opened(net.paths, frozenset({site})))
    finally:
        cell.__dict__["detach_reset"] = True


def describe_layer(net: ObservedNet, samples: dict[str, CallSample], tolerance: Tolerance) -> str:
    """Describe the innermost Cell that, called alone, has a wrong gradient, or return ""."""
    steps = count_steps(samples)
    for path in net.deepest_first(samples):
        for call in choose_calls(samples[path]):
            try:
                text = _fault_of(net.cells[path], call, tolerance, steps)
            except SnncellError:
                break  # it cannot be called or differentiated alone
            if text:
                step = "" if call.step is None else f", at time step {call.step}"
                return (
                    f"The cause is in {net.layer(path)}{step}: called alone, with the inputs that it gets "
                    f"there, its gradient is wrong, too, but its inner layers are correct: {text} It stops nothing "
                    f"by ops.stop_gradient. Look for values that leave the tape (asnumpy, item), and for operations "
                    f"with a custom gradient."
                )
    return ""


@contextmanager
def single_cell(cell: Any, call: Called) -> Iterator[Problem | None]:
    """Context manager: a Problem for a single Cell at the inputs of a call, or None if it has no floats."""
    named = choose_weights([("", cell)], None)
    if not named and not any(map(is_real, call.inputs)):
        yield None
        return
    with InFloat64([cell]) as in_float64:
        yield Problem(cell, call.inputs, named, in_float64, 0)


def _fault_of(cell: Any, call: Called, tolerance: Tolerance, steps: int | None) -> str:
    """Describe the worst entry of a Cell's own gradient, or return "" if it is correct."""
    with single_cell(cell, call) as problem:
        if problem is None:
            return ""
        _, wrong = compare_arrays(problem, problem.scalar, tolerance, "", range(len(problem.names)), False)
        if wrong is not None and wrong.number is not None:
            name = problem.names[wrong.number]
            return describe_entry(
                wrong.search.worst_entry(wrong.number), name, _got_all_steps(call, steps) and name.startswith("input")
            )
    return ""


def cause(net: ObservedNet, search: Search, run: Callable[[], Any]) -> str:
    """Describe why a gradient is wrong, or which causes have been excluded."""
    with unfused():
        samples = net.sample_calls(run)
        return (
            check_bprops(net, samples, smooth=CHECKING.smooth)[1]
            or ("" if search.problem.detached else describe_stopped_paths(net, search))
            or describe_step_functions(net, samples)
            or describe_layer(net, samples, search.tolerance)
            or ("" if not samples else "No custom bprop, stopped path or single layer explains it.")
        )
