"""Hooks: functions that are called before and after a Cell, and may change what goes in and comes out."""

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops

ms.set_context(mode=ms.PYNATIVE_MODE)
shapes = []


def look(cell, inputs):
    shapes.append((type(cell).__name__, inputs[0].shape))


def halve(cell, inputs, output):
    return output * 0.5


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.dense = nn.Dense(3, 2, weight_init="ones", bias_init="zeros")
        self.relu = nn.ReLU()
        self.looked = self.relu.register_forward_pre_hook(look)
        self.halved = self.dense.register_forward_hook(halve)

    def construct(self, x):
        return self.relu(self.dense(x))


net = Net()
x = Tensor(np.ones((1, 3)), ms.float32)
print(net(x))
# prints [[1.5 1.5]]
print(shapes)
# prints [('ReLU', (1, 2))]

# A hook that changes an output is differentiated with the rest.
print(ms.grad(lambda x: net(x).sum())(x))
# prints [[1. 1. 1.]]

net.halved.remove()
net.looked.remove()
print(net(x))
# prints [[3. 3.]]
print(len(shapes))
# prints 2


def shift(cell, inputs):
    return inputs[0] + 1.0


handle = net.register_forward_pre_hook(shift)
print(net(x))
# prints [[6. 6.]]
handle.remove()
print(net(x), ops.relu(x).shape)
# prints [[3. 3.]] (1, 3)
