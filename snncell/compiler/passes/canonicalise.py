"""A pass, the function that runs passes, and the passes that every trace goes through.

Canonical Programs merge equal instructions, so that exactly one instruction computes an expression, and the users of
its Value are all the users of the expression. Other passes rely on that. The order of the passes matters, because a
merged instruction leaves a dead result. `turn_contractions` runs after common subexpression elimination, when only one
of several equal transposes is left.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import NamedTuple

from snncell.compiler.ir.loop import Body
from snncell.compiler.ir.program import Program, program_of_trace
from snncell.compiler.passes.product_layout import turn_contractions
from snncell.compiler.passes.simplify import drop_identities, eliminate_common_subexpressions, eliminate_dead_code
from snncell.kernels.space import DEVICE, HOST, Space
from snncell.tape.tracing import Trace
from snncell.tape.value import Value


class Pass(NamedTuple):
    """A function Program -> Program, with its contract.

    Attributes:
        run: the function. It returns a new Program, or the same; it changes none.
        needs: the properties of a Program that it requires.
        leaves: the properties of a Program that it guarantees.
        spaces: where the Program's arrays may be.
    """

    run: Callable[[Program], Program]
    needs: str
    leaves: str
    spaces: tuple[Space, ...] = (HOST, DEVICE)

    @property
    def name(self) -> str:
        """The function's name."""
        return self.run.__name__


def run_passes(passes: Sequence[Pass], program: Program, space: Space = HOST) -> Iterator[tuple[str, Program]]:
    """Run passes for arrays that are in `space`: each pass's name with the Program that it leaves."""
    for each in passes:
        if space in each.spaces:
            program = each.run(program)
            yield each.name, program


def transform(passes: Sequence[Pass], program: Program, space: Space = HOST) -> Program:
    """The Program that passes leave."""
    *_, (_, last) = [("", program), *run_passes(passes, program, space)]
    return last


CANONICAL = (
    Pass(eliminate_common_subexpressions, "", "no two instructions compute the same"),
    Pass(drop_identities, "", "no instruction gives its operand once more"),
    Pass(turn_contractions, "equal transposes are one", "a contraction that is only transposed gives the transpose"),
    Pass(eliminate_dead_code, "", "a result depends on each instruction"),
)


def canonicalise(program: Program) -> Program:
    """Merge equal instructions, drop identities, turn contractions, and remove dead instructions."""
    return transform(CANONICAL, program)


def canonical_program(trace: Trace, outputs: list[Value], known: Collection[Value] = frozenset()) -> Program:
    """Build the canonical Program of a finished trace. No instruction of it computes `known` Values."""
    return canonicalise(program_of_trace(trace, outputs, known=known))


def canonical_step(body: Body) -> Program:
    """Build the canonical Program of a loop's step."""
    return canonicalise(body.program())
