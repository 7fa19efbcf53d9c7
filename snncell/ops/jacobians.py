"""Jacobians: `jvp` along a direction; `jacrev`, backward from each output element; `jacfwd`, by `jvp` along each input.

Both are linear maps of a unit vector, and `vmap` carries such a map out for all of them: the sweep is traced once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import NoneType
from typing import Annotated, Any

import numpy as np

from snncell.base.arguments.kinds import Own
from snncell.base.arguments.shown import came
from snncell.errors import GradientError
from snncell.ops.arithmetic import equal
from snncell.ops.base import astype
from snncell.ops.control import vmap
from snncell.ops.joining import stack, unstack
from snncell.ops.shape import reshape, transpose
from snncell.tape import structure
from snncell.tape.primitive import Composite, Primitive
from snncell.tape.state import TRACING, Tape, record_on
from snncell.tape.tensor import Tensor, beside
from snncell.tape.tracing import BodyTrace
from snncell.tape.transforms import Recording, full, has_float, refuse_no_function, refuse_unlike, without_aux, wraps

__all__ = ["jacfwd", "jacrev", "jvp"]
FEW = 12  # sweeps that, one after the other, take less than one for all, which has to be traced first


def jacrev(
    fn: Annotated[Callable[..., Any], Own()], grad_position: int | tuple[int, ...] = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """A function that gives the Jacobian of `fn` in reverse: the rows, from each element of the output.

    J[i, j] = d out[i] / d x[j], for all axes i of the output and j of the argument. In a jitted function all rows are
    one reverse under `vmap`, whatever their number. Eager they are too where there are more than 12; fewer are pulled
    one after the other, which takes less than to trace the reverse, and so are all of them where a `bprop` or hook of
    a user's is on the way, for it may look at values. Of a thousand rows, what the reverse computes is in memory a
    thousand times.

    Args:
        fn: a function or Cell of Tensors.
        grad_position: the argument; of a tuple of them the Jacobians are a tuple.
        has_aux: `fn` returns `(out, *aux)`, and only `out` is differentiated.

    Returns:
        A function with `fn`'s arguments that returns the Jacobian, (*out.shape, *x.shape), or `(jacobian, aux)` with
        `has_aux`; where `fn` gives several outputs, a structure of them like its own.

    Raises:
        GradientError: as for `grad`, and for outputs that are no floats.

    Example:
        >>> snncell.jacrev(lambda x: x * x)(Tensor([1.0, 2.0])).asnumpy().tolist()
        [[2.0, 0.0], [0.0, 4.0]]
    """
    positions = _argument_positions(fn, grad_position, "jacrev")

    def jacobian(*args: Any, **kwargs: Any) -> Any:
        chosen = _select_arguments(args, positions, "jacrev")
        recording = Recording(fn, args, positions, None, kwargs, "jacrev")
        out, aux = without_aux(recording.out, "jacrev") if has_aux else (recording.out, ())
        leaves, tree = _outputs(out, "jacrev")
        of_outputs = []
        for number, leaf in enumerate(leaves):
            rows = _along_each(leaves, number, lambda seeds: recording.pull(out, seeds, release=False)[0], recording)
            of_outputs.append([_jacobian(own, 0, leaf, x) for own, x in zip(rows, chosen, strict=True)])
        result = structure.unflatten(tree, map(_bare, of_outputs))
        return (result, aux) if has_aux else result

    return wraps(fn, jacobian)


def jacfwd(
    fn: Annotated[Callable[..., Any], Own()], grad_position: int | tuple[int, ...] = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """A function that gives the Jacobian of `fn` forwards: the columns, by `jvp` along each element of the argument.

    It gives what `jacrev` gives, and is the cheaper one where the argument has fewer elements than the output. Its
    columns are computed together as the rows of `jacrev` are. Through a Cell with a `bprop` of its own both give the
    Jacobian of that bprop. `jacfwd(jacrev(fn))` is a Hessian.

    Args:
        fn, grad_position, has_aux: as for `jacrev`.

    Example:
        >>> snncell.jacfwd(lambda x: x * x)(Tensor([1.0, 2.0])).asnumpy().tolist()
        [[2.0, 0.0], [0.0, 4.0]]
    """
    positions = _argument_positions(fn, grad_position, "jacfwd")

    def jacobian(*args: Any, **kwargs: Any) -> Any:
        chosen = _select_arguments(args, positions, "jacfwd")
        linear = LinearMap(fn, args, positions, kwargs, has_aux, "jacfwd")
        leaves, tree = _outputs(linear.out, "jacfwd")
        of_arguments = []
        for number, x in enumerate(chosen):
            columns = _along_each(chosen, number, lambda v: structure.flatten(linear.along(v))[0], linear.reverse)
            of_arguments.append([_jacobian(own, -1, out, x) for own, out in zip(columns, leaves, strict=True)])
        result = structure.unflatten(tree, map(_bare, zip(*of_arguments, strict=True)))
        return (result, linear.aux) if has_aux else result

    return wraps(fn, jacobian)


def _argument_positions(fn: Any, grad_position: Any, who: str) -> tuple[int, ...]:
    if not callable(fn) or isinstance(fn, type):
        raise GradientError(f"{who}: fn is a function or a Cell, not {came(fn)}.")
    positions = (grad_position,) if isinstance(grad_position, int) else tuple(grad_position)
    if not positions:
        raise GradientError(f"{who}: nothing to differentiate with respect to; give grad_position.")
    return positions


def _select_arguments(args: Sequence[Any], positions: Sequence[int], who: str) -> list[Tensor]:
    """The arguments of a Jacobian."""
    chosen = [args[position] for position in positions if -len(args) <= position < len(args)]
    for x in chosen:
        if not isinstance(x, Tensor):
            raise GradientError(f"{who}: an argument that it is taken with respect to is {came(x)}, and no Tensor.")
    return chosen


def _outputs(out: Any, who: str) -> tuple[list[Tensor], Any]:
    leaves, tree = structure.flatten(out)
    if not leaves or not all(leaf.dtype.is_float for leaf in leaves):
        kinds = ", ".join(repr(leaf.dtype) for leaf in leaves) or came(out)
        raise GradientError(f"{who}: the function gives Tensors of floats, not {kinds}; what else it gives is has_aux.")
    return leaves, tree


def _along_each(
    like: Sequence[Tensor], number: int, along: Callable[[list[Tensor]], Sequence[Tensor]], swept: Recording
) -> list[Tensor]:
    """The results of a linear `along`, stacked, for Tensors like these: zeros but for a 1 in each place of one of them.

    `number` says which Tensor gets the 1, and `swept` is the recording that `along` sweeps.
    """
    one = like[number]
    zeros = [full(0.0, x) for x in like]
    with beside(one):
        places = Tensor(np.arange(one.size).reshape(one.shape))
        numbers = Tensor(np.arange(one.size))

    def at(place: Tensor) -> tuple[Tensor, ...]:
        unit = astype(equal(places, place), one.dtype)
        return tuple(along([*zeros[:number], unit, *zeros[number + 1 :]]))

    if _at_once(one.size, swept):
        found: tuple[Tensor, ...] = vmap(at)(numbers)
        return list(found)
    rows = [at(place) for place in unstack(numbers)] or [tuple(along(zeros))]  # of nothing, an empty one
    return [stack(each)[: one.size] for each in zip(*rows, strict=True)]


def _at_once(count: int, swept: Recording) -> bool:
    """True if that many sweeps are carried out as one: in a jitted function always."""
    if not count:
        return False
    if TRACING.trace is not None and not isinstance(TRACING.trace, BodyTrace):
        return True
    # A sweep for all has to be traced, which takes as long as a few of them, and which reverses and hooks of a user's
    # might not let be done: they may look at values.
    entries = swept.tape.live()
    ours = all(isinstance(entry.op, (Primitive, Composite, NoneType)) and not entry.hooks for entry in entries)
    return count > FEW and (TRACING.trace is not None or ours)


def _jacobian(stacked: Tensor, axis: int, out: Tensor, x: Tensor) -> Tensor:
    """Rows (axis 0), or columns (axis -1), as one Jacobian."""
    last = transpose(stacked, (*range(1, stacked.ndim), 0)) if axis else stacked
    return reshape(last, (*out.shape, *x.shape))


def _bare(several: Sequence[Any]) -> Any:
    return several[0] if len(several) == 1 else tuple(several)


class LinearMap:
    """The derivative of a function at some inputs, to be applied to directions.

    Attributes:
        out, aux: what the function gives.
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any],
        positions: Sequence[int],
        kwargs: dict[str, Any],
        has_aux: bool,
        who: str,
    ) -> None:
        # One tape more than a gradient has, because loops and compiled functions keep what that order needs.
        with record_on(Tape()):
            forward = Recording(fn, args, positions, None, kwargs, who)
        self.out, self.aux = without_aux(forward.out, who) if has_aux else (forward.out, ())
        leaves, self.tree = structure.flatten(self.out)
        self.floats = [leaf.dtype.is_float for leaf in leaves]
        if not any(self.floats):
            forward.pull(self.out, None, release=False)  # which says what is wrong with it

        def pull(*seeds: Tensor) -> Any:
            given = iter(seeds)  # the place of other dtypes takes anything
            douts = [next(given) if is_float else leaf for is_float, leaf in zip(self.floats, leaves, strict=True)]
            return forward.pull(self.out, douts, release=False)[0]

        zeros = [full(0.0, leaf) for leaf in leaves if leaf.dtype.is_float]
        self.reverse = Recording(pull, zeros, range(len(zeros)), None, {}, who)

    def along(self, directions: Sequence[Tensor]) -> Any:
        """J v, in the structure of the output, None in the place of other dtypes; v has a Tensor for each input."""
        of_seeds, _ = self.reverse.pull(self.reverse.out, directions, release=False)
        tangents = iter(of_seeds)
        return structure.unflatten(self.tree, [next(tangents) if is_float else None for is_float in self.floats])


def jvp(fn: Annotated[Callable[..., Any], Own()], inputs: Any, v: Any, has_aux: bool = False) -> tuple[Any, ...]:
    """Jacobian-vector product: run `fn`, and return its value with its derivative along the direction `v`.

    J v = sum_i (d fn / d x_i) v_i. Through a Cell with a `bprop` it is the transpose of that bprop, as a linear map of
    `dout`: along a spike the surrogate's derivative.

    Args:
        fn: a function or Cell of Tensors.
        inputs: its argument, or a tuple or list of its arguments; all Tensors of floats.
        v: a direction of the same structure, shapes and dtypes; Tensors in a dict are matched by key.
        has_aux: `fn` returns `(out, *aux)`, and only `out` is differentiated.

    Returns:
        `(out, tangent)`, or `(out, tangent, aux)` with `has_aux`; the tangent has the structure of `out`, and None in
        the place of integers.

    Raises:
        GradientError: for an input without a gradient, or directions of another structure.
        ShapeError, DTypeError: for a direction of another shape or dtype.

    Source: J. Townsend, "A new trick for calculating Jacobian vector products", 2017.

    Example:
        >>> snncell.jvp(lambda x, y: x * y, (Tensor(2.0), Tensor(3.0)), (Tensor(1.0), Tensor(10.0)))
        (Tensor(shape=[], dtype=Float32, value= 6), Tensor(shape=[], dtype=Float32, value= 23))
    """
    refuse_no_function(fn, "jvp")
    args = tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,)
    for number, x in enumerate(args):
        if not has_float(x):
            raise GradientError(
                f"jvp: input {number} is {came(x)}; a derivative is taken along Tensors of floats. What is fixed is "
                f"left out of inputs: lambda x: fn(x, fixed)."
            )
    xs, tree = structure.flatten(inputs)
    directions = structure.match_tensors(tree, v, "jvp: v")
    for number, (direction, x) in enumerate(zip(directions, xs, strict=True)):
        refuse_unlike(direction, x, f"jvp: v: direction {number}", "the input", "v")
    linear = LinearMap(fn, args, range(len(args)), {}, has_aux, "jvp")
    tangent = linear.along(directions)
    return (linear.out, tangent, linear.aux) if has_aux else (linear.out, tangent)
