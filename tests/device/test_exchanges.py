"""Exchange of gradients on the device: averaged gradients equal those of the CPU and stay on the device."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
from ranks.pretended import Mpi

import snncell
from snncell import Tensor, distributed, nn, ops, train
from snncell.distributed import job, ranks, sharding


@pytest.fixture(params=[False, True], ids=["in order", "fast"], autouse=True)
def _alone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job of one rank with small buckets."""
    monkeypatch.setattr(job, "_JOB", [])
    monkeypatch.setattr(job, "_mpi", Mpi)
    monkeypatch.setattr(ranks.Ending, "watch", lambda _: None)
    monkeypatch.setattr(sharding, "BUCKET", 16)
    monkeypatch.setenv("NUMBA_NUM_THREADS", "2")  # so that it stays at that
    distributed.init(fast=request.param)


@pytest.mark.parametrize("wrap", [lambda fn: fn, snncell.jit], ids=["eager", "jit"])
def test_step_with_gradient_means_equals_cpu_on_every_run(wrap: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    # Pretend that a graph pays off; a graph contains no exchanges.
    monkeypatch.setattr("snncell.compiler.runtime.plan.is_graph_faster", lambda *_: True)
    here = nn.SequentialCell(nn.Dense(3, 4), nn.MultiStep(nn.LIFNode(tau=2.0)), nn.Dense(4, 2))
    there = copy.deepcopy(here).to("gpu")
    x = Tensor(np.random.default_rng(0).uniform(0, 2, (4, 5, 3)).astype(np.float32))
    found = []
    for net, given in ((here, x), (there, x.to("gpu"))):
        sgd = nn.SGD(net.trainable_params(), 0.1)
        gradients = ops.value_and_grad(lambda x, net=net: ops.square(net(x)).mean(), None, sgd.parameters)

        @wrap
        def step(x: Tensor, gradients: Any = gradients, sgd: Any = sgd) -> Any:
            value, grads = gradients(x)
            means = distributed.mean_gradients(grads, 5)
            sgd(means)
            return value, means

        for _ in range(4):
            value, means = step(given)
            assert {mean.device for mean in means} == {given.device}
        found.append([value, *means, *net.get_parameters()])
    for mine, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(mine.asnumpy(), theirs.asnumpy(), rtol=1e-5, atol=1e-6)


def test_training_equals_cpu() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.uniform(0, 2, (8, 3)).astype(np.float32), rng.integers(0, 2, 8)
    here = nn.SequentialCell(nn.Dense(3, 4), nn.Tanh(), nn.Dense(4, 2))
    there = copy.deepcopy(here).to("gpu")
    for net, target in ((here, "CPU"), (there, "GPU")):
        snncell.set_seed(1)
        sgd = nn.SGD(net.trainable_params(), 0.1)
        snncell.set_context(device_target=target)
        try:
            more: dict[str, Any] = {"distributed": True, "progress": False, "batch_size": 4}
            train.fit(net, nn.CrossEntropyLoss(), sgd, (x, y), 2, **more)
        finally:
            snncell.set_context(device_target="CPU")
    for mine, theirs in zip(here.get_parameters(), there.get_parameters(), strict=True):
        assert theirs.device == "gpu"
        np.testing.assert_allclose(mine.asnumpy(), theirs.asnumpy(), rtol=1e-5, atol=1e-6)
