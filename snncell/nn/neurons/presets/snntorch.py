"""Presets of snnTorch 1.0, and of Spyx 1.0, which follows its conventions in JAX."""

from __future__ import annotations

import math
from typing import Any, Literal, Self

from snncell import ops
from snncell.base.arguments.kinds import Constant
from snncell.errors import ArgumentError, ShapeError
from snncell.nn.neurons.base import Neuron
from snncell.nn.neurons.convert import FrameworkSettings, absent, decay_from_rate, euler_from_decay, positive
from snncell.nn.neurons.current import AlphaNode, CubaLIFNode
from snncell.nn.neurons.integrate import LeakyNode, LINode
from snncell.nn.neurons.variants import ALIFNode
from snncell.surrogate import ATan, FastSigmoid
from snncell.tape.tensor import Tensor

# --- steps that differ from those of the library ----------------------------------------------------------------------


class TorchEnd(Neuron):
    """The end of a step in snnTorch: graded spikes, inhibition, or a reset that swallows (loses) spikes."""

    swallows = False
    inhibition = False
    graded_spikes_factor: Any = None

    def ending(self, swallows: bool, inhibition: bool, factor: Any = None, learned: bool = False) -> Self:
        """Set these options and return the neuron itself."""
        self.swallows, self.inhibition = swallows, inhibition
        return self.having(graded_spikes_factor=self.to_learn("graded_spikes_factor", factor) if learned else factor)

    def recall(self, v: Tensor, threshold: Any = None) -> tuple[Tensor, Tensor | None]:
        """Start a step; if spikes are swallowed, return also the spike of v, as a constant."""
        if not self.swallows:
            return super().recall(v, threshold)
        return v, ops.stop_gradient(self.spikes(v, threshold))

    def fired(self, h: Tensor, late: Tensor | None, threshold: Any = None, drop: Any = None) -> tuple[Tensor, Tensor]:
        """End a step: return the spikes and the next potential.

        With `swallows`, a potential can remain above the threshold without a spike (R = 1). The next step still
        subtracts the threshold, h = h - R * v_threshold, and its spike s then subtracts only (s - R) * v_threshold.
        """
        if self.swallows and late is not None:
            h = h - late * self.v_threshold
            s = self.spikes(h)
            v = h - (s - late) * self.v_threshold
        else:
            s, v = super().fired(h, late, threshold, drop)
        if self.inhibition:
            s = s * self.winner(v)
        return s if self.graded_spikes_factor is None else s * self.graded_spikes_factor, v

    def winner(self, v: Tensor) -> Tensor:
        """1 for the neuron of each sample that is furthest above its threshold, 0 for the others."""
        if v.ndim != 2:
            raise ShapeError(f"like: snntorch: inhibition needs an input of shape (B, N), not {v.shape}.")
        first = ops.argmax(ops.stop_gradient(v - self.v_threshold), 1).expand_dims(1)
        return ops.equal(ops.arange(v.shape[1]), first).astype(v.dtype)


class TorchLeaky(TorchEnd, LeakyNode):
    """Leaky and Lapicque."""


class TorchSynaptic(TorchEnd, CubaLIFNode):
    """Synaptic."""


class TorchAlpha(AlphaNode):
    """Alpha with snnTorch's "subtract" of its states e, i and v: see `torch_alpha`."""

    def construct(self, x: Tensor, e: Tensor, i: Tensor, v: Tensor) -> tuple[Tensor, ...]:
        alpha, beta = self.alpha, self.beta
        late = ops.stop_gradient(self.spikes(v))
        slow, fast = alpha * e + x, beta * i - x
        h = self.scale(alpha, beta) * (slow + fast) + i * late
        return self.spikes(h), slow - late * self.v_threshold, fast * (1.0 - late), h


STATES = "states are arguments; nn.MultiStep carries them, and return_states=True returns the last ones. "
ABOVE = "only Leaky has it in snnTorch; multiply the spikes instead."
absent(
    "snntorch",
    init_hidden=STATES + "nn.Stateful keeps them between calls.",
    output=STATES + "The output is the spikes.",
    surrogate_disable="apply ops.stop_gradient to the spikes instead.",
    state_quant="docs/write-your-neuron.md shows how to write a neuron that quantises its states.",
    learn_beta="snnTorch's Lapicque never learns beta, because it does not use beta after construction; "
    "LIFNode.like('snntorch', learn_beta=True) learns it.",
    reset_delay="this neuron always resets in the next step.",
    graded_spikes_factor=ABOVE,
    learn_graded_spikes_factor=ABOVE,
    inhibition="nn.WinnerTakeAll(1) of the spikes silences all but one; Leaky, Synaptic and Lapicque have inhibition=.",
    StateLeaky="use LeakyNode(nn.decay_from_tau(1 / (1 - beta)), reset=None), which has the same kernel.",
    RLeaky="use nn.Recurrent(LIFNode.like('snntorch', beta=...), nn.Dense(n, n)).",
    RSynaptic="use nn.Recurrent(LIFNode.like('snntorch.Synaptic', ...), nn.Dense(n, n)).",
)


class SnnTorch(FrameworkSettings):
    """Settings of snnTorch's neurons: ATan(2) by default, and a reset that is delayed by a step."""

    framework = "snntorch"
    alpha: Constant
    beta: Constant
    threshold: Constant = 1.0
    spike_grad: Any = None
    inhibition: bool = False
    learn_alpha: bool = False
    learn_beta: bool = False
    learn_threshold: bool = False
    reset_mechanism: Literal["subtract", "zero", "none"] = "subtract"
    graded_spikes_factor: Constant = 1.0
    learn_graded_spikes_factor: bool = False
    reset_delay: bool = True
    as_shipped: bool = False

    @property
    def swallows(self) -> bool:
        """Whether to reproduce snnTorch 1.0, which swallows spikes with reset_delay=False and "subtract"."""
        return self.as_shipped and self.reset_mechanism == "subtract" and not self.reset_delay


def firing(p: SnnTorch, delay: str | None) -> dict[str, Any]:
    """Options of `Neuron` for threshold, reset and spike function; a delayed reset is detached, as in snnTorch."""
    learned = {"alpha": p.learn_alpha, "beta": p.learn_beta, "v_threshold": p.learn_threshold}
    return {
        "v_threshold": p.threshold,
        "reset": None if p.reset_mechanism == "none" else p.reset_mechanism,
        "surrogate_function": ATan(2.0) if p.spike_grad is None else p.spike_grad,
        "delay": delay,
        "detach_reset": delay is not None,
        "learnable": tuple(name for name, wanted in learned.items() if wanted),
    }


def refuse_inhibition(p: SnnTorch) -> None:
    """Raise for settings that do not work together with inhibition in snnTorch."""
    if p.inhibition and not p.reset_delay:
        raise ArgumentError(
            "like: snntorch: inhibition with reset_delay=False resets losers above the threshold one step later than "
            "the winner. Use reset_delay=True, or apply nn.WinnerTakeAll(1) to the input."
        )
    factor = p.graded_spikes_factor
    if p.inhibition and (p.learn_graded_spikes_factor or factor != 1.0):
        raise ArgumentError(
            "like: snntorch: with inhibition=True snnTorch ignores graded_spikes_factor. Leave one of them out; you "
            "can multiply the spikes afterwards."
        )


def torch_leaky(p: SnnTorch) -> Neuron:
    """Leaky. With inhibition, only the neuron with the largest potential of each sample can fire."""
    refuse_inhibition(p)
    options = firing(p, "reset" if p.reset_delay else None)
    learned = p.learn_graded_spikes_factor
    factor = None if not learned and p.graded_spikes_factor == 1.0 else p.graded_spikes_factor
    if not p.swallows and not p.inhibition and factor is None:
        return LeakyNode(p.beta, **options).clamping("beta")
    return TorchLeaky(p.beta, **options).ending(p.swallows, p.inhibition, factor, learned).clamping("beta")


def torch_synaptic(p: SnnTorch) -> Neuron:
    """Synaptic; its states are (mem, syn). A delayed "zero" acts after the input of its step."""
    refuse_inhibition(p)
    options = firing(p, "reset+input" if p.reset_delay else None)
    if not p.swallows and not p.inhibition:
        return CubaLIFNode(p.alpha, p.beta, **options).clamping("alpha", "beta")
    return TorchSynaptic(p.alpha, p.beta, **options).ending(p.swallows, p.inhibition).clamping("alpha", "beta")


def torch_alpha(p: SnnTorch) -> Neuron:
    """Alpha; its states are (syn_exc, syn_inh, mem).

    snnTorch's "subtract" subtracts the threshold from syn_exc, clears syn_inh and adds the last syn_inh to the
    potential. With as_shipped=False, the potential falls by the threshold instead.
    """
    kind = TorchAlpha if p.as_shipped and p.reset_mechanism == "subtract" else AlphaNode
    return kind(p.alpha, p.beta, **firing(p, "reset+input"))


class Lapicque(SnnTorch):
    """Settings of Lapicque: two of beta, resistance and capacitance, or beta alone."""

    beta: Constant | None = None
    R: Constant | None = None
    C: Constant | None = None
    time_step: Constant = 1.0


def resistance_and_capacitance(beta: Any, resistance: Any, capacitance: Any, time_step: float) -> tuple[Any, Any]:
    """R and C of Lapicque, from two of beta, R and C, or from beta with R = 1."""
    if beta is None:
        if resistance is None or capacitance is None:
            raise ArgumentError("like: snntorch.Lapicque needs beta=..., or R=... and C=..., or beta and one of them.")
        return resistance, capacitance
    if resistance is not None and capacitance is not None:
        raise ArgumentError("like: snntorch.Lapicque: beta follows from R and C; pass at most two of the three.")
    if not isinstance(beta, (int, float)) or not 1.0 / math.e <= beta < 1.0:
        raise ArgumentError(
            f"like: snntorch.Lapicque: beta must be a number from 1 / e = 0.368 to 1, not {beta!r:.200}, because a "
            f"step of snnTorch keeps 1 + ln(beta) of the potential. For a decay factor beta, use LeakyNode(beta)."
        )
    product = time_step / math.log(1.0 / beta)
    if capacitance is not None:
        return product / capacitance, capacitance
    resistance = 1.0 if resistance is None else resistance
    return resistance, product / resistance


def torch_lapicque(p: Lapicque) -> Neuron:
    """Lapicque, from two of beta, resistance and capacitance. With beta alone, a step keeps 1 + ln(beta)."""
    resistance, capacitance = resistance_and_capacitance(p.beta, p.R, p.C, p.time_step)
    options, who = firing(p, "reset+input"), "like: snntorch.Lapicque"
    resistance, capacitance = positive(resistance, who, "R"), positive(capacitance, who, "C")
    options["input_gain"] = p.time_step / capacitance
    beta = decay_from_rate(1.0 / (resistance * capacitance), p.time_step)
    return TorchLeaky(beta, **options).ending(False, True) if p.inhibition else LeakyNode(beta, **options)


SnnTorch.preset(
    "LeakyNode LIFNode",
    "beta threshold spike_grad inhibition learn_beta learn_threshold reset_mechanism graded_spikes_factor "
    "learn_graded_spikes_factor reset_delay as_shipped",
    torch_leaky,
)
SnnTorch.preset(
    "LIFNode.Synaptic CubaLIFNode",
    "alpha beta threshold spike_grad inhibition learn_alpha learn_beta learn_threshold reset_mechanism reset_delay "
    "as_shipped",
    torch_synaptic,
)
SnnTorch.preset(
    "LIFNode.Alpha AlphaNode",
    "alpha beta threshold spike_grad learn_alpha learn_beta learn_threshold reset_mechanism as_shipped",
    torch_alpha,
    reset_mechanism="zero",
)
Lapicque.preset(
    "LIFNode.Lapicque",
    "beta R C time_step threshold spike_grad inhibition learn_threshold reset_mechanism",
    torch_lapicque,
)

# --- Spyx -------------------------------------------------------------------------------------------------------------

absent(
    "spyx",
    hidden_shape="a neuron takes the shape of its input.",
    layer_shape="a neuron takes the shape of its input.",
    rngs="decay factors are not drawn at random: pass them as numbers or arrays.",
    PopulationCode="num_classes of nn.CERateLoss, CECountLoss and MSECountLoss sums the neurons of a class; Spyx "
    "sums over classes, and over samples.",
)


class SpyxCuba(CubaLIFNode):
    """CuBaLIF: the previous spike lowers the potential before it decays, so the subtracted amount decays too."""

    def _resets_at_end(self) -> bool:
        return False


class Spyx(FrameworkSettings):
    """Settings of Spyx's neurons; the decay factors have no defaults."""

    framework = "spyx"
    alpha: Constant
    beta: Constant
    gamma: Constant
    threshold: Constant = 1.0
    activation: Any = None


def spyx_firing(p: Spyx) -> dict[str, Any]:
    """Options of `Neuron`: spike and reset come one step after the potential crosses the threshold."""
    surrogate = FastSigmoid(25.0) if p.activation is None else p.activation
    return {"v_threshold": p.threshold, "surrogate_function": surrogate, "delay": "spike"}


preset, END = Spyx.preset, " threshold activation"
preset("IFNode", END, lambda p: LeakyNode(1.0, **spyx_firing(p)))  # LeakyNode, whose spike has the size 1
preset("LeakyNode LIFNode", "beta" + END, lambda p: LeakyNode(p.beta, **spyx_firing(p)))
# The states of CuBaLIF are (V, I).
preset("LIFNode.CuBaLIF CubaLIFNode", "alpha beta" + END, lambda p: SpyxCuba(p.alpha, p.beta, **spyx_firing(p)))
preset(
    "ALIFNode",
    "beta gamma" + END,
    lambda p: ALIFNode(p.beta, p.gamma, 1.0, 1.0 - p.gamma, "threshold", **spyx_firing(p)),
)
preset("LINode", "beta", lambda p: LINode(euler_from_decay(p.beta), decay_input=False), beta=0.8)
