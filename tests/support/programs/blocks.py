"""Generator of statements: random operands, and shape and bound of the result."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np

from .operations import KINDS, Row
from .syntax import Let, Type, Var

LARGEST = 20.0  # beyond it, a result is scaled down
MOST = 40  # elements of a result
TIMES = 4  # the longest loop


class Names:
    """Names and bounds of a program, shared by its functions."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.count = 0
        self.bounds: dict[str, float] = {}

    def new(self, first: str, kind: Type, bound: float) -> Var:
        var = Var(f"{first}{self.count}", kind)
        self.count += 1
        self.bounds[var.name] = bound
        return var

    def number(self) -> float:
        """Return a random number with three digits. Elements have two, so that comparisons with it never tie."""
        return round(self.rng.choice((-1, 1)) * (self.rng.randint(20, 160) / 100 + 0.003), 3)


class Block:
    """A function under construction: its statements, and the operands for the next statement.

    Args:
        names: the names of the program.
        params: the arguments of the function.
        around: names from outside: Parameters, Tensors, and values of enclosing functions.
        rules: rules that add a statement, with their frequencies.
    """

    def __init__(
        self, names: Names, params: tuple[Var, ...], around: list[Var], rules: dict[Callable[[Block], bool], int]
    ) -> None:
        self.names, self.rng = names, names.rng
        self.params, self.around, self.rules = params, around, rules
        self.statements: list[Any] = []
        self.own: list[Var] = []
        self.used: set[Var] = set()

    # --- choosing -----------------------------------------------------------------------------------------------------

    def known(self) -> list[Var]:
        return [*self.around, *self.params, *self.own]

    def groups(self) -> list[tuple[int, list[Var]]]:
        """Return groups of possible operands, each with its frequency."""
        of = {first: [v for v in self.around if v.name[0] == first] for first in "psk"}
        outer = [v for v in self.around if not v.is_global]
        return [(5, self.own), (4, list(self.params)), (3, outer), (3, of["p"]), (2, of["s"]), (1, of["k"])]

    def pick(self, test: Callable[[Var], bool]) -> Var | None:
        """Choose an operand: first its group, so that each kind of operand is frequent."""
        groups = [(weight, [v for v in group if test(v)]) for weight, group in self.groups()]
        groups = [(weight, group) for weight, group in groups if group]
        if not groups:
            return None
        (group,) = self.rng.choices([g for _, g in groups], [w for w, _ in groups])
        unused = [v for v in group if v not in self.used]
        return self.rng.choice(unused if unused and self.rng.random() < 0.8 else group)

    def bound(self, var: Var) -> float:
        return self.names.bounds[var.name]

    # --- adding -------------------------------------------------------------------------------------------------------

    def add(self, statement: Any, operands: tuple[Var, ...]) -> None:
        self.statements.append(statement)
        self.own += statement.outs
        self.used |= set(operands)

    def let(self, row: Row, operands: tuple[Var, ...], kind: Type, **settings: Any) -> Var:
        """Add a statement, and return its result. A large result is scaled by a second statement."""
        number = self.names.number()
        bound = row.bound(*[self.bound(v) for v in operands], number)
        options = {"n": number, **settings}
        used = tuple((key, value) for key, value in options.items() if f"{{{key}}}" in row.snncell + row.torch)
        out = self.names.new("v", kind, bound)
        self.add(Let(out, row.name, operands, used), operands)
        if kind.is_float and bound > LARGEST:
            self.own.remove(out)
            return self.scale(out, 2.0)
        return out

    def scale(self, var: Var, bound: float) -> Var:
        """Add a product of `var` and a number with this bound."""
        factor = float(f"{bound / self.bound(var):.2g}")
        out = self.names.new("v", var.type, self.bound(var) * factor)
        self.add(Let(out, "scaled", (var,), (("n", factor),)), (var,))
        return out

    def grow(self, count: int) -> None:
        """Add `count` statements by random rules."""
        rules, weights = list(self.rules), list(self.rules.values())
        tries = 0
        while count and tries < 100:
            (rule,) = self.rng.choices(rules, weights)
            count -= rule(self)
            tries += 1

    # --- ends ---------------------------------------------------------------------------------------------------------

    def join_up(self) -> None:
        """Combine unused results, so that most values affect a result of the function."""
        unused = [v for v in self.own if v.type.is_float and v not in self.used]
        while len(unused) > 1:
            a, b = unused.pop(0), unused.pop(0)
            shape = broadcast_shape(a, b)
            if shape is None or self.rng.random() < 0.1:
                unused.insert(0, b)
                continue
            unused.append(self.let(self.rng.choice(KINDS["binary"][:4]), (a, b), Type(shape)))

    def newest(self, test: Callable[[Var], bool]) -> Var | None:
        """Return the last unused value that passes the test, or else any that does."""
        own = [v for v in self.own if test(v)]
        unused = [v for v in own if v not in self.used]
        if unused:
            return unused[-1]
        return self.rng.choice(own) if own and self.rng.random() < 0.8 else self.pick(test)

    def next_state(self, old: Var) -> Var:
        """Return a value for the state `old` after a step, with the same type and bound."""
        limit = self.bound(old)
        value = self.newest(lambda v: v.type == old.type and self.bound(v) <= limit)
        if not old.type.is_float:
            return value or old
        if value is not None and self.rng.random() < 0.5:
            self.used.add(value)
            return value
        part = self.newest(lambda v: v.type.is_float and broadcast_shape(v, old) == old.type.shape)
        if part is None:
            return old
        if self.bound(part) > 0.4 * limit:
            part = self.scale(part, 0.4 * limit)
        out = self.names.new("v", old.type, limit)
        factor = round(self.rng.uniform(-0.6, 0.6), 3)
        self.add(Let(out, "mix", (old, part), (("n", factor),)), (old, part))
        self.used.add(out)
        return out


def broadcast_shape(*operands: Var) -> tuple[int, ...] | None:
    """Return the shape to which operands broadcast, or None if they do not, or if it is large."""
    try:
        shape = np.broadcast_shapes(*[v.type.shape for v in operands])
    except ValueError:
        return None
    return shape if np.prod(shape) <= MOST and len(shape) <= 3 else None


# --- rules: each adds a statement to a block, if there are operands for it --------------------------------------------


def is_float(v: Var) -> bool:
    return v.type.is_float


def unary(block: Block) -> bool:
    v = block.pick(is_float)
    row = block.rng.choice(KINDS["unary"])
    if v is None or ("{axis}" in row.snncell and not v.type.shape):
        return False
    block.let(row, (v,), v.type, axis=block.rng.randrange(-len(v.type.shape), 0) if v.type.shape else 0)
    return True


def binary(block: Block) -> bool:
    a = block.pick(is_float)
    b = a and block.pick(lambda v: v.type.is_float and broadcast_shape(a, v) is not None)
    if a is None or b is None:
        return False
    shape = broadcast_shape(a, b)
    assert shape is not None
    block.let(block.rng.choice(KINDS["binary"]), (a, b), Type(shape))
    return True


def same(block: Block) -> bool:
    """Add an identity, often of a Parameter."""
    v = block.pick(lambda v: v.name[0] in "ps") if block.rng.random() < 0.6 else block.pick(is_float)
    row = block.rng.choice([*KINDS["same"], *(KINDS["value"] * 3 if v is not None and v.name[0] in "ps" else [])])
    if v is None or (not v.type.shape and row.name in ("concat one", "split one", "pad zero", "tile once", "flatten")):
        return False
    block.let(row, (v,), v.type, shape=v.type.shape, order=tuple(range(len(v.type.shape))))
    return True


def mask(block: Block) -> bool:
    c = block.pick(lambda v: v.type.dtype == "bool")
    if c is None:
        return compare(block)
    row = block.rng.choice(KINDS["mask"])
    operands = [c]
    for _ in range(row.snncell.count("{") - row.snncell.count("{n}") - 1):
        v = block.pick(lambda v: v.type.is_float and broadcast_shape(*operands, v) is not None)
        if v is None:
            return False
        operands.append(v)
    shape = broadcast_shape(*operands)
    assert shape is not None
    block.let(row, tuple(operands), Type(shape))
    return True


def compare(block: Block) -> bool:
    a = block.pick(is_float)
    if a is None:
        return False
    row = block.rng.choice([*KINDS["compare"], *KINDS["compare two"]])
    operands = [a]
    if row.kind == "compare two":
        b = block.pick(lambda v: v.type.is_float and broadcast_shape(a, v) is not None)
        if b is None:
            return False
        operands.append(b)
    shape = broadcast_shape(*operands) if len(operands) > 1 else a.type.shape
    assert shape is not None
    block.let(row, tuple(operands), Type(shape, "int64" if row.name == "to whole" else "bool"))
    return True


def whole(block: Block) -> bool:
    """Add an operation on integers or booleans."""
    dtypes = [kind for kind in ("int64", "bool") if any(v.type.dtype == kind for v in block.known())]
    if not dtypes:
        return compare(block)
    kind = block.rng.choice(dtypes)
    a = block.pick(lambda v: v.type.dtype == kind)
    b = a and block.pick(lambda v: v.type.dtype == kind and broadcast_shape(a, v) is not None)
    if a is None or b is None:
        return compare(block)
    choice = block.rng.random()
    if choice < 0.4:
        block.let(KINDS["as float"][0], (a,), Type(a.type.shape))
    elif kind == "bool" and choice < 0.5:
        block.let(KINDS["not"][0], (a,), a.type)
    else:
        row = block.rng.choice(KINDS["whole" if kind == "int64" else "logic"])
        shape = broadcast_shape(a, b)
        if row.name == "whole product" and block.bound(a) * block.bound(b) > 10_000:
            return False
        assert shape is not None
        block.let(row, (a, b), Type(shape, "bool" if row.name in ("whole above", "whole equal") else kind))
    return True


def reduce(block: Block) -> bool:
    v = block.pick(is_float)
    if v is None or not v.type.shape:
        return False
    kind = block.rng.choice(("reduce", "reduce", "reduce kept", "reduce all"))
    axis = block.rng.randrange(len(v.type.shape))
    left = tuple(n for i, n in enumerate(v.type.shape) if i != axis)
    kept = tuple(1 if i == axis else n for i, n in enumerate(v.type.shape))
    shape = {"reduce": left, "reduce kept": kept, "reduce all": ()}[kind]
    block.let(block.rng.choice(KINDS[kind]), (v,), Type(shape), axis=axis)
    return True


def reshape(block: Block) -> bool:
    v = block.pick(is_float)
    if v is None:
        return False
    old, row = v.type.shape, block.rng.choice(KINDS["reshape"])
    shapes = {
        "turned": (*old[:-2], *old[-2:][::-1]) if len(old) >= 2 else None,
        "flat": (int(np.prod(old)),),
        "expanded": (1, *old) if len(old) < 3 else None,
        "first": old[1:] if old else None,
        "last of last": old[:-1] if old else None,
        "backwards": old or None,
        "first two": (min(2, old[0]), *old[1:]) if old else None,
        "stretched": (2, *old) if len(old) < 3 and np.prod(old) <= MOST / 2 else None,
    }
    shape = shapes[row.name]
    if shape is None:
        return False
    block.let(row, (v,), Type(shape), shape=shape)
    return True


def join(block: Block) -> bool:
    a = block.pick(lambda v: v.type.is_float and 0 < len(v.type.shape) < 3 and np.prod(v.type.shape) <= MOST / 2)
    b = a and block.pick(lambda v: v.type == a.type)
    if a is None or b is None:
        return False
    row = block.rng.choice(KINDS["join"])
    first, *rest = a.type.shape
    block.let(row, (a, b), Type((2 * first, *rest) if row.name == "concat" else (2, first, *rest)))
    return True


def matmul(block: Block) -> bool:
    b = block.pick(lambda v: v.type.is_float and len(v.type.shape) == 2)
    a = b and block.pick(lambda v: v.type.is_float and v.type.shape[-1:] == b.type.shape[:1])
    if a is None or b is None:
        return False
    block.let(KINDS["matmul"][0], (a, b), Type((*a.type.shape[:-1], b.type.shape[1])))
    return True


def pick_rows(block: Block) -> bool:
    index = block.pick(lambda v: v.type.dtype == "int64")
    v = index and block.pick(lambda v: v.type.is_float and bool(v.type.shape))
    if index is None or v is None:
        return False
    shape = (*index.type.shape, *v.type.shape[1:])
    if len(shape) > 3 or np.prod(shape) > MOST:
        return False
    block.let(KINDS["pick"][0], (v, index), Type(shape), length=v.type.shape[0])
    return True


PLAIN: dict[Callable[[Block], bool], int] = {unary: 10, binary: 10, same: 3, mask: 2, compare: 2, whole: 3}
SHAPED: dict[Callable[[Block], bool], int] = {**PLAIN, reduce: 3, reshape: 2, join: 1, matmul: 3, pick_rows: 1}
