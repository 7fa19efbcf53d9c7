"""A script for MindSpore's Model, with only the import changed: a spiking network on digits."""

import tempfile

import snncell as ms
from snncell import nn, ops
from snncell.data import digits
from snncell.train import (
    Accuracy,
    Batches,
    Callback,
    CheckpointConfig,
    LossMonitor,
    Model,
    ModelCheckpoint,
    TimeMonitor,
)

STEPS = 8


class Net(nn.Cell):
    """64 currents, 64 spiking neurons, 10 counts."""

    def __init__(self):
        super().__init__()
        self.fc1, self.fc2 = nn.Dense(64, 64), nn.Dense(64, 10)
        self.spike = nn.MultiStep(nn.LIFNode(v_threshold=0.5))

    def construct(self, x):
        current = self.fc1(x.flatten(start_dim=1))
        spikes = self.spike(ops.broadcast_to(current.expand_dims(0), (STEPS, *current.shape)))
        return self.fc2(spikes.mean(0))


class StopWhenGood(Callback):
    """A callback in the style of MindSpore, which gets the run context."""

    def on_train_epoch_end(self, run_context):
        args = run_context.original_args()
        if args.eval_results["accuracy"] > 0.94:
            print(f"good enough after epoch {args.cur_epoch_num}")
            run_context.request_stop()


def main(epochs=6):
    """Train, evaluate, and load a checkpoint. Return the accuracy."""
    ms.set_seed(1)
    (x, y), (x_test, y_test) = digits()
    train_dataset, test_dataset = Batches(x, y, batch_size=64), Batches(x_test, y_test, shuffle=False)

    net = Net()
    optimizer = nn.Adam(net.trainable_params(), learning_rate=nn.CosineDecayLR(1e-4, 1e-2, epochs * len(train_dataset)))
    model = Model(net, nn.CrossEntropyLoss(), optimizer, metrics={"accuracy": Accuracy()})
    with tempfile.TemporaryDirectory() as folder:
        config = CheckpointConfig(save_checkpoint_steps=len(train_dataset), keep_checkpoint_max=2)
        saved = ModelCheckpoint("digits", folder, config)
        callbacks = [LossMonitor(len(train_dataset)), TimeMonitor(), saved, StopWhenGood()]
        model.fit(epochs, train_dataset, test_dataset, callbacks=callbacks)

        again = Net()
        ms.load_param_into_net(again, ms.load_checkpoint(saved.latest_ckpt_file_name))
    accuracy = Model(again, nn.CrossEntropyLoss(), metrics={"accuracy"}).eval(test_dataset)["accuracy"]
    print(f"accuracy of the checkpoint: {accuracy:.3f}; class of a sample: {model.predict(x_test[:1]).argmax().item()}")
    return accuracy


if __name__ == "__main__":
    main()
