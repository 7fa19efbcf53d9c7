"""Compiled loops on the device, compared with the CPU: maps, partial sums, loops over time and training steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from test_scan import CASES, ERRORS, Case, check_stored, close, gradients, python_loop, scanning

import snncell
from snncell import Parameter, Tensor, explain, grad, jit, nn, ops, surrogate, testing, value_and_grad
from snncell.compiler.backends import groups as threads
from snncell.errors import DeviceError
from snncell.tape import structure


def to_device(tree: Any) -> Any:
    """Copy the Tensors to the device."""
    return structure.map_leaves(lambda x: x.to("gpu"), tree)


def normal(*shape: int, seed: int = 0, dtype: Any = np.float32) -> Tensor:
    return Tensor(np.random.default_rng(seed).normal(size=shape).astype(dtype))


# --- maps and sums ----------------------------------------------------------------------------------------------------


@pytest.fixture
def many_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Split even small sums into parts, and join these in several rounds."""
    monkeypatch.setattr(threads, "TERMS", 2)
    monkeypatch.setattr(threads, "MOST_CHUNKS", 3)


SUMS: dict[str, tuple[Callable[..., Any], tuple[int, ...]]] = {
    "all": (lambda x: x.sum(), (37,)),
    "all of a matrix": (lambda x: (x * 2.0).sum(), (5, 7)),
    "rows": (lambda x: x.sum(1), (3, 17)),
    "columns": (lambda x: x.sum(0), (17, 3)),
    "outer axes": (lambda x: x.sum((0, 2)), (4, 3, 5)),
    "inner axis": (lambda x: x.sum(1), (2, 9, 3)),
    "largest": (lambda x: x.max(0), (9, 2)),
    "smallest": (lambda x: x.min(1), (2, 9)),
    "all true": (lambda x: ops.all(x > -3.0, 1), (2, 9)),
    "several": (lambda x: (x.sum(0), x.max(0), ops.square(x).sum(0)), (11, 2)),
    "with elements": (lambda x: (ops.exp(x), ops.exp(x).sum(1)), (2, 11)),
    "one": (lambda x: x.sum(), (1,)),
}


@pytest.mark.parametrize("name", SUMS)
def test_sums_equal_cpu(many_parts: None, name: str) -> None:
    f, shape = SUMS[name]
    x = normal(*shape, dtype=np.float64)
    close(jit(f)(x.to("gpu")), f(x))
    close(f(x.to("gpu")), f(x))


@pytest.mark.parametrize(("dtype", "unit"), [("float16", 5e-4), ("bfloat16", 4e-3)])
@pytest.mark.parametrize("name", SUMS)
def test_sums_are_rounded_once_at_the_end(many_parts: None, name: str, dtype: str, unit: float) -> None:
    f, shape = SUMS[name]
    x = Tensor(normal(*shape).asnumpy(), dtype)
    wide = structure.flatten(f(x.astype("float32")))[0]
    for found in (jit(f)(x.to("gpu")), f(x.to("gpu"))):
        for on_device, here in zip(structure.flatten(found)[0], wide, strict=True):
            assert on_device.dtype == (here.dtype if here.dtype == "bool" else dtype)
            # Half a unit in the last place, and the rounding error of another order of summation in float32.
            np.testing.assert_allclose(on_device.asnumpy().astype(float), here.asnumpy().astype(float), unit, 1e-5)


def test_partial_sums_depend_only_on_sizes_and_end_in_one(many_parts: None) -> None:
    assert threads.chunks_of(1, 1) == [1]
    assert threads.chunks_of(1, 37) == [19, 7, 3, 1]


def test_empty_tensors_equal_cpu() -> None:
    x = ops.zeros((0, 3)).to("gpu")
    assert (x * 2.0).shape == (0, 3)
    np.testing.assert_array_equal(x.sum(0).asnumpy(), np.zeros(3))


@pytest.mark.parametrize(
    "f",
    [
        lambda x: ops.broadcast_to(x[:1], (4, 6)) * x,
        lambda x: ops.transpose(x) * ops.reshape(x, (6, 4)),
        lambda x: x[::-1, 1::2] - x[:, :3],
        lambda x: ops.concat([x, x[:2]], 0).sum(1),
        lambda x: ops.reshape(ops.transpose(x), (3, 8)) @ ops.reshape(x, (8, 3)),
        lambda x: ops.expand_dims(x, 1) * ops.expand_dims(x, 0),
    ],
)
def test_views_equal_cpu(f: Callable[[Tensor], Tensor]) -> None:
    x = normal(4, 6, dtype=np.float64)
    close(f(x.to("gpu")), f(x))
    loss = lambda x: ops.tanh(f(x)).sum()  # noqa: E731
    close(grad(loss)(x.to("gpu")), grad(loss)(x))
    close(jit(grad(loss))(x.to("gpu")), grad(loss)(x))


# --- loops over time --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CASES)
def test_scans_equal_cpu(name: str) -> None:
    case = CASES[name]
    moved = Case(case.step, to_device(case.init), to_device(case.xs), to_device(case.consts))
    if name == "a wide product of weights":  # its body takes a Tensor of the CPU from outside
        with pytest.raises(DeviceError, match="scan: input 4 is on the CPU"):
            ops.scan(moved.step(*moved.consts), moved.init, moved.xs)
        return
    for reverse in (False, True):
        run = scanning(reverse=reverse)
        expected = python_loop(case.step(*case.consts), case.init, case.xs, reverse)
        close(run(moved.step(*moved.consts), moved.init, moved.xs), expected)
    found = gradients(ops.scan, moved)()
    assert {x.device for x in structure.flatten(found)[0]} <= {"gpu"}
    close(found, gradients(python_loop, case)())
    close(jit(gradients(scanning(checkpoint_every=2), moved))(), gradients(python_loop, case)())


class Spike(nn.Cell):
    """A custom surrogate."""

    def construct(self, x: Tensor) -> Tensor:
        return (x > 0.0).astype(x.dtype)

    def bprop(self, x: Tensor, out: Tensor, dout: Tensor) -> tuple[Tensor]:
        return (dout / ops.square(1.0 + 10.0 * ops.abs(x)),)


class Adaptive(nn.Cell):
    """A neuron with two states and a time constant per neuron."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.spike = Spike()
        self.tau = Parameter(np.linspace(2.0, 5.0, size).astype(np.float32))

    def construct(self, x: Tensor, v: Tensor, a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        v = v + (x - v) / self.tau - 0.3 * a
        s = self.spike(v - 0.6)
        return s, v * (1.0 - s), 0.9 * a + s


@pytest.mark.parametrize("every", [None, 3])
def test_custom_neuron_is_one_kernel_forward_and_backward(every: int | None) -> None:
    net = nn.MultiStep(Adaptive(4), checkpoint_every=every)
    x = normal(7, 3, 4) * 2.0
    both = value_and_grad(lambda x: (net(x) * ops.cos(x)).sum(), 0, [net.cell.tau])
    expected, spikes = both(x), net(x).asnumpy()
    assert 0 < spikes.sum() < spikes.size
    net.to("gpu")
    np.testing.assert_array_equal(net(x.to("gpu")).asnumpy(), spikes)
    close(both(x.to("gpu")), expected, rtol=1e-5, atol=1e-6)
    text = explain(both, x.to("gpu"), detail="launches")
    assert text.count("one kernel on the device, a thread for each of 12 elements") == 2


@pytest.mark.parametrize("dtype", ERRORS)
@pytest.mark.parametrize("every", [None, 4])
def test_storage_formats_are_computed_as_float32(dtype: str, every: int | None) -> None:
    check_stored(dtype, "gpu", every)


@pytest.mark.parametrize("jitted", [True, False])
def test_training_step_equals_cpu(jitted: bool) -> None:
    results = []
    for device in ("cpu", "gpu"):
        rng = np.random.default_rng(0)
        weights = [Tensor(rng.normal(size=shape).astype(np.float32)) for shape in ((4, 6), (4,), (3, 4), (3,))]
        net = nn.SequentialCell(nn.Dense(6, 4, *weights[:2]), nn.MultiStep(Adaptive(4)), nn.Dense(4, 3, *weights[2:]))
        x, y = normal(5, 3, 6, seed=1) * 2.0, Tensor(np.array([0, 1, 2]))
        net.to(device)
        x, y = x.to(device), y.to(device)
        loss_fn, optimiser = nn.CrossEntropyLoss(), nn.Adam(net.trainable_params(), 0.01)
        gradients = value_and_grad(
            lambda x, y, net=net, loss_fn=loss_fn: loss_fn(net(x).mean(0), y), None, net.trainable_params()
        )

        def step(x: Tensor, y: Tensor, gradients: Any = gradients, optimiser: Any = optimiser) -> Tensor:
            loss, grads = gradients(x, y)
            optimiser(grads)
            return loss  # type: ignore[no-any-return]

        step = jit(step) if jitted else step
        losses = [float(step(x, y)) for _ in range(3)]
        assert {p.device for p in net.trainable_params()} == {device}
        results.append((losses, [p.asnumpy() for p in net.trainable_params()]))
    (mine, weights), (theirs, expected) = results
    assert mine[0] > mine[-1]
    np.testing.assert_allclose(theirs, mine, rtol=1e-5)
    for one, other in zip(weights, expected, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-4, atol=1e-5)


# --- devices of values ------------------------------------------------------------------------------------------------


def test_moves_between_devices_carry_gradients() -> None:
    x = normal(3)
    close(grad(lambda x: ops.square(x.to("gpu")).to("cpu").sum())(x), x * 2.0)
    assert grad(lambda x: ops.square(x.to("gpu")).sum())(x).device == "cpu"


def test_mixed_devices_raise_with_operand_names() -> None:
    x, y = normal(3), normal(3).to("gpu")
    with pytest.raises(DeviceError, match=r'add: input 2 is on the CPU, but the others are on the GPU.*\.to\("gpu"\)'):
        y + x
    net = nn.Dense(3, 2)
    with pytest.raises(DeviceError, match=r"matmul: input 2 is on the CPU"):
        net(y[None])
    with pytest.raises(DeviceError, match=r"Parameter 'weight' is on the CPU"):
        jit(net)(y[None])
    with pytest.raises(DeviceError, match=r'device must be "cpu" or "gpu", not .tpu.'):
        x.to("tpu")


def test_device_target_decides_where_tensors_are_created() -> None:
    snncell.set_context(device_target="GPU")
    try:
        assert Tensor([1.0]).device == ops.zeros(3).device == Parameter(np.ones(2)).device == "gpu"
        net = nn.SequentialCell(nn.Dense(3, 2), nn.MultiStep(nn.LIFNode()))
        assert net(ops.ones((4, 1, 3))).device == "gpu"
    finally:
        snncell.set_context(device_target="CPU")
    assert Tensor([1.0]).device == "cpu"


def test_device_tensor_can_be_read_and_copied() -> None:
    x = normal(2, 3)
    y = x.to("gpu")
    assert repr(y) == repr(x) and str(y) == str(x) and y.tolist() == x.tolist() and float(y[0, 0]) == float(x[0, 0])
    p = Parameter(y)
    assert p.device == "gpu"
    p[0] = 1.0
    np.testing.assert_array_equal(p.asnumpy()[0], np.ones(3))
    np.testing.assert_array_equal(y.asnumpy(), x.asnumpy())
    p.set_data(x)
    assert p.device == "gpu"
    np.testing.assert_array_equal(p.asnumpy(), x.asnumpy())
    assert y.to("gpu") is y and y.to("cpu").device == "cpu"


# --- other libraries --------------------------------------------------------------------------------------------------


class Foreign:
    """An array of another library on the GPU; in the simulator, device memory is host memory."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self.array = array

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        pointer, strides = self.array.ctypes.data, self.array.strides
        kind = self.array.dtype.str
        return {"shape": self.array.shape, "strides": strides, "typestr": kind, "data": (pointer, False), "version": 3}


@pytest.mark.simulator
@pytest.mark.parametrize("part", [np.s_[:], np.s_[::-1, 1::2], np.s_[1], np.s_[:0]])
def test_arrays_of_other_libraries_are_used_without_copy(part: Any) -> None:
    theirs = np.arange(12, dtype=np.float32).reshape(3, 4)[part]
    x = Tensor(Foreign(theirs))
    assert x.device == "gpu"
    np.testing.assert_array_equal(x.asnumpy(), theirs)
    np.testing.assert_array_equal((x * 2.0).asnumpy(), theirs * 2)
    if theirs.size:
        assert x.__cuda_array_interface__["data"][0] == theirs.ctypes.data  # without a copy
    assert x.__cuda_array_interface__["shape"] == theirs.shape


def test_exported_array_shares_memory() -> None:
    x = normal(3, 4).to("gpu")
    assert x.__dlpack_device__() == (2, 0) and x[1].__cuda_array_interface__["strides"] is None
    again = Tensor(x)
    assert again.device == "gpu" and again.__cuda_array_interface__["data"] != x.__cuda_array_interface__["data"]

    class Other:  # what has nothing but DLPack
        def __dlpack__(self, stream: Any = None) -> Any:
            return x.__dlpack__(stream=stream)

        def __dlpack_device__(self) -> tuple[int, int]:
            return x.__dlpack_device__()

    back = Tensor(Other())
    assert back.__cuda_array_interface__["data"] == x.__cuda_array_interface__["data"]
    np.testing.assert_array_equal(back.asnumpy(), x.asnumpy())
    assert not hasattr(x.to("cpu"), "__cuda_array_interface__")


def test_operand_copies_live_until_kernel_reads_them() -> None:
    """A kernel copies operands in another memory order; the memory of one copy must not be reused for the next."""
    x, y, a, b = (normal(3, 2, 5, seed=n, dtype=np.float64) for n in range(4))

    def f(x: Tensor, y: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        turned = tuple(ops.transpose(z, (2, 1, 0)) for z in (x, y))
        states = ops.transpose(a[0]), ops.transpose(b[0])
        weights = ops.transpose(a[1])[:2, ::-1][:, :2]

        def step(carry: Any, now: Any) -> Any:
            v = carry[0] * 0.5 + now[0] - ops.transpose(states[1])[0, 0]
            return (v, carry[1] + now[1] * v), v

        return ops.scan(step, (turned[0][0] * 1.0, turned[1][0]), turned)[1], weights @ ops.transpose(b[1])[:2]

    for one, other in zip(f(*(z.to("gpu") for z in (x, y, a, b))), f(x, y, a, b), strict=True):
        close(one, other)
    p, q = ops.transpose(x, (2, 1, 0))[:, :, ::2], ops.transpose(y, (2, 1, 0))[:, :, ::2]
    gpu = [z.to("gpu") for z in (x, y)]
    u, v = (ops.transpose(z, (2, 1, 0))[:, :, ::2] for z in gpu)
    close(ops.matmul(u, ops.transpose(v, (0, 2, 1))), ops.matmul(p, ops.transpose(q, (0, 2, 1))))
    close(
        jit(lambda s, x, y: ops.scan(lambda c, n: (c + n[0], c * n[1]), s, (x, y)))(u[0], u, v),
        ops.scan(lambda c, n: (c + n[0], c * n[1]), p[0], (p, q)),
    )


def test_gradient_checks_follow_the_device() -> None:
    x = normal(5, dtype=np.float64).to("gpu")
    testing.check_grads(lambda x: ops.tanh(x) * x, x, order=2)
    testing.check_bprop(surrogate.Sigmoid(), x)
    with surrogate.smooth():
        testing.check_grads(nn.MultiStep(nn.LIFNode(surrogate_function=surrogate.Sigmoid())), normal(3, 2).to("gpu"))
