"""The schedule of a loop over time: what runs before it, in it and after it, decided before any text is written.

`passes/hoist.py` takes the body apart; here the parts that are left in the loop are reduced to what the results depend
on, and joined with those of a forward that is run again between checkpoints: both have one prologue, and one list of
operands to load.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from snncell.compiler.ir.loop import Loop
from snncell.compiler.ir.product import Dot, ProductOfEvents, along_rows
from snncell.compiler.ir.program import values_in
from snncell.compiler.passes.dce import leading_to
from snncell.compiler.passes.hoist import Hoisted, hoist, outside_of
from snncell.kernels.gathers import may_pay
from snncell.tape.tracing import Instruction
from snncell.tape.value import Value


@dataclass(frozen=True, eq=False)
class RecomputeSchedule:
    """The part of a reverse that runs the forward again, `interval` steps at a time.

    Attributes:
        interval: steps from one checkpoint to the next.
        carry: the states, which the reverse takes as sequences.
        parts: the forward, taken apart.
        loop: its steps that the states depend on, in order.
    """

    interval: int
    carry: list[Value]
    parts: Hoisted
    loop: list[Instruction]


@dataclass(frozen=True, eq=False)
class LoopSchedule:
    """A loop as a backend takes it.

    Attributes:
        who: what runs it.
        backwards: whether the last step is taken first.
        carry, xs, consts: the inputs of a step.
        parts: the body, taken apart.
        loop: the steps in the loop that its results depend on, in order.
        invariant: steps that depend on constants alone, of the body and of `recompute`.
        prologue: steps on whole sequences before the loop, of the body and of `recompute`.
        products: further ones, products that the loop alone takes. Where the first operand is found to have few
            events, a kernel may add up the rows of each step itself (`backends/gathered.py`).
        terms: of the steps on sums after the loop, products of a sequence with few events and one that only they take
            from the loop: a kernel may add them up itself (`backends/scattered.py`).
        summed: the Values that the loop itself adds up; a sequence that exists before it is summed without a loop.
        rows: the sequences that the loop loads a row of at each step, for the body and for `recompute`.
        fixed: the operands that are the same at every step, likewise.
        interval: checkpoint the states before each `interval`-th step, as further outputs.
        recompute: for a reverse, the forward between checkpoints.
    """

    who: str
    backwards: bool
    carry: list[Value]
    xs: list[Value]
    consts: list[Value]
    parts: Hoisted
    loop: list[Instruction]
    invariant: list[Instruction]
    prologue: list[Instruction]
    products: list[Instruction]
    terms: list[Instruction]
    summed: list[Value]
    rows: list[Value]
    fixed: list[Value]
    interval: int | None
    recompute: RecomputeSchedule | None

    @property
    def instructions(self) -> list[Instruction]:
        """All steps in the loop, of the body and of `recompute`."""
        return [*self.loop, *(self.recompute.loop if self.recompute else [])]


def schedule(loop: Loop) -> LoopSchedule:
    """Take a loop apart."""
    body, recompute = loop.body, None
    if loop.recompute is not None:
        # Only the states are computed again. Another result would have its steps carried out for nothing.
        forward = replace(loop.recompute.forward, ys=[], sums=[])
        forward_parts = hoist(forward)
        states = [x._data for x in forward.carry]
        needed = leading_to(forward_parts.loop, forward_parts.after)
        recompute = RecomputeSchedule(loop.recompute.interval, states, forward_parts, needed)
    states = recompute.carry if recompute else []
    parts = hoist(body, states)
    recomputed = [recompute.parts] if recompute else []
    carry = [x._data for x in body.carry]
    computed = {*carry, *states}.union(*(instruction.outputs for instruction in parts.loop))
    # A sequence that exists before the loop is summed as a whole (`lower.py`).
    summed = [value for value in parts.summed if value in computed]
    results = [*parts.sequences, *summed, *parts.after]
    steps = leading_to(parts.loop, results)
    prologue = _unite_parts([part.prologue for part in (parts, *recomputed)])
    varying = {*(x._data for x in body.xs), *(value for instruction in prologue for value in instruction.outputs)}
    forward_steps, forward_results = (recompute.loop, recompute.parts.after) if recompute else ([], [])
    # The forward's states are no operands: the kernel computes them from the checkpoints.
    own = [*carry, *states]
    # Asked of each: a Value may be computed before the loop for one of them, and in the loop by the other.
    loads = [*outside_of(steps, results, own), *outside_of(forward_steps, forward_results, own)]
    loads = list(dict.fromkeys(loads))
    products = [] if recompute else _products_for(parts, loads)
    prologue = [instruction for instruction in prologue if instruction not in products]
    return LoopSchedule(
        who=loop.who,
        backwards=body.backwards,
        carry=carry,
        xs=[x._data for x in body.xs],
        consts=[x._data for x in body.consts],
        parts=parts,
        loop=steps,
        invariant=_unite_parts([part.invariant for part in (parts, *recomputed)]),
        prologue=prologue,
        products=products,
        terms=[] if recompute else _terms_of(parts, steps),
        summed=summed,
        rows=[value for value in loads if value in varying],
        fixed=[value for value in loads if value not in varying],
        interval=loop.interval,
        recompute=recompute,
    )


def _products_for(parts: Hoisted, loads: Sequence[Value]) -> list[Instruction]:
    """The products before the loop of a sequence's rows and a matrix, which only steps in the loop take."""
    elsewhere = {*parts.ys, *parts.sums, *parts.after, *parts.sequences, *parts.summed}
    elsewhere.update(
        x
        for part in (parts.prologue, parts.epilogue, parts.reductions)
        for instruction in part
        for x in values_in(instruction)
    )
    found = []
    for instruction in parts.prologue:
        out, x, y = instruction.outputs[0], instruction.inputs[0], instruction.inputs[-1]
        if (
            not isinstance(instruction.op, (Dot, ProductOfEvents))
            or along_rows(instruction)
            or out in elsewhere
            or out not in loads
        ):
            continue
        same = y.dtype == out.dtype and (x.dtype == out.dtype or x.dtype.kind == "b")
        if same and may_pay(y.shape[0], y.shape[1], y.dtype, False) and x not in parts.fixed and y in parts.fixed:
            found.append(instruction)
    return found


def _terms_of(parts: Hoisted, instructions: Sequence[Instruction]) -> list[Instruction]:
    """The products of a sequence from outside, turned, and a sequence that they alone take from the loop."""
    computed = {value for instruction in instructions for value in instruction.outputs}
    # What takes sums over time, as a bias's gradient does, takes none of the steps' rows.
    whole = [
        instruction
        for instruction in parts.reductions
        if not instruction.op.additive and instruction.op.proportional is None
    ]
    uses = [x for instruction in (*parts.epilogue, *whole) for x in values_in(instruction)]
    uses += [*parts.ys, *parts.after]
    found = []
    for instruction in parts.reductions:
        x, y = instruction.inputs[0], instruction.inputs[-1]
        if not along_rows(instruction) or y not in computed or uses.count(y) > 1 or x in computed or x in parts.fixed:
            continue
        same = (x.dtype == y.dtype or x.dtype.kind == "b") and len(x.shape) == len(y.shape)
        if same and may_pay(x.shape[-1], y.shape[-1], y.dtype, True):
            found.append(instruction)
    return found


def _unite_parts(parts: Sequence[Sequence[Instruction]]) -> list[Instruction]:
    """The steps of all parts, each once: a reverse and the forward that it runs again are forks of one trace."""
    return list({id(step): step for part in parts for step in part}.values())
