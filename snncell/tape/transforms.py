"""Gradients of functions: `grad`, `value_and_grad`, `get_grad`, `vjp`, `stop_gradient`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any

from snncell.base.arguments.kinds import Own
from snncell.base.arguments.shown import came, show
from snncell.errors import GradientError
from snncell.tape import structure
from snncell.tape.parameter import Parameter
from snncell.tape.recording import Recording, has_float, list_weights, seeds_for, without_aux, wraps
from snncell.tape.state import CHECKING
from snncell.tape.tensor import Tensor, snapshot, wrap


def value_and_grad(
    fn: Annotated[Callable[..., Any], Own()],
    grad_position: int | tuple[int, ...] | None = 0,
    weights: Any = None,
    has_aux: bool = False,
    return_ids: bool = False,
    sens_param: bool = False,
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
        return_ids: each gradient comes as a pair `(position, gradient)`, or `(name, gradient)` of a Parameter, among
            which `get_grad` finds one.
        sens_param: the function takes the gradient to start from, of the value's shape and dtype, as its last argument,
            or by the name `sens`.

    Returns:
        A function with `fn`'s arguments that returns `(value, gradients)`.

    Raises:
        GradientError: for an argument that is no float Tensor, a weight that is no Parameter, or an output without a
            gradient.
        DTypeError: for a `sens` of another dtype than the value.

    Example:
        >>> value_and_grad(lambda x: x * x)(Tensor(3.0))
        (Tensor(shape=[], dtype=Float32, value= 9), Tensor(shape=[], dtype=Float32, value= 6))
    """
    return _gradient_function(
        fn, grad_position, weights, "value_and_grad", has_aux=has_aux, ids=return_ids, sens=sens_param, value=True
    )


def grad(
    fn: Annotated[Callable[..., Any], Own()],
    grad_position: int | tuple[int, ...] | None = 0,
    weights: Any = None,
    has_aux: bool = False,
    return_ids: bool = False,
    sens_param: bool = False,
) -> Callable[..., Any]:
    """A function that gives the gradients of `fn`; its arguments are those of `value_and_grad`.

    Returns:
        A function with `fn`'s arguments that returns the gradients, or `(gradients, aux)` with `has_aux`.

    Example:
        >>> grad(grad(lambda x: x * x * x))(Tensor(2.0))
        Tensor(shape=[], dtype=Float32, value= 12)
    """
    return _gradient_function(
        fn, grad_position, weights, "grad", has_aux=has_aux, ids=return_ids, sens=sens_param, value=False
    )


def _gradient_function(
    fn: Callable[..., Any],
    grad_position: Any,
    weights: Any,
    who: str,
    *,
    has_aux: bool,
    ids: bool,
    sens: bool,
    value: bool,
) -> Callable[..., Any]:
    if not callable(fn) or isinstance(fn, type):
        raise GradientError(f"{who}: fn is a function or a Cell, not {came(fn)}.")
    if isinstance(weights, Iterator):
        weights = tuple(weights)  # a generator could be used once only
    list_weights(weights, who)
    positions = (grad_position,) if isinstance(grad_position, int) else tuple(grad_position or ())
    if not positions and weights is None:
        raise GradientError(f"{who}: nothing to differentiate with respect to; give grad_position or weights.")

    def gradients(*args: Any, **kwargs: Any) -> Any:
        args, seed = split_sens(args, kwargs, who) if sens else (args, None)
        recording = Recording(fn, args, positions, weights, kwargs, who)
        out = recording.out
        differentiated, aux = without_aux(out, who) if has_aux else (out, ())
        seeds = seeds_for(differentiated, seed, who) if sens else None
        of_arguments, of_weights = recording.pull(differentiated, seeds, release=True)
        if ids:
            of_arguments = list(zip(positions, of_arguments, strict=True))
            of_weights = None if of_weights is None else _name_gradients(of_weights, recording.weights or (), who)
        parts: list[Any] = [of_arguments[0] if len(of_arguments) == 1 else tuple(of_arguments)] if of_arguments else []
        if of_weights is not None:
            parts.append(of_weights[0] if isinstance(weights, Parameter) else tuple(of_weights))
        result = parts[0] if len(parts) == 1 else tuple(parts)
        if value:
            return out, result
        return (result, aux) if has_aux else result

    return wraps(fn, gradients)


def split_sens(args: tuple[Any, ...], kwargs: dict[str, Any], who: str) -> tuple[tuple[Any, ...], Any]:
    """The arguments of the function, and the gradient to start from: the last one, or `sens` by name."""
    sens = kwargs.pop("sens", None)
    if sens is not None:
        return args, sens
    if not args:
        raise GradientError(f"{who}: with sens_param the last argument is the gradient to start from; there is none.")
    if isinstance(args[-1], (bool, int, float)):
        raise GradientError(
            f"{who}: with sens_param the last argument is the gradient to start from, a Tensor of the value's shape "
            f"and dtype, not {came(args[-1])}. Write ops.full_like(value, {args[-1]!r})."
        )
    return args[:-1], args[-1]


def _name_gradients(grads: Sequence[Any], weights: Sequence[Parameter], who: str) -> list[Any]:
    """Each gradient behind the name of its Parameter."""
    names = [weight.name for weight in weights]
    for position, name in enumerate(names):
        if name is None or names.index(name) != position:
            what = "has no name" if name is None else f"has the name {name!r}, as another one has"
            raise GradientError(
                f"{who}: with return_ids each of the weights is known by its name, and element {position} {what}. Give "
                f"it one of its own: Parameter(..., name=...)."
            )
    return list(zip(names, grads, strict=True))


def get_grad(gradients: Any, identifier: int | str | Parameter) -> Any:
    """Find one gradient among those that `grad(..., return_ids=True)` gives.

    Args:
        gradients: they, as they come.
        identifier: the position of an argument, or a Parameter or its name.

    Raises:
        GradientError: if there is none of it, saying what there is.

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
        + (f"there are those of {there}." if pairs else "gradients are those of grad(..., return_ids=True).")
    )


def _identify_gradients(gradients: Any) -> Iterator[tuple[int | str, Any]]:
    """The pairs of identifier and gradient in what a gradient function gives."""
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
    """Run `fn` and give, beside its value, the function that pulls a gradient of the value back to the inputs.

    Args:
        fn: a function or Cell of Tensors.
        inputs: its arguments.
        weights: Parameters whose gradients are given too.
        has_aux: `fn` returns `(out, *aux)`, and only `out` is differentiated.

    Returns:
        `(out, pull)`, or `(out, pull, aux)` with `has_aux`. `pull(dout, ...)` takes a gradient for each output, or
        gradients in the structure of `out`: those in a dict are matched by key. It returns a tuple with one for each
        input, None for one that holds no floats. With weights it returns a pair: that tuple, and the gradients of the
        weights: a tuple, or of a single Parameter a bare one. You can call it several times.

    Raises:
        GradientError: as for `value_and_grad`; for gradients in another structure than `out`.
        DTypeError: for a gradient of another dtype than the output.

    Example:
        >>> out, pull = snncell.vjp(lambda x, y: x * y, Tensor(2.0), Tensor(3.0))
        >>> pull(Tensor(1.0))
        (Tensor(shape=[], dtype=Float32, value= 3), Tensor(shape=[], dtype=Float32, value= 2))
    """
    if not callable(fn) or isinstance(fn, type):
        raise GradientError(f"vjp: fn is a function or a Cell, not {came(fn)}.")
    positions = [i for i, x in enumerate(inputs) if has_float(x)]
    recording = Recording(fn, inputs, positions, weights, {}, "vjp")
    out, aux = without_aux(recording.out, "vjp") if has_aux else (recording.out, None)

    def pull(*douts: Any) -> Any:
        if all(isinstance(dout, Tensor) for dout in douts):
            seeds: list[Tensor] = list(douts)  # one by one, in the order of the outputs
        else:
            single = len(douts) == 1 and not (isinstance(out, (tuple, list)) and isinstance(douts[0], dict))
            seeds = seeds_for(out, douts[0] if single else douts, "vjp")
        of_arguments, of_weights = recording.pull(out, seeds, release=False)
        by_position = dict(zip(positions, of_arguments, strict=True))
        grads = tuple(by_position.get(i) for i in range(len(inputs)))
        if of_weights is None:
            return grads
        return grads, of_weights[0] if isinstance(weights, Parameter) else tuple(of_weights)

    return (out, pull, aux) if has_aux else (out, pull)


def stop_gradient(x: Any) -> Any:
    """`x` (a Tensor or a structure of them) with the same values, through which no gradient flows."""
    leaves, tree = structure.flatten(x)
    stopped = structure.unflatten(tree, [wrap(snapshot(leaf)._data) for leaf in leaves])
    return stopped if CHECKING.stops is None else CHECKING.stops(x, stopped)


# --- GradOperation ----------------------------------------------------------------------------------------------------


class GradOperation:
    """MindSpore's gradient operation: `GradOperation(...)(fn)` or `GradOperation(get_by_list=True)(fn, weights)`.

    Args:
        get_all: gradients of all Tensor arguments as a tuple, instead of the first one's, bare.
        get_by_list: gradients of the Parameters given beside the function, as a tuple; with `get_all` a pair of
            tuples. Of a Cell without any, those of its `trainable_params()`.
        sens_param: the gradient function takes, as its last argument, the gradient to start from, of the value's shape
            and dtype.

    Raises:
        ArgumentTypeError: for flags that are not True or False.

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
        """A function that gives `(value, gradients)`, of one run of `fn`; errors are of `who`."""
        list_weights(weights, who)
        if self.get_by_list and weights is None and not hasattr(fn, "trainable_params"):
            raise GradientError(
                f"{who}(get_by_list=True)(fn, weights): the weights are missing, and {came(fn)} has none of its own, "
                f"as a Cell has. Give them: net.trainable_params()."
            )

        def gradients(*args: Any, **kwargs: Any) -> Any:
            args, sens = split_sens(args, kwargs, who) if self.sens_param else (args, None)
            positions: Sequence[int] = () if self.get_by_list and not self.get_all else (0,)
            if self.get_all:
                positions = [i for i, x in enumerate(args) if isinstance(x, Tensor) and x.dtype.is_float]
                if not positions:
                    raise GradientError(f"{who}(get_all=True): no argument is a Tensor of floats.")
            chosen = self._weights(fn, weights) if self.get_by_list else None
            recording = Recording(fn, args, positions, chosen, kwargs, who)
            seeds = seeds_for(recording.out, sens, who) if self.sens_param else None
            of_arguments, of_weights = recording.pull(recording.out, seeds, release=True)
            if of_weights is None:
                return recording.out, tuple(of_arguments) if self.get_all else of_arguments[0]
            own = tuple(of_weights)
            return recording.out, (tuple(of_arguments), own) if self.get_all else own

        return wraps(fn, gradients)

    def _weights(self, fn: Any, weights: Any) -> Any:
        """The Parameters that were given, or those of a Cell that are trained now."""
        return fn.trainable_params() if weights is None else weights
