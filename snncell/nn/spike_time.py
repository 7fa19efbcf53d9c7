"""When neurons fire: the time of the first spike with its gradient, and losses of spike times."""

from __future__ import annotations

import math
from typing import Any

from snncell import ops
from snncell.cell import Cell
from snncell.errors import ArgumentError, ShapeError
from snncell.nn.loss import _Loss
from snncell.nn.spike_loss import ClassLoss, _CrossEntropy
from snncell.nn.time import MultiStep
from snncell.ops.base import as_tensor
from snncell.tape.tensor import Tensor, beside


class FirstSpikeTime(Cell):
    """The step of each neuron's first spike: (T, ...) -> (...), from 0; a silent neuron counts as firing at the end.

    t_f = min {t : s[t] > 0}, or `silent` without a spike;
    bprop: d t_f / d s[t] = -1 at t = min(t_f, T - 1), 0 elsewhere.

    The time is a step function of the spikes, so its reverse is custom: more output where the neuron fired makes it
    fire earlier. A silent neuron has its gradient at the last step; nothing else could wake it.

    Args:
        silent: the time of a neuron without spikes, at least T - 1; by default T - 1.

    Inputs:
        spikes: (T, ...), floats; a spike is what is above 0.

    Raises:
        ArgumentError: for a silent that is no number, or is below T - 1.
        ShapeError: for spikes without steps.

    Source: the temporal losses of snnTorch (mse_temporal_loss, ce_temporal_loss).

    Example:
        >>> spikes = Tensor([[0.0, 0.0], [1.0, 0.0], [1.0, 0.0]])  # the second neuron is silent
        >>> value, gradient = value_and_grad(lambda s: nn.FirstSpikeTime()(s).sum())(spikes)
        >>> value.item(), gradient.tolist()
        (3.0, [[0.0, 0.0], [-1.0, 0.0], [0.0, -1.0]])
    """

    def __init__(self, silent: float | None = None) -> None:
        super().__init__()
        if silent is not None and (isinstance(silent, bool) or not isinstance(silent, (int, float))):
            raise ArgumentError(f"FirstSpikeTime: silent is a number of steps or None, not {silent!r}.")
        self.silent = silent

    def construct(self, spikes: Tensor) -> Tensor:
        if spikes.ndim == 0 or not spikes.shape[0]:
            raise ShapeError(f"FirstSpikeTime: takes (T, ...) with at least one step; the shape is {spikes.shape}.")
        last = spikes.shape[0] - 1
        silent = float(last if self.silent is None else self.silent)
        if not silent >= last:
            raise ArgumentError(
                f"FirstSpikeTime: silent={self.silent!r} would be before the last of {last + 1} steps; it is at least "
                f"{last}."
            )
        return ops.min(ops.select(ops.greater(spikes, 0.0), self._times(spikes), silent), 0)

    def bprop(self, spikes: Tensor, out: Tensor, dout: Tensor) -> tuple[Tensor]:
        there = ops.equal(self._times(spikes), ops.minimum(out, spikes.shape[0] - 1.0))
        return (ops.select(there, -dout, 0.0),)

    def _times(self, spikes: Tensor) -> Tensor:
        steps = spikes.shape[0]
        with beside(spikes):
            return ops.arange(steps, dtype=spikes.dtype).reshape((steps, *(1,) * (spikes.ndim - 1)))

    def extend_repr(self) -> str:
        return f"silent={self.silent}"


class CETemporalLoss(_CrossEntropy):
    """Cross entropy of first-spike times, the earlier the better: CE(-t_f, y), or CE(1 / (t_f + 1), y).

    t_f is `FirstSpikeTime`: a silent neuron counts as firing at T - 1, and has its gradient there.

    Args:
        inverse: "negate" for -t_f, "reciprocal" for 1 / (t_f + 1).
        weight: (C,), a weight for each class; the mean is then over the sum of weights.
        label_smoothing: e in [0, 1): labels are mixed with e / C for each class.
        reduction: "mean", "sum" or "none", which gives (B,).

    Inputs:
        outputs: spikes (T, B, C).
        labels: integers (B,) in [0, C).

    Raises:
        ArgumentError: for another inverse.
        ShapeError, DTypeError, ArgumentError: for labels that do not fit the outputs, naming what does not.

    Source: ce_temporal_loss of snnTorch.

    Example:
        >>> spikes = Tensor([[[0.0, 0.0]], [[1.0, 0.0]], [[0.0, 1.0]]])  # first spikes at 1 and 2
        >>> round(nn.CETemporalLoss()(spikes, Tensor([0])).item(), 4)  # log(1 + e^-1)
        0.3133
    """

    def __init__(
        self,
        inverse: str = "negate",
        weight: Any = None,
        label_smoothing: float = 0.0,
        reduction: str = "mean",
    ) -> None:
        super().__init__(None, weight, label_smoothing, reduction)
        if inverse not in ("negate", "reciprocal"):
            raise ArgumentError(f'CETemporalLoss: inverse is "negate" or "reciprocal", not {inverse!r}.')
        self.inverse = inverse
        self.first_spike_time = FirstSpikeTime()

    def construct(self, outputs: Tensor, labels: Tensor) -> Tensor:
        return self.of_times(self.first_spike_time(self.outputs(outputs)), labels)

    def of_times(self, times: Tensor, labels: Tensor) -> Tensor:
        """The loss of first-spike times (B, C)."""
        logits = -times if self.inverse == "negate" else 1.0 / (times + 1.0)
        return self.likelihood(ops.log_softmax(logits, 1), labels)


class MSETemporalLoss(ClassLoss):
    """Squared error of first-spike times: mean ((t_f - target) / T)^2.

    t_f is `FirstSpikeTime`: a silent neuron counts as firing at T - 1, and has its gradient there.

    Args:
        on_target: for class numbers: when the label's neuron is to fire first, in steps; negative counts from the end.
        off_target: when the others are; -1, the default, is T - 1, where they may as well be silent.
        tolerance: times closer than this to their target, in steps, do not count.
        reduction: "mean", "sum" or "none", which gives (B, C).

    Inputs:
        outputs: spikes (T, B, C).
        targets: integers (B,), class numbers; or times (B, C) in steps.

    Raises:
        ArgumentError: for a negative tolerance.
        ShapeError, DTypeError, ArgumentError: for targets that do not fit the outputs.

    Source: mse_temporal_loss of snnTorch, which takes its default off_target, -1, for 0.

    Example:
        >>> spikes = Tensor([[[0.0, 0.0]], [[1.0, 0.0]], [[0.0, 1.0]], [[0.0, 0.0]]])  # first spikes at 1 and 2
        >>> nn.MSETemporalLoss()(spikes, Tensor([0])).item()  # ((1 / 4)^2 + ((2 - 3) / 4)^2) / 2
        0.0625
    """

    def __init__(
        self, on_target: float = 0.0, off_target: float = -1.0, tolerance: float = 0.0, reduction: str = "mean"
    ) -> None:
        super().__init__(None, reduction)
        if not tolerance >= 0.0:
            raise ArgumentError(f"MSETemporalLoss: tolerance is a number of steps, not {tolerance!r}.")
        self.on_target, self.off_target, self.tolerance = float(on_target), float(off_target), tolerance
        self.first_spike_time = FirstSpikeTime()

    def construct(self, outputs: Tensor, targets: Tensor) -> Tensor:
        steps = outputs.shape[0]
        return self.of_times(self.first_spike_time(self.outputs(outputs)), targets, steps)

    def of_times(self, times: Tensor, targets: Tensor, steps: int) -> Tensor:
        """The loss of first-spike times (B, C) within a number of steps."""
        late = times - self._wanted(as_tensor(targets, "MSETemporalLoss"), times, steps)
        if self.tolerance:
            late = ops.select(ops.less(ops.abs(late), self.tolerance), 0.0, late)
        return self.reduced(ops.square(late / float(steps)))

    def _wanted(self, targets: Tensor, times: Tensor, steps: int) -> Tensor:
        if targets.ndim < 2:
            on, off = (t + steps if t < 0.0 else t for t in (self.on_target, self.off_target))
            return self.one_hot(targets, times) * (on - off) + off
        if targets.shape != times.shape:
            raise ShapeError(
                f"MSETemporalLoss: the outputs need class numbers {times.shape[:1]}, or times {times.shape}; these "
                f"targets have shape {targets.shape}."
            )
        wanted = targets.astype(times.dtype)
        return ops.select(ops.less(wanted, 0.0), wanted + float(steps), wanted)


class _ExponentialTrace(Cell):
    """y[t] = decay y[t-1] + x[t]."""

    def __init__(self, decay: float) -> None:
        super().__init__()
        self.decay = decay

    def construct(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        y = y * self.decay + x
        return y, y


class VanRossumLoss(_Loss):
    """The van Rossum distance of spike trains: the squared difference of the trains, each blurred by a decaying kernel.

    D^2 = (1 / tau) sum_t (f[t] - g[t])^2,  f[t] = sum_{u <= t} s[u] e^(-(t - u) / tau),  g of the target likewise.

    A spike too much costs c = (1 / tau) / (1 - e^(-2 / tau)), which is 1 / 2 for a long tau; one that is d steps late
    2 c (1 - e^(-d / tau)); less near the end, where the last step cuts kernels off. A short tau compares single spikes,
    a long one compares counts. The kernel is one loop over time, forward and backward.

    Args:
        tau: time constant of the kernel in steps, positive.
        reduction: over the trains: "mean", "sum" or "none", which gives (B, ...).

    Inputs:
        outputs, targets: spikes (T, B, ...), of one shape.

    Raises:
        ArgumentError: for a tau that is not positive.
        ShapeError: if the shapes differ.

    Source: van Rossum, "A Novel Spike Distance", Neural Computation 2001; SpikeTime of lava-dl is its mean over time.

    Example:
        >>> spikes, target = Tensor([[1.0], [0.0], [0.0]]), Tensor([[0.0], [0.0], [0.0]])
        >>> round(nn.VanRossumLoss(tau=2.0)(spikes, target).item(), 4)  # (1 + e^-1 + e^-2) / 2
        0.7516
    """

    def __init__(self, tau: float = 10.0, reduction: str = "mean") -> None:
        super().__init__(reduction)
        if isinstance(tau, bool) or not isinstance(tau, (int, float)) or not 0.0 < tau < math.inf:
            raise ArgumentError(f"VanRossumLoss: tau is a positive number of steps, not {tau!r}.")
        self.tau = float(tau)
        self.blur = MultiStep(_ExponentialTrace(math.exp(-1.0 / self.tau)))

    def construct(self, outputs: Tensor, targets: Tensor) -> Tensor:
        other = as_tensor(targets, "VanRossumLoss").astype(outputs.dtype)
        if outputs.shape != other.shape or outputs.ndim < 2 or not outputs.shape[0]:
            raise ShapeError(
                f"VanRossumLoss: takes two sequences of one shape, (T, B, ...) with at least one step; not "
                f"{outputs.shape} and {other.shape}."
            )
        return self.reduced(ops.square(self.blur(outputs - other)).sum(0) / self.tau)
