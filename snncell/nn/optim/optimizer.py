"""Base class of optimisers, and parameter groups.

Rates, moments and steps are Parameters, so jitted steps include the optimiser, and new rates need no compilation.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Sequence
from typing import Annotated, Any

from snncell import dtype as dtypes, ops
from snncell.base.arguments.guard import nearest_argument, ours
from snncell.base.arguments.kinds import NotNegative, Positive, Within, check_interval
from snncell.base.arguments.shown import element, join_parts, show, table
from snncell.base.frames import Updating, frame_mark
from snncell.cell.cell import Cell
from snncell.dtype import DType
from snncell.errors import ArgumentError, DeviceError, ParameterError, ShapeError, cut
from snncell.kernels.space import IN_USE
from snncell.nn.container import CellList
from snncell.nn.optim.schedules import Rate, schedule_of
from snncell.nn.settings import Settings, settings_of
from snncell.tape.parameter import Parameter, ParameterTuple, refuse_equal_names, together
from snncell.tape.state import EFFECTS_LOCK, TRACING, Undo
from snncell.tape.tensor import Tensor

__all__ = ["Optimizer", "ParameterGroup"]

BelowOne = Annotated[float, Within(0.0, 1.0, open_high=True)]

# --- groups -----------------------------------------------------------------------------------------------------------

_KEYS = ("params", "lr", "weight_decay", "grad_centralization")


class ParameterGroup(Settings):
    """Parameter group: the settings for some of an optimiser's Parameters.

    Attributes:
        names: the names of the Parameters.
        learning_rate: a float64 Parameter, unless a schedule sets the rate.
        initial_rate: the initial learning rate; checkpoints use it to recognise a different optimiser.
        schedule: the Cell that computes the learning rate from the step, or None.
        weight_decay: the optimiser adds weight_decay * p to the gradient of p; AdamW applies it separately.
        centralise: whether to subtract from each gradient its mean over all axes but the first.
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
            raise ArgumentError(f"{type(self).__name__}: the schedule cannot change. Create a new optimiser.")
        if made and name == "weight_decay":
            value = check_interval(value, 0.0, math.inf, type(self).__name__, name)
        super().__setattr__(name, value)

    def construct(self, step: Tensor) -> Tensor:
        """The learning rate at a step, as float64."""
        if self.schedule is None:
            return self.learning_rate.value()
        return ops.cast(self.schedule(step.astype(dtypes.float64)), dtypes.float64)

    def without_schedule(self) -> ParameterGroup:
        """A copy with its own Parameter as learning rate, for example to search for a good rate."""
        other = copy.copy(self)
        super(ParameterGroup, other).__setattr__("schedule", None)
        other.learning_rate = Parameter(Tensor(0.0, dtypes.float64), requires_grad=False)
        return other

    def set_learning_rate(self, rate: float | Tensor, who: str) -> None:
        """Change the learning rate from the next step on."""
        if self.schedule is not None:
            raise ArgumentError(f"{who}: the learning rate cannot be set, because it follows a schedule.")
        if isinstance(rate, Cell):
            raise ArgumentError(
                f"{who}: the learning rate can only change to a number. Pass a schedule to the constructor: "
                f"{who}(params, {type(rate).__name__}(...))."
            )
        if isinstance(rate, Tensor) and rate.size == 1:
            rate = rate.item()  # for example from `optimiser.learning_rate *= 0.5`
        self.learning_rate.set_data(Tensor(check_interval(rate, 0.0, math.inf, who, "learning_rate"), dtypes.float64))

    def centred(self, grad: Tensor) -> Tensor:
        """The gradient, centralised if the group asks for it."""
        if not self.centralise or grad.ndim < 2:
            return grad
        return grad - grad.mean(tuple(range(1, grad.ndim)), keepdims=True)

    def extend_repr(self) -> str:
        rate = "" if self.schedule is None else f", learning_rate={type(self.schedule).__name__}"
        if self.schedule is None and TRACING.trace is None:  # a traced rate has no value yet
            rate = f", learning_rate={self.learning_rate.item():.6g}"
        return f"{len(self.names)} Parameters{rate}, weight_decay={self.weight_decay:g}"


def group_parameters(
    params: Any, rate: Any, weight_decay: Any, who: str
) -> tuple[ParameterTuple, list[ParameterGroup], list[int]]:
    """Return the Parameters in order, their groups, and the group number of each Parameter."""
    swapped = any(isinstance(one, Parameter) for one in (rate if isinstance(rate, (list, tuple)) else [rate]))
    if swapped and not isinstance(params, Iterable):
        raise ParameterError(
            f"{who}: params must be Parameters, for example net.trainable_params(), not {show(params)}. The arguments "
            f"are swapped: write {who}(params, learning_rate)."
        )
    entries, rate = _entries(params, who), schedule_of(rate, who)
    if not any(isinstance(entry, dict) for entry in entries):
        parameters = _check_entries(entries, who)
        return parameters, [ParameterGroup(parameters, rate, weight_decay, False, who)], [0] * len(parameters)
    groups, members, order = [], [], None
    for position, entry in enumerate(entries):
        where = f"{who}: group {position}"
        if not isinstance(entry, dict):
            raise ParameterError(
                f"{where} is a {type(entry).__name__}, but with groups every entry must be a dict: {{'params': [p]}}."
            )
        if "order_params" in entry:
            if order is not None or len(entry) > 1:
                raise ParameterError(f"{where}: order_params must occur once, alone in its dict.")
            order = _entries(entry["order_params"], f"{where}: order_params")
            continue
        if unknown := [name for name in entry if name not in _KEYS]:
            raise ArgumentError(f"{where} has no setting {unknown[0]!r}; settings are {', '.join(map(repr, _KEYS))}.")
        if "params" not in entry:
            raise ParameterError(f"{where} has no 'params'. Pass its Parameters as {{'params': [...]}}.")
        own = _entries(entry["params"], where)
        if not own:
            raise ParameterError(f"{where} has no Parameters.")
        centralise = entry.get("grad_centralization", False)
        if not isinstance(centralise, bool):
            raise ArgumentError(f"{where}: grad_centralization must be True or False, not {centralise!r}.")
        own_rate = schedule_of(entry.get("lr", rate), where, "a number in [0.0, inf)")
        members.append(own)
        groups.append(ParameterGroup(own, own_rate, entry.get("weight_decay", weight_decay), centralise, where))
    parameters = _check_entries([p for own in members for p in own], who)
    group_of = {id(p): number for number, own in enumerate(members) for p in own}
    if order is not None:
        parameters = _order_parameters(parameters, order, who)
    return parameters, groups, [group_of[id(p)] for p in parameters]


def _order_parameters(parameters: ParameterTuple, order: list[Any], who: str) -> ParameterTuple:
    """Return the Parameters of all groups in the order of order_params."""
    ordered = _check_entries(order, f"{who}: order_params")
    known, wanted = {id(p) for p in parameters}, {id(p) for p in ordered}
    for p in (*parameters, *ordered):
        if (id(p) in known) != (id(p) in wanted):
            lacks = "is missing in order_params" if id(p) in known else "is in no group"
            raise ParameterError(f"{who}: order_params must contain the Parameters of all groups; {p.name!r} {lacks}.")
    return ordered


def _entries(params: Any, who: str) -> list[Any]:
    if isinstance(params, Cell):
        raise ParameterError(f"{who}: params must be Parameters, not a Cell. Write {who}(net.trainable_params(), ...).")
    if not isinstance(params, Iterable) or isinstance(params, dict):
        hint = " Put a group in a list: [{'params': ...}]." if isinstance(params, dict) else ""
        raise ParameterError(
            f"{who}: params must be Parameters, for example net.trainable_params(), not {show(params)}.{hint}"
        )
    return [params] if isinstance(params, Parameter) else list(params)


def _check_entries(entries: list[Any], who: str) -> ParameterTuple:
    if not entries:
        raise ParameterError(f"{who}: there are no Parameters to train.")
    seen: dict[int, int] = {}
    for position, p in enumerate(entries):
        if not isinstance(p, Parameter):
            raise ParameterError(f"{who}: element {position} is a {type(p).__name__}, not a Parameter.")
        if id(p) in seen:
            raise ParameterError(f"{who}: Parameter {p.name!r} occurs twice, as elements {seen[id(p)]} and {position}.")
        if not p.dtype.is_float:
            raise ParameterError(f"{who}: Parameter {p.name!r} has dtype {p.dtype}; only floats can be trained.")
        if not p.requires_grad:
            raise ParameterError(f"{who}: Parameter {p.name!r} has requires_grad=False; leave it out.")
        seen[id(p)] = position
    refuse_equal_names(entries, who)
    return ParameterTuple(entries)


# --- optimisers -------------------------------------------------------------------------------------------------------


class Optimizer(Settings):
    """Base class of optimisers: `optimiser(gradients)` makes one training step.

    You can freeze a Parameter and its moments at any time by `p.requires_grad = False`, and unfreeze them by True. Pass
    the gradients of `optimiser.trainable_params()`, or of all Parameters; those of frozen ones are ignored.

    A complex Parameter is updated as two real ones, its real and its imaginary part, as in PyTorch. Its gradient is
    dL/da + i dL/db for a value a + i b, so that p - rate g lowers the loss.

    Args:
        params: Parameters with requires_grad=True, or groups of them, dicts {"params": [...], "lr": ...,
            "weight_decay": ..., "grad_centralization": ...}; only "params" is required. `lr` is a number or schedule.
            grad_centralization=True subtracts from each gradient its mean over all axes but the first. Gradients come
            in the order of the groups, unless a last dict {"order_params": [...]} lists all Parameters in another one.
        learning_rate: a number; a list, array or Tensor with one number per step (the last one stays); or a Cell that
            computes the rate from the step, such as a `LearningRateSchedule`. Groups without `lr` use it.
        weight_decay: adds weight_decay * p to the gradient of p. Groups without "weight_decay" use it.
        loss_scale: the factor of your loss, by which gradients are divided. For dynamic scaling see `train.fit`.
    Attributes:
        parameters: all Parameters, in the order of the gradients.
        groups: a `ParameterGroup` for each group, at least one.
    Source: groups are written as in MindSpore; centralised gradients: Yong, Huang, Hua and Zhang, ECCV 2020.
    Example:
        >>> net = nn.SequentialCell(nn.Dense(3, 2), nn.Dense(2, 1))
        >>> slow, fast = net[0].trainable_params(), net[1].trainable_params()
        >>> optimiser = nn.Adam([{"params": slow, "lr": 1e-4, "weight_decay": 0.01}, {"params": fast}], 1e-2)
        >>> [rate.item() for rate in optimiser.rates()]
        [0.0001, 0.01]
    """

    def __init__(
        self, params: Any, learning_rate: Rate, weight_decay: NotNegative = 0.0, loss_scale: Positive = 1.0
    ) -> None:
        super().__init__(auto_prefix=False)
        made = group_parameters(params, learning_rate, weight_decay, type(self).__name__)
        self.parameters, groups, self._group_of = made
        self.groups = CellList(groups)
        self.loss_scale = loss_scale
        self.global_step = Parameter(Tensor(0), requires_grad=False)

    @property
    def learning_rate(self) -> Parameter:
        """The learning rate of the first group, a float64 Parameter; a group with a schedule has none.

        `optimiser.learning_rate = 0.01` changes it from the next step on, if the optimiser has one group.
        """
        rate: Parameter = self.groups[0].learning_rate
        return rate

    @learning_rate.setter
    def learning_rate(self, rate: Any) -> None:
        self.set_learning_rate(rate)

    @property
    def weight_decay(self) -> float:
        """The weight decay of the first group. You can set it if there is one group."""
        decay: float = self.groups[0].weight_decay
        return decay

    @weight_decay.setter
    def weight_decay(self, decay: float) -> None:
        if len(self.groups) > 1:
            raise ArgumentError(
                f"{type(self).__name__}: each of its {len(self.groups)} groups has a weight decay. Set it for one "
                f"group: optimiser.groups[0].weight_decay = {show(decay)}."
            )
        self.groups[0].weight_decay = decay

    def __setattr__(self, name: str, value: Any) -> None:
        kind, own = type(self), vars(self)
        who = kind.__name__
        if "global_step" in own and name in ("params", "parameters", "groups"):
            raise ParameterError(f"{who}: {name} cannot change. Create a new optimiser, {who}(params, ...).")
        if name not in own and not hasattr(kind, name) and ours(kind):
            known = [each for each in settings_of(kind) if each != "params"]
            made = all(each in own or hasattr(kind, each) for each in known)
            if made and (meant := nearest_argument(name, known)):
                raise ArgumentError(
                    f"{who} has no setting {name}. Did you mean {meant}? Its settings are {', '.join(known)}."
                )
        super().__setattr__(name, value)

    def set_learning_rate(self, rate: float, group: int | None = None) -> None:
        """Change the learning rate from the next step on; with several groups, pass the number of the group."""
        who = type(self).__name__
        if group is None and len(self.groups) > 1:
            raise ArgumentError(
                f"{who}: each of its {len(self.groups)} groups has a learning rate. Pass the number of one, group=0."
            )
        if group is not None and not 0 <= group < len(self.groups):
            raise ArgumentError(f"{who}: group must be from 0 to {len(self.groups) - 1}, not {group}.")
        self.groups[group or 0].set_learning_rate(rate, who)

    def get_lr(self) -> Tensor:
        """The learning rate of the next step, as float64; with several groups, the rate of the first."""
        return self.rates()[0]

    def get_lr_parameter(self, param: Parameter | Sequence[Parameter]) -> Any:
        """The learning rate of the next step for a Parameter, as float64; a list for several Parameters."""
        rates, numbers = self.rates(), self.group_numbers()
        several = [param] if isinstance(param, Parameter) else list(param)
        for parameter in several:
            if id(parameter) not in numbers:
                raise ParameterError(
                    f"{type(self).__name__}.get_lr_parameter: the optimiser does not have {parameter!r}. Its "
                    f"Parameters are in optimiser.parameters."
                )
        found = [rates[numbers[id(parameter)]] for parameter in several]
        return found[0] if isinstance(param, Parameter) else found

    def trainable_params(self, recurse: bool = True) -> list[Parameter]:
        """The Parameters that are not frozen, in the order of their gradients."""
        return [parameter for parameter in self.parameters if parameter.requires_grad]

    def group_numbers(self) -> dict[int, int]:
        """The group number of each Parameter, by its id()."""
        return {id(p): number for p, number in zip(self.parameters, self._group_of, strict=True)}

    def rates(self) -> list[Tensor]:
        """The learning rates of the next step, one per group, as float64."""
        return [group(self.global_step) for group in self.groups]

    def like_parameters(self, name: str) -> list[Parameter]:
        """Create moments: Parameters of zeros, float32 for half precision, and (..., 2) for complex Parameters."""
        zeros = [_in_reals(ops.zeros_like(p, _value_to_compute(p))) for p in self.parameters]
        return [Parameter(zero, f"{name}.{p.name}", False) for zero, p in zip(zeros, self.parameters, strict=True)]

    def moments_of(self, parameter: Parameter) -> list[Parameter]:
        """The moments of a Parameter: its element of each list that `like_parameters` created."""
        index = next(n for n, p in enumerate(self.parameters) if p is parameter)
        lists = [x for x in vars(self).values() if isinstance(x, list) and len(x) == len(self.parameters)]
        return [x[index] for x in lists if isinstance(x[index], Parameter)]

    @frame_mark(Updating, lambda local: Updating(local["parameter"]) if "parameter" in local else None)
    def construct(self, gradients: Any) -> bool:
        grads = self._checked(gradients)
        with EFFECTS_LOCK, together(written := Undo()):  # on an error, all assignments of the step are undone
            rates = self.rates()
            step = self.global_step + 1
            self.global_step.assign(step)
            for index, (parameter, grad) in enumerate(zip(self.parameters, grads, strict=True)):
                if grad is None:
                    parameter.value()  # so that a compiled step is traced again when the Parameter is unfrozen
                    continue
                group = self.group_of(index)
                wide = _value_to_compute(parameter)
                if self.loss_scale != 1.0:
                    grad = grad.astype(wide) * (1.0 / self.loss_scale)
                decay = group.weight_decay if self.decays_gradient else 0.0
                slope = group.centred(grad) + parameter * decay if decay else group.centred(grad)
                here, slope = _in_reals(parameter.astype(wide)), _in_reals(slope.astype(wide))
                rate = rates[self._group_of[index]].astype(here.dtype)
                after = self.updated(index, here, slope, rate, step)
                parameter.assign(_from_reals(after, wide).astype(parameter.dtype))
            written.clear()
        return True

    def group_of(self, index: int) -> ParameterGroup:
        """The group of `parameters[index]`."""
        group: ParameterGroup = self.groups[self._group_of[index]]
        return group

    decays_gradient = True  # whether the weight decay is added to the gradient

    def updated(self, index: int, parameter: Tensor, grad: Tensor, rate: Tensor, step: Tensor) -> Tensor:
        """Compute the new value of a Parameter, and assign its moments.

        Values and gradients of half precision come as float32, those of complex Parameters as (..., 2), real and
        imaginary parts. The result has the same form.
        """
        raise NotImplementedError

    def _checked(self, gradients: Any) -> Sequence[Tensor | None]:
        """Check the gradients; None for each frozen Parameter."""
        who = type(self).__name__
        if not isinstance(gradients, Iterable):
            raise ArgumentError(f"{who}: gradients must be Tensors, one per Parameter, not {show(gradients)}.")
        grads = [gradients] if isinstance(gradients, Tensor) else list(gradients)
        frozen = [not parameter.requires_grad for parameter in self.parameters]
        if len(grads) == frozen.count(False) < len(self.parameters):  # gradients of trainable_params()
            of_others = iter(grads)
            grads = [None if skipped else next(of_others) for skipped in frozen]
        if len(grads) != len(self.parameters):
            without = f", or for the {frozen.count(False)} that are not frozen" if any(frozen) else ""
            raise ArgumentError(
                f"{who}: got {len(grads)} gradient(s) for {len(self.parameters)} Parameter(s). Pass one for "
                f"each{without}."
            )
        grads = [None if skipped else grad for grad, skipped in zip(grads, frozen, strict=True)]
        for position, (p, grad) in enumerate(zip(self.parameters, grads, strict=True)):
            if grad is None and frozen[position]:
                continue
            if not isinstance(grad, Tensor):
                raise ArgumentError(f"{who}: the gradient of {p.name!r} must be a Tensor, not a {type(grad).__name__}.")
            if grad.shape != p.shape:
                raise ShapeError(
                    f"{who}: gradient {position}, of {p.name!r}, has shape {grad.shape}, but the Parameter has "
                    f"{p.shape}. Are the gradients in the order of the Parameters?"
                )
        if IN_USE and TRACING.trace is None:
            self._check_places(who, grads)
        return grads

    def _check_places(self, who: str, grads: Sequence[Tensor | None]) -> None:
        """Raise if gradients, Parameters and moments are not on one device."""
        for parameter, grad in zip(self.parameters, grads, strict=True):
            if grad is not None and grad.device != parameter.device:
                raise DeviceError(
                    f"{who}: the gradient of {parameter.name!r} is on the {grad.device.upper()}, but the Parameter is "
                    f"on the {parameter.device.upper()}. Compute gradients on the device of the Parameters."
                )
        moments = [p for p in self.get_parameters() if p.size > 1]  # a scalar works on either device
        places = {p.device: p for p in (*moments, *self.parameters)}
        if len(places) > 1:
            raise DeviceError(
                f"{who}: Parameter {places['gpu'].name!r} is on the GPU, but {places['cpu'].name!r} on the CPU. Move "
                f'the whole network, and an existing optimiser by optimiser.to("gpu").'
            )

    def extend_repr(self) -> str:
        words = f"{len(self.parameters)} Parameters"
        if TRACING.trace is not None:  # traced rates have no values yet
            return words
        rates = [f"{rate.item():.6g}" for rate in self.rates()]
        now = rates[0] if len(rates) == 1 else f"[{', '.join(rates)}]"
        return f"{words}, step={self.global_step.item()}, learning_rate={now}"

    def _repr_html_(self) -> str:
        """HTML table of the groups, with the learning rate of the next step, for notebooks."""
        rows = []
        groups: Iterable[Any] = self.groups
        for number, group in enumerate(groups):
            names = cut(", ".join(map(str, group.names)), 400)
            rate = "" if TRACING.trace is not None else f"{self.rates()[number].item():.6g}"
            by = "" if group.schedule is None else repr(group.schedule)
            rows.append((str(number), names, by, rate, f"{group.weight_decay:g}"))
        head = ("group", "Parameters", "schedule", "learning rate", "weight decay")
        title = join_parts([element("b", type(self).__name__), f" {self.extend_repr()}"])
        return element("div", title, table(head, rows, numbers=2))


def _value_to_compute(parameter: Tensor) -> DType:
    return dtypes.as_dtype(dtypes.compute_dtype(parameter.dtype.dtype))


def _in_reals(x: Tensor) -> Tensor:
    """Split a complex Tensor into real and imaginary parts, (..., 2); return a real one unchanged."""
    return ops.stack([ops.real(x), ops.imag(x)], -1) if x.dtype.category == 3 else x


def _from_reals(x: Tensor, dtype: DType) -> Tensor:
    """The inverse of `_in_reals` for a dtype."""
    return (x[..., 0] + x[..., 1] * 1j).astype(dtype) if dtype.category == 3 else x
