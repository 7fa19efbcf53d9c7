"""Operations made of functions of Tensors: a custom reverse around any of them, and the identity on the tape."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from snncell.tape import structure
from snncell.tape.primitive import EVERYWHERE, Primitive, rebuilt, tracked_outputs
from snncell.tape.state import RECORDING, TRACING, add_entry
from snncell.tape.tape import Entry
from snncell.tape.tensor import Tensor, in_trace, snapshot, wrap


def custom(op: Any, forward: Callable[[], Any], inputs: Sequence[Tensor], attrs: Any = None) -> Any:
    """Run `forward` unrecorded and note it as one entry, whose reverse is `op.pull`.

    Args:
        op: what has the reverse: `pull(entry, douts)` gives a gradient for each of `inputs`.
        forward: gives Tensors in any structure.
        inputs: the Tensors that the reverse gives gradients for.
        attrs: kept in the entry for `pull`; the output structure is put beside it.
    """
    tape = RECORDING.tape
    # Only a Composite may be moved out of a loop's body: a user's forward may draw numbers or write to Parameters,
    # which has to happen at each step.
    if TRACING.trace is not None and isinstance(op, Composite) and TRACING.trace.outside(inputs):
        with TRACING.trace.stepping_out():
            return custom(op, forward, inputs, attrs)
    saved = [snapshot(x) for x in inputs]  # before the forward, which may write to Parameters
    paused = RECORDING.paused
    RECORDING.tape, RECORDING.paused = None, paused or tape is not None
    try:
        out = forward()
    finally:
        RECORDING.tape, RECORDING.paused = tape, paused
    if tape is None:  # nobody differentiates, so no entry
        return as_read(out)
    if all(x._entry is None for x in inputs):
        return structure.map_leaves(_without_place, out)
    if TRACING.trace is not None:
        for x in inputs:
            if x._entry is not None:
                TRACING.trace.lift(x)  # makes a Tensor from outside an input of the trace: its gradient has to get out
    leaves, shape_of_out = structure.flatten(out)
    outputs = [_as_result(leaf) for leaf in leaves]
    entry = Entry(
        op,
        (attrs, shape_of_out),
        [x._entry for x in inputs],
        [x._index for x in inputs],
        saved,
        outputs,
        [(part.shape, part.dtype) for part in outputs],
    )
    add_entry(tape, entry)
    return structure.unflatten(shape_of_out, tracked_outputs(entry, outputs))


def as_read(values: Any) -> Any:
    """The values, with the present ones of Parameters, in the same structure: later assignments do not reach them."""
    return values if type(values) is Tensor else structure.map_leaves(snapshot, values)


def _as_result(x: Tensor) -> Any:
    """The elements of a result; in a step of a loop a Value of its own, even for a Tensor from outside."""
    # A capture is no result of the step, so a gradient of higher order would not look for what it was computed from.
    if TRACING.trace is not None and TRACING.trace.outside((x,)):
        return TRACING.trace.record(alias, (wrap(x._data) if type(x) is Tensor else x,), {})
    return in_trace(x)


def _without_place(x: Tensor) -> Tensor:
    """A result of an unrecorded forward, off the tape: a Tensor from outside gets no gradient by this way."""
    return x if x._entry is None and type(x) is Tensor else wrap(in_trace(x))


class Composite:
    """A function of Tensors with a reverse of its own, which the tape sees as one operation.

    Args:
        forward: a function of Tensors and keyword attributes, written with operations.
    """

    def __init__(self, forward: Callable[..., Any]) -> None:
        self.name = forward.__name__.strip("_")
        self.forward = forward
        self.__doc__ = forward.__doc__
        self.bprop: Callable[..., Sequence[Any]] | None = None

    def def_bprop(self, bprop: Callable[..., Sequence[Any]]) -> Callable[..., Sequence[Any]]:
        """Give the reverse: `bprop(*inputs, out, dout, **attrs)`, as for a Primitive."""
        self.bprop = bprop
        return bprop

    def __call__(self, *inputs: Tensor, **attrs: Any) -> Any:
        return custom(self, lambda: self.forward(*inputs, **attrs), inputs, attrs)

    def pull(self, entry: Entry, douts: list[Tensor | None]) -> Sequence[Any]:
        """Call the reverse of one entry."""
        assert self.bprop is not None  # given where the function is defined
        (dout,), (out,) = douts, rebuilt(entry)
        return self.bprop(*entry.inputs, out, dout, **entry.attrs[0])


alias = Primitive("alias", lambda x: x)  # the same value in a new place on the tape
alias.as_stored = EVERYWHERE
alias.additive = True
alias.over_time = lambda arrays, varying, attrs: arrays[0]


@alias.def_bprop
def _alias_bprop(_x: Tensor, _out: Tensor, dout: Tensor) -> Sequence[Tensor]:
    return (dout,)
