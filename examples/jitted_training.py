"""Compile a whole training step (forward, backward, optimiser) with `snncell.jit`."""

import time

import snncell
from snncell import Tensor, nn
from snncell.data import batches, digits


def main(epochs: int = 20) -> float:
    """Train a small network on digits and return the test accuracy."""
    snncell.set_seed(0)
    (images, labels), (test_images, test_labels) = digits()
    net = nn.SequentialCell(nn.Flatten(), nn.Dense(64, 128), nn.ReLU(), nn.Dropout(p=0.2), nn.Dense(128, 10))
    net.set_train()
    loss_fn = nn.CrossEntropyLoss()
    optimiser = nn.Adam(net.trainable_params(), learning_rate=2e-3)
    gradients = snncell.value_and_grad(lambda x, y: loss_fn(net(x), y), None, net.trainable_params())

    @snncell.jit
    def step(x: Tensor, y: Tensor) -> Tensor:
        loss, grads = gradients(x, y)
        optimiser(grads)
        return loss

    start = time.perf_counter()
    for _ in range(epochs):
        for x, y in batches(images, labels, batch_size=64, drop_last=True):
            loss = step(x, y)
    seconds = time.perf_counter() - start
    net.set_train(False)
    accuracy = float((net(Tensor(test_images)).argmax(1) == Tensor(test_labels)).mean())
    print(f"loss {float(loss):.4f}, test accuracy {accuracy:.4f}, {seconds:.1f} s including compilation")
    return accuracy


if __name__ == "__main__":
    main()
