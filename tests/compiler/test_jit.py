"""jit: values and gradients of the eager function for all layouts and structures, and when it traces again."""

from __future__ import annotations

import re
from collections import namedtuple
from typing import Any

import numpy as np
import pytest
from interpreting import interpreted

from snncell import Parameter, Tensor, explain, grad, jit, nn, ops, surrogate, value_and_grad

__all__ = ["interpreted"]  # a fixture

Pair = namedtuple("Pair", "left right")


def normal(*shape: int, dtype: Any = np.float32, seed: int = 0) -> Any:
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


def same(found: Any, expected: Any, rtol: float = 0.0) -> None:
    """Assert equal dtypes and values, bit for bit unless a relative tolerance is given."""
    assert found.dtype is expected.dtype
    assert found.shape == expected.shape
    np.testing.assert_allclose(found.asnumpy(), expected.asnumpy(), rtol=rtol, atol=rtol)


def arithmetic(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    return x * y - x / 3.0, x > y, ops.maximum(x, y) * 2, ops.where(x < 0, y, x)


# --- values -----------------------------------------------------------------------------------------------------------


@pytest.mark.sampled(6)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    "shapes", [((3, 4), (3, 4)), ((3, 4), (4,)), ((3, 1), (1, 4)), ((), (3,)), ((), ()), ((0, 4), (4,))]
)
def test_arithmetic_equals_eager_mode(shapes: Any, dtype: Any) -> None:
    x, y = (Tensor(normal(*shape, dtype=dtype, seed=seed)) for seed, shape in enumerate(shapes))
    for found, expected in zip(jit(arithmetic)(x, y), arithmetic(x, y), strict=True):
        same(found, expected)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("dtype", "rtol"), [(np.float32, 2e-6), (np.float64, 4e-15)])
def test_functions_and_sums_agree_with_eager_mode(dtype: Any, rtol: float) -> None:
    def f(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
        h = ops.tanh(x @ w)
        return h, ops.softmax(h), h.sum(axis=0), h.var(axis=1), ops.logsumexp(h, axis=1), ops.gelu(h).mean()

    x, w = Tensor(normal(6, 5, dtype=dtype)), Tensor(normal(5, 33, dtype=dtype, seed=1))
    for found, expected in zip(jit(f)(x, w), f(x, w), strict=True):
        same(found, expected, rtol)


LAYOUTS = {
    "transposed": lambda x: ops.transpose(x, (1, 0)),
    "sliced": lambda x: x[1:, ::2],
    "flipped": lambda x: x[::-1, ::-1],
    "column": lambda x: x[:, 1],
    "broadcast": lambda x: ops.broadcast_to(x[:1], (5, 6)),
    "one element": lambda x: x[2, 3],
    "nothing": lambda x: x[:, :0],
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_strided_inputs_equal_eager_mode(layout: str) -> None:
    x = LAYOUTS[layout](Tensor(normal(5, 6)))

    def f(x: Tensor) -> tuple[Tensor, ...]:
        return x * 2.0 + 1.0, x.sum(), ops.reshape(x, (-1,)) - 1.0

    for found, expected in zip(jit(f)(x), f(x), strict=True):
        same(found, expected, 1e-6)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_views_inside_a_jitted_function_equal_eager_mode(layout: str) -> None:
    view = LAYOUTS[layout]
    x = Tensor(normal(5, 6))
    same(jit(lambda x: view(x * 2.0) + 1.0)(x), view(x * 2.0) + 1.0)
    same(jit(lambda x: view(x))(x), view(x))  # the result itself is a view


WIDE = {
    "product": (lambda x: x * 1e300, np.float32),
    "comparison of floats": (lambda x: x < 1e300, np.float32),
    "comparison of integers": (lambda x: x < 300, np.int8),
}


@pytest.mark.parametrize("name", WIDE)
def test_numbers_outside_the_range_of_the_dtype_equal_eager_mode(name: str) -> None:
    f, dtype = WIDE[name]
    x = Tensor(np.array([1, -2], dtype))
    same(jit(f)(x), f(x))


def test_zero_and_minus_zero_arguments_are_traced_separately() -> None:
    f = jit(lambda x, s: 1.0 / (x * s))
    assert f(Tensor([1.0]), 0.0).item() == np.inf
    assert f(Tensor([1.0]), -0.0).item() == -np.inf


@pytest.mark.parametrize("name", ["sub", "mul", "floor_div", "mod", "maximum"])
def test_two_booleans_combine_or_raise_as_in_eager_mode(name: str) -> None:
    agree(getattr(ops, name), Tensor([True, False, True]), Tensor([True, True, False]))


@pytest.mark.parametrize("name", ["neg", "sign", "round", "relu", "isfinite", "square", "floor"])
def test_boolean_operations_convert_or_raise_as_in_eager_mode(name: str) -> None:
    agree(getattr(ops, name), Tensor([True, False]))


def agree(f: Any, *inputs: Tensor) -> None:
    try:
        expected = f(*inputs)
    except TypeError as error:
        with pytest.raises(type(error)):
            jit(f)(*inputs)
    else:
        same(jit(f)(*inputs), expected)


# --- structures and arguments -----------------------------------------------------------------------------------------


def test_structures_are_accepted_and_returned() -> None:
    def f(pair: Any, options: dict[str, Any]) -> Any:
        (a, [b, c]), scale = pair, options["scale"]
        return {"sum": a + b, "parts": [a * scale, (c, None)], "named": Pair(b, "text"), "count": 3}

    x, y, z = (Tensor(normal(3, seed=seed)) for seed in range(3))
    found = jit(f)((x, [y, z]), {"scale": 2.0, "unused": z})
    assert list(found) == ["sum", "parts", "named", "count"]
    same(found["sum"], x + y)
    same(found["parts"][0], x * 2.0)
    same(found["parts"][1][0], z)
    assert found["parts"][1][1] is None and isinstance(found["parts"][1], tuple)
    assert isinstance(found["named"], Pair) and found["named"].right == "text"
    assert found["count"] == 3


def test_named_tuples_are_accepted() -> None:
    same(jit(lambda pair: pair.left - pair.right)(Pair(Tensor([3.0]), Tensor([1.0]))), Tensor([2.0]))


def test_numpy_arrays_are_traced_as_tensors() -> None:
    a = normal(3)
    found = jit(lambda x, rest: x + rest["y"][0])(a, {"y": [a]})
    same(found, Tensor(a + a))
    a[0] = 99.0
    assert found.asnumpy()[0] != 198.0


def test_keywords_and_defaults_are_bound() -> None:
    f = jit(lambda x, scale=2.0, *, shift=0.0: x * scale + shift)
    x = Tensor([1.0])
    assert [f(x).item(), f(x, shift=1.0).item(), f(x, scale=3.0).item(), f(scale=x, x=x).item()] == [2.0, 3.0, 3.0, 1.0]


def test_returned_results_are_not_overwritten() -> None:
    f = jit(lambda x: (x + 1.0, (x + 1.0).sum()))
    first, total = f(Tensor([1.0, 2.0]))
    view = first.asnumpy()
    for value in (5.0, 6.0):
        f(Tensor([value, value]))
    assert view.tolist() == first.tolist() == [2.0, 3.0]
    assert total.item() == 5.0


# --- traces -----------------------------------------------------------------------------------------------------------


class Counted:
    """A function that counts the runs of its Python code."""

    def __init__(self, fn: Any) -> None:
        self.fn = fn
        self.runs: list[int] = []
        self.jitted = jit(self.run)

    def run(self, *args: Any, **kwargs: Any) -> Any:
        self.runs.append(1)  # reads nothing, so the trace does not depend on it
        return self.fn(*args, **kwargs)

    @property
    def traces(self) -> int:
        return len(self.runs)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.jitted(*args, **kwargs)


@pytest.mark.usefixtures("interpreted")
def test_each_signature_is_traced_once() -> None:
    f = Counted(lambda x, s=1.0: x * s)
    for seed in range(3):
        f(Tensor(normal(3, seed=seed)))
    assert f.traces == 1
    f(Parameter(normal(3), name="p"))  # a Parameter argument is traced as a Tensor
    f(normal(3))
    f(ops.transpose(Tensor(normal(3))))  # so is a view
    assert f.traces == 1


@pytest.mark.usefixtures("interpreted")
def test_other_shapes_dtypes_and_fixed_arguments_are_traced_once_each() -> None:
    f = Counted(lambda x, s=1: x * s)
    x = Tensor(normal(3))
    calls = [(x,), (Tensor(normal(4)),), (Tensor(normal(3, 1)),), (Tensor(normal(3, dtype=np.float64)),)]
    calls += [(x, 2.0), (x, True), (x, 1), (x, x)]  # eight, one fewer than the number that is reported
    for count, args in enumerate(calls, 1):
        f(*args)
        assert f.traces == count
    for args in calls:
        f(*args)
    assert f.traces == len(calls)


class Leak(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.tau = 2.0
        self.traces: list[int] = []

    def construct(self, x: Tensor) -> Tensor:
        self.traces.append(1)
        return x * self.tau * (10.0 if self.training else 1.0)


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("nested", [False, True])
def test_changed_cell_attribute_is_used(nested: bool) -> None:
    cell = Leak()
    net = nn.SequentialCell([nn.SequentialCell([cell])]) if nested else cell
    f = jit(net)
    x = Tensor([1.0])
    assert [f(x).item(), f(x).item()] == [2.0, 2.0]
    cell.tau = 2.5
    assert [f(x).item(), f(x).item()] == [2.5, 2.5]
    net.set_train()
    assert f(x).item() == 25.0
    net.set_train(False)
    assert f(x).item() == 2.5
    traces = len(cell.traces)
    net.set_train(False)
    cell.tau = 2.5  # no change
    f(x)
    assert len(cell.traces) == traces


@pytest.mark.usefixtures("interpreted")
def test_hook_registered_later_is_called() -> None:
    net = nn.ReLU()
    f = jit(net)
    x = Tensor([1.0])
    f(x)
    handle = net.register_forward_hook(lambda cell, inputs, out: out * 5.0)
    assert f(x).item() == 5.0
    handle.remove()
    assert f(x).item() == 1.0


@pytest.mark.usefixtures("interpreted")
def test_parameter_frozen_later_gets_no_gradient() -> None:
    w = Parameter([2.0], name="w")
    f = jit(lambda x: grad(lambda x: (x * w).sum(), None, weights=w)(x))
    assert f(Tensor([3.0])).item() == 3.0
    w.requires_grad = False
    with pytest.raises(TypeError, match="requires_grad=False"):
        f(Tensor([3.0]))


@pytest.mark.usefixtures("interpreted")
def test_smooth_spikes_have_a_separate_trace() -> None:
    f = jit(lambda x: nn.IFNode()(x, x)[0])
    x = Tensor([0.7])
    with surrogate.smooth():
        smooth = f(x).item()
    assert f(x).item() == 1.0
    assert 0.5 < smooth < 1.0


# --- decorators -------------------------------------------------------------------------------------------------------


@jit
def decorated(x: Tensor, scale: float = 2.0) -> Tensor:
    """Doubles."""
    return x * scale


@jit()
def decorated_with_brackets(x: Tensor) -> Tensor:
    return x * 2.0


def test_jit_decorates_functions() -> None:
    assert decorated(Tensor([1.0])).item() == decorated_with_brackets(Tensor([1.0])).item() == 2.0
    assert decorated.__name__ == "decorated" and decorated.__doc__ == "Doubles."


class WithMethods(nn.Cell):
    def __init__(self, tau: float) -> None:
        super().__init__()
        self.tau = tau
        self.weight = Parameter([3.0])

    @jit
    def scaled(self, x: Tensor) -> Tensor:
        return x * self.tau * self.weight

    @jit
    def construct(self, x: Tensor) -> Tensor:
        return x * self.tau


@pytest.mark.usefixtures("interpreted")
def test_jit_decorates_methods() -> None:
    first, second = WithMethods(2.0), WithMethods(5.0)
    x = Tensor([1.0])
    assert (first.scaled(x).item(), second.scaled(x).item(), first.scaled(x).item()) == (6.0, 15.0, 6.0)
    first.weight.set_data([4.0])
    assert first.scaled(x).item() == 8.0


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("method", ["scaled", "construct", "__call__"])
def test_decorated_method_uses_changed_attributes(method: str) -> None:
    net = WithMethods(2.0)
    x = Tensor([1.0])
    before = getattr(net, method)(x).item()
    net.tau = 4.0
    assert getattr(net, method)(x).item() == 2 * before


# --- explain ----------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("interpreted")
def test_explain_names_operations_lines_and_launches() -> None:
    w = Parameter(normal(4, 5), name="w")

    def layer(x: Tensor) -> Tensor:
        h = x @ w
        return ops.tanh(h + 1.0)  # explained

    x = Tensor(normal(3, 4))
    launches, program = (explain(layer, x, detail=detail) for detail in ("launches", "program"))
    assert launches.startswith("layer: 1 loop, 0 loops over time, 1 call, 0 views; ")
    assert "matmul(%0, %1)" in program and "Parameter w" in program
    assert "call matmul" in launches and "test_jit.py" in launches and "h = x @ w" in launches
    assert "loop loop_add_tanh over (15,), one thread" in launches
    assert re.search(r"add tanh +test_jit\.py:\d+: return ops\.tanh\(h \+ 1\.0\)  # explained", launches)
    assert jit(layer).explain(x, detail="launches") == launches
    large = explain(lambda x: x * 2.0, ops.ones((800, 800)), detail="launches")
    assert "over (640000,), all threads" in large


@pytest.mark.usefixtures("interpreted")
def test_explain_runs_no_effects() -> None:
    count = Parameter([0.0], name="count", requires_grad=False)
    explain(lambda x: ops.assign_add(count, x), Tensor([1.0]))
    assert count.item() == 0.0


# --- training ---------------------------------------------------------------------------------------------------------


@pytest.mark.sampled(1)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_jitted_training_step_trains_as_the_eager_one(dtype: Any) -> None:
    x, labels = Tensor(normal(8, 5, dtype=dtype)), Tensor(np.arange(8) % 3)

    def trained(wrapper: Any) -> list[Any]:
        rng = np.random.default_rng(1)
        net = nn.SequentialCell([nn.Dense(5, 7), nn.Tanh(), nn.Dense(7, 3)])
        for _, cell in net.cells_and_names():
            for name, parameter in cell.parameters_and_names(expand=False):
                value = rng.normal(size=parameter.shape).astype(dtype)
                setattr(cell, name, Parameter(value, name=parameter.name))
        optimizer = nn.Adam(net.trainable_params(), 0.05)
        loss_fn = nn.CrossEntropyLoss()
        gradients = value_and_grad(lambda x: loss_fn(net(x), labels), None, weights=net.trainable_params())

        def step(x: Tensor) -> Tensor:
            loss, grads = gradients(x)
            optimizer(grads)
            return loss

        step = wrapper(step)
        losses = [step(x) for _ in range(5)]
        assert losses[-1].item() < losses[0].item()
        return [*losses, *net.trainable_params(), *optimizer.moment1, *optimizer.moment2, optimizer.global_step]

    for found, expected in zip(trained(jit), trained(lambda f: f), strict=True):
        same(found, expected, 2e-5 if dtype is np.float32 else 1e-12)


def test_number_changed_by_construct_is_reported() -> None:
    class Counts(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.calls = 0

        def construct(self, x: Tensor) -> Tensor:
            self.calls += 1
            return x * self.calls

    with pytest.warns(RuntimeWarning, match=r"Counts\.calls is changed inside a function that is traced.*ops\.assign"):
        jit(Counts())(ops.ones(3))
