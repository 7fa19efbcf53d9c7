"""EventDense: a dense layer of any event-driven neuron, from spike times to spike times, with exact gradients."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal, get_args

import numpy as np

from snncell import dtype as dtypes, ops
from snncell.base.arguments.kinds import Count, FloatDtype, Positive
from snncell.cell.constants import Ranged
from snncell.cell.fields import as_number, field, with_fields
from snncell.cell.ranges import Range
from snncell.common.initializer import Init, Uniform, initializer
from snncell.compiler.backends.event_neuron import EquationsOfNeuron
from snncell.errors import ArgumentError, DeviceError, GradientError
from snncell.kernels.eventprop.recurrent_solver import RecurrentSimulation
from snncell.kernels.eventprop.solver import MOST_STEPS
from snncell.kernels.eventprop.solver_adjoint import Simulation
from snncell.kernels.space import HOST, Space
from snncell.nn.neurons.event_driven import EventNeuron
from snncell.nn.rules.eventprop import RECURRENT_INIT, columns, float_dtype, times_of_inputs
from snncell.nn.settings import Settings
from snncell.tape.parameter import Parameter
from snncell.tape.primitive import Primitive
from snncell.tape.tensor import Tensor

__all__ = ["EventDense"]

Output = Literal["times", "states", "maximum"]
WINDOWS = 32  # number of time windows of the simulation of a recurrent layer in closed form

# --- operations -------------------------------------------------------------------------------------------------------


class _Solver(Primitive):
    """A pass of the solver."""

    def describe(self, attrs: dict[str, Any], space: Space = HOST) -> list[str]:
        exact = "in closed form, from event to event"
        return [exact if attrs["equations"].exact else f"by Runge-Kutta steps of {attrs['step']:g}"]


class _Solve(_Solver):
    """Times, weights, delays, initial states and constants -> the results that `outputs` names: spike times (B, N, K),
    states (B, N, S) and maxima (B, N).
    """

    def abstract(self, inputs: tuple[Any, ...], attrs: dict[str, Any]) -> list[tuple[Any, Any]]:
        times, weights, _, initial, _ = inputs
        shape = times.shape[0], weights.shape[1]
        more = {"times": (attrs["spikes"],), "states": (initial.shape[0],), "maximum": ()}
        return [((*shape, *more[name]), times.dtype) for name in attrs["outputs"]]


class _SolveBack(_Solver):
    """Inputs of `_Solve` and the gradients of its results -> gradients of the inputs."""

    def abstract(self, inputs: tuple[Any, ...], attrs: dict[str, Any]) -> list[tuple[Any, Any]]:
        return [(x.shape, x.dtype) for x in inputs[:5]]


def _simulation(arrays: Sequence[Any], equations: EquationsOfNeuron, **sizes: Any) -> Simulation:
    times, weights, delays, initial, constants = arrays
    if times.size and not times.min() >= 0.0:
        raise ArgumentError(
            "EventDense: times must be at least 0, because the simulation begins at 0. Shift them, for example by "
            "times - times.min()."
        )
    numbers = np.array([*equations.numbers, 0.0])[:, None]
    values = np.concatenate([constants, np.broadcast_to(numbers, (len(numbers), constants.shape[1]))])
    initial = np.pad(initial, ((0, equations.states - len(initial)), (0, 0)))
    kind = Simulation if len(weights) == times.shape[1] else RecurrentSimulation
    return kind(equations.source, [times, weights, delays, initial, values], len(constants), **sizes)


def _find(*arrays: Any, equations: EquationsOfNeuron, silent: float, **sizes: Any) -> tuple[Any, ...]:
    found, states, maximum = _simulation(arrays, equations, **sizes).find()
    results = {"times": found, "states": states[..., : len(arrays[3])], "maximum": maximum}
    return tuple([results[name] for name in sizes["outputs"]])


def _send_back(*arrays: Any, equations: EquationsOfNeuron, silent: float, **sizes: Any) -> tuple[Any, ...]:
    inputs, given = arrays[:5], dict(zip(sizes["outputs"], arrays[5:], strict=True))
    if "states" in given:
        hidden = equations.states - len(inputs[3])
        given["states"] = np.pad(given["states"], ((0, 0), (0, 0), (0, hidden)))
    grads = list(_simulation(inputs, equations, **sizes).send_back(*(given.get(name) for name in get_args(Output))))
    grads[3] = grads[3][: len(inputs[3])]
    return tuple(grad.reshape(x.shape).astype(x.dtype, copy=False) for grad, x in zip(grads, inputs, strict=True))


def _refuse_device(*_: Any, **__: Any) -> Any:
    raise DeviceError(
        'EventDense runs on the CPU only. Move the layer and its inputs by .to("cpu"). For LIF neurons, '
        "nn.EventPropLIF has kernels for GPUs."
    )


# `silent` is always inf: see `spike_times` in `eventprop.py`.
solve = _Solve("solve_event_driven", _find, multiple=True)
solve.def_on_gpu(_refuse_device)
solve_back = _SolveBack("solve_event_driven_back", _send_back, multiple=True)
solve_back.def_on_gpu(_refuse_device)


@solve.def_bprop
def _(
    times: Tensor, weights: Tensor, delays: Tensor, initial: Tensor, constants: Tensor, _out: Any, dout: Any,
    **attrs: Any,
) -> Sequence[Any]:  # fmt: skip
    return solve_back.bind_all(times, weights, delays, initial, constants, *dout, **attrs)


@solve_back.def_bprop
def _(*_: Any, **__: Any) -> Sequence[Any]:
    raise GradientError(
        "EventDense has no second-order gradients, and therefore no jvp and jacfwd. Use vjp or jacrev. For neurons "
        "with two exponentials, nn.EventPropLIF has all of them."
    )


# --- the layer --------------------------------------------------------------------------------------------------------


@with_fields
class EventDense(Ranged, Settings):
    """Dense layer of event-driven neurons, from spike times to spike times, with exact gradients for any neuron.

    Use it for temporal codes with your own neurons (`EventNeuron`), with learned constants, or with a learned delay per
    synapse. For LIF neurons with fixed constants, `EventPropLIF` is faster, and also runs on GPUs.

    Without `step`, the equations are solved in closed form from event to event, up to rounding. This needs linear
    `dynamics`: each state decays or grows exponentially, and a constant or one other state can drive it, for example
    the current drives v. A state that drives another one must not be driven by a state itself. `spike_condition` must
    be a linear function of at most two of the states that change between events, and so must `readout` for the maximum.
    `EventLIF` and `EventLI` have a closed form; `EventQIF`, and `EventALIF` with its three exponentials, have none.

    With `step`, the Runge-Kutta method of fourth order integrates any equations. If the spike condition crosses 0 from
    below in a step, the method of false position finds the time s of the crossing up to rounding, and the state is
    reset there. So the error of a spike time is of order step^4, and spikes need not lie on the grid of steps.

    The gradient is exact in both cases (implicit function theorem). Let c be the spike condition and p the Parameters
    in the equations. Let y be the state at the start of the step, and F(y, s) the state after a time s. Then

        c(F(y, s)) = 0,   ds = -(grad c . (F_y dy + F_p dp) + c_p dp) / (grad c . F_s)

    snncell computes all derivatives from your equations. The backward pass repeats the simulation of 16 neurons at a
    time and keeps only their steps. So the memory of a large layer is proportional to its spikes, not to its steps.

    If the condition rises above 0 and falls again within one Runge-Kutta step, the spike is missed. So choose `step` at
    most a fifth of the fastest time constant. A silent neuron has the time inf and no gradient: see `EventPropLIF`.

    For losses of voltages, let the last layer return output="states", the states at t_max, or "maximum", the maximum of
    the potential over time. Then K spikes do not end the simulation of a neuron. Later spikes reset it, but the layer
    does not return them, nor send them through recurrent connections. With `step`, only the ends of steps and spikes
    count for the maximum, with an exact gradient. In between, v can be higher by max |v''| step^2 / 8.
    Inputs: times: (B, N_in), or (B, N_in, K_in) in any order, at least 0, with inf for no spike.
    Returns: "times": the first K spike times of each neuron, ascending, (B, N_out, K); inf for missing spikes, and NaN
        for the next spike of a neuron whose states become NaN. "states": (B, N_out, S), with S the number of states.
        "maximum": (B, N_out). A tuple if `output` is a sequence of names.
    Raises: ArgumentError for equations that are not elementwise, return another number of states, or need a `step`;
        GradientError for a second-order gradient; and as `EventPropLIF`.
    Source: Wunderlich and Pehle, Scientific Reports 11, 2021; learned delays: Meszaros et al., "Efficient event-based
    delay learning in spiking neural networks", Nature Communications 2025.
    Example:
        >>> layer = nn.EventDense(nn.EventLIF(), 2, 1, t_max=50.0, weight_init=4.0)
        >>> times = Tensor([[0.0, 3.0]])
        >>> print(layer(times).asnumpy().round(3))  # as nn.EventPropLIF
        [[[5.983]]]
        >>> print(grad(lambda t: layer(t).sum())(times).asnumpy().round(3))
        [[0.258 0.742]]
        >>> layer = nn.EventDense(nn.EventLI(), 2, 1, t_max=50.0, weight_init=4.0, output="maximum")
        >>> print(layer(times).asnumpy().round(3))  # v without a threshold
        [[1.246]]
    """

    _all_steps = _steps_inside = True  # tells monitors that they cannot see its time steps

    neuron: Annotated[
        EventNeuron, field(meaning="such as `EventLIF()`; its constants can be numbers, or one per neuron (N_out,)")
    ]
    in_channels: Annotated[Count, field(meaning="N_in, the number of inputs")]
    out_channels: Annotated[Count, field(meaning="N_out, the number of neurons")]
    t_max: Annotated[
        Positive,
        field(
            meaning="the end of the simulation, which begins at 0, in the unit of the times; later spikes are ignored",
            convert=as_number,
        ),
    ]
    step: Positive | None = field(
        None,
        meaning="the length of a Runge-Kutta step, for equations without a closed form; None for the closed form",
    )
    weight_init: Init | None = field(
        None,
        meaning="initial weight, (out_channels, in_channels). It must be given, because the scale that makes neurons "
        "spike depends on their equations. For example, `Normal(0.78, 1.5)` of `snncell.common.initializer`",
        keep=False,
    )
    spikes: Count = field(
        1, meaning="K, the number of spike times that are computed per neuron; later ones are ignored"
    )
    max_delay: Positive | None = field(
        None,
        meaning="if given, each synapse learns a delay between 0 and max_delay, at first uniformly distributed. Each "
        "write, also by an optimiser, clips delays to this range",
    )
    dtype: FloatDtype = field(
        dtypes.float32,
        meaning="dtype of weight and times, float32 or float64; the solver computes in float64",
        keep=False,
    )
    output: Output | Sequence[Output] = field(
        "times",
        meaning='"times" of spikes; "states", the states of each neuron at t_max; "maximum", the maximum over time of '
        "the neuron's `readout`, by default its first state; or a sequence of these, for a tuple of results",
    )
    recurrent_init: Init | None = RECURRENT_INIT
    delay: Any = None
    recurrent_weight: Any = None
    recurrent_delay: Any = None
    ranges: ClassVar = {"delay": Range(), "recurrent_delay": Range()}

    def _complete(self, given: dict[str, Any]) -> None:
        kind, shape = float_dtype(given["dtype"], "EventDense"), (self.out_channels, self.in_channels)
        if given["weight_init"] is None:
            raise ArgumentError(
                "EventDense: weight_init is missing. It has no default, because the scale that makes neurons spike "
                "depends on their equations. For example, pass Normal(0.78, 1.5) of snncell.common.initializer."
            )
        self.weight = Parameter(initializer(given["weight_init"], shape, kind))
        if given["recurrent_init"] is not None:
            self.recurrent_weight = Parameter(initializer(given["recurrent_init"], (self.out_channels,) * 2, kind))
        if self.max_delay is not None:
            half = float(self.max_delay) / 2.0
            self.delay = Parameter(initializer(Uniform(half), shape, kind) + half)
            if self.recurrent_weight is not None:
                self.recurrent_delay = Parameter(initializer(Uniform(half), (self.out_channels,) * 2, kind) + half)

    def range_of(self, name: str) -> Range:
        if name not in ("delay", "recurrent_delay") or self.max_delay is None:
            return super().range_of(name)
        return Range(0.0, float(self.max_delay), "both")

    def settle(self) -> None:
        if "weight" not in vars(self):
            return
        if self.weight.shape != (self.out_channels, self.in_channels):
            raise ArgumentError(
                f"EventDense: in_channels and out_channels must be {self.weight.shape[::-1]}, as in the weight. For "
                f"other sizes, create a new EventDense."
            )
        if (self.max_delay is None) != (self.delay is None):
            raise ArgumentError(
                f"EventDense: max_delay cannot become {self.max_delay!r}, because the layer was created "
                f"{'without' if self.delay is None else 'with'} delays. Create a new EventDense."
            )
        for delay in (self.delay, self.recurrent_delay):
            if delay is not None:
                delay.set_data(delay)  # clips it to the present range
        outputs = self._outputs()
        if not outputs or len(set(outputs)) < len(outputs):
            raise ArgumentError(f"EventDense: output must name one or more results, each once, not {self.output!r}.")
        if self.spikes > 1 and "times" not in outputs and self.recurrent_weight is None:
            raise ArgumentError(
                f"EventDense: spikes={self.spikes} is the number of spike times per neuron, but output={self.output!r} "
                f"has no times. Leave out spikes, or use output={('times', *outputs)!r}."
            )

    def construct(self, times: Any) -> Any:
        events = times_of_inputs(self, times)
        neurons, states = self.out_channels, self.neuron.states
        if self.step is not None and not self.t_max / self.step <= MOST_STEPS:
            raise ArgumentError(
                f"EventDense: t_max={self.t_max} has more than {MOST_STEPS:,} steps of step={self.step}, which do not "
                f"fit into memory in the backward pass. Choose a larger step."
            )
        outputs = self._outputs()
        equations = EquationsOfNeuron(self.neuron, neurons, "EventDense", self.step is None, "maximum" in outputs)
        # In closed form, the longest step matters to recurrent layers only: it is the length of their windows.
        longest = math.inf if self.recurrent_weight is None else float(self.t_max) / WINDOWS
        initial = self.neuron.init_state(ops.zeros((neurons,), dtypes.float64))
        initial = initial if isinstance(initial, (tuple, list)) else (initial,)
        initial = [x if isinstance(x, Tensor) else Tensor(x, dtypes.float64) for x in initial]
        if len(initial) != states:
            raise ArgumentError(f"EventDense: init_state must return {states} state(s), not {len(initial)}.")
        delays = ops.zeros((0, neurons), events.dtype)
        if self.max_delay is not None:
            delays = ops.clip(columns(self.delay, self.recurrent_delay), 0.0, float(self.max_delay))
        results = solve.bind_all(
            events,
            columns(self.weight, self.recurrent_weight),
            delays,
            _rows(initial, neurons),
            _rows(equations.constants, neurons),
            equations=equations,
            spikes=self.spikes,
            step=longest if self.step is None else float(self.step),
            t_max=float(self.t_max),
            outputs=outputs,
            silent=math.inf,
        )
        return results[0] if isinstance(self.output, str) else results

    def _outputs(self) -> tuple[str, ...]:
        return (self.output,) if isinstance(self.output, str) else tuple(self.output)

    def extend_repr(self) -> str:
        delay = "" if self.max_delay is None else f", max_delay={self.max_delay}"
        output = "" if self.output == "times" else f", output={self.output!r}"
        step = "closed form" if self.step is None else f"step={self.step}"
        return (
            f"input_channels={self.in_channels}, output_channels={self.out_channels}, t_max={self.t_max}, "
            f"{step}, spikes={self.spikes}{delay}{output}"
        )


def _rows(values: Sequence[Tensor], neurons: int) -> Tensor:
    """Values of the neurons as the rows of a float64 matrix (len(values), N)."""
    rows = [ops.broadcast_to(x.astype(dtypes.float64), (neurons,)) for x in values]
    return ops.stack(rows) if rows else ops.zeros((0, neurons), dtypes.float64)
