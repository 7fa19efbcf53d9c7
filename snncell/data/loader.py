"""Data loader: shuffled, padded batches, prefetched by worker threads or processes."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any, TypeGuard

import numpy as np

from snncell.base.arguments.kinds import Count, Numbers, Own, Size
from snncell.base.frames import hide_frames
from snncell.compiler.state.reach import NUMPYS, PYTHONS, ReachableValues
from snncell.data.samples import (
    Collate,
    Waiting,
    check_dataset,
    draw_seed,
    entries,
    first_entry,
    length_of,
    sample_of,
    takes_rng,
    with_entry,
)
from snncell.data.transforms import by_batches
from snncell.data.workers import make_by_workers
from snncell.errors import ArgumentError, ShapeError
from snncell.kernels.space import HOST
from snncell.ops.random import randperm
from snncell.tape.state import settings
from snncell.tape.structure import on_host, with_tensors
from snncell.tape.tensor import Tensor

__all__ = ["Loader", "batches"]

# --- A batch from its number, in any thread or process ----------------------------------------------------------------

Array = np.ndarray[Any, Any]
LOOKED_AT = 256  # samples whose lengths decide an integer `buckets`


class Maker:
    """Compute a batch of a Loader from its number alone, so that any worker can make any batch.

    `seed` holds two integers, for the order and the transforms. `cut` maps the size of a batch to numbered slices, for
    example one for each device, and each slice becomes a batch. Without `cut`, a batch is whole.
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
        # `alone` is the whole transform; `first` and `last` are its parts per sample and per batch.
        self.own = collate if isinstance(collate, Collate) else None
        parts = by_batches(transform) if self.own is not None else None
        self.last: Any = parts and parts[1]
        self.alone, self.first = _Step(transform), _Step(parts and parts[0])

    def __call__(self, number: int, over: list[bool]) -> Any:
        """A batch, or its parts; None if the loop over the Loader has ended."""
        chosen = [int(index) for index in self.order[number * self.batch_size :][: self.batch_size]]
        if self.cut is None:
            return self._of(chosen, over)
        return len(chosen), {part: self._of(chosen[own], over) for part, own in self.cut(len(chosen)).items()}

    def _of(self, chosen: list[int], over: list[bool]) -> Any:
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
            # A transform should not draw here. If it does, it must not use the reading thread's random numbers.
            with self._drawing(chosen[0]):
                return self.own(samples, chosen, self.last.batch)
        except Exception as error:
            failed = error
        # Repeat sample by sample, so that the error names the sample, as it does without `batch`.
        for index, each in zip(chosen, samples, strict=True):
            _, waiting = first_entry(each)
            if isinstance(waiting, Waiting):
                with self._drawing(index), self._named(index):
                    self.last(waiting.value)
        raise failed

    def sample(self, index: int, wait: bool) -> Any:
        """A transformed sample. With `wait`, the part of the transform that takes whole batches is left to `_of`."""
        with self._drawing(index) as generator, self._named(index):
            sample = self.dataset[index]
            name, value = first_entry(sample)
            if wait and self.last is not None and self.own is not None and self.own.is_sequence(name):
                return with_entry(sample, name, Waiting(self.first(value, generator)))
            return sample if self.transform is None else with_entry(sample, name, self.alone(value, generator))

    def quantiles(self, count: int) -> tuple[int, ...]:
        """At most `count` buckets: quantiles of the lengths of up to LOOKED_AT samples."""
        assert self.own is not None
        if self.own.sequences == ():
            return ()
        chosen = np.unique(np.linspace(0, len(self.order) - 1, LOOKED_AT).astype(int)).tolist()
        rows = {index: entries(self.sample(index, wait=False)) for index in chosen}
        lengths = [length_of(row, self.own.sequences_of(row), index) for index, row in rows.items()]
        own = np.quantile(lengths, np.arange(1, count + 1) / count, method="higher")
        return tuple(sorted({max(int(length), 1) for length in own}))

    def _drawing(self, index: int) -> AbstractContextManager[Callable[[], np.random.Generator]]:
        """Context with a sample's random numbers. In worker processes it seeds the global generators too."""
        return sample_of(*self.seed, index, global_generators=os.getpid() != self.process)

    @contextmanager
    def _named(self, sample: int | str) -> Iterator[None]:
        """Context that adds the sample, or the samples of a batch, to error messages."""
        where = f"sample {sample} of the {type(self.dataset).__name__}"
        try:
            yield
        except StopIteration as error:  # otherwise it would silently end the generators of the Loader
            raise ArgumentError(
                f"Loader: the data set, the transform or collate raised StopIteration for {where}, for example by "
                f"next() of an exhausted iterator. Give next() a default, next(iterator, None)."
            ) from error
        except Exception as error:
            error.add_note(f"Loader: this error comes from {where}.")
            raise


class _Step:
    """A transform that may take a sample's generator as `rng`; None is the identity."""

    def __init__(self, transform: Callable[..., Any] | None) -> None:
        self.transform = transform
        self.draws = transform is not None and takes_rng(transform)

    def __call__(self, value: Any, generator: Callable[[], np.random.Generator]) -> Any:
        if self.transform is None:
            return value
        return self.transform(value, rng=generator()) if self.draws else self.transform(value)


class Loader:
    """Data loader: iterate over a data set in batches of Tensors, time first.

    The first entry of a sample is a sequence (T_n, ...). The Loader pads the sequences of a batch with zeros to (T, B,
    ...) and adds their lengths (B,). For example, samples (x, y) become batches (x, lengths, y), which nets, losses,
    decoders and `train.fit` accept. T is one of a few lengths, so that a jitted step is traced for few shapes.

    Each pass over the Loader is an epoch. In epoch e (0, 1, ...), the order of the samples depends only on (seed, e).
    The random numbers of a transform for sample i depend only on (seed, e, i), so `workers`, `processes`, `prefetch`
    and `batch_size` do not change them.

    Args:
        dataset: any object with `len` and `[i]`, such as a PyTorch data set. A sample is an array, a tuple or list, or
            a dict. Tensors of other frameworks count as arrays.
        batch_size: B. The last batch may be smaller.
        shuffle: shuffle the samples again in each epoch.
        transform: a function of a sample's first entry. If it has an argument `rng`, it gets the sample's NumPy
            generator. Random operations of snncell use the sample's random numbers too, with or without `rng`. A
            transform with a method `batch`, such as `ToFrame` or a `Compose` that ends with it, transforms a whole
            batch at once, with the same result.
        collate: a function of the list of samples that replaces padding and stacking. Its arrays become Tensors.
        workers: the number of threads that make batches while your code computes. With 0, your own thread makes them.
        processes: run each worker in a separate process, for transforms that hold Python's global interpreter lock. If
            the system cannot fork processes, data set, transform and collate are pickled. Each process seeds
            `np.random`, `random` and `torch` by (seed, e, i) before sample i, so you can draw from these too. A
            transform must use `rng` and not keep a Generator, because all copies would draw the same numbers.
        prefetch: the number of batches made in advance, at least one per worker.
        seed: the seed of the order and of the transforms. By default each epoch draws one, repeatable by `set_seed`.
        drop_last: leave out a last batch that is not full.
        buckets: the lengths T to pad to. If you pass an integer n, the Loader measures up to 256 samples and chooses n
            quantiles of their lengths. By default T is one of 1, 2, 3, 4, 6, 8, 12, 16, 24, ..., and a batch of samples
            of equal length is not padded.
        sequences: the entries that are sequences, by number or name; by default the first. With () there are no
            lengths, and every entry is stacked to (B, ...).
        lengths: add the lengths after the first sequence.
    Raises: ArgumentError for a data set without `len` or `[i]`, fewer samples than a batch needs, or invalid buckets.
        With processes, also for a transform that keeps a Generator, and, without forks, for unpicklable objects.

    Iteration raises ShapeError for samples with different shapes, ArgumentError for samples longer than the largest
    bucket, DTypeError for samples that cannot become arrays, and WorkerError if a process dies. Errors from the data
    set or a transform have a note that names the sample.
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
                "Loader: the transform keeps a random generator. With processes=True every process has a copy of it, "
                "and all copies draw the same numbers. Give the transform an argument rng, the sample's generator."
            )
        self.dataset, self.batch_size, self.shuffle = dataset, batch_size, shuffle
        self.transform, self.collate, self.workers, self.processes = transform, collate, workers, processes
        self.prefetch, self.seed, self.drop_last, self.lengths = prefetch, seed, drop_last, lengths
        self.buckets = _check_buckets(buckets)
        self.sequences = None if sequences is None else _names(sequences)
        self._quantiles: tuple[int, ...] = ()  # chosen in the first epoch if buckets is an integer
        self._place = self._begun = _Place()
        self._resumed = False
        if not len(self):
            raise ArgumentError(
                f"Loader: {len(dataset)} samples give no batch of {batch_size}"
                + (" with drop_last=True. Choose a smaller batch_size." if drop_last and len(dataset) else ".")
            )

    def __len__(self) -> int:
        full, rest = divmod(len(self.dataset), self.batch_size)
        return full + (rest > 0 and not self.drop_last)

    def __iter__(self) -> Iterator[Any]:
        return self._batches(None)

    def in_parts(self, cut: Callable[[int], dict[int, slice]]) -> Iterator[tuple[int, dict[int, Any]]]:
        """Iterate over (batch size, {number: part}), for example one part for each device. `cut` selects the parts.
        Each part is padded separately, and samples in no part are not read.
        """
        return self._batches(cut)

    def _batches(self, cut: Callable[[int], dict[int, slice]] | None) -> Iterator[Any]:
        place, count = self._begin(), len(self)
        make, numbers = self._maker(place, cut), range(place.batch, count)
        batches: Generator[Any, None, None]
        if self.workers:
            ahead = max(self.prefetch, self.workers)
            batches = make_by_workers(make, numbers, self.workers, ahead, self.processes)
        else:
            batches = (make(number, []) for number in numbers)
        try:
            for number, batch in zip(numbers, batches, strict=True):
                last = number + 1 == count
                self._place = _Place(place.epoch + 1) if last else replace(place, batch=number + 1)
                yield with_tensors(batch)
        except Exception as error:
            hide_frames(error)
            raise
        finally:
            batches.close()

    def state(self, given: Size | None = None) -> dict[str, Any]:
        """The current position in the data, as a dict that can be saved as JSON, for `resume`.

        Args: given: the number of batches that you have used in this epoch; by default, all batches that you have
            taken. You need it if you took more than you used, for example because you prefetch.
        """
        place = self._place
        if given is not None:
            batch = self._begun.batch + given
            if batch > len(self):
                raise ArgumentError(
                    f"Loader: state: given is {given}, but only {len(self) - self._begun.batch} batches were left."
                )
            over = batch == len(self)
            place = _Place(self._begun.epoch + 1) if over else replace(self._begun, batch=batch)
        return {**asdict(place), "quantiles": list(self._quantiles), **self._fixed()}

    def resume(self, state: dict[str, Any]) -> None:
        """Continue from a `state` with the rest of its epoch; ArgumentError for another data set or settings."""
        fixed = self._fixed()
        wrong = [name for name in fixed if not isinstance(state, dict) or state.get(name) != fixed[name]]
        if wrong:
            name, found = wrong[0], state.get(wrong[0]) if isinstance(state, dict) else state
            raise ArgumentError(
                f"Loader: resume: the state belongs to another Loader: its {name} is {found!r}, not {fixed[name]!r}."
            )
        epoch, batch, seed, found = (state.get(name) for name in ("epoch", "batch", "seed", "quantiles"))
        seeded = _is_count(seed) or (seed is None and not batch)
        listed = found is None or isinstance(found, (list, tuple))
        if not (_is_count(epoch) and _is_count(batch) and batch < len(self) and seeded and listed):
            raise ArgumentError(
                f"Loader: resume: the state is damaged: epoch {epoch!r}, batch {batch!r}, seed {seed!r}, "
                f"quantiles {found!r:.80}."
            )
        self._quantiles = _check_buckets(found) if found else ()
        self._place, self._resumed = _Place(epoch, batch, seed), True

    def description(self) -> dict[str, Any]:
        """A description of the data set and settings, without reading samples."""
        return {"class": type(self).__name__, "data set": type(self.dataset).__name__, **self._fixed()}

    def _fixed(self) -> dict[str, Any]:
        """The settings that determine the order of samples."""
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
        seed = place.seed, 0 if self.seed is None else place.epoch  # without self.seed, place.seed is new each epoch
        make = Maker(self.dataset, self.transform, self.collate or collate, self.batch_size, self.shuffle, seed, cut)
        if isinstance(self.buckets, int) and self.collate is None:
            self._quantiles = self._quantiles or make.quantiles(self.buckets)
        if beyond:
            collate.buckets = self._quantiles
        return make

    def _begin(self) -> _Place:
        place = self._place
        if not self._resumed and place.batch:  # the caller left the previous epoch early
            place = _Place(place.epoch + 1)
        self._resumed = False
        if place.seed is None:
            place = replace(place, seed=draw_seed() if self.seed is None else self.seed)
        self._place = self._begun = place
        return place


@dataclass(frozen=True)  # not a named tuple, which cannot read pickles of earlier versions
class _Place:
    """A position in the data: the epoch, the number of the next batch, and the seed of the epoch, once drawn."""

    epoch: int = 0
    batch: int = 0
    seed: int | None = None


def _is_count(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _names(sequences: Any) -> tuple[Any, ...]:
    """Check `sequences`: the numbers or names of the entries that are sequences."""
    names = tuple(sequences) if isinstance(sequences, (list, tuple)) else (None,)
    if not all(isinstance(name, (int, str)) and not isinstance(name, bool) for name in names):
        raise ArgumentError(
            f"Loader: sequences must be a tuple with numbers or names of a sample's entries, not a "
            f"{type(sequences).__name__}."
        )
    return names


def _check_buckets(buckets: Any) -> Any:
    if buckets is None or (_is_count(buckets) and buckets > 0):
        return buckets
    lengths = tuple(buckets) if isinstance(buckets, (list, tuple, range, np.ndarray)) else ()
    whole = all(isinstance(one, (int, np.integer)) and not isinstance(one, bool) and one > 0 for one in lengths)
    if not lengths or not whole:
        raise ArgumentError(
            f"Loader: buckets must be a positive integer, or lengths of at least 1, not {buckets!r:.200}."
        )
    return tuple(sorted({int(one) for one in lengths}))


# --- Batches of arrays ------------------------------------------------------------------------------------------------


def in_turn(samples: int, batch_size: int, shuffle: bool, drop_last: bool) -> Iterator[np.ndarray[Any, Any]]:
    """The indices of the samples of each batch; if shuffled, in an order drawn at the beginning."""
    # On the host even if the network is on a device, because the indices select from NumPy arrays.
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
    """Iterate over arrays in batches of Tensors, for example `for x, y in batches(inputs, targets, batch_size=64)`.

    Args:
        arrays: anything that `Tensor` accepts, with first axes of equal length: NumPy arrays, Tensors, lists.
        batch_size: the number of entries in a batch. The last batch may be smaller.
        shuffle: use a new random order each time (repeatable by `snncell.set_seed`).
        drop_last: leave out a last batch that is not full.
    """
    if not arrays:
        raise ArgumentError("batches: needs at least one array.")
    sources = [on_host(array) for array in arrays]
    lengths = {len(source) if source.ndim else 0 for source in sources}
    if len(lengths) != 1:
        raise ShapeError(
            f"batches: the arrays have different lengths {sorted(lengths)}; each needs one entry for each sample."
        )
    (length,) = lengths
    for chosen in in_turn(length, batch_size, shuffle, drop_last):
        yield tuple(Tensor(source[chosen]) for source in sources)
