"""Hooks on Tensors: functions that get the gradient of a Tensor when the sweep has it whole, and may give another."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from snncell.arguments.shown import came
from snncell.errors import GradientError, TraceError
from snncell.tape.tensor import Tensor

if TYPE_CHECKING:
    from snncell.tape.tape import Entry

Hook = Callable[[Tensor], "Tensor | None"]
Hooks = dict[int, tuple[int, Hook]]  # by number: of which output, and the function
_numbers = itertools.count()


class TensorHookHandle:
    """A registered hook; `remove()` takes it off again."""

    def __init__(self, hooks: Hooks, index: int, hook: Hook) -> None:
        self._hooks, self._number = hooks, next(_numbers)
        hooks[self._number] = (index, hook)

    def remove(self) -> None:
        """Take the hook off."""
        self._hooks.pop(self._number, None)


def register_hook(x: Tensor, hook: Callable[[Tensor], Any]) -> TensorHookHandle:
    """Have `hook(gradient)` called when the gradient of this Tensor is known; what it returns takes its place.

    The gradient is the sum over all uses of the Tensor. A hook that returns None leaves it as it is. In a compiled
    function, or a loop over time, it is called while that is traced, and what it computes becomes part of the Program.
    A hook on an argument of a compiled function is called outside of it instead, with the arrays of each gradient,
    because uses of that argument elsewhere have a part in it.
    Outside of a gradient there is nothing to call it: the hook is forgotten with the Tensor, but for Parameters,
    which keep theirs.

    Args:
        x: a Tensor of floats.
        hook: a function of the gradient, a Tensor of the shape of x, that gives another one, or None.

    Raises:
        GradientError: for a Tensor of integers or booleans; later, for a hook that returns something else.

    Example:
        >>> def double(x):
        ...     y = x * 3.0
        ...     y.register_hook(lambda gradient: gradient * 2.0)
        ...     return y * y
        >>> snncell.grad(double)(Tensor(1.0))
        Tensor(shape=[], dtype=Float32, value= 36)
    """
    if not x.dtype.is_float:
        raise GradientError(f"register_hook: a Tensor of dtype {x.dtype} has no gradient.")
    return TensorHookHandle(x._hooks_on(), x._index, hook)


def apply_hooks(entry: Entry, douts: list[Tensor | None]) -> list[Tensor | None]:
    """The gradients of the outputs of an entry, as the hooks on them leave them."""
    for index, hook in tuple((entry.hooks or {}).values()):
        before = douts[index]
        if before is not None:
            after = hook(before)
            if after is not None:
                douts = [*douts[:index], _check_gradient(after, before), *douts[index + 1 :]]
    return douts


def _check_gradient(after: Any, before: Tensor) -> Tensor:
    if not isinstance(after, Tensor):
        raise GradientError(f"A hook on a Tensor returns a gradient, a Tensor, or None, not {came(after)}.")
    if after.shape != before.shape or not after.dtype.is_float:
        raise GradientError(
            f"A hook on a Tensor of shape {before.shape} returned a gradient of shape {after.shape} and dtype "
            f"{after.dtype}; it has the shape of the Tensor, and is of floats."
        )
    return after.astype(before.dtype)


def call_outside(hook: Hook) -> Hook:
    """A hook that a compiled function puts on its own argument, and that is called with the arrays of each run."""

    def call(gradient: Tensor) -> Tensor | None:
        try:
            return hook(gradient)
        except TraceError as error:
            raise TraceError(
                "A hook on an argument of a jitted function is called outside of it, because other uses of the "
                "argument have a part in its gradient; it cannot use Tensors from inside of the function. Put it on a "
                f"copy, (x * 1.0).register_hook(hook), which has the gradient of the uses inside alone. {error}"
            ) from None

    return call


def numbers(entry: Any) -> Sequence[int]:
    """The hooks on an entry, by which it can be told that there are others."""
    return () if entry is None or not entry.hooks else tuple(entry.hooks)
