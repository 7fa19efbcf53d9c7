"""Gradient checkpointing (`recompute`): compute values again in the backward pass, instead of storing them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any

import numpy as np

from snncell.base.arguments.kinds import Own
from snncell.base.signals import Write
from snncell.errors import ArgumentError, GradientError
from snncell.tape import structure
from snncell.tape.backward import with_zeros
from snncell.tape.parameter import Parameter, commit, together
from snncell.tape.primitive import entry_of, tracked_outputs
from snncell.tape.state import RECORDING, TRACING, Entry, Tape, Undo, add_entry, present_settings, record_on, settings
from snncell.tape.tensor import Tensor, snapshot, wrap
from snncell.tape.transforms import Recording, refuse_no_function


def recompute(block: Annotated[Callable[..., Any], Own()], *args: Any, **kwargs: Any) -> Any:
    """Gradient checkpointing: call `block` and store only its inputs; the backward pass runs it again.

    You save memory, because only one block's intermediate values exist at a time, and pay one more forward pass. The
    second run draws the same random numbers, and a Parameter that `block` writes, such as a statistic, is written once.
    Gradients of any order are the same as without it, except for the order in which several gradients of one Parameter
    are added. This includes the gradients of Parameters and Tensors that `block` uses but does not take as arguments.
    You must not change these until the gradient is computed; Parameters of a Cell are restored for you.

    In a jitted function, and in the step of a time loop, this just calls `block`. There the compiler decides which
    values to store (see `nn.MultiStep(checkpoint_every=...)`).

    Args:
        block: a function or Cell of Tensors.
        args, kwargs: its arguments.
    Raises: GradientError if the second run gives other shapes, or if an attribute, a hook or the training mode of a
        Cell has changed before it; ArgumentError if a construct sets an attribute, which the second run would see.
    Source: Chen, Xu, Zhang and Guestrin, "Training deep nets with sublinear memory cost", 2016.
    Example:
        >>> ops.grad(lambda x: snncell.recompute(lambda a: ops.exp(ops.sin(a)), x))(Tensor(0.0))
        Tensor(shape=[], dtype=Float32, value= 1)
    """
    refuse_no_function(block, "recompute", "block")
    tape = RECORDING.tape
    if tape is None or TRACING.trace is not None:
        return block(*args, **kwargs)
    leaves, tree = structure.flatten((args, kwargs))
    call = _RecomputedCall(block, tree)
    outs, shape_of_out, outside = call.first(leaves)
    inputs = [*(snapshot(leaf) for leaf in leaves), *outside]
    if all(x._entry is None for x in inputs):
        return structure.unflatten(shape_of_out, outs)
    entry = entry_of(call, None, inputs, inputs, [out._data for out in outs], saves_out=False)
    add_entry(tape, entry)
    return structure.unflatten(shape_of_out, tracked_outputs(entry, [out._data for out in outs]))


_HELD = ("smooth", "space", "unfused", "wide")  # thread settings that change the results of a block


class _RecomputedCall:
    """A recomputed call: an operation on the tape whose backward pass runs the block again."""

    name = "recompute"

    def __init__(self, block: Callable[..., Any], arguments: Any) -> None:
        self.block, self.arguments = block, arguments
        self.owner = getattr(block, "__self__", block)  # the Cell, if the block is a method
        self.before: list[Write] = []  # the old values of a Cell's Parameters, and of Parameters that the block wrote
        self.held = present_settings(*_HELD)
        self.versions: list[tuple[Any, int]] = []  # the Cells in the block and their versions
        self.shapes: list[Any] = []
        self.count = 0  # the number of Tensors among its arguments

    def first(self, leaves: Sequence[Tensor]) -> tuple[list[Tensor], Any, list[Tensor]]:
        """The results without tape entries, their structure, and the outside tape outputs that the block reads."""
        tape, written, self.count = Tape(), Undo(), len(leaves)
        sources = [_as_source(leaf) for leaf in leaves]
        # Save a Cell's Parameters, because they may be written before the backward pass runs.
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
                f"recompute: construct of {type(changed).__name__} sets an attribute, so its second run would differ. "
                f"Return the value, or make it a Parameter (requires_grad=False) and write it by ops.assign."
            )
        self.shapes = _shapes(outs)
        entries = tape.live()
        own = {*entries, *(source._entry for source in sources)}
        parents = [pair for entry in entries for pair in zip(entry.parents, entry.indices, strict=True)]
        parents += [(out._entry, out._index) for out in outs]  # outside Tensors that the block returns
        outside = {(e, n): _stand_in(e, n) for e, n in parents if e is not None and e not in own}
        return [wrap(out._data) for out in outs], tree, list(outside.values())

    def _changed_cell(self) -> Any:
        return next((cell for cell, version in self.versions if cell.version != version), None)

    def pull(self, entry: Entry, douts: list[Tensor | None]) -> Sequence[Any]:
        """The gradients, by a second forward pass with the random numbers and Parameters of the first one."""
        leaves, outside = entry.inputs[: self.count], entry.inputs[self.count :]
        floats = [n for n, leaf in enumerate(leaves) if leaf._entry is not None]

        def block(*sources: Tensor) -> Any:
            given = dict(zip(floats, sources, strict=True))
            own = [given.get(n, leaf) for n, leaf in enumerate(leaves)]
            args, kwargs = structure.unflatten(self.arguments, own)
            return self.block(*args, **kwargs)

        if (changed := self._changed_cell()) is not None:
            raise GradientError(
                f"recompute: {type(changed).__name__} has changed since its forward pass: an attribute, a buffer, a "
                f"hook, or the training mode. Compute the gradient first, or change it back."
            )
        hooks = [(on, set(on)) for x in outside if x._entry is not None and (on := x._entry.hooks)]
        with together(Undo()), settings(watch=None, **self.held):  # never cleared, so that all writes are undone
            commit(self.before)
            recording = Recording(block, [leaves[n] for n in floats], range(len(floats)), None, {}, self.name)
        for source in recording.sources:  # drop hooks of the second run, because `first` has registered them already
            if source._entry is not None:
                source._entry.hooks = None
        for on, before in hooks:  # the same for hooks on outside Tensors
            for number in on.keys() - before:
                del on[number]
        outs = structure.flatten(recording.out)[0]
        if (shapes := _shapes(outs)) != self.shapes:
            who = getattr(self.owner, "__name__", type(self.owner).__name__)
            raise GradientError(
                f"recompute: {who} returned Tensors of {self.shapes} first, but of {shapes} in the backward pass. Do "
                f"not change values that it uses besides its arguments."
            )
        recording.weights = ()  # so that pull also returns the gradients of `outside`
        recording.own, recording.sources = 0, [*recording.sources, *outside]
        of_floats, of_outside = recording.pull(outs, with_zeros(entry, douts), release=True)
        spread = dict(zip(floats, of_floats, strict=True))
        return [*(spread.get(n) for n in range(len(leaves))), *(of_outside or ())]


def _as_source(leaf: Tensor) -> Tensor:
    """An argument of a block as a new source of gradients, with the hooks of the argument."""
    x = snapshot(leaf)
    if x._entry is None:  # keep constants constant, because event lists, for example, have no gradient
        return x
    entry = Entry(None, None, [], [], (), None, x._entry.specs)
    entry.hooks = leaf._hooks_on()
    return wrap(x._data, entry, x._index)


def _shapes(outs: Sequence[Tensor]) -> list[Any]:
    return [(out.shape, out._data.dtype.name) for out in outs]


def _stand_in(entry: Entry, index: int) -> Tensor:
    """A Tensor without memory that represents output `index` of a tape entry."""
    shape, dtype = entry.specs[index]
    return wrap(np.broadcast_to(np.zeros((), dtype), shape), entry, index)
