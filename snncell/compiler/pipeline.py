"""The passes over Programs, in their order: the one place to add one.

Each opens with an example, and says why it pays and when it must not be applied. `snncell.explain_passes` shows a
Program after each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from snncell.compiler.ir.program import Program
from snncell.compiler.passes.begin_early import begin_early
from snncell.compiler.passes.event_lists import share_event_lists, spikes_as_bool
from snncell.compiler.passes.fuse_into_loops import fuse_into_loops
from snncell.compiler.passes.multiply_in_loops import multiply_in_loops
from snncell.compiler.passes.product_layout import make_contiguous
from snncell.compiler.passes.push_reductions import push_reductions
from snncell.compiler.passes.simplify import eliminate_dead_code, fold_constants
from snncell.kernels.space import DEVICE, HOST, Space


class Pass(NamedTuple):
    """A function Program -> Program, with its contract.

    Attributes:
        run: the function. It returns a new Program, or the same; it changes none.
        needs: what must hold before it.
        leaves: what holds after it.
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


# A traced Program has been through common subexpression and dead code elimination (`passes/canonicalise.py`). What the
# steps of loops save is chosen when they are traced (`passes/rematerialise.py`), and what need not run step by step is
# taken out when they are lowered (`passes/hoist.py`).
PASSES = (
    Pass(fold_constants, "", "no step depends on constants alone, but for those with large results"),
    Pass(
        push_reductions,
        "constants are folded, so that a product with a constant is seen as one",
        "sums over time stand before products, next to the loops that can add them up",
    ),
    Pass(
        fuse_into_loops,
        "sums stand next to loops",
        "loops hold the elementwise steps that make their sequences, and the sums of their results",
    ),
    Pass(
        make_contiguous,
        "products are final",
        "operands that several products take as rows lie in one order, so that they are copied once at most",
    ),
    Pass(
        share_event_lists,
        "products are final",
        "products of one matrix take its events from one list",
        (HOST,),  # on the device products are dense
    ),
    Pass(eliminate_dead_code, "", "each step is needed", (HOST,)),
    Pass(
        spikes_as_bool,
        "products of spikes look for events",
        "spikes that only such products take leave their loops as booleans",
        (HOST,),
    ),
    Pass(
        multiply_in_loops,
        "loops hold all else that makes their sequences; products and their events are final",
        "loops hold the products that they alone take",
        (HOST,),
    ),
    Pass(begin_early, "steps are final", "what goes on beside other steps begins as early as it can"),
)


def optimise(program: Program, space: Space = HOST) -> Program:
    """Run all passes for arrays that are in `space`: the Program to plan."""
    *_, (_, last) = stages(program, space)
    return last


def stages(program: Program, space: Space = HOST) -> Iterator[tuple[str, Program]]:
    """Each pass's name with the Program that it leaves; the first is the traced one."""
    yield "traced", program
    for each in PASSES:
        if space in each.spaces:
            program = each.run(program)
            yield each.name, program
