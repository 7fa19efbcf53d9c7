"""The compiler's passes, in their order: one list over Programs, one over the bodies of loops.

`run_passes` runs both lists, and `snncell.explain_passes` shows a Program after each pass, then the step of each loop
in it. The docstring of a pass has an example, and says why it pays and when it must not be applied.

A trace goes through the CANONICAL passes at once. The other passes of PROGRAM_PASSES run when a plan is made, because
they depend on the device. A body chooses the values that it saves when it is traced (`rematerialise`), and is taken
apart when its loop is scheduled (`hoist`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from snncell.compiler.ir.loop import Body, LoopParts, Step
from snncell.compiler.ir.program import Program
from snncell.compiler.passes.fuse_into_loops import fuse_into_loops, multiply_in_loops
from snncell.compiler.passes.hoist import hoist
from snncell.compiler.passes.product_operands import make_contiguous, share_event_lists, spikes_as_bool
from snncell.compiler.passes.push_reductions import push_reductions
from snncell.compiler.passes.rematerialise import rematerialise
from snncell.compiler.passes.simplify import (
    CANONICAL,
    Pass,
    begin_early,
    eliminate_dead_code,
    fold_constants,
    run_passes,
    transform,
)
from snncell.kernels.space import HOST, Space
from snncell.tape.state import Value

PROGRAM_PASSES = (
    *CANONICAL,
    Pass(fold_constants, "", "no instruction depends on constants alone, but for those with large results"),
    Pass(
        push_reductions,
        "constants are folded, so that a product with a constant is seen as one",
        "sums over time stand before products, next to the loops that can add them up",
    ),
    Pass(
        fuse_into_loops,
        "sums stand next to loops",
        "loops hold the elementwise instructions that make their sequences, and the sums of their results",
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
    Pass(eliminate_dead_code, "", "a result depends on each instruction", (HOST,)),
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
    Pass(begin_early, "instructions are final", "operations that run in the background begin as early as they can"),
)

BODY_PASSES = (
    Pass(
        rematerialise,
        "nothing has been merged: the backward step computes all it needs of the step again",
        "the step gives the values that its backward step reads, the least from which it can compute the rest",
    ),
    *CANONICAL,
    Pass(
        hoist,
        "the users of a Value are all users of its expression",
        "each instruction has its place: before the loop, in it, or after it",
    ),
)


def optimise(program: Program, space: Space = HOST) -> Program:
    """Make the Program to plan of a canonical one, for arrays that are in `space`."""
    return transform(PROGRAM_PASSES[len(CANONICAL) :], program, space)


def choose_saved(body: Body) -> Body:
    """The body that gives the values which its `reverse` reads, as further outputs."""
    step: Step = transform(BODY_PASSES[:1], body.program()).step
    return step.body


def take_apart(body: Body, states: Sequence[Value] = ()) -> LoopParts:
    """Decide where the instructions of a body run.

    No instruction may take `states`, which are computed again in the loop, as sequences before it.
    """
    parts: LoopParts = transform(BODY_PASSES, _traced(body, states)).step.parts
    return parts


def stages(program: Program, space: Space = HOST) -> Iterator[tuple[str, Program]]:
    """A traced Program, then each pass's name with the Program that it leaves."""
    yield "traced", program
    yield from run_passes(PROGRAM_PASSES, program, space)


def stages_of_body(body: Body, states: Sequence[Value] = ()) -> Iterator[tuple[str, Program]]:
    """The same for the step of a loop; see `take_apart`."""
    traced = _traced(body, states)
    yield "traced", traced
    yield from run_passes(BODY_PASSES, traced)


def _traced(body: Body, states: Sequence[Value]) -> Program:
    """The Program of a body before the first pass, without the values that it saves."""
    program = body.program()
    outputs = [value for y, value in zip(body.outs, program.outputs, strict=True) if not body.is_saved(y)]
    return program._replace(outputs=outputs, step=Step(body, states))
