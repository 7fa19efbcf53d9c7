"""NIR 1.0: its neurons, by its own parameters."""

from __future__ import annotations

from typing import Any

from snncell.arguments.kinds import Positive
from snncell.arguments.vocabulary import Constant
from snncell.nn.neurons.base import Neuron
from snncell.nn.neurons.constants import Membrane
from snncell.nn.neurons.convert import positive, steps_from_seconds
from snncell.nn.neurons.current import CubaLIFNode
from snncell.nn.neurons.elsewhere import preset
from snncell.nn.neurons.integrate import LeakyNode, LIFNode
from snncell.nn.neurons.readout import LINode
from snncell.surrogate import ATan


@preset("IFNode", "nir")
def nir_if(
    r: Constant, v_threshold: Constant, v_reset: Constant = 0.0, dt: Constant = 1e-4, surrogate_function: Any = None
) -> Neuron:
    """nir.IF: dv/dt = r x; a spike, which is 1, where v > v_threshold puts v to v_reset."""
    return LeakyNode(
        1.0,
        input_gain=r * positive(dt, "like: nir", "dt"),
        v_threshold=v_threshold,
        v_reset=v_reset,
        reset="value",
        surrogate_function=ATan() if surrogate_function is None else surrogate_function,
    )


@preset("LIFNode", "nir")
def nir_lif(
    tau: Constant,
    r: Constant,
    v_leak: Constant,
    v_threshold: Constant,
    v_reset: Constant = 0.0,
    dt: Positive = 1e-4,
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
        surrogate_function=ATan() if surrogate_function is None else surrogate_function,
    ).starting_at("v_rest")


@preset("CubaLIFNode", "nir")
@preset("LIFNode", "nir.CubaLIF")
def nir_cuba(
    tau_mem: Constant,
    tau_syn: Constant,
    r: Constant,
    v_leak: Constant,
    v_threshold: Constant,
    v_reset: Constant = 0.0,
    w_in: Constant = 1.0,
    dt: Positive = 1e-4,
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
        surrogate_function=ATan() if surrogate_function is None else surrogate_function,
    )


@preset("LINode", "nir")
def nir_li(tau: Constant, r: Constant, v_leak: Constant, dt: Positive = 1e-4) -> Membrane:
    """nir.LI: tau dv/dt = v_leak - v + r x."""
    return LINode(steps_from_seconds(tau, dt), v_rest=v_leak, input_gain=r)
