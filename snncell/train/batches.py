"""Batches for training: arrays in batches, data checks, and prefetching on a thread."""

from __future__ import annotations

import contextvars
import os
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any

from snncell.base.arguments.kinds import AtLeastOne, Numbers
from snncell.base.arguments.shown import came
from snncell.base.signals import deferring, take_from
from snncell.cell.cell import Cell
from snncell.data import Loader
from snncell.data.loader import in_turn
from snncell.errors import ArgumentError, ForkError, ShapeError
from snncell.kernels.space import IN_USE
from snncell.nn.time.axis import record_sequences, refuse_samples_as_steps, refuse_time_as_batch
from snncell.nn.time.states import cells_of, put_aside
from snncell.ops.random import draw_for, draws_for_main, read_key, restore_key
from snncell.tape.state import adopt_settings, present_settings, settings
from snncell.tape.structure import as_data, on_host
from snncell.tape.tensor import Tensor
from snncell.tape.tracing import Trace
from snncell.train.state import describe_array

__all__ = ["Batches"]


class Batches:
    """Batches of arrays, shuffled in every epoch.

    The order is drawn from snncell's random numbers, so you can repeat it with `snncell.set_seed`.

    Args:
        arrays: inputs, then the target, with equally many samples, as `Tensor` takes them. NumPy arrays are not copied.
        batch_size, shuffle, drop_last: as for `data.batches`. With `drop_last` there must be a complete batch.
        time_first: True if the inputs are (T, N, ...), as `data.randman` and `data.padded` return them. Their batches
            are (T, B, ...). Inputs with one axis, such as lengths, are (N,). The target is (N, ...).
    Example:
        >>> data = snncell.train.Batches(ops.ones((5, 2)), ops.zeros(5), batch_size=2)
        >>> len(data), [tuple(x.shape) for x, y in data]
        (3, [(2, 2), (2, 2), (1, 2)])
    """

    def __init__(
        self,
        *arrays: Numbers,
        batch_size: AtLeastOne = 64,
        shuffle: bool = True,
        drop_last: bool = False,
        time_first: bool = False,
    ) -> None:
        if not arrays:
            raise ArgumentError("Batches: arrays are inputs and a target, but there are none.")
        self.arrays = [on_host(array) for array in arrays]
        self.time_first = time_first
        if time_first:
            if not any(array.ndim > 1 for array in self.arrays[:-1]):
                raise ShapeError("Batches: with time_first inputs are (T, N, ...); none has two axes.")
            self.arrays[:-1] = [array.swapaxes(0, 1) if array.ndim > 1 else array for array in self.arrays[:-1]]
        self.batch_size, self.shuffle, self.drop_last = batch_size, shuffle, drop_last
        if any(not array.ndim for array in self.arrays):
            raise ShapeError(
                "Batches: each array needs a first axis of samples, but one argument is a number. If it is the batch "
                "size, pass it by name: batch_size=64."
            )
        lengths = [len(array) for array in self.arrays]
        if len(set(lengths)) != 1:
            inner = {array.shape[1] for array in self.arrays[:-1] if array.ndim > 1}
            first = not time_first and inner == {lengths[-1]}
            hint = " For inputs (T, N, ...) use train.Batches(..., time_first=True)." if first else ""
            if time_first and {len(x) if x.ndim < 2 else x.shape[1] for x in self.arrays[:-1]} == {lengths[-1]}:
                hint = " The inputs are already (N, T, ...), so leave out time_first=True."
            raise ShapeError(
                f"Batches: the arrays have different lengths {lengths}; each needs one entry for each sample.{hint}"
            )
        if not len(self):
            raise ArgumentError(
                f"Batches: {lengths[0]} samples give no batch of {batch_size}"
                + (" with drop_last=True; make it smaller." if drop_last else ".")
            )

    def __repr__(self) -> str:
        shapes = ", ".join(f"{array.dtype}{list(array.shape)}" for array in self.arrays)
        return f"Batches({shapes}, batch_size={self.batch_size}, shuffle={self.shuffle}, {len(self)} batches)"

    def __len__(self) -> int:
        full, rest = divmod(len(self.arrays[0]), self.batch_size)
        return full + (rest > 0 and not self.drop_last)

    def __iter__(self) -> Iterator[tuple[Tensor, ...]]:
        for chosen in in_turn(len(self.arrays[0]), self.batch_size, self.shuffle, self.drop_last):
            yield self._of(chosen)

    def in_parts(self, cut: Callable[[int], dict[int, slice]]) -> Iterator[tuple[int, dict[int, tuple[Tensor, ...]]]]:
        """The same batches in parts: the number of samples of each batch, and the parts from `cut`, by number."""
        for chosen in in_turn(len(self.arrays[0]), self.batch_size, self.shuffle, self.drop_last):
            yield len(chosen), {number: self._of(chosen[part]) for number, part in cut(len(chosen)).items()}

    def _of(self, chosen: Any) -> tuple[Tensor, ...]:
        batch = tuple(Tensor(array[chosen]) for array in self.arrays)
        if not self.time_first:
            return batch
        return (*(x.swapaxes(0, 1) if x.ndim > 1 else x for x in batch[:-1]), batch[-1])

    def description(self) -> dict[str, Any]:
        """A description to identify these data: shapes, dtypes, a hash of the elements, and their order."""
        contents = {f"array {n}": describe_array(a) for n, a in enumerate(self.arrays)}
        order = {"batch_size": self.batch_size, "shuffle": self.shuffle, "drop_last": self.drop_last}
        return contents | order | ({"time_first": True} if self.time_first else {})


def as_batches(data: Any, batch_size: int, shuffle: bool, who: str) -> Any:
    """Data as an iterable of batches that can be iterated again for every epoch."""
    if isinstance(data, tuple):
        return Batches(*data, batch_size=batch_size, shuffle=shuffle)
    again = hasattr(data, "__iter__") or hasattr(data, "__getitem__")
    if isinstance(data, type) or hasattr(data, "__next__") or not (data is None or again):
        raise ArgumentError(
            f"{who} must be a tuple of arrays, or batches that can be iterated again and again, not {came(data)}. Make "
            f"a list of it, or a class with a method __iter__."
        )
    return data


def as_batch(batch: Any, who: str) -> tuple[Any, ...]:
    """Inputs and target of a batch, with arrays, numbers and lists of numbers converted to Tensors."""
    if not isinstance(batch, (tuple, list)) or len(batch) < 2:
        several = isinstance(batch, (tuple, list, dict))
        kind = f"a {type(batch).__name__}" + (f" of {len(batch)}" if several else "")
        hint = ""
        if isinstance(batch, dict):
            names = ", ".join(f"b[{name!r:.40}]" for name in [*batch][:4])
            hint = f" Convert dicts b to tuples by a class whose __iter__ yields ({names}), the target last."
        raise ArgumentError(
            f"{who}: a batch must be a tuple (inputs, ..., target) of Tensors or arrays, not {kind}.{hint} Pass arrays "
            f"of all samples as a tuple, too."
        )
    *inputs, target = batch
    parts = (*(as_data(x) for x in inputs), as_data(target))
    if not isinstance(parts[-1], Tensor) or not parts[-1].ndim:
        raise ArgumentError(
            f"{who}: a batch ends with its target, an array with an entry for each sample, not with a "
            f"{type(target).__name__}{getattr(parts[-1], 'shape', '')}."
        )
    return parts


# --- prefetching ------------------------------------------------------------------------------------------------------

# A thread makes the next batch while the caller takes a step:
#
#     thread:  make 1 | make 2 | make 3 | ...
#     caller:         | step 1 | step 2 | ...
#
# Two queues connect them. The caller requests a batch, and the thread puts it into the other queue. The thread is at
# most one batch ahead of the requests. Both share one sequence of random numbers, in the same order as without a
# thread. Therefore data that draw random numbers wait in `_PrefetchThread.turn` until the caller requests this batch,
# because then all earlier steps are done. These data continue from the caller's key, and return the new key with the
# batch. Data that draw nothing never wait.
#
# The queues are `SimpleQueue`s because their methods are C functions, so that an interruption leaves no lock behind.

# The smallest batch, in bytes, that is worth a thread, which costs about 0.1 ms per batch. On two busy cores, with a
# step of 1.4 ms, it was 4 % slower for batches of 2 MB, and 5 % faster for 4 MB.
LEAST_BYTES = 1 << 22
_SETTINGS = ("space", "smooth", "wide", "unfused", "stops")  # settings of the caller's thread that data may depend on
_END: Any = object()


def prefetch_batches(
    source: Iterable[Any], convert: Callable[[Any], Any], prefetch: bool
) -> AbstractContextManager[Iterable[Any]]:
    """Context manager: prefetch converted items in order. Without `prefetch`, or on a GPU, convert them on demand."""
    return _Prefetcher(source, convert) if prefetch and not IN_USE else nullcontext(map(convert, source))


def should_prefetch(source: Any) -> bool:
    """True for `Batches` of at least LEAST_BYTES. Other data may depend on values that a step changes."""
    if getattr(type(source), "__iter__", None) is not Batches.__iter__:
        return False
    size = sum(array.nbytes for array in source.arrays)
    return bool(size / len(source.arrays[0]) * min(source.batch_size, len(source.arrays[0])) >= LEAST_BYTES)


class _Prefetcher:
    """The caller's side of prefetching: a context in which you iterate over the batches once."""

    def __init__(self, source: Iterable[Any], convert: Callable[[Any], Any]) -> None:
        self._asked: SimpleQueue[Any] = SimpleQueue()
        self._made: SimpleQueue[Any] = SimpleQueue()
        self._process = os.getpid()
        settings = present_settings(*_SETTINGS)
        thread = _PrefetchThread(source, convert, self._asked, self._made, settings, read_key(), draws_for_main())
        # If an interruption prevents `__exit__`, the thread ends when this object is garbage-collected.
        self._forgotten = weakref.ref(self, self._asked.put)
        context = contextvars.copy_context()
        self._thread = threading.Thread(target=context.run, args=(thread.run,), name="snncell data", daemon=True)

    def __enter__(self) -> _Prefetcher:
        deferring(self._thread.start)  # if interrupted, `threading` would keep a thread that never starts, and our data
        return self

    def __exit__(self, *_: Any) -> None:
        """End the thread after its present batch; this also closes its iterator."""
        self._asked.put(None)
        self._thread.join()

    def __iter__(self) -> Iterator[Any]:
        while True:
            if os.getpid() != self._process:
                raise ForkError(
                    "this process was forked while a thread of its parent prefetched batches, and lacks that thread. "
                    "Iterate over the data in the process that started to, or pass prefetch=False."
                )
            self._asked.put((read_key(),))
            batch, key, error = take_from(self._made)
            if key is not None:
                restore_key(key)
            if error is not None:
                try:
                    raise error
                finally:
                    del error  # it refers to this frame
            if batch is _END:
                return
            yield batch


@dataclass
class _PrefetchThread:
    """The thread's side of prefetching."""

    source: Iterable[Any]
    convert: Callable[[Any], Any]
    asked: SimpleQueue[Any]
    made: SimpleQueue[Any]
    settings: dict[str, Any]
    key: Any  # the caller's random key at its last request
    main: bool  # whether the caller draws random numbers as the main thread
    number: int = 0  # the number of the batch that is being made
    wanted: int = 0  # the number of requested batches
    drawing: bool = False  # whether it is this thread's turn to draw random numbers
    over: bool = False

    def run(self) -> None:
        """Make batches until the data end or the caller stops asking."""
        adopt_settings({**self.settings, "turn": self.turn})
        draw_for(self.key, self.main)
        batch = error = items = None
        try:
            while batch is not _END and error is None and self.may_begin():
                try:
                    items = iter(self.source) if items is None else items
                    batch = next(items, _END)
                    if batch is not _END:
                        batch = self.convert(batch)
                except BaseException as caught:
                    error = caught
                self.made.put((batch, read_key() if self.drawing else None, error))
                self.drawing = False
                self.number += 1
        finally:
            # An error refers to this frame, which would keep the objects below alive and unclosed.
            del batch, error, items
            del self.source, self.convert

    def may_begin(self) -> bool:
        """Wait until the next batch may be made; returns whether the caller still needs it."""
        while not self.over and (self.number > self.wanted or not self.asked.empty()):
            self.hear()
        return not self.over

    def turn(self) -> None:
        """Wait until the caller requests the present batch, and then continue its random numbers."""
        if self.drawing:
            return
        while not self.over and self.wanted <= self.number:
            self.hear()
        self.drawing = True  # harmless at the end, when the batch is discarded
        restore_key(self.key)

    def hear(self) -> None:
        """Receive a message of the caller: its key with a request for a batch, or the end."""
        word = self.asked.get()
        if isinstance(word, tuple):
            (self.key,) = word
            self.wanted += 1
        else:  # None, or the dead weak reference to a caller that was forgotten
            self.over = True


# --- check of the batch axis ------------------------------------------------------------------------------------------


def refuse_swapped_axes(net: Cell, data: Any, batch: Any) -> None:
    """Raise a ShapeError if the net treats the samples as time steps.

    Shapes alone cannot show this if T equals the batch size, or if the data (B, F) have no time axis. Therefore the net
    is traced twice, for this batch and for a batch with one more sample. If the first axis of a sequence grows, it is
    the batch axis. Data with an unknown batch axis, such as a list of batches, are not checked. Unshuffled data (B, F)
    are not checked, because their rows may be the steps of one recording.
    """
    if not isinstance(batch, tuple) or not all(isinstance(x, Tensor) for x in batch):
        return
    *inputs, target = batch
    samples = len(target)
    axes = _batch_axes(data, inputs)
    if axes is None:
        return
    # PyTorch's DataLoader has no attribute `shuffle`, but a sampler.
    shuffled = getattr(data, "shuffle", type(getattr(data, "sampler", None)).__name__ == "RandomSampler")
    rows = shuffled and any(x.ndim == 2 and not axis for x, axis in zip(inputs, axes, strict=True))
    if not rows and not any(x.shape[:2] == (samples, samples) for x in inputs):
        return
    before = _trace_shapes(net, inputs, [x.shape for x in inputs])
    grown = [(*x.shape[:axis], x.shape[axis] + 1, *x.shape[axis + 1 :]) for x, axis in zip(inputs, axes, strict=True)]
    after = _trace_shapes(net, inputs, grown)
    if rows:
        refuse_samples_as_steps(before, after, samples)
    refuse_time_as_batch(before, after, target, any(axes))


def _batch_axes(data: Any, inputs: list[Tensor]) -> list[int] | None:
    """The batch axis of each input; None if it is unknown for this kind of data."""
    if isinstance(data, Batches):
        return [int(data.time_first and x.ndim > 1) for x in inputs]
    if isinstance(data, Loader):
        known = data.collate is None and data.sequences in (None, (), (0,))
        return [int(n == 0 and data.sequences != ()) for n in range(len(inputs))] if known else None
    # PyTorch's DataLoader stacks samples along the first axis.
    stacked = getattr(getattr(data, "collate_fn", None), "__name__", "") == "default_collate"
    return [0] * len(inputs) if stacked else None


def _trace_shapes(net: Cell, inputs: list[Tensor], shapes: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """The shapes of the sequences that layers run over, for inputs of these shapes, up to the first error."""
    trace = Trace(who="fit")
    quiet: dict[str, Any] = {"watch": None, "tape": None, "notes": []}
    with _restore_cells(net), record_sequences() as noted, settings(trace=trace, **quiet):
        stand_ins = [trace.new_input(shape, x._data.dtype) for shape, x in zip(shapes, inputs, strict=True)]
        # Ignore errors: the step that follows raises any error of this batch, and a net may refuse other batch sizes.
        with suppress(Exception):
            net(*stand_ins)
    return list(noted)


@contextmanager
def _restore_cells(net: Cell) -> Iterator[None]:
    """Context manager: restore the attributes of all Cells and the states of each Stateful."""
    attributes = [(vars(cell), dict(vars(cell))) for cell in cells_of(net)]
    with put_aside(net):
        try:
            yield
        finally:
            for present, before in attributes:
                for name in present.keys() - before.keys():
                    del present[name]
                present.update(before)
