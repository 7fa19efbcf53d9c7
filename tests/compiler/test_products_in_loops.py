"""Matrix products in loops over time: fused into the kernel, hoisted before the loop, or run step by step."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from interpreting import plainly
from thread_counts import on_threads

import snncell
from snncell import Tensor, explain, explain_passes, grad, jit, nn, ops
from snncell.compiler.backends.cpu_loop import CPULoop
from snncell.kernels.products import gathers, matmul
from snncell.testing import unfused


@pytest.fixture
def eager_for_events(monkeypatch: pytest.MonkeyPatch) -> None:
    """Multiply products of any size and density by events."""
    monkeypatch.setattr(matmul, "limit", lambda *sizes: 2.0)
    monkeypatch.setattr(gathers, "FEWEST", (1, 1))


class Counted:
    """Count the products that loop kernels execute: of rows, and gradients of matrices."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = self.gradients = 0
        original, sorted_events = gathers.rows_of_events, gathers.sort_events

        def rows(*arguments: Any) -> Any:
            found = original(*arguments)
            self.count += found is not None
            return found

        def columns(*arguments: Any) -> Any:
            found = sorted_events(*arguments)
            self.gradients += found is not None
            return found

        monkeypatch.setattr("snncell.compiler.backends.event_products.gather_events", rows)
        monkeypatch.setattr("snncell.compiler.backends.event_products.sort_events", columns)


class Wide(nn.Cell):
    """Leaves of every shape that broadcasts against (B, N), and a second state."""

    def __init__(self, batch: int, width: int, dtype: Any, rng: Any) -> None:
        super().__init__()
        shapes = ((), (width,), (batch, 1), (batch, width))
        for n, shape in enumerate(shapes):
            setattr(self, f"p{n}", snncell.Parameter(Tensor(rng.uniform(0.2, 0.9, shape).astype(dtype)), name=f"p{n}"))

    def construct(self, x: Tensor, v: Tensor, u: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        v = v * self.p0 + x * self.p1 + u * self.p2
        return ops.tanh(v), v, u * 0.5 + v * self.p3

    def init_state(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return ops.zeros_like(x), ops.zeros_like(x)


class Fed(nn.Cell):
    """A neuron that takes a product of the same time step."""

    def __init__(self, dense: nn.Cell, cell: Wide) -> None:
        super().__init__()
        self.dense, self.cell = dense, cell

    def construct(self, x: Tensor, v: Tensor, u: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        out: tuple[Tensor, Tensor, Tensor] = self.cell(self.dense(x), v, u)
        return out

    def init_state(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.cell.init_state(self.dense(x))


def spikes(rng: Any, shape: tuple[int, ...], density: float, dtype: Any) -> Tensor:
    """Graded spikes, with empty rows and full rows."""
    x = rng.standard_normal(shape) * (rng.random(shape) < density)
    x.reshape(-1, shape[-1])[rng.random(x.size // shape[-1]) < 0.1] = 0
    x.reshape(-1, shape[-1])[rng.random(x.size // shape[-1]) < 0.05] = 1
    return Tensor(x.astype(dtype))


def network(kind: str, batch: int, inner: int, width: int, dtype: Any, rng: Any) -> nn.Cell:
    """A product, and a loop that uses it."""
    dense = nn.Dense(inner, width, has_bias=bool(rng.integers(2)), dtype=dtype)
    feedback = nn.Dense(width, width, dtype=dtype)
    soft = Wide(batch, width, dtype, rng)
    if kind == "product in the loop":
        return nn.MultiStep(Fed(dense, soft))
    loop = {
        "neuron": lambda: nn.MultiStep(soft),
        "recurrent": lambda: nn.MultiStep(nn.Recurrent(soft, feedback)),
        "products before and in the loop": lambda: nn.MultiStep(Fed(nn.Dense(width, width, dtype=dtype), soft)),
        "checkpoints": lambda: nn.MultiStep(soft, checkpoint_every=3),
        "dropout": lambda: nn.SequentialCell([nn.TimeFixedDropout(p=0.5), nn.MultiStep(soft)]),
    }[kind]()
    return nn.SequentialCell([dense, loop])


KINDS = ("neuron", "recurrent", "product in the loop", "products before and in the loop", "checkpoints", "dropout")


@pytest.mark.usefixtures("eager_for_events")
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.sampled(1)
def test_any_fused_product_equals_the_hoisted_one(kind: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng((KINDS.index(kind), seed))
    dtype = (np.float32, np.float64)[seed % 2]
    # With one time step, a bias stays outside the loop.
    steps, batch, inner = (int(rng.integers(least, 9)) for least in (2, 1, 1))
    width = int(rng.choice([1, 3, 17, 64, 70, 600]))
    x = spikes(rng, (steps, batch, inner), rng.choice([0.0, 0.1, 0.5, 1.0]), dtype)
    net = network(kind, batch, inner, width, dtype, rng).set_train(False)
    weights = net.trainable_params()

    def loss(x: Tensor) -> Tensor:
        out = net(x)
        return (out * out).sum()

    with unfused():
        expected = net(x), grad(loss, None, weights)(x), grad(loss)(x)
    monkeypatch.setattr(gathers, "CACHED", 1 << int(rng.integers(8, 20)))  # strips, or all columns at once
    # Neighbouring rows: time steps of a sample, or samples.
    monkeypatch.setattr(gathers, "ROWS", int(rng.integers(1, 40)))
    counted = Counted(monkeypatch)
    few_events = gathers._few_events
    for always in (True, False):  # inside the loop; outside, in the same launch
        monkeypatch.setattr(gathers, "_few_events", few_events if always else lambda *arguments: None)
        before, gradients = counted.count, counted.gradients
        found = jit(net)(x), jit(grad(loss, None, weights))(x), jit(grad(loss))(x)
        assert (counted.count > before) == always
        # Other networks have products or checkpoints in the backward pass, or a gradient for another layer.
        assert (counted.gradients > gradients) == (always and kind in ("neuron", "product in the loop", "dropout"))
        for one, other in zip(found, expected, strict=True):
            pairs = zip(one, other, strict=True) if isinstance(one, tuple) else [(one, other)]
            for a, b in pairs:
                scale = max(1.0, float(np.abs(b.asnumpy()).max(initial=0)))
                tolerance = (2e-5 if dtype is np.float32 else 1e-12) * scale
                np.testing.assert_allclose(a.asnumpy(), b.asnumpy(), rtol=0, atol=tolerance)


def layer(rng: Any, inner: int = 300, width: int = 70) -> tuple[nn.Cell, Tensor]:
    """A layer large enough for its product to look for events, and its input."""
    net = nn.SequentialCell([nn.Dense(inner, width), nn.MultiStep(nn.LIFNode())])
    return net, spikes(rng, (20, 10, inner), 0.05, np.float32)


def test_sparse_products_are_fused_and_dense_ones_are_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    net, x = layer(rng)
    counted = Counted(monkeypatch)
    jitted = jit(net)
    jitted(x)
    assert counted.count == 1
    jitted(ops.ones_like(x))
    assert counted.count == 1
    assert len(jitted.compiled) == 1
    limit = matmul.limit(200, 300, 70, np.dtype(np.float32), False)
    rule = f"in the loop, event-driven below {100 * limit:.2g} % of non-zero elements in the first operand"
    assert f"{rule}, else for all steps together before the loop" in explain(net, x, detail="launches")
    assert "= matmul(" in explain_passes(net, x).rsplit("multiply_in_loops:", 1)[1].split("program(")[2]


def test_product_with_another_consumer_stays_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    net, x = layer(np.random.default_rng(0))
    counted = Counted(monkeypatch)
    dense, neuron = net

    def both(x: Tensor) -> tuple[Tensor, Tensor]:
        current = ops.matmul(x, dense.weight.T)
        return neuron(current), current

    jit(both)(x)
    assert counted.count == 0


def test_gradient_for_another_consumer_is_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    net, x = layer(np.random.default_rng(0), width=140)
    counted = Counted(monkeypatch)
    jit(grad(lambda x: net(x).sum(), 0, net.trainable_params()))(x)
    assert counted.gradients == 0  # the gradient of x is a product of it too
    jit(grad(lambda x: net(x).sum(), None, net.trainable_params()))(x)
    assert counted.gradients == 1
    text = explain(grad(lambda x: net(x).sum(), None, net.trainable_params()), x, detail="launches")
    limit = matmul.limit(300, 200, 140, np.dtype(np.float32), True)
    assert (
        f"in the loop, event-driven below {100 * limit:.2g} % of non-zero elements in the first operand, else after"
        in text
    )


@pytest.mark.compiled
def test_results_have_equal_bits_on_any_number_of_threads(rng: Any) -> None:
    x = Tensor((rng.random((50, 24, 300)) < 0.05).astype(np.float32))
    found = set()
    for number in (1, 2, 2):
        with on_threads(number):
            # A new net, because blocks are chosen when a function is traced.
            snncell.set_seed(1)
            layers = [nn.Dense(300, 520), nn.MultiStep(nn.LIFNode()), nn.Dense(520, 140), nn.MultiStep(nn.LIFNode())]
            net = nn.SequentialCell(layers)
            gradient = snncell.jit(snncell.value_and_grad(lambda x: net(x).sum(), None, net.trainable_params()))  # noqa: B023
            found.add(b"".join(g.asnumpy().tobytes() for g in (net(x), *gradient(x)[1])))
    assert len(found) == 1


@pytest.mark.usefixtures("eager_for_events")
def test_second_order_gradients_through_products_in_loops_are_correct() -> None:
    rng = np.random.default_rng(3)
    net = network("neuron", 3, 5, 7, np.float64, rng)
    x = spikes(rng, (4, 3, 5), 0.4, np.float64)
    weights = net.trainable_params()

    def penalty(x: Tensor) -> Tensor:
        return sum(((g * g).sum() for g in grad(lambda x: (net(x) ** 2).sum(), None, weights)(x)), Tensor(0.0))

    with unfused():
        expected = grad(penalty, None, weights)(x)
    for one, other in zip(jit(grad(penalty, None, weights))(x), expected, strict=True):
        np.testing.assert_allclose(one.asnumpy(), other.asnumpy(), rtol=1e-9, atol=1e-12)


@pytest.mark.usefixtures("eager_for_events")
@pytest.mark.parametrize(
    ("steps", "axis"), [(1, 0), *product((20, 40), (None, 0, (0, 1), 2))]
)  # beyond 32 steps, sums over time have partial sums in float64
def test_sums_of_a_loop_with_a_product_equal_those_of_each_step(steps: int, axis: Any) -> None:
    rng = np.random.default_rng(steps)
    net = nn.SequentialCell(nn.Dense(16, 100), nn.MultiStep(nn.LIFNode(v_threshold=0.3)))
    x = spikes(rng, (steps, 7, 16), 0.2, np.float32)
    scale = Tensor(rng.standard_normal((steps, 7, 100), np.float32))

    def loss(x: Tensor) -> Tensor:
        return ((net(x) * scale).sum(axis) ** 2).sum()

    run = grad(loss, None, net.trainable_params())
    with unfused():
        expected = [loss(x), *run(x)]
    if axis == 0:
        results = [jit(loss)(x), *jit(run)(x)]
    else:  # loss and gradients in the same kernels
        value, gradients = jit(ops.value_and_grad(loss, None, net.trainable_params()))(x)
        results = [value, *gradients]
    for found, other in zip(results, expected, strict=True):
        size = max(1.0, float(np.abs(other.asnumpy()).max()))
        np.testing.assert_allclose(found.asnumpy(), other.asnumpy(), rtol=1e-4, atol=1e-5 * size)


@pytest.mark.usefixtures("eager_for_events")
def test_sums_of_many_samples_need_no_row_for_each_block(monkeypatch: pytest.MonkeyPatch) -> None:
    parts_of, sizes = CPULoop._parts, list[int]()

    def parts(self: CPULoop, blocks: int) -> list[Any]:
        found = parts_of(self, blocks)
        sizes.append(sum(x.size for x in found[4::5]))
        return found

    monkeypatch.setattr(CPULoop, "_parts", parts)
    rng = np.random.default_rng(0)
    net = nn.SequentialCell(nn.Dense(6, 20), nn.MultiStep(nn.LIFNode(v_threshold=0.3)))
    x, scale = spikes(rng, (2, 2000, 6), 0.2, np.float32), Tensor(rng.standard_normal((2, 2000, 20), np.float32))
    with plainly():
        found = jit(lambda x: (net(x) * scale).sum((0, 2)))(x)
    with unfused():
        expected = (net(x) * scale).sum((0, 2))
    np.testing.assert_allclose(found.asnumpy(), expected.asnumpy(), rtol=1e-4, atol=1e-5)
    assert max(sizes) <= 2000 * 20


@pytest.mark.sampled(2)
@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.int64, np.bool_])
def test_integer_matrices_multiply_in_a_loop(dtype: Any) -> None:
    rng = np.random.default_rng(0)
    x, w = (Tensor(rng.integers(0, 2, shape).astype(dtype)) for shape in ((4, 6, 37), (37, 37)))

    def step(v: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        v = ops.where(x, ops.matmul(v, w), x)
        return v, v

    def run(x: Tensor) -> Tensor:
        out: Tensor = ops.scan(step, x[0], x)[1]
        return out

    assert "one kernel" in explain(run, x, detail="launches")
    with unfused():
        expected = run(x)
    np.testing.assert_array_equal(jit(run)(x).asnumpy(), expected.asnumpy())


def test_matrices_with_many_rows_or_few_columns_stay_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Counted(monkeypatch)
    for inner, width in ((2049, 256), (300, 20)):
        net, x = layer(np.random.default_rng(0), inner, width)
        loss = grad(lambda x, net=net: net(x).sum(), None, net.trainable_params())
        jit(loss)(x)
        assert "in the loop, event-driven" not in explain(loss, x, detail="launches")
    assert counted.count == counted.gradients == 0


@pytest.mark.usefixtures("eager_for_events")
def test_rows_beyond_the_range_of_event_positions_are_correct() -> None:
    rng = np.random.default_rng(0)
    # The last row of weights is 80000 elements from the first, but positions have 16 bits.
    net, x = layer(rng, 200, 400)
    np.testing.assert_allclose(jit(net)(x).asnumpy(), net(x).asnumpy())
    weights = net.trainable_params()
    for one, other in zip(
        jit(grad(lambda x: net(x).sum(), None, weights))(x), grad(lambda x: net(x).sum(), None, weights)(x), strict=True
    ):
        np.testing.assert_allclose(one.asnumpy(), other.asnumpy(), rtol=1e-4, atol=1e-4)


@pytest.mark.usefixtures("eager_for_events")
def test_products_of_storage_formats_and_other_shapes_stay_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    net, x = layer(np.random.default_rng(0))
    counted = Counted(monkeypatch)
    weight = net[0].weight.astype(snncell.float16)
    out = jit(lambda x: net[1](ops.matmul(x, weight.T)))(x.astype(snncell.float16))
    assert out.dtype is snncell.float16
    # The whole batch shares one current, so the kernel has more elements than the product.
    jit(lambda x: ops.scan(lambda v, i: (v * 0.5 + i, v), ops.zeros((4, 70)), ops.matmul(x, net[0].weight.T))[1])(
        x[:, 0]
    )
    assert counted.count == 0


# --- products inside loops over time ----------------------------------------------------------------------------------

T, A, B, K, M = 3, 2, 4, 5, 6

# The axes of the left and right operand in a time step.
FORMS = {
    "vector and matrix": ((K,), (K, M)),
    "matrix and vector": ((B, K), (K,)),
    "rows": ((B, K), (K, M)),
    "rows along two axes": ((A, B, K), (K, M)),
    "one row": ((1, K), (K, M)),
    "no rows": ((0, K), (K, M)),
    "batches": ((A, B, K), (A, K, M)),
    "one matrix for a batch": ((B, K), (A, K, M)),
}
TIMES = ("neither", "left", "right", "both")  # the operands that differ from step to step
WANTED = ("sequence", "sum", "state", "gradient of the matrix")


def operands(form: str, moving: str) -> tuple[Tensor, Tensor]:
    rng = np.random.default_rng(0)
    left, right = FORMS[form]
    shapes = [(T, *left) if moving in ("left", "both") else left, (T, *right) if moving in ("right", "both") else right]
    x, y = (Tensor(rng.standard_normal(shape)) for shape in shapes)
    return x, y


def loop_products(moving: str, wanted: str, x: Tensor, y: Tensor) -> Tensor:
    """Return the products of all time steps, computed in a loop."""
    over_x, over_y = moving in ("left", "both"), moving in ("right", "both")
    xs = [ops.arange(T).astype("float64"), *([x] if over_x else []), *([y] if over_y else [])]

    def step(carry: Any, slices: list[Tensor]) -> tuple[Any, Any]:
        now = iter(slices[1:])
        a, b = next(now) if over_x else x, next(now) if over_y else y
        # The gradient is a contraction inside the loop.
        one = grad(lambda b: ops.tanh(a @ b).sum()) if wanted == "gradient of the matrix" else a.matmul
        out = one(b) * (1.0 + slices[0])
        return (carry * 0.5 + ops.tanh(out).sum(), out) if wanted == "state" else (carry, out)

    last, ys = ops.scan(step, ops.zeros((), "float64"), xs)
    if wanted == "sum":
        return ys.sum(0)
    return last if wanted == "state" else ys


@pytest.mark.sampled(34)
@pytest.mark.parametrize(("form", "moving", "wanted"), [*product(FORMS, TIMES, WANTED)])
def test_product_in_a_loop_equals_that_of_each_step(form: str, moving: str, wanted: str) -> None:
    x, y = operands(form, moving)

    def values(x: Tensor, y: Tensor) -> Tensor:
        return loop_products(moving, wanted, x, y)

    def loss(x: Tensor, y: Tensor) -> Tensor:
        out = values(x, y)
        return (out * out).sum()

    with unfused():
        expected = values(x, y), *grad(loss, (0, 1))(x, y)
    for compiled in (lambda f: f, jit):
        found = compiled(values)(x, y), *compiled(grad(loss, (0, 1)))(x, y)
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(one.asnumpy(), other.asnumpy(), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(("form", "moving"), [*product(("rows", "rows along two axes"), TIMES)])
def test_second_order_gradients_of_a_product_in_a_loop_are_correct(form: str, moving: str) -> None:
    x, y = operands(form, moving)

    def curved(x: Tensor, y: Tensor) -> Tensor:
        first = grad(lambda y: (ops.tanh(loop_products(moving, "sequence", x, y)) ** 2).sum())(y)
        return (first * first).sum()

    with unfused():
        expected = grad(curved, (0, 1))(x, y)
    for compiled in (lambda f: f, jit):
        for one, other in zip(compiled(grad(curved, (0, 1)))(x, y), expected, strict=True):
            np.testing.assert_allclose(one.asnumpy(), other.asnumpy(), rtol=1e-9, atol=1e-9)
