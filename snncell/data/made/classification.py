"""Synthetic classification data: random manifolds (randman), Yin-Yang and Poisson patterns."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Annotated, Any

import numpy as np

from snncell.base.arguments.kinds import MOST, Count, Positive, Probability, Within
from snncell.data.samples import Seed, generator, seed_or_draw
from snncell.errors import ArgumentError
from snncell.kernels.intrinsics.builtins import least
from snncell.kernels.intrinsics.elements import row, strip, tail
from snncell.kernels.numba.build import kernel_for

__all__ = ["poisson_patterns", "randman", "yin_yang"]

Array = np.ndarray[Any, Any]
AtLeastTwo = Annotated[int, Within(2, MOST)]

# --- Random manifolds: spike times ------------------------------------------------------------------------------------

PRECISION = 1e-3  # harmonics with a smaller amplitude are left out
MOST_HARMONICS = 1000


def randman(
    classes: Count = 10,
    units: Count = 20,
    samples: AtLeastTwo = 1000,
    steps: Count = 100,
    dim: Count = 2,
    alpha: Positive = 2.0,
    spikes: Count = 1,
    fraction: Annotated[float, Within(0.0, 1.0, open_low=True)] = 1.0,
    seed: Seed | None = None,
) -> tuple[Array, Array]:
    """Spike patterns from smooth random manifolds (randman), a classification task on spike times.

    A class is a smooth surface with coordinates z in [0, 1)^dim; its samples are random points. Unit u fires in step

        t_u = floor(fraction steps g_u(z)),  g_u = f_u scaled to [0, 1] over the samples of the class,
        f_u(z) = prod_d sum_{k >= 1} (k + 1)^-alpha a_k sin(2 pi (k b_k z_d + phi_k)),

    with a, b and phi uniform in [0, 1) for each unit, dimension and k. Every unit of every sample fires `spikes` times,
    so a network cannot use spike counts. The task is harder with more dimensions and a smaller alpha.

    You should draw training and test data in one call and split them, because another seed gives other manifolds.

    Args:
        classes, units, steps: the number of manifolds, of input neurons, and T.
        samples: the number of samples per class, at least 2.
        dim: the number of coordinates.
        alpha: how fast amplitudes fall with frequency; 1 is rough, 3 very smooth. k is limited to k^-alpha > 0.001 and
            k <= 999, so that alpha = 1 or less takes about twenty times as long.
        spikes: the number of spikes of a unit, each from its own manifold. Spikes of a unit in the same step merge.
        fraction: the fraction of the steps, from the beginning, in which units fire.
        seed: the seed of all random numbers. By default `snncell.set_seed` decides.
    Returns:
        `(patterns, labels)`: 0 and 1 as float32 (T, N, units), and int64 (N,), in random order, N = classes samples.
    Source: Zenke and Vogels, "The Remarkable Robustness of Surrogate Gradient Learning for Instilling Complex Function
    in Spiking Neural Networks", Neural Computation 2021, and their package randman.
    Example:
        >>> patterns, labels = snncell.data.randman(classes=2, units=5, samples=30, steps=50, seed=1)
        >>> patterns.shape, labels.shape, set(patterns.sum(0).ravel().tolist())
        ((50, 60, 5), (60,), {1.0})
    """
    rng = np.random.Generator(np.random.Philox(seed_or_draw(seed)))
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
    return int(max(min(math.ceil(PRECISION ** (-1.0 / alpha)), MOST_HARMONICS), 2)) - 1


def _times(z: Array, drawn: Array, alpha: float, scale: float, steps: int) -> Array:
    """Spike steps (samples, units) at the points z (samples, dim), for the random numbers `drawn`.

    A fast kernel computes f with an error of at most `slack`. To get exactly the steps of `_surface`, this function is
    called for the values within this error of deciding a step: the extremes, and those close to a step boundary.
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
    """The units' functions (samples, units), and a bound of their difference from `_surface`."""
    dim, k = z.shape[1], np.arange(1, len(drawn) + 1)
    weights = (k + 1.0) ** -alpha
    coefficients = drawn.transpose(2, 3, 0, 1).copy()  # (units, dim, K, 3)
    coefficients[..., 0] *= weights
    coefficients[..., 1] *= k
    coefficients[..., 2] -= 0.25  # sines as cosines
    # Both methods round an angle of up to 2 pi (k + 1); all other factors are at most `weights.sum()`.
    error = (weights * (ACCURACY + 16.0 * np.pi * (k + 1) * np.finfo(float).eps)).sum()
    return multiply_waves(z.T, coefficients).T, dim * error * (weights.sum() + error) ** (dim - 1)


def _correct(f: Array, where: Array, z: Array, drawn: Array, alpha: float) -> None:
    points, units = np.nonzero(where)
    f[points, units] = _surface(z[points], (wave[:, units] for wave in drawn), alpha)


def _surface(z: Array, waves: Iterable[Array], alpha: float) -> Array:
    """The product over the last axis of the sums of waves at z: (..., dim), and (3, ..., dim) for each k, -> (...)."""
    along = np.zeros(())
    for k, (amplitude, frequency, phase) in enumerate(waves, 1):
        angle = 2.0 * np.pi * (k * frequency * z + phase)
        along = along + (k + 1.0) ** -alpha * amplitude * np.sin(angle)
    return np.asarray(along.prod(-1))


def _scale_columns(f: Array, low: Array, high: Array) -> Array:
    # `tiny` makes a constant column 0 instead of NaN.
    return np.asarray((f - low) / np.maximum(high - low, np.finfo(float).tiny))


def multiply_waves_kernel(start: Any, stop: Any, z: Any, waves: Any, f: Any) -> None:
    """f[u, n] = prod_d sum_k a cos(2 pi (b z[d, n] + c)), with a, b, c of (u, d, k) in a row (3 k) of `waves`."""
    (dim, samples), harmonics = z.shape, waves.shape[1] // 3
    blocks = (samples + BLOCK - 1) // BLOCK
    for unit in range(start, stop):
        u, low = unit // blocks, unit % blocks * BLOCK
        count = least(samples - low, BLOCK)
        out, sums = tail(row(f, u), low), strip(BLOCK, z)
        for n in range(count):
            out[n] = 1.0
        for d in range(dim):
            at, coefficients = tail(row(z, d), low), row(waves, u * dim + d)
            for n in range(count):
                sums[n] = 0.0
            for k in range(harmonics):
                a, b, c = coefficients[3 * k], coefficients[3 * k + 1], coefficients[3 * k + 2]
                for n in range(count):
                    x = b * at[n] + c
                    # Adding 1.5 * 2**52 rounds to an integer. cos(2 pi x) = sin(2 pi s) with |s| <= 1 / 4, for which
                    # nine terms of the Taylor series suffice.
                    s = 0.25 - abs(x - ((x + 6755399441055744.0) - 6755399441055744.0))
                    q = s * s
                    sums[n] += a * s * (
                        6.283185307179586 + q * (-41.341702240399755 + q * (81.60524927607504 + q * (-76.70585975306136
                        + q * (42.05869394489765 + q * (-15.094642576822984 + q * (3.8199525848482803
                        + q * (-0.7181223017785001 + q * 0.10422916220813978)))))))
                    )  # fmt: skip
            for n in range(count):
                out[n] *= sums[n]


BLOCK = 512  # points in a unit of work
PARALLEL_SIZE = 1 << 16  # waves times points; below this size threads do not pay off
ACCURACY = 1e-13  # error of a cosine in the kernel, without the rounding of its argument


def multiply_waves(z: Any, coefficients: Any) -> Any:
    """Run `multiply_waves_kernel`: f (units, N) at the points z (dim, N), for coefficients (units, dim, K, 3)."""
    units, dim, harmonics, _ = coefficients.shape
    f = np.empty((units, z.shape[1]))
    parts = units * -(-z.shape[1] // BLOCK)
    grain = int(f.size * dim * harmonics >= PARALLEL_SIZE)
    kernel = kernel_for(multiply_waves_kernel, "float64[2] float64[2] float64[2]*")
    kernel(parts, grain, np.ascontiguousarray(z), coefficients.reshape(units * dim, 3 * harmonics), f)
    return f


# --- Yin-Yang: three classes in a circle that are not linearly separable ----------------------------------------------

Radius = Annotated[float, Within(1e-6, 1e6)]  # its square neither underflows nor overflows
Seed32 = Annotated[int, Within(0, 2**32 - 1)]  # a seed of NumPy's older generator


def yin_yang(
    samples: Count = 5000, seed: Seed32 = 42, r_small: Positive = 0.1, r_big: Radius = 0.5
) -> tuple[Array, Array]:
    """Yin-Yang data set: points of the Yin-Yang sign in three classes, its two halves and its dots.

    The sign is a circle of radius R = `r_big` around (R, R), with dots of radius r = `r_small` around (R / 2, R) and (3
    R / 2, R). With d and e the distances of a point (x, y) from the left and the right of these centres, its class is

        2   a dot    if d < r or e < r,
        1            otherwise, if d <= R / 2, or y > R and e > R / 2,
        0            otherwise.

    For each sample the generator draws a class, `randint(3)`, and then points, `rand(2) * 2 * R`, until one lies in the
    circle and belongs to that class. All classes are therefore equally likely. The first 5,000, 1,000 and 1,000 samples
    with seeds 42, 41 and 40 are, bit for bit, the authors' training, validation and test sets.

    Args:
        samples: N.
        seed: the seed of `numpy.random.RandomState`. Other seeds give other points of the same task.
        r_small: the radius of the dots, at least `r_big` / 100 and below `r_big` / 2.
        r_big: the radius of the sign, from 1e-6 to 1e6.
    Returns: `(coordinates, labels)`: x, y, 1 - x, 1 - y as float64 (N, 4), for a network without bias, and int64 (N,).
    Source: Kriener, Göltz and Petrovici, "The Yin-Yang dataset", NICE 2022, doi:10.1145/3517343.3517380.
    Example:
        >>> coordinates, labels = snncell.data.yin_yang(samples=4)
        >>> coordinates[0].round(3).tolist(), labels.tolist()
        ([0.68, 0.45, 0.32, 0.55], [2, 1, 2, 1])
    """
    if not r_big / 100.0 <= r_small < r_big / 2.0:
        raise ArgumentError(
            f"yin_yang: r_small must be at least r_big / 100 and below r_big / 2, not {r_small!r} of {r_big!r}."
        )
    random = np.random.RandomState(seed)
    points, labels = np.empty((samples, 2)), np.empty(samples, np.int64)
    for number in range(samples):
        goal = labels[number] = random.randint(3)
        while True:
            points[number] = random.rand(2) * 2.0 * r_big
            x, y = points[number].tolist()
            if _class_of(x, y, r_small, r_big) == goal:
                break
    return np.concatenate([points, 1.0 - points], 1), labels


def _class_of(x: float, y: float, small: float, big: float) -> int:
    if math.sqrt((x - big) ** 2 + (y - big) ** 2) > big:
        return -1
    right, left = (math.sqrt((x - part * big) ** 2 + (y - big) ** 2) for part in (1.5, 0.5))
    if left < small or right < small:
        return 2
    return int(left <= 0.5 * big or (y > big and right > 0.5 * big))


# --- Poisson patterns: noisy copies of a template per class -----------------------------------------------------------

Jitter = Annotated[float, Within(0.0, MOST)]


def poisson_patterns(
    classes: Count = 10,
    units: Count = 50,
    samples: Count = 100,
    steps: Count = 100,
    rate: Probability = 0.05,
    jitter: Jitter = 0.0,
    deletions: Probability = 0.0,
    insertions: Probability = 0.0,
    seed: Seed | None = None,
) -> tuple[Array, Array]:
    """Poisson spike patterns: each sample is a noisy copy of the random template of its class.

    In a template, each unit fires in each step with probability `rate`. A sample changes the template of its class in
    three ways. Each spike is deleted with probability `deletions`. The others move by a normally distributed number of
    steps with standard deviation `jitter`, and are lost if they leave the pattern. Each step of each unit gets an extra
    spike with probability `insertions`. Spikes that meet merge.

    All classes have the same rates, so a network must detect which units fire together. You should draw training and
    test data in one call and split them, because another call with another seed has other templates.

    Args:
        classes, units, steps: the number of templates, of input neurons, and T.
        samples: the number of samples per class.
        rate: spike probability of a unit per step. For example, 0.05 is 50 Hz if a step is 1 ms.
        jitter: the standard deviation of the shifts, in steps.
        deletions, insertions: probability per spike of the template, and per unit and step.
        seed: the seed of all random numbers. By default `snncell.set_seed` decides.
    Returns:
        `(patterns, labels)`: 0 and 1 as float32 (T, N, units), and int64 (N,), in random order, N = classes samples.
    Source: Gütig and Sompolinsky, "The tempotron: a neuron that learns spike timing-based decisions", Nature
    Neuroscience 2006; with jitter, deletions and insertions as in Masquelier, Guyonneau and Thorpe, "Spike timing
    dependent plasticity finds the start of repeating patterns in continuous spike trains", PLoS ONE 2008.
    Example:
        >>> patterns, labels = snncell.data.poisson_patterns(classes=3, units=20, samples=4, jitter=1.0, seed=0)
        >>> patterns.shape, labels.tolist()
        ((100, 12, 20), [1, 0, 1, 1, 0, 2, 2, 0, 2, 2, 0, 1])
    """
    rng = generator(seed)
    templates = rng.random((classes, steps, units)) < rate
    labels = rng.permutation(np.repeat(np.arange(classes), samples))
    patterns = np.zeros((steps, len(labels), units), np.float32)
    spikes = [np.nonzero(template) for template in templates]
    for sample, label in enumerate(labels):
        step, unit = spikes[label]
        kept = rng.random(len(step)) >= deletions
        distance = np.clip(np.rint(jitter * rng.standard_normal(int(kept.sum()))), -steps, steps)
        moved = step[kept] + distance.astype(np.int64)
        inside = (moved >= 0) & (moved < steps)
        patterns[moved[inside], sample, unit[kept][inside]] = 1.0
    if insertions > 0.0:
        patterns[rng.random(patterns.shape, np.float32) < insertions] = 1.0
    return patterns, labels
