"""Settings of the process: execution mode and device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from snncell.errors import ArgumentError

GRAPH_MODE = 0
PYNATIVE_MODE = 1

LISTENERS: list[Callable[[], None]] = []  # called when a setting has changed that something below goes by
CHECKS: list[Callable[[], None]] = []  # called before the device target becomes "GPU"; they raise if there is none
_context: dict[str, Any] = {"mode": PYNATIVE_MODE, "device_target": "CPU", "pool_limit": 1 << 31}


def set_context(*, mode: int | None = None, device_target: str | None = None, pool_limit: int | None = None) -> None:
    """Choose how Cells run.

    Args:
        mode: `PYNATIVE_MODE` (the default) runs each operation as it is called; `GRAPH_MODE` compiles every Cell
            that is called from outside a Cell, as if `snncell.jit` were around it.
        device_target: "CPU", or "GPU": where Tensors and Parameters are made from then on. Operations run where
            their operands are.
        pool_limit: how many bytes of memory of freed arrays are kept for new ones (2 GiB unless it is set);
            `snncell.empty_pool()` lets go of what is kept.

    Raises:
        ArgumentError: for an unknown mode or target, or a limit that is no number of bytes.
        DeviceError: for "GPU" where there is none, saying what is missing.
    """
    if mode is not None:
        if mode not in (GRAPH_MODE, PYNATIVE_MODE):
            raise ArgumentError(f"set_context: mode is GRAPH_MODE (0) or PYNATIVE_MODE (1), not {mode!r}.")
        _context["mode"] = mode
    if device_target is not None:
        if device_target not in ("CPU", "GPU"):
            raise ArgumentError(f'set_context: device_target is "CPU" or "GPU", not {device_target!r}.')
        if device_target == "GPU":
            for check in CHECKS:
                check()
        _context["device_target"] = device_target
    if pool_limit is not None:
        if isinstance(pool_limit, bool) or not isinstance(pool_limit, int) or pool_limit < 0:
            raise ArgumentError(f"set_context: pool_limit is a number of bytes, 0 or more, not {pool_limit!r}.")
        _context["pool_limit"] = pool_limit
        for listener in LISTENERS:
            listener()


def get_context(key: str) -> Any:
    """The current value of a setting: "mode", "device_target" or "pool_limit"."""
    if key not in _context:
        raise ArgumentError(f"get_context: no setting {key!r}; there are {sorted(_context)}.")
    return _context[key]
