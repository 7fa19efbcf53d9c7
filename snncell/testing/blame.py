"""Find the cause of a wrong gradient by experiments: a custom bprop, a stopped path, a spike function, a layer.

Each experiment changes one thing and looks whether the gradient is right then.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from snncell.errors import BpropError, GradientCheckError, SnncellError
from snncell.tape.state import CHECKING, settings, unfused
from snncell.tape.tensor import Tensor
from snncell.testing.bprops import KINK, check_bprop
from snncell.testing.calls import Called, CallSample, ObservedNet, choose_weights, count_steps
from snncell.testing.compare import Row
from snncell.testing.problem import Array, InFloat64, Opened, Problem, Site, Tolerance, directional_derivative, is_real
from snncell.testing.search import Search, compare_arrays, describe_entry

CALLS = 4  # of each Cell, that are checked one by one


# --- custom reverses -------------------------------------------------------------------------------------------------


class WrongBprop(NamedTuple):
    """A Cell whose bprop is wrong."""

    path: str
    call: Called
    error: Exception


def check_bprops(net: ObservedNet, samples: dict[str, CallSample], smooth: bool) -> tuple[list[Row], WrongBprop | None]:
    """Check each Cell that has a bprop at inputs that it met, the innermost first: rows, up to one that is wrong.

    With `smooth`, those that have a primitive were run by that, and do not count.
    """
    rows: list[Row] = []
    for path in net.deepest_first(samples):
        cell = net.cells[path]
        if getattr(cell, "bprop", None) is None or (smooth and getattr(cell, "primitive", None) is not None):
            continue
        calls = choose_calls(samples[path])
        # The inputs that a spike function met may all lie below its threshold, where any surrogate is about 0.
        for group in (calls, _call_on_both_sides(calls) if is_surrogate(net, path) else []):
            rows_of_calls, wrong = _check_calls(net, path, group)
            rows += rows_of_calls
            if wrong:  # several calls may be: the worst of them is told of
                return rows, max(wrong, key=lambda fault: getattr(fault.error, "difference", 0.0))
    return _worst_of_each(rows), None


def _check_calls(net: ObservedNet, path: str, calls: Sequence[Called]) -> tuple[list[Row], list[WrongBprop]]:
    rows: list[Row] = []
    wrong: list[WrongBprop] = []
    for call in calls:
        try:
            with settings(smooth=False):  # or a run with smooth spikes would compare the primitive with itself
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
    """A few calls out of a sample, the first and the last among them."""
    places = np.linspace(0, len(sample.calls) - 1, min(CALLS, len(sample.calls))).round().astype(int)
    return [sample.calls[n] for n in places]


def _call_on_both_sides(calls: Sequence[Called]) -> list[Called]:
    """A call of a spike function with inputs on both sides of its threshold, if it takes one Tensor."""
    if not (len(calls[0].inputs) == 1 and is_real(calls[0].inputs[0])):
        return []
    x = calls[0].inputs[0]
    return [Called((Tensor(np.random.default_rng(0).uniform(-1.0, 1.0, x.shape)).to(x.device),), None, None, False)]


def _worst_of_each(rows: Sequence[Row]) -> list[Row]:
    """The worst row of each name; that one of its calls was at a kink is noted even if another is worse."""
    worst: dict[str, Row] = {}
    for row in rows:
        before = worst.setdefault(row.name, row)
        if (row.difference, not row.note) > (before.difference, not before.note):
            worst[row.name] = row
    kinks = {row.name for row in rows if KINK in row.note}
    return [row.noted(KINK) if row.name in kinks and KINK not in row.note else row for row in worst.values()]


def bprop_text(net: ObservedNet, wrong: WrongBprop, steps: int | None) -> str:
    """A wrong bprop in words: whose, what it is, at which step, and the mend."""
    step = "" if wrong.call.step is None else f", at time step {wrong.call.step}"
    if _got_all_steps(wrong.call, steps):
        step = ", which gets all time steps at once, as the first axis"
    cell = net.cells[wrong.path]
    parent = net.parent(wrong.path)
    named = parent is not None and getattr(net.cells[parent], "surrogate_function", None) is cell
    if is_surrogate(net, wrong.path):
        what = f"the surrogate {net.describe(wrong.path)}"
        what += f", the spike function of {net.layer(parent)}" if named and parent is not None else ""
        mend = "Mend its bprop, or its primitive; check_bprop checks it by itself."
    else:
        what = f"the custom bprop of {net.layer(wrong.path)}"
        mend = "Mend it; check_bprop checks it by itself."
    return f"The cause is {what}{step}: {str(wrong.error).rstrip('.')}. {mend}"


def is_surrogate(net: ObservedNet, path: str) -> bool:
    """True if a Cell is a spike function: it has a primitive, or a neuron has it as that."""
    cell, parent = net.cells[path], net.parent(path)
    named = parent is not None and getattr(net.cells[parent], "surrogate_function", None) is cell
    return named or getattr(cell, "primitive", None) is not None


def _got_all_steps(call: Called, steps: int | None) -> bool:
    """True if a call got all time steps."""
    shapes = [x.shape for x in call.inputs if isinstance(x, Tensor)]
    return not call.looped and steps is not None and any(len(s) > 1 and s[0] == steps for s in shapes)


def steps_text(net: ObservedNet, samples: dict[str, CallSample]) -> str:
    """The spike functions that ran as steps, which differences cannot follow, in words, or nothing."""
    spiking = [path for path in samples if getattr(net.cells[path], "primitive", None) is not None]
    if CHECKING.smooth or not spiking:
        return ""
    return (
        f"The cause is the surrogate: {', '.join(map(net.describe, spiking))} ran as a step, which finite differences "
        f"cannot follow. Check with smooth spikes, `with snncell.surrogate.smooth():`, or by check_through_time."
    )


# --- stopped paths ---------------------------------------------------------------------------------------------------


class Probe:
    """Directions, and the derivatives along them by differences, which do not depend on what is stopped."""

    def __init__(self, search: Search) -> None:
        self.search = search
        eps, others = search.tolerance.eps, search.tolerance.others
        self.rounding = search.problem.rounding(search.point, eps)
        directions = [search.only(number) for number in range(len(search.point))]
        self.expected = [(v, [(by, search.along(v, eps * by)[1]) for by in (1.0, *others)]) for v in directions]

    def right(self, gradients: Sequence[Array]) -> bool:
        """True if gradients are what the differences say."""
        for direction, expected in self.expected:
            slope = directional_derivative(gradients, direction)
            if not any(self.search.tolerance.agree(slope, n, self.rounding / by) for by, n in expected):
                return False
        return True

    def right_with(self, stops: Opened) -> bool:
        """True if they are with these paths opened."""
        search = self.search
        with settings(stops=stops, unfused=True):
            return self.right(search.problem.gradient(search.fn, search.point))


def describe_stopped(net: ObservedNet, search: Search) -> str:
    """The stopped paths that make the gradient wrong, in words, or nothing."""
    probe, opened = Probe(search), Opened(net.paths)
    if not probe.right_with(opened) or not opened.seen:
        return ""
    sites = list(opened.seen)
    # Each stopped alone, the others let through; where none is wrong alone, they are together.
    guilty = [site for site in sites if not probe.right_with(Opened(net.paths, frozenset({site})))] or sites
    return (
        f"With every ops.stop_gradient let through, the gradient is right, so a path that is stopped is the cause: "
        f"{'; '.join(_site_text(net, probe, site) for site in guilty)}. To check the gradient that is meant with it "
        f"stopped, pass detached=True."
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
    return f"{layer}: ops.stop_gradient at {site.line}; take it out if a gradient is to flow there"


def _is_its_reset(net: ObservedNet, probe: Probe, site: Site) -> bool:
    """True if the gradient is right with this place stopped, if only the reset of its layer is not detached."""
    assert site.path is not None  # the caller's choice
    cell = net.cells[site.path]
    if not getattr(cell, "detach_reset", False):
        return False
    cell.__dict__["detach_reset"] = False  # past __setattr__: nothing that was traced is out of date afterwards
    try:
        return probe.right_with(Opened(net.paths, frozenset({site})))
    finally:
        cell.__dict__["detach_reset"] = True


# --- layers by themselves ---------------------------------------------------------------------------------------------


def layers_text(net: ObservedNet, samples: dict[str, CallSample], tolerance: Tolerance) -> str:
    """The innermost Cell whose own gradient is not what differences of it alone say, in words, or nothing."""
    steps = count_steps(samples)
    for path in net.deepest_first(samples):
        for call in choose_calls(samples[path]):
            try:
                text = _fault_of(net.cells[path], call, tolerance, steps)
            except SnncellError:
                break  # it cannot be called, or differentiated, by itself
            if text:
                step = "" if call.step is None else f", at time step {call.step}"
                return (
                    f"The cause is in {net.layer(path)}{step}: taken by itself, at the inputs that it gets "
                    f"there, its gradient is wrong too, and that of no layer inside of it: {text} Nothing in it is "
                    f"stopped by ops.stop_gradient; look for values that leave the tape (asnumpy, item), and for "
                    f"operations with a reverse of their own."
                )
    return ""


@contextmanager
def by_itself(cell: Any, call: Called) -> Iterator[Problem | None]:
    """Have a Cell as a problem of its own, at the inputs of a call; None if nothing there is of floats."""
    named = choose_weights([("", cell)], None)
    if not named and not any(map(is_real, call.inputs)):
        yield None
        return
    with InFloat64([cell]) as in_float64:
        yield Problem(cell, call.inputs, named, in_float64, 0)


def _fault_of(cell: Any, call: Called, tolerance: Tolerance, steps: int | None) -> str:
    """The worst entry of a Cell's own gradient, in words, or nothing if it is right."""
    with by_itself(cell, call) as problem:
        if problem is None:
            return ""
        _, wrong = compare_arrays(problem, problem.scalar, tolerance, "", range(len(problem.names)), False)
        if wrong is not None and wrong.number is not None:
            name = problem.names[wrong.number]
            return describe_entry(
                wrong.search.worst_entry(wrong.number), name, _got_all_steps(call, steps) and name.startswith("input")
            )
    return ""


# --- all together -----------------------------------------------------------------------------------------------------


def cause(net: ObservedNet, search: Search, run: Callable[[], Any]) -> str:
    """Why the gradient of a search is wrong, in words; what has been ruled out, if it is none of that."""
    with unfused():
        samples = net.watched(run)
        _, wrong = check_bprops(net, samples, smooth=CHECKING.smooth)
        if wrong is not None:
            return bprop_text(net, wrong, count_steps(samples))
        stopped = "" if search.problem.detached else describe_stopped(net, search)
        return (
            stopped
            or steps_text(net, samples)
            or layers_text(net, samples, search.tolerance)
            or ("" if not samples else "No custom bprop, stopped path or layer by itself accounts for it.")
        )
