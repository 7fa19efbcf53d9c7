"""`check_bprop`: compare a custom gradient with the gradient of the Cell's primitive or construct."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

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
from snncell.testing.calls import choose_weights
from snncell.testing.compare import ZERO, Checked, Row, compare_reverse, draw_gradients, perturb, project
from snncell.testing.problem import InFloat64, is_real, to_float64

KINK = "near the inputs that it got, because they are at a kink"


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
    """The rows at random points near the inputs, if bprop is correct there, else None."""
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
    """True if the slopes on both sides of the inputs differ along a random direction."""
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
