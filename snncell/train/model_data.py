"""Data sets of a Model as `train.fit` takes them: batches that can be gone through again and again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from snncell.base.arguments.shown import came, show
from snncell.errors import ArgumentError


class _Columns:
    """The batches of a data set, with the last column twice where the network takes all of them."""

    def __init__(self, source: Any, twice: bool, who: str) -> None:
        self.source, self.twice, self.who = source, twice, who

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        iterator = getattr(self.source, "create_tuple_iterator", None)
        for batch in self.source if iterator is None else iterator():
            if not isinstance(batch, (tuple, list)):
                raise ArgumentError(f"{self.who}: a batch is a tuple of columns, not {came(batch)}.")
            yield (*batch, batch[-1]) if self.twice else tuple(batch)


class _Sized(_Columns):
    """The same of data that tell how many batches there are."""

    def __len__(self) -> int:
        size = getattr(self.source, "get_dataset_size", None)
        return len(self.source) if size is None else int(size())


def columns_of(data: Any, twice: bool, who: str) -> Any:
    """A data set as `train.fit` takes it; what it takes already is left as it is, unless the last column is doubled."""
    if data is None:
        raise ArgumentError(f"{who}: there are no data.")
    own = hasattr(data, "create_tuple_iterator")
    if isinstance(data, tuple):
        return (*data, data[-1]) if twice else data
    if not own and not twice:
        return data
    if isinstance(data, type) or (not own and not hasattr(data, "__iter__")):
        raise ArgumentError(f"{who} are batches that can be gone through again and again, not {show(data)}.")
    sized = hasattr(data, "get_dataset_size") or hasattr(data, "__len__")
    return (_Sized if sized else _Columns)(data, twice, who)
