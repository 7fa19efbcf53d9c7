"""Indexing, and lookups by integers. Their reverses put gradients back where the elements came from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from snncell.base.arguments.kinds import Numbers, Size
from snncell.errors import ArgumentError, DTypeError, TensorIndexError
from snncell.kernels import lookups as rows
from snncell.kernels.cuda import gather as lookups, scatter
from snncell.kernels.cuda.arrays import DeviceArray
from snncell.kernels.space import DEVICE, IN_USE, space_of
from snncell.ops.base import as_axis, as_int, as_tensor, primitive
from snncell.tape.primitive import (
    EVERYWHERE,
    Primitive,
    axis_behind_steps,
    moving,
    one_after_another,
    repeat_over_time,
    with_axis_of_steps,
)
from snncell.tape.tensor import Tensor, beside

Grads = Sequence[Any]


@moving
def _getitem(x: Any, index: Any) -> Any:
    return x[index]


getitem_primitive = _getitem


@moving
def _put(x: Any, index: Any, shape: tuple[int, ...]) -> Any:
    """Zeros of `shape` with `x` at `index`."""
    # No element is named twice by basic indices, so they can be written to, not added to.
    out = np.zeros(shape, x.dtype)
    out[index] = x
    return out


put_primitive = _put


@_put.def_there
def _(x: Any, index: Any, shape: tuple[int, ...]) -> Any:
    out = DEVICE.zeros(shape, x.dtype)
    out[index] = x
    return out


def _behind_steps(attrs: dict[str, Any], steps: int) -> dict[str, Any]:
    index = attrs["index"] if isinstance(attrs["index"], tuple) else (attrs["index"],)
    moved = {"index": (slice(None), *index)}
    return {**moved, "shape": (steps, *attrs["shape"])} if "shape" in attrs else moved


for _op in (_getitem, _put):
    with_axis_of_steps(_op, _behind_steps)
    _op.additive = True


@_getitem.def_bprop
def _(_x: Tensor, _out: Tensor, dout: Tensor, *, index: Any) -> Grads:
    return (_put.bind(dout, index=index, shape=_x.shape),)


@_put.def_bprop
def _(_x: Tensor, _out: Tensor, dout: Tensor, *, index: Any, shape: Any) -> Grads:
    return (_getitem.bind(dout, index=index),)


def _no_mask(index: Tensor) -> Tensor:
    if index.dtype.category != 1:
        raise TensorIndexError(
            f"A Tensor cannot be indexed by a Tensor of dtype {index.dtype}: the result's shape would depend on "
            f"values. Use ops.select(mask, x, 0), or ops.gather with integers."
        )
    return index


class _Lookup(Primitive):
    """An operation that refuses positions out of range.

    On the GPU they are looked at, and waited for, in eager calls alone. A compiled Program does not wait: what it looks
    up out of range is NaN (-1 of integers, False of booleans), and adds nothing to a sum.

    Args:
        name: what it is called.
        evaluate: the forward, which checks on the CPU.
        check: `check(lowest, highest, arrays, attrs)` raises if a position is out of range.
        of: which input has the positions.
    """

    def __init__(self, name: str, evaluate: Callable[..., Any], check: Callable[..., None], of: int) -> None:
        super().__init__(name, evaluate)
        self.check = check
        self.of = of
        self.as_stored = EVERYWHERE

    def run(self, arrays: Sequence[Any], inputs: Sequence[Any], attrs: dict[str, Any]) -> Any:
        """Evaluate in an eager call."""
        indices = arrays[self.of]
        if IN_USE and isinstance(indices, DeviceArray) and indices.size:
            # The lowest and the highest are enough to refuse, and each is one number to wait for.
            every = {"axis": tuple(range(indices.ndim)), "keepdims": False}
            ends = [indices]
            if indices.ndim:
                ends = [DEVICE.arithmetic[name].on_device([indices], every) for name in ("min", "max")]
            self.check(int(ends[0].host()), int(ends[-1].host()), arrays, attrs)
        return super().run(arrays, inputs, attrs)


def _refuse(lowest: int, highest: int, least: int, length: int, name: str, kind: type[Exception], more: str) -> None:
    """Raise if positions from `lowest` to `highest` do not lie in [least, length)."""
    if lowest < least or highest >= length:
        wrong = lowest if lowest < least else highest
        raise kind(f"{name} {wrong} is out of range{more}; it must lie in [{least}, {length}).")


# `only_within` is what an index is called where negative ones are refused, too; else they count from the end.
def _check_gather(lowest: int, highest: int, arrays: Sequence[Any], attrs: dict[str, Any]) -> None:
    within, length = attrs["only_within"], arrays[0].shape[attrs["axis"]]
    _refuse(lowest, highest, -length if within is None else 0, length, within or "gather: index", TensorIndexError, "")


def _check_hot(lowest: int, highest: int, arrays: Sequence[Any], attrs: dict[str, Any]) -> None:
    _refuse_hot(lowest, highest, attrs["depth"], attrs["name"])


def _refuse_hot(lowest: int, highest: int, depth: int, name: str | tuple[str, str]) -> None:
    words = name if isinstance(name, str) else name[int(lowest >= 0)]
    more = f" for depth {depth}" if words.startswith("one_hot") else ""  # who calls it a class, knows no depth
    _refuse(lowest, highest, 0, depth, words, ArgumentError, more)


def _gather_slices(x: Any, indices: Any, axis: int, only_within: str | None) -> Any:
    if only_within is not None and indices.size:
        _refuse(indices.min(), indices.max(), 0, x.shape[axis], only_within, TensorIndexError, "")
    return np.take(x, indices, axis)


_gather = _Lookup("gather", _gather_slices, _check_gather, 1)


@_gather.def_there
def _(x: Any, indices: Any, axis: int, only_within: str | None) -> Any:
    return lookups.take(x, indices, axis)


@primitive
def _scatter_add(x: Any, indices: Any, axis: int, shape: tuple[int, ...]) -> Any:
    """Zeros of `shape` to which the slices of `x` are added at `indices` along `axis`, in their order."""
    out = np.zeros(shape, x.dtype)
    # Not `out[...] += x`, which adds once where an index comes several times.
    np.add.at(out, (*(slice(None),) * axis, indices), x)
    return out


scatter_add_primitive = _scatter_add


def _gather_of_steps(arrays: Sequence[Any], varying: Sequence[bool], attrs: dict[str, Any]) -> Any:
    (x, indices), axis = arrays, attrs["axis"]
    if not varying[1]:
        return _gather.run_here(arrays, arrays, axis_behind_steps(attrs, len(x)))
    if not varying[0]:
        return rows.first(_gather.run_here(arrays, arrays, attrs), axis)
    if isinstance(x, DeviceArray):
        return one_after_another(lookups.take, arrays, varying, {"axis": axis})
    if indices.size:
        _check_gather(indices.min(), indices.max(), [x[0]], attrs)
    return rows.take(x, indices, axis)


def _scatter_of_steps(arrays: Sequence[Any], varying: Sequence[bool], attrs: dict[str, Any]) -> Any:
    if not varying[1]:
        further = {"axis": attrs["axis"] + 1, "shape": (len(arrays[0]), *attrs["shape"])}
        return _scatter_add.run_here(arrays, arrays, further)
    if isinstance(arrays[0], DeviceArray):
        return one_after_another(scatter.scatter_add, arrays, varying, attrs)
    return rows.add(*repeat_over_time(arrays, varying), **attrs)


def _scatter_of_sum(arrays: Sequence[Any], varying: Sequence[bool], attrs: dict[str, Any]) -> Any:
    """The sum of all steps, by whose positions the steps are more of them."""
    x, indices = arrays
    if not varying[1]:
        return _scatter_add.run_here([space_of(x).sum(x), indices], arrays, attrs)
    x, indices = repeat_over_time(arrays, varying)
    return _scatter_add.run_here([rows.back(x, attrs["axis"]), indices], arrays, attrs)


_gather.over_time = _gather_of_steps
_gather.proportional = lambda inputs, varying: list(varying) == [True, False]
_scatter_add.over_time, _scatter_add.summed = _scatter_of_steps, _scatter_of_sum


@_scatter_add.def_there
def _(x: Any, indices: Any, axis: int, shape: tuple[int, ...]) -> Any:
    return scatter.scatter_add(x, indices, axis, shape)


@_gather.def_bprop
def _(_x: Tensor, indices: Tensor, _out: Tensor, dout: Tensor, *, axis: int, only_within: str | None) -> Grads:
    return _scatter_add.bind(dout, indices, axis=axis, shape=_x.shape), None


@_scatter_add.def_bprop
def _(_x: Tensor, indices: Tensor, _out: Tensor, dout: Tensor, *, axis: int, shape: Any) -> Grads:
    return gather(dout, indices, axis), None


def gather(x: Numbers, indices: Numbers, axis: int = 0) -> Tensor:
    """Slices of `x` at integer positions along an axis; the axis is replaced by the shape of `indices`.

    Raises:
        TensorIndexError: for a position out of range.
    """
    tensor, where = as_tensor(x, "gather"), _no_mask(as_tensor(indices, "gather", "indices"))
    result: Tensor = _gather.bind(tensor, where, axis=as_axis(axis, tensor.ndim, "gather"), only_within=None)
    return result


def take_places(x: Tensor, places: Any, axis: int) -> Tensor:
    """The slices of `x` at places along an axis that are known, integers in an array of NumPy."""
    with beside(x):
        result: Tensor = _gather.bind(x, Tensor(np.asarray(places, np.int64)), axis=axis, only_within=None)
    return result


def lookup(table: Tensor, indices: Any, name: str) -> Tensor:
    """Rows of `table` at `indices`, none negative; `name` is what errors call an index out of range.

    Raises:
        DTypeError: if `indices` are no integers.
        TensorIndexError: for an index out of range.
    """
    where = as_tensor(indices, name)
    if where.dtype.category != 1:
        raise DTypeError(f"{name}: indices are integers, not {where.dtype}. Convert them: x.astype('int64').")
    rows: Tensor = _gather.bind(table, where, axis=0, only_within=name)
    return rows


def _ones_at(indices: Any, depth: int, axis: int, dtype: Any, name: str | tuple[str, str]) -> Any:
    if indices.size:
        _refuse_hot(indices.min(), indices.max(), depth, name)
    out = np.zeros((*indices.shape, depth), dtype)
    np.put_along_axis(out, indices[..., None], 1, -1)
    return np.moveaxis(out, -1, axis)


_one_hot = _Lookup("one_hot", _ones_at, _check_hot, 0)
_one_hot.no_gradient()
with_axis_of_steps(_one_hot, axis_behind_steps)


@_one_hot.def_there
def _(indices: Any, depth: int, axis: int, dtype: Any, name: str | tuple[str, str]) -> Any:
    order = list(range(indices.ndim))
    order.insert(axis, indices.ndim)
    return lookups.one_hot(indices, depth, dtype).transpose(order)


def one_hot(
    indices: Numbers, depth: Size, on_value: float | Tensor = 1.0, off_value: float | Tensor = 0.0, axis: int = -1
) -> Tensor:
    """`on_value` at each index along a new axis of length `depth`, `off_value` elsewhere.

    Raises:
        ArgumentError: for an index outside of [0, depth).
    """
    tensor = as_tensor(indices, "one_hot", "indices")
    if tensor.dtype.category != 1:
        raise DTypeError(f"one_hot: takes integers, not {tensor.dtype}. Convert them: indices.astype('int64').")
    ones = hot(tensor, as_int(depth, "one_hot", "depth"), axis, "one_hot: index")
    plain = not isinstance(on_value, Tensor) and not isinstance(off_value, Tensor)
    return ones if plain and (on_value, off_value) == (1.0, 0.0) else ones * (on_value - off_value) + off_value


def label_words(who: str, classes: int, ignores: bool) -> tuple[str, str]:
    """The pair of names for `hot` that labels have; `ignores` says whether there is an ignore_index."""
    begin, ignored = (
        f"{who}: the outputs have {classes} class(es), numbered from 0;",
        "name a label that does not count",
    )
    wider, named = "make the last layer as wide as there are classes", f"{ignored} by ignore_index" if ignores else ""
    low = named or "leave samples without one out"
    return f"{begin} {low}. Label", f"{begin} {wider}{named and ', or '}{named}. Label"


def hot(indices: Tensor, depth: int, axis: int, name: str | tuple[str, str]) -> Tensor:
    """float32 ones at each index along a new axis.

    `name` is what errors call an index out of range: one name, or a pair of them, for one below 0 and one too high.
    """
    number = as_axis(axis, indices.ndim + 1, "one_hot")
    ones: Tensor = _one_hot.bind(indices, depth=depth, axis=number, dtype=np.dtype(np.float32), name=name)
    return ones
