"""A net that came from a graph, as that graph with the numbers of today."""

from __future__ import annotations

from typing import Any

import numpy as np

from snncell.errors import NirError
from snncell.nir.description import DEFAULTS, NEURONS, Graph, Node
from snncell.nir.exported import Writer
from snncell.nir.layers import Delay, DelayLine, layer_of
from snncell.nir.net import Net
from snncell.nir.neurons import neuron_of
from snncell.nir.shapes import Shape, shape_after
from snncell.nir.wiring import flatten, shapes_of, stages_of


def update_graph(net: Net, writer: Writer) -> Graph:
    """The graph of a net, in which what has changed since it was read is what it is now, and all else to the bit."""
    flat = flatten(net.graph)
    stages = stages_of(flat, lambda node: False)
    before, _ = shapes_of(flat, [name for stage in stages for name in stage.names], _fits)
    # Numbers are those that were read where the Cell is what would be made of them again.
    as_read = (writer.dt, writer.method) == (net.choices.dt, net.choices.method)
    return _graph(net, net.graph, before, writer, as_read)


def _fits(node: Node, before: Shape) -> Shape:
    return before if node.kind == "Output" else shape_after(node, before)


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
    then = _describe_cell(_again(net, node, shape), node, shape, Writer(writer.dt, writer.method))
    metadata = {
        name: value for name, value in node.metadata.items() if name not in ("reset", "compare", "delay", "start")
    }
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
    """A Cell that one node was made into, as one node."""
    layers = writer.layer(cell, shape, node.path, 1)
    nodes = writer.neuron(cell, shape, node.path, node.metadata) if layers is None else layers
    if len(nodes) != 1:
        kinds = " and ".join(one.kind for one in nodes)
        raise NirError(
            f"to_nir: {node.path} was {node.kind}, and has become {kinds}, for which the graph has no place."
        )
    return nodes[0]


def _again(net: Net, node: Node, shape: Shape) -> Any:
    """The Cell that a node is made into."""
    if node.kind in NEURONS:
        return neuron_of(node, net.choices)
    if node.kind == "Delay":
        steps = np.round(np.asarray(node.values["delay"], np.float64) / net.choices.dt)
        return Delay(steps, shape, False, net.choices.dtype)
    return layer_of(node, shape, net.choices)
