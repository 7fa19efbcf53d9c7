"""Layers that know of time: dropout over (T, B, C, ...), and delays."""

from __future__ import annotations

from snncell import dtype as dtypes, ops
from snncell.base.arguments.kinds import Count, FloatDtype, Probability
from snncell.cell.cell import Cell
from snncell.common.initializer import Init, initializer
from snncell.errors import ArgumentError, ShapeError
from snncell.nn.dropout import Dropout
from snncell.nn.layer import positive
from snncell.nn.sequences import runs_over
from snncell.tape.parameter import Parameter
from snncell.tape.tensor import Tensor

# --- dropout ----------------------------------------------------------------------------------------------------------


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
        runs_over(x, type(self).__name__)
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


# --- delays -----------------------------------------------------------------------------------------------------------


class AxonalDelay(Cell):
    """Delays each channel by a number of steps of its own, which is learned.

    y[t, :, c] = (1 - f) x[t - n, :, c] + f x[t - n - 1, :, c],  with d_c = n + f, n whole and 0 <= f < 1

    and x is 0 before it begins. A delay of whole steps moves spikes as they are; one in between shares a spike among
    the two neighbouring steps. The gradient is that of this formula: of y[t] with respect to d it is
    x[t - n - 1] - x[t - n], to the right at whole steps (to the left at `max_delay`). Delays are limited to
    [0, max_delay]; one that an optimiser has moved out of it has the gradient of the edge, and so comes back.

    Args:
        num_features: C.
        max_delay: the longest delay, in steps.
        delay_init: how the delays begin, in steps: a number, a Tensor (C,) or an initializer; by default evenly spread
            over [0, max_delay].
        learnable: whether they are trained.

    Inputs:
        x: (T, B, C, ...).

    Raises:
        ArgumentError: for a delay_init out of range.
        ShapeError: for an input with another number of channels.

    Source: Shrestha and Orchard, "SLAYER: Spike Layer Error Reassignment in Time", NeurIPS 2018 (axonal delays);
    interpolation between steps as Hammouamri, Khalfaoui-Hassani and Masquelier, ICLR 2024, do with kernels.

    Example:
        >>> delay = nn.AxonalDelay(2, max_delay=3, delay_init=Tensor([0.0, 1.5]))
        >>> delay(ops.ones((4, 1, 2)))[:, 0].asnumpy().tolist()
        [[1.0, 0.0], [1.0, 0.5], [1.0, 1.0], [1.0, 1.0]]
    """

    def __init__(
        self,
        num_features: Count,
        max_delay: Count,
        delay_init: Init | None = None,
        learnable: bool = True,
        dtype: FloatDtype = dtypes.float32,
    ) -> None:
        super().__init__()
        self.num_features = positive(num_features, "AxonalDelay", "num_features")
        self.max_delay = positive(max_delay, "AxonalDelay", "max_delay")
        shape = (num_features,)
        if delay_init is None:
            start = ops.uniform(shape, 0.0, float(max_delay), dtypes.as_dtype(dtype))
        else:
            start = initializer(delay_init, shape, dtype)
        if not ((start >= 0.0).asnumpy() & (start <= max_delay).asnumpy()).all():
            raise ArgumentError(
                f"AxonalDelay: delays lie in [0, max_delay={max_delay}], but delay_init gives "
                f"{start.asnumpy().min():g} to {start.asnumpy().max():g}."
            )
        self.delay = Parameter(start, requires_grad=learnable)

    def construct(self, x: Tensor) -> Tensor:
        if x.ndim < 3 or x.shape[2] != self.num_features:
            raise ShapeError(
                f"{self!r}: the input has shape {x.shape}; it takes (T, B, {self.num_features}, ...), with a delay for "
                f"each channel on axis 2."
            )
        runs_over(x, "AxonalDelay")
        if not x.dtype.is_float:
            x = x.astype(self.delay.dtype)  # spikes as bytes or booleans
        limited = ops.clip(ops.stop_gradient(self.delay), 0.0, float(self.max_delay))
        whole = ops.minimum(ops.floor(limited), float(self.max_delay - 1))
        share = limited - whole + (self.delay - ops.stop_gradient(self.delay))  # the gradient is 1, beyond the edge too
        share = share.astype(x.dtype).reshape((-1, 1, *(1,) * (x.ndim - 2)))
        late = self._late(x, whole.astype(dtypes.int64))  # (C, T + 1, B, ...)
        delayed: Tensor = late[:, 1:] * (1.0 - share) + late[:, :-1] * share
        return delayed.transpose((1, 2, 0, *range(3, x.ndim)))

    def _late(self, x: Tensor, whole: Tensor) -> Tensor:
        """x[t - n - 1] for t from 0 to T, of each channel c with n = whole[c]: (C, T + 1, B, ...)."""
        steps = x.shape[0] + self.max_delay
        begun = ops.pad(x, (*(0, 0) * (x.ndim - 1), self.max_delay, 0))  # silence before the first step
        lines = begun.transpose((2, 0, 1, *range(3, x.ndim)))
        first = ops.arange(self.num_features) * steps + (self.max_delay - 1) - whole
        rows = first.reshape((-1, 1)) + ops.arange(x.shape[0] + 1)
        return ops.gather(ops.flatten(lines, 0, 1), rows)

    def extend_repr(self) -> str:
        return f"num_features={self.num_features}, max_delay={self.max_delay}"
