"""Limits of jit: errors name the user's line and a fix. Traced Tensors that leave their function."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from interpreting import interpreted

from snncell import Parameter, Tensor, grad, jit, nn, ops
from snncell.errors import ArgumentError, BpropError, ShapeError, SnncellError, TraceError

__all__ = ["interpreted"]  # a fixture

pytestmark = pytest.mark.usefixtures("interpreted")

HERE = Path(__file__).name
PLAIN = Tensor([1.0, 2.0])


def branch(x: Tensor) -> Tensor:
    if x.sum() > 0:  # reads the value
        return x
    return -x


def loop(x: Tensor) -> Tensor:
    while x.sum() < 9:  # reads the value
        x = x * 2.0
    return x


def conjunction(x: Tensor) -> Any:
    return x.sum() > 0 and x  # reads the value


def as_float(x: Tensor) -> Tensor:
    return x * float(x[0])  # reads the value


def as_int(x: Tensor) -> Tensor:
    return x * int(x[0])  # reads the value


def as_array(x: Tensor) -> Any:
    return np.asarray(x)  # reads the value


def as_numpy(x: Tensor) -> Any:
    return x.asnumpy()  # reads the value


def as_item(x: Tensor) -> Any:
    return x.sum().item()  # reads the value


def as_list(x: Tensor) -> Any:
    return [value for value in x.tolist()]  # noqa: C416  # reads the value


def as_range(x: Tensor) -> Any:
    return [i for i in range(x.sum().astype("int64"))]  # noqa: C416  # reads the value


def as_copy(x: Tensor) -> Any:
    return Tensor(x)  # reads the value


def as_text(x: Tensor) -> str:
    return f"{x.sum():.3f}"  # reads the value


LOOKS = [branch, loop, conjunction, as_float, as_int, as_array, as_numpy, as_item, as_list, as_range, as_copy]
LOOKS += [as_text]


def line_in(fn: Callable[..., Any]) -> int:
    """Return the line of `fn` that reads a value."""
    first = fn.__code__.co_firstlineno
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    return next(number for number in range(first, first + 9) if lines[number - 1].endswith("# reads the value"))


@pytest.mark.parametrize("fn", LOOKS, ids=lambda fn: fn.__name__)
def test_reading_a_value_raises_with_the_line_and_a_fix(fn: Any) -> None:
    with pytest.raises(TraceError, match=r"(?s)needs a value, but snncell\.jit is tracing.*ops\.select") as caught:
        jit(fn)(PLAIN)
    text = str(caught.value)
    assert f"at {HERE}:{line_in(fn)}: " in text
    assert "# reads the value" in text
    assert (PLAIN + 1.0).tolist() == [2.0, 3.0]  # tracing has ended


@pytest.mark.parametrize("fn", [branch, as_item], ids=lambda fn: fn.__name__)
def test_reading_a_value_inside_a_cell_and_a_gradient_raises_with_the_line(fn: Any) -> None:
    class Net(nn.Cell):
        def construct(self, x: Tensor) -> Tensor:
            return fn(x)

    for traced in (jit(Net()), jit(grad(lambda x: Net()(x).sum()))):
        with pytest.raises(TraceError, match=f"{HERE}:{line_in(fn)}"):
            traced(PLAIN)


def test_reading_the_value_of_a_parameter_raises() -> None:
    # Each run reads it anew, so a branch on its present value would be fixed forever.
    p = Parameter([1.0], name="p")
    with pytest.raises(TraceError, match=HERE):
        jit(lambda x: x * 2.0 if p.item() > 0 else x)(PLAIN)
    with pytest.raises(TraceError, match=HERE):
        jit(lambda x: x * 2.0 if p > 0 else x)(PLAIN)
    with pytest.raises(TraceError, match=HERE):
        jit(lambda x: x * p.asnumpy())(PLAIN)


def test_captured_tensor_has_its_value() -> None:
    limit = Tensor(3.0)
    f = jit(lambda x: x * 2.0 if limit.item() > 2 else x)
    assert f(PLAIN).tolist() == [2.0, 4.0]


def test_loops_over_rows_and_shapes_are_traced() -> None:
    f = jit(lambda x: [row * n for n, row in enumerate(x)] + [x] * len(x))
    assert [part.tolist() for part in f(PLAIN)] == [0.0, 2.0, [1.0, 2.0], [1.0, 2.0]]


def test_writing_an_element_of_a_parameter_raises() -> None:
    p = Parameter([1.0, 2.0], name="p", requires_grad=False)

    def f(x: Tensor) -> Tensor:
        p[0] = 5.0
        return x

    with pytest.raises(TraceError, match=HERE):
        jit(f)(PLAIN)
    assert p.tolist() == [1.0, 2.0]


# --- arguments --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("argument", [{1, 2}, [{1}], {"key": bytearray(b"x")}])
def test_unhashable_fixed_argument_raises(argument: Any) -> None:
    words = r"jit\(first\): arguments must be Tensors.*must be hashable, .*unhashable type"  # Python 3.14 appends more
    with pytest.raises(ArgumentError, match=words):
        jit(first)(PLAIN, argument)


def first(x: Tensor, _: Any) -> Tensor:
    return x


@pytest.mark.parametrize("argument", [3, None, Tensor([1.0])])
def test_jit_of_a_non_callable_raises(argument: Any) -> None:
    if argument is None:
        assert jit()(first)(Tensor([1.0]), 0).item() == 1.0  # the decorator with brackets
        return
    with pytest.raises(SnncellError, match=f"jit: fn must be a function or a Cell, not a {type(argument).__name__}"):
        jit(argument)


def test_number_outside_the_range_of_the_dtype_raises_a_clear_error() -> None:
    small = Tensor(np.array([1], np.uint8))
    for f in (lambda x: x + (-1), lambda x: x * 300):
        with pytest.raises(SnncellError, match=r"does not fit the dtype UInt8.*astype"):
            f(small)
        with pytest.raises(SnncellError, match=r"does not fit the dtype UInt8.*astype"):
            jit(f)(small)


# --- errors of operations while tracing -------------------------------------------------------------------------------


def test_incompatible_shapes_raise_as_in_eager_mode() -> None:
    refused = {
        "add": lambda x: x + ops.ones((3,)),
        "matmul": lambda x: x @ ops.ones((3, 3)),
        "reshape": lambda x: ops.reshape(x, (3,)),
    }
    for name, f in refused.items():
        for run in (f, jit(f)):
            with pytest.raises(ShapeError, match=name):
                run(PLAIN)


class Wrong(nn.Cell):
    """A Cell with a `bprop` that returns the given value."""

    def __init__(self, reverse: Callable[[Tensor, Tensor], Any]) -> None:
        super().__init__()
        self.reverse = reverse

    def construct(self, x: Tensor) -> Tensor:
        return x * 2.0

    def bprop(self, x: Tensor, out: Tensor, dout: Tensor) -> Any:
        return self.reverse(x, dout)


@pytest.mark.parametrize(
    ("reverse", "message"),
    [
        (lambda x, dout: (dout, dout), r"returned 2 gradient\(s\) for 1 input"),
        (lambda x, dout: dout, "must return a tuple"),
        (lambda x, dout: (dout.reshape((2, 1)),), "shape"),
        (lambda x, dout: (dout > 0,), "dtype"),
        (lambda x, dout: (3.0,), "a gradient is a Tensor or None"),
    ],
)
def test_invalid_custom_gradient_raises_while_tracing(reverse: Any, message: str) -> None:
    net = Wrong(reverse)
    with pytest.raises(BpropError, match=f"Wrong.*{message}"):
        jit(grad(lambda x: net(x).sum()))(PLAIN)
    with pytest.raises(BpropError, match=f"Wrong.*{message}"):
        grad(lambda x: jit(net)(x).sum())(PLAIN)
    assert jit(net)(PLAIN).tolist() == [2.0, 4.0]  # the forward pass is correct


def test_user_errors_propagate_and_the_next_call_works() -> None:
    fail = [True]

    def f(x: Tensor) -> Tensor:
        if fail[0]:
            raise KeyError("mine")
        return x * 2.0

    jitted = jit(f)
    with pytest.raises(KeyError, match="mine"):
        jitted(PLAIN)
    fail[0] = False
    assert jitted(PLAIN).tolist() == [2.0, 4.0]


# --- Tensors that leave their trace -----------------------------------------------------------------------------------


def leak_tensor() -> Tensor:
    kept: list[Tensor] = []
    jit(lambda x: (kept.append(x), x * 2.0)[1])(PLAIN)
    return kept[0]


USES: dict[str, Callable[[Tensor], Any]] = {
    "add": lambda x: x + 1.0,
    "add to a Tensor": lambda x: PLAIN + x,
    "equal": lambda x: x == 1.0,
    "not equal": lambda x: x != 1.0,
    "less": lambda x: x < 1.0,
    "isnan": ops.isnan,
    "where": lambda x: ops.where(x, 1.0, 2.0),
    "exp": ops.exp,
    "sum": lambda x: x.sum(),
    "reshape": lambda x: x.reshape((2,)),
    "flatten": lambda x: x.reshape((-1,)),
    "transpose": lambda x: x.T,
    "expand_dims": lambda x: ops.expand_dims(x, 0),
    "broadcast_to": lambda x: ops.broadcast_to(x, (3, 2)),
    "index": lambda x: x[0],
    "matmul": lambda x: x @ x,
    "concat": lambda x: ops.concat([x, x], 0),
    "astype": lambda x: x.astype("float64"),
    "item": lambda x: x[0].item(),
    "asnumpy": lambda x: x.asnumpy(),
    "stop_gradient": lambda x: ops.stop_gradient(x) * 2.0,
    "gradient": lambda x: grad(lambda y: (y * x).sum())(PLAIN),
    "gradient by it": lambda x: grad(lambda y: (y * y).sum())(x),
    "another trace": lambda x: jit(lambda y: y * x)(PLAIN),
    "argument of a trace": lambda x: jit(lambda y: y * 2.0)(x),
    "Parameter": Parameter,
    "with no elements": lambda x: x[:0] + 1.0,
    "beside no elements": lambda x: x + ops.zeros((0, 2)),
}


@pytest.mark.parametrize("use", USES)
def test_value_of_a_leaked_tensor_raises(use: str) -> None:
    with pytest.raises(TraceError, match=r"belongs to a function that snncell\.jit traced earlier.*Return it"):
        USES[use](leak_tensor())


def test_shape_and_repr_of_a_leaked_tensor_work() -> None:
    assert leak_tensor().shape == (2,)
    assert "float32" in repr(leak_tensor())


MADE_INSIDE = {
    "dense": lambda x: nn.Dense(3, 2)(x),
    "conv": lambda x: nn.Conv1d(3, 2, 1)(x.reshape((1, 3, -1))),
    "embedding": lambda x: nn.Embedding(3, 2)(x.astype("int32")),
    "recurrent": lambda x: nn.LSTM(3, 2)(x.reshape((1, -1, 3)))[0],
    "norm": lambda x: nn.LayerNorm((3,))(x),
    "learned": lambda x: nn.PReLU()(x),
}


@pytest.mark.parametrize("name", MADE_INSIDE)
def test_layer_created_inside_a_traced_function_raises(name):
    for traced in (jit, ops.vmap):
        with pytest.raises(TraceError, match=r"is created inside .* Create it outside") as caught:
            traced(MADE_INSIDE[name])(ops.ones((4, 3)))
        assert "asnumpy" not in str(caught.value)
