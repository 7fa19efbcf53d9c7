"""PyTorch's part: loops and gradients as the rendered programs call them, and the forms in which they are run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from .weighting import LEARNING_RATE, weights_of

Tensors = Sequence[Any]


def fitted(grad: Any, x: Any) -> Any:
    """A gradient summed to the shape of its input, as snncell does."""
    return grad.sum_to_size(x.shape)


def scan(step: Callable[..., Any], init: Tensors, xs: Tensors, reverse: bool = False) -> tuple[Tensors, Tensors]:
    carry, collected = tuple(init), []
    steps = range(len(xs[0]))
    for t in reversed(steps) if reverse else steps:
        carry, ys = step(carry, tuple(x[t] for x in xs))
        collected.append(ys or ())
    columns = zip(*(collected[::-1] if reverse else collected), strict=True)
    return carry, tuple(torch.stack(column) for column in columns)


def run(neuron: Callable[..., Any], x: Any, states: Tensors) -> tuple[Any, Tensors]:
    """A neuron over time; states that are None begin at zero."""
    now, ys = tuple(torch.zeros_like(x[0]) if s is None else s for s in states), []
    for part in x:
        y, *now = neuron(part, *now)
        ys.append(y)
    return torch.stack(ys), tuple(now)


def gradient(fn: Callable[..., Any], at: Tensors, weights: Sequence[str], known: dict[str, Any]) -> Tensors:
    """Gradients of the sum of fn(*at): with respect to its arguments, and to the names `weights` as `fn` reads them.

    Each gets a place of its own in the graph, so that what was computed from it before does not count.
    """
    outside = torch.is_grad_enabled()
    before = {name: known[name] for name in weights}
    with torch.enable_grad():
        places = [_place(x) for x in (*at, *before.values())]
        known.update(zip(weights, places[len(at) :], strict=True))
        try:
            total = fn(*places[: len(at)]).sum()
        finally:
            known.update(before)
        found = gradients(total, places)
    return found if outside else tuple(g.detach() for g in found)


def _place(x: Any) -> Any:
    return x * 1 if x.requires_grad else x.detach().clone().requires_grad_()


def gradients(total: Any, at: Tensors) -> Tensors:
    """Gradients that can be differentiated again; zeros where nothing flows."""
    if not total.requires_grad:
        return tuple(torch.zeros_like(x) for x in at)
    found = torch.autograd.grad(total, at, create_graph=True, allow_unused=True)
    return tuple(torch.zeros_like(x) if g is None else g for g, x in zip(found, at, strict=True))


# --- forms ------------------------------------------------------------------------------------------------------------


def weighed(results: Tensors) -> Any:
    """A number made of all floats among the results."""
    floats = [r for r in results if r.dtype == torch.float64]
    return sum((r * torch.from_numpy(weights_of(tuple(r.shape)))).sum() for r in floats)


def kinds(known: dict[str, Any]) -> dict[str, Callable[[], list[Any]]]:
    """The results of the program, by what is asked of it: the same as `forms.forms`, of which there are more."""
    program, inputs, trained, written = (known[name] for name in ("program", "inputs", "trained", "written"))
    first = {name: known[name] for name in written}
    for n in known["positions"]:
        inputs[n].requires_grad_()
    places = [*(inputs[n] for n in known["positions"]), *trained]

    def reset() -> None:
        known.update(first)

    def values() -> list[Any]:
        reset()
        return [*program(*inputs), *program(*inputs), *(known[name] for name in written)]

    def slopes() -> list[Any]:
        reset()
        total = weighed(program(*inputs))
        return [total, *gradients(total, places), *(known[name] for name in written)]

    def second() -> list[Any]:
        reset()
        found = gradients(weighed(program(*inputs)), places)
        return [*gradients(weighed(found), places), *(known[name] for name in written)]

    def training() -> list[Any]:
        """Two steps; `inputs` that are Parameters are read anew at each."""
        reset()
        results: list[Any] = []
        kept = [p.detach().clone() for p in trained]
        for _ in range(2):
            total = weighed(program(*inputs))
            steps = [(g * LEARNING_RATE).detach() for g in gradients(total, trained)]
            with torch.no_grad():
                for p, step in zip(trained, steps, strict=True):
                    p -= step
            results += [total, *(-step for step in steps)]
        with torch.no_grad():
            for p, old in zip(trained, kept, strict=True):
                p.copy_(old)
        return [*results, *(known[name] for name in written)]

    return {"value": values, "gradient": slopes, "second": second, "training": training}
