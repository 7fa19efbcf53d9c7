"""Event transforms: callables that change events or convert them to arrays. Use them from `snncell.data`."""

from snncell.base.arguments.names import missing_from as _missing_from

__getattr__ = _missing_from(__name__)
