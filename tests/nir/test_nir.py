"""NIR import and export: graphs compared with a NumPy interpreter, round trips, and errors of unsupported graphs."""

from __future__ import annotations

import warnings
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

nir = pytest.importorskip("nir")
pytest.importorskip("h5py")

from nir_graphs import Interpreter, flat, random_graph  # noqa: E402

import snncell  # noqa: E402
from snncell import Tensor, nn, ops  # noqa: E402
from snncell.errors import ArgumentError, NirError, ShapeError  # noqa: E402
from snncell.nir import from_nir, losses, to_nir  # noqa: E402

DT = 1e-3

pytestmark = pytest.mark.filterwarnings("ignore:from_nir. dt=")


def full(value: float, *shape: int) -> Any:
    return np.full(shape or (1,), value)


def lif(n: int = 1, **given: Any) -> Any:
    values = {"tau": 0.01, "r": 1.0, "v_leak": 0.0, "v_threshold": 0.1, "v_reset": 0.0} | given
    return nir.LIF(**{name: full(value, n) for name, value in values.items()})


def listed(*nodes: Any) -> Any:
    return nir.NIRGraph.from_list(*nodes)


def data(seed: int, *shape: int, dtype: str = "float32") -> Any:
    return np.random.default_rng(seed).normal(0.5, 1.0, shape).astype(dtype)


# --- recorded results -------------------------------------------------------------------------------------------------

# One neuron, tau 2.5 ms, threshold 0.1, in Norse's steps of 0.1 ms: the input spikes and the response.
INPUTS = [
    *(60, 220, 270, 310, 320, 350, 370, 400, 410, 430, 440, 450, 460, 470, 480, 490, 500, 510, 520, 530),
    *(670, 680, 690, 700, 710, 720, 730, 740, 750, 760, 770, 780, 840, 850),
]
FIRED = [460, 510, 710, 760]
POTENTIALS = {60: 0.04, 61: 0.038399998, 65: 0.032614905, 147: 0.0011472481, 457: 0.0750277, 459: 0.06914552, 460: 0.0}


def test_file_without_v_reset_runs_as_in_norse(tmp_path):
    h5py = pytest.importorskip("h5py")
    arrays = {"tau": 0.0025, "r": 1.0, "v_leak": 0.0, "v_threshold": 0.1}
    with h5py.File(tmp_path / "lif.nir", "w") as file:  # as nir 1.0.4 and older lay it out
        file["version"] = "0.1.1"
        graph = file.create_group("node")
        graph["type"] = "NIRGraph"
        graph["edges"] = [("input", "0"), ("0", "1"), ("1", "output")]
        for name, kind in (("input", "Input"), ("0", "Affine"), ("1", "LIF"), ("output", "Output")):
            graph[f"nodes/{name}/type"] = kind
        for name in ("input", "output"):
            graph[f"nodes/{name}/shape"] = [1]
        graph["nodes/0/weight"], graph["nodes/0/bias"] = np.ones((1, 1), "f4"), np.zeros(1, "f4")
        for name, value in arrays.items():
            graph[f"nodes/1/{name}"] = np.full(1, value, "f4")
    net = from_nir(tmp_path / "lif.nir", dt=1e-4)
    x = np.zeros((1000, 1, 1), np.float32)
    x[INPUTS] = 1.0
    assert np.flatnonzero(net(Tensor(x)).asnumpy()).tolist() == FIRED
    with snncell.monitor(net, v=True) as record:
        net(Tensor(x))
    v = np.asarray(record.v["1"]).reshape(-1)
    for step, value in POTENTIALS.items():
        assert abs(v[step] - value) < 5e-6
    assert abs(net.error - 0.04) < 1e-6
    # The text of 1.0.4 subtracts the threshold: the spikes are the same here, the potential differs.
    other = from_nir(tmp_path / "lif.nir", dt=1e-4, reset="subtract")
    assert np.flatnonzero(other(Tensor(x)).asnumpy()).tolist() == FIRED


# --- comparison with the interpreter ----------------------------------------------------------------------------------


def agree(seed: int, method: str, steps: int = 12) -> None:
    graph, shape = random_graph(seed, DT, np.float64)
    definition = Interpreter(graph, DT, method)
    x = data(seed, steps, *shape, dtype="float64")
    want = definition.run(x)
    net = from_nir(graph, DT, method, dtype=snncell.float64)
    got = net(Tensor(x[:, None])).asnumpy()[:, 0]
    assert got.dtype == np.float64
    if definition.margin > 1e-9:
        np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-9 * np.abs(want).max(initial=1.0))


@pytest.mark.sampled(2)
@pytest.mark.uncompiled
@pytest.mark.parametrize("method", ["euler", "exponential"])
@pytest.mark.parametrize("seed", range(40))
def test_random_graph_equals_interpreter(seed, method):
    agree(seed, method)


def test_random_graphs_cover_all_nodes_branches_cycles_and_subgraphs():
    kinds, cycles, branches, nested = set(), 0, 0, 0
    for seed in range(40):
        graph, _ = random_graph(seed, DT)
        nodes, edges = flat(graph)
        kinds |= {type(node).__name__ for node in nodes.values()}
        cycles += bool(Interpreter(graph, DT).late)
        branches += len({b for _, b in edges}) < len(edges)
        nested += any("." in name for name in nodes)
    assert kinds == set(nir.ir.__all__) - {"NIRGraph", "NIRNode", "str2NIRNode", "dict2NIRNode"}
    assert min(cycles, branches, nested) >= 5


def test_delays_in_a_cycle_close_the_cycle():
    def looped(late: int) -> Any:
        nodes = {
            "input": nir.Input({"input": np.array([1])}),
            "if": nir.IF(full(1 / DT), full(0.9), full(0.0)),
            "late": nir.Delay(full(late * DT)),
            "output": nir.Output({"output": np.array([1])}),
        }
        return nir.NIRGraph(
            nodes, [("input", "if"), ("if", "late"), ("late", "if"), ("if", "output")], {}, type_check=False
        )

    x = np.zeros((10, 1, 1), np.float32)
    x[0] = 1.0
    for late in (1, 2, 3):
        assert np.flatnonzero(from_nir(looped(late), DT)(Tensor(x)).asnumpy()).tolist() == [*range(0, 10, late)]


# --- round trips ------------------------------------------------------------------------------------------------------


def same(a: Any, b: Any) -> None:
    """Assert that two graphs have the same names, edges, metadata and numbers, bit for bit."""
    assert type(a) is type(b)
    if isinstance(a, nir.NIRGraph):
        assert set(a.nodes) == set(b.nodes) and list(a.edges) == list(b.edges)
        for name in a.nodes:
            same(a.nodes[name], b.nodes[name])
        return
    for name, value in vars(a).items():
        other = getattr(b, name)
        if name == "metadata":
            assert value.items() <= {k: v.decode() if isinstance(v, bytes) else v for k, v in other.items()}.items()
        elif isinstance(value, np.ndarray):
            assert value.dtype == other.dtype and np.array_equal(value, other), name
        elif name in ("stride", "dilation"):
            assert np.array_equal(np.broadcast_to(value, np.shape(other)), other), name


@pytest.mark.sampled(1)
@pytest.mark.uncompiled
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("seed", range(40))
def test_round_trip_of_random_graph_keeps_numbers_and_spikes(seed, dtype, tmp_path):
    graph, shape = random_graph(seed, DT, dtype)
    method = ["euler", "exponential"][seed % 2]
    net = from_nir(graph, DT, method)
    back = to_nir(net, DT, shape)
    same(graph, back)
    nir.write(tmp_path / "graph.nir", back)
    again = from_nir(tmp_path / "graph.nir", DT)
    assert again.choices.method == method and again.graph.metadata["dt"] == DT
    same(back, to_nir(again, DT, shape))
    x = Tensor(data(seed, 8, 2, *shape))
    assert np.array_equal(net(x).asnumpy(), again(x).asnumpy())


def test_export_writes_changed_values_and_keeps_others():
    graph = listed(nir.Affine(data(0, 2, 3), data(1, 2)), lif(2, tau=0.0123, r=1.7))
    net = from_nir(graph, DT, learnable="tau")
    net.affine.bias.set_data(Tensor([1.0, 2.0]))
    (tau,) = [p for name, p in net.parameters_and_names() if "tau" in name]
    tau.set_data(Tensor([12.3, 20.0]))
    back = to_nir(net, DT, 3)
    assert back.nodes["affine"].bias.tolist() == [1.0, 2.0]
    assert np.array_equal(back.nodes["affine"].weight, graph.nodes["affine"].weight)
    assert back.nodes["lif"].tau[0] == 0.0123 and abs(back.nodes["lif"].tau[1] - 0.02) < 1e-8
    assert np.array_equal(back.nodes["lif"].r, graph.nodes["lif"].r)
    # With another time step, the same time constants in steps are different in seconds.
    np.testing.assert_allclose(to_nir(net, 2 * DT, 3).nodes["lif"].tau, [0.0246, 0.04], rtol=1e-6)


# --- snncell nets -----------------------------------------------------------------------------------------------------

NEURONS = {
    "IFNode": lambda: nn.IFNode(0.7, reset="zero"),
    "IFNode.gain": lambda: nn.IFNode(reset="value", v_reset=-0.25, input_gain=0.5),
    "LIFNode": lambda: nn.LIFNode(5.0, 0.3, -0.1, "value", v_rest=0.05),
    "LIFNode.full": lambda: nn.LIFNode(5.0, decay_input=False, reset="zero"),
    "LIFNode.each": lambda: nn.LIFNode(Tensor([3.0, 5.0, 8.0, 20.0]), 0.3, reset="zero"),
    "LeakyNode": lambda: nn.LeakyNode(0.8, v_threshold=0.9, reset="zero"),
    "LeakyNode.one": lambda: nn.LeakyNode(1.0, reset="zero"),
    "LeakyNode.none": lambda: nn.LeakyNode(0.8, reset=None),
    "ParametricLIFNode": lambda: nn.ParametricLIFNode(4.0, v_threshold=0.3, reset="zero"),
    "LINode": lambda: nn.LINode(4.0, v_rest=0.2),
    "CubaLIFNode": lambda: nn.CubaLIFNode(0.7, 0.8, 0.4, reset="zero"),
    "CubaLIFNode.norse": lambda: nn.CubaLIFNode(0.7, 0.8, 0.4, order="jump read decay", reset="zero"),
    "CubaLIFNode.sinabs": lambda: nn.CubaLIFNode(0.7, 0.8, 0.4, order="jump decay read", reset="zero"),
    "CubaLIFNode.late": lambda: nn.CubaLIFNode(0.7, 0.8, 0.4, order="read decay jump", reset="zero"),
    "CubaLIFNode.none": lambda: nn.CubaLIFNode(0.7, 0.8, 0.4, reset=None),
    "WithSynapse.LIF": lambda: nn.WithSynapse(nn.LIFNode(5.0, 0.5, reset="zero"), 0.6),
    "WithSynapse.LI": lambda: nn.WithSynapse(nn.LINode(5.0), 0.6),
    "SynapseFilter": lambda: nn.SynapseFilter(3.0),
    "SynapseFilter.scaled": lambda: nn.SynapseFilter(3.0, scale_input=True),
    "like.snntorch": lambda: nn.LIFNode.like("snntorch", beta=0.9, reset_mechanism="zero", reset_delay=False),
}


@pytest.mark.sampled(6)
@pytest.mark.uncompiled
@pytest.mark.parametrize("method", ["euler", "exponential"])
@pytest.mark.parametrize("name", NEURONS)
def test_round_trip_of_neuron_gives_the_same(name, method):
    neuron = NEURONS[name]()
    net = nn.MultiStep(neuron)
    graph = to_nir(net, DT, 4, method=method)
    assert graph.metadata["method"] == method and losses(graph) == []
    back = from_nir(graph, DT)
    x = Tensor(data(3, 40, 2, 4, dtype="float64"))
    want, got = net(x).asnumpy(), back(x).asnumpy()
    if set(np.unique(want)) <= {0.0, 1.0}:
        assert np.array_equal(got, want) and 0 < want.mean() < 1
    else:
        np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6)  # the threshold of Scale is float32


def images() -> nn.Cell:
    return nn.SequentialCell(
        nn.TimeDistributed(nn.SequentialCell(nn.Conv2d(2, 4, 3, pad_mode="same"), nn.BatchNorm2d(4))),
        nn.MultiStep(nn.LIFNode(3.0, 0.2, reset="zero")),
        nn.TimeDistributed(nn.SumPool2d(2, 2)),
        nn.TimeDistributed(nn.Conv2d(4, 6, (3, 2), (2, 1), "pad", (1, 0), has_bias=True, group=2)),
        nn.ThresholdBatchNorm(6, v_threshold=0.5),
        nn.MultiStep(nn.LeakyNode(0.9, v_threshold=0.3, reset="zero")),
        nn.TimeDistributed(nn.AvgPool2d(2, 1)),
        nn.Flatten(2),
        nn.AxonalDelay(6, 3, learnable=False, delay_init=Tensor([0.0, 1, 2, 3, 1, 0])),
        nn.Dense(6, 3, has_bias=False),
        nn.MultiStep(nn.LINode(4.0)),
    )


def test_round_trip_of_image_net_with_batch_norm_gives_the_same():
    snncell.set_seed(0)
    net, x = images(), Tensor(data(0, 12, 3, 2, 8, 6))
    net.set_train()
    for _ in range(3):
        net(x)  # moves the statistics
    net.set_train(False)
    graph = to_nir(net, DT, (2, 8, 6))
    kinds = [type(graph.nodes[name]).__name__ for name in graph.nodes]
    assert kinds.count("Conv2d") == 2 and "Delay" in kinds
    assert not any("Norm" in name for name in kinds)
    back = from_nir(graph, DT)
    np.testing.assert_allclose(back(x).asnumpy(), net(x).asnumpy(), rtol=2e-5, atol=2e-6)
    assert float(net(x).asnumpy().std()) > 0


class Skipping(nn.Cell):
    """A net with a skip connection, a list of layers and a custom method."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Dense(3, 4)
        self.blocks = nn.CellList([nn.Dense(4, 4), nn.Dense(4, 4)])
        self.fire = nn.MultiStep(nn.LIFNode(4.0, 0.1, reset="zero"))
        self.fires = [nn.MultiStep(nn.LIFNode(3.0, 0.1, reset="zero")) for _ in range(2)]

    def block(self, x: Any, number: int) -> Any:
        return x + self.fires[number](self.blocks[number](x))

    def construct(self, x: Any) -> Any:
        x = self.fire(self.first(x))
        for number in range(2):
            x = self.block(x, number)
        return x + x


def test_linear_layer_is_exported_as_dense_layer():
    linear, dense = nn.Linear(3, 2), nn.Dense(3, 2)
    for name in ("weight", "bias"):
        getattr(dense, name).set_data(getattr(linear, name))
    graphs = [to_nir(nn.SequentialCell(one), dt=DT, input_shape=(3,)) for one in (linear, dense)]
    nodes = [[node for node in graph.nodes.values() if type(node).__name__ == "Affine"] for graph in graphs]
    assert len(nodes[0]) == len(nodes[1]) == 1
    np.testing.assert_array_equal(nodes[0][0].weight, nodes[1][0].weight)


def test_custom_cell_is_exported_with_skip_connections():
    snncell.set_seed(1)
    net, x = Skipping(), Tensor(data(2, 20, 2, 3))
    graph = to_nir(net, DT, 3)
    assert ("fire", "blocks_0") in graph.edges and ("fire", "output") in graph.edges
    np.testing.assert_allclose(from_nir(graph, DT)(x).asnumpy(), net(x).asnumpy(), rtol=1e-6)


@pytest.mark.parametrize("bias", [False, True])
def test_round_trip_of_recurrent_net_is_recurrent(bias):
    snncell.set_seed(2)
    loop = nn.MultiStep(nn.Recurrent(nn.LIFNode(6.0, 0.1, reset="zero"), nn.Dense(5, 5, has_bias=bias)))
    net, x = nn.SequentialCell(nn.Dense(3, 5), loop, nn.Dense(5, 2)), Tensor(data(4, 30, 2, 3))
    graph = to_nir(net, DT, 3)
    assert type(graph.nodes["1"].nodes["feedback"]) is nir.Linear  # its bias stands before it
    back = from_nir(graph, DT)
    assert isinstance(getattr(back, "1.cell").cell, nn.Recurrent)
    np.testing.assert_allclose(back(x).asnumpy(), net(x).asnumpy(), rtol=1e-5, atol=1e-6)
    report = snncell.explain(back, x, detail="launches")
    assert "MultiStep(Recurrent): one kernel" in report


# --- compilation and training -----------------------------------------------------------------------------------------


@pytest.mark.compiled
def test_imported_net_compiles_like_handwritten_net():
    graph = listed(nir.Affine(data(0, 4, 3), data(1, 4)), lif(4), nir.Affine(data(2, 2, 4), data(3, 2)), lif(2))
    net, x = from_nir(graph, DT), Tensor(data(5, 16, 2, 3))
    hand = nn.SequentialCell(
        nn.Dense(3, 4), nn.MultiStep(net.of_node("lif")), nn.Dense(4, 2), nn.MultiStep(net.of_node("lif_1"))
    )

    def loops(cell: Any) -> list[str]:
        lines = snncell.explain(snncell.grad(lambda x: cell(x).sum()), x, detail="launches").splitlines()
        return [line.strip() for line in lines if "MultiStep" in line]

    assert loops(net) == loops(hand)
    assert all("one kernel" in line for line in loops(net))


def test_trainable_parameters_are_selected_by_name_and_train():
    graph = listed(
        nir.Affine(data(0, 4, 3), data(1, 4)),
        lif(4),
        nir.Linear(data(2, 2, 4)),
        nir.LI(*[full(v, 2) for v in (0.01, 1.0, 0.0)]),
    )
    net = from_nir(graph, DT, learnable=("tau", "v_threshold"))
    names = [name for name, p in net.parameters_and_names() if p.requires_grad]
    assert {"affine.weight", "affine.bias", "linear.weight"} < set(names)
    assert sum("tau" in name for name in names) == 2 and sum("threshold" in name for name in names) == 1
    x, target = Tensor(data(6, 20, 8, 3)), Tensor(data(7, 20, 8, 2))
    optimiser = nn.Adam(net.trainable_params(), 0.02)
    step = snncell.value_and_grad(lambda: ops.square(net(x) - target).mean(), None, net.trainable_params())
    losses_of = []
    for _ in range(30):
        loss, gradients = step()
        assert all(np.isfinite(g.asnumpy()).all() for g in gradients)
        optimiser(gradients)
        losses_of.append(float(loss))
    assert losses_of[-1] < 0.9 * losses_of[0]
    assert (to_nir(net, DT, 3).nodes["lif"].tau != graph.nodes["lif"].tau).all()


# --- warnings and metadata --------------------------------------------------------------------------------------------


def test_coarse_time_step_warns_or_raises():
    graph = listed(lif(tau=0.003))
    with pytest.warns(RuntimeWarning, match=r"from_nir: dt=0\.001 s is 0\.33 of the shortest time constant"):
        net = from_nir(graph, DT)
    assert abs(net.error - 1 / 3) < 1e-12
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        from_nir(graph, DT, "exponential")
        from_nir(graph, DT / 10)
        from_nir(to_nir(from_nir(graph, DT, "exponential"), DT, 1, method="euler"), DT)  # written for this step
    with pytest.raises(NirError, match=r"node 'lif' \(LIF\): tau is 0\.003 s, not above dt=0\.01 s"):
        from_nir(graph, 0.01)


@pytest.mark.sampled(4)
@pytest.mark.uncompiled
@pytest.mark.parametrize("reset", ["value", "subtract"])
@pytest.mark.parametrize("compare", [">", ">="])
@pytest.mark.parametrize("delay", [None, "reset", "spike"])
def test_reset_comparison_and_delay_are_stored_in_metadata(reset, compare, delay, tmp_path):
    net = nn.MultiStep(nn.LIFNode(4.0, 0.25, reset=reset, compare=compare, delay=delay))
    lossy = (reset, compare, delay) != ("value", ">", None)
    graph = to_nir(net, DT, 3, lossy=lossy)
    assert bool(losses(graph)) == lossy
    nir.write(tmp_path / "graph.nir", graph)
    assert losses(nir.read(tmp_path / "graph.nir")) == losses(graph)
    back = from_nir(tmp_path / "graph.nir", DT)
    (neuron,) = [cell for _, cell in back.cells_and_names() if isinstance(cell, nn.LIFNode)]
    assert (neuron.reset, neuron.compare, neuron.delay) == (reset, compare, delay)
    x = Tensor(np.full((20, 1, 3), 1.0, np.float32))
    assert np.array_equal(back(x).asnumpy(), net(x).asnumpy())
    assert losses(to_nir(back, DT, 3)) == []  # a graph that says it goes on saying it


LOST = {
    r"2 \(LIFNode\) subtracts the threshold at a spike": lambda: nn.MultiStep(nn.LIFNode()),
    r"2 \(ALIFNode\) adapts its threshold.*The graph has an LIF": lambda: nn.MultiStep(nn.ALIFNode(reset="zero")),
    r"2 \(RefractoryLIFNode\) has a refractory period": lambda: nn.MultiStep(nn.RefractoryLIFNode(reset="zero")),
    r"2 \(MultiSpikeLIFNode\) fires several": lambda: nn.MultiStep(nn.MultiSpikeLIFNode(reset="zero", compare=">")),
    r"2 \(LIFNode\) has delay='reset'": lambda: nn.MultiStep(nn.LIFNode(reset="zero", delay="reset")),
    r"2 \(Dropout\) has no NIR node": lambda: nn.Dropout(),
    r"2 \(ReLU\) has no NIR node": lambda: nn.ReLU(),
    r"2 \(Readout\) has no NIR node": lambda: nn.Readout("max"),
    r"2 \(Dense\) has an activation": lambda: nn.Dense(4, 4, activation="relu"),
}


@pytest.mark.parametrize("text", LOST)
def test_unsupported_export_raises_and_lossy_lists_losses(text):
    net = nn.SequentialCell(nn.Dense(3, 4), nn.MultiStep(nn.LINode()), LOST[text]())
    with pytest.raises(NirError, match=rf"(?s)to_nir: .*Pass lossy=True.*\n- {text}"):
        to_nir(net, DT, 3)
    graph = to_nir(net, DT, 3, lossy=True)
    assert len(losses(graph)) == 1
    from_nir(graph, DT)


REFUSED = {
    r"1 is a IzhikevichNode, and NIR has no node for it": lambda: nn.MultiStep(nn.IzhikevichNode()),
    r"1 \(BatchNormThroughTime\) depends on the time step": lambda: nn.BatchNormThroughTime(4, 5),
    r"1 is a LayerNorm, for which NIR has no node": lambda: nn.LayerNorm(4),
    r"1 is a LIFNode, which is one time step\. Put it into nn\.MultiStep": lambda: nn.LIFNode(reset="zero"),
    r"1 \(Flatten\) begins at axis 1, which is time or batch": lambda: nn.Flatten(),
    r"1 \(Doubling\): its construct does something .*arithmetic": lambda: Doubling(),
}


class Doubling(nn.Cell):
    def construct(self, x: Any) -> Any:
        return x * 2.0


@pytest.mark.parametrize("text", REFUSED)
@pytest.mark.parametrize("lossy", [False, True])
def test_export_without_approximation_raises_even_if_lossy(text, lossy):
    with pytest.raises(NirError, match=f"to_nir: {text}"):
        to_nir(nn.SequentialCell(nn.Dense(3, 4), REFUSED[text]()), DT, 3, lossy=lossy)


def test_export_of_cell_with_forward_hook_raises():
    net = nn.SequentialCell(nn.Dense(3, 4), nn.MultiStep(nn.LIFNode(reset="zero")))
    handle = net[0].register_forward_pre_hook(lambda cell, inputs: (inputs[0] * 2.0,))
    with pytest.raises(NirError, match=r"to_nir: 0 \(Dense\) has a forward hook"):
        to_nir(net, DT, 3, lossy=True)
    handle.remove()
    net[0].register_backward_hook(lambda cell, grad_input, grad_output: None)
    to_nir(net, DT, 3, lossy=True)


def test_batch_norm_without_preceding_weights_raises():
    with pytest.raises(NirError, match=r"to_nir: 1 \(BatchNorm1d\) must be folded into the weights .* node '0' \(LI\)"):
        to_nir(nn.SequentialCell(nn.MultiStep(nn.LINode()), nn.TimeDistributed(nn.BatchNorm1d(3))), DT, 3)


# --- inconsistent graphs ----------------------------------------------------------------------------------------------


def chain(*nodes: Any, shape: tuple[int, ...] = (3,), out: tuple[int, ...] = (3,)) -> Any:
    names = {f"n{i}": node for i, node in enumerate(nodes)}
    ends = {"input": nir.Input({"input": np.array(shape)}), "output": nir.Output({"output": np.array(out)})}
    order = ["input", *names, "output"]
    return nir.NIRGraph(names | ends, list(pairwise(order)), {}, type_check=False)


def edged(*edges: tuple[str, str]) -> Any:
    graph = chain(lif(3))
    graph.edges = list(edges)
    return graph


WRONG = {
    r"node 'output' \(Output\): type mismatch: it takes \[1, 1, 1\], but its input is \[3\]": lambda: chain(
        lif(3), out=(1, 1, 1)
    ),
    r"node 'n0' \(LIF\): its parameters are for \[4\] neurons, but its input has \[3\]": lambda: chain(lif(4)),
    r"node 'n0' \(Affine\): its weight is \[2, 4\], \(out, in\), but its input is \[3\]": lambda: chain(
        nir.Affine(np.ones((2, 4)), np.ones(2))
    ),
    r"node 'n0' \(LIF\): tau must be a positive number of seconds, not -0\.01": lambda: chain(lif(3, tau=-0.01)),
    r"node 'n0' \(LIF\): tau must contain finite numbers, not nan": lambda: chain(lif(3, tau=np.nan)),
    r"node 'n0' \(LIF\): .*v_threshold is above v_reset": lambda: chain(lif(3, v_reset=1.0)),
    r"node 'n0' \(Delay\): delays are not whole steps of dt=0\.001 s.*lossy=True": lambda: chain(
        nir.Delay(full(0.0014, 3))
    ),
    r"the graph has an edge \('n0', 'n9'\), but no node 'n9'": lambda: edged(("input", "n0"), ("n0", "n9")),
    r"the graph has the edge \('input', 'n0'\) twice": lambda: edged(("input", "n0"), ("input", "n0")),
    r"node 'n0' \(LIF\): no path of edges leads from an Input to it": lambda: edged(("input", "output")),
    r"edges must not leave an Output": lambda: edged(("input", "n0"), ("n0", "output"), ("output", "n0")),
    r"node 'n0' \(Conv2d\): the input must be \(channels, height, width\), not \[3\]": lambda: chain(
        nir.Conv2d(None, np.ones((1, 1, 2, 2)), 1, 0, 1, 1, np.zeros(1))
    ),
    r"node 'n0' \(Flatten\): start_dim=1 and end_dim=-1 are not axes": lambda: chain(nir.Flatten(None, 1, -1)),
}


@pytest.mark.parametrize("text", WRONG)
def test_inconsistent_graph_raises_with_node_name(text):
    with pytest.raises(NirError, match=f"from_nir: .*{text}"):
        from_nir(WRONG[text](), DT)


def test_dangling_edge_in_subgraph_raises_with_graph_name():
    inside = chain(lif(3))
    inside.edges.append(("lif", "n0"))
    nodes = {
        "input": nir.Input({"input": np.array([3])}),
        "rnn": inside,
        "output": nir.Output({"output": np.array([3])}),
    }
    graph = nir.NIRGraph(nodes, [("input", "rnn"), ("rnn", "output")], {}, type_check=False)
    with pytest.raises(
        NirError, match=r"graph 'rnn' has an edge \('lif', 'n0'\), but no node 'lif'\. Its nodes are n0,"
    ):
        from_nir(graph, DT)


@pytest.mark.parametrize("method", ["rk4", ["euler"], np.array(["euler", "rk4"])])
def test_unknown_method_in_metadata_raises(method):
    graph = chain(lif(3))
    graph.metadata["method"] = method
    with pytest.raises(NirError, match=r"from_nir: the graph's metadata has method=.*Pass euler or exponential"):
        from_nir(graph, DT)
    assert from_nir(graph, DT, "euler").choices.method == "euler"


def test_identity_is_no_node():
    graph = to_nir(nn.SequentialCell(nn.Identity(), nn.Dense(3, 2)), DT, 3)
    assert graph.edges == [("input", "1"), ("1", "output")]


def test_lossy_import_reads_supported_nodes_and_lists_others():
    net = from_nir(chain(lif(3), out=(1, 1, 3)), DT, lossy=True)
    assert net.lost == ("node 'output' (Output): its shape is [1, 1, 3], but its input is [3].",)
    net = from_nir(chain(nir.Delay(full(0.0014, 3))), DT, lossy=True)
    assert "were rounded" in net.lost[0]
    x = data(0, 5, 1, 3)
    np.testing.assert_array_equal(net(Tensor(x)).asnumpy()[1:], x[:-1])


def test_scalar_parameter_is_broadcast_to_all_neurons():
    numbers = [np.array(v) for v in (0.01, 1.0, 0.0, 0.1)]
    net = from_nir(chain(nir.LIF(*numbers)), DT)
    x = Tensor(data(0, 20, 2, 3))
    assert np.array_equal(net(x).asnumpy(), from_nir(chain(lif(3)), DT)(x).asnumpy())
    assert to_nir(net, DT, 3).nodes["n0"].tau.tolist() == [0.01] * 3


def test_invalid_arguments_raise_with_their_names():
    graph = chain(lif(3))
    with pytest.raises(ArgumentError, match=r"from_nir: method is \"euler\" or \"exponential\", not 'rk4'"):
        from_nir(graph, DT, "rk4")
    with pytest.raises(ArgumentError, match=r"learnable has 'tua', but the parameters of the graph are .*tau"):
        from_nir(graph, DT, learnable="tua")
    with pytest.raises(NirError, match=r"graph must be the path of a file or an nir\.NIRGraph"):
        from_nir(3, DT)
    for shape in ((), (0,), "3", (2.5,)):
        with pytest.raises(ArgumentError, match="to_nir: input_shape"):
            to_nir(nn.Dense(3, 3), DT, shape)
    with pytest.raises(ShapeError, match=r"Input 'input' takes \(T, B, 3,\)"):
        from_nir(graph, DT)(Tensor(data(0, 4, 2, 5)))


def test_graph_can_have_several_inputs_and_outputs():
    shape = np.array([3])
    nodes = {
        "b": nir.Input({"input": shape}),
        "a": nir.Input({"input": shape}),
        "scale": nir.Scale(full(2.0, 3)),
        "sum": nir.Output({"output": shape}),
        "raw": nir.Output({"output": shape}),
    }
    edges = [("a", "scale"), ("b", "sum"), ("scale", "sum"), ("a", "raw")]
    net = from_nir(nir.NIRGraph(nodes, edges, {}, type_check=False), DT)
    assert net.inputs == ("a", "b") and net.outputs == ("sum", "raw")
    a, b = data(0, 4, 2, 3), data(1, 4, 2, 3)
    total, raw = net(Tensor(a), Tensor(b))
    np.testing.assert_allclose(total.asnumpy(), 2 * a + b, rtol=1e-6)
    assert np.array_equal(raw.asnumpy(), a)
    with pytest.raises(ShapeError, match=r"the graph has the Inputs \['a', 'b'\], but 1 were passed"):
        net(Tensor(a))


def test_missing_nir_package_raises_with_install_command(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "nir", None)
    with pytest.raises(NirError, match=r"to_nir: needs the package nir\. Install it with pip install snncell\[nir\]"):
        to_nir(nn.Dense(3, 3), DT, 3)
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(
        NirError, match=r"from_nir: needs the package h5py\. Install it with pip install snncell\[nir\]"
    ):
        from_nir("graph.nir", DT)
