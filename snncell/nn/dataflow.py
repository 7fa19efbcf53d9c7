"""Data flow of a network for exporters: the Cells that a call runs, in order, and the sources of each input.

The members of a Cell do not show its computation: a construct can call a member twice, add a skip connection or scale
an output. An exporter therefore runs the network on a `Signal`, and `DataFlow` reports every call.
"""

from __future__ import annotations

import functools
import inspect
import operator
import re
from collections.abc import Callable
from typing import Any

from snncell.base.arguments.guard import ours
from snncell.base.arguments.shown import came
from snncell.cell.cell import Cell
from snncell.cell.constants import ConstantAttribute
from snncell.cell.modes import phases
from snncell.errors import SnncellError
from snncell.nn.container import CellDict, CellList, SequentialCell
from snncell.nn.neurons.base import Counting, Neuron
from snncell.nn.neurons.constants import Membrane
from snncell.nn.time.axis import TimeDistributed
from snncell.surrogate import Inclusive, Scaled, Surrogate, relusigmoid
from snncell.tape.state import settings
from snncell.tape.structure import Signal

# Names that a subclass can define without changing the computation. Exporters read the attributes `__init__` sets.
_HARMLESS = {"__init__", "__repr__", "extend_repr", "bprop", "primitive", "like", "ranges", "starts"}
_HARMLESS |= {"__fields__", "_complete"}  # `with_fields` sets attributes by these
_HARMLESS |= {"__doc__", "__module__", "__qualname__", "__annotations__", "__annotate__", "__annotate_func__"}
_HARMLESS |= {"__annotations_cache__", "__firstlineno__", "__static_attributes__", "__dict__", "__weakref__"}
_GENERAL = (Cell, SequentialCell, CellList, CellDict, Membrane, Neuron)  # bases for users' own computations
_COMPILED = ("_graph", "_loop", "version", "_checked_counts")  # attributes that any call of a Cell may change
Sources = tuple[Any, ...]  # a Signal is the sum of these outputs, in the exporter's names


def overridden(cell: Any, allowed: tuple[str, ...] = ()) -> tuple[type, list[str]]:
    """The package class that a Cell derives from, and the names of its methods that a subclass or object replaces."""
    kinds = type(cell).__mro__
    base = next(kind for kind in kinds if ours(kind))
    own = [name for kind in kinds[: kinds.index(base)] for name in vars(kind) if name not in _HARMLESS]
    own += [name for name in vars(cell) if callable(getattr(type(cell), name, None))]
    replaced = [n for n in dict.fromkeys(own) if (hasattr(base, n) or n == "construct") and n not in allowed]
    return base, [n for n in replaced if not isinstance(inspect.getattr_static(base, n, None), ConstantAttribute)]


def kind_of(cell: Any, allowed: tuple[str, ...] = ()) -> type:
    """The class of this package whose computation a Cell has, for exporters; `object` if it replaces a method."""
    base, replaced = overridden(cell, allowed)
    return object if replaced else base


def beyond_threshold(function: Any) -> Any:
    """The spike function inside of the wrappers, if it may have its own firing rule; None if it fires at x > 0."""
    while kind_of(function) in (Counting, Inclusive, Scaled):
        function = function.surrogate_function
    fires = type(function).construct is Surrogate.construct and "construct" not in vars(function)
    return None if fires or kind_of(function) is relusigmoid else function


def name_of_cell(path: str, cell: Any) -> str:
    """The path and class of a Cell, for error messages."""
    return f"{path or 'the net'} ({type(cell).__name__})"


def refuse_hooks(net: Cell, error: Callable[[str], Exception], what: str, path: str = "") -> None:
    """Raise for a forward hook on any Cell of a network; `what` is the consequence, such as "and would be lost"."""
    for place, cell in net.cells_and_names(name_prefix=path):
        if cell.is_hooked_forward:
            raise error(
                f"{name_of_cell(place, cell)} has a forward hook, which may change its output, {what}. Remove it by "
                f"handle.remove()."
            )


def refuse_replacement(cell: Any, path: str, error: Callable[[str], Exception], what: str) -> None:
    """Raise if a Cell, or a Cell inside of it, replaces a method of one of our layers or neurons."""
    for below, inner in cell.cells_and_names(name_prefix=path):
        base, replaced = overridden(inner)
        if replaced and is_layer(base):
            raise error(f"{name_of_cell(below, inner)} {_replacement(inner, base, replaced[0])}, {what}.")


def is_layer(base: type) -> bool:
    """True for a layer, neuron or container, but not for a base class for users, such as Cell or SequentialCell."""
    return base.__module__.startswith(("snncell.nn.", "snncell.nir.")) and base not in _GENERAL


def _replacement(cell: Any, base: type, name: str) -> str:
    return f"has another {name}, set on the object" if name in vars(cell) else f"replaces {name} of {base.__name__}"


class Branches(Cell):
    """Network of layers and sums, made from a DataFlow. Source 0 is the input; source n is the output of layer n."""

    def __init__(self, layers: list[Cell], inputs: list[Sources], output: Sources) -> None:
        super().__init__()
        self.layers = CellList(layers)
        self.inputs, self.output = inputs, output

    def construct(self, x: Any) -> Any:
        values = [x]
        for layer, places in zip(self.layers, self.inputs, strict=True):
            values.append(layer(add_sources(values, places)))
        return add_sources(values, self.output)


def add_sources(values: list[Any], places: Sources) -> Any:
    """The sum of some of the values."""
    return functools.reduce(operator.add, [values[place] for place in places])


class DataFlow:
    """Run a network on a `Signal` and report its calls to an exporter.

    The exporter handles a Cell that it knows in `place`. Any other Cell runs its `construct`, which reports its inner
    calls likewise, and can only add Signals and pass them on. An unknown Cell of this package raises an error.

    Args:
        net: the network. It runs in evaluation mode; all changes are undone afterwards.
        error: makes an exception from a text that begins with the name of a Cell.
        takes: the end of "its construct does something ...", for messages.
        path: the path of the network within a larger one.
        axes: the number of axes before the axes of a sample: 2 for time and batch, 1 for batch alone.
    """

    def __init__(self, net: Cell, error: Callable[[str], Exception], takes: str, path: str = "", axes: int = 2) -> None:
        self.fixes: dict[str, str] = {}  # forbidden operation -> advice for the message, such as the layer to use
        self.net, self.error, self.takes, self.axes = net, error, takes, axes
        self.paths = {id(cell): place for place, cell in net.cells_and_names(name_prefix=path)}
        self._refused: Exception | None = None

    def place(self, cell: Any, kind: type, path: str, sources: Sources) -> Sources | None:
        """Handle a call of a Cell of class `kind` on the sum of `sources`; return the sources of its output, or None
        if the exporter does not know the Cell.
        """
        raise NotImplementedError

    def unknown(self, cell: Any, path: str) -> Exception:
        """The exception for a Cell of this package that the exporter does not know."""
        raise NotImplementedError

    def run(self, sources: Sources) -> Sources:
        """Run the network, from the sources of its input to the sources of its output."""
        with phases(self.net), settings(watch=self, tape=None, unfused=True):
            self.net.set_train(False)
            before = [(cell, _copy_attributes(vars(cell))) for _, cell in self.net.cells_and_names()]
            try:
                out = self.net(Signal(sources))
                changed = [(cell, name) for cell, old in before for name in vars(cell) if _differs(cell, name, old)]
            except Exception as problem:
                raise self._refusal_of(self.net, problem) from None
            finally:
                for cell, old in before:
                    _restore(cell, old)
        if self._refused is not None:  # a construct caught the exception
            raise self._refused
        if changed:
            raise self.refusal(changed[0][0], f"keeping {changed[0][1]!r} on self")
        if not isinstance(out, Signal):
            raise self.refusal(self.net, f"returning {came(out)}, not one signal")
        return out.sources

    @property
    def key(self) -> Any:
        """A unique key, so that `jit` runs uncompiled while a network runs on a Signal."""
        return id(self)

    def around(self, cell: Any, run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Handle a call of a Cell; `Cell` calls this in place of the construct."""
        if not any(isinstance(value, Signal) for value in (*args, *kwargs.values())):
            return run(args, kwargs)  # it does not depend on the input
        try:
            return self._answer(cell, run, args, kwargs)
        except Exception as problem:
            raise self._refusal_of(cell, problem) from None

    def _refusal_of(self, cell: Any, problem: Exception) -> Exception:
        """The first error, which names the innermost Cell; outer Cells may have raised it again."""
        if self._refused is None:
            self._refused = self.refusal(cell, str(problem)) if isinstance(problem, _SIGNAL_ERRORS) else problem
        return self._refused

    def _answer(self, cell: Any, run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        kind, path = kind_of(cell), self.paths.get(id(cell), type(cell).__name__)
        known = ours(kind) and kind not in (SequentialCell, Branches)
        if len(args) != 1 or kwargs:
            if known:
                self._refused = self.error(f"{name_of_cell(path, cell)} must be called with exactly one signal.")
                raise self._refused
            return run(args, kwargs)
        try:
            if kind is TimeDistributed:
                return self.through(cell.cell, args[0], 1)
            placed = self.place(cell, kind, path, args[0].sources)
            if placed is None and known:
                raise self.unknown(cell, path)
        except Exception as problem:
            self._refused = self._refused or problem
            raise
        return run(args, kwargs) if placed is None else Signal(placed)

    def through(self, cell: Cell, signal: Signal, axes: int) -> Signal:
        """The output of a Cell whose input has `axes` axes before those of a sample."""
        before, self.axes = self.axes, axes
        try:
            out: Signal = cell(signal)
            return out
        finally:
            self.axes = before

    def refusal(self, cell: Any, problem: str) -> Exception:
        """The exception for a construct that contains other operations than calls and sums."""
        base, replaced = overridden(cell)
        layer = f"{_replacement(cell, base, replaced[0])}: " if replaced and is_layer(base) else ""
        name = name_of_cell(self.paths.get(id(cell), type(cell).__name__), cell)
        called = re.match(r"(\w+): .*\bSignal\b|'(\w+)' of a signal", problem)
        operation = called[1] or called[2] if called else ""
        problem = f"{operation} of a signal" if called else problem.rstrip(".")
        fix = f" Instead, {self.fixes[operation]}." if operation in self.fixes else ""
        return self.error(f"{name}: {layer}its construct does something {self.takes}: {problem}.{fix}")


_SIGNAL_ERRORS = (SnncellError, TypeError, AttributeError, ValueError, LookupError)  # errors of operations on a Signal


def _copy_attributes(attributes: dict[str, Any]) -> dict[str, Any]:
    return {name: value.copy() if type(value) in (list, dict) else value for name, value in attributes.items()}


def _differs(cell: Any, name: str, before: dict[str, Any]) -> bool:
    """True if a call changed an attribute, or the content of a list or dict."""
    if name in _COMPILED:
        return False
    if name not in before:
        return True
    value, old = vars(cell)[name], before[name]
    if type(value) is list and type(old) is list:
        return len(value) != len(old) or any(a is not b for a, b in zip(value, old, strict=True))
    if type(value) is dict and type(old) is dict:
        return value.keys() != old.keys() or any(value[key] is not old[key] for key in old)
    return value is not old


def _restore(cell: Any, before: dict[str, Any]) -> None:
    for name in [name for name in vars(cell) if _differs(cell, name, before)]:
        if name in before:
            vars(cell)[name] = before[name]
        else:
            del vars(cell)[name]
