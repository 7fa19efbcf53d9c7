"""jit: trace a function once for each kind of arguments, and replay its Program afterwards."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from types import MethodType
from typing import Any

import numpy as np

from snncell.compiler.plan import Plan
from snncell.compiler.program import Program, from_trace
from snncell.errors import ArgumentError, TraceError
from snncell.tape import structure
from snncell.tape.parameter import Parameter
from snncell.tape.primitive import custom
from snncell.tape.state import STATE, recording_on, tracing_to
from snncell.tape.tape import Entry, zeros_of
from snncell.tape.tensor import Tensor, stale, wrap
from snncell.tape.tracing import Trace, Value
from snncell.tape.transforms import vjp


class Compiled:
    """A function compiled for one signature: shapes, dtypes, Python arguments, and the state of the Cells in it."""

    def __init__(self, name: str, fn: Callable[..., Any], leaves: Sequence[Tensor], arguments: Any) -> None:
        self.name = name
        self.fn = fn
        self.arguments = arguments  # the structure of (args, kwargs)
        trace = Trace()
        with tracing_to(trace), recording_on(None):
            stand_ins = [trace.new_input(leaf.shape, leaf._data.dtype) for leaf in leaves]
            trace.cells.update(_cells_in(arguments, fn))
            out, self.structure_of_out = structure.flatten(self.flat_call(stand_ins))
            outputs = [trace.lift(leaf) for leaf in out]
        self.program: Program = from_trace(trace, outputs)
        self.plan = Plan(self.program)
        # Taken after the trace: what construct itself sets on a Cell belongs to the state it leaves behind.
        self.versions = [(cell, cell.version) for cell in trace.cells]
        self.containers = [(held, list(map(id, _items(held))), _items(held)) for held in _containers(trace.cells)]
        self.parameters = [parameter for parameter in trace.parameters if parameter.dtype.is_float]
        self.trained = [(parameter, parameter.requires_grad) for parameter in self.parameters]
        self.reverses: dict[Any, Jitted] = {}

    def flat_call(self, leaves: Sequence[Tensor]) -> Any:
        """Call the function with `leaves` in the places of its Tensors."""
        args, kwargs = structure.unflatten(self.arguments, leaves)
        return self.fn(*args, **kwargs)

    @property
    def up_to_date(self) -> bool:
        """Whether no Cell that was traced, no list or dict it holds, and no requires_grad has been changed since."""
        return (
            all(cell.version == version for cell, version in self.versions)
            and all(parameter.requires_grad == trained for parameter, trained in self.trained)
            and all(list(map(id, _items(held))) == ids for held, ids, _ in self.containers)
        )

    def __call__(self, leaves: Sequence[Tensor]) -> Any:
        if STATE.tape is None:
            return self._replay(leaves)
        trainable = tuple(parameter for parameter in self.parameters if parameter.requires_grad)
        before = {parameter: parameter._data for parameter in self.program.written}
        return custom(self, lambda: self._replay(leaves), [*leaves, *trainable], (trainable, before))

    def _replay(self, leaves: Sequence[Tensor]) -> Any:
        results = self.plan.replay([leaf._data for leaf in leaves])
        return structure.unflatten(self.structure_of_out, [wrap(array) for array in results])

    def pull(self, entry: Entry, douts: list[Tensor | None]) -> Sequence[Any]:
        """The reverse: the tape's over the traced function, compiled too.

        It computes the forward once more, so it must find what the forward found: Parameters, random numbers and
        statistics are set back for it, and what it writes to them is forgotten.
        """
        (trainable, before), _ = entry.attrs
        count = len(entry.inputs) - len(trainable)
        before = before | {p: x._data for p, x in zip(trainable, entry.inputs[count:], strict=True)}
        if trainable not in self.reverses:
            self.reverses[trainable] = Jitted(self._reverse(trainable), f"reverse of {self.name}")
        seeds = [zeros_of(spec) if dout is None else dout for dout, spec in zip(douts, entry.specs, strict=True)]
        after = {parameter: parameter._data for parameter in before}
        try:
            for parameter, data in before.items():
                parameter._data = data
            grads: Sequence[Any] = self.reverses[trainable](entry.inputs[:count], tuple(seeds))
        finally:
            for parameter, data in after.items():
                parameter._data = data
        return grads

    def _reverse(self, trainable: tuple[Parameter, ...]) -> Callable[..., Any]:
        def reverse(leaves: tuple[Tensor, ...], seeds: tuple[Tensor, ...]) -> Any:
            _, pull = vjp(lambda *args: tuple(structure.flatten(self.flat_call(args))[0]), *leaves, weights=trainable)
            of_leaves, of_weights = pull(*seeds)
            return (*(of_leaves if len(leaves) != 1 else (of_leaves,)), *of_weights)

        return reverse


class Jitted:
    """What `jit` returns: call it as the function it wraps."""

    def __init__(self, fn: Callable[..., Any], name: str | None = None) -> None:
        self.fn = fn
        self.name = str(name or getattr(fn, "__name__", type(fn).__name__))
        self.compiled: dict[Any, Compiled] = {}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if STATE.trace is not None:
            return self.fn(*args, **kwargs)  # part of the Program that is being traced
        compiled, leaves = self.lookup(args, kwargs)
        return compiled(leaves)

    def __get__(self, instance: Any, owner: type) -> Any:
        return self if instance is None else MethodType(self, instance)  # a decorated method

    def lookup(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Compiled, list[Tensor]]:
        """What is compiled for these arguments, and the Tensors among them."""
        leaves, tree = structure.flatten((_tensors(args), _tensors(kwargs)))
        for leaf in leaves:
            if isinstance(leaf._data, Value):
                raise stale()
        signature = (STATE.smooth, tree, tuple([(leaf._data.shape, leaf._data.dtype) for leaf in leaves]))
        try:
            compiled = self.compiled.get(signature)
        except TypeError as error:
            raise ArgumentError(
                f"jit({self.name}): arguments are Tensors, numbers, and tuples, lists or dicts of them; what is fixed "
                f"must be hashable: {error}."
            ) from None
        if compiled is None or not compiled.up_to_date:
            compiled = self.compiled[signature] = Compiled(self.name, self.fn, leaves, tree)
        return compiled, leaves

    def explain(self, *args: Any, **kwargs: Any) -> str:
        """The Program for these arguments and the launches it became, as text."""
        compiled, _ = self.lookup(args, kwargs)
        return f"{compiled.program}\n\nlaunches:\n{compiled.plan}"


def _cells_in(arguments: Any, fn: Any) -> dict[Any, None]:
    """The Cells among the fixed arguments, the one that `fn` is a method of, and all below them."""
    owners = [*structure.statics(arguments), getattr(fn, "__self__", None)]
    return {cell: None for owner in owners if hasattr(owner, "cells_and_names") for _, cell in owner.cells_and_names()}


def _containers(cells: Iterable[Any]) -> list[Any]:
    """The lists and dicts that are attributes of Cells."""
    held = [
        value
        for cell in cells
        for name, value in vars(cell).items()
        if isinstance(value, (list, dict)) and not name.startswith("_")
    ]
    return list({id(value): value for value in held}.values())


def _items(container: Any) -> list[Any]:
    return [*container, *container.values()] if isinstance(container, dict) else container[:]


def _tensors(tree: Any) -> Any:
    """NumPy arrays among the arguments count as Tensors."""
    if isinstance(tree, np.ndarray):
        return Tensor(tree)
    if isinstance(tree, dict):
        return {key: _tensors(value) for key, value in tree.items()}
    if type(tree) in (tuple, list):
        return type(tree)(_tensors(value) for value in tree)
    return tree


def jit(fn: Callable[..., Any] | None = None) -> Any:
    """Compile a function of Tensors: it is traced once for each signature and replayed as a list of kernels.

    The signature is made of the Tensors' shapes and dtypes and of all other arguments as they are. Gradients,
    optimiser steps and writes to Parameters inside `fn` become part of the Program. If an attribute of a Cell that
    `fn` calls is changed, `fn` is traced again. Other values that it finds outside of its arguments, Tensors among
    them, are constants: they stay as they were when it was traced. A Python number among the arguments is part of the
    signature, so each new value is traced again (which compiles nothing new); what changes at every step is better a
    Tensor or a Parameter. Results agree with eager ones to rounding, and to the bit in arithmetic and comparisons.

    Args:
        fn: a function or Cell. Python code in it runs while it is traced, so a branch on a Tensor's value is an error.

    Returns:
        A callable with the same arguments and results.

    Raises:
        TraceError: if `fn` looks at a value that is not there yet, naming the line.
        ArgumentError: for an argument that is neither Tensor nor hashable.

    Example:
        >>> jit(lambda x: x * 2 + 1)(Tensor([1.0, 2.0]))
        Tensor(shape=[2], dtype=Float32, value= [ 3.00000000e+00,  5.00000000e+00])
    """
    if fn is None:
        return jit
    if not callable(fn):
        raise TraceError(f"jit: takes a function or a Cell, not a {type(fn).__name__}.")
    jitted = Jitted(fn)
    if hasattr(fn, "__name__"):
        functools.update_wrapper(jitted, fn, updated=())
    return jitted


def explain(fn: Callable[..., Any], *inputs: Any, **kwargs: Any) -> str:
    """What `fn` becomes when it is compiled for these inputs: the Program, then loop by loop what was fused."""
    return (fn if isinstance(fn, Jitted) else Jitted(fn)).explain(*inputs, **kwargs)
