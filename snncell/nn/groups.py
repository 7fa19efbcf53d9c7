"""Groups of Parameters, with a learning rate and a weight decay of their own."""

from __future__ import annotations

import copy
import inspect
import math
import sys
from collections.abc import Iterable, Sequence
from typing import Annotated, Any

import numpy as np

from snncell import dtype as dtypes, ops
from snncell.base.arguments.guard import ours, plan_of
from snncell.base.arguments.kinds import REFUSED, UNFIT, Kind, Own, refusal
from snncell.base.arguments.shown import show, suggest_instance
from snncell.cell.cell import Cell
from snncell.errors import ArgumentError, ArgumentTypeError, ParameterError
from snncell.tape.parameter import Parameter, ParameterTuple, refuse_equal_names
from snncell.tape.state import TRACING
from snncell.tape.tensor import Tensor

_OF_EVERY_CELL = vars(Cell())
_KEYS = ("params", "lr", "weight_decay", "grad_centralization")


def number_in(value: Any, low: float, high: float, who: str, name: str) -> float:
    """A number in [low, high)."""
    value = value.item() if isinstance(value, np.number) else value
    largest = sys.float_info.max  # of an int beyond it there is no float
    fits = isinstance(value, (int, float)) and not isinstance(value, bool) and low <= value < high
    if not fits or abs(value) > largest:
        raise ArgumentError(f"{who}: {name} is a number in [{low}, {high}), not {show(value)}.")
    return float(value)


_SETTINGS: dict[type, dict[str, Kind]] = {}  # of each class


def settings_of(kind: type) -> dict[str, Kind]:
    """The settings of a class by name: arguments of its constructor, and of those of the package's classes above it."""
    if kind not in _SETTINGS:
        classes = [one for one in kind.__mro__ if "__init__" in vars(one) and one is not Cell and ours(one)]
        plans = [plan_of(inspect.unwrap(vars(one)["__init__"])) for one in reversed(classes) if issubclass(one, Cell)]
        _SETTINGS[kind] = {name: one for plan in plans for name, one in plan.names.items() if name != "self"}
    return _SETTINGS[kind]


class Settings(Cell):
    """A Cell whose settings can be changed: they are checked as its constructor checks them, by its annotations."""

    def __setattr__(self, name: str, value: Any) -> None:
        if (kind := settings_of(type(self)).get(name)) is None:
            super().__setattr__(name, value)
            return
        taken, before = kind.take(value), vars(self).get(name)
        if taken is REFUSED or taken is UNFIT:
            error = ArgumentTypeError if taken is REFUSED else ArgumentError
            raise error(refusal(type(self).__name__, name, kind, value, ...))
        super().__setattr__(name, taken)
        try:
            self.settle()
        except ArgumentError:
            super().__setattr__(name, before)
            raise

    def settle(self) -> None:
        """Check settings against each other and make what they need, after each change; also while it is being made.

        Raises:
            ArgumentError: for settings that exclude each other; the change is undone.
        """


class LearningRateSchedule(Settings):
    """A learning rate that depends on the step: `construct(step)` gives it, for a float64 Tensor of shape ()."""

    def extend_repr(self) -> str:
        own = {name: value for name, value in vars(self).items() if name not in _OF_EVERY_CELL}
        plain = (bool, int, float, str, list, tuple)
        return ", ".join(f"{name}={value!r}" for name, value in own.items() if isinstance(value, plain))


class ListedLR(LearningRateSchedule):
    """The learning rates of a list, one for each step, and the last one from there on."""

    def __init__(self, rates: Any, who: str) -> None:
        super().__init__()
        each = [number_in(rate, 0.0, math.inf, who, f"learning_rate[{n}]") for n, rate in enumerate(rates)]
        if not each:
            raise ArgumentError(f"{who}: learning_rate is a list without a rate.")
        self.rates = Tensor(each, dtypes.float64)

    def construct(self, step: Tensor) -> Tensor:
        place = ops.minimum(step, float(self.rates.size - 1)).astype(dtypes.int64)
        rate: Tensor = ops.gather(self.rates, place, 0)
        return rate

    def extend_repr(self) -> str:
        return f"{self.rates.size} rates"


# A number; a list, an array or a Tensor of one for each step; or a Cell that gives it for a step.
Rate = Annotated[float | Sequence[float] | Tensor | Cell, Own()]


def schedule_of(rate: Any, who: str, number_words: str = "a finite number of at least 0") -> Cell | float:
    """The learning rate as a number, or as the schedule that it follows."""
    if isinstance(rate, Cell):
        return rate
    if isinstance(rate, (Tensor, np.ndarray)):
        rate = rate.tolist() if rate.ndim else rate.item()
    if isinstance(rate, Iterable) and not isinstance(rate, (str, bytes, dict)):
        return ListedLR(rate, who)
    number = rate.item() if isinstance(rate, np.number) else rate
    fits = isinstance(number, (int, float)) and not isinstance(number, bool)
    if not fits or not 0.0 <= number <= sys.float_info.max:
        raise (ArgumentError if fits else ArgumentTypeError)(
            f"{who}: learning_rate is {number_words} or a LearningRateSchedule, or a list of a number for each step, "
            f"not {show(rate)}{suggest_instance(rate)}."
        )
    return float(number)


class ParameterGroup(Settings):
    """The settings of some of an optimiser's Parameters.

    Attributes:
        names: of the Parameters.
        learning_rate: a Parameter, float64, unless it follows a schedule.
        initial_rate: the learning rate that it was made with, by which a checkpoint tells another optimiser.
        schedule: the Cell that gives the learning rate for a step, or None.
        weight_decay: is added to each gradient, times the Parameter; apart from it in AdamW.
        centralise: whether from each gradient its mean over all axes but the first is taken off.
    """

    def __init__(self, params: Sequence[Any], rate: Any, weight_decay: Any, centralise: bool, who: str) -> None:
        super().__init__()
        self.names = [p.name if isinstance(p, Parameter) and not p.anonymous else None for p in params]
        self.weight_decay = number_in(weight_decay, 0.0, math.inf, who, "weight_decay")
        self.centralise = centralise
        chosen = schedule_of(rate, who)
        self.schedule: Cell | None = chosen if isinstance(chosen, Cell) else None
        self.initial_rate: float | None = None if isinstance(chosen, Cell) else chosen
        if self.initial_rate is not None:
            self.learning_rate = Parameter(Tensor(self.initial_rate, dtypes.float64), requires_grad=False)

    def __setattr__(self, name: str, value: Any) -> None:
        made = "initial_rate" in vars(self)
        if made and name == "learning_rate" and not isinstance(value, Parameter):
            self.set_learning_rate(value, type(self).__name__)
            return
        if made and name == "schedule":
            raise ArgumentError(f"{type(self).__name__}: make another optimiser for another schedule.")
        if made and name == "weight_decay":
            value = number_in(value, 0.0, math.inf, type(self).__name__, name)
        super().__setattr__(name, value)

    def construct(self, step: Tensor) -> Tensor:
        """The learning rate at a step, as float64."""
        if self.schedule is None:
            return self.learning_rate.value()
        return ops.cast(self.schedule(step.astype(dtypes.float64)), dtypes.float64)

    def without_schedule(self) -> ParameterGroup:
        """A copy whose learning rate is a Parameter of its own, for example for a search of the rate."""
        other = copy.copy(self)
        super(ParameterGroup, other).__setattr__("schedule", None)
        other.learning_rate = Parameter(Tensor(0.0, dtypes.float64), requires_grad=False)
        return other

    def set_learning_rate(self, rate: float | Tensor, who: str) -> None:
        """Change the learning rate from the next step on."""
        if self.schedule is not None:
            raise ArgumentError(f"{who}: its learning rate follows a schedule.")
        if isinstance(rate, Cell):
            raise ArgumentError(
                f"{who}: the learning rate of an optimiser changes to a number. Pass a schedule when you make it: "
                f"{who}(params, {type(rate).__name__}(...))."
            )
        if isinstance(rate, Tensor) and rate.size == 1:
            rate = rate.item()  # for example of `optimiser.learning_rate *= 0.5`
        self.learning_rate.set_data(Tensor(number_in(rate, 0.0, math.inf, who, "learning_rate"), dtypes.float64))

    def centred(self, grad: Tensor) -> Tensor:
        """The gradient that the optimiser is given."""
        if not self.centralise or grad.ndim < 2:
            return grad
        centred: Tensor = grad - grad.mean(tuple(range(1, grad.ndim)), keepdims=True)
        return centred

    def extend_repr(self) -> str:
        rate = "" if self.schedule is None else f", learning_rate={type(self.schedule).__name__}"
        if self.schedule is None and TRACING.trace is None:  # in a trace it is no number yet
            rate = f", learning_rate={self.learning_rate.item():.6g}"
        return f"{len(self.names)} Parameters{rate}, weight_decay={self.weight_decay:g}"


def group_parameters(
    params: Any, rate: Any, weight_decay: Any, who: str
) -> tuple[ParameterTuple, list[ParameterGroup], list[int]]:
    """The Parameters in their order, the groups, and the number of the group that each Parameter is in.

    Args:
        params: Parameters, or dicts: {"params": [...], "lr": ..., "weight_decay": ..., "grad_centralization": ...} for
            a group, and at most one {"order_params": [...]}, all Parameters in the order of the gradients.
        rate, weight_decay: of those that are told no other.
        who: the optimiser, for errors.
    """
    _refuse_swap(params, rate, who)
    entries, rate = _entries(params, who), schedule_of(rate, who)
    if not any(isinstance(entry, dict) for entry in entries):
        parameters = _check_entries(entries, who)
        return parameters, [ParameterGroup(parameters, rate, weight_decay, False, who)], [0] * len(parameters)
    groups, members, order = [], [], None
    for position, entry in enumerate(entries):
        where = f"{who}: group {position}"
        if not isinstance(entry, dict):
            raise ParameterError(
                f"{where} is a {type(entry).__name__}; beside groups all are dicts: {{'params': [p]}}."
            )
        if "order_params" in entry:
            if order is not None or len(entry) > 1:
                raise ParameterError(f"{where}: order_params is there once, in a dict of its own.")
            order = _entries(entry["order_params"], f"{where}: order_params")
            continue
        if unknown := [name for name in entry if name not in _KEYS]:
            raise ArgumentError(f"{where} has no setting {unknown[0]!r}; settings are {', '.join(map(repr, _KEYS))}.")
        if "params" not in entry:
            raise ParameterError(f"{where} names no Parameters: give 'params'.")
        own = _entries(entry["params"], where)
        if not own:
            raise ParameterError(f"{where} has no Parameters.")
        centralise = entry.get("grad_centralization", False)
        if not isinstance(centralise, bool):
            raise ArgumentError(f"{where}: grad_centralization is True or False, not {centralise!r}.")
        own_rate = schedule_of(entry.get("lr", rate), where, "a number in [0.0, inf)")
        decay = entry.get("weight_decay", weight_decay)
        members.append(own)
        groups.append(ParameterGroup(own, own_rate, decay, centralise, where))
    parameters = _check_entries([p for own in members for p in own], who)
    group_of = {id(p): number for number, own in enumerate(members) for p in own}
    if order is not None:
        parameters = _order_parameters(parameters, order, who)
    return parameters, groups, [group_of[id(p)] for p in parameters]


def _refuse_swap(params: Any, rate: Any, who: str) -> None:
    """Raise for a learning rate and Parameters in each other's place."""
    parameters = isinstance(rate, (list, tuple)) and any(isinstance(one, Parameter) for one in rate)
    if not isinstance(params, Iterable) and (parameters or isinstance(rate, Parameter)):
        raise ParameterError(
            f"{who}: params are Parameters, net.trainable_params(), not {show(params)}. They are swapped: "
            f"{who}(params, learning_rate)."
        )


def _order_parameters(parameters: ParameterTuple, order: list[Any], who: str) -> ParameterTuple:
    """The Parameters of all groups in another order."""
    ordered = _check_entries(order, f"{who}: order_params")
    known, wanted = {id(p) for p in parameters}, {id(p) for p in ordered}
    for p in (*parameters, *ordered):
        if (id(p) in known) != (id(p) in wanted):
            lacks = "order_params lacks it" if id(p) in known else "it is in no group"
            raise ParameterError(f"{who}: order_params are the Parameters of all groups; {p.name!r}: {lacks}.")
    return ordered


def _entries(params: Any, who: str) -> list[Any]:
    if isinstance(params, Cell):
        raise ParameterError(f"{who}: takes Parameters, not a Cell; write {who}(net.trainable_params(), ...).")
    if not isinstance(params, Iterable) or isinstance(params, dict):
        hint = " A group is in a list: [{'params': ...}]." if isinstance(params, dict) else ""
        raise ParameterError(f"{who}: params are Parameters, net.trainable_params(), not {show(params)}.{hint}")
    return [params] if isinstance(params, Parameter) else list(params)


def _check_entries(entries: list[Any], who: str) -> ParameterTuple:
    """Parameters that can be trained together."""
    if not entries:
        raise ParameterError(f"{who}: there are no Parameters to train.")
    seen: dict[int, int] = {}
    for position, parameter in enumerate(entries):
        if not isinstance(parameter, Parameter):
            raise ParameterError(f"{who}: element {position} is a {type(parameter).__name__}, not a Parameter.")
        if id(parameter) in seen:
            raise ParameterError(
                f"{who}: Parameter {parameter.name!r} is there twice, as elements {seen[id(parameter)]} and {position}."
            )
        if not parameter.dtype.is_float:
            raise ParameterError(f"{who}: Parameter {parameter.name!r} has dtype {parameter.dtype}; only floats train.")
        if not parameter.requires_grad:
            raise ParameterError(f"{who}: Parameter {parameter.name!r} has requires_grad=False; leave it out.")
        seen[id(parameter)] = position
    refuse_equal_names(entries, who)
    return ParameterTuple(entries)
