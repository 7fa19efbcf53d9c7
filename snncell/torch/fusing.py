"""`fused`: a Cell as a torch.nn.Module. This module does not import PyTorch until it is called."""

from __future__ import annotations

from typing import Any, Literal

from snncell.base.signals import import_once
from snncell.cell.cell import Cell
from snncell.errors import ArgumentError, PackageError
from snncell.nn.time.multistep import count_states
from snncell.nn.time.states import find_statefuls

States = Literal["initial", "returned", "kept"]


def fused(cell: Cell, over_time: bool = True, states: States | None = None) -> Any:
    """Make a torch.nn.Module from a Cell, with one compiled kernel for the forward pass and one for the backward pass.

    Use it to replace the neuron of a PyTorch, SpikingJelly or snnTorch script, and keep the rest of the script. The
    module does what `nn.MultiStep(cell)` does: it runs a neuron over time, (T, B, ...) -> (T, B, ...). If the Cell
    has no states, for example a `MultiStep` or a whole network, the module calls it once with the whole input.

    Parameters of the Cell are parameters of the module under the same paths, in the same memory: optimisers of PyTorch
    train them, and `state_dict` contains them. Those with `requires_grad=False` are buffers. If an optimiser moves a
    learned constant out of its range, the next call moves it back. `module.snncell` is the Cell, and `module.train()`
    and `eval()` switch its mode.

    Inputs are torch tensors on the CPU: float32, float64, float16, integers or bools. Inputs, results and gradients
    share memory with these tensors; a kernel that needs contiguous memory makes its own copy. The first call for a
    combination of shapes and dtypes compiles the kernels, or loads them.

    Args:
        cell: a neuron, `construct(x, *states) -> (output, *states)`, or a Cell without states.
        over_time: False for a module of one time step, (B, ...) -> (B, ...), if your script has the loop over time.
        states: "initial" (the default over time): each call begins with the initial states, or with states that you
            pass. "returned" (the default for one step): `module(x, *states)` returns `(y, (state, ...))` over time, and
            `(y, state, ...)` for one step; pass None for all states to use the initial ones. "kept": a call
            continues from the states of the previous one, until `module.reset()`.
    Raises: ArgumentError for options that do not fit the Cell; PackageError without PyTorch. A call raises DeviceError
        for tensors on a GPU, and GradientError for second-order gradients and transforms of torch.func.
    Example:
        >>> import torch
        >>> from snncell.torch import fused
        >>> net = torch.nn.Sequential(torch.nn.Linear(4, 8), fused(nn.LIFNode.like("snntorch", beta=0.9)))
        >>> net(torch.ones(10, 2, 4)).shape  # (T, B, N)
        torch.Size([10, 2, 8])
    """
    neuron = _is_neuron(cell)
    chosen = states or ("initial" if over_time or not neuron else "returned")
    _refuse_settings(cell, neuron, over_time, chosen)
    try:
        import_once("torch")
    except ImportError as error:
        raise PackageError(
            f'fused: needs PyTorch. Install it by pip install "snncell[torch]", or the smaller one for the CPU only by '
            f"pip install torch --index-url https://download.pytorch.org/whl/cpu ({error})."
        ) from None
    from snncell.torch.module import FusedCell, FusedNeuron

    return (FusedNeuron if chosen == "kept" else FusedCell)(cell, neuron, over_time, chosen != "initial")


def _refuse_settings(cell: Cell, neuron: bool, over_time: bool, states: str) -> None:
    name = type(cell).__name__
    if not neuron and (not over_time or states != "initial"):
        raise ArgumentError(
            f"fused({name}): over_time and states are for neurons, Cells construct(x, *states) -> (output, *states), "
            f"but {name} has no states or runs over time itself. Leave them out, or pass the neuron itself."
        )
    if not over_time and states == "initial":
        raise ArgumentError(
            f"fused({name}): with over_time=False, states must be 'returned' or 'kept', because each step continues "
            f"with the states of the step before."
        )
    if find_statefuls(cell):
        raise ArgumentError(
            f"fused({name}): nn.Stateful stops gradients between calls, which PyTorch does not expect. Pass the neuron "
            f"with states='kept' instead."
        )
    if any(one._buffers for _, one in cell.cells_and_names()):
        raise ArgumentError(
            f"fused({name}): the Cell has buffers, which PyTorch could not load. Make them Parameters: "
            f"Parameter(value, requires_grad=False)."
        )


def _is_neuron(cell: Cell) -> bool:
    """True for a Cell of one time step with states."""
    if cell._over_time or getattr(cell, "construct", None) is None:
        return False
    return hasattr(cell, "init_state") or count_states(cell) > 0
