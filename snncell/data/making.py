"""A batch of its number, made on any thread and in any process."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np

from snncell.data.collate import Collate, Waiting, entries, length_of, with_entry
from snncell.data.drawing import sample_of, takes_rng
from snncell.data.padding import quantiles
from snncell.data.transforms.base import by_batches
from snncell.errors import ArgumentError

LOOKED_AT = 256  # samples of which `buckets=` a number takes the lengths


class Maker:
    """The part of a Loader that makes batches: a function of their number alone.

    Where a transform takes whole batches (`Transform.batch`), a sample goes through those in front of it, with its own
    random numbers, and waits for the others.

    Args:
        dataset: the samples.
        transform: of their first entry, or None.
        collate: the Loader's own, or the user's.
        batch_size: how many samples a batch has.
        shuffle: whether they are in an order that `seed` decides.
        seed: two integers, of the order and the transforms.
        cut: a function of how many samples a batch has that gives, by number, the parts of it to be made, each as a
            batch of its own; without it a batch is whole.
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
            self._try_alone(index, each)
        raise failed

    def sample(self, index: int, wait: bool) -> Any:
        """A sample, transformed; if it is to wait, as far as it can be before the others are there."""
        with self._drawing(index) as generator, self._named(index):
            sample = self.dataset[index]
            name, value = next(iter(entries(sample).items()), (0, None))
            if wait and self.last is not None and self.own is not None and self.own.is_sequence(name):
                return with_entry(sample, name, Waiting(self.first(value, generator)))
            return sample if self.transform is None else with_entry(sample, name, self.alone(value, generator))

    def quantiles(self, count: int) -> tuple[int, ...]:
        """Buckets by the lengths of some samples."""
        assert self.own is not None
        if self.own.sequences == ():
            return ()
        chosen = np.unique(np.linspace(0, len(self.order) - 1, LOOKED_AT).astype(int)).tolist()
        rows = {index: entries(self.sample(index, wait=False)) for index in chosen}
        of_each = [length_of(row, self.own.sequences_of(row), index) for index, row in rows.items()]
        return quantiles(of_each, count)

    def _try_alone(self, index: int, sample: Any) -> None:
        """Transform a sample that waits for others alone, for its errors."""
        waiting = next(iter(entries(sample).values()), None)
        if isinstance(waiting, Waiting):
            with self._drawing(index), self._named(index):
                self.last(waiting.value)

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
