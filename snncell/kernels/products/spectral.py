"""Products with delays in the frequency domain: for D + 1 delays, about (D + 1) / 3 times fewer multiplications.

Time is cut into blocks of C steps. A discrete Fourier transform of C + D steps turns a sum over delays into one complex
product per frequency. The transforms are products with a matrix of cosines and sines, so that all work is done by BLAS.
Rounding errors of all steps of a block depend on each other, and a NaN fills its block. Therefore only gradients are
computed in this way.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from snncell.kernels.arrays import empty
from snncell.kernels.numba.threads import BLAS, WORKERS

GROUP = 8  # frequencies whose transformed taps are in memory at the same time
MARGIN = 1.5  # products of these shapes run slower than large ones
COLUMNS = 2048  # columns of a part of a transform


@functools.lru_cache(64)
def _waves(length: int, steps: int, dtype: Any) -> tuple[Any, Any]:
    """The transform of the first `steps` steps of a period of `length` to pairs (real, imaginary) of frequencies, (2 F,
    steps), and its inverse.
    """
    frequencies = length // 2 + 1
    turns = np.outer(np.arange(frequencies), np.arange(steps)) % length * (2 * np.pi / length)
    waves = np.stack([np.cos(turns), -np.sin(turns)], 1)
    weight = np.full((frequencies, 1, 1), 2.0 / length)
    weight[0] = 1.0 / length
    if length % 2 == 0:
        weight[-1] = 1.0 / length
    return waves.reshape(-1, steps).astype(dtype), (waves * weight).reshape(-1, steps).T.astype(dtype)


def _multiply(matrix: Any, x: Any, out: Any) -> None:
    """`matrix @ x` for an `x` with many columns."""
    columns = x.shape[1]

    def multiply(first: int) -> None:
        own = slice(first, first + COLUMNS)
        np.matmul(matrix, x[:, own], out=out[:, own])

    WORKERS.run(multiply, range(0, columns, COLUMNS))


def _count_multiplications(blocks: int, steps: int, batch: int, delays: int, inputs: int, outputs: int) -> float:
    """The number of multiplications. Those that transform the taps count twice, because they take twice as long."""
    length, rows = -(-steps // blocks) + delays - 1, blocks * batch
    transforms = length * length * rows * (inputs + outputs) + 2 * length * delays * inputs * outputs
    return transforms + 2.0 * length * rows * inputs * outputs


@functools.lru_cache(1024)
def _blocks(*sizes: int) -> tuple[int, int, float]:
    """The number of blocks, the steps of each, and the multiplications, for the sizes of `_count_multiplications`."""
    steps, _, delays, *_ = sizes
    lengths = {min(steps, half * delays // 2) for half in range(2, 17)}
    work, blocks = min((_count_multiplications(n, *sizes), n) for n in {-(-steps // own) for own in lengths})
    return blocks, -(-steps // blocks), work


def _transform(x: Any, blocks: int, own: int, reach: int, length: int) -> Any:
    """Transform blocks of `reach` steps, `own` after the previous one: (T, B, N) -> (F, 2, blocks, B, N)."""
    _, batch, channels = x.shape
    waves, _ = _waves(length, reach, x.dtype)
    out = empty((len(waves), blocks, batch * channels), x.dtype)
    for block in range(blocks):
        part = x[block * own : block * own + reach].reshape(-1, batch * channels)
        _multiply(waves[:, : len(part)], part, out[:, block])
    return out.reshape(-1, 2, blocks * batch, channels)


def share(y: tuple[int, ...], taps: tuple[int, ...]) -> float:
    """The time of these products as a share of the direct ones, by their multiplications."""
    (steps, batch, outputs), (delays, inputs, _) = y, taps
    if min(steps, delays, batch * inputs * outputs) <= 1:
        return 1.0
    *_, work = _blocks(steps, batch, delays, inputs, outputs)
    return MARGIN * work / (delays * steps * batch * inputs * outputs)


def transposed_product(y: Any, taps: Any) -> Any:
    """x[t] = sum_d y[t + d] @ taps[d].T: (T, B, N_out), (D + 1, N_in, N_out) -> (T, B, N_in)."""
    return BLAS.run(_transposed_product, np.ascontiguousarray(y), np.ascontiguousarray(taps))


def _transposed_product(y: Any, taps: Any) -> Any:
    (steps, batch, outputs), (delays, inputs, _) = y.shape, taps.shape
    blocks, own, _ = _blocks(steps, batch, delays, inputs, outputs)
    length = own + delays - 1
    transformed = _transform(y, blocks, own, length, length)
    frequencies, _, rows, _ = transformed.shape
    products = empty((frequencies, 2, rows, inputs), y.dtype)
    waves, _ = _waves(length, delays, y.dtype)
    flat = taps.reshape(delays, -1)

    def multiply(first: int) -> None:
        last = min(first + GROUP, frequencies)
        of_taps = (waves[2 * first : 2 * last] @ flat).reshape(last - first, 2 * inputs, outputs)
        for n in range(first, last):
            both = transformed[n].reshape(2 * rows, outputs) @ of_taps[n - first].T
            both = both.reshape(2, rows, 2, inputs)
            np.add(both[0, :, 0], both[1, :, 1], out=products[n, 0])
            np.subtract(both[1, :, 0], both[0, :, 1], out=products[n, 1])

    WORKERS.run(multiply, range(0, frequencies, GROUP))
    _, inverse = _waves(length, own, y.dtype)
    out = empty((blocks, own, batch * inputs), y.dtype)
    products = products.reshape(2 * frequencies, blocks, -1)
    for block in range(blocks):
        _multiply(inverse, products[:, block], out[block])
    return out.reshape(-1, batch, inputs)[:steps]


def weight_gradient(x: Any, y: Any, delays: int) -> Any:
    """The gradient of the taps, sum_{t, b} x[t - d, b, i] y[t, b, j]: (delays, N_in, N_out)."""
    return BLAS.run(_weight_gradient, np.ascontiguousarray(x), np.ascontiguousarray(y), delays)


def _weight_gradient(x: Any, y: Any, delays: int) -> Any:
    (steps, batch, inputs), outputs = x.shape, y.shape[2]
    blocks, own, _ = _blocks(steps, batch, delays, inputs, outputs)
    length = own + delays - 1
    of_x, of_y = _transform(x, blocks, own, own, length), _transform(y, blocks, own, length, length)
    frequencies, _, rows, _ = of_y.shape
    _, inverse = _waves(length, delays, y.dtype)
    products = empty((2 * frequencies, inputs, outputs), y.dtype)

    def multiply(n: int) -> None:
        left = of_x[n].reshape(2 * rows, inputs).T
        turned = np.concatenate([of_y[n, 1], -of_y[n, 0]])
        np.matmul(left, of_y[n].reshape(2 * rows, outputs), out=products[2 * n])
        np.matmul(left, turned, out=products[2 * n + 1])

    WORKERS.run(multiply, range(frequencies))
    out = empty((delays, inputs * outputs), y.dtype)
    _multiply(inverse, products.reshape(2 * frequencies, -1), out)
    return out.reshape(delays, inputs, outputs)
