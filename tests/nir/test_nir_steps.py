"""Time step of a NIR graph: a warning names the step that the weights imply if it differs from the given one."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

nir = pytest.importorskip("nir")

import snncell  # noqa: E402


def integrators(rng: Any, r: float, weight: float, metadata: dict[str, Any]) -> Any:
    """A net as sinabs exports it: convolution, IF, pooling and a layer, without the time step."""
    first, last = np.full((4, 6, 6), 1.0), np.ones(3)
    nodes = {
        "input": nir.Input({"input": np.array([2, 6, 6])}),
        "conv": nir.Conv2d((6, 6), weight * rng.random((4, 2, 3, 3)), 1, 1, 1, 1, np.zeros(4)),
        "spikes": nir.IF(r * first, first),
        "pool": nir.SumPool2d(np.array([2, 2]), np.array([2, 2]), np.array([0, 0])),
        "flatten": nir.Flatten({"input": np.array([4, 3, 3])}, 0, -1),
        "layer": nir.Affine(weight * rng.random((3, 36)), np.zeros(3)),
        "output spikes": nir.IF(r * last, last),
        "output": nir.Output({"output": np.array([3])}),
    }
    names = list(nodes)
    return nir.NIRGraph(nodes, list(itertools.pairwise(names)), metadata=metadata)


STEPS = [  # r, weights, dt, metadata, and the step that the warning names
    (1.0, 0.3, 1e-3, {}, "1"),
    (1.0, 0.3, 1e-2, {}, "1"),
    (1.0, 0.3, 1.0, {}, None),
    (1.0, 0.02, 1.0, {}, None),  # less than the threshold in a step that adds the weights as they are
    (10.0, 0.3, 1e-3, {}, "0.1"),
    (1000.0, 0.3, 1e-3, {}, None),  # as to_nir and SpikingJelly write: r dt = 1
    (1.0, 300.0, 1e-3, {}, None),  # weights in units of a second
    (1.0, 1e-3, 1e-3, {}, r"1e[+]02"),  # weights that need longer steps still
    (1.0, 0.3, 1e-3, {"dt": 1e-3}, None),  # the author says so
    (0.0, 0.3, 1e-3, {}, None),  # no step lifts these neurons
    (1.0, 0.0, 1e-3, {}, None),
]


@pytest.mark.parametrize(("r", "weight", "dt", "metadata", "implied"), STEPS)
def test_step_is_compared_with_step_implied_by_integrator_weights(r, weight, dt, metadata, implied) -> None:
    graph = integrators(np.random.default_rng(0), r, weight, metadata)
    if implied is None:
        snncell.nir.from_nir(graph, dt=dt)  # warnings are errors
        return
    words = (
        rf"\(IF\) reaches at most .* of dt={dt:g} s, .* imply a step of about {implied} s: for example, "
        rf"sinabs.*\.\., dt={implied}\)"
    )
    with pytest.warns(RuntimeWarning, match=words):
        snncell.nir.from_nir(graph, dt=dt)


def test_integrators_directly_after_input_do_not_warn() -> None:
    graph = nir.NIRGraph.from_list(nir.IF(np.ones(3), np.ones(3)), nir.Linear(np.full((2, 3), 4.0)))
    snncell.nir.from_nir(graph, dt=1e-3)
