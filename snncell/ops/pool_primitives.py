"""The operations that pooling is made of, over windows of the last axes of (N, C, *S).

    max_pool    the largest element of each window, and its place there
    unpool      what each window has, at its place in the image    the reverse of max_pool, and of pick
    pick        the element of the image at each window's place    the reverse of unpool
    largest     the largest element alone, for what no gradient goes through
    sum_pool    the sum of each window over a number               the reverse of spread
    spread      what each window has, in all of its places         the reverse of sum_pool

Given the places, all of them are linear: so there are reverses of any order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from snncell.kernels import pooling
from snncell.kernels.cpu.windows import Windows
from snncell.kernels.cuda import gather, im2col, scan
from snncell.kernels.space import DEVICE
from snncell.ops import elementwise as el
from snncell.tape.primitive import Primitive, repeat_over_time, steps_of
from snncell.tape.tensor import Tensor

Grads = Sequence[Any]
Ints = tuple[int, ...]


class Pooling(Primitive):
    """An operation on the planes of images, each by itself."""

    def __init__(self, evaluate: Callable[..., Any], shape_of: Callable[..., Ints], *, multiple: bool = False) -> None:
        super().__init__(evaluate.__name__, evaluate, multiple=multiple)
        self.shape_of = shape_of  # of the result, from the inputs and attributes

    def abstract(self, inputs: tuple[Any, ...], attrs: dict[str, Any]) -> list[tuple[Any, Any]]:
        outputs = [(self.shape_of(*inputs, **attrs), inputs[0].dtype)]
        return [*outputs, (outputs[0][0], pooling.place_dtype(attrs["windows"]))] if self.multiple else outputs

    def over_time(self, arrays: Sequence[Any], varying: Sequence[bool], attrs: dict[str, Any]) -> Any:
        """The images of all steps as one batch."""
        every, steps = repeat_over_time(arrays, varying), steps_of(arrays, varying)
        joined = [x.reshape(steps * x.shape[1], *x.shape[2:]) for x in every]
        out = self.run_here(joined, joined, attrs)
        parts = [x.reshape(steps, every[0].shape[1], *x.shape[1:]) for x in (out if self.multiple else (out,))]
        return tuple(parts) if self.multiple else parts[0]


def _pool_windows(x: Any, windows: Windows, **_: Any) -> Ints:
    return pooling.shape_after_pooling(x.shape, windows)


def _image(x: Any, *_: Any, lengths: Ints, **__: Any) -> Ints:
    return (*x.shape[:2], *lengths)


max_pool = Pooling(pooling.max_pool, _pool_windows, multiple=True)
unpool = Pooling(pooling.unpool, _image)
pick = Pooling(pooling.pick, lambda _, places, windows: places.shape)
largest = Pooling(pooling.largest, _pool_windows)
sum_pool = Pooling(pooling.sum_pool, _pool_windows)
spread = Pooling(pooling.spread, _image)
sum_pool.additive = spread.additive = True
unpool.proportional = pick.proportional = lambda inputs, varying: not varying[1]


@max_pool.def_bprop
def _(_x: Tensor, out: tuple[Tensor, Tensor], dout: tuple[Tensor, Tensor], *, windows: Windows) -> Grads:
    return (unpool.bind(dout[0], out[1], windows=windows, lengths=_x.shape[2:]),)


@largest.def_bprop
def _(x: Tensor, _out: Tensor, dout: Tensor, *, windows: Windows) -> Grads:
    return (unpool.bind(dout, max_pool.bind(x, windows=windows)[1], windows=windows, lengths=x.shape[2:]),)


@unpool.def_bprop
def _(_x: Tensor, places: Tensor, _out: Tensor, dout: Tensor, *, windows: Windows, lengths: Ints) -> Grads:
    return lambda: pick.bind(dout, places, windows=windows), None


@pick.def_bprop
def _(_x: Tensor, places: Tensor, _out: Tensor, dout: Tensor, *, windows: Windows) -> Grads:
    return lambda: unpool.bind(dout, places, windows=windows, lengths=_x.shape[2:]), None


@sum_pool.def_bprop
def _(_x: Tensor, _out: Tensor, dout: Tensor, *, windows: Windows, divisor: int) -> Grads:
    return (spread.bind(dout, windows=windows, divisor=divisor, lengths=_x.shape[2:]),)


@spread.def_bprop
def _(_x: Tensor, _out: Tensor, dout: Tensor, *, windows: Windows, divisor: int, lengths: Ints) -> Grads:
    return (sum_pool.bind(dout, windows=windows, divisor=divisor),)


# --- on the device: from windows as a view, and their adjoint ---------------------------------------------------------


@max_pool.def_there
def _(x: Any, windows: Windows) -> Any:
    view = _view_windows(x, windows, -math.inf)
    places = scan.argmax(view, view.ndim - 1)
    return gather.pick(view, places), DEVICE.cast(places, pooling.place_dtype(windows))


@largest.def_there
def _(x: Any, windows: Windows) -> Any:
    view = _view_windows(x, windows, -math.inf)
    return gather.pick(view, scan.argmax(view, view.ndim - 1))


@unpool.def_there
def _(x: Any, places: Any, windows: Windows, lengths: Ints) -> Any:
    return _fold_windows(gather.place(x, places, windows.elements), windows, lengths)


@pick.def_there
def _(x: Any, places: Any, windows: Windows) -> Any:
    return gather.pick(_view_windows(x, windows, 0.0), places)


@sum_pool.def_there
def _(x: Any, windows: Windows, divisor: int) -> Any:
    view = _view_windows(x, windows, 0.0)
    total = DEVICE.arithmetic["sum"].on_device([view], {"axis": (view.ndim - 1,), "keepdims": False})
    return total if divisor == 1 else el.div.on_device([total, divisor], {})


@spread.def_there
def _(x: Any, windows: Windows, divisor: int, lengths: Ints) -> Any:
    share = x if divisor == 1 else el.div.on_device([x, divisor], {})
    return _fold_windows(share.reshape(*x.shape, 1).broadcast_to((*x.shape, windows.elements)), windows, lengths)


def _view_windows(x: Any, windows: Windows, value: float) -> Any:
    """(N, C, *S) -> (N, C, *O, elements of a window)."""
    padded: Any = np.pad(x, ((0, 0), (0, 0), *windows.padding), constant_values=value) if windows.padded else x
    view = im2col.windows(padded, windows.size, windows.stride, windows.dilation)
    return view.reshape(*view.shape[: x.ndim], windows.elements)


def _fold_windows(x: Any, windows: Windows, lengths: Ints) -> Any:
    """(N, C, *O, elements of a window) -> (N, C, *lengths), without padding."""
    whole = [n + before + after for n, (before, after) in zip(lengths, windows.padding, strict=True)]
    parts = x.reshape(*x.shape[:-1], *windows.size)
    image = im2col.fold(parts, (*x.shape[:2], *whole), windows.size, windows.stride, windows.dilation)
    inner = zip(windows.padding, lengths, strict=True)
    return image[(..., *(slice(before, before + n) for (before, _), n in inner))]
