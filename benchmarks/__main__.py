"""Benchmarks against other frameworks: `python -m benchmarks [--rows NAME ...] [--peers NAME ...] [--quick]`.

Without options it creates an environment with all peers and keeps it. Then it compares the results of all contestants,
measures them in turns, and writes tables and plots to `benchmarks/results`, part by part: rows, sweeps, figures, and
the pages of single scripts. This takes half an hour on two cores. If you name parts or use `--quick`, it only prints,
and writes files only to the folder of `--write`. `--list` names the rows.

- `--prepare` compiles the contestants of PyTorch, which takes an hour once. Other programs may run meanwhile.
- `--resume` keeps the parts that the same version has measured today, for example after an interrupted run.

A part is measured again if other processes used the cores meanwhile (`load.py`). If they do so for five minutes, the
run stops. The exit code is 1 if a part is missing.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

THREADS = ("NUMBA_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
QUICK_ROUNDS = 3
COMPILE_LIMIT, PREPARE_LIMIT = 60, 600  # processor seconds of a compilation; slower contestants are not measured


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--rows", nargs="*", metavar="NAME", help="only these rows or groups of rows; without a name: no rows")
    add("--sweeps", nargs="*", metavar="NAME", help="only these sweeps: density, steps, neurons, batch, threads")
    add("--figures", nargs="*", metavar="NAME", help="only these figures: digits, busy, prefetch, spike-times")
    add("--pages", nargs="*", metavar="NAME", help="only these pages: cost-model, core, recurrent-layers, ...")
    add("--peers", nargs="+", metavar="NAME", help="compare only with these peers; `none`: snncell alone")
    add("--quick", action="store_true", help="tiny sizes and three rounds, to check that everything runs")
    add("--threads", type=int, metavar="N", help="number of cores and threads of each contestant")
    add("--rounds", type=int, default=9, metavar="N", help="the largest number of turns of each contestant")
    add("--no-memory", action="store_true", help="do not measure peak memory")
    add("--compile-limit", type=int, metavar="S", help="processor seconds for torch.compile; 0: do not compile")
    add("--prepare", action="store_true", help="only compile the contestants of PyTorch, for later runs")
    add("--resume", action="store_true", help="keep the parts that the same version has measured today")
    add("--force", action="store_true", help="measure and print although other processes use the cores; write nothing")
    add("--here", action="store_true", help="use this environment and its installed peers")
    add("--write", type=Path, metavar="FOLDER", help="write tables and plots to this folder")
    add("--json", type=Path, metavar="FILE", help="also write the figures of the rows to this file")
    add("--list", action="store_true", help="name all rows and groups")
    return parser.parse_args()


def limit_threads(threads: int) -> None:
    """Limit this process to a number of cores. Call it before a library counts the cores."""
    for name in THREADS:
        os.environ[name] = str(threads)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])


def select(known: dict[str, Any], names: list[str] | None, others: bool) -> dict[str, Any]:
    """Select rows, sweeps, figures or pages by names and groups.

    Without names, select all except large rows, or none if the user has named parts of another kind (`others`).
    """
    group_of = {name: getattr(each, "group", name) for name, each in known.items()}
    if names is None:
        return {name: each for name, each in known.items() if not others and not group_of[name].endswith("-large")}
    if unknown := [name for name in names if name not in {*known, *group_of.values()}]:
        sys.exit(f"There is no {unknown[0]!r}; use one of {', '.join(sorted({*known, *group_of.values()}))}.")
    return {name: each for name, each in known.items() if name in names or group_of[name] in names}


def measure(options: argparse.Namespace, peer_names: list[str]) -> None:
    """Measure the selected rows, sweeps, figures and pages, and print or write a report."""
    from benchmarks.child import end_all, import_early
    from benchmarks.load import BusyError, adopt_orphans
    from benchmarks.pages import RESULTS
    from benchmarks.peers import MODULES, import_peers
    from benchmarks.run import Run

    peers, absent = import_peers(peer_names)
    others = any(each is not None for each in (options.rows, options.sweeps, options.figures, options.pages))
    whole = not (others or options.quick or options.peers)
    folder = options.write.resolve() if options.write else RESULTS if whole else None
    if options.force or options.list or options.prepare:
        folder = None
    publishes = folder is not None and not options.quick
    compiled, limit = None, options.compile_limit
    limit = (PREPARE_LIMIT if options.prepare else COMPILE_LIMIT) if limit is None else limit
    if limit and "PyTorch" in peers:
        from benchmarks.compiled import Compiled

        compiled = Compiled(limit)
    rounds = QUICK_ROUNDS if options.quick else options.rounds
    run = Run(
        peers, absent, rounds, options.quick, not options.no_memory, compiled, not publishes, folder, options.resume
    )
    adopt_orphans()
    import_early([*(MODULES[peer] for peer in peers), "benchmarks.rows", "benchmarks.measure"])
    if options.list:
        print("\n".join(run.list_rows()))
        return
    rows = select(run.known_rows, options.rows, others)
    if options.prepare:
        run.prepare(rows)
        return
    try:
        if publishes:
            run.quiet.wait(1)
        run.rows(rows)
        run.pages(select(run.known_pages, options.pages, others or options.quick))
        run.sweeps(select(run.known_sweeps, options.sweeps, others))
        run.figures(select(run.known_figures, options.figures, others))
    except BusyError as error:
        sys.exit(str(error))
    finally:
        end_all()
        print(f"\n{run.page()}")
    if options.json:
        timings = {name: [vars(timing) for timing in each.timings] for name, each in run.results.get("rows").items()}
        options.json.write_text(json.dumps({"about": run.about, "rows": timings}, indent=1), encoding="utf-8")
    if run.failed:
        sys.exit("\n".join(["Missing parts:", *(f"- {name}: {fault}" for name, fault in run.failed.items())]))


def main() -> None:
    options = parse_options()
    if options.threads:
        limit_threads(options.threads)
    from benchmarks.peers import MODULES

    peers = [] if options.peers == ["none"] or options.list else options.peers or list(MODULES)
    if unknown := [peer for peer in peers if peer not in MODULES]:
        sys.exit(f"There is no peer {unknown[0]!r}; use {', '.join(MODULES)}, or none.")
    if peers and not options.here:
        from benchmarks.environment import restart_in_environment

        restart_in_environment()
    measure(options, peers)


if __name__ == "__main__":
    main()
