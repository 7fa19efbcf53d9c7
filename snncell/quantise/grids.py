"""Quantisation grids: uniform and fixed point, ternary, binary, powers of two."""

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
    """A quantiser with one step, or one for each channel along an axis."""

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
    """Uniform quantisation: round to multiples of a step, within the range of a signed or affine integer.

    Q(x) = s round(clip(x / s, low, high)),   dQ/dx = 1 if low <= x / s <= high, else 0

    low, high = -(2^(bits-1) - 1), 2^(bits-1) - 1             symmetric
    low, high = -z, 2^bits - 1 - z, with z = round(-min / s)   otherwise: affine, with an integer zero point z

    Halves round to even. The step s is

    "max"         max |x| / high, or (max - min) / (2^bits - 1) if affine: nothing is clipped
    "mse"         0.2, 0.25, ... or 1 times the step of "max": the one of these 17 with the least squared error
    "percentile"  m / high, for the magnitude m that `percent` percent of the values do not exceed
    "moving"      m / high, for a moving average m of max |x|, updated in training and constant in prediction
    "learned"     a Parameter, at first 2 mean |x| / sqrt(high); LSQ's gradient / sqrt(high n), for n values per step
    a number      this number

    The step is rounded to `scale_bits` significant bits; "max" and "moving" round it up, so that nothing is clipped.
    Few bits make grid values and their sums exact in float32, as `quantise.export` needs; one bit is a power of two.

    Args:
        bits: from 2 to 16.
        scale: one of the above. "learned" and "moving" need `begin(x)` before the first call; `prepare` calls it.
        symmetric: whether zero is in the middle. False requires scale="max".
        per_channel, axis: whether each channel along this axis has its own step.
        scale_bits: significant bits of the step, from 1 to 16; None does not round it.
        percent: for "percentile": the percentage of the values that are not clipped.
        momentum: for "moving": the part of the average that is kept at each call.
        rounding: "nearest", or in training "stochastic": floor(x / s + u) with u in [0, 1), seeded by `set_seed`.
    Raises: ArgumentError for options that do not fit together, and in a call before `begin`.
    Source: Jacob et al., "Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only
    Inference", CVPR 2018; Esser et al., "Learned Step Size Quantization", ICLR 2020; Gupta et al., "Deep Learning with
    Limited Numerical Precision", ICML 2015 (stochastic rounding).
    Example:
        >>> print(snncell.quantise.Uniform(3, scale=0.25)(Tensor([-2.0, -0.3, 0.125, 0.4])))
        [-0.75 -0.25  0.    0.5 ]
    """

    ranges: ClassVar = {"step_size": _POSITIVE}
    narrow = True  # whether -2^(bits-1) is unused, so that every level has a negative counterpart

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
            raise ArgumentError(f'{type(self).__name__}: symmetric=False requires scale="max", not {scale!r}.')
        self.high = 2 ** (bits - 1) - 1
        self.low = -self.high if self.narrow else -self.high - 1

    def _checked_scale(self, scale: Any) -> str | float:
        if scale in SCALES:
            return str(scale)
        if isinstance(scale, bool) or not isinstance(scale, (int, float)) or not 0.0 < scale < math.inf:
            known = ", ".join(f'"{one}"' for one in SCALES)
            raise ArgumentError(f"{type(self).__name__}: scale must be {known} or a number above 0, not {came(scale)}.")
        if self.scale_bits is None:
            return float(scale)
        digits, exponent = math.frexp(scale)
        return math.ldexp(round(math.ldexp(digits, self.scale_bits)), exponent - self.scale_bits)

    def begin(self, x: Tensor) -> Uniform:
        """Create the learned step or the moving maximum from typical values x."""
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
        """The learned step, because `bprop` returns its gradient."""
        step = self.__dict__.get("step_size")
        return [step] if isinstance(step, Parameter) and step.requires_grad else []

    def grid(self, x: Tensor) -> Grid:
        step: Any = self.scale
        if not self.symmetric:  # from the smallest to the largest value; 0 must be on the grid
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
                f'{type(self).__name__}: scale="{self.scale}" is not initialised. Call begin(x) with typical values '
                f"first, or use quantise.prepare(net, ...), which does this."
            )
        return getattr(self, name)

    def _magnitude(self, x: Tensor) -> Any:
        if self.scale == "percentile":
            return percentile_of(x, self._axis, self.percent)
        if self.scale == "mse":
            return least_error(x, self._axis, self._round_to)
        return self._moving_maximum(x) if self.scale == "moving" else largest_magnitude(x, self._axis)

    def _round_to(self, x: Tensor, magnitude: Tensor) -> Any:
        """x rounded to the grid that ends at `magnitude`."""
        step = round_scale(positive_or_one(magnitude / float(self.high)), self.scale_bits)
        return ops.round(ops.clip(x / step, float(self.low), float(self.high))) * step

    def _moving_maximum(self, x: Tensor) -> Any:
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
        # The rounding residue is a constant here, so that the step gets LSQ's gradient, scaled by `slow`.
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
        if self.scale == "moving":  # use the grid of the forward pass, because later calls may have changed the maximum
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
    """Fixed-point numbers: two's complement with `bits` bits, `fraction` of them after the point.

    Q(x) = 2^-fraction round(clip(2^fraction x, -2^(bits-1), 2^(bits-1) - 1))

    It saturates at both ends, without a gradient beyond. Use it for states of neurons, and inputs other than spikes.

    Args:
        bits: from 2 to 16, including the sign.
        fraction: bits after the point, from 0 to 16.
    Example:
        >>> print(snncell.quantise.FixedPoint(8, 4)(Tensor([0.3, -9.0, 9.0])))
        [ 0.3125 -8.      7.9375]
    """

    narrow = False

    def __init__(self, bits: Bits = 16, fraction: Annotated[int, Within(0, 16)] = 8) -> None:
        super().__init__(bits, 2.0**-fraction, scale_bits=1)
        self.fraction = fraction

    def number(self, value: float) -> float:
        """A Python number, rounded to the grid."""
        assert isinstance(self.scale, float)
        return float(min(max(round(value / self.scale), self.low), self.high) * self.scale)

    def extend_repr(self) -> str:
        return f"bits={self.bits}, fraction={self.fraction}"


# --- few levels -------------------------------------------------------------------------------------------------------

LEAST_EXPONENT = -64  # smallest exponent of the largest power of two; smaller weights are practically 0


class Ternary(_PerChannel):
    """Ternary weights: -s, 0 or s, as in Ternary Weight Networks (TWN).

    Q(w) = s sign(w) if |w| > threshold * mean |w|, else 0;   s = mean of these |w|;   dQ/dw = 1

    Args:
        threshold: a multiple of mean |w|. 0.7 is close to the least squared error for normal and uniform weights.
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
    """Binary weights: -s or s, the sign times the mean magnitude.

    Q(w) = s if w >= 0, else -s;   s = mean |w|;   dQ/dw = 1 if |w| <= limit, else 0

    Args:
        limit: larger weights have no gradient, so that they do not grow for ever.
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
    """Power-of-two weights: 0 or a signed power of two, so that a product is a shift.

    Q(w) = sign(w) 2^k, the nearest of the powers from 2^(K - m + 1) to 2^K, or 0;   dQ/dw = 1

    with m = 2^(bits - 1) - 1 powers, and 2^K the power nearest to the largest magnitude.

    Args:
        bits: from 2 to 5: one for the sign, the others for the power or 0.
        per_channel, axis: as for `Uniform`.
    Source: Zhou et al., "Incremental Network Quantization", ICLR 2017.
    Example:
        >>> print(snncell.quantise.PowerOfTwo(3)(Tensor([-1.0, 0.3, 0.1, 0.4])))  # 1, 1/2, 1/4 and 0
        [-1.    0.25  0.    0.5 ]
    """

    def __init__(self, bits: Annotated[int, Within(2, 5)] = 4, *, per_channel: bool = False, axis: int = 0) -> None:
        super().__init__(per_channel, axis, 1)
        self.bits = bits

    def grid(self, x: Tensor) -> Grid:
        top = ops.maximum(largest_magnitude(x, self._axis), 2.0**LEAST_EXPONENT)
        lowest = 2.0 ** (2 - 2 ** (self.bits - 1))  # smallest power, as a factor of the largest
        return round_scale(top, 1) * lowest, round_scale(top, 1)

    def rounded(self, x: Tensor, *grid: Any) -> Any:
        step, top = grid
        size = ops.abs(x)
        power = ops.minimum(round_scale(ops.maximum(size, step), 1), top)
        return ops.sign(x) * ops.select(ops.le(size, step * 0.5), 0.0, power)

    def extend_repr(self) -> str:
        return f"bits={self.bits}" + (f", per_channel=True, axis={self.axis}" if self.per_channel else "")
