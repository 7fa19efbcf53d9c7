"""Graphs as objects of the package nir, to plain data and back."""

from __future__ import annotations

from typing import Any

import numpy as np

from snncell.base.arguments.shown import came
from snncell.errors import NirError
from snncell.nir.description import FIELDS, Graph, Node, below, edges_of, node_of

_MOST_DEPTH = 64


def graph_of(thing: Any) -> Graph:
    """A graph of the package nir, as plain data.

    Raises:
        NirError: for what is no graph, and for nodes that NIR has not.
    """
    if type(thing).__name__ != "NIRGraph" or not hasattr(thing, "nodes"):
        raise NirError(f"takes the path of a file or an nir.NIRGraph, not {came(thing)}.")
    return _graph(thing, "", 0)


def _graph(thing: Any, path: str, depth: int) -> Graph:
    if depth > _MOST_DEPTH:
        raise NirError(f"graph {path!r}: graphs are nested more than {_MOST_DEPTH} deep, or hold themselves.")
    nodes: dict[str, Node | Graph] = {}
    for name, node in thing.nodes.items():
        inside = below(path, str(name))
        nested = type(node).__name__ == "NIRGraph"
        nodes[str(name)] = _graph(node, inside, depth + 1) if nested else _node(node, inside)
    metadata = getattr(thing, "metadata", None)
    metadata = metadata if isinstance(metadata, dict) else {}
    return Graph(nodes, edges_of(thing.edges, path), dict(metadata), path)


def _node(thing: Any, path: str) -> Node:
    kind = type(thing).__name__
    required, optional = FIELDS.get(kind, ((), ()))
    given = {name: getattr(thing, name, None) for name in (*required, *optional)}
    if kind in ("Input", "Output"):
        types = thing.input_type if kind == "Input" else thing.output_type
        given = {"shape": (types or {}).get(kind.lower())}
    elif kind == "Flatten":
        given["input_type"] = (thing.input_type or {}).get("input")
    return node_of(kind, given, dict(getattr(thing, "metadata", None) or {}), path)  # nir 1.0.4 has none


# --- back -------------------------------------------------------------------------------------------------------------


def write_graph(graph: Graph, shapes: dict[str, tuple[Any, Any]], nir: Any) -> Any:
    """A graph of the package nir; `shapes` has, by path, what goes into each node and what comes out of it."""
    nodes = {
        name: write_graph(node, shapes, nir) if isinstance(node, Graph) else _object(node, shapes, nir)
        for name, node in graph.nodes.items()
    }
    # Its check of types knows neither groups nor windows that are no squares; ours has been made.
    return nir.NIRGraph(nodes=nodes, edges=list(graph.edges), metadata=dict(graph.metadata), type_check=False)


def _object(node: Node, shapes: dict[str, tuple[Any, Any]], nir: Any) -> Any:
    values = dict(node.values)
    before, after = (np.array(shape) for shape in shapes[node.path])
    if node.kind in ("Input", "Output"):
        name = node.kind.lower()
        made = getattr(nir, node.kind)({name: np.array(values["shape"])})
        made.metadata = dict(node.metadata)
        return made
    if node.kind == "Flatten":
        values["input_type"] = {"input": before}
    if "Conv" in node.kind:
        values["input_shape"] = int(before[1]) if node.kind == "Conv1d" else tuple(int(n) for n in before[1:])
    if node.kind == "Conv1d":
        values = {name: _only(value) for name, value in values.items()}
    if "Pool" in node.kind:
        values = {name: np.array(value) for name, value in values.items()}
    try:
        made = getattr(nir, node.kind)(**values, metadata=dict(node.metadata))
    except TypeError as error:
        raise NirError(f"to_nir: the package nir is too old for {node}: {error}. pip install 'nir>=1.0.6'") from None
    made.input_type, made.output_type = {"input": before}, {"output": after}
    return made


def _only(value: Any) -> Any:
    """The number of a tuple of one."""
    return value[0] if isinstance(value, tuple) else value
