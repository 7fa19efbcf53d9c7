"""Norse 1.1: its neurons, by its own parameters."""

from __future__ import annotations

from typing import Any

from snncell.arguments.vocabulary import Constant
from snncell.nn.neurons.base import Neuron
from snncell.nn.neurons.constants import Membrane, one_of
from snncell.nn.neurons.convert import decay_from_rate, euler_from_decay
from snncell.nn.neurons.current import CubaLIFNode
from snncell.nn.neurons.elsewhere import absent, preset
from snncell.nn.neurons.exponential import AdExNode
from snncell.nn.neurons.integrate import LeakyNode, LIFNode
from snncell.nn.neurons.izhikevich import IzhikevichNode
from snncell.nn.neurons.presets.norse_steps import NorseLSNN, NorseRefractory
from snncell.nn.neurons.readout import LINode
from snncell.nn.neurons.synaptic import WithSynapse
from snncell.surrogate import Algebraic, Erf, FastSigmoid, Scaled, SuperSpike, Tanh, Triangle

absent(
    "norse",
    adjoint="the reverse is compiled from the step here; nothing is to be chosen.",
    hidden_size="a neuron is one step: nn.Recurrent(neuron, nn.Dense(n, n)) feeds its spikes back.",
    CobaLIF="conductances are not here; write the step, docs/write-your-neuron.md shows how.",
    LIFMC="compartments are not here; write the step, docs/write-your-neuron.md shows how.",
    LIFEx="EIFNode behind WithSynapse has its equations; its constants are per step.",
)
METHODS = ("super", "triangle", "tanh", "circ", "heavi_erfc")
ALPHA = 100.0  # what alpha is there unless it is given
FROM_RATE = "jump read decay"  # i = i + x; v reads i; i = i (1 - dt tau_syn_inv)


def norse_surrogate(method: str, alpha: float | None) -> Any:
    """The spike function of a method: "super" ignores alpha there, 1 / (1 + |x|)^2; one that is given is used here."""
    if method == "heaviside":
        reason = "has no gradient in Norse either, so nothing would learn: take another method, or ops.stop_gradient"
        one_of(method, METHODS, "like: norse", f'method "heaviside" {reason} around the neuron; method')
    one_of(method, METHODS, "like: norse", "method")
    if method == "super":
        return SuperSpike(1.0) if alpha is None else FastSigmoid(alpha)
    k = ALPHA if alpha is None else alpha
    if method == "heavi_erfc":
        return Scaled(Erf(k), 2.0 / k)
    return {"triangle": Triangle, "tanh": Tanh, "circ": Algebraic}[method](k)


def euler(rate: Any, dt: float) -> Any:
    """The time constant in steps of a rate in 1 / s."""
    return euler_from_decay(decay_from_rate(rate, dt))


@preset("LIFNode", "norse")
@preset("CubaLIFNode", "norse")
def norse_lif(
    tau_syn_inv: Constant = 200.0,
    tau_mem_inv: Constant = 100.0,
    v_leak: Constant = 0.0,
    v_th: Constant = 1.0,
    v_reset: Constant = 0.0,
    method: str = "super",
    alpha: Constant | None = None,
    dt: Constant = 0.001,
    recurrent: bool = False,
) -> Neuron:
    """LIFCell, or the step of LIFRecurrentCell, which alone detaches the reset; time constants in 1 / s."""
    beta = decay_from_rate(tau_mem_inv, dt)
    return CubaLIFNode(
        decay_from_rate(tau_syn_inv, dt),
        beta,
        current_gain=1.0 - beta,
        v_rest=v_leak,
        order=FROM_RATE,
        v_threshold=v_th,
        v_reset=v_reset,
        reset="value",
        detach_reset=recurrent,
        surrogate_function=norse_surrogate(method, alpha),
    )


@preset("IFNode", "norse")
def norse_iaf(
    v_th: Constant = 1.0, v_reset: Constant = 0.0, method: str = "super", alpha: Constant | None = None
) -> Neuron:
    """IAFCell; a spike is 1."""
    fires = norse_surrogate(method, alpha)
    return LeakyNode(1.0, v_threshold=v_th, v_reset=v_reset, reset="value", surrogate_function=fires)


@preset("LIFNode", "norse.LIFBox")
def norse_lif_box(
    tau_mem_inv: Constant = 100.0,
    v_leak: Constant = 0.0,
    v_th: Constant = 1.0,
    v_reset: Constant = 0.0,
    method: str = "super",
    alpha: Constant | None = None,
    reset_method: str = "reset_value",
    dt: Constant = 0.001,
) -> Neuron:
    """LIFBoxCell; reset_method is "reset_value" or "reset_subtract"."""
    one_of(reset_method, ("reset_value", "reset_subtract"), "like: norse", "reset_method")
    return LIFNode(
        euler(tau_mem_inv, dt),
        v_th,
        v_reset,
        reset_method.removeprefix("reset_"),
        v_rest=v_leak,
        surrogate_function=norse_surrogate(method, alpha),
    ).starting_at("v_rest")


@preset("ALIFNode", "norse")
@preset("LIFNode", "norse.LSNN")
def norse_lsnn(
    tau_syn_inv: Constant = 200.0,
    tau_mem_inv: Constant = 100.0,
    tau_adapt_inv: Constant = 1.0 / 800.0,
    v_leak: Constant = 0.0,
    v_th: Constant = 1.0,
    v_reset: Constant = 0.0,
    beta: Constant = 1.8,
    method: str = "super",
    alpha: Constant | None = None,
    dt: Constant = 0.001,
    recurrent: bool = False,
) -> Membrane:
    """LSNNCell, or the step of LSNNRecurrentCell, which detaches spikes in the reset and in the adaptation.

    Its states are (i, v, b - v_th). The current is read before it decays and jumps, so an input acts one step later.
    The default of tau_adapt_inv is Norse's, 1 / 800 1 / s: 800 s, where the paper has ms.
    """
    kept = decay_from_rate(tau_mem_inv, dt)
    node = NorseLSNN(
        kept,
        decay_from_rate(tau_adapt_inv, dt),
        1.0,
        beta,
        v_threshold=v_th,
        v_reset=v_reset,
        reset="value",
        detach_reset=recurrent,
        input_gain=1.0 - kept,
        surrogate_function=norse_surrogate(method, alpha),
    ).resting_at(v_leak)
    return WithSynapse(node, decay_from_rate(tau_syn_inv, dt), "read decay jump")


@preset("AdExNode", "norse")
@preset("LIFNode", "norse.LIFAdEx")
def norse_adex(
    adaptation_current: Constant = 4.0,
    adaptation_spike: Constant = 0.02,
    delta_T: Constant = 0.5,  # noqa: N803 (its name there)
    tau_ada_inv: Constant = 2.0,
    tau_syn_inv: Constant = 200.0,
    tau_mem_inv: Constant = 100.0,
    v_leak: Constant = 0.0,
    v_th: Constant = 1.0,
    v_reset: Constant = 0.0,
    method: str = "super",
    alpha: Constant | None = None,
    dt: Constant = 0.001,
) -> Membrane:
    """LIFAdExCell; its states are (i, v, a). The exponential runs away from v_th, which is the threshold too."""
    node = AdExNode(
        euler(tau_mem_inv, dt),
        euler(tau_ada_inv, dt),
        adaptation_current,
        adaptation_spike,
        delta_T,
        v_th,
        v_leak,
        v_threshold=v_th,
        v_reset=v_reset,
        reset="value",
        surrogate_function=norse_surrogate(method, alpha),
    )
    return WithSynapse(node, decay_from_rate(tau_syn_inv, dt), FROM_RATE)


@preset("RefractoryLIFNode", "norse")
@preset("LIFNode", "norse.LIFRefrac")
def norse_refractory(
    tau_syn_inv: Constant = 200.0,
    tau_mem_inv: Constant = 100.0,
    v_leak: Constant = 0.0,
    v_th: Constant = 1.0,
    v_reset: Constant = 0.0,
    rho_reset: Constant = 5.0,
    method: str = "super",
    alpha: Constant | None = None,
    dt: Constant = 0.001,
    recurrent: bool = False,
) -> Membrane:
    """LIFRefracCell, or the step of LIFRefracRecurrentCell; its states are (i, v, rho), and rho has a gradient there.

    The parameters are those of its LIFParameters and rho_reset. The current goes on while the potential rests.
    """
    node = NorseRefractory(
        euler(tau_mem_inv, dt),
        rho_reset,
        v_rest=v_leak,
        v_threshold=v_th,
        v_reset=v_reset,
        reset="value",
        detach_reset=recurrent,
        surrogate_function=norse_surrogate(method, alpha),
    )
    return WithSynapse(node, decay_from_rate(tau_syn_inv, dt), FROM_RATE)


@preset("LINode", "norse")
def norse_li(
    tau_syn_inv: Constant = 200.0, tau_mem_inv: Constant = 100.0, v_leak: Constant = 0.0, dt: Constant = 0.001
) -> Membrane:
    """LICell; its states are (i, v)."""
    return WithSynapse(LINode(euler(tau_mem_inv, dt), v_rest=v_leak), decay_from_rate(tau_syn_inv, dt), FROM_RATE)


@preset("IzhikevichNode", "norse")
def norse_izhikevich(
    a: Constant,
    b: Constant,
    c: Constant,
    d: Constant,
    v_th: Constant = 30.0,
    tau_inv: Constant = 250.0,
    method: str = "super",
    alpha: Constant | None = None,
    dt: Constant = 0.001,
) -> Neuron:
    """The feed-forward step: Euler for v and u alike, of tau_inv dt, and above the threshold."""
    return IzhikevichNode(
        *(a, b, c, d),
        dt=tau_inv * dt,
        substeps=1,
        order="together",
        v_threshold=v_th,
        compare=">",
        surrogate_function=norse_surrogate(method, alpha),
    )
