"""Mixed precision: float16 products with float32 weights, and a dynamic loss scale."""

import numpy as np

import snncell
from snncell import amp, nn
from snncell.data import digits


def network(half: bool) -> nn.Cell:
    snncell.set_seed(0)
    net = nn.SequentialCell(
        nn.Dense(64, 100),
        nn.MultiStep(nn.LIFNode(v_threshold=0.3)),
        nn.Dense(100, 100),
        nn.MultiStep(nn.LIFNode(v_threshold=0.3)),
        nn.Dense(100, 10),
        nn.Readout("mean"),
    )
    return amp.auto_mixed_precision(net, "O1") if half else net


def main(epochs: int = 5) -> dict[str, float]:
    """Train the same network in float32 and in mixed precision. Return both test accuracies."""
    (images, labels), (test_images, test_labels) = digits()

    def over_time(pictures: np.ndarray) -> np.ndarray:
        return np.repeat(pictures.reshape(1, -1, 64), 20, 0)  # (T, B, pixels)

    data = snncell.train.Batches(over_time(images), labels, time_first=True)
    test = snncell.train.Batches(over_time(test_images), test_labels, time_first=True)
    found = {}
    for name, scaler in {"float32": None, "float16": amp.DynamicLossScaler(2.0**30, scale_window=50)}.items():
        net = network(half=name == "float16")
        adam, loss = nn.Adam(net.trainable_params(), 2e-3), nn.CrossEntropyLoss()
        result = snncell.train.fit(net, loss, adam, data, epochs, validation=test, loss_scale=scaler, progress=False)
        last = result.history[-1]
        found[name] = last["test_accuracy"]
        print(f"{name}: test accuracy {last['test_accuracy']:.3f}, {result.seconds:.1f} s including compilation")
    skipped = [record["skipped"] for record in result.history]
    print(f"skipped steps per epoch: {skipped}; final loss scale: 2^{np.log2(last['loss_scale']):.0f}")
    return found


if __name__ == "__main__":
    main()
