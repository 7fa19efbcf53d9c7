"""Random numbers of samples: those that transforms draw for a sample, and those that made data consist of.

A process of a Loader also seeds the global generators of NumPy, Python and PyTorch for each sample. All such processes
begin with the same state, that of their parent, so they would all draw the same numbers, in every pass.
"""

from __future__ import annotations

import inspect
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import numpy as np

from snncell.base.arguments.kinds import Within
from snncell.errors import ArgumentError
from snncell.kernels.space import HOST
from snncell.ops.base import as_int
from snncell.ops.random import randint, replaying
from snncell.tape.state import settings
from snncell.tape.tensor import Tensor

Seed = Annotated[int, Within(0)]


def takes_rng(transform: Callable[..., Any]) -> bool:
    """True for a callable that takes a generator of random numbers, as `rng`."""
    try:
        return "rng" in inspect.signature(transform).parameters
    except (TypeError, ValueError):  # of C
        return False


@contextmanager
def sample_of(
    seed: int, epoch: int, index: int, global_generators: bool = False
) -> Iterator[Callable[[], np.random.Generator]]:
    """A context in which this thread draws from the sequence of a sample, and afterwards goes on with its own.

    It gives a function that makes the sample's generator. With `global_generators` it seeds `np.random`, `random`, and
    `torch` where it is imported, too.
    """
    mixed = np.random.SeedSequence((seed, epoch, index))
    if global_generators:
        words = mixed.spawn(1)[0].generate_state(8)
        np.random.seed(words)
        random.seed(words.tobytes())
        if (torch := sys.modules.get("torch")) is not None:
            torch.manual_seed(int(words[0]))
    key = int(mixed.generate_state(1, np.uint64)[0]) >> 2
    # A thread that makes data ahead for another one does not wait for its turn: these numbers are not the other's.
    with settings(turn=None, space=HOST), replaying(Tensor(np.array([key, 0]))):
        yield lambda: np.random.default_rng(mixed)


def draw_seed() -> int:
    """A seed that `set_seed` decides."""
    with settings(space=HOST):
        return int(randint(0, 2**62, ()).item())


def seed_or_draw(who: str, seed: int | None) -> int:
    """The seed, or one that `set_seed` decides; an ArgumentError for a seed below 0, or one that is no integer."""
    if seed is None:
        return draw_seed()
    if as_int(seed, who, "seed") < 0:
        raise ArgumentError(f"{who}: seed is an integer of at least 0, not {seed!r}.")
    return int(seed)


def generator(seed: int, *key: int) -> np.random.Generator:
    """Random numbers that depend on the seed and the key alone; those of different keys are independent."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=key)))
