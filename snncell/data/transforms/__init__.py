"""Transforms: callables that make events of events, and arrays of them. Their names are `snncell.data`'s."""

from snncell.base.arguments.names import missing_from as _missing_from

__getattr__ = _missing_from(__name__)
