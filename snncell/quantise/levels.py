"""Grids of few levels: binary, ternary, powers of two."""

from __future__ import annotations

from typing import Annotated, Any

from snncell import ops
from snncell.base.arguments.kinds import Positive, Within
from snncell.quantise.quantiser import Grid, Quantiser, ScaleBits, positive_or_one, short
from snncell.quantise.scales import largest, mean
from snncell.tape.tensor import Tensor

LEAST_EXPONENT = -64  # of the largest power of two; below it, weights are as good as 0


class _PerChannel(Quantiser):
    """A quantiser with one step, or one for each place along an axis."""

    def __init__(self, per_channel: bool, axis: int, scale_bits: int | None) -> None:
        super().__init__()
        self.per_channel, self.axis, self.scale_bits = per_channel, axis, scale_bits

    @property
    def _axis(self) -> int | None:
        return self.axis if self.per_channel else None

    def extend_repr(self) -> str:
        channels = f"per_channel=True, axis={self.axis}, " if self.per_channel else ""
        return f"{channels}scale_bits={self.scale_bits}"


class Ternary(_PerChannel):
    """Weights that are -s, 0 or s, each the nearest in the sense of Ternary Weight Networks.

    Q(w) = s sign(w) where |w| > threshold mean |w|, else 0;   s = mean of |w| over those;   dQ/dw = 1

    Args:
        threshold: in mean magnitudes; 0.7 is nearly the least squared error for normal and even weights.
        per_channel, axis, scale_bits: as for `Uniform`.

    Source: Li, Zhang and Liu, "Ternary Weight Networks", 2016.

    Example:
        >>> print(snncell.quantise.Ternary()(Tensor([-1.0, 0.1, 0.5])))
        [-0.75  0.    0.75]
    """

    def __init__(
        self, threshold: Positive = 0.7, *, per_channel: bool = False, axis: int = 0, scale_bits: ScaleBits = 8
    ) -> None:
        super().__init__(per_channel, axis, scale_bits)
        self.threshold = threshold

    def grid(self, x: Tensor) -> Grid:
        size = ops.abs(x)
        edge = mean(size, self._axis) * self.threshold
        over_it = ops.gt(size, edge).astype(x.dtype)
        share = positive_or_one(mean(over_it, self._axis))
        return short(positive_or_one(mean(size * over_it, self._axis) / share), self.scale_bits), edge

    def rounded(self, x: Tensor, *grid: Any) -> Any:
        step, edge = grid
        return ops.sign(x) * ops.gt(ops.abs(x), edge).astype(x.dtype) * step


class Binary(_PerChannel):
    """Weights that are -s or s: their sign, times the mean magnitude.

    Q(w) = s where w >= 0, else -s;   s = mean |w|;   dQ/dw = 1 where |w| <= limit, else 0

    Args:
        limit: beyond which weights have no gradient, so that they do not grow for ever.
        per_channel, axis, scale_bits: as for `Uniform`.

    Source: Courbariaux, Bengio and David, "BinaryConnect", NeurIPS 2015; Rastegari et al., "XNOR-Net", ECCV 2016 (s).

    Example:
        >>> print(snncell.quantise.Binary()(Tensor([-1.0, 0.0, 0.5])))
        [-0.5  0.5  0.5]
    """

    def __init__(
        self, limit: Positive = 1.0, *, per_channel: bool = False, axis: int = 0, scale_bits: ScaleBits = 8
    ) -> None:
        super().__init__(per_channel, axis, scale_bits)
        self.limit = limit

    def grid(self, x: Tensor) -> Grid:
        average = short(mean(ops.abs(x), self._axis), self.scale_bits)
        return positive_or_one(average), average

    def rounded(self, x: Tensor, *grid: Any) -> Any:
        _, average = grid
        return ops.select(ops.lt(x, 0.0), -average, average)

    def smooth(self, x: Tensor, *grid: Any) -> Any:
        return ops.clip(x, -self.limit, self.limit)

    def passes(self, x: Tensor, *grid: Any) -> Any:
        return ops.le(ops.abs(x), self.limit)


class PowerOfTwo(_PerChannel):
    """Weights that are 0 or, with a sign, a power of two: a product with one is a shift.

    Q(w) = sign(w) 2^k, the nearest of the powers from 2^(K - m + 1) to 2^K, or 0;   dQ/dw = 1

    with m = 2^(bits - 1) - 1 powers, and 2^K the one nearest to the largest magnitude.

    Args:
        bits: from 2 to 5: one for the sign, the others name a power or 0.
        per_channel, axis: as for `Uniform`.

    Source: Zhou et al., "Incremental Network Quantization: Towards Lossless CNNs with Low-Precision Weights", ICLR
    2017.

    Example:
        >>> print(snncell.quantise.PowerOfTwo(3)(Tensor([-1.0, 0.3, 0.1, 0.4])))  # 1, 1/2, 1/4 and 0
        [-1.    0.25  0.    0.5 ]
    """

    def __init__(self, bits: Annotated[int, Within(2, 5)] = 4, *, per_channel: bool = False, axis: int = 0) -> None:
        super().__init__(per_channel, axis, 1)
        self.bits = bits

    def grid(self, x: Tensor) -> Grid:
        top = ops.maximum(largest(x, self._axis), 2.0**LEAST_EXPONENT)
        lowest = 2.0 ** (2 - 2 ** (self.bits - 1))  # of the powers, of the largest
        return short(top, 1) * lowest, short(top, 1)

    def rounded(self, x: Tensor, *grid: Any) -> Any:
        step, top = grid
        size = ops.abs(x)
        power = ops.minimum(short(ops.maximum(size, step), 1), top)
        return ops.sign(x) * ops.select(ops.le(size, step * 0.5), 0.0, power)

    def extend_repr(self) -> str:
        return f"bits={self.bits}" + (f", per_channel=True, axis={self.axis}" if self.per_channel else "")
