"""`nn.Online`: its rules against BPTT, against loops over their equations, and against the layers of one rule."""

import math
import tracemalloc

import numpy as np
import pytest
from thread_counts import on_threads

import snncell
from snncell import Parameter, Tensor, nn, ops, surrogate, testing
from snncell.errors import ArgumentError, ShapeError

STEPS, BATCH, INPUTS, NEURONS = 9, 2, 3, 4


def random_array(*shape, seed=0, low=-1.0, high=1.0):
    return np.random.default_rng(seed).uniform(low, high, shape)


X = (np.random.default_rng(1).uniform(size=(STEPS, BATCH, INPUTS)) < 0.5).astype(np.float64)
READOUT, TARGET = Tensor(random_array(NEURONS, 2, seed=2)), Tensor(random_array(STEPS, BATCH, 2, seed=3))


class Layer(nn.Cell):
    """A dense layer and its neurons."""

    def __init__(self, neuron, inputs=INPUTS, has_bias=True):
        super().__init__()
        weight = Tensor(random_array(NEURONS, inputs, seed=4, low=-0.5, high=1.5))
        bias = Tensor(random_array(NEURONS, seed=9, low=0.0, high=0.3))
        self.dense = nn.Dense(inputs, NEURONS, weight, bias, has_bias=has_bias, dtype="float64")
        self.neuron = neuron

    def construct(self, x, *states):
        return self.neuron(self.dense(x), *states)

    def init_state(self, x):
        zeros = ops.zeros((x.shape[0], NEURONS), "float64")
        return (zeros,) * (2 if isinstance(self.neuron, Adaptive) else 1)


def lif(tau=2.5, **settings):
    return nn.LIFNode(tau, surrogate_function=surrogate.ATan(), **settings)


class Adaptive(nn.Cell):
    """A user's neuron of two states that affect each other, with constants to learn: one for each neuron, and one."""

    def __init__(self):
        super().__init__()
        self.tau = Parameter(Tensor(random_array(NEURONS, seed=5, low=2.0, high=5.0)), "tau")
        self.beta = Parameter(Tensor(np.array(0.3)), "beta")
        self.spike = surrogate.ATan()

    def construct(self, x, v, a):
        v = v * (1.0 - 1.0 / self.tau) + x - 0.2 * a
        s = self.spike(v - 1.0 - self.beta * a)
        return s, v - s, 0.9 * a + s + 0.1 * v


class Quadratic(nn.Cell):
    """A neuron whose decay depends on its state, so that its neurons have different traces."""

    def __init__(self):
        super().__init__()
        self.spike = surrogate.ATan()

    def construct(self, x, v):
        v = 0.9 * v - 0.1 * v * v + x
        s = self.spike(v - 1.0)
        return s, v - ops.stop_gradient(s)


class Spike(nn.Cell):
    """A user's spike function without a smooth primitive."""

    def construct(self, x):
        return (x > 0.0).astype(x.dtype)

    def bprop(self, x, out, dout):
        return (dout * ops.maximum(1.0 - ops.abs(x), 0.0),)


class Turned(nn.Cell):
    """A user's layer with the weight (I, N), as other frameworks store it."""

    def __init__(self):
        super().__init__()
        self.weight = Parameter(Tensor(random_array(INPUTS, NEURONS, seed=4, low=-0.5, high=1.5)), "weight")
        self.neuron = Adaptive()
        self.neuron.spike = Spike()

    def construct(self, x, v, a):
        return self.neuron(ops.matmul(x, self.weight), v, a)

    def init_state(self, x):
        return (ops.zeros((x.shape[0], NEURONS), "float64"),) * 2


class Looped(nn.Cell):
    """The recurrent layer of `nn.EProp`, as one step. `cut` removes the gradient of the recurrent spikes."""

    def __init__(self, cut=False):
        super().__init__()
        self.weight = Parameter(Tensor(random_array(NEURONS, INPUTS, seed=4, low=-0.5, high=1.5)), "weight")
        self.recurrent = Parameter(Tensor(random_array(NEURONS, NEURONS, seed=6) * (1 - np.eye(NEURONS))), "recurrent")
        self.spike, self.cut = surrogate.ATan(), cut

    def construct(self, x, v, z, b):
        arriving = ops.stop_gradient(z) if self.cut else z
        v = 0.8 * v + ops.matmul(x, self.weight.T) + ops.matmul(arriving, self.recurrent.T) - ops.stop_gradient(z)
        b = 0.9 * b + z
        z = self.spike(v - 1.0 - 0.3 * b)
        return z, v, z, b

    def init_state(self, x):
        return (ops.zeros((x.shape[0], NEURONS), "float64"),) * 3


class LoopedWithin(Looped):
    """A recurrent layer whose step computes the recurrent spikes from the potential of before."""

    def construct(self, x, v, z, b):
        z = self.spike(v - 1.0 - 0.3 * b)
        arriving = ops.stop_gradient(z) if self.cut else z
        v = 0.8 * v + ops.matmul(x, self.weight.T) + ops.matmul(arriving, self.recurrent.T) - ops.stop_gradient(z)
        return self.spike(v - 0.9), v, z, 0.9 * b + z


class Deep(nn.Cell):
    """Two layers in one Cell."""

    def __init__(self, first, second):
        super().__init__()
        self.first, self.second = first, second

    def construct(self, x, v, w):
        z, v = self.first(x, v)
        z, w = self.second(z, w)
        return z, v, w

    def init_state(self, x):
        return (ops.zeros((x.shape[0], NEURONS), "float64"),) * 2


def gradients(cell, rule=None, parameters=None):
    """The gradients of a loss of a linear readout, by a rule or by BPTT. Eager, so that nothing is compiled."""
    net = nn.MultiStep(cell if rule is None else nn.Online(cell, rule))

    def loss(x):
        return ops.square(ops.matmul(net(x), READOUT) - TARGET).sum()

    with testing.unfused():
        found = ops.grad(loss, None, parameters or cell.trainable_params())(Tensor(X))
    return [g.asnumpy() for g in found]


def close(mine, theirs, rtol=1e-9):
    for a, b in zip(mine, theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=rtol, atol=1e-11)


def differ(mine, theirs):
    assert max(np.abs(a - b).max() for a, b in zip(mine, theirs, strict=True)) > 1e-3


# --- equal to BPTT, where theory says so ------------------------------------------------------------------------------

TAU = Tensor(random_array(NEURONS, seed=5, low=2.0, high=5.0))
ALL = ("RTRL", "OSTL", "e-prop", "OTTT", "full RTRL")
EQUAL = {
    "LIF, detached reset": (lambda: Layer(lif(detach_reset=True)), ALL),
    "LIF": (lambda: Layer(lif()), ("RTRL", "full RTRL")),
    "LIF, reset to zero, tau": (lambda: Layer(lif(TAU, reset="zero", learnable="tau")), ("RTRL",)),
    "quadratic": (lambda: Layer(Quadratic()), ("RTRL",)),
    "two states": (lambda: Layer(Adaptive()), ("RTRL", "full RTRL")),
    "weight (I, N), own spikes": (Turned, ("e-prop",)),
    "recurrent": (Looped, ("full RTRL",)),
    "two layers": (lambda: Deep(Layer(lif()), Layer(lif(), NEURONS)), ("full RTRL",)),
}


@pytest.mark.parametrize(("name", "rule"), [(name, rule) for name, (_, rules) in EQUAL.items() for rule in rules])
def test_gradient_equals_bptt(name, rule):
    cell = EQUAL[name][0]()
    wanted = gradients(cell)
    assert all(np.abs(g).max() > 1e-3 for g in wanted)
    close(gradients(cell, rule), wanted)


def test_rules_that_ignore_paths_differ_from_bptt():
    for cell, rule in ((Layer(lif()), "OTTT"), (Layer(lif()), "SLTT"), (Looped(), "e-prop")):
        differ(gradients(cell, rule), gradients(cell))


@pytest.mark.parametrize("kind", [Looped, LoopedWithin])
def test_eprop_is_bptt_with_constant_recurrent_spikes(kind):
    close(gradients(kind(), "e-prop"), gradients(kind(cut=True)))


def test_eprop_keeps_paths_of_a_neuron_beside_a_mean_of_all():
    lateral, cut = Lateral(lif()), Lateral(lif())
    cut.cut = True
    close(gradients(lateral, "e-prop"), gradients(cut, "RTRL"))


def test_eprop_equals_the_layer_of_eprop():
    cell = Looped()
    settings = {"decay": 0.8, "adaptation": 0.3, "adaptation_decay": 0.9, "surrogate_function": surrogate.ATan()}
    layer = nn.EProp(
        INPUTS, NEURONS, weight_init=cell.weight, recurrent_init=cell.recurrent, dtype="float64", **settings
    )

    def loss(x):
        return ops.square(ops.matmul(layer(x), READOUT) - TARGET).sum()

    with testing.unfused():
        theirs = ops.grad(loss, None, layer.trainable_params())(Tensor(X))
    of_weight, of_recurrent = gradients(cell, "e-prop")
    close([of_weight, of_recurrent * (1 - np.eye(NEURONS))], [g.asnumpy() for g in theirs])


def test_ottt_equals_the_layer_of_ottt():
    neuron = nn.LIFNode(
        1 / 0.4, decay_input=False, v_threshold=0.8, detach_reset=True, surrogate_function=surrogate.ATan()
    )
    cell = Layer(neuron)
    layer = nn.OTTTDense(
        INPUTS, NEURONS, 0.6, 0.8, weight_init=cell.dense.weight, bias_init=cell.dense.bias, dtype="float64"
    )
    close(gradients(cell, "OTTT"), gradients(layer))


def test_traces_of_weights_are_shared_only_if_all_neurons_have_the_same():
    x = Tensor(X[0])
    for cell, rule, width in (
        (Layer(lif(detach_reset=True)), "RTRL", 1),
        (Layer(lif()), "OTTT", 1),
        (Layer(lif()), "RTRL", NEURONS),
        (Layer(lif(TAU, detach_reset=True)), "RTRL", NEURONS),
        (Layer(lif(TAU, detach_reset=True, learnable="tau")), "RTRL", NEURONS),
        (Layer(lif(reset="zero", detach_reset=True)), "RTRL", NEURONS),
    ):
        assert (BATCH, width, INPUTS) in [state.shape for state in nn.Online(cell, rule).init_state(x)]


def test_plan_follows_a_changed_neuron():
    cell = Layer(lif(detach_reset=True))
    online = nn.Online(cell, "RTRL")
    before = len(online.init_state(Tensor(X[0]))), online.init_state(Tensor(X[0]))[1].shape
    cell.neuron.detach_reset = False
    assert before[1] != online.init_state(Tensor(X[0]))[1].shape
    cell.dense.bias.requires_grad = False
    assert len(online.init_state(Tensor(X[0]))) == before[0] - 1


def test_gradient_of_smooth_spikes_equals_finite_differences():
    cell = Layer(Adaptive())
    parameters, net = cell.trainable_params(), nn.MultiStep(nn.Online(cell, "RTRL"))
    directions = [random_array(*p.shape, seed=7) for p in parameters]

    def loss(x):
        return ops.square(ops.matmul(net(x), READOUT) - TARGET).sum()

    with testing.unfused(), surrogate.smooth():
        found = ops.grad(loss, None, parameters)(Tensor(X))
        values, begin, step = [], [p.asnumpy().copy() for p in parameters], 1e-5
        for sign in (1.0, -1.0):
            for p, v, d in zip(parameters, begin, directions, strict=True):
                p.set_data(Tensor(v + sign * step * d))
            values.append(float(loss(Tensor(X))))
    slope = sum((g.asnumpy() * d).sum() for g, d in zip(found, directions, strict=True))
    np.testing.assert_allclose(slope, (values[0] - values[1]) / (2 * step), rtol=1e-6)


# --- networks, and rules within a step --------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", ["e-prop", "SLTT"])
def test_layers_one_by_one_equal_layers_in_one_cell(rule):
    first, second = Layer(lif()), Layer(lif(), NEURONS)
    parameters = [*first.trainable_params(), *second.trainable_params()]
    chain = Deep(nn.Online(first, rule), nn.Online(second, rule))

    class Chain(nn.Cell):
        """The two layers, each with its own rule."""

        def __init__(self):
            super().__init__()
            self.chain = chain

        def construct(self, x, *states):
            count = len(self.chain.first.init_state(x))
            z, *before = self.chain.first(x, *states[:count])
            z, *after = self.chain.second(z, *states[count:])
            return (z, *before, *after)

        def init_state(self, x):
            hidden = ops.zeros((x.shape[0], NEURONS), "float64")
            return (*self.chain.first.init_state(x), *self.chain.second.init_state(hidden))

    close(gradients(Deep(first, second), rule, parameters), gradients(Chain(), None, parameters))


class Cut(nn.Cell):
    """A step without gradients of its states."""

    def __init__(self, cell):
        super().__init__()
        self.cell = cell

    def construct(self, x, *states):
        return self.cell(x, *ops.stop_gradient(states))

    def init_state(self, x):
        return self.cell.init_state(x)


def test_sltt_is_bptt_without_gradients_of_states():
    cell = Looped()
    close(gradients(cell, "SLTT"), gradients(Cut(cell), None, cell.trainable_params()))


class Paired(Layer):
    """A layer with two outputs."""

    def construct(self, x, v):
        z, v = self.neuron(self.dense(x), v)
        return (v, z), v


@pytest.mark.parametrize("kind", [Layer, Paired])
def test_fptt_equals_its_equations(kind):
    """The updates of the authors' code, with beta = 1/2 and rho = 0. The loss may use any of the outputs."""
    alpha, rate = 0.4, 0.05
    cells = [kind(lif()), kind(lif())]
    online = nn.Online(cells[0], "FPTT", alpha=alpha)
    states = online.init_state(Tensor(X[0]))
    plain = cells[1].init_state(Tensor(X[0]))
    mine, theirs = (cell.trainable_params() for cell in cells)
    slopes, means = [np.zeros(p.shape) for p in theirs], [p.asnumpy().copy() for p in theirs]

    def loss(cell, x, target, states):
        z, *after = cell(x, *states)
        z = z[1] if kind is Paired else z
        return (ops.square(ops.matmul(z, READOUT) - target).sum(), *after)

    for x, target in zip(Tensor(X), TARGET, strict=True):
        found, states = ops.grad(lambda x, t=target, s=states: loss(online, x, t, s), None, mine, True)(x)
        wanted, plain = ops.grad(
            lambda x, t=target, s=plain: loss(cells[1], x, t, ops.stop_gradient(s)), None, theirs, True
        )(x)
        total = [
            g.asnumpy() + alpha * (p.asnumpy() - m) - s
            for g, p, s, m in zip(wanted, theirs, slopes, means, strict=True)
        ]
        close([g.asnumpy() for g in found], total)
        for p, q, g in zip(mine, theirs, total, strict=True):
            p.set_data(p - rate * Tensor(g))
            q.set_data(q - rate * Tensor(g))
        now = [q.asnumpy() for q in theirs]
        slopes = [s - alpha * (p - m) for s, p, m in zip(slopes, now, means, strict=True)]
        means = [0.5 * (m + p) - s / (2 * alpha) for s, p, m in zip(slopes, now, means, strict=True)]
    assert max(np.abs(s).max() for s in slopes) > 1e-3


# --- forward gradients ------------------------------------------------------------------------------------------------


def test_forward_gradient_is_the_projection_of_bptt():
    cell = Looped()
    wanted, online = gradients(cell), nn.Online(cell, "forward gradient")
    states = online.init_state(Tensor(X[0]))
    directions = [v.asnumpy()[0] for v in states[-2:]]

    def loss(x):
        return ops.square(ops.matmul(nn.MultiStep(online)(x, *states), READOUT) - TARGET).sum()

    with testing.unfused():
        found = ops.grad(loss, None, cell.trainable_params())(Tensor(X))
    along = sum((g * v).sum() for g, v in zip(wanted, directions, strict=True))
    close([g.asnumpy() for g in found], [along * v for v in directions])


def test_forward_gradient_is_unbiased():
    """With the projection above, this needs directions whose products have the identity as their mean."""
    online, draws = nn.Online(Layer(lif(), has_bias=False), "forward gradient"), 1000
    snncell.set_seed(0)
    v = np.stack([online.init_state(Tensor(X[0]))[-1].asnumpy().ravel() for _ in range(draws)])
    error = (v.T @ v / draws - np.eye(v.shape[1])) * math.sqrt(draws)  # about normal, with a variance of 1 or 2
    assert np.abs(error).max() < 6.0 and np.abs(v.mean(0)).max() * math.sqrt(draws) < 5.0


# --- three factors ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bounds", [None, "soft"])
def test_three_factor_stdp_equals_its_loop(bounds):
    rule = nn.STDP(tau_plus=5.0, tau_minus=8.0, a_plus=0.02, a_minus=0.03, bounds=bounds)
    cell = Layer(lif(), has_bias=False)
    reward = random_array(STEPS, BATCH, 1, seed=8)
    net = nn.MultiStep(nn.Online(cell, rule, tau_e=6.0))
    with testing.unfused():
        loss = lambda x: (-(out := net(x)) * Tensor(reward)).sum() + 0.0 * out.sum()  # noqa: E731
        (found,) = ops.grad(loss, None, cell.trainable_params())(Tensor(X))
        post = net(Tensor(X)).asnumpy()
    weight, wanted = cell.dense.weight.asnumpy(), np.zeros((NEURONS, INPUTS))
    assert 0.05 < post.mean() < 0.95
    for b in range(BATCH):
        for j in range(NEURONS):
            for i in range(INPUTS):
                p = q = e = 0.0
                up, down = (1.0 - weight[j, i], weight[j, i]) if bounds == "soft" else (1.0, 1.0)
                for t in range(STEPS):
                    p, q, e = p * math.exp(-1 / 5.0), q * math.exp(-1 / 8.0), e * math.exp(-1 / 6.0)
                    e += 0.02 * up * p * post[t, b, j] - 0.03 * down * q * X[t, b, i]
                    p, q = p + X[t, b, i], q + post[t, b, j]
                    wanted[j, i] -= reward[t, b, 0] * e
    close([found.asnumpy()], [wanted])


# --- compiled, jitted, step by step -----------------------------------------------------------------------------------


def one_step(online, parameters):
    """A function of input, target and states that returns the gradients of this step, and the next states."""

    def loss(x, target, *states):
        z, *after = online(x, *states)
        return (ops.square(ops.matmul(z, READOUT) - target).sum(), *after)

    return ops.grad(loss, None, parameters, has_aux=True)


@pytest.mark.parametrize("rule", ["e-prop", "full RTRL"])
def test_compiled_loops_and_single_steps_give_the_same_gradient(rule):
    cell = Layer(Adaptive())
    wanted, parameters = gradients(cell, rule), cell.trainable_params()
    online = nn.Online(cell, rule)
    net = nn.MultiStep(online)
    whole = ops.grad(lambda x: ops.square(ops.matmul(net(x), READOUT) - TARGET).sum(), None, parameters)
    with on_threads(1):
        compiled = [g.asnumpy() for g in whole(Tensor(X))]
    close(compiled, wanted)
    step = snncell.jit(one_step(online, parameters))
    states, total = online.init_state(Tensor(X[0])), [0.0] * len(parameters)
    for x, target in zip(Tensor(X), TARGET, strict=True):
        grads, states = step(x, target, *states)
        total = [a + g.asnumpy() for a, g in zip(total, grads, strict=True)]
    close(total, wanted)
    with on_threads(2):
        for g, one in zip(whole(Tensor(X)), compiled, strict=True):
            np.testing.assert_array_equal(g.asnumpy(), one)


def peak(steps, rule):
    """The peak memory of online steps, minus the memory in use before."""
    online = nn.Online(Layer(lif()), rule)
    step = snncell.jit(one_step(online, online.trainable_params()))
    x, target = Tensor(X[0]), TARGET[0]
    states = online.init_state(x)
    for _ in range(100):  # so that all buffers exist
        _, states = step(x, target, *states)
    tracemalloc.start()
    try:
        for _ in range(steps):
            _, states = step(x, target, *states)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("steps", [1000, pytest.param(10_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("rule", ["e-prop", "forward gradient"])
def test_memory_of_steps_does_not_grow(rule, steps):
    few, many = peak(100, rule), peak(steps, rule)
    assert many < few + 2000  # BPTT would keep the 64 bytes of each of the states of each step


def test_noise_is_that_of_the_cell():
    class Noisy(Layer):
        """Neurons with a noisy input."""

        def construct(self, x, *states):
            noise = ops.normal((x.shape[0], NEURONS), 0.0, 0.5).astype("float64")
            return self.neuron(self.dense(x) + noise, *states)

    cell, found = Noisy(lif()), []
    for net in (nn.MultiStep(cell), nn.MultiStep(nn.Online(cell, "RTRL"))):
        snncell.set_seed(3)
        with testing.unfused():
            grads = ops.grad(lambda x, net=net: ops.matmul(net(x), READOUT), None, cell.trainable_params())(Tensor(X))
        found.append([g.asnumpy() for g in grads])
    close(*found)


# --- errors -----------------------------------------------------------------------------------------------------------


class Gated(Layer):
    """A layer whose product uses a function of its weight."""

    def construct(self, x, *states):
        return self.neuron(ops.matmul(x, ops.tanh(self.dense.weight).T), *states)


class Through(Layer):
    """A layer with an operation between its product and its neurons, or on a threshold of each neuron."""

    def __init__(self, function, threshold=False):
        super().__init__(lif(), has_bias=False)
        self.function = function
        if threshold:
            self.threshold = Parameter(Tensor(random_array(NEURONS, 1)), "threshold")

    def construct(self, x, v):
        current = self.dense(x)
        if hasattr(self, "threshold"):
            return self.neuron(current - self.function(self.threshold), v)
        return self.neuron(self.function(current), v)


class Lateral(Layer):
    """Neurons that inhibit each other. `cut` removes the gradient of the inhibition."""

    cut = False

    def construct(self, x, v):
        mean = v.mean(-1, keepdims=True)
        return self.neuron(self.dense(x) - 0.1 * (ops.stop_gradient(mean) if self.cut else mean), v)


class Packed(Layer):
    """Neurons with two states in one Tensor."""

    def construct(self, x, both):
        v, a = both[:, :NEURONS], both[:, NEURONS:]
        s, v = self.neuron(self.dense(x) - a, v)
        return s, ops.concat([v, 0.9 * a + s], 1)

    def init_state(self, x):
        return (ops.zeros((x.shape[0], 2 * NEURONS), "float64"),)


class Idle(Layer):
    """A layer with a Parameter that it does not use."""

    def __init__(self):
        super().__init__(lif())
        self.extra = Parameter(Tensor([1.0]), "extra")


class Comparing(Layer):
    """A step that fires by a comparison, without a surrogate."""

    def construct(self, x, v):
        v = 0.5 * v + self.dense(x)
        return (v > 1.0).astype(v.dtype), v


class WithoutStart(nn.Cell):
    """A layer without init_state, although its states have another shape than x."""

    def __init__(self):
        super().__init__()
        self.dense, self.neuron = nn.Dense(INPUTS, NEURONS), lif()

    def construct(self, x, v):
        return self.neuron(self.dense(x), v)


class OneResult(nn.Cell):
    """A step that does not return its state."""

    def construct(self, x, v):
        return x + v


class Undeclared(nn.Cell):
    """A step without a number of states."""

    def construct(self, x, *states):
        return x, *states


@pytest.mark.parametrize(
    ("cell", "rule", "message"),
    [
        (lambda: Layer(lif()), "e-prob", "rule must be one of 'RTRL', .* not 'e-prob'. Did you mean 'e-prop'"),
        (lambda: Layer(lif()), 3, "rule must be one of .*, or an nn.STDP, not 3"),
        (lambda: nn.MultiStep(lif()), "SLTT", r"cell must be a Cell of one time step.*MultiStep.*nn\.Online\(cell\)"),
        (lambda: nn.EProp(2, 2), "SLTT", "cell must be a Cell of one time step.*not an? EProp"),
        (Looped, "RTRL", r"'RTRL' needs neurons that do not.*state 'z' of Looped .*matmul \(.*self\.recurrent.*e-prop"),
        (lambda: Lateral(lif()), "OSTL", "state 'v' of Lateral reaches the states of other neurons by sum .*full RTRL"),
        (lambda: Gated(lif(), has_bias=False), "e-prop", r"dense\.weight' of Gated enters by transpose.*'SLTT'"),
        (lambda: Through(lambda c: c - c.mean(-1, keepdims=True)), "e-prop", r"weight' of Through enters by sum"),
        (lambda: Through(lambda c: ops.tanh(c) @ READOUT @ READOUT.T), "RTRL", r"weight' of Through enters by matmul"),
        (lambda: Through(lambda c: ops.flip(c, (1,))), "OTTT", r"dense\.weight' of Through enters by flip"),
        (lambda: Through(lambda p: p.T, threshold=True), "RTRL", "'cell.threshold' of Through enters by sub"),
        (lambda: Packed(lif()), "e-prop", r"'e-prop' cannot follow single neurons through .*rearranges state 'both'"),
        (Idle, "SLTT", r"the step of Idle does not use the Parameter '.*extra'.*requires_grad"),
        (lif, "e-prop", "LIFNode has no Parameters.* Put the weights into the Cell"),
        (lambda: Comparing(lif()), "e-prop", "all gradients of Comparing would be zero.*comparison.*snncell.surrogate"),
        (OneResult, "RTRL", r"OneResult.construct took 1 state\(s\), so it must return \(output, \*states\)"),
        (Undeclared, "RTRL", r"Undeclared: construct takes \*args, so the number of states is unknown"),
        (lambda: Layer(lif(reset="zero", detach_reset=True)), "OTTT", "'OTTT' keeps one trace.*same constant.*e-prop"),
        (lambda: Layer(lif()), nn.STDP(), "STDP changes weights of .* So it cannot learn '.*bias' of Layer"),
        (
            lambda: Deep(Layer(lif(), has_bias=False), Layer(lif(), NEURONS, has_bias=False)),
            nn.STDP(),
            "cannot learn 'cell.first.dense.weight' of Deep. Put each layer into its own Online",
        ),
    ],
)  # fmt: skip
def test_what_a_rule_cannot_learn_raises(cell, rule, message):
    with pytest.raises(ArgumentError, match=message):
        nn.Online(cell(), rule).init_state(Tensor(X[0]))


def test_missing_traces_and_large_nets_raise():
    with pytest.raises(ShapeError, match=r"WithoutStart has no init_state.*So define init_state\(self, x\) in Without"):
        nn.Online(WithoutStart()).init_state(ops.zeros((BATCH, INPUTS)))
    online = nn.Online(Layer(lif()), "RTRL")
    with pytest.raises(ArgumentError, match=r"has 1 state\(s\), and 'RTRL' keeps 2 trace\(s\).*pass 3 after x, not 1"):
        online(Tensor(X[0]), ops.zeros((BATCH, NEURONS), "float64"))
    with pytest.raises(ArgumentError, match=r"'full RTRL' keeps the derivative .* here 160,016,000 numbers"):
        nn.Online(Layer(lif(), 10_000), "full RTRL").init_state(ops.zeros((1000, 10_000), "float64"))
