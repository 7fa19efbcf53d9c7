"""PyTorch: swap the neuron of a SpikingJelly or snnTorch network for a compiled one, in one line.

Two networks learn digits for a few steps, with the neurons of SpikingJelly and snnTorch, and with ours. The example
compares all spikes, and the CPU time of a training step. Needs `pip install "snncell[torch]" spikingjelly snntorch`.

    python examples/torch_module.py
"""

import time

import snntorch
import torch
from spikingjelly.activation_based import functional, layer, neuron

from snncell.data import digits
from snncell.nn import LIFNode
from snncell.torch import fused


class Convolutional(torch.nn.Module):
    """SpikingJelly: each layer runs over all time steps, (B, 1, 8, 8) -> spikes (T, B, 10)."""

    def __init__(self, make):
        super().__init__()
        first = [layer.Conv2d(1, 16, 3, padding=1), layer.BatchNorm2d(16), make(), layer.MaxPool2d(2)]
        self.layers = torch.nn.Sequential(*first, layer.Flatten(), layer.Linear(256, 10), make())
        functional.set_step_mode(self, "m")

    def forward(self, x):
        return self.layers(x.repeat(8, 1, 1, 1, 1))


class Stepwise(torch.nn.Module):
    """snnTorch: a loop over time, as in its tutorials, (B, 1, 8, 8) -> spikes (T, B, 10)."""

    def __init__(self, make):
        super().__init__()
        self.fc1, self.lif1, self.fc2, self.lif2 = torch.nn.Linear(64, 1000), make(), torch.nn.Linear(1000, 10), make()

    def forward(self, x):
        mem1, mem2, recorded = self.lif1.reset_mem(), self.lif2.reset_mem(), []
        for _ in range(25):
            spk1, mem1 = self.lif1(self.fc1(x.flatten(1)), mem1)
            spk2, mem2 = self.lif2(self.fc2(spk1), mem2)
            recorded.append(spk2)
        return torch.stack(recorded)


def trained(kind, make, steps, samples):
    """Train a network, and return the spikes of all steps, and the CPU seconds of the last one."""
    torch.manual_seed(0)
    x, y = (torch.as_tensor(part[:samples]) for part in digits()[0])
    net, found = kind(make), []
    optimiser = torch.optim.SGD(net.parameters(), 0.05)
    for _ in range(steps):
        begun, spikes = time.process_time(), net(x.reshape(-1, 1, 8, 8).float())
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(spikes.mean(0), y.long()).backward()
        optimiser.step()
        functional.reset_net(net)
        found.append(spikes)
    return torch.stack(found), time.process_time() - begun


def same_spikes(kind, theirs, ours, steps, samples):
    (expected, before), (found, after) = (trained(kind, make, steps, samples) for make in (theirs, ours))
    print(f"{kind.__name__}: {(found != expected).sum()} other spikes, {before / after:.1f} times as fast")
    return torch.equal(found, expected)


def main(steps=5, samples=128):
    jelly = neuron.LIFNode, lambda: fused(LIFNode.like("spikingjelly"))
    leaky = lambda: snntorch.Leaky(0.95), lambda: fused(LIFNode.like("snntorch", beta=0.95), over_time=False)
    return same_spikes(Convolutional, *jelly, steps, samples) and same_spikes(Stepwise, *leaky, steps, samples)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
