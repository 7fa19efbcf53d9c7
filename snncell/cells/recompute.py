"""Recomputation: a Cell whose reverse runs it once more, instead of keeping what it computed on the way.

    kept by the tape:     the inputs of the Cell, and nothing else of it
    in the reverse:       the Cell runs again from them, is differentiated, and forgotten

It is one entry of the tape with a reverse of its own, like a Cell with a `bprop`. Random numbers are drawn again from
where they stood, and what a Cell writes to Parameters (statistics) is put back, for it has been written before.

Source: Chen et al., "Training deep nets with sublinear memory cost", 2016.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from snncell.errors import GradientError
from snncell.ops.seeds import present_key, replaying
from snncell.tape import structure
from snncell.tape.custom import custom
from snncell.tape.parameter import Parameter, Undo, commit, together
from snncell.tape.state import settings
from snncell.tape.tape import Entry, zeros_of
from snncell.tape.tensor import Tensor
from snncell.tape.transforms import Recording


def run_recomputed(cell: Any, compute: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call `compute(args, kwargs)` of a Cell as one entry of the tape."""
    leaves, tree = structure.flatten((args, kwargs))
    parameters = [p for p in cell.trainable_params() if p.dtype.is_float]
    again = _Again(cell, compute, tree, parameters, present_key())
    return custom(again, lambda: compute(args, kwargs), [*leaves, *parameters])


class _Again:
    """The reverse of one call: the call once more, under a tape of its own."""

    def __init__(self, cell: Any, compute: Any, tree: Any, parameters: list[Parameter], key: Any) -> None:
        self.cell, self.compute, self.tree, self.parameters, self.key = cell, compute, tree, parameters, key
        self.name = f"recompute of {type(cell).__name__}"

    def pull(self, entry: Entry, douts: list[Tensor | None]) -> Sequence[Any]:
        """Run the Cell from its inputs and the values that its Parameters had, and pull the gradients back."""
        count = len(entry.inputs) - len(self.parameters)
        inputs = entry.inputs[:count]
        floats = [position for position, x in enumerate(inputs) if x.dtype.is_float]
        before = [p.write_of(x._data) for p, x in zip(self.parameters, entry.inputs[count:], strict=True)]

        def call(*leaves: Tensor) -> Any:
            args, kwargs = structure.unflatten(self.tree, list(leaves))
            return self.compute(args, kwargs)

        with together(Undo()), replaying(self.key), settings(watch=None):  # never committed: all writes are undone
            commit(before)
            recording = Recording(call, inputs, floats, self.parameters, {}, self.name)
            self._refuse_outside(recording)
            outs, _ = structure.flatten(recording.out)
            grads = [zeros_of(s, douts) if d is None else d for d, s in zip(douts, entry.specs, strict=True)]
            of_inputs, of_parameters = recording.pull(outs, grads, release=True)
        by_position = dict(zip(floats, of_inputs, strict=True))
        return [*(by_position.get(position) for position in range(count)), *(of_parameters or ())]

    def _refuse_outside(self, recording: Recording) -> None:
        """Raise if the Cell used something with a gradient that is neither an input nor a Parameter of its own."""
        entries = recording.tape.live()
        known = {id(entry) for entry in entries} | {id(source._entry) for source in recording.sources}
        for entry in entries:
            for parent in entry.parents:
                if parent is not None and id(parent) not in known:
                    raise GradientError(
                        f"{type(self.cell).__name__}.recompute: construct uses a Tensor with a gradient that is no "
                        f"input and no Parameter of the Cell, and would get none. Make it one of them."
                    )
