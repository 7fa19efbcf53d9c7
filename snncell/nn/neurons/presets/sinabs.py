"""sinabs 3.1: its neurons, by its own parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal, Self

from snncell import ops
from snncell.base.arguments.kinds import Constant, Count, Positive
from snncell.cell.ranges import DECAY, Range, one_of
from snncell.errors import ArgumentError
from snncell.nn.neurons.base import Counting, Neuron
from snncell.nn.neurons.constants import Membrane
from snncell.nn.neurons.convert import decay_from_tau
from snncell.nn.neurons.current import CubaLIFNode, WithSynapse
from snncell.nn.neurons.elsewhere import FrameworkSettings, absent
from snncell.nn.neurons.integrate import LeakyNode
from snncell.nn.neurons.variants import ALIFNode
from snncell.surrogate import PiecewiseExp, Scaled
from snncell.surrogate.wrappers import Inclusive, Wrapper
from snncell.tape.tensor import Tensor

# --- steps that differ from those of the library ----------------------------------------------------------------------


def raise_to_floor(v: Any, floor: Any) -> Any:
    """A potential, and where it is below the floor the floor."""
    return v if floor is None else ops.relu(v - floor) + floor


class InPotential(Wrapper):
    """A spike function in units of the potential, for x in thresholds: the other one's of x v_threshold."""

    def __init__(self, surrogate_function: Any, v_threshold: Any) -> None:
        super().__init__(surrogate_function)
        if not isinstance(v_threshold, (int, float)):
            raise ArgumentError(
                "like: sinabs: a surrogate_grad_fn with several spikes in a step needs one number as spike_threshold, "
                f"not {v_threshold!r:.200}."
            )
        self.v_threshold = v_threshold

    def construct(self, x: Tensor) -> Any:
        return self.surrogate_function.construct(x)

    def bprop(self, x: Tensor, out: Tensor, dout: Tensor) -> Any:
        return self.surrogate_function.bprop(x * self.v_threshold, out, dout * self.v_threshold)

    def primitive(self, x: Tensor) -> Any:
        return self.surrogate_function.primitive(x * self.v_threshold)


class SinabsEnd(Neuron):
    """A step that ends as sinabs's do: with a reset by a value of its own, and a floor below the potential."""

    starts = "at_first"
    at_first = 0.0
    min_v_mem: Any = None
    subtract_value: Any = None
    resets_all = False
    norm_input = False
    decay = "beta"  # the constant that is the factor that a step keeps of the potential

    def ending(self, floor: Any, subtract_value: Any, as_shipped: bool, norm_input: bool = False) -> Self:
        """The neuron itself, with these."""
        self.resets_all, self.norm_input = as_shipped and self.reset == "value", norm_input
        return self.having(min_v_mem=floor, subtract_value=subtract_value)

    def range_of(self, name: str) -> Range:
        """The range of a constant: the floor is below the threshold."""
        if name == "min_v_mem":
            return Range(high=self.v_threshold, text="is below spike_threshold")
        usual = super().range_of(name)
        if name != "v_threshold" or self.min_v_mem is None:
            return usual
        ends = usual.low, self.min_v_mem
        low = ops.maximum(*ends) if any(isinstance(x, Tensor) for x in ends) else max(ends)
        return Range(low, text=f"{usual.text}, and above min_v_mem")

    def gained(self, x: Any) -> Any:
        """The input, with norm_input times what a step does not keep."""
        return x * (1.0 - getattr(self, self.decay)) if self.norm_input else x

    def after_reset(self, h: Any, spike: Any, drop: Any = None) -> Any:
        """The potential after the reset, above the floor."""
        if self.resets_all:
            v = h * (1.0 - ops.minimum(ops.stop_gradient(spike), 1.0)) + self.v_reset
        else:
            v = super().after_reset(h, spike, drop if self.subtract_value is None else self.subtract_value)
        return raise_to_floor(v, self.min_v_mem)


class SinabsLIF(SinabsEnd, LeakyNode):
    """LIF, IAF."""


class SinabsCuba(SinabsEnd, CubaLIFNode):
    """LIF and IAF with tau_syn; the gain is that of the current."""

    def gained(self, x: Any) -> Any:
        """The input as it is."""
        return x

    def read(self, current: Tensor) -> Any:
        """The current, with norm_input times what a step does not keep."""
        return SinabsEnd.gained(self, current)


class SinabsALIF(SinabsEnd, ALIFNode):
    """ALIF: the surrogate is as wide as the threshold, through which no gradient goes; that of the reset goes on."""

    relative = False
    decay = "alpha"

    def in_thresholds(self, relative: bool) -> None:
        """Make a single spike one of h / threshold - 1, as several spikes are already."""
        self.relative = relative
        if relative and isinstance(self.surrogate_function, Inclusive):
            self.fire_by(Counting(self.surrogate_function.surrogate_function, 1, ">="), 1)
            self.own_function = True

    def adapted(self, a: Any, s: Any) -> Any:
        """The adaptation after a step: rho a + (1 - rho) s."""
        rho = self.rho
        return rho * a + (1.0 - rho) * s

    def spikes(self, h: Any, threshold: Any = None) -> Any:
        """The number of spikes, with the threshold as a constant in the reverse."""
        held = ops.stop_gradient(self.v_threshold if threshold is None else threshold)
        return self.fire_at(h / held - 1.0) if self.relative else super().spikes(h, held)


class SinabsLeak(Membrane):
    """ExpLeak: v = beta v + x, or with norm_input beta v + (1 - beta) x; its output is not limited, its state is."""

    beta: Any
    min_v_mem: Any = None
    ranges: ClassVar = {"beta": DECAY}

    def __init__(self, beta: Any, norm_input: bool, floor: Any, learnable: str | Sequence[str]) -> None:
        super().__init__({"beta": beta}, learnable)
        self.norm_input = norm_input
        self.having(min_v_mem=floor)

    def construct(self, x: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        beta = self.beta
        h = beta * v + (x * (1.0 - beta) if self.norm_input else x)
        return h, raise_to_floor(h, self.min_v_mem)

    def init_state(self, x: Tensor) -> Tensor:
        """A potential of 0."""
        return self.filled(x, 0.0)


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


def most_spikes(spike_fn: Any) -> Any:
    """The largest number of spikes in a step: of MaxSpike(n) it is n."""
    if not isinstance(spike_fn, int):
        one_of(spike_fn, SPIKE_FNS, "like: sinabs", "spike_fn, if no number (MaxSpike),")
    return {"MultiSpike": None, "SingleSpike": 1}.get(spike_fn, spike_fn)


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


def firing(p: Sinabs, threshold: Any) -> dict[str, Any]:
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


preset = Sinabs.preset
preset(  # IAF; a spike is 1, and there may be several in a step
    {"IFNode": "sinabs"},
    FIRING + " tau_syn min_v_mem" + OF_FUNCTIONS,
    lambda p: leaky(p, 1.0),
    norm_input=False,
)
preset(  # LIF; with tau_syn it has a current, and states (v_mem, i_syn)
    {"CubaLIFNode": "sinabs", "LIFNode": "sinabs"},
    "tau_mem tau_syn" + FIRING + TRAINED + OF_FUNCTIONS,
    lambda p: leaky(p, decay_from_tau(p.tau_mem)),
)
preset(
    {"ALIFNode": "sinabs"},
    "tau_mem tau_adapt tau_syn adapt_scale" + FIRING + TRAINED + OF_FUNCTIONS,
    sinabs_alif,
    spike_fn="SingleSpike",
)
preset(  # ExpLeak, which gives its potential before min_v_mem limits it
    {"LINode": "sinabs"},
    "tau_mem train_alphas min_v_mem norm_input",
    lambda p: SinabsLeak(decay_from_tau(p.tau_mem), p.norm_input, p.min_v_mem, "beta" if p.train_alphas else ()),
    norm_input=False,
)
