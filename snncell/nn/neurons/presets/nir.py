"""NIR 1.0: its neurons, by its own parameters."""

from __future__ import annotations

from typing import Any

from snncell.nn.neurons.base import Neuron
from snncell.nn.neurons.constants import Membrane
from snncell.nn.neurons.convert import steps_from_seconds
from snncell.nn.neurons.current import CubaLIFNode
from snncell.nn.neurons.elsewhere import preset
from snncell.nn.neurons.integrate import LeakyNode, LIFNode
from snncell.nn.neurons.readout import LINode
from snncell.surrogate import ATan


@preset("IFNode", "nir")
def nir_if(r: Any, v_threshold: Any, v_reset: Any = 0.0, dt: float = 1e-4, surrogate_function: Any = None) -> Neuron:
    """nir.IF: dv/dt = r x; a spike, which is 1, where v > v_threshold puts v to v_reset."""
    return LeakyNode(
        1.0,
        input_gain=r * dt,
        v_threshold=v_threshold,
        v_reset=v_reset,
        reset="value",
        surrogate_function=surrogate_function or ATan(),
    )


@preset("LIFNode", "nir")
def nir_lif(
    tau: Any,
    r: Any,
    v_leak: Any,
    v_threshold: Any,
    v_reset: Any = 0.0,
    dt: float = 1e-4,
    surrogate_function: Any = None,
) -> Neuron:
    """nir.LIF: tau dv/dt = v_leak - v + r x, tau in seconds; a spike where v > v_threshold puts v to v_reset."""
    return LIFNode(
        steps_from_seconds(tau, dt),
        v_threshold,
        v_reset,
        "value",
        v_rest=v_leak,
        input_gain=r,
        surrogate_function=surrogate_function or ATan(),
    ).starting_at("v_rest")


@preset("CubaLIFNode", "nir")
@preset("LIFNode", "nir.CubaLIF")
def nir_cuba(
    tau_mem: Any,
    tau_syn: Any,
    r: Any,
    v_leak: Any,
    v_threshold: Any,
    v_reset: Any = 0.0,
    w_in: Any = 1.0,
    dt: float = 1e-4,
    surrogate_function: Any = None,
) -> Neuron:
    """nir.CubaLIF: tau_syn di/dt = -i + w_in x, and tau_mem dv/dt = v_leak - v + r i."""
    return CubaLIFNode(
        1.0 - 1.0 / steps_from_seconds(tau_syn, dt),
        1.0 - 1.0 / steps_from_seconds(tau_mem, dt),
        current_gain=r / steps_from_seconds(tau_mem, dt),
        v_rest=v_leak,
        input_gain=w_in / steps_from_seconds(tau_syn, dt),
        v_threshold=v_threshold,
        v_reset=v_reset,
        reset="value",
        surrogate_function=surrogate_function or ATan(),
    )


@preset("LINode", "nir")
def nir_li(tau: Any, r: Any, v_leak: Any, dt: float = 1e-4) -> Membrane:
    """nir.LI: tau dv/dt = v_leak - v + r x."""
    return LINode(steps_from_seconds(tau, dt), v_rest=v_leak, input_gain=r)
