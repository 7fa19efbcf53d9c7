"""Dropout of elements and channels, drawn for each step or once for a sequence."""

from __future__ import annotations

from typing import Annotated

from snncell import ops
from snncell.base.arguments.guard import ByName
from snncell.base.arguments.kinds import FloatDtype, Probability
from snncell.cell.cell import Cell
from snncell.dtype import float32
from snncell.errors import ShapeError
from snncell.nn.time.axis import check_time_axis
from snncell.tape.tensor import Tensor, snapshot

__all__ = ["Dropout", "Dropout1d", "Dropout2d", "TimeFixedDropout", "TimeFixedDropout2d"]


def _keep_prob_warning(keep_prob: float) -> str:
    """The warning for a first argument that may be meant as p."""
    if keep_prob == 0.5:
        return ""
    dropped = round(1.0 - keep_prob, 12)
    return (
        f"Dropout: the first argument is keep_prob, as MindSpore's is: Dropout({keep_prob:g}) drops {dropped:.4g} of "
        f"the elements. Write Dropout(p={dropped:g}) for that, and Dropout(p={keep_prob:g}) to drop {keep_prob:.4g}."
    )


class Dropout(Cell):
    """Dropout: in training, each element is 0 with probability p, and the others are divided by 1 - p.

    In prediction the output is x.

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
        keep_prob: Annotated[Probability, ByName(_keep_prob_warning)] = 0.5,
        p: Probability | None = None,
        dtype: FloatDtype = float32,
    ) -> None:
        super().__init__()
        self.p = 1.0 - keep_prob if p is None else p
        self._kept = p is None  # which of the two it was made by, and is shown by

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
    """Dropout of whole channels of (N, C, H, W).

    In training, each channel is 0 with probability p, and the others are divided by 1 - p.
    """

    def __init__(self, p: Probability = 0.5) -> None:
        super().__init__(p=p)

    def shared_axes(self, x: Tensor) -> tuple[int, ...]:
        """All after the channels."""
        return tuple(range(2, x.ndim))


class Dropout1d(Dropout):
    """Dropout of whole channels of (N, C, L) or (C, L).

    In training, each channel is 0 with probability p, and the others are divided by 1 - p.
    """

    def __init__(self, p: Probability = 0.5) -> None:
        super().__init__(p=p)

    def shared_axes(self, x: Tensor) -> tuple[int, ...]:
        """The last."""
        if x.ndim not in (2, 3):
            raise ShapeError(f"{self!r}: takes (N, C, L) or (C, L), the shape is {x.shape}.")
        return (x.ndim - 1,)


class TimeFixedDropout(Dropout):
    """Dropout of (T, B, ...) with one mask for all steps: a neuron that is dropped is silent for the whole sample.

    y[t] = m x[t] / (1 - p), where m is 0 with probability p and else 1, for each element of a sample; in prediction y
    is x. A mask that changes from step to step would average out over time instead.

    Args:
        p: the probability of dropping.

    Inputs:
        x: (T, B, ...).

    Raises:
        ArgumentError: for a probability outside of [0, 1].
        ShapeError: for an input without time and batch.

    Source: Lee, Sarwar, Panda, Srinivasan and Roy, "Enabling Spike-Based Backpropagation for Training Deep Neural
    Network Architectures", Frontiers in Neuroscience 2020.

    Example:
        >>> out = nn.TimeFixedDropout(p=0.5).set_train()(ops.ones((8, 4, 3)))
        >>> bool((out == out[0]).all())
        True
    """

    least = 2

    def __init__(self, p: Probability = 0.5) -> None:
        super().__init__(p=p)

    def shared_axes(self, x: Tensor) -> tuple[int, ...]:
        """Time, and what is dropped together with it."""
        if x.ndim < self.least:
            layout = "(T, B, ...)" if self.least == 2 else "(T, B, C, ...)"
            raise ShapeError(f"{self!r}: takes {layout}, the shape is {x.shape}.")
        check_time_axis(x, type(self).__name__)
        return (0,)


class TimeFixedDropout2d(TimeFixedDropout):
    """Dropout of whole channels of (T, B, C, H, W), the same ones at all steps; see `TimeFixedDropout`.

    y[t, b, c] = m[b, c] x[t, b, c] / (1 - p)

    Args:
        p: the probability of dropping a channel.

    Raises:
        ArgumentError: for a probability outside of [0, 1].
        ShapeError: for an input without channels.

    Source: as of `TimeFixedDropout`, with the channels of Tompson et al., CVPR 2015.
    """

    least = 3

    def shared_axes(self, x: Tensor) -> tuple[int, ...]:
        """Time, and all after the channels."""
        return (*super().shared_axes(x), *range(3, x.ndim))
