"""Event-driven neurons: differential equations between spikes, which `EventDense` solves with exact gradients."""

from __future__ import annotations

from typing import Any, ClassVar

from snncell import ops
from snncell.cell.fields import field, with_fields
from snncell.cell.ranges import FINITE, NOT_NEGATIVE, POSITIVE
from snncell.errors import CallError, SnncellError
from snncell.nn.neurons.constants import Membrane
from snncell.tape.tensor import Tensor

__all__ = ["EventALIF", "EventLI", "EventLIF", "EventNeuron", "EventQIF"]

TAU_MEM = field(20.0, POSITIVE, "membrane time constant, in the unit of the times")
TAU_SYN = field(5.0, POSITIVE, "synaptic time constant, in the unit of the times")
V_THRESHOLD = field(1.0, FINITE, "where the neuron spikes")
PERIOD = field(0.0, NOT_NEGATIVE, "refractory period: how long v stays at v_reset after a spike")
LEARNABLE = field((), None, 'names of the constants to learn, for example "tau_mem"', keep=False)


def _replace_first(first: Any, values: Any) -> Any:
    return (first, *values[1:]) if isinstance(values, (tuple, list)) else first


class EventNeuron(Membrane):
    """Base class of event-driven neurons (hybrid systems): an ordinary differential equation, and jumps at spikes.

    `EventDense` runs a layer of such neurons from spike times to spike times. To write a neuron, define the number of
    `states` and four methods. The methods must be elementwise, because each neuron is simulated alone. Their states are
    Tensors of shape (N,), and they can return Python numbers instead of Tensors:

    - `dynamics(*states)` returns the time derivative of each state.
    - `spike_condition(*states)` returns a number. The neuron spikes when it crosses 0 from below.
    - `input_spike(weight, *states)` returns the states after an input spike.
    - `reset(*states)` returns the states after an output spike. The condition must be below 0 for these states.

    Pass the constants of your neuron by name, for example `Leaky({"tau": 10.0})`, and read them as `self.tau`. Every
    Parameter that the methods read gets its exact gradient. The states start at 0, or at `init_state(x)` for x of shape
    (N,). The output "maximum" of `EventDense` is that of the first state, unless you define `readout(*states)`.

    A neuron can have a constant `refractory_period`, the time after each spike in which it cannot spike. During this
    time the first state is constant, and input spikes change only the others, unless you define
    `refractory_dynamics(*states)` and `refractory_input_spike(weight, *states)`. If the condition is at least 0 at the
    end of the period, the neuron spikes there.

    Args, Raises: as for `Membrane`. `states` is the number of states.
    Source: the protocol follows Eventax; hybrid systems: Wunderlich and Pehle, Scientific Reports 11, 2021.
    Example:
        >>> class Leaky(nn.EventNeuron):
        ...     states = 1
        ...     def dynamics(self, v):
        ...         return -v / self.tau
        ...     def spike_condition(self, v):
        ...         return v - 1.0
        ...     def input_spike(self, weight, v):
        ...         return v + weight
        ...     def reset(self, v):
        ...         return 0.0
        >>> layer = nn.EventDense(Leaky({"tau": 10.0}), 1, 1, t_max=50.0, weight_init=0.8)
        >>> print(layer(Tensor([[[0.0, 4.0]]])))  # V is 0.54 at 4.0, where it jumps above 1
        [[[4.]]]
    """

    states = 2
    _example = " such as nn.EventLIF()"  # for errors about arguments
    # `snncell.jit` must watch the values that these methods read, although no construct calls them.
    _called_methods = frozenset((
        "dynamics", "spike_condition", "input_spike", "reset", "readout", "refractory_dynamics",
        "refractory_input_spike",
    ))  # fmt: skip
    refractory_period: Any = 0.0
    ranges: ClassVar = {"refractory_period": NOT_NEGATIVE}

    def init_state(self, x: Tensor) -> Any:
        """The initial states, 0."""
        return tuple(ops.zeros_like(x) for _ in range(self.states))

    def _undefined(self, *_: Any) -> Any:
        raise SnncellError(
            f"{type(self).__name__} must define dynamics(*states), spike_condition(*states), input_spike(weight, "
            f"*states) and reset(*states); see nn.EventNeuron."
        )

    def construct(self, *_: Any) -> Any:
        """Raise: an event-driven neuron has no time steps."""
        who = type(self).__name__
        raise CallError(
            f"{who}: an event-driven neuron has no time steps, so it cannot be called. Pass it to a layer that solves "
            f"its equations, nn.EventDense({who}(), in_channels, out_channels, ...)."
        )

    def readout(self, *states: Tensor) -> Any:
        """The number whose maximum over time is an output of `EventDense`: the first state."""
        return states[0]

    def refractory_dynamics(self, *states: Tensor) -> Any:
        """The time derivatives in the refractory period: 0 for the first state, those of `dynamics` for the others."""
        return _replace_first(0.0, self.dynamics(*states))

    def refractory_input_spike(self, weight: Tensor, *states: Tensor) -> Any:
        """The states after an input spike in the refractory period: `input_spike` changes all but the first one."""
        return _replace_first(states[0], self.input_spike(weight, *states))

    dynamics: Any = _undefined
    spike_condition: Any = _undefined
    input_spike: Any = _undefined
    reset: Any = _undefined


class _CurrentDriven(EventNeuron):
    """Base of neurons with potential v and current i: an input spike adds its weight to i, and v resets to v_reset."""

    tau_mem: Any
    tau_syn: Any
    v_reset: Any

    def dynamics(self, v: Tensor, i: Tensor, *_: Tensor) -> Any:
        return (i - v) / self.tau_mem, -i / self.tau_syn

    def input_spike(self, weight: Tensor, v: Tensor, i: Tensor, *others: Tensor) -> Any:
        return v, i + weight, *others

    def reset(self, v: Tensor, i: Tensor, *others: Tensor) -> Any:
        return self.v_reset, i, *others


@with_fields
class EventLI(_CurrentDriven):
    """Event-driven leaky integrator: a read-out neuron that never spikes.

        tau_mem dv/dt = -v + i,   tau_syn di/dt = -i,   an input spike adds its weight to i

    Use it as the last layer for losses of voltages, with `output="states"` or `output="maximum"` of `EventDense`. For
    other read-outs, write a subclass with one more state. For example, the integral of v has the time derivative v.
    Source: Wunderlich and Pehle, Scientific Reports 11, 2021.
    Example:
        >>> layer = nn.EventDense(nn.EventLI(), 2, 1, t_max=20.0, weight_init=4.0, output="states")
        >>> print(layer(Tensor([[0.0, 3.0]])).asnumpy().round(3))  # v and i of one neuron
        [[[0.991 0.207]]]
    """

    tau_mem: Any = TAU_MEM
    tau_syn: Any = TAU_SYN
    learnable: Any = LEARNABLE

    def spike_condition(self, *_: Tensor) -> Any:
        return -1.0

    def reset(self, *states: Tensor) -> Any:
        return states


@with_fields
class EventLIF(_CurrentDriven):
    """Event-driven leaky integrate and fire with a synaptic current (current-based LIF).

        tau_mem dv/dt = -v + i,   tau_syn di/dt = -i,   an input spike adds its weight to i
        a spike occurs at v = v_threshold, and v becomes v_reset, where it stays for refractory_period

    Use it to learn time constants and thresholds. With fixed constants, v_reset = 0 and no refractory period,
    `EventPropLIF` computes the same faster, and also on GPUs.
    Source: Wunderlich and Pehle, Scientific Reports 11, 2021.
    Example:
        >>> layer = nn.EventDense(nn.EventLIF(learnable="tau_mem"), 2, 1, t_max=50.0, weight_init=4.0)
        >>> print(layer(Tensor([[0.0, 3.0]])).asnumpy().round(3))
        [[[5.983]]]
    """

    tau_mem: Any = TAU_MEM
    tau_syn: Any = TAU_SYN
    v_threshold: Any = V_THRESHOLD
    v_reset: Any = field(0.0, FINITE, "the potential after a spike, below v_threshold")
    refractory_period: Any = PERIOD
    learnable: Any = LEARNABLE

    def spike_condition(self, v: Tensor, *_: Tensor) -> Any:
        return v - self.v_threshold


@with_fields
class EventALIF(_CurrentDriven):
    """Event-driven LIF with an adaptive threshold: each spike raises it, and it decays back.

        as `EventLIF`, and   tau_adapt da/dt = -a,   a spike adds beta to a
        a spike occurs at v = v_threshold + a

    `EventDense` needs a `step`, because the condition has three exponentials.
    Source: Bellec et al., "Long short-term memory and learning-to-learn in networks of spiking neurons", NeurIPS 2018.
    """

    states = 3
    tau_mem: Any = TAU_MEM
    tau_syn: Any = TAU_SYN
    tau_adapt: Any = field(100.0, POSITIVE, "time constant of the threshold")
    beta: Any = field(0.5, FINITE, "how much a spike raises the threshold")
    v_threshold: Any = V_THRESHOLD
    v_reset: Any = field(0.0, FINITE, "the potential after a spike, below v_threshold")
    refractory_period: Any = PERIOD
    learnable: Any = LEARNABLE

    def dynamics(self, v: Tensor, i: Tensor, *others: Tensor) -> Any:
        (a,) = others
        return *super().dynamics(v, i), -a / self.tau_adapt

    def spike_condition(self, v: Tensor, i: Tensor, a: Tensor) -> Any:
        return v - self.v_threshold - a

    def reset(self, v: Tensor, i: Tensor, *others: Tensor) -> Any:
        (a,) = others
        return self.v_reset, i, a + self.beta


@with_fields
class EventQIF(_CurrentDriven):
    """Event-driven quadratic integrate and fire (QIF), the normal form of a neuron near its threshold.

        tau_mem dv/dt = v (v - v_c) + i,   tau_syn di/dt = -i,   an input spike adds its weight to i
        a spike occurs at v = v_peak, and v becomes v_reset

    Above v_c the potential grows without input until the neuron spikes, so a spike can follow long after its cause.
    `EventDense` needs a `step`, because the equation of v is not linear.
    Source: Gerstner et al., Neuronal Dynamics, section 5.3; Klos and Memmesheimer, "Smooth exact gradient descent
    learning in spiking neural networks", Physical Review Letters 2025.
    """

    tau_mem: Any = TAU_MEM
    tau_syn: Any = TAU_SYN
    v_c: Any = field(1.0, FINITE, "critical potential")
    v_peak: Any = field(10.0, FINITE, "the potential of a spike, above v_c")
    v_reset: Any = field(0.0, FINITE, "the potential after a spike, below v_peak")
    refractory_period: Any = PERIOD
    learnable: Any = LEARNABLE

    def dynamics(self, v: Tensor, i: Tensor, *_: Tensor) -> Any:
        return (v * (v - self.v_c) + i) / self.tau_mem, -i / self.tau_syn

    def spike_condition(self, v: Tensor, *_: Tensor) -> Any:
        return v - self.v_peak
