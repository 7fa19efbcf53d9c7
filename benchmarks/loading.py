"""Batches of events made by a Loader: frames of a whole batch in one call, and sample by sample, in turns.

    python benchmarks/loading.py [--markdown FILE]

Recordings in the shape of the Spiking Heidelberg Digits (700 channels, some 8,000 events), 64 a batch, in windows of
10 ms, padded to 128: from memory, and from a file laid out as SHD's where h5py is installed. All batches are checked to
be the same to the bit. Then files laid out as N-MNIST's, some 4,200 events each, read here and by tonic where it is
installed: `--recordings FOLDER` takes the .bin files of a folder, such as N-MNIST itself, in their place.
"""

from __future__ import annotations

import argparse
import importlib.util
import platform
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from timing import in_turns, tell

import snncell
from snncell import data

SAMPLES, BATCH, WINDOW = 256, 64, 10_000  # microseconds
FILES = 400


class OneByOne:
    """ToFrame as any other callable, which has no method for batches."""

    def __init__(self, frames: data.ToFrame) -> None:
        self.frames = frames

    def __call__(self, events: data.Events) -> Any:
        return self.frames(events)


def passes(dataset: Any, workers: int) -> dict[str, Callable[[], Any]]:
    """A pass through all batches, both ways."""
    frames = data.ToFrame(window=WINDOW)
    found: dict[str, Callable[[], Any]] = {}
    for name, transform in (("sample by sample", OneByOne(frames)), ("a batch at once", frames)):
        loader = data.Loader(dataset, BATCH, transform=transform, seed=0, workers=workers, buckets=[128])

        def through(loader: data.Loader = loader) -> None:
            for _ in loader:
                pass

        found[name] = through
    made = [
        [[part.asnumpy() for part in batch] for batch in data.Loader(dataset, BATCH, transform=transform, seed=0)]
        for transform in (OneByOne(frames), frames)
    ]
    for one, other in zip(*made, strict=True):
        for a, b in zip(one, other, strict=True):
            np.testing.assert_array_equal(a, b)
    return found


def alone(recordings: list[data.Events]) -> dict[str, Callable[[], Any]]:
    """The frames of as many batches, and nothing else."""
    frames = data.ToFrame(window=WINDOW)
    batches = [recordings[begin : begin + BATCH] for begin in range(0, SAMPLES, BATCH)]
    return {
        "sample by sample": lambda: [frames(events) for batch in batches for events in batch],
        "a batch at once": lambda: [frames.batch(batch, lambda lengths: 128) for batch in batches],
    }


def write_digits(folder: Path) -> None:
    """Files in the layout of N-MNIST, with as many events."""
    rng = np.random.default_rng(0)
    for number in range(FILES):
        count = int(rng.integers(2000, 6400))
        t = np.sort(rng.integers(0, 310_000, count))
        x, y, p = rng.integers(0, [[34], [34], [2]], (3, count))
        place = folder / str(number % 10) / f"{number:05}.bin"
        place.parent.mkdir(exist_ok=True)
        np.stack([x, y, p << 7 | t >> 16, t >> 8 & 255, t & 255], 1).astype(np.uint8).tofile(place)


def readers(folder: Path) -> tuple[int, dict[str, Callable[[], Any]]]:
    """The number of recordings in a folder, and a pass through them by each reader; their events are compared."""
    digits = data.NMNIST(folder)
    contestants: dict[str, Callable[[], Any]] = {
        "data.NMNIST": lambda: [digits[number] for number in range(len(digits))],
        "data.read_events": lambda: [data.read_events(path) for path in digits.paths],
    }
    if importlib.util.find_spec("tonic"):
        from tonic.datasets import NMNIST
        from tonic.io import read_mnist_file

        contestants["tonic's read_mnist_file"] = lambda: [
            read_mnist_file(path, dtype=NMNIST.dtype) for path in digits.paths
        ]
        for path, (events, _) in zip(digits.paths, contestants["data.NMNIST"](), strict=True):
            other = read_mnist_file(path, dtype=NMNIST.dtype)
            for name in "txyp":
                np.testing.assert_array_equal(events[name], other[name])
    return len(digits), contestants


def main() -> None:
    """Measure, print a table, and write it where it is wanted."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--markdown", type=Path)
    parser.add_argument("--recordings", type=Path)
    options = parser.parse_args()
    lines = ["# Loading events", "", "- command: python benchmarks/loading.py --markdown FILE"]
    lines.append(f"- Python {platform.python_version()}, snncell {snncell.__version__}, numpy {np.__version__}")
    lines.append(f"- {SAMPLES} recordings of 700 channels, some 8,000 events, in windows of 10 ms, {BATCH} a batch")
    lines.append(
        "- milliseconds for a batch, minimum of passes that take turns; batches are equal to the bit in all rows"
    )
    lines += ["", "| | sample by sample | a batch at once | ratio |", "| --- | --- | --- | --- |"]
    words = data.SHDLike(SAMPLES, 1)
    recordings = [words[number] for number in range(SAMPLES)]
    with tempfile.TemporaryDirectory() as folder:
        rows = {"frames alone, without padding": alone([events for events, _ in recordings])}
        rows |= {f"Loader, from memory, workers={workers}": passes(recordings, workers) for workers in (0, 1, 2)}
        if importlib.util.find_spec("h5py"):
            data.write_shd_like(Path(folder) / "words.h5", SAMPLES, 1)
            shd = data.SHD(Path(folder) / "words.h5")
            rows |= {f"Loader, from a file of SHD, workers={workers}": passes(shd, workers) for workers in (0, 1, 2)}
        for name, contestants in rows.items():
            times = in_turns(contestants, rounds=15)
            one, other = (1e3 * min(seconds) * BATCH / SAMPLES for seconds in times.values())
            lines.append(f"| {name} | {one:.1f} | {other:.1f} | {one / other:.1f} |")
        folder_of_digits = options.recordings or Path(folder) / "digits"
        if options.recordings is None:
            folder_of_digits.mkdir()
            write_digits(folder_of_digits)
        count, contestants = readers(folder_of_digits)
        lines += ["", f"{count} recordings of N-MNIST, maximum of passes that take turns", ""]
        lines += ["| reader | recordings a second |", "| --- | --- |"]
        for name, seconds in in_turns(contestants, rounds=15).items():
            lines.append(f"| {name} | {count / min(seconds):,.0f} |")
    tell(lines, options.markdown)


if __name__ == "__main__":
    main()
