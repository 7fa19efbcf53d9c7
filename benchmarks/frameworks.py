"""Parts that contestants share: the same custom surrogate and LIF neuron in each framework, and runs with gradients.

SuperSpike:  s = x > 0  with the derivative  1 / (1 + 10 |x|)^2
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import snncell
from benchmarks.peers import compile_part
from benchmarks.row import Contestant
from snncell import Tensor, nn, ops

RATE = 1e-3  # of Adam
torch_device = "cpu"  # of PyTorch and SpikingJelly; `gpu.py` changes it


class SuperSpike(nn.Cell):
    """A step function with the derivative 1 / (1 + 10 |x|)^2."""

    def construct(self, x: Tensor) -> Tensor:
        return (x > 0).astype(x.dtype)

    def bprop(self, x: Tensor, out: Tensor, dout: Tensor) -> tuple[Tensor]:
        return (dout / ops.square(1.0 + 10.0 * ops.abs(x)),)


@functools.cache
def torch_spike(sharpness: float = 10.0) -> Any:
    import torch

    class Spike(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return (x > 0).to(x)

        @staticmethod
        def backward(ctx: Any, dout: Any) -> Any:
            (x,) = ctx.saved_tensors
            return dout / (1.0 + sharpness * x.abs()).square()

    return Spike.apply


@functools.cache
def spikingjelly_spike() -> Any:
    from spikingjelly.activation_based.surrogate import SurrogateFunctionBase

    class Surrogate(SurrogateFunctionBase):  # type: ignore[misc]
        @staticmethod
        def spiking_function(x: Any) -> Any:
            return torch_spike()(x)

    return Surrogate()


@functools.cache
def jax_spike() -> Any:
    import jax
    import jax.numpy as jnp

    @jax.custom_vjp
    def spike(x: Any) -> Any:
        return (x > 0).astype(x.dtype)

    def backward(x: Any, dout: Any) -> tuple[Any]:
        return (dout / jnp.square(1.0 + 10.0 * jnp.abs(x)),)

    spike.defvjp(lambda x: (spike(x), x), backward)
    return spike


# --- the LIF neuron over time: h = v + (x - v) / 2, s = h > 1, v = h - s ----------------------------------------------


def snncell_lif_layer(every: int | None = None) -> Any:
    return nn.MultiStep(nn.LIFNode(tau=2.0, surrogate_function=SuperSpike()), checkpoint_every=every)


def torch_layer(step: Callable[..., Any], states: int) -> Callable[..., Any]:
    """Return a layer that runs `step` in a loop over the slices of `unbind`, like a user of PyTorch.

    `step(now, *states, *weights)` returns spikes and new states. States start at zero. `layer(x, *weights)` returns
    the spikes of all steps.
    """
    import torch

    step = compile_part("time step", step)

    def layer(x: Any, *weights: Any) -> Any:
        state, out = [torch.zeros_like(x[0])] * states, []
        for now in x.unbind(0):
            s, *state = step(now, *state, *weights)
            out.append(s)
        return torch.stack(out)

    return compile_part("neuron", layer)


def torch_lif_layer() -> Callable[[Any], Any]:
    spike = torch_spike()

    def step(now: Any, v: Any) -> Any:
        h = v + (now - v) / 2.0
        s = spike(h - 1.0)
        return s, h - s

    return torch_layer(step, 1)


def spikingjelly_lif_layer() -> Callable[[Any], Any]:
    """SpikingJelly's LIFNode, which is a loop of PyTorch operations on a CPU."""
    from spikingjelly.activation_based import functional, neuron

    node = neuron.LIFNode(tau=2.0, v_reset=None, surrogate_function=spikingjelly_spike(), step_mode="m")

    def layer(x: Any) -> Any:
        functional.reset_net(node)
        return node(x)

    return layer


NORSE = {"tau_mem_inv": 500.0, "v_leak": 0.0, "v_th": 1.0, "v_reset": 0.0}


def norse_lif_layer(x: Any) -> Any:
    """Norse's LIFBox, step by step, with its "super" surrogate: the derivative 1 / (1 + |x|)^2 for any alpha."""
    import torch
    from norse.torch.functional.lif_box import LIFBoxFeedForwardState, LIFBoxParameters, lif_box_feed_forward_step
    from norse.torch.functional.reset import reset_subtract

    numbers = {name: torch.tensor(value) for name, value in NORSE.items()}
    p = LIFBoxParameters(**numbers, method="super", reset_method=reset_subtract)
    state, out = LIFBoxFeedForwardState(v=torch.zeros_like(x[0])), []
    for now in x.unbind(0):
        s, state = lif_box_feed_forward_step(now, state, p, dt=0.001)
        out.append(s)
    return torch.stack(out)


def snntorch_lif_layer() -> Callable[[Any], Any]:
    """snnTorch's Leaky neuron, step by step. Its reset is detached and comes one step later."""
    import snntorch
    import torch

    neuron = snntorch.Leaky(beta=0.5, spike_grad=torch_spike())

    def layer(x: Any) -> Any:
        mem, out = torch.zeros_like(x[0]), []
        for now in (x / 2.0).unbind(0):
            s, mem = neuron(now, mem)
            out.append(s)
        return torch.stack(out)

    return layer


def snncell_like(kind: str) -> Callable[[Any], Any]:
    """Return the snncell layer with the equations of another framework."""
    if kind == "Norse":
        return nn.MultiStep(nn.LIFNode.like("norse.LIFBox", **NORSE, method="super", reset_method="reset_subtract"))
    layer = nn.MultiStep(nn.LIFNode.like("snntorch", beta=0.5, spike_grad=SuperSpike()))
    return lambda x: layer(x / 2.0)


TORCH_LAYERS: dict[str, Callable[[], Callable[[Any], Any]]] = {
    "PyTorch": torch_lif_layer,
    "SpikingJelly": spikingjelly_lif_layer,
    "snnTorch": snntorch_lif_layer,
    "Norse": lambda: norse_lif_layer,
}
OTHER_EQUATIONS = ("snnTorch", "Norse")
OTHER_EQUATIONS_REMARK = (
    "snnTorch's Leaky resets one step later, without a gradient through the reset. Norse's LIFBox has another "
    "surrogate. Both are compared with snncell's neurons with the same equations (`like`), which do the same work."
)


def add_reference(kind: str, contestant: Contestant, reference: Callable[[Any], Contestant]) -> Contestant:
    """Add the snncell layer with the equations of this contestant as its reference, if they differ from the row's."""
    return replace(contestant, reference=reference(snncell_like(kind))) if kind in OTHER_EQUATIONS else contestant


def jax_lif_layer(x: Any) -> Any:
    import jax
    import jax.numpy as jnp

    spike = jax_spike()

    def step(v: Any, now: Any) -> tuple[Any, Any]:
        h = v + (now - v) / 2.0
        s = spike(h - 1.0)
        return h - s, s

    return jax.lax.scan(step, jnp.zeros_like(x[0]), x)[1]


# --- forward and backward ---------------------------------------------------------------------------------------------


def _label_results(out: Any, gradients: Any, spikes: bool) -> dict[str, Any]:
    return {"spikes" if spikes else "output": out, **{f"gradient {n}": g for n, g in enumerate(gradients)}}


def snncell_vjp(
    net: Any, leaves: list[Any], dout: Any, weights: Any = None, spikes: bool = True, jitted: bool = False
) -> Contestant:
    """Run forward and backward: the output, then the gradients of the leaves and of Parameters."""
    inputs, seed = [Tensor(x) for x in leaves], Tensor(dout)

    def both(seed: Any, *inputs: Any) -> Any:
        out, pull = ops.vjp(net, *inputs, weights=weights)
        return out, pull(seed)

    call = snncell.jit(both) if jitted else both

    def run() -> Any:
        out, grads = call(seed, *inputs)
        gradients = list(grads) if isinstance(grads, (tuple, list)) else [grads]
        if weights is not None:
            of_leaves, of_weights = gradients
            lists = (x if isinstance(x, (tuple, list)) else [x] for x in (of_leaves, of_weights))
            gradients = [g for each in lists for g in each]
        return _label_results(out, gradients, spikes)

    return Contestant(run)


def torch_vjp(net: Callable[..., Any], leaves: list[Any], dout: Any, spikes: bool = True) -> Contestant:
    """Run forward and backward: the output, then the gradients of all leaves."""
    import torch

    inputs = [torch.from_numpy(array).to(torch_device).requires_grad_() for array in leaves]
    seed = torch.from_numpy(dout).to(torch_device)
    net = compile_part("network", net)

    def run() -> Any:
        out = net(*inputs)
        return _label_results(out.detach(), torch.autograd.grad(out, inputs, seed), spikes)

    return Contestant(run)


def jax_vjp(net: Callable[..., Any], leaves: list[Any], dout: Any, spikes: bool = True) -> Contestant:
    """Run forward and backward, jitted: the output, then the gradients of all leaves."""
    import jax

    @jax.jit
    def both(dout: Any, *leaves: Any) -> Any:
        out, pull = jax.vjp(net, *leaves)
        return out, pull(dout)

    inputs = [jax.device_put(array) for array in (dout, *leaves)]
    return Contestant(lambda: _label_results(*jax.block_until_ready(both(*inputs)), spikes))
