"""A leaky neuron whose time constant is a function of what is learned."""

from __future__ import annotations

from typing import Any, ClassVar, Unpack

import numpy as np

from snncell import ops
from snncell.common.derived import Derived
from snncell.common.held import Constant
from snncell.common.ranges import LOGIT, TAU, check_constant, numbers_of
from snncell.dtype import float32
from snncell.errors import ArgumentError
from snncell.nn.neurons.base import Firing, Neuron
from snncell.nn.neurons.constants import from_rest
from snncell.nn.neurons.integrate import rest_at_reset
from snncell.tape.parameter import Parameter
from snncell.tape.tensor import Tensor


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
