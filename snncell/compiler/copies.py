"""Copies of jitted functions, in memory and pickled: of the function alone, which is traced again when called."""

from __future__ import annotations

import sys
from types import FunctionType
from typing import Any

from snncell.errors import JitPickleError


def reduced(jitted: Any, make: Any) -> Any:
    """The answer to pickle: the arguments of `make`, or the name of a jitted function that stands where its own would.

    Raises:
        JitPickleError: for a function that Python finds by no name, such as a lambda.
    """
    function = jitted.fn  # a Cell, or a method of what can be pickled, is pickle's own business
    if isinstance(function, FunctionType):
        found: Any = sys.modules.get(function.__module__)
        for name in function.__qualname__.split("."):
            found = getattr(found, name, None)
        if found is jitted:
            return function.__qualname__
        if found is not function:
            raise JitPickleError(
                f"jit({jitted.name}): a jitted function is pickled as the function, and Python pickles functions by "
                f"name, but finds no {function.__qualname__} in {function.__module__}. Write it as a def at the top of "
                f"a module; or pickle the Cell that it calls, and jit that again."
            )
    return make, (function, jitted.name, jitted.limit)
