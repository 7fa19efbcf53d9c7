"""The plans of one Program: one for each place that its arrays are found in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import snncell.compiler.runtime.eager_cuda  # noqa: F401  (it gives elementwise operations and reductions their rule for the device)
from snncell.compiler.ir.program import Program
from snncell.compiler.pipeline import optimise
from snncell.compiler.runtime.plan import Plan
from snncell.kernels.space import DEVICE, HOST, IN_USE, Space, space_of
from snncell.tape.state import TRACING_LOCK, here


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
        plan = self._plans.get(space)
        return self._new_plan(space) if plan is None else plan

    def _place(self, arrays: Sequence[Any]) -> Space:
        whole = [x for x in arrays if x.size > 1] or arrays  # single elements, as a counter, are moved to the others
        if not whole:
            return here()
        return DEVICE if any(space_of(x) is DEVICE for x in whole) else HOST

    def _new_plan(self, space: Space) -> Plan:
        with TRACING_LOCK:
            if space not in self._plans:  # another thread may have made it meanwhile
                plan = Plan(optimise(self.program, space), space, recorded=True)
                plan.build()
                self._plans[space] = plan
            return self._plans[space]
