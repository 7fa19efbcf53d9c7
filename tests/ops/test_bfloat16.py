"""float16 and bfloat16: results and gradients equal the rounded float32 ones, eager and compiled."""

from __future__ import annotations

import copy
import pickle
import zlib
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from gradient_table import TABLE, Row
from random_cases import random_cases

import snncell as ms
from snncell import Parameter, Tensor, amp, nn, ops, surrogate
from snncell.errors import DTypeError
from snncell.kernels.cuda import exchange
from snncell.tape import structure

B = np.dtype(ml_dtypes.bfloat16)
UNIT = 2.0**-8  # half a unit in the last place, relative
SPECIAL = [np.nan, np.inf, -np.inf, -0.0, 0.0, 1.0, -1.5, 3.3e38, 1e-40]
# Numbers between two bfloat16 numbers: in the middle (rounds to even) and next to the middle.
MIDDLES = [1.00390625, 1.01171875, 1.0039063, 1.0039062, -1.00390625, 3.3961e38, 9.2e-41]


def bits(x: Any) -> list[int]:
    array = x.asnumpy() if isinstance(x, Tensor) else x
    assert array.dtype == B
    found: list[int] = array.view(np.uint16).reshape(-1).tolist()
    return found


def round_to_bfloat16(x: Any) -> list[int]:
    """The bits of float32 numbers rounded to the nearest bfloat16, ties to even, by integer arithmetic."""
    words = np.asarray(x, np.float32).reshape(-1).view(np.uint32).astype(np.uint64)
    found = (words + 0x7FFF + (words >> 16 & 1)) >> 16
    found = np.where(np.isnan(np.asarray(x, np.float32).reshape(-1)), 0x7FC0, found)
    return [int(word) for word in found]


# --- the table --------------------------------------------------------------------------------------------------------


def with_gradients(r: Row) -> Callable[..., Any]:
    """The results of a row, and the gradients of its arguments."""
    if not r.order:
        return r.fn

    def both(*given: Tensor) -> Any:
        out, pull = ops.vjp(r.fn, *given)
        seeds = []
        for n, x in enumerate(structure.flatten(out)[0]):
            rng = np.random.default_rng([n, zlib.crc32(repr(r).encode())])
            seeds.append(Tensor(rng.integers(-8, 9, x.shape) / 4.0, x.dtype))
        return out, pull(*seeds)

    return both


# Excluded: parts of complex numbers, which have no 16-bit form, and random draws, which are always float32.
GIVES_FLOAT32 = {"fft", "ifft", "rfft", "irfft", "real", "imag", "conj", "uniform", "normal", "sgn-complex"}


def check_row(r: Row, device: str) -> None:
    """Compare results and gradients of a row in bfloat16 with those in float32 from the same numbers."""
    fn = with_gradients(r)
    narrow = [Tensor(x, "bfloat16").to(device) for x in r.arrays()]
    theirs = structure.flatten(fn(*(x.astype("float32") for x in narrow)))[0]
    count = len(structure.flatten(r.fn(*narrow))[0])
    for f in (fn, ms.jit(fn)) if r.jit else (fn,):
        for n, (a, b) in enumerate(zip(structure.flatten(f(*narrow))[0], theirs, strict=True)):
            what = f"{r}, result {n}, {'eager' if f is fn else 'compiled'}"
            assert a.shape == b.shape and a.device == b.device, what
            kept = bool({r.name, repr(r)} & GIVES_FLOAT32) and n < count
            assert a.dtype == ("bfloat16" if b.dtype == "float32" and not kept else b.dtype), what
            kind = np.complex128 if b.dtype.category == 3 else np.float64
            ours, truth = a.asnumpy().astype(kind), b.asnumpy().astype(kind)
            scale = np.abs(truth[np.isfinite(truth)]).max(initial=0.0)
            # These rows consist of several operations, and each of them rounds.
            np.testing.assert_allclose(ours, truth, 4 * UNIT, 4 * UNIT * scale, err_msg=what)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("r", TABLE, ids=repr)
def test_every_operation_equals_rounded_float32(r: Row) -> None:
    check_row(r, "cpu")


def test_one_operation_rounds_once() -> None:
    rng = np.random.default_rng(0)
    x, y = (Tensor(rng.standard_normal((40, 30)), "bfloat16") for _ in range(2))
    wide = x.astype("float32"), y.astype("float32")
    for f in (
        lambda x, y: x + y,
        lambda x, y: x * 0.1,
        lambda x, y: 1.0 / x,
        lambda x, y: ops.maximum(x, 0.3),
        lambda x, y: ops.where(x > y, x, 0.1),
        lambda x, y: ops.clip(x, -0.3, 0.7),
        lambda x, y: ops.sigmoid(x),
        lambda x, y: ops.sum(x, 0),
        lambda x, y: ops.cumsum(x, 1),
        lambda x, y: x @ y.T,
        lambda x, y: ops.einsum("ij,kj->ik", x, y),
    ):
        assert bits(f(x, y)) == round_to_bfloat16(f(*wide).asnumpy())


def check_many_terms(device: str) -> None:
    """A running sum in bfloat16 would stop at 256, because bfloat16 has 8 significant bits."""
    ones = ops.ones((3, 1000), "bfloat16").to(device)
    for f in (
        lambda x: x.sum(1),
        lambda x: x.mean(1) * 1000,
        lambda x: ops.cumsum(x, 1)[:, -1],
        lambda x: x @ ops.ones_like(x[0]),
        lambda x: ops.einsum("ij->i", x),
        lambda x: ops.grad(lambda v: (v + x).sum())(x[:, :1])[:, 0],
        lambda x: ops.grad(lambda t: ops.gather(t, Tensor([0] * 1000), 1).sum())(x[:, :1])[:, 0],
        lambda x: ops.scan(lambda c, v: (c, c * v), x[:, 0], x.T)[1].sum(0),
        lambda x: ops.grad(lambda c: ops.scan(lambda v, a: (v * 0.0 + c, c * a), c, x.T)[1].sum())(x[:, 0]),
    ):
        for found in (f(ones), ms.jit(f)(ones)):
            assert found.dtype == "bfloat16" and found.tolist() == [1000.0] * 3


def test_sums_of_many_terms_accumulate_in_float32() -> None:
    check_many_terms("cpu")


def check_gradients_added_over_time(device: str) -> None:
    """The gradient of a weight is the sum over 600 steps of terms equal to 1, in both kinds of loops."""
    x = ops.ones((600, 1, 2), "bfloat16").to(device)

    def elementwise(v: Tensor, x: Tensor, w: Tensor) -> Any:
        return 0.0 * v, v * 0.0 + x * w

    def product(v: Tensor, x: Tensor, w: Tensor) -> Any:
        return ops.tanh(v @ (w * 0.0)), v * 0.0 + x * w[0]

    for body, shape in ((elementwise, (2,)), (product, (2, 2))):
        w, v = (ops.ones(s, "bfloat16").to(device) for s in (shape, (1, 2)))

        def loss(w: Tensor, body: Any = body, v: Tensor = v) -> Tensor:
            return ops.scan(lambda c, a: body(c, a, w), v, x)[1].sum()

        runs = [ms.jit] if body is product else [ms.jit, lambda f: f]
        for found in (run(ops.grad(loss))(w) for run in runs):
            assert np.asarray(found.tolist()).reshape(-1)[:2].tolist() == [600.0, 600.0]


def test_gradients_over_time_accumulate_in_float32() -> None:
    check_gradients_added_over_time("cpu")


# --- rounding and special numbers -------------------------------------------------------------------------------------


def check_rounding(device: str) -> None:
    numbers = np.array([*SPECIAL, *MIDDLES, *np.random.default_rng(0).standard_normal(100)], np.float32)
    x = Tensor(numbers).to(device)
    for f in (lambda x: x.astype("bfloat16"), lambda x: (x * 1.0).astype("bfloat16") * 1.0):
        for found in (f(x), ms.jit(f)(x)):
            # The bits of a NaN may differ.
            assert [0x7FC0 if word & 0x7FFF > 0x7F80 else word for word in bits(found)] == round_to_bfloat16(numbers)


def test_rounding_is_to_nearest_even_and_keeps_nan() -> None:
    check_rounding("cpu")


def check_special(device: str) -> None:
    x = Tensor(np.array(SPECIAL, np.float32), "bfloat16").to(device)
    for f in (
        lambda x: (ops.isnan(x), ops.isfinite(x), x > 0, x == x, ops.relu(x), -x, ops.abs(x), x / 0.0, ops.sqrt(x)),
        lambda x: (x.max(), x[1:].max(), x[1:].min(), ops.maximum(x, 1.0), ops.argmax(x), ops.argmax(x[1:]), x.sum()),
        lambda x: (ops.where(x > 0, x, 0.5), ops.clip(x, -2.0, 2.0), ops.sign(x), ops.flip(x, 0), x.astype("float64")),
    ):
        wide = structure.flatten(f(x.astype("float32")))[0]
        for g in (f, ms.jit(f)):
            for a, b in zip(structure.flatten(g(x))[0], wide, strict=True):
                truth = b.astype("bfloat16") if b.dtype == "float32" else b
                np.testing.assert_array_equal(
                    np.asarray(a.tolist(), float), np.asarray(truth.tolist(), float), strict=True
                )
                assert np.signbit(np.asarray(a.tolist(), float)).tolist() == np.signbit(truth.tolist()).tolist() or any(
                    np.isnan(np.ravel(truth.tolist()))
                )


def test_special_values_are_kept() -> None:
    check_special("cpu")


# --- Tensors ----------------------------------------------------------------------------------------------------------


def test_tensor_attributes_and_conversions() -> None:
    x = Tensor([0.1, -2.0], ms.bfloat16)
    assert x.dtype is ms.bfloat16 and x.dtype == "bfloat16" and x.dtype == B and x.dtype.itemsize == 2
    assert repr(x) == "Tensor(shape=[2], dtype=BFloat16, value= [ 1.00097656e-01, -2.00000000e+00])"
    assert (
        repr(x[0]) == "Tensor(shape=[], dtype=BFloat16, value= 0.100098)"
        and str(x[1]) == "-2"
        and f"{x[0]:.3f}" == "0.100"
    )
    assert x.tolist() == [0.10009765625, -2.0] and x[1].item() == -2.0 and type(x[0].item()) is float
    assert float(x[1]) == -2.0 and int(x[1]) == -2 and bool(x[1])
    for twin in (pickle.loads(pickle.dumps(x)), copy.deepcopy(x), Tensor(x), Tensor(x.asnumpy()), Tensor(np.array(x))):
        assert bits(twin) == bits(x) and twin.dtype is ms.bfloat16
    assert pickle.loads(pickle.dumps(ms.bfloat16)) is ms.bfloat16


def test_numpy_scalars_and_lists_have_weak_dtypes() -> None:
    one = B.type(1.5)
    assert Tensor([one, one]).dtype == "float32" and Tensor(one).dtype == "bfloat16"
    assert (ops.ones((2,)) * one).dtype == "float32" and (
        ops.ones((2,), "bfloat16") * np.float64(0.5)
    ).dtype == "bfloat16"


PROMOTED = {
    **dict.fromkeys(["bool", "uint8", "int8", "int16", "int32", "int64", "bfloat16"], "bfloat16"),
    "float16": "float32",
    "float32": "float32",
    "float64": "float64",
    "complex64": "complex64",
    "complex128": "complex128",
}


@pytest.mark.parametrize("other", PROMOTED)
def test_mixed_dtypes_promote(other: str) -> None:
    x, y = ops.ones((2,), "bfloat16"), ops.ones((2,), other)
    assert (x + y).dtype == (y + x).dtype == PROMOTED[other]
    assert y.astype("bfloat16").tolist() == x.tolist() and x.astype(other).tolist() == y.tolist()


def test_compiled_functions_distinguish_numpy_scalar_dtypes() -> None:
    double = ms.jit(lambda x, n: x * float(n))
    assert [double(ops.ones(1), B.type(n)).item() for n in (2.0, -0.0, 3.0)] == [2.0, 0.0, 3.0]
    assert structure.Static(B.type(0.0)) != structure.Static(B.type(-0.0))
    assert structure.Static(B.type(np.nan)) == structure.Static(B.type(np.nan))


def test_raw_byte_arrays_raise() -> None:
    with pytest.raises(DTypeError, match=r"holds no numbers \(NumPy dtype \|V2\)"):
        Tensor(np.zeros(3, "V2"))


def test_random_draws_equal_rounded_float32() -> None:
    with pytest.raises(
        ms.errors.ArgumentError,
        match=r"draws float32 or float64, not BFloat16\. Convert the result: \.astype\('bfloat16'\)",
    ):
        ops.uniform((2,), dtype="bfloat16")


# --- Parameters, optimisers, checkpoints -----------------------------------------------------------------------


class Net(nn.Cell):
    """Two layers whose Parameters are bfloat16, or the same numbers in float32."""

    def __init__(self, dtype: str) -> None:
        super().__init__()
        rng = np.random.default_rng(1)
        draw = lambda *shape: Parameter(Tensor(rng.standard_normal(shape) / 2, "bfloat16").astype(dtype))  # noqa: E731
        self.w, self.b, self.v = draw(4, 8), draw(8), draw(8, 2)

    def construct(self, x: Tensor) -> Tensor:
        return ops.square(ops.relu(x @ self.w + self.b) @ self.v - 0.5).mean()


OPTIMISERS: dict[str, Callable[[Any], Any]] = {
    "SGD": lambda p: nn.SGD(p, 0.125),
    "SGD momentum": lambda p: nn.SGD(p, 0.0625, momentum=0.5),
    "Adam": lambda p: nn.Adam(p, 0.02),
    "AdamW": lambda p: nn.AdamW(p, 0.02),
    "RMSProp": lambda p: nn.RMSProp(p, 0.01),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", OPTIMISERS)
@pytest.mark.parametrize("compiled", [False, True])
def test_training_with_bfloat16_parameters(name: str, compiled: bool) -> None:
    losses = {}
    for dtype in ("bfloat16", "float32"):
        net, x = Net(dtype), Tensor(np.random.default_rng(0).integers(-4, 5, (16, 4)) / 4.0, dtype)
        optimiser = OPTIMISERS[name](net.trainable_params())

        def step(x: Tensor, net: Net = net, optimiser: Any = optimiser) -> Tensor:
            loss, grads = ops.value_and_grad(net, None, net.trainable_params())(x)
            assert {g.dtype.name for g in grads} == {x.dtype.name}
            optimiser(grads)
            return loss

        run = ms.jit(step) if compiled else step
        losses[dtype] = [run(x).item() for _ in range(30)]
        assert {p.dtype.name for p in net.trainable_params()} == {dtype}
    assert losses["bfloat16"][-1] < 0.8 * losses["bfloat16"][0]
    np.testing.assert_allclose(losses["bfloat16"], losses["float32"], rtol=0.1)


def test_spiking_network_equals_float32_with_rounding() -> None:
    """A leaky neuron between two layers, with its state in bfloat16, forward and backward."""
    found = {}
    for dtype in ("bfloat16", "float32"):
        cells = nn.MultiStep(nn.LIFNode(surrogate_function=surrogate.ATan()))
        w = Parameter(Tensor(np.random.default_rng(0).integers(-8, 17, (4, 8)) / 8.0, dtype))
        x = Tensor(np.random.default_rng(1).integers(0, 2, (20, 3, 4)), dtype)

        def loss(cells: Any = cells, w: Parameter = w, x: Tensor = x) -> Tensor:
            return cells(x @ w).mean()

        value, slope = ops.value_and_grad(loss, None, w)()
        assert value.dtype == slope.dtype == dtype
        found[dtype] = np.append(slope.tolist(), value.item())
    assert found["float32"].any()
    np.testing.assert_allclose(found["bfloat16"], found["float32"], atol=0.05 * np.abs(found["float32"]).max())


def test_checkpoints_keep_bfloat16(tmp_path: Any) -> None:
    net = nn.Cell()
    net.p = Parameter(Tensor(np.array([SPECIAL] * 2, np.float32), "bfloat16"))
    ms.save_checkpoint(net, tmp_path / "p")
    found = ms.load_checkpoint(tmp_path / "p")["p"]
    assert found.dtype == "bfloat16" and found.shape == net.p.shape and bits(found) == bits(net.p)
    ms.load_checkpoint(tmp_path / "p", net)


# --- other libraries --------------------------------------------------------------------------------------------------


class Other:
    """An array of another library, known only by the DLPack protocol."""

    dtype = "other.bfloat16"

    def __init__(self, array: Any) -> None:
        self.array = array

    def __dlpack__(self, **options: Any) -> Any:
        return exchange.capsule_of_host(self.array)

    def __dlpack_device__(self) -> tuple[int, int]:
        return exchange.CPU, 0


def test_dlpack_exchange() -> None:
    array = np.arange(12).reshape(3, 4).astype(B)
    for given in (array, array.T, array[::2, ::-1], array[0, 0:0], array[1, 1]):
        taken = Tensor(Other(np.asarray(given)))
        assert taken.dtype == "bfloat16" and taken.tolist() == given.tolist()
    x = Tensor(array)
    capsule = exchange.from_dlpack(x)
    assert capsule.dtype == B and capsule.shape == (3, 4) and capsule.device == x.__dlpack_device__() == (1, 0)


def test_torch_exchange() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    x = Tensor([[0.1, -2.0, np.inf]], "bfloat16")
    theirs = torch.from_dlpack(x)
    assert theirs.dtype is torch.bfloat16 and theirs.tolist() == x.tolist()
    theirs[0, 0] = 7.0
    assert x.tolist()[0][0] != 7.0  # the Tensor is a copy
    ours = Tensor(theirs.T)
    assert ours.dtype == "bfloat16" and ours.tolist() == theirs.T.tolist()
    theirs[0, 0] = 8.0
    assert ours[0, 0].item() == 7.0


# --- rounding to float16 and bfloat16 ---------------------------------------------------------------------------------

HALVES = {"float16": ms.float16, "bfloat16": ms.bfloat16}


def eighths(rng: np.random.Generator, *shape: int) -> Tensor:
    """Multiples of 1/8. float32 sums their products exactly, so that the order of the terms does not matter."""
    return Tensor(rng.integers(-16, 17, shape).astype(np.float32) / 8)


@pytest.mark.sampled(1)
@random_cases(6)
def test_random_networks_round_the_same_in_every_mode(seed: int) -> None:
    """Eager, jitted, vmap over a batch, scan, and a loop with states give the same bits and gradients."""
    rng = np.random.default_rng(seed)
    half = str(rng.choice(list(HALVES)))
    net = nn.SequentialCell()
    for _ in range(rng.integers(1, 4)):
        activation = [None, "relu", "leakyrelu"][rng.integers(3)]
        layer = nn.Dense(4, 4, has_bias=bool(rng.integers(4)), activation=activation)
        for p in layer.get_parameters():
            p.set_data(eighths(rng, *p.shape) / 3.0 if p.ndim == 1 else eighths(rng, *p.shape))
        net.append(layer)
        if rng.integers(2):
            net.append(nn.ReLU())
    if seed % 3:
        amp.auto_mixed_precision(net, "O1", half)
    else:
        net.to_float(HALVES[half])
    x = eighths(rng, 5, 4)
    rows = ops.stack([net(row) for row in x])

    def stepped(x: Tensor) -> Tensor:
        kind = net(x[0]).dtype
        return ops.scan(lambda c, row: (net(row).astype(kind), c), ops.zeros(4, kind), ops.concat([x, x[:1]]))[1][1:]

    for found in (ms.jit(net)(x), ops.vmap(net)(x), ms.jit(ops.vmap(net))(x), stepped(x), ms.jit(stepped)(x)):
        np.testing.assert_array_equal(found.asnumpy(), rows.asnumpy())

    def slopes(net: Any) -> Any:
        return ops.grad(lambda x: (net(x) * 0.25).sum(), 0, net.trainable_params())(x)

    eager, jitted = slopes(net), ms.jit(lambda x: slopes(net))(x)
    for a, b in zip((eager[0], *eager[1]), (jitted[0], *jitted[1]), strict=True):
        np.testing.assert_array_equal(a.asnumpy(), b.asnumpy())


@pytest.mark.sampled(1)
@pytest.mark.compiled
@random_cases(4)
def test_random_formulas_round_after_each_operation(seed: int) -> None:
    """A fused loop, and a loop over time with and without a product, give the bits of eager operations."""
    rng = np.random.default_rng(seed)
    half = str(rng.choice(list(HALVES)))
    w = eighths(rng, 4, 4).astype(half) if seed % 2 else None
    plan = [(str(rng.choice(["add", "mul", "scale", "relu", "square"])), *rng.integers(2, size=2)) for _ in range(5)]

    def step(c: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        values = [c if w is None else c @ w, x]
        for name, a, b in plan:
            one, other = values[-1 - a], values[-1 - b]
            results = {"add": one + other, "mul": one * other, "scale": one * 0.3, "relu": ops.relu(one)}
            results["square"] = ops.square(one) - other
            values.append(ops.clip(results[name], -4.0, 4.0))
        return values[-1] * 0.7, values[-1].astype("float32") + values[-2].astype("float32")

    c, xs = eighths(rng, 3, 4).astype(half), eighths(rng, 6, 3, 4).astype(half)
    with ms.testing.unfused():
        expected = ops.scan(step, c, xs)
    one = step(c, xs[0])
    for found, right in ((ops.scan(step, c, xs), expected), (ms.jit(step)(c, xs[0]), one)):
        for a, b in zip(found, right, strict=True):
            np.testing.assert_array_equal(a.astype("float32").asnumpy(), b.astype("float32").asnumpy(), str(plan))
