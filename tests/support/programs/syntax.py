"""The syntax of a random program: statements that each give names to new values, in functions that see what is around.

Every name stands for one value of a known shape and dtype, and is given once. What the names of a program begin with
says what they are: `x` an input, `p` a Parameter that is trained, `s` a Parameter that is written to, `k` a Tensor from
outside; everything else is computed.
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
    """`out = op(operands)`, where `op` names a row of the table of operations, and `settings` fill its template."""

    out: Var
    op: str
    operands: tuple[Var, ...]
    settings: tuple[tuple[str, Any], ...] = ()

    @property
    def outs(self) -> tuple[Var, ...]:
        return (self.out,)


@dataclass(frozen=True)
class Function:
    """A function of `params`, which also sees every name that is known where it stands."""

    name: str
    params: tuple[Var, ...]
    body: tuple[Any, ...]
    results: tuple[Var, ...]


@dataclass(frozen=True)
class Custom:
    """A Cell with a custom reverse.

    Attributes:
        forward: a function of the inputs.
        reverse: a function of the inputs, the outputs and their gradients; its results are gradients of those inputs
            that are floats and not in `silent`, then of `weights`.
        weights: the Parameters in `internal_params`.
        silent: the inputs for which the reverse gives None.
    """

    name: str
    forward: Function
    reverse: Function
    weights: tuple[Var, ...] = ()
    silent: tuple[Var, ...] = ()


@dataclass(frozen=True)
class Neuron:
    """A Cell of one step, as MultiStep takes it: `step` is a function of the input and the states, and gives the output
    and the states; it sees Parameters and Tensors from outside."""

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
    """`(carry), (ys) = ops.scan(step, init, xs)`; the step's params are the states and then the slices of xs."""

    outs: tuple[Var, ...]
    step: Function
    init: tuple[Var, ...]
    xs: tuple[Var, ...]
    reverse: bool = False
    checkpoint_every: int | None = None


@dataclass(frozen=True)
class Run:
    """`y, (states) = nn.MultiStep(neuron)(x, *states)`; without `states` they begin at zero."""

    outs: tuple[Var, ...]
    neuron: str
    x: Var
    states: tuple[Var, ...] = ()


@dataclass(frozen=True)
class Gradient:
    """`outs = grad(function)(at)`, the gradients of the sum of its result with respect to all its arguments, and to
    the Parameters `weights`."""

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
    """A function `main` of `x...`, with everything that it sees.

    Attributes:
        values: the elements of inputs, Parameters and Tensors from outside, by name.
        given: inputs that are called with the value of a Parameter: the input's name, and how it is written.
        linear: whether custom reverses are linear in what arrives; if not, no second order is asked of it.
    """

    seed: int
    main: Function
    globals: tuple[Var, ...]
    customs: tuple[Custom, ...]
    neurons: tuple[Neuron, ...]
    values: dict[str, Any] = field(hash=False)
    given: dict[str, str] = field(hash=False)
    linear: bool

    def named(self, first: str) -> list[Var]:
        return [v for v in self.globals if v.name.startswith(first)]


# --- walking ----------------------------------------------------------------------------------------------------------


def nodes(tree: Any) -> Iterator[Any]:
    """Every statement, function, Cell and Var in a tree, from the top."""
    if isinstance(tree, Var) or is_dataclass(tree):
        yield tree
    if is_dataclass(tree):
        for part in fields(tree):
            yield from nodes(getattr(tree, part.name))
    elif type(tree) is tuple:
        for part in tree:
            yield from nodes(part)


def rebuilt(tree: Any, change: Any) -> Any:
    """The tree with `change` applied to every node, leaves first."""
    if isinstance(tree, Var):
        return change(tree)
    if is_dataclass(tree):
        parts = {part.name: rebuilt(getattr(tree, part.name), change) for part in fields(tree)}  # type: ignore[arg-type]
        return change(replace(tree, **parts))  # type: ignore[type-var]
    return tuple([rebuilt(part, change) for part in tree]) if type(tree) is tuple else tree


def renamed(tree: Any, old: Var, new: Var) -> Any:
    """The tree with another Var in the place of `old`."""
    return rebuilt(tree, lambda node: new if isinstance(node, Var) and node == old else node)
