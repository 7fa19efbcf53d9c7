"""Emit: a group of elementwise steps and reductions becomes the source of one loop.

The statements come from the formulas; the loop around them comes from a template. Axes that every operand treats alike
are joined first, so that most loops run over one or two axes whatever the shapes were. Python numbers become arguments
of the kernel: another number is another call, not another kernel.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from snncell import dtype as dtypes
from snncell.compiler.formula import Elementwise, Reduction
from snncell.compiler.fuse import Group
from snncell.kernels.cpu import loops
from snncell.kernels.policy import CALL_COST, PARALLEL_SIZE
from snncell.kernels.scalar import CUDA_IMPORTS, LOOP, LOOP_IMPORTS, SIMULATOR_IMPORTS, simulated
from snncell.tape.tracing import Step, Value


class Operand(NamedTuple):
    """A Value as it enters a kernel: reshaped to `shape`, whose axes of length 1 are broadcast."""

    value: Value
    shape: tuple[int, ...]


class Kernel(NamedTuple):
    """A loop, ready to be built.

    Attributes:
        name: what it computes, for the file's name.
        source: the whole file.
        sizes: the lengths of the joined axes: the first arguments.
        arrays: the inputs, in the order of the arguments.
        scalars: Python numbers and the NumPy dtype each is passed as.
        outputs: the arrays that the kernel fills.
        signature: the argument types for `build`.
        units: of its work, which threads can share.
        shared: whether they do: it is worth their while.
        parts: what the units leave to be joined, for each: its dtype.
    """

    name: str
    source: str
    sizes: tuple[int, ...]
    arrays: list[Operand]
    scalars: list[tuple[Any, Any]]
    outputs: list[Operand]
    signature: tuple[Any, ...]
    units: int
    shared: bool
    parts: list[Any]


def emit(group: Group, uniform: set[Value]) -> Kernel:
    """The kernel of a fused group; `uniform` are constants whose elements are all the same."""
    assert group.shape is not None  # only loops are emitted
    reductions = [step for step in group.steps if isinstance(step.op, Reduction)]
    reduced = {step.outputs[0] for step in reductions}
    axes = group.axes or ()
    patterns = {value: pattern_of(value, group.shape, value in uniform) for value in group.reads}
    sizes, kept, runs = join_axes(group.shape, axes, list(patterns.values()))
    shared = math.prod(group.shape) * cost_of(group.steps) >= PARALLEL_SIZE

    arrays = [Operand(value, joined_shape(patterns[value], runs, sizes)) for value in group.reads]
    outputs = []
    for value in group.writes:
        shape = tuple(n if keep else 1 for n, keep in zip(sizes, kept, strict=True)) if value in reduced else sizes
        outputs.append(Operand(value, shape))

    body = _Body(len(sizes))
    body.rounded = group.rounded()
    for number, operand in enumerate(arrays):
        body.load_from(operand, number)
    for step in group.steps:
        if isinstance(step.op, Elementwise):
            body.compute(step)
    places = {operand.value: number for number, operand in enumerate(outputs)}
    for number, operand in enumerate(outputs):
        if operand.value not in reduced:
            body.lines.append(f"{body.at(f'o{number}', sizes)} = {body.names[operand.value]}")
    sums = [
        body.reduced(step, body.at(f"o{places[step.outputs[0]]}", outputs[places[step.outputs[0]]].shape, kept))
        for step in reductions
        if step.outputs[0] in places
    ]

    name = "loop_" + "_".join(dict.fromkeys(step.op.name for step in group.steps))[:48]
    arguments = [f"n{i}" for i in range(len(sizes))] + [f"a{i}" for i in range(len(arrays))]
    arguments += [f"s{i}" for i in range(len(body.scalars))] + [f"o{i}" for i in range(len(outputs))]
    lines, units, in_parts = _loop(kept, sizes, body.lines, sums, shared)
    parts = [kind_of(step.inputs[0]) for step in reductions if step.outputs[0] in places] if in_parts else []
    arguments += [f"parts{i}" for i in range(len(parts))]
    source = f"{file_head(group.steps)}\n\n{loops.function(name, arguments, lines)}"
    signature = (
        *[dtypes.int64 for _ in sizes],
        *[(kind_of(o.value), len(sizes), False) for o in arrays],
        *[dtypes.BY_NUMPY[dtype] for _, dtype in body.scalars],
        *[(kind_of(o.value), len(sizes), True) for o in outputs],
        *[(kind, 1, True) for kind in parts],
    )
    return Kernel(name, source, sizes, arrays, body.scalars, outputs, signature, units, shared, parts)


def file_head(steps: Sequence[Step], others: Sequence[Value] = (), more: str = "") -> str:
    """The file above the function: what it is, imports (and `more`), and the casts that its statements use."""
    return _head(LOOP_IMPORTS + more, steps, others)


def cuda_head(steps: Sequence[Step], others: Sequence[Value] = ()) -> str:
    """The same above a CUDA kernel."""
    return _head(SIMULATOR_IMPORTS if simulated() else CUDA_IMPORTS, steps, others)


def _head(imports: str, steps: Sequence[Step], others: Sequence[Value]) -> str:
    values = [*others, *(x for step in steps for x in (*step.inputs, *step.outputs) if isinstance(x, Value))]
    used = sorted({code_of(value): kind_of(value).dtype for value in values}.items())
    casts = "".join(f"{code} = np.{dtype.type.__name__}\n" for code, dtype in used)
    return f'"""Generated by snncell: {", ".join(step.op.name for step in steps)}."""\n\n{imports}\n{casts}'


def cost_of(steps: Sequence[Step]) -> int:
    """The cost of one element, in elements of plain arithmetic."""
    return 1 + CALL_COST * sum(step.op.slow_calls for step in steps if isinstance(step.op, Elementwise))


def join_axes(
    shape: tuple[int, ...], axes: tuple[int, ...], patterns: Sequence[tuple[bool, ...]]
) -> tuple[tuple[int, ...], tuple[bool, ...], list[list[int]]]:
    """Join neighbouring axes that all operands treat alike.

    Args:
        shape: the index space.
        axes: the reduced axes.
        patterns: for each operand, which axes it really has (the others are broadcast).

    Returns:
        The joined lengths, which of them are kept (not reduced), and the axes that each stands for.
    """
    runs: list[list[int]] = []
    previous: Any = None
    for axis, length in enumerate(shape):
        treatment = (axis in axes, *(pattern[axis] for pattern in patterns))
        if length == 1 and axis not in axes and len(shape) > 1:
            continue  # an axis of length 1 joins anything
        if treatment == previous:
            runs[-1].append(axis)
        else:
            runs.append([axis])
        previous = treatment
    if not runs:
        return (1,), (True,), [[]]
    sizes = tuple(math.prod(shape[axis] for axis in run) for run in runs)
    return sizes, tuple(run[0] not in axes for run in runs), runs


def pattern_of(value: Value, shape: tuple[int, ...], uniform: bool = False) -> tuple[bool, ...]:
    """For each axis of the index space, whether the operand has it in full."""
    own = (1,) * (len(shape) - len(value.shape)) + value.shape
    return tuple(not uniform and have == want for have, want in zip(own, shape, strict=True))


def joined_shape(pattern: tuple[bool, ...], runs: list[list[int]], sizes: tuple[int, ...]) -> tuple[int, ...]:
    """The lengths of the joined axes that an operand has; those that it has not are 1."""
    return tuple(n if all(pattern[axis] for axis in run) else 1 for n, run in zip(sizes, runs, strict=True))


def _loop(
    kept: tuple[bool, ...], sizes: tuple[int, ...], body: list[str], sums: list[loops.Reduced], shared: bool
) -> tuple[list[str], int, bool]:
    """The template that fits, how many units it has, and whether these leave parts that are joined."""
    keep = [axis for axis, is_kept in enumerate(kept) if is_kept]
    along = [axis for axis, is_kept in enumerate(kept) if not is_kept]
    if not along:
        return loops.map_loop(len(kept), body), sizes[0], False
    if kept[-1]:
        units = sizes[keep[0]] if len(keep) > 1 else -(-sizes[-1] // loops.COLUMNS)
        return loops.reduce_columns(keep, along, body, sums), units, False
    if not keep and shared:
        if len(along) == 1:
            return loops.reduce_all(body, sums), -(-sizes[0] // loops.BLOCK), True
        return loops.reduce_slices(along, body, sums), sizes[0], True
    return loops.reduce_rows(keep, along, body, sums), sizes[keep[0]] if keep else 1, False


class Statements:
    """The statements of a loop's body, and the names of the Values in it."""

    def __init__(
        self, scalars: list[tuple[Any, Any]] | None = None, functions: dict[str, str] = LOOP, mark: str = ""
    ) -> None:
        self.functions = functions  # what scalar functions are called
        self.mark = mark  # what names end with
        self.lines: list[str] = []
        self.names: dict[Value, str] = {}
        self.scalars: list[tuple[Any, Any]] = [] if scalars is None else scalars
        self.rounded: set[Value] = set()  # what is used as it is stored, not as it is computed

    def load(self, value: Value, element: str) -> None:
        """Give a Value a name that holds an element from outside."""
        self.names[value] = f"v{len(self.names)}{self.mark}"
        self.lines.append(f"{self.names[value]} = {element}")

    def compute(self, step: Step) -> None:
        """Append an elementwise step, under the line of the user's that it comes from."""
        assert isinstance(step.op, Elementwise)  # the caller's choice
        (out,) = step.outputs
        code = dtypes.computed(step.op.operand_dtype(step.inputs))
        operands = [self.names[x] if isinstance(x, Value) else self._scalar(x, step, code) for x in step.inputs]
        name = f"t{len(self.names)}{self.mark}"  # numbered within the loop, so that equal loops have equal sources
        self.names[out] = name
        comment = comment_on(step)
        if not self.lines or self.lines[-1] != comment:
            self.lines.append(comment)
        result = f"{code_of(out)}({step.op.expression(operands, code.str[1:], self.functions)})"
        # What a user converts is rounded; else it is when it is stored.
        converted = code == kind_of(out).dtype and step.op.operand_dtype(step.inputs) != out.dtype
        self.lines.append(f"{name} = {result}")
        if out in self.rounded or (converted and out.dtype != code):
            self.lines.append(f"{name} = {self.functions[out.dtype.name].format(name)}")

    def _scalar(self, number: Any, step: Step, dtype: Any) -> str:
        """A Python number as an argument. Equal numbers do not share one: the source must not depend on values."""
        condition = step.inputs[0] is number and getattr(step.op, "rule", "") == "select"
        self.scalars.append((number, np.dtype(bool) if condition else dtype))
        return f"s{len(self.scalars) - 1}"


class _Body(Statements):
    """The statements of a loop over the axes of its arrays."""

    def __init__(self, ndim: int) -> None:
        super().__init__()
        self.ndim = ndim

    def at(self, array: str, shape: Sequence[int], present: Sequence[bool] | None = None) -> str:
        """The element of `array` that belongs to the loop's position."""
        full = [True] * self.ndim if present is None else present
        return f"{array}[{', '.join(f'p{axis}' if full[axis] else '0' for axis in range(len(shape)))}]"

    def load_from(self, operand: Operand, number: int) -> None:
        """Give an operand a name that holds its element."""
        present = [length != 1 for length in operand.shape]
        self.load(operand.value, self.at(f"a{number}", operand.shape, present))

    def reduced(self, step: Step, target: str) -> loops.Reduced:
        (term,) = step.inputs
        return reduced(target, self.names[term], step)


def reduced(target: str, term: str, step: Step) -> loops.Reduced:
    """The arguments of a template for a reduction: where its result goes, and what it joins."""
    assert isinstance(step.op, Reduction)  # the caller's choice
    code, kind = code_of(step.inputs[0]), dtypes.computed(step.inputs[0].dtype)
    return loops.Reduced(target, term, step.op.join, f"{code}({step.op.start(kind)})", code)


def comment_on(step: Step) -> str:
    """The line of the user's that a statement comes from."""
    return f"# {step.op.name}, {step.line}".encode("ascii", "replace").decode()


def as_scalar(number: Any, dtype: Any) -> Any:
    """A Python number as it is passed to a kernel: rounded to the dtype, beyond its range infinite."""
    with np.errstate(all="ignore"):
        return dtype.type(number).item()


def kind_of(value: Value) -> dtypes.DType:
    """The dtype that a Value's elements are computed in."""
    return dtypes.BY_NUMPY[dtypes.computed(value.dtype)]


def code_of(value: Value) -> str:
    """The name of the cast to that, in generated files."""
    return kind_of(value).code
