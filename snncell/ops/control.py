"""Loops over time, and writes to Parameters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any

from snncell.base.arguments.kinds import Count, Numbers, Own
from snncell.base.arguments.shown import came
from snncell.compiler.nan_replay import in_step
from snncell.compiler.scan import run as scanned
from snncell.errors import ArgumentError, DTypeError, ShapeError
from snncell.ops.base import as_int, astype
from snncell.ops.shape import stack, unstack
from snncell.tape import structure
from snncell.tape.custom import as_read
from snncell.tape.parameter import Parameter
from snncell.tape.state import TRACING
from snncell.tape.taps import Events, Note, NotedResults, noting
from snncell.tape.tensor import Tensor
from snncell.tape.tracing import BodyTrace


def scan(
    f: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    xs: Any,
    *,
    reverse: bool = False,
    checkpoint_every: Count | None = None,
) -> tuple[Any, Any]:
    """Run `carry, y = f(carry, x)` for each step of `xs` and collect the ys.

    `f` is traced once. It becomes one kernel for the forward and one for the reverse, with the loop inside, if it is
    elementwise and its states have one shape; products of states (rows of one batch) and matrices that are the same at
    every step are allowed beside that. Any other `f` is carried out step by step over the same plan. What depends only
    on Tensors that are the same at every step is computed once, before the loop; Tensors that `f` captures have their
    gradients. Without a carry there is no loop: all steps run at once, as those of `snncell.vmap`. `snncell.explain`
    shows what became of it.

    Args:
        f: one step. The carry it returns must have the structure, shapes and dtypes of the one it got.
        init: the first carry: Tensors in any structure.
        xs: a Tensor (T, ...), or a structure of Tensors with the same T.
        reverse: go from the last step to the first; ys stay in the order of xs.
        checkpoint_every: how many steps apart the carry is stored for the reverse, which computes those between
            again. Without it, each step stores the least from which the reverse can be computed, states or values
            computed from them; `snncell.explain` names it.

    Returns:
        The last carry, and the ys stacked along a first axis of length T.

    Raises:
        ShapeError: if the lengths of xs differ or a carry changes its shape, naming it.
        DTypeError: if a carry changes its dtype.
        ArgumentError: for xs without a Tensor or of length 0.
    """
    return run_scan(f, init, xs, reverse=reverse, checkpoint_every=checkpoint_every)


def run_scan(
    f: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    xs: Any,
    *,
    reverse: bool = False,
    checkpoint_every: int | None = None,
    who: str = "scan",
    names: Sequence[str] | None = None,
    one_by_one: bool = False,
) -> tuple[Any, Any]:
    """Run `scan` for a caller that has other names in errors: `who` for itself, `names` for the states.

    `one_by_one` calls `f` at each step, for hooks and `bprop_debug`, as `testing.unfused()` does for all loops.
    """
    if checkpoint_every is not None and as_int(checkpoint_every, who, "checkpoint_every") < 1:
        raise ArgumentError(f"{who}: checkpoint_every is at least 1, not {checkpoint_every}.")
    if TRACING.unfused or one_by_one:
        return _step_by_step(f, init, xs, reverse=reverse, who=who, names=names)
    leaves, tree = _sequences(xs, who)
    carry, tree_of_carry = structure.flatten(init)
    tree_of_ys: Any = None
    noted = NotedResults(())

    def step(states: list[Tensor], slices: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        nonlocal tree_of_ys, noted
        before = structure.unflatten(tree_of_carry, states)
        notes: list[Note] = []
        with noting(notes):
            after, y = _one_step(f, before, structure.unflatten(tree, slices), who, names)
        ys, tree_of_ys = structure.flatten(y)
        noted_results = NotedResults(notes, ys)
        if isinstance(TRACING.trace, BodyTrace):  # and not run again, to look for NaN
            noted = noted_results
            TRACING.trace.noted.update(id(x._data) for x in noted.extra)
        return structure.flatten(after)[0], [
            *ys,
            *noted_results.extra,
        ]  # what monitors note leaves the loop behind the ys

    events: Events = {}
    last, ys = scanned(
        step, carry, leaves, backwards=reverse, every=checkpoint_every, who=who, names=names or (), events=events
    )
    outputs = noted.pass_on(ys, events, (leaves[0].shape[0],))
    return structure.unflatten(tree_of_carry, last), structure.unflatten(tree_of_ys, outputs)


def _step_by_step(
    f: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    xs: Any,
    *,
    reverse: bool,
    who: str,
    names: Sequence[str] | None,
) -> tuple[Any, Any]:
    """Call `f` for one step after the other, on the tape."""
    leaves, tree = _sequences(xs, who)
    carry, collected = as_read(init), []
    steps = list(enumerate(zip(*[unstack(leaf) for leaf in leaves], strict=True)))
    for number, slices in reversed(steps) if reverse else steps:
        with in_step(who, number):
            carry, y = as_read(_one_step(f, carry, structure.unflatten(tree, slices), who, names))
        collected.append(structure.flatten(y))
    if reverse:
        collected.reverse()  # results stay in the order of xs
    columns = [stack(column) for column in zip(*[ys for ys, _ in collected], strict=True)]
    return carry, structure.unflatten(collected[0][1], columns)


def _sequences(xs: Any, who: str) -> tuple[list[Tensor], Any]:
    """The Tensors of xs, which have one number of steps, and the structure around them."""
    leaves, tree = structure.flatten(xs)
    if not leaves:
        raise ArgumentError(f"{who}: xs holds no Tensor, so there is no number of steps.")
    if any(leaf.ndim == 0 for leaf in leaves) or len({leaf.shape[0] for leaf in leaves}) != 1:
        raise ShapeError(f"{who}: xs need one common first axis; their shapes are {[leaf.shape for leaf in leaves]}.")
    if not leaves[0].shape[0]:
        raise ArgumentError(f"{who}: xs have no steps (a first axis of length 0).")
    return leaves, tree


def _one_step(f: Any, before: Any, x: Any, who: str, names: Sequence[str] | None) -> tuple[Any, Any]:
    """Call `f`, and check what it returns."""
    result = f(before, x)
    if not isinstance(result, tuple) or len(result) != 2:
        raise ArgumentError(f"{who}: f returns (carry, y), not {type(result).__name__}.")
    after, y = result
    _check_carry(before, after, who, names)
    for value in structure.statics(structure.flatten(y)[1]):
        if value is not None:
            raise ArgumentError(
                f"{who}: f returned {value!r} in y, which cannot be stacked over time. Return a Tensor (or None)."
            )
    return after, y


def _check_carry(before: Any, after: Any, who: str, names: Sequence[str] | None) -> None:
    old, old_tree = structure.flatten(before)
    new, new_tree = structure.flatten(after)
    if old_tree != new_tree and names is not None and len(after) == len(names):
        for name, value in zip(names, after, strict=True):
            if not isinstance(value, Tensor):
                fix = f"for example ops.full({name}.shape, {value!r:.40})"
                if not isinstance(value, (bool, int, float)):
                    fix = "and each further Tensor of the state as a state of its own: construct(self, x, v, w)"
                raise ShapeError(
                    f"{who}: state {name} is a {type(value).__name__}, {value!r:.40}, after a step. Return a Tensor, "
                    f"{fix}."
                )
    if old_tree != new_tree:
        raise ShapeError(
            f"{who}: the carry came in as {_outline(before)} and went out as {_outline(after)}; f must return a carry "
            f"of the same structure."
        )
    for position, (a, b) in enumerate(zip(old, new, strict=True)):
        state = f"state {position if names is None else names[position]}"
        if a.shape != b.shape:
            mend = (
                f"Give it its full shape from the start, for instance ops.zeros({b.shape})."
                if _broadcasts(a.shape, b.shape)
                else f"Return it in the shape {a.shape} that it came in: look in the step for a sum, a mean or an "
                f"index that takes axes of it away (keepdims=True keeps them), or begin with the shape that is meant."
            )
            raise ShapeError(f"{who}: {state} has shape {a.shape} before a step and {b.shape} after it. {mend}")
        if a.dtype != b.dtype:
            mend = (
                f"Convert it in the step: {'state' if names is None else names[position]}.astype('{a.dtype.name}')."
                if b.dtype.name == "bool"
                else f"Begin with {b.dtype.name} (ops.zeros_like(x) has the dtype of x, ops.zeros(shape) is float32; "
                f"gradients are checked in float64), or convert what widens it in the step."
                if a.dtype.is_float
                else f"Convert it back, .astype({a.dtype.name!r}), or begin with {b.dtype.name}."
            )
            raise DTypeError(f"{who}: {state} has dtype {a.dtype} before a step and {b.dtype} after it. {mend}")


def _broadcasts(shape: tuple[int, ...], to: tuple[int, ...]) -> bool:
    """True if a state of the first shape grows into the second one by broadcasting."""
    return len(shape) <= len(to) and all(n in (1, m) for n, m in zip(shape[::-1], to[::-1], strict=False))


def _outline(tree: Any) -> str:
    if isinstance(tree, Tensor):
        return f"{tree.dtype}{list(tree.shape)}"
    if isinstance(tree, (tuple, list)):
        return f"({', '.join(map(_outline, tree))})"
    if isinstance(tree, dict):
        return "{" + ", ".join(f"{key!r}: {_outline(x)}" for key, x in tree.items()) + "}"
    return type(tree).__name__


def depend(value: Tensor, expr: Any) -> Tensor:
    """`value`, after `expr`: what stands before in the text is done before, in a jitted function too.

    MindSpore's, whose graphs need to be told; here it says what is so anyway.

    Args:
        value: a Tensor.
        expr: what has been carried out, such as the result of an optimiser.

    Example:
        >>> p = Parameter(1.0, name="p")
        >>> ops.depend(Tensor(2.0), ops.assign(p, 3.0)).item(), p.item()
        (2.0, 3.0)
    """
    result: Tensor = as_read(value)
    return result


def assign(variable: Annotated[Parameter, Own()], value: Numbers) -> Parameter:
    """Replace a Parameter's value: now, or inside a jitted function when it runs.

    Raises:
        ShapeError: if the shape differs.
        DTypeError: if the value would lose precision.
    """
    if not isinstance(variable, Parameter):
        raise DTypeError(f"assign: variable is a Parameter, not {came(variable)}.")
    variable.assign(value if isinstance(value, Tensor) else Tensor(value, variable.dtype))
    return variable


def assign_add(variable: Annotated[Parameter, Own()], value: Numbers) -> Parameter:
    """Add to a Parameter's value."""
    if not isinstance(variable, Parameter):
        raise DTypeError(f"assign_add: variable is a Parameter, not {came(variable)}.")
    return assign(variable, astype(variable + value, variable.dtype))


def assign_sub(variable: Annotated[Parameter, Own()], value: Numbers) -> Parameter:
    """Subtract from a Parameter's value."""
    if not isinstance(variable, Parameter):
        raise DTypeError(f"assign_sub: variable is a Parameter, not {came(variable)}.")
    return assign(variable, astype(variable - value, variable.dtype))
