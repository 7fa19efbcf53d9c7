"""The one function that runs on several threads: it calls a kernel for one part of its units after the other.

It is compiled from its source (`kernels/sharing.py`), as a kernel that is given another one's address and arguments.
"""

from __future__ import annotations

from typing import Any

from snncell.kernels.cpu.arguments import call
from snncell.kernels.cpu.builtins import least

prange = range  # compiled, Numba's: see `sharing`


def launch(start: Any, stop: Any, address: Any, given: Any, units: Any, grain: Any, failed: Any) -> None:
    """Call the kernel at `address` for all units, `grain` of them at a time; `failed` gets 1 if a call raised."""
    for part in prange((units + grain - 1) // grain):
        if call(address, part * grain, least(units, part * grain + grain), given):
            failed[0] = 1
