"""Formulas as source text: the statements of a loop's body, and the head of its file, for both targets.

    mul(x, 0.5)   ->   # mul, net.py:12: v = v * 0.5
                       t1 = f4(v0 * s0)

A Python number becomes an argument of the kernel (s0), so that a new number needs no new kernel. Each statement casts
its result to the dtype of the computation (f4).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from snncell import dtype as dtypes
from snncell.compiler.fuse import FusionGroup
from snncell.compiler.ir.operations import Cast, Elementwise, Reduction
from snncell.compiler.ir.program import results_of, values_in
from snncell.kernels import loops
from snncell.kernels.numba.policy import CALL_COST
from snncell.kernels.scalar import CUDA_IMPORTS, LOOP, LOOP_IMPORTS, SIMULATOR_IMPORTS, is_simulated
from snncell.tape.state import Value
from snncell.tape.tracing import Instruction


class Statements:
    """The statements of a loop's body, and the variable name of each Value."""

    def __init__(
        self, scalars: list[tuple[Any, Any]] | None = None, functions: dict[str, str] = LOOP, mark: str = ""
    ) -> None:
        self.functions = functions  # the target's names of scalar functions
        self.mark = mark  # a suffix of names, for a second body in one kernel
        self.lines: list[str] = []
        self.names: dict[Value, str] = {}
        self.scalars: list[tuple[Any, Any]] = [] if scalars is None else scalars

    def load(self, value: Value, element: str) -> None:
        """Name a Value and load its element from outside."""
        self.names[value] = f"v{len(self.names)}{self.mark}"
        self.lines.append(f"{self.names[value]} = {element}")

    def compute(self, instruction: Instruction) -> None:
        """Append an elementwise instruction, preceded by a comment with the user's line."""
        assert isinstance(instruction.op, Elementwise)  # the callers have checked it
        inputs, (out,) = instruction.inputs, instruction.outputs
        code = dtypes.compute_dtype(instruction.op.operand_dtype(inputs))
        operands = [self.names[x] if isinstance(x, Value) else self._scalar(x, instruction, code) for x in inputs]
        name = f"t{len(self.names)}{self.mark}"  # numbered within the loop, so that equal loops have equal source
        self.names[out] = name
        comment = comment_on(instruction)
        if not self.lines or self.lines[-1] != comment:
            self.lines.append(comment)
        result = instruction.op.expression(operands, code.str[1:], self.functions)
        self.lines.append(f"{name} = {kind_of(out).code}({_as_integer(result, instruction, out.dtype)})")
        self.lines += self.rounding(out, name)

    def rounding(self, value: Value, name: str) -> list[str]:
        """The statement that rounds an element to float16 or bfloat16, as each eager operation does; otherwise none."""
        if not dtypes.is_storage_only(value.dtype):
            return []
        return [f"{name} = {self.functions[value.dtype.name].format(name)}"]

    def _scalar(self, number: Any, instruction: Instruction, dtype: Any) -> str:
        """Pass each number as a separate argument, even an equal one, so that the source does not depend on values."""
        condition = instruction.inputs[0] is number and getattr(instruction.op, "rule", "") == "select"
        self.scalars.append((number, np.dtype(bool) if condition else dtype))
        return f"s{len(self.scalars) - 1}"


def _as_integer(result: str, instruction: Instruction, dtype: Any) -> str:
    """Cast a float to a small integer by way of int32, where it wraps, because a direct cast is undefined."""
    source = instruction.inputs[0]
    from_float = isinstance(instruction.op, Cast) and isinstance(source, Value) and dtypes.is_float(source.dtype)
    return f"np.int32({result})" if from_float and dtype.kind in "iu" and dtype.itemsize <= 2 else result


def file_head(
    instructions: Sequence[Instruction], others: Sequence[Value] = (), summed: Sequence[Value] = (), more: str = ""
) -> str:
    """The head of a file: docstring, imports (with `more`), and a cast per dtype, also for sums of `summed` Values."""
    return _head(LOOP_IMPORTS + more, instructions, others, summed)


def cuda_head(instructions: Sequence[Instruction], others: Sequence[Value] = ()) -> str:
    """The head of the file of a CUDA kernel."""
    return _head(SIMULATOR_IMPORTS if is_simulated() else CUDA_IMPORTS, instructions, others, ())


def _head(imports: str, instructions: Sequence[Instruction], others: Sequence[Value], summed: Sequence[Value]) -> str:
    values = [*others, *values_in(*instructions), *results_of(*instructions)]
    kinds = {*map(kind_of, values), *map(far_of, summed)}
    used = sorted((kind.code, kind.dtype) for kind in kinds)
    casts = "".join(f"{code} = np.{dtype.type.__name__}\n" for code, dtype in used)
    names = ", ".join(instruction.op.name for instruction in instructions)
    return f'"""Generated by snncell: {names}."""\n\n{imports}\n{casts}'


def cost_of(instructions: Sequence[Instruction]) -> int:
    """The time of the instructions for one element, in elementwise additions or multiplications."""
    return 1 + CALL_COST * sum(one.op.slow_calls for one in instructions if isinstance(one.op, Elementwise))


def sum_of_elements(value: Value, term: str = "") -> loops.Reduced:
    """The template arguments for a sum of a Value's elements in a loop over time."""
    code = kind_of(value).code
    return loops.Reduced("", term, "{0} + {1}", f"{code}(0)", code, far_of(value).code)


def comment_on(instruction: Instruction) -> str:
    """A comment with the user's line."""
    return f"# {instruction.op.name}, {instruction.line}".encode("ascii", "replace").decode()


def as_scalar(number: Any, dtype: Any) -> Any:
    """Convert a Python number to a kernel argument: rounded to the dtype, infinite if it overflows."""
    with np.errstate(all="ignore"):
        return dtype.type(number).item()


def kind_of(value: Value) -> dtypes.DType:
    """The dtype in which a Value's elements are computed; its `code` is the name of the cast in generated files."""
    return dtypes.BY_NUMPY[dtypes.compute_dtype(value.dtype)]


def far_of(value: Value) -> dtypes.DType:
    """The dtype in which partial sums of a Value's elements are added."""
    return dtypes.BY_NUMPY[dtypes.far(dtypes.compute_dtype(value.dtype))]


class Operand(NamedTuple):
    """A kernel operand: a Value reshaped to `shape`, which has length 1 along broadcast axes."""

    value: Value
    shape: tuple[int, ...]


class IndexSpace:
    """The index space of a kernel: the merged axes of a shape, and the index of each operand's element.

        x (8, 16, 32) + b (32,)   ->   sizes (128, 32); x at p0 * n1 + p1, b at p1

    Neighbouring axes merge if every operand is broadcast along both or along none of them, as the first two axes here.
    Most kernels then have one or two axes, so fewer kernels are compiled, and inner loops are long. A `uniform`
    operand, with all elements equal, is broadcast along all axes. `sizes` has the length of each merged axis, and
    `kept` is False for a reduced axis. `present[value]` is False for each axis along which the operand is broadcast.

    If `nested`, `fill_broadcast` copies broadcast operands, with at most four levels of loops (see `repeats`). If an
    operand needs more levels, `expanded` has the shape to which the caller must broadcast it first.
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        operands: Sequence[Value],
        reduced: tuple[int, ...] = (),
        uniform: Collection[Value] = (),
        nested: bool = False,
    ) -> None:
        patterns = {value: _axes_in_full(value, shape, value in uniform) for value in operands}
        self.expanded: dict[Value, tuple[int, ...]] = {}
        for value, pattern in patterns.items() if nested else ():
            few = _with_few_levels(pattern)
            if few != pattern:
                self.expanded[value] = tuple(n if has else 1 for n, has in zip(shape, few, strict=True))
                patterns[value] = few
        self.sizes, self.kept, runs = join_axes(shape, reduced, list(patterns.values()))
        self.present = {
            value: [all(pattern[axis] for axis in run) for run in runs] for value, pattern in patterns.items()
        }

    def shape_of(self, value: Value) -> tuple[int, ...]:
        """The merged lengths of an operand; 1 along broadcast axes."""
        return tuple(n if has else 1 for n, has in zip(self.sizes, self.present[value], strict=True))

    def coverage(self, value: Value) -> Literal["all", "some", "one"]:
        """ "all" if each index has its own element, "some" if some indices share an element, "one" if all share one."""
        axes = [has or size == 1 for has, size in zip(self.present[value], self.sizes, strict=True)]
        return "all" if all(axes) and value.shape else "some" if any(self.present[value]) else "one"

    def repeats(self, value: Value) -> list[list[int]]:
        """The axes with the lengths outer, times, inner and each of an operand (`fill_broadcast`)."""
        levels = _levels_of(self.present[value])
        levels = [*levels, *[[]] * self.present[value][-1]]  # each
        return [*[[]] * (4 - len(levels)), *levels]

    def place(self, value: Value, coordinates: Sequence[str], lengths: Sequence[str]) -> str:
        """The index of an element in a flat operand."""
        return flat_index(coordinates, lengths, self.present[value])


def operands_of(group: FusionGroup, uniform: Collection[Value]) -> tuple[IndexSpace, list[Operand], list[Operand]]:
    """The index space of a fused group, its inputs and its outputs."""
    assert group.shape is not None  # only loops are emitted
    space = IndexSpace(group.shape, group.reads, group.axes or (), uniform)
    reduced = {instruction.outputs[0] for instruction in group.instructions if isinstance(instruction.op, Reduction)}
    left = tuple(n if keep else 1 for n, keep in zip(space.sizes, space.kept, strict=True))
    arrays = [Operand(value, space.shape_of(value)) for value in group.reads]
    return space, arrays, [Operand(value, left if value in reduced else space.sizes) for value in group.writes]


def join_axes(
    shape: tuple[int, ...], axes: tuple[int, ...], patterns: Sequence[tuple[bool, ...]]
) -> tuple[tuple[int, ...], tuple[bool, ...], list[list[int]]]:
    """Merge neighbouring axes that the reduction and all operands treat alike. Return for each merged axis its length,
    whether it is kept (not reduced), and its original axes.
    """
    runs: list[list[int]] = []
    previous: Any = None
    for axis, length in enumerate(shape):
        treatment = (axis in axes, *(pattern[axis] for pattern in patterns))
        if length == 1 and axis not in axes and len(shape) > 1:
            continue  # an axis of length 1 changes no index
        if treatment == previous:
            runs[-1].append(axis)
        else:
            runs.append([axis])
        previous = treatment
    if not runs:
        return (1,), (True,), [[]]
    sizes = tuple(math.prod(shape[axis] for axis in run) for run in runs)
    return sizes, tuple(run[0] not in axes for run in runs), runs


def _axes_in_full(value: Value, shape: tuple[int, ...], uniform: bool) -> tuple[bool, ...]:
    own = (1,) * (len(shape) - len(value.shape)) + value.shape
    return tuple(not uniform and have == want for have, want in zip(own, shape, strict=True))


def _levels_of(pattern: Sequence[bool]) -> list[list[int]]:
    """The axes in runs (levels) with equal `pattern`, from the first run in which the operand is present."""
    levels = [list(run) for _, run in itertools.groupby(range(len(pattern)), lambda axis: pattern[axis])]
    return levels[1:] if len(levels) > 1 and not pattern[0] else levels


def _with_few_levels(pattern: tuple[bool, ...]) -> tuple[bool, ...]:
    """The pattern if it has at most four levels; otherwise with all axes from the third level on present."""
    levels = _levels_of(pattern)
    if len(levels) <= (3 if pattern[-1:] == (True,) else 4):
        return pattern
    return tuple(has or axis >= levels[2][0] for axis, has in enumerate(pattern))


def flat_index(coordinates: Sequence[str], lengths: Sequence[str], present: Sequence[bool]) -> str:
    """The flat index of an element: for example "p0 * n2 + p2" in an array that is broadcast along axis 1."""
    terms: list[str] = []
    inner: list[str] = []  # the lengths of the inner axes
    for coordinate, length, has in reversed(list(zip(coordinates, lengths, present, strict=True))):
        if has:
            terms.append(" * ".join([coordinate, *inner]))
            inner.append(length)
    return " + ".join(reversed(terms)) or "0"
