"""The class Cell: calls, custom gradients, compilation and display."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from snncell.base import config
from snncell.base.arguments.guard import ours, refuse_name
from snncell.base.arguments.kinds import Own
from snncell.base.arguments.shown import Markup, came, element, fold_details, join_parts, table
from snncell.base.frames import Running, frame_mark, hide_frames, machinery
from snncell.cell.calls import (
    innermost_call,
    order_inputs,
    prepare_inputs,
    raise_with_layer,
    refuse_arguments,
    refuse_other_names,
    run_with_bprop,
)
from snncell.cell.hooks import Hooked, HookHandle as HookHandle, Passage, after_call, after_failure, before_call
from snncell.cell.modes import Modes, run_with_others
from snncell.cell.state import HasState
from snncell.cell.tree import TreePlace
from snncell.compiler.explain import count
from snncell.compiler.jit import Jitted
from snncell.errors import ArgumentError, ArgumentTypeError, ConstructError, cut
from snncell.kernels.space import DEVICE, IN_USE
from snncell.tape.parameter import Parameter
from snncell.tape.recompute import recompute
from snncell.tape.state import CHECKING, RECORDING, TRACING, settings
from snncell.tape.structure import TENSORS
from snncell.tape.tensor import Tensor

machinery(__file__)


def without_construct(cell: Any) -> ConstructError:
    """The error for calling a Cell without a construct."""
    hint = " It has forward, PyTorch's name for it: rename forward to construct." * hasattr(type(cell), "forward")
    return ConstructError(f"{type(cell).__name__} has no method construct(self, ...), so it cannot be called.{hint}")


class Cell(Hooked, Modes, HasState):
    """Base class of layers, neurons and networks: Parameters, child Cells, and a forward function `construct`.

    Subclasses define `construct(self, *inputs)`. If the true derivative is 0 almost everywhere, as for a spike, define
    a custom gradient: `bprop(self, *inputs, out, dout)`. It returns a tuple with one gradient (or None) for each input,
    or `(tuple, {parameter: gradient})` for the Parameters in `self.internal_params`. Set `self.bprop_debug = True` to
    compare each such gradient with that of `construct` (or of `primitive`, if defined).

    You can call a Cell with Tensors and any other objects. Arrays of NumPy and other libraries become Tensors.

    If you set a Cell, a Parameter, or a list or tuple of them as an attribute, it belongs to this Cell. Items that you
    append to such a list later belong to it as well; call `update_parameters_name()` to name them.

    Each call overwrites the attributes that `construct` sets. Use `self.save_for_bprop(...)` to keep values of one call
    for its `bprop`. `bprop` reads the present value of a Parameter `self.w`, which may have been written after the
    forward pass. In a time loop and in a jitted function, it reads the value of the forward pass.

    Args:
        auto_prefix: False for a wrapper that must not rename the Parameters of its network, such as a training Cell.
        flags: attributes that `get_flags` returns.
        attributes: other attributes to set.
    """

    bprop_debug: bool
    internal_params: Any = ()  # Parameters of which `bprop` gives gradients
    construct: Callable[..., Any]
    _checked_counts: set[int]
    _graph: Jitted | None = None
    _loop: Jitted | None = None
    _inputs_set: tuple[Any, ...] | None = None

    def __init__(
        self,
        auto_prefix: Annotated[Any, Own()] = True,
        flags: Annotated[dict[str, Any] | None, Own()] = None,
        **attributes: Any,
    ) -> None:
        """Initialise a Cell; subclasses must call this before they set attributes."""
        who = type(self).__name__
        if not isinstance(auto_prefix, bool):
            hint = f" Create the Cell first, then call it with data: {who}()(x)." * hasattr(auto_prefix, "shape")
            raise ArgumentTypeError(f"{who}: auto_prefix is True or False, not {came(auto_prefix)}.{hint}")
        if not (flags is None or isinstance(flags, dict)):
            raise ArgumentTypeError(f"{who}: flags is a dict of attributes, or None, not {came(flags)}.")
        state = self.__dict__
        state["version"] = 0  # changes with every attribute, so that traces know when they are out of date
        state["training"] = state["bprop_debug"] = False
        state["_checked_counts"], state["_naming"] = set(), TreePlace(auto_prefix)
        if attributes and type(self) is not Cell and ours(type(self)):
            refuse_name(who, next(iter(attributes)), ("auto_prefix", "flags"))
        for name, value in attributes.items():
            setattr(self, name, value)
        self.add_flags(**(flags or {}))

    def __init_subclass__(cls, **options: Any) -> None:
        """Refuse a class that defines its gradient under another name than bprop, because nothing would call it."""
        super().__init_subclass__(**options)
        refuse_other_names(cls)

    # --- repr ---------------------------------------------------------------------------------------------------------

    def extend_repr(self) -> str:
        """The settings that `repr` shows. Subclasses override it."""
        return ""

    def __repr__(self) -> str:
        settings = [line for line in self.extend_repr().split("\n") if line]
        children = [f"({name}): {child!r}" for name, child in _children(self)]
        if len(settings) <= 1 and not children:
            return f"{type(self).__name__}({''.join(settings)})"
        lines = "\n".join([*settings, *children]).replace("\n", "\n  ")
        return f"{type(self).__name__}(\n  {lines}\n)"

    def _repr_html_(self) -> str:
        """An HTML table of the layers, nested like the layers; a shared layer is shown at its first place."""
        parameters = [*self.get_parameters()]
        trained = sum(p.size for p in parameters if p.requires_grad)
        places = sorted({p.device.upper() for p in parameters})
        total = f"{count(sum(p.size for p in parameters), 'number')} in "
        total += count(len(parameters), "Parameter") + (f", {trained:,} of them trained" if parameters else "")
        total += f", on the {' and the '.join(places)}" if places else ""
        own = element("div", _own_words(self)) if _own(self) else Markup("")
        title = join_parts([element("b", type(self).__name__), f" {_settings(self)}".rstrip(), f": {total}"])
        content = join_parts([own, *_table(self, {id(self)}, 0)])
        return element("div", fold_details(title, content, shown=True) if content else title)

    # --- calls --------------------------------------------------------------------------------------------------------

    @property
    def is_hooked(self) -> bool:
        """True if the Cell has a forward or backward hook."""
        return bool(self.is_hooked_forward or self._backward_pre_hooks or self._backward_hooks)

    @property
    def is_hooked_forward(self) -> bool:
        """True if the Cell has a hook that may replace its inputs or outputs."""
        return bool(self._pre_hooks or self._hooks)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            if TRACING.trace is not None:  # the trace is out of date when one of these Cells changes
                TRACING.trace.cells.update((cell, None) for _, cell in self.cells_and_names())
            elif config.SETTINGS["mode"] == config.GRAPH_MODE:
                return self._in_graph()(*args, **kwargs)
            return self._run(*args, **kwargs)
        except Exception as error:
            hide_frames(error)
            raise

    @frame_mark(Running, lambda local: Running(local["self"], local["args"]))
    def _run(self, *args: Any, **kwargs: Any) -> Any:
        if "version" not in self.__dict__:
            raise self._not_begun()
        if kwargs or not TENSORS.issuperset(map(type, args)):  # a fast path: nearly all calls pass only Tensors
            args = prepare_inputs(self, args, kwargs)
        if IN_USE and RECORDING.space is None and any(isinstance(x, Tensor) and x.device == "gpu" for x in args):
            with settings(space=DEVICE):  # new Tensors, such as neuron states, go to the device of the inputs
                return self._run(*args, **kwargs)
        if CHECKING.watch is not None:  # a monitor is active, and calls `_call_with_hooks`
            return CHECKING.watch.around(self, self._call_with_hooks, args, kwargs)
        return self._call_with_hooks(args, kwargs)

    def _call_with_hooks(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self._pre_hooks:
            args, kwargs = before_call(self, args, kwargs)
        if getattr(self, "construct", None) is None:
            raise without_construct(self)
        passage = None
        if (self._backward_hooks or self._backward_pre_hooks) and RECORDING.tape is not None:
            passage = Passage(self)
            args, kwargs = passage.enter(args, kwargs)
        try:
            if self._recomputed and not self._over_time:
                out = recompute(self._run_construct, *args, **kwargs)
            else:
                out = self._run_construct(*args, **kwargs)
        except (TypeError, ValueError, IndexError) as error:  # base classes of the errors of operations
            after_failure(self, args, kwargs)
            if isinstance(error, TypeError):
                refuse_arguments(self, args, kwargs)
            raise_with_layer(self, error, args, kwargs)
            raise
        except BaseException:
            after_failure(self, args, kwargs)
            raise
        if self._hooks:
            out = after_call(self, args, kwargs, out)
        return out if passage is None else passage.leave(out)

    def _run_construct(self, *args: Any, **kwargs: Any) -> Any:
        """Run `primitive` if spikes are smooth, else `construct` with its custom gradient and in its precision."""
        if CHECKING.smooth and (primitive := getattr(self, "primitive", None)) is not None:
            return primitive(*args, **kwargs)
        if self.bprop is not None:
            return run_with_bprop(self, args, kwargs)
        plain = self.compute_dtype is None and self.quantisers is None
        return self.construct(*args, **kwargs) if plain else run_with_others(self, args, kwargs)

    # --- compilation --------------------------------------------------------------------------------------------------

    def _in_graph(self) -> Jitted:
        graph = self.__dict__["_graph"] = self._graph or Jitted(self._run, type(self).__name__)
        return graph

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Trace and compile the Cell for inputs like these, or like those of `set_inputs`, as a call in GRAPH_MODE
        does. For example, call it before training starts, because compilation takes seconds.
        """
        if not args and not kwargs:
            args = self._inputs_set or ()
        self._in_graph().lookup(args, kwargs)

    @property
    def compiled(self) -> bool:
        """True if `compile` or a call in GRAPH_MODE has compiled the Cell."""
        return self._graph is not None and bool(self._graph.compiled)

    def set_inputs(self, *inputs: Any, **kwargs: Any) -> None:
        """Set example inputs for `compile()`, all by position or all by name. Other shapes are compiled when called."""
        if inputs and kwargs:
            raise ArgumentError("set_inputs: give inputs by position or by name, not both.")
        self.__dict__["_inputs_set"] = tuple(order_inputs(self.construct, inputs, kwargs)[1])

    def get_inputs(self) -> tuple[Any, ...] | None:
        """The inputs of `set_inputs` in the order of construct's arguments, or None."""
        return self._inputs_set

    def set_jit_config(self, jit_config: Any) -> None:
        """Accept a JitConfig or a dict for MindSpore's compiler; it has no effect here."""
        if not isinstance(jit_config, dict) and not hasattr(jit_config, "jit_config_dict"):
            raise ArgumentTypeError(f"set_jit_config: jit_config is a JitConfig or a dict, not {came(jit_config)}.")

    # --- custom gradient ----------------------------------------------------------------------------------------------

    def save_for_bprop(self, *values: Any) -> None:
        """Call this in `construct` to keep Tensors of this call for `bprop`, where they are `self.saved_for_bprop`.

        For example, a neuron can save its membrane potential. Saved values are constants in `bprop`, so a second-order
        gradient through them raises an error.
        """
        call = innermost_call(self, backward=False)
        if call is not None:
            call.saved = values

    @property
    def saved_for_bprop(self) -> tuple[Any, ...]:
        """Read this in `bprop`: the values that `construct` saved in the same call."""
        call = innermost_call(self, backward=True)
        return () if call is None else tuple(call.saved)


_HEAD = ("", "layer", "Parameters", "number")
_MOST = 60  # the most rows of a table
_DEEP = 40  # the deepest nesting of tables that a notebook shows


def _children(cell: Any) -> list[tuple[str, Any]]:
    return [(name, member) for name, member in cell._members() if not isinstance(member, Parameter)]


def _own(cell: Any) -> list[tuple[str, Parameter]]:
    return [(name, member) for name, member in cell._members() if isinstance(member, Parameter)]


def _settings(cell: Any) -> str:
    return cut(str(cell.extend_repr()))


def _own_words(cell: Any) -> str:
    own = _own(cell)
    lines = [f"{name} {p.shape} {p.dtype.name}{'' if p.requires_grad else ', not trained'}" for name, p in own[:_MOST]]
    return "\n".join([*lines, *([f"and {len(own) - _MOST:,} more"] if len(own) > _MOST else [])])


def _table(cell: Any, seen: set[int], depth: int) -> list[Markup]:
    children = _children(cell)
    if not children or depth > _DEEP:
        return []
    rows = [_row(name, child, seen, depth) for name, child in children[:_MOST]]
    if len(children) > _MOST:
        rest = {id(p): p.size for _, child in children[_MOST:] for p in child.get_parameters()}
        rows.append(("", f"and {len(children) - _MOST:,} more", "", f"{sum(rest.values()):,}"))
    return [table(_HEAD, rows, numbers=1, headed=not depth)]


def _row(name: str, child: Any, seen: set[int], depth: int) -> tuple[str, str, str, str]:
    kind = join_parts([element("b", type(child).__name__), f" {_settings(child)}".rstrip()])
    if id(child) in seen:
        return name, join_parts([kind, ", the same as above"]), "", ""
    seen.add(id(child))
    inner, inside = _table(child, seen, depth + 1), _children(child)
    if len(inside) == 1 and _children(inside[0][1]):  # such as MultiStep: show its neuron without a click
        kind = join_parts([kind, f": {type(inside[0][1]).__name__} {_settings(inside[0][1])}".rstrip()])
    number = sum(p.size for p in child.get_parameters())
    words = fold_details(kind, join_parts(inner)) if inner else kind
    return name, words, _own_words(child), f"{number:,}" if number else ""
