"""The schedule of a loop over time: the instructions before, in and after it, and the legality of a single kernel.

The pass `hoist` partitions the body, and the schedule keeps only the instructions that results depend on. A backward
loop with checkpoints also reruns forward steps. The schedule merges their instructions with those of the backward step,
so that both share a prologue and a list of operands to load. Legality is decided on the schedule, before any source is
generated.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from snncell.compiler.ir.operations import is_elementwise
from snncell.compiler.ir.product import Dot, ProductOfEvents, along_rows
from snncell.compiler.ir.program import Loop, LoopParts, outside_of, results_of, values_in
from snncell.compiler.ir.windows import is_reduction_of_windows, is_spread, obstacle_to_parts
from snncell.compiler.passes import partition_body
from snncell.compiler.passes.simplify import leading_to
from snncell.kernels.products.gathers import may_be_faster
from snncell.tape.state import Value
from snncell.tape.tracing import Instruction


@dataclass(frozen=True, eq=False)
class RecomputeSchedule:
    """The part of a backward pass that reruns the forward step, `interval` steps at a time."""

    interval: int  # steps from one checkpoint to the next
    carry: list[Value]  # the states, which are sequences of the backward step
    parts: LoopParts  # the partitioned forward step
    loop: list[Instruction]  # its instructions that the states depend on, in order


@dataclass(frozen=True, eq=False)
class LoopSchedule:
    """A loop as input of a backend. Fields marked (r) include those for the rematerialised forward step. A slice is the
    part of a sequence that belongs to one time step: `sequence[t]`.
    """

    who: str  # the function that runs it
    backwards: bool  # True if the last step runs first
    carry: list[Value]
    xs: list[Value]
    consts: list[Value]
    parts: LoopParts  # the partitioned body
    loop: list[Instruction]  # the instructions in the loop that results depend on
    invariant: list[Instruction]  # loop-invariant instructions (r)
    prologue: list[Instruction]  # instructions on whole sequences before the loop (r)
    # Products x @ w before the loop that only the loop uses. If x has few events, a kernel may gather: at each step it
    # adds the rows of the matrix w that belong to the step's events (`backends/event_products.py`).
    products: list[Instruction]
    # Products x.T @ y, for example the gradient of a weight, of events x from before the loop and a sequence y that the
    # loop computes and no other instruction needs. They run after the loop, or a kernel may scatter: it adds the part
    # of each step to the sum.
    product_sums: list[Instruction]
    # Pooling of results of the loop, and gradients of pooling that only the loop reads. A kernel may compute them for
    # each block (`backends/pools.py`). Otherwise they run after the loop, and before it.
    pools: list[Instruction]
    spreads: list[Instruction]
    summed: list[Value]  # Values that the loop computes and sums over time
    input_sequences: list[Value]  # the sequences from before the loop; each step loads its slice of them (r)
    fixed: list[Value]  # the loop-invariant operands (r)
    interval: int | None  # checkpoint the states before each `interval`-th step, as additional outputs
    recompute: RecomputeSchedule | None  # in a backward pass, the forward step between checkpoints

    @property
    def instructions(self) -> list[Instruction]:
        """All instructions in the loop (r)."""
        return [*self.loop, *(self.recompute.loop if self.recompute else [])]


def schedule(loop: Loop) -> LoopSchedule:
    """Make the schedule of a loop."""
    body, recompute = loop.body, None
    if loop.recompute is not None:
        # Rematerialise only the states, because other results are not used.
        forward = replace(loop.recompute.forward, ys=[], sums=[])
        forward_parts = partition_body(forward)
        states = [x._data for x in forward.carry]
        needed = leading_to(forward_parts.loop, forward_parts.after)
        recompute = RecomputeSchedule(loop.recompute.interval, states, forward_parts, needed)
    states = recompute.carry if recompute else []
    parts = partition_body(body, states)
    recomputed = [recompute.parts] if recompute else []
    carry = [x._data for x in body.carry]
    computed = {*carry, *states, *results_of(*parts.loop)}
    # A sequence from before the loop is not summed in the loop, but as a whole (`runtime/loop_run.py`).
    summed = [value for value in parts.summed if value in computed]
    results = [*parts.sequences, *summed, *parts.after]
    instructions = leading_to(parts.loop, results)
    # Once each, because a backward step and its forward step may share instructions.
    prologue = list(dict.fromkeys(one for part in (parts, *recomputed) for one in part.prologue))
    varying = {*(x._data for x in body.xs), *results_of(*prologue)}
    again = (recompute.loop, recompute.parts.after) if recompute else ([], [])
    own = [*carry, *states]  # the states of the forward step are no operands, because the kernel rematerialises them
    # Separately for the backward and the forward step, because one of them may compute a Value in the loop that the
    # other one loads from before the loop.
    loads = list(dict.fromkeys([*outside_of(instructions, results, own), *outside_of(*again, own)]))
    products, spreads = ([], []) if recompute else (_products_for(parts, loads), _spreads_for(parts, loads, carry))
    prologue = [instruction for instruction in prologue if instruction not in (*products, *spreads)]
    return LoopSchedule(
        who=loop.who,
        backwards=body.backwards,
        carry=carry,
        xs=[x._data for x in body.xs],
        consts=[x._data for x in body.consts],
        parts=parts,
        loop=instructions,
        invariant=list(dict.fromkeys(one for part in (parts, *recomputed) for one in part.invariant)),
        prologue=prologue,
        products=products,
        product_sums=[] if recompute else _product_sums_of(parts, instructions),
        pools=[] if recompute else _pools_of(parts, instructions),
        spreads=spreads,
        summed=summed,
        input_sequences=[value for value in loads if value in varying],
        fixed=[value for value in loads if value not in varying],
        interval=loop.interval,
        recompute=recompute,
    )


# The results of `run` of a backend: the last states, the sequences, the sums, and the checkpoints.
LoopResults = tuple[list[Any], dict[Value, Any], dict[Value, Any], list[Any]]


class LoopBackend:
    """The code of a loop for a device, with a method `run(arrays, varying, steps)` that returns LoopResults."""

    moved = 0  # bytes that a step moves through memory; in a kernel, the state stays in cache or in registers

    def __init__(self, schedule: LoopSchedule) -> None:
        self.who, self.backwards = schedule.who, schedule.backwards
        self.recompute = recompute = schedule.recompute
        self.storing = schedule.interval is not None
        self.every = (recompute.interval if recompute else schedule.interval) or 1
        self.carry, self.after = schedule.carry, schedule.parts.after
        self.sequences, self.summed = schedule.parts.sequences, schedule.summed
        self.input_sequences, self.fixed = schedule.input_sequences, schedule.fixed
        self.instructions, self.recomputed = schedule.loop, recompute.loop if recompute else []
        self.stored = recompute.carry if recompute else []  # the states that are rematerialised

    @property
    def identifier(self) -> str:
        """The name of the loop, as a part of a kernel's name."""
        return "".join(c if c.isalnum() else "_" for c in self.who)

    def common_shape(self) -> Shape:
        """The shape to which all Values in an elementwise loop broadcast."""
        inside = [*self.recomputed, *self.instructions]
        outgoing = [*self.carry, *self.after, *self.sequences, *self.summed]
        return common_shape([*outgoing, *values_in(*inside), *results_of(*inside)])

    def launches(self, steps: int) -> int:
        """The number of kernel launches."""
        return 1


def is_on_sums(instruction: Instruction) -> bool:
    """True if an instruction of `parts.reductions` runs once, on sums over time; False if it sums whole sequences."""
    return instruction.op.additive or instruction.op.proportional is not None


def _uses_outside(parts: LoopParts) -> set[Value]:
    """The Values that something other than the loop itself needs."""
    elsewhere = {*parts.ys, *parts.sums, *parts.after, *parts.sequences, *parts.summed}
    return elsewhere.union(values_in(*parts.prologue, *parts.epilogue, *parts.reductions))


def _products_for(parts: LoopParts, loads: Sequence[Value]) -> list[Instruction]:
    """The products x @ w before the loop, of a sequence x and a matrix w, whose results only the loop uses."""
    elsewhere = _uses_outside(parts)
    found = []
    for instruction in parts.prologue:
        out, x, y = instruction.outputs[0], instruction.inputs[0], instruction.inputs[-1]
        of_rows = isinstance(instruction.op, (Dot, ProductOfEvents)) and not along_rows(instruction)
        if not of_rows or out in elsewhere or out not in loads:
            continue
        same = y.dtype == out.dtype and (x.dtype == out.dtype or x.dtype.kind == "b")
        if same and may_be_faster(y.shape[0], y.shape[1], y.dtype, False) and x not in parts.fixed and y in parts.fixed:
            found.append(instruction)
    return found


def _product_sums_of(parts: LoopParts, instructions: Sequence[Instruction]) -> list[Instruction]:
    """The products x.T @ y of a sequence x from before the loop and a sequence y of the loop that has no other user."""
    computed = results_of(*instructions)
    # Instructions on sums over time, for example the gradient of a bias, do not need the sequence y itself.
    whole = [instruction for instruction in parts.reductions if not is_on_sums(instruction)]
    uses = [*values_in(*parts.epilogue, *whole), *parts.ys, *parts.after]
    found = []
    for instruction in parts.reductions:
        x, y = instruction.inputs[0], instruction.inputs[-1]
        if not along_rows(instruction) or y not in computed or uses.count(y) > 1 or x in computed or x in parts.fixed:
            continue
        same = (x.dtype == y.dtype or x.dtype.kind == "b") and len(x.shape) == len(y.shape)
        if same and may_be_faster(x.shape[-1], y.shape[-1], y.dtype, True):
            found.append(instruction)
    return found


def _spreads_for(parts: LoopParts, loads: Sequence[Value], carry: Sequence[Value]) -> list[Instruction]:
    """The gradients of pooling before the loop that only the loop uses, without broadcasting them, if a kernel can
    process images in parts.
    """
    elsewhere = _uses_outside(parts)
    return [
        one
        for one in parts.prologue
        if is_spread(one)
        and one.outputs[0] in loads
        and one.outputs[0] not in elsewhere
        and all(one.outputs[0].shape == state.shape for state in carry)
        and parts.fixed.isdisjoint(values_in(one))
        and obstacle_to_parts(one) is None
    ]


def _pools_of(parts: LoopParts, instructions: Sequence[Instruction]) -> list[Instruction]:
    """The pooling after the loop of Values that the loop computes, if a kernel can process images in parts."""
    computed = results_of(*instructions)
    return [
        one
        for one in parts.epilogue
        if is_reduction_of_windows(one) and one.inputs[0] in computed and obstacle_to_parts(one) is None
    ]


# --- Legality ---------------------------------------------------------------------------------------------------------


def obstacle(schedule: LoopSchedule) -> str | None:
    """The reason why a single kernel on the CPU is illegal for a loop; None if it is legal. A kernel runs all steps on
    one block of elements after the other. So element n of a Value may depend only on elements n of others, and all
    states and results must have one shape, to which operands may be broadcast. With products, a block consists of rows
    (samples of the batch) instead, and row n may depend only on rows n. Each product must multiply the rows of a Value
    of the loop by a loop-invariant matrix. Widths of Values may then differ.
    """
    parts, recompute, instructions = schedule.parts, schedule.recompute, schedule.instructions
    for instruction in instructions:
        if any(x.dtype.kind == "c" for x in (*values_in(instruction), *instruction.outputs)):
            return f"kernels have no complex numbers; use two states, real and imaginary parts: {instruction.line}"
        if not is_elementwise(instruction) and not isinstance(instruction.op, Dot):
            return f"{instruction.op.name} is not an elementwise operation: {instruction.line}"
    computed = results_of(*schedule.loop)
    outgoing = [*schedule.carry, *parts.after, *parts.sequences, *(x for x in parts.summed if x in computed)]
    outgoing += [*recompute.carry, *recompute.parts.after] if recompute else []
    products = [instruction for instruction in instructions if not is_elementwise(instruction)]
    if products:
        return _obstacle_to_rows(schedule, instructions, products, outgoing)
    try:
        space = common_shape([*outgoing, *values_in(*instructions), *results_of(*instructions)])
    except ValueError:
        return "its states have different shapes"
    # Instructions in the loop may broadcast, but each result and each state must have the shape of the kernel.
    small = next((value for value in outgoing if value.shape != space), None)
    return None if small is None else _not_one_shape(small, space, parts.loop)


def _not_one_shape(value: Value, shape: Shape, instructions: Sequence[Instruction]) -> str:
    origin = next((instruction.line for instruction in instructions if value in instruction.outputs), "a state")
    return f"its values have different shapes: {value.shape} and {shape}, {origin}"


def _obstacle_to_rows(
    schedule: LoopSchedule,
    instructions: Sequence[Instruction],
    products: Sequence[Instruction],
    outgoing: Sequence[Value],
) -> str | None:
    """`obstacle` for a body with products: a kernel over blocks of rows."""
    inside = {*outgoing, *results_of(*instructions)}
    varying = inside.union(schedule.input_sequences)
    height = products[0].outputs[0].shape[:1]  # the number of rows of all Values in the loop
    for instruction in products:
        x, y = instruction.inputs
        # A block has only its rows of x, and needs the whole of y, so y must be loop-invariant.
        if y in varying or x not in inside or len(x.shape) != 2 or len(y.shape) != 2:
            what = "is not a product of the rows of a state and a matrix of weights"
            return f"{instruction.op.name} {what}: {instruction.line}"
    for value in inside:
        if value.shape[:1] != height:
            return _not_one_shape(value, products[0].outputs[0].shape, instructions)
    for instruction in instructions:
        shape = instruction.outputs[0].shape
        for x in values_in(instruction) if instruction not in products else ():
            if x in inside and x.shape != shape:
                return f"{x.shape} is broadcast to {shape}: {instruction.line}"
    return None


Shape = tuple[int, ...]


def common_shape(values: Iterable[Value]) -> Shape:
    """The shape to which all Values broadcast."""
    return np.broadcast_shapes(*(value.shape for value in values))


# --- Phases -----------------------------------------------------------------------------------------------------------


class Phase:
    """Elementwise instructions over one shape, or one product."""

    def __init__(self, shape: Shape, instructions: Sequence[Instruction] = (), product: bool = False) -> None:
        self.shape = shape  # the shape of its results
        self.instructions = list(instructions)
        self.product = product


def phases_of(instructions: Sequence[Instruction], results: Sequence[Value]) -> list[Phase]:
    """Partition a step with products into phases: loops and products that a kernel runs in turn on its block.

        i = dot(s, w); h = v * a + i; s' = h > 1; v' = h * (1 - s')      a recurrent layer of spikes
        phases: [dot]  [v * a + i, > 1, *]                               i is an array of the block

    An elementwise instruction is scheduled as late as its users allow, so that few Values are live between phases, but
    as early as possible if it computes one of the `results`.
    """
    level: dict[Value, int] = {}  # the longest chain of products that leads to a Value
    for instruction in instructions:
        before = max((level.get(x, 0) for x in values_in(instruction)), default=0)
        level.update(dict.fromkeys(instruction.outputs, before if is_elementwise(instruction) else before + 1))
    outgoing = set(results)
    latest: dict[Value, int] = {}
    for instruction in reversed(instructions):
        (out,) = instruction.outputs
        if is_elementwise(instruction):
            level[out] = level[out] if out in outgoing else latest.get(out, level[out])
        for x in values_in(instruction):
            # The product that opens level n reads results of level n - 1.
            own = level[out] if is_elementwise(instruction) else level[out] - 1
            latest[x] = min(latest.get(x, own), own)
    phases: dict[tuple[int, bool, object], Phase] = {}
    for instruction in instructions:
        (out,) = instruction.outputs
        product = not is_elementwise(instruction)
        key = (level[out], not product, id(instruction) if product else out.shape)
        phases.setdefault(key, Phase(out.shape, product=product)).instructions.append(instruction)
    return [phases[key] for key in sorted(phases, key=lambda key: key[:2])]


class Stores:
    """The assignment of stores to phases, and of arrays to the Values that more than one phase needs. The phase that
    computes a new state writes it to the state's target array, if no later phase reads the old state. Otherwise it
    writes to another array, and a later phase copies the state to its target; phases that only store are appended for
    that. If `in_place`, the target contains the old state, so an unchanged state needs no store. Otherwise each step
    has its own target, for example a slice of the rematerialised states.
    """

    def __init__(
        self,
        phases: list[Phase],
        carry: list[Value],
        after: list[Value],
        sequences: list[Value],
        summed: list[Value],
        in_place: bool,
    ) -> None:
        self.phases = phases
        self.targets = after  # the Values of the states after the step
        self._made_in: dict[Value, int] = {}
        self._last_read: dict[Value, int] = {}  # the last phase that needs a Value
        for n, phase in enumerate(phases):
            self._made_in |= dict.fromkeys(results_of(*phase.instructions), n)
            self._last_read |= dict.fromkeys(values_in(*phase.instructions), n)
        # A product that is a result is computed directly in its slice of the sequence, and needs no store.
        stored = [x for x in sequences if x not in self._made_in or not phases[self._made_in[x]].product]
        at_sequence = {x: self._storing_phase(x) for x in stored}
        at_sum = {x: self._storing_phase(x) for x in summed}
        # Value -> number of a state: the phase that computes the Value writes it directly to this state's target.
        self.direct: dict[Value, int] = {}
        at_after = self._place_states(carry, after, sequences, in_place)
        # For each phase, the numbers of the states that it stores, and the Values that it stores or adds to sums.
        self.after = [[n for n, at in at_after.items() if at == k] for k in range(len(phases))]
        self.sequences = [[x for x, at in at_sequence.items() if at == k] for k in range(len(phases))]
        self.summed = [[x for x, at in at_sum.items() if at == k] for k in range(len(phases))]
        # The other Values that one phase computes and another needs.
        self.shared = [
            value
            for value, at in self._made_in.items()
            if value not in self.direct
            and value not in sequences
            and (phases[at].product or self._last_read.get(value, at) > at)
        ]

    def _place_states(
        self, carry: list[Value], after: list[Value], sequences: list[Value], in_place: bool
    ) -> dict[int, int]:
        """Map the number of each state to the number of the phase that stores it, and fill `direct`."""
        made_in, last_read = self._made_in, self._last_read
        at_after: dict[int, int] = {}
        # If states are permuted, as in (v, u) -> (u, v), all must be loaded before one is stored.
        moved = [n for n, value in enumerate(after) if value in carry and not (in_place and value is carry[n])]
        for n in moved:
            at_after[n] = self._elementwise_phase(carry[n].shape, max(last_read.get(carry[m], 0) for m in moved))
        for n in moved:
            last_read[after[n]] = max(last_read.get(after[n], 0), *at_after.values())
        for n, value in enumerate(after):
            if value in carry:
                continue  # the state is unchanged, or `moved` contains it
            at, needed = made_in.get(value, 0), last_read.get(carry[n], -1)
            product = value in made_in and self.phases[at].product
            # An elementwise loop may overwrite its operand, because it reads an element before it writes it. A product
            # may not, because it reads a whole row of its operand for each element that it writes.
            free = needed < at or (needed == at and not product)
            if value in made_in and value not in self.direct and free and not (product and value in sequences):
                self.direct[value] = n
                at_after.update({} if product else {n: at})
            else:
                at_after[n] = self._elementwise_phase(carry[n].shape, max(needed, at))
                last_read[value] = max(last_read.get(value, 0), at_after[n])
        return at_after

    @property
    def needs(self) -> list[tuple[Phase, list[Value]]]:
        """The phases, each with the Values that it needs and does not compute."""
        needs = []
        for n, phase in enumerate(self.phases):
            inside = results_of(*phase.instructions)
            reads = [*values_in(*phase.instructions), *self.sequences[n], *self.summed[n]]
            reads += [self.targets[state] for state in self.after[n]]
            needs.append((phase, [x for x in dict.fromkeys(reads) if x not in inside]))
        return needs

    def _storing_phase(self, value: Value) -> int:
        """The phase that stores a Value: the phase that computes it, or the first later phase where this is legal."""
        first = self._made_in.get(value, 0)  # a state is available from the start
        computed_in_loop = value in self._made_in and not self.phases[first].product
        place = first if computed_in_loop else self._elementwise_phase(value.shape, first)
        self._last_read[value] = max(self._last_read.get(value, 0), place)
        return place

    def _elementwise_phase(self, shape: Shape, least: int) -> int:
        """The first elementwise phase over `shape` from phase `least` on; a new one if there is none."""
        for n in range(least, len(self.phases)):
            if self.phases[n].shape == shape and not self.phases[n].product:
                return n
        self.phases.append(Phase(shape))
        return len(self.phases) - 1
