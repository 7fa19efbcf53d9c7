"""Jacobians: `jacrev`, a reverse for each element of the output; `jacfwd`, a `jvp` for each of the input."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any

import numpy as np

from snncell.arguments.kinds import Own
from snncell.arguments.shown import came
from snncell.errors import GradientError
from snncell.kernels.space import DEVICE, moved
from snncell.ops.shape import reshape, stack
from snncell.tape import structure
from snncell.tape.forward import Linear, full
from snncell.tape.recording import Recording, without_aux, wraps
from snncell.tape.tensor import Tensor, wrap


def jacrev(
    fn: Annotated[Callable[..., Any], Own()], grad_position: int | tuple[int, ...] = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """A function that gives the Jacobian of `fn`, row by row: a reverse for each element of the output.

    J[i, j] = d out[i] / d x[j], for all axes i of the output and j of the argument.

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
    positions = _positions(fn, grad_position, "jacrev")

    def jacobian(*args: Any, **kwargs: Any) -> Any:
        chosen = _chosen(args, positions, "jacrev")
        recording = Recording(fn, args, positions, None, kwargs, "jacrev")
        out, aux = without_aux(recording.out, "jacrev") if has_aux else (recording.out, ())
        leaves, tree = _outputs(out, "jacrev")
        of_outputs = []
        for number, leaf in enumerate(leaves):
            rows = [recording.pull(out, seeds, release=False)[0] for seeds in _basis(leaves, number)]
            own = [[row[n] for row in rows] for n in range(len(chosen))]
            of_outputs.append([_joined(own[n], 0, leaf, x) for n, x in enumerate(chosen)])
        result = structure.unflatten(tree, map(_bare, of_outputs))
        return (result, aux) if has_aux else result

    return wraps(fn, jacobian)


def jacfwd(
    fn: Annotated[Callable[..., Any], Own()], grad_position: int | tuple[int, ...] = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """A function that gives the Jacobian of `fn`, column by column: `jvp` along each element of the argument.

    It gives what `jacrev` gives, and is the cheaper one where the argument has fewer elements than the output. Through
    a Cell with a `bprop` of its own both give the Jacobian of that bprop.

    Args:
        fn, grad_position, has_aux: as for `jacrev`.

    Raises:
        GradientError: as for `jacrev`.

    Example:
        >>> snncell.jacfwd(lambda x: x * x)(Tensor([1.0, 2.0])).asnumpy().tolist()
        [[2.0, 0.0], [0.0, 4.0]]
    """
    positions = _positions(fn, grad_position, "jacfwd")

    def jacobian(*args: Any, **kwargs: Any) -> Any:
        chosen = _chosen(args, positions, "jacfwd")
        linear = Linear(fn, args, positions, kwargs, has_aux, "jacfwd")
        leaves, tree = _outputs(linear.out, "jacfwd")
        of_arguments = []
        for number, x in enumerate(chosen):
            columns = [structure.flatten(linear.along(v))[0] for v in _basis(chosen, number)]
            of_arguments.append([_joined([c[n] for c in columns], -1, out, x) for n, out in enumerate(leaves)])
        result = structure.unflatten(tree, map(_bare, zip(*of_arguments, strict=True)))
        return (result, linear.aux) if has_aux else result

    return wraps(fn, jacobian)


def _positions(fn: Any, grad_position: Any, who: str) -> tuple[int, ...]:
    if not callable(fn) or isinstance(fn, type):
        raise GradientError(f"{who}: fn is a function or a Cell, not {came(fn)}.")
    positions = (grad_position,) if isinstance(grad_position, int) else tuple(grad_position)
    if not positions:
        raise GradientError(f"{who}: nothing to differentiate with respect to; give grad_position.")
    return positions


def _chosen(args: Sequence[Any], positions: Sequence[int], who: str) -> list[Tensor]:
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


def _basis(like: Sequence[Tensor], number: int) -> Iterator[list[Tensor]]:
    """Tensors like these, zeros but for a single 1, which is in each place of one of them in turn."""
    zeros, one = [full(0.0, x) for x in like], like[number]
    for place in range(one.size):
        unit = np.zeros(one.size, one._data.dtype)
        unit[place] = 1
        array = unit.reshape(one.shape)
        yield [*zeros[:number], wrap(moved(array, DEVICE) if one.device == "gpu" else array), *zeros[number + 1 :]]


def _joined(parts: list[Tensor], axis: int, out: Tensor, x: Tensor) -> Tensor:
    """Rows, or columns, as one Jacobian; of nothing an empty one."""
    shape = (*out.shape, *x.shape)
    joined: Tensor = reshape(stack(parts, axis), shape) if parts else wrap(np.zeros(shape, out._data.dtype))
    return joined


def _bare(several: Sequence[Any]) -> Any:
    return several[0] if len(several) == 1 else tuple(several)
