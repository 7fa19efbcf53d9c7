"""The compiler's passes, in order: one list over Programs, and one over the bodies of loops.

`snncell.explain_passes` shows a Program after each pass, then the step of each of its loops. The docstring of a pass
has an example, the reason why it pays, and the conditions under which it is legal. The CANONICAL passes run as soon as
a trace is complete, and the other PROGRAM_PASSES when a plan is made, because they depend on the device.
`rematerialise` runs when the body of a loop has been traced, and all BODY_PASSES when the loop is scheduled.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from snncell.compiler.ir.program import Body, LoopParts, Program, Step
from snncell.compiler.passes.fuse_into_loops import fuse_into_loops, reduce_in_loops
from snncell.compiler.passes.loop_bodies import hoist, rematerialise
from snncell.compiler.passes.narrow import narrow_to_bytes
from snncell.compiler.passes.pool_in_loops import pool_in_loops
from snncell.compiler.passes.products import make_contiguous, multiply_in_loops, share_event_lists
from snncell.compiler.passes.push_reductions import push_reductions
from snncell.compiler.passes.separate_steps import separate_steps
from snncell.compiler.passes.simplify import (
    CANONICAL,
    Pass,
    begin_early,
    drop_broadcasts,
    eliminate_common_subexpressions,
    eliminate_dead_code,
    fold_constants,
    run_passes,
    transform,
)
from snncell.kernels.space import HOST, Space
from snncell.tape.state import Value

PROGRAM_PASSES = (
    *CANONICAL,
    Pass(fold_constants, "", "no instruction depends on constants alone, except those with large results"),
    Pass(
        push_reductions,
        "constants are folded, so that a product with a constant is recognised",
        "sums over time come before products, next to the loops that can absorb them",
    ),
    Pass(
        separate_steps,
        "sums are next to loops",
        "elementwise instructions and sums next to loops have a time axis",
    ),
    Pass(eliminate_common_subexpressions, "", "no two instructions compute the same"),
    Pass(
        fuse_into_loops,
        "instructions next to loops have a time axis",
        "where it pays, loops contain the elementwise producers and users of their sequences, and sums over time",
    ),
    Pass(
        reduce_in_loops,
        "sums over time are in loops",
        "if a sum over time is summed further to few results, the loop does this too",
        (HOST,),
    ),
    Pass(
        drop_broadcasts,
        "if a loop reads the result of a broadcast along time, the broadcast has been fused into the loop",
        "elementwise instructions broadcast their operands themselves",
    ),
    Pass(
        make_contiguous,
        "later passes change nothing about products except their place and the dtypes of their operands",
        "operands that several products use as rows are contiguous, so that they are copied at most once",
    ),
    Pass(
        share_event_lists,
        "later passes change nothing about products except their place and the dtypes of their operands",
        "products of one matrix share one list of its events",
        (HOST,),  # on the device products are dense
    ),
    Pass(eliminate_dead_code, "", "each instruction is needed for a result", (HOST,)),
    Pass(
        narrow_to_bytes,
        "event lists are shared; fusion of the elementwise users of loops is complete",
        "whole numbers up to 255 are bytes if all of their users can read bytes",
        (HOST,),
    ),
    Pass(
        pool_in_loops,
        "spikes are bytes where possible; fusion of the other users and producers of loops is complete",
        "where it is legal, loops pool their results, and contain the gradients of pooling that only they use",
        (HOST,),
    ),
    Pass(
        multiply_in_loops,
        "fusion of other producers is complete; no later pass changes products or event lists",
        "loops contain the event-driven products that only they use",
        (HOST,),
    ),
    Pass(begin_early, "it is the last pass", "operations that run in the background start as early as possible"),
)

BODY_PASSES = (
    Pass(
        rematerialise,
        "no pass has merged instructions, so the backward step's trace still begins with all of the forward step",
        "the step returns the cheapest values from which its backward step can recompute the others",
    ),
    *CANONICAL,
    Pass(
        hoist,
        "no two instructions compute the same, so users of an expression are the users of one Value",
        "each instruction has a place: before, in or after the loop",
    ),
)


def optimise(program: Program, space: Space = HOST) -> Program:
    """Run the passes after CANONICAL on a canonical Program, for arrays in `space`."""
    return transform(PROGRAM_PASSES[len(CANONICAL) :], program, space)


def choose_saved(body: Body) -> Body:
    """The body with the values that its backward step needs as additional outputs."""
    step = transform(BODY_PASSES[:1], body.program()).step
    assert step is not None  # `Body.program` sets it
    return step.body


def partition_body(body: Body, states: Sequence[Value] = ()) -> LoopParts:
    """Partition a body into instructions before, in and after the loop. `states`: in a backward loop with checkpoints,
    the forward pass's states (one per step). They exist only inside the loop, which recomputes them, so instructions
    that use them stay in it.
    """
    step = transform(BODY_PASSES, _trace_body(body, states)).step
    assert step is not None and step.parts is not None  # `hoist` sets them
    return step.parts


def stages(program: Program, space: Space = HOST) -> Iterator[tuple[str, Program]]:
    """Yield a traced Program, then each pass's name and its result."""
    yield "traced", program
    yield from run_passes(PROGRAM_PASSES, program, space)


def stages_of_body(body: Body, states: Sequence[Value] = ()) -> Iterator[tuple[str, Program]]:
    """Yield the step of a loop, then each pass's name and its result; see `partition_body`."""
    traced = _trace_body(body, states)
    yield "traced", traced
    yield from run_passes(BODY_PASSES, traced)


def _trace_body(body: Body, states: Sequence[Value]) -> Program:
    """The Program of a body before the first pass, without saved values."""
    program = body.program()
    outputs = [value for y, value in zip(body.outs, program.outputs, strict=True) if not body.is_saved(y)]
    return program._replace(outputs=outputs, step=Step(body, states))
