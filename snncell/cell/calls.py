"""Calls of Cells: inputs by name, arguments that do not fit, and the calls that are running."""

from __future__ import annotations

import inspect
import threading
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

from snncell.base.arguments.guard import ours, plan_of
from snncell.base.arguments.kinds import REFUSED, Kind
from snncell.base.arguments.shown import brief, from_inside
from snncell.errors import ArgumentError, CallError, SnncellError
from snncell.tape.conversion import as_data, is_array
from snncell.tape.frames import machinery
from snncell.tape.tensor import Tensor

machinery(__file__)


class CellCall:
    """One call of a Cell, forward or backward, with the values that the forward saves for the backward."""

    def __init__(self, cell: Any, saved: tuple[Any, ...] = ()) -> None:
        self.cell = cell
        self.saved = saved


class CallStack(threading.local):
    """The calls that are running on this thread."""

    def __init__(self) -> None:
        self.forward: list[CellCall] = []
        self.backward: list[CellCall] = []


CALLS = CallStack()


def innermost_call(cell: Any, backward: bool) -> Any:
    """The innermost running call of `cell`, or None: it has `saved`, the values kept for its reverse."""
    calls = CALLS.backward if backward else CALLS.forward
    return next((call for call in reversed(calls) if call.cell is cell), None)


class _Signature(NamedTuple):
    whole: inspect.Signature
    plain: list[str] | None  # the names, if all arguments are given one by one


# By function, of which bound methods are new objects at each call; weak, for classes made in functions come and go.
_signatures: weakref.WeakKeyDictionary[Any, _Signature] = weakref.WeakKeyDictionary()


def _signature_of(construct: Callable[..., Any]) -> _Signature:
    function = getattr(construct, "__func__", construct)
    signature = _signatures.get(function)
    if signature is None:
        whole = inspect.signature(construct)
        parameters = whole.parameters.values()
        plain = all(p.kind is p.POSITIONAL_OR_KEYWORD for p in parameters)
        signature = _signatures[function] = _Signature(whole, list(whole.parameters) if plain else None)
    return signature


def prepare_inputs(cell: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """The inputs of a call as construct takes them: arrays become Tensors, those by name in the dict.

    Raises:
        CallError: for an input of a layer of the package that is not what its annotation says.
    """
    function = getattr(getattr(cell, "construct", None), "__func__", None)
    try:
        args = tuple([Tensor(x) if is_array(x) else x for x in args])
        kwargs |= {name: Tensor(x) for name, x in kwargs.items() if is_array(x)}
        if function is None or not ours(function):
            return args
        plan = plan_of(function)
        args = tuple([_tensors_of_lists(x, plan.kind_at(place)) for place, x in enumerate(args, 1)])
        kwargs |= {name: _tensors_of_lists(x, plan.names.get(name)) for name, x in kwargs.items()}
    except SnncellError as error:
        tell_call(cell, error, args, kwargs)
        raise
    try:
        return plan.taken(type(cell).__name__, (cell, *args), kwargs, 1)[1:]
    except ArgumentError as refused:
        raise CallError(str(refused)) from None


def _tensors_of_lists(value: Any, kind: Kind | None) -> Any:
    """Lists and tuples of numbers as Tensors, where they are not what the layer takes."""
    if type(value) not in (list, tuple) or kind is None or kind.take(value) is not REFUSED:
        return value
    return as_data(value)


def tell_call(cell: Any, error: Exception, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raise an error of an operation in a layer of the package anew, with the layer, its inputs and its constants.

    "div: shapes (2, 8) and (7,) do not broadcast" says neither that it is a LIFNode, nor that its tau is to blame.
    """
    function = getattr(cell.construct, "__func__", None)
    if not isinstance(error, SnncellError) or function is None or not ours(function):
        return
    operands = plan_of(function).given((cell, *args), kwargs)
    constants = {name: value for name, value in vars(cell).items() if isinstance(value, Tensor) and value.ndim}
    operands += "".join(f"; its {name} is {brief(value)}" for name, value in constants.items())
    if told := from_inside(error, type(cell).__name__, operands):
        raise told from None


def refuse_arguments(cell: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raise a CallError if the arguments of the call do not fit construct, and it was not something inside of it."""
    signature = _signature_of(cell.construct).whole
    try:
        signature.bind(*args, **kwargs)
    except TypeError as misfit:
        # A neuron called like a layer: with its input, and without its states.
        neuron = hasattr(cell, "init_state") and len(args) == 1
        hint = " It is one time step of a neuron: nn.MultiStep(cell)(x) runs it over time and keeps its states."
        raise CallError(
            f"{type(cell).__name__}.construct takes {signature}; the call gave {len(args) + len(kwargs)} argument(s): "
            f"{misfit}.{hint if neuron else ''}"
        ) from None


def order_inputs(
    construct: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[list[str], list[Any]]:
    """The inputs in the order of construct's signature, keywords put in place and defaults filled in."""
    signature, plain = _signature_of(construct)
    if plain is not None and not kwargs and len(args) == len(plain):
        return plain, list(args)
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError:
        refuse_arguments(construct.__self__, args, kwargs)  # type: ignore[attr-defined]
        raise
    bound.apply_defaults()
    names: list[str] = []
    values: list[Any] = []
    for name, value in bound.arguments.items():
        kind = signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_POSITIONAL:
            names += [f"{name}[{i}]" for i in range(len(value))]
            values += value
        elif kind is inspect.Parameter.VAR_KEYWORD:
            names += value
            values += value.values()
        else:
            names.append(name)
            values.append(value)
    return names, values
