"""Starting a program as ranks of a job, and ending all of it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

TESTS = Path(__file__).parents[1]
# A launcher refuses more ranks than cores unless it is told that they may share them, each in its own words.
MORE_THAN_CORES = {
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
}


def launcher() -> str:
    """The path of mpiexec, beside this Python or anywhere; without one, or without mpi4py, the test is skipped."""
    pytest.importorskip("mpi4py", reason="mpi4py is not installed")
    found = shutil.which("mpiexec", path=str(Path(sys.executable).parent)) or shutil.which("mpiexec")
    if found is None:
        pytest.skip("there is no mpiexec")
    return found


def begun(ranks: int, *arguments: str, **options: Any) -> subprocess.Popen[str]:
    """A job of so many ranks of `python arguments`, in a group of its own; variables of `env` that are None are not."""
    paths = os.pathsep.join([str(TESTS), *sys.path])
    variables = {**os.environ, **MORE_THAN_CORES, "PYTHONPATH": paths, **options.pop("env", {})}
    environment = {name: value for name, value in variables.items() if value is not None}
    command = [launcher(), "-n", str(ranks), sys.executable, "-X", "faulthandler", *arguments]
    return subprocess.Popen(
        command,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        **options,
    )


def ended(job: subprocess.Popen[str], patience: float = 300.0) -> tuple[int, str, str]:
    """Exit code, output and errors of a job; one that does not end is killed, with an error."""
    try:
        out, errors = job.communicate(timeout=patience)
    except subprocess.TimeoutExpired:
        os.killpg(job.pid, signal.SIGKILL)
        out, errors = job.communicate()
        raise AssertionError(f"the job did not end within {patience} s:\n{out}\n{errors}") from None
    return job.returncode, out, errors


def run(ranks: int, *arguments: str, **options: Any) -> str:
    """The output of a job that ends well."""
    code, out, errors = ended(begun(ranks, *arguments, **options))
    assert code == 0, f"exit code {code}\n{out}\n{errors}"
    return out
