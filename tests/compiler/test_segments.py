"""Segments: neighbouring loops in one launch equal separate launches bit for bit, for any number of threads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import snncell
from snncell import Tensor, jit, nn, ops
from snncell.compiler.runtime import launches
from snncell.compiler.runtime.launches import Segments
from snncell.compiler.runtime.plan import Plan
from snncell.kernels.numba import build

pytestmark = pytest.mark.compiled  # as Python, loops run one by one

SHAPES = [(), (1,), (7,), (0, 3), (5, 1), (33, 4), (2, 3, 5), (300,)]
DTYPES = ["float32", "float64", "int32", "bool", "complex64"]


def plan_of(fn: Any, *inputs: Tensor) -> Plan:
    """Return the plan of a jitted function."""
    fn(*inputs)
    (compiled,) = fn.compiled.values()
    plan: Plan = compiled.plan([x._data for x in inputs])
    return plan


def random_function(seed: int) -> tuple[Callable[..., Any], list[Tensor]]:
    """A function of several arrays that becomes many loops: of each array, of pairs of equal shape, and of sums."""
    rng = np.random.default_rng(seed)
    shapes = [SHAPES[int(rng.integers(len(SHAPES)))] for _ in range(5)]
    inputs = []
    for shape in shapes:
        values = rng.normal(size=shape) * 3
        inputs.append(Tensor(values.astype(str(rng.choice(DTYPES)))))
    turned = Tensor(np.asfortranarray(rng.normal(size=(6, 9)).astype(np.float32)))
    kinds = rng.integers(0, 4, len(shapes))

    def fn(*xs: Tensor) -> Any:
        found: list[Any] = []
        for x, kind in zip(xs, kinds, strict=True):
            y = (
                x * 2 + 1
                if x.dtype.category < 3 and kind
                else ops.square(x.astype("complex64" if x.dtype.category > 2 else "float32"))
            )
            found.append(y)
            if kind > 1:
                found.append(y.astype("float64").sum() if y.dtype.category < 3 else ops.real(y).sum())
            if kind > 2:
                found.append(ops.exp(found[-1] * 1e-3))  # uses the result of another loop
        total = sum(
            ops.real(f).astype("float64").sum() if f.dtype.category > 2 else f.astype("float64").sum() for f in found
        )
        return [*found, total, xs[-1] * total]

    return fn, [*inputs, turned][1:]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("size", [1, 1 << 40], ids=["shared", "one thread"])
@pytest.mark.parametrize("seed", range(30))
def test_combined_loops_equal_separate_loops_bit_for_bit(seed: int, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launches, "PARALLEL_SIZE", size)
    function, inputs = random_function(seed)
    kinds = len(inputs)
    fn = jit(lambda *xs: function(*xs, *([xs[0]] * (5 - kinds))))
    plan = plan_of(fn, *inputs)
    joined = [run for run in plan.runs if isinstance(run, Segments)]
    assert joined and len(plan.runs) < len(plan.launches)
    arrays = [x._data for x in inputs]
    for _ in range(2):  # the second run reuses the memory of the first
        together = plan.replay(arrays)
        plan.runs, runs = list(plan.launches), plan.runs
        alone = plan.replay(arrays)
        plan.runs = runs
        for one, other in zip(together, alone, strict=True):
            assert one.dtype == other.dtype and one.shape == other.shape
            np.testing.assert_array_equal(one, other)


def test_dependent_loops_do_not_share_a_parallel_launch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(launches, "PARALLEL_SIZE", 1)
    plan = plan_of(jit(lambda x, y: ((s := x.sum()), y * 2.0, y * s, x + s)), ops.ones((40, 3)), ops.ones(9))
    for run in plan.runs:
        if isinstance(run, Segments) and run.grain:
            written = {value for launch in run.launches for value in launch.group.writes}
            assert all(written.isdisjoint(launch.group.reads) for launch in run.launches)
    assert any(isinstance(run, Segments) and run.grain for run in plan.runs)


@pytest.mark.parametrize("optimiser", [nn.Adam, nn.AdamW, nn.RMSProp, lambda p: nn.SGD(p, 0.1, momentum=0.9)])
def test_optimiser_step_is_one_launch(optimiser: Any) -> None:
    net = nn.SequentialCell(nn.Dense(7, 5), nn.Dense(5, 4), nn.Dense(4, 3))
    weights = net.trainable_params()
    update = optimiser(weights)
    fn = jit(lambda *grads: (update(list(grads)), update.global_step.value())[1])
    plan = plan_of(fn, *[ops.ones(w.shape) for w in weights])
    assert len(plan.runs) == 1 < len(plan.launches)


def test_more_parameters_compile_no_new_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[Any] = []
    make = build._compile_kernel
    monkeypatch.setattr(build, "_compile_kernel", lambda name, *rest: built.append(name) or make(name, *rest))
    monkeypatch.setattr(build, "_built", {})
    counts = []
    for layers in (2, 6, 20):
        net = nn.SequentialCell(*[nn.Dense(4, 4) for _ in range(layers)])
        adam = nn.Adam(net.trainable_params())
        plan_of(jit(lambda *grads, adam=adam: adam(list(grads))), *[ops.ones(w.shape) for w in net.trainable_params()])
        counts.append(len(built))
    assert counts[0] > 0 and counts == [counts[0]] * 3


def test_only_small_loops_wait_for_the_next_loop() -> None:
    def fn(x: Tensor, w: Tensor) -> Any:
        total = (x + 1.0).sum(0)
        y = ops.matmul(x, w)
        return total * 2.0, y, y.sum()

    def order(rows: int) -> list[str]:
        plan = plan_of(jit(fn), ops.ones((rows, 8)), ops.ones((8, 8)))
        return ["product" if hasattr(launch, "instruction") else "loop" for launch in plan.launches]

    assert order(8)[0] == "product" and order(1 << 16)[0] == "loop"


def test_concurrent_python_threads_can_run_one_plan() -> None:
    fn = jit(lambda x, y: (x * 2.0, y + 1.0, (x * 3.0).sum(), ops.exp(y)))
    inputs = [(ops.full((50,), float(n)), ops.full((4, 5), 0.1 * n)) for n in range(4)]
    wanted = [[out.asnumpy() for out in fn(*pair)] for pair in inputs]
    wrong: list[int] = []

    def work(n: int) -> None:
        for _ in range(200):
            found = fn(*inputs[n])
            if any((a.asnumpy() != b).any() for a, b in zip(found, wanted[n], strict=True)):
                wrong.append(n)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_explain_lists_the_loops_of_one_launch() -> None:
    text = snncell.explain(lambda x, y: (x * 2.0, y + 1.0), ops.ones(3), ops.ones((4, 5)), detail="launches")
    assert "1 to 2 are one launch:" in text
