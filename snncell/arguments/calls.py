"""Functions of the user's that will be called later: whether they can be is said when they are given."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any


def misfit(function: Callable[..., Any], takes: Sequence[Any]) -> str:
    """The reason why a function cannot be called with such arguments; "" if it can, or has no signature to tell."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # one of C
        return ""
    try:
        signature.bind(*takes)
    except TypeError as error:
        return str(error)
    return ""
