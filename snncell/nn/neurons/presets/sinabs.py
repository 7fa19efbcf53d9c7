"""Presets of sinabs 3.1."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal, Self

from snncell import ops
from snncell.base.arguments.kinds import Constant, Count, Positive
from snncell.cell.ranges import DECAY, Range
from snncell.errors import ArgumentError
from snncell.nn.neurons.base import Counting, Neuron
from snncell.nn.neurons.constants import Membrane
from snncell.nn.neurons.convert import FrameworkSettings, absent, decay_from_tau
from snncell.nn.neurons.current import CubaLIFNode, WithSynapse
from snncell.nn.neurons.integrate import LeakyNode
from snncell.nn.neurons.variants import ALIFNode
from snncell.surrogate import PiecewiseExp, Scaled
from snncell.surrogate.base import Inclusive, Wrapper
from snncell.tape.tensor import Tensor

# --- steps that differ from those of the library ----------------------------------------------------------------------


def raise_to_floor(v: Any, floor: Any) -> Any:
    """Clip a potential from below; None means no floor."""
    return v if floor is None else ops.relu(v - floor) + floor


class InPotential(Wrapper):
    """Apply a spike function of v - v_threshold in a neuron that passes x = v / v_threshold - 1: x v_threshold."""

    def __init__(self, surrogate_function: Any, v_threshold: Any) -> None:
        super().__init__(surrogate_function)
        if not isinstance(v_threshold, (int, float)):
            raise ArgumentError(
                "like: sinabs: with a surrogate_grad_fn and several spikes in a step, spike_threshold must be one "
                f"number, not {v_threshold!r:.200}."
            )
        self.v_threshold = v_threshold

    def construct(self, x: Tensor) -> Any:
        return self.surrogate_function.construct(x)

    def bprop(self, x: Tensor, out: Tensor, dout: Tensor) -> Any:
        return self.surrogate_function.bprop(x * self.v_threshold, out, dout * self.v_threshold)

    def primitive(self, x: Tensor) -> Any:
        return self.surrogate_function.primitive(x * self.v_threshold)


class SinabsEnd(Neuron):
    """The end of a step in sinabs: the reset subtracts subtract_value, and min_v_mem is a lower limit."""

    starts = "at_first"
    at_first = 0.0
    min_v_mem: Any = None
    subtract_value: Any = None
    resets_all = False
    norm_input = False
    decay = "beta"  # name of the constant that is the decay factor of the potential

    def ending(self, floor: Any, subtract_value: Any, as_shipped: bool, norm_input: bool = False) -> Self:
        """Set these options and return the neuron itself."""
        self.resets_all, self.norm_input = as_shipped and self.reset == "value", norm_input
        return self.having(min_v_mem=floor, subtract_value=subtract_value)

    def range_of(self, name: str) -> Range:
        if name == "min_v_mem":
            return Range(high=self.v_threshold, text="is below spike_threshold")
        usual = super().range_of(name)
        if name != "v_threshold" or self.min_v_mem is None:
            return usual
        ends = usual.low, self.min_v_mem
        low = ops.maximum(*ends) if any(isinstance(x, Tensor) for x in ends) else max(ends)
        return Range(low, text=f"{usual.text}, and above min_v_mem")

    def gained(self, x: Any) -> Any:
        return x * (1.0 - getattr(self, self.decay)) if self.norm_input else x

    def after_reset(self, h: Any, spike: Any, drop: Any = None) -> Any:
        if self.resets_all:
            v = h * (1.0 - ops.minimum(ops.stop_gradient(spike), 1.0)) + self.v_reset
        else:
            v = super().after_reset(h, spike, drop if self.subtract_value is None else self.subtract_value)
        return raise_to_floor(v, self.min_v_mem)


class SinabsLIF(SinabsEnd, LeakyNode):
    """LIF and IAF without tau_syn."""


class SinabsCuba(SinabsEnd, CubaLIFNode):
    """LIF and IAF with tau_syn; norm_input scales the current instead of the input."""

    def gained(self, x: Any) -> Any:
        return x

    def read(self, current: Tensor) -> Any:
        return SinabsEnd.gained(self, current)


class SinabsALIF(SinabsEnd, ALIFNode):
    """ALIF: the surrogate is as wide as the adaptive threshold, whose gradient flows through the reset only."""

    relative = False
    decay = "alpha"

    def use_relative_threshold(self, relative: bool) -> None:
        """Give a single spike the argument h / threshold - 1, which several spikes have already."""
        self.relative = relative
        if relative and isinstance(self.surrogate_function, Inclusive):
            self.fire_by(Counting(self.surrogate_function.surrogate_function, 1, ">="), 1)
            self.own_function = True

    def adapt(self, a: Any, s: Any) -> Any:
        rho = self.rho
        return rho * a + (1.0 - rho) * s

    def spikes(self, h: Any, threshold: Any = None) -> Any:
        """The number of spikes; the backward pass treats the threshold as a constant."""
        held = ops.stop_gradient(self.v_threshold if threshold is None else threshold)
        return self.fire_at(h / held - 1.0) if self.relative else super().spikes(h, held)


class SinabsLeak(Membrane):
    """ExpLeak: v = beta v + x, or beta v + (1 - beta) x with norm_input; the floor limits the state, not the output."""

    beta: Any
    min_v_mem: Any = None
    ranges: ClassVar = {"beta": DECAY}

    def __init__(self, beta: Any, norm_input: bool, floor: Any, learnable: str | Sequence[str]) -> None:
        super().__init__({"beta": beta}, learnable)
        self.norm_input = norm_input
        self.having(min_v_mem=floor)

    def construct(self, x: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        beta = self.beta
        h = beta * v + (x * (1.0 - beta) if self.norm_input else x)
        return h, raise_to_floor(h, self.min_v_mem)

    def init_state(self, x: Tensor) -> Tensor:
        """Start at a potential of 0."""
        return self.filled(x, 0.0)


absent(
    "sinabs",
    record_states="snncell.monitor records states, and nn.MultiStep(cell, return_states=True) returns the last ones.",
    shape="states take the shape of the input; you can pass other initial states to the call of nn.MultiStep.",
    batch_size="inputs have the shape (T, B, ...), without folding time into the batch; see nn.TimeDistributed.",
    num_timesteps="inputs have the shape (T, B, ...), without folding time into the batch; see nn.TimeDistributed.",
    rec_connect="a neuron is one time step; nn.Recurrent(neuron, nn.Dense(n, n)) feeds its spikes back.",
)

Spikes = Literal["MultiSpike", "SingleSpike"] | Count  # the class in sinabs, or n of MaxSpike(n)


def most_spikes(spike_fn: Any) -> Any:
    """The largest number of spikes in a step; n for MaxSpike(n)."""
    return {"MultiSpike": None, "SingleSpike": 1}.get(spike_fn, spike_fn)


class Sinabs(FrameworkSettings):
    """Settings of sinabs's neurons, with time constants in steps. surrogate_grad_fn receives v - spike_threshold.

    grad_width and grad_scale belong to SingleExponential, reset_value to MembraneReset, subtract_value to
    MembraneSubtract. Here, MembraneReset(reset_value) resets the neurons that fire to reset_value. In sinabs it adds
    reset_value to every potential at every step, which as_shipped=True reproduces.
    """

    framework = "sinabs"
    tau_mem: Constant
    tau_adapt: Constant
    tau_syn: Constant | None = None
    adapt_scale: Constant = 1.8
    spike_threshold: Constant = 1.0
    spike_fn: Spikes = "MultiSpike"
    reset_fn: Literal["MembraneSubtract", "MembraneReset"] = "MembraneSubtract"
    surrogate_grad_fn: Any = None
    min_v_mem: Constant | None = None
    train_alphas: bool = False
    norm_input: bool = True
    grad_width: Positive = 0.5
    grad_scale: Positive = 1.0
    reset_value: Constant = 0.0
    subtract_value: Constant | None = None
    as_shipped: bool = False


FIRING = " spike_threshold spike_fn reset_fn surrogate_grad_fn"  # settings that several classes share
TRAINED = " min_v_mem train_alphas norm_input"
OF_FUNCTIONS = " grad_width grad_scale reset_value subtract_value as_shipped"


def firing(p: Sinabs, threshold: Any) -> dict[str, Any]:
    """Options of `Neuron`; the spike is a count unless spike_fn is "SingleSpike".

    SingleExponential is grad_scale / w exp(-|v - threshold| / w), with w = grad_width threshold.
    """
    most, surrogate = most_spikes(p.spike_fn), p.surrogate_grad_fn
    if surrogate is None:
        width = p.grad_width * (threshold if most == 1 else 1.0)  # with counting, x is in units of the threshold
        surrogate = Scaled(PiecewiseExp(1.0 / width), 2.0 * p.grad_scale)
    elif most != 1:
        surrogate = InPotential(surrogate, threshold)
    return {
        "v_threshold": p.spike_threshold,
        "v_reset": p.reset_value,
        "reset": "value" if p.reset_fn == "MembraneReset" else "subtract",
        "detach_reset": p.reset_fn == "MembraneReset",
        "compare": ">=",
        "max_spikes": most,
        "surrogate_function": surrogate,
    }


def leaky(p: Sinabs, beta: Any) -> Membrane:
    """LIF and IAF, by the decay factor of the potential."""
    options, after = firing(p, p.spike_threshold), (p.min_v_mem, p.subtract_value, p.as_shipped, p.norm_input)
    if p.tau_syn is None:
        options["learnable"] = ("beta",) if p.train_alphas else ()
        return SinabsLIF(beta, **options).ending(*after)
    options["learnable"] = ("alpha", "beta") if p.train_alphas else ()
    return SinabsCuba(decay_from_tau(p.tau_syn), beta, order="jump decay read", **options).ending(*after)


def sinabs_alif(p: Sinabs) -> Membrane:
    """ALIF; its states are (v_mem, b), or (i_syn, v_mem, b) with tau_syn.

    With tau_syn and norm_input, sinabs multiplies the current by 1 - exp(-1 / tau_mem) at every step, so it forgets
    too fast. Here the factor applies where the membrane reads the current, unless as_shipped=True.
    """
    alpha, rho = decay_from_tau(p.tau_mem), decay_from_tau(p.tau_adapt)
    most, norm_input = most_spikes(p.spike_fn), p.norm_input
    if p.surrogate_grad_fn is not None and most != 1:
        raise ArgumentError(
            "ALIFNode.like: sinabs: surrogate_grad_fn needs spike_fn='SingleSpike', because several spikes are counted "
            "in units of the threshold, which adapts. Leave it out, or use grad_width and grad_scale."
        )
    options = firing(p, 1.0)
    options["learnable"] = ("alpha", "rho") if p.train_alphas else ()
    current = None if p.tau_syn is None else decay_from_tau(p.tau_syn)
    if current is not None and p.as_shipped and norm_input:
        if p.train_alphas:
            raise ArgumentError(
                "ALIFNode.like: sinabs: as_shipped=True with tau_syn cannot be combined with train_alphas=True."
            )
        current, norm_input = current * (1.0 - alpha), False
    node = SinabsALIF(alpha, rho, p.adapt_scale, 1.0 - rho, "threshold", **options)
    node.use_relative_threshold(relative=p.surrogate_grad_fn is None and most == 1)
    node.ending(p.min_v_mem, p.subtract_value, p.as_shipped, norm_input)
    if current is None:
        return node
    return WithSynapse(node, current, "jump decay read", learnable="alpha" if p.train_alphas else ())


preset = Sinabs.preset
preset(  # IAF; a spike has the size 1, and a step can have several
    "IFNode", FIRING + " tau_syn min_v_mem" + OF_FUNCTIONS, lambda p: leaky(p, 1.0), norm_input=False
)
# LIF; with tau_syn its states are (v_mem, i_syn)
WORDS = FIRING + TRAINED + OF_FUNCTIONS
preset("CubaLIFNode LIFNode", "tau_mem tau_syn" + WORDS, lambda p: leaky(p, decay_from_tau(p.tau_mem)))
preset("ALIFNode", "tau_mem tau_adapt tau_syn adapt_scale" + WORDS, sinabs_alif, spike_fn="SingleSpike")
preset(  # ExpLeak, whose output is the potential before min_v_mem limits it
    "LINode",
    "tau_mem train_alphas min_v_mem norm_input",
    lambda p: SinabsLeak(decay_from_tau(p.tau_mem), p.norm_input, p.min_v_mem, "beta" if p.train_alphas else ()),
    norm_input=False,
)
