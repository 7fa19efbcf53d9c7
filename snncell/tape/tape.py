"""The tape: what was computed, in order, and the walk backwards over it.

    y = x * w; z = exp(y)       tape: mul(x, w), exp(y)
    sweep from dz:              exp.pull -> dy;  mul.pull -> dx, dw

An Entry is kept alive by the Tensors that came out of it and by the entries that used them, never by the tape, which
holds weak references: what nothing needs any more is gone before the sweep begins.
"""

from __future__ import annotations

import weakref
from collections.abc import Collection, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, Protocol

import numpy as np

from snncell import dtype as dtypes
from snncell.config import FINITE
from snncell.errors import GradientError, ShapeError
from snncell.interrupts import hold_attributes
from snncell.kernels.space import DEVICE, IN_USE, move_to_space
from snncell.tape.frames import Reversing, tells
from snncell.tape.hooks import Hooks, apply_hooks
from snncell.tape.state import STATE, settings
from snncell.tape.tensor import Tensor, wrap


class Operation(Protocol):
    """The view that the tape has of an operation."""

    @property
    def name(self) -> str:
        """Its name in errors."""
        ...

    def pull(self, entry: Entry, douts: list[Tensor | None]) -> Sequence[Any]:
        """The gradients of the inputs, each a Tensor, None for zero, or a function that gives it when it is needed."""


class Entry:
    """One operation that was carried out: its parents, and the values that its reverse asked for."""

    __slots__ = (
        "__weakref__", "attrs", "hooks", "indices", "inputs", "line", "op", "outputs", "parents", "released", "specs",
    )  # fmt: skip

    def __init__(
        self,
        op: Operation | None,
        attrs: Any,
        parents: list[Entry | None],
        indices: list[int],
        inputs: Any,
        outputs: Any,
        specs: Sequence[tuple[tuple[int, ...], Any]],
    ) -> None:
        self.op = op
        self.attrs = attrs
        self.parents = parents  # for each input the entry it came out of, or None where no gradient flows
        self.indices = indices  # and which of that entry's outputs it was
        self.inputs = inputs  # the inputs that the reverse asked for; the places of the others hold None
        self.outputs = outputs  # the output arrays if the reverse asked for them, else None
        self.released = False  # cleared by a sweep: to be told from an entry without parents
        self.line = ""  # where the user asked for it, if it was traced
        self.hooks: Hooks | None = None  # functions that get the gradients of its outputs
        self.specs = specs  # shape and dtype of each output

    @classmethod
    def source(cls, data: Any) -> Entry:
        """An entry without a parent: something that gradients are taken with respect to."""
        return cls(None, None, [], [], (), None, ((data.shape, data.dtype),))

    def clear(self) -> None:
        """Let go of everything, so that a Tensor a user keeps does not keep a whole graph."""
        self.parents, self.indices, self.inputs = [], [], ()
        self.outputs = None
        self.released = True


def watch_input(x: Tensor) -> Tensor:
    """`x` as something that gradients are taken with respect to, if it is of floats."""
    return wrap(x._data, Entry.source(x._data)) if x.dtype.is_float else x


class Tape:
    """Records operations while it is active on its thread (`with tape.active():`); tapes nest.

    Attributes:
        depth: the number of tapes nested here, itself counted: the highest order of gradients that may be taken.
    """

    __slots__ = ("depth", "entries")

    def __init__(self) -> None:
        self.entries: list[weakref.ref[Entry]] = []
        self.depth = 1

    def active(self) -> AbstractContextManager[Any]:
        """Record in the body.

        When an inner tape ends, its entries go on to the outer one: what was computed inside is part of both.
        """
        outer = STATE.tape
        self.depth = 1 if outer is None else 1 + outer.depth
        passed_on = () if outer is None else (partial(outer.entries.extend, self.entries),)
        return hold_attributes(vars(STATE), {"tape": self}, {"tape": outer}, *passed_on)

    def add(self, entry: Entry) -> None:
        """Note an entry that has just been carried out."""
        if STATE.trace is not None:
            entry.line = STATE.trace.line
        else:
            for watch in FINITE:  # eagerly a line costs too much to find, but for `check_finite`
                entry.line = watch.place()
        self.entries.append(weakref.ref(entry))

    def live(self) -> list[Entry]:
        """The entries that something still refers to, in the order they were carried out."""
        return [entry for reference in self.entries if (entry := reference()) is not None]


@tells(Reversing, lambda local: Reversing(local["entry"].line) if "entry" in local else None)
def sweep(
    entries: list[Entry], cotangents: dict[Entry, list[Tensor | None]], sources: set[Entry], release: bool
) -> dict[Entry, list[Tensor | None]]:
    """Walk `entries` backwards and add up the gradients that arrive at the sources.

    Args:
        entries: in the order of the forward pass; used up.
        cotangents: for some entries, the gradient of each output; those of the sources are added to it.
        sources: the entries where the walk ends. Only entries that depend on one of them are pulled.
        release: whether the entries are needed no more.
    """
    dependent = set(sources)
    for entry in entries:
        if entry.released:
            raise GradientError(
                "This gradient belongs to a computation that an outer gradient has finished and released. Pull it back "
                "inside of that, or record the computation on its own."
            )
        if not dependent.isdisjoint(entry.parents):
            dependent.add(entry)
    while entries:
        entry = entries.pop()  # off the list, so that its memory is free once it has been pulled
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
    beside: Collection[Entry] = (),
    once: bool = False,
    release: bool = False,
    own: Sequence[Tensor] | None = None,
) -> list[Tensor | None]:
    """The gradients of `inputs` from those of `outs`: a vector-Jacobian product. None where no gradient arrives.

    Args:
        entries: those in between, in the order of the forward pass; used up.
        outs, douts: the outputs, and for each its gradient or None.
        inputs: the Tensors where the sweep ends.
        beside: other entries where it ends.
        once: whether of several inputs in one place the first alone gets the gradient, so that a sum of them is right.
        release: whether the entries are needed no more.
        own: those of the inputs that have here all of their gradient, so that the hooks on them are called; all of
            them by default. Of the others another sweep has the rest, and calls them.
    """
    cotangents: dict[Entry, list[Tensor | None]] = {}
    for out, dout in zip(outs, douts, strict=True):
        if dout is not None and out._entry is not None:
            deposit(cotangents, out._entry, out._index, dout)
    sweep(entries, cotangents, {x._entry for x in inputs if x._entry is not None}.union(beside), release)
    for entry in {x._entry for x in (inputs if own is None else own) if x._entry is not None and x._entry.hooks}:
        if entry in cotangents:
            cotangents[entry] = apply_hooks(entry, cotangents[entry])
    grads: list[Tensor | None] = []
    served: set[tuple[Entry, int]] = set()
    for x in inputs:
        slots = None if x._entry is None else cotangents.get(x._entry)
        if slots is None or x._entry is None or (once and (x._entry, x._index) in served):
            grads.append(None)
        else:
            grads.append(slots[x._index])
            served.add((x._entry, x._index))
    return grads


def ancestors(entries: Iterable[Entry | None], ends: Collection[Entry | None] = ()) -> set[Entry | None]:
    """The entries themselves and all that they were computed from, as far as gradients flow: not beyond `ends`."""
    reached: set[Entry | None] = set()
    waiting = list(entries)
    while waiting:
        entry = waiting.pop()
        if entry is not None and entry not in reached:
            reached.add(entry)
            waiting += () if entry in ends else entry.parents
    return reached


def deposit(cotangents: dict[Entry, list[Tensor | None]], entry: Entry, index: int, grad: Tensor) -> None:
    """Add `grad` to what has arrived at output `index` of `entry`."""
    shape, dtype = entry.specs[index]
    slots = cotangents.setdefault(entry, [None] * len(entry.specs))
    present = slots[index]
    grad = conform(grad, shape, dtype)
    slots[index] = grad if present is None else present + grad


def conform(grad: Tensor, shape: tuple[int, ...], dtype: Any) -> Tensor:
    """`grad` summed to `shape`, the reverse of broadcasting, and cast to `dtype`.

    Raises:
        ShapeError: if `shape` does not broadcast to the gradient's shape.
    """
    if grad.shape != shape:
        extra = len(grad.shape) - len(shape)
        pairs = zip(grad.shape[max(extra, 0) :], shape, strict=False)
        if extra < 0 or any(have != want != 1 for have, want in pairs):
            raise ShapeError(f"a gradient of shape {grad.shape} for a value of shape {shape}")
        stretched = [extra + axis for axis, want in enumerate(shape) if want == 1 != grad.shape[extra + axis]]
        grad = grad.sum(axis=(*range(extra), *stretched)).reshape(shape)
    if grad._data.dtype == dtype:
        return grad
    with settings(wide=False) if STATE.wide else nullcontext():
        return grad.astype(dtypes.BY_NUMPY[dtype])


def zeros_of(spec: tuple[tuple[int, ...], Any], others: Iterable[Tensor | None] = ()) -> Tensor:
    """Zeros of an output's shape that take no memory, on the device of `others`: the gradient of an unused output."""
    shape, dtype = spec
    zeros = np.broadcast_to(np.zeros((), dtype if dtype in dtypes.INEXACT else np.float32), shape)
    on_gpu = bool(IN_USE) and any(x is not None and x.device == "gpu" for x in others)
    return wrap(move_to_space(zeros, DEVICE) if on_gpu else zeros)
