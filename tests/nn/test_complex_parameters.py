"""Complex Parameters: gradients, clipping, each optimiser and checkpoints, against PyTorch."""

import numpy as np
import pytest

import snncell
from snncell import Parameter, Tensor, nn, ops, testing, train

# PyTorch adds the eps of RMSProp outside of the root, and that of AdaMax to each |gradient|. With 0 they are equal.
OPTIMISERS = {
    "SGD": (lambda p: nn.SGD(p, 0.125, 0.9, weight_decay=0.1), {"momentum": 0.9, "weight_decay": 0.1}),
    "Adam": (lambda p: nn.Adam(p, 0.125, weight_decay=0.1, use_amsgrad=True), {"amsgrad": True, "weight_decay": 0.1}),
    "AdamW": (lambda p: nn.AdamW(p, 0.125), {"weight_decay": 0.01}),
    "Adamax": (lambda p: nn.AdaMax(p, 0.125, eps=0.0), {"eps": 0.0}),
    "RMSprop": (
        lambda p: nn.RMSProp(p, 0.125, epsilon=0.0, centered=True),
        {"alpha": 0.9, "eps": 0.0, "centered": True},
    ),
}


def problem():
    """A complex matrix and vector, a real gain, and a target."""
    rng = np.random.default_rng(0)
    matrix, vector, target = (rng.normal(size=(2, *s)).T @ [1.0, 1j] for s in ((3, 4), (3,), (4,)))
    return [matrix, vector, rng.normal(size=3)], target


def loss_of(matrix, vector, gain, target, ops):
    """Products with complex and real numbers, a quotient, a conjugate, both parts and an absolute value."""
    h = (matrix @ (vector * gain) - target) / (vector.sum() + 4.0)
    return (ops.real(h) * ops.imag(ops.conj(h))).sum() + (ops.abs(h) ** 2).sum()


@pytest.mark.peer
@pytest.mark.compiled
@pytest.mark.parametrize("name", OPTIMISERS)
def test_clipped_steps_equal_torch(torch, name):
    """The gradient of a real loss for a + ib is dL/da + i dL/db in both."""
    starts, target = problem()
    ours, (make, options) = [Parameter(x, name=f"p{n}") for n, x in enumerate(starts)], OPTIMISERS[name]
    theirs = [torch.nn.Parameter(torch.tensor(x)) for x in starts]
    optimiser, other = make(ours), getattr(torch.optim, name)(theirs, 0.125, **options)
    goal = torch.tensor(target)

    def step():
        value, grads = snncell.value_and_grad(lambda: loss_of(*ours, Tensor(target), ops), None, ours)()
        optimiser(train.clip_by_global_norm(grads, 0.25))
        return value, grads

    step = snncell.jit(step) if name == "Adam" else step
    for _ in range(4):
        value, grads = step()
        other.zero_grad()
        expected = loss_of(*theirs, goal, torch)
        expected.backward()
        np.testing.assert_allclose(value.asnumpy(), expected.detach().numpy(), rtol=1e-9)
        for mine, their in zip(grads, theirs, strict=True):
            np.testing.assert_allclose(mine.asnumpy(), their.grad.numpy(), rtol=1e-9, atol=1e-12)
        norm = sum((p.grad.abs() ** 2).sum() for p in theirs).sqrt()  # PyTorch's own clipping adds 1e-6 to it
        for their in theirs:
            their.grad *= min(1.0, float(0.25 / norm))
        other.step()
        for mine, their in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(mine.asnumpy(), their.detach().numpy(), rtol=1e-9, atol=1e-11)


def test_gradients_of_real_and_imaginary_parts_pass_the_check():
    starts, target = problem()
    matrix, (re, im) = Tensor(starts[0]), map(Tensor, (starts[1].real, starts[1].imag))
    testing.check_grads(lambda re, im: loss_of(matrix, re + im * 1j, Tensor(starts[2]), Tensor(target), ops), re, im)


@pytest.mark.parametrize("bad", [np.inf, np.nan])
def test_loss_scaling_finds_overflow_in_both_parts(bad):
    finite = snncell.amp.all_finite
    assert finite([Tensor([1.0 + 2.0j])]).item()
    assert not finite([Tensor([complex(bad, 0.0)])]).item() and not finite([Tensor([complex(0.0, bad)])]).item()


def test_complex_parameters_are_saved_and_their_kinds_stay(tmp_path):
    p = Parameter(Tensor([1.0 + 2.0j, -3.0j]), name="p")
    optimiser = nn.Adam([p], 0.5)
    optimiser([Tensor([1.0, 1j])])
    assert (p.dtype, optimiser.moment2[0].dtype) == ("complex64", "float32")
    np.testing.assert_allclose(p.asnumpy(), [0.5 + 2.0j, -3.5j], rtol=1e-5)
    snncell.save_checkpoint([{"name": "p", "data": p}], tmp_path / "p.safetensors")
    assert (snncell.load_checkpoint(str(tmp_path / "p.safetensors"))["p"].asnumpy() == p.asnumpy()).all()
