"""The forms of running a program in snncell, by kind of result. All forms of a kind must give the same results."""

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
    """Return the Tensors in a structure, in order."""
    if isinstance(results, (tuple, list)):
        return [leaf for part in results for leaf in leaves(part)]
    return [] if results is None else [results]


def weighted_sum(results: Sequence[Tensor]) -> Tensor:
    """Return the weighted sum of all elements of the float results."""
    total: Any = sum((r * Tensor(weights_of(r.shape))).sum() for r in results if r.dtype.is_float)
    return total


def forms(namespace: dict[str, Any]) -> dict[tuple[str, str], Callable[[], list[Any]]]:
    """Return functions by (kind, form) that return arrays. Each first resets the Parameters.

    Args:
        namespace: the names that the text of a program defines.
    """
    program, inputs, trained, written = (namespace[name] for name in ("program", "inputs", "trained", "written"))
    positions, sources = namespace["positions"] or None, namespace["sources"]
    jit = snncell.jit

    def loss(*args: Tensor) -> Tensor:
        return weighted_sum(program(*args))

    def slope_of(fn: Any) -> Any:
        gradient = snncell.grad(fn, positions, trained)
        return lambda *args: weighted_sum(leaves(gradient(*args)))

    def gradient(fn: Any) -> Any:
        return snncell.value_and_grad(fn, positions, trained)

    def second(fn: Any) -> Any:
        return snncell.grad(fn, positions, trained)

    def training_step(*args: Tensor) -> Any:
        total, gradients = snncell.value_and_grad(loss, None, trained)(*args)
        before = [p.reshape(p.shape) for p in trained]
        for p, g in zip(trained, gradients, strict=True):
            ops.assign(p, p - g * LEARNING_RATE)
        return total, [p - old for p, old in zip(trained, before, strict=True)]

    def current_inputs() -> tuple[Tensor, ...]:
        """Return the inputs; an input that is the value of a Parameter gets its present value."""
        return tuple(
            parameter.value() if parameter is not None else x for x, parameter in zip(inputs, sources, strict=True)
        )

    def once(fn: Any) -> Any:
        return lambda: [fn(*current_inputs()), written]

    def twice(fn: Any) -> Any:
        return lambda: [fn(*current_inputs()), fn(*current_inputs()), written]

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

    def after_reset(run: Callable[[], Any]) -> Callable[[], list[Any]]:
        def arrays() -> list[Any]:
            for parameter, value in zip((*trained, *written), first, strict=True):
                parameter.set_data(value)
            return [leaf.asnumpy() for leaf in leaves(run())]

        return arrays

    return {key: after_reset(run) for key, run in zip(FORMS, runs, strict=True)}
