"""Gradients that are handed over while the reverse goes on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from snncell.distributed.ranks import Array
from snncell.kernels.space import HOST, move_to_space
from snncell.tape.primitive import EVERYWHERE, Primitive
from snncell.tape.tensor import Tensor


class Taker(Protocol):
    """Takes gradients as they are computed.

    Attributes:
        buckets: the numbers of those that it takes together, one bucket after another.
    """

    buckets: list[list[int]]

    def take(self, numbers: Sequence[int], arrays: Sequence[Array]) -> None:
        """Take the gradients of a bucket, given with their numbers."""


def hand_over(grads: Sequence[Tensor], taker: Taker) -> list[Tensor]:
    """Gradients, which somebody takes as they are: in a jitted function a bucket as soon as all of it is there.

    So what is done with them goes on beside the reverse of the layers before.
    """
    found: dict[int, Tensor] = {}
    for bucket in taker.buckets:
        taken = _TAKE.bind(*(grads[n] for n in bucket), taker=taker, numbers=tuple(bucket))
        found.update(zip(bucket, taken, strict=True))
    return [found[n] for n in range(len(grads))]


class _Take(Primitive):
    """Gradients as they are, which are taken in passing."""

    as_stored = EVERYWHERE
    outside = early = True

    def abstract(self, inputs: tuple[Any, ...], attrs: dict[str, Any]) -> list[tuple[Any, Any]]:
        # Without taking them: a trace is this rank's own affair.
        return [(x.shape, x.dtype) for x in inputs]

    def on_device(self, arrays: Sequence[Any], attrs: dict[str, Any]) -> Any:
        _takes_over(*(move_to_space(x, HOST) for x in arrays), **attrs)
        return tuple(arrays)


def _takes_over(*arrays: Array, taker: Taker, numbers: tuple[int, ...]) -> tuple[Array, ...]:
    taker.take(numbers, arrays)
    return arrays


_TAKE = _Take("take_gradients", _takes_over, multiple=True).no_gradient()
