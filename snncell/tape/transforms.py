"""Gradients of functions: `grad`, `value_and_grad`, `vjp`, `stop_gradient`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any

import numpy as np

from snncell.arguments.kinds import Own
from snncell.arguments.shown import came, shown
from snncell.errors import GradientError, ShapeError
from snncell.kernels.space import DEVICE, moved
from snncell.tape import structure
from snncell.tape.custom import alias, as_read
from snncell.tape.parameter import Parameter
from snncell.tape.state import STATE
from snncell.tape.tape import Entry, Tape, pullback, zeros_of
from snncell.tape.tensor import Tensor, in_trace, snapshot, wrap
from snncell.words import cut


class Recording:
    """A function that has been run under a tape, ready to be pulled back."""

    def __init__(
        self,
        fn: Callable[..., Any],
        args: Sequence[Any],
        positions: Sequence[int],
        weights: Any,
        kwargs: dict[str, Any],
        who: str,
    ) -> None:
        self.who = who
        self.arguments: list[tuple[list[Tensor], Any]] = []
        if len({position % len(args) for position in positions if args}) != len(positions) and args:
            raise GradientError(f"{who}: grad_position {tuple(positions)} names an argument twice.")
        call_args = list(args)
        for position in positions:
            if not -len(args) <= position < len(args):
                raise GradientError(f"{who}: grad_position {position}, but the function got {len(args)} argument(s).")
            leaves, tree = structure.flatten(call_args[position])
            watched = [_watch(leaf) for leaf in _differentiable(leaves, call_args[position], position, who)]
            self.arguments.append((watched, tree))
            call_args[position] = structure.unflatten(tree, watched)
        self.weights = _weights(weights, who)
        watched = [source for sources, _ in self.arguments for source in sources]
        # Tensors of their own, for a Parameter may be frozen, or replaced, before the gradient is pulled.
        self.sources = [*watched, *(wrap(p._data, p._entry) for p in self.weights or ())]
        if STATE.trace is not None:
            STATE.trace.gradient_targets.update(p._entry for p in self.weights or () if p._entry is not None)
        self.tape = Tape()
        with self.tape.active():
            # As read: where fn returns a Parameter, the result is the value that it has now.
            self.out = as_read(fn(*call_args, **kwargs))

    def pull(self, out: Any, sens: Any, release: bool) -> tuple[list[Any], list[Tensor] | None]:
        """Gradients for each watched argument, and for the weights."""
        leaves, _ = structure.flatten(out)
        seeds = _seeds(leaves, sens, self.who)
        release = release and STATE.tape is None  # an outer tape's sweep goes through the same entries
        pulled = pullback(self.tape.live(), leaves, seeds, self.sources, release=release)
        grads = iter([_or_zeros(grad, source) for grad, source in zip(pulled, self.sources, strict=True)])
        of_arguments = [structure.unflatten(tree, [next(grads) for _ in watched]) for watched, tree in self.arguments]
        return of_arguments, None if self.weights is None else list(grads)


def _watch(x: Tensor) -> Tensor:
    """The same value in a place of its own, so that other uses of `x` do not count; an outer tape sees through it."""
    if STATE.tape is not None and x._entry is not None:
        watched: Tensor = alias.bind(x)
        return watched
    # In a trace the source has to be a Value of it: an array with an entry of its own would pass for a Tensor from
    # outside that another gradient is taken through.
    data = in_trace(x)
    return wrap(data, Entry.source(data))


def _or_zeros(grad: Tensor | None, source: Tensor) -> Tensor:
    grad = zeros_of((source.shape, source._data.dtype)) if grad is None else grad
    # Zeros, and gradients made of numbers alone, are made on the host.
    return grad if STATE.trace is not None or grad.device == source.device else grad.to(source.device)


def _differentiable(leaves: list[Tensor], argument: Any, position: int, who: str) -> list[Tensor]:
    if not leaves:
        raise GradientError(
            f"{who}: argument {position} is a {type(argument).__name__}; gradients are taken with respect to Tensors. "
            f"Pass snncell.Tensor(...), or choose others by grad_position."
        )
    for leaf in leaves:
        if not leaf.dtype.is_float:
            raise GradientError(
                f"{who}: argument {position} has dtype {leaf.dtype}; there is no gradient with respect to integers or "
                f"booleans. Convert it (x.astype('float32')) or choose other arguments by grad_position."
            )
    return leaves


def listed_weights(weights: Any, who: str) -> tuple[Parameter, ...] | None:
    """The Parameters that a gradient is asked for, if any.

    Raises:
        GradientError: for what is none, or holds something else.
    """
    if weights is None:
        return None
    if not isinstance(weights, (Parameter, tuple, list)):
        raise GradientError(
            f"{who}: weights is a Parameter, or a tuple or list of them (net.trainable_params()), not "
            f"{cut(shown(weights), 60)}."
        )
    parameters = (weights,) if isinstance(weights, Parameter) else tuple(weights)
    for weight in parameters:
        if not isinstance(weight, Parameter):
            raise GradientError(f"{who}: weights holds a {type(weight).__name__}; only Parameters can be weights.")
    return parameters


def _weights(weights: Any, who: str) -> tuple[Parameter, ...] | None:
    parameters = listed_weights(weights, who)
    for weight in parameters or ():
        if not weight.requires_grad:
            raise GradientError(
                f"{who}: Parameter {weight.name!r} has requires_grad=False. Set it to True or leave it out of weights."
            )
        if not weight.dtype.is_float:
            raise GradientError(f"{who}: Parameter {weight.name!r} has dtype {weight.dtype}, which has no gradient.")
    return parameters


def _seeds(leaves: list[Tensor], sens: Any, who: str) -> list[Tensor | None]:
    """The gradients that go in at the outputs: `sens`, or ones for each output that can carry a gradient."""
    if not leaves:
        raise GradientError(f"{who}: the function returned no Tensor, so there is nothing to differentiate.")
    if not any(leaf.dtype.is_float for leaf in leaves):
        kinds = ", ".join(repr(leaf.dtype) for leaf in leaves)
        raise GradientError(f"{who}: the function returned {kinds}, which has no gradient. Return floats.")
    if sens is None:
        return [_ones(leaf) if leaf.dtype.is_float else None for leaf in leaves]
    seeds, _ = structure.flatten(sens)
    if len(seeds) != len(leaves):
        raise GradientError(f"{who}: {len(seeds)} gradient(s) for {len(leaves)} output(s); give one for each.")
    for number, (seed, leaf) in enumerate(zip(seeds, leaves, strict=True)):
        if seed.shape != leaf.shape:
            raise ShapeError(
                f"{who}: the gradient for output {number} has shape {seed.shape}, the output itself {leaf.shape}."
            )
    return list(seeds)


def _ones(leaf: Tensor) -> Tensor:
    ones = np.broadcast_to(np.ones((), leaf._data.dtype), leaf.shape)
    return wrap(moved(ones, DEVICE) if leaf.device == "gpu" else ones)


def value_and_grad(
    fn: Annotated[Callable[..., Any], Own()],
    grad_position: int | tuple[int, ...] | None = 0,
    weights: Any = None,
    has_aux: bool = False,
) -> Callable[..., Any]:
    """A function that gives the value of `fn` and its gradients.

    The value is differentiated in reverse from ones (an output that is not a scalar counts as its sum; several
    outputs are added).

    Args:
        fn: a function or Cell of Tensors.
        grad_position: the argument to differentiate with respect to: an int or a 1-tuple gives a bare gradient, a
            longer tuple a tuple, None none. An argument that is a tuple, list or dict of Tensors gets a gradient of
            the same structure.
        weights: a Parameter (bare gradient) or several (a tuple), beside or instead of the arguments. With both, the
            gradients are a pair.
        has_aux: `fn` returns `(loss, *aux)`, and only `loss` is differentiated.

    Returns:
        A function with `fn`'s arguments that returns `(value, gradients)`.

    Raises:
        GradientError: for an argument that is no float Tensor, a weight that is no Parameter, or an output without a
            gradient.

    Example:
        >>> value_and_grad(lambda x: x * x)(Tensor(3.0))
        (Tensor(shape=[], dtype=Float32, value= 9), Tensor(shape=[], dtype=Float32, value= 6))
    """
    return _gradient_function(fn, grad_position, weights, has_aux, True, "value_and_grad")


def grad(
    fn: Annotated[Callable[..., Any], Own()],
    grad_position: int | tuple[int, ...] | None = 0,
    weights: Any = None,
    has_aux: bool = False,
) -> Callable[..., Any]:
    """A function that gives the gradients of `fn`; its arguments are those of `value_and_grad`.

    Returns:
        A function with `fn`'s arguments that returns the gradients, or `(gradients, aux)` with `has_aux`.

    Example:
        >>> grad(grad(lambda x: x * x * x))(Tensor(2.0))
        Tensor(shape=[], dtype=Float32, value= 12)
    """
    return _gradient_function(fn, grad_position, weights, has_aux, False, "grad")


def _gradient_function(
    fn: Callable[..., Any], grad_position: Any, weights: Any, has_aux: bool, with_value: bool, who: str
) -> Callable[..., Any]:
    if not callable(fn) or isinstance(fn, type):
        raise GradientError(f"{who}: fn is a function or a Cell, not {came(fn)}.")
    if isinstance(weights, Iterator):
        weights = tuple(weights)  # a generator could be used once only
    listed_weights(weights, who)
    positions = (grad_position,) if isinstance(grad_position, int) else tuple(grad_position or ())
    if not positions and weights is None:
        raise GradientError(f"{who}: nothing to differentiate with respect to; give grad_position or weights.")

    def gradients(*args: Any, **kwargs: Any) -> Any:
        recording = Recording(fn, args, positions, weights, kwargs, who)
        out = recording.out
        value, aux = _without_aux(out, who) if has_aux else (out, ())
        of_arguments, of_weights = recording.pull(value, None, release=True)
        parts: list[Any] = [of_arguments[0] if len(of_arguments) == 1 else tuple(of_arguments)] if of_arguments else []
        if of_weights is not None:
            parts.append(of_weights[0] if isinstance(weights, Parameter) else tuple(of_weights))
        result = parts[0] if len(parts) == 1 else tuple(parts)
        if with_value:
            return out, result
        return (result, aux) if has_aux else result

    return wraps(fn, gradients)


def _without_aux(out: Any, who: str) -> tuple[Any, tuple[Any, ...]]:
    if not isinstance(out, tuple) or not out:
        raise GradientError(f"{who}: with has_aux the function returns (loss, *aux), not a {type(out).__name__}.")
    return out[0], out[1:]


def wraps(fn: Callable[..., Any], wrapper: Callable[..., Any]) -> Callable[..., Any]:
    """Carry over the name and documentation of a function; a Cell's attributes are its own."""
    return functools.wraps(fn, updated=())(wrapper) if hasattr(fn, "__name__") else wrapper


def vjp(fn: Callable[..., Any], *inputs: Any, weights: Any = None, has_aux: bool = False) -> tuple[Any, ...]:
    """Run `fn` and give, beside its value, the function that pulls a gradient of the value back to the inputs.

    Args:
        fn: a function or Cell of Tensors.
        inputs: its arguments.
        weights: Parameters whose gradients are given too.
        has_aux: `fn` returns `(out, *aux)`, and only `out` is differentiated.

    Returns:
        `(out, pull)`, or `(out, pull, aux)` with `has_aux`. `pull(dout, ...)` takes a gradient for each output and
        returns one for each input: bare if there is one, else a tuple; with weights a pair. It may be called often.
    """
    positions = [i for i, x in enumerate(inputs) if _has_float(x)]
    recording = Recording(fn, inputs, positions, weights, {}, "vjp")
    out, aux = _without_aux(recording.out, "vjp") if has_aux else (recording.out, None)

    def pull(*douts: Any) -> Any:
        of_arguments, of_weights = recording.pull(out, douts, release=False)
        by_position = dict(zip(positions, of_arguments, strict=True))
        grads = tuple(by_position.get(i) for i in range(len(inputs)))
        result = grads[0] if len(grads) == 1 else grads
        if of_weights is None:
            return result
        return result, of_weights[0] if isinstance(weights, Parameter) else tuple(of_weights)

    return (out, pull, aux) if has_aux else (out, pull)


def _has_float(x: Any) -> bool:
    leaves, _ = structure.flatten(x)
    return bool(leaves) and all(leaf.dtype.is_float for leaf in leaves)


def stop_gradient(x: Any) -> Any:
    """`x` (a Tensor or a structure of them) with the same values, through which no gradient flows."""
    leaves, tree = structure.flatten(x)
    stopped = structure.unflatten(tree, [wrap(snapshot(leaf)._data) for leaf in leaves])
    return stopped if STATE.stops is None else STATE.stops(x, stopped)
