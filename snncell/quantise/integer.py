"""Layers of whole numbers, evaluated by NumPy alone: what a chip, or a program in C, has to do."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Pairs = tuple[tuple[int, int], ...]


def shifted(x: Array, bits: int) -> Array:
    """x / 2^bits to the nearest whole number, halves to even; x 2^-bits where bits are below 0.

    Example:
        >>> shifted(np.array([6, 10, 11, -6]), 2).tolist()
        [2, 2, 3, -2]
    """
    if bits <= 0:
        return x << -bits
    whole = x >> bits
    rest, half = x - (whole << bits), 1 << (bits - 1)
    up: Array = (rest > half) | ((rest == half) & ((whole & 1) == 1))
    return whole + up


@dataclass(frozen=True, eq=False)
class Layer:
    """The base of integer layers: whole numbers in, whole numbers out, each worth 2^exponent."""

    exponent: int  # of the results


@dataclass(frozen=True, eq=False)
class Encode(Layer):
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
class Requantise(Layer):
    """n = round(x / 2^shift), limited to [low, high]."""

    shift: int
    low: int
    high: int

    def run(self, x: Array) -> Array:
        """Whole numbers to fewer of them."""
        return np.clip(shifted(x, self.shift), self.low, self.high)


@dataclass(frozen=True, eq=False)
class Product(Layer):
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
class Pool(Layer):
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
class Flatten(Layer):
    """The axes from first to last as one."""

    first: int
    last: int

    def run(self, x: Array) -> Array:
        """Another shape."""
        first, last = self.first % x.ndim, self.last % x.ndim
        return x.reshape((*x.shape[:first], -1, *x.shape[last + 1 :]))


@dataclass(frozen=True, eq=False)
class Delay(Layer):
    """x[t - delay[c], :, c], and 0 before."""

    delay: Array

    def run(self, x: Array) -> Array:
        """Each channel, later."""
        out = np.zeros_like(x)
        for channel, steps in enumerate(self.delay.tolist()):
            out[steps:, :, channel] = x[: len(x) - steps, :, channel] if steps < len(x) else 0
        return out


@dataclass(frozen=True, eq=False)
class Readout(Layer):
    """The last, the largest or the sum of the values over time."""

    how: str
    bound: float  # of the values, for a sum of many steps

    def run(self, x: Array) -> Array:
        """(T, B, ...) -> (B, ...)."""
        if self.how == "last":
            return x[-1]
        return x.max(0) if self.how == "max" else x.sum(0, dtype=np.int32)


@dataclass(frozen=True, eq=False)
class OverTime(Layer):
    """A layer for all steps at once: (T, B, ...) goes in as (T B, ...)."""

    layer: Any

    def run(self, x: Array) -> Array:
        """Steps and samples as one axis, and two again."""
        out = self.layer.run(x.reshape((-1, *x.shape[2:])))
        return np.asarray(out.reshape((*x.shape[:2], *out.shape[1:])))


@dataclass(frozen=True, eq=False)
class Neuron(Layer):
    """One step of a neuron, in whole numbers.

    h = clip(round((v_from_v v + v_from_x x + v_from_i i + v_from_1) / 2^shift), low, high)
    i = clip(round((i_from_x x + i_from_i i) / 2^i_shift), low, high)
    s, v by the threshold, the reset and the delay, as `nn.Neuron` has them

    Attributes:
        low, high: where states saturate.
        threshold, reset_to: in units of the state; threshold is None where nothing fires.
        reset: "subtract", "zero", "value" or None; delay: None, "reset", "reset+input" or "spike".
        inclusive: whether it fires at the threshold too.
        most: the largest number of spikes in a step, 1, more, or None for any.
        worth: what a spike is multiplied by.
    """

    low: int
    high: int
    shift: int
    v_from_v: Array
    v_from_x: Array
    v_from_1: Array
    start: Array
    threshold: Array | None = None
    reset_to: Array = field(default_factory=lambda: np.zeros((), np.int32))
    reset: str | None = "subtract"
    delay: str | None = None
    inclusive: bool = False
    most: int | None = 1
    worth: Array | None = None
    v_from_i: Array | None = None
    i_from_x: Array | None = None
    i_from_i: Array | None = None
    i_shift: int = 0

    def states(self, x: Array) -> tuple[Array, ...]:
        """The states before the first step, for an input of one."""
        v = np.broadcast_to(self.start, x.shape).astype(np.int32)
        return (v,) if self.v_from_i is None else (v, np.zeros_like(v))

    def step(self, x: Array, *states: Array) -> tuple[Array, ...]:
        """One step: the output and the states."""
        v = states[0]
        late = None if self.delay is None else self._spikes(v)
        at_end = self.reset == "subtract" or self.delay == "reset+input"
        if late is not None and not at_end:
            v = self._after(v, late)
        h = self.v_from_v * v + self.v_from_x * x + self.v_from_1
        currents: tuple[Array, ...] = ()
        if self.v_from_i is not None:
            h = h + self.v_from_i * states[1]
            currents = (self._saturated(self.i_from_x * x + self.i_from_i * states[1], self.i_shift),)
        h = self._saturated(h, self.shift)
        if self.threshold is None:
            return h, h, *currents
        if late is None:
            s = self._spikes(h)
            return self._given(s), self._after(h, s), *currents
        h = self._after(h, late) if at_end else h
        s = late if self.delay == "spike" else self._spikes(h)
        return self._given(s), np.clip(h, self.low, self.high), *currents

    def _saturated(self, x: Array, shift: int) -> Array:
        return np.clip(shifted(x, shift), self.low, self.high)

    def _given(self, s: Array) -> Array:
        return s if self.worth is None else s * self.worth

    def _spikes(self, h: Array) -> Array:
        assert self.threshold is not None
        if self.most == 1:
            return (h >= self.threshold if self.inclusive else h > self.threshold).astype(np.int32)
        count = np.maximum(h // self.threshold if self.inclusive else -(-h // self.threshold) - 1, 0)
        return count if self.most is None else np.minimum(count, self.most)

    def _after(self, h: Array, s: Array) -> Array:
        """The potential after the reset."""
        if self.reset == "subtract":
            return h - s * self.threshold
        if self.reset is None:
            return h
        fired = np.minimum(s, 1)
        return h * (1 - fired) + fired * (self.reset_to if self.reset == "value" else 0)


@dataclass(frozen=True, eq=False)
class Steps(Layer):
    """A neuron over time, with a product of its output of the step before, if there is one.

    Attributes:
        neuron: one step.
        feedback: the layer that its output comes back through, or None.
        input_shift, feedback_shift: by how much input and feedback are shifted to one unit.
    """

    neuron: Neuron
    feedback: Product | None = None
    input_shift: int = 0
    feedback_shift: int = 0

    def run(self, x: Array) -> Array:
        """(T, B, ...) -> (T, B, ...)."""
        states = self.neuron.states(x[0])
        out, outs = np.zeros(x.shape[1:], np.int32), []
        for now in x:
            given = now.astype(np.int32) << self.input_shift
            if self.feedback is not None:
                given = given + (self.feedback.run(out) << self.feedback_shift)
            out, *rest = self.neuron.step(given, *states)
            states = tuple(rest)
            outs.append(out)
        return np.stack(outs)


KINDS: dict[str, type[Layer]] = {
    kind.__name__: kind
    for kind in (Encode, Requantise, Product, Pool, Flatten, Delay, Readout, OverTime, Neuron, Steps)
}
