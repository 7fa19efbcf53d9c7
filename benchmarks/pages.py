"""Pages of single scripts: run a script and return its page, which replaces the published one."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.child import ChildError, call
from benchmarks.cost_model import table
from benchmarks.environment import ROOT

RESULTS = ROOT / "benchmarks" / "results"
ONE_THREAD = {"NUMBA_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
# By page: the arguments of Python, and environment variables.
SCRIPTS: dict[str, tuple[list[str], dict[str, str]]] = {
    "core": (["benchmarks/core.py"], {}),
    "recurrent-layers": (["benchmarks/recurrent_layers.py"], ONE_THREAD),
    "first-calls": (["benchmarks/first_calls.py", "--rounds", "3"], {}),
    "events": (["-m", "benchmarks.events", "--threads", "1"], {}),
}
PAGES = ["cost-model", *SCRIPTS]
LIMIT = 600.0  # seconds


def make_page(name: str, quick: bool) -> str:
    """Run a script and return its page. For "cost-model", return the table."""
    if name == "cost-model":
        return str(call(table, quick, limit=LIMIT))
    arguments, environment = SCRIPTS[name]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "page.md"
        done = subprocess.run(
            [sys.executable, *arguments, "--markdown", str(file)],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
            capture_output=True,
            text=True,
            timeout=LIMIT,
        )
        if done.returncode:
            raise ChildError(f"{' '.join(arguments)} failed: {done.stderr.strip().splitlines()[-1:]}")
        return file.read_text(encoding="utf-8")
