"""Integrate and fire, with and without a leak, which may be learned: one state, the membrane potential v."""

from __future__ import annotations

from typing import Any, ClassVar, Unpack

import numpy as np

from snncell import ops
from snncell.common.derived import Derived
from snncell.common.held import Constant
from snncell.common.ranges import DECAY, LOGIT, TAU, check_constant, numbers_of
from snncell.dtype import float32
from snncell.errors import ArgumentError
from snncell.nn.neurons.base import Firing, Neuron, Options
from snncell.nn.neurons.constants import from_rest
from snncell.nn.neurons.firing import DEFAULT
from snncell.tape.parameter import Parameter
from snncell.tape.tensor import Tensor


class IFNode(Neuron):
    """Integrate and fire, as MindSpore's guide to custom reverses has it.

    h = v + x;  s = surrogate(h - v_threshold);  spike = s v_threshold;  v = h - spike

    A spike has the size v_threshold, and the reset subtracts it; `IFNode.like(...)` returns neurons whose spikes are 1,
    as they are in the other frameworks. With `fire=False` the output is v itself.

    Args:
        fire: whether it spikes.
        v_threshold, v_reset, reset, detach_reset, surrogate_function, options: as for every `Neuron`.

    Inputs:
        x, v: the input and the state, of one shape.

    Returns:
        (spike, v), or (v, v) with `fire=False`.

    Raises:
        ArgumentError: for a threshold that is not positive, or an unknown reset.

    Source: MindSpore 1.9 tutorials, "Customizing Reverse Propagation Function of Cell".

    Example:
        >>> spike, v = nn.IFNode(v_threshold=0.5)(Tensor([0.3, 0.6]), Tensor([0.0, 0.0]))
        >>> print(spike)
        [0.  0.5]
    """

    def __init__(
        self,
        v_threshold: Any = 1.0,
        fire: bool = True,
        surrogate_function: Any = DEFAULT,
        v_reset: Any = 0.0,
        reset: str | None = "subtract",
        detach_reset: bool = False,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(
            {},
            v_threshold=v_threshold,
            v_reset=v_reset,
            reset=reset,
            detach_reset=detach_reset,
            surrogate_function=surrogate_function,
            **options,
        )
        self.fire = fire

    def charge(self, x: Tensor, v: Tensor) -> Any:
        return v + self.gained(x)

    def construct(self, x: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        if not self.fire:
            h = self.on_grid("v", self.charge(x, self.recall(v)[0]))
            return h, h
        s, v = super().construct(x, v)
        return s * self.v_threshold, v

    def extend_repr(self) -> str:
        return f"fire={self.fire}, {super().extend_repr()}"


def rest_at_reset(neuron: Any, v_rest: Any) -> None:
    """Let v_reset be the resting potential too, also where it is learned, if v_rest is neither given nor learned."""
    if v_rest is None and not isinstance(neuron.__dict__["v_rest"], Parameter):
        neuron.v_rest = neuron.__dict__["v_reset"]


class EulerLeak(Neuron):
    """The base of neurons with the charge of `LIFNode`, one Euler step of the membrane equation, and its arguments."""

    tau: Any
    v_rest: Any
    ranges: ClassVar = {"tau": TAU}

    def __init__(self, tau: Any, decay_input: bool, v_rest: Any, **options: Unpack[Firing]) -> None:
        rest = options.get("v_reset", 0.0) if v_rest is None else v_rest
        super().__init__({"tau": tau, "v_rest": rest}, **options)
        rest_at_reset(self, v_rest)
        self.decay_input = decay_input

    def charge(self, x: Tensor, v: Tensor) -> Any:
        x, leak = self.gained(x), from_rest(v, self.v_rest)
        return v + self.per_step(x - leak, self.tau) if self.decay_input else v - self.per_step(leak, self.tau) + x

    def extend_repr(self) -> str:
        return f"{super().extend_repr()}, decay_input={self.decay_input}"


class LIFNode(EulerLeak):
    """Leaky integrate and fire.

    h = v + (x - (v - v_rest)) / tau         with decay_input
    h = v - (v - v_rest) / tau + x           without
    s = surrogate(h - v_threshold)
    v = h - s v_threshold                    reset="subtract"
    v = (1 - s) h + s v_reset                reset="value" (v_reset), or "zero" (0)
    v = h                                    reset=None

    The membrane equation tau dv/dt = -(v - v_rest) + x, by one Euler step of length 1.

    Args:
        tau: membrane time constant in steps, above 1: each step keeps 1 - 1 / tau of the potential.
        decay_input: whether the input is divided by tau too.
        v_rest: resting potential; v_reset if it is left out.
        v_threshold, v_reset, reset, detach_reset, surrogate_function, options: as for every `Neuron`.

    Inputs:
        x, v: the input and the state, of one shape.

    Returns:
        (s, v).

    Raises:
        ArgumentError: for tau not above 1, a threshold that is not positive, or an unknown reset.

    Source: Gerstner et al., Neuronal Dynamics, section 1.3; Fang et al., SpikingJelly, Science Advances 2023.

    Example:
        >>> spike, v = nn.LIFNode(tau=4.0)(Tensor([8.0]), Tensor([0.0]))
        >>> print(spike, v)
        [1.] [1.]
    """

    def __init__(
        self,
        tau: Any = 2.0,
        v_threshold: Any = 1.0,
        v_reset: Any = 0.0,
        reset: str | None = "subtract",
        detach_reset: bool = False,
        decay_input: bool = True,
        surrogate_function: Any = DEFAULT,
        *,
        v_rest: Any = None,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(
            tau,
            decay_input,
            v_rest,
            v_threshold=v_threshold,
            v_reset=v_reset,
            reset=reset,
            detach_reset=detach_reset,
            surrogate_function=surrogate_function,
            **options,
        )


class LeakyNode(Neuron):
    """Leaky integrate and fire, by the factor that a step keeps.

    h = beta v + x;  s and v as for every `Neuron`

    It is the exact solution of tau dv/dt = -v between inputs that are jumps, with beta = exp(-dt / tau); LIFNode's
    Euler step without decay_input has beta = 1 - 1 / tau.

    Args:
        beta: what a step keeps of the potential, from 0 to 1.
        options: v_threshold, reset, surrogate_function and the others of every `Neuron`.

    Inputs, Returns: x and v, of one shape; (s, v), as for `LIFNode`.

    Raises:
        ArgumentError: for beta outside [0, 1], a threshold that is not positive, or an unknown reset.

    Source: Eshraghian et al., "Training Spiking Neural Networks Using Lessons From Deep Learning", Proc. IEEE 2023.

    Example:
        >>> spike, v = nn.LeakyNode(beta=0.5)(Tensor([0.5]), Tensor([0.8]))
        >>> print(v)
        [0.9]
    """

    beta: Any
    ranges: ClassVar = {"beta": DECAY}

    def __init__(self, beta: Any = 0.9, **options: Unpack[Firing]) -> None:
        super().__init__({"beta": beta}, **options)

    def charge(self, x: Tensor, v: Tensor) -> Any:
        return self.beta * v + self.gained(x)


# --- a learned time constant ------------------------------------------------------------------------------------------


def logit(value: Any, source: Any, name: str) -> Parameter:
    """The Parameter of a logit, limited to its range; float32, or as wide as the Tensor that it was made of."""
    dtype = source.dtype if isinstance(source, Tensor) and source.dtype.is_float else float32
    return Parameter(Tensor(np.clip(value, LOGIT.low, LOGIT.high), dtype), name=name)


class ParametricLIFNode(Neuron):
    """A leaky neuron that learns its time constant.

    1 / tau = sigmoid(w), so that tau stays above 1;  w = -ln(tau - 1) at first
    h = v + (x - (v - v_rest)) / tau         with decay_input
    h = v - (v - v_rest) / tau + x           without
    s and v as for every `Neuron`

    With decay_input a longer tau weakens the input, too; a memory is learned better with decay_input=False.

    Args:
        tau: the first time constant in steps, above 1: a number for the layer, or an array, one for each neuron.
        decay_input: whether the input is divided by tau too.
        v_rest: resting potential; v_reset if it is left out.
        options: v_threshold, reset, surrogate_function and the others of every `Neuron`.

    Inputs, Returns: x and v, of one shape; (s, v), as for `LIFNode`.

    Raises:
        ArgumentError: for tau not above 1, a threshold that is not positive, or an unknown reset.

    Source: Fang et al., "Incorporating Learnable Membrane Time Constant to Enhance Learning of Spiking Neural
    Networks", ICCV 2021.

    Example:
        >>> [p.name for p in nn.ParametricLIFNode(tau=2.0).trainable_params()]
        ['w']
    """

    v_rest: Any
    w: Parameter
    ranges: ClassVar = {"w": LOGIT}

    def __init__(self, tau: Any = 2.0, decay_input: bool = True, v_rest: Any = None, **options: Unpack[Firing]) -> None:
        rest = options.get("v_reset", 0.0) if v_rest is None else v_rest
        super().__init__({"v_rest": rest}, **options)
        rest_at_reset(self, v_rest)
        who = type(self).__name__
        if isinstance(tau, (Parameter, Derived)):
            raise ArgumentError(
                f"{who}: it learns w, of 1 / tau = sigmoid(w), which it makes itself; give tau as a number, or the "
                f"Parameter to nn.LIFNode(tau=...)."
            )
        first = TAU.check(check_constant(tau, who, "tau"), who, "tau")
        self.w = logit(-np.log(numbers_of(first) - 1.0), tau, "w")
        self.decay_input = decay_input

    @property
    def tau(self) -> Tensor:
        """The time constant at present, in steps."""
        tau: Tensor = 1.0 / ops.sigmoid(self.w)
        return tau

    @property
    def constants_and_ranges(self) -> tuple[Constant, ...]:
        """Its constants, tau in the place of w."""
        return Constant("tau", numbers_of(self.tau), TAU, learned=True), *super().constants_and_ranges

    def charge(self, x: Tensor, v: Tensor) -> Any:
        x, leak, rate = self.gained(x), from_rest(v, self.v_rest), ops.sigmoid(self.w)
        return v + (x - leak) * rate if self.decay_input else v - leak * rate + x
