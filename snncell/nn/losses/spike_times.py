"""Spike times with gradients, losses of them, and the van Rossum distance of spike trains."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any

from snncell import ops
from snncell.base.arguments.kinds import Count, Extended, Numbers, Positive, Reduction, Share
from snncell.cell.cell import Cell
from snncell.cell.fields import as_number, field, with_fields
from snncell.errors import ArgumentError, ShapeError
from snncell.nn.layers.spiking import SynapseFilter
from snncell.nn.losses.spikes import FOR_SAMPLES, ClassLoss, CrossEntropyOverTime
from snncell.nn.losses.standard import CLASS_WEIGHT, SMOOTHING, ReducibleLoss
from snncell.nn.time.axis import length_mask, step_mask, steps_per_sample, zero_after_end
from snncell.nn.time.multistep import MultiStep
from snncell.ops.base import as_tensor
from snncell.tape.tensor import Tensor, beside

__all__ = ["CETemporalLoss", "FirstSpikeTime", "MSETemporalLoss", "SpikeTimes", "VanRossumLoss"]


# --- spike times ------------------------------------------------------------------------------------------------------


@with_fields
class FirstSpikeTime(Cell):
    """The step of each neuron's first spike: (T, ...) -> (...), from 0; a silent neuron counts as firing at the end.

    t_f = min {t : s[t] > 0}, or `silent` without a spike;
    bprop: d t_f / d s[t] = -1 at t = min(t_f, T - 1), 0 elsewhere.

    The time is a step function of the spikes, so its gradient is custom: more output where the neuron fired makes it
    fire earlier. A silent neuron has its gradient at the last step; nothing else could wake it.

    Inputs:
        spikes: (T, ...), floats; a spike is above 0.

    Raises:
        ArgumentError: for a silent below T - 1.
        ShapeError: for spikes without steps.

    Source: the temporal losses of snnTorch (mse_temporal_loss, ce_temporal_loss).

    Example:
        >>> spikes = Tensor([[0.0, 0.0], [1.0, 0.0], [1.0, 0.0]])  # the second neuron is silent
        >>> value, gradient = value_and_grad(lambda s: nn.FirstSpikeTime()(s).sum())(spikes)
        >>> value.item(), gradient.tolist()
        (3.0, [[0.0, 0.0], [-1.0, 0.0], [0.0, -1.0]])
    """

    silent: Extended | None = field(
        None, meaning="time of a neuron without spikes, at least T - 1; if it is None, T - 1"
    )

    def construct(self, spikes: Tensor) -> Tensor:
        last = _last_step(spikes, "FirstSpikeTime")
        silent = float(last if self.silent is None else self.silent)
        if not silent >= last:
            raise ArgumentError(
                f"FirstSpikeTime: silent={self.silent!r} would be before the last of {last + 1} steps; it is at least "
                f"{last}."
            )
        return ops.min(ops.select(ops.greater(spikes, 0.0), _step_numbers(spikes), silent), 0)

    def bprop(self, spikes: Tensor, out: Tensor, dout: Tensor) -> tuple[Tensor]:
        there = ops.equal(_step_numbers(spikes), ops.minimum(out, spikes.shape[0] - 1.0))
        return (ops.select(there, -dout, 0.0),)


@with_fields
class SpikeTimes(Cell):
    """The steps of each neuron's first spikes: (T, ...) -> (count, ...), from 0; those that are missing count as T - 1.

    As `FirstSpikeTime` for the n-th spike, n = 1 ... count: d t_n / d s[t] = -1 at t = t_n, 0 elsewhere. Missing spikes
    all have their gradients at T - 1.

    Inputs, Raises: as for `FirstSpikeTime`.

    Source: the temporal losses of snnTorch with multi_spike, which takes away the spikes of all neurons and samples at
    a step when it has counted one there, so that others lose theirs.

    Example:
        >>> nn.SpikeTimes(2)(Tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])).tolist()
        [[1.0, 2.0], [3.0, 3.0]]
    """

    count: Annotated[Count, field(meaning="how many")]

    def construct(self, spikes: Tensor) -> Tensor:
        last = float(_last_step(spikes, "SpikeTimes"))
        fired = ops.greater(spikes, 0.0)
        number = ops.select(fired, ops.cumsum(fired.astype(spikes.dtype), 0), 0.0)  # 1 at the first spike, 2, ...
        ordinals = ops.arange(1, self.count + 1, dtype=spikes.dtype).reshape((self.count, *(1,) * spikes.ndim))
        return ops.min(ops.select(ops.equal(number, ordinals), _step_numbers(spikes), last), 1)

    def bprop(self, spikes: Tensor, out: Tensor, dout: Tensor) -> tuple[Tensor]:
        there = ops.equal(_step_numbers(spikes), out.expand_dims(1))
        return (ops.select(there, -dout.expand_dims(1), 0.0).sum(0),)


def _last_step(spikes: Tensor, who: str) -> int:
    """T - 1; a ShapeError for spikes without steps."""
    if spikes.ndim == 0 or not spikes.shape[0]:
        raise ShapeError(f"{who}: takes (T, ...) with at least one step; the shape is {spikes.shape}.")
    return spikes.shape[0] - 1


def _step_numbers(spikes: Tensor) -> Tensor:
    """0, 1, ..., T - 1 along the first axis of (T, ...)."""
    steps = spikes.shape[0]
    with beside(spikes):
        return ops.arange(steps, dtype=spikes.dtype).reshape((steps, *(1,) * (spikes.ndim - 1)))


def times_until_end(spike_time: Cell, spikes: Tensor, lengths: Any) -> Tensor:
    """Spike times within the steps of each sample; missing spikes count, and have their gradients, at its last step."""
    if lengths is None:
        times: Tensor = spike_time(spikes)
        return times
    who = type(spike_time).__name__
    counts = as_tensor(lengths, who)
    there = length_mask(spikes, counts, who)
    last = ops.logical_and(there, ops.logical_not(step_mask(spikes, counts - 1)))
    closing = ops.select(last, spikes, 0.0).sum(0, keepdims=True)  # in the place of the padding's last step
    times = spike_time(ops.concat([spikes[:-1], closing]))
    late: Tensor = times - ops.minimum(times, steps_per_sample(spikes, counts) - 1.0)
    moved: Tensor = times - ops.stop_gradient(late)
    return moved


# --- losses -----------------------------------------------------------------------------------------------------------


@with_fields
class CETemporalLoss(CrossEntropyOverTime):
    """Cross entropy of first-spike times, the earlier the better: CE(-t_f, y), or CE(1 / (t_f + 1), y).

    t_f is `FirstSpikeTime`: a silent neuron counts as firing at T - 1, and has its gradient there.

    Inputs, Raises: as for `CERateLoss`. With lengths a silent neuron counts as firing at the last step of its sample.

    Source: ce_temporal_loss of snnTorch.

    Example:
        >>> spikes = Tensor([[[0.0, 0.0]], [[1.0, 0.0]], [[0.0, 1.0]]])  # first spikes at 1 and 2
        >>> round(nn.CETemporalLoss()(spikes, Tensor([0])).item(), 4)  # log(1 + e^-1)
        0.3133
    """

    inverse: str = field("negate", ("negate", "reciprocal"), "whether the logits are -t_f or 1 / (t_f + 1)")
    weight: Numbers | None = CLASS_WEIGHT
    label_smoothing: Share = SMOOTHING
    reduction: Reduction = FOR_SAMPLES

    def _complete(self, given: dict[str, Any]) -> None:
        super()._complete(given)
        self.first_spike_time = FirstSpikeTime()

    def construct(self, outputs: Tensor, labels: Tensor, lengths: Any = None) -> Tensor:
        return self.of_times(times_until_end(self.first_spike_time, self.outputs(outputs, lengths), lengths), labels)

    def of_times(self, times: Tensor, labels: Tensor, end: float | None = None) -> Tensor:
        """The loss of first-spike times (B, C), in steps or any other unit, for a neuron that computes times.

        A silent neuron has the time inf. Without `end`, "reciprocal" takes it as 1 / (inf + 1) = 0. With "negate" it
        has the probability 0, so the loss of its own class is inf, never NaN. With `end` it counts as a spike there,
        as do all later ones: of_times(times, labels, end) = of_times(ops.minimum(times, end), labels).

        Times of `EventPropLIF` have no gradient where a neuron is silent. To train on them, leave `end` out, and mask
        samples whose label neuron is silent out of the loss, as in its example. With `end` such a sample only makes the
        other neurons later, until they are silent too.
        """
        if end is not None:
            times = ops.minimum(times, end)
        if self.inverse == "reciprocal":
            return self.likelihood(ops.log_softmax(1.0 / (times + 1.0), 1), labels)
        silent = ops.equal(times, math.inf)
        latest = ops.stop_gradient(ops.max(ops.select(silent, 0.0, times), 1, True))
        log_p = ops.log_softmax(-ops.select(silent, latest + 1e3, times), 1)  # e^-1000 is 0, also in float64
        if not self.label_smoothing:  # 0 times -inf would be NaN
            silent = ops.logical_and(silent, ops.greater(self.one_hot(labels, log_p), 0.0))
        return self.likelihood(ops.select(silent, -math.inf, log_p), labels)

    def extend_repr(self) -> str:
        return f"inverse={self.inverse!r}, {super().extend_repr()}"


@with_fields
class MSETemporalLoss(ClassLoss):
    """Squared error of first-spike times: mean ((t_f - target) / T)^2.

    t_f is `FirstSpikeTime`: a silent neuron counts as firing at T - 1, and has its gradient there.

    Inputs:
        outputs: spikes (T, B, C).
        targets: integers (B,), class numbers; or times in steps (B, C), or (F, B, C).
        lengths: as for `CERateLoss`. T is then the number of steps of the sample.

    Raises:
        ArgumentError: for a negative tolerance, or sequences of different lengths.
        ShapeError, DTypeError, ArgumentError: for targets that do not fit the outputs.

    Source: mse_temporal_loss of snnTorch, which takes its default off_target, -1, for 0, and loses spikes with
    multi_spike; see `SpikeTimes`.

    Example:
        >>> spikes = Tensor([[[0.0, 0.0]], [[1.0, 0.0]], [[0.0, 1.0]], [[0.0, 0.0]]])  # first spikes at 1 and 2
        >>> nn.MSETemporalLoss()(spikes, Tensor([0])).item()  # ((1 / 4)^2 + ((2 - 3) / 4)^2) / 2
        0.0625
    """

    on_target: float | Sequence[float] = field(
        0.0,
        meaning="for class numbers: when the label's neuron is to fire first, in steps; negative counts from the end",
        keep=False,
    )
    off_target: float | Sequence[float] = field(
        -1.0,
        meaning="when the others are; -1 is T - 1, where they may as well be silent. Both may be sequences of one "
        "length F, for the first F spikes",
        keep=False,
    )
    tolerance: float = field(0.0, meaning="times closer than this to their target, in steps, do not count")
    reduction: Reduction = field("mean", meaning='"mean", "sum" or "none", which gives (B, C), or (F, B, C)')

    def _complete(self, given: dict[str, Any]) -> None:
        super()._complete(given)
        if not self.tolerance >= 0.0:
            raise ArgumentError(f"MSETemporalLoss: tolerance is a number of steps, not {self.tolerance!r}.")
        targets = on_target, off_target = given["on_target"], given["off_target"]
        self.spike_time: Cell = FirstSpikeTime()
        if all(isinstance(target, (int, float)) for target in targets):
            self.wanted = [targets]
            return
        on, off = (list(target) if isinstance(target, Sequence) else [] for target in targets)
        if len(on) != len(off) or not on:
            raise ArgumentError(
                f"MSETemporalLoss: on_target and off_target are two numbers, or two sequences of one length, a time "
                f"for each spike; not {on_target!r} and {off_target!r}."
            )
        self.wanted = list(zip(on, off, strict=True))
        self.spike_time = SpikeTimes(len(on))

    def construct(self, outputs: Tensor, targets: Tensor, lengths: Any = None) -> Tensor:
        times = times_until_end(self.spike_time, self.outputs(outputs, lengths), lengths)
        steps = outputs.shape[0] if lengths is None else steps_per_sample(outputs, lengths).reshape((-1, 1))
        return self.of_times(times, targets, steps)

    def of_times(self, times: Tensor, targets: Tensor, steps: Count | Tensor) -> Tensor:
        """The loss of spike times (B, C), or (F, B, C), within a number of steps, or one for each sample, (B, 1).

        The loss of a silent neuron, whose time is inf, is inf. ops.minimum(times, steps - 1) counts it as a spike at
        the end. It has no gradient then, and the gradients of the other neurons stay as they are.
        """
        late = times - self._wanted(as_tensor(targets, "MSETemporalLoss"), times, steps)
        if self.tolerance:
            late = ops.select(ops.less(ops.abs(late), self.tolerance), 0.0, late)
        return self.reduced(ops.square(late / (steps if isinstance(steps, Tensor) else float(steps))))

    def _wanted(self, targets: Tensor, times: Tensor, steps: Count | Tensor) -> Tensor:
        if targets.ndim < 2:
            label = self.one_hot(targets, times if times.ndim == 2 else times[0])
            counted = [[t + steps if t < 0 else float(t) for t in pair] for pair in self.wanted]
            each = [label * (on - off) + off for on, off in counted]
            return each[0] if times.ndim == 2 else ops.stack(each)
        if targets.shape != times.shape:
            raise ShapeError(
                f"MSETemporalLoss: the outputs need class numbers {times.shape[-2:-1]}, or times {times.shape}; these "
                f"targets have shape {targets.shape}."
            )
        target = targets.astype(times.dtype)
        return ops.select(ops.less(target, 0.0), target + steps, target)

    def extend_repr(self) -> str:
        return f"(on, off)={self.wanted}, tolerance={self.tolerance}, {super().extend_repr()}"


@with_fields
class VanRossumLoss(ReducibleLoss):
    """The van Rossum distance of spike trains: the squared difference of the trains, each blurred by a decaying kernel.

    D^2 = (1 / tau) sum_t (f[t] - g[t])^2,  f[t] = sum_{u <= t} s[u] e^(-(t - u) / tau),  g of the target likewise.

    A spike too much costs c = (1 / tau) / (1 - e^(-2 / tau)), which is 1 / 2 for a long tau; one that is d steps late
    2 c (1 - e^(-d / tau)); less near the end, where the last step cuts kernels off. A short tau compares single spikes,
    a long one compares counts. The kernel is one loop over time, forward and backward.

    Inputs:
        outputs, targets: spikes (T, B, ...), of one shape.
        lengths: as for `CERateLoss`.

    Raises:
        ShapeError: if the shapes differ.

    Source: van Rossum, "A Novel Spike Distance", Neural Computation 2001; SpikeTime of lava-dl is its mean over time.

    Example:
        >>> spikes, target = Tensor([[1.0], [0.0], [0.0]]), Tensor([[0.0], [0.0], [0.0]])
        >>> round(nn.VanRossumLoss(tau=2.0)(spikes, target).item(), 4)  # (1 + e^-1 + e^-2) / 2
        0.7516
    """

    tau: Positive = field(10.0, meaning="time constant of the kernel in steps", convert=as_number)
    reduction: Reduction = field("mean", meaning='over the trains: "mean", "sum" or "none", which gives (B, ...)')

    def _complete(self, given: dict[str, Any]) -> None:
        self.blur = MultiStep(SynapseFilter(self.tau))

    def construct(self, outputs: Tensor, targets: Tensor, lengths: Any = None) -> Tensor:
        other = as_tensor(targets, "VanRossumLoss").astype(outputs.dtype)
        if outputs.shape != other.shape or outputs.ndim < 2 or not outputs.shape[0]:
            raise ShapeError(
                f"VanRossumLoss: takes two sequences of one shape, (T, B, ...) with at least one step; not "
                f"{outputs.shape} and {other.shape}."
            )
        blurred = self.blur(zero_after_end(outputs - other, lengths, "VanRossumLoss"))
        return self.reduced(zero_after_end(ops.square(blurred), lengths, "VanRossumLoss").sum(0) / self.tau)

    def extend_repr(self) -> str:
        return f"tau={self.tau}"
