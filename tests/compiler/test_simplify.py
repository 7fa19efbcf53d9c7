"""Identities that the compiler drops, and those that it must keep. Both give the same bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from interpreting import emitted, interpreted, op_names, traced

from snncell import Parameter, Tensor, grad, jit, ops
from snncell.compiler.ir.program import substitute, values_in
from snncell.compiler.passes import optimise
from snncell.testing import unfused

__all__ = ["interpreted"]  # a fixture

SPECIAL = np.array([[0.0, -0.0, np.nan], [np.inf, -np.inf, 1.5]], np.float32)

DROPPED: dict[str, Callable[[Tensor], Any]] = {
    "a sign that is turned twice": lambda x: ops.neg(ops.neg(x)),
    "a shape that it has already": lambda x: ops.broadcast_to(ops.reshape(x, x.shape), x.shape),
    "a shape that is restored": lambda x: x.reshape((3, 2)).reshape(6).reshape(x.shape),
    "axes that are restored": lambda x: ops.transpose(ops.transpose(x, (1, 0)), (1, 0)),
    "axes in order": lambda x: ops.transpose(x, (0, 1)),
    "axes in order between": lambda x: ops.transpose(ops.transpose(ops.transpose(x, (1, 0)), (0, 1)), (1, 0)),
    "a chain of them": lambda x: ops.neg(ops.transpose(ops.transpose(ops.neg(x), (1, 0)), (1, 0))),
}
KEPT: dict[str, Callable[[Tensor], Any]] = {
    "times 1, which a changed constant may be": lambda x: x * 1.0,
    "minus 0": lambda x: x - 0.0,
    "plus 0, for -0.0 becomes 0.0": lambda x: x + 0.0,
    "over 1": lambda x: x / 1.0,
    "a sign that is turned three times, once": lambda x: ops.neg(ops.neg(ops.neg(x))),
    "axes in another order": lambda x: ops.transpose(x, (1, 0)),
    "another shape of as many elements": lambda x: ops.reshape(x, (3, 2)),
    "a cast to fewer digits and back": lambda x: x.astype("float16").astype("float32"),
}


def bits(array: Any) -> bytes:
    return np.ascontiguousarray(array).tobytes()


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("case", DROPPED)
def test_identity_operations_are_dropped(case: str) -> None:
    x = Tensor(SPECIAL)
    assert op_names(traced(DROPPED[case], x)) == []
    assert op_names(traced(lambda x: ops.exp(DROPPED[case](x)), x)) == ["exp"]
    assert bits(jit(DROPPED[case])(x).asnumpy()) == bits(SPECIAL)


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("case", KEPT)
def test_operations_that_may_change_bits_or_kernels_are_kept(case: str) -> None:
    x = Tensor(SPECIAL)
    assert op_names(traced(KEPT[case], x)) != []
    with unfused():
        wanted = jit(KEPT[case])(x).asnumpy()
    assert bits(jit(KEPT[case])(x).asnumpy()) == bits(wanted)


@pytest.mark.parametrize("value", [0.0, -0.0, 1.0, 1, True])
def test_constants_0_and_1_share_the_kernel_of_other_constants(value: Any) -> None:
    def step(tau: Any) -> Callable[[Tensor], Tensor]:
        return lambda x: (x - tau) * tau + ops.exp(x) / tau + tau

    sources = [emitted(step(tau), ops.ones((2, 3))).source for tau in (value, 2.5)]
    assert sources[0] == sources[1]


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int64, np.float16, np.float64, np.complex64])
def test_double_negation_in_each_dtype_keeps_the_bits(dtype: Any) -> None:
    least = np.iinfo(dtype).min if np.dtype(dtype).kind in "iu" else -0.0
    x = Tensor(np.array([least, 3, 0], dtype))
    assert op_names(traced(lambda x: ops.neg(ops.neg(x)), x)) == []
    assert bits(ops.neg(ops.neg(x)).asnumpy()) == bits(x.asnumpy())


@pytest.mark.usefixtures("interpreted")
def test_dropped_results_are_written_and_returned_as_their_operand() -> None:
    p = Parameter(SPECIAL, name="p", requires_grad=False)

    def f(x: Tensor) -> tuple[Tensor, Tensor]:
        ops.assign(p, ops.neg(ops.neg(x)))
        return x.reshape(x.shape), ops.neg(ops.neg(p))

    x = Tensor(SPECIAL * 2.0)
    for result in jit(f)(x):
        assert bits(result.asnumpy()) == bits(x.asnumpy())
    assert bits(p.asnumpy()) == bits(x.asnumpy())


def test_substitution_renames_inputs_outputs_and_writes() -> None:
    p = Parameter([1.0], name="p", requires_grad=False)

    def f(x: Tensor, y: Tensor) -> Tensor:
        z = ops.exp(x)
        ops.assign(p, y)
        return z * y, y

    program = traced(f, ops.ones(1), ops.ones(1))
    x, y = program.inputs
    renamed = substitute(program, {y: x})
    assert y not in {*renamed.results(), *(v for i in renamed.instructions for v in values_in(i))}
    assert renamed.outputs[1] is x and renamed.written[p] is x
    assert y in program.results() and program.instructions[1].inputs[1] is y  # the old instruction is unchanged
    assert substitute(program, {}) is program


@pytest.mark.usefixtures("interpreted")
def test_elementwise_instructions_read_the_source_of_a_broadcast() -> None:
    def centred(x: Tensor) -> Tensor:
        return x - ops.broadcast_to(x.sum(0), x.shape)

    def repeated(x: Tensor) -> Tensor:
        total = ops.broadcast_to(x.sum(0), x.shape)
        return ops.exp(total) * total

    x = Tensor(np.arange(6.0).reshape(2, 3))
    assert op_names(optimise(traced(centred, x))) == ["sum", "sub"]
    assert op_names(optimise(traced(repeated, x))) == ["sum", "exp", "mul", "broadcast_to"]
    for function in (centred, repeated):
        assert bits(jit(function)(x).asnumpy()) == bits(function(x).asnumpy())


@pytest.mark.usefixtures("interpreted")
def test_contraction_absorbs_its_transpose_only_without_another_user() -> None:
    def gradient(x: Tensor) -> Tensor:
        return grad(lambda w: ops.square(ops.matmul(x, w)).sum())(ops.ones((3, 4)))

    def both(x: Tensor) -> tuple[Tensor, Tensor]:
        found = gradient(x)
        return ops.transpose(found, (1, 0)), found + 1.0

    x = Tensor(np.arange(6, dtype=np.float32).reshape(2, 3))
    assert "transpose" not in op_names(traced(lambda x: ops.transpose(gradient(x), (1, 0)), x))
    for result, wanted in zip(jit(both)(x), both(x), strict=True):
        assert bits(result.asnumpy()) == bits(wanted.asnumpy())
