"""Templates of CPU loops, as source text: `map`, `reduce` along rows, columns or all axes, and `scan` over time.

A template takes the statements for one element and returns the lines of a function's body. Index variables are p0, p1,
...; the sizes n0, n1, ... are arguments, so one compiled loop serves every size. A function runs its units (rows,
blocks or bands of columns) from `start` to `stop`. The threads share the units. Each unit is computed by one thread in
a fixed order, so the bits do not depend on the number of threads.

A sum has two levels, as in `kernels/sums.py`: at most NEAR terms are added in their own dtype, in the vectors of the
innermost loop. These partial sums are then added to sums of a wider dtype, named `far0`, `far1`, ...
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from snncell.kernels.sums import NEAR

LANES = 16  # parallel partial sums: one AVX-512 register of float32
BLOCK = 4096  # elements per block if all threads reduce one array
LEAST_BLOCK = 512
SLACK = 64  # elements after a block, because some functions write whole vectors
COLUMNS = 256  # columns of a band


def block_of(elements: int) -> int:
    """The elements per block of a loop over time with so many elements."""
    # The state of a block stays in the L2 cache; in measurements, BLOCK is within 10 % of the best size. Small nets get
    # smaller blocks, so that there are enough for all threads.
    return min(BLOCK, max(LEAST_BLOCK, elements // 64))


class Reduced(NamedTuple):
    """One reduction of a loop."""

    target: str  # the result, for example "o1[p0, 0]"
    term: str  # the variable with an element's term
    join: str  # the combining expression of {0} and {1}
    start: str  # its neutral element, as text
    cast: str  # the function that casts to the result's dtype
    far: str  # the cast to the wider dtype in which partial sums are added; `cast` for a sum of one level

    @property
    def two_levels(self) -> bool:
        """True if partial sums are added in a wider dtype."""
        return self.far != self.cast

    def joined(self, left: str, right: str) -> str:
        """The expression that combines two values."""
        return f"{self.cast}({self.join.format(left, right)})"

    def further(self, left: str, right: str) -> str:
        """The expression that combines two values in the wider dtype of partial sums."""
        return f"{self.far}({self.join.format(left, right)})"

    def compensated(self, total: str, lost: str) -> list[str]:
        """Statements for Kahan summation: add the term to `total`, corrected by `lost`, the rounding error so far. GPUs
        use it instead of a wider dtype, because float64 is slow there. If the sum is infinite, `lost` is 0.
        """
        return [
            f"term = {self.cast}({self.term} - {lost})",
            f"more = {self.cast}({total} + term)",
            f"{lost} = {self.cast}({self.cast}(more - {total}) - term)",
            f"{lost} = {lost} if more - more == {self.cast}(0) else {self.cast}(0)",
            f"{total} = more",
        ]

    def moved(self, far: str, near: str) -> list[str]:
        """Statements that add a partial sum to the wide sum, and reset it."""
        return [f"{far} = {self.further(far, near)}", f"{near} = {self.start}"]


def indent(lines: list[str], by: int = 1) -> list[str]:
    """Shift lines to the right."""
    return ["    " * by + line for line in lines]


def function(name: str, arguments: Sequence[str], lines: list[str]) -> str:
    """The source of a function that runs the units from `start` to `stop`."""
    return "\n".join([f"def {name}({', '.join(('start', 'stop', *arguments))}):", *indent(lines)]) + "\n"


def nest(axes: Sequence[int], body: list[str], lengths: str = "n") -> list[str]:
    """Nested loops over `axes`, with lengths n0, n1, ... or another letter."""
    for axis in reversed(axes):
        body = [f"for p{axis} in range({lengths}{axis}):", *indent(body)]
    return body


def share_axes(axes: list[int], body: list[str]) -> list[str]:
    """Nested loops over `axes`; the first one is the loop over units."""
    return units(f"p{axes[0]}", nest(axes[1:], body)) if axes else body


def units(name: str, body: list[str]) -> list[str]:
    """A loop over the units."""
    return [f"for {name} in range(start, stop):", *indent(body)]


def map_loop(ndim: int, body: list[str]) -> list[str]:
    """Run the body for every element; a unit is an index of the first axis."""
    return share_axes(list(range(ndim)), body)


def reduce_rows(axes_left: list[int], along: list[int], body: list[str], sums: list[Reduced]) -> list[str]:
    """Reduce along axes that include the innermost one: parallel lanes along it, then a sum over the lanes in order. A
    unit is an index of the first kept axis; without one, there is one unit.
    """
    return share_axes(axes_left, _row(along, body, sums))


def _row(along: list[int], body: list[str], sums: list[Reduced]) -> list[str]:
    *outer, last = along
    body = [f"p{last} = base + lane", *body]
    return _in_lanes(f"n{last}", body, sums, lambda inner: nest(outer, inner))


def _in_lanes(count: str, body: list[str], sums: list[Reduced], around: Callable[[list[str]], list[str]]) -> list[str]:
    """Reduce in parallel lanes, in a loop that `around` wraps, and then sum over the lanes in order."""
    add = [f"lanes{k}[lane] = {r.joined(f'lanes{k}[lane]', r.term)}" for k, r in enumerate(sums)]
    far = [k for k, r in enumerate(sums) if r.two_levels]
    lines = [f"lanes{k} = lanes({r.start})" for k, r in enumerate(sums)]
    lines += [f"far{k} = lanes({sums[k].far}(0))" for k in far]
    inner = _side_by_side(count, [*body, *add])
    if far:
        lines.append("held = 0")
        flush = [line for k in far for line in sums[k].moved(f"far{k}[lane]", f"lanes{k}[lane]")]
        # Flush the lanes after exactly NEAR iterations, whether or not axes are merged. Fusion merges axes for some
        # sizes only, and this must not change the bits.
        inner = [
            "first = 0",
            f"while first < {count}:",
            f"    if held == {NEAR}:",
            "        held = 0",
            f"        for lane in range({LANES}):",
            *indent(flush, 3),
            f"    piece = least({count} - first, ({NEAR} - held) * {LANES})",
            f"    held += (piece + {LANES - 1}) // {LANES}",
            *indent(_side_by_side("piece", [*body, *add], "first + ")),
            "    first += piece",
        ]
    lines += around(inner)
    for k, r in enumerate(sums):
        part = r.further(f"far{k}[part]", f"lanes{k}[part]") if r.two_levels else f"lanes{k}[part]"
        lines += total(k, r, part, f"least({count}, {LANES})", r.target)  # a short row uses only some lanes
    return lines


def _side_by_side(count: str, body: list[str], first: str = "") -> list[str]:
    """Run the body for the indices `base + lane` from `first` to `first + count`, LANES at a time."""
    # The inner loop has a constant length, so LLVM keeps the lanes in vector registers. The last few elements have a
    # separate loop, which adds each of them to the same lane as a full vector would.
    return [
        f"for base in range({first}0, {first}{count} - {count} % {LANES}, {LANES}):",
        f"    for lane in range({LANES}):",
        *indent(body, 2),
        f"base = {first}{count} - {count} % {LANES}",
        f"for lane in range({count} % {LANES}):",
        *indent(body),
    ]


def reduce_all(body: list[str], sums: list[Reduced]) -> list[str]:
    """Reduce one long axis: blocks of a fixed length, each a unit, then their partial results in order."""
    ends = [f"low = block * {BLOCK}", f"count = least(n0 - low, {BLOCK})"]
    parts = [r._replace(target=f"parts{k}[block]") for k, r in enumerate(sums)]
    body = ["p0 = low + base + lane", *body]
    return [*_join_parts(sums), *units("block", _in_lanes("count", body, parts, lambda inner: ends + inner))]


def reduce_slices(axes_left: list[int], along: list[int], body: list[str], sums: list[Reduced]) -> list[str]:
    """Reduce along several axes, including the first and the last: slices of the first axis, then their results.

    Each slice is a unit, and stores a partial sum for each result; the final call adds them in order. For example, the
    sums of each channel over images and pixels have a unit per image, which is contiguous in memory. A unit per channel
    would read memory in jumps.
    """
    first, *rest = along
    count = " * ".join(f"n{axis}" for axis in axes_left) or "1"
    place = "0"
    for axis in axes_left:
        place = f"({place}) * n{axis} + p{axis}"
    parts = [r._replace(target=f"parts{k}[p{first} * ({count}) + {place}]") for k, r in enumerate(sums)]
    joined = _join_parts(sums, axes_left, f"n{first}", f"part * ({count}) + {place}")
    return [*joined, *units(f"p{first}", nest(axes_left, _row(rest, body, parts)))]


def _join_parts(
    sums: list[Reduced], axes_left: Sequence[int] = (), count: str = "len(parts0)", place: str = "part"
) -> list[str]:
    """Combine the partial results, in a final call without units (start == stop)."""
    lines = [line for k, r in enumerate(sums) for line in total(k, r, f"parts{k}[{place}]", count, r.target)]
    return ["if start == stop:", *indent([*nest(list(axes_left), lines), "return"])]


def reduce_columns(axes_left: list[int], along: list[int], body: list[str], sums: list[Reduced]) -> list[str]:
    """Reduce along axes without the innermost one: accumulate whole rows of results, in bands of columns. A unit is an
    index of the first kept axis, or a band if there is only one.
    """
    *outer, last = axes_left
    far = {k: r for k, r in enumerate(sums) if r.two_levels}
    begin = [f"{r.target} = {r.start}" for r in sums] + [f"far{k}[column] = {r.far}(0)" for k, r in far.items()]
    grow = [f"{r.target} = {r.joined(r.target, r.term)}" for r in sums]
    flush = [line for k, r in far.items() for line in r.moved(f"far{k}[column]", r.target)]
    end = [f"{r.target} = {r.cast}({r.further(f'far{k}[column]', r.target)})" for k, r in far.items()]

    def each(lines: list[str]) -> list[str]:
        place = f"p{last} = low + column"
        return [f"for column in range(least({COLUMNS}, n{last} - low)):", *indent([place, *lines])]

    row = each([*body, *grow])
    if far:
        row = [f"if held == {NEAR}:", "    held = 0", *indent(each(flush)), "held += 1", *row]
    inner = [f"low = band * {COLUMNS}", *["held = 0"] * bool(far), *each(begin), *nest(along, row), *each(end)]
    room = [f"far{k} = strip({COLUMNS}, {r.far})" for k, r in far.items()]
    if not outer:
        return [*room, *units("band", inner)]
    strips = [f"for band in range((n{last} + {COLUMNS - 1}) // {COLUMNS}):", *indent(inner)]
    return [*room, *share_axes(outer, strips)]


# The bounds of a block of `block` elements or rows out of `n`.
BLOCKS = ("low = part * block", "high = least(low + block, n)")


def scan_loop(
    prepare: list[str],
    step: list[str],
    backwards: bool,
    finish: Sequence[str] = (),
    around: Sequence[str] = (),
    after: Sequence[str] = (),
) -> list[str]:
    """A loop over time: each block of neurons runs all steps before the next block, so that its state stays in cache.

    `prepare` are the lines before the steps of block number `part`; they also set its bounds (`BLOCKS`). `finish` are
    the lines after the steps. In `step`, `turn` counts the executed steps, and `t` is the index in the sequences, which
    decreases if `backwards`. `around` are lines that end with a loop header over parts of a block, and `after` are
    lines after that loop.
    """
    place = f"t = {'steps - 1 - turn' if backwards else 'turn'}"
    lines = [*prepare, "for turn in range(steps):", *indent([place, *step]), *finish]
    return units("part", [*around, *indent(lines), *after] if around else lines)


def scan_recomputing(
    prepare: list[str],
    fetch: list[str],
    recomputed: list[str],
    step: list[str],
    backwards: bool,
    finish: Sequence[str] = (),
) -> list[str]:
    """A backward loop over time with checkpointing: the forward loop stored its states only every `every` steps.

    The loop processes the last segment first. In each segment it first reruns the forward steps from the stored states,
    and keeps the states of all these steps in cache. Then it runs the backward steps of the segment. `fetch` loads the
    states before the first step of a `segment`, and `recomputed` is a step of the forward loop. In `step`, `turn`
    counts within the segment.
    """
    place = f"t = {'first + turn' if backwards else 'steps - 1 - first - turn'}"
    segment = [
        "first = segment * every",
        "length = least(every, steps - first)",
        *fetch,
        "for turn in range(length - 1):",
        *indent([place, *recomputed]),
        "for back in range(length):",
        *indent(["turn = length - 1 - back", place, *step]),
    ]
    segments = ["for segment in range((steps - 1) // every, -1, -1):", *indent(segment)]
    return units("part", [*prepare, *segments, *finish])


def total(k: int, r: Reduced, part: str, count: str, target: str) -> list[str]:
    """Combine `count` partial results, each the expression `part`, in order."""
    result = f"total{k}" if target.startswith("parts") else f"{r.cast}(total{k})"
    return [
        f"total{k} = {r.far}({r.start})",
        f"for part in range({count}):",
        f"    total{k} = {r.further(f'total{k}', part)}",
        f"{target} = {result}",
    ]


def flush_condition(t: str, backwards: bool) -> str:
    """The condition, at the end of time step `t`, for adding partial sums to the wide sums."""
    # It uses the index in the sequence, not the number of steps done, so that padding at the end changes no bits.
    return f"{t} % {NEAR} == {0 if backwards else NEAR - 1}"
