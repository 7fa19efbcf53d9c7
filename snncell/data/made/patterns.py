"""Poisson patterns: classes are frozen templates of noise, seen through more noise."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np

from snncell.arguments.kinds import MOST, Count, Probability, Within
from snncell.data.random_numbers import generator, seed_or_draw

Array = np.ndarray[Any, Any]
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
    seed: int | None = None,
) -> tuple[Array, Array]:
    """Spike patterns that are drawn once for each class, and of which each sample is a disturbed copy.

    In the template of a class each unit fires in each step with probability `rate`. For a sample, each of its spikes
    is left out with probability `deletions`; the others move by a number of steps drawn from a normal distribution
    with the standard deviation `jitter`, rounded, and are lost where that leads out of the pattern; and each step of
    each unit gets a spike with probability `insertions`. Spikes that meet are one. All classes have the same rates, so
    only when units fire together tells them apart. Make training and test data by one call and cut them apart: another
    call, another seed, has other templates.

    Args:
        classes: how many templates.
        units: how many input neurons.
        samples: of each class.
        steps: T.
        rate: spikes of a unit in a step; at 1 ms a step, 0.05 is 50 Hz.
        jitter: in steps.
        deletions: the part of the spikes that is left out.
        insertions: spikes of a unit in a step that belong to no template.
        seed: of everything; without it `snncell.set_seed` decides.

    Returns:
        `(patterns, labels)`: 0 and 1 as float32 (T, N, units), and int64 (N,), in random order, N = classes samples.

    Raises:
        ArgumentError: for numbers that make no sense.

    Source: Gütig and Sompolinsky, "The tempotron: a neuron that learns spike timing-based decisions", Nature
    Neuroscience 2006; with jitter, deletions and insertions as in Masquelier, Guyonneau and Thorpe, "Spike timing
    dependent plasticity finds the start of repeating patterns in continuous spike trains", PLoS ONE 2008.

    Example:
        >>> patterns, labels = snncell.data.poisson_patterns(classes=3, units=20, samples=4, jitter=1.0, seed=0)
        >>> patterns.shape, labels.tolist()
        ((100, 12, 20), [1, 0, 1, 1, 0, 2, 2, 0, 2, 2, 0, 1])
    """
    rng = generator(seed_or_draw("poisson_patterns", seed))
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
