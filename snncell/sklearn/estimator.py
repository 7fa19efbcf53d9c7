"""The base of both estimators: settings, training by `train.fit`, outputs for samples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.model_selection import train_test_split
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from snncell import nn, train
from snncell.base.arguments.guard import plan_of
from snncell.base.arguments.kinds import Count, NotNegative, Own, Size, Within
from snncell.cell.cell import Cell
from snncell.compiler.jit import jit
from snncell.errors import ArgumentError
from snncell.nn.optim.schedules import LearningRateSchedule
from snncell.ops.seeds import replaying
from snncell.sklearn.network import network_of, optimiser_of, refuse_range
from snncell.tape.tensor import Tensor
from snncell.train.state import find_statefuls

Array = np.ndarray[Any, Any]
Encoder = Literal["current", "latency", "phase", "rate"] | Callable[..., Any] | None


class SpikingEstimator(BaseEstimator):  # type: ignore[misc]
    """The base of the estimators; `SNNClassifier` says what the settings are."""

    net_: Cell
    optimiser_: nn.Optimizer
    history_: list[dict[str, Any]]

    def __init__(
        self,
        hidden: Count | Sequence[Count] = (64,),
        *,
        network: Callable[..., Any] | type | None = None,
        neuron: Annotated[Any, Own()] = "LIFNode",
        surrogate: Annotated[Any, Own()] = None,
        encoder: Encoder = "current",
        steps: Count = 8,
        epochs: Count = 50,
        batch_size: Count = 32,
        optimizer: str | Callable[..., Any] | type = "Adam",
        learning_rate: NotNegative | LearningRateSchedule = 5e-3,
        weight_decay: NotNegative | None = None,
        early_stopping: bool = False,
        validation_fraction: Annotated[float, Within(0.0, 1.0, True, True)] = 0.1,
        patience: Count = 10,
        callbacks: Annotated[Any, Own()] = (),
        fit_options: dict[str, Any] | None = None,
        warm_start: bool = False,
        random_state: Annotated[Any, Own()] = None,
        verbose: bool | Size = False,
    ) -> None:
        self.hidden = hidden
        self.network = network
        self.neuron = neuron
        self.surrogate = surrogate
        self.encoder = encoder
        self.steps = steps
        self.epochs = epochs
        self.batch_size = batch_size
        self.optimizer = optimizer
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.callbacks = callbacks
        self.fit_options = fit_options
        self.warm_start = warm_start
        self.random_state = random_state
        self.verbose = verbose

    # --- training -----------------------------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any) -> Self:  # noqa: N803
        """Train on samples X (n, n_features), with y as the class says."""
        return self._train(X, y, anew=not (self.warm_start and self.__sklearn_is_fitted__()))

    def _train(self, X: Any, y: Any, anew: bool, epochs: int | None = None) -> Self:  # noqa: N803
        """Train for so many epochs, or those of the settings with their early stopping."""
        settings = self._settings()
        samples, y = validate_data(self, X, y, reset=anew, dtype=np.float32, **self._validation())
        refuse_range(type(self).__name__, settings["encoder"], samples)
        target, outputs = self._targets(y, anew)
        if anew:
            self._random = check_random_state(self.random_state)
        seed = int(self._random.randint(2**31 - 1))
        learnt: tuple[Array, Array] = (samples, target)
        more: dict[str, Any] = {}
        if epochs is None and settings["early_stopping"]:
            learnt, more["test"] = self._split(samples, target, settings["validation_fraction"], seed)
            more["patience"] = settings["patience"]
        with replaying(Tensor([seed, 0])):  # of other random numbers of snncell's it changes none
            if anew:
                net = network_of(type(self).__name__, settings, samples[:1], outputs)
                self.__dict__.pop("n_iter_", None)  # if it is interrupted, the new network is no fitted one
                self.net_ = net.set_train(False)  # in which outputs are computed; `fit` trains, and puts it back
                self.optimiser_ = optimiser_of(type(self).__name__, settings, self.net_)
                self.history_, self._seed, self._size = [], seed, settings["batch_size"]
                self._forward = jit(self.net_)
            history = self._fitted(learnt, epochs or settings["epochs"], settings, more).history
        begun = len(self.history_)
        self.history_ = [*self.history_, *({**record, "epoch": begun + record["epoch"]} for record in history)]
        self.n_iter_ = len(self.history_)
        return self

    def _fitted(self, data: Any, epochs: int, settings: dict[str, Any], more: dict[str, Any]) -> train.Result:
        options = {
            "batch_size": settings["batch_size"],
            "callbacks": settings["callbacks"],
            "progress": bool(settings["verbose"]),
            "accuracy": self._accuracy,
            **more,
        }
        given = settings["fit_options"] or {}
        for name in given:
            if name in ("net", "loss", "optimiser", "data", "epochs", "test", "patience", *options):
                raise ArgumentError(
                    f"{type(self).__name__}: fit_options are further arguments of train.fit; {name!r} is the "
                    f"estimator's own."
                )
        return train.fit(self.net_, self._loss(), self.optimiser_, data, epochs, **options, **given)

    def _settings(self) -> dict[str, Any]:
        """The settings, checked by the annotations of `__init__`: scikit-learn wants that done here."""
        settings: dict[str, Any] = self.get_params(deep=False)
        plan_of(SpikingEstimator.__init__).taken(type(self).__name__, (), settings)
        return settings

    def _split(self, samples: Array, target: Array, share: float, seed: int) -> Any:
        """Samples to learn from, and others to be stopped by."""
        kept, left, y, y_left = train_test_split(
            samples, target, test_size=share, random_state=seed, stratify=self._strata(target)
        )
        return (kept, y), (left, y_left)

    # --- of each class ------------------------------------------------------------------------------------------------

    _accuracy: Any = None

    def _validation(self) -> dict[str, Any]:
        """Options of `validate_data` for y."""
        raise NotImplementedError

    def _targets(self, y: Array, anew: bool) -> tuple[Array, int]:
        """The targets of a loss, and how many outputs there are."""
        raise NotImplementedError

    def _loss(self) -> Cell:
        raise NotImplementedError

    def _strata(self, target: Array) -> Array | None:
        return None

    # --- outputs ------------------------------------------------------------------------------------------------------

    def _outputs(self, X: Any) -> Array:  # noqa: N803
        """The network's outputs (n, n_outputs), float64.

        In batches of one size, filled up with zeros: the output of a sample is the same to the bit with any others.
        """
        check_is_fitted(self)
        samples = validate_data(self, X, reset=False, dtype=np.float32)
        refuse_range(type(self).__name__, self.encoder, samples)
        size, parts = self._size, []
        with replaying(Tensor([self._seed, 0])):
            for begin in range(0, len(samples), size):
                batch = np.zeros((size, samples.shape[1]), np.float32)
                part = samples[begin : begin + size]
                batch[: len(part)] = part
                for stateful in find_statefuls(self.net_):
                    stateful.reset()
                parts.append(self._forward(Tensor(batch)).asnumpy()[: len(part)].astype(np.float64))
        return np.concatenate(parts)

    # --- copies -------------------------------------------------------------------------------------------------------

    def __sklearn_is_fitted__(self) -> bool:
        return "n_iter_" in vars(self)

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = super().__getstate__()
        return {name: value for name, value in state.items() if name != "_forward"}  # compiled code is not copied

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if "net_" in state:
            self._forward = jit(self.net_)
