"""Virtual environment with all peers: created once, kept in the cache folder, and used by later runs.

It has the requirements of snncell and the peers; snncell itself comes from this checkout. The report names peers that
cannot be installed.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
INSIDE = "SNNCELL_BENCHMARKS_ENVIRONMENT"  # a variable of processes that run inside the environment

# The arguments of each call of pip, by peer. SpikingJelly, snnTorch and Norse have many requirements that the rows do
# not use, so the used ones are listed.
PINNED = {
    "PyTorch": [["torch==2.13.0"]],
    "SpikingJelly": [
        ["--no-deps", "spikingjelly==2.0.0"],
        ["tqdm", "loguru", "scipy", "matplotlib", "einops", "requests"],
    ],
    "snnTorch": [["--no-deps", "snntorch==1.0.0"]],
    "Norse": [["--no-deps", "norse==1.1.0", "nirtorch"], ["nir"]],
    "JAX": [["jax==0.10.2"]],
    "Eventax": [["eventax==0.1.0", "diffrax==0.7.2", "optimistix==0.1.0", "jax==0.10.2"]],
}
CPU_INDEX = "https://download.pytorch.org/whl/cpu"  # PyTorch without CUDA, which is smaller


def cache_folder() -> Path:
    """Return the folder of environments and compiled contestants; you can set it by SNNCELL_BENCHMARKS_DIR."""
    if folder := os.environ.get("SNNCELL_BENCHMARKS_DIR"):
        return Path(folder)
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "snncell-benchmarks"


def environment_folder() -> Path:
    """Return the folder of the environment for this Python, the pinned peers and the requirements of snncell."""
    facts = json.dumps([PINNED, requirements(), platform.python_version(), platform.machine()])
    return cache_folder() / hashlib.blake2b(facts.encode(), digest_size=6).hexdigest()


def requirements() -> list[str]:
    """Return the requirements of snncell in `pyproject.toml`."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return list(project["dependencies"])


def create_environment() -> tuple[Path, dict[str, str]]:
    """Create the environment unless it exists. Return its Python, and the reason for each missing peer."""
    folder = environment_folder()
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    note = folder / "absent.json"
    if note.exists():
        return python, json.loads(note.read_text(encoding="utf-8"))
    print(f"Creating an environment with the peers in {folder}. This takes some minutes, once.", flush=True)
    venv.create(folder, clear=True, with_pip=True)
    if fault := _install(python, requirements()):
        sys.exit(f"The requirements of snncell cannot be installed: {fault}")
    absent = {}
    for peer, calls in PINNED.items():
        print(f"  {peer} ...", flush=True)
        extra = ["--extra-index-url", CPU_INDEX] if peer == "PyTorch" else []
        for call in calls:
            if fault := _install(python, [*call, *extra]) and _install(python, call):
                absent[peer] = fault
                break
    note.write_text(json.dumps(absent), encoding="utf-8")
    return python, absent


def _install(python: Path, arguments: list[str]) -> str:
    """Run pip. Return the last line of its error, or an empty text."""
    command = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
    return "" if done.returncode == 0 else (errors or done.stderr.splitlines() or ["pip failed"])[-1]


def restart_in_environment() -> None:
    """Run this command again inside the environment and exit, unless this process already runs there."""
    if os.environ.get(INSIDE):
        return
    python, absent = create_environment()
    environment = {**os.environ, INSIDE: json.dumps(absent), "PYTHONPATH": str(ROOT)}
    sys.exit(subprocess.run([str(python), "-m", "benchmarks", *sys.argv[1:]], env=environment, cwd=ROOT).returncode)
