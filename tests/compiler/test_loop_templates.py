"""Loop templates: each has a row that selects it, and its result for that row is correct."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from interpreting import interpreted

import snncell
from snncell import Tensor, jit, nn, ops
from snncell.compiler.backends import cpu_loop, groups
from snncell.compiler.backends.cuda_loop import CUDALoop
from snncell.compiler.explain import kernels_on_device
from snncell.kernels import loops
from snncell.kernels.numba.policy import PARALLEL_SIZE

__all__ = ["interpreted"]  # a fixture

RNG = np.random.default_rng(0)
LONG = 2 * PARALLEL_SIZE


class Row(NamedTuple):
    """A function that needs a template, its arrays, and NumPy's result."""

    fn: Callable[..., Any]
    arrays: tuple[Any, ...]
    expected: Callable[..., Any]


def whole(*shape: int) -> Any:
    """Small integers, so that sums are exact in any order."""
    return RNG.integers(-3, 4, shape).astype(np.float32)


def charged(x: Any) -> Any:
    """The potentials of `Charge` after each time step."""
    v, out = np.zeros_like(x[0]), []
    for step in x:
        v = v * np.float32(0.5) + step
        out.append(v)
    return np.stack(out)


class Charge(nn.Cell):
    """v = v / 2 + x."""

    def construct(self, x: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        h = v * 0.5 + x
        return h, h


def charge(x: Tensor) -> Tensor:
    return nn.MultiStep(Charge())(x)


def gradient(every: int) -> Callable[[Tensor], Tensor]:
    """The gradient of squared potentials, with checkpointed states."""
    layer = nn.MultiStep(Charge(), checkpoint_every=every)
    return snncell.grad(lambda x: ops.square(layer(x)).sum())


def gradient_of_squares(x: Any) -> Any:
    """The same gradient by hand: d v_t = 2 v_t + d v_{t+1} / 2."""
    v, out = charged(x), np.zeros_like(x)
    flowing = np.zeros_like(x[0])
    for t in reversed(range(len(x))):
        flowing = 2 * v[t] + flowing / 2
        out[t] = flowing
    return out


ROWS = {
    "map_loop": Row(lambda x, y: x * 2.0 + y, (whole(3, 4), whole(4)), lambda x, y: x * 2 + y),
    "reduce_rows": Row(lambda x: (x * 2.0).sum(1), (whole(5, 33),), lambda x: (x * 2).sum(1)),
    "reduce_columns": Row(lambda x: (x * 2.0).sum(0), (whole(5, 300),), lambda x: (x * 2).sum(0)),
    "reduce_all": Row(lambda x: (x * 2.0).sum(), (whole(LONG),), lambda x: (x * 2).sum()),
    "reduce_slices": Row(
        lambda x, y: (x * y).sum(), (whole(4, LONG // 4), whole(LONG // 4)), lambda x, y: (x * y).sum()
    ),
    "scan_loop": Row(charge, (whole(6, 7),), charged),
    "scan_recomputing": Row(gradient(3), (whole(7, 5),), gradient_of_squares),
}
NOT_TEMPLATES = {
    "indent",
    "function",
    "nest",
    "share_axes",
    "units",
    "total",
    "flush_condition",
    "block_of",
}  # parts of templates


def test_every_template_has_a_row() -> None:
    tree = ast.parse(inspect.getsource(loops))
    public = {node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name[0] != "_"}
    assert public - NOT_TEMPLATES == ROWS.keys()


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("name", [name for name in ROWS if name not in ("reduce_all", "reduce_slices")])
def test_interpreted_template_equals_numpy(name: str) -> None:
    fn, arrays, expected = ROWS[name]
    np.testing.assert_array_equal(jit(fn)(*map(Tensor, arrays)).asnumpy(), expected(*arrays), strict=True)


@pytest.mark.sampled(3)
@pytest.mark.compiled
@pytest.mark.parametrize("name", ROWS)
def test_compiled_template_equals_numpy(name: str) -> None:
    fn, arrays, expected = ROWS[name]
    np.testing.assert_array_equal(jit(fn)(*map(Tensor, arrays)).asnumpy(), np.asarray(expected(*arrays), np.float32))


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("name", ROWS)
def test_template_is_selected_for_its_row(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: Any, **__: Any) -> Any:
        raise AssertionError(f"{name} was chosen")

    assert name in inspect.getsource(cpu_loop if name.startswith("scan") else groups)
    monkeypatch.setattr(loops, name, missing)
    fn, arrays, _ = ROWS[name]
    with pytest.raises(Exception, match=f"{name} was chosen"):
        jit(fn)(*map(Tensor, arrays))


# --- device templates -------------------------------------------------------------------------------------------------

ON_DEVICE = {
    "_map": (groups, "map_loop"),
    "_sum": (groups, "reduce_rows"),
    "_join": (groups, "reduce_all"),
    "_straight": (CUDALoop, "scan_loop"),
    "_recomputing": (CUDALoop, "scan_recomputing"),
}


@pytest.mark.parametrize("name", ON_DEVICE)
def test_device_template_is_selected_for_its_row(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """`tests/device` checks their results in the simulator."""
    home, row = ON_DEVICE[name]

    def missing(*_: Any, **__: Any) -> Any:
        raise AssertionError(f"{name} was chosen")

    program = jit(ROWS[row].fn)
    program.explain(*map(Tensor, ROWS[row].arrays), detail="launches")
    (compiled,) = program.compiled.values()
    monkeypatch.setattr(home, name, missing)
    with pytest.raises(AssertionError, match=f"{name} was chosen"):
        list(kernels_on_device(compiled.plans.program))
