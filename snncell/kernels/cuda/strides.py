"""Strides of views, in elements, and indices written out."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from snncell.errors import TensorIndexError


def dense(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides of elements that lie one after another."""
    strides: list[int] = []
    step = 1
    for length in reversed(shape):
        strides.append(step)
        step *= length
    return tuple(reversed(strides))


def fill_index(items: tuple[Any, ...], ndim: int) -> list[Any]:
    """An index with `...` and missing axes written out as whole slices."""
    own = sum(item is not None and item is not Ellipsis for item in items)
    if own > ndim:
        raise TensorIndexError(f"too many indices: {own} for {ndim} axes.")
    rest = [slice(None)] * (ndim - own)
    place = next((n for n, item in enumerate(items) if item is Ellipsis), None)
    if place is None:
        return [*items, *rest]
    return [*items[:place], *rest, *items[place + 1 :]]


def reshape_strides(shape: tuple[int, ...], strides: tuple[int, ...], sizes: tuple[int, ...]) -> tuple[int, ...] | None:
    """The strides of a reshaped view, or None if there are none: runs of axes are matched by their lengths."""
    old = [(n, s) for n, s in zip(shape, strides, strict=True) if n != 1]
    out: list[int] = []
    position = 0
    new = 0
    while new < len(sizes):
        if sizes[new] == 1:
            out.append(0)
            new += 1
            continue
        have, want, first_old, first_new = old[position][0], sizes[new], position, new
        while have != want:
            if have < want:
                position += 1
                have *= old[position][0]
            else:
                new += 1
                want *= sizes[new]
        run = old[first_old : position + 1]
        if any(a[1] != b[1] * b[0] for a, b in itertools.pairwise(run)):
            return None
        step = run[-1][1]
        own: list[int] = []
        for length in reversed(sizes[first_new : new + 1]):
            own.append(step)
            step *= length
        out += reversed(own)
        position += 1
        new += 1
    return tuple(out)
