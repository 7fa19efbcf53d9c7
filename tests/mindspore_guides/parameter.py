"""Parameters: how they are made, what they say of themselves, how they are written to, initialised and held still."""

import mindspore as ms
import numpy as np
from mindspore import Parameter, ParameterTuple, Tensor, nn, ops
from mindspore.common.initializer import HeUniform, Normal, XavierUniform, initializer

# --- made of a Tensor, a number, an initialiser -----------------------------------------------------------------------

w = Parameter(Tensor(np.arange(6).reshape((2, 3)), ms.float32), name="w")
scale = Parameter(2.0, name="scale")
drawn = Parameter(initializer("ones", [1, 2, 3], ms.float32), name="drawn")
print(w)
# prints Parameter (name=w, shape=(2, 3), dtype=Float32, requires_grad=True)
print(scale.shape, scale.dtype, drawn.shape, drawn.asnumpy().sum())
# prints () Float32 (1, 2, 3) 6.0
print(w.name, w.requires_grad, w.shape, w.dtype)
# prints w True (2, 3) Float32

# --- computed with ----------------------------------------------------------------------------------------------------

print(w + 1)
# prints [[1. 2. 3.]
# prints [4. 5. 6.]]
print(ops.matmul(Tensor([[1.0, 1.0]], ms.float32), w))
# prints [[3. 5. 7.]]
print((w * scale).sum())
# prints 30.0

# --- written to -------------------------------------------------------------------------------------------------------

w[0, 0] = 10.0
print(w.asnumpy()[0])
# prints [10.  1.  2.]
w.set_data(Tensor(np.zeros((2, 3)), ms.float32))
print(w.asnumpy().sum())
# prints 0.0


@ms.jit
def count():
    ops.assign(scale, scale + 1.0)
    return scale * 10.0


print(count(), scale.asnumpy())
# prints 30.0 3.0

# --- several ----------------------------------------------------------------------------------------------------------

several = ParameterTuple((w, scale, drawn))
copies = several.clone("copy")
print([p.name for p in copies], [p.shape for p in copies])
# prints ['copy.w', 'copy.scale', 'copy.drawn'] [(2, 3), (), (1, 2, 3)]

# --- initial values of layers -----------------------------------------------------------------------------------------

print(nn.Dense(4, 3, weight_init="zeros").weight.asnumpy().sum())
# prints 0.0
dense = nn.Dense(400, 300, weight_init=Normal(sigma=0.5, mean=1.0), bias_init="ones")
print(abs(dense.weight.asnumpy().mean() - 1.0) < 0.02, abs(dense.weight.asnumpy().std() - 0.5) < 0.02)
# prints True True
for rule, bound in ((XavierUniform(), (6 / 700) ** 0.5), (HeUniform(), (6 / 400) ** 0.5)):
    values = initializer(rule, [300, 400], ms.float32).asnumpy()
    print(abs(values).max() <= bound, abs(values).max() > 0.99 * bound)
# prints True True
# prints True True

# --- held still -------------------------------------------------------------------------------------------------------


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.features = nn.Dense(3, 4)
        self.head = nn.Dense(4, 2)

    def construct(self, x):
        return self.head(ops.tanh(self.features(x)))


net = Net()
for parameter in net.features.get_parameters():
    parameter.requires_grad = False
print(len(net.trainable_params()), len(net.untrainable_params()))
# prints 2 2
optimizer = nn.SGD(net.trainable_params(), learning_rate=0.5)
before = [p.asnumpy().copy() for p in net.get_parameters()]
x = Tensor(np.ones((1, 3)), ms.float32)
optimizer(ms.grad(lambda x: net(x).sum(), None, optimizer.parameters)(x))
print([bool((p.asnumpy() != old).any()) for p, old in zip(net.get_parameters(), before)])
# prints [False, False, True, True]
