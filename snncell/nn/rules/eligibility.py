"""Online learning rules for any neuron: eligibility traces that are derived from the traced step."""

from __future__ import annotations

import inspect
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from snncell import ops
from snncell.cell.cell import Cell
from snncell.errors import ArgumentError
from snncell.nn.rules.traced_step import COMBINING, AbstractStep, Entrance, TracedStep
from snncell.ops.control import vmap
from snncell.tape import structure
from snncell.tape.primitive import Composite
from snncell.tape.state import Tape, record_on
from snncell.tape.tensor import Tensor

# --- gradients that arrive from traces --------------------------------------------------------------------------------


@Composite
def _carry(x: Tensor, *_: Tensor, kinds: Any) -> Tensor:
    """`x`, with a custom gradient: traces of earlier steps are its derivatives by Parameters, dp = sum of dx dx/dp."""
    return x


@_carry.def_bprop
def _(*inputs: Any, kinds: Any) -> list[Any]:
    *inward, _out, dout = inputs
    traces = inward[1 + len(kinds) :]
    return [None, *(_by_trace(dout, e, kind) for e, kind in zip(traces, kinds, strict=True)), *(None for _ in traces)]


def _by_trace(dout: Tensor, trace: Tensor, kind: str) -> Tensor:
    """The gradient of a Parameter from the gradient `dout` of a state, (B, N), and the trace of that state."""
    if kind == "constant":
        return dout * trace  # (B, N); the tape sums it to the shape of the Parameter
    if trace.shape[1] == 1 != dout.shape[1]:  # one presynaptic trace for all neurons
        of_weight = ops.matmul(dout.T, trace.reshape((trace.shape[0], -1)))
    else:
        of_weight = (dout.expand_dims(2) * trace).sum(0)
    return of_weight.T if kind == "turned" else of_weight


@Composite
def _carry_directions(x: Tensor, trace: Tensor, *_: Tensor, count: int) -> Tensor:
    """`x`, with a custom gradient: `trace`, (K, *x.shape), is its derivative along K directions of the Parameters.

    The other inputs are the `count` Parameters, and then a direction for each of them, or none for all unit vectors.
    """
    return x


@_carry_directions.def_bprop
def _(*inputs: Any, count: int) -> list[Any]:
    _, trace, *rest, _out, dout = inputs
    parameters, directions = rest[:count], rest[count:]
    along = (trace * dout).reshape((trace.shape[0], -1)).sum(1)
    if directions:
        found = [ops.matmul(along, v.reshape((len(v), -1))) for v in directions]
    else:
        found = _split(along, parameters)
    return [
        None,
        None,
        *(g.reshape(p.shape) for g, p in zip(found, parameters, strict=True)),
        *(None for _ in directions),
    ]


def _split(flat: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    """Divide a vector into parts with the shapes of `like`."""
    ends = [sum(x.size for x in like[: i + 1]) for i in range(len(like))]
    return [flat[end - x.size : end].reshape(x.shape) for end, x in zip(ends, like, strict=True)]


@Composite
def _add_pull(x: Tensor, *_: Tensor) -> Tensor:
    """`x`, with a custom gradient: that of each Parameter is its pull, for any gradient of `x`. Inputs: x, the
    Parameters, their pulls.
    """
    return x


@_add_pull.def_bprop
def _(*inputs: Any) -> list[Any]:
    _, *rest, _out, dout = inputs
    return [dout, *rest[len(rest) // 2 :], *(None for _ in rest[len(rest) // 2 :])]


# --- rules ------------------------------------------------------------------------------------------------------------


class EligibilityTrace(NamedTuple):
    """Description of the trace of a state's derivative by one Parameter, all by their numbers."""

    entrance: int
    state: int
    parameter: int
    kind: str  # "constant" of the neurons; "weight" (N, I) or "turned", its transpose
    shared: bool  # whether it is the same for all neurons
    shape: tuple[int, ...]


class TracePlan(NamedTuple):
    """The traces of a rule for one Cell."""

    states: int  # number of states of the Cell
    kept: int  # number of Tensors that the rule keeps as traces
    traces: tuple[Any, ...]  # their descriptions


def float_places(states: Sequence[Tensor]) -> list[int]:
    """The numbers of the float states, which alone have derivatives."""
    return [i for i, state in enumerate(states) if state.dtype.is_float]


class WithinStep:
    """SLTT: only the derivatives within a step, without traces."""

    arrays = 1  # number of Tensors per description of a trace
    mixes = "yes"  # whether steps may mix neurons: "yes", "no", or "ignored" (allowed, without a derivative)
    unreached = True  # whether Parameters may enter by any operation

    def __init__(self, name: str, online: Any) -> None:
        self.name, self.online = name, online

    @property
    def cell(self) -> Any:
        """The Cell that learns."""
        return self.online.cell

    def plan(self, x: Tensor, states: Sequence[Tensor]) -> TracePlan:
        """Trace a step without values, refuse what the rule cannot learn, and list the traces."""
        traced = AbstractStep(lambda x, *states: self.look(x, states), [x, *states])
        step, *found = traced.result
        who = type(self.cell).__name__
        if next(iter(self.cell.get_parameters()), None) is None:
            raise ArgumentError(
                f"Online: {who} has no Parameters, so there is nothing to learn. Put the weights into the Cell, for "
                f"example an nn.Dense that its construct calls before the neuron."
            )
        if step.constant and not isinstance(self, ThreeFactors):
            raise ArgumentError(
                f"Online: all gradients of {who} would be zero, because every path from its Parameters and states to "
                f"its output goes through a comparison, a rounding or a cast to integers. Use a spike function of "
                f"snncell.surrogate, or a Cell with a method bprop(self, x, out, dout)."
            )
        if step.unused:
            names = ", ".join(repr(p.name) for p in step.unused)
            raise ArgumentError(
                f"Online: the step of {who} does not use the Parameter {names}, so no rule can learn it. Use it in "
                f"construct, or set its requires_grad to False."
            )
        if step.elsewhere and not self.unreached:
            p, name = next(iter(step.elsewhere.items()))
            raise ArgumentError(
                f"Online: the rule {self.name!r} needs a trace for each Parameter, but {p.name!r} of {who} enters by "
                f"{name}. It follows weights in ops.matmul(x, w) or nn.Dense, and constants that elementwise "
                f"operations use. Use 'SLTT', 'FPTT', 'forward gradient' or 'full RTRL', or set its requires_grad to "
                f"False."
            )
        self._refuse_mixing(step)
        traces = self.traces(traced, step, *found)
        return TracePlan(len(states), self.arrays * len(traces), traces)

    def _refuse_mixing(self, step: TracedStep) -> None:
        """Raise an ArgumentError if the rule cannot follow the states of single neurons."""
        for state, entry in step.mixing:
            op: Any = entry.op
            combines = isinstance(op, COMBINING)
            if self.mixes == "yes" or (self.mixes == "ignored" and combines):
                continue
            where = f" ({entry.line})" if entry.line else ""
            what = f"state {_name_of(self.cell, state)} of {type(self.cell).__name__}"
            if combines:
                raise ArgumentError(
                    f"Online: the rule {self.name!r} needs neurons that do not affect each other's states, but {what} "
                    f"reaches the states of other neurons by {op.name}{where}. 'e-prop' ignores this path; "
                    f"'full RTRL', for small nets, and 'forward gradient' keep it."
                )
            raise ArgumentError(
                f"Online: the rule {self.name!r} cannot follow single neurons through {op.name}{where}, which "
                f"rearranges {what}. Make each part of the state a state of its own, or use 'full RTRL', 'forward "
                f"gradient' or 'SLTT'."
            )

    def look(self, x: Tensor, states: Sequence[Tensor]) -> tuple[Any, ...]:
        """Trace a step for the plan."""
        return (TracedStep(self.cell, x, states),)

    def traces(self, traced: AbstractStep, step: TracedStep, *found: Any) -> tuple[Any, ...]:
        """The traces for this step."""
        return ()

    def start(self, plan: TracePlan, x: Tensor, states: Sequence[Tensor]) -> list[Tensor]:
        """The initial traces."""
        return []

    def step(self, plan: TracePlan, x: Tensor, states: Sequence[Tensor], traces: Sequence[Tensor]) -> tuple[Any, ...]:
        """Run a step: the output, a list of states, and a list of traces."""
        out, *after = self.cell(x, *states)
        return out, after, []


class Eligibility(WithinStep):
    """RTRL, OSTL, e-prop and OTTT: traces of the derivatives of each neuron's states with respect to its Parameters."""

    unreached = False

    def __init__(self, name: str, online: Any) -> None:
        super().__init__(name, online)
        self.mixes, self.spikes = "ignored" if name in ("e-prop", "OTTT") else "no", name != "OTTT"

    def look(self, x: Tensor, states: Sequence[Tensor]) -> tuple[Any, ...]:
        step = TracedStep(self.cell, x, states)
        return step, *step.diagonals(self.spikes)

    def traces(self, traced: AbstractStep, step: TracedStep, *found: Any) -> tuple[EligibilityTrace, ...]:
        along_states, along_entrances = found
        traces = []
        for number, entrance in enumerate(step.entrances):
            own = along_entrances[number]
            active = {k for k, t in enumerate(own) if t is not None}
            while more := {k for s in active for k, t in enumerate(along_states[s]) if t is not None} - active:
                active |= more
            used = [own[k] for k in active] + [along_states[s][k] for s in active for k in active]
            shared = entrance.pre is not None and all(traced.is_shared(t) for t in used if t is not None)
            if entrance.pre is not None and not shared and self.name == "OTTT":
                raise ArgumentError(
                    f"Online: 'OTTT' keeps one trace of each input for all neurons, so without their spikes the "
                    f"states of {type(self.cell).__name__} must decay by the same constant in all neurons and "
                    f"steps. Use 'e-prop', which keeps a trace for each synapse."
                )
            kind = "constant" if entrance.pre is None else "turned" if entrance.turned else "weight"
            place = _place_of(entrance, step)
            for k in sorted(active):
                shape = step.rows[k].shape
                if entrance.pre is not None:
                    shape = (shape[0], 1 if shared else shape[1], entrance.pre.shape[1])
                traces.append(EligibilityTrace(number, k, place, kind, shared, shape))
        return tuple(traces)

    def start(self, plan: TracePlan, x: Tensor, states: Sequence[Tensor]) -> list[Tensor]:
        places = float_places(states)
        return [ops.zeros(trace.shape, states[places[trace.state]].dtype) for trace in plan.traces]

    def step(self, plan: TracePlan, x: Tensor, states: Sequence[Tensor], traces: Sequence[Tensor]) -> tuple[Any, ...]:
        parameters = self.cell.trainable_params()
        floats = float_places(states)
        known = dict(zip([(t.entrance, t.state) for t in plan.traces], traces, strict=True))
        carried = list(states)
        for k, place in enumerate(floats):
            own = [t for t in plan.traces if t.state == k]
            values = [parameters[t.parameter] for t in own] + [known[t.entrance, k] for t in own]
            if own:
                carried[place] = _carry(states[place], *values, kinds=tuple(t.kind for t in own))
        with record_on(Tape()):  # so that the values for the derivatives are saved
            step = TracedStep(self.cell, x, carried)
            along_states, along_entrances = step.diagonals(self.spikes)
        if self.mixes == "ignored":
            step.drop_mixing()
        after = []
        for trace in plan.traces:
            entrance, k = step.entrances[trace.entrance], trace.state
            parts = [_spread(along_entrances[trace.entrance][k], trace, entrance)]
            for s in range(len(floats)):
                if along_states[s][k] is not None and (trace.entrance, s) in known:
                    parts.append(_per_synapse(along_states[s][k], trace) * known[trace.entrance, s])
            after.append(sum(parts[1:], parts[0]))
        return step.out, step.after, ops.stop_gradient(after)


def _per_synapse(derivative: Tensor, trace: EligibilityTrace) -> Tensor:
    """A derivative (B, N) in a shape that broadcasts to that of the trace."""
    if trace.kind == "constant":
        return derivative
    return (derivative[:, :1] if trace.shared else derivative).expand_dims(2)


def _spread(derivative: Tensor | None, trace: EligibilityTrace, entrance: Entrance) -> Tensor:
    """The derivative of a state by a Parameter within the step."""
    if derivative is None:
        return ops.zeros(trace.shape)
    if entrance.pre is None:
        return derivative
    return _per_synapse(derivative, trace) * entrance.pre.astype(derivative.dtype).expand_dims(1)


class FullRTRL(WithinStep):
    """Full RTRL: the derivatives of all states by all Parameters, for any step."""

    largest = 2**26  # limit of the number of elements of all traces

    def traces(self, traced: AbstractStep, step: TracedStep, *found: Any) -> tuple[Any, ...]:
        count = sum(p.size for p in step.parameters)
        elements = count * sum(row.size for row in step.rows)
        if elements > self.largest:
            raise ArgumentError(
                f"Online: 'full RTRL' keeps the derivative of each state by each Parameter, here {elements:,} numbers; "
                f"the limit is {self.largest:,}. Use it for small nets and batches, or use 'forward gradient'."
            )
        return tuple((count, *row.shape) for row in step.rows)

    def start(self, plan: TracePlan, x: Tensor, states: Sequence[Tensor]) -> list[Tensor]:
        return [ops.zeros(shape, states[i].dtype) for shape, i in zip(plan.traces, float_places(states), strict=True)]

    def step(self, plan: TracePlan, x: Tensor, states: Sequence[Tensor], traces: Sequence[Tensor]) -> tuple[Any, ...]:
        parameters, carried = self.cell.trainable_params(), list(states)
        for place, trace in zip(float_places(states), traces, strict=True):
            carried[place] = _carry_directions(states[place], trace, *parameters, count=len(parameters))
        with record_on(Tape()):
            step = TracedStep(self.cell, x, carried)
            along = step.linear(step.rows, [*step.sources, *step.parameter_sources()], step.entries)
            places = ops.arange(sum(p.size for p in parameters))

            def column(number: Tensor, *traces: Tensor) -> tuple[Tensor, ...]:
                units = _split(ops.equal(places, number), parameters)
                return tuple(along([*traces, *(u.astype(p.dtype) for u, p in zip(units, parameters, strict=True))]))

            after = list(vmap(column)(places, *traces))
        return step.out, step.after, ops.stop_gradient(after)


class ForwardGradient(WithinStep):
    """Forward gradients: the derivative of output and states along one random direction of the Parameters."""

    def traces(self, traced: AbstractStep, step: TracedStep, *found: Any) -> tuple[Any, ...]:
        return (*((1, *row.shape) for row in step.rows), *((1, *p.shape) for p in step.parameters))

    def start(self, plan: TracePlan, x: Tensor, states: Sequence[Tensor]) -> list[Tensor]:
        places, parameters = float_places(states), self.cell.trainable_params()
        zeros = [ops.zeros(shape, states[i].dtype) for shape, i in zip(plan.traces, places, strict=False)]
        shapes = plan.traces[len(places) :]
        return [*zeros, *(ops.normal(s, 0.0, 1.0).astype(p.dtype) for s, p in zip(shapes, parameters, strict=True))]

    def step(self, plan: TracePlan, x: Tensor, states: Sequence[Tensor], traces: Sequence[Tensor]) -> tuple[Any, ...]:
        parameters = self.cell.trainable_params()
        directions = traces[len(float_places(states)) :]
        with record_on(Tape()):
            step = TracedStep(self.cell, x, states)
            leaves, tree = structure.flatten(step.out)
            outputs = [leaf for leaf in leaves if leaf.dtype.is_float]
            along = step.linear([*outputs, *step.rows], [*step.sources, *step.parameter_sources()], step.entries)
            tangents = [t.expand_dims(0) for t in along([t[0] for t in traces])]
        of_outputs = dict(zip(map(id, outputs), tangents, strict=False))
        for place, leaf in enumerate(ops.stop_gradient(leaves)):
            if (tangent := of_outputs.get(id(leaves[place]))) is not None:
                leaves[place] = _carry_directions(leaf, tangent, *parameters, *directions, count=len(parameters))
        after = [*tangents[len(outputs) :], *directions]
        return structure.unflatten(tree, leaves), ops.stop_gradient(step.after), after


class RunningPull(WithinStep):
    """FPTT: the gradient within a step, and a pull towards a running average of the weights."""

    def traces(self, traced: AbstractStep, step: TracedStep, *found: Any) -> tuple[Any, ...]:
        return tuple(p.shape for p in step.parameters) * 2

    def start(self, plan: TracePlan, x: Tensor, states: Sequence[Tensor]) -> list[Tensor]:
        parameters = self.cell.trainable_params()
        return [*map(ops.zeros_like, parameters), *ops.stop_gradient([p.value() for p in parameters])]

    def step(self, plan: TracePlan, x: Tensor, states: Sequence[Tensor], traces: Sequence[Tensor]) -> tuple[Any, ...]:
        parameters, alpha = self.cell.trainable_params(), self.online.alpha
        count = len(parameters)
        now = ops.stop_gradient([p.value() for p in parameters])
        slopes = [s - alpha * (p - m) for s, p, m in zip(traces[:count], now, traces[count:], strict=True)]
        means = [0.5 * (m + p) - s / (2.0 * alpha) for s, p, m in zip(slopes, now, traces[count:], strict=True)]
        pulls = [alpha * (p - m) - s for s, p, m in zip(slopes, now, means, strict=True)]
        out, *after = self.cell(x, *states)
        leaves, tree = structure.flatten(out)
        places = float_places(leaves)
        floats = [leaves[place] for place in places]
        if len(floats) > 1:  # join them, because the pull must come once for any number of outputs in the loss
            joined = ops.concat([leaf.reshape((-1,)) for leaf in floats])
            pulled = _split(_add_pull(joined, *parameters, *pulls), floats)
        else:
            pulled = [_add_pull(leaf, *parameters, *pulls) for leaf in floats]
        for place, leaf in zip(places, pulled, strict=True):
            leaves[place] = leaf.astype(leaves[place].dtype)
        return structure.unflatten(tree, leaves), after, [*slopes, *means]


class ThreeFactors(Eligibility):
    """Three-factor STDP: a decaying sum of the weight changes of STDP, times the incoming gradient."""

    arrays = 3

    def __init__(self, name: str, online: Any) -> None:
        super().__init__(name, online)
        self.mixes, self.unreached = "yes", True

    def traces(self, traced: AbstractStep, step: TracedStep, *found: Any) -> tuple[Any, ...]:
        post = structure.flatten(step.out)[0][0]
        ends = [(e.parameter, step.reaches(e.source, post)) for e in step.entrances if e.pre is not None]
        reached = {id(p): [reaches for end, reaches in ends if end is p] for p in step.parameters}
        rest = [p for p in step.parameters if not reached[id(p)] or not all(reached[id(p)])]
        if rest:
            raise ArgumentError(
                f"Online: STDP changes weights of synapses to the neurons whose spikes are the output. So it cannot "
                f"learn {', '.join(repr(p.name) for p in rest)} of {type(self.cell).__name__}. Put each layer into its "
                f"own Online. For other Parameters, set requires_grad to False, or create a layer with has_bias=False."
            )
        weights = [(e, e.pre.shape) for e in step.entrances if e.pre is not None]
        return tuple((e.turned, _place_of(e, step), pre, post.shape) for e, pre in weights)

    def start(self, plan: TracePlan, x: Tensor, states: Sequence[Tensor]) -> list[Tensor]:
        traces = []
        for _, place, pre, post in plan.traces:
            dtype = self.cell.trainable_params()[place].dtype
            traces += [ops.zeros(shape, dtype) for shape in (pre, post, (*post, pre[1]))]
        return traces

    def step(self, plan: TracePlan, x: Tensor, states: Sequence[Tensor], traces: Sequence[Tensor]) -> tuple[Any, ...]:
        rule: Any = self.online.rule
        with record_on(Tape()):
            step = TracedStep(self.cell, x, states)
        leaves, tree = structure.flatten(ops.stop_gradient(step.out))
        parameters = [step.parameters[place] for _, place, _, _ in plan.traces]
        after, sums = [], []
        weights = [entrance for entrance in step.entrances if entrance.pre is not None]
        for number, (p, entrance) in enumerate(zip(parameters, weights, strict=True)):
            pre_trace, post_trace, total = traces[3 * number : 3 * number + 3]
            weight = ops.stop_gradient(p.value().T if entrance.turned else p.value())
            change, *moved = rule.pair(entrance.pre, leaves[0], weight, pre_trace, post_trace)
            sums.append(total * math.exp(-1.0 / self.online.tau_e) + change)
            after += [*moved, sums[-1]]
        kinds = tuple("turned" if turned else "weight" for turned, *_ in plan.traces)
        leaves[0] = _carry(leaves[0], *parameters, *sums, kinds=kinds)
        return structure.unflatten(tree, leaves), ops.stop_gradient(step.after), ops.stop_gradient(after)


def _place_of(entrance: Entrance, step: TracedStep) -> int:
    """The number of the Parameter among those of the step."""
    return next(i for i, p in enumerate(step.parameters) if p is entrance.parameter)


def _name_of(cell: Cell, state: int) -> str:
    """The name of a state in construct, or its number."""
    names = [p.name for p in inspect.signature(cell.construct).parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
    return repr(names[state + 1]) if state + 1 < len(names) else f"number {state}"


RULES: dict[str, type[WithinStep]] = {
    "RTRL": Eligibility,
    "full RTRL": FullRTRL,
    "e-prop": Eligibility,
    "OSTL": Eligibility,
    "OTTT": Eligibility,
    "SLTT": WithinStep,
    "FPTT": RunningPull,
    "forward gradient": ForwardGradient,
}
