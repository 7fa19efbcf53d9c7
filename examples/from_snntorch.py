"""A snnTorch network in snncell, with the same spikes: `LIFNode.like("snntorch", ...)` takes snnTorch's parameters.

The same weights and inputs go through both networks, and the example compares spikes, loss and gradients. If snnTorch
is not installed, it compares with stored results of snnTorch 1.0.
"""

import importlib.util
from itertools import pairwise

import numpy as np

import snncell
from snncell import Tensor, nn

STEPS, BATCH, WIDTHS = 25, 8, (20, 30, 4)
LEAKY = ({"beta": 0.9}, {"beta": 0.8, "threshold": 0.7, "reset_mechanism": "zero"})  # snnTorch's parameters
SPIKES = (2105, 340)  # results of snnTorch 1.0: spikes of both layers,
NORMS = (37.144409, 28.083838)  # and the norms of both weights' gradients


def drawn():
    """Return random weights (out, in) and biases of both layers, and input spikes (T, B, N)."""
    rng = np.random.default_rng(0)
    layers = [(rng.uniform(-1, 1.4, (m, n)) / n**0.5, rng.uniform(0, 0.2, m)) for n, m in pairwise(WIDTHS)]
    x = rng.uniform(size=(STEPS, BATCH, WIDTHS[0])) < 0.3
    return [(w.astype(np.float32), b.astype(np.float32)) for w, b in layers], x.astype(np.float32)


def there(layers, x):
    """Run snnTorch: the spikes of both layers, and the gradients of both weights for a cross entropy of the counts."""
    import snntorch
    import torch

    dense = [torch.nn.Linear(w.shape[1], w.shape[0]) for w, _ in layers]
    for layer, (w, b) in zip(dense, layers, strict=True):
        layer.weight.data, layer.bias.data = torch.tensor(w), torch.tensor(b)
    neurons = [snntorch.Leaky(**settings) for settings in LEAKY]
    states = [neuron.reset_mem() for neuron in neurons]
    recorded = [[], []]
    for now in torch.tensor(x):
        for n, (layer, neuron) in enumerate(zip(dense, neurons, strict=True)):
            now, states[n] = neuron(layer(now), states[n])
            recorded[n].append(now)
    spikes = [torch.stack(steps) for steps in recorded]
    torch.nn.functional.cross_entropy(spikes[1].sum(0), torch.arange(BATCH) % WIDTHS[-1]).backward()
    return [s.detach().numpy() for s in spikes], [layer.weight.grad.numpy() for layer in dense]


def here(layers, x):
    """Run the same in snncell, without a loop over time."""
    dense = [nn.Dense(w.shape[1], w.shape[0], weight_init=Tensor(w), bias_init=Tensor(b)) for w, b in layers]
    neurons = [nn.MultiStep(nn.LIFNode.like("snntorch", **settings)) for settings in LEAKY]

    def loss(x):
        first = neurons[0](dense[0](x))
        second = neurons[1](dense[1](first))
        return nn.CECountLoss()(second, Tensor(np.arange(BATCH) % WIDTHS[-1])), (first, second)

    weights = [layer.weight for layer in dense]
    (_, spikes), gradients = snncell.value_and_grad(loss, None, weights, has_aux=True)(Tensor(x))
    return [s.asnumpy() for s in spikes], [g.asnumpy() for g in gradients]


def main() -> bool:
    """Compare both, and return whether all spikes are the same."""
    spikes, gradients = here(*drawn())
    counts, norms = tuple(int(s.sum()) for s in spikes), tuple(float(np.linalg.norm(g)) for g in gradients)
    print(f"spikes of both layers {counts}, norms of the gradients {norms[0]:.6f} {norms[1]:.6f}")
    if importlib.util.find_spec("snntorch") is None:
        print("snnTorch is not installed; compared with stored results of version 1.0")
        return counts == SPIKES and np.allclose(norms, NORMS, rtol=1e-4)
    theirs, of_theirs = there(*drawn())
    same = all(np.array_equal(a, b) for a, b in zip(spikes, theirs, strict=True))
    off = max(float(np.abs(a - b).max()) for a, b in zip(gradients, of_theirs, strict=True))
    print(f"compared with snnTorch: spikes {'the same' if same else 'DIFFER'}, gradients within {off:.1e}")
    return same and off < 1e-5


if __name__ == "__main__":
    main()
