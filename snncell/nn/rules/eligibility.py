"""Online learning rules for any neuron: eligibility traces that are derived from the traced step."""

from __future__ import annotations

import difflib
import inspect
import math
import weakref
from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple

from snncell import ops
from snncell.base.arguments.kinds import Own
from snncell.base.arguments.shown import came, show
from snncell.cell.cell import Cell
from snncell.cell.fields import field, with_fields
from snncell.cell.ranges import Range
from snncell.errors import ArgumentError, ShapeError
from snncell.nn.rules.stdp import STDP, STEPS
from snncell.nn.rules.traced_step import AbstractStep, Entrance, TracedStep
from snncell.nn.time.multistep import MultiStep, initial_states
from snncell.ops.control import vmap
from snncell.tape import structure
from snncell.tape.primitive import Composite
from snncell.tape.state import CHECKING, Tape, record_on
from snncell.tape.tensor import Tensor

__all__ = ["Online"]

# --- gradients that arrive from traces --------------------------------------------------------------------------------


@Composite
def _carry(x: Tensor, *_: Tensor, kinds: Any) -> Tensor:
    """`x` with derivatives by Parameters that are traces of earlier steps: dp = sum of dx dx/dp."""
    return x


@_carry.def_bprop
def _(*inputs: Any, kinds: Any) -> list[Any]:
    *inputs, _out, dout = inputs
    traces = inputs[1 + len(kinds) :]
    return [None, *(_by_trace(dout, e, kind) for e, kind in zip(traces, kinds, strict=True)), *(None for _ in traces)]


def _by_trace(dout: Tensor, trace: Tensor, kind: str) -> Tensor:
    """The gradient of a Parameter from that of a state (B, N), and the trace of the state's derivative."""
    if kind == "constant":
        return dout * trace  # (B, N); the tape sums it to the shape of the Parameter
    if trace.shape[1] == 1 != dout.shape[1]:  # one presynaptic trace for all neurons
        of_weight = ops.matmul(dout.T, trace.reshape((trace.shape[0], -1)))
    else:
        of_weight = (dout.expand_dims(2) * trace).sum(0)
    return of_weight.T if kind == "turned" else of_weight


@Composite
def _carry_directions(x: Tensor, trace: Tensor, *_: Tensor, count: int) -> Tensor:
    """`x` with a derivative along each of K directions of the `count` Parameters: trace, (K, *x.shape). The directions
    are those that follow the Parameters, or by default all unit vectors.
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
    return [None, None, *(g.reshape(p.shape) for g, p in zip(found, parameters, strict=True)), *(None for _ in directions)]


def _split(flat: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    """Divide a vector into parts with the shapes of `like`."""
    ends = [sum(x.size for x in like[: i + 1]) for i in range(len(like))]
    return [flat[end - x.size : end].reshape(x.shape) for end, x in zip(ends, like, strict=True)]


@Composite
def _add_pull(x: Tensor, *_: Tensor) -> Tensor:
    """`x`; the gradient of each Parameter is a pull that does not depend on that of `x`."""
    return x


@_add_pull.def_bprop
def _(*inputs: Any) -> list[Any]:
    _, *rest, _out, dout = inputs
    return [dout, *rest[len(rest) // 2 :], *(None for _ in rest[len(rest) // 2 :])]


# --- rules ------------------------------------------------------------------------------------------------------------


class Trace(NamedTuple):
    """The trace of a state's derivative by one Parameter; `shared` if it is the same for all neurons."""

    entrance: int
    state: int
    parameter: int
    kind: str  # "constant" of the neurons; "weight" (N, I) or "turned", its transpose
    shared: bool
    shape: tuple[int, ...]


class Plan(NamedTuple):
    """The number of states of a cell, the number of traces that a rule keeps for it, and their descriptions."""

    count: int
    kept: int
    traces: tuple[Any, ...]


class WithinStep:
    """SLTT: only the derivatives within a step, without traces."""

    arrays = 1  # for each description of a trace
    mixes = unreached = True  # whether steps may mix neurons, and whether Parameters may enter by any operation

    def __init__(self, name: str, online: Online) -> None:
        self.name, self.online = name, online

    def plan(self, cell: Cell, x: Tensor, states: Sequence[Tensor]) -> Plan:
        """Trace a step without values, refuse what the rule cannot learn, and list the traces."""
        traced = AbstractStep(lambda x, *states: self.look(cell, x, states), [x, *states])
        step, *found = traced.result
        who = type(cell).__name__
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
        if step.mixing and not self.mixes:
            state, entry = step.mixing[0]
            where = f" ({entry.line})" if entry.line else ""
            raise ArgumentError(
                f"Online: the rule {self.name!r} needs neurons that do not affect each other's states, but state "
                f"{_name_of(cell, state)} of {who} reaches the states of other neurons by {entry.op.name}{where}. "
                f"'e-prop' ignores this path; 'full RTRL', for small nets, and 'forward gradient' keep it."
            )
        traces = self.traces(traced, step, *found)
        return Plan(len(states), self.arrays * len(traces), traces)

    def look(self, cell: Cell, x: Tensor, states: Sequence[Tensor]) -> tuple[Any, ...]:
        """Trace a step for the plan."""
        return (TracedStep(cell, x, states),)

    def traces(self, traced: AbstractStep, step: TracedStep, *found: Any) -> tuple[Any, ...]:
        """The traces for this step."""
        return ()

    def start(self, plan: Plan, x: Tensor, states: Sequence[Tensor]) -> list[Tensor]:
        """The initial traces."""
        return []

    def step(self, plan: Plan, x: Tensor, states: Sequence[Tensor], traces: Sequence[Tensor]) -> tuple[Any, ...]:
        """Run a step: the output, a list of states, and a list of traces."""
        out, *after = self.online.cell(x, *states)
        return out, after, []


class Eligibility(WithinStep):
    """RTRL, OSTL, e-prop and OTTT: traces of the derivatives of each neuron's states by its Parameters."""

    unreached = False

    def __init__(self, name: str, online: Online) -> None:
        super().__init__(name, online)
        self.mixes, self.spikes = name in ("e-prop", "OTTT"), name != "OTTT"

    def look(self, cell: Cell, x: Tensor, states: Sequence[Tensor]) -> tuple[Any, ...]:
        step = TracedStep(cell, x, states)
        return step, *step.diagonals(self.spikes)

    def traces(self, traced: AbstractStep, step: TracedStep, *found: Any) -> tuple[Trace, ...]:
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
                    f"states of {type(self.online.cell).__name__} must decay by the same constant in all neurons and "
                    f"steps. Use 'e-prop', which keeps a trace for each synapse."
                )
            kind = "constant" if entrance.pre is None else "turned" if entrance.turned else "weight"
            place = _place_of(entrance, step)
            for k in sorted(active):
                shape = step.rows[k].shape
                if entrance.pre is not None:
                    shape = (shape[0], 1 if shared else shape[1], entrance.pre.shape[1])
                traces.append(Trace(number, k, place, kind, shared, shape))
        return tuple(traces)

    def start(self, plan: Plan, x: Tensor, states: Sequence[Tensor]) -> list[Tensor]:
        floats = [state for state in states if state.dtype.is_float]
        return [ops.zeros(trace.shape, floats[trace.state].dtype) for trace in plan.traces]

    def step(self, plan: Plan, x: Tensor, states: Sequence[Tensor], traces: Sequence[Tensor]) -> tuple[Any, ...]:
        parameters = self.online.cell.trainable_params()
        floats = [i for i, state in enumerate(states) if state.dtype.is_float]
        known = dict(zip([(t.entrance, t.state) for t in plan.traces], traces, strict=True))
        carried = list(states)
        for k, place in enumerate(floats):
            own = [t for t in plan.traces if t.state == k]
            values = [parameters[t.parameter] for t in own] + [known[t.entrance, k] for t in own]
            if own:
                carried[place] = _carry(states[place], *values, kinds=tuple(t.kind for t in own))
        with record_on(Tape()):  # so that the values for the derivatives are saved
            step = TracedStep(self.online.cell, x, carried)
            along_states, along_entrances = step.diagonals(self.spikes)
        if self.mixes:
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


def _per_synapse(derivative: Tensor, trace: Trace) -> Tensor:
    """A derivative (B, N) in the shape of a trace, up to broadcasting."""
    if trace.kind == "constant":
        return derivative
    return (derivative[:, :1] if trace.shared else derivative).expand_dims(2)


def _spread(derivative: Tensor | None, trace: Trace, entrance: Entrance) -> Tensor:
    """The derivative of a state by a Parameter within the step."""
    if derivative is None:
        return ops.zeros(trace.shape)
    if entrance.pre is None:
        return derivative
    return _per_synapse(derivative, trace) * entrance.pre.astype(derivative.dtype).expand_dims(1)


class Directions(WithinStep):
    """Forward gradients, and full RTRL: derivatives along directions in the space of all Parameters."""

    largest = 2**26  # elements of the traces of full RTRL

    @property
    def full(self) -> bool:
        """Whether the directions are all unit vectors, instead of a random one."""
        return self.name == "full RTRL"

    def traces(self, traced: AbstractStep, step: TracedStep, *found: Any) -> tuple[Any, ...]:
        count = sum(p.size for p in step.parameters) if self.full else 1
        elements = count * sum(row.size for row in step.rows)
        if self.full and elements > self.largest:
            raise ArgumentError(
                f"Online: 'full RTRL' keeps the derivative of each state by each Parameter, here {elements:,} numbers; "
                f"the limit is {self.largest:,}. Use it for small nets and batches, or use 'forward gradient'."
            )
        directions = [] if self.full else [(1, *p.shape) for p in step.parameters]
        return (*((count, *row.shape) for row in step.rows), *directions)

    def start(self, plan: Plan, x: Tensor, states: Sequence[Tensor]) -> list[Tensor]:
        floats = [state for state in states if state.dtype.is_float]
        zeros = [ops.zeros(shape, s.dtype) for shape, s in zip(plan.traces, floats, strict=False)]
        parameters = self.online.cell.trainable_params()
        drawn = [ops.normal(shape, 0.0, 1.0) for shape in plan.traces[len(floats) :]]
        return [*zeros, *(v.astype(p.dtype) for v, p in zip(drawn, parameters, strict=False))]

    def step(self, plan: Plan, x: Tensor, states: Sequence[Tensor], traces: Sequence[Tensor]) -> tuple[Any, ...]:
        cell, parameters = self.online.cell, self.online.cell.trainable_params()
        floats = [i for i, state in enumerate(states) if state.dtype.is_float]
        traces, directions = traces[: len(floats)], traces[len(floats) :]
        count, carried = len(parameters), list(states)
        if self.full:
            for place, trace in zip(floats, traces, strict=True):
                carried[place] = _carry_directions(states[place], trace, *parameters, count=count)
        with record_on(Tape()):
            step = TracedStep(cell, x, carried)
            leaves, tree = structure.flatten(step.out)
            outputs = [] if self.full else [leaf for leaf in leaves if leaf.dtype.is_float]
            along = step.linear([*outputs, *step.rows], [*step.sources, *step.parameter_sources()], step.entries)
            if not self.full:
                tangents = along([t[0] for t in (*traces, *directions)])
                outs = iter(tangents[: len(outputs)])
                rest = *parameters, *directions
                out = [
                    _carry_directions(ops.stop_gradient(leaf), next(outs).expand_dims(0), *rest, count=count)
                    if leaf.dtype.is_float
                    else leaf
                    for leaf in leaves
                ]
                after = [t.expand_dims(0) for t in tangents[len(outputs) :]]
                return structure.unflatten(tree, out), ops.stop_gradient(step.after), [*after, *directions]
            places = ops.arange(sum(p.size for p in parameters))

            def column(number: Tensor, *traces: Tensor) -> tuple[Tensor, ...]:
                unit = ops.equal(places, number)
                units = [u.astype(p.dtype) for u, p in zip(_split(unit, parameters), parameters, strict=True)]
                return tuple(along([*traces, *units]))

            after = list(vmap(column)(places, *traces))
        return step.out, step.after, ops.stop_gradient(after)


class RunningPull(WithinStep):
    """FPTT: the gradient within a step, and a pull towards a running average of the weights."""

    def traces(self, traced: AbstractStep, step: TracedStep, *found: Any) -> tuple[Any, ...]:
        return tuple(p.shape for p in step.parameters) * 2

    def start(self, plan: Plan, x: Tensor, states: Sequence[Tensor]) -> list[Tensor]:
        parameters = self.online.cell.trainable_params()
        return [*map(ops.zeros_like, parameters), *ops.stop_gradient([p.value() for p in parameters])]

    def step(self, plan: Plan, x: Tensor, states: Sequence[Tensor], traces: Sequence[Tensor]) -> tuple[Any, ...]:
        parameters, alpha = self.online.cell.trainable_params(), self.online.alpha
        count = len(parameters)
        now = ops.stop_gradient([p.value() for p in parameters])
        slopes = [s - alpha * (p - m) for s, p, m in zip(traces[:count], now, traces[count:], strict=True)]
        means = [0.5 * (m + p) - s / (2.0 * alpha) for s, p, m in zip(slopes, now, traces[count:], strict=True)]
        pulls = [alpha * (p - m) - s for s, p, m in zip(slopes, now, means, strict=True)]
        out, *after = self.online.cell(x, *states)
        leaves, tree = structure.flatten(out)
        leaves[0] = _add_pull(leaves[0], *parameters, *pulls)
        return structure.unflatten(tree, leaves), after, [*slopes, *means]


class ThreeFactors(Eligibility):
    """Three-factor STDP: a decaying sum of the weight changes of STDP, times the incoming gradient."""

    arrays = 3

    def __init__(self, name: str, online: Online) -> None:
        super().__init__("e-prop", online)
        self.name = name

    def traces(self, traced: AbstractStep, step: TracedStep, *found: Any) -> tuple[Any, ...]:
        post = structure.flatten(step.out)[0][0]
        rest = [p for p in step.parameters if all(p is not e.parameter or e.pre is None for e in step.entrances)]
        if rest:
            raise ArgumentError(
                f"Online: STDP changes weights of synapses, and cannot learn {', '.join(repr(p.name) for p in rest)} "
                f"of {type(self.online.cell).__name__}. Set requires_grad to False, or create a layer with "
                f"has_bias=False."
            )
        weights = [e for e in step.entrances if e.pre is not None]
        return tuple((e.turned, _place_of(e, step), e.pre.shape, post.shape) for e in weights)

    def start(self, plan: Plan, x: Tensor, states: Sequence[Tensor]) -> list[Tensor]:
        traces = []
        for _, place, pre, post in plan.traces:
            dtype = self.online.cell.trainable_params()[place].dtype
            traces += [ops.zeros(shape, dtype) for shape in (pre, post, (*post, pre[1]))]
        return traces

    def step(self, plan: Plan, x: Tensor, states: Sequence[Tensor], traces: Sequence[Tensor]) -> tuple[Any, ...]:
        rule: Any = self.online.rule
        with record_on(Tape()):
            step = TracedStep(self.online.cell, x, states)
        leaves, tree = structure.flatten(ops.stop_gradient(step.out))
        parameters = [step.parameters[place] for _, place, _, _ in plan.traces]
        after, sums = [], []
        for number, (p, entrance) in enumerate(zip(parameters, step.entrances, strict=True)):
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
    "full RTRL": Directions,
    "e-prop": Eligibility,
    "OSTL": Eligibility,
    "OTTT": Eligibility,
    "SLTT": WithinStep,
    "FPTT": RunningPull,
    "forward gradient": Directions,
}


# Plans by the Cell and the shapes of its input. Outside of the Cell, because a trace would notice a changed attribute.
_PLANS: weakref.WeakKeyDictionary[Cell, dict[Any, Plan]] = weakref.WeakKeyDictionary()


@with_fields
class Online(Cell):
    """Online learning: the gradient of each time step from eligibility traces, for any neuron.

    The neuron h[t] = f(h[t - 1], x[t], theta), out[t] = g(h[t - 1], x[t], theta) is your own Cell of one time step. A
    trace e[t] is the derivative of its states h[t] by the Parameters theta. With the incoming gradient dout[t], which
    is the learning signal, the gradient is the sum over t of

        dtheta[t] = dout[t] (dg/dtheta + dg/dh e[t - 1]),    e[t] = df/dtheta + df/dh e[t - 1]

    `Online` derives df/dh and df/dtheta from the traced step. No gradient flows to earlier steps, so you can update the
    weights after each step, and the memory does not depend on the number of steps. The gradient of x is that of the
    same step. In a network, put each layer of neurons into its own `Online`.

    | rule | derivatives that it keeps | sum over t, compared with BPTT |
    | --- | --- | --- |
    | "RTRL", "OSTL" | all, if neurons do not affect each other | equal for one layer |
    | "e-prop" | as "RTRL", without paths from neuron to neuron | equal for one layer without such paths |
    | "OTTT" | decay of the states, without spikes; one trace for each input | equal for one layer with a detached \
    subtracting reset |
    | "SLTT" | those within the step, no traces | an approximation |
    | "FPTT" | as "SLTT", and a pull to a running average of the weights | an approximation |
    | "full RTRL" | all, for small nets; any Cell | equal |
    | "forward gradient" | all, along one random direction; any Cell | equal on average |
    | `nn.STDP(...)` | none: `dout` times a decaying sum of STDP's changes | not a gradient |

    Traces of weights take (B, N, I), or (B, 1, I) if all neurons have the same. Weights must enter by `Dense` or
    `ops.matmul`, and other Parameters by elementwise operations; the last two gradient rules and "SLTT" and "FPTT" take
    any. The reset counts as a path in time unless the neuron detaches it.

    - FPTT adds alpha (theta - mean) - slope to the gradient of each step, where slope and mean are running estimates of
      the gradient and of the weights. It needs a loss and an update in each step, and has no effect in `MultiStep`.
    - "forward gradient" and STDP pass no gradient to x, so put a whole net into one `Online`. `init_state` draws the
      direction.
    - Three factors: for a reward r[t], use the loss -(r[t] out[t]).sum(). Its gradient is -r[t], so that a descent
      strengthens synapses by reward times eligibility. Bounds "hard" are left to your update.

    In `MultiStep` you get the sum over a sequence. The loop then stores the traces of all steps for the backward pass,
    so run long sequences step by step, as in the example, or pass checkpoint_every.

    Inputs: x: (B, ...). states: those of `cell`, followed by the traces; initially from `init_state(x)`.
    Returns: (output, *states).
    Raises: ArgumentError for a Cell that the rule cannot learn, with the Parameter or state and the operation.
    Source: Williams and Zipser 1989 (RTRL); Bellec et al. 2020 (e-prop); Bohnstingl et al. 2022 (OSTL); Xiao et al. 2022
    (OTTT); Meng et al. 2023 (SLTT); Kag and Saligrama 2021, Yin et al. 2023 (FPTT); Baydin et al. 2022 (forward
    gradients); Fremaux and Gerstner 2016 (three factors).
    Example:
        >>> class Layer(nn.Cell):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.dense, self.neuron = nn.Dense(3, 2), nn.LIFNode()
        ...     def construct(self, x, v):
        ...         return self.neuron(self.dense(x), v)
        ...     def init_state(self, x):
        ...         return ops.zeros((x.shape[0], 2))
        >>> online = nn.Online(Layer(), "e-prop")
        >>> states = online.init_state(ops.zeros((1, 3)))
        >>> for x in ops.ones((5, 1, 3)):  # a gradient at each step, and no memory of the steps before
        ...     loss = lambda x: ((out := online(x, *states))[0].sum(), *out[1:])
        ...     gradients, states = ops.grad(loss, None, online.trainable_params(), has_aux=True)(x)
        >>> [g.shape for g in gradients]
        [(2, 3), (2,)]
    """

    cell: Annotated[
        Any, Own(), field(meaning="a Cell of one time step, with weights: construct(x, *states) -> (output, *states)")
    ]
    rule: Annotated[Any, Own()] = field("e-prop", None, "the name of a rule, or an `nn.STDP`")
    alpha: float = field(0.5, Range(0.0), "strength of the pull of FPTT", quiet=True)
    tau_e: float = field(25.0, STEPS, "time constant of the eligibility of STDP, in steps", quiet=True)

    def _complete(self, given: dict[str, Any]) -> None:
        self._check_cell()
        self._find_rule()

    def _check_cell(self) -> None:
        cell = self.cell
        if not isinstance(cell, Cell) or isinstance(cell, (MultiStep, Online)) or getattr(cell, "whole_sequences", False):
            raise ArgumentError(
                f"Online: cell must be a Cell of one time step, construct(x, *states) -> (output, *states), not "
                f"{came(cell)}. To run over time, put the Online into a MultiStep: nn.MultiStep(nn.Online(cell))."
            )

    def _find_rule(self) -> WithinStep:
        if isinstance(self.rule, STDP):
            return ThreeFactors("STDP", self)
        if isinstance(self.rule, str) and self.rule in RULES:
            return RULES[self.rule](self.rule, self)
        close = difflib.get_close_matches(self.rule, RULES, 1, 0.5) if isinstance(self.rule, str) else []
        hint = f" Did you mean {close[0]!r}?" if close else ""
        raise ArgumentError(
            f"Online: rule must be one of {', '.join(map(repr, RULES))}, or an nn.STDP, not {show(self.rule)}.{hint}"
        )

    def _plan(self, x: Tensor) -> Plan:
        """The plan for inputs like `x`. It is made again if a Cell has changed."""
        cells = tuple(cell.__dict__["version"] for _, cell in self.cells_and_names())
        learned = tuple(p.requires_grad for p in self.get_parameters())
        key = x.shape, x.dtype, self.rule, cells, learned, CHECKING.smooth, CHECKING.wide
        plans = _PLANS.setdefault(self, {})
        if key not in plans:
            begun = AbstractStep(lambda x: initial_states(self.cell, x), [x]).result
            plans[key] = self._find_rule().plan(self.cell, x, begun)
        return plans[key]

    def construct(self, x: Tensor, *states: Tensor) -> Any:
        plan = self._plan(x)
        own, traces = states[: plan.count], states[plan.count :]
        if len(traces) != plan.kept:
            raise ArgumentError(
                f"Online: {type(self.cell).__name__} has {plan.count} state(s), and {show(self.rule)} keeps {plan.kept} "
                f"trace(s) for it, so pass {plan.count + plan.kept} after x, not {len(states)}. They come from "
                f"init_state(x), and then from the step before."
            )
        own, traces = ops.stop_gradient((own, traces))
        out, after, traces = self._find_rule().step(plan, x, own, traces)
        return (out, *after, *traces)

    def init_state(self, x: Tensor) -> tuple[Tensor, ...]:
        """Start with the initial states of `cell`, and traces of 0."""
        states = initial_states(self.cell, x)
        plan = self._plan(x)
        return (*states, *self._find_rule().start(plan, x, states))
