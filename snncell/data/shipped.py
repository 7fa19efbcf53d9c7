"""Data that are in the package."""

from __future__ import annotations

from importlib import resources
from typing import Any

import numpy as np

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
