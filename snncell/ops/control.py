"""Control flow: loops over time, parallel scans, `vmap`, `Map` over tuples, and assignment to Parameters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any

from snncell.base.arguments.kinds import Count, Numbers, Own
from snncell.base.arguments.shown import came, show
from snncell.compiler.nan_replay import in_step
from snncell.compiler.scan import run_scan as scanned
from snncell.errors import ArgumentError, DTypeError, ShapeError
from snncell.ops.base import as_axis, as_int, astype
from snncell.ops.shape import concat, flip, moveaxis, reshape, stack, unstack
from snncell.tape import structure
from snncell.tape.hooks import Events, Note, NotedResults
from snncell.tape.parameter import Parameter
from snncell.tape.primitive import as_read
from snncell.tape.state import TRACING, settings
from snncell.tape.tensor import Tensor, snapshot
from snncell.tape.tracing import BodyTrace
from snncell.tape.transforms import wraps

__all__ = ["HyperMap", "Map", "assign", "assign_add", "assign_sub", "associative_scan", "depend", "scan", "vmap"]


def scan(
    f: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    xs: Any,
    *,
    reverse: bool = False,
    checkpoint_every: Count | None = None,
) -> tuple[Any, Any]:
    """Loop over time: run `carry, y = f(carry, x)` for each step of `xs` and stack the ys.

    You can use `scan` to write a neuron, a recurrent layer or any other recurrence. `f` is traced once, so it must not
    depend on the values of Tensors by `if` or `while`. Tensors that `f` captures get gradients.

    If `f` is elementwise and its states have one shape, the compiler fuses the forward loop into one kernel and the
    backward loop into another. `f` may also multiply states (rows of one batch) by matrices that are the same at
    every step. Any other `f` runs step by step on a precompiled plan. Instructions that are the same at every step are
    hoisted. Without a carry all steps run at once, as in `snncell.vmap`. `snncell.explain` shows the plan.

    Args:
        f: one step. The returned carry must have the structure, shapes and dtypes of the carry that `f` received.
        init: the first carry, Tensors in any structure.
        xs: a Tensor (T, ...), or a structure of Tensors with the same T.
        reverse: run from the last step to the first. The ys keep the order of xs.
        checkpoint_every: the number of steps from one saved carry to the next. The backward pass recomputes the steps
            between them, which saves memory. By default each step saves as few values as the backward pass needs.
    Returns: The last carry, and the ys stacked along a first axis of length T.
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
    """`scan` for a caller `who` with state `names`. `one_by_one` calls `f` at each step: for hooks, `bprop_debug`."""
    if checkpoint_every is not None and as_int(checkpoint_every, who, "checkpoint_every") < 1:
        raise ArgumentError(f"{who}: checkpoint_every is at least 1, not {checkpoint_every}.")
    if TRACING.unfused or one_by_one:
        return _step_by_step(f, init, xs, reverse, who, names)
    leaves, tree = _steps_of(xs, who)
    carry, tree_of_carry = structure.flatten(init)
    tree_of_ys: Any = None
    noted = NotedResults(())

    def step(states: list[Tensor], slices: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        nonlocal tree_of_ys, noted
        before = structure.unflatten(tree_of_carry, states)
        notes: list[Note] = []
        with settings(notes=notes):
            after, y = _one_step(f, before, structure.unflatten(tree, slices), who, names)
        ys, tree_of_ys = structure.flatten(y)
        noted_results = NotedResults(notes, ys)
        if isinstance(TRACING.trace, BodyTrace):  # not when the step is replayed to find a NaN
            noted = noted_results
            TRACING.trace.noted.update(id(x._data) for x in noted.extra)
        return structure.flatten(after)[0], [*ys, *noted_results.extra]  # values recorded by monitors follow the ys

    events: Events = {}
    last, ys = scanned(
        step, carry, leaves, backwards=reverse, every=checkpoint_every, who=who, names=names or (), events=events
    )
    outputs = noted.pass_on(ys, events, (leaves[0].shape[0],))
    return structure.unflatten(tree_of_carry, last), structure.unflatten(tree_of_ys, outputs)


def _step_by_step(f: Any, init: Any, xs: Any, reverse: bool, who: str, names: Sequence[str] | None) -> tuple[Any, Any]:
    """Call `f` for each step in Python, on the tape."""
    leaves, tree = _steps_of(xs, who)
    carry, collected = as_read(init), []
    steps = list(enumerate(zip(*[unstack(leaf) for leaf in leaves], strict=True)))
    for number, slices in reversed(steps) if reverse else steps:
        with in_step(who, number):
            carry, y = as_read(_one_step(f, carry, structure.unflatten(tree, slices), who, names))
        collected.append(structure.flatten(y))
    if reverse:
        collected.reverse()  # results keep the order of xs
    columns = [stack(column) for column in zip(*[ys for ys, _ in collected], strict=True)]
    return carry, structure.unflatten(collected[0][1], columns)


def _steps_of(xs: Any, who: str) -> tuple[list[Tensor], Any]:
    """The Tensors of xs, checked for a common number of steps, and their structure."""
    leaves, tree = structure.flatten(xs)
    if not leaves:
        raise ArgumentError(f"{who}: xs contains no Tensor, so the number of steps is unknown.")
    if any(leaf.ndim == 0 for leaf in leaves) or len({leaf.shape[0] for leaf in leaves}) != 1:
        raise ShapeError(f"{who}: xs need one common first axis; their shapes are {[leaf.shape for leaf in leaves]}.")
    if not leaves[0].shape[0]:
        raise ArgumentError(f"{who}: xs have no steps (a first axis of length 0).")
    return leaves, tree


def _one_step(f: Any, before: Any, x: Any, who: str, names: Sequence[str] | None) -> tuple[Any, Any]:
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
                    fix = "and each further Tensor of the state as a separate state: construct(self, x, v, w)"
                raise ShapeError(
                    f"{who}: state {name} is a {type(value).__name__}, {value!r:.40}, after a step. Return a Tensor, "
                    f"{fix}."
                )
    if old_tree != new_tree:
        raise ShapeError(
            f"{who}: the carry came in as {_outline_carry(before)} and went out as {_outline_carry(after)}; f must "
            f"return a carry of the same structure."
        )
    for position, (a, b) in enumerate(zip(old, new, strict=True)):
        state = f"state {position if names is None else names[position]}"
        if a.shape != b.shape:
            pairs = zip(a.shape[::-1], b.shape[::-1], strict=False)
            fix = (
                f"Give it its full shape from the start, for instance ops.zeros({b.shape})."
                if a.ndim <= b.ndim and all(n in (1, m) for n, m in pairs)
                else f"Return it with its original shape {a.shape}: look in the step for a sum, a mean or an index "
                f"that drops axes (keepdims=True keeps them), or start with the intended shape."
            )
            raise ShapeError(f"{who}: {state} has shape {a.shape} before a step and {b.shape} after it. {fix}")
        if a.dtype != b.dtype:
            fix = (
                f"Convert it in the step: {'state' if names is None else names[position]}.astype('{a.dtype.name}')."
                if b.dtype.name == "bool"
                else f"Start with {b.dtype.name} (ops.zeros_like(x) has the dtype of x, ops.zeros(shape) is float32; "
                f"gradients are checked in float64), or convert the operand that widens it in the step."
                if a.dtype.is_float
                else f"Convert it back, .astype({a.dtype.name!r}), or start with {b.dtype.name}."
            )
            raise DTypeError(f"{who}: {state} has dtype {a.dtype} before a step and {b.dtype} after it. {fix}")


def _outline_carry(tree: Any) -> str:
    if isinstance(tree, Tensor):
        return f"{tree.dtype}{list(tree.shape)}"
    if isinstance(tree, (tuple, list)):
        return f"({', '.join(map(_outline_carry, tree))})"
    if isinstance(tree, dict):
        return "{" + ", ".join(f"{key!r}: {_outline_carry(x)}" for key, x in tree.items()) + "}"
    return type(tree).__name__


def associative_scan(fn: Callable[[Any, Any], Any], elements: Any, axis: int = 0, reverse: bool = False) -> Any:
    """Parallel scan: all prefixes of an associative function along an axis, in about 2 log2(T) large operations.

    y[0] = x[0] and y[t] = fn(y[t - 1], x[t]), where fn(fn(a, b), c) = fn(a, fn(b, c)). You can use it for linear
    recurrences, as in state space models, and for products of matrices. It combines pairs of neighbouring steps, then
    pairs of these, and so on: about 2 T combinations. Their order, and so the rounding, differs from a loop.

    On a CPU, prefer `scan` or `nn.MultiStep` for an elementwise recurrence, because they keep its state in a register.
    On one core, they were 2.5 to 22 times as fast for 16,384 steps of 1 to 512 neurons. The parallel scan is faster if
    a loop would run step by step, for example 12 times for 16,384 products of 16 x 16 matrices. From about 64 x 64 on
    it is slower, because it computes two products per step. A GPU has not been measured.

    Args:
        fn: combines two structures like `elements`, which hold several steps along `axis`, step by step: for example
            `a + b`, or `a @ b` for matrices (T, N, N). It must keep structure, shapes and dtypes.
        elements: a Tensor, or nested tuples, lists and dicts of Tensors, with the same length T along `axis`.
        axis: the axis of time, in each Tensor.
        reverse: start at the last step: y[T - 1] = x[T - 1] and y[t] = fn(y[t + 1], x[t]).
    Returns: The prefixes, in the structure, shapes and dtypes of `elements`.
    Source: G. E. Blelloch (1990), Prefix sums and their applications; name and meaning as in `jax.lax`.
    Example:
        >>> a, b = Tensor([0.5, 0.5, 0.5]), Tensor([1.0, 1.0, 1.0])  # h[t] = a[t] h[t - 1] + b[t], from h[-1] = 0
        >>> ops.associative_scan(lambda x, y: (x[0] * y[0], y[0] * x[1] + y[1]), (a, b))[1].tolist()
        [1.0, 1.5, 1.75]
    """
    leaves, tree = structure.flatten(structure.with_tensors(elements))
    if not leaves:
        raise ArgumentError(f"associative_scan: elements must contain a Tensor, but {came(elements)} has none.")
    axes = [as_axis(axis, x.ndim, "associative_scan") for x in leaves]
    if len({x.shape[n] for x, n in zip(leaves, axes, strict=True)}) != 1:
        raise ShapeError(
            f"associative_scan: elements need one common length along axis {axis}; their shapes are "
            f"{[x.shape for x in leaves]}."
        )

    def combine(first: list[Tensor], second: list[Tensor]) -> list[Tensor]:
        before = structure.unflatten(tree, first)
        after = as_read(fn(before, structure.unflatten(tree, second)))
        _check_combined(before, after, axis)
        return structure.flatten(after)[0]

    def flipped(xs: list[Tensor]) -> list[Tensor]:
        return [flip(x, n) for x, n in zip(xs, axes, strict=True)] if reverse else xs

    prefixes = flipped(_prefixes(combine, flipped([snapshot(x) for x in leaves]), axes))
    return structure.unflatten(tree, prefixes)


def _check_combined(before: Any, after: Any, axis: int) -> None:
    (old, old_tree), (new, new_tree) = structure.flatten(before), structure.flatten(after)
    if old_tree != new_tree:
        raise ArgumentError(
            f"associative_scan: fn returned {_outline_carry(after)} for slices {_outline_carry(before)}. Return the "
            f"structure of its arguments."
        )
    for x, y in zip(old, new, strict=True):
        if x.shape != y.shape:
            raise ShapeError(
                f"associative_scan: fn returned a Tensor of shape {y.shape} for slices of shape {x.shape}. It must "
                f"combine slice by slice along axis {axis}, without sums or indices that change this shape; broadcast "
                f"elements to their full shape before."
            )
        if x.dtype != y.dtype:
            raise DTypeError(
                f"associative_scan: fn returned {y.dtype} for slices of {x.dtype}. Convert elements to {y.dtype} "
                f"before, or the result back: .astype({x.dtype.name!r})."
            )


def _prefixes(combine: Callable[..., list[Tensor]], xs: list[Tensor], axes: list[int]) -> list[Tensor]:
    """Combine pairs of steps, scan the results, which are the odd prefixes, and combine them with the even steps."""
    steps = xs[0].shape[axes[0]]
    if steps < 2:
        return xs

    def select(tensors: list[Tensor], first: int, end: int, step: int = 1) -> list[Tensor]:
        return [x[(slice(None),) * n + (slice(first, end, step),)] for x, n in zip(tensors, axes, strict=True)]

    odd = _prefixes(combine, combine(select(xs, 0, steps - 1, 2), select(xs, 1, steps, 2)), axes)
    even = [select(xs, 0, 1)]
    if steps > 2:
        even.append(combine(select(odd, 0, (steps - 1) // 2), select(xs, 2, steps, 2)))
    return [_interleave(concat(parts, n), y, n) for *parts, y, n in zip(*even, odd, axes, strict=True)]


def _interleave(even: Tensor, odd: Tensor, axis: int) -> Tensor:
    """even[0], odd[0], even[1], ... along an axis; `even` may have one more."""
    pairs, rest = odd.shape[axis], (slice(None),) * axis
    both = stack([even[(*rest, slice(pairs))], odd], axis + 1)
    both = reshape(both, (*odd.shape[:axis], 2 * pairs, *odd.shape[axis + 1 :]))
    return concat([both, even[(*rest, slice(pairs, None))]], axis) if even.shape != odd.shape else both


def vmap(fn: Annotated[Callable[..., Any], Own()], in_axes: Any = 0, out_axes: Any = 0) -> Callable[..., Any]:
    """Vectorise a function: apply `fn` to each slice of its arguments along an axis, and stack the results.

    You can write `fn` for one sample and apply it to a batch: y[i] = fn(x[i], ...). `fn` is traced once. Each operation
    then computes all slices at once, by its rule `Primitive.over_time`. The result is fused and compiled like a
    function written for a batch, and so are gradients inside and outside of `fn`. Results are bit for bit the same as
    for single slices, except for products and sums whose order changes with the number of rows.

    A function with state runs slice by slice: if it assigns to Parameters, or contains an `ops.scan` with a carry, such
    as a spiking layer over time. So does a function that draws random numbers; each slice draws its own.
    `snncell.explain` shows the choice: "no loop: all 64 steps at once", or "64 steps one by one". All slices are in
    memory together.

    Args:
        fn: a function or Cell that takes and returns Tensors.
        in_axes: the axis along which each argument is sliced; None for an argument that all slices share. An int
            applies to all arguments, a tuple has one entry for each.
        out_axes: the axis along which each result is stacked; None for a result that does not depend on the slice.
    Returns: A function with the arguments of `fn`, each with one more axis.
    Example:
        >>> snncell.vmap(lambda row, w: (row * w).sum(), in_axes=(0, None))(ops.ones((2, 3)), Tensor([1.0, 2.0, 3.0]))
        Tensor(shape=[2], dtype=Float32, value= [ 6.00000000e+00,  6.00000000e+00])
    """
    if not callable(fn) or isinstance(fn, type):
        raise ArgumentError(f"vmap: fn is a function or a Cell, not {came(fn)}.")
    _refuse_axes(in_axes, "in_axes", "argument")
    _refuse_axes(out_axes, "out_axes", "result")

    return wraps(fn, lambda *args: _map_function(fn, args, in_axes, out_axes))


def _map_function(fn: Callable[..., Any], args: tuple[Any, ...], in_axes: Any, out_axes: Any) -> Any:
    axes = _axes_for(in_axes, len(args), "in_axes", "argument")
    along = [n for n, axis in enumerate(axes) if axis is not None]
    if not along:
        raise ArgumentError("vmap: in_axes are all None. Give at least one argument an axis to slice along.")
    xs = tuple(_axis_to_front(args[n], axes[n], f"in_axes: argument {n}") for n in along)
    sizes = [x.shape[0] for x in structure.flatten(xs)[0]]
    if len(set(sizes)) != 1:
        raise ShapeError(f"vmap: the arguments have {sizes} slices along in_axes; these numbers must be equal.")

    def one(carry: Any, slices: Any) -> Any:
        own = dict(zip(along, slices, strict=True))
        return carry, fn(*[own.get(n, x) for n, x in enumerate(args)])

    _, ys = run_scan(one, (), xs, who="vmap")
    outs = ys if isinstance(ys, tuple) else (ys,)
    places = _axes_for(out_axes, len(outs), "out_axes", "result")
    moved = [_front_to_axis(y, axis) for y, axis in zip(outs, places, strict=True)]
    return tuple(moved) if isinstance(ys, tuple) else moved[0]


def _refuse_axes(given: Any, name: str, what: str) -> None:
    for axis in given if isinstance(given, (tuple, list)) else [given]:
        if axis is not None and (isinstance(axis, bool) or not isinstance(axis, int)):
            raise ArgumentError(f"vmap: {name} is an axis, None, or a tuple of one for each {what}, not {show(given)}.")


def _axes_for(given: Any, count: int, name: str, what: str) -> list[int | None]:
    axes = list(given) if isinstance(given, (tuple, list)) else [given] * count
    if len(axes) != count:
        raise ArgumentError(f"vmap: {name} has {len(axes)} axes for {count} {what}(s).")
    return axes


def _axis_to_front(tree: Any, axis: int | None, name: str) -> Any:

    def moved(x: Tensor) -> Tensor:
        assert axis is not None
        if not -x.ndim <= axis < x.ndim:
            raise ArgumentError(f"vmap: {name} of shape {x.shape} has no axis {axis}.")
        return moveaxis(x, axis, 0)

    if axis is None or not structure.flatten(tree)[0]:
        raise ArgumentError(f"vmap: {name} is {came(tree)}, which has no slices. Pass None as its axis.")
    return structure.map_leaves(moved, tree)


def _front_to_axis(tree: Any, axis: int | None) -> Any:
    """Move the first axis of each Tensor to `axis`, or drop it by taking the first slice if `axis` is None."""

    def moved(y: Tensor) -> Tensor:
        if axis is None:
            return y[0]
        if not -y.ndim <= axis < y.ndim:
            raise ArgumentError(
                f"vmap: out_axes: a result of shape {y.shape[1:]} cannot get a new axis at position {axis}."
            )
        return moveaxis(y, 0, axis)

    return structure.map_leaves(moved, tree)


class Map:
    """Apply a function to corresponding elements of tuples or lists of equal length (MindSpore's Map).

    Args: ops: the function. By default it is the first argument of each call.
    Example:
        >>> ops.Map(lambda x, y: x + y)((1, 2), (10, 20))
        (11, 22)
    """

    deep = False

    def __init__(self, ops: Annotated[Callable[..., Any] | None, Own()] = None) -> None:
        if ops is not None and not callable(ops):
            raise ArgumentError(f"{type(self).__name__}: ops is a function of the elements, not {came(ops)}.")
        self.ops = ops

    def __call__(self, *args: Any) -> Any:
        who = type(self).__name__
        function, sequences = (self.ops, args) if self.ops is not None else (args[0] if args else None, args[1:])
        if not callable(function):
            raise ArgumentError(f"{who}: the first argument must be the function, unless you pass one to {who}(...).")
        if not sequences:
            raise ArgumentError(f"{who}: needs at least one tuple or list after the function.")
        return self._apply(function, sequences, who, True)

    def _apply(self, function: Callable[..., Any], sequences: tuple[Any, ...], who: str, outermost: bool) -> Any:
        several = [isinstance(one, (tuple, list)) for one in sequences]
        if not any(several) and not outermost:
            return function(*sequences)
        if not all(several) or len({len(one) for one in sequences}) != 1:
            shown = ", ".join(f"{came(one)}{f' of {len(one)}' if hasattr(one, '__len__') else ''}" for one in sequences)
            raise ArgumentError(f"{who}: takes tuples or lists of equal length, not {shown}.")
        columns = zip(*sequences, strict=True)
        if self.deep:
            found = [self._apply(function, column, who, False) for column in columns]
        else:
            found = [function(*column) for column in columns]
        return found if isinstance(sequences[0], list) else tuple(found)


class HyperMap(Map):
    """Apply a function to corresponding elements of nested tuples and lists of equal structure; see `Map`.

    Example:
        >>> ops.HyperMap(lambda x: x * 10)(((1, 2), 3))
        ((10, 20), 30)
    """

    deep = True


# --- Assignment to Parameters -----------------------------------------------------------------------------------------


def depend(value: Tensor, expr: Any) -> Tensor:
    """Return `value` after the effect `expr`, such as the result of an optimiser.

    MindSpore's graphs need `depend` to order effects. Here effects always happen in program order, even in a jitted
    function, so you need it only to run MindSpore code.

    Example:
        >>> p = Parameter(1.0, name="p")
        >>> ops.depend(Tensor(2.0), ops.assign(p, 3.0)).item(), p.item()
        (2.0, 3.0)
    """
    read: Tensor = as_read(value)
    return read


def assign(variable: Annotated[Parameter, Own()], value: Numbers) -> Parameter:
    """Assign a new value to a Parameter. In a jitted function, this happens when the function runs.

    Another shape raises a ShapeError; a value that would lose precision, such as float64 into float32, a DTypeError.
    """
    _refuse_other(variable, "assign")
    variable.assign(value if isinstance(value, Tensor) else Tensor(value, variable.dtype))
    return variable


def assign_add(variable: Annotated[Parameter, Own()], value: Numbers) -> Parameter:
    """Add to a Parameter's value in place."""
    _refuse_other(variable, "assign_add")
    return assign(variable, astype(variable + value, variable.dtype))


def assign_sub(variable: Annotated[Parameter, Own()], value: Numbers) -> Parameter:
    """Subtract from a Parameter's value in place."""
    _refuse_other(variable, "assign_sub")
    return assign(variable, astype(variable - value, variable.dtype))


def _refuse_other(variable: Any, name: str) -> None:
    if not isinstance(variable, Parameter):
        raise DTypeError(f"{name}: variable is a Parameter, not {came(variable)}.")
