"""MindSpore's training Cells: a network with its loss, its gradients or its optimiser as one Cell."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Annotated, Any

from snncell import ops
from snncell.base.arguments.kinds import Count, Own, Positive, check_interval
from snncell.base.arguments.shown import came
from snncell.cell.cell import Cell
from snncell.errors import ArgumentError, ParameterError, ShapeError
from snncell.nn.optim.optimizer import Optimizer
from snncell.report.probe import refuse_foreign
from snncell.tape import structure
from snncell.tape.parameter import Parameter
from snncell.tape.tensor import Tensor

__all__ = [
    "ForwardValueAndGrad", "GradAccumulationCell", "ParameterUpdate", "TrainOneStepCell", "WithEvalCell",
    "WithGradCell", "WithLossCell",
]  # fmt: skip


class WithLossCell(Cell):
    """A network with its loss, a function or Cell of output and label: loss_fn(backbone(data), label).

    Example:
        >>> nn.WithLossCell(nn.ReLU(), nn.MSELoss())(Tensor([2.0]), Tensor([0.0])).item()
        4.0
    """

    def __init__(self, backbone: Cell, loss_fn: Callable[..., Any]) -> None:
        super().__init__(auto_prefix=False)  # do not rename the Parameters of the network
        self.backbone, self.loss_fn = backbone, loss_fn

    def construct(self, data: Any, label: Any) -> Any:
        return self.loss_fn(self.backbone(data), label)

    @property
    def backbone_network(self) -> Cell:
        """The network without its loss."""
        return self.backbone


class WithEvalCell(Cell):
    """A network for evaluation: (loss_fn(y, label), y, label) with y = network(data).

    Args:
        network, loss_fn: as for `WithLossCell`.
        add_cast_fp32: whether to convert y and label to float32 first.
    Example:
        >>> loss, y, label = nn.WithEvalCell(nn.ReLU(), nn.MSELoss())(Tensor([2.0]), Tensor([0.0]))
        >>> loss.item(), y.item(), label.item()
        (4.0, 2.0, 0.0)
    """

    def __init__(self, network: Cell, loss_fn: Callable[..., Any], add_cast_fp32: bool = False) -> None:
        super().__init__(auto_prefix=False)  # do not rename the Parameters of the network
        self.network, self.loss_fn, self.add_cast_fp32 = network, loss_fn, add_cast_fp32

    def construct(self, data: Any, label: Any) -> Any:
        y = self.network(data)
        if self.add_cast_fp32:
            y, label = structure.map_leaves(_as_float32, y), structure.map_leaves(_as_float32, label)
        return self.loss_fn(y, label), y, label


def _as_float32(x: Tensor) -> Tensor:
    return x.astype("float32") if x.dtype.is_float else x


class WithGradCell(Cell):
    """The gradients of `loss_fn(network(data), label)` with respect to the network's trainable Parameters, as a tuple.

    Args:
        network, loss_fn: as for `WithLossCell`; by default the output of the network is the loss.
        sens: the gradient to start from; by default ones.
    Example:
        >>> net = nn.Dense(1, 1, weight_init="ones")
        >>> nn.WithGradCell(net, nn.MSELoss())(Tensor([[2.0]]), Tensor([[0.0]]))[0].shape
        (1, 1)
    """

    def __init__(
        self,
        network: Cell,
        loss_fn: Callable[..., Any] | None = None,
        sens: Annotated[Tensor | float | None, Own()] = None,
    ) -> None:
        super().__init__(auto_prefix=False)  # do not rename the Parameters of the network
        self.network = network if loss_fn is None else WithLossCell(network, loss_fn)
        if sens is not None and not isinstance(sens, Tensor):
            sens = check_interval(sens, -math.inf, math.inf, "WithGradCell", "sens")
        self.sens = sens
        self._weights()

    def _weights(self) -> Sequence[Parameter]:
        trainable = self.network.trainable_params()
        if not trainable:
            raise ParameterError(f"WithGradCell: the {type(self.network).__name__} has no Parameters to train.")
        return trainable

    def construct(self, *inputs: Any) -> Any:
        return _gradients_of_scaled(self.network, self._weights(), self.sens, "WithGradCell")(*inputs)[1]


class ForwardValueAndGrad(Cell):
    """The value and the gradients of a network from one run: (value, gradients), as from `ops.GradOperation`.

    Args:
        network: a function or Cell of Tensors.
        weights: Parameters, for `get_by_list`.
        get_all, get_by_list, sens_param: as for `ops.GradOperation`.
    Example:
        >>> value, gradient = nn.ForwardValueAndGrad(lambda x: x * x)(Tensor(3.0))
        >>> value.item(), gradient.item()
        (9.0, 6.0)
    """

    def __init__(
        self,
        network: Annotated[Callable[..., Any], Own()],
        weights: Any = None,
        get_all: bool = False,
        get_by_list: bool = False,
        sens_param: bool = False,
    ) -> None:
        super().__init__(auto_prefix=False)  # do not rename the Parameters of the network
        if not callable(network) or isinstance(network, type):
            raise ArgumentError(f"ForwardValueAndGrad: network must be a function or a Cell, not {came(network)}.")
        self.network = network
        operation = ops.GradOperation(get_all, get_by_list, sens_param)
        self._of = operation.with_value(network, weights, "ForwardValueAndGrad")

    def construct(self, *inputs: Any) -> Any:
        return self._of(*inputs)


class TrainOneStepCell(Cell):
    """A training step as a Cell: forward, backward, optimiser; it returns the loss.

    With `jit`, and in GRAPH_MODE, it is one compiled Program, like `train.training_step`.

    Args:
        network: returns the loss of a batch, such as a `WithLossCell`.
        optimizer: an optimiser of the network's Parameters.
        sens: a factor of the gradients, in addition to the optimiser's `loss_scale`, which divides them; by default 1.
        return_grad: whether to return `(loss, {name: gradient})`.
    Example:
        >>> net = nn.Dense(2, 1)
        >>> loss = nn.WithLossCell(net, nn.MSELoss())
        >>> step = jit(nn.TrainOneStepCell(loss, nn.SGD(net.trainable_params(), 0.1)))
        >>> losses = [step(ops.ones((4, 2)), ops.zeros((4, 1))).item() for _ in range(9)]
        >>> losses[-1] < 0.1 * losses[0]
        True
    """

    def __init__(
        self,
        network: Cell,
        optimizer: Annotated[Optimizer, Own()],
        sens: Positive | None = None,
        return_grad: bool = False,
    ) -> None:
        super().__init__(auto_prefix=False)  # do not rename the Parameters of the network
        if not isinstance(optimizer, Optimizer):
            raise ArgumentError(
                f"TrainOneStepCell: optimizer must be an optimiser, such as nn.Adam(network.trainable_params()), not "
                f"{came(optimizer)}."
            )
        self.network, self.optimizer = network, optimizer
        self.sens, self.return_grad = 1.0 if sens is None else sens, return_grad
        refuse_foreign(optimizer, "TrainOneStepCell", network)

    @property
    def weights(self) -> Sequence[Parameter]:
        """The trainable Parameters of the optimiser."""
        return self.optimizer.trainable_params()

    @property
    def grad(self) -> ops.GradOperation:
        """The gradient operation for your own `construct`: `self.grad(self.network, self.weights)(*inputs, sens)`."""
        return ops.GradOperation(get_by_list=True, sens_param=True)

    def construct(self, *inputs: Any) -> Any:
        weights, sens = self.weights, None if self.sens == 1.0 else self.sens
        loss, grads = _gradients_of_scaled(self.network, weights, sens, "TrainOneStepCell")(*inputs)
        self.optimizer(grads)
        if not self.return_grad:
            return loss
        paths = {id(parameter): path for path, parameter in self.network.parameters_and_names()}
        names = [parameter.name or paths[id(parameter)] for parameter in weights]
        if len(set(names)) < len(names):  # use paths, because layers share a name
            names = [paths[id(parameter)] for parameter in weights]
        return loss, dict(zip(names, grads, strict=True))


def _gradients_of_scaled(network: Cell, weights: Sequence[Parameter], sens: Any, who: str) -> Callable[..., Any]:
    """A function that returns the value of a network, and the gradients of Parameters times `sens`, if it is given."""
    if sens is None:
        return ops.value_and_grad(network, None, tuple(weights))

    def scaled(*inputs: Any) -> Any:  # the gradient of sum(value * sens) is the gradient that starts from sens
        value = network(*inputs)
        if not isinstance(value, Tensor):
            raise ArgumentError(f"{who}: with sens the network must return one Tensor, not {came(value)}.")
        factor = sens if isinstance(sens, Tensor) else ops.full(value.shape, float(sens), value.dtype)
        if factor.shape not in ((), value.shape):
            raise ShapeError(f"{who}: sens has shape {factor.shape}, but the output of the network {value.shape}.")
        return value * ops.stop_gradient(factor).astype(value.dtype), value

    def run(*inputs: Any) -> Any:
        (_, value), grads = of_scaled(*inputs)
        return value, grads

    of_scaled = ops.value_and_grad(scaled, None, tuple(weights), has_aux=True)
    return run


# --- assignment and gradient accumulation -----------------------------------------------------------------------------


class ParameterUpdate(Cell):
    """Assign to a Parameter, as a Cell: `construct(x)` is `ops.assign(param, x)`, and returns the new value.

    Example:
        >>> p = Parameter(Tensor([1.0]), name="p")
        >>> nn.ParameterUpdate(p)(Tensor([5.0])).item(), p.item()
        (5.0, 5.0)
    """

    def __init__(self, param: Annotated[Parameter, Own()]) -> None:
        super().__init__(auto_prefix=False)  # do not rename the Parameters of the network
        if not isinstance(param, Parameter):
            raise ParameterError(f"ParameterUpdate: param must be a Parameter, not {came(param)}.")
        self.param = param

    def construct(self, x: Tensor) -> Tensor:
        return ops.assign(self.param, x).value()


class GradAccumulationCell(Cell):
    """Run a network on equal parts of a batch one by one, and add up the results: out = sum_i network(part i).

    A sum of means is `micro_size` times the mean. To train with large batches, use `train.fit(accumulate=...)`.

    Args:
        network: returns a Tensor, such as a loss.
        micro_size: the number of parts.
    Example:
        >>> loss = nn.WithLossCell(nn.ReLU(), nn.MSELoss())
        >>> nn.GradAccumulationCell(loss, 2)(ops.ones((4, 1)), ops.zeros((4, 1))).item()
        2.0
    """

    def __init__(self, network: Cell, micro_size: Count) -> None:
        super().__init__(auto_prefix=False)  # do not rename the Parameters of the network
        self.network, self.micro_size = network, micro_size

    def construct(self, *inputs: Any) -> Any:
        parts = zip(*[self._parts(x) for x in inputs], strict=True)
        return functools.reduce(operator.add, (self.network(*part) for part in parts))

    def _parts(self, x: Tensor) -> Sequence[Tensor]:
        if not isinstance(x, Tensor):
            raise ArgumentError(f"GradAccumulationCell: inputs must be Tensors, not {came(x)}.")
        if not x.ndim or x.shape[0] % self.micro_size:
            raise ShapeError(
                f"GradAccumulationCell: an input of shape {x.shape} cannot be cut into {self.micro_size} equal parts "
                f"along its first axis."
            )
        size = x.shape[0] // self.micro_size
        return [x[n * size : (n + 1) * size] for n in range(self.micro_size)]
