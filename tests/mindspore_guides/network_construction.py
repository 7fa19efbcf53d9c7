"""Building a network: a Cell of Cells, what a batch becomes from layer to layer, and the parameters that are there."""

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops


class Classifier(nn.Cell):
    """Images to scores of ten classes, through two hidden layers."""

    def __init__(self):
        super().__init__()
        self.flatten = nn.Flatten()
        self.stack = nn.SequentialCell(
            nn.Dense(28 * 28, 64, weight_init="normal", bias_init="zeros"),
            nn.ReLU(),
            nn.Dense(64, 32, weight_init="normal", bias_init="zeros"),
            nn.ReLU(),
            nn.Dense(32, 10, weight_init="normal", bias_init="zeros"),
        )

    def construct(self, x):
        return self.stack(self.flatten(x))


net = Classifier()
images = ops.ones((3, 28, 28), ms.float32)
scores = net(images)
print(scores.shape)
# prints (3, 10)

probabilities = nn.Softmax(axis=1)(scores)
print(np.allclose(probabilities.asnumpy().sum(axis=1), 1.0))
# prints True
print(probabilities.argmax(axis=1).shape)
# prints (3,)

# --- layer by layer ---------------------------------------------------------------------------------------------------

flat = nn.Flatten()(images)
print(flat.shape)
# prints (3, 784)
hidden = nn.Dense(in_channels=28 * 28, out_channels=20)(flat)
print(hidden.shape)
# prints (3, 20)
print(bool((nn.ReLU()(hidden) >= 0).all()))
# prints True

# --- parameters -------------------------------------------------------------------------------------------------------

for name, parameter in net.parameters_and_names():
    print(name, parameter.shape, parameter.dtype)
# prints stack.0.weight (64, 784) Float32
# prints stack.0.bias (64,) Float32
# prints stack.2.weight (32, 64) Float32
# prints stack.2.bias (32,) Float32
# prints stack.4.weight (10, 32) Float32
# prints stack.4.bias (10,) Float32

# --- layers of one's own ----------------------------------------------------------------------------------------------


class Block(nn.Cell):
    """A layer with a way around it."""

    def __init__(self, channels):
        super().__init__()
        self.layers = nn.CellList([nn.Dense(channels, channels), nn.Tanh(), nn.Dense(channels, channels)])
        self.norm = nn.LayerNorm((channels,))

    def construct(self, x):
        y = x
        for layer in self.layers:
            y = layer(y)
        return self.norm(x + y)


tower = nn.SequentialCell([Block(8), Block(8)])
tower.append(nn.Dense(8, 2))
print(len(tower), len(tower.trainable_params()))
# prints 3 14
print(tower(Tensor(np.ones((4, 8)), ms.float32)).shape)
# prints (4, 2)
print([type(cell).__name__ for cell in tower.cells()])
# prints ['Block', 'Block', 'Dense']
