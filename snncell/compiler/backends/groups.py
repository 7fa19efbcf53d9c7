"""The loop of a fused group on the CPU: elementwise instructions and reductions as the source of one function.

The statements come from the formulas (`expressions.py`), the loop around them from a template (`kernels/loops.py`):

    no reduction                    map_loop
    the last axis is kept           reduce_columns    sums over rows, whole rows at a time
    one result, and much work       reduce_all, reduce_slices: units leave parts, which are joined in order
    channels of many images         reduce_slices: an image after the other, as they lie in memory
    otherwise                       reduce_rows       a sum along memory for each result
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from snncell import dtype as dtypes
from snncell.compiler.backends.expressions import (
    Operand,
    Statements,
    cost_of,
    cuda_head,
    file_head,
    flat_index,
    kind_of,
    operands_of,
    reduction_of,
)
from snncell.compiler.fuse import FusionGroup
from snncell.compiler.ir.operations import Elementwise, Reduction, Sum
from snncell.kernels import loops
from snncell.kernels.loops import Reduced, indent
from snncell.kernels.numba.policy import PARALLEL_SIZE
from snncell.kernels.scalar import CUDA, LOAD, STORE
from snncell.tape.state import Value
from snncell.tape.tracing import Instruction

LEAST_PART = 64  # elements of which there is a part, where there is one for each result and slice


class KernelSource(NamedTuple):
    """A loop, ready to be built.

    Attributes:
        name: its operations, for the file's name.
        source: the whole file.
        sizes: the lengths of the joined axes: the first arguments.
        arrays: the inputs, in the order of the arguments.
        scalars: Python numbers and the NumPy dtype each is passed as.
        outputs: the arrays that the kernel fills.
        signature: the argument types for `build`.
        units: of its work, which threads can share.
        shared: whether it pays that threads share them.
        parts: the dtypes of the arrays in which units leave parts of reductions.
        left: the number of parts that a unit leaves in each.
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
    left: int


def emit(group: FusionGroup, uniform: set[Value]) -> KernelSource:
    """The kernel of a fused group; `uniform` are constants whose elements are all the same."""
    assert group.shape is not None  # only loops are emitted
    reductions = [instruction for instruction in group.instructions if isinstance(instruction.op, Reduction)]
    reduced = {instruction.outputs[0] for instruction in reductions}
    space, arrays, outputs = operands_of(group, uniform)
    sizes, kept = space.sizes, space.kept
    # Decided by the sizes, not by the number of threads: the order in which a sum is taken depends on it.
    shared = math.prod(group.shape) * cost_of(group.instructions) >= PARALLEL_SIZE

    body = _Body(len(sizes))
    for number, operand in enumerate(arrays):
        body.load_from(operand, number)
    for instruction in group.instructions:
        if isinstance(instruction.op, Elementwise):
            body.compute(instruction)
    position = {operand.value: number for number, operand in enumerate(outputs)}
    for number, operand in enumerate(outputs):
        if operand.value not in reduced:
            body.lines.append(f"{body.at(f'o{number}', sizes)} = {body.names[operand.value]}")
    sums = [
        body.reduced(
            instruction,
            body.at(f"o{position[instruction.outputs[0]]}", outputs[position[instruction.outputs[0]]].shape, kept),
        )
        for instruction in reductions
        if instruction.outputs[0] in position
    ]

    name = "loop_" + "_".join(dict.fromkeys(instruction.op.name for instruction in group.instructions))[:48]
    arguments = [f"n{i}" for i in range(len(sizes))] + [f"a{i}" for i in range(len(arrays))]
    arguments += [f"s{i}" for i in range(len(body.scalars))] + [f"o{i}" for i in range(len(outputs))]
    lines, units, left = _loop(kept, sizes, body.lines, sums, shared)
    terms = [instruction.inputs[0] for instruction in reductions if isinstance(instruction.op, Sum)]
    parts = [dtypes.BY_NUMPY[np.dtype(r.far)] for r in sums] if left else []
    arguments += [f"parts{i}" for i in range(len(parts))]
    source = f"{file_head(group.instructions, summed=terms)}\n\n{loops.function(name, arguments, lines)}"
    signature = (
        *[dtypes.int64 for _ in sizes],
        *[(kind_of(o.value), len(sizes), False) for o in arrays],
        *[dtypes.BY_NUMPY[dtype] for _, dtype in body.scalars],
        *[(kind_of(o.value), len(sizes), True) for o in outputs],
        *[(kind, 1, True) for kind in parts],
    )
    return KernelSource(name, source, sizes, arrays, body.scalars, outputs, signature, units, shared, parts, left)


def _loop(
    kept: tuple[bool, ...], sizes: tuple[int, ...], body: list[str], sums: list[loops.Reduced], shared: bool
) -> tuple[list[str], int, int]:
    """The lines of the template that fits, the number of its units, and of the parts that each leaves to be joined."""
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

    def reduced(self, instruction: Instruction, target: str) -> loops.Reduced:
        (term,) = instruction.inputs
        return reduction_of(target, self.names[term], instruction)


TERMS = 16  # a sum of fewer is one thread's
MOST_CHUNKS = 256  # that one thread joins; beyond it they are joined in two rounds
ENOUGH = 1 << 17  # threads that fill a card


class CUDAKernel(NamedTuple):
    """A kernel, ready to be built.

    Attributes:
        name: its operations, for the file's name.
        source: the whole file: the kernel, and for sums the one that joins their parts, `join_<name>`.
        sizes: the lengths of the joined axes.
        arrays, outputs: the operands.
        scalars: Python numbers and the NumPy dtype each is passed as.
        signature: the argument types.
        results: elements, or results of the sums.
        terms: of each sum; 0 without sums.
        sums: the places of the sums among the outputs.
        join: the argument types of the kernel that joins.
    """

    name: str
    source: str
    sizes: tuple[int, ...]
    arrays: list[Operand]
    outputs: list[Operand]
    scalars: list[tuple[Any, Any]]
    signature: tuple[Any, ...]
    results: int
    terms: int
    sums: list[int]
    join: tuple[Any, ...]


def emit_cuda(group: FusionGroup, uniform: set[Value]) -> CUDAKernel:
    """The kernel of a fused group; `uniform` are constants whose elements are all the same."""
    reductions = {
        instruction.outputs[0]: instruction
        for instruction in group.instructions
        if isinstance(instruction.op, Reduction)
    }
    space, arrays, outputs = operands_of(group, uniform)
    sizes, kept = space.sizes, space.kept

    body = Statements(functions=CUDA)
    for n, operand in enumerate(arrays):
        body.load(operand.value, load_element(operand.value, f"a{n}", _place(operand.shape, sizes)))
    for instruction in group.instructions:
        if isinstance(instruction.op, Elementwise):
            body.compute(instruction)
    for n, operand in enumerate(outputs):
        if operand.value not in reductions:
            body.lines.append(store_element(operand.value, f"o{n}", _place(sizes, sizes), body.names[operand.value]))
    sums = [n for n, operand in enumerate(outputs) if operand.value in reductions]
    joined = [
        reduction_of(f"o{n}", body.names[reductions[outputs[n].value].inputs[0]], reductions[outputs[n].value])
        for n in sums
    ]

    name = "cuda_" + "_".join(dict.fromkeys(instruction.op.name for instruction in group.instructions))[:48]
    axes = range(len(sizes))
    arguments = [f"n{k}" for k in axes] + ["chunks"] * bool(sums) + [f"a{k}" for k in range(len(arrays))]
    arguments += [f"s{k}" for k in range(len(body.scalars))] + [f"o{k}" for k in range(len(outputs))]
    along = [k for k in axes if not kept[k]]
    lines = _sum(list(kept), body.lines, joined, outputs) if sums else _map(len(sizes), body.lines)
    source = (
        f"{cuda_head(group.instructions)}\n\ndef {name}({', '.join(arguments)}):\n" + "\n".join(indent(lines)) + "\n"
    )
    if sums:
        source += _join(name, [outputs[n].value for n in sums], joined, kept[-1])
    parts = [kind_of(outputs[n].value) for n in sums]
    filled = [kind_of(o.value) if n in sums else dtypes.BY_NUMPY[o.value.dtype] for n, o in enumerate(outputs)]
    signature = (
        *[dtypes.int64] * (len(sizes) + bool(sums)),
        *[(dtypes.BY_NUMPY[operand.value.dtype], False) for operand in arrays],
        *[dtypes.BY_NUMPY[dtype] for _, dtype in body.scalars],
        *[(dtype, True) for dtype in filled],
    )
    join = (*[dtypes.int64] * 3, *[(dtype, False) for dtype in parts], *[(dtype, True) for dtype in parts])
    count = math.prod(n for n, keep in zip(sizes, kept, strict=True) if keep)
    terms = math.prod(sizes[k] for k in along) if sums else 0
    return CUDAKernel(name, source, sizes, arrays, outputs, body.scalars, signature, count, terms, sums, join)


def chunks_of(count: int, terms: int) -> list[int]:
    """The numbers of parts that each of `count` sums is cut into, round by round, down to one."""
    # Of TERMS terms each, but no more threads in all than fill a card.
    rounds = [max(1, min(-(-terms // TERMS), ENOUGH // max(count, 1)))]
    while rounds[-1] > 1:
        rounds.append(1 if rounds[-1] <= MOST_CHUNKS else -(-rounds[-1] // MOST_CHUNKS))
    return rounds


def load_element(value: Value, array: str, place: str) -> str:
    """The expression of an element of a flat array, in the dtype it is computed in; booleans are bytes."""
    return LOAD.get(value.dtype.name, "{0}").format(f"{array}[{place}]")


def store_element(value: Value, array: str, place: str, element: str) -> str:
    """The statement that puts an element, which has a name, into a flat array."""
    return f"{array}[{place}] = " + STORE.get(value.dtype.name, "{0}").format(element)


def _load_sum(value: Value, array: str, place: str) -> str:
    """The expression of a part of a sum, which stays in the dtype it is computed in."""
    return load_element(value, array, place) if value.dtype.kind == "b" else f"{array}[{place}]"


def _store_sum(value: Value, array: str, place: str, element: str) -> str:
    """The statement that puts a sum or a part of one into a flat array."""
    return store_element(value, array, place, element) if value.dtype.kind == "b" else f"{array}[{place}] = {element}"


def _place(shape: tuple[int, ...], sizes: tuple[int, ...]) -> str:
    """The place in a flat array of the element that belongs to p0, p1, ...; axes of length 1 are broadcast."""
    axes = range(len(shape))
    present = [own != 1 or size == 1 for own, size in zip(shape, sizes, strict=True)]
    return flat_index([f"p{axis}" for axis in axes], [f"n{axis}" for axis in axes], present)


def _unravel_index(index: str, axes: list[int]) -> list[str]:
    """Statements that give p for each of `axes` from their common index."""
    lines = []
    for axis in reversed(axes[1:]):
        lines += [f"p{axis} = {index} % n{axis}", f"{index} = {index} // n{axis}"]
    return [*lines, f"p{axes[0]} = {index}"] if axes else []


def _product(axes: list[int]) -> str:
    return " * ".join(f"n{axis}" for axis in axes) or "1"


def _map(ndim: int, body: list[str]) -> list[str]:
    axes = list(range(ndim))
    return ["i = cuda.grid(1)", f"if i < {_product(axes)}:", *indent([*_unravel_index("i", axes), *body])]


def _thread(columns: bool, count: str) -> list[str]:
    """The statements for the result `k` that a thread works for, and the part `c` of its terms."""
    # Neighbouring threads read neighbouring elements: of one row where results lie side by side, else of one sum.
    if columns:
        return [f"k = i % ({count})", f"c = i // ({count})"]
    return ["c = i % chunks", "k = i // chunks"]


def _part(columns: bool, count: str, part: str, parts: str) -> str:
    return f"{part} * ({count}) + k" if columns else f"k * {parts} + {part}"


def begin_sums(sums: list[Reduced]) -> list[str]:
    """The statements that begin sums, `z0`, ..., and what was lost of their terms, `lost0`, ..."""
    lost = [f"lost{n} = {r.start}" for n, r in enumerate(sums) if r.two_levels]
    return [*(f"z{n} = {r.start}" for n, r in enumerate(sums)), *lost]


def add_term(n: int, r: Reduced) -> list[str]:
    """The statements that add a term to the sum `z<n>`."""
    return r.compensated(f"z{n}", f"lost{n}") if r.two_levels else [f"z{n} = {r.joined(f'z{n}', r.term)}"]


def _sum(kept: list[bool], body: list[str], sums: list[Reduced], outputs: list[Operand]) -> list[str]:
    """The lines of a kernel whose threads each add up every `chunks`-th term of a result."""
    keep = [axis for axis, is_kept in enumerate(kept) if is_kept]
    along = [axis for axis, is_kept in enumerate(kept) if not is_kept]
    count, columns = _product(keep), kept[-1]
    place = _part(columns, count, "c", "chunks")
    values = {f"o{n}": operand.value for n, operand in enumerate(outputs)}
    grow = [line for n, r in enumerate(sums) for line in add_term(n, r)]
    inner = ["q = r", *_unravel_index("q", along), *body, *grow, "r += chunks"]
    lines = [*_thread(columns, count), "q = k", *_unravel_index("q", keep), "r = c"]
    lines += begin_sums(sums)
    lines += [f"while r < {_product(along)}:", *indent(inner)]
    lines += [_store_sum(values[r.target], r.target, place, f"z{n}") for n, r in enumerate(sums)]
    return ["i = cuda.grid(1)", f"if i < {count} * chunks:", *indent(lines)]


def _join(name: str, values: list[Value], sums: list[Reduced], columns: bool) -> str:
    """The kernel that joins `parts` parts of each of `count` results to `chunks`."""
    part = _part(columns, "count", "r", "parts")
    inner = []
    for n, (r, value) in enumerate(zip(sums, values, strict=True)):
        inner += add_term(n, r._replace(term=f"({_load_sum(value, f'a{n}', part)})"))
    lines = [*_thread(columns, "count"), "r = c", *begin_sums(sums)]
    lines += ["while r < parts:", *indent([*inner, "r += chunks"])]
    place = _part(columns, "count", "c", "chunks")
    lines += [_store_sum(value, f"o{n}", place, f"z{n}") for n, value in enumerate(values)]
    arguments = [f"{letter}{n}" for letter in "ao" for n in range(len(sums))]
    text = ["i = cuda.grid(1)", "if i < count * chunks:", *indent(lines)]
    return f"\n\ndef join_{name}(count, parts, chunks, {', '.join(arguments)}):\n" + "\n".join(indent(text)) + "\n"
