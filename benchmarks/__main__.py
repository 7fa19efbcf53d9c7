"""Benchmarks beside the other frameworks: `python -m benchmarks [--rows NAME ...] [--peers NAME ...] [--quick]`.

Without options it makes an environment with the peers (once; it is kept), compares what all compute, measures every row
in turns within one run, and writes table and plots to `benchmarks/results` and the table of the README. `--list` names
the rows.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parent / "results"
THREADS = ("NUMBA_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", nargs="+", metavar="NAME", help="measure these rows, or groups of rows, only")
    parser.add_argument("--peers", nargs="+", metavar="NAME", help="beside these only; none: snncell alone")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, three rounds: to see whether everything runs")
    parser.add_argument("--threads", type=int, help="so many cores and threads for everybody")
    parser.add_argument("--rounds", type=int, default=15, help="how often each contestant has its turn")
    parser.add_argument("--memory", action="store_true", help="also the most memory of each, in processes of their own")
    parser.add_argument("--here", action="store_true", help="in this environment, with what is installed in it")
    parser.add_argument("--write", type=Path, metavar="FOLDER", help="write table and plots there, and not the README")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to this file")
    parser.add_argument("--list", action="store_true", help="name rows and groups")
    return parser.parse_args()


def limit_threads(threads: int) -> None:
    """Give this process so many cores, before anybody counts them."""
    for name in THREADS:
        os.environ[name] = str(threads)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])


def chosen(rows: dict[str, Any], names: list[str] | None) -> dict[str, Any]:
    """The rows of these names and groups."""
    if names is None:
        return rows
    known = {*rows, *(row.group for row in rows.values())}
    if unknown := [name for name in names if name not in known]:
        sys.exit(f"There is no row {unknown[0]!r}; there are {', '.join(sorted(known))}.")
    return {name: row for name, row in rows.items() if name in names or row.group in names}


def main() -> None:
    given = options()
    if given.threads:
        limit_threads(given.threads)
    from benchmarks.peers import MODULES, present

    wanted = [] if given.peers == ["none"] else given.peers or list(MODULES)
    if unknown := [peer for peer in wanted if peer not in MODULES]:
        sys.exit(f"There is no peer {unknown[0]!r}; there are {', '.join(MODULES)}, or none.")
    peers, absent = present(wanted)
    from benchmarks.machine import about
    from benchmarks.measure import measured, peak_in_fresh_process
    from benchmarks.rows import ROWS
    from benchmarks.tables import details, page, summary

    if given.list:
        for name, row in ROWS.items():
            print(f"{row.group:10} {name:16} {row.title}")
        return
    facts = about(peers, absent)
    rows, found, notes = chosen(ROWS, given.rows), {}, []
    for name, row in rows.items():
        print(f"{name}: {row.title}", flush=True)
        notes += row.compare(peers)
        found[name] = measured(
            row, row.checked if given.quick else row.sizes, peers, 3 if given.quick else given.rounds
        )
        for timing in found[name]:
            if given.memory:
                timing.memory = peak_in_fresh_process(row, timing.contestant, {})
            print(f"    {timing.contestant:30} {timing.median * 1e3:10.3f} ms   {timing.ratio:.2f}", flush=True)
    remarks = "\n".join(f"- {note}" for note in notes)
    text = page("Beside the other frameworks", facts, summary(rows, found), details(rows, found), remarks)
    print(f"\n{text}")
    if given.write:
        given.write.mkdir(parents=True, exist_ok=True)
        (given.write / "rows.md").write_text(text, encoding="utf-8")
    if given.json:
        timings = {name: [vars(timing) for timing in each] for name, each in found.items()}
        given.json.write_text(json.dumps({"about": facts, "rows": timings, "notes": notes}, indent=1))


if __name__ == "__main__":
    main()
