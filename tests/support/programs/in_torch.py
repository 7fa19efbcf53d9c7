"""Runtime of programs in PyTorch: loops and gradients that rendered programs call, and the kinds of results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from .weighting import LEARNING_RATE, weights_of

Tensors = Sequence[Any]


def sum_to_input(grad: Any, x: Any) -> Any:
    """Sum a gradient to the shape of its input, as snncell does."""
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
    """Run a neuron over time; states that are None start at zero."""
    now, ys = tuple(torch.zeros_like(x[0]) if s is None else s for s in states), []
    for part in x:
        y, *now = neuron(part, *now)
        ys.append(y)
    return torch.stack(ys), tuple(now)


def gradient(fn: Callable[..., Any], at: Tensors, weights: Sequence[str], namespace: dict[str, Any]) -> Tensors:
    """Return the gradients of the sum of fn(*at) with respect to its arguments and to the globals `weights`.

    Each of them becomes a new node of the graph, so that values computed from it earlier do not count.
    """
    recording = torch.is_grad_enabled()
    before = {name: namespace[name] for name in weights}
    with torch.enable_grad():
        sources = [_new_source(x) for x in (*at, *before.values())]
        namespace.update(zip(weights, sources[len(at) :], strict=True))
        try:
            total = fn(*sources[: len(at)]).sum()
        finally:
            namespace.update(before)
        grads = gradients(total, sources)
    return grads if recording else tuple(g.detach() for g in grads)


def _new_source(x: Any) -> Any:
    return x * 1 if x.requires_grad else x.detach().clone().requires_grad_()


def gradients(total: Any, at: Tensors) -> Tensors:
    """Return gradients that can be differentiated again; zeros for unused inputs."""
    if not total.requires_grad:
        return tuple(torch.zeros_like(x) for x in at)
    grads = torch.autograd.grad(total, at, create_graph=True, allow_unused=True)
    return tuple(torch.zeros_like(x) if g is None else g for g, x in zip(grads, at, strict=True))


# --- kinds of results -------------------------------------------------------------------------------------------------


def weighted_sum(results: Tensors) -> Any:
    """Return the weighted sum of all elements of the float results."""
    floats = [r for r in results if r.dtype == torch.float64]
    return sum((r * torch.from_numpy(weights_of(tuple(r.shape)))).sum() for r in floats)


def kinds(namespace: dict[str, Any]) -> dict[str, Callable[[], list[Any]]]:
    """Return functions by kind of result, with the results of `forms.forms`."""
    program, inputs, trained, written = (namespace[name] for name in ("program", "inputs", "trained", "written"))
    first = {name: namespace[name] for name in written}
    for n in namespace["positions"]:
        inputs[n].requires_grad_()
    sources = [*(inputs[n] for n in namespace["positions"]), *trained]

    def reset() -> None:
        namespace.update(first)

    def values() -> list[Any]:
        reset()
        return [*program(*inputs), *program(*inputs), *(namespace[name] for name in written)]

    def slopes() -> list[Any]:
        reset()
        total = weighted_sum(program(*inputs))
        return [total, *gradients(total, sources), *(namespace[name] for name in written)]

    def second() -> list[Any]:
        reset()
        grads = gradients(weighted_sum(program(*inputs)), sources)
        return [*gradients(weighted_sum(grads), sources), *(namespace[name] for name in written)]

    def training() -> list[Any]:
        """Run two training steps. Inputs that are Parameters have their present value in each step."""
        reset()
        results: list[Any] = []
        originals = [p.detach().clone() for p in trained]
        for _ in range(2):
            total = weighted_sum(program(*inputs))
            steps = [(g * LEARNING_RATE).detach() for g in gradients(total, trained)]
            with torch.no_grad():
                for p, step in zip(trained, steps, strict=True):
                    p -= step
            results += [total, *(-step for step in steps)]
        with torch.no_grad():
            for p, original in zip(trained, originals, strict=True):
                p.copy_(original)
        return [*results, *(namespace[name] for name in written)]

    return {"value": values, "gradient": slopes, "second": second, "training": training}
