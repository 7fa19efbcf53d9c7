"""Spyx 1.0: its neurons, by its own parameters."""

from __future__ import annotations

from typing import Any

from snncell.arguments.vocabulary import Constant
from snncell.nn.neurons.adaptive import ALIFNode
from snncell.nn.neurons.base import Firing, Neuron
from snncell.nn.neurons.constants import Membrane
from snncell.nn.neurons.convert import euler_from_decay
from snncell.nn.neurons.current import CubaLIFNode
from snncell.nn.neurons.elsewhere import absent, preset
from snncell.nn.neurons.integrate import LeakyNode
from snncell.nn.neurons.readout import LINode
from snncell.surrogate import FastSigmoid

absent(
    "spyx",
    hidden_shape="a neuron takes the shape of its input.",
    layer_shape="a neuron takes the shape of its input.",
    rngs="nothing is drawn: give the decay factors, numbers or arrays.",
    PopulationCode="num_classes of nn.CERateLoss, CECountLoss and MSECountLoss sums the neurons of a class; the one "
    "there sums over classes, and over samples.",
)


class SpyxCuba(CubaLIFNode):
    """CuBaLIF: the spike of the last step is subtracted before the potential decays, and so decays with it."""

    def _resets_at_end(self) -> bool:
        return False


def spyx_firing(threshold: Any, activation: Any) -> Firing:
    """The spike comes in the step after the potential has crossed the threshold, and with it the reset."""
    return {
        "v_threshold": threshold,
        "surrogate_function": FastSigmoid(25.0) if activation is None else activation,
        "delay": "spike",
    }


@preset("IFNode", "spyx")
def spyx_if(threshold: Constant = 1.0, activation: Any = None) -> Neuron:
    """IF; a spike is 1."""
    return LeakyNode(1.0, **spyx_firing(threshold, activation))


@preset("LIFNode", "spyx")
@preset("LeakyNode", "spyx")
def spyx_lif(beta: Constant, threshold: Constant = 1.0, activation: Any = None) -> Neuron:
    """LIF."""
    return LeakyNode(beta, **spyx_firing(threshold, activation))


@preset("CubaLIFNode", "spyx")
@preset("LIFNode", "spyx.CuBaLIF")
def spyx_cuba(alpha: Constant, beta: Constant, threshold: Constant = 1.0, activation: Any = None) -> Neuron:
    """CuBaLIF; its states are (V, I)."""
    return SpyxCuba(alpha, beta, **spyx_firing(threshold, activation))


@preset("ALIFNode", "spyx")
def spyx_alif(beta: Constant, gamma: Constant, threshold: Constant = 1.0, activation: Any = None) -> Neuron:
    """ALIF."""
    return ALIFNode(beta, gamma, 1.0, 1.0 - gamma, "threshold", **spyx_firing(threshold, activation))


@preset("LINode", "spyx")
def spyx_li(beta: Constant = 0.8) -> Membrane:
    """LI."""
    return LINode(euler_from_decay(beta), decay_input=False)
