"""Layers in float16 one by one, and recomputation of what the reverse needs."""

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Dense(4, 8).to_float(ms.float16)
        self.fc2 = nn.Dense(8, 2)

    def construct(self, x):
        x = self.fc1(x)
        return self.fc2(x.astype(ms.float32))


net = Net()
x = Tensor(np.ones((3, 4)), ms.float32)
print(net.fc1(x).dtype, net(x).dtype, net.fc1.weight.dtype)
# prints Float16 Float32 Float32
print([str(g.dtype) for g in ms.grad(net, None, net.trainable_params())(x)])
# prints ['Float32', 'Float32', 'Float32', 'Float32']

before = ms.grad(net)(x).asnumpy()
net.fc2.recompute()
print(np.allclose(ms.grad(net)(x).asnumpy(), before))
# prints True
