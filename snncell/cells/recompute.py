"""Recomputation: a Cell whose reverse runs it once more, instead of keeping what it computed on the way.

    kept by the tape:     the inputs of the Cell, and nothing else of it
    in the reverse:       the Cell runs again from them, is differentiated, and forgotten

It is one entry of the tape with a reverse of its own, like a Cell with a `bprop`. What the Cell uses beside its inputs,
Parameters and others, is found by a tape that is thrown away. Random numbers are drawn again from where they stood,
and what a Cell writes to Parameters (statistics) is put back, for it has been written before.

Source: Chen et al., "Training deep nets with sublinear memory cost", 2016.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from snncell.errors import ArgumentError
from snncell.ops.seeds import present_key, replaying
from snncell.tape import structure
from snncell.tape.custom import as_read, custom
from snncell.tape.parameter import Undo, commit, together
from snncell.tape.state import recording_on, settings
from snncell.tape.tape import Entry, Tape, watched, zeros_of
from snncell.tape.tensor import Tensor, wrap
from snncell.tape.transforms import Recording


def run_recomputed(cell: Any, compute: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call `compute(args, kwargs)` of a Cell as one entry of the tape.

    Raises:
        ArgumentError: if construct sets an attribute, for the second time it would be another one.
    """
    leaves, tree = structure.flatten((args, kwargs))
    again, found = _Again(cell, compute, tree), Tape()
    versions = [(below, below.version) for _, below in cell.cells_and_names()]
    with recording_on(None), found.active(), together(written := Undo()):
        inputs = [watched(x) for x in leaves]  # in places of their own, to be told from what is used beside them
        args, kwargs = structure.unflatten(tree, inputs)
        out = as_read(compute(args, kwargs))
        again.before += written  # what was written had another value: states that are kept, statistics
        written.clear()
    for below, version in versions:
        if below.version != version:
            raise ArgumentError(
                f"recompute: construct of {type(below).__name__} sets an attribute, so it would not be the same when "
                f"it runs again. Return the value, or make it a Parameter (requires_grad=False) written by ops.assign."
            )
    again.used = _used(found.live(), inputs)
    return custom(again, lambda: out, [*leaves, *again.used])


def _used(entries: list[Entry], inputs: Sequence[Tensor]) -> list[Tensor]:
    """A stand-in for each thing with a gradient that some entries use, and that neither is an input nor of one."""
    known = {(id(x._entry), x._index) for x in inputs}
    inside = {id(entry) for entry in entries}
    used = []
    for entry in entries:
        for parent, index in zip(entry.parents, entry.indices, strict=True):
            if parent is not None and id(parent) not in inside and (id(parent), index) not in known:
                known.add((id(parent), index))
                used.append(wrap(zeros_of(parent.specs[index])._data, parent, index))
    return used


class _Again:
    """The reverse of one call: the call once more, under a tape of its own."""

    used: list[Tensor]

    def __init__(self, cell: Any, compute: Callable[..., Any], tree: Any) -> None:
        self.compute, self.tree = compute, tree
        self.name = f"recompute of {type(cell).__name__}"
        self.key = present_key()
        self.before: list[Any] = [parameter.write_of(parameter._data) for parameter in cell.get_parameters()]

    def pull(self, entry: Entry, douts: list[Tensor | None]) -> Sequence[Any]:
        """Run the Cell from its inputs and the values that its Parameters had, and pull the gradients back."""
        inputs = entry.inputs[: len(entry.inputs) - len(self.used)]
        floats = [position for position, x in enumerate(inputs) if x.dtype.is_float]

        def call(*leaves: Tensor) -> Any:
            args, kwargs = structure.unflatten(self.tree, list(leaves))
            return self.compute(args, kwargs)

        # Never committed, so all writes are undone; where the random numbers stand comes back last, for it is one.
        with replaying(self.key), together(Undo()), settings(watch=None):
            commit(self.before)
            recording = Recording(call, inputs, floats, (), {}, self.name)
            recording.sources += self.used
            grads = [zeros_of(s, douts) if d is None else d for d, s in zip(douts, entry.specs, strict=True)]
            of_inputs, of_used = recording.pull(recording.out, grads, release=True)
        by_position = dict(zip(floats, of_inputs, strict=True))
        return [*(by_position.get(position) for position in range(len(inputs))), *(of_used or ())]
