"""Statements of one operation: what is chosen for its operands, and the shape and the bound of what it gives."""

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
    """The common ground of a program's functions: names are given once, and every value has a bound."""

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
        """A number that no element is equal to, which have two digits: where both are compared, there is no tie."""
        return round(self.rng.choice((-1, 1)) * (self.rng.randint(20, 160) / 100 + 0.003), 3)


class Block:
    """The statements of a function while they are made, and what can be used by the next one.

    Args:
        names: those of the program.
        params: the function's arguments.
        around: what is known outside of it: Parameters, Tensors from outside, and what functions around it computed.
        rules: which kinds of statements there may be, with how often each is tried.
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
        """The possible operands, by what they are to the function, with how often each is taken."""
        of = {first: [v for v in self.around if v.name[0] == first] for first in "psk"}
        outer = [v for v in self.around if not v.is_global]
        return [(5, self.own), (4, list(self.params)), (3, outer), (3, of["p"]), (2, of["s"]), (1, of["k"])]

    def pick(self, test: Callable[[Var], bool]) -> Var | None:
        """An operand; first is chosen what it is, so that each kind of operand comes often."""
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
        """Add a statement; its result, scaled where it would become large."""
        number = self.names.number()
        bound = row.bound(*[self.bound(v) for v in operands], number)
        given = {"n": number, **settings}
        kept = tuple((key, value) for key, value in given.items() if f"{{{key}}}" in row.snncell + row.torch)
        out = self.names.new("v", kind, bound)
        self.add(Let(out, row.name, operands, kept), operands)
        if kind.is_float and bound > LARGEST:
            self.own.remove(out)
            return self.scaled(out, 2.0)
        return out

    def scaled(self, var: Var, bound: float) -> Var:
        """`var` times a number, so that it stays below `bound`."""
        factor = float(f"{bound / self.bound(var):.2g}")
        out = self.names.new("v", var.type, self.bound(var) * factor)
        self.add(Let(out, "scaled", (var,), (("n", factor),)), (var,))
        return out

    def grow(self, count: int) -> None:
        """Add `count` statements by the rules."""
        rules, weights = list(self.rules), list(self.rules.values())
        tries = 0
        while count and tries < 100:
            (rule,) = self.rng.choices(rules, weights)
            count -= rule(self)
            tries += 1

    # --- ends ---------------------------------------------------------------------------------------------------------

    def join_up(self) -> None:
        """Make of results that nothing has used fewer, so that most of what is computed reaches an end."""
        loose = [v for v in self.own if v.type.is_float and v not in self.used]
        while len(loose) > 1:
            a, b = loose.pop(0), loose.pop(0)
            shape = joint(a, b)
            if shape is None or self.rng.random() < 0.1:
                loose.insert(0, b)
                continue
            loose.append(self.let(self.rng.choice(KINDS["binary"][:4]), (a, b), Type(shape)))

    def newest(self, test: Callable[[Var], bool]) -> Var | None:
        """A result that nothing has used yet, or else any that fits."""
        own = [v for v in self.own if test(v)]
        unused = [v for v in own if v not in self.used]
        if unused:
            return unused[-1]
        return self.rng.choice(own) if own and self.rng.random() < 0.8 else self.pick(test)

    def towards(self, old: Var) -> Var:
        """A value that can take the place of `old`, and stays below its bound from step to step."""
        limit = self.bound(old)
        found = self.newest(lambda v: v.type == old.type and self.bound(v) <= limit)
        if not old.type.is_float:
            return found or old
        if found is not None and self.rng.random() < 0.5:
            self.used.add(found)
            return found
        part = self.newest(lambda v: v.type.is_float and joint(v, old) == old.type.shape)
        if part is None:
            return old
        if self.bound(part) > 0.4 * limit:
            part = self.scaled(part, 0.4 * limit)
        out = self.names.new("v", old.type, limit)
        factor = round(self.rng.uniform(-0.6, 0.6), 3)
        self.add(Let(out, "mix", (old, part), (("n", factor),)), (old, part))
        self.used.add(out)
        return out


def joint(*operands: Var) -> tuple[int, ...] | None:
    """The shape that operands broadcast to, if they do, and it is small."""
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
    b = a and block.pick(lambda v: v.type.is_float and joint(a, v) is not None)
    if a is None or b is None:
        return False
    shape = joint(a, b)
    assert shape is not None
    block.let(block.rng.choice(KINDS["binary"]), (a, b), Type(shape))
    return True


def same(block: Block) -> bool:
    """Something that leaves a value as it is, of a Parameter above all."""
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
        v = block.pick(lambda v: v.type.is_float and joint(*operands, v) is not None)
        if v is None:
            return False
        operands.append(v)
    shape = joint(*operands)
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
        b = block.pick(lambda v: v.type.is_float and joint(a, v) is not None)
        if b is None:
            return False
        operands.append(b)
    shape = joint(*operands) if len(operands) > 1 else a.type.shape
    assert shape is not None
    block.let(row, tuple(operands), Type(shape, "int64" if row.name == "to whole" else "bool"))
    return True


def whole(block: Block) -> bool:
    """Something of integers or of booleans."""
    there = [kind for kind in ("int64", "bool") if any(v.type.dtype == kind for v in block.known())]
    if not there:
        return compare(block)
    kind = block.rng.choice(there)
    a = block.pick(lambda v: v.type.dtype == kind)
    b = a and block.pick(lambda v: v.type.dtype == kind and joint(a, v) is not None)
    if a is None or b is None:
        return compare(block)
    choice = block.rng.random()
    if choice < 0.4:
        block.let(KINDS["as float"][0], (a,), Type(a.type.shape))
    elif kind == "bool" and choice < 0.5:
        block.let(KINDS["not"][0], (a,), a.type)
    else:
        row = block.rng.choice(KINDS["whole" if kind == "int64" else "logic"])
        shape = joint(a, b)
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


def picked(block: Block) -> bool:
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
SHAPED: dict[Callable[[Block], bool], int] = {**PLAIN, reduce: 3, reshape: 2, join: 1, matmul: 3, picked: 1}
