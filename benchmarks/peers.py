"""Peers, which are the frameworks to compare with: their versions, threads and compiled contestants."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

# From the name in tables to the module. Spyx is missing, because its LIF neuron resets one step later than those of the
# rows, and a custom neuron in Spyx is JAX's scan, which the tables have.
MODULES = {
    "PyTorch": "torch",
    "SpikingJelly": "spikingjelly",
    "snnTorch": "snntorch",
    "Norse": "norse",
    "JAX": "jax",
    "Eventax": "eventax",
}


# Contestants that compile a part of PyTorch's network by torch.compile: one time step of its neurons, the neurons over
# all time steps, or the network with its loss. PyTorch also compiles the backward pass of this part. Adam is one kernel
# in all contestants.
COMPILED = {
    "PyTorch, compiled time step": "time step",
    "PyTorch, compiled neuron": "neuron",
    "PyTorch, compiled": "network",
}
compile_backend = "inductor"
_part = ""  # the part that contestants compile inside `compiling`
_compiled = 0  # the number of functions compiled inside `compiling`


def peer_of(contestant: str) -> str:
    """Return the framework of a contestant, for example "PyTorch" for "PyTorch, one thread"."""
    return contestant.partition(",")[0]


def import_peers(names: list[str]) -> tuple[list[str], dict[str, str]]:
    """Import peers. Return the names of the imported ones, and the reason for each missing one.

    Call it before the first parallel kernel of snncell, because this kernel can change how OpenMP waits.
    """
    imported, absent = [], {}
    for peer in names:
        try:
            importlib.import_module(MODULES[peer])
        except Exception as error:  # a foreign package can raise any error
            absent[peer] = f"{type(error).__name__}: {error}".splitlines()[0]
        else:
            imported.append(peer)
    return imported, absent


def versions(peers: list[str]) -> dict[str, str]:
    """Return the version of each module."""
    return {MODULES[peer]: importlib.metadata.version(MODULES[peer]) for peer in peers}


@contextmanager
def compiling(part: str) -> Iterator[None]:
    """Compile this part of contestants that are created in the block."""
    global _part, _compiled
    _part, _compiled = part, 0
    try:
        yield
        if not _compiled:
            raise ValueError(f"This contestant does not compile its {part}.")
    finally:
        _part = ""


def compile_part(part: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return `torch.compile(function)` inside `compiling(part)`, otherwise the function.

    Shapes are static, so that PyTorch can use the sizes. A graph break is an error, so that the table never has the
    time of a function that is only partly compiled.
    """
    global _compiled
    if part != _part:
        return function
    _compiled += 1
    import torch

    torch._dynamo.config.recompile_limit = 64  # one entry for each shape of a layer
    torch._dynamo.config.fail_on_recompile_limit_hit = True
    return torch.compile(function, dynamic=False, fullgraph=True, backend=compile_backend)  # type: ignore[no-any-return]


def reset_torch_compile() -> None:
    """Drop the compiled code of earlier contestants, because PyTorch would check it at each call."""
    import torch

    torch._dynamo.reset()


def run_on_one_thread(run: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that calls `run` with one thread of PyTorch, which is faster for small operations."""
    import torch

    def single(*args: Any) -> Any:
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            return run(*args)
        finally:
            torch.set_num_threads(threads)

    return single
