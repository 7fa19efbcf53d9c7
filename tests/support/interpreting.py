"""Helpers for compiler tests: Programs without plans, and generated loops that run as plain Python.

Plain Python needs no compilation, so a test can try hundreds of shapes in seconds. Other tests compile the same
source with Numba for a few shapes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from snncell.compiler.backends import cpu_loop
from snncell.compiler.backends.groups import KernelSource, emit
from snncell.compiler.fuse import fuse
from snncell.compiler.ir.program import Program
from snncell.compiler.passes.simplify import canonical_program
from snncell.compiler.runtime import launches as launching
from snncell.tape import structure
from snncell.tape.state import recording_on, settings
from snncell.tape.tensor import Tensor
from snncell.tape.tracing import Trace


def traced(fn: Any, *args: Tensor) -> Program:
    """The Program of `fn` for arguments of these shapes, without compiled kernels."""
    trace = Trace()
    with settings(trace=trace), recording_on(None):
        out = fn(*[trace.new_input(x.shape, x.asnumpy().dtype) for x in args])
        outputs = [trace.lift(leaf) for leaf in structure.flatten(out)[0]]
    return canonical_program(trace, outputs)


def op_names(program: Program) -> list[str]:
    """The names of a Program's instructions, in order."""
    return [step.op.name for step in program.instructions]


def launches(fn: Any, *args: Tensor) -> tuple[int, int]:
    """The numbers of fused loops and of other calls in the compiled `fn`."""
    groups = fuse(traced(fn, *args))
    loops = sum(group.shape is not None for group in groups)
    return loops, len(groups) - loops


def emitted(fn: Any, *args: Tensor) -> KernelSource:
    """The kernel of a function that compiles to one loop."""
    (group,) = fuse(traced(fn, *args))
    return emit(group, set())


def as_python(name: str, source: str) -> Any:
    """A generated function as uncompiled Python, with the calling convention of a built kernel.

    Numba gives each variable of a kernel one type, so each name must stand for one expression.
    """
    found: dict[str, set[str]] = {}
    for variable, value in re.findall(r"^ +([tv]\d\w*) = (.*?)(?: +#.*)?$", source, re.MULTILINE):
        if not re.search(rf"\b{variable}\b", value):  # such a value has the same type
            found.setdefault(variable, set()).add(value)
    assert not {variable: values for variable, values in found.items() if len(values) > 1}, source
    namespace: dict[str, Any] = {}
    exec(compile(source, name, "exec"), namespace)
    return lambda units, grain, *arguments: namespace[name](0, units, *arguments)


def call_kernel(function: Any, kernel: KernelSource, arrays: list[Any]) -> list[Any]:
    """Call a loop on `arrays` in the order of the kernel's inputs, and return outputs in the user's shapes."""
    given = [np.ascontiguousarray(a).reshape(o.shape) for a, o in zip(arrays, kernel.arrays, strict=True)]
    outputs = [np.empty(o.shape, o.value.dtype) for o in kernel.outputs]
    scalars = [dtype.type(number).item() for number, dtype in kernel.scalars]
    parts = [np.empty(kernel.units * kernel.left, kind.dtype) for kind in kernel.parts]
    arguments = (*kernel.sizes, *given, *scalars, *outputs, *parts)
    with np.errstate(all="ignore"):
        function(kernel.units, int(kernel.shared), *arguments)
        if parts:
            function(0, 0, *arguments)
    return [out.reshape(o.value.shape) for out, o in zip(outputs, kernel.outputs, strict=True)]


def run_plainly(fn: Any, *arrays: Any) -> list[Any]:
    """The result of a function that compiles to one loop, with the loop run as plain Python."""
    kernel = emitted(fn, *[Tensor(a) for a in arrays])
    wanted = sorted(range(len(kernel.arrays)), key=lambda i: kernel.arrays[i].value.number)
    places = {position: order for order, position in enumerate(wanted)}
    given = [arrays[places[i]] for i in range(len(kernel.arrays))]
    found = call_kernel(as_python(kernel.name, kernel.source), kernel, given)
    order = np.argsort([o.value.number for o in kernel.outputs])
    return [found[i] for i in order]


def whole_numbers(shape: tuple[int, ...], dtype: Any, seed: int = 0) -> Any:
    """Integers around 0, so that arithmetic and sums are exact in every dtype and order."""
    return np.random.default_rng(seed).integers(0 if np.dtype(dtype).kind == "u" else -3, 4, shape).astype(dtype)


@contextmanager
def plainly() -> Iterator[None]:
    """Context in which kernels run as plain Python, so that nothing is compiled."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (cpu_loop, launching):
            patch.setattr(module, "build", lambda name, source, signature: as_python(name, source))
        yield


@pytest.fixture
def interpreted() -> Iterator[None]:
    """Fixture: functions traced in the test run as plain Python instead of being compiled."""
    with plainly():
        yield
