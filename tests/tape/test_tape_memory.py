"""The lifetime of objects on the tape, its cost, nested gradients, closures, and threads."""

import gc
import threading
import weakref

import numpy as np
import pytest

from snncell import Parameter, Tensor, nn, ops
from snncell.tape.state import RECORDING, Entry


def f64(value):
    return Tensor(np.array(value, np.float64))


class Twisted(nn.Cell):
    """x, with a custom gradient of sin(x), so that each order of derivatives is recognisable."""

    def construct(self, x):
        return x * 1.0

    def bprop(self, x, out, dout):
        return (dout * ops.sin(x),)


@pytest.fixture
def entries(monkeypatch):
    """Collect weak references to all entries that operations put on a tape."""
    found = []
    make = Entry.__init__

    def noting(self, op, *rest):
        make(self, op, *rest)
        if op is not None:  # not a source
            found.append(weakref.ref(self))

    monkeypatch.setattr(Entry, "__init__", noting)
    return found


def alive(entries):
    return sum(reference() is not None for reference in entries)


def test_kept_result_does_not_keep_the_graph(entries):
    gc.disable()  # because references alone must free a graph: waiting for the collector would fill the memory
    try:
        value, found = ops.value_and_grad(lambda a: ops.exp(ops.sin(a * a)).sum())(f64([1.0, 2.0]))
        assert len(entries) == 4
        assert alive(entries) <= 1  # the entry of the value itself
        value_entry = value._entry
        assert value_entry.parents == [] and value_entry.outputs is None and not value_entry.inputs
        del value, value_entry, found
        assert alive(entries) == 0
    finally:
        gc.enable()


def test_tensor_stored_while_recording_does_not_keep_the_graph(entries):
    kept = []

    def fn(a):
        b = ops.exp(a)
        c = b * b
        kept.append(c)
        return ops.sin(c).sum()

    ops.grad(fn)(f64([1.0, 2.0]))
    gc.collect()
    assert alive(entries) <= 1
    assert kept[0]._entry is None or kept[0]._entry.parents == []
    assert ops.grad(lambda z: (z * kept[0]).sum())(f64([1.0, 1.0])).asnumpy().tolist() == kept[0].asnumpy().tolist()


def test_unused_results_are_freed_while_recording(entries):
    counts = []

    def fn(a):
        for _ in range(50):
            ops.exp(a) * 2.0  # unused
            counts.append(alive(entries))
        return a * 2.0

    ops.grad(fn)(f64([1.0]))
    assert max(counts) == 0  # the result is freed directly after its statement


def test_arrays_unused_by_the_backward_pass_are_freed_while_recording():
    freed = []

    def fn(a):
        b = a + 1.0  # the gradient of an addition needs no values
        weakref.finalize(b._data, freed.append, "b")
        c = b + 2.0
        del b
        freed.append("next")
        return c

    ops.grad(fn)(f64(np.ones(1000)))
    assert freed[:2] == ["b", "next"]


def test_arrays_used_by_the_backward_pass_live_until_it_runs():
    freed = []

    def fn(a):
        b = ops.exp(a)
        weakref.finalize(b._data, freed.append, "b")
        c = b * b
        del b
        freed.append("next")
        return c

    ops.grad(fn)(f64(np.ones(1000)))
    assert freed == ["next", "b"]


def test_tape_creates_no_reference_cycles():
    gc.collect()
    gc.disable()
    try:
        net = nn.SequentialCell(nn.Dense(4, 4), Twisted())
        x = Tensor(np.ones((2, 4), np.float32))
        for _ in range(3):
            ops.grad(net, 0, net.trainable_params())(x)
        before = sum(type(o) is Entry for o in gc.get_objects())
        for _ in range(20):
            ops.grad(net, 0, net.trainable_params())(x)
        assert sum(type(o) is Entry for o in gc.get_objects()) == before
    finally:
        gc.enable()


# --- long chains ------------------------------------------------------------------------------------------------------


def chain(length):
    def fn(x):
        for _ in range(length):
            x = x + 1.0
        return x

    return fn


def test_ten_thousand_operations_do_not_overflow_or_recurse():
    assert ops.grad(chain(10_000))(f64(1.0)).item() == 1.0
    out, pull = ops.vjp(chain(10_000), f64(1.0))
    assert pull(f64(1.0))[0].item() == 1.0
    del out, pull  # freeing a graph of ten thousand entries must not recurse either


def test_dropping_an_unused_long_chain_does_not_overflow():
    out, _ = ops.vjp(chain(20_000), f64(1.0))
    del out, _
    gc.collect()


def test_work_grows_linearly_with_the_length(entries, monkeypatch):
    from snncell.tape.primitive import Primitive

    pulls = []
    pull = Primitive.pull
    monkeypatch.setattr(Primitive, "pull", lambda self, *rest: pulls.append(self.name) or pull(self, *rest))
    counted = {}
    for length in (100, 1000):
        entries.clear()
        pulls.clear()
        ops.grad(chain(length))(f64(1.0))
        counted[length] = (len(entries), len(pulls))
    assert counted == {100: (100, 100), 1000: (1000, 1000)}


def test_shared_intermediate_is_pulled_back_once(monkeypatch):
    from snncell.tape.primitive import Primitive

    pulls = []
    pull = Primitive.pull
    monkeypatch.setattr(Primitive, "pull", lambda self, *rest: pulls.append(self.name) or pull(self, *rest))

    def doubling(x):
        for _ in range(20):
            x = x + x  # 2^20 paths, 20 entries
        return x

    assert ops.grad(doubling)(f64(1.0)).item() == 2.0**20
    assert len(pulls) == 20


# --- threads ----------------------------------------------------------------------------------------------------------


def test_two_threads_compute_gradients_concurrently():
    rounds, failures = 40, []
    meet = threading.Barrier(2, timeout=60)

    def work(power):
        def fn(x):
            meet.wait()  # both threads are recording at the same time
            y = x
            for _ in range(power - 1):
                y = y * x
            meet.wait()
            return y

        try:
            for _ in range(rounds):
                found = ops.grad(fn)(f64(2.0)).item()
                assert found == power * 2.0 ** (power - 1)
        except BaseException as error:  # otherwise an assertion in a thread would be lost
            failures.append(error)
            meet.abort()

    threads = [threading.Thread(target=work, args=(power,)) for power in (3, 7)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_two_threads_share_a_cell_and_its_weights():
    net = nn.SequentialCell(nn.Dense(3, 3), Twisted())
    x = Tensor(np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3))
    gradient = ops.grad(net, 0, net.trainable_params())
    expected = gradient(x)
    results, start = {}, threading.Barrier(2, timeout=60)

    def work(name):
        start.wait()
        results[name] = [gradient(x) for _ in range(50)]

    threads = [threading.Thread(target=work, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for found in results["a"] + results["b"]:
        np.testing.assert_array_equal(found[0].asnumpy(), expected[0].asnumpy())
        for mine, theirs in zip(found[1], expected[1], strict=True):
            np.testing.assert_array_equal(mine.asnumpy(), theirs.asnumpy())
    assert len(results["a"]) == len(results["b"]) == 50


def test_another_thread_does_not_record_on_this_tape(entries):
    def elsewhere():
        assert RECORDING.tape is None
        ops.exp(f64(1.0))

    def fn(x):
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        return x * 2.0

    ops.grad(fn)(f64(1.0))
    assert len(entries) == 1


# --- higher-order gradients, closures, lifetime, and threads ----------------------------------------------------------


class Cube(nn.Cell):
    """x^3 with a custom gradient; each order uses operations of the next."""

    def construct(self, x):
        return x * x * x

    def bprop(self, x, out, dout):
        return (dout * 3.0 * x * x,)


# --- nesting ----------------------------------------------------------------------------------------------------------


def test_three_orders_through_a_custom_gradient_are_exact():
    g1, x = ops.grad(Cube()), f64(2.0)
    g2 = ops.grad(g1)
    g3 = ops.grad(g2)
    assert [g(x).item() for g in (g1, g2, g3, ops.grad(g3))] == [12.0, 12.0, 6.0, 0.0]


def test_three_orders_of_a_false_derivative_follow_the_custom_gradient():
    x = f64(0.7)
    g1 = ops.grad(Twisted())
    g2 = ops.grad(g1)
    found = [g(x).item() for g in (g1, g2, ops.grad(g2))]
    np.testing.assert_allclose(found, [np.sin(0.7), np.cos(0.7), -np.sin(0.7)], rtol=1e-15)


def test_composed_custom_gradients_have_second_derivatives():
    # d/dx of sin(x^3) 3 x^2, which is the gradient of twisted(cube(x))
    x = f64(1.1)
    net = nn.SequentialCell(Cube(), Twisted())
    u = 1.1**3
    first, second = ops.grad(net)(x).item(), ops.grad(ops.grad(net))(x).item()
    np.testing.assert_allclose(first, np.sin(u) * 3 * 1.1**2, rtol=1e-14)
    np.testing.assert_allclose(second, np.cos(u) * (3 * 1.1**2) ** 2 + np.sin(u) * 6 * 1.1, rtol=1e-14)


def test_custom_gradient_that_uses_its_output_is_differentiable():
    class Exp(nn.Cell):
        def construct(self, x):
            return ops.exp(x)

        def bprop(self, x, out, dout):
            return (dout * out,)

    x = f64(0.3)
    g = ops.grad(ops.grad(ops.grad(Exp())))
    np.testing.assert_allclose(g(x).item(), np.exp(0.3), rtol=1e-15)


def test_gradient_with_respect_to_the_incoming_gradient_is_correct():
    # The gradient with respect to the incoming gradient of a linear map is the map itself.
    def through(seed, x):
        _, pull = ops.vjp(lambda a: a * a * a, x)
        return pull(seed)[0]

    of_seed, of_x = ops.grad(through, (0, 1))(f64(2.0), f64(3.0))
    assert of_seed.item() == 27.0 and of_x.item() == 2.0 * 18.0


def test_mixed_second_derivative_of_input_and_weight_is_correct():
    w = Parameter(f64(3.0), name="w")
    inner = ops.grad(lambda x: w * w * x * x)  # 2 w^2 x
    assert ops.grad(inner, None, w)(f64(5.0)).item() == 4 * 3.0 * 5.0
    assert ops.grad(lambda x: ops.grad(lambda y: w * w * y * y, None, w)(x), 0)(f64(5.0)).item() == 4 * 3.0 * 5.0


def test_second_order_of_a_weight_in_two_nested_gradients_is_correct():
    w = Parameter(f64(2.0), name="w")
    inner = ops.grad(lambda: w * w * w, None, w)
    assert inner().item() == 12.0
    assert ops.grad(inner, None, w)().item() == 12.0


# --- perturbation confusion -------------------------------------------------------------------------------------------


def test_inner_gradient_treats_the_outer_variable_as_constant():
    # d/dx [x * d/dy (x + y)] is 1; a tape that confuses the two variables says 2.
    assert ops.grad(lambda x: x * ops.grad(lambda y: x + y)(f64(1.0)))(f64(1.0)).item() == 1.0


def test_inner_gradient_at_the_outer_variable_is_correct():
    # d/dx [x * (d/dy x y)(x)] = d/dx x^2
    assert ops.grad(lambda x: x * ops.grad(lambda y: x * y)(x))(f64(3.0)).item() == 6.0


def test_inner_variable_differs_from_the_same_tensor_outside():
    # d/dy (x y) at y = x, with respect to y only, is x: not 2 x.
    x = f64(3.0)
    assert ops.grad(lambda y: x * y)(x).item() == 3.0


def test_closure_over_the_outer_variable_keeps_its_gradient():
    def outer(x):
        inner = ops.grad(lambda y: y * y * x * x)  # 2 y x^2
        return inner(f64(5.0))

    assert ops.grad(outer)(f64(3.0)).item() == 2 * 5.0 * 2 * 3.0


def test_unrelated_inner_gradient_is_zero():
    assert ops.grad(lambda x: x * x + ops.grad(lambda y: x * 1.0)(x))(f64(4.0)).item() == 8.0


def test_value_of_an_inner_function_has_an_outer_gradient():
    def outer(x):
        value, slope = ops.value_and_grad(lambda y: y * y * y)(x)
        return value + slope  # x^3 + 3 x^2

    assert ops.grad(outer)(f64(2.0)).item() == 3 * 4.0 + 6 * 2.0


def test_stop_gradient_works_inside_and_outside_an_inner_gradient():
    assert ops.grad(lambda x: ops.grad(lambda y: ops.stop_gradient(x) * y * y)(x))(f64(3.0)).item() == 2 * 3.0
    assert ops.grad(lambda x: ops.stop_gradient(ops.grad(lambda y: y * y)(x)) * x)(f64(3.0)).item() == 6.0


# --- arguments --------------------------------------------------------------------------------------------------------


def test_same_tensor_as_two_arguments_gets_two_gradients():
    x = f64(3.0)
    of_first, of_second = ops.grad(lambda a, b: a * a * b, (0, 1))(x, x)
    assert of_first.item() == 18.0 and of_second.item() == 9.0


def test_parameter_as_argument_and_in_the_closure_gets_both_gradients():
    p = Parameter(f64(3.0), name="p")
    of_argument, of_weight = ops.grad(lambda a: a * p, 0, p)(p)
    assert of_argument.item() == 3.0 and of_weight.item() == 3.0


def test_gradient_of_an_unused_input_is_zeros_of_its_shape_and_dtype():
    found = ops.grad(lambda a, b: a, 1)(f64([1.0]), Tensor(np.ones((2, 3), np.float16)))
    assert found.shape == (2, 3) and found.dtype == "float16" and not found.asnumpy().any()


def test_gradient_of_a_constant_output_is_zeros():
    assert ops.grad(lambda a: f64([1.0, 2.0]))(f64([5.0])).asnumpy().tolist() == [0.0]


def test_gradient_of_a_returned_input_is_the_identity():
    assert ops.grad(lambda a: a)(f64([5.0, 6.0])).asnumpy().tolist() == [1.0, 1.0]
    assert ops.grad(lambda a: (a, a))(f64([5.0])).asnumpy().tolist() == [2.0]
