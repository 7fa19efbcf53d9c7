"""EventProp: two layers learn to answer patterns of spikes by spikes at wanted times, without time steps.

What goes through the network are spike times in ms. Their gradients are exact, so times are learned to a fraction of
a ms by gradient descent on the squared errors.
"""

import numpy as np

import snncell
from snncell import Tensor, nn, ops

END = 50.0  # ms: the time of a silent neuron; each time has its own target, so this makes no other neuron later


def task(patterns: int, lines: int, outputs: int):
    """Patterns in which each line fires once within 20 ms, and when each output is to fire: between 8 and 22 ms."""
    rng = np.random.default_rng(0)
    times = rng.uniform(0.0, 20.0, (patterns, lines)).astype(np.float32)
    return Tensor(times), Tensor(rng.uniform(8.0, 22.0, (patterns, outputs)).astype(np.float32))


def main(updates: int = 600, patterns: int = 4, lines: int = 40, hidden: int = 40, outputs: int = 3) -> float:
    """Train; the mean distance in ms between the times and those wanted."""
    snncell.set_seed(0)
    times, wanted = task(patterns, lines, outputs)
    net = nn.SequentialCell(
        nn.EventPropLIF(lines, hidden, tau_mem=20.0, tau_syn=5.0, t_max=END),
        nn.EventPropLIF(hidden, outputs, tau_mem=20.0, tau_syn=5.0, t_max=END),
    )
    adam = nn.Adam(net.trainable_params(), nn.CosineDecayLR(1e-4, 1e-2, updates))

    def error(times):
        found = ops.minimum(net(times)[..., 0], END)  # the first spikes, (B, N)
        return ops.square(found - wanted).mean(), found

    gradients = snncell.value_and_grad(error, None, net.trainable_params(), has_aux=True)

    @snncell.jit
    def step(times):
        (loss, found), grads = gradients(times)
        adam(snncell.train.clip_by_global_norm(grads, 1.0))  # where a spike appears gradients have no bound
        silent = (found == END).astype("float32").mean(0)  # silence has no gradient: more weight ends it
        net[1].weight.set_data(net[1].weight + 0.01 * silent.expand_dims(1))
        return loss

    def distance() -> float:
        return float(np.abs(np.minimum(net(times)[..., 0].asnumpy(), END) - wanted.asnumpy()).mean())

    before = distance()
    for _ in range(updates):
        step(times)
    after = distance()
    print(f"mean distance from the wanted times: {before:.2f} ms before, {after:.3f} ms after")
    print("wanted and found, in ms, pattern by pattern:")
    for row, found in zip(wanted.asnumpy(), net(times)[..., 0].asnumpy(), strict=True):
        print("  ", row.round(2), found.round(2))
    return after


if __name__ == "__main__":
    main()
