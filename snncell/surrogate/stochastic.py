"""Spikes at random, with a probability that depends on the potential: firing at an escape rate."""

from __future__ import annotations

from typing import Any

from snncell import ops
from snncell.surrogate.sigmoidal import Sigmoid
from snncell.surrogate.wrappers import Wrapper
from snncell.tape.tensor import Tensor


class StochasticSpike(Wrapper):
    """A spike function that fires at random, with the probability that the primitive of another one gives.

    construct: 1 with probability p(x), else 0;  primitive: p(x);  derivative: p'(x), that of the expected spike

    p is the primitive of `surrogate_function`, limited to [0, 1]: sigmoid(alpha x) of Sigmoid(alpha), the normal
    distribution of Gaussian(sigma), 1 - e^(-r) of EscapeRate(rate, width).

    The numbers come from snncell's counter-based generator: `set_seed` decides them, each call draws new ones, and they
    are the same eagerly, under jit and in nn.MultiStep, on the CPU and on the GPU. In nn.MultiStep each step draws its
    own. Drawing is no elementwise operation, so there the forward runs step by step, which `explain` says; the
    reverse, which draws nothing, is one kernel.

    Args:
        surrogate_function: the escape function, a spike function whose primitive rises from 0 to 1; Sigmoid() if left
            out.

    Inputs:
        x: potential minus threshold, any shape.

    Returns:
        The spikes, 0 or 1, in the shape and dtype of x.

    Raises:
        ArgumentError: if `surrogate_function` is no spike function.

    Source: Gerstner et al., "Neuronal Dynamics", section 9.1; the reverse is that of Bengio, Leonard and Courville,
    "Estimating or Propagating Gradients Through Stochastic Neurons for Conditional Computation", 2013.

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
