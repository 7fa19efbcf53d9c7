"""Presets of SpikingJelly 2.0."""

from __future__ import annotations

from typing import Any

from snncell.base.arguments.kinds import Constant
from snncell.nn.neurons.convert import FrameworkSettings, absent
from snncell.nn.neurons.current import CubaLIFNode
from snncell.nn.neurons.integrate import LeakyNode, LIFNode, LINode, ParametricLIFNode
from snncell.nn.neurons.nonlinear import AdaptiveQIFNode, EIFNode, QIFNode
from snncell.nn.neurons.variants import CLIFNode, ILIFNode, KLIFNode, ResonateNode
from snncell.surrogate import Rect, Sigmoid

GATED = (
    "GatedLIFNode has a conductance for each of its T steps, so it is not a neuron of one step. nn.GLIFNode has one "
    "conductance for all steps and otherwise the same equations: GLIFNode(alpha, beta, gamma, tau, v_threshold, "
    "linear_decay, v_subreset, conduct, surrogate_function=surrogate.Sigmoid(4.0), compare='>='), each gate of shape "
    "(C, 1, 1)."
)
absent(
    "spikingjelly",
    GLIFNode=GATED,
    GatedLIFNode=GATED,
    PSN="it is a layer over whole sequences, nn.PSN(steps, compare='>=').",
    MaskedPSN="it is a layer over whole sequences, nn.PSN(steps, order, compare='>='), masked from the beginning.",
    SlidingPSN="it is a layer over whole sequences, nn.SlidingPSN(order, compare='>=').",
    LIAFNode="its outputs are not spikes; docs/write-your-neuron.md shows how to write the step.",
    step_mode="a neuron is one time step; nn.MultiStep(neuron) runs it over all steps.",
    backend="nn.MultiStep(neuron) always compiles a kernel.",
    store_v_seq="snncell.monitor records potentials.",
)


class SpikingJelly(FrameworkSettings):
    """Settings of SpikingJelly's neurons: Sigmoid(4) by default; v_reset=None means a subtractive reset."""

    framework = "spikingjelly"
    tau: Constant = 2.0
    decay_input: bool = True
    v_threshold: Constant = 1.0
    v_reset: Constant | None = 0.0
    surrogate_function: Any = None
    detach_reset: bool = False
    init_tau: Constant = 2.0
    c_decay: Constant = 0.5
    v_decay: Constant = 0.75
    v_c: Constant = 0.8
    a0: Constant = 1.0
    v_rest: Constant = 0.0
    delta_T: Constant = 1.0  # noqa: N815 (its name there)
    theta_rh: Constant = 0.8
    w_rest: Constant = 0.0
    tau_w: Constant = 2.0
    a: Constant = 0.0
    b: Constant = 0.0
    omega: Constant = 1.0
    dt: Constant = 1.0
    scale_reset: bool = False
    max_spike_count: int = 4


def firing(p: SpikingJelly, surrogate: Any = None) -> dict[str, Any]:
    """Options of threshold, reset and spike function, which defaults to `surrogate`."""
    fires = p.surrogate_function
    return {
        "v_threshold": p.v_threshold,
        "v_reset": 0.0 if p.v_reset is None else p.v_reset,
        "reset": "subtract" if p.v_reset is None else "value",
        "surrogate_function": fires if fires is not None else Sigmoid(4.0) if surrogate is None else surrogate,
        "detach_reset": p.detach_reset,
        "compare": ">=",
    }


preset = SpikingJelly.preset
FIRING = " v_threshold v_reset surrogate_function detach_reset"  # settings that most neurons share
RESTING = " v_threshold v_rest v_reset surrogate_function detach_reset"

# IFNode. Not this library's IFNode, because its spike has the size v_threshold instead of 1.
preset("IFNode", FIRING, lambda p: LeakyNode(1.0, **firing(p)))
preset("LIFNode", "tau decay_input" + FIRING, lambda p: LIFNode(p.tau, decay_input=p.decay_input, **firing(p)))
preset(
    "ParametricLIFNode",
    "init_tau decay_input" + FIRING,
    lambda p: ParametricLIFNode(p.init_tau, p.decay_input, **firing(p)),
)
preset(  # CUBALIFNode
    "CubaLIFNode",
    "c_decay v_decay v_threshold v_reset surrogate_function",
    lambda p: CubaLIFNode(p.c_decay, p.v_decay, **firing(p, Rect(1.0))).starting_at("v_reset"),
    v_threshold=0.5,
)
preset("QIFNode", "tau v_c a0" + RESTING, lambda p: QIFNode(p.tau, p.v_c, p.a0, p.v_rest, **firing(p)), v_reset=-0.1)
preset(
    "EIFNode",
    "tau delta_T theta_rh" + RESTING,
    lambda p: EIFNode(p.tau, p.delta_T, p.theta_rh, p.v_rest, **firing(p)),
    v_reset=-0.1,
)
preset(  # IzhikevichNode, whose equations are not those of 2003; w_rest is the initial w, not its resting value
    "AdaptiveQIFNode IzhikevichNode",
    "tau v_c a0 v_threshold v_reset v_rest w_rest tau_w a b surrogate_function detach_reset",
    lambda p: AdaptiveQIFNode(p.tau, p.tau_w, p.a, p.b, p.v_c, p.a0, p.v_rest, p.w_rest, **firing(p)),
    v_rest=-0.1,
)
preset(
    "KLIFNode",
    "scale_reset tau decay_input" + FIRING,
    lambda p: KLIFNode(p.tau, 1.0, p.scale_reset, p.decay_input, **firing(p)),
)
# ComplementaryLIFNode, whose reset subtracts
preset("CLIFNode", "tau v_threshold surrogate_function", lambda p: CLIFNode(p.tau, **firing(p, Rect())), v_reset=None)
preset(  # ILIFNode with MultiLevelSpikeCount(max_spike_count)
    "ILIFNode",
    "tau v_threshold max_spike_count detach_reset",
    lambda p: ILIFNode(p.tau, p.max_spike_count, v_threshold=p.v_threshold, detach_reset=p.detach_reset),
    tau=4.0 / 3.0,
)
# RAFNode
preset("ResonateNode", "b omega dt" + FIRING, lambda p: ResonateNode(p.b, p.omega, p.dt, **firing(p)), b=-0.2)
preset("LINode", "tau", lambda p: LINode(p.tau))  # NonSpikingLIFNode; it is decoded by `nn.Readout`
