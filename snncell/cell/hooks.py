"""Hooks of Cells: functions that see, and may replace, inputs, outputs and gradients.

A call with backward hooks records an identity operation at its inputs and one at its outputs. The backward passes of
these identities call the hooks. So hooks work on any Cell, also with a `bprop`, and their results are differentiable.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from snncell.base.arguments.kinds import misfit
from snncell.base.arguments.shown import came, show
from snncell.errors import ArgumentTypeError, GradientError, SnncellError
from snncell.tape import structure
from snncell.tape.backward import conform, with_zeros
from snncell.tape.primitive import custom
from snncell.tape.state import Entry
from snncell.tape.tensor import Tensor

_numbers = itertools.count()
TAKES: dict[str, tuple[str, ...]] = {  # the arguments of each kind of hook
    "_pre_hooks": ("cell", "inputs"),
    "_hooks": ("cell", "inputs", "out"),
    "_backward_pre_hooks": ("cell", "grad_output"),
    "_backward_hooks": ("cell", "grad_input", "grad_output"),
    "_state_pre_hooks": ("cell", "prefix", "keep_vars"),
    "_state_hooks": ("cell", "state_dict", "prefix", "metadata"),
    "_load_pre_hooks": (
        "cell", "state_dict", "prefix", "metadata", "strict", "missing_keys", "unexpected_keys", "errors",
    ),
    "_load_hooks": ("cell", "incompatible_keys"),
}  # fmt: skip


class Hook(NamedTuple):
    """A registered function and its options."""

    function: Callable[..., Any]
    with_kwargs: bool = False
    always: bool = False  # call it also after a call that fails


class HookHandle:
    """A registered hook; `remove()` unregisters it."""

    def __init__(self, cell: Any, kind: str, hook: Hook, first: bool = False) -> None:
        if not callable(hook.function):
            raise ArgumentTypeError(f"{type(cell).__name__}: a hook is a function, not {came(hook.function)}.")
        takes = TAKES[kind]
        takes = (*takes[:2], "kwargs", *takes[2:]) if hook.with_kwargs else takes
        if wrong := misfit(hook.function, takes):  # as far as its signature is known
            raise ArgumentTypeError(
                f"{type(cell).__name__}: a hook of this kind is called as hook({', '.join(takes)}), which "
                f"{show(hook.function)} does not take: {wrong}."
            )
        self._cell, self._kind, self._number = cell, kind, next(_numbers)
        known = cell.__dict__.get(kind, {})
        added = {self._number: hook}
        cell.__dict__[kind] = added | known if first else known | added
        cell.__dict__["version"] += 2  # a trace without the hook is out of date

    def remove(self) -> None:
        """Remove the hook; a second call does nothing."""
        state = self._cell.__dict__
        if self._number not in (known := state.get(self._kind, {})):
            return
        state[self._kind] = {number: hook for number, hook in known.items() if number != self._number}
        if not state[self._kind]:
            del state[self._kind]  # restore the state before the first hook
        state["version"] += 2


class Hooked:
    """The part of Cell that registers hooks. Each method returns a handle, whose `remove()` unregisters the hook. The
    dicts of hooks are replaced, never changed, so that a running call is not affected.
    """

    _pre_hooks: Any = MappingProxyType({})
    _hooks: Any = MappingProxyType({})
    _backward_pre_hooks: Any = MappingProxyType({})
    _backward_hooks: Any = MappingProxyType({})

    def register_forward_pre_hook(
        self, hook_fn: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False
    ) -> HookHandle:
        """Call `hook_fn(cell, inputs)` before each `construct`; its result, if not None, replaces the inputs.

        Args:
            hook_fn: the hook. With `with_kwargs` it is called as hook_fn(cell, inputs, kwargs), and returns None or a
                pair (inputs, kwargs).
            prepend: whether to call it before the present hooks.
            with_kwargs: whether the hook also gets the keyword arguments of the call.
        """
        return HookHandle(self, "_pre_hooks", Hook(hook_fn, with_kwargs), prepend)

    def register_forward_hook(
        self,
        hook_fn: Callable[..., Any],
        *,
        prepend: bool = False,
        with_kwargs: bool = False,
        always_call: bool = False,
    ) -> HookHandle:
        """Call `hook_fn(cell, inputs, out)` after each call; its result, if not None, replaces the output.

        Args:
            hook_fn: the hook. With `with_kwargs` it is called as hook_fn(cell, inputs, kwargs, out).
            prepend, with_kwargs: as for `register_forward_pre_hook`.
            always_call: whether to call it after a failed call, too, with None as the output.
        """
        return HookHandle(self, "_hooks", Hook(hook_fn, with_kwargs, always_call), prepend)

    def register_backward_pre_hook(self, hook_fn: Callable[[Any, tuple[Any, ...]], Any]) -> HookHandle:
        """Call `hook_fn(cell, grad_output)` before the backward pass of each call. grad_output is the tuple of the
        outputs' gradients; the result of `hook_fn`, if not None, replaces it.
        """
        return HookHandle(self, "_backward_pre_hooks", Hook(hook_fn))

    def register_backward_hook(self, hook_fn: Callable[[Any, tuple[Any, ...], tuple[Any, ...]], Any]) -> HookHandle:
        """Call `hook_fn(cell, grad_input, grad_output)` after the backward pass of each call.

        The arguments are two tuples: the gradients of the inputs and of the outputs. The result of `hook_fn`, if not
        None, replaces grad_input. If no input needs a gradient, grad_input has only None, and the result is ignored.
        """
        return HookHandle(self, "_backward_hooks", Hook(hook_fn))


# --- forward ----------------------------------------------------------------------------------------------------------


def before_call(cell: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Call the forward pre-hooks, and return the inputs."""
    for hook in cell._pre_hooks.values():
        changed = hook.function(cell, args, kwargs) if hook.with_kwargs else hook.function(cell, args)
        if changed is None:
            continue
        if not hook.with_kwargs:
            args = changed if isinstance(changed, tuple) else (changed,)
            continue
        if not (isinstance(changed, tuple) and [type(part) for part in changed] == [tuple, dict]):
            raise ArgumentTypeError(
                f"{type(cell).__name__}: a forward pre hook with kwargs returns None or (args, kwargs), a tuple and a "
                f"dict, not {came(changed)}."
            )
        args, kwargs = changed
    return args, kwargs


def after_call(cell: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> Any:
    """Call the forward hooks, and return the output."""
    for hook in cell._hooks.values():
        changed = _call_after(hook, cell, args, kwargs, out)
        out = out if changed is None else changed
    return out


def after_failure(cell: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Call the hooks with `always_call` after a failed call."""
    for hook in cell._hooks.values():
        if hook.always:
            _call_after(hook, cell, args, kwargs, None)


def _call_after(hook: Hook, cell: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> Any:
    return hook.function(cell, args, kwargs, out) if hook.with_kwargs else hook.function(cell, args, out)


# --- backward ---------------------------------------------------------------------------------------------------------


class Passage:
    """One call of a Cell with backward hooks, from its inputs to its outputs."""

    def __init__(self, cell: Any) -> None:
        self.cell = cell
        self.reaches_inputs = False  # whether any input needs a gradient
        self.inputs = 0
        self.grad_output: tuple[Any, ...] = ()

    def enter(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Pass the inputs through an identity whose backward pass calls the hooks."""
        floats = [leaf for leaf in structure.flatten((args, kwargs))[0] if leaf.dtype.is_float]
        self.inputs = len(floats)
        self.reaches_inputs = any(leaf._entry is not None for leaf in floats)
        if not self.reaches_inputs or not self.cell._backward_hooks:
            return args, kwargs
        return _pass_through(_HookedIdentity("backward hook", self._after), (args, kwargs))

    def leave(self, out: Any) -> Any:
        """Pass the outputs through an identity whose backward pass calls the pre-hooks."""
        return _pass_through(_HookedIdentity("backward pre hook", self._before), out)

    def _before(self, grads: tuple[Any, ...]) -> tuple[Any, ...]:
        """Call the backward pre-hooks, and here also the backward hooks if no input needs a gradient."""
        for hook in self.cell._backward_pre_hooks.values():
            grads = _fit_gradients(self.cell, hook.function(self.cell, grads), grads, "backward pre hook", "output")
        self.grad_output = grads
        if not self.reaches_inputs:
            for hook in self.cell._backward_hooks.values():
                hook.function(self.cell, (None,) * self.inputs, grads)
        return grads

    def _after(self, grads: tuple[Any, ...]) -> tuple[Any, ...]:
        for hook in self.cell._backward_hooks.values():
            new = hook.function(self.cell, grads, self.grad_output)
            grads = _fit_gradients(self.cell, new, grads, "backward hook", "input")
        return grads


class _HookedIdentity:
    def __init__(self, name: str, function: Callable[[tuple[Any, ...]], tuple[Any, ...]]) -> None:
        self.name, self.function = name, function

    def pull(self, entry: Entry, douts: list[Tensor | None]) -> Sequence[Any]:
        return self.function(with_zeros(entry, douts))


def _pass_through(identity: _HookedIdentity, tree: Any) -> Any:
    leaves, shape = structure.flatten(tree)
    floats = [leaf for leaf in leaves if leaf.dtype.is_float]
    passed = iter(custom(identity, lambda: floats, floats))
    return structure.unflatten(shape, [next(passed) if leaf.dtype.is_float else leaf for leaf in leaves])


def _fit_gradients(cell: Any, returned: Any, grads: tuple[Any, ...], who: str, what: str) -> tuple[Any, ...]:
    """Check the gradients that a hook returned, and convert their shapes and dtypes; None keeps the old ones."""
    if returned is None:
        return grads
    several = returned if isinstance(returned, tuple) else (returned,)
    who = f"{type(cell).__name__}: its {who}"
    if len(several) != len(grads):
        raise GradientError(f"{who} returned {len(several)} gradient(s) for {len(grads)} {what}(s).")
    fitted = []
    for number, (new, old) in enumerate(zip(several, grads, strict=True)):
        if not isinstance(new, Tensor) or not new.dtype.is_float:
            raise GradientError(f"{who} returned {came(new)} for {what} {number}; a gradient is a Tensor of floats.")
        try:
            fitted.append(conform(new, old.shape, old._data.dtype))
        except SnncellError:
            raise GradientError(
                f"{who} returned a gradient of shape {new.shape} for {what} {number} of shape {old.shape}."
            ) from None
    return tuple(fitted)
