"""Gradient table of all operations: arguments, order of differentiation, and the PyTorch equivalent.

A row is a function of float Tensors; other arguments of an operation (indices, masks, options) are fixed inside the
function. `test_ops_gradients.py` tests every row. A new operation needs a row here, or an entry in `NOT_A_ROW` with
the reason.
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import snncell as ms
from snncell import ops


class Spec(NamedTuple):
    """Random numbers for an argument: the same Spec at the same position always gives the same array."""

    kind: str
    shape: tuple[int, ...]
    low: float = 0.0
    high: float = 0.0

    def draw(self, position: int) -> np.ndarray:
        return _draw(self, position)


@functools.cache
def _draw(spec: Spec, position: int) -> np.ndarray:
    rng = np.random.default_rng([position, zlib.crc32(repr(spec).encode())])
    if spec.kind == "normal":
        array = rng.standard_normal(spec.shape)
    elif spec.kind == "between":
        array = rng.uniform(spec.low, spec.high, spec.shape)
    else:  # equal steps in random order: no ties, and nothing near a kink for finite differences to step over
        count = int(np.prod(spec.shape))
        array = rng.permutation(np.linspace(spec.low, spec.high, count)).reshape(spec.shape)
    array.flags.writeable = False
    return array


def between(low: float, high: float, *shape: int) -> Spec:
    """Uniform random numbers in [low, high)."""
    return Spec("between", shape, low, high)


def apart(low: float, high: float, *shape: int) -> Spec:
    """Distinct, equally spaced numbers in random order."""
    return Spec("apart", shape, low, high)


class Row(NamedTuple):
    """One way to call an operation.

    Attributes:
        name: the operation in `snncell.ops`.
        fn: a function of float Tensors that returns Tensors.
        inputs: a shape (normal numbers), a Spec, or an array for each argument.
        order: how often the tests differentiate the function; 0 if the operation passes no gradient.
        torch: the same with PyTorch: `torch(module, *tensors)`.
        case: the special case of this row.
        jit: whether to test the compiled function; False for a row that sets the seed.
    """

    name: str
    fn: Callable[..., Any]
    inputs: tuple[Any, ...]
    order: int = 2
    torch: Callable[..., Any] | None = None
    case: str = ""
    jit: bool = True

    def arrays(self, number: int = 0) -> list[np.ndarray]:
        """The arguments; another `number` gives other random numbers, but fixed arrays stay the same."""
        given = [Spec("normal", x) if type(x) is tuple else x for x in self.inputs]
        return [x.draw(i + 100 * number) if isinstance(x, Spec) else x for i, x in enumerate(given)]

    def __repr__(self) -> str:
        return f"{self.name}-{self.case}" if self.case else self.name


TABLE: list[Row] = []


def row(name: str, fn: Any, *inputs: Any, torch: Any = None, order: int = 2, case: str = "", jit: bool = True) -> None:
    TABLE.append(Row(name, fn, inputs, order, torch, case, jit))


M = (3, 4)  # a matrix: most elementwise rows share it, so that they are compiled into one loop
POSITIVE = between(0.3, 2.0, *M)
KINKED = apart(-2.05, 1.95, *M)  # on both sides of 0, of 1 and of -1, at a distance

# --- arithmetic -------------------------------------------------------------------------------------------------------

row("add", ops.add, M, M, torch=lambda t, x, y: x + y)
row("add", ops.add, M, (4,), torch=lambda t, x, y: x + y, case="broadcast")
row("add", ops.add, (3, 1), (1, 4), torch=lambda t, x, y: x + y, case="both broadcast")
row("add", lambda x, y: x + y + 2, (), M, torch=lambda t, x, y: x + y + 2, case="no axes")
row("sub", ops.sub, M, M, torch=lambda t, x, y: x - y)
row("sub", lambda x: 1.5 - x, M, torch=lambda t, x: 1.5 - x, case="from a number")
row("mul", ops.mul, M, M, torch=lambda t, x, y: x * y)
row("mul", ops.mul, M, (3, 1), torch=lambda t, x, y: x * y, case="broadcast")
row("mul", lambda x: x * 0.1, M, torch=lambda t, x: x * 0.1, case="by a number")
row("mul", lambda x: x * x, M, torch=lambda t, x: x * x, case="with itself")
row("div", ops.div, M, POSITIVE, torch=lambda t, x, y: x / y)
row("div", ops.div, (4,), POSITIVE, torch=lambda t, x, y: x / y, case="broadcast")
row("div", lambda x: x / 0.3, M, torch=lambda t, x: x / 0.3, case="by a number")
row("div", lambda x: 0.1 / x, POSITIVE, torch=lambda t, x: 0.1 / x, case="of a number")
row("floor_div", ops.floor_div, KINKED, POSITIVE, torch=lambda t, x, y: t.floor_divide(x, y), order=0)
row("mod", ops.mod, KINKED, between(0.7, 0.75, *M), torch=lambda t, x, y: t.remainder(x, y))
row("mod", lambda x: x % -0.7, KINKED, torch=lambda t, x: t.remainder(x, -0.7), case="negative")
row("neg", ops.neg, M, torch=lambda t, x: -x)
row("square", ops.square, M, torch=lambda t, x: x.square())
row("abs", ops.abs, KINKED, torch=lambda t, x: x.abs())
row("sign", ops.sign, KINKED, torch=lambda t, x: x.sign(), order=0)
for exponent in (0, 1, 2, 3, 4, -1, -2, 0.5, 1.5, -0.3):
    row(
        "pow",
        lambda x, n=exponent: ops.pow(x, n),
        POSITIVE,
        torch=lambda t, x, n=exponent: t.pow(x, n),
        case=f"to the {exponent}",
    )
row("pow", lambda x: x**4, M, torch=lambda t, x: x**4, case="negative base")
row("pow", ops.pow, POSITIVE, M, torch=lambda t, x, y: t.pow(x, y), case="tensor exponent")
row("pow", ops.pow, POSITIVE, (4,), torch=lambda t, x, y: t.pow(x, y), case="broadcast exponent")
row("pow", lambda y: 0.3**y, M, torch=lambda t, y: t.pow(0.3, y), case="number to a tensor")
row("maximum", ops.maximum, KINKED, apart(-1.9, 2.2, *M), torch=lambda t, x, y: t.maximum(x, y))
row("minimum", ops.minimum, KINKED, apart(-1.9, 2.2, *M), torch=lambda t, x, y: t.minimum(x, y))
row("maximum", lambda x: ops.maximum(x, 0.5), KINKED, torch=lambda t, x: x.clamp(min=0.5), case="number")
row("clip", lambda x: ops.clip(x, -1.0, 1.2), KINKED, torch=lambda t, x: x.clip(-1.0, 1.2))
row("clip", lambda x: ops.clip(x, min=-1), KINKED, torch=lambda t, x: x.clip(-1), case="from below")
row("clip", lambda x: ops.clip(x, max=0.5), KINKED, torch=lambda t, x: x.clip(max=0.5), case="from above")
row(
    "clip",
    ops.clip,
    KINKED,
    between(-1.3, -1.2, *M),
    between(0.8, 0.9, *M),
    torch=lambda t, x, low, high: x.clip(low, high),
    case="tensor bounds",
)
row("floor", ops.floor, KINKED, torch=lambda t, x: x.floor(), order=0)
row("ceil", ops.ceil, KINKED, torch=lambda t, x: x.ceil(), order=0)
row("round", ops.round, KINKED, torch=lambda t, x: x.round(), order=0)

# --- exponentials, trigonometry, activations --------------------------------------------------------------------------

for name in ("sqrt", "rsqrt", "log", "log1p"):
    row(name, getattr(ops, name), POSITIVE, torch=lambda t, x, f=name: getattr(t, f)(x), order=3)
for name in ("exp", "expm1", "sin", "cos", "atan", "tanh", "erf", "sigmoid"):
    row(name, getattr(ops, name), M, torch=lambda t, x, f=name: getattr(t, f)(x), order=3)
row("softplus", ops.softplus, M, torch=lambda t, x: t.nn.functional.softplus(x), order=3)
row("gelu", ops.gelu, M, torch=lambda t, x: t.nn.functional.gelu(x))
row(
    "gelu",
    lambda x: ops.gelu(x, "tanh"),
    M,
    torch=lambda t, x: t.nn.functional.gelu(x, approximate="tanh"),
    case="tanh",
)
row(
    "softplus",
    lambda x: ops.softplus(x, 3.0, 1.5),
    KINKED,
    torch=lambda t, x: t.nn.functional.softplus(x, 3.0, 1.5),
    case="sharper, then x",
)
for name in ("silu", "mish", "logsigmoid", "softsign", "tanhshrink"):
    row(name, getattr(ops, name), M, torch=lambda t, x, f=name: getattr(t.nn.functional, f)(x), order=3)
row("relu", ops.relu, KINKED, torch=lambda t, x: x.relu())
row("relu6", ops.relu6, apart(-3.0, 9.1, *M), torch=lambda t, x: t.nn.functional.relu6(x))
row("leaky_relu", ops.leaky_relu, KINKED, torch=lambda t, x: t.nn.functional.leaky_relu(x, 0.2))
row("leaky_relu", ops.leaky_relu, KINKED, (4,), torch=lambda t, x, a: t.where(x > 0, x, a * x), case="tensor slope")

FAR = apart(-4.1, 4.2, *M)  # beyond -3 and 3 on both sides
for name in ("elu", "selu", "celu", "hardtanh", "hardshrink", "softshrink"):
    row(name, getattr(ops, name), KINKED, torch=lambda t, x, f=name: getattr(t.nn.functional, f)(x))
row("hardswish", ops.hardswish, FAR, torch=lambda t, x: t.nn.functional.hardswish(x))
row(
    "hardsigmoid", ops.hardsigmoid, FAR, torch=lambda t, x: t.clamp(x / 6 + 0.5, 0, 1)
)  # its own has a sixth in float32
row("elu", lambda x: ops.elu(x, 1.7), KINKED, torch=lambda t, x: t.nn.functional.elu(x, 1.7), case="alpha")
row("elu", ops.elu, KINKED, (4,), torch=lambda t, x, a: t.where(x > 0, x, a * x.expm1()), case="tensor alpha")
row("celu", lambda x: ops.celu(x, 0.5), KINKED, torch=lambda t, x: t.nn.functional.celu(x, 0.5), case="alpha")
row(
    "celu",
    ops.celu,
    np.array([0.0, -0.5, 0.5, -0.0]),
    torch=lambda t, x: t.nn.functional.celu(x),
    case="its slope at 0",
    order=1,
)
row("celu", lambda x: ops.celu(x, -2.0), KINKED, torch=lambda t, x: t.nn.functional.celu(x, -2.0), case="negative")
row(
    "hardtanh",
    lambda x: ops.hardtanh(x, -0.7, 1.6),
    KINKED,
    torch=lambda t, x: t.nn.functional.hardtanh(x, -0.7, 1.6),
    case="bounds",
)
row("hardshrink", lambda x: ops.hardshrink(x, 0.8), KINKED, torch=lambda t, x: t.nn.functional.hardshrink(x, 0.8))
TABLE[-1] = TABLE[-1]._replace(case="lambd")
row("softshrink", lambda x: ops.softshrink(x, 0.8), KINKED, torch=lambda t, x: t.nn.functional.softshrink(x, 0.8))
TABLE[-1] = TABLE[-1]._replace(case="lambd")
row("prelu", ops.prelu, KINKED, (1,), torch=lambda t, x, w: t.nn.functional.prelu(x, w))
row("prelu", ops.prelu, apart(-2.0, 2.4, 2, 3, 4), (3,), torch=lambda t, x, w: t.nn.functional.prelu(x, w), case="each")
for axis in (0, -1):
    row("glu", lambda x, a=axis: ops.glu(x, a), (4, 6), torch=lambda t, x, a=axis: t.nn.functional.glu(x, a))
    TABLE[-1] = TABLE[-1]._replace(case=f"axis={axis}")
row("softmin", ops.softmin, M, torch=lambda t, x: t.nn.functional.softmin(x, -1))

# --- comparison, logic, selection -------------------------------------------------------------------------------------

for name, theirs in {
    "equal": "eq",
    "not_equal": "ne",
    "less": "lt",
    "less_equal": "le",
    "greater": "gt",
    "greater_equal": "ge",
    "logical_and": "logical_and",
    "logical_or": "logical_or",
    "logical_xor": "logical_xor",
}.items():
    row(name, getattr(ops, name), KINKED, KINKED, torch=lambda t, x, y, f=theirs: getattr(t, f)(x, y), order=0)
for name in ("isnan", "isfinite", "logical_not"):
    row(name, getattr(ops, name), KINKED, torch=lambda t, x, f=name: getattr(t, f)(x), order=0)
row("where", lambda x, y: ops.where(x > y, x, y * 2), KINKED, M, torch=lambda t, x, y: t.where(x > y, x, y * 2))
row(
    "where",
    lambda x, y: ops.where(ms.Tensor([True, False, True, True]), x, y),
    M,
    (3, 1),
    torch=lambda t, x, y: t.where(t.tensor([True, False, True, True]), x, y),
    case="broadcast",
)
row("where", lambda x: ops.where(x > 0, x, 0.5), KINKED, torch=lambda t, x: t.where(x > 0, x, 0.5), case="number")
row("select", lambda x: ops.select(x > 0, 0.5, x), KINKED, torch=lambda t, x: t.where(x > 0, 0.5, x))
row("cast", lambda x: ops.real(ops.cast(x, ms.complex128) * 2), M, torch=lambda t, x: x * 2)
row("stop_gradient", lambda x: ops.stop_gradient(x), M, torch=lambda t, x: x.detach(), order=0)

# --- reductions -------------------------------------------------------------------------------------------------------

CUBE = (2, 3, 4)
CUBE_APART = apart(-2.0, 2.4, *CUBE)
AXES: list[dict[str, Any]] = [{}, {"axis": 1}, {"axis": -1, "keepdims": True}, {"axis": (0, 2)}, {"axis": (-1, 1)}]


def _dims(options: dict[str, Any]) -> dict[str, Any]:
    """Options in torch's terms; torch does not accept "all axes"."""
    return {"dim": options.get("axis", (0, 1, 2)), "keepdim": options.get("keepdims", False)}


for options in AXES:
    text = " ".join(f"{k}={v}" for k, v in options.items())
    for name, theirs in {"sum": "sum", "mean": "mean", "max": "amax", "min": "amin", "logsumexp": "logsumexp"}.items():
        row(
            name,
            lambda x, f=name, o=options: getattr(ops, f)(x, **o),
            CUBE_APART,
            torch=lambda t, x, f=theirs, o=options: getattr(t, f)(x, **_dims(o)),
            case=text,
        )
    for name in ("var", "std"):
        for ddof in (0, 1):
            row(
                name,
                lambda x, f=name, o=options, d=ddof: getattr(ops, f)(x, ddof=d, **o),
                CUBE_APART,
                torch=lambda t, x, f=name, o=options, d=ddof: getattr(t, f)(x, correction=d, **_dims(o)),
                case=f"{text} ddof={ddof}".strip(),
            )
    row("prod", lambda x, o=options: ops.prod(x, **o), between(0.5, 1.5, *CUBE), case=text)
row("sum", ops.sum, (), torch=lambda t, x: x.sum(), case="no axes")
ZEROS = np.array([[2.0, 0.0, 3.0, 0.5], [0.0, 0.0, 1.5, 2.0], [1.0, 2.0, 3.0, 4.0]])
row("prod", lambda x: ops.prod(x, 1), ZEROS, torch=lambda t, x: x.prod(1), order=3, case="zeros")
row("prod", lambda x: ops.prod(x, 0, keepdims=True), ZEROS[:, :1], torch=lambda t, x: x.prod(0, True), case="two")
for axis in (0, 1, -1):
    row("softmax", lambda x, a=axis: ops.softmax(x, a), M, torch=lambda t, x, a=axis: x.softmax(a), case=f"axis={axis}")
    row(
        "log_softmax",
        lambda x, a=axis: ops.log_softmax(x, a),
        M,
        torch=lambda t, x, a=axis: x.log_softmax(a),
        case=f"axis={axis}",
    )
    row("cumsum", lambda x, a=axis: ops.cumsum(x, a), M, torch=lambda t, x, a=axis: x.cumsum(a), case=f"axis={axis}")
for name in ("argmax", "argmin"):
    row(name, getattr(ops, name), KINKED, torch=lambda t, x, f=name: getattr(t, f)(x), order=0)
    row(
        name,
        lambda x, f=name: getattr(ops, f)(x, 1, keepdims=True),
        KINKED,
        torch=lambda t, x, f=name: getattr(t, f)(x, 1, True),
        order=0,
        case="axis",
    )
for axis in (0, -1):
    row(
        "sort",
        lambda x, a=axis: ops.sort(x, a)[0],
        KINKED,
        torch=lambda t, x, a=axis: x.sort(a)[0],
        case=f"axis={axis}",
    )
    row(
        "sort",
        lambda x, a=axis: ops.sort(x, a, True)[0],
        KINKED,
        torch=lambda t, x, a=axis: x.sort(a, True)[0],
        case=f"descending axis={axis}",
    )
    row(
        "argsort",
        lambda x, a=axis: ops.argsort(x, a),
        KINKED,
        torch=lambda t, x, a=axis: x.argsort(dim=a),
        order=0,
        case=f"axis={axis}",
    )
for name in ("any", "all"):
    row(name, lambda x, f=name: getattr(ops, f)(x > 1, axis=0), KINKED, order=0)
    TABLE[-1] = TABLE[-1]._replace(torch=lambda t, x, f=name: getattr(t, f)(x > 1, 0))

# --- shapes -----------------------------------------------------------------------------------------------------------

row("reshape", lambda x: ops.reshape(x, (4, -1)), CUBE, torch=lambda t, x: x.reshape(4, -1))
row("reshape", lambda x: x.reshape(6, 4), CUBE, torch=lambda t, x: x.reshape(6, 4), case="lengths")
row("flatten", lambda x: ops.flatten(x, 0), CUBE, torch=lambda t, x: x.flatten())
row("flatten", lambda x: ops.flatten(x, 1), CUBE, torch=lambda t, x: x.flatten(1), case="from axis 1")
row("transpose", ops.transpose, CUBE, torch=lambda t, x: x.permute(2, 1, 0))
row("transpose", lambda x: ops.transpose(x, (1, -1, 0)), CUBE, torch=lambda t, x: x.permute(1, 2, 0), case="order")
row("swapaxes", lambda x: ops.swapaxes(x, 0, -1), CUBE, torch=lambda t, x: x.swapaxes(0, -1))
row("expand_dims", lambda x: ops.expand_dims(x, (0, -1)), M, torch=lambda t, x: x[None, ..., None])
row("squeeze", ops.squeeze, (1, 3, 1), torch=lambda t, x: x.squeeze())
row("squeeze", lambda x: ops.squeeze(x, -1), (1, 3, 1), torch=lambda t, x: x.squeeze(-1), case="axis")
row("broadcast_to", lambda x: ops.broadcast_to(x, (2, 3, -1)), (3, 1), torch=lambda t, x: x.expand(2, 3, -1))
row("broadcast_to", lambda x: ops.broadcast_to(x, (2, 3)), (), torch=lambda t, x: x.expand(2, 3), case="no axes")
row("flip", lambda x: ops.flip(x, 1), M, torch=lambda t, x: x.flip(1))
row("flip", lambda x: ops.flip(x, (0, -1)), CUBE, torch=lambda t, x: x.flip(0, 2), case="two axes")
row("concat", lambda x, y: ops.concat([x, y]), M, (2, 4), torch=lambda t, x, y: t.cat([x, y]))
row("concat", lambda x, y: ops.concat((x, y, x), -1), M, (3, 2), torch=lambda t, x, y: t.cat([x, y, x], 1), case="last")
row("stack", lambda x, y: ops.stack([x, y]), M, M, torch=lambda t, x, y: t.stack([x, y]))
row("stack", lambda x, y: ops.stack([x, y], -1), M, M, torch=lambda t, x, y: t.stack([x, y], -1), case="last")
row("split", lambda x: ops.split(x, 2), (5, 3), torch=lambda t, x: x.split(2))
row("split", lambda x: ops.split(x, [1, 3], -1)[1], M, torch=lambda t, x: x.split([1, 3], -1)[1], case="one unused")
row("unstack", lambda x: ops.unstack(x, 1), M, torch=lambda t, x: x.unbind(1))
row("pad", lambda x: ops.pad(x, (1, 2)), M, torch=lambda t, x: t.nn.functional.pad(x, (1, 2)))
row(
    "pad",
    lambda x: ops.pad(x, (0, 1, 2, 0), value=1.5),
    M,
    torch=lambda t, x: t.nn.functional.pad(x, (0, 1, 2, 0), value=1.5),
    case="two axes",
)
for mode, theirs in {"reflect": "reflect", "replicate": "replicate", "circular": "circular"}.items():
    row(
        "pad",
        lambda x, m=mode: ops.pad(x, (2, 1), m),
        CUBE,
        torch=lambda t, x, m=theirs: t.nn.functional.pad(x, (2, 1), m),
        case=mode,
    )
    row(
        "pad",
        lambda x, m=mode: ops.pad(x, (2, 1, 1, 2), m),
        (2, 1, 3, 4),
        torch=lambda t, x, m=theirs: t.nn.functional.pad(x, (2, 1, 1, 2), m),
        case=f"{mode}, two axes",
    )
row(
    "pad",
    lambda x: ops.pad(x, (3, 2), "symmetric"),
    M,
    torch=lambda t, x: x[:, [2, 1, 0, 0, 1, 2, 3, 3, 2]],
    case="symmetric",
)
for options in [
    {"size": 7},
    {"size": 2},
    {"scale_factor": 1.7},
    {"scale_factor": 2, "mode": "linear"},
    {"size": 9, "mode": "linear", "align_corners": True},
    {"size": 1, "mode": "linear", "align_corners": True},
]:
    row(
        "interpolate",
        lambda x, o=options: ops.interpolate(x, **o),
        (2, 3, 4),
        torch=lambda t, x, o=options: t.nn.functional.interpolate(x, **o),
        case=" ".join(f"{k}={v}" for k, v in options.items()),
    )
for options in [
    {"size": (5, 2)},
    {"scale_factor": 1.5, "mode": "bilinear"},
    {"size": (2, 7), "mode": "bilinear"},
    {"size": (4, 5), "mode": "bilinear", "align_corners": True},
]:
    row(
        "interpolate",
        lambda x, o=options: ops.interpolate(x, **o),
        (1, 2, 3, 4),
        torch=lambda t, x, o=options: t.nn.functional.interpolate(x, **o),
        case="image " + " ".join(f"{k}={v}" for k, v in options.items()),
    )
row("pixel_shuffle", lambda x: ops.pixel_shuffle(x, 2), (2, 8, 2, 3), torch=lambda t, x: t.pixel_shuffle(x, 2))
row("pixel_unshuffle", lambda x: ops.pixel_unshuffle(x, 2), (2, 4, 6), torch=lambda t, x: t.pixel_unshuffle(x, 2))
row("tile", lambda x: ops.tile(x, (2, 3)), M, torch=lambda t, x: x.tile(2, 3))
row("tile", lambda x: ops.tile(x, (2, 1, 3)), (4,), torch=lambda t, x: x.tile(2, 1, 3), case="new axes")
POSITIONS = [[0, 2], [2, -1]]  # a repeated one: its gradients add up
row("gather", lambda x: ops.gather(x, ms.Tensor(POSITIONS)), M, torch=lambda t, x: x[t.tensor(POSITIONS)])
row(
    "gather",
    lambda x: ops.gather(x, ms.Tensor(POSITIONS), -1),
    CUBE,
    torch=lambda t, x: x[..., t.tensor(POSITIONS)],
    case="last axis",
)
row("gather", lambda x: ops.gather(x, ms.Tensor(1), 1), M, torch=lambda t, x: x[:, 1], case="one position")
INDICES: dict[str, Any] = {
    "int": 1,
    "negative int": -1,
    "slice": slice(1, None),
    "ints": (1, 2),
    "step": (slice(None), slice(None, None, 2)),
    "none": (None, slice(None), None, 2),
    "ellipsis": (..., 1),
    "all": ...,
    "empty": slice(2, 2),
}
for text, index in INDICES.items():
    row("__getitem__", lambda x, i=index: x[i], CUBE, torch=lambda t, x, i=index: x[i], case=text)
row("__getitem__", lambda x: x[::-1, 2:0:-1], CUBE, torch=lambda t, x: x.flip(0)[:, [2, 1]], case="negative steps")
row("__getitem__", lambda x: x[[0, 1, 0]], CUBE, torch=lambda t, x: x[[0, 1, 0]], case="list")
row("__getitem__", lambda x: x[0] * x[1], (2, 3), torch=lambda t, x: x[0] * x[1], case="twice")

# --- products ---------------------------------------------------------------------------------------------------------

for a, b in [
    ((4,), (4,)),
    ((3, 4), (4,)),
    ((3,), (3, 4)),
    ((3, 4), (4, 2)),
    ((5, 3, 4), (4, 2)),
    ((5, 3, 4), (4,)),
    ((3,), (5, 3, 4)),
    ((3, 4), (5, 4, 2)),
    ((5, 3, 4), (5, 4, 2)),
    ((5, 1, 3, 4), (2, 4, 2)),
]:
    row("matmul", ops.matmul, a, b, torch=lambda t, x, y: x @ y, case=f"{a} {b}")
row("matmul", lambda x: x @ x.T, M, torch=lambda t, x: x @ x.T, case="with itself")
row("bmm", ops.bmm, (2, 3, 4), (2, 4, 2), torch=lambda t, x, y: t.bmm(x, y))
for equation, shapes in {
    "ij,jk->ik": [(3, 4), (4, 2)],
    "ij,jk": [(3, 4), (4, 2)],
    "ba": [(3, 4)],
    "ij->": [(3, 4)],
    "ij->j": [(3, 4)],
    "ii->i": [(3, 3)],
    "ii": [(3, 3)],
    "iij->ji": [(3, 3, 2)],
    "i,j->ij": [(3,), (2,)],
    "i,i->": [(3,), (3,)],
    "i,ij,j->": [(3,), (3, 4), (4,)],
    "ijk,i,j->k": [(2, 3, 4), (2,), (3,)],
    "...ij,...jk->...ik": [(5, 2, 3), (5, 3, 2)],
    "i...,i...": [(2, 3, 4), (2, 3, 4)],
    "...i->...": [(2, 3, 4)],
    "...,i->i...": [(2, 3), (4,)],
    "...i,...i->...": [(3, 4), (2, 3, 4)],
    "...j,...j->...j": [(4,), (2, 3, 4)],
    "ij,k->i": [(3, 4), (2,)],
}.items():
    row(
        "einsum",
        lambda *xs, e=equation: ops.einsum(e, *xs),
        *shapes,
        torch=lambda t, *xs, e=equation: t.einsum(e, *xs),
        case=equation,
    )

# --- convolution, pooling ---------------------------------------------------------------------------------------------

for options in [
    {},
    {"stride": 2},
    {"dilation": 2},
    {"stride": 3, "dilation": 2},
    {"pad_mode": "pad", "padding": 2},
    {"groups": 2},
    {"groups": 4, "stride": 2, "pad_mode": "pad", "padding": 1},
]:
    row(
        "conv1d",
        lambda x, w, b, o=options: ops.conv1d(x, w, b, **o),
        (2, 4, 8),
        (4, 4 // options.get("groups", 1), 3),
        (4,),
        torch=lambda t, x, w, b, o=options: t.nn.functional.conv1d(
            x, w, b, **{k: v for k, v in o.items() if k != "pad_mode"}
        ),
        case=" ".join(f"{k}={v}" for k, v in options.items()),
    )
row(
    "conv1d",
    lambda x, w: ops.conv1d(x, w, stride=2, pad_mode="same"),
    (1, 2, 6),
    (3, 2, 3),
    torch=lambda t, x, w: t.nn.functional.conv1d(t.nn.functional.pad(x, (0, 1)), w, stride=2),
    case="same, the odd one at the end",
)
for options in [
    {},
    {"stride": (2, 1), "dilation": (1, 2)},
    {"pad_mode": "pad", "padding": (1, 2), "stride": 2},
    {"groups": 2, "dilation": 2},
]:
    row(
        "conv2d",
        lambda x, w, o=options: ops.conv2d(x, w, **o),
        (2, 2, 5, 6),
        (4, 2 // options.get("groups", 1), 2, 3),
        torch=lambda t, x, w, o=options: t.nn.functional.conv2d(
            x, w, **{k: v for k, v in o.items() if k != "pad_mode"}
        ),
        case=" ".join(f"{k}={v}" for k, v in options.items()),
    )
for options in [
    {},
    {"stride": 2},
    {"stride": (2, 1), "dilation": (1, 2), "groups": 2},
    {"stride": 3, "dilation": 2, "padding": 1, "output_padding": 2},
]:
    mode = {"pad_mode": "pad"} if "padding" in options else {}
    row(
        "conv_transpose2d",
        lambda x, w, b, o={**options, **mode}: ops.conv_transpose2d(x, w, b, **o),
        (2, 4, 3, 4),
        (4, 2, 3, 2),
        (2 * options.get("groups", 1),),
        torch=lambda t, x, w, b, o=options: t.nn.functional.conv_transpose2d(x, w, b, **o),
        case=str(options),
    )
row(
    "conv_transpose2d",
    lambda x, w: ops.conv_transpose2d(x, w, stride=2, pad_mode="same"),
    (1, 2, 3, 3),
    (2, 1, 3, 2),
    case="same",
)
row(
    "conv2d",
    lambda x, w, b: ops.conv2d(x, w, b, pad_mode="same"),
    (1, 2, 4, 5),
    (3, 2, 3, 2),
    (3,),
    torch=lambda t, x, w, b: t.nn.functional.conv2d(t.nn.functional.pad(x, (0, 1, 1, 1)), w, b),
    case="same",
)
row(
    "conv2d",
    lambda x, w: ops.conv2d(x, w, pad_mode="pad", padding=(1, 0, 2, 1)),
    (1, 1, 4, 4),
    (2, 1, 3, 3),
    torch=lambda t, x, w: t.nn.functional.conv2d(t.nn.functional.pad(x, (2, 1, 1, 0)), w),
    case="four paddings",
)
row("conv", ops.conv, (1, 2, 3, 4, 3), (2, 2, 2, 2, 2), torch=lambda t, x, w: t.nn.functional.conv3d(x, w))
IMAGE = apart(-2.0, 2.4, 2, 1, 5, 6)
SIGNAL = apart(-2.0, 2.4, 2, 2, 7)
PAD = {"pad_mode": "pad"}
row("max_pool1d", lambda x: ops.max_pool1d(x, 2), SIGNAL, torch=lambda t, x: t.max_pool1d(x, 2))
row("max_pool1d", lambda x: ops.max_pool1d(x, 3, 1), SIGNAL, torch=lambda t, x: t.max_pool1d(x, 3, 1), case="overlap")
row("max_pool2d", lambda x: ops.max_pool2d(x, 2), IMAGE, torch=lambda t, x: t.max_pool2d(x, 2))
row(
    "max_pool2d",
    lambda x: ops.max_pool2d(x, (3, 2), (2, 1), padding=(1, 0), dilation=(1, 2), **PAD),
    IMAGE,
    torch=lambda t, x: t.max_pool2d(x, (3, 2), (2, 1), (1, 0), (1, 2)),
    case="all options",
)
row(
    "max_pool2d",
    lambda x: ops.max_pool2d(x, 2, pad_mode="same"),
    IMAGE,
    torch=lambda t, x: t.max_pool2d(x, 2, ceil_mode=True),
    case="same",
)
row("sum_pool1d", lambda x: ops.sum_pool1d(x, 2), SIGNAL, torch=lambda t, x: t.nn.functional.avg_pool1d(x, 2) * 2)
row(
    "sum_pool2d",
    lambda x: ops.sum_pool2d(x, 3, 2, padding=1, **PAD),
    IMAGE,
    torch=lambda t, x: t.nn.functional.avg_pool2d(x, 3, 2, 1) * 9,
)
row("avg_pool1d", lambda x: ops.avg_pool1d(x, 2), SIGNAL, torch=lambda t, x: t.nn.functional.avg_pool1d(x, 2))
row("avg_pool2d", lambda x: ops.avg_pool2d(x, 2, 1), IMAGE, torch=lambda t, x: t.nn.functional.avg_pool2d(x, 2, 1))
for include in (True, False):
    row(
        "avg_pool2d",
        lambda x, i=include: ops.avg_pool2d(x, 3, 2, padding=1, count_include_pad=i, **PAD),
        IMAGE,
        torch=lambda t, x, i=include: t.nn.functional.avg_pool2d(x, 3, 2, 1, count_include_pad=i),
        case=f"padded count_include_pad={include}",
    )
row(
    "avg_pool2d",
    lambda x: ops.avg_pool2d(x, 2, pad_mode="same"),
    IMAGE,
    torch=lambda t, x: t.nn.functional.avg_pool2d(x, 2, ceil_mode=True, count_include_pad=False),
    case="same",
)

# --- complex numbers and Fourier transforms ---------------------------------------------------------------------------


def parts(z: Any) -> Any:
    """Real and imaginary part, because gradients are compared with respect to real numbers."""
    return ops.real(z), ops.imag(z)


def their_parts(z: Any) -> Any:
    return z.real, z.imag


def joined(a: Any, b: Any) -> Any:
    """a + ib."""
    return a + b * 1j


for length in (6, 5, 1):
    row("fft", lambda x: parts(ops.fft(x)), (2, length), torch=lambda t, x: their_parts(t.fft.fft(x)), case=f"{length}")
    row(
        "rfft", lambda x: parts(ops.rfft(x)), (length,), torch=lambda t, x: their_parts(t.fft.rfft(x)), case=f"{length}"
    )
row("rfft", lambda x: ops.irfft(ops.rfft(x) * 2.0, 5), (2, 5), torch=lambda t, x: x * 2, case="and back")
for name in ("fft", "ifft"):
    row(
        name,
        lambda a, b, f=name: parts(getattr(ops, f)(joined(a, b))),
        M,
        M,
        torch=lambda t, a, b, f=name: their_parts(getattr(t.fft, f)(t.complex(a, b))),
        case="complex",
    )
for length in (6, 7):
    row(
        "irfft",
        lambda a, b, n=length: ops.irfft(joined(a, b), n),
        M,
        M,
        torch=lambda t, a, b, n=length: t.fft.irfft(t.complex(a, b), n),
        case=f"{length}",
    )
row("real", lambda a, b: ops.real(joined(a, b) * joined(b, a)), M, M, torch=lambda t, a, b: a * b - b * a)
row("imag", lambda a, b: ops.imag(joined(a, b) * joined(a, b)), M, M, torch=lambda t, a, b: 2 * a * b)
row("conj", lambda a, b: parts(ops.conj(joined(a, b))), M, M, torch=lambda t, a, b: (a, -b))

# --- more of arithmetic, trigonometry ---------------------------------------------------------------------------------

UNIT = apart(-0.93, 0.92, *M)  # inside of the domains of arc functions
for name in ("tan", "asin", "acos", "sinh", "cosh", "asinh", "atanh", "erfinv"):
    row(name, getattr(ops, name), UNIT, torch=lambda t, x, f=name: getattr(t, f)(x), order=3)
row("acosh", ops.acosh, between(1.2, 3.0, *M), torch=lambda t, x: x.acosh(), order=3)
for name in ("exp2", "erfc", "deg2rad", "rad2deg"):
    row(name, getattr(ops, name), M, torch=lambda t, x, f=name: getattr(t, f)(x))
for name in ("log2", "log10", "reciprocal"):
    row(name, getattr(ops, name), POSITIVE, torch=lambda t, x, f=name: getattr(t, f)(x), order=3)
row("logit", ops.logit, between(0.1, 0.9, *M), torch=lambda t, x: x.logit(), order=3)
row("logit", lambda x: ops.logit(x, 0.3), apart(0.05, 0.97, *M), torch=lambda t, x: x.logit(0.3), case="eps")
for name in ("atan2", "hypot", "logaddexp"):
    row(name, getattr(ops, name), KINKED, apart(-1.9, 2.2, *M), torch=lambda t, x, y, f=name: getattr(t, f)(x, y))
    row(
        name,
        getattr(ops, name),
        KINKED,
        between(0.5, 2.0, 4),
        torch=lambda t, x, y, f=name: getattr(t, f)(x, y),
        case="broadcast",
    )
row("logaddexp", ops.logaddexp, ZEROS, ZEROS, torch=lambda t, x, y: t.logaddexp(x, y), case="ties", order=3)
row("logcumsumexp", lambda x: ops.logcumsumexp(x, 1), ZEROS, torch=lambda t, x: x.logcumsumexp(1), case="ties")
row("fmod", ops.fmod, KINKED, between(0.7, 0.75, *M), torch=lambda t, x, y: x.fmod(y))
row("copysign", ops.copysign, KINKED, apart(-1.9, 2.2, *M), torch=lambda t, x, y: x.copysign(y))
row("heaviside", lambda x: ops.heaviside(x, 0.5), KINKED, order=0)
row("heaviside", lambda v: ops.heaviside(ms.Tensor([-1.0, 0.0, 2.0, 0.0], "float64"), v), M, case="values")
for name in ("fmax", "fmin"):
    row(name, getattr(ops, name), KINKED, apart(-1.9, 2.2, *M), torch=lambda t, x, y, f=name: getattr(t, f)(x, y))
for name in ("trunc", "signbit", "isinf"):
    row(name, getattr(ops, name), KINKED, torch=lambda t, x, f=name: getattr(t, f)(x), order=0)
row("frac", ops.frac, KINKED, torch=lambda t, x: x.frac())
row("sgn", ops.sgn, KINKED, order=0)
row("sgn", lambda a, b: parts(ops.sgn(joined(a, b))), M, M, case="complex")
row("isclose", ops.isclose, KINKED, KINKED, torch=lambda t, x, y: t.isclose(x, y), order=0)
row("float_power", lambda x: ops.float_power(x, 1.5), POSITIVE, torch=lambda t, x: x.float_power(1.5))
row("lerp", ops.lerp, M, M, between(0.1, 0.9, *M), torch=lambda t, x, y, w: x.lerp(y, w))
row(
    "addcmul",
    lambda x, y, z: ops.addcmul(x, y, z, 0.5),
    M,
    M,
    M,
    torch=lambda t, x, y, z: t.addcmul(x, y, z, value=0.5),
)
row(
    "addcdiv",
    lambda x, y, z: ops.addcdiv(x, y, z, 2),
    M,
    M,
    POSITIVE,
    torch=lambda t, x, y, z: t.addcdiv(x, y, z, value=2),
)

# --- more of axes -----------------------------------------------------------------------------------------------------

row("ravel", ops.ravel, CUBE, torch=lambda t, x: x.ravel())
row("permute", lambda x: ops.permute(x, 2, 0, 1), CUBE, torch=lambda t, x: x.permute(2, 0, 1))
row("moveaxis", lambda x: ops.moveaxis(x, (0, 1), (2, 0)), CUBE, torch=lambda t, x: x.moveaxis((0, 1), (2, 0)))
row("expand", lambda x: ops.expand(x, 2, -1, 4), (3, 1), torch=lambda t, x: x.expand(2, -1, 4))
row("repeat_interleave", lambda x: ops.repeat_interleave(x, 2, 1), M, torch=lambda t, x: x.repeat_interleave(2, 1))
row("roll", lambda x: ops.roll(x, (1, -1), (0, 2)), CUBE, torch=lambda t, x: x.roll((1, -1), (0, 2)))
row("roll", lambda x: ops.roll(x, 3), M, torch=lambda t, x: x.roll(3), case="flat")
row("narrow", lambda x: ops.narrow(x, 1, 1, 2), M, torch=lambda t, x: x.narrow(1, 1, 2))
row("chunk", lambda x: ops.chunk(x, 2, 1), M, torch=lambda t, x: x.chunk(2, 1))
row("diff", lambda x: ops.diff(x, 2), M, torch=lambda t, x: x.diff(2))
row("meshgrid", lambda x, y: ops.meshgrid(x, y), (3,), (2,), torch=lambda t, x, y: t.meshgrid(x, y, indexing="xy"))
row("hstack", lambda x, y: ops.hstack([x, y]), M, (3, 2), torch=lambda t, x, y: t.hstack([x, y]))
row("vstack", lambda x, y: ops.vstack([x, y]), M, (4,), torch=lambda t, x, y: t.vstack([x, y]))
row("diagonal", lambda x: ops.diagonal(x, 1, 1, 2), CUBE, torch=lambda t, x: x.diagonal(1, 1, 2))
row("diag", lambda x: ops.diag(x, -1), (4,), torch=lambda t, x: t.diag(x, -1))
row("trace", ops.trace, M, torch=lambda t, x: x.trace())
row("tril", ops.tril, M, torch=lambda t, x: x.tril())
row("triu", lambda x: ops.triu(x, 1), CUBE, torch=lambda t, x: x.triu(1))
row("mT", ops.mT, CUBE, torch=lambda t, x: x.mT)
row("outer", ops.outer, (3,), (4,), torch=lambda t, x, y: t.outer(x, y))
row("inner", ops.inner, M, CUBE, torch=lambda t, x, y: t.inner(x, y))
row("dot", ops.dot, M, (4,), torch=lambda t, x, y: x @ y)
row("mm", ops.mm, M, (4, 2), torch=lambda t, x, y: t.mm(x, y))
row("mv", ops.mv, M, (4,), torch=lambda t, x, y: t.mv(x, y))
row(
    "addmm",
    lambda x, y, z: ops.addmm(x, y, z, beta=0.5, alpha=2),
    (3, 2),
    M,
    (4, 2),
    torch=lambda t, x, y, z: t.addmm(x, y, z, beta=0.5, alpha=2),
)
row("addmv", ops.addmv, (3,), M, (4,), torch=lambda t, x, y, z: t.addmv(x, y, z))
row("baddbmm", ops.baddbmm, (2, 3, 2), CUBE, (2, 4, 2), torch=lambda t, x, y, z: t.baddbmm(x, y, z))
row("addbmm", ops.addbmm, (3, 2), CUBE, (2, 4, 2), torch=lambda t, x, y, z: t.addbmm(x, y, z))
row("matrix_power", lambda x: ops.matrix_power(x, 3), (2, 3, 3), torch=lambda t, x: x.matrix_power(3))
for name in ("amax", "amin"):
    row(name, lambda x, f=name: getattr(ops, f)(x, 1), CUBE_APART, torch=lambda t, x, f=name: getattr(t, f)(x, 1))
for name, theirs in {"argmax_with_value": "max", "argmin_with_value": "min"}.items():
    row(
        name,
        lambda x, f=name: getattr(ops, f)(x, 1)[1],
        CUBE_APART,
        torch=lambda t, x, f=theirs: getattr(x, f)(1)[0],
    )
HOLES = np.array([[1.0, np.nan, 3.0, 0.5], [0.2, 0.7, np.nan, 2.0]])
for name in ("nansum", "nanmean"):
    row(
        name,
        lambda x, f=name: getattr(ops, f)(ops.where(ms.Tensor(np.isnan(HOLES)), np.nan, x), 1),
        (2, 4),
        torch=lambda t, x, f=name: getattr(t, f)(t.where(t.tensor(np.isnan(HOLES)), t.nan, x), 1),
    )
row("count_nonzero", ops.count_nonzero, KINKED, torch=lambda t, x: x.count_nonzero(), order=0)
row("median", lambda x: ops.median(x, 1)[0], CUBE_APART, torch=lambda t, x: x.median(1)[0])
row("median", ops.median, CUBE_APART, torch=lambda t, x: x.median(), case="all")
row(
    "quantile",
    lambda x: ops.quantile(x, [0.3, 0.8], 1),
    KINKED,
    torch=lambda t, x: x.quantile(t.tensor([0.3, 0.8], dtype=t.float64), 1),
)
for name in ("topk", "top_k"):
    row(name, lambda x, f=name: getattr(ops, f)(x, 2)[0], KINKED, torch=lambda t, x: x.topk(2)[0])
for name in ("cummax", "cummin"):
    row(name, lambda x, f=name: getattr(ops, f)(x, 1)[0], KINKED, torch=lambda t, x, f=name: getattr(x, f)(1)[0])
row("cumprod", lambda x: ops.cumprod(x, 1), M, torch=lambda t, x: x.cumprod(1), order=3)
row("cumprod", lambda x: ops.cumprod(x, 1), ZEROS, torch=lambda t, x: x.cumprod(1), case="zeros")
row("logcumsumexp", lambda x: ops.logcumsumexp(x, 1), M, torch=lambda t, x: x.logcumsumexp(1))
for p in (1, 2, 3, 1.5, -2, float("inf")):
    row(
        "norm",
        lambda x, p=p: ops.norm(x, p, 1),
        KINKED,
        torch=lambda t, x, p=p: t.linalg.vector_norm(x, p, 1),
        case=f"{p}",
    )
row("norm", lambda x: ops.norm(x, 2, 1), ZEROS, torch=lambda t, x: t.linalg.vector_norm(x, 2, 1), case="2 of zeros")
row("norm", lambda x: ops.norm(x, "fro", (0, 1)), M, torch=lambda t, x: t.linalg.matrix_norm(x), case="fro")
row("norm", lambda x: ops.norm(x, 1, (0, 1)), KINKED, torch=lambda t, x: t.linalg.matrix_norm(x, 1), case="matrix")
row("clip_by_value", lambda x: ops.clip_by_value(x, -1.0, 1.2), KINKED, torch=lambda t, x: x.clip(-1.0, 1.2))
row("clip_by_norm", lambda x: ops.clip_by_norm(x, 0.5), M, torch=lambda t, x: x * (0.5 / t.linalg.vector_norm(x)))
row(
    "clip_by_global_norm",
    lambda x, y: ops.clip_by_global_norm([x, y], 0.5),
    M,
    (4,),
    torch=lambda t, x, y: [z * (0.5 / (x.square().sum() + y.square().sum()).sqrt()) for z in (x, y)],
)

# --- positions, masks, patches ----------------------------------------------------------------------------------------

ALONG = [[0, 2, -1, 1], [1, 1, 0, -3]]
THEIR_ALONG = [[0, 2, 2, 1], [1, 1, 0, 0]]
row(
    "gather_elements",
    lambda x: ops.gather_elements(x, 0, ms.Tensor(ALONG)),
    M,
    torch=lambda t, x: x.gather(0, t.tensor(THEIR_ALONG)),
)
row("gather_nd", lambda x: ops.gather_nd(x, [[0, 1], [1, 2], [0, 1]]), CUBE, torch=lambda t, x: x[[0, 1, 0], [1, 2, 1]])
row("index_select", lambda x: ops.index_select(x, 1, [2, 0, 2]), M, torch=lambda t, x: x[:, [2, 0, 2]])
row(
    "scatter",
    lambda x, y: ops.scatter(x, 0, [[0, 2, 2, 1]], y),
    M,
    (1, 4),
    torch=lambda t, x, y: x.scatter(0, t.tensor([[0, 2, 2, 1]]), y),
)
row(
    "scatter",
    lambda x, y: ops.scatter(x, 0, [1, 1, 0], y),
    (3,),
    (3,),
    torch=lambda t, x, y: t.stack([y[2], y[1], x[2]]),
    case="twice in one place",
)
row(
    "tensor_scatter_elements",
    lambda x, y: ops.tensor_scatter_elements(x, [[0, 2, 2, 1]], y),
    M,
    (1, 4),
    torch=lambda t, x, y: x.scatter(0, t.tensor([[0, 2, 2, 1]]), y),
)
row(
    "scatter_add",
    lambda x, y: ops.scatter_add(x, 0, ms.Tensor(ALONG), y),
    M,
    (2, 4),
    torch=lambda t, x, y: x.scatter_add(0, t.tensor(THEIR_ALONG), y),
)
row(
    "tensor_scatter_add",
    lambda x, y: ops.tensor_scatter_add(x, [[0], [1], [0]], y),
    M,
    (3, 4),
    torch=lambda t, x, y: x.index_add(0, t.tensor([0, 1, 0]), y),
)
row(
    "index_put",
    lambda x, y: ops.index_put(x, (ms.Tensor([0, 1]), ms.Tensor([2, 0])), y),
    CUBE,
    (2, 4),
    torch=lambda t, x, y: x.index_put((t.tensor([0, 1]), t.tensor([2, 0])), y),
)
row(
    "index_fill",
    lambda x: ops.index_fill(x, 1, [0, 2], 0.5),
    M,
    torch=lambda t, x: x.index_fill(1, t.tensor([0, 2]), 0.5),
)
CHOSEN = [True, False, True, True]
row("masked_fill", lambda x: ops.masked_fill(x, x > 0.0, 0.5), KINKED, torch=lambda t, x: x.masked_fill(x > 0, 0.5))
row(
    "masked_scatter",
    lambda x, y: ops.masked_scatter(x, ms.Tensor(CHOSEN), y),
    M,
    (10,),
    torch=lambda t, x, y: x.masked_scatter(t.tensor(CHOSEN).expand(3, 4), y),
)
row("masked_select", lambda x: ops.masked_select(x, ms.Tensor(CHOSEN)), M, torch=lambda t, x: x[:, CHOSEN].reshape(-1))
row("unique_consecutive", lambda x: ops.unique_consecutive(x), M, torch=lambda t, x: x.reshape(-1), jit=False)
row("searchsorted", lambda v: ops.searchsorted(ms.Tensor([-1.0, 0.0, 1.0]), v), KINKED, order=0)
row("__getitem__", lambda x: x[ms.Tensor(CHOSEN[:3])], M, torch=lambda t, x: x[CHOSEN[:3]], case="mask")
row("__getitem__", lambda x: x[:, ms.Tensor(CHOSEN)], M, torch=lambda t, x: x[:, CHOSEN], case="mask behind a slice")
row(
    "__getitem__",
    lambda x: x[[0, 1, 0], :, [1, 2, 1]],
    CUBE,
    torch=lambda t, x: x[[0, 1, 0], :, [1, 2, 1]],
    case="around",
)
row(
    "__getitem__", lambda x: x[[0, 1, 0], [1, 2, 1]], CUBE, torch=lambda t, x: x[[0, 1, 0], [1, 2, 1]], case="two lists"
)
row(
    "unfold",
    lambda x: ops.unfold(x, (2, 3), 1, 1, 2),
    IMAGE,
    torch=lambda t, x: t.nn.functional.unfold(x, (2, 3), 1, 1, 2),
)
row(
    "fold",
    lambda x: ops.fold(x, (4, 5), 2, 1, 0, 1),
    (2, 8, 12),
    torch=lambda t, x: t.nn.functional.fold(x, (4, 5), 2, 1, 0, 1),
)

# --- random numbers, loops --------------------------------------------------------------------------------------------


def seeded(function: Any, *args: Any) -> Any:
    """Reset the seed before each call, so that every call gives the same random numbers."""
    ops.set_seed(7)
    return function(*args)


row("uniform", lambda a, b: seeded(ops.uniform, (3, 4), a, b), (), (4,), jit=False)
row("normal", lambda a, b: seeded(ops.normal, (3, 4), a, b), (3, 1), (), jit=False)
row("dropout", lambda x: seeded(ops.dropout, x, 0.4), M, jit=False)
row("dropout", lambda x: seeded(ops.dropout, x, 0.4, (1,)), (6, 4), case="shared axes", jit=False)
row("dropout2d", lambda x: seeded(ops.dropout2d, x, 0.6)[0], (2, 4, 2, 3), jit=False)
row("bernoulli", lambda p: seeded(ops.bernoulli, p), between(0.0, 1.0, *M), order=0, jit=False)


def _leaky(carry: Any, x: Any) -> Any:
    carry = 0.5 * carry + ops.tanh(x)
    return carry, carry * x


row("scan", lambda v, x: ops.scan(_leaky, v, x), (3,), (4, 3))
row("scan", lambda v, x: ops.scan(_leaky, v, x, reverse=True), (3,), (4, 3), case="reverse")
row(
    "associative_scan",
    lambda a, b: ops.associative_scan(lambda x, y: (x[0] * y[0], y[0] * x[1] + y[1]), (a, b))[1],
    (5, 3),
    (5, 3),
    torch=lambda t, a, b: t.stack([sum(t.prod(a[s + 1 : n + 1], 0) * b[s] for s in range(n + 1)) for n in range(5)]),
    case="recurrence",
)
row(
    "associative_scan",
    lambda x: ops.associative_scan(ops.matmul, x, 1, True),
    (2, 4, 2, 2),
    torch=lambda t, x: t.stack(
        [functools.reduce(t.matmul, last[1:], last[0]) for last in (x.unbind(1)[: n - 5 : -1] for n in range(4))], 1
    ),
    case="matrices, reverse",
)

# Public functions that have no float input to differentiate by, and where they are tested instead.
for kind in ("avg", "max"):
    for size in (1, 2, 3):
        row(
            f"adaptive_{kind}_pool1d",
            lambda x, k=kind, s=size: getattr(ops, f"adaptive_{k}_pool1d")(x, s),
            apart(-2.0, 2.1, 2, 2, 5),
            torch=lambda t, x, k=kind, s=size: getattr(t.nn.functional, f"adaptive_{k}_pool1d")(x, s),
            case=f"to {size}",
        )
    for sizes in (1, (2, None), (3, 2)):
        row(
            f"adaptive_{kind}_pool2d",
            lambda x, k=kind, s=sizes: getattr(ops, f"adaptive_{k}_pool2d")(x, s),
            apart(-2.0, 2.1, 1, 2, 4, 5),
            torch=lambda t, x, k=kind, s=sizes: getattr(t.nn.functional, f"adaptive_{k}_pool2d")(x, s),
            case=f"to {sizes}",
        )

# --- losses -----------------------------------------------------------------------------------------------------------

SHARES = between(0.05, 0.95, *M)
WEIGHTS = np.array([0.5, 1.0, 2.0, 0.7])
SIGNS = np.array([1.0, -1.0, 1.0])


def loss_row(name: str, *inputs: Any, case: str = "", **options: Any) -> None:
    """A loss with each of its reductions, with torch's name for it."""
    for reduction in ("mean", "sum", "none"):

        def torchs(t: Any, *xs: Any, r: str = reduction) -> Any:
            found = getattr(t.nn.functional, name)(*xs, reduction="none" if r == "mean" else r, **options)
            return found.mean() if r == "mean" else found  # torch warns of kl_div's own mean

        row(
            name,
            lambda *xs, r=reduction: getattr(ops, name)(*xs, reduction=r, **options),
            *inputs,
            torch=torchs,
            case=f"{case} {reduction}".strip(),
        )


loss_row("mse_loss", M, M)
loss_row("l1_loss", KINKED, apart(-1.9, 2.2, *M))
loss_row("huber_loss", KINKED, apart(-4.9, 4.2, *M), delta=0.8)
loss_row("smooth_l1_loss", KINKED, apart(-4.9, 4.2, *M), beta=0.8)
loss_row("binary_cross_entropy", SHARES, between(0.0, 1.0, *M))
loss_row("binary_cross_entropy_with_logits", M, SHARES)
EQUAL_PLACES = np.where(np.eye(3, 4), 0.0, 0.3) + np.linspace(-1.0, 1.0, 12).reshape(3, 4)
for name in ("huber_loss", "smooth_l1_loss"):
    loss_row(name, EQUAL_PLACES, np.linspace(-1.0, 1.0, 12).reshape(3, 4), case="no distance")
loss_row("kl_div", M, SHARES)
row("kl_div", lambda x, y: ops.kl_div(x, y, "batchmean"), M, SHARES, case="batchmean")
TABLE[-1] = TABLE[-1]._replace(torch=lambda t, x, y: t.nn.functional.kl_div(x, y, reduction="batchmean"))
loss_row("poisson_nll_loss", M, between(0.2, 3.0, *M))
loss_row("poisson_nll_loss", POSITIVE, between(1.2, 3.0, *M), case="rate", log_input=False, full=True)
for reduction in ("mean", "sum", "none"):
    row(
        "gaussian_nll_loss",
        lambda x, y, v, r=reduction: ops.gaussian_nll_loss(x, y, v, True, reduction=r),
        M,
        M,
        POSITIVE,
        torch=lambda t, x, y, v, r=reduction: t.nn.functional.gaussian_nll_loss(x, y, v, True, reduction=r),
        case=reduction,
    )
    row(
        "soft_margin_loss",
        lambda x, r=reduction: ops.soft_margin_loss(x, np.sign(KINKED.draw(0)), reduction=r),
        M,
        torch=lambda t, x, r=reduction: t.nn.functional.soft_margin_loss(
            x, t.tensor(np.sign(KINKED.draw(0))), reduction=r
        ),
        case=reduction,
    )
    row(
        "hinge_embedding_loss",
        lambda x, r=reduction: ops.hinge_embedding_loss(x, SIGNS[:, None] * np.ones(M), 0.8, r),
        KINKED,
        torch=lambda t, x, r=reduction: t.nn.functional.hinge_embedding_loss(
            x, t.tensor(SIGNS[:, None] * np.ones(M)), 0.8, reduction=r
        ),
        case=reduction,
    )
    row(
        "margin_ranking_loss",
        lambda x, y, r=reduction: ops.margin_ranking_loss(x, y, SIGNS, 0.3, r),
        apart(-2.0, 2.0, 3),
        apart(-1.3, 1.8, 3),
        torch=lambda t, x, y, r=reduction: t.nn.functional.margin_ranking_loss(x, y, t.tensor(SIGNS), 0.3, reduction=r),
        case=reduction,
    )
    row(
        "cosine_embedding_loss",
        lambda x, y, r=reduction: ops.cosine_embedding_loss(x, y, SIGNS, -0.9, r),
        M,
        M,
        torch=lambda t, x, y, r=reduction: t.nn.functional.cosine_embedding_loss(
            x, y, t.tensor(SIGNS), -0.9, reduction=r
        ),
        case=reduction,
    )
    row(
        "triplet_margin_loss",
        lambda a, b, c, r=reduction: ops.triplet_margin_loss(a, b, c, 2.5, eps=0.01, swap=True, reduction=r),
        M,
        M,
        M,
        torch=lambda t, a, b, c, r=reduction: t.nn.functional.triplet_margin_loss(
            a, b, c, 2.5, eps=0.01, swap=True, reduction=r
        ),
        case=reduction,
    )
    for name, theirs in {"cross_entropy": "cross_entropy", "nll_loss": "nll_loss"}.items():
        row(
            name,
            lambda x, r=reduction, f=name: getattr(ops, f)(x, np.array([0, 3, 1]), WEIGHTS, 3, r),
            M,
            torch=lambda t, x, r=reduction, f=theirs: getattr(t.nn.functional, f)(
                x, t.tensor([0, 3, 1]), t.tensor(WEIGHTS), ignore_index=3, reduction=r
            ),
            case=reduction,
        )


def cubic(x: Any, y: Any) -> Any:
    return ((x - y + 0.01).abs() ** 3).sum(-1) ** (1 / 3)


row(
    "triplet_margin_loss",
    lambda a, b, c: ops.triplet_margin_loss(a, b, c, 2.5, 3.0, 0.01, reduction="none"),
    M,
    M,
    M,
    torch=lambda t, a, b, c: t.relu(cubic(a, b) - cubic(a, c) + 2.5),
    case="of order 3",
)

NOT_A_ROW = {
    **dict.fromkeys(["zeros", "ones", "full", "fill", "arange", "eye", "zeros_like", "ones_like"], "makes constants"),
    **dict.fromkeys(["full_like", "linspace", "rand", "randn", "rand_like", "randn_like"], "makes constants"),
    **dict.fromkeys(["nonzero", "argwhere", "multinomial"], "gives positions: tests/tape/test_tensor_methods.py"),
    **dict.fromkeys(
        ["randint", "randperm", "one_hot", "sequence_mask", "bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not"],
        "integers",
    ),
    **dict.fromkeys(
        ["grad", "value_and_grad", "vjp", "jvp", "jacfwd", "jacrev", "vmap", "recompute"],
        "a transformation of functions",
    ),
    **dict.fromkeys(["assign", "assign_add", "assign_sub"], "writes to a Parameter, for which a gradient is refused"),
    "depend": "gives back its first argument",
    "get_grad": "finds a gradient among others",
    "set_seed": "no Tensors",
    "get_seed": "no Tensors",
}
