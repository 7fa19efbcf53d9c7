"""Tracing, passes over Programs and effects: the operations of a jitted function and their order."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from interpreting import interpreted, op_names, traced

from snncell import Parameter, Tensor, grad, jit, nn, ops, set_seed

__all__ = ["interpreted"]  # a fixture

pytestmark = pytest.mark.usefixtures("interpreted")  # nothing here depends on Numba's compilation of loops

HERE = Path(__file__).name


def ones(*shape: int) -> Tensor:
    return ops.ones(shape)


def line_of(text: str) -> int:
    """Return the line number in this file that contains `text`."""
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    return next(number for number, line in enumerate(lines, 1) if text in line)


# --- text -------------------------------------------------------------------------------------------------------------


def test_program_text_shows_operations_and_user_lines() -> None:
    scale = Parameter([2.0, 3.0], name="scale")

    def f(x: Tensor) -> Tensor:
        scaled = x * scale  # line of mul
        return scaled.sum(axis=0)  # line of sum

    text = str(traced(f, ones(4, 2)))
    first, *middle, last = text.splitlines()
    assert first == "program(%0:float32[4,2])"
    assert last == "  return %3"
    assert middle[0] == "  %1:float32[2] = Parameter scale"
    mul, total = middle[1:]
    assert mul.startswith("  %2:float32[4,2] = mul(%0, %1) ")
    assert mul.endswith(f"# {HERE}:{line_of('# line of mul')}: scaled = x * scale  # line of mul")
    assert total.startswith("  %3:float32[2] = sum(%2, axis=(0,), keepdims=False) ")
    assert f"{HERE}:{line_of('# line of sum')}: return" in total


def test_program_text_shows_constants_and_writes() -> None:
    count = Parameter([0.0], name="count", requires_grad=False)
    table = Tensor([1.0, 2.0])

    def f(x: Tensor) -> Tensor:
        ops.assign(count, count + 1.0)
        return x + table

    text = str(traced(f, ones(2)))
    assert "float32[2] = constant" in text
    assert "\n  Parameter count = %" in text


def test_backward_instructions_name_the_line_of_the_forward() -> None:
    def loss(x: Tensor) -> Tensor:
        return ops.tanh(x).sum()  # line of tanh

    def f(x: Tensor) -> Tensor:
        return grad(loss)(x)

    lines = [step.line for step in traced(f, ones(3)).instructions if step.op.name == "square"]
    assert lines == [f"backward of {HERE}:{line_of('# line of tanh')}: return ops.tanh(x).sum()  # line of tanh"]


# --- passes -----------------------------------------------------------------------------------------------------------


def test_instructions_without_effect_on_results_are_dropped() -> None:
    unused = Parameter([1.0], name="unused")
    constant = Tensor([5.0])

    def f(x: Tensor) -> Tensor:
        lost = ops.exp(x + unused) * constant
        _ = lost.sum()
        return x * 2.0

    program = traced(f, ones(3))
    assert op_names(program) == ["mul"]
    assert program.parameters == {} and program.constants == []


def test_instructions_needed_only_by_an_effect_are_kept() -> None:
    p = Parameter([1.0, 1.0], name="p")

    def f(x: Tensor) -> Tensor:
        ops.assign(p, ops.exp(x))
        return x

    assert op_names(traced(f, ones(2))) == ["exp"]


def test_equal_instructions_are_merged_through_several_levels() -> None:
    def f(x: Tensor) -> Tensor:
        return ops.exp(x + 1.0) * ops.exp(x + 1.0)

    assert op_names(traced(f, ones(3))) == ["add", "exp", "mul"]


def test_equal_results_and_equal_writes_are_merged() -> None:
    p = Parameter([0.0], name="p")

    def f(x: Tensor) -> tuple[Tensor, Tensor]:
        ops.assign(p, x * 2.0)
        return x * 2.0, x * 2.0

    program = traced(f, ones(1))
    assert op_names(program) == ["mul"]
    assert len({*program.outputs, *program.written.values()}) == 1


def test_numbers_of_different_types_are_not_merged() -> None:
    def f(x: Tensor) -> list[Tensor]:
        return [x * 1, x * 1.0, x * True]

    assert op_names(traced(f, ones(3))) == ["mul"] * 3


def test_zero_and_minus_zero_are_not_merged() -> None:
    def f(x: Tensor) -> tuple[Tensor, Tensor]:
        return x * 0.0, x * -0.0

    plus, minus = jit(f)(ones(1))
    assert math.copysign(1.0, plus.item()) == 1.0
    assert math.copysign(1.0, minus.item()) == -1.0


def test_instructions_with_other_operand_order_or_attributes_are_not_merged() -> None:
    def f(x: Tensor, y: Tensor) -> list[Tensor]:
        return [x - y, y - x, x.sum(axis=0), x.sum(axis=1), x.sum(axis=0, keepdims=True)]

    assert len(op_names(traced(f, ones(2, 2), ones(2, 2)))) == 5


def test_different_long_index_arrays_are_not_merged() -> None:
    first = np.arange(3000)
    second = first.copy()
    second[1500] = 7  # in the middle, which NumPy's repr omits

    def f(x: Tensor) -> tuple[Tensor, Tensor]:
        return ops.gather(x, first), ops.gather(x, second)

    x = ops.arange(0, 3000, 1)
    a, b = jit(f)(x)
    assert (a.asnumpy() != b.asnumpy()).nonzero()[0].tolist() == [1500]


# --- Parameters and constants -----------------------------------------------------------------------------------------


def test_parameters_are_read_anew_at_each_run() -> None:
    p = Parameter([1.0], name="p")
    f = jit(lambda x: x + p)
    assert f(ones(1)).item() == 2.0
    p.set_data([5.0])
    assert f(ones(1)).item() == 6.0
    p[0] = 7.0
    assert f(ones(1)).item() == 8.0


@pytest.mark.parametrize("read", ["value", "data"])
def test_value_and_data_of_a_parameter_are_read_anew(read: str) -> None:
    p = Parameter([1.0], name="p")
    f = jit(lambda x: x + (p.value() if read == "value" else p.data))
    f(ones(1))
    p.set_data([5.0])
    assert f(ones(1)).item() == 6.0


def test_value_of_a_parameter_inside_includes_the_write() -> None:
    p = Parameter([1.0], name="p")

    def f(x: Tensor) -> Tensor:
        ops.assign(p, x)
        return p.value() * 1.0

    assert jit(f)(Tensor([3.0])).item() == 3.0


def test_parameter_result_is_its_value_at_return_time() -> None:
    p = Parameter([1.0], name="p")
    f = jit(lambda: (p, p + 0.0))
    first, _ = f()
    p.set_data([2.0])
    second, _ = f()
    assert (first.item(), second.item()) == (1.0, 2.0)


def test_constant_is_captured_once() -> None:
    table = Tensor([1.0, 2.0])
    program = traced(lambda x: (x + table) * table, ones(2))
    assert len(program.constants) == 1
    assert program.constants[0][0].tolist() == [1.0, 2.0]


def test_changed_learning_rate_applies_to_a_traced_step() -> None:
    p = Parameter([1.0], name="p")
    optimizer = nn.SGD([p], 0.5)
    step = jit(lambda g: optimizer([g]))
    step(ones(1))
    assert p.asnumpy().tolist() == [0.5]
    optimizer.set_learning_rate(0.25)
    step(ones(1))
    assert p.asnumpy().tolist() == [0.25]


# --- effects ----------------------------------------------------------------------------------------------------------


def test_writes_happen_at_each_run_and_not_while_tracing() -> None:
    count = Parameter([0.0], name="count", requires_grad=False)

    def f(x: Tensor) -> Tensor:
        ops.assign_add(count, 1.0)
        return x

    traced(f, ones(1))
    assert count.item() == 0.0
    jitted = jit(f)
    for expected in (1.0, 2.0, 3.0):
        jitted(ones(1))
        assert count.item() == expected


def test_reads_see_only_earlier_writes() -> None:
    p = Parameter([1.0], name="p", requires_grad=False)

    def f(x: Tensor) -> tuple[Tensor, ...]:
        before = p + 0.0
        ops.assign(p, p * 2.0)
        between = p + 0.0
        ops.assign(p, between + x)
        return before, between, p + 0.0

    for start, added in ((1.0, 10.0), (-3.0, 0.5)):
        p.set_data([start])
        values = [out.item() for out in jit(f)(Tensor([added]))]
        assert values == [start, 2 * start, 2 * start + added]
        assert p.item() == 2 * start + added


def test_two_parameters_can_be_swapped() -> None:
    a, b = (Parameter([value], name=name, requires_grad=False) for name, value in (("a", 1.0), ("b", 2.0)))

    def swap() -> Tensor:
        old = a + 0.0
        ops.assign(a, b)
        ops.assign(b, old)
        return old

    jitted = jit(swap)
    jitted()
    assert (a.item(), b.item()) == (2.0, 1.0)
    jitted()
    assert (a.item(), b.item()) == (1.0, 2.0)


def test_written_parameter_does_not_share_memory_with_the_argument() -> None:
    p = Parameter([1.0], name="p", requires_grad=False)
    q = Parameter([4.0], name="q", requires_grad=False)
    jit(lambda x: ops.assign(p, x) * 1.0)(q)
    q[0] = 9.0
    assert p.item() == 4.0
    p[0] = 3.0
    assert q.item() == 9.0


def test_failed_trace_writes_nothing() -> None:
    p = Parameter([1.0], name="p", requires_grad=False)

    def f(x: Tensor) -> Tensor:
        ops.assign(p, x)
        raise KeyError("the user's own error")

    with pytest.raises(KeyError, match="the user's own"):
        jit(f)(Tensor([2.0]))
    assert p.item() == 1.0
    assert (ones(1) + 1.0).item() == 2.0  # eager again


def test_written_value_has_the_dtype_of_the_parameter() -> None:
    p = Parameter(np.zeros(2, np.float64), name="p", requires_grad=False)
    jit(lambda x: ops.assign(p, x))(Tensor([1.5, 2.5]))
    assert p.asnumpy().dtype == np.float64
    assert p.asnumpy().tolist() == [1.5, 2.5]


# --- random numbers ---------------------------------------------------------------------------------------------------


def test_random_numbers_advance_from_run_to_run() -> None:
    f = jit(lambda: ops.uniform((4,)))
    first, second = f().asnumpy(), f().asnumpy()
    assert not np.array_equal(first, second)


def test_jitted_random_numbers_equal_the_eager_ones() -> None:
    def f(x: Tensor) -> tuple[Tensor, Tensor]:
        return ops.dropout(x, 0.5), ops.normal((3,))

    def sequence(g: object) -> list[list[float]]:
        set_seed(7)
        drawn = [part.tolist() for _ in range(3) for part in g(ones(16))]  # type: ignore[operator]
        return [*drawn, ops.uniform((2,)).tolist()]  # later draws continue the sequence

    eager = sequence(f)
    assert sequence(jit(f)) == eager


def test_two_draws_in_one_function_differ() -> None:
    a, b = jit(lambda: (ops.uniform((4,)), ops.uniform((4,))))()
    assert not np.array_equal(a.asnumpy(), b.asnumpy())
