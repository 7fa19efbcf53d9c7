"""Optimisers over several steps, against their formulas in NumPy and against PyTorch; schedules; errors."""

import numpy as np
import pytest

import snncell
from snncell import Parameter, ParameterTuple, Tensor, nn, ops
from snncell.errors import ArgumentError, ParameterError, ShapeError

# Rates are powers of two, because the rate is stored as float32, which holds them exactly. The rest is float64.
RATE = 0.125
STEPS = 6


def sgd(p, gradients, momentum=0.0, dampening=0.0, decay=0.0, nesterov=False):
    buffer = None
    for g in gradients:
        g = g + decay * p
        if momentum:
            buffer = g.copy() if buffer is None else momentum * buffer + (1 - dampening) * g
            g = g + momentum * buffer if nesterov else buffer
        p = p - RATE * g
    return p


def adam(p, gradients, beta1=0.9, beta2=0.999, eps=1e-8, decay=0.0, decoupled=False, amsgrad=False):
    m, v, largest = np.zeros_like(p), np.zeros_like(p), np.zeros_like(p)
    for t, g in enumerate(gradients, start=1):
        if decoupled:
            p = p - RATE * decay * p
        else:
            g = g + decay * p
        m, v = beta1 * m + (1 - beta1) * g, beta2 * v + (1 - beta2) * g * g
        largest = np.maximum(v, largest) if amsgrad else v
        p = p - RATE * (m / (1 - beta1**t)) / (np.sqrt(largest / (1 - beta2**t)) + eps)
    return p


def adamax(p, gradients, beta1=0.9, beta2=0.999, eps=1e-8, decay=0.0):
    m, u = np.zeros_like(p), np.zeros_like(p)
    for t, g in enumerate(gradients, start=1):
        g = g + decay * p
        m, u = beta1 * m + (1 - beta1) * g, np.maximum(beta2 * u, np.abs(g))
        p = p - RATE / (1 - beta1**t) * m / (u + eps)
    return p


def rmsprop(p, gradients, rho=0.9, momentum=0.0, eps=1e-10, centered=False, decay=0.0):
    s, m, mean = np.zeros_like(p), np.zeros_like(p), np.zeros_like(p)
    for g in gradients:
        g = g + decay * p
        s, mean = rho * s + (1 - rho) * g * g, rho * mean + (1 - rho) * g
        m = momentum * m + RATE * g / np.sqrt(s - (mean**2 if centered else 0) + eps)
        p = p - m
    return p


# name: (ours, the formula, PyTorch's class and options)
OPTIMISERS = {
    "SGD": (lambda p: nn.SGD(p, RATE), sgd, ("SGD", {})),
    "SGD momentum": (lambda p: nn.SGD(p, RATE, 0.9), lambda p, g: sgd(p, g, 0.9), ("SGD", {"momentum": 0.9})),
    "SGD dampening": (
        lambda p: nn.SGD(p, RATE, 0.9, 0.4),
        lambda p, g: sgd(p, g, 0.9, 0.4),
        ("SGD", {"momentum": 0.9, "dampening": 0.4}),
    ),
    "SGD nesterov": (
        lambda p: nn.SGD(p, RATE, 0.9, nesterov=True),
        lambda p, g: sgd(p, g, 0.9, nesterov=True),
        ("SGD", {"momentum": 0.9, "nesterov": True}),
    ),
    "SGD decay": (
        lambda p: nn.SGD(p, RATE, 0.5, weight_decay=0.1),
        lambda p, g: sgd(p, g, 0.5, decay=0.1),
        ("SGD", {"momentum": 0.5, "weight_decay": 0.1}),
    ),
    "Momentum": (lambda p: nn.Momentum(p, RATE, 0.9), lambda p, g: sgd(p, g, 0.9), ("SGD", {"momentum": 0.9})),
    "Momentum nesterov": (
        lambda p: nn.Momentum(p, RATE, 0.9, 0.1, True),
        lambda p, g: sgd(p, g, 0.9, decay=0.1, nesterov=True),
        ("SGD", {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
    ),
    "Adam": (lambda p: nn.Adam(p, RATE), adam, ("Adam", {})),
    "Adam betas": (
        lambda p: nn.Adam(p, RATE, 0.5, 0.7, 1e-3, 0.1),
        lambda p, g: adam(p, g, 0.5, 0.7, 1e-3, 0.1),
        ("Adam", {"betas": (0.5, 0.7), "eps": 1e-3, "weight_decay": 0.1}),
    ),
    "AdamW": (
        lambda p: nn.AdamW(p, RATE),
        lambda p, g: adam(p, g, decay=0.01, decoupled=True),
        ("AdamW", {"weight_decay": 0.01}),
    ),
    "AdamW decay": (
        lambda p: nn.AdamW(p, RATE, weight_decay=0.5),
        lambda p, g: adam(p, g, decay=0.5, decoupled=True),
        ("AdamW", {"weight_decay": 0.5}),
    ),
    "AMSGrad": (
        lambda p: nn.Adam(p, RATE, 0.9, 0.5, use_amsgrad=True),
        lambda p, g: adam(p, g, 0.9, 0.5, amsgrad=True),
        ("Adam", {"betas": (0.9, 0.5), "amsgrad": True}),
    ),
    "AMSGrad of AdamW": (
        lambda p: nn.AdamW(p, RATE, 0.9, 0.5, use_amsgrad=True),
        lambda p, g: adam(p, g, 0.9, 0.5, decay=0.01, decoupled=True, amsgrad=True),
        ("AdamW", {"betas": (0.9, 0.5), "amsgrad": True, "weight_decay": 0.01}),
    ),
    # MindSpore's AdaMax adds eps to the divisor, PyTorch's to each |gradient|. With eps = 0 they are equal.
    "AdaMax": (
        lambda p: nn.AdaMax(p, RATE, 0.8, 0.5, 0.0, 0.1),
        lambda p, g: adamax(p, g, 0.8, 0.5, 0.0, 0.1),
        ("Adamax", {"betas": (0.8, 0.5), "eps": 0.0, "weight_decay": 0.1}),
    ),
    "AdaMax eps": (lambda p: nn.AdaMax(p, RATE, eps=0.5), lambda p, g: adamax(p, g, eps=0.5), None),
    # MindSpore's RMSProp adds epsilon under the root, PyTorch's outside. With epsilon = 0 they are equal.
    "RMSProp": (
        lambda p: nn.RMSProp(p, RATE, epsilon=0.0),
        lambda p, g: rmsprop(p, g, eps=0.0),
        ("RMSprop", {"alpha": 0.9, "eps": 0.0}),
    ),
    "RMSProp momentum": (
        lambda p: nn.RMSProp(p, RATE, 0.8, 0.5, 0.0),
        lambda p, g: rmsprop(p, g, 0.8, 0.5, 0.0),
        ("RMSprop", {"alpha": 0.8, "momentum": 0.5, "eps": 0.0}),
    ),
    "RMSProp centered": (
        lambda p: nn.RMSProp(p, RATE, 0.8, 0.0, 0.0, True, 0.1),
        lambda p, g: rmsprop(p, g, 0.8, 0.0, 0.0, True, 0.1),
        ("RMSprop", {"alpha": 0.8, "centered": True, "eps": 0.0, "weight_decay": 0.1}),
    ),
    "RMSProp epsilon": (
        lambda p: nn.RMSProp(p, RATE, epsilon=0.1),
        lambda p, g: rmsprop(p, g, eps=0.1),
        None,
    ),
}


def problem():
    """Two Parameters, and a gradient of each for every step."""
    rng = np.random.default_rng(0)
    shapes = [(3, 2), (4,)]
    return [rng.standard_normal(s) for s in shapes], [[rng.normal(0, 2, s) for s in shapes] for _ in range(STEPS)]


def parameters(starts):
    return [Parameter(start, name=f"p{i}") for i, start in enumerate(starts)]


@pytest.mark.parametrize("name", OPTIMISERS)
def test_optimiser_steps_equal_the_formula(name):
    make, formula, _ = OPTIMISERS[name]
    starts, gradients = problem()
    params = parameters(starts)
    optimiser = make(params)
    for grads in gradients:
        assert optimiser(tuple(Tensor(g) for g in grads)) is True
    for i, p in enumerate(params):
        expected = formula(starts[i], [grads[i] for grads in gradients])
        assert p.dtype == "float64"
        np.testing.assert_allclose(p.asnumpy(), expected, rtol=1e-9, atol=1e-11)
    assert optimiser.global_step.item() == STEPS


@pytest.mark.sampled(8)
@pytest.mark.peer
@pytest.mark.parametrize("name", [n for n, row in OPTIMISERS.items() if row[2]])
def test_optimiser_steps_equal_torch(torch, name):
    make, _, (kind, options) = OPTIMISERS[name]
    starts, gradients = problem()
    params = parameters(starts)
    optimiser = make(params)
    theirs = [torch.nn.Parameter(torch.tensor(start)) for start in starts]
    their_optimiser = getattr(torch.optim, kind)(theirs, lr=RATE, **options)
    for grads in gradients:
        optimiser([Tensor(g) for g in grads])
        for p, g in zip(theirs, grads, strict=True):
            p.grad = torch.tensor(g)
        their_optimiser.step()
        for mine, other in zip(params, theirs, strict=True):
            np.testing.assert_allclose(mine.asnumpy(), other.detach().numpy(), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("name", ["SGD momentum", "Adam", "AdamW", "AdaMax", "RMSProp momentum"])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_parameters_keep_their_dtype(name, dtype):
    p = Parameter(Tensor([1.0, 2.0], dtype), name="p")
    optimiser = OPTIMISERS[name][0]([p])
    for _ in range(2):
        optimiser(ops.ones(2, dtype))
    assert p.dtype == dtype and np.isfinite(p.asnumpy()).all() and (p.asnumpy() < [1, 2]).all()


@pytest.mark.sampled(2)
@pytest.mark.compiled
@pytest.mark.parametrize("name", ["SGD nesterov", "Adam betas", "AMSGrad", "AdaMax", "RMSProp centered"])
def test_compiled_steps_equal_eager_steps(name):
    starts, gradients = problem()
    eager, compiled = parameters(starts), parameters(starts)
    one, other = OPTIMISERS[name][0](eager), OPTIMISERS[name][0](compiled)
    step = snncell.jit(lambda a, b: other((a, b)))
    for grads in gradients:
        tensors = [Tensor(g) for g in grads]
        one(tensors)
        step(*tensors)
    for a, b in zip(eager, compiled, strict=True):
        np.testing.assert_allclose(b.asnumpy(), a.asnumpy(), rtol=1e-10, atol=1e-12)


def test_optimisers_minimise_a_quadratic():
    p = Parameter(Tensor([3.0, -2.0]), name="p")
    optimiser = nn.Adam([p], 0.1)
    gradient = ops.grad(lambda: ((p - Tensor([1.0, 1.0])) * (p - Tensor([1.0, 1.0]))).sum(), None, p)
    for _ in range(200):
        optimiser(gradient())
    np.testing.assert_allclose(p.asnumpy(), [1.0, 1.0], atol=1e-2)


# --- rates -----------------------------------------------------------------------------------------------------------


def test_learning_rate_can_be_changed():
    p = Parameter(Tensor([0.0]), name="p")
    optimiser = nn.SGD([p], 0.5)
    optimiser(ops.ones(1))
    optimiser.set_learning_rate(2.0)
    optimiser(ops.ones(1))
    assert p.item() == -2.5 and optimiser.get_lr().item() == 2.0


@pytest.mark.parametrize(
    ("schedule", "rate"),
    [
        (nn.ExponentialDecayLR(0.5, 0.9, 4), lambda t: 0.5 * 0.9 ** (t / 4)),
        (nn.ExponentialDecayLR(0.5, 0.9, 4, is_stair=True), lambda t: 0.5 * 0.9 ** (t // 4)),
        (nn.WarmUpLR(0.5, 4), lambda t: 0.5 * min(t / 4, 1)),
        (nn.WarmUpLR(nn.ExponentialDecayLR(0.5, 0.9, 4), 3), lambda t: 0.5 * 0.9 ** (t / 4) * min(t / 3, 1)),
        (nn.PiecewiseConstantLR([2, 5], [0.5, 0.2, 0.1]), lambda t: 0.5 if t < 2 else 0.2 if t < 5 else 0.1),
        (nn.PolynomialDecayLR(0.5, 0.1, 6, 2.0), lambda t: 0.1 + 0.4 * (1 - min(t / 6, 1)) ** 2),
        (nn.CosineDecayLR(0.1, 0.5, 6), lambda t: 0.1 + 0.4 * (1 + np.cos(np.pi * min(t / 6, 1))) / 2),
    ],
    ids=["exponential", "stairs", "warm-up", "warm-up of another", "pieces", "polynomial", "cosine"],
)
def test_schedules_equal_their_formulas(schedule, rate):
    p = Parameter(Tensor([0.0]), name="p")
    optimiser = nn.SGD([p], schedule)
    expected = 0.0
    for t in range(10):
        assert optimiser.get_lr().item() == pytest.approx(rate(t), rel=1e-5)
        optimiser(ops.ones(1))
        expected -= rate(t)
        assert p.item() == pytest.approx(expected, rel=1e-5)
    with pytest.raises(ArgumentError, match="learning rate cannot be set, because it follows a schedule"):
        optimiser.set_learning_rate(0.1)


# --- errors ----------------------------------------------------------------------------------------------------------

P = Parameter(Tensor([1.0, 2.0]), name="p")
Q = Parameter(Tensor([1.0]), name="q")


@pytest.mark.parametrize("rate", [float("nan"), float("inf"), -0.1, "fast", None, True])
@pytest.mark.parametrize("make", [nn.SGD, nn.Adam, nn.AdamW, nn.RMSProp, lambda p, r: nn.Momentum(p, r, 0.9)])
def test_invalid_learning_rates_raise(make, rate):
    with pytest.raises(ArgumentError, match=r"learning_rate must be a finite number of at least 0, a Learning.*, not"):
        make([P], rate)


def test_assigned_learning_rates_are_checked():
    with pytest.raises(ArgumentError, match="learning_rate is a number"):
        nn.SGD([P], 0.1).set_learning_rate(float("nan"))


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ([P, Q, P], r"Adam: Parameter 'p' occurs twice, as elements 0 and 2"),
        ([], r"Adam: there are no Parameters to train"),
        ([P, Tensor(1.0)], r"Adam: element 1 is a Tensor, not a Parameter"),
        ([Parameter(1.0, "f", requires_grad=False)], r"Adam: Parameter 'f' has requires_grad=False"),
        (nn.Dense(1, 1), r"Adam: params must be Parameters, not a Cell. Write Adam\(net\.trainable_params\(\)"),
        ([Parameter(1, "n")], r"Adam.*'n'.*Int32"),
    ],
    ids=["twice", "none", "a Tensor", "frozen", "a Cell", "integers"],
)
def test_invalid_parameters_raise(params, message):
    with pytest.raises(ParameterError, match=message):
        nn.Adam(params)


def test_single_parameter_and_parameter_tuple_are_accepted():
    assert len(nn.SGD(P, 0.1).parameters) == 1 and len(nn.SGD(ParameterTuple((P, Q)), 0.1).parameters) == 2


@pytest.mark.parametrize(
    ("gradients", "kind", "message"),
    [
        ((ops.ones(2),), ArgumentError, r"SGD: got 1 gradient\(s\) for 2 Parameter\(s\)"),
        ((ops.ones(2), ops.ones(1), ops.ones(1)), ArgumentError, r"SGD: got 3 gradient\(s\) for 2 Parameter\(s\)"),
        (
            (ops.ones(1), ops.ones(2)),
            ShapeError,
            r"gradient 0, of 'p', has shape \(1,\).*\(2,\).*order of the Parameters",
        ),
        ((ops.ones(2), None), ArgumentError, r"gradient of 'q' must be a Tensor, not a NoneType"),
        ((ops.ones(2), np.ones(1, np.float32)), ArgumentError, r"gradient of 'q' must be a Tensor, not a ndarray"),
    ],
    ids=["too few", "too many", "swapped", "None", "NumPy"],
)
def test_invalid_gradients_raise_and_change_nothing(gradients, kind, message):
    optimiser = nn.SGD([P, Q], 0.1)
    before = P.asnumpy().copy(), Q.asnumpy().copy()
    with pytest.raises(kind, match=message):
        optimiser(gradients)
    assert (before[0] == P.asnumpy()).all() and (before[1] == Q.asnumpy()).all()
    assert optimiser.global_step.item() == 0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: nn.SGD([P], 0.1, weight_decay=-1.0), "weight_decay is a finite number of at least 0, not -1"),
        (lambda: nn.SGD([P], 0.1, momentum=float("nan")), "momentum is a finite number"),
        (lambda: nn.SGD([P], 0.1, nesterov=True), "nesterov needs a momentum above 0 and no dampening"),
        (lambda: nn.Adam([P], beta1=1.0), r"beta1 is a finite number in \[0, 1\), not 1\.0"),
        (lambda: nn.Adam([P], beta2=-0.1), "beta2 is a finite number in"),
        (lambda: nn.RMSProp([P], decay=2.0), "decay is a finite number in"),
        (lambda: nn.ExponentialDecayLR(0.1, 0.9, 0), "decay_steps"),
        (lambda: nn.ExponentialDecayLR(0.1, 0.0, 5), "decay_rate"),
        (lambda: nn.CosineDecayLR(0.5, 0.1, 5), "max_lr is a number"),
        (lambda: nn.WarmUpLR(0.1, 0), "WarmUpLR: warmup_steps"),
        (lambda: nn.WarmUpLR(-0.1, 5), "WarmUpLR: learning_rate"),
        (lambda: nn.PiecewiseConstantLR([5, 5], [0.1] * 3), "milestones must increase"),
        (lambda: nn.PiecewiseConstantLR([5], [0.1]), "need 2 learning rates"),
        (lambda: nn.PiecewiseConstantLR([0], [0.1, 0.1]), "milestones is a list of integers of at least 1"),
        (lambda: nn.PolynomialDecayLR(0.1, 0.0, 0), "PolynomialDecayLR: decay_steps"),
        (lambda: nn.PolynomialDecayLR(0.1, 0.0, 5, -1.0), "PolynomialDecayLR: power"),
    ],
)
def test_invalid_settings_raise(make, message):
    with pytest.raises(ArgumentError, match=message):
        make()


# --- types of learning rates, loss scale ------------------------------------------------------------------------------


class Halving(nn.Cell):
    """A Cell that is not a LearningRateSchedule."""

    def construct(self, step):
        return ops.pow(0.5, step) * 0.5


RATES = [0.5, 0.25, 0.125]
KINDS = {
    "list": lambda: RATES,
    "tuple": lambda: tuple(RATES),
    "array": lambda: np.array(RATES, np.float32),
    "Tensor": lambda: Tensor(RATES),
    "generator": lambda: (rate for rate in RATES),
    "Cell": Halving,
    "in a group": lambda: RATES,
}


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_learning_rates_per_step(kind, compiled):
    p, given = Parameter(Tensor([8.0, -8.0]), name="p"), KINDS[kind]()
    sgd = nn.SGD([{"params": [p], "lr": given}], 9.0) if kind == "in a group" else nn.SGD([p], given)
    step = snncell.jit(lambda g: sgd((g,))) if compiled else lambda g: sgd((g,))
    value = np.array([8.0, -8.0])
    for n in range(5):
        rate = 0.5 ** (n + 1) if kind == "Cell" else RATES[min(n, 2)]  # the last rate of a list stays in use
        assert sgd.get_lr().item() == rate
        step(Tensor([1.0, 2.0]))
        value = value - rate * np.array([1.0, 2.0])
        np.testing.assert_array_equal(p.asnumpy(), value)
    with pytest.raises(ArgumentError, match="follows a schedule"):
        sgd.set_learning_rate(0.1)


@pytest.mark.parametrize("rate", [Tensor(0.5), np.float32(0.5), np.array(0.5), 1])
def test_any_numeric_type_is_a_changeable_learning_rate(rate):
    p = Parameter(Tensor([8.0]), name="p")
    sgd = nn.SGD([p], rate)
    sgd.set_learning_rate(0.25)
    sgd((Tensor([1.0]),))
    assert p.item() == 7.75


@pytest.mark.parametrize("rates", [[], [0.1, -0.1], [0.1, "a"], {"a": 1}, "ab", nn.CosineDecayLR, [[0.1]]])
def test_invalid_lists_of_rates_raise(rates):
    with pytest.raises(ArgumentError, match="learning_rate"):
        nn.SGD([P], rates)


MAKERS = {
    "SGD": lambda p, **own: nn.SGD(p, 0.1, 0.9, **own),
    "Momentum": lambda p, **own: nn.Momentum(p, 0.1, 0.9, **own),
    "RMSProp": lambda p, **own: nn.RMSProp(p, 0.1, **own),
    "Adam": lambda p, **own: nn.Adam(p, 0.1, **own),
    "AdamW": lambda p, **own: nn.AdamW(p, 0.1, **own),
}


@pytest.mark.parametrize("dtype", [snncell.float32, snncell.float16])
@pytest.mark.parametrize("name", MAKERS)
def test_loss_scale_divides_gradients_first(name, dtype):
    values = []
    for scale in (1.0, 256.0):
        p = Parameter(Tensor([1.0, -2.0], dtype), name="p")
        optimiser = MAKERS[name]([p], weight_decay=0.125, loss_scale=scale)
        for gradient in ([0.5, 0.25], [-0.5, 1.0]):
            optimiser((Tensor(gradient, dtype) * scale,))
        values.append(p.asnumpy())
    np.testing.assert_array_equal(*values)


def test_invalid_loss_scales_raise():
    with pytest.raises(ArgumentError, match="loss_scale is a finite number above 0"):
        nn.SGD([P], 0.1, loss_scale=0.0)
    net = nn.Dense(2, 1)
    sgd = nn.SGD(net.trainable_params(), 0.1, loss_scale=8.0)
    with pytest.raises(ArgumentError, match=r"created with loss_scale=8 and divides gradients.* loss_scale=8\."):
        snncell.train.training_step(net, nn.MSELoss(), sgd)
