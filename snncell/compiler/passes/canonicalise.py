"""Canonicalisation: every trace, of a function or of the body of a loop, goes through `cse`, then through `dce`.

    before: a = exp(x); b = exp(x); c = sin(x); return mul(a, b)
    after:  a = exp(x); return mul(a, a)

In this order, for a step that is merged leaves its result dead. Between them contractions take the order in which their
results are used (`turn_contractions`): of equal transposes one is left by then. Later passes rely on it: an expression
is computed by one step, so that the users of its Value are all there are.
"""

from __future__ import annotations

from collections.abc import Collection

from snncell.compiler.ir.body import Body
from snncell.compiler.ir.program import Program, program_of_trace
from snncell.compiler.passes.cse import eliminate_common_subexpressions
from snncell.compiler.passes.dce import eliminate_dead_code
from snncell.compiler.passes.turn_contractions import turn_contractions
from snncell.tape.tracing import Trace, Value


def canonicalise(program: Program) -> Program:
    """Merge equal steps, have products give what is taken of them, and remove steps that no result depends on."""
    return eliminate_dead_code(turn_contractions(eliminate_common_subexpressions(program)))


def from_trace(trace: Trace, outputs: list[Value], known: Collection[Value] = frozenset()) -> Program:
    """Build the canonical Program of a finished trace; `known` Values are computed by no step of it."""
    return canonicalise(program_of_trace(trace, outputs, known=known))


def program_of(body: Body) -> Program:
    """Build the canonical Program of a loop's step."""
    return canonicalise(body.program())
