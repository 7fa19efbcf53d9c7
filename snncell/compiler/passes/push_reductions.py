"""Products of sequences whose rows are added up, or all the same, become products of one step.

A readout's mean over time is the readout of the mean: the spikes are added up before the product, which the loop that
fires them does in passing. In the reverse every step then gets the same gradient, and that is multiplied once; the
gradient of the weights needs no more than the sum of the spikes. For T steps it is a T-th of the work, with results
that agree to rounding.
"""

from __future__ import annotations

from typing import Any

from snncell import dtype as dtypes
from snncell.compiler.ir.formula import Sum
from snncell.compiler.ir.product import Contraction, Dot, Product
from snncell.compiler.ir.program import Program, users_of
from snncell.compiler.ir.views import Broadcast, Reshape
from snncell.compiler.passes.canonicalise import canonicalise
from snncell.tape.primitive import Primitive
from snncell.tape.tracing import Step, Value

DEPTH = 50  # layers that a sum is taken through at a time


def push_reductions(program: Program) -> Program:
    """The Program with sums over the first axis taken before products, and products of equal rows taken once."""
    while any(isinstance(step.op, Product) for step in program.steps):
        pusher = _Pusher(program)
        rewritten = pusher.rewritten()
        if not pusher.changed:
            break
        # What is now in front of a product may be behind another.
        program = canonicalise(rewritten)
    return program


class _Pusher:
    """The steps so far, and what made each Value."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.users = users_of(program)
        self.makers: dict[Value, Step] = {}
        self.steps: list[Step] = []
        self.changed = False

    def rewritten(self) -> Program:
        """The Program; steps that nothing needs any more are dropped later."""
        for step in self.program.steps:
            other = self._of_sum(step) or self._of_dot(step) or self._of_contraction(step)
            self.changed |= other is not None
            self._add(other or step)
        return self.program._replace(steps=self.steps)

    def _add(self, step: Step) -> None:
        self.steps.append(step)
        self.makers.update(dict.fromkeys(step.outputs, step))

    def _new(self, op: Primitive, *inputs: Any, line: str, **attrs: Any) -> Value:
        step = Step(op, inputs, attrs, line)
        first = next(x for x in inputs if isinstance(x, Value))
        ((shape, dtype),) = op.abstract(inputs, attrs)
        step.outputs = (Value(first.trace, tuple(shape), dtype),)
        self._add(step)
        return step.outputs[0]

    # --- rewrites of a step -------------------------------------------------------------------------------------------

    def _of_sum(self, step: Step) -> Step | None:
        """sum(dot(x, w)) over time: dot(sum(x), w)."""
        op, attrs = step.op, step.attrs
        if not isinstance(op, Sum) or 0 not in attrs["axis"] or attrs["keepdims"] or not _adds_up(step.inputs[0]):
            return None
        total = self._total(step.inputs[0], op, step.line)
        if total is None:
            return None
        axes = tuple(axis - 1 for axis in attrs["axis"] if axis)
        if not axes:
            return _renamed(self.steps.pop(), step)  # the last that was added makes the total
        return _renamed(Step(op, (total,), {"axis": axes, "keepdims": False}, step.line), step)

    def _of_dot(self, step: Step) -> Step | None:
        """dot(broadcast(x), w): broadcast(dot(x, w))."""
        steady = self._steady(step.inputs[0]) if isinstance(step.op, Dot) else None
        if steady is None or len(steady.shape) < 2:
            return None
        out = step.outputs[0]
        one = self._new(step.op, steady, step.inputs[1], line=step.line)
        repeat = self.makers[step.inputs[0]]
        return _renamed(Step(repeat.op, (one,), {"shape": out.shape}, step.line), step)

    def _of_contraction(self, step: Step) -> Step | None:
        """contraction(x, broadcast(y)): contraction(sum(x), y)."""
        if not isinstance(step.op, Contraction) or not _adds_up(step.inputs[0]):
            return None
        x, y = step.inputs
        steady = self._steady(y)
        if steady is None or len(steady.shape) < 2:
            return None
        total = self._new(step.op.total, x, axis=(0,), keepdims=False, line=step.line)
        return _renamed(Step(step.op, (total, steady), step.attrs, step.line), step)

    # --- sequences ----------------------------------------------------------------------------------------------------

    def _steady(self, x: Value) -> Value | None:
        """The value of a sequence at every step, if it is the same at each."""
        maker = self.makers.get(x)
        if maker is None or not isinstance(maker.op, Broadcast) or len(x.shape) < 2 or x.shape[0] < 2:
            return None
        source: Value = maker.inputs[0]
        if len(source.shape) == len(x.shape):
            before = self.makers.get(source)
            if source.shape[0] != 1 or before is None or not isinstance(before.op, Reshape):
                return None
            source = self._new(before.op, source, shape=source.shape[1:], line=maker.line)
        if source.shape == x.shape[1:]:
            return source
        return self._new(maker.op, source, shape=x.shape[1:], line=maker.line)

    def _total(self, x: Value, op: Sum, line: str, depth: int = 0) -> Value | None:
        """The sum of a sequence over time, if a product can be taken after it, or if it is the same at each step."""
        maker = self.makers.get(x)
        if maker is None or len(x.shape) < 2 or x.shape[0] < 2:
            return None
        steady = self._steady(x)
        if steady is not None:
            return self._new(op.times, steady, x.shape[0], line=line)
        if len(self.users.get(x, ())) > 1:
            return None  # it is needed in any case
        if isinstance(maker.op, Dot):
            rows, matrix = maker.inputs
            total = self._total(rows, op, line, depth + 1) if depth < DEPTH else None
            total = total or self._new(op, rows, axis=(0,), keepdims=False, line=maker.line)
            return self._new(maker.op, total, matrix, line=maker.line)
        if maker.op.additive and not maker.op.view and not maker.attrs and all(_is_float(y) for y in maker.inputs):
            return self._total_of_terms(x, maker, op, line, depth)
        return None

    def _total_of_terms(self, x: Value, maker: Step, op: Sum, line: str, depth: int) -> Value | None:
        """The sum over time of a sum of one sequence and terms that are the same at every step."""
        moving = [y for y in maker.inputs if len(y.shape) == len(x.shape)]
        one = len(moving) == 1 and moving[0].shape == x.shape and depth < DEPTH
        total = self._total(moving[0], op, line, depth + 1) if one else None
        if total is None:
            return None
        terms = [total if y in moving else self._new(op.times, y, x.shape[0], line=line) for y in maker.inputs]
        return self._new(maker.op, *terms, line=maker.line)


def _renamed(new: Step, old: Step) -> Step:
    new.outputs = old.outputs
    return new


def _adds_up(x: Value) -> bool:
    """True if a sum may be taken early: of what is only stored it could overflow, or lose digits."""
    return bool(dtypes.is_float(x.dtype) and not dtypes.only_stored(x.dtype))


def _is_float(x: Any) -> bool:
    return isinstance(x, Value) and dtypes.is_float(x.dtype)
