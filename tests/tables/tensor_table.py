"""Table of Tensor methods: the arguments of each, and the same result computed by NumPy.

A row is called as a Tensor method, and as a function of `snncell.ops` if there is one of that name. The oracle uses
NumPy alone. `test_tensor_methods.py` tests every row; each method needs a row, or an entry in `ELSEWHERE` that names
its test.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.special

from snncell import Tensor


class Row(NamedTuple):
    """One way to call a method.

    Attributes:
        name: the method and the function.
        array: the Tensor's values.
        args, options: the arguments of the method.
        oracle: computes the expected result from the array.
        as_function: whether `ops` has a function of this name with the same arguments after the Tensor.
        exact: whether the result must be equal bit for bit.
    """

    name: str
    array: np.ndarray
    args: tuple[Any, ...]
    options: dict[str, Any]
    oracle: Callable[[np.ndarray], Any]
    as_function: bool
    exact: bool

    def __repr__(self) -> str:
        text = [repr(x) if np.ndim(x) == 0 and not isinstance(x, Tensor) else "..." for x in self.args]
        text += [f"{k}={v!r}" for k, v in self.options.items()]
        return f"{self.name}({', '.join(text)}) of {self.array.dtype}{list(self.array.shape)}"


TABLE: list[Row] = []


def row(
    name: str,
    array: Any,
    *args: Any,
    expect: Callable[[np.ndarray], Any],
    as_function: bool = True,
    exact: bool = False,
    **options: Any,
) -> None:
    TABLE.append(Row(name, np.asarray(array), args, options, expect, as_function, exact))


rng = np.random.default_rng(20)
SIGNED = rng.uniform(-2.0, 2.0, (3, 4))
POSITIVE = rng.uniform(0.2, 3.0, (3, 4))
UNIT = rng.uniform(-0.9, 0.9, (3, 4))
SHARES = rng.uniform(0.05, 0.95, (3, 4))
HALVES = np.array([-2.5, -1.5, -1.0, -0.5, -0.0, 0.0, 0.5, 1.0, 1.5, 2.5])
WILD = np.array([-np.inf, -1.5, -0.0, 0.0, 2.0, np.inf, np.nan])
CUBE = rng.permutation(np.linspace(-2.0, 2.0, 24)).reshape(2, 3, 4)
WHOLE = rng.integers(-9, 9, (3, 4))
BITS = rng.integers(0, 200, (3, 4)).astype(np.uint8)
TRUTHS = rng.random((3, 4)) < 0.5
OTHER = rng.uniform(0.3, 2.0, (3, 4))
VECTOR, SECOND = rng.normal(size=4), rng.normal(size=4)
SQUARE = rng.normal(size=(3, 3))
NOTHING = np.zeros((0, 3))
SCALAR = np.array(0.7)

# --- elementwise ------------------------------------------------------------------------------------------------------

for name, array, theirs in [
    ("tan", SIGNED, np.tan),
    ("asin", UNIT, np.arcsin),
    ("arcsin", UNIT, np.arcsin),
    ("acos", UNIT, np.arccos),
    ("arccos", UNIT, np.arccos),
    ("atan", SIGNED, np.arctan),
    ("arctan", SIGNED, np.arctan),
    ("sinh", SIGNED, np.sinh),
    ("cosh", SIGNED, np.cosh),
    ("asinh", SIGNED, np.arcsinh),
    ("arcsinh", SIGNED, np.arcsinh),
    ("acosh", POSITIVE + 1, np.arccosh),
    ("arccosh", POSITIVE + 1, np.arccosh),
    ("atanh", UNIT, np.arctanh),
    ("arctanh", UNIT, np.arctanh),
    ("deg2rad", SIGNED, np.deg2rad),
    ("rad2deg", SIGNED, np.rad2deg),
    ("exp2", SIGNED, np.exp2),
    ("log2", POSITIVE, np.log2),
    ("log10", POSITIVE, np.log10),
    ("logit", SHARES, scipy.special.logit),
    ("erf", SIGNED, scipy.special.erf),
    ("erfc", SIGNED * 4, scipy.special.erfc),
    ("erfinv", UNIT, scipy.special.erfinv),
    ("reciprocal", POSITIVE, np.reciprocal),
]:
    for given in (array, array.astype(np.float32), SCALAR + (1.5 if "cosh" in name else 0), NOTHING):
        row(name, given, expect=theirs)
for name, theirs in {
    "trunc": np.trunc,
    "frac": lambda x: x - np.trunc(x),
    "sgn": np.sign,
    "negative": np.negative,
    "signbit": np.signbit,
    "isinf": np.isinf,
    "isnan": np.isnan,
    "isfinite": np.isfinite,
}.items():
    for given in (HALVES, HALVES.astype(np.float32), WILD if name.startswith("is") else HALVES[:0]):
        row(name, given, expect=theirs, exact=True)
row("sgn", SIGNED + 1j, expect=lambda x: x / np.abs(x))
row("trunc", WHOLE, expect=np.trunc, exact=True)
row("frac", WHOLE, expect=np.zeros_like, exact=True)
row("asinh", [1e-12, 1e30, -1e300], expect=np.arcsinh)
row("acosh", [1.0, 1.0 + 1e-12, 1e200, 0.5, -3.0, -1e10, -1e30], expect=np.arccosh)
row("asin", [-1.0, 1.0, 1.5], expect=np.arcsin)
row("acos", [-1.0, 0.0, 1.0, -1.5], expect=np.arccos)
row("atanh", [-1.0, 1.0, 0.0], expect=np.arctanh)
row("sinh", [1e-12, 700.0, -800.0], expect=np.sinh)
row("logit", [0.0, 0.5, 1.0], 0.1, expect=lambda x: scipy.special.logit(np.clip(x, 0.1, 0.9)))
for name, other, theirs in [
    ("atan2", OTHER, np.arctan2),
    ("atan2", -OTHER, np.arctan2),
    ("arctan2", OTHER, np.arctan2),
    ("hypot", OTHER, np.hypot),
    ("fmod", OTHER, np.fmod),
    ("fmod", -OTHER, np.fmod),
    ("remainder", -OTHER, np.remainder),
    ("floor_divide", OTHER, np.floor_divide),
    ("true_divide", OTHER, np.divide),
    ("copysign", -OTHER, np.copysign),
    ("heaviside", OTHER, np.heaviside),
    ("logaddexp", OTHER, np.logaddexp),
    ("fmax", OTHER, np.fmax),
    ("fmin", OTHER, np.fmin),
    ("maximum", OTHER, np.maximum),
    ("isclose", SIGNED + 1e-9, np.isclose),
    ("isclose", SIGNED + 1e-3, np.isclose),
]:
    row(name, SIGNED, other, expect=lambda x, f=theirs, y=other: f(x, y))
    row(name, SIGNED, other[0], expect=lambda x, f=theirs, y=other: f(x, y[0]))
    row(
        name,
        SIGNED.astype(np.float32),
        other.astype(np.float32),
        expect=lambda x, f=theirs, y=other: f(x, np.float32(y)),
    )
EDGES = np.array([0.0, -0.0, 1.0, -1.0, 1e300, -3.0])
for y in (0.0, 2.0, -1e300):
    row("atan2", EDGES[[0, 2, 3, 4, 5]], y, expect=lambda x, y=y: np.arctan2(x, y))
    row("hypot", EDGES, y, expect=lambda x, y=y: np.hypot(x, y))
FAR = np.array([np.inf, -np.inf, 3.0, -3.0, np.nan])
for y in (np.inf, -np.inf, 3.0, -3.0, np.nan):
    row("atan2", FAR, y, expect=lambda x, y=y: np.arctan2(x, y))
    row("hypot", FAR, y, expect=lambda x, y=y: np.hypot(x, y))
row("atan2", [-0.0, 0.0, -0.0], [-1.0, -1.0, 1.0], expect=lambda x: np.array([-np.pi, np.pi, -0.0]))
row("isclose", [10**9, 2**53 - 1], [10**9 + 1, 2**53 - 1], rtol=0.0, atol=0.0, expect=lambda x: np.array([False, True]))
row("copysign", [1.0, 2.0, -3.0], [-0.0, 0.0, -np.inf], expect=lambda x: np.copysign(x, [-0.0, 0.0, -np.inf]))
row("heaviside", WILD, 0.5, expect=lambda x: np.heaviside(x, 0.5))
for pair in (np.array([np.nan, 1.0, np.nan]), np.array([np.inf, -np.inf, 2.0])):
    row("fmax", pair, [2.0, np.nan, np.nan], expect=lambda x: np.fmax(x, [2.0, np.nan, np.nan]))
    row("fmin", pair, [2.0, np.nan, np.nan], expect=lambda x: np.fmin(x, [2.0, np.nan, np.nan]))
    row("isclose", pair, pair, expect=lambda x: np.isclose(x, x))
    row("isclose", pair, pair, equal_nan=True, expect=lambda x: np.isclose(x, x, equal_nan=True))
row(
    "logaddexp",
    [-np.inf, np.inf, 1000.0],
    [-np.inf, np.inf, 999.0],
    expect=lambda x: np.logaddexp(x, [-np.inf, np.inf, 999.0]),
)
row("fmod", WHOLE, 4, expect=lambda x: np.fmod(x, 4), exact=True)
row("fmod", BITS, np.uint8(7), expect=lambda x: np.fmod(x, np.uint8(7)), exact=True)
row("float_power", POSITIVE.astype(np.float32), 1.5, expect=lambda x: np.float_power(x, 1.5))
row("float_power", [2, 3], -1, expect=lambda x: np.float_power(x, -1))
for weight in (0.25, SHARES):
    row("lerp", SIGNED, OTHER, weight, expect=lambda x, w=weight: x + w * (OTHER - x))
for value in (1, 0.5):
    row("addcmul", SIGNED, OTHER, SHARES, value, expect=lambda x, v=value: x + v * OTHER * SHARES)
    row("addcdiv", SIGNED, OTHER, SHARES, value, expect=lambda x, v=value: x + v * OTHER / SHARES)
for name, theirs in {
    "equal": np.equal, "not_equal": np.not_equal, "eq": np.equal, "ne": np.not_equal, "lt": np.less,
    "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "less": np.less, "greater": np.greater,
    "less_equal": np.less_equal, "greater_equal": np.greater_equal, "logical_and": np.logical_and,
    "logical_or": np.logical_or, "logical_xor": np.logical_xor, "bitwise_and": np.bitwise_and,
    "bitwise_or": np.bitwise_or, "bitwise_xor": np.bitwise_xor, "subtract": np.subtract, "multiply": np.multiply,
    "divide": np.divide,
}.items():  # fmt: skip
    row(name, WHOLE, WHOLE[::-1], expect=lambda x, f=theirs: f(x, x[::-1]).astype(
        np.float32 if f is np.divide else f(x, x[::-1]).dtype), exact=False)  # fmt: skip
row("logical_not", WHOLE, expect=np.logical_not, exact=True)
for given in (WHOLE, BITS, TRUTHS):
    row("bitwise_not", given, expect=np.bitwise_not, exact=True)
row("clamp", SIGNED, -1.0, 0.5, expect=lambda x: np.clip(x, -1.0, 0.5), exact=True)
row("clamp", SIGNED, max=0.5, expect=lambda x: np.minimum(x, 0.5), exact=True)
row("conj", SIGNED + 1j, expect=np.conj, exact=True)

# --- shapes -----------------------------------------------------------------------------------------------------------

for given in (CUBE, CUBE.astype(np.float32), CUBE > 0, np.arange(24).reshape(2, 3, 4)):
    row("ravel", given, expect=np.ravel, exact=True)
    row("permute", given, 2, 0, 1, expect=lambda x: x.transpose(2, 0, 1), exact=True)
    row("permute", given, (2, 0, -2), expect=lambda x: x.transpose(2, 0, 1), exact=True)
    for name in ("moveaxis", "movedim"):
        row(name, given, 0, -1, expect=lambda x: np.moveaxis(x, 0, -1), exact=True)
        row(name, given, (0, 1), (2, 0), expect=lambda x: np.moveaxis(x, (0, 1), (2, 0)), exact=True)
    row("swapdims", given, 0, 2, expect=lambda x: np.swapaxes(x, 0, 2), exact=True)
    row("roll", given, 2, 1, expect=lambda x: np.roll(x, 2, 1), exact=True)
    row("roll", given, (1, -5), (0, 2), expect=lambda x: np.roll(x, (1, -5), (0, 2)), exact=True)
    row("roll", given, 5, expect=lambda x: np.roll(x, 5), exact=True)
    row("repeat_interleave", given, 3, 1, expect=lambda x: np.repeat(x, 3, 1), exact=True)
    row("repeat_interleave", given, 2, expect=lambda x: np.repeat(x, 2), exact=True)
    row("narrow", given, 2, 1, 2, expect=lambda x: x[..., 1:3], exact=True)
    row("narrow", given, -1, -2, 2, expect=lambda x: x[..., -2:], exact=True)
    row("diff", given, expect=np.diff, exact=True)
    row("diff", given, 2, 1, expect=lambda x: np.diff(x, 2, 1), exact=True)
    row("diff", given, 9, expect=lambda x: np.diff(x, 9), exact=True)
    row("tril", given, expect=np.tril, exact=True)
    row("triu", given, 1, expect=lambda x: np.triu(x, 1), exact=True)
    row("tril", given, -1, expect=lambda x: np.tril(x, -1), exact=True)
    for offset in (-4, -2, -1, 0, 1, 3, 4):
        row("diagonal", given, offset, 1, 2, expect=lambda x, o=offset: np.diagonal(x, o, 1, 2), exact=True)
    row("diagonal", given, 0, 2, 0, expect=lambda x: np.diagonal(x, 0, 2, 0), exact=True)
    row("unbind", given, 1, expect=lambda x: [x[:, i] for i in range(3)], exact=True)
    row("view", given, 4, -1, expect=lambda x: x.reshape(4, -1), as_function=False, exact=True)
    row("view", given, (6, 4), expect=lambda x: x.reshape(6, 4), as_function=False, exact=True)
    row("select", given, 1, -1, expect=lambda x: x[:, -1], as_function=False, exact=True)
    row("unsqueeze", given, 1, expect=lambda x: x[:, None], as_function=False, exact=True)
    row("contiguous", given, expect=np.array, as_function=False, exact=True)
    row("copy", given, expect=np.array, as_function=False, exact=True)
    row("value", given, expect=np.array, as_function=False, exact=True)
    row("init_data", given, expect=np.array, as_function=False, exact=True)
for n in (1, 2, 3, 5):
    row(
        "chunk",
        np.arange(7),
        n,
        expect=lambda x, n=n: [x[i : i + -(-7 // n)] for i in range(0, 7, -(-7 // n))],
        exact=True,
    )
row("chunk", CUBE, 2, -1, expect=lambda x: np.split(x, 2, -1), exact=True)
for k in (-2, 0, 1):
    row("diag", VECTOR, k, expect=lambda x, k=k: np.diag(x, k), exact=True)
    row("diag", SIGNED, k, expect=lambda x, k=k: np.diag(x, k), exact=True)
row("diag", [np.inf, np.nan], expect=np.diag, exact=True)
row("expand", SIGNED[:, :1], 2, -1, 5, expect=lambda x: np.broadcast_to(x, (2, 3, 5)), exact=True)
row("expand_as", VECTOR, SIGNED, expect=lambda x: np.broadcast_to(x, (3, 4)), as_function=False, exact=True)
for name in ("view_as", "reshape_as"):
    row(name, np.arange(12), SIGNED, expect=lambda x: x.reshape(3, 4), as_function=False, exact=True)
row("repeat", VECTOR, 2, 3, expect=lambda x: np.tile(x, (2, 3)), as_function=False, exact=True)
row("where", SIGNED, TRUTHS, OTHER, expect=lambda x: np.where(TRUTHS, x, OTHER), as_function=False, exact=True)
for given in (np.zeros((2, 0)), np.zeros((1, 3))):
    row("tril", given, expect=np.tril, exact=True)
    row("ravel", given, expect=np.ravel, exact=True)
    row("diagonal", given, expect=np.diagonal, exact=True)
    row("roll", given, 1, 0, expect=lambda x: np.roll(x, 1, 0), exact=True)

# --- products ---------------------------------------------------------------------------------------------------------

row("trace", SIGNED, expect=np.trace)
row("outer", VECTOR, SECOND[:3], expect=lambda x: np.outer(x, SECOND[:3]))
for y in (SECOND, CUBE, SIGNED):
    row("inner", CUBE, y, expect=lambda x, y=y: np.inner(x, y))
for a, b in [
    (VECTOR, SECOND),
    (SIGNED, VECTOR),
    (CUBE, VECTOR),
    (CUBE, SIGNED.T),
    (SIGNED, CUBE.transpose(0, 2, 1)),
    (SCALAR, VECTOR),
]:
    row("dot", a, b, expect=lambda x, y=b: np.dot(x, y))
row("mm", SIGNED, OTHER.T, expect=lambda x: x @ OTHER.T)
row("mv", SIGNED, VECTOR, expect=lambda x: x @ VECTOR)
row("bmm", CUBE, CUBE.transpose(0, 2, 1), expect=lambda x: x @ x.transpose(0, 2, 1))
for beta, alpha in [(1, 1), (0.5, 2.0), (0, 3), (2, 0)]:
    row(
        "addmm",
        SQUARE,
        SIGNED,
        OTHER.T,
        beta=beta,
        alpha=alpha,
        expect=lambda x, b=beta, a=alpha: b * x + a * (SIGNED @ OTHER.T),
    )
row("addmm", np.full((3, 3), np.nan), SIGNED, OTHER.T, beta=0, expect=lambda x: SIGNED @ OTHER.T)
row("addmv", SQUARE[0], SIGNED, VECTOR, beta=0.5, expect=lambda x: 0.5 * x + SIGNED @ VECTOR)
row(
    "baddbmm", SQUARE, CUBE, CUBE.transpose(0, 2, 1), alpha=2, expect=lambda x: x + 2 * (CUBE @ CUBE.transpose(0, 2, 1))
)
row("addbmm", SQUARE, CUBE, CUBE.transpose(0, 2, 1), expect=lambda x: x + (CUBE @ CUBE.transpose(0, 2, 1)).sum(0))
for n in range(6):
    row("matrix_power", SQUARE, n, expect=lambda x, n=n: np.linalg.matrix_power(x, n))

# --- along axes -------------------------------------------------------------------------------------------------------

HOLES = np.where(rng.random((3, 4)) < 0.3, np.nan, SIGNED)
for options in ({}, {"axis": 1}, {"axis": -1, "keepdims": True}, {"axis": (0, 1)}):
    row("amax", SIGNED, **options, expect=lambda x, o=options: x.max(**o), exact=True)
    row("amin", SIGNED, **options, expect=lambda x, o=options: x.min(**o), exact=True)
    row("nansum", HOLES, **options, expect=lambda x, o=options: np.nansum(x, **o))
    row("nanmean", HOLES, **options, expect=lambda x, o=options: np.nanmean(x, **o))
row("count_nonzero", WHOLE, expect=lambda x: np.array(np.count_nonzero(x), np.int32), exact=True)
row(
    "count_nonzero", WHOLE, 0, True, expect=lambda x: np.count_nonzero(x, 0, keepdims=True).astype(np.int32), exact=True
)
row("argmax_with_value", SIGNED, expect=lambda x: [x.argmax(0), x.max(0)], exact=True)
row(
    "argmin_with_value",
    SIGNED,
    1,
    True,
    expect=lambda x: [x.argmin(1, keepdims=True), x.min(1, keepdims=True)],
    exact=True,
)
TIED = np.array([[1.0, 3.0, 3.0, 0.0], [2.0, 2.0, 1.0, 2.0], [0.0, 0.0, 0.0, 0.0]])


def best(x: np.ndarray, k: int, axis: int, largest: bool = True) -> list[np.ndarray]:
    """The first k of a stable sort, row by row, in plain Python."""
    turned = np.moveaxis(x, axis, -1)
    rows = [
        sorted(range(len(r)), key=lambda i, r=r: (-r[i] if largest else r[i], i))[:k]
        for r in turned.reshape(-1, turned.shape[-1]).tolist()
    ]
    order = np.array(rows, np.int64).reshape(*turned.shape[:-1], k)
    return [np.moveaxis(np.take_along_axis(turned, order, -1), -1, axis), np.moveaxis(order, -1, axis)]


for given in (TIED, TIED.astype(np.int32), BITS, CUBE):
    for axis in (0, -1):
        row(
            "sort",
            given,
            axis,
            expect=lambda x, a=axis: (
                best(x.astype(float), x.shape[a], a, False)[:0] or [np.sort(x, a), np.argsort(x, a, kind="stable")]
            ),
            exact=True,
        )
        row(
            "sort",
            given,
            axis,
            True,
            expect=lambda x, a=axis: [
                best(x.astype(float), x.shape[a], a)[0].astype(x.dtype),
                best(x.astype(float), x.shape[a], a)[1],
            ],
            exact=True,
        )
        row("argsort", given, axis, True, expect=lambda x, a=axis: best(x.astype(float), x.shape[a], a)[1], exact=True)
        row(
            "topk",
            given,
            2,
            axis,
            expect=lambda x, a=axis: [
                p.astype(x.dtype if i == 0 else np.int64) for i, p in enumerate(best(x.astype(float), 2, a))
            ],
            exact=True,
        )
row("topk", TIED, 3, None, False, expect=lambda x: best(x, 3, -1, False), exact=True)
row("top_k", TIED, 2, expect=lambda x: best(x, 2, -1), exact=True)
row("top_k", TIED, 2, True, expect=lambda x: best(x, 2, -1), exact=True)


def lower_median(x: np.ndarray, axis: int) -> list[np.ndarray]:
    order = np.argsort(x, axis, kind="stable")
    place = np.take(order, [(x.shape[axis] - 1) // 2], axis)
    return [np.take_along_axis(x, place, axis).squeeze(axis), place.squeeze(axis)]


for given in (CUBE, TIED, WHOLE):
    row("median", given, 0, expect=lambda x: lower_median(x, 0), exact=True)
    row("median", given, -1, expect=lambda x: lower_median(x, x.ndim - 1), exact=True)
    row("median", given, expect=lambda x: np.sort(x, None)[(x.size - 1) // 2], exact=True)
row("median", HOLES, expect=lambda x: np.array(np.nan), exact=True)
for q in (0.0, 0.3, 1.0, [0.25, 0.5, 0.9]):
    for axis in (None, 1):
        row("quantile", SIGNED, q, axis, expect=lambda x, q=q, a=axis: np.quantile(x, q, a))
        row("quantile", SIGNED, q, axis, True, expect=lambda x, q=q, a=axis: np.quantile(x, q, a, keepdims=True))
row("quantile", HOLES, 0.5, 1, expect=lambda x: np.quantile(x, 0.5, 1))
row("quantile", [3.0], 0.4, expect=lambda x: np.quantile(x, 0.4))


def running(x: np.ndarray, axis: int, better: Callable[[float, float], bool]) -> list[np.ndarray]:
    values, places = np.empty_like(x), np.empty(x.shape, np.int64)
    for index in np.ndindex(x.shape):
        before = tuple(n - 1 if a == axis else n for a, n in enumerate(index))
        wins = index[axis] == 0 or math.isnan(x[index]) or better(x[index], values[before])
        values[index], places[index] = (x[index], index[axis]) if wins else (values[before], places[before])
    return [values, places]


for given in (TIED, CUBE, HOLES):
    for axis in (0, 1):
        row("cummax", given, axis, expect=lambda x, a=axis: running(x, a, lambda new, old: new >= old), exact=True)
        row("cummin", given, axis, expect=lambda x, a=axis: running(x, a, lambda new, old: new <= old), exact=True)
for given in (CUBE, TIED, np.full((2, 3), -np.inf), np.zeros((2, 0))):
    row("cumprod", given, 1, expect=lambda x: np.cumprod(x, 1))
    row("logcumsumexp", given * 50, -1, expect=lambda x: np.logaddexp.accumulate(x, -1))
row("cumprod", WHOLE.astype(np.int8), 0, expect=lambda x: np.cumprod(x, 0, np.int64), exact=True)
for p in (None, 1, 2, 3, 0.5, 1.5, -2, 0, np.inf, -np.inf):
    row("norm", VECTOR, p, expect=lambda x, p=p: np.linalg.norm(x, p))
    row("norm", SIGNED, p, 1, True, expect=lambda x, p=p: np.linalg.norm(x, p, 1, keepdims=True))
for p in ("fro", 1, -1, np.inf, -np.inf):
    row("norm", CUBE, p, (0, 2), expect=lambda x, p=p: np.linalg.norm(x, p, (0, 2)))
    row("norm", CUBE, p, (2, 0), True, expect=lambda x, p=p: np.linalg.norm(x, p, (2, 0), keepdims=True))
row("norm", CUBE, expect=lambda x: np.sqrt((x * x).sum()))
row("norm", np.zeros(3), 1.5, expect=lambda x: np.array(0.0), exact=True)
row("norm", np.array([3.0, 4.0]) * 1e200, 3, expect=lambda x: np.array(91 ** (1 / 3) * 1e200))
for p in (None, 1, 3, 0.5, 1.5, -1, -2, -0.5, np.inf, -np.inf):
    for far in ([np.inf, 1.0], [-np.inf, np.inf], [1.0, np.nan], [np.inf, np.nan], [np.nan, 0.0]):
        if np.nan not in far[1:] or p is None or p > -np.inf:
            row("norm", far, p, expect=lambda x, p=p: np.linalg.norm(x, p))
row("norm", np.array([1e-25, 1e5], np.float32), -2, expect=lambda x: np.float32(1e-25))

row("max", TIED, 1, return_indices=True, as_function=False, expect=lambda x: [x.max(1), x.argmax(1)], exact=True)
row("min", TIED, keepdims=True, as_function=False, expect=lambda x: x.min(keepdims=True), exact=True)
row("min", TIED, return_indices=True, as_function=False, expect=lambda x: [x.min(), x.argmin()], exact=True)

# --- positions and masks ----------------------------------------------------------------------------------------------

PLACES = np.array([[0, 2, -1, 1], [1, 1, 0, -3]])
row("gather_elements", SIGNED, 0, PLACES, expect=lambda x: np.take_along_axis(x, PLACES, 0), exact=True)
row("gather_elements", SIGNED[:2], 1, PLACES, expect=lambda x: np.take_along_axis(x, PLACES, 1), exact=True)
row(
    "gather_elements",
    CUBE,
    -1,
    np.zeros((1, 2, 5), np.int64),
    expect=lambda x: np.repeat(x[:1, :2, :1], 5, -1),
    exact=True,
)
row("gather_nd", CUBE, [[0, 1], [-1, 2]], expect=lambda x: np.stack([x[0, 1], x[-1, 2]]), exact=True)
row("gather_nd", CUBE, [[[0, 1, 2]]], expect=lambda x: x[0, 1, 2].reshape(1, 1), exact=True)
row("gather_nd", CUBE, [1], expect=lambda x: x[1], exact=True)
row("index_select", CUBE, 1, [2, 0, 2], expect=lambda x: x[:, [2, 0, 2]], exact=True)


def written(x: np.ndarray, index: Any, values: Any, add: bool = False) -> np.ndarray:
    out = x.copy()
    if add:
        np.add.at(out, index, values)
    else:
        out[index] = values
    return out


ROWS, COLUMNS = np.array([[0, 2, 1, 2]]), np.arange(4)[None]
row("scatter", SIGNED, 0, ROWS, OTHER[:1], expect=lambda x: written(x, (ROWS, COLUMNS), OTHER[:1]), exact=True)
row("scatter", SIGNED, 0, ROWS, 9.0, expect=lambda x: written(x, (ROWS, COLUMNS), 9.0), exact=True)
row("scatter", VECTOR, 0, [1, 1, -1], [5.0, 6.0, 7.0], expect=lambda x: np.array([x[0], 6.0, x[2], 7.0]), exact=True)
row("scatter_add", SIGNED, 0, ROWS, OTHER[:1], expect=lambda x: written(x, (ROWS, COLUMNS), OTHER[:1], True))
row("scatter_add", VECTOR, 0, [1, 1, -1], [5.0, 6.0, 7.0], expect=lambda x: np.add(x, [0.0, 11.0, 0.0, 7.0]))
row(
    "scatter_add",
    VECTOR,
    [[1], [1], [3]],
    [5.0, 6.0, 7.0],
    expect=lambda x: np.add(x, [0.0, 11.0, 0.0, 7.0]),
    as_function=False,
)
row(
    "index_put",
    CUBE,
    (np.array([0, 1]), np.array([2, -1])),
    7.0,
    expect=lambda x: written(x, ([0, 1], [2, -1]), 7.0),
    exact=True,
)
row("index_put", VECTOR, (np.array([1, 1]),), [2.0, 3.0], True, expect=lambda x: np.add(x, [0.0, 5.0, 0.0, 0.0]))
row("index_fill", SIGNED, 1, [0, -1], 5.0, expect=lambda x: written(x, (slice(None), [0, -1]), 5.0), exact=True)
row("masked_fill", SIGNED, TRUTHS, -1.0, expect=lambda x: np.where(TRUTHS, -1.0, x), exact=True)
row("masked_fill", CUBE, TRUTHS, 0.0, expect=lambda x: np.where(TRUTHS, 0.0, x), exact=True)
row("masked_select", SIGNED, TRUTHS, expect=lambda x: x[TRUTHS], exact=True)
row("masked_select", CUBE, TRUTHS, expect=lambda x: x[:, TRUTHS].reshape(-1), exact=True)
row("masked_select", SIGNED, TRUTHS[:, :1], expect=lambda x: x[np.broadcast_to(TRUTHS[:, :1], x.shape)], exact=True)
row(
    "masked_scatter",
    SIGNED,
    TRUTHS,
    np.arange(20.0),
    expect=lambda x: written(x, TRUTHS, np.arange(TRUTHS.sum())),
    exact=True,
)
for given in (WHOLE, TRUTHS, np.array(3), np.array(0), np.zeros(4)):
    row("argwhere", given, expect=np.argwhere, exact=True)
    row("nonzero", given, expect=np.argwhere, exact=True)
    if given.ndim:
        row("nonzero", given, as_tuple=True, expect=lambda x: list(np.nonzero(x)), exact=True)
RUNS = np.array([1, 1, 2, 2, 2, 1, 3, 3])
row("unique_consecutive", RUNS, expect=lambda x: np.array([1, 2, 1, 3]), exact=True)
row(
    "unique_consecutive",
    RUNS,
    True,
    True,
    expect=lambda x: [np.array([1, 2, 1, 3]), np.array([0, 0, 1, 1, 1, 2, 3, 3]), np.array([2, 3, 1, 2])],
    exact=True,
)
row("unique_consecutive", np.array([[1, 2], [1, 2], [0, 2]]), dim=0, expect=lambda x: x[1:], exact=True)
row("unique_consecutive", RUNS[:0], expect=np.array, exact=True)
ORDERED = np.array([0.0, 1.0, 1.0, 3.0])
for side in ("left", "right"):
    row(
        "searchsorted",
        ORDERED,
        [[0.5, 1.0], [9.0, -1.0]],
        side,
        expect=lambda x, s=side: np.searchsorted(x, [[0.5, 1.0], [9.0, -1.0]], s),
        exact=True,
    )
row("searchsorted", ORDERED[::-1], [1.0], sorter=[3, 2, 1, 0], expect=lambda x: np.array([1]), exact=True)
row("searchsorted", np.stack([ORDERED, ORDERED + 1]), [[1.0], [1.0]], expect=lambda x: np.array([[1], [0]]), exact=True)
IMAGE = rng.normal(size=(2, 3, 5, 6))


def windows(x: np.ndarray, k: tuple[int, int], d: int, p: int, s: int) -> np.ndarray:
    x = np.pad(x, ((0, 0), (0, 0), (p, p), (p, p)))
    tall, wide = ((n - (w - 1) * d - 1) // s + 1 for n, w in zip(x.shape[2:], k, strict=True))
    columns = [
        x[:, :, i * s : i * s + (k[0] - 1) * d + 1 : d, j * s : j * s + (k[1] - 1) * d + 1 : d].reshape(len(x), -1)
        for i in range(tall) for j in range(wide)
    ]  # fmt: skip
    return np.stack(columns, -1)


for k, d, p, s in [((2, 3), 1, 0, 1), ((2, 2), 2, 1, 1), ((3, 2), 1, 1, 2)]:
    row("unfold", IMAGE, k, d, p, s, expect=lambda x, k=k, d=d, p=p, s=s: windows(x, k, d, p, s), exact=True)
    hits = windows(np.ones_like(IMAGE), k, d, p, s)  # each element comes back as often as a window has it

    def overlaps(x: np.ndarray, k: Any = k, d: Any = d, p: Any = p, s: Any = s) -> np.ndarray:
        numbered = windows(np.arange(1, IMAGE.size + 1).reshape(IMAGE.shape), k, d, p, s).astype(int)
        total = np.zeros(IMAGE.size + 1)
        np.add.at(total, numbered.reshape(-1), x.reshape(-1))
        return total[1:].reshape(IMAGE.shape)

    row("fold", rng.normal(size=hits.shape), (5, 6), k, d, p, s, expect=overlaps)

# --- dtypes, sizes ----------------------------------------------------------------------------------------------------

for name, theirs in {"bool": bool, "byte": np.uint8, "short": np.int16, "int": np.int32, "long": np.int64,
                     "half": np.float16, "float": np.float32, "double": np.float64}.items():  # fmt: skip
    row(name, np.array([0.0, 1.0, 2.5]), expect=lambda x, t=theirs: x.astype(t), as_function=False, exact=True)
row("type", SIGNED, "float32", expect=lambda x: x.astype(np.float32), as_function=False, exact=True)
row("type_as", SIGNED, np.float32(1.0), expect=lambda x: x.astype(np.float32), as_function=False, exact=True)
row("to", SIGNED, np.float32, expect=lambda x: x.astype(np.float32), as_function=False, exact=True)
row("to", SIGNED, "int32", expect=lambda x: x.astype(np.int32), as_function=False, exact=True)
row("new_zeros", SIGNED, (2, 3), expect=lambda x: np.zeros((2, 3)), as_function=False, exact=True)
row("new_zeros", WHOLE, 2, 3, expect=lambda x: np.zeros((2, 3), np.int64), as_function=False, exact=True)
row("new_ones", SIGNED, 4, dtype="int32", expect=lambda x: np.ones(4, np.int32), as_function=False, exact=True)
row("new_full", SIGNED, (2,), 3.5, expect=lambda x: np.full(2, 3.5), as_function=False, exact=True)
row("full_like", WHOLE, 3, expect=lambda x: np.full_like(x, 3), exact=True)
row("zeros_like", WHOLE, expect=np.zeros_like, exact=True)
row("ones_like", WHOLE, dtype="float32", expect=lambda x: np.ones_like(x, np.float32), exact=True)

# Methods whose results are no arrays, or are tested where there is more to say of them.
MEMORY = """
    numpy numel nelement dim ndimension stride is_contiguous is_complex is_floating_point from_numpy asnumpy item tolist
"""
OLDER = """
    abs sign square sqrt rsqrt exp log log1p expm1 pow sin cos tanh clip floor ceil round minimum add sub mul div neg
    sigmoid relu sum mean max min prod var std argmax argmin any all cumsum logsumexp softmax log_softmax reshape
    transpose swapaxes expand_dims squeeze broadcast_to flip split tile unstack gather matmul astype flatten
"""
ELSEWHERE = {
    **dict.fromkeys(MEMORY.split(), "test_tensor_methods: sizes and memory"),
    **dict.fromkeys(["assign_value", "register_hook"], "test_parameter_clones, test_tensor_hooks"),
    **dict.fromkeys(["bernoulli", "uniform", "normal", "multinomial"], "test_tensor_methods: drawn"),
    "bfloat16": "test_bfloat16",
    **dict.fromkeys(OLDER.split(), "test_ops_values, test_ops_arrays"),
}
