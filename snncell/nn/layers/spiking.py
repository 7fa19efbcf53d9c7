"""Layers of spiking networks: residual blocks, synapses, axonal delays, winner-take-all."""

from __future__ import annotations

import math
from typing import Annotated, Any, ClassVar

import numpy as np

from snncell import dtype as dtypes, ops
from snncell.base.arguments.kinds import Constant, Count, FloatDtype, check_count
from snncell.base.arguments.shown import show
from snncell.cell.cell import Cell
from snncell.cell.fields import field, with_fields
from snncell.cell.held import Ranged
from snncell.cell.ranges import DECAY, Range
from snncell.common.initializer import Init, initializer
from snncell.errors import ArgumentError, ShapeError
from snncell.nn.time.axis import check_time_axis
from snncell.ops.gathering import hot
from snncell.tape.parameter import Parameter
from snncell.tape.tensor import Tensor

__all__ = ["AxonalDelay", "SEWBlock", "SynapseFilter", "WinnerTakeAll"]

# --- residual ---------------------------------------------------------------------------------------------------------


@with_fields
class SEWBlock(Cell):
    """Spike-element-wise (SEW) residual block: spikes of branch and shortcut, joined element by element.

    With a = branch(x) and s = x, or shortcut(x):

    y = a + s           connect="ADD": 0, 1 or 2
    y = a s             connect="AND"
    y = (1 - a) s       connect="IAND"

    A block whose branch is silent is the identity with ADD and IAND, and its gradient neither vanishes nor explodes.

    Inputs:
        x: spikes, of any shape that branch and shortcut take.

    Raises:
        ShapeError: if a and s have different shapes.

    Source: Fang, Yu, Chen, Huang, Masquelier and Tian, "Deep Residual Learning in Spiking Neural Networks", NeurIPS
    2021.

    Example:
        >>> block = nn.SEWBlock(nn.SequentialCell(nn.Dense(3, 3), nn.MultiStep(nn.LIFNode())))
        >>> block(ops.ones((8, 4, 3))).shape  # (T, B, N)
        (8, 4, 3)
    """

    branch: Annotated[Cell, field(meaning="a Cell that ends in spikes")]
    connect: str = field("ADD", ("ADD", "AND", "IAND"), "the function of a and s")
    shortcut: Cell | None = field(
        None, meaning="a Cell parallel to it, where shape or channels change; it ends in spikes too", quiet=True
    )

    def construct(self, x: Tensor) -> Tensor:
        a: Tensor = self.branch(x)
        s: Tensor = x if self.shortcut is None else self.shortcut(x)
        if a.shape != s.shape:
            mend = "the shortcut" if self.shortcut is not None else "x; give a shortcut that changes its shape as well"
            raise ShapeError(f"SEWBlock: the branch gives {a.shape}, which does not fit {s.shape} of {mend}.")
        if self.connect == "ADD":
            return a + s
        return a * s if self.connect == "AND" else (1.0 - a) * s


# --- synapse ----------------------------------------------------------------------------------------------------------


def _time_constant(tau: Constant) -> Any:
    """`tau` as an array, of one number or of several."""
    try:
        values = np.asarray(tau, np.float64)
    except (TypeError, ValueError, OverflowError):
        values = np.zeros(0)
    if isinstance(tau, bool) or not (values.size and np.isfinite(values).all() and (values > 0).all()):
        raise ArgumentError(f"SynapseFilter: tau is a time constant above 0, in steps, not {show(tau)}.")
    return values


_LOGIT = Range(-80.0, 80.0, "both")  # of a decay from 0 to 1


class SynapseFilter(Ranged, Cell):
    """Exponential synapse: each spike raises a current that decays. A Cell of one step; `MultiStep` runs it.

    i[t] = d i[t-1] + x[t],               d = exp(-1 / tau)
    i[t] = d i[t-1] + (1 - d) x[t]        with scale_input: the current's long mean is that of x

    The exact solution of tau di/dt = -i between spikes. With `learnable`, the Parameter is w, and d = sigmoid(w) stays
    between 0 and 1; `tau` gives the present time constant.

    i[t] = i[t-1] - (1 - x[t]) i[t-1] / tau + x[t]      with convention="spikingjelly"

    This is SpikingJelly's layer of the same name, for spikes: an Euler step, which rests while a spike comes in. With
    `learnable`, 1 / tau = sigmoid(w).

    Args:
        tau: in steps, above 0; a number, or an array that broadcasts to one step (B, ...) of the input, for example
            (N,) for each neuron, (C, 1, 1) for each channel.
        learnable: whether it is trained.
        scale_input: whether the input is multiplied by 1 - d; not with convention="spikingjelly".
        convention: "exact", or "spikingjelly", which takes a tau above 1.

    Inputs:
        x, i: the input and the state, of one shape.

    Returns:
        (i, i).

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
        convention: str = "exact",
    ) -> None:
        super().__init__()
        taus = _time_constant(tau)
        self.scale_input, self.convention = scale_input, convention
        if convention not in ("exact", "spikingjelly"):
            raise ArgumentError(f'SynapseFilter: convention is "exact" or "spikingjelly", not {convention!r:.200}.')
        if self.euler and (scale_input or not (taus > 1.0).all()):
            what = "does not go with scale_input" if scale_input else f"takes a tau above 1, not {tau!r}"
            raise ArgumentError(f'SynapseFilter: convention="spikingjelly" {what}.')
        if self.euler:
            logit, fixed = -np.log(taus - 1.0), 1.0 - 1.0 / taus  # 1 / tau = sigmoid(w)
        else:
            # log(d / (1 - d)) without the difference, which would be lost for a large tau
            logit, fixed = -1.0 / taus - np.log(-np.expm1(-1.0 / taus)), np.exp(-1.0 / taus)
        if learnable:
            self.w = Parameter(Tensor(np.clip(logit, _LOGIT.low, _LOGIT.high), dtype))
        else:
            self.decay = float(fixed) if taus.ndim == 0 else Tensor(fixed, dtype)

    @property
    def euler(self) -> bool:
        """True if a step is Euler's, and rests while a spike comes in."""
        return self.convention == "spikingjelly"

    def kept(self) -> Any:
        """The factor that a step without a spike keeps: d, or 1 - 1 / tau."""
        if self.w is None:
            return self.decay
        return ops.sigmoid(-self.w if self.euler else self.w)

    @property
    def tau(self) -> Any:
        """The time constant in steps, as a NumPy array (0-d if there is one for all)."""
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


# --- delays -----------------------------------------------------------------------------------------------------------


@with_fields
class AxonalDelay(Cell):
    """Axonal delays: each channel is delayed by a number of steps of its own, which is learned.

    y[t, :, c] = (1 - f) x[t - n, :, c] + f x[t - n - 1, :, c],  with d_c = n + f, n whole and 0 <= f < 1

    and x is 0 before it begins. A delay of whole steps moves spikes as they are; another one shares a spike among the
    two neighbouring steps. The gradient is that of this formula: of y[t] with respect to d it is
    x[t - n - 1] - x[t - n], to the right at whole steps (to the left at `max_delay`). Delays are limited to
    [0, max_delay]; one that an optimiser has moved out of it has the gradient of the edge, and so comes back.

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

    num_features: Annotated[Count, field(meaning="C")]
    max_delay: Annotated[Count, field(meaning="the longest delay, in steps")]
    delay_init: Init | None = field(
        None,
        meaning="how the delays begin, in steps: a number, a Tensor (C,) or an initializer; by default evenly spread "
        "over [0, max_delay]",
        keep=False,
    )
    learnable: bool = field(True, meaning="whether they are trained", keep=False)
    dtype: FloatDtype = field(dtypes.float32, meaning="of the delays", keep=False)

    def _complete(self, given: dict[str, Any]) -> None:
        shape, longest, dtype = (self.num_features,), self.max_delay, given["dtype"]
        if given["delay_init"] is None:
            start = ops.uniform(shape, 0.0, float(longest), dtypes.as_dtype(dtype))
        else:
            start = initializer(given["delay_init"], shape, dtype)
        if not ((start >= 0.0).asnumpy() & (start <= longest).asnumpy()).all():
            raise ArgumentError(
                f"AxonalDelay: delays lie in [0, max_delay={longest}], but delay_init gives "
                f"{start.asnumpy().min():g} to {start.asnumpy().max():g}."
            )
        self.delay = Parameter(start, requires_grad=given["learnable"])

    def construct(self, x: Tensor) -> Tensor:
        if x.ndim < 3 or x.shape[2] != self.num_features:
            raise ShapeError(
                f"{self!r}: the input has shape {x.shape}; it takes (T, B, {self.num_features}, ...), with a delay for "
                f"each channel on axis 2."
            )
        check_time_axis(x, "AxonalDelay")
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


# --- competition ------------------------------------------------------------------------------------------------------


@with_fields
class WinnerTakeAll(Cell):
    """Winner-take-all: keeps the k largest elements along an axis, at each step, and silences the others.

    y = x where x is among the k largest, else 0; of equal ones the first win, so exactly k do.

    The winners have their gradient and the others none, which is the derivative wherever no two elements are equal.
    With `straight_through`, all finite elements have theirs as if nothing had been silenced, so that losers learn too.

    Inputs:
        x: potentials, currents or spikes, (T, B, ...) or of one step.

    Raises:
        ShapeError: for a missing axis, or one shorter than k.

    Source: Makhzani and Frey, "Winner-Take-All Autoencoders", NeurIPS 2015; Maass, "On the Computational Power of
    Winner-Take-All", Neural Computation 2000.

    Example:
        >>> print(nn.WinnerTakeAll(2)(Tensor([0.3, 0.9, 0.1, 0.4])).asnumpy())
        [0.  0.9 0.  0.4]
    """

    k: int = field(1, meaning="how many win", convert=check_count)
    axis: int = field(-1, meaning="along which they compete; time and batch are axes 0 and 1")
    straight_through: bool = field(False, meaning="whether the losers have a gradient")

    def construct(self, x: Tensor) -> Tensor:
        axis = self.axis + x.ndim if self.axis < 0 else self.axis
        if not 0 <= axis < x.ndim or x.shape[axis] < self.k:
            raise ShapeError(f"{self!r}: an input of shape {x.shape} has no {self.k} elements along axis {self.axis}.")
        wins = self._wins(ops.stop_gradient(x if x.dtype.is_float else x.astype(dtypes.float32)), axis)
        winners = ops.select(wins, x, 0)
        if not self.straight_through:
            return winners
        passed = ops.select(ops.isfinite(x), x, 0)  # inf - inf would be NaN
        out: Tensor = ops.stop_gradient(winners) + (passed - ops.stop_gradient(passed))
        return out

    def _wins(self, x: Tensor, axis: int) -> Tensor:
        """True where an element is among the largest: the largest is taken out, k times."""
        wins = ops.zeros_like(x, dtypes.bool_)
        for _ in range(self.k):
            left = ops.select(wins, -math.inf, x)
            # Where all that are left are -inf, as are those taken out.
            equal = ops.equal(ops.max(left, axis, True), -math.inf)
            left = ops.select(equal, ops.logical_not(wins).astype(x.dtype), left)
            first = hot(ops.argmax(left, axis), x.shape[axis], axis, "WinnerTakeAll: winner")
            wins = ops.logical_or(wins, first.astype(dtypes.bool_))
        return wins
