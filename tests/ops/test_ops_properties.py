"""Properties for any shape and strides: NumPy's broadcasting, and backward passes that are linear."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from gradient_table import TABLE, Row
from hypothesis import HealthCheck, given, settings, strategies as st
from hypothesis.extra import numpy as hnp

import snncell as ms
from snncell import Tensor, ops
from snncell.tape import structure

# Few examples, the same in every run. They share the fixture that sets the seed on purpose.
few = settings(
    max_examples=30, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
SHAPES = hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4)
NUMBERS = st.integers(-32, 32).map(lambda n: n / 4)  # few bits, so that sums and products are exact in any order


def arrays(shape: Any, dtype: Any = np.float64) -> Any:
    return hnp.arrays(dtype, shape, elements=NUMBERS)


@st.composite
def views(draw: Any, min_dims: int = 0) -> tuple[np.ndarray, Tensor]:
    """An array, and a Tensor of the same elements with any strides, made by transpositions, flips and steps."""
    shape = draw(hnp.array_shapes(min_dims=min_dims, max_dims=3, min_side=0, max_side=4))
    plain = draw(arrays(shape))
    x = Tensor(plain)
    order = tuple(draw(st.permutations(range(plain.ndim))))
    steps = tuple(slice(None, None, draw(st.sampled_from([1, -1, 2, -2]))) for _ in order)
    return plain.transpose(order)[steps], x.transpose(order)[steps]


def same(ours: Tensor, expected: Any) -> None:
    assert ours.shape == np.shape(expected)
    np.testing.assert_array_equal(ours.asnumpy(), expected)


# --- eager, against NumPy ---------------------------------------------------------------------------------------------


@few
@given(hnp.mutually_broadcastable_shapes(num_shapes=2, max_dims=4, min_side=0, max_side=4), st.data())
def test_operands_broadcast_as_numpy_and_gradients_keep_shapes(shapes, data):
    a, b = (data.draw(arrays(shape)) for shape in shapes.input_shapes)
    x, y = Tensor(a), Tensor(b)
    for f, theirs in [(ops.add, np.add), (ops.mul, np.multiply), (ops.maximum, np.maximum), (ops.less, np.less)]:
        same(f(x, y), theirs(a, b))
    same(ops.where(x > y, x, y), np.where(a > b, a, b))
    da, db = ms.grad(ops.mul, (0, 1))(x, y)
    ones = np.ones(shapes.result_shape)
    same(da, summed_to(ones * b, a.shape))
    same(db, summed_to(ones * a, b.shape))


def summed_to(full: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """The gradient of broadcasting `shape` to the shape of `full`, element by element."""
    out = np.zeros(shape)
    own = (1,) * (full.ndim - len(shape)) + shape
    for index in np.ndindex(full.shape):
        place = tuple(0 if n == 1 else i for i, n in zip(index, own, strict=True))
        out[place[full.ndim - len(shape) :]] += full[index]
    return out


@few
@given(views())
def test_elementwise_operations_accept_any_strides(pair):
    expected, x = pair
    same(x, expected)
    same(x * 2 + x, expected * 2 + expected)
    same(ops.sum(x), expected.sum())
    same(ops.reshape(x, (-1,)), expected.reshape(-1))
    same(ops.transpose(x), expected.T)
    same(x.flatten(), expected.reshape(-1))
    same(ops.where(x > 0, x, 0.0), np.where(expected > 0, expected, 0))
    same(Tensor(x), expected)
    same(Tensor(np.from_dlpack(x)), expected)
    same(ms.grad(lambda v: (v * v).sum())(x), 2 * expected)


@few
@given(views(min_dims=1), st.data())
def test_axis_operations_accept_any_strides(pair, data):
    expected, x = pair
    axis = data.draw(st.integers(-expected.ndim, expected.ndim - 1))
    keepdims = data.draw(st.booleans())
    same(ops.sum(x, axis, keepdims), expected.sum(axis, keepdims=keepdims))
    same(ops.cumsum(x, axis), expected.cumsum(axis))
    same(ops.flip(x, axis), np.flip(expected, axis))
    same(ops.concat([x, x], axis), np.concatenate([expected, expected], axis))
    same(ops.stack([x, -x], axis), np.stack([expected, -expected], axis))
    same(ops.expand_dims(x, axis), np.expand_dims(expected, axis))
    for ours, theirs in zip(ops.unstack(x, axis), np.moveaxis(expected, axis, 0), strict=True):
        same(ours, theirs)
    if expected.shape[axis]:
        same(ops.max(x, axis, keepdims), expected.max(axis, keepdims=keepdims))
        same(ops.argmin(x, axis), expected.argmin(axis))
        positions = data.draw(hnp.arrays(np.int64, (2, 2), elements=st.integers(-1, expected.shape[axis] - 1)))
        same(ops.gather(x, Tensor(positions), axis), np.take(expected, positions, axis))
        np.testing.assert_allclose(ops.softmax(x, axis).asnumpy().sum(axis), 1.0, rtol=1e-14)


@few
@given(st.data())
def test_basic_indexing_equals_numpy_and_its_gradient_scatters_back(data):
    shape = data.draw(hnp.array_shapes(min_dims=1, max_dims=3, min_side=1, max_side=4))
    index = data.draw(hnp.basic_indices(shape, allow_newaxis=True, allow_ellipsis=True))
    x = data.draw(arrays(shape))
    same(Tensor(x)[index], x[index])
    expected = np.zeros(shape)
    expected[index] = 1
    same(ms.grad(lambda v: v[index])(Tensor(x)), expected)


@few
@given(SHAPES, st.data())
def test_reshape_and_its_gradient_keep_the_order(shape, data):
    x = data.draw(arrays(shape))
    other = data.draw(st.permutations(shape))
    same(ops.reshape(Tensor(x), tuple(other)), x.reshape(other))
    dout = data.draw(arrays(tuple(other)))
    _, pull = ops.vjp(lambda v: ops.reshape(v, tuple(other)), Tensor(x))
    same(pull(Tensor(dout))[0], dout.reshape(shape))


@few
@given(
    st.tuples(*[st.integers(0, 3)] * 3),
    hnp.mutually_broadcastable_shapes(num_shapes=2, max_dims=2, min_side=0, max_side=3),
    st.data(),
)
def test_matrix_products_of_any_batch(sizes, batches, data):
    n, k, m = sizes
    a = data.draw(arrays((*batches.input_shapes[0], n, k)))
    b = data.draw(arrays((*batches.input_shapes[1], k, m)))
    same(Tensor(a) @ Tensor(b), a @ b)
    da, db = ms.grad(ops.matmul, (0, 1))(Tensor(a), Tensor(b))
    ones = np.ones((*batches.result_shape, n, m))
    np.testing.assert_allclose(da.asnumpy(), summed_to(ones @ np.swapaxes(b, -1, -2), a.shape), rtol=1e-12)
    np.testing.assert_allclose(db.asnumpy(), summed_to(np.swapaxes(a, -1, -2) @ ones, b.shape), rtol=1e-12)


@few
@given(st.data())
def test_convolution_equals_the_sum_in_its_docstring(data):
    n, c, o, k = (data.draw(st.integers(1, 3)) for _ in range(4))
    stride, dilation, padding = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 2)), data.draw(st.integers(0, 2))
    length = data.draw(st.integers((k - 1) * dilation + 1, 8))
    x, w = data.draw(arrays((n, c, length))), data.draw(arrays((o, c, k)))
    wide = np.pad(x, ((0, 0), (0, 0), (padding, padding)))
    places = range(0, wide.shape[2] - (k - 1) * dilation, stride)
    expected = np.stack([np.einsum("nck,ock->no", wide[..., p::dilation][..., :k], w) for p in places], -1)
    found = ops.conv1d(Tensor(x), Tensor(w), stride=stride, dilation=dilation, pad_mode="pad", padding=padding)
    np.testing.assert_allclose(found.asnumpy(), expected, rtol=1e-12)
    same_mode = ops.conv1d(Tensor(x), Tensor(w), stride=stride, dilation=dilation, pad_mode="same")
    assert same_mode.shape == (n, o, math.ceil(length / stride))


# --- backward passes --------------------------------------------------------------------------------------------------


@pytest.mark.sampled(314)
@pytest.mark.parametrize("r", [r for r in TABLE if r.order and r.jit], ids=repr)
def test_backward_pass_is_linear_in_dout(r: Row):
    """Zeros as dout also give a zero gradient."""
    rng = np.random.default_rng(3)
    out, pull = ops.vjp(r.fn, *[Tensor(x) for x in r.arrays()])
    outs = structure.flatten(out)[0]
    u, v = ([rng.standard_normal(leaf.shape) for leaf in outs] for _ in range(2))

    def pull_back(douts: list[np.ndarray]) -> list[np.ndarray]:
        return [g.asnumpy() for g in structure.flatten(pull(*map(Tensor, douts)))[0]]

    mixed = pull_back([2.5 * a - 0.5 * b for a, b in zip(u, v, strict=True)])
    for joint, of_u, of_v in zip(mixed, pull_back(u), pull_back(v), strict=True):
        np.testing.assert_allclose(joint, 2.5 * of_u - 0.5 * of_v, rtol=1e-9, atol=1e-12)
    for nothing in pull_back([np.zeros(leaf.shape) for leaf in outs]):
        np.testing.assert_array_equal(nothing, 0)


@few
@given(st.integers(1, 5), st.integers(0, 3))
def test_batches_equal_their_entries(size, seed):
    rng = np.random.default_rng(seed)
    x, w = Tensor(rng.standard_normal((size, 2, 6))), Tensor(rng.standard_normal((3, 2, 3)))

    def f(v: Tensor) -> Tensor:
        return ops.max_pool1d(ops.tanh(ops.conv1d(v, w)), 2)

    entries = [f(x[i : i + 1]) for i in range(size)]
    np.testing.assert_allclose(f(x).asnumpy(), ops.concat(entries).asnumpy(), rtol=1e-13)
    slopes = [ms.grad(f)(x[i : i + 1]) for i in range(size)]
    np.testing.assert_allclose(ms.grad(f)(x).asnumpy(), ops.concat(slopes).asnumpy(), rtol=1e-13, atol=1e-15)


# --- compiled, over a few shapes --------------------------------------------------------------------------------------


@pytest.mark.compiled
@pytest.mark.parametrize("shapes", [((2, 3), (3,)), ((2, 1, 3), (4, 1)), ((0, 3), (3,)), ((), (2, 3)), ((5,), (1,))])
def test_compiled_broadcasting_and_its_gradient(shapes):
    def f(x: Tensor, y: Tensor) -> Any:
        out, pull = ops.vjp(lambda a, b: a * b + a, x, y)
        return out, pull(ops.ones_like(out))

    jitted = ms.jit(f)
    rng = np.random.default_rng(0)
    for _ in range(3):
        a, b = (rng.integers(-8, 8, shape).astype(np.float64) for shape in shapes)
        out, (da, db) = jitted(Tensor(a), Tensor(b))
        same(out, a * b + a)
        ones = np.ones(out.shape)
        same(da, summed_to(ones * b + ones, a.shape))
        same(db, summed_to(ones * a, b.shape))


_mixed = ms.jit(lambda x, y: (x * y - 1, ops.sum(x, 0), ops.sum(x * y), x > y, ops.cumsum(x, 1)))


@pytest.mark.compiled
@few
@given(arrays((3, 4)), arrays((3, 4)))
def test_compiled_values_equal_numpy(a, b):
    expected = (a * b - 1, a.sum(0), (a * b).sum(), a > b, a.cumsum(1))
    for ours, theirs in zip(_mixed(Tensor(a), Tensor(b)), expected, strict=True):
        same(ours, theirs)
