"""Training steps: forward, backward, gradient clipping and accumulation, optimiser."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Annotated, Any, cast

from snncell import ops
from snncell.amp import LossScaler
from snncell.base.arguments.kinds import Own, Positive
from snncell.cell.cell import Cell
from snncell.compiler.jit import Jitted, jit
from snncell.errors import ArgumentError
from snncell.nn.optim.optimizer import Optimizer
from snncell.tape.tensor import Tensor
from snncell.train.finite import Scaling, as_scaler
from snncell.train.measures import Spikes, measure

__all__ = ["clip_by_global_norm", "clip_by_value", "training_step"]

Numbers = dict[str, Tensor]
Clip = Callable[[Any], Any]


class TrainStep:
    """A training step of `fit`: one optimiser step for each batch."""

    def __init__(self, step: Callable[..., Numbers]) -> None:
        self.step = step

    @property
    def updated(self) -> bool:
        """True if the last batch ended with an optimiser step, so that no accumulated gradients are waiting."""
        return True

    def __call__(self, batch: Any) -> Numbers:
        """Train on a counted batch; returns the measured numbers."""
        return self.step(*batch)

    def finish(self) -> None:
        """Take a step with the remaining gradients at the end of an epoch."""


def training_step(
    net: Cell,
    loss: Callable[..., Tensor],
    optimiser: Optimizer,
    clip: Clip | None = None,
    accuracy: Callable[..., Tensor] | None = None,
    spikes: Spikes | None = None,
    loss_scale: Annotated[LossScaler | float | None, Own()] = None,
) -> Callable[..., Numbers]:
    """A jitted training step, (*inputs, target) -> {"loss": ..., ...}: forward, backward, optimiser.

    Use it in your own training loop, if `fit` is not flexible enough. Call `net.set_train()` before, because a step
    does not change the mode of the net, for example for dropout and delays.

    Args:
        net, loss, accuracy, spikes: as for `measure`.
        optimiser: called with the gradients of its Parameters; gradients of frozen ones are zeros.
        clip: a function that maps a tuple of gradients to such a tuple, or None.
        loss_scale: an `amp.LossScaler`, or a number for a constant scale. The gradients belong to the scaled loss. They
            are divided by the scale before they are clipped. A step with a gradient that is not finite is skipped:
            Parameters, statistics, moments and step number stay unchanged.
    Example:
        >>> net = nn.Dense(2, 1)
        >>> step = snncell.train.training_step(net, nn.MSELoss(), nn.SGD(net.trainable_params(), 0.1))
        >>> losses = [step(ops.ones((4, 2)), ops.zeros((4, 1)))["loss"].item() for _ in range(9)]
        >>> losses[-1] < 0.1 * losses[0]
        True
    """
    scaler = as_scaler(loss_scale, "training_step")
    scaling = None if scaler is None else Scaling(scaler, net, loss, optimiser)
    return fused_step(measure(net, loss, accuracy, spikes), optimiser, clip, scaling)


def fused_step(
    measured: Callable[..., Any], optimiser: Optimizer, clip: Clip | None, scaling: Scaling | None = None
) -> Callable[..., Numbers]:
    """`training_step` for a function from `measure`."""
    gradients = _gradients(measured, optimiser, scaling)

    def step(*batch: Tensor) -> Numbers:
        numbers: Numbers
        numbers, grads = gradients(*batch)
        _update(optimiser, grads, clip, scaling)
        return numbers

    return cast(Callable[..., Numbers], jit(step))


def step_in_two(
    measured: Callable[..., Any], optimiser: Optimizer, clip: Clip | None, scaling: Scaling | None = None
) -> tuple[Callable[..., tuple[Numbers, tuple[Tensor, ...]]], Callable[..., None]]:
    """The step as two jitted functions: batch -> (numbers, gradients), and gradients -> None, which updates."""

    def update(*wide: Tensor) -> None:
        # Unscaled gradients stay in float32, because they could underflow in float16.
        pairs = zip(wide, optimiser.parameters, strict=True)
        _update(optimiser, wide if scaling else tuple(g.astype(p.dtype) for g, p in pairs), clip, scaling)

    return jit(_gradients(measured, optimiser, scaling)), jit(update)


def _update(optimiser: Optimizer, grads: Any, clip: Clip | None, scaling: Scaling | None) -> None:
    if scaling is not None:
        scaling.update(grads, clip)
    else:
        optimiser(grads if clip is None else clip(grads))


def _gradients(measured: Callable[..., Any], optimiser: Optimizer, scaling: Scaling | None) -> Callable[..., Any]:
    """A function batch -> (numbers, gradients of the optimiser's Parameters); gradients of frozen ones are zeros."""
    if optimiser.loss_scale != 1.0:
        raise ArgumentError(
            f"The {type(optimiser).__name__} was created with loss_scale={optimiser.loss_scale:g} and divides "
            f"gradients by it, but these are gradients of the unscaled loss. Leave it out there, and pass it here: "
            f"loss_scale={optimiser.loss_scale:g}."
        )
    differentiated = measured if scaling is None else scaling.scaled(measured)

    def gradients(*batch: Tensor) -> Any:
        trained = optimiser.trainable_params()  # read at each trace, because Parameters may be frozen or unfrozen
        of_loss = ops.value_and_grad(differentiated, None, trained, has_aux=True)
        if scaling is not None:
            numbers, grads = scaling.gradients(of_loss, batch)
        else:
            (value, others), grads = of_loss(*batch)
            numbers = {"loss": value, **others}
        known = {id(parameter): grad for parameter, grad in zip(trained, grads, strict=True)}
        return numbers, tuple(known[id(p)] if id(p) in known else ops.zeros_like(p) for p in optimiser.parameters)

    return gradients


class Accumulated(TrainStep):
    """Gradient accumulation: one optimiser step for every `count` batches, with the mean of their gradients.

    G = sum_i n_i g_i / sum_i n_i, added in the order of the batches, with n_i the samples of batch i. If the loss is a
    mean over samples, G is the gradient of all these samples together.
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


KEPT_TRACES = 32  # the number of traces, one per list of shapes, of functions that all trainings share


@partial(Jitted, limit=KEPT_TRACES)
def _weigh(weight: Tensor, *grads: Tensor) -> tuple[Tensor, ...]:
    return tuple(_times(g, weight) for g in grads)


@partial(Jitted, limit=KEPT_TRACES)
def _accumulate(weight: Tensor, *totals_and_grads: Tensor) -> tuple[Tensor, ...]:
    """Each total plus a number times its gradient."""
    half = len(totals_and_grads) // 2
    totals, grads = totals_and_grads[:half], totals_and_grads[half:]
    return tuple(total + _times(g, weight) for total, g in zip(totals, grads, strict=True))


def _times(g: Tensor, weight: Tensor) -> Tensor:
    """A gradient times a number, at least in float32, because sums in float16 would overflow."""
    wide = g.astype("float32") if g.dtype.itemsize < 4 else g
    return wide * weight.astype(wide.dtype)


# --- gradient clipping ------------------------------------------------------------------------------------------------


def clip_by_global_norm(gradients: Iterable[Tensor], max_norm: Positive) -> tuple[Tensor, ...]:
    """Gradient clipping by global norm: scale all gradients together so that their norm is at most `max_norm`.

    Use it for networks over many time steps, where gradients can explode.

    g min(1, max_norm / n)  with n = sqrt(sum of the squares of all elements of all gradients)

    n is computed without overflow, at least in float32. If a gradient contains an infinity or a NaN, all become NaN.

    Source: Pascanu, Mikolov and Bengio, "On the difficulty of training recurrent neural networks", ICML 2013.
    Example:
        >>> [g.asnumpy().tolist() for g in snncell.train.clip_by_global_norm([Tensor([3.0]), Tensor([4.0])], 2.5)]
        [[1.5], [2.0]]
    """
    originals = tuple(gradients)
    return ops.clip_by_global_norm(originals, max_norm) if originals else ()


def clip_by_value(gradients: Iterable[Tensor], limit: Positive) -> tuple[Tensor, ...]:
    """Gradient clipping by value: limit each element to [-limit, limit].

    Example:
        >>> snncell.train.clip_by_value([Tensor([-3.0, 0.25])], 0.5)[0].asnumpy().tolist()
        [-0.5, 0.25]
    """
    return tuple(ops.clip(g, -float(limit), float(limit)) for g in gradients)


def clip_by_both(max_norm: float | None, limit: float | None) -> Callable[[Any], Any]:
    """A function that clips by value and then by global norm, each if it has a limit."""

    def clip(gradients: Any) -> Any:
        limited = gradients if limit is None else clip_by_value(gradients, limit)
        return limited if max_norm is None else clip_by_global_norm(limited, max_norm)

    return clip


# --- processes --------------------------------------------------------------------------------------------------------

Counted = tuple[int, Any]  # the samples of a batch, and the batch


class OneProcess:
    """A training on one process, with the interface of a distributed training."""

    first = True  # whether this process writes files

    def batches(self, source: Any, parts_of: Callable[[Any], tuple[Any, ...]]) -> tuple[Any, Callable[[Any], Counted]]:
        """An iterable over the data, and a function that converts one of its items to a counted batch."""

        def counted(batch: Any) -> Counted:
            parts = parts_of(batch)
            return len(parts[-1]), parts

        return source, counted

    def step(
        self,
        parts: tuple[Any, ...],
        of_batch: Callable[..., Any],
        optimiser: Optimizer,
        clip: Clip,
        scaling: Scaling | None,
        accumulate: int,
    ) -> TrainStep:
        """The training step, for counted batches."""
        if accumulate == 1:
            return TrainStep(fused_step(of_batch, optimiser, clip, scaling))
        return Accumulated(*step_in_two(of_batch, optimiser, clip, scaling), accumulate)

    def measured(self, of_batch: Callable[..., Numbers]) -> Callable[[Any], Numbers]:
        """A function that measures a counted batch."""
        return lambda batch: of_batch(*batch)

    def any(self, flag: bool) -> bool:
        """True if the flag is true on any process."""
        return flag

    def apart(self, alone: bool) -> AbstractContextManager[Any]:
        """A context for a callback that runs on this process alone, or on all of them."""
        return nullcontext()

    def together(self) -> AbstractContextManager[Any]:
        """A context for everything that the processes do together."""
        return nullcontext()

    def settings(self) -> dict[str, Any]:
        """The settings of the processes that a resume must not change."""
        return {}

    def refuse(self, parts: tuple[Any, ...], optimiser: Optimizer, settings: Callable[[], dict[str, Any]]) -> None:
        """Raise an error for a net or settings that these processes cannot train."""
