"""Parameter groups: Parameters with a learning rate and a weight decay of their own."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Sequence
from typing import Any

from snncell import dtype as dtypes, ops
from snncell.base.arguments.kinds import check_interval
from snncell.base.arguments.shown import show
from snncell.cell.cell import Cell
from snncell.errors import ArgumentError, ParameterError
from snncell.nn.optim.schedules import schedule_of
from snncell.nn.optim.settings import Settings
from snncell.tape.parameter import Parameter, ParameterTuple, refuse_equal_names
from snncell.tape.state import TRACING
from snncell.tape.tensor import Tensor

__all__ = ["ParameterGroup"]

_KEYS = ("params", "lr", "weight_decay", "grad_centralization")


class ParameterGroup(Settings):
    """Parameter group: the settings of some of an optimiser's Parameters.

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
        self.weight_decay = check_interval(weight_decay, 0.0, math.inf, who, "weight_decay")
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
            value = check_interval(value, 0.0, math.inf, type(self).__name__, name)
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
        self.learning_rate.set_data(Tensor(check_interval(rate, 0.0, math.inf, who, "learning_rate"), dtypes.float64))

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
