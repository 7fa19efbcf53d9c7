"""The forms in which a program of snncell is run, by what is asked of it. All forms of a kind must give the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import snncell
from snncell import Tensor, ops

from .weighting import LEARNING_RATE, weights_of

FORMS = (
    ("value", "eager"),
    ("value", "jit"),
    ("gradient", "eager"),
    ("gradient", "jit of gradient"),
    ("gradient", "gradient of jit"),
    ("second", "eager"),
    ("second", "jit of gradient"),
    ("second", "gradient of jit"),
    ("second", "gradient of gradient of jit"),
    ("training", "eager"),
    ("training", "jit"),
)
KINDS = tuple(dict.fromkeys(kind for kind, _ in FORMS))


def leaves(results: Any) -> list[Tensor]:
    """The Tensors in a structure, in order."""
    if isinstance(results, (tuple, list)):
        return [leaf for part in results for leaf in leaves(part)]
    return [] if results is None else [results]


def weighed(results: Sequence[Tensor]) -> Tensor:
    """A number made of all floats among the results."""
    total: Any = sum((r * Tensor(weights_of(r.shape))).sum() for r in results if r.dtype.is_float)
    return total


def forms(known: dict[str, Any]) -> dict[tuple[str, str], Callable[[], list[Any]]]:
    """Functions by (kind, form) that give arrays; each begins with the Parameters as they were.

    Args:
        known: the names that the text of a program makes.
    """
    program, inputs, trained, written = (known[name] for name in ("program", "inputs", "trained", "written"))
    positions, given = known["positions"] or None, known["given"]
    jit = snncell.jit

    def loss(*given: Tensor) -> Tensor:
        return weighed(program(*given))

    def slope_of(fn: Any) -> Any:
        gradient = snncell.grad(fn, positions, trained)
        return lambda *given: weighed(leaves(gradient(*given)))

    def gradient(fn: Any) -> Any:
        return snncell.value_and_grad(fn, positions, trained)

    def second(fn: Any) -> Any:
        return snncell.grad(fn, positions, trained)

    def training_step(*given: Tensor) -> Any:
        total, gradients = snncell.value_and_grad(loss, None, trained)(*given)
        before = [p.reshape(p.shape) for p in trained]
        for p, g in zip(trained, gradients, strict=True):
            ops.assign(p, p - g * LEARNING_RATE)
        return total, [p - old for p, old in zip(trained, before, strict=True)]

    def present() -> tuple[Tensor, ...]:
        """The inputs, of which those that are a Parameter's value have it as it is now."""
        return tuple(
            parameter.value() if parameter is not None else x for x, parameter in zip(inputs, given, strict=True)
        )

    def once(fn: Any) -> Any:
        return lambda: [fn(*present()), written]

    def twice(fn: Any) -> Any:
        return lambda: [fn(*present()), fn(*present()), written]

    runs = (
        twice(program),
        twice(jit(program)),
        once(gradient(loss)),
        once(jit(gradient(loss))),
        once(gradient(jit(loss))),
        once(second(slope_of(loss))),
        once(jit(second(slope_of(loss)))),
        once(second(jit(slope_of(loss)))),
        once(second(slope_of(jit(loss)))),
        twice(training_step),
        twice(jit(training_step)),
    )
    first = [p.asnumpy().copy() for p in (*trained, *written)]

    def from_the_start(run: Callable[[], Any]) -> Callable[[], list[Any]]:
        def arrays() -> list[Any]:
            for parameter, value in zip((*trained, *written), first, strict=True):
                parameter.set_data(value)
            return [leaf.asnumpy() for leaf in leaves(run())]

        return arrays

    return {key: from_the_start(run) for key, run in zip(FORMS, runs, strict=True)}
