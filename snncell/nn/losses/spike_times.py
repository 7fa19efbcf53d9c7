"""Differentiable spike times, losses of spike times, and the van Rossum distance."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any

from snncell import ops
from snncell.base.arguments.kinds import Count, ExtendedReal, NotNegative, Numbers, Positive, Reduction, Share
from snncell.cell.cell import Cell
from snncell.cell.fields import as_number, field, with_fields
from snncell.errors import ArgumentError, ShapeError
from snncell.nn.layers.spiking import SynapseFilter
from snncell.nn.losses.spikes import FOR_SAMPLES, ClassLoss, CrossEntropyOverTime
from snncell.nn.losses.standard import CLASS_WEIGHT, SMOOTHING, ReducibleLoss
from snncell.nn.time.axis import length_mask, step_mask, step_numbers, steps_per_sample, zero_after_end
from snncell.nn.time.multistep import MultiStep
from snncell.ops.base import as_tensor
from snncell.tape.tensor import Tensor

__all__ = [
    "CETemporalLoss", "FirstSpikeLoss", "FirstSpikeTime", "MSETemporalLoss", "SmoothSpikeCount", "SpikeTimes",
    "VanRossumLoss",
]  # fmt: skip


# --- spike times ------------------------------------------------------------------------------------------------------


@with_fields
class FirstSpikeTime(Cell):
    """Differentiable time of each neuron's first spike, in steps from 0: (T, ...) -> (...).

        t_f = min {t : s[t] > 0}, or `silent` without a spike
        d t_f / d s[t] = -1 at t = min(t_f, T - 1), 0 elsewhere

    Use it for temporal codes, in which early spikes mean strong evidence. The time is a step function of the spikes, so
    its gradient is custom: more output at the spike makes it earlier. A silent neuron gets its gradient at the last
    step, because otherwise it would never start to fire.
    Inputs: spikes: floats (T, ...); a value above 0 is a spike.
    Raises: ArgumentError if silent is below T - 1; ShapeError for spikes without steps.
    Source: the temporal losses of snnTorch (mse_temporal_loss, ce_temporal_loss).
    Example:
        >>> spikes = Tensor([[0.0, 0.0], [1.0, 0.0], [1.0, 0.0]])  # the second neuron is silent
        >>> value, gradient = value_and_grad(lambda s: nn.FirstSpikeTime()(s).sum())(spikes)
        >>> value.item(), gradient.tolist()
        (3.0, [[0.0, 0.0], [-1.0, 0.0], [0.0, -1.0]])
    """

    silent: ExtendedReal | None = field(None, meaning="time of a silent neuron, at least T - 1; None is T - 1")

    def construct(self, spikes: Tensor) -> Tensor:
        last = _last_step(spikes, "FirstSpikeTime")
        silent = float(last if self.silent is None else self.silent)
        if not silent >= last:
            raise ArgumentError(
                f"FirstSpikeTime: silent={self.silent!r} is before the last of {last + 1} steps; it must be at least "
                f"{last}."
            )
        return ops.min(ops.select(ops.greater(spikes, 0.0), step_numbers(spikes), silent), 0)

    def bprop(self, spikes: Tensor, out: Tensor, dout: Tensor) -> tuple[Tensor]:
        at_spike = ops.equal(step_numbers(spikes), ops.minimum(out, spikes.shape[0] - 1.0))
        return (ops.select(at_spike, -dout, 0.0),)


@with_fields
class SpikeTimes(Cell):
    """Differentiable times of each neuron's first spikes, in steps from 0: (T, ...) -> (count, ...).

    Like `FirstSpikeTime`, for n = 1 ... count: d t_n / d s[t] = -1 at t = t_n, else 0. Missing spikes count as T - 1.
    Inputs, Raises: as for `FirstSpikeTime`.
    Source: the temporal losses of snnTorch with multi_spike, which lose spikes: for each spike that they find, they
    remove all spikes of this time step, also those of other neurons and samples.
    Example:
        >>> nn.SpikeTimes(2)(Tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])).tolist()
        [[1.0, 2.0], [3.0, 3.0]]
    """

    count: Annotated[Count, field(meaning="the number of spikes per neuron")]

    def construct(self, spikes: Tensor) -> Tensor:
        last = float(_last_step(spikes, "SpikeTimes"))
        fired = ops.greater(spikes, 0.0)
        number = ops.select(fired, ops.cumsum(fired.astype(spikes.dtype), 0), 0.0)  # 1 at the first spike, 2, ...
        ordinals = ops.arange(1, self.count + 1, dtype=spikes.dtype).reshape((self.count, *(1,) * spikes.ndim))
        return ops.min(ops.select(ops.equal(number, ordinals), step_numbers(spikes), last), 1)

    def bprop(self, spikes: Tensor, out: Tensor, dout: Tensor) -> tuple[Tensor]:
        at_spike = ops.equal(step_numbers(spikes), out.expand_dims(1))
        return (ops.select(at_spike, -dout.expand_dims(1), 0.0).sum(0),)


@with_fields
class SmoothSpikeCount(Cell):
    """Smooth spike count of a window of time, with exact gradients of spike times: (B, N, K) -> (B, N).

        n = sum_k sigmoid((window - t_k) / width),   dn / dt_k = -s_k (1 - s_k) / width,   s_k the k-th term

    Use it for losses of spike counts after layers that return spike times, such as `EventPropLIF`. The exact gradient
    of a true count is 0, because it is piecewise constant. The smooth count decreases as a spike moves beyond the end
    of the window, and becomes the true count for a small width. You can use n as scores of `CrossEntropyLoss` or logits
    of `MSELoss`. For losses of trains (T, B, N), n.expand_dims(0) is a train of one step.

    - Only spikes within some widths of the end have a gradient. A width of a tenth to a third of the window works well.
    - n jumps where a spike appears or disappears because the potential only just reaches the threshold. Its gradient
      does not include this jump.
    - A missing spike has the time inf, counts 0 and has no gradient. `bump_weights` wakes silent neurons.
    - K must be larger than the counts that you want, because n is at most K. Leave out `t_max` of the layer, or set it
      to at least window + 5 width, because n jumps where a spike crosses t_max.
    Inputs: times: spike times (B, N, K), inf for no spike.
    Example:
        >>> times = Tensor([[[2.0, 10.0, float("inf")]]])  # two spikes, the second at the end of the window
        >>> count = nn.SmoothSpikeCount(window=10.0, width=1.0)
        >>> print(count(times).asnumpy().round(3))
        [[1.5]]
        >>> print(grad(lambda t: count(t).sum())(times).asnumpy().round(3))  # a later spike counts less
        [[[-0.   -0.25 -0.  ]]]
    """

    window: Annotated[Positive, field(meaning="the end of the window, in the unit of the times", convert=as_number)]
    width: Annotated[Positive, field(meaning="the width of the sigmoid, in the unit of the times", convert=as_number)]

    def construct(self, times: Tensor) -> Tensor:
        times = as_tensor(times, "SmoothSpikeCount")
        if times.ndim != 3:
            raise ShapeError(
                f"SmoothSpikeCount: times must be (B, N, K), as of nn.EventPropLIF(..., spikes=K), but have shape "
                f"{times.shape}. To count the spikes of a train (T, B, N), use snncell.encode.spike_count."
            )
        return ops.sigmoid((self.window - times) / self.width).sum(2)


def _last_step(spikes: Tensor, who: str) -> int:
    """Return T - 1; raise a ShapeError for spikes without steps."""
    if spikes.ndim == 0 or not spikes.shape[0]:
        raise ShapeError(f"{who}: spikes must be (T, ...) with at least one step, but have shape {spikes.shape}.")
    return spikes.shape[0] - 1


def times_until_end(spike_time: Cell, spikes: Tensor, lengths: Any) -> Tensor:
    """Spike times within the valid steps of each sample; missing spikes count as its last step."""
    if lengths is None:
        times: Tensor = spike_time(spikes)
        return times
    who = type(spike_time).__name__
    counts = as_tensor(lengths, who)
    valid = length_mask(spikes, counts, who)
    last = ops.logical_and(valid, ops.logical_not(step_mask(spikes, counts - 1)))
    closing = ops.select(last, spikes, 0.0).sum(0, keepdims=True)  # move each sample's last step to T - 1
    times = spike_time(ops.concat([spikes[:-1], closing]))
    late: Tensor = times - ops.minimum(times, steps_per_sample(spikes, counts) - 1.0)
    moved: Tensor = times - ops.stop_gradient(late)
    return moved


# --- losses -----------------------------------------------------------------------------------------------------------


@with_fields
class CETemporalLoss(CrossEntropyOverTime):
    """Cross entropy of first-spike times: CE(-t_f, y), or CE(1 / (t_f + 1), y).

    Use it if the neuron that fires first is the answer of a classifier (time-to-first-spike coding). t_f is
    `FirstSpikeTime`. A silent neuron counts as firing at the last step of its sample, and gets its gradient there.
    Inputs, Raises: as for `CERateLoss`.
    Source: ce_temporal_loss of snnTorch.
    Example:
        >>> spikes = Tensor([[[0.0, 0.0]], [[1.0, 0.0]], [[0.0, 1.0]]])  # first spikes at 1 and 2
        >>> round(nn.CETemporalLoss()(spikes, Tensor([0])).item(), 4)  # log(1 + e^-1)
        0.3133
    """

    inverse: str = field("negate", ("negate", "reciprocal"), "the logits, -t_f or 1 / (t_f + 1)")
    weight: Numbers | None = CLASS_WEIGHT
    label_smoothing: Share = SMOOTHING
    reduction: Reduction = FOR_SAMPLES

    def _complete(self, given: dict[str, Any]) -> None:
        self.first_spike_time = FirstSpikeTime()

    def construct(self, outputs: Tensor, labels: Tensor, lengths: Any = None) -> Tensor:
        return self.of_times(times_until_end(self.first_spike_time, self.outputs(outputs, lengths), lengths), labels)

    def of_times(self, times: Tensor, labels: Tensor, end: float | None = None) -> Tensor:
        """The loss of first-spike times (B, C) in any unit, for layers that compute times, such as `EventPropLIF`.

        The time of a silent neuron is inf. With "reciprocal" its logit is 0. With "negate" its probability is 0, so the
        loss is inf if it is the label's neuron, but never NaN. If you pass `end`, all later times count as `end`:
        of_times(times, labels, end) = of_times(ops.minimum(times, end), labels).

        Train `EventPropLIF` by `FirstSpikeLoss` instead, which skips samples with a silent label neuron. Here, also
        with `end`, such a sample would only make the other neurons spike later, because silent neurons of
        `EventPropLIF` have no gradient.
        """
        if end is not None:
            times = ops.minimum(times, end)
        if self.inverse == "reciprocal":
            return self.likelihood(ops.log_softmax(1.0 / (times + 1.0), 1), labels)
        silent = ops.equal(times, math.inf)
        latest = ops.stop_gradient(ops.max(ops.select(silent, 0.0, times), 1, True))
        log_p = ops.log_softmax(-ops.select(silent, latest + 1e3, times), 1)  # e^-1000 is 0 even in float64
        if not self.label_smoothing:  # avoid 0 times -inf, which is NaN
            silent = ops.logical_and(silent, ops.greater(self.one_hot(labels, log_p), 0.0))
        return self.likelihood(ops.select(silent, -math.inf, log_p), labels)

    def extend_repr(self) -> str:
        return f"inverse={self.inverse!r}, {super().extend_repr()}"


@with_fields
class FirstSpikeLoss(ClassLoss):
    """Cross entropy of exact first-spike times (time to first spike, TTFS), for layers such as `EventPropLIF`.

        each = -log(exp(-t_y / tau) / sum_c exp(-t_c / tau)) + early (exp(t_y / tau_early) - 1)
        loss = mean of each over the samples whose label neuron y spikes

    Use it if the neuron that fires first is the answer of a classifier. The second term is a regulariser that makes the
    label neuron spike early, so that a later update can delay the spike without losing it.

    A sample with a silent label neuron does not count. A silent neuron has no gradient, so the loss of such a sample
    could only make the other neurons spike later, until they are silent too. If no sample of a batch counts, the loss
    is inf and its gradient 0: raise the weights, for example by `bump_weights`.

    The defaults suit times in ms between 0 and about 60, with time constants of neurons of 5 to 20 ms. Beyond
    t_y = 10 tau_early, the exponential of the regulariser continues as a straight line, so that it cannot overflow.
    Inputs:
        times: spike times (B, C), or (B, C, K); only the earliest of K counts; inf for no spike.
        labels: integers (B,) in [0, C).
    Source: Goeltz et al., "Fast and energy-efficient neuromorphic deep learning with first-spike times", Nature Machine
    Intelligence 2021, equation 3; the defaults are those of Wunderlich and Pehle, Scientific Reports 11, 2021.
    Example:
        >>> times = Tensor([[5.0, 6.0], [float("inf"), 6.0]])  # the label neuron of the second sample is silent
        >>> loss = nn.FirstSpikeLoss(tau=1.0, early=0.0)
        >>> round(loss(times, Tensor([0, 0])).item(), 4)  # log(1 + e^-1), of the first sample alone
        0.3133
        >>> print(grad(lambda t: loss(t, Tensor([0, 0])))(times).asnumpy().round(3))
        [[ 0.269 -0.269]
         [ 0.     0.   ]]
    """

    tau: Positive = field(0.5, meaning="time constant of the softmax, in the unit of the times", convert=as_number)
    early: float = field(0.003, meaning="weight of the regulariser; 0 turns it off", convert=as_number)
    tau_early: Positive = field(6.4, meaning="time constant of the regulariser", convert=as_number)
    reduction: Reduction = field("mean", meaning='"mean", "sum" or "none", which returns (B,), 0 where it skips')

    def _complete(self, given: dict[str, Any]) -> None:
        if not self.early >= 0.0:
            raise ArgumentError(f"FirstSpikeLoss: early must be at least 0, not {self.early!r}.")
        self.entropy = CETemporalLoss(reduction="none")

    def construct(self, times: Tensor, labels: Tensor) -> Tensor:
        times = as_tensor(times, "FirstSpikeLoss")
        if times.ndim not in (2, 3) or 0 in times.shape:
            raise ShapeError(
                f"FirstSpikeLoss: times must be (B, C) or (B, C, K), as of nn.EventPropLIF, but have shape "
                f"{times.shape}."
            )
        if (shape := as_tensor(labels, "FirstSpikeLoss").shape) != times.shape[:1]:
            raise ShapeError(
                f"FirstSpikeLoss: times of a batch of {times.shape[0]} need labels of shape ({times.shape[0]},), one "
                f"class number for each sample, not of shape {shape}."
            )
        first = times if times.ndim == 2 else ops.min(times, 2)
        own = ops.select(ops.greater(self.one_hot(labels, first), 0.0), first, 0.0).sum(1)
        spiked = ops.not_equal(own, math.inf)  # True for NaN, which must not look like a silent neuron
        late = ops.select(spiked, own, 0.0) / self.tau_early
        capped = ops.minimum(late, LATEST)
        each = self.entropy.of_times(first / self.tau, labels)
        each = each + self.early * (ops.exp(capped) * (1.0 + late - capped) - 1.0)
        each = ops.select(spiked, each, 0.0)
        if self.reduction != "mean":
            return self.reduced(each)
        count = spiked.astype(each.dtype).sum()
        return ops.select(ops.greater(count, 0.0), each.sum() / ops.maximum(count, 1.0), math.inf)

    def extend_repr(self) -> str:
        return f"tau={self.tau}, early={self.early}, tau_early={self.tau_early}, {super().extend_repr()}"


LATEST = 10.0  # in units of tau_early: the regulariser is a straight line beyond it


@with_fields
class MSETemporalLoss(ClassLoss):
    """Squared error of spike times relative to T: mean ((t_f - target) / T)^2.

    Use it to train spike times, t_f = `FirstSpikeTime`. A silent neuron has the time T - 1 and its gradient there.
    Inputs:
        outputs: spikes (T, B, C).
        targets: class numbers, integers (B,); or times in steps, (B, C) or (F, B, C).
        lengths: as for `CERateLoss`. T is then the number of steps of the sample.
    Source: mse_temporal_loss of snnTorch. There, off_target=-1 acts as 0, and spikes are lost (see `SpikeTimes`).
    Example:
        >>> spikes = Tensor([[[0.0, 0.0]], [[1.0, 0.0]], [[0.0, 1.0]], [[0.0, 0.0]]])  # first spikes at 1 and 2
        >>> nn.MSETemporalLoss()(spikes, Tensor([0])).item()  # ((1 / 4)^2 + ((2 - 3) / 4)^2) / 2
        0.0625
    """

    on_target: float | Sequence[float] = field(
        0.0, meaning="time of the label's neuron for class numbers; negative times count from the end", keep=False
    )
    off_target: float | Sequence[float] = field(
        -1.0,
        meaning="target time of the other neurons; the default -1 is T - 1, so they can also be silent. Pass sequences "
        "of one length F for both to set the times of the first F spikes",
        keep=False,
    )
    tolerance: NotNegative = field(0.0, meaning="errors below this number of steps cost nothing")
    reduction: Reduction = field("mean", meaning='"mean", "sum" or "none", which returns (B, C), or (F, B, C)')

    def _complete(self, given: dict[str, Any]) -> None:
        targets = on_target, off_target = given["on_target"], given["off_target"]
        self.spike_time: Cell = FirstSpikeTime()
        if all(isinstance(target, (int, float)) for target in targets):
            self.wanted = [targets]
            return
        on, off = (list(target) if isinstance(target, Sequence) else [] for target in targets)
        if len(on) != len(off) or not on:
            raise ArgumentError(
                f"MSETemporalLoss: on_target and off_target must be two numbers, or two sequences of one length with a "
                f"time for each spike, not {on_target!r} and {off_target!r}."
            )
        self.wanted = list(zip(on, off, strict=True))
        self.spike_time = SpikeTimes(len(on))

    def construct(self, outputs: Tensor, targets: Tensor, lengths: Any = None) -> Tensor:
        times = times_until_end(self.spike_time, self.outputs(outputs, lengths), lengths)
        steps = outputs.shape[0] if lengths is None else steps_per_sample(outputs, lengths).reshape((-1, 1))
        return self.of_times(times, targets, steps)

    def of_times(self, times: Tensor, targets: Tensor, steps: Count | Tensor) -> Tensor:
        """The loss of spike times (B, C) or (F, B, C); `steps` is T, or one number per sample, (B, 1).

        A silent neuron, whose time is inf, has the loss inf. You can pass ops.minimum(times, steps - 1) to count it as
        a spike at the end. It then has no gradient, and the gradients of the other neurons stay the same.
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
                f"MSETemporalLoss: targets must be class numbers {times.shape[-2:-1]}, or times {times.shape}, not of "
                f"shape {targets.shape}."
            )
        target = targets.astype(times.dtype)
        return ops.select(ops.less(target, 0.0), target + steps, target)

    def extend_repr(self) -> str:
        return f"(on, off)={self.wanted}, tolerance={self.tolerance}, {super().extend_repr()}"


@with_fields
class VanRossumLoss(ReducibleLoss):
    """Van Rossum distance of spike trains: the squared difference of the trains, filtered by an exponential kernel.

        D^2 = (1 / tau) sum_t (f[t] - g[t])^2
        f[t] = sum_{u <= t} s[u] e^(-(t - u) / tau), and g likewise for the target

    Use it to train whole spike trains. A short tau compares single spikes, a long tau compares counts. An extra spike
    costs c = (1 / tau) / (1 - e^(-2 / tau)), about 1 / 2 for a long tau; a spike that is d steps late costs
    2 c (1 - e^(-d / tau)). Near the end spikes cost less, because the last step truncates the kernel.
    Inputs: outputs, targets: spikes (T, B, ...), of the same shape; lengths: as for `CERateLoss`.
    Source: van Rossum, "A Novel Spike Distance", Neural Computation 2001; SpikeTime of lava-dl is its mean over time.
    Example:
        >>> spikes, target = Tensor([[1.0], [0.0], [0.0]]), Tensor([[0.0], [0.0], [0.0]])
        >>> round(nn.VanRossumLoss(tau=2.0)(spikes, target).item(), 4)  # (1 + e^-1 + e^-2) / 2
        0.7516
    """

    tau: Positive = field(10.0, meaning="time constant of the kernel in steps", convert=as_number)
    reduction: Reduction = field("mean", meaning='"mean" or "sum" over the trains, or "none", which returns (B, ...)')

    def _complete(self, given: dict[str, Any]) -> None:
        self.blur = MultiStep(SynapseFilter(self.tau))

    def construct(self, outputs: Tensor, targets: Tensor, lengths: Any = None) -> Tensor:
        other = as_tensor(targets, "VanRossumLoss").astype(outputs.dtype)
        if outputs.shape != other.shape or outputs.ndim < 2 or not outputs.shape[0]:
            raise ShapeError(
                f"VanRossumLoss: outputs and targets must have one shape (T, B, ...), with at least one step, not "
                f"{outputs.shape} and {other.shape}."
            )
        blurred = self.blur(zero_after_end(outputs - other, lengths, "VanRossumLoss"))
        return self.reduced(zero_after_end(ops.square(blurred), lengths, "VanRossumLoss").sum(0) / self.tau)

    def extend_repr(self) -> str:
        return f"tau={self.tau}"
