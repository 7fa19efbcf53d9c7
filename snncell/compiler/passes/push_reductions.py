"""Push reductions before products: sum a sequence over time before its product, and multiply repeated rows once.

    sum_t(dot(x, w))              ->  dot(sum_t(x), w)               readout of a mean instead of mean of readouts
    dot(broadcast(x), w)          ->  broadcast(dot(x, w))           its backward pass: all steps have the same gradient
    contraction(x, broadcast(y))  ->  contraction(sum_t(x), y)       the gradient of its weights
    conv(broadcast(x), w)         ->  broadcast(conv(x, w))          an image that is shown at every step
    conv_weight(broadcast(x), y)  ->  conv_weight(x, sum_t(y))       the gradient of its weights

For T steps, the product has 1 / T of the work. The remaining sum is next to the loop that computes the spikes, and
`fuse_into_loops` fuses it into this loop. A convolution of a sequence stands between a reshape (T, B, ...) ->
(T B, ...) and its inverse, which the rules match, too. Results are the same up to rounding. So the pass applies to
floats only, but not to float16 and bfloat16, in which a sum over time can overflow or lose digits. It skips products
with another user, who needs the full product.
"""

from __future__ import annotations

from typing import Any

from snncell.base.frames import Place
from snncell.compiler.ir.operations import Broadcast, Reshape, Sum, can_sum_early, is_float_value, merges_steps
from snncell.compiler.ir.product import (
    BilinearOperation,
    Contraction,
    Convolution,
    ConvolutionBack,
    ConvolutionWeight,
    Dot,
    Product,
)
from snncell.compiler.ir.program import Program, users_of, with_inputs
from snncell.compiler.passes.simplify import canonicalise
from snncell.tape.primitive import Primitive
from snncell.tape.state import Value
from snncell.tape.tracing import Instruction

DEPTH = 50  # the most layers through which one run of `_Pusher` pushes a sum


def push_reductions(program: Program) -> Program:
    """Push sums over the first axis before products, and multiply repeated rows and images once."""
    while any(isinstance(instruction.op, Product | BilinearOperation) for instruction in program.instructions):
        pusher = _Pusher(program)
        rewritten = pusher.rewrite()
        if not pusher.changed:
            break
        # Iterate to a fixed point, because a sum that was pushed before one product may follow another.
        program = canonicalise(rewritten)
    return program


class _Pusher:
    """One run of the pass over a Program: the instructions so far, and the definition of each Value."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.users = users_of(program)
        self.makers: dict[Value, Instruction] = {}
        self.instructions: list[Instruction] = []
        self.changed = False

    def rewrite(self) -> Program:
        """The rewritten Program; the caller's `canonicalise` removes dead instructions."""
        for instruction in self.program.instructions:
            rules = (self._of_sum, self._of_dot, self._of_contraction, self._of_convolution, self._of_weight)
            rewrites = (rule(instruction) for rule in (*rules, self._of_cut))
            rewrite = next((new for new in rewrites if new is not None), None)
            self.changed |= rewrite is not None
            self._add(rewrite or instruction)
        return self.program._replace(instructions=self.instructions)

    def _add(self, instruction: Instruction) -> None:
        self.instructions.append(instruction)
        self.makers.update(dict.fromkeys(instruction.outputs, instruction))

    def _new(self, op: Primitive, *inputs: Any, line: Place, **attrs: Any) -> Value:
        instruction = Instruction(op, inputs, attrs, line)
        first = next(x for x in inputs if isinstance(x, Value))
        ((shape, dtype),) = op.abstract(inputs, attrs)
        instruction.outputs = (Value(first.trace, tuple(shape), dtype),)
        self._add(instruction)
        return instruction.outputs[0]

    # --- Rewrite rules ------------------------------------------------------------------------------------------------

    def _of_sum(self, instruction: Instruction) -> Instruction | None:
        """sum(dot(x, w)) over time -> dot(sum(x), w)."""
        op, attrs = instruction.op, instruction.attrs
        if not isinstance(op, Sum) or 0 not in attrs["axis"] or attrs["keepdims"]:
            return None
        (x,) = instruction.inputs
        total = self._total(x, op, instruction.line) if can_sum_early(x) else None
        if total is None:
            return None
        axes = tuple(axis - 1 for axis in attrs["axis"] if axis)
        if not axes:
            # The last added instruction computes the total, so it can define the result directly.
            last = self.instructions.pop()
            return with_inputs(last, last.inputs, instruction.outputs)
        return with_inputs(instruction, [total], attrs={"axis": axes, "keepdims": False})

    def _of_dot(self, instruction: Instruction) -> Instruction | None:
        """dot(broadcast(x), w) -> broadcast(dot(x, w))."""
        rows = self._repeated(instruction.inputs[0]) if isinstance(instruction.op, Dot) else None
        if rows is None or len(rows.shape) < 2:
            return None
        product = self._new(instruction.op, rows, instruction.inputs[1], line=instruction.line)
        return self._reshape(instruction, self.makers[instruction.inputs[0]].op, product)

    def _reshape(self, instruction: Instruction, op: Primitive, x: Value) -> Instruction:
        return with_inputs(instruction, [x], op=op, attrs={"shape": instruction.outputs[0].shape})

    def _of_contraction(self, instruction: Instruction) -> Instruction | None:
        """contraction(x, broadcast(y)) -> contraction(sum(x), y)."""
        if not isinstance(instruction.op, Contraction) or not can_sum_early(instruction.inputs[0]):
            return None
        x, y = instruction.inputs
        rows = self._repeated(y)
        if rows is None or len(rows.shape) < 2:
            return None
        total = self._new(instruction.op.total, x, axis=(0,), keepdims=False, line=instruction.line)
        return with_inputs(instruction, [total, rows])

    def _of_convolution(self, instruction: Instruction) -> Instruction | None:
        """conv(reshape(broadcast(x)), w) -> reshape(broadcast(conv(x, w)))."""
        op = instruction.op
        images = self._repeated_images(instruction.inputs[0]) if isinstance(op, Convolution | ConvolutionBack) else None
        if images is None:
            return None
        cut = self.makers[instruction.inputs[0]]
        sequence = cut.inputs[0]
        once = self._new(op, images, instruction.inputs[1], line=instruction.line, **instruction.attrs)
        shape = (sequence.shape[0], *once.shape)
        repeated = self._new(self.makers[sequence].op, once, shape=shape, line=instruction.line)
        return self._reshape(instruction, cut.op, repeated)

    def _of_weight(self, instruction: Instruction) -> Instruction | None:
        """conv_weight(reshape(broadcast(x)), y) -> conv_weight(x, sum(reshape(y))); the same if y is repeated."""
        if not isinstance(instruction.op, ConvolutionWeight) or not can_sum_early(instruction.inputs[0]):
            return None
        for place, other in ((0, 1), (1, 0)):
            images, y = self._repeated_images(instruction.inputs[place]), instruction.inputs[other]
            if images is None:
                continue
            join = self.makers[instruction.inputs[place]]
            shape = (*join.inputs[0].shape[:2], *y.shape[1:])  # from the sequence, because a batch may be empty
            steps = self._new(join.op, y, shape=shape, line=instruction.line)
            total = self._new(instruction.op.total, steps, axis=(0,), keepdims=False, line=instruction.line)
            return with_inputs(instruction, [images, total] if place == 0 else [total, images])
        return None

    def _of_cut(self, instruction: Instruction) -> Instruction | None:
        """reshape(reshape(broadcast(x))) -> broadcast(x): undo the merge of steps with the batch."""
        images = self._repeated_images(instruction.inputs[0]) if isinstance(instruction.op, Reshape) else None
        if images is None or instruction.outputs[0].shape[1:] != images.shape:
            return None
        return self._reshape(instruction, self.makers[self.makers[instruction.inputs[0]].inputs[0]].op, images)

    # --- Sequences ----------------------------------------------------------------------------------------------------

    def _repeated(self, x: Value) -> Value | None:
        """The single step of a sequence that is broadcast along time, else None."""
        maker = self.makers.get(x)
        if maker is None or not isinstance(maker.op, Broadcast) or len(x.shape) < 2 or x.shape[0] < 2:
            return None
        source: Value = maker.inputs[0]
        if len(source.shape) == len(x.shape):
            # The gradient of a sum over time is a reshape to (1, ...) and a broadcast. Use the operation of this
            # reshape for the new one, because passes cannot create operations by name.
            reshape = self.makers.get(source)
            if source.shape[0] != 1 or reshape is None or not isinstance(reshape.op, Reshape):
                return None
            source = self._new(reshape.op, source, shape=source.shape[1:], line=maker.line)
        same = source.shape == x.shape[1:]
        return source if same else self._new(maker.op, source, shape=x.shape[1:], line=maker.line)

    def _repeated_images(self, x: Value) -> Value | None:
        """The images of one step, if a batch (T B, ...) repeats this step along time, else None."""
        maker = self.makers.get(x)
        if maker is None or not merges_steps(maker) or not x.shape[0]:
            return None
        return self._repeated(maker.inputs[0])

    def _total(self, x: Value, op: Sum, line: Place, depth: int = 0) -> Value | None:
        """The sum of a sequence over time, if it can be pushed before a product, or if all steps are equal."""
        maker = self.makers.get(x)
        if maker is None or len(x.shape) < 2 or x.shape[0] < 2:
            return None
        step_value = self._repeated(x)
        if step_value is not None:
            return self._new(op.times, step_value, x.shape[0], line=line)
        if len(self.users.get(x, ())) > 1:
            return None  # other users need the sequence, and a second product would be more work
        if isinstance(maker.op, Dot):
            rows, matrix = maker.inputs
            # DEPTH limits the recursion. The next run of `push_reductions` continues from there.
            total = self._total(rows, op, line, depth + 1) if depth < DEPTH else None
            total = total or self._new(op, rows, axis=(0,), keepdims=False, line=maker.line)
            return self._new(maker.op, total, matrix, line=maker.line)
        if maker.op.additive and not maker.op.view and not maker.attrs and all(map(is_float_value, maker.inputs)):
            return self._total_of_terms(x, maker, op, line, depth)
        return None

    def _total_of_terms(self, x: Value, maker: Instruction, op: Sum, line: Place, depth: int) -> Value | None:
        """The sum of a sequence plus loop-invariant terms: sum_t(x + b) = sum_t(x) + T b."""
        varying = [y for y in maker.inputs if len(y.shape) == len(x.shape)]
        is_single = len(varying) == 1 and varying[0].shape == x.shape and depth < DEPTH
        total = self._total(varying[0], op, line, depth + 1) if is_single else None
        if total is None:
            return None
        terms = [total if y in varying else self._new(op.times, y, x.shape[0], line=line) for y in maker.inputs]
        return self._new(maker.op, *terms, line=maker.line)
