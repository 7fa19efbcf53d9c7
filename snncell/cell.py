"""Cell: parameters, children, the call protocol, custom reverses, training state."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from snncell import config
from snncell.arguments.guard import ours, refuse_name
from snncell.arguments.names import missing_of_cell
from snncell.calls import HookHandle as HookHandle, innermost_call, refuse_arguments, taken, tell_call, warn_of_change
from snncell.compiler.jit import Jitted
from snncell.display import as_html, as_text
from snncell.errors import SnncellError
from snncell.kernels.space import DEVICE, IN_USE
from snncell.mixed import run_with_others
from snncell.reverse import run_with_bprop
from snncell.tape.frames import Running, machinery, tells
from snncell.tape.given import TENSORS, refuse_for_parameter
from snncell.tape.parameter import Parameter, commit
from snncell.tape.state import STATE, settings
from snncell.tape.tensor import Tensor

machinery(__file__)

_SIMPLE = (bool, int, float, str, bytes, type(None))


class Cell:
    """A piece of a network: Parameters, other Cells, and the function of them that `construct` is.

    Subclasses define `construct(self, *inputs)`. Where its true derivative is useless they also define
    `bprop(self, *inputs, out, dout)`, which returns a tuple with one gradient (or None) for each input, or
    `(tuple, {parameter: gradient})` for the Parameters listed in `self.internal_params`. With `self.bprop_debug = True`
    every such gradient is compared with that of `construct` (or of `primitive`, if there is one) as it is computed.

    A call takes Tensors, and arrays of NumPy and other libraries, which become Tensors of the same dtype, and anything
    else as it is.

    A Cell, a Parameter, or a list or tuple of them that is set as an attribute belongs to the Cell.

    Values that `construct` keeps on `self` for `bprop` are those of the last call only; if the Cell is used twice,
    both reverses would see them. `self.save_for_bprop(...)` keeps values for each call. A Parameter that `bprop` reads
    by `self.w` has the value that it has when the gradient is taken; in a loop over time, and in a jitted function, the
    one that it had in the forward.
    """

    version: int
    training: bool
    bprop_debug: bool
    construct: Callable[..., Any]
    bprop: Callable[..., Any] | None = None
    _pre_hooks: dict[int, Callable[..., Any]]
    _hooks: dict[int, Callable[..., Any]]
    _checked_counts: set[int]
    compute_dtype: str | None = None  # what its products are computed in, if not as its Parameters are: `snncell.amp`
    quantisers: Any = None  # a Cell that rounds what it computes with to grids: `snncell.quantise`
    _graph: Jitted | None = None
    _loop: Jitted | None = None
    _over_time = False  # whether it runs its `cell` at each time step
    _names_parameters = True  # whether errors call Parameters by their paths in it

    def __init__(self, **flags: Any) -> None:
        state = self.__dict__
        state["version"] = 0  # another one after every change of an attribute: traces know when they are out of date
        state["training"] = state["bprop_debug"] = False
        state["_pre_hooks"], state["_hooks"], state["_checked_counts"] = {}, {}, set()
        if flags and type(self) is not Cell and ours(type(self)):
            refuse_name(type(self).__name__, next(iter(flags)), ())
        for name, value in flags.items():
            setattr(self, name, value)

    # --- attributes ---------------------------------------------------------------------------------------------------

    def __setattr__(self, name: str, value: Any) -> None:
        state = self.__dict__
        if "version" not in state:
            raise self._not_begun()
        old = state.get(name, _SIMPLE)
        # By repr: 0.0 and -0.0 are equal and compute otherwise, NaN and NaN are not and compute the same.
        if old is value or (type(old) is type(value) and isinstance(value, _SIMPLE) and repr(old) == repr(value)):
            return
        if STATE.trace is not None and type(old) in (bool, int, float) and isinstance(value, (bool, int, float)):
            warn_of_change(self, name)
        if isinstance(old, Parameter) and not isinstance(value, Parameter):
            refuse_for_parameter(self, name, value)
        if isinstance(value, Parameter):
            value.belong_to(self, name)
        elif isinstance(value, (list, tuple)):
            for position, item in enumerate(value):
                if isinstance(item, Parameter):
                    item.belong_to(self, f"{name}.{position}")
        object.__setattr__(self, name, value)
        # Back in training, or in prediction, it is as it was there: what was traced in either is good again.
        state["version"] += bool(value) - bool(old) if name == "training" else 2

    def _not_begun(self) -> SnncellError:
        return SnncellError(f"{type(self).__name__}.__init__ must call super().__init__() before anything else.")

    def __delattr__(self, name: str) -> None:
        object.__delattr__(self, name)
        self.__dict__["version"] += 2

    def __getstate__(self) -> dict[str, Any]:
        """The state for a copy or a pickle: everything but compiled code."""
        return {name: value for name, value in self.__dict__.items() if name not in _COMPILED}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Become a copy: the Parameters that came along belong to it."""
        self.__dict__.update(state)
        for name, member in self._members():
            if isinstance(member, Parameter):
                member.belong_to(self, name)

    def _members(self) -> Iterator[tuple[str, Any]]:
        """Own Parameters and Cells with their attribute names, in the order they were set."""
        for name, value in self.__dict__.items():
            if isinstance(value, (Parameter, Cell)):
                yield name, value
            elif isinstance(value, (list, tuple)) and name != "internal_params":  # which names attributes once more
                for position, item in enumerate(value):
                    if isinstance(item, (Parameter, Cell)):
                        yield f"{name}.{position}", item

    if not TYPE_CHECKING:
        __getattr__ = missing_of_cell

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
        """This Cell with its Parameters on `device`, "cpu" or "gpu".

        Raises:
            DeviceError: for another name, or where there is no GPU, saying what is missing.
        """
        commit([parameter.moving(device) for parameter in self.get_parameters()])
        return self

    def extend_repr(self) -> str:
        """The settings that `repr` shows; subclasses override it."""
        return ""

    def __repr__(self) -> str:
        return as_text(self)

    def _repr_html_(self) -> str:
        return as_html(self)

    # --- calls --------------------------------------------------------------------------------------------------------

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if STATE.trace is not None:  # which is out of date once one of these Cells has changed
            STATE.trace.cells.update((cell, None) for _, cell in self.cells_and_names())
        elif config.get_context("mode") == config.GRAPH_MODE:
            graph = self.__dict__["_graph"] = self._graph or Jitted(self._run, type(self).__name__)
            return graph(*args, **kwargs)
        return self._run(*args, **kwargs)

    @tells(Running, lambda local: Running(local["self"], local["args"]))
    def _run(self, *args: Any, **kwargs: Any) -> Any:
        if "version" not in self.__dict__:
            raise self._not_begun()
        if kwargs or not TENSORS.issuperset(map(type, args)):  # nearly all calls give Tensors alone
            args = taken(self, args, kwargs)
        if IN_USE and STATE.space is None and any(isinstance(x, Tensor) and x.device == "gpu" for x in args):
            with settings(space=DEVICE):  # what this Cell makes, as the states of a neuron, is where its inputs are
                return self._run(*args, **kwargs)
        if STATE.watch is not None:  # a monitor's, which calls `_answer` itself
            return STATE.watch.around(self, self._answer, args, kwargs)
        return self._answer(args, kwargs)

    def _answer(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call the hooks, and between them what the Cell is in this moment: its primitive, or its construct."""
        for hook in self._pre_hooks.values():
            changed = hook(self, args)
            if changed is not None:
                args = changed if isinstance(changed, tuple) else (changed,)
        if getattr(self, "construct", None) is None:
            mend = " It has forward, PyTorch's name for it: rename that." * hasattr(type(self), "forward")
            raise SnncellError(f"{type(self).__name__} has no method construct(self, ...) to be called by.{mend}")
        try:
            if STATE.smooth and (primitive := getattr(self, "primitive", None)) is not None:
                out = primitive(*args, **kwargs)
            elif self.bprop is None:
                plain = self.compute_dtype is None and self.quantisers is None
                out = self.construct(*args, **kwargs) if plain else run_with_others(self, args, kwargs)
            else:
                out = run_with_bprop(self, args, kwargs)
        except (TypeError, ValueError, IndexError) as error:  # the built-in classes that errors of operations refine
            if isinstance(error, TypeError):
                refuse_arguments(self, args, kwargs)
            tell_call(self, error, args, kwargs)
            raise
        for hook in self._hooks.values():
            changed = hook(self, args, out)
            out = out if changed is None else changed
        return out

    def register_forward_pre_hook(self, hook: Callable[[Cell, Any], Any]) -> HookHandle:
        """Call `hook(cell, inputs)` before each `construct`; what it returns, if not None, replaces the inputs."""
        return HookHandle(self, self._pre_hooks, hook)

    def register_forward_hook(self, hook: Callable[[Cell, Any, Any], Any]) -> HookHandle:
        """Call `hook(cell, inputs, out)` after each call; what it returns, if not None, replaces the output."""
        return HookHandle(self, self._hooks, hook)

    # --- custom reverse -----------------------------------------------------------------------------------------------

    def save_for_bprop(self, *values: Any) -> None:
        """In `construct`: keep Tensors of this call for its reverse, which finds them in `self.saved_for_bprop`.

        They are constants to the reverse: a second-order gradient through them is an error, not a wrong number.
        """
        call = innermost_call(self, backward=False)
        if call is not None:
            call.saved = values

    @property
    def saved_for_bprop(self) -> tuple[Any, ...]:
        """In `bprop`: what `construct` kept by `save_for_bprop` in the call that is being reversed."""
        call = innermost_call(self, backward=True)
        return () if call is None else tuple(call.saved)


_COMPILED = ("_graph", "_loop")  # functions compiled from a Cell, which a copy compiles for itself
