"""Convolutions: three operations, of which each is the reverse of the other two.

    Convolution        images, weight  -> results   y[n, o, p] = sum over c, k of x[n, c, p s + k d - b] w[o, c, k]
    ConvolutionBack    results, weight -> images    the gradient of the images
    ConvolutionWeight  images, results -> weight    the gradient of the weight

s is the stride, d the dilation, and b how much padding is before an image; outside of an image it is 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from snncell.base.text import percent
from snncell.compiler.ir.formula import Sum
from snncell.dtype import BYTES, FLOATS
from snncell.kernels import conv_events, convolution, windows, winograd
from snncell.kernels.planes import Shape, axes_of, sizes_of
from snncell.kernels.space import HOST, Space, space_of
from snncell.tape.primitive import Primitive, one_after_another

Arrays = Sequence[Any]


class BilinearOperation(Primitive):
    """A sum of products of two operands.

    Attributes:
        extent: the option that gives the lengths of the result.
        batched: which operands have images, so that time is one more axis of images.
        total: the sum of elements, which the gradient of a weight takes of an operand where the other is repeated.
        costs: of the events of the first operand, if its work may be in proportion to its elements that are not zero.
    """

    extent: str
    batched: tuple[bool, bool]
    costs: conv_events.ConvolutionCosts | None = None
    total: Sum

    def __init__(self, name: str, fast: Any, general: Any) -> None:
        super().__init__(name, self._evaluated)
        self._fast, self._general = fast, general

    def _evaluated(self, x: Any, y: Any, **attrs: Any) -> Any:
        if convolution.takes(x, y):
            return self._fast(x, y, **attrs)
        return self._general(x.astype(y.dtype) if x.dtype in BYTES and y.dtype in FLOATS else x, y, **attrs)

    def abstract(self, inputs: tuple[Any, ...], attrs: dict[str, Any]) -> list[tuple[Any, Any]]:
        x, y = inputs
        dtype = x.dtype if x.dtype == y.dtype else np.result_type(x.dtype, y.dtype)
        return [((*self._channels(x.shape, y.shape, attrs["groups"]), *attrs[self.extent]), dtype)]

    def _channels(self, x: tuple[int, ...], y: tuple[int, ...], groups: int) -> tuple[int, int]:
        raise NotImplementedError

    def over_time(self, arrays: Arrays, varying: Sequence[bool], attrs: dict[str, Any]) -> Any:
        """The results of all steps: at once where the weight is the same."""
        if self.batched == tuple(varying) and not all(varying):
            x, y = (_merge_time(a) if varies else a for a, varies in zip(arrays, varying, strict=True))
            steps = len(arrays[varying.index(True)])
            out = self._evaluated(x, y, **attrs)
            return out.reshape(steps, len(out) // steps, *out.shape[1:])
        return one_after_another(self._evaluated, arrays, varying, attrs)

    def summed(self, arrays: Arrays, varying: Sequence[bool], attrs: dict[str, Any]) -> Any:
        """The sum over time: time as more images, or the total of what varies with what does not."""
        if all(varying):
            if all(self.batched):
                return self._evaluated(*map(_merge_time, arrays), **attrs)
            out = self.over_time(arrays, varying, attrs)
            return space_of(out).sum(out)
        return self._evaluated(
            *(space_of(a).sum(a) if varies else a for a, varies in zip(arrays, varying, strict=True)), **attrs
        )

    def explained(self, attrs: dict[str, Any], space: Space = HOST) -> list[str]:
        """Its words for `explain`."""
        return [WINDOWS] if space is not HOST else []

    def choice(self, inputs: Sequence[Any], attrs: dict[str, Any]) -> list[str]:
        """The way it is computed on the CPU, for operands of these sizes."""
        x, y = inputs
        if len(attrs["stride"]) > 2 or np.dtype(x.dtype).kind == "c":
            return [WINDOWS]
        below = self.limit(x, y, attrs)
        dense = TILES if winograd.pays(self._correlation(x.shape, y.shape, attrs)) else SUMS
        return (
            [f"as events below {percent(below)} of non-zero elements in the images, else {dense}"]
            if below > 0
            else [dense]
        )

    def limit(self, x: Any, y: Any, attrs: dict[str, Any]) -> float:
        """The density of the first operand below which its events are looked at; not above 0 if never."""
        if self.costs is None or len(attrs["stride"]) > 2 or np.dtype(y.dtype).kind != "f":
            return 0.0
        shape = self._correlation(x.shape, y.shape, attrs)
        return conv_events.limit(shape, max(4, np.dtype(y.dtype).itemsize), self.costs)

    def _correlation(self, x: tuple[int, ...], y: tuple[int, ...], attrs: dict[str, Any]) -> Shape:
        """The sizes of its sums, from the shapes of its operands."""
        raise NotImplementedError


WINDOWS = "a product of the images' windows"
SUMS = "as sums over shifted images, in tiles that stay in registers"
TILES = "by Winograd's tiles of 2x2 results"


def _axes(images: tuple[int, ...], window: tuple[int, ...], count: tuple[int, ...], attrs: dict[str, Any]) -> Any:
    return axes_of(sizes_of(images, window, attrs["stride"], attrs["dilation"], attrs["before"], count))


def _merge_time(x: Any) -> Any:
    return x.reshape(x.shape[0] * x.shape[1], *x.shape[2:])


class Convolution(BilinearOperation):
    """(N, C, *S), (O, C // groups, *K) -> (N, O, *count)."""

    extent, batched, costs = "count", (True, False), conv_events.OF_RESULTS

    def __init__(self) -> None:
        super().__init__("conv", convolution.convolve, windows.convolve)

    def _channels(self, x: tuple[int, ...], y: tuple[int, ...], groups: int) -> tuple[int, int]:
        return x[0], y[0]

    def _correlation(self, x: tuple[int, ...], y: tuple[int, ...], attrs: dict[str, Any]) -> Shape:
        groups = attrs["groups"]
        return Shape(x[0], groups, y[1], y[0] // groups, _axes(x, y[2:], attrs["count"], attrs))


class ConvolutionBack(BilinearOperation):
    """(N, O, *P), (O, C // groups, *K) -> (N, C, *lengths)."""

    extent, batched = "lengths", (True, False)

    def __init__(self) -> None:
        super().__init__("conv_back", convolution.convolve_back, windows.convolve_back)

    def _channels(self, x: tuple[int, ...], y: tuple[int, ...], groups: int) -> tuple[int, int]:
        return x[0], y[1] * groups

    def _correlation(self, x: tuple[int, ...], y: tuple[int, ...], attrs: dict[str, Any]) -> Shape:
        groups = attrs["groups"]
        return Shape(x[0], groups, y[0] // groups, y[1], _axes(x, y[2:], attrs["lengths"], attrs))


class ConvolutionWeight(BilinearOperation):
    """(N, C, *S), (N, O, *P) -> (O, C // groups, *size)."""

    extent, batched, costs = "size", (True, True), conv_events.OF_WEIGHTS

    def __init__(self) -> None:
        super().__init__("conv_weight", convolution.convolve_weight, windows.convolve_weight)

    def _channels(self, x: tuple[int, ...], y: tuple[int, ...], groups: int) -> tuple[int, int]:
        return y[1], x[1] // groups

    def _correlation(self, x: tuple[int, ...], y: tuple[int, ...], attrs: dict[str, Any]) -> Shape:
        groups = attrs["groups"]
        return Shape(x[0], groups, x[1] // groups, y[1] // groups, _axes(x, attrs["size"], y[2:], attrs))
