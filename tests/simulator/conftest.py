"""Tests of the CUDA backend in Numba's simulator, which the environment switches on for a whole process:
`NUMBA_ENABLE_CUDASIM=1 pytest tests/simulator`.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from snncell.kernels.scalar import simulated

sys.path.insert(0, str(Path(__file__).parents[1]))  # cases and tables that the CPU's tests have too


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Without the simulator there is nothing that these tests could run on."""
    if not simulated():
        reason = "runs in the CUDA simulator: NUMBA_ENABLE_CUDASIM=1 pytest tests/simulator"
        for item in items:
            if Path(__file__).parent in item.path.parents:
                item.add_marker(pytest.mark.skip(reason=reason))
