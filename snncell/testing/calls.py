"""The Cells of a net: their paths, and a sample of their calls with time steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from snncell.base.arguments.shown import show
from snncell.errors import GradientError
from snncell.tape.parameter import Parameter
from snncell.tape.state import TRACING
from snncell.testing.problem import is_real

SAMPLED = 8  # the most calls in a CallSample


class Called(NamedTuple):
    """One call of a Cell."""

    inputs: tuple[Any, ...]
    out: Any
    step: int | None  # the time step, or the number of the call outside of time loops
    looped: bool  # whether a time loop made the call


class CallSample:
    """An evenly spaced sample of a Cell's calls, for any number of calls."""

    def __init__(self) -> None:
        self.calls: list[Called] = []
        self.count, self.stride = 0, 1

    def add(self, call: Called) -> None:
        """Count a call, and keep it if it belongs to the sample."""
        if self.count % self.stride == 0:
            if len(self.calls) == SAMPLED:  # drop every second one, because the total number is unknown
                self.calls = self.calls[::2]
                self.stride *= 2
            if self.count % self.stride == 0:
                self.calls.append(call)
        self.count += 1


class ObservedNet:
    """The Cells that a function runs, by their paths, which begin with the name of the Cell among the owners."""

    def __init__(self, owners: Iterable[tuple[str, Any]]) -> None:
        self.cells: dict[str, Any] = {}
        self.aliases: dict[int, list[str]] = {}
        for prefix, owner in owners:
            for path, cell in all_paths(owner, prefix):
                known = self.aliases.setdefault(id(cell), [])
                known.append(path)
                if len(known) == 1:
                    self.cells[path] = cell
        self.paths = {id(cell): path for path, cell in self.cells.items()}

    def below(self, path: str) -> list[str]:
        """The paths of a Cell's descendants."""
        cell = self.cells[path]
        return [self.paths[id(other)] for _, other in cell.cells_and_names() if other is not cell]

    def deepest_first(self, paths: Iterable[str]) -> list[str]:
        """The paths, inner Cells before the Cells that contain them."""
        return sorted(paths, key=lambda path: len(self.below(path)))

    def parent(self, path: str) -> str | None:
        """The path of the Cell that has this one as an attribute."""
        holders = [other for other, cell in self.cells.items() if any(c is self.cells[path] for c in cell.cells())]
        return holders[0] if holders else None

    def describe(self, path: str) -> str:
        """A Cell in messages: path and class."""
        name = type(self.cells[path]).__name__
        others = self.aliases[id(self.cells[path])][1:]
        shared = f", shared with {', '.join(others[:3])}{', ...' if len(others) > 3 else ''}" if others else ""
        return f"{path} ({name}{shared})" if path else f"the net itself ({name})"

    def layer(self, path: str) -> str:
        """The same with the word "layer" before it."""
        return f"layer {self.describe(path)}" if path else self.describe(path)

    def sample_calls(self, run: Callable[[], Any]) -> dict[str, CallSample]:
        """Run the function, and return a sample of the calls of each Cell."""
        samples = {path: CallSample() for path in self.cells}

        def note(path: str, inputs: tuple[Any, ...], out: Any) -> None:
            looped = TRACING.step is not None
            samples[path].add(Called(inputs, out, TRACING.step if looped else samples[path].count, looped))

        self.visit_calls(run, note)
        for sample in samples.values():
            # A single call outside of loops has no time step; its inputs may contain all of them.
            if sample.count == 1 and not sample.calls[0].looped:
                sample.calls = [sample.calls[0]._replace(step=None)]
        return {path: sample for path, sample in samples.items() if sample.count}

    def visit_calls(self, run: Callable[[], Any], note: Callable[[str, tuple[Any, ...], Any], None]) -> None:
        """Run the function, and call `note(path, inputs, out)` after each call of a Cell."""

        def hook(path: str) -> Callable[..., None]:
            return lambda _, inputs, out: note(path, inputs, out)

        handles = [cell.register_forward_hook(hook(path)) for path, cell in self.cells.items()]
        try:
            run()
        finally:
            for handle in handles:
                handle.remove()


def all_paths(cell: Any, path: str = "", above: tuple[int, ...] = ()) -> Iterator[tuple[str, Any]]:
    """All paths to a Cell and its descendants: a shared Cell comes once per path, and a cycle ends."""
    yield path, cell
    above = (*above, id(cell))
    for name, child in cell.name_cells().items():
        if id(child) not in above:
            yield from all_paths(child, f"{path}.{name}" if path else name, above)


def count_steps(samples: dict[str, CallSample]) -> int | None:
    """The number of time steps: that of a time loop, or the most calls of one Cell, if more than one."""
    calls = [(call, sample) for sample in samples.values() for call in sample.calls]
    if any(call.looped for call, _ in calls):
        return max(sample.count for call, sample in calls if call.looped)
    most = max((sample.count for sample in samples.values()), default=1)
    return most if most > 1 else None


def cells_of_function(fn: Any) -> list[tuple[str, Any]]:
    """The Cells that a function is, belongs to, or refers to, with their names."""
    fn = getattr(fn, "fn", fn) if hasattr(fn, "compiled") else fn  # unwrap jit
    fn = getattr(fn, "func", fn)  # unwrap functools.partial
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
    """The Parameters to check, with their paths: `weights`, or by default all trainable ones of some Cells."""
    named = {id(p): (name, p) for prefix, cell in owners for name, p in cell.parameters_and_names(prefix)}
    if weights is None:
        return [(name, p) for name, p in named.values() if p.requires_grad and is_real(p)]
    parameters = (weights,) if isinstance(weights, Parameter) else tuple(weights)
    for one in parameters:
        if not isinstance(one, Parameter):
            raise GradientError(f"weights are Parameters, not {show(one)}.")
    return [named.get(id(p), (str(getattr(p, "name", p)), p)) for p in parameters]


def _is_filled(variable: Any) -> bool:
    """True if a closure variable is set; reading an unset one raises."""
    try:
        return variable.cell_contents is not None
    except ValueError:
        return False
