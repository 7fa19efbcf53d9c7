"""Canonicalisation of a traced Program: equal steps are merged, and what nothing needs is left out."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from snncell.compiler.ir.body import Body
from snncell.compiler.ir.program import Program, as_traced
from snncell.compiler.passes.cse import eliminate_common_subexpressions
from snncell.compiler.passes.dce import eliminate_dead_code
from snncell.tape.tracing import Step, Trace, Value


def canonicalise(program: Program) -> Program:
    """Merge equal steps, and remove what no result depends on."""
    return eliminate_dead_code(eliminate_common_subexpressions(program))


def from_trace(
    trace: Trace, outputs: list[Value], ahead: Sequence[Step] = (), given: Collection[Value] = frozenset()
) -> Program:
    """Build the canonical Program of a finished trace (see `as_traced`)."""
    return canonicalise(as_traced(trace, outputs, ahead, given))


def program_of(body: Body) -> Program:
    """Build the canonical Program of a loop's step."""
    return canonicalise(body.program())
