"""Cache of torch.compile: compile PyTorch's networks once per machine, and keep code and failures for later runs.

A network of 64 time steps takes a minute to compile. The compiled code does not depend on snncell, so all runs share
it. An entry is valid for the versions of PyTorch and Python and for the source of the contestants. It has processor
time, not wall time, so you can compile while other programs run (`--prepare`).
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import math
import os
import platform
import signal
import sys
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import frameworks, training
from benchmarks.child import ChildError, call
from benchmarks.environment import cache_folder
from benchmarks.measure import Timing, compile_and_measure
from benchmarks.row import Row
from benchmarks.rows import ROWS

WAIT = 10.0  # wall seconds per processor second of the limit, because other programs may run


def hash_sources(row: Row) -> str:
    """Return a hash of the files that define PyTorch's contestant of a row."""
    modules = (sys.modules[partial(row.contestants["PyTorch"]).func.__module__], frameworks, training)
    files = [Path(str(module.__file__)).read_bytes() for module in modules]
    return hashlib.blake2b(b"".join(files), digest_size=8).hexdigest()


class Compiled:
    """Compiled contestants of rows.

    Args:
        limit: processor seconds for one compilation.
        folder: the folder of compiled code, by default in the cache folder.
    """

    def __init__(self, limit: int, folder: Path | None = None) -> None:
        facts = importlib.metadata.version("torch"), platform.python_version(), platform.machine()
        self.folder = folder or cache_folder() / f"compiled-{'-'.join(facts)}"
        self.limit = limit
        self.folder.mkdir(parents=True, exist_ok=True)
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(self.folder)

    def get(self, name: str, contestant: str, changes: dict[str, Any] | None) -> tuple[Timing, str]:
        """Return the first call and memory of a contestant, or its fault, and the note on its results.

        Compiles the contestant if the cache does not have it, or had a smaller limit for it.
        """
        facts = f"{hash_sources(ROWS[name])}, {name}, {contestant}, {changes}"
        key = hashlib.blake2b(facts.encode(), digest_size=8).hexdigest()
        file = self.folder / f"{key}.json"
        known = json.loads(file.read_text(encoding="utf-8")) if file.exists() else None
        if known is None or (known["limit"] < self.limit and known["fault"].startswith("not compiled in")):
            known = self._compile(name, contestant, changes)
            file.write_text(json.dumps(known), encoding="utf-8")
        memory = None if math.isnan(known["memory"]) else known["memory"]
        missing = math.nan
        return Timing(contestant, missing, missing, known["first"], missing, 0, memory, known["fault"]), known["note"]

    def _compile(self, name: str, contestant: str, changes: dict[str, Any] | None) -> dict[str, Any]:
        first, memory, note, fault = math.nan, math.nan, "", ""
        try:
            first, memory, note = call(
                compile_and_measure, name, contestant, changes, self.limit, limit=WAIT * self.limit
            )
        except ChildError as error:
            late = error.exit_code == -getattr(signal, "SIGXCPU", 0) or error.late
            fault = f"not compiled in {self.limit} s" if late else f"not compiled: {error}"[:200].replace("\n", " ")
        return {"first": first, "memory": memory, "note": note, "fault": fault, "limit": self.limit}
