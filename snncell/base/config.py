"""Settings of the process: execution mode, device, memory pool, and checks (`set_context`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from snncell.errors import ArgumentError

GRAPH_MODE = 0
PYNATIVE_MODE = 1

LISTENERS: list[Callable[[], None]] = []  # called after pool_limit or check_finite has changed
CHECKS: list[Callable[[], object]] = []  # called before the device target becomes "GPU"; they raise without a GPU
FINITE: list[Any] = []  # the NaN watch while check_finite is on, else empty
SETTINGS: dict[str, Any] = {  # the present values; users read them by `get_context`
    "mode": PYNATIVE_MODE, "device_target": "CPU", "pool_limit": 1 << 31, "check_finite": False, "device_id": 0,
    "full_traceback": False,
}  # fmt: skip


def set_context(
    *,
    mode: Any = None,  # checked below, with more helpful errors
    device_target: Any = None,
    pool_limit: Any = None,
    check_finite: bool | None = None,
    full_traceback: bool | None = None,
    device_id: Any = None,
    pynative_synchronize: bool | None = None,
    deterministic: Literal["ON", "OFF"] | None = None,
    save_graphs: Any = None,
) -> None:
    """Set how Cells run: execution mode, device, memory pool, NaN checks.

    Args:
        mode: `PYNATIVE_MODE` (the default) runs each operation when it is called. `GRAPH_MODE` compiles every Cell that
            is called from outside a Cell, like `snncell.jit`.
        device_target: "CPU" or "GPU", for new Tensors and Parameters. Operations run on the device of their operands.
        pool_limit: the bytes of freed arrays to keep for new ones, by default 2 GiB; `snncell.empty_pool()` frees them.
        check_finite: True to find the first NaN, or inf from finite operands, forward or backward. See below.
        full_traceback: True to show the frames of snncell in the traceback of an error. By default they are hidden, so
            that it ends at your line, for example in your `bprop`. An internal error always shows all frames.
        device_id: must be 0, because a process uses one device; `CUDA_VISIBLE_DEVICES` selects the GPU.
        pynative_synchronize, deterministic: MindSpore's, without effect: an error is always raised at the line that
            caused it, and the same call always gives the same bits.
        save_graphs: MindSpore's; must be False or 0. `snncell.explain_passes` shows the compiled Program.
    With `check_finite`, the error names the operation, the line, the layer, the time step and the entry. Inf in an
    operand is not an error, because it may be intended, as in a mask of -inf. In a trained Parameter it is an error.
    For NaN from outside, in data or in a Parameter, the error names the first operation that uses it. A time loop stays
    one kernel. It runs again step by step only if its results or last states are not finite, so a NaN that does not
    reach them is not found. Functions of `snncell.jit` and GRAPH_MODE run operation by operation. Results are bitwise
    equal to PYNATIVE_MODE, except that a MultiStep may round differently. Training takes a few times as long.
    Raises: ArgumentError for another value; DeviceError for "GPU" without a GPU; it says what is missing.
    Example:
        >>> snncell.set_context(check_finite=True)
        >>> try:
        ...     ops.log(Tensor([1.0, 0.0]))
        ... except FloatingPointError as error:
        ...     print(str(error).splitlines()[0])
        ... finally:
        ...     snncell.set_context(check_finite=False)
        log gives -inf at entry (1,), of finite operands: it starts here.
    """
    if mode is not None:
        if type(mode) is not int or mode not in (GRAPH_MODE, PYNATIVE_MODE):
            raise ArgumentError(f"set_context: mode is GRAPH_MODE (0) or PYNATIVE_MODE (1), not {_quote(mode)}.")
        SETTINGS["mode"] = mode
    if device_target is not None:
        if not isinstance(device_target, str) or device_target not in ("CPU", "GPU"):
            cuda = isinstance(device_target, str) and device_target.lower().startswith("cuda")
            hint = ' For an NVIDIA card, pass "GPU".' if cuda else ""
            raise ArgumentError(f'set_context: device_target is "CPU" or "GPU", not {_quote(device_target)}.{hint}')
        if device_target == "GPU":
            for check in CHECKS:
                check()
        SETTINGS["device_target"] = device_target
    if device_id is not None and (type(device_id) is not int or device_id != 0):
        raise ArgumentError(
            f"set_context: device_id is 0, because a process uses one device, not {_quote(device_id)}. To select "
            f"another GPU, set CUDA_VISIBLE_DEVICES=1 before the process starts."
        )
    if save_graphs is not None and (type(save_graphs) not in (bool, int) or save_graphs):
        raise ArgumentError(
            f"set_context: save_graphs is False, not {_quote(save_graphs)}, because snncell writes no graph files. "
            f"print(snncell.explain_passes(fn, *inputs)) shows the compiled Program of a function."
        )
    if pool_limit is not None:
        if isinstance(pool_limit, bool) or not isinstance(pool_limit, int) or not 0 <= pool_limit < 2**63:
            raise ArgumentError(f"set_context: pool_limit is a number of bytes, 0 or more, not {_quote(pool_limit)}.")
        SETTINGS["pool_limit"] = pool_limit
    for name, flag in (("check_finite", check_finite), ("full_traceback", full_traceback)):
        if flag is not None:
            SETTINGS[name] = flag
    if pool_limit is not None or check_finite is not None:
        for listener in LISTENERS:
            listener()


def _quote(value: Any) -> str:
    """The repr of a wrong value; very large integers are abbreviated, because Python refuses to print them."""
    return f"an integer of {value.bit_length()} bits" if isinstance(value, int) and abs(value) >= 2**64 else repr(value)


def get_context(key: str) -> Any:
    """The current value of "mode", "device_target", "device_id", "pool_limit", "check_finite" or "full_traceback"."""
    if key not in SETTINGS:
        raise ArgumentError(f"get_context: key: no setting {key!r}; the settings are {sorted(SETTINGS)}.")
    return SETTINGS[key]


def set_device(device_target: Any, device_id: Any = None) -> None:
    """Set the device of new Tensors and Parameters, "CPU" or "GPU", with the arguments of `set_context`."""
    set_context(device_target=device_target, device_id=device_id)


def set_deterministic(deterministic: bool) -> None:
    """Accept MindSpore's setting, without effect: results are bitwise reproducible for any number of threads."""
