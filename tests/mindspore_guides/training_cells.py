"""Training by Cells: the loss as a Cell around a network, and a step as a Cell around that."""

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn

ms.set_seed(2)
rng = np.random.default_rng(2)
x = rng.normal(size=(64, 3)).astype(np.float32)
y = (x @ np.array([[1.0], [-2.0], [0.5]]) + 0.3).astype(np.float32)

net = nn.Dense(3, 1)
with_loss = nn.WithLossCell(net, nn.MSELoss())
print(with_loss(Tensor(x), Tensor(y)).shape)
# prints ()

optimizer = nn.SGD(net.trainable_params(), learning_rate=0.1)
train_one_step = nn.TrainOneStepCell(with_loss, optimizer)
train_one_step.set_train()
losses = [float(train_one_step(Tensor(x), Tensor(y)).asnumpy()) for _ in range(60)]
print(losses[-1] < 1e-3 < losses[0])
# prints True
print(np.allclose(net.weight.asnumpy(), [[1.0, -2.0, 0.5]], atol=0.02))
# prints True

loss, predicted, label = nn.WithEvalCell(net, nn.MSELoss())(Tensor(x), Tensor(y))
print(float(loss.asnumpy()) < 1e-3, predicted.shape, label.shape)
# prints True (64, 1) (64, 1)

grads = nn.ForwardValueAndGrad(with_loss, weights=net.trainable_params(), get_by_list=True)(Tensor(x), Tensor(y))[1]
print([g.shape for g in grads])
# prints [(1, 3), (1,)]
