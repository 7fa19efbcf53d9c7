"""The windows of a convolution as a view, and their adjoint: a thread for each element that windows overlap in."""

from __future__ import annotations

import functools
from typing import Any

from snncell.kernels.cuda.arrays import DeviceArray, empty
from snncell.kernels.cuda.elementwise import as_parts, kernel, launch, parameters_of, parts_of

Axes = tuple[int, ...]  # a number for each axis


def device_windows(x: DeviceArray, size: Axes, stride: Axes, dilation: Axes) -> DeviceArray:
    """(N, C, *S) -> (N, C, *O, *size), a view."""
    axes = zip(x.shape[2:], size, stride, dilation, strict=True)
    counts = [(length - (k - 1) * d - 1) // s + 1 for length, k, s, d in axes]
    steps = [step * s for step, s in zip(x.strides[2:], stride, strict=True)]
    inside = [step * d for step, d in zip(x.strides[2:], dilation, strict=True)]
    return x.view((*x.shape[:2], *counts, *size), (*x.strides[:2], *steps, *inside))


def device_fold(x: DeviceArray, shape: Axes, size: Axes, stride: Axes, dilation: Axes) -> DeviceArray:
    """(N, C, *O, *size) -> (N, C, *S): each element of a window is added where it came from."""
    out = empty(shape, x.dtype)
    kind, parts = parts_of(x)
    count = len(size)
    compiled = _fold_kernel(count, kind, parts)
    sizes = [*shape[1:], *x.shape[2 : 2 + count], *size, *stride, *dilation]
    steps = [step * parts for step in (x.offset, *x.strides)]
    launch(compiled, out.size * parts, *sizes, *steps, (x.memory.block, 0, kind.dtype), as_parts(out))
    return out


@functools.cache
def _fold_kernel(count: int, kind: Any, parts: int) -> Any:
    """The kernel for windows over `count` axes. Offsets in a window are tried in the order in which the CPU adds."""
    axes = range(count)
    names = ["channels", *(f"{letter}{a}" for letter in ("n", "o", "k", "s", "d") for a in axes)]
    steps = ["first", "u", "v", *(f"w{a}" for a in axes), *(f"e{a}" for a in axes)]
    lines = ["j = i"]
    if parts == 2:
        lines += ["part = j % 2", "j = j // 2"]
    for a in reversed(axes):
        lines += [f"p{a} = j % n{a}", f"j = j // n{a}"]
    begin = "first + (j // channels) * u + (j % channels) * v" + (" + part" if parts == 2 else "")
    lines += [f"begin = {begin}", f"total = {kind.code}(0)"]
    place = "begin"
    for a in axes:
        indent = "    " * (2 * a)
        lines += [
            f"{indent}for q{a} in range(k{a}):",
            f"{indent}    r{a} = p{a} - q{a} * d{a}",
            f"{indent}    if r{a} >= 0 and r{a} % s{a} == 0 and r{a} // s{a} < o{a}:",
        ]
        place += f" + (r{a} // s{a}) * w{a} + q{a} * e{a}"
    lines += ["    " * (2 * count) + f"total += x[{place}]", "out[i] = total"]
    arrays = ("x", (kind, False)), ("out", (kind, True))
    return kernel(f"fold_{count}", (*parameters_of(" ".join([*names, *steps])), *arrays), "\n".join(lines))
