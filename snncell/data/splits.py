"""Random splits of a data set, for example into training and validation data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np

from snncell.base.arguments.kinds import Own
from snncell.base.arguments.shown import brief
from snncell.data.random_numbers import seed_or_draw
from snncell.data.samples import View, check_dataset, position_of
from snncell.errors import ArgumentError
from snncell.ops.base import as_int

__all__ = ["Subset", "random_split"]


class Subset(View):
    """The samples of a data set (anything with `len` and `[i]`) at the positions `indices`, in this order.

    Example:
        >>> [*snncell.data.Subset(["a", "b", "c"], [2, 0])]
        ['c', 'a']
    """

    def __init__(
        self, dataset: Annotated[Any, Own()], indices: Annotated[Sequence[int] | np.ndarray[Any, Any], Own()]
    ) -> None:
        check_dataset("Subset", dataset)
        try:
            places = np.asarray(indices if isinstance(indices, (list, tuple, range, np.ndarray)) else None)
        except ValueError:  # nested lists of different lengths
            places = np.asarray(None)
        if places.ndim != 1 or (places.size and places.dtype.kind not in "iu"):
            raise ArgumentError(f"Subset: indices must be a list of positions in the data set, not {brief(indices)}.")
        count = len(dataset)
        if places.size and not (-count <= places.min() and places.max() < count):
            raise ArgumentError(
                f"Subset: indices must lie in [0, {count}), because the data set has {count} samples; they go from "
                f"{places.min()} to {places.max()}."
            )
        self.dataset, self.indices = dataset, places.astype(np.int64)

    def __repr__(self) -> str:
        return f"Subset of a {type(self.dataset).__name__}: {len(self)} of {len(self.dataset)} samples"

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, index: int) -> Any:
        return self.dataset[int(self.indices[position_of(self, index)])]


def random_split(
    dataset: Annotated[Any, Own()],
    lengths: Annotated[Sequence[float], Own()],
    seed: Annotated[int | None, Own()] = None,
) -> list[Any]:
    """Split a data set at random, for example into training and validation data.

    Each sample goes to exactly one part. With the same seed, a data set of the same length is split in the same way.

    Args:
        dataset: anything with `len` and `[i]`, or a tuple of arrays (inputs, ..., target) of equal length.
        lengths: the numbers of samples of the parts, which must add up to the length of the data set; or fractions
            that add up to 1. If fractions do not give whole numbers, the first parts get one more sample each.
        seed: the seed of the random order. Without it you can control the order by `snncell.set_seed`.
    Returns:
        A list with a part for each length. A part is a `Subset`, or a tuple of arrays if you passed one. `fit` takes
        both.
    Example:
        >>> x, y = ops.uniform((10, 3)), ops.arange(10)
        >>> training, validation = snncell.data.random_split((x, y), [0.8, 0.2], seed=0)
        >>> training[0].shape, validation[1].shape
        ((8, 3), (2,))
    """
    if hasattr(seed, "__len__"):
        raise ArgumentError(
            f"random_split: seed is an integer, not {brief(seed)}. To split several arrays together, pass them as one "
            f"tuple: random_split((x, y), [0.8, 0.2])."
        )
    if seed is not None and as_int(seed, "random_split", "seed") < 0:
        raise ArgumentError(f"random_split: seed is an integer of at least 0, not {seed!r}.")
    arrays = isinstance(dataset, tuple) and bool(dataset) and all(hasattr(part, "shape") for part in dataset)
    if not arrays:
        check_dataset("random_split", dataset)
    counts = {len(part) for part in dataset} if arrays else {len(dataset)}
    if len(counts) > 1:
        raise ArgumentError(
            f"random_split: the arrays have different lengths: {', '.join(map(str, sorted(counts)))}. Their first axis "
            "must be the samples, so transpose arrays with time first."
        )
    (count,) = counts
    ends = np.cumsum(_part_sizes(lengths, count))
    order = np.random.Generator(np.random.Philox(seed_or_draw(seed))).permutation(count)
    parts = np.split(order, ends[:-1])
    if arrays:
        return [tuple(array[indices] for array in dataset) for indices in parts]
    return [Subset(dataset, indices) for indices in parts]


def _part_sizes(lengths: Any, count: int) -> list[int]:
    sizes = list(lengths) if isinstance(lengths, (list, tuple, np.ndarray)) else []
    numbers = all(isinstance(size, (int, float, np.number)) and not isinstance(size, bool) for size in sizes)
    if not sizes or not numbers or not all(size >= 0 for size in sizes):
        raise ArgumentError(
            f"random_split: lengths must be a list of numbers of samples, such as "
            f"[{max(count - 10, 0)}, {min(count, 10)}], or of fractions, such as [0.8, 0.2], not {brief(lengths)}."
        )
    total = sum(sizes)
    if any(isinstance(size, (float, np.floating)) for size in sizes) and abs(total - 1.0) < 1e-6:
        whole = [math.floor(size * count + 1e-9) for size in sizes]
        for n in range(count - sum(whole)):
            whole[n % len(whole)] += 1
        return whole
    if total == count and any(size != int(size) for size in sizes):
        raise ArgumentError(
            f"random_split: lengths={brief(lengths)} are numbers of samples, because they add up to {count}; each must "
            f"be a whole number."
        )
    if total != count:
        raise ArgumentError(
            f"random_split: lengths add up to {total:g}; they must add up to the {count} samples of the data set, or "
            f"to 1 as fractions."
        )
    return [int(size) for size in sizes]
