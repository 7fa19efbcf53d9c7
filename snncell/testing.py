"""Checks of gradients and of custom reverses, for users and for snncell's own tests.

All checks compute in float64, where a reverse that is wrong by a tenth of a percent stands out from rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from snncell.dtype import float64
from snncell.errors import GradientCheckError, GradientError
from snncell.ops.random import present_key, replaying
from snncell.tape import structure
from snncell.tape.parameter import Parameter
from snncell.tape.tensor import Tensor
from snncell.tape.transforms import grad, vjp


def check_grads(
    fn: Callable[..., Any],
    *inputs: Any,
    order: int = 1,
    eps: float = 1e-6,
    rtol: float = 1e-5,
    atol: float = 1e-7,
    seed: int = 0,
) -> None:
    """Compare the gradients of `fn` with finite differences, along random directions, in float64.

    The outputs are projected on a random vector u and the inputs moved along a random direction v: the derivative
    <u, J v> from central differences, (f(x + eps v) - f(x - eps v)) / (2 eps), must equal <J^T u, v> from the reverse.

    Args:
        fn: a function or Cell of Tensors.
        inputs: its arguments; float Tensors among them are converted to float64 and checked, others held fixed.
        order: 2 checks the gradient of the gradient as well, and so on.
        eps: half the distance of the differences.
        rtol, atol: how far the two may differ: atol + rtol * the larger of them.
        seed: of the directions.

    Raises:
        GradientCheckError: with both numbers and the order at which they differ.
        GradientError: if there is no float input or output.
    """
    rng = np.random.default_rng(seed)
    given = [_doubled(x) for x in inputs]
    key = present_key()  # what is random is to be the same at every point
    positions = [i for i, x in enumerate(given) if isinstance(x, Tensor) and x.dtype.is_float]
    if not positions:
        raise GradientError("check_grads: no float Tensor among the inputs.")

    def scalar(*moving: Tensor) -> Tensor:
        args = list(given)
        for position, x in zip(positions, moving, strict=True):
            args[position] = x
        with replaying(key):
            return _projected(fn(*args), np.random.default_rng(seed + 1))

    _check_scalar(scalar, [given[i] for i in positions], order, eps, rtol, atol, rng, 1)


def _check_scalar(
    fn: Callable[..., Tensor], xs: list[Tensor], order: int, eps: float, rtol: float, atol: float, rng: Any, level: int
) -> None:
    gradient = grad(fn, tuple(range(len(xs))))
    found = gradient(*xs)
    found = found if isinstance(found, tuple) else (found,)
    direction = [rng.standard_normal(x.shape) for x in xs]
    analytic = sum(float((g.asnumpy() * v).sum()) for g, v in zip(found, direction, strict=True))
    ahead, behind = (
        fn(*[Tensor(x.asnumpy() + sign * eps * v).to(x.device) for x, v in zip(xs, direction, strict=True)]).item()
        for sign in (1, -1)
    )
    numeric = (ahead - behind) / (2 * eps)
    if not abs(analytic - numeric) <= atol + rtol * max(abs(analytic), abs(numeric)):
        raise GradientCheckError(
            f"check_grads, order {level}: the reverse gives {analytic:.10g} along a random direction, finite "
            f"differences {numeric:.10g}."
        )
    if order > 1:

        def projected_gradient(*moving: Tensor) -> Tensor:
            return _projected(gradient(*moving), np.random.default_rng(level))

        _check_scalar(projected_gradient, xs, order - 1, eps, rtol, atol, rng, level + 1)


def _projected(out: Any, rng: Any) -> Tensor:
    """The sum of all float outputs times random numbers."""
    leaves = [leaf for leaf in structure.flatten(out)[0] if leaf.dtype.is_float]
    if not leaves:
        raise GradientError("check_grads: the function returned no float Tensor.")
    parts = [(leaf * Tensor(rng.standard_normal(leaf.shape)).to(leaf.device)).sum() for leaf in leaves]
    total: Tensor = sum(parts[1:], parts[0])
    return total


def _doubled(x: Any) -> Any:
    x = Tensor(x) if isinstance(x, np.ndarray) else x
    return x.astype(float64) if isinstance(x, Tensor) and x.dtype.is_float else x


def check_bprop(cell: Any, *inputs: Any, rtol: float = 1e-4, atol: float = 1e-6, seed: int = 0) -> None:
    """Check the custom reverse of a Cell.

    A Cell with a method `primitive(*inputs)`, such as a surrogate, is checked against the gradient of that smooth
    function; another one against the tape's gradient of its `construct`, or, if an operation in it has none, against
    finite differences. The gradients of `internal_params` are checked too.

    Args:
        cell: a Cell with a `bprop`.
        inputs: its arguments; float Tensors are converted to float64.
        rtol, atol: an entry may differ by atol + rtol * its size.
        seed: of the random `dout`.

    Raises:
        GradientCheckError: naming the Cell, the input, and the entry that is worst.
        GradientError: if the Cell has no `bprop`.
    """
    if getattr(cell, "bprop", None) is None:
        raise GradientError(f"check_bprop: {type(cell).__name__} has no bprop to check.")
    given = [_doubled(x) for x in inputs]
    weights = tuple(getattr(cell, "internal_params", ()))
    rng = np.random.default_rng(seed)

    key = present_key()
    with replaying(key):
        out, pull = vjp(cell, *given, weights=weights)
    douts = [Tensor(rng.standard_normal(leaf.shape)).to(leaf.device).astype(leaf.dtype) for leaf in _floats(out)]
    seeds = iter(douts)
    full = [next(seeds) if leaf.dtype.is_float else leaf for leaf in structure.flatten(out)[0]]
    found, of_weights = pull(*full)
    with replaying(key):
        compare_reverse(cell, given, full, [*_as_tuple(found, given), *of_weights], weights, rtol, atol)


def compare_reverse(
    cell: Any,
    inputs: Sequence[Any],
    douts: Sequence[Tensor],
    found: Sequence[Any],
    weights: Sequence[Parameter],
    rtol: float,
    atol: float,
) -> None:
    """Compare what a Cell's bprop returned with what its primitive, or its construct, gives for the same `dout`.

    Raises:
        GradientCheckError: naming the Cell, the input, and the entry that is worst.
    """
    primitive = getattr(cell, "primitive", None)
    reference = primitive or cell.construct
    names = [f"input {i}" for i in range(len(inputs))] + [f"Parameter {p.name!r}" for p in weights]
    try:
        _, pull = vjp(reference, *inputs, weights=tuple(weights))
        expected, of_weights = pull(*douts)
        wanted = [*_as_tuple(expected, inputs), *of_weights]
        source = "its primitive" if primitive else "the tape's gradient of construct"
    except GradientError:
        wanted = [*_differences(reference, inputs, douts), *(None for _ in weights)]
        source = "finite differences of construct"
    for name, mine, theirs in zip(names, found, wanted, strict=True):
        if mine is None or theirs is None:
            continue
        for a, b in zip(structure.flatten(mine)[0], structure.flatten(theirs)[0], strict=True):
            _compare(type(cell).__name__, name, a.asnumpy(), b.asnumpy(), source, rtol, atol, bool(primitive))


def _compare(cell: str, name: str, mine: Any, theirs: Any, source: str, rtol: float, atol: float, smooth: bool) -> None:
    excess = np.abs(mine - theirs) - (atol + rtol * np.abs(theirs))
    excess = np.where(np.isnan(mine) & np.isnan(theirs), -1.0, np.where(np.isnan(excess), np.inf, excess))
    if not excess.size or excess.max() <= 0:
        return
    worst = tuple(int(i) for i in np.unravel_index(int(np.argmax(excess)), excess.shape))
    hint = ""
    if not smooth and not np.any(theirs):
        hint = (
            " The derivative of construct is zero everywhere; if bprop is meant to replace it, give the Cell a method "
            "primitive(x), the smooth function whose derivative bprop is, to be checked against."
        )
    raise GradientCheckError(
        f"The bprop of {cell} gives {mine[worst]:.8g} for {name} at index {worst}, {source} gives "
        f"{theirs[worst]:.8g}.{hint}"
    )


def _differences(
    fn: Callable[..., Any], inputs: Sequence[Any], douts: Sequence[Tensor], eps: float = 1e-5
) -> list[Any]:
    """The gradient of sum(out * dout) with respect to each float input, entry by entry, by central differences."""

    def scalar(args: Sequence[Any]) -> float:
        leaves = structure.flatten(fn(*args))[0]
        return sum(
            float((leaf.asnumpy() * dout.asnumpy()).sum())
            for leaf, dout in zip(leaves, douts, strict=True)
            if leaf.dtype.is_float
        )

    results: list[Any] = []
    for position, x in enumerate(inputs):
        if not (isinstance(x, Tensor) and x.dtype.is_float):
            results.append(None)
            continue
        slopes = np.zeros(x.shape)
        for index in np.ndindex(x.shape):
            sides = []
            for sign in (1, -1):
                moved = x.asnumpy().astype(np.float64)
                moved[index] += sign * eps
                sides.append(scalar([Tensor(moved).to(x.device) if i == position else y for i, y in enumerate(inputs)]))
            slopes[index] = (sides[0] - sides[1]) / (2 * eps)
        results.append(Tensor(slopes))
    return results


def _floats(out: Any) -> list[Tensor]:
    return [leaf for leaf in structure.flatten(out)[0] if leaf.dtype.is_float]


def _as_tuple(grads: Any, inputs: Sequence[Any]) -> tuple[Any, ...]:
    return grads if len(inputs) != 1 else (grads,)
