"""Functions of functions: products with Jacobians from either side, Jacobians, gradients that say of what they are."""

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops


def function(x, y):
    return x**3 + y


x, y = Tensor(np.array([[1.0, 2.0], [3.0, 4.0]]), ms.float32), Tensor(np.ones((2, 2)), ms.float32)
v = Tensor(np.ones((2, 2)), ms.float32)

out, tangent = ms.jvp(function, (x, y), (v, v))
print(out, tangent)
# prints [[ 2.  9.]
# prints [28. 65.]] [[ 4. 13.]
# prints [28. 49.]]

out, pull = ms.vjp(function, x, y)
print([g.asnumpy().tolist() for g in pull(v)])
# prints [[[3.0, 12.0], [27.0, 48.0]], [[1.0, 1.0], [1.0, 1.0]]]

a = Tensor([1.0, 2.0, 3.0], ms.float32)
for jacobian in (ms.jacfwd, ms.jacrev):
    print(jacobian(lambda a: a * a)(a))
# prints [[2. 0. 0.]
# prints [0. 4. 0.]
# prints [0. 0. 6.]]
# prints [[2. 0. 0.]
# prints [0. 4. 0.]
# prints [0. 0. 6.]]

print(ms.vmap(lambda row, b: (row * b).sum(), in_axes=(0, None))(x, Tensor([1.0, 10.0], ms.float32)))
# prints [21. 43.]

# --- whose gradient is whose ------------------------------------------------------------------------------------------

net = nn.Dense(2, 1, weight_init="ones", has_bias=False)
grads = ms.grad(net, 0, weights=net.trainable_params(), return_ids=True)(x)
print(ms.get_grad(grads, 0))
# prints [[1. 1.]
# prints [1. 1.]]
print(ms.get_grad(grads, net.weight))
# prints [[4. 6.]]

print(ops.GradOperation(get_all=True)(function)(x, y)[1].shape)
# prints (2, 2)
