"""LRU: against complex loops, parallel scans and PyTorch's complex numbers; initial eigenvalues; cost; errors."""

import re

import numpy as np
import pytest

import snncell
from snncell import Tensor, nn, ops, testing
from snncell.errors import ArgumentError, ShapeError

T, B, C_IN, C_OUT, N = 9, 2, 3, 4, 5


def made(**options):
    return nn.LRU(C_IN, C_OUT, N, dtype="float64", **options)


def complex_weights(layer):
    """lambda, the scaled B, and C as NumPy arrays."""
    values = {name: p.asnumpy() for name, p in layer.parameters_dict().items()}
    b, c = (values[name][0] + 1j * values[name][1] for name in ("weight_in", "weight_out"))
    poles = np.exp(-np.exp(values["nu"]) + 1j * np.exp(values["theta"]))
    return poles, np.exp(values["gamma"])[:, None] * b, c


def test_lru_equals_a_complex_loop_and_a_parallel_scan():
    layer, x = made(return_states=True), np.random.default_rng(0).normal(size=(T, B, C_IN))
    poles, b, c = complex_weights(layer)
    h, expected = np.zeros((B, N), complex), []
    for now in x:
        h = poles * h + now @ b.T
        expected.append((h @ c.T).real + now @ layer.weight_skip.asnumpy().T)
    y, states = layer(Tensor(x))
    np.testing.assert_allclose(y.asnumpy(), expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(states[0].asnumpy() + 1j * states[1].asnumpy(), h, rtol=1e-12, atol=1e-12)
    drive = Tensor(x @ b.T)
    decay = layer.eigenvalues() * ops.ones_like(drive)
    scanned = ops.associative_scan(lambda p, q: (p[0] * q[0], q[0] * p[1] + q[1]), (decay, drive))[1]
    again = ops.real(ops.matmul(scanned, Tensor(c.T))) + ops.matmul(Tensor(x), layer.weight_skip.T)
    np.testing.assert_allclose(again.asnumpy(), expected, rtol=1e-12, atol=1e-12)
    first, states = layer(Tensor(x[:4]))
    second, _ = layer(Tensor(x[4:]), *states)  # a stream in two parts
    np.testing.assert_allclose(ops.concat([first, second]).asnumpy(), y.asnumpy(), rtol=1e-12, atol=1e-12)


def test_gradients_of_lru_equal_finite_differences():
    layer = made(has_skip=False)
    names = [p.name for p in layer.trainable_params()]
    assert names == ["nu", "theta", "gamma", "weight_in", "weight_out"]
    testing.check_grads(layer, Tensor(np.random.default_rng(1).normal(size=(T, B, C_IN))))


@pytest.mark.peer
def test_gradients_of_lru_equal_complex_autograd_of_torch(torch):
    layer, rng = made(), np.random.default_rng(2)
    x, seed = rng.normal(size=(T, B, C_IN)), rng.normal(size=(T, B, C_OUT))
    theirs = {n: torch.nn.Parameter(torch.tensor(p.asnumpy())) for n, p in layer.parameters_dict().items()}
    source = torch.tensor(x, requires_grad=True)
    poles = torch.exp(torch.complex(-torch.exp(theirs["nu"]), torch.exp(theirs["theta"])))
    b, c = (torch.complex(*theirs[name]) for name in ("weight_in", "weight_out"))
    h, ys = torch.zeros((B, N), dtype=torch.complex128), []
    for now in source:
        h = poles * h + torch.exp(theirs["gamma"]) * (now.to(h.dtype) @ b.T)
        ys.append((h @ c.T).real + now @ theirs["weight_skip"].T)
    (torch.stack(ys) * torch.tensor(seed)).sum().backward()
    params = layer.trainable_params()
    of_x, of_params = snncell.grad(lambda x: (layer(x) * Tensor(seed)).sum(), 0, params)(Tensor(x))
    for found, expected in zip((of_x, *of_params), (source, *theirs.values()), strict=True):
        np.testing.assert_allclose(found.asnumpy(), expected.grad.numpy(), rtol=1e-9, atol=1e-12)


def test_initial_eigenvalues_follow_their_papers():
    ring = nn.LRU(1, 1, 2000, radius=(0.5, 0.9), max_phase=1.0).eigenvalues().asnumpy()
    size, phase = np.abs(ring), np.angle(ring)
    assert size.min() >= 0.5 and size.max() <= 0.9 and phase.min() >= 0.0 and phase.max() <= 1.0
    assert np.mean(size**2) == pytest.approx((0.5**2 + 0.9**2) / 2, abs=0.02)  # uniform on the area of the ring
    n = np.arange(8)
    turns = {"s4d-lin": np.pi * n, "s4d-inv": 16 / np.pi * (16 / (2 * n + 1) - 1)}
    for how, turn in turns.items():
        found = nn.LRU(1, 1, 8, how, dtype="float64").eigenvalues().asnumpy()
        step = -2.0 * np.log(np.abs(found))  # the real part is -1/2
        assert step.min() >= 0.001 and step.max() <= 0.1
        np.testing.assert_allclose(found, np.exp(step * (-0.5 + 1j * turn)), atol=2e-6)
    given = np.array([0.9, 0.5j, -0.3 - 0.2j])
    layer = nn.LRU(1, 1, 3, given, dtype="float64")
    np.testing.assert_allclose(layer.eigenvalues().asnumpy(), given, atol=1e-6)
    np.testing.assert_allclose(np.exp(layer.gamma.asnumpy()), np.sqrt(1 - np.abs(given) ** 2), rtol=1e-12)


def test_any_parameters_are_stable():
    layer = nn.LRU(1, 1, 3)
    layer.nu.set_data(Tensor([-12.0, 0.0, 80.0]))
    layer.theta.set_data(Tensor([-80.0, 0.0, 5.0]))
    assert (np.abs(layer.eigenvalues().asnumpy()) < 1.0).all()
    assert np.isfinite(layer(ops.ones((5000, 1, 1))).asnumpy()).all()


def test_launches_do_not_depend_on_the_number_of_steps_and_bytes_grow_linearly():
    layer = nn.LRU(2, 2, 3)
    gradient = snncell.grad(lambda x: ops.square(layer(x)).sum(), 0, layer.trainable_params())

    def cost(steps):
        *_, total, _ = str(snncell.explain(gradient, ops.ones((steps, 2, 2)))).splitlines()
        counts = re.match(r"total: (\d+) loops, 2 loops over time, (\d+) calls", total).groups()
        amount, unit = re.search(r"reads and writes ([\d.]+) (kB|MB)", total).groups()
        return counts, float(amount) * {"kB": 1e3, "MB": 1e6}[unit]

    (short, few), (long, many) = cost(1024), cost(16384)
    assert short == long
    assert many / few == pytest.approx(16.0, rel=0.02)


WRONG = [
    (lambda: nn.LRU(3, 5, 4, "s4"), ArgumentError, 'eigenvalue_init is "ring", "s4d-lin", .* not \'s4\''),
    (lambda: nn.LRU(3, 5, 4, [1j]), ArgumentError, r"\(state_size,\) = \(4,\), not complex128 of shape \(1,\)"),
    (
        lambda: nn.LRU(3, 5, 2, [0.5, 1.0]),
        ArgumentError,
        r"below 1, so that states decay, but one is 1. .*np.exp\(step",
    ),
    (lambda: nn.LRU(3, 5, 4, radius=(0.9, 1.1)), ArgumentError, r"radius must be a pair .* not \(0.9, 1.1\)"),
    (lambda: nn.LRU(3, 5, 4, max_phase=7.0), ArgumentError, "max_phase must be at most 2 pi, not 7"),
    (lambda: nn.LRU(3, 5, 4)(ops.ones((4, 3))), ShapeError, r"a sequence \(T, B, 3\) .* but has shape \(4, 3\)"),
    (
        lambda: nn.LRU(3, 5, 4)(ops.ones((4, 2, 3)), ops.ones((2, 4))),
        ShapeError,
        r"two Tensors re, im of shape \(B, N\) = \(2, 4\), not a Tensor",
    ),
]


@pytest.mark.parametrize(("call", "error", "text"), WRONG)
def test_errors_of_lru(call, error, text):
    with pytest.raises(error, match=text):
        call()
