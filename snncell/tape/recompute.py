"""Gradient checkpointing (`recompute`): compute values again for the backward pass, instead of keeping them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any

import numpy as np

from snncell.base.arguments.kinds import Own
from snncell.base.arguments.shown import came
from snncell.base.signals import Write
from snncell.errors import ArgumentError, GradientError
from snncell.tape import structure
from snncell.tape.backward import with_zeros
from snncell.tape.parameter import Parameter, commit, together
from snncell.tape.primitive import entry_of, tracked_outputs
from snncell.tape.state import RECORDING, TRACING, Entry, Tape, Undo, add_entry, present_settings, record_on, settings
from snncell.tape.tensor import Tensor, snapshot, wrap
from snncell.tape.transforms import Recording


def recompute(block: Annotated[Callable[..., Any], Own()], *args: Any, **kwargs: Any) -> Any:
    """Call `block`, and keep only its inputs for the gradient: the backward pass runs it again.

    It costs the time of one more forward pass, and the memory of one block at a time. The second run draws the same
    random numbers, and a Parameter that `block` writes, such as a statistic, is written once. Gradients of any order
    are the same as without it (several gradients of one Parameter may be added in another order), also those of
    Parameters and Tensors that `block` finds outside of its arguments. These must not change until the gradient is
    taken; the values of a Cell's Parameters are kept.

    In a jitted function, and in the step of a loop over time, `block` is just called, because there the compiler
    decides what to keep (`nn.MultiStep(checkpoint_every=...)`).

    Args:
        block: a function or Cell of Tensors.
        args, kwargs: its arguments.

    Raises:
        GradientError: if the second run gives other shapes, or a Cell has been changed before the gradient is taken:
            an attribute, a hook, whether it is in training.
        ArgumentError: if a Cell sets an attribute in its construct, which would differ in the second run.

    Source: Chen, Xu, Zhang and Guestrin, "Training deep nets with sublinear memory cost", 2016.

    Example:
        >>> ops.grad(lambda x: snncell.recompute(lambda a: ops.exp(ops.sin(a)), x))(Tensor(0.0))
        Tensor(shape=[], dtype=Float32, value= 1)
    """
    if not callable(block) or isinstance(block, type):
        raise GradientError(f"recompute: block is a function or a Cell, not {came(block)}.")
    tape = RECORDING.tape
    if tape is None or TRACING.trace is not None:
        return block(*args, **kwargs)
    leaves, tree = structure.flatten((args, kwargs))
    again = _Again(block, tree)
    outs, shape_of_out, outside = again.first(leaves)
    inputs = [*(snapshot(leaf) for leaf in leaves), *outside]
    if all(x._entry is None for x in inputs):
        return structure.unflatten(shape_of_out, outs)
    entry = entry_of(again, None, inputs, inputs, [out._data for out in outs], saves_out=False)
    add_entry(tape, entry)
    return structure.unflatten(shape_of_out, tracked_outputs(entry, [out._data for out in outs]))


_HELD = ("smooth", "space", "unfused", "wide")  # settings of the thread by which a block is another function


class _Again:
    """A call, as an operation of the tape whose backward pass runs it again."""

    name = "recompute"

    def __init__(self, block: Callable[..., Any], arguments: Any) -> None:
        self.block, self.arguments = block, arguments
        self.owner = getattr(block, "__self__", block)  # of a Cell's method the Cell
        self.before: list[Write] = []  # the values of Parameters of a Cell, and of those that it wrote
        self.held = present_settings(*_HELD)
        self.versions: list[tuple[Any, int]] = []  # of the Cells that it consists of
        self.shapes: list[Any] = []
        self.count = 0  # of the Tensors among its arguments

    def first(self, leaves: Sequence[Tensor]) -> tuple[list[Tensor], Any, list[Tensor]]:
        """The results off the tape, their structure, and the places on the tape that the block reads itself."""
        tape, written, self.count = Tape(), Undo(), len(leaves)
        sources = [_beginning_at(leaf) for leaf in leaves]
        # Of a Cell, whose Parameters may be written before the reverse is run.
        parameters: Iterable[Parameter] = getattr(self.owner, "get_parameters", tuple)()
        held = [parameter.write_of(parameter._data) for parameter in parameters]
        self.versions = [(cell, cell.version) for _, cell in getattr(self.owner, "cells_and_names", tuple)()]
        with together(written), record_on(tape):
            args, kwargs = structure.unflatten(self.arguments, sources)
            results, tree = structure.flatten(self.block(*args, **kwargs))
            outs = [snapshot(result) for result in results]
            self.before = [*held, *written]
            written.clear()
        if (changed := self._changed_cell()) is not None:
            raise ArgumentError(
                f"recompute: construct of {type(changed).__name__} sets an attribute, so it would not be the same "
                f"when it runs again. Return the value, or make it a Parameter (requires_grad=False) written by "
                f"ops.assign."
            )
        self.shapes = _shapes(outs)
        entries = tape.live()
        own = {*entries, *(source._entry for source in sources)}
        parents = [pair for entry in entries for pair in zip(entry.parents, entry.indices, strict=True)]
        parents += [(out._entry, out._index) for out in outs]  # handed through
        outside = {(e, n): _at(e, n) for e, n in parents if e is not None and e not in own}
        return [wrap(out._data) for out in outs], tree, list(outside.values())

    def _changed_cell(self) -> Any:
        """A Cell that has been changed since `versions` was noted, or None."""
        return next((cell for cell, version in self.versions if cell.version != version), None)

    def pull(self, entry: Entry, douts: list[Tensor | None]) -> Sequence[Any]:
        """The gradients, by a forward pass with the random numbers and Parameters of the first one."""
        leaves, outside = entry.inputs[: self.count], entry.inputs[self.count :]
        floats = [n for n, leaf in enumerate(leaves) if leaf._entry is not None]

        def block(*sources: Tensor) -> Any:
            given = dict(zip(floats, sources, strict=True))
            own = [given.get(n, leaf) for n, leaf in enumerate(leaves)]
            args, kwargs = structure.unflatten(self.arguments, own)
            return self.block(*args, **kwargs)

        if (changed := self._changed_cell()) is not None:
            raise GradientError(
                f"recompute: {type(changed).__name__} has been changed since its forward: an attribute, a buffer, a "
                f"hook, or whether it is in training. Pull the gradient first, or change it back."
            )
        hooks = [(on, set(on)) for x in outside if x._entry is not None and (on := x._entry.hooks)]
        with together(Undo()), settings(watch=None, **self.held):  # not cleared: what it writes is put back
            commit(self.before)
            recording = Recording(block, [leaves[n] for n in floats], range(len(floats)), None, {}, self.name)
        for source in recording.sources:  # and what it puts on its arguments is on those of the forward (`first`)
            if source._entry is not None:
                source._entry.hooks = None
        for on, before in hooks:  # what the block puts on Tensors outside of it has been there since the forward
            for number in on.keys() - before:
                del on[number]
        outs = structure.flatten(recording.out)[0]
        if (shapes := _shapes(outs)) != self.shapes:
            who = getattr(self.owner, "__name__", type(self.owner).__name__)
            raise GradientError(
                f"recompute: {who} gave Tensors of {self.shapes} at first, and of {shapes} for the reverse. What it "
                f"looks at outside of its arguments has to be as it was."
            )
        recording.weights = ()  # further places, behind the arguments
        recording.own, recording.sources = 0, [*recording.sources, *outside]
        of_floats, of_outside = recording.pull(outs, with_zeros(entry, douts), release=True)
        spread = dict(zip(floats, of_floats, strict=True))
        return [*(spread.get(n) for n in range(len(leaves))), *(of_outside or ())]


def _beginning_at(leaf: Tensor) -> Tensor:
    """An argument of a block, in a place of its own, that shares the hooks, so that they see the whole gradient."""
    x = snapshot(leaf)
    if x._entry is None:  # a constant, in the block too: of event lists no gradient may be asked
        return x
    entry = Entry(None, None, [], [], (), None, x._entry.specs)
    entry.hooks = leaf._hooks_on()
    return wrap(x._data, entry, x._index)


def _shapes(outs: Sequence[Tensor]) -> list[Any]:
    return [(out.shape, out._data.dtype.name) for out in outs]


def _at(entry: Entry, index: int) -> Tensor:
    """A Tensor that stands for a place on the tape, and holds no elements."""
    shape, dtype = entry.specs[index]
    return wrap(np.broadcast_to(np.zeros((), dtype), shape), entry, index)
