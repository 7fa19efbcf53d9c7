"""A reverse of one's own: the method bprop of a Cell, with intermediate values, weights and a second order."""

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn, ops


class Sine(nn.Cell):
    """sin(x), with its derivative written down."""

    def __init__(self):
        super().__init__()
        self.cos = ops.Cos()
        self.sin = ops.Sin()

    def construct(self, x):
        return self.sin(x)

    def bprop(self, x, out, dout):
        return (dout * self.cos(x),)


x = Tensor(np.array([0.0, 0.5, -1.0]), ms.float32)
print(np.allclose(ms.grad(Sine())(x).asnumpy(), np.cos(x.asnumpy()), atol=1e-6))
# prints True
second = ms.grad(ms.grad(Sine()))(x)
print(np.allclose(second.asnumpy(), -np.sin(x.asnumpy()), atol=1e-6))
# prints True

# --- a derivative that is useless, and the one that takes its place ---------------------------------------------------


class Step(nn.Cell):
    """1 above 0, else 0; backwards as if it were a sigmoid of slope 4."""

    def construct(self, x):
        return (x > 0).astype(ms.float32)

    def bprop(self, x, out, dout):
        s = ops.sigmoid(4.0 * x)
        return (dout * 4.0 * s * (1.0 - s),)


step = Step()
print(step(x))
# prints [0. 1. 0.]
s = 1 / (1 + np.exp(-4.0 * x.asnumpy()))
print(np.allclose(ms.grad(step)(x).asnumpy(), 4 * s * (1 - s), atol=1e-6))
# prints True


class Net(nn.Cell):
    """The step behind a layer: the layer's weights get the gradient that the reverse lets through."""

    def __init__(self):
        super().__init__()
        self.dense = nn.Dense(3, 2, weight_init="ones", bias_init="zeros")
        self.step = Step()

    def construct(self, x):
        return self.step(self.dense(x)).sum()


net = Net()
grads = ms.grad(net, None, net.trainable_params())(x.reshape((1, 3)))
print(len(grads), bool((grads[0] != 0).any()))
# prints 2 True

# --- several inputs and outputs ---------------------------------------------------------------------------------------


class SwapAndScale(nn.Cell):
    """(2 y, 3 x); of each output there is a gradient, of each input one is returned."""

    def construct(self, x, y):
        return y * 2.0, x * 3.0

    def bprop(self, x, y, out, dout):
        return dout[1] * 3.0, dout[0] * 2.0


def total(x, y):
    a, b = SwapAndScale()(x, y)
    return (a * 10.0 + b).sum()


print([g.asnumpy().tolist() for g in ms.grad(total, (0, 1))(Tensor([1.0]), Tensor([2.0]))])
# prints [[3.0], [20.0]]

# --- weights ----------------------------------------------------------------------------------------------------------


class Gain(nn.Cell):
    """w x, whose reverse gives the gradient of w too; at a tenth of it."""

    def __init__(self):
        super().__init__()
        self.w = Parameter(Tensor([2.0], ms.float32), name="w")
        self.internal_params = [self.w]

    def construct(self, x):
        return self.w * x

    def bprop(self, x, out, dout):
        return (self.w * dout,), {self.w: 0.1 * x * dout}


gain = Gain()
print(ms.grad(gain, 0, gain.trainable_params())(Tensor([5.0], ms.float32)))
# prints (Tensor(shape=[1], dtype=Float32, value= [ 2.00000000e+00]),
# prints (Tensor(shape=[1], dtype=Float32, value= [ 5.00000000e-01]),))

# --- gradients that are to stay small ---------------------------------------------------------------------------------


class ClipGradient(nn.Cell):
    """The input itself, whose gradient is limited to [-1, 1]."""

    def construct(self, x):
        return x

    def bprop(self, x, out, dout):
        return (ops.clip(dout, -1.0, 1.0),)


clip = ClipGradient()
print(ms.grad(lambda x: (clip(x) * 7.0).sum())(Tensor([3.0, -2.0], ms.float32)))
# prints [1. 1.]
