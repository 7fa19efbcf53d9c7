"""Automatic mixed precision (AMP): products in float16 or bfloat16 with float32 weights, and loss scaling.

auto_mixed_precision                   which layers compute in fewer bits
StaticLossScaler, DynamicLossScaler    a factor of the loss that lifts small gradients over the smallest float16
LossScaler                             their base
all_finite, step_if                    for a training loop of your own; `train.fit(loss_scale=...)` includes both

Names are those of `mindspore.amp`.
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
from snncell.tape.parameter import Parameter, assign_all
from snncell.tape.tensor import Tensor

__all__ = ["DynamicLossScaler", "LossScaler", "StaticLossScaler", "all_finite", "auto_mixed_precision", "step_if"]

Values = list[tuple[Parameter, Tensor]]
FLOOR = 1.0  # a dynamic scale does not sink below it, as in MindSpore


def all_finite(inputs: Annotated[Iterable[Tensor], Own()]) -> Tensor:
    """A bool Tensor (): True if no element of these Tensors is NaN or infinite.

    Example:
        >>> print(snncell.amp.all_finite([Tensor([1.0]), Tensor([0.0, float("inf")])]))
        False
    """
    tensors = _tensors(inputs, "all_finite", "inputs")
    each = [ops.isfinite(x).all() for x in tensors if x.size and x.dtype.is_float]
    return functools.reduce(ops.logical_and, each) if each else Tensor(True)


def values_of(parameters: Iterable[Parameter]) -> Values:
    """Parameters with their present values."""
    return [(parameter, parameter.value()) for parameter in parameters]


def put_back_unless(finite: Tensor, before: Values) -> None:
    """Restore the Parameters from `before`, to the bit, unless `finite` holds."""
    after = [(parameter, parameter.value(), value) for parameter, value in before]
    # The Parameters had both values together, so none is brought into its range anew.
    written = [(p, ops.select(finite, new, old)) for p, new, old in after if new._data is not old._data]
    assign_all(written, "step_if", in_range=True)


def step_if(finite: Tensor, optimiser: Optimizer, gradients: Annotated[Iterable[Tensor], Own()]) -> None:
    """Call the optimiser if `finite` holds; otherwise Parameters, moments and the step stay as they are, to the bit.

    It replaces a Python `if`, which a jitted function cannot have: both cases are computed, and one is kept.

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
    """The base of loss scalers: the scale, and the number of steps with it.

    loss' = scale loss,   g = g' / scale   with g' the gradient of loss'

    `train.fit(loss_scale=...)` and `train.training_step` do this; in your own jitted step you write:

        grads = scaler.unscale(grads)  # of scaler.scale(loss)
        finite = amp.all_finite(grads)
        amp.step_if(finite, optimiser, grads)
        scaler.adjust(finite)

    With a power of two nothing is rounded in float32.

    Attributes:
        scale_value: the scale, a Parameter, float32.
        taken, skipped: the numbers of steps that were taken, and of those that were not, Parameters.
        lost: the number of skipped steps at the smallest scale, a Parameter.
    """

    def __init__(self, scale_value: Positive) -> None:
        super().__init__()
        if scale_value > float(np.finfo(np.float32).max):
            raise ArgumentError(f"{type(self).__name__}: scale_value is a number above 0, not {scale_value!r}.")
        self.first = float(scale_value)
        self.scale_value = Parameter(Tensor(self.first), requires_grad=False)
        self.taken, self.skipped, self.lost = (Parameter(Tensor(0), requires_grad=False) for _ in range(3))

    def scale(self, inputs: Any) -> Any:
        """The loss, or a tuple of losses, times the scale; in float32 at least."""
        if isinstance(inputs, (tuple, list)):
            return tuple(map(self.scale, inputs))
        wide = _wide(_tensors([inputs], f"{type(self).__name__}.scale", "inputs")[0])
        return wide * self.scale_value.astype(wide.dtype)

    @overload  # a Tensor can be gone through, too
    def unscale(self, inputs: Tensor) -> Tensor: ...  # type: ignore[overload-overlap]
    @overload
    def unscale(self, inputs: Iterable[Tensor]) -> tuple[Tensor, ...]: ...
    def unscale(self, inputs: Annotated[Any, Own()]) -> Tensor | tuple[Tensor, ...]:
        """A loss or gradients divided by the scale; in float32 at least, so that they do not vanish again."""
        wide = map(_wide, _tensors(inputs, f"{type(self).__name__}.unscale", "inputs"))
        found = tuple(g / self.scale_value.astype(g.dtype) for g in wide)
        return found[0] if isinstance(inputs, Tensor) else found

    def adjust(self, grads_finite: Tensor) -> None:
        """Count a step, and change the scale."""
        finite = as_condition(grads_finite, f"{type(self).__name__}.adjust", "grads_finite")
        assign_all(self.adjusted(finite), "adjust")

    def adjusted(self, finite: Tensor) -> Values:
        """New values of the Parameters after a step."""
        one = finite.astype(dtypes.int64)
        return [(self.taken, self.taken + one), (self.skipped, self.skipped + (1 - one))]

    def construct(self, inputs: Any) -> Any:
        return self.scale(inputs)

    def extend_repr(self) -> str:
        return f"scale_value={self.scale_value.item():g}"


class StaticLossScaler(LossScaler):
    """A loss scale that does not change.

    Args:
        scale_value: the scale, above 0; take a power of two, because it rounds nothing.

    Example:
        >>> scaler = snncell.amp.StaticLossScaler(1024.0)
        >>> print(scaler.scale(Tensor(0.5)), scaler.unscale([Tensor([1024.0])])[0])
        512.0 [1.]
    """


class DynamicLossScaler(LossScaler):
    """A loss scale as large as float16 allows: smaller after a step that overflows, larger after a row of good steps.

    scale <- max(scale / scale_factor, 1)  after a step whose gradients are not all finite, which is not taken
    scale <- scale scale_factor            after scale_window good steps in a row

    Args:
        scale_value: the first scale, above 0.
        scale_factor: above 1; 2 keeps the scale a power of two.
        scale_window: the number of good steps in a row.

    Attributes:
        counter: the steps of the present row, a Parameter.

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
    """The result of `all_finite`, or a bool, as a bool Tensor ()."""
    taken = finite if isinstance(finite, Tensor) else Tensor(finite) if isinstance(finite, bool) else None
    if taken is None or taken.size != 1 or taken.dtype is not dtypes.bool_:
        raise ArgumentError(f"{who}: {name} is what amp.all_finite gives, a bool Tensor, not {came(finite)}.")
    return taken.reshape(())


def _wide(x: Tensor) -> Tensor:
    return x.astype(dtypes.float32) if x.dtype.is_float and x.dtype.itemsize < 4 else x


def _tensors(given: Any, who: str, name: str) -> list[Tensor]:
    """Several Tensors, or one, as a list."""
    several = [given] if isinstance(given, Tensor) else given
    if not isinstance(several, Iterable) or isinstance(several, (str, bytes, dict)):
        raise ArgumentError(f"{who}: {name} are Tensors, such as gradients, not {came(given)}.")
    found = list(several)
    for x in found:
        if not isinstance(x, Tensor):
            raise ArgumentError(f"{who}: {name} are Tensors, and {came(x)} is none.")
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
    """Let the layers with large products of a network compute in float16 or bfloat16, and return the network.

    Such a layer, y = f(x, W), becomes y = float32(f(half(x), half(W))): inputs, weights and result are rounded to
    `dtype`, and sums are float32. Everything else stays float32: states and thresholds of neurons, statistics of
    normalisation, losses, Parameters and their gradients. The backward pass rounds where the values were rounded.
    Inputs that are float64 or integers are not narrowed.

    Args:
        net: its `Dense`, `Conv1d`, `Conv2d`, `Conv2dTranspose` and their subclasses are changed, unless they have a
            `bprop`.
        amp_level: "O1" for that, "O0" to undo it. MindSpore's "O2" and "O3", with states and losses in few bits, are
            missing.
        dtype: float16 or bfloat16.
        white_list: further classes of Cells, whose own Parameters and inputs are narrowed.
        black_list: classes of Cells to leave as they are.

    Raises:
        ArgumentError: for another dtype, a list of something else than classes of Cells, a class of white_list that has
            a `bprop`, a quantised layer (`snncell.quantise`), and a network without any such layer.

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
            f"{who}: {type(net).__name__} has no layer to compute in {kind.name}; there are "
            f"{', '.join(one.__name__ for one in WHITE_LIST)} to look for, and what white_list names."
        )
    for cell, path in chosen.items():
        refuse_quantised(cell, path, kind.name, who)
    for _, cell in net.cells_and_names():
        if cell in chosen:
            cell.compute_dtype = kind.name
        elif cell.compute_dtype is not None:
            del cell.compute_dtype  # as if it had never been set, for checkpoints too
    return net


def _select_layers(
    net: Cell, more: tuple[type[Cell], ...], without: tuple[type[Cell], ...], who: str
) -> dict[Cell, str]:
    """The layers of a net that compute in few bits, with their paths."""
    cells = [(path, cell) for path, cell in net.cells_and_names() if not isinstance(cell, without)]
    for _, cell in cells:
        if isinstance(cell, more) and cell.bprop is not None:
            raise ArgumentError(
                f"{who}: {type(cell).__name__} of white_list has a bprop, which knows its Parameters as they are: cast "
                f"in its construct and bprop what is to have fewer bits."
            )
    return {cell: path for path, cell in cells if isinstance(cell, (*WHITE_LIST, *more)) and cell.bprop is None}


def _classes(given: Any, name: str) -> tuple[type[Cell], ...]:
    """Classes of Cells as a tuple."""
    several = given if isinstance(given, (list, tuple, set)) else [given]
    for one in several:
        if not isinstance(one, type) or not issubclass(one, Cell):
            raise ArgumentError(f"auto_mixed_precision: {name} is a list of classes of Cells; {came(one)} is none.")
    return tuple(several)


_guard(globals(), own=True)
