"""bfloat16 on the device: stored in 16 bits and computed as float32, as on the CPU."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from gradient_table import TABLE, Row
from test_bfloat16 import (
    B,
    Other,
    check_gradients_added_over_time,
    check_many_terms,
    check_rounding,
    check_row,
    check_special,
)

import snncell as ms
from snncell import Tensor, jit, ops
from snncell.kernels.cuda import exchange


@pytest.fixture(autouse=True)
def _on_the_device() -> Iterator[None]:
    """Create new Tensors on the device, for example the indices and masks inside rows."""
    ms.set_context(device_target="GPU")
    yield
    ms.set_context(device_target="CPU")


@pytest.mark.parametrize("r", TABLE, ids=repr)
def test_every_operation_equals_rounded_float32(r: Row) -> None:
    check_row(r, "gpu")


def test_long_sums_accumulate_in_float32() -> None:
    check_many_terms("gpu")


def test_gradients_accumulate_over_time_in_float32() -> None:
    check_gradients_added_over_time("gpu")


def test_rounding_is_to_nearest_even_and_keeps_nan() -> None:
    check_rounding("gpu")


def test_special_values_equal_cpu() -> None:
    check_special("gpu")


def test_moves_between_devices_keep_bits() -> None:
    bits = np.arange(0, 65536, 257, dtype=np.uint16)
    x = Tensor(bits.view(B))
    assert x.device == "gpu" and x.dtype == "bfloat16"
    for f in (
        lambda x: x.to("cpu"),
        lambda x: ops.flip(ops.concat([x[3:], x[:3]])[None], 1),
        lambda x: ops.gather(x, ops.arange(len(bits))),
        lambda x: ops.pad(x, (1, 2))[1:-2],
        lambda x: x.reshape(16, 16).T,
    ):
        found = f(x)
        here = found.asnumpy().view(np.uint16)
        expected = f(Tensor(bits.astype(np.int32))).asnumpy()
        assert found.dtype == "bfloat16" and here.astype(np.int32).tolist() == expected.tolist()
    assert "BFloat16" in repr(x) and x[3].item() == x.to("cpu")[3].item()


class There(Other):
    """The same on the device; PyTorch describes it in the other protocol."""

    def __init__(self, x: Tensor) -> None:
        self.x = x

    def __dlpack__(self, **options: Any) -> Any:
        return self.x.__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.x.__dlpack_device__()

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {"typestr": "<V2"}


def test_bfloat16_exchange_with_other_libraries() -> None:
    x = Tensor(np.arange(6).reshape(2, 3).astype(B))
    capsule = exchange.from_dlpack(x)
    assert capsule.dtype == B and capsule.device == (2, 0) and capsule.shape == (2, 3)
    taken = Tensor(There(x.T))
    assert taken.dtype == "bfloat16" and taken.device == "gpu" and taken.tolist() == x.T.tolist()
    assert not hasattr(x, "__cuda_array_interface__") and hasattr(x.astype("float32"), "__cuda_array_interface__")
    with pytest.raises(
        AttributeError, match=r"does not support bfloat16; exchange the Tensor by DLPack .* x\.astype\("
    ):
        _ = x.__cuda_array_interface__


@pytest.mark.parametrize("device", ["cpu", "gpu"])
@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_intermediates_are_rounded_to_storage_dtype(kind: str, device: str) -> None:
    def f(x: Tensor) -> tuple[Tensor, ...]:
        third = x.astype(kind) * 0.3333
        return third, third >= 0.25, x.astype(kind).astype("float32"), x.astype(kind).astype("float32") - x

    x = Tensor(np.linspace(0.7, 1.3, 2000).astype(np.float32)).to(device)
    third, above, back, error = (t.asnumpy() for t in jit(f)(x))
    np.testing.assert_array_equal(above, third.astype(np.float32) >= 0.25)
    np.testing.assert_array_equal(back, f(x)[2].asnumpy())
    np.testing.assert_array_equal(error, back - x.asnumpy())
    assert np.abs(error).max() > 1e-4
