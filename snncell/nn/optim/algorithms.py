"""Optimisers: SGD, Momentum, RMSProp, Adam, AdamW, AdaMax. g is the gradient and p the Parameter in all formulas."""

from __future__ import annotations

from typing import Any

from snncell import ops
from snncell.base.arguments.kinds import NotNegative, Positive
from snncell.errors import ArgumentError
from snncell.nn.optim.optimizer import BelowOne, Optimizer
from snncell.nn.optim.schedules import Rate
from snncell.tape.parameter import Parameter
from snncell.tape.tensor import Tensor

__all__ = ["SGD", "AdaMax", "Adam", "AdamW", "Momentum", "RMSProp"]


class SGD(Optimizer):
    """Stochastic gradient descent (SGD), with momentum or Nesterov momentum.

        b = momentum b + (1 - dampening) g       b = g at the first step
        p = p - rate b                           or p - rate (g + momentum b) with nesterov

    Args:
        params, learning_rate, weight_decay, loss_scale: see `Optimizer`.
        momentum: decay factor of b; 0 uses the gradient alone, and 0.9 is common.
        dampening: the share of the gradient that does not enter b.
        nesterov: whether to use Nesterov momentum. It needs a momentum above 0 and no dampening.
    Source: Sutskever et al., ICML 2013.
    Example:
        >>> p = Parameter([1.0, 2.0], name="p")
        >>> _ = nn.SGD([p], learning_rate=0.5)([Tensor([1.0, -1.0])])  # a gradient for each Parameter
        >>> p.tolist()
        [0.5, 2.5]
    """

    def __init__(
        self,
        params: Any,
        learning_rate: Rate = 0.1,
        momentum: NotNegative = 0.0,
        dampening: NotNegative = 0.0,
        weight_decay: NotNegative = 0.0,
        nesterov: bool = False,
        loss_scale: Positive = 1.0,
    ) -> None:
        super().__init__(params, learning_rate, weight_decay, loss_scale)
        self.accum: list[Parameter] = []
        self.momentum, self.dampening = momentum, dampening
        self.nesterov = nesterov

    def settle(self) -> None:
        if "nesterov" not in vars(self):
            return
        if self.nesterov and (not self.momentum or self.dampening):
            raise ArgumentError(f"{type(self).__name__}: nesterov needs a momentum above 0 and no dampening.")
        if self.momentum and not self.accum:
            self.accum = self.like_parameters("accum")

    def updated(self, index: int, parameter: Tensor, grad: Tensor, rate: Tensor, step: Tensor) -> Tensor:
        if not self.momentum:
            return parameter - grad * rate
        accum = self.accum[index]
        fresh = grad * (1.0 - self.dampening)
        if self.dampening:
            fresh = ops.select(ops.equal(step, 1), grad, fresh)
        moved = accum * self.momentum + fresh
        accum.assign(moved)
        return parameter - (grad + moved * self.momentum if self.nesterov else moved) * rate


class Momentum(SGD):
    """SGD with momentum, by MindSpore's argument names: `SGD` with dampening=0, where use_nesterov is nesterov."""

    def __init__(
        self,
        params: Any,
        learning_rate: Rate,
        momentum: NotNegative,
        weight_decay: NotNegative = 0.0,
        use_nesterov: bool = False,
        loss_scale: Positive = 1.0,
    ) -> None:
        super().__init__(params, learning_rate, momentum, 0.0, weight_decay, use_nesterov, loss_scale)

    @property
    def use_nesterov(self) -> bool:
        """The constructor's name for `nesterov`."""
        return self.nesterov

    @use_nesterov.setter
    def use_nesterov(self, value: bool) -> None:
        self.nesterov = value


class RMSProp(Optimizer):
    """RMSProp: divide gradients by the root of their mean square.

        s = decay s + (1 - decay) g^2
        m = momentum m + rate g / sqrt(s + epsilon)
        p = p - m

    Args:
        params, learning_rate, weight_decay, loss_scale: see `Optimizer`.
        decay: decay factor of the mean square s.
        momentum: decay factor of the step m.
        epsilon: added to s, so that the step does not divide by 0.
        centered: whether to subtract the square of the moving mean of g from s, which makes it a variance.
    Source: Hinton, Neural Networks for Machine Learning, lecture 6e.
    """

    def __init__(
        self,
        params: Any,
        learning_rate: Rate = 0.1,
        decay: BelowOne = 0.9,
        momentum: NotNegative = 0.0,
        epsilon: NotNegative = 1e-10,
        centered: bool = False,
        weight_decay: NotNegative = 0.0,
        loss_scale: Positive = 1.0,
    ) -> None:
        super().__init__(params, learning_rate, weight_decay, loss_scale)
        self.decay, self.momentum, self.epsilon = decay, momentum, epsilon
        self.mean_square = self.like_parameters("mean_square")
        self.moment = self.like_parameters("moment")
        self.mean_grad: list[Parameter] = []
        self.centered = centered

    def settle(self) -> None:
        if vars(self).get("centered") and not self.mean_grad:
            self.mean_grad = self.like_parameters("mean_grad")

    def updated(self, index: int, parameter: Tensor, grad: Tensor, rate: Tensor, step: Tensor) -> Tensor:
        mean_square = self.mean_square[index] * self.decay + ops.square(grad) * (1.0 - self.decay)
        self.mean_square[index].assign(mean_square)
        spread = mean_square
        if self.centered:
            mean_grad = self.mean_grad[index] * self.decay + grad * (1.0 - self.decay)
            self.mean_grad[index].assign(mean_grad)
            spread = mean_square - ops.square(mean_grad)
        moment = self.moment[index] * self.momentum + grad * rate / ops.sqrt(spread + self.epsilon)
        self.moment[index].assign(moment)
        return parameter - moment


class Adam(Optimizer):
    """Adam: adaptive moment estimation, the usual first choice for spiking networks.

        m = beta1 m + (1 - beta1) g              m^ = m / (1 - beta1^t) at step t
        v = beta2 v + (1 - beta2) g^2            v^ = v / (1 - beta2^t)
        p = p - rate m^ / (sqrt(v^) + eps)

    Args:
        params, learning_rate, loss_scale: see `Optimizer`.
        beta1, beta2: decay factors of the means of g and g^2; the defaults are the paper's.
        eps: added to the root, so that the step does not divide by 0.
        weight_decay: added to the gradient, times the Parameter; use `AdamW` to decouple it.
        use_amsgrad: whether to use the largest v so far, so that the effective rate of an element never grows.
    Source: Kingma and Ba, "Adam", ICLR 2015; Reddi, Kale and Kumar, "On the convergence of Adam and beyond", ICLR 2018.
    Example:
        >>> net, loss = nn.Dense(3, 2), nn.MSELoss()
        >>> optimiser = nn.Adam(net.trainable_params(), 1e-2)
        >>> gradients_of = value_and_grad(lambda x, y: loss(net(x), y), None, optimiser.parameters)
        >>> value, gradients = gradients_of(ops.ones((4, 3)), ops.zeros((4, 2)))
        >>> _ = optimiser(gradients)
        >>> optimiser.global_step.item()
        1
    """

    def __init__(
        self,
        params: Any,
        learning_rate: Rate = 1e-3,
        beta1: BelowOne = 0.9,
        beta2: BelowOne = 0.999,
        eps: NotNegative = 1e-8,
        weight_decay: NotNegative = 0.0,
        loss_scale: Positive = 1.0,
        use_amsgrad: bool = False,
    ) -> None:
        super().__init__(params, learning_rate, weight_decay, loss_scale)
        self.moment1, self.moment2 = self.like_parameters("moment1"), self.like_parameters("moment2")
        self.largest: list[Parameter] = []
        self.beta1, self.beta2, self.eps, self.use_amsgrad = beta1, beta2, eps, use_amsgrad

    def settle(self) -> None:
        if vars(self).get("use_amsgrad") and not self.largest:
            self.largest = self.like_parameters("largest")

    def updated(self, index: int, parameter: Tensor, grad: Tensor, rate: Tensor, step: Tensor) -> Tensor:
        moment1 = self.moment1[index] * self.beta1 + grad * (1.0 - self.beta1)
        moment2 = self.moment2[index] * self.beta2 + ops.square(grad) * (1.0 - self.beta2)
        self.moment1[index].assign(moment1)
        self.moment2[index].assign(moment2)
        if self.use_amsgrad:
            moment2 = ops.maximum(self.largest[index], moment2)
            self.largest[index].assign(moment2)
        # The corrections are scalars, so they are folded into the rate.
        t = step.astype(parameter.dtype)
        correct1, correct2 = 1.0 - ops.pow(self.beta1, t), ops.sqrt(1.0 - ops.pow(self.beta2, t))
        return self.decayed(index, parameter, rate) - (rate * correct2 / correct1) * moment1 / (
            ops.sqrt(moment2) + self.eps * correct2
        )

    def decayed(self, index: int, parameter: Tensor, rate: Tensor) -> Tensor:
        """The Parameter before the step; `AdamW` decays it here."""
        return parameter


class AdamW(Adam):
    """Adam with decoupled weight decay: p = p - rate * weight_decay * p - (Adam's step).

    Use it if you want weight decay, because the decay then does not depend on the size of the gradients.
    Source: Loshchilov and Hutter, "Decoupled Weight Decay Regularization", ICLR 2019.
    """

    decays_gradient = False

    def __init__(
        self,
        params: Any,
        learning_rate: Rate = 1e-3,
        beta1: BelowOne = 0.9,
        beta2: BelowOne = 0.999,
        eps: NotNegative = 1e-8,
        weight_decay: NotNegative = 0.01,
        loss_scale: Positive = 1.0,
        use_amsgrad: bool = False,
    ) -> None:
        super().__init__(params, learning_rate, beta1, beta2, eps, weight_decay, loss_scale, use_amsgrad)

    def decayed(self, index: int, parameter: Tensor, rate: Tensor) -> Tensor:
        decay = self.group_of(index).weight_decay
        return parameter * (1.0 - rate * decay) if decay else parameter


class AdaMax(Optimizer):
    """AdaMax: Adam with the largest recent gradient in place of the root of the mean square.

        m = beta1 m + (1 - beta1) g
        u = max(beta2 u, |g|)
        p = p - rate / (1 - beta1^t) m / (u + eps)

    Source: Kingma and Ba, "Adam", ICLR 2015, section 7; eps is placed as in MindSpore.
    Example:
        >>> p = Parameter([1.0, 2.0], name="p")
        >>> _ = nn.AdaMax([p], 0.5)([Tensor([3.0, -0.1])])
        >>> [round(value, 4) for value in p.tolist()]
        [0.5, 2.5]
    """

    def __init__(
        self,
        params: Any,
        learning_rate: Rate = 1e-3,
        beta1: BelowOne = 0.9,
        beta2: BelowOne = 0.999,
        eps: NotNegative = 1e-8,
        weight_decay: NotNegative = 0.0,
        loss_scale: Positive = 1.0,
    ) -> None:
        super().__init__(params, learning_rate, weight_decay, loss_scale)
        self.moment1 = self.like_parameters("moment1")
        self.largest = self.like_parameters("largest")
        self.beta1, self.beta2, self.eps = beta1, beta2, eps

    def updated(self, index: int, parameter: Tensor, grad: Tensor, rate: Tensor, step: Tensor) -> Tensor:
        moment1 = self.moment1[index] * self.beta1 + grad * (1.0 - self.beta1)
        largest = ops.maximum(self.largest[index] * self.beta2, ops.abs(grad))
        self.moment1[index].assign(moment1)
        self.largest[index].assign(largest)
        correct = 1.0 - ops.pow(self.beta1, step.astype(parameter.dtype))
        return parameter - (rate / correct) * moment1 / (largest + self.eps)
