"""Mixed precision: select the layers of a network that compute in float16 or bfloat16."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from snncell import dtype as dtypes
from snncell.base.arguments.kinds import FloatDtype, Own
from snncell.base.arguments.shown import came
from snncell.cell.cell import Cell
from snncell.cell.mixed import refuse_quantised
from snncell.errors import ArgumentError
from snncell.nn import Conv1d, Conv2d, Conv2dTranspose, Dense

WHITE_LIST: tuple[type[Cell], ...] = (Dense, Conv1d, Conv2d, Conv2dTranspose)


def auto_mixed_precision(
    net: Cell,
    amp_level: Literal["O0", "O1"],
    dtype: FloatDtype = dtypes.float16,
    *,
    white_list: Annotated[Sequence[type[Cell]], Own()] = (),
    black_list: Annotated[Sequence[type[Cell]], Own()] = (),
) -> Cell:
    """Let the layers with large products of a network compute in float16 or bfloat16; the network itself is returned.

    Such a layer, y = f(x, W), becomes y = float32(f(half(x), half(W))): its inputs, its weights and its result are
    rounded to `dtype`, sums are float32 as ever, and behind it everything is float32: states and thresholds of neurons,
    statistics of normalisation, losses. Parameters stay float32, and so do their gradients, which on their way back
    have been rounded where the values were. Inputs that are float64 or integers are not narrowed.

    Args:
        net: its `Dense`, `Conv1d`, `Conv2d`, `Conv2dTranspose`, and what is made from them, unless it has a `bprop`.
        amp_level: "O1" for that, "O0" to undo it. MindSpore's "O2" and "O3" have states and losses in few bits too,
            and are not there.
        dtype: float16 or bfloat16.
        white_list: further classes of Cells, whose own Parameters and inputs are narrowed.
        black_list: classes of Cells that are left as they are.

    Raises:
        ArgumentError: for another dtype, a list of something else than classes of Cells, a class of white_list that has
            a `bprop`, a layer that is quantised (`snncell.quantise`), and a network without any such layer.

    Source: Micikevicius et al., "Mixed precision training", ICLR 2018; names and lists as in `mindspore.amp`.

    Example:
        >>> net = nn.SequentialCell(nn.Dense(3, 4), nn.MultiStep(nn.LIFNode()))
        >>> net = snncell.amp.auto_mixed_precision(net, "O1")
        >>> net[0].compute_dtype, net[0].weight.dtype, net[0](ops.ones((2, 1, 3))).dtype
        ('float16', Float32, Float32)
    """
    kind = dtypes.as_dtype(dtype)
    if not dtypes.is_storage_only(kind.dtype):
        raise ArgumentError(f"auto_mixed_precision: dtype is float16 or bfloat16, not {kind.name}.")
    chosen = _select_layers(net, _classes(white_list, "white_list"), _classes(black_list, "black_list"))
    if amp_level == "O1":
        _refuse(net, chosen, kind.name)
    for _, cell in net.cells_and_names():
        if cell in chosen and amp_level == "O1":
            cell.compute_dtype = kind.name
        elif cell.compute_dtype is not None:
            del cell.compute_dtype  # as if it had never been set, for checkpoints too
    return net


def _refuse(net: Cell, chosen: set[Cell], narrow: str) -> None:
    """Raise an ArgumentError where there is nothing to narrow, or something that must not be."""
    if not chosen:
        raise ArgumentError(
            f"auto_mixed_precision: {type(net).__name__} has no layer to compute in {narrow}; there are "
            f"{', '.join(one.__name__ for one in WHITE_LIST)} to look for, and what white_list names."
        )
    for path, cell in net.cells_and_names():
        if cell in chosen:
            refuse_quantised(cell, path, narrow, "auto_mixed_precision")


def _select_layers(net: Cell, more: tuple[type[Cell], ...], without: tuple[type[Cell], ...]) -> set[Cell]:
    """The layers of a net that compute in few bits."""
    named = [
        cell
        for _, cell in net.cells_and_names()
        if isinstance(cell, (*WHITE_LIST, *more)) and not isinstance(cell, without)
    ]
    return {cell for cell in named if _may_narrow(cell, more)}


def _may_narrow(cell: Cell, named: tuple[type[Cell], ...]) -> bool:
    """False for a Cell with a reverse of its own, which knows its Parameters themselves; if it was named, an error."""
    if cell.bprop is None:
        return True
    if isinstance(cell, named):
        raise ArgumentError(
            f"auto_mixed_precision: {type(cell).__name__} of white_list has a bprop, which knows its Parameters as "
            f"they are: cast in its construct and bprop what is to have fewer bits."
        )
    return False


def _classes(given: Any, name: str) -> tuple[type[Cell], ...]:
    """Classes of Cells as a tuple."""
    several = given if isinstance(given, (list, tuple, set)) else [given]
    for one in several:
        if not isinstance(one, type) or not issubclass(one, Cell):
            raise ArgumentError(f"auto_mixed_precision: {name} is a list of classes of Cells; {came(one)} is none.")
    return tuple(several)
