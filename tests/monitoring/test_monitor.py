"""Monitors: records equal the actual spikes and states in every way to run a net, and recording changes no result."""

import sys
import threading

import numpy as np
import pytest

import snncell
from snncell import Tensor, errors, nn, ops, surrogate
from snncell.tape.state import CHECKING

T, B = 7, 3


class Net(nn.Cell):
    """A layer whose neuron has its own name, a recurrent layer, and a readout."""

    def __init__(self, **options):
        super().__init__()
        self.dense1, self.lif = nn.Dense(4, 6), nn.LIFNode(surrogate_function=surrogate.ATan(), v_threshold=0.4)
        self.layer1 = nn.MultiStep(self.lif, **options)
        cell = nn.LIFNode(surrogate_function=surrogate.ATan(), v_threshold=0.3)
        self.dense2, self.layer2 = nn.Dense(6, 5), nn.MultiStep(nn.Recurrent(cell, nn.Dense(5, 5)), **options)
        self.dense3, self.readout = nn.Dense(5, 2), nn.MultiStep(nn.IFNode(fire=False))

    def construct(self, x):
        return self.readout(self.dense3(self.layer2(self.dense2(self.layer1(self.dense1(x))))))


class Steps(nn.Cell):
    """The same as one step of the whole network, which another Cell runs over time."""

    def __init__(self):
        super().__init__()
        self.dense1, self.lif1 = nn.Dense(4, 6), nn.LIFNode(surrogate_function=surrogate.ATan(), v_threshold=0.4)
        self.dense2, self.lif2 = nn.Dense(6, 5), nn.LIFNode(surrogate_function=surrogate.ATan(), v_threshold=0.3)

    def construct(self, x, v1, v2):
        s1, v1 = self.lif1(self.dense1(x), v1)
        s2, v2 = self.lif2(self.dense2(s1), v2)
        return s2, v1, v2

    def init_state(self, x):
        return ops.zeros((len(x), 6)), ops.zeros((len(x), 5))


class Loop(nn.Cell):
    """Steps in a loop, in Python or by `ops.scan`."""

    def __init__(self, scanned):
        super().__init__()
        self.steps, self.scanned = Steps(), scanned

    def construct(self, x):
        states = self.steps.init_state(x[0])
        if self.scanned:

            def step(carry, now):
                y, *after = self.steps(now, *carry)
                return tuple(after), y

            return ops.scan(step, states, x)[1]
        ys = []
        for now in x:
            y, *states = self.steps(now, *states)
            ys.append(y)
        return ops.stack(ys)


@pytest.fixture(autouse=True)
def _seed():
    snncell.set_seed(3)


def inputs():
    return Tensor(np.random.default_rng(0).uniform(0, 3, (T, B, 4)).astype(np.float32))


def gradients(net, outside=False):
    def loss(x):
        return ops.square(net(x)).mean()

    return snncell.value_and_grad(snncell.jit(loss) if outside else loss, 0, net.trainable_params())


def flat(result):
    value, (dx, dw) = result
    return [x.asnumpy() for x in (value, dx, *dw)]


WAYS = {
    "eager": lambda net: gradients(net),
    "jit": lambda net: snncell.jit(gradients(net)),
    "gradient of jit": lambda net: gradients(net, outside=True),
}
compiled = pytest.mark.compiled


def everything(net, **options):
    return snncell.monitor(net, v=True, above=True, grad=True, inputs=True, **options)


# --- records ----------------------------------------------------------------------------------------------------------


@pytest.mark.sampled(1)
@compiled
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("options", [{}, {"checkpoint_every": 3}], ids=["", "checkpoints"])
def test_records_equal_loop_over_neurons(way, options):
    net, x = Net(**options), inputs()
    with everything(net) as m:
        WAYS[way](net)(x)
    assert m.layers == ("layer1", "layer2", "readout")
    current, v = net.dense1(x), ops.zeros((B, 6))
    for t in range(T):
        h = v + (current[t] - v) / net.lif.tau
        s, v = net.lif(current[t], v)
        np.testing.assert_allclose(m.above["layer1"][t], h - 0.4, atol=1e-6)
        np.testing.assert_array_equal(m.spikes["layer1"][t], s)
        np.testing.assert_allclose(m.v["layer1"][t], v, atol=1e-6)
    assert m.spikes["layer1"].any() and m.spikes["layer2"].any()
    np.testing.assert_array_equal(m.spikes["layer2"], m.above["layer2"] > 0)
    np.testing.assert_array_equal(m.spikes["readout"], m.v["readout"])  # it gives its potential
    assert "readout" not in m.above
    assert m.cell("layer2") is net.layer2.cell.cell


@pytest.mark.sampled(1)
@compiled
@pytest.mark.parametrize("way", WAYS)
def test_recorded_gradients_equal_gradients_of_added_currents(way):
    net, x = Net(), inputs()
    with snncell.monitor(net, grad=True) as m:
        WAYS[way](net)(x)

    def loss(extra):
        spikes = net.layer1(net.dense1(x) + extra[0])
        spikes = net.layer2(net.dense2(spikes) + extra[1])
        return ops.square(net.readout(net.dense3(spikes) + extra[2])).mean()

    extra = tuple(ops.zeros((T, B, n)) for n in (6, 5, 2))
    for name, expected in zip(("layer1", "layer2", "readout"), snncell.grad(loss)(extra), strict=True):
        assert np.abs(m.grad[name]).max() > 1e-4
        np.testing.assert_allclose(m.grad[name], expected, rtol=1e-4, atol=1e-8)


@pytest.mark.sampled(1)
@compiled
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", ["MultiStep", "scan", "loop"])
def test_every_way_to_run_a_step_records_the_same(kind, way):
    snncell.set_seed(5)
    reference = nn.MultiStep(Steps())
    with everything(reference) as expected:
        gradients(reference)(inputs())
    snncell.set_seed(5)
    net = nn.MultiStep(Steps()) if kind == "MultiStep" else Loop(kind == "scan")
    with everything(net) as m:
        WAYS[way](net)(inputs())
    where = "cell" if kind == "MultiStep" else "steps"
    assert m.layers == (f"{where}.lif1", f"{where}.lif2")
    for name in ("lif1", "lif2"):
        assert expected.spikes[f"cell.{name}"].any()
        for quantity in ("spikes", "v", "above", "grad"):
            found, wanted = (getattr(one, quantity) for one in (m, expected))
            assert found[f"{where}.{name}"].shape[:2] == (T, B)
            np.testing.assert_allclose(found[f"{where}.{name}"], wanted[f"cell.{name}"], rtol=1e-4, atol=1e-7)


@compiled
def test_neuron_in_two_places_is_two_layers():
    class Twice(nn.Cell):
        def __init__(self):
            super().__init__()
            neuron = nn.IFNode()
            self.first, self.dense, self.second = nn.MultiStep(neuron), nn.Dense(4, 5), nn.MultiStep(neuron)

        def construct(self, x):
            return self.second(self.dense(self.first(x)))

    net = Twice()
    with snncell.monitor(net) as m:
        net(inputs())
    assert [m.spikes[name].shape for name in m.layers] == [(T, B, 4), (T, B, 5)]


@compiled
def test_chunks_of_one_call_form_one_record():
    class Chunks(nn.Cell):
        def __init__(self):
            super().__init__()
            self.dense, self.run = nn.Dense(4, 4), nn.MultiStep(nn.LIFNode(), return_states=True)

        def construct(self, x):
            y, states = self.run(self.dense(x[:3]))
            z, _ = self.run(self.dense(x[3:]), *states)
            return ops.concat([y, z])

    net, x = Chunks(), inputs()
    with everything(net) as m:
        gradients(net)(x)
    whole = nn.SequentialCell(net.dense, nn.MultiStep(net.run.cell))
    with everything(whole) as expected:
        gradients(whole)(x)
    for quantity in ("spikes", "v", "above", "grad"):
        np.testing.assert_allclose(getattr(m, quantity)["run"], getattr(expected, quantity)["1"], rtol=1e-5)
    assert m.steps("run").tolist() == list(range(T))
    assert m.costs()["dense"].macs == T * B * 16


@compiled
def test_each_call_has_its_gradient_and_a_second_one_replaces_the_first():
    net, a, b = Net(), inputs(), inputs() * 0.5

    def alone(x):
        with snncell.monitor(net, grad=True) as m:
            snncell.grad(lambda x: net(x).sum())(x)
        return m.grad["layer1"]

    with snncell.monitor(net, grad=True, calls=2) as m:
        for _ in range(2):
            snncell.value_and_grad(lambda a, b: net(a).sum() + net(b).sum(), (0, 1))(a, b)
    first, second = m.calls
    np.testing.assert_allclose(first["grad"]["layer1"], alone(a), rtol=1e-5)
    np.testing.assert_allclose(second["grad"]["layer1"], alone(b), rtol=1e-5)
    with snncell.monitor(net, grad=True) as m:
        out, pull = ops.vjp(lambda x: net(x).sum(), a)
        pull(ops.ones(out.shape))
        pull(ops.ones(out.shape) * 2.0)
    np.testing.assert_allclose(m.grad["layer1"], 2.0 * alone(a), rtol=1e-5)


@compiled
def test_selection_of_steps_neurons_and_samples_is_recorded():
    net, x = Net(), inputs()
    with everything(net, samples=2) as whole:
        gradients(net)(x)
    for way in WAYS:
        with everything(net, every=3, neurons=(1, 0), samples=2) as m:
            WAYS[way](net)(x)
        assert m.steps("layer2", "grad").tolist() == [0, 3, 6] == m.steps("layer1").tolist()
        for quantity in ("spikes", "v", "above", "grad"):
            expected = getattr(whole, quantity)["layer2"][::3][..., [1, 0]]
            np.testing.assert_allclose(getattr(m, quantity)["layer2"], expected, rtol=1e-4, atol=1e-8)
    with snncell.monitor(net, neurons=2) as m:
        net(x)
    assert [m.spikes[name].shape for name in m.layers] == [(T, B, 2)] * 3
    np.testing.assert_array_equal(m.spikes["layer1"][:, :2], whole.spikes["layer1"][..., [0, 5]])
    assert m.neurons("layer1").tolist() == [0, 5] == m.neurons(net.layer1).tolist()
    assert whole.neurons("layer1").tolist() == [0, 1, 2, 3, 4, 5]


@compiled
@pytest.mark.parametrize("way", WAYS)
def test_indices_of_selected_neurons_are_known(way):
    net = Net()
    for _ in range(2):  # traced, and taken from what is traced
        with snncell.monitor(net, spikes=["layer1", "layer2"], neurons=(4, -1)) as m:
            WAYS[way](net)(inputs())
        assert [m.neurons(name).tolist() for name in m.layers] == [[4, 5], [4, 4]]


class Straight(nn.Cell):
    """A neuron that compares with the threshold, without a Cell with `bprop`."""

    def construct(self, x, v):
        v = v + x
        return (v > 0.5).astype(snncell.float32), v

    def init_state(self, x):
        return ops.zeros(x.shape)


FIRING = {
    "LIFNode": (lambda: nn.LIFNode(), True),
    "IFNode": (lambda: nn.IFNode(v_threshold=0.5), True),
    "IFNode, fire=False": (lambda: nn.IFNode(fire=False), False),
    "LINode": (lambda: nn.LINode(), False),
    "of the user": (lambda: Straight(), True),
}


@pytest.mark.parametrize("above", [False, True])
@pytest.mark.parametrize("kind", FIRING)
def test_fires_tells_spiking_layers_from_others(kind, above):
    make, fires = FIRING[kind]
    net = nn.SequentialCell(nn.MultiStep(make()))
    with snncell.monitor(net, above=above) as m:
        net(inputs())
    assert m.fires("0") is fires
    if fires:
        assert m.rates("0").shape == (4,)
    else:
        with pytest.raises(errors.RecordError, match=r"'0', an? (LINode|IFNode), does not fire: it has no rates"):
            m.rates("0")


@compiled
@pytest.mark.parametrize("way", WAYS)
def test_only_selected_values_are_kept_in_memory(way):
    net = Net()
    with snncell.monitor(net, v=True, every=3, neurons=2, samples=1, grad=True) as m:
        WAYS[way](net)(inputs())
    for quantity in (m.spikes, m.v, m.grad):
        for name in m.layers:
            array = quantity[name]
            while isinstance(array.base, np.ndarray):
                array = array.base
            assert array.nbytes == 3 * 1 * 2 * 4


@compiled
def test_layers_are_selected_and_read_by_name_or_cell():
    net = Net()
    with snncell.monitor(net, spikes=["layer1", net.layer2], v=net.lif) as m:
        net(inputs())
    assert list(m.spikes) == ["layer1", "layer2"] and list(m.v) == ["layer1"]
    for name in ("layer1", "lif", net.lif, net.layer1):
        assert m.spikes[name].shape == (T, B, 6)
    np.testing.assert_allclose(m.rates("lif"), (m.spikes["lif"] != 0).mean((0, 1)))


@compiled
def test_number_of_kept_calls_is_limited():
    net, x = Net(), inputs()
    with snncell.monitor(net, calls=2) as m:
        for scale in (0.0, 0.5, 1.0):
            net(x * scale)
    assert len(m.calls) == 2
    np.testing.assert_array_equal(m.calls[1]["spikes"]["layer1"], m.spikes["layer1"])
    both = [(call["spikes"]["layer1"] != 0).mean((0, 1)) for call in m.calls]
    np.testing.assert_allclose(m.rates("layer1"), np.mean(both, axis=0))
    for most in (None, sys.maxsize):
        with snncell.monitor(net, calls=most, samples=sys.maxsize) as m:
            for _ in range(5):
                net(x)
        assert len(m.calls) == 5


@compiled
def test_fit_is_recorded():
    net = nn.SequentialCell(nn.Dense(4, 6), nn.MultiStep(nn.LIFNode()))
    x, y = np.ones((8, T, 4), np.float32) * 2, np.zeros(8, np.int64)
    optimiser = nn.SGD(net.trainable_params(), 0.1)
    with snncell.monitor(net, grad=True, calls=None) as m:
        snncell.train.fit(
            net,
            lambda out, y: nn.CrossEntropyLoss()(out.mean(0), y),
            optimiser,
            snncell.train.Batches(x.swapaxes(0, 1), y, batch_size=4, time_first=True),
            epochs=1,
            accuracy=None,
            progress=False,
        )
    assert [call["grad"]["1"].shape for call in m.calls if "grad" in call] == [(T, 4, 6)] * 2


@compiled
def test_sequence_layers_and_stateful_layers_are_recorded():
    net = nn.SequentialCell(nn.PSN(T), nn.Stateful(nn.MultiStep(nn.IFNode())))
    with everything(net) as m:
        snncell.grad(lambda x: net(x).sum())(inputs())
    assert m.spikes["0"].shape == m.grad["0"].shape == m.above["0"].shape == m.v["1"].shape == (T, B, 4)
    np.testing.assert_array_equal(m.spikes["0"], m.above["0"] > 0)


@compiled
@pytest.mark.parametrize("calls", [1, 2])
def test_gradient_belongs_to_its_call_despite_calls_between(calls):
    net, a, b = nn.SequentialCell(nn.Dense(4, 6), nn.MultiStep(nn.LIFNode())), inputs(), inputs() * 0.5
    with snncell.monitor(net, grad=True) as m:
        snncell.grad(lambda x: 2.0 * net(x).sum())(b)
    alone = m.grad["1"]
    with snncell.monitor(net, grad=True, calls=calls) as m:  # b last, so its gradient comes first
        snncell.grad(lambda a: net(a).sum() + 2.0 * net(b + a * 0.0).sum())(a)
    np.testing.assert_allclose(m.grad["1"], alone, rtol=1e-5)
    with snncell.monitor(net, grad=True, calls=calls) as m:
        out, pull = ops.vjp(net, a)
        net(b)  # as an evaluation
        pull(ops.ones(out.shape))
    assert ["grad" in call for call in m.calls] == [True, False][2 - calls :]


@compiled
def test_calls_seen_by_another_monitor_are_not_recorded():
    first, second = (nn.SequentialCell(nn.Dense(4, n), nn.MultiStep(nn.LIFNode())) for n in (6, 5))
    with snncell.monitor(first, grad=True):
        out, pull = ops.vjp(first, inputs())
    with snncell.monitor(second, grad=True, every=3) as m:
        second(inputs())
        pull(ops.ones(out.shape))
    assert not m.grad
    with snncell.monitor(first, grad=True) as m:  # nor has that one chosen what is kept here
        snncell.grad(lambda x: first(x).sum())(inputs())
    assert m.grad["1"].shape == (T, B, 6)


@compiled
def test_shared_or_moved_layer_is_named_by_its_place():
    class Block(nn.Cell):
        def __init__(self, run):
            super().__init__()
            self.run = run

        def construct(self, x):
            return self.run(x)

    run = nn.MultiStep(nn.LIFNode())
    net = nn.SequentialCell(Block(run), Block(run))
    with snncell.monitor(net) as m:
        net(inputs())
    assert [(name, m.spikes[name].shape) for name in m.layers] == [("0.run", (T, B, 4)), ("1.run", (T, B, 4))]

    class Last(nn.Cell):
        def construct(self, x):
            return self.blocks[-1](x)

    moved = Last(blocks=[run])
    for name in ("blocks.0", "blocks.1"):
        with snncell.monitor(moved) as m:
            moved(inputs())
        assert m.layers == (name,)
        moved.blocks = [nn.Dense(4, 4), run]


@compiled
@pytest.mark.parametrize("jitted", [False, True])
def test_added_and_replaced_layers_are_recorded(jitted):
    net = nn.SequentialCell(nn.Dense(4, 4), nn.MultiStep(nn.LIFNode()))
    m, run = snncell.monitor(net, inputs=True), snncell.jit(net) if jitted else net
    with m:
        run(inputs())
        net.append(nn.Dense(4, 5))
        net.append(nn.MultiStep(nn.LIFNode()))
        run(inputs())
    assert m.spikes["3"].shape == (T, B, 5) and list(m.costs()) == ["0", "2"]
    setattr(net, "3", nn.MultiStep(nn.IFNode()))
    with m:
        run(inputs())
    assert m.cell("3") is net[3].cell and m.spikes["3"].shape == (T, B, 5)


@compiled
def test_nested_net_keeps_its_layer_names():
    class Loss(nn.Cell):
        def __init__(self, net):
            super().__init__()
            self.before, self.net = nn.Dense(4, 4), net

        def construct(self, x):
            return self.net(self.before(x)).sum()

    net = nn.SequentialCell(nn.Dense(4, 6), nn.MultiStep(nn.LIFNode()))
    with everything(net) as m:
        snncell.grad(Loss(net))(inputs())
        Loss(net).before(inputs())  # no layer of this network
    assert m.layers == ("1",) and list(m.costs()) == ["0"]


class TwoLayers(nn.Cell):
    """A network that names its layers like the neuron inside of a container."""

    def __init__(self):
        super().__init__()
        self.neuron, self.cell = nn.MultiStep(nn.LIFNode()), nn.MultiStep(nn.LIFNode())

    def construct(self, x):
        return self.cell(self.neuron(x))


@compiled
def test_layers_called_neuron_and_cell_stay_two_layers():
    net = nn.SequentialCell(TwoLayers())
    with snncell.monitor(net, spikes=True) as m:
        net(inputs())
    assert m.layers == ("0.neuron", "0.cell") and m.spikes["0.cell"].shape == inputs().shape


class Named(nn.Cell):
    """A Python loop that calls its neuron with keyword arguments."""

    def __init__(self):
        super().__init__()
        self.dense, self.lif = nn.Dense(4, 4), nn.LIFNode(surrogate_function=surrogate.ATan())

    def construct(self, x):
        ys, v = [], ops.zeros(x.shape[1:])
        for now in x:
            y, v = self.lif(x=self.dense(x=now), v=v)
            ys.append(y)
        return ops.stack(ys)


@pytest.mark.sampled(1)
@compiled
@pytest.mark.parametrize("way", WAYS)
def test_python_loop_with_keyword_arguments_is_recorded(way):
    net, x = Named(), ops.concat([inputs(), inputs()[:1]])  # 8 steps: the last is not recorded
    weighted = ops.arange(8).astype(snncell.float32).reshape((8, 1, 1)) * 0.1 + 1.0

    def gradient(net):
        return WAYS[way](nn.SequentialCell(net, Times(weighted)))

    with everything(net) as whole:
        gradient(net)(x)
    with everything(net, every=3) as m:
        gradient(net)(x)
    assert whole.grad["lif"].shape == (8, B, 4) and whole.steps("lif", "grad").tolist() == list(range(8))
    assert m.steps("lif", "grad").tolist() == m.steps("lif").tolist() == [0, 3, 6]
    for quantity in ("spikes", "v", "above", "grad"):
        np.testing.assert_allclose(getattr(m, quantity)["lif"], getattr(whole, quantity)["lif"][::3], rtol=1e-5)


class Times(nn.Cell):
    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def construct(self, x):
        return x * self.factor


@compiled
def test_steps_of_chunks_equal_recorded_steps():
    class Chunks(nn.Cell):
        def __init__(self):
            super().__init__()
            self.run = nn.MultiStep(nn.LIFNode(), return_states=True)

        def construct(self, x):
            y, states = self.run(x[:3])
            return ops.concat([y, self.run(x[3:], *states)[0]])

    net = Chunks()
    for every, steps in ((1, list(range(T))), (2, [0, 2, 3, 5])):
        with everything(net, every=every) as m:
            snncell.grad(lambda x: net(x).sum())(inputs())
        assert m.steps("run").tolist() == m.steps("run", "grad").tolist() == steps


@pytest.mark.sampled(1)
@compiled
@pytest.mark.parametrize("way", WAYS)
def test_first_of_several_outputs_is_recorded(way):
    class Two(nn.Cell):
        def __init__(self):
            super().__init__()
            self.fire = surrogate.ATan()

        def construct(self, x, w, v):
            v = v * 0.5 + x
            spike = self.fire(v - 1.0)
            return (spike, v), w + spike, v - spike

    class Spikes(nn.Cell):
        def __init__(self):
            super().__init__()
            self.run = nn.MultiStep(Two())

        def construct(self, x):
            spikes, v = self.run(x)
            return spikes + v

    net = Spikes()
    with everything(net) as m:
        WAYS[way](nn.SequentialCell(nn.Dense(4, 4), net))(inputs())
    np.testing.assert_array_equal(m.spikes["run"], m.above["run"] > 0)
    np.testing.assert_allclose(m.v["run"], m.above["run"] + 1.0 - m.spikes["run"], atol=1e-6)
    assert m.grad["run"].shape == (T, B, 4)


def test_computations_of_bprop_debug_are_not_recorded():
    class Layer(nn.Cell):
        def __init__(self):
            super().__init__()
            self.lif = nn.LIFNode()

        def construct(self, x):
            return self.lif(x, ops.zeros_like(x))[0]

        def bprop(self, x, out, dout):
            return (dout * 0.0,)

    net = nn.SequentialCell(Layer())
    net[0].bprop_debug = True
    with snncell.monitor(net) as m:
        snncell.grad(lambda x: net(x).sum())(ops.full((B, 4), -1e3))
    assert m.spikes["0.lif"].shape == (1, B, 4)


# --- no side effects --------------------------------------------------------------------------------------------------


@pytest.mark.sampled(1)
@compiled
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("make", [Net, lambda: nn.MultiStep(Steps()), lambda: Loop(True)], ids=["Net", "Steps", "scan"])
def test_monitor_changes_no_bit_of_results(make, way):
    net, x = make(), inputs()
    run = WAYS[way](net)
    before = flat(run(x))
    with everything(net):
        recorded = flat(run(x))
    for a, b, c in zip(before, recorded, flat(run(x)), strict=True):
        np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(a, c)


@compiled
def test_monitor_keeps_fused_kernels():
    net, x = Net(), inputs()
    step = gradients(net)
    plain = snncell.explain(step, x, detail="launches")
    with everything(net):
        watched = snncell.explain(step, x, detail="launches")
    assert plain.count(": one kernel") == 6  # three layers, each way
    assert watched.count(": one kernel") == 6


@compiled
def test_monitors_of_the_same_values_share_traces():
    net, x = Net(), inputs()
    run = snncell.jit(gradients(net))
    run(x)
    for _ in range(3):
        with everything(net) as m:
            run(x)
        assert m.layers == ("layer1", "layer2", "readout")
    assert len(run.compiled) == 2
    with snncell.monitor(net):
        run(x)
    assert len(run.compiled) == 3


@compiled
def test_graph_mode_is_recorded():
    net, x = Net(), inputs()
    expected = net(x)
    snncell.set_context(mode=snncell.GRAPH_MODE)
    try:
        with everything(net) as m:
            found = net(x)
    finally:
        snncell.set_context(mode=snncell.PYNATIVE_MODE)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    np.testing.assert_array_equal(m.spikes["readout"], found)


def test_records_without_compiler():
    net = nn.SequentialCell(nn.Dense(4, 6), nn.MultiStep(nn.LIFNode()))
    with everything(net) as m:
        out = net(inputs())
    np.testing.assert_array_equal(m.spikes["1"], out)


# --- operations -------------------------------------------------------------------------------------------------------


def count(fan_out, x):
    return int(((np.asarray(x) != 0) * fan_out).sum())


@compiled
def test_synaptic_operations_of_dense_layers_are_counted():
    net, x = Net(), inputs()
    with snncell.monitor(net, inputs=True) as m:
        net(x)
    costs = m.costs()
    assert list(costs) == ["dense1", "dense2", "layer2.cell.feedback", "dense3"]
    assert costs["dense1"] == (T * B * 24, T * B * 24, 1.0, False)  # analogue inputs
    spikes = m.spikes["layer1"]
    assert costs["dense2"] == (T * B * 30, count(5, spikes), pytest.approx((spikes != 0).mean()), True)
    fed_back = m.spikes["layer2"][:-1]  # the first step gets nothing back
    assert costs["layer2.cell.feedback"].synops == count(5, fed_back)
    assert costs["layer2.cell.feedback"].macs == T * B * 25


CONVOLUTIONS = {
    "padded": (nn.Conv2d(2, 3, 3), (2, 5, 4)),
    "strides": (nn.Conv2d(2, 4, 3, stride=2, pad_mode="valid"), (2, 6, 5)),
    "dilation and groups": (nn.Conv2d(4, 4, 3, dilation=2, pad_mode="pad", padding=1, group=2), (4, 6, 6)),
    "one dimension": (nn.Conv1d(3, 2, 3, pad_mode="valid"), (3, 8)),
    "transposed": (nn.Conv2dTranspose(2, 3, 3, stride=2), (2, 3, 3)),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_synaptic_operations_of_convolutions_are_counted(name):
    layer, shape = CONVOLUTIONS[name]
    spikes = (np.random.default_rng(1).random((5, *shape)) < 0.3).astype(np.float32)
    net = nn.SequentialCell(layer, nn.IFNode(fire=False))
    with snncell.monitor(net, inputs=True) as m:
        layer(Tensor(spikes))
    # A spike reaches as many outputs as its response has nonzero elements, if no weight is zero.
    bias = layer(ops.zeros((1, *shape))).asnumpy()

    def reached(x):
        return int((np.abs(layer(Tensor(x[None])).asnumpy() - bias) > 0).sum())

    alone = {place: np.zeros(shape, np.float32) for place in np.ndindex(*shape)}
    for place, one in alone.items():
        one[place] = 1.0
    fan_out = {place: reached(one) for place, one in alone.items()}
    cost = m.costs()["0"]
    assert cost.synops == sum(fan_out[tuple(place[1:])] for place in np.argwhere(spikes))
    assert cost.macs == 5 * sum(fan_out.values())
    assert cost.spikes and cost.density == pytest.approx(spikes.mean())


@compiled
def test_costs_of_every_kth_step_are_estimates():
    net = nn.MultiStep(nn.Recurrent(nn.IFNode(v_threshold=0.5), nn.Dense(4, 4)))
    for steps, every in ((6, 1), (7, 3), (6, 3)):
        with snncell.monitor(net, inputs=True, every=every) as m:
            net(Tensor(np.ones((steps, 2, 4), np.float32) * 2))
        assert m.costs()["cell.feedback"].macs == steps * 2 * 16
    assert m.costs()["cell.feedback"].density == pytest.approx((m.spikes["cell"][0] != 0).mean() / 2)


# --- errors -----------------------------------------------------------------------------------------------------------

BEFORE = {
    "another Cell": ({"v": nn.LIFNode()}, r"v: the LIFNode given is not in Net.*neurons are layer1, layer2, readout"),
    "another name": ({"spikes": ["layer3"]}, r"spikes: 'layer3' is not in Net"),
    "no neuron in it": ({"grad": "dense1"}, r"grad: 'dense1' contains no neuron"),
    "every 0": ({"every": 0}, r"Monitor: every is an integer of at least 1"),
    "no neurons": (
        {"neurons": []},
        r"neurons must be a number of neurons for each layer, or a list of indices, not \[\]",
    ),
    "calls": ({"calls": 0}, r"Monitor: calls is an integer of at least 1"),
}


@pytest.mark.parametrize("what", BEFORE)
def test_unrecordable_values_raise(what):
    options, message = BEFORE[what]
    with pytest.raises(errors.ArgumentError, match=message):
        snncell.monitor(Net(), **options)


def test_monitor_of_invalid_network_raises():
    with pytest.raises(errors.ArgumentError, match="Monitor: net is a Cell, not"):
        snncell.monitor([])
    with pytest.raises(errors.ArgumentError, match=r"Dense has no neurons\. A neuron is a Cell"):
        snncell.monitor(nn.Dense(2, 2))


@compiled
def test_missing_record_raises_with_reason():
    net, x = Net(), inputs()
    m = snncell.monitor(net)
    with pytest.raises(errors.RecordError, match="was not called while the monitor was recording"):
        m.spikes["layer1"]
    with m:
        net(x)
    with pytest.raises(
        errors.RecordError, match=r"no v of 'layer1' was recorded. Record it with monitor\(net, v=True\)"
    ):
        m.v["layer1"]
    with pytest.raises(KeyError, match="Recorded layers: layer1, layer2, readout"):
        m.spikes["lif7"]
    with pytest.raises(errors.RecordError, match=r"no inputs of Dense or Conv layers.*inputs=True"):
        m.costs()
    with snncell.monitor(net, grad=True, above=True) as m:
        net(x)
    with pytest.raises(errors.RecordError, match=r"no gradient.*an evaluation.*calls=None.*m\.calls\[i\]\['grad'\]"):
        m.grad["layer1"]
    with snncell.monitor(net, grad=True, calls=None) as kept:
        net(x)
        gradients(net)(x)
        net(x)
    with pytest.raises(errors.RecordError, match=r"an earlier one has: m\.calls\[1\]\['grad'\]\['layer1'\]"):
        kept.grad["layer1"]
    assert kept.calls[1]["grad"]["layer1"].shape == (T, B, 6)
    with pytest.raises(errors.RecordError, match="did not call its spike function"):
        m.above["readout"]
    with pytest.raises(errors.RecordError, match="no spikes of 'layer1' were recorded"):
        snncell.monitor(net, spikes=False, v=True).rates("layer1")


def test_nested_monitors_raise():
    net = Net()
    with snncell.monitor(net) as m:
        with pytest.raises(errors.ArgumentError, match="another monitor is already recording"):
            snncell.monitor(net).__enter__()
        refused: list[errors.ArgumentError] = []

        def enter():
            with pytest.raises(errors.ArgumentError) as error:
                m.__enter__()
            refused.append(error.value)

        thread = threading.Thread(target=enter)
        thread.start()
        thread.join()
    assert len(refused) == 1 and CHECKING.watch is None


def test_neuron_with_two_shapes_raises():
    net = nn.SequentialCell(nn.IFNode())
    with snncell.monitor(net) as m:
        for n in (2, 3):
            net[0](ops.ones((1, n)), ops.zeros((1, n)))
    with pytest.raises(errors.ShapeError, match=r"shapes \(1, 2\), \(1, 3\).*Use a separate neuron for each layer"):
        m.spikes["0"]


@compiled
def test_indices_out_of_range_raise():
    net = Net()
    with (
        snncell.monitor(net, neurons=[5]),
        pytest.raises(errors.ArgumentError, match=r"the layer 'layer2' has 5.*spikes='layer1'"),
    ):
        net(inputs())


def test_error_in_network_leaves_no_monitor_active():
    net = nn.SequentialCell(nn.Dense(4, 6), nn.MultiStep(nn.LIFNode()))
    m = snncell.monitor(net)
    with pytest.raises(errors.ShapeError), m:
        net(ops.ones((2, 3, 5)))
    with m:
        out = net(inputs())
    np.testing.assert_array_equal(m.spikes["1"], out)
