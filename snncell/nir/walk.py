"""The graph of NIR that the calls of a network make."""

from __future__ import annotations

from typing import Any

import numpy as np

from snncell import nn
from snncell.base.arguments.guard import ours
from snncell.cell.cell import Cell
from snncell.errors import ArgumentError, NirError
from snncell.nir.description import Graph, Node, below
from snncell.nir.exported import Writer, array_of
from snncell.nir.layers import NirIdentity
from snncell.nir.net import Net
from snncell.nir.shapes import Shape, shape_after
from snncell.nir.update import update_graph
from snncell.nir.wiring import flatten, shapes_of, stages_of
from snncell.nn.dataflow import DataFlow, kind_of, name_of_cell, refuse_replacement
from snncell.nn.neurons.constants import Membrane
from snncell.nn.norm.standard import BatchStatistics
from snncell.tape.value import Signal as Sum

LEFT_OUT = (
    *(nn.Dropout, nn.Dropout2d, nn.TimeFixedDropout, nn.TimeFixedDropout2d, nn.Readout),
    *(nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.GELU, nn.Sigmoid, nn.Tanh, nn.Softplus, nn.Softmax, nn.LogSoftmax),
)
NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.ThresholdBatchNorm)


def error_of(text: str) -> NirError:
    """The error of `to_nir`."""
    return NirError(f"to_nir: {text}")


Signal = tuple[str, ...]  # the nodes whose sum it is


class _Calls(DataFlow):
    """The calls of a network's Cells, each of which becomes nodes."""

    takes = "that NIR has no word for (it may give signals to Cells, and add them)"

    def __init__(self, walk: Walk, net: Cell, path: str, axes: int) -> None:
        super().__init__(net, error_of, self.takes, path, axes)
        self.walk = walk
        # A node has the name of the TimeDistributed or Stateful that its Cell is in.
        around = [self.paths[id(c)] for _, c in net.cells_and_names() if type(c) in (nn.TimeDistributed, nn.Stateful)]
        for outer in sorted(around, key=len, reverse=True):
            inner = below(outer, "cell")
            for key, place in self.paths.items():
                if place == inner or place.startswith(f"{inner}."):
                    self.paths[key] = (outer + place[len(inner) :]).lstrip(".")

    def place(self, cell: Any, kind: type, path: str, sources: Signal) -> Signal | None:
        """Put the nodes of a Cell behind a signal."""
        walk = self.walk
        if kind is nn.Stateful:
            return self.through(cell.cell, Sum(sources), self.axes).sources
        if kind is nn.SEWBlock and cell.connect == "ADD":
            x = Sum(sources)
            branch = self.through(cell.branch, x, self.axes)
            return (branch + (x if cell.shortcut is None else self.through(cell.shortcut, x, self.axes))).sources
        if ours(kind) and kind is not nn.SequentialCell:
            refuse_replacement(cell, path, error_of, "so it is not what NIR would say of it")
        if kind is nn.MultiStep and not cell.return_states:
            return walk.neuron(cell.cell, path, sources)
        if kind is NirIdentity:
            return sources
        if kind in LEFT_OUT:
            walk.writer.lose(path, cell, "is not said in a graph", "Written is the net without it.")
            return sources
        if issubclass(kind, BatchStatistics):
            return walk.folded(cell, path, sources)
        nodes = walk.writer.layer(cell, walk.shapes[sources[0]], path, self.axes)
        return None if nodes is None else walk.chain(path, nodes, sources)[1]

    def unknown(self, cell: Any, path: str) -> Exception:
        """The exception for a Cell that NIR has no node for."""
        where = f"{path or 'the net'} is a {type(cell).__name__}"
        if isinstance(cell, Membrane):
            return error_of(f"{where}, of one step: nn.MultiStep runs it.")
        return error_of(f"{where}, for which NIR has no node.")


class Walk:
    """A walk through a net along the signal, which is the sum of what some nodes give."""

    def __init__(self, writer: Writer, prefix: str = "", path: str = "") -> None:
        self.writer, self.prefix, self.path = writer, prefix, path
        self.nodes: dict[str, Node | Graph] = {}
        self.edges: list[tuple[str, str]] = []
        self.shapes: dict[str, Shape] = {}
        self.norms: dict[str, tuple[str, Any, Any, Any]] = {}  # name: Cell, gain, mean, beta

    def graph(self, net: Any, shape: Shape) -> Graph:
        """The graph of a whole net."""
        if kind_of(net) is Net:
            refuse_replacement(net, "", error_of, "so it is not what its graph says")
            inputs = [node for node in net.graph.nodes.values() if isinstance(node, Node) and node.kind == "Input"]
            if all(node.values["shape"] != shape for node in inputs):
                raise ArgumentError(f"to_nir: input_shape={shape}, but the graph of the net says {inputs[0].values}.")
            return update_graph(net, self.writer)
        end = _Calls(self, net, "", 2).run(self.node("input", Node("Input", {"shape": shape}), ()))
        self.node("output", Node("Output", {"shape": self.shapes[end[0]]}), end)
        self.merge()
        return Graph(dict(self.nodes), self.edges)

    def check(self, graph: Graph) -> dict[str, tuple[Shape, Shape]]:
        """The shapes of what each node gets and gives, by path."""
        flat = flatten(graph)
        stages = stages_of(flat, lambda node: False)
        before, after = shapes_of(flat, [name for stage in stages for name in stage.names], shape_after)
        return {path: (before[path], after[path]) for path in flat.nodes}

    # --- nodes --------------------------------------------------------------------------------------------------------

    def node(self, name: str, node: Node, signal: Signal) -> Signal:
        """Put a node behind a signal; the signal that it gives."""
        name = self.free(name)
        node.path = below(self.prefix, name)
        self.shapes[name] = shape_after(node, self.shapes[signal[0]] if signal else node.values["shape"])
        self.nodes[name] = node
        self.edges += [(source, name) for source in self._apart(signal)]
        return (name,)

    def free(self, name: str) -> str:
        """A name that no node has yet."""
        while name in self.nodes or name in self.norms:
            name += "_"
        return name

    def _apart(self, signal: Signal) -> Signal:
        """A signal in which no node counts twice: between two nodes there is one edge."""
        sources: list[str] = []
        for name in signal:
            if name in sources:
                ones = np.ones(self.shapes[name], np.float32)
                (name,) = self.node(f"{name}_again", Node("Scale", {"scale": ones}), (name,))
            sources.append(name)
        return tuple(sources)

    def chain(self, path: str, nodes: list[Node], signal: Signal) -> tuple[str, Signal]:
        """Put nodes behind a signal; the name of the first, and the signal that the last gives."""
        first = ""
        for number, node in enumerate(nodes):
            base = path.removeprefix(f"{self.path}.").replace(".", "_") or node.kind.lower()
            signal = self.node(base if number == 0 else f"{base}_{node.kind.lower()}", node, signal)
            first = first or signal[0]
        return first, signal

    # --- Cells --------------------------------------------------------------------------------------------------------

    def neuron(self, cell: Any, path: str, signal: Signal) -> Signal:
        """A neuron that MultiStep runs, and what comes back to it."""
        shape = self.shapes[signal[0]]
        if kind_of(cell) is not nn.Recurrent:
            layer = self.writer.layer(cell, shape, path, 1)
            return self.chain(path, layer or self.writer.neuron(cell, shape, path), signal)[1]
        name = self.free(path.replace(".", "_") or "recurrent")
        graph = Walk(self.writer, below(self.prefix, name), path).comes_back(cell, path, shape)
        self.nodes[name] = graph
        self.shapes[name] = shape
        self.edges += [(source, name) for source in self._apart(signal)]
        return (name,)

    def comes_back(self, cell: nn.Recurrent, path: str, shape: Shape) -> Graph:
        """A neuron and what comes back to it, as a graph in the graph: not all readers know cycles among others."""
        inner = below(path, "cell")
        nodes = self.writer.neuron(cell.cell, shape, inner)
        if nodes[0].kind == "Delay":
            raise NirError(f'to_nir: {inner} has order="read decay jump"; in a Recurrent, NIR has no word for it.')
        first, out = self.chain(inner, nodes, self.node("input", Node("Input", {"shape": shape}), ()))
        back = _Calls(self, cell.feedback, below(path, "feedback"), 1).run(out)
        if self.shapes[back[0]] != shape:
            raise NirError(f"to_nir: {path}.feedback gives {list(self.shapes[back[0]])}, it takes {list(shape)}.")
        self.edges += [(source, first) for source in back]
        self.node("output", Node("Output", {"shape": shape}), out)
        self.merge()
        return Graph(dict(self.nodes), self.edges, {}, self.prefix)

    def folded(self, cell: BatchStatistics, path: str, signal: Signal) -> Signal:
        """Batch normalisation: a node that `merge` puts into the weights before it."""
        where = f"to_nir: {name_of_cell(path, cell)}"
        if kind_of(cell) not in NORMS or cell.use_batch_statistics:
            raise NirError(f"{where} is another function at each step, or of each batch; NIR has no node for that.")
        names = ("gamma", "beta", "moving_mean", "moving_variance")
        gamma, beta, mean, variance = (array_of(getattr(cell, name)).astype(np.float64) for name in names)
        name = self.free(path.replace(".", "_") or "norm")
        self.shapes[name] = self.shapes[signal[0]]
        self.edges += [(source, name) for source in self._apart(signal)]
        self.norms[name] = where, cell.gain * gamma / np.sqrt(variance + cell.eps), mean, beta
        return (name,)

    # --- the whole graph ----------------------------------------------------------------------------------------------

    def merge(self) -> None:
        """Put into the weights before them what NIR has no node for, once it is known where each signal goes."""
        for name, (where, gain, mean, beta) in self.norms.items():
            node = self._serving(name)
            if node is None or node.kind not in ("Affine", "Linear", "Conv1d", "Conv2d"):
                source = next(a for a, b in self.edges if b == name)
                raise NirError(
                    f"{where} is folded into the weights of a Dense or a convolution, but it stands behind "
                    f"{self.nodes[source]}: put it right behind one, of which nothing else takes the output."
                )
            weight = node.values["weight"]
            if gain.shape != weight.shape[:1]:
                raise NirError(f"{where} has {gain.size} features, and {node} before it gives {weight.shape[0]}.")
            bias = node.values.get("bias", np.zeros(weight.shape[0]))
            node.values["weight"] = (weight * gain.reshape(-1, *(1,) * (weight.ndim - 1))).astype(weight.dtype)
            node.values["bias"] = ((bias - mean) * gain + beta).astype(weight.dtype)
            node.kind = "Affine" if node.kind == "Linear" else node.kind
            node.metadata.pop("has_bias", None)
            before = next(a for a, b in self.edges if b == name)
            self.edges = [(before if a == name else a, b) for a, b in self.edges if b != name]
        for name, graph in self.nodes.items():
            if isinstance(graph, Graph):
                self._bias_before(graph, self._serving(name))

    def _serving(self, name: str) -> Node | None:
        """The only node before one, if it gives its output to that one alone."""
        sources = [a for a, b in self.edges if b == name]
        alone = len(sources) == 1 and [a for a, _ in self.edges].count(sources[0]) == 1
        node = self.nodes.get(sources[0]) if alone else None
        return node if isinstance(node, Node) else None

    def _bias_before(self, graph: Graph, node: Node | None) -> None:
        """Move the bias of what comes back to the weights before the neuron, if they are there and serve it alone.

        It is the same current at each step, but some readers have nothing come back in the first one.
        """
        (source, _) = next(edge for edge in graph.edges if edge[1] == graph.edges[0][1] and edge[0] != "input")
        last = graph.nodes[source]
        if isinstance(last, Node) and last.kind == "Affine" and node is not None and node.kind in ("Affine", "Linear"):
            bias = last.values.pop("bias")
            node.values["bias"] = node.values.get("bias", 0) + bias
            last.kind, node.kind = "Linear", "Affine"
