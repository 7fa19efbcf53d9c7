"""Fusion: valid order of groups, and no more launches than recorded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from interpreting import interpreted, launches, traced

from snncell import Parameter, Tensor, explain, grad, jit, nn, ops
from snncell.compiler.fuse import FusionGroup, fuse
from snncell.compiler.ir.operations import MAX_INSTRUCTIONS, Elementwise, Reduction
from snncell.compiler.ir.program import Program

__all__ = ["interpreted"]  # a fixture

pytestmark = pytest.mark.usefixtures("interpreted")


def check_order(program: Program, groups: list[FusionGroup]) -> None:
    """Check that every instruction is present, possibly in several loops, and reads only complete values."""
    placed = Counter(id(step) for group in groups for step in group.instructions)
    assert placed.keys() == set(map(id, program.instructions))
    assert all(isinstance(step.op, Elementwise) for step in program.instructions if placed[id(step)] > 1)
    written = [value for group in groups for value in group.writes]
    assert len(written) == len(set(written))
    ready = {*program.inputs, *program.parameters.values(), *(value for _, value in program.constants)}
    for group in groups:
        inside: set[Any] = set()
        assert ready.issuperset(group.reads)
        for step in group.instructions:
            arriving = {x for x in step.inputs if hasattr(x, "number")}
            assert arriving <= inside | set(group.reads)
            # A reduction is complete only after its loop has ended, so nothing in the loop may read it.
            if not isinstance(step.op, Reduction):
                inside.update(step.outputs)
        ready.update(group.writes)
    assert ready.issuperset(program.results())


# --- random graphs ----------------------------------------------------------------------------------------------------


def bounded(x: Tensor) -> Tensor:
    """Keep values small integers, so that sums are exact in any order and results are equal bit for bit."""
    return ops.clip(x, -9.0, 9.0)


def rows(x: Tensor) -> Tensor:
    return ops.broadcast_to(x, (3, 4))


ACTIONS: list[Callable[[Tensor, Tensor], Tensor]] = [
    lambda a, b: bounded(a + b),
    lambda a, b: bounded(a * b),
    lambda a, b: bounded(a - b),
    lambda a, b: ops.where(a > b, a, -b),
    lambda a, b: ops.maximum(a, b),
    lambda a, b: bounded(a.sum(axis=0)),
    lambda a, b: bounded(a.sum(axis=-1, keepdims=True)),
    lambda a, b: rows(a).max(axis=0, keepdims=True),
    lambda a, b: bounded(rows(a).sum()),
    lambda a, b: ops.reshape(ops.transpose(rows(a), (1, 0)), (3, 4)),
    lambda a, b: bounded(rows(a) @ ops.transpose(rows(b), (1, 0)) @ rows(a)),
    lambda a, b: ops.reshape(bounded(rows(a) + b), (12,)).sum() - a,
]
INSTRUCTIONS = st.lists(
    st.tuples(st.integers(0, len(ACTIONS) - 1), st.integers(0, 30), st.integers(0, 30)), min_size=1, max_size=14
)


def graph(instructions: list[tuple[int, int, int]]) -> Callable[..., list[Tensor]]:
    """Return a function that applies the instructions to the values computed so far."""

    def f(*inputs: Tensor) -> list[Tensor]:
        pool = list(inputs)
        for action, i, j in instructions:
            a, b = pool[i % len(pool)], pool[j % len(pool)]
            if a.ndim == 0:
                a = rows(a)
            pool.append(ACTIONS[action](a, b))
        return pool[len(inputs) :]

    return f


RNG = np.random.default_rng(0)
INPUTS = [Tensor(RNG.integers(-3, 4, shape).astype(np.float64)) for shape in ((3, 4), (4,), (3, 1), (3, 4))]


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(INSTRUCTIONS)
def test_random_fused_graphs_equal_single_instructions(instructions: list[tuple[int, int, int]]) -> None:
    f = graph(instructions)
    program = traced(f, *INPUTS)
    check_order(program, fuse(program))
    for found, expected in zip(jit(f)(*INPUTS), f(*INPUTS), strict=True):
        assert found.dtype is expected.dtype
        np.testing.assert_array_equal(found.asnumpy(), expected.asnumpy(), strict=True)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(INSTRUCTIONS)
def test_random_graphs_return_their_last_result(instructions: list[tuple[int, int, int]]) -> None:
    # With one result most instructions are dead or die early, so the plan frees their slots while it runs.
    f = graph(instructions)
    last = jit(lambda *inputs: f(*inputs)[-1])(*INPUTS)
    np.testing.assert_array_equal(last.asnumpy(), f(*INPUTS)[-1].asnumpy(), strict=True)


# --- what fusion joins ------------------------------------------------------------------------------------------------


def x84() -> Tensor:
    return Tensor(np.random.default_rng(1).normal(size=(8, 4)).astype(np.float32))


def test_reduction_joins_its_producer() -> None:
    (group,) = fuse(traced(lambda x: (ops.exp(x) * 2.0).sum(axis=0), x84()))
    assert [step.op.name for step in group.instructions] == ["exp", "mul", "sum"]
    assert group.axes == (0,)
    assert len(group.reads) == len(group.writes) == 1


def test_only_reductions_over_equal_axes_share_a_loop() -> None:
    assert launches(lambda x: (x.sum(axis=0), x.max(axis=0), ops.square(x).sum(axis=0)), x84()) == (1, 0)
    assert launches(lambda x: (x.sum(axis=0), x.sum(axis=1)), x84()) == (2, 0)


def test_consumer_of_a_reduction_runs_after_its_loop() -> None:
    program = traced(lambda x: x - x.sum(axis=1, keepdims=True), x84())
    groups = fuse(program)
    assert [[step.op.name for step in group.instructions] for group in groups] == [["sum"], ["sub"]]


def test_independent_instructions_stay_apart() -> None:
    # Joining them would save no memory traffic and would make one wait for the other.
    assert launches(lambda x, y: (x + 1.0, y + 1.0), x84(), x84()) == (2, 0)


def test_call_separates_a_run() -> None:
    assert launches(lambda x: ops.exp((x + 1.0) @ (x.T + 1.0)), x84()) == (3, 2)


@pytest.mark.parametrize("length", [1, MAX_INSTRUCTIONS, MAX_INSTRUCTIONS + 1, 3 * MAX_INSTRUCTIONS])
def test_loops_do_not_exceed_the_size_limit(length: int) -> None:
    def chain(x: Tensor) -> Tensor:
        for _ in range(length):
            x = x + 1.0
        return x

    groups = fuse(traced(chain, x84()))
    assert max(len(group.instructions) for group in groups) <= MAX_INSTRUCTIONS
    assert len(groups) == -(-length // MAX_INSTRUCTIONS)
    np.testing.assert_array_equal(jit(chain)(Tensor([0.0])).asnumpy(), [float(length)])


def test_dtypes_without_loops_run_in_numpy() -> None:
    assert launches(lambda x: x * 2.0 + 1.0, Tensor(np.ones(3, np.complex128))) == (0, 2)


def test_float16_is_rounded_after_each_operation_as_in_eager_mode() -> None:
    def f(x: Tensor) -> Tensor:
        return x * x * x / 1000.0

    x = Tensor(np.array([0.1, 30.0, 300.0], np.float16))
    assert launches(f, x) == (1, 0)
    np.testing.assert_array_equal(jit(f)(x).asnumpy(), f(x).asnumpy())
    assert jit(lambda x: x.sum())(Tensor(np.full(5000, 0.3, np.float16))).item() == 1500.0


def test_only_values_used_later_leave_a_loop() -> None:
    (group,) = fuse(traced(lambda x: ops.exp(x + 1.0) * 2.0, x84()))
    assert [value.number for value in group.writes] == [group.instructions[-1].outputs[0].number]


# --- number of launches -----------------------------------------------------------------------------------------------

W = Parameter(np.ones((4, 5), np.float32), name="w")
B = Parameter(np.ones(5, np.float32), name="b")


def layer(x: Tensor) -> Tensor:
    return ops.tanh(x @ W + B)


def normalise(x: Tensor) -> Tensor:
    return (x - x.mean(axis=-1, keepdims=True)) / ops.sqrt(x.var(axis=-1, keepdims=True) + 1e-5)


def spikes(x: Tensor) -> Tensor:
    return nn.LIFNode()(x, x)[0].sum()


# Recorded (loops, calls). If fusion improves, lower the number. A higher number is a regression.
COUNTS: list[tuple[str, Callable[..., Any], tuple[int, int]]] = [
    ("layer", layer, (1, 1)),
    ("layer, forward and backward", grad(lambda x: layer(x).sum(), 0, weights=[W, B]), (2, 7)),
    ("layer, gradients of weights", grad(lambda x: layer(x).sum(), None, weights=[W, B]), (2, 5)),
    ("softmax", ops.softmax, (3, 0)),
    ("gelu", ops.gelu, (1, 0)),
    ("variance", lambda x: x.var(axis=0), (4, 0)),
    ("layer norm", normalise, (5, 0)),
    ("LIF neuron", lambda x: nn.LIFNode()(x, x), (1, 0)),
    ("LIF neuron, backward", grad(spikes), (2, 2)),
]


@pytest.mark.parametrize(("fn", "most"), [row[1:] for row in COUNTS], ids=[row[0] for row in COUNTS])
def test_launches_do_not_increase(fn: Callable[..., Any], most: tuple[int, int]) -> None:
    loops, calls = launches(fn, x84())
    assert loops <= most[0]
    assert calls <= most[1]


def test_adam_step_needs_at_most_three_loops_per_parameter() -> None:
    optimizer = nn.Adam([W, B])

    def step(g: Tensor, h: Tensor) -> None:
        optimizer([g, h])

    loops, calls = launches(step, ops.ones((4, 5)), ops.ones((5,)))
    assert loops <= 1 + 3 * 2  # one for the bias corrections, which are numbers
    assert calls == 0


def test_float16_operands_are_read_without_conversion() -> None:
    def f(x: Tensor) -> list[Tensor]:
        scaled, third = x * 1024.0, x * 0.3333
        return [scaled, ops.isfinite(scaled), third, third >= 0.25, x.astype("float16").astype("float32") - x]

    x = Tensor(np.linspace(0.7, 100.0, 2000).astype(np.float16))
    scaled, finite, third, above, _ = (t.asnumpy() for t in jit(f)(x))
    np.testing.assert_array_equal(finite, np.isfinite(scaled))
    assert finite.any() and not finite.all()
    np.testing.assert_array_equal(above, third >= np.float16(0.25))
    wide = Tensor(np.array([0.1, 70000.0, 1e-8, -0.0, np.nan], np.float32))
    np.testing.assert_array_equal(jit(f)(wide)[4].asnumpy(), f(wide)[4].asnumpy())  # an explicit conversion rounds


@pytest.mark.parametrize("shape", [(400, 1, 64), (1000, 1, 2)])
def test_float16_sums_in_a_loop_are_rounded_once_complete(shape: tuple[int, ...]) -> None:
    x = Tensor((np.zeros(shape) + [50.0, -50.0] * (shape[-1] // 2) + 0.04).astype(np.float16))

    def results(x: Tensor) -> Tensor:
        def step(c: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
            c = 0.5 * c + x
            return c, c

        return ops.scan(step, ops.zeros_like(x[0]), x)[1]

    total = jit(lambda x: results(x).sum())(x)
    np.testing.assert_allclose(total.item(), results(x).asnumpy().sum(dtype=np.float64), rtol=5e-4)


def test_step_by_step_loop_accumulates_float16_in_float32() -> None:
    def loss(x: Tensor, b: Tensor) -> Tensor:
        def step(c: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
            v = ops.concat(((x * b)[:, 1:], (x * b)[:, :1]), 1)
            return v, v

        return ops.scan(step, ops.zeros_like(x[0]), x)[1].astype("float32").sum()

    x, b = Tensor(np.full((3000, 2, 3), 0.01, np.float16)), Tensor(np.ones(3, np.float16))
    np.testing.assert_allclose(grad(loss, 1)(x, b).asnumpy(), 2 * 3000 * float(np.float16(0.01)), rtol=1e-3)


# --- loops that move down ---------------------------------------------------------------------------------------------


def test_early_loop_moves_into_its_first_consumer() -> None:
    def f(a: Tensor, b: Tensor) -> Tensor:
        x = a * 2.0  # nothing in common with the next lines, so it has a separate loop
        return ops.exp(b) + x

    (group,) = fuse(traced(f, x84(), x84()))
    assert [step.op.name for step in group.instructions] == ["mul", "exp", "add"]
    assert len(group.reads) == 2
    assert len(group.writes) == 1


def test_optimiser_update_is_one_loop_per_parameter() -> None:
    weights = [Parameter(np.ones((3, 4), np.float32), name="a"), Parameter(np.ones(5, np.float32), name="b")]
    adam = nn.AdamW(weights, 0.1)
    program = traced(lambda x, y: adam((x, y)), *[Tensor(np.ones(w.shape, np.float32)) for w in weights])
    groups = [group for group in fuse(program) if group.shape]
    assert [group.shape for group in groups if group.shape != (1,)] == [(3, 4), (5,)]
    for group in groups:
        assert len(group.writes) == 3  # two moments and the Parameter


def test_consumer_of_a_sum_in_the_loop_stays_apart() -> None:
    def f(a: Tensor) -> Tensor:
        e = ops.exp(a)
        return e / e.sum(1, keepdims=True)

    assert [[step.op.name for step in group.instructions] for group in fuse(traced(f, x84()))] == [
        ["exp", "sum"],
        ["div"],
    ]


def test_loops_with_a_dependency_between_them_stay_apart() -> None:
    def f(a: Tensor) -> Tensor:
        e = ops.exp(a)
        return e + (e @ ops.ones((4, 4)))

    names = [[step.op.name for step in group.instructions] for group in fuse(traced(f, x84()))]
    assert names[0] == ["exp"]
    assert names[-1] == ["add"]


def test_loops_above_the_size_limit_stay_apart_and_explain_reports_it() -> None:
    def chain(x: Tensor) -> Tensor:
        for _ in range(40):
            x = ops.sin(x)
        return x

    def f(a: Tensor, b: Tensor) -> Tensor:
        return chain(a) + chain(b)

    assert [len(group.instructions) for group in fuse(traced(f, x84(), x84()))] == [40, 41]
    assert f"not fused with 1: together they would have more than {MAX_INSTRUCTIONS} instructions" in explain(
        f, x84(), x84(), detail="launches"
    )


# --- instructions that several loops repeat ---------------------------------------------------------------------------


def memory_traffic(fn: Callable[..., Any], *arguments: Any) -> list[tuple[list[str], list[str]]]:
    """For each group, return its operations and the names of those with results that go through memory."""
    groups = fuse(traced(fn, *arguments))
    return [
        ([s.op.name for s in g.instructions], [s.op.name for s in g.instructions if s.outputs[0] in g.writes])
        for g in groups
    ]


def test_cheap_difference_is_recomputed_where_operands_are_read() -> None:
    def fn(x: Tensor) -> Tensor:
        apart = x - x.sum(axis=1, keepdims=True)
        return apart * ops.square(apart).sum(axis=1, keepdims=True)

    x = Tensor(np.arange(40.0).reshape(5, 8))
    assert memory_traffic(fn, x) == [(["sum"], ["sum"]), (["sub", "square", "sum"], ["sum"]), (["sub", "mul"], ["mul"])]
    apart = x.asnumpy() - x.asnumpy().sum(1, keepdims=True)
    np.testing.assert_array_equal(jit(fn)(x).asnumpy(), apart * np.square(apart).sum(1, keepdims=True))


def test_expensive_or_traffic_increasing_values_are_stored() -> None:
    x, y = Tensor(np.ones((5, 8), np.float32)), Tensor(np.full((5, 8), 2.0, np.float32))

    def over(step: Callable[[Any, Any], Any]) -> Callable[..., Any]:
        def fn(x: Tensor, y: Tensor) -> Tensor:
            value = step(x, y)
            return value * value.sum(axis=1, keepdims=True)

        return fn

    # Reading one additional operand costs as much as writing the value did; reading two costs more.
    assert memory_traffic(over(lambda x, y: x * 2.0), x, y)[0][1] == ["sum"]
    assert memory_traffic(over(lambda x, y: ops.exp(x)), x, y)[0][1] == ["exp", "sum"]
    assert memory_traffic(over(lambda x, y: x + y), x, y)[0][1] == ["add", "sum"]
    # float16 is rounded after each operation, so recomputation gives equal bits.
    assert memory_traffic(over(lambda x, y: x * 2.0), x.astype("float16"), y)[0][1] == ["sum"]
    # A comparison takes one byte per element, but reading its operands again takes four.
    kept = memory_traffic(
        lambda x, y: ops.where(x > 1.0, y, (x > 1.0).astype("float32").sum(axis=1, keepdims=True)), x, y
    )
    assert "greater" in kept[0][1]


def test_recomputed_chain_keeps_the_program_order() -> None:
    def fn(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        a = x * 2.0
        b = a + 1.0
        total = (a * b).sum(axis=0, keepdims=True)
        c = (b - total) * a
        return c.sum(axis=1), (c + b * y).sum(axis=0) * total

    rng = np.random.default_rng(0)
    x, y = (rng.integers(-3, 4, (6, 7)).astype(np.float64) for _ in range(2))
    program = traced(fn, Tensor(x), Tensor(y))
    check_order(program, fuse(program))
    a, b = x * 2, x * 2 + 1
    total = (a * b).sum(0, keepdims=True)
    c = (b - total) * a
    first, second = jit(fn)(Tensor(x), Tensor(y))
    np.testing.assert_array_equal(first.asnumpy(), c.sum(1))
    np.testing.assert_array_equal(second.asnumpy(), (c + b * y).sum(0) * total)
