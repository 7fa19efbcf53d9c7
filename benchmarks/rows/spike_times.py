"""Event-driven LIF networks: times of first spikes and their exact gradients, forward and backward."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import snncell
from benchmarks.frameworks import jax_vjp, snncell_vjp
from benchmarks.row import Contestant, Row
from snncell import Tensor, nn

INPUTS, HIDDEN, OUTPUTS = 5, 20, 3
TAU_MEM, TAU_SYN, END = 20.0, 5.0, 60.0  # ms
STEP, LONGEST = 0.5, 1.0  # ms: steps of EventDense, and of Eventax, which starts a new step at each spike
SPIKES = 2  # most spikes of a hidden neuron before the last output has spiked; Eventax has no limit


@dataclass(frozen=True)
class Sizes:
    """The batch size."""

    batch: int

    def arrays(self) -> tuple[Any, ...]:
        """Return times (B, 5) in ms, weights of both layers (out, in), and the gradient of output times (B, 3)."""
        rng = np.random.default_rng(0)
        w = rng.normal(2.5, 1.0, (INPUTS, HIDDEN)), rng.normal(0.9, 0.2, (HIDDEN, OUTPUTS))
        points, _ = snncell.data.yin_yang(self.batch)
        x = np.pad(30.0 * points, ((0, 0), (0, 1)))
        arrays = (x, *(each.T for each in w), rng.standard_normal((self.batch, OUTPUTS)))
        return tuple(np.ascontiguousarray(each, np.float32) for each in arrays)


def snncell_layers(layer: Callable[[int, int, int, Tensor], nn.Cell]) -> Callable[..., Contestant]:
    """Return a contestant with two layers that `layer(inputs, outputs, spikes, weight)` creates."""

    def contestant(x: Any, first: Any, second: Any, dout: Any) -> Contestant:
        layers = [layer(INPUTS, HIDDEN, SPIKES, Tensor(first)), layer(HIDDEN, OUTPUTS, 1, Tensor(second))]
        net, times = nn.SequentialCell(*layers), Tensor(x)
        return snncell_vjp(lambda: net(times)[..., 0], [], dout, net.trainable_params(), spikes=False, jitted=True)

    return contestant


def eventprop_layer(inputs: int, outputs: int, spikes: int, weight: Tensor) -> nn.Cell:
    return nn.EventPropLIF(inputs, outputs, TAU_MEM, TAU_SYN, spikes=spikes, t_max=END, weight_init=weight)


def event_layer(step: float | None) -> Callable[[int, int, int, Tensor], nn.Cell]:
    def layer(inputs: int, outputs: int, spikes: int, weight: Tensor) -> nn.Cell:
        return nn.EventDense(nn.EventLIF(), inputs, outputs, END, step, weight, spikes)

    return layer


def eventax(x: Any, first: Any, second: Any, dout: Any) -> Contestant:
    """Eventax, whose network has one matrix for all synapses: its rows are the neurons, then the inputs.

    Its default root finder, Newton's method, accepts a distance of 1e-2 from the threshold. With a smaller tolerance it
    fails if the potential falls again before the end of a step, because it starts at this end. So this contestant uses
    bisection. It must be able to expand the interval, because otherwise it refuses samples without a spike.
    """
    import diffrax
    import equinox
    import jax
    import jax.numpy as jnp
    import optimistix
    from eventax.evnn import FFEvNN
    from eventax.neuron_models import LIF

    neurons = HIDDEN + OUTPUTS
    net = FFEvNN(
        [HIDDEN, OUTPUTS], INPUTS, LIF, END, jax.random.PRNGKey(0), solver_stepsize=LONGEST, solver=diffrax.Tsit5(),
        root_finder=optimistix.Bisection(1e-5, 1e-5, expand_if_necessary=True), max_event_steps=128,
        output_no_spike_value=jnp.inf, thresh=1.0, tmem=TAU_MEM, tsyn=TAU_SYN, init_bias=jnp.zeros(neurons),
        init_weights=jnp.zeros((neurons + INPUTS, neurons)),
    )  # fmt: skip

    def times(first: Any, second: Any) -> Any:
        w = jnp.zeros((neurons + INPUTS, neurons))
        w = w.at[neurons:, :HIDDEN].set(first.T).at[:HIDDEN, HIDDEN:].set(second.T)
        own = equinox.tree_at(lambda net: net.neuron_model.weights, net, w)
        return jax.vmap(lambda x: own.ttfs(x[:, None]))(jnp.asarray(x))

    return jax_vjp(times, [first, second], dout, spikes=False)


CONTESTANTS: dict[str, Callable[..., Contestant]] = {
    "snncell": snncell_layers(eventprop_layer),
    "snncell, EventDense, closed form": snncell_layers(event_layer(None)),
    "snncell, EventDense": snncell_layers(event_layer(STEP)),
    "Eventax": eventax,
}
ROWS = [
    Row(
        "event-lif",
        "exact spike times, LIF 5-20-3, batch 256",
        Sizes(256),
        Sizes(4),
        Sizes.arrays,
        CONTESTANTS,
        remark="exact spike times: snncell is `EventPropLIF`, which has a closed form. `EventDense` has it too if it "
        "needs no steps. With steps of 0.5 ms, it solves any neuron, as Eventax does with steps of at most 1 ms.",
    )
]
