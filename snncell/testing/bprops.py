"""`check_bprop`: compare a custom gradient with the gradient of the Cell's primitive or construct.

The other checks report their comparisons as the same `Row` and `Checked`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from snncell.base.arguments.kinds import NotNegative, Size
from snncell.base.arguments.shown import came
from snncell.errors import ArgumentError, BpropError, GradientCheckError, GradientError
from snncell.ops.random import present_key, replaying
from snncell.tape import structure
from snncell.tape.parameter import Parameter
from snncell.tape.structure import as_data
from snncell.tape.tensor import Tensor
from snncell.tape.transforms import vjp
from snncell.testing.problem import InFloat64, choose_weights, draw_gradients, is_real, to_float64

ZERO = "zero in all entries"  # the note of a comparison of zeros
KINK = "near the inputs that it got, because they are at a kink"


class Row(NamedTuple):
    """One comparison: its part of the check, its subject, and the worst relative difference."""

    part: str  # for example "bprop"
    name: str  # for example "input 0"
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
        """The word "passed", and the number of comparisons that were impossible."""
        left = sum(not row.checked for row in self.rows)
        return "passed" + (f", except {left} that could not be checked" if left else "")

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
    """Compare the gradients from a bprop with the gradients of the primitive or construct for the same `dout`.

    `found` are the gradients of the inputs, then those of the weights. Returns a row for each of them; raises a
    GradientCheckError for the first one with an entry that differs by more than atol + rtol * its size.
    """
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
    differ = f"{int((excess > 0).sum())} of {excess.size} entries differ"
    if not ratios.size or not np.isfinite(ratios).all() or theirs[worst] == 0.0:
        return f"; {differ}"
    ratio = float(mine[worst] / theirs[worst])
    # One common ratio, if the ratios spread little compared with their distance from 1: 1.001 may vary by 5e-5.
    if np.ptp(ratios) <= 0.05 * abs(ratio - 1.0):
        return f"; found / expected is {ratio:.6g} in all entries"
    return f"; found / expected is {ratio:.6g} there; {differ}"


def finite_differences(fn: Callable[..., Any], inputs: Sequence[Any], douts: Sequence[Tensor]) -> list[Any]:
    """The gradient of sum(out * dout) with respect to each float input, entry by entry, by central differences."""
    # In float64, this step leaves an error of about 1e-12 by curvature (eps^2) and 1e-10 by rounding (1e-16 / eps). A
    # smaller step crosses fewer kinks.
    eps, results = 1e-6, list[Any]()
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
    """Move each entry by a random part of its size. Zeros move, too, because silent inputs are at kinks."""
    return x + by * (0.1 + np.abs(x)) * rng.standard_normal(x.shape)


def check_bprop(cell: Any, *inputs: Any, rtol: NotNegative = 1e-4, atol: NotNegative = 1e-6, seed: Size = 0) -> Checked:
    """Check the custom gradient of a Cell.

    A Cell with a method `primitive(*inputs)`, such as a surrogate, is compared with the gradient of that smooth
    function. Any other Cell is compared with the tape's gradient of its `construct` or, if an operation in it has none,
    with finite differences. At a kink, such as 0 for ReLU, several gradients are correct, so a failed comparison there
    is repeated at random points near the inputs. The gradients of the Parameters in `internal_params` are checked, too.
    If the output depends on another trainable Parameter, the check fails, because bprop returns no gradient for it.

    Args:
        cell, inputs: a Cell with a `bprop`, and its arguments. Float Tensors and Parameters are float64 in the check.
        rtol, atol: the tolerance for each entry: atol + rtol * its size.
        seed: the seed of the random `dout`.
    Returns: A result to print: the worst relative difference for each input and Parameter.
    Raises: GradientCheckError, which names the Cell, the input and the worst entry, and the ratio of the two gradients
        if it is the same in all entries; or the Parameter without a gradient.
    Example:
        >>> print(snncell.testing.check_bprop(snncell.surrogate.ATan(), Tensor([-1.0, 0.5])).rows[0].name)
        input 0
    """
    if isinstance(cell, type):
        raise ArgumentError(f"check_bprop: cell must be a Cell, not {came(cell)}.")
    if getattr(cell, "bprop", None) is None:
        raise GradientError(f"check_bprop: cell must have a bprop to check, but {came(cell)} has no bprop.")
    doubles = [to_float64(as_data(x)) for x in inputs]
    weights = tuple(getattr(cell, "internal_params", ()))
    check_rows = partial(_check_rows, cell, weights, rtol, atol, seed)
    with InFloat64([cell], weights):
        try:
            return Checked("check_bprop", check_rows(doubles))
        except GradientCheckError as fault:
            if not _is_kinked(cell, doubles):
                raise
            rows = _rows_off_kinks(check_rows, doubles)
            if rows is None:
                raise fault from None
            return Checked("check_bprop", [row.with_note(KINK) for row in rows])


def _check_rows(
    cell: Any, weights: Sequence[Parameter], rtol: float, atol: float, seed: int, doubles: Sequence[Any]
) -> list[Row]:
    """A row for each input and Parameter; raises if one is wrong."""
    rng, key = np.random.default_rng(seed), present_key()
    with replaying(key):
        out, pull = vjp(cell, *doubles, weights=weights)
    douts = draw_gradients(structure.flatten(out)[0], rng)
    of_inputs, of_weights = pull(*douts)
    gradients = [*of_inputs, *of_weights]
    with replaying(key):
        rows = compare_reverse(cell, doubles, douts, gradients, weights, rtol, atol)
    for name, parameter in choose_weights([("", cell)], None):
        if not any(parameter is weight for weight in weights):
            with replaying(key):
                _refuse_forgotten(cell, name, parameter, doubles, douts, atol)
    return rows


def _rows_off_kinks(check_rows: Callable[..., list[Row]], doubles: Sequence[Any]) -> list[Row] | None:
    """The rows at a random point near the inputs; None if bprop is wrong at one of these points."""
    zero: list[Row] | None = None
    wrong = False
    rng = np.random.default_rng(0)
    for distance in (1e-3, 1e-2, 0.1):
        try:
            moved = [Tensor(perturb(x.asnumpy(), distance, rng)).to(x.device) if is_real(x) else x for x in doubles]
            rows = check_rows(moved)
        except GradientCheckError:
            wrong = True
            continue
        if not all(row.note == ZERO for row in rows):
            return rows
        zero = rows  # 0 equals 0 proves little, so try another point
    return None if wrong else zero


def _is_kinked(cell: Any, doubles: Sequence[Any]) -> bool:
    """True if the slopes before and after the inputs differ along a random direction."""
    function = getattr(cell, "primitive", None) or cell.construct
    key, rng, step = present_key(), np.random.default_rng(0), 1e-6
    directions = [rng.standard_normal(x.shape) if is_real(x) else None for x in doubles]

    def value(by: float) -> float:
        pairs = zip(doubles, directions, strict=True)
        moved = [x if v is None else Tensor(x.asnumpy() + by * v).to(x.device) for x, v in pairs]
        with replaying(key):
            out = function(*moved)
        return project(out, draw_gradients(structure.flatten(out)[0], np.random.default_rng(0)))

    here = value(0.0)
    ahead, behind = (value(step) - here) / step, (here - value(-step)) / step
    # Curvature makes them differ, too, but in proportion to the step, and so far less than a kink.
    return not abs(ahead - behind) <= 1e-3 * max(abs(ahead), abs(behind)) + 1e-8 * abs(here)


def _refuse_forgotten(
    cell: Any, name: str, parameter: Parameter, doubles: Sequence[Any], douts: Sequence[Tensor], atol: float
) -> None:
    """Raise if the Cell depends on a trainable Parameter for which its bprop returns no gradient."""
    uses_it = "primitive" if getattr(cell, "primitive", None) else "construct"
    function = getattr(cell, uses_it)
    try:
        _, pull = vjp(function, *doubles, weights=(parameter,))
        gradient = pull(*douts)[1][0].asnumpy()
        source = f"the tape's gradient of {uses_it} with respect to it"
    except (GradientError, BpropError):
        gradient = _parameter_slope(function, parameter, doubles, douts)
        source = "its derivative by finite differences, along a random direction,"
    largest = float(np.max(np.abs(gradient), initial=0.0))
    if largest > atol:
        raise GradientCheckError(
            f"The bprop of {type(cell).__name__} gives no gradient of Parameter {name!r}, which {uses_it} uses: "
            f"{source} is not zero (up to {largest:.4g}). List it in self.internal_params and return (gradients, "
            f"{{self.{name}: gradient}}), or set its requires_grad to False if you do not want to train it."
        )


def _parameter_slope(function: Any, parameter: Parameter, doubles: Sequence[Any], douts: Sequence[Tensor]) -> Any:
    """The derivative of sum(out * dout) along a random direction of a Parameter."""
    key, before, eps = present_key(), parameter._data, 1e-5
    direction = np.random.default_rng(0).standard_normal(parameter.shape)
    sides = []
    for sign in (eps, -eps):
        parameter._data = Tensor(parameter.value().asnumpy() + sign * direction).to(parameter.device)._data
        with replaying(key):
            out = function(*doubles)
        parameter._data = before
        sides.append(project(out, douts))
    return np.asarray((sides[0] - sides[1]) / (2 * eps))
