"""Nets that came from graphs of NIR, on the device beside the CPU: chains, cycles, delays in cycles."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("nir")
pytest.importorskip("h5py")

from nir_graphs import random_graph

from snncell import Tensor
from snncell.nir import from_nir


@pytest.mark.filterwarnings("ignore:from_nir. dt=")
@pytest.mark.parametrize("seed", [4, 24, 42])
def test_a_graph_gives_on_the_device_what_it_gives_on_the_cpu(seed: int) -> None:
    graph, shape = random_graph(seed)
    net = from_nir(graph, 1e-3)
    x = Tensor(np.random.default_rng(seed).normal(0.5, 1.0, (4, 2, *shape)).astype(np.float32))
    want = net(x).asnumpy()
    np.testing.assert_allclose(net.to("gpu")(x.to("gpu")).asnumpy(), want, rtol=1e-4, atol=1e-5)
