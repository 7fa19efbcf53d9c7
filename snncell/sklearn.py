"""Spiking networks as scikit-learn estimators, for pipelines, cross-validation and hyperparameter search.

It needs scikit-learn, `pip install "snncell[sklearn]"`. `import snncell` does not load this module, so import it by
name: `from snncell.sklearn import SNNClassifier`.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np

from snncell import encode, nn, surrogate, train
from snncell.base.arguments.guard import plain_signature as _plain_signature, plan_of
from snncell.base.arguments.kinds import Count, NotNegative, Own, Size, Within, misfit
from snncell.base.arguments.names import list_public as _list_public, missing_from as _missing_from, suggest_name
from snncell.base.arguments.shown import came, show
from snncell.base.signals import import_once
from snncell.cell.cell import Cell
from snncell.compiler.jit import jit
from snncell.errors import ArgumentError, PackageError
from snncell.nn.neurons.base import Neuron
from snncell.nn.optim.optimizer import Optimizer
from snncell.nn.optim.schedules import LearningRateSchedule
from snncell.nn.time.states import find_statefuls
from snncell.ops.base import as_tensor
from snncell.ops.random import replaying
from snncell.tape.tensor import Tensor

try:
    import_once("sklearn")
except ImportError as _error:
    raise PackageError(
        f'snncell.sklearn: needs the package scikit-learn. Install it with pip install "snncell[sklearn]" ({_error}).'
    ) from None

from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.model_selection import train_test_split
from sklearn.utils import Tags, check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

__all__ = ["SNNClassifier", "SNNRegressor"]

Array = np.ndarray[Any, Any]
Encoder = Literal["current", "latency", "phase", "rate"] | Callable[..., Any] | None


class SpikingEstimator(BaseEstimator):  # type: ignore[misc]
    """Base class of the estimators. `SNNClassifier` describes the settings."""

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
        self.hidden, self.network, self.neuron, self.surrogate = hidden, network, neuron, surrogate
        self.encoder, self.steps, self.epochs, self.batch_size = encoder, steps, epochs, batch_size
        self.optimizer, self.learning_rate, self.weight_decay = optimizer, learning_rate, weight_decay
        self.early_stopping, self.validation_fraction, self.patience = early_stopping, validation_fraction, patience
        self.callbacks, self.fit_options, self.warm_start = callbacks, fit_options, warm_start
        self.random_state, self.verbose = random_state, verbose

    def fit(self, X: Any, y: Any) -> Self:  # noqa: N803
        """Train on samples X (n, n_features) and targets y (n,); a regressor also takes y (n, n_targets)."""
        return self._train(X, y, anew=not (self.warm_start and self.__sklearn_is_fitted__()))

    def _train(self, X: Any, y: Any, anew: bool, epochs: int | None = None) -> Self:  # noqa: N803
        """Train for `epochs`. If it is None, the settings decide about the number of epochs and early stopping."""
        settings: dict[str, Any] = self.get_params(deep=False)
        # Check the settings by the annotations of `__init__` here, because scikit-learn forbids it in `__init__`.
        plan_of(SpikingEstimator.__init__).check_call(type(self).__name__, (), settings)
        samples, y = validate_data(self, X, y, reset=anew, dtype=np.float32, **self._validation)
        refuse_range(type(self).__name__, settings["encoder"], samples)
        target, outputs = self._targets(y, anew)
        if anew:
            self._random = check_random_state(self.random_state)
        seed = int(self._random.randint(2**31 - 1))
        learnt: tuple[Array, Array] = (samples, target)
        more: dict[str, Any] = {}
        if epochs is None and settings["early_stopping"]:
            kept, left, y_kept, y_left = train_test_split(
                samples,
                target,
                test_size=settings["validation_fraction"],
                random_state=seed,
                stratify=target if self._stratified else None,
            )
            learnt = kept, y_kept
            more = {"test": (left, y_left), "patience": settings["patience"]}
        with replaying(Tensor([seed, 0])):  # leaves snncell's own sequence of random numbers unchanged
            if anew:
                net = network_of(type(self).__name__, settings, samples[:1], outputs)
                self.__dict__.pop("n_iter_", None)  # so that an interrupted training leaves no fitted estimator
                self.net_ = net.set_train(False)  # evaluation mode; `train.fit` restores it after training
                self.optimiser_ = optimiser_of(type(self).__name__, settings, self.net_)
                self.history_, self._seed, self._size = [], seed, settings["batch_size"]
                self._forward = jit(self.net_)
            history = self._run_fit(learnt, epochs or settings["epochs"], settings, more).history
        begun = len(self.history_)
        self.history_ = [*self.history_, *({**record, "epoch": begun + record["epoch"]} for record in history)]
        self.n_iter_ = len(self.history_)
        return self

    def _run_fit(self, data: Any, epochs: int, settings: dict[str, Any], more: dict[str, Any]) -> train.Result:
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
                    f"{type(self).__name__}: fit_options must be further arguments of train.fit; the estimator sets "
                    f"{name!r} itself."
                )
        return train.fit(self.net_, self._loss(), self.optimiser_, data, epochs, **options, **given)

    # Set by each class: options of `validate_data` for y, loss, accuracy, and whether validation splits are stratified.
    _validation: ClassVar[dict[str, Any]] = {}
    _loss: ClassVar[type[Cell]]
    _accuracy: Any = None
    _stratified = False

    def _targets(self, y: Array, anew: bool) -> tuple[Array, int]:
        """The targets of the loss, and the number of outputs."""
        raise NotImplementedError

    def _outputs(self, X: Any) -> Array:  # noqa: N803
        """The outputs of the network, (n, n_outputs), in float64."""
        check_is_fitted(self)
        samples = validate_data(self, X, reset=False, dtype=np.float32)
        refuse_range(type(self).__name__, self.encoder, samples)
        size, parts = self._size, []
        with replaying(Tensor([self._seed, 0])):
            for begin in range(0, len(samples), size):
                # Padded to one size, so that the output of a sample does not depend on other samples.
                batch = np.zeros((size, samples.shape[1]), np.float32)
                part = samples[begin : begin + size]
                batch[: len(part)] = part
                for stateful in find_statefuls(self.net_):
                    stateful.reset()
                parts.append(self._forward(Tensor(batch)).asnumpy()[: len(part)].astype(np.float64))
        return np.concatenate(parts)

    def __sklearn_is_fitted__(self) -> bool:
        return "n_iter_" in vars(self)

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = super().__getstate__()
        return {name: value for name, value in state.items() if name != "_forward"}  # compiled code is not copied

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if "net_" in state:
            self._forward = jit(self.net_)


class SNNClassifier(ClassifierMixin, SpikingEstimator):  # type: ignore[misc]
    """Spiking network classifier for scikit-learn: predict classes from a table of numbers.

    Use it in pipelines, cross-validation and grid search like any other classifier. With the default encoder, features
    should be about as large as the threshold, 1, so put a StandardScaler before the classifier. The other encoders need
    values in [0, 1], for example from a MinMaxScaler. Layers of spiking neurons receive the encoded samples for T time
    steps, and a last layer of weights gives scores z(t). The loss is the cross-entropy of softmax(mean over t of z).

    Args:
        hidden: the number of neurons in each layer, or one integer for a single layer.
        network: a function (n_features, n_outputs) that makes your own network instead. The Cell gets the output of the
            encoder, (T, B, n_features), and must return (T, B, n_outputs) or (B, n_outputs).
        neuron: for each layer, a name in `snncell.nn`, a class or function without arguments, or a neuron to copy.
        surrogate: the spike function in the same forms, from `snncell.surrogate`. None keeps the neuron's own.
        encoder: "current" for a constant current; "rate", "latency" or "phase" for spikes from values in [0, 1]; a
            function (x, steps) of samples (B, F) that returns (T, B, ...); or None, for a network that takes (B, F).
        steps: T, the number of time steps for which the network sees a sample.
        epochs, batch_size: the number of epochs, and of samples in each training step.
        optimizer: a name in `snncell.nn`, a class, or a function (params, learning_rate) that makes an optimiser.
        learning_rate: a number, or a schedule that counts training steps.
        weight_decay: the weight decay of the optimiser; None keeps its default.
        early_stopping: whether to validate on a part of the samples and keep the epoch with the lowest loss.
        validation_fraction: the part of the samples used for validation.
        patience: the number of epochs without improvement before training stops.
        callbacks: the callbacks of `train.fit`.
        fit_options: further arguments of `train.fit`, such as {"clip_norm": 1.0}.
        warm_start: whether `fit` continues with the network and the optimiser of the last call.
        random_state: an integer for reproducible weights, sample order and random spikes; a RandomState of NumPy; or
            None. It does not affect other random numbers of snncell.
        verbose: whether to show a progress bar.
    Attributes:
        classes_: the labels, sorted.
        net_: the network, a Cell that takes samples (B, F) as float32 and returns (B, n_outputs).
        optimiser_: the optimiser that trained it.
        history_: records of `train.fit`, one for each epoch.
        n_iter_: number of epochs.
        n_features_in_, feature_names_in_: as in all of scikit-learn.
    Raises: ArgumentError in `fit`, for invalid settings and for values outside of the encoder's range.
    Note: there are no sample weights. scikit-learn requires that a weight of 2 has the same effect as two copies of the
        sample, but a second copy also changes the batches.
    Source: the protocol of Buitinck et al., "API design for machine learning software", 2013.
    Example:
        >>> from sklearn.datasets import make_blobs
        >>> from sklearn.preprocessing import scale
        >>> from snncell.sklearn import SNNClassifier
        >>> x, y = make_blobs(200, centers=[[0, 0], [3, 3]], random_state=0)
        >>> SNNClassifier(16, epochs=20, random_state=0).fit(scale(x), y).score(scale(x), y) > 0.9
        True
    """

    classes_: Array
    _loss = nn.CrossEntropyLoss
    _accuracy = staticmethod(train.accuracy)
    _stratified = True

    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> Self:  # noqa: N803
        """Train for one epoch, and continue from the last call.

        Args:
            X, y: as for `fit`.
            classes: all labels that will ever occur; required in the first call unless y contains all of them.
        """
        anew = not self.__sklearn_is_fitted__()
        if classes is not None:
            known = np.unique(column_or_1d(classes))
            if not anew and not np.array_equal(known, self.classes_):
                raise ArgumentError(
                    f"{type(self).__name__}: classes were {_labels(self.classes_)} in the first call, and are "
                    f"{_labels(known)} now. They must stay the same."
                )
            self._classes = known
        try:
            return self._train(X, y, anew, epochs=1)
        finally:
            self.__dict__.pop("_classes", None)

    def predict(self, X: Any) -> Array:  # noqa: N803
        """The label (n,) of each sample."""
        largest = self._outputs(X).argmax(1)  # raises NotFittedError first, before `classes_` is read
        labels: Array = self.classes_[largest]
        return labels

    def predict_proba(self, X: Any) -> Array:  # noqa: N803
        """The probability of each class, (n, n_classes), in the order of `classes_`."""
        outputs = self._outputs(X)
        powers = np.exp(outputs - outputs.max(1, keepdims=True))
        return np.asarray(powers / powers.sum(1, keepdims=True))

    def _targets(self, y: Array, anew: bool) -> tuple[Array, int]:
        check_classification_targets(y)
        y = column_or_1d(y, warn=True)
        known = self.classes_ if not anew else getattr(self, "_classes", np.unique(y))
        if not np.isin(y, known).all():
            raise ArgumentError(
                f"{type(self).__name__}: y has labels that are not among the {len(known)} classes {_labels(known)}: "
                f"{_labels(np.setdiff1d(y, known))}."
            )
        if len(known) < 2:
            raise ArgumentError(
                f"{type(self).__name__}: it needs at least two classes, but y has one class, {_labels(known)}."
            )
        self.classes_ = known
        return np.searchsorted(known, y).astype(np.int64), len(known)


def _labels(labels: Array) -> str:
    return f"{labels.tolist()!r:.200}"


class SNNRegressor(RegressorMixin, SpikingEstimator):  # type: ignore[misc]
    """Spiking network regressor for scikit-learn: predict one or several numbers from a table of numbers.

    It trains the network of `SNNClassifier` with the mean squared error of (y - mean) / deviation. Mean and deviation
    of each column of y come from the first call, and predictions are scaled back, so you can use any units.

    Args: hidden, network, neuron, surrogate, encoder, steps, epochs, batch_size, optimizer, learning_rate,
        weight_decay, early_stopping, validation_fraction, patience, callbacks, fit_options, warm_start, random_state,
        verbose: as for `SNNClassifier`.
    Attributes:
        target_mean_, target_scale_: mean and deviation of the columns of y.
        net_, optimiser_, history_, n_iter_, n_features_in_, feature_names_in_: as for `SNNClassifier`. Losses in the
            history are computed from the scaled y.
    Example:
        >>> import numpy as np
        >>> from snncell.sklearn import SNNRegressor
        >>> x = np.linspace(-1.5, 1.5, 100)[:, np.newaxis]
        >>> model = SNNRegressor(32, epochs=40, random_state=0).fit(x, np.column_stack([x**2, 100 * x]))
        >>> model.predict(x).shape, model.score(x, np.column_stack([x**2, 100 * x])) > 0.8
        ((100, 2), True)
    """

    target_mean_: Array
    target_scale_: Array
    _loss = nn.MSELoss
    _validation: ClassVar = {"multi_output": True, "y_numeric": True}

    def partial_fit(self, X: Any, y: Any) -> Self:  # noqa: N803
        """Train for one epoch, and continue from the last call."""
        return self._train(X, y, not self.__sklearn_is_fitted__(), epochs=1)

    def predict(self, X: Any) -> Array:  # noqa: N803
        """The predictions, (n,), or (n, n_targets) if y had two axes."""
        found: Array = self._outputs(X) * self.target_scale_ + self.target_mean_
        return found[:, 0] if self._flat else found

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def _targets(self, y: Array, anew: bool) -> tuple[Array, int]:
        flat, columns = y.ndim == 1, y.reshape(len(y), -1).astype(np.float64)
        if anew:
            self._flat = flat
            self.target_mean_ = columns.mean(0)
            deviation = columns.std(0)
            self.target_scale_ = np.where(deviation > 0.0, deviation, 1.0)
        elif columns.shape[1] != len(self.target_mean_):
            raise ArgumentError(
                f"{type(self).__name__}: y had {len(self.target_mean_)} columns before, and has {columns.shape[1]} "
                f"now. To train a new network, call fit with warm_start=False."
            )
        scaled = (columns - self.target_mean_) / self.target_scale_
        return scaled.astype(np.float32), columns.shape[1]


# --- The network: encoder, spiking layers, scores ---------------------------------------------------------------------

# Encoders by name, (x, steps) -> (T, B, F). All except "current" take values in [0, 1].
ENCODERS: dict[str, Callable[..., Tensor]] = {
    "current": encode.current,
    "latency": functools.partial(encode.latency, normalize=True),  # the latest spikes fall into the last step
    "phase": encode.phase,
    "rate": encode.rate,
}


class Scores(Cell):
    """Outputs (B, C) of a network for samples (B, F): encode, run, average over time."""

    def __init__(self, encoder: Any, steps: int) -> None:
        super().__init__()
        self.encoder, self.steps = encoder, steps  # a name of `ENCODERS`, a function (x, steps), or None; and T
        self.network: Cell | None = None  # (T, B, F), or (B, F) without an encoder -> (T, B, C) or (B, C)

    def encode(self, x: Tensor) -> Tensor:
        """The input of the network. Axes after B of an encoder's output (T, B, ...) are flattened."""
        if self.encoder is None:
            return x
        encoder = ENCODERS[self.encoder] if isinstance(self.encoder, str) else self.encoder
        spikes = as_tensor(encoder(x, self.steps), "encoder", "its result")
        return spikes.flatten(start_dim=2) if spikes.ndim > 3 else spikes

    def construct(self, x: Tensor) -> Tensor:
        assert self.network is not None
        scores: Tensor = self.network(self.encode(x))
        return scores.mean(0) if scores.ndim == 3 else scores


def network_of(who: str, settings: dict[str, Any], sample: np.ndarray[Any, Any], outputs: int) -> Scores:
    """Make the network for the settings, given one sample (1, F) and the number of outputs."""
    scores = Scores(settings["encoder"], settings["steps"])
    inputs = scores.encode(Tensor(sample)).shape[-1]
    factory = settings["network"]
    if factory is None:
        if settings["encoder"] is None:
            raise ArgumentError(
                f"{who}: encoder=None gives no time steps, but the spiking layers need them. Pass encoder='current', "
                f"or your own network=."
            )
        scores.network = _layers(who, settings, inputs, outputs)
        return scores
    scores.network = _call_maker(who, "network", factory, "a function (n_features, n_outputs)", inputs, outputs)
    if not isinstance(scores.network, Cell):
        raise ArgumentError(
            f"{who}: network must be a function (n_features, n_outputs) that returns a Cell, but it returned "
            f"{came(scores.network)}."
        )
    shape = scores(Tensor(sample)).shape
    if shape != (1, outputs):
        raise ArgumentError(
            f"{who}: for samples (B, {sample.shape[1]}) the network must return (T, B, {outputs}) or (B, {outputs}), "
            f"so that the mean over time is (B, {outputs}). For one sample the mean had the shape {shape}."
        )
    return scores


def _call_maker(who: str, name: str, maker: Any, words: str, *args: Any) -> Any:
    """Call a function or class from the settings, which must take these arguments and be no Cell."""
    if isinstance(maker, Cell) or not callable(maker):
        raise ArgumentError(f"{who}: {name} must be {words} that makes one for each fit, not {came(maker)}.")
    if wrong := misfit(maker, args):
        raise ArgumentError(f"{who}: {name} is called as {words}, but {show(maker)} does not take that: {wrong}.")
    return maker(*args)


def _layers(who: str, settings: dict[str, Any], inputs: int, outputs: int) -> Cell:
    hidden, layers = settings["hidden"], list[Cell]()
    for width in [hidden] if isinstance(hidden, int) else hidden:
        neuron = make_setting(who, "neuron", settings["neuron"], nn, Neuron)
        if settings["surrogate"] is not None:
            neuron.surrogate_function = make_setting(who, "surrogate", settings["surrogate"], surrogate, Cell)
        layers += [nn.Dense(inputs, width), nn.MultiStep(neuron)]
        inputs = width
    return nn.SequentialCell(*layers, nn.Dense(inputs, outputs))


def make_setting(who: str, name: str, value: Any, module: ModuleType, kind: type) -> Any:
    """Make an object of a class `kind` from a setting: a class name, a class or function, or an object to copy."""
    if isinstance(value, kind) and not isinstance(value, type):
        return copy.deepcopy(value)
    maker = find_class(who, name, value, module, kind) if isinstance(value, str) else value
    found = maker
    if callable(maker) and not isinstance(maker, Cell):
        found = _call_maker(who, name, maker, "a function () or a class without arguments")
    if not isinstance(found, kind):
        own = " To use your own network of Cells, pass network=." if isinstance(found, Cell) else ""
        raise ArgumentError(
            f"{who}: {name} must be the name of a class in {module.__name__}, such a class, a function that makes an "
            f"object of it, or a {kind.__name__}, not {came(found)}.{own}"
        )
    return found


def find_class(who: str, name: str, value: str, module: ModuleType, kind: type) -> Any:
    """Look up a class of a module by name."""
    classes = {one: getattr(module, one) for one in module.__all__ if isinstance(getattr(module, one), type)}
    known = [one for one, found in classes.items() if issubclass(found, kind) and found is not kind]
    if value not in known:
        raise ArgumentError(
            f"{who}: {name} must be one of {', '.join(known)}, not {value!r}{suggest_name(value, {}, known, '')}"
        )
    return classes[value]


def optimiser_of(who: str, settings: dict[str, Any], net: Cell) -> Optimizer:
    """Make the optimiser for the Parameters of a network."""
    maker, rate = settings["optimizer"], settings["learning_rate"]
    if isinstance(maker, str):
        maker = find_class(who, "optimizer", maker, nn, Optimizer)
    rate = copy.deepcopy(rate) if isinstance(rate, LearningRateSchedule) else rate
    decay = {} if settings["weight_decay"] is None else {"weight_decay": settings["weight_decay"]}
    found = maker(net.trainable_params(), rate, **decay)
    if not isinstance(found, Optimizer):
        raise ArgumentError(
            f"{who}: optimizer must be a class of nn, its name, or a function (params, learning_rate) that makes an "
            f"optimiser, not {came(found)}."
        )
    return found


def refuse_range(who: str, encoder: Any, values: np.ndarray[Any, Any]) -> None:
    """Raise an ArgumentError for values outside of [0, 1], if the encoder needs that range."""
    if encoder not in ("latency", "phase", "rate") or not values.size:
        return
    low, high = float(values.min()), float(values.max())
    if low < 0.0 or high > 1.0:
        raise ArgumentError(
            f"{who}: encoder={encoder!r} takes values in [0, 1], but X has values in [{low:g}, {high:g}]. Scale them: "
            f"make_pipeline(MinMaxScaler(clip=True), {who}(encoder={encoder!r}))."
        )


# No `guard`, because scikit-learn requires that `__init__` stores arguments unchanged and `fit` checks them.
_list_public(globals())
for _kind in (SNNClassifier, SNNRegressor):
    _kind.__init__.__signature__ = _plain_signature(_kind.__init__)  # type: ignore[attr-defined]
__getattr__ = _missing_from(__name__)
