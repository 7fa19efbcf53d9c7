"""Exponential moving average of the weights (EMA)."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Annotated, Any, ClassVar

import numpy as np

from snncell.base.arguments.kinds import Within
from snncell.cell.cell import Cell
from snncell.compiler.jit import jit
from snncell.errors import ArgumentError, CheckpointError
from snncell.tape.parameter import Parameter
from snncell.tape.tensor import Tensor
from snncell.train.callbacks import Callback, Training
from snncell.train.state import assign_values, buffers_of, refuse_misfit, weights_of

__all__ = ["EMA"]


class EMA(Callback):
    """Exponential moving average (EMA) of the weights, for the evaluations and for the net after the training.

    a <- d a + (1 - d) w   after each step of the optimiser,   a = w before the first

    It averages the Parameters that the optimiser trains. Other values, such as the statistics of a `BatchNorm`, are not
    averaged unless `use_buffers=True`. Training steps continue from w: the Parameters hold the average only during an
    evaluation, so that `EarlyStopping` and `fit(monitor=...)` keep it as the best weights. Checkpoints hold both.
    `load_state` loads w. To get the average, call `fit(resume=file)` with the number of epochs that are already done,
    which trains no further.

    Args:
        decay: d, in [0, 1). It averages over the last 1 / (1 - d) steps or so.
        use_buffers: whether there are averages of the statistics too: of Parameters of the net and of the loss that
            are not trained, and of buffers that are persistent, where these are floats.

    Source: Polyak and Juditsky, "Acceleration of stochastic approximation by averaging", SIAM J. Control Optim. 1992;
        with d as Tarvainen and Valpola, "Mean teachers are better role models", NIPS 2017.

    Example:
        >>> net = nn.Dense(2, 1)
        >>> sgd, data = nn.SGD(net.trainable_params(), 0.1), (ops.ones((8, 2)), ops.zeros((8, 1)))
        >>> options = {"test": data, "accuracy": None, "progress": False}
        >>> result = snncell.train.fit(net, nn.MSELoss(), sgd, data, 3, callbacks=[snncell.train.EMA(0.9)], **options)
        >>> snncell.train.evaluate(net, nn.MSELoss(), data, accuracy=None)["loss"] == result.history[-1]["test_loss"]
        True
    """

    order: ClassVar[int] = 2  # others have looked at the average when it takes that away

    def __init__(self, decay: Annotated[float, Within(0.0, 1.0, open_high=True)], use_buffers: bool = False) -> None:
        self.decay, self.use_buffers = float(decay), use_buffers
        self.weights: list[Parameter] = []
        self.averages: list[Parameter] = []
        self.buffers: dict[str, Tensor] = {}  # averages of buffers, by path
        self.in_place = False

    def on_fit_begin(self, training: Training) -> None:
        self._take(training, None)

    def _take(self, training: Training, values: dict[str, Any] | None) -> None:
        """Begin with the weights as they are, or go on from averages; of one training after another, too."""
        self.weights, buffers = self._averaged(training)
        if self.averages and values is None:
            return
        own = (
            [p.asnumpy() for p in self.weights]
            if values is None
            else [values[str(n)] for n in range(len(self.weights))]
        )
        self.averages = [Parameter(np.array(value), requires_grad=False) for value in own]
        self.buffers = {path: x if values is None else Tensor(values[path]) for path, (_, _, x) in buffers.items()}
        self._forget()

    @cached_property
    def _update(self) -> Callable[[], None]:
        """The step of the averages, compiled."""
        pairs = [*zip(self.averages, self.weights, strict=True)]

        def update() -> None:
            for average, weight in pairs:
                average.assign(self._between(average.value(), weight.value()))

        compiled: Callable[[], None] = jit(update)
        return compiled

    def _forget(self) -> None:
        """Forget the compiled step: averages of another training are other Parameters."""
        self.__dict__.pop("_update", None)

    def __getstate__(self) -> dict[str, Any]:
        """The state for a copy or a pickle, which compile the step for themselves."""
        return {name: value for name, value in self.__dict__.items() if name != "_update"}

    def _averaged(self, training: Training) -> tuple[list[Parameter], dict[str, tuple[Cell, str, Tensor]]]:
        """The Parameters that there are averages of, and the buffers."""
        trained = list(training.optimiser.parameters)
        if not self.use_buffers:
            return trained, {}
        known = {id(parameter) for parameter in trained}
        others = [
            p for p in weights_of(training.net, training.loss).values() if id(p) not in known and p.dtype.is_float
        ]
        buffers = buffers_of(training.net, training.loss).items()
        return trained + others, {f"buffer/{path}": place for path, place in buffers if place[2].dtype.is_float}

    def _between(self, a: Tensor, w: Tensor) -> Tensor:
        # In this form what never changes, such as a frozen weight, stays the same to the bit.
        return (w + self.decay * (a - w)).astype(a.dtype)

    def on_step_end(self, training: Training) -> None:
        if training.updated:
            self._update()
            for path, (_, _, buffer) in self._averaged(training)[1].items():
                average = self.buffers.get(path, buffer)
                self.buffers[path] = buffer if average is buffer else self._between(average, buffer)

    def on_evaluation_begin(self, training: Training) -> None:
        self._exchange(training)

    def on_evaluation_end(self, training: Training) -> None:
        self._exchange(training)

    def on_fit_end(self, training: Training) -> None:
        self._exchange(training)
        self.averages, self.in_place = [], False  # in another `fit` it begins anew
        self._forget()

    def on_error(self, training: Training, error: BaseException) -> None:
        if self.in_place:
            self._exchange(training)
        self.averages = []
        self._forget()

    def _exchange(self, training: Training) -> None:
        """Put the averages in the place of the weights, and these in theirs."""
        both = [*zip(self.weights, self.averages, strict=True)]
        pairs = [(a, Tensor(np.array(b.asnumpy()))) for one, other in both for a, b in ((one, other), (other, one))]
        places = self._averaged(training)[1]
        # A buffer that is set has what was traced before traced again; one that never changes stays.
        changed = {path: place for path, place in places.items() if self.buffers.get(path, place[2]) is not place[2]}
        assign_values(pairs, [(cell, name, self.buffers[path]) for path, (cell, name, _) in changed.items()], "EMA")
        self.buffers |= {path: buffer for path, (_, _, buffer) in changed.items()}
        self.in_place = not self.in_place

    def state(self) -> dict[str, Any]:
        averages = {str(n): np.array(average.asnumpy()) for n, average in enumerate(self.averages)}
        return {
            "decay": self.decay,
            "use_buffers": self.use_buffers,
            **averages,
            **{path: np.array(x.asnumpy()) for path, x in self.buffers.items()},
        }

    def resume(self, state: dict[str, Any], training: Training) -> None:
        settings = {"decay": self.decay, "use_buffers": self.use_buffers}
        for name, setting in settings.items():
            if (before := state.get(name, False)) != setting:
                raise ArgumentError(f"{name} was {before} and is {setting}.")
        averages = {name: value for name, value in state.items() if name not in settings}
        weights, buffers = self._averaged(training)
        own: dict[str, Tensor] = {str(n): parameter for n, parameter in enumerate(weights)}
        own |= {path: buffer for path, (_, _, buffer) in buffers.items()}
        try:
            refuse_misfit(own, averages, "EMA: the state")
        except CheckpointError as error:
            raise ArgumentError(str(error)) from None
        self._take(training, averages)
