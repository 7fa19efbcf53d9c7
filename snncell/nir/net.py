"""`Net`, the Cell made of a graph of NIR, and the feedback loops in it."""

from __future__ import annotations

from typing import Any

from snncell import nn, ops
from snncell.cell.cell import Cell
from snncell.compiler.jit import Jitted
from snncell.dtype import float32
from snncell.errors import ArgumentError, OutsideTensorError, ShapeError
from snncell.nir.graph import Graph, Shape
from snncell.nir.layers import DelayLine
from snncell.nir.neurons import Choices
from snncell.nir.wiring import Flat, Stage
from snncell.nn.time.multistep import KEPT_TRACES, initial_states
from snncell.ops.control import run_scan
from snncell.tape.state import TRACING
from snncell.tape.tensor import Tensor


def total(values: list[Tensor]) -> Tensor:
    """The sum of one value or more."""
    result = values[0]
    for value in values[1:]:
        result = result + value
    return result


class Net(Cell):
    """A graph of NIR as a Cell over (T, B, ...); `from_nir` makes it.

    Its Cells have the names that nodes have in the graph, those of graphs inside with a dot: "lif1.w_rec".

    Attributes:
        graph: the graph as it was read, as plain data.
        choices: what NIR leaves open: dt, method, ...
        lost: what of the graph is not in the Cell, in words.
        error: the largest dt / tau. One step of Euler's method is off by about half of its square, in what it keeps.

    Inputs:
        x: (T, B, ...) for each Input of the graph, in their order.

    Returns:
        what comes to its Output, (T, B, ...); a tuple if there are several.

    Raises:
        ShapeError: for an input of another shape than the graph says.
    """

    def __init__(
        self,
        graph: Graph,
        choices: Choices,
        flat: Flat,
        plan: list[tuple[str, list[str]]],
        cells: dict[str, Cell],
        lost: tuple[str, ...],
        error: float,
    ) -> None:
        super().__init__()
        self.graph, self.choices, self.lost, self.error = graph, choices, lost, error
        self.inputs, self.outputs = flat.inputs, flat.outputs
        self._shapes = {name: flat.nodes[name].values["shape"] for name in flat.inputs}
        self._places = {name: _attribute(self, name) for name in cells}
        self._plan = tuple((name, tuple(sources)) for name, sources in plan)
        for name, cell in cells.items():
            setattr(self, self._places[name], cell)

    def of_node(self, name: str) -> Cell:
        """The Cell of a node, by its path; what holds it in a loop over time is left out."""
        if name not in self._places:
            raise ArgumentError(f"of_node: there is no node {name!r} with a Cell; there are {', '.join(self._places)}.")
        cell: Any = getattr(self, self._places[name])
        if isinstance(cell, (nn.MultiStep, nn.TimeDistributed)):
            cell = cell.cell
        return cell.cell if isinstance(cell, nn.Recurrent) else cell

    def construct(self, *inputs: Tensor) -> Any:
        if len(inputs) != len(self.inputs):
            raise ShapeError(f"{self!r}: the graph has the Inputs {list(self.inputs)}, but got {len(inputs)}.")
        values: dict[str, Tensor] = {}
        for name, x in zip(self.inputs, inputs, strict=True):
            shape = self._shapes[name]
            if x.ndim < 2 or x.shape[2:] != shape:
                raise ShapeError(f"{self!r}: Input {name!r} takes (T, B, {str(shape)[1:]}, the shape is {x.shape}.")
            values[name] = x
        for name, sources in self._plan:
            cell = getattr(self, self._places[name]) if name in self._places else None
            if isinstance(cell, FeedbackLoop):
                values |= cell(values)
            elif name not in values:
                x = total([values[source] for source in sources])
                values[name] = x if cell is None else cell(x)
        results = tuple(values[name] for name in self.outputs)
        return results[0] if len(results) == 1 else results

    def extend_repr(self) -> str:
        return f"dt={self.choices.dt:g}, method={self.choices.method!r}"


def _attribute(cell: Cell, name: str) -> str:
    """A name for an attribute: the node's own, unless a Cell has something of that name already."""
    while hasattr(type(cell), name) or name in cell.__dict__ or name in _RESERVED:
        name += "_"
    return name


_RESERVED = ("graph", "choices", "lost", "error", "inputs", "outputs", "_shapes", "_places", "_plan", "stage", "places")


class FeedbackLoop(Cell):
    """Cycles, over time: at each step all their nodes once, with what the edges that close them carried before.

    Before the first step, neurons have given nothing; layers that come back to them, what they make of that.
    """

    def __init__(self, flat: Flat, stage: Stage, cells: dict[str, Cell], shapes: dict[str, Shape]) -> None:
        super().__init__()
        late, names = set(stage.late), set(stage.names)
        self.stage = tuple(stage.names)
        self.kept = tuple(dict.fromkeys(target for _, target in stage.kept))
        edges = [(a, b) for a, b in flat.edges if b in names]
        self.outer = {b: tuple(a for a, c in edges if c == b and a not in names) for b in stage.names}
        self.now = {b: tuple(a for a, c in edges if c == b and a in names and (a, b) not in late) for b in stage.names}
        self.before = {b: tuple(a for a, c in edges if c == b and (a, b) in late) for b in stage.names}
        self.carried = tuple(dict.fromkeys(a for a, _ in stage.late))
        self.shapes = {name: shapes[name] for name in stage.names}
        self.places = {name: _attribute(self, name) for name in stage.names}
        for name in stage.names:
            setattr(self, self.places[name], cells[name])

    def construct(self, values: dict[str, Tensor]) -> dict[str, Tensor]:
        sums = [total([values[a] for a in sources]) for sources in self.outer.values() if sources]
        if TRACING.trace is not None or TRACING.unfused or self._looked_into():
            return self._run_steps(*sums)
        loop = self._loop or Jitted(self._run_steps, f"Loop({', '.join(self.stage)})", KEPT_TRACES)
        self.__dict__["_loop"] = loop
        try:
            results: dict[str, Tensor] = loop(*sums)  # traced once, as MultiStep is
        except OutsideTensorError:
            results = self._run_steps(*sums)
        return results

    def _looked_into(self) -> bool:
        return any(cell.is_hooked or cell.bprop_debug for _, cell in self.cells_and_names())

    def _run_steps(self, *sums: Tensor) -> dict[str, Tensor]:
        outer = dict(zip([name for name in self.stage if self.outer[name]], sums, strict=True))
        (some, *_) = sums
        dtype = some.dtype if some.dtype.is_float else float32
        blank = {name: ops.zeros((some.shape[1], *self.shapes[name]), dtype) for name in self.stage}
        states = {
            name: initial_states(getattr(self, self.places[name]), blank[name])
            for name in self.stage
            if self._has_states(name)
        }
        ys: dict[str, Tensor]
        seen = TRACING.trace is None and self._looked_into()
        _, ys = run_scan(self._step, (self._silent(blank), states), outer, who="Loop", one_by_one=seen)
        return ys

    def _has_states(self, name: str) -> bool:
        return hasattr(getattr(self, self.places[name]), "init_state")

    def _silent(self, blank: dict[str, Tensor]) -> dict[str, Tensor]:
        """The values that are carried to the first step."""
        gives: dict[str, Tensor] = {}
        for name in self.stage:
            inside = [gives[a] for a in self.now[name] if a in gives]
            quiet = self._has_states(name)
            gives[name] = (
                blank[name] if quiet else getattr(self, self.places[name])(total([*inside, self._zeros(name, blank)]))
            )
        return {name: gives[name] for name in self.carried}

    def _zeros(self, name: str, blank: dict[str, Tensor]) -> Tensor:
        """Nothing, in the shape that a node takes."""
        source = (*self.now[name], *self.before[name])[0]
        return blank[source]

    def _step(self, carry: Any, outer: dict[str, Tensor]) -> tuple[Any, dict[str, Tensor]]:
        before, states = carry
        after, gives = dict(states), dict[str, Tensor]()

        def incoming(name: str) -> Tensor:
            outside = [outer[name]] if name in outer else []
            return total([*outside, *(gives[a] for a in self.now[name]), *(before[a] for a in self.before[name])])

        for name in self.stage:
            cell: Any = getattr(self, self.places[name])
            if name in self.kept:
                gives[name] = cell.read(None, states[name])
            elif name in states:
                gives[name], *rest = cell(incoming(name), *states[name])
                after[name] = tuple(rest)
            else:
                gives[name] = cell(incoming(name))
        for name in self.kept:
            line: DelayLine = getattr(self, self.places[name])
            after[name] = (incoming(name), *states[name])[: line.length]
        return ({name: gives[name] for name in self.carried}, after), gives
