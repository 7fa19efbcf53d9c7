"""Convert NIR files and graphs of the package nir to a `Graph`, and back.

Files are read by h5py, because the reader of nir allocates memory for any shape that a damaged file contains.
"""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import numpy as np

from snncell.base.arguments.shown import came, show
from snncell.base.signals import import_once
from snncell.errors import NirError
from snncell.nir.graph import FIELDS, Graph, Node, as_text, below, edges_of, node_of


def package(name: str, who: str = "") -> Any:
    """Import the package "nir" or "h5py"; `who` begins the error if it is missing."""
    try:
        return import_once(name)
    except ImportError as error:
        raise NirError(f"{who}needs the package {name}. Install it with pip install snncell[nir] ({error})") from None


# --- files ------------------------------------------------------------------------------------------------------------

MOST_BYTES = 2**28  # limit of decompressed bytes, unless the file itself is large
MOST_OBJECTS = 100_000
MOST_DEPTH = 64
FILTERS = {1: "deflate", 2: "shuffle", 3: "fletcher32", 4: "szip", 32000: "lzf"}


def read_file(path: str | os.PathLike[str]) -> Graph:
    """Read the graph in a file."""
    source = Path(path)
    h5py = package("h5py")
    if not source.is_file():
        raise NirError(f"the file {source} does not exist.")
    try:
        with h5py.File(source, "r") as file:
            tree = _Reader(h5py, source).group(file, "/", 0)
        if not isinstance(tree.get("node"), dict):
            raise NirError("it has no group /node, so it is not a NIR graph")
        graph = _parse_node(tree["node"], "")
        if isinstance(graph, Node):
            raise NirError(f"its /node must be an NIRGraph, not a single {graph.kind}")
    except NirError as error:
        raise NirError(f"{source}: {error}") from None
    except Exception as error:  # h5py may raise any exception for a damaged file
        raise NirError(f"{source} is damaged, or not an HDF5 file: {error}") from None
    return graph


class _Reader:
    """Read groups and arrays of a file as dicts, with limits on their number and size."""

    def __init__(self, h5py: Any, source: Path) -> None:
        self.h5py, self.source, self.size = h5py, source, source.stat().st_size
        self.left = max(MOST_BYTES, 32 * self.size)
        self.seen: set[Any] = set()

    def group(self, group: Any, path: str, depth: int) -> dict[str, Any]:
        if depth > MOST_DEPTH:
            raise NirError(f"groups are nested more than {MOST_DEPTH} deep")
        found: dict[str, Any] = {}
        for name in group:
            if not isinstance(group.get(name, getlink=True), self.h5py.HardLink):
                raise NirError(f"{path}{name} is a link to another place, but a NIR graph must contain its arrays")
            item = group[name]
            self._note(item, f"{path}{name}")
            if isinstance(item, self.h5py.Group):
                found[name] = self.group(item, f"{path}{name}/", depth + 1)
            elif isinstance(item, self.h5py.Dataset):
                found[name] = self._array(item, f"{path}{name}")
            else:
                raise NirError(f"{path}{name} must be a group or an array")
        return found

    def _note(self, item: Any, path: str) -> None:
        """Refuse an object that was read before, because groups that contain each other have no end."""
        info = self.h5py.h5o.get_info(item.id)
        place = (info.fileno, info.addr)
        if place in self.seen:
            raise NirError(f"{path} occurs twice in the file, by links, but each group and array must occur once")
        if len(self.seen) >= MOST_OBJECTS:
            raise NirError(f"it contains more than {MOST_OBJECTS} groups and arrays")
        self.seen.add(place)

    def _array(self, item: Any, path: str) -> Any:
        """Read an array, if its size is plausible for the file."""
        layout = item.id.get_create_plist()
        if item.is_virtual or item.external:
            raise NirError(f"{path} stores its elements in another file, which is not allowed")
        filters = [layout.get_filter(i)[0] for i in range(layout.get_nfilters())]
        if any(one not in FILTERS for one in filters) or len(set(filters)) != len(filters):
            raise NirError(f"{path} has the HDF5 filters {filters}. Only {FILTERS} are supported, each at most once")
        if item.shape is None:
            raise NirError(f"{path} is empty")
        text = self.h5py.check_string_dtype(item.dtype)
        if text is None and item.dtype.kind not in "fiubS":
            raise NirError(f"{path} must contain numbers or text, not {item.dtype}")
        self.left -= item.size * max(item.dtype.itemsize, 1)
        chunk = math.prod(item.chunks or ())
        if self.left < 0 or chunk * item.dtype.itemsize > max(MOST_BYTES, self.left):
            raise NirError(
                f"{path} would be {item.dtype}{list(item.shape)}, more than the limit for a file of this size "
                f"({MOST_BYTES >> 20} MiB, or 32 times its size). If you trust the file, pass the graph: nir.read(...)"
            )
        return as_text(item[()])


def _parse_node(tree: dict[str, Any], path: str) -> Node | Graph:
    kind = tree.pop("type", None)
    if not isinstance(kind, str):
        raise NirError(f"{path or '/node'} has no type")
    metadata = tree.pop("metadata", {})
    metadata = metadata if isinstance(metadata, dict) else {"metadata": metadata}
    if kind != "NIRGraph":
        return node_of(kind, dict(tree), metadata, path)
    nodes, pairs = tree.get("nodes"), tree.get("edges")
    if not isinstance(nodes, dict) or pairs is None or isinstance(pairs, (dict, str)):
        raise NirError(f"graph {path!r}: a graph must have nodes and edges, but has {show(sorted(tree))}")
    if getattr(pairs, "size", 0) and (pairs.ndim != 2 or pairs.shape[1] != 2):
        raise NirError(f"graph {path!r}: edges must be pairs of names, not an array of shape {pairs.shape}")
    inside: dict[str, Node | Graph] = {}
    for name, node in nodes.items():
        if not isinstance(node, dict):
            raise NirError(f"node {below(path, name)!r} must be a group of parameters, not an array")
        inside[name] = _parse_node(node, below(path, name))
    edges = edges_of(pairs.tolist() if getattr(pairs, "size", 0) else [], path)
    return Graph(inside, edges, metadata, path)


# --- graphs of the package nir ----------------------------------------------------------------------------------------


def graph_of(thing: Any) -> Graph:
    """Convert a graph of the package nir to checked data."""
    if type(thing).__name__ != "NIRGraph" or not hasattr(thing, "nodes"):
        raise NirError(f"graph must be the path of a file or an nir.NIRGraph, not {came(thing)}.")
    return _graph(thing, "", 0)


def _graph(thing: Any, path: str, depth: int) -> Graph:
    if depth > MOST_DEPTH:
        raise NirError(f"graph {path!r}: graphs are nested more than {MOST_DEPTH} deep, or contain themselves.")
    nodes: dict[str, Node | Graph] = {}
    for name, node in thing.nodes.items():
        inside = below(path, str(name))
        nested = type(node).__name__ == "NIRGraph"
        nodes[str(name)] = _graph(node, inside, depth + 1) if nested else _node(node, inside)
    metadata = getattr(thing, "metadata", None)
    return Graph(nodes, edges_of(thing.edges, path), dict(metadata) if isinstance(metadata, dict) else {}, path)


def _node(thing: Any, path: str) -> Node:
    kind = type(thing).__name__
    required, optional = FIELDS.get(kind, ((), ()))
    parameters = {name: getattr(thing, name, None) for name in (*required, *optional)}
    if kind in ("Input", "Output"):
        types = thing.input_type if kind == "Input" else thing.output_type
        parameters = {"shape": (types or {}).get(kind.lower())}
    elif kind == "Flatten":
        parameters["input_type"] = (thing.input_type or {}).get("input")
    return node_of(kind, parameters, dict(getattr(thing, "metadata", None) or {}), path)  # nir 1.0.4 has none


def write_graph(graph: Graph, shapes: dict[str, tuple[Any, Any]], nir: Any) -> Any:
    """Convert to a graph of the package nir. `shapes` are (input shape, output shape) by path."""
    nodes = {
        name: write_graph(node, shapes, nir) if isinstance(node, Graph) else _object(node, shapes, nir)
        for name, node in graph.nodes.items()
    }
    # nir's type check refuses grouped convolutions and windows that are not square; we have checked the types already.
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
        values = {name: value[0] if isinstance(value, tuple) else value for name, value in values.items()}
    if "Pool" in node.kind:
        values = {name: np.array(value) for name, value in values.items()}
    try:
        made = getattr(nir, node.kind)(**values, metadata=dict(node.metadata))
    except TypeError as error:
        raise NirError(f"to_nir: the package nir is too old for {node}: {error}. pip install 'nir>=1.0.6'") from None
    made.input_type, made.output_type = {"input": before}, {"output": after}
    return made
