"""Event-driven neurons: generate the functions of the solver kernels from a neuron's traced equations.

`kernels/eventprop/solver.py` calls these functions. A neuron's methods are traced for a layer of neurons, so their
instructions must be elementwise. The step of the solver is traced too: the closed form of `event_flow.py`, or a
Runge-Kutta step of fourth order. All gradients are also traced, so that users need not write derivatives.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from snncell import dtype as dtypes
from snncell.compiler.backends import event_flow
from snncell.compiler.backends.event_flow import Form, forms_of
from snncell.compiler.backends.expressions import Statements, as_scalar, file_head
from snncell.compiler.ir.operations import is_elementwise
from snncell.compiler.ir.program import Program, interpret
from snncell.compiler.passes.simplify import canonical_program
from snncell.errors import ArgumentError
from snncell.kernels.loops import LANES, indent
from snncell.kernels.scalar import LOOP
from snncell.tape.state import TRACING, Value, settings
from snncell.tape.tensor import Tensor, wrap
from snncell.tape.tracing import Trace
from snncell.tape.transforms import vjp

KIND = np.dtype(np.float64)
EXACT = "flow", "flow_back", "course", "turn", "probe"  # functions of closed forms; their numbers are literals
# Solvers call these functions for any equations. Only closed forms have a code for them; for others, they do nothing.
INEXACT = """\
@inline
def course(y, z, p, out):
    pass


@inline
def probe_one(y, length, p, out, lane):
    pass


@inline
def turn_one(y, p, out, lane):
    pass
"""


class _EquationTrace(Trace):
    """The trace of a neuron's method, which remembers the Tensors that it reads, because they may have gradients."""

    def __init__(self, who: str) -> None:
        around: Any = TRACING.trace
        super().__init__(() if around is None else (around, *around.parents), who=who)
        self.read: dict[int, Tensor] = {}

    def lift(self, x: Any) -> Any:
        if type(x) is Tensor and not isinstance(x._data, Value):
            self.read[id(x._data)] = x
        return super().lift(x)

    def tensors(self) -> dict[Value, Tensor]:
        captured = {value: x for x, value in self.captures.values()}
        parameters: dict[Value, Tensor] = {value: x for x, value in self.parameters.items()}
        return captured | parameters | {value: self.read[place] for place, (_, value) in self.constants.items()}


class _Literals(Statements):
    """Statements with numbers as literals, only for code of snncell: a user's new number would need a new kernel."""

    def _scalar(self, number: Any, instruction: Any, dtype: Any) -> str:
        return repr(as_scalar(number, dtype))


class _Method:
    """A traced method of a neuron, `who` in errors: a function of `count` Tensors and of the constants at `places`."""

    def __init__(self, program: Program, count: int, places: list[int], who: str) -> None:
        self.program, self.count, self.places, self.who = program, count, places, who

    def __call__(self, *given: Tensor) -> list[Tensor]:
        own = [*given[: self.count], *(given[self.count + place] for place in self.places)]
        results = interpret(self.program, own)
        present: Any = TRACING.trace
        if present is not None:  # the instructions keep the user's lines
            for new, old in zip(reversed(present.instructions), reversed(self.program.instructions), strict=False):
                new.line = old.line
        return results

    def forms(self, constants: Sequence[Tensor], ones: Tensor) -> list[Form]:
        return forms_of(self.program, self.count, [constants[place] for place in self.places], ones, self.who)


class EquationsOfNeuron:
    """The traced equations of a neuron, for a layer of `neurons`; `source` has the generated functions. `constants` are
    the Tensors and Parameters that the equations read. In the kernels, the array p of a neuron has its constants, then
    the Python `numbers` in the equations. `states` is the number of states in the kernels: the states of the neuron
    and, if it has a refractory period, the remaining time of this period. If `exact`, the steps are in closed form, so
    the equations must be linear. With `watched`, the read-out must be linear, too.
    """

    def __init__(self, neuron: Any, neurons: int, who: str, exact: bool = False, watched: bool = False) -> None:
        self.neuron, self.neurons, self.who, self.exact = neuron, neurons, who, exact
        self._dynamics_held: _Method | None = None  # the dynamics during the refractory period
        self.constants: list[Tensor] = []
        own: int = neuron.states
        period = neuron.refractory_period
        refractory = isinstance(period, Tensor) or period != 0.0
        states = self.states = own + refractory
        methods = self._equations(own)
        functions = self._held(methods, own) if refractory else methods
        dynamics, condition, receive, reset, readout = functions
        if exact:
            self._coefficients(methods, watched)

        def flow(*given: Tensor) -> list[Tensor]:
            y, left, length, constants = given[:own], given[own:states], given[states], given[states + 1 :]
            if exact:
                after = event_flow.flow(self._linear(constants, left)[0], y, length, methods[0].who)
            else:
                after = _runge_kutta(lambda *y: dynamics(*y, *left, *constants), y, length)
            return [*after, *((x - length).where(x > 0.0, 0.0) for x in left)]

        y, p, slopes = (_elements(*each) for each in (("y", states), ("p", len(self.constants)), ("gradient", states)))
        before, more = states + len(p), states + 1 + len(p)
        self._scalars: list[tuple[Any, Any]] = []  # Python numbers, which follow the constants in p
        self._instructions: list[Any] = []
        texts = [
            self._text("flow", "length z", flow, [*y, ("length", 0), *p], both=True),
            self._text("receive", "weight z", receive, [*y, ("weight", 0), *p]),
            self._text("jump", "z", reset, [*y, *p]),
            self._text("condition", "out", condition, [*y, *p], both=True),
            self._text("readout", "out", readout, [*y, *p], both=True),
            self._text(
                "flow_back", "length gradient out", _back(flow, more), [*y, ("length", 0), *p, *slopes], both=True
            ),
            self._text("receive_back", "weight gradient out", _back(receive, more), [*y, ("weight", 0), *p, *slopes]),
            self._text("jump_back", "gradient out", _back(reset, before, states), [*y, *p, *slopes]),
            self._text("condition_back", "out", _back(condition, before, states), [*y, *p]),
            self._text("readout_back", "out", _back(readout, before, states), [*y, *p]),
            f"REFRACTORY = {int(refractory)}\nEXACT = {int(exact)}\n",
            *(self._extrema(methods, flow, p) if exact else [INEXACT]),
        ]
        head = file_head(self._instructions, more="from snncell.kernels.intrinsics.builtins import call_once, inline\n")
        self.source = "\n\n".join([head, *texts])

    def __repr__(self) -> str:
        return f"<equations of {type(self.neuron).__name__}>"

    @property
    def numbers(self) -> list[float]:
        """The Python numbers in the equations."""
        return [as_scalar(number, dtype) for number, dtype in self._scalars]

    # --- tracing ------------------------------------------------------------------------------------------------------

    def _equations(self, states: int) -> tuple[Any, ...]:
        """Trace dynamics, spike condition, input spike, reset and read-out, functions of the states and constants."""
        neuron = self.neuron
        return (
            self._traced(neuron.dynamics, states, states),
            self._traced(neuron.spike_condition, states, 1),
            _weight_last(self._traced(neuron.input_spike, states + 1, states), states),
            self._traced(neuron.reset, states, states),
            self._traced(neuron.readout, states, 1),
        )

    def _held(
        self, functions: tuple[Callable[..., list[Tensor]], ...], states: int
    ) -> tuple[Callable[..., list[Tensor]], ...]:
        """The same functions with one more state, the remaining time of the refractory period."""
        neuron = self.neuron

        def refractory_period(*_: Tensor) -> Any:
            return neuron.refractory_period

        dynamics, condition, receive, reset, readout = functions
        held_dynamics = self._dynamics_held = self._traced(neuron.refractory_dynamics, states, states)
        held_receive = _weight_last(self._traced(neuron.refractory_input_spike, states + 1, states), states)
        period = self._traced(refractory_period, states, 1)

        def choose(held: Callable[..., list[Tensor]], free: Callable[..., list[Tensor]]) -> Callable[..., list[Tensor]]:
            def chosen(*given: Tensor) -> list[Tensor]:
                y, left, rest = given[:states], given[states], given[states + 1 :]
                pairs = zip(held(*y, *rest), free(*y, *rest), strict=True)
                return [one.where(left > 0.0, other) for one, other in pairs]

            return chosen

        def receive_and_keep(*given: Tensor) -> list[Tensor]:
            return [*choose(held_receive, receive)(*given), given[states]]

        def reset_and_hold(*given: Tensor) -> list[Tensor]:
            y = (*given[:states], *given[states + 1 :])
            # A period of 0 has a gradient too, because the period is at least 1e-300.
            return [*reset(*y), period(*y)[0] + 1e-300]

        return (
            choose(held_dynamics, dynamics),
            choose(lambda *given: [-_ones(given[0])], condition),
            receive_and_keep,
            reset_and_hold,
            lambda *given: readout(*given[:states], *given[states + 1 :]),
        )

    def _traced(self, method: Callable[..., Any], count: int, results: int) -> _Method:
        trace = _EquationTrace(self.who)
        name = f"{self.who}: {method.__name__} of {type(self.neuron).__name__}"
        with settings(trace=trace, tape=None):
            inputs = [trace.new_input((self.neurons,), KIND) for _ in range(count)]
            try:
                inspect.signature(method).bind(*inputs)
            except TypeError:
                raise ArgumentError(
                    f"{name} must take {count} argument(s), because its attribute states is {self.neuron.states}. Set "
                    f"states to the number of states."
                ) from None
            out = method(*inputs)
            outs = list(out) if isinstance(out, (tuple, list)) else [out]
            if len(outs) != results:
                raise ArgumentError(f"{name} must return {results} value(s), not {len(outs)}.")
            kinds = {"bool" if isinstance(x, Tensor) and x.dtype == dtypes.bool_ else type(x).__name__ for x in outs}
            if wrong := kinds & {"bool", "NoneType"}:
                raise ArgumentError(
                    f"{name} must return numbers, not {wrong.pop()}. For example, a spike condition is v - 1.0, which "
                    f"crosses 0 from below, and not v > 1.0."
                )
            values = [trace.lift(x if isinstance(x, Tensor) else wrap(trace.inputs[0]) * 0.0 + x) for x in outs]
        program = canonical_program(trace, values)
        own = [*program.inputs, *program.parameters.values(), *(value for _, value in program.constants)]
        tensors = trace.tensors()
        places = [self._place(tensors[value]) for value in own[count:]]
        return _Method(program._replace(inputs=own, parameters={}, constants=[]), count, places, name)

    def _place(self, x: Tensor) -> int:
        for place, known in enumerate(self.constants):
            if known is x or (known._data is x._data and known._entry is x._entry and known._index == x._index):
                return place
        self.constants.append(x)
        return len(self.constants) - 1

    # --- closed form --------------------------------------------------------------------------------------------------

    def _coefficients(self, methods: tuple[Any, ...], watched: bool) -> None:
        """Find the linear forms of the equations. Their coefficients become constants, and so get their gradients."""
        dynamics, condition, _, _, readout = methods
        ones, own = Tensor(1.0, dtypes.float64), [x.astype(dtypes.float64) for x in self.constants]

        def placed(method: _Method | None) -> list[Form]:
            forms = [] if method is None else method.forms(own, ones)
            return [{place: self._place(x) for place, x in form.items()} for form in forms]

        self._forms = [placed(x) for x in (dynamics, self._dynamics_held, condition, readout if watched else None)]

    def _linear(self, constants: Sequence[Tensor], left: Sequence[Tensor]) -> tuple[list[Form], Form, Form]:
        """The slopes of the states, the condition and the read-out as linear forms."""
        forms: list[list[Form]] = [
            [{place: constants[own] for place, own in form.items()} for form in each] for each in self._forms
        ]
        slopes, held, (of_condition,), of_readout = forms
        if left:
            ones = _ones(left[0])
            slopes = [event_flow.select(left[0] > 0.0, *pair, ones) for pair in zip(held, slopes, strict=True)]
            of_condition = event_flow.select(left[0] > 0.0, {}, of_condition, ones)
        return slopes, of_condition, of_readout[0] if of_readout else {}

    def _extrema(self, methods: tuple[Any, ...], flow: Callable[..., list[Tensor]], p: Any) -> list[str]:
        """The functions that find crossings and extrema between events; see `solver.py`."""
        own, states, (_, condition, _, _, readout) = self.neuron.states, self.states, methods

        def course(*given: Tensor) -> list[Any]:
            y, left, constants = given[:own], given[own:states], given[states:]
            slopes, of_condition, of_readout = self._linear(constants, left)
            slope, curve = event_flow.course(slopes, of_condition, y)
            return [slope, event_flow.course(slopes, of_readout, y)[0], curve]

        def turn(*given: Tensor) -> list[Any]:
            y, left, constants = given[:own], given[own:states], given[states:]
            slopes, of_condition, of_readout = self._linear(constants, left)
            pairs = (of_condition, condition.who), (of_readout, readout.who)
            return [event_flow.turn(slopes, form, y, who) for form, who in pairs]

        def probe(*given: Tensor) -> list[Any]:
            constants = given[states + 1 :]
            after = flow(*given)[:own]
            slopes, of_condition, _ = self._linear(constants, given[own:states])
            return [event_flow.value_of(of_condition, after), *event_flow.course(slopes, of_condition, after)]

        y, left = _elements("y", states), [("y", place) for place in range(own, states)]
        return [
            self._text("course", "z out", course, [*_elements("z", own), *left, *p], both=True),
            self._text("turn", "out", turn, [*y, *p]),
            self._text("probe", "length out", probe, [*y, ("length", 0), *p]),
        ]

    # --- source -------------------------------------------------------------------------------------------------------

    def _text(
        self, name: str, arrays: str, function: Callable[..., Any], elements: list[tuple[str, int]], both: bool = False
    ) -> str:
        """The source of a generated function for one lane (a neuron in a vector), and with `both` of another for all
        lanes. It reads `elements`, pairs of an array and a row, and writes the last of its `arrays`.
        """
        trace = Trace(who=self.who)
        with settings(trace=trace, tape=None):
            outs = function(*(trace.new_input((self.neurons,), KIND) for _ in elements))
            values = [None if x is None else trace.lift(x) for x in outs]
        program = canonical_program(trace, [value for value in values if value is not None])
        statements, known = Statements(self._scalars), len(self._scalars)
        if self.exact and name in EXACT:
            statements = _Literals(self._scalars, LOOP | {"exp": "mathematics.vector_exp_f8({0})"})
        for value, (array, place) in zip(program.inputs, elements, strict=True):
            statements.load(value, f"{array}[{place * LANES} + i]")
        # The only constants are zeros of gradients, because the constants of the neuron are inputs here.
        statements.names |= {value: repr(float(np.ravel(array)[0])) for array, value in program.constants}
        for instruction in program.instructions:
            if not is_elementwise(instruction):
                raise ArgumentError(
                    f"{self.who}: {type(self.neuron).__name__} uses {instruction.op.name}, but its equations must be "
                    f"elementwise, because each neuron is simulated alone.\n  at {instruction.line}"
                )
            statements.compute(instruction)
        self._instructions += program.instructions
        results, target, first = iter(program.outputs), arrays.split()[-1], len(self.constants)
        names = ["0.0" if value is None else statements.names[next(results)] for value in values]
        body = [f"s{n} = p[{(first + n) * LANES} + i]" for n in range(known, len(self._scalars))] + statements.lines
        body += [f"{target}[{n * LANES} + i] = {name}" for n, name in enumerate(names)]
        given = ", ".join(["y", *arrays.replace(target, f"p {target}").split()]).replace("gradient, p,", "p, gradient,")
        lines = ["@inline", f"def {name}_lanes({given}, begin, end):", *indent(["for i in range(begin, end):"])]
        lines += [*indent(body, 2), "", "", "@call_once", f"def {name}_one({given}, lane):"]
        lines += indent([f"{name}_lanes({given}, lane, lane + 1)"])
        if both:
            lines += ["", "", "@call_once", f"def {name}({given}):", *indent([f"{name}_lanes({given}, 0, {LANES})"])]
        return "\n".join(lines) + "\n"


def _elements(name: str, count: int) -> list[tuple[str, int]]:
    return [(name, row) for row in range(count)]


def _weight_last(receive: Callable[..., list[Tensor]], states: int) -> Callable[..., list[Tensor]]:
    """The same function with its arguments in another order: the states, the weight, the constants."""
    return lambda *given: receive(given[states], *given[:states], *given[states + 1 :])


def _back(function: Callable[..., list[Tensor]], count: int, gap: int | None = None) -> Callable[..., list[Any]]:
    """The vector-Jacobian product of a function of `count` inputs, followed by output gradients, by default 1. The
    result has None at `gap`, the position of a length or weight that this function does not have.
    """

    def back(*given: Tensor) -> list[Any]:
        _, pull = vjp(lambda *inputs: tuple(function(*inputs)), *given[:count])
        grads = list(pull(*(given[count:] or (_ones(given[0]),))))
        return grads if gap is None else [*grads[:gap], None, *grads[gap:]]

    return back


def _runge_kutta(dynamics: Callable[..., list[Tensor]], y: Sequence[Tensor], length: Tensor) -> list[Tensor]:
    """The states after one step of the Runge-Kutta method of fourth order."""

    def moved(slopes: Sequence[Tensor], time: Tensor) -> list[Tensor]:
        return [one + slope * time for one, slope in zip(y, slopes, strict=True)]

    half = length * 0.5
    first = dynamics(*y)
    second = dynamics(*moved(first, half))
    third = dynamics(*moved(second, half))
    fourth = dynamics(*moved(third, length))
    slopes = [a + (b + c) * 2.0 + d for a, b, c, d in zip(first, second, third, fourth, strict=True)]
    return moved(slopes, length / 6.0)


def _ones(like: Tensor) -> Tensor:
    return like * 0.0 + 1.0
