"""Export to NIR: `to_nir` runs a Cell with symbolic signals, so that its calls become nodes and edges."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, cast

import numpy as np

from snncell import nn
from snncell.base.arguments.guard import ours
from snncell.base.arguments.kinds import Own, Positive
from snncell.cell.cell import Cell
from snncell.errors import ArgumentError, NirError
from snncell.nir import graph as graphs
from snncell.nir.graph import DEFAULTS, NEURONS, Graph, Node, Shape
from snncell.nir.interchange import package, write_graph
from snncell.nir.layers import Delay, DelayLine, array_of, delay_in_steps, layer_of, nodes_of
from snncell.nir.neurons import Method, Writer, neuron_of
from snncell.nir.reading import Net
from snncell.nn.dataflow import DataFlow, kind_of, name_of_cell, refuse_hooks, refuse_replacement
from snncell.nn.layers.norm import BatchStatistics
from snncell.nn.neurons.constants import Membrane
from snncell.tape.structure import Signal as Sum


def to_nir(
    net: Cell, dt: Positive, input_shape: Annotated[Any, Own()], *, method: Method | None = None, lossy: bool = False
) -> Any:
    """Export a Cell on (T, B, ...) to a NIR graph, which you can write to a file with `nir.write(path, graph)`.

    The graph is the network in evaluation mode: without dropout, and with batch normalisation folded into the weights
    before it. A neuron that keeps k of its potential in a step gets tau = dt / (1 - k), or -dt / ln(k) with
    method="exponential". `from_nir` with the same dt and method then gives the same steps.

    Args:
        net: a `SequentialCell`, or your own Cell, if its `construct` only calls Cells and adds their results. It can
            also be a result of `from_nir`; then the graph keeps its names, and every number that you have not changed.
        dt: the time step in seconds.
        input_shape: shape of one sample at one time step, (N,) or (C, H, W), without time and batch.
        method: the method with which readers integrate the equations, "euler" as in other frameworks, or "exponential".
            By default that of `from_nir` for an imported network, else "euler".
        lossy: True to replace features that NIR cannot describe by similar ones. `losses(graph)` lists them.
    Returns: An `nir.NIRGraph`. Its metadata contains settings that NIR does not have: dt, the method, the reset, and
        whether a neuron fires at v = v_threshold.
    Raises: NirError for features that NIR cannot describe, with their path, and what lossy=True would write.
    Example:
        >>> net = nn.SequentialCell(nn.Dense(3, 2), nn.MultiStep(nn.LIFNode(tau=10.0, reset="zero")))
        >>> graph = snncell.nir.to_nir(net, dt=1e-3, input_shape=3)
        >>> print(sorted(graph.nodes), graph.nodes["1"].tau)
        ['0', '1', 'input', 'output'] [0.01 0.01]
    """
    nir = package("nir", "to_nir: ")
    refuse_hooks(net, error_of, "and NIR cannot describe that")
    for path, cell in net.cells_and_names():
        if cell.quantisers is not None:
            raise error_of(
                f"{name_of_cell(path, cell)} is quantised, which NIR cannot describe. Export quantise.restore("
                f"copy.deepcopy(net), rounded=True), the network with rounded weights."
            )
    axes = input_shape if isinstance(input_shape, (tuple, list)) else (input_shape,)
    if not axes or any(isinstance(n, bool) or not isinstance(n, (int, np.integer)) or n < 1 for n in axes):
        raise ArgumentError(
            f"to_nir: input_shape must be the shape of one sample at one time step, (N,) or (C, H, W), not "
            f"{input_shape!r}."
        )
    otherwise = cast(Net, net).choices.method if kind_of(net) is Net else "euler"
    walk = Walk(Writer(float(dt), method or otherwise))
    graph = walk.graph(net, tuple(int(n) for n in axes))
    before, after = _shapes(graph)
    shapes = {path: (before[path], after[path]) for path in after}
    if walk.writer.lost and not lossy:
        lines = "\n".join(f"- {text}" for text in walk.writer.lost)
        raise NirError(
            f"to_nir: NIR cannot describe parts of the network. Pass lossy=True to write these replacements:\n{lines}"
        )
    graph.metadata |= {"writer": "snncell", "dt": float(dt), "method": walk.writer.method}
    graph.metadata.pop("lost", None)
    if walk.writer.lost:
        graph.metadata["lost"] = "\n".join(walk.writer.lost)
    return write_graph(graph, shapes, nir)


def losses(graph: Any) -> list[str]:
    """List the features that `to_nir(..., lossy=True)` has replaced in a graph.

    Args: graph: an `nir.NIRGraph`, also one from a file.
    Example:
        >>> net = nn.MultiStep(nn.LIFNode())  # its reset subtracts
        >>> [text.partition(".")[0] for text in snncell.nir.losses(snncell.nir.to_nir(net, 1e-3, 2, lossy=True))]
        ['the net (LIFNode) subtracts the threshold at a spike']
    """
    text = graphs.as_text((getattr(graph, "metadata", None) or {}).get("lost", ""))
    return text.split("\n") if text else []


# --- convert the calls of a network to nodes --------------------------------------------------------------------------

LEFT_OUT = (
    *(nn.Dropout, nn.Dropout2d, nn.TimeFixedDropout, nn.TimeFixedDropout2d, nn.Readout),
    *(nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.GELU, nn.Sigmoid, nn.Tanh, nn.Softplus, nn.Softmax, nn.LogSoftmax),
)
NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.ThresholdBatchNorm)


def error_of(text: str) -> NirError:
    """An error of `to_nir`."""
    return NirError(f"to_nir: {text}")


Signal = tuple[str, ...]  # the nodes that are summed


class _Calls(DataFlow):
    """The calls of a network's Cells, which become nodes."""

    def __init__(self, walk: Walk, net: Cell, path: str, axes: int) -> None:
        takes = "that NIR cannot describe (it may pass signals to Cells, and add them)"
        super().__init__(net, error_of, takes, path, axes)
        self.walk = walk
        # Name nodes after the TimeDistributed or Stateful around their Cell.
        around = [self.paths[id(c)] for _, c in net.cells_and_names() if type(c) in (nn.TimeDistributed, nn.Stateful)]
        for outer in sorted(around, key=len, reverse=True):
            inner = graphs.below(outer, "cell")
            for key, place in self.paths.items():
                if place == inner or place.startswith(f"{inner}."):
                    self.paths[key] = (outer + place[len(inner) :]).lstrip(".")

    def place(self, cell: Any, kind: type, path: str, sources: Signal) -> Signal | None:
        walk = self.walk
        if kind is nn.Stateful:
            return self.through(cell.cell, Sum(sources), self.axes).sources
        if kind is nn.SEWBlock and cell.connect == "ADD":
            x = Sum(sources)
            branch = self.through(cell.branch, x, self.axes)
            return (branch + (x if cell.shortcut is None else self.through(cell.shortcut, x, self.axes))).sources
        if ours(kind) and kind is not nn.SequentialCell:
            refuse_replacement(cell, path, error_of, "so its NIR node would compute something else")
        if kind is nn.MultiStep and not cell.return_states:
            return walk.neuron(cell.cell, path, sources)
        if kind is nn.Identity:
            return sources
        if kind in LEFT_OUT:
            walk.writer.lose(path, cell, "has no NIR node", "The graph has the network without it.")
            return sources
        if issubclass(kind, BatchStatistics):
            return walk.fold_norm(cell, path, sources)
        nodes = nodes_of(walk.writer, cell, walk.shapes[sources[0]], path, self.axes)
        return None if nodes is None else walk.chain(path, nodes, sources)[1]

    def unknown(self, cell: Any, path: str) -> Exception:
        where = f"{path or 'the net'} is a {type(cell).__name__}"
        if isinstance(cell, Membrane):
            return error_of(f"{where}, which is one time step. Put it into nn.MultiStep.")
        return error_of(f"{where}, for which NIR has no node.")


class Walk:
    """Build a graph along the signals of a network."""

    def __init__(self, writer: Writer, prefix: str = "", path: str = "") -> None:
        self.writer, self.prefix, self.path = writer, prefix, path
        self.nodes: dict[str, Node | Graph] = {}
        self.edges: list[tuple[str, str]] = []
        self.shapes: dict[str, Shape] = {}
        self.norms: dict[str, tuple[str, Any, Any, Any]] = {}  # name: (error prefix, gain, mean, beta)

    def graph(self, net: Any, shape: Shape) -> Graph:
        """The graph of a whole network."""
        if kind_of(net) is Net:
            refuse_replacement(net, "", error_of, "so it differs from its graph")
            inputs = [node for node in net.graph.nodes.values() if isinstance(node, Node) and node.kind == "Input"]
            if all(node.values["shape"] != shape for node in inputs):
                raise ArgumentError(f"to_nir: input_shape={shape}, but the graph of the net has {inputs[0].values}.")
            return update_graph(net, self.writer)
        end = _Calls(self, net, "", 2).run(self.node("input", Node("Input", {"shape": shape}), ()))
        self.node("output", Node("Output", {"shape": self.shapes[end[0]]}), end)
        self.merge()
        return Graph(dict(self.nodes), self.edges)

    def node(self, name: str, node: Node, signal: Signal) -> Signal:
        """Append a node to a signal, and return its output signal."""
        name = self.free(name)
        node.path = graphs.below(self.prefix, name)
        self.nodes[name] = node
        shape = graphs.shape_after(node, self.shapes[signal[0]] if signal else node.values["shape"])
        return self._connect(name, shape, signal)

    def _connect(self, name: str, shape: Shape, signal: Signal) -> Signal:
        self.shapes[name] = shape
        self.edges += [(source, name) for source in self._apart(signal)]
        return (name,)

    def free(self, name: str) -> str:
        """A name that no node has yet."""
        while name in self.nodes or name in self.norms:
            name += "_"
        return name

    def _apart(self, signal: Signal) -> Signal:
        """A signal in which a Scale of 1 replaces repeated nodes, because an edge cannot occur twice."""
        sources: list[str] = []
        for name in signal:
            if name in sources:
                ones = np.ones(self.shapes[name], np.float32)
                (name,) = self.node(f"{name}_again", Node("Scale", {"scale": ones}), (name,))
            sources.append(name)
        return tuple(sources)

    def chain(self, path: str, nodes: list[Node], signal: Signal) -> tuple[str, Signal]:
        """Append several nodes to a signal. Returns the name of the first and the output signal of the last."""
        first = ""
        for number, node in enumerate(nodes):
            base = path.removeprefix(f"{self.path}.").replace(".", "_") or node.kind.lower()
            signal = self.node(base if number == 0 else f"{base}_{node.kind.lower()}", node, signal)
            first = first or signal[0]
        return first, signal

    def neuron(self, cell: Any, path: str, signal: Signal) -> Signal:
        """Append a neuron in a MultiStep, with its feedback."""
        shape = self.shapes[signal[0]]
        if kind_of(cell) is not nn.Recurrent:
            layer = nodes_of(self.writer, cell, shape, path, 1)
            return self.chain(path, layer or self.writer.neuron(cell, shape, path), signal)[1]
        name = self.free(path.replace(".", "_") or "recurrent")
        graph = Walk(self.writer, graphs.below(self.prefix, name), path).recurrent_graph(cell, path, shape)
        self.nodes[name] = graph
        return self._connect(name, shape, signal)

    def recurrent_graph(self, cell: nn.Recurrent, path: str, shape: Shape) -> Graph:
        """A recurrent neuron and its feedback as an inner graph, because some readers need cycles in an inner graph."""
        inner = graphs.below(path, "cell")
        nodes = self.writer.neuron(cell.cell, shape, inner)
        if nodes[0].kind == "Delay":
            raise NirError(f'to_nir: {inner} has order="read decay jump", which NIR cannot describe in a Recurrent.')
        first, out = self.chain(inner, nodes, self.node("input", Node("Input", {"shape": shape}), ()))
        back = _Calls(self, cell.feedback, graphs.below(path, "feedback"), 1).run(out)
        if self.shapes[back[0]] != shape:
            raise NirError(
                f"to_nir: {path}.feedback returns {list(self.shapes[back[0]])}, but the neuron takes {list(shape)}."
            )
        self.edges += [(source, first) for source in back]
        self.node("output", Node("Output", {"shape": shape}), out)
        self.merge()
        return Graph(dict(self.nodes), self.edges, {}, self.prefix)

    def fold_norm(self, cell: BatchStatistics, path: str, signal: Signal) -> Signal:
        """Batch normalisation: a placeholder that `merge` folds into the weights before it."""
        where = f"to_nir: {name_of_cell(path, cell)}"
        if kind_of(cell) not in NORMS or cell.use_batch_statistics:
            raise NirError(f"{where} depends on the time step or on the batch, and NIR has no node for that.")
        names = ("gamma", "beta", "moving_mean", "moving_variance")
        gamma, beta, mean, variance = (array_of(getattr(cell, name)).astype(np.float64) for name in names)
        name = self.free(path.replace(".", "_") or "norm")
        self.norms[name] = where, cell.gain * gamma / np.sqrt(variance + cell.eps), mean, beta
        return self._connect(name, self.shapes[signal[0]], signal)

    def merge(self) -> None:
        """Fold parts without a NIR node into the weights before them, once all edges are known."""
        for name, (where, gain, mean, beta) in self.norms.items():
            node = self._serving(name)
            source = next(a for a, b in self.edges if b == name)
            if node is None or node.kind not in ("Affine", "Linear", "Conv1d", "Conv2d"):
                raise NirError(
                    f"{where} must be folded into the weights of a Dense or a convolution, but it follows "
                    f"{self.nodes[source]}. Put it directly after such a layer, and do not use its output elsewhere."
                )
            weight = node.values["weight"]
            if gain.shape != weight.shape[:1]:
                raise NirError(f"{where} has {gain.size} features, but {node} before it has {weight.shape[0]}.")
            bias = node.values.get("bias", np.zeros(weight.shape[0]))
            node.values["weight"] = (weight * gain.reshape(-1, *(1,) * (weight.ndim - 1))).astype(weight.dtype)
            node.values["bias"] = ((bias - mean) * gain + beta).astype(weight.dtype)
            node.kind = "Affine" if node.kind == "Linear" else node.kind
            node.metadata.pop("has_bias", None)
            self.edges = [(source if a == name else a, b) for a, b in self.edges if b != name]
        for name, graph in self.nodes.items():
            if isinstance(graph, Graph):
                self._bias_before(graph, self._serving(name))

    def _serving(self, name: str) -> Node | None:
        """The node before `name`, if it is the only one and has no other target."""
        sources = [a for a, b in self.edges if b == name]
        alone = len(sources) == 1 and [a for a, _ in self.edges].count(sources[0]) == 1
        node = self.nodes.get(sources[0]) if alone else None
        return node if isinstance(node, Node) else None

    def _bias_before(self, graph: Graph, node: Node | None) -> None:
        """Move the bias of the feedback to the layer before: some readers have no feedback in the first step."""
        (source, _) = next(edge for edge in graph.edges if edge[1] == graph.edges[0][1] and edge[0] != "input")
        last = graph.nodes[source]
        if isinstance(last, Node) and last.kind == "Affine" and node is not None and node.kind in ("Affine", "Linear"):
            bias = last.values.pop("bias")
            node.values["bias"] = node.values.get("bias", 0) + bias
            last.kind, node.kind = "Linear", "Affine"


# --- export a network of from_nir: its graph with the current values --------------------------------------------------


def update_graph(net: Net, writer: Writer) -> Graph:
    """The graph of an imported network with the current values; those that did not change are kept to the bit."""
    before, _ = _shapes(
        net.graph, lambda node, shape: shape if node.kind == "Output" else graphs.shape_after(node, shape)
    )
    # A value is kept if importing it again would give the current Cell.
    as_read = (writer.dt, writer.method) == (net.choices.dt, net.choices.method)
    return _graph(net, net.graph, before, writer, as_read)


def _shapes(
    graph: Graph, after: Callable[[Node, Shape], Shape] = graphs.shape_after
) -> tuple[dict[str, Shape], dict[str, Shape]]:
    flat = graphs.flatten(graph)
    return graphs.shapes_of(flat, graphs.stages_of(flat), after)


def _graph(net: Net, graph: Graph, shapes: dict[str, Shape], writer: Writer, as_read: bool) -> Graph:
    nodes: dict[str, Node | Graph] = {}
    for name, node in graph.nodes.items():
        if isinstance(node, Graph):
            nodes[name] = _graph(net, node, shapes, writer, as_read)
        elif node.kind in ("Input", "Output"):
            nodes[name] = Node(node.kind, {"shape": shapes[node.path]}, dict(node.metadata), node.path)
        else:
            nodes[name] = _node(net, node, shapes[node.path], writer, as_read)
    return Graph(nodes, list(graph.edges), dict(graph.metadata), graph.path)


def _node(net: Net, node: Node, shape: Shape, writer: Writer, as_read: bool) -> Node:
    cell = net.of_node(node.path)
    if isinstance(cell, DelayLine):
        delay = node.values["delay"] if as_read else cell.steps * writer.dt
        return Node("Delay", {"delay": np.broadcast_to(delay, shape).copy()}, node.metadata, node.path)
    now = _describe_cell(cell, node, shape, writer)
    again: Cell  # the Cell as it was imported
    if node.kind in NEURONS:
        again = neuron_of(node, net.choices)
    elif node.kind == "Delay":
        again = Delay(delay_in_steps(node, net.choices.dt, []), shape, False, net.choices.dtype)
    else:
        again = layer_of(node, shape, net.choices)
    then = _describe_cell(again, node, shape, Writer(writer.dt, writer.method))
    dropped = ("reset", "compare", "delay", "start")
    metadata = {name: value for name, value in node.metadata.items() if name not in dropped}
    if now.kind != node.kind and {now.kind, node.kind} != {"Affine", "Linear"}:
        return Node(now.kind, now.values, metadata | now.metadata, node.path)
    values = dict(now.values)
    for name, value in now.values.items():
        read = node.values.get(name, DEFAULTS.get(name))
        if not as_read or read is None or not isinstance(value, np.ndarray):
            continue
        old = np.asarray(read)
        if old.size == 1 or old.shape == value.shape:
            old = np.broadcast_to(old.reshape(()) if old.size == 1 else old, value.shape)
            same = value == then.values[name]
            values[name] = old.copy() if same.all() else np.where(same, old, value)
    return Node(now.kind, values, metadata | now.metadata, node.path)


def _describe_cell(cell: Any, node: Node, shape: Shape, writer: Writer) -> Node:
    layers = nodes_of(writer, cell, shape, node.path, 1)
    nodes = writer.neuron(cell, shape, node.path, node.metadata) if layers is None else layers
    if len(nodes) != 1:
        kinds = " and ".join(one.kind for one in nodes)
        raise NirError(f"to_nir: {node.path} was imported as {node.kind}, but is now {kinds}, which is not one node.")
    return nodes[0]
