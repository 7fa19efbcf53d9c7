"""The scalar functions that formulas may call, in each namespace they are evaluated in.

A formula is a plain Python function of operators and of these names. NumPy evaluates it on arrays (`NUMPY`);
generated loops evaluate it on scalars, where a name is either imported from NumPy or spelled out as an expression
(`LOOP`), because NumPy's scalar version is missing in Numba or does not vectorise.
"""

from __future__ import annotations

from typing import Any

import numpy as np


def _erf(x: Any) -> Any:
    from scipy.special import erf  # on first use: importing it takes a tenth of a second

    result = erf(x)
    return result if result.dtype == x.dtype else result.astype(x.dtype)  # it computes float16 in double


# What a formula's names mean on NumPy arrays.
NUMPY: dict[str, Any] = {
    "exp": np.exp,
    "expm1": np.expm1,
    "log": np.log,
    "log1p": np.log1p,
    "sqrt": np.sqrt,
    "sin": np.sin,
    "cos": np.cos,
    "tanh": np.tanh,
    "atan": np.arctan,
    "erf": _erf,
    "floor": np.floor,
    "ceil": np.ceil,
    "round": np.round,
    "abs": np.abs,
    "where": np.where,
    "minimum": np.minimum,
    "maximum": np.maximum,
    "sign": np.sign,
    "conj": np.conjugate,
    "logical_not": np.logical_not,
}

# The same names in a loop, on scalars: {0}, {1}, ... are the arguments, {cast} brings a number to their precision.
LOOP: dict[str, str] = {
    **{name: name + "({0})" for name in ("exp", "expm1", "log", "log1p", "sqrt", "sin", "cos", "tanh")},
    **{name: name + "({0})" for name in ("atan", "erf", "floor", "ceil")},
    "round": "rint({0})",
    "abs": "abs({0})",
    "where": "({1} if {0} else {2})",
    "minimum": "({0} if ({0} <= {1}) | ({0} != {0}) else {1})",  # a NaN on either side comes through
    "maximum": "({0} if ({0} >= {1}) | ({0} != {0}) else {1})",
    "sign": "({cast}(1) if {0} > {cast}(0) else (-{cast}(1) if {0} < {cast}(0) else {0} + {cast}(0)))",  # NaN stays
    "logical_not": "(not {0})",
}

# Calls that take many times as long as an addition.
SLOW = frozenset(("exp", "expm1", "log", "log1p", "sin", "cos", "tanh", "atan", "erf"))

# The head of every generated file: where the names above come from.
LOOP_IMPORTS = """\
from math import atan, erf
import numpy as np
from numba import prange
from numpy import ceil, cos, exp, expm1, floor, log, log1p, rint, sin, sqrt, tanh
"""
