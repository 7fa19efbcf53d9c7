"""Passes over the bodies of loops: rematerialisation chooses the values to save, hoisting moves instructions out."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import compress
from typing import NamedTuple, TypeVar

from snncell.compiler.ir.operations import is_elementwise, is_float_value
from snncell.compiler.ir.product import Product
from snncell.compiler.ir.program import Body, LoopParts, Program, bytes_of, results_of, values_in
from snncell.compiler.passes.simplify import leading_to
from snncell.tape.hooks import skip_taps
from snncell.tape.state import Value
from snncell.tape.tensor import Tensor
from snncell.tape.tracing import Instruction

UNBOUNDED = 1 << 62  # the capacity of edges that must not be cut
# Values have capacities, but a flow needs them on edges. So each Value is an edge from (value, "in") to (value, "out").
Node = tuple[Value | None, str]
START: Node = (None, "start")
END: Node = (None, "end")
N = TypeVar("N")


class StorableValues(NamedTuple):
    """The candidates for a cut: Values that memory holds anyway, and Values that the loop can store."""

    carried: Collection[Value]  # the states before the step
    inputs: Collection[Value]  # input sequences, which the backward step may read again
    written: Collection[Value]  # results, which are written anyway
    storable: Collection[Value]

    def of(self, value: Value) -> int:
        """The cost of a Value: 8 for each byte read or written, plus 1 to prefer fewer Values at equal bytes."""
        size = bytes_of(value)
        if value in self.inputs or value in self.written:
            return 8 * size + 1  # read
        return 16 * size + 1 if value in self.storable or value in self.carried else UNBOUNDED  # written and read


def rematerialise(program: Program) -> Program:
    """Rematerialisation: a loop stores the cheapest values from which its backward pass can recompute the others.

        h = v + (x - v) / tau;  u = h - 1;  s = u > 0;  v' = h * (1 - stop_gradient(s))      the step of an LIF neuron

    Here the backward step needs u, for the surrogate, and s. The loop stores u, and the backward step recomputes s.
    Storing v and x instead would also do, but they take more bytes.

    The loop can store a value that the backward step needs, or store its operands and recompute it. Each choice is a
    cut of the graph between the inputs of the step and the needed values. The compiler finds the cheapest cut by a
    maximum flow (Ford and Fulkerson 1956). The capacity of a value is the memory traffic of storing it: one write and
    one read. For an input or a result of the loop, it is only the read, because memory holds these anyway. Recomputing
    makes loops over time faster, because memory limits their speed: arithmetic on registers costs less than reading a
    sequence. Matrix products are expensive to recompute, so they are stored if possible.
    """
    step = program.step
    assert step is not None  # BODY_PASSES run for the steps of loops only
    body = step.body
    if body.saved is None and body.reverse is not None:
        body = body.saving(values_to_save(body, body.reverse.body))
    return program._replace(outputs=body.program().outputs, step=step._replace(body=body))


def values_to_save(body: Body, reverse: Body) -> list[Tensor]:
    """Choose the values of each step that the loop stores for the backward step."""
    trace = body.trace
    tensors = {x._data: x for x in (*body.carry, *body.xs)}  # the Tensor of each Value on the tape
    inputs = [x._data for x in body.xs]
    tensors.update((value, x) for value, x in trace.tensors.items() if value not in tensors)
    of_entry = {(x._entry, x._index): value for value, x in tensors.items() if x._entry is not None}
    taped = []
    for value, x in tensors.items():
        if x._entry is not None:
            pairs = zip(x._entry.parents, x._entry.indices, strict=True)
            parents = [skip_taps(entry, index) for entry, index in pairs if entry is not None]
            taped += [(of_entry[parent], value) for parent in parents if parent in of_entry]
    # Store only results of operations with a single output, because a gradient stops at a stored Value. If an operation
    # has two outputs and one is stored, the gradient of the other would not reach the inputs of the operation.
    single = {value for value, x in tensors.items() if x._entry is not None and len(x._entry.specs) == 1}
    ys = [x for x in body.ys if id(x._data) not in trace.noted]  # monitors must not change the choice
    shapes = {x.shape for x in (*body.carry, *ys)}  # a single kernel supports only sequences of these shapes
    expensive = {*results_of(*(x for x in trace.instructions if isinstance(x.op, Product)))}
    storable = {x for x in single if (x.shape in shapes or x in expensive) and x not in trace.ambiguous}
    results = {value for value in storable if any(y._data is value for y in ys)}
    costs = StorableValues([x._data for x in body.carry], inputs, results, storable)
    gradients = [reverse.trace.lift(out) for out in reverse.outs]
    instructions = leading_to(reverse.trace.instructions, gradients)
    cut = minimum_cut(instructions, gradients, set(results_of(*trace.instructions)), taped, costs)
    return [tensors[value] for value in cut if value not in inputs]


def minimum_cut(
    reverse: Sequence[Instruction],
    gradients: Sequence[Value],
    forward: set[Value],
    taped: Iterable[tuple[Value, Value]],
    costs: StorableValues,
) -> list[Value]:
    """The Values that the backward step reads, in the order of the step.

    The graph has an edge from each operand of an instruction to its result. It also has the edges of the tape, along
    which gradients flow, because a gradient cannot flow on from a stored Value to its operands. Some of these edges
    belong to no instruction: a custom backward may give a gradient to an input that its forward ignores.

    Args:
        reverse: the traced instructions of both steps, before any are merged.
        gradients, forward: the results of the backward step, and all Values that the forward step computes.
        taped: pairs of an operand and a result between which gradients flow.
    """
    edges, flow = list(taped), _Flow()
    successors: dict[Value, list[Value]] = {}
    for source, value in edges:
        successors.setdefault(source, []).append(value)
    varying = set(_search((*costs.carried, *costs.inputs), lambda value: successors.get(value, ())))
    for value in (*costs.carried, *costs.inputs):
        flow.connect(START, (value, "in"), UNBOUNDED)
    needed = list(gradients)
    for instruction in reverse:
        sources = [x for x in values_in(instruction) if x in varying]
        if not forward.issuperset(instruction.outputs):
            needed += values_in(instruction)  # an instruction of the backward step itself, which needs its operands
        elif sources or varying.intersection(instruction.outputs):  # otherwise it is loop-invariant
            varying.update(instruction.outputs)
            for out in instruction.outputs:
                recomputed = not isinstance(instruction.op, Product) or out not in costs.storable
                if not recomputed:
                    # A product must not be recomputed. An edge from START to the product puts the cut after it.
                    flow.connect(START, (out, "in"), UNBOUNDED)
                for x in sources:
                    flow.connect((x, "out"), (out, "in"), UNBOUNDED if recomputed else 0)
    for source, value in edges:
        if source in varying and value in varying:
            flow.connect((source, "out"), (value, "in"), UNBOUNDED)
    for value in varying:
        flow.connect((value, "in"), (value, "out"), costs.of(value))
    for value in varying.intersection(needed):
        flow.connect((value, "out"), END, UNBOUNDED)
    flow.fill()
    beyond = flow.reaching()
    order = [*costs.carried, *costs.inputs, *results_of(*reverse), *(value for _, value in edges)]
    return [x for x in dict.fromkeys(order) if x in varying and (x, "in") not in beyond and (x, "out") in beyond]


def _search(starts: Iterable[N], successors: Callable[[N], Iterable[N]]) -> dict[N, N]:
    """Breadth-first search: maps each reached node to its predecessor."""
    previous = {node: node for node in starts}
    waiting = deque(previous)
    while waiting:
        node = waiting.popleft()
        for other in successors(node):
            if other not in previous:
                previous[other] = node
                waiting.append(other)
    return previous


class _Flow:
    """The residual network of a flow from START to END: the remaining capacity of each edge."""

    def __init__(self) -> None:
        self.residual: dict[Node, dict[Node, int]] = {START: {}, END: {}}

    def connect(self, a: Node, b: Node, capacity: int) -> None:
        """Add an edge from `a` to `b`, and a reverse edge, on which `fill` can take flow back."""
        self.residual.setdefault(a, {})[b] = capacity
        self.residual.setdefault(b, {}).setdefault(a, 0)

    def fill(self) -> None:
        """Maximise the flow: add flow along a shortest path until no path is left (Edmonds and Karp 1972)."""
        residual = self.residual
        while END in (previous := _search([START], lambda node: [b for b, left in residual[node].items() if left > 0])):
            path = [END]
            while path[-1] != START:
                path.append(previous[path[-1]])
            edges = list(zip(path[1:], path, strict=False))
            amount = min(residual[a][b] for a, b in edges)
            for a, b in edges:
                residual[a][b] -= amount
                residual[b][a] += amount

    def reaching(self) -> set[Node]:
        """The nodes that can reach END. They give the minimum cut nearest to END, with the least recomputation."""
        # Each edge has a reverse edge, so `residual[a]` lists successors and predecessors of a node.
        residual = self.residual
        return set(_search([END], lambda node: [a for a in residual[node] if residual[a][node] > 0]))


# --- Loop-invariant code motion ---------------------------------------------------------------------------------------


def hoist(program: Program) -> Program:
    """Loop-invariant code motion in both directions: run an instruction for all steps at once if this is possible.

        each step:  w2 = w * 2;  i = dot(x, w2);  v' = v * a + i;  y = dot(v', u);  g += sum(v', axis=0)
        before:     w2 = w * 2                        invariant: depends on constants alone
                    i = dot(x, w2), all steps         prologue: depends on sequences alone, and is not elementwise
        loop:       v' = v * a + i;  total += v'
        after:      y = dot(v', u), all steps         epilogue: the loop does not depend on it
                    g = sum(total, axis=0)            reductions: of sums, where f(sum of v') = sum of f(v')

    A product over a whole sequence is one large product, and the remaining loop of most neurons is one kernel.
    Elementwise instructions stay in the loop, where they cost no memory traffic, unless an instruction before the loop
    needs them. An instruction runs once on sums over time, instead of at each step, under three conditions. Its
    operation is `additive` or `proportional`. Its operands are floats. It depends on an instruction that is not
    elementwise: the others cost little in the loop.

    The result has `step.parts`, which lists the instructions by place.
    """
    step = program.step
    assert step is not None
    body = step.body
    first, last = len(body.after), len(body.after) + len(body.ys)
    after, ys, sums = program.outputs[:first], program.outputs[first:last], program.outputs[last:]
    carried = {x._data for x in body.carry}.union(step.states)
    invariant, rest = _invariant(program.instructions, {x._data for x in body.consts})
    fixed = {*(x._data for x in body.consts), *results_of(*invariant)}
    kind, uses = _modes(rest, fixed, after, ys, sums)
    prologue = _prologue(rest, kind, carried)
    # The other instructions run in the loop, on whole sequences after it, or on sums after it.
    placed: dict[str, list[Instruction]] = {"loop": [], "sequence": [], "sum": []}
    hoisted = set(prologue)
    for instruction in rest:
        if instruction not in hoisted:
            placed[kind[instruction]].append(instruction)
    computed, late = carried.union(results_of(*placed["loop"])), {*results_of(*placed["sequence"], *placed["sum"])}
    sequences = [value for value, modes in uses.items() if "sequence" in modes and value in computed]
    summed = [value for value, modes in uses.items() if "sum" in modes and value not in late]
    places = invariant, prologue, placed["loop"], placed["sequence"], placed["sum"]
    parts = LoopParts(program, after, ys, sums, *places, fixed, sequences, summed)
    return program._replace(step=step._replace(parts=parts))


def _invariant(instructions: list[Instruction], constant: set[Value]) -> tuple[list[Instruction], list[Instruction]]:
    fixed, invariant, rest = set(constant), list[Instruction](), list[Instruction]()
    for instruction in instructions:
        values = values_in(instruction)
        if values and fixed.issuperset(values):
            invariant.append(instruction)
            fixed.update(instruction.outputs)
        else:
            rest.append(instruction)
    return invariant, rest


def _prologue(instructions: list[Instruction], kind: dict[Instruction, str], carried: set[Value]) -> list[Instruction]:
    """Select the instructions that run before the loop, for all steps: the loop needs them, and they do not depend on
    states. Elementwise instructions are among them only if they compute operands of the others.
    """
    stateful = set(carried)  # Values that depend on a state, or on an instruction without a rule for sequences
    candidates: list[Instruction] = []
    for instruction in instructions:
        values = values_in(instruction)
        has_rule = instruction.op.over_time is not None and kind[instruction] == "loop"
        if values and stateful.isdisjoint(values) and has_rule:
            candidates.append(instruction)
        else:
            stateful.update(instruction.outputs)
    # Elementwise instructions are cheaper in the loop. Hoist them only if another hoisted instruction needs them.
    needed: set[Value] = set()
    prologue: list[Instruction] = []
    for instruction in reversed(candidates):
        if not is_elementwise(instruction) or not needed.isdisjoint(instruction.outputs):
            prologue.append(instruction)
            needed.update(values_in(instruction))
    return prologue[::-1]


def _modes(
    instructions: list[Instruction], fixed: set[Value], after: list[Value], ys: list[Value], sums: list[Value]
) -> tuple[dict[Instruction, str], dict[Value, set[str]]]:
    """The mode of each instruction ("loop", "sequence" or "sum"), and the modes of the users of each Value."""
    uses: dict[Value, set[str]] = {}
    for values, mode in ((after, "loop"), (ys, "sequence"), (sums, "sum")):
        for value in values:
            uses.setdefault(value, set()).add(mode)
    reduced: set[Value] = set()  # Values that depend on an instruction that is not elementwise
    for instruction in instructions:
        if not is_elementwise(instruction) or not reduced.isdisjoint(values_in(instruction)):
            reduced.update(instruction.outputs)
    kind: dict[Instruction, str] = {}
    for instruction in reversed(instructions):  # users first, because they decide how an instruction may run
        modes: set[str] = set().union(*(uses.get(value, set()) for value in instruction.outputs))
        kind[instruction], needs = _mode_of(instruction, modes, reduced, fixed)
        for x in values_in(instruction):
            # In sum(x * c) = sum(x) * c, the constant itself is an operand, not its sum.
            if kind[instruction] != "sum" or not instruction.op.proportional or x not in fixed:
                uses.setdefault(x, set()).add(needs)
    return kind, uses


def _mode_of(instruction: Instruction, modes: set[str], reduced: set[Value], fixed: set[Value]) -> tuple[str, str]:
    """The mode of an instruction, and the mode in which it needs its inputs."""
    op = instruction.op
    if modes == {"sum"} and not reduced.isdisjoint(instruction.outputs) and _passes_sums(instruction, fixed):
        return "sum", "sum"
    if is_elementwise(instruction):
        return "loop", "loop"
    if modes == {"sum"} and op.summed is not None:
        return "sum", "sequence"
    if "loop" not in modes and op.over_time is not None:
        return "sequence", "sequence"
    return "loop", "loop"


def _passes_sums(instruction: Instruction, fixed: set[Value]) -> bool:
    """True if an instruction may run once, on the sums over time of its inputs."""
    if instruction.op.additive:
        return all(map(is_float_value, instruction.inputs))
    if instruction.op.proportional is None:
        return False
    varying = [isinstance(x, Value) and x not in fixed for x in instruction.inputs]
    floats = all(map(is_float_value, (*compress(instruction.inputs, varying), instruction.outputs[0])))
    return floats and instruction.op.proportional(instruction.inputs, varying)
