"""The step of a training: of one batch at a time, or of gradients that are accumulated over several."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, Protocol

from snncell import ops
from snncell.amp import LossScaler
from snncell.arguments.kinds import Own
from snncell.cell import Cell
from snncell.compiler.jit import Jitted, jit
from snncell.errors import ArgumentError
from snncell.nn.optim.optimizer import Optimizer
from snncell.tape.tensor import Tensor
from snncell.train.loss_scale import Scaling, scaler_of
from snncell.train.pieces import Spikes, measure

Numbers = dict[str, Tensor]
Clip = Callable[[Any], Any]


class TrainStep(Protocol):
    """A step as `fit` takes it.

    updated: whether no gradients are waiting for the ones of further batches.
    """

    @property
    def updated(self) -> bool: ...

    def __call__(self, batch: Any) -> Numbers:
        """Train on a batch, as the processes of a training count it; the numbers that were measured of it."""

    def finish(self) -> None:
        """Take a step with the gradients that are waiting at the end of an epoch."""


def training_step(
    net: Cell,
    loss: Callable[..., Tensor],
    optimiser: Optimizer,
    clip: Clip | None = None,
    accuracy: Callable[..., Tensor] | None = None,
    spikes: Spikes | None = None,
    loss_scale: Annotated[LossScaler | float | None, Own()] = None,
) -> Callable[..., Numbers]:
    """A jitted function (*inputs, target) -> {"loss": ..., ...} that takes one step: forward, backward, optimiser.

    Args:
        net, loss, accuracy, spikes: as for `measure`.
        optimiser: called with the gradients of its Parameters, which are zeros for frozen ones.
        clip: a function of the tuple of gradients that gives such a tuple, or None.
        loss_scale: an `amp.LossScaler`, or a number for one that does not change: the gradients are those of the loss
            times the scale, divided by it before they are clipped. A step whose gradients are not all finite is not
            taken: Parameters, statistics, moments and the step stay as they are, to the bit.

    Example:
        >>> net = nn.Dense(2, 1)
        >>> step = snncell.train.training_step(net, nn.MSELoss(), nn.SGD(net.trainable_params(), 0.1))
        >>> losses = [step(ops.ones((4, 2)), ops.zeros((4, 1)))["loss"].item() for _ in range(9)]
        >>> losses[-1] < 0.1 * losses[0]
        True
    """
    scaler = scaler_of(loss_scale, "training_step")
    scaling = None if scaler is None else Scaling(scaler, net, loss, optimiser)
    return fused_step(measure(net, loss, accuracy, spikes), optimiser, clip, scaling)


def fused_step(
    measured: Callable[..., Any], optimiser: Optimizer, clip: Clip | None, scaling: Scaling | None = None
) -> Callable[..., Numbers]:
    """`training_step` of what `measure` gives."""
    gradients = _gradients(measured, optimiser, scaling)

    def step(*batch: Tensor) -> Numbers:
        numbers: Numbers
        numbers, grads = gradients(*batch)
        _update(optimiser, grads, clip, scaling)
        return numbers

    jitted: Callable[..., Numbers] = jit(step)
    return jitted


def step_in_two(
    measured: Callable[..., Any], optimiser: Optimizer, clip: Clip | None, scaling: Scaling | None = None
) -> tuple[Callable[..., tuple[Numbers, tuple[Tensor, ...]]], Callable[..., None]]:
    """The step as two jitted functions: batch -> (numbers, gradients), and gradients -> None, which updates."""

    def update(*wide: Tensor) -> None:
        # What is unscaled stays as wide as it is: in float16 it could vanish again.
        pairs = zip(wide, optimiser.parameters, strict=True)
        _update(optimiser, wide if scaling else tuple(g.astype(p.dtype) for g, p in pairs), clip, scaling)

    return jit(_gradients(measured, optimiser, scaling)), jit(update)


def _update(optimiser: Optimizer, grads: Any, clip: Clip | None, scaling: Scaling | None) -> None:
    """Take a step of the optimiser, if it may be taken."""
    if scaling is not None:
        scaling.update(grads, clip)
    else:
        optimiser(grads if clip is None else clip(grads))


def _gradients(measured: Callable[..., Any], optimiser: Optimizer, scaling: Scaling | None) -> Callable[..., Any]:
    """A function batch -> (numbers, gradients of the optimiser's Parameters, of frozen ones zeros)."""
    if optimiser.loss_scale != 1.0:
        raise ArgumentError(
            f"The {type(optimiser).__name__} was made with loss_scale={optimiser.loss_scale:g}, by which it divides "
            f"gradients, and these are of the loss as it is. Leave it out there, and give it here: "
            f"loss_scale={optimiser.loss_scale:g}."
        )
    differentiated = measured if scaling is None else scaling.scaled(measured)

    def gradients(*batch: Tensor) -> Any:
        trained = optimiser.trainable_params()  # as they are now: a Parameter may be frozen, or thawed
        of_loss = ops.value_and_grad(differentiated, None, trained, has_aux=True)
        if scaling is not None:
            numbers, grads = scaling.gradients(of_loss, batch)
        else:
            (value, others), grads = of_loss(*batch)
            numbers = {"loss": value, **others}
        known = {id(parameter): grad for parameter, grad in zip(trained, grads, strict=True)}
        return numbers, tuple(known[id(p)] if id(p) in known else ops.zeros_like(p) for p in optimiser.parameters)

    return gradients


class EachBatch:
    """A step for each batch."""

    updated = True

    def __init__(self, step: Callable[..., Numbers]) -> None:
        self.step = step

    def __call__(self, batch: tuple[Any, ...]) -> Numbers:
        return self.step(*batch)

    def finish(self) -> None:
        """Nothing waits."""


class Accumulated:
    """A step for every `count` batches, by the mean of their gradients.

    G = sum_i n_i g_i / sum_i n_i, added in the order of the batches, n_i the samples of batch i: of a loss that is a
    mean over samples it is the gradient of all these samples at once.
    """

    def __init__(self, gradients: Callable[..., Any], update: Callable[..., None], count: int) -> None:
        self.gradients, self.update, self.count = gradients, update, count
        self.waiting = 0
        self.samples = 0
        self.total: tuple[Tensor, ...] = ()

    def __call__(self, batch: tuple[Any, ...]) -> Numbers:
        numbers: Numbers
        numbers, grads = self.gradients(*batch)
        count = Tensor(float(len(batch[-1])))
        self.total = _accumulate(count, *self.total, *grads) if self.waiting else _weigh(count, *grads)
        self.samples += len(batch[-1])
        self.waiting += 1
        if self.waiting == self.count:
            self.finish()
        return numbers

    @property
    def updated(self) -> bool:
        return not self.waiting

    def finish(self) -> None:
        if self.waiting:
            self.update(*_weigh(Tensor(1.0 / self.samples), *self.total))
            self.waiting, self.samples, self.total = 0, 0, ()


KEPT_TRACES = 32  # of functions that all trainings share: for so many lists of shapes


@partial(Jitted, limit=KEPT_TRACES)
def _weigh(weight: Tensor, *grads: Tensor) -> tuple[Tensor, ...]:
    """Each gradient times a number."""
    return tuple(_times(g, weight) for g in grads)


@partial(Jitted, limit=KEPT_TRACES)
def _accumulate(weight: Tensor, *totals_and_grads: Tensor) -> tuple[Tensor, ...]:
    """Each total plus a number times its gradient."""
    half = len(totals_and_grads) // 2
    totals, grads = totals_and_grads[:half], totals_and_grads[half:]
    return tuple(total + _times(g, weight) for total, g in zip(totals, grads, strict=True))


def _times(g: Tensor, weight: Tensor) -> Tensor:
    """A gradient times a number, in float32 at least: sums of float16 would overflow."""
    wide = g.astype("float32") if g.dtype.itemsize < 4 else g
    return wide * weight.astype(wide.dtype)
