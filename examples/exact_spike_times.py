"""EventProp: two layers learn target spike times by exact gradients, without time steps.

The inputs and outputs of the network are spike times in ms. Gradient descent on the squared errors learns these times
to a fraction of a ms, because the gradients are exact.
"""

import numpy as np

import snncell
from snncell import Tensor, nn, ops

END = 50.0  # ms, the time of a silent neuron; safe here, because each output has its own target


def task(patterns: int, lines: int, outputs: int):
    """Return input patterns (each line fires once within 20 ms) and target times between 8 and 22 ms."""
    rng = np.random.default_rng(0)
    times = rng.uniform(0.0, 20.0, (patterns, lines)).astype(np.float32)
    return Tensor(times), Tensor(rng.uniform(8.0, 22.0, (patterns, outputs)).astype(np.float32))


def main(updates: int = 600, patterns: int = 4, lines: int = 40, hidden: int = 40, outputs: int = 3) -> float:
    """Train, and return the mean distance from the target times in ms."""
    snncell.set_seed(0)
    times, wanted = task(patterns, lines, outputs)
    net = nn.SequentialCell(
        nn.EventPropLIF(lines, hidden, tau_mem=20.0, tau_syn=5.0, t_max=END),
        nn.EventPropLIF(hidden, outputs, tau_mem=20.0, tau_syn=5.0, t_max=END),
    )
    adam = nn.Adam(net.trainable_params(), nn.CosineDecayLR(1e-4, 1e-2, updates))

    def error(times):
        found = ops.minimum(net(times)[..., 0], END)  # first spikes, (B, N)
        return ops.square(found - wanted).mean(), found

    gradients = snncell.value_and_grad(error, None, net.trainable_params(), has_aux=True)

    @snncell.jit
    def step(times):
        (loss, found), grads = gradients(times)
        adam(snncell.train.clip_by_global_norm(grads, 1.0))  # gradients are unbounded where a spike appears
        silent = (found == END).astype("float32").mean(0)  # a silent neuron has no gradient, so raise its weights
        net[1].weight.set_data(net[1].weight + 0.01 * silent.expand_dims(1))
        return loss

    def distance() -> float:
        return float(np.abs(np.minimum(net(times)[..., 0].asnumpy(), END) - wanted.asnumpy()).mean())

    before = distance()
    for _ in range(updates):
        step(times)
    after = distance()
    print(f"mean distance from the target times: {before:.2f} ms before, {after:.3f} ms after")
    print("target and output times in ms, one pattern per line:")
    for row, found in zip(wanted.asnumpy(), net(times)[..., 0].asnumpy(), strict=True):
        print("  ", row.round(2), found.round(2))
    return after


if __name__ == "__main__":
    main()
