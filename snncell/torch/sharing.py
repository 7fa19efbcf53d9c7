"""Parameters of a Cell in the memory of torch tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from snncell.errors import DeviceError, DTypeError, GradientError, ShapeError
from snncell.tape.parameter import Parameter
from snncell.tape.tensor import wrap

DTYPES = (
    torch.float32, torch.float64, torch.float16, torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32,
    torch.int64,
)  # fmt: skip


def array_of(x: Any) -> Any:
    """A torch tensor as a NumPy array in the same memory."""
    return x.detach().numpy()


def check_tensor(x: Any, what: str) -> None:
    """Raise a DeviceError or DTypeError for a torch tensor that cannot be a NumPy array."""
    if x.device.type != "cpu" or x.layout is not torch.strided:
        place = f"on the device {x.device}" if x.device.type != "cpu" else f"stored as {x.layout}"
        raise DeviceError(
            f"{what} is {place}, but fused modules compute with dense tensors on the CPU. Convert it by "
            f"{'.to_dense()' if x.device.type == 'cpu' else '.cpu()'}, and keep the fused module on the CPU."
        )
    if x.dtype not in DTYPES:
        raise DTypeError(
            f"{what} has dtype {x.dtype}, which fused modules do not take. Convert it by .float() or .double(); under "
            f"torch.autocast, call the module in a block with torch.autocast('cpu', enabled=False)."
        )


class SharedParameters:
    """The Parameters of a Cell; `bind` makes their values views of torch tensors."""

    def __init__(self, name: str, parameters: Sequence[Parameter]) -> None:
        self.name, self.parameters = name, list(parameters)
        self.numbers = {id(p): n for n, p in enumerate(self.parameters)}
        self.tensors: list[Any] = [None] * len(self.parameters)
        # For each Parameter its array, the address of its tensor, and the tensor's version.
        self.seen: list[tuple[Any, int, int]] = [(None, 0, -1)] * len(self.parameters)
        self.outdated = False  # True if compiled calls are out of date, because a Parameter has another dtype

    def number_of(self, parameter: Parameter) -> int:
        """The position of a Parameter; an error if it does not belong to the Cell."""
        number = self.numbers.get(id(parameter))
        if number is None:
            raise GradientError(
                f"fused({self.name}): the Cell computes with Parameter {parameter.name!r}, which is not an attribute "
                f"of it, so PyTorch cannot train it. Set it as an attribute, or freeze it by requires_grad = False."
            )
        return number

    def bind(self, tensors: Sequence[Any], trained: Sequence[bool] = ()) -> None:
        """Make the Parameters views of these tensors, which get the values that were written to the Parameters since.
        `trained` has the new values of `requires_grad`, if there are any.
        """
        for number, (parameter, tensor) in enumerate(zip(self.parameters, tensors, strict=True)):
            array, address, version = self.seen[number]
            if array is not None and parameter._data is not array:
                _write(tensor, parameter._data)
            if address != tensor.data_ptr() or parameter._data is not array:
                array = self._view(parameter, tensor)
            self.tensors[number] = tensor
            present = tensor._version if parameter.limits and not tensor.is_inference() else 0
            if parameter.limits and version != present:
                value = parameter._project(wrap(array))._data
                if not np.array_equal(value, array):
                    _write(tensor, value)
                    present += 1
            self.seen[number] = array, tensor.data_ptr(), present
        for parameter, gradient in zip(self.parameters, trained, strict=False):
            if parameter.requires_grad != gradient:
                parameter.requires_grad = gradient

    def _view(self, parameter: Parameter, tensor: Any) -> Any:
        what = f"fused({self.name}): Parameter {parameter.name!r}"
        check_tensor(tensor, what)
        array = array_of(tensor)
        if array.shape != parameter.shape:
            raise ShapeError(f"{what} has shape {parameter.shape}, but its torch tensor has {array.shape}.")
        if array.dtype == parameter._data.dtype:
            parameter._data = array
            return array
        self.outdated, trained = True, parameter.requires_grad
        parameter.requires_grad = False  # because its place on the tape has the old dtype
        parameter._data = array
        parameter.requires_grad = trained
        return array

    def publish(self) -> None:
        """Copy values that the Cell has written, such as statistics of BatchNorm, to the torch tensors."""
        for number, (parameter, (array, _, _)) in enumerate(zip(self.parameters, self.seen, strict=True)):
            if parameter._data is not array:
                tensor = self.tensors[number]
                _write(tensor, parameter._data)
                parameter._data = array


def _write(tensor: Any, value: Any) -> None:
    with torch.no_grad():
        tensor.copy_(torch.from_numpy(np.array(value)))
