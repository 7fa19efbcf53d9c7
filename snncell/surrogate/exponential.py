"""Surrogates with exponential derivatives, and with the derivative of an escape rate."""

from __future__ import annotations

import math
from typing import Any

from snncell import ops
from snncell.surrogate.base import Constant, Surrogate
from snncell.tape.tensor import Tensor

__all__ = ["EscapeRate", "PiecewiseExp", "SpikeRateEscape"]


class PiecewiseExp(Surrogate):
    """The step function with an exponential to both sides as derivative.

    primitive: e^(alpha x) / 2 below the threshold, 1 - e^(-alpha x) / 2 above
    derivative: alpha / 2 e^(-alpha |x|)

    Args:
        alpha: sharpness, positive; a Parameter is learned.

    Source: Shrestha and Orchard, "SLAYER: Spike Layer Error Reassignment in Time", NeurIPS 2018.

    Elsewhere:
        SpikingJelly: PiecewiseExp(alpha=1).
        sinabs: SingleExponential(grad_width=0.5, grad_scale=1), its default, is Scaled(PiecewiseExp(a), 2 grad_scale)
            with a = 1 / (grad_width v_threshold).
        lava-dl: Scaled(PiecewiseExp(1 / tau_rho), scale) with tau_rho = 100 tau_grad v_threshold and
            scale = scale_grad / 10.

    Example:
        >>> print(grad(snncell.surrogate.PiecewiseExp())(Tensor([-0.1, 0.0, 1.0])).asnumpy().round(3))
        [0.452 0.5   0.184]
    """

    alpha: Constant

    def __init__(self, alpha: Any = 1.0) -> None:
        super().__init__(alpha=alpha)

    def bprop(self, x: Tensor, out: Tensor, dout: Tensor) -> Any:
        return self.gradients(x, dout, dout * ops.exp(-ops.abs(x * self.alpha)) * (self.alpha * 0.5))

    def primitive(self, x: Tensor) -> Tensor:
        y = x * self.alpha
        return (ops.exp(ops.minimum(y, 0.0)) - ops.exp(ops.minimum(-y, 0.0))) * 0.5 + 0.5


class SpikeRateEscape(Surrogate):
    """The step function with an exponential to both sides of x = 1 as derivative, as snnTorch has it.

    derivative: slope e^(-beta |x - 1|)
    primitive: its integral from 0 to x, plus 1 / 2

    The derivative is largest where the potential is 1 above the threshold, not at it. The primitive rises by
    2 slope / beta, not by 1, for that is the area under the published derivative.

    Args:
        beta: sharpness, positive.
        slope: the largest derivative, positive. Both are learned where they are Parameters.

    Source: Gerstner and Kistler, "Spiking Neuron Models", Cambridge 2002, section 5.3, as snnTorch reads it. For
    firing at an escape rate see StochasticSpike.

    Elsewhere:
        snnTorch: spike_rate_escape(beta=1, slope=25).

    Example:
        >>> print(grad(snncell.surrogate.SpikeRateEscape())(Tensor([-0.1, 0.0, 1.0])).asnumpy().round(3))
        [ 8.322  9.197 25.   ]
    """

    beta: Constant
    slope: Constant

    def __init__(self, beta: Any = 1.0, slope: Any = 25.0) -> None:
        super().__init__(beta=beta, slope=slope)

    def bprop(self, x: Tensor, out: Tensor, dout: Tensor) -> Any:
        return self.gradients(x, dout, dout * ops.exp(-ops.abs(x - 1.0) * self.beta) * self.slope)

    def primitive(self, x: Tensor) -> Tensor:
        below, above = ops.minimum(x - 1.0, 0.0), ops.minimum(1.0 - x, 0.0)
        rise = ops.exp(below * self.beta) - ops.exp(above * self.beta) + 1.0
        at_zero = ops.exp(-self.beta) if isinstance(self.beta, Tensor) else math.exp(-self.beta)
        return (rise - at_zero) * (self.slope / self.beta) + 0.5


class EscapeRate(Surrogate):
    """The step function with the derivative of the probability to fire within a step, at an exponential escape rate.

    primitive: p = 1 - e^(-r) with r = rate e^(x / width);  derivative: r e^(-r) / width

    The primitive is 1 - e^(-rate) at the threshold, not 1 / 2, for it is a probability: that of a neuron that fires at
    random r times a step on average. `StochasticSpike(EscapeRate())` fires with it.

    Args:
        rate: spikes for each step at the threshold, positive.
        width: of the threshold, in units of the potential, positive. Both are learned where they are Parameters.

    Source: Gerstner et al., "Neuronal Dynamics", section 9.1; Jolivet et al., "Predicting spike timing of neocortical
    pyramidal neurons by simple threshold models", 2006.

    Example:
        >>> print(grad(snncell.surrogate.EscapeRate())(Tensor([-0.1, 0.0, 1.0])).asnumpy().round(3))
        [0.722 0.736 0.009]
    """

    rate: Constant
    width: Constant

    def __init__(self, rate: Any = 1.0, width: Any = 0.5) -> None:
        super().__init__(rate=rate, width=width)

    def _logarithm(self, x: Tensor) -> Tensor:
        # Limited: beyond, the probability is 0 or 1, and the derivative 0.
        return ops.clip(x / self.width, -80.0, 80.0)

    def bprop(self, x: Tensor, out: Tensor, dout: Tensor) -> Any:
        y = self._logarithm(x)
        slope = ops.exp(y - ops.exp(y) * self.rate) * (self.rate / self.width)
        return self.gradients(x, dout, dout * slope)

    def primitive(self, x: Tensor) -> Tensor:
        return -ops.expm1(-ops.exp(self._logarithm(x)) * self.rate)
