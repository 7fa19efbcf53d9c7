"""CPU arrays: evaluating without floating-point warnings, allocating."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from typing import Any

import numpy as np


def _silent_context() -> contextvars.Context:
    context = contextvars.copy_context()
    context.run(np.seterr, all="ignore")
    return context


class _PerThread(threading.local):
    def __init__(self) -> None:
        self.run: Callable[..., Any] = _silent_context().run


_thread = _PerThread()


def quiet(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call `function` with NumPy's floating-point warnings off: inf and NaN are values here, they pass through.

    NumPy keeps its error state in a context variable. Running in a context prepared once per thread costs a
    twentieth of a microsecond; entering `np.errstate` costs one, as much as a small operation.
    """
    return _thread.run(function, *args, **kwargs)
