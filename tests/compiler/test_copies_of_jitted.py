"""Pickling and copying jitted functions."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from snncell import Tensor, jit, nn
from snncell.errors import JitPickleError, ShapeError


@jit
def decorated(x: Tensor) -> Tensor:
    return x * 2.0 + 1.0


def plain(x: Tensor) -> Tensor:
    return x * 3.0


class Method(nn.Cell):
    @jit
    def construct(self, x: Tensor) -> Tensor:
        return x * 4.0


KINDS: dict[str, Callable[[], Any]] = {
    "decorated": lambda: decorated,
    "function": lambda: jit(plain),
    "Cell": lambda: jit(nn.Dense(3, 2)),
    "method": lambda: jit(nn.Dense(3, 2).construct),
    "Cell with a jitted method": Method,
}
WAYS: dict[str, Callable[[Any], Any]] = {
    "pickle": lambda x: pickle.loads(pickle.dumps(x)),
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
}


@pytest.mark.compiled
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", KINDS)
def test_copies_of_jitted_functions_return_equal_results(kind: str, way: str) -> None:
    function, x = KINDS[kind](), Tensor([[1.0, 2.0, 3.0]])
    before = function(x).asnumpy()  # traces are not part of the copy
    other = WAYS[way](function)
    np.testing.assert_array_equal(other(x).asnumpy(), before)
    assert getattr(other, "__name__", None) == getattr(function, "__name__", None)


@pytest.mark.parametrize("way", WAYS)
def test_copies_keep_their_input_signature(way: str) -> None:
    fixed = WAYS[way](jit(plain, input_signature=Tensor([1.0, 2.0])))
    with pytest.raises(ShapeError, match=r"argument 0 must have shape \(2,\), not \(1,\)"):
        fixed(Tensor([1.0]))


def test_decorated_function_unpickles_to_itself() -> None:
    assert pickle.loads(pickle.dumps(decorated)) is decorated


def test_unnamed_function_copies_but_pickling_raises() -> None:
    jitted = jit(lambda x: x + 1.0)
    with pytest.raises(JitPickleError, match=r"cannot find .*<lambda> in .*at the top level of a module"):
        pickle.dumps(jitted)
    with pytest.raises(pickle.PicklingError):
        pickle.dumps(jitted)
    assert copy.deepcopy(jitted)(Tensor([1.0])).item() == copy.copy(jitted)(Tensor([1.0])).item() == 2.0
