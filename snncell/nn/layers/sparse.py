"""SparseDense: a dense layer whose weight is sparse, with a fixed number of synapses."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np

from snncell import dtype as dtypes, ops
from snncell.base.arguments.kinds import Count, FloatDtype, Within
from snncell.base.arguments.shown import came, percent
from snncell.base.signals import import_once
from snncell.cell.cell import Cell
from snncell.cell.fields import field, with_fields
from snncell.common.initializer import Init, Uniform, initializer
from snncell.compiler.ir.product import as_rows
from snncell.errors import ArgumentError, DTypeError, ShapeError
from snncell.kernels.products import sparse as kernels
from snncell.kernels.products.csr import Rows
from snncell.kernels.space import space_of
from snncell.nn.layers.linear import create_parameter
from snncell.ops.base import same_dtype
from snncell.tape.parameter import Parameter
from snncell.tape.primitive import Primitive, one_after_another
from snncell.tape.tensor import Tensor

__all__ = ["SparseDense"]

# --- Products with a sparse matrix M (N_in, N_out), given by its indptr, indices and values ---------------------------

# The gradients of each operation consist of these two operations, so gradients of any order exist.


class _SparseProduct(Primitive):
    """x @ M, (..., N_in) -> (..., N_out); with `back` y @ M.T, (..., N_out) -> (..., N_in)."""

    def abstract(self, inputs: tuple[Any, ...], attrs: dict[str, Any]) -> list[tuple[Any, Any]]:
        x = inputs[3]
        return [((*x.shape[:-1], attrs["shape"][0 if attrs["back"] else 1]), x.dtype)]

    def over_time(self, arrays: Sequence[Any], varying: Sequence[bool], attrs: dict[str, Any]) -> Any:
        """The products of all steps of a loop: a single product if the steps share M."""
        if any(varying[:3]):
            return one_after_another(lambda *own, **same: self.run_here(own, own, same), arrays, varying, attrs)
        return self.run_here(arrays, arrays, attrs)

    def operations(self, inputs: Sequence[Any], outputs: Sequence[Any], attrs: dict[str, Any], used: float) -> float:
        return float(2.0 * used * math.prod(inputs[3].shape[:-1]) * inputs[2].shape[0])

    def choice(self, inputs: Sequence[Any], attrs: dict[str, Any]) -> list[str]:
        events = f", event-driven below {percent(kernels.EVENTFUL)} of non-zero elements"
        return [f"of {inputs[2].shape[0]} synapses{'' if attrs['back'] else events}"]


class _ProductOnPattern(Primitive):
    """The elements of x.T @ y on the pattern of M, summed over all rows of x (..., N_in) and y (..., N_out)."""

    # `train.RigL` sets this to a list, to which each evaluation appends (indices, x, y).
    heard: list[tuple[Any, Any, Any]] | None = None

    def abstract(self, inputs: tuple[Any, ...], attrs: dict[str, Any]) -> list[tuple[Any, Any]]:
        return [(inputs[1].shape, inputs[3].dtype)]

    def over_time(self, arrays: Sequence[Any], varying: Sequence[bool], attrs: dict[str, Any]) -> Any:
        return one_after_another(lambda *own: self.run_here(own, own, attrs), arrays, varying, {})

    def summed(self, arrays: Sequence[Any], varying: Sequence[bool], attrs: dict[str, Any]) -> Any:
        """The sum over all steps of a loop: if x and y vary, a single product, whose rows are those of all steps."""
        if all(varying[2:]):
            return self.run_here(arrays, arrays, attrs)
        own = [space_of(x).sum(x) if varies else x for x, varies in zip(arrays, varying, strict=True)]
        return self.run_here(own, own, attrs)

    def operations(self, inputs: Sequence[Any], outputs: Sequence[Any], attrs: dict[str, Any], used: float) -> float:
        return float(2.0 * used * math.prod(inputs[2].shape[:-1]) * inputs[1].shape[0])


def _multiply(starts: Any, places: Any, values: Any, x: Any, shape: tuple[int, int], back: bool) -> Any:
    out = kernels.product(Rows(starts, places, values, shape), as_rows(x), back)
    return out.reshape(*x.shape[:-1], out.shape[1])


def _multiply_on_device(starts: Any, places: Any, values: Any, x: Any, shape: tuple[int, int], back: bool) -> Any:
    out = kernels.product_on_device(starts, places, values, as_rows(x), shape, back)
    return out.reshape(*x.shape[:-1], out.shape[1])


def _multiply_on_pattern(starts: Any, places: Any, x: Any, y: Any) -> Any:
    if on_pattern.heard is not None:
        on_pattern.heard.append((places, as_rows(x), as_rows(y)))
    return kernels.product_on_pattern(starts, places, as_rows(x), as_rows(y))


product = _SparseProduct("sparse_product", _multiply)
on_pattern = _ProductOnPattern("sparse_gradient", _multiply_on_pattern)
product.def_on_gpu(_multiply_on_device)
on_pattern.def_on_gpu(lambda s, p, x, y: kernels.product_on_pattern_on_device(s, p, as_rows(x), as_rows(y)))
# Over time, a sum of products that share all operands but one is a single product.
product.proportional = lambda inputs, varying: sum(varying) == 1


@product.def_bprop
def _(
    starts: Tensor, places: Tensor, values: Tensor, x: Tensor, _out: Tensor, dout: Tensor, *, shape: Any, back: bool
) -> Sequence[Any]:
    pair = (dout, x) if back else (x, dout)
    return (
        None,
        None,
        lambda: on_pattern.bind(starts, places, *pair),
        lambda: product.bind(starts, places, values, dout, shape=shape, back=not back),
    )


@on_pattern.def_bprop
def _(starts: Tensor, places: Tensor, x: Tensor, y: Tensor, _out: Tensor, dout: Tensor) -> Sequence[Any]:
    shape = x.shape[-1], y.shape[-1]
    of_x, of_y = (
        lambda each=each, back=back: product.bind(starts, places, dout, each, shape=shape, back=back)
        for each, back in ((y, True), (x, False))
    )
    return None, None, of_x, of_y


# --- The layer --------------------------------------------------------------------------------------------------------


@with_fields
class SparseDense(Cell):
    """Dense layer with a sparse weight: y = x W^T + b, over the last axis, where only some elements of W exist.

    Use it for wide layers with few synapses (elements of W), as on neuromorphic chips or in the brain. `weight`, its
    gradient and the moments of an optimiser have one number per synapse. So the time and memory of a training step are
    proportional to the number of synapses. On the CPU the dense W is never built; on the GPU each product builds it. If
    few elements of x are nonzero, forward pass and gradient of the weight use only the synapses of these inputs.

    The pattern, the places of the synapses, stays the same during training. To let it change, pass `train.DeepR` or
    `train.RigL` to `train.fit`. With dense inputs the layer is faster than `Dense` below a density of about 40 %.

    The initial weights are uniform within +-1 / sqrt(K), where K is the number of synapses of their output. For your
    own weights, pass `scipy.sparse.csc_array(W).data` as `weight_init`: a number per synapse, in the order of `weight`.
    Attributes:
        weight: the weights of the synapses, (synapses,), ordered by input and then by output.
        indptr: (in_channels + 1,): the synapses of input i are those from indptr[i] up to indptr[i + 1]. Not trained.
        indices: (synapses,): the output of each synapse, ascending within an input. Not trained.
    Inputs: x: (..., in_channels), for example (T, B, in_channels).
    Returns: y, (..., out_channels).
    Raises: ArgumentError unless exactly one of density and pattern is given, for a pattern with an element that occurs
        twice, and for a layer without synapses; ShapeError for a pattern or x of another shape.
    Example:
        >>> layer = nn.SparseDense(1000, 500, density=0.02)
        >>> layer(ops.ones((8, 1000))).shape, layer.weight.shape
        ((8, 500), (10000,))
        >>> layer = nn.SparseDense(3, 2, pattern=Tensor([[1, 0, 1], [0, 1, 0]]), weight_init=1.0, has_bias=False)
        >>> layer(Tensor([[1.0, 2.0, 4.0]])).tolist()
        [[5.0, 2.0]]
    """

    in_channels: Annotated[Count, field(meaning="N_in, length of the last axis of x")]
    out_channels: Annotated[Count, field(meaning="N_out, length of the last axis of y")]
    density: Annotated[float, Within(0.0, 1.0, open_low=True)] | None = field(
        None, meaning="the share of elements of W that exist; their places are drawn uniformly", keep=False
    )
    pattern: Any = field(
        None,
        meaning="instead of a density: a matrix or array of `scipy.sparse`, NumPy or snncell, (out_channels, "
        "in_channels), whose stored (nonzero) elements are the synapses. Its values are not used",
        keep=False,
    )
    weight_init: Init | None = field(None, meaning="initial weights of the synapses; None as above", keep=False)
    bias_init: Init | None = field(None, meaning="initial b, (out_channels,); None is uniform, as in Dense", keep=False)
    has_bias: bool = field(True, meaning="whether to add b")
    dtype: FloatDtype = field(dtypes.float32, meaning="dtype of the Parameters", keep=False)
    bias: Parameter | None = None

    def _complete(self, given: dict[str, Any]) -> None:
        shape, dtype = (self.in_channels, self.out_channels), given["dtype"]
        places = _places_of(shape, given["density"], given["pattern"])
        starts, outputs = pointers(places, shape)
        # Parameters, so that jitted functions are not traced again for a new pattern.
        self.indptr = Parameter(Tensor(starts), requires_grad=False)
        self.indices = Parameter(Tensor(outputs), requires_grad=False)
        if given["weight_init"] is None:
            fan_in = np.bincount(outputs, minlength=shape[1])
            scale = Tensor(1.0 / np.sqrt(fan_in[outputs]), dtype)
            self.weight = Parameter(initializer(Uniform(1.0), (len(places),), dtype) * scale)
        else:
            self.weight = Parameter(initializer(given["weight_init"], (len(places),), dtype))
        if self.has_bias:
            even = Uniform(1 / math.sqrt(self.in_channels))
            self.bias = create_parameter(given["bias_init"], even, shape[1:], dtype)

    def construct(self, x: Tensor) -> Tensor:
        if x.shape[-1:] != (self.in_channels,):
            raise ShapeError(
                f"{self!r}: the input has shape {x.shape}; its last axis must have length in_channels = "
                f"{self.in_channels}."
            )
        x, values = same_dtype([x, self.weight], "SparseDense")
        if not dtypes.is_float(x.dtype.dtype):
            raise DTypeError(f"SparseDense: x is {x.dtype}. Multiply its real and imaginary parts one after the other.")
        shape = self.in_channels, self.out_channels
        out = product.bind(self.indptr, self.indices, values, x, shape=shape, back=False)
        return out + self.bias if self.has_bias else out

    def places(self) -> Any:
        """The place of each synapse, input * out_channels + output, ascending."""
        inputs = np.repeat(np.arange(self.in_channels), np.diff(self.indptr.asnumpy()))
        return inputs * self.out_channels + self.indices.asnumpy()

    def to_scipy(self) -> Any:
        """W as a `scipy.sparse.csc_array` (out_channels, in_channels); weights of half precision become float32."""
        weight = self.weight.asnumpy()
        weight = weight.astype(dtypes.compute_dtype(weight.dtype), copy=False)
        arrays = weight, self.indices.asnumpy(), self.indptr.asnumpy()
        return import_once("scipy.sparse").csc_array(arrays, (self.out_channels, self.in_channels), copy=True)

    def extend_repr(self) -> str:
        inputs, outputs, synapses = self.in_channels, self.out_channels, self.weight.size
        share = percent(synapses / (inputs * outputs))
        return f"input_channels={inputs}, output_channels={outputs}, {synapses} synapses ({share})"


def pointers(places: Any, shape: tuple[int, int]) -> tuple[Any, Any]:
    """The indptr and indices of ascending places in a matrix of this shape."""
    starts = np.searchsorted(places, np.arange(shape[0] + 1) * shape[1])
    return starts.astype(np.int64), (places % shape[1]).astype(np.int32)


def draw_places(number: int, total: int, taken: Any) -> Any:
    """Draw `number` different integers below `total`, uniformly among those not in `taken`, which is ascending."""
    if 2 * (number + len(taken)) > total:
        free = np.setdiff1d(np.arange(total), taken, assume_unique=True)
        return free[ops.randperm(len(free)).asnumpy()[:number]]
    found = np.zeros(0, np.int64)
    while len(found) < number:
        drawn = ops.randint(0, total, (2 * (number - len(found)) + 8,)).asnumpy()
        if len(taken):
            drawn = drawn[taken[np.minimum(np.searchsorted(taken, drawn), len(taken) - 1)] != drawn]
        found = np.concatenate([found, drawn])
        found = found[np.sort(np.unique(found, return_index=True)[1])]  # without repetitions, in the order of the draws
    return found[:number]


def _places_of(shape: tuple[int, int], density: float | None, pattern: Any) -> Any:
    """The places of the synapses, ascending."""
    inputs, outputs = shape
    if (density is None) == (pattern is None):
        both = "neither" if density is None else "both"
        raise ArgumentError(
            f"SparseDense: pass either density or pattern, not {both}; for example nn.SparseDense({inputs}, {outputs}, "
            f"density=0.05)."
        )
    if density is not None:
        total = inputs * outputs
        places = np.sort(draw_places(round(density * total), total, np.zeros(0, np.int64)))
    else:
        places = _places_in(pattern, shape)
    if not len(places):
        cause = "the pattern has none" if density is None else f"density={density:g} of {inputs} x {outputs} is none"
        raise ArgumentError(f"SparseDense: a layer needs at least one synapse, but {cause}.")
    return places


def _places_in(pattern: Any, shape: tuple[int, int]) -> Any:
    try:
        found = import_once("scipy.sparse").coo_array(pattern.asnumpy() if isinstance(pattern, Tensor) else pattern)
        if found.dtype.kind not in "biufc":
            raise TypeError
    except (TypeError, ValueError, OverflowError):
        raise ArgumentError(
            f"SparseDense: pattern is a matrix of scipy.sparse or a NumPy array, not {came(pattern)}."
        ) from None
    if found.shape != shape[::-1]:
        turned = " Transpose it: pattern=pattern.T." if found.shape == shape else ""
        raise ShapeError(
            f"SparseDense: pattern has shape {found.shape}, but must be (out_channels, in_channels) = {shape[::-1]}."
            f"{turned}"
        )
    places = np.sort(found.col.astype(np.int64) * shape[1] + found.row)
    if len(twice := places[1:][places[1:] == places[:-1]]):
        i, j = divmod(int(twice[0]), shape[1])
        raise ArgumentError(
            f"SparseDense: pattern has several elements in row {j}, column {i}. Call pattern.sum_duplicates() first."
        )
    return places
