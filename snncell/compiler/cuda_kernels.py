"""The CUDA kernels that a Program becomes, as sources: to be looked at and compiled where there is no card."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from snncell.compiler.backends.cuda_groups import emit_cuda
from snncell.compiler.ir.loop import LoopOperation
from snncell.compiler.ir.program import Program
from snncell.compiler.pipeline import optimise
from snncell.compiler.schedule.fuse import fuse
from snncell.kernels.space import DEVICE


def kernels_on_device(program: Program) -> Iterator[tuple[str, str, tuple[Any, ...]]]:
    """Name, source and signature of each kernel of a Program's own; a loop that goes step by step has none."""
    for group in fuse(optimise(program, DEVICE)):
        op = group.instructions[0].op
        if isinstance(op, LoopOperation):
            if (loop := op.device_kernel()) is not None:
                yield loop
        elif group.shape is not None:
            kernel = emit_cuda(group, set())
            yield kernel.name, kernel.source, kernel.signature
            if kernel.sums:
                yield f"join_{kernel.name}", kernel.source, kernel.join
