"""Compare custom gradients with the gradients of a primitive or of construct, or with finite differences."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from snncell.errors import GradientCheckError, GradientError
from snncell.tape import structure
from snncell.tape.parameter import Parameter
from snncell.tape.tensor import Tensor
from snncell.tape.transforms import vjp

ZERO = "zero in all entries"


class Row(NamedTuple):
    """One comparison: its part of the check, its subject, and the worst relative difference."""

    part: str
    name: str
    difference: float  # NaN if the comparison was impossible, for the reason in `note`
    step: int | None = None
    entry: tuple[int, ...] | None = None  # None for a random direction, which covers all entries at once
    note: str = ""

    def with_note(self, note: str) -> Row:
        """A copy with a further note."""
        return self._replace(note="; ".join(text for text in (self.note, note) if text))

    @property
    def checked(self) -> bool:
        """True if the comparison was possible."""
        return not math.isnan(self.difference)

    def cells(self) -> tuple[str, ...]:
        """The texts of the row in a table."""
        if not self.checked:
            return self.part, self.name, "-", "", "", self.note
        step = "" if self.step is None else str(self.step)
        entry = "all at once" if self.entry is None else str(self.entry)
        return self.part, self.name, f"{self.difference:.1e}", step, entry, self.note


class Checked:
    """The result of a check that passed: `print` it for a table, or read its comparisons, `rows`."""

    def __init__(self, who: str, rows: Sequence[Row]) -> None:
        self.who = who
        self.rows = tuple(rows)

    @property
    def worst(self) -> float:
        """The largest relative difference."""
        return max((row.difference for row in self.rows if row.checked), default=0.0)

    @property
    def verdict(self) -> str:
        """ "passed", and how many comparisons were impossible."""
        left = sum(not row.checked for row in self.rows)
        return "passed" + (f", but for {left} that could not be checked" if left else "")

    def __str__(self) -> str:
        head = ("part", "of", "worst relative difference", "step", "entry", "")
        table = [head, *(row.cells() for row in self.rows)]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        lines = ["  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)) for row in table]
        return "\n".join([f"{self.who}: {self.verdict}", *(line.rstrip() for line in lines)])

    def __repr__(self) -> str:
        count = f"{len(self.rows)} comparison(s)"
        return f"<{self.who}: {self.verdict}, {count}, worst relative difference {self.worst:.1e}>"


def compare_reverse(
    cell: Any,
    inputs: Sequence[Any],
    douts: Sequence[Tensor],
    found: Sequence[Any],
    weights: Sequence[Parameter],
    rtol: float,
    atol: float,
) -> list[Row]:
    """Compare the gradients from a bprop with the gradients of the primitive or construct for the same `dout`."""
    primitive = getattr(cell, "primitive", None)
    function = primitive or cell.construct
    names = [f"input {i}" for i in range(len(inputs))] + [f"Parameter {p.name!r}" for p in weights]
    try:
        _, pull = vjp(function, *inputs, weights=tuple(weights))
        of_inputs, of_weights = pull(*douts)
        expected = [*of_inputs, *of_weights]
        source = "its primitive" if primitive else "the tape's gradient of construct"
    except GradientError:
        expected = [*finite_differences(function, inputs, douts), *(None for _ in weights)]
        source = "finite differences of construct"
    return [
        _compare(cell, name, a.asnumpy(), b.asnumpy(), source, rtol, atol)
        for name, mine, theirs in zip(names, found, expected, strict=True)
        if mine is not None and theirs is not None
        for a, b in zip(structure.flatten(mine)[0], structure.flatten(theirs)[0], strict=True)
    ]


def _compare(cell: Any, name: str, mine: Any, theirs: Any, source: str, rtol: float, atol: float) -> Row:
    excess = np.abs(mine - theirs) - (atol + rtol * np.abs(theirs))
    # NaN in both is equal; NaN in only one is worse than any number.
    excess = np.where(np.isnan(mine) & np.isnan(theirs), -1.0, np.where(np.isnan(excess), np.inf, excess))
    if not excess.size or excess.max() <= 0:
        difference, entry = relative_difference(mine, theirs)
        return Row("bprop", name, difference, entry=entry, note="" if np.any(theirs) else ZERO)
    worst = index_of(int(np.argmax(excess)), excess.shape)
    hint = ""
    if not getattr(cell, "primitive", None) and not np.any(theirs):
        hint = (
            " The derivative of construct is zero everywhere. If bprop should replace it, define a method "
            "primitive(x), the smooth function whose derivative bprop is. The check then uses it, because finite "
            "differences of a step function are useless."
        )
    error = GradientCheckError(
        f"The bprop of {type(cell).__name__} gives {mine[worst]:.8g} for {name} at index {worst}, {source} gives "
        f"{theirs[worst]:.8g}{ratio_text(mine, theirs, worst, excess)}.{hint}"
    )
    error.difference = float(abs(mine[worst] - theirs[worst]))
    raise error


def relative_difference(mine: Any, theirs: Any, least: float = 0.0) -> tuple[float, tuple[int, ...] | None]:
    """The largest difference, relative to the largest value (at least `least`), and its index."""
    if not mine.size:
        return 0.0, None
    apart = np.where(np.isnan(mine) & np.isnan(theirs), 0.0, distance(mine, theirs))
    index = index_of(int(np.argmax(apart)), apart.shape)
    scale = max(float(np.max(np.abs(theirs))), least)
    return float(apart[index]) / (scale if np.isfinite(scale) and scale else 1.0), index


def distance(mine: Any, theirs: Any) -> Any:
    """The absolute difference of each entry."""
    # Convert to float64, because bools cannot be subtracted and unsigned integers wrap around.
    return np.abs(np.asarray(mine, np.float64) - theirs)


def index_of(position: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The index of an element from its position in C order, as Python integers for messages."""
    return tuple(int(i) for i in np.unravel_index(position, shape))


def ratio_text(mine: Any, theirs: Any, worst: tuple[int, ...], excess: Any) -> str:
    """Text about the whole comparison: the common ratio, or the number of entries that differ."""
    with np.errstate(all="ignore"):
        # The ratios of tiny entries are dominated by rounding.
        large = np.abs(theirs) > 1e-3 * np.max(np.abs(theirs), initial=0.0)
        ratios = (mine / theirs)[large]
    if not ratios.size or not np.isfinite(ratios).all() or theirs[worst] == 0.0:
        return f"; {int((excess > 0).sum())} of {excess.size} entries differ"
    ratio = float(mine[worst] / theirs[worst])
    # One common ratio, if the ratios spread little compared with their distance from 1: 1.001 may vary by 5e-5.
    if np.ptp(ratios) <= 0.05 * abs(ratio - 1.0):
        return f"; found / expected is {ratio:.6g} in all entries"
    return f"; found / expected is {ratio:.6g} there; {int((excess > 0).sum())} of {excess.size} entries differ"


def finite_differences(
    fn: Callable[..., Any], inputs: Sequence[Any], douts: Sequence[Tensor], eps: float = 1e-6
) -> list[Any]:
    """The gradient of sum(out * dout) with respect to each float input, entry by entry, by central differences."""
    # In float64, eps = 1e-6 leaves an error of about 1e-12 by curvature (eps^2) and 1e-10 by rounding (1e-16 / eps). A
    # smaller eps crosses fewer kinks.
    results: list[Any] = []
    for position, x in enumerate(inputs):
        if not (isinstance(x, Tensor) and x.dtype.is_float):
            results.append(None)
            continue
        slopes = np.zeros(x.shape)
        for index in np.ndindex(x.shape):
            sides = []
            for sign in (1, -1):
                moved = x.asnumpy().astype(np.float64)
                moved[index] += sign * eps
                args = [Tensor(moved).to(x.device) if i == position else y for i, y in enumerate(inputs)]
                sides.append(project(fn(*args), douts))
            slopes[index] = (sides[0] - sides[1]) / (2 * eps)
        results.append(Tensor(slopes))
    return results


def project(out: Any, douts: Sequence[Tensor]) -> float:
    """sum(out * dout) over the float Tensors in a structure."""
    pairs = zip(structure.flatten(out)[0], douts, strict=True)
    return sum(float((leaf.asnumpy() * dout.asnumpy()).sum()) for leaf, dout in pairs if leaf.dtype.is_float)


def perturb(x: Any, by: float, rng: np.random.Generator) -> Any:
    """Move an array by a random part of its size. Zeros move, too, because silent inputs are at kinks."""
    return x + by * (0.1 + np.abs(x)) * rng.standard_normal(x.shape)


def draw_gradients(outs: Sequence[Tensor], rng: np.random.Generator) -> list[Tensor]:
    """A random gradient for each float output; any other output is returned as a placeholder."""
    return [Tensor(rng.standard_normal(x.shape)).to(x.device).astype(x.dtype) if x.dtype.is_float else x for x in outs]


def floats(out: Any) -> list[Tensor]:
    """The float Tensors in a structure."""
    return [leaf for leaf in structure.flatten(out)[0] if leaf.dtype.is_float]
