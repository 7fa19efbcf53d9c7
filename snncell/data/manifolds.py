"""Random manifolds: a classification task of spike times, made to measure."""

from __future__ import annotations

import math
from typing import Annotated, Any

import numpy as np

from snncell.arguments.kinds import Count, Positive, Within
from snncell.errors import ArgumentError
from snncell.kernels.space import HOST
from snncell.ops.base import as_int
from snncell.ops.random import randint
from snncell.tape.state import settings

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
            most to 999: from alpha = 1 downwards 10,000 samples of 20 units take some seconds.
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
    rng = np.random.Generator(np.random.Philox(_seeded(seed)))
    patterns = np.zeros((steps, classes * samples, units), np.float32)
    for number in range(classes):
        rows = np.arange(number * samples, (number + 1) * samples)[:, None]
        z = rng.random((samples, dim))
        for _ in range(spikes):
            times = np.minimum(_scaled(_surface(z, units, alpha, rng)) * (fraction * steps), steps - 1)
            patterns[times.astype(np.int64), rows, np.arange(units)] = 1.0
    order = rng.permutation(classes * samples)
    return patterns[:, order], np.repeat(np.arange(classes), samples)[order]


def _seeded(seed: int | None) -> int:
    """The seed, or one that `set_seed` decides."""
    if seed is None:
        with settings(space=HOST):
            return int(randint(0, 2**62, ()).item())
    if as_int(seed, "randman", "seed") < 0:
        raise ArgumentError(f"randman: seed is an integer of at least 0, not {seed!r}.")
    return int(seed)


def _surface(z: Array, units: Count, alpha: float, rng: np.random.Generator) -> Array:
    """The units' smooth functions at the points z: (samples, dim) -> (samples, units)."""
    harmonics = min(math.ceil(PRECISION ** (-1.0 / alpha)), MOST_HARMONICS)
    along = np.zeros((len(z), units, z.shape[1]))
    for k in range(1, max(harmonics, 2)):
        amplitude, frequency, phase = rng.random((3, units, z.shape[1]))
        angle = 2.0 * np.pi * (k * frequency * z[:, None] + phase)
        along += (k + 1.0) ** -alpha * amplitude * np.sin(angle)
    product: Array = along.prod(2)
    return product


def _scaled(f: Array) -> Array:
    """Each column from 0 to 1."""
    # A unit whose value is the same for all samples has 0 for them, not NaN.
    low, high = f.min(0), f.max(0)
    unit: Array = (f - low) / np.maximum(high - low, np.finfo(float).tiny)
    return unit
