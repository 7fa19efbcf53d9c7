"""Syntax tree of a random program: functions of statements, which assign new names (static single assignment).

Every name has one value of a known shape and dtype. Its first letter is its kind: `x` an input, `p` a trained
Parameter, `s` a Parameter that the program writes, `k` a Tensor from outside. All other names are computed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, NamedTuple


class Type(NamedTuple):
    shape: tuple[int, ...]
    dtype: str = "float64"

    @property
    def is_float(self) -> bool:
        return self.dtype == "float64"


class Var(NamedTuple):
    name: str
    type: Type

    @property
    def is_global(self) -> bool:
        return self.name[0] in "psk"


@dataclass(frozen=True)
class Let:
    """`out = op(operands)`: `op` is the name of a row in the table of operations, and `settings` fill its template."""

    out: Var
    op: str
    operands: tuple[Var, ...]
    settings: tuple[tuple[str, Any], ...] = ()

    @property
    def outs(self) -> tuple[Var, ...]:
        return (self.out,)


@dataclass(frozen=True)
class Function:
    """A function of `params`, which can also use all names that are defined before it."""

    name: str
    params: tuple[Var, ...]
    body: tuple[Any, ...]
    results: tuple[Var, ...]


@dataclass(frozen=True)
class Custom:
    """A Cell with a custom backward pass.

    Attributes:
        forward: a function of the inputs.
        backward: a function of the inputs, the outputs and their gradients. It returns the gradients of float inputs
            that are not in `silent`, then of `weights`.
        weights: the Parameters in `internal_params`.
        silent: the inputs whose gradient is None.
    """

    name: str
    forward: Function
    backward: Function
    weights: tuple[Var, ...] = ()
    silent: tuple[Var, ...] = ()


@dataclass(frozen=True)
class Neuron:
    """A Cell for MultiStep: `step` is a function from the input and the states to the output and the new states."""

    name: str
    step: Function
    checkpoint_every: int | None


@dataclass(frozen=True)
class Call:
    """`outs = custom(operands)`."""

    outs: tuple[Var, ...]
    custom: str
    operands: tuple[Var, ...]


@dataclass(frozen=True)
class Scan:
    """`(carry), (ys) = ops.scan(step, init, xs)`; the params of `step` are the states, then the slices of xs."""

    outs: tuple[Var, ...]
    step: Function
    init: tuple[Var, ...]
    xs: tuple[Var, ...]
    reverse: bool = False
    checkpoint_every: int | None = None


@dataclass(frozen=True)
class Run:
    """`y, (states) = nn.MultiStep(neuron)(x, *states)`; without `states` they start at zero."""

    outs: tuple[Var, ...]
    neuron: str
    x: Var
    states: tuple[Var, ...] = ()


@dataclass(frozen=True)
class Gradient:
    """`outs = grad(function)(at)`: gradients of the summed result for all arguments and the Parameters `weights`."""

    outs: tuple[Var, ...]
    function: Function
    at: tuple[Var, ...]
    weights: tuple[Var, ...] = ()


@dataclass(frozen=True)
class Assign:
    """`ops.assign(target, value)`."""

    target: Var
    value: Var
    outs: tuple[Var, ...] = ()


@dataclass(frozen=True)
class Program:
    """A function `main` of `x...`, with all globals that it uses.

    Attributes:
        values: the elements of inputs, Parameters and Tensors from outside, by name.
        sources: for each input that is the value of a Parameter, the expression of this value, by name of the input.
        linear: whether custom backward passes are linear in the output gradients. If not, second-order gradients are
            not compared.
    """

    seed: int
    main: Function
    globals: tuple[Var, ...]
    customs: tuple[Custom, ...]
    neurons: tuple[Neuron, ...]
    values: dict[str, Any] = field(hash=False)
    sources: dict[str, str] = field(hash=False)
    linear: bool

    def named(self, first: str) -> list[Var]:
        return [v for v in self.globals if v.name.startswith(first)]


# --- walking ----------------------------------------------------------------------------------------------------------


def nodes(tree: Any) -> Iterator[Any]:
    """Iterate over all statements, functions, Cells and Vars in a tree, parents first."""
    if isinstance(tree, Var) or is_dataclass(tree):
        yield tree
    if is_dataclass(tree):
        for part in fields(tree):
            yield from nodes(getattr(tree, part.name))
    elif type(tree) is tuple:
        for part in tree:
            yield from nodes(part)


def rebuild(tree: Any, change: Any) -> Any:
    """Apply `change` to every node of a tree, leaves first, and return the new tree."""
    if isinstance(tree, Var):
        return change(tree)
    if is_dataclass(tree):
        parts = {f.name: rebuild(getattr(tree, f.name), change) for f in fields(tree)}  # type: ignore[arg-type]
        return change(replace(tree, **parts))  # type: ignore[type-var]
    return tuple([rebuild(part, change) for part in tree]) if type(tree) is tuple else tree


def rename(tree: Any, old: Var, new: Var) -> Any:
    """Replace a Var in a tree."""
    return rebuild(tree, lambda node: new if isinstance(node, Var) and node == old else node)
