"""sinabs 3.1: its neurons, by its own parameters."""

from __future__ import annotations

from typing import Any, Literal

from snncell.arguments.kinds import Count, Positive
from snncell.arguments.vocabulary import Constant
from snncell.errors import ArgumentError
from snncell.nn.neurons.base import Firing
from snncell.nn.neurons.constants import Membrane, one_of
from snncell.nn.neurons.convert import decay_from_tau
from snncell.nn.neurons.elsewhere import absent, preset
from snncell.nn.neurons.presets.sinabs_steps import InPotential, SinabsALIF, SinabsCuba, SinabsLeak, SinabsLIF
from snncell.nn.neurons.synaptic import WithSynapse
from snncell.surrogate import PiecewiseExp, Scaled

absent(
    "sinabs",
    record_states="snncell.monitor records states, nn.MultiStep(cell, return_states=True) gives the last ones.",
    shape="states take the shape of the input; other first states are passed to nn.MultiStep's call.",
    batch_size="nothing is folded into the batch here: inputs are (T, B, ...), see nn.TimeDistributed.",
    num_timesteps="nothing is folded into the batch here: inputs are (T, B, ...), see nn.TimeDistributed.",
    rec_connect="a neuron is one step: nn.Recurrent(neuron, nn.Dense(n, n)) feeds its spikes back.",
)

SPIKE_FNS = ("MultiSpike", "SingleSpike")
Spikes = Literal["MultiSpike", "SingleSpike"] | Count  # the class there, or n of MaxSpike(n)
RESET_FNS = ("MembraneSubtract", "MembraneReset")


def most_spikes(spike_fn: Any) -> int | None:
    """The largest number of spikes in a step: of MaxSpike(n) it is n."""
    if not isinstance(spike_fn, int):
        one_of(spike_fn, SPIKE_FNS, "like: sinabs", "spike_fn, if no number (MaxSpike),")
    most: int | None = {"MultiSpike": None, "SingleSpike": 1}.get(spike_fn, spike_fn)
    return most


def sinabs_firing(
    spike_threshold: Any, spike_fn: Any, reset_fn: str, reset_value: Any, surrogate_grad_fn: Any, exponential: Any
) -> Firing:
    """Counts spikes unless spike_fn is "SingleSpike"; the surrogate sees v - threshold.

    SingleExponential is grad_scale / w exp(-|v - threshold| / w), with w = grad_width threshold.
    """
    one_of(reset_fn, RESET_FNS, "like: sinabs", "reset_fn")
    most, (grad_width, grad_scale) = most_spikes(spike_fn), exponential
    if surrogate_grad_fn is None:
        width = grad_width * (spike_threshold if most == 1 else 1.0)  # counting is done in units of the threshold
        surrogate_grad_fn = Scaled(PiecewiseExp(1.0 / width), 2.0 * grad_scale)
    elif most != 1:
        surrogate_grad_fn = InPotential(surrogate_grad_fn, spike_threshold)
    return {
        "v_threshold": spike_threshold,
        "v_reset": reset_value,
        "reset": "value" if reset_fn == "MembraneReset" else "subtract",
        "detach_reset": reset_fn == "MembraneReset",
        "compare": ">=",
        "max_spikes": most,
        "surrogate_function": surrogate_grad_fn,
    }


@preset("IFNode", "sinabs")
def sinabs_iaf(
    spike_threshold: Constant = 1.0,
    spike_fn: Spikes = "MultiSpike",
    reset_fn: str = "MembraneSubtract",
    surrogate_grad_fn: Any = None,
    tau_syn: Constant | None = None,
    min_v_mem: Constant | None = None,
    grad_width: Positive = 0.5,
    grad_scale: Positive = 1.0,
    reset_value: Constant = 0.0,
    subtract_value: Constant | None = None,
    as_shipped: bool = False,
) -> Membrane:
    """IAF; a spike is 1, and there may be several in a step. The last three are those of `sinabs_lif`."""
    exponential = (grad_width, grad_scale)
    firing = sinabs_firing(spike_threshold, spike_fn, reset_fn, reset_value, surrogate_grad_fn, exponential)
    after = (min_v_mem, subtract_value, as_shipped)
    if tau_syn is None:
        return SinabsLIF(1.0, **firing).ending(*after)
    return SinabsCuba(decay_from_tau(tau_syn), 1.0, order="jump decay read", **firing).ending(*after)


@preset("LIFNode", "sinabs")
@preset("CubaLIFNode", "sinabs")
def sinabs_lif(
    tau_mem: Constant,
    tau_syn: Constant | None = None,
    spike_threshold: Constant = 1.0,
    spike_fn: Spikes = "MultiSpike",
    reset_fn: str = "MembraneSubtract",
    surrogate_grad_fn: Any = None,
    min_v_mem: Constant | None = None,
    train_alphas: bool = False,
    norm_input: bool = True,
    grad_width: Positive = 0.5,
    grad_scale: Positive = 1.0,
    reset_value: Constant = 0.0,
    subtract_value: Constant | None = None,
    as_shipped: bool = False,
) -> Membrane:
    """LIF; time constants in steps. With tau_syn it has a current, and states (v_mem, i_syn).

    grad_width and grad_scale are those of SingleExponential, reset_value that of MembraneReset, subtract_value that of
    MembraneSubtract. MembraneReset(reset_value) adds reset_value to every potential at every step there, and puts the
    potential of those that fire to it here; as_shipped=True does as there. A surrogate_grad_fn sees v - threshold.
    """
    beta, exponential = decay_from_tau(tau_mem), (grad_width, grad_scale)
    firing = sinabs_firing(spike_threshold, spike_fn, reset_fn, reset_value, surrogate_grad_fn, exponential)
    after = (min_v_mem, subtract_value, as_shipped, norm_input)
    if tau_syn is None:
        firing["learnable"] = ("beta",) if train_alphas else ()
        return SinabsLIF(beta, **firing).ending(*after)
    firing["learnable"] = ("alpha", "beta") if train_alphas else ()
    return SinabsCuba(decay_from_tau(tau_syn), beta, order="jump decay read", **firing).ending(*after)


@preset("ALIFNode", "sinabs")
def sinabs_alif(
    tau_mem: Constant,
    tau_adapt: Constant,
    tau_syn: Constant | None = None,
    adapt_scale: Constant = 1.8,
    spike_threshold: Constant = 1.0,
    spike_fn: Spikes = "SingleSpike",
    reset_fn: str = "MembraneSubtract",
    surrogate_grad_fn: Any = None,
    min_v_mem: Constant | None = None,
    train_alphas: bool = False,
    norm_input: bool = True,
    grad_width: Positive = 0.5,
    grad_scale: Positive = 1.0,
    reset_value: Constant = 0.0,
    subtract_value: Constant | None = None,
    as_shipped: bool = False,
) -> Membrane:
    """ALIF; its states are (v_mem, b), with tau_syn (i_syn, v_mem, b).

    No gradient goes through the comparison with the threshold that adapts, and the surrogate is as wide as it is. With
    tau_syn and norm_input the current there is multiplied by 1 - exp(-1 / tau_mem) at every step, and so forgets
    faster than tau_syn says; here it is when it is read, and as_shipped=True does as there. The others are those of
    `sinabs_lif`.
    """
    alpha, rho = decay_from_tau(tau_mem), decay_from_tau(tau_adapt)
    most = most_spikes(spike_fn)
    if surrogate_grad_fn is not None and most != 1:
        raise ArgumentError(
            "ALIFNode.like: sinabs: a surrogate_grad_fn goes with spike_fn='SingleSpike'; several spikes are counted "
            "in thresholds, which change. Leave it out, or take grad_width and grad_scale."
        )
    firing = sinabs_firing(1.0, spike_fn, reset_fn, 0.0, surrogate_grad_fn, (grad_width, grad_scale))
    firing |= {"v_threshold": spike_threshold, "v_reset": reset_value}
    firing["learnable"] = ("alpha", "rho") if train_alphas else ()
    current = None if tau_syn is None else decay_from_tau(tau_syn)
    if current is not None and as_shipped and norm_input:
        if train_alphas:
            raise ArgumentError("ALIFNode.like: sinabs: as_shipped=True with tau_syn does not go with train_alphas.")
        current, norm_input = current * (1.0 - alpha), False
    node = SinabsALIF(alpha, rho, adapt_scale, 1.0 - rho, "threshold", **firing)
    node.in_thresholds(relative=surrogate_grad_fn is None and most == 1)
    node.ending(min_v_mem, subtract_value, as_shipped, norm_input)
    if current is None:
        return node
    return WithSynapse(node, current, "jump decay read", learnable="alpha" if train_alphas else ())


@preset("LINode", "sinabs")
def sinabs_exp_leak(
    tau_mem: Constant, train_alphas: bool = False, min_v_mem: Constant | None = None, norm_input: bool = False
) -> Membrane:
    """ExpLeak, which gives its potential before min_v_mem limits it."""
    return SinabsLeak(decay_from_tau(tau_mem), norm_input, min_v_mem, "beta" if train_alphas else ())
