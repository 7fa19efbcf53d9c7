"""A spiking net learns equal weights, bit for bit, on any number of threads and in every run."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from snncell.kernels.loops import LEAST_BLOCK
from snncell.kernels.numba.policy import PARALLEL_SIZE
from snncell.kernels.products.blas import PART_WORK

pytestmark = pytest.mark.compiled  # without the compiler all loops run on one thread

STEPS, BATCH, INPUTS, HIDDEN, OUTPUTS = 8, 256, 256, 264, 24
RATE = 2e-3

SCRIPT = """
import hashlib, sys
import numpy as np
import snncell
from snncell import Tensor, nn
from snncell.kernels.products import blas, matmul as products
from snncell.kernels.numba.policy import number_of_threads, set_number_of_threads

how, folder, rate = sys.argv[1:4]
steps, batch, inputs, hidden, outputs = map(int, sys.argv[4:])
rng = np.random.default_rng(0)
x = Tensor(rng.normal(scale=2.0, size=(steps, batch, inputs)).astype(np.float32))
labels = Tensor(rng.integers(0, 5, batch))
loss_fn = nn.CrossEntropyLoss()

cut, kernels = [], set()
run, kernel = blas.WORKERS.run, products.kernel
blas.WORKERS.run = lambda function, parts: cut.append(len(parts)) or run(function, parts)
products.kernel = lambda function, *rest: kernels.add(function.__name__) or kernel(function, *rest)

for threads in (1, 4):
    set_number_of_threads(threads)
    cut.clear()
    snncell.set_seed(1)
    net = nn.SequentialCell(
        [
            nn.Dense(inputs, hidden),
            nn.MultiStep(nn.LIFNode(tau=2.0)),
            nn.Dense(hidden, outputs),
            nn.MultiStep(nn.Recurrent(nn.LIFNode(tau=2.0), nn.Dense(outputs, outputs))),
        ]
    )
    optimizer = nn.Adam(net.trainable_params(), float(rate))
    gradient = snncell.value_and_grad(lambda x: loss_fn(net(x).mean(0), labels), None, weights=net.trainable_params())

    def step(x):
        loss, grads = gradient(x)
        optimizer(grads)
        return loss

    step = snncell.jit(step) if how == "jit" else step
    losses = [step(x).item() for _ in range(30)]
    spikes = net(x).asnumpy()
    found = hashlib.sha256()
    for weight in net.trainable_params():
        found.update(np.ascontiguousarray(weight.asnumpy()).tobytes())
    found.update(np.array(losses).tobytes())
    print(found.hexdigest(), number_of_threads(), len(cut), max(cut, default=0), len(kernels), end=" ")
    print(losses[0], losses[-1], spikes.mean())
    weights = {f"{number} {w.name}": w.asnumpy() for number, w in enumerate(net.trainable_params())}
    np.savez(f"{folder}/{how}{threads}.npz", losses=losses, **weights)
"""


class Trained:
    """The weights learned on a number of threads, and the line that the script has printed."""

    def __init__(self, line: str, weights: str) -> None:
        self.digest, threads, cut, parts, kernels, *numbers = line.split()
        self.threads, self.cut, self.parts, self.kernels = int(threads), int(cut), int(parts), int(kernels)
        self.first_loss, self.last_loss, self.rate = map(float, numbers)
        with np.load(weights) as kept:
            self.weights = {name: kept[name] for name in kept}


def train(how: str, folder: str) -> dict[str, Trained]:
    """Train on one and on four threads, in a process that has four."""
    done = subprocess.run(
        [
            *(sys.executable, "-W", "error", "-c", SCRIPT, how, folder),
            *map(str, (RATE, STEPS, BATCH, INPUTS, HIDDEN, OUTPUTS)),
        ],
        env={**os.environ, "NUMBA_NUM_THREADS": "4"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    lines = zip("14", done.stdout.splitlines(), strict=True)
    return {name: Trained(line, os.path.join(folder, f"{how}{name}.npz")) for name, line in lines}


@pytest.fixture(scope="module", params=[pytest.param("eager", marks=pytest.mark.slow), "jit"])
def runs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Trained]:
    """The training on one and four threads; `test_threads.py` compares one and two."""
    return train_once(request.param, tmp_path_factory)


_made: dict[str, dict[str, Trained]] = {}


def train_once(how: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Trained]:
    """Run each training once."""
    if how not in _made:
        _made[how] = train(how, str(tmp_path_factory.mktemp("trained")))
    return _made[how]


def test_training_uses_parallel_kernels_and_learns(runs: dict[str, Trained]) -> None:
    assert STEPS * BATCH * HIDDEN >= PARALLEL_SIZE and BATCH * HIDDEN > LEAST_BLOCK
    assert 2 * PART_WORK[0] <= STEPS * BATCH * INPUTS * HIDDEN
    for name, run in runs.items():
        assert run.threads == int(name[0])
        assert run.cut >= 30 and run.parts >= 2  # of the first layer, at least in the forward pass
        assert run.kernels  # some products used events
        assert run.last_loss < 0.8 * run.first_loss and 0.01 < run.rate < 0.6  # the net spikes and learns


def test_weights_are_equal_for_any_number_of_threads(runs: dict[str, Trained]) -> None:
    assert {name: run.digest for name, run in runs.items()} == dict.fromkeys(runs, runs["1"].digest)


@pytest.mark.slow
def test_eager_and_jitted_training_agree_to_rounding(tmp_path_factory: pytest.TempPathFactory) -> None:
    eager, jitted = (train_once(how, tmp_path_factory)["1"] for how in ("eager", "jit"))
    assert len(eager.weights) == 7 and eager.weights.keys() == jitted.weights.keys()  # of three layers, and the losses
    np.testing.assert_allclose(jitted.first_loss, eager.first_loss, rtol=1e-6)
    # A difference in the last place can add or remove a spike, or change the sign of a tiny gradient. The following
    # steps then differ, here by no more than one step moves a weight.
    np.testing.assert_allclose(jitted.weights.pop("losses"), eager.weights.pop("losses"), rtol=1e-3)
    for name, weight in eager.weights.items():
        np.testing.assert_allclose(jitted.weights[name], weight, atol=RATE, rtol=0, err_msg=name)
