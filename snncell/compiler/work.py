"""Arithmetic operations of instructions: the multiplications and additions of the plain algorithm.

matmul (n, k), (k, m)        2 n k m
conv (N, C, H, W), (O, C, K, K) -> (N, O, H', W')   2 N O H' W' C K K, also for both of its gradients
elementwise, sum             1 for each element
a loop of T steps            T times those of its step
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from snncell.compiler.ir.loop import LoopOperation
from snncell.compiler.ir.operations import Cast
from snncell.compiler.ir.product import (
    Convolution,
    ConvolutionBack,
    ConvolutionWeight,
    Product,
    ProductOfEvents,
    along_rows,
)
from snncell.compiler.ir.program import values_in
from snncell.compiler.passes.simplify import canonical_step
from snncell.compiler.runtime.loop_run import AllStepsOperation
from snncell.tape.state import Value
from snncell.tape.tracing import Instruction


def operations_in(instructions: Iterable[Instruction], density: float = 1.0) -> float:
    """The multiplications and additions of instructions; products use a share `density` of their first operand."""
    return float(sum(_operations(instruction, density) for instruction in instructions))


def _operations(instruction: Instruction, density: float) -> float:
    op, out = instruction.op, instruction.outputs[0]
    if op.view or isinstance(op, Cast):
        return 0.0
    if isinstance(op, LoopOperation):
        again = op.loop.recompute
        bodies = [op.loop.body, *([again.forward] if again else [])]
        steps = instruction.attrs["steps"]
        return float(steps) * sum(operations_in(canonical_step(body).instructions, density) for body in bodies)
    if isinstance(op, AllStepsOperation):
        return float(out.shape[0] * _operations(op.instruction, density))
    if isinstance(op, (Product, ProductOfEvents)):
        x = instruction.inputs[0]
        return 2.0 * density * _size(out) * float(math.prod(x.shape[:-1]) if along_rows(instruction) else x.shape[-1])
    if isinstance(op, (Convolution, ConvolutionBack, ConvolutionWeight)):
        x, y = instruction.inputs
        weight = out if isinstance(op, ConvolutionWeight) else y  # (O, C / groups, *K)
        results = out if isinstance(op, Convolution) else x if isinstance(op, ConvolutionBack) else y  # (N, O, *S)
        return 2.0 * density * _size(results) * math.prod(weight.shape[1:])
    return float(max(map(_size, (*values_in(instruction), *instruction.outputs))))


def _size(value: Value) -> int:
    return math.prod(value.shape)
