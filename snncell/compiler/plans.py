"""The plans of one Program: one for each place that its arrays are found in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import snncell.compiler.single  # noqa: F401  (it gives elementwise operations and reductions their rule for the device)
from snncell.compiler.absorb import optimised
from snncell.compiler.device_loop import DeviceLoop
from snncell.compiler.fuse import fuse
from snncell.compiler.plan import Plan
from snncell.compiler.program import Program
from snncell.compiler.scan import Scan
from snncell.compiler.threads import emit_threads
from snncell.kernels.space import DEVICE, HOST, IN_USE, Space, space_of
from snncell.tape.state import TRACING, here


def kernels_on_device(program: Program) -> Iterator[tuple[str, str, tuple[Any, ...]]]:
    """Name, source and signature of each kernel that a Program becomes on the device; it needs none.

    A loop over time that goes step by step has those of its step.
    """
    for group in fuse(optimised(program, DEVICE)):
        op = group.steps[0].op
        if isinstance(op, Scan):
            loop = op.lowered.loop_in(DEVICE)
            if isinstance(loop, DeviceLoop):
                yield loop.name, loop.source, loop.signature
        elif group.shape is not None:
            kernel = emit_threads(group, set())
            yield kernel.name, kernel.source, kernel.signature
            if kernel.sums:
                yield f"join_{kernel.name}", kernel.source, kernel.join


class Plans:
    """The plans of one Program, made when they are first asked for."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._plans: dict[Space, Plan] = {}

    def of(self, arrays: Sequence[Any]) -> Plan:
        """The plan for arguments that are these arrays: on the GPU, if one of them or a Parameter is there."""
        space: Space = HOST
        if IN_USE or here() is DEVICE:
            constants = [array for array, _ in self.program.constants if space_of(array) is DEVICE]
            parameters = [p._data for p in self.program.parameters if not p.follows]
            written = [p._data for p in self.program.written if not p.follows]
            space = self._place([*arrays, *parameters, *written, *constants])
        found = self._plans.get(space)
        return self._made(space) if found is None else found

    def _place(self, arrays: Sequence[Any]) -> Space:
        whole = [x for x in arrays if x.size > 1] or arrays  # a counter on the host is taken along
        if not whole:
            return here()
        return DEVICE if any(space_of(x) is DEVICE for x in whole) else HOST

    def _made(self, space: Space) -> Plan:
        with TRACING:
            if space not in self._plans:
                plan = Plan(optimised(self.program, space), space, recorded=True)
                plan.build()
                self._plans[space] = plan
            return self._plans[space]
