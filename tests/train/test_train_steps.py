"""Training steps: combinations of callbacks, accumulated gradients, loss scales and remaining batches."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from random_cases import random_cases

import snncell
from snncell import Tensor, amp, data, nn, ops, train

FEATURES, CLASSES = 5, 3
LOSS = nn.CrossEntropyLoss()


class Unsized:
    """Batches of an iterable without length, so the last batch is unknown until the end."""

    def __init__(self, batches: Any) -> None:
        self.batches = batches

    def __iter__(self) -> Any:
        return iter(self.batches)


class Rows:
    """A dataset of single steps."""

    def __init__(self, x: Any, y: Any) -> None:
        self.x, self.y = x, y

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> Any:
        return self.x[index], self.y[index]


class Noting(train.Callback):
    """Record the weights, the number of the step and `updated` at each end of a batch."""

    order = -1  # before any average is exchanged with the weights

    def __init__(self) -> None:
        self.rows: list[Any] = []

    def on_step_end(self, training: Any) -> None:
        weights = [p.asnumpy().copy() for p in training.optimiser.parameters]
        self.rows.append((training.epoch, training.batch, training.updated, training.step, weights))


def reference(chosen: dict[str, Any], batches: Any) -> Any:
    """The same training as an eager loop: the rows that `Noting` should record, averages, and file names."""
    net = made_net()
    optimiser, scaler = chosen["optimiser"](net), chosen["scaler"]()
    parameters, rows, files = optimiser.parameters, [], set()
    average = [p.asnumpy().astype(np.float64) for p in parameters]

    def loss(x: Any, y: Any) -> Any:
        value = LOSS(net(x), y)
        return value if scaler is None else scaler.scale(value)

    gradients = snncell.value_and_grad(loss, None, parameters)
    for epoch in range(1, chosen["epochs"] + 1):
        total, samples = None, 0
        for number, (x, y) in enumerate(batches, 1):
            _, grads = gradients(Tensor(x), Tensor(y))
            grads = grads if scaler is None else scaler.unscale(grads)
            weighted = [g * float(len(y)) for g in grads]
            total = weighted if total is None else [a + b for a, b in zip(total, weighted, strict=True)]
            samples += len(y)
            before = optimiser.global_step.item()
            if number % chosen["accumulate"] == 0 or number == len(batches):
                mean = tuple(g * (1.0 / samples) for g in total)
                if scaler is None:
                    optimiser(mean)
                else:
                    finite = amp.all_finite(mean)
                    amp.step_if(finite, optimiser, mean)
                    scaler.adjust(finite)
                total, samples = None, 0
            step = optimiser.global_step.item()
            weights = [p.asnumpy().copy() for p in parameters]
            if step != before:
                average = [0.7 * a + 0.3 * w for a, w in zip(average, weights, strict=True)]
                files |= {f"at-{step}"} if step % chosen["steps"] == 0 else set()
            rows.append((epoch, number, step != before, step, weights))
    return rows, average, files


def made_net() -> Any:
    snncell.set_seed(7)
    return nn.SequentialCell(nn.Dense(FEATURES, 6), nn.ReLU(), nn.Dense(6, CLASSES))


def drawn(seed: int) -> dict[str, Any]:
    """Random settings of a training."""
    chance = random.Random(seed)
    scalers: list[Any] = [
        lambda: None,
        lambda: amp.StaticLossScaler(2.0**10),
        # Some of the first steps overflow, and again where a row of good ones has made it larger.
        lambda: amp.DynamicLossScaler(2.0**chance_exponent, scale_factor=2.0**6, scale_window=2),
    ]
    chance_exponent = chance.choice([124, 126, 127])
    rate = chance.choice([0.05, 0.3])
    optimisers: list[Any] = [
        lambda net: nn.SGD(net.trainable_params(), rate, 0.9),
        lambda net: nn.Adam(net.trainable_params(), rate),
    ]
    return {
        "accumulate": chance.choice([1, 2, 3, 4, 7]),
        "batches": chance.randint(1, 6),
        "rest": chance.choice([0, 1, 2]),
        "epochs": chance.randint(1, 3),
        "steps": chance.choice([1, 2, 3]),
        "scaler": chance.choice(scalers),
        "optimiser": chance.choice(optimisers),
        "kind": chance.choice(["arrays", "list", "unsized", "Loader"]),
        "prefetch": chance.choice([None, True]),
        "resume": chance.random() < 0.3,
    }


def as_data(kind: str, x: Any, y: Any, batches: Any) -> Any:
    """The batches in one of the forms that `fit` accepts."""
    if kind == "arrays":
        return train.Batches(x, y, batch_size=3, shuffle=False)
    if kind == "Loader":
        return data.Loader(Rows(x, y), 3, shuffle=False, sequences=())
    return batches if kind == "list" else Unsized(batches)


@pytest.mark.sampled(2)
@pytest.mark.compiled
@random_cases(12)
def test_callbacks_follow_optimiser_steps(seed: int, tmp_path: Any) -> None:
    chosen = drawn(seed)
    rng = np.random.default_rng(seed)
    count = 3 * chosen["batches"] + chosen["rest"]
    x = rng.normal(size=(count, FEATURES)).astype(np.float32) * 40
    y = rng.integers(0, CLASSES, count)
    batches = [(x[i : i + 3], y[i : i + 3]) for i in range(0, count, 3)]
    rows, average, files = reference(chosen, batches)
    noting, net = Noting(), made_net()
    average_of, each = train.EMA(0.7), train.Checkpoint(tmp_path / "at-{step}", steps=chosen["steps"])
    options = {"accumulate": chosen["accumulate"], "progress": False, "accuracy": None, "prefetch": chosen["prefetch"]}
    given = as_data(chosen["kind"], x, y, batches)
    train.fit(
        net, LOSS, chosen["optimiser"](net), given, chosen["epochs"], loss_scale=chosen["scaler"](),
        callbacks=[noting, average_of, each], **options,
    )  # fmt: skip
    assert [row[:4] for row in noting.rows] == [row[:4] for row in rows]
    for ours, theirs in zip(noting.rows, rows, strict=True):
        for a, b in zip(ours[4], theirs[4], strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)
    for parameter, expected in zip(net.get_parameters(), average, strict=True):
        np.testing.assert_allclose(parameter.asnumpy(), expected, rtol=1e-3, atol=1e-4)
    assert {path.name for path in tmp_path.iterdir()} == files
    if chosen["resume"] and files:  # each file goes on to the same end
        other, again = made_net(), Noting()
        file = tmp_path / random.Random(seed).choice(sorted(files))
        callbacks = [again, train.EMA(0.7), train.Checkpoint(tmp_path / "at-{step}", steps=chosen["steps"])]
        train.fit(
            other, LOSS, chosen["optimiser"](other), as_data(chosen["kind"], x, y, batches), chosen["epochs"],
            loss_scale=chosen["scaler"](), callbacks=callbacks, resume=file, **options,
        )  # fmt: skip
        for a, b in zip(net.get_parameters(), other.get_parameters(), strict=True):
            assert a.asnumpy().tobytes() == b.asnumpy().tobytes()


def test_many_nets_accumulate_in_one_process_without_warning() -> None:
    labels = np.array([0, 1, 0, 1])
    for features in range(1, 11):
        net = nn.Dense(features, 2)
        sgd, data = nn.SGD(net.trainable_params(), 0.5), (ops.normal((4, features)), labels)
        train.fit(net, LOSS, sgd, data, 1, batch_size=2, accumulate=2, progress=False)


def test_weight_average_updates_at_step_of_remaining_batches() -> None:
    x = ops.normal((4, 2))
    net = nn.Dense(2, 2)
    before = net.weight.asnumpy().copy()
    sgd = nn.SGD(net.trainable_params(), 0.5)
    labels = np.array([0, 1, 0, 1])
    train.fit(net, LOSS, sgd, (x, labels), 1, batch_size=4, accumulate=2, callbacks=[train.EMA(0.5)], progress=False)
    assert sgd.global_step.item() == 1 and (net.weight.asnumpy() != before).any()
