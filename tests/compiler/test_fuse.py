"""Fusion: groups that can run in their order, with as few launches as there are today."""

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
    """Every step is there, an elementwise one maybe in several loops, and reads only what is complete when it runs."""
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
            # A reduction's result is complete only when the loop has ended, so nothing in the loop may read it.
            if not isinstance(step.op, Reduction):
                inside.update(step.outputs)
        ready.update(group.writes)
    assert ready.issuperset(program.results())


# --- any graph --------------------------------------------------------------------------------------------------------


def bounded(x: Tensor) -> Tensor:
    """Values stay small whole numbers, so that sums are exact in any order and results are equal to the bit."""
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
    """A function that carries the instructions out on whatever there is so far."""

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
def test_any_fused_graph_gives_what_its_steps_give_one_by_one(instructions: list[tuple[int, int, int]]) -> None:
    f = graph(instructions)
    program = traced(f, *INPUTS)
    check_order(program, fuse(program))
    for found, expected in zip(jit(f)(*INPUTS), f(*INPUTS), strict=True):
        assert found.dtype is expected.dtype
        np.testing.assert_array_equal(found.asnumpy(), expected.asnumpy(), strict=True)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(INSTRUCTIONS)
def test_only_the_last_result_of_any_graph(instructions: list[tuple[int, int, int]]) -> None:
    # With one result most steps are dead or die early: their slots are emptied while the plan runs.
    f = graph(instructions)
    last = jit(lambda *inputs: f(*inputs)[-1])(*INPUTS)
    np.testing.assert_array_equal(last.asnumpy(), f(*INPUTS)[-1].asnumpy(), strict=True)


# --- what joins what --------------------------------------------------------------------------------------------------


def x84() -> Tensor:
    return Tensor(np.random.default_rng(1).normal(size=(8, 4)).astype(np.float32))


def test_a_reduction_joins_its_producer() -> None:
    (group,) = fuse(traced(lambda x: (ops.exp(x) * 2.0).sum(axis=0), x84()))
    assert [step.op.name for step in group.instructions] == ["exp", "mul", "sum"]
    assert group.axes == (0,)
    assert len(group.reads) == len(group.writes) == 1


def test_reductions_along_the_same_axes_share_a_loop_and_others_do_not() -> None:
    assert launches(lambda x: (x.sum(axis=0), x.max(axis=0), ops.square(x).sum(axis=0)), x84()) == (1, 0)
    assert launches(lambda x: (x.sum(axis=0), x.sum(axis=1)), x84()) == (2, 0)


def test_what_needs_a_reduction_waits_for_its_loop_to_end() -> None:
    program = traced(lambda x: x - x.sum(axis=1, keepdims=True), x84())
    groups = fuse(program)
    assert [[step.op.name for step in group.instructions] for group in groups] == [["sum"], ["sub"]]


def test_steps_without_anything_in_common_stay_apart() -> None:
    # Joined they would save no memory traffic, and one would wait for the other.
    assert launches(lambda x, y: (x + 1.0, y + 1.0), x84(), x84()) == (2, 0)


def test_a_call_between_parts_a_run() -> None:
    assert launches(lambda x: ops.exp((x + 1.0) @ (x.T + 1.0)), x84()) == (3, 2)


@pytest.mark.parametrize("length", [1, MAX_INSTRUCTIONS, MAX_INSTRUCTIONS + 1, 3 * MAX_INSTRUCTIONS])
def test_no_loop_grows_beyond_the_limit(length: int) -> None:
    def chain(x: Tensor) -> Tensor:
        for _ in range(length):
            x = x + 1.0
        return x

    groups = fuse(traced(chain, x84()))
    assert max(len(group.instructions) for group in groups) <= MAX_INSTRUCTIONS
    assert len(groups) == -(-length // MAX_INSTRUCTIONS)
    np.testing.assert_array_equal(jit(chain)(Tensor([0.0])).asnumpy(), [float(length)])


def test_dtypes_that_loops_do_not_have_are_left_to_numpy() -> None:
    assert launches(lambda x: x * 2.0 + 1.0, Tensor(np.ones(3, np.complex128))) == (0, 2)


def test_float16_is_rounded_after_each_operation_as_in_eager_mode() -> None:
    def f(x: Tensor) -> Tensor:
        return x * x * x / 1000.0

    x = Tensor(np.array([0.1, 30.0, 300.0], np.float16))
    assert launches(f, x) == (1, 0)
    np.testing.assert_array_equal(jit(f)(x).asnumpy(), f(x).asnumpy())
    assert jit(lambda x: x.sum())(Tensor(np.full(5000, 0.3, np.float16))).item() == 1500.0


def test_only_what_is_used_later_leaves_a_loop() -> None:
    (group,) = fuse(traced(lambda x: ops.exp(x + 1.0) * 2.0, x84()))
    assert [value.number for value in group.writes] == [group.instructions[-1].outputs[0].number]


# --- how many launches ------------------------------------------------------------------------------------------------

W = Parameter(np.ones((4, 5), np.float32), name="w")
B = Parameter(np.ones(5, np.float32), name="b")


def layer(x: Tensor) -> Tensor:
    return ops.tanh(x @ W + B)


def normalised(x: Tensor) -> Tensor:
    return (x - x.mean(axis=-1, keepdims=True)) / ops.sqrt(x.var(axis=-1, keepdims=True) + 1e-5)


def spikes(x: Tensor) -> Tensor:
    return nn.LIFNode()(x, x)[0].sum()


# (loops, calls) as they are today. Fewer is an improvement: lower the number. More is a loss.
COUNTS: list[tuple[str, Callable[..., Any], tuple[int, int]]] = [
    ("layer", layer, (1, 1)),
    ("layer, forward and backward", grad(lambda x: layer(x).sum(), 0, weights=[W, B]), (2, 7)),
    ("layer, gradients of weights", grad(lambda x: layer(x).sum(), None, weights=[W, B]), (2, 5)),
    ("softmax", ops.softmax, (3, 0)),
    ("gelu", ops.gelu, (1, 0)),
    ("variance", lambda x: x.var(axis=0), (4, 0)),
    ("layer norm", normalised, (5, 0)),
    ("LIF neuron", lambda x: nn.LIFNode()(x, x), (1, 0)),
    ("LIF neuron, backward", grad(spikes), (2, 2)),
]


@pytest.mark.parametrize(("fn", "most"), [row[1:] for row in COUNTS], ids=[row[0] for row in COUNTS])
def test_launches_do_not_become_more(fn: Callable[..., Any], most: tuple[int, int]) -> None:
    loops, calls = launches(fn, x84())
    assert loops <= most[0]
    assert calls <= most[1]


def test_an_adam_step_costs_at_most_three_loops_for_each_parameter() -> None:
    optimizer = nn.Adam([W, B])

    def step(g: Tensor, h: Tensor) -> None:
        optimizer([g, h])

    loops, calls = launches(step, ops.ones((4, 5)), ops.ones((5,)))
    assert loops <= 1 + 3 * 2  # one for the corrections, which are numbers
    assert calls == 0


def test_what_is_stored_as_float16_is_used_as_it_is_stored() -> None:
    def f(x: Tensor) -> list[Tensor]:
        scaled, third = x * 1024.0, x * 0.3333
        return [scaled, ops.isfinite(scaled), third, third >= 0.25, x.astype("float16").astype("float32") - x]

    x = Tensor(np.linspace(0.7, 100.0, 2000).astype(np.float16))
    scaled, finite, third, above, _ = (t.asnumpy() for t in jit(f)(x))
    np.testing.assert_array_equal(finite, np.isfinite(scaled))
    assert finite.any() and not finite.all()
    np.testing.assert_array_equal(above, third >= np.float16(0.25))
    wide = Tensor(np.array([0.1, 70000.0, 1e-8, -0.0, np.nan], np.float32))
    np.testing.assert_array_equal(jit(f)(wide)[4].asnumpy(), f(wide)[4].asnumpy())  # what a user converts is rounded


@pytest.mark.parametrize("shape", [(400, 1, 64), (1000, 1, 2)])
def test_sums_of_a_loops_float16_are_rounded_when_they_are_complete(shape: tuple[int, ...]) -> None:
    x = Tensor((np.zeros(shape) + [50.0, -50.0] * (shape[-1] // 2) + 0.04).astype(np.float16))

    def results(x: Tensor) -> Tensor:
        def step(c: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
            c = 0.5 * c + x
            return c, c

        return ops.scan(step, ops.zeros_like(x[0]), x)[1]

    total = jit(lambda x: results(x).sum())(x)
    np.testing.assert_allclose(total.item(), results(x).asnumpy().sum(dtype=np.float64), rtol=5e-4)


def test_a_loop_that_goes_step_by_step_adds_up_float16_in_float32() -> None:
    def loss(x: Tensor, b: Tensor) -> Tensor:
        def step(c: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
            v = ops.concat(((x * b)[:, 1:], (x * b)[:, :1]), 1)
            return v, v

        return ops.scan(step, ops.zeros_like(x[0]), x)[1].astype("float32").sum()

    x, b = Tensor(np.full((3000, 2, 3), 0.01, np.float16)), Tensor(np.ones(3, np.float16))
    np.testing.assert_allclose(grad(loss, 1)(x, b).asnumpy(), 2 * 3000 * float(np.float16(0.01)), rtol=1e-3)


# --- loops that sink --------------------------------------------------------------------------------------------------


def test_a_loop_opened_too_early_becomes_part_of_the_first_that_takes_from_it() -> None:
    def f(a: Tensor, b: Tensor) -> Tensor:
        x = a * 2.0  # nothing in common with what follows, so it has a loop of its own
        return ops.exp(b) + x

    (group,) = fuse(traced(f, x84(), x84()))
    assert [step.op.name for step in group.instructions] == ["mul", "exp", "add"]
    assert len(group.reads) == 2
    assert len(group.writes) == 1


def test_an_optimisers_update_is_one_loop_for_each_parameter() -> None:
    weights = [Parameter(np.ones((3, 4), np.float32), name="a"), Parameter(np.ones(5, np.float32), name="b")]
    adam = nn.AdamW(weights, 0.1)
    program = traced(lambda x, y: adam((x, y)), *[Tensor(np.ones(w.shape, np.float32)) for w in weights])
    groups = [group for group in fuse(program) if group.shape]
    assert [group.shape for group in groups if group.shape != (1,)] == [(3, 4), (5,)]
    for group in groups:
        assert len(group.writes) == 3  # two moments and the Parameter


def test_what_waits_for_a_sum_of_the_loop_stays_apart() -> None:
    def f(a: Tensor) -> Tensor:
        e = ops.exp(a)
        return e / e.sum(1, keepdims=True)

    assert [[step.op.name for step in group.instructions] for group in fuse(traced(f, x84()))] == [
        ["exp", "sum"],
        ["div"],
    ]


def test_a_loop_between_which_something_waits_stays_apart() -> None:
    def f(a: Tensor) -> Tensor:
        e = ops.exp(a)
        return e + (e @ ops.ones((4, 4)))

    names = [[step.op.name for step in group.instructions] for group in fuse(traced(f, x84()))]
    assert names[0] == ["exp"]
    assert names[-1] == ["add"]


def test_loops_that_would_have_too_many_steps_together_stay_apart_and_explain_says_so() -> None:
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


# --- steps that several loops repeat ----------------------------------------------------------------------------------


def moved_by(fn: Callable[..., Any], *arguments: Any) -> list[tuple[list[str], list[str]]]:
    """For each group, its operations, and the names of those whose results go through memory."""
    groups = fuse(traced(fn, *arguments))
    return [
        ([s.op.name for s in g.instructions], [s.op.name for s in g.instructions if s.outputs[0] in g.writes])
        for g in groups
    ]


def test_a_difference_is_computed_again_where_its_operands_are_read() -> None:
    def fn(x: Tensor) -> Tensor:
        apart = x - x.sum(axis=1, keepdims=True)
        return apart * ops.square(apart).sum(axis=1, keepdims=True)

    x = Tensor(np.arange(40.0).reshape(5, 8))
    assert moved_by(fn, x) == [(["sum"], ["sum"]), (["sub", "square", "sum"], ["sum"]), (["sub", "mul"], ["mul"])]
    apart = x.asnumpy() - x.asnumpy().sum(1, keepdims=True)
    np.testing.assert_array_equal(jit(fn)(x).asnumpy(), apart * np.square(apart).sum(1, keepdims=True))


def test_what_is_dear_or_moves_more_is_kept() -> None:
    x, y = Tensor(np.ones((5, 8), np.float32)), Tensor(np.full((5, 8), 2.0, np.float32))

    def over(step: Callable[[Any, Any], Any]) -> Callable[..., Any]:
        def fn(x: Tensor, y: Tensor) -> Tensor:
            value = step(x, y)
            return value * value.sum(axis=1, keepdims=True)

        return fn

    # One operand more is as much to read as the value was to write: two are not.
    assert moved_by(over(lambda x, y: x * 2.0), x, y)[0][1] == ["sum"]
    assert moved_by(over(lambda x, y: ops.exp(x)), x, y)[0][1] == ["exp", "sum"]
    assert moved_by(over(lambda x, y: x + y), x, y)[0][1] == ["add", "sum"]
    # A float16 is rounded after each operation, so it may be computed again too.
    assert moved_by(over(lambda x, y: x * 2.0), x.astype("float16"), y)[0][1] == ["sum"]
    # A comparison is a byte: reading its operands again is four.
    kept = moved_by(lambda x, y: ops.where(x > 1.0, y, (x > 1.0).astype("float32").sum(axis=1, keepdims=True)), x, y)
    assert "greater" in kept[0][1]


def test_a_chain_is_repeated_in_the_order_of_the_program() -> None:
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
