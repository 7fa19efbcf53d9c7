"""snnTorch 1.0: its neurons, by its own parameters."""

from __future__ import annotations

import math
from typing import Any

from snncell.arguments.vocabulary import Constant
from snncell.errors import ArgumentError
from snncell.nn.neurons.base import Firing, Neuron
from snncell.nn.neurons.constants import one_of
from snncell.nn.neurons.convert import decay_from_rate, positive
from snncell.nn.neurons.current import AlphaNode, CubaLIFNode
from snncell.nn.neurons.elsewhere import absent, preset
from snncell.nn.neurons.integrate import LeakyNode
from snncell.nn.neurons.presets.snntorch_steps import TorchAlpha, TorchLeaky, TorchSynaptic
from snncell.surrogate import ATan

STATES = "states are arguments here, nn.MultiStep hands them on, and return_states=True gives the last ones; "
ABOVE = "Leaky alone has it there; multiply the spikes."
absent(
    "snntorch",
    init_hidden=STATES + "nn.Stateful keeps them from call to call.",
    output=STATES + "the output is the spikes.",
    surrogate_disable="a spike without a gradient is ops.stop_gradient of one.",
    state_quant="quantise in a neuron of your own, docs/write-your-neuron.md shows how.",
    learn_beta="Lapicque computes nothing with its beta after construction, so it never learns it there either; "
    "LIFNode.like('snntorch', learn_beta=True) learns one.",
    reset_delay="it has none there: the reset comes with the next step.",
    graded_spikes_factor=ABOVE,
    learn_graded_spikes_factor=ABOVE,
    inhibition="nn.WinnerTakeAll(1) of the spikes silences all but one; Leaky, Synaptic and Lapicque have inhibition=.",
    StateLeaky="LeakyNode(nn.decay_from_tau(1 / (1 - beta)), reset=None) has its kernel.",
    RLeaky="nn.Recurrent(LIFNode.like('snntorch', beta=...), nn.Dense(n, n)) is it.",
    RSynaptic="nn.Recurrent(LIFNode.like('snntorch.Synaptic', ...), nn.Dense(n, n)) is it.",
)


def torch_firing(
    threshold: Any, spike_grad: Any, reset_mechanism: str, delay: str | None, learned: dict[str, bool]
) -> Firing:
    """Fires above the threshold; a delayed reset counts as a constant in the reverse; ATan(2) unless told otherwise."""
    one_of(reset_mechanism, ("subtract", "zero", "none"), "like: snntorch", "reset_mechanism")
    return {
        "v_threshold": threshold,
        "reset": None if reset_mechanism == "none" else reset_mechanism,
        "surrogate_function": ATan(2.0) if spike_grad is None else spike_grad,
        "delay": delay,
        "detach_reset": delay is not None,
        "learnable": tuple(name for name, wanted in learned.items() if wanted),
    }


def refuse_inhibition(inhibition: bool, reset_delay: bool, factor: Any = 1.0, learned: bool = False) -> None:
    """Raise where inhibition there does what nobody asks for."""
    if inhibition and not reset_delay:
        raise ArgumentError(
            "like: snntorch: inhibition with reset_delay=False resets losers above the threshold one step later than "
            "the winner. Take reset_delay=True, or nn.WinnerTakeAll(1) of the input."
        )
    if inhibition and (learned or isinstance(factor, bool) or factor != 1.0):
        raise ArgumentError(
            "like: snntorch: with inhibition=True snnTorch ignores graded_spikes_factor. Leave one of them out, and "
            "multiply the spikes."
        )


@preset("LIFNode", "snntorch")
@preset("LeakyNode", "snntorch")
def torch_leaky(
    beta: Constant,
    threshold: Constant = 1.0,
    spike_grad: Any = None,
    inhibition: bool = False,
    learn_beta: bool = False,
    learn_threshold: bool = False,
    reset_mechanism: str = "subtract",
    graded_spikes_factor: Constant = 1.0,
    learn_graded_spikes_factor: bool = False,
    reset_delay: bool = True,
    as_shipped: bool = False,
) -> Neuron:
    """Leaky. With reset_delay=False and "subtract" version 1.0 swallows spikes; here only as_shipped=True does.

    With inhibition, of a sample (N,) only the neuron with the largest potential may fire; all are reset by their own.
    """
    refuse_inhibition(inhibition, reset_delay, graded_spikes_factor, learn_graded_spikes_factor)
    learned = {"beta": learn_beta, "v_threshold": learn_threshold}
    swallows = as_shipped and reset_mechanism == "subtract" and not reset_delay
    firing = torch_firing(threshold, spike_grad, reset_mechanism, "reset" if reset_delay else None, learned)
    factor = None if not learn_graded_spikes_factor and graded_spikes_factor == 1.0 else graded_spikes_factor
    if not swallows and not inhibition and factor is None:
        return LeakyNode(beta, **firing).clamping("beta")
    node = TorchLeaky(beta, **firing).ending(swallows, inhibition, factor, learn_graded_spikes_factor)
    return node.clamping("beta")


@preset("CubaLIFNode", "snntorch")
@preset("LIFNode", "snntorch.Synaptic")
def torch_synaptic(
    alpha: Constant,
    beta: Constant,
    threshold: Constant = 1.0,
    spike_grad: Any = None,
    inhibition: bool = False,
    learn_alpha: bool = False,
    learn_beta: bool = False,
    learn_threshold: bool = False,
    reset_mechanism: str = "subtract",
    reset_delay: bool = True,
    as_shipped: bool = False,
) -> Neuron:
    """Synaptic; its states are (mem, syn). A delayed "zero" takes the input of its step, too.

    With reset_delay=False and "subtract" version 1.0 swallows spikes; here only as_shipped=True does.
    """
    refuse_inhibition(inhibition, reset_delay)
    learned = {"alpha": learn_alpha, "beta": learn_beta, "v_threshold": learn_threshold}
    swallows = as_shipped and reset_mechanism == "subtract" and not reset_delay
    firing = torch_firing(threshold, spike_grad, reset_mechanism, "reset+input" if reset_delay else None, learned)
    if not swallows and not inhibition:
        return CubaLIFNode(alpha, beta, **firing).clamping("alpha", "beta")
    return TorchSynaptic(alpha, beta, **firing).ending(swallows, inhibition).clamping("alpha", "beta")


@preset("AlphaNode", "snntorch")
@preset("LIFNode", "snntorch.Alpha")
def torch_alpha(
    alpha: Constant,
    beta: Constant,
    threshold: Constant = 1.0,
    spike_grad: Any = None,
    learn_alpha: bool = False,
    learn_beta: bool = False,
    learn_threshold: bool = False,
    reset_mechanism: str = "zero",
    as_shipped: bool = False,
) -> Neuron:
    """Alpha; its states are (syn_exc, syn_inh, mem).

    Its "subtract" takes the threshold off syn_exc, clears syn_inh and adds the last syn_inh to the potential there,
    which lowers nothing by the threshold; here the potential falls by it, and as_shipped=True does as there.
    """
    learned = {"alpha": learn_alpha, "beta": learn_beta, "v_threshold": learn_threshold}
    kind = TorchAlpha if as_shipped and reset_mechanism == "subtract" else AlphaNode
    return kind(alpha, beta, **torch_firing(threshold, spike_grad, reset_mechanism, "reset+input", learned))


def resistance_and_capacitance(beta: Any, resistance: Any, capacitance: Any, time_step: float) -> tuple[Any, Any]:
    """R and C of Lapicque, from two of beta, R and C, or from beta and R = 1.

    Raises:
        ArgumentError: for too few or all three of them, or a beta that leaves nothing positive.
    """
    if beta is None:
        if resistance is None or capacitance is None:
            raise ArgumentError("like: snntorch.Lapicque needs beta=..., or R=... and C=..., or beta and one of them.")
        return resistance, capacitance
    if resistance is not None and capacitance is not None:
        raise ArgumentError("like: snntorch.Lapicque: beta follows from R and C; give at most two of the three.")
    if isinstance(beta, bool) or not isinstance(beta, (int, float)) or not 1.0 / math.e <= beta < 1.0:
        raise ArgumentError(
            f"like: snntorch.Lapicque: beta is a number from 1 / e = 0.368 to 1, not {beta!r:.200}: a step keeps "
            f"1 + ln(beta) of the potential there, and not beta (LeakyNode(beta) does)."
        )
    product = time_step / math.log(1.0 / beta)
    if capacitance is not None:
        return product / capacitance, capacitance
    resistance = 1.0 if resistance is None else resistance
    return resistance, product / resistance


@preset("LIFNode", "snntorch.Lapicque")
def torch_lapicque(
    beta: Constant | None = None,
    R: Constant | None = None,  # noqa: N803 (its names there)
    C: Constant | None = None,  # noqa: N803
    time_step: Constant = 1.0,
    threshold: Constant = 1.0,
    spike_grad: Any = None,
    inhibition: bool = False,
    learn_threshold: bool = False,
    reset_mechanism: str = "subtract",
) -> Neuron:
    """Lapicque, by two of its beta, resistance and capacitance; of beta alone a step keeps 1 + ln(beta) there."""
    resistance, capacitance = resistance_and_capacitance(beta, R, C, time_step)
    learned = {"v_threshold": learn_threshold}
    firing = torch_firing(threshold, spike_grad, reset_mechanism, "reset+input", learned)
    who = "like: snntorch.Lapicque"
    resistance, capacitance = positive(resistance, who, "R"), positive(capacitance, who, "C")
    firing["input_gain"] = time_step / capacitance
    kept = decay_from_rate(1.0 / (resistance * capacitance), time_step)
    return TorchLeaky(kept, **firing).ending(False, True) if inhibition else LeakyNode(kept, **firing)
