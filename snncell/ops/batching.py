"""`vmap`: a function of single samples as a function of batches of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from snncell.base.arguments.kinds import Own
from snncell.base.arguments.shown import came, show
from snncell.errors import ArgumentError, ShapeError
from snncell.ops.control import run_scan
from snncell.ops.shape import transpose
from snncell.tape import structure
from snncell.tape.recording import wraps
from snncell.tape.tensor import Tensor


def vmap(fn: Annotated[Callable[..., Any], Own()], in_axes: Any = 0, out_axes: Any = 0) -> Callable[..., Any]:
    """A function that applies `fn` to each slice of its arguments along an axis, and stacks the results.

    y[i] = fn(x[i], ...) for each slice i, as `ops.scan` without a carry gives it: `fn` is traced once. No slice waits
    for the one before, so each operation is carried out for all slices at once, by the rule that it has for this
    (`Primitive.over_time`), and the function that comes of it is fused and compiled like one that was written for a
    batch, as are its gradients, inside and outside. Results are those of the slices: to rounding where a product or a
    sum has another order for more rows, else to the bit.

    Slice after slice goes what has a state: a function that draws random numbers (each slice draws its own) or writes
    to Parameters, and in it `ops.scan` with a carry, a spiking layer over time. `snncell.explain` says which it is:
    "no loop: all 64 steps at once", or "64 steps one by one". All slices are in memory together.

    Args:
        fn: a function or Cell of Tensors, which gives Tensors.
        in_axes: the axis of each argument that is gone along; None for an argument that all slices share. An int stands
            for all arguments, a tuple has one for each.
        out_axes: the axis of each result that the slices are stacked along; None for one that does not depend on the
            slice.

    Returns:
        A function with `fn`'s arguments, each with one axis more.

    Raises:
        ArgumentError: for axes that do not fit the arguments, or results that are no Tensors.
        ShapeError: for arguments with different numbers of slices.

    Example:
        >>> snncell.vmap(lambda row, w: (row * w).sum(), in_axes=(0, None))(ops.ones((2, 3)), Tensor([1.0, 2.0, 3.0]))
        Tensor(shape=[2], dtype=Float32, value= [ 6.00000000e+00,  6.00000000e+00])
    """
    if not callable(fn) or isinstance(fn, type):
        raise ArgumentError(f"vmap: fn is a function or a Cell, not {came(fn)}.")
    _refuse_axes(in_axes, "in_axes", "argument")
    _refuse_axes(out_axes, "out_axes", "result")

    return wraps(fn, lambda *args: _map_function(fn, args, in_axes, out_axes))


def _map_function(fn: Callable[..., Any], args: tuple[Any, ...], in_axes: Any, out_axes: Any) -> Any:
    axes = _axes(in_axes, len(args), "in_axes", "argument")
    along = [n for n, axis in enumerate(axes) if axis is not None]
    if not along:
        raise ArgumentError("vmap: in_axes are all None: there is no axis to go along.")
    xs = tuple(_first(args[n], axes[n], f"in_axes: argument {n}") for n in along)
    sizes = [x.shape[0] for x in structure.flatten(xs)[0]]
    if len(set(sizes)) != 1:
        raise ShapeError(f"vmap: the arguments have {sizes} slices along in_axes; they need one number of them.")

    def one(carry: Any, slices: Any) -> Any:
        own = dict(zip(along, slices, strict=True))
        return carry, fn(*[own.get(n, x) for n, x in enumerate(args)])

    _, ys = run_scan(one, (), xs, who="vmap")
    outs = ys if isinstance(ys, tuple) else (ys,)
    places = _axes(out_axes, len(outs), "out_axes", "result")
    moved = [_last(y, axis) for y, axis in zip(outs, places, strict=True)]
    return tuple(moved) if isinstance(ys, tuple) else moved[0]


def _refuse_axes(given: Any, name: str, what: str) -> None:
    for axis in given if isinstance(given, (tuple, list)) else [given]:
        if axis is not None and (isinstance(axis, bool) or not isinstance(axis, int)):
            raise ArgumentError(f"vmap: {name} is an axis, None, or a tuple of one for each {what}, not {show(given)}.")


def _axes(given: Any, count: int, name: str, what: str) -> list[int | None]:
    axes = list(given) if isinstance(given, (tuple, list)) else [given] * count
    if len(axes) != count:
        raise ArgumentError(f"vmap: {name} has {len(axes)} axes for {count} {what}(s).")
    return axes


def _first(tree: Any, axis: int | None, name: str) -> Any:
    """Each Tensor with that axis in front."""

    def moved(x: Tensor) -> Tensor:
        assert axis is not None
        if not -x.ndim <= axis < x.ndim:
            raise ArgumentError(f"vmap: {name} of shape {x.shape} has no axis {axis}.")
        return _move_axis(x, axis % x.ndim, 0)

    if axis is None or not structure.flatten(tree)[0]:
        raise ArgumentError(f"vmap: {name} is {came(tree)}, which has no slices; its axis is None.")
    return structure.map_leaves(moved, tree)


def _last(tree: Any, axis: int | None) -> Any:
    """Each Tensor with its first axis at another place; with None the first slice."""

    def moved(y: Tensor) -> Tensor:
        if axis is None:
            return y[0]
        if not -y.ndim <= axis < y.ndim:
            raise ArgumentError(
                f"vmap: out_axes: a result of shape {y.shape[1:]} has no place {axis} for an axis more."
            )
        return _move_axis(y, 0, axis % y.ndim)

    return structure.map_leaves(moved, tree)


def _move_axis(x: Tensor, source: int, target: int) -> Tensor:
    order = [n for n in range(x.ndim) if n != source]
    order.insert(target, source)
    moved: Tensor = x if source == target else transpose(x, tuple(order))
    return moved
