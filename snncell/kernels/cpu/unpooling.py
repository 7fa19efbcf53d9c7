"""Reverses of pooling as text: of the largest element by its place, of a sum by its window.

A unit is a plane. Where windows tile an image, each element is written once; where they overlap, what comes from one
window after the other is added up.
"""

from __future__ import annotations

from collections.abc import Sequence

from snncell.kernels.cpu.loops import function, indent, units
from snncell.kernels.cpu.windows import Windows, over_window, place_in, sizes_of, source


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
