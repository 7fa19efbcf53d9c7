"""A function that is called with the gradients at a place in a computation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any

from snncell.arguments.kinds import Own
from snncell.arguments.shown import came
from snncell.errors import GradientError
from snncell.tape.custom import custom
from snncell.tape.tape import Entry, zeros_of
from snncell.tape.tensor import Tensor


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
