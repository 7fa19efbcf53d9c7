"""Data sets that come with the package or are made by it, and batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib import resources
from typing import Any

import numpy as np

from snncell.arguments.guard import guard as _guard
from snncell.arguments.kinds import Count
from snncell.arguments.vocabulary import Numbers
from snncell.data.manifolds import randman as randman
from snncell.errors import ArgumentError, ShapeError
from snncell.kernels.space import HOST
from snncell.ops.random import randperm
from snncell.tape.given import on_host
from snncell.tape.state import settings
from snncell.tape.tensor import Tensor

Array = np.ndarray[Any, Any]


def digits() -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """Handwritten digits: 1,797 grey images of 8 x 8 pixels, 1,438 for training and 359 for testing.

    Every fifth image is a test image, so the same writers are in both parts.

    Returns:
        `(images, labels), (test_images, test_labels)`: images float32 (N, 8, 8) in [0, 1], labels int64 (N,) in [0, 9].

    Source: E. Alpaydin and C. Kaynak, "Optical Recognition of Handwritten Digits" (its test set), UCI Machine Learning
    Repository, 1998, doi:10.24432/C50P49, CC BY 4.0; the images as scikit-learn bundles them, stored as uint8.
    """
    with resources.files(__package__).joinpath("digits.npz").open("rb") as file, np.load(file) as stored:
        images = stored["images"].astype(np.float32) / 16.0
        labels = stored["labels"].astype(np.int64)
    test = np.arange(len(labels)) % 5 == 4
    return (images[~test], labels[~test]), (images[test], labels[test])


def padded(sequences: Iterable[Any], steps: int | None = None, value: float = 0.0) -> tuple[Array, Array]:
    """Sequences of different lengths as one array, time first, with what is missing at their ends filled up.

    Args:
        sequences: N arrays (T_n, ...), alike but for their lengths.
        steps: T; longer sequences are cut. By default the longest one's.
        value: of the padding.

    Returns:
        `x, lengths`: x (T, N, ...), of the arrays' dtype, and lengths int64 (N,), how many steps of each are its own.

    Raises:
        ArgumentError: for no sequences, or a number of steps below 1.
        ShapeError: for sequences that differ in more than their lengths.

    Example:
        >>> x, lengths = snncell.data.padded([[[1.0], [2.0]], [[3.0]]])
        >>> x[:, :, 0].tolist(), lengths.tolist()
        ([[1.0, 3.0], [2.0, 0.0]], [2, 1])
    """
    arrays = [on_host(sequence) for sequence in sequences]
    if not arrays:
        raise ArgumentError("padded: there are no sequences.")
    if steps is not None and (isinstance(steps, bool) or not isinstance(steps, int) or steps < 1):
        raise ArgumentError(f"padded: steps is an integer of at least 1, not {steps!r}.")
    if len({array.shape[1:] for array in arrays}) > 1 or not all(array.ndim for array in arrays):
        shapes = ", ".join(map(str, list(dict.fromkeys(array.shape for array in arrays))[:6]))
        raise ShapeError(f"padded: sequences are (T_n, ...), alike but for their lengths, not {shapes}.")
    longest = max(len(array) for array in arrays) if steps is None else steps
    lengths = np.array([min(len(array), longest) for array in arrays], np.int64)
    padded_array = np.full((longest, len(arrays), *arrays[0].shape[1:]), value, np.result_type(*arrays))
    for number, (array, length) in enumerate(zip(arrays, lengths, strict=True)):
        padded_array[:length, number] = array[:length]
    return padded_array, lengths


def batches(
    *arrays: Numbers, batch_size: Count, shuffle: bool = True, drop_last: bool = False
) -> Iterator[tuple[Tensor, ...]]:
    """Go through arrays of one length together, a batch at a time, as Tensors.

    Args:
        arrays: what `Tensor` takes, with the same first axis: arrays of NumPy and other libraries, Tensors, lists.
        batch_size: how many entries a batch has; the last may have fewer.
        shuffle: in random order, another one each time (`snncell.set_seed` makes it repeatable).
        drop_last: leave out a last batch that is not full.

    Raises:
        ShapeError: if the first axes differ.
        ArgumentError: for a batch size below 1, or no arrays.
    """
    if not arrays or batch_size < 1:
        raise ArgumentError(f"batches: needs arrays and a batch_size of at least 1, not {batch_size!r}.")
    sources = [on_host(array) for array in arrays]
    lengths = {len(source) if source.ndim else 0 for source in sources}
    if len(lengths) != 1:
        raise ShapeError(f"batches: the arrays have different lengths {sorted(lengths)}.")
    (length,) = lengths
    # On the host wherever the network is: it indexes arrays of NumPy.
    with settings(space=HOST):
        order = randperm(length).asnumpy() if shuffle else np.arange(length)
    for start in range(0, length, batch_size):
        chosen = order[start : start + batch_size]
        if drop_last and len(chosen) < batch_size:
            return
        yield tuple(Tensor(source[chosen]) for source in sources)


_guard(globals(), own=True)
