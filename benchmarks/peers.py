"""Peers: the frameworks to compare with, their versions and threads."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
from collections.abc import Callable
from typing import Any

# By the name in tables. Spyx is missing: its LIF neuron resets one step later than those of the rows, and a custom
# neuron in Spyx is JAX's scan, which is in the tables.
MODULES = {
    "PyTorch": "torch",
    "SpikingJelly": "spikingjelly",
    "snnTorch": "snntorch",
    "Norse": "norse",
    "JAX": "jax",
}


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
