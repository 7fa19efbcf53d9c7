"""Settings of the process: execution mode and device."""

from __future__ import annotations

from typing import Any

from snncell.errors import ArgumentError, DeviceError

GRAPH_MODE = 0
PYNATIVE_MODE = 1

_context: dict[str, Any] = {"mode": PYNATIVE_MODE, "device_target": "CPU"}


def set_context(*, mode: int | None = None, device_target: str | None = None) -> None:
    """Choose how Cells run.

    Args:
        mode: `PYNATIVE_MODE` (the default) runs each operation as it is called; `GRAPH_MODE` compiles every Cell
            that is called from outside a Cell, as if `snncell.jit` were around it.
        device_target: "CPU".

    Raises:
        ArgumentError: for an unknown mode or target.
        DeviceError: for "GPU", as long as this version has no CUDA backend.
    """
    if mode is not None:
        if mode not in (GRAPH_MODE, PYNATIVE_MODE):
            raise ArgumentError(f"set_context: mode is GRAPH_MODE (0) or PYNATIVE_MODE (1), not {mode!r}.")
        _context["mode"] = mode
    if device_target is not None:
        if device_target == "GPU":
            raise DeviceError(
                "set_context: this version of snncell runs on the CPU only; its CUDA backend is not built yet. "
                'Leave device_target at "CPU".'
            )
        if device_target != "CPU":
            raise ArgumentError(f'set_context: device_target is "CPU" or "GPU", not {device_target!r}.')
        _context["device_target"] = device_target


def get_context(key: str) -> Any:
    """The current value of a setting: "mode" or "device_target"."""
    if key not in _context:
        raise ArgumentError(f"get_context: no setting {key!r}; there are {sorted(_context)}.")
    return _context[key]
