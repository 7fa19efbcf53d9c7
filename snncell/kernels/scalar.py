"""The scalar functions that formulas may call, in each namespace they are evaluated in.

A formula is a plain Python function of operators and of these names. NumPy evaluates it on arrays (`NUMPY`);
generated loops evaluate it on scalars (`LOOP`), where a name is imported from NumPy, spelled out as an expression where
NumPy's scalar version is missing in Numba, or a function of `cpu/mathematics.py` where it does not vectorise.
"""

from __future__ import annotations

import hashlib
import os
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from snncell.base.signals import import_once


def _erf(x: Any) -> Any:
    result = import_once("scipy.special").erf(x)  # on first use: importing it takes a tenth of a second
    return result if result.dtype == x.dtype else result.astype(x.dtype)  # it computes float16 in double


def _sigmoid(x: Any) -> Any:
    # It is 0 where exp(-x) overflows, a little before the result would be (x < -88 in float32); the form that is right
    # there takes twice as long on arrays, and in loops there is one of our own.
    return 1 / (1 + np.exp(-x))


# What a formula's names mean on NumPy arrays: NumPy's functions, most of them by the same name.
NUMPY: dict[str, Any] = {
    **{name: getattr(np, name) for name in ("exp", "expm1", "log", "log1p", "sqrt", "sin", "cos", "tanh")},
    **{name: getattr(np, name) for name in ("floor", "ceil", "round", "sign", "minimum", "maximum")},
    **{name: getattr(np, name) for name in ("where", "logical_not")},
    "abs": abs,  # of a number a number: NumPy's would be a float64, which no longer takes the precision of arrays
    "atan": np.arctan,
    "conj": np.conjugate,
    "erf": _erf,
    "sigmoid": _sigmoid,
}

# Calls that take several times as long as an addition.
SLOW = frozenset(("exp", "expm1", "log", "log1p", "sin", "cos", "tanh", "atan", "erf", "sigmoid"))

# The same names in a loop, on scalars: {0}, {1}, ... are the arguments, {cast} brings a number to their precision.
LOOP: dict[str, str] = {
    **{name: f"mathematics.{name}_{{cast}}({{0}})" for name in sorted(SLOW - {"sin", "cos"})},
    **{name: name + "({0})" for name in ("sqrt", "sin", "cos", "floor", "ceil")},
    "round": "rint({0})",
    "abs": "abs({0})",
    "where": "({1} if {0} else {2})",
    "minimum": "({0} if ({0} <= {1}) | ({0} != {0}) else {1})",  # a NaN on either side comes through
    "maximum": "({0} if ({0} >= {1}) | ({0} != {0}) else {1})",
    "sign": "({cast}(1) if {0} > {cast}(0) else (-{cast}(1) if {0} < {cast}(0) else {0} + {cast}(0)))",  # NaN stays
    "logical_not": "(not {0})",
    **{name: f"mathematics.{name}_f4({{0}})" for name in ("float16", "bfloat16")},  # rounded to one
}

# The same on CUDA, where the device's own functions are as fast as ours would be. They are cast: in the simulator they
# are NumPy's, and a Python number would be computed with in double precision.
CUDA: dict[str, str] = {
    **LOOP,
    **{name: f"{{cast}}({name}({{0}}))" for name in ("exp", "expm1", "log", "log1p", "sqrt", "sin", "cos", "tanh")},
    **{name: f"{{cast}}({name}({{0}}))" for name in ("atan", "erf")},
    "sigmoid": "({cast}(1) / ({cast}(1) + {cast}(exp(-{0}))))",
    **{name: f"{name}_{{cast}}({{0}})" for name in ("floor", "ceil", "rint")},
    "round": "rint_{cast}({0})",
    "conj": "({0}).conjugate()",
}
# How a CUDA kernel takes an element from memory (`dtype.in_memory`), and how it puts there what has a name: a number is
# rounded to the nearest bfloat16, of two to the even one, and NaN stays NaN.
LOAD = {
    "bool": "{0} != 0",
    "float16": "np.float32({0})",
    "bfloat16": "int_as_float(np.int32({0}) << np.int32(16))",
}
STORE = {
    "bool": "np.uint8({0})",
    "float16": "np.float16({0})",
    "bfloat16": (
        "np.uint16((float_as_int({0}) + 32767 + (float_as_int({0}) >> 16 & 1)) >> 16 if {0} == {0} else 32704)"
    ),
}
CUDA |= {name: LOAD[name].format(STORE[name]) for name in ("float16", "bfloat16")}  # rounded to one
CUDA_IMPORTS = """\
from math import atan, cos, erf, exp, expm1, log, log1p, sin, sqrt, tanh

import numpy as np
from numba import cuda
from numba.cuda.libdevice import (
    ceil as ceil_f8, ceilf as ceil_f4, float_as_int, floor as floor_f8, floorf as floor_f4, int_as_float,
    rint as rint_f8, rintf as rint_f4,
)
"""
# In the simulator NumPy's: Python's raise where the device gives infinities.
SIMULATOR_IMPORTS = """\
import numpy as np
from numba import cuda
from numpy import arctan as atan, cos, exp, expm1, log, log1p, sin, sqrt, tanh
from numpy import ceil as ceil_f4, floor as floor_f4, rint as rint_f4
from numpy import ceil as ceil_f8, floor as floor_f8, rint as rint_f8
from scipy.special import erf


def int_as_float(bits):
    return np.int32(bits).view(np.float32)


def float_as_int(number):
    return np.float32(number).view(np.int32)
"""

# The head of every generated file: where the names above come from.
LOOP_IMPORTS = """\
import numpy as np
from numpy import ceil, cos, floor, rint, sin, sqrt

from snncell.kernels.cpu import mathematics
from snncell.kernels.cpu.builtins import least
from snncell.kernels.cpu.elements import copy, fill, lanes, prefetch, row, scalar, strip, tail
"""


# What the head of a file with products of rows imports besides.
ROW_IMPORTS = "from snncell.kernels.cpu import rows\n"


def is_simulated() -> bool:
    """True if CUDA kernels are run by Numba's simulator, on the CPU."""
    return os.environ.get("NUMBA_ENABLE_CUDASIM") == "1"


@cache
def library_digest() -> str:
    """A hash of the modules that have a say in the code of a generated file beside itself."""
    # Those that it may import, whose functions it has in it, and the one that compiles it. The files are read and not
    # imported, for they import Numba.
    folder = Path(__file__).parent
    files = [folder / "numba_passes.py", *sorted(folder.glob("cpu/*.py"))]
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()
