"""Loading events: time of a Loader that makes frames of a whole batch in one call, or sample by sample.

    python benchmarks/loading.py [--markdown FILE]

The recordings are like the Spiking Heidelberg Digits: 700 channels, about 8,000 events. A batch has 64 of them in
windows of 10 ms, padded to 128 windows. They come from memory, and from a file in the format of SHD if h5py is
installed. The script checks that all batches are equal to the bit.

Then snncell reads files in the format of N-MNIST with about 4,200 events each, and so does tonic if it is installed.
With `--recordings FOLDER` you can use the .bin files of a folder, for example N-MNIST itself.
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
from timing import in_turns, publish

import snncell
from snncell import data

SAMPLES, BATCH, WINDOW = 256, 64, 10_000  # microseconds
FILES = 400


class OneByOne:
    """ToFrame without its method for batches."""

    def __init__(self, frames: data.ToFrame) -> None:
        self.frames = frames

    def __call__(self, events: data.Events) -> Any:
        return self.frames(events)


def loader_passes(dataset: Any, workers: int) -> dict[str, Callable[[], Any]]:
    """Return functions that read all batches of a Loader, in both ways."""
    frames = data.ToFrame(window=WINDOW)
    functions: dict[str, Callable[[], Any]] = {}
    for name, transform in (("sample by sample", OneByOne(frames)), ("a batch at once", frames)):
        loader = data.Loader(dataset, BATCH, transform=transform, seed=0, workers=workers, buckets=[128])

        def read_all(loader: data.Loader = loader) -> None:
            for _ in loader:
                pass

        functions[name] = read_all
    both = [
        [[part.asnumpy() for part in batch] for batch in data.Loader(dataset, BATCH, transform=transform, seed=0)]
        for transform in (OneByOne(frames), frames)
    ]
    for one, other in zip(*both, strict=True):
        for a, b in zip(one, other, strict=True):
            np.testing.assert_array_equal(a, b)
    return functions


def frame_passes(recordings: list[data.Events]) -> dict[str, Callable[[], Any]]:
    """Return functions that compute the frames of all batches, without a Loader."""
    frames = data.ToFrame(window=WINDOW)
    batches = [recordings[begin : begin + BATCH] for begin in range(0, SAMPLES, BATCH)]
    return {
        "sample by sample": lambda: [frames(events) for batch in batches for events in batch],
        "a batch at once": lambda: [frames.batch(batch, lambda lengths: 128) for batch in batches],
    }


def write_digits(folder: Path) -> None:
    """Write files in the format of N-MNIST, with a similar number of events."""
    rng = np.random.default_rng(0)
    for number in range(FILES):
        count = int(rng.integers(2000, 6400))
        t = np.sort(rng.integers(0, 310_000, count))
        x, y, p = rng.integers(0, [[34], [34], [2]], (3, count))
        file = folder / str(number % 10) / f"{number:05}.bin"
        file.parent.mkdir(exist_ok=True)
        np.stack([x, y, p << 7 | t >> 16, t >> 8 & 255, t & 255], 1).astype(np.uint8).tofile(file)


def readers(folder: Path) -> tuple[int, dict[str, Callable[[], Any]]]:
    """Return the number of recordings in a folder, and a function of each reader that reads all of them.

    Checks that all readers return the same events.
    """
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
    """Measure, print the tables, and write them to the file of `--markdown`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--markdown", type=Path)
    parser.add_argument("--recordings", type=Path)
    options = parser.parse_args()
    lines = ["# Loading events", "", "- command: python benchmarks/loading.py --markdown FILE"]
    lines.append(f"- Python {platform.python_version()}, snncell {snncell.__version__}, numpy {np.__version__}")
    lines.append(f"- {SAMPLES} recordings of 700 channels, about 8,000 events, in windows of 10 ms, {BATCH} per batch")
    lines.append(
        "- milliseconds per batch, minimum of passes that take turns; batches are equal to the bit in all rows"
    )
    lines += ["", "| | sample by sample | a batch at once | ratio |", "| --- | --- | --- | --- |"]
    words = data.SHDLike(SAMPLES, 1)
    recordings = [words[number] for number in range(SAMPLES)]
    with tempfile.TemporaryDirectory() as folder:
        rows = {"frames only, without padding": frame_passes([events for events, _ in recordings])}
        rows |= {f"Loader, from memory, workers={workers}": loader_passes(recordings, workers) for workers in (0, 1, 2)}
        if importlib.util.find_spec("h5py"):
            data.write_shd_like(Path(folder) / "words.h5", SAMPLES, 1)
            shd = data.SHD(Path(folder) / "words.h5")
            rows |= {f"Loader, from a file of SHD, workers={w}": loader_passes(shd, w) for w in (0, 1, 2)}
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
        lines += ["| reader | recordings per second |", "| --- | --- |"]
        for name, seconds in in_turns(contestants, rounds=15).items():
            lines.append(f"| {name} | {count / min(seconds):,.0f} |")
    publish(lines, options.markdown)


if __name__ == "__main__":
    main()
