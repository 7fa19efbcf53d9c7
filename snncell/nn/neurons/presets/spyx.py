"""Presets of Spyx 1.0."""

from __future__ import annotations

from typing import Any

from snncell.base.arguments.kinds import Constant
from snncell.nn.neurons.convert import euler_from_decay
from snncell.nn.neurons.current import CubaLIFNode
from snncell.nn.neurons.elsewhere import FrameworkSettings, absent
from snncell.nn.neurons.integrate import LeakyNode, LINode
from snncell.nn.neurons.variants import ALIFNode
from snncell.surrogate import FastSigmoid

absent(
    "spyx",
    hidden_shape="a neuron takes the shape of its input.",
    layer_shape="a neuron takes the shape of its input.",
    rngs="decay factors are not drawn at random: pass them as numbers or arrays.",
    PopulationCode="num_classes of nn.CERateLoss, CECountLoss and MSECountLoss sums the neurons of a class; Spyx "
    "sums over classes, and over samples.",
)


class SpyxCuba(CubaLIFNode):
    """CuBaLIF: the previous spike is subtracted before the potential decays, so the amount decays too."""

    def _resets_at_end(self) -> bool:
        return False


class Spyx(FrameworkSettings):
    """Settings of Spyx's neurons; the decay factors have no defaults."""

    framework = "spyx"
    alpha: Constant
    beta: Constant
    gamma: Constant
    threshold: Constant = 1.0
    activation: Any = None


def firing(p: Spyx) -> dict[str, Any]:
    """Options of the spike: spike and reset come one step after the potential crosses the threshold."""
    surrogate = FastSigmoid(25.0) if p.activation is None else p.activation
    return {"v_threshold": p.threshold, "surrogate_function": surrogate, "delay": "spike"}


preset, END = Spyx.preset, " threshold activation"
preset("IFNode", END, lambda p: LeakyNode(1.0, **firing(p)))  # LeakyNode, whose spike has the size 1
preset("LeakyNode LIFNode", "beta" + END, lambda p: LeakyNode(p.beta, **firing(p)))
# The states of CuBaLIF are (V, I).
preset("LIFNode.CuBaLIF CubaLIFNode", "alpha beta" + END, lambda p: SpyxCuba(p.alpha, p.beta, **firing(p)))
preset(
    "ALIFNode", "beta gamma" + END, lambda p: ALIFNode(p.beta, p.gamma, 1.0, 1.0 - p.gamma, "threshold", **firing(p))
)
preset("LINode", "beta", lambda p: LINode(euler_from_decay(p.beta), decay_input=False), beta=0.8)
