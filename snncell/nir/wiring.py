"""The order in which nodes are computed: graphs inside of graphs, branches, and cycles, which take a step."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from graphlib import TopologicalSorter
from typing import Any

import numpy as np

from snncell.base.signals import import_once
from snncell.errors import NirError
from snncell.nir.graph import Graph, Node, Shape

Edges = list[tuple[str, str]]


@dataclass
class Flat:
    """The nodes of a graph and of all graphs inside, by path, and the edges among them."""

    nodes: dict[str, Node]
    edges: Edges
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    def sources(self, name: str) -> list[str]:
        """The nodes of which one takes the sum."""
        return [source for source, target in self.edges if target == name]


def flatten(graph: Graph) -> Flat:
    """The nodes by path; those through which a graph inside takes and gives stay, as what passes things on.

    Raises:
        NirError: for edges to nodes that are not there, twice the same, into an Input or out of an Output.
    """
    nodes: dict[str, Node] = {}
    edges: Edges = []
    _collect(graph, nodes, edges)
    ends = [
        tuple(name for name in _in_order(graph) if getattr(graph.nodes[name], "kind", "") == kind)
        for kind in ("Input", "Output")
    ]
    if not all(ends):
        raise NirError(f"a graph begins with an Input and ends with an Output; this one has {len(nodes)} nodes.")
    flat = Flat(nodes, edges, *ends)
    _refuse_unreachable(flat)
    return flat


def _collect(graph: Graph, nodes: dict[str, Node], edges: Edges) -> None:
    where = f"graph {graph.path!r}" if graph.path else "the graph"
    doors = {name: _doors(name, node) for name, node in graph.nodes.items()}
    seen: set[tuple[str, str]] = set()
    for edge in graph.edges:
        for name in edge:
            if name not in graph.nodes:
                known = ", ".join(graph.nodes)
                raise NirError(f"{where} has an edge {edge}, but no node {name!r}; there are {known}.")
        (source, target), (first, second) = edge, (graph.nodes[edge[0]], graph.nodes[edge[1]])
        if edge in seen:
            raise NirError(f"{where} has the edge {edge} twice. If its signal is to count twice: a Scale of 2.")
        if getattr(first, "kind", "") == "Output" or getattr(second, "kind", "") == "Input":
            raise NirError(f"{where} has an edge {edge}: nothing goes on from an Output, or comes to an Input.")
        seen.add(edge)
        edges.append((doors[source][1], doors[target][0]))
    for name in _in_order(graph):
        node = graph.nodes[name]
        if isinstance(node, Graph):
            _collect(node, nodes, edges)
        elif node.path in nodes:
            raise NirError(f"two nodes have the path {node.path!r}; give one of them a name without a dot.")
        else:
            nodes[node.path] = node


def _in_order(graph: Graph) -> list[str]:
    """The nodes as edges name them first: a file keeps the order of edges, and sorts nodes by name."""
    return list(dict.fromkeys([*(name for edge in graph.edges for name in edge), *graph.nodes]))


def _doors(name: str, node: Node | Graph) -> tuple[str, str]:
    """The paths of the nodes that edges to and from something end at."""
    if isinstance(node, Node):
        return node.path, node.path
    ends = []
    for kind in ("Input", "Output"):
        found = [inner.path for inner in node.nodes.values() if isinstance(inner, Node) and inner.kind == kind]
        if len(found) != 1:
            raise NirError(f"graph {node.path!r}: a graph in a graph has one {kind}, not {len(found)}.")
        ends.append(found[0])
    return ends[0], ends[1]


def _refuse_unreachable(flat: Flat) -> None:
    targets = _neighbours(flat.nodes, flat.edges)
    reached, pending = set(flat.inputs), list(flat.inputs)
    while pending:
        for name in targets[pending.pop()]:
            if name not in reached:
                reached.add(name)
                pending.append(name)
    for name, node in flat.nodes.items():
        if name not in reached:
            raise NirError(f"{node}: nothing comes to it from an Input.")


def _neighbours(names: Iterable[str], edges: Edges) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {name: [] for name in names}
    for source, target in edges:
        found[source].append(target)
    return found


@dataclass
class Stage:
    """Nodes that are computed together: one, or those of cycles, in their order within a step.

    `late` are the edges that close the cycles: they carry what their node gave in the step before. `kept` are those to
    delays that cut a cycle: what they carry is taken at the end of the step.
    """

    names: list[str]
    late: list[tuple[str, str]]
    kept: list[tuple[str, str]]

    @property
    def loop(self) -> bool:
        """True for cycles."""
        return bool(self.late or self.kept)


def stages_of(flat: Flat, keeps: Callable[[Node], bool]) -> list[Stage]:
    """The nodes in an order in which each comes after what it takes.

    A cycle is cut at the edge by which a walk comes back to where it is, from the inputs along the edges in their
    order. What `keeps` is true of, a delay by a step or more, gives in a step nothing of what it takes in it: a cycle
    is cut there, and takes no further step.
    """
    label = _components(flat)
    inside = [(a, b) for a, b in flat.edges if label[a] == label[b]]
    kept = [edge for edge in inside if keeps(flat.nodes[edge[1]])]
    order, back = _walk(flat, [edge for edge in flat.edges if edge not in set(kept)])
    members: dict[int, list[str]] = {}
    for name in order:
        members.setdefault(label[name], []).append(name)
    graph: dict[int, list[int]] = {number: [] for number in members}
    for source, target in flat.edges:
        if label[source] != label[target]:
            graph[label[target]].append(label[source])
    return [
        Stage(members[number], *[[edge for edge in edges if label[edge[0]] == number] for edges in (back, kept)])
        for number in TopologicalSorter(graph).static_order()
    ]


def shapes_of(
    flat: Flat, order: list[str], after: Callable[[Node, Shape], Shape]
) -> tuple[dict[str, Shape], dict[str, Shape]]:
    """The shapes of what each node gets, and of what it gives, in an order in which something is known of the first.

    Raises:
        NirError: for what does not fit a node, and for sums of different shapes.
    """
    before: dict[str, Shape] = {}
    gives: dict[str, Shape] = {}
    pending = order
    while pending:  # once, but for delays that cut a cycle: they come before what they take
        for name in pending:
            node = flat.nodes[name]
            known = [gives[source] for source in flat.sources(name) if source in gives]
            known = [node.values["shape"]] if name in flat.inputs else known
            if known:
                before[name] = known[0]
                gives[name] = after(node, known[0])
        pending = [name for name in pending if name not in gives]
    for source, target in flat.edges:
        if gives[source] != before[target]:
            raise NirError(
                f"{flat.nodes[target]}: it gets {list(before[target])} and, from {flat.nodes[source]}, "
                f"{list(gives[source])}; what is summed has one shape."
            )
    return before, gives


def _components(flat: Flat) -> dict[str, int]:
    """A number for each node, the same for those that are in cycles together."""
    sparse: Any = import_once("scipy.sparse")
    graphs: Any = import_once("scipy.sparse.csgraph")
    places = {name: place for place, name in enumerate(flat.nodes)}
    rows, columns = [places[a] for a, _ in flat.edges], [places[b] for _, b in flat.edges]
    matrix = sparse.csr_matrix((np.ones(len(rows)), (rows, columns)), (len(places), len(places)))
    labels = graphs.connected_components(matrix, directed=True, connection="strong")[1]
    return {name: int(labels[place]) for name, place in places.items()}


def _walk(flat: Flat, edges: Edges) -> tuple[list[str], list[tuple[str, str]]]:
    """Depth first: the nodes in an order that follows all edges but those that lead back, and these."""
    targets, state, done, back = _neighbours(flat.nodes, edges), dict[str, str](), [], []
    for root in (*flat.inputs, *flat.nodes):
        if root in state:
            continue
        state[root], stack = "open", [(root, iter(targets[root]))]
        while stack:
            name, rest = stack[-1]
            for following in rest:
                if following not in state:
                    state[following] = "open"
                    stack.append((following, iter(targets[following])))
                    break
                if state[following] == "open":
                    back.append((name, following))
            else:
                state[name] = "done"
                done.append(name)
                stack.pop()
    return done[::-1], back
