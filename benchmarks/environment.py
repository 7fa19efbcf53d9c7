"""The peers' environment: a virtual environment that is made once, kept, and begun again in.

It has the packages that snncell needs, and the peers; snncell itself is the one of this checkout. What cannot be
installed is noted, and the report says so.
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
INSIDE = "SNNCELL_BENCHMARKS_ENVIRONMENT"  # set in the process that was begun in it

# By peer: what pip is called with, one call after the other. PyTorch is the one for CPUs where there is an index of
# those; SpikingJelly, snnTorch and Norse would bring much that they do not need here, so it is named.
PINNED = {
    "PyTorch": [["torch==2.13.0"]],
    "SpikingJelly": [["--no-deps", "spikingjelly==2.0.0"], ["tqdm", "loguru", "scipy", "matplotlib", "einops"]],
    "snnTorch": [["--no-deps", "snntorch==1.0.0"]],
    "Norse": [["--no-deps", "norse==1.1.0", "nirtorch"], ["nir"]],
    "JAX": [["jax==0.10.2"]],
    "Eventax": [["eventax==0.1.0", "diffrax==0.7.2", "optimistix==0.1.0", "jax==0.10.2"]],
}
CPU_INDEX = "https://download.pytorch.org/whl/cpu"


def home() -> Path:
    """The folder of environments and of compiled contestants."""
    told = os.environ.get("SNNCELL_BENCHMARKS_DIR")
    return Path(told) if told else Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "snncell-benchmarks"


def folder() -> Path:
    """The place of the environment: another one for each Python and each choice of versions."""
    facts = json.dumps([PINNED, needed(), platform.python_version(), platform.machine()])
    return home() / hashlib.blake2b(facts.encode(), digest_size=6).hexdigest()


def needed() -> list[str]:
    """The packages that snncell needs, as `pyproject.toml` has them."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return list(project["dependencies"])


def made() -> tuple[Path, dict[str, str]]:
    """The Python of the environment, and the peers that could not be installed, with the reason; made if it is new."""
    place = folder()
    python = place / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    note = place / "absent.json"
    if note.exists():
        return python, json.loads(note.read_text(encoding="utf-8"))
    print(f"Making an environment with the peers in {place}: some minutes, once.", flush=True)
    venv.create(place, clear=True, with_pip=True)
    if fault := _install(python, needed()):
        sys.exit(f"What snncell needs cannot be installed: {fault}")
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
    """Run pip; the last line of its error, or nothing."""
    command = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
    return "" if done.returncode == 0 else (errors or done.stderr.splitlines() or ["pip failed"])[-1]


def begin_again_inside() -> None:
    """Run this command in the environment, unless this process is in it."""
    if os.environ.get(INSIDE):
        return
    python, absent = made()
    environment = {**os.environ, INSIDE: json.dumps(absent), "PYTHONPATH": str(ROOT)}
    sys.exit(subprocess.run([str(python), "-m", "benchmarks", *sys.argv[1:]], env=environment, cwd=ROOT).returncode)


def not_installed() -> dict[str, str]:
    """The peers that could not be installed, with the reason, in a process that runs in the environment."""
    found: dict[str, str] = json.loads(os.environ.get(INSIDE, "{}"))
    return found
