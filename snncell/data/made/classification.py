"""Random manifolds: a classification task of spike times, made to measure."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Annotated, Any

import numpy as np

from snncell.arguments.kinds import Count, Positive, Within
from snncell.data.random_numbers import seed_or_draw
from snncell.errors import ArgumentError
from snncell.kernels.waves import ACCURACY, multiply_waves
from snncell.ops.base import as_int

Array = np.ndarray[Any, Any]

PRECISION = 1e-3  # harmonics of a smaller amplitude are left out
MOST_HARMONICS = 1000


def randman(
    classes: Count = 10,
    units: Count = 20,
    samples: Count = 1000,
    steps: Count = 100,
    dim: Count = 2,
    alpha: Positive = 2.0,
    spikes: Count = 1,
    fraction: Annotated[float, Within(0.0, 1.0, open_low=True)] = 1.0,
    seed: int | None = None,
) -> tuple[Array, Array]:
    """Spike patterns from smooth random manifolds: what tells the classes apart is when each unit fires.

    A class is a smooth surface of `dim` coordinates z in [0, 1)^dim, on which its samples lie at random. Unit u fires
    in step

        t_u = floor(fraction steps g_u(z)),  g_u = f_u scaled to [0, 1] over the samples of the class,
        f_u(z) = prod_d sum_{k >= 1} (k + 1)^-alpha a_k sin(2 pi (k b_k z_d + phi_k)),

    with a, b, phi drawn evenly from [0, 1) for each unit, dimension and k. Every unit of every sample fires `spikes`
    times, so counts say nothing. The task is harder with more dimensions and a smaller alpha. Make training and test
    data by one call and cut them apart: another call, another seed, has other manifolds.

    Args:
        classes: how many manifolds.
        units: how many input neurons.
        samples: of each class, at least 2.
        steps: T.
        dim: the number of coordinates.
        alpha: how fast amplitudes fall with frequency; 1 is rough, 3 very smooth. k goes as far as k^-alpha > 0.001, at
            most to 999: from alpha = 1 downwards it takes twenty times as long.
        spikes: of each unit, each from a manifold of its own; those that meet in one step are one.
        fraction: in (0, 1], the part of the steps in which units fire, from the beginning.
        seed: of everything; without it `snncell.set_seed` decides.

    Returns:
        `(patterns, labels)`: 0 and 1 as float32 (T, N, units), and int64 (N,), in random order, N = classes samples.

    Raises:
        ArgumentError: for a count, alpha or fraction that makes no sense.

    Source: Zenke and Vogels, "The Remarkable Robustness of Surrogate Gradient Learning for Instilling Complex Function
    in Spiking Neural Networks", Neural Computation 2021, and their package randman.

    Example:
        >>> patterns, labels = snncell.data.randman(classes=2, units=5, samples=30, steps=50, seed=1)
        >>> patterns.shape, labels.shape, set(patterns.sum(0).ravel().tolist())
        ((50, 60, 5), (60,), {1.0})
        >>> for x, y in snncell.data.batches(patterns.swapaxes(0, 1), labels, batch_size=60):
        ...     x.swapaxes(0, 1).shape  # time first, for MultiStep
        (50, 60, 5)
    """
    least = {"classes": 1, "units": 1, "samples": 2, "steps": 1, "dim": 1, "spikes": 1}
    counts = {"classes": classes, "units": units, "samples": samples, "steps": steps, "dim": dim, "spikes": spikes}
    for name, value in counts.items():
        if as_int(value, "randman", name) < least[name]:
            raise ArgumentError(f"randman: {name} is an integer of at least {least[name]}, not {value!r}.")
    if not 0.0 < alpha < math.inf:
        raise ArgumentError(f"randman: alpha is positive and finite, not {alpha!r}.")
    if not 0.0 < fraction <= 1.0:
        raise ArgumentError(f"randman: fraction lies in (0, 1], not {fraction!r}.")
    rng = np.random.Generator(np.random.Philox(seed_or_draw("randman", seed)))
    times = np.empty((spikes, classes * samples, units), np.int64)
    for number in range(classes):
        z = rng.random((samples, dim))
        for again in range(spikes):
            drawn = rng.random((_harmonics(alpha), 3, units, dim))
            times[again, number * samples : (number + 1) * samples] = _times(z, drawn, alpha, fraction * steps, steps)
    order = rng.permutation(classes * samples)
    places = np.empty(len(order), np.int64)
    places[order] = np.arange(len(order))
    patterns = np.zeros((steps, len(order), units), np.float32)
    patterns[times, places[:, None], np.arange(units)] = 1.0
    return patterns, np.repeat(np.arange(classes), samples)[order]


def _harmonics(alpha: float) -> int:
    """The number of waves in a sum."""
    return int(max(min(math.ceil(PRECISION ** (-1.0 / alpha)), MOST_HARMONICS), 2)) - 1


def _times(z: Array, drawn: Array, alpha: float, scale: float, steps: int) -> Array:
    """The steps (samples, units) in which the units fire at the points z (samples, dim), of what was drawn for them.

    A kernel finds f to within `slack`. What that might decide wrongly, `_surface` computes anew: the lowest and the
    highest points, and those close to the end of a step. So the steps are those that `_surface` gives.
    """
    f, slack = _estimate(z, drawn, alpha)
    ends = (f <= f.min(0) + 2.0 * slack) | (f >= f.max(0) - 2.0 * slack)
    _correct(f, ends, z, drawn, alpha)
    low, high = f.min(0), f.max(0)
    t = _scale_columns(f, low, high) * scale
    unsure = ~ends & (np.abs(t - np.rint(t)) * (high - low) <= 4.0 * scale * slack)
    _correct(f, unsure, z, drawn, alpha)
    t = np.minimum(_scale_columns(f, low, high) * scale, steps - 1)
    return t.astype(np.int64)


def _estimate(z: Array, drawn: Array, alpha: float) -> tuple[Array, float]:
    """The units' functions (samples, units), and by how much they may differ from those of `_surface`."""
    dim, k = z.shape[1], np.arange(1, len(drawn) + 1)
    weights = (k + 1.0) ** -alpha
    coefficients = drawn.transpose(2, 3, 0, 1).copy()  # (units, dim, K, 3)
    coefficients[..., 0] *= weights
    coefficients[..., 1] *= k
    coefficients[..., 2] -= 0.25  # sines as cosines
    # An angle of up to 2 pi (k + 1) is rounded here and there; all other factors are at most `weights.sum()`.
    error = (weights * (ACCURACY + 16.0 * np.pi * (k + 1) * np.finfo(float).eps)).sum()
    return multiply_waves(z.T, coefficients).T, dim * error * (weights.sum() + error) ** (dim - 1)


def _correct(f: Array, where: Array, z: Array, drawn: Array, alpha: float) -> None:
    """Compute f anew for some points and units."""
    points, units = np.nonzero(where)
    f[points, units] = _surface(z[points], (wave[:, units] for wave in drawn), alpha)


def _surface(z: Array, waves: Iterable[Array], alpha: float) -> Array:
    """The product over the last axis of the sums of waves at z: (..., dim), and (3, ..., dim) for each k, -> (...)."""
    along = np.zeros(())
    for k, (amplitude, frequency, phase) in enumerate(waves, 1):
        angle = 2.0 * np.pi * (k * frequency * z + phase)
        along = along + (k + 1.0) ** -alpha * amplitude * np.sin(angle)
    product: Array = along.prod(-1)
    return product


def _scale_columns(f: Array, low: Array, high: Array) -> Array:
    """Each column from 0 to 1."""
    # A unit whose value is the same for all samples has 0 for them, not NaN.
    unit: Array = (f - low) / np.maximum(high - low, np.finfo(float).tiny)
    return unit
