"""The source of a kernel: a function with the imports, constants and functions that it reads from its module."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import pytest
from numpy import exp

from snncell import dtype as dtypes
from snncell.kernels.conv import transforms
from snncell.kernels.conv.transforms import Tiling
from snncell.kernels.intrinsics.builtins import inline, least
from snncell.kernels.numba.build import build
from snncell.kernels.numba.code import source_of

LANES, NEVER, SCALE = 4, math.inf, 0.5
transform: Any = None


@inline
def scaled(x: Any) -> Any:
    """A function of the same module."""
    return exp(x) * SCALE if x < NEVER else x


def doubled(x: Any) -> Any:
    """A replacement function."""
    return x * 2.0


def fill(start: Any, stop: Any, x: Any, out: Any) -> None:
    """A kernel."""
    for n in range(start, least(stop, LANES)):
        out[n] = scaled(x[n])


def turn(start: Any, stop: Any, x: Any) -> None:
    """A kernel that reads a name without a value."""
    transform(x, 1, x, 1, 1)


SOURCE = '''from numpy import exp
from snncell.kernels.intrinsics.builtins import inline
from snncell.kernels.intrinsics.builtins import least

LANES = 8
NEVER = float('inf')
SCALE = 0.5


@inline
def scaled(x):
    """A function of the same module."""
    return exp(x) * SCALE if x < NEVER else x


def fill(start, stop, x, out):
    """A kernel."""
    for n in range(start, least(stop, LANES)):
        out[n] = scaled(x[n])
'''


def test_source_contains_the_names_that_the_function_reads() -> None:
    assert source_of(fill, LANES=8) == SOURCE
    assert source_of(fill, scaled=doubled).endswith("\n\n\nscaled = doubled\n")
    assert "def doubled(x):" in source_of(fill, scaled=doubled)


def test_name_can_be_bound_to_the_result_of_a_call() -> None:
    tiling = Tiling((3, 3), (1, 1), 1)
    source = source_of(turn, transform=functools.partial(transforms.of_weights, tiling))
    assert "from snncell.kernels.conv.transforms import of_weights\n" in source
    assert "from snncell.kernels.conv.transforms import Tiling\n" in source
    assert f"\ntransform = of_weights({tiling!r})\n" in source
    assert "transform =" not in source_of(turn)  # the caller must define None


def test_function_outside_the_digest_raises() -> None:
    with pytest.raises(AssertionError):
        source_of(fill, least=dtypes.DType)


def test_generated_source_computes_the_function() -> None:
    array = (dtypes.float32, 1, False), (dtypes.float32, 1, True)
    x = np.array([0.0, 1.0, -2.0, np.inf, 5.0, 6.0, 7.0, 8.0, 9.0], np.float32)
    for lanes in (4, 8):
        out, expected = np.zeros_like(x), np.zeros_like(x)
        build("fill", source_of(fill, LANES=lanes), array)(len(x), 0, x, out)
        expected[:lanes] = [scaled(each) for each in x[:lanes]]
        np.testing.assert_allclose(out, expected, rtol=1e-6)
