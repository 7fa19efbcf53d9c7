"""Infer the connections between neurons from their spike times, by exact gradients through a recurrent layer.

A network with unknown recurrent weights gets random input spikes. A second network, which begins without recurrent
weights, learns to spike at the same times. Its weights become those of the first one.
"""

import numpy as np

import snncell
from snncell import Tensor, nn, ops


def main(updates: int = 3000, patterns: int = 32, inputs: int = 6, neurons: int = 8) -> tuple[float, float]:
    """Train, and return the mean errors of the spike times in ms and of the weights."""
    snncell.set_seed(0)
    rng = np.random.default_rng(0)
    times = Tensor(rng.uniform(0.0, 40.0, (patterns, inputs, 2)).astype(np.float32))  # two spikes per input, in ms
    weights = Tensor(rng.normal(1.2, 0.5, (neurons, inputs)).astype(np.float32))
    hidden = rng.normal(0.0, 0.5, (neurons, neurons)).astype(np.float32)

    def network(recurrent) -> nn.EventPropLIF:
        return nn.EventPropLIF(inputs, neurons, spikes=4, t_max=80.0, weight_init=weights, recurrent_init=recurrent)

    wanted, student = network(Tensor(hidden))(times), network(0.0)
    adam = nn.Adam([student.recurrent_weight], nn.CosineDecayLR(2e-4, 2e-2, updates))

    def error(times):
        found = student(times)
        both = ops.logical_and(found < np.inf, wanted < np.inf)  # a spike that only one network has is no error
        return ops.square(ops.where(both, found, 0.0) - ops.where(both, wanted, 0.0)).mean()

    gradients = snncell.value_and_grad(error, None, [student.recurrent_weight])

    @snncell.jit
    def step(times):
        loss, grads = gradients(times)
        adam(snncell.train.clip_by_global_norm(grads, 1.0))  # gradients are unbounded where a spike appears
        return loss

    def errors() -> tuple[float, float]:
        found, right = student(times).asnumpy(), wanted.asnumpy()
        both = np.isfinite(found) & np.isfinite(right)
        of_times = np.abs(found[both] - right[both]).mean()
        return float(of_times), float(np.abs(student.recurrent_weight.asnumpy() - hidden).mean())

    before = errors()
    for _ in range(updates):
        step(times)
    after = errors()
    for name, of_times, of_weights in (("before", *before), ("after", *after)):
        print(f"{name}: mean error of spike times {of_times:.4f} ms, of recurrent weights {of_weights:.4f}")
    return after


if __name__ == "__main__":
    main()
