"""The closed form of linear differential equations: exact steps of event-driven neurons, as traced operations.

The slopes of the states must be linear, dy_j/dt = sum_k A_jk y_k + b_j, with coefficients that are constant between
events. A state k that drives another one must not be driven itself: dy_k/dt = A_kk y_k. After a time h, the states are

    y_j(h) = exp(A_jj h) y_j + sum_{k != j} A_jk D(A_jj, A_kk) y_k + b_j D(A_jj, 0)
    D(a, b) = (exp(a h) - exp(b h)) / (a - b),   h exp(a h) if a = b

A neuron spikes when a linear function of its states crosses 0. This function may depend on at most two states
that change between events, so it has at most one extremum. `solver.py` can end a step there, so it misses no spike.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from snncell.compiler.ir.program import Program
from snncell.errors import ArgumentError
from snncell.tape.state import Value
from snncell.tape.tensor import Tensor
from snncell.tape.tracing import Instruction

ONE = -1  # the key of the constant term of a linear form
Form: TypeAlias = dict[int, Any]  # for each state its coefficient, a Tensor; without the states of coefficient 0

NEAR = 0.1  # up to this difference, the Taylor series of (exp(d) - 1) / d is used
LARGEST = 700.0  # the largest exponent, so that a state that grows without limit does not become inf or NaN


def refuse(who: str, reason: str) -> ArgumentError:
    """The error for equations without a closed form."""
    return ArgumentError(
        f"{who} has no closed form, because {reason}. Give EventDense a step for a Runge-Kutta method, at most a fifth "
        f"of the fastest time constant."
    )


# --- linear forms -----------------------------------------------------------------------------------------------------


def forms_of(program: Program, states: int, constants: Sequence[Tensor], ones: Tensor, who: str) -> list[Form]:
    """The outputs of a Program as linear forms of its first inputs, the states; its other inputs are the constants."""
    known: dict[Value, Form] = {value: {place: ones} for place, value in enumerate(program.inputs[:states])}
    known |= {value: {ONE: x} for value, x in zip(program.inputs[states:], constants, strict=True)}
    for instruction in program.instructions:
        given = [known[x] if isinstance(x, Value) else {ONE: x} if x else {} for x in instruction.inputs]
        if instruction.op.name == "div" and not given[1]:
            raise ArgumentError(f"{who} divides by 0 ({instruction.line}). Give the divisor another value.")
        form = _form(instruction, given, ones)
        if form is None:
            raise refuse(who, f"{instruction.op.name} is not linear in the states ({instruction.line})")
        known[instruction.outputs[0]] = form
    return [{place: _tensor(x, ones) for place, x in known[value].items()} for value in program.outputs]


def _form(instruction: Instruction, forms: list[Form], ones: Tensor) -> Form | None:
    """The linear form of an instruction's result, from the forms of its operands; None if the result is not linear."""
    name, fixed = instruction.op.name, [form.keys() <= {ONE} for form in forms]
    if name == "neg":
        return {place: -x for place, x in forms[0].items()}
    if name in ("add", "sub"):
        first, second = forms[0], forms[1] if name == "add" else {place: -x for place, x in forms[1].items()}
        return first | {place: first[place] + x if place in first else x for place, x in second.items()}
    if name == "mul" and any(fixed):
        factor, form = forms if fixed[0] else forms[::-1]
        return {place: x * factor[ONE] for place, x in form.items()} if factor else {}
    if name == "div" and fixed[1]:
        return {place: x / forms[1][ONE] for place, x in forms[0].items()}
    if name == "where" and fixed[0] and forms[0]:
        return select(forms[0][ONE], forms[1], forms[2], ones)
    if not all(fixed):
        return None
    given = [
        _tensor(form.get(ONE, 0.0), ones) if isinstance(x, Value) else x
        for x, form in zip(instruction.inputs, forms, strict=True)
    ]
    return {ONE: instruction.op.bind(*given, **instruction.attrs)}


def select(condition: Any, first: Form, second: Form, ones: Tensor) -> Form:
    """The first form where a condition is true, otherwise the second."""
    return {
        place: _tensor(first.get(place, 0.0), ones).where(condition, second.get(place, 0.0))
        for place in first | second
    }  # fmt: skip


def _tensor(x: Any, ones: Tensor) -> Any:
    return x if isinstance(x, Tensor) else ones * x


# --- the exact step ---------------------------------------------------------------------------------------------------


def flow(slopes: Sequence[Form], y: Sequence[Tensor], length: Tensor, who: str) -> list[Tensor]:
    """The states after a time."""
    zero, ones = length * 0.0, length * 0.0 + 1.0
    # The last element of each list belongs to the constant term, at the index ONE.
    values, rates = [*y, ones], [*(form.get(place, zero) for place, form in enumerate(slopes)), zero]
    powers = [rate * length for rate in rates]
    decays = [
        ones if rate is zero else (zero + LARGEST).where(power > LARGEST, power).exp()
        for rate, power in zip(rates, powers, strict=True)
    ]
    results = [x * decay for x, decay in zip(values, decays, strict=True)][:ONE]
    for place, form in enumerate(slopes):
        for other in [key for key in form if key != place]:
            if other != ONE and slopes[other].keys() - {other}:
                raise refuse(who, f"state {other} drives state {place}, and is driven itself")
            gain = _difference(powers[place], powers[other], decays[place], decays[other]) * length
            results[place] = results[place] + form[other] * gain * values[other]
    return results


def _difference(a: Tensor, b: Tensor, of_a: Tensor, of_b: Tensor) -> Tensor:
    """The quotient (exp(a) - exp(b)) / (a - b), from both exponentials; also accurate and smooth for close a and b."""
    first = a > b
    d = b.where(first, a) - a.where(first, b)  # not above 0
    far = d < -NEAR
    apart, near = (a - b).where(far, 1.0), (d * 0.0).where(far, d)
    series = near * (1.0 / 10.0) + 1.0
    for number in range(9, 1, -1):
        series = series * near * (1.0 / number) + 1.0
    return ((of_a - of_b) / apart).where(far, of_a.where(first, of_b) * series)


# --- extrema ----------------------------------------------------------------------------------------------------------


def course(slopes: Sequence[Form], form: Form, y: Sequence[Tensor]) -> tuple[Any, Any]:
    """The first and the second time derivative of a linear form of the states; None for a derivative that is 0."""
    first = [value_of(one, y) for one in slopes]
    second = [value_of(one, first, constant=False) for one in slopes]
    return value_of(form, first, constant=False), value_of(form, second, constant=False)


def value_of(form: Form, y: Sequence[Any], constant: bool = True) -> Any:
    """The value of a linear form for the states `y`. If `y` are derivatives of the states, `constant` must be False, so
    that the constant term is left out. None stands for 0.
    """
    total = form.get(ONE) if constant else None
    for place, x in form.items():
        if place != ONE and y[place] is not None:
            total = x * y[place] if total is None else total + x * y[place]
    return total


def turn(slopes: Sequence[Form], form: Form, y: Sequence[Tensor], who: str) -> Any:
    """The time s until the slope of a linear form is 0.

    If the slope contains at most one exponential, it never changes its sign, and the function returns None. Otherwise
    the slope is a sum of two exponentials with the rates a and b. Let u be the slope at the beginning, and w its
    derivative. Then exp((a - b) s) = 1 + x, where x = (b - a) u / (w - b u). If the slope is never 0 after the
    beginning, this formula gives an s that is 0, negative, infinite
    or NaN.
    """
    places = dict.fromkeys([*form, *(place for own in form if own != ONE for place in slopes[own])])
    modes = [place for place in places if place != ONE and slopes[place]]
    if len(modes) > 2:
        raise refuse(who, f"it depends on {len(modes)} states that change between events, and at most two are possible")
    if len(modes) < 2:
        return None
    slope, curve = course(slopes, form, y)
    curve = slope * 0.0 if curve is None else curve
    b, a = (slopes[place].get(place, slope * 0.0) for place in modes)
    share = slope / (curve - b * slope)
    x = (b - a) * share
    return -share * (x.log1p() / x).where(x != 0.0, 1.0)
