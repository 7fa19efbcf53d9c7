"""A function of the elements of tuples and lists: `Map` of the outermost ones, `HyperMap` of nested ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from snncell.base.arguments.kinds import Own
from snncell.base.arguments.shown import came
from snncell.errors import ArgumentError

Function = Callable[..., Any]


class Map:
    """Applies a function to the elements of one or more tuples or lists of one length, side by side.

    Args:
        ops: the function; left out, it is the first argument of each call.

    Raises:
        ArgumentError: for something else than tuples and lists, or different lengths.

    Example:
        >>> ops.Map(lambda x, y: x + y)((1, 2), (10, 20))
        (11, 22)
    """

    deep = False

    def __init__(self, ops: Annotated[Function | None, Own()] = None) -> None:
        if ops is not None and not callable(ops):
            raise ArgumentError(f"{type(self).__name__}: ops is a function of the elements, not {came(ops)}.")
        self.ops = ops

    def __call__(self, *args: Any) -> Any:
        who = type(self).__name__
        function, sequences = (self.ops, args) if self.ops is not None else (args[0] if args else None, args[1:])
        if function is None or not callable(function):
            raise ArgumentError(f"{who}: the first argument is the function, as {who}() was made without one.")
        if not sequences:
            raise ArgumentError(f"{who}: there is nothing to go through: give tuples or lists.")
        return self._mapped(function, sequences, who, True)

    def _mapped(self, function: Function, sequences: tuple[Any, ...], who: str, outermost: bool) -> Any:
        several = [isinstance(one, (tuple, list)) for one in sequences]
        if not any(several) and not outermost:
            return function(*sequences)
        if not all(several) or len({len(one) for one in sequences}) != 1:
            shown = ", ".join(f"{came(one)}{f' of {len(one)}' if hasattr(one, '__len__') else ''}" for one in sequences)
            raise ArgumentError(f"{who}: goes through tuples or lists of one length side by side, not {shown}.")
        columns = zip(*sequences, strict=True)
        if self.deep:
            found = [self._mapped(function, column, who, False) for column in columns]
        else:
            found = [function(*column) for column in columns]
        return found if isinstance(sequences[0], list) else tuple(found)


class HyperMap(Map):
    """Applies a function to the elements of nested tuples and lists of one structure, side by side.

    Args:
        ops: the function; left out, it is the first argument of each call.

    Raises:
        ArgumentError: for structures that differ.

    Example:
        >>> ops.HyperMap(lambda x: x * 10)(((1, 2), 3))
        ((10, 20), 30)
    """

    deep = True
