"""Tensor's methods against NumPy, by the table; dtypes, sizes, memory, random methods, and what is refused."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
from tensor_table import ELSEWHERE, TABLE, Row

from snncell import Tensor, ops


def leaves(result: Any) -> list[Any]:
    return list(result) if isinstance(result, (tuple, list)) else [result]


def given(values: Any) -> Any:
    """An argument of the table as the methods take it: arrays as Tensors."""
    if isinstance(values, tuple):
        return tuple(map(given, values))
    return Tensor(values) if isinstance(values, np.ndarray) else values


def same(result: Any, expected: Any, exact: bool, what: str) -> None:
    ours, theirs = leaves(result), leaves(expected)
    assert len(ours) == len(theirs), what
    for a, b in zip(ours, theirs, strict=True):
        assert isinstance(a, Tensor) and a.shape == np.shape(b), f"{what}: {a.shape}, {np.shape(b)}"
        assert a.dtype == np.asarray(b).dtype, f"{what}: {a.dtype}, {np.asarray(b).dtype}"
        if exact:
            np.testing.assert_array_equal(a.asnumpy(), b, err_msg=what)
        else:
            rtol = 1e-5 if a.dtype == "float32" else 1e-12
            np.testing.assert_allclose(a.asnumpy(), b, rtol=rtol, atol=rtol, err_msg=what)


@pytest.mark.filterwarnings("ignore:invalid value", "ignore:divide by zero", "ignore:overflow", "ignore:Mean of empty")
@pytest.mark.parametrize("r", TABLE, ids=repr)
def test_methods_and_functions_give_what_numpy_gives(r: Row):
    with np.errstate(all="ignore"):
        expected = r.oracle(r.array)
    args = [given(x) for x in r.args]
    same(getattr(Tensor(r.array), r.name)(*args, **r.options), expected, r.exact, f"x.{r!r}")
    if r.as_function:
        same(getattr(ops, r.name)(Tensor(r.array), *args, **r.options), expected, r.exact, f"ops.{r!r}")


def public(owner: Any) -> list[str]:
    return [name for name in dir(owner) if not name.startswith("_")]


def test_every_method_is_in_the_table_and_has_a_docstring():
    methods = [n for n in public(Tensor) if callable(inspect.getattr_static(Tensor, n)) or n == "from_numpy"]
    covered = {r.name for r in TABLE} | set(ELSEWHERE)
    assert [n for n in methods if n not in covered] == []
    assert sorted(covered - set(methods)) == []
    assert [n for n in public(Tensor) if not inspect.getdoc(inspect.getattr_static(Tensor, n))] == []
