"""Gradient functions: what they refuse, and what they must not answer with zeros."""

import numpy as np
import pytest
from cells import bits

from snncell import Parameter, Tensor, ops
from snncell.errors import GradientError


@pytest.fixture
def x():
    return Tensor([1.0, 2.0, 3.0])


@pytest.fixture
def y():
    return Tensor([4.0, 5.0, 6.0])


# --- errors ----------------------------------------------------------------------------------------------------------

REFUSED = {
    "integers": (lambda a: a * 2, Tensor([1, 2]), {}, r"argument 0 has dtype Int64.*no gradient with respect to int"),
    "booleans": (lambda a: a, Tensor([True]), {}, r"argument 0 has dtype Bool"),
    "an integer deep inside": (lambda t: t[0], (Tensor(1.0), Tensor(1)), {}, r"argument 0 has dtype Int64"),
    "NumPy": (lambda a: a * 2, np.ones(3, np.float32), {}, r"argument 0 is a ndarray.*snncell\.Tensor"),
    "a Python number": (lambda a: a * 2, 3.0, {}, r"argument 0 is a float"),
    "no such argument": (lambda a: a, Tensor(1.0), {"grad_position": 1}, r"grad_position 1.*1 argument"),
    "text comes out": (lambda a: "text", Tensor(1.0), {}, r"returned no Tensor"),
    "nothing comes out": (lambda a: None, Tensor(1.0), {}, r"returned no Tensor"),
    "integers come out": (lambda a: a.astype("int32"), Tensor(1.0), {}, r"returned Int32.*Return floats"),
    "a Tensor as weight": (lambda a: a, Tensor(1.0), {"weights": [Tensor(1.0)]}, r"weights holds a Tensor"),
    "text as weights": (lambda a: a, Tensor(1.0), {"weights": "w"}, r"weights is a Parameter, or a tuple or list"),
    "a dict as weights": (
        lambda a: a,
        Tensor(1.0),
        {"weights": {"w": 1}},
        r"weights is a Parameter, or a tuple or list",
    ),
    "a frozen weight": (
        lambda a: a,
        Tensor(1.0),
        {"weights": Parameter(1.0, "f", requires_grad=False)},
        r"Parameter 'f' has requires_grad=False",
    ),
    "an integer weight": (lambda a: a, Tensor(1.0), {"weights": Parameter(1, "n")}, r"Parameter 'n' has dtype Int32"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_nonsense_is_refused_with_a_reason(case):
    fn, argument, options, message = REFUSED[case]
    with pytest.raises(GradientError, match=message):
        ops.grad(fn, **options)(argument)


def test_a_gradient_of_nothing_is_refused():
    with pytest.raises(GradientError, match="nothing to differentiate"):
        ops.grad(lambda a: a, None)
    with pytest.raises(GradientError, match="not a Tensor"):
        ops.grad(Tensor(1.0))


def test_an_empty_list_of_weights_is_an_empty_tuple(x):
    of_x, of_weights = ops.grad(lambda a: a * 2.0, 0, [])(x)
    assert bits(of_x) == [2.0, 2.0, 2.0] and of_weights == ()


def test_weights_that_are_no_collection_are_refused():
    with pytest.raises(GradientError, match="weights"):
        ops.grad(lambda a: a, 0, weights=3.0)(Tensor(1.0))


def test_a_function_that_fails_leaves_no_tape_behind(x):
    def fails(a):
        raise RuntimeError("inside")

    with pytest.raises(RuntimeError, match="inside"):
        ops.grad(fails)(x)
    p = Parameter(Tensor([1.0]), name="p")
    p.set_data(Tensor([2.0]))  # refused while a gradient is being recorded
    assert bits(p.value()) == [2.0]


def test_a_pull_kept_from_inside_a_finished_gradient_is_an_error_not_a_zero(x):
    kept = []

    def fn(a):
        out, pull = ops.vjp(lambda b: b * b, a)
        kept.append(pull)
        return out

    ops.grad(fn)(x)
    with pytest.raises(GradientError, match="freed"):
        kept[0](ops.ones(3))


@pytest.mark.parametrize(
    ("fn", "slope"),
    [
        (lambda a: a * 0.6, 0.6),
        (lambda a: 0.6 * a, 0.6),
        (lambda a: a / 0.6, 1 / 0.6),
        (lambda a: 0.6 / a, -0.6 / 0.3**2),
        (lambda a: a**1.1, 1.1 * 0.3**0.1),
        (lambda a: 0.6**a, np.log(0.6) * 0.6**0.3),
        (lambda a: (a - 0.1) * 0.7 - 0.2 * (0.3 - a), 0.9),
    ],
    ids=["a * c", "c * a", "a / c", "c / a", "a ** c", "c ** a", "sums"],
)
def test_a_python_number_keeps_its_digits_in_the_reverse(fn, slope):
    found = ops.grad(fn)(Tensor(np.float64(0.3)))
    assert found.dtype == "float64"
    np.testing.assert_allclose(found.item(), slope, rtol=1e-14)


# --- what must not be answered with zeros or nothing -----------------------------------------------------------------


def test_get_all_without_anything_to_differentiate_is_refused():
    with pytest.raises(GradientError, match="GradOperation"):
        ops.GradOperation(get_all=True)(lambda a: a * 2.0)(Tensor([1, 2]))


def test_vjp_with_aux_needs_a_tuple(x):
    with pytest.raises(GradientError, match="has_aux"):
        ops.vjp(lambda a: a * 2.0, x, has_aux=True)


@pytest.mark.parametrize("positions", [(0, 0), (0, -2)])
def test_a_position_named_twice_is_refused_or_answered_twice(x, y, positions):
    try:
        first, second = ops.grad(lambda a, b: a * b, positions)(x, y)
    except GradientError:
        return
    assert bits(first) == bits(second) == bits(y)
