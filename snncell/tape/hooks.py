"""Hooks on Tensors: functions that get the gradient of a Tensor when the sweep has it whole, and may give another."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Annotated, Any

from snncell.base.arguments.kinds import Own
from snncell.base.arguments.shown import came
from snncell.errors import GradientError, TraceError
from snncell.tape.backward import zeros_of
from snncell.tape.custom import custom
from snncell.tape.tape import Entry, Hook, Hooks
from snncell.tape.tensor import Tensor

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


def call_outside(hook: Hook) -> Hook:
    """A hook that a compiled function puts on its own argument, and that is called with the arrays of each run."""

    def call(gradient: Tensor) -> Tensor | None:
        try:
            answer: Tensor | None = hook(gradient)
            return answer
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


# --- hooks on a place in a computation: HookBackward ------------------------------------------------------------------


class HookBackward:
    """The identity, whose reverse calls a function with the gradients that pass.

    Args:
        hook_fn: a function of the tuple of gradients, one for each input. What it returns takes their place: a tuple,
            or a Tensor where there is one; with None they stay as they are.
        cell_id: a name for errors.

    Raises:
        GradientError: if `hook_fn` is no function, or returns something else.

    In a jitted function it is traced, and part of the reverse.

    Example:
        >>> double = ops.HookBackward(lambda gradients: gradients[0] * 2.0)
        >>> ops.grad(lambda x: double(x * x))(Tensor(3.0))
        Tensor(shape=[], dtype=Float32, value= 12)
    """

    def __init__(self, hook_fn: Annotated[Callable[[Any], Any], Own()], cell_id: str = "") -> None:
        if not callable(hook_fn) or isinstance(hook_fn, type):
            raise GradientError(f"HookBackward: hook_fn is a function of the gradients, not {came(hook_fn)}.")
        self.hook_fn, self.name = hook_fn, f"HookBackward {cell_id}".strip()

    def __call__(self, *inputs: Tensor) -> Any:
        for number, x in enumerate(inputs):
            if not isinstance(x, Tensor):
                raise GradientError(f"{self.name}: input {number} is {came(x)}; it takes Tensors.")
        if not inputs:
            raise GradientError(f"{self.name}: takes Tensors, and there are none.")
        return custom(self, lambda: inputs[0] if len(inputs) == 1 else tuple(inputs), inputs)

    def pull(self, entry: Entry, douts: list[Tensor | None]) -> Sequence[Any]:
        """The gradients that the function gives, or was given."""
        pairs = zip(douts, entry.specs, strict=True)
        grads = tuple(zeros_of(spec, douts) if dout is None else dout for dout, spec in pairs)
        answer = self.hook_fn(grads)
        if answer is None:
            return grads
        changed = answer if isinstance(answer, (tuple, list)) else (answer,)
        if len(changed) != len(grads) or not all(isinstance(grad, Tensor) for grad in changed):
            words = f"{len(changed)} of them" if isinstance(answer, (tuple, list)) else came(answer)
            raise GradientError(
                f"{self.name}: hook_fn returns None, or a tuple with a gradient, a Tensor, for each of {len(grads)} "
                f"input(s), not {words}."
            )
        return tuple(changed)
