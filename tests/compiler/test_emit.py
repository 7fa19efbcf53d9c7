"""Source text of generated loops: precision, arguments and axes, and their results as plain Python for many shapes."""

from __future__ import annotations

import ast
import importlib
import math
import pkgutil
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from interpreting import emitted, run_plainly, whole_numbers

from snncell import Tensor, ops
from snncell.compiler.backends.expressions import join_axes
from snncell.ops.base import Function

FAMILIES = [importlib.import_module(f"snncell.ops.{found.name}") for found in pkgutil.iter_modules(ops.__path__)]
FUNCTIONS = {
    function.name: function
    for family in FAMILIES
    for function in vars(family).values()
    if isinstance(function, Function)
    and function.name != "_conj"  # loops do not support complex numbers
    and not function.name.startswith("bitwise")  # floats have no bitwise operations
}
LENGTHS = [0, 1, 15, 16, 17, 31, 33, 1025]


def tensors(count: int, dtype: Any, *shape: int) -> list[Tensor]:
    return [Tensor(np.ones(shape, dtype)) for _ in range(count)]


def formula_lines(source: str) -> Iterator[ast.expr]:
    """Return the right-hand sides of the statements generated from formulas."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Assign) and re.fullmatch(r"t\d+", ast.unparse(node.targets[0])):
            yield node.value


# --- literals ---------------------------------------------------------------------------------------------------------


def bare_literals(source: str) -> list[str]:
    """Return the literals in formulas that are not inside a cast to a dtype."""
    found = []
    for value in formula_lines(source):
        cast = {
            id(node.args[0])
            for node in ast.walk(value)
            if isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and re.fullmatch(r"[fiub]\d", node.func.id)
            and len(node.args) == 1
        }
        found += [ast.unparse(n) for n in ast.walk(value) if isinstance(n, ast.Constant) and id(n) not in cast]
    return found


def test_search_for_bare_literals_finds_one() -> None:
    assert bare_literals("t1 = f4(1.0 / (f4(1.0) + x0))") == ["1.0"]


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_literals_in_formulas_have_the_precision_of_operands(name: str, dtype: Any) -> None:
    function = FUNCTIONS[name]
    count = function.formula.__code__.co_argcount
    source = emitted(lambda x: function(*[x] * count), *tensors(1, dtype, 3)).source
    assert list(formula_lines(source))
    assert bare_literals(source) == []
    other = "f8" if dtype is np.float32 else "f4"
    assert other not in source


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.int64, np.uint8])
def test_integer_literals_in_formulas_have_the_dtype_of_operands(dtype: Any) -> None:
    source = emitted(lambda x: ops.relu6(ops.relu(x)), *tensors(1, dtype, 3)).source
    assert bare_literals(source) == []
    assert f"{np.dtype(dtype).str[1:]}(6)" in source


def test_results_are_cast_to_prevent_widening() -> None:
    source = emitted(lambda x, y: ops.where(x > y, x, y) + 1, *tensors(2, np.float32, 4)).source
    for value in formula_lines(source):
        assert isinstance(value, ast.Call) and isinstance(value.func, ast.Name)
        assert value.func.id in ("f4", "b1")


# --- Python numbers ---------------------------------------------------------------------------------------------------

SPECIAL = [2.0, 2.5, -0.0, 1e-30, math.inf, -math.inf, math.nan, 3, -1]


def test_python_numbers_become_arguments() -> None:
    sources = {emitted(lambda x, s=s: ops.exp(x * s) - s, *tensors(1, np.float32, 5)).source for s in SPECIAL}
    assert len(sources) == 1


def test_equal_and_different_numbers_share_one_source() -> None:
    (x,) = tensors(1, np.float32, 5)
    assert emitted(lambda x: x * 2.0 + 2.0, x).source == emitted(lambda x: x * 2.0 + 3.0, x).source


def test_numbers_on_the_left_and_in_where_become_arguments() -> None:
    (x,) = tensors(1, np.float32, 5)

    def f(s: float) -> Any:
        return emitted(lambda x: s / ops.where(x > s, s - x, s), x).source

    assert f(1.0) == f(7.0)


@pytest.mark.parametrize(("dtype", "number"), [(np.float32, 0.1), (np.float64, 0.1), (np.int8, 100), (np.int64, -7)])
def test_number_arguments_have_the_precision_of_operands(dtype: Any, number: float) -> None:
    kernel = emitted(lambda x: x * number, *tensors(1, dtype, 5))
    assert kernel.scalars == [(number, np.dtype(dtype))]


def test_equal_computations_of_other_sizes_share_one_source() -> None:
    def source(*shape: int) -> str:
        return emitted(lambda x: (x * 2.0).sum(axis=-1), *tensors(1, np.float32, *shape)).source

    assert len({source(2, n) for n in (2, 15, 16, 256)}) == 1
    assert len({source(2, n) for n in (257, 1025, 20_000)}) == 1  # long sums use two levels
    assert source(3, 4, 5) == source(12, 5)


# --- axes -------------------------------------------------------------------------------------------------------------

FULL3 = (True, True, True)
JOINED: list[tuple[str, tuple[Any, ...], tuple[Any, ...]]] = [
    ("a map", ((2, 3, 4), (), [FULL3]), ((24,), (True,))),
    ("a 0-d map", ((), (), [()]), ((1,), (True,))),
    ("all axes of length 1", ((1, 1), (), [(True, True)]), ((1,), (True,))),
    ("a row operand", ((2, 3, 4), (), [FULL3, (False, False, True)]), ((6, 4), (True, True))),
    ("a column operand", ((2, 3, 4), (), [FULL3, (True, True, False)]), ((6, 4), (True, True))),
    ("a middle operand", ((2, 3, 4), (), [FULL3, (False, True, False)]), ((2, 3, 4), (True,) * 3)),
    ("a scalar operand", ((2, 3, 4), (), [FULL3, (False,) * 3]), ((24,), (True,))),
    ("an axis of length 1 between", ((2, 1, 4), (), [FULL3, (False, True, True)]), ((2, 4), (True, True))),
    ("rows", ((2, 3, 4), (2,), [FULL3]), ((6, 4), (True, False))),
    ("columns", ((2, 3, 4), (0, 1), [FULL3]), ((6, 4), (False, True))),
    ("whole", ((2, 3, 4), (0, 1, 2), [FULL3]), ((24,), (False,))),
    ("outer and inner", ((2, 3, 4), (0, 2), [FULL3]), ((2, 3, 4), (False, True, False))),
    ("length 0", ((0, 3), (1,), [(True, True)]), ((0, 3), (True, False))),
]


@pytest.mark.parametrize(("given", "expected"), [row[1:] for row in JOINED], ids=[row[0] for row in JOINED])
def test_axes_with_equal_layout_in_all_operands_are_joined(given: Any, expected: Any) -> None:
    sizes, kept, runs = join_axes(*given)
    assert (sizes, kept) == expected
    assert all(math.prod(given[0][axis] for axis in run) == size for run, size in zip(runs, sizes, strict=True))


# --- maps -------------------------------------------------------------------------------------------------------------


BROADCAST = [
    ((), ()),
    ((5,), ()),
    ((1,), (1, 1)),
    ((3, 4), (4,)),
    ((3, 4), (3, 1)),
    ((3, 1), (1, 4)),
    ((2, 3, 4), (3, 1)),
    ((2, 1, 4), (1, 3, 1)),
    ((2, 3, 1, 5), (3, 4, 1)),
    ((2, 1, 1, 2, 1, 3), (1, 2, 1, 1, 2, 1)),
    ((0,), (1,)),
    ((0, 3), (3,)),
    ((2, 0, 3), (2, 1, 1)),
]


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int8, np.int16, np.int32, np.int64, np.uint8])
@pytest.mark.parametrize(("left", "right"), BROADCAST)
def test_operands_broadcast(left: tuple[int, ...], right: tuple[int, ...], dtype: Any) -> None:
    a, b = whole_numbers(left, dtype), whole_numbers(right, dtype, 1)
    total, less = run_plainly(lambda x, y: (x * y + x, x < y), a, b)
    np.testing.assert_array_equal(total, a * b + a, strict=True)
    np.testing.assert_array_equal(less, a < b, strict=True)


@pytest.mark.parametrize(("left", "right"), BROADCAST)
def test_boolean_operands_broadcast(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    a, b = whole_numbers(left, np.float32) > 0, whole_numbers(right, np.float32, 1) > 0
    found = run_plainly(lambda x, y: (ops.logical_and(x, y), ops.logical_xor(x, y)), a, b)
    np.testing.assert_array_equal(found[0], a & b, strict=True)
    np.testing.assert_array_equal(found[1], a ^ b, strict=True)


@pytest.mark.parametrize("length", LENGTHS)
def test_map_covers_every_length(length: int) -> None:
    a = whole_numbers((length,), np.float32)
    (found,) = run_plainly(lambda x: x * 2.0 - 1.0, a)
    np.testing.assert_array_equal(found, a * 2 - 1, strict=True)


def test_axis_indices_do_not_shadow_dtype_names() -> None:
    # The casts are named i1, i2, i4 and i8, as are the indices of axes 1, 2, 4 and 8.
    for dtype, ndim in ((np.int8, 2), (np.int16, 3), (np.int32, 5)):
        left = tuple(2 if axis % 2 else 1 for axis in range(ndim))
        right = tuple(1 if axis % 2 else 2 for axis in range(ndim))
        a, b = whole_numbers(left, dtype), whole_numbers(right, dtype, 1)
        (found,) = run_plainly(lambda x, y: x + y, a, b)
        np.testing.assert_array_equal(found, a + b, strict=True)
