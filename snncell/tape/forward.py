"""Derivatives along a direction: `jvp`.

The reverse of a function is linear in the gradient that goes in, and is itself differentiable. So the reverse of the
reverse is the derivative forwards, and needs no rules of its own:

    pull(u) = J^T u        for any u
    the reverse of pull, from v:   (J^T)^T v = J v
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any

import numpy as np

from snncell.base.arguments.kinds import Own
from snncell.base.arguments.shown import came
from snncell.errors import DTypeError, GradientError, ShapeError
from snncell.kernels.space import DEVICE, move_to_space
from snncell.tape import structure
from snncell.tape.state import Tape, record_on
from snncell.tape.tensor import Tensor, wrap
from snncell.tape.transforms import Recording, has_float, without_aux


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
        # One tape more than a gradient has: loops and compiled functions ask how many there are, and keep what a
        # gradient of that order looks at.
        with record_on(Tape()):
            forward = Recording(fn, args, positions, None, kwargs, who)
        self.out, self.aux = without_aux(forward.out, who) if has_aux else (forward.out, ())
        leaves, self.tree = structure.flatten(self.out)
        self.floats = [leaf.dtype.is_float for leaf in leaves]
        if not any(self.floats):
            forward.pull(self.out, None, release=False)  # which says what is wrong with it

        def pull(*seeds: Tensor) -> Any:
            given = iter(seeds)
            # What is no float has no gradient, whatever goes in for it.
            douts = [next(given) if is_float else leaf for is_float, leaf in zip(self.floats, leaves, strict=True)]
            return forward.pull(self.out, douts, release=False)[0]

        zeros = [full(0.0, leaf) for leaf in leaves if leaf.dtype.is_float]
        self.reverse = Recording(pull, zeros, range(len(zeros)), None, {}, who)

    def along(self, directions: Sequence[Tensor]) -> Any:
        """J v, in the structure of the output; None in the place of what is no float. v has a Tensor for each input."""
        of_seeds, _ = self.reverse.pull(self.reverse.out, directions, release=False)
        tangents = iter(of_seeds)
        return structure.unflatten(self.tree, [next(tangents) if is_float else None for is_float in self.floats])


def jvp(fn: Annotated[Callable[..., Any], Own()], inputs: Any, v: Any, has_aux: bool = False) -> tuple[Any, ...]:
    """Run `fn` and give, beside its value, its derivative along a direction: the Jacobian times `v`.

    J v = sum_i (d fn / d x_i) v_i, by the reverse of the reverse. Through a Cell with a `bprop` of its own it is the
    transpose of that bprop, as a linear map of `dout`: along a spike the surrogate's derivative.

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
        ShapeError: for a direction of another shape.
        DTypeError: for one of another dtype.

    Source: the trick is J. Townsend's, "A new trick for calculating Jacobian vector products", 2017.

    Example:
        >>> snncell.jvp(lambda x, y: x * y, (Tensor(2.0), Tensor(3.0)), (Tensor(1.0), Tensor(10.0)))
        (Tensor(shape=[], dtype=Float32, value= 6), Tensor(shape=[], dtype=Float32, value= 23))
    """
    args = _arguments(fn, inputs, "jvp")
    directions = _directions(inputs, v)
    linear = LinearMap(fn, args, range(len(args)), {}, has_aux, "jvp")
    tangent = linear.along(directions)
    return (linear.out, tangent, linear.aux) if has_aux else (linear.out, tangent)


def _arguments(fn: Any, inputs: Any, who: str) -> tuple[Any, ...]:
    if not callable(fn) or isinstance(fn, type):
        raise GradientError(f"{who}: fn is a function or a Cell, not {came(fn)}.")
    args = tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,)
    for number, x in enumerate(args):
        if not has_float(x):
            raise GradientError(
                f"{who}: input {number} is {came(x)}; a derivative is taken along Tensors of floats. What is fixed is "
                f"left out of inputs: lambda x: fn(x, fixed)."
            )
    return args


def _directions(inputs: Any, v: Any) -> list[Tensor]:
    """The Tensors of `v` in the order of the inputs, those of a dict by key."""
    xs, tree = structure.flatten(inputs)
    vs = structure.match_tensors(tree, v, "jvp: v")
    for number, (x, direction) in enumerate(zip(xs, vs, strict=True)):
        if direction.shape != x.shape:
            raise ShapeError(f"jvp: v: direction {number} has shape {direction.shape}, the input {x.shape}.")
        if direction.dtype != x.dtype:
            raise DTypeError(
                f"jvp: v: direction {number} has dtype {direction.dtype}, the input {x.dtype}. Convert it: "
                f"v.astype({x.dtype.name!r})."
            )
    return vs


def full(value: float, like: Tensor) -> Tensor:
    """A constant of the shape, dtype and place of a Tensor, which takes no memory."""
    constant = np.broadcast_to(np.full((), value, like._data.dtype), like.shape)
    return wrap(move_to_space(constant, DEVICE) if like.device == "gpu" else constant)
