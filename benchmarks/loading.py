"""Batches of events made by a Loader: frames of a whole batch in one call, and sample by sample, in turns.

    python benchmarks/loading.py [--markdown FILE]

Recordings in the shape of the Spiking Heidelberg Digits (700 channels, some 8,000 events), 64 a batch, in windows of
10 ms, padded to 128: from memory, and from a file laid out as SHD's where h5py is installed. All batches are checked to
be the same to the bit.
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


def main() -> None:
    """Measure, print a table, and write it where it is wanted."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--markdown", type=Path)
    options = parser.parse_args()
    lines = ["# Loading events", "", "- command: python benchmarks/loading.py --markdown FILE"]
    lines.append(f"- Python {platform.python_version()}, snncell {snncell.__version__}, numpy {np.__version__}")
    lines.append(f"- {SAMPLES} recordings of 700 channels, some 8,000 events, in windows of 10 ms, {BATCH} a batch")
    lines.append("- milliseconds for a batch, the least of passes made in turns; batches equal to the bit in all rows")
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
    tell(lines, options.markdown)


if __name__ == "__main__":
    main()
