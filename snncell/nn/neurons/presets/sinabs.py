"""sinabs 3.1: its neurons, by its own parameters."""

from __future__ import annotations

from typing import Any

from snncell.nn.neurons.adaptive import ALIFNode
from snncell.nn.neurons.base import Firing, Neuron
from snncell.nn.neurons.constants import one_of
from snncell.nn.neurons.convert import decay_from_tau
from snncell.nn.neurons.current import CubaLIFNode
from snncell.nn.neurons.elsewhere import preset
from snncell.nn.neurons.integrate import LeakyNode
from snncell.surrogate import PiecewiseExp, Scaled


def sinabs_firing(spike_threshold: Any, spike_fn: Any, reset_fn: str, grad_width: float, grad_scale: float) -> Firing:
    """Counts spikes unless spike_fn is "SingleSpike"; SingleExponential is grad_scale / w exp(-|x| / w)."""
    one_of(reset_fn, ("MembraneSubtract", "MembraneReset"), "like: sinabs", "reset_fn")
    if not isinstance(spike_fn, int):
        one_of(spike_fn, ("MultiSpike", "SingleSpike"), "like: sinabs", "spike_fn, if no number (MaxSpike),")
    most = {"MultiSpike": None, "SingleSpike": 1}.get(spike_fn, spike_fn)
    width = grad_width * (spike_threshold if most == 1 else 1.0)  # counting is done in units of the threshold
    return {
        "v_threshold": spike_threshold,
        "reset": "zero" if reset_fn == "MembraneReset" else "subtract",
        "detach_reset": reset_fn == "MembraneReset",
        "compare": ">=",
        "max_spikes": most,
        "surrogate_function": Scaled(PiecewiseExp(1.0 / width), 2.0 * grad_scale),
    }


@preset("IFNode", "sinabs")
def sinabs_iaf(
    spike_threshold: Any = 1.0,
    spike_fn: Any = "MultiSpike",
    reset_fn: str = "MembraneSubtract",
    grad_width: float = 0.5,
    grad_scale: float = 1.0,
) -> Neuron:
    """IAF; a spike is 1, and there may be several in a step."""
    return LeakyNode(1.0, **sinabs_firing(spike_threshold, spike_fn, reset_fn, grad_width, grad_scale))


@preset("LIFNode", "sinabs")
@preset("CubaLIFNode", "sinabs")
def sinabs_lif(
    tau_mem: Any,
    tau_syn: Any = None,
    spike_threshold: Any = 1.0,
    spike_fn: Any = "MultiSpike",
    reset_fn: str = "MembraneSubtract",
    norm_input: bool = True,
    grad_width: float = 0.5,
    grad_scale: float = 1.0,
) -> Neuron:
    """LIF; time constants in steps. With tau_syn it has a current, and states (v_mem, i_syn)."""
    beta = decay_from_tau(tau_mem)
    firing = sinabs_firing(spike_threshold, spike_fn, reset_fn, grad_width, grad_scale)
    gain = 1.0 - beta if norm_input else 1.0
    if tau_syn is None:
        firing["input_gain"] = gain
        return LeakyNode(beta, **firing)
    return CubaLIFNode(decay_from_tau(tau_syn), beta, gain, order="jump decay read", **firing)


@preset("ALIFNode", "sinabs")
def sinabs_alif(
    tau_mem: Any,
    tau_adapt: Any,
    adapt_scale: float = 1.8,
    spike_threshold: Any = 1.0,
    spike_fn: Any = "MultiSpike",
    reset_fn: str = "MembraneSubtract",
    norm_input: bool = True,
) -> Neuron:
    """ALIF without tau_syn; its states are (v_mem, b). With "SingleSpike" the surrogate is as wide as b0."""
    beta, rho = decay_from_tau(tau_mem), decay_from_tau(tau_adapt)
    firing = sinabs_firing(spike_threshold, spike_fn, reset_fn, 0.5, 1.0)
    firing["input_gain"] = 1.0 - beta if norm_input else 1.0
    return ALIFNode(beta, rho, adapt_scale, 1.0 - rho, "threshold", **firing)
