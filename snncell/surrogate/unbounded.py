"""Surrogates with unbounded primitives: their derivatives do not vanish on one side or on both."""

from __future__ import annotations

from typing import Any, ClassVar

from snncell import ops
from snncell.surrogate.base import NOT_NEGATIVE, Constant, Surrogate
from snncell.tape.tensor import Tensor

__all__ = ["S2NN", "LeakyReLU", "LogTailedReLU", "PiecewiseLeakyReLU", "StraightThrough"]


class StraightThrough(Surrogate):
    """The step function with the derivative of the identity: the gradient passes as it is.

    primitive: x + 1 / 2;  derivative: 1

    Source: Bengio, Leonard and Courville, "Estimating or Propagating Gradients Through Stochastic Neurons for
    Conditional Computation", 2013.

    Elsewhere:
        snnTorch: straight_through_estimator(). SpikingJelly: DeterministicPass().
        Spyx: custom(bwd=jnp.ones_like); custom() itself, documented as this, multiplies the gradient by x.

    Example:
        >>> print(grad(snncell.surrogate.StraightThrough())(Tensor([-0.1, 0.0, 1.0])).asnumpy().round(3))
        [1. 1. 1.]
    """

    def __init__(self) -> None:
        super().__init__()

    def bprop(self, x: Tensor, out: Tensor, dout: Tensor) -> Any:
        return (dout,)

    def primitive(self, x: Tensor) -> Tensor:
        return x + 0.5


class LeakyReLU(Surrogate):
    """The step function with the derivative of a leaky ReLU.

    primitive: k x + 1 / 2 above the threshold, leak x + 1 / 2 below;  derivative: k where x > 0, else leak

    Args:
        leak: the derivative up to the threshold, not negative; 0 makes it that of a ReLU.
        k: the derivative above, positive. Both are learned where they are Parameters.

    Source: snnTorch's leaky spike operator; Eshraghian et al., "Training Spiking Neural Networks Using Lessons From
    Deep Learning", Proceedings of the IEEE 2023.

    Elsewhere:
        SpikingJelly: LeakyKReLU(leak=0, k=1), which has k at the threshold too.
        snnTorch: LSO(slope=0.1), slope being leak, which in 1.0.0 raises a TypeError; heaviside() is leak=0.

    Example:
        >>> print(grad(snncell.surrogate.LeakyReLU())(Tensor([-0.1, 0.0, 1.0])).asnumpy().round(3))
        [0.1 0.1 1. ]
    """

    leak: Constant
    k: Constant
    ranges: ClassVar = {"leak": NOT_NEGATIVE}

    def __init__(self, leak: Any = 0.1, k: Any = 1.0) -> None:
        super().__init__(leak=leak, k=k)

    def bprop(self, x: Tensor, out: Tensor, dout: Tensor) -> Any:
        return self.gradients(x, dout, ops.where(ops.greater(x, 0), dout * self.k, dout * self.leak))

    def primitive(self, x: Tensor) -> Tensor:
        return ops.maximum(x, 0.0) * self.k + ops.minimum(x, 0.0) * self.leak + 0.5


class PiecewiseLeakyReLU(Surrogate):
    """The step function with a rectangle as derivative that does not fall to 0.

    derivative: 1 / (2 w) where |x| < w, else c
    primitive: y / (2 w) + c (x - y) + 1 / 2 with y = x limited to [-w, w]

    Args:
        w: half the width of the rectangle, in units of the potential, positive.
        c: the derivative outside of it, not negative. Both are learned where they are Parameters.

    Source: Wu et al., "Direct Training for Spiking Neural Networks: Faster, Larger, Better", AAAI 2019.

    Elsewhere:
        SpikingJelly: PiecewiseLeakyReLU(w=1, c=0.01).

    Example:
        >>> print(grad(snncell.surrogate.PiecewiseLeakyReLU())(Tensor([-0.1, 0.0, 1.5])).asnumpy().round(3))
        [0.5  0.5  0.01]
    """

    w: Constant
    c: Constant
    ranges: ClassVar = {"c": NOT_NEGATIVE}

    def __init__(self, w: Any = 1.0, c: Any = 0.01) -> None:
        super().__init__(w=w, c=c)

    def bprop(self, x: Tensor, out: Tensor, dout: Tensor) -> Any:
        inside = ops.less(ops.abs(x), self.w)
        return self.gradients(x, dout, ops.where(inside, dout * (0.5 / self.w), dout * self.c))

    def primitive(self, x: Tensor) -> Tensor:
        inside = ops.clip(x, -self.w, self.w)
        return inside * (0.5 / self.w) + (x - inside) * self.c + 0.5


class LogTailedReLU(Surrogate):
    """The step function with the derivative of a ReLU that goes on as a logarithm from 1 on.

    primitive: alpha x below 0, x up to 1, log(x) + 1 from there on, each plus 1 / 2
    derivative: alpha where x <= 0, 1 up to 1, 1 / x from there on

    Args:
        alpha: the derivative up to the threshold, not negative; a Parameter is learned.

    Source: Cai et al., "Deep Learning with Low Precision by Half-wave Gaussian Quantization", CVPR 2017.

    Elsewhere:
        SpikingJelly: LogTailedReLU(alpha=0), its primitive being less by 1 / 2.

    Example:
        >>> print(grad(snncell.surrogate.LogTailedReLU())(Tensor([-0.1, 0.5, 2.0])).asnumpy().round(3))
        [0.  1.  0.5]
    """

    alpha: Constant
    ranges: ClassVar = {"alpha": NOT_NEGATIVE}

    def __init__(self, alpha: Any = 0.0) -> None:
        super().__init__(alpha=alpha)

    def bprop(self, x: Tensor, out: Tensor, dout: Tensor) -> Any:
        above = dout / ops.maximum(x, 1.0)
        return self.gradients(x, dout, ops.where(ops.greater(x, 0), above, dout * self.alpha))

    def primitive(self, x: Tensor) -> Tensor:
        tail = ops.log(ops.maximum(x, 1.0)) + 1.0
        above = ops.where(ops.greater(x, 1.0), tail, ops.maximum(x, 0.0))
        return above + ops.minimum(x, 0.0) * self.alpha + 0.5


class S2NN(Surrogate):
    """The step function with the derivative of a sigmoid below the threshold, and of a logarithm above.

    primitive: sigmoid(alpha x) where x < 0, else beta log(1 + x) + 1 / 2
    derivative: alpha s (1 - s) with s = sigmoid(alpha x) where x < 0, else beta / (1 + x)

    Args:
        alpha: sharpness below the threshold, positive.
        beta: the derivative at the threshold, positive. Both are learned where they are Parameters.

    Source: Suetake et al., "S2NN: Time step reduction of spiking surrogate gradients for training energy efficient
    single-step neural networks", Neural Networks 2023.

    Elsewhere:
        SpikingJelly: S2NN(alpha=4, beta=1).

    Example:
        >>> print(grad(snncell.surrogate.S2NN())(Tensor([-0.1, 0.0, 1.0])).asnumpy().round(3))
        [0.961 1.    0.5  ]
    """

    alpha: Constant
    beta: Constant

    def __init__(self, alpha: Any = 4.0, beta: Any = 1.0) -> None:
        super().__init__(alpha=alpha, beta=beta)

    def bprop(self, x: Tensor, out: Tensor, dout: Tensor) -> Any:
        s = ops.sigmoid(x * self.alpha)
        below, above = s * (1.0 - s) * self.alpha, 1.0 / (ops.maximum(x, 0.0) + 1.0) * self.beta
        return self.gradients(x, dout, dout * ops.where(ops.less(x, 0), below, above))

    def primitive(self, x: Tensor) -> Tensor:
        return ops.sigmoid(ops.minimum(x, 0.0) * self.alpha) + ops.log1p(ops.maximum(x, 0.0)) * self.beta
