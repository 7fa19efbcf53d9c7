"""Surrogates made of others: inclusive (firing at the threshold), scaled, stochastic (an escape rate)."""

from __future__ import annotations

from typing import Any

from snncell import ops
from snncell.base.arguments.shown import show
from snncell.cell.cell import Cell
from snncell.cell.ranges import Derived
from snncell.errors import ArgumentError
from snncell.surrogate.base import Surrogate
from snncell.surrogate.curves import Sigmoid
from snncell.tape.tensor import Tensor

__all__ = ["Inclusive", "Scaled", "StochasticSpike"]


class Wrapper(Surrogate):
    """A spike function that has the reverse and the primitive of another one."""

    surrogate_function: Any

    def __init__(self, surrogate_function: Any, **constants: Any) -> None:
        super().__init__(**constants)
        given, who = surrogate_function, type(self).__name__
        if not isinstance(given, Cell) or None in (getattr(given, "bprop", None), getattr(given, "primitive", None)):
            raise ArgumentError(
                f"{who}: surrogate_function is a spike function, an object with bprop and primitive such as "
                f"surrogate.ATan(), not {show(given)}."
            )
        self.surrogate_function = given

    def _learned(self) -> Any:
        return getattr(self.surrogate_function, "internal_params", ())

    def bprop(self, x: Tensor, out: Tensor, dout: Tensor) -> Any:
        return self.surrogate_function.bprop(x, out, dout)

    def primitive(self, x: Tensor) -> Any:
        return self.surrogate_function.primitive(x)


class Inclusive(Wrapper):
    """A spike function that fires at x >= 0, with the reverse and the primitive of another one.

    Args:
        surrogate_function: a spike function that fires where x > 0. What its construct does is not used.

    Inputs, Returns: x, the potential minus the threshold; 1 where x >= 0, else 0, in the shape and dtype of x.

    Raises:
        ArgumentError: if `surrogate_function` is no such object, or one that fires by a rule of its own.

    Elsewhere: SpikingJelly, sinabs, lava-dl, mlGeNN, rockpool and BindsNET fire at the threshold; snnTorch, Norse,
    Spyx, the NIR document and snncell's spike functions fire above it.

    Example:
        >>> fires = snncell.surrogate.Inclusive(snncell.surrogate.ATan())
        >>> print(fires(Tensor([-1.0, 0.0, 1.0])))
        [0. 1. 1.]
    """

    def __init__(self, surrogate_function: Any) -> None:
        super().__init__(surrogate_function)
        inner = surrogate_function
        while isinstance(inner, (Inclusive, Scaled)):
            inner = inner.surrogate_function
        if isinstance(inner, Surrogate) and type(inner).construct is not Surrogate.construct:
            raise ArgumentError(
                f"Inclusive: a {type(inner).__name__} fires by a rule of its own, not at a threshold. Use it as it is."
            )

    def construct(self, x: Tensor) -> Tensor:
        return ops.greater_equal(x, 0).astype(x.dtype)


class Scaled(Wrapper):
    """A spike function with the gradient of another one times a number.

    derivative: scale f'(x);  primitive: scale (f(x) - 1/2) + 1/2, with f the primitive of the other one

    Args:
        surrogate_function: a spike function.
        scale: the factor, positive.

    Inputs, Returns: x, the potential minus the threshold; the spikes of the other one.

    Raises:
        ArgumentError: if `surrogate_function` is no spike function, or `scale` not a positive, finite number.

    Source: the dampening factor 0.3 of Bellec et al., "Long short-term memory and learning-to-learn in networks of
    spiking neurons", NeurIPS 2018.

    Elsewhere: grad_scale of sinabs's surrogates.

    Example:
        >>> damped = snncell.surrogate.Scaled(snncell.surrogate.Triangle(), 0.3)
        >>> print(grad(damped)(Tensor([0.0, 0.5, 1.0])))
        [0.3  0.15 0.  ]
    """

    scale: float

    def __init__(self, surrogate_function: Any, scale: Any = 1.0) -> None:
        super().__init__(surrogate_function, scale=scale)
        if isinstance(scale, (Tensor, Derived)):
            raise ArgumentError(f"Scaled: scale is a number, which is not learned, not {scale!r}.")

    def construct(self, x: Tensor) -> Any:
        return self.surrogate_function.construct(x)

    def bprop(self, x: Tensor, out: Tensor, dout: Tensor) -> Any:
        return self.surrogate_function.bprop(x, out, dout * self.scale)

    def primitive(self, x: Tensor) -> Any:
        return (self.surrogate_function.primitive(x) - 0.5) * self.scale + 0.5


class StochasticSpike(Wrapper):
    """A spike function that fires at random, with the probability that the primitive of another one gives.

    construct: 1 with probability p(x), else 0;  primitive: p(x);  derivative: p'(x), that of the expected spike

    p is the primitive of `surrogate_function`, limited to [0, 1]: sigmoid(alpha x) of Sigmoid(alpha), the normal
    distribution of Gaussian(sigma), 1 - e^(-r) of EscapeRate(rate, width).

    `set_seed` decides the random numbers. Each call and each step draws new ones, the same eagerly, under jit and in
    nn.MultiStep, on the CPU and on the GPU. In nn.MultiStep the forward pass runs step by step, because drawing is no
    elementwise operation; the backward pass is one kernel.

    Args:
        surrogate_function: the escape function, a spike function whose primitive rises from 0 to 1; Sigmoid() if left
            out.

    Inputs, Returns: x, the potential minus the threshold; the spikes, 0 or 1, in the shape and dtype of x.

    Raises:
        ArgumentError: if `surrogate_function` is no spike function.

    Source: Gerstner et al., "Neuronal Dynamics", section 9.1; for the derivative as for `StraightThrough`.

    Elsewhere:
        Norse: method="logistic" with k is StochasticSpike(Sigmoid(2 k)), but has no gradient.
        SpikingJelly: PoissonPass() fires with probability x: StochasticSpike(StraightThrough()) of x - 1 / 2.

    Example:
        >>> snncell.set_seed(0)
        >>> fires = snncell.surrogate.StochasticSpike(snncell.surrogate.Sigmoid(alpha=4.0))
        >>> print(0.85 < fires(ops.ones(10000) * 0.5).mean().item() < 0.91)  # sigmoid(2) is 0.88
        True
    """

    def __init__(self, surrogate_function: Any = None) -> None:
        super().__init__(Sigmoid() if surrogate_function is None else surrogate_function)

    def construct(self, x: Tensor) -> Tensor:
        return ops.bernoulli(self.primitive(x)).astype(x.dtype)
