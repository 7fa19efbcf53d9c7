"""The recording of one call of a network, layer by layer."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from snncell.errors import RecordError, ShapeError
from snncell.tape.tensor import Tensor

Array = np.ndarray[Any, Any]
Spec = tuple[tuple[int, ...], Any]  # shape and dtype


class Series:
    """The pieces of one quantity of one layer: runs over time, or single steps."""

    def __init__(self) -> None:
        self.pieces: dict[int, tuple[Array, Tensor]] = {}  # by where they begin: the numbers of the steps, (steps, ...)
        self._lowest: int | None = None

    def add(self, begun: int, steps: Array, x: Tensor) -> None:
        """Add a piece."""
        self.pieces[begun] = steps, x

    def add_backwards(self, begun: int, steps: Array, x: Tensor) -> None:
        """Add a piece of a gradient, which comes backwards: what begins again takes the place of what is there."""
        if self._lowest is not None and begun >= self._lowest:
            self.pieces.clear()
        self._lowest = begun
        self.add(begun, steps, x)

    def _in_order(self) -> list[tuple[Array, Tensor]]:
        return [self.pieces[begun] for begun in sorted(self.pieces)]

    def array(self, name: str) -> Array:
        """All of it, (T, ...)."""
        arrays = [x.asnumpy() for _, x in self._in_order()]
        if len({array.shape[1:] for array in arrays}) > 1:
            raise ShapeError(
                f"monitor: {name!r} was called with steps of shapes {', '.join(str(a.shape[1:]) for a in arrays[:3])} "
                f"in one call of the network, so there is no one record of it. Give each layer a neuron of its own."
            )
        return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)

    def steps(self) -> Array:
        """The numbers of the steps."""
        return np.concatenate([steps for steps, _ in self._in_order()])


class Inputs(NamedTuple):
    """Inputs of a layer with weights, in one of its calls.

    Attributes:
        share: how many each of its rows stands for, where not every step is recorded.
        x: the inputs, (*steps, ..., *features).
        steps: the lengths of the loops over time that it was called in.
        every: which of the steps of the innermost loop were recorded.
    """

    share: float
    x: Tensor
    steps: tuple[int, ...]
    every: int = 1


class Update(NamedTuple):
    """Shapes and dtypes of a neuron's step.

    Attributes:
        cell: the neuron.
        steps: how many steps each of its calls is of: 1, or as many as the whole sequences have.
        sequence: whether it takes whole sequences, whose first axis is time.
        inputs: shape and dtype of each argument: the current, (B, ...), and the states.
        output: shape and dtype of what it gives.
        states: shape and dtype of each state that it returns.
    """

    cell: Any
    steps: int
    sequence: bool
    inputs: tuple[Spec, ...]
    output: tuple[Spec, ...]
    states: tuple[Spec, ...]

    @property
    def samples(self) -> int:
        """The samples of a step."""
        shape = self.inputs[0][0][self.sequence :]
        return shape[0] if shape else 1

    @property
    def neurons(self) -> int:
        """The neurons that a step updates, of all samples: as many as it has outputs, or else inputs."""
        given = self.inputs[0][0][self.sequence :]
        made = self.output[0][0][self.sequence :] if self.output else given
        return math.prod(made if made[:1] == given[:1] else given)


class RecordedCall:
    """One call of the network: kind -> layer -> what was recorded."""

    def __init__(self) -> None:
        self.series: dict[str, dict[str, Series]] = {}
        self.inputs: dict[str, list[Inputs]] = {}  # of layers with weights
        self.updates: dict[str, tuple[Update, int]] = {}  # of neurons: the last of their calls, and all their steps
        self.order: dict[str, None] = {}  # the names of both, as they were called
        self.lengths: dict[str, Tensor] = {}  # of Cells that were given some, by their path
        self.counts: dict[str, int] = {}  # how many steps each layer has made

    def visit(self, name: str, steps: int) -> int:
        """Count steps of a layer; how many there were before."""
        begun = self.counts.get(name, 0)
        self.counts[name] = begun + steps
        return begun

    def add(self, kind: str, name: str, begun: int, steps: Array, x: Tensor) -> None:
        """Add a piece, which is of a run that begins at step `begun`."""
        series = self.series.setdefault(kind, {}).setdefault(name, Series())
        (series.add_backwards if kind == "grad" else series.add)(begun, steps, x)

    def lengths_of(self, name: str) -> Array | None:
        """The number of steps of each sample of a layer, (B,), by the innermost Cell around it that has some."""
        around = [path for path in self.lengths if not path or f"{name}.".startswith(f"{path}.")]
        if not around:
            return None
        counts = self.lengths[max(around, key=len)].asnumpy()
        return counts if counts.ndim == 1 and counts.dtype.kind in "iu" else None

    def forget(self) -> None:
        """Keep nothing; a tape may still know this call, for its gradients."""
        self.series, self.inputs, self.lengths, self.updates, self.order = {}, {}, {}, {}, {}


def missing(kind: str, name: Any) -> str:
    """That a quantity of a layer was not recorded."""
    return f"no {kind} of {name!r:.60} {'were' if kind == 'spikes' else 'was'} recorded."


class Recorded(Mapping[str, Array]):
    """One quantity of each layer that it was recorded of, as arrays (T, B, ...)."""

    def __init__(
        self,
        kind: str,
        series: dict[str, Series],
        resolve: Callable[[Any], str],
        why: Callable[[Any], str],
        there: Callable[[str], Array | None],
    ) -> None:
        self._kind, self._series, self._resolve, self._why, self._there = kind, series, resolve, why, there

    def __getitem__(self, name: Any) -> Array:
        layer = self._resolve(name)
        if layer not in self._series:
            raise RecordError(f"monitor: {missing(self._kind, name)} {self._why(layer)}")
        array = self._series[layer].array(layer)
        there = self._there(layer) if self._kind == "spikes" else None
        if there is None:
            return array
        return np.where(there.reshape(*there.shape, *(1,) * (array.ndim - 2)), array, array.dtype.type(0))

    def before_end(self, name: Any) -> Array | None:
        """The steps (T, B) of a layer that are before the end of their sample; None where no lengths are known."""
        return self._there(self._resolve(name))

    def __iter__(self) -> Iterator[str]:
        return iter(self._series)

    def __len__(self) -> int:
        return len(self._series)

    def __repr__(self) -> str:
        parts = [f"{name}: {self[name].dtype}{list(self[name].shape)}" for name in self]
        return f"{self._kind} of {{{', '.join(parts)}}}"
