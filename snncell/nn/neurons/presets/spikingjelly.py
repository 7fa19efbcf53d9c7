"""SpikingJelly 2.0: its neurons, by its own parameters."""

from __future__ import annotations

from typing import Any

from snncell.arguments.vocabulary import Constant
from snncell.nn.neurons.base import Firing, Neuron
from snncell.nn.neurons.constants import Membrane
from snncell.nn.neurons.current import CubaLIFNode
from snncell.nn.neurons.elsewhere import absent, preset
from snncell.nn.neurons.exponential import EIFNode
from snncell.nn.neurons.gated import CLIFNode, KLIFNode
from snncell.nn.neurons.integrate import LeakyNode, LIFNode
from snncell.nn.neurons.parametric import ParametricLIFNode
from snncell.nn.neurons.quadratic import AdaptiveQIFNode, QIFNode
from snncell.nn.neurons.readout import LINode
from snncell.nn.neurons.resonate import ResonateNode
from snncell.nn.neurons.variants import ILIFNode
from snncell.surrogate import Rect, Sigmoid

GATED = (
    "GatedLIFNode has a conductance for each of its T steps, and so is no neuron of one step. nn.GLIFNode has one for "
    "all, and otherwise its equations: GLIFNode(alpha, beta, gamma, tau, v_threshold, linear_decay, v_subreset, "
    "conduct, surrogate_function=surrogate.Sigmoid(4.0), compare='>='), each gate of shape (C, 1, 1)."
)
absent(
    "spikingjelly",
    GLIFNode=GATED,
    GatedLIFNode=GATED,
    PSN="it is a layer over whole sequences: nn.PSN(steps, compare='>=').",
    MaskedPSN="it is a layer over whole sequences: nn.PSN(steps, order, compare='>='), whose mask is whole at once.",
    SlidingPSN="it is a layer over whole sequences: nn.SlidingPSN(order, compare='>=').",
    LIAFNode="it gives no spikes; write the step, docs/write-your-neuron.md shows how.",
    step_mode="a neuron is one step here, nn.MultiStep(neuron) is all of them.",
    backend="there is one, which compiles: nn.MultiStep(neuron) is a kernel.",
    store_v_seq="snncell.monitor records potentials.",
)


def jelly(v_threshold: Any, v_reset: Any, surrogate_function: Any, detach_reset: bool) -> Firing:
    """Fires at the threshold; v_reset None subtracts; Sigmoid(4) unless another surrogate is given."""
    return {
        "v_threshold": v_threshold,
        "v_reset": 0.0 if v_reset is None else v_reset,
        "reset": "subtract" if v_reset is None else "value",
        "surrogate_function": Sigmoid(4.0) if surrogate_function is None else surrogate_function,
        "detach_reset": detach_reset,
        "compare": ">=",
    }


@preset("IFNode", "spikingjelly")
def jelly_if(
    v_threshold: Constant = 1.0,
    v_reset: Constant | None = 0.0,
    surrogate_function: Any = None,
    detach_reset: bool = False,
) -> Neuron:
    """A spike is 1, whatever the threshold; so not this library's IFNode, whose spike is v_threshold."""
    return LeakyNode(1.0, **jelly(v_threshold, v_reset, surrogate_function, detach_reset))


@preset("LIFNode", "spikingjelly")
def jelly_lif(
    tau: Constant = 2.0,
    decay_input: bool = True,
    v_threshold: Constant = 1.0,
    v_reset: Constant | None = 0.0,
    surrogate_function: Any = None,
    detach_reset: bool = False,
) -> Neuron:
    """LIFNode."""
    firing = jelly(v_threshold, v_reset, surrogate_function, detach_reset)
    return LIFNode(tau, decay_input=decay_input, **firing)


@preset("ParametricLIFNode", "spikingjelly")
def jelly_plif(
    init_tau: Constant = 2.0,
    decay_input: bool = True,
    v_threshold: Constant = 1.0,
    v_reset: Constant | None = 0.0,
    surrogate_function: Any = None,
    detach_reset: bool = False,
) -> Neuron:
    """ParametricLIFNode."""
    firing = jelly(v_threshold, v_reset, surrogate_function, detach_reset)
    return ParametricLIFNode(init_tau, decay_input, **firing)


@preset("CubaLIFNode", "spikingjelly")
def jelly_cuba(
    c_decay: Constant = 0.5,
    v_decay: Constant = 0.75,
    v_threshold: Constant = 0.5,
    v_reset: Constant | None = 0.0,
    surrogate_function: Any = None,
) -> Neuron:
    """CUBALIFNode."""
    firing = jelly(v_threshold, v_reset, Rect(1.0) if surrogate_function is None else surrogate_function, False)
    return CubaLIFNode(c_decay, v_decay, **firing).starting_at("v_reset")


@preset("QIFNode", "spikingjelly")
def jelly_qif(
    tau: Constant = 2.0,
    v_c: Constant = 0.8,
    a0: Constant = 1.0,
    v_threshold: Constant = 1.0,
    v_rest: Constant = 0.0,
    v_reset: Constant | None = -0.1,
    surrogate_function: Any = None,
    detach_reset: bool = False,
) -> Neuron:
    """QIFNode."""
    return QIFNode(tau, v_c, a0, v_rest, **jelly(v_threshold, v_reset, surrogate_function, detach_reset))


@preset("EIFNode", "spikingjelly")
def jelly_eif(
    tau: Constant = 2.0,
    delta_T: Constant = 1.0,  # noqa: N803 (its name there)
    theta_rh: Constant = 0.8,
    v_threshold: Constant = 1.0,
    v_rest: Constant = 0.0,
    v_reset: Constant | None = -0.1,
    surrogate_function: Any = None,
    detach_reset: bool = False,
) -> Neuron:
    """EIFNode."""
    return EIFNode(tau, delta_T, theta_rh, v_rest, **jelly(v_threshold, v_reset, surrogate_function, detach_reset))


@preset("IzhikevichNode", "spikingjelly")
@preset("AdaptiveQIFNode", "spikingjelly")
def jelly_izhikevich(
    tau: Constant = 2.0,
    v_c: Constant = 0.8,
    a0: Constant = 1.0,
    v_threshold: Constant = 1.0,
    v_reset: Constant | None = 0.0,
    v_rest: Constant = -0.1,
    w_rest: Constant = 0.0,
    tau_w: Constant = 2.0,
    a: Constant = 0.0,
    b: Constant = 0.0,
    surrogate_function: Any = None,
    detach_reset: bool = False,
) -> Neuron:
    """IzhikevichNode, which has not the equations of 2003; w_rest is where w begins, and not where it rests."""
    firing = jelly(v_threshold, v_reset, surrogate_function, detach_reset)
    return AdaptiveQIFNode(tau, tau_w, a, b, v_c, a0, v_rest, w_rest, **firing)


@preset("KLIFNode", "spikingjelly")
def jelly_klif(
    scale_reset: bool = False,
    tau: Constant = 2.0,
    decay_input: bool = True,
    v_threshold: Constant = 1.0,
    v_reset: Constant | None = 0.0,
    surrogate_function: Any = None,
    detach_reset: bool = False,
) -> Neuron:
    """KLIFNode."""
    firing = jelly(v_threshold, v_reset, surrogate_function, detach_reset)
    return KLIFNode(tau, 1.0, scale_reset, decay_input, **firing)


@preset("CLIFNode", "spikingjelly")
def jelly_clif(tau: Constant = 2.0, v_threshold: Constant = 1.0, surrogate_function: Any = None) -> Neuron:
    """ComplementaryLIFNode."""
    return CLIFNode(
        tau, **jelly(v_threshold, None, Rect(1.0) if surrogate_function is None else surrogate_function, False)
    )


@preset("ILIFNode", "spikingjelly")
def jelly_ilif(
    tau: Constant = 4.0 / 3.0, v_threshold: Constant = 1.0, max_spike_count: int = 4, detach_reset: bool = False
) -> Neuron:
    """ILIFNode with MultiLevelSpikeCount(max_spike_count)."""
    return ILIFNode(tau, max_spike_count, v_threshold=v_threshold, detach_reset=detach_reset)


@preset("ResonateNode", "spikingjelly")
def jelly_raf(
    b: Constant = -0.2,
    omega: Constant = 1.0,
    dt: Constant = 1.0,
    v_threshold: Constant = 1.0,
    v_reset: Constant | None = 0.0,
    surrogate_function: Any = None,
    detach_reset: bool = False,
) -> Neuron:
    """RAFNode."""
    return ResonateNode(b, omega, dt, **jelly(v_threshold, v_reset, surrogate_function, detach_reset))


@preset("LINode", "spikingjelly")
def jelly_li(tau: Constant = 2.0) -> Membrane:
    """NonSpikingLIFNode; what it decodes is `nn.Readout`."""
    return LINode(tau)
