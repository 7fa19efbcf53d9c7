"""Layers of whole numbers, evaluated by NumPy alone: what a chip, or a program in C, has to do."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from snncell.errors import ShapeError

Array = Any  # of NumPy
Pairs = tuple[tuple[int, int], ...]


def shift_round(x: Array, bits: int) -> Array:
    """x / 2^bits to the nearest whole number, halves to even; x 2^-bits where bits are below 0."""
    if bits <= 0:
        return x << -bits
    whole = x >> bits
    rest, half = x - (whole << bits), 1 << (bits - 1)
    up: Array = (rest > half) | ((rest == half) & ((whole & 1) == 1))
    return whole + up


@dataclass(frozen=True, eq=False)
class IntegerLayer:
    """The base of integer layers: whole numbers in, whole numbers out, each worth 2^exponent."""

    exponent: int  # of the results


@dataclass(frozen=True, eq=False)
class Encode(IntegerLayer):
    """Numbers on a grid: n = round(clip(x / step, low, high)) multiplier, in float32, as the network has them."""

    step: float
    low: float
    high: float
    multiplier: int = 1

    def run(self, x: Array) -> Array:
        """Floats to whole numbers."""
        scale = np.float64 if x.dtype == np.float64 else np.float32
        levels = np.rint(np.clip(x.astype(scale) / scale(self.step), scale(self.low), scale(self.high)))
        return levels.astype(np.int32) * self.multiplier


@dataclass(frozen=True, eq=False)
class Requantise(IntegerLayer):
    """n = round(x / 2^shift), limited to [low, high]."""

    shift: int
    low: int
    high: int

    def run(self, x: Array) -> Array:
        """Whole numbers to fewer of them."""
        return np.clip(shift_round(x, self.shift), self.low, self.high)


@dataclass(frozen=True, eq=False)
class IntegerProduct(IntegerLayer):
    """A layer with weights: n = (sum of x w + b) m, with x w the product of a Dense or a convolution.

    Attributes:
        kind: "dense" or "conv".
        weight: (O, I), or (O, C // groups, *K): int8, or int16.
        bias: (O,), int32, or None.
        multiplier: m, (O,) or (), int32: the significant bits of the scales.
        stride, dilation, pad_mode, padding, groups: of a convolution.
    """

    kind: str
    weight: Array
    bias: Array | None
    multiplier: Array
    stride: tuple[int, ...] = ()
    dilation: tuple[int, ...] = ()
    pad_mode: str = "valid"
    padding: Any = 0
    groups: int = 1

    def run(self, x: Array) -> Array:
        """Sums in int32."""
        axis, channels = (-1, self.weight.shape[1]) if self.kind == "dense" else (1, self.weight.shape[1] * self.groups)
        if x.ndim < 2 - (axis == -1) or x.shape[axis] != channels:
            raise ShapeError(
                f"run: a {self.kind} layer takes {channels} channels on axis {axis}, the shape is {x.shape}."
            )
        sums = x.astype(np.int32) @ self.weight.T.astype(np.int32) if self.kind == "dense" else self._convolved(x)
        places = (1,) * (len(self.weight.shape) - 2)  # axes behind the channels
        if self.bias is not None:
            sums = sums + self.bias.reshape((-1, *places))
        return sums * (self.multiplier.reshape((-1, *places)) if self.multiplier.ndim else self.multiplier)

    def _convolved(self, x: Array) -> Array:
        size, axes = self.weight.shape[2:], tuple(range(2, x.ndim))
        pads = self._pads(x.shape[2:], size)
        padded = np.pad(x.astype(np.int32), ((0, 0), (0, 0), *pads))
        spans = tuple((k - 1) * d + 1 for k, d in zip(size, self.dilation, strict=True))
        windows = np.lib.stride_tricks.sliding_window_view(padded, spans, axes)
        steps = tuple(slice(None, None, s) for s in self.stride)
        taps = tuple(slice(None, None, d) for d in self.dilation)
        windows = windows[(slice(None), slice(None), *steps, *taps)]  # (N, C, *places, *K)
        count, channels = len(axes), x.shape[1] // self.groups
        outputs = self.weight.shape[0] // self.groups
        parts = []
        for group in range(self.groups):
            own = windows[:, group * channels : (group + 1) * channels]
            weight = self.weight[group * outputs : (group + 1) * outputs].astype(np.int32)
            over = (1, *range(2 + count, 2 + 2 * count))
            parts.append(np.moveaxis(np.tensordot(own, weight, (over, (1, *range(2, 2 + count)))), -1, 1))
        return np.concatenate(parts, 1)

    def _pads(self, lengths: tuple[int, ...], size: tuple[int, ...]) -> Pairs:
        """Zeros before and behind each axis."""
        if self.pad_mode == "valid":
            return ((0, 0),) * len(size)
        if self.pad_mode == "pad":
            given = self.padding if isinstance(self.padding, (list, tuple)) else (self.padding,) * len(size)
            flat = [int(n) for n in given]
            if len(flat) == 2 * len(size) and len(size) > 1:
                return tuple((flat[2 * i], flat[2 * i + 1]) for i in range(len(size)))
            return tuple((n, n) for n in flat)
        pads = []
        for length, k, s, d in zip(lengths, size, self.stride, self.dilation, strict=True):
            total = max((math.ceil(length / s) - 1) * s + (k - 1) * d + 1 - length, 0)
            pads.append((total // 2, total - total // 2))
        return tuple(pads)


@dataclass(frozen=True, eq=False)
class IntegerPool(IntegerLayer):
    """The sum or the largest of each window of (N, C, H, W)."""

    kind: str  # "sum" or "max"
    size: tuple[int, ...]
    stride: tuple[int, ...]

    def run(self, x: Array) -> Array:
        """Windows of the last two axes."""
        windows = np.lib.stride_tricks.sliding_window_view(x, self.size, (-2, -1))
        windows = windows[..., :: self.stride[0], :: self.stride[1], :, :]
        return windows.sum((-2, -1), dtype=np.int32) if self.kind == "sum" else windows.max((-2, -1))


@dataclass(frozen=True, eq=False)
class IntegerFlatten(IntegerLayer):
    """The axes from first to last as one."""

    first: int
    last: int

    def run(self, x: Array) -> Array:
        """Another shape."""
        first, last = self.first % x.ndim, self.last % x.ndim
        return x.reshape((*x.shape[:first], -1, *x.shape[last + 1 :]))


@dataclass(frozen=True, eq=False)
class IntegerDelay(IntegerLayer):
    """x[t - delay[c], :, c], and 0 before."""

    delay: Array

    def run(self, x: Array) -> Array:
        """Each channel, later."""
        out = np.zeros_like(x)
        for channel, steps in enumerate(self.delay.tolist()):
            out[steps:, :, channel] = x[: len(x) - steps, :, channel] if steps < len(x) else 0
        return out


@dataclass(frozen=True, eq=False)
class IntegerReadout(IntegerLayer):
    """The last, the largest or the sum of the values over time."""

    how: str
    bound: float  # of the values, for a sum of many steps

    def run(self, x: Array) -> Array:
        """(T, B, ...) -> (B, ...)."""
        if self.how == "last":
            return x[-1]
        return x.max(0) if self.how == "max" else x.sum(0, dtype=np.int32)


@dataclass(frozen=True, eq=False)
class OverTime(IntegerLayer):
    """A layer for all steps at once: (T, B, ...) goes in as (T B, ...)."""

    layer: Any

    def run(self, x: Array) -> Array:
        """Steps and samples as one axis, and two again."""
        out = self.layer.run(x.reshape((-1, *x.shape[2:])))
        return np.asarray(out.reshape((*x.shape[:2], *out.shape[1:])))
