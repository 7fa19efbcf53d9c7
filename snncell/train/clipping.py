"""Limits of gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from snncell import ops
from snncell.arguments.numbers import check_positive
from snncell.tape.tensor import Tensor


def clip_by_global_norm(gradients: Iterable[Tensor], max_norm: float) -> tuple[Tensor, ...]:
    """All gradients, scaled together so that their common norm is at most `max_norm`.

    g min(1, max_norm / n)  with n = sqrt(sum of the squares of all elements of all gradients)

    n is computed of g / max |g|, in float32 at least, so that no square overflows or vanishes. Of a gradient with an
    infinity or a NaN, all become NaN.

    Raises:
        ArgumentError: for a max_norm that is not above 0.

    Source: Pascanu, Mikolov and Bengio, "On the difficulty of training recurrent neural networks", ICML 2013.

    Example:
        >>> [g.asnumpy().tolist() for g in snncell.train.clip_by_global_norm([Tensor([3.0]), Tensor([4.0])], 2.5)]
        [[1.5], [2.0]]
    """
    check_positive(max_norm, "clip_by_global_norm", "max_norm")
    originals = tuple(gradients)
    return ops.clip_by_global_norm(originals, max_norm) if originals else ()


def clip_by_value(gradients: Iterable[Tensor], limit: float) -> tuple[Tensor, ...]:
    """All gradients, each element limited to [-limit, limit].

    Raises:
        ArgumentError: for a limit that is not above 0.

    Example:
        >>> snncell.train.clip_by_value([Tensor([-3.0, 0.25])], 0.5)[0].asnumpy().tolist()
        [-0.5, 0.25]
    """
    check_positive(limit, "clip_by_value", "limit")
    return tuple(ops.clip(g, -float(limit), float(limit)) for g in gradients)


def clip_by_both(max_norm: float | None, limit: float | None) -> Callable[[Any], Any]:
    """A function that limits each element, and then the common norm, each if there is a limit."""

    def clip(gradients: Any) -> Any:
        limited = gradients if limit is None else clip_by_value(gradients, limit)
        return limited if max_norm is None else clip_by_global_norm(limited, max_norm)

    return clip
