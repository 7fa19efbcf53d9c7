"""Errors of operations: they name the operation, the expected and actual value, and a fix if there is one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import snncell as ms
from snncell import Tensor, ops
from snncell.errors import (
    ArgumentError,
    ArgumentTypeError,
    DTypeError,
    GradientError,
    ShapeError,
    SnncellError,
    TensorIndexError,
)


def ones(*shape: int) -> Tensor:
    return ops.ones(shape)


X = ones(2, 3)
N = Tensor([0, 1])

SHAPES: list[tuple[Any, str]] = [
    (lambda: X + ones(2, 2), r"add: shapes \(2, 3\) and \(2, 2\) do not broadcast.*reshape or expand_dims"),
    (lambda: ops.where(X > 0, X, ones(4)), r"where: shapes \(2, 3\) and \(2, 3\) and \(4,\) do not broadcast"),
    (lambda: ops.maximum(ones(2), ones(3)), r"maximum: shapes \(2,\) and \(3,\) do not broadcast"),
    (lambda: ops.equal(X, ones(2)), r"equal: shapes \(2, 3\) and \(2,\) do not broadcast"),
    (lambda: X @ X, r"matmul: shapes \(2, 3\) and \(2, 3\) have inner lengths 3 and 2.*Transpose"),
    (lambda: X @ ones(2), r"matmul: shapes \(2, 3\) and \(2,\) have inner lengths 3 and 2"),
    (lambda: ones(2) @ ones(3), r"matmul: shapes \(2,\) and \(3,\) have inner lengths 2 and 3"),
    (lambda: ops.matmul(X, 2.0), r"matmul: shapes \(2, 3\) and \(\); use \* to multiply by a number"),
    (lambda: ones(4, 2, 3) @ ones(5, 3, 2), r"matmul: the batch axes of shapes \(4, 2, 3\) and \(5, 3, 2\)"),
    (lambda: ops.bmm(X, X), r"bmm: takes \(b, n, k\) and \(b, k, m\), not \(2, 3\) and \(2, 3\)"),
    (lambda: ops.bmm(ones(1, 2, 3), ones(4, 3, 2)), r"bmm: takes .*not \(1, 2, 3\) and \(4, 3, 2\)"),
    (lambda: ops.einsum("ij,jk", X, X), r"einsum\('ij,jk'\): 'j' has length 2 in operand 1 of .*, but length 3 in an"),
    (
        lambda: ops.einsum("ii", X),
        r"einsum\('ii'\): 'i' has length 3 in operand 0 of shape \(2, 3\), but length 2 in an",
    ),
    (lambda: ops.reshape(X, (4, 2)), r"reshape: 6 elements of shape \(2, 3\) do not fill shape \(4, 2\)"),
    (lambda: ops.reshape(X, (-1, 4)), r"reshape: 6 elements of shape \(2, 3\) do not fill shape \(-1, 4\)"),
    (lambda: X.reshape(-1, -1), r"reshape: 6 elements .* shape \(-1, -1\)"),
    (lambda: X.reshape(-2, -3), r"reshape: 6 elements .* shape \(-2, -3\)"),
    (lambda: ops.transpose(X, (0, 0)), r"transpose: \(0, 0\) is not a permutation of the 2 axes"),
    (lambda: X.transpose(1), r"transpose: \(1,\) is not a permutation of the 2 axes"),
    (lambda: X.swapaxes(0, 2), r"swapaxes: axis 2 of a Tensor with 2 axes; it must lie in \[-2, 1\]"),
    (lambda: ops.flatten(X, 1, 0), r"flatten: start_dim 1 comes after end_dim 0"),
    (lambda: ops.expand_dims(X, 3), r"expand_dims: axis 3 of a Tensor with 3 axes"),
    (lambda: ops.squeeze(X, 0), r"squeeze: axis 0 of a Tensor of shape \(2, 3\) has length 2"),
    (lambda: ops.broadcast_to(X, (4, 3)), r"broadcast_to: shape \(2, 3\) does not broadcast to \(4, 3\)"),
    (lambda: ops.broadcast_to(X, (3,)), r"broadcast_to: shape \(2, 3\) does not broadcast to \(3,\)"),
    (lambda: ops.broadcast_to(X, 3), r"broadcast_to: shape \(2, 3\) does not broadcast to \(3,\)"),
    (lambda: ops.concat([X, ones(2, 4)]), r"concat: Tensor 1 has shape \(2, 4\), Tensor 0 \(2, 3\).*axis 0 only"),
    (lambda: ops.concat([X, ones(3)]), r"concat: Tensor 1 has shape \(3,\), Tensor 0 \(2, 3\)"),
    (lambda: ops.concat([Tensor(1.0), Tensor(2.0)]), r"concat: axis 0 of a Tensor with 0 axes"),
    (lambda: ops.concat([X, X], 2), r"concat: axis 2 of a Tensor with 2 axes"),
    (lambda: ops.stack([X, ones(3, 2)]), r"stack: Tensor 1 has shape \(3, 2\), Tensor 0 \(2, 3\)"),
    (lambda: ops.split(X, [1, 3], 1), r"split: sections \[1, 3\] do not add up to 3, the length of axis 1"),
    (lambda: ops.Split(1, 2)(X), r"[Ss]plit: sections \[1, 1\] do not add up to 3"),
    (lambda: ops.pad(X, (1,)), r"pad: padding \(1,\) for a Tensor with 2 axes; give non-negative numbers"),
    (lambda: ops.pad(X, (1, -1)), r"pad: padding \(1, -1\) .* non-negative"),
    (lambda: ops.pad(ones(2), (1, 1, 1, 1)), r"pad: padding \(1, 1, 1, 1\) for a Tensor with 1 axes"),
    (lambda: ops.zeros((2, -1)), r"zeros: shape \(2, -1\) has a negative length"),
    (lambda: ops.sum(X, 2), r"sum: axis 2 of a Tensor with 2 axes; it must lie in \[-2, 1\]"),
    (lambda: ops.mean(X, (0, -2)), r"mean: axis \(0, -2\) names an axis twice"),
    (lambda: ops.softmax(X, -3), r"softmax: axis -3 of a Tensor with 2 axes"),
    (lambda: ops.log_softmax(X, 2), r"log_softmax: axis 2 of a Tensor with 2 axes"),
    (lambda: ops.logsumexp(X, 5), r"logsumexp: axis 5 of a Tensor with 2 axes"),
    (lambda: ops.cumsum(X, 2), r"cumsum: axis 2 of a Tensor with 2 axes"),
    (lambda: ops.sort(X, 2), r"sort: axis 2 of a Tensor with 2 axes"),
    (lambda: ops.argsort(Tensor(1.0)), r"argsort: axis -1 of a Tensor with 0 axes"),
    (lambda: ops.argmax(X, 2), r"argmax: axis 2 of a Tensor with 2 axes"),
    (lambda: ops.max(ones(0, 3), 0), r"max: there is nothing along axis 0 of a Tensor of shape \(0, 3\)"),
    (lambda: ops.gather(X, N, 2), r"gather: axis 2 of a Tensor with 2 axes"),
    (lambda: ops.conv1d(X, ones(1, 1, 1)), r"conv1d: x \(2, 3\) and weight \(1, 1, 1\) need \(N, C, ...\)"),
    (lambda: ops.conv1d(ones(1, 2, 5), ones(4, 3, 2)), r"conv1d: .* has 2 channels; the weight .* takes 3"),
    (lambda: ops.conv1d(ones(1, 2, 5), X), r"conv1d: the weight needs 3 axes, but its shape is \(2, 3\)"),
    (lambda: ops.conv1d(ones(1, 1, 2), ones(1, 1, 3)), r"conv1d: a window of 3 .* input has length 2.*Pad more"),
    (lambda: ops.conv1d(ones(1, 1, 3), ones(2, 1, 3), ones(3)), r"conv1d: the bias has shape \(3,\); it needs \(2,\)"),
    (lambda: ops.conv2d(ones(1, 2, 5), ones(4, 2, 1, 1)), r"conv2d: x \(1, 2, 5\) and weight"),
    (lambda: ops.conv2d(ones(1, 4, 5, 5), ones(3, 2, 1, 1), groups=2), r"conv2d: .* groups must divide its 3 output"),
    (lambda: ops.max_pool2d(X, 2), r"max_pool2d: takes \(N, C, ...\) with 2 more axes, not \(2, 3\)"),
    (lambda: ops.avg_pool1d(ones(1, 1, 3), 4), r"avg_pool1d: a window of 4 elements .* has length 3"),
    (lambda: ops.rfft(Tensor(1.0)), r"rfft: needs a last axis of at least one element, but the shape is \(\)"),
    (lambda: ops.fft(ones(2, 0)), r"fft: needs a last axis of at least one element, but the shape is \(2, 0\)"),
    (lambda: ops.irfft(ones(4), 9), r"irfft: 4 frequencies do not belong to a signal of length 9"),
    (lambda: X.item(), r"Tensor.item: needs exactly one element, this Tensor has shape \(2, 3\)"),
    (lambda: bool(X), r"A Tensor of shape \(2, 3\) is neither true nor false. Reduce it first"),
    (lambda: Tensor([[1.0], [1.0, 2.0]]), r"Tensor: data: the nested list is ragged"),
]

DTYPES: list[tuple[Any, str]] = [
    (lambda: ops.add(X, None), r"add: y is a Tensor, an array or a number, not None"),
    (lambda: ops.exp("x"), r"exp: x is a Tensor, an array or a number, not 'x'. Wrap data in snncell.Tensor"),
    (lambda: ops.sum(None), r"sum: x is a Tensor, an array, or numbers, not None"),
    (lambda: ops.reshape("ab", (2,)), r"reshape: x is a Tensor, an array, or numbers or an EventLists, not 'ab'"),
    (lambda: ops.matmul(X, "y"), r"matmul: y is a Tensor, an array, or numbers, not 'y'"),
    (lambda: ops.concat([X, None]), r"concat: tensors\[1\] is a Tensor, an array or a number, not None"),
    (lambda: ops.where(X > 0, X, None), r"where: y is a Tensor, an array or a number, not None"),
    (lambda: ops.relu(len), r"relu: x is a Tensor, an array or a number, not <built-in function len>"),
    (lambda: Tensor(["a", "b"]), r"Tensor: data: list \['a', 'b'\] holds no numbers"),
    (lambda: Tensor(None), r"Tensor: data: NoneType None holds no numbers"),
    (lambda: Tensor(np.array(["2020"], "M8[Y]")), r"Tensor: data: ndarray .* holds no numbers"),
    (lambda: X.astype("float8"), r"astype: dtype is a dtype \(.*float32.*\), not 'float8'"),
    (lambda: ops.cast(X, "words"), r"cast: dtype is a dtype .* not 'words'"),
    (lambda: Tensor([1], np.uint16), r"is not a dtype of snncell. Use one of"),
    (lambda: -Tensor([True]), r"neg: takes numbers, not booleans.*astype"),
    (lambda: ops.one_hot(X, 3), r"one_hot: takes integers, not Float32.*astype"),
    (lambda: Tensor([True]) - Tensor([True]), r"sub: takes numbers, not booleans.*astype"),
    (lambda: X & X, "bitwise_and: takes integers or booleans"),
    (lambda: ops.sort(Tensor([1j])), r"sort: complex numbers have no order. Sort ops.real\(x\), ops.imag"),
    (lambda: [1, 2][Tensor(1.0)], r"A Tensor of dtype Float32 cannot be an index"),
]

ARGUMENTS: list[tuple[Any, str]] = [
    (lambda: ops.add(X), r"add: takes 2 operand\(s\), got 1"),
    (lambda: ops.relu(X, X), r"relu: takes 1 operand\(s\), got 2"),
    (lambda: ops.clip(X), r"clip: give min, max, or both"),
    (lambda: ops.clip(X, 2.0, 1.0), r"clip: min=2.0 is above max=1.0"),
    (lambda: ops.gelu(X, "quick"), r"gelu: approximate is \"none\" or \"tanh\", not 'quick'"),
    (lambda: ops.sum(X, 1.0), r"sum: axis is an integer or a list of integers, not 1.0"),
    (lambda: ops.sum(X, "rows"), r"sum: axis is an integer or a list of integers, not 'rows'"),
    (lambda: ops.sum(X, True), r"sum: axis is an integer or a list of integers, not True"),
    (lambda: ops.cumsum(X, None), r"cumsum: axis is an integer, not None"),
    (lambda: ops.reshape(X, (2.0, 3)), r"reshape: shape is an integer, not 2.0"),
    (lambda: ops.zeros("ab"), r"zeros: shape is an integer or a list of integers, not 'ab'"),
    (lambda: ops.concat([]), r"concat: tensors is a tuple or list of at least one Tensor"),
    (lambda: ops.concat(X), r"concat: tensors is a tuple or list"),
    (lambda: ops.stack(()), r"stack: tensors is a tuple or list of at least one Tensor"),
    (lambda: ops.split(X, 0), r"split: pieces have a length of at least 1, not 0"),
    (lambda: ops.split(X, 1.5), r"split: split_size_or_sections is an integer or a list of integers, not 1.5"),
    (lambda: ops.Split(0, 0)(X), r"[Ss]plit: output_num"),
    (lambda: ops.pad(X, (1, 1), "wrap"), r"pad: mode is \"constant\", \"reflect\", .* or \"circular\", not 'wrap'"),
    (lambda: ops.arange(0, 5, 0), r"arange: step is 0"),
    (lambda: ops.eye(2.5), r"eye: n is an integer of at least 0, not 2.5"),
    (lambda: ops.one_hot(Tensor([0, 3]), 3), r"one_hot: index 3 is out of range for depth 3; it must lie in \[0, 3\)"),
    (lambda: ops.one_hot(Tensor([-1]), 3), r"one_hot: index -1 is out of range for depth 3"),
    (lambda: ops.one_hot(N, 2.5), r"one_hot: depth is an integer of at least 0, not 2.5"),
    (lambda: ops.einsum(X, X), r"einsum: equation is a str, not a Tensor of shape"),
    (lambda: ops.einsum("ij,jk", X), r"einsum\('ij,jk'\): 2 operand\(s\) in the equation, 1 given"),
    (lambda: ops.einsum("ijk", X), r"einsum\('ijk'\): 'ijk' does not fit operand 0 of shape \(2, 3\)"),
    (lambda: ops.einsum("i", X), r"einsum\('i'\): 'i' does not fit operand 0 of shape \(2, 3\)"),
    (lambda: ops.einsum("i1", X), r"einsum\('i1'\): 'i1' does not fit operand 0"),
    (lambda: ops.einsum("ij->ik", X), r"einsum\('ij->ik'\): the result's letters 'ik' must each occur once"),
    (lambda: ops.einsum("ij->ii", X), r"einsum\('ij->ii'\): the result's letters 'ii' must each occur once"),
    (
        lambda: ops.conv1d(ones(1, 1, 4), ones(1, 1, 2), stride=0),
        r"conv1d: stride is an int or 1 ints, each at least 1",
    ),
    (
        lambda: ops.conv2d(ones(1, 1, 4, 4), ones(1, 1, 2, 2), dilation=(1, 2, 3)),
        r"conv2d: dilation is an int or 2 ints",
    ),
    (
        lambda: ops.conv2d(ones(1, 1, 4, 4), ones(1, 1, 2, 2), groups=1.5),
        r"conv2d: groups is an integer of at least 1, not 1.5",
    ),
    (lambda: ops.conv2d(ones(1, 1, 4, 4), ones(1, 1, 2, 2), pad_mode="full"), r"conv2d: pad_mode is .* not 'full'"),
    (lambda: ops.conv2d(ones(1, 1, 4, 4), ones(1, 1, 2, 2), padding=1), r"conv2d: padding=1 needs pad_mode=\"pad\""),
    (lambda: ops.max_pool2d(ones(1, 1, 4, 4), 0), r"max_pool2d: kernel_size is an int or 2 ints, each at least 1"),
    (lambda: ops.avg_pool2d(ones(1, 1, 4, 4), (2, 2, 2)), r"avg_pool2d: kernel_size is an int or 2 ints"),
    (lambda: Tensor([3], ms.uint8) + 300, r"add: the number 300 does not fit the dtype UInt8.*astype"),
    (lambda: 2 ** Tensor([-1]), r"power: Integers to negative integer powers"),
]

INDICES: list[tuple[Any, str]] = [
    (lambda: X[2], r"index 2 is out of bounds for axis 0 with size 2"),
    (lambda: X[0, -4], r"index -4 is out of bounds for axis 1 with size 3"),
    (lambda: X[0, 0, 0], r"too many indices"),
    (lambda: X[0.5], r"A Tensor index may contain integers, slices, None, ..., positions and masks, not 0.5"),
    (lambda: X["a"], r"A Tensor index may contain integers, slices, None, ..., positions and masks, not 'a'"),
    (lambda: X[1.0:], r"A Tensor index may contain integers, slices, None, ..., positions and masks, not 1.0"),
    (lambda: X[True], r"not True"),
    (lambda: X[..., ...], r"ellipsis"),
    (lambda: X[::0], r"step 0"),
    (
        lambda: X[Tensor([True, False, True])],
        r"mask of shape \(3,\) does not match the first axes of .* shape \(2, 3\)",
    ),
    (lambda: X[0, Tensor([True, False])], r"shape \(2, 3\): boolean index did not match"),
    (lambda: X[X, 0], r"cannot be indexed by a Tensor of dtype Float32"),
    (lambda: X[[0.5]], r"cannot be indexed by a Tensor of dtype Float32"),
    (lambda: X[[0, 2]], r"index 2 is out of bounds for axis 0 with size 2"),
    (lambda: X[[0], 3], r"shape \(2, 3\): index 3 is out of bounds for axis 1 with size 3"),
    (lambda: X[[0, 5], [1, 1]], r"x\[...\]: index 5 is out of range; it must lie in \[-2, 2\)"),
    (lambda: ops.gather(X, Tensor([0, 3]), 1), r"gather.*index 3 is out of bounds for axis 1 with size 3"),
    (lambda: ops.gather(X, X), r"cannot be indexed by a Tensor of dtype Float32"),
]

GRADIENTS: list[tuple[Any, str]] = [
    (lambda: ms.grad(ops.relu)(N), r"argument 0 has dtype Int64; there is no gradient .*astype\('float32'\)"),
    (lambda: ms.grad(lambda x: x > 0)(X), r"the function returned Bool, which has no gradient. Return floats"),
    (lambda: ms.grad(ops.argmax)(X), r"the function returned Int64, which has no gradient"),
    (lambda: ms.grad(ops.relu)(np.ones(2)), r"argument 0 is a ndarray; gradients are taken with respect to Tensors"),
]


def cases(table: list[tuple[Any, str]]) -> Any:
    return pytest.mark.parametrize(("call", "text"), table, ids=[text[:48] for _, text in table])


def assert_raises(call: Any, kind: type[SnncellError], builtin: type[Exception], text: str) -> None:
    """Check that both base classes catch the error, and that its message is one string."""
    with pytest.raises(kind, match=text) as caught:
        call()
    assert type(caught.value) in (kind, ArgumentTypeError) if kind is ArgumentError else type(caught.value) is kind
    assert isinstance(caught.value, builtin)
    assert len(caught.value.args) == 1 and isinstance(caught.value.args[0], str)


@cases(SHAPES)
def test_mismatched_shapes_raise(call, text):
    assert_raises(call, ShapeError, ValueError, text)


@cases(DTYPES)
def test_invalid_types_and_dtypes_raise(call, text):
    by_annotation = "is a Tensor, an array, or numbers" in text or "dtype is a dtype" in text
    assert_raises(call, ArgumentTypeError if by_annotation else DTypeError, TypeError, text)


@cases(ARGUMENTS)
def test_invalid_arguments_raise(call, text):
    assert_raises(call, ArgumentError, ValueError, text)


@cases(INDICES)
def test_indices_out_of_range_raise(call, text):
    assert_raises(call, TensorIndexError, IndexError, text)


@cases(GRADIENTS)
def test_undefined_gradients_raise(call, text):
    assert_raises(call, GradientError, TypeError, text)


@pytest.mark.parametrize("padding", [2, "same", None])
def test_padding_must_be_a_sequence_of_ints(padding):
    with pytest.raises(SnncellError, match="pad: padding"):
        ops.pad(X, padding)


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("arange", ("a",)),
        ("eye", (2, "x")),
        ("full", ((2,), [1, 2, 3])),
        ("randint", ("a", 3, (2,))),
        ("randint", (0.5, 3.5, (2,))),
        ("irfft", (ones(3), 4.5)),
        ("irfft", (ones(3), "a")),
        ("var", (X, 0, "a")),
    ],
)
def test_arguments_must_be_numbers_or_integers(name, args):
    with pytest.raises(SnncellError, match=f"^{name}"):
        getattr(ops, name)(*args)


def test_operators_with_strings_raise_type_error():
    with pytest.raises(TypeError, match=r"unsupported operand type\(s\) for \+"):
        X + "a"


@pytest.mark.compiled
@pytest.mark.parametrize(
    "call",
    [lambda x: x + ops.ones(4), lambda x: x @ x, lambda x: x.reshape(5), lambda x: ops.sum(x, 3), lambda x: x[5]],
)
def test_traced_functions_raise_the_same_errors_as_eager(call):
    errors = []
    for f in (call, ms.jit(call)):
        with pytest.raises(SnncellError, match=r"\d") as caught:
            f(X)
        errors.append((type(caught.value), str(caught.value)))
    assert errors[0] == errors[1]
