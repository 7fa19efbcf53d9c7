"""Benchmarks against other frameworks: `python -m benchmarks [--rows NAME ...] [--peers NAME ...] [--quick]`.

Without options it creates an environment with all peers and keeps it. It compares the results of all contestants, and
measures them in turns within one run: every row, the sweeps, the digits end to end, and snncell alone. It writes tables
and plots to `benchmarks/results`. With `--rows` or `--quick` it prints, and writes files to the folder of `--write`
only. `--list` names the rows; `--cost-model` measures the kernels for `docs/cost-model.md`.

It writes nothing if other processes use the cores before or during the run (`load.py`). The exit code is then 1.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.load import Watch

HERE = Path(__file__).resolve().parent
THREADS = ("NUMBA_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
QUICK_ROUNDS = 3
LOOK = 3.0  # seconds in which other processes are observed before a run


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--rows", nargs="*", metavar="NAME", help="these rows, or groups of rows, only; no name: none")
    add("--sweeps", nargs="*", metavar="NAME", help="these sweeps only: density, steps, neurons, batch, threads")
    add(
        "--figures",
        nargs="*",
        metavar="NAME",
        help="these figures only: digits, first, demo, busy, prefetch, spike-times",
    )
    add("--peers", nargs="+", metavar="NAME", help="compare with these peers only; none: snncell alone")
    add("--quick", action="store_true", help="tiny sizes, three rounds: to see whether everything runs")
    add("--threads", type=int, metavar="N", help="number of cores and threads of each contestant")
    add("--rounds", type=int, default=15, metavar="N", help="number of turns of each contestant")
    add(
        "--no-memory", action="store_true", help="do not measure peak memory, which takes a process for each contestant"
    )
    add("--compile-limit", type=int, default=None, metavar="S", help="seconds for torch.compile; 0: do not compile")
    add("--force", action="store_true", help="measure and print although other processes use the cores; write nothing")
    add("--here", action="store_true", help="use this environment and its installed peers")
    add("--write", type=Path, metavar="FOLDER", help="write tables and plots to this folder")
    add("--json", type=Path, metavar="FILE", help="also write the rows' figures to this file")
    add("--cost-model", action="store_true", help="measure the kernels, and write the table of docs/cost-model.md")
    add("--list", action="store_true", help="name rows and groups")
    return parser.parse_args()


def limit_threads(threads: int) -> None:
    """Limit this process to a number of cores. Call it before a library counts them."""
    for name in THREADS:
        os.environ[name] = str(threads)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])


def chosen(known: dict[str, Any], names: list[str] | None, others: bool) -> dict[str, Any]:
    """Select rows, sweeps or figures by names and groups. Without names, select all except the large ones."""
    group_of = {name: getattr(each, "group", name) for name, each in known.items()}
    if names is None:
        return {name: each for name, each in known.items() if not others and not group_of[name].endswith("-large")}
    if unknown := [name for name in names if name not in {*known, *group_of.values()}]:
        sys.exit(f"There is no {unknown[0]!r}; there are {', '.join(sorted({*known, *group_of.values()}))}.")
    return {name: each for name, each in known.items() if name in names or group_of[name] in names}


def refuse(watch: Watch) -> None:
    """Exit with an error if other processes used the cores."""
    if reason := watch.refusal():
        sys.exit(reason)


def measure(given: argparse.Namespace, wanted: list[str], limit: int) -> None:
    """Measure the selected rows, sweeps and figures, or the kernels of the cost model, and print or write a report."""
    from benchmarks.peers import present

    peers, absent = present(wanted)
    from benchmarks.cost_model import table
    from benchmarks.run import Run
    from benchmarks.tables import page, put_between_markers

    run = Run(peers, absent, QUICK_ROUNDS if given.quick else given.rounds, given.quick, not given.no_memory, limit)
    if given.list:
        print("\n".join(run.listed()))
        return
    others = any(each is not None for each in (given.rows, given.sweeps, given.figures))
    whole = not (others or given.quick or given.peers or given.cost_model)
    folder = given.write or (HERE / "results" if whole else None)
    publishes = not given.force and not given.quick and (folder is not None or given.cost_model)
    if publishes:
        time.sleep(LOOK)
        run.look()
        refuse(run.watch)
    if given.cost_model:
        costs = table(given.quick)
        run.look()
        measured = page("", run.about, costs).removeprefix("# \n\n")
        print(f"\n{measured}")
        if publishes:
            refuse(run.watch)
            if not put_between_markers(HERE.parent / "docs/cost-model.md", measured.strip()):
                sys.exit("docs/cost-model.md has no place for the table.")
        return
    run.about["incomplete"] = "it was interrupted"
    try:
        run.rows(chosen(run.known_rows, given.rows, others))
        run.sweeps(chosen(run.known_sweeps, given.sweeps, others))
        run.figures(chosen(run.known_figures, given.figures, others))
        del run.about["incomplete"]
    finally:  # keep the results of an interrupted run, marked as incomplete
        print(f"\n{run.page()}")
        if publishes:
            refuse(run.watch)
        if folder and run.found and not given.force:
            run.write(folder)
    if given.json:
        timings = {name: [vars(timing) for timing in each] for name, each in run.found.items()}
        text = json.dumps({"about": run.about, "rows": timings, "notes": run.notes}, indent=1)
        given.json.write_text(text, encoding="utf-8")


def main() -> None:
    given = options()
    if given.threads:
        limit_threads(given.threads)
    from benchmarks.peers import COMPILE_LIMIT, MODULES

    wanted = [] if given.peers == ["none"] or given.cost_model or given.list else given.peers or list(MODULES)
    if unknown := [peer for peer in wanted if peer not in MODULES]:
        sys.exit(f"There is no peer {unknown[0]!r}; there are {', '.join(MODULES)}, or none.")
    if wanted and not given.here:
        from benchmarks.environment import begin_again_inside

        begin_again_inside()
    with tempfile.TemporaryDirectory(prefix="snncell-benchmarks-") as folder:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder  # empty, so that first calls compile
        measure(given, wanted, COMPILE_LIMIT if given.compile_limit is None else given.compile_limit)


if __name__ == "__main__":
    main()
