"""Loss scaling in training steps, its numbers in the records, and its state in checkpoints."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from snncell.amp import LossScaler, StaticLossScaler, all_finite, put_back_unless, step_if, values_of
from snncell.base.arguments.shown import came
from snncell.cell.cell import Cell
from snncell.errors import ArgumentError, CheckpointError, TrainingError
from snncell.nn.optim.optimizer import Optimizer
from snncell.tape.parameter import assign_all
from snncell.tape.tensor import Tensor
from snncell.train.callbacks import Callback, Training
from snncell.train.finite import name_checkpoint, nan_in
from snncell.train.state import is_count, is_number, refuse_misfit


def as_scaler(given: Any, who: str) -> LossScaler | None:
    """Convert a number to a static scaler; a scaler or None is returned as it is.

    Raises:
        ArgumentError: for anything else.
    """
    if given is None or isinstance(given, LossScaler):
        return given
    number = isinstance(given, (int, float)) and not isinstance(given, bool)
    if not number or not 0.0 < given < 2.0**127:
        raise ArgumentError(
            f"{who}: loss_scale is a number above 0, or a scaler such as amp.DynamicLossScaler(), not {came(given)}."
        )
    return StaticLossScaler(float(given))


class Scaling:
    """A scaler for the training steps of net and loss; a skipped step does not change their statistics."""

    def __init__(self, scaler: LossScaler, net: Any, loss: Any, optimiser: Optimizer) -> None:
        self.scaler, self.optimiser = scaler, optimiser
        trained = {id(parameter) for parameter in optimiser.parameters}
        cells = [part for part in (net, loss) if isinstance(part, Cell)]
        every = dict.fromkeys(parameter for cell in cells for parameter in cell.get_parameters())
        self.statistics = [parameter for parameter in every if id(parameter) not in trained]

    def scaled(self, measured: Callable[..., Any]) -> Callable[..., Any]:
        """`measure` with a scaled loss; the unscaled loss is among the numbers."""

        def of_batch(*batch: Any) -> Any:
            value, others = measured(*batch)
            return self.scaler.scale(value), {"loss": value, **others}

        return of_batch

    def gradients(self, of_loss: Callable[..., Any], batch: Any) -> Any:
        """The numbers of a batch, and its gradients unscaled; where these are not finite, statistics stay."""
        before = values_of(self.statistics)
        (_, numbers), scaled = of_loss(*batch)
        grads = self.scaler.unscale(scaled)
        put_back_unless(all_finite(grads), before)
        return numbers, grads

    def update(self, grads: Any, clip: Callable[[Any], Any] | None) -> None:
        """Take the step if all gradients are finite, and change the scale."""
        finite = all_finite(grads)
        step_if(finite, self.optimiser, grads if clip is None else clip(grads))
        self.scaler.adjust(finite)


class ScaledLoss(Callback):
    """Put the loss scale and the number of skipped steps into records, and the scaler into checkpoints."""

    def __init__(self, scaler: LossScaler, checkpoint: Any) -> None:
        self.scaler, self.checkpoint = scaler, checkpoint
        self.before = self._counted()  # when the epoch began

    def on_epoch_begin(self, training: Training) -> None:
        self.before = self._counted()

    def on_epoch_end(self, training: Training) -> None:
        scale, now = self.scaler.scale_value.item(), self._counted()
        taken, skipped, lost = (now[name] - self.before[name] for name in _COUNTS)
        training.record |= {"loss_scale": scale, "skipped": skipped}
        if lost:
            why = (
                f"{lost} step(s) had gradients that are not finite although the loss scale had sunk to its floor, "
                f"{scale:g}: it is not the scale."
            )
        elif skipped and not taken and scale == self.before["scale"]:
            why = (
                f"none of the {skipped} step(s) had finite gradients with the loss scale {scale:g}. Give a smaller "
                f"one, or amp.DynamicLossScaler()."
            )
        else:
            return
        mend = nan_in(training.data, "the data") or "snncell.set_context(check_finite=True) names where it begins."
        raise TrainingError(
            f"fit: in epoch {training.epoch} {why} {mend}" + name_checkpoint(self.checkpoint, training.epoch)
        )

    def _counted(self) -> dict[str, Any]:
        counts = {name: int(getattr(self.scaler, name).item()) for name in _COUNTS}
        return {**counts, "scale": self.scaler.scale_value.item()}

    def state(self) -> dict[str, Any]:
        own = self.scaler.parameters_dict()
        return {"before": self.before, **{name: np.array(p.asnumpy()) for name, p in own.items()}}

    def resume(self, state: dict[str, Any], training: Training) -> None:
        before: Any = state.get("before")
        own = dict(self.scaler.parameters_dict())
        whole = isinstance(before, dict) and before.keys() == {*_COUNTS, "scale"} and is_number(before["scale"])
        if not whole or not all(is_count(before[name]) for name in _COUNTS):
            raise ArgumentError(f"its counts are {str(before)[:200]}.")
        arrays = {name: value for name, value in state.items() if name != "before"}
        try:
            refuse_misfit(own, arrays, "the state")
        except CheckpointError as error:
            raise ArgumentError(str(error)) from None
        self.before = before
        assign_all([(own[name], Tensor(value)) for name, value in arrays.items()], "fit", in_range=True)


_COUNTS = ("taken", "skipped", "lost")
