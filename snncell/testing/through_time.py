"""`check_through_time`: check all gradients of a spiking network."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from snncell.base.arguments.kinds import NotNegative, Positive, Size
from snncell.errors import ArgumentError, BpropError, GradientCheckError
from snncell.tape.parameter import Parameter
from snncell.tape.state import settings, unfused
from snncell.testing.blame import bprop_text, check_bprops
from snncell.testing.calls import ObservedNet, cells_of_function, choose_weights, count_steps
from snncell.testing.cut_gradients import refuse_cut_gradients
from snncell.testing.gradients import explanation
from snncell.testing.kernels import check_kernels
from snncell.testing.precision import InFloat64
from snncell.testing.problem import Problem, Tolerance
from snncell.testing.result import Checked, Row
from snncell.testing.search import compare_arrays, search_at

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
        rows, wrong = compare_arrays(
            lambda distance: search_at(problem, problem.scalar, tolerance, distance),
            "smooth",
            range(len(problem.names)),
            False,
        )
        if wrong is None:
            return rows
        assert wrong.number is not None  # each array is compared by itself
        first = (
            f"{WHO}: with smooth spikes the reverse gives {wrong.analytic:.10g} along a random direction of "
            f"{problem.names[wrong.number]}, finite differences {wrong.numeric:.10g}."
        )
        raise GradientCheckError(" ".join([first, *explanation(wrong.search, net, wrong.number)]).strip())
