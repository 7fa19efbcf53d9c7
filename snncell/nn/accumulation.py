"""Writes to Parameters, and a batch in parts, as Cells."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from snncell import ops
from snncell.arguments.kinds import Count, Own
from snncell.arguments.shown import came
from snncell.cell import Cell
from snncell.errors import ArgumentError, ParameterError, ShapeError
from snncell.tape.parameter import Parameter
from snncell.tape.tensor import Tensor

__all__ = ["GradAccumulationCell", "ParameterUpdate"]


class ParameterUpdate(Cell):
    """Replaces a Parameter's value, as a Cell: `construct(x)` is `ops.assign(param, x)`, and gives the Parameter.

    Args:
        param: the Parameter.

    Raises:
        ParameterError: for something else.

    Example:
        >>> p = Parameter(Tensor([1.0]), name="p")
        >>> nn.ParameterUpdate(p)(Tensor([5.0])).item(), p.item()
        (5.0, 5.0)
    """

    def __init__(self, param: Annotated[Parameter, Own()]) -> None:
        super().__init__(auto_prefix=False)  # whose Parameters keep the names of their network
        if not isinstance(param, Parameter):
            raise ParameterError(f"ParameterUpdate: param is a Parameter, not {came(param)}.")
        self.param = param

    def construct(self, x: Tensor) -> Tensor:
        return ops.assign(self.param, x).value()


class GradAccumulationCell(Cell):
    """A network over a batch in equal parts, one after the other, whose results are added up.

    out = sum_i network(part i). Of a loss that is a mean over samples, the sum is `micro_size` times that of the batch.
    A training with batches that do not fit into memory is `train.fit(accumulate=...)`.

    Args:
        network: gives a Tensor, such as a loss.
        micro_size: how many parts.

    Raises:
        ShapeError: for a batch that cannot be cut into so many.

    Example:
        >>> loss = nn.WithLossCell(nn.ReLU(), nn.MSELoss())
        >>> nn.GradAccumulationCell(loss, 2)(ops.ones((4, 1)), ops.zeros((4, 1))).item()
        2.0
    """

    def __init__(self, network: Cell, micro_size: Count) -> None:
        super().__init__(auto_prefix=False)  # whose Parameters keep the names of their network
        self.network, self.micro_size = network, micro_size

    def construct(self, *inputs: Any) -> Any:
        parts = [self._parts(x) for x in inputs]
        total: Any = None
        for own in zip(*parts, strict=True):
            out = self.network(*own)
            total = out if total is None else total + out
        return total

    def _parts(self, x: Tensor) -> Sequence[Tensor]:
        if not isinstance(x, Tensor):
            raise ArgumentError(f"GradAccumulationCell: inputs are Tensors, not {came(x)}.")
        if not x.ndim or x.shape[0] % self.micro_size:
            raise ShapeError(
                f"GradAccumulationCell: an input of shape {x.shape} cannot be cut into {self.micro_size} equal parts "
                f"along its first axis."
            )
        size = x.shape[0] // self.micro_size
        return [x[n * size : (n + 1) * size] for n in range(self.micro_size)]
