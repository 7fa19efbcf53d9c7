"""Start a program as the ranks of a job, and wait for its end."""

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
# Variables that let the launchers of several MPI libraries start more ranks than there are cores.
MORE_THAN_CORES = {
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
}


def launcher() -> str:
    """Return the path of mpiexec, preferably next to this Python. Skip the test without mpiexec or mpi4py."""
    pytest.importorskip("mpi4py", reason="mpi4py is not installed")
    path = shutil.which("mpiexec", path=str(Path(sys.executable).parent)) or shutil.which("mpiexec")
    if path is None:
        pytest.skip("mpiexec is not installed")
    return path


def start_job(ranks: int, *arguments: str, **options: Any) -> subprocess.Popen[str]:
    """Start `python arguments` on some ranks, in a new process group. `env` removes variables that are None."""
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


def wait_for_job(job: subprocess.Popen[str], patience: float = 300.0) -> tuple[int, str, str]:
    """Return the exit code, output and errors of a job. After `patience` seconds, kill it and raise an error."""
    try:
        out, errors = job.communicate(timeout=patience)
    except subprocess.TimeoutExpired:
        os.killpg(job.pid, signal.SIGKILL)
        out, errors = job.communicate()
        raise AssertionError(f"the job did not end within {patience} s:\n{out}\n{errors}") from None
    return job.returncode, out, errors


def run(ranks: int, *arguments: str, **options: Any) -> str:
    """Run a job, check that it succeeds, and return its output."""
    code, out, errors = wait_for_job(start_job(ranks, *arguments, **options))
    assert code == 0, f"exit code {code}\n{out}\n{errors}"
    return out
