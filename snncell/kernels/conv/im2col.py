"""im2col: windows of images as a matrix, its adjoint (col2im), and convolutions as matrix products.

This algorithm supports any number of axes, any dtype, and the GPU, and is the reference for tests. In shapes, N is the
number of images, C and O of input and output channels, S the size of an image, P the number of windows, and K the size
of a window.
"""

from __future__ import annotations

import functools
import itertools
import math
from typing import Any

import numpy as np

from snncell.kernels.cuda.arrays import DeviceArray, empty
from snncell.kernels.cuda.build import Viewed, as_parts, parts_of, run
from snncell.kernels.products import matmul

# --- On the device: one thread per element of the image ---------------------------------------------------------------

Ints = tuple[int, ...]  # one number per axis


def device_windows(x: DeviceArray, size: Ints, stride: Ints, dilation: Ints) -> DeviceArray:
    """(N, C, *S) -> (N, C, *P, *size), a view."""
    axes = zip(x.shape[2:], size, stride, dilation, strict=True)
    counts = [(length - (k - 1) * d - 1) // s + 1 for length, k, s, d in axes]
    steps = [step * s for step, s in zip(x.strides[2:], stride, strict=True)]
    inside = [step * d for step, d in zip(x.strides[2:], dilation, strict=True)]
    return x.view((*x.shape[:2], *counts, *size), (*x.strides[:2], *steps, *inside))


def device_fold(x: DeviceArray, shape: Ints, size: Ints, stride: Ints, dilation: Ints) -> DeviceArray:
    """(N, C, *P, *size) -> (N, C, *S): sum the overlapping windows."""
    out = empty(shape, x.dtype)
    kind, parts = parts_of(x)
    count = len(size)
    axes = range(count)
    sizes = {"channels": shape[1]}
    lengths = {"n": shape[2:], "o": x.shape[2 : 2 + count], "k": size, "s": stride, "d": dilation}
    sizes |= {f"{letter}{a}": numbers[a] for letter, numbers in lengths.items() for a in axes}
    steps = ["first", "u", "v", *(f"w{a}" for a in axes), *(f"e{a}" for a in axes)]
    sizes |= {name: step * parts for name, step in zip(steps, (x.offset, *x.strides), strict=True)}
    whole = Viewed(DeviceArray(x.memory, 0, (), (), x.dtype), kind.dtype)
    body = _fold_statements(count, kind.code, parts)
    run(f"fold_{count}", body, out.size * parts, sizes, {"x": whole}, {"out": as_parts(out)})
    return out


@functools.cache
def _fold_statements(count: int, code: str, parts: int) -> str:
    """The kernel body for windows over `count` axes. It adds in the same order as the CPU."""
    axes = range(count)
    lines = ["j = i"]
    if parts == 2:
        lines += ["part = j % 2", "j = j // 2"]
    for a in reversed(axes):
        lines += [f"p{a} = j % n{a}", f"j = j // n{a}"]
    begin = "first + (j // channels) * u + (j % channels) * v" + (" + part" if parts == 2 else "")
    lines += [f"begin = {begin}", f"total = {code}(0)"]
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
    return "\n".join(lines)


def windows(x: Any, size: Ints, stride: Ints, dilation: Ints) -> Any:
    """(N, C, *S) -> (N, C, *P, *size), a view."""
    if not isinstance(x, np.ndarray):
        return device_windows(x, size, stride, dilation)
    count = len(size)
    reach = tuple((k - 1) * d + 1 for k, d in zip(size, dilation, strict=True))
    view = np.lib.stride_tricks.sliding_window_view(x, reach, tuple(range(2, 2 + count)))
    steps = (*stride, *dilation)
    return view[(slice(None), slice(None), *(slice(None, None, step) for step in steps))]


def fold(x: Any, shape: Ints, size: Ints, stride: Ints, dilation: Ints) -> Any:
    """(N, C, *P, *size) -> (N, C, *S): sum the overlapping windows, the adjoint of `windows`."""
    if not isinstance(x, np.ndarray):
        return device_fold(x, shape, size, stride, dilation)
    out = np.zeros(shape, x.dtype)
    counts = x.shape[2 : 2 + len(size)]
    # One offset within the window at a time: the elements at one offset do not overlap, so one slice addresses all.
    for offset in itertools.product(*(range(k) for k in size)):
        spans = [slice(o * d, o * d + n * s, s) for o, d, n, s in zip(offset, dilation, counts, stride, strict=True)]
        out[(slice(None), slice(None), *spans)] += x[(..., *offset)]  # type: ignore[arg-type]
    return out


def convolve(x: Any, weight: Any, *, stride: Ints, before: Ints, dilation: Ints, count: Ints, groups: int) -> Any:
    """Convolve: (N, C, *S), (O, C // groups, *K) -> (N, O, *count)."""
    columns = _columns(x, weight.shape[2:], stride, before, dilation, count, groups)
    product = matmul.matmul(columns, _as_matrices(weight, groups).transpose(0, 2, 1))  # (groups, N P, O // groups)
    images = product.reshape(groups, len(x), math.prod(count), product.shape[2]).transpose(1, 0, 3, 2)
    return images.reshape(len(x), len(weight), *count)


def convolve_back(
    dout: Any, weight: Any, *, stride: Ints, before: Ints, dilation: Ints, lengths: Ints, groups: int
) -> Any:
    """The gradient of the input: (N, O, *P), (O, C // groups, *K) -> (N, C, *lengths)."""
    size, axes = weight.shape[2:], len(lengths)
    n, places = len(dout), dout.shape[2:]
    channels = weight.shape[1] * groups
    patches = matmul.matmul(_as_rows(dout, groups), _as_matrices(weight, groups))
    patches = patches.reshape(groups, n, *places, weight.shape[1], *size)
    order = (1, 0, 2 + axes, *range(2, 2 + axes), *range(3 + axes, 3 + 2 * axes))
    patches = patches.transpose(*order).reshape(n, channels, *places, *size)
    reach = [(p - 1) * s + (k - 1) * d + 1 for p, s, k, d in zip(places, stride, size, dilation, strict=True)]
    whole = tuple(max(end, low + length) for end, low, length in zip(reach, before, lengths, strict=True))
    folded = fold(patches, (n, channels, *whole), size, stride, dilation)
    return folded[(slice(None), slice(None), *(slice(a, a + b) for a, b in zip(before, lengths, strict=True)))]


def convolve_weight(x: Any, dout: Any, *, stride: Ints, before: Ints, dilation: Ints, size: Ints, groups: int) -> Any:
    """The gradient of the weight: (N, C, *S), (N, O, *P) -> (O, C // groups, *size)."""
    columns = _columns(x, size, stride, before, dilation, dout.shape[2:], groups)
    product = matmul.matmul(_as_rows(dout, groups).transpose(0, 2, 1), columns)
    return product.reshape(dout.shape[1], x.shape[1] // groups, *size)


def _columns(x: Any, size: Ints, stride: Ints, before: Ints, dilation: Ints, count: Ints, groups: int) -> Any:
    """The im2col matrix, with a row per window: (groups, N P, C // groups K)."""
    numbers = zip(x.shape[2:], size, stride, before, dilation, count, strict=True)
    after = [max(0, (p - 1) * s + (k - 1) * d + 1 - low - n) for n, k, s, low, d, p in numbers]
    padded = np.pad(x, ((0, 0), (0, 0), *zip(before, after, strict=True)))
    view = windows(padded, size, stride, dilation)[(slice(None), slice(None), *(slice(n) for n in count))]
    axes, (n, channels) = len(size), x.shape[:2]
    view = view.reshape(n, groups, channels // groups, *count, *size)
    order = (1, 0, *range(3, 3 + axes), 2, *range(3 + axes, 3 + 2 * axes))
    return view.transpose(*order).reshape(groups, n * math.prod(count), channels // groups * math.prod(size))


def _as_matrices(weight: Any, groups: int) -> Any:
    """Reshape weights to (groups, O // groups, C // groups K)."""
    return weight.reshape(groups, len(weight) // groups, math.prod(weight.shape[1:]))


def _as_rows(images: Any, groups: int) -> Any:
    """(N, C, *P) -> (groups, N P, C // groups)."""
    n, channels = images.shape[:2]
    pixels = math.prod(images.shape[2:])
    rows = images.reshape(n, groups, channels // groups, pixels).transpose(1, 0, 3, 2)
    return rows.reshape(groups, n * pixels, channels // groups)
