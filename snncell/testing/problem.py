"""The function under check, in float64: a random projection of its outputs, and the derivatives of that number."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any, NamedTuple

import numpy as np

from snncell.base.signals import undoing
from snncell.dtype import float64, is_float
from snncell.errors import GradientCheckError, GradientError
from snncell.ops.random import present_key, replaying
from snncell.tape import structure
from snncell.tape.finite import SourceLine, place_at
from snncell.tape.parameter import Parameter
from snncell.tape.state import Entry, recording_on, settings
from snncell.tape.structure import is_array
from snncell.tape.tensor import Tensor
from snncell.tape.transforms import grad, vjp
from snncell.testing.compare import draw_gradients, floats

Array = Any
Scalar = Callable[..., Tensor]

# --- float64 ----------------------------------------------------------------------------------------------------------

_VERSIONS = itertools.count(-(10**15), 10**9)  # of Cells that are checked: no other state of theirs has such a number
_TRANSIENT = {"version", "_loop", "_graph", "_hooks", "_pre_hooks", "_checked_counts", "_naming"}


def is_real(x: Any) -> bool:
    """True if it is a Tensor of floats, which finite differences can move; complex ones are held fixed."""
    return isinstance(x, Tensor) and is_float(x.dtype.dtype)


def to_float64(x: Any) -> Any:
    """A float Tensor or array as a Tensor of float64; anything else as it is."""
    x = Tensor(x) if is_array(x) else x
    return x.astype(float64) if is_real(x) else x


class InFloat64:
    """Run Cells, with all below them and further Parameters, in float64 within a `with`, and restore them afterwards.

    Inside, `astype("float32")` and `ops.zeros(shape)` give float64 too. Compiled functions of the Cells are put aside,
    because they are for Parameters of another dtype. States that a Cell keeps between calls (`aside`) begin at rest in
    each evaluation, and the next evaluation undoes what one has written.
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
        with recording_on(None):  # the conversion is no part of what a gradient may be taken through
            for parameter in self.parameters:
                if is_real(parameter) and parameter.dtype is not float64:
                    parameter._data = parameter.value().astype(float64)._data
                    if parameter._entry is not None:  # which says the dtype of the gradient that is to arrive
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
        """Run the Cells from their Parameters as they were at first, but for those `moved` to other arrays."""
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
        # What construct has changed of its Cell stays changed, and what was compiled of it before is out of date.
        state["version"] = before["version"] + (0 if same else 2)
        for name in ("_loop", "_graph"):
            state.pop(name, None)
            if name in before:
                state[name] = before[name]

    return put_back


# --- rules for stop_gradient during a check ---------------------------------------------------------------------------


class Site(NamedTuple):
    """A place where the gradient is stopped: the path of the Cell that runs there, and the line."""

    path: str | None  # None outside of the net's Cells
    line: str


class Opened:
    """Let gradients through every stop_gradient but those at `shut`, and note where they are.

    `paths` are those of the net's Cells, by id.
    """

    def __init__(self, paths: Mapping[int, str], shut: frozenset[Site] = frozenset()) -> None:
        self.paths = paths
        self.shut = shut
        self.seen: dict[Site, None] = {}

    def __call__(self, x: Any, stopped: Any) -> Any:
        place = place_at(None, SourceLine(""), arguments=False)
        paths = (self.paths.get(id(cell)) for cell, _ in place.cells)
        site = Site(next((path for path in paths if path is not None), None), str(place))
        self.seen[site] = None
        return stopped if site in self.shut else x


def note_stops(values: list[Any]) -> Callable[[Any, Any], Any]:
    """Append what each stop_gradient gives to `values`, in order."""

    def note(_: Any, stopped: Any) -> Any:
        values.append(stopped)
        return stopped

    return note


def replay_stops(values: Sequence[Any]) -> Callable[[Any, Any], Any]:
    """Give, in order, what stop_gradient gave before: as constants, whatever the inputs are now."""
    remaining = iter(values)

    def replay(_: Any, stopped: Any) -> Any:
        value = next(remaining, None)
        if [x.shape for x in structure.flatten(value)[0]] != [x.shape for x in structure.flatten(stopped)[0]]:
            raise GradientCheckError(
                "detached=True: ops.stop_gradient is called in another order, or with other shapes, when the "
                "inputs are moved a little, so what it gave cannot be held constant. Take branches on values out of "
                "the function."
            )
        return value

    return replay


# --- the function under check -----------------------------------------------------------------------------------------


class Tolerance(NamedTuple):
    """The tolerance of two numbers that are to agree, and the step of the differences."""

    eps: float
    rtol: float
    atol: float
    fine: bool = False  # differences of the fourth order, whose steps may be large enough for small gradients
    others: tuple[float, ...] = (10.0, 100.0)  # factors of the step that count too: rounding and curvature differ

    def agree(self, analytic: float, numeric: float, extra: float = 0.0) -> bool:
        """True if they are the same; NaN is not."""
        return abs(analytic - numeric) <= self.atol + extra + self.rtol * max(abs(analytic), abs(numeric))


class Problem:
    """The subject of a check: a function or Cell, its arguments, and the Parameters it is differentiated for.

    `cells` are those that it runs, `seed` is that of the projection, and with `detached` the results of stop_gradient
    are held constant in differences.
    """

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
        self.key = present_key()  # random numbers are replayed from here, the same ones at every point
        self.positions = [i for i, x in enumerate(self.inputs) if is_real(x)]
        self.weights = [p for _, p in weights]
        self.names = [f"input {i}" for i in self.positions] + [f"Parameter {name!r}" for name, _ in weights]
        self.sources = [*(self.inputs[i] for i in self.positions), *self.weights]
        if not self.sources:
            raise GradientError(f"{who}: no float Tensor among the inputs.")
        self.point: list[Array] = [np.array(x.asnumpy()) for x in self.sources]

    def arguments(self, moving: Sequence[Tensor]) -> list[Any]:
        """The arguments, with others in the place of those that are differentiated."""
        args = list(self.inputs)
        for position, x in zip(self.positions, moving, strict=True):
            args[position] = x
        return args

    def scalar(self, *moving: Tensor) -> Tensor:
        """The function, projected."""
        with replaying(self.key):
            # Other numbers than the directions', which are drawn from `seed`; `pulled` and `rounding` use them, too.
            return self.projected(self.fn(*self.arguments(moving)), self.seed + 1)

    def projected(self, out: Any, seed: int) -> Tensor:
        """The sum of all float outputs times random numbers."""
        leaves, rng = floats(out), np.random.default_rng(seed)
        if not leaves:
            raise GradientError(f"{self.who}: the function returned no float Tensor.")
        parts = [(leaf * Tensor(rng.standard_normal(leaf.shape)).to(leaf.device)).sum() for leaf in leaves]
        return sum(parts[1:], parts[0])

    def derived(self, fn: Scalar, level: int) -> Scalar:
        """The gradient of `fn`, projected: the subject of the next order."""
        return lambda *moving: self.projected(self.gradient_of(fn)(*moving), level)

    def gradient_of(self, fn: Scalar) -> Callable[..., list[Tensor]]:
        """A function that gives the gradients of `fn` with respect to the inputs, and then the weights."""
        gradient = grad(fn, tuple(range(len(self.positions))) or None, tuple(self.weights) or None)
        return lambda *moving: structure.flatten(gradient(*moving))[0]

    @contextmanager
    def at(self, point: Sequence[Array] | None = None) -> Iterator[list[Tensor]]:
        """Move the weights to a point, and yield the moving inputs there; by default the point of the check."""
        given = self.point if point is None else point
        tensors = [Tensor(x).to(source.device) for x, source in zip(given, self.sources, strict=True)]
        count = len(self.positions)
        with self.cells.evaluation([(p, x._data) for p, x in zip(self.weights, tensors[count:], strict=True)]):
            yield tensors[:count]

    def gradient(self, fn: Scalar, point: Sequence[Array] | None = None) -> list[Array]:
        """The gradients of `fn` as arrays."""
        with self.at(point) as moving:
            return [g.asnumpy() for g in self.gradient_of(fn)(*moving)]

    def value(self, fn: Scalar, point: Sequence[Array], noted: list[Any] | None = None) -> float:
        """`fn` at another point; what `noted` holds stays constant."""
        held = nullcontext() if noted is None else settings(stops=replay_stops(noted), unfused=True)
        with held, self.at(point) as moving:
            return float(fn(*moving).item())

    def noted(self, fn: Scalar, point: Sequence[Array]) -> list[Any] | None:
        """The values of stop_gradient at this point, if they are to be held constant."""
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
        noted = self.noted(fn, point)

        def apart(by: float) -> float:
            return self.value(fn, move_point(point, direction, by), noted) - self.value(
                fn, move_point(point, direction, -by), noted
            )

        # The weights 8 and -1 cancel the term in eps^2: what is left is in eps^4.
        return (8.0 * apart(eps) - apart(2 * eps)) / (12 * eps) if fine else apart(eps) / (2 * eps)

    def run(self, point: Sequence[Array] | None = None) -> Any:
        """The function itself, unprojected."""
        with self.at(point) as moving, replaying(self.key):
            return self.fn(*self.arguments(moving))

    def pulled(self, point: Sequence[Array]) -> tuple[list[Array], list[Array]]:
        """The outputs, and the gradients of what they are projected to."""
        with self.at(point) as moving, replaying(self.key):
            out, pull = vjp(self.fn, *self.arguments(moving), weights=tuple(self.weights))
            leaves = structure.flatten(out)[0]
            of_inputs, of_weights = pull(*draw_gradients(leaves, np.random.default_rng(self.seed + 1)))
        gradients = [of_inputs[i] for i in self.positions] + list(of_weights)
        return [x.asnumpy() for x in leaves], [g.asnumpy() for g in gradients]

    def rounding(self, point: Sequence[Array], eps: float) -> float:
        """The part of a slope that rounding of the outputs may make: two of their last places, over the step."""
        leaves, rng = floats(self.run(point)), np.random.default_rng(self.seed + 1)
        size = sum(float(np.abs(leaf.asnumpy() * rng.standard_normal(leaf.shape)).sum()) for leaf in leaves)
        return 2 * float(np.finfo(np.float64).eps) * size / eps


def move_point(point: Sequence[Array], direction: Sequence[Array | None], by: float) -> list[Array]:
    """A point, moved along a direction; None leaves an array in place."""
    return [x if v is None else x + by * v for x, v in zip(point, direction, strict=True)]


def directional_derivative(gradients: Sequence[Array], direction: Sequence[Array | None]) -> float:
    """The derivative along a direction, from gradients."""
    return sum(float((g * v).sum()) for g, v in zip(gradients, direction, strict=True) if v is not None)
