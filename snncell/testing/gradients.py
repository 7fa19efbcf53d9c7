"""`check_grads`: compare the gradients of a function or Cell with finite differences."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from snncell.base.arguments.kinds import Count, NotNegative, Positive, Size
from snncell.errors import GradientCheckError
from snncell.tape.parameter import Parameter
from snncell.tape.state import unfused
from snncell.testing.blame import cause
from snncell.testing.bprops import Checked
from snncell.testing.problem import (
    InFloat64,
    ObservedNet,
    Problem,
    Tolerance,
    cells_of_function,
    choose_weights,
    count_steps,
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
    at most 64 are left, each time keeping the half that differs more. Then the check searches for the cause by
    experiments. It checks each custom bprop alone, at the inputs of the failed run. It lets gradients pass through
    `ops.stop_gradient`, first at all places together, then at one place after another. It checks each Cell alone. To
    name the time step of an error, the check must know which axis is time. It takes the first axis of an input
    as time if its length equals the number of steps of a time loop, or the number of times that a Cell was called.

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
        eps: half the distance of the central differences.
        rtol, atol: the tolerance: atol + rtol * the larger value.
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
