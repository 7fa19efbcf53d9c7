"""Gradient functions: results for every combination of options, and errors."""

import numpy as np
import pytest
from cells import bits

import snncell
from snncell import Parameter, Tensor, nn, ops
from snncell.errors import GradientError, ShapeError


@pytest.fixture
def x():
    return Tensor([1.0, 2.0, 3.0])


@pytest.fixture
def y():
    return Tensor([4.0, 5.0, 6.0])


@pytest.fixture
def p():
    return Parameter(Tensor([2.0, 2.0, 2.0]), name="p")


@pytest.fixture
def q():
    return Parameter(Tensor([1.0, 0.0, -1.0]), name="q")


# --- structure of the result ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("position", [0, (0,)])
def test_one_position_returns_a_bare_gradient(x, y, position):
    found = ops.grad(lambda a, b: a * b, position)(x, y)
    assert isinstance(found, Tensor)
    assert bits(found) == bits(y)


def test_several_positions_return_a_tuple_in_their_order(x, y):
    found = ops.grad(lambda a, b: a * b, (0, 1))(x, y)
    assert type(found) is tuple and [bits(g) for g in found] == [bits(y), bits(x)]
    swapped = ops.grad(lambda a, b: a * b, (1, 0))(x, y)
    assert [bits(g) for g in swapped] == [bits(x), bits(y)]


def test_negative_position_counts_from_the_end(x, y):
    assert bits(ops.grad(lambda a, b: a * b, -1)(x, y)) == bits(x)


def test_bare_weight_returns_a_bare_gradient(x, p):
    found = ops.grad(lambda a: a * p, None, p)(x)
    assert isinstance(found, Tensor) and bits(found) == bits(x)


@pytest.mark.parametrize("container", [list, tuple, snncell.ParameterTuple])
def test_list_of_weights_returns_a_tuple(x, p, q, container):
    found = ops.grad(lambda a: a * p + q, None, container([p, q]))(x)
    assert type(found) is tuple and [bits(g) for g in found] == [bits(x), [1.0, 1.0, 1.0]]


def test_list_of_one_weight_returns_a_tuple_of_one(x, p):
    found = ops.grad(lambda a: a * p, None, [p])(x)
    assert type(found) is tuple and len(found) == 1 and bits(found[0]) == bits(x)


def test_position_and_bare_weight_return_a_pair(x, p):
    of_x, of_p = ops.grad(lambda a: a * p, 0, p)(x)
    assert bits(of_x) == bits(p.value()) and bits(of_p) == bits(x)


def test_positions_and_weights_return_a_pair_of_tuples(x, y, p, q):
    inputs, weights = ops.grad(lambda a, b: a * b * p + q, (0, 1), [p, q])(x, y)
    assert type(inputs) is tuple and type(weights) is tuple
    assert [bits(g) for g in inputs] == [bits(y * 2.0), bits(x * 2.0)]
    assert [bits(g) for g in weights] == [bits(x * y), [1.0, 1.0, 1.0]]


def test_position_and_list_of_one_weight_return_a_pair(x, p):
    of_x, of_p = ops.grad(lambda a: a * p, 0, [p])(x)
    assert isinstance(of_x, Tensor) and type(of_p) is tuple and len(of_p) == 1


def test_value_and_grad_also_returns_the_value(x):
    value, found = ops.value_and_grad(lambda a: (a * a).sum())(x)
    assert value.item() == 14.0 and bits(found) == [2.0, 4.0, 6.0]


def test_value_and_grad_with_weights_returns_both_gradients(x, p):
    value, (of_x, of_p) = snncell.value_and_grad(lambda a: (a * p).sum(), 0, p)(x)
    assert value.item() == 12.0 and bits(of_x) == [2.0, 2.0, 2.0] and bits(of_p) == bits(x)


def test_has_aux_differentiates_only_the_first_output(x):
    found, aux = ops.grad(lambda a: (a * a, a * 100.0, "note"), has_aux=True)(x)
    assert bits(found) == [2.0, 4.0, 6.0]
    assert type(aux) is tuple and bits(aux[0]) == [100.0, 200.0, 300.0] and aux[1] == "note"


def test_has_aux_of_value_and_grad_returns_the_other_outputs(x):
    (loss, aux), found = ops.value_and_grad(lambda a: ((a * a).sum(), a), has_aux=True)(x)
    assert loss.item() == 14.0 and bits(aux) == bits(x) and bits(found) == [2.0, 4.0, 6.0]


def test_has_aux_requires_a_tuple(x):
    with pytest.raises(GradientError, match=r"has_aux.*returns \(loss, \*aux\), not a Tensor"):
        ops.grad(lambda a: a, has_aux=True)(x)


def test_several_outputs_are_summed(x):
    assert bits(ops.grad(lambda a: (a * 2.0, a * a))(x)) == [4.0, 6.0, 8.0]


def test_integer_outputs_have_no_gradient(x):
    assert bits(ops.grad(lambda a: (a * 2.0, a > 1.0, a.astype("int32")))(x)) == [2.0, 2.0, 2.0]


def test_keyword_arguments_reach_the_function(x):
    assert bits(ops.grad(lambda a, *, scale: a * scale)(x, scale=3.0)) == [3.0, 3.0, 3.0]


def test_nested_inputs_return_a_gradient_of_the_same_structure(x, y):
    found = ops.grad(lambda t: t["a"] * t["more"][0] + t["more"][1])({"a": x, "more": [y, x]})
    assert list(found) == ["a", "more"] and isinstance(found["more"], list)
    assert bits(found["a"]) == bits(y)
    assert bits(found["more"][0]) == bits(x)
    assert bits(found["more"][1]) == [1.0, 1.0, 1.0]  # the same Tensor as "a", at a separate position


def test_grad_accepts_a_cell(x):
    layer = nn.Dense(3, 1)
    assert bits(ops.grad(layer)(x)) == bits(layer.weight.value()[0])


# --- GradOperation ----------------------------------------------------------------------------------------------------


def test_grad_operation_returns_a_bare_first_gradient(x, y):
    found = ops.GradOperation()(lambda a, b: a * b)(x, y)
    assert isinstance(found, Tensor) and bits(found) == bits(y)


def test_get_all_returns_a_tuple(x, y):
    assert [bits(g) for g in ops.GradOperation(get_all=True)(lambda a, b: a * b)(x, y)] == [bits(y), bits(x)]
    single = ops.GradOperation(get_all=True)(lambda a: a * 2.0)(x)
    assert type(single) is tuple and len(single) == 1


def test_get_all_omits_inputs_without_gradient(x, y):
    found = ops.GradOperation(get_all=True)(lambda a, n, b: a * b * n)(x, 3, y)
    assert [bits(g) for g in found] == [bits(y * 3.0), bits(x * 3.0)]


def test_get_by_list_returns_a_tuple_of_weight_gradients(x, p):
    found = ops.GradOperation(get_by_list=True)(lambda a: a * p, [p])(x)
    assert type(found) is tuple and bits(found[0]) == bits(x)


def test_get_all_and_get_by_list_return_a_pair_of_tuples(x, p):
    inputs, weights = ops.GradOperation(get_all=True, get_by_list=True)(lambda a: a * p, [p])(x)
    assert type(inputs) is tuple and type(weights) is tuple
    assert bits(inputs[0]) == [2.0, 2.0, 2.0] and bits(weights[0]) == bits(x)


def test_get_by_list_without_weights_raises(x):
    with pytest.raises(GradientError, match="the weights are missing"):
        ops.GradOperation(get_by_list=True)(lambda a: a)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("sens", [False, True])
@pytest.mark.parametrize("get_all", [False, True])
def test_get_by_list_of_a_cell_defaults_to_its_trainable_parameters(x, get_all, sens, compiled):
    """Without weights, a Cell's gradients are those of its trainable Parameters at the time of the call."""
    net = nn.Dense(3, 2)
    operation = ops.GradOperation(get_all, True, sens)
    given = (x[None], *([ops.full((1, 2), 3.0, x.dtype)] if sens else []))
    own, told = operation(net), operation(net, net.trainable_params())
    for gradient in (snncell.jit(own) if compiled else own, nn.ForwardValueAndGrad(net, None, get_all, True, sens)):
        found, expected = gradient(*given), told(*given)
        found = found[1] if isinstance(gradient, nn.Cell) else found
        assert len(found) == len(expected) == 2
        for mine, theirs in zip(found, expected, strict=True):
            assert [bits(g) for g in mine] == [bits(g) for g in theirs] if get_all else bits(mine) == bits(theirs)
    net.bias.requires_grad = False
    assert len(own(*given)[1] if get_all else own(*given)) == 1


@pytest.mark.parametrize("how", ["last argument", "keyword"])
def test_sens_param_is_the_initial_gradient(x, how):
    gradient = ops.GradOperation(sens_param=True)(lambda a: a * a)
    sens = Tensor([1.0, 10.0, 100.0])
    found = gradient(x, sens) if how == "last argument" else gradient(x, sens=sens)
    assert bits(found) == [2.0, 40.0, 600.0]


def test_sens_param_supports_several_outputs(x):
    gradient = ops.GradOperation(sens_param=True)(lambda a: (a, a * a))
    assert bits(gradient(x, (Tensor([1.0, 1.0, 1.0]), Tensor([0.0, 1.0, 0.0])))) == [1.0, 5.0, 1.0]


def test_sens_of_another_shape_raises(x):
    with pytest.raises(ShapeError, match=r"output 0 has shape \(2,\), the output itself \(3,\)"):
        ops.GradOperation(sens_param=True)(lambda a: a)(x, Tensor([1.0, 1.0]))


# --- vjp and stop_gradient --------------------------------------------------------------------------------------------


def test_vjp_pullback_can_be_called_repeatedly(x):
    out, pull = ops.vjp(lambda a: a * a, x)
    assert bits(out) == [1.0, 4.0, 9.0]
    assert bits(pull(Tensor([1.0, 0.0, 0.0]))[0]) == [2.0, 0.0, 0.0]
    assert bits(pull(Tensor([0.0, 0.0, 1.0]))[0]) == [0.0, 0.0, 6.0]


def test_vjp_supports_several_inputs_outputs_and_weights(x, y, p):
    _, pull = ops.vjp(lambda a, b: (a * p, b), x, y, weights=[p])
    (of_x, of_y), of_weights = pull(Tensor([1.0, 1.0, 1.0]), Tensor([5.0, 6.0, 7.0]))
    assert bits(of_x) == [2.0, 2.0, 2.0] and bits(of_y) == [5.0, 6.0, 7.0]
    assert type(of_weights) is tuple and bits(of_weights[0]) == bits(x)


def test_vjp_returns_none_for_an_integer_input(x):
    _, pull = ops.vjp(lambda a, n: a * n, x, Tensor([2, 2, 2]))
    of_x, of_n = pull(Tensor([1.0, 1.0, 1.0]))
    assert bits(of_x) == [2.0, 2.0, 2.0] and of_n is None


def test_vjp_with_aux_returns_the_aux_outputs(x):
    out, pull, aux = ops.vjp(lambda a: (a * 2.0, "kept"), x, has_aux=True)
    assert bits(out) == [2.0, 4.0, 6.0] and aux == ("kept",) and bits(pull(ops.ones(3))[0]) == [2.0, 2.0, 2.0]


def test_vjp_pullback_requires_one_gradient_per_output(x):
    _, pull = ops.vjp(lambda a: (a, a), x)
    with pytest.raises(GradientError, match=r"1 gradient\(s\) for 2 output\(s\)"):
        pull(ops.ones(3))


def test_stop_gradient_keeps_values_and_stops_the_gradient(x):
    assert bits(ops.stop_gradient(x)) == bits(x)
    assert bits(ops.grad(lambda a: a * ops.stop_gradient(a))(x)) == bits(x)
    assert bits(ops.grad(lambda a: ops.stop_gradient({"k": [a * a]})["k"][0])(x)) == [0.0, 0.0, 0.0]


def test_stop_gradient_of_a_parameter_is_its_present_value(x, p):
    kept = ops.stop_gradient(p)
    p.set_data(Tensor([0.0, 0.0, 0.0]))
    assert bits(kept) == [2.0, 2.0, 2.0]
    assert bits(ops.grad(lambda a: a * ops.stop_gradient(p), None, p)(x)) == [0.0, 0.0, 0.0]


# --- errors -----------------------------------------------------------------------------------------------------------

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
def test_invalid_arguments_raise_with_a_reason(case):
    fn, argument, options, message = REFUSED[case]
    with pytest.raises(GradientError, match=message):
        ops.grad(fn, **options)(argument)


def test_gradient_without_inputs_or_function_raises():
    with pytest.raises(GradientError, match="nothing to differentiate"):
        ops.grad(lambda a: a, None)
    with pytest.raises(GradientError, match="not a Tensor"):
        ops.grad(Tensor(1.0))


def test_empty_list_of_weights_returns_an_empty_tuple(x):
    of_x, of_weights = ops.grad(lambda a: a * 2.0, 0, [])(x)
    assert bits(of_x) == [2.0, 2.0, 2.0] and of_weights == ()


def test_weights_that_are_not_a_collection_raise():
    with pytest.raises(GradientError, match="weights"):
        ops.grad(lambda a: a, 0, weights=3.0)(Tensor(1.0))


def test_failing_function_leaves_no_active_tape(x):
    def fails(a):
        raise RuntimeError("inside")

    with pytest.raises(RuntimeError, match="inside"):
        ops.grad(fails)(x)
    p = Parameter(Tensor([1.0]), name="p")
    p.set_data(Tensor([2.0]))  # would raise while a gradient is being recorded
    assert bits(p.value()) == [2.0]


def test_pullback_used_after_its_enclosing_gradient_raises(x):
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
def test_python_numbers_keep_double_precision_in_the_backward_pass(fn, slope):
    found = ops.grad(fn)(Tensor(np.float64(0.3)))
    assert found.dtype == "float64"
    np.testing.assert_allclose(found.item(), slope, rtol=1e-14)


# --- errors instead of zero or empty gradients ------------------------------------------------------------------------


def test_get_all_without_differentiable_inputs_raises():
    with pytest.raises(GradientError, match="GradOperation"):
        ops.GradOperation(get_all=True)(lambda a: a * 2.0)(Tensor([1, 2]))


def test_vjp_with_aux_requires_a_tuple(x):
    with pytest.raises(GradientError, match="has_aux"):
        ops.vjp(lambda a: a * 2.0, x, has_aux=True)


@pytest.mark.parametrize("positions", [(0, 0), (0, -2)])
def test_repeated_position_raises_or_returns_both_gradients(x, y, positions):
    try:
        first, second = ops.grad(lambda a, b: a * b, positions)(x, y)
    except GradientError:
        return
    assert bits(first) == bits(second) == bits(y)
