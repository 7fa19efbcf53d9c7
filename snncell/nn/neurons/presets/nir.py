"""Presets of NIR 1.0."""

from __future__ import annotations

from typing import Any

from snncell.base.arguments.kinds import Constant, Positive
from snncell.nn.neurons.base import Neuron
from snncell.nn.neurons.convert import FrameworkSettings, positive, steps_from_seconds
from snncell.nn.neurons.current import CubaLIFNode
from snncell.nn.neurons.integrate import LeakyNode, LIFNode, LINode
from snncell.surrogate import ATan


class Nir(FrameworkSettings):
    """Settings of NIR's neurons, in seconds. NIR has no time step, so the preset adds its length dt."""

    framework = "nir"
    tau: Constant
    tau_mem: Constant
    tau_syn: Constant
    r: Constant
    v_leak: Constant
    v_threshold: Constant
    v_reset: Constant = 0.0
    w_in: Constant = 1.0
    dt: Positive = 1e-4
    surrogate_function: Any = None


class NirIF(Nir):
    """Settings of nir.IF, where dt may also be an array."""

    dt: Constant = 1e-4


FIRING = " v_threshold v_reset dt surrogate_function"  # settings that most neurons share


def firing(p: Nir, input_gain: Any) -> dict[str, Any]:
    """Options of `Neuron`: v > v_threshold gives a spike of size 1 and resets v to v_reset."""
    return {
        "input_gain": input_gain,
        "v_threshold": p.v_threshold,
        "v_reset": p.v_reset,
        "reset": "value",
        "surrogate_function": ATan() if p.surrogate_function is None else p.surrogate_function,
    }


# nir.IF: dv/dt = r x
NirIF.preset("IFNode", "r" + FIRING, lambda p: LeakyNode(1.0, **firing(p, p.r * positive(p.dt, "like: nir", "dt"))))
# nir.LIF: tau dv/dt = v_leak - v + r x
Nir.preset(
    "LIFNode",
    "tau r v_leak" + FIRING,
    lambda p: LIFNode(steps_from_seconds(p.tau, p.dt), v_rest=p.v_leak, **firing(p, p.r)).starting_at("v_rest"),
)


def nir_cuba(p: Nir) -> Neuron:
    """nir.CubaLIF: tau_syn di/dt = -i + w_in x, and tau_mem dv/dt = v_leak - v + r i."""
    tau_syn, tau_mem = steps_from_seconds(p.tau_syn, p.dt), steps_from_seconds(p.tau_mem, p.dt)
    alpha, beta, options = 1.0 - 1.0 / tau_syn, 1.0 - 1.0 / tau_mem, firing(p, p.w_in / tau_syn)
    return CubaLIFNode(alpha, beta, current_gain=p.r / tau_mem, v_rest=p.v_leak, **options)


Nir.preset(
    "LIFNode.CubaLIF CubaLIFNode", "tau_mem tau_syn r v_leak v_threshold v_reset w_in dt surrogate_function", nir_cuba
)
# nir.LI: tau dv/dt = v_leak - v + r x
Nir.preset(
    "LINode", "tau r v_leak dt", lambda p: LINode(steps_from_seconds(p.tau, p.dt), v_rest=p.v_leak, input_gain=p.r)
)
