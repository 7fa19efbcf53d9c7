"""Where a product of spikes is made of its events, and where by BLAS, by sizes alone.

Both are estimated in nanoseconds on one thread, for float32; of float64, what is a matter of bytes takes twice as long.
The rates are measured with `benchmarks/products.py` and fitted to sizes from 100 to 25600 rows and 20 to 4096 columns.
On another machine both sides differ, their ratio less: what is between the two is taken from the second-level cache, of
which a product of events takes a row of the panel for each event, while BLAS is bound by arithmetic.
"""

from __future__ import annotations

import functools
from typing import Any

from snncell.kernels.intrinsics.panels import DEPTH, VECTORS

# Events: to call their kernels, and if they are sorted by columns; to look at an element of the sparse operand; to
# list an event, and to sort it; to add a column of it from a panel in the first-level or the second-level cache; to
# pack an element of the dense operand into a panel; to begin and end a row of the result in each strip and panel.
CALLS, SORTED_CALLS = 14_000.0, 20_000.0
LOOK, LIST, SORT = 0.067, 0.69, 1.56
ADD_NEAR, ADD = 0.030, 0.045
PACK, ROW = 0.16, 16.0
NEAR = 32768  # bytes of a panel that stay in the first-level cache

# BLAS: a multiplication; an element of the left operand, the right, and the result.
MULTIPLY, LEFT, RIGHT, RESULT = 0.0207, 0.096, 0.48, 0.27

LEAST = 0.02  # below this limit it does not pay to look
FEWEST = 4, 8  # rows, and rows that are contracted: BLAS multiplies fewer as vectors, which are bound by memory alone


@functools.lru_cache(maxsize=4096)
def limit(m: int, k: int, n: int, dtype: Any, by_columns: bool) -> float:
    """The density of `x` (m, k) below which `x @ y` is made of the events of `x`; 0 if it never is.

    `y` is (k, n), both are of `dtype`. If `by_columns`, `x` is the transpose of the matrix that is in memory.
    """
    rows = k if by_columns else m
    if dtype.kind != "f" or dtype.itemsize not in (4, 8) or not m * k * n or rows < FEWEST[by_columns]:
        return 0.0
    size = dtype.itemsize / 4
    lanes = 64 // dtype.itemsize
    padded, width = -(-n // lanes) * lanes, VECTORS * lanes
    dense = size * (MULTIPLY * m * k * n + LEFT * m * k + RIGHT * k * n + RESULT * m * n)
    fixed = (SORTED_CALLS if by_columns else CALLS) + LOOK * m * k + size * PACK * k * n
    fixed += ROW * m * -(-n // width) * -(-k // DEPTH)
    near = min(k, DEPTH) * width * dtype.itemsize <= NEAR
    event = LIST + SORT * by_columns + size * padded * (ADD_NEAR if near else ADD)
    below = (dense - fixed) / (m * k * event)
    return min(1.0, below) if below >= LEAST else 0.0
