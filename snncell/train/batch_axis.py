"""Check of the first batch of a training: whether its layers over time run over the samples."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

from snncell.cell import Cell
from snncell.data import Loader
from snncell.nn.time.axis import record_sequences, refuse_samples_as_steps, refuse_time_as_batch
from snncell.tape.state import settings
from snncell.tape.tensor import Tensor
from snncell.tape.tracing import Trace
from snncell.train.evaluation import cells_of, statefuls
from snncell.train.pieces import Batches


def refuse_swapped_axes(net: Cell, data: Any, batch: Any) -> None:
    """Raise a ShapeError if the net runs over the samples in place of time.

    The shapes alone cannot show it where T equals the batch size, or where the data (B, F) have no time axis. The net
    is traced for this batch and for one sample more, without computing anything: if the first axis of a sequence grows,
    it is the samples. Other data are not checked, for example a list of batches, because nobody knows the axis of their
    samples; nor are data (B, F) in their own order, because their rows may be the steps of one recording.
    """
    if not isinstance(batch, tuple) or not all(isinstance(x, Tensor) for x in batch):
        return
    *inputs, target = batch
    samples = len(target)
    axes = _batch_axes(data, inputs)
    if axes is None:
        return
    rows = _is_shuffled(data) and any(x.ndim == 2 and not axis for x, axis in zip(inputs, axes, strict=True))
    if not rows and not any(x.shape[:2] == (samples, samples) for x in inputs):
        return
    before = _trace_shapes(net, inputs, [x.shape for x in inputs])
    grown = [(*x.shape[:axis], x.shape[axis] + 1, *x.shape[axis + 1 :]) for x, axis in zip(inputs, axes, strict=True)]
    after = _trace_shapes(net, inputs, grown)
    if rows:
        refuse_samples_as_steps(before, after, samples)
    refuse_time_as_batch(before, after, target, any(axes))


def _is_shuffled(data: Any) -> bool:
    """True if the data come in a random order; a DataLoader of PyTorch says so by its sampler."""
    return bool(getattr(data, "shuffle", type(getattr(data, "sampler", None)).__name__ == "RandomSampler"))


def _batch_axes(data: Any, inputs: list[Tensor]) -> list[int] | None:
    """The axis of the samples in each input; None if the source of the data does not determine it."""
    if isinstance(data, Batches):
        return [int(data.time_first and x.ndim > 1) for x in inputs]
    if isinstance(data, Loader):
        known = data.collate is None and data.sequences in (None, (), (0,))
        return [int(n == 0 and data.sequences != ()) for n in range(len(inputs))] if known else None
    # PyTorch's DataLoader stacks samples along the first axis.
    stacked = getattr(getattr(data, "collate_fn", None), "__name__", "") == "default_collate"
    return [0] * len(inputs) if stacked else None


def _trace_shapes(net: Cell, inputs: list[Tensor], shapes: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """The shapes of the sequences that layers run over, for inputs of these shapes; up to an error, if there is one."""
    trace = Trace(who="fit")
    quiet: dict[str, Any] = {"watch": None, "tape": None, "notes": []}
    with _restore_cells(net), record_sequences() as noted, settings(trace=trace, **quiet):
        stand_ins = [trace.new_input(shape, x._data.dtype) for shape, x in zip(shapes, inputs, strict=True)]
        # The step that follows raises what this batch causes. A net for one batch size is right to refuse another one.
        with suppress(Exception):
            net(*stand_ins)
    return list(noted)


@contextmanager
def _restore_cells(net: Cell) -> Iterator[None]:
    """Restore the attributes of all Cells and the states of each Stateful after the body."""
    attributes = [(vars(cell), dict(vars(cell))) for cell in cells_of(net)]
    with ExitStack() as stack:
        for stateful in statefuls(net):
            stack.enter_context(stateful.aside())
        try:
            yield
        finally:
            for present, before in attributes:
                for name in present.keys() - before.keys():
                    del present[name]
                present.update(before)
