"""What was recorded of one call of a network, layer by layer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from snncell.errors import RecordError, ShapeError
from snncell.tape.tensor import Tensor

Array = np.ndarray[Any, Any]


class Series:
    """The pieces of one quantity of one layer: runs over time, or single steps, in the order of time."""

    def __init__(self) -> None:
        self.pieces: list[tuple[Array, Tensor]] = []  # the numbers of the steps, and (steps, ...)

    def add(self, steps: Array, x: Tensor, first: bool) -> None:
        """Add a piece: at the end, or, as gradients come, at the beginning."""
        self.pieces.insert(0 if first else len(self.pieces), (steps, x))

    def array(self, name: str) -> Array:
        """All of it, (T, ...)."""
        arrays = [x.asnumpy() for _, x in self.pieces]
        if len({array.shape[1:] for array in arrays}) > 1:
            raise ShapeError(
                f"monitor: {name!r} was called with steps of shapes {', '.join(str(a.shape[1:]) for a in arrays[:3])} "
                f"in one call of the network, so there is no one record of it. Give each layer a neuron of its own."
            )
        return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)

    def steps(self) -> Array:
        """The numbers of the steps."""
        return np.concatenate([steps for steps, _ in self.pieces])


class Call:
    """One call of the network: kind -> layer -> what was recorded."""

    def __init__(self) -> None:
        self.series: dict[str, dict[str, Series]] = {}
        self.inputs: dict[str, list[tuple[int, Tensor]]] = {}  # of layers with weights: how many steps each stands for
        self.visits: dict[str, int] = {}  # how often each layer was called
        self.counts: dict[tuple[str, str], int] = {}  # how many steps of each quantity have come

    def add(self, kind: str, name: str, steps: Array, x: Tensor) -> None:
        """Add a piece."""
        self.series.setdefault(kind, {}).setdefault(name, Series()).add(steps, x, kind == "grad")

    def room_for_gradient(self, name: str) -> bool:
        """Whether a piece of a gradient can be of this call: a call of the layer has none yet."""
        series = self.series.get("grad", {}).get(name)
        return (0 if series is None else len(series.pieces)) < self.visits.get(name, 0)


class Recorded(Mapping[str, Array]):
    """One quantity of each layer that it was recorded of, as arrays (T, B, ...).

    Args:
        kind: the quantity.
        series: of each layer.
        resolve: the name of the layer that somebody means.
        why: why nothing was recorded, and the mend.
    """

    def __init__(
        self, kind: str, series: dict[str, Series], resolve: Callable[[Any], str], why: Callable[[Any], str]
    ) -> None:
        self._kind, self._series, self._resolve, self._why = kind, series, resolve, why

    def __getitem__(self, name: Any) -> Array:
        found = self._resolve(name)
        if found not in self._series:
            raise RecordError(f"monitor: no {self._kind} of {name!r:.60} was recorded. {self._why(found)}")
        return self._series[found].array(found)

    def __iter__(self) -> Iterator[str]:
        return iter(self._series)

    def __len__(self) -> int:
        return len(self._series)

    def __repr__(self) -> str:
        parts = [f"{name}: {self[name].dtype}{list(self[name].shape)}" for name in self]
        return f"{self._kind} of {{{', '.join(parts)}}}"
