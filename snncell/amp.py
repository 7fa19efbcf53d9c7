"""Automatic mixed precision (AMP): products in float16 or bfloat16 with float32 weights, and loss scaling.

auto_mixed_precision                   choose the layers that compute in float16 or bfloat16
StaticLossScaler, DynamicLossScaler    scale the loss, so that small gradients do not underflow in float16
LossScaler                             their base class
all_finite, step_if                    skip a training step with infinite gradients in your own training loop

`train.fit(loss_scale=...)` scales the loss and skips such steps for you. `mindspore.amp` has the same names.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Literal, overload

import numpy as np

from snncell import dtype as dtypes, ops
from snncell.base.arguments.guard import guard as _guard
from snncell.base.arguments.kinds import Count, FloatDtype, Own, Positive, Within
from snncell.base.arguments.shown import came
from snncell.cell.cell import Cell
from snncell.cell.modes import refuse_quantised
from snncell.errors import ArgumentError
from snncell.nn import Conv1d, Conv2d, Conv2dTranspose, Dense
from snncell.nn.optim.optimizer import Optimizer
from snncell.ops.base import to_compute_dtype
from snncell.tape.parameter import Parameter, assign_all
from snncell.tape.tensor import Tensor

__all__ = ["DynamicLossScaler", "LossScaler", "StaticLossScaler", "all_finite", "auto_mixed_precision", "step_if"]

Values = list[tuple[Parameter, Tensor]]
FLOOR = 1.0  # the smallest dynamic scale, as in MindSpore


def all_finite(inputs: Annotated[Iterable[Tensor], Own()]) -> Tensor:
    """A bool Tensor (): True if no element of these Tensors is NaN or infinite.

    Use it on gradients: for example, float16 gradients overflow to inf if the loss scale is too large.

    Example:
        >>> print(snncell.amp.all_finite([Tensor([1.0]), Tensor([0.0, float("inf")])]))
        False
    """
    tensors = _tensors(inputs, "all_finite", "inputs")
    each = [ops.isfinite(x).all() for x in tensors if x.size and x.dtype.is_float]
    return functools.reduce(ops.logical_and, each) if each else Tensor(True)


def values_of(parameters: Iterable[Parameter]) -> Values:
    """Pairs of Parameters and their present values."""
    return [(parameter, parameter.value()) for parameter in parameters]


def put_back_unless(finite: Tensor, before: Values) -> None:
    """Restore the Parameters from `before`, bit for bit, unless `finite` is true."""
    after = [(parameter, parameter.value(), value) for parameter, value in before]
    # Both values were valid, so the Parameters need no projection into their ranges.
    written = [(p, ops.select(finite, new, old)) for p, new, old in after if new._data is not old._data]
    assign_all(written, "step_if", in_range=True)


def step_if(finite: Tensor, optimiser: Optimizer, gradients: Annotated[Iterable[Tensor], Own()]) -> None:
    """Call the optimiser if `finite` is true; otherwise keep Parameters, moments and step counter, bit for bit.

    Use it instead of a Python `if`, because a jitted function cannot branch on a Tensor. Both cases are computed.

    Args:
        finite: the result of `all_finite`.
        optimiser, gradients: as in `optimiser(gradients)`.
    Example:
        >>> net = nn.Dense(1, 1, weight_init="ones")
        >>> sgd, bad = nn.SGD(net.trainable_params(), 0.1), [Tensor([[float("inf")]]), Tensor([1.0])]
        >>> snncell.amp.step_if(snncell.amp.all_finite(bad), sgd, bad)
        >>> net.weight.asnumpy().item(), sgd.global_step.item()
        (1.0, 0)
    """
    condition, grads = as_condition(finite, "step_if", "finite"), _tensors(gradients, "step_if", "gradients")
    before = values_of(optimiser.get_parameters())
    optimiser(grads)
    put_back_unless(condition, before)


class LossScaler(Cell):
    """Base class of loss scalers. It holds the scale and counts the training steps.

    loss' = scale loss,   g = g' / scale   with g' the gradient of loss'

    `train.fit(loss_scale=...)` and `train.training_step` do this for you. In your own jitted training step you write:

        grads = scaler.unscale(grads)  # of scaler.scale(loss)
        finite = amp.all_finite(grads)
        amp.step_if(finite, optimiser, grads)
        scaler.adjust(finite)

    You should choose a power of two as the scale, because scaling is then exact in float32.

    Attributes:
        scale_value: the scale, a Parameter, float32.
        taken, skipped: the numbers of training steps that were taken and skipped, Parameters.
        lost: the number of steps that were skipped at the smallest scale, a Parameter.
    """

    def __init__(self, scale_value: Positive) -> None:
        super().__init__()
        if scale_value > float(np.finfo(np.float32).max):
            raise ArgumentError(f"{type(self).__name__}: scale_value is a number above 0, not {scale_value!r}.")
        self.first = float(scale_value)
        self.scale_value = Parameter(Tensor(self.first), requires_grad=False)
        self.taken, self.skipped, self.lost = (Parameter(Tensor(0), requires_grad=False) for _ in range(3))

    def scale(self, inputs: Any) -> Any:
        """The loss, or a tuple of losses, times the scale; float16 becomes float32."""
        if isinstance(inputs, (tuple, list)):
            return tuple(map(self.scale, inputs))
        wide = to_compute_dtype(_tensors([inputs], f"{type(self).__name__}.scale", "inputs")[0])
        return wide * self.scale_value.astype(wide.dtype)

    @overload  # overlaps with the next one, because a Tensor is iterable
    def unscale(self, inputs: Tensor) -> Tensor: ...  # type: ignore[overload-overlap]
    @overload
    def unscale(self, inputs: Iterable[Tensor]) -> tuple[Tensor, ...]: ...
    def unscale(self, inputs: Annotated[Any, Own()]) -> Tensor | tuple[Tensor, ...]:
        """A loss or gradients divided by the scale; float16 becomes float32, so that small values do not underflow."""
        wide = map(to_compute_dtype, _tensors(inputs, f"{type(self).__name__}.unscale", "inputs"))
        found = tuple(g / self.scale_value.astype(g.dtype) for g in wide)
        return found[0] if isinstance(inputs, Tensor) else found

    def adjust(self, grads_finite: Tensor) -> None:
        """Count a training step and update the scale."""
        finite = as_condition(grads_finite, f"{type(self).__name__}.adjust", "grads_finite")
        assign_all(self.adjusted(finite), "adjust")

    def adjusted(self, finite: Tensor) -> Values:
        """Pairs of Parameters and their new values after a training step."""
        one = finite.astype(dtypes.int64)
        return [(self.taken, self.taken + one), (self.skipped, self.skipped + (1 - one))]

    def construct(self, inputs: Any) -> Any:
        return self.scale(inputs)

    def extend_repr(self) -> str:
        return f"scale_value={self.scale_value.item():g}"


class StaticLossScaler(LossScaler):
    """A constant loss scale. You should take a power of two, because scaling is then exact.

    Example:
        >>> scaler = snncell.amp.StaticLossScaler(1024.0)
        >>> print(scaler.scale(Tensor(0.5)), scaler.unscale([Tensor([1024.0])])[0])
        512.0 [1.]
    """


class DynamicLossScaler(LossScaler):
    """Dynamic loss scaling: shrink the scale after an overflow, and grow it after many finite steps.

    This finds the largest scale that float16 gradients allow, so you need not tune it.

    scale <- max(scale / scale_factor, 1)  after a step with a gradient that is not finite; that step is skipped
    scale <- scale scale_factor            after scale_window finite steps in a row

    Args:
        scale_value: the first scale, above 0.
        scale_factor: the factor, above 1. The default 2 keeps the scale a power of two.
        scale_window: the number of finite steps in a row before the scale grows.
    Attributes:
        counter: the number of finite steps in the present row, a Parameter.
    Source: Micikevicius et al., "Mixed precision training", ICLR 2018; arguments as in `mindspore.amp`.
    Example:
        >>> scaler = snncell.amp.DynamicLossScaler(1024.0, scale_factor=2, scale_window=2)
        >>> for finite in (False, True, True):
        ...     scaler.adjust(Tensor(finite))
        ...     print(scaler.scale_value.item())
        512.0
        512.0
        1024.0
    """

    def __init__(
        self,
        scale_value: Positive = 2.0**16,
        scale_factor: Annotated[float, Within(1.0, open_low=True)] = 2.0,
        scale_window: Count = 2000,
    ) -> None:
        super().__init__(scale_value)
        self.scale_factor, self.scale_window = float(scale_factor), scale_window
        self.counter = Parameter(Tensor(0), requires_grad=False)

    def adjusted(self, finite: Tensor) -> Values:
        scale = self.scale_value.value()
        full = self.counter + 1 >= self.scale_window
        larger = scale * self.scale_factor
        larger = ops.select(ops.logical_and(full, ops.isfinite(larger)), larger, scale)
        smaller = ops.minimum(ops.maximum(scale / self.scale_factor, FLOOR), scale)
        counter = ops.select(ops.logical_or(full, ops.logical_not(finite)), 0, self.counter + 1)
        lost = ops.logical_and(ops.logical_not(finite), smaller >= scale)
        return [
            *super().adjusted(finite),
            (self.scale_value, ops.select(finite, larger, smaller)),
            (self.counter, counter),
            (self.lost, self.lost + lost.astype(dtypes.int64)),
        ]

    def extend_repr(self) -> str:
        return f"{super().extend_repr()}, scale_factor={self.scale_factor:g}, scale_window={self.scale_window}"


def as_condition(finite: Any, who: str, name: str) -> Tensor:
    """Convert a bool, or the result of `all_finite`, to a bool Tensor of shape ()."""
    taken = finite if isinstance(finite, Tensor) else Tensor(finite) if isinstance(finite, bool) else None
    if taken is None or taken.size != 1 or taken.dtype is not dtypes.bool_:
        raise ArgumentError(f"{who}: {name} is the result of amp.all_finite, a bool Tensor, not {came(finite)}.")
    return taken.reshape(())


def _tensors(given: Any, who: str, name: str) -> list[Tensor]:
    """A list of the Tensors in `given`, which may be a single Tensor."""
    several = [given] if isinstance(given, Tensor) else given
    if not isinstance(several, Iterable) or isinstance(several, (str, bytes, dict)):
        raise ArgumentError(f"{who}: {name} are Tensors, such as gradients, not {came(given)}.")
    found = list(several)
    for x in found:
        if not isinstance(x, Tensor):
            raise ArgumentError(f"{who}: {name} are Tensors, but one of them is {came(x)}.")
    return found


WHITE_LIST: tuple[type[Cell], ...] = (Dense, Conv1d, Conv2d, Conv2dTranspose)


def auto_mixed_precision(
    net: Cell,
    amp_level: Literal["O0", "O1"],
    dtype: FloatDtype = dtypes.float16,
    *,
    white_list: Annotated[Sequence[type[Cell]], Own()] = (),
    black_list: Annotated[Sequence[type[Cell]], Own()] = (),
) -> Cell:
    """Mixed precision: layers with large products compute in float16 or bfloat16. Returns the network.

    Such a layer, y = f(x, W), becomes y = float32(f(half(x), half(W))): inputs, weights and result are rounded to
    `dtype`, and sums are float32. The backward pass rounds at the same places. Everything else stays float32: neuron
    states, thresholds, statistics, losses, Parameters and gradients. Float64 and integer inputs are not rounded.

    Args:
        net: the network. Its `Dense`, `Conv1d`, `Conv2d`, `Conv2dTranspose` layers and their subclasses are changed,
            unless they have a `bprop`.
        amp_level: "O1" for mixed precision, "O0" to undo it; not MindSpore's "O2", "O3" with float16 states and losses.
        dtype: float16 or bfloat16.
        white_list: further classes of Cells. Their own Parameters and inputs are rounded.
        black_list: classes of Cells that stay in float32.
    Raises: ArgumentError for a class of white_list with a `bprop`, a quantised layer (`snncell.quantise`), or a network
        without such layers.
    Source: Micikevicius et al., "Mixed precision training", ICLR 2018; names and lists as in `mindspore.amp`.
    Example:
        >>> net = nn.SequentialCell(nn.Dense(3, 4), nn.MultiStep(nn.LIFNode()))
        >>> net = snncell.amp.auto_mixed_precision(net, "O1")
        >>> net[0].compute_dtype, net[0].weight.dtype, net[0](ops.ones((2, 1, 3))).dtype
        ('float16', Float32, Float32)
    """
    who, kind = "auto_mixed_precision", dtypes.as_dtype(dtype)
    if not dtypes.is_storage_only(kind.dtype):
        raise ArgumentError(f"{who}: dtype is float16 or bfloat16, not {kind.name}.")
    chosen = _select_layers(net, _classes(white_list, "white_list"), _classes(black_list, "black_list"), who)
    if amp_level == "O0":
        chosen = {}
    elif not chosen:
        raise ArgumentError(
            f"{who}: {type(net).__name__} has no layer to compute in {kind.name}. It looks for "
            f"{', '.join(one.__name__ for one in WHITE_LIST)} and for the classes in white_list."
        )
    for cell, path in chosen.items():
        refuse_quantised(cell, path, kind.name, who)
    for _, cell in net.cells_and_names():
        if cell in chosen:
            cell.compute_dtype = kind.name
        elif cell.compute_dtype is not None:
            del cell.compute_dtype  # deleted, not set to None, so that checkpoints do not change
    return net


def _select_layers(
    net: Cell, more: tuple[type[Cell], ...], without: tuple[type[Cell], ...], who: str
) -> dict[Cell, str]:
    cells = [(path, cell) for path, cell in net.cells_and_names() if not isinstance(cell, without)]
    for _, cell in cells:
        if isinstance(cell, more) and cell.bprop is not None:
            raise ArgumentError(
                f"{who}: {type(cell).__name__} of white_list has a bprop, which uses its Parameters in float32. Cast "
                f"the values that should have fewer bits in its construct and bprop."
            )
    return {cell: path for path, cell in cells if isinstance(cell, (*WHITE_LIST, *more)) and cell.bprop is None}


def _classes(given: Any, name: str) -> tuple[type[Cell], ...]:
    several = given if isinstance(given, (list, tuple, set)) else [given]
    for one in several:
        if not isinstance(one, type) or not issubclass(one, Cell):
            raise ArgumentError(f"auto_mixed_precision: {name} is a list of classes of Cells, but has {came(one)}.")
    return tuple(several)


_guard(globals(), own=True)
