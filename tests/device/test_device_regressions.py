"""Regression tests of the device: lent buffers, wrong devices and sums that overflowed."""

from __future__ import annotations

import contextlib
import copy
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import snncell
from snncell import Parameter, Tensor, grad, jit, nn, ops
from snncell.errors import DeviceError
from snncell.kernels.cuda.runtime import runtime


@pytest.fixture(autouse=True)
def recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Record every step that can be recorded, as in a process with one thread."""
    monkeypatch.setattr("snncell.compiler.runtime.plan.is_graph_faster", lambda launches, copied: True)
    monkeypatch.setattr(runtime(), "_threads", set())


def there(*values: float) -> Tensor:
    return Tensor(np.array(values, np.float32)).to("gpu")


def stepping(p: Parameter) -> Callable[[Tensor], Tensor]:
    @jit
    def step(x: Tensor) -> Tensor:
        p.set_data(p + x)
        return p.sum()

    return step  # type: ignore[no-any-return]


def test_step_can_return_old_value_of_parameter() -> None:
    p = Parameter(there(1, 2, 3))

    @jit
    def f(x: Tensor) -> tuple[Tensor, Tensor]:
        old = p.value()
        p.set_data(p + x)
        return old, old[1:]

    for n in range(5):
        old, part = f(there(1, 1, 1))
        np.testing.assert_array_equal(old.asnumpy(), np.array([1, 2, 3]) + n)
        np.testing.assert_array_equal(part.asnumpy(), np.array([2, 3]) + n)


def test_constant_lent_by_another_recording_stays_valid() -> None:
    p = Parameter(there(1, 2, 3))
    train = stepping(p)
    for _ in range(4):
        train(there(1, 1, 1))
    anchor = p.value()
    penalty = jit(lambda: ops.square(p - anchor).sum())
    for _ in range(4):
        assert float(penalty()) == 0.0
    train(there(1, 1, 1))
    assert float(penalty()) == 3.0


@pytest.mark.simulator
def test_arrays_exported_to_other_libraries_stay_unchanged() -> None:
    f = jit(lambda x: x * 2.0)
    for _ in range(4):
        r = f(there(1, 2, 3))

    class Other:
        def __dlpack__(self, stream: Any = None) -> Any:
            return r.__dlpack__(stream=stream)

        def __dlpack_device__(self) -> tuple[int, int]:
            return r.__dlpack_device__()

    y, address = Tensor(Other()), r.__cuda_array_interface__["data"]
    f(there(5, 5, 5))
    np.testing.assert_array_equal(y.asnumpy(), [2, 4, 6])
    assert r.__cuda_array_interface__["data"] == address


def test_failed_run_keeps_lent_values() -> None:
    p = Parameter(there(1, 2, 3))
    step = stepping(p)
    for _ in range(4):
        step(there(1, 1, 1))
    with pytest.raises(DeviceError, match="argument 1 is on the CPU"):
        step(Tensor(np.ones(3, np.float32)))
    held = p.value()
    step(there(1, 1, 1))
    np.testing.assert_array_equal(held.asnumpy(), [5, 6, 7])
    np.testing.assert_array_equal(p.asnumpy(), [6, 7, 8])


def test_second_thread_disables_lending() -> None:
    p = Parameter(there(1, 2, 3))
    step = stepping(p)
    for _ in range(4):
        step(there(1, 1, 1))
    thread = threading.Thread(target=lambda: ops.square(there(1, 2)).asnumpy())
    thread.start()
    thread.join()
    values = [p.value() for _ in range(3) if step(there(1, 1, 1)) is not None]
    for n, value in enumerate(values):
        np.testing.assert_array_equal(value.asnumpy(), np.array([6, 7, 8]) + n)
    compiled, leaves = step.lookup((there(1, 1, 1),), {})  # type: ignore[attr-defined]
    assert compiled.plan([x._data for x in leaves]).graph.reason == "several threads use the device"


def test_device_scalars_can_be_used_with_cpu_tensors() -> None:
    x, s = Tensor(np.arange(3, dtype=np.float32)), there(2.0)
    np.testing.assert_array_equal(jit(lambda x, s: x * s)(x, s).asnumpy(), [0, 2, 4])
    np.testing.assert_array_equal(jit(lambda x: x * s)(x).asnumpy(), [0, 2, 4])


def test_loop_body_can_create_tensors() -> None:
    init, xs = there(1, 2), Tensor(np.ones((4, 2), np.float32)).to("gpu")

    def f(init: Tensor, xs: Tensor) -> Tensor:
        return ops.scan(lambda c, x: (c + x + ops.zeros_like(c) + ops.ones((2,)), c), init, xs)[1].sum()  # type: ignore[no-any-return]

    assert float(f(init, xs)) == float(f(init.to("cpu"), xs.to("cpu"))) == float(jit(f)(init, xs))
    np.testing.assert_array_equal(grad(f)(init, xs).asnumpy(), [4, 4])


def test_parameter_copies_stay_on_their_device() -> None:
    p, q = Parameter(np.zeros(3, np.float32), name="p"), Parameter(there(1, 2, 3), name="q")
    assert (copy.deepcopy(q).device, q.clone().device) == ("gpu", "gpu")
    snncell.set_context(device_target="GPU")
    try:
        assert (copy.deepcopy(p).device, p.clone().device) == ("cpu", "cpu")
    finally:
        snncell.set_context(device_target="CPU")


def test_empty_batch_has_gradient() -> None:
    xs = ops.zeros((3, 0, 2)).to("gpu")
    assert grad(lambda x: nn.MultiStep(nn.LIFNode())(x).sum())(xs).shape == (3, 0, 2)


def test_write_only_parameter_stays_on_its_device() -> None:
    p = Parameter(np.zeros(3, np.float32), requires_grad=False)
    write = jit(lambda x: ops.assign(p, x * 2.0))
    for _ in range(3):
        write(there(1, 2, 3))
        assert p.device == "cpu"
        np.testing.assert_array_equal(p.asnumpy(), [2, 4, 6])
    p.move("gpu")
    with pytest.raises(DeviceError, match="argument 1 is on the CPU"):
        write(Tensor([1.0, 2.0, 3.0]))
    assert p.device == "gpu"


def test_buffers_released_during_recording_live_until_its_end() -> None:
    class Owner:
        pass

    device, owner = runtime(), Owner()
    alive = weakref.ref(owner)

    def run() -> None:
        nonlocal owner
        there_is, owner = owner, None  # type: ignore[assignment]
        device.settle(there_is)
        del there_is
        assert alive() is not None  # nobody may wait now

    with contextlib.suppress(DeviceError):  # a card records nothing without a kernel
        device.record(run)
    assert alive() is None


def test_optimiser_on_another_device_changes_nothing() -> None:
    net = nn.Dense(3, 2)
    optimiser = nn.Adam(net.trainable_params(), 0.1)
    net.to("gpu")
    grads = [ops.ones_like(p) for p in net.trainable_params()]
    before = net.weight.asnumpy()
    with pytest.raises(
        DeviceError, match=r"Adam: Parameter 'bias' is on the GPU, but 'moment.*' on the CPU.*optimiser\.to"
    ):
        optimiser(grads)
    with pytest.raises(DeviceError, match="Adam: the gradient of 'weight' is on the CPU, but the Parameter is on"):
        optimiser([g.to("cpu") for g in grads])
    assert optimiser.global_step.item() == 0
    optimiser.to("gpu")
    optimiser(grads)
    np.testing.assert_allclose(net.weight.asnumpy(), before - 0.1, atol=1e-6)


def test_tensors_made_in_bprop_are_on_device_of_gradient() -> None:
    class Twice(nn.Cell):
        def construct(self, x: Tensor) -> Tensor:
            return x * 2.0

        def bprop(self, x: Tensor, out: Tensor, dout: Tensor) -> tuple[Tensor]:
            return (dout @ ops.eye(3) * 2.0 + ops.zeros(x.shape),)

    for f in (grad(lambda x: Twice()(x).sum()), jit(grad(lambda x: Twice()(x).sum()))):
        np.testing.assert_array_equal(f(ops.ones((2, 3)).to("gpu")).asnumpy(), np.full((2, 3), 2.0))
