"""RunContext: the argument of callbacks by MindSpore's names, with the parts of the training and its position."""

from __future__ import annotations

from typing import Any

from snncell.base.arguments.names import suggest_name
from snncell.errors import MissingNameError, RecordError

__all__ = ["RunContext", "RunParameters"]


class RunParameters:
    """The parts of a run and where it is, by MindSpore's names: `RunContext.original_args()`.

    A callback may set further attributes, which stay for the run.

    Attributes:
        network, optimizer, loss_fn, train_dataset, valid_dataset: its parts.
        metrics: the metrics of a `Model`, by name, or None.
        list_callback: the callbacks that are told.
        initial_epoch: how many epochs there were before, which are counted.
    """

    def __init__(self, training: Any) -> None:
        self._training = training
        self.network: Any = training.net
        self.optimizer: Any = training.optimiser
        self.loss_fn: Any = training.loss
        self.train_dataset, self.valid_dataset = training.data, training.test
        self.metrics: Any = None
        self.list_callback: Any = []
        self.initial_epoch = 0
        self.dataset_sink_mode, self.parallel_mode, self.device_number = False, "stand_alone", 1

    @property
    def train_network(self) -> Any:
        """The network that is trained."""
        return self.network

    @property
    def mode(self) -> str:
        """ "train", or "eval" while it is evaluated."""
        return "eval" if self._training.evaluating else "train"

    @property
    def epoch_num(self) -> int:
        """The number of epochs in all."""
        return int(self._training.epochs) + self.initial_epoch

    @property
    def cur_epoch_num(self) -> int:
        """The number of the present epoch, from 1."""
        return int(self._training.epoch) + self.initial_epoch

    @property
    def batch_num(self) -> int:
        """The number of batches of an epoch; where the data do not tell, of those that there were until now."""
        return int(self._training.batches or self._training.begun)

    @property
    def cur_step_num(self) -> int:
        """The number of the present batch, from 1, in all epochs; of an evaluation in that."""
        training = self._training
        return int(training.evaluated if training.evaluating else training.earlier + training.begun)

    @property
    def batch(self) -> Any:
        """The present batch of an evaluation: inputs, then the target."""
        return self._training.of_evaluation

    @property
    def net_outputs(self) -> Any:
        """The loss of the last batch, a Tensor."""
        return self._training.measured.get("loss")

    @property
    def eval_results(self) -> dict[str, Any]:
        """The numbers of the last evaluation, by name; {} before the first one."""
        history = self._training.history
        records = [self._training.record, *reversed(history)]
        found = ({k.removeprefix("test_"): x for k, x in one.items() if k.startswith("test_")} for one in records)
        return next(filter(None, found), {})

    def __getattr__(self, name: str) -> Any:
        raise MissingNameError(f"RunContext.original_args() has no {name!r}{suggest_name(name, {}, self.keys(), '')}")

    def __getitem__(self, name: str) -> Any:
        if name not in self:
            raise RecordError(f"original_args: there is no {name!r}.")
        return getattr(self, name)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and hasattr(self, name)

    def keys(self) -> list[str]:
        """The names of its attributes."""
        return sorted(
            one for one in {*dir(type(self)), *vars(self)} - {"get", "keys", "items"} if not one.startswith("_")
        )

    def items(self) -> list[tuple[str, Any]]:
        """Its attributes by name."""
        return [(name, getattr(self, name)) for name in self.keys()]

    def get(self, name: str, default: Any = None) -> Any:
        """One of its attributes by name, or a default."""
        return getattr(self, name, default)


class RunContext:
    """A run, for MindSpore's callbacks: what it is made of, and a way to stop it.

    Example:
        >>> class StopAtStep(snncell.train.Callback):
        ...     def on_train_step_end(self, run_context):
        ...         if run_context.original_args().cur_step_num == 3:
        ...             run_context.request_stop()
        >>> net = nn.Dense(2, 1)
        >>> model = snncell.train.Model(net, nn.MSELoss(), nn.SGD(net.trainable_params(), 0.1))
        >>> model.train(9, [(ops.ones((8, 2)), ops.zeros((8, 1)))], StopAtStep()).history[-1]["epoch"]
        2
    """

    def __init__(self, training: Any) -> None:
        self._training = training
        self._parameters = RunParameters(training)

    def original_args(self) -> RunParameters:
        """The parts of the run, and where it is."""
        return self._parameters

    def request_stop(self) -> None:
        """End the training after the present step."""
        self._training.stop("stopped by a callback")

    def get_stop_requested(self) -> bool:
        """True if somebody has asked for the end of the training."""
        return bool(self._training.stopped)
