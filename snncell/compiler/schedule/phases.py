"""The phases of a step: what a kernel does one after another to the block it works on.

Where all is elementwise there is one phase, and one loop over the elements of the block computes it. A product of
matrices needs whole rows of its operand, so a step with products has several: elementwise loops, products of the
block's rows, and again. What one phase leaves for another lies in an array of the block.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from snncell.compiler.ir.formula import is_elementwise
from snncell.compiler.ir.program import values_in
from snncell.tape.tracing import Step, Value

Shape = tuple[int, ...]


def space_of(values: Iterable[Value]) -> Shape:
    """The shape that all of them broadcast to."""
    return np.broadcast_shapes(*(value.shape for value in values))


class Phase:
    """Elementwise steps over one shape, or one product.

    Attributes:
        shape: the shape of all that it computes.
        steps: in order.
        product: whether it is a product.
    """

    def __init__(self, shape: Shape, product: bool = False) -> None:
        self.shape = shape
        self.steps: list[Step] = []
        self.product = product


def phases_of(steps: Sequence[Step], results: Sequence[Value]) -> list[Phase]:
    """The phases of a step with products, in order.

    An elementwise step comes as late as what waits for it allows, so that little lies between phases; one that only
    `results` wait for comes as soon as it can.
    """
    level: dict[Value, int] = {}  # how many products come before a Value, one after another
    for step in steps:
        before = max((level.get(x, 0) for x in values_in(step)), default=0)
        level.update(dict.fromkeys(step.outputs, before if is_elementwise(step) else before + 1))
    wanted = set(results)
    latest: dict[Value, int] = {}
    for step in reversed(steps):
        (out,) = step.outputs
        if is_elementwise(step):
            level[out] = level[out] if out in wanted else latest.get(out, level[out])
        for x in values_in(step):
            now = level[out] if is_elementwise(step) else level[out] - 1
            latest[x] = min(latest.get(x, now), now)
    phases: dict[tuple[int, bool, object], Phase] = {}
    for step in steps:
        (out,) = step.outputs
        product = not is_elementwise(step)
        key = (level[out], not product, id(step) if product else out.shape)
        phases.setdefault(key, Phase(out.shape, product)).steps.append(step)
    return [phases[key] for key in sorted(phases, key=lambda key: key[:2])]


class Stores:
    """Which phase stores what a step leaves, and where the Values live that more than one phase needs.

    A state is overwritten by the phase that computes it, if nothing needs the old one any more then; otherwise it is
    computed into an array of its own and copied by a later phase.

    Args:
        phases: of the step; phases that only store are added to them.
        carry, after: the states before the step, and after it.
        sequences: what goes out at each step.
        summed: what is added up over the steps.
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
        made = {value: n for n, phase in enumerate(phases) for step in phase.steps for value in step.outputs}
        read: dict[Value, int] = {}  # the last phase that needs a Value
        for n, phase in enumerate(phases):
            read.update((x, n) for step in phase.steps for x in values_in(step))
        at_sequence = {x: self._at(x, made, read) for x in sequences if x not in made or not phases[made[x]].product}
        at_sum = {x: self._at(x, made, read) for x in summed}
        at_after: dict[int, int] = {}
        moved = [n for n, value in enumerate(after) if value in carry and not (in_place and value is carry[n])]
        for n in moved:  # states that become others: all are loaded before any is stored
            at_after[n] = self._place(carry[n].shape, max(read.get(carry[m], 0) for m in moved))
        for n in moved:
            read[after[n]] = max(read.get(after[n], 0), *at_after.values())
        self.direct: dict[Value, int] = {}
        for n, value in enumerate(after):
            if value in carry:
                continue  # it stays what it is, or has been moved
            at, needed = made.get(value, 0), read.get(carry[n], -1)
            product = value in made and phases[at].product
            free = needed < at or (needed == at and not product)
            if value in made and value not in self.direct and free and not (product and value in sequences):
                self.direct[value] = n
                at_after.update({} if product else {n: at})
            else:
                at_after[n] = self._place(carry[n].shape, max(needed, at))
                read[value] = max(read.get(value, 0), at_after[n])
        self.after = [[n for n, at in at_after.items() if at == k] for k in range(len(phases))]
        self.sequences = [[x for x, at in at_sequence.items() if at == k] for k in range(len(phases))]
        self.summed = [[x for x, at in at_sum.items() if at == k] for k in range(len(phases))]
        self.shared = [
            value
            for value, at in made.items()
            if value not in self.direct and value not in sequences and (phases[at].product or read.get(value, at) > at)
        ]

    @property
    def needs(self) -> list[tuple[Phase, list[Value]]]:
        """For each phase the Values it needs and does not compute."""
        found = []
        for n, phase in enumerate(self.phases):
            made = {value for step in phase.steps for value in step.outputs}
            taken = [*(x for step in phase.steps for x in values_in(step)), *self.sequences[n], *self.summed[n]]
            taken += [self.targets[state] for state in self.after[n]]
            found.append((phase, [x for x in dict.fromkeys(taken) if x not in made]))
        return found

    def _at(self, value: Value, made: dict[Value, int], read: dict[Value, int]) -> int:
        """The phase that stores a Value: the one that computes it, or the first that may."""
        first = made.get(value, 0)  # a state is there from the beginning
        place = first if value in made and not self.phases[first].product else self._place(value.shape, first)
        read[value] = max(read.get(value, 0), place)
        return place

    def _place(self, shape: Shape, least: int) -> int:
        """The first elementwise phase over `shape` that is not before the phase `least`; a new one if there is none."""
        for n in range(least, len(self.phases)):
            if self.phases[n].shape == shape and not self.phases[n].product:
                return n
        self.phases.append(Phase(shape))
        return len(self.phases) - 1
