"""Nodes without equations: weights, windows, shapes and delays, as layers of one step; what NIR has and nn has not."""

from __future__ import annotations

from typing import Any

import numpy as np

from snncell import nn, ops
from snncell.base.arguments.kinds import Numbers
from snncell.cell.cell import Cell
from snncell.dtype import float32
from snncell.errors import NirError
from snncell.nir.graph import Node, Shape, axes_of, padding_of
from snncell.nir.neurons import Choices
from snncell.tape.parameter import Parameter
from snncell.tape.tensor import Tensor

MOST_LATE = 1024  # steps of a delay in a cycle, which has a state for each


class Scale(Cell):
    """y = scale x, element by element: NIR's Scale.

    Args:
        scale: a number, or an array that broadcasts to a step of the input without its batch.
    """

    def __init__(self, scale: Numbers, dtype: Any = None) -> None:
        super().__init__()
        self.scale = Parameter(Tensor(scale, dtype or float32), name="scale")

    def construct(self, x: Tensor) -> Tensor:
        return x * self.scale.astype(x.dtype) if x.dtype.is_float else x * self.scale


class Heaviside(Cell):
    """1 where x > threshold, else 0: NIR's Threshold, with the reverse of a spike function.

    Args:
        threshold: a number, or an array that broadcasts to a step of the input without its batch.
        surrogate_function: the spike function.
    """

    def __init__(self, threshold: Numbers, surrogate_function: Any, dtype: Any = None) -> None:
        super().__init__()
        self.threshold = Parameter(Tensor(threshold, dtype or float32), name="threshold", requires_grad=False)
        self.surrogate_function = surrogate_function

    def construct(self, x: Tensor) -> Any:
        x = x if x.dtype.is_float else x.astype(self.threshold.dtype)
        return self.surrogate_function(x - self.threshold.astype(x.dtype))


class NirIdentity(Cell):
    """The input, as it is."""

    def construct(self, x: Tensor) -> Tensor:
        return x


class Delay(Cell):
    """y[t] = x[t - d] for each neuron, NIR's Delay over (T, B, ...): an `AxonalDelay` of all neurons.

    Args:
        steps: d, of the shape of the layer, or one number.
        shape: of the layer.
        learnable: whether d is trained.
    """

    def __init__(self, steps: Any, shape: Shape, learnable: bool = False, dtype: Any = None) -> None:
        super().__init__()
        delays = np.broadcast_to(steps, shape).reshape(-1)
        longest = max(int(np.ceil(delays.max())), 1)
        self.line = nn.AxonalDelay(delays.size, longest, Tensor(delays, dtype or float32), learnable, dtype or float32)

    @property
    def steps(self) -> Any:
        """d at present, one for each neuron."""
        return self.line.delay.asnumpy()

    def construct(self, x: Tensor) -> Tensor:
        delayed: Tensor = self.line(x.reshape((*x.shape[:2], -1)))
        return delayed.reshape(x.shape)


class DelayLine(Cell):
    """A delay as a Cell of one step, for a cycle: its states are what came in in the steps before, the last first."""

    def __init__(self, steps: Any, dtype: Any = None) -> None:
        super().__init__()
        self.steps = np.asarray(steps, np.float64)
        whole = np.floor(self.steps)
        part = self.steps - whole
        shares = [
            np.where(whole == n, 1.0 - part, 0.0) + np.where(whole + 1 == n, part, 0.0)
            for n in range(int(np.ceil(self.steps.max())) + 1)
        ]
        # Parameters, so that they go where the net goes.
        self.shares = [
            Parameter(Tensor(share, dtype or float32), f"share_{n}", False) for n, share in enumerate(shares)
        ]

    @property
    def length(self) -> int:
        """The number of states."""
        return len(self.shares) - 1

    def read(self, x: Tensor | None, past: tuple[Tensor, ...]) -> Tensor:
        """The sum that comes out; x is None where it is not known yet, and no delay is so short that it matters."""
        values = [*([] if x is None else [x * self.shares[0]]), *(v * w for v, w in zip(past, self.shares[1:]))]  # noqa: B905
        total: Tensor = values[0]
        for value in values[1:]:
            total = total + value
        return total

    def construct(self, x: Tensor, *past: Tensor) -> tuple[Tensor, ...]:
        return (self.read(x, past), *((x, *past)[: self.length]))

    def init_state(self, x: Tensor) -> tuple[Tensor, ...]:
        """Silence."""
        return tuple(ops.zeros(x.shape, x.dtype if x.dtype.is_float else float32) for _ in range(self.length))


def delay_in_steps(node: Node, dt: float, lost: list[str] | None) -> Any:
    """A delay in steps, which are whole ones.

    Args:
        lost: where what was rounded is noted; None: it is refused.
    """
    delays = np.asarray(node.values["delay"], np.float64) / dt
    if (delays < 0).any():
        raise NirError(f"{node}: a delay is not negative, but {node.values['delay'].min():g} s.")
    whole = np.round(delays)
    off = np.abs(delays - whole).max()
    if off > 1e-4:
        text = f"{node}: delays are not whole steps of dt={dt:g} s, but up to {off:.3g} of a step beside them"
        if lost is None:
            raise NirError(f"{text}. Take a dt that divides them; lossy=True rounds them.")
        lost.append(f"{text}, and were rounded.")
    return whole


def layer_of(node: Node, before: Shape, choices: Choices) -> Cell | None:
    """The layer of a node, a Cell of one step (B, ...) without states; None for nodes with equations or delays."""
    values, dtype = node.values, choices.dtype
    if node.kind in ("Input", "Output"):
        return NirIdentity()
    if node.kind == "Scale":
        return Scale(values["scale"], dtype)
    if node.kind == "Threshold":
        return Heaviside(values["threshold"], choices.function(), dtype)
    if node.kind in ("Affine", "Linear"):
        bias = values.get("bias")
        weight = Tensor(values["weight"], dtype)
        start = None if bias is None else Tensor(bias, dtype)
        return nn.Dense(weight.shape[1], weight.shape[0], weight, start, bias is not None, dtype=dtype)
    if node.kind == "Flatten":
        first, last = axes_of(node, len(before))
        return nn.Flatten(first + 1, last + 1)
    if node.kind in ("SumPool2d", "AvgPool2d"):
        pad = {"pad_mode": "pad", "padding": values["padding"]} if any(values["padding"]) else {}
        pool = nn.SumPool2d if node.kind == "SumPool2d" else nn.AvgPool2d
        return pool(values["kernel_size"], values["stride"], **pad)
    if "Conv" in node.kind:
        return _convolution(node, dtype)
    return None


def _convolution(node: Node, dtype: Any) -> Cell:
    values = node.values
    weight = Tensor(values["weight"], dtype)
    axes = weight.ndim - 2
    widths = padding_of(node, weight.shape[2:], values["stride"], values["dilation"])
    pad: dict[str, Any] = {"pad_mode": "pad", "padding": widths} if any(widths) else {"pad_mode": "valid"}
    pad = {"pad_mode": "same"} if values["padding"] == "same" else pad
    has_bias = bool(node.metadata.get("has_bias", True))
    if "padding" in pad:
        pad["padding"] = _lengths(pad["padding"])
    return (nn.Conv1d if axes == 1 else nn.Conv2d)(
        weight.shape[1] * values["groups"],
        weight.shape[0],
        _lengths(weight.shape[2:]),
        _lengths(values["stride"]),
        dilation=_lengths(values["dilation"]),
        group=values["groups"],
        has_bias=has_bias,
        weight_init=weight,
        bias_init=Tensor(values["bias"], dtype),
        dtype=dtype,
        **pad,
    )


def _lengths(values: Any) -> Any:
    """One number of a single axis, a tuple of several."""
    return values[0] if len(values) == 1 else tuple(values)
