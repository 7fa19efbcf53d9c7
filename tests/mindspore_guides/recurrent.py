"""A recurrent network on sequences: an embedding, a bidirectional LSTM, a loss of two classes."""

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops

ms.set_seed(1)
rng = np.random.default_rng(1)
WORDS, LENGTH = 12, 7
texts = rng.integers(1, WORDS, (96, LENGTH)).astype(np.int32)
labels = ((texts == 3).sum(1) > 0).astype(np.float32)  # whether a word is there


class RNN(nn.Cell):
    def __init__(self, embedding_size, hidden_size, layers):
        super().__init__()
        self.embedding = nn.Embedding(WORDS, embedding_size, padding_idx=0)
        self.rnn = nn.LSTM(embedding_size, hidden_size, num_layers=layers, bidirectional=True, batch_first=True)
        self.fc = nn.Dense(hidden_size * 2, 1)

    def construct(self, inputs):
        _, (hidden, _) = self.rnn(self.embedding(inputs))
        last = ops.concat((hidden[-2, :, :], hidden[-1, :, :]), axis=1)
        return self.fc(last).squeeze(1)


model = RNN(8, 12, 1)
output, (h, c) = nn.LSTM(8, 12, 2, bidirectional=True)(ops.ones((LENGTH, 5, 8), ms.float32))
print(output.shape, h.shape, c.shape)
# prints (7, 5, 24) (4, 5, 12) (4, 5, 12)

loss_fn = nn.BCEWithLogitsLoss(reduction="mean")
optimizer = nn.Adam(model.trainable_params(), learning_rate=0.02)
grad_fn = ms.value_and_grad(lambda x, y: loss_fn(model(x), y), None, optimizer.parameters)


@ms.jit
def train_step(x, y):
    loss, grads = grad_fn(x, y)
    optimizer(grads)
    return loss


losses = [float(train_step(Tensor(texts), Tensor(labels)).asnumpy()) for _ in range(60)]
print(losses[-1] < 0.2 < losses[0])
# prints True
predicted = (ops.sigmoid(model(Tensor(texts))) > 0.5).asnumpy()
print((predicted == (labels > 0.5)).mean() > 0.95)
# prints True

cell = nn.GRUCell(8, 12)
state = ops.zeros((5, 12), ms.float32)
for _ in range(3):
    state = cell(ops.ones((5, 8), ms.float32), state)
print(state.shape)
# prints (5, 12)
