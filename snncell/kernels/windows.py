"""Windows of images, and the source text of functions that pool them, for windows of constant size.

A unit is a plane, the image of one channel. Padding is never stored: along outer axes, a row of neutral elements
replaces a row of padding. Along the last axis, the windows from `low` to `high` are inside of the image, and the other
windows check bounds. Windows inside are unrolled, and LANES of them are computed at a time into a stack array, so that
LLVM knows that no arrays overlap, and uses vector registers. The last LANES windows of a row may overlap the previous
ones. A loop over the remaining windows instead would take most of the time for small images.

In generated code `n0`, ... are the lengths of an image, and `m0`, ... the numbers of windows along each axis. `p0`, ...
(along the last axis `q`) are the indices of a window, `i0`, ... a position in it, and `r0`, ... that in the image.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from snncell.kernels.loops import function, indent, nest, units

Ints = tuple[int, ...]


class Windows(NamedTuple):
    """Windows over the last axes of images: for each axis their length, stride, dilation, and padding on both sides."""

    size: Ints
    stride: Ints
    dilation: Ints
    padding: tuple[tuple[int, int], ...]

    @property
    def elements(self) -> int:
        """The number of elements of a window."""
        return math.prod(self.size)

    @property
    def padded(self) -> bool:
        """True if there is any padding."""
        return any(map(any, self.padding))

    @property
    def tiles(self) -> bool:
        """True if windows tile the image, without overlaps or gaps."""
        return self.size == self.stride and all(d == 1 for d, k in zip(self.dilation, self.size, strict=True) if k > 1)

    def counts(self, lengths: Sequence[int]) -> Ints:
        """The number of windows along each axis of an image."""
        axes = zip(lengths, *self, strict=True)
        return tuple((n + sum(pad) - (k - 1) * d - 1) // s + 1 for n, k, s, d, pad in axes)

    def with_last_part(self, lengths: Sequence[int]) -> Windows:
        """Windows for `ceil_mode`, with more padding: one more window along each axis where the last ends too early.

        It ends too early if elements of the image or of the padding remain after it. The additional window is left out
        if it would begin after the image.
        """
        padding = []
        for n, k, s, d, (before, after) in zip(lengths, *self, strict=True):
            reach = (k - 1) * d + 1
            count = -(-(n + before + after - reach) // s) + 1
            if (count - 1) * s >= n + before:
                count -= 1
            padding.append((before, max((count - 1) * s + reach - n - before, after)))
        return self._replace(padding=tuple(padding))

    def axis_of_padding_alone(self, lengths: Sequence[int]) -> int | None:
        """The first axis with a window that contains only padding, or None."""
        axes = enumerate(zip(lengths, *self, self.counts(lengths), strict=True))
        for axis, (n, k, s, d, (before, _), count) in axes:
            for start in range(-before, count * s - before, s):
                first = start + max(-(start // d), 0) * d  # its first element that is not in the padding before
                if first >= n or first > start + (k - 1) * d:
                    return axis
        return None

    def inside(self, length: int) -> tuple[int, int]:
        """The range of windows along the last axis that contain no padding."""
        k, s, d, (before, after) = self.size[-1], self.stride[-1], self.dilation[-1], self.padding[-1]
        count = (length + before + after - (k - 1) * d - 1) // s + 1
        low = min(-(-before // s), count)
        return low, max(min((length + before - (k - 1) * d - 1) // s + 1, count), low)


def over_window(windows: Windows, axes: Sequence[int], lines: list[str]) -> list[str]:
    """Loops over the positions `i0`, ... in a window along some axes. `lines` run only if the position in the image,
    `r0`, ..., is not in the padding.
    """
    last = len(windows.size) - 1
    for axis in reversed(axes):
        place = [f"r{axis} = {source(windows, axis, 'q' if axis == last else f'p{axis}', f'i{axis}')}"]
        if any(windows.padding[axis]):
            lines = [f"if r{axis} >= 0 and r{axis} < n{axis}:", *indent(lines)]
        lines = [f"for i{axis} in range({windows.size[axis]}):", *indent([*place, *lines])]
    return lines


def sizes_of(windows: Windows) -> list[str]:
    """The arguments for lengths of images and numbers of windows."""
    axes = range(len(windows.size))
    return [*(f"n{axis}" for axis in axes), *(f"m{axis}" for axis in axes)]


def source(windows: Windows, axis: int, window: str, offset: str) -> str:
    """The position in the image, along an axis, of an element of a window."""
    before = windows.padding[axis][0]
    place = f"{window} * {windows.stride[axis]} + ({offset}) * {windows.dilation[axis]}"
    return f"{place} - {before}" if before else place


def place_in(name: str, lengths: str | Sequence[int], count: int) -> str:
    """The flat index of a multi-index on `count` axes, for example `(p0 * m1 + p1) * m2 + p2`; 0 for no axes."""
    text = f"{name}0" if count else "0"
    for axis in range(1, count):
        length = f"{lengths}{axis}" if isinstance(lengths, str) else str(lengths[axis])
        text = f"({text}) * {length} + {name}{axis}"
    return f"({text})"


LANES = (16, 8, 4)  # windows at a time: the largest of these that fits into a row
UNROLLED = 25  # the most elements of a window that are unrolled


def _product(name: str, count: int) -> str:
    """The product of the first lengths, for example `(m0 * m1)`; 1 for none."""
    return f"({' * '.join(f'{name}{axis}' for axis in range(count)) or '1'})"


class Joined(NamedTuple):
    """The reduction of a window: each row first, then the results of the rows, so that dependency chains are short. {p}
    is the prefix of variables: "row_" for the reduction of a row, "" for that of the window.
    """

    begin: list[str]  # initialise for no elements
    first: list[str]  # initialise with the element {v} at {at} in the window
    join: list[str]  # add another element
    row: dict[str, str]  # the result of a row as {v} and {at}
    results: dict[str, str]  # the output arrays, and their values


_BEST = ["{p}best = {v}", "{p}found = {at}"]
_CHOSEN = ["{p}best = v if better else {p}best", "{p}found = {at} if better else {p}found"]
MAX = Joined(
    ["{p}best = nothing[0]", "{p}found = place(0)"],
    _BEST,
    # An element is better than the best so far if it is larger, or if it is the first NaN. An equal element is not
    # better, so the first of the largest elements is found.
    ["v = {v}", "better = (not (v <= {p}best)) & ({p}best == {p}best)", *_CHOSEN],
    {"v": "row_best", "at": "row_found"},
    {"out": "best", "places": "found"},
)
# NumPy's order of complex numbers: a number with NaN in either part is not less than or equal to any number.
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
    """The reduction to the largest element without its position."""
    lines = [[line for line in part if "found" not in line] for part in joined[:3]]
    return Joined(lines[0], lines[1], lines[2], joined.row, {"out": "best"})


def sums(divisor: int) -> Joined:
    """The reduction to a sum divided by a number."""
    result = "total" if divisor == 1 else f"total / value({divisor})"
    add = ["{p}total = {p}total + {v}"]
    return Joined(["{p}total = value(0)"], ["{p}total = {v}"], add, {"v": "row_total", "at": ""}, {"out": result})


def reduce_windows(name: str, windows: Windows, joined: Joined, lanes: int) -> str:
    """Source that reduces each window: `name(start, stop, n..., m..., low, high, x, nothing, *results)`.
    If `lanes` is not 0, there must be at least that many windows from `low` to `high`. `nothing` is a row of neutral
    elements, which replaces a row of padding.
    """
    last = len(windows.size) - 1
    window = f"(plane * {_product('m', last)} + {place_in('p', 'm', last)}) * m{last}"
    lines = [f"{array}_row = tail({array}, {window})" for array in joined.results]
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
    lines = nest(range(last), lines, "m")
    begin = [f"{array}_lanes = lanes({'place' if array == 'places' else 'value'}(0))" for array in joined.results]
    image = f"image = tail(x, plane * {_product('n', last + 1)})"
    body = [*(begin if lanes else []), *units("plane", [image, *lines])]
    return function(name, [*sizes_of(windows), "low", "high", "x", "nothing", *joined.results], body)


def _rows(windows: Windows) -> list[str]:
    """The rows of a window, as pointers to their first column: `x0`, `x1`, ..."""
    last = len(windows.size) - 1
    lines = []
    for number, offsets in enumerate(itertools.product(*map(range, windows.size[:-1]))):
        places = [source(windows, axis, f"p{axis}", str(offset)) for axis, offset in enumerate(offsets)]
        lines += [f"r{axis} = {place}" for axis, place in enumerate(places)]
        own = f"tail(image, {place_in('r', 'n', last)} * n{last})"
        bounds = [f"r{axis} >= 0 and r{axis} < n{axis}" for axis in range(last) if any(windows.padding[axis])]
        lines.append(f"x{number} = {own}" + (f" if {' and '.join(bounds)} else tail(nothing, 0)" if bounds else ""))
    return lines


def _unrolled_windows(windows: Windows, joined: Joined) -> list[str]:
    """The result of the window that begins at `at`, moved by `lane` windows."""
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
    """The result of any window `p0`, ..., `q`: loops over its elements, with bounds checks if there is padding."""
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


# --- Gradients of pooling: of a maximum by its position, of a sum by its window ---------------------------------------

# A unit is a plane. If windows tile an image, each element is written once; if they overlap, their contributions are
# added, one window after the other.


def tile_windows(name: str, windows: Windows, divisor: int | None, lanes: int) -> str:
    """Source that writes each element of an image once.

    With a `divisor`, each element gets the value of its window, divided by this number. Without a divisor, only the
    element at the position in `places` gets the value of the window. All other elements get 0.
    The arguments are `(start, stop, n..., m..., low, high, x, places, out)`, without `places` if there is a divisor.
    """
    last = len(windows.size) - 1
    rows = _row_of_tiles(windows, divisor, lanes)
    covered = " and ".join(f"p{axis} < m{axis}" for axis in range(last))
    row_of_image = f"(plane * {_product('n', last)} + {place_in('r', 'n', last)}) * n{last}"
    lines = [f"target = tail(out, {row_of_image})", "done = 0"]
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
    """Statements that write a row of the image, `target`, up to the end of its windows, `done`."""
    last = len(windows.size) - 1
    k, before = windows.size[-1], windows.padding[-1][0]
    window = f"(plane * {_product('m', last)} + {place_in('p', 'm', last)}) * m{last}"
    rows = [f"given = tail(x, {window})"]
    if divisor is None:
        rows += [f"found = tail(places, {window})"]
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


def move_at_places(name: str, windows: Windows, scatter: bool) -> str:
    """Source that takes the image element at the position found for each window: `name(..., x, places, out)`. With
    `scatter`, it adds each window's value to the element instead.
    """
    image, values = ("out", "x") if scatter else ("x", "out")
    lines = ["target[at] += given[number]" if scatter else "given[number] = target[at]"]
    count = len(windows.size)
    where = ["number = " + place_in("p", "m", count), "found = np.int64(own[number])"]
    for axis in reversed(range(count)):
        k = windows.size[axis]
        where += [f"r{axis} = {source(windows, axis, f'p{axis}', f'found % {k}')}", f"found = found // {k}"]
    where.append(f"at = {place_in('r', 'n', count)}")
    if windows.padded:
        bounds = " and ".join(f"r{axis} >= 0 and r{axis} < n{axis}" for axis in range(count))
        where += [*([] if scatter else ["given[number] = value(0)"]), f"if {bounds}:", *indent(lines)]
    else:
        where += lines
    where = nest(range(count), where, "m")
    size, windows_of_plane = _product("n", count), _product("m", count)
    head = [f"target, given = tail({image}, plane * {size}), tail({values}, plane * {windows_of_plane})"]
    head.append(f"own = tail(places, plane * {windows_of_plane})")
    body = units("plane", [*head, *(_clear(count) * scatter), *where])
    return function(name, [*sizes_of(windows), "x", "places", "out"], body)


def spread_windows(name: str, windows: Windows, divisor: int) -> str:
    """Source that adds each window's share to all of its elements, for overlapping windows: `name(..., x, out)`."""
    count = len(windows.size)
    share = "given" if divisor == 1 else f"given / value({divisor})"
    window = f"plane * {_product('m', count)} + {place_in('p', 'm', count)}"
    body = [f"given = x[{window}]", f"given = {share}", f"q = p{count - 1}"]
    body += over_window(windows, range(count), [f"target[{place_in('r', 'n', count)}] += given"])
    body = nest(range(count), body, "m")
    lines = [f"target = tail(out, plane * {_product('n', count)})", *_clear(count), *body]
    return function(name, [*sizes_of(windows), "x", "out"], units("plane", lines))


def _clear(count: int) -> list[str]:
    return [f"for at in range({_product('n', count)}):", "    target[at] = value(0)"]


def place_dtype(windows: Windows) -> Any:
    """The dtype of a position in a window: a byte if that is enough."""
    return np.dtype(np.uint8 if windows.elements <= 256 else np.int32)


def lanes_of(windows: Windows, length: int, elements: int, dtype: Any) -> tuple[int, int, int]:
    """The range of windows of a row that are inside of the image, and the number computed at a time."""
    low, high = windows.inside(length)
    if elements <= UNROLLED and dtype.kind != "c":
        for lanes in LANES:
            if lanes <= high - low:
                return low, high, lanes
    return low, low, 0


# --- Functions of pooling ---------------------------------------------------------------------------------------------


def max_source(name: str, lanes: int, windows: Windows, joined: Joined = MAX) -> str:
    """The source of `max_pool`."""
    return reduce_windows(name, windows, joined, lanes)


def largest_source(name: str, lanes: int, windows: Windows, joined: Joined = MAX) -> str:
    """The source of `largest`."""
    return reduce_windows(name, windows, without_places(joined), lanes)


def sum_source(name: str, lanes: int, windows: Windows, divisor: int) -> str:
    """The source of `sum_pool`."""
    return reduce_windows(name, windows, sums(divisor), lanes)


def unpool_source(name: str, lanes: int, windows: Windows) -> str:
    """The source of `unpool` if windows tile the image."""
    return tile_windows(name, windows, None, lanes)


def spread_source(name: str, lanes: int, windows: Windows, divisor: int) -> str:
    """The source of `spread` if windows tile the image."""
    return tile_windows(name, windows, divisor, lanes)
