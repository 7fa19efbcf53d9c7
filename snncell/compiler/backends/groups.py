"""Kernels of fused groups on CPU and device: elementwise instructions and reductions as the source of one function.

The statements come from the formulas (`expressions.py`), and the loop around them on the CPU from `kernels/loops.py`:

    no reduction                    map_loop
    the last axis is kept           reduce_columns    sums over rows, whole rows at a time
    one result, and much work       reduce_all, reduce_slices: units store partial results, combined in order
    channels of many images         reduce_slices: one image after the other, in memory order
    otherwise                       reduce_rows       a sum along memory for each result

On the device, there is a thread for each element, or for each part of a sum. Sums use no atomics: each of `chunks`
threads adds every `chunks`-th term of a result, and further rounds sum their results until one is left. The number of
chunks, and so the bits, depends only on the sizes. Sums of float32 are compensated (`Reduced.compensated`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from snncell import dtype as dtypes
from snncell.compiler.backends.expressions import (
    Operand,
    Statements,
    cost_of,
    cuda_head,
    far_of,
    file_head,
    flat_index,
    kind_of,
    operands_of,
)
from snncell.compiler.fuse import FusionGroup
from snncell.compiler.ir.operations import Elementwise, Reduction, Sum
from snncell.kernels import loops
from snncell.kernels.loops import Reduced, indent
from snncell.kernels.numba.policy import PARALLEL_SIZE
from snncell.kernels.scalar import CUDA, LOAD, LOOP, STORE
from snncell.tape.state import Value
from snncell.tape.tracing import Instruction

LEAST_PART = 64  # the fewest elements of a partial result per slice
TERMS = 16  # terms per thread; a shorter sum is not split
MOST_CHUNKS = 256  # the most partial sums that one thread combines; more are combined in two rounds
ENOUGH = 1 << 17  # threads that fill a card


@dataclass(frozen=True)
class GroupKernel:
    """The kernel of a group, ready to be built."""

    name: str  # the names of its operations, for the file name
    source: str  # the complete file
    sizes: tuple[int, ...]  # the lengths of the merged axes: the first arguments
    arrays: list[Operand]
    outputs: list[Operand]
    scalars: list[tuple[Any, Any]]  # Python numbers, and the NumPy dtype of each argument
    signature: tuple[Any, ...]  # the argument types for `build`


@dataclass(frozen=True)
class KernelSource(GroupKernel):
    """A kernel on the CPU."""

    units: int  # the number of units
    shared: bool  # True if there is enough work for several threads
    parts: list[Any]  # the dtypes of the arrays for partial results
    left: int  # the number of partial results per unit in each of these arrays


@dataclass(frozen=True)
class CUDAKernel(GroupKernel):
    """A kernel on the device; its source also has the kernel that combines partial sums, `join_<name>`."""

    results: int  # the number of elements, or of results of the sums
    terms: int  # terms per sum; 0 without sums
    sums: list[int]  # the positions of sums among the outputs
    join: tuple[Any, ...]  # the argument types of the combining kernel


class _GroupBody(Statements):
    """The statements of a fused group and its operands; p0, p1, ... are the index of an element."""

    def __init__(self, group: FusionGroup, uniform: set[Value], prefix: str, functions: dict[str, str]) -> None:
        super().__init__(functions=functions)
        self.name = prefix + "_".join(dict.fromkeys(instruction.op.name for instruction in group.instructions))[:48]
        self.space, self.arrays, self.outputs = operands_of(group, uniform)
        for number, operand in enumerate(self.arrays):
            self.load(operand.value, self.element(operand, f"a{number}", [length != 1 for length in operand.shape]))
        for instruction in group.instructions:
            if isinstance(instruction.op, Elementwise):
                self.compute(instruction)
        self.reductions = {x.outputs[0]: x for x in group.instructions if isinstance(x.op, Reduction)}
        for number, operand in enumerate(self.outputs):
            if operand.value not in self.reductions:
                self.lines.append(self.store(operand.value, f"o{number}"))

    def element(self, operand: Operand, array: str, present: Sequence[bool]) -> str:
        """The array element at the current index; the index is 0 on axes that are not `present`."""
        places = (f"p{axis}" if has else "0" for axis, has in enumerate(present))
        return f"{array}[{', '.join(places)}]"

    def store(self, value: Value, array: str) -> str:
        return f"{array}[{', '.join(f'p{axis}' for axis in range(len(self.space.sizes)))}] = {self.names[value]}"

    def reduced(self, instruction: Instruction, target: str) -> Reduced:
        """The template arguments for one of the reductions."""
        op, (x,) = instruction.op, instruction.inputs
        assert isinstance(op, Reduction)  # the caller has checked it
        kind = kind_of(x)
        far = far_of(x) if isinstance(op, Sum) else kind
        return Reduced(target, self.names[x], op.join, f"{kind.code}({op.start(kind.dtype)})", kind.code, far.code)

    def arguments(self, more: Sequence[str] = ()) -> list[str]:
        """The names of the kernel's arguments, with `more` after the sizes."""
        names = [f"n{n}" for n in range(len(self.space.sizes))] + [*more]
        for letter, values in (("a", self.arrays), ("s", self.scalars), ("o", self.outputs)):
            names += [f"{letter}{n}" for n in range(len(values))]
        return names


# --- The CPU ----------------------------------------------------------------------------------------------------------


def emit(group: FusionGroup, uniform: set[Value]) -> KernelSource:
    """Emit the CPU kernel of a fused group; `uniform` are constants with all elements equal."""
    assert group.shape is not None  # only loops are emitted
    # Decide by the sizes, not by the number of threads, so that the order of summation does not depend on it.
    shared = math.prod(group.shape) * cost_of(group.instructions) >= PARALLEL_SIZE
    body = _GroupBody(group, uniform, "loop_", LOOP)
    sizes, kept = body.space.sizes, body.space.kept
    position = {operand.value: number for number, operand in enumerate(body.outputs)}
    sums = []
    for value, instruction in body.reductions.items():
        if value in position:
            operand = body.outputs[position[value]]
            sums.append(body.reduced(instruction, body.element(operand, f"o{position[value]}", kept)))
    lines, units, left = _loop(kept, sizes, body.lines, sums, shared)
    terms = [instruction.inputs[0] for instruction in body.reductions.values() if isinstance(instruction.op, Sum)]
    parts = [dtypes.BY_NUMPY[np.dtype(r.far)] for r in sums] if left else []
    arguments = body.arguments() + [f"parts{i}" for i in range(len(parts))]
    source = f"{file_head(group.instructions, summed=terms)}\n\n{loops.function(body.name, arguments, lines)}"
    signature = (
        *[dtypes.int64 for _ in sizes],
        *[(kind_of(o.value), len(sizes), False) for o in body.arrays],
        *[dtypes.BY_NUMPY[dtype] for _, dtype in body.scalars],
        *[(kind_of(o.value), len(sizes), True) for o in body.outputs],
        *[(kind, 1, True) for kind in parts],
    )
    shape = body.name, source, sizes, body.arrays, body.outputs, body.scalars, signature
    return KernelSource(*shape, units, shared, parts, left)


def _loop(
    kept: tuple[bool, ...], sizes: tuple[int, ...], body: list[str], sums: list[Reduced], shared: bool
) -> tuple[list[str], int, int]:
    """The lines of the template for these axes, its number of units, and the partial results per unit."""
    keep = [axis for axis, is_kept in enumerate(kept) if is_kept]
    along = [axis for axis, is_kept in enumerate(kept) if not is_kept]
    if not along:
        return loops.map_loop(len(kept), body), sizes[0], 0
    if kept[-1]:
        units = sizes[keep[0]] if len(keep) > 1 else -(-sizes[-1] // loops.COLUMNS)
        return loops.reduce_columns(keep, along, body, sums), units, 0
    if shared and len(along) == 1 and not keep:
        return loops.reduce_all(body, sums), -(-sizes[0] // loops.BLOCK), 1
    inner = math.prod(sizes[axis] for axis in along[1:])
    if shared and not kept[0] and len(along) > 1 and (not keep or inner >= LEAST_PART):
        return loops.reduce_slices(keep, along, body, sums), sizes[0], math.prod(sizes[axis] for axis in keep)
    return loops.reduce_rows(keep, along, body, sums), sizes[keep[0]] if keep else 1, 0


# --- The device -------------------------------------------------------------------------------------------------------


class _DeviceBody(_GroupBody):
    """A group body with flat arrays in their storage dtypes."""

    def element(self, operand: Operand, array: str, present: Sequence[bool]) -> str:
        present = [has or size == 1 for has, size in zip(present, self.space.sizes, strict=True)]
        return load_element(operand.value, array, self._place(present))

    def store(self, value: Value, array: str) -> str:
        return store_element(value, array, self._place([True] * len(self.space.sizes)), self.names[value])

    def _place(self, present: Sequence[bool]) -> str:
        axes = range(len(present))
        return flat_index([f"p{axis}" for axis in axes], [f"n{axis}" for axis in axes], present)


def emit_cuda(group: FusionGroup, uniform: set[Value]) -> CUDAKernel:
    """Emit the device kernel of a fused group; `uniform` are constants with all elements equal."""
    body = _DeviceBody(group, uniform, "cuda_", CUDA)
    sizes, kept, outputs, name = body.space.sizes, body.space.kept, body.outputs, body.name
    sums = [n for n, operand in enumerate(outputs) if operand.value in body.reductions]
    joined = [body.reduced(body.reductions[outputs[n].value], f"o{n}") for n in sums]
    lines = _sum(list(kept), body.lines, joined, outputs) if sums else _map(len(sizes), body.lines)
    source = f"{cuda_head(group.instructions)}\n\n{_function(name, body.arguments(['chunks'] * bool(sums)), lines)}"
    if sums:
        source += _join(name, [outputs[n].value for n in sums], joined, kept[-1])
    parts = [kind_of(outputs[n].value) for n in sums]
    filled = [kind_of(o.value) if n in sums else dtypes.BY_NUMPY[o.value.dtype] for n, o in enumerate(outputs)]
    signature = (
        *[dtypes.int64] * (len(sizes) + bool(sums)),
        *[(dtypes.BY_NUMPY[operand.value.dtype], False) for operand in body.arrays],
        *[dtypes.BY_NUMPY[dtype] for _, dtype in body.scalars],
        *[(dtype, True) for dtype in filled],
    )
    join = (*[dtypes.int64] * 3, *[(dtype, False) for dtype in parts], *[(dtype, True) for dtype in parts])
    count = math.prod(n for n, keep in zip(sizes, kept, strict=True) if keep)
    terms = math.prod(n for n, keep in zip(sizes, kept, strict=True) if not keep) if sums else 0
    shape = name, source, sizes, body.arrays, outputs, body.scalars, signature
    return CUDAKernel(*shape, count, terms, sums, join)


def chunks_of(count: int, terms: int) -> list[int]:
    """The number of partial sums of each of `count` results after each round; the last round leaves one."""
    # A part has about TERMS terms, but more if there were more threads than fill a card.
    rounds = [max(1, min(-(-terms // TERMS), ENOUGH // max(count, 1)))]
    while rounds[-1] > 1:
        rounds.append(1 if rounds[-1] <= MOST_CHUNKS else -(-rounds[-1] // MOST_CHUNKS))
    return rounds


def load_element(value: Value, array: str, place: str) -> str:
    """The expression of an element of a flat array, in its compute dtype; booleans are bytes."""
    return LOAD.get(value.dtype.name, "{0}").format(f"{array}[{place}]")


def store_element(value: Value, array: str, place: str, element: str) -> str:
    """The statement that stores an element, a variable, in a flat array."""
    return f"{array}[{place}] = " + STORE.get(value.dtype.name, "{0}").format(element)


def _store_sum(value: Value, array: str, place: str, element: str) -> str:
    return store_element(value, array, place, element) if value.dtype.kind == "b" else f"{array}[{place}] = {element}"


def _unravel_index(index: str, axes: list[int]) -> list[str]:
    """Statements that compute p0, ... for each of `axes` from a flat index."""
    lines = []
    for axis in reversed(axes[1:]):
        lines += [f"p{axis} = {index} % n{axis}", f"{index} = {index} // n{axis}"]
    return [*lines, f"p{axes[0]} = {index}"] if axes else []


def _product(axes: list[int]) -> str:
    return " * ".join(f"n{axis}" for axis in axes) or "1"


def _function(name: str, arguments: Sequence[str], lines: list[str]) -> str:
    return "\n".join([f"def {name}({', '.join(arguments)}):", *indent(lines)]) + "\n"


def _map(ndim: int, body: list[str]) -> list[str]:
    axes = list(range(ndim))
    return ["i = cuda.grid(1)", f"if i < {_product(axes)}:", *indent([*_unravel_index("i", axes), *body])]


def _thread(columns: bool, count: str) -> list[str]:
    """Statements for the result `k` of a thread, and the part `c` of its terms."""
    # For coalesced loads, neighbouring threads must read neighbouring elements: terms of different results if the last
    # axis is kept, otherwise terms of the same result.
    if columns:
        return [f"k = i % ({count})", f"c = i // ({count})"]
    return ["c = i % chunks", "k = i // chunks"]


def _part(columns: bool, count: str, part: str, parts: str) -> str:
    return f"{part} * ({count}) + k" if columns else f"k * {parts} + {part}"


def begin_sums(sums: list[Reduced]) -> list[str]:
    """Statements that initialise the sums `z0`, ..., and their rounding errors `lost0`, ..."""
    lost = [f"lost{n} = {r.start}" for n, r in enumerate(sums) if r.two_levels]
    return [*(f"z{n} = {r.start}" for n, r in enumerate(sums)), *lost]


def add_term(n: int, r: Reduced) -> list[str]:
    """Statements that add a term to the sum `z<n>`."""
    return r.compensated(f"z{n}", f"lost{n}") if r.two_levels else [f"z{n} = {r.joined(f'z{n}', r.term)}"]


def _sum(kept: list[bool], body: list[str], sums: list[Reduced], outputs: list[Operand]) -> list[str]:
    """The lines of a kernel in which each thread adds every `chunks`-th term of a result."""
    keep = [axis for axis, is_kept in enumerate(kept) if is_kept]
    along = [axis for axis, is_kept in enumerate(kept) if not is_kept]
    count, columns = _product(keep), kept[-1]
    place = _part(columns, count, "c", "chunks")
    values = {f"o{n}": operand.value for n, operand in enumerate(outputs)}
    grow = [line for n, r in enumerate(sums) for line in add_term(n, r)]
    inner = ["q = r", *_unravel_index("q", along), *body, *grow, "r += chunks"]
    lines = [*_thread(columns, count), "q = k", *_unravel_index("q", keep), "r = c"]
    lines += [*begin_sums(sums), f"while r < {_product(along)}:", *indent(inner)]
    lines += [_store_sum(values[r.target], r.target, place, f"z{n}") for n, r in enumerate(sums)]
    return ["i = cuda.grid(1)", f"if i < {count} * chunks:", *indent(lines)]


def _join(name: str, values: list[Value], sums: list[Reduced], columns: bool) -> str:
    """The kernel that reduces `parts` partial results of each of `count` results to `chunks`."""
    part = _part(columns, "count", "r", "parts")
    inner = []
    for n, (r, value) in enumerate(zip(sums, values, strict=True)):
        # A partial sum is stored in its compute dtype.
        term = load_element(value, f"a{n}", part) if value.dtype.kind == "b" else f"a{n}[{part}]"
        inner += add_term(n, r._replace(term=f"({term})"))
    lines = [*_thread(columns, "count"), "r = c", *begin_sums(sums)]
    lines += ["while r < parts:", *indent([*inner, "r += chunks"])]
    place = _part(columns, "count", "c", "chunks")
    lines += [_store_sum(value, f"o{n}", place, f"z{n}") for n, value in enumerate(values)]
    arguments = ["count", "parts", "chunks", *(f"{letter}{n}" for letter in "ao" for n in range(len(sums)))]
    text = ["i = cuda.grid(1)", "if i < count * chunks:", *indent(lines)]
    return "\n\n" + _function(f"join_{name}", arguments, text)
