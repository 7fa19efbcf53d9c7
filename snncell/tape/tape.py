"""The tape: the operations that were carried out, in order, for the backward pass.

    y = x * w; z = exp(y)       tape: mul(x, w), exp(y)
    backward from dz:           exp.pull -> dy;  mul.pull -> dx, dw

The Tensors that came out of an Entry keep it alive, and so do the entries that used them. The tape holds weak
references only, so an entry that nothing needs any more is gone before the backward pass begins. `state.py` has the
tape of each thread; `backward.py` walks it.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any, Protocol

Hook = Callable[[Any], Any]  # of a gradient: returns another one, or None to leave it
Hooks = dict[int, tuple[int, Hook]]  # by number: the index of the output, and the function


class Operation(Protocol):
    """An operation, as far as the tape uses it."""

    @property
    def name(self) -> str:
        """Its name in errors."""
        ...

    def pull(self, entry: Any, douts: list[Any]) -> Sequence[Any]:
        """The gradients of the inputs: each a Tensor, None for zero, or a function that computes it on demand.

        Args:
            entry: the call of the operation.
            douts: the gradient of each output, a Tensor, or None for zero.
        """


class Entry:
    """One operation that was carried out: its parents, and the values that its `bprop` needs.

    Args:
        op: the operation; None for a source of gradients.
        attrs: its options.
        parents: for each input the entry that it came out of, or None if no gradient flows there.
        indices: for each input its number among the outputs of that entry.
        inputs: for each input its value, or None if the bprop does not need it.
        outputs: the output arrays if the bprop needs them, else None.
        specs: shape and dtype of each output.
    """

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
        self.parents = parents
        self.indices = indices
        self.inputs = inputs
        self.outputs = outputs
        self.released = False  # set by `clear`, because an entry without parents looks the same
        self.line = ""  # the user's line, if it was traced
        self.hooks: Hooks | None = None
        self.specs = specs

    @classmethod
    def source(cls, data: Any) -> Entry:
        """An entry without parents: gradients are taken with respect to it."""
        return cls(None, None, [], [], (), None, ((data.shape, data.dtype),))

    def clear(self) -> None:
        """Drop all references, so that a Tensor that a user keeps does not keep a whole graph."""
        self.parents, self.indices, self.inputs = [], [], ()
        self.outputs = None
        self.released = True


class Tape:
    """The entries of one recording; see `state.record_on` for how tapes nest.

    Attributes:
        entries: weak references, in the order of the forward pass.
        depth: the number of nested tapes, this one included: the highest order of gradients that you can take.
    """

    __slots__ = ("depth", "entries")

    def __init__(self) -> None:
        self.entries: list[weakref.ref[Entry]] = []
        self.depth = 1

    def live(self) -> list[Entry]:
        """The entries that something still refers to, in the order of the forward pass."""
        return [entry for reference in self.entries if (entry := reference()) is not None]
