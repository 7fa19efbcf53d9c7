"""From a Cell to a graph of NIR."""

from __future__ import annotations

from typing import Annotated, Any, cast

import numpy as np

from snncell.arguments.kinds import Own, Positive
from snncell.arguments.shown import came
from snncell.cell import Cell
from snncell.common.ranges import one_of
from snncell.errors import ArgumentError, NirError
from snncell.nir.exported import Writer
from snncell.nir.net import Net
from snncell.nir.neurons import METHODS
from snncell.nir.objects import write_graph
from snncell.nir.package import package
from snncell.nir.shapes import Shape
from snncell.nir.walk import Walk, error_of
from snncell.nn.dataflow import kind_of, name_of_cell, refuse_hooks


def to_nir(
    net: Annotated[Cell, Own()],
    dt: Positive,
    input_shape: Annotated[Any, Own()],
    *,
    method: str | None = None,
    lossy: bool = False,
) -> Any:
    """A Cell on (T, B, ...) as a graph of NIR, which `nir.write(path, graph)` writes to a file.

    It is the net in prediction: dropout does nothing, and batch normalisation is folded into the weights before it. The
    Cell is a `SequentialCell`, one of your own whose `construct` calls its Cells and adds what they give, or what
    `from_nir` made: that keeps its names, and every number that has not been changed.

    A neuron whose step keeps k of its potential has tau = dt / (1 - k), or -dt / ln(k) with method="exponential", by
    which `from_nir` with the same dt and method has the same steps. dt, method, reset and comparison are in the
    metadata.

    Args:
        net: the Cell.
        dt: seconds of a step.
        input_shape: of one sample at one step, (N,) or (C, H, W), without time and batch.
        method: by which readers make steps of the equations: "euler", as other frameworks do, or "exponential"; left
            out, the method that a net of `from_nir` was read by, or "euler".
        lossy: write what NIR has no words for as what is nearest to it. `losses(graph)` says what that was.

    Returns:
        an `nir.NIRGraph`.

    Raises:
        NirError: for what NIR cannot say, by its path in the net, with what lossy=True would write; without the package
            nir.

    Example:
        >>> net = nn.SequentialCell(nn.Dense(3, 2), nn.MultiStep(nn.LIFNode(tau=10.0, reset="zero")))
        >>> graph = snncell.nir.to_nir(net, dt=1e-3, input_shape=3)
        >>> print(sorted(graph.nodes), graph.nodes["1"].tau)
        ['0', '1', 'input', 'output'] [0.01 0.01]
    """
    nir = package("nir", "to_nir")
    if not isinstance(net, Cell):
        raise ArgumentError(f"to_nir: net is a Cell, not {came(net)}.")
    _refuse_hooks(net)
    shape = _shape(input_shape)
    if method is not None:
        one_of(method, METHODS, "to_nir", "method")
    otherwise = cast(Net, net).choices.method if kind_of(net) is Net else "euler"
    walk = Walk(Writer(float(dt), method or otherwise))
    graph = walk.graph(net, shape)
    shapes = walk.check(graph)
    if walk.writer.lost and not lossy:
        lines = "\n".join(f"- {text}" for text in walk.writer.lost)
        raise NirError(f"to_nir: some of the net cannot be said in NIR; lossy=True writes what is named last.\n{lines}")
    graph.metadata |= {"writer": "snncell", "dt": float(dt), "method": walk.writer.method}
    graph.metadata.pop("lost", None)
    if walk.writer.lost:
        graph.metadata["lost"] = "\n".join(walk.writer.lost)
    return write_graph(graph, shapes, nir)


def losses(graph: Any) -> list[str]:
    """The losses of a graph that `to_nir` has written with lossy=True, in words, one for each place.

    Args:
        graph: an `nir.NIRGraph`, also one that was read from a file.

    Example:
        >>> net = nn.MultiStep(nn.LIFNode())  # its reset subtracts
        >>> [text.partition(":")[0] for text in snncell.nir.losses(snncell.nir.to_nir(net, 1e-3, 2, lossy=True))]
        ['the net (LIFNode) subtracts the threshold at a spike']
    """
    text = (getattr(graph, "metadata", None) or {}).get("lost", "")
    text = text.decode("utf8", "replace") if isinstance(text, bytes) else text
    return text.split("\n") if text else []


def _shape(given: Any) -> Shape:
    axes = given if isinstance(given, (tuple, list)) else (given,)
    if not axes or any(isinstance(n, bool) or not isinstance(n, (int, np.integer)) or n < 1 for n in axes):
        raise ArgumentError(f"to_nir: input_shape is that of a sample at one step, (N,) or (C, H, W), not {given!r}.")
    return tuple(int(n) for n in axes)


def _refuse_hooks(net: Cell) -> None:
    """Raise for a network with hooks, or one that computes with other numbers than its Parameters hold."""
    refuse_hooks(net, error_of, "and NIR has no words for that")
    for path, cell in net.cells_and_names():
        if cell.quantisers is not None:
            raise error_of(
                f"{name_of_cell(path, cell)} is quantised, which NIR has no words for. quantise.restore("
                f"copy.deepcopy(net), rounded=True) is the network with its weights on their grids."
            )
