"""The function under check, in float64: Cells, a random projection of the outputs to a scalar, derivatives."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any, NamedTuple

import numpy as np

from snncell.base.arguments.shown import show
from snncell.base.signals import undoing
from snncell.dtype import float64, is_float
from snncell.errors import GradientCheckError, GradientError
from snncell.ops.random import present_key, replaying
from snncell.tape import structure
from snncell.tape.finite import SourceLine, place_at
from snncell.tape.parameter import Parameter
from snncell.tape.state import TRACING, Entry, recording_on, settings
from snncell.tape.structure import is_array
from snncell.tape.tensor import Tensor
from snncell.tape.transforms import grad, vjp

Array = Any
Scalar = Callable[..., Tensor]

# --- float64 ----------------------------------------------------------------------------------------------------------

_VERSIONS = itertools.count(-(10**15), 10**9)  # versions of Cells during a check, which occur nowhere else
_TRANSIENT = {"version", "_loop", "_graph", "_hooks", "_pre_hooks", "_checked_counts", "_naming"}


def is_real(x: Any) -> bool:
    """True for a float Tensor, which finite differences can move; complex Tensors are kept constant."""
    return isinstance(x, Tensor) and is_float(x.dtype.dtype)


def to_float64(x: Any) -> Any:
    """Convert a float Tensor or array to float64; return anything else unchanged."""
    x = Tensor(x) if is_array(x) else x
    return x.astype(float64) if is_real(x) else x


class InFloat64:
    """Context manager: run Cells, their descendants and further Parameters in float64, and restore them afterwards.

    Inside, `astype("float32")` and `ops.zeros(shape)` give float64, too. The Cells' compiled functions are not used,
    because they are for another dtype. Each evaluation starts with the states of `nn.Stateful` at rest.
    """

    def __init__(self, cells: Iterable[Any], parameters: Iterable[Parameter] = ()) -> None:
        below = [cell for owner in cells for _, cell in owner.cells_and_names()]
        self.cells: list[Any] = list(dict.fromkeys(below))
        own = [p for cell in self.cells for p in cell.get_parameters(False)]
        listed = [p for cell in self.cells for p in getattr(cell, "internal_params", ())]
        self.parameters: list[Parameter] = list(dict.fromkeys([*own, *listed, *parameters]))
        self.before: list[Callable[[], None]] = []
        self.values: list[tuple[Parameter, Any]] = []
        self.wide = ExitStack()

    def __enter__(self) -> InFloat64:
        values = [(p, name, getattr(p, name)) for p in self.parameters for name in ("_data", "_entry")]
        self.before = [*map(_keeping_cell, self.cells), undoing(values)]
        with recording_on(None):  # the conversion is not part of the differentiated function
            for parameter in self.parameters:
                if is_real(parameter) and parameter.dtype is not float64:
                    parameter._data = parameter.value().astype(float64)._data
                    if parameter._entry is not None:  # the entry contains the dtype of the gradient
                        parameter._entry = Entry.source(parameter._data)
        self.wide.enter_context(settings(wide=True))
        self.values = [(parameter, parameter._data) for parameter in self.parameters]
        for cell in self.cells:
            cell.__dict__.update(version=next(_VERSIONS), _loop=None, _graph=None)
        return self

    def __exit__(self, *_: Any) -> None:
        self.wide.close()
        for put_back in self.before:
            put_back()

    @contextmanager
    def evaluation(self, moved: Sequence[tuple[Parameter, Any]] = ()) -> Iterator[None]:
        """Context manager: run the Cells with the Parameter values from the start of the check, or those in `moved`."""
        for parameter, array in (*self.values, *moved):
            parameter._data = array
        with ExitStack() as stack:
            for cell in self.cells:
                if hasattr(cell, "aside"):
                    stack.enter_context(cell.aside())
                    cell.reset()
            yield


def _keeping_cell(cell: Any) -> Callable[[], None]:
    state = cell.__dict__
    before = dict(state)

    def put_back() -> None:
        same = all(state.get(name) is value for name, value in before.items() if name not in _TRANSIENT)
        same = same and before.keys() | _TRANSIENT >= state.keys()
        # Attributes that construct changed stay changed, so compiled code from before the check is out of date.
        state["version"] = before["version"] + (0 if same else 2)
        for name in ("_loop", "_graph"):
            state.pop(name, None)
            if name in before:
                state[name] = before[name]

    return put_back


# --- rules for stop_gradient during a check ---------------------------------------------------------------------------


class Site(NamedTuple):
    """A call of stop_gradient: the path of the running Cell, and the line."""

    path: str | None  # None outside of the net
    line: str


class Opened:
    """Hook: let gradients through every stop_gradient except those in `shut`, and note all in `seen`."""

    def __init__(self, paths: Mapping[int, str], shut: frozenset[Site] = frozenset()) -> None:
        self.paths, self.shut = paths, shut  # paths: of the net's Cells, by id
        self.seen: dict[Site, None] = {}

    def __call__(self, x: Any, stopped: Any) -> Any:
        place = place_at(None, SourceLine(""), arguments=False)
        paths = (self.paths.get(id(cell)) for cell, _ in place.cells)
        site = Site(next((path for path in paths if path is not None), None), str(place))
        self.seen[site] = None
        return stopped if site in self.shut else x


def note_stops(values: list[Any]) -> Callable[[Any, Any], Any]:
    """A hook that appends the result of each stop_gradient to `values`, in order."""

    def note(_: Any, stopped: Any) -> Any:
        values.append(stopped)
        return stopped

    return note


def replay_stops(values: Sequence[Any]) -> Callable[[Any, Any], Any]:
    """A hook that makes stop_gradient return earlier results, in order, as constants."""
    remaining = iter(values)

    def replay(_: Any, stopped: Any) -> Any:
        value = next(remaining, None)
        if [x.shape for x in structure.flatten(value)[0]] != [x.shape for x in structure.flatten(stopped)[0]]:
            raise GradientCheckError(
                "detached=True: ops.stop_gradient is called in another order, or with other shapes, when the "
                "inputs change a little, so its results cannot be kept constant. Remove branches on values from the "
                "function."
            )
        return value

    return replay


# --- the function under check -----------------------------------------------------------------------------------------


class Tolerance(NamedTuple):
    """The tolerance of a comparison, and the step of the finite differences."""

    eps: float
    rtol: float
    atol: float
    fine: bool = False  # use fourth-order differences, which allow steps large enough for small gradients
    others: tuple[float, ...] = (10.0, 100.0)  # further factors of the step, for other rounding and curvature

    def agree(self, analytic: float, numeric: float, extra: float = 0.0) -> bool:
        """True if two numbers are equal within the tolerance; NaN never is."""
        return abs(analytic - numeric) <= self.atol + extra + self.rtol * max(abs(analytic), abs(numeric))


class Problem:
    """The subject of a check: a function, its arguments, the Parameters to differentiate, the Cells that it runs."""

    def __init__(
        self,
        fn: Callable[..., Any],
        inputs: Sequence[Any],
        weights: Sequence[tuple[str, Parameter]],
        cells: InFloat64,
        seed: int,
        detached: bool = False,
        who: str = "check_grads",
    ) -> None:
        self.fn, self.cells, self.seed, self.detached, self.who = fn, cells, seed, detached, who
        self.inputs = [to_float64(x) for x in inputs]
        self.key = present_key()  # replay the random numbers from here, so that they are the same at every point
        self.positions = [i for i, x in enumerate(self.inputs) if is_real(x)]
        self.weights = [p for _, p in weights]
        self.names = [f"input {i}" for i in self.positions] + [f"Parameter {name!r}" for name, _ in weights]
        self.sources = [*(self.inputs[i] for i in self.positions), *self.weights]
        if not self.sources:
            raise GradientError(f"{who}: no float Tensor among the inputs.")
        self.point: list[Array] = [np.array(x.asnumpy()) for x in self.sources]

    def arguments(self, moving: Sequence[Tensor]) -> list[Any]:
        """The arguments, with the differentiated ones replaced."""
        args = list(self.inputs)
        for position, x in zip(self.positions, moving, strict=True):
            args[position] = x
        return args

    def scalar(self, *moving: Tensor) -> Tensor:
        """The projected function."""
        with replaying(self.key):
            # Not the seed of the directions. `outputs_and_gradients` and `rounding` use the same one.
            return self.project(self.fn(*self.arguments(moving)), self.seed + 1)

    def project(self, out: Any, seed: int) -> Tensor:
        """The sum of all float outputs times random numbers."""
        leaves, rng = floats(out), np.random.default_rng(seed)
        if not leaves:
            raise GradientError(f"{self.who}: the function returned no float Tensor.")
        parts = [(leaf * Tensor(rng.standard_normal(leaf.shape)).to(leaf.device)).sum() for leaf in leaves]
        return sum(parts[1:], parts[0])

    def differentiate(self, fn: Scalar, level: int) -> Scalar:
        """The projected gradient of `fn`: the subject of the next order."""
        return lambda *moving: self.project(self.gradient_of(fn)(*moving), level)

    def gradient_of(self, fn: Scalar) -> Callable[..., list[Tensor]]:
        """A function that returns the gradients of `fn`: those of the inputs, then those of the weights."""
        gradient = grad(fn, tuple(range(len(self.positions))) or None, tuple(self.weights) or None)
        return lambda *moving: structure.flatten(gradient(*moving))[0]

    @contextmanager
    def at(self, point: Sequence[Array] | None = None) -> Iterator[list[Tensor]]:
        """Context manager: move the weights to a point (by default the start), and yield the inputs at this point."""
        arrays = self.point if point is None else point
        tensors = [Tensor(x).to(source.device) for x, source in zip(arrays, self.sources, strict=True)]
        count = len(self.positions)
        with self.cells.evaluation([(p, x._data) for p, x in zip(self.weights, tensors[count:], strict=True)]):
            yield tensors[:count]

    def gradient(self, fn: Scalar, point: Sequence[Array] | None = None) -> list[Array]:
        """The gradients of `fn` as arrays."""
        with self.at(point) as moving:
            return [g.asnumpy() for g in self.gradient_of(fn)(*moving)]

    def value(self, fn: Scalar, point: Sequence[Array], noted: list[Any] | None = None) -> float:
        """`fn` at another point, with the `noted` results of stop_gradient kept constant."""
        context = nullcontext() if noted is None else settings(stops=replay_stops(noted), unfused=True)
        with context, self.at(point) as moving:
            return float(fn(*moving).item())

    def detached_values(self, fn: Scalar, point: Sequence[Array]) -> list[Any] | None:
        """The results of stop_gradient at this point, or None if they need not stay constant."""
        if not self.detached:
            return None
        noted: list[Any] = []
        with settings(stops=note_stops(noted), unfused=True), self.at(point) as moving:
            fn(*moving)
        return noted

    def slope(
        self, fn: Scalar, direction: Sequence[Array | None], eps: float, point: Sequence[Array], fine: bool = False
    ) -> float:
        """The derivative of `fn` along a direction, by central differences."""
        noted = self.detached_values(fn, point)

        def apart(by: float) -> float:
            ahead, behind = (self.value(fn, move_point(point, direction, x), noted) for x in (by, -by))
            return ahead - behind

        # The weights 8 and -1 cancel the error term in eps^2, which leaves one in eps^4.
        return (8.0 * apart(eps) - apart(2 * eps)) / (12 * eps) if fine else apart(eps) / (2 * eps)

    def run(self, point: Sequence[Array] | None = None) -> Any:
        """The function without projection."""
        with self.at(point) as moving, replaying(self.key):
            return self.fn(*self.arguments(moving))

    def outputs_and_gradients(self, point: Sequence[Array]) -> tuple[list[Array], list[Array]]:
        """Return the outputs, and the gradients of their projection."""
        with self.at(point) as moving, replaying(self.key):
            out, pull = vjp(self.fn, *self.arguments(moving), weights=tuple(self.weights))
            leaves = structure.flatten(out)[0]
            of_inputs, of_weights = pull(*draw_gradients(leaves, np.random.default_rng(self.seed + 1)))
        gradients = [of_inputs[i] for i in self.positions] + list(of_weights)
        return [x.asnumpy() for x in leaves], [g.asnumpy() for g in gradients]

    def rounding(self, point: Sequence[Array], eps: float) -> float:
        """The part of a slope that rounding of the outputs may cause: two units in the last place, over the step."""
        leaves, rng = floats(self.run(point)), np.random.default_rng(self.seed + 1)
        size = sum(float(np.abs(leaf.asnumpy() * rng.standard_normal(leaf.shape)).sum()) for leaf in leaves)
        return 2 * float(np.finfo(np.float64).eps) * size / eps


def move_point(point: Sequence[Array], direction: Sequence[Array | None], by: float) -> list[Array]:
    """Move a point along a direction; None leaves an array unchanged."""
    return [x if v is None else x + by * v for x, v in zip(point, direction, strict=True)]


def directional_derivative(gradients: Sequence[Array], direction: Sequence[Array | None]) -> float:
    """The derivative along a direction, from gradients."""
    return sum(float((g * v).sum()) for g, v in zip(gradients, direction, strict=True) if v is not None)


def draw_gradients(outs: Sequence[Tensor], rng: np.random.Generator) -> list[Tensor]:
    """A random gradient for each float output; any other output is returned as a placeholder."""
    return [Tensor(rng.standard_normal(x.shape)).to(x.device).astype(x.dtype) if x.dtype.is_float else x for x in outs]


def floats(out: Any) -> list[Tensor]:
    """The float Tensors in a structure."""
    return [leaf for leaf in structure.flatten(out)[0] if leaf.dtype.is_float]


# --- Cells of the function --------------------------------------------------------------------------------------------

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
    """The Cells that a function runs, by path. A path begins with the name of the outermost Cell in `owners`."""

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
        """`describe` with the word "layer" before it."""
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
    """The number of time steps: that of a time loop, else the most calls of a Cell; None if no Cell has two calls."""
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
            raise GradientError(f"weights must be Parameters, not {show(one)}.")
    return [named.get(id(p), (str(getattr(p, "name", p)), p)) for p in parameters]


def _is_filled(variable: Any) -> bool:
    """True if a closure variable is set; reading an unset one raises."""
    try:
        return variable.cell_contents is not None
    except ValueError:
        return False
