"""Import from NIR: `from_nir`, its result `Net`, and feedback loops."""

from __future__ import annotations

import math
import os
import warnings
from typing import Any, Literal, get_args

import numpy as np

from snncell import dtype as dtypes, nn, ops
from snncell.base.arguments.kinds import FloatDtype, Positive
from snncell.cell.cell import Cell
from snncell.compiler.jit import Jitted
from snncell.dtype import float32
from snncell.errors import ArgumentError, NirError, OutsideTensorError, ShapeError
from snncell.nir import graph as graphs
from snncell.nir.graph import FIRING, NEURONS, Flat, Graph, Node, Shape, Stage
from snncell.nir.interchange import graph_of, read_file
from snncell.nir.layers import Delay, DelayLine, delay_in_steps, layer_of, total
from snncell.nir.neurons import Choices, Method, neuron_of
from snncell.nn.time.multistep import KEPT_TRACES, initial_states
from snncell.ops.control import run_scan
from snncell.tape.state import TRACING
from snncell.tape.tensor import Tensor

LARGE = 0.2  # dt / tau above which from_nir warns about Euler's method
# from_nir warns if an IF neuron reaches less than this part of its threshold in a step in which all inputs are 1.
LEAST = 1.0
MUCH_LESS = 0.1  # the same if r dt is at least 1
MOST_LATE = 1024  # longest delay in a cycle, in steps; limited because each step of it needs a state


def from_nir(
    graph: Any,
    dt: Positive,
    method: Method | None = None,
    *,
    reset: Literal["value", "zero", "subtract"] = "value",
    learnable: str | tuple[str, ...] = (),
    surrogate_function: Any = None,
    dtype: FloatDtype = dtypes.float32,
    lossy: bool = False,
) -> Net:
    """Import a NIR graph as a Cell on (T, B, ...), which you can run, train and compile like any other.

    NIR has equations but no time steps, so you choose dt and the method. tau v' = v_leak - v + r x becomes

    v + dt / tau (v_leak - v + r x)                      method="euler"
    v + (1 - exp(-dt / tau)) (v_leak - v + r x)          method="exponential", the exact solution for a constant x

    In a cycle of the graph, one edge delays its signal by one step, because no node of the cycle could be computed
    first otherwise. If the cycle is one neuron with feedback through weights, the neuron becomes an `nn.Recurrent`.

    Args:
        graph: the path of a file, or an `nir.NIRGraph`. Files of nir 1.0.4 and older have no v_reset; it is then 0.
        dt: the time step in seconds, also of your input. It may differ from the one in the metadata. In each step, IF
            neurons add r x dt, so they fire too rarely if dt is too small. `from_nir` therefore warns if a step with
            all inputs 1 does not lift an IF neuron to its threshold (for r dt >= 1, a tenth of it), and names the dt
            that the weights imply. For example, sinabs writes r = 1 and weights for dt=1.
        method: "euler" or "exponential"; by default the method in the graph's metadata, or "euler". For Euler's method,
            `from_nir` warns if dt is above a fifth of a time constant, unless the graph was written for this dt.
        reset: the reset of neurons whose metadata do not name one. "value" sets v to v_reset, as in nir 1.0.8 and in
            all known files; "subtract" subtracts v_threshold, as in the text of nir 1.0.4.
        learnable: names of neuron parameters to learn, such as "tau" or ("tau_mem", "v_threshold"), and "delay" for
            Delay nodes. Times are learned in steps. Weights are always Parameters.
        surrogate_function, dtype: the spike function, by default `surrogate.ATan()`, and the dtype of Parameters.
        lossy: True to accept a graph that snncell cannot reproduce exactly, for example one with a delay that is not a
            multiple of dt. The attribute `lost` of the result lists the differences.
    Returns: A Cell. Its child Cells have the names of the nodes. Its attribute `error` is the largest dt / tau.
    Raises: NirError if the graph is damaged, inconsistent or not supported; the message names the node.
    Source: Pedersen et al., "Neuromorphic intermediate representation", Nature Communications 2024.
    Example:
        >>> import nir, numpy as np
        >>> one = np.ones(1)
        >>> lif = nir.LIF(tau=one * 0.01, r=one, v_leak=one * 0, v_threshold=one * 0.1, v_reset=one * 0)
        >>> net = snncell.nir.from_nir(nir.NIRGraph.from_list(lif), dt=1e-3)
        >>> print(net(ops.ones((4, 1, 1)) * 0.6)[:, 0, 0])
        [0. 1. 0. 1.]
    """
    names = (learnable,) if isinstance(learnable, str) else tuple(learnable)
    try:
        described = read_file(graph) if isinstance(graph, (str, os.PathLike)) else graph_of(graph)
        flat = graphs.flatten(described)
        own_method = _method_of(described, method)
        _check_learnable(names, flat)
        choices = Choices(float(dt), method or own_method, reset, surrogate_function, names, dtypes.as_dtype(dtype))
        net = _Builder(described, flat, choices, [] if lossy else None).net()
    except NirError as error:
        raise NirError(f"from_nir: {error}") from None
    _warn(net, flat, own_method)
    return net


def _method_of(graph: Graph, method: str | None) -> str:
    """The integration method in a graph's metadata; it must be known unless the user passed a `method`."""
    own_method = graphs.as_text(graph.metadata.get("method", "euler"))
    if method is None and (not isinstance(own_method, str) or own_method not in get_args(Method)):
        raise NirError(f"the graph's metadata has method={own_method!r}, which is unknown. Pass euler or exponential.")
    return str(own_method)


def _check_learnable(names: tuple[str, ...], flat: Flat) -> None:
    neurons = [node for node in flat.nodes.values() if node.kind in NEURONS]
    known = {"delay", *(["v_reset"] if any(node.kind in FIRING for node in neurons) else [])}
    known = known.union(*(node.values for node in neurons))
    if unknown := [name for name in names if name not in known]:
        raise ArgumentError(
            f"from_nir: learnable has {unknown[0]!r}, but the parameters of the graph are {', '.join(sorted(known))}."
        )


def _warn(net: Net, flat: Flat, own_method: str) -> None:
    choices, written = net.choices, net.graph.metadata.get("dt")
    made_for_it = isinstance(written, (float, np.floating)) and math.isclose(written, choices.dt)
    if not made_for_it:
        _warn_of_integrators(flat, choices.dt)
    made_for_it = made_for_it and own_method == "euler"
    if choices.method == "euler" and net.error > LARGE and not made_for_it:
        warnings.warn(
            f"from_nir: dt={choices.dt:g} s is {net.error:.2g} of the shortest time constant, so a step of Euler's "
            f'method is far from the equation. Use a shorter dt or method="exponential". If the graph was written for '
            f"steps of this dt, you can ignore this warning.",
            RuntimeWarning,
            stacklevel=4,
        )


def _warn_of_integrators(flat: Flat, dt: float) -> None:
    """Warn of a dt so small that an IF neuron cannot fire in one step, even if all its inputs are 1."""
    for name, node in flat.nodes.items():
        reach = _reach(flat, name) if node.kind == "IF" else math.inf
        if not math.isfinite(reach) or not reach:
            continue
        r, threshold = (np.abs(node.values[value]).astype(np.float64) for value in ("r", "v_threshold"))
        # The part of its threshold that the neuron reaches in a second if all its inputs are 1.
        share = float((r * reach / threshold.clip(np.finfo(np.float64).tiny)).max())
        if not share:  # its weights or r are 0
            continue
        unit = 1.0 / float(r.max())  # the time step for which r dt is 1
        if share * dt >= (LEAST if dt < unit else MUCH_LESS):
            continue
        implied = unit if share * unit >= LEAST else 1.0 / share
        warnings.warn(
            f"from_nir: {node} reaches at most {share * dt:.2g} of its threshold in a step of dt={dt:g} s, if all its "
            f"inputs are 1. Its weights imply a step of about {implied:.2g} s: for example, sinabs writes IF neurons "
            f"for dt=1. If they were made for such steps, use from_nir(..., dt={implied:.2g}).",
            RuntimeWarning,
            stacklevel=5,
        )
        return


def _reach(flat: Flat, name: str) -> float:
    """The largest input that a node gets if its weights multiply signals of 1; infinite without weights."""
    total = 0.0
    for source in flat.sources(name):
        node, factor = flat.nodes[source], 1.0
        while node.kind in ("SumPool2d", "AvgPool2d", "Flatten", "Delay") and len(flat.sources(source)) == 1:
            factor *= math.prod(node.values["kernel_size"]) if node.kind == "SumPool2d" else 1.0
            (source,) = flat.sources(source)
            node = flat.nodes[source]
        if "weight" not in node.values:
            return math.inf
        weight = np.abs(node.values["weight"]).astype(np.float64)
        sums = weight.sum(-1) if node.kind in ("Linear", "Affine") else weight.reshape(len(weight), -1).sum(-1)
        total += factor * float((sums + np.abs(node.values.get("bias", 0.0))).max())
    return total


class _Builder:
    """Make a Cell from a graph. `lost` collects notes on differences; None makes each difference an error."""

    def __init__(self, graph: Graph, flat: Flat, choices: Choices, lost: list[str] | None) -> None:
        self.graph, self.flat, self.choices, self.lost = graph, flat, choices, lost
        self.before: dict[str, Shape] = {}  # input shapes of the nodes
        self.shapes: dict[str, Shape] = {}  # output shapes
        self.cells: dict[str, Cell] = {}
        self.plan: list[tuple[str, list[str]]] = []
        self.error = 0.0

    def net(self) -> Net:
        dt = self.choices.dt
        stages = graphs.stages_of(
            self.flat, lambda node: node.kind == "Delay" and bool((np.round(node.values["delay"] / dt) >= 1).all())
        )
        self.before, self.shapes = graphs.shapes_of(self.flat, stages, self._after)
        for stage in stages:
            name = stage.names[0]
            if stage.late or stage.kept:
                self._cycle(stage)
                continue
            if self.flat.nodes[name].kind not in ("Input", "Output"):
                self.cells[name] = self._over_time(name)
            self.plan.append((name, self.flat.sources(name)))
        return Net(self.graph, self.choices, self.flat, self.plan, self.cells, tuple(self.lost or ()), self.error)

    def _after(self, node: Node, before: Shape) -> Shape:
        if self.lost is not None and node.kind == "Output" and node.values["shape"] != before:
            self.lost.append(f"{node}: its shape is {list(node.values['shape'])}, but its input is {list(before)}.")
            return before
        return graphs.shape_after(node, before)

    def _step_cell(self, name: str) -> Cell:
        """The Cell of a node for one time step: a layer, or a neuron with states."""
        node = self.flat.nodes[name]
        if node.kind in NEURONS:
            for word in ("tau", "tau_syn", "tau_mem"):
                if word in node.values:
                    self.error = max(self.error, float(self.choices.dt / node.values[word].min()))
            return neuron_of(node, self.choices)
        if node.kind == "Delay":
            steps = delay_in_steps(node, self.choices.dt, self.lost)
            if steps.max() > MOST_LATE:
                raise NirError(f"{node}: in a cycle, a delay can have at most {MOST_LATE} steps, not {steps.max():g}.")
            return DelayLine(steps, self.choices.dtype)
        return layer_of(node, self.before[name], self.choices)

    def _over_time(self, name: str) -> Cell:
        """The Cell of a node for (T, B, ...)."""
        node = self.flat.nodes[name]
        if node.kind == "Delay":
            steps, learned = delay_in_steps(node, self.choices.dt, self.lost), "delay" in self.choices.learnable
            return Delay(steps, self.before[name], learned, self.choices.dtype)
        cell = self._step_cell(name)
        if node.kind in NEURONS:
            return nn.MultiStep(cell)
        layered = "Conv" in node.kind or "Pool" in node.kind or node.kind == "Flatten"
        return nn.TimeDistributed(cell) if layered else cell

    def _cycle(self, stage: Stage) -> None:
        """Make a cycle a `Recurrent` if it is one neuron with feedback through layers, otherwise a `FeedbackLoop`."""
        neuron, *layers = stage.names
        nodes = self.flat.nodes
        alone = nodes[neuron].kind in NEURONS and layers and not stage.kept
        alone = alone and not any(nodes[name].kind in (*NEURONS, "Delay") for name in layers)
        chain = set(zip(stage.names, [*layers, neuron], strict=True))
        inside = {name: self._step_cell(name) for name in stage.names}
        if alone and {edge for edge in self.flat.edges if set(edge) & set(layers)} == chain:
            back = [inside[name] for name in layers]
            feedback = back[0] if len(back) == 1 else nn.SequentialCell(*back)
            self.cells |= dict(zip(layers, back, strict=True))
            self.cells[neuron] = nn.MultiStep(nn.Recurrent(inside[neuron], feedback))
            self.plan.append((neuron, [name for name in self.flat.sources(neuron) if name not in stage.names]))
            return
        name = f"loop_{sum(isinstance(cell, FeedbackLoop) for cell in self.cells.values())}"
        while name in nodes:
            name += "_"
        self.cells |= inside  # first, so that Cells and Parameters are named after their nodes
        self.cells[name] = FeedbackLoop(self.flat, stage, inside, self.shapes)
        self.plan.append((name, []))


class Net(Cell):
    """A NIR graph as a Cell over (T, B, ...). `from_nir` makes it.

    Its Cells have the names of the nodes, with a dot for inner graphs: "lif1.w_rec".

    Attributes:
        graph: the imported graph, as checked data.
        choices: the settings that a NIR graph does not contain, such as dt and method.
        lost: notes on parts of the graph that the Cell does not reproduce.
        error: e, the largest dt / tau. Euler's method errs by about e**2 / 2 per step: 0.9 for exp(-0.1) = 0.905.
    Inputs:
        x: (T, B, ...) for each Input of the graph, in their order.
    Returns: The input of the Output node, (T, B, ...). If the graph has several Outputs, a tuple.
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
        """The Cell of a node, by its path, without the MultiStep or TimeDistributed around it."""
        if name not in self._places:
            raise ArgumentError(
                f"of_node: no node {name!r} has a Cell. Nodes with a Cell are {', '.join(self._places)}."
            )
        cell: Any = getattr(self, self._places[name])
        if isinstance(cell, (nn.MultiStep, nn.TimeDistributed)):
            cell = cell.cell
        return cell.cell if isinstance(cell, nn.Recurrent) else cell

    def construct(self, *inputs: Tensor) -> Any:
        if len(inputs) != len(self.inputs):
            raise ShapeError(f"{self!r}: the graph has the Inputs {list(self.inputs)}, but {len(inputs)} were passed.")
        values: dict[str, Tensor] = {}
        for name, x in zip(self.inputs, inputs, strict=True):
            shape = self._shapes[name]
            if x.ndim < 2 or x.shape[2:] != shape:
                raise ShapeError(f"{self!r}: Input {name!r} takes (T, B, {str(shape)[1:]}, but the shape is {x.shape}.")
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
    """An attribute name for a node: its own name, followed by underscores if the Cell already has such an attribute."""
    while hasattr(type(cell), name) or name in cell.__dict__ or name in _RESERVED:
        name += "_"
    return name


_RESERVED = ("graph", "choices", "lost", "error", "inputs", "outputs", "_shapes", "_places", "_plan", "stage", "places")


class FeedbackLoop(Cell):
    """Feedback cycles over time: an edge of each cycle passes on the value of the previous time step. Before the first
    step, neurons output 0, and layers output their response to 0.
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
        stateful = [name for name in self.stage if self._has_states(name)]
        states = {name: initial_states(getattr(self, self.places[name]), blank[name]) for name in stateful}
        ys: dict[str, Tensor]
        seen = TRACING.trace is None and self._looked_into()
        _, ys = run_scan(self._step, (self._initial_values(blank), states), outer, who="Loop", one_by_one=seen)
        return ys

    def _has_states(self, name: str) -> bool:
        return hasattr(getattr(self, self.places[name]), "init_state")

    def _initial_values(self, blank: dict[str, Tensor]) -> dict[str, Tensor]:
        """The values that the delayed edges pass on in the first step."""
        gives: dict[str, Tensor] = {}
        for name in self.stage:
            if self._has_states(name):
                gives[name] = blank[name]
                continue
            zeros = blank[(*self.now[name], *self.before[name])[0]]  # in the shape of the node's input
            inside = [gives[a] for a in self.now[name] if a in gives]
            gives[name] = getattr(self, self.places[name])(total([*inside, zeros]))
        return {name: gives[name] for name in self.carried}

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
