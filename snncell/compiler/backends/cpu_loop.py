"""CPU backend for loops over time: one kernel, which runs all steps for one block before the next.

    for each block:              shared by the threads
        for t in range(steps):   `loops.scan_loop`, or `loops.scan_recomputing` with checkpoints
            for i in block:      `tile.py`

The state of a block stays in cache. Each input sequence is read from memory once and each result written once, for any
number of operations in a step. With checkpoints, a backward loop reads some sequences twice: to rerun the forward steps
of a segment, and then for the backward steps.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from snncell import dtype as dtypes
from snncell.compiler.backends.event_products import BOUNDS, Arrays, EventGather, EventScatter
from snncell.compiler.backends.expressions import as_scalar, cost_of, far_of, file_head, kind_of, sum_of_elements
from snncell.compiler.backends.pools import IMPORTS as POOL_IMPORTS, Pools, Spreads, as_pooled, kind_in_pools
from snncell.compiler.backends.tile import KernelBlock, Scratch
from snncell.compiler.ir.operations import Sum, is_elementwise
from snncell.compiler.ir.program import results_of, values_in
from snncell.compiler.ir.windows import unit_of
from snncell.compiler.schedule import LoopBackend, LoopResults, LoopSchedule, Phase, Stores, phases_of
from snncell.kernels import loops
from snncell.kernels.arrays import empty
from snncell.kernels.intrinsics.broadcast import BlockSum, block_sum
from snncell.kernels.numba.build import build
from snncell.kernels.numba.policy import PARALLEL_SIZE
from snncell.kernels.products.gathers import RowsOfEvents
from snncell.kernels.scalar import ROW_IMPORTS
from snncell.kernels.space import HOST
from snncell.kernels.sums import NEAR
from snncell.tape.state import Value
from snncell.tape.tracing import Instruction

GROUP = 4  # a product processes this number of rows at a time, so the rows of a block are a multiple of it
PRODUCTS_PER_ELEMENT = 8  # this number of multiplications of a product costs as much as one elementwise operation
STACK = 33 << 12  # bytes of stack arrays, enough for eight blocks of float32
RECOMPUTED_BYTES = 1 << 19  # bytes of a block's rematerialised states, few enough to stay in cache


LEGEND = """
# c0, c1, ...  the initial states, with strides m0, ...: 1, or 0 for a broadcast scalar
# n            units (elements; rows of the states if there are products), in blocks of `block` units
# per0, ...    elements of a unit, for each shape
# x0, ...      the input sequences, a slice per step, with strides h0, ...: 1, or 0 if all steps read the same slice
# a0, ...      loop-invariant operands; s0, ...: numbers; n0_0, ...: lengths of axes
# inner0, ...  number of rows of matrix0 if the kernel gathers them; -1 if the product was computed before, into x0
# last0, ...   the final states; o0, ...: results; q0, ...: sums over time; p0, ...: checkpoints
# parts0, ...  sums over time and axes, separate for each block; span0, times0, wide0, each0: see `sum_broadcast`
"""


class CPULoop(LoopBackend):
    """The kernel of a loop whose body is elementwise, and may also multiply its states by loop-invariant matrices. The
    kernel runs all steps for one block of units before the next block. A unit is an element, or with products a row of
    the states: one sample of the batch.
    """

    def __init__(self, schedule: LoopSchedule) -> None:
        super().__init__(schedule)
        # The state before a step is the state after the previous one. If the loop returns both as sequences, they are
        # two views of one array with an additional slice.
        self.shifted: dict[Value, Value] = {}
        for before, after in zip(self.carry, self.after, strict=True):
            # If two states have the same Value after the step, only one can use its array, which begins with its own
            # initial value.
            taken = after in self.carry or after in self.shifted.values()
            if not taken and {before, after}.issubset(self.sequences):
                self.shifted[before] = after
        self.sequences = [value for value in self.sequences if value not in self.shifted]
        self.products = [instruction for instruction in schedule.instructions if not is_elementwise(instruction)]
        # Without products, a block has at most BLOCK elements, so its arrays fit on the stack. Rows can be longer.
        self.scratch = Scratch(0 if self.products else STACK)
        self._size = 0
        self._emit(schedule)

    def _emit(self, schedule: LoopSchedule) -> None:
        states = self.stored
        phases = self._phases(self.instructions, [*self.after, *self.sequences, *self.summed])
        main = Stores(phases, self.carry, self.after, self.sequences, self.summed, in_place=True)
        after = self.recompute.parts.after if self.recompute else []
        recomputed = Stores(self._phases(self.recomputed, after), states, after, [], [], in_place=False)
        self.shapes = [phase.shape for phase in (*main.phases, *recomputed.phases)]
        if self.products:
            self.shapes += [value.shape for value in (*self.carry, *states)]
        self.shapes = list(dict.fromkeys(self.shapes))
        # The block's units: rows if there are products, otherwise elements.
        self.units = self.shapes[0][0] if self.products else math.prod(self.shapes[0])
        self.widths = [math.prod(shape[1:]) if self.products else 1 for shape in self.shapes]
        needs = [*main.needs, *recomputed.needs]
        self.block = block = KernelBlock(self.shapes, self.input_sequences, self.fixed, needs, self.scratch)
        self.scalars = block.scalars
        self._take_products(schedule, block)
        self._take_pools(schedule)
        self._take_reductions(schedule)

        begin, step, move, finish = self._states_and_sums(block)
        step += self.scatter.fetches(self.input_sequences, self.shapes[0], self.backwards)
        step += [*self.gather.step(self.backwards), *self.spreads.step()]
        array_of = self.gather.array_of | self.spreads.array_of
        array_of |= {value: f"w{n}" for n, value in enumerate(self.carry)}
        for n, value in enumerate(states):
            begin.append(f"kept{n} = {block.new(value, slices='every')}")
            step.append(f"k{n} = row(kept{n}, turn)")
            array_of[value] = f"k{n}"
        targets = [f"w{n}" for n in range(len(self.carry))]
        near = self.scatter.near() | self.pools.places()
        step += block.step(main, array_of, targets, self.sequences, self.summed, near)
        step += self.scatter.step(self.backwards) + self.pools.step() + move
        once, steps = self._recomputed_states(block, recomputed) if self.recompute else ([], [])
        # Read `block.prepare` last, because the code above may add allocations to it.
        bounds = [*BOUNDS, *block.prepare] if self.scatter else self.gather.begin(block.prepare, self.scratch)
        begin = [*bounds, *self.spreads.begin(), *self.pools.begin(self.scratch.array), *begin]
        if self.recompute:
            lines = loops.scan_recomputing(begin, once, steps, step, self.backwards, finish)
        else:
            outside = {"around": self.scatter.around(), "after": self.scatter.after()}
            lines = loops.scan_loop(begin, step, self.backwards, finish, **outside)
        self._finish(lines, [*self.recomputed, *self.instructions], [*states, *self.carry])

    def _recomputed_states(self, block: KernelBlock, stores: Stores) -> tuple[list[str], list[str]]:
        """The statements that load the first states of a segment (the steps from one checkpoint to the next) from the
        checkpoint, and those of a step that rematerialises the next states.
        """
        once = []
        for n, value in enumerate(self.stored):
            stored = block.part(f"row(p{n}, segment)", value)
            once.append(f"copy(row(kept{n}, 0), {stored}, {block.count(value)})")
        count = len(self.stored)
        steps = [f"k{n}, l{n} = row(kept{n}, turn), row(kept{n}, turn + 1)" for n in range(count)]
        array_of = {value: f"k{n}" for n, value in enumerate(self.stored)}
        return once, steps + block.step(stores, array_of, [f"l{n}" for n in range(count)], [], [])

    def _take_products(self, schedule: LoopSchedule, block: KernelBlock) -> None:
        """Choose the products before and after the loop that the kernel may compute."""
        sums = [] if self.products else schedule.product_sums
        own = [x for x in sums if x.inputs[-1] in self.sequences and x.inputs[-1].shape in self.shapes]
        self.scatter = EventScatter(own, self.sequences)
        # A kernel gathers only a product with the shape of its Values, not one that it broadcasts. A kernel that
        # scatters does not gather: the products before the loop are then computed separately.
        products = [] if own else schedule.products
        taken = [value for value in results_of(*products) if value.shape in self.shapes]
        numbers = {value: (self.input_sequences.index(value), block.of(value)) for value in taken}
        self.gather = EventGather(numbers, by_rows=bool(self.products))
        self.fused: EventGather | EventScatter | None = self.scatter if own else self.gather if numbers else None

    def _take_pools(self, schedule: LoopSchedule) -> None:
        """Choose the pooling, and the gradients of pooling, that the kernel computes."""
        plain = not (self.products or self.fused)  # a block is a range of elements
        spreads = schedule.spreads if plain else []
        self.spreads = Spreads(spreads, self.input_sequences)
        # Sums over the elements of a block must have the same bits with and without pooling, so they need equal blocks.
        sums = any(isinstance(one.op, Sum) for one in schedule.parts.reductions)
        pools = [one for one in schedule.pools if plain and not sums and one.inputs[0] in self.sequences]
        while math.lcm(*(unit_of(one).elements for one in pools)) > loops.BLOCK:
            pools = pools[:-1]
        others = [one for one in (*schedule.parts.epilogue, *schedule.parts.reductions) if one not in pools]
        # A state after the step may share its array with the sequence of the state before the step.
        needed = {*schedule.parts.ys, *schedule.parts.sums, *values_in(*others), *self.shifted.values()}
        self.pools = Pools(pools, self.sequences, needed)
        self.pooled = [*spreads, *pools]  # the part of `schedule.spreads` and `schedule.pools` that the kernel computes

    def _take_reductions(self, schedule: LoopSchedule) -> None:
        """Choose the sums over axes that the kernel computes block by block. For the others, which run after the loop,
        the kernel writes the sum over time of each element (`totals`).
        """
        # (sum, how it is divided into blocks, rows of the array of partial results of one block)
        self.reduced: list[tuple[Instruction, BlockSum, int]] = []
        whole = set(schedule.parts.sums)
        for one in schedule.parts.reductions:
            x = one.inputs[0]
            if isinstance(one.op, Sum) and x in self.summed:
                own, elements = block_sum(x.shape, one.attrs["axis"]), self._block * self.widths[self.block.of(x)]
                # The elements of a block are not contiguous if products are scattered or gathered.
                rows = own.outer if self.scatter or self.gather else own.rows(elements)
                if own.is_worthwhile(elements, rows):
                    self.reduced.append((one, own, rows))
                    continue
            whole.update(values_in(one))
        self.totals = [value for value in self.summed if value in whole]

    def _states_and_sums(self, block: KernelBlock) -> tuple[list[str], list[str], list[str], list[str]]:
        """The statements for states and sums: at the start of a block, of a step, at the end of a step, of a block."""
        begin, step, move, finish = [], list[str](), list[str](), list[str]()
        for n, value in enumerate(self.carry):
            count = block.count(value)
            begin.append(f"w{n} = {block.part(f'last{n}', value)}")
            begin.append(f"fill(w{n}, c{n}, low{block.of(value)}, m{n}, {count})")
            if self.storing:
                row = block.part(f"row(p{n}, turn // every)", value)
                step += ["if turn % every == 0:", f"    copy({row}, w{n}, {count})"]
        far = [n for n, value in enumerate(self.summed) if sum_of_elements(value).two_levels]
        for n, value in enumerate(self.summed):
            r, each = sum_of_elements(value), f"for i in independent({block.count(value)}):"
            whole = value in self.totals
            total = block.part(f"q{self.totals.index(value)}", value) if whole else block.new(value)
            begin += [f"z{n} = {total}", each, f"    z{n}[i] = 0"]
            if r.two_levels:
                begin += [
                    f"far{n} = {block.new(value, far_of(value))}",
                    "if is_long:",
                    f"    {each}",
                    f"        far{n}[i] = 0",
                ]
                move += [each, *loops.indent(r.moved(f"far{n}[i]", f"z{n}[i]"))]
                finish += [each, f"    z{n}[i] = {r.cast}({r.further(f'far{n}[i]', f'z{n}[i]')})"]
        sums = []
        for m, (one, _, _) in enumerate(self.reduced):
            (x,) = one.inputs
            operands = f"row(parts{m}, part), tail(z{self.summed.index(x)}, 0), low{block.of(x)}, {block.count(x)}"
            sums.append(f"sum_broadcast({operands}, span{m}, times{m}, wide{m}, each{m})")
        if not far:
            return begin, step, [], sums
        # Sums have two levels: z is the sum of at most NEAR steps, and `far` adds up these partial sums. A loop of at
        # most NEAR steps needs no `far`.
        begin.insert(0, f"is_long = steps > {NEAR}")
        flush = [f"if is_long and {loops.flush_condition('t', self.backwards)}:", *loops.indent(move)]
        return begin, step, flush, ["if is_long:", *loops.indent(finish), *sums]

    def _phases(self, instructions: list[Instruction], results: list[Value]) -> list[Phase]:
        """The phases of a step; a body without products is one phase, over the shape to which everything broadcasts."""
        return phases_of(instructions, results) if self.products else [Phase(self.common_shape(), instructions)]

    def _finish(self, lines: list[str], instructions: list[Instruction], others: list[Value]) -> None:
        flat, rows, number = _array(1), _array(2), dtypes.int64
        arguments: list[tuple[str, Any]] = [(name, number) for name in ("steps", "n", "block", "every")]
        for k, sizes in enumerate(self.block.sizes):
            arguments += [(f"per{k}", number), *((f"n{k}_{axis}", number) for axis in range(len(sizes)))]
        for n, value in enumerate(self.carry):
            arguments += [(f"c{n}", flat(value, False)), (f"m{n}", number)]
        for n, value in enumerate(self.input_sequences):
            arguments += [(f"x{n}", rows(value, False)), (f"h{n}", number)]
        arguments += [(f"a{n}", flat(value, False)) for n, value in enumerate(self.fixed)]
        arguments += [*self.gather.arguments(), *self.scatter.arguments()]
        arguments += [*self.spreads.arguments(), *self.pools.arguments()]
        arguments += [(f"p{n}", rows(value, False)) for n, value in enumerate(self.stored)]
        arguments += [(f"s{n}", dtypes.BY_NUMPY[dtype]) for n, (_, dtype) in enumerate(self.scalars)]
        arguments += [(f"last{n}", flat(value, True)) for n, value in enumerate(self.carry)]
        for n, value in enumerate(self.sequences):
            kind = kind_in_pools(value) if value in self.pools.images else kind_of(value)
            arguments.append((f"o{n}", (kind, 2, True)))
        arguments += [(f"q{n}", flat(value, True)) for n, value in enumerate(self.totals)]
        for n, (one, _, _) in enumerate(self.reduced):
            arguments += [(f"{name}{n}", number) for name in ("span", "times", "wide", "each")]
            arguments.append((f"parts{n}", (far_of(one.inputs[0]), 2, True)))
        if self.storing:
            arguments += [(f"p{n}", rows(value, True)) for n, value in enumerate(self.carry)]
        self.name = f"scan_{self.identifier[:48]}"
        self.signature = tuple(kind for _, kind in arguments)
        more = ROW_IMPORTS if self.products or self.gather or self.scatter else ""
        functions = [f.source for f in (*self.spreads.functions, *self.pools.functions)]
        more += POOL_IMPORTS if functions else ""
        head = file_head(instructions, [*others, *self.input_sequences, *self.fixed], self.summed, more) + LEGEND
        functions.append(loops.function(self.name, [name for name, _ in arguments], lines))
        self.source = "\n\n".join([head, *functions])
        self._kernel: Any = None
        self.numbers = [as_scalar(value, dtype) for value, dtype in self.scalars]
        self.cost = sum(self.widths)  # the time of a step for a unit, in elementwise operations
        for instruction in instructions:
            if is_elementwise(instruction):
                width = self.widths[self.block.spaces.get(instruction.outputs[0].shape, 0)]
                self.cost += width * (cost_of([instruction]) - 1)
            else:
                self.cost += math.prod(instruction.inputs[1].shape) // PRODUCTS_PER_ELEMENT

    def run(self, known: dict[Value, Any], varying: set[Value], steps: int) -> LoopResults:
        """Run the kernel."""
        last = [self._empty(value) for value in self.carry]
        if (fused := self.fused) is None:
            block, blocks, added = self._block, -(-self.units // self._block), 0
            operands, grads, near = list[Any](), Arrays(), Arrays()
        else:
            # Sums over the elements of a block depend on its size; everything else belongs to a single column.
            shape = fused.block(known, self.units, self._block, by_threads=not self.reduced)
            block, blocks, added = shape[0], fused.blocks(shape, self.units), fused.additions(known)
            operands, grads, near = fused.operands(known, shape)
        more, pooled = self.pools.operands(steps) if self.pools.functions else ([], {})
        operands += [*self._spread_operands(known, steps), *more]
        near |= {value: np.zeros((1, 1), kind_of(value).dtype) for value in self.pools.near}  # placeholders
        ys = {value: self._empty(value, steps) for value in self.sequences if value not in near}
        for before, after in self.shifted.items():
            both = self._empty(after, steps + 1)
            both[-1 if self.backwards else 0] = np.broadcast_to(known[before], before.shape).reshape(-1)
            ys[before], ys[after] = (both[1:], both[:-1]) if self.backwards else (both[:-1], both[1:])
        sums = [self._empty(value) for value in self.totals]
        stored = [self._empty(value, -(-steps // self.every)) for value in self.carry if self.storing]
        arguments = [steps, self.units, block, self.every, *self._inputs(known, steps), *operands]
        checkpoints = [np.ascontiguousarray(array_to_compute(x, known)) for x in self.stored]
        arguments += [x.reshape(len(x), math.prod(x.shape[1:])) for x in checkpoints]
        parts = self._parts(blocks if self.units else 0)
        if self.units:
            results = [near[value] if value in near else ys[value] for value in self.sequences]
            for n in self.pools.images.values():
                results[n] = as_pooled(results[n])
            if self._kernel is None:
                self._kernel = build(*self.kernels(steps)[0])
            work = steps * self.units * self.cost + added // PRODUCTS_PER_ELEMENT
            grain = int(blocks > 1 and work >= PARALLEL_SIZE)
            self._kernel(blocks, grain, *arguments, *self.numbers, *last, *results, *sums, *parts, *stored)
        totals = {value: x.reshape(value.shape) for value, x in zip(self.totals, sums, strict=True)}
        totals |= self._sums_of_blocks(parts, block)
        return (
            [array_to_store(value, x) for value, x in zip(self.carry, last, strict=True)],
            {value: array_to_store(value, y, steps) for value, y in (ys | pooled).items()},
            totals | grads,
            [array_to_store(value, x, len(x)) for value, x in zip(self.carry, stored, strict=self.storing)],
        )

    def _inputs(self, known: dict[Value, Any], steps: int) -> list[Any]:
        """The kernel's arguments for sizes, states, sequences and loop-invariant operands."""
        arguments: list[Any] = []
        for width, sizes in zip(self.widths, self.block.sizes, strict=True):
            arguments += [width, *sizes]
        for value in self.carry:
            arguments += flat_array(array_to_compute(value, known))
        for value in self.input_sequences:
            source = self.spreads.source_of.get(value, value)
            arguments += rows_array(self._expanded(source, array_to_compute(source, known), steps), steps)
        for value in self.fixed:
            arguments.append(np.ascontiguousarray(self._expanded(value, array_to_compute(value, known))).reshape(-1))
        return arguments

    def _spread_operands(self, known: dict[Value, Any], steps: int) -> list[Any]:
        """The values of `self.spreads.arguments()`."""
        arguments: list[Any] = []
        for function in self.spreads.functions:
            arguments += function.numbers.values()
            for places in function.instruction.inputs[1:]:
                arguments += rows_array(known[places], steps)
        return arguments

    def _parts(self, blocks: int) -> list[Any]:
        """The kernel's arguments for sums over axes: for each sum, four lengths, and an array of results."""
        parts: list[Any] = []
        for one, own, number in self.reduced:
            results = np.zeros((blocks, number * own.inner), far_of(one.inputs[0]).dtype)
            parts += [number, own.times, own.inner, own.each, results]
        return parts

    def _sums_of_blocks(self, parts: list[Any], block: int) -> dict[Value, Any]:
        sums = {}
        for (one, own, number), results in zip(self.reduced, parts[4::5], strict=True):
            (out,) = one.outputs
            total = own.total(results, number, block * self.widths[self.block.of(one.inputs[0])])
            sums[out] = total.reshape(out.shape).astype(dtypes.compute_dtype(out.dtype))
        return sums

    def _expanded(self, value: Value, array: Any, *steps: int) -> Any:
        """The array of an operand, broadcast along the axes that the kernel does not broadcast."""
        shape = self.block.expanded.get(value)
        if shape is None:
            return array
        own = (*steps, *(1,) * (len(shape) - len(value.shape)), *value.shape)
        return np.broadcast_to(array.reshape(own), (*steps, *shape))

    def _empty(self, value: Value, *steps: int) -> Any:
        return empty((*steps, math.prod(value.shape)), dtypes.compute_dtype(value.dtype))

    def describe(self, steps: int) -> str:
        """Describe for `explain` how the loop runs."""
        parallel = self.units > self._block and steps * self.units * self.cost >= PARALLEL_SIZE
        threads = "all threads" if parallel else "one thread"
        unit = "rows" if self.products else "elements"
        return f"one kernel, {threads}, {steps} steps, {self.units} {unit} in blocks of {self._block}"

    def kernels(self, steps: int) -> list[tuple[Any, ...]]:
        """The kernel as arguments of `build`, or nothing if there are no elements to compute."""
        return [(self.name, self.source, self.signature)] if self.units else []

    @property
    def _block(self) -> int:
        self._size = self._size or self._choose_block()  # not a `cached_property`, for the reason in `Scan.schedule`
        return self._size

    def _choose_block(self) -> int:
        # The size of a block must not depend on the number of threads, because the bits of the results depend on it.
        if self.products:
            most = loops.BLOCK // max(1, *self.widths) // GROUP
            return GROUP * max(1, min(self.units // (8 * GROUP), most))
        block = loops.block_of(self.units)
        if self.pools.functions:
            return max(1, block // self.pools.unit) * self.pools.unit
        if self.recompute:
            size = self.every * sum(value.dtype.itemsize for value in self.stored)  # of a unit's states, in bytes
            block = min(block, max(loops.LEAST_BLOCK // 8, RECOMPUTED_BYTES // max(size, 1)))
        return block


def _array(ndim: int) -> Any:
    return lambda value, writable: (kind_of(value), ndim, writable)


# --- Arrays of a run --------------------------------------------------------------------------------------------------


def array_to_compute(value: Value, known: dict[Value, Any]) -> Any:
    """The array of a Value, in the dtype in which it is computed."""
    array, dtype = known[value], dtypes.compute_dtype(value.dtype)
    return array if isinstance(array, RowsOfEvents) or array.dtype == dtype else HOST.cast(array, dtype)


def array_to_store(value: Value, array: Any, *steps: int) -> Any:
    """Convert a kernel's output to a Value's shape and dtype."""
    array = array.reshape((*steps, *value.shape))
    return array if array.dtype == value.dtype else HOST.cast(array, value.dtype)


def flat_array(array: Any) -> list[Any]:
    """Flatten an array, with a stride of 1; a broadcast scalar becomes one element with stride 0."""
    if array.size > 1 and not any(array.strides):
        return [np.ascontiguousarray(array[(0,) * array.ndim]).reshape(1), 0]
    return [np.ascontiguousarray(array).reshape(-1), 1]


def rows_array(array: Any, steps: int) -> list[Any]:
    """A sequence as a matrix, with a slice in each row, and its stride: 1, or 0 if all steps read the same slice. If
    the kernel gathers instead of reading the sequence, the matrix is an unused placeholder.
    """
    if isinstance(array, RowsOfEvents):
        return [np.zeros((1, 1), array.matrix.dtype), 0]
    if steps > 1 and array.strides[0] == 0:
        return [np.ascontiguousarray(array[0]).reshape(1, -1), 0]
    return [np.ascontiguousarray(array).reshape(steps, -1), 1]
