"""Train on one rank of a job, and write the results: python -m ranks.trained SETTINGS FILE.

SETTINGS is a JSON list of dicts, one for each training. For each training, rank 0 writes a digest of the Parameters of
network and optimiser, the history, and the next random number to FILE.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

import snncell
from snncell import Tensor, data, distributed, nn, ops, train


class Net(nn.Cell):
    """Dense, normalisation, dropout, neurons, Dense; on a sequence, or on one step that is repeated."""

    def __init__(self, norm: bool, dropout: bool, sequences: bool) -> None:
        super().__init__()
        self.flat = nn.TimeDistributed(nn.Flatten())
        self.first = nn.Dense(6, 10)
        norms = nn.ThresholdBatchNorm(10) if sequences else nn.BatchNorm1d(10)
        self.norm = norms if norm else None
        self.dropout = nn.Dropout(keep_prob=0.7) if dropout else None
        self.neurons = nn.MultiStep(nn.LIFNode(tau=2.0))
        self.last = nn.Dense(10, 3)
        self.sequences = sequences

    def construct(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        h = self.first(self.flat(x) if isinstance(x, data.EventLists) else x)
        if self.norm is not None:
            h = self.norm(h)
        if self.dropout is not None:
            h = self.dropout(h)
        if lengths is not None:
            return self.last(self.neurons(h, lengths=lengths).sum(0) / lengths.astype("float32").reshape(-1, 1))
        return self.last(self.neurons(h if self.sequences else ops.stack([h] * 3)).mean(0))


class Recordings:
    """Data set of samples with different lengths."""

    def __init__(self, count: int) -> None:
        rng = np.random.default_rng(3)
        self.rows = [rng.normal(size=(int(rng.integers(2, 6)), 6)).astype(np.float32) for _ in range(count)]
        self.labels = rng.integers(0, 3, count)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Any:
        return self.rows[index], self.labels[index]


class EventRecordings:
    """Data set of event recordings with 6 channels."""

    sensor_size = (6, 1, 1)

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        rng = np.random.default_rng(index)
        times = np.sort(rng.integers(0, rng.integers(20, 70), 40))
        return data.Events(times, rng.integers(0, 6, 40), sensor_size=self.sensor_size), int(rng.integers(0, 3))


def source(kind: str, samples: int, batch_size: int) -> Any:
    """Return data of a kind: arrays, sequences with time first, a list of batches, or a Loader."""
    rng = np.random.default_rng(samples)
    x, labels = rng.normal(size=(samples, 6)).astype(np.float32), rng.integers(0, 3, samples)
    if kind == "arrays":
        return x, labels
    if kind == "time first":
        steps = rng.normal(size=(4, samples, 6)).astype(np.float32)
        return train.Batches(steps, labels, batch_size=batch_size, time_first=True)
    if kind == "list":
        return [(x[n : n + batch_size], labels[n : n + batch_size]) for n in range(0, samples, batch_size)]
    if kind == "own":
        return CustomBatches(x, labels, batch_size)
    if kind == "events":
        frames = data.ToEventLists(window=10)
        return data.Loader(EventRecordings(samples), batch_size=batch_size, transform=frames, buckets=[8], seed=7)
    assert kind in ("loader", "workers", "buckets")
    more = {"workers": {"workers": 1}, "buckets": {"buckets": 2}}.get(kind, {})
    return data.Loader(Recordings(samples), batch_size=batch_size, seed=None if more else 7, **more)


class CustomBatches:
    """A user's iterable of batches, with noise, shuffled by snncell's random numbers."""

    def __init__(self, x: Any, labels: Any, batch_size: int) -> None:
        self.x, self.labels, self.batch_size = x, labels, batch_size

    def __iter__(self) -> Any:
        order = ops.randperm(len(self.x)).asnumpy()
        for n in range(0, len(order), self.batch_size):
            batch = order[n : n + self.batch_size]
            yield ops.uniform((len(batch), 6)) + Tensor(self.x[batch]), self.labels[batch]


SEQUENCES = ("time first", "loader", "workers", "buckets", "events")
OPTIMISERS: dict[str, Any] = {
    "adam": lambda net: nn.Adam(net.trainable_params(), 0.02),
    "momentum": lambda net: nn.Momentum(net.trainable_params(), 0.02, 0.9),
    "sgd": lambda net: nn.SGD(net.trainable_params(), 0.02),
    "schedule": lambda net: nn.SGD(net.trainable_params(), nn.CosineDecayLR(0.0, 0.05, 6)),
    "groups": lambda net: nn.AdamW(
        [{"params": net.first.trainable_params(), "lr": 0.05, "weight_decay": 0.1}, {"params": rest_of(net)}], 0.01
    ),
}


def rest_of(net: Net) -> list[Any]:
    """Return all Parameters except those of the first layer."""
    first = {id(p) for p in net.first.trainable_params()}
    return [p for p in net.trainable_params() if id(p) not in first]


class StopAt(train.Callback):
    """Stop after a number of steps, like an interruption."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_step_end(self, training: train.Training) -> None:
        if training.step == self.step:
            training.stop("enough")


def train_once(settings: dict[str, Any]) -> dict[str, Any]:
    """Train once, and return the results."""
    snncell.set_seed(settings.get("seed", 1))
    kind = settings.get("data", "arrays")
    net = Net(settings.get("norm", False), settings.get("dropout", False), kind in SEQUENCES)
    optimiser = OPTIMISERS[settings.get("optimiser", "adam")](net)
    samples, batch_size = settings.get("samples", 37), settings.get("batch_size", 10)
    test = source(kind, 11, batch_size) if settings.get("test") else None
    more = dict(settings.get("more", {}))
    if not settings.get("test"):
        more.pop("patience", None)
    if settings.get("firing_rate"):
        more["firing_rate"] = net.neurons
    if more.get("loss_scale") == "dynamic":  # its first steps overflow and are skipped
        more["loss_scale"] = snncell.amp.DynamicLossScaler(2.0**126, scale_window=2)
    more["callbacks"] = [train.EMA(0.5)] if settings.get("ema") else []
    if settings.get("stop"):
        more["callbacks"].append(StopAt(settings["stop"]))
    result = train.fit(
        net,
        nn.CrossEntropyLoss(),
        optimiser,
        source(kind, samples, batch_size),
        settings.get("epochs", 2),
        validation=test,
        batch_size=batch_size,
        metrics=[m for m in settings.get("metrics", []) if test is not None or m not in ("spikes", "energy")],
        progress=False,
        distributed=settings.get("distributed", True),
        **more,
    )
    values = [p.asnumpy() for cell in (net, optimiser) for p in cell.get_parameters()]
    return {
        "digest": hashlib.blake2b(b"".join(x.tobytes() for x in values)).hexdigest(),
        "history": result.history,
        "weights": {name: p.asnumpy().tolist() for name, p in net.parameters_dict().items()},
        "drawn": ops.uniform(()).item(),
        "stopped": result.stopped,
    }


def main() -> None:
    """Run all trainings of the command line."""
    trainings, file = json.loads(sys.argv[1]), Path(sys.argv[2])
    distributed.init(**(json.loads(sys.argv[3]) if len(sys.argv) > 3 else {}))
    results = [train_once(settings) for settings in trainings]
    if distributed.rank() == 0:
        file.write_text(json.dumps(results), encoding="utf-8")


if __name__ == "__main__":
    main()
