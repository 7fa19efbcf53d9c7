"""The pieces of a training step: batches, and what is measured of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from types import TracebackType
from typing import Annotated, Any

from snncell import ops
from snncell.arguments.kinds import Own
from snncell.arguments.shown import came, show, suggest_instance
from snncell.arguments.vocabulary import Numbers
from snncell.cell import Cell, HookHandle
from snncell.data.loader import in_turn
from snncell.errors import ArgumentError, ShapeError
from snncell.nn.sequences import refuse_batch_first, sequences, within_lengths
from snncell.nn.time import MultiStep
from snncell.ops.base import as_tensor
from snncell.tape import structure
from snncell.tape.given import as_data, on_host
from snncell.tape.tensor import Tensor
from snncell.train.lengths import Lengths, lengths_among, of_output, refuse_lengths
from snncell.train.scores import accuracy as share_right
from snncell.train.state import constant

Measured = tuple[Tensor, dict[str, Tensor]]


class Batches:
    """Arrays of one length, a batch at a time, in another order each time they are gone through.

    The order is drawn from snncell's random numbers, so `snncell.set_seed` makes it repeatable.

    Args:
        arrays: what `Tensor` takes, with the same first axis: inputs, then the target. Arrays of NumPy are not copied.
        batch_size, shuffle, drop_last: as for `data.batches`.
        time_first: the inputs are (T, N, ...), as `data.randman` and `data.padded` give them, and their batches
            (T, B, ...); one of one axis, such as lengths, is (N,), and the target, the last array, (N, ...) as ever.

    Raises:
        ShapeError: if the first axes differ.
        ArgumentError: if that gives no batch at all.

    Example:
        >>> data = snncell.train.Batches(ops.ones((5, 2)), ops.zeros(5), batch_size=2)
        >>> len(data), [tuple(x.shape) for x, y in data]
        (3, [(2, 2), (2, 2), (1, 2)])
    """

    def __init__(
        self,
        *arrays: Numbers,
        batch_size: int = 64,
        shuffle: bool = True,
        drop_last: bool = False,
        time_first: bool = False,
    ) -> None:
        if not arrays:
            raise ArgumentError("Batches: arrays are inputs and a target; there are none.")
        self.arrays = [on_host(array) for array in arrays]
        self.time_first = time_first
        if time_first:
            if not any(array.ndim > 1 for array in self.arrays[:-1]):
                raise ShapeError("Batches: with time_first inputs are (T, N, ...); none has two axes.")
            self.arrays[:-1] = [array.swapaxes(0, 1) if array.ndim > 1 else array for array in self.arrays[:-1]]
        self.batch_size, self.shuffle, self.drop_last = batch_size, shuffle, drop_last
        if any(not array.ndim for array in self.arrays):
            raise ShapeError("Batches: arrays have a first axis, of samples; a number has none.")
        lengths = [len(array) for array in self.arrays]
        if len(set(lengths)) != 1:
            inner = {array.shape[1] for array in self.arrays[:-1] if array.ndim > 1}
            first = not time_first and inner == {lengths[-1]}
            mend = " Of inputs (T, N, ...), time first: train.Batches(..., time_first=True)." if first else ""
            raise ShapeError(
                f"Batches: the arrays have different lengths {lengths}; they need one for each sample.{mend}"
            )
        if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1:
            raise ArgumentError(f"Batches: batch_size is an integer of at least 1, not {batch_size!r}.")
        if not len(self):
            raise ArgumentError(
                f"Batches: {lengths[0]} samples give no batch of {batch_size}"
                + (" with drop_last=True; make it smaller." if drop_last else ".")
            )

    def __len__(self) -> int:
        full, rest = divmod(len(self.arrays[0]), self.batch_size)
        return full + (rest > 0 and not self.drop_last)

    def __iter__(self) -> Iterator[tuple[Tensor, ...]]:
        for chosen in in_turn(len(self.arrays[0]), self.batch_size, self.shuffle, self.drop_last):
            yield self._of(chosen)

    def in_parts(self, cut: Callable[[int], dict[int, slice]]) -> Iterator[tuple[int, dict[int, tuple[Tensor, ...]]]]:
        """The same batches in parts: how many samples a batch has, and by number those parts of it that `cut` gives."""
        for chosen in in_turn(len(self.arrays[0]), self.batch_size, self.shuffle, self.drop_last):
            yield len(chosen), {number: self._of(chosen[part]) for number, part in cut(len(chosen)).items()}

    def _of(self, chosen: Any) -> tuple[Tensor, ...]:
        """The batch of some samples."""
        batch = tuple(Tensor(array[chosen]) for array in self.arrays)
        if not self.time_first:
            return batch
        return (*(x.swapaxes(0, 1) if x.ndim > 1 else x for x in batch[:-1]), batch[-1])

    def description(self) -> dict[str, Any]:
        """A description that tells these data from others: shapes, dtypes, a hash of the elements, and their order."""
        contents = {f"array {n}": constant(a) for n, a in enumerate(self.arrays)}
        return {**contents, "batch_size": self.batch_size, "shuffle": self.shuffle, "drop_last": self.drop_last} | (
            {"time_first": True} if self.time_first else {}
        )


# --- what is measured -------------------------------------------------------------------------------------------------


def cells_of(chosen: Any, who: str) -> list[Cell]:
    """A Cell, or several, as a list."""
    several = isinstance(chosen, Iterable) and not isinstance(chosen, (Cell, str, bytes, dict, Tensor))
    cells = list(chosen) if several else [chosen]
    for cell in cells:
        if not isinstance(cell, Cell):
            words = f"{show(cell)}{suggest_instance(cell)}"
            raise ArgumentError(f"{who} takes Cells whose output is spikes, such as a MultiStep, not {words}.")
    return cells


class Spikes:
    """Listens to Cells that give spikes, and tells their firing rate: the share of elements that are not 0.

    Used as a context, in which every call of these Cells is heard, also while a function is traced.

    Args:
        cells: a Cell, or several: what runs a layer over time, such as a `MultiStep`. Of a tuple that one gives, the
            first Tensor counts.

    Raises:
        ArgumentError: for something that is no Cell.

    Example:
        >>> layer = nn.MultiStep(nn.IFNode())
        >>> with snncell.train.Spikes(layer) as spikes:
        ...     out = layer(ops.full((4, 1, 3), 0.75))
        ...     print(spikes.rate().item())
        0.5
    """

    def __init__(self, cells: Annotated[Cell | Iterable[Cell], Own()]) -> None:
        self.cells = cells_of(cells, "Spikes: cells")
        self.heard: list[Tensor] = []
        self._handles: list[HookHandle] = []

    def __enter__(self) -> Spikes:
        self._handles = [cell.register_forward_hook(self._hear) for cell in self.cells]
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for handle in self._handles:
            handle.remove()
        self.heard.clear()

    def _hear(self, cell: Cell, inputs: Any, out: Any) -> None:
        self.heard += structure.flatten(out)[0][:1]

    def refuse_inner(self, net: Cell) -> None:
        """Raise an ArgumentError for a Cell of one step inside of a `MultiStep` of `net`, which is not heard."""
        for path, outer in net.cells_and_names():
            inner = {id(cell) for _, cell in outer.cell.cells_and_names()} if isinstance(outer, MultiStep) else set()
            for cell in self.cells:
                if id(cell) in inner:
                    raise ArgumentError(
                        f"firing_rate: {type(cell).__name__} is one step of the MultiStep {path or 'net'!r}, inside of "
                        f"whose kernel nobody listens. Give the MultiStep."
                    )

    def rate(self, lengths: Numbers | None = None) -> Tensor:
        """The share of elements that are not 0 of all that was heard since the last time.

        Args:
            lengths: integers (B,), how many steps each sample has; left out, all T. The steps behind them are no
                elements; of what has another batch all steps count.

        Raises:
            ArgumentError: if nothing was, or for lengths below 0 or above T.
        """
        if lengths is None:
            return self.rate_of(None)
        return self.rate_of(Lengths(as_tensor(lengths, "Spikes", "lengths"), tuple(len(x) for x in self.heard)))

    def rate_of(self, lengths: Lengths | None) -> Tensor:
        """`rate`, in which lengths count for sequences that have one of their numbers of steps."""
        heard, self.heard = self.heard, []
        if not heard:
            raise ArgumentError("firing_rate: none of its Cells was called. Give Cells that the network calls.")
        # Counted, not added up as floats, of which large sums would depend on the order.
        fired: Any = 0
        count: Any = 0
        for spikes in map(ops.stop_gradient, heard):
            if lengths is None or not lengths.are_of(spikes):
                fired, count = fired + ops.not_equal(spikes, 0).sum(), count + spikes.size
            else:
                there = within_lengths(spikes, lengths.counts, "firing_rate")
                fired = fired + ops.logical_and(there, ops.not_equal(spikes, 0)).sum()
                count = count + there.sum() * math.prod(spikes.shape[2:])
        total = float(count) if isinstance(count, int) else ops.maximum(count, 1).astype("float32")
        rate: Tensor = fired.astype("float32") / total
        return rate


def measure(
    net: Cell,
    loss: Callable[..., Tensor],
    accuracy: Callable[..., Tensor] | None = share_right,
    spikes: Spikes | None = None,
    metrics: dict[str, Callable[..., Tensor]] | None = None,
) -> Callable[..., Measured]:
    """A function (*inputs, target) -> (loss, {"accuracy": ..., "firing_rate": ...}) of a batch.

    Args:
        net: called with the inputs, which may be whatever `Tensor` takes, and tuples, lists and dicts of that. The one
            that its construct calls `lengths` is how many steps each sample has: loss and accuracy are given it if they
            take `lengths`, and the firing rate leaves out what is behind.
        loss: of what `net` gives and the target, a number.
        accuracy: another such function, or None.
        spikes: whose firing rate, or None, which costs nothing.
        metrics: more functions as accuracy is, by name, which give a number, or an array that is averaged over its
            first axis.
    """

    score = accuracy
    # A label that does not count in the loss does not in the accuracy either.
    # `train.accuracy` is `share_right` with the check of arguments around it.
    if getattr(accuracy, "__wrapped__", accuracy) is share_right and hasattr(loss, "ignore_index"):
        score = partial(share_right, ignore_index=loss.ignore_index)

    def measured(*batch: Tensor) -> Measured:
        *inputs, target = (as_data(x) for x in batch)
        if spikes is not None:
            spikes.heard.clear()
        refuse_lengths(net, inputs)
        with sequences() as shapes:
            output = net(*inputs)
        refuse_batch_first(shapes, target)
        lengths = lengths_among(net, inputs)
        others = {}
        if score is not None:
            others["accuracy"] = _result_of("accuracy", of_output(score, output, target, lengths)).mean()
        for name, metric in (metrics or {}).items():
            found = _result_of(name, of_output(metric, output, target, lengths))
            others[name] = found.mean(0) if found.ndim else found
        if spikes is not None:
            others["firing_rate"] = spikes.rate_of(lengths)
        value = _result_of("loss", of_output(loss, output, target, lengths))
        if value.size != 1:
            raise ShapeError(f'The loss is one number, not of shape {value.shape}: reduction="mean", or its .mean().')
        return value, others

    return measured


def _result_of(name: str, value: Any) -> Tensor:
    """The result of a function of the user's, after checking that it is a Tensor."""
    if not isinstance(value, Tensor):
        raise ArgumentError(f"{name} is a function of (output, target) that gives a Tensor; it gave {came(value)}.")
    return value
