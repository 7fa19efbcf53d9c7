"""Online learning: rules for any neuron (Online), layers of e-prop and OTTT, and feedback alignment.

The layers have a `bprop` that runs forward in time: `dout` is the learning signal of a step, and traces summarise the
steps before.
"""

from __future__ import annotations

import difflib
import math
import weakref
from typing import Annotated, Any

from snncell import dtype as dtypes, ops
from snncell.base.arguments.kinds import Count, FloatDtype, Own
from snncell.base.arguments.shown import came, show
from snncell.cell.cell import Cell
from snncell.cell.constants import Ranged
from snncell.cell.fields import field, with_fields
from snncell.cell.ranges import Range
from snncell.common.initializer import Init, Normal, Uniform
from snncell.errors import ArgumentError, ShapeError
from snncell.nn.layers.linear import FAN_IN_UNIFORM, Dense, create_parameter
from snncell.nn.rules.eligibility import RULES, ThreeFactors, TracePlan, WithinStep
from snncell.nn.rules.stdp import STDP, STEPS
from snncell.nn.rules.traced_step import AbstractStep
from snncell.nn.time.axis import check_time_axis
from snncell.nn.time.multistep import MultiStep, initial_states
from snncell.surrogate import ATan
from snncell.surrogate.base import check_spike_function
from snncell.tape.parameter import Parameter
from snncell.tape.state import CHECKING
from snncell.tape.tensor import Tensor

__all__ = ["EProp", "FeedbackDense", "OTTTDense", "Online"]


def check_surrogate(value: Any, layer: Cell) -> Any:
    """The spike function of a layer; ATan for None."""
    who = type(layer).__name__
    chosen = ATan() if value is None else check_spike_function(value, who)
    learned = chosen.trainable_params()
    if learned and getattr(layer, "bprop", None) is not None:
        raise ArgumentError(
            f"{who}: surrogate_function has a trainable Parameter, {learned[0].name!r}, for which the bprop of {who} "
            f"computes no gradient. Pass a number instead, or set its requires_grad to False."
        )
    return chosen


def surrogate_spikes(surrogate: Any, distance: Tensor) -> Tensor:
    """The spikes for potentials that exceed the threshold by `distance`, in its dtype."""
    spike: Tensor = surrogate(distance).astype(distance.dtype)
    return spike


def surrogate_vjp(surrogate: Any, distance: Tensor, dout: Tensor) -> Tensor:
    """The gradient of `distance`: psi dout, with psi the surrogate's derivative and dout the gradient of the spikes."""
    _, pull = ops.vjp(lambda x: surrogate_spikes(surrogate, x), distance)
    gradient: Tensor
    (gradient,) = pull(dout)
    return gradient


def as_matrix(x: Tensor) -> Tensor:
    """Reshape (..., N) to a matrix with N columns."""
    return x.reshape((-1, x.shape[-1]))


def cast_spikes(x: Tensor, dtype: Any) -> Tensor:
    """Cast spikes to `dtype`, unless they are floats."""
    return x if x.dtype.is_float else x.astype(dtype)


def check_input(cell: Cell, x: Tensor, ndim: int, channels: int) -> None:
    """Raise a ShapeError unless x has `ndim` axes, the last of length `channels`."""
    if x.ndim != ndim or x.shape[-1] != channels:
        expected = f"({'T, ' if ndim == 3 else ''}B, {channels})"
        who = type(cell).__name__
        raise ShapeError(f"{who}: x must be {expected}, with in_channels = {channels}, but has shape {x.shape}.")


DECAY_RANGE = Range(0.0, 1.0, "low", "is a number in [0.0, 1.0)")
THRESHOLD_RANGE = Range(0.0, text="is a number above 0")
ADAPTATION = Range(0.0, closed="low", text="is a number in [0.0, inf)")
LEFT = "decay factor of the potential, exp(-dt / tau) for a membrane time constant tau"
SURROGATE = field(None, None, "the spike function, a Cell without trainable Parameters; None is ATan()", keep=False)
DTYPE = field(dtypes.float32, None, "dtype of the Parameters", keep=False)


@with_fields
class OTTTDense(Ranged, Cell):
    """Online training through time (OTTT): a dense layer of LIF neurons that learns without storing earlier steps.

        u[t] = decay v[t - 1] + W x[t] + b
        s[t] = surrogate(u[t] - v_threshold)
        v[t] = u[t] - s[t] * v_threshold
        a[t] = decay a[t - 1] + x[t]             presynaptic trace of x
        c[t] = decay c[t - 1] + 1                trace of the constant input of b

    With g[t] the incoming gradient of s[t], and psi[t] the derivative of the surrogate at u[t] - v_threshold:

        dW = sum over t of (psi[t] g[t]) a[t]^T,  db = sum over t of psi[t] g[t] c[t],  dx[t] = W^T (psi[t] g[t])

    Use it for long sequences or streams: no gradient flows through the states, so you can update the weights after each
    step, and memory holds only v, a and c. For a single layer, the gradient is that of backpropagation through time
    (BPTT) with a detached reset. Deeper networks ignore the effect of a lower layer's spike on later steps.
    `Online(cell, "OTTT")` gives the same gradient for your own neuron; this class compiles to one kernel over time.

    It is a Cell of one time step. Run it by `MultiStep` for the sum over a sequence, or step by step as in the example,
    with a memory that does not depend on T. For BPTT, disable the bprop: `class Layer(nn.OTTTDense): bprop = None`.
    Inputs: x, v, a, c: the input (B, I), the potential after the reset (B, N), the traces (B, I) and (B, N).
    Returns: (s, v, a, c).
    Source: Xiao et al., "Online Training Through Time for Spiking Neural Networks", NeurIPS 2022.
    Example:
        >>> layer = nn.OTTTDense(3, 2)
        >>> states = layer.init_state(ops.zeros((1, 3)))
        >>> for x in ops.ones((5, 1, 3)):  # a gradient at each step, and no memory of the steps before
        ...     loss = lambda x: ((out := layer(x, *states))[0].sum(), *out[1:])
        ...     gradient, states = ops.grad(loss, None, layer.weight, has_aux=True)(x)
        >>> gradient.shape
        (2, 3)
    """

    in_channels: Annotated[Count, field(meaning="I, the number of inputs")]
    out_channels: Annotated[Count, field(meaning="N, the number of neurons")]
    decay: float = field(0.5, DECAY_RANGE, LEFT)
    v_threshold: float = field(1.0, THRESHOLD_RANGE, "the neuron fires if u > v_threshold")
    weight_init: Init | None = field(None, None, "initial W, (N, I); None is uniform in +-1 / sqrt(I)", keep=False)
    bias_init: Init | None = field(None, None, "initial b, (N,); None as for W", keep=False)
    has_bias: bool = field(True, None, "whether to add b")
    surrogate_function: Any = SURROGATE
    dtype: FloatDtype = DTYPE
    bias: Parameter | None = None  # None without a bias, as in MindSpore

    def _complete(self, given: dict[str, Any]) -> None:
        in_channels, out_channels, dtype = self.in_channels, self.out_channels, given["dtype"]
        self.surrogate_function = check_surrogate(given["surrogate_function"], self)
        self.weight = create_parameter(given["weight_init"], FAN_IN_UNIFORM, (out_channels, in_channels), dtype)
        self.internal_params = [self.weight]
        if self.has_bias:
            even = Uniform(1 / math.sqrt(in_channels))
            self.bias = create_parameter(given["bias_init"], even, (out_channels,), dtype)
            self.internal_params = [self.weight, self.bias]

    def construct(self, x: Tensor, v: Tensor, a: Tensor, c: Tensor) -> tuple[Tensor, ...]:
        check_input(self, x, 2, self.in_channels)
        x = cast_spikes(x, self.weight.dtype)
        u = self.decay * v + ops.matmul(x, self.weight.T)
        if self.has_bias:
            u = u + self.bias
        s = surrogate_spikes(self.surrogate_function, u - self.v_threshold)
        v = u - self.v_threshold * ops.stop_gradient(s)
        return s, v, self.decay * a + x, self.decay * c + 1.0

    def bprop(self, x: Tensor, v: Tensor, a: Tensor, c: Tensor, out: Any, dout: Any) -> Any:
        s, v, a, c = out
        u = v + self.v_threshold * s
        du = surrogate_vjp(self.surrogate_function, u - self.v_threshold, dout[0])
        of_parameters = {self.weight: ops.matmul(du.T, a)}
        if self.bias is not None:
            of_parameters[self.bias] = (du * c).sum(0)
        dx = ops.matmul(du, self.weight) if x.dtype.is_float else None
        return (dx, None, None, None), of_parameters

    def init_state(self, x: Tensor) -> tuple[Tensor, ...]:
        """Start with a potential and traces of 0."""
        rest = ops.zeros((x.shape[0], self.out_channels), self.weight.dtype)
        return rest, ops.zeros((x.shape[0], self.in_channels), self.weight.dtype), rest

    def extend_repr(self) -> str:
        return f"input_channels={self.in_channels}, output_channels={self.out_channels}, decay={self.decay}"


def _normal(inputs: int) -> Normal:
    return Normal(1 / math.sqrt(inputs))


@with_fields
class EProp(Ranged, Cell):
    """Eligibility propagation (e-prop): a recurrent layer of adaptive LIF neurons that learns forward in time.

        v[t] = decay v[t - 1] + W x[t] + R z[t - 1] - v_threshold * z[t - 1]   R without its diagonal
        z[t] = surrogate(v[t] - v_threshold - adaptation b[t])
        b[t] = adaptation_decay * b[t - 1] + z[t - 1]                          adaptation=0: a LIF neuron

    An input i has the trace f_i[t] = decay f_i[t - 1] + x_i[t]; for a recurrent input, z_i[t - 1] replaces x_i[t]. With
    psi_j[t] the derivative of the surrogate, the synapse from i to j has the eligibility

        e_ji[t] = psi_j[t] (f_i[t] - adaptation k_ji[t])
        k_ji[t + 1] = psi_j[t] f_i[t] + (adaptation_decay - adaptation psi_j[t]) k_ji[t]

    Its gradient sums g_j[t] e_ji[t] over t, with g[t] the incoming gradient of z[t], and dx[t] = W^T (psi[t] g[t]).

    Use it as a biologically plausible alternative to backpropagation through time (BPTT). e-prop ignores the effect of
    a spike on other neurons of the layer. Without recurrent weights, BPTT with a detached reset gives the same dW and
    dR. For BPTT, disable the bprop: `class Layer(nn.EProp): bprop = None`. The readout determines the learning signal:
    `Dense` for symmetric e-prop, `FeedbackDense` for random e-prop. The paper has psi = 0.3 max(0, 1 - |x|) for
    v_threshold = 1. `Online(cell, "e-prop")` gives the same gradient for your own neuron, but stores the traces of each
    step. This class stores sequences in the shapes of x and z, and with adaptation two arrays (B, N, I + N).
    Inputs: x: (T, B, I).
    Returns: z, (T, B, N). The initial states are 0.
    Source: Bellec et al., "A solution to the learning dilemma for recurrent networks of spiking neurons", Nature
    Communications 2020.
    Example:
        >>> layer, readout = nn.EProp(3, 8, adaptation=0.2), nn.FeedbackDense(8, 2)
        >>> loss = lambda x: ops.square(readout(layer(x))).mean()
        >>> dw, dr = ops.grad(loss, None, layer.trainable_params())(ops.ones((20, 4, 3)))
        >>> dw.shape, dr.shape
        ((8, 3), (8, 8))
    """

    whole_sequences = _all_steps = True
    weights_inside = True  # its input is not the neurons' current, so monitors record only its spikes

    in_channels: Annotated[Count, field(meaning="I, the number of inputs")]
    out_channels: Annotated[Count, field(meaning="N, the number of neurons")]
    decay: float = field(0.95, DECAY_RANGE, LEFT)
    adaptation: float = field(0.0, ADAPTATION, "rise of the threshold by a spike (0 makes LIF neurons)")
    adaptation_decay: float = field(0.99, DECAY_RANGE, "decay factor of the adaptation (closer to 1 than decay)")
    v_threshold: float = field(1.0, THRESHOLD_RANGE, "the threshold without adaptation")
    weight_init: Init | None = field(None, None, "initial W, (N, I); None draws from N(0, 1 / I)", keep=False)
    recurrent_init: Init | None = field(None, None, "initial R, (N, N); None draws from N(0, 1 / N)", keep=False)
    surrogate_function: Any = SURROGATE
    dtype: FloatDtype = DTYPE

    def _complete(self, given: dict[str, Any]) -> None:
        inputs, neurons, dtype = self.in_channels, self.out_channels, given["dtype"]
        self.surrogate_function = check_surrogate(given["surrogate_function"], self)
        self.weight = create_parameter(given["weight_init"], _normal(inputs), (neurons, inputs), dtype)
        self.recurrent = create_parameter(given["recurrent_init"], _normal(neurons), (neurons, neurons), dtype)
        self.internal_params = [self.weight, self.recurrent]

    def others(self, matrix: Tensor) -> Tensor:
        """A matrix (N, N) without its diagonal."""
        return matrix * (1.0 - ops.eye(self.out_channels, dtype=matrix.dtype))

    def construct(self, x: Tensor) -> Tensor:
        check_input(self, x, 3, self.in_channels)
        check_time_axis(x, type(self).__name__)
        current = ops.matmul(cast_spikes(x, self.weight.dtype), self.weight.T)
        feedback = self.others(self.recurrent).T

        def step(state: tuple[Tensor, ...], now: Tensor) -> Any:
            v, z, b = state
            v = self.decay * v + now + ops.matmul(z, feedback) - self.v_threshold * ops.stop_gradient(z)
            b = self.adaptation_decay * b + z
            distance = v - self.v_threshold - self.adaptation * b
            z = surrogate_spikes(self.surrogate_function, distance)
            return (v, z, b), (z, distance)

        _, (z, distance) = ops.scan(step, (ops.zeros_like(current[0]),) * 3, current)
        self.save_for_bprop(distance)
        spikes: Tensor = z
        return spikes

    def bprop(self, x: Tensor, out: Tensor, dout: Tensor) -> Any:
        (distance,) = self.saved_for_bprop
        psi = surrogate_vjp(self.surrogate_function, distance, ops.ones_like(distance))
        before = ops.concat([ops.zeros_like(out[:1]), out[:-1]])
        arriving = ops.concat([cast_spikes(x, out.dtype), before], -1)  # (T, B, I + N)
        gradient = self.sum_eligibilities(arriving, psi, dout)
        of_recurrent = self.others(gradient[:, self.in_channels :])
        dx = ops.matmul(psi * dout, self.weight) if x.dtype.is_float else None
        return (dx,), {self.weight: gradient[:, : self.in_channels], self.recurrent: of_recurrent}

    def sum_eligibilities(self, arriving: Tensor, psi: Tensor, signal: Tensor) -> Tensor:
        """The sum over time and batch of signal_j e_ji, (N, I + N)."""
        _, traces = ops.scan(lambda f, now: ((f := self.decay * f + now), f), ops.zeros_like(arriving[0]), arriving)
        if not self.adaptation:
            return ops.matmul(as_matrix(signal * psi).T, as_matrix(traces))

        def step(state: tuple[Tensor, Tensor], now: tuple[Tensor, ...]) -> Any:
            k, total = state
            f, slope, g = now[0].expand_dims(1), now[1].expand_dims(2), now[2].expand_dims(2)
            total = total + g * slope * (f - self.adaptation * k)
            k = slope * f + (self.adaptation_decay - self.adaptation * slope) * k
            return (k, total), None

        begin = ops.zeros((arriving.shape[1], self.out_channels, arriving.shape[2]), psi.dtype)
        (_, total), _ = ops.scan(step, (begin, begin), (traces, psi, signal))
        summed: Tensor = total.sum(0)  # after the loop, so that the loop is elementwise and compiles to one kernel
        return summed

    def extend_repr(self) -> str:
        return (
            f"input_channels={self.in_channels}, output_channels={self.out_channels}, decay={self.decay}, "
            f"adaptation={self.adaptation}"
        )


class FeedbackDense(Dense):
    """Feedback alignment: a dense layer y = x W^T + b that uses fixed random weights B in the backward pass, dx = dy B.

    Use it after `EProp` for random e-prop, or because brains cannot transpose weights. dW and db are exact.

    Args:
        in_channels, out_channels: N and K.
        weight_init, bias_init: initial W, (K, N), and b, (K,); None draws uniformly within +-1 / sqrt(N).
        feedback_init: B, (K, N), a Parameter that is not trained; None draws from N(0, 1 / N).
        has_bias: whether to add b.
        dtype: dtype of the Parameters.
    Inputs: x: (..., N).
    Returns: y, (..., K).
    Source: Lillicrap et al., "Random synaptic feedback weights support error backpropagation for deep learning", Nature
    Communications 2016; Bellec et al. 2020, as for `EProp`.
    Example:
        >>> layer = nn.FeedbackDense(3, 2, feedback_init="ones")
        >>> snncell.grad(lambda x: layer(x).sum())(ops.ones((1, 3))).asnumpy()
        array([[2., 2., 2.]], dtype=float32)
    """

    def __init__(
        self,
        in_channels: Count,
        out_channels: Count,
        weight_init: Init | None = None,
        bias_init: Init | None = None,
        feedback_init: Init | None = None,
        has_bias: bool = True,
        dtype: FloatDtype = dtypes.float32,
    ) -> None:
        super().__init__(in_channels, out_channels, weight_init, bias_init, has_bias, dtype=dtype)
        self.feedback = create_parameter(feedback_init, _normal(in_channels), self.weight.shape, dtype)
        self.feedback.requires_grad = False
        self.internal_params = [self.weight, self.bias] if has_bias else [self.weight]

    def bprop(self, x: Tensor, out: Tensor, dout: Tensor) -> Any:
        of_parameters = {self.weight: ops.matmul(as_matrix(dout).T, as_matrix(x))}
        if self.bias is not None:
            of_parameters[self.bias] = as_matrix(dout).sum(0)
        return (ops.matmul(dout, self.feedback),), of_parameters


# Plans of each Cell. A new attribute of the Cell instead would make `snncell.jit` trace it again.
_PLANS: weakref.WeakKeyDictionary[Cell, dict[Any, TracePlan]] = weakref.WeakKeyDictionary()


@with_fields
class Online(Cell):
    """Online learning: the gradient of each time step from eligibility traces, for your own neuron.

    Your Cell computes a time step, h[t] = f(h[t - 1], x[t], theta) and out[t] = g(h[t - 1], x[t], theta). Its trace
    e[t] is the derivative of the states h[t] with respect to the Parameters theta. With the incoming gradient dout[t],
    which is the learning signal, the gradient sums over all steps

        dtheta[t] = dout[t] (dg/dtheta + dg/dh e[t - 1]),    e[t] = df/dtheta + df/dh e[t - 1]

    The derivatives come from the traced step. No gradient flows to earlier steps, so you can update the weights after
    each step, and the memory does not depend on the number of steps. The gradient of x is that of the same step. Put
    each layer of neurons into its own `Online`. Rules, and how their sum compares with BPTT:

        "RTRL", "OSTL"      all derivatives; refuses steps in which neurons affect each other.     equal for a layer
        "e-prop"            the same, without paths from neuron to neuron.    equal for a layer without recurrence
        "OTTT"              ignores spikes; all neurons have the same decay.  equal for a detached, subtracting reset
        "SLTT"              only derivatives within the step, no traces.      an approximation
        "FPTT"              as SLTT, and a pull to the weights' running mean. an approximation
        "full RTRL"         all derivatives of any Cell, for small nets.      equal
        "forward gradient"  the derivative along one random direction.       equal on average, with a large variance
        nn.STDP(...)        three factors: dout times changes of STDP.        not a gradient of the loss

    - The trace of a weight is (B, N, I), or (B, 1, I) if it is the same for all neurons. The rules of the first three
      rows need weights in `Dense` or `ops.matmul`, other Parameters in elementwise operations, and only elementwise
      operations from there to the states: for example, no normalisation over neurons. A reset is part of the
      derivatives unless the neuron detaches it. Initial states count as constants, even those of a learned `v_reset`.
    - FPTT adds alpha (theta - mean) - slope to the gradient of a step, where slope and mean are running estimates of
      gradient and weights. It needs a loss and an update in each step, so it equals SLTT in `MultiStep`.
    - "forward gradient" and STDP pass no gradient to x. For "forward gradient", put the whole net into one `Online`,
      whose `init_state` draws the direction. For STDP, the loss must contain the output of each layer.
    - For three factors with a reward r[t], use the loss -(r[t] out[t]).sum(): its descent strengthens synapses by
      reward times eligibility. An optimiser can move weights out of the bounds of STDP, so your loop must clip them.
    - `MultiStep` sums the gradients of a sequence, but stores the traces of all steps for its backward pass. Run long
      sequences step by step, as in the example.
    Inputs: x: (B, ...). states: those of `cell`, followed by the traces; initially from `init_state(x)`.
    Returns: (output, *states).
    Raises: ArgumentError for a Cell that the rule cannot learn, with the Parameter or state and the operation.
    Source: Williams and Zipser 1989 (RTRL); Bellec et al. 2020 (e-prop); Bohnstingl et al. 2022 (OSTL); Xiao et al.
    2022 (OTTT); Meng et al. 2023 (SLTT); Kag and Saligrama 2021, Yin et al. 2023 (FPTT); Baydin et al. 2022 (forward
    gradients); Fremaux and Gerstner 2016 (three factors).
    Example:
        >>> class Layer(nn.Cell):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.dense, self.neuron = nn.Dense(3, 2), nn.LIFNode()
        ...     def construct(self, x, v):
        ...         return self.neuron(self.dense(x), v)
        ...     def init_state(self, x):
        ...         return ops.zeros((x.shape[0], 2))
        >>> online = nn.Online(Layer(), "e-prop")
        >>> states = online.init_state(ops.zeros((1, 3)))
        >>> for x in ops.ones((5, 1, 3)):  # a gradient at each step, and no memory of the steps before
        ...     loss = lambda x: ((out := online(x, *states))[0].sum(), *out[1:])
        ...     gradients, states = ops.grad(loss, None, online.trainable_params(), has_aux=True)(x)
        >>> [g.shape for g in gradients]
        [(2, 3), (2,)]
    """

    weights_inside = True  # for monitors, as in EProp

    cell: Annotated[
        Any, Own(), field(meaning="a Cell of one time step, with weights: construct(x, *states) -> (output, *states)")
    ]
    rule: Annotated[Any, Own()] = field("e-prop", None, "the name of a rule, or an `nn.STDP`")
    alpha: float = field(0.5, Range(0.0), "strength of the pull of FPTT", quiet=True)
    tau_e: float = field(25.0, STEPS, "time constant of the eligibility of STDP, in steps", quiet=True)

    def _complete(self, given: dict[str, Any]) -> None:
        cell = self.cell
        one_step = not isinstance(cell, (MultiStep, Online)) and not getattr(cell, "whole_sequences", False)
        if not isinstance(cell, Cell) or not one_step:
            raise ArgumentError(
                f"Online: cell must be a Cell of one time step, construct(x, *states) -> (output, *states), not "
                f"{came(cell)}. To run over time, put the Online into a MultiStep: nn.MultiStep(nn.Online(cell))."
            )
        self._find_rule()

    def _find_rule(self) -> WithinStep:
        if isinstance(self.rule, STDP):
            return ThreeFactors("STDP", self)
        if isinstance(self.rule, str) and self.rule in RULES:
            return RULES[self.rule](self.rule, self)
        close = difflib.get_close_matches(self.rule, RULES, 1, 0.5) if isinstance(self.rule, str) else []
        hint = f" Did you mean {close[0]!r}?" if close else ""
        raise ArgumentError(
            f"Online: rule must be one of {', '.join(map(repr, RULES))}, or an nn.STDP, not {show(self.rule)}.{hint}"
        )

    def _plan(self, x: Tensor) -> TracePlan:
        """The plan for inputs of the shape and dtype of `x`; a change of a Cell makes a new one."""
        cells = tuple(cell.__dict__["version"] for _, cell in self.cells_and_names())
        learned = tuple(p.requires_grad for p in self.get_parameters())
        key = x.shape, x.dtype, self.rule, cells, learned, CHECKING.smooth, CHECKING.wide
        plans = _PLANS.setdefault(self, {})
        if key not in plans:
            begun = AbstractStep(lambda x: initial_states(self.cell, x), [x]).result
            try:
                plans[key] = self._find_rule().plan(x, begun)
            except ShapeError as error:
                if hasattr(self.cell, "init_state"):
                    raise
                name = type(self.cell).__name__
                raise ShapeError(
                    f"Online: {name} has no init_state, so its states start as zeros of the shape of x, {x.shape}, "
                    f"which do not fit: {error} So define init_state(self, x) in {name}."
                ).with_traceback(error.__traceback__) from None
        return plans[key]

    def construct(self, x: Tensor, *states: Tensor) -> Any:
        plan = self._plan(x)
        if len(states) != plan.states + plan.kept:
            raise ArgumentError(
                f"Online: {type(self.cell).__name__} has {plan.states} state(s), and {show(self.rule)} keeps "
                f"{plan.kept} trace(s) for it, so pass {plan.states + plan.kept} after x, not {len(states)}. They come "
                f"from init_state(x), and then from the step before."
            )
        own, traces = ops.stop_gradient((states[: plan.states], states[plan.states :]))
        out, after, traces = self._find_rule().step(plan, x, own, traces)
        return (out, *after, *traces)

    def init_state(self, x: Tensor) -> tuple[Tensor, ...]:
        """Start with the initial states of `cell`, and traces of 0."""
        states = initial_states(self.cell, x)
        plan = self._plan(x)
        return (*states, *self._find_rule().start(plan, x, states))
