"""Loader: batches of a data set, made ahead by workers, in an order that a seed decides."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import Annotated, Any, TypeGuard

import numpy as np

from snncell.base.arguments.kinds import Count, Numbers, Own, Size
from snncell.base.frames import hide_frames
from snncell.compiler.state.reach import NUMPYS, PYTHONS, ReachableValues
from snncell.data.random_numbers import draw_seed, sample_of, takes_rng
from snncell.data.samples import Collate, Waiting, check_dataset, entries, first_entry, length_of, with_entry
from snncell.data.transforms.base import by_batches
from snncell.data.workers import make_by_workers
from snncell.errors import ArgumentError, ShapeError
from snncell.kernels.space import HOST
from snncell.ops.random import randperm
from snncell.tape.state import settings
from snncell.tape.structure import on_host, with_tensors
from snncell.tape.tensor import Tensor

__all__ = ["Loader", "batches"]

# --- a batch from its number, on any thread and in any process --------------------------------------------------------

Array = np.ndarray[Any, Any]
LOOKED_AT = 256  # samples of which `buckets=` a number takes the lengths


class Maker:
    """The part of a Loader that makes batches: a function of their number alone.

    Where a transform takes whole batches (`Transform.batch`), a sample goes through those in front of it, with its own
    random numbers, and waits for the others. `seed` are two integers, of the order and the transforms. `cut` gives the
    parts of a batch of so many samples, by number, to be made as batches of their own; without it a batch is whole.
    """

    def __init__(
        self,
        dataset: Any,
        transform: Callable[..., Any] | None,
        collate: Callable[..., Any],
        batch_size: int,
        shuffle: bool,
        seed: tuple[int, int],
        cut: Callable[[int], dict[int, slice]] | None = None,
    ) -> None:
        self.cut, self.process = cut, os.getpid()
        self.dataset, self.transform, self.collate = dataset, transform, collate
        self.batch_size, self.seed = batch_size, seed
        count = len(dataset)
        self.order = np.random.default_rng(seed).permutation(count) if shuffle else np.arange(count)
        # The transform of a sample alone, or in its place one of a sample and one of a batch; with `rng` or without.
        self.own = collate if isinstance(collate, Collate) else None
        parts = by_batches(transform) if self.own is not None else None
        self.last: Any = parts and parts[1]
        self.alone, self.first = _Step(transform), _Step(parts and parts[0])

    def __call__(self, number: int, over: list[bool]) -> Any:
        """A batch, or its parts; nothing, if nobody wants it any more."""
        chosen = [int(index) for index in self.order[number * self.batch_size :][: self.batch_size]]
        if self.cut is None:
            return self._of(chosen, over)
        return len(chosen), {part: self._of(chosen[own], over) for part, own in self.cut(len(chosen)).items()}

    def _of(self, chosen: list[int], over: list[bool]) -> Any:
        """The batch of some samples."""
        samples = []
        for index in chosen:
            if over:
                return None
            samples.append(self.sample(index, wait=True))
        if self.own is None:
            with self._named(", ".join(map(str, chosen[:8])) + ", ..." * (len(chosen) > 8)):
                return self.collate(samples)
        if self.last is None:
            return self.own(samples, chosen)
        try:
            # Nothing is drawn here, but if something is, it is not from the numbers of the thread that reads.
            with self._drawing(chosen[0]):
                return self.own(samples, chosen, self.last.batch)
        except Exception as error:
            failed = error
        # One by one again: an error of a sample alone is raised with its number, in the same words as without batches.
        for index, each in zip(chosen, samples, strict=True):
            _, waiting = first_entry(each)
            if isinstance(waiting, Waiting):
                with self._drawing(index), self._named(index):
                    self.last(waiting.value)
        raise failed

    def sample(self, index: int, wait: bool) -> Any:
        """A sample, transformed; if it is to wait, as far as it can be before the others are there."""
        with self._drawing(index) as generator, self._named(index):
            sample = self.dataset[index]
            name, value = first_entry(sample)
            if wait and self.last is not None and self.own is not None and self.own.is_sequence(name):
                return with_entry(sample, name, Waiting(self.first(value, generator)))
            return sample if self.transform is None else with_entry(sample, name, self.alone(value, generator))

    def quantiles(self, count: int) -> tuple[int, ...]:
        """At most `count` buckets: quantiles of the lengths of some samples."""
        assert self.own is not None
        if self.own.sequences == ():
            return ()
        chosen = np.unique(np.linspace(0, len(self.order) - 1, LOOKED_AT).astype(int)).tolist()
        rows = {index: entries(self.sample(index, wait=False)) for index in chosen}
        lengths = [length_of(row, self.own.sequences_of(row), index) for index, row in rows.items()]
        own = np.quantile(lengths, np.arange(1, count + 1) / count, method="higher")
        return tuple(sorted({max(int(length), 1) for length in own}))

    def _drawing(self, index: int) -> AbstractContextManager[Callable[[], np.random.Generator]]:
        """The context of a sample's random numbers; the global generators are the Loader's own in its processes."""
        return sample_of(*self.seed, index, global_generators=os.getpid() != self.process)

    @contextmanager
    def _named(self, sample: int | str) -> Iterator[None]:
        """A context whose errors say which sample they are of, or which samples of a batch."""
        where = f"sample {sample} of the {type(self.dataset).__name__}"
        try:
            yield
        except StopIteration as error:  # it would end, or confuse, the generators that it goes through
            raise ArgumentError(
                f"Loader: the data set, the transform or collate has raised StopIteration for {where}: next() of an "
                f"iterator that is at its end, for example. Give it a default, next(iterator, None)."
            ) from error
        except Exception as error:
            error.add_note(f"Loader: this is of {where}.")
            raise


class _Step:
    """A transform, with the generator of a sample if it takes one; None changes nothing."""

    def __init__(self, transform: Callable[..., Any] | None) -> None:
        self.transform = transform
        self.draws = transform is not None and takes_rng(transform)

    def __call__(self, value: Any, generator: Callable[[], np.random.Generator]) -> Any:
        if self.transform is None:
            return value
        return self.transform(value, rng=generator()) if self.draws else self.transform(value)


# --- Loader -----------------------------------------------------------------------------------------------------------


class Loader:
    """Data loader: batches of a data set as Tensors, time first, in each pass anew.

    The samples of a batch, or their first entries if they are tuples or dicts, are sequences (T_n, ...). They are
    padded with zeros to (T, B, ...), and their lengths (B,) come behind them: of samples (x, y) a batch is (x, lengths,
    y), as nets, losses, decoders and `train.fit` take it. T is one of a few lengths, so that a jitted step is traced
    for few shapes.

    Pass e (0, 1, ...) goes through the samples in the order of a generator of (seed, e); and what a transform draws for
    sample i, it draws from a generator of (seed, e, i). Neither depends on workers, batches, or what was drawn.

    Args:
        dataset: anything with `len` and `[i]`, such as those of PyTorch. A sample is an array, a tuple or list, or a
            dict; tensors of other frameworks are arrays.
        batch_size: B; the last batch may have fewer.
        shuffle: whether each pass is in another order.
        transform: a function of a sample's first entry. One with an argument `rng` is given the sample's generator;
            snncell's operations draw from a sequence of the sample's own anyway. One that has a method `batch`, as
            `ToFrame` and a `Compose` that ends with it, transforms a batch at once, with the same result.
        collate: a function of the list of a batch's samples, in place of padding and stacking. Its arrays become
            Tensors.
        workers: threads that make batches while the caller computes; with 0 they are made when they are asked for.
        processes: whether each worker has a process of its own: for transforms that hold Python's lock. They, the data
            set and `collate` are forked, or else pickled. There `np.random`, `random` and `torch` are seeded by (seed,
            e, i) before sample i, so you can draw from them. A transform must not keep a Generator, because every
            process would have a copy and draw the same numbers; use `rng` instead.
        prefetch: how many batches are made ahead; at least one for each worker.
        seed: of order and transforms; without it each pass draws one of snncell's random numbers (`set_seed`).
        drop_last: leave out a last batch that is not full.
        buckets: the lengths that batches are padded to. A number: so many quantiles of the lengths of at most 256
            samples, and the default's for longer ones. By default 1, 2, 3, 4, 6, 8, 12, 16, 24, ..., two for each
            doubling; and a batch of samples that all have one length is not padded.
        sequences: which entries are sequences, by number or name; by default the first. With () there are none, and no
            lengths: every entry is stacked, (B, ...).
        lengths: whether the lengths come behind the first sequence.

    Raises:
        ArgumentError: for a data set without `len` or `[i]`, settings that give no batch, or invalid buckets; for what
            cannot be pickled where processes are not forked, and a transform with a Generator of its own in processes.

    While you go through it, it raises ShapeError for samples that do not fit each other, ArgumentError for those longer
    than the largest of `buckets`, DTypeError for those of which no arrays can be made, and WorkerError for a process
    that has ended. Errors of a data set or a transform have a note that names the sample.

    Example:
        >>> import numpy as np
        >>> recordings = [(np.ones((steps, 2), np.float32), steps % 2) for steps in (3, 5, 4)]
        >>> loader = snncell.data.Loader(recordings, batch_size=2, shuffle=False)
        >>> [(x.shape, lengths.tolist(), y.tolist()) for x, lengths, y in loader]
        [((6, 2, 2), [3, 5], [1, 1]), ((4, 1, 2), [4], [0])]
    """

    def __init__(
        self,
        dataset: Annotated[Any, Own()],
        batch_size: Count,
        shuffle: bool = True,
        *,
        transform: Callable[..., Any] | None = None,
        collate: Callable[..., Any] | None = None,
        workers: Size = 1,
        processes: bool = False,
        prefetch: Count = 2,
        seed: Size | None = None,
        drop_last: bool = False,
        buckets: Annotated[int | Sequence[int] | None, Own()] = None,
        sequences: Annotated[Sequence[int | str] | None, Own()] = None,
        lengths: bool = True,
    ) -> None:
        check_dataset("Loader", dataset)
        generators = [] if transform is None or not processes else ReachableValues([transform]).generators
        if any(one is not NUMPYS and one is not PYTHONS for one in generators):
            raise ArgumentError(
                "Loader: the transform keeps a random generator, and processes=True gives every process a copy of it, "
                "which draws the same numbers. Give the transform an argument rng, the generator of the sample."
            )
        self.dataset, self.batch_size, self.shuffle = dataset, batch_size, shuffle
        self.transform, self.collate, self.workers, self.processes = transform, collate, workers, processes
        self.prefetch, self.seed, self.drop_last, self.lengths = prefetch, seed, drop_last, lengths
        self.buckets = _check_buckets(buckets)
        self.sequences = None if sequences is None else _names(sequences)
        self._quantiles: tuple[int, ...] = ()  # buckets by the lengths of samples, once these are known
        self._place = self._begun = _Place(0, 0, None)
        self._resumed = False
        if not len(self):
            raise ArgumentError(
                f"Loader: {len(dataset)} samples give no batch of {batch_size}"
                + (" with drop_last=True; make it smaller." if drop_last and len(dataset) else ".")
            )

    def __len__(self) -> int:
        full, rest = divmod(len(self.dataset), self.batch_size)
        return full + (rest > 0 and not self.drop_last)

    def __iter__(self) -> Iterator[Any]:
        return self._batches(None)

    def in_parts(self, cut: Callable[[int], dict[int, slice]]) -> Iterator[tuple[int, dict[int, Any]]]:
        """The same batches in parts: how many samples a batch has, and by number those parts of it that `cut` gives.

        Each part is a batch of its own, padded for itself. Samples of other parts are not read.
        """
        return self._batches(cut)

    def _batches(self, cut: Callable[[int], dict[int, slice]] | None) -> Iterator[Any]:
        """A pass over the data."""
        place = self._begin()
        count = len(self)
        make = self._maker(place, cut)
        numbers = range(place.batch, count)
        batches: Generator[Any, None, None]
        if self.workers:
            ahead = max(self.prefetch, self.workers)
            batches = make_by_workers(make, numbers, self.workers, ahead, self.processes)
        else:
            batches = (make(number, []) for number in numbers)
        try:
            for number, batch in zip(numbers, batches, strict=True):
                last = number + 1 == count
                self._place = _Place(place.epoch + 1, 0, None) if last else replace(place, batch=number + 1)
                yield with_tensors(batch)
        except Exception as error:
            hide_frames(error)
            raise
        finally:
            batches.close()

    def state(self, given: Size | None = None) -> dict[str, Any]:
        """The place in the data: what `resume` goes on from, behind the batch that was given last.

        It can be written as JSON.

        Args:
            given: behind so many batches of the present pass, for whoever has asked for more than it has used.

        Raises:
            ArgumentError: for more than the pass has.
        """
        place = self._place
        if given is not None:
            batch = self._begun.batch + given
            if batch > len(self):
                raise ArgumentError(
                    f"Loader: state: given is at most the {len(self) - self._begun.batch} batches of the pass, not "
                    f"{given}."
                )
            over = batch == len(self)
            place = _Place(self._begun.epoch + 1, 0, None) if over else replace(self._begun, batch=batch)
        kept = {"epoch": place.epoch, "batch": place.batch, "seed": place.seed}
        return {**kept, "quantiles": list(self._quantiles), **self._fixed()}

    def resume(self, state: dict[str, Any]) -> None:
        """Go on from a `state`: the next pass is the rest of that one.

        Raises:
            ArgumentError: for a state of another data set or other settings, naming what differs, or of nothing.
        """
        fixed = self._fixed()
        wrong = [name for name in fixed if not isinstance(state, dict) or state.get(name) != fixed[name]]
        if wrong:
            name, found = wrong[0], state.get(wrong[0]) if isinstance(state, dict) else state
            raise ArgumentError(
                f"Loader: resume: the state is of another Loader: {name} is {found!r}, not {fixed[name]!r}."
            )
        epoch, batch, seed, found = (state.get(name) for name in ("epoch", "batch", "seed", "quantiles"))
        seeded = _is_count(seed) or (seed is None and not batch)
        if not (_is_count(epoch) and _is_count(batch) and batch < len(self) and seeded):
            raise ArgumentError(
                f"Loader: resume: the state is damaged: epoch {epoch!r}, batch {batch!r}, seed {seed!r}."
            )
        self._quantiles = _check_buckets(found) if found else ()
        self._place, self._resumed = _Place(epoch, batch, seed), True

    def description(self) -> dict[str, Any]:
        """A description that tells these data from others, as far as can be told without reading them."""
        return {"class": type(self).__name__, "data set": type(self.dataset).__name__, **self._fixed()}

    def _fixed(self) -> dict[str, Any]:
        """The settings that the order depends on."""
        return {
            "samples": len(self.dataset),
            "batch_size": self.batch_size,
            "shuffle": self.shuffle,
            "drop_last": self.drop_last,
            "given seed": self.seed,
            "buckets": list(self.buckets) if isinstance(self.buckets, tuple) else self.buckets,
        }

    def _maker(self, place: _Place, cut: Callable[[int], dict[int, slice]] | None) -> Maker:
        assert place.seed is not None
        beyond = not isinstance(self.buckets, tuple)
        collate = Collate(self.sequences, self.lengths, () if beyond else self.buckets, beyond)
        seed = place.seed, 0 if self.seed is None else place.epoch  # each pass has drawn its own
        make = Maker(self.dataset, self.transform, self.collate or collate, self.batch_size, self.shuffle, seed, cut)
        if isinstance(self.buckets, int) and self.collate is None:
            self._quantiles = self._quantiles or make.quantiles(self.buckets)
        if beyond:
            collate.buckets = self._quantiles
        return make

    def _begin(self) -> _Place:
        """The place at which the pass that begins now begins."""
        place = self._place
        if not self._resumed and place.batch:  # the pass before was left
            place = _Place(place.epoch + 1, 0, None)
        self._resumed = False
        if place.seed is None:
            place = replace(place, seed=draw_seed() if self.seed is None else self.seed)
        self._place = self._begun = place
        return place


@dataclass(frozen=True)
class _Place:
    """A place in the data: the pass, the number of the next batch, and the seed of the pass, once it is drawn."""

    epoch: int
    batch: int
    seed: int | None


def _is_count(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _names(sequences: Any) -> tuple[Any, ...]:
    """The entries of a sample that are sequences, by number or by name."""
    names = tuple(sequences) if isinstance(sequences, (list, tuple)) else (None,)
    if not all(isinstance(name, (int, str)) and not isinstance(name, bool) for name in names):
        raise ArgumentError(
            f"Loader: sequences are numbers or names of entries of a sample, in a tuple, and this is a "
            f"{type(sequences).__name__}."
        )
    return names


def _check_buckets(buckets: Any) -> Any:
    if buckets is None or (isinstance(buckets, int) and not isinstance(buckets, bool) and buckets > 0):
        return buckets
    lengths = tuple(buckets) if isinstance(buckets, (list, tuple, range, np.ndarray)) else ()
    whole = all(isinstance(one, (int, np.integer)) and not isinstance(one, bool) and one > 0 for one in lengths)
    if not lengths or not whole:
        raise ArgumentError(f"Loader: buckets is a number of lengths, or lengths of at least 1, not {buckets!r:.200}.")
    return tuple(sorted({int(one) for one in lengths}))


# --- batches of arrays ------------------------------------------------------------------------------------------------


def in_turn(samples: int, batch_size: int, shuffle: bool, drop_last: bool) -> Iterator[np.ndarray[Any, Any]]:
    """The numbers of the samples of each batch; where they are shuffled, in an order that is drawn at the beginning."""
    # On the host wherever the network is: they index arrays of NumPy.
    with settings(space=HOST):
        order = randperm(samples).asnumpy() if shuffle else np.arange(samples)
    for start in range(0, samples, batch_size):
        chosen = order[start : start + batch_size]
        if drop_last and len(chosen) < batch_size:
            return
        yield chosen


def batches(
    *arrays: Numbers, batch_size: Count, shuffle: bool = True, drop_last: bool = False
) -> Iterator[tuple[Tensor, ...]]:
    """Batches of arrays of one length, as Tensors.

    Args:
        arrays: what `Tensor` takes, with the same first axis: arrays of NumPy and other libraries, Tensors, lists.
        batch_size: how many entries a batch has; the last may have fewer.
        shuffle: in random order, another one each time (`snncell.set_seed` makes it repeatable).
        drop_last: leave out a last batch that is not full.

    Raises:
        ShapeError: if the first axes differ.
        ArgumentError: for no arrays.
    """
    if not arrays or batch_size < 1:
        raise ArgumentError(f"batches: needs arrays and a batch_size of at least 1, not {batch_size!r}.")
    sources = [on_host(array) for array in arrays]
    lengths = {len(source) if source.ndim else 0 for source in sources}
    if len(lengths) != 1:
        raise ShapeError(f"batches: the arrays have different lengths {sorted(lengths)}.")
    (length,) = lengths
    for chosen in in_turn(length, batch_size, shuffle, drop_last):
        yield tuple(Tensor(source[chosen]) for source in sources)
