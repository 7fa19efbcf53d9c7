"""Random numbers belong to a thread: what one draws does not depend on the others."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import snncell
from snncell import nn, ops

HOW: dict[str, Callable[[], Callable[[], Any]]] = {
    "eager": lambda: lambda: ops.uniform((3,)),
    "jitted": lambda: snncell.jit(lambda: ops.normal((3,))),
    "dropout": lambda: snncell.jit(lambda: ops.dropout(ops.ones(8), 0.5)),
    "loop": lambda: lambda: ops.scan(lambda c, x: (c + x * ops.uniform(()), c), ops.zeros(()), ops.ones((4,)))[0],
}


def on_thread(function: Callable[[], Any]) -> Any:
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(function()))
    thread.start()
    thread.join()
    return found[0]


@pytest.mark.compiled
@pytest.mark.parametrize("how", HOW)
def test_threads_that_set_a_seed_draw_what_they_draw_alone(how: str) -> None:
    draw = HOW[how]()

    def sequence(seed: int) -> list[Any]:
        snncell.set_seed(seed)
        return [np.array(draw().asnumpy()) for _ in range(30)]

    alone = [sequence(seed) for seed in range(3)]
    snncell.set_seed(9)
    first = draw().asnumpy()
    found: dict[int, Any] = {}
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        threads = [threading.Thread(target=lambda n=n: found.update({n: sequence(n)})) for n in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    for seed in range(3):
        np.testing.assert_array_equal(found[seed], alone[seed])
    second = draw().asnumpy()
    snncell.set_seed(9)
    np.testing.assert_array_equal([draw().asnumpy(), draw().asnumpy()], [first, second])


def test_a_thread_without_a_seed_draws_by_the_main_threads_seed_and_its_number() -> None:
    def two_threads() -> list[Any]:
        return [on_thread(lambda: ops.uniform((4,)).tolist()) for _ in range(2)]

    snncell.set_seed(3)
    before = two_threads()
    snncell.set_seed(3)
    main = ops.uniform((4,)).tolist()
    assert two_threads() == before
    assert before[0] != before[1] and main not in before
    snncell.set_seed(4)
    assert two_threads() != before


def test_a_seed_that_a_thread_sets_is_its_own() -> None:
    snncell.set_seed(3)
    expected = ops.uniform((4,)).tolist()
    snncell.set_seed(3)
    on_thread(lambda: snncell.set_seed(5))
    assert ops.uniform((4,)).tolist() == expected


@pytest.mark.parametrize("arguments", [(-1,), (2**63,), (0, -1), (0, 2**63)])
def test_a_seed_lies_in_its_range(arguments: Any) -> None:
    snncell.set_seed(3)
    expected = ops.uniform((4,)).tolist()
    snncell.set_seed(3)
    with pytest.raises(ValueError, match=r"set_seed: .* must lie in \[0, 2\^63\)"):
        snncell.set_seed(*arguments)
    assert ops.uniform((4,)).tolist() == expected


def test_weights_that_a_thread_makes_depend_on_its_seed_alone() -> None:
    def made() -> Any:
        snncell.set_seed(7)
        return nn.Dense(3, 2).weight.asnumpy().tolist()

    assert on_thread(made) == made()
