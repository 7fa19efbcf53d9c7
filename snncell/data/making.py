"""A batch of its number, made on any thread and in any process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from snncell.data.collate import Collate, Waiting, entries, length_of, with_entry
from snncell.data.drawing import sample_of, takes_rng
from snncell.data.padding import quantiles
from snncell.data.transforms.base import by_batches

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
    """

    def __init__(
        self,
        dataset: Any,
        transform: Callable[..., Any] | None,
        collate: Callable[..., Any],
        batch_size: int,
        shuffle: bool,
        seed: tuple[int, int],
    ) -> None:
        self.dataset, self.transform, self.collate = dataset, transform, collate
        self.batch_size, self.seed = batch_size, seed
        count = len(dataset)
        self.order = np.random.default_rng(seed).permutation(count) if shuffle else np.arange(count)
        self.parts = by_batches(transform) if isinstance(collate, Collate) and transform is not None else None
        self.draws = [each is not None and takes_rng(each) for each in (transform, self.parts and self.parts[0])]

    def __call__(self, number: int, over: list[bool]) -> Any:
        """A batch; nothing, if nobody wants it any more."""
        chosen = [int(index) for index in self.order[number * self.batch_size :][: self.batch_size]]
        samples = []
        for index in chosen:
            if over:
                return None
            samples.append(self.sample(index, wait=True))
        if not isinstance(self.collate, Collate):
            return self.collate(samples)
        if self.parts is None:
            return self.collate(samples, chosen)
        try:
            # Nothing is drawn here, but if something is, it is not from the numbers of the thread that reads.
            with sample_of(*self.seed, chosen[0]):
                return self.collate(samples, chosen, self.parts[1].batch)
        except Exception as error:
            failed = error
        # One by one again, for an error of the sample that is at fault, in the same words as without batches.
        alone = [self._named(index, self._finished, each) for index, each in zip(chosen, samples, strict=True)]
        self.collate(alone, chosen)
        raise failed

    def sample(self, index: int, wait: bool) -> Any:
        """A sample, transformed as far as it can be before the others are there, if it is to wait for them."""
        with sample_of(*self.seed, index) as generator:
            return self._named(index, self._transformed, index, generator, wait)

    def quantiles(self, count: int) -> tuple[int, ...]:
        """Buckets by the lengths of some samples."""
        assert isinstance(self.collate, Collate)
        if self.collate.sequences == ():
            return ()
        chosen = np.unique(np.linspace(0, len(self.order) - 1, LOOKED_AT).astype(int)).tolist()
        rows = {index: entries(self.sample(index, wait=False)) for index in chosen}
        of_each = [length_of(row, self.collate.sequences_of(row), index) for index, row in rows.items()]
        return quantiles(of_each, count)

    def _transformed(self, index: int, generator: Callable[[], np.random.Generator], wait: bool) -> Any:
        sample = self.dataset[index]
        name, value = next(iter(entries(sample).items()), (0, None))
        waits = wait and self.parts is not None and self.collate.is_sequence(name)
        transform = self.parts[0] if waits else self.transform
        if transform is not None:
            value = transform(value, rng=generator()) if self.draws[waits] else transform(value)
        elif not waits:
            return sample
        return with_entry(sample, name, Waiting(value) if waits else value)

    def _finished(self, sample: Any) -> Any:
        """A sample that need not wait any more."""
        assert self.parts is not None
        name, value = next(iter(entries(sample).items()), (0, None))
        return with_entry(sample, name, self.parts[1](value.value)) if isinstance(value, Waiting) else sample

    def _named(self, index: int, make: Callable[..., Any], *arguments: Any) -> Any:
        """What is made of a sample; an error says of which."""
        try:
            return make(*arguments)
        except Exception as error:
            error.add_note(f"Loader: this is of sample {index} of the {type(self.dataset).__name__}.")
            raise
