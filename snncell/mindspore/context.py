"""MindSpore's module of settings: `context.set_context(mode=context.GRAPH_MODE)`."""

from snncell.base.arguments.guard import guard as _guard
from snncell.base.config import (
    GRAPH_MODE as GRAPH_MODE,
    PYNATIVE_MODE as PYNATIVE_MODE,
    get_context as get_context,
    set_context as set_context,
)

__all__ = ["GRAPH_MODE", "PYNATIVE_MODE", "get_context", "set_context"]

_guard(globals())
