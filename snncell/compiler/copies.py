"""Pickling of jitted functions: of the function alone, which is traced again when it is called."""

from __future__ import annotations

import sys
from types import FunctionType
from typing import Any

from snncell.errors import JitPickleError


def reduce_jitted(jitted: Any, make: Any) -> Any:
    """The value for `__reduce__`: `make` with its arguments, or the name under which the jitted function is found.

    Raises:
        JitPickleError: for a function that Python finds by no name, such as a lambda.
    """
    function = jitted.fn  # a Cell, or a method of what can be pickled, is pickle's own business
    if isinstance(function, FunctionType):
        named: Any = sys.modules.get(function.__module__)
        for name in function.__qualname__.split("."):
            named = getattr(named, name, None)
        if named is jitted:  # decorated: unpickling imports the name
            return function.__qualname__
        if named is not function:
            raise JitPickleError(
                f"jit({jitted.name}): a jitted function is pickled as the function, and Python pickles functions by "
                f"name, but finds no {function.__qualname__} in {function.__module__}. Write it as a def at the top of "
                f"a module; or pickle the Cell that it calls, and jit that again."
            )
    return make, (function, jitted.name, jitted.limit)
