"""Gradients of gradients, what closes over what, what is kept alive, and several threads."""

import numpy as np

from snncell import Parameter, Tensor, nn, ops


def f64(value):
    return Tensor(np.array(value, np.float64))


class Cube(nn.Cell):
    """x^3 with its derivative written by hand, each order by operations of the next."""

    def construct(self, x):
        return x * x * x

    def bprop(self, x, out, dout):
        return (dout * 3.0 * x * x,)


class Twisted(nn.Cell):
    """x, whose reverse says sin(x): which order is which can be told apart."""

    def construct(self, x):
        return x * 1.0

    def bprop(self, x, out, dout):
        return (dout * ops.sin(x),)


# --- nesting ---------------------------------------------------------------------------------------------------------


def test_three_orders_through_a_custom_reverse_are_exact():
    g1, x = ops.grad(Cube()), f64(2.0)
    g2 = ops.grad(g1)
    g3 = ops.grad(g2)
    assert [g(x).item() for g in (g1, g2, g3, ops.grad(g3))] == [12.0, 12.0, 6.0, 0.0]


def test_three_orders_of_a_false_derivative_follow_the_reverse_not_the_forward():
    x = f64(0.7)
    g1 = ops.grad(Twisted())
    g2 = ops.grad(g1)
    found = [g(x).item() for g in (g1, g2, ops.grad(g2))]
    np.testing.assert_allclose(found, [np.sin(0.7), np.cos(0.7), -np.sin(0.7)], rtol=1e-15)


def test_composed_custom_reverses_differentiate_twice():
    # d/dx of sin(x^3) 3 x^2, which is the reverse of twisted(cube(x))
    x = f64(1.1)
    net = nn.SequentialCell(Cube(), Twisted())
    u = 1.1**3
    first, second = ops.grad(net)(x).item(), ops.grad(ops.grad(net))(x).item()
    np.testing.assert_allclose(first, np.sin(u) * 3 * 1.1**2, rtol=1e-14)
    np.testing.assert_allclose(second, np.cos(u) * (3 * 1.1**2) ** 2 + np.sin(u) * 6 * 1.1, rtol=1e-14)


def test_a_reverse_may_use_its_output_and_still_be_differentiated():
    class Exp(nn.Cell):
        def construct(self, x):
            return ops.exp(x)

        def bprop(self, x, out, dout):
            return (dout * out,)

    x = f64(0.3)
    g = ops.grad(ops.grad(ops.grad(Exp())))
    np.testing.assert_allclose(g(x).item(), np.exp(0.3), rtol=1e-15)


def test_a_gradient_in_dout_reaches_the_seed():
    # The gradient with respect to the incoming gradient of a linear map is the map itself.
    def through(seed, x):
        _, pull = ops.vjp(lambda a: a * a * a, x)
        return pull(seed)[0]

    of_seed, of_x = ops.grad(through, (0, 1))(f64(2.0), f64(3.0))
    assert of_seed.item() == 27.0 and of_x.item() == 2.0 * 18.0


def test_mixed_second_derivative_of_input_and_weight():
    w = Parameter(f64(3.0), name="w")
    inner = ops.grad(lambda x: w * w * x * x)  # 2 w^2 x
    assert ops.grad(inner, None, w)(f64(5.0)).item() == 4 * 3.0 * 5.0
    assert ops.grad(lambda x: ops.grad(lambda y: w * w * y * y, None, w)(x), 0)(f64(5.0)).item() == 4 * 3.0 * 5.0


def test_second_order_of_a_weight_that_is_watched_twice():
    w = Parameter(f64(2.0), name="w")
    inner = ops.grad(lambda: w * w * w, None, w)
    assert inner().item() == 12.0
    assert ops.grad(inner, None, w)().item() == 12.0


# --- perturbation confusion ------------------------------------------------------------------------------------------


def test_an_inner_gradient_does_not_see_the_outer_variable():
    # d/dx [x * d/dy (x + y)] is 1; a tape that confuses the two variables says 2.
    assert ops.grad(lambda x: x * ops.grad(lambda y: x + y)(f64(1.0)))(f64(1.0)).item() == 1.0


def test_an_inner_gradient_at_the_outer_variable_itself():
    # d/dx [x * (d/dy x y)(x)] = d/dx x^2
    assert ops.grad(lambda x: x * ops.grad(lambda y: x * y)(x))(f64(3.0)).item() == 6.0


def test_the_inner_variable_is_held_apart_from_the_same_tensor_outside():
    # d/dy (x y) at y = x, with respect to y only, is x: not 2 x.
    x = f64(3.0)
    assert ops.grad(lambda y: x * y)(x).item() == 3.0


def test_closing_over_the_outer_variable_keeps_its_gradient():
    def outer(x):
        inner = ops.grad(lambda y: y * y * x * x)  # 2 y x^2
        return inner(f64(5.0))

    assert ops.grad(outer)(f64(3.0)).item() == 2 * 5.0 * 2 * 3.0


def test_an_unrelated_inner_gradient_is_zero_and_harmless():
    assert ops.grad(lambda x: x * x + ops.grad(lambda y: x * 1.0)(x))(f64(4.0)).item() == 8.0


def test_a_value_of_an_inner_function_belongs_to_the_outer_one():
    def outer(x):
        value, slope = ops.value_and_grad(lambda y: y * y * y)(x)
        return value + slope  # x^3 + 3 x^2

    assert ops.grad(outer)(f64(2.0)).item() == 3 * 4.0 + 6 * 2.0


def test_stop_gradient_inside_and_outside_of_an_inner_gradient():
    assert ops.grad(lambda x: ops.grad(lambda y: ops.stop_gradient(x) * y * y)(x))(f64(3.0)).item() == 2 * 3.0
    assert ops.grad(lambda x: ops.stop_gradient(ops.grad(lambda y: y * y)(x)) * x)(f64(3.0)).item() == 6.0


# --- arguments -------------------------------------------------------------------------------------------------------


def test_the_same_tensor_as_two_arguments_gets_two_gradients():
    x = f64(3.0)
    of_first, of_second = ops.grad(lambda a, b: a * a * b, (0, 1))(x, x)
    assert of_first.item() == 18.0 and of_second.item() == 9.0


def test_a_parameter_as_argument_and_in_the_closure():
    p = Parameter(f64(3.0), name="p")
    of_argument, of_weight = ops.grad(lambda a: a * p, 0, p)(p)
    assert of_argument.item() == 3.0 and of_weight.item() == 3.0


def test_the_gradient_of_an_unused_input_is_zeros_of_its_shape_and_dtype():
    found = ops.grad(lambda a, b: a, 1)(f64([1.0]), Tensor(np.ones((2, 3), np.float16)))
    assert found.shape == (2, 3) and found.dtype == "float16" and not found.asnumpy().any()


def test_the_gradient_of_a_constant_output_is_zeros():
    assert ops.grad(lambda a: f64([1.0, 2.0]))(f64([5.0])).asnumpy().tolist() == [0.0]


def test_returning_the_input_is_the_identity():
    assert ops.grad(lambda a: a)(f64([5.0, 6.0])).asnumpy().tolist() == [1.0, 1.0]
    assert ops.grad(lambda a: (a, a))(f64([5.0])).asnumpy().tolist() == [2.0]


# --- memory ----------------------------------------------------------------------------------------------------------
