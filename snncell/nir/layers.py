"""Convert NIR nodes without equations (weights, windows, shapes, delays) to layers, and layers to nodes."""

from __future__ import annotations

import functools
import operator
from typing import Any

import numpy as np

from snncell import nn, ops
from snncell.base.arguments.kinds import Numbers
from snncell.cell.cell import Cell
from snncell.dtype import float32
from snncell.errors import NirError
from snncell.nir.graph import Node, Shape, axes_of, padding_of
from snncell.nir.neurons import Choices, Equation, Writer, spread, where
from snncell.nn.dataflow import kind_of
from snncell.ops.conv import padding_widths, tuple_of
from snncell.tape.parameter import Parameter
from snncell.tape.tensor import Tensor

# --- layers that nn lacks ---------------------------------------------------------------------------------------------


class Scale(Cell):
    """Elementwise scaling, y = scale x: the Scale node of NIR. `scale` is a number, or an array that broadcasts to one
    time step of the input without its batch axis.
    """

    def __init__(self, scale: Numbers, dtype: Any = None) -> None:
        super().__init__()
        self.scale = Parameter(Tensor(scale, dtype or float32), name="scale")

    def construct(self, x: Tensor) -> Tensor:
        return x * self.scale.astype(x.dtype) if x.dtype.is_float else x * self.scale


class Heaviside(Cell):
    """Threshold function, 1 if x > threshold, else 0, with a surrogate gradient: the Threshold node of NIR.

    Args:
        threshold: a number, or an array that broadcasts to one time step of the input without its batch axis.
        surrogate_function: the spike function.
    """

    def __init__(self, threshold: Numbers, surrogate_function: Any, dtype: Any = None) -> None:
        super().__init__()
        self.threshold = Parameter(Tensor(threshold, dtype or float32), name="threshold", requires_grad=False)
        self.surrogate_function = surrogate_function

    def construct(self, x: Tensor) -> Any:
        x = x if x.dtype.is_float else x.astype(self.threshold.dtype)
        return self.surrogate_function(x - self.threshold.astype(x.dtype))


class Delay(Cell):
    """Axonal delay: y[t] = x[t - d] for each neuron, over (T, B, ...): the Delay node of NIR, by an `AxonalDelay`.

    Args:
        steps: d in time steps, one number or an array of this shape.
        shape: the shape of the layer.
        learnable: whether d is trained.
    """

    def __init__(self, steps: Any, shape: Shape, learnable: bool = False, dtype: Any = None) -> None:
        super().__init__()
        delays = np.broadcast_to(steps, shape).reshape(-1)
        longest = max(int(np.ceil(delays.max())), 1)
        self.line = nn.AxonalDelay(delays.size, longest, Tensor(delays, dtype or float32), learnable, dtype or float32)

    @property
    def steps(self) -> Any:
        """The current d of each neuron."""
        return self.line.delay.asnumpy()

    def construct(self, x: Tensor) -> Tensor:
        delayed: Tensor = self.line(x.reshape((*x.shape[:2], -1)))
        return delayed.reshape(x.shape)


class DelayLine(Cell):
    """A delay of whole steps as a Cell of one time step, for a cycle. Its states are the last inputs, latest first."""

    def __init__(self, steps: Any, dtype: Any) -> None:
        super().__init__()
        self.steps = np.asarray(steps, np.float64)
        self.length = int(self.steps.max())  # the number of states
        # 1 for neurons with a delay of n steps, else 0. Parameters, so that they move to the device of the network.
        shares = [Tensor(self.steps == n, dtype) for n in range(self.length + 1)]
        self.shares = [Parameter(share, f"share_{n}", False) for n, share in enumerate(shares)]

    def read(self, x: Tensor | None, past: tuple[Tensor, ...]) -> Tensor:
        """The output. Without a delay of 0 steps it does not depend on x, which may then be None."""
        now = [] if x is None else [x * self.shares[0]]
        return total([*now, *(v * w for v, w in zip(past, self.shares[1:]))])  # noqa: B905

    def construct(self, x: Tensor, *past: Tensor) -> tuple[Tensor, ...]:
        return (self.read(x, past), *((x, *past)[: self.length]))

    def init_state(self, x: Tensor) -> tuple[Tensor, ...]:
        """Zeros."""
        return tuple(ops.zeros(x.shape, x.dtype if x.dtype.is_float else float32) for _ in range(self.length))


def total(values: list[Tensor]) -> Tensor:
    """The sum of one or several values."""
    return functools.reduce(operator.add, values)


# --- from a node to a layer -------------------------------------------------------------------------------------------


def delay_in_steps(node: Node, dt: float, lost: list[str] | None) -> Any:
    """A delay in whole time steps. `lost` collects notes on rounding; None refuses delays that need it."""
    delays = np.asarray(node.values["delay"], np.float64) / dt
    if (delays < 0).any():
        raise NirError(f"{node}: a delay must not be negative, but is {node.values['delay'].min():g} s.")
    whole = np.round(delays)
    off = np.abs(delays - whole).max()
    if off > 1e-4:
        text = f"{node}: delays are not whole steps of dt={dt:g} s, but differ by up to {off:.3g} of a step"
        if lost is None:
            raise NirError(f"{text}. Use a dt that divides them, or lossy=True to round them.")
        lost.append(f"{text}, and were rounded.")
    return whole


def layer_of(node: Node, before: Shape, choices: Choices) -> Cell:
    """The layer of a node without equations or delay: a Cell of one time step (B, ...) without states."""
    values, dtype = node.values, choices.dtype
    if node.kind in ("Input", "Output"):
        return nn.Identity()
    if node.kind == "Scale":
        return Scale(values["scale"], dtype)
    if node.kind == "Threshold":
        return Heaviside(values["threshold"], choices.function(), dtype)
    if node.kind == "Flatten":
        first, last = axes_of(node, len(before))
        return nn.Flatten(first + 1, last + 1)
    if node.kind in ("SumPool2d", "AvgPool2d"):
        pad = {"pad_mode": "pad", "padding": values["padding"]} if any(values["padding"]) else {}
        pool = nn.SumPool2d if node.kind == "SumPool2d" else nn.AvgPool2d
        return pool(values["kernel_size"], values["stride"], **pad)
    weight = Tensor(values["weight"], dtype)
    bias = Tensor(values["bias"], dtype) if "bias" in values else None
    if node.kind in ("Affine", "Linear"):
        return nn.Dense(weight.shape[1], weight.shape[0], weight, bias, bias is not None, dtype=dtype)
    widths = padding_of(node, weight.shape[2:], values["stride"])
    pad = {"pad_mode": "pad", "padding": _per_axis(widths)} if any(widths) else {"pad_mode": "valid"}
    return (nn.Conv1d if node.kind == "Conv1d" else nn.Conv2d)(
        weight.shape[1] * values["groups"],
        weight.shape[0],
        _per_axis(weight.shape[2:]),
        _per_axis(values["stride"]),
        dilation=_per_axis(values["dilation"]),
        group=values["groups"],
        has_bias=bool(node.metadata.get("has_bias", True)),
        weight_init=weight,
        bias_init=bias,
        dtype=dtype,
        **({"pad_mode": "same"} if values["padding"] == "same" else pad),
    )


def _per_axis(values: Any) -> Any:
    return values[0] if len(values) == 1 else tuple(values)


# --- from a layer to nodes --------------------------------------------------------------------------------------------


def nodes_of(writer: Writer, cell: Any, shape: Shape, path: str, axes: int) -> list[Node] | None:
    """The nodes of a layer, or None if it is not a layer. `axes` is the number of axes before those of a sample."""
    kind = kind_of(cell)
    if kind in (nn.Dense, nn.Linear):
        if cell.activation is not None:
            writer.lose(path, cell, "has an activation", "The graph has the layer without it.")
        values = {"weight": array_of(cell.weight)} | ({"bias": array_of(cell.bias)} if cell.has_bias else {})
        return [Node("Affine" if cell.has_bias else "Linear", values)]
    if kind in (nn.Conv1d, nn.Conv2d):
        return [_convolution(cell, shape, path)]
    if kind in (nn.SumPool2d, nn.AvgPool2d, nn.MaxPool2d):
        return [_pool(writer, cell, shape, path)]
    if kind is nn.Flatten:
        count = len(shape) + axes
        first, last = (n + count if n < 0 else n for n in (cell.start_dim, cell.end_dim))
        if first < axes:
            raise NirError(
                f"{where(path, cell)} begins at axis {cell.start_dim}, which is time or batch. Begin at axis {axes}, "
                f"nn.Flatten({axes}), or at axis 1 inside of nn.TimeDistributed."
            )
        return [Node("Flatten", {"start_dim": first - axes, "end_dim": last - axes})]
    if kind is nn.AxonalDelay:
        delay = np.clip(array_of(cell.delay), 0.0, cell.max_delay) * writer.dt
        return [Node("Delay", {"delay": spread(delay.reshape(-1, *(1,) * (len(shape) - 1)), shape, path, "delay")})]
    if kind is Delay:
        return [Node("Delay", {"delay": np.asarray(cell.steps, np.float64).reshape(shape) * writer.dt})]
    if kind is Scale:
        return [Node("Scale", {"scale": spread(array_of(cell.scale), shape, path, "scale")})]
    if kind is Heaviside:
        return [Node("Threshold", {"threshold": spread(array_of(cell.threshold), shape, path, "threshold")})]
    if kind is nn.SynapseFilter and not cell.euler:
        tau = np.asarray(1.0 / -np.expm1(-1.0 / cell.tau))
        return [writer.membrane(Equation(tau, np.array(1.0) if cell.scale_input else tau), shape, path, cell)]
    return None


def array_of(value: Any) -> Any:
    """A Parameter as an array, in a dtype that HDF5 supports."""
    array = value.asnumpy() if isinstance(value, Tensor) else np.asarray(value)
    return array.astype(np.float32) if array.dtype.itemsize < 4 else np.array(array)


def _pool(writer: Writer, cell: Any, shape: Shape, path: str) -> Node:
    options, pool = cell.options, kind_of(cell)
    if options.get("ceil_mode") or options.get("divisor_override") is not None:
        raise NirError(f"{where(path, cell)} has ceil_mode or divisor_override, which pools of NIR do not have.")
    who = type(cell).__name__
    size, stride = (tuple_of(n, 2, who, "kernel_size", 1) for n in (cell.kernel_size, cell.stride))
    dilation = tuple_of(options.get("dilation", 1), 2, who, "dilation", 1)
    if pool is nn.MaxPool2d:
        if dilation != (1, 1):
            raise NirError(f"{where(path, cell)} has dilation={dilation}, which pools of NIR do not have.")
        writer.lose(path, cell, "takes the maximum of a window", "The graph has an AvgPool2d.")
    widths = _padding(cell, shape, size, stride, dilation, options["pad_mode"], options["padding"], path)
    counted = options["pad_mode"] == "pad" and options.get("count_include_pad", True)
    if any(widths) and pool is nn.AvgPool2d and not counted:
        writer.lose(path, cell, "leaves its padding out of the mean", "The graph has a pool that counts it.")
    kind = "SumPool2d" if pool is nn.SumPool2d else "AvgPool2d"
    return Node(kind, {"kernel_size": size, "stride": stride, "padding": widths})


def _convolution(cell: Any, shape: Shape, path: str) -> Node:
    who = kind_of(cell).__name__
    stride, dilation = (tuple_of(n, cell.axes, who, "stride", 1) for n in (cell.stride, cell.dilation))
    weight = array_of(cell.weight)
    values = {
        "weight": weight,
        "bias": array_of(cell.bias) if cell.has_bias else np.zeros(weight.shape[0], weight.dtype),
        "stride": stride,
        "padding": _padding(cell, shape, cell.kernel_size, stride, dilation, cell.pad_mode, cell.padding, path),
        "dilation": dilation,
        "groups": cell.group,
    }
    return Node(who, values, {} if cell.has_bias else {"has_bias": False})


def _padding(cell: Any, shape: Shape, size: Any, stride: Any, dilation: Any, mode: str, padding: Any, path: str) -> Any:
    """The elements to add on both sides of each axis, or "same" if the sides differ and NIR's "same" agrees."""
    if len(shape) != len(size) + 1:
        raise NirError(f"{where(path, cell)} takes {len(size) + 1} axes, but its input is {list(shape)}.")
    pairs = list(padding_widths(shape[1:], size, stride, dilation, mode, padding, type(cell).__name__))
    if all(before == after for before, after in pairs):
        return tuple(before for before, _ in pairs)
    if mode == "same" and all(step == 1 for step in stride) and "Conv" in kind_of(cell).__name__:
        return "same"
    raise NirError(
        f"{where(path, cell)} adds {pairs} before and after its axes, but NIR adds the same on both sides. Use "
        f'pad_mode="pad" and padding, or an odd kernel_size.'
    )
