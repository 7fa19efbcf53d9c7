"""Dropout."""

from __future__ import annotations

from typing import Annotated

from snncell import ops
from snncell.base.arguments.guard import ByName
from snncell.base.arguments.kinds import FloatDtype, Probability
from snncell.cell.cell import Cell
from snncell.dtype import float32
from snncell.errors import ArgumentError, ShapeError
from snncell.tape.tensor import Tensor, snapshot


def _which(keep_prob: float) -> str:
    """The words of the warning for a number in the first place."""
    if keep_prob == 0.5:
        return ""
    dropped = round(1.0 - keep_prob, 12)
    return (
        f"Dropout: the first argument is keep_prob, as MindSpore's is: Dropout({keep_prob:g}) drops {dropped:.4g} of "
        f"the elements. Write Dropout(p={dropped:g}) for that, and Dropout(p={keep_prob:g}) to drop {keep_prob:.4g}."
    )


class Dropout(Cell):
    """In training, each element is 0 with probability p, and the others are divided by 1 - p; else nothing.

    Args:
        keep_prob: 1 - p, as MindSpore's first argument is; give it by name, for a number in its place is often meant
            for p, of which an ArgumentWarning tells.
        p: the probability of dropping; if given, `keep_prob` does not count.
        dtype: accepted, for it makes no difference: the output is of the input's.

    Example:
        >>> nn.Dropout(p=0.2)(ops.ones(3)).asnumpy().tolist()  # in prediction
        [1.0, 1.0, 1.0]
    """

    def __init__(
        self,
        keep_prob: Annotated[Probability, ByName(_which)] = 0.5,
        p: Probability | None = None,
        dtype: FloatDtype = float32,
    ) -> None:
        super().__init__()
        self.p = 1.0 - keep_prob if p is None else p
        self._kept = p is None  # which of the two it was made by, and is shown by
        if not 0.0 <= self.p <= 1.0:
            raise ArgumentError(f"{type(self).__name__}: the probability of dropping lies in [0, 1], not {self.p!r}.")

    def construct(self, x: Tensor) -> Tensor:
        if not self.training:
            return snapshot(x)
        return ops.dropout(x, float(self.p), self.shared_axes(x))

    def shared_axes(self, x: Tensor) -> tuple[int, ...]:
        """The axes along which elements are dropped together."""
        return ()

    def extend_repr(self) -> str:
        return f"keep_prob={1.0 - self.p:.12g}" if self._kept else f"p={self.p}"


class Dropout2d(Dropout):
    """In training, each channel of (N, C, H, W) is 0 with probability p, the others are divided by 1 - p."""

    def __init__(self, p: Probability = 0.5) -> None:
        super().__init__(p=p)

    def shared_axes(self, x: Tensor) -> tuple[int, ...]:
        """All after the channels."""
        return tuple(range(2, x.ndim))


class Dropout1d(Dropout):
    """In training, each channel of (N, C, L) or (C, L) is 0 with probability p, the others are divided by 1 - p."""

    def __init__(self, p: Probability = 0.5) -> None:
        super().__init__(p=p)

    def shared_axes(self, x: Tensor) -> tuple[int, ...]:
        """The last."""
        if x.ndim not in (2, 3):
            raise ShapeError(f"{self!r}: takes (N, C, L) or (C, L), the shape is {x.shape}.")
        return (x.ndim - 1,)
