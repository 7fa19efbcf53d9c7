"""The random numbers of made data: a function of a seed, and of the number of a sample where there is one."""

from __future__ import annotations

from typing import Annotated

import numpy as np

from snncell.base.arguments.kinds import Within
from snncell.errors import ArgumentError
from snncell.kernels.space import HOST
from snncell.ops.base import as_int
from snncell.ops.random import randint
from snncell.tape.state import settings

Seed = Annotated[int, Within(0)]


def seed_or_draw(who: str, seed: int | None) -> int:
    """The seed, or one that `set_seed` decides.

    Raises:
        ArgumentError: for a seed below 0, or one that is no integer.
    """
    if seed is None:
        with settings(space=HOST):
            return int(randint(0, 2**62, ()).item())
    if as_int(seed, who, "seed") < 0:
        raise ArgumentError(f"{who}: seed is an integer of at least 0, not {seed!r}.")
    return int(seed)


def generator(seed: int, *key: int) -> np.random.Generator:
    """Random numbers that depend on the seed and the key alone; those of different keys are independent."""
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=key)))
