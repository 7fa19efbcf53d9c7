"""The base of optimisers: made from Parameters, called with their gradients, `opt(grads)`.

Rates, moments and the step are Parameters, so that an optimiser inside a jitted function is part of the Program, and
a changed rate compiles nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Any

from snncell import dtype as dtypes, ops
from snncell.base.arguments.guard import nearest_argument, ours
from snncell.base.arguments.kinds import NotNegative, Positive, Within
from snncell.base.arguments.shown import element, join_parts, show, table
from snncell.base.frames import Updating, tells
from snncell.dtype import DType
from snncell.errors import ArgumentError, DeviceError, ParameterError, ShapeError, cut
from snncell.kernels.space import IN_USE
from snncell.nn.container import CellList
from snncell.nn.optim.groups import ParameterGroup, group_parameters
from snncell.nn.optim.schedules import Rate
from snncell.nn.optim.settings import Settings, settings_of
from snncell.tape.parameter import Parameter, together
from snncell.tape.state import EFFECTS_LOCK, TRACING, Undo
from snncell.tape.tensor import Tensor

__all__ = ["Optimizer"]

BelowOne = Annotated[float, Within(0.0, 1.0, open_high=True)]


class Optimizer(Settings):
    """The base of optimisers.

    Args:
        params: Parameters, all with requires_grad; or groups of them, dicts with settings of their own:
            {"params": [...], "lr": ..., "weight_decay": ..., "grad_centralization": ...}, of which all but the first
            may be left out. `lr` is a number or a schedule; with grad_centralization a gradient loses its mean over
            all axes but the first. Gradients come in the order of the groups, or of {"order_params": [...]}, which
            follows the groups and has all their Parameters.
        learning_rate: a number; a list, an array or a Tensor of one for each step, of which the last one holds on; or a
            Cell that gives it for a step, such as a `LearningRateSchedule`. Of Parameters whose group has none.
        weight_decay: is added to each gradient, times the Parameter; of Parameters whose group has none.
        loss_scale: the gradients are those of the loss times this number, and are divided by it first. For a scale that
            follows the gradients see `train.fit(loss_scale=...)`.

    You can freeze a Parameter at any time, `p.requires_grad = False`: the optimiser leaves it and its moments alone
    until it is thawed, `p.requires_grad = True`. Gradients are then those of `optimiser.trainable_params()`, or of all
    Parameters as before, of which those of frozen ones are ignored.

    Attributes:
        parameters: all of them, in the order of the gradients.
        groups: a `ParameterGroup` for each group; one, if there are none.

    Raises:
        ParameterError: for no Parameters, something else among them, one twice, or two of one name; groups without
            any, and order_params that are not all of them.
        ArgumentError: for a rate that is negative or not finite, and settings that a group has not.

    Source: groups are written as in MindSpore; centralised gradients are of Yong, Huang, Hua and Zhang, ECCV 2020.

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
        self.parameters, groups, self._group_of = group_parameters(
            params, learning_rate, weight_decay, type(self).__name__
        )
        self.groups = CellList(groups)
        self.loss_scale = loss_scale
        self.global_step = Parameter(Tensor(0), requires_grad=False)

    @property
    def learning_rate(self) -> Parameter:
        """The learning rate of the first group, if it follows no schedule: a Parameter, float64.

        `optimiser.learning_rate = 0.01` changes it from the next step on, of an optimiser with one group.
        """
        rate: Parameter = self.groups[0].learning_rate
        return rate

    @learning_rate.setter
    def learning_rate(self, rate: Any) -> None:
        self.set_learning_rate(rate)

    @property
    def weight_decay(self) -> float:
        """The weight decay of the first group, which can be set where there is one group."""
        decay: float = self.groups[0].weight_decay
        return decay

    @weight_decay.setter
    def weight_decay(self, decay: float) -> None:
        if len(self.groups) > 1:
            raise ArgumentError(
                f"{type(self).__name__}: its {len(self.groups)} groups have a weight decay each; set that of one, "
                f"optimiser.groups[0].weight_decay = {show(decay)}."
            )
        self.groups[0].weight_decay = decay

    def __setattr__(self, name: str, value: Any) -> None:
        kind, own = type(self), vars(self)
        who = kind.__name__
        if "global_step" in own and name in ("params", "parameters", "groups"):
            raise ParameterError(f"{who}: {name} cannot change; make another optimiser, {who}(params, ...).")
        if name not in own and not hasattr(kind, name) and ours(kind):
            known = [each for each in settings_of(kind) if each != "params"]
            made = all(each in own or hasattr(kind, each) for each in known)
            if made and (meant := nearest_argument(name, known)):
                raise ArgumentError(f"{who}: has no setting {name}. Did you mean {meant}? It has {', '.join(known)}.")
        super().__setattr__(name, value)

    def set_learning_rate(self, rate: float, group: int | None = None) -> None:
        """Change the learning rate from the next step on, of a group by its number where there are several."""
        who = type(self).__name__
        if group is None and len(self.groups) > 1:
            raise ArgumentError(f"{who}: its {len(self.groups)} groups have a learning rate each; say which, group=0.")
        if group is not None and not 0 <= group < len(self.groups):
            raise ArgumentError(f"{who}: it has groups 0 to {len(self.groups) - 1}, and no group {group}.")
        self.groups[group or 0].set_learning_rate(rate, who)

    def get_lr(self) -> Tensor:
        """The learning rate of the next step, as float64; with several groups that of the first."""
        return self.rates()[0]

    def get_lr_parameter(self, param: Parameter | Sequence[Parameter]) -> Any:
        """The learning rate of the next step of a Parameter, as float64; of several a list.

        Raises:
            ParameterError: for one that it does not train.
        """
        rates, numbers = self.rates(), self.group_numbers()
        several = [param] if isinstance(param, Parameter) else list(param)
        for parameter in several:
            if id(parameter) not in numbers:
                raise ParameterError(
                    f"{type(self).__name__}.get_lr_parameter: {parameter!r} is none of its Parameters; those are in "
                    f"optimiser.parameters."
                )
        found = [rates[numbers[id(parameter)]] for parameter in several]
        return found[0] if isinstance(param, Parameter) else found

    def trainable_params(self, recurse: bool = True) -> list[Parameter]:
        """The Parameters that it trains now, those that are not frozen, in the order of their gradients."""
        return [parameter for parameter in self.parameters if parameter.requires_grad]

    def group_numbers(self) -> dict[int, int]:
        """The number of each Parameter's group, by its id()."""
        return {id(p): number for p, number in zip(self.parameters, self._group_of, strict=True)}

    def rates(self) -> list[Tensor]:
        """The learning rates of the next step, one for each group, as float64."""
        return [group(self.global_step) for group in self.groups]

    def like_parameters(self, name: str) -> list[Parameter]:
        """Zeros for each Parameter: a moment to keep, as float32 for what is only stored in fewer bits."""
        return [
            Parameter(ops.zeros_like(p, _value_to_compute(p)), name=f"{name}.{p.name}", requires_grad=False)
            for p in self.parameters
        ]

    @tells(Updating, lambda local: Updating(local["parameter"]) if "parameter" in local else None)
    def construct(self, gradients: Any) -> bool:
        grads = self._checked(gradients)
        with EFFECTS_LOCK, together(written := Undo()):  # a step is done, or it has not been
            rates = self.rates()
            step = self.global_step + 1
            self.global_step.assign(step)
            for index, (parameter, grad) in enumerate(zip(self.parameters, grads, strict=True)):
                if grad is None:
                    parameter.value()  # so that a compiled step depends on it, and changes when it is thawed
                    continue
                group = self.group_of(index)
                wide = _value_to_compute(parameter)
                if self.loss_scale != 1.0:
                    grad = grad.astype(wide) * (1.0 / self.loss_scale)
                decay = group.weight_decay if self.decays_gradient else 0.0
                slope = group.centred(grad) + parameter * decay if decay else group.centred(grad)
                here = parameter.astype(wide), slope.astype(wide), rates[self._group_of[index]].astype(wide)
                parameter.assign(self.updated(index, *here, step).astype(parameter.dtype))
            written.clear()
        return True

    def group_of(self, index: int) -> ParameterGroup:
        """The group that a Parameter is in, by its place in `parameters`."""
        group: ParameterGroup = self.groups[self._group_of[index]]
        return group

    decays_gradient = True

    def updated(self, index: int, parameter: Tensor, grad: Tensor, rate: Tensor, step: Tensor) -> Tensor:
        """The new value of a Parameter; moments are written on the way. What is only stored comes as float32."""
        raise NotImplementedError

    def _checked(self, gradients: Any) -> Sequence[Tensor | None]:
        """A gradient for each Parameter, None for a frozen one."""
        who = type(self).__name__
        if not isinstance(gradients, Iterable):
            raise ArgumentError(f"{who}: gradients are Tensors, one for each Parameter, not {show(gradients)}.")
        grads = [gradients] if isinstance(gradients, Tensor) else list(gradients)
        frozen = [not parameter.requires_grad for parameter in self.parameters]
        if len(grads) == frozen.count(False) < len(self.parameters):  # those of trainable_params()
            of_others = iter(grads)
            grads = [None if skipped else next(of_others) for skipped in frozen]
        if len(grads) != len(self.parameters):
            without = f", or for the {frozen.count(False)} that are not frozen" if any(frozen) else ""
            raise ArgumentError(
                f"{who}: {len(grads)} gradient(s) for {len(self.parameters)} Parameter(s). Give one for each{without}."
            )
        grads = [None if skipped else grad for grad, skipped in zip(grads, frozen, strict=True)]
        for position, (parameter, grad) in enumerate(zip(self.parameters, grads, strict=True)):
            if grad is None and frozen[position]:
                continue
            if not isinstance(grad, Tensor):
                raise ArgumentError(f"{who}: the gradient of {parameter.name!r} is a {type(grad).__name__}, no Tensor.")
            if grad.shape != parameter.shape:
                raise ShapeError(
                    f"{who}: gradient {position}, of {parameter.name!r}, has shape {grad.shape}, the Parameter "
                    f"{parameter.shape}. Are the gradients in the order of the Parameters?"
                )
        if IN_USE and TRACING.trace is None:
            self._check_places(who, grads)
        return grads

    def _check_places(self, who: str, grads: Sequence[Tensor | None]) -> None:
        """Raise before anything is written if not all is in one place."""
        for parameter, grad in zip(self.parameters, grads, strict=True):
            if grad is not None and grad.device != parameter.device:
                raise DeviceError(
                    f"{who}: the gradient of {parameter.name!r} is on the {grad.device.upper()}, the Parameter on the "
                    f"{parameter.device.upper()}. Take gradients where the Parameters are."
                )
        moments = [p for p in self.get_parameters() if p.size > 1]  # a number goes along
        places = {p.device: p for p in (*moments, *self.parameters)}
        if len(places) > 1:
            raise DeviceError(
                f"{who}: Parameter {places['gpu'].name!r} is on the GPU, {places['cpu'].name!r} on the CPU. Move the "
                f'whole net, and an optimiser that was made before: optimiser.to("gpu").'
            )

    def extend_repr(self) -> str:
        words = f"{len(self.parameters)} Parameters"
        if TRACING.trace is not None:  # what a step is traced with is no number yet
            return words
        rates = [f"{rate.item():.6g}" for rate in self.rates()]
        now = rates[0] if len(rates) == 1 else f"[{', '.join(rates)}]"
        return f"{words}, step={self.global_step.item()}, learning_rate={now}"

    def _repr_html_(self) -> str:
        """For notebooks: a table of the groups, with the learning rate of the next step."""
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
