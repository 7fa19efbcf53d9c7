"""Spike-timing-dependent plasticity (STDP), and a dense layer whose weights follow a plasticity rule."""

from __future__ import annotations

import math
from typing import Annotated, Any, cast

from snncell import ops
from snncell.base.arguments.kinds import Count, FloatDtype
from snncell.cell.cell import Cell
from snncell.cell.fields import as_number, field, with_fields
from snncell.cell.ranges import Range
from snncell.common.initializer import Init, initializer
from snncell.dtype import float32
from snncell.errors import ArgumentError, ShapeError
from snncell.nn.time.multistep import initial_states
from snncell.tape.parameter import Parameter
from snncell.tape.tensor import Tensor

__all__ = ["STDP", "PlasticDense"]


STEPS = Range(0.0, text="is a number in (0, inf)")


@with_fields
class STDP(Cell):
    """Spike-timing-dependent plasticity (STDP), pair-based, with exponential traces: one time step.

        p = exp(-1 / tau_plus) x                 trace of earlier presynaptic spikes
        q = exp(-1 / tau_minus) y                trace of earlier postsynaptic spikes
        w = w + up(w) post p - down(w) q pre     post after pre strengthens, pre after post weakens
        x = p + pre                              pairing="all": each spike pairs with all earlier ones
        x = pre + (1 - pre) p                    pairing="nearest": only with the last one; y is alike, from post

        up(w) = a_plus,  down(w) = a_minus                                       bounds=None or "hard"
        up(w) = a_plus (w_max - w),  down(w) = a_minus (w - w_min)               bounds="soft"

    Use it for unsupervised local learning without gradients. With bounds="hard", w is then clipped to [w_min, w_max].
    Spikes of the same step do not pair. The change of w is the paper's, averaged over the batch.

    The weights are a state. Pass the weights of a layer to the first step, and write the last ones back by
    `ops.assign`. Or use `PlasticDense`, which starts a run with its own weights.
    Inputs:
        pre: presynaptic spikes, 0 or 1, (B, I).
        post: postsynaptic spikes, (B, N).
        weight: (N, I), as in `Dense`.
        x, y: the traces, (B, I) and (B, N); initially from `init_state(pre, post)`.
    Returns: (weight, x, y).
    Raises: ArgumentError if w_min is not below w_max; ShapeError for a weight that is not (N, I).
    Source: Morrison, Diesmann and Gerstner, "Phenomenological models of synaptic plasticity based on spike timing",
    Biological Cybernetics 2008.
    Example:
        >>> rule, w = nn.STDP(bounds="soft"), ops.full((2, 3), 0.5)
        >>> pre, post = (ops.bernoulli(ops.full((50, 1, n), 0.2)) for n in (3, 2))
        >>> start = (w, *rule.init_state(pre[0], post[0]))
        >>> (w, x, y), _ = ops.scan(lambda state, spikes: (rule(*spikes, *state), None), start, (pre, post))
        >>> w.shape
        (2, 3)
    """

    tau_plus: float = field(20.0, STEPS, "time constant of the presynaptic trace in steps (20 ms for steps of 1 ms)")
    tau_minus: float = field(20.0, STEPS, "time constant of the postsynaptic trace, in steps")
    a_plus: float = field(0.01, None, "size of an increase; negative for anti-Hebbian learning", convert=as_number)
    a_minus: float = field(0.0105, None, "size of a decrease; above a_plus, random spikes weaken w", convert=as_number)
    pairing: str = field("all", ("all", "nearest"), "the earlier spikes with which a spike pairs")
    bounds: str | None = field("hard", (None, "soft", "hard"), "effect of the bounds on the weights")
    w_min: float = field(0.0, None, "lower bound of the weights", convert=as_number, quiet=True)
    w_max: float = field(1.0, None, "upper bound of the weights", convert=as_number, quiet=True)

    def _complete(self, given: dict[str, Any]) -> None:
        if not self.w_min < self.w_max:
            raise ArgumentError(f"STDP: w_min must be below w_max, but they are {self.w_min} and {self.w_max}.")

    def construct(self, pre: Tensor, post: Tensor, weight: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        if weight.shape != (post.shape[-1], pre.shape[-1]):
            raise ShapeError(
                f"STDP: pre of shape {pre.shape} and post of shape {post.shape} need a weight of shape "
                f"{(post.shape[-1], pre.shape[-1])}, (outputs, inputs) as in Dense, not {weight.shape}."
            )
        pre, post = pre.astype(x.dtype), post.astype(y.dtype)
        p, q = x * math.exp(-1.0 / self.tau_plus), y * math.exp(-1.0 / self.tau_minus)
        samples = max(1, pre.shape[0])  # an empty batch changes nothing
        rise = ops.matmul(post.T, p) * (self.a_plus / samples)
        fall = ops.matmul(q.T, pre) * (self.a_minus / samples)
        if self.bounds == "soft":
            rise, fall = rise * (self.w_max - weight), fall * (weight - self.w_min)
        weight = weight + rise - fall
        if self.bounds == "hard":
            weight = ops.clip(weight, self.w_min, self.w_max)
        return weight, self._update_trace(p, pre), self._update_trace(q, post)

    def pair(self, pre: Tensor, post: Tensor, weight: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        """The change of each sample, (B, N, I), before the mean and hard bounds, and the new traces x and y."""
        pre, post = pre.astype(x.dtype), post.astype(y.dtype)
        p, q = x * math.exp(-1.0 / self.tau_plus), y * math.exp(-1.0 / self.tau_minus)
        rise = self.a_plus * post.expand_dims(2) * p.expand_dims(1)
        fall = self.a_minus * q.expand_dims(2) * pre.expand_dims(1)
        if self.bounds == "soft":
            rise, fall = rise * (self.w_max - weight), fall * (weight - self.w_min)
        return rise - fall, self._update_trace(p, pre), self._update_trace(q, post)

    def _update_trace(self, trace: Tensor, spike: Tensor) -> Tensor:
        return trace + spike if self.pairing == "all" else spike + (1.0 - spike) * trace

    def init_state(self, pre: Tensor, post: Tensor) -> tuple[Tensor, Tensor]:
        """Start with traces of 0."""
        x, y = (ops.zeros_like(s, s.dtype if s.dtype.is_float else float32) for s in (pre, post))
        return x, y


@with_fields
class PlasticDense(Cell):
    """Dense layer of spiking neurons that changes its weights by a plasticity rule during the run.

        out, *states = cell(x weight^T, *states)
        weight, *traces = rule(x, out, weight, *traces)

    It is a Cell of one time step, so run it by `MultiStep`. The weight is its first state: a run starts with the
    Parameter `weight`, does not change it, and returns the new weight, which you can assign, as in the example.
    Inputs:
        x: spikes, (B, I).
        weight, x_trace, y_trace: the states of the rule, (N, I), (B, I), (B, N).
        states: the states of the neuron.
    Returns: (out, weight, x_trace, y_trace, *states).
    Example:
        >>> layer = nn.PlasticDense(3, 2, nn.LIFNode(), nn.STDP())
        >>> x = ops.bernoulli(ops.full((50, 1, 3), 0.2))
        >>> spikes, (weight, *rest) = nn.MultiStep(layer, return_states=True)(x)
        >>> _ = ops.assign(layer.weight, weight)  # keep the learned weight
        >>> spikes.shape
        (50, 1, 2)
    """

    in_channels: Annotated[Count, field(meaning="I, the number of inputs", keep=False)]
    out_channels: Annotated[Count, field(meaning="N, the number of neurons", keep=False)]
    cell: Annotated[Cell, field(meaning="the neuron")]
    rule: Annotated[Cell, field(meaning="`STDP`, or a Cell with its `construct` and `init_state`")]
    weight_init: Init | None = field(
        None, meaning="initial value of the Parameter `weight`, (N, I); None draws uniformly from [0, 1)", keep=False
    )
    dtype: FloatDtype = field(float32, meaning="dtype of the Parameter", keep=False)

    def _complete(self, given: dict[str, Any]) -> None:
        shape, init, dtype = (given["out_channels"], given["in_channels"]), given["weight_init"], given["dtype"]
        drawn = ops.uniform(shape, 0.0, 1.0) if init is None else initializer(init, shape, dtype)
        self.weight = Parameter(drawn.astype(dtype), requires_grad=False)

    def construct(
        self, x: Tensor, weight: Tensor, x_trace: Tensor, y_trace: Tensor, *states: Tensor
    ) -> tuple[Tensor, ...]:
        out, *after = self.cell(ops.matmul(x, weight.T), *states)
        return (out, *self.rule(x, out, weight, x_trace, y_trace), *after)

    def init_state(self, x: Tensor) -> tuple[Tensor, ...]:
        """Start with the Parameter `weight`, traces of 0, and the neuron's own initial states."""
        current = ops.matmul(x, self.weight.T)
        return (self.weight, *cast(Any, self.rule).init_state(x, current), *initial_states(self.cell, current))
