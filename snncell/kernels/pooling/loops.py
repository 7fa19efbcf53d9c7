"""Pooling as text: reductions over windows of constant size in each plane, the image of one channel.

A unit is a plane. Padding has no memory: outer axes take a row of elements that change nothing in its place, and the
last axis, whose windows from `low` to `high` lie inside, has bounds.

Windows that lie inside are taken LANES at a time, unrolled: what they give goes into an array of the kernel's own, so
that LLVM knows that nothing overlaps, and the loop becomes vector registers. The last of them are taken again, with
some that are done already, in place of a loop over what is left, which in small images would be most of the work.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from snncell.kernels.loops import function, indent, units
from snncell.kernels.pooling.windows import Windows, offsets_in, over_window, place_in, sizes_of, source

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


# --- Gradients of pooling: of the largest element by its place, of a sum by its window --------------------------------

# A unit is a plane. Where windows tile an image, each element is written once; where they overlap, what comes from one
# window after the other is added up.


def tile_windows(name: str, windows: Windows, divisor: int | None, lanes: int) -> str:
    """Write each element of an image once: what its window has for it, 0 where there is none.

    `name(start, stop, n..., m..., low, high, x, places, out)`; with a divisor each element gets its window's share and
    there are no `places`.
    """
    last = len(windows.size) - 1
    rows = _row_of_tiles(windows, divisor, lanes)
    covered = " and ".join(f"p{axis} < m{axis}" for axis in range(last))
    lines = [f"target = tail(row(out, plane), {place_in('r', 'n', last)} * n{last})", "done = 0"]
    lines += [f"if {covered}:", *indent(rows)] if covered else rows
    lines += [f"for r in range(done, n{last}):", "    target[r] = value(0)"]
    for axis in reversed(range(last)):
        k = windows.size[axis]
        first = [f"p{axis} = (r{axis} + {windows.padding[axis][0]}) // {k}"]
        first += [f"i{axis} = r{axis} + {windows.padding[axis][0]} - p{axis} * {k}"]
        lines = [f"for r{axis} in range(n{axis}):", *indent([*first, *lines])]
    begin = [f"near = strip({lanes * windows.size[-1]}, out)"] if lanes else []
    arguments = ["low", "high", "x", *(["places"] if divisor is None else []), "out"]
    return function(name, [*sizes_of(windows), *arguments], [*begin, *units("plane", lines)])


def _row_of_tiles(windows: Windows, divisor: int | None, lanes: int) -> list[str]:
    """Write a row of the image, `target`, up to where its windows end, `done`."""
    last = len(windows.size) - 1
    k, before = windows.size[-1], windows.padding[-1][0]
    rows = [f"given = tail(row(x, plane), {place_in('p', 'm', last)} * m{last})"]
    if divisor is None:
        rows += [f"found = tail(row(places, plane), {place_in('p', 'm', last)} * m{last})"]
        rows += [f"own = {place_in('i', windows.size, last)} * {k}"]

    def shares(target: str, offsets: Sequence[int | str]) -> list[str]:
        if divisor is not None:
            return [f"{target.format(j)} = g" for j in offsets]
        return [f"{target.format(j)} = g if f == place(own + {j}) else value(0)" for j in offsets]

    def load(window: str) -> list[str]:
        share = f"g = given[{window}]" + ("" if divisor in (None, 1) else f" / value({divisor})")
        return [share, f"f = found[{window}]"] if divisor is None else [share]

    if lanes:
        rows += [
            f"for first in range(low, high, {lanes}):",
            *indent([f"q = least(first, high - {lanes})", f"for lane in range({lanes}):"]),
            *indent([*load("q + lane"), *shares(f"near[lane * {k} + {{}}]", range(k))], 2),
            *indent([f"copy(tail(target, q * {k} - {before}), tail(near, 0), {lanes * k})"]),
        ]
    each = [f"r = q * {k} - {before} + j"]
    if any(windows.padding[-1]):
        each += [f"if r >= 0 and r < n{last}:", *indent(shares("target[r]", ["j"]))]
    else:
        each += shares("target[r]", ["j"])
    rows += [
        f"for turn in range(m{last} - high + low):",
        *indent(["q = turn if turn < low else turn + high - low", *load("q"), f"for j in range({k}):", *indent(each)]),
        f"done = m{last} * {k} - {before}",
        *(["done = done if done > 0 else 0"] if before else []),
    ]
    return rows


def scatter_windows(name: str, windows: Windows) -> str:
    """Add each element to the place in the image that its window has found: `name(..., x, places, out)`."""
    return _for_each_place(name, windows, "out", "x", ["target[at] += given[number]"], cleared=True)


def pick_elements(name: str, windows: Windows) -> str:
    """Take for each window the element of the image at the place it has found: `name(..., x, places, out)`."""
    return _for_each_place(name, windows, "x", "out", ["given[number] = target[at]"], cleared=False)


def _for_each_place(name: str, windows: Windows, image: str, values: str, lines: list[str], cleared: bool) -> str:
    count = len(windows.size)
    where = ["number = " + place_in("p", "m", count), "found = np.int64(own[number])"]
    for axis in reversed(range(count)):
        k = windows.size[axis]
        where += [f"r{axis} = {source(windows, axis, f'p{axis}', f'found % {k}')}", f"found = found // {k}"]
    where.append(f"at = {place_in('r', 'n', count)}")
    if windows.padded:
        bounds = " and ".join(f"r{axis} >= 0 and r{axis} < n{axis}" for axis in range(count))
        where += [*([] if cleared else ["given[number] = value(0)"]), f"if {bounds}:", *indent(lines)]
    else:
        where += lines
    for axis in reversed(range(count)):
        where = [f"for p{axis} in range(m{axis}):", *indent(where)]
    head = [f"target, given, own = row({image}, plane), row({values}, plane), row(places, plane)"]
    return function(
        name, [*sizes_of(windows), "x", "places", "out"], units("plane", [*head, *(_clear(count) * cleared), *where])
    )


def spread(name: str, windows: Windows, divisor: int) -> str:
    """Add to all elements of each window its share, of windows that overlap: `name(..., x, out)`."""
    count = len(windows.size)
    share = "given" if divisor == 1 else f"given / value({divisor})"
    body = [f"given = row(x, plane)[{place_in('p', 'm', count)}]", f"given = {share}", f"q = p{count - 1}"]
    body += over_window(windows, range(count), [f"target[{place_in('r', 'n', count)}] += given"])
    for axis in reversed(range(count)):
        body = [f"for p{axis} in range(m{axis}):", *indent(body)]
    lines = ["target = row(out, plane)", *_clear(count), *body]
    return function(name, [*sizes_of(windows), "x", "out"], units("plane", lines))


def _clear(count: int) -> list[str]:
    size = " * ".join(f"n{axis}" for axis in range(count))
    return [f"for at in range({size}):", "    target[at] = value(0)"]
