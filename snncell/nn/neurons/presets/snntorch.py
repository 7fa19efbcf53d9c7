"""snnTorch 1.0: its neurons, by its own parameters."""

from __future__ import annotations

from typing import Any

from snncell import ops
from snncell.nn.neurons.base import Firing, Neuron
from snncell.nn.neurons.constants import one_of
from snncell.nn.neurons.convert import decay_from_rate
from snncell.nn.neurons.current import AlphaNode, CubaLIFNode
from snncell.nn.neurons.elsewhere import preset
from snncell.nn.neurons.integrate import LeakyNode
from snncell.surrogate import ATan
from snncell.tape.tensor import Tensor


def torch_firing(
    threshold: Any, spike_grad: Any, reset_mechanism: str, delay: str | None, learned: dict[str, bool]
) -> Firing:
    """Fires above the threshold; a delayed reset counts as a constant in the reverse; ATan(2) unless told otherwise."""
    one_of(reset_mechanism, ("subtract", "zero", "none"), "like: snntorch", "reset_mechanism")
    return {
        "v_threshold": threshold,
        "reset": None if reset_mechanism == "none" else reset_mechanism,
        "surrogate_function": spike_grad or ATan(2.0),
        "delay": delay,
        "detach_reset": delay is not None,
        "learnable": tuple(name for name, wanted in learned.items() if wanted),
    }


class _AsShipped(LeakyNode):
    """snnTorch's reset_delay=False with "subtract": what is left above the threshold swallows the next spike."""

    def construct(self, x: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        late = ops.stop_gradient(self.spikes(v))
        h = self.beta * v + x - late * self.v_threshold
        s = self.spikes(h)
        return s, h - (s - late) * self.v_threshold


@preset("LIFNode", "snntorch")
@preset("LeakyNode", "snntorch")
def torch_leaky(
    beta: Any,
    threshold: Any = 1.0,
    spike_grad: Any = None,
    learn_beta: bool = False,
    learn_threshold: bool = False,
    reset_mechanism: str = "subtract",
    reset_delay: bool = True,
    as_shipped: bool = False,
) -> Neuron:
    """Leaky. With reset_delay=False and "subtract" version 1.0 swallows spikes; here only as_shipped=True does."""
    learned = {"beta": learn_beta, "v_threshold": learn_threshold}
    swallows = as_shipped and reset_mechanism == "subtract" and not reset_delay
    delay = "reset" if reset_delay else None
    firing = torch_firing(threshold, spike_grad, reset_mechanism, delay, learned)
    return (_AsShipped if swallows else LeakyNode)(beta, **firing)


@preset("CubaLIFNode", "snntorch")
@preset("LIFNode", "snntorch.Synaptic")
def torch_synaptic(
    alpha: Any,
    beta: Any,
    threshold: Any = 1.0,
    spike_grad: Any = None,
    learn_alpha: bool = False,
    learn_beta: bool = False,
    learn_threshold: bool = False,
    reset_mechanism: str = "subtract",
    reset_delay: bool = True,
) -> Neuron:
    """Synaptic; its states are (mem, syn). A delayed "zero" takes the input of its step, too."""
    learned = {"alpha": learn_alpha, "beta": learn_beta, "v_threshold": learn_threshold}
    delay = "reset+input" if reset_delay else None
    return CubaLIFNode(alpha, beta, **torch_firing(threshold, spike_grad, reset_mechanism, delay, learned))


@preset("AlphaNode", "snntorch")
@preset("LIFNode", "snntorch.Alpha")
def torch_alpha(
    alpha: Any,
    beta: Any,
    threshold: Any = 1.0,
    spike_grad: Any = None,
    learn_alpha: bool = False,
    learn_beta: bool = False,
    learn_threshold: bool = False,
    reset_mechanism: str = "zero",
) -> Neuron:
    """Alpha, with "zero" or "none"; its states are (syn_exc, syn_inh, mem)."""
    one_of(reset_mechanism, ("zero", "none"), "like: snntorch", "reset_mechanism of Alpha")
    learned = {"alpha": learn_alpha, "beta": learn_beta, "v_threshold": learn_threshold}
    return AlphaNode(alpha, beta, **torch_firing(threshold, spike_grad, reset_mechanism, "reset+input", learned))


@preset("LIFNode", "snntorch.Lapicque")
def torch_lapicque(
    R: float,  # noqa: N803 (its names there)
    C: float,  # noqa: N803
    time_step: float = 1.0,
    threshold: Any = 1.0,
    spike_grad: Any = None,
    learn_threshold: bool = False,
    reset_mechanism: str = "subtract",
) -> Neuron:
    """Lapicque, by its resistance and capacitance."""
    learned = {"v_threshold": learn_threshold}
    firing = torch_firing(threshold, spike_grad, reset_mechanism, "reset+input", learned)
    firing["input_gain"] = time_step / C
    return LeakyNode(decay_from_rate(1.0 / (R * C), time_step), **firing)
