"""The tape: what was computed, in order, and the walk backwards over it.

    y = x * w; z = exp(y)       tape: mul(x, w), exp(y)
    sweep from dz:              exp.pull -> dy;  mul.pull -> dx, dw

An Entry is kept alive by the Tensors that came out of it and by the entries that used them, never by the tape, which
holds weak references: what nothing needs any more is gone before the sweep begins.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Protocol

from snncell.config import FINITE
from snncell.interrupts import hold_attributes
from snncell.tape.state import RECORDING, STATE, TRACING
from snncell.tape.tensor import Tensor


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
        outer = RECORDING.tape
        self.depth = 1 if outer is None else 1 + outer.depth
        passed_on = () if outer is None else (partial(outer.entries.extend, self.entries),)
        return hold_attributes(vars(STATE), {"tape": self}, {"tape": outer}, *passed_on)

    def add(self, entry: Entry) -> None:
        """Note an entry that has just been carried out."""
        if TRACING.trace is not None:
            entry.line = TRACING.trace.line
        else:
            for watch in FINITE:  # eagerly a line costs too much to find, but for `check_finite`
                entry.line = watch.place()
        self.entries.append(weakref.ref(entry))

    def live(self) -> list[Entry]:
        """The entries that something still refers to, in the order they were carried out."""
        return [entry for reference in self.entries if (entry := reference()) is not None]


Hook = Callable[[Tensor], "Tensor | None"]
Hooks = dict[int, tuple[int, Hook]]  # by number: of which output, and the function
