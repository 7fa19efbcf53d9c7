"""Products of sequences whose rows are added up, or all the same, become products of one step.

A readout's mean over time is the readout of the mean: the spikes are added up before the product, which the loop that
fires them does in passing. In the reverse every step then gets the same gradient, and that is multiplied once; the
gradient of the weights needs no more than the sum of the spikes. For T steps it is a T-th of the work, with results
that agree to rounding.
"""

from __future__ import annotations

import math
from typing import Any

from snncell import dtype as dtypes
from snncell.compiler.ir.program import Program, users_of
from snncell.compiler.passes.canonicalise import canonicalise
from snncell.tape.primitive import Primitive
from snncell.tape.tracing import Step, Value

DEPTH = 50  # layers that a sum is taken through at a time


def push_reductions(program: Program) -> Program:
    """The Program with sums over the first axis taken before products, and products of equal rows taken once."""
    while any(step.op.total is not None for step in program.steps):
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
        """The Program; what the steps that are left out of use made is dropped later."""
        for step in self.program.steps:
            other = self._sum(step) or self._product(step) or self._rows(step)
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

    # --- sums ---------------------------------------------------------------------------------------------------------

    def _sum(self, step: Step) -> Step | None:
        """A sum over time of what comes out of a product, as the product of a sum."""
        op, attrs = step.op, step.attrs
        if op.repeated is None or 0 not in attrs["axis"] or attrs["keepdims"] or not _adds_up(step.inputs[0]):
            return None
        total = self._total(step.inputs[0], op, step.line)
        if total is None:
            return None
        axes = tuple(axis - 1 for axis in attrs["axis"] if axis)
        if not axes:
            return _renamed(self.steps.pop(), step)  # the last that was added makes the total
        return _renamed(Step(op, (total,), {"axis": axes, "keepdims": False}, step.line), step)

    def _total(self, x: Value, op: Primitive, line: str, depth: int = 0) -> Value | None:
        """The sum of a sequence over time, if a product can be taken after it, or if all its rows are the same."""
        maker = self.makers.get(x)
        if maker is None or len(x.shape) < 2 or x.shape[0] < 2:
            return None
        steady = self._steady(x, maker)
        if steady is not None:
            assert op.repeated is not None  # the caller's choice
            return self._new(op.repeated, steady, x.shape[0], line=line)
        if len(self.users.get(x, ())) > 1:
            return None  # it is needed in any case
        beneath = self._from_product(x, maker)
        if beneath is not None:
            rows, product = beneath
            source = rows.inputs[0]
            given = self._total(source, op, line, depth + 1) if depth < DEPTH else None
            given = given or self._new(op, source, axis=(0,), keepdims=False, line=product.line)
            flat = self._new(rows.op, given, shape=(math.prod(x.shape[1:-1]), source.shape[-1]), line=rows.line)
            out = self._new(product.op, flat, product.inputs[1], line=product.line, **product.attrs)
            return self._new(maker.op, out, shape=x.shape[1:], line=maker.line)
        if maker.op.additive and not maker.op.view and not maker.attrs and all(_is_float(y) for y in maker.inputs):
            return self._total_of_terms(x, maker, op, line, depth)
        return None

    def _total_of_terms(self, x: Value, maker: Step, op: Primitive, line: str, depth: int) -> Value | None:
        """The sum over time of a sum of one sequence and terms that are the same at every step."""
        assert op.repeated is not None  # the caller's choice
        moving = [y for y in maker.inputs if len(y.shape) == len(x.shape)]
        one = len(moving) == 1 and moving[0].shape == x.shape and depth < DEPTH
        total = self._total(moving[0], op, line, depth + 1) if one else None
        if total is None:
            return None
        terms = [y if y in moving else self._new(op.repeated, y, x.shape[0], line=line) for y in maker.inputs]
        terms = [total if y in moving else y for y in terms]
        return self._new(maker.op, *terms, line=maker.line)

    def _from_product(self, x: Value, maker: Step) -> tuple[Step, Step] | None:
        """For a sequence made of the rows of a product of a sequence: the step that made it rows, and the product."""
        if not maker.op.keeps_order:
            return None
        product = self.makers.get(maker.inputs[0])
        if product is None or product.op.total is None or len(self.users.get(product.outputs[0], ())) > 1:
            return None
        rows = self.makers.get(product.inputs[0])
        if rows is None or not rows.op.keeps_order:
            return None
        as_rows = (math.prod(x.shape[:-1]), x.shape[-1])
        fits = rows.inputs[0].shape[:-1] == x.shape[:-1] and product.outputs[0].shape == as_rows
        return (rows, product) if fits else None

    # --- equal rows ---------------------------------------------------------------------------------------------------

    def _steady(self, x: Value, maker: Step | None) -> Value | None:
        """The value of a sequence at every step, if it is the same at each."""
        if maker is None or not maker.op.repeats or len(x.shape) < 2 or x.shape[0] < 2:
            return None
        source: Value = maker.inputs[0]
        if len(source.shape) == len(x.shape):
            if source.shape[0] != 1:
                return None
            before = self.makers.get(source)
            if before is None or not before.op.keeps_order:
                return None
            source = self._new(before.op, source, shape=source.shape[1:], line=maker.line)
        if source.shape == x.shape[1:]:
            return source
        return self._new(maker.op, source, shape=x.shape[1:], line=maker.line)

    def _steady_rows(self, x: Value) -> tuple[Value, tuple[int, ...]] | None:
        """For rows of a sequence that is the same at every step: the rows of one, and the sequence's shape."""
        rows = self.makers.get(x)
        if rows is None or not rows.op.keeps_order or len(x.shape) != 2:
            return None
        sequence = rows.inputs[0]
        if len(sequence.shape) < 3 or sequence.shape[-1] != x.shape[-1]:
            return None
        steady = self._steady(sequence, self.makers.get(sequence))
        if steady is None:
            return None
        shape = (math.prod(sequence.shape[1:-1]), x.shape[-1])
        return self._new(rows.op, steady, shape=shape, line=rows.line), sequence.shape

    def _rows(self, step: Step) -> Step | None:
        """The sequence of the rows of a product of equal rows: one product, at every step."""
        if not step.op.keeps_order:
            return None
        product = self.makers.get(step.inputs[0])
        if product is None or product.op.total is None or not isinstance(product.inputs[0], Value):
            return None
        steady = self._steady_rows(product.inputs[0])
        out = step.outputs[0]
        if steady is None or out.shape[:-1] != steady[1][:-1] or out.shape[-1] != product.outputs[0].shape[-1]:
            return None
        repeat = self.makers[self.makers[product.inputs[0]].inputs[0]]  # what made all rows of one
        made = self._new(product.op, steady[0], product.inputs[1], line=product.line, **product.attrs)
        one = self._new(step.op, made, shape=(1, *out.shape[1:]), line=step.line)
        return _renamed(Step(repeat.op, (one,), {"shape": out.shape}, step.line), step)

    def _product(self, step: Step) -> Step | None:
        """A product of a transposed sequence with equal rows, as that of the sequence's sum."""
        if step.op.total is None:
            return None
        turn = self.makers.get(step.inputs[0])
        if turn is None or turn.op.turns is None or not turn.op.turns(turn.attrs):
            return None
        rows = self.makers.get(turn.inputs[0])
        if rows is None or not rows.op.keeps_order:
            return None
        steady = self._steady_rows(step.inputs[1])
        source = rows.inputs[0]
        if steady is None or source.shape[:-1] != steady[1][:-1] or not _adds_up(source):
            return None
        total = self._new(step.op.total, source, axis=(0,), keepdims=False, line=step.line)
        flat = self._new(rows.op, total, shape=(math.prod(source.shape[1:-1]), source.shape[-1]), line=rows.line)
        turned = self._new(turn.op, flat, line=turn.line, **turn.attrs)
        return _renamed(Step(step.op, (turned, steady[0]), step.attrs, step.line), step)


def _renamed(new: Step, old: Step) -> Step:
    new.outputs = old.outputs
    return new


def _adds_up(x: Value) -> bool:
    """True if a sum may be taken early: of what is only stored it could overflow, or lose digits."""
    return bool(dtypes.is_float(x.dtype) and not dtypes.only_stored(x.dtype))


def _is_float(x: Any) -> bool:
    return isinstance(x, Value) and dtypes.is_float(x.dtype)
