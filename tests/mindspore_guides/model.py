"""Model: training, evaluation and prediction in one call each, with callbacks."""

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn
from mindspore.train import Callback, LossMonitor, Model

ms.set_seed(4)
rng = np.random.default_rng(4)
x = rng.normal(size=(128, 2)).astype(np.float32)
y = (x[:, 0] * x[:, 1] > 0).astype(np.int32)


class Data:
    """Batches of arrays, as a data set gives them."""

    def __init__(self, size):
        self.size = size

    def __len__(self):
        return len(x) // self.size

    def __iter__(self):
        for start in range(0, len(x), self.size):
            yield Tensor(x[start : start + self.size]), Tensor(y[start : start + self.size])


class Count(Callback):
    """Counts steps and epochs."""

    def __init__(self):
        super().__init__()
        self.steps = self.epochs = 0

    def on_train_step_end(self, run_context):
        self.steps += 1

    def on_train_epoch_end(self, run_context):
        self.epochs += 1
        if run_context.original_args().cur_epoch_num == 40:
            run_context.request_stop()


net = nn.SequentialCell(nn.Dense(2, 24), nn.ReLU(), nn.Dense(24, 2))
model = Model(net, nn.CrossEntropyLoss(), nn.Adam(net.trainable_params(), learning_rate=0.02), metrics={"accuracy"})
count = Count()
model.train(60, Data(32), callbacks=[count])
print(count.steps, count.epochs)
# prints 160 40
print(model.eval(Data(32))["accuracy"] > 0.9)
# prints True
print(model.predict(Tensor(x[:5])).shape)
# prints (5, 2)
print(issubclass(LossMonitor, Callback))
# prints True
