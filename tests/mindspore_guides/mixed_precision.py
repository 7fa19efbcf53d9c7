"""Mixed precision: layers in float16, a scale for the loss, and steps that are left out where it was too high."""

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn
from mindspore.amp import DynamicLossScaler, StaticLossScaler, all_finite, auto_mixed_precision

ms.set_seed(5)
rng = np.random.default_rng(5)


class Network(nn.Cell):
    def __init__(self):
        super().__init__()
        self.flatten = nn.Flatten()
        self.fc1 = nn.Dense(16, 32)
        self.relu = nn.ReLU()
        self.fc2 = nn.Dense(32, 2)

    def construct(self, x):
        return self.fc2(self.relu(self.fc1(self.flatten(x))))


model = auto_mixed_precision(Network(), "O1")
x = rng.normal(size=(64, 4, 4)).astype(np.float32)
y = (x.sum((1, 2)) > 0).astype(np.int32)
print(model(Tensor(x)).shape, model.fc1.weight.dtype)
# prints (64, 2) Float32

# --- a training step --------------------------------------------------------------------------------------------------

loss_fn = nn.CrossEntropyLoss()
optimizer = nn.Momentum(model.trainable_params(), 0.1, 0.9)
loss_scaler = DynamicLossScaler(scale_value=2**10, scale_factor=2, scale_window=8)


def forward_fn(data, label):
    logits = model(data)
    loss = loss_fn(logits, label)
    return loss_scaler.scale(loss), logits


grad_fn = ms.value_and_grad(forward_fn, None, model.trainable_params(), has_aux=True)


def train_step(data, label):
    (loss, _), grads = grad_fn(data, label)
    loss = loss_scaler.unscale(loss)
    grads = loss_scaler.unscale(grads)
    is_finite = all_finite(grads)
    if is_finite:
        optimizer(grads)
    loss_scaler.adjust(is_finite)
    return loss


losses = [float(train_step(Tensor(x), Tensor(y)).asnumpy()) for _ in range(30)]
print(losses[-1] < 0.5 * losses[0])
# prints True

# --- the scale --------------------------------------------------------------------------------------------------------

print(float(loss_scaler.scale_value.asnumpy()) > 2**10)
# prints True
before = float(loss_scaler.scale_value.asnumpy())
loss_scaler.adjust(Tensor(False))
print(float(loss_scaler.scale_value.asnumpy()) == before / 2)
# prints True

fixed = StaticLossScaler(scale_value=2**7)
print(fixed.scale(Tensor(0.5, ms.float32)), fixed.unscale([Tensor([64.0], ms.float32)])[0])
# prints 64.0 [0.5]
print(all_finite([Tensor([1.0], ms.float32)]), all_finite([Tensor([np.inf], ms.float32)]))
# prints True False
