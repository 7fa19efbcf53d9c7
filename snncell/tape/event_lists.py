"""EventLists: a sparse array in CSR format (its nonzero elements), and the base class of operations on it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Never

import numpy as np

from snncell import dtype as dtypes
from snncell.errors import DTypeError, GradientError, ShapeError
from snncell.kernels.products import csr as on_device
from snncell.kernels.products.csr import Rows, check, fill_rows
from snncell.kernels.space import DEVICE
from snncell.tape.primitive import Primitive
from snncell.tape.tensor import Tensor

Shape = tuple[int, ...]


class OfLists(Primitive):
    """An operation whose first three inputs are the indptr, indices and values of event lists. `evaluate(x, *others,
    **attrs)` is the forward pass, with a Rows `x`, or on the GPU a dense array. `result(shape, dtype, *others,
    **attrs)` returns shape and dtype of the result from those of the dense array.
    """

    def __init__(self, name: str, evaluate: Callable[..., Any], result: Callable[..., tuple[Shape, Any]]) -> None:
        super().__init__(name, self._on_host)
        self._of, self._result = evaluate, result

    def _on_host(self, starts: Any, places: Any, values: Any, *others: Any, shape: Shape, **attrs: Any) -> Any:
        starts, places, values = map(np.ascontiguousarray, (starts, places, values))
        rows = Rows(starts, places, values, shape)
        check(rows, self.name)
        return self._of(rows, *others, **attrs)

    def on_device(self, arrays: Sequence[Any], attrs: dict[str, Any]) -> Any:
        """Evaluate on the GPU, with a dense array."""
        starts, places, values, *others = DEVICE.operands(arrays, self.name)
        own = {name: value for name, value in attrs.items() if name != "shape"}
        x = on_device.fill_array(starts, places, values, attrs["shape"])
        return self._of(x if not others else DEVICE.cast(x, others[0].dtype), *others, **own)

    def abstract(self, inputs: tuple[Any, ...], attrs: dict[str, Any]) -> list[tuple[Any, Any]]:
        _, _, values, *others = inputs
        own = {name: value for name, value in attrs.items() if name != "shape"}
        return [self._result(attrs["shape"], values.dtype, *others, **own)]


def refuse_gradient() -> Never:
    """Raise the error for a gradient with respect to the values of event lists."""
    raise GradientError(
        "No gradient flows into the values of event lists, because elements that are not listed would get none. If you "
        "need it, compute with x.to_dense(), called outside of the differentiated function."
    )


_fill = OfLists(
    "to_dense", lambda x: fill_rows(x, x.dtype) if isinstance(x, Rows) else x, lambda shape, dtype: (shape, dtype)
)


@_fill.def_bprop
def _(_starts: Tensor, _places: Tensor, _values: Tensor, _out: Tensor, _dout: Tensor, *, shape: Shape) -> Sequence[Any]:
    return None, None, refuse_gradient


def _refuse_arithmetic(*_: Any) -> Never:
    """Raise the error for an operator. Without it, the operators of tuples would apply."""
    raise DTypeError(
        "Event lists have no operators: use them as the first operand of ops.matmul(x, w), of convolutions and layers. "
        "x.to_dense() is a Tensor."
    )


def _products(shape: Shape) -> list[int]:
    """The possible numbers of rows: the products of the first axes."""
    return [math.prod(shape[:axes]) for axes in range(len(shape) + 1)]


class EventLists(NamedTuple):
    """A sparse array: the nonzero elements of each row (CSR, compressed sparse rows).

    Use it for recordings with few events, for example from event cameras. You can pass it to `nn.Dense`, `nn.Conv1d`,
    `nn.Conv2d`, `nn.TimeDistributed` of them, and as the first operand to products with a weight.

    The cost of a product, and of the gradient of its weight, is proportional to the number of events. The dense array
    is built only if this is faster; `snncell.explain` prints the limit. Results are the same as with the dense array.
    Arrays are not copied. No gradient flows into the values.

    Attributes:
        indptr: int64 (R + 1,): the elements of row r are listed from indptr[r] up to indptr[r + 1].
        indices: int32 (E,): the position of each element in its row, ascending within a row.
        values: (E,): the elements. Elements from indptr[R] on are ignored.
        shape: the shape of the dense array. Its first axes are the rows, such as (T, B), the others a row's elements.
    Source: the layout of `scipy.sparse.csr_array`, extended to rows and elements of any number of axes.
    Example:
        >>> events = snncell.data.Events([0, 5, 9], x=[1, 0, 1], p=[1, 0, 1], sensor_size=(3, 1, 2))
        >>> lists = snncell.data.to_event_lists(events, n_bins=2)
        >>> lists.shape, lists.indptr.tolist(), lists.indices.tolist()[:3]
        ((2, 2, 3), [0, 1, 3], [4, 0, 4])
        >>> nn.Dense(6, 4)(ops.flatten(lists)).shape
        (2, 4)
    """

    indptr: Tensor
    indices: Tensor
    values: Tensor
    shape: tuple[int, ...]

    @property
    def dtype(self) -> dtypes.DType:
        """The element type."""
        return self.values.dtype

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements, including zeros."""
        return math.prod(self.shape)

    @property
    def rows(self) -> int:
        """The number of rows, R."""
        return self.indptr.shape[0] - 1

    @property
    def row_shape(self) -> tuple[int, ...]:
        """The shape of one row's elements."""
        return next((self.shape[n:] for n in range(1, self.ndim) if math.prod(self.shape[:n]) == self.rows), ())

    def reshape(self, *shape: Any) -> EventLists:
        """Reshape without a copy. The first axes must keep the number of rows, and one length may be -1."""
        given = tuple(shape[0]) if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
        known = math.prod(n for n in given if n != -1)
        lengths = tuple(self.size // known if n == -1 and known else n for n in given)
        if math.prod(lengths) != self.size or any(n < 0 for n in lengths):
            raise ShapeError(f"reshape: {self.size} elements of shape {self.shape} do not fill shape {given}.")
        if self.rows not in _products(lengths):
            raise ShapeError(
                f"reshape: event lists of shape {self.shape} have {self.rows} rows of shape {self.row_shape}, and "
                f"shape {given} would split or join rows. Reshape x.to_dense(), a Tensor, instead."
            )
        return self._replace(shape=lengths)

    def to_dense(self) -> Tensor:
        """The dense array as a Tensor; a TensorIndexError for indices that do not ascend or are out of range."""
        return _fill.bind(*self.operands("to_dense"), shape=self.shape)

    def operands(self, who: str) -> tuple[Tensor, Tensor, Tensor]:
        """Check shapes and dtypes, and return the lists as inputs of operations."""
        starts, places, values = arrays = [x if isinstance(x, Tensor) else Tensor(x) for x in self[:3]]
        fits = all(x.ndim == 1 for x in arrays) and places.shape == values.shape and starts.size
        if not fits or starts.size - 1 not in _products(self.shape):
            raise ShapeError(
                f"{who}: event lists are indptr (R + 1,), indices (E,) and values (E,), and the first axes of shape "
                f"are the R rows, not {', '.join(str(x.shape) for x in arrays)} of shape {self.shape}."
            )
        if starts.dtype.category != 1 or places.dtype.category != 1:
            raise DTypeError(f"{who}: indptr and indices are integers, not {starts.dtype} and {places.dtype}.")
        if places.dtype is not dtypes.int32:
            # Clip large indices, so that they stay out of range in 32 bits and the kernels refuse them.
            wide = places.astype(dtypes.int64)
            places = wide.clip(-1, np.iinfo(np.int32).max).astype(dtypes.int32)
        return starts.astype(dtypes.int64), places, values


_OPERATORS = "add radd sub rsub mul rmul truediv rtruediv matmul rmatmul pow rpow neg lt le gt ge"
for _name in _OPERATORS.split():
    setattr(EventLists, f"__{_name}__", _refuse_arithmetic)
setattr(EventLists, "__array_ufunc__", None)  # so that NumPy arrays leave arithmetic to these operators
