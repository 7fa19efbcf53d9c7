"""Call h5py and aedat in a separate process, with limits for its time and memory (see `library_reader.py`)."""

from __future__ import annotations

import importlib.util
import io
import json
import os
import subprocess
import sys
from typing import Any

import numpy as np

from snncell.data.formats import library_reader
from snncell.data.formats.reading import PACKED, ROOM, Array, fault

SECONDS = 10.0  # for the library
RATE, MOST = 1e6, 300.0  # one second more for each RATE bytes of the file, up to MOST


def read_by_library(path: Any, kind: str, wanted: Any = None) -> tuple[dict[str, Any], list[Array]]:
    """The facts and arrays that a reader of `library_reader.py` finds in a file.

    Raises:
        FileError: without the library, for a fault that the reader names, and if its process does not end in time or
            crashes, because the file is damaged.
    """
    library = library_reader.LIBRARIES.get(kind, "h5py")
    if importlib.util.find_spec(library) is None:
        name = {"h5py": "HDF5", "aedat": "AEDAT 4"}[library]
        raise fault(path, "", f"{name} needs {library}: pip install snncell[events]")
    length = os.path.getsize(path)
    arguments = [kind, os.path.abspath(path), str(ROOM + PACKED * length), json.dumps(wanted)]
    with subprocess.Popen(
        [sys.executable, "-P", library_reader.__file__, *arguments],
        bufsize=0,  # communicate() reads past a buffer, and would lose what readline() has put into it
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(each for each in sys.path if each)},
    ) as process:
        try:
            answer = _answer(path, library, SECONDS + min(length / RATE, MOST), process)
        finally:
            process.kill()
    line, _, rest = answer.partition(b"\n")
    facts: dict[str, Any] = json.loads(line)
    if "error" in facts:
        raise fault(path, *facts["error"])
    stream, arrays = io.BytesIO(rest), []
    while stream.tell() < len(rest):
        arrays.append(np.load(stream, allow_pickle=False))
    return facts, arrays


def _answer(path: Any, library: str, seconds: float, process: subprocess.Popen[bytes]) -> bytes:
    assert process.stdout is not None
    if process.stdout.readline() != library_reader.READY:
        raise fault(path, "", f"{library} does not start in {sys.executable}: python -c 'import {library}' says why")
    try:
        answer = process.communicate(timeout=seconds)[0]
    except subprocess.TimeoutExpired:
        raise fault(path, "", f"{library} found no end in {seconds:.3g} s: the file is damaged") from None
    if process.returncode or not answer:
        code = process.returncode
        raise fault(path, "", f"{library} crashed, with exit code {code}: the file is damaged")
    return answer
