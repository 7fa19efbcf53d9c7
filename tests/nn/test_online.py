"""Truncated BPTT, OTTT and e-prop: against NumPy loops of the papers' equations, and against BPTT."""

import tracemalloc

import numpy as np
import pytest

import snncell
from snncell import Tensor, nn, ops, surrogate, testing
from snncell.errors import ArgumentError, BpropError, DTypeError, ShapeError


def random_array(*shape, seed=0, low=0.0, high=1.0):
    return np.random.default_rng(seed).uniform(low, high, shape)


def spikes(*shape, seed=0, rate=0.4):
    return (np.random.default_rng(seed).uniform(size=shape) < rate).astype(np.float64)


def close(mine, theirs):
    np.testing.assert_allclose(mine.asnumpy(), theirs, rtol=1e-9, atol=1e-11)


class Triangle(nn.Cell):
    """The pseudo-derivative of Bellec et al. 2020, for a threshold of 1: 0.3 max(0, 1 - |x|)."""

    def construct(self, x):
        return ops.greater(x, 0).astype(x.dtype)

    def bprop(self, x, out, dout):
        return (dout * ops.maximum(1.0 - ops.abs(x), 0.0) * 0.3,)


def triangle_slope(x):
    return 0.3 * max(0.0, 1.0 - abs(x))


# --- truncated BPTT ---------------------------------------------------------------------------------------------------


class TwoShapes(nn.Cell):
    """A neuron with a potential for each unit and an inhibition that all units share."""

    def __init__(self):
        super().__init__()
        self.spike = surrogate.ATan()

    def construct(self, x, inhibition, v):
        v = 0.8 * v + x - 0.2 * inhibition
        s = self.spike(v - 0.7)
        return s, 0.5 * inhibition + s.mean(-1, keepdims=True), v - 0.7 * s

    def init_state(self, x):
        return ops.zeros((x.shape[0], 1), x.dtype), ops.zeros_like(x)


NEURONS = {
    "two shapes": TwoShapes,
    "LIF": lambda: nn.LIFNode(2.5, decay_input=False, surrogate_function=surrogate.ATan()),
    "IF": lambda: nn.IFNode(0.7, surrogate_function=surrogate.ATan()),
    "Recurrent": lambda: nn.Recurrent(
        nn.LIFNode(2.5, decay_input=False, surrogate_function=surrogate.ATan()), nn.Dense(4, 4, dtype="float64")
    ),
}


def in_chunks(cell, x, states, every):
    """The outputs of a neuron and its last states, with stop_gradient on the states between chunks."""
    run, outs = nn.MultiStep(cell, return_states=True), []
    for start in range(0, x.shape[0], every):
        if start:
            states = ops.stop_gradient(states)
        out, states = run(x[start : start + every], *states)
        outs.append(out)
    return ops.concat(outs), states


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", NEURONS)
@pytest.mark.parametrize("every", [1, 3, 4, 12, 50])
def test_truncated_gradients_equal_chunks_and_values_equal_the_neuron(name, every, run):
    snncell.set_seed(1)
    cell, x = NEURONS[name](), Tensor(random_array(12, 2, 4))
    begin = cell.init_state(x[0])
    begin = tuple(s + 0.1 for s in (begin if isinstance(begin, tuple) else (begin,)))
    weights = cell.trainable_params()
    net = nn.MultiStep(nn.Truncated(cell, every), return_states=True)
    count = net.cell.init_state(x[0])[0]
    d_out, d_last = Tensor(random_array(12, 2, 4, seed=1)), Tensor(random_array(2, 4, seed=2))

    def total(out, states):
        return (out * d_out).sum() + (states[-1] * d_last).sum()

    def mine(x, *states):
        out, last = net(x, count, *states)
        return total(out, last[1:]), out

    def theirs(x, *states):
        out, last = in_chunks(cell, x, states, every)
        return total(out, last), out

    where = tuple(range(1 + len(begin)))
    found, wanted = (ops.grad(fn, where, weights or None, has_aux=True)(x, *begin) for fn in (run(mine), theirs))
    np.testing.assert_array_equal(found[1][0].asnumpy(), nn.MultiStep(cell)(x, *begin).asnumpy())
    flat = lambda grads: [g for part in (grads if weights else (grads,)) for g in part]  # noqa: E731
    for a, b in zip(flat(found[0]), flat(wanted[0]), strict=True):
        close(a, b.asnumpy())
    assert any(np.abs(g.asnumpy()).max() > 1e-3 for g in flat(found[0]))


def test_continued_runs_are_truncated_at_the_same_steps():
    x = Tensor(random_array(10, 3))
    cell = nn.Truncated(NEURONS["LIF"](), 4)
    net = nn.MultiStep(cell, return_states=True)

    def split(x):
        first, states = net(x[:7])
        return ops.concat([first, net(x[7:], *states)[0]])

    np.testing.assert_array_equal(ops.grad(split)(x).asnumpy(), ops.grad(lambda x: nn.MultiStep(cell)(x))(x).asnumpy())


@pytest.mark.parametrize("name", ["LIF", "IF"])
def test_truncated_neuron_is_one_kernel_per_direction(name):
    net = nn.MultiStep(nn.Truncated(NEURONS[name](), 3))
    text = snncell.explain(
        snncell.value_and_grad(lambda x: net(x).sum()), Tensor(random_array(12, 2, 4)), detail="launches"
    )
    assert text.count("MultiStep(Truncated): one kernel") == 2  # the forward kernel and the "backward of" kernel
    assert "step by step" not in text
    assert "int16[2, 4]: state 1 before it" in text  # the states stored at the cuts


@pytest.mark.compiled
def test_changed_truncation_length_does_not_recompile(monkeypatch):
    from snncell.compiler.backends import cpu_loop

    built = []
    build = cpu_loop.build
    monkeypatch.setattr(
        cpu_loop, "build", lambda name, source, *rest: (built.append(source), build(name, source, *rest))[1]
    )
    for every, steps in ((3, 12), (5, 12), (4, 9)):
        net = nn.MultiStep(nn.Truncated(NEURONS["LIF"](), every))
        ops.grad(lambda x, net=net: net(x))(Tensor(random_array(steps, 2, 4)))
    assert len(set(built)) == 2  # one forward and one backward kernel


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: nn.Truncated(nn.LIFNode(), 0), "Truncated: every is an integer of at least 1, not 0"),
        (lambda: nn.Truncated(nn.LIFNode(), 2.5), "Truncated: every is an integer of at least 1, not 2.5"),
        (lambda: nn.Truncated(nn.LIFNode(), 40000), "Truncated: every must be at most 32767, not 40000"),
        (lambda: nn.Truncated(nn.MultiStep(nn.LIFNode()), 2), r"write MultiStep\(Truncated\(cell, every\)\)"),
        (lambda: nn.Truncated(3, 2), "Truncated: cell is a Cell, not 3"),
        (lambda: nn.OTTTDense(2, 2, decay=1.0), r"OTTTDense: decay is a number in \[0.0, 1.0\), not 1.0"),
        (lambda: nn.OTTTDense(0, 2), "OTTTDense: in_channels is an integer of at least 1"),
        (lambda: nn.OTTTDense(2, 2, v_threshold=-1.0), "OTTTDense: v_threshold is a number above 0, not -1.0"),
        (
            lambda: nn.OTTTDense(2, 2, surrogate_function=surrogate.ATan),
            "OTTTDense: surrogate_function must be a spike fun",
        ),
        *[
            (
                lambda kind=kind: kind(2, 2, surrogate_function=surrogate.ATan(snncell.Parameter(Tensor(2.0)))),
                f"{kind.__name__}: surrogate_function has a trainable Parameter, 'alpha'.*Pass a number instead",
            )
            for kind in (nn.OTTTDense, nn.EProp)
        ],
        (lambda: nn.EProp(2, 2, decay=-0.1), r"EProp: decay is a number in \[0.0, 1.0\), not -0.1"),
        (lambda: nn.EProp(2, 2, adaptation=-1.0), "EProp: adaptation is a number in"),
        (lambda: nn.EProp(2, 2, adaptation_decay=1.5), "EProp: adaptation_decay is a number in"),
        (lambda: nn.EProp(2, 2, surrogate_function=3), "EProp: surrogate_function must be a spike function"),
        (lambda: nn.FeedbackDense(2, 0), "FeedbackDense: out_channels is an integer of at least 1, not 0"),
    ],
)
def test_invalid_settings_raise(make, message):
    with pytest.raises(ArgumentError, match=message):
        make()


@pytest.mark.parametrize(
    ("run_it", "message"),
    [
        (
            lambda: nn.EProp(3, 2)(ops.ones((5, 3))),
            r"EProp.*x must be \(T, B, 3\), with in_chan.*\(5, 3\)",
        ),
        (lambda: nn.EProp(3, 2)(ops.ones((5, 1, 4))), r"x must be \(T, B, 3\), .* shape \(5, 1, 4\)"),
        (lambda: nn.MultiStep(nn.OTTTDense(3, 2))(ops.ones((5, 1, 4))), r"OTTTDense: x must be \(B, 3\), .*\(1, 4\)"),
        (lambda: nn.FeedbackDense(3, 2)(ops.ones((5, 4))), "FeedbackDense.*last axis must have length in_channels = 3"),
    ],
)
def test_invalid_inputs_raise(run_it, message):
    with pytest.raises(ShapeError, match=message):
        run_it()


# --- OTTT -------------------------------------------------------------------------------------------------------------


def ottt(x, weight, bias, decay, threshold, d_spikes, slope):
    """Xiao et al. 2022, equations of section 4 for one layer: spikes, and the gradients of x, weight and bias."""
    steps, batch, inputs = x.shape
    outputs = len(bias)
    s, dx = np.zeros((steps, batch, outputs)), np.zeros_like(x)
    dw, db = np.zeros_like(weight), np.zeros(outputs)
    for b in range(batch):
        for j in range(outputs):
            v, trace, trace_of_one = 0.0, np.zeros(inputs), 0.0
            for t in range(steps):
                u = decay * v + bias[j]
                for i in range(inputs):
                    u += weight[j, i] * x[t, b, i]
                    trace[i] = decay * trace[i] + x[t, b, i]
                trace_of_one = decay * trace_of_one + 1.0
                s[t, b, j] = 1.0 if u > threshold else 0.0
                g = d_spikes[t, b, j] * slope(u - threshold)
                for i in range(inputs):
                    dw[j, i] += g * trace[i]
                    dx[t, b, i] += g * weight[j, i]
                db[j] += g * trace_of_one
                v = u - threshold * s[t, b, j]
    return s, dx, dw, db


def atan_slope(x, alpha=2.0):
    return alpha / 2 / (1 + (np.pi / 2 * alpha * x) ** 2)


def ottt_layer(kind=nn.OTTTDense, **settings):
    settings = {"decay": 0.6, "v_threshold": 0.8, "dtype": "float64"} | settings
    return kind(
        3,
        4,
        weight_init=Tensor(random_array(4, 3, seed=3, low=-0.4)),
        bias_init=Tensor(random_array(4, seed=4, high=0.3)),
        **settings,
    )


@pytest.mark.parametrize("threshold", [0.8, 0.6])
@pytest.mark.parametrize("decay", [0.6, 0.0])
def test_ottt_equals_its_equations(decay, threshold, run):
    layer = ottt_layer(decay=decay, v_threshold=threshold)
    x, d_spikes = spikes(9, 2, 3), random_array(9, 2, 4, seed=5, low=-1.0)
    s, dx, dw, db = ottt(x, layer.weight.asnumpy(), layer.bias.asnumpy(), decay, threshold, d_spikes, atan_slope)
    assert 0.05 < s.mean() < 0.95
    net = nn.MultiStep(layer)
    loss = lambda x: ((net(x) * Tensor(d_spikes)).sum(), net(x))  # noqa: E731
    (found, of_weights), out = ops.grad(run(loss), 0, layer.trainable_params(), has_aux=True)(Tensor(x))
    np.testing.assert_array_equal(out[0].asnumpy(), s)
    for mine, theirs in zip((found, *of_weights), (dx, dw, db), strict=True):
        close(mine, theirs)


class Exact(nn.OTTTDense):
    """The same layer without its custom gradient."""

    bprop = None


def test_single_layer_ottt_gradient_equals_bptt():
    x, d_spikes = Tensor(spikes(9, 2, 3)), Tensor(random_array(9, 2, 4, seed=5))
    found = []
    for kind in (nn.OTTTDense, Exact):
        layer = ottt_layer(kind)
        net = nn.MultiStep(layer)
        found.append(ops.grad(lambda x, net=net: net(x) * d_spikes, 0, layer.trainable_params())(x))
    for mine, theirs in zip(found[0][1], found[1][1], strict=True):
        close(mine, theirs.asnumpy())
    assert (
        np.abs(found[0][0].asnumpy() - found[1][0].asnumpy()).max() > 1e-3
    )  # the gradient of x goes back in time only in BPTT


def test_ottt_gradients_of_single_steps_sum_to_the_sequence():
    layer, x = ottt_layer(), Tensor(spikes(9, 2, 3))
    whole = ops.grad(nn.MultiStep(layer), None, layer.trainable_params())(x)
    states, total = layer.init_state(x[0]), [0.0, 0.0]
    for now in x:
        grads, states = ops.grad(
            lambda x, states=states: split(layer(x, *states)), None, layer.trainable_params(), True
        )(now)
        total = [a + g.asnumpy() for a, g in zip(total, grads, strict=True)]
    for mine, theirs in zip(whole, total, strict=True):
        close(mine, theirs)


def split(out):
    return out[0], *out[1:]


def test_ottt_states_get_no_gradient():
    layer, x = ottt_layer(), Tensor(spikes(2, 3))
    grads = ops.grad(lambda *states: layer(x, *states)[0] + layer(x, *states)[1], (0, 1, 2))(*layer.init_state(x))
    assert all(not g.asnumpy().any() for g in grads)


def peak(steps):
    """The peak memory of online OTTT steps, minus the memory in use before."""
    layer = nn.OTTTDense(64, 64)
    now, states = Tensor(spikes(32, 64)).astype("float32"), layer.init_state(ops.ones((32, 64)))
    step = ops.grad(lambda x, *states: split(layer(x, *states)), None, layer.trainable_params(), True)
    _, states = step(now, *states)
    tracemalloc.start()
    try:
        for _ in range(steps):
            _, states = step(now, *states)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_memory_of_online_steps_does_not_grow():
    few, many = peak(5), peak(50)
    assert many < few + 32 * 64 * 4 * 5  # five Tensors of one step; BPTT would keep several of each of 45 more steps


def test_ottt_states_keep_the_precision_of_the_input():
    with pytest.raises(
        DTypeError, match=r"MultiStep\(OTTTDense\): state v has dtype Float32 before a step and Float64"
    ):
        nn.MultiStep(nn.OTTTDense(3, 2))(Tensor(random_array(5, 1, 3)))


def test_ottt_without_bias_and_with_integer_inputs():
    layer = nn.OTTTDense(3, 4, has_bias=False)
    x = Tensor(np.ones((5, 1, 3), np.uint8))
    assert [p.name for p in layer.trainable_params()] == ["weight"]
    assert ops.grad(nn.MultiStep(layer), None, layer.weight)(x).shape == (4, 3)


# --- e-prop -----------------------------------------------------------------------------------------------------------


def eprop(x, w_in, w_rec, alpha, beta, rho, signal, slope, threshold=1.0):
    """Bellec et al. 2020, synapse by synapse: spikes, and the gradients of w_in and w_rec.

    v_j <- alpha v_j + sum_i w_ji x_i + sum_(i != j) w_ji z_i - z_j threshold;  A_j = threshold + beta a_j
    epsilon_a,ji <- psi_j filtered_i + (rho - psi_j beta) epsilon_a,ji;  e_ji = psi_j (filtered_i - beta epsilon_a,ji)
    """
    steps, batch, inputs = x.shape
    n = len(w_in)
    spikes, dw_in, dw_rec = np.zeros((steps, batch, n)), np.zeros_like(w_in), np.zeros_like(w_rec)
    for b in range(batch):
        v, a, z = np.zeros(n), np.zeros(n), np.zeros(n)
        filtered_x, filtered_z = np.zeros(inputs), np.zeros(n)
        eps_in, eps_rec = np.zeros((n, inputs)), np.zeros((n, n))
        for t in range(steps):
            psi = np.zeros(n)
            a = rho * a + z
            filtered_x, filtered_z = alpha * filtered_x + x[t, b], alpha * filtered_z + z
            z_before = z.copy()
            for j in range(n):
                recurrent = sum(w_rec[j, i] * z_before[i] for i in range(n) if i != j)
                v[j] = alpha * v[j] + w_in[j] @ x[t, b] + recurrent - z_before[j] * threshold
                above = v[j] - (threshold + beta * a[j])
                z[j], psi[j] = float(above > 0), slope(above)
            spikes[t, b] = z
            for j in range(n):
                for i in range(inputs):
                    dw_in[j, i] += signal[t, b, j] * psi[j] * (filtered_x[i] - beta * eps_in[j, i])
                    eps_in[j, i] = psi[j] * filtered_x[i] + (rho - psi[j] * beta) * eps_in[j, i]
                for i in range(n):
                    if i != j:
                        dw_rec[j, i] += signal[t, b, j] * psi[j] * (filtered_z[i] - beta * eps_rec[j, i])
                        eps_rec[j, i] = psi[j] * filtered_z[i] + (rho - psi[j] * beta) * eps_rec[j, i]
    return spikes, dw_in, dw_rec


ADAPTATIONS = pytest.mark.parametrize("adaptation", [0.0, 0.3], ids=["LIF", "ALIF"])


def eprop_layer(kind=nn.EProp, adaptation=0.0, recurrent=None, **settings):
    recurrent = random_array(4, 4, seed=7, low=-0.5, high=0.5) if recurrent is None else recurrent
    return kind(
        3,
        4,
        decay=0.8,
        adaptation=adaptation,
        adaptation_decay=0.9,
        weight_init=Tensor(random_array(4, 3, seed=6, low=-0.2)),
        recurrent_init=Tensor(recurrent),
        dtype="float64",
        **settings,
    )


@ADAPTATIONS
def test_eprop_equals_its_equations(adaptation, run):
    layer = eprop_layer(adaptation=adaptation, surrogate_function=Triangle())
    x, signal = spikes(11, 2, 3), random_array(11, 2, 4, seed=8, low=-1.0)
    weights = layer.weight.asnumpy(), layer.recurrent.asnumpy()
    s, dw_in, dw_rec = eprop(x, *weights, 0.8, adaptation, 0.9, signal, triangle_slope)
    assert 0.05 < s.mean() < 0.95
    loss = run(lambda x: ((out := layer(x)) * Tensor(signal), out))
    found, out = ops.grad(loss, None, layer.trainable_params(), has_aux=True)(Tensor(x))
    np.testing.assert_array_equal(out[0].asnumpy(), s)
    close(found[0], dw_in)
    close(found[1], dw_rec)
    assert np.abs(dw_rec).max() > 1e-2


class Bptt(nn.EProp):
    """The same layer without its custom gradient."""

    bprop = None


class Local(nn.EProp):
    """The same layer without gradients through its recurrent connections."""

    bprop = None

    def construct(self, x):
        current = ops.matmul(x, self.weight.T)

        def step(state, now):
            v, z, b = state
            arriving = ops.matmul(ops.stop_gradient(z), self.others(self.recurrent).T)
            v = self.decay * v + now + arriving - ops.stop_gradient(z)
            b = self.adaptation_decay * b + z
            z = self.surrogate_function(v - 1.0 - self.adaptation * b)
            return (v, z, b), z

        return ops.scan(step, (ops.zeros_like(current[0]),) * 3, current)[1]


def gradients(kind, adaptation, recurrent=None):
    layer = eprop_layer(kind, adaptation, recurrent)
    signal = Tensor(random_array(11, 2, 4, seed=8, low=-1.0))
    return ops.grad(lambda x: layer(x) * signal, 0, layer.trainable_params())(Tensor(spikes(11, 2, 3)))


@ADAPTATIONS
def test_eprop_without_recurrent_weights_equals_bptt(adaptation):
    nothing = np.zeros((4, 4))
    (_, mine), (_, theirs) = gradients(nn.EProp, adaptation, nothing), gradients(Bptt, adaptation, nothing)
    for a, b in zip(mine, theirs, strict=True):
        close(a, b.asnumpy())


@ADAPTATIONS
def test_eprop_equals_bptt_with_constant_recurrent_spikes(adaptation):
    (_, mine), (_, theirs), (_, full) = (gradients(kind, adaptation) for kind in (nn.EProp, Local, Bptt))
    for a, b, c in zip(mine, theirs, full, strict=True):
        close(a, b.asnumpy())
        assert np.abs(a.asnumpy() - c.asnumpy()).max() > 1e-3


@ADAPTATIONS
def test_eprop_input_gradient_equals_that_of_one_step(adaptation):
    layer = eprop_layer(adaptation=adaptation)
    x, signal = spikes(11, 2, 3), random_array(11, 2, 4, seed=8)
    dx = ops.grad(lambda x: layer(x) * Tensor(signal))(Tensor(x)).asnumpy()
    one = np.zeros_like(signal)
    one[5] = signal[5]
    alone = ops.grad(lambda x: layer(x) * Tensor(one))(Tensor(x)).asnumpy()
    np.testing.assert_allclose(alone[5], dx[5], rtol=1e-12)
    assert not np.delete(alone, 5, 0).any() and np.abs(dx).max() > 1e-3


@ADAPTATIONS
def test_eprop_gradient_is_linear_in_the_learning_signal(adaptation):
    layer = eprop_layer(adaptation=adaptation)
    _, pull = ops.vjp(layer, Tensor(spikes(11, 2, 3)), weights=layer.trainable_params())
    a, b = (random_array(11, 2, 4, seed=seed, low=-1.0) for seed in (1, 2))
    (_, of_a), (_, of_b), (_, of_both) = (pull(Tensor(signal)) for signal in (a, b, 2.0 * a - b))
    for one, other, both in zip(of_a, of_b, of_both, strict=True):
        close(both, 2.0 * one.asnumpy() - other.asnumpy())


@ADAPTATIONS
def test_each_eprop_loop_is_one_kernel(adaptation):
    layer = eprop_layer(adaptation=adaptation)
    fn = snncell.value_and_grad(lambda x: layer(x).sum(), None, layer.trainable_params())
    text = snncell.explain(fn, Tensor(spikes(11, 2, 3)), detail="launches")
    # All loops run forward in time: the neurons, the traces and, with adaptation, the eligibilities.
    assert text.count("scan: one kernel") == (3 if adaptation else 2)
    assert "one by one" not in text and "backward of scan" not in text


def test_eprop_accepts_uint8_spikes():
    layer, x = eprop_layer(), spikes(11, 2, 3)
    fn = ops.grad(layer, None, layer.trainable_params())
    for a, b in zip(fn(Tensor(x)), fn(Tensor(x.astype(np.uint8))), strict=True):
        np.testing.assert_array_equal(a.asnumpy(), b.asnumpy())


def test_symmetric_and_random_learning_signals():
    layer, x, d_y = eprop_layer(), Tensor(spikes(11, 2, 3)), random_array(11, 2, 5, seed=9, low=-1.0)
    plain = nn.Dense(4, 5, dtype="float64")
    random = nn.FeedbackDense(4, 5, weight_init=plain.weight, bias_init=plain.bias, dtype="float64")
    for readout, back in ((plain, plain.weight), (random, random.feedback)):
        found = ops.grad(lambda x, r=readout: r(layer(x)) * Tensor(d_y), None, layer.trainable_params())(x)
        signal = Tensor(d_y @ back.asnumpy())
        wanted = ops.grad(lambda x, s=signal: layer(x) * s, None, layer.trainable_params())(x)
        for a, b in zip(found, wanted, strict=True):
            close(a, b.asnumpy())
    assert [p.name for p in random.trainable_params()] == ["weight", "bias"]
    of_dense, of_random = (
        ops.grad(lambda x, r=r: r(x) * Tensor(d_y), None, r.trainable_params())(layer(x)) for r in (plain, random)
    )
    for a, b in zip(of_dense, of_random, strict=True):
        close(a, b.asnumpy())


def test_random_feedback_passes_the_check_of_custom_gradients():
    layer = nn.FeedbackDense(4, 5, dtype="float64")
    x = random_array(3, 4)
    with pytest.raises(AssertionError, match=r"The bprop of FeedbackDense gives .* for input 0"):
        testing.check_bprop(layer, x)
    layer.feedback.set_data(layer.weight.value())
    testing.check_bprop(layer, x)


def test_second_order_gradient_of_eprop_raises():
    layer, x = eprop_layer(), Tensor(random_array(11, 2, 3))
    with pytest.raises(
        BpropError, match="The bprop of EProp: a second-order gradient reaches a value kept by save_for"
    ):
        ops.grad(lambda x: ops.grad(layer)(x) ** 2)(x)
