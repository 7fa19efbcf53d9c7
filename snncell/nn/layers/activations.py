"""Activation functions and dropout. `find_activation` looks activations up by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, ClassVar

from snncell import ops
from snncell.base.arguments.guard import ByName
from snncell.base.arguments.kinds import Constant, Count, ExtendedReal, FloatDtype, NotNegative, Positive, Probability
from snncell.cell.cell import Cell
from snncell.cell.fields import field, fields_defined_with, with_fields
from snncell.dtype import float32
from snncell.errors import ArgumentError, ShapeError
from snncell.nn.time.axis import check_time_axis
from snncell.tape.parameter import Parameter
from snncell.tape.tensor import Tensor, snapshot

__all__ = [
    "CELU", "ELU", "GELU", "GLU", "Dropout", "Dropout1d", "Dropout2d", "HShrink", "HSigmoid", "HSwish", "Hardtanh",
    "LeakyReLU", "LogSigmoid", "LogSoftmax", "Mish", "PReLU", "ReLU", "ReLU6", "SeLU", "SiLU", "Sigmoid",
    "SoftShrink", "Softmax", "Softmin", "Softplus", "Softsign", "Tanh", "Tanhshrink", "Threshold",
    "TimeFixedDropout", "TimeFixedDropout2d",
]  # fmt: skip


class OperationCell(Cell):
    """Base of Cells that call one operation: `class ReLU(_Activation, operation=ops.relu)`."""

    operation: ClassVar[Callable[..., Tensor]]

    def __init_subclass__(cls, operation: Callable[..., Tensor] | None = None, **options: Any) -> None:
        super().__init_subclass__(**options)
        if operation is not None:
            cls.operation = staticmethod(operation)


class _Activation(OperationCell):
    """Base of activations: calls `operation` with the input and the fields of the class, in order."""

    def construct(self, x: Tensor) -> Tensor:
        return self.operation(x, *(getattr(self, name) for name in fields_defined_with(type(self), "operation")))


class ReLU(_Activation, operation=ops.relu):
    """Rectified linear unit (ReLU): max(x, 0)."""


class ReLU6(_Activation, operation=ops.relu6):
    """ReLU limited to 6: min(max(x, 0), 6)."""


class SiLU(_Activation, operation=ops.silu):
    """Sigmoid linear unit (SiLU, swish): x / (1 + exp(-x))."""


class Mish(_Activation, operation=ops.mish):
    """Mish: x tanh(log(1 + exp(x)))."""


class Sigmoid(_Activation, operation=ops.sigmoid):
    """Logistic sigmoid: 1 / (1 + exp(-x))."""


class LogSigmoid(_Activation, operation=ops.logsigmoid):
    """Logarithm of the sigmoid: log(1 / (1 + exp(-x)))."""


class HSigmoid(_Activation, operation=ops.hardsigmoid):
    """Hard sigmoid: (x + 3) / 6, limited to [0, 1]."""


class HSwish(_Activation, operation=ops.hardswish):
    """Hard swish: x (x + 3) / 6 between -3 and 3, 0 below and x above."""


class Tanh(_Activation, operation=ops.tanh):
    """Hyperbolic tangent."""


class Tanhshrink(_Activation, operation=ops.tanhshrink):
    """Tanh shrinkage: x - tanh(x)."""


class Softsign(_Activation, operation=ops.softsign):
    """Softsign: x / (1 + |x|)."""


class SeLU(_Activation, operation=ops.selu):
    """Scaled ELU (SELU): 1.0507 elu(x, 1.67326)."""


@with_fields
class LeakyReLU(_Activation, operation=ops.leaky_relu):
    """Leaky ReLU: x if x > 0, else alpha x."""

    alpha: float = field(0.2, meaning="slope for negative x; 0.2 as in MindSpore, where PyTorch has 0.01")


@with_fields
class ELU(_Activation, operation=ops.elu):
    """Exponential linear unit (ELU): x if x > 0, else alpha (exp(x) - 1)."""

    alpha: float = field(1.0, meaning="factor of the negative part")


class CELU(ELU, operation=ops.celu):
    """Continuously differentiable ELU (CELU): x if x > 0, else alpha (exp(x / alpha) - 1), where alpha is not 0."""

    def _complete(self, given: dict[str, Any]) -> None:
        if self.alpha == 0:
            raise ArgumentError("CELU: alpha must not be 0, because x is divided by it.")


@with_fields
class GELU(Cell):
    """Gaussian error linear unit (GELU): x Phi(x)."""

    approximate: bool = field(True, meaning="whether to approximate Phi, the normal distribution, by tanh", quiet=True)

    def construct(self, x: Tensor) -> Tensor:
        return ops.gelu(x, "tanh" if self.approximate else "none")


@with_fields
class Softplus(_Activation, operation=ops.softplus):
    """Softplus: log(1 + exp(beta x)) / beta; see `ops.softplus`."""

    beta: Positive = field(1.0, meaning="steepness", quiet=True)
    threshold: float | None = field(None, meaning="return x if beta x exceeds it; None never does", quiet=True)


@with_fields
class HShrink(_Activation, operation=ops.hardshrink):
    """Hard shrinkage: x if |x| > lambd, else 0."""

    lambd: NotNegative = field(0.5, meaning="largest |x| that becomes 0")


class SoftShrink(HShrink, operation=ops.softshrink):
    """Soft shrinkage: x moved towards 0 by lambd, and 0 if |x| <= lambd."""


@with_fields
class Hardtanh(_Activation, operation=ops.hardtanh):
    """Hard tanh: x limited to [min_val, max_val]."""

    min_val: float = field(-1.0, meaning="smallest result")
    max_val: float = field(1.0, meaning="largest result, above min_val")

    def _complete(self, given: dict[str, Any]) -> None:
        if not self.min_val < self.max_val:
            raise ArgumentError(f"Hardtanh: min_val={self.min_val!r} must be below max_val={self.max_val!r}.")


@with_fields
class Threshold(Cell):
    """Threshold: x if x > threshold, else `value`, where the gradient is 0."""

    threshold: Annotated[ExtendedReal, field(meaning="number that x must exceed")]
    value: Annotated[float, field(meaning="result if x does not exceed it")]

    def construct(self, x: Tensor) -> Tensor:
        return ops.select(ops.gt(x, self.threshold), x, self.value)


@with_fields
class GLU(_Activation, operation=ops.glu):
    """Gated linear unit (GLU): a / (1 + exp(-b)), where a and b are the halves of x along an axis."""

    axis: int = field(-1, meaning="the axis to split into halves")


@with_fields
class Softmax(_Activation, operation=ops.softmax):
    """Softmax: exp(x) / sum(exp(x)) along an axis."""

    axis: int = field(-1, meaning="axis of the sum", quiet=True)


class LogSoftmax(Softmax, operation=ops.log_softmax):
    """Logarithm of the softmax along an axis: log(softmax(x))."""


class Softmin(Softmax, operation=ops.softmin):
    """Softmin: exp(-x) / sum(exp(-x)) along an axis."""


@with_fields
class PReLU(Cell):
    """Parametric ReLU (PReLU): x if x > 0, else w x, with a learned slope w.
    Inputs: x: any shape; (N, C, ...) with several slopes.
    Source: He, Zhang, Ren and Sun, "Delving Deep into Rectifiers", ICCV 2015.
    Example:
        >>> nn.PReLU()(Tensor([-4.0, 2.0])).asnumpy().tolist()
        [-1.0, 2.0]
    """

    channel: Count = field(1, meaning="the number of slopes: 1 for all channels, or C")
    w: Constant = field(0.25, meaning="initial slope, a number or one per channel; 0.25 is the paper's", keep=False)
    dtype: FloatDtype = field(float32, meaning="dtype of the Parameter", keep=False)

    def _complete(self, given: dict[str, Any]) -> None:
        count, begin = self.channel, ops.cast(given["w"], given["dtype"])
        if begin.size != 1 and begin.shape != (count,):
            raise ShapeError(f"PReLU: w must be one number or channel={count} numbers, but has shape {begin.shape}.")
        self.w = Parameter(ops.broadcast_to(begin.reshape((-1,)), (count,)))

    def construct(self, x: Tensor) -> Tensor:
        return ops.prelu(x, self.w)

    def extend_repr(self) -> str:
        return f"channel={self.channel}"


_SMOOTH = (GELU, LogSigmoid, LogSoftmax, Mish, Sigmoid, SiLU, Softmax, Softplus, Softsign, Tanh, Tanhshrink)
_PIECEWISE = (ELU, Hardtanh, HShrink, HSigmoid, HSwish, LeakyReLU, PReLU, ReLU, ReLU6, SeLU, SoftShrink)
_BY_NAME: dict[str, Any] = {kind.__name__.lower(): kind for kind in (*_SMOOTH, *_PIECEWISE)} | {"swish": SiLU}


def find_activation(activation: Any, who: str) -> Any:
    """Look up an activation by name; return anything else unchanged."""
    if not isinstance(activation, str):
        return activation
    if activation not in _BY_NAME:
        raise ArgumentError(f"{who}: unknown activation {activation!r}. The names are {', '.join(sorted(_BY_NAME))}.")
    return _BY_NAME[activation]()


# --- dropout ----------------------------------------------------------------------------------------------------------


def _keep_prob_warning(keep_prob: float) -> str:
    """The warning for a positional keep_prob that may be meant as p."""
    if keep_prob == 0.5:
        return ""
    dropped = round(1.0 - keep_prob, 12)
    return (
        f"Dropout: the first argument is keep_prob, as in MindSpore, so Dropout({keep_prob:g}) drops {dropped:.4g} of "
        f"the elements. Write Dropout(p={dropped:g}) for that, or Dropout(p={keep_prob:g}) to drop {keep_prob:.4g}."
    )


class Dropout(Cell):
    """Dropout: in training, set each element to 0 with probability p, and divide the others by 1 - p.

    In prediction the output is x. For spiking networks, consider `TimeFixedDropout`, which keeps the mask over time.

    Args:
        keep_prob: 1 - p, as in MindSpore. A positional number gives an ArgumentWarning, because it is often meant as p.
        p: the probability of dropping; it replaces `keep_prob`.
        dtype: accepted for MindSpore's signature; the output always has the dtype of x.
    Example:
        >>> nn.Dropout(p=0.2)(ops.ones(3)).asnumpy().tolist()  # in prediction
        [1.0, 1.0, 1.0]
    """

    def __init__(
        self,
        keep_prob: Annotated[Probability, ByName(_keep_prob_warning)] = 0.5,
        p: Probability | None = None,
        dtype: FloatDtype = float32,
    ) -> None:
        super().__init__()
        self.p = 1.0 - keep_prob if p is None else p
        self._kept = p is None  # whether repr shows keep_prob or p

    def construct(self, x: Tensor) -> Tensor:
        if not self.training:
            return snapshot(x)
        return ops.dropout(x, float(self.p), self.shared_axes(x))

    def shared_axes(self, x: Tensor) -> tuple[int, ...]:
        """The axes that share one mask."""
        return ()

    def extend_repr(self) -> str:
        return f"keep_prob={1.0 - self.p:.12g}" if self._kept else f"p={self.p}"


class _SharedDropout(Dropout):
    """Base of dropouts that drop several elements together."""

    def __init__(self, p: Probability = 0.5) -> None:
        super().__init__(p=p)


class Dropout2d(_SharedDropout):
    """Channel dropout of (N, C, H, W): in training, set channels to 0 with probability p; divide others by 1 - p."""

    def shared_axes(self, x: Tensor) -> tuple[int, ...]:
        return tuple(range(2, x.ndim))


class Dropout1d(_SharedDropout):
    """Channel dropout of (N, C, L) or (C, L): in training, set channels to 0 with probability p; see `Dropout2d`."""

    def shared_axes(self, x: Tensor) -> tuple[int, ...]:
        if x.ndim not in (2, 3):
            raise ShapeError(f"{self!r}: x must be (N, C, L) or (C, L), but has shape {x.shape}.")
        return (x.ndim - 1,)


class TimeFixedDropout(_SharedDropout):
    """Dropout of (T, B, ...) with one mask for all time steps: y[t] = m x[t] / (1 - p).

    The mask m is 0 with probability p, else 1, for each element of a sample. In prediction y is x. Use it instead of
    `Dropout` in spiking networks, because a mask that changes at every step averages out over time.

    Args:
        p: the probability of dropping an element.
    Inputs: x: (T, B, ...).
    Source: Lee et al., "Enabling Spike-Based Backpropagation for Training Deep Neural Network Architectures", 2020.
    Example:
        >>> out = nn.TimeFixedDropout(p=0.5).set_train()(ops.ones((8, 4, 3)))
        >>> bool((out == out[0]).all())
        True
    """

    least = 2

    def shared_axes(self, x: Tensor) -> tuple[int, ...]:
        if x.ndim < self.least:
            layout = "(T, B, ...)" if self.least == 2 else "(T, B, C, ...)"
            raise ShapeError(f"{self!r}: x must be {layout}, but has shape {x.shape}.")
        check_time_axis(x, type(self).__name__)
        return (0,)


class TimeFixedDropout2d(TimeFixedDropout):
    """Channel dropout of (T, B, C, H, W) with one mask for all time steps: y[t, b, c] = m[b, c] x[t, b, c] / (1 - p).

    Args:
        p: the probability of dropping a channel.
    Source: as for `TimeFixedDropout`, with the channels of Tompson et al., CVPR 2015.
    """

    least = 3

    def shared_axes(self, x: Tensor) -> tuple[int, ...]:
        return (*super().shared_axes(x), *range(3, x.ndim))
