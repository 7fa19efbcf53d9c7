"""MindSpore's primitive classes compute the same values as the functions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import snncell as ms
from snncell import Tensor, ops

X = Tensor(np.random.default_rng(0).uniform(0.2, 2.0, (2, 3, 4)))
Y = Tensor(np.random.default_rng(1).uniform(0.2, 2.0, (2, 3, 4)))
B = Tensor([[True, False], [True, True]])
C = Tensor([[True, True], [False, True]])

# Class: (options, operands, expected result of the function)
PLAIN: dict[str, tuple[Any, ...]] = {
    **{
        name: ((), (X,), getattr(ops, name.lower())(X))
        for name in [
            "Abs",
            "Ceil",
            "Cos",
            "Erf",
            "Exp",
            "Expm1",
            "Floor",
            "Log",
            "Log1p",
            "Neg",
            "ReLU",
            "ReLU6",
            "Round",
            "Rsqrt",
            "Sigmoid",
            "Sign",
            "Sin",
            "Softplus",
            "Sqrt",
            "Square",
            "Tanh",
        ]
    },
    **{
        name: ((), (X, Y), getattr(ops, name.lower())(X, Y))
        for name in ["Add", "Div", "Equal", "Greater", "Less", "Maximum", "Minimum", "Mul", "Pow", "Sub"]
    },
    "GeLU": ((), (X,), ops.gelu(X, "tanh")),
    "RealDiv": ((), (X, Y), ops.div(X, Y)),
    "GreaterEqual": ((), (X, Y), ops.greater_equal(X, Y)),
    "LessEqual": ((), (X, Y), ops.less_equal(X, Y)),
    "NotEqual": ((), (X, Y), ops.not_equal(X, Y)),
    "LogicalAnd": ((), (B, C), ops.logical_and(B, C)),
    "LogicalOr": ((), (B, C), ops.logical_or(B, C)),
    "LogicalNot": ((), (B,), ops.logical_not(B)),
    "Select": ((), (B, Tensor([1.0, 2.0]), 3.0), ops.where(B, Tensor([1.0, 2.0]), 3.0)),
    "Cast": ((), (X, ms.float32), ops.cast(X, ms.float32)),
    "ZerosLike": ((), (X,), ops.zeros_like(X)),
    "OnesLike": ((), (X,), ops.ones_like(X)),
    "Fill": ((), (ms.float32, (2, 3), 1.5), ops.full((2, 3), 1.5)),
    "ExpandDims": ((), (X, 1), ops.expand_dims(X, 1)),
    "Reshape": ((), (X, (6, -1)), ops.reshape(X, (6, 4))),
    "Transpose": ((), (X, (2, 0, 1)), ops.transpose(X, (2, 0, 1))),
    "Gather": ((), (X, Tensor([1, 0]), 1), ops.gather(X, Tensor([1, 0]), 1)),
    "ReduceSum": ((True,), (X, (0, 1)), ops.sum(X, (0, 1), True)),
    "ReduceMean": ((), (X,), ops.mean(X)),
    "ReduceMax": ((), (X, 1), ops.max(X, 1)),
    "ReduceMin": ((True,), (X, -1), ops.min(X, -1, True)),
    "ReduceProd": ((), (X, 0), ops.prod(X, 0)),
    "MatMul": ((False, True), (X[0], Y[0]), ops.matmul(X[0], Y[0].T)),
    "BatchMatMul": ((True,), (X, Y), ops.bmm(X.swapaxes(1, 2), Y)),
    "Concat": ((1,), ((X, Y),), ops.concat((X, Y), 1)),
    "Stack": ((-1,), ([X, Y],), ops.stack((X, Y), -1)),
    "CumSum": ((), (X, 1), ops.cumsum(X, 1)),
    "Squeeze": ((0,), (X[:1],), X[0]),
    "Softmax": ((1,), (X,), ops.softmax(X, 1)),
    "LogSoftmax": ((), (X,), ops.log_softmax(X, -1)),
    "Argmax": ((), (X,), ops.argmax(X, -1)),
    "OneHot": ((0,), (Tensor([1, 0, 2]), 4, 2.0, 1.0), ops.one_hot(Tensor([1, 0, 2]), 4, 2.0, 1.0, 0)),
    "Split": ((2, 2), (X,), ops.split(X, 2, 2)),
    "Conv2D": (
        (3, 2, "pad", 1, 2),
        (X[None], ops.ones((3, 2, 2, 2))),
        ops.conv2d(X[None], ops.ones((3, 2, 2, 2)), stride=2, pad_mode="pad", padding=1),
    ),
    "Dropout": ((1.0,), (X,), X),
    "Dropout2D": ((1.0,), (X,), ops.dropout2d(X, 1.0)),
}
BY_HAND = {"GradOperation", "Assign", "HookBackward", "HyperMap", "Map"}  # or in tests of their own


@pytest.mark.parametrize("name", PLAIN)
def test_primitive_class_equals_function(name):
    options, operands, expected = PLAIN[name]
    found = getattr(ops, name)(*options)(*operands)
    pairs = zip(found, expected, strict=True) if isinstance(expected, tuple) else [(found, expected)]
    for a, b in pairs:
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a.asnumpy(), b.asnumpy())


def test_every_primitive_class_is_tested():
    classes = {name for name in ops.__all__ if isinstance(getattr(ops, name), type)}
    of_functions = {"HyperMap", "Map", "HookBackward"}  # tests/tape/test_gradient_functions.py
    assert classes == {*PLAIN, *BY_HAND} | of_functions


def test_squeeze_without_axis_drops_all_axes_of_length_1():
    assert ops.Squeeze()(X[:1, None]).shape == (3, 4)


def test_assign_writes_and_returns_the_parameter():
    parameter = ms.Parameter(Tensor([1.0, 2.0]), name="p")
    assert ops.Assign()(parameter, Tensor([3.0, 4.0])) is parameter
    np.testing.assert_array_equal(parameter.asnumpy(), [3, 4])


def test_reprs_show_the_options():
    assert repr(ops.Softmax(axis=1)) == "Softmax(axis=1)"
    assert repr(ops.MatMul(transpose_b=True)) == "MatMul(transpose_a=False, transpose_b=True)"
    assert repr(ops.ReLU()) == "ReLU()"
    assert repr(ops.Dropout(keep_prob=0.9)) == "Dropout(keep_prob=0.9)"
