"""Recomputation of Cells: equal gradients in less memory, with equal random numbers and statistics."""

import copy
import gc
import weakref

import numpy as np
import pytest
from cells import Leaf

import snncell
from snncell import Parameter, Tensor, nn, ops
from snncell.errors import ArgumentError, GradientError


class Block(nn.Cell):
    """A layer with random numbers, statistics, two outputs, and keyword inputs."""

    def __init__(self):
        super().__init__()
        self.dense = nn.Dense(3, 4)
        self.drop = nn.Dropout(p=0.5)
        self.norm = nn.BatchNorm1d(4)

    def construct(self, x, scale=None):
        y = self.drop(self.norm(self.dense(x)))
        return {"y": ops.tanh(y) if scale is None else ops.tanh(y) * scale, "x": x * x}


class Smooth(nn.Cell):
    """A Cell with a custom gradient."""

    def __init__(self):
        super().__init__()
        self.w = Parameter(Tensor([2.0]))
        self.internal_params = [self.w]

    def construct(self, x):
        return x * self.w

    def bprop(self, x, out, dout):
        return (dout * self.w * 7.0,), {self.w: (dout * x).sum().reshape((1,))}


def make_net(kind, dtype="float32"):
    snncell.set_seed(5)
    net = {
        "block": lambda: Block(),
        "custom gradient": lambda: nn.SequentialCell(nn.Dense(3, 3), Smooth()),
        "inside": lambda: nn.SequentialCell(nn.Dense(3, 3), nn.SequentialCell(Smooth(), Smooth()), nn.Tanh()),
        "spikes": lambda: nn.SequentialCell(nn.TimeDistributed(nn.Dense(1, 2)), nn.MultiStep(nn.LIFNode())),
    }[kind]()
    for p in net.get_parameters():
        p.requires_grad, keep = False, p.requires_grad
        p._data = p.value().astype(dtype)._data
        p.requires_grad = keep
    return net.set_train()


def sum_outputs(out):
    return sum((leaf * leaf).sum() for leaf in (out.values() if isinstance(out, dict) else [out]))


def results(net, x):
    snncell.set_seed(11)
    loss = lambda x: sum_outputs(net(x))  # noqa: E731
    value, (dx, weights) = snncell.value_and_grad(loss, 0, net.trainable_params())(x)
    after = [p.asnumpy() for p in net.get_parameters()]
    first = [np.asarray(one) for one in (value, dx, *weights, *after, ops.uniform((2,)))]
    second = snncell.grad(lambda x: (snncell.grad(loss)(x) ** 2.0).sum(), 0, net.trainable_params())(x)
    return first, [np.asarray(one) for one in (second[0], *second[1])]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kind", ["block", "custom gradient", "inside", "spikes"])
def test_results_have_equal_bits(kind, dtype):
    net = make_net(kind, dtype)
    twin = copy.deepcopy(net)
    (twin if kind != "inside" else twin[1]).recompute()
    shape = (6, 4, 1) if kind == "spikes" else (5, 3)
    x = Tensor(np.random.default_rng(0).normal(size=shape).astype(dtype))
    (first, second), (first_without, second_without) = results(twin, x), results(net, x)
    for with_it, without in zip(first, first_without, strict=True):
        assert with_it.dtype == without.dtype and np.array_equal(with_it, without)
    size = max(np.abs(one).max() for one in second_without)
    for with_it, without in zip(second, second_without, strict=True):  # their parts are added in another order
        np.testing.assert_allclose(with_it, without, rtol=0, atol=size * (1e-5 if dtype == "float32" else 1e-13))


@pytest.mark.parametrize("recomputed", [True, False])
def test_intermediate_values_are_not_kept(recomputed):
    alive, at_the_end = [], []

    class Noted(nn.Cell):
        def construct(self, x):
            inner = ops.exp(x) + 1.0
            alive.append(weakref.ref(inner._entry))
            return ops.exp(inner)

    cell = Noted()
    if recomputed:
        cell.recompute()

    def loss(x):
        out = cell(x)
        gc.collect()
        at_the_end.append(sum(entry() is not None for entry in alive))
        return out.sum()

    snncell.grad(loss)(Tensor([1.0]))
    assert at_the_end == [0 if recomputed else 1] and len(alive) == 1 + recomputed


def test_integer_and_keyword_inputs_are_supported():
    class Picks(nn.Cell):
        def construct(self, x, index, scale=1.0, by=None):
            return x[index] * scale * by

    cell = Picks()
    grads = []
    for _ in range(2):
        loss = lambda x, by: cell(x, Tensor([1, 0]), 2.0, by=by).sum()  # noqa: E731
        found = snncell.grad(loss, (0, 1))(Tensor([1.0, 2.0]), Tensor([3.0, 4.0]))
        grads.append([g.asnumpy().tolist() for g in found])
        cell.recompute()
    assert grads[0] == grads[1] == [[8.0, 6.0], [4.0, 2.0]]


def test_captured_tensors_and_parameters_get_their_gradients():
    class Uses(nn.Cell):
        def construct(self, x):
            return x * self.w * self.outside[0]

    shared = Parameter(Tensor([5.0]))

    def loss(w, x):
        cell = Uses().recompute()
        cell.w = w
        cell.outside = (shared,)
        return cell(x).sum() + cell(w).sum()

    x, w = Tensor([2.0]), Tensor([3.0])
    (dw, dx), of_shared = snncell.grad(loss, (0, 1), shared)(w, x)
    assert (dw.item(), dx.item(), of_shared.item()) == (5.0 * 2.0 + 5.0 * 6.0, 15.0, 6.0 + 9.0)


def test_stored_states_advance_once_and_are_restored_for_the_backward():
    results = []
    for recomputed in (False, True):
        net = nn.SequentialCell(nn.Stateful(nn.LIFNode(tau=4.0)))
        if recomputed:
            net.recompute()
        x = Tensor([[0.4, 0.9]])
        # The same Cell runs twice in one gradient, so its states have advanced before the first backward pass.
        gradient = snncell.grad(lambda x, net=net: ((net(x) + net(x * 2.0)) * x).sum())
        results.append([listed for _ in range(3) for listed in (gradient(x).asnumpy(), net[0].states[0].asnumpy())])
    for plain, again in zip(*results, strict=True):
        assert np.array_equal(plain, again)


def test_attribute_set_in_construct_raises():
    class Counts(nn.Cell):
        def construct(self, x):
            self.calls += 1
            return x * self.calls

    cell = Counts(calls=0)
    cell.recompute()
    with pytest.raises(
        ArgumentError, match="recompute: construct of Counts sets an attribute, so its second run would"
    ):
        snncell.grad(lambda x: cell(x).sum())(Tensor([1.0]))


def test_backward_uses_the_parameters_of_the_forward():
    leaf = Leaf()
    leaf.recompute()
    out, pull = ops.vjp(lambda x: leaf(x), Tensor([1.0, 1.0]), weights=leaf.w)
    leaf.w.set_data(Tensor([50.0, 60.0]))
    (dx,), _ = pull(Tensor([1.0, 1.0]))
    assert dx.asnumpy().tolist() == [1.0, 2.0] and leaf.w.asnumpy().tolist() == [50.0, 60.0]
    assert out.asnumpy().tolist() == [1.0, 2.0]


def test_error_in_the_backward_keeps_parameters_and_random_state():
    fails = []  # not an attribute, because a changed Cell raises

    class Once(nn.Cell):
        def __init__(self):
            super().__init__()
            self.count = Parameter(Tensor([0.0]), requires_grad=False)

        def construct(self, x):
            ops.assign(self.count, self.count + 1.0)
            if self.count.item() < 1.0 or fails:
                raise ValueError("again")
            return x * ops.uniform((1,))

    cell = Once().recompute()

    def loss(x):
        out = cell(x)
        fails.append(True)
        return out.sum()

    snncell.set_seed(1)
    with pytest.raises(ValueError, match="again"):
        snncell.grad(loss)(Tensor([1.0]))
    after = ops.uniform((1,)).item()
    snncell.set_seed(1)
    ops.uniform((1,))
    assert ops.uniform((1,)).item() == after and cell.count.item() == 1.0


@pytest.mark.compiled
def test_recompute_does_not_change_jitted_gradients():
    net = make_net("inside")
    x = ops.ones((2, 3))
    before = snncell.jit(snncell.grad(lambda x: sum_outputs(net(x))))(x)
    net.recompute()
    assert np.array_equal(snncell.jit(snncell.grad(lambda x: sum_outputs(net(x))))(x).asnumpy(), before.asnumpy())


def test_multistep_checkpoints_states_at_intervals():
    net, x = nn.MultiStep(nn.LIFNode()), ops.full((9, 2, 3), 0.7)
    plain = snncell.grad(lambda x: net(x).sum())(x)
    net.recompute()
    again = snncell.grad(lambda x: net(x).sum())(x)
    assert np.array_equal(plain.asnumpy(), again.asnumpy())
    text = snncell.explain(lambda x: snncell.grad(lambda x: net(x).sum())(x), x, detail="launches")
    assert "every 3" in text


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"output_recompute": True}, "output_recompute=True and context_fn are not supported"),
        ({"context_fn": len}, "context_fn"),
        ({"offload": True}, "unknown argument 'offload'"),
    ],
)
def test_invalid_arguments_of_recompute_raise(arguments, match):
    with pytest.raises((ArgumentError, TypeError), match=match):
        Leaf().recompute(**arguments)
    assert Leaf().recompute(use_reentrant=False, early_stop=False, mp_comm_recompute=True).cls_name == "Leaf"


@pytest.mark.parametrize("inside", [False, True])
def test_hooks_of_a_recomputed_cell_are_called(inside):
    net, calls = nn.SequentialCell(nn.Dense(3, 3), Smooth()).recompute(), []
    x = ops.ones((2, 3))
    plain = snncell.grad(lambda x: net(x).sum())(x)
    cell = net[1] if inside else net
    cell.register_forward_hook(lambda c, i, out: calls.append("forward"))
    cell.register_backward_hook(lambda c, of_in, of_out: (calls.append("backward"), of_in[0] * 4.0)[1])
    assert np.array_equal(snncell.grad(lambda x: net(x).sum())(x).asnumpy(), (plain * 4.0).asnumpy())
    # Inside a recomputed Cell, both runs call a hook.
    assert calls == (["forward", "forward", "backward"] if inside else ["forward", "backward"])


def test_recompute_works_in_half_precision():
    net, x = nn.SequentialCell(nn.Dense(8, 8), nn.Tanh()).to_float(snncell.float16), ops.full((2, 8), 0.3)
    loss = lambda x: net(x).astype(snncell.float32).sum()  # noqa: E731
    plain = snncell.grad(loss, None, net.trainable_params())(x)
    net.recompute()
    for with_it, without in zip(snncell.grad(loss, None, net.trainable_params())(x), plain, strict=True):
        assert np.array_equal(with_it.asnumpy(), without.asnumpy())


def test_smooth_spikes_stay_smooth_in_the_backward():
    def gradient(recomputed):
        snncell.set_seed(0)
        spiking = [nn.MultiStep(nn.LIFNode()) for _ in range(2)]
        net = nn.SequentialCell(nn.Dense(3, 3), spiking[0], nn.Dense(3, 3), spiking[1], nn.Dense(3, 1))
        if recomputed:
            net.recompute()
        with snncell.surrogate.smooth():
            out, pull = ops.vjp(net, 2.0 * ops.normal((4, 2, 3)))
        return np.asarray(pull(ops.ones(out.shape))[0])  # outside the context

    assert np.abs(gradient(False)).max() > 0.0
    assert (gradient(True) == gradient(False)).all()


CHANGES = {
    "its phase": lambda net: net[0].norm.set_train(False),
    "a hook": lambda net: net[0].drop.register_forward_hook(lambda cell, inputs, out: out * 2.0),
    "a buffer": lambda net: setattr(net, "shift", Tensor([3.0])),
}


@pytest.mark.parametrize("change", CHANGES)
def test_cell_changed_after_the_forward_raises(change):
    net = nn.SequentialCell(Block()).set_train()
    net.register_buffer("shift", Tensor([1.0]))
    net.recompute()
    out, pull = ops.vjp(net, ops.ones((5, 3)))
    CHANGES[change](net)
    with pytest.raises(GradientError, match="has changed since its forward pass"):
        pull({"y": out["y"], "x": out["x"]})


def test_training_mode_can_change_temporarily_before_the_backward():
    net = nn.SequentialCell(nn.Dense(3, 3), nn.Dropout(p=0.5)).set_train().recompute()
    out, pull = ops.vjp(net, ops.ones((5, 3)))
    net.set_train(False)
    net(ops.ones((5, 3)))
    net.set_train()
    (dx,) = pull(ops.ones(out.shape))
    assert dx.shape == (5, 3)
