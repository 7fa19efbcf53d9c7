"""Random numbers for transforms and generated data: one generator per sample."""

from __future__ import annotations

import inspect
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import numpy as np

from snncell.base.arguments.kinds import Within
from snncell.kernels.space import HOST
from snncell.ops.random import randint, replaying
from snncell.tape.state import settings
from snncell.tape.tensor import Tensor

Seed = Annotated[int, Within(0)]


def takes_rng(transform: Callable[..., Any]) -> bool:
    """True for a callable with an argument `rng`."""
    try:
        return "rng" in inspect.signature(transform).parameters
    except (TypeError, ValueError):  # C functions have no signature
        return False


@contextmanager
def sample_of(
    seed: int, epoch: int, index: int, global_generators: bool = False
) -> Iterator[Callable[[], np.random.Generator]]:
    """Context in which this thread draws from a sample's random numbers; yields a function that makes its generator."""
    mixed = np.random.SeedSequence((seed, epoch, index))
    if global_generators:  # processes start with the same state, and would all draw the same numbers
        words = mixed.spawn(1)[0].generate_state(8)
        np.random.seed(words)
        random.seed(words.tobytes())
        if (torch := sys.modules.get("torch")) is not None:
            torch.manual_seed(int(words[0]))
    key = int(mixed.generate_state(1, np.uint64)[0]) >> 2
    # Prefetching threads do not wait for the reader's turn, because they do not draw from the reader's numbers.
    with settings(turn=None, space=HOST), replaying(Tensor(np.array([key, 0]))):
        yield lambda: np.random.default_rng(mixed)


def draw_seed() -> int:
    """Draw a seed from snncell's random numbers, which `set_seed` makes repeatable."""
    with settings(space=HOST):
        return int(randint(0, 2**62, ()).item())


def seed_or_draw(seed: int | None) -> int:
    """Return the seed, or draw one if it is None."""
    return draw_seed() if seed is None else seed


def generator(seed: int | None, *key: int) -> np.random.Generator:
    """A generator that depends only on the seed and the key; different keys give independent numbers."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed_or_draw(seed), spawn_key=key)))
