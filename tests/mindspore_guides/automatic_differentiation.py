"""Automatic differentiation: of inputs and of weights, with values beside them, with parts held still."""

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn, ops

x = ops.ones(5, ms.float32)
y = ops.zeros(3, ms.float32)
w = Parameter(Tensor(np.linspace(-1, 1, 15).reshape(5, 3), ms.float32), name="w")
b = Parameter(Tensor(np.array([0.5, 0.0, -0.5]), ms.float32), name="b")


def function(x, y, w, b):
    z = ops.matmul(x, w) + b
    return ops.binary_cross_entropy_with_logits(z, y, ops.ones_like(z), ops.ones_like(z))


def expected(x, w, b):
    z = x @ w + b
    return (1 / (1 + np.exp(-z)) - 0.0) / 3  # of the mean of three


loss = function(x, y, w, b)
print(loss.shape)
# prints ()

# --- by position ------------------------------------------------------------------------------------------------------

grads = ms.grad(function, (2, 3))(x, y, w, b)
of_z = expected(x.asnumpy(), w.asnumpy(), b.asnumpy())
print(len(grads), np.allclose(grads[1].asnumpy(), of_z, atol=1e-6))
# prints 2 True
print(np.allclose(grads[0].asnumpy(), np.outer(np.ones(5), of_z), atol=1e-6))
# prints True
print(ms.grad(function)(x, y, w, b).shape)
# prints (5,)

# --- what is not to be differentiated ---------------------------------------------------------------------------------


def with_logits(x, y, w, b):
    z = ops.matmul(x, w) + b
    return ops.binary_cross_entropy_with_logits(z, y, ops.ones_like(z), ops.ones_like(z)), z


def stopped(x, y, w, b):
    loss, z = with_logits(x, y, w, b)
    return loss, ops.stop_gradient(z)


both = ms.grad(with_logits, 3)(x, y, w, b)  # of the loss and of z together
alone = ms.grad(stopped, 3)(x, y, w, b)
print(np.allclose(both.asnumpy() - alone.asnumpy(), 1.0))
# prints True

grads, (z,) = ms.grad(with_logits, (2, 3), has_aux=True)(x, y, w, b)
print(np.allclose(grads[1].asnumpy(), alone.asnumpy()), z.shape)
# prints True (3,)

# --- the weights of a network -----------------------------------------------------------------------------------------


class Network(nn.Cell):
    def __init__(self):
        super().__init__()
        self.w, self.b = w, b

    def construct(self, x):
        return ops.matmul(x, self.w) + self.b


model = Network()
loss_fn = nn.BCEWithLogitsLoss()


def forward(x, y):
    return loss_fn(model(x), y)


grad_fn = ms.value_and_grad(forward, None, weights=model.trainable_params())
value, grads = grad_fn(x, y)
print(np.allclose(value.asnumpy(), loss.asnumpy()), [g.shape for g in grads])
# prints True [(5, 3), (3,)]

gradients = ms.value_and_grad(forward, 0, weights=model.trainable_params())(x, y)[1]
print(gradients[0].shape, len(gradients[1]))
# prints (5,) 2

# --- GradOperation, and gradients of gradients ------------------------------------------------------------------------


class Cube(nn.Cell):
    def construct(self, x):
        return x * x * x


first = ops.GradOperation()(Cube())
print(first(Tensor([2.0, -1.0], ms.float32)))
# prints [12.  3.]


class Slope(nn.Cell):
    def __init__(self, net):
        super().__init__()
        self.net, self.grad = net, ops.GradOperation()

    def construct(self, x):
        return self.grad(self.net)(x)


print(ops.GradOperation()(Slope(Cube()))(Tensor([2.0, -1.0], ms.float32)))
# prints [12. -6.]
scaled = ops.GradOperation(sens_param=True)(Cube())
print(scaled(Tensor([2.0], ms.float32), Tensor([0.5], ms.float32)))
# prints [6.]
print(ops.GradOperation(get_all=True)(lambda x, y: x * y)(Tensor([2.0], ms.float32), Tensor([3.0], ms.float32)))
# prints (Tensor(shape=[1], dtype=Float32, value= [ 3.00000000e+00]),
# prints Tensor(shape=[1], dtype=Float32, value= [ 2.00000000e+00]))

# --- jitted -----------------------------------------------------------------------------------------------------------


@ms.jit
def step(x, y):
    return grad_fn(x, y)


jitted, _ = step(x, y)
print(np.allclose(jitted.asnumpy(), value.asnumpy(), atol=1e-6))
# prints True
