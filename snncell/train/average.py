"""The moving average of weights."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import numpy as np

from snncell.arguments.kinds import Within
from snncell.compiler.jit import jit
from snncell.errors import ArgumentError, CheckpointError
from snncell.tape.parameter import Parameter, assign_all
from snncell.tape.tensor import Tensor
from snncell.train.callbacks import Callback, Training
from snncell.train.state import refuse_misfit


class EMA(Callback):
    """Keeps an exponential moving average of the weights, with which the net is evaluated, and which it has in the end.

    a <- d a + (1 - d) w   after each step of the optimiser,   a = w before the first

    Of the Parameters that the optimiser trains; what others hold, such as the statistics of a `BatchNorm`, stays as it
    is. The steps go on from w: the average is in the net's Parameters during the evaluation alone, when
    `EarlyStopping` and `fit(monitor=...)` keep it as the best weights. Checkpoints hold both: `load_state` puts w into
    a net, and `fit(resume=file)` with as many epochs as are done, which trains no further, the average.

    Args:
        decay: d, in [0, 1). It averages over the last 1 / (1 - d) steps or so.

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

    def __init__(self, decay: Annotated[float, Within(0.0, 1.0, open_high=True)]) -> None:
        self.decay = float(decay)
        self.weights: list[Parameter] = []
        self.averages: list[Parameter] = []
        self.in_place = False

    def on_fit_begin(self, training: Training) -> None:
        self._take(training, None)

    def _take(self, training: Training, values: dict[str, Any] | None) -> None:
        """Begin with the weights as they are, or go on from averages; of one training after another, too."""
        self.weights = list(training.optimiser.parameters)
        if self.averages and values is None:
            return
        own = [p.asnumpy() for p in self.weights] if values is None else [values[str(n)] for n in range(len(values))]
        self.averages = [Parameter(np.array(value), requires_grad=False) for value in own]

        @jit
        def update() -> None:
            for average, weight in zip(self.averages, self.weights, strict=True):
                a, w = average.value(), weight.value()
                average.assign((self.decay * a + (1.0 - self.decay) * w).astype(a.dtype))

        self._update = update

    def on_step_end(self, training: Training) -> None:
        if training.updated:
            self._update()

    def on_evaluation_begin(self, training: Training) -> None:
        self._exchange()

    def on_evaluation_end(self, training: Training) -> None:
        self._exchange()

    def on_fit_end(self, training: Training) -> None:
        self._exchange()
        self.averages, self.in_place = [], False  # in another `fit` it begins anew

    def on_error(self, training: Training, error: BaseException) -> None:
        if self.in_place:
            self._exchange()
        self.averages = []

    def _exchange(self) -> None:
        """Put the averages in the place of the weights, and these in theirs."""
        both = [*zip(self.weights, self.averages, strict=True)]
        pairs = [(a, Tensor(np.array(b.asnumpy()))) for one, other in both for a, b in ((one, other), (other, one))]
        assign_all(pairs, "EMA", in_range=True)
        self.in_place = not self.in_place

    def state(self) -> dict[str, Any]:
        averages = {str(n): np.array(average.asnumpy()) for n, average in enumerate(self.averages)}
        return {"decay": self.decay, **averages}

    def resume(self, state: dict[str, Any], training: Training) -> None:
        if state.get("decay") != self.decay:
            raise ArgumentError(f"decay was {state.get('decay')} and is {self.decay}.")
        averages = {name: value for name, value in state.items() if name != "decay"}
        own = {str(n): parameter for n, parameter in enumerate(training.optimiser.parameters)}
        try:
            refuse_misfit(own, averages, "EMA: the state")
        except CheckpointError as error:
            raise ArgumentError(str(error)) from None
        self._take(training, averages)
