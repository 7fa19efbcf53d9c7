"""Hooks on the way back: they see the gradients of a Cell, and of a Parameter, and may change them."""

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops

ms.set_context(mode=ms.PYNATIVE_MODE)
seen = []


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.dense = nn.Dense(2, 2, weight_init="ones", bias_init="zeros")
        self.relu = nn.ReLU()

    def construct(self, x):
        return self.relu(self.dense(x)) * 2.0


def look(cell, grad_input, grad_output):
    seen.append((type(cell).__name__, grad_output[0].asnumpy().tolist()))


net = Net()
x = Tensor(np.ones((1, 2)), ms.float32)
handle = net.relu.register_backward_hook(look)
print(ms.grad(net)(x))
# prints [[4. 4.]]
print(seen)
# prints [('ReLU', [[2.0, 2.0]])]
handle.remove()


def halve(cell, grad_output):
    return tuple(g * 0.5 for g in grad_output)


handle = net.dense.register_backward_pre_hook(halve)
print(ms.grad(net)(x))
# prints [[2. 2.]]
handle.remove()
print(ms.grad(net)(x), len(seen))
# prints [[4. 4.]] 1

# --- of a Parameter ---------------------------------------------------------------------------------------------------

handle = net.dense.weight.register_hook(lambda grad: grad * 10.0)
print(ms.grad(net, None, net.trainable_params())(x)[0])
# prints [[20. 20.]
# prints [20. 20.]]
handle.remove()

# --- between two operations -------------------------------------------------------------------------------------------


def clip(grad):
    return ops.clip(grad[0], -1.0, 1.0)


hook = ops.HookBackward(clip)


def function(x):
    y = hook(x * 1.0)
    return (y * 7.0).sum()


print(ms.grad(function)(x))
# prints [[1. 1.]]
