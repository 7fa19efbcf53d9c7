"""C expressions with bounds: evaluate the integer arithmetic of a layer symbolically, as statements of C99.

`integer.IntegerNeuron.step` and `integer.Requantise.run` compute with NumPy arrays. Called with a `CValue` instead of
an array, they return the same computation as C. So the rules of rounding, saturation and reset exist only once.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from snncell.quantise.lowering import FEWER_BITS

MOST = 2**31 - 1  # the largest magnitude of a value; -2^31 is excluded, so that every value can be negated

# C99 does not define the right shift of a negative number. So add 2^31, shift, and subtract 2^31 / 2^bits.
RIGHT_SHIFT = "(int32_t)(((uint32_t){0} + 2147483648u) >> {1}) - {2}"

TEXTS: dict[Callable[..., Any], str] = {
    np.add: "{0} + {1}",
    np.subtract: "{0} - {1}",
    np.multiply: "{0} * {1}",
    np.negative: "-{0}",
    np.floor_divide: "{0} / {1} - ({0} % {1} < 0)",  # for positive divisors, because C rounds towards 0
    np.minimum: "{0} < {1} ? {0} : {1}",
    np.maximum: "{0} > {1} ? {0} : {1}",
    np.greater: "{0} > {1}",
    np.greater_equal: "{0} >= {1}",
    np.equal: "{0} == {1}",
    np.bitwise_and: "{0} & {1}",
    np.bitwise_or: "{0} | {1}",
}
TRUTHS = {np.greater, np.greater_equal, np.equal, np.bitwise_and, np.bitwise_or}  # 0 or 1; & takes conditions, or 1
NEUTRAL = {np.add: "0", np.multiply: "1"}


class CValue(np.lib.mixins.NDArrayOperatorsMixin):
    """An integer of the C program with bounds: a constant, a loaded element, or the result of an operation.

    Args:
        context: the writer, with `constant(array)`, and `refuse(why, fix)` for values beyond MOST.
        text: C code, with a place for each parent.
        low, high: the smallest and the largest possible value.
        parents: the operands.
        inline: True for constants, which need no variable.
    """

    def __init__(
        self, context: Any, text: str, low: int, high: int, parents: Sequence[CValue] = (), inline: bool = False
    ) -> None:
        if max(-low, high) > MOST:
            context.refuse(f"a value reaches {max(-low, high)}, which does not fit into int32", FEWER_BITS)
        self.context, self.text, self.low, self.high = context, text, low, high
        self.parents, self.inline = parents, inline

    def __array_ufunc__(self, ufunc: Any, method: str, *operands: Any, **options: Any) -> Any:
        values = [one if isinstance(one, CValue) else self.context.constant(one) for one in operands]
        first, last = values[0], values[-1]
        if ufunc is np.left_shift:
            return first * (1 << last.low)
        if ufunc is np.right_shift:
            if last.low > 30:
                self.context.refuse(f"it rounds by {last.low} bits, of 30 at most", FEWER_BITS)
            text = RIGHT_SHIFT.format("{0}", last.low, 2 ** (31 - last.low))
            return CValue(self.context, text, first.low >> last.low, first.high >> last.low, [first])
        if ufunc is np.floor_divide and last.low < 1:
            self.context.refuse("a threshold is not above 0", "use states with more bits after the point")
        for one, other in ((first, last), (last, first)):
            if one.inline and one.text == NEUTRAL.get(ufunc):
                return other
        if (ufunc is np.minimum and first.high <= last.low) or (ufunc is np.maximum and first.low >= last.high):
            return first
        ends = itertools.product(*((np.int64(one.low), np.int64(one.high)) for one in values))
        bounds = [0, 1] if ufunc in TRUTHS else [int(ufunc(*corner)) for corner in ends]
        return CValue(self.context, TEXTS[ufunc], min(bounds), max(bounds), values)

    def clip(self, low: int, high: int, **options: Any) -> Any:
        """`np.clip` of this value."""
        value: Any = self
        return np.minimum(np.maximum(value, low), high)

    def astype(self, dtype: Any) -> CValue:
        """The value itself, because all values are int32."""
        return self


def statements(results: Sequence[CValue]) -> tuple[list[str], list[str]]:
    """The statements that compute some values, and the name of each of these values."""
    lines: list[str] = []
    names: dict[int, str] = {}

    def name(value: CValue) -> str:
        if value.inline:
            return value.text
        if id(value) not in names:
            text = value.text.format(*(name(parent) for parent in value.parents))
            names[id(value)] = f"t{len(names)}"
            lines.append(f"const int32_t {names[id(value)]} = {text};")
        return names[id(value)]

    return lines, [name(one) for one in results]
