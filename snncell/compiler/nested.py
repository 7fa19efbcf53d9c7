"""A loop without states inside of another loop: all of its steps for all steps around it, as one loop.

around it T steps, in each of them M      one loop of T M steps
sequence (M, ...), of each (T, M, ...)    sequence (T M, ...)
constant (...)                            the same constant
constant of each step around, (T, ...)    sequence (T M, ...), each row M times
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from snncell.compiler.ir.loop import Loop
from snncell.compiler.lower import Lowered
from snncell.compiler.passes.canonicalise import program_of
from snncell.compiler.schedule.loop import schedule
from snncell.tape.primitive import one_after_another, repeat_over_time, steps_of


class Nested:
    """The rule of a loop for all steps of the loop around it: `Primitive.over_time`.

    Args:
        loop: the one inside, which has no states.
    """

    def __init__(self, loop: Loop) -> None:
        self.loop = loop
        self._lowered: dict[tuple[bool, ...], Lowered] = {}
        self._widest: int | None = None

    def __call__(self, arrays: Sequence[Any], varying: Sequence[bool], attrs: dict[str, Any]) -> tuple[Any, ...]:
        many, steps, first = steps_of(arrays, varying), attrs["steps"], len(self.loop.body.xs)
        constants = list(zip(arrays[first:], varying[first:], strict=True))
        # A sum is of the steps inside alone, and a matrix is not copied for each of them: then one loop after another.
        if self.loop.body.sums or any(x.size > many * self._most() for x, varies in constants if varies):
            alone = self._lowered_for((False,) * len(constants))
            each: tuple[Any, ...] = one_after_another(lambda *step: alone.run(step, steps), arrays, varying, {})
            return each
        rows = repeat_over_time(arrays, varying)[:first]
        for x, varies in constants:
            if varies:
                rows.append(np.broadcast_to(x.reshape(many, 1, *x.shape[1:]), (many, steps, *x.shape[1:])))
        rows = [x.reshape(many * steps, *x.shape[2:]) for x in rows]
        joined = self._lowered_for(tuple(varying[first:]))
        outs = joined.run([*rows, *(x for x, varies in constants if not varies)], many * steps)
        return tuple(out.reshape(many, steps, *out.shape[1:]) for out in outs)

    def _most(self) -> int:
        """The elements of the largest result of a step."""
        if self._widest is None:
            results = [x for instruction in program_of(self.loop.body).instructions for x in instruction.outputs]
            self._widest = max((math.prod(x.shape) for x in results), default=0)
        return self._widest

    def _lowered_for(self, of_each: tuple[bool, ...]) -> Lowered:
        """The loop that takes as sequences the constants that differ around it."""
        if of_each not in self._lowered:
            body = self.loop.body
            pairs = list(zip(body.consts, of_each, strict=True))
            moved, kept = [x for x, v in pairs if v], [x for x, v in pairs if not v]
            loop = replace(self.loop, body=replace(body, xs=[*body.xs, *moved], consts=kept))
            self._lowered[of_each] = Lowered(loop, schedule(loop))
        return self._lowered[of_each]
