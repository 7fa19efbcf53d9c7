"""Calls of Cells: preparing inputs, the stack of running calls, and custom gradients by `bprop`."""

from __future__ import annotations

import difflib
import inspect
import itertools
import threading
import weakref
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from types import FunctionType
from typing import Any, NamedTuple

from snncell.base.arguments.guard import ours, plan_of
from snncell.base.arguments.kinds import REFUSED, Kind
from snncell.base.arguments.shown import brief, from_inside
from snncell.base.config import FINITE
from snncell.base.frames import machinery, traceback_at
from snncell.errors import ArgumentError, BpropError, CallError, GradientError, NotFiniteError, SnncellError, TraceError
from snncell.ops.random import present_key, replaying
from snncell.tape import structure
from snncell.tape.backward import conform, or_zeros, with_zeros
from snncell.tape.parameter import Parameter
from snncell.tape.primitive import as_read, custom, rebuilt
from snncell.tape.state import RECORDING, TRACING, Entry, settings
from snncell.tape.structure import as_data, is_array
from snncell.tape.tensor import Tensor, on_device_of
from snncell.testing import compare_reverse

machinery(__file__)


class CellCall:
    """One forward or backward call of a Cell, with the values that `save_for_bprop` kept."""

    def __init__(self, cell: Any, saved: tuple[Any, ...] = ()) -> None:
        self.cell, self.saved = cell, saved


class _CallStack(threading.local):
    def __init__(self) -> None:
        self.forward: list[CellCall] = []
        self.backward: list[CellCall] = []


_CALLS = _CallStack()


def innermost_call(cell: Any, backward: bool) -> Any:
    """The innermost running call of `cell`, or None."""
    calls = _CALLS.backward if backward else _CALLS.forward
    return next((call for call in reversed(calls) if call.cell is cell), None)


class _Signature(NamedTuple):
    whole: inspect.Signature
    plain: list[str] | None  # the argument names, if there are no keyword-only, * or ** arguments


# Keyed by function, because a bound method is a new object at each access. Weak, because classes may be temporary.
_signatures: weakref.WeakKeyDictionary[Any, _Signature] = weakref.WeakKeyDictionary()


def _signature_of(construct: Callable[..., Any]) -> _Signature:
    function = getattr(construct, "__func__", construct)
    signature = _signatures.get(function)
    if signature is None:
        whole = inspect.signature(construct)
        plain = all(p.kind is p.POSITIONAL_OR_KEYWORD for p in whole.parameters.values())
        signature = _signatures[function] = _Signature(whole, list(whole.parameters) if plain else None)
    return signature


def prepare_inputs(cell: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """Convert arrays among the inputs to Tensors, in new args and in kwargs; check inputs of the package's layers."""
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
        raise_with_layer(cell, error, args, kwargs)
        raise
    try:
        return plan.check_call(type(cell).__name__, (cell, *args), kwargs, 1)[1:]
    except ArgumentError as refused:
        raise CallError(str(refused)) from None


def _tensors_of_lists(value: Any, kind: Kind | None) -> Any:
    """Convert lists and tuples of numbers to Tensors, unless the layer accepts lists."""
    if type(value) not in (list, tuple) or kind is None or kind.take(value) is not REFUSED:
        return value
    return as_data(value)


def raise_with_layer(cell: Any, error: Exception, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raise an operation's error again with the layer, its inputs and its constants in the message. For example, from
    "div: shapes (2, 8) and (7,) do not broadcast" alone, a user cannot see that the tau of a LIFNode is wrong.
    """
    function = getattr(cell.construct, "__func__", None)
    if not isinstance(error, SnncellError) or function is None or not ours(function):
        return
    operands = plan_of(function).describe_call((cell, *args), kwargs)
    constants = {name: value for name, value in vars(cell).items() if isinstance(value, Tensor) and value.ndim}
    operands += "".join(f"; its {name} is {brief(value)}" for name, value in constants.items())
    if told := from_inside(error, type(cell).__name__, operands):
        raise told from None


def refuse_arguments(cell: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raise a CallError if the arguments do not fit the signature of construct."""
    signature = _signature_of(cell.construct).whole
    try:
        signature.bind(*args, **kwargs)
    except TypeError as misfit:
        # A common mistake: a neuron is called like a layer, without its states.
        neuron = hasattr(cell, "init_state") and len(args) == 1
        hint = " It is one time step of a neuron: nn.MultiStep(cell)(x) runs it over time and keeps its states."
        raise CallError(
            f"{type(cell).__name__}.construct takes {signature}; the call gave {len(args) + len(kwargs)} argument(s): "
            f"{misfit}.{hint if neuron else ''}"
        ) from None


def order_inputs(construct: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[str], list[Any]]:
    """The names and values of all inputs in the order of construct's signature, with defaults."""
    signature, plain = _signature_of(construct)
    if plain is not None and not kwargs and len(args) == len(plain):
        return plain, list(args)
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError:
        refuse_arguments(construct.__self__, args, kwargs)
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


# --- custom gradients -------------------------------------------------------------------------------------------------

# The checks are strict, because nothing else would reveal a wrong gradient.

OTHER_NAMES = ("backward", "grad", "vjp")  # other frameworks' names for bprop


def refuse_other_names(kind: type) -> None:
    """Raise a BpropError for a Cell class that defines its gradient under another name, or misspells bprop."""
    own = list(itertools.takewhile(lambda base: not ours(base), kind.__mro__))
    if any("bprop" in vars(base) for base in own):
        return
    for name, value in ((name, value) for base in own for name, value in vars(base).items()):
        plain = name.lower().replace("_", "")
        close = plain[:1] == "b" and difflib.SequenceMatcher(None, plain, "bprop").ratio() >= 0.8
        if isinstance(value, _METHODS) and (name in OTHER_NAMES or "backprop" in plain or close):
            raise BpropError(
                f"{kind.__name__} has a method {name}, which nothing calls: a Cell defines its gradient by bprop(self, "
                f"*inputs, out, dout), which returns a tuple with a gradient for each input. Rename {name} to bprop, "
                f"or give it another name if it has another purpose."
            )


_METHODS = (FunctionType, staticmethod, classmethod)


def run_with_bprop(cell: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call `cell.construct` as one tape entry, whose backward pass is `cell.bprop`."""
    names, values = order_inputs(cell.construct, args, kwargs)
    if len(names) not in cell._checked_counts:  # with *args or defaults, the number of inputs varies
        _check_signature(cell, names)
        cell._checked_counts.add(len(names))

    def forward() -> Any:
        call = CellCall(cell)
        _CALLS.forward.append(call)
        try:
            return cell.construct(*args, **kwargs), call.saved
        finally:
            _CALLS.forward.pop()

    if RECORDING.tape is None:
        return as_read(forward()[0])
    key = present_key() if cell.bprop_debug else None
    leaves, tree = structure.flatten(values)
    # All trainable Parameters are inputs of the entry, so that a missing gradient is an error, not a silent zero.
    parameters = list(dict.fromkeys([*cell.trainable_params(), *getattr(cell, "internal_params", ())]))
    return custom(_Reverse(cell, names, tree, parameters, key), forward, [*leaves, *parameters])[0]


def _check_signature(cell: Any, names: list[str]) -> None:
    who, signature = f"{type(cell).__name__}.bprop", inspect.signature(cell.bprop)
    needed = ", ".join(["self", *names, "out", "dout"])
    try:
        signature.bind(*[None] * (len(names) + 2))
    except TypeError as error:
        raise BpropError(f"{who} does not fit construct: it must take ({needed}); {error}.") from None
    places = [p.name for p in signature.parameters.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if places[len(names) : len(names) + 2] == ["dout", "out"]:  # it would receive them in the wrong order
        raise BpropError(f"{who} takes dout before out; the result comes first, then its gradient: ({needed}).")


class _Reverse:
    """The backward pass of one call of a Cell with a bprop. `names` and `tree` are the names and the structure of the
    inputs. The `parameters` of the Cell and its descendants are hidden inputs. `key` is the random state before the
    call, with which bprop_debug repeats the call.
    """

    def __init__(self, cell: Any, names: list[str], tree: Any, parameters: list[Parameter], key: Any) -> None:
        self.cell, self.name = cell, type(cell).__name__
        self.names, self.tree, self.parameters, self.key = names, tree, parameters, key

    def pull(self, entry: Entry, douts: list[Tensor | None]) -> Sequence[Any]:
        _, tree_of_out = entry.attrs
        count = len(entry.inputs) - len(self.parameters)
        inputs = structure.unflatten(self.tree, entry.inputs[:count])
        out, saved = structure.unflatten(tree_of_out, rebuilt(entry))
        # Saved values are extra outputs of the entry, so a second-order gradient through one arrives in `douts`.
        saved_count = len(structure.flatten(saved)[0])
        if saved_count and any(dout is not None for dout in douts[-saved_count:]):
            raise self.error(
                "a second-order gradient reaches a value kept by save_for_bprop, which is a constant for gradients. "
                "Compute the value again in bprop, or return it from construct as an output"
            )
        filled = with_zeros(entry, douts)
        dout, _ = structure.unflatten(tree_of_out, filled)
        # New Tensors go to the gradient's device. Monitors ignore the Cells that bprop calls: this is no forward pass.
        with on_device_of(*filled), settings(watch=None):
            _CALLS.backward.append(CellCall(self.cell, saved))
            try:
                returned = self.cell.bprop(*inputs, out, dout)
            except Exception as error:
                error.add_note(f"raised in the bprop of {self.name}")
                raise
            finally:
                _CALLS.backward.pop()
        grads, of_parameters = self._split(returned)
        leaves = self._gradients_of_inputs(inputs, grads)
        if self.cell.bprop_debug:
            self._debug(entry.inputs[:count], inputs, dout, leaves, of_parameters)
        return [*leaves, *(self._gradient_of_parameter(p, of_parameters) for p in self.parameters)]

    def error(self, text: str) -> BpropError:
        return BpropError(f"The bprop of {self.name}: {text}.").with_traceback(traceback_at(self.cell.bprop))

    def _split(self, returned: Any) -> tuple[tuple[Any, ...], dict[Parameter, Tensor]]:
        """Split the result of bprop into gradients of inputs and of internal_params."""
        internal = tuple(getattr(self.cell, "internal_params", ()))
        of_parameters: dict[Parameter, Tensor] = {}
        if self._is_pair(returned):
            returned, of_parameters = returned
        if not isinstance(returned, tuple):
            raise self.error(
                f"returned a {type(returned).__name__}; it must return a tuple with a gradient for each input. "
                f"For a single input write: return (dx,)"
            )
        if len(returned) != len(self.names):
            inputs = ", ".join(self.names)
            raise self.error(
                f"returned {len(returned)} gradient(s) for {len(self.names)} input(s) ({inputs}); return one "
                f"gradient for each input, or None for an input without a gradient"
            )
        for parameter in of_parameters:
            if not any(parameter is p for p in internal):  # by identity, because == compares Tensors elementwise
                name = parameter.name if isinstance(parameter, Parameter) else repr(parameter)
                raise self.error(
                    f"returned a gradient for {name}, which is not in self.internal_params; list the Parameter there, "
                    f"and use the Parameter itself as the key"
                )
        for parameter in internal:
            what = f"Parameter {parameter.name!r}"
            if parameter not in of_parameters:
                paths = (path for path, p in self.cell.parameters_and_names() if p is parameter)
                raise self.error(
                    f"returned no gradient for {what} of self.internal_params; return "
                    f"(gradients, {{self.{next(paths, parameter.name)}: gradient, ...}})"
                )
            of_parameters[parameter] = self._fit(of_parameters[parameter], parameter, what)
        return returned, of_parameters

    def _is_pair(self, returned: Any) -> bool:
        """True for (gradients, {parameter: gradient}); False for two gradients, the second of a dict input."""
        if not (isinstance(returned, tuple) and len(returned) == 2 and isinstance(returned[0], tuple)):
            return False
        of_parameters = returned[1]
        by_parameter = isinstance(of_parameters, dict) and all(isinstance(key, Parameter) for key in of_parameters)
        a_dict_input = len(self.names) == 2 and isinstance(self.tree.children[1], structure.Branch)
        return isinstance(of_parameters, dict) and (by_parameter or not a_dict_input)

    def _gradients_of_inputs(self, inputs: list[Any], grads: tuple[Any, ...]) -> list[Tensor | None]:
        gradients: list[Tensor | None] = []
        for name, value, grad in zip(self.names, inputs, grads, strict=True):
            leaves, tree = structure.flatten(value)
            if grad is None:
                gradients += [None] * len(leaves)
            elif not leaves:
                raise self.error(
                    f"returned a {type(grad).__name__} for input {name!r}, which is a {type(value).__name__}, not a "
                    f"Tensor; return None in its place"
                )
            elif isinstance(value, Tensor):
                gradients.append(self._fit(grad, value, f"input {name!r}"))
            else:
                try:
                    parts = structure.match_tensors(tree, grad, f"the gradient for input {name!r}")
                except GradientError as error:
                    raise self.error(f"{error} A gradient must have the structure of the input") from None
                gradients += [self._fit(g, x, f"input {name!r}") for g, x in zip(parts, leaves, strict=True)]
        return gradients

    def _fit(self, grad: Any, x: Tensor, what: str) -> Any:
        if grad is None:
            return None
        if not isinstance(grad, Tensor):
            raise self.error(f"returned a {type(grad).__name__} for {what}; a gradient is a Tensor or None")
        if grad.dtype is not x.dtype and not (grad.dtype.category == x.dtype.category == 2):
            raise self.error(
                f"returned a gradient of dtype {grad.dtype} for {what} of dtype {x.dtype}; "
                + ("return None for an input that is not a float" if not x.dtype.is_float else "return floats")
            )
        for watch in FINITE:
            watch.gradient(f"the bprop of {self.name}", what, grad)
        try:
            return conform(grad, x.shape, x._data.dtype)
        except NotFiniteError:
            raise
        except SnncellError:
            raise self.error(
                f"returned a gradient of shape {grad.shape} for {what} of shape {x.shape}; it must have the input's "
                f"shape, or a shape that the input broadcasts to"
            ) from None

    def _gradient_of_parameter(self, parameter: Parameter, of_parameters: dict[Parameter, Tensor]) -> Any:
        if parameter in of_parameters:
            return of_parameters[parameter]

        def refuse() -> Tensor:
            raise self.error(
                f"the gradient of Parameter {parameter.name!r} is needed, but bprop returns none. Either list it in "
                f"self.internal_params and return (gradients, {{parameter: gradient}}), or leave it out of the "
                f"weights (requires_grad=False)"
            )

        return refuse

    def _debug(self, tensors: Any, inputs: list[Any], dout: Any, leaves: Any, of_parameters: dict[Any, Any]) -> None:
        """Compare the gradients with those of the primitive or construct, for the random numbers of the call."""
        if TRACING.trace is not None:
            raise TraceError(
                f"{self.name}.bprop_debug compares values, which do not exist while jit traces. Run eagerly."
            )
        filled = [or_zeros(g, (x.shape, x._data.dtype)) for g, x in zip(leaves, tensors, strict=True)]
        gradients = [*structure.unflatten(self.tree, filled), *of_parameters.values()]
        with settings(tape=None, watch=None), replaying(self.key) if self.key is not None else nullcontext():
            try:
                douts = structure.flatten(dout)[0]
                compare_reverse(self.cell, inputs, douts, gradients, tuple(of_parameters), rtol=1e-3, atol=1e-5)
            except AssertionError as error:
                raise BpropError(str(error)) from None


machinery(__file__)
