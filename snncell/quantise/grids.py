"""Grids of quantisers: uniform (whole multiples of a step), ternary, binary, powers of two."""

from __future__ import annotations

import math
from typing import Annotated, Any, ClassVar, Literal

from snncell import ops
from snncell.base.arguments.kinds import Own, Positive, Within
from snncell.base.arguments.shown import came
from snncell.cell.ranges import Range
from snncell.errors import ArgumentError
from snncell.quantise.quantiser import (
    Grid,
    Quantiser,
    ScaleBits,
    at_least_float32,
    largest_magnitude,
    least_error,
    mean_over,
    percentile_of,
    positive_or_one,
    reduce_scale,
    refuse_integers,
    round_scale,
)
from snncell.tape.parameter import Parameter
from snncell.tape.tensor import Tensor

Bits = Annotated[int, Within(2, 16)]
SCALES = ("max", "mse", "percentile", "moving", "learned")
_POSITIVE = Range(0.0, text="is positive and finite")


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


# --- uniform ----------------------------------------------------------------------------------------------------------


class Uniform(_PerChannel):
    """Values rounded to whole multiples of a step, halves to even, within the integers of so many bits.

    Q(x) = s round(clip(x / s, low, high)),   dQ/dx = 1 where low <= x / s <= high, else 0

    low, high = -(2^(bits-1) - 1), 2^(bits-1) - 1             symmetric
    low, high = -z, 2^bits - 1 - z, with z = round(-min / s)   otherwise: an affine grid, whose zero point z is whole

    The step s is

    "max"         max |x| / high, or (max - min) / (2^bits - 1): nothing is clipped
    "mse"         of 17 shares of that, from 0.2 to 1, the one with the least squared error
    "percentile"  by the magnitude that so many percent of the values do not exceed
    "moving"      by an average of max |x| that follows the inputs in training, and stays in prediction
    "learned"     a Parameter, with the gradient of LSQ times 1 / sqrt(high n), n values to a step; it begins at
                  2 mean |x| / sqrt(high)
    a number      that number

    and has `scale_bits` significant bits (rounded up for "max" and "moving", so that nothing is clipped): values on the
    grid and sums of them are then exact in float32, which `quantise.export` needs. With scale_bits=1 it is a power of
    two, a shift.

    Args:
        bits: from 2 to 16.
        scale: one of the above. "learned" and "moving" need `begin(x)` before the first call, as `prepare` does it.
        symmetric: whether zero lies in the middle. "mse", "percentile", "moving", "learned" and numbers are.
        per_channel: whether each place along `axis` has a step of its own.
        axis: the channels'.
        scale_bits: significant bits of the step, from 1 to 16; None leaves it as it is.
        percent: of "percentile".
        momentum: of "moving": how much of the average stays at each step.
        rounding: "nearest", or "stochastic" in training: floor(x / s + u), with u in [0, 1) from the generator that
            `set_seed` sets; in prediction the nearest.

    Raises:
        ArgumentError: for options that do not go together, and in a call for a scale that has not begun.

    Source: Jacob et al., "Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only
    Inference", CVPR 2018; Esser et al., "Learned Step Size Quantization", ICLR 2020; Gupta et al., "Deep Learning with
    Limited Numerical Precision", ICML 2015 (stochastic rounding).

    Example:
        >>> print(snncell.quantise.Uniform(3, scale=0.25)(Tensor([-2.0, -0.3, 0.125, 0.4])))
        [-0.75 -0.25  0.    0.5 ]
    """

    ranges: ClassVar = {"step_size": _POSITIVE}
    narrow = True  # whether -2^(bits-1) is left out, so that every level has its negative

    def __init__(
        self,
        bits: Bits = 8,
        scale: Annotated[str | float, Own()] = "max",
        *,
        symmetric: bool = True,
        per_channel: bool = False,
        axis: int = 0,
        scale_bits: ScaleBits = 8,
        percent: Annotated[float, Within(0.0, 100.0, open_low=True)] = 99.9,
        momentum: Annotated[float, Within(0.0, 1.0)] = 0.9,
        rounding: Literal["nearest", "stochastic"] = "nearest",
    ) -> None:
        super().__init__(per_channel, axis, scale_bits)
        self.bits, self.symmetric = bits, symmetric
        self.percent, self.momentum, self.rounding = percent, momentum, rounding
        self.scale = self._checked_scale(scale)
        if not symmetric and scale != "max":
            raise ArgumentError(f'{type(self).__name__}: symmetric=False goes with scale="max", not {scale!r}.')
        self.high = 2 ** (bits - 1) - 1
        self.low = -self.high if self.narrow else -self.high - 1

    def _checked_scale(self, scale: Any) -> str | float:
        if scale in SCALES:
            return str(scale)
        if isinstance(scale, bool) or not isinstance(scale, (int, float)) or not 0.0 < scale < math.inf:
            known = ", ".join(f'"{one}"' for one in SCALES)
            raise ArgumentError(f"{type(self).__name__}: scale is {known} or a number above 0, not {came(scale)}.")
        if self.scale_bits is None:
            return float(scale)
        digits, exponent = math.frexp(scale)
        return math.ldexp(round(math.ldexp(digits, self.scale_bits)), exponent - self.scale_bits)

    def begin(self, x: Tensor) -> Uniform:
        """The quantiser itself, whose learned step or moving maximum begins by values such as these."""
        refuse_integers(x, self)
        values = at_least_float32(ops.stop_gradient(x))
        if self.scale == "learned":
            start = ops.ones((1,) * x.ndim)
            if x.size:
                start = reduce_scale(ops.mean, ops.abs(values), self._axis) * (2.0 / math.sqrt(self.high))
            self.declare("step_size")
            self.step_size = Parameter(positive_or_one(start), name="step_size")
        if self.scale == "moving":
            top = ops.zeros_like(largest_magnitude(values, self._axis)) if x.size else ops.zeros((1,) * x.ndim)
            self.maximum = Parameter(top, requires_grad=False, name="maximum")
        return self

    @property
    def internal_params(self) -> list[Parameter]:
        """The learned step, which bprop gives a gradient of."""
        step = self.__dict__.get("step_size")
        return [step] if isinstance(step, Parameter) and step.requires_grad else []

    def grid(self, x: Tensor) -> Grid:
        step: Any = self.scale
        if not self.symmetric:  # from the smallest to the largest value, with 0 between them
            least = ops.minimum(reduce_scale(ops.min, x, self._axis), 0.0)
            most = ops.maximum(reduce_scale(ops.max, x, self._axis), 0.0)
            levels = 2.0**self.bits - 1.0
            step = round_scale(positive_or_one((most - least) / levels), self.scale_bits, up=True)
            zero = ops.round(-least / step)
            return step, -zero, levels - zero
        if self.scale == "learned":
            step = round_scale(self._begun("step_size").astype(x.dtype), self.scale_bits)
        elif not isinstance(self.scale, float):
            step = positive_or_one(self._magnitude(x) / float(self.high))
            step = round_scale(step, self.scale_bits, up=self.scale in ("max", "moving"))
        return step, float(self.low), float(self.high)

    def _begun(self, name: str) -> Any:
        if name not in self.__dict__:
            raise ArgumentError(
                f'{type(self).__name__}: scale="{self.scale}" has not begun; call begin(x) with values such as those '
                f"to come, as quantise.prepare(net, ...) does it."
            )
        return getattr(self, name)

    def _magnitude(self, x: Tensor) -> Any:
        if self.scale == "percentile":
            return percentile_of(x, self._axis, self.percent)
        if self.scale == "mse":
            return least_error(x, self._axis, self._as_by)
        return self._followed(x) if self.scale == "moving" else largest_magnitude(x, self._axis)

    def _as_by(self, x: Tensor, magnitude: Tensor) -> Any:
        """The values on the grid whose largest is `magnitude`."""
        step = round_scale(positive_or_one(magnitude / float(self.high)), self.scale_bits)
        return ops.round(ops.clip(x / step, float(self.low), float(self.high))) * step

    def _followed(self, x: Tensor) -> Any:
        """The moving maximum; in training after it has followed these values."""
        moving = self._begun("maximum")
        if not self.training:
            return moving.value().astype(x.dtype)
        now = largest_magnitude(x, self._axis).astype(moving.dtype).reshape(moving.shape)
        after = ops.select(ops.gt(moving, 0.0), moving * self.momentum + now * (1.0 - self.momentum), now)
        ops.assign(moving, after)
        return after.astype(x.dtype)

    def rounded(self, x: Tensor, *grid: Any) -> Any:
        step, low, high = grid
        if self.rounding == "stochastic" and self.training:
            levels = ops.floor(x / step + ops.uniform(x.shape, 0.0, 1.0, x.dtype))
            return ops.clip(levels, low, high) * step
        return ops.round(ops.clip(x / step, low, high)) * step

    def smooth(self, x: Tensor, *grid: Any) -> Any:
        step, low, high = grid
        if self.scale != "learned":
            return ops.clip(x / step, low, high) * step
        # The residue of rounding counts as a constant, and so the step has the gradient of LSQ, which it is scaled by.
        limited, slow = ops.clip(x / step, low, high), self._slowed(x)
        residue = ops.stop_gradient(ops.round(limited) - limited)
        calm = step * slow + ops.stop_gradient(step * (1.0 - slow))
        return (ops.clip(x / calm, low, high) + residue) * calm

    def passes(self, x: Tensor, *grid: Any) -> Any:
        step, low, high = grid
        levels = x / step
        return ops.logical_and(ops.ge(levels, low), ops.le(levels, high))

    def _slowed(self, x: Tensor) -> float:
        count = x.size / (x.shape[self.axis] if self.per_channel else 1)
        return 1.0 / math.sqrt(self.high * max(count, 1))

    def bprop(self, x: Tensor, out: Tensor, dout: Tensor) -> Any:
        if self.scale == "moving":  # which may have followed other inputs since
            grid = self.saved_for_bprop
            return (ops.select(self.passes(at_least_float32(x), *grid), dout, 0.0) if x.size else dout,)
        gradients = super().bprop(x, out, dout)
        if not self.internal_params:
            return gradients
        values = at_least_float32(x)
        step, low, high = self.grid(values)
        levels = ops.clip(values / step, low, high)
        inside = self.passes(values, step, low, high)
        slope = ops.round(levels) - ops.select(inside, levels, 0.0)
        return gradients, {self.step_size: dout.astype(values.dtype) * slope * self._slowed(x)}

    def construct(self, x: Tensor) -> Any:
        if self.scale != "moving" or not x.size:
            return super().construct(x)
        refuse_integers(x, self)
        grid = self.grid(ops.stop_gradient(at_least_float32(x)))
        self.save_for_bprop(*grid)
        return self.rounded(at_least_float32(x), *grid).astype(x.dtype)

    def extend_repr(self) -> str:
        kind = "" if self.symmetric else "symmetric=False, "
        return f"bits={self.bits}, scale={self.scale!r}, {kind}{super().extend_repr()}"


class FixedPoint(Uniform):
    """Numbers in fixed point: two's complement of so many bits, of which `fraction` stand behind the point.

    Q(x) = 2^-fraction round(clip(2^fraction x, -2^(bits-1), 2^(bits-1) - 1))

    It saturates at both ends, and has no gradient beyond them. It is the grid of a neuron's states and constants, and
    of inputs that are no spikes.

    Args:
        bits: from 2 to 16, the sign among them.
        fraction: the bits behind the point, from 0 to 16.

    Example:
        >>> print(snncell.quantise.FixedPoint(8, 4)(Tensor([0.3, -9.0, 9.0])))
        [ 0.3125 -8.      7.9375]
    """

    narrow = False

    def __init__(self, bits: Bits = 16, fraction: Annotated[int, Within(0, 16)] = 8) -> None:
        super().__init__(bits, 2.0**-fraction, scale_bits=1)
        self.fraction = fraction

    def number(self, value: float) -> float:
        """A number on the grid."""
        assert isinstance(self.scale, float)
        return float(min(max(round(value / self.scale), self.low), self.high) * self.scale)

    def extend_repr(self) -> str:
        return f"bits={self.bits}, fraction={self.fraction}"


# --- few levels -------------------------------------------------------------------------------------------------------

LEAST_EXPONENT = -64  # of the largest power of two; below it, weights are as good as 0


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
        edge = mean_over(size, self._axis) * self.threshold
        over_it = ops.gt(size, edge).astype(x.dtype)
        share = positive_or_one(mean_over(over_it, self._axis))
        return round_scale(positive_or_one(mean_over(size * over_it, self._axis) / share), self.scale_bits), edge

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
        average = round_scale(mean_over(ops.abs(x), self._axis), self.scale_bits)
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
        top = ops.maximum(largest_magnitude(x, self._axis), 2.0**LEAST_EXPONENT)
        lowest = 2.0 ** (2 - 2 ** (self.bits - 1))  # of the powers, of the largest
        return round_scale(top, 1) * lowest, round_scale(top, 1)

    def rounded(self, x: Tensor, *grid: Any) -> Any:
        step, top = grid
        size = ops.abs(x)
        power = ops.minimum(round_scale(ops.maximum(size, step), 1), top)
        return ops.sign(x) * ops.select(ops.le(size, step * 0.5), 0.0, power)

    def extend_repr(self) -> str:
        return f"bits={self.bits}" + (f", per_channel=True, axis={self.axis}" if self.per_channel else "")
