"""`snncell.torch.fused`: values and gradients of torch modules, shared Parameters, states, torch.compile, errors."""

import copy
import io
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import snncell
from snncell import Parameter, Tensor, nn, ops
from snncell.errors import (
    ArgumentError,
    ArgumentTypeError,
    DeviceError,
    DTypeError,
    GradientError,
    NameClashError,
    ShapeError,
)

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install '.[torch]'")

from snncell.compiler.runtime.plan import Plan  # noqa: E402
from snncell.torch import fused  # noqa: E402
from snncell.torch.calls import CompiledCalls, forward_operator  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:::torch")


class Recorded(nn.Cell):
    """A neuron whose output is a dict with two parts, one of them also its state."""

    def construct(self, x, v):
        v = 0.9 * v + x
        return {"rate": ops.sigmoid(v), "v": v}, v


class Shared(nn.Cell):
    """A network in which one Parameter has two paths, and another is frozen."""

    def __init__(self):
        super().__init__()
        self.first = nn.Dense(5, 5)
        self.neurons = nn.MultiStep(nn.LIFNode())
        self.second = self.first
        self.scale = Parameter([2.0] * 5, requires_grad=False)

    def construct(self, x):
        return self.second(self.neurons(self.first(x) * self.scale))


CELLS = {
    "LIF": lambda: nn.LIFNode(2.0),
    "learned": lambda: nn.ParametricLIFNode(2.0),
    "two states": lambda: nn.ALIFNode(),
    "recurrent": lambda: nn.Recurrent(nn.LIFNode(), nn.Dense(5, 5)),
    "dict": Recorded,
    "multistep": lambda: nn.MultiStep(nn.IFNode(), return_states=True),
    "network": lambda: nn.SequentialCell(nn.Dense(5, 7), nn.MultiStep(nn.LIFNode()), nn.Dense(7, 3)),
    "shared": Shared,
    "delays": lambda: nn.SequentialCell(nn.DelayedDense(5, 4, 3), nn.MultiStep(nn.LIFNode())),
    "statistics": lambda: nn.TimeDistributed(nn.BatchNorm1d(5)),
}
OVER_TIME = ("multistep", "network", "shared", "delays", "statistics")


def inputs(dtype="float32", shape=(6, 4, 5), seed=0):
    return np.random.default_rng(seed).uniform(0.0, 2.0, shape).astype(dtype)


def leaves(tree):
    """The tensors of a result."""
    if isinstance(tree, dict):
        tree = tuple(tree.values())
    return [one for part in tree for one in leaves(part)] if isinstance(tree, (tuple, list)) else [tree]


def laid_out(array, layout, **options):
    """A tensor with these values: contiguous, with swapped axes, or as every second element."""
    x = torch.tensor(array, **options)
    if layout == "swapped":
        x = x.transpose(0, 1).contiguous().transpose(0, 1)
    if layout == "strided":
        x = x.repeat_interleave(2, -1)[..., ::2]
    assert x.is_contiguous() == (layout == "contiguous")
    return x


def differentiated(module, x, douts):
    """Results, and the gradients of the input and of all parameters."""
    x = x.clone(memory_format=torch.preserve_format).requires_grad_() if x.is_contiguous() else x.requires_grad_()
    module.zero_grad()
    found = leaves(module(x))
    torch.autograd.backward(found, [dout.expand_as(y) for y, dout in zip(found, douts, strict=True)])
    return found, [x.grad, *(p.grad for p in module.parameters())]


# --- values and gradients ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", ["contiguous", "swapped", "strided"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", CELLS)
@pytest.mark.sampled(12)
def test_module_has_values_and_gradients_of_cell(name, dtype, layout):
    cell, x = CELLS[name](), inputs(dtype)
    whole = (cell if name in OVER_TIME else nn.MultiStep(cell)).set_train()
    saved = {path: np.array(p.asnumpy()) for path, p in cell.parameters_and_names()}
    out, pull = snncell.vjp(snncell.jit(whole), Tensor(x), weights=cell.trainable_params())
    expected = leaves(out if not isinstance(out, dict) else dict(out))
    douts = [inputs(y.dtype.name, y.shape, 3 + n) for n, y in enumerate(expected)]
    (dx,), weights = pull(*map(Tensor, douts))
    for path, p in cell.parameters_and_names():  # BatchNorm has new statistics
        p.set_data(Tensor(saved[path]))
    found, gradients = differentiated(fused(cell), laid_out(x, layout), [laid_out(d, layout) for d in douts])
    close = {"rtol": 1e-4 if dtype == "float32" else 1e-10, "atol": 1e-4 if dtype == "float32" else 1e-10}
    for ours, theirs in zip([*expected, dx, *weights], [*found, *gradients], strict=True):
        assert ours.dtype.name == str(theirs.dtype).removeprefix("torch.")
        np.testing.assert_allclose(theirs.detach().numpy(), ours.asnumpy(), **close)


def test_gradients_agree_with_finite_differences():
    with snncell.surrogate.smooth():
        for cell in (nn.ParametricLIFNode(2.0), nn.Recurrent(nn.LIFNode(), nn.Dense(3, 3))):
            module = fused(cell).double()
            x = torch.tensor(inputs("float64", (4, 2, 3)), requires_grad=True)
            assert torch.autograd.gradcheck(module, (x,))


def test_gradient_of_one_result_needs_no_other():
    module, x = fused(Recorded()), torch.tensor(inputs(), requires_grad=True)
    results = module(x)
    results["v"].sum().backward(retain_graph=True)
    alone = x.grad.clone()
    (results["v"].sum() + 0.0 * results["rate"].sum()).backward()
    torch.testing.assert_close(x.grad - alone, alone)
    assert len({part.data_ptr() for part in leaves(results)}) == 2  # each has memory of its own


@pytest.mark.parametrize("dtype", ["uint8", "int64", "bool", "float16"])
def test_inputs_of_other_dtypes(dtype):
    x = (inputs() > 1.0).astype(dtype)
    found = fused(nn.LIFNode())(torch.tensor(x))
    assert np.array_equal(found.numpy(), nn.MultiStep(nn.LIFNode())(Tensor(x)).asnumpy())


def test_memory_is_shared_and_not_copied(monkeypatch):
    module, x = fused(nn.LIFNode()), torch.tensor(inputs(), requires_grad=True)
    module(x)
    seen, computed = [], []
    look_up, replay = CompiledCalls.look_up, Plan.replay_unshared
    monkeypatch.setattr(
        CompiledCalls, "look_up", lambda self, leaves, *a, **k: [seen.extend(leaves), look_up(self, leaves, *a, **k)][1]
    )
    monkeypatch.setattr(
        Plan, "replay_unshared", lambda self, arrays: [computed.append(replay(self, arrays)), computed[-1]][1]
    )
    for given in (x, x.transpose(0, 1)):
        seen.clear()
        y = module(given)
        assert seen[0]._data.ctypes.data == given.data_ptr() and computed[-1][0].ctypes.data == y.data_ptr()


def test_results_may_be_overwritten():
    class Through(nn.Cell):
        def construct(self, x, v):
            return (x, v), v

    module, x = fused(Through()), torch.tensor(inputs())
    before = x.clone()
    same, first = module(x)
    same += 1.0
    first += 1.0
    assert torch.equal(x, before) and torch.equal(module(x)[1], torch.zeros_like(x))
    layer = fused(nn.Dense(5, 5))
    layer(x).sum().backward()
    layer.bias.grad.mul_(0.0)
    layer(x).sum().backward()
    assert float(layer.bias.grad.sum()) == 6 * 4 * 5


def test_no_gradient_is_computed_that_nobody_wants():
    module, x = fused(nn.Dense(5, 3)), torch.tensor(inputs())
    calls = module._calls
    module(x).sum().backward()
    (jitted,) = calls.jitted.values()
    (compiled,) = jitted.compiled.values()
    (reverse,) = compiled.vjp._reverses.values()
    assert reverse.has_gradient == [False, True, True]
    with torch.no_grad():
        assert not module(x).requires_grad
    assert len(jitted.compiled) == 2  # one more, without residuals


def test_calls_are_traced_once():
    module, x = fused(nn.ParametricLIFNode()), torch.tensor(inputs())
    optimiser = torch.optim.Adam(module.parameters())
    for _ in range(4):
        module(x).sum().backward()
        optimiser.step()
    (jitted,) = module._calls.jitted.values()
    assert len(jitted.compiled) == 1 and jitted.stale == 0


def test_modifying_a_needed_input_raises():
    x = torch.tensor(inputs(), requires_grad=True)
    given = x * 1.0
    y = fused(nn.Dense(5, 3))(given)
    given.mul_(2.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()
    y = fused(nn.LIFNode())(x)
    y.sum().backward()
    with pytest.raises(RuntimeError, match="second time"):
        y.sum().backward()


def test_checkpoint_recomputes_the_module():
    from torch.utils.checkpoint import checkpoint

    module, x = fused(nn.LIFNode()), torch.tensor(inputs(), requires_grad=True)
    (expected,) = torch.autograd.grad(module(x).sum(), x)
    (found,) = torch.autograd.grad(checkpoint(module, x, use_reentrant=False).sum(), x)
    assert torch.equal(expected, found)


# --- Parameters -------------------------------------------------------------------------------------------------------


def net():
    return nn.SequentialCell(nn.Dense(5, 4), nn.MultiStep(nn.ParametricLIFNode(2.0)), nn.Dense(4, 3))


def test_parameters_have_paths_of_cell():
    cell = Shared()
    module = fused(cell)
    assert list(module.state_dict()) == list(cell.parameters_dict()) == ["scale", "first.weight", "first.bias"]
    assert [name for name, _ in module.named_parameters()] == ["first.weight", "first.bias"]
    assert repr(module) == f"fused({cell!r})" and module.snncell is cell


@pytest.mark.parametrize("kind", ["SGD", "Adam"])
def test_optimisers_of_torch_train_the_cell(kind):
    cell, x = net(), torch.tensor(inputs())
    module, target = fused(cell), torch.tensor(inputs(shape=(6, 4, 3), seed=1))
    optimiser = getattr(torch.optim, kind)(module.parameters(), 0.5 if kind == "SGD" else 0.02)
    losses = []
    for _ in range(30):
        optimiser.zero_grad()
        loss = (module(x) - target).pow(2).mean()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < 0.8 * losses[0]
    for (_, ours), theirs in zip(cell.parameters_and_names(), module.parameters(), strict=True):
        assert ours._data.ctypes.data == theirs.data_ptr()


def fill(x, value):
    with torch.no_grad():
        x.fill_(value)


CHANGES = {
    "in place": lambda m: fill(m.w, 0.5),
    "data": lambda m: setattr(m.w, "data", torch.tensor(0.5)),
    "load": lambda m: m.load_state_dict({"w": torch.tensor(0.5)}),
    "assign": lambda m: m.load_state_dict({"w": torch.tensor(0.5)}, assign=True),
    "ours": lambda m: m.snncell.w.set_data(Tensor(0.5)),
    "replaced": lambda m: setattr(m, "w", torch.nn.Parameter(torch.tensor(0.5))),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("copied", [None, "deepcopy", "pickle", "save"])
def test_new_values_reach_both_sides(change, copied):
    module, x = fused(nn.ParametricLIFNode(2.0)), torch.tensor(inputs())
    module(x)
    original = module
    if copied == "deepcopy":
        module = copy.deepcopy(module)
    elif copied == "pickle":
        module = pickle.loads(pickle.dumps(module))
    elif copied == "save":
        torch.save(module, file := io.BytesIO())
        file.seek(0)
        module = torch.load(file, weights_only=False)
    CHANGES[change](module)
    expected = nn.ParametricLIFNode(2.0)
    expected.w.set_data(Tensor(0.5))
    assert np.array_equal(module(x).detach().numpy(), nn.MultiStep(expected)(Tensor(x.numpy())).asnumpy())
    assert module.snncell.w.item() == module.w.item() == float(module.state_dict()["w"]) == 0.5
    assert copied is None or original.snncell.w.item() != 0.5


def test_values_written_to_the_cell_are_saved_copied_and_converted():
    module = fused(nn.ParametricLIFNode(2.0))
    actions = {
        "state_dict": lambda: module.state_dict()["w"],
        "deepcopy": lambda: copy.deepcopy(module).w,
        "double": lambda: module.double().w,
        "load": lambda: [module.load_state_dict({"w": torch.tensor(9.0)}), module(X.double()), module.w][-1],
        "inference": lambda: [torch.inference_mode()(module)(X), module.w][-1],
    }
    for number, (name, action) in enumerate(actions.items()):
        module.snncell.w.set_data(Tensor(number / 4).astype(module.snncell.w.dtype))
        assert action().item() == (9.0 if name == "load" else number / 4), name


def test_dtype_of_parameters_can_change():
    module, x = fused(net()), torch.tensor(inputs())
    single = module(x)
    module.double()
    double = module(x.double())
    double.sum().backward()
    assert {p.dtype for p in module.parameters()} == {p.grad.dtype for p in module.parameters()} == {torch.float64}
    assert {p.dtype for p in module.snncell.get_parameters()} == {snncell.float64}
    torch.testing.assert_close(double.float(), single)
    torch.testing.assert_close(module.float()(x), single)


def test_frozen_parameters_get_no_gradient():
    module, x = fused(net()), torch.tensor(inputs())
    module.requires_grad_(False)
    assert not module(x).requires_grad
    module.get_parameter("2.weight").requires_grad_(True)
    module(x).sum().backward()
    assert [name for name, p in module.named_parameters() if p.grad is not None] == ["2.weight"]


def test_learned_constants_stay_in_range():
    module = fused(nn.LIFNode(tau=Parameter(2.0)))
    fill(module.tau, 0.25)
    module(torch.tensor(inputs()))
    assert module.tau.item() > 1.0 and module.snncell.tau.item() == module.tau.item()


def test_modes_and_statistics_follow_the_module():
    module, x = fused(CELLS["statistics"]()), torch.tensor(inputs())
    outer = torch.nn.Sequential(module)
    before = {name: value.clone() for name, value in module.state_dict().items()}
    module(x)
    changed = {name for name, value in module.state_dict().items() if not torch.equal(value, before[name])}
    assert changed == {"cell.moving_mean", "cell.moving_variance"} == {name for name, _ in module.named_buffers()}
    outer.eval()
    assert not module.snncell.training and not module.snncell.cell.training
    assert torch.equal(module(x), module(x)) and not torch.equal(module(x), outer.train()(x))


def test_functional_call_uses_its_own_parameters():
    module, x = fused(nn.ParametricLIFNode(2.0)), torch.tensor(inputs())
    expected, w = module(x), torch.tensor(4.0, requires_grad=True)
    torch.func.functional_call(module, {"w": w}, (x,)).sum().backward()
    assert w.grad is not None and module.w.grad is None
    assert torch.equal(module(x), expected)


def test_random_numbers_are_those_of_snncell():
    module, x = fused(nn.SequentialCell(nn.Dropout(p=0.5))), torch.ones(4, 50)
    drawn = []
    for seed in (1, 1, None):
        torch.manual_seed(0)
        if seed is not None:
            snncell.set_seed(seed)
        drawn.append(module(x))
    assert torch.equal(drawn[0], drawn[1]) and not torch.equal(drawn[1], drawn[2])
    x.requires_grad_()
    y = module(x)
    y.sum().backward()
    assert torch.equal(x.grad, y)


def test_monitor_records_the_cell():
    cell = nn.SequentialCell(nn.Dense(5, 4), nn.MultiStep(nn.LIFNode()))
    module, x = fused(cell), torch.tensor(inputs(), requires_grad=True)
    (expected,) = torch.autograd.grad(module(x).sum(), x)
    with snncell.monitor(cell) as monitor:
        spikes = module(x)
        (found,) = torch.autograd.grad(spikes.sum(), x)
    assert torch.equal(found, expected)
    assert np.array_equal(monitor.spikes["1"], spikes.detach().numpy())
    with snncell.monitor(cell) as monitor, torch.no_grad():
        module(x)
    assert np.array_equal(monitor.spikes["1"], spikes.detach().numpy())


# --- states -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in CELLS if name not in OVER_TIME and name != "dict"])
def test_states_in_all_ways_give_the_same_spikes_and_gradients(name):
    x = torch.tensor(inputs(), requires_grad=True)

    def whole(module):
        return module(x)

    def chunks(module):
        first, states = module(x[:2])
        return torch.cat([first, module(x[2:], *states)[0]])

    def kept_chunks(module):
        module.reset()
        return torch.cat([module(x[:2]), module(x[2:])])

    def steps(module):
        states, found = (), []
        for now in x:
            spike, *states = module(now, *states)
            found.append(spike)
        return torch.stack(found)

    def kept_steps(module):
        return torch.stack([module(now) for now in x])

    ways = {
        whole: {},
        chunks: {"states": "returned"},
        kept_chunks: {"states": "kept"},
        steps: {"over_time": False},
        kept_steps: {"over_time": False, "states": "kept"},
    }
    cell, found = CELLS[name](), []
    for way, options in ways.items():
        y = way(fused(cell, **options))
        found.append((y, torch.autograd.grad((y * torch.arange(5.0)).sum(), x)[0]))
    for y, dx in found[1:]:
        torch.testing.assert_close(y, found[0][0])
        torch.testing.assert_close(dx, found[0][1], rtol=1e-4, atol=1e-5)


def test_kept_states():
    module, x = fused(nn.LIFNode(), states="kept"), torch.tensor(inputs(), requires_grad=True)
    module(x).sum().backward()
    with pytest.raises(RuntimeError, match="second time"):
        module(x).sum().backward()
    module.detach()
    module(x).sum().backward()
    with pytest.raises(ShapeError, match=r"fused\(LIFNode\): the kept states are of 4 samples, .* reset\(\)"):
        module(x[:, :3])
    assert not copy.deepcopy(module)._kept and not module.state_dict()
    module.reset()
    assert torch.equal(module(x[:, :3]), fused(nn.LIFNode())(x[:, :3]))


# --- torch.compile ----------------------------------------------------------------------------------------------------


class Mixed(torch.nn.Module):
    def __init__(self, over_time=True, states=None):
        super().__init__()
        self.first, self.second = torch.nn.Linear(5, 4), torch.nn.Linear(4, 3)
        self.lif = fused(nn.ParametricLIFNode(2.0), over_time, states)

    def forward(self, x):
        if self.lif._over_time:
            return self.second(self.lif(self.first(x)))
        state, found = self.lif.reset_mem(), []
        for now in x:
            spike, state = self.lif(self.first(now), state)
            found.append(spike)
        return self.second(torch.stack(found))


@pytest.mark.compiled
@pytest.mark.parametrize("settings", [{}, {"dynamic": True}, {"over_time": False}, {"states": "kept"}], ids=str)
def test_compiled_network_has_no_graph_break(settings):
    torch.compiler.reset()
    dynamic = {"dynamic": settings["dynamic"]} if "dynamic" in settings else {}
    module = Mixed(**{name: value for name, value in settings.items() if name != "dynamic"})
    compiled = torch.compile(module, backend="aot_eager", fullgraph=True, **dynamic)
    for batch in (4, 3):
        douts = [torch.tensor(inputs(shape=(3, batch, 3), seed=1))]
        x, found = torch.tensor(inputs(shape=(3, batch, 5))), []
        for each in (compiled, module):
            if "states" in settings:
                module.lif.reset()
            values, gradients = differentiated(each, x, douts)
            found.append([*values, *gradients])
        for ours, theirs in zip(*found, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), module(x), rtol=1e-4, atol=1e-5)


@pytest.mark.compiled
def test_compiled_module_sees_changes_of_the_cell_and_refuses_random_numbers():
    torch.compiler.reset()
    module, x = fused(nn.LIFNode(2.0)), torch.tensor(inputs())
    compiled = torch.compile(module, backend="aot_eager", fullgraph=True)
    before = compiled(x)
    module.snncell.tau = 4.0
    assert torch.equal(compiled(x), module(x)) and not torch.equal(compiled(x), before)
    dropout = fused(nn.SequentialCell(nn.Dropout(p=0.5)))
    with pytest.raises(RuntimeError, match=r"draws random numbers or updates statistics"):
        torch.compile(dropout, backend="aot_eager")(x)
    left_out = torch.nn.Sequential(torch.nn.Linear(5, 5), torch.compiler.disable(dropout))
    assert torch.compile(left_out, backend="aot_eager")(x).shape == x.shape


def test_operators_pass_the_checks_of_torch():
    module = fused(nn.ParametricLIFNode(2.0))
    x = torch.tensor(inputs(), requires_grad=True)
    utilities = ("test_schema", "test_autograd_registration", "test_faketensor")
    arguments = (module._calls.key, [True, True], [x], [module.w])
    assert set(torch.library.opcheck(forward_operator, arguments, test_utils=utilities).values()) == {"SUCCESS"}


# --- scripts of others ------------------------------------------------------------------------------------------------


@pytest.mark.peer
def test_spikingjelly_network_keeps_its_spikes():
    neuron = pytest.importorskip("spikingjelly.activation_based.neuron", reason="SpikingJelly is not installed")
    from spikingjelly.activation_based import functional, layer

    def losses(make):
        torch.manual_seed(0)
        made = torch.nn.Sequential(layer.Linear(5, 20), make(), layer.Linear(20, 3), make())
        functional.set_step_mode(made, "m")
        for p in made.parameters():
            p.data *= 4.0
        optimiser, found = torch.optim.Adam(made.parameters(), 0.01), []
        for _ in range(4):
            spikes = made(torch.tensor(inputs()))
            optimiser.zero_grad()
            torch.nn.functional.cross_entropy(spikes.mean(0), torch.arange(4) % 3).backward()
            optimiser.step()
            functional.reset_net(made)
            found.append(spikes)
        return torch.stack(found)

    node = nn.LIFNode.like("spikingjelly", tau=2.0)
    expected = losses(lambda: neuron.LIFNode(tau=2.0))
    assert torch.equal(losses(lambda: fused(node)), expected) and expected.sum() > 0
    assert torch.equal(losses(lambda: fused(node, states="kept")), expected)


@pytest.mark.peer
def test_snntorch_network_keeps_its_spikes():
    snntorch = pytest.importorskip("snntorch", reason="snnTorch is not installed")

    def losses(make):
        torch.manual_seed(0)
        (first, second), neurons = (torch.nn.Linear(5, 20), torch.nn.Linear(20, 3)), (make(), make())
        optimiser, found = torch.optim.Adam([*first.parameters(), *second.parameters()], 0.01), []
        for _ in range(4):
            states, spikes = [neuron.init_leaky() for neuron in neurons], []
            for now in torch.tensor(inputs()):
                one, states[0] = neurons[0](first(now), states[0])
                two, states[1] = neurons[1](second(one), states[1])
                spikes.append(two)
            optimiser.zero_grad()
            torch.nn.functional.cross_entropy(torch.stack(spikes).mean(0), torch.arange(4) % 3).backward()
            optimiser.step()
            found += spikes
        return torch.stack(found)

    node = nn.LIFNode.like("snntorch", beta=0.9)
    expected = losses(lambda: snntorch.Leaky(beta=0.9))
    assert torch.equal(losses(lambda: fused(node, over_time=False)), expected) and expected.sum() > 0


# --- errors -----------------------------------------------------------------------------------------------------------

X = torch.tensor(inputs())


class Reset(nn.Cell):
    def __init__(self):
        super().__init__()
        self.forward = Parameter([1.0])


class Outside(nn.Cell):
    weight = [Parameter([1.0], name="elsewhere")]  # noqa: RUF012

    def construct(self, x):
        return x * Outside.weight[0]


class Hooked(nn.Cell):
    def construct(self, x):
        x.register_hook(lambda gradient: gradient * 2.0)
        return x * 2.0


def watched(step):
    def call():
        snncell.set_context(check_finite=True)
        try:
            step()
        finally:
            snncell.set_context(check_finite=False)

    return call


def second_order():
    x = X.clone().requires_grad_()
    torch.autograd.grad(fused(nn.LIFNode())(x).sum(), x, create_graph=True)


REFUSED = [
    (lambda: fused(torch.nn.ReLU()), ArgumentTypeError, "fused: cell is a Cell, not ReLU"),
    (lambda: fused(Reset()), NameClashError, "cannot have a parameter 'forward'"),
    (lambda: fused(nn.LIFNode())(X.numpy()), ArgumentTypeError, "input 0 must be a torch.Tensor, not a ndarray"),
    (
        lambda: fused(nn.LIFNode(), states="returned")(X, 0.0),
        ArgumentTypeError,
        "input 1 must be a torch.Tensor, not a float",
    ),
    (lambda: fused(nn.LIFNode())(X.to("meta")), DeviceError, r"fused\(LIFNode\): input 0 is on the device meta"),
    (lambda: fused(nn.Dense(5, 3)).to("meta")(X), DeviceError, "Parameter 'weight' is on the device meta"),
    (lambda: fused(nn.LIFNode())(X.to_sparse()), DeviceError, r"stored as torch.sparse_coo, .* \.to_dense\(\)"),
    (lambda: fused(nn.LIFNode())(X.bfloat16()), DTypeError, "input 0 has dtype torch.bfloat16"),
    (lambda: fused(nn.LIFNode())(X[0, 0]), ShapeError, r"x must be \(T, B, ...\), but has shape \(5,\)"),
    (lambda: fused(nn.Dense(4, 3))(X), ShapeError, "Dense"),
    (lambda: fused(nn.LIFNode(), states="returned")(X, X[0, :2]), ShapeError, "LIFNode"),
    (
        lambda: fused(Outside())(X.requires_grad_(False) * torch.ones(1, requires_grad=True)),
        GradientError,
        "'elsewhere'",
    ),
    (
        lambda: fused(Hooked())(X * torch.ones(1, requires_grad=True)),
        GradientError,
        "registers a hook on its own input",
    ),
    (lambda: torch.func.grad(lambda x: fused(nn.LIFNode())(x).sum())(X), GradientError, "torch.func transforms"),
    (lambda: torch.func.vmap(fused(nn.LIFNode()))(torch.stack([X, X])), GradientError, "batch axis instead of vmap"),
    (second_order, GradientError, "no second-order gradient, so create_graph must be False"),
    (watched(lambda: fused(nn.LIFNode())(X)), ArgumentError, r"check_finite=True .* module\.snncell"),
]


@pytest.mark.parametrize(("call", "kind", "words"), REFUSED, ids=[words for _, _, words in REFUSED])
def test_errors_name_module_and_fix(call, kind, words):
    with pytest.raises(kind, match=words):
        call()


def test_shape_of_a_replaced_parameter_is_checked():
    module = fused(nn.Dense(5, 3))
    module.weight.data = torch.zeros(2, 5)
    with pytest.raises(ShapeError, match=r"Parameter 'weight' has shape \(3, 5\), but its torch tensor has \(2, 5\)"):
        module(X)


def test_autocast_computes_in_float32():
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = torch.nn.Sequential(torch.nn.Linear(5, 4), fused(nn.LIFNode()))(X)
    assert found.dtype == torch.float32


def test_package_does_not_hide_pytorch():
    package = Path(snncell.__file__).parent
    for folder, code in (
        ("torch", "import importlib.util; print(importlib.util.find_spec('torch').origin)"),
        ("", "import torch"),  # Python looks into the present folder first, and finds snncell/torch
    ):
        environment = {**os.environ, "PYTHONPATH": str(package.parent)}
        command, where = [sys.executable, "-c", code], package / folder
        done = subprocess.run(command, cwd=where, env=environment, capture_output=True, text=True, check=False)
        words = torch.__file__ if folder else "snncell/torch was imported instead of PyTorch"
        assert words in done.stdout + done.stderr
