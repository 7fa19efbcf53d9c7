"""Norse 1.1: its neurons, by its own parameters."""

from __future__ import annotations

from typing import Any

from snncell.nn.neurons.base import Neuron
from snncell.nn.neurons.convert import decay_from_rate, euler_from_decay
from snncell.nn.neurons.current import CubaLIFNode
from snncell.nn.neurons.elsewhere import preset
from snncell.nn.neurons.integrate import LeakyNode, LIFNode
from snncell.nn.neurons.izhikevich import IzhikevichNode
from snncell.surrogate import FastSigmoid, SuperSpike


def norse_super(alpha: float | None) -> Any:
    """Norse's default "super" is 1 / (1 + |x|)^2 whatever its alpha (100) says; an alpha that is given is used here."""
    return SuperSpike(1.0) if alpha is None else FastSigmoid(alpha)


@preset("LIFNode", "norse")
@preset("CubaLIFNode", "norse")
def norse_lif(
    tau_syn_inv: Any = 200.0,
    tau_mem_inv: Any = 100.0,
    v_leak: Any = 0.0,
    v_th: Any = 1.0,
    v_reset: Any = 0.0,
    alpha: float | None = None,
    dt: float = 0.001,
    recurrent: bool = False,
) -> Neuron:
    """LIFCell, or the step of LIFRecurrentCell, which alone detaches the reset; time constants in 1 / s."""
    beta = decay_from_rate(tau_mem_inv, dt)
    return CubaLIFNode(
        decay_from_rate(tau_syn_inv, dt),
        beta,
        current_gain=1.0 - beta,
        v_rest=v_leak,
        order="jump read decay",
        v_threshold=v_th,
        v_reset=v_reset,
        reset="value",
        detach_reset=recurrent,
        surrogate_function=norse_super(alpha),
    )


@preset("IFNode", "norse")
def norse_iaf(v_th: Any = 1.0, v_reset: Any = 0.0, alpha: float | None = None) -> Neuron:
    """IAFCell; a spike is 1."""
    return LeakyNode(1.0, v_threshold=v_th, v_reset=v_reset, reset="value", surrogate_function=norse_super(alpha))


@preset("LIFNode", "norse.LIFBox")
def norse_lif_box(
    tau_mem_inv: Any = 100.0,
    v_leak: Any = 0.0,
    v_th: Any = 1.0,
    v_reset: Any = 0.0,
    alpha: float | None = None,
    dt: float = 0.001,
) -> Neuron:
    """LIFBoxCell with reset_value."""
    return LIFNode(
        euler_from_decay(decay_from_rate(tau_mem_inv, dt)),
        v_th,
        v_reset,
        "value",
        v_rest=v_leak,
        surrogate_function=norse_super(alpha),
    ).starting_at("v_rest")


@preset("IzhikevichNode", "norse")
def norse_izhikevich(
    a: Any,
    b: Any,
    c: Any,
    d: Any,
    v_th: Any = 30.0,
    tau_inv: float = 250.0,
    alpha: float | None = None,
    dt: float = 0.001,
) -> Neuron:
    """The feed-forward step: Euler for v and u alike, of tau_inv dt, and above the threshold."""
    return IzhikevichNode(
        *(a, b, c, d),
        dt=tau_inv * dt,
        substeps=1,
        order="together",
        v_threshold=v_th,
        compare=">",
        surrogate_function=norse_super(alpha),
    )
