"""Table of the operations in random programs, with their text in snncell and in PyTorch.

Templates have the operands `{0}`, `{1}`, ... and settings: `{n}` a number, `{shape}` the shape of the result, `{axis}`.
The bound of a result follows from the bounds of the operands, so that values stay in a range with small rounding
errors. Numbers keep arguments away from jumps and kinks of an operation, because rounding would decide there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class Row(NamedTuple):
    """An operation.

    Attributes:
        kind: the rule of the generator that makes statements of it.
        name: the name in a program.
        snncell, torch: templates.
        bound: the bound of its elements from the bounds of the operands and the number `n`.
    """

    kind: str
    name: str
    snncell: str
    torch: str
    bound: Callable[..., float]


TABLE: dict[str, Row] = {}
KINDS: dict[str, list[Row]] = {}


def row(kind: str, name: str, snncell: str, torch: str, bound: Callable[..., float]) -> None:
    assert name not in TABLE, name
    TABLE[name] = Row(kind, name, snncell, torch, bound)
    KINDS.setdefault(kind, []).append(TABLE[name])


# --- of one float, elementwise ----------------------------------------------------------------------------------------

row("unary", "neg", "-{0}", "-{0}", lambda b, n: b)
row("unary", "scaled", "{0} * {n}", "{0} * {n}", lambda b, n: b * abs(n))
row("unary", "shifted", "{0} + {n}", "{0} + {n}", lambda b, n: b + abs(n))
row("unary", "from number", "{n} - {0}", "{n} - {0}", lambda b, n: b + abs(n))
row("unary", "by number", "{0} / {n}", "{0} / {n}", lambda b, n: b / abs(n))
row("unary", "sin", "ops.sin({0})", "torch.sin({0})", lambda b, n: 1.0)
row("unary", "cos", "ops.cos({0})", "torch.cos({0})", lambda b, n: 1.0)
row("unary", "tanh", "ops.tanh({0})", "torch.tanh({0})", lambda b, n: 1.0)
row("unary", "sigmoid", "ops.sigmoid({0})", "torch.sigmoid({0})", lambda b, n: 1.0)
row("unary", "atan", "ops.atan({0})", "torch.atan({0})", lambda b, n: 1.6)
row("unary", "erf", "ops.erf({0})", "torch.erf({0})", lambda b, n: 1.0)
row("unary", "softplus", "ops.softplus({0})", "torch.nn.functional.softplus({0})", lambda b, n: b + 1.0)
row("unary", "silu", "ops.silu({0})", "torch.nn.functional.silu({0})", lambda b, n: b)
row("unary", "mish", "ops.mish({0})", "torch.nn.functional.mish({0})", lambda b, n: b)
row("unary", "softsign", "ops.softsign({0})", "torch.nn.functional.softsign({0})", lambda b, n: 1.0)
row("unary", "logsigmoid", "ops.logsigmoid({0})", "torch.nn.functional.logsigmoid({0})", lambda b, n: b + 1.0)
row("unary", "gelu", "ops.gelu({0})", "torch.nn.functional.gelu({0})", lambda b, n: b)
row("unary", "elu", "ops.elu({0} - {n})", "torch.nn.functional.elu({0} - {n})", lambda b, n: b + abs(n))
row("unary", "celu", "ops.celu({0} - {n}, 0.5)", "torch.nn.functional.celu({0} - {n}, 0.5)", lambda b, n: b + abs(n))
row("unary", "selu", "ops.selu({0} - {n})", "torch.nn.functional.selu({0} - {n})", lambda b, n: 2 * (b + abs(n)))
row("unary", "hardtanh", "ops.hardtanh({0} - {n})", "torch.nn.functional.hardtanh({0} - {n})", lambda b, n: 1.0)
row("unary", "hardsigmoid", "ops.hardsigmoid({0} - {n})", "torch.clamp(({0} - {n}) / 6 + 0.5, 0, 1)", lambda b, n: 1.0)
row(
    "unary",
    "hardswish",
    "ops.hardswish({0} - {n})",
    "torch.nn.functional.hardswish({0} - {n})",
    lambda b, n: b + abs(n),
)
row(
    "unary",
    "hardshrink",
    "ops.hardshrink({0} - {n})",
    "torch.nn.functional.hardshrink({0} - {n})",
    lambda b, n: b + abs(n),
)
row(
    "unary",
    "softshrink",
    "ops.softshrink({0} - {n})",
    "torch.nn.functional.softshrink({0} - {n})",
    lambda b, n: b + abs(n),
)
row("unary", "square", "ops.square({0})", "torch.square({0})", lambda b, n: b * b)
row("unary", "cube", "{0} ** 3", "{0} ** 3", lambda b, n: b**3)
row("unary", "root", "ops.sqrt({0} * {0} + 1.0)", "torch.sqrt({0} * {0} + 1.0)", lambda b, n: b + 1.0)
row("unary", "log", "ops.log({0} * {0} + 1.5)", "torch.log({0} * {0} + 1.5)", lambda b, n: b + 1.0)
row("unary", "bell", "ops.exp(-({0} * {0}))", "torch.exp(-({0} * {0}))", lambda b, n: 1.0)
row("unary", "hill", "{n} / ({0} ** 2 + 1.0)", "{n} / ({0} ** 2 + 1.0)", lambda b, n: abs(n))
row("unary", "abs", "ops.abs({0} - {n})", "torch.abs({0} - {n})", lambda b, n: b + abs(n))
row("unary", "relu", "ops.relu({0} - {n})", "torch.relu({0} - {n})", lambda b, n: b + abs(n))
row("unary", "at least", "ops.maximum({0}, {n})", "torch.clamp({0}, min={n})", lambda b, n: max(b, abs(n)))
row("unary", "at most", "ops.minimum({0}, {n})", "torch.clamp({0}, max={n})", lambda b, n: max(b, abs(n)))
row("unary", "clip", "ops.clip({0}, {n} - 1.0, {n})", "torch.clamp({0}, {n} - 1.0, {n})", lambda b, n: abs(n) + 1.0)
row("unary", "sign", "ops.sign({0} - {n})", "torch.sign({0} - {n})", lambda b, n: 1.0)
row("unary", "floor", "ops.floor({0} * 2.0 - {n})", "torch.floor({0} * 2.0 - {n})", lambda b, n: 2 * b + abs(n) + 1)
row("unary", "stop", "ops.stop_gradient({0})", "{0}.detach().clone()", lambda b, n: b)
row("unary", "softmax", "ops.softmax({0}, {axis})", "torch.softmax({0}, {axis})", lambda b, n: 1.0)
row("unary", "cumsum", "ops.cumsum({0}, {axis})", "torch.cumsum({0}, {axis})", lambda b, n: 6 * b)
row("unary", "flip", "ops.flip({0}, {axis})", "torch.flip({0}, [{axis}])", lambda b, n: b)
row("unary", "tan", "ops.tan(ops.tanh({0}))", "torch.tan(torch.tanh({0}))", lambda b, n: 1.6)
row("unary", "asin", "ops.asin(ops.tanh({0}) * 0.9)", "torch.asin(torch.tanh({0}) * 0.9)", lambda b, n: 1.2)
row("unary", "acos", "ops.acos(ops.tanh({0}) * 0.9)", "torch.acos(torch.tanh({0}) * 0.9)", lambda b, n: 2.7)
row("unary", "sinh", "ops.sinh(ops.tanh({0}))", "torch.sinh(torch.tanh({0}))", lambda b, n: 1.2)
row("unary", "cosh", "ops.cosh(ops.tanh({0}))", "torch.cosh(torch.tanh({0}))", lambda b, n: 1.6)
row("unary", "asinh", "ops.asinh({0})", "torch.asinh({0})", lambda b, n: b)
row("unary", "acosh", "ops.acosh({0} * {0} + 1.5)", "torch.acosh({0} * {0} + 1.5)", lambda b, n: b + 2.0)
row("unary", "atanh", "ops.atanh(ops.tanh({0}) * 0.9)", "torch.atanh(torch.tanh({0}) * 0.9)", lambda b, n: 1.5)
row("unary", "exp2", "ops.exp2(-({0} * {0}))", "torch.exp2(-({0} * {0}))", lambda b, n: 1.0)
row("unary", "log2", "ops.log2({0} * {0} + 1.5)", "torch.log2({0} * {0} + 1.5)", lambda b, n: b + 1.0)
row("unary", "log10", "ops.log10({0} * {0} + 1.5)", "torch.log10({0} * {0} + 1.5)", lambda b, n: b + 1.0)
row("unary", "reciprocal", "ops.reciprocal({0} * {0} + 1.0)", "torch.reciprocal({0} * {0} + 1.0)", lambda b, n: 1.0)
row(
    "unary",
    "logit",
    "ops.logit(ops.sigmoid({0}) * 0.9 + 0.05)",
    "torch.logit(torch.sigmoid({0}) * 0.9 + 0.05)",
    lambda b, n: 3.0,
)
row("unary", "trunc", "ops.trunc({0} * 2.0 - {n})", "torch.trunc({0} * 2.0 - {n})", lambda b, n: 2 * b + abs(n) + 1)

# Operations that are 0 at 0 for all settings, so that backward passes may apply them to output gradients. A backward
# pass that returned a gradient for an output gradient of 0 would depend on whether a framework calls it at all.
LINEAR = ("neg", "scaled", "by number")
ODD = (*LINEAR, "sin", "silu", "mish", "softsign", "gelu", "tanh", "atan", "erf", "square", "cube")

# --- of two floats, with broadcasting ---------------------------------------------------------------------------------

row("binary", "add", "{0} + {1}", "{0} + {1}", lambda a, b, n: a + b)
row("binary", "sub", "{0} - {1}", "{0} - {1}", lambda a, b, n: a + b)
row("binary", "mul", "{0} * {1}", "{0} * {1}", lambda a, b, n: a * b)
row("binary", "div", "{0} / ({1} * {1} + 1.0)", "{0} / ({1} * {1} + 1.0)", lambda a, b, n: a)
row("binary", "larger", "ops.maximum({0}, {1} + {n})", "torch.maximum({0}, {1} + {n})", lambda a, b, n: a + b + abs(n))
row("binary", "smaller", "ops.minimum({0}, {1} + {n})", "torch.minimum({0}, {1} + {n})", lambda a, b, n: a + b + abs(n))
row("binary", "mix", "{0} * {n} + {1}", "{0} * {n} + {1}", lambda a, b, n: a * abs(n) + b)
row("binary", "angle", "ops.atan2({0}, {1} * {1} + 1.0)", "torch.atan2({0}, {1} * {1} + 1.0)", lambda a, b, n: 1.6)
row(
    "binary",
    "length",
    "ops.hypot({0}, {1} * {1} + 1.0)",
    "torch.hypot({0}, {1} * {1} + 1.0)",
    lambda a, b, n: a + b * b + 1.0,
)
row("binary", "log of sum", "ops.logaddexp({0}, {1})", "torch.logaddexp({0}, {1})", lambda a, b, n: a + b + 0.7)
row(
    "binary",
    "power",
    "({0} ** 2 + 1.0) ** ops.tanh({1})",
    "({0} ** 2 + 1.0) ** torch.tanh({1})",
    lambda a, b, n: a * a + 1,
)
row("mask", "where", "ops.where({0}, {1}, {2})", "torch.where({0}, {1}, {2})", lambda c, a, b, n: max(a, b))
row(
    "mask", "where or number", "ops.select({0}, {1}, {n})", "torch.where({0}, {1}, {n})", lambda c, a, n: max(a, abs(n))
)

# --- integers and booleans --------------------------------------------------------------------------------------------

row("compare", "above", "{0} > {n}", "{0} > {n}", lambda b, n: 1.0)
row("compare", "below", "{0} <= {n}", "{0} <= {n}", lambda b, n: 1.0)
row(
    "compare",
    "to whole",
    "ops.floor({0} * 3.0 + {n}).astype('int64')",
    "torch.floor({0} * 3.0 + {n}).long()",
    lambda b, n: 3 * b + 2,
)
row("compare two", "above other", "{0} > {1} + {n}", "{0} > {1} + {n}", lambda a, b, n: 1.0)
row("whole", "whole sum", "{0} + {1}", "{0} + {1}", lambda a, b, n: a + b)
row("whole", "whole product", "{0} * {1}", "{0} * {1}", lambda a, b, n: a * b)
row("whole", "whole above", "{0} > {1}", "{0} > {1}", lambda a, b, n: 1.0)
row("whole", "whole equal", "ops.equal({0}, {1})", "torch.eq({0}, {1})", lambda a, b, n: 1.0)
row("logic", "and", "ops.logical_and({0}, {1})", "torch.logical_and({0}, {1})", lambda a, b, n: 1.0)
row("logic", "or", "ops.logical_or({0}, {1})", "torch.logical_or({0}, {1})", lambda a, b, n: 1.0)
row("logic", "xor", "{0} ^ {1}", "{0} ^ {1}", lambda a, b, n: 1.0)
row("as float", "as float", "{0}.astype('float64')", "{0}.double()", lambda b, n: b)
row("not", "not", "ops.logical_not({0})", "torch.logical_not({0})", lambda b, n: 1.0)

# --- the same values again --------------------------------------------------------------------------------------------

SAME = {
    "astype": "{0}.astype({0}.dtype)",
    "cast": "ops.cast({0}, 'float64')",
    "reshape": "{0}.reshape({shape})",
    "broadcast_to": "ops.broadcast_to({0}, {shape})",
    "transpose": "ops.transpose({0}, {order})",
    "expand no axis": "ops.expand_dims({0}, ())",
    "concat one": "ops.concat([{0}])",
    "split one": "ops.split({0}, [{0}.shape[0]])[0]",
    "pad zero": "ops.pad({0}, (0, 0))",
    "tile once": "ops.tile({0}, (1,))",
    "to the first": "{0} ** 1",
    "plus": "+{0}",
    "conj": "ops.conj({0})",
    "real": "ops.real({0})",
    "all of it": "{0}[...]",
    "times one": "{0} * 1.0",
    "plus zero": "{0} + 0.0",
    "clip nowhere": "ops.clip({0}, -1000.0, 1000.0)",
    "flatten": "ops.flatten({0}, 0, 0)",
}
for _name, _template in SAME.items():
    row("same", _name, _template, "{0} * 1", lambda b, n: b)
row("value", "value", "{0}.value()", "{0} * 1", lambda b, n: b)

# --- shapes -----------------------------------------------------------------------------------------------------------

row("reduce", "sum", "ops.sum({0}, {axis})", "torch.sum({0}, {axis})", lambda b, n: 6 * b)
row("reduce", "mean", "ops.mean({0}, {axis})", "torch.mean({0}, {axis})", lambda b, n: b)
row("reduce", "logsumexp", "ops.logsumexp({0}, {axis})", "torch.logsumexp({0}, {axis})", lambda b, n: b + 2)
row("reduce kept", "sum kept", "{0}.sum({axis}, keepdims=True)", "{0}.sum({axis}, keepdim=True)", lambda b, n: 6 * b)
row("reduce kept", "mean kept", "{0}.mean({axis}, keepdims=True)", "{0}.mean({axis}, keepdim=True)", lambda b, n: b)
row("reduce all", "sum of all", "{0}.sum()", "{0}.sum()", lambda b, n: 30 * b)
row("reduce all", "mean of all", "ops.mean({0})", "torch.mean({0})", lambda b, n: b)
row("reshape", "turned", "ops.swapaxes({0}, -1, -2)", "torch.swapaxes({0}, -1, -2)", lambda b, n: b)
row("reshape", "flat", "{0}.reshape({shape})", "{0}.reshape({shape})", lambda b, n: b)
row("reshape", "expanded", "ops.expand_dims({0}, 0)", "{0}.unsqueeze(0)", lambda b, n: b)
row("reshape", "first", "{0}[0]", "{0}[0]", lambda b, n: b)
row("reshape", "last of last", "{0}[..., -1]", "{0}[..., -1]", lambda b, n: b)
row("reshape", "backwards", "{0}[::-1]", "torch.flip({0}, [0])", lambda b, n: b)
row("reshape", "first two", "{0}[:2]", "{0}[:2]", lambda b, n: b)
row("reshape", "stretched", "ops.broadcast_to({0}, {shape})", "torch.broadcast_to({0}, {shape})", lambda b, n: b)
row("join", "concat", "ops.concat(({0}, {1}))", "torch.cat(({0}, {1}))", lambda a, b, n: max(a, b))
row("join", "stack", "ops.stack(({0}, {1}))", "torch.stack(({0}, {1}))", lambda a, b, n: max(a, b))
row("matmul", "matmul", "{0} @ {1}", "{0} @ {1}", lambda a, b, n: 3 * a * b)
row("pick", "picked", "ops.gather({0}, {1} % {length}, 0)", "{0}[{1} % {length}]", lambda a, b, n: a)
