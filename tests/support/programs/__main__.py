"""`python -m programs`: makes programs, runs each in all forms, and prints what fails, as small as it can be made."""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from importlib.util import find_spec

from interpreting import plainly

from .compare import Failure, check
from .generate import make
from .report import described, minimised


def main() -> int:
    """The command; 1 if a program failed."""
    parser = argparse.ArgumentParser(prog="python -m programs", description=__doc__)
    parser.add_argument("--count", type=int, default=300, help="how many programs")
    parser.add_argument("--first", type=int, default=0, help="the seed of the first")
    parser.add_argument("--jobs", type=int, default=1, help="in how many processes")
    parser.add_argument("--compiled", action="store_true", help="compile the kernels, which takes seconds for each")
    parser.add_argument("--show", action="store_true", help="print the programs, and run none")
    given = parser.parse_args()
    seeds = range(given.first, given.first + given.count)
    if given.show:
        print("\n\n".join(described(make(seed)) for seed in seeds))
        return 0
    torch = find_spec("torch") is not None
    print("compared with snncell's own tape" + (", and with PyTorch" if torch else "; PyTorch is not installed"))
    began, outcomes = time.monotonic(), Counter[str]()
    for number, (seed, failures) in enumerate(_checked(seeds, given.jobs, torch, given.compiled), 1):
        outcomes["wrong" if failures else "right"] += 1
        for failure in failures[:1]:
            with _running(given.compiled):
                print(minimised(make(seed), failure), flush=True)
        if number % 100 == 0:
            print(f"{number} of {given.count}: {dict(outcomes)}, {time.monotonic() - began:.0f} s", flush=True)
    print(f"{given.count} programs from seed {given.first} on: {dict(outcomes)}, {time.monotonic() - began:.0f} s")
    return int(bool(outcomes["wrong"]))


def _checked(seeds: range, jobs: int, torch: bool, compiled: bool) -> Iterator[tuple[int, list[Failure]]]:
    one = partial(_one, torch=torch, compiled=compiled)
    if jobs == 1:
        yield from map(one, seeds)
        return
    with ProcessPoolExecutor(jobs) as pool:
        yield from pool.map(one, seeds, chunksize=10)


def _one(seed: int, torch: bool, compiled: bool) -> tuple[int, list[Failure]]:
    with _running(compiled):
        return seed, check(make(seed), torch=torch)


@contextlib.contextmanager
def _running(compiled: bool) -> Iterator[None]:
    """Kernels compiled, or run as the Python that they are generated as."""
    with contextlib.nullcontext() if compiled else plainly(), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        yield


if __name__ == "__main__":
    sys.exit(main())
