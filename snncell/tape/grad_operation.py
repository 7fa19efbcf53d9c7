"""MindSpore's way to ask for gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from snncell.arguments.shown import came
from snncell.errors import GradientError
from snncell.tape.recording import Recording, list_weights, seeds_for, wraps
from snncell.tape.tensor import Tensor
from snncell.tape.transforms import split_sens


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
