"""PyTorch: swap the neuron of a SpikingJelly or snnTorch network for a compiled one, in one line.

Two networks learn digits for a few steps, with the neurons of SpikingJelly and snnTorch, and with ours. The example
compares all spikes and losses, and the CPU time of a training step.

Needs `pip install "snncell[torch]" spikingjelly snntorch`.

    python examples/torch_module.py
"""

import time

import snntorch
import torch
from spikingjelly.activation_based import functional, layer, neuron
from torch import nn

from snncell.data import digits
from snncell.nn import LIFNode
from snncell.torch import fused


class Convolutional(nn.Module):
    """SpikingJelly: each layer runs over all time steps, (B, 1, 8, 8) -> spikes (T, B, 10)."""

    def __init__(self, make):
        super().__init__()
        first = [layer.Conv2d(1, 16, 3, padding=1), layer.BatchNorm2d(16), make(), layer.MaxPool2d(2)]
        self.layers = nn.Sequential(*first, layer.Flatten(), layer.Linear(256, 10), make())
        functional.set_step_mode(self, "m")

    def forward(self, x):
        return self.layers(x.repeat(8, 1, 1, 1, 1))


class Stepwise(nn.Module):
    """snnTorch: a loop over time, as in its tutorials, (B, 1, 8, 8) -> spikes (T, B, 10)."""

    def __init__(self, make):
        super().__init__()
        self.fc1, self.lif1, self.fc2, self.lif2 = nn.Linear(64, 1000), make(), nn.Linear(1000, 10), make()

    def forward(self, x):
        (mem1, mem2), recorded = (self.lif1.reset_mem(), self.lif2.reset_mem()), []
        for _ in range(25):
            spk1, mem1 = self.lif1(self.fc1(x.flatten(1)), mem1)
            spk2, mem2 = self.lif2(self.fc2(spk1), mem2)
            recorded.append(spk2)
        return torch.stack(recorded)


def trained(net, x, y, steps):
    """Train, and return spikes and losses, and the CPU seconds of the fastest step."""
    optimiser, found, seconds = torch.optim.SGD(net.parameters(), 0.05), [], []
    for _ in range(steps):
        begun, spikes = time.process_time(), net(x)
        loss = nn.functional.cross_entropy(spikes.mean(0), y)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        functional.reset_net(net)
        seconds.append(time.process_time() - begun)
        found += [spikes.detach(), loss.detach()]
    return found, min(seconds)


def main(steps=5, samples=128):
    torch.set_num_threads(1)
    x, y = (torch.as_tensor(part[:samples]) for part in digits()[0])
    all_same = True
    for kind, theirs, swapped in (
        (Convolutional, neuron.LIFNode, lambda: fused(LIFNode.like("spikingjelly"))),
        (Stepwise, lambda: snntorch.Leaky(0.95), lambda: fused(LIFNode.like("snntorch", beta=0.95), over_time=False)),
    ):
        runs = []
        for make in (theirs, swapped):
            torch.manual_seed(0)
            runs.append(trained(kind(make), x.reshape(samples, 1, 8, 8).float(), y.long(), steps))
        (expected, before), (found, after) = runs
        same = all(map(torch.allclose, expected, found))
        print(f"{kind.__name__}: {'the same' if same else 'OTHER'} spikes, a step takes 1/{before / after:.1f} of the time")
        all_same &= same
    return all_same


if __name__ == "__main__":
    main()
