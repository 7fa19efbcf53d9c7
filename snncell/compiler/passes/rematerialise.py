"""The values that a loop stores for its reverse: the least from which the reverse can compute the rest again.

The reverse of a step needs some Values of the step. It may be given them, or what they are computed from, or anything
between: each choice cuts the graph that leads from the inputs of the step to those Values. The cheapest cut is a
maximum flow's (Ford and Fulkerson 1956), where the capacity of a Value is the bytes that move if it is stored: written
and read, or only read if it is there in any case, as an input or a result.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from snncell.compiler.ir.body import Body
from snncell.compiler.ir.product import Product
from snncell.compiler.ir.program import values_in
from snncell.compiler.passes.dce import leading_to
from snncell.tape.taps import beyond_taps
from snncell.tape.tensor import Tensor
from snncell.tape.tracing import Step, Value

ENDLESS = 1 << 62
Node = tuple[Value | None, str]  # a Value as it arrives and as it leaves; where flow comes from and goes to
START: Node = (None, "start")
END: Node = (None, "end")


class Costs(NamedTuple):
    """The values that there are in any case, and those that can be stored.

    Attributes:
        carried: the states before the step.
        given: inputs that the reverse may read again.
        written: results that go out in any case.
        storable: Values that may be stored.
    """

    carried: Collection[Value]
    given: Collection[Value]
    written: Collection[Value]
    storable: Collection[Value]

    def of(self, value: Value) -> int:
        """Bytes that one step moves; to store one Value rather than two of half the size is a little better."""
        size: int = math.prod(value.shape) * value.dtype.itemsize
        if value in self.given or value in self.written:
            return 8 * size + 1
        return 16 * size + 1 if value in self.storable or value in self.carried else ENDLESS


def values_to_save(body: Body, reverse: Body) -> list[Tensor]:
    """Choose the values that the reverse is to be given of each step, beside the sequences that the step takes."""
    trace = body.trace
    places = {x._data: x for x in (*body.carry, *body.xs)}
    given = [x._data for x in body.xs]
    places.update((value, x) for value, x in trace.places.items() if value not in places)
    of_entry = {(x._entry, x._index): value for value, x in places.items() if x._entry is not None}
    taped = []
    for value, x in places.items():
        if x._entry is not None:
            parents = [
                beyond_taps(entry, index)
                for entry, index in zip(x._entry.parents, x._entry.indices, strict=True)
                if entry is not None
            ]
            taped += [(of_entry[parent], value) for parent in parents if parent in of_entry]
    # Where one of several outputs is given, the gradients of the others would not get beyond.
    single = {value for value, x in places.items() if x._entry is not None and len(x._entry.specs) == 1}
    asked_for = [x for x in body.ys if id(x._data) not in trace.noted]  # it is the same loop if somebody watches
    shapes = {x.shape for x in (*body.carry, *asked_for)}  # a kernel has no place for what is smaller
    dear = {out for step in trace.steps if isinstance(step.op, Product) for out in step.outputs}
    storable = {x for x in single if (x.shape in shapes or x in dear) and x not in trace.ambiguous}
    results = {value for value in storable if any(y._data is value for y in asked_for)}
    costs = Costs([x._data for x in body.carry], given, results, storable)
    gradients = [reverse.trace.lift(out) for out in reverse.outs]
    steps = leading_to(reverse.trace.steps, gradients)
    forward = {value for step in trace.steps for value in step.outputs}
    found = minimum_cut(steps, gradients, forward, taped, costs)
    return [places[value] for value in found if value not in given]


def minimum_cut(
    reverse: Sequence[Step],
    gradients: Sequence[Value],
    forward: set[Value],
    taped: Iterable[tuple[Value, Value]],
    costs: Costs,
) -> list[Value]:
    """The Values that the reverse is to be given, in the order in which the step has them.

    The graph has the edges of the tape too. A gradient of the reverse must not come by what it is given, for what lies
    beyond is not there; and on the tape a custom reverse may lead to an input that its forward never looks at.

    Args:
        reverse: the steps of the reverse, which computes all it needs of the step again; none merged with another.
        gradients: what the reverse gives.
        forward: the Values that the step computes.
        taped: of what each Value is computed, as far as gradients flow there.
        costs: what each of them costs.
    """
    edges, flow = list(taped), _Flow()
    moving = _reached((*costs.carried, *costs.given), edges)
    for value in (*costs.carried, *costs.given):
        flow.connect(START, (value, "in"), ENDLESS)
    needed = list(gradients)
    for step in reverse:
        sources = [x for x in values_in(step) if x in moving]
        if not forward.issuperset(step.outputs):
            needed += values_in(step)
        elif sources or not moving.isdisjoint(step.outputs):  # else it is the same at every step: no part of the loop
            moving.update(step.outputs)
            for out in step.outputs:
                again = not isinstance(step.op, Product) or out not in costs.storable
                if not again:
                    flow.connect(START, (out, "in"), ENDLESS)
                for x in sources:
                    flow.connect((x, "out"), (out, "in"), ENDLESS if again else 0)
    for source, value in edges:
        if source in moving and value in moving:
            flow.connect((source, "out"), (value, "in"), ENDLESS)
    for value in moving:
        flow.connect((value, "in"), (value, "out"), costs.of(value))
    for value in moving.intersection(needed):
        flow.connect((value, "out"), END, ENDLESS)
    flow.fill()
    ends = flow.reaching()
    order = [*costs.carried, *costs.given, *(out for step in reverse for out in step.outputs), *(to for _, to in edges)]
    return [x for x in dict.fromkeys(order) if x in moving and (x, "in") not in ends and (x, "out") in ends]


def _reached(values: Sequence[Value], edges: Sequence[tuple[Value, Value]]) -> set[Value]:
    """The values, and all that edges lead to from them."""
    after: dict[Value, list[Value]] = {}
    for source, value in edges:
        after.setdefault(source, []).append(value)
    found, waiting = set(values), list(values)
    while waiting:
        new = [value for value in after.get(waiting.pop(), ()) if value not in found]
        found.update(new)
        waiting += new
    return found


class _Flow:
    """A network, and a flow through it from START to END: what room is left from node to node."""

    def __init__(self) -> None:
        self.room: dict[Node, dict[Node, int]] = {START: {}, END: {}}

    def connect(self, a: Node, b: Node, capacity: int) -> None:
        """An edge from `a` to `b`."""
        self.room.setdefault(a, {})[b] = capacity
        self.room.setdefault(b, {}).setdefault(a, 0)

    def fill(self) -> None:
        """Send as much as possible, each time along a shortest path."""
        while True:
            before: dict[Node, Node] = {START: START}
            waiting = deque([START])
            while waiting and END not in before:
                node = waiting.popleft()
                for other, left in self.room[node].items():
                    if left > 0 and other not in before:
                        before[other] = node
                        waiting.append(other)
            if END not in before:
                return
            path = [END]
            while path[-1] != START:
                path.append(before[path[-1]])
            edges = list(zip(path[1:], path, strict=False))
            amount = min(self.room[a][b] for a, b in edges)
            for a, b in edges:
                self.room[a][b] -= amount
                self.room[b][a] += amount

    def reaching(self) -> set[Node]:
        """From where END can still be reached: of all cheapest cuts, this finds the one that is nearest to it."""
        into: dict[Node, list[Node]] = {}
        for node, others in self.room.items():
            for other, left in others.items():
                if left > 0:
                    into.setdefault(other, []).append(node)
        found, waiting = {END}, deque([END])
        while waiting:
            for node in into.get(waiting.popleft(), ()):
                if node not in found:
                    found.add(node)
                    waiting.append(node)
        return found
