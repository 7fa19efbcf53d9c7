"""Shapes of what goes through a graph: one sample at one step, without time and batch."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from snncell.errors import NirError
from snncell.nir.description import NEURONS, Node

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
