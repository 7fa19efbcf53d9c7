"""Peers: the frameworks to compare with, their versions and threads."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

# By the name in tables. Spyx is missing: its LIF neuron resets one step later than those of the rows, and a custom
# neuron in Spyx is JAX's scan, which is in the tables.
MODULES = {
    "PyTorch": "torch",
    "SpikingJelly": "spikingjelly",
    "snnTorch": "snntorch",
    "Norse": "norse",
    "JAX": "jax",
    "Eventax": "eventax",
}


# Contestants that compile a part of PyTorch's network by torch.compile: one time step of its neurons, its neurons over
# all time steps, or the network with its loss. PyTorch then compiles the backward pass of this part too. Adam is a
# single kernel in all contestants.
COMPILED = {
    "PyTorch, compiled time step": "time step",
    "PyTorch, compiled neuron": "neuron",
    "PyTorch, compiled": "network",
}
compile_backend = "inductor"
_part = ""  # the part that the contestants made now compile
_compiled = 0  # the number of their compiled functions


def peer_of(contestant: str) -> str:
    """The peer of a contestant: "PyTorch" of "PyTorch, one thread"."""
    return contestant.partition(",")[0]


def present(wanted: list[str]) -> tuple[list[str], dict[str, str]]:
    """Those that can be imported, and why the others cannot.

    They are imported now: snncell's first parallel kernel may set how OpenMP waits.
    """
    found, absent = [], {}
    for peer in wanted:
        try:
            importlib.import_module(MODULES[peer])
        except Exception as error:  # whatever a foreign package raises as it is imported
            absent[peer] = f"{type(error).__name__}: {error}".splitlines()[0]
        else:
            found.append(peer)
    return found, absent


def versions(peers: list[str]) -> dict[str, str]:
    """The version of each."""
    return {MODULES[peer]: importlib.metadata.version(MODULES[peer]) for peer in peers}


@contextmanager
def compiling(part: str) -> Iterator[None]:
    """Compile this part of the contestants that are made in the block."""
    global _part, _compiled
    _part, _compiled = part, 0
    try:
        yield
        if not _compiled:
            raise ValueError(f"This contestant does not compile its {part}.")
    finally:
        _part = ""


def maybe_compiled(part: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """`torch.compile(function)` if the contestant compiles this part, otherwise the function.

    All shapes are static, so that PyTorch can use the sizes, and a function that PyTorch compiles only partly is an
    error, so that the time of an uncompiled one is not reported.
    """
    global _compiled
    if part != _part:
        return function
    _compiled += 1
    import torch

    torch._dynamo.config.recompile_limit = 64  # one entry for each shape of a layer
    torch._dynamo.config.fail_on_recompile_limit_hit = True
    return torch.compile(function, dynamic=False, fullgraph=True, backend=compile_backend)  # type: ignore[no-any-return]


def forget_compiled() -> None:
    """Drop the compiled code of earlier contestants, which PyTorch would try first at each call."""
    import torch

    torch._dynamo.reset()


def one_thread(run: Callable[..., Any]) -> Callable[..., Any]:
    """PyTorch's operations without its threads, which gain little where operations are small."""
    import torch

    def alone(*args: Any) -> Any:
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            return run(*args)
        finally:
            torch.set_num_threads(threads)

    return alone
