"""Torch modules of Cells."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import torch

from snncell.base.arguments.shown import came
from snncell.cell.cell import Cell
from snncell.errors import ArgumentTypeError, DeviceError, GradientError, NameClashError, ShapeError
from snncell.nn.time.multistep import MultiStep, count_states, initial_states
from snncell.torch.calls import CallFunction, CompiledCalls, SharedParameters, check_tensor, forward_operator


class FusedCell(torch.nn.Module):  # type: ignore[misc]
    """The module that `fused` returns."""

    def __init__(self, cell: Cell, neuron: bool, over_time: bool, with_states: bool) -> None:
        super().__init__()
        self.snncell = cell
        self._neuron, self._over_time, self._with_states = neuron, over_time, with_states
        self._places: list[tuple[torch.nn.Module, str]] = []  # the holder and name of the tensor of each Parameter
        for path, parameter in cell.parameters_and_names():
            self._register(path, parameter)
        cell.set_train(self.training)
        self._connect()

    def _register(self, path: str, parameter: Any) -> None:
        """Make a parameter or buffer of a submodule for each Parameter, so that paths are keys of `state_dict`."""
        who = f"fused({type(self.snncell).__name__})"
        if parameter.device != "cpu":
            raise DeviceError(
                f"{who}: Parameter {path!r} is on the GPU; fused modules run on the CPU. Use cell.to('cpu')."
            )
        *folders, name = path.split(".")
        holder: Any = self
        tensor = torch.from_numpy(parameter._data.copy())  # a copy, because earlier results may share the memory
        try:
            for folder in folders:
                if folder not in holder._modules:
                    holder.add_module(folder, torch.nn.Module())
                holder = holder._modules[folder]
            if parameter.requires_grad and parameter.dtype.is_float:
                holder.register_parameter(name, torch.nn.Parameter(tensor))
            else:
                holder.register_buffer(name, tensor)
        except KeyError as error:
            raise NameClashError(
                f"{who}: a torch module cannot have a parameter {path!r}: {error}. Rename it."
            ) from None
        self._places.append((holder, name))

    def _connect(self) -> None:
        """Make new compiled calls, and put the Parameters into the memory of their tensors."""
        cell, name = self.snncell, type(self.snncell).__name__
        call: Callable[..., Any] = cell
        if self._neuron:
            call = MultiStep(cell, return_states=self._with_states) if self._over_time else _step_of(cell)
        self._calls = CompiledCalls(name, call, SharedParameters(name, list(cell.get_parameters())))
        self._share()

    def _share(self) -> None:
        """Copy values that were written to Parameters of the Cell to their tensors, and share the memory again."""
        tensors = self._tensors()
        if all(x.device.type == "cpu" for x in tensors):  # otherwise the next call raises
            self._calls.shared.bind(tensors)

    def _tensors(self) -> list[Any]:
        return [getattr(holder, name) for holder, name in self._places]

    def forward(self, x: Any, *states: Any) -> Any:
        """Run the Cell."""
        inputs, parameters, calls = [x, *states], self._tensors(), self._calls
        if all(state is None for state in states):
            inputs = [x]
        autocast = torch.is_autocast_enabled("cpu")
        for number, tensor in enumerate(inputs):
            if not isinstance(tensor, torch.Tensor):
                raise ArgumentTypeError(
                    f"fused({calls.name}): input {number} must be a torch.Tensor, not {came(tensor)}. Use "
                    f"torch.as_tensor(x), or call the Cell itself: module.snncell."
                )
            if autocast and tensor.dtype in (torch.bfloat16, torch.float16):
                inputs[number] = tensor.float()  # as autocast does for operations that need float32
            check_tensor(inputs[number], f"fused({calls.name}): input {number}")
        gradient = torch.is_grad_enabled()
        wanted = tuple([gradient and tensor.requires_grad for tensor in (*inputs, *parameters)])
        if torch.compiler.is_compiling():
            results = forward_operator(calls.key, list(wanted), inputs, parameters)
        elif torch._C._are_functorch_transforms_active():
            raise GradientError(
                f"fused({calls.name}): torch.func transforms such as grad and vmap cannot see into compiled kernels. "
                f"Use loss.backward() or torch.autograd.grad, and put samples on the batch axis instead of vmap."
            )
        elif any(wanted):
            results = CallFunction.apply(calls, len(inputs), wanted, *inputs, *parameters)
        else:
            results = calls.run(inputs, parameters)
        return _fill(calls.structure, results)

    def reset_mem(self) -> Any:
        """The states before the first step, None for each; snnTorch's name."""
        states = (None,) * count_states(self.snncell)
        return states[0] if len(states) == 1 else states

    init_leaky = init_synaptic = init_alpha = init_lapicque = reset_mem  # names in snnTorch's tutorials

    # --- of torch.nn.Module -------------------------------------------------------------------------------------------

    def train(self, mode: bool = True) -> Self:
        """Switch the module and its Cell to training mode or to evaluation."""
        super().train(mode)
        self.snncell.set_train(mode)
        return self

    def state_dict(self, *args: Any, **options: Any) -> Any:
        """The state dict of the module, with values that were written to the Cell."""
        self._share()
        return super().state_dict(*args, **options)

    def _load_from_state_dict(self, *args: Any) -> None:
        self._share()  # before, so that the loaded values are the last ones
        super()._load_from_state_dict(*args)

    def _apply(self, fn: Any, recurse: bool = True) -> Self:
        self._share()
        super()._apply(fn, recurse)
        self._connect()
        return self

    def __repr__(self) -> str:
        return f"fused({self.snncell!r})"

    def __getstate__(self) -> dict[str, Any]:
        self._share()
        return {name: value for name, value in self.__dict__.items() if name != "_calls"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._connect()


class FusedNeuron(FusedCell):
    """A neuron that keeps its states from call to call."""

    _kept: tuple[Any, ...] = ()

    def forward(self, x: Any) -> Any:
        """Run the neuron from the states of the last call."""
        shape: Any = (x.shape[1:] if self._over_time else x.shape) if isinstance(x, torch.Tensor) else ()
        if self._kept and shape[:1] != self._kept[0].shape[:1]:
            raise ShapeError(
                f"fused({self._calls.name}): the kept states are of {self._kept[0].shape[0]} samples, but the input "
                f"has {shape[0]}. Call reset() between batches."
            )
        result = super().forward(x, *self._kept)
        self._kept = tuple(result[1] if self._over_time else result[1:])
        return result[0]

    def reset(self) -> None:
        """Begin the next call with the initial states, as SpikingJelly's `functional.reset_net` does."""
        self._kept = ()

    def detach(self) -> None:
        """Stop gradients between the last call and the next, as SpikingJelly's `functional.detach_net` does."""
        self._kept = tuple(state.detach() for state in self._kept)

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_kept": ()}


def _step_of(cell: Cell) -> Callable[..., Any]:
    """One step, from the initial states if no states are passed."""

    def step(x: Any, *states: Any) -> Any:
        return cell(x, *(states or initial_states(cell, x)))

    return step


def _fill(template: Any, tensors: Any) -> Any:
    """The structure with tensors in place of their numbers; plain Python, because torch.compile traces it."""
    if type(template) is int:
        return tensors[template]
    if isinstance(template, dict):
        return {key: _fill(part, tensors) for key, part in template.items()}
    if isinstance(template, (tuple, list)):
        parts = [_fill(part, tensors) for part in template]
        return tuple(parts) if isinstance(template, tuple) else parts
    return template
