"""The CPU's loops as text: `map`, and `reduce` along rows, columns or everything.

A loop gets the statements of its body and gives the lines of a function's body. Index variables are p0, p1, ...; the
sizes n0, n1, ... are arguments, so one compiled loop serves every size. Sums run in an order that depends on the sizes
alone, never on the number of threads.
"""

from __future__ import annotations

from typing import NamedTuple

LANES = 16  # partial sums side by side: one AVX-512 register of float32
BLOCK = 4096  # elements per block where a whole array is reduced by all threads
COLUMNS = 256  # columns that one thread adds up together


class Reduced(NamedTuple):
    """One reduction of a loop: the term's variable, its result's array, and how terms are joined.

    Attributes:
        target: where the result goes: "o1[p0, 0]".
        term: the variable that holds an element's term.
        join: an expression of {0} and {1}.
        start: the value that joins to nothing, as text.
        cast: the name that casts to the result's dtype.
    """

    target: str
    term: str
    join: str
    start: str
    cast: str

    def joined(self, left: str, right: str) -> str:
        """The text of the two joined."""
        return f"{self.cast}({self.join.format(left, right)})"


def indent(lines: list[str], by: int = 1) -> list[str]:
    """Shift lines to the right."""
    return ["    " * by + line for line in lines]


def nest(axes: list[int], body: list[str], parallel: bool) -> list[str]:
    """Loops over `axes`, the first of them by all threads."""
    for position, axis in reversed(list(enumerate(axes))):
        span = "prange" if parallel and position == 0 else "range"
        body = [f"for p{axis} in {span}(n{axis}):", *indent(body)]
    return body


def map_loop(ndim: int, body: list[str], parallel: bool) -> list[str]:
    """Run the body once for every element."""
    return nest(list(range(ndim)), body, parallel)


def reduce_rows(kept: list[int], along: list[int], body: list[str], sums: list[Reduced], parallel: bool) -> list[str]:
    """Reduce along axes of which the last is the innermost: lanes side by side over it, then the lanes in order."""
    last = along[-1]
    lines = [f"lanes{k} = np.full({LANES}, {r.start})" for k, r in enumerate(sums)]
    add = [f"lanes{k}[lane] = {r.joined(f'lanes{k}[lane]', r.term)}" for k, r in enumerate(sums)]
    index = f"p{last} = base + lane"
    inner = [
        f"for base in range(0, n{last} - n{last} % {LANES}, {LANES}):",
        f"    for lane in range({LANES}):",
        *indent([index, *body, *add], 2),
        f"base = n{last} - n{last} % {LANES}",
        f"for lane in range(n{last} % {LANES}):",
        *indent([index, *body, *add]),
    ]
    lines += nest(along[:-1], inner, False)
    for k, r in enumerate(sums):
        lines += total(k, r, f"lanes{k}", str(LANES), r.target)
    return nest(kept, lines, parallel)


def reduce_all(body: list[str], sums: list[Reduced]) -> list[str]:
    """Reduce one long axis by all threads: blocks of a fixed length, then the blocks in order."""
    inner = [
        f"for base in range(block * {BLOCK}, min(n0, block * {BLOCK} + {BLOCK}), {LANES}):",
        f"    for lane in range(min({LANES}, n0 - base)):",
        *indent(["p0 = base + lane", *body], 2),
        *indent([f"lanes{k}[lane] = {r.joined(f'lanes{k}[lane]', r.term)}" for k, r in enumerate(sums)], 2),
    ]
    lines = [f"blocks = (n0 + {BLOCK - 1}) // {BLOCK}"]
    lines += [f"parts{k} = np.full(blocks, {r.start})" for k, r in enumerate(sums)]
    lines += ["for block in prange(blocks):"]
    lines += indent([f"lanes{k} = np.full({LANES}, {r.start})" for k, r in enumerate(sums)])
    lines += indent(inner)
    for k, r in enumerate(sums):
        lines += indent(total(k, r, f"lanes{k}", str(LANES), f"parts{k}[block]"))
    for k, r in enumerate(sums):
        lines += total(k, r, f"parts{k}", "blocks", r.target)
    return lines


def reduce_slices(along: list[int], body: list[str], sums: list[Reduced]) -> list[str]:
    """Reduce several axes to one element by all threads: slices of the first axis, then their results in order."""
    first, *rest = along
    parts = [r._replace(target=f"parts{k}[p{first}]") for k, r in enumerate(sums)]
    lines = [f"parts{k} = np.full(n{first}, {r.start})" for k, r in enumerate(sums)]
    lines += [f"for p{first} in prange(n{first}):", *indent(reduce_rows([], rest, body, parts, False))]
    for k, r in enumerate(sums):
        lines += total(k, r, f"parts{k}", f"n{first}", r.target)
    return lines


def reduce_columns(
    kept: list[int], along: list[int], body: list[str], sums: list[Reduced], parallel: bool
) -> list[str]:
    """Reduce along axes of which none is the innermost: whole rows of results grow together, a strip per thread."""
    *outer, last = kept
    strip = f"range(strip * {COLUMNS}, min(n{last}, strip * {COLUMNS} + {COLUMNS}))"
    start = [f"for p{last} in {strip}:", *indent([f"{r.target} = {r.start}" for r in sums])]
    grow = [f"{r.target} = {r.joined(r.target, r.term)}" for r in sums]
    step = [f"for p{last} in {strip}:", *indent([*body, *grow])]
    inner = [*start, *nest(along, step, False)]
    span = "prange" if parallel and not outer else "range"
    lines = [f"for strip in {span}((n{last} + {COLUMNS - 1}) // {COLUMNS}):", *indent(inner)]
    return nest(outer, lines, parallel)


def scan_loop(prepare: list[str], step: list[str], backwards: bool, parallel: bool) -> list[str]:
    """A loop over time: blocks of units, all steps for one block before the next, whose state stays in the cache.

    Args:
        prepare: statements for a block, the units from `low` to `high`.
        step: statements for a step: `turn` counts steps as they are taken, `t` is the place in the sequences.
        backwards: whether the last step is taken first.
        parallel: whether all threads share the blocks.
    """
    place = f"t = {'steps - 1 - turn' if backwards else 'turn'}"
    return _blocks([*prepare, "for turn in range(steps):", *indent([place, *step])], parallel)


def scan_again(
    prepare: list[str], start: list[str], again: list[str], step: list[str], backwards: bool, parallel: bool
) -> list[str]:
    """A loop over time that runs against the direction of another, whose states were stored every `every` steps.

    For each segment, the last first, the other loop runs again from the stored states and keeps the states between in
    the block's cache; then this one runs over the segment.

    Args:
        prepare, step, backwards, parallel: as in `scan_loop`; in `step`, `turn` counts within the segment.
        start: statements that fetch the states before the first step of a `segment`.
        again: statements for a step of the other loop.
    """
    place = f"t = {'first + turn' if backwards else 'steps - 1 - first - turn'}"
    segment = [
        "first = segment * every",
        "length = min(every, steps - first)",
        *start,
        "for turn in range(length - 1):",
        *indent([place, *again]),
        "for back in range(length):",
        *indent(["turn = length - 1 - back", place, *step]),
    ]
    return _blocks([*prepare, "for segment in range((steps - 1) // every, -1, -1):", *indent(segment)], parallel)


def _blocks(body: list[str], parallel: bool) -> list[str]:
    head = ["low = part * block", "high = min(low + block, n)"]
    return [f"for part in {'prange' if parallel else 'range'}((n + block - 1) // block):", *indent([*head, *body])]


def total(k: int, r: Reduced, parts: str, count: str, target: str) -> list[str]:
    """Join `count` partial results in their order."""
    return [
        f"total{k} = {r.start}",
        f"for part in range({count}):",
        f"    total{k} = {r.joined(f'total{k}', f'{parts}[part]')}",
        f"{target} = total{k}",
    ]
