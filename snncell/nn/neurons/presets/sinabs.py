"""sinabs 3.1: its neurons, by its own parameters."""

from __future__ import annotations

from typing import Any, Literal

from snncell.base.arguments.kinds import Constant, Count, Positive
from snncell.errors import ArgumentError
from snncell.nn.neurons.base import Firing
from snncell.nn.neurons.constants import Membrane, one_of
from snncell.nn.neurons.convert import decay_from_tau
from snncell.nn.neurons.elsewhere import FrameworkSettings, absent
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


class Sinabs(FrameworkSettings):
    """Time constants are in steps. A surrogate_grad_fn sees v - spike_threshold.

    grad_width and grad_scale are those of SingleExponential, reset_value that of MembraneReset, subtract_value that of
    MembraneSubtract. MembraneReset(reset_value) adds reset_value to every potential at every step there, and puts the
    potential of those that fire to it here; as_shipped=True does as there.
    """

    tau_mem: Constant
    tau_adapt: Constant
    tau_syn: Constant | None = None
    adapt_scale: Constant = 1.8
    spike_threshold: Constant = 1.0
    spike_fn: Spikes = "MultiSpike"
    reset_fn: str = "MembraneSubtract"
    surrogate_grad_fn: Any = None
    min_v_mem: Constant | None = None
    train_alphas: bool = False
    norm_input: bool = True
    grad_width: Positive = 0.5
    grad_scale: Positive = 1.0
    reset_value: Constant = 0.0
    subtract_value: Constant | None = None
    as_shipped: bool = False


FIRING = " spike_threshold spike_fn reset_fn surrogate_grad_fn"  # runs of settings that several classes have
TRAINED = " min_v_mem train_alphas norm_input"
OF_FUNCTIONS = " grad_width grad_scale reset_value subtract_value as_shipped"


def firing(p: Sinabs, threshold: Any) -> Firing:
    """Counts spikes unless spike_fn is "SingleSpike"; the surrogate sees v - threshold.

    SingleExponential is grad_scale / w exp(-|v - threshold| / w), with w = grad_width threshold.
    """
    one_of(p.reset_fn, RESET_FNS, "like: sinabs", "reset_fn")
    most, surrogate = most_spikes(p.spike_fn), p.surrogate_grad_fn
    if surrogate is None:
        width = p.grad_width * (threshold if most == 1 else 1.0)  # counting is done in units of the threshold
        surrogate = Scaled(PiecewiseExp(1.0 / width), 2.0 * p.grad_scale)
    elif most != 1:
        surrogate = InPotential(surrogate, threshold)
    return {
        "v_threshold": p.spike_threshold,
        "v_reset": p.reset_value,
        "reset": "value" if p.reset_fn == "MembraneReset" else "subtract",
        "detach_reset": p.reset_fn == "MembraneReset",
        "compare": ">=",
        "max_spikes": most,
        "surrogate_function": surrogate,
    }


def leaky(p: Sinabs, beta: Any) -> Membrane:
    """LIF and IAF, by what a step keeps of the potential."""
    options, after = firing(p, p.spike_threshold), (p.min_v_mem, p.subtract_value, p.as_shipped, p.norm_input)
    if p.tau_syn is None:
        options["learnable"] = ("beta",) if p.train_alphas else ()
        return SinabsLIF(beta, **options).ending(*after)
    options["learnable"] = ("alpha", "beta") if p.train_alphas else ()
    return SinabsCuba(decay_from_tau(p.tau_syn), beta, order="jump decay read", **options).ending(*after)


@Sinabs.preset({"IFNode": "sinabs"}, FIRING + " tau_syn min_v_mem" + OF_FUNCTIONS, norm_input=False)
def sinabs_iaf(p: Sinabs) -> Membrane:
    """IAF; a spike is 1, and there may be several in a step."""
    return leaky(p, 1.0)


@Sinabs.preset({"CubaLIFNode": "sinabs", "LIFNode": "sinabs"}, "tau_mem tau_syn" + FIRING + TRAINED + OF_FUNCTIONS)
def sinabs_lif(p: Sinabs) -> Membrane:
    """LIF. With tau_syn it has a current, and states (v_mem, i_syn)."""
    return leaky(p, decay_from_tau(p.tau_mem))


@Sinabs.preset(
    {"ALIFNode": "sinabs"},
    "tau_mem tau_adapt tau_syn adapt_scale" + FIRING + TRAINED + OF_FUNCTIONS,
    spike_fn="SingleSpike",
)
def sinabs_alif(p: Sinabs) -> Membrane:
    """ALIF; its states are (v_mem, b), with tau_syn (i_syn, v_mem, b).

    No gradient goes through the comparison with the threshold that adapts, and the surrogate is as wide as it is. With
    tau_syn and norm_input the current there is multiplied by 1 - exp(-1 / tau_mem) at every step, and so forgets
    faster than tau_syn says; here it is when it is read, and as_shipped=True does as there.
    """
    alpha, rho = decay_from_tau(p.tau_mem), decay_from_tau(p.tau_adapt)
    most, norm_input = most_spikes(p.spike_fn), p.norm_input
    if p.surrogate_grad_fn is not None and most != 1:
        raise ArgumentError(
            "ALIFNode.like: sinabs: a surrogate_grad_fn goes with spike_fn='SingleSpike'; several spikes are counted "
            "in thresholds, which change. Leave it out, or take grad_width and grad_scale."
        )
    options = firing(p, 1.0)
    options["learnable"] = ("alpha", "rho") if p.train_alphas else ()
    current = None if p.tau_syn is None else decay_from_tau(p.tau_syn)
    if current is not None and p.as_shipped and norm_input:
        if p.train_alphas:
            raise ArgumentError("ALIFNode.like: sinabs: as_shipped=True with tau_syn does not go with train_alphas.")
        current, norm_input = current * (1.0 - alpha), False
    node = SinabsALIF(alpha, rho, p.adapt_scale, 1.0 - rho, "threshold", **options)
    node.in_thresholds(relative=p.surrogate_grad_fn is None and most == 1)
    node.ending(p.min_v_mem, p.subtract_value, p.as_shipped, norm_input)
    if current is None:
        return node
    return WithSynapse(node, current, "jump decay read", learnable="alpha" if p.train_alphas else ())


@Sinabs.preset({"LINode": "sinabs"}, "tau_mem train_alphas min_v_mem norm_input", norm_input=False)
def sinabs_exp_leak(p: Sinabs) -> Membrane:
    """ExpLeak, which gives its potential before min_v_mem limits it."""
    return SinabsLeak(decay_from_tau(p.tau_mem), p.norm_input, p.min_v_mem, "beta" if p.train_alphas else ())
