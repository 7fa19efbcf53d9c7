"""Training steps with cross entropy and Adam, the same in each framework.

A network is a function that returns logits (B, classes) and spikes. All frameworks start from the same weights. The
measured function is one step, which returns the loss. The compared results are the spikes and gradients of the first
step, and the losses of five steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import snncell
from benchmarks.frameworks import RATE
from benchmarks.peers import compile_part
from benchmarks.row import Contestant
from snncell import Tensor, nn

COMPARED = 5  # steps whose losses are compared


def _results(spikes: Any, gradients: Sequence[Any], step: Callable[[], Any]) -> dict[str, Any]:
    named = {f"gradient {n}": g for n, g in enumerate(gradients)}
    return {"spikes": spikes, **named, "losses": [float(step()) for _ in range(COMPARED)]}


def snncell_training(net: Callable[[Any], tuple[Any, Any]], params: list[Any], x: Any, y: Any) -> Contestant:
    """Train by a jitted step. `net(x)` returns logits and spikes."""
    loss_fn, optimiser = nn.CrossEntropyLoss(), nn.Adam(params, RATE)
    inputs, labels = Tensor(x), Tensor(y)

    def loss(x: Tensor, y: Tensor) -> Any:
        logits, spikes = net(x)
        return loss_fn(logits, y), spikes

    gradients = snncell.value_and_grad(lambda x, y: loss(x, y)[0], None, params)

    @snncell.jit
    def step(x: Tensor, y: Tensor) -> Tensor:
        value, grads = gradients(x, y)
        optimiser(grads)
        return value  # type: ignore[no-any-return]

    def results() -> dict[str, Any]:
        (_, spikes), grads = snncell.value_and_grad(loss, None, params, has_aux=True)(inputs, labels)
        return _results(spikes, grads, lambda: step(inputs, labels))

    return Contestant(lambda: step(inputs, labels), results)


def torch_training(net: Callable[..., tuple[Any, Any]], weights: list[Any], x: Any, y: Any) -> Contestant:
    """Train by PyTorch with its fused Adam. `net(x, *params)` returns logits and spikes."""
    import torch

    params = [torch.from_numpy(weight.copy()).requires_grad_() for weight in weights]
    adam = torch.optim.Adam(params, RATE, fused=True)
    inputs, labels = torch.from_numpy(x), torch.from_numpy(y)

    def loss() -> Any:
        logits, spikes = net(inputs, *params)
        return torch.nn.functional.cross_entropy(logits, labels), spikes

    loss = compile_part("network", loss)

    def step() -> Any:
        adam.zero_grad()
        value, _ = loss()
        value.backward()
        adam.step()
        return value.detach()

    def results() -> dict[str, Any]:
        value, spikes = loss()
        return _results(spikes.detach(), torch.autograd.grad(value, params), step)

    return Contestant(step, results)


def jax_training(net: Callable[..., tuple[Any, Any]], weights: list[Any], x: Any, y: Any) -> Contestant:
    """Train by a jitted step of JAX. `net(x, *params)` returns logits and spikes."""
    import jax
    import jax.numpy as jnp

    inputs, labels = jax.device_put(x), jax.device_put(y)
    initial = [jax.device_put(weight) for weight in weights]

    def loss(params: Any, x: Any, y: Any) -> Any:
        logits, spikes = net(x, *params)
        return -jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None], 1).mean(), spikes

    train, state = adam_in_jax(loss, initial, RATE)

    def step() -> Any:
        nonlocal state
        value, state = jax.block_until_ready(train(state, inputs, labels))
        return value

    def results() -> dict[str, Any]:
        (_, spikes), grads = jax.value_and_grad(loss, has_aux=True)(initial, inputs, labels)
        return _results(spikes, grads, step)

    return Contestant(step, results)


def adam_in_jax(loss: Callable[..., Any], params: list[Any], rate: float) -> tuple[Callable[..., Any], Any]:
    """Return a jitted step of Adam on `loss(params, x, y) -> (value, aux)`, and the initial state."""
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
