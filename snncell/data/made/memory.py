"""Synthetic working-memory tasks, time first: delayed match, store-recall, cues, pulse order, delay XOR, adding."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np

from snncell.base.arguments.kinds import Count, Probability, Size, Within
from snncell.data.made.classification import AtLeastTwo, Jitter
from snncell.data.samples import Seed, generator
from snncell.errors import ArgumentError

__all__ = ["adding_problem", "cue_accumulation", "delay_xor", "delayed_match", "pulse_order", "store_recall"]

Array = np.ndarray[Any, Any]

NO_LABEL = -100  # nn.CrossEntropyLoss ignores this label


def delayed_match(
    samples: Count = 1000,
    cues: AtLeastTwo = 2,
    cue: Count = 20,
    delay: Size = 50,
    units: Count = 10,
    rate: Probability = 0.2,
    noise: Probability = 0.01,
    seed: Seed | None = None,
) -> tuple[Array, Array]:
    """Delayed match-to-sample task: a cue, a delay, and a second cue; are both the same?

    A cue is a population that fires at `rate` while all others fire at `noise`. During the delay all fire at `noise`.
    The answer is yes for half of the samples on average. With two cues, this is the delayed XOR task.

    Args:
        samples, cues: N, and the number of different cues.
        cue, delay: steps of a cue, and between the cues; T = cue + delay + cue.
        units: the number of units in a population.
        rate, noise: spike probability of a unit per step.
        seed: the seed of all random numbers. By default `snncell.set_seed` decides.
    Returns: `(spikes, labels)`: 0 and 1 as float32 (T, N, cues units), and int64 (N,), 1 for a match.
    Source: Kim, Li and Sejnowski, "Simple framework for constructing functional spiking recurrent neural networks",
    PNAS 2019.
    Example:
        >>> spikes, labels = snncell.data.delayed_match(samples=100, seed=0)
        >>> spikes.shape, labels.shape
        ((90, 100, 20), (100,))
    """
    rng = generator(seed)
    first, same = rng.integers(cues, size=samples), rng.integers(2, size=samples)
    second = (first + np.where(same == 1, 0, rng.integers(1, cues, size=samples))) % cues
    rates = np.full((2 * cue + delay, samples, cues), noise, np.float32)
    rates[:cue, np.arange(samples), first] = rate
    rates[cue + delay :, np.arange(samples), second] = rate
    return _draw_spikes(rng, rates, units), same


def store_recall(
    samples: Count = 100,
    slots: AtLeastTwo = 10,
    slot: Count = 20,
    units: Count = 10,
    rate: Probability = 0.1,
    noise: Probability = 0.0,
    command: Annotated[float, Within(0.0, 0.5)] = 1.0 / 6.0,
    seed: Seed | None = None,
) -> tuple[Array, Array]:
    """Store-recall task: keep a bit in memory on command, and recall it later.

    Time is divided into slots. In each slot either population 0 or population 1 fires, at random; its number is the
    current bit. The third population also fires if this bit must be stored. In a recall slot only the fourth population
    fires, and the answer is the bit that was stored last. A sequence begins with a store and ends with a recall.

    Args:
        samples, slots, slot: N, the number of slots in a sequence, and the steps of a slot; T = slots slot.
        units: the number of units in each of the four populations.
        rate, noise: spike probability per step of a unit in an active population, and of all other units.
        command: probability of a store, and of a recall, in each slot between the first and the last.
        seed: the seed of all random numbers. By default `snncell.set_seed` decides.
    Returns: `(spikes, labels)`: 0 and 1 as float32 (T, N, 4 units), and int64 (T, N). The label is the bit in the steps
        of a recall, and -100 elsewhere, which `nn.CrossEntropyLoss` ignores.
    Source: Bellec, Salaj, Subramoney, Legenstein and Maass, "Long short-term memory and learning-to-learn in networks
    of spiking neurons", NeurIPS 2018.
    Example:
        >>> spikes, labels = snncell.data.store_recall(samples=8, seed=0)
        >>> spikes.shape, labels.shape, sorted(set(labels.ravel().tolist()))
        ((200, 8, 40), (200, 8), [-100, 0, 1])
    """
    rng = generator(seed)
    bits, chance = rng.integers(2, size=(slots, samples)), rng.random((slots, samples))
    chance[0], chance[-1] = 0.0, 1.0  # a store first, and a recall last
    stores, recalls = chance <= command, chance >= 1.0 - command
    active = np.stack([~recalls & (bits == 0), ~recalls & (bits == 1), stores, recalls], 2)
    labels, stored = np.full((slots, samples), NO_LABEL), bits[0]
    for number in range(slots):
        stored = np.where(stores[number], bits[number], stored)
        labels[number] = np.where(recalls[number], stored, NO_LABEL)
    rates = np.where(active, np.float32(rate), np.float32(noise)).repeat(slot, 0)
    return _draw_spikes(rng, rates, units), labels.repeat(slot, 0)


def cue_accumulation(
    samples: Count = 100,
    cues: Count = 7,
    cue: Count = 100,
    pause: Size = 50,
    delay: Size = 1000,
    decision: Count = 150,
    units: Count = 10,
    rate: Probability = 0.04,
    noise: Probability = 0.01,
    bias: Annotated[float, Within(0.5, 1.0)] = 0.7,
    seed: Seed | None = None,
) -> tuple[Array, Array]:
    """Evidence accumulation task: cues on the left and right, a delay, and a decision; which side had more cues?

    There are four populations: left, right, a decision signal in the last `decision` steps, and one that fires at
    `noise` all the time. In each sequence, a side drawn at random is favoured: each cue comes from it with probability
    `bias`. The label is the side that had more cues.

    Args:
        samples, cues: N, and the number of cues, which must be odd.
        cue, pause: duration of a cue, and of the pause after it, in steps.
        delay, decision: steps after the cues; T = cues (cue + pause) + delay + decision.
        units: the number of units in a population.
        rate, noise: spike probability per step of a unit in an active population, and of the fourth population.
        bias: probability of the favoured side in each cue, from 0.5 to 1.
        seed: the seed of all random numbers. By default `snncell.set_seed` decides.
    Returns: `(spikes, labels)`: 0 and 1 as float32 (T, N, 4 units), and int64 (N,), 0 for left, 1 for right.
    Source: Bellec et al., "A solution to the learning dilemma for recurrent networks of spiking neurons", Nature
    Communications 2020; a task of Morcos and Harvey, "History-dependent variability in population dynamics during
    evidence accumulation in cortex", Nature Neuroscience 2016.
    Example:
        >>> spikes, labels = snncell.data.cue_accumulation(samples=5, seed=0)
        >>> spikes.shape, labels.tolist()
        ((2200, 5, 40), [1, 1, 1, 0, 1])
    """
    if cues % 2 == 0:
        raise ArgumentError(f"cue_accumulation: cues must be odd, so that one side has more, not {cues}.")
    rng = generator(seed)
    favoured = rng.integers(2, size=samples)
    sides = favoured ^ (rng.random((cues, samples)) >= bias)
    rates = np.zeros((cues * (cue + pause) + delay + decision, samples, 4), np.float32)
    for number, side in enumerate(sides):
        start = number * (cue + pause)
        rates[start : start + cue, np.arange(samples), side] = rate
    rates[-decision:, :, 2], rates[:, :, 3] = rate, noise
    return _draw_spikes(rng, rates, units), (2 * sides.sum(0) > cues).astype(np.int64)


def _draw_spikes(rng: np.random.Generator, rates: Array, units: int) -> Array:
    """Spikes of populations of `units` units each, at rates (T, N, populations)."""
    steps, samples, populations = rates.shape
    spikes = rng.random((steps, samples, populations, units), np.float32) < rates[..., None]
    return spikes.reshape(steps, samples, populations * units).astype(np.float32)


# --- Single pulses: order, XOR of delays, and adding ------------------------------------------------------------------


def pulse_order(
    samples: Count = 1000, steps: Count = 100, lines: AtLeastTwo = 2, seed: Seed | None = None
) -> tuple[Array, Array]:
    """Temporal order task: one pulse on each line, at different steps; which line was first?

    Args:
        samples, steps, lines: N, T and the number of lines, at most T. All times are equally likely.
        seed: the seed of all random numbers. By default `snncell.set_seed` decides.
    Returns: `(spikes, labels)`: 0 and 1 as float32 (T, N, lines), and int64 (N,), the line.
    Source: the temporal order problem of Hochreiter and Schmidhuber, "Long short-term memory", Neural Computation 1997.
    Example:
        >>> spikes, labels = snncell.data.pulse_order(samples=4, steps=20, seed=0)
        >>> spikes.argmax(0).tolist(), labels.tolist()
        ([[11, 3], [0, 1], [19, 13], [2, 9]], [1, 0, 1, 0])
    """
    if steps < lines:
        raise ArgumentError(f"pulse_order: steps must be at least the number of lines, {lines}, not {steps}.")
    times = generator(seed).random((samples, steps)).argsort(1)[:, :lines]
    return _pulses(times, steps), times.argmin(1)


def delay_xor(
    samples: Count = 1000,
    steps: Count = 30,
    early: Size = 5,
    late: Count = 15,
    jitter: Jitter = 0.0,
    seed: Seed | None = None,
) -> tuple[Array, Array]:
    """Temporal XOR task: two pulses, each early or late after a reference pulse; do they differ?

    Args:
        samples, steps: N and T. The four cases are equally likely.
        early, late: the steps of early and late pulses, early < late < T. The reference, on line 0, is always early.
        jitter: standard deviation of the times of both pulses, in steps; they stay within the T steps.
        seed: the seed of all random numbers. By default `snncell.set_seed` decides.
    Returns: `(spikes, labels)`: 0 and 1 as float32 (T, N, 3), and int64 (N,), 1 if the two pulses differ.
    Source: Bohte, Kok and La Poutré, "Error-backpropagation in temporally encoded networks of spiking neurons",
    Neurocomputing 2002.
    Example:
        >>> spikes, labels = snncell.data.delay_xor(samples=3, seed=0)
        >>> spikes.argmax(0).tolist(), labels.tolist()
        ([[5, 15, 15], [5, 15, 5], [5, 5, 5]], [0, 1, 0])
    """
    if not early < late < steps:
        raise ArgumentError(f"delay_xor: needs early < late < steps, not {early}, {late} and {steps}.")
    rng = generator(seed)
    is_late = rng.integers(2, size=(samples, 2))
    moved = np.rint(early + (late - early) * is_late + jitter * rng.standard_normal((samples, 2)))
    times = np.concatenate([np.full((samples, 1), early), np.clip(moved, 0, steps - 1).astype(np.int64)], 1)
    return _pulses(times, steps), is_late[:, 0] ^ is_late[:, 1]


def adding_problem(samples: Count = 1000, steps: AtLeastTwo = 100, seed: Seed | None = None) -> tuple[Array, Array]:
    """Adding problem: a line of random numbers and a line that marks two of them, one per half; what is their sum?

    Note that the constant answer 1 has a mean squared error of 1 / 6, which a network must beat.

    Args:
        samples, steps: N and T.
        seed: the seed of all random numbers. By default `snncell.set_seed` decides.
    Returns: `(x, sums)`: float32 (T, N, 2), with numbers uniform in [0, 1) and markers 0 and 1, and float32 (N,).
    Source: Hochreiter and Schmidhuber, "Long short-term memory", Neural Computation 1997, with sequences of one length
        as in Le, Jaitly and Hinton, "A simple way to initialize recurrent networks of rectified linear units", arXiv
        1504.00941, 2015.
    Example:
        >>> x, sums = snncell.data.adding_problem(samples=2, steps=10, seed=0)
        >>> x[:, 0, 1].tolist(), float((x[:, 0, 0] * x[:, 0, 1]).sum() - sums[0])
        ([0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0], 0.0)
    """
    rng = generator(seed)
    x = np.zeros((steps, samples, 2), np.float32)
    x[:, :, 0] = rng.random((steps, samples), np.float32)
    half, each = steps // 2, np.arange(samples)
    for marked in (rng.integers(half, size=samples), rng.integers(half, steps, size=samples)):
        x[marked, each, 1] = 1.0
    return x, (x[:, :, 0] * x[:, :, 1]).sum(0)


def _pulses(times: Array, steps: int) -> Array:
    """One spike per line at the steps `times` (N, lines), as (T, N, lines)."""
    spikes = np.zeros((steps, *times.shape), np.float32)
    spikes[times, np.arange(len(times))[:, None], np.arange(times.shape[1])] = 1.0
    return spikes
