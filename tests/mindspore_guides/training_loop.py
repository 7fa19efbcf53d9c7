"""Training: a loss of the network, its gradients, an optimiser, epochs, an evaluation, and a checkpoint."""

import os
import tempfile

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops

ms.set_seed(3)
rng = np.random.default_rng(3)

# --- data: two rings --------------------------------------------------------------------------------------------------


def rings(count):
    label = rng.integers(0, 2, count)
    angle = rng.uniform(0, 2 * np.pi, count)
    radius = 1.0 + label + rng.normal(0, 0.1, count)
    points = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
    return points.astype(np.float32), label.astype(np.int32)


def batches(points, labels, size):
    order = rng.permutation(len(points))
    for start in range(0, len(points), size):
        chosen = order[start : start + size]
        yield Tensor(points[chosen]), Tensor(labels[chosen])


train_data, test_data = rings(512), rings(256)

# --- network, loss, optimiser -----------------------------------------------------------------------------------------


class Network(nn.Cell):
    def __init__(self):
        super().__init__()
        self.layers = nn.SequentialCell(nn.Dense(2, 32), nn.ReLU(), nn.Dropout(p=0.1), nn.Dense(32, 2))

    def construct(self, x):
        return self.layers(x)


model = Network()
loss_fn = nn.CrossEntropyLoss()
rate = nn.ExponentialDecayLR(learning_rate=0.02, decay_rate=0.9, decay_steps=16)
optimizer = nn.Adam(model.trainable_params(), learning_rate=rate)


def forward_fn(points, labels):
    logits = model(points)
    return loss_fn(logits, labels), logits


grad_fn = ms.value_and_grad(forward_fn, None, optimizer.parameters, has_aux=True)


@ms.jit
def train_step(points, labels):
    (loss, _), grads = grad_fn(points, labels)
    optimizer(grads)
    return loss


def train(epochs):
    model.set_train()
    last = None
    for _ in range(epochs):
        losses = [float(train_step(points, labels).asnumpy()) for points, labels in batches(*train_data, 64)]
        last = sum(losses) / len(losses)
    return last


def evaluate():
    model.set_train(False)
    right = total = 0
    for points, labels in batches(*test_data, 64):
        right += int((model(points).argmax(1) == labels).asnumpy().sum())
        total += len(labels)
    return right / total


first = train(1)
final = train(14)
accuracy = evaluate()
print(final < first, accuracy > 0.95)
# prints True True

# --- saved and loaded -------------------------------------------------------------------------------------------------

with tempfile.TemporaryDirectory() as folder:
    file = os.path.join(folder, "model.ckpt")
    ms.save_checkpoint(model, file)
    fresh = Network()
    not_loaded, _ = ms.load_param_into_net(fresh, ms.load_checkpoint(file))
print(not_loaded)
# prints []
points = Tensor(test_data[0][:8])
print(np.array_equal(fresh(points).asnumpy(), model(points).asnumpy()))
# prints True

# --- what it says of new points ---------------------------------------------------------------------------------------

inside, outside = Tensor([[0.9, 0.1]], ms.float32), Tensor([[-1.5, 1.3]], ms.float32)
print(fresh(inside).argmax(1), fresh(outside).argmax(1), ops.softmax(fresh(inside), -1).shape)
# prints [0] [1] (1, 2)
