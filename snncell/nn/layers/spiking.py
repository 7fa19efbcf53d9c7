"""Layers for spiking networks: SEW residual blocks, synaptic filters, axonal delays, winner-take-all."""

from __future__ import annotations

import math
from typing import Annotated, Any, ClassVar, Literal

import numpy as np

from snncell import dtype as dtypes, ops
from snncell.base.arguments.kinds import Constant, Count, FloatDtype
from snncell.base.arguments.shown import show
from snncell.cell.cell import Cell
from snncell.cell.constants import Ranged
from snncell.cell.fields import field, with_fields
from snncell.cell.ranges import DECAY, Range
from snncell.common.initializer import Init, initializer
from snncell.errors import ArgumentError, ShapeError
from snncell.nn.time.axis import check_time_axis
from snncell.ops.gathering import hot
from snncell.tape.parameter import Parameter
from snncell.tape.tensor import Tensor

__all__ = ["AxonalDelay", "SEWBlock", "SynapseFilter", "WinnerTakeAll"]


@with_fields
class SEWBlock(Cell):
    """Spike-element-wise (SEW) residual block: joins the spikes of a branch and a shortcut element by element.

        a = branch(x),  s = shortcut(x) or x
        y = a + s           connect="ADD"; y is 0, 1 or 2
        y = a s             connect="AND"
        y = (1 - a) s       connect="IAND"

    Use it for deep networks: with ADD and IAND a silent branch gives the identity, so gradients keep their size.
    Inputs: x: spikes, of any shape that branch and shortcut accept.
    Source: Fang, Yu, Chen, Huang, Masquelier and Tian, "Deep Residual Learning in Spiking Neural Networks", 2021.
    Example:
        >>> block = nn.SEWBlock(nn.SequentialCell(nn.Dense(3, 3), nn.MultiStep(nn.LIFNode())))
        >>> block(ops.ones((8, 4, 3))).shape  # (T, B, N)
        (8, 4, 3)
    """

    branch: Annotated[Cell, field(meaning="a Cell that ends with spiking neurons")]
    connect: str = field("ADD", ("ADD", "AND", "IAND"), "the function that joins a and s")
    shortcut: Cell | None = field(None, meaning="a Cell of spikes too, needed if the branch changes shapes", quiet=True)

    def construct(self, x: Tensor) -> Tensor:
        a: Tensor = self.branch(x)
        s: Tensor = x if self.shortcut is None else self.shortcut(x)
        if a.shape != s.shape:
            other = "the shortcut" if self.shortcut is not None else "x; pass a shortcut that changes the shape as well"
            raise ShapeError(f"SEWBlock: the branch returns {a.shape}, which does not fit {s.shape} of {other}.")
        if self.connect == "ADD":
            return a + s
        return a * s if self.connect == "AND" else (1.0 - a) * s


def _time_constant(tau: Constant) -> Any:
    """Convert `tau`, one number or several, to an array."""
    try:
        values = np.asarray(tau, np.float64)
    except (TypeError, ValueError, OverflowError):
        values = np.zeros(0)
    if isinstance(tau, bool) or not (values.size and np.isfinite(values).all() and (values > 0).all()):
        raise ArgumentError(f"SynapseFilter: tau must be a time constant above 0, in steps, not {show(tau)}.")
    return values


_LOGIT = Range(-80.0, 80.0, "both")  # range of the logit of a decay factor


class SynapseFilter(Ranged, Cell):
    """Exponential synapse: a low-pass filter, in which each spike raises a current that decays.

        i[t] = d i[t-1] + x[t],               d = exp(-1 / tau)
        i[t] = d i[t-1] + (1 - d) x[t]        scale_input=True; the long-term mean of i is that of x

    Use it to smooth spikes before a readout, or between layers. It solves tau di/dt = -i exactly between spikes. Run
    it by `MultiStep`. With `learnable`, the Parameter is w with d = sigmoid(w), and `tau` is the present time constant.

    convention="spikingjelly" reproduces SpikingJelly's layer of this name: an Euler step in which the current does not
    decay when a spike arrives. With `learnable`, its Parameter is w with 1 / tau = sigmoid(w).

        i[t] = i[t-1] - (1 - x[t]) i[t-1] / tau + x[t]

    Args:
        tau: time constant in steps, above 0: one number, or an array such as (N,) or (C, 1, 1), which broadcasts.
        learnable: whether to train the time constant.
        scale_input: whether to multiply the input by 1 - d; not available with convention="spikingjelly".
        convention: "exact", or "spikingjelly", which needs tau above 1.
    Inputs: x, i: the input and the state, of the same shape.
    Returns: (i, i).
    Source: Gerstner, Kistler, Naud and Paninski, "Neuronal Dynamics", 2014, section 3.1; SpikingJelly, SynapseFilter.
    Example:
        >>> spikes = Tensor([1.0, 0.0, 0.0]).reshape((3, 1))
        >>> print(nn.MultiStep(nn.SynapseFilter(tau=1.0))(spikes).asnumpy()[:, 0].round(4))
        [1.     0.3679 0.1353]
    """

    w: Any = None
    decay: Any = None
    ranges: ClassVar = {"w": _LOGIT, "decay": DECAY}

    def __init__(
        self,
        tau: Constant = 2.0,
        learnable: bool = False,
        scale_input: bool = False,
        dtype: FloatDtype = dtypes.float32,
        convention: Literal["exact", "spikingjelly"] = "exact",
    ) -> None:
        super().__init__()
        taus = _time_constant(tau)
        self.scale_input, self.convention = scale_input, convention
        if self.euler and (scale_input or not (taus > 1.0).all()):
            what = "does not support scale_input=True" if scale_input else f"needs tau above 1, not {tau!r}"
            raise ArgumentError(f'SynapseFilter: convention="spikingjelly" {what}.')
        if self.euler:
            logit, fixed = -np.log(taus - 1.0), 1.0 - 1.0 / taus  # 1 / tau = sigmoid(w)
        else:
            # log(d / (1 - d)) by expm1, because 1 - d loses precision for a large tau
            logit, fixed = -1.0 / taus - np.log(-np.expm1(-1.0 / taus)), np.exp(-1.0 / taus)
        if learnable:
            self.w = Parameter(Tensor(np.clip(logit, _LOGIT.low, _LOGIT.high), dtype))
        else:
            self.decay = float(fixed) if taus.ndim == 0 else Tensor(fixed, dtype)

    @property
    def euler(self) -> bool:
        """True for the Euler step of SpikingJelly."""
        return self.convention == "spikingjelly"

    def kept(self) -> Any:
        """The decay factor of a step without a spike: d, or 1 - 1 / tau."""
        if self.w is None:
            return self.decay
        return ops.sigmoid(-self.w if self.euler else self.w)

    @property
    def tau(self) -> Any:
        """The time constant in steps, as a NumPy array (0-d if all neurons share it)."""
        factor = self.kept()
        decay = np.asarray(factor.asnumpy() if isinstance(factor, Tensor) else factor, np.float64)
        return 1.0 / (1.0 - decay) if self.euler else -1.0 / np.log(decay)

    def construct(self, x: Tensor, i: Tensor) -> tuple[Tensor, Tensor]:
        decay = self.kept()
        if self.euler:
            after = i - (1.0 - x) * i * (1.0 - decay) + x
        else:
            after = i * decay + (x * (1.0 - decay) if self.scale_input else x)
        return after, after

    def extend_repr(self) -> str:
        shown = f"learnable={self.w is not None}, scale_input={self.scale_input}"
        return shown + (f", convention={self.convention!r}" if self.euler else "")


@with_fields
class AxonalDelay(Cell):
    """Learned axonal delays: shift each channel by its own number of time steps.

        y[t, :, c] = (1 - f) x[t - n, :, c] + f x[t - n - 1, :, c],  with delay d_c = n + f, n integer, 0 <= f < 1

    Use it for temporal patterns, such as speech, which networks with delays learn more easily. x counts as 0 before the
    first step. An integer delay moves spikes unchanged; any other delay splits a spike between two neighbouring steps.

    The gradient of y[t] with respect to d is x[t - n - 1] - x[t - n]. At an integer delay y has a kink, and this is the
    derivative towards longer delays (towards shorter ones at `max_delay`). Delays are clipped to [0, max_delay]. A
    delay outside of this range has the gradient of the nearer end, so that the optimiser can move it back.
    Inputs: x: (T, B, C, ...).
    Source: Shrestha and Orchard, "SLAYER: Spike Layer Error Reassignment in Time", NeurIPS 2018 (axonal delays);
    Hammouamri, Khalfaoui-Hassani and Masquelier, ICLR 2024 (interpolation between steps, by kernels).
    Example:
        >>> delay = nn.AxonalDelay(2, max_delay=3, delay_init=Tensor([0.0, 1.5]))
        >>> delay(ops.ones((4, 1, 2)))[:, 0].asnumpy().tolist()
        [[1.0, 0.0], [1.0, 0.5], [1.0, 1.0], [1.0, 1.0]]
    """

    num_features: Annotated[Count, field(meaning="C")]
    max_delay: Annotated[Count, field(meaning="the longest delay, in steps")]
    delay_init: Init | None = field(
        None, meaning="initial delays in steps, (C,), all in [0, max_delay]; None draws them uniformly", keep=False
    )
    learnable: bool = field(True, meaning="whether to train the delays", keep=False)
    dtype: FloatDtype = field(dtypes.float32, meaning="dtype of the delays", keep=False)

    def _complete(self, given: dict[str, Any]) -> None:
        shape, longest, dtype = (self.num_features,), self.max_delay, given["dtype"]
        if given["delay_init"] is None:
            start = ops.uniform(shape, 0.0, float(longest), dtypes.as_dtype(dtype))
        else:
            start = initializer(given["delay_init"], shape, dtype)
        if not ((start >= 0.0).asnumpy() & (start <= longest).asnumpy()).all():
            raise ArgumentError(
                f"AxonalDelay: delays must be in [0, max_delay={longest}], but delay_init has values from "
                f"{start.asnumpy().min():g} to {start.asnumpy().max():g}."
            )
        self.delay = Parameter(start, requires_grad=given["learnable"])

    def construct(self, x: Tensor) -> Tensor:
        if x.ndim < 3 or x.shape[2] != self.num_features:
            raise ShapeError(
                f"{self!r}: the input must be (T, B, {self.num_features}, ...), with the channels on axis 2, but has "
                f"shape {x.shape}."
            )
        check_time_axis(x, "AxonalDelay")
        if not x.dtype.is_float:
            x = x.astype(self.delay.dtype)  # spikes as bytes or booleans
        limited = ops.clip(ops.stop_gradient(self.delay), 0.0, float(self.max_delay))
        whole = ops.minimum(ops.floor(limited), float(self.max_delay - 1))
        share = limited - whole + (self.delay - ops.stop_gradient(self.delay))  # gradient 1, also out of the range
        share = share.astype(x.dtype).reshape((-1, 1, *(1,) * (x.ndim - 2)))
        late = self._delayed_inputs(x, whole.astype(dtypes.int64))  # (C, T + 1, B, ...)
        delayed: Tensor = late[:, 1:] * (1.0 - share) + late[:, :-1] * share
        return delayed.transpose((1, 2, 0, *range(3, x.ndim)))

    def _delayed_inputs(self, x: Tensor, whole: Tensor) -> Tensor:
        """Gather x[t - n - 1] for t from 0 to T, with n = whole[c] for each channel c: (C, T + 1, B, ...)."""
        steps = x.shape[0] + self.max_delay
        begun = ops.pad(x, (*(0, 0) * (x.ndim - 1), self.max_delay, 0))  # silence before the first step
        lines = begun.transpose((2, 0, 1, *range(3, x.ndim)))
        first = ops.arange(self.num_features) * steps + (self.max_delay - 1) - whole
        rows = first.reshape((-1, 1)) + ops.arange(x.shape[0] + 1)
        return ops.gather(ops.flatten(lines, 0, 1), rows)


@with_fields
class WinnerTakeAll(Cell):
    """Winner-take-all (k-WTA): keep the k largest elements along an axis at each step, and set the others to 0.

    Use it for competition between neurons or channels. Of equal elements the first win, so that exactly k remain. By
    default only the winners have a gradient, which is the derivative if no elements are equal. With `straight_through`,
    the gradient of all finite elements is 1, so that losers learn too.
    Inputs: x: potentials, currents or spikes, (T, B, ...), or one step of them.
    Source: Makhzani and Frey, NeurIPS 2015; Maass, "On the Computational Power of Winner-Take-All", 2000.
    Example:
        >>> print(nn.WinnerTakeAll(2)(Tensor([0.3, 0.9, 0.1, 0.4])).asnumpy())
        [0.  0.9 0.  0.4]
    """

    k: Count = field(1, meaning="the number of winners, at most the length of the axis")
    axis: int = field(-1, meaning="the axis of the competition; time and batch are axes 0 and 1")
    straight_through: bool = field(False, meaning="whether losers have a gradient too")

    def construct(self, x: Tensor) -> Tensor:
        axis = self.axis + x.ndim if self.axis < 0 else self.axis
        if not 0 <= axis < x.ndim or x.shape[axis] < self.k:
            raise ShapeError(
                f"{self!r}: an input of shape {x.shape} has fewer than {self.k} elements along axis {self.axis}."
            )
        wins = self._find_winners(ops.stop_gradient(x if x.dtype.is_float else x.astype(dtypes.float32)), axis)
        winners = ops.select(wins, x, 0)
        if not self.straight_through:
            return winners
        passed = ops.select(ops.isfinite(x), x, 0)  # inf - inf would be NaN
        out: Tensor = ops.stop_gradient(winners) + (passed - ops.stop_gradient(passed))
        return out

    def _find_winners(self, x: Tensor, axis: int) -> Tensor:
        """True for the k largest elements, found one by one."""
        wins = ops.zeros_like(x, dtypes.bool_)
        for _ in range(self.k):
            left = ops.select(wins, -math.inf, x)
            # If all remaining elements are -inf, distinguish them from the winners, which are also set to -inf.
            equal = ops.equal(ops.max(left, axis, True), -math.inf)
            left = ops.select(equal, ops.logical_not(wins).astype(x.dtype), left)
            first = hot(ops.argmax(left, axis), x.shape[axis], axis, "WinnerTakeAll: winner")
            wins = ops.logical_or(wins, first.astype(dtypes.bool_))
        return wins
