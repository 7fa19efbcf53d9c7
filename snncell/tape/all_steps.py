"""Rules by which a loop carries an operation out for all of its steps together: `Primitive.over_time`.

Most operations take any leading axes, or options that name axes and shapes: to them the steps are one more axis.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from snncell.tape.primitive import Primitive

Arrays = Sequence[Any]


def repeat_over_time(arrays: Arrays, varying: Sequence[bool]) -> list[Any]:
    """The operands, each with a first axis of steps; what is the same at every step is repeated, as a view."""
    steps = steps_of(arrays, varying)
    return [
        x if varies or not hasattr(x, "shape") else np.broadcast_to(x, (steps, *x.shape))
        for x, varies in zip(arrays, varying, strict=True)
    ]


def steps_of(arrays: Arrays, varying: Sequence[bool]) -> int:
    """The number of steps."""
    return next(len(x) for x, varies in zip(arrays, varying, strict=True) if varies)


def with_axis_of_steps(op: Primitive, options: Callable[[dict[str, Any], int], dict[str, Any]] | None = None) -> None:
    """Have `op` take the steps as one more axis, the first.

    Args:
        op: it takes such an axis of all its operands, and has it in all its results.
        options: its options then, from those for one step and the number of steps; without it they are the same.
    """

    def over_time(arrays: Arrays, varying: Sequence[bool], attrs: dict[str, Any]) -> Any:
        every = repeat_over_time(arrays, varying)
        return op.run_here(every, every, options(attrs, steps_of(arrays, varying)) if options else attrs)

    op.over_time = over_time


def axis_behind_steps(attrs: dict[str, Any], steps: int) -> dict[str, Any]:
    """The options of an operation along an axis, which is one further behind."""
    return {**attrs, "axis": attrs["axis"] + 1}


def one_after_another(
    evaluate: Callable[..., Any], arrays: Arrays, varying: Sequence[bool], attrs: dict[str, Any]
) -> Any:
    """The results of all steps of an operation, of a step at a time; several where it gives a tuple."""
    each = [
        evaluate(*(x[t, ...] if varies else x for x, varies in zip(arrays, varying, strict=True)), **attrs)
        for t in range(steps_of(arrays, varying))
    ]
    if isinstance(each[0], tuple):
        return tuple(_join_results(results) for results in zip(*each, strict=True))
    return _join_results(each)


def _join_results(results: Arrays) -> Any:
    return np.concatenate([x.reshape(1, *x.shape) for x in results])
