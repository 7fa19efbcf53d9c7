"""RNN, GRU, LSTM and their cells: against PyTorch and a scalar loop; jitted, with lengths, to the second order."""

import itertools
import warnings

import numpy as np
import pytest
from against_torch import filled

import snncell
from snncell import Tensor, nn, ops, testing
from snncell.errors import ArgumentError, ArgumentWarning, ShapeError

T, B, D, H = 5, 3, 4, 2
KINDS = {"RNN": nn.RNN, "GRU": nn.GRU, "LSTM": nn.LSTM}
CELLS = {"RNN": nn.RNNCell, "GRU": nn.GRUCell, "LSTM": nn.LSTMCell}
STATES = {"RNN": 1, "GRU": 1, "LSTM": 2}


def make_layer(kind, rng, **options):
    return filled(KINDS[kind](D, H, dtype="float64", **options), rng)


def states_for(kind, rng, layers=1, batch=B):
    states = tuple(Tensor(rng.standard_normal((layers, batch, H))) for _ in range(STATES[kind]))
    return states if kind == "LSTM" else states[0]


# --- the oracle: float64, one number after the other ------------------------------------------------------------------


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def naive(kind, x, weights, states):
    """One layer in one direction, of (T, D) and states (H,): outputs (T, H) and the last states."""
    w, u, b, c = (np.asarray(p) for p in weights)
    h, *rest = (np.array(s) for s in states)
    out = []
    for now in x:
        of_x = [sum(w[r, i] * now[i] for i in range(len(now))) + b[r] for r in range(len(w))]
        of_h = [sum(u[r, i] * h[i] for i in range(len(h))) + c[r] for r in range(len(w))]
        new, n = h.copy(), len(h)
        for k in range(n):
            if kind == "RNN":
                new[k] = np.tanh(of_x[k] + of_h[k])
            elif kind == "GRU":
                r, z = sigmoid(of_x[k] + of_h[k]), sigmoid(of_x[n + k] + of_h[n + k])
                new[k] = (1 - z) * np.tanh(of_x[2 * n + k] + r * of_h[2 * n + k]) + z * h[k]
            else:
                i, f, g, o = (of_x[j * n + k] + of_h[j * n + k] for j in range(4))
                rest[0][k] = sigmoid(f) * rest[0][k] + sigmoid(i) * np.tanh(g)
                new[k] = sigmoid(o) * np.tanh(rest[0][k])
        h = new
        out.append(h)
    return np.array(out), (h, *rest)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("kind", KINDS)
def test_layers_equal_a_loop_of_their_equations(kind, rng):
    net, x, hx = make_layer(kind, rng), rng.standard_normal((T, B, D)), states_for(kind, rng)
    out, last = net(Tensor(x), hx)
    weights = [p.asnumpy() for p in net.get_parameters()]
    given = hx if kind == "LSTM" else (hx,)
    for sample in range(B):
        expected, end = naive(kind, x[:, sample], weights, [s.asnumpy()[0, sample] for s in given])
        np.testing.assert_allclose(out.asnumpy()[:, sample], expected, rtol=1e-12)
        for mine, theirs in zip(last if kind == "LSTM" else (last,), end, strict=True):
            np.testing.assert_allclose(mine.asnumpy()[0, sample], theirs, rtol=1e-12)


# --- PyTorch ----------------------------------------------------------------------------------------------------------

OPTIONS = list(itertools.product((1, 2), (True, False), (True, False), (True, False), (True, False)))


@pytest.mark.peer
@pytest.mark.sampled(2)
@pytest.mark.parametrize("jitted", [False, True], ids=["eager", "jit"])
@pytest.mark.parametrize(
    ("layers", "bias", "batch_first", "both", "begun"), OPTIONS, ids=lambda value: str(value).lower()
)
@pytest.mark.parametrize("kind", ["RNN", "RNN relu", "GRU", "LSTM"])
def test_layers_equal_torch(torch, rng, kind, layers, bias, batch_first, both, begun, jitted):
    kind, _, nonlinearity = kind.partition(" ")
    more = {"nonlinearity": nonlinearity} if nonlinearity else {}
    options = {"num_layers": layers, "batch_first": batch_first, "bidirectional": both, **more}
    net = make_layer(kind, rng, has_bias=bias, **options)
    module = getattr(torch.nn, kind)(D, H, bias=bias, **options).double()
    names = [name for name, _ in module.named_parameters()]
    for name in names:
        getattr(module, name).data = torch.tensor(getattr(net, name).asnumpy().copy())
    x = rng.standard_normal((B, T, D) if batch_first else (T, B, D))
    hx = states_for(kind, rng, layers * (1 + both)) if begun else None
    theirs_x = torch.tensor(x, requires_grad=True)
    theirs_hx = (
        None if hx is None else snncell.tape.structure.map_leaves(lambda s: torch.tensor(s.asnumpy().copy()), hx)
    )
    theirs, their_last = module(theirs_x, theirs_hx)
    lasts = their_last if kind == "LSTM" else (their_last,)
    total = (theirs * torch.cos(theirs)).sum() + sum((s * s).sum() for s in lasts)
    total.backward()

    def loss(x):
        out, last = net(x, hx)
        ends = last if kind == "LSTM" else (last,)
        return (out * ops.cos(out)).sum() + sum((s * s).sum() for s in ends)

    weights = [getattr(net, name) for name in names]
    grad_fn = snncell.value_and_grad(loss, 0, weights)
    value, (of_x, of_weights) = (snncell.jit(grad_fn) if jitted else grad_fn)(Tensor(x))
    np.testing.assert_allclose(value.item(), total.item(), rtol=1e-11)
    np.testing.assert_allclose(of_x.asnumpy(), theirs_x.grad.numpy(), rtol=1e-9, atol=1e-11)
    for name, found in zip(names, of_weights, strict=True):
        expected = getattr(module, name).grad.numpy()
        np.testing.assert_allclose(found.asnumpy(), expected, rtol=1e-9, atol=1e-11, err_msg=name)


@pytest.mark.peer
@pytest.mark.parametrize("kind", CELLS)
def test_cells_equal_torch(torch, rng, kind):
    cell = filled(CELLS[kind](D, H, dtype="float64"), rng)
    module = getattr(torch.nn, f"{kind}Cell")(D, H).double()
    for name, _ in module.named_parameters():
        getattr(module, name).data = torch.tensor(getattr(cell, name).asnumpy().copy())
    x, hx = rng.standard_normal((B, D)), states_for(kind, rng)
    hx = tuple(s[0] for s in hx) if kind == "LSTM" else hx[0]
    theirs = module(torch.tensor(x), snncell.tape.structure.map_leaves(lambda s: torch.tensor(s.asnumpy().copy()), hx))
    mine = cell(Tensor(x), hx)
    for a, b in zip(mine if kind == "LSTM" else (mine,), theirs if kind == "LSTM" else (theirs,), strict=True):
        np.testing.assert_allclose(a.asnumpy(), b.detach().numpy(), rtol=1e-12)


# --- properties of loops over time ------------------------------------------------------------------------------------


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", KINDS)
def test_steps_of_the_cell_equal_the_layer(kind, rng):
    net, cell = make_layer(kind, rng), CELLS[kind](D, H, dtype="float64")
    for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
        getattr(cell, name).set_data(getattr(net, f"{name}_l0"))
    x, hx = Tensor(rng.standard_normal((T, B, D))), states_for(kind, rng)
    state = tuple(s[0] for s in hx) if kind == "LSTM" else hx[0]
    steps = []
    for t in range(T):
        state = cell(x[t], state)
        steps.append(state[0] if kind == "LSTM" else state)
    np.testing.assert_allclose(net(x, hx)[0].asnumpy(), ops.stack(steps).asnumpy(), rtol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_one_call_equals_two_calls_that_pass_the_states(kind, rng):
    net, x = make_layer(kind, rng, num_layers=2), Tensor(rng.standard_normal((T, B, D)))
    first, states = net(x[:2])
    second, _ = net(x[2:], states)
    np.testing.assert_allclose(net(x)[0].asnumpy(), ops.concat([first, second]).asnumpy(), rtol=1e-12)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("both", [False, True], ids=["one way", "both ways"])
@pytest.mark.parametrize("kind", KINDS)
def test_samples_with_lengths_equal_single_samples(kind, both, rng):
    net, lengths = make_layer(kind, rng, num_layers=2, bidirectional=both), [2, T, 3]
    x = rng.standard_normal((T, B, D))
    padded = x.copy()
    for sample, length in enumerate(lengths):
        padded[length:, sample] = np.nan

    def loss(x):
        out, last = net(x, seq_length=Tensor(lengths))
        return ops.square(out).sum(), out, last

    def loss_alone(x):
        out, last = net(x)
        return ops.square(out).sum(), out, last

    (_, out, last), gradient = snncell.value_and_grad(loss, has_aux=True)(Tensor(padded))
    ends = last if kind == "LSTM" else (last,)
    for sample, length in enumerate(lengths):
        alone = Tensor(x[:length, sample : sample + 1])
        (_, expected, end), of_alone = snncell.value_and_grad(loss_alone, has_aux=True)(alone)
        np.testing.assert_allclose(out.asnumpy()[:length, sample], expected.asnumpy()[:, 0], rtol=1e-12)
        assert not out.asnumpy()[length:, sample].any() and not gradient.asnumpy()[length:, sample].any()
        for mine, theirs in zip(ends, end if kind == "LSTM" else (end,), strict=True):
            np.testing.assert_allclose(mine.asnumpy()[:, sample], theirs.asnumpy()[:, 0], rtol=1e-12)
        np.testing.assert_allclose(gradient.asnumpy()[:length, sample], of_alone.asnumpy()[:, 0], rtol=1e-10)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("kind", KINDS)
def test_gradients_agree_with_differences_to_second_order(kind, rng):
    net = make_layer(kind, rng)
    testing.check_grads(lambda x: ops.square(net(x)[0]).sum() * 0.1, Tensor(rng.standard_normal((3, 2, D))), order=2)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", KINDS)
def test_fused_loop_equals_eager_steps(kind, rng):
    net = make_layer(kind, rng, bidirectional=kind == "RNN")  # each direction has its own kernels
    x = Tensor(rng.standard_normal((T, B, D)))
    grad_fn = snncell.value_and_grad(lambda x: ops.square(net(x)[0]).sum(), 0, net.trainable_params())
    fused = grad_fn(x)
    with testing.unfused():
        plain = grad_fn(x)
    for a, b in zip(*(snncell.tape.structure.flatten(one)[0] for one in (fused, plain)), strict=True):
        np.testing.assert_allclose(a.asnumpy(), b.asnumpy(), rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_each_loop_compiles_to_one_kernel(kind):
    net = KINDS[kind](D, H)
    text = str(snncell.explain(lambda x: net(x)[0], ops.ones((T, B, D)), detail="launches"))
    assert f"{kind}: one kernel" in text


def test_layers_keep_float16():
    net = nn.RNN(D, H, dtype="float16")
    out, h = net(ops.ones((T, B, D), "float16"))
    assert out.dtype is snncell.float16 and h.dtype is snncell.float16


def test_dropout_is_between_layers_and_in_training_only(rng):
    with pytest.warns(ArgumentWarning):
        one = make_layer("GRU", rng, dropout=0.9)
    two = make_layer("GRU", rng, num_layers=2, dropout=0.9)
    x = Tensor(rng.standard_normal((T, B, D)))
    for net, changes in ((one, False), (two, True)):
        before = net(x)[0].asnumpy()
        np.testing.assert_array_equal(net(x)[0].asnumpy(), before)
        assert (net.set_train()(x)[0].asnumpy() != before).any() == changes


@pytest.mark.slow
@pytest.mark.compiled
def test_recurrent_network_learns_a_task(rng):
    """The task is the sign of the sum of a sequence."""
    snncell.set_seed(0)
    net, head = nn.LSTM(1, 8), nn.Dense(8, 2)
    x = rng.standard_normal((8, 64, 1)).astype(np.float32)
    y = Tensor((x.sum((0, 2)) > 0).astype(np.int64))
    parameters = [*net.trainable_params(), *head.trainable_params()]
    optimiser = nn.Adam(parameters, learning_rate=0.03)
    grad_fn = snncell.value_and_grad(lambda x, y: nn.CrossEntropyLoss()(head(net(x)[0][-1]), y), None, parameters)

    def step(x, y):
        loss, grads = grad_fn(x, y)
        optimiser(grads)
        return loss

    jitted = snncell.jit(step)
    losses = [jitted(Tensor(x), y).item() for _ in range(60)]
    assert losses[-1] < 0.2 < losses[0]


REFUSED = [
    (lambda: nn.LSTM(D, H)(ops.ones((T, D))), ShapeError, rf"LSTM.*the input must be \(T, B, {D}\), but has shape"),
    (lambda: nn.GRU(D, H, batch_first=True)(ops.ones((T, B, 9))), ShapeError, rf"must be \(B, T, {D}\)"),
    (lambda: nn.LSTM(D, H)(ops.ones((T, B, D)), ops.ones((1, B, H))), ShapeError, r"hx must be the pair \(h, c\)"),
    (lambda: nn.GRU(D, H)(ops.ones((T, B, D)), ops.ones((B, H))), ShapeError, rf"B, H\) = \(1, {B}, {H}\), not"),
    (lambda: nn.LSTMCell(D, H)(ops.ones((B, D)), ops.ones((B, H))), ShapeError, r"hx must be the pair of states"),
    (
        lambda: nn.RNNCell(D, H)(ops.ones((B, D)), ops.ones((B, 7))),
        ShapeError,
        r"x must be \(B, 4\) and hx \(B, 2\), but x has",
    ),
    (
        lambda: nn.GRUCell(D, H)(ops.ones((B, D)), None),
        TypeError,
        r"first step, pass zeros: hx=ops.zeros\(\(B, 2\)\)\.",
    ),
    (lambda: nn.LSTMCell(D, H)(ops.ones((B, D)), None), TypeError, r"pass zeros: hx=\(ops.zeros\(\(B, 2\)\), ops"),
    (lambda: nn.RNN(D, H, nonlinearity="sin"), ArgumentError, 'nonlinearity is "tanh" or "relu"'),
    (lambda: nn.GRU(D, H)(ops.ones((T, B, D)), seq_length=[1, 2, 9]), ArgumentError, "from 0 to T=5, not 9"),
]


@pytest.mark.parametrize(("call", "kind", "words"), REFUSED, ids=[words[:20] for _, _, words in REFUSED])
def test_invalid_arguments_raise(call, kind, words):
    with pytest.raises(kind, match=words):
        call()


@pytest.mark.parametrize("kind", KINDS)
def test_dropout_with_a_single_layer_warns(kind):
    with pytest.warns(ArgumentWarning, match=rf"{kind}: dropout=0.5 acts between layers.* num_layers=2") as caught:
        net = KINDS[kind](D, H, dropout=0.5)
    assert caught[0].filename == __file__
    assert net.dropout == 0.5
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        KINDS[kind](D, H, num_layers=2, dropout=0.5)
        KINDS[kind](D, H)


# --- convolutional LSTM -----------------------------------------------------------------------------------------------


def images(rng, size=(4, 3)):
    """Inputs (T, B, D, rows, columns) and states (B, H, rows, columns)."""
    return rng.standard_normal((T, B, D, *size)), *(rng.standard_normal((B, H, *size)) for _ in range(2))


def test_conv_lstm_with_windows_of_a_pixel_is_an_lstm_of_each_pixel(rng):
    cell = filled(nn.ConvLSTMCell(D, H, 1, dtype="float64"), rng)
    x, h, c = images(rng)
    out, last = nn.MultiStep(cell, return_states=True)(*map(Tensor, (x, h, c)))
    weights = [w.asnumpy() for w in (cell.of_x.weight, cell.of_h.weight, cell.of_x.bias)]
    weights = [weights[0][:, :, 0, 0], weights[1][:, :, 0, 0], weights[2], np.zeros(4 * H)]
    for b, row, column in np.ndindex(B, 4, 3):
        states = h[b, :, row, column], c[b, :, row, column]
        expected, after = naive("LSTM", x[:, b, :, row, column], weights, states)
        np.testing.assert_allclose(out.asnumpy()[:, b, :, row, column], expected, rtol=1e-12)
        for state, value in zip(last, after, strict=True):
            np.testing.assert_allclose(state.asnumpy()[b, :, row, column], value, rtol=1e-12)


@pytest.mark.peer
def test_conv_lstm_equals_snntorch(torch, rng):
    theirs = pytest.importorskip("snntorch").SConv2dLSTM(D, H, (3, 5)).double()
    theirs.padding = theirs.conv.padding = (1, 2)  # snnTorch pads all axes like the first
    cell = filled(nn.ConvLSTMCell(D, H, (3, 5), dtype="float64"), rng)
    order = np.r_[: 2 * H, 3 * H : 4 * H, 2 * H : 3 * H]  # theirs is i, f, o, g
    both = [w.asnumpy() for w in (cell.of_x.weight, cell.of_h.weight)]
    theirs.conv.weight.data = torch.tensor(np.concatenate(both, 1)[order])
    theirs.conv.bias.data = torch.tensor(cell.of_x.bias.asnumpy()[order])
    x, h, c = images(rng)
    given = torch.tensor(x, requires_grad=True)
    mem, syn, outputs = torch.tensor(h), torch.tensor(c), []
    for now in given:
        _, syn, mem = theirs(now, syn, mem)
        outputs.append(mem)
    y = torch.stack(outputs)
    (y**2).sum().backward()
    out, pull = ops.vjp(nn.MultiStep(cell), *map(Tensor, (x, h, c)), weights=cell.of_h.weight)
    (of_x, *_), of_weight = pull(out * 2.0)
    np.testing.assert_allclose(out.asnumpy(), y.detach().numpy(), rtol=1e-10)
    np.testing.assert_allclose(of_x.asnumpy(), given.grad.numpy(), rtol=1e-8, atol=1e-12)
    expected = theirs.conv.weight.grad.numpy()[:, D:]
    np.testing.assert_allclose(of_weight.asnumpy()[order], expected, rtol=1e-8, atol=1e-12)


def test_conv_lstm_starts_at_zero_and_checks_shapes(rng):
    cell = nn.ConvLSTMCell(D, H, 3)
    x = Tensor(images(rng)[0].astype(np.float32))
    zeros = ops.zeros((B, H, 4, 3))
    np.testing.assert_array_equal(nn.MultiStep(cell)(x).asnumpy(), nn.MultiStep(cell)(x, zeros, zeros).asnumpy())
    assert "for all steps together" in snncell.explain(nn.MultiStep(cell), x, detail="launches")
    with pytest.raises(ShapeError, match=r"ConvLSTMCell.*h and c must have shape \(3, 2, 4, 3\), not \(3, 2, 4, 4\)"):
        cell(x[0], ops.zeros((B, H, 4, 4)), zeros)
    with pytest.raises(ShapeError, match=r"Conv2d\(.*the input must have shape \(N, 4, H, W\), not \(3, 2, 4, 3\)"):
        cell(zeros, zeros, zeros)
