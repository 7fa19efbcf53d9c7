"""Nodes and graphs of NIR as checked data, and the shapes that go through them.

The node classes of the package nir are not used here. Their constructors assert that all parameters of a neuron have
one shape, but files by other tools have single numbers next to arrays. Also, errors should name a node by its path.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from snncell.base.arguments.shown import show
from snncell.errors import NirError

MOST_ELEMENTS = 2**31  # of a shape: more is no layer, but a damaged file

# The parameters of each node: those that it must have, and those that it may have.
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
_SHAPES = ("shape", "input_shape", "input_type")
_COUNTS = {"stride": 1, "padding": 0, "dilation": 1, "kernel_size": 1, "groups": 1}  # with the least that makes sense
_AXES = {"Conv1d": 1, "Conv2d": 2, "SumPool2d": 2, "AvgPool2d": 2}


@dataclass
class Node:
    """A node: its kind, which is the name of nir's class, its parameters, and what is written beside them.

    Parameters are arrays of floats, tuples of ints, ints, or "same" and "valid", already checked. `path` is for errors.
    """

    kind: str
    values: dict[str, Any]
    metadata: dict[str, Any] = field(default_factory=dict)
    path: str = ""

    def __str__(self) -> str:
        return f"node {self.path!r} ({self.kind})"


@dataclass
class Graph:
    """Nodes and graphs by name, edges in their order, and metadata."""

    nodes: dict[str, Node | Graph]
    edges: list[tuple[str, str]]
    metadata: dict[str, Any] = field(default_factory=dict)
    path: str = ""

    def every_node(self) -> Iterator[Node]:
        """The nodes, those of graphs inside included."""
        for node in self.nodes.values():
            if isinstance(node, Graph):
                yield from node.every_node()
            else:
                yield node


def below(path: str, name: str) -> str:
    """The path of what has a name in a graph."""
    return f"{path}.{name}" if path else name


def node_of(kind: Any, given: dict[str, Any], metadata: dict[str, Any], path: str) -> Node:
    """A node of parameters as they were found, checked one by one.

    Raises:
        NirError: for a kind that NIR has not, and for parameters that are missing, unknown, or make no sense.
    """
    node = Node(str(kind), {}, metadata, path)
    if kind not in FIELDS:
        raise NirError(f"node {path!r} is of the type {show(kind)}, which is none of NIR's: {', '.join(FIELDS)}.")
    required, optional = FIELDS[kind]
    if missing := [name for name in required if given.get(name) is None]:
        raise NirError(f"{node}: there is no {missing[0]}; it has {', '.join(required)}.")
    if unknown := [name for name in given if name not in (*required, *optional)]:
        raise NirError(f"{node}: it has {show(unknown[0])}, which is none of its parameters: {', '.join(required)}.")
    for name in (*required, *optional):
        value = given.get(name)
        if value is None:
            continue
        if name in _SHAPES:
            node.values[name] = _shape(node, name, value)
        elif name in _COUNTS:
            node.values[name] = _counts(node, name, value)
        elif name in ("start_dim", "end_dim"):
            node.values[name] = _integers(node, name, value)[0]
        else:
            node.values[name] = _floats(node, name, value)
    return node


def _array(node: Node, name: str, value: Any) -> Any:
    """Something that was found, as an array of numbers."""
    try:
        array = np.asarray(value.detach().cpu() if hasattr(value, "detach") else value)
    except Exception as error:  # what a stranger's object raises
        raise NirError(f"{node}: {name} is no array of numbers: {error}") from None
    if array.dtype.kind not in "fiu" or array.dtype.itemsize > 8:
        raise NirError(f"{node}: {name} is made of {array.dtype}, not of real numbers.")
    return array


def _floats(node: Node, name: str, value: Any) -> Any:
    array = _array(node, name, value)
    array = array if array.dtype.kind == "f" else array.astype(np.float64)
    if not array.size:
        raise NirError(f"{node}: {name} has the shape {array.shape}, so there is no number in it.")
    if not np.isfinite(array).all():
        first = array.reshape(-1)[np.flatnonzero(~np.isfinite(array))[0]]
        raise NirError(f"{node}: {name} is made of finite numbers, not {first}.")
    # In the machine's byte order, and nobody else's: what a graph holds may be written to later.
    return np.array(array, array.dtype.newbyteorder("="), order="C")


def _integers(node: Node, name: str, value: Any) -> tuple[int, ...]:
    array = _array(node, name, value)
    if array.ndim > 1 or array.size > 32 or not np.isfinite(array).all() or (array != np.floor(array)).any():
        raise NirError(f"{node}: {name} is a whole number, or one for each axis, not {show(array)}.")
    return tuple(int(number) for number in array.reshape(-1))


def _shape(node: Node, name: str, value: Any) -> tuple[int, ...]:
    shape = _integers(node, name, value)
    product = 1
    for length in shape:
        product *= length
        if length < 1 or product > MOST_ELEMENTS:
            raise NirError(f"{node}: {name} is {list(shape)}; axes have at least one element, and all at most 2^31.")
    return shape


def _counts(node: Node, name: str, value: Any) -> Any:
    """A number for each axis; "same" and "valid" of padding as they are; one number of groups."""
    if isinstance(value, bytes):
        value = value.decode("utf8", "replace")
    if isinstance(value, str):
        if name == "padding" and value in ("same", "valid") and "Conv" in node.kind:
            return value
        raise NirError(f"{node}: {name} is {show(value)}, not whole numbers.")
    counts, axes = _integers(node, name, value), 1 if name == "groups" else _AXES[node.kind]
    counts = counts * axes if len(counts) == 1 else counts
    if len(counts) != axes or any(not _COUNTS[name] <= count <= MOST_ELEMENTS for count in counts):
        each = "one number" if axes == 1 else f"one number for each of {axes} axes"
        raise NirError(f"{node}: {name} is {each}, at least {_COUNTS[name]}, not {list(counts)}.")
    return counts[0] if name == "groups" else counts


def edges_of(pairs: Any, path: str) -> list[tuple[str, str]]:
    """Edges as they were found, as pairs of names."""
    edges = []
    for pair in pairs:
        names = [name.decode("utf8", "replace") if isinstance(name, bytes) else name for name in pair]
        if len(names) != 2 or not all(isinstance(name, str) for name in names):
            raise NirError(f"graph {path!r}: an edge is a pair of names, not {show(pair)}.")
        edges.append((names[0], names[1]))
    return edges


# --- shapes: of one sample at one step, without time and batch --------------------------------------------------------

Shape = tuple[int, ...]

# Parameters of a node that has one number, or one for each element of what comes in.
ELEMENTWISE = (*NEURONS, "Scale", "Delay", "Threshold")


def shape_after(node: Node, before: Shape) -> Shape:
    """The shape of what a node gives for something of the shape `before`.

    Raises:
        NirError: if that does not fit the node's parameters.
    """
    if node.kind in ELEMENTWISE:
        return _elementwise(node, before)
    if node.kind in ("Input", "Output"):
        return _same(node, before, node.values["shape"])
    if node.kind in ("Affine", "Linear"):
        return _product(node, before)
    if node.kind == "Flatten":
        return _flatten_shape(node, before)
    if "input_shape" in node.values:
        _same(node, before, (before[0], *node.values["input_shape"]) if before else node.values["input_shape"])
    return _windows(node, before)


def common_shape(node: Node) -> Shape:
    """The shape of an elementwise node's parameters: all have it, or are one number for all neurons."""
    arrays = {name: value.shape for name, value in node.values.items() if isinstance(value, np.ndarray)}
    shapes = {shape for shape in arrays.values() if math.prod(shape) > 1 or len(shape) > 1}
    if len(shapes) > 1:
        sizes = ", ".join(f"{name} {list(shape)}" for name, shape in arrays.items())
        raise NirError(f"{node}: its parameters have one shape, or are single numbers, and not {sizes}.")
    return shapes.pop() if shapes else ()


def _elementwise(node: Node, before: Shape) -> Shape:
    shape = common_shape(node)
    if shape and shape != before:
        raise NirError(f"{node}: it has parameters for {list(shape)} neurons, but gets {list(before)}.")
    return before


def _same(node: Node, before: Shape, own: Shape) -> Shape:
    if own != before:
        raise NirError(f"{node}: it says that it takes {list(own)}, but gets {list(before)}: a type mismatch.")
    return before


def _product(node: Node, before: Shape) -> Shape:
    weight, bias = node.values["weight"], node.values.get("bias")
    if weight.ndim != 2:
        raise NirError(f"{node}: weight is (out, in), not of the shape {list(weight.shape)}.")
    if bias is not None and bias.shape != weight.shape[:1]:
        raise NirError(f"{node}: bias has the shape {list(bias.shape)}; with this weight it is [{weight.shape[0]}].")
    if before != weight.shape[1:]:
        fits = before[-1:] == weight.shape[1:]  # for example input_shape=(T, B, features)
        mend = " Flatten it before." if len(before) > 1 else ""
        mend = " Shapes are those of one sample at one step, without T and B." if len(before) > 1 and fits else mend
        raise NirError(f"{node}: its weight is {list(weight.shape)}, (out, in), but it gets {list(before)}.{mend}")
    return (weight.shape[0],)


def _flatten_shape(node: Node, before: Shape) -> Shape:
    if "input_type" in node.values:
        _same(node, before, node.values["input_type"])
    first, last = axes_of(node, len(before))
    return (*before[:first], math.prod(before[first : last + 1]), *before[last + 1 :])


def axes_of(node: Node, count: int) -> tuple[int, int]:
    """The first and the last axis that Flatten makes one of, of `count` without time and batch."""
    first, last = (axis + count if axis < 0 else axis for axis in (node.values["start_dim"], node.values["end_dim"]))
    if not 0 <= first <= last < count:
        raise NirError(
            f"{node}: start_dim={node.values['start_dim']} and end_dim={node.values['end_dim']} are no axes of a "
            f"sample of {count} axes; time and batch do not count."
        )
    return first, last


def _windows(node: Node, before: Shape) -> Shape:
    """Convolutions and pools."""
    values, axes = node.values, 1 if node.kind == "Conv1d" else 2
    if len(before) != axes + 1:
        raise NirError(f"{node}: takes (channels, {'length' if axes == 1 else 'height, width'}), not {list(before)}.")
    channels, size = before[0], values.get("kernel_size")
    if size is None:
        weight, groups = values["weight"], values["groups"]
        if weight.ndim != axes + 2 or values["bias"].shape != weight.shape[:1] or weight.shape[0] % groups:
            raise NirError(
                f"{node}: weight {list(weight.shape)} is (out, in / groups, ...) with {axes} axes more, bias "
                f"{list(values['bias'].shape)} is (out), and groups={groups} divides out."
            )
        if before[0] != weight.shape[1] * groups:
            raise NirError(
                f"{node}: its weight {list(weight.shape)} with groups={groups} takes {weight.shape[1] * groups} "
                f"channels, but it gets {list(before)}."
            )
        channels, size = weight.shape[0], weight.shape[2:]
    stride, spread = values["stride"], values.get("dilation", (1,) * axes)
    widths = padding_of(node, size, stride, spread)
    reaches = [(k - 1) * d + 1 for k, d in zip(size, spread, strict=True)]
    if values.get("padding") == "same":
        return (channels, *before[1:])
    lengths = tuple(
        (n + 2 * p - reach) // s + 1 for n, p, reach, s in zip(before[1:], widths, reaches, stride, strict=True)
    )
    if min(lengths) < 1:
        raise NirError(f"{node}: windows that reach over {reaches} do not fit into {list(before)}, padded by {widths}.")
    return (channels, *lengths)


def padding_of(node: Node, size: Any, stride: Any, spread: Any) -> Shape:
    """The elements added on both sides of each axis; of "same" nothing is said."""
    padding = node.values["padding"]
    if padding == "same" and any(s != 1 for s in stride):
        raise NirError(f'{node}: padding "same" goes with stride 1 alone, not {list(stride)}.')
    return (0,) * len(size) if isinstance(padding, str) else padding
