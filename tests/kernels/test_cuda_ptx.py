"""Kernels of the CUDA backend compiled without a driver: properties of the PTX for each loop, dtype and capability.

float32 kernels must not contain double precision, and the assembler must not spill registers to memory.
"""

from __future__ import annotations

import importlib.util
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from snncell import Parameter, Tensor, grad, nn, ops, value_and_grad
from snncell.compiler.explain import kernels_on_device
from snncell.compiler.jit import Jitted
from snncell.kernels.scalar import is_simulated

pytestmark = [
    pytest.mark.skipif(
        importlib.util.find_spec("numba_cuda") is None,
        reason='numba-cuda is not installed: pip install "snncell[cuda]"',
    ),
    pytest.mark.skipif(is_simulated(), reason="in the simulator nothing is compiled"),
    pytest.mark.skipif(os.environ.get("NUMBA_DISABLE_JIT") == "1", reason="NUMBA_DISABLE_JIT=1 compiles nothing"),
]
CAPABILITIES = [(7, 5), (8, 0), (9, 0)]
DTYPES = ["float16", "bfloat16", "float32", "float64"]


def kernels(f: Any, *inputs: Tensor) -> list[tuple[str, str, Any]]:
    """Return the name, source and signature of each kernel of `f` on the device."""
    compiled, _ = Jitted(f).lookup(inputs, {})
    assert compiled.plans is not None
    return list(kernels_on_device(compiled.plans.program))


class Spike(nn.Cell):
    """A surrogate gradient defined by the test."""

    def construct(self, x: Tensor) -> Tensor:
        return (x > 0.0).astype(x.dtype)

    def bprop(self, x: Tensor, out: Tensor, dout: Tensor) -> tuple[Tensor]:
        return (dout * ops.exp(-ops.abs(x)) / 2.0,)


class Adaptive(nn.Cell):
    """A neuron with two states, a time constant per neuron, and expensive functions."""

    def __init__(self, size: int, dtype: str) -> None:
        super().__init__()
        self.spike = Spike()
        self.tau = Parameter(np.full(size, 2.0, dtype))

    def construct(self, x: Tensor, v: Tensor, a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        v = v * ops.exp(-1.0 / self.tau) + x - 0.3 * a
        s = self.spike(v - 1.0)
        return s, v * (1.0 - s), ops.tanh(0.9 * a + s)


def neuron(dtype: str, every: int | None = None) -> Any:
    cell = Adaptive(5, dtype)
    return value_and_grad(lambda x: nn.MultiStep(cell, checkpoint_every=every)(x).sum(), 0, [cell.tau])


FUNCTIONS: dict[str, Any] = {
    "map": lambda dtype: lambda x: ops.exp(x) * 2.0 + ops.floor(x) / 3.0,
    "mathematics": lambda dtype: lambda x: ops.tanh(x) + ops.erf(x) + ops.log1p(ops.abs(x)) + ops.expm1(x),
    "sigmoid": lambda dtype: lambda x: ops.sigmoid(x) * ops.sqrt(ops.abs(x)) * ops.round(x),
    "powers": lambda dtype: lambda x: ops.abs(x) ** 1.5 + x**2 + ops.sign(x),
    "broadcast": lambda dtype: lambda x: x * x[0, :, :1] + x[:1, 0],
    "comparisons": lambda dtype: lambda x: ops.select(x > 0.5, ops.maximum(x, 0.0), ops.minimum(x, 1.0)),
    "booleans": lambda dtype: lambda x: ops.any(x > 0.0, 1),
    "sums": lambda dtype: lambda x: (x.sum((0, 2)), ops.square(x).sum(), x.sum(2), x.max(1)),
    "gradient": lambda dtype: grad(lambda x: ops.square(ops.tanh(x)).mean()),
    "neuron": neuron,
    "checkpoints": lambda dtype: neuron(dtype, 4),
    "IF": lambda dtype: grad(lambda x: nn.MultiStep(nn.IFNode())(x).sum()),
    "LIF": lambda dtype: lambda x: nn.MultiStep(nn.LIFNode())(x),
}
IN_FLOAT32 = ("IF", "LIF")  # their surrogate computes in this dtype
CASES = [(name, dtype) for name in FUNCTIONS for dtype in DTYPES if name not in IN_FLOAT32 or dtype == "float32"]


@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_kernels_compile_without_double_precision_or_spills(name: str, dtype: str) -> None:
    from snncell.kernels.cuda.build import ptx_of, resources

    x = Tensor(np.ones((3, 4, 5), dtype))
    found = kernels(FUNCTIONS[name](dtype), x)
    assert found
    for kernel, source, signature in found:
        for capability in CAPABILITIES:
            ptx = ptx_of(kernel, source, signature, capability)
            assert f".visible .entry {kernel}(" in ptx
            assert f".target sm_{capability[0]}{capability[1]}" in ptx
            assert dtype == "float64" or ".f64" not in ptx, kernel
            used = resources(ptx, capability)
            assert used["spilled"] == 0, (kernel, capability, used)
            assert used["registers"] <= 128, (kernel, capability, used)


def recorded_calls() -> list[tuple[str, str, Any]]:
    """Return the calls that the device tests ran in the simulator (see their conftest.py)."""
    path = os.environ.get("CUDA_KERNELS")
    return pickle.loads(Path(path).read_bytes()) if path and not is_simulated() and Path(path).exists() else []


@pytest.mark.skipif(not recorded_calls(), reason="CUDA_KERNELS=FILE names no kernels that tests/device has recorded")
def test_kernels_run_in_the_simulator_compile() -> None:
    from snncell.kernels.cuda.build import ptx_of, resources

    double = np.dtype("float64"), np.dtype("complex128")
    capability = 8, 0
    for name, source, signature in recorded_calls():
        ptx = ptx_of(name, source, signature, capability)
        assert f".visible .entry {name}(" in ptx
        kinds = [kind[0] if isinstance(kind, tuple) else kind for kind in signature]
        if not any(kind.dtype in double for kind in kinds) and "f8" not in source:
            assert ".f64" not in ptx, (name, source)
        if name.startswith("cuda_scan"):
            assert resources(ptx, capability)["spilled"] == 0, (name, source)


def test_arithmetic_is_not_contracted() -> None:
    from snncell.kernels.cuda.build import ptx_of

    ((kernel, source, signature),) = kernels(lambda x: x * 2.0 + x, Tensor(np.ones((8,), np.float32)))
    ptx = ptx_of(kernel, source, signature, (8, 0))
    assert "mul.rn.f32" in ptx and "add.rn.f32" in ptx and "fma" not in ptx
