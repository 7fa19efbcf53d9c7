"""Forward gradients, derivatives along a direction (`jvp`): the backward pass of a backward pass, without own rules.

pull(u) = J^T u        for any u, linear in u
the backward pass of pull, from v:   (J^T)^T v = J v
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any

from snncell.base.arguments.kinds import Own
from snncell.base.arguments.shown import came
from snncell.errors import GradientError
from snncell.tape import structure
from snncell.tape.state import Tape, record_on
from snncell.tape.tensor import Tensor
from snncell.tape.transforms import Recording, full, has_float, refuse_no_function, refuse_unlike, without_aux


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
