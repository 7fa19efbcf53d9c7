"""Sequences of different lengths as one array, and the few lengths that batches of them are padded to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from snncell.errors import ArgumentError, ShapeError
from snncell.tape.structure import on_host

__all__ = ["padded"]

Array = np.ndarray[Any, Any]


def padded(sequences: Iterable[Any], steps: int | None = None, value: float = 0.0) -> tuple[Array, Array]:
    """Sequences of different lengths as one array, time first, with what is missing at their ends filled up.

    Args:
        sequences: N arrays (T_n, ...), alike but for their lengths.
        steps: T; longer sequences are cut. By default the longest one's.
        value: of the padding.

    Returns:
        `x, lengths`: x (T, N, ...), of the arrays' dtype, and lengths int64 (N,), how many steps of each are its own.

    Raises:
        ArgumentError: for no sequences, or a number of steps below 1.
        ShapeError: for sequences that differ in more than their lengths.

    Example:
        >>> x, lengths = snncell.data.padded([[[1.0], [2.0]], [[3.0]]])
        >>> x[:, :, 0].tolist(), lengths.tolist()
        ([[1.0, 3.0], [2.0, 0.0]], [2, 1])
    """
    arrays = [on_host(sequence) for sequence in sequences]
    if not arrays:
        raise ArgumentError("padded: there are no sequences.")
    if steps is not None and (isinstance(steps, bool) or not isinstance(steps, int) or steps < 1):
        raise ArgumentError(f"padded: steps is an integer of at least 1, not {steps!r}.")
    if len({array.shape[1:] for array in arrays}) > 1 or not all(array.ndim for array in arrays):
        shapes = ", ".join(map(str, list(dict.fromkeys(array.shape for array in arrays))[:6]))
        raise ShapeError(f"padded: sequences are (T_n, ...), alike but for their lengths, not {shapes}.")
    longest = max(len(array) for array in arrays) if steps is None else steps
    lengths = np.array([min(len(array), longest) for array in arrays], np.int64)
    padded_array = np.full((longest, len(arrays), *arrays[0].shape[1:]), value, np.result_type(*arrays))
    for number, (array, length) in enumerate(zip(arrays, lengths, strict=True)):
        padded_array[:length, number] = array[:length]
    return padded_array, lengths


def grid_length(length: int) -> int:
    """The first of 1, 2, 3, 4, 6, 8, 12, 16, 24, ... that is not below a length: two for each doubling."""
    power = 1 << max(length - 1, 0).bit_length()
    return power * 3 // 4 if power > 2 and length <= power * 3 // 4 else power


def bucket_of(length: int, buckets: Sequence[int], beyond: bool) -> int | None:
    """The first bucket that holds sequences of a length; if there is none, the grid's length if `beyond` says so."""
    return next((bucket for bucket in buckets if length <= bucket), grid_length(length) if beyond else None)


def quantiles(lengths: Sequence[int], count: int) -> tuple[int, ...]:
    """At most `count` lengths, each with as many of the others between it and the one before."""
    own = np.quantile(lengths, np.arange(1, count + 1) / count, method="higher")
    return tuple(sorted({max(int(length), 1) for length in own}))
