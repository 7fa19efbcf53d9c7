"""Presets of Norse 1.1."""

from __future__ import annotations

from typing import Any, Literal

from snncell import ops
from snncell.base.arguments.kinds import Constant
from snncell.cell.ranges import one_of
from snncell.nn.neurons.base import Neuron
from snncell.nn.neurons.constants import Membrane, add_rest, from_rest
from snncell.nn.neurons.convert import FrameworkSettings, absent, decay_from_rate, euler_from_decay
from snncell.nn.neurons.current import CubaLIFNode, WithSynapse
from snncell.nn.neurons.integrate import LeakyNode, LIFNode, LINode
from snncell.nn.neurons.nonlinear import AdExNode, IzhikevichNode
from snncell.nn.neurons.variants import ALIFNode, RefractoryLIFNode
from snncell.surrogate import Algebraic, Erf, FastSigmoid, Scaled, SuperSpike, Tanh, Triangle
from snncell.tape.tensor import Tensor

# --- steps that differ from those of the library ----------------------------------------------------------------------


class NorseLSNN(ALIFNode):
    """LSNN: the adaptation decays before the threshold uses it, and the potential leaks to v_rest.

    a' = rho a;  h = v_rest + alpha (v - v_rest) + x;  s = surrogate(h - (v_threshold + a'));  a = a' + jump s
    """

    v_rest: Any = 0.0
    starts = "v_rest"

    def construct(self, x: Tensor, v: Tensor, a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        a = self.rho * a
        h = add_rest(self.alpha * from_rest(v, self.v_rest) + self.gained(x), self.v_rest)
        s, v = self.fired(h, None, self.v_threshold + self.beta * a)
        return s, v, a + self.jump * (ops.stop_gradient(s) if self.detach_reset else s)


class NorseRefractory(RefractoryLIFNode):
    """LIFRefrac: the surrogate also decides whether the neuron rests, so that the counter rho has a gradient.

    rests = surrogate(rho);  s = (1 - rests) surrogate(h - v_threshold);  v = (1 - rests) reset(h) + rests v
    rho = (1 - s) relu(rho - rests) + s refractory
    """

    starts = "v_rest"

    def construct(self, x: Tensor, v: Tensor, rho: Tensor) -> tuple[Tensor, ...]:
        h = self.charge(x, v)
        s, rests = self.spikes(h), self.fire_at(rho)
        v = (1.0 - rests) * self.after_reset(h, s) + rests * v
        s = (1.0 - rests) * s
        return s, v, (1.0 - s) * ops.relu(rho - rests) + s * self.refractory


absent(
    "norse",
    adjoint="the backward pass is always compiled from the step, so there is nothing to choose.",
    hidden_size="a neuron is one step: nn.Recurrent(neuron, nn.Dense(n, n)) feeds its spikes back.",
    CobaLIF='nn.CobaLIFNode(scheme="euler", order="jump decay read") has its equations, with conductances in g_l.',
    LIFMC="nn.TCLIFNode has two compartments; docs/write-your-neuron.md shows how to write others.",
    LIFEx="nn.WithSynapse(nn.EIFNode(...)) has its equations, with constants per step.",
)
METHODS = ("super", "triangle", "tanh", "circ", "heavi_erfc")
ALPHA = 100.0  # Norse's default
FROM_RATE = "jump read decay"  # i = i + x; v reads i; i = i (1 - dt tau_syn_inv)


def norse_surrogate(method: str, alpha: float | None) -> Any:
    """The spike function of a Norse method. Norse ignores alpha in "super", 1 / (1 + |x|)^2; here you can pass it."""
    if method == "heaviside":
        reason = "has no gradient in Norse either, so nothing would learn: use another method, or ops.stop_gradient"
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


class Norse(FrameworkSettings):
    """Settings of Norse's neurons: rates in 1 / s, the step dt in s.

    `recurrent` selects the step of a recurrent cell, which detaches more.
    """

    framework = "norse"
    tau_syn_inv: Constant = 200.0
    tau_mem_inv: Constant = 100.0
    v_leak: Constant = 0.0
    v_th: Constant = 1.0
    v_reset: Constant = 0.0
    method: str = "super"
    alpha: Constant | None = None
    dt: Constant = 0.001
    recurrent: bool = False
    reset_method: Literal["reset_value", "reset_subtract"] = "reset_value"
    tau_adapt_inv: Constant = 1.0 / 800.0
    beta: Constant = 1.8
    adaptation_current: Constant = 4.0
    adaptation_spike: Constant = 0.02
    delta_T: Constant = 0.5  # noqa: N815 (its name there)
    tau_ada_inv: Constant = 2.0
    rho_reset: Constant = 5.0
    tau_inv: Constant = 250.0
    a: Constant
    b: Constant
    c: Constant
    d: Constant


def firing(p: Norse) -> dict[str, Any]:
    """Options of Norse's spike: reset to v_reset; recurrent cells detach the reset."""
    return {
        "v_threshold": p.v_th,
        "v_reset": p.v_reset,
        "reset": "value",
        "detach_reset": p.recurrent,
        "surrogate_function": norse_surrogate(p.method, p.alpha),
    }


def synaptic(p: Norse, node: Membrane, order: str = FROM_RATE) -> Membrane:
    """Add the synaptic current of tau_syn_inv to a neuron, as its first state."""
    return WithSynapse(node, decay_from_rate(p.tau_syn_inv, p.dt), order)


def norse_lif(p: Norse) -> Neuron:
    """LIFCell, or the step of LIFRecurrentCell."""
    beta, alpha = decay_from_rate(p.tau_mem_inv, p.dt), decay_from_rate(p.tau_syn_inv, p.dt)
    return CubaLIFNode(alpha, beta, current_gain=1.0 - beta, v_rest=p.v_leak, order=FROM_RATE, **firing(p))


def norse_lif_box(p: Norse) -> Neuron:
    """LIFBoxCell."""
    options = firing(p) | {"reset": p.reset_method.removeprefix("reset_")}
    return LIFNode(euler(p.tau_mem_inv, p.dt), v_rest=p.v_leak, **options).starting_at("v_rest")


def norse_lsnn(p: Norse) -> Membrane:
    """LSNNCell, or the step of LSNNRecurrentCell, which detaches spikes in the reset and in the adaptation.

    Its states are (i, v, b - v_th). The membrane reads the current before it decays and jumps, so an input acts one
    step later. The default of tau_adapt_inv is Norse's 1 / 800 1 / s. That is 800 s, where the paper has 800 ms.
    """
    alpha, rho = decay_from_rate(p.tau_mem_inv, p.dt), decay_from_rate(p.tau_adapt_inv, p.dt)
    options: dict[str, Any] = {"input_gain": 1.0 - alpha, **firing(p)}
    return synaptic(p, NorseLSNN(alpha, rho, 1.0, p.beta, **options).having(v_rest=p.v_leak), "read decay jump")


def norse_adex(p: Norse) -> Membrane:
    """LIFAdExCell; its states are (i, v, a). v_th is the threshold, and also theta_rh of the exponential term."""
    tau, tau_w = euler(p.tau_mem_inv, p.dt), euler(p.tau_ada_inv, p.dt)
    of_adaptation = p.adaptation_current, p.adaptation_spike
    return synaptic(p, AdExNode(tau, tau_w, *of_adaptation, p.delta_T, p.v_th, p.v_leak, **firing(p)))


def norse_refractory(p: Norse) -> Membrane:
    """LIFRefracCell, or LIFRefracRecurrentCell's step: states (i, v, rho), where rho has a gradient and i continues."""
    return synaptic(p, NorseRefractory(euler(p.tau_mem_inv, p.dt), p.rho_reset, v_rest=p.v_leak, **firing(p)))


def norse_izhikevich(p: Norse) -> Neuron:
    """The feed-forward Izhikevich step: Euler steps of length tau_inv dt for v and u; fires above the threshold."""
    fires, dt = norse_surrogate(p.method, p.alpha), p.tau_inv * p.dt
    options: dict[str, Any] = {"v_threshold": p.v_th, "compare": ">", "surrogate_function": fires}
    return IzhikevichNode(p.a, p.b, p.c, p.d, dt=dt, substeps=1, order="together", **options)


preset, RATES, FIRING = Norse.preset, "tau_syn_inv tau_mem_inv", " v_th v_reset method alpha"
preset("CubaLIFNode LIFNode", RATES + " v_leak" + FIRING + " dt recurrent", norse_lif)
preset("IFNode", FIRING, lambda p: LeakyNode(1.0, **firing(p)))  # IAFCell; a spike is 1
preset("LIFNode.LIFBox", "tau_mem_inv v_leak" + FIRING + " reset_method dt", norse_lif_box)
preset("LIFNode.LSNN ALIFNode", RATES + " tau_adapt_inv v_leak v_th v_reset beta method alpha dt recurrent", norse_lsnn)
preset(
    "LIFNode.LIFAdEx AdExNode",
    "adaptation_current adaptation_spike delta_T tau_ada_inv " + RATES + " v_leak" + FIRING + " dt",
    norse_adex,
)
preset(
    "LIFNode.LIFRefrac RefractoryLIFNode",
    RATES + " v_leak v_th v_reset rho_reset method alpha dt recurrent",
    norse_refractory,
)
# LICell; its states are (i, v)
preset("LINode", RATES + " v_leak dt", lambda p: synaptic(p, LINode(euler(p.tau_mem_inv, p.dt), v_rest=p.v_leak)))
preset("IzhikevichNode", "a b c d v_th tau_inv method alpha dt", norse_izhikevich, v_th=30.0)
