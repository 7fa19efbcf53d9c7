"""Phases of a time step: the loops and products that a kernel runs one after the other on its block.

    i = dot(s, w); h = v * a + i; s' = h > 1; v' = h * (1 - s')      a recurrent layer of spikes
    phases: [dot]  [v * a + i, > 1, *]                               i lies in an array of the block

Where all is elementwise there is one phase, and one loop over the elements of the block computes it. A product of
matrices needs whole rows of its operand, so a step with products has several: elementwise loops, products of the
block's rows, and again. Values that one phase computes and another needs lie in arrays of the block, so the fewer
phases a Value crosses the better.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from snncell.compiler.ir.formula import is_elementwise
from snncell.compiler.ir.program import values_in
from snncell.tape.tracing import Instruction
from snncell.tape.value import Value

Shape = tuple[int, ...]


def common_shape(values: Iterable[Value]) -> Shape:
    """The shape that all of them broadcast to."""
    return np.broadcast_shapes(*(value.shape for value in values))


class Phase:
    """Elementwise instructions over one shape, or one product.

    Attributes:
        shape: the shape of all that it computes.
        instructions: in order.
        product: whether it is a product.
    """

    def __init__(self, shape: Shape, product: bool = False) -> None:
        self.shape = shape
        self.instructions: list[Instruction] = []
        self.product = product


def phases_of(instructions: Sequence[Instruction], results: Sequence[Value]) -> list[Phase]:
    """Arrange a step with products in phases, in order.

    An elementwise instruction comes as late as its users allow, so that few Values lie between phases; one whose result
    is among `results` comes as soon as it can.
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
            # The product that opens level n reads what level n - 1 has left.
            own = level[out] if is_elementwise(instruction) else level[out] - 1
            latest[x] = min(latest.get(x, own), own)
    phases: dict[tuple[int, bool, object], Phase] = {}
    for instruction in instructions:
        (out,) = instruction.outputs
        product = not is_elementwise(instruction)
        key = (level[out], not product, id(instruction) if product else out.shape)
        phases.setdefault(key, Phase(out.shape, product)).instructions.append(instruction)
    return [phases[key] for key in sorted(phases, key=lambda key: key[:2])]


class Stores:
    """The assignment of stores to phases, and of arrays to the Values that more than one phase needs.

    A state is overwritten in place by the phase that computes it, if no later phase reads the old one; otherwise it is
    computed into an array of its own and copied by a later phase.

    Args:
        phases: of the step; phases that only store are added to them.
        carry, after: the states before the step, and after it.
        sequences: the Values that go out at each step.
        summed: the Values that are added up over the steps.
        in_place: whether the states after the step take the places of those before it.

    Attributes:
        after: for each phase the numbers of the states that it stores.
        sequences, summed: for each phase the Values that it stores or adds.
        targets: the Values of the states after the step.
        direct: of Values that are computed in the place of a state, the number of the state.
        shared: the other Values that one phase computes and another needs.
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
        self.targets = after
        self._made_in = {
            value: n
            for n, phase in enumerate(phases)
            for instruction in phase.instructions
            for value in instruction.outputs
        }
        self._last_read: dict[Value, int] = {}  # the last phase that needs a Value
        for n, phase in enumerate(phases):
            self._last_read.update((x, n) for instruction in phase.instructions for x in values_in(instruction))
        # A product that goes out is computed in its row of the sequence, and needs no store.
        stored = [x for x in sequences if x not in self._made_in or not phases[self._made_in[x]].product]
        at_sequence = {x: self._at(x) for x in stored}
        at_sum = {x: self._at(x) for x in summed}
        self.direct: dict[Value, int] = {}
        at_after = self._place_states(carry, after, sequences, in_place)
        self.after = [[n for n, at in at_after.items() if at == k] for k in range(len(phases))]
        self.sequences = [[x for x, at in at_sequence.items() if at == k] for k in range(len(phases))]
        self.summed = [[x for x, at in at_sum.items() if at == k] for k in range(len(phases))]
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
        """The phase that stores each state, by its number; fills `direct`."""
        made_in, last_read = self._made_in, self._last_read
        at_after: dict[int, int] = {}
        # States that become others, as in (v, u) -> (u, v): all are loaded before any is stored.
        moved = [n for n, value in enumerate(after) if value in carry and not (in_place and value is carry[n])]
        for n in moved:
            at_after[n] = self._place(carry[n].shape, max(last_read.get(carry[m], 0) for m in moved))
        for n in moved:
            last_read[after[n]] = max(last_read.get(after[n], 0), *at_after.values())
        for n, value in enumerate(after):
            if value in carry:
                continue  # it stays what it is, or has been moved
            at, needed = made_in.get(value, 0), last_read.get(carry[n], -1)
            product = value in made_in and self.phases[at].product
            # An elementwise loop reads an element before it writes it; a product writes a row while it reads others.
            free = needed < at or (needed == at and not product)
            if value in made_in and value not in self.direct and free and not (product and value in sequences):
                self.direct[value] = n
                at_after.update({} if product else {n: at})
            else:
                at_after[n] = self._place(carry[n].shape, max(needed, at))
                last_read[value] = max(last_read.get(value, 0), at_after[n])
        return at_after

    @property
    def needs(self) -> list[tuple[Phase, list[Value]]]:
        """The phases, each with the Values that it needs and does not compute."""
        needs = []
        for n, phase in enumerate(self.phases):
            inside = {value for instruction in phase.instructions for value in instruction.outputs}
            taken = [
                *(x for instruction in phase.instructions for x in values_in(instruction)),
                *self.sequences[n],
                *self.summed[n],
            ]
            taken += [self.targets[state] for state in self.after[n]]
            needs.append((phase, [x for x in dict.fromkeys(taken) if x not in inside]))
        return needs

    def _at(self, value: Value) -> int:
        """The phase that stores a Value: the one that computes it, or the first that may."""
        first = self._made_in.get(value, 0)  # a state is in its array from the beginning
        computed_in_loop = value in self._made_in and not self.phases[first].product
        place = first if computed_in_loop else self._place(value.shape, first)
        self._last_read[value] = max(self._last_read.get(value, 0), place)
        return place

    def _place(self, shape: Shape, least: int) -> int:
        """The first elementwise phase over `shape` that is not before the phase `least`; a new one if there is none."""
        for n in range(least, len(self.phases)):
            if self.phases[n].shape == shape and not self.phases[n].product:
                return n
        self.phases.append(Phase(shape))
        return len(self.phases) - 1
