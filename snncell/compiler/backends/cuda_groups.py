"""A group of fused instructions as a CUDA kernel: a thread for each element, or for each part of a sum.

Sums run without atomics: `chunks` threads share each result, each adds every `chunks`-th term, and what they found is
added up by the same rule until one is left. How many there are depends on the sizes alone, and so do the bits. Sums of
float32 are compensated (`Reduced.compensated`).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from snncell import dtype as dtypes
from snncell.compiler.backends.expressions import (
    Statements,
    cuda_head,
    kind_of,
    reduction_of,
)
from snncell.compiler.backends.index_space import Operand, flat_index, operands_of
from snncell.compiler.ir.formula import Elementwise, Reduction
from snncell.compiler.schedule.fuse import FusionGroup
from snncell.kernels.loops import Reduced, indent
from snncell.kernels.scalar.functions import CUDA, LOAD, STORE
from snncell.tape.value import Value

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
