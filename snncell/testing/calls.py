"""The Cells of a net: their paths, and a sample of their calls with time steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from snncell.base.arguments.shown import show
from snncell.errors import GradientError
from snncell.tape.parameter import Parameter
from snncell.tape.state import TRACING
from snncell.testing.problem import is_real

SAMPLED = 8  # the most calls of a Cell in a Sample


class Called(NamedTuple):
    """One call of a Cell."""

    inputs: tuple[Any, ...]
    out: Any
    step: int | None  # in a loop over time, or else of several calls which one
    looped: bool  # whether a loop over time made the call


class CallSample:
    """Some of the calls of a Cell, evenly spaced, however many there are."""

    def __init__(self) -> None:
        self.calls: list[Called] = []
        self.count, self.stride = 0, 1

    def add(self, call: Called) -> None:
        """Count a call, and keep it if it is one of those that are evenly spaced."""
        if self.count % self.stride == 0:
            if len(self.calls) == SAMPLED:  # every second one is let go of: nobody knows how many are to come
                self.calls = self.calls[::2]
                self.stride *= 2
            if self.count % self.stride == 0:
                self.calls.append(call)
        self.count += 1


class ObservedNet:
    """The Cells that a function runs, by their paths.

    Args:
        owners: Cells, with what they are called; the path of one below is its attribute path.
    """

    def __init__(self, owners: Iterable[tuple[str, Any]]) -> None:
        self.cells: dict[str, Any] = {}
        self.aliases: dict[int, list[str]] = {}
        for prefix, owner in owners:
            for path, cell in _paths_to_cells(owner, prefix, ()):
                known = self.aliases.setdefault(id(cell), [])
                known.append(path)
                if len(known) == 1:
                    self.cells[path] = cell
        self.paths = {id(cell): path for path, cell in self.cells.items()}

    def below(self, path: str) -> list[str]:
        """The paths of the Cells below one."""
        cell = self.cells[path]
        return [self.paths[id(other)] for _, other in cell.cells_and_names() if other is not cell]

    def deepest_first(self, paths: Iterable[str]) -> list[str]:
        """The paths, inner Cells before those that use them."""
        return sorted(paths, key=lambda path: len(self.below(path)))

    def parent(self, path: str) -> str | None:
        """The path of the Cell that has this one as an attribute."""
        holders = [other for other, cell in self.cells.items() if any(c is self.cells[path] for c in cell.cells())]
        return holders[0] if holders else None

    def describe(self, path: str) -> str:
        """A Cell as messages name it: path and class."""
        name = type(self.cells[path]).__name__
        others = self.aliases[id(self.cells[path])][1:]
        shared = f", shared with {', '.join(others[:3])}{', ...' if len(others) > 3 else ''}" if others else ""
        return f"{path} ({name}{shared})" if path else f"the net itself ({name})"

    def layer(self, path: str) -> str:
        """The same, with the word for what it is."""
        return f"layer {self.describe(path)}" if path else self.describe(path)

    def watched(self, run: Callable[[], Any]) -> dict[str, CallSample]:
        """Run, and give a sample of each Cell's calls."""
        samples = {path: CallSample() for path in self.cells}

        def note(path: str, inputs: tuple[Any, ...], out: Any) -> None:
            looped = TRACING.step is not None
            samples[path].add(Called(inputs, out, TRACING.step if looped else samples[path].count, looped))

        self.visited(run, note)
        for sample in samples.values():
            # A single call outside of loops is at no time step; what it was called with may have all of them.
            if sample.count == 1 and not sample.calls[0].looped:
                sample.calls = [sample.calls[0]._replace(step=None)]
        return {path: sample for path, sample in samples.items() if sample.count}

    def visited(self, run: Callable[[], Any], note: Callable[[str, tuple[Any, ...], Any], None]) -> None:
        """Run, and call `note(path, inputs, out)` after each call of a Cell."""

        def hook(path: str) -> Callable[..., None]:
            return lambda _, inputs, out: note(path, inputs, out)

        handles = [cell.register_forward_hook(hook(path)) for path, cell in self.cells.items()]
        try:
            run()
        finally:
            for handle in handles:
                handle.remove()


def _paths_to_cells(cell: Any, path: str, above: tuple[int, ...]) -> Iterator[tuple[str, Any]]:
    """Each way to a Cell and to those below it: a shared one comes by all of its paths, a circle ends."""
    yield path, cell
    for name, child in cell.name_cells().items():
        if id(child) not in above and child is not cell:
            yield from _paths_to_cells(child, f"{path}.{name}" if path else name, (*above, id(cell)))


def count_steps(samples: dict[str, CallSample]) -> int | None:
    """The number of time steps: of a loop, or the calls of the Cell that is called most often, if more than once."""
    calls = [(call, sample) for sample in samples.values() for call in sample.calls]
    if any(call.looped for call, _ in calls):
        return max(sample.count for call, sample in calls if call.looped)
    most = max((sample.count for sample in samples.values()), default=1)
    return most if most > 1 else None


def cells_of_function(fn: Any) -> list[tuple[str, Any]]:
    """The Cells that a function is, belongs to, or refers to, with their names."""
    fn = getattr(fn, "fn", fn) if hasattr(fn, "compiled") else fn  # what jit returns has the function itself
    fn = getattr(fn, "func", fn)  # as functools.partial has
    if hasattr(fn, "cells_and_names"):
        return [("", fn)]
    referred: list[tuple[str, Any]] = [("self", getattr(fn, "__self__", None))]
    code = getattr(fn, "__code__", None)
    if code is not None:
        names, variables = code.co_freevars, fn.__closure__ or ()
        enclosed = [(n, v.cell_contents) for n, v in zip(names, variables, strict=True) if _is_filled(v)]
        referred += [*enclosed, *((name, fn.__globals__.get(name)) for name in code.co_names)]
    return [(n, value) for n, value in referred if hasattr(value, "cells_and_names") and not isinstance(value, type)]


def choose_weights(owners: Iterable[tuple[str, Any]], weights: Any) -> list[tuple[str, Parameter]]:
    """The Parameters that are checked, and their paths: those given, or else all trainable ones of some Cells."""
    named = {id(p): (name, p) for prefix, cell in owners for name, p in cell.parameters_and_names(prefix)}
    if weights is None:
        return [(name, p) for name, p in named.values() if p.requires_grad and is_real(p)]
    parameters = (weights,) if isinstance(weights, Parameter) else tuple(weights)
    for one in parameters:
        if not isinstance(one, Parameter):
            raise GradientError(f"weights are Parameters, not {show(one)}.")
    return [named.get(id(p), (str(getattr(p, "name", p)), p)) for p in parameters]


def _is_filled(variable: Any) -> bool:
    """True if a variable of an enclosing function is set: reading one that is not yet is an error."""
    try:
        return variable.cell_contents is not None
    except ValueError:
        return False
