"""Cell: parameters, children, the call protocol, custom reverses, training state."""

from __future__ import annotations

import inspect
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from snncell import config
from snncell.compiler.jit import Jitted
from snncell.errors import BpropError, SnncellError, TraceError
from snncell.ops.random import present_key, replaying
from snncell.tape import structure
from snncell.tape.parameter import Parameter
from snncell.tape.primitive import custom, rebuilt
from snncell.tape.state import STATE, recording_on
from snncell.tape.tape import Entry, conform, zeros_of
from snncell.tape.tensor import Tensor
from snncell.testing import compare_reverse

_SIMPLE = (bool, int, float, str, bytes, type(None))


class Cell:
    """A piece of a network: Parameters, other Cells, and the function of them that `construct` is.

    Subclasses define `construct(self, *inputs)`. Where its true derivative is useless they also define
    `bprop(self, *inputs, out, dout)`, which returns a tuple with one gradient (or None) for each input, or
    `(tuple, {parameter: gradient})` for the Parameters listed in `self.internal_params`.

    A Cell, a Parameter, or a list or tuple of them that is set as an attribute belongs to the Cell.

    Values that `construct` keeps on `self` for `bprop` are those of the last call only; if the Cell is used twice,
    both reverses would see them. `self.save_for_bprop(...)` keeps values for each call.
    """

    version: int
    training: bool
    bprop_debug: bool
    construct: Callable[..., Any]
    _pre_hooks: dict[int, Callable[..., Any]]
    _hooks: dict[int, Callable[..., Any]]
    _saving: list[tuple[Any, ...]]
    _saved: tuple[Any, ...]
    _checked_counts: set[int]
    _graph: Jitted | None = None

    def __init__(self, **flags: Any) -> None:
        state = self.__dict__
        state["version"] = 0  # grows with every change of an attribute, so that traces know when they are out of date
        state["training"] = False
        state["bprop_debug"] = False
        state["_pre_hooks"], state["_hooks"] = {}, {}
        state["_saving"], state["_saved"] = [], ()
        state["_checked_counts"] = set()
        for name, value in flags.items():
            setattr(self, name, value)

    # --- attributes ---------------------------------------------------------------------------------------------------

    def __setattr__(self, name: str, value: Any) -> None:
        state = self.__dict__
        if "version" not in state:
            raise SnncellError(f"{type(self).__name__}: call super().__init__() before setting self.{name}.")
        old = state.get(name, _SIMPLE)
        if old is value or (type(old) is type(value) and isinstance(value, _SIMPLE) and old == value):
            return
        if isinstance(value, Parameter):
            value.belong_to(self, name)
        elif isinstance(value, (list, tuple)):
            for position, item in enumerate(value):
                if isinstance(item, Parameter):
                    item.belong_to(self, f"{name}.{position}")
        object.__setattr__(self, name, value)
        state["version"] += 1

    def __delattr__(self, name: str) -> None:
        object.__delattr__(self, name)
        self.__dict__["version"] += 1

    def __getstate__(self) -> dict[str, Any]:
        """What a copy or a pickle takes along: everything but compiled code."""
        return {name: value for name, value in self.__dict__.items() if name != "_graph"}

    def _members(self) -> Iterator[tuple[str, Any]]:
        """Own Parameters and Cells with their attribute names, in the order they were set."""
        for name, value in self.__dict__.items():
            if isinstance(value, (Parameter, Cell)):
                yield name, value
            elif isinstance(value, (list, tuple)) and name != "internal_params":
                for position, item in enumerate(value):
                    if isinstance(item, (Parameter, Cell)):
                        yield f"{name}.{position}", item

    # --- parameters and children --------------------------------------------------------------------------------------

    def cells_and_names(self, name_prefix: str = "") -> Iterator[tuple[str, Cell]]:
        """This Cell and all below it, depth first, with their attribute paths; a shared one once."""
        yield from self._walk(name_prefix, set())

    def _walk(self, path: str, seen: set[int]) -> Iterator[tuple[str, Cell]]:
        if id(self) in seen:
            return
        seen.add(id(self))
        yield path, self
        for name, child in self._members():
            if isinstance(child, Cell):
                yield from child._walk(f"{path}.{name}" if path else name, seen)

    def cells(self) -> list[Cell]:
        """The Cells directly below this one."""
        return list(dict.fromkeys(child for _, child in self._members() if isinstance(child, Cell)))

    def name_cells(self) -> dict[str, Cell]:
        """The Cells directly below this one, by attribute name."""
        return {name: child for name, child in self._members() if isinstance(child, Cell)}

    def parameters_and_names(self, name_prefix: str = "", expand: bool = True) -> Iterator[tuple[str, Parameter]]:
        """All Parameters with their attribute paths, own ones first, then those of the children, depth first.

        A Parameter in several places comes once, under the first of its paths.
        """
        seen: set[int] = set()
        for path, cell in self.cells_and_names(name_prefix) if expand else [(name_prefix, self)]:
            for name, parameter in cell._members():
                if isinstance(parameter, Parameter) and id(parameter) not in seen:
                    seen.add(id(parameter))
                    yield (f"{path}.{name}" if path else name), parameter

    def get_parameters(self, expand: bool = True) -> Iterator[Parameter]:
        """All Parameters, as an iterator."""
        for _, parameter in self.parameters_and_names(expand=expand):
            yield parameter

    def trainable_params(self, recurse: bool = True) -> list[Parameter]:
        """The Parameters that gradients are taken with respect to."""
        return [parameter for parameter in self.get_parameters(recurse) if parameter.requires_grad]

    def untrainable_params(self, recurse: bool = True) -> list[Parameter]:
        """The Parameters without gradient: statistics and frozen weights."""
        return [parameter for parameter in self.get_parameters(recurse) if not parameter.requires_grad]

    def parameters_dict(self, recurse: bool = True) -> OrderedDict[str, Parameter]:
        """All Parameters by attribute path."""
        return OrderedDict(self.parameters_and_names(expand=recurse))

    def update_parameters_name(self, prefix: str = "", recurse: bool = True) -> None:
        """Put `prefix` before the name of every Parameter."""
        for parameter in self.get_parameters(recurse):
            parameter.name = f"{prefix}{parameter.name}"

    # --- state --------------------------------------------------------------------------------------------------------

    @property
    def phase(self) -> str:
        """ "train" or "predict"."""
        return "train" if self.training else "predict"

    def set_train(self, mode: bool = True) -> Cell:
        """Switch this Cell and all below it to training, or to prediction."""
        for _, cell in self.cells_and_names():
            cell.training = bool(mode)
        return self

    def set_grad(self, requires_grad: bool = True) -> Cell:
        """Switch gradients of all Parameters on or off."""
        for parameter in self.get_parameters():
            parameter.requires_grad = bool(requires_grad)
        return self

    def to(self, device: str) -> Cell:
        """This Cell with its Parameters on `device`."""
        for parameter in self.get_parameters():
            parameter.to(device)
        return self

    def extend_repr(self) -> str:
        """What `repr` shows of the settings; subclasses override it."""
        return ""

    def __repr__(self) -> str:
        lines = []
        for name, child in self._members():
            if isinstance(child, Cell):
                lines.append(f"  ({name}): " + repr(child).replace("\n", "\n  "))
        head = f"{type(self).__name__}<{self.extend_repr()}"
        return head + ("\n" + "\n".join(lines) + "\n" if lines else "") + ">"

    # --- calls --------------------------------------------------------------------------------------------------------

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if STATE.trace is not None:
            STATE.trace.cells.update((cell, None) for _, cell in self.cells_and_names())
        elif config.get_context("mode") == config.GRAPH_MODE:
            graph = self._graph or Jitted(self._run, type(self).__name__)
            self.__dict__["_graph"] = graph
            return graph(*args, **kwargs)
        return self._run(*args, **kwargs)

    def _run(self, *args: Any, **kwargs: Any) -> Any:
        for hook in self._pre_hooks.values():
            changed = hook(self, args)
            if changed is not None:
                args = changed if isinstance(changed, tuple) else (changed,)
        if getattr(self, "construct", None) is None:
            raise SnncellError(f"{type(self).__name__} has no method construct(self, ...), so it cannot be called.")
        bprop = getattr(self, "bprop", None)
        if STATE.smooth and (primitive := getattr(self, "primitive", None)) is not None:
            out = primitive(*args, **kwargs)
        elif bprop is None:
            out = self.construct(*args, **kwargs)
        else:
            out = self._run_with_bprop(bprop, args, kwargs)
        for hook in self._hooks.values():
            changed = hook(self, args, out)
            out = out if changed is None else changed
        return out

    def register_forward_pre_hook(self, hook: Callable[[Cell, Any], Any]) -> HookHandle:
        """Call `hook(cell, inputs)` before each `construct`; what it returns, if not None, replaces the inputs."""
        return HookHandle(self._pre_hooks, hook)

    def register_forward_hook(self, hook: Callable[[Cell, Any, Any], Any]) -> HookHandle:
        """Call `hook(cell, inputs, out)` after each call; what it returns, if not None, replaces the output."""
        return HookHandle(self._hooks, hook)

    # --- custom reverse -----------------------------------------------------------------------------------------------

    def save_for_bprop(self, *values: Any) -> None:
        """In `construct`: keep Tensors of this call for its reverse, which finds them in `self.saved_for_bprop`.

        They are constants to the reverse: a second-order gradient through them is an error, not a wrong number.
        """
        if self._saving:
            self._saving[-1] = values

    @property
    def saved_for_bprop(self) -> tuple[Any, ...]:
        """In `bprop`: what `construct` kept by `save_for_bprop` in the call that is being reversed."""
        saved: tuple[Any, ...] = self._saved
        return saved

    def _run_with_bprop(self, bprop: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        names, values = _named_inputs(self.construct, args, kwargs)
        if len(names) not in self._checked_counts:
            _check_signature(self, bprop, names)
            self._checked_counts.add(len(names))

        def forward() -> Any:
            self._saving.append(())
            try:
                return self.construct(*args, **kwargs), self._saving[-1]
            finally:
                self._saving.pop()

        if STATE.tape is None:
            return forward()[0]
        key = present_key() if self.bprop_debug else None
        leaves, tree = structure.flatten(values)
        parameters = self.trainable_params()
        inputs = [*leaves, *parameters]
        return custom(_Reverse(self, bprop, names, tree, parameters, key), forward, inputs)[0]


class HookHandle:
    """A registered hook; `remove()` takes it off again."""

    def __init__(self, hooks: dict[int, Any], hook: Callable[..., Any]) -> None:
        self._hooks = hooks
        hooks[id(self)] = hook

    def remove(self) -> None:
        """Take the hook off."""
        self._hooks.pop(id(self), None)


_signatures: dict[Any, inspect.Signature] = {}


def _named_inputs(
    construct: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[list[str], list[Any]]:
    """The inputs in the order of construct's signature, keywords put in place and defaults filled in."""
    function = getattr(construct, "__func__", construct)
    signature = _signatures.get(function)
    if signature is None:
        signature = _signatures[function] = inspect.signature(construct)
    bound = signature.bind(*args, **kwargs)
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


def _check_signature(cell: Cell, bprop: Callable[..., Any], names: list[str]) -> None:
    try:
        inspect.signature(bprop).bind(*[None] * (len(names) + 2))
    except TypeError as error:
        wanted = ", ".join(["self", *names, "out", "dout"])
        raise BpropError(
            f"{type(cell).__name__}.bprop does not fit construct: it must take ({wanted}); {error}."
        ) from None


class _Reverse:
    """The reverse of one call of a Cell that has a bprop."""

    def __init__(
        self, cell: Cell, bprop: Callable[..., Any], names: list[str], tree: Any, parameters: list[Parameter], key: Any
    ) -> None:
        self.cell = cell
        self.name = type(cell).__name__
        self.bprop = bprop
        self.names = names
        self.tree = tree  # the structure of the inputs
        self.parameters = parameters  # of the Cell and all below it: hidden inputs
        self.key = key  # where the random numbers stood before the call, for bprop_debug

    def pull(self, entry: Entry, douts: list[Tensor | None]) -> Sequence[Any]:
        """Call the bprop, check what it returns, and give a gradient for each leaf and each Parameter."""
        _, tree_of_out = entry.attrs
        count = len(entry.inputs) - len(self.parameters)
        inputs = structure.unflatten(self.tree, entry.inputs[:count])
        out, saved = structure.unflatten(tree_of_out, rebuilt(entry))
        saved_count = len(structure.flatten(saved)[0])
        if saved_count and any(dout is not None for dout in douts[-saved_count:]):
            raise self.error(
                "a second-order gradient reaches a value kept by save_for_bprop, through which none flows. Compute the "
                "value again in bprop, or return it from construct as an output"
            )
        filled = [zeros_of(s) if d is None else d for d, s in zip(douts, entry.specs, strict=True)]
        dout, _ = structure.unflatten(tree_of_out, filled)
        returned = self._call(inputs, out, dout, saved)
        grads, of_parameters = self._split(returned)
        leaves = self._gradients_of_inputs(inputs, grads)
        if self.cell.bprop_debug:
            self._debug(inputs, dout, grads, of_parameters)
        return [*leaves, *(self._gradient_of_parameter(p, of_parameters) for p in self.parameters)]

    def _call(self, inputs: list[Any], out: Any, dout: Any, saved: Any) -> Any:
        self.cell.__dict__["_saved"] = saved
        try:
            return self.bprop(*inputs, out, dout)
        except Exception as error:
            error.add_note(f"raised in the bprop of {self.name}")
            raise
        finally:
            self.cell.__dict__["_saved"] = ()

    def error(self, text: str) -> BpropError:
        """A BpropError about this Cell."""
        return BpropError(f"The bprop of {self.name}: {text}.")

    def _split(self, returned: Any) -> tuple[tuple[Any, ...], dict[Parameter, Tensor]]:
        """What was returned, as gradients of inputs and of internal_params."""
        internal = tuple(getattr(self.cell, "internal_params", ()))
        of_parameters: dict[Parameter, Tensor] = {}
        paired = isinstance(returned, tuple) and len(returned) == 2 and isinstance(returned[1], dict)
        if paired and isinstance(returned[0], tuple):
            returned, of_parameters = returned
        if not isinstance(returned, tuple):
            raise self.error(
                f"returned a {type(returned).__name__}; it must return a tuple with a gradient for each input. "
                f"For a single input write: return (dx,)"
            )
        if len(returned) != len(self.names):
            inputs = ", ".join(self.names)
            raise self.error(
                f"returned {len(returned)} gradient(s) for {len(self.names)} input(s) ({inputs}); return one for each, "
                f"None where there is none"
            )
        for parameter in of_parameters:
            if not any(parameter is p for p in internal):
                name = parameter.name if isinstance(parameter, Parameter) else repr(parameter)
                raise self.error(
                    f"returned a gradient for {name}, which is not in self.internal_params; list the Parameter there"
                )
        for parameter in internal:
            if parameter not in of_parameters:
                raise self.error(
                    f"returned no gradient for Parameter {parameter.name!r} of self.internal_params; return "
                    f"(gradients, {{self.{parameter.name}: gradient, ...}})"
                )
            of_parameters[parameter] = self._fitted(
                of_parameters[parameter], parameter, f"Parameter {parameter.name!r}"
            )
        return returned, of_parameters

    def _gradients_of_inputs(self, inputs: list[Any], grads: tuple[Any, ...]) -> list[Tensor | None]:
        """A gradient for each Tensor in the inputs, checked and fitted to it."""
        found: list[Tensor | None] = []
        for name, value, grad in zip(self.names, inputs, grads, strict=True):
            leaves, tree = structure.flatten(value)
            if grad is None:
                found += [None] * len(leaves)
            elif not leaves:
                raise self.error(
                    f"returned a {type(grad).__name__} for input {name!r}, which is a {type(value).__name__} and no "
                    f"Tensor; return None in its place"
                )
            elif isinstance(value, Tensor):
                found.append(self._fitted(grad, value, f"input {name!r}"))
            else:
                parts, tree_of_grad = structure.flatten(grad)
                if tree_of_grad != tree:
                    raise self.error(f"the gradient for input {name!r} must have the structure of the input")
                found += [self._fitted(g, x, f"input {name!r}") for g, x in zip(parts, leaves, strict=True)]
        return found

    def _fitted(self, grad: Any, x: Tensor, what: str) -> Any:
        if grad is None:
            return None
        if not isinstance(grad, Tensor):
            raise self.error(f"returned a {type(grad).__name__} for {what}; a gradient is a Tensor or None")
        if grad.dtype is not x.dtype and not (grad.dtype.category == x.dtype.category == 2):
            raise self.error(
                f"returned a gradient of dtype {grad.dtype} for {what} of dtype {x.dtype}; "
                + ("return None for an input that is not a float" if not x.dtype.is_float else "return floats")
            )
        try:
            return conform(grad, x.shape, x._data.dtype)
        except SnncellError:
            raise self.error(
                f"returned a gradient of shape {grad.shape} for {what} of shape {x.shape}; it must have the input's "
                f"shape, or one that broadcasting the input gives"
            ) from None

    def _gradient_of_parameter(self, parameter: Parameter, given: dict[Parameter, Tensor]) -> Any:
        if parameter in given:
            return given[parameter]

        def refuse() -> Tensor:
            raise self.error(
                f"the gradient of Parameter {parameter.name!r} is asked for, but the bprop gives none. Either list it "
                f"in self.internal_params and return (gradients, {{parameter: gradient}}), or leave it out of the "
                f"weights (requires_grad=False)"
            )

        return refuse

    def _debug(self, inputs: list[Any], dout: Any, grads: tuple[Any, ...], of_parameters: dict[Parameter, Any]) -> None:
        """Compare the values with the reference; the random numbers are those of the call."""
        if STATE.trace is not None:
            raise TraceError(
                f"{self.name}.bprop_debug compares values, which do not exist while jit traces. Run eagerly."
            )
        weights = tuple(of_parameters)
        found = [*grads, *of_parameters.values()]
        with recording_on(None), replaying(self.key):
            try:
                douts = structure.flatten(dout)[0]
                compare_reverse(self.cell, inputs, douts, found, weights, rtol=1e-3, atol=1e-5)
            except AssertionError as error:
                raise BpropError(str(error)) from None
