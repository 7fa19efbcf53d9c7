"""Fusion: group elementwise instructions, and the reductions that use them, into loops.

    a = exp(x); b = dot(a, w); c = a * 2; s = sum(b); d = b - s
    groups: [exp, *2]  [dot]  [sum]  [-]

Values that pass between two instructions of a group stay in registers. A product is its own group. `b - s` cannot be
fused into the loop of `sum(b)`, because s is complete only when that loop has ended. Instructions over another shape
cannot be fused either. Then `side_by_side` moves small loops next to each other, because neighbours become one launch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from snncell.compiler.ir.operations import MAX_INSTRUCTIONS, Broadcast, Elementwise, Reduction, loop_shape
from snncell.compiler.ir.program import Program, bytes_of, outside_of, results_of, values_in
from snncell.compiler.passes.simplify import leading_to
from snncell.tape.state import Value
from snncell.tape.tracing import Instruction

RECIPE = 4  # the maximum number of instructions that one loop rematerialises from another


class FusionGroup:
    """Instructions that run as one: a fused loop over `shape`, or another single call (`shape` is None)."""

    def __init__(self, shape: tuple[int, ...] | None) -> None:
        self.shape = shape
        self.instructions: list[Instruction] = []
        self.axes: tuple[int, ...] | None = None  # the axes of its reductions, if it has any
        self.reads: list[Value] = []
        self.writes: list[Value] = []

    @property
    def inside(self) -> set[Value]:
        """The Values that the group computes."""
        return set(results_of(*self.instructions))

    def settle(self, used_later: set[Value]) -> None:
        """Determine the Values that the group reads from outside, and the Values that it writes for later use."""
        self.reads = outside_of(self.instructions, [], [])
        self.writes = [value for value in results_of(*self.instructions) if value in used_later]

    def has_room(self, shape: tuple[int, ...] | None, count: int, axes: tuple[int, ...] | None = None) -> bool:
        """True if `count` more instructions over `shape`, with reductions along `axes`, are legal in this loop."""
        if shape is None or self.shape != shape or len(self.instructions) + count > MAX_INSTRUCTIONS:
            return False
        return None in (self.axes, axes) or self.axes == axes


def fuse(program: Program) -> list[FusionGroup]:
    """Group the instructions of a Program, in an order in which the groups can run.

    Each instruction goes into the earliest legal group, or into a new one at the end. A group is legal if it runs over
    the same shape, and if each input of the instruction is computed before the group or in it. It must also read or
    compute an operand of the instruction, unless it is a loop over a single element.

    Then each loop is merged into the first loop that uses one of its results, if this is legal. Finally, loops
    recompute a Value instead of reading it, if they then move fewer bytes.
    """
    groups: list[FusionGroup] = []
    group_of: dict[Value, int] = {}  # the group that computes each Value
    reduced: set[Value] = set()  # results of reductions, which are complete only when their loop has ended
    touched: list[set[Value]] = []  # the Values that each group reads or computes
    for instruction in program.instructions:
        shape = loop_shape(instruction)
        axes = instruction.attrs["axis"] if isinstance(instruction.op, Reduction) else None
        values = values_in(instruction)
        first = max((group_of.get(x, -1) + (x in reduced) for x in values), default=0)
        single = math.prod(shape or ()) <= 1  # a loop over one element costs only its launch
        for index in range(max(first, 0), len(groups)):
            common = single or not touched[index].isdisjoint(values)
            if common and groups[index].has_room(shape, 1, axes):
                break
        else:
            # At the end of the list, all inputs of the instruction are complete.
            groups.append(FusionGroup(shape))
            touched.append(set())
            index = len(groups) - 1
        group = groups[index]
        group.instructions.append(instruction)
        touched[index].update(values, instruction.outputs)
        if axes is not None and shape is not None:
            group.axes = axes
            reduced.update(instruction.outputs)
        group_of.update(dict.fromkeys(instruction.outputs, index))
    groups = _merge_into_users(groups, reduced)
    used = set(program.results())
    for group in reversed(groups):
        group.settle(used)
        used.update(group.reads)
    return _rematerialise_groups(groups, program)


def _merge_into_users(groups: list[FusionGroup], reduced: set[Value]) -> list[FusionGroup]:
    """Merge each group into its first user, if that is legal; not into a later one, which would run after the first."""
    later: list[FusionGroup] = []  # the groups after this one, in reverse order
    for group in reversed(groups):
        inside = group.inside
        index = len(later) - 1  # the first user
        while index >= 0 and inside.isdisjoint(values_in(*later[index].instructions)):
            index -= 1
        host = later[index] if index >= 0 else FusionGroup(None)
        fits = host.has_room(group.shape, len(group.instructions), group.axes)
        # The host must not use the result of a reduction of the group, which is complete only after its loop.
        if not fits or not (inside & reduced).isdisjoint(values_in(*host.instructions)):
            later.append(group)
            continue
        host.instructions = [*group.instructions, *host.instructions]
        host.axes = group.axes if host.axes is None else host.axes
    return later[::-1]


def _rematerialise_groups(groups: list[FusionGroup], program: Program) -> list[FusionGroup]:
    """Rematerialise a Value in the loops that read it, if its operands have fewer bytes. For example, one loop computes
    x - mean and sums its squares, and a later loop reads x and needs x - mean, too. A second subtraction is cheaper
    than a write and a read.
    """
    wanted, sizes = set(program.results()), _sizes(groups)
    order = {instruction: number for number, instruction in enumerate(program.instructions)}
    readers: dict[Value, list[FusionGroup]] = {}
    for group in groups:
        for x in group.reads:
            readers.setdefault(x, []).append(group)
    for group in groups:
        for value in group.writes[::-1]:
            hosts = readers.get(value, [])
            recipe = _recipe(group, value)
            if value in wanted or not recipe or not all(host.has_room(group.shape, len(recipe)) for host in hosts):
                continue
            taken = set(outside_of(recipe, [], []))
            added = {host: taken.difference(host.reads, host.inside) for host in hosts}
            if sum(sizes[x] for more in added.values() for x in more) >= sizes[value] * (1 + len(hosts)):
                continue
            for host, more in added.items():
                host.instructions = sorted({*host.instructions, *recipe}, key=order.__getitem__)
                host.reads = [x for x in host.reads if x is not value] + [x for x in sizes if x in more]
                for x in more:
                    readers.setdefault(x, []).append(host)
            group.writes.remove(value)
            group.instructions = leading_to(group.instructions, group.writes)
            used = values_in(*group.instructions)
            group.reads = [x for x in group.reads if x in used]
    return [group for group in groups if group.instructions]


def _recipe(group: FusionGroup, value: Value) -> list[Instruction]:
    """At most RECIPE cheap instructions that recompute a Value from its loop's inputs and outputs, or []."""
    if group.shape is None:
        return []
    instructions: list[Instruction] = []
    needed = {value}
    for instruction in reversed(group.instructions):
        if needed.isdisjoint(instruction.outputs):
            continue
        if not isinstance(instruction.op, Elementwise) or instruction.op.slow_calls or len(instructions) >= RECIPE:
            return []
        instructions.insert(0, instruction)
        needed.update(x for x in values_in(instruction) if x not in group.writes)
    return instructions


def _sizes(groups: list[FusionGroup]) -> dict[Value, int]:
    """The bytes of each input and output of the groups; for a broadcast Value, those of its operand."""
    sizes: dict[Value, int] = {}
    for group in groups:
        for x in (*group.reads, *group.writes):
            sizes.setdefault(x, bytes_of(x))
        if group.shape is None and isinstance(group.instructions[0].op, Broadcast):
            sizes.update(dict.fromkeys(group.instructions[0].outputs, sizes[group.reads[0]]))
    return sizes


# A loop that moves more bytes is not moved to a later place, because its operands would be evicted from the cache.
WAITING_BYTES = 1 << 20


def side_by_side(groups: Sequence[FusionGroup]) -> list[FusionGroup]:
    """Move small loops after the independent calls that follow them, directly before the next loop. The order of loops
    stays the same, and neighbours become one launch.

    a = sum(x); y = product(x, w); b = a * 2   ->   y = product(x, w); a = sum(x); b = a * 2
    """
    placed: list[FusionGroup] = []
    waiting: list[FusionGroup] = []
    for group in groups:
        if group.shape is not None:
            waiting.append(group)
            continue
        reads, sizes = set(group.reads), _sizes(waiting)
        large = [sum(sizes[value] for value in (*loop.reads, *loop.writes)) > WAITING_BYTES for loop in waiting]
        stays = [n for n, loop in enumerate(waiting, 1) if large[n - 1] or not reads.isdisjoint(loop.writes)]
        count = stays[-1] if stays else 0
        placed += [*waiting[:count], group]
        waiting = waiting[count:]
    return placed + waiting
