"""Activations of one form below a point and of another above it, as Cells; the operations say more of each."""

from __future__ import annotations

from snncell import dtype as dtypes, ops
from snncell.base.arguments.kinds import Constant, Count, FloatDtype, NotNegative
from snncell.cell.cell import Cell
from snncell.errors import ArgumentError, ShapeError
from snncell.tape.parameter import Parameter
from snncell.tape.tensor import Tensor


class ELU(Cell):
    """x where x > 0, else alpha (exp(x) - 1)."""

    operation = staticmethod(ops.elu)

    def __init__(self, alpha: float = 1.0) -> None:
        super().__init__()
        self.alpha = alpha

    def construct(self, x: Tensor) -> Tensor:
        return self.operation(x, self.alpha)

    def extend_repr(self) -> str:
        return f"alpha={self.alpha}"


class CELU(ELU):
    """x where x > 0, else alpha (exp(x / alpha) - 1)."""

    operation = staticmethod(ops.celu)

    def __init__(self, alpha: float = 1.0) -> None:
        if alpha == 0:
            raise ArgumentError("CELU: alpha is a number other than 0, by which x is divided.")
        super().__init__(alpha)


class SeLU(Cell):
    """1.0507 elu(x, 1.67326)."""

    def construct(self, x: Tensor) -> Tensor:
        return ops.selu(x)


class Hardtanh(Cell):
    """x limited to [min_val, max_val]."""

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
    """(x + 3) / 6, limited to [0, 1]."""

    def construct(self, x: Tensor) -> Tensor:
        return ops.hardsigmoid(x)


class HSwish(Cell):
    """x (x + 3) / 6 between -3 and 3, 0 below and x above."""

    def construct(self, x: Tensor) -> Tensor:
        return ops.hardswish(x)


class HShrink(Cell):
    """x where |x| > lambd, else 0."""

    operation = staticmethod(ops.hardshrink)

    def __init__(self, lambd: NotNegative = 0.5) -> None:
        super().__init__()
        self.lambd = lambd

    def construct(self, x: Tensor) -> Tensor:
        return self.operation(x, self.lambd)

    def extend_repr(self) -> str:
        return f"lambd={self.lambd}"


class SoftShrink(HShrink):
    """x moved towards 0 by lambd, and 0 where |x| <= lambd."""

    operation = staticmethod(ops.softshrink)


class PReLU(Cell):
    """x where x > 0, else w x, with w learned: one, or one for each channel.

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
