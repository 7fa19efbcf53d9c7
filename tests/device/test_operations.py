"""Operations on the device, eager and compiled, compared with the CPU: rows of `gradient_table.py` and edge cases."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from gradient_table import TABLE, Row
from tensor_table import TABLE as METHODS, Row as Method
from test_vmap import INDICES, LOOKUPS

import snncell as ms
from snncell import Tensor, nn, ops
from snncell.errors import ArgumentError, DeviceError, TensorIndexError
from snncell.kernels.cuda import functions as lines
from snncell.tape import structure

Arrays = list[np.ndarray[Any, Any]]


@pytest.fixture(autouse=True)
def _on_the_device() -> Iterator[None]:
    """Create new Tensors on the device, for example the indices and masks inside rows."""
    ms.set_context(device_target="GPU")
    yield
    ms.set_context(device_target="CPU")


def leaves(tree: Any) -> list[Tensor]:
    return structure.flatten(tree)[0]


def run_on(device: str, fn: Callable[..., Any], arrays: Arrays) -> list[Tensor]:
    """The result of a function whose arguments and new Tensors are on a device."""
    ms.set_context(device_target=device.upper())
    try:
        found = leaves(fn(*[Tensor(x) for x in arrays]))
        assert [x.device for x in found] == [device] * len(found)
        return found
    finally:
        ms.set_context(device_target="GPU")


def assert_equal_to_cpu(ours: list[Tensor], theirs: list[Tensor], what: str, rtol: float = 1e-11) -> None:
    for n, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        assert (a.shape, a.dtype) == (b.shape, b.dtype), f"{what}, result {n}"
        np.testing.assert_allclose(a.asnumpy(), b.asnumpy(), rtol=rtol, atol=rtol, err_msg=f"{what}, result {n}")


def values_and_gradients(r: Row) -> tuple[Callable[..., Any], Arrays]:
    """A function that returns the results of a row and its gradients, and its arguments."""
    arrays = r.arrays()
    if not r.order:
        return r.fn, arrays
    results = run_on("cpu", r.fn, arrays)
    seeds = [np.random.default_rng(n).standard_normal(x.shape).astype(x.dtype.dtype) for n, x in enumerate(results)]

    def both(*given: Tensor) -> Any:
        out, pull = ops.vjp(r.fn, *given[: len(arrays)])
        # A seed has the dtype of its result, because some results of narrow arguments keep their wide dtype.
        return out, pull(*(seed.astype(x.dtype) for seed, x in zip(given[len(arrays) :], leaves(out), strict=True)))

    return both, [*arrays, *seeds]


# --- the table --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("r", TABLE, ids=repr)
def test_values_and_gradients_equal_cpu(r: Row) -> None:
    fn, arrays = values_and_gradients(r)
    theirs = run_on("cpu", fn, arrays)
    assert_equal_to_cpu(run_on("gpu", fn, arrays), theirs, repr(r))
    if r.jit:
        assert_equal_to_cpu(run_on("gpu", ms.jit(fn), arrays), theirs, f"{r}, compiled")


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("r", TABLE[:: len(TABLE) // 60], ids=repr)
def test_narrow_floats_equal_cpu(r: Row, dtype: str) -> None:
    fn, arrays = values_and_gradients(r)
    arrays = [x.astype(dtype) for x in arrays]
    assert_equal_to_cpu(
        run_on("gpu", fn, arrays), run_on("cpu", fn, arrays), repr(r), 3e-2 if dtype == "float16" else 3e-6
    )


@pytest.mark.parametrize("r", [r for r in TABLE if r.order > 1][::25], ids=repr)
def test_second_gradients_equal_cpu(r: Row) -> None:
    def slopes(*xs: Tensor) -> Any:
        def first(*ys: Tensor) -> Any:
            found = leaves(ms.grad(r.fn, tuple(range(len(ys))))(*ys))
            return sum((x * x).sum() for x in found)

        return ms.grad(first, tuple(range(len(xs))))(*xs)

    assert_equal_to_cpu(run_on("gpu", slopes, r.arrays()), run_on("cpu", slopes, r.arrays()), repr(r), 1e-9)


@pytest.mark.parametrize("r", METHODS, ids=repr)
def test_tensor_methods_equal_cpu(r: Method) -> None:
    def call(x: Tensor) -> Any:
        return getattr(x, r.name)(*given(r.args), **{name: given(value) for name, value in r.options.items()})

    def given(values: Any) -> Any:
        if isinstance(values, tuple):
            return tuple(map(given, values))
        return Tensor(values) if isinstance(values, np.ndarray) else values

    rtol = 3e-7 if r.array.dtype == np.float32 else 1e-11
    assert_equal_to_cpu(run_on("gpu", call, [r.array]), run_on("cpu", call, [r.array]), repr(r), rtol)


# --- seeds of gradients -----------------------------------------------------------------------------------------------


def test_gradients_start_on_device_of_result() -> None:
    """The tape creates ones and zeros on the device of the operands."""
    ms.set_context(device_target="CPU")  # nothing but the argument says where to compute
    x = Tensor(np.linspace(-1.0, 1.0, 5))

    def loss(v: Tensor) -> Tensor:
        return (ops.exp(v) * 2.0).astype("float32").astype("float64") / 3.0 + ops.split(v * v, 2)[0].sum()

    found = ms.grad(loss)(x.to("gpu"))
    assert found.device == "gpu"
    np.testing.assert_allclose(found.asnumpy(), ms.grad(loss)(x).asnumpy(), rtol=1e-6)


# --- cases beyond the table -------------------------------------------------------------------------------------------

rng = np.random.default_rng(0)
LONG = rng.standard_normal((2, 300, 2))
TIES = np.round(LONG)
SPOTTED = LONG.copy()
SPOTTED[0, [140, 200], 0] = np.nan
COMPLEX = rng.standard_normal((3, 4)) + 1j * rng.standard_normal((3, 4))
PLACES = rng.integers(-7, 7, (5, 4))
UNORDERED = np.array([2, np.nan, -0.0, 5, np.inf, 0, -1, -np.inf, -0.0, np.nan, -1, 6e-8, -6e-8, np.inf, 60000, 2])
CASES: dict[str, tuple[Callable[..., Any], Arrays, float]] = {
    "long running sums": (lambda x: ops.cumsum(x, 1), [LONG], 1e-12),
    "long running sums of integers": (lambda x: ops.cumsum(x, 0), [np.arange(300)], 0),
    "running sums of complex numbers": (lambda x: ops.cumsum(x, 0), [COMPLEX], 1e-12),
    "running sums of nothing": (lambda x: ops.cumsum(x, 0), [np.ones((0, 2))], 0),
    "the largest of many": (lambda x: (ops.argmax(x, 1), ops.argmax(x), ops.argmin(x, 1)), [LONG], 0),
    "the first of equals": (lambda x: (ops.argmax(x, 1), ops.argmin(x), ops.argmin(x, 0)), [TIES], 0),
    "the first NaN": (lambda x: (ops.argmax(x, 1), ops.argmin(x), ops.argmin(x, 1)), [SPOTTED], 0),
    "the first true one": (lambda x: ops.argmax(x > 1.0, 1), [LONG], 0),
    "the order of equals": (lambda x: (ops.argsort(x, 1), ops.argsort(x, 0), ops.sort(x)), [TIES], 0),
    "the order of one": (lambda x: (ops.argsort(x), ops.sort(x)), [np.ones(1, np.float32)], 0),
    "the order of nothing": (lambda x: (ops.argsort(x), ops.sort(x, 0)), [np.ones((2, 0))], 0),
    "the order of truths": (lambda x: (ops.argsort(x > 0.0, 1), ops.sort(x > 0.0, 1)), [LONG], 0),
    **{
        f"the order of {kind}": (
            lambda x: (ops.argsort(x), ops.sort(x), ops.sort(x, 0)),
            [np.stack([UNORDERED, UNORDERED[::-1], UNORDERED]).astype(kind)],
            0,
        )
        for kind in ("float16", "float32", "float64")
    },
    **{
        f"the order of {kind}": (
            lambda x: (ops.argsort(x), ops.sort(x), ops.argsort(x, 0)),
            [rng.integers(np.iinfo(kind).min, np.iinfo(kind).max, (3, 37), kind, True)],
            0,
        )
        for kind in ("uint8", "int8", "int16", "int32", "int64")
    },
    "the order of int64 that differ little": (lambda x: ops.argsort(x), [2**40 + rng.integers(-3, 3, (3, 37))], 0),
    "the order of float64 that differ little": (lambda x: ops.argsort(x), [1.0 + 1e-15 * TIES[0].T], 0),
    "the gradient of an order": (lambda x: ms.grad(lambda v: (ops.sort(v, 1)[0] * v).sum())(x), [SPOTTED[1:]], 1e-12),
    "a NaN in a window": (lambda x: ops.max_pool1d(x, 3, 2), [SPOTTED.swapaxes(1, 2)], 0),
    "one hot in front": (lambda i: ops.one_hot(i, 5, 2.0, -1.0, axis=0), [np.array([[1, 0], [4, 3]])], 0),
    "one hot of one": (lambda i: ops.one_hot(i, 3), [np.array(2)], 0),
    "nothing looked up": (lambda x, i: ms.grad(lambda v: ops.gather(v, i).sum())(x), [LONG, np.zeros(0, int)], 0),
    "from the end": (lambda x, i: ops.gather(x, i, 1), [rng.standard_normal((2, 7, 3)), PLACES], 0),
    "booleans looked up": (lambda x, i: ops.gather(x > 0.0, i), [LONG[0, :7], PLACES], 0),
    "positions of one byte": (lambda x, i: ops.gather(x, i), [LONG[0], np.array([255, 0, 7], np.uint8)], 0),
    "five matrices": (lambda *x: ops.einsum("ab,bc,cd,de,ef->fa", *x), [rng.standard_normal((3, 3))] * 5, 1e-12),
    "a flipped convolution": (lambda x: ops.conv1d(ops.flip(x, 2), x[:, :, :3]), [LONG[:, :9].swapaxes(1, 2)], 1e-12),
    "broadcast batches": (ops.matmul, [rng.standard_normal((3, 1, 2, 4)), rng.standard_normal((2, 4, 2))], 1e-12),
    "complex arithmetic": (lambda x: (x * x + 2j, 1 / x, -x / (x + 1), ops.abs(x)), [COMPLEX], 1e-12),
    "complex padding": (lambda x: ops.pad(x, (1, 2), value=1.5), [COMPLEX], 0),
    "padding of bytes": (lambda x: ops.pad(x > 0.0, (1, 2), value=True), [LONG[0, :3]], 0),
    "complex sums": (lambda x: (x.sum(0), x.mean(), x @ x.T), [COMPLEX], 1e-12),
    "complex selection": (lambda x: ops.where(ops.real(x) > 0.0, x, 0), [COMPLEX], 0),
    "complex to others": (lambda x: (x.astype("bool"), x.astype("complex64")), [COMPLEX], 1e-6),
    "gradients of complex numbers": (lambda x: ms.grad(lambda v: ops.abs(v * v).sum())(x), [COMPLEX], 1e-12),
    "complex gradients added up": (
        lambda x, i: ms.grad(lambda v: ops.abs(ops.gather(v, i, 1)).sum())(x),
        [np.tile(COMPLEX, (1, 2)), PLACES],
        1e-12,
    ),
    "half spectra that are not": (lambda x: ops.irfft(x), [COMPLEX], 1e-12),
    "single spectra": (lambda x: ops.abs(ops.fft(x)), [LONG[0].T[:, :8].astype(np.float32)], 1e-5),
    "the last value for a place": (
        lambda x, i, v: (ops.scatter(x, 0, i, v), ops.index_put(x, (i[:, 0],), v)),
        [rng.standard_normal((7, 4)), PLACES, rng.standard_normal((5, 4))],
        0,
    ),
    "truths written": (
        lambda x, i: ops.index_put(x > 0, (i[0], i[1]), x[0] < 0),
        [rng.standard_normal((4, 4)), PLACES % 3],
        0,
    ),
    "no value for a place": (lambda x, i: ops.scatter(x, 0, i, x[:0]), [LONG[0, :7], np.zeros((0, 2), int)], 0),
    "gradients of what was written": (
        lambda x, i, v: ms.grad(lambda a, b: (ops.scatter(a, 1, i, b) * x[:5]).sum(), (0, 1))(x[:5], v),
        [rng.standard_normal((7, 7)), PLACES, rng.standard_normal((5, 4))],
        1e-12,
    ),
    "complex numbers written": (lambda x, i: ops.index_put(x, (i,), x[:2] * 2), [COMPLEX, np.array([2, 2])], 0),
    **{
        f"places in an order of {kind}, {side}": (
            lambda x, v, side=side: (x.searchsorted(v, side), x[:, 0].searchsorted(v, side)),
            [np.sort([UNORDERED, UNORDERED / 2]).astype(kind), np.stack([UNORDERED, UNORDERED[::-1]]).astype(kind)],
            0,
        )
        for kind in ("float16", "float32", "float64", "bool")
        for side in ("left", "right")
    },
    "places in an order of integers": (
        lambda x, v: (x.searchsorted(v), x.searchsorted(v, "right"), x[:0].searchsorted(v), x.searchsorted(v[:0])),
        [np.array([-5, 2, 2, 9]), rng.integers(-9, 12, (3, 5))],
        0,
    ),
    **{
        f"ends of error functions in {kind}": (
            lambda x: (ops.erfc(x), ops.erfinv(x)),
            [np.array([0, -0.0, -1, 1.5, np.inf, -np.inf, np.nan, 5, -5, 26, 1e-7, *1 - 10.0 ** -np.arange(17)], kind)],
            limit,
        )
        for kind, limit in (("float16", 1e-3), ("float32", 1e-6), ("float64", 1e-14))
    },
    "halves": (
        lambda x: (x * 2.3 - 1, x > 0.1, ops.where(x > 0, x, 0.5), x.sum(0), (x > 0).astype("float16"), x @ x.T),
        [rng.standard_normal((4, 5)).astype(np.float16)],
        1e-3,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_edge_cases_equal_cpu(name: str) -> None:
    fn, arrays, rtol = CASES[name]
    theirs = run_on("cpu", fn, arrays)
    assert_equal_to_cpu(run_on("gpu", fn, arrays), theirs, name, rtol)
    assert_equal_to_cpu(run_on("gpu", ms.jit(fn), arrays), theirs, f"{name}, compiled", rtol)


def test_scans_along_lines_of_any_length_equal_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "PART", 3)
    for length in (1, 2, 3, 4, 9, 10, 28):
        x = np.round(rng.standard_normal((2, length)), 1)
        fn = lambda v: (ops.cumsum(v, 1), ops.argmax(v, 1), ops.argmin(v, 1))  # noqa: E731
        assert_equal_to_cpu(run_on("gpu", fn, [x]), run_on("cpu", fn, [x]), f"length {length}", 1e-12)


def test_indexed_sums_equal_cpu_bit_for_bit() -> None:
    """Terms are added in their original order, however they are sorted."""
    table, where = rng.standard_normal((6, 3)).astype(np.float32), rng.integers(0, 6, 37)

    def slope(x: Tensor, i: Tensor) -> Tensor:
        weights = ops.sqrt(ops.arange(37 * 3, dtype="float32").reshape(37, 3))
        return ms.grad(lambda v: (ops.gather(v, i) * weights).sum())(x)

    assert_equal_to_cpu(run_on("gpu", slope, [table, where]), run_on("cpu", slope, [table, where]), "bits", 0)


def test_complex_division_by_zero_is_not_finite() -> None:
    found = ops.div(Tensor(COMPLEX), Tensor(np.zeros((3, 4), np.complex128))).asnumpy()
    assert not np.isfinite(found).any()


# --- random numbers ---------------------------------------------------------------------------------------------------

DRAWS: dict[str, tuple[Callable[[], Any], bool]] = {
    "uniform": (lambda: ops.uniform((3, 7)), True),
    "uniform between": (lambda: ops.uniform((3, 7), -1.0, 2.0, ms.float64), True),
    "nothing": (lambda: ops.uniform((0, 3)), True),
    "normal": (lambda: ops.normal((3, 5)), False),
    "normal in double": (lambda: ops.normal((9,), 1.0, 3.0, ms.float64), False),
    "randint": (lambda: ops.randint(-5, 1000, (11,)), True),
    "randint of everything": (lambda: ops.randint(-(2**63), 2**63, (11,)), True),
    "randint of 2^61": (lambda: ops.randint(-3, 2**61, (5,)), True),
    "randperm": (lambda: ops.randperm(37), True),
    "randperm of one": (lambda: (ops.randperm(1), ops.randperm(0)), True),
    "bernoulli": (lambda: ops.bernoulli(ops.full((5, 5), 0.5)), True),
    "dropout": (lambda: ops.dropout(ops.full((5, 7), 3.0), 0.3), True),
    "dropout of halves": (lambda: ops.dropout(ops.full((5, 7), 3.0, ms.float16), 0.3), True),
    "dropout of rows": (lambda: ops.dropout(ops.full((5, 7), 3.0), 0.3, (1,)), True),
    "dropout of channels": (lambda: ops.dropout2d(ops.full((5, 7, 2), 3.0), 0.3), True),
    "the reverse of dropout": (lambda: ms.grad(lambda x: ops.dropout(x, 0.3))(ops.ones((5, 7))), True),
    "dropout in a loop": (
        lambda: ms.grad(lambda x: ops.scan(lambda c, v: (c + ops.dropout(v, 0.4), c), x[0], x)[1])(ops.ones((4, 5))),
        True,
    ),
}  # fmt: skip


@pytest.mark.parametrize("wrap", [lambda f: f, ms.jit], ids=["eager", "jit"])
@pytest.mark.parametrize("name", DRAWS)
def test_random_numbers_equal_cpu(name: str, wrap: Callable[..., Any]) -> None:
    draw, exact = DRAWS[name]
    found = {}
    for device in ("cpu", "gpu"):
        ops.set_seed(11)
        found[device] = [x for _ in range(2) for x in run_on(device, wrap(draw), [])]
    assert_equal_to_cpu(found["gpu"], found["cpu"], name, 0 if exact else 1e-6)


@pytest.mark.parametrize("wrap", [lambda f: f, ms.jit], ids=["eager", "jit"])
def test_random_draws_on_alternating_devices_share_one_sequence(wrap: Callable[..., Any]) -> None:
    draw = wrap(lambda: ops.uniform((3,)))
    ops.set_seed(3)
    theirs = [run_on("cpu", draw, [])[0].asnumpy() for _ in range(4)]
    ops.set_seed(3)
    ours = [run_on(device, draw, [])[0].asnumpy() for device in ("cpu", "gpu", "gpu", "cpu")]
    np.testing.assert_array_equal(ours, theirs)


def test_random_draws_are_on_device_of_operands() -> None:
    ms.set_context(device_target="CPU")
    x = ops.ones((2, 3)).to("gpu")
    drawn = [
        ops.uniform((2, 3), 0.0, x),
        ops.normal((2, 3), x),
        ops.bernoulli(x),
        ops.dropout(x),
        ops.dropout2d(x[None])[0],
    ]
    assert [y.device for y in drawn] == ["gpu"] * 5
    assert ops.uniform((2,)).device == "cpu"


def test_initial_weights_equal_cpu() -> None:
    found = []
    for device in ("CPU", "GPU"):
        ms.set_context(device_target=device)
        ops.set_seed(2)
        found.append(nn.Dense(3, 4).weight)
    assert [w.device for w in found] == ["cpu", "gpu"]
    np.testing.assert_array_equal(found[0].asnumpy(), found[1].asnumpy())


# --- errors -----------------------------------------------------------------------------------------------------------


def test_eager_index_out_of_range_raises() -> None:
    x = ops.ones((3, 2))
    with pytest.raises(TensorIndexError, match=r"gather: index 5 is out of range; it must lie in \[-3, 3\)"):
        ops.gather(x, Tensor([1, 5]))
    with pytest.raises(TensorIndexError, match=r"gather: index -4 is out of range"):
        x[[0, -4]]
    with pytest.raises(TensorIndexError, match=r"Embedding: index -1 is out of range; it must lie in \[0, 3\)"):
        nn.Embedding(3, 2)(Tensor([-1]))
    with pytest.raises(ArgumentError, match=r"one_hot: index 3 is out of range for depth 3"):
        ops.one_hot(Tensor(3), 3)


def test_compiled_index_out_of_range_reads_nan_without_waiting() -> None:
    """Reads out of range give NaN, and writes out of range are dropped."""
    x, where = Tensor([[1.0, 2.0], [3.0, 4.0]]), Tensor([1, 5, -3])
    np.testing.assert_array_equal(ms.jit(ops.gather)(x, where).asnumpy(), [[3, 4], [np.nan] * 2, [np.nan] * 2])
    np.testing.assert_array_equal(ms.jit(ops.gather)(x.astype("int32"), where).asnumpy(), [[3, 4], [-1, -1], [-1, -1]])
    slope = ms.jit(ms.grad(lambda v, i: ops.gather(v, i).sum()))(x, where)
    np.testing.assert_array_equal(slope.asnumpy(), [[0, 0], [1, 1]])


def test_operands_on_different_devices_raise() -> None:
    x, far = ops.ones((3, 2)), Tensor([0, 1]).to("cpu")
    for fn, name in ((ops.gather, "gather"), (ops.mul, "mul"), (ops.matmul, "matmul")):
        where = far if name == "gather" else far.astype("float32")
        with pytest.raises(DeviceError, match=rf"{name}: input 2 is on the CPU, but the others are on the GPU"):
            fn(x, where)


def test_operation_without_device_function_raises() -> None:
    with pytest.raises(DeviceError, match=r"einsum: matmul of int64 is not implemented for arrays on the GPU"):
        ops.einsum("ij,jk->ik", Tensor([[1, 2]]), Tensor([[1], [2]]))
    with pytest.raises(DeviceError, match=r"power: the GPU does not support int64"):
        ops.pow(Tensor([1, 2]), 4)


# --- vmap -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("r", [r for r in TABLE if r.jit][::12], ids=repr)
def test_vmap_equals_cpu(r: Row) -> None:
    def both(*xs: Tensor) -> Any:
        inside = ms.grad(lambda *xs: sum((x * x).sum() for x in leaves(r.fn(*xs))), tuple(range(len(xs))))
        return [ms.vmap(r.fn)(*xs), *([ms.vmap(inside)(*xs)] if r.order else [])]

    arrays = [np.stack(each) for each in zip(*(r.arrays(number) for number in range(2)), strict=True)]
    assert_equal_to_cpu(run_on("gpu", both, arrays), run_on("cpu", both, arrays), repr(r), 1e-9)


@pytest.mark.parametrize("varying", [(0, 0), (0, None), (None, 0)], ids=["both", "values", "positions"])
@pytest.mark.parametrize("name", LOOKUPS)
def test_vmap_with_different_indices_per_slice_equals_cpu(name: str, varying: tuple[Any, Any]) -> None:
    fn, shape = LOOKUPS[name]
    x = np.random.default_rng(0).standard_normal((3, *shape) if varying[0] == 0 else shape)

    def both(x: Tensor, i: Tensor) -> Any:
        return ms.value_and_grad(lambda x: (ms.vmap(fn, varying)(x, i) ** 2).sum())(x)

    arrays = [x, INDICES if varying[1] == 0 else INDICES[0]]
    assert_equal_to_cpu(run_on("gpu", both, arrays), run_on("cpu", both, arrays), name)


@pytest.mark.parametrize("size", [3, 12])
def test_jacobians_equal_cpu(size: int) -> None:
    w = np.random.default_rng(size).standard_normal((size, size))
    for jacobian in (ms.jacrev, ms.jacfwd):
        for fn in (jacobian(lambda x, w: ops.softmax(x @ w)), ms.jacfwd(jacobian(lambda x, w: ops.tanh(x @ w).sum()))):
            theirs = run_on("cpu", fn, [w[0], w])
            assert_equal_to_cpu(run_on("gpu", fn, [w[0], w]), theirs, "eager")
            assert_equal_to_cpu(run_on("gpu", ms.jit(fn), [w[0], w]), theirs, "compiled")
