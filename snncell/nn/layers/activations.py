"""Activation functions as Cells, and by their names, as `Dense` takes them."""

from __future__ import annotations

from typing import Any

from snncell import dtype as dtypes, ops
from snncell.base.arguments.kinds import Constant, Count, Extended, FloatDtype, NotNegative, Positive
from snncell.cell.cell import Cell
from snncell.errors import ArgumentError, ShapeError
from snncell.tape.parameter import Parameter
from snncell.tape.tensor import Tensor

__all__ = [
    "CELU",
    "ELU",
    "GELU",
    "GLU",
    "HShrink",
    "HSigmoid",
    "HSwish",
    "Hardtanh",
    "LeakyReLU",
    "LogSigmoid",
    "LogSoftmax",
    "Mish",
    "PReLU",
    "ReLU",
    "ReLU6",
    "SeLU",
    "SiLU",
    "Sigmoid",
    "SoftShrink",
    "Softmax",
    "Softmin",
    "Softplus",
    "Softsign",
    "Tanh",
    "Tanhshrink",
    "Threshold",
]


class ReLU(Cell):
    """Rectified linear unit (ReLU): max(x, 0)."""

    def construct(self, x: Tensor) -> Tensor:
        return ops.relu(x)


class ReLU6(Cell):
    """ReLU limited to 6: min(max(x, 0), 6)."""

    def construct(self, x: Tensor) -> Tensor:
        return ops.relu6(x)


class LeakyReLU(Cell):
    """Leaky ReLU: x where x > 0, else alpha x."""

    def __init__(self, alpha: float = 0.2) -> None:
        super().__init__()
        self.alpha = alpha

    def construct(self, x: Tensor) -> Tensor:
        return ops.leaky_relu(x, self.alpha)

    def extend_repr(self) -> str:
        return f"alpha={self.alpha}"


class GELU(Cell):
    """Gaussian error linear unit (GELU): x Phi(x); approximated by tanh if `approximate`."""

    def __init__(self, approximate: bool = True) -> None:
        super().__init__()
        self.approximate = approximate

    def construct(self, x: Tensor) -> Tensor:
        return ops.gelu(x, "tanh" if self.approximate else "none")


class Sigmoid(Cell):
    """Logistic sigmoid: 1 / (1 + exp(-x))."""

    def construct(self, x: Tensor) -> Tensor:
        return ops.sigmoid(x)


class Tanh(Cell):
    """Hyperbolic tangent."""

    def construct(self, x: Tensor) -> Tensor:
        return ops.tanh(x)


class Softplus(Cell):
    """Softplus: log(1 + exp(beta x)) / beta; x where beta x exceeds `threshold`, if given. See `ops.softplus`."""

    def __init__(self, beta: Positive = 1.0, threshold: float | None = None) -> None:
        super().__init__()
        self.beta, self.threshold = beta, threshold

    def construct(self, x: Tensor) -> Tensor:
        return ops.softplus(x, self.beta, self.threshold)

    def extend_repr(self) -> str:
        return "" if (self.beta, self.threshold) == (1.0, None) else f"beta={self.beta}, threshold={self.threshold}"


class SiLU(Cell):
    """Sigmoid linear unit (SiLU, swish): x / (1 + exp(-x))."""

    def construct(self, x: Tensor) -> Tensor:
        return ops.silu(x)


class Mish(Cell):
    """Mish: x tanh(log(1 + exp(x)))."""

    def construct(self, x: Tensor) -> Tensor:
        return ops.mish(x)


class Softsign(Cell):
    """Softsign: x / (1 + |x|)."""

    def construct(self, x: Tensor) -> Tensor:
        return ops.softsign(x)


class LogSigmoid(Cell):
    """Logarithm of the sigmoid: log(1 / (1 + exp(-x)))."""

    def construct(self, x: Tensor) -> Tensor:
        return ops.logsigmoid(x)


class Tanhshrink(Cell):
    """Tanh shrinkage: x - tanh(x)."""

    def construct(self, x: Tensor) -> Tensor:
        return ops.tanhshrink(x)


class GLU(Cell):
    """Gated linear unit (GLU): a / (1 + exp(-b)), where a and b are the halves of x along an axis."""

    def __init__(self, axis: int = -1) -> None:
        super().__init__()
        self.axis = axis

    def construct(self, x: Tensor) -> Tensor:
        return ops.glu(x, self.axis)

    def extend_repr(self) -> str:
        return f"axis={self.axis}"


class Softmax(Cell):
    """Softmax: exp(x) / sum(exp(x)) along an axis."""

    def __init__(self, axis: int = -1) -> None:
        super().__init__()
        self.axis = axis

    def construct(self, x: Tensor) -> Tensor:
        return ops.softmax(x, self.axis)


class LogSoftmax(Softmax):
    """Logarithm of the softmax along an axis: log(softmax(x))."""

    def construct(self, x: Tensor) -> Tensor:
        return ops.log_softmax(x, self.axis)


class Softmin(Softmax):
    """Softmin: exp(-x) / sum(exp(-x)) along an axis."""

    def construct(self, x: Tensor) -> Tensor:
        return ops.softmin(x, self.axis)


class ELU(Cell):
    """Exponential linear unit (ELU): x where x > 0, else alpha (exp(x) - 1)."""

    operation = staticmethod(ops.elu)

    def __init__(self, alpha: float = 1.0) -> None:
        super().__init__()
        self.alpha = alpha

    def construct(self, x: Tensor) -> Tensor:
        return self.operation(x, self.alpha)

    def extend_repr(self) -> str:
        return f"alpha={self.alpha}"


class CELU(ELU):
    """Continuously differentiable ELU (CELU): x where x > 0, else alpha (exp(x / alpha) - 1)."""

    operation = staticmethod(ops.celu)

    def __init__(self, alpha: float = 1.0) -> None:
        if alpha == 0:
            raise ArgumentError("CELU: alpha is a number other than 0, by which x is divided.")
        super().__init__(alpha)


class SeLU(Cell):
    """Scaled ELU (SELU): 1.0507 elu(x, 1.67326)."""

    def construct(self, x: Tensor) -> Tensor:
        return ops.selu(x)


class Hardtanh(Cell):
    """Hard tanh: x limited to [min_val, max_val]."""

    def __init__(self, min_val: float = -1.0, max_val: float = 1.0) -> None:
        super().__init__()
        if not min_val < max_val:
            raise ArgumentError(f"Hardtanh: min_val={min_val!r} must be below max_val={max_val!r}.")
        self.min_val, self.max_val = min_val, max_val

    def construct(self, x: Tensor) -> Tensor:
        return ops.hardtanh(x, self.min_val, self.max_val)

    def extend_repr(self) -> str:
        return f"min_val={self.min_val}, max_val={self.max_val}"


class HSigmoid(Cell):
    """Hard sigmoid: (x + 3) / 6, limited to [0, 1]."""

    def construct(self, x: Tensor) -> Tensor:
        return ops.hardsigmoid(x)


class HSwish(Cell):
    """Hard swish: x (x + 3) / 6 between -3 and 3, 0 below and x above."""

    def construct(self, x: Tensor) -> Tensor:
        return ops.hardswish(x)


class HShrink(Cell):
    """Hard shrinkage: x where |x| > lambd, else 0."""

    operation = staticmethod(ops.hardshrink)

    def __init__(self, lambd: NotNegative = 0.5) -> None:
        super().__init__()
        self.lambd = lambd

    def construct(self, x: Tensor) -> Tensor:
        return self.operation(x, self.lambd)

    def extend_repr(self) -> str:
        return f"lambd={self.lambd}"


class SoftShrink(HShrink):
    """Soft shrinkage: x moved towards 0 by lambd, and 0 where |x| <= lambd."""

    operation = staticmethod(ops.softshrink)


class Threshold(Cell):
    """Threshold: x where x > threshold, else `value`, with no gradient there."""

    def __init__(self, threshold: Extended, value: float) -> None:
        super().__init__()
        self.threshold, self.value = threshold, value

    def construct(self, x: Tensor) -> Tensor:
        return ops.select(ops.gt(x, self.threshold), x, self.value)

    def extend_repr(self) -> str:
        return f"threshold={self.threshold}, value={self.value}"


class PReLU(Cell):
    """Parametric ReLU (PReLU): x where x > 0, else w x, with w learned: one, or one for each channel.

    Args:
        channel: the number of weights, 1 or C.
        w: what they begin at: a number, or one for each.
        dtype: of the Parameter.

    Inputs:
        x: any shape; (N, C, ...) with several weights.

    Raises:
        ShapeError: for as many initial values as are neither one nor `channel`, or an input of other channels.

    Source: He, Zhang, Ren and Sun, "Delving Deep into Rectifiers", ICCV 2015.

    Example:
        >>> nn.PReLU()(Tensor([-4.0, 2.0])).asnumpy().tolist()
        [-1.0, 2.0]
    """

    def __init__(self, channel: Count = 1, w: Constant = 0.25, dtype: FloatDtype = dtypes.float32) -> None:
        super().__init__()
        begin = ops.cast(w, dtype)
        if begin.size != 1 and begin.shape != (channel,):
            raise ShapeError(f"PReLU: w has shape {begin.shape}; it is one number, or channel={channel} of them.")
        self.channel = channel
        self.w = Parameter(ops.broadcast_to(begin.reshape((-1,)), (channel,)))

    def construct(self, x: Tensor) -> Tensor:
        return ops.prelu(x, self.w)

    def extend_repr(self) -> str:
        return f"channel={self.channel}"


_SMOOTH = (GELU, LogSigmoid, LogSoftmax, Mish, Sigmoid, SiLU, Softmax, Softplus, Softsign, Tanh, Tanhshrink)
_PIECEWISE = (ELU, Hardtanh, HShrink, HSigmoid, HSwish, LeakyReLU, PReLU, ReLU, ReLU6, SeLU, SoftShrink)
_BY_NAME: dict[str, Any] = {kind.__name__.lower(): kind for kind in (*_SMOOTH, *_PIECEWISE)} | {"swish": SiLU}


def find_activation(activation: Any, who: str) -> Any:
    """An activation by name, or as it is."""
    if not isinstance(activation, str):
        return activation
    if activation not in _BY_NAME:
        raise ArgumentError(f"{who}: no activation {activation!r}; there are {', '.join(sorted(_BY_NAME))}.")
    return _BY_NAME[activation]()
