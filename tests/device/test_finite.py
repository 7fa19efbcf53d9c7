"""`check_finite` on the GPU: values are fetched and checked, and a failing loop is run again to locate the fault."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import snncell
from snncell import Tensor, nn, ops, value_and_grad
from snncell.errors import NotFiniteError


@pytest.fixture(autouse=True)
def _checked() -> Iterator[None]:
    snncell.set_context(check_finite=True)
    yield
    snncell.set_context(check_finite=False)


class Falling(nn.Cell):
    def construct(self, x: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        v = v - 1.0
        return ops.sqrt(v) * x, v

    def init_state(self, x: Tensor) -> Tensor:
        return ops.ones_like(x) * 3.5 + x * 0.0


def sequence() -> Tensor:
    return ops.ones((6, 2, 3)).to("gpu")


def test_operation_with_nonfinite_result_raises() -> None:
    with pytest.raises(NotFiniteError, match=r"^log gives -inf at entry \(1,\), of finite operands: it starts here\."):
        ops.log(Tensor([1.0, 0.0]).to("gpu"))


def test_nonfinite_value_in_loop_raises() -> None:
    with pytest.raises(NotFiniteError, match=r"^MultiStep\(Falling\), time step 3: sqrt gives NaN at entry \(0, 0\)"):
        nn.MultiStep(Falling())(sequence())


def test_nonfinite_loop_input_raises() -> None:
    x = np.ones((6, 2, 3), np.float32)
    x[4, 1, 2] = np.nan
    with pytest.raises(
        NotFiniteError, match=r"^MultiStep\(LIFNode\), time step 4: its input holds NaN at entry \(1, 2\)"
    ):
        nn.MultiStep(nn.LIFNode())(Tensor(x).to("gpu"))


def test_nonfinite_gradient_of_loop_raises() -> None:
    def loss(x: Tensor) -> Tensor:
        return ops.scan(lambda v, x: (v - 1.0, ops.sqrt(v * v) * x), ops.full((2, 3), 3.0).to("gpu") * x[0], x)[1].sum()

    with pytest.raises(NotFiniteError, match=r"^backward of scan, time step 3: div gives inf at entry \(0, 0\)"):
        value_and_grad(loss)(sequence())


def test_check_finite_changes_no_bit_of_finite_step() -> None:
    net = nn.SequentialCell(nn.Dense(3, 4), nn.MultiStep(nn.LIFNode())).to("gpu")

    def found() -> list[np.ndarray]:
        value, grads = value_and_grad(lambda x: net(x).sum(), None, net.trainable_params())(sequence())
        return [t.asnumpy() for t in (value, *grads)]

    checked = found()
    snncell.set_context(check_finite=False)
    for a, b in zip(checked, found(), strict=True):
        np.testing.assert_array_equal(a, b)
