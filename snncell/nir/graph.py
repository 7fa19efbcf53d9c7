"""NIR nodes and graphs as checked data, their shapes, and the order in which nodes are computed.

The node classes of the package nir are not used here, for two reasons. They require one shape for all parameters of a
neuron, but files by other tools mix numbers and arrays. And errors should name the path of a node.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from graphlib import TopologicalSorter
from typing import Any

import numpy as np

from snncell.base.arguments.shown import show
from snncell.base.signals import import_once
from snncell.errors import NirError

MOST_ELEMENTS = 2**31  # larger shapes are a sign of a damaged file

# The required and the optional parameters of each node type.
FIELDS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "Input": (("shape",), ()),
    "Output": (("shape",), ()),
    "Affine": (("weight", "bias"), ()),
    "Linear": (("weight",), ()),
    "Scale": (("scale",), ()),
    "Conv1d": (("weight", "bias", "stride", "padding", "dilation", "groups"), ("input_shape",)),
    "Conv2d": (("weight", "bias", "stride", "padding", "dilation", "groups"), ("input_shape",)),
    "SumPool2d": (("kernel_size", "stride", "padding"), ()),
    "AvgPool2d": (("kernel_size", "stride", "padding"), ()),
    "Flatten": (("start_dim", "end_dim"), ("input_type",)),
    "Delay": (("delay",), ()),
    "Threshold": (("threshold",), ()),
    "I": (("r",), ()),
    "IF": (("r", "v_threshold"), ("v_reset",)),
    "LI": (("tau", "r", "v_leak"), ()),
    "LIF": (("tau", "r", "v_leak", "v_threshold"), ("v_reset",)),
    "CubaLI": (("tau_syn", "tau_mem", "r", "v_leak"), ("w_in",)),
    "CubaLIF": (("tau_syn", "tau_mem", "r", "v_leak", "v_threshold"), ("v_reset", "w_in")),
}
DEFAULTS = {"v_reset": 0.0, "w_in": 1.0}  # v_reset: files of nir 1.0.4 and older have none
NEURONS = ("I", "IF", "LI", "LIF", "CubaLI", "CubaLIF")
FIRING = ("IF", "LIF", "CubaLIF")
ELEMENTWISE = (*NEURONS, "Scale", "Delay", "Threshold")  # parameters are a number, or one for each element
_COUNTS = {"stride": 1, "padding": 0, "dilation": 1, "kernel_size": 1, "groups": 1}  # with the smallest valid values
_AXES = {"Conv1d": 1, "Conv2d": 2, "SumPool2d": 2, "AvgPool2d": 2}


@dataclass
class Node:
    """A node: its type (the name of nir's class), its checked parameters, and its metadata. A parameter is an array of
    floats, a tuple of ints, an int, "same" or "valid". `path` is for error messages.
    """

    kind: str
    values: dict[str, Any]
    metadata: dict[str, Any] = field(default_factory=dict)
    path: str = ""

    def __str__(self) -> str:
        return f"node {self.path!r} ({self.kind})"


@dataclass
class Graph:
    """A graph: nodes and inner graphs by name, edges in their order, metadata."""

    nodes: dict[str, Node | Graph]
    edges: list[tuple[str, str]]
    metadata: dict[str, Any] = field(default_factory=dict)
    path: str = ""


def below(path: str, name: str) -> str:
    """The path of a name inside of a graph."""
    return f"{path}.{name}" if path else name


def as_text(value: Any) -> Any:
    """Decode bytes from a file; return other values unchanged."""
    return value.decode("utf8", "replace") if isinstance(value, bytes) else value


def node_of(kind: Any, parameters: dict[str, Any], metadata: dict[str, Any], path: str) -> Node:
    """Make a node from raw parameters, and check each of them."""
    node = Node(str(kind), {}, metadata, path)
    if kind not in FIELDS:
        raise NirError(f"node {path!r} has the unknown type {show(kind)}. NIR has {', '.join(FIELDS)}.")
    required, optional = FIELDS[kind]
    if missing := [name for name in required if parameters.get(name) is None]:
        raise NirError(f"{node}: {missing[0]} is missing. Its parameters are {', '.join(required)}.")
    if unknown := [name for name in parameters if name not in (*required, *optional)]:
        raise NirError(f"{node}: unknown parameter {show(unknown[0])}. Its parameters are {', '.join(required)}.")
    for name in (*required, *optional):
        if parameters.get(name) is not None:
            node.values[name] = _READERS.get(name, _floats)(node, name, parameters[name])
    return node


def _array(node: Node, name: str, value: Any) -> Any:
    try:
        array = np.asarray(value.detach().cpu() if hasattr(value, "detach") else value)
    except Exception as error:  # a foreign object may raise any exception
        raise NirError(f"{node}: {name} must be an array of numbers: {error}") from None
    if array.dtype.kind not in "fiu" or array.dtype.itemsize > 8:
        raise NirError(f"{node}: {name} must contain real numbers, not {array.dtype}.")
    return array


def _floats(node: Node, name: str, value: Any) -> Any:
    array = _array(node, name, value)
    array = array if array.dtype.kind == "f" else array.astype(np.float64)
    if not array.size:
        raise NirError(f"{node}: {name} is empty, with shape {array.shape}.")
    if not np.isfinite(array).all():
        first = array.reshape(-1)[np.flatnonzero(~np.isfinite(array))[0]]
        raise NirError(f"{node}: {name} must contain finite numbers, not {first}.")
    # A copy in native byte order, because the arrays of a user's graph may be changed later.
    return np.array(array, array.dtype.newbyteorder("="), order="C")


def _integers(node: Node, name: str, value: Any) -> tuple[int, ...]:
    array = _array(node, name, value)
    if array.ndim > 1 or array.size > 32 or not np.isfinite(array).all() or (array != np.floor(array)).any():
        raise NirError(f"{node}: {name} must be an integer, or one for each axis, not {show(array)}.")
    return tuple(int(number) for number in array.reshape(-1))


def _shape(node: Node, name: str, value: Any) -> tuple[int, ...]:
    shape = _integers(node, name, value)
    if any(length < 1 for length in shape) or math.prod(shape) > MOST_ELEMENTS:
        raise NirError(f"{node}: {name} is {list(shape)}. Axes must not be empty, and all together at most 2^31.")
    return shape


def _counts(node: Node, name: str, value: Any) -> Any:
    """An integer for each axis, one number of groups, or "same" and "valid" for padding."""
    value = as_text(value)
    if isinstance(value, str):
        if name == "padding" and value in ("same", "valid") and "Conv" in node.kind:
            return value
        raise NirError(f"{node}: {name} must be integers, not {show(value)}.")
    counts, axes = _integers(node, name, value), 1 if name == "groups" else _AXES[node.kind]
    counts = counts * axes if len(counts) == 1 else counts
    if len(counts) != axes or any(not _COUNTS[name] <= count <= MOST_ELEMENTS for count in counts):
        each = "one number" if axes == 1 else f"one number for each of {axes} axes"
        raise NirError(f"{node}: {name} must be {each}, at least {_COUNTS[name]}, not {list(counts)}.")
    return counts[0] if name == "groups" else counts


# Readers of the parameters that are not arrays of floats.
_READERS: dict[str, Callable[[Node, str, Any], Any]] = {
    **dict.fromkeys(("shape", "input_shape", "input_type"), _shape),
    **dict.fromkeys(_COUNTS, _counts),
    **dict.fromkeys(("start_dim", "end_dim"), lambda node, name, value: _integers(node, name, value)[0]),
}


def edges_of(pairs: Any, path: str) -> list[tuple[str, str]]:
    """Check raw edges, and return them as pairs of names."""
    edges = []
    for pair in pairs:
        names = [as_text(name) for name in pair]
        if len(names) != 2 or not all(isinstance(name, str) for name in names):
            raise NirError(f"graph {path!r}: an edge must be a pair of names, not {show(pair)}.")
        edges.append((names[0], names[1]))
    return edges


# --- shapes of one sample at one time step, without time and batch axes ----------------------------------------------

Shape = tuple[int, ...]


def shape_after(node: Node, before: Shape) -> Shape:
    """The output shape of a node for the input shape `before`, which must fit its parameters."""
    if node.kind in ELEMENTWISE:
        shape = common_shape(node)
        if shape and shape != before:
            raise NirError(f"{node}: its parameters are for {list(shape)} neurons, but its input has {list(before)}.")
        return before
    if node.kind in ("Input", "Output"):
        return _same(node, before, node.values["shape"])
    if node.kind in ("Affine", "Linear"):
        return _product(node, before)
    if node.kind == "Flatten":
        if "input_type" in node.values:
            _same(node, before, node.values["input_type"])
        first, last = axes_of(node, len(before))
        return (*before[:first], math.prod(before[first : last + 1]), *before[last + 1 :])
    if "input_shape" in node.values:
        _same(node, before, (before[0], *node.values["input_shape"]) if before else node.values["input_shape"])
    return _windows(node, before)


def common_shape(node: Node) -> Shape:
    """The common shape of the parameters of an elementwise node, apart from those that are one number."""
    arrays = {name: value.shape for name, value in node.values.items() if isinstance(value, np.ndarray)}
    shapes = {shape for shape in arrays.values() if math.prod(shape) > 1 or len(shape) > 1}
    if len(shapes) > 1:
        sizes = ", ".join(f"{name} {list(shape)}" for name, shape in arrays.items())
        raise NirError(f"{node}: its parameters must have one shape, or be single numbers, but are {sizes}.")
    return shapes.pop() if shapes else ()


def _same(node: Node, before: Shape, own: Shape) -> Shape:
    if own != before:
        raise NirError(f"{node}: type mismatch: it takes {list(own)}, but its input is {list(before)}.")
    return before


def _product(node: Node, before: Shape) -> Shape:
    weight, bias = node.values["weight"], node.values.get("bias")
    if weight.ndim != 2:
        raise NirError(f"{node}: weight must be (out, in), not {list(weight.shape)}.")
    if bias is not None and bias.shape != weight.shape[:1]:
        raise NirError(f"{node}: bias must be [{weight.shape[0]}] for this weight, not {list(bias.shape)}.")
    if before != weight.shape[1:]:
        fits = before[-1:] == weight.shape[1:]  # for example input_shape=(T, B, features)
        fix = " Flatten the input first." if len(before) > 1 else ""
        fix = " Shapes are those of one sample at one time step, without T and B." if len(before) > 1 and fits else fix
        raise NirError(f"{node}: its weight is {list(weight.shape)}, (out, in), but its input is {list(before)}.{fix}")
    return (weight.shape[0],)


def axes_of(node: Node, count: int) -> tuple[int, int]:
    """The first and the last axis that Flatten merges, for inputs of `count` axes without time and batch."""
    first, last = (axis + count if axis < 0 else axis for axis in (node.values["start_dim"], node.values["end_dim"]))
    if not 0 <= first <= last < count:
        raise NirError(
            f"{node}: start_dim={node.values['start_dim']} and end_dim={node.values['end_dim']} are not axes of a "
            f"sample with {count} axes (without time and batch)."
        )
    return first, last


def _windows(node: Node, before: Shape) -> Shape:
    values, axes = node.values, _AXES[node.kind]
    if len(before) != axes + 1:
        raise NirError(
            f"{node}: the input must be (channels, {'length' if axes == 1 else 'height, width'}), not {list(before)}."
        )
    channels, size = before[0], values.get("kernel_size")
    if size is None:
        weight, groups = values["weight"], values["groups"]
        if weight.ndim != axes + 2 or values["bias"].shape != weight.shape[:1] or weight.shape[0] % groups:
            raise NirError(
                f"{node}: weight {list(weight.shape)} must be (out, in / groups, ...) with {axes} further axes, bias "
                f"{list(values['bias'].shape)} must be (out), and groups={groups} must divide out."
            )
        if before[0] != weight.shape[1] * groups:
            raise NirError(
                f"{node}: its weight {list(weight.shape)} with groups={groups} takes {weight.shape[1] * groups} "
                f"channels, but its input is {list(before)}."
            )
        channels, size = weight.shape[0], weight.shape[2:]
    stride, spread = values["stride"], values.get("dilation", (1,) * axes)
    widths = padding_of(node, size, stride)
    reaches = [(k - 1) * d + 1 for k, d in zip(size, spread, strict=True)]
    if values.get("padding") == "same":
        return (channels, *before[1:])
    lengths = tuple(
        (n + 2 * p - reach) // s + 1 for n, p, reach, s in zip(before[1:], widths, reaches, stride, strict=True)
    )
    if min(lengths) < 1:
        raise NirError(f"{node}: windows of size {reaches} do not fit into {list(before)}, padded by {widths}.")
    return (channels, *lengths)


def padding_of(node: Node, size: Any, stride: Any) -> Shape:
    """The number of elements to add on both sides of each axis; zeros for "same" and "valid"."""
    padding = node.values["padding"]
    if padding == "same" and any(s != 1 for s in stride):
        raise NirError(f'{node}: padding "same" requires stride 1, not {list(stride)}.')
    return (0,) * len(size) if isinstance(padding, str) else padding


# --- order of computation: inner graphs, branches, and cycles, each with a delay of one time step --------------------

Edges = list[tuple[str, str]]


@dataclass
class Flat:
    """All nodes, including those of inner graphs, by path, and their edges."""

    nodes: dict[str, Node]
    edges: Edges
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    def sources(self, name: str) -> list[str]:
        """The nodes whose sum is the input of a node."""
        return [source for source, target in self.edges if target == name]

    def targets(self, edges: Edges | None = None) -> dict[str, list[str]]:
        """The targets of the edges from each node."""
        found: dict[str, list[str]] = {name: [] for name in self.nodes}
        for source, target in self.edges if edges is None else edges:
            found[source].append(target)
        return found


def flatten(graph: Graph) -> Flat:
    """Flatten inner graphs, whose Input and Output nodes become identities, and check all edges."""
    nodes: dict[str, Node] = {}
    edges: Edges = []
    _collect(graph, nodes, edges)
    ends = [
        tuple(name for name in _in_order(graph) if getattr(graph.nodes[name], "kind", "") == kind)
        for kind in ("Input", "Output")
    ]
    if not all(ends):
        raise NirError(f"a graph needs an Input and an Output node, but not both are among its {len(nodes)} nodes.")
    flat = Flat(nodes, edges, *ends)
    targets, reached, pending = flat.targets(), set(flat.inputs), list(flat.inputs)
    while pending:
        new = [name for name in dict.fromkeys(targets[pending.pop()]) if name not in reached]
        reached.update(new)
        pending += new
    for name, node in nodes.items():
        if name not in reached:
            raise NirError(f"{node}: no path of edges leads from an Input to it.")
    return flat


def _collect(graph: Graph, nodes: dict[str, Node], edges: Edges) -> None:
    where = f"graph {graph.path!r}" if graph.path else "the graph"
    doors = {name: _doors(node) for name, node in graph.nodes.items()}
    seen: set[tuple[str, str]] = set()
    for edge in graph.edges:
        for name in edge:
            if name not in graph.nodes:
                known = ", ".join(graph.nodes)
                raise NirError(f"{where} has an edge {edge}, but no node {name!r}. Its nodes are {known}.")
        (source, target), (first, second) = edge, (graph.nodes[edge[0]], graph.nodes[edge[1]])
        if edge in seen:
            raise NirError(f"{where} has the edge {edge} twice. To count its signal twice, use a Scale of 2.")
        if getattr(first, "kind", "") == "Output" or getattr(second, "kind", "") == "Input":
            raise NirError(f"{where} has an edge {edge}, but edges must not leave an Output or enter an Input.")
        seen.add(edge)
        edges.append((doors[source][1], doors[target][0]))
    for name in _in_order(graph):
        node = graph.nodes[name]
        if isinstance(node, Graph):
            _collect(node, nodes, edges)
        elif node.path in nodes:
            raise NirError(f"two nodes have the path {node.path!r}. Give one of them a name without a dot.")
        else:
            nodes[node.path] = node


def _in_order(graph: Graph) -> list[str]:
    """Node names in the order of the edges, because a file keeps the order of edges, but sorts nodes by name."""
    return list(dict.fromkeys([*(name for edge in graph.edges for name in edge), *graph.nodes]))


def _doors(node: Node | Graph) -> tuple[str, str]:
    """The paths of the nodes where edges to and from a node or an inner graph end."""
    if isinstance(node, Node):
        return node.path, node.path
    ends = []
    for kind in ("Input", "Output"):
        found = [inner.path for inner in node.nodes.values() if isinstance(inner, Node) and inner.kind == kind]
        if len(found) != 1:
            raise NirError(f"graph {node.path!r}: a graph inside of a graph must have one {kind}, not {len(found)}.")
        ends.append(found[0])
    return ends[0], ends[1]


@dataclass
class Stage:
    """Nodes that are computed together in a time step: a single node, or all nodes of connected cycles in order."""

    names: list[str]
    late: Edges  # the edges that close the cycles; they carry the value of the previous step
    kept: Edges  # the edges to delays that cut a cycle; their values are stored at the end of the step


def stages_of(flat: Flat, keeps: Callable[[Node], bool] = lambda node: False) -> list[Stage]:
    """Sort the nodes topologically into stages.

    A depth-first walk cuts a cycle at the edge that leads back to an open node, which delays the signal by one step.
    Before a node that `keeps`, such as a delay of at least one step, it cuts without an additional delay.
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
    flat: Flat, stages: Iterable[Stage], after: Callable[[Node, Shape], Shape] = shape_after
) -> tuple[dict[str, Shape], dict[str, Shape]]:
    """Input and output shapes of all nodes, in the order of the stages."""
    before: dict[str, Shape] = {}
    gives: dict[str, Shape] = {}
    pending = [name for stage in stages for name in stage.names]
    while pending:  # one pass suffices, unless a delay cuts a cycle and therefore comes before its input
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
                f"{flat.nodes[target]}: its inputs are summed, so they must have one shape, but are "
                f"{list(before[target])} and, from {flat.nodes[source]}, {list(gives[source])}."
            )
    return before, gives


def _components(flat: Flat) -> dict[str, int]:
    """A number for each node, equal for nodes that share a cycle (strongly connected components)."""
    sparse: Any = import_once("scipy.sparse")
    graphs: Any = import_once("scipy.sparse.csgraph")
    places = {name: place for place, name in enumerate(flat.nodes)}
    rows, columns = [places[a] for a, _ in flat.edges], [places[b] for _, b in flat.edges]
    matrix = sparse.csr_matrix((np.ones(len(rows)), (rows, columns)), (len(places), len(places)))
    labels = graphs.connected_components(matrix, directed=True, connection="strong")[1]
    return {name: int(labels[place]) for name, place in places.items()}


def _walk(flat: Flat, edges: Edges) -> tuple[list[str], Edges]:
    """Depth-first search: the nodes in topological order without back edges, and the back edges."""
    targets, state, done, back = flat.targets(edges), dict[str, str](), [], []
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
