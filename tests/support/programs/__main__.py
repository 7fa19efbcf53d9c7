"""`python -m programs`: generate programs, run each in all forms, and print failing programs after reducing them."""

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
from .report import program_text, report_failure


def main() -> int:
    """Run the command; return 1 if a program failed."""
    parser = argparse.ArgumentParser(prog="python -m programs", description=__doc__)
    parser.add_argument("--count", type=int, default=300, help="number of programs")
    parser.add_argument("--first", type=int, default=0, help="seed of the first program")
    parser.add_argument("--jobs", type=int, default=1, help="number of processes")
    parser.add_argument("--compiled", action="store_true", help="compile the kernels, which takes seconds per program")
    parser.add_argument("--show", action="store_true", help="print the programs without running them")
    options = parser.parse_args()
    seeds = range(options.first, options.first + options.count)
    if options.show:
        print("\n\n".join(program_text(make(seed)) for seed in seeds))
        return 0
    torch = find_spec("torch") is not None
    print("compared with snncell's tape" + (" and with PyTorch" if torch else "; PyTorch is not installed"))
    start, outcomes = time.monotonic(), Counter[str]()
    for number, (seed, failures) in enumerate(_check_all(seeds, options.jobs, torch, options.compiled), 1):
        outcomes["wrong" if failures else "right"] += 1
        for failure in failures[:1]:
            with _kernels(options.compiled):
                print(report_failure(make(seed), failure), flush=True)
        if number % 100 == 0:
            print(f"{number} of {options.count}: {dict(outcomes)}, {time.monotonic() - start:.0f} s", flush=True)
    print(f"{options.count} programs from seed {options.first} on: {dict(outcomes)}, {time.monotonic() - start:.0f} s")
    return int(bool(outcomes["wrong"]))


def _check_all(seeds: range, jobs: int, torch: bool, compiled: bool) -> Iterator[tuple[int, list[Failure]]]:
    one = partial(_check_one, torch=torch, compiled=compiled)
    if jobs == 1:
        yield from map(one, seeds)
        return
    with ProcessPoolExecutor(jobs) as pool:
        yield from pool.map(one, seeds, chunksize=10)


def _check_one(seed: int, torch: bool, compiled: bool) -> tuple[int, list[Failure]]:
    with _kernels(compiled):
        return seed, check(make(seed), torch=torch)


@contextlib.contextmanager
def _kernels(compiled: bool) -> Iterator[None]:
    """Compile kernels, or run their generated source as Python."""
    with contextlib.nullcontext() if compiled else plainly(), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        yield


if __name__ == "__main__":
    sys.exit(main())
