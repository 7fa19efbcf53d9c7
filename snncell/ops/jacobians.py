"""Jacobians: `jvp` (Jacobian-vector product), `jacrev` (reverse mode) and `jacfwd` (forward mode).

Both Jacobians apply a linear map to all unit vectors. `vmap` computes all of them at once, from one traced pass.
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
from snncell.ops.base import array_beside, astype
from snncell.ops.control import vmap
from snncell.ops.shape import reshape, stack, transpose, unstack
from snncell.tape import structure
from snncell.tape.primitive import Composite, Primitive
from snncell.tape.state import TRACING, Tape, record_on
from snncell.tape.tensor import Tensor
from snncell.tape.tracing import BodyTrace
from snncell.tape.transforms import Recording, full, has_float, refuse_no_function, refuse_unlike, without_aux, wraps

__all__ = ["jacfwd", "jacrev", "jvp"]
FEW = 12  # up to this number, passes run one by one, because tracing one pass for all takes longer


def jacrev(
    fn: Annotated[Callable[..., Any], Own()], grad_position: int | tuple[int, ...] = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """Jacobian by reverse-mode differentiation: one backward pass per element of the output.

    J[i, j] = d out[i] / d x[j], for all axes i of the output and j of the argument. You should prefer it to `jacfwd` if
    the output has fewer elements than the argument.

    In a jitted function, one backward pass under `vmap` computes all rows. In eager mode this is so for more than 12
    rows, unless `fn` contains a `bprop` or hook of yours, which may read values. Other rows are computed one by one;
    for few rows this is faster, because nothing is traced. `vmap` keeps the intermediate values of all rows in memory.

    Args:
        fn: a function or Cell of Tensors.
        grad_position: the index of the argument; a tuple of indices gives a tuple of Jacobians.
        has_aux: `fn` returns `(out, *aux)`, and only `out` is differentiated.
    Returns: A function with the arguments of `fn` that returns the Jacobian, (*out.shape, *x.shape), or `(jacobian,
        aux)` with `has_aux`. If `fn` has several outputs, the Jacobians have the structure of the outputs.
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
        result = structure.unflatten(tree, map(_linear_map, of_outputs))
        return (result, aux) if has_aux else result

    return wraps(fn, jacobian)


def jacfwd(
    fn: Annotated[Callable[..., Any], Own()], grad_position: int | tuple[int, ...] = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """Jacobian by forward-mode differentiation: one `jvp` per element of the argument.

    Arguments and result are those of `jacrev`. You should prefer `jacfwd` if the argument has fewer elements than the
    output. Columns are computed together under the same conditions as the rows of `jacrev`. For a Cell with a `bprop`,
    both give the Jacobian of that bprop. `jacfwd(jacrev(fn))` is a Hessian.
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
        result = structure.unflatten(tree, map(_linear_map, zip(*of_arguments, strict=True)))
        return (result, linear.aux) if has_aux else result

    return wraps(fn, jacobian)


def _argument_positions(fn: Any, grad_position: Any, who: str) -> tuple[int, ...]:
    refuse_no_function(fn, who)
    positions = (grad_position,) if isinstance(grad_position, int) else tuple(grad_position)
    if not positions:
        raise GradientError(f"{who}: nothing to differentiate with respect to; give grad_position.")
    return positions


def _select_arguments(args: Sequence[Any], positions: Sequence[int], who: str) -> list[Tensor]:
    chosen = [args[position] for position in positions if -len(args) <= position < len(args)]
    for x in chosen:
        if not isinstance(x, Tensor):
            raise GradientError(f"{who}: the argument to differentiate must be a Tensor, not {came(x)}.")
    return chosen


def _outputs(out: Any, who: str) -> tuple[list[Tensor], Any]:
    leaves, tree = structure.flatten(out)
    if not leaves or not all(leaf.dtype.is_float for leaf in leaves):
        kinds = ", ".join(repr(leaf.dtype) for leaf in leaves) or came(out)
        raise GradientError(
            f"{who}: the function must return Tensors of floats, not {kinds}. Return other results as aux, with "
            f"has_aux."
        )
    return leaves, tree


def _along_each(
    like: Sequence[Tensor], number: int, along: Callable[[list[Tensor]], Sequence[Tensor]], swept: Recording
) -> list[Tensor]:
    """Stack the results of `along`, the derivative of `swept`, for each unit vector of `like[number]` (others 0)."""
    one = like[number]
    zeros = [full(0.0, x) for x in like]
    places = array_beside(np.arange(one.size).reshape(one.shape), one)
    numbers = array_beside(np.arange(one.size), one)

    def at(place: Tensor) -> tuple[Tensor, ...]:
        unit = astype(equal(places, place), one.dtype)
        return tuple(along([*zeros[:number], unit, *zeros[number + 1 :]]))

    if _at_once(one.size, swept):
        found: tuple[Tensor, ...] = vmap(at)(numbers)
        return list(found)
    # Without unit vectors, keep the shapes by an empty slice.
    rows = [at(place) for place in unstack(numbers)] or [tuple(along(zeros))]
    return [stack(each)[: one.size] for each in zip(*rows, strict=True)]


def _at_once(count: int, swept: Recording) -> bool:
    """True if all passes are computed by one `vmap`, which is always the case in a jitted function."""
    if not count:
        return False
    if TRACING.trace is not None and not isinstance(TRACING.trace, BodyTrace):
        return True
    # Tracing one pass for all costs as much as a few passes, and fails if a user's bprop or hook reads values.
    entries = swept.tape.live()
    ours = all(isinstance(entry.op, (Primitive, Composite, NoneType)) and not entry.hooks for entry in entries)
    return count > FEW and (TRACING.trace is not None or ours)


def _jacobian(stacked: Tensor, axis: int, out: Tensor, x: Tensor) -> Tensor:
    last = transpose(stacked, (*range(1, stacked.ndim), 0)) if axis else stacked
    return reshape(last, (*out.shape, *x.shape))


def _linear_map(several: Sequence[Any]) -> Any:
    return several[0] if len(several) == 1 else tuple(several)


class LinearMap:
    """The derivative of a function at fixed inputs, as a linear map of directions; `out`, `aux` are the results."""

    def __init__(
        self, fn: Any, args: Sequence[Any], positions: Sequence[int], kwargs: Any, has_aux: bool, who: str
    ) -> None:
        # An extra tape, so that loops and compiled functions save the values for a second-order derivative.
        with record_on(Tape()):
            forward = Recording(fn, args, positions, None, kwargs, who)
        self.out, self.aux = without_aux(forward.out, who) if has_aux else (forward.out, ())
        leaves, self.tree = structure.flatten(self.out)
        self.floats = [leaf.dtype.is_float for leaf in leaves]
        if not any(self.floats):
            forward.pull(self.out, None, release=False)  # raises an error with the reason

        def pull(*seeds: Tensor) -> Any:
            given = iter(seeds)  # outputs of other dtypes need no seed, so pass the outputs themselves
            douts = [next(given) if is_float else leaf for is_float, leaf in zip(self.floats, leaves, strict=True)]
            return forward.pull(self.out, douts, release=False)[0]

        zeros = [full(0.0, leaf) for leaf in leaves if leaf.dtype.is_float]
        self.reverse = Recording(pull, zeros, range(len(zeros)), None, {}, who)

    def along(self, directions: Sequence[Tensor]) -> Any:
        """J v in the structure of the output, with None for outputs of other dtypes; v has a Tensor per input."""
        of_seeds, _ = self.reverse.pull(self.reverse.out, directions, release=False)
        tangents = iter(of_seeds)
        return structure.unflatten(self.tree, [next(tangents) if is_float else None for is_float in self.floats])


def jvp(fn: Annotated[Callable[..., Any], Own()], inputs: Any, v: Any, has_aux: bool = False) -> tuple[Any, ...]:
    """Jacobian-vector product: run `fn`, and return its value and its derivative along the direction `v`.

    J v = sum_i (d fn / d x_i) v_i. For a Cell with a `bprop`, it is the transpose of that bprop as a linear map of
    `dout`. For example, the derivative of a spike function is its surrogate gradient.

    Args:
        fn: a function or Cell of Tensors.
        inputs: the argument, or a tuple or list of arguments; all must be Tensors of floats.
        v: the direction, with the structure, shapes and dtypes of `inputs`. Tensors in a dict are matched by key.
        has_aux: `fn` returns `(out, *aux)`, and only `out` is differentiated.
    Returns: `(out, tangent)`, and `aux` with `has_aux`. The tangent has the structure of `out`, with None for integers.
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
                f"jvp: input {number} is {came(x)}, but a derivative needs Tensors of floats. Leave fixed arguments "
                f"out of inputs: lambda x: fn(x, fixed)."
            )
    xs, tree = structure.flatten(inputs)
    directions = structure.match_tensors(tree, v, "jvp: v")
    for number, (direction, x) in enumerate(zip(directions, xs, strict=True)):
        refuse_unlike(direction, x, f"jvp: v: direction {number}", "the input", "v")
    linear = LinearMap(fn, args, range(len(args)), {}, has_aux, "jvp")
    tangent = linear.along(directions)
    return (linear.out, tangent, linear.aux) if has_aux else (linear.out, tangent)
