"""MindSpore's Model: a network with its loss, optimiser and metrics, to train, evaluate and predict."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Annotated, Any, Literal, cast

import numpy as np

from snncell.amp import LossScaler, auto_mixed_precision
from snncell.base.arguments.kinds import Count, Own, Size
from snncell.base.arguments.shown import came, show
from snncell.cell.cell import Cell
from snncell.cell.modes import phases
from snncell.compiler.jit import jit
from snncell.errors import ArgumentError
from snncell.mindspore.callbacks import RunContext
from snncell.mindspore.metrics import Loss, Metric, as_metrics
from snncell.mindspore.training_cells import TrainOneStepCell
from snncell.nn.optim.optimizer import Optimizer
from snncell.nn.time.states import find_statefuls
from snncell.tape.structure import as_data
from snncell.train.callbacks import Callback, Result, Training, sort_callbacks
from snncell.train.finite import as_scaler
from snncell.train.fit import fit
from snncell.train.passes import evaluate_with, tell_callbacks

__all__ = ["Model"]


class Model:
    """MindSpore's Model: a network with its loss, optimiser and metrics. It calls `train.fit` and `train.evaluate`.

    A training step is one compiled Program, with bitwise the results of `train.fit`.

    Args:
        network: a Cell; without loss_fn it returns the loss of a batch. A `nn.TrainOneStepCell` has loss and optimiser.
        loss_fn: a function or Cell of the output and the last column.
        optimizer: an optimiser of the network's Parameters; only training needs it.
        metrics: names, such as {"accuracy", "loss"}, or a dict by name of names, `train.Metric` objects, functions of
            (output, target), and `train.Monitored`. Evaluations measure them.
        eval_network: a Cell of all columns to evaluate instead of network and loss_fn, like `nn.WithEvalCell`.
        eval_indexes: the positions of loss, output and label in the result of eval_network; by default 0, 1 and 2.
        amp_level: "O0", or "O1" for products in float16: `amp.auto_mixed_precision`.
        loss_scale: as for `train.fit`.
    Example:
        >>> x = ops.uniform((64, 2))
        >>> net, y = nn.Dense(2, 2), (x[:, 0] > x[:, 1]).astype("int64")
        >>> adam = nn.Adam(net.trainable_params(), 0.1)
        >>> model = snncell.train.Model(net, nn.CrossEntropyLoss(), adam, metrics={"accuracy"})
        >>> _ = model.train(20, snncell.train.Batches(x, y, batch_size=16))
        >>> model.eval(snncell.train.Batches(x, y))["accuracy"] > 0.9
        True
    """

    def __init__(
        self,
        network: Cell,
        loss_fn: Annotated[Callable[..., Any] | None, Own()] = None,
        optimizer: Annotated[Optimizer | None, Own()] = None,
        metrics: Annotated[Any, Own()] = None,
        eval_network: Cell | None = None,
        eval_indexes: tuple[int, int, int] | None = None,
        amp_level: Literal["O0", "O1"] = "O0",
        *,
        loss_scale: Annotated[LossScaler | float | None, Own()] = None,
    ) -> None:
        if isinstance(loss_fn, Optimizer) or (optimizer is not None and not isinstance(optimizer, Optimizer)):
            raise ArgumentError(
                f"Model: takes a Cell, a loss and an optimiser, Model(network, loss_fn, optimizer), not "
                f"{came(loss_fn)} and {came(optimizer)}."
            )
        if loss_fn is not None and (not callable(loss_fn) or isinstance(loss_fn, type)):
            raise ArgumentError(f"Model: loss_fn must be a function or a Cell, not {came(loss_fn)}.")
        if isinstance(network, TrainOneStepCell):
            if loss_fn is not None or optimizer is not None:
                raise ArgumentError("Model: a TrainOneStepCell contains loss and optimiser; do not pass others.")
            refuse_own_step(network)
            network, optimizer = network.network, cast(Any, network).optimizer
        self.network, self.loss_fn, self.optimizer = network, loss_fn, optimizer
        self.metrics = as_metrics(metrics)
        self.eval_network, self.eval_indexes = eval_network, eval_indexes or (0, 1, 2)
        self.loss_scale = as_scaler(loss_scale, "Model")
        if amp_level != "O0":
            auto_mixed_precision(network, amp_level)
        self._predict = jit(network)

    @property
    def train_network(self) -> Cell:
        """The network that is trained."""
        return self.network

    @property
    def predict_network(self) -> Cell:
        """The network that predicts."""
        return self.network

    # --- training -----------------------------------------------------------------------------------------------------

    def train(
        self,
        epoch: Size,
        train_dataset: Annotated[Any, Own()],
        callbacks: Annotated[Callback | Sequence[Callback] | None, Own()] = None,
        dataset_sink_mode: bool = False,
        sink_size: int = -1,
        initial_epoch: Size = 0,
    ) -> Result:
        """Train the network.

        Args:
            epoch: the number of the last epoch.
            train_dataset: data as for `train.fit` (batches that are tuples of columns, the target last; or a tuple of
                arrays, which are shuffled), or a data set with create_tuple_iterator() and get_dataset_size().
            callbacks: one or several, called in order.
            dataset_sink_mode, sink_size: MindSpore's, without effect; callbacks are always called at each step.
            initial_epoch: the number of epochs before this run; `epoch` includes them.
        Returns: The `Result` of `train.fit`.
        """
        return self._fit("train", epoch, train_dataset, None, 1, callbacks, initial_epoch)

    def fit(
        self,
        epoch: Size,
        train_dataset: Annotated[Any, Own()],
        valid_dataset: Annotated[Any, Own()] = None,
        valid_frequency: Annotated[Count | Sequence[int], Own()] = 1,
        callbacks: Annotated[Callback | Sequence[Callback] | None, Own()] = None,
        dataset_sink_mode: bool = False,
        valid_dataset_sink_mode: bool = False,
        sink_size: int = -1,
        initial_epoch: Size = 0,
    ) -> Result:
        """Train the network, and evaluate loss and metrics between epochs.

        Args:
            epoch, train_dataset, callbacks, initial_epoch: as for `train`.
            valid_dataset: other data to evaluate on.
            valid_frequency: the number of epochs between evaluations, or a list of the epochs to evaluate after.
            dataset_sink_mode, valid_dataset_sink_mode, sink_size: as for `train`.
        Returns: The `Result` of `train.fit`; names of evaluation results begin with "test_".
        """
        return self._fit("fit", epoch, train_dataset, valid_dataset, valid_frequency, callbacks, initial_epoch)

    def _fit(self, who: str, epoch: int, data: Any, test: Any, every: Any, callbacks: Any, initial: int) -> Result:
        if self.optimizer is None:
            raise ArgumentError(f"Model.{who}: the optimiser is missing: Model(network, loss_fn, optimizer).")
        if initial > epoch:
            raise ArgumentError(f"Model.{who}: initial_epoch is {initial}, but the last epoch is {epoch}.")
        if test is not None and self.eval_network is not None:
            raise ArgumentError(
                "Model.fit: valid_dataset is evaluated with the trained network and loss_fn, not with eval_network. "
                "Call model.eval in a callback, or leave eval_network out."
            )
        listeners = [*sort_callbacks(() if callbacks is None else callbacks)]
        whole = self.loss_fn is None
        return fit(
            self.network,
            output_as_loss if self.loss_fn is None else self.loss_fn,
            self.optimizer,
            as_columns(data, whole, f"Model.{who}: train_dataset"),
            epoch - initial,
            validation=None if test is None else as_columns(test, whole, "Model.fit: valid_dataset"),
            test_every=every,
            accuracy=None,
            metrics={} if test is None else metrics_to_compile(self.metrics),
            loss_scale=self.loss_scale,
            callbacks=[ModelMetrics(self, listeners, initial), *listeners],
            progress=False,
        )

    def finish(self, record: dict[str, Any]) -> dict[str, Any]:
        """Replace means in a record by the results of their metrics, and return the record."""
        for before in ("", "test_"):
            for name, one in self.metrics.items():
                if isinstance(one, Metric) and not one.collects and before + name in record:
                    record[before + name] = one.result(record[before + name])
        return record

    def collecting(self) -> dict[str, Metric]:
        """The metrics with their own `update`, by name."""
        found = {name: one for name, one in self.metrics.items() if isinstance(one, Metric) and one.collects}
        if found and (self.eval_network is not None or self.loss_fn is None):
            raise ArgumentError(
                f"Model: {min(found)!r} has its own update, which needs the output of network; so pass network and "
                f"loss_fn separately, without an eval_network. Or define a method measured(self, output, target)."
            )
        if found and find_statefuls(self.network):
            raise ArgumentError(
                f"Model: {min(found)!r} has its own update, for which the network runs once more on each batch. This "
                f"would change the states of the Stateful in it. Define a method measured(self, output, target)."
            )
        return found

    # --- evaluation ---------------------------------------------------------------------------------------------------

    def eval(
        self,
        valid_dataset: Annotated[Any, Own()],
        callbacks: Annotated[Callback | Sequence[Callback] | None, Own()] = None,
        dataset_sink_mode: bool = False,
    ) -> dict[str, Any]:
        """Measure the metrics in evaluation mode, and return them by name; data as for `train`, but not shuffled."""
        if not self.metrics:
            raise ArgumentError('Model.eval: there are no metrics: Model(..., metrics={"accuracy", "loss"}).')
        net, loss, metrics, whole = self._evaluation_parts()
        listeners = sort_callbacks(() if callbacks is None else callbacks)
        listeners.insert(0, ModelMetrics(self, tuple(listeners), 0))
        training = Training(net, loss, cast(Any, self.optimizer), None, valid_dataset, 0, evaluating=True)
        listeners[0].on_fit_begin(training)
        for callback in listeners:
            callback.on_evaluation_begin(training)
        batches = as_columns(valid_dataset, whole, "Model.eval: valid_dataset")
        tell = partial(tell_callbacks, training=training, callbacks=listeners)
        found = evaluate_with(net, loss, batches, 64, None, metrics, (), None, tell)
        names = {name: "loss" if isinstance(one, Loss) else name for name, one in self.metrics.items()}
        training.record = {f"test_{name}": found[measured] for name, measured in names.items() if measured in found}
        for callback in listeners:
            callback.on_evaluation_end(training)
        return {name: training.record[f"test_{name}"] for name in self.metrics}

    def _evaluation_parts(self) -> tuple[Cell, Any, dict[str, Any], bool]:
        """The parts of an evaluation: network, loss, metrics, and whether the network takes all columns of a batch."""
        metrics = metrics_to_compile(self.metrics)
        if self.eval_network is not None:
            metrics = {name: self._of_parts(one) for name, one in metrics.items()}
            return self.eval_network, partial(output_part_as_loss, self.eval_indexes[0]), metrics, True
        if self.loss_fn is not None:
            return self.network, self.loss_fn, metrics, False
        if metrics:
            raise ArgumentError(
                f"Model.eval: the network returns only the loss, so {min(metrics)!r} has no output to measure. "
                f"Pass network and loss_fn separately, or an eval_network."
            )
        return self.network, output_as_loss, metrics, True

    def _of_parts(self, function: Any) -> Any:
        _, output, label = self.eval_indexes
        return lambda outs, _target: function(outs[output], outs[label])

    def predict(self, *predict_data: Any) -> Any:
        """The output of the network for the inputs of a batch, compiled, in evaluation mode.

        Example:
            >>> snncell.train.Model(nn.ReLU()).predict(Tensor([-1.0, 2.0]))
            Tensor(shape=[2], dtype=Float32, value= [ 0.00000000e+00,  2.00000000e+00])
        """
        with phases(self.network):
            self.network.set_train(False)
            return self._predict(*(as_data(x) for x in predict_data))


# --- data sets --------------------------------------------------------------------------------------------------------


class _Columns:
    """The batches of a data set. With `twice` the last column is doubled, for a network that takes all columns, because
    `train.fit` passes the last one to the loss only.
    """

    def __init__(self, source: Any, twice: bool, who: str) -> None:
        self.source, self.twice, self.who = source, twice, who

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        iterator = getattr(self.source, "create_tuple_iterator", None)
        for batch in self.source if iterator is None else iterator():
            if not isinstance(batch, (tuple, list)):
                raise ArgumentError(f"{self.who}: a batch must be a tuple of columns, not {came(batch)}.")
            yield (*batch, batch[-1]) if self.twice else tuple(batch)


class _Sized(_Columns):
    """The batches of a data set with a known number of batches."""

    def __len__(self) -> int:
        size = getattr(self.source, "get_dataset_size", None)
        return len(self.source) if size is None else int(size())


def as_columns(data: Any, twice: bool, who: str) -> Any:
    """Convert a data set to batches for `train.fit`, see `_Columns`."""
    if data is None:
        raise ArgumentError(f"{who}: there are no data.")
    own = hasattr(data, "create_tuple_iterator")
    if isinstance(data, tuple):
        return (*data, data[-1]) if twice else data
    if not own and not twice:
        return data
    if isinstance(data, type) or (not own and not hasattr(data, "__iter__")):
        raise ArgumentError(f"{who} must be batches that can be iterated again and again, not {show(data)}.")
    sized = hasattr(data, "get_dataset_size") or hasattr(data, "__len__")
    return (_Sized if sized else _Columns)(data, twice, who)


# --- loss, training step and metrics for `train.fit` ------------------------------------------------------------------


def output_as_loss(output: Any, _target: Any) -> Any:
    """The loss function of a network that returns the loss."""
    return output


def output_part_as_loss(place: int, outs: Any, _target: Any) -> Any:
    """The loss function of a network that returns the loss in a tuple."""
    if not isinstance(outs, (tuple, list)) or not -len(outs) <= place < len(outs):
        raise ArgumentError(
            f"Model.eval: eval_network returns a tuple with the loss at {place} (eval_indexes), not {came(outs)}."
        )
    return outs[place]


def refuse_own_step(cell: TrainOneStepCell) -> None:
    """Raise an ArgumentError for a TrainOneStepCell that computes something else than `train.fit` with its parts."""
    if type(cell).construct is not TrainOneStepCell.construct or cell.is_hooked:
        has = "hooks" if cell.is_hooked else "construct"
        raise ArgumentError(
            f"Model: the {type(cell).__name__} has its own {has}, but Model uses only loss and optimiser of a "
            f"nn.TrainOneStepCell. Call it in a loop, jit(cell), or clip and scale by train.fit(clip_norm=...)."
        )
    if cell.sens != 1.0:
        raise ArgumentError(
            f"Model: the TrainOneStepCell has sens={cell.sens:g}, a factor of its gradients, but Model takes the "
            f"gradients of the loss itself. Leave sens out, or call the step in a loop, jit(cell)."
        )


def metrics_to_compile(metrics: dict[str, Any]) -> dict[str, Any]:
    """The metrics that are part of the compiled step, in the form for `train.fit`."""
    apart = {name for name, one in metrics.items() if isinstance(one, Loss) or getattr(one, "collects", False)}
    own = {name: one for name, one in metrics.items() if name not in apart}
    return {name: one.measured if isinstance(one, Metric) else one for name, one in own.items()}


class ModelMetrics(Callback):
    """The first callback: fill the run context from the model, and put metrics into the records."""

    order = -1_000_000

    def __init__(self, model: Any, listeners: Sequence[Callback], initial: int) -> None:
        self.model, self.listeners, self.initial = model, listeners, initial

    def on_fit_begin(self, training: Training) -> None:
        args = training.run_context.original_args()
        args.network, args.loss_fn, args.metrics = self.model.network, self.model.loss_fn, self.model.metrics or None
        args.list_callback, args.initial_epoch = list(self.listeners), self.initial

    def on_evaluation_begin(self, training: Training) -> None:
        for metric in self.model.collecting().values():
            metric.clear()

    def on_eval_step_end(self, run_context: RunContext) -> None:
        if metrics := self.model.collecting():
            *inputs, target = run_context.original_args().batch
            output = self.model.predict(*inputs)
            for metric in metrics.values():
                metric.update(output, target)

    def on_evaluation_end(self, training: Training) -> None:
        self.model.finish(training.record)
        for name, metric in self.model.collecting().items():
            training.record[f"test_{name}"] = np.asarray(metric.eval()).tolist()

    def on_epoch_end(self, training: Training) -> None:
        if "test_loss" not in training.record:
            self.model.finish(training.record)
