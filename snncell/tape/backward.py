"""The backward pass: process the entries of a tape in reverse order, and add up the gradients."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np

from snncell import dtype as dtypes
from snncell.base.arguments.shown import came
from snncell.base.frames import Reversing, frame_mark
from snncell.errors import GradientError, ShapeError
from snncell.kernels.space import DEVICE, IN_USE, move_to_space
from snncell.tape.state import CHECKING, Entry, settings
from snncell.tape.tensor import Tensor, wrap


def watch_input(x: Tensor) -> Tensor:
    """Return `x` as a source of gradients if it has a float dtype; otherwise return it unchanged."""
    return wrap(x._data, Entry.source(x._data)) if x.dtype.is_float else x


@frame_mark(Reversing, lambda local: Reversing(local["entry"].line) if "entry" in local else None)
def sweep(
    entries: list[Entry], cotangents: dict[Entry, list[Tensor | None]], sources: set[Entry], release: bool
) -> dict[Entry, list[Tensor | None]]:
    """The loop of the backward pass: from the last of the `entries` to the first, add up the gradients that reach
    `sources`. Return `cotangents`.

    Args:
        entries: in the order of the forward pass. The function empties this list.
        cotangents: the gradients of the outputs of some entries. The function adds the gradients of the sources.
        sources: the entries at which gradients are collected. Entries that depend on no source get no gradient.
        release: whether to free the entries.
    """
    dependent = set(sources)
    for entry in entries:
        if entry.released:
            raise GradientError(
                "This gradient belongs to a computation that an outer gradient has finished and freed. Call pull "
                "inside the function of the outer gradient, or call vjp outside of it."
            )
        if not dependent.isdisjoint(entry.parents):
            dependent.add(entry)
    while entries:
        entry = entries.pop()  # remove it, so that its memory is freed after its backward function (`pull`)
        douts = None if entry in sources else cotangents.pop(entry, None)
        if douts is not None and entry in dependent and entry.op is not None:
            grads = entry.op.pull(entry, apply_hooks(entry, douts) if entry.hooks else douts)
            for parent, index, grad in zip(entry.parents, entry.indices, grads, strict=True):
                if grad is not None and parent in dependent:
                    deposit(cotangents, parent, index, grad() if callable(grad) else grad)
        if release:
            entry.clear()
    return cotangents


def pullback(
    entries: list[Entry],
    outs: Sequence[Tensor],
    douts: Sequence[Tensor | None],
    inputs: Sequence[Tensor],
    *,
    ends: Collection[Entry] = (),
    once: bool = False,
    release: bool = False,
    own: Sequence[Tensor] | None = None,
) -> list[Tensor | None]:
    """Vector-Jacobian product: the gradients of `inputs` from those of `outs`; None where no gradient arrives.

    Args:
        entries: those between inputs and outputs, in the order of the forward pass. The function empties this list.
        outs, douts: the outputs, and for each output its gradient or None.
        inputs: the Tensors whose gradients are computed. The backward pass stops at their entries.
        ends: additional entries at which the backward pass stops.
        once: if several inputs are the same output of an entry, return its gradient for the first and None for the
            others, so that a caller that adds the gradients counts it once.
        release: whether to free the entries.
        own: the inputs with a complete gradient after this call, by default all; their hooks are called. A later call
            completes the gradients of the other inputs and calls their hooks.
    """
    cotangents: dict[Entry, list[Tensor | None]] = {}
    for out, dout in zip(outs, douts, strict=True):
        if dout is not None and out._entry is not None:
            deposit(cotangents, out._entry, out._index, dout)
    sweep(entries, cotangents, {x._entry for x in inputs if x._entry is not None}.union(ends), release)
    for entry in {x._entry for x in (inputs if own is None else own) if x._entry is not None and x._entry.hooks}:
        if entry in cotangents:
            cotangents[entry] = apply_hooks(entry, cotangents[entry])
    grads: list[Tensor | None] = []
    for x in inputs:
        slots = None if x._entry is None else cotangents.get(x._entry)
        grads.append(None if slots is None else slots[x._index])
        if once and slots is not None:
            slots[x._index] = None
    return grads


def ancestors(entries: Iterable[Entry | None], ends: Collection[Entry | None] = ()) -> set[Entry | None]:
    """These entries, and all entries from which they were computed; the search stops at `ends`."""
    reached: set[Entry | None] = set()
    waiting = list(entries)
    while waiting:
        entry = waiting.pop()
        if entry is not None and entry not in reached:
            reached.add(entry)
            waiting += () if entry in ends else entry.parents
    return reached


def deposit(cotangents: dict[Entry, list[Tensor | None]], entry: Entry, index: int, grad: Tensor) -> None:
    """Add `grad` to the gradient of output `index` of `entry`."""
    slots = cotangents.setdefault(entry, [None] * len(entry.specs))
    grad, present = conform(grad, *entry.specs[index]), slots[index]
    slots[index] = grad if present is None else present + grad


def conform(grad: Tensor, shape: tuple[int, ...], dtype: Any) -> Tensor:
    """`grad` summed over broadcast axes to `shape`, and cast to `dtype`."""
    if grad.shape != shape:
        extra = len(grad.shape) - len(shape)
        pairs = zip(grad.shape[max(extra, 0) :], shape, strict=False)
        if extra < 0 or any(have != want != 1 for have, want in pairs):
            raise ShapeError(f"A gradient of shape {grad.shape} does not fit its value, which has shape {shape}.")
        stretched = [extra + axis for axis, want in enumerate(shape) if want == 1 != grad.shape[extra + axis]]
        grad = grad.sum(axis=(*range(extra), *stretched)).reshape(shape)
    if grad._data.dtype == dtype:
        return grad
    with settings(wide=False) if CHECKING.wide else nullcontext():
        return grad.astype(dtypes.BY_NUMPY[dtype])


def zeros_of(spec: tuple[tuple[int, ...], Any], others: Iterable[Tensor | None] = ()) -> Tensor:
    """Zeros for the gradient of an unused output, without memory for the elements, on the device of `others`."""
    shape, dtype = spec
    zeros = np.broadcast_to(np.zeros((), dtype if dtype in dtypes.INEXACT else np.float32), shape)
    on_gpu = bool(IN_USE) and any(x is not None and x.device == "gpu" for x in others)
    return wrap(move_to_space(zeros, DEVICE) if on_gpu else zeros)


def or_zeros(grad: Tensor | None, spec: tuple[tuple[int, ...], Any]) -> Tensor:
    """A gradient, or zeros of this shape and dtype if it is None."""
    return zeros_of(spec) if grad is None else grad


def with_zeros(entry: Entry, douts: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
    """The gradients of an entry's outputs; None is replaced by zeros."""
    return tuple([zeros_of(s, douts) if d is None else d for d, s in zip(douts, entry.specs, strict=True)])


def apply_hooks(entry: Entry, douts: list[Tensor | None]) -> list[Tensor | None]:
    """Call the hooks on an entry's outputs. Return `douts` with the new gradients that the hooks return."""
    for index, hook in tuple((entry.hooks or {}).values()):
        before = douts[index]
        if before is None or (after := hook(before)) is None:
            continue
        if not isinstance(after, Tensor):
            raise GradientError(f"A hook on a Tensor must return a new gradient (a Tensor) or None, not {came(after)}.")
        if after.shape != before.shape or not after.dtype.is_float:
            raise GradientError(
                f"A hook on a Tensor of shape {before.shape} returned a gradient of shape {after.shape} and dtype "
                f"{after.dtype}; it must have the shape of the Tensor and a float dtype."
            )
        douts = [*douts[:index], after.astype(before.dtype), *douts[index + 1 :]]
    return douts
