"""NIR exchange with SpikingJelly, snnTorch, Norse and Spyx: the same spikes in both directions.

Where another framework has a known defect, the test avoids it and describes it in a comment.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

nir = pytest.importorskip("nir")
torch = pytest.importorskip("torch")

import snncell  # noqa: E402
from snncell import Tensor, nn  # noqa: E402
from snncell.nir import from_nir, to_nir  # noqa: E402

DT = {"snntorch": 1e-4, "spikingjelly": 1e-3, "norse": 1e-3}  # snnTorch's is fixed
pytestmark = pytest.mark.filterwarnings("ignore")


def reader(framework: str) -> Any:
    """A function that creates a module from a graph; the module takes and returns a state."""
    if framework == "snntorch":
        return pytest.importorskip("snntorch.import_nir").import_from_nir
    if framework == "spikingjelly":
        read = pytest.importorskip("spikingjelly.activation_based.nir_exchange").import_from_nir
    else:
        read = pytest.importorskip("norse.torch.utils.import_nir").from_nir
    return lambda graph: read(graph, dt=DT[framework])


def run(module: Any, x: Any) -> Any:
    """Run all steps of (T, ...), one after the other."""
    state, results = None, []
    for now in torch.tensor(x):
        out = module(now, state)
        out, state = out if isinstance(out, tuple) else (out, None)
        results.append(out.detach().numpy())
    return np.stack(results)


def data(seed: int, *shape: int) -> Any:
    return np.random.default_rng(seed).random(shape).astype(np.float32) * 2.0


def some(spikes: Any) -> Any:
    """Assert that some elements spike, but not all."""
    assert 0.02 < spikes.mean() < 0.98
    return spikes


# --- export -----------------------------------------------------------------------------------------------------------


def leaky(framework: str, threshold: float) -> nn.Cell:
    """A neuron that the framework supports: snnTorch requires the gain of LeakyNode, Norse that of LIFNode."""
    if framework == "snntorch":
        return nn.LeakyNode(0.8, v_threshold=4 * threshold, reset="zero")
    return nn.LIFNode(5.0, threshold, reset="zero")


def feed_forward(framework: str) -> tuple[nn.Cell, tuple[int, ...]]:
    layers = [nn.Dense(3, 8), nn.MultiStep(leaky(framework, 0.1)), nn.Dense(8, 2, has_bias=False)]
    return nn.SequentialCell(*layers, nn.MultiStep(leaky(framework, 0.05))), (3,)


def recurrent(framework: str) -> tuple[nn.Cell, tuple[int, ...]]:
    loop = nn.MultiStep(nn.Recurrent(leaky(framework, 0.1), nn.Dense(8, 8)))
    return nn.SequentialCell(nn.Dense(3, 8), loop, nn.Dense(8, 2), nn.MultiStep(leaky(framework, 0.05))), (3,)


def currents(framework: str) -> tuple[nn.Cell, tuple[int, ...]]:
    cells = [nn.CubaLIFNode(0.7, 0.8, v_threshold=1.0, reset="zero") for _ in range(2)]
    loop = nn.MultiStep(nn.Recurrent(cells[1], nn.Dense(8, 8)))
    return nn.SequentialCell(nn.Dense(3, 8), nn.MultiStep(cells[0]), nn.Dense(8, 8), loop), (3,)


def images(framework: str) -> tuple[nn.Cell, tuple[int, ...]]:
    layers = [
        nn.TimeDistributed(nn.Conv2d(2, 4, 3, 1, "pad", 1, has_bias=True)),
        nn.MultiStep(leaky(framework, 0.1)),
        nn.TimeDistributed(nn.AvgPool2d(2, 2) if framework != "norse" else nn.SumPool2d(2, 2)),
        nn.Flatten(2),
        nn.Dense(24, 2),
        nn.MultiStep(leaky(framework, 0.03)),
    ]
    return nn.SequentialCell(*layers), (2, 6, 4)


@pytest.mark.parametrize("make", [feed_forward, recurrent, currents, images])
@pytest.mark.parametrize("framework", DT)
def test_exported_graph_gives_same_spikes_in_other_frameworks(framework, make):
    read, dt = reader(framework), DT[framework]
    snncell.set_seed(3)
    net, shape = make(framework)
    if make in (recurrent, currents):  # begun small, they would be silent
        for weight in net.trainable_params():
            weight.set_data(weight + 0.1)
    x = data(0, 50, 1, *shape)
    want = some(net(Tensor(x)).asnumpy())
    module = read(to_nir(net, dt, shape))
    # NIR's Flatten has no batch axis. Others read it as torch's, which has one, so they get samples without a batch.
    alone = make is images and framework != "spikingjelly"
    got = run(module, x[:, 0])[:, None] if alone else run(module, x)
    np.testing.assert_array_equal(got, want)


def excited(net: Any, by: float = 0.2) -> Any:
    """A module with weights that make every layer fire."""
    with torch.no_grad():
        for weight in net.parameters():
            if weight.ndim == 2:
                weight += by
    return net


# --- import -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["IFNode", "LIFNode", "LIFNode.full", "ParametricLIFNode", "CUBALIFNode"])
def test_graph_from_spikingjelly_gives_same_spikes(kind):
    export = pytest.importorskip("spikingjelly.activation_based.nir_exchange").export_to_nir
    from spikingjelly.activation_based import functional, layer, neuron

    given = {"IFNode": {}, "LIFNode": {"tau": 3.0}, "LIFNode.full": {"tau": 3.0, "decay_input": False}}
    given |= {"ParametricLIFNode": {"init_tau": 3.0}, "CUBALIFNode": {"c_decay": 0.5, "v_decay": 0.75}}
    torch.manual_seed(0)

    def neurons(threshold: float) -> Any:
        return getattr(neuron, kind.partition(".")[0])(v_reset=0.0, v_threshold=threshold, **given[kind])

    net = torch.nn.Sequential(
        layer.Conv2d(2, 4, 3, stride=2, padding=1),
        neurons(0.2),
        layer.AvgPool2d(2),
        layer.Flatten(),
        layer.Linear(4, 3),
    ).append(neurons(0.03))
    x = data(1, 40, 2, 2, 4, 4)
    want = some(np.stack([net(torch.tensor(now)).detach().numpy() for now in x]))
    functional.reset_net(net)
    graph = export(net, torch.tensor(x[0]), dt=1e-3)
    np.testing.assert_array_equal(from_nir(graph, 1e-3)(Tensor(x)).asnumpy(), want)


@pytest.mark.parametrize("kind", ["Leaky", "RLeaky", "Synaptic"])
def test_graph_from_snntorch_gives_same_spikes(kind, tmp_path):
    snn = pytest.importorskip("snntorch")
    export = pytest.importorskip("snntorch.export_nir").export_to_nir
    torch.manual_seed(0)

    def neurons(n: int) -> Any:
        # One beta and threshold per neuron, because snnTorch's type check rejects graphs with scalars.
        given = {"threshold": torch.full((n,), 0.6), "reset_mechanism": "zero", "reset_delay": False}
        given |= {"beta": torch.full((n,), 0.8), "init_hidden": True}
        if kind == "RLeaky":
            return snn.RLeaky(linear_features=n, **given)
        return snn.Leaky(**given) if kind == "Leaky" else snn.Synaptic(alpha=torch.full((n,), 0.5), **given)

    net = torch.nn.Sequential(torch.nn.Linear(3, 6), neurons(6), torch.nn.Linear(6, 2), neurons(2))
    net = excited(net, 0.0 if kind == "RLeaky" else 0.2)
    x = data(2, 40, 1, 3)
    want = some(np.stack([net(torch.tensor(now)).detach().numpy() for now in x]))
    graph = export(net, torch.tensor(x[0, 0]))
    nir.write(tmp_path / "graph.nir", graph)
    for read in (graph, tmp_path / "graph.nir"):
        np.testing.assert_array_equal(from_nir(read, 1e-4)(Tensor(x)).asnumpy(), want)


def test_graph_from_norse_gives_same_spikes():
    norse = pytest.importorskip("norse.torch")
    export = pytest.importorskip("norse.torch.utils.export_nir").to_nir
    torch.manual_seed(0)
    numbers = {name: torch.tensor(value) for name, value in (("v_th", 0.1), ("v_leak", 0.0), ("tau_mem_inv", 100.0))}
    cells = [norse.LIFBoxCell(norse.LIFBoxParameters(**numbers)) for _ in range(2)]
    net = norse.SequentialState(torch.nn.Linear(3, 6), cells[0], torch.nn.Linear(6, 2), cells[1])
    x = data(3, 60, 1, 3)
    want = some(run(excited(net), x))
    graph = export(net, torch.tensor(x[0, 0]))
    for node in graph.nodes.values():
        if isinstance(node, nir.LIF):  # Norse writes dt / tau_mem_inv, which is dt times the time constant
            node.tau = node.tau / 1e-3
    np.testing.assert_array_equal(from_nir(graph, 1e-3)(Tensor(x)).asnumpy(), want)


def test_spyx_round_trip_gives_same_spikes():
    exchange = pytest.importorskip("spyx.nir")
    snncell.set_seed(1)
    neurons = [nn.MultiStep(nn.LIFNode.like("spyx", beta=0.8, threshold=0.5)) for _ in range(2)]
    net = nn.SequentialCell(nn.Dense(3, 5), neurons[0], nn.Dense(5, 2), neurons[1])
    x = data(4, 40, 2, 3)
    want = some(net(Tensor(x)).asnumpy())
    model, there = exchange.from_nir(to_nir(net, 1.0, 3, lossy=True), x, dt=1)  # its LIF subtracts, a step later
    np.testing.assert_array_equal(np.asarray(there), want)
    ends = {"input": np.array([3])}, {"output": np.array([2])}
    graph = exchange.to_nir(model, *ends, 1)
    neurons = [name for name, node in graph.nodes.items() if isinstance(node, nir.LIF)]
    for name in neurons:
        graph.nodes[name].r = graph.nodes[name].tau / 1.0  # Spyx writes beta
    back = from_nir(graph, 1.0, reset="subtract")
    for name in neurons:
        back.of_node(name).delay = "spike"
    np.testing.assert_array_equal(back(Tensor(x)).asnumpy(), want)
