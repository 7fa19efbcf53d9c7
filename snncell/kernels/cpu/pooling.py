"""Pooling as text: reductions over windows of constant size, for each plane, the image of one channel.

A unit is a plane. Padding has no memory: outer axes take a row of elements that change nothing in its place, and the
last axis, whose windows from `low` to `high` lie inside, has bounds.

Windows that lie inside are taken LANES at a time, unrolled: what they give goes into an array of the kernel's own, so
that LLVM knows that nothing overlaps, and the loop becomes vector registers. The last of them are taken again, with
some that are done already, in place of a loop over what is left, which in small images would be most of the work.
"""

from __future__ import annotations

from typing import NamedTuple

from snncell.kernels.cpu.loops import function, indent, units
from snncell.kernels.cpu.windows import Windows, offsets_in, over_window, place_in, sizes_of, source

LANES = (16, 8, 4)  # windows side by side: as many as there are in a row
UNROLLED = 25  # elements of a window: beyond that, loops


class Joined(NamedTuple):
    """The result of a window: statements for what {p}, "" or "row_", stands for, a window or one of its rows.

    Rows are joined first, and then what they give: they do not wait for each other.
    """

    begin: list[str]  # of no elements
    first: list[str]  # of one, {v}, at {at} in the window
    join: list[str]  # of one more
    row: dict[str, str]  # a row's result as {v} and {at}
    results: dict[str, str]  # the arrays, and what goes into them


_BEST = ["{p}best = {v}", "{p}found = {at}"]
_CHOSEN = ["{p}best = v if better else {p}best", "{p}found = {at} if better else {p}found"]
MAX = Joined(
    ["{p}best = value(-np.inf)", "{p}found = place(0)"],
    _BEST,
    # Where `best` is NaN, nothing is better; a NaN is better than every number. So the first of the largest is found.
    ["v = {v}", "better = (not (v <= {p}best)) & ({p}best == {p}best)", *_CHOSEN],
    {"v": "row_best", "at": "row_found"},
    {"out": "best", "places": "found"},
)
# NumPy's order of complex numbers, in which NaN in either part is not less than or equal to anything.
COMPLEX_MAX = MAX._replace(
    join=[
        MAX.join[0],
        "less = (v.real < {p}best.real) & (v.imag == v.imag) & ({p}best.imag == {p}best.imag)",
        "same = (v.real == {p}best.real) & (v.imag <= {p}best.imag)",
        "better = (not (less | same)) & ({p}best == {p}best)",
        *_CHOSEN,
    ]
)


def without_places(joined: Joined) -> Joined:
    """The largest element alone."""
    lines = [[line for line in part if "found" not in line] for part in joined[:3]]
    return Joined(lines[0], lines[1], lines[2], joined.row, {"out": "best"})


def sums(divisor: int) -> Joined:
    """The sum of a window over a number."""
    result = "total" if divisor == 1 else f"total / value({divisor})"
    add = ["{p}total = {p}total + {v}"]
    return Joined(["{p}total = value(0)"], ["{p}total = {v}"], add, {"v": "row_total", "at": ""}, {"out": result})


def pool(name: str, windows: Windows, joined: Joined, lanes: int) -> str:
    """Reduce each window: `name(start, stop, n..., m..., low, high, x, nothing, *results)`.

    With `lanes`, there are at least so many windows from `low` to `high`. `nothing` is a row of elements that stands
    for a row of padding.
    """
    last = len(windows.size) - 1
    outer = range(last)
    window = f"{place_in('p', 'm', last)} * m{last}"
    lines = [f"{array}_row = tail(row({array}, plane), {window})" for array in joined.results]
    if lanes:
        lines += _rows(windows)
        lines += [
            f"for first in range(low, high, {lanes}):",
            *indent([f"q = least(first, high - {lanes})", f"at = q * {windows.stride[-1]} - {windows.padding[-1][0]}"]),
            *indent([f"for lane in range({lanes}):", *indent(_unrolled_windows(windows, joined))]),
            *indent([f"copy(tail({array}_row, q), tail({array}_lanes, 0), {lanes})" for array in joined.results]),
        ]
    lines += [
        f"for turn in range(m{last} - high + low):",
        *indent(["q = turn if turn < low else turn + high - low", *_looped_windows(windows, joined)]),
        *indent([f"{array}_row[q] = {text}" for array, text in joined.results.items()]),
    ]
    for axis in reversed(outer):
        lines = [f"for p{axis} in range(m{axis}):", *indent(lines)]
    begin = [f"{array}_lanes = lanes({'place' if array == 'places' else 'value'}(0))" for array in joined.results]
    body = [*(begin if lanes else []), *units("plane", ["image = row(x, plane)", *lines])]
    return function(name, [*sizes_of(windows), "low", "high", "x", "nothing", *joined.results], body)


def _rows(windows: Windows) -> list[str]:
    """The rows of a window, as pointers to its columns: `x0`, `x1`, ..."""
    last = len(windows.size) - 1
    lines = []
    for number, offsets in enumerate(offsets_in(windows.size[:-1])):
        places = [source(windows, axis, f"p{axis}", str(offset)) for axis, offset in enumerate(offsets)]
        lines += [f"r{axis} = {place}" for axis, place in enumerate(places)]
        own = f"tail(image, {place_in('r', 'n', last)} * n{last})"
        bounds = [f"r{axis} >= 0 and r{axis} < n{axis}" for axis in range(last) if any(windows.padding[axis])]
        lines.append(f"x{number} = {own}" + (f" if {' and '.join(bounds)} else tail(nothing, 0)" if bounds else ""))
    return lines


def _unrolled_windows(windows: Windows, joined: Joined) -> list[str]:
    """The result of the window that begins at `at`, and `lane` further ones."""
    lines = []
    k, s, d = windows.size[-1], windows.stride[-1], windows.dilation[-1]
    for number in range(windows.elements):
        row, column = divmod(number, k)
        names = {"p": "row_" if row else "", "v": f"x{row}[at + lane * {s} + {column * d}]", "at": f"place({number})"}
        lines += _fill_lines(joined.join if column else joined.first, names)
        if row and column == k - 1:
            lines += _fill_lines(joined.join, {"p": "", **joined.row})
    return [*lines, *(f"{array}_lanes[lane] = {text}" for array, text in joined.results.items())]


def _looped_windows(windows: Windows, joined: Joined) -> list[str]:
    """The result of any window, `p0`, ..., `q`: loops over its elements, which have bounds where there is padding."""
    count = len(windows.size)
    v, at = f"image[{place_in('r', 'n', count)}]", f"place({place_in('i', windows.size, count)})"
    begin = _fill_lines(joined.begin, {"p": ""})
    if count == 1:
        return [*begin, *over_window(windows, [0], _fill_lines(joined.join, {"p": "", "v": v, "at": at}))]
    row = over_window(windows, [count - 1], _fill_lines(joined.join, {"p": "row_", "v": v, "at": at}))
    row = [*_fill_lines(joined.begin, {"p": "row_"}), *row, *_fill_lines(joined.join, {"p": "", **joined.row})]
    return [*begin, *over_window(windows, range(count - 1), row)]


def _fill_lines(lines: list[str], names: dict[str, str]) -> list[str]:
    return [line.format(**names) for line in lines]
