"""Integer networks: run them by NumPy alone, save and load them; a reference for a chip or a C program."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from snncell.base.arguments.kinds import Path
from snncell.errors import ArgumentError, CheckpointError, ShapeError
from snncell.io import read_arrays, write_arrays
from snncell.ops.conv import padding_widths

Array = Any  # of NumPy


def shift_round(x: Array, bits: int) -> Array:
    """x / 2^bits, rounded to the nearest integer, halves to even; x 2^-bits for negative `bits`."""
    if bits <= 0:
        return x << -bits
    whole = x >> bits
    rest, half = x - (whole << bits), 1 << (bits - 1)
    up: Array = (rest > half) | ((rest == half) & ((whole & 1) == 1))
    return whole + up


# --- layers -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class IntegerLayer:
    """Base class of integer layers, with a method `run(x)`. Results are integers, each worth 2^exponent."""

    exponent: int  # of the results


@dataclass(frozen=True, eq=False)
class Encode(IntegerLayer):
    """Round floats to a grid: n = round(clip(x / step, low, high)) multiplier. The division is in float32, or in
    float64 for float64 inputs, as in the network.
    """

    step: float
    low: float
    high: float
    multiplier: int = 1

    def run(self, x: Array) -> Array:
        scale = np.float64 if x.dtype == np.float64 else np.float32
        levels = np.rint(np.clip(x.astype(scale) / scale(self.step), scale(self.low), scale(self.high)))
        return levels.astype(np.int32) * self.multiplier


@dataclass(frozen=True, eq=False)
class Requantise(IntegerLayer):
    """Round to a coarser grid: n = round(x / 2^shift), limited to [low, high]."""

    shift: int
    low: int
    high: int

    def run(self, x: Array) -> Array:
        return np.clip(shift_round(x, self.shift), self.low, self.high)


@dataclass(frozen=True, eq=False)
class IntegerProduct(IntegerLayer):
    """Dense or convolution: n = (sum of x w + b) m, in int32."""

    kind: str  # "dense" or "conv"
    weight: Array  # (O, I), or (O, C // groups, *K): int8, or int16
    bias: Array | None  # (O,), int32
    multiplier: Array  # m, (O,) or (), int32: the significant bits of the scales
    stride: tuple[int, ...] = ()  # this and the following fields are for convolutions
    dilation: tuple[int, ...] = ()
    pad_mode: str = "valid"
    padding: Any = 0
    groups: int = 1

    def run(self, x: Array) -> Array:
        axis, channels = (-1, self.weight.shape[1]) if self.kind == "dense" else (1, self.weight.shape[1] * self.groups)
        if x.ndim < 2 - (axis == -1) or x.shape[axis] != channels:
            raise ShapeError(
                f"run: a {self.kind} layer takes {channels} channels on axis {axis}, but the shape is {x.shape}."
            )
        sums = x.astype(np.int32) @ self.weight.T.astype(np.int32) if self.kind == "dense" else self._convolved(x)
        places = (1,) * (len(self.weight.shape) - 2)  # axes after the channels
        if self.bias is not None:
            sums = sums + self.bias.reshape((-1, *places))
        return sums * (self.multiplier.reshape((-1, *places)) if self.multiplier.ndim else self.multiplier)

    def _convolved(self, x: Array) -> Array:
        size, axes = self.weight.shape[2:], tuple(range(2, x.ndim))
        spans = tuple((k - 1) * d + 1 for k, d in zip(size, self.dilation, strict=True))
        pads = padding_widths(x.shape[2:], size, self.stride, self.dilation, self.pad_mode, self.padding, "run")
        padded = np.pad(x.astype(np.int32), ((0, 0), (0, 0), *pads))
        windows = np.lib.stride_tricks.sliding_window_view(padded, spans, axes)
        strides = tuple(slice(None, None, s) for s in (*self.stride, *self.dilation))
        windows = windows[(slice(None), slice(None), *strides)]  # (N, C, *places, *K)
        over = (1, *(axis + len(axes) for axis in axes)), (1, *axes)
        groups = np.split(windows, self.groups, 1), np.split(self.weight.astype(np.int32), self.groups)
        parts = [np.moveaxis(np.tensordot(own, weight, over), -1, 1) for own, weight in zip(*groups, strict=True)]
        return np.concatenate(parts, 1)


@dataclass(frozen=True, eq=False)
class IntegerPool(IntegerLayer):
    """Pooling: the sum or the maximum of each window of the last two axes."""

    kind: str  # "sum" or "max"
    size: tuple[int, ...]
    stride: tuple[int, ...]

    def run(self, x: Array) -> Array:
        windows = np.lib.stride_tricks.sliding_window_view(x, self.size, (-2, -1))
        windows = windows[..., :: self.stride[0], :: self.stride[1], :, :]
        return windows.sum((-2, -1), dtype=np.int32) if self.kind == "sum" else windows.max((-2, -1))


@dataclass(frozen=True, eq=False)
class IntegerFlatten(IntegerLayer):
    """Flatten the axes from first to last."""

    first: int
    last: int

    def run(self, x: Array) -> Array:
        first, last = self.first % x.ndim, self.last % x.ndim
        return x.reshape((*x.shape[:first], -1, *x.shape[last + 1 :]))


@dataclass(frozen=True, eq=False)
class IntegerDelay(IntegerLayer):
    """Delay each channel: x[t - delay[c], :, c], and 0 before."""

    delay: Array

    def run(self, x: Array) -> Array:
        out = np.zeros_like(x)
        for channel, steps in enumerate(self.delay.tolist()):
            out[steps:, :, channel] = x[: len(x) - steps, :, channel] if steps < len(x) else 0
        return out


@dataclass(frozen=True, eq=False)
class IntegerReadout(IntegerLayer):
    """The last value, the maximum or the sum over time: (T, B, ...) -> (B, ...)."""

    how: str
    bound: float  # largest magnitude of a value

    def run(self, x: Array) -> Array:
        if self.how != "sum":
            return x[-1] if self.how == "last" else x.max(0)
        sums = x.sum(0, dtype=np.int64)
        if np.abs(sums).max(initial=0) >= 2**31:
            raise ArgumentError(
                f"run: the sums over {len(x)} steps do not fit into int32. Use shorter sequences, or nn.Readout with "
                f'"last" or "max".'
            )
        return sums.astype(np.int32)


@dataclass(frozen=True, eq=False)
class OverTime(IntegerLayer):
    """Apply a layer to all time steps at once: (T, B, ...) is reshaped to (T B, ...)."""

    layer: Any

    def run(self, x: Array) -> Array:
        out = self.layer.run(x.reshape((-1, *x.shape[2:])))
        return np.asarray(out.reshape((*x.shape[:2], *out.shape[1:])))


# --- neurons ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class IntegerNeuron(IntegerLayer):
    """One time step of a neuron in integers: x is the input, v the potential, i the current of a synapse.

    h = clip(round((v_from_v * v + v_from_x * x + v_from_i * i + v_from_1) / 2^shift), low, high)
    i = clip(round((i_from_x * x + i_from_i * i) / 2^i_shift), low, high)

    Spike and reset then follow `nn.Neuron`.
    """

    low: int
    high: int
    shift: int
    v_from_v: Array
    v_from_x: Array
    v_from_1: Array
    start: Array  # the initial potential; this, `threshold` and `reset_to` are in units of the states
    threshold: Array | None = None  # None for a neuron that does not fire
    reset_to: Array = field(default_factory=lambda: np.zeros((), np.int32))
    reset: str | None = "subtract"  # or "zero", "value"
    delay: str | None = None  # or "reset", "reset+input", "spike", as for `nn.Neuron`
    inclusive: bool = False  # whether it also fires at the threshold
    most: int | None = 1  # the largest number of spikes in a step; None for no limit
    worth: Array | None = None  # factor of a spike
    v_from_i: Array | None = None
    i_from_x: Array | None = None
    i_from_i: Array | None = None
    i_shift: int = 0

    def states(self, x: Array) -> tuple[Array, ...]:
        """The initial states for an input of one time step."""
        v = np.broadcast_to(self.start, x.shape).astype(np.int32)
        return (v,) if self.v_from_i is None else (v, np.zeros_like(v))

    def step(self, x: Array, *states: Array) -> tuple[Array, ...]:
        """Compute one time step: the output and the states."""
        v = states[0]
        late = None if self.delay is None else self._spikes(v)
        at_end = self.reset == "subtract" or self.delay == "reset+input"
        if late is not None and not at_end:
            v = self._reset(v, late)
        h = self.v_from_v * v + self.v_from_x * x + self.v_from_1
        currents: tuple[Array, ...] = ()
        if self.v_from_i is not None:
            h = h + self.v_from_i * states[1]
            currents = (self._saturate(self.i_from_x * x + self.i_from_i * states[1], self.i_shift),)
        h = self._saturate(h, self.shift)
        if self.threshold is None:
            return h, h, *currents
        if late is None:
            s = self._spikes(h)
            return self._scale_spikes(s), self._reset(h, s), *currents
        h = self._reset(h, late) if at_end else h
        s = late if self.delay == "spike" else self._spikes(h)
        return self._scale_spikes(s), np.clip(h, self.low, self.high), *currents

    def _saturate(self, x: Array, shift: int) -> Array:
        return np.clip(shift_round(x, shift), self.low, self.high)

    def _scale_spikes(self, s: Array) -> Array:
        return s if self.worth is None else s * self.worth

    def _spikes(self, h: Array) -> Array:
        assert self.threshold is not None
        if self.most == 1:
            return (h >= self.threshold if self.inclusive else h > self.threshold).astype(np.int32)
        count = np.maximum(h // self.threshold if self.inclusive else -(-h // self.threshold) - 1, 0)
        return count if self.most is None else np.minimum(count, self.most)

    def _reset(self, h: Array, s: Array) -> Array:
        if self.reset == "subtract":
            return h - s * self.threshold
        if self.reset is None:
            return h
        fired = np.minimum(s, 1)
        return h * (1 - fired) + fired * (self.reset_to if self.reset == "value" else 0)


@dataclass(frozen=True, eq=False)
class IntegerSteps(IntegerLayer):
    """A neuron over time, (T, B, ...) -> (T, B, ...), with a feedback layer if it is recurrent."""

    neuron: IntegerNeuron
    feedback: IntegerProduct | None = None  # applied to the output of the previous time step
    input_shift: int = 0  # shifts input and feedback to one unit
    feedback_shift: int = 0

    def run(self, x: Array) -> Array:
        states = self.neuron.states(x[0])
        out, outs = np.zeros(x.shape[1:], np.int32), []
        for now in x:
            back = None if self.feedback is None else self.feedback.run(out)
            out, *rest = self.neuron.step(self.join_inputs(now, back), *states)
            states = tuple(rest)
            outs.append(out)
        return np.stack(outs)

    def join_inputs(self, x: Array, back: Array | None = None) -> Array:
        """The input of the neuron: input and feedback in one unit."""
        current = x.astype(np.int32) << self.input_shift
        return current if back is None else current + (back << self.feedback_shift)


# --- the network ------------------------------------------------------------------------------------------------------

FORMAT = "snncell integer network, 1"
# The layers by their names in a file:
KINDS: dict[str, Any] = {kind.__name__.removeprefix("Integer"): kind for kind in IntegerLayer.__subclasses__()}


@dataclass(frozen=True, eq=False)
class IntegerNet:
    """A network of integer layers that run one after the other, from `quantise.export`.

    Attributes:
        layers: dataclasses of `snncell.quantise.integer`: weights, multipliers, shifts, thresholds, limits.
        largest_input: the largest magnitude of an integer input, for which no sum can overflow.
    """

    layers: tuple[Any, ...]
    largest_input: int = 1

    @property
    def step(self) -> float:
        """The value of one unit of the output: 1 for spikes, 2^-fraction for potentials."""
        return float(2.0 ** self.layers[-1].exponent) if self.layers else 1.0

    def run(self, x: Any) -> np.ndarray[Any, Any]:
        """Run the network on an input (T, B, ...). Returns int32: spikes, or potentials in units of `step`.

        Args:
            x: integer values, for example spikes, in any dtype; any floats if the network quantises its inputs.
        Example:
            >>> net = nn.SequentialCell(nn.Dense(1, 1, weight_init="ones", has_bias=False), nn.MultiStep(nn.LINode()))
            >>> net = snncell.quantise.prepare(net, snncell.quantise.Uniform(8), snncell.quantise.FixedPoint(12, 8))
            >>> whole = snncell.quantise.export(net)
            >>> print(whole.run([[[1]], [[0]]]).ravel(), whole.step)
            [128  64] 0.00390625
        """
        values = np.asarray(x.asnumpy() if hasattr(x, "asnumpy") else x)
        if not any(isinstance(layer, Encode) for layer in self.layers):
            values = _to_int32(values)
        for layer in self.layers:
            values = layer.run(values)
        return values.astype(np.int32)

    def save(self, file: Path) -> None:
        """Write the network to a safetensors file: arrays, and everything else as JSON in the header."""
        described, arrays = self._describe()
        header = {"format": FORMAT, "layers": json.dumps(described), "largest_input": str(self.largest_input)}
        write_arrays(file, arrays, header, "save")

    def _describe(self) -> tuple[list[Any], dict[str, Any]]:
        arrays: dict[str, Any] = {}
        return [_describe_layer(layer, str(place), arrays) for place, layer in enumerate(self.layers)], arrays

    @classmethod
    def load(cls, file: Path) -> IntegerNet:
        """Read a network that `save` wrote."""
        arrays, header = read_arrays(file, "load")
        if header.get("format") != FORMAT:
            raise CheckpointError(
                f"load: {file} must have the format {FORMAT!r} of IntegerNet.save, not {header.get('format')!r}. To "
                f"read a checkpoint, use load_checkpoint."
            )
        try:
            described = json.loads(header["layers"])
            return cls(tuple(_make_layer(one, arrays) for one in described), int(header["largest_input"]))
        except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
            raise CheckpointError(f"load: {file} is damaged: {error!r}.") from None

    def __repr__(self) -> str:
        lines = [f"  {place}: {_summary(layer)}" for place, layer in enumerate(self.layers)]
        return "\n".join([f"IntegerNet, {self.weight_bytes} bytes of weights", *lines])

    @property
    def weight_bytes(self) -> int:
        """The size of all weights and biases in bytes."""
        arrays = self._describe()[1]
        return sum(a.nbytes for name, a in arrays.items() if name.rpartition(".")[2] in ("weight", "bias"))


def _to_int32(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    if values.dtype.kind == "f" and not np.all(values == np.rint(values)):
        raise ArgumentError(
            "run: x must be integers, for example spikes, but some values are not. For other inputs, call "
            "quantise.prepare(net, ..., activations=quantise.FixedPoint(8, 6)) before you export."
        )
    if values.dtype.kind not in "biuf":
        raise ArgumentError(f"run: x must be an array of numbers, not of {values.dtype}.")
    return values.astype(np.int32)


def _summary(layer: Any) -> str:
    inner = getattr(layer, "layer", layer)
    inner = getattr(inner, "neuron", inner)
    weight = getattr(inner, "weight", None)
    shape = "" if weight is None else f" {inner.kind} {weight.shape} {weight.dtype}"
    return f"{_kind_name(inner)}{shape}, unit 2^{layer.exponent}"


# --- files ------------------------------------------------------------------------------------------------------------


def _describe_layer(layer: Any, path: str, arrays: dict[str, Any]) -> dict[str, Any]:
    """A layer as JSON. Its arrays are added to `arrays`, and the JSON refers to them by name."""
    fields: dict[str, Any] = {}
    for one in dataclasses.fields(layer):
        value, name = getattr(layer, one.name), f"{path}.{one.name}"
        if isinstance(value, np.ndarray):
            arrays[name] = value
            value = {"array": name}
        elif isinstance(value, IntegerLayer):
            value = {"layer": _describe_layer(value, name, arrays)}
        fields[one.name] = value
    return {"kind": _kind_name(layer), "fields": fields}


def _kind_name(layer: Any) -> str:
    return type(layer).__name__.removeprefix("Integer")


def _make_layer(described: Any, arrays: dict[str, Any]) -> Any:
    fields: dict[str, Any] = {}
    for name, value in described["fields"].items():
        if isinstance(value, dict):
            value = arrays[value["array"]] if "array" in value else _make_layer(value["layer"], arrays)
        fields[name] = tuple(value) if isinstance(value, list) else value
    return KINDS[described["kind"]](**fields)
