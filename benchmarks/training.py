"""Training steps: cross entropy and Adam around a network, the same in each framework.

A network is a function that gives logits (B, classes) and spikes, from Parameters that all begin with the same values.
What is measured is a step, which gives the loss; what is compared is the spikes and gradients of the first step, and
the losses of five.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import snncell
from benchmarks.frameworks import RATE
from benchmarks.peers import maybe_compiled
from benchmarks.row import Contestant
from snncell import Tensor, nn

COMPARED = 5  # steps whose losses are compared


def _found(spikes: Any, gradients: Sequence[Any], step: Callable[[], Any]) -> dict[str, Any]:
    named = {f"gradient {n}": g for n, g in enumerate(gradients)}
    return {"spikes": spikes, **named, "losses": [float(step()) for _ in range(COMPARED)]}


def snncell_training(net: Callable[[Any], tuple[Any, Any]], params: list[Any], x: Any, y: Any) -> Contestant:
    """A jitted step; `net(x)` gives logits and spikes."""
    loss_fn, optimiser = nn.CrossEntropyLoss(), nn.Adam(params, RATE)
    given, labels = Tensor(x), Tensor(y)

    def loss(x: Tensor, y: Tensor) -> Any:
        logits, spikes = net(x)
        return loss_fn(logits, y), spikes

    gradients = snncell.value_and_grad(lambda x, y: loss(x, y)[0], None, params)

    @snncell.jit
    def step(x: Tensor, y: Tensor) -> Tensor:
        value, grads = gradients(x, y)
        optimiser(grads)
        return value  # type: ignore[no-any-return]

    def found() -> dict[str, Any]:
        (_, spikes), grads = snncell.value_and_grad(loss, None, params, has_aux=True)(given, labels)
        return _found(spikes, grads, lambda: step(given, labels))

    return Contestant(lambda: step(given, labels), found)


def torch_training(net: Callable[..., tuple[Any, Any]], weights: list[Any], x: Any, y: Any) -> Contestant:
    """PyTorch's step with its fused Adam; `net(x, *params)` gives logits and spikes."""
    import torch

    params = [torch.from_numpy(weight.copy()).requires_grad_() for weight in weights]
    adam = torch.optim.Adam(params, RATE, fused=True)
    given, labels = torch.from_numpy(x), torch.from_numpy(y)

    def loss() -> Any:
        logits, spikes = net(given, *params)
        return torch.nn.functional.cross_entropy(logits, labels), spikes

    loss = maybe_compiled("network", loss)

    def step() -> Any:
        adam.zero_grad()
        value, _ = loss()
        value.backward()
        adam.step()
        return value.detach()

    def found() -> dict[str, Any]:
        value, spikes = loss()
        return _found(spikes.detach(), torch.autograd.grad(value, params), step)

    return Contestant(step, found)


def jax_training(net: Callable[..., tuple[Any, Any]], weights: list[Any], x: Any, y: Any) -> Contestant:
    """A jitted step with Adam written out; `net(x, *params)` gives logits and spikes."""
    import jax
    import jax.numpy as jnp

    given, labels = jax.device_put(x), jax.device_put(y)
    initial = [jax.device_put(weight) for weight in weights]

    def loss(params: Any, x: Any, y: Any) -> Any:
        logits, spikes = net(x, *params)
        return -jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None], 1).mean(), spikes

    train, state = adam_in_jax(loss, initial, RATE)

    def step() -> Any:
        nonlocal state
        value, state = jax.block_until_ready(train(state, given, labels))
        return value

    def found() -> dict[str, Any]:
        (_, spikes), grads = jax.value_and_grad(loss, has_aux=True)(initial, given, labels)
        return _found(spikes, grads, step)

    return Contestant(step, found)


def adam_in_jax(loss: Callable[..., Any], params: list[Any], rate: float) -> tuple[Callable[..., Any], Any]:
    """A jitted step of Adam, written out, on `loss(params, x, y) -> (value, aux)`, and its first state."""
    import jax
    import jax.numpy as jnp

    @jax.jit
    def train(state: Any, x: Any, y: Any) -> Any:
        t, params, first, second = state
        (value, _), grads = jax.value_and_grad(loss, has_aux=True)(params, x, y)
        t = t + 1
        first = [0.9 * m + 0.1 * g for m, g in zip(first, grads, strict=True)]
        second = [0.999 * v + 0.001 * g * g for v, g in zip(second, grads, strict=True)]
        params = [
            p - rate * (m / (1 - 0.9**t)) / (jnp.sqrt(v / (1 - 0.999**t)) + 1e-8)
            for p, m, v in zip(params, first, second, strict=True)
        ]
        return value, (t, params, first, second)

    zeros = [jnp.zeros_like(p) for p in params]
    return train, (jnp.float32(0.0), params, zeros, zeros)
