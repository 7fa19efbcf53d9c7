"""Canonicalisation: run `cse`, `turn_contractions` and `dce` on every trace, of a function or of the body of a loop.

    before: a = exp(x); b = exp(x); c = sin(x); return mul(a, b)
    after:  a = exp(x); return mul(a, a)

The order matters, because a merged instruction leaves a dead result behind. `turn_contractions` runs after `cse`, when
only one of several equal transposes is left. Later passes rely on the result: exactly one instruction computes an
expression, so the users of its Value are all the users of the expression.
"""

from __future__ import annotations

from collections.abc import Collection

from snncell.compiler.ir.body import Body
from snncell.compiler.ir.program import Program, program_of_trace
from snncell.compiler.passes.cse import eliminate_common_subexpressions
from snncell.compiler.passes.dce import eliminate_dead_code
from snncell.compiler.passes.turn_contractions import turn_contractions
from snncell.tape.tracing import Trace
from snncell.tape.value import Value


def canonicalise(program: Program) -> Program:
    """Merge equal instructions, choose the order of axes of contractions, and remove dead instructions."""
    return eliminate_dead_code(turn_contractions(eliminate_common_subexpressions(program)))


def from_trace(trace: Trace, outputs: list[Value], known: Collection[Value] = frozenset()) -> Program:
    """Build the canonical Program of a finished trace. No instruction of it computes `known` Values."""
    return canonicalise(program_of_trace(trace, outputs, known=known))


def program_of(body: Body) -> Program:
    """Build the canonical Program of a loop's step."""
    return canonicalise(body.program())
