"""Wrappers of surrogates: firing at the threshold, scaled gradients, and stochastic firing."""

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
    """Base class of wrappers: the gradient and the primitive of another spike function."""

    surrogate_function: Any

    def __init__(self, surrogate_function: Any, **constants: Any) -> None:
        super().__init__(**constants)
        given, who = surrogate_function, type(self).__name__
        if not isinstance(given, Cell) or None in (getattr(given, "bprop", None), getattr(given, "primitive", None)):
            raise ArgumentError(
                f"{who}: surrogate_function must be a spike function with bprop and primitive, for example "
                f"surrogate.ATan(), not {show(given)}."
            )
        self.surrogate_function = given

    def _learned_parameters(self) -> Any:
        return getattr(self.surrogate_function, "internal_params", ())

    def bprop(self, x: Tensor, out: Tensor, dout: Tensor) -> Any:
        return self.surrogate_function.bprop(x, out, dout)

    def primitive(self, x: Tensor) -> Any:
        return self.surrogate_function.primitive(x)


class Inclusive(Wrapper):
    """Fire at x >= 0 instead of x > 0, with the gradient and the primitive of another spike function.

    Args:
        surrogate_function: a spike function that fires if x > 0. Its construct is not used.
    Inputs, Returns: x, the potential minus the threshold; 1 if x >= 0, else 0, in the shape and dtype of x.
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
                f"Inclusive: a {type(inner).__name__} has its own firing rule instead of a threshold. Use it directly."
            )

    def construct(self, x: Tensor) -> Tensor:
        return ops.greater_equal(x, 0).astype(x.dtype)


class Scaled(Wrapper):
    """Multiply the gradient of another spike function by a factor (gradient dampening).

    A factor below 1 keeps gradients from growing over many time steps.

    derivative: scale f'(x);  primitive: scale (f(x) - 1/2) + 1/2, with f the primitive of `surrogate_function`

    Args:
        surrogate_function: a spike function.
        scale: the factor, a positive number; it is not learned.
    Inputs, Returns: x, the potential minus the threshold; the spikes of `surrogate_function`.
    Source: Bellec et al., NeurIPS 2018, as for `nn.ALIFNode`; their dampening factor is 0.3.
    Elsewhere: the argument grad_scale of sinabs's surrogates.
    Example:
        >>> damped = snncell.surrogate.Scaled(snncell.surrogate.Triangle(), 0.3)
        >>> print(grad(damped)(Tensor([0.0, 0.5, 1.0])))
        [0.3  0.15 0.  ]
    """

    scale: float

    def __init__(self, surrogate_function: Any, scale: Any = 1.0) -> None:
        super().__init__(surrogate_function, scale=scale)
        if isinstance(scale, (Tensor, Derived)):
            raise ArgumentError(f"Scaled: scale must be a number, because it is not learned, not {scale!r}.")

    def construct(self, x: Tensor) -> Any:
        return self.surrogate_function.construct(x)

    def bprop(self, x: Tensor, out: Tensor, dout: Tensor) -> Any:
        return self.surrogate_function.bprop(x, out, dout * self.scale)

    def primitive(self, x: Tensor) -> Any:
        return (self.surrogate_function.primitive(x) - 0.5) * self.scale + 0.5


class StochasticSpike(Wrapper):
    """Stochastic firing (escape noise): fire with the probability given by another spike function's primitive.

    construct: 1 with probability p(x), else 0;  primitive: p(x);  derivative: p'(x), the derivative of E[spike]

    p is the primitive of `surrogate_function`, clipped to [0, 1]. For example, p is sigmoid(alpha x) for
    Sigmoid(alpha), the normal distribution function for Gaussian(sigma), and 1 - e^(-r) for EscapeRate(rate, width).

    Each call and each time step draws new random numbers, which `set_seed` determines: the same eagerly, under jit and
    in nn.MultiStep, on the CPU and on the GPU. In nn.MultiStep the forward pass runs step by step, because drawing is
    not elementwise; the backward pass is one kernel.

    Args:
        surrogate_function: the escape function, a spike function whose primitive rises from 0 to 1. Default: Sigmoid().
    Inputs, Returns: x, the potential minus the threshold; the spikes, 0 or 1, in the shape and dtype of x.
    Source: Gerstner et al., "Neuronal Dynamics", section 9.1; for the derivative as for `StraightThrough`.
    Elsewhere:
        Norse: method="logistic" with its k fires like StochasticSpike(Sigmoid(2 k)), but has no gradient.
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
