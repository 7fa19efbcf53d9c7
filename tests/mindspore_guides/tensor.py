"""Tensors: made of data, of a shape and a rule, of others; attributes, indices, arithmetic, NumPy."""

import mindspore as ms
import numpy as np
from mindspore import Tensor, ops
from mindspore.common.initializer import Normal, One

print(Tensor([1, 0, 1, 0]), Tensor(input_data=np.array([0.1, 0.2, 0.3]), dtype=ms.float32))
# prints [1 0 1 0] [0.1 0.2 0.3]

ones = Tensor(shape=(2, 2), dtype=ms.float32, init=One())
drawn = Tensor(shape=(2, 2), dtype=ms.float32, init=Normal())
print(ones)
# prints [[1. 1.]
# prints  [1. 1.]]
print(drawn.shape, drawn.init_data().dtype, float(drawn.abs().max()) < 0.1)
# prints (2, 2) Float32 True
print(ops.ones_like(ones).asnumpy().tolist(), ops.zeros_like(drawn))
# prints [[1.0, 1.0], [1.0, 1.0]] [[0. 0.]
# prints  [0. 0.]]

x = Tensor(np.array([[1, 2], [3, 4]]), ms.int32)
print(x.shape, x.dtype, x.itemsize, x.nbytes, x.size, x.ndim, x.strides)
# prints (2, 2) Int32 4 16 4 2 (8, 4)

t = Tensor(np.array([[0, 1], [2, 3]]).astype(np.float32))
print(f"First row: {t[0]}, value of bottom right corner: {t[1, 1]}, last column: {t[:, -1]}, first: {t[..., 0]}")
# prints First row: [0. 1.], value of bottom right corner: 3.0, last column: [1. 3.], first: [0. 2.]
print(t.item(3), t.item((0, 1)), t[1, 0].item())
# prints 3.0 1.0 2.0

x, y = Tensor(np.array([1, 2, 3]), ms.float32), Tensor(np.array([4, 5, 6]), ms.float32)
print(x + y, x - y, x * y, y / x, y % x, y // x)
# prints [5. 7. 9.] [-3. -3. -3.] [ 4. 10. 18.] [4.  2.5 2. ] [0. 1. 0.] [4. 2. 2.]

print(ops.cat((t, t), axis=0).shape, ops.stack([t, t]).shape)
# prints (4, 2) (2, 2, 2)

n = Tensor([1.0, 1.0, 1.0]).asnumpy()
print(n, type(n), Tensor.from_numpy(np.ones(3)))
# prints [1. 1. 1.] <class 'numpy.ndarray'> [1. 1. 1.]
