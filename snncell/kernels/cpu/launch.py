"""The one function that runs on several threads: it calls a kernel for one part of its units after the other."""

from __future__ import annotations

from typing import Any

from snncell.interrupts import imported
from snncell.kernels.cpu.given import call
from snncell.kernels.policy import threads_function

prange: Any = imported("numba").prange


@threads_function
def launch(address: Any, slots: Any, units: Any, grain: Any) -> Any:
    """Call the kernel at `address` for all units, `grain` of them at a time; 0 if no call raised."""
    failed = 0
    for part in prange((units + grain - 1) // grain):
        failed += call(address, part * grain, min(units, part * grain + grain), slots)
    return failed
