"""Kernels stay within their arrays and read only initialised memory."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from snncell.kernels.numba import policy


@pytest.mark.skipif(sys.platform != "linux", reason="protected pages are allocated as on Linux")
@pytest.mark.skipif(not policy.compiles(), reason="NumPy checks the bounds of uncompiled kernels")
@pytest.mark.sampled(1)
@pytest.mark.parametrize("cases", [12, 100])
def test_kernels_stay_within_their_arrays(cases: int) -> None:
    script = Path(__file__).parents[1] / "support" / "guarded.py"
    paths = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}  # the script imports cases of other tests
    ran = subprocess.run(
        [sys.executable, str(script), str(cases)], env=paths, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
