"""The CPU's loops as text: `map`, and `reduce` along rows, columns or everything.

A loop gets the statements of its body and gives the lines of a function's body. Index variables are p0, p1, ...; the
sizes n0, n1, ... are arguments, so one compiled loop serves every size. A function carries out the units of its work
from `start` up to `stop`: rows, blocks, strips. One thread carries out all of them, or several share them; each unit
does the same in either case, so results do not depend on the number of threads.

A sum has two levels, as NumPy's have in `kernels/sums.py`: at most NEAR terms are added up in their own dtype, in the
vectors of the innermost loop, then these partial sums are added to sums of a wider dtype, `far0`, ...
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from snncell.kernels.sums import NEAR

LANES = 16  # partial sums side by side: one AVX-512 register of float32
BLOCK = 4096  # elements per block where a whole array is reduced by all threads
COLUMNS = 256  # columns that one thread adds up together


class Reduced(NamedTuple):
    """One reduction of a loop."""

    target: str  # where the result goes: "o1[p0, 0]"
    term: str  # the variable that holds an element's term
    join: str  # an expression of {0} and {1}
    start: str  # the value that joins to nothing, as text
    cast: str  # the name that casts to the result's dtype
    far: str  # the name that casts to the dtype of sums of partial sums; `cast` where there are none

    @property
    def two_levels(self) -> bool:
        """Whether partial sums are added up in a dtype of their own."""
        return self.far != self.cast

    def joined(self, left: str, right: str) -> str:
        """The text of the two joined."""
        return f"{self.cast}({self.join.format(left, right)})"

    def further(self, left: str, right: str) -> str:
        """The text of the two joined, in the dtype of sums of partial sums."""
        return f"{self.far}({self.join.format(left, right)})"

    def compensated(self, total: str, lost: str) -> list[str]:
        """The statements that add the term to `total`, without what was `lost` when the terms before were added.

        Kahan's sum, for devices where float64 is slow. Of infinities nothing is lost.
        """
        return [
            f"term = {self.cast}({self.term} - {lost})",
            f"more = {self.cast}({total} + term)",
            f"{lost} = {self.cast}({self.cast}(more - {total}) - term)",
            f"{lost} = {lost} if more - more == {self.cast}(0) else {self.cast}(0)",
            f"{total} = more",
        ]

    def moved(self, far: str, near: str) -> list[str]:
        """The statements that add a partial sum to the sum of them, and begin the next one."""
        return [f"{far} = {self.further(far, near)}", f"{near} = {self.start}"]


def indent(lines: list[str], by: int = 1) -> list[str]:
    """Shift lines to the right."""
    return ["    " * by + line for line in lines]


def function(name: str, arguments: Sequence[str], lines: list[str]) -> str:
    """The text of a function that carries out the units from `start` to `stop`."""
    return "\n".join([f"def {name}({', '.join(('start', 'stop', *arguments))}):", *indent(lines)]) + "\n"


def nest(axes: Sequence[int], body: list[str], lengths: str = "n") -> list[str]:
    """Loops over `axes`, whose lengths are n0, n1, ... or have another letter."""
    for axis in reversed(axes):
        body = [f"for p{axis} in range({lengths}{axis}):", *indent(body)]
    return body


def share_axes(axes: list[int], body: list[str]) -> list[str]:
    """Loops over `axes`, of which the first has the units."""
    return units(f"p{axes[0]}", nest(axes[1:], body)) if axes else body


def units(name: str, body: list[str]) -> list[str]:
    """A loop over the units."""
    return [f"for {name} in range(start, stop):", *indent(body)]


def map_loop(ndim: int, body: list[str]) -> list[str]:
    """Run the body once for every element; a unit is a place on the first axis."""
    return share_axes(list(range(ndim)), body)


def reduce_rows(axes_left: list[int], along: list[int], body: list[str], sums: list[Reduced]) -> list[str]:
    """Reduce along axes of which the last is the innermost: lanes side by side over it, then the lanes in order.

    A unit is a place on the first kept axis; without one, there is one unit.
    """
    return share_axes(axes_left, _row(along, body, sums))


def _row(along: list[int], body: list[str], sums: list[Reduced]) -> list[str]:
    *outer, last = along
    body = [f"p{last} = base + lane", *body]
    return _in_lanes(f"n{last}", body, sums, lambda inner: nest(outer, inner))


def _in_lanes(count: str, body: list[str], sums: list[Reduced], around: Callable[[list[str]], list[str]]) -> list[str]:
    """Lanes for each reduction, the loop that adds to them with what is `around` it, and the lanes joined in order."""
    add = [f"lanes{k}[lane] = {r.joined(f'lanes{k}[lane]', r.term)}" for k, r in enumerate(sums)]
    far = [k for k, r in enumerate(sums) if r.two_levels]
    lines = [f"lanes{k} = lanes({r.start})" for k, r in enumerate(sums)]
    lines += [f"far{k} = lanes({sums[k].far}(0))" for k in far]
    inner = _side_by_side(count, [*body, *add])
    if far:
        lines.append("held = 0")
        flush = [line for k in far for line in sums[k].moved(f"far{k}[lane]", f"lanes{k}[lane]")]
        # The lanes are moved after exactly NEAR turns, whether or not the axes are joined to one: which axes are joined
        # depends on the fusion, which depends on the size.
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
        lines += total(k, r, part, f"least({count}, {LANES})", r.target)  # the lanes that short rows use
    return lines


def _side_by_side(count: str, body: list[str], first: str = "") -> list[str]:
    """The body for `base + lane` below a count, which `first` is added to."""
    # The inner loop has a length that LLVM knows, and becomes vector registers; the last few elements have one of
    # their own. Which lane an element is added to does not change by that.
    return [
        f"for base in range({first}0, {first}{count} - {count} % {LANES}, {LANES}):",
        f"    for lane in range({LANES}):",
        *indent(body, 2),
        f"base = {first}{count} - {count} % {LANES}",
        f"for lane in range({count} % {LANES}):",
        *indent(body),
    ]


def reduce_all(body: list[str], sums: list[Reduced]) -> list[str]:
    """Reduce one long axis: blocks of a fixed length, each a unit, then what they give, in order."""
    ends = [f"low = block * {BLOCK}", f"count = least(n0 - low, {BLOCK})"]
    parts = [r._replace(target=f"parts{k}[block]") for k, r in enumerate(sums)]
    body = ["p0 = low + base + lane", *body]
    return [*_join_parts(sums), *units("block", _in_lanes("count", body, parts, lambda inner: ends + inner))]


def reduce_slices(axes_left: list[int], along: list[int], body: list[str], sums: list[Reduced]) -> list[str]:
    """Reduce along several axes, the first and the last among them: slices of the first, each a unit, then in order.

    A slice leaves a part for each result. It is read from front to end, which a channel of many images is not.
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
    """The call after all units, for none of them: their results are joined."""
    lines = [line for k, r in enumerate(sums) for line in total(k, r, f"parts{k}[{place}]", count, r.target)]
    return ["if start == stop:", *indent([*nest(list(axes_left), lines), "return"])]


def reduce_columns(axes_left: list[int], along: list[int], body: list[str], sums: list[Reduced]) -> list[str]:
    """Reduce along axes of which none is the innermost: whole rows of results grow together, in bands of columns.

    A unit is a place on the first kept axis, or a band where it is the only one.
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


# The bounds of a block of `block` elements or rows, of `n`.
BLOCKS = ("low = part * block", "high = least(low + block, n)")


def scan_loop(
    prepare: list[str],
    step: list[str],
    backwards: bool,
    finish: Sequence[str] = (),
    around: Sequence[str] = (),
    after: Sequence[str] = (),
) -> list[str]:
    """A loop over time: blocks of units, all steps for one block before the next, whose state stays in the cache.

    `prepare` is for a block, the one of number `part`, whose bounds it sets (`BLOCKS`), and `finish` is what a block
    ends with; in `step`, `turn` counts steps as they run, the last first if `backwards`, and `t` is the place in the
    sequences. `around` ends with a loop over parts of a block, `after` is what comes after that loop.
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
    """A loop over time that runs against the direction of another, whose states were stored every `every` steps.

    For each segment, the last first, the other loop runs again from the stored states and keeps the states between in
    the block's cache; then this one runs over the segment. `fetch` is for the states before the first step of a
    `segment`, `recomputed` for a step of the other loop; in `step`, `turn` counts within the segment.
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
    """Join `count` partial results in their order, each of which is `part`."""
    result = f"total{k}" if target.startswith("parts") else f"{r.cast}(total{k})"
    return [
        f"total{k} = {r.far}({r.start})",
        f"for part in range({count}):",
        f"    total{k} = {r.further(f'total{k}', part)}",
        f"{target} = {result}",
    ]


def flush_condition(t: str, backwards: bool) -> str:
    """The condition at the end of step `t` of a loop over time on which partial sums are moved to sums of them."""
    # By the place in the sequence, not by the number of steps done: steps of padding at the end change no bit.
    return f"if {t} % {NEAR} == {0 if backwards else NEAR - 1}:"
