"""A recurrent network on random manifolds: every input neuron fires once, and only the times differ between classes."""

import snncell
from snncell import nn
from snncell.common.initializer import Normal
from snncell.data import randman
from snncell.train import Batches


def network(units: int, neurons: int, classes: int) -> nn.Cell:
    """Recurrent neurons with a synaptic current, and the maximum potential of integrators."""
    node = nn.CubaLIFNode(alpha=0.8, beta=0.9, surrogate_function=snncell.surrogate.ATan())
    feedback = nn.Dense(neurons, neurons, weight_init=Normal(0.05))
    return nn.SequentialCell(
        nn.Dense(units, neurons, weight_init=Normal(0.5)),
        nn.MultiStep(nn.Recurrent(node, feedback)),
        nn.Dense(neurons, classes),
        nn.MultiStep(nn.LINode(tau=10.0)),
        nn.Readout("max"),
    )


def main(epochs: int = 25, samples: int = 400, neurons: int = 64, steps: int = 50) -> float:
    """Train, and return the accuracy on new patterns."""
    snncell.set_seed(0)
    classes, units = 5, 20
    patterns, labels = randman(classes, units, samples, steps, dim=1, seed=3)
    split = 4 * len(labels) // 5
    net = network(units, neurons, classes)
    result = snncell.train.fit(
        net,
        nn.CrossEntropyLoss(),
        nn.Adam(net.trainable_params(), 5e-3),
        Batches(patterns[:, :split], labels[:split], batch_size=50, time_first=True),
        epochs,
        validation=Batches(patterns[:, split:], labels[split:], batch_size=50, shuffle=False, time_first=True),
        firing_rate=net[1],
        progress=False,
    )
    counts = patterns.sum(0)
    print(f"each input fires {counts.min():.0f} to {counts.max():.0f} times; chance is {1 / classes:.2f}")
    best = result.best
    print(
        f"train {best['accuracy']:.3f}, test {best['test_accuracy']:.3f}, firing {best['test_firing_rate']:.3f}, ",
        end="",
    )
    print(f"{result.seconds:.1f} s including compilation")
    return best["test_accuracy"]


if __name__ == "__main__":
    main()
