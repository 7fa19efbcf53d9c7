"""Matrix products and convolutions. Each is one instruction until it runs, for any number of axes of its operands.

    Dot          (..., k), (k, m) -> (..., m)        a layer
    Contraction  (..., k), (..., m) -> (k, m)        the gradient of its weights

So passes find a product and its operands in one instruction. Otherwise they would have to match a reshape to two axes,
a matrix product and a reshape back, and in the backward pass a transpose, too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from snncell.base.arguments.shown import percent
from snncell.compiler.ir.operations import Cast, Sum
from snncell.dtype import BYTES, FLOATS, compute_dtype
from snncell.kernels.conv import depthwise, direct, events, im2col, pointwise, winograd
from snncell.kernels.conv.planes import Shape, axes_of, sizes_of, with_two_axes
from snncell.kernels.products import csr, matmul
from snncell.kernels.space import HOST, Space, space_of
from snncell.tape.primitive import Primitive, one_after_another
from snncell.tape.tracing import Instruction

_EVENTS_BELOW = "event-driven below {} of non-zero elements"


def as_rows(x: Any) -> Any:
    """`x` (..., n) as a matrix (rows, n)."""
    return x if x.ndim == 2 else x.reshape(math.prod(x.shape[:-1]), x.shape[-1])


def _density(x: Any) -> float:
    """The share of nonzero elements of an array, or of event lists."""
    return float(np.count_nonzero(x) / max(x.size, 1) if isinstance(x, np.ndarray) else x.density)


def _rows_of_steps(x: Any) -> Any:
    return x.reshape(len(x), math.prod(x.shape[1:-1]), x.shape[-1])


class Product(Primitive):
    """`x @ y` as in NumPy: (..., n, k) and (..., k, m) give (..., n, m)."""

    as_stored = ("gpu",)  # cuBLAS accumulates float16 and bfloat16 in float32
    total: Sum  # the sum over an operand, which can replace a sum over the result
    by_columns: bool | None = None  # True if events of the first operand are used by columns; None if never

    def __init__(self) -> None:
        super().__init__("matmul", self._product)

    def _product(self, x: Any, y: Any) -> Any:
        return matmul.matmul(x, y)

    def limit(self, x: Any, y: Any) -> float:
        """The density of the first operand below which the product is event-driven; 0 if never."""
        if self.by_columns is None or x.dtype != y.dtype:
            return 0.0
        dtype = compute_dtype(y.dtype)
        return csr.limit(math.prod(x.shape[:-1]), x.shape[-1], y.shape[-1], dtype, by_columns=self.by_columns)

    def choice(self, inputs: Sequence[Any], attrs: dict[str, Any]) -> list[str]:
        below = self.limit(*inputs)
        if below <= 0:
            return ["by BLAS: for operands of these sizes and dtypes, a search for events does not save time"]
        return [f"{_EVENTS_BELOW.format(percent(below))} in the first operand, else by BLAS"]

    def operations(self, inputs: Sequence[Any], outputs: Sequence[Any], attrs: dict[str, Any], used: float) -> float:
        return float(2.0 * used * math.prod(outputs[0].shape) * inputs[0].shape[-1])

    def event_density(self, arrays: Sequence[Any], attrs: dict[str, Any]) -> tuple[float, bool] | None:
        x, y = arrays
        if self.limit(x, y) <= 0 or not (x.shape[:-1] == y.shape[:-1] if self.by_columns else y.ndim == 2):
            return None
        rows = as_rows(x)
        return _density(x), matmul.uses_events(rows.T if self.by_columns else rows, as_rows(y))

    def into(self, out: Any, x: Any, y: Any) -> None:
        """Compute the product into `out`, which is contiguous."""
        matmul.matmul_into(out, x, y)

    def _shape(self, x: tuple[int, ...], y: tuple[int, ...]) -> tuple[int, ...]:
        return (*np.broadcast_shapes(x[:-2], y[:-2]), x[-2], y[-1])

    def abstract(self, inputs: tuple[Any, ...], attrs: dict[str, Any]) -> list[tuple[Any, Any]]:
        x, y = inputs
        return [(self._shape(x.shape, y.shape), x.dtype if x.dtype == y.dtype else np.result_type(x.dtype, y.dtype))]

    def over_time(self, arrays: Sequence[Any], varying: Sequence[bool], attrs: dict[str, Any]) -> Any:
        """The products of all steps of a loop; a constant operand is not repeated."""
        x, y = (array if varies else array[None] for array, varies in zip(arrays, varying, strict=True))
        ndim = max(x.ndim, y.ndim)
        return matmul.matmul(*(a.reshape(len(a), *[1] * (ndim - a.ndim), *a.shape[1:]) for a in (x, y)))

    def summed(self, arrays: Sequence[Any], varying: Sequence[bool], attrs: dict[str, Any]) -> Any:
        """The sum of the products of all steps; a constant operand is a common factor: sum(x_t) @ y."""
        x, y = arrays
        if not varying[1]:
            return self._product(space_of(x).sum(x), y)
        if not varying[0]:
            return self._product(x, space_of(y).sum(y))
        out = self.over_time(arrays, varying, attrs)
        return space_of(out).sum(out)


class Dot(Product):
    """The product of rows and a matrix: (..., k) and (k, m) give (..., m)."""

    by_columns = False

    def _product(self, x: Any, y: Any) -> Any:
        return matmul.matmul(as_rows(x), y).reshape(self._shape(x.shape, y.shape))

    def into(self, out: Any, x: Any, y: Any) -> None:
        matmul.matmul_into(as_rows(out), as_rows(x), y)

    def _shape(self, x: tuple[int, ...], y: tuple[int, ...]) -> tuple[int, ...]:
        return (*x[:-1], y[1])

    def over_time(self, arrays: Sequence[Any], varying: Sequence[bool], attrs: dict[str, Any]) -> Any:
        x, y = arrays
        if not varying[1]:
            return self._product(x, y)
        steps = super().over_time([_rows_of_steps(x) if varying[0] else as_rows(x), y], varying, attrs)
        return steps.reshape(len(y), *x.shape[int(varying[0]) : -1], y.shape[-1])

    def summed(self, arrays: Sequence[Any], varying: Sequence[bool], attrs: dict[str, Any]) -> Any:
        x, y = arrays
        if not all(varying) or x.ndim != 3:
            return super().summed(arrays, varying, attrs)
        # In the sum over t and k of x[t, n, k] y[t, k, m], (t, k) is one axis of a single product.
        columns = x.transpose(0, 2, 1).reshape(x.shape[0] * x.shape[2], x.shape[1])
        return matmul.matmul(columns.T, as_rows(y))


class Contraction(Product):
    """The product x.T @ y of rows: (..., k) and (..., m) give (k, m), summed over the leading axes. It is the gradient
    of the matrix of `Dot`. If `turned`, the result is transposed, (m, k), as the gradient of w in `Dot(x, w.T)`.
    """

    by_columns = True
    other: Contraction  # the operation with the transposed result

    def __init__(self, *, turned: bool = False) -> None:
        super().__init__()
        self.turned = turned

    def _product(self, x: Any, y: Any) -> Any:
        return matmul.matmul(as_rows(x).T, as_rows(y), turned=self.turned)

    def into(self, out: Any, x: Any, y: Any) -> None:
        matmul.matmul_into(out.T if self.turned else out, as_rows(x).T, as_rows(y))

    def operations(self, inputs: Sequence[Any], outputs: Sequence[Any], attrs: dict[str, Any], used: float) -> float:
        return float(2.0 * used * math.prod(inputs[0].shape) * inputs[1].shape[-1])

    def _shape(self, x: tuple[int, ...], y: tuple[int, ...]) -> tuple[int, ...]:
        return (y[-1], x[-1]) if self.turned else (x[-1], y[-1])

    def over_time(self, arrays: Sequence[Any], varying: Sequence[bool], attrs: dict[str, Any]) -> Any:
        x, y = (_rows_of_steps(a) if varies else as_rows(a) for a, varies in zip(arrays, varying, strict=True))
        if self.turned:
            (x, y), varying = (y, x), varying[::-1]
        return super().over_time([x.transpose(*range(x.ndim - 2), -1, -2), y], varying, attrs)

    def summed(self, arrays: Sequence[Any], varying: Sequence[bool], attrs: dict[str, Any]) -> Any:
        return self._product(*arrays) if all(varying) else super().summed(arrays, varying, attrs)


class EventOperation(Primitive):
    """An operation for products that share a list of events; booleans in its first operand count as 0 and 1."""

    def __init__(self, name: str, evaluate: Any, text: str, *, multiple: bool = False) -> None:
        super().__init__(name, evaluate, multiple=multiple)
        self.text = text
        self.differentiable = False

    def describe(self, attrs: dict[str, Any], space: Space = HOST) -> list[str]:
        return [self.text.format(below=percent(attrs["below"]))]


def _product_of_events(
    x: Any, places: Any, values: Any, starts: Any, counts: Any, y: Any, *, by_columns: bool, turned: bool, below: float
) -> Any:
    found = matmul.MatrixEvents(places, values, starts, counts)
    if by_columns:  # a Contraction
        return matmul.product_of_events(as_rows(x), found, as_rows(y), by_columns=True, turned=turned)
    out = matmul.product_of_events(as_rows(x), found, y, by_columns=False, turned=False)
    return out.reshape(*x.shape[:-1], y.shape[1])


class ProductOfEvents(EventOperation):
    """A product with known events of its first operand: `x @ y` or, if `by_columns`, `x.T @ y` along all rows. The
    event lists cover all steps of a loop, so the product runs once, for all steps together. Only kernels that gather or
    scatter read the events of one step from these lists.
    """

    def operations(self, inputs: Sequence[Any], outputs: Sequence[Any], attrs: dict[str, Any], used: float) -> float:
        return float(2.0 * used * math.prod(inputs[0].shape) * inputs[-1].shape[-1])

    def event_density(self, arrays: Sequence[Any], attrs: dict[str, Any]) -> tuple[float, bool] | None:
        x, *lists, y = arrays
        left = as_rows(x).T if attrs["by_columns"] else as_rows(x)
        known = matmul.uses_known_events(left, matmul.MatrixEvents(*lists), as_rows(y), attrs["by_columns"])
        return _density(x), known

    def over_time(self, arrays: Sequence[Any], varying: Sequence[bool], attrs: dict[str, Any]) -> Any:
        """One product for all steps. If `by_columns`, it is the sum of the products of all steps."""
        return self.evaluate(*arrays, **attrs)

    summed = over_time


EVENTS = EventOperation(
    "events",
    lambda x, dtype, below: matmul.events_of(as_rows(x), dtype=dtype, below=below),
    "finds the events (nonzero elements) once for all products of this matrix, if they are below {below}",
    multiple=True,
)
PRODUCT_OF_EVENTS = ProductOfEvents(
    "product_of_events",
    _product_of_events,
    "event-driven below {below} of non-zero elements in the first operand, else by BLAS",
)


def casts_bytes(instruction: Instruction) -> bool:
    """True for an instruction that converts booleans or unsigned bytes to floats."""
    if not isinstance(instruction.op, Cast):
        return False
    return instruction.inputs[0].dtype in BYTES and instruction.outputs[0].dtype.kind == "f"


def along_rows(instruction: Instruction) -> bool:
    """True for `x.T @ y` along all rows, with or without known events of `x`."""
    known = isinstance(instruction.op, ProductOfEvents) and instruction.attrs["by_columns"]
    return known or isinstance(instruction.op, Contraction)


def choice_in_loop(instruction: Instruction, steps: int) -> str:
    """Describe how one of these products is computed in the body of a loop; "" if it is never event-driven."""
    x, y = instruction.inputs[0], instruction.inputs[-1]
    rows, by_columns = steps * math.prod(x.shape[:-1]), along_rows(instruction)
    below = csr.limit(rows, x.shape[-1], y.shape[-1], y.dtype, by_columns=by_columns)
    return f"in the loop, {_EVENTS_BELOW.format(percent(below))} in the first operand" if below else ""


def is_turned(instruction: Instruction) -> bool:
    """True if such a product gives the transpose."""
    return instruction.op.turned if isinstance(instruction.op, Contraction) else bool(instruction.attrs["turned"])


# --- Convolutions -----------------------------------------------------------------------------------------------------


Ints = tuple[int, ...]


class ConvolutionShapes(NamedTuple):
    """The shapes of a convolution's arrays: N images, C and O channels, the size S of an image, P windows of size K."""

    images: Ints  # (N, C, *S)
    results: Ints  # (N, O, *P)
    weight: Ints  # (O, C // groups, *K)


class BilinearOperation(Primitive):
    """A convolution of one of three kinds; each is the gradient of the other two.

        Convolution        images, weight  -> results   y[n, o, p] = sum over c, k of x[n, c, p s + k d - b] w[o, c, k]
        ConvolutionBack    results, weight -> images    the gradient of the images
        ConvolutionWeight  images, results -> weight    the gradient of the weight

    s is the stride, d the dilation, and b the padding before an image; outside of an image, x is 0.
    """

    computes: Literal["images", "results", "weight"]
    batched: tuple[bool, bool]  # whether each operand has a batch axis, which time can be merged with
    of_weights: bool | None = None  # True for the gradient of weights; None if events are never used
    total: Sum  # the sum over one operand, for the gradient of a weight if the other operand is repeated

    def __init__(self, name: str, fast: Any, general: Any) -> None:
        super().__init__(name, self._evaluate)
        self._fast, self._general = fast, general

    def _evaluate(self, x: Any, y: Any, **attrs: Any) -> Any:
        if direct.supports(x, y):
            return self._fast(x, y, **attrs)
        return self._general(x.astype(y.dtype) if x.dtype in BYTES and y.dtype in FLOATS else x, y, **attrs)

    def abstract(self, inputs: tuple[Any, ...], attrs: dict[str, Any]) -> list[tuple[Any, Any]]:
        x, y = inputs
        dtype = x.dtype if x.dtype == y.dtype else np.result_type(x.dtype, y.dtype)
        return [(getattr(self._shapes(x.shape, y.shape, attrs), self.computes), dtype)]

    def _shapes(self, x: Ints, y: Ints, attrs: dict[str, Any]) -> ConvolutionShapes:
        raise NotImplementedError

    def over_time(self, arrays: Sequence[Any], varying: Sequence[bool], attrs: dict[str, Any]) -> Any:
        """The results of all steps, in one convolution if the weight is the same at each step."""
        if self.batched == tuple(varying) and not all(varying):
            x, y = (_merge_time(a) if varies else a for a, varies in zip(arrays, varying, strict=True))
            steps = len(arrays[varying.index(True)])
            out = self._evaluate(x, y, **attrs)
            return out.reshape(steps, len(out) // steps, *out.shape[1:])
        return one_after_another(self._evaluate, arrays, varying, attrs)

    def summed(self, arrays: Sequence[Any], varying: Sequence[bool], attrs: dict[str, Any]) -> Any:
        """The sum over time: a single varying operand is summed first; with two, time becomes part of the batch."""
        if all(varying):
            if all(self.batched):
                return self._evaluate(*map(_merge_time, arrays), **attrs)
            out = self.over_time(arrays, varying, attrs)
            return space_of(out).sum(out)
        pairs = zip(arrays, varying, strict=True)
        return self._evaluate(*(space_of(a).sum(a) if varies else a for a, varies in pairs), **attrs)

    def describe(self, attrs: dict[str, Any], space: Space = HOST) -> list[str]:
        return [WINDOWS] if space is not HOST else []

    def choice(self, inputs: Sequence[Any], attrs: dict[str, Any]) -> list[str]:
        x, y = inputs
        if len(attrs["stride"]) > 2 or np.dtype(x.dtype).kind == "c":
            return [WINDOWS]
        below = self.limit(x, y, attrs)
        module = direct.other_algorithm(self._correlation(x.shape, y.shape, attrs))
        dense = DENSE_CONVOLUTIONS[module]
        return [f"{_EVENTS_BELOW.format(percent(below))} in the images, else {dense}" if below > 0 else dense]

    def operations(self, inputs: Sequence[Any], outputs: Sequence[Any], attrs: dict[str, Any], used: float) -> float:
        shapes = self._shapes(inputs[0].shape, inputs[1].shape, attrs)
        return 2.0 * used * math.prod(shapes.results) * math.prod(shapes.weight[1:])

    def event_density(self, arrays: Sequence[Any], attrs: dict[str, Any]) -> tuple[float, bool] | None:
        rank = 2 + len(attrs["stride"])
        x, y = (a if a.ndim == rank else _merge_time(a) for a in arrays)
        if self.of_weights is None or self.limit(x, y, attrs) <= 0:
            return None
        shape = self._correlation(x.shape, y.shape, attrs)
        return _density(x), bool(direct.supports(x, y)) and events.is_faster(with_two_axes(x), shape, self.of_weights)

    def limit(self, x: Any, y: Any, attrs: dict[str, Any]) -> float:
        """The density of the first operand below which the convolution is event-driven; 0 or negative if never."""
        if self.of_weights is None or len(attrs["stride"]) > 2 or np.dtype(y.dtype).kind != "f":
            return 0.0
        shape = self._correlation(x.shape, y.shape, attrs)
        return events.limit(shape, max(4, np.dtype(y.dtype).itemsize), self.of_weights)

    def _correlation(self, x: Ints, y: Ints, attrs: dict[str, Any]) -> Shape:
        """The shape of the equivalent correlation."""
        images, results, weight = self._shapes(x, y, attrs)
        source, target = (results, images) if self.computes == "images" else (images, results)
        sizes = sizes_of(source, weight[2:], attrs["stride"], attrs["dilation"], attrs["before"], target[2:])
        groups = attrs["groups"]
        return Shape(source[0], groups, source[1] // groups, target[1] // groups, axes_of(sizes))


WINDOWS = "a product of the images' windows"
SUMS = "as sums over shifted images, in tiles that stay in registers"
TILES = "by Winograd's tiles of 2x2 results"
CHANNELS = "as sums over the window, channel by channel"
POINTWISE = "as a matrix product of each image"
DENSE_CONVOLUTIONS = {None: SUMS, winograd: TILES, depthwise: CHANNELS, pointwise: POINTWISE}


def _merge_time(x: Any) -> Any:
    return x.reshape(x.shape[0] * x.shape[1], *x.shape[2:])


class Convolution(BilinearOperation):
    """(N, C, *S), (O, C // groups, *K) -> (N, O, *count)."""

    computes, batched, of_weights = "results", (True, False), False

    def __init__(self) -> None:
        super().__init__("conv", direct.convolve, im2col.convolve)

    def _shapes(self, x: Ints, y: Ints, attrs: dict[str, Any]) -> ConvolutionShapes:
        return ConvolutionShapes(x, (x[0], y[0], *attrs["count"]), y)


class ConvolutionBack(BilinearOperation):
    """(N, O, *P), (O, C // groups, *K) -> (N, C, *lengths)."""

    computes, batched = "images", (True, False)

    def __init__(self) -> None:
        super().__init__("conv_back", direct.convolve_back, im2col.convolve_back)

    def _shapes(self, x: Ints, y: Ints, attrs: dict[str, Any]) -> ConvolutionShapes:
        return ConvolutionShapes((x[0], y[1] * attrs["groups"], *attrs["lengths"]), x, y)


class ConvolutionWeight(BilinearOperation):
    """(N, C, *S), (N, O, *P) -> (O, C // groups, *size)."""

    computes, batched, of_weights = "weight", (True, True), True

    def __init__(self) -> None:
        super().__init__("conv_weight", direct.convolve_weight, im2col.convolve_weight)

    def _shapes(self, x: Ints, y: Ints, attrs: dict[str, Any]) -> ConvolutionShapes:
        return ConvolutionShapes(x, y, (y[1], x[1] // attrs["groups"], *attrs["size"]))
