"""Gradient functions: `grad`, `value_and_grad`, `get_grad`, `vjp`, `stop_gradient`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any

import numpy as np

from snncell.base.arguments.kinds import Own
from snncell.base.arguments.shown import came, show
from snncell.base.frames import hide_frames
from snncell.errors import ArgumentTypeError, DTypeError, GradientError, ShapeError, cut
from snncell.kernels.space import DEVICE, move_to_space
from snncell.tape import structure
from snncell.tape.backward import or_zeros, pullback
from snncell.tape.parameter import Parameter
from snncell.tape.primitive import alias, as_read
from snncell.tape.state import CHECKING, RECORDING, TRACING, Entry, Tape, record_on
from snncell.tape.tensor import Tensor, in_trace, snapshot, wrap


class Recording:
    """A function call recorded on a tape, from which gradients can be pulled."""

    def __init__(
        self, fn: Any, args: Sequence[Any], positions: Sequence[int], weights: Any, kwargs: dict[str, Any], who: str
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
        # New Tensors, because a Parameter may be frozen or replaced before the gradient is pulled.
        self.sources = [*watched, *(wrap(p._data, p._entry) for p in self.weights or ())]
        if TRACING.trace is not None:
            TRACING.trace.gradient_targets.update(dict.fromkeys(self.weights or ()))
        self.own: int | None = None  # the number of sources with a complete gradient, None for all: see `pullback`
        self.tape = Tape()
        with record_on(self.tape):
            # If fn returns a Parameter, `as_read` returns its present value.
            self.out = as_read(fn(*call_args, **kwargs))

    def pull(self, out: Any, sens: Sequence[Tensor] | None, release: bool) -> tuple[list[Any], list[Tensor] | None]:
        """The gradients of each watched argument, and of the weights. `sens` has a gradient for each output in `out`,
        in order (see `_seeds_for`); by default ones. `release` frees the recording.
        """
        leaves, _ = structure.flatten(out)
        seeds = _seeds(leaves, sens, self.who)
        release = release and RECORDING.tape is None  # an outer tape still needs the entries
        own = None if self.own is None else self.sources[: self.own]
        pulled = pullback(self.tape.live(), leaves, seeds, self.sources, release=release, own=own)
        grads = iter([_or_zeros(grad, source) for grad, source in zip(pulled, self.sources, strict=True)])
        of_arguments = [structure.unflatten(tree, [next(grads) for _ in watched]) for watched, tree in self.arguments]
        return of_arguments, None if self.weights is None else list(grads)


def _watch(x: Tensor) -> Tensor:
    """`x` as a new source of gradients, so that other uses of `x` add nothing. On an outer tape, `x` is its operand."""
    if RECORDING.tape is not None and x._entry is not None:
        return alias.bind(x)
    # In a trace, the source is a Value, because an array with an entry would look like a Tensor from outside.
    data = in_trace(x)
    return wrap(data, Entry.source(data))


def _or_zeros(grad: Tensor | None, source: Tensor) -> Tensor:
    grad = or_zeros(grad, (source.shape, source._data.dtype))
    # Zeros and gradients made from Python numbers are on the host.
    return grad if TRACING.trace is not None or grad.device == source.device else grad.to(source.device)


def _differentiable(leaves: list[Tensor], argument: Any, position: int, who: str) -> list[Tensor]:
    if not leaves:
        raise GradientError(
            f"{who}: argument {position} is a {type(argument).__name__}; gradients are taken with respect to Tensors. "
            f"Pass snncell.Tensor(...), or choose other arguments by grad_position."
        )
    for leaf in leaves:
        if not leaf.dtype.is_float:
            raise GradientError(
                f"{who}: argument {position} has dtype {leaf.dtype}; there is no gradient with respect to integers or "
                f"booleans. Convert it (x.astype('float32')) or choose other arguments by grad_position."
            )
    return leaves


def _list_weights(weights: Any, who: str) -> tuple[Parameter, ...] | None:
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
    parameters = _list_weights(weights, who)
    for weight in parameters or ():
        if not weight.requires_grad:
            raise GradientError(
                f"{who}: Parameter {weight.name!r} has requires_grad=False. Set it to True or leave it out of weights."
            )
        if not weight.dtype.is_float:
            raise GradientError(f"{who}: Parameter {weight.name!r} has dtype {weight.dtype}, which has no gradient.")
    return parameters


def _seeds_for(out: Any, sens: Any, who: str) -> list[Tensor]:
    """The gradients in `sens` in the order of the outputs; gradients in a dict are matched by key."""
    return structure.match_tensors(structure.flatten(out)[1], sens, f"{who}: the gradient of the output")


def _seeds(leaves: list[Tensor], sens: Sequence[Tensor] | None, who: str) -> list[Tensor | None]:
    """The gradients to start from: `sens`, or ones for each float output."""
    if not leaves:
        raise GradientError(f"{who}: the function returned no Tensor, so there is nothing to differentiate.")
    if not any(leaf.dtype.is_float for leaf in leaves):
        kinds = ", ".join(repr(leaf.dtype) for leaf in leaves)
        raise GradientError(f"{who}: the function returned {kinds}, which has no gradient. Return floats.")
    if sens is None:
        return [full(1.0, leaf) if leaf.dtype.is_float else None for leaf in leaves]
    if len(sens) != len(leaves):
        raise GradientError(f"{who}: {len(sens)} gradient(s) for {len(leaves)} output(s); give one for each.")
    for number, (seed, leaf) in enumerate(zip(sens, leaves, strict=True)):
        refuse_unlike(seed, leaf, f"{who}: the gradient for output {number}", "the output itself", "sens")
    return list(sens)


def refuse_unlike(x: Tensor, like: Tensor, what: str, other: str, name: str) -> None:
    """Raise a ShapeError or DTypeError if a gradient or direction `x` has another shape or dtype than its Tensor."""
    if x.shape != like.shape:
        raise ShapeError(f"{what} has shape {x.shape}, {other} {like.shape}.")
    if like.dtype.is_float and x.dtype != like.dtype:
        raise DTypeError(
            f"{what} has dtype {x.dtype}, {other} {like.dtype}. Convert it: {name}.astype({like.dtype.name!r})."
        )


def full(value: float, like: Tensor) -> Tensor:
    """A constant with the shape, dtype and device of a Tensor, without memory for the elements."""
    constant = np.broadcast_to(np.full((), value, like._data.dtype), like.shape)
    return wrap(move_to_space(constant, DEVICE) if like.device == "gpu" else constant)


def without_aux(out: Any, who: str) -> tuple[Any, tuple[Any, ...]]:
    """Split a result into the differentiated part and the rest."""
    if not isinstance(out, tuple) or not out:
        raise GradientError(f"{who}: with has_aux the function returns (loss, *aux), not a {type(out).__name__}.")
    return out[0], out[1:]


def wraps(fn: Callable[..., Any], wrapper: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a gradient function with the name and docstring of `fn`, and hide the package's frames in errors."""

    def entry(*args: Any, **kwargs: Any) -> Any:
        try:
            return wrapper(*args, **kwargs)
        except Exception as error:
            hide_frames(error)
            raise

    # updated=(): do not copy the attributes of a Cell.
    return functools.wraps(fn, updated=())(entry) if hasattr(fn, "__name__") else entry


def has_float(x: Any) -> bool:
    """True if `x` contains Tensors, and all of them are floats."""
    leaves, _ = structure.flatten(x)
    return bool(leaves) and all(leaf.dtype.is_float for leaf in leaves)


def refuse_no_function(fn: Any, who: str, name: str = "fn") -> None:
    """Raise a GradientError if the argument `name` is neither a function nor a Cell."""
    if not callable(fn) or isinstance(fn, type):
        raise GradientError(f"{who}: {name} is a function or a Cell, not {came(fn)}.")


# --- functions of gradients -------------------------------------------------------------------------------------------


def value_and_grad(
    fn: Annotated[Callable[..., Any], Own()],
    grad_position: Annotated[int | tuple[int, ...] | None, Own()] = 0,
    weights: Any = None,
    has_aux: bool = False,
    return_ids: bool = False,
    sens_param: bool = False,
) -> Callable[..., Any]:
    """A function that returns the value and the gradients of `fn`.

    The backward pass starts from ones, so an output that is not a scalar counts as its sum, and outputs are added up.

    Args:
        fn: a function or Cell of Tensors.
        grad_position: the argument to differentiate with respect to. An int or a 1-tuple gives a bare gradient, a
            longer tuple gives a tuple, None gives none. The gradient of a tuple, list or dict has its structure.
        weights: a Parameter (bare gradient) or several (a tuple); with arguments as well, the gradients are a pair.
        has_aux: True if `fn` returns `(loss, *aux)`; only `loss` is differentiated.
        return_ids: True for pairs `(position, gradient)`, or `(name, gradient)` of a Parameter, for `get_grad`.
        sens_param: True if the returned function takes the gradient from which the backward pass starts, as its last
            argument or as `sens=`. It must have the shape and dtype of the value.
    Returns: A function with `fn`'s arguments that returns `(value, gradients)`.
    Raises: GradientError for an argument that is not a float Tensor, a weight that is not a Parameter, or an output
        without a gradient; DTypeError for a `sens` of another dtype than the value.
    Example:
        >>> value_and_grad(lambda x: x * x)(Tensor(3.0))
        (Tensor(shape=[], dtype=Float32, value= 9), Tensor(shape=[], dtype=Float32, value= 6))
    """
    return _gradient_function(fn, grad_position, weights, "value_and_grad", has_aux, return_ids, sens_param)


def grad(
    fn: Annotated[Callable[..., Any], Own()],
    grad_position: Annotated[int | tuple[int, ...] | None, Own()] = 0,
    weights: Any = None,
    has_aux: bool = False,
    return_ids: bool = False,
    sens_param: bool = False,
) -> Callable[..., Any]:
    """A function that returns the gradients of `fn`. The arguments are those of `value_and_grad`.

    Returns: A function with `fn`'s arguments that returns the gradients, or `(gradients, aux)` with `has_aux`.
    Example:
        >>> grad(grad(lambda x: x * x * x))(Tensor(2.0))
        Tensor(shape=[], dtype=Float32, value= 12)
    """
    return _gradient_function(fn, grad_position, weights, "grad", has_aux, return_ids, sens_param)


def _positions_of(grad_position: Any, who: str) -> tuple[int, ...]:
    if grad_position is None:
        return ()
    entries = tuple(grad_position) if isinstance(grad_position, (tuple, list)) else (grad_position,)
    if any(isinstance(entry, Parameter) for entry in entries):
        raise ArgumentTypeError(
            f"{who}: grad_position is the position of an argument, not Parameters. To differentiate with respect to "
            f"Parameters, write {who}(fn, None, parameters)."
        )
    if any(isinstance(entry, bool) or not isinstance(entry, (int, np.integer)) for entry in entries):
        raise ArgumentTypeError(
            f"{who}: grad_position is an integer, a list of integers or None, not {show(grad_position)}; leave it out "
            f"for 0."
        )
    return tuple(int(entry) for entry in entries)


def _gradient_function(
    fn: Callable[..., Any], grad_position: Any, weights: Any, who: str, has_aux: bool, ids: bool, sens: bool
) -> Callable[..., Any]:
    refuse_no_function(fn, who)
    if isinstance(weights, Iterator):
        weights = tuple(weights)  # a generator could be used only once
    _list_weights(weights, who)
    positions = _positions_of(grad_position, who)
    if not positions and weights is None:
        raise GradientError(f"{who}: nothing to differentiate with respect to; give grad_position or weights.")

    def gradients(*args: Any, **kwargs: Any) -> Any:
        args, seed = _split_sens(args, kwargs, who) if sens else (args, None)
        recording = Recording(fn, args, positions, weights, kwargs, who)
        differentiated, aux = without_aux(recording.out, who) if has_aux else (recording.out, ())
        seeds = _seeds_for(differentiated, seed, who) if sens else None
        of_arguments, of_weights = recording.pull(differentiated, seeds, release=True)
        if ids:
            of_arguments = list(zip(positions, of_arguments, strict=True))
            of_weights = None if of_weights is None else _name_gradients(of_weights, recording.weights or (), who)
        parts: list[Any] = [of_arguments[0] if len(of_arguments) == 1 else tuple(of_arguments)] if of_arguments else []
        if of_weights is not None:
            parts.append(of_weights[0] if isinstance(weights, Parameter) else tuple(of_weights))
        result = parts[0] if len(parts) == 1 else tuple(parts)
        if who == "value_and_grad":
            return recording.out, result
        return (result, aux) if has_aux else result

    return wraps(fn, gradients)


def _split_sens(args: tuple[Any, ...], kwargs: dict[str, Any], who: str) -> tuple[tuple[Any, ...], Any]:
    """Split the call into `fn`'s arguments and the gradient to start from (the last one, or `sens`)."""
    sens = kwargs.pop("sens", None)
    if sens is not None:
        return args, sens
    if not args:
        raise GradientError(f"{who}: with sens_param, pass the gradient to start from as the last argument.")
    if isinstance(args[-1], (bool, int, float)):
        raise GradientError(
            f"{who}: with sens_param the last argument is the gradient to start from, a Tensor of the value's shape "
            f"and dtype, not {came(args[-1])}. Write ops.full_like(value, {args[-1]!r})."
        )
    return args[:-1], args[-1]


def _name_gradients(grads: Sequence[Any], weights: Sequence[Parameter], who: str) -> list[Any]:
    names = [weight.name for weight in weights]
    for position, name in enumerate(names):
        if name is None or names.index(name) != position:
            what = "has no name" if name is None else f"has the same name as another one, {name!r}"
            raise GradientError(
                f"{who}: return_ids identifies the weights by their names, but element {position} {what}. Give it a "
                f"unique name: Parameter(..., name=...)."
            )
    return list(zip(names, grads, strict=True))


def get_grad(gradients: Any, identifier: int | str | Parameter) -> Any:
    """Find one gradient in the result of `grad(..., return_ids=True)`.

    Args:
        gradients: that result.
        identifier: the position of an argument, or a Parameter or its name.
    Example:
        >>> both = grad(lambda x, y: x * y, (0, 1), return_ids=True)(Tensor(2.0), Tensor(3.0))
        >>> snncell.get_grad(both, 1)
        Tensor(shape=[], dtype=Float32, value= 2)
    """
    wanted = identifier.name if isinstance(identifier, Parameter) else identifier
    pairs = list(_identify_gradients(gradients))
    for known, gradient in pairs:
        if known == wanted:
            return gradient
    there = ", ".join(repr(known) for known, _ in pairs)
    raise GradientError(
        f"get_grad: there is no gradient of {show(wanted)}; "
        + (f"the gradients belong to {there}." if pairs else "gradients must come from grad(..., return_ids=True).")
    )


def _identify_gradients(gradients: Any) -> Iterator[tuple[int | str, Any]]:
    if not isinstance(gradients, tuple):
        return
    if len(gradients) == 2 and isinstance(gradients[0], (int, str)):
        yield gradients
        return
    for part in gradients:
        yield from _identify_gradients(part)


def vjp(
    fn: Annotated[Callable[..., Any], Own()], *inputs: Any, weights: Any = None, has_aux: bool = False
) -> tuple[Any, ...]:
    """Vector-Jacobian product: run `fn`, and return its value with a function that pulls gradients back to the inputs.

    Args:
        fn: a function or Cell of Tensors.
        inputs: its arguments.
        weights: Parameters to differentiate with respect to, in addition to the inputs.
        has_aux: True if `fn` returns `(out, *aux)`; only `out` is differentiated.
    Returns: `(out, pull)`, or `(out, pull, aux)` with `has_aux`. `pull(dout, ...)` takes a gradient for each output, or
        gradients in the structure of `out`; those in a dict are matched by key. It returns a tuple with one gradient
        for each input, None for an input without floats. With weights it returns a pair of that tuple and the gradients
        of the weights: a tuple, or a bare gradient for a single Parameter. You can call `pull` several times.
    Raises: GradientError as for `value_and_grad`, and for gradients in another structure than `out`; DTypeError for a
        gradient of another dtype than the output.
    Example:
        >>> out, pull = snncell.vjp(lambda x, y: x * y, Tensor(2.0), Tensor(3.0))
        >>> pull(Tensor(1.0))
        (Tensor(shape=[], dtype=Float32, value= 3), Tensor(shape=[], dtype=Float32, value= 2))
    """
    refuse_no_function(fn, "vjp")
    positions = [i for i, x in enumerate(inputs) if has_float(x)]
    recording = Recording(fn, inputs, positions, weights, {}, "vjp")
    out, aux = without_aux(recording.out, "vjp") if has_aux else (recording.out, None)

    def pull(*douts: Any) -> Any:
        if all(isinstance(dout, Tensor) for dout in douts):
            seeds: list[Tensor] = list(douts)  # one by one, in the order of the outputs
        else:
            single = len(douts) == 1 and not (isinstance(out, (tuple, list)) and isinstance(douts[0], dict))
            seeds = _seeds_for(out, douts[0] if single else douts, "vjp")
        of_arguments, of_weights = recording.pull(out, seeds, release=False)
        by_position = dict(zip(positions, of_arguments, strict=True))
        grads = tuple(by_position.get(i) for i in range(len(inputs)))
        if of_weights is None:
            return grads
        return grads, of_weights[0] if isinstance(weights, Parameter) else tuple(of_weights)

    return (out, pull, aux) if has_aux else (out, pull)


def stop_gradient(x: Any) -> Any:
    """`x`, a Tensor or a structure of Tensors, as a constant: no gradient flows through it. For example, stop the
    gradient through the reset of a neuron.
    """
    leaves, tree = structure.flatten(x)
    stopped = structure.unflatten(tree, [wrap(snapshot(leaf)._data) for leaf in leaves])
    return stopped if CHECKING.stops is None else CHECKING.stops(x, stopped)


class GradOperation:
    """MindSpore's gradient operation: `GradOperation(...)(fn)` or `GradOperation(get_by_list=True)(fn, weights)`.

    Args:
        get_all: True for the gradients of all Tensor arguments, as a tuple, instead of a bare gradient of the first.
        get_by_list: True for the gradients of the Parameters that you pass after the function, as a tuple; with
            `get_all`, a pair of tuples. If you pass no Parameters, it uses the `trainable_params()` of the Cell.
        sens_param: as for `value_and_grad`.
    Example:
        >>> GradOperation(get_all=True)(lambda x, y: x * y)(Tensor(2.0), Tensor(3.0))
        (Tensor(shape=[], dtype=Float32, value= 3), Tensor(shape=[], dtype=Float32, value= 2))
    """

    def __init__(self, get_all: bool = False, get_by_list: bool = False, sens_param: bool = False) -> None:
        self.get_all = get_all
        self.get_by_list = get_by_list
        self.sens_param = sens_param

    def __call__(self, fn: Callable[..., Any], weights: Any = None) -> Callable[..., Any]:
        both = self.with_value(fn, weights)
        return wraps(fn, lambda *args, **kwargs: both(*args, **kwargs)[1])

    def with_value(self, fn: Callable[..., Any], weights: Any = None, who: str = "GradOperation") -> Callable[..., Any]:
        """A function that returns `(value, gradients)` from one run of `fn`. Errors name `who`, the caller."""
        _list_weights(weights, who)
        if self.get_by_list and weights is None and not hasattr(fn, "trainable_params"):
            raise GradientError(
                f"{who}(get_by_list=True)(fn, weights): the weights are missing, and {came(fn)} has no Parameters, "
                f"unlike a Cell. Pass them: net.trainable_params()."
            )

        def gradients(*args: Any, **kwargs: Any) -> Any:
            args, sens = _split_sens(args, kwargs, who) if self.sens_param else (args, None)
            positions: Sequence[int] = () if self.get_by_list and not self.get_all else (0,)
            if self.get_all:
                positions = [i for i, x in enumerate(args) if isinstance(x, Tensor) and x.dtype.is_float]
                if not positions:
                    raise GradientError(f"{who}(get_all=True): no argument is a Tensor of floats.")
            own_weights = fn.trainable_params() if weights is None and self.get_by_list else weights  # type: ignore[attr-defined]
            recording = Recording(fn, args, positions, own_weights if self.get_by_list else None, kwargs, who)
            seeds = _seeds_for(recording.out, sens, who) if self.sens_param else None
            of_arguments, of_weights = recording.pull(recording.out, seeds, release=True)
            if of_weights is None:
                return recording.out, tuple(of_arguments) if self.get_all else of_arguments[0]
            own = tuple(of_weights)
            return recording.out, (tuple(of_arguments), own) if self.get_all else own

        return wraps(fn, gradients)
