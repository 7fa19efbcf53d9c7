"""Synthetic spoken words with the format and size of the Spiking Heidelberg Digits."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from itertools import permutations
from typing import Annotated, Any, NamedTuple

import numpy as np

from snncell.base.arguments.kinds import Count, Path, Within
from snncell.base.signals import import_once
from snncell.data.events import Events, events_of_columns
from snncell.data.samples import Seed, generator, position_of
from snncell.errors import ArgumentError, FileError

__all__ = ["SHDLike", "write_shd_like"]

Array = np.ndarray[Any, Any]

SPEAKERS = 12
SOUNDS, FORMANTS = 6, 3
LENGTH, SPREAD = 0.7, 0.4  # mean duration of a word in seconds, and its relative variation
SILENCE = 0.02, 0.06  # seconds before a word, at least and at most
BACKGROUND = 0.03  # fraction of events that are noise
TOGETHER = 256  # samples that are written at once
MOST_CLASSES = 720  # permutations of six sounds


class Vocabulary(NamedTuple):
    """The sounds of a language, its words, and its speakers."""

    centres: Array  # channel of each formant in the middle of its sound, (SOUNDS * FORMANTS,)
    slopes: Array  # shift of each formant from begin to end of its sound, in channels
    shares: Array  # fraction of a sound's events in each formant, (SOUNDS, FORMANTS)
    width: float  # standard deviation of a formant, in channels
    orders: Array  # the sounds of each word, (classes, SOUNDS)
    shifts: Array  # shift of each speaker, in channels
    loudness: Array  # loudness of each speaker, 1 on average


class SHDLike:
    """Synthetic substitute for the Spiking Heidelberg Digits: 700 channels, 20 classes, about 8,000 events per sample.

    The language has six sounds, and each word contains all of them; its class is their order. All classes therefore
    have the same distribution of events over channels, and a network must use spike times to tell words apart. A sound
    has three formants. An event of formant j in sound m comes at

        t = t0 + D (b_m + w_m tau),             tau = (u + u') / 2,  u, u' uniform in [0, 1)
        channel = c_mj + s_mj (tau - 1/2) + h + sigma n,             n normal

    Here t0 is the beginning of the word (20 to 60 ms) and D its duration (0.42 to 0.98 s). b_m and w_m are the
    beginning and the length of the sound as fractions of the word. The lengths vary by about 15 % between samples, and
    b_m is the sum of the lengths before sound m. c_mj, s_mj and sigma belong to the language (`Vocabulary`). h is the
    shift of one of 12 speakers. Channels beyond the edge are mirrored. Numbers of events are Poisson distributed, with
    means proportional to D w_m and the speaker's loudness. 3 % of the events are noise, uniform in time and channel.
    Sample i depends only on the seeds and i.

    Args:
        samples, seed: the number of samples, and their seed.
        words: seed of sounds, words and speakers. Use the same number for training and test data.
        classes: at most 720. With 20 classes or fewer, any two words differ in at least four of their six positions.
        channels, events: the number of channels of the cochlea, and the mean number of events per sample.
        transform: a function of the events; `[i]` returns its result.
    Attributes:
        sensor_size: (channels, 1, 1).
        classes: the words, one letter per sound.
    Source: format and size follow Cramer, Stradmann, Schemmel and Zenke, "The Heidelberg spiking data sets for the
        systematic evaluation of spiking neural networks", IEEE TNNLS 2022, whose data are recordings of spoken digits.
    Example:
        >>> words = snncell.data.SHDLike(samples=100, seed=1)
        >>> events, label = words[0]
        >>> events.dtype.names, events.sensor_size, words.classes[label]
        (('t', 'x', 'p'), (700, 1, 1), 'dacfeb')
    """

    def __init__(
        self,
        samples: Count = 1000,
        seed: Seed = 0,
        *,
        words: Seed = 0,
        classes: Annotated[int, Within(1, MOST_CLASSES)] = 20,
        channels: Annotated[int, Within(1, 65535)] = 700,
        events: Count = 8000,
        transform: Callable[[Events], Any] | None = None,
    ) -> None:
        self.samples, self.seed, self.events, self.transform = samples, seed, events, transform
        self.sensor_size = (channels, 1, 1)
        self.vocabulary = _vocabulary(generator(words), classes, channels)
        self.classes = tuple("".join("abcdef"[sound] for sound in order) for order in self.vocabulary.orders)

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> tuple[Any, int]:
        seconds, units, label, _ = self.spoken(position_of(self, index))
        events = events_of_columns({"t": np.rint(seconds.astype(np.float64) * 1e6), "x": units}, self.sensor_size)
        return events if self.transform is None else self.transform(events), label

    def spoken(self, number: int) -> tuple[Array, Array, int, int]:
        """A sample as stored in a file: times in seconds, float16, ascending; units; label; speaker."""
        words, rng = self.vocabulary, generator(self.seed, number)
        label, speaker = int(rng.integers(len(words.orders))), int(rng.integers(SPEAKERS))
        duration = LENGTH * (1.0 + SPREAD * rng.uniform(-1.0, 1.0))
        start = rng.uniform(*SILENCE)
        parts = np.exp(0.15 * rng.standard_normal(SOUNDS))
        parts /= parts.sum()
        begins, order = np.empty(SOUNDS), words.orders[label]
        begins[order] = np.cumsum(parts[order]) - parts[order]
        mean = self.events * words.loudness[speaker] * duration / LENGTH
        counts = rng.poisson((1.0 - BACKGROUND) * mean * parts[:, None] * words.shares)
        noise, count = rng.poisson(BACKGROUND * mean), int(counts.sum())

        formant = np.repeat(np.arange(counts.size), counts.ravel())
        tau = rng.random((2, count), np.float32).mean(0)
        begin, part = (np.repeat(x, FORMANTS)[formant] for x in (begins * duration + start, parts * duration))
        place = words.centres[formant] + words.slopes[formant] * (tau - 0.5) + words.shifts[speaker]
        place += words.width * rng.standard_normal(count, np.float32)
        last = self.sensor_size[0] - 1
        heard = np.clip(last - np.abs(last - np.abs(np.rint(place))), 0, last)
        times = np.concatenate([begin + part * tau, start + duration * rng.random(noise)])
        units = np.concatenate([heard, rng.integers(last + 1, size=noise)])
        # Positive floats sort like their bit patterns, so one sort of integers orders by time and then by unit.
        bits = times.astype(np.float16).view(np.uint16).astype(np.uint32)
        both = np.sort(bits << 16 | units.astype(np.uint32))
        return (both >> 16).astype(np.uint16).view(np.float16), both.astype(np.uint16), label, speaker


def write_shd_like(
    path: Path,
    samples: Count = 1000,
    seed: Seed = 0,
    *,
    words: Seed = 0,
    classes: Annotated[int, Within(1, MOST_CLASSES)] = 20,
    channels: Annotated[int, Within(1, 65535)] = 700,
    events: Count = 8000,
) -> None:
    """Write `SHDLike` data to an HDF5 file in the layout of the Spiking Heidelberg Digits.

        /spikes/times           float16 of variable length, seconds, ascending
        /spikes/units           uint16 of variable length, channels
        /labels                 uint16
        /extra/keys             bytes, the words
        /extra/speaker          uint16
        /extra/meta_info        age, body_height and gender of each speaker: 0, 0 and "none", because they are synthetic

    float16 has a resolution of 0.25 ms between 0.25 and 0.5 s, 0.5 ms up to 1 s, and 1 ms above.

    Args:
        path: the path of the file; an existing file is replaced.
        samples, seed, words, classes, channels, events: as for `SHDLike`.
    Example:
        >>> snncell.data.write_shd_like("train.h5", samples=8000, seed=0)  # doctest: +SKIP
    """
    made = SHDLike(samples, seed, words=words, classes=classes, channels=channels, events=events)
    try:
        h5py = import_once("h5py")
    except ImportError:
        raise ArgumentError('write_shd_like: HDF5 files need h5py: pip install "snncell[events]".') from None
    part = f"{os.fspath(path)}.part"  # a new file, because HDF5 cannot replace a file that `data.SHD` reads
    try:
        with h5py.File(part, "w") as file:
            _write(file, made, h5py.vlen_dtype)
        os.replace(part, path)
    except OSError as error:
        raise FileError(f"write_shd_like: path {os.fspath(path)!r} cannot be written: {error}") from None
    finally:
        with contextlib.suppress(OSError):
            os.remove(part)


def _write(file: Any, made: SHDLike, varying: Callable[[Any], Any]) -> None:
    samples = len(made)
    labels, speakers = np.empty((2, samples), np.uint16)
    kinds = {"times": np.float16, "units": np.uint16}
    spikes = [file.create_dataset(f"spikes/{name}", (samples,), varying(kind)) for name, kind in kinds.items()]
    for first in range(0, samples, TOGETHER):
        part = slice(first, min(first + TOGETHER, samples))
        spoken = [made.spoken(number) for number in range(part.start, part.stop)]
        *columns, labels[part], speakers[part] = zip(*spoken, strict=True)
        for dataset, column in zip(spikes, columns, strict=True):
            dataset[part] = np.fromiter(column, object, len(column))
    file["labels"] = labels
    file["extra/keys"] = np.array(made.classes, "S")
    file["extra/speaker"] = speakers
    for name in ("age", "body_height"):
        file[f"extra/meta_info/{name}"] = np.zeros(SPEAKERS, np.uint16)
    file["extra/meta_info/gender"] = np.full(SPEAKERS, b"none")


def _vocabulary(rng: np.random.Generator, classes: int, channels: int) -> Vocabulary:
    formants = SOUNDS * FORMANTS
    loudness = rng.uniform(0.8, 1.2, SPEAKERS)
    shares = rng.uniform(0.5, 1.5, (SOUNDS, FORMANTS))
    return Vocabulary(
        centres=rng.uniform(0.08, 0.92, formants).astype(np.float32) * channels,
        slopes=rng.uniform(-0.2, 0.2, formants).astype(np.float32) * channels,
        shares=shares / shares.sum(1, keepdims=True),
        width=0.02 * channels,
        orders=_orders(rng, classes),
        shifts=rng.normal(0.0, 0.02, SPEAKERS).astype(np.float32) * channels,
        loudness=loudness / loudness.mean(),
    )


def _orders(rng: np.random.Generator, classes: int) -> Array:
    """Distinct orders of the sounds, (classes, SOUNDS). Two orders agree in at most 2 positions. If this gives too
    few orders, they can agree in 3 positions, or if necessary in any number.
    """
    there = rng.permutation(np.array(list(permutations(range(SOUNDS)))))
    for places in (2, 3, SOUNDS):
        chosen = there[:1]
        for order in there[1:]:
            if len(chosen) < classes and ((chosen == order).sum(1) <= places).all() and (chosen != order).any(1).all():
                chosen = np.concatenate([chosen, order[None]])
        if len(chosen) == classes:
            break
    return chosen
