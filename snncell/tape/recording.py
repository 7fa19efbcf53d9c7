"""A function that is run under a tape, and pulled back: beneath every gradient function."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from snncell.base.arguments.shown import show
from snncell.base.arguments.tracebacks import hide_frames
from snncell.base.text import cut
from snncell.errors import DTypeError, GradientError, ShapeError
from snncell.kernels.space import DEVICE, move_to_space
from snncell.tape import structure
from snncell.tape.backward import pullback, zeros_of
from snncell.tape.custom import alias, as_read
from snncell.tape.parameter import Parameter
from snncell.tape.state import RECORDING, TRACING, record_on
from snncell.tape.tape import Entry, Tape
from snncell.tape.tensor import Tensor, in_trace, wrap


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
        if TRACING.trace is not None:
            TRACING.trace.gradient_targets.update(dict.fromkeys(self.weights or ()))
        self.own: int | None = None  # how many of them, if not all, have all of their gradient here: see `pullback`
        self.tape = Tape()
        with record_on(self.tape):
            # As read: where fn returns a Parameter, the result is the value that it has now.
            self.out = as_read(fn(*call_args, **kwargs))

    def pull(self, out: Any, sens: Sequence[Tensor] | None, release: bool) -> tuple[list[Any], list[Tensor] | None]:
        """Gradients for each watched argument, and for the weights.

        Args:
            out: the outputs.
            sens: a gradient for each of the outputs, in order (see `seeds_for`); ones by default.
            release: whether the recording is needed no more.
        """
        leaves, _ = structure.flatten(out)
        seeds = _seeds(leaves, sens, self.who)
        release = release and RECORDING.tape is None  # an outer tape's sweep goes through the same entries
        own = None if self.own is None else self.sources[: self.own]
        pulled = pullback(self.tape.live(), leaves, seeds, self.sources, release=release, own=own)
        grads = iter([_or_zeros(grad, source) for grad, source in zip(pulled, self.sources, strict=True)])
        of_arguments = [structure.unflatten(tree, [next(grads) for _ in watched]) for watched, tree in self.arguments]
        return of_arguments, None if self.weights is None else list(grads)


def _watch(x: Tensor) -> Tensor:
    """The same value in a place of its own, so that other uses of `x` do not count; an outer tape sees through it."""
    if RECORDING.tape is not None and x._entry is not None:
        watched: Tensor = alias.bind(x)
        return watched
    # In a trace the source has to be a Value of it: an array with an entry of its own would pass for a Tensor from
    # outside that another gradient is taken through.
    data = in_trace(x)
    return wrap(data, Entry.source(data))


def _or_zeros(grad: Tensor | None, source: Tensor) -> Tensor:
    grad = zeros_of((source.shape, source._data.dtype)) if grad is None else grad
    # Zeros, and gradients made of numbers alone, are made on the host.
    return grad if TRACING.trace is not None or grad.device == source.device else grad.to(source.device)


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


def list_weights(weights: Any, who: str) -> tuple[Parameter, ...] | None:
    """The Parameters that a gradient is asked for, if any.

    Raises:
        GradientError: for what is none, or holds something else.
    """
    if weights is None:
        return None
    if not isinstance(weights, (Parameter, tuple, list)):
        raise GradientError(
            f"{who}: weights is a Parameter, or a tuple or list of them (net.trainable_params()), not "
            f"{cut(show(weights), 60)}."
        )
    parameters = (weights,) if isinstance(weights, Parameter) else tuple(weights)
    for weight in parameters:
        if not isinstance(weight, Parameter):
            raise GradientError(f"{who}: weights holds a {type(weight).__name__}; only Parameters can be weights.")
    return parameters


def _weights(weights: Any, who: str) -> tuple[Parameter, ...] | None:
    parameters = list_weights(weights, who)
    for weight in parameters or ():
        if not weight.requires_grad:
            raise GradientError(
                f"{who}: Parameter {weight.name!r} has requires_grad=False. Set it to True or leave it out of weights."
            )
        if not weight.dtype.is_float:
            raise GradientError(f"{who}: Parameter {weight.name!r} has dtype {weight.dtype}, which has no gradient.")
    return parameters


def seeds_for(out: Any, sens: Any, who: str) -> list[Tensor]:
    """The gradients in `sens` in the order of the outputs: those in a dict are matched by key.

    Raises:
        GradientError: if `sens` has another structure than `out`.
    """
    return structure.match_tensors(structure.flatten(out)[1], sens, f"{who}: the gradient of the output")


def _seeds(leaves: list[Tensor], sens: Sequence[Tensor] | None, who: str) -> list[Tensor | None]:
    """The gradients that go in at the outputs: `sens`, or ones for each output that can carry a gradient."""
    if not leaves:
        raise GradientError(f"{who}: the function returned no Tensor, so there is nothing to differentiate.")
    if not any(leaf.dtype.is_float for leaf in leaves):
        kinds = ", ".join(repr(leaf.dtype) for leaf in leaves)
        raise GradientError(f"{who}: the function returned {kinds}, which has no gradient. Return floats.")
    if sens is None:
        return [_ones(leaf) if leaf.dtype.is_float else None for leaf in leaves]
    if len(sens) != len(leaves):
        raise GradientError(f"{who}: {len(sens)} gradient(s) for {len(leaves)} output(s); give one for each.")
    for number, (seed, leaf) in enumerate(zip(sens, leaves, strict=True)):
        if seed.shape != leaf.shape:
            raise ShapeError(
                f"{who}: the gradient for output {number} has shape {seed.shape}, the output itself {leaf.shape}."
            )
        if leaf.dtype.is_float and seed.dtype != leaf.dtype:
            raise DTypeError(
                f"{who}: the gradient for output {number} has dtype {seed.dtype}, the output itself {leaf.dtype}. "
                f"Convert it: sens.astype({leaf.dtype.name!r})."
            )
    return list(sens)


def _ones(leaf: Tensor) -> Tensor:
    ones = np.broadcast_to(np.ones((), leaf._data.dtype), leaf.shape)
    return wrap(move_to_space(ones, DEVICE) if leaf.device == "gpu" else ones)


def without_aux(out: Any, who: str) -> tuple[Any, tuple[Any, ...]]:
    """The part of a result that is differentiated, and what stands beside it."""
    if not isinstance(out, tuple) or not out:
        raise GradientError(f"{who}: with has_aux the function returns (loss, *aux), not a {type(out).__name__}.")
    return out[0], out[1:]


def wraps(fn: Callable[..., Any], wrapper: Callable[..., Any]) -> Callable[..., Any]:
    """Make the entry point of a function of gradients, with the name and documentation of the function itself."""

    def entry(*args: Any, **kwargs: Any) -> Any:
        try:
            return wrapper(*args, **kwargs)
        except Exception as error:
            hide_frames(error)
            raise

    # A Cell's attributes are its own.
    return functools.wraps(fn, updated=())(entry) if hasattr(fn, "__name__") else entry


def has_float(x: Any) -> bool:
    """True of Tensors of floats alone, of which there is one at least."""
    leaves, _ = structure.flatten(x)
    return bool(leaves) and all(leaf.dtype.is_float for leaf in leaves)
