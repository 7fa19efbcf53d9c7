"""Primitive: a differentiable operation, with a forward pass on arrays and a backward pass on Tensors.

`custom` and `Composite` give any function of Tensors a custom backward pass.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast

import numpy as np

from snncell.base.arguments.shown import show
from snncell.base.config import FINITE
from snncell.dtype import INEXACT, STORED_IN_USE, compute_dtype, is_storage_only
from snncell.errors import (
    ArgumentError,
    DeviceError,
    DTypeError,
    GradientError,
    ShapeError,
    SnncellError,
    TensorIndexError,
)
from snncell.kernels.cuda.arrays import DeviceArray
from snncell.kernels.space import DEVICE, HOST, IN_USE, Space
from snncell.tape import structure
from snncell.tape.backward import with_zeros
from snncell.tape.state import RECORDING, TRACING, Entry, Tape, Value, add_entry, quietly, stale_error
from snncell.tape.tensor import Tensor, in_trace, snapshot, wrap

_REFUSALS: tuple[tuple[type[Exception], type[SnncellError]], ...] = (
    (TypeError, DTypeError), (IndexError, TensorIndexError), (ArithmeticError, ArgumentError),
)  # fmt: skip
EVERYWHERE = ("cpu", "gpu")


class Unsaved(NamedTuple):
    """The stand-in for an input whose value a bprop does not read (`_x`)."""

    shape: tuple[int, ...]
    dtype: Any


class Primitive:
    """A differentiable operation. `evaluate(*arrays, **attrs)` is the forward pass: it returns an array, or with
    `multiple` a tuple. `def_bprop` defines the backward pass; `no_gradient` declares that there is none.
    """

    multiple: bool
    # The next four attributes tell the pass `hoist` how to move the operation out of a time loop. `varying` has True
    # for each operand that differs from step to step, and so has a leading time axis.
    additive = False  # f(sum of x_t, sum of y_t) = sum of f(x_t, y_t), as for x + y: apply it once, to the sums
    # (inputs, varying) -> True if the operation is additive in the varying operands, as x * c is in x for a constant c
    proportional: Callable[[Sequence[Any], Sequence[bool]], bool] | None = None
    over_time: Callable[..., Any] | None = None  # (arrays, varying, attrs) -> the results of all steps, time first
    summed: Callable[..., Any] | None = None  # (arrays, varying, attrs) -> the sum of the results over time
    # Devices whose kernels read and write storage formats (float16, bfloat16) directly; elsewhere it runs in float32.
    as_stored: tuple[str, ...] = ()
    watched = True  # whether `check_finite` checks its results; a loop checks its own
    view = False  # whether it only reorders or reshapes elements without moving them
    selects = False  # whether the elements of its first result are elements of its operands, whatever their dtype
    # The largest result for operands of whole numbers from 0 to the arguments, if all results are whole numbers from 0.
    upper_bound: Callable[..., int] | None = None
    outside = False  # whether it communicates with other processes, so it cannot be part of a CUDA graph
    early = False  # whether to run it as soon as its operands exist, because it starts asynchronous work
    device_evaluate: Callable[..., Any] | None = None  # the forward pass on the GPU, set by `def_on_gpu`

    def __init__(self, name: str, evaluate: Callable[..., Any], *, multiple: bool = False) -> None:
        self.name = name
        self.evaluate = evaluate
        self.multiple = multiple
        self.bprop: Callable[..., Sequence[Any]] | None = None
        self.differentiable = True
        self.saves: tuple[bool, ...] = ()  # for each input, whether the tape saves its value for the backward pass
        self.saves_out = False
        self.variadic = False
        self.__doc__ = evaluate.__doc__
        self.__name__ = name

    def def_bprop(self, bprop: Callable[..., Sequence[Any]]) -> Callable[..., Sequence[Any]]:
        """Define the backward pass: `bprop(*inputs, out, dout, **attrs)` returns a gradient (or None) for each input.

        For an argument whose name begins with an underscore, the tape saves only shape and dtype. A gradient may be a
        function without arguments, which is called only if the gradient is needed. A gradient with broadcast axes is
        summed to the input's shape. For any number of inputs, write `bprop(*inputs_out_dout, **attrs)`; out is then
        None.
        """
        kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
        names = [p for p in inspect.signature(bprop).parameters.values() if p.kind in kinds]
        self.variadic = names[0].kind is inspect.Parameter.VAR_POSITIONAL
        saved = [not p.name.startswith("_") for p in names]
        self.saves, self.saves_out = (tuple(saved), False) if self.variadic else (tuple(saved[:-2]), saved[-2])
        self.bprop = bprop
        return bprop

    def def_on_gpu(self, evaluate: Callable[..., Any]) -> Callable[..., Any]:
        """Define the forward pass on the GPU: `evaluate(*arrays, **attrs)`, with kernels of `kernels/cuda`."""
        self.device_evaluate = evaluate
        return evaluate

    def no_gradient(self) -> Primitive:
        """Declare that no gradient flows through this operation."""
        self.differentiable = False
        return self

    def bind(self, *inputs: Any, **attrs: Any) -> Tensor:
        """Evaluate or trace the operation, and record it on the tape. With `multiple` it returns a tuple."""
        trace, tape = TRACING.trace, RECORDING.tape
        if trace is None:
            data = self.run([x._data if isinstance(x, Tensor) else x for x in inputs], inputs, attrs)
            for watch in FINITE:  # empty unless `check_finite` is on
                watch.results(self, inputs, data, attrs)
        elif trace.outside(inputs):
            with trace.stepping_out():
                return self.bind(*inputs, **attrs)
        else:
            data = trace.record(self, inputs, attrs)
        entry = None
        if tape is not None and self.differentiable:
            entry = self._entry(tape, inputs, data, attrs)
        if self.multiple:
            return cast(Tensor, tracked_outputs(entry, data))
        result = wrap(data, entry if data.dtype in INEXACT else None)
        if trace is not None:
            trace.note(result)
        return result

    def bind_all(self, *inputs: Any, **attrs: Any) -> tuple[Tensor, ...]:
        """`bind` for an operation with several outputs."""
        return cast(tuple[Tensor, ...], self.bind(*inputs, **attrs))

    def run(self, arrays: Sequence[Any], inputs: Sequence[Any], attrs: dict[str, Any]) -> Any:
        """Evaluate on arrays, without floating-point warnings; `inputs` are for error messages."""
        return quietly(self.run_here, arrays, inputs, attrs)

    def run_here(self, arrays: Sequence[Any], inputs: Sequence[Any], attrs: dict[str, Any]) -> Any:
        """Evaluate on arrays, and translate NumPy's errors."""
        on_gpu = IN_USE and any(isinstance(x, DeviceArray) for x in arrays)
        try:
            if on_gpu or STORED_IN_USE:
                data = self._evaluate_in(DEVICE if on_gpu else HOST, arrays, attrs)
            else:
                data = self.evaluate(*arrays, **attrs)
        except SnncellError:
            raise
        except (TypeError, ValueError, IndexError, AttributeError, ArithmeticError) as error:
            raise self.failure(inputs, attrs, error) from None
        if on_gpu:
            return data
        if self.multiple:
            return tuple([part if type(part) is np.ndarray else np.asarray(part) for part in data])
        if type(data) is np.ndarray or (IN_USE and isinstance(data, DeviceArray)):
            return data
        if any(isinstance(array, Value) for array in arrays):
            raise stale_error()
        return np.asarray(data)

    def _evaluate_in(self, space: Space, arrays: Sequence[Any], attrs: dict[str, Any]) -> Any:
        """Evaluate in a space, storage formats (float16, bfloat16) in float32 unless `as_stored` lists the device."""
        rule = self.on_device if space is DEVICE else lambda arrays, attrs: self.evaluate(*arrays, **attrs)
        dtypes = [x.dtype for x in arrays if hasattr(x, "dtype")]
        narrow = next((dtype for dtype in dtypes if is_storage_only(dtype)), None)
        if narrow is None or space.device in self.as_stored:
            return rule(arrays, attrs)
        wide = compute_dtype(narrow)
        data = rule([space.widen(x) if hasattr(x, "dtype") else x for x in arrays], attrs)
        if wide in dtypes:  # float16 with float32 gives float32
            return data
        parts = [space.cast(x, narrow) if x.dtype == wide else x for x in (data if self.multiple else (data,))]
        return tuple(parts) if self.multiple else parts[0]

    def on_device(self, arrays: Sequence[Any], attrs: dict[str, Any]) -> Any:
        """Evaluate on the GPU: by `def_on_gpu`, or by `evaluate`, whose NumPy functions dispatch on device arrays."""
        operands = DEVICE.operands(arrays, self.name)
        try:
            return (self.device_evaluate or self.evaluate)(*operands, **attrs)
        except DeviceError as error:
            raise DeviceError(f"{self.name}: {error}") from None

    def failure(self, inputs: Sequence[Any], attrs: dict[str, Any], error: Exception) -> SnncellError:
        """The error for inputs that the forward pass refused."""
        if any(isinstance(getattr(x, "_data", None), Value) for x in inputs):
            return stale_error()
        operands = ", ".join(_describe(x) for x in inputs)
        options = "".join(f", {key}={show(value)}" for key, value in attrs.items())
        kind = next((ours for theirs, ours in _REFUSALS if isinstance(error, theirs)), ShapeError)
        return kind(f"{self.name}({operands}{options}): {error}.")

    def abstract(self, inputs: tuple[Any, ...], attrs: dict[str, Any]) -> list[tuple[Any, Any]]:
        """Shape and dtype of each output, for inputs that are Values or Python scalars, by evaluating it on zeros."""
        zeros = [np.broadcast_to(np.zeros((), x.dtype), x.shape) if isinstance(x, Value) else x for x in inputs]
        outs = self.run(zeros, inputs, attrs)
        return [(np.shape(out), np.asarray(out).dtype) for out in (outs if self.multiple else (outs,))]

    def _entry(self, tape: Tape, inputs: tuple[Any, ...], data: Any, attrs: dict[str, Any]) -> Entry | None:
        """The entry for the tape, or None if no gradient flows into an input."""
        # One plain loop, because it is faster than comprehensions and every eager call under a tape runs it.
        parents: list[Entry | None] = []
        indices: list[int] = []
        saved: list[Any] = []
        differentiable = False
        for x, save in zip(inputs, self.saves * len(inputs) if self.variadic else self.saves, strict=True):
            if isinstance(x, Tensor):
                parents.append(x._entry)
                indices.append(x._index)
                # A Parameter may be assigned before the backward pass, which needs the value of the forward pass.
                saved.append(None if not save else x if type(x) is Tensor else snapshot(x))
                differentiable = differentiable or x._entry is not None
            else:
                parents.append(None)
                indices.append(0)
                saved.append(x if save else None)
        if not differentiable:
            return None
        outputs = data if self.multiple else (data,)
        specs = [(part.shape, part.dtype) for part in outputs] if self.multiple else [(data.shape, data.dtype)]
        entry = Entry(self, attrs, parents, indices, saved, outputs if self.saves_out else None, specs)
        add_entry(tape, entry)
        return entry

    def pull(self, entry: Entry, douts: list[Tensor | None]) -> Sequence[Any]:
        """Call the bprop for one entry."""
        if self.bprop is None:
            raise GradientError(f"{self.name} has no gradient. Wrap it in ops.stop_gradient if you need none.")
        outs = rebuilt(entry) if self.saves_out else (None,) * len(entry.specs)
        grads = with_zeros(entry, douts)
        inputs = [
            Unsaved(*parent.specs[index]) if x is None and parent is not None else x
            for x, parent, index in zip(entry.inputs, entry.parents, entry.indices, strict=True)
        ]
        out, dout = (outs, grads) if self.multiple else (outs[0], grads[0])
        return self.bprop(*inputs, out, dout, **entry.attrs)

    def inside(self) -> list[str]:
        """The operations inside a composed operation (a loop), as lines of a Program."""
        return []

    def operations(self, inputs: Sequence[Any], outputs: Sequence[Any], attrs: dict[str, Any], used: float) -> float:
        """The number of arithmetic operations, by default one for each element. A product multiplies its number by
        `used`, the share of nonzero elements of its first operand.
        """
        return 0.0 if self.view else float(max(math.prod(x.shape) for x in (*inputs, *outputs) if hasattr(x, "shape")))

    def event_density(self, arrays: Sequence[Any], attrs: dict[str, Any]) -> tuple[float, bool] | None:
        """The share of nonzero elements of an operand, and whether the CPU computes with these only; None if the
        operation never searches for them. `arrays` are the operands for one step of a loop, or for all steps.
        """
        return None

    def moved(self, attrs: dict[str, Any]) -> int:
        """The number of bytes that a composed operation moves between its parts."""
        return 0

    def launches(self, attrs: dict[str, Any]) -> int:
        """The approximate number of kernels that it launches on the device."""
        return 0 if self.view else 1

    def kernels(self, attrs: dict[str, Any], space: Space = HOST) -> list[tuple[Any, ...]]:
        """The known kernels that the first run will build, as arguments for `build`."""
        return []

    def describe(self, attrs: dict[str, Any], space: Space = HOST) -> list[str]:
        """Lines for `explain`."""
        return []

    def choice(self, inputs: Sequence[Any], attrs: dict[str, Any]) -> list[str]:
        """Lines about the algorithm that the CPU chooses for operands of these sizes."""
        return []

    def __repr__(self) -> str:
        return f"<operation {self.name}>"


def moving(evaluate: Callable[..., Any]) -> Primitive:
    """Declare an operation that only rearranges elements, so it accepts any dtype as stored."""
    op = Primitive(evaluate.__name__.strip("_"), evaluate)
    op.as_stored = EVERYWHERE
    return op


def tracked_outputs(entry: Entry | None, outputs: Sequence[Any]) -> tuple[Tensor, ...]:
    """The Tensors of an entry's outputs; integers and bools carry no gradient."""
    results = tuple([wrap(part, entry if part.dtype in INEXACT else None, i) for i, part in enumerate(outputs)])
    if TRACING.trace is not None:
        for result in results:
            TRACING.trace.note(result)
    return results


def rebuilt(entry: Entry) -> tuple[Tensor, ...]:
    """An entry's outputs as Tensors, for its backward pass."""
    # The entry stores arrays. A Tensor refers to its entry, and such a reference cycle would delay freeing memory.
    return tracked_outputs(entry, entry.outputs)


def _describe(x: Any) -> str:
    shape = getattr(x, "shape", None)
    return show(x) if shape is None else f"{np.dtype(x.dtype).name}{list(shape)}"


# --- operations in loops over time: `Primitive.over_time` -------------------------------------------------------------

Arrays = Sequence[Any]


def repeat_over_time(arrays: Arrays, varying: Sequence[bool]) -> list[Any]:
    """All operands with a leading time axis; operands that are the same at every step are broadcast, as views."""
    steps = steps_of(arrays, varying)
    return [
        x if varies or not hasattr(x, "shape") else np.broadcast_to(x, (steps, *x.shape))
        for x, varies in zip(arrays, varying, strict=True)
    ]


def steps_of(arrays: Arrays, varying: Sequence[bool]) -> int:
    """The number of time steps."""
    return next(len(x) for x, varies in zip(arrays, varying, strict=True) if varies)


def with_axis_of_steps(op: Primitive, options: Callable[[dict[str, Any], int], dict[str, Any]] | None = None) -> None:
    """Let `op` compute all time steps at once, with time as one more leading axis of all operands and results.
    `options(attrs, steps)` makes its options for all steps from those for one step; by default they are equal.
    """

    def over_time(arrays: Arrays, varying: Sequence[bool], attrs: dict[str, Any]) -> Any:
        every = repeat_over_time(arrays, varying)
        return op.run_here(every, every, options(attrs, steps_of(arrays, varying)) if options else attrs)

    op.over_time = over_time


def axis_after_steps(attrs: dict[str, Any], steps: int) -> dict[str, Any]:
    """The options of an operation along `axis`, which follows the new time axis."""
    return {**attrs, "axis": attrs["axis"] + 1}


def one_after_another(evaluate: Any, arrays: Arrays, varying: Sequence[bool], attrs: dict[str, Any]) -> Any:
    """The results of all time steps, computed step by step; a tuple if `evaluate` returns tuples."""
    each = [
        evaluate(*(x[t, ...] if varies else x for x, varies in zip(arrays, varying, strict=True)), **attrs)
        for t in range(steps_of(arrays, varying))
    ]
    if isinstance(each[0], tuple):
        return tuple(_join_results(results) for results in zip(*each, strict=True))
    return _join_results(each)


def _join_results(results: Arrays) -> Any:
    return np.concatenate([x.reshape(1, *x.shape) for x in results])


def custom(op: Any, forward: Callable[[], Any], inputs: Sequence[Tensor], attrs: Any = None) -> Any:
    """Record `forward` as one tape entry with a custom backward pass; its own operations are not recorded. `forward()`
    returns Tensors in any structure. `op.pull(entry, douts)` returns a gradient for each of `inputs`. For `pull`,
    `entry.attrs` is the pair of `attrs` and the structure of the output.
    """
    tape = RECORDING.tape
    # Only a Composite may run outside of a loop's body: a user's forward may draw random numbers or write to
    # Parameters.
    if TRACING.trace is not None and isinstance(op, Composite) and TRACING.trace.outside(inputs):
        with TRACING.trace.stepping_out():
            return custom(op, forward, inputs, attrs)
    saved = [snapshot(x) for x in inputs]  # before `forward`, because it may write to Parameters
    paused = RECORDING.paused
    RECORDING.tape, RECORDING.paused = None, paused or tape is not None
    try:
        out = forward()
    finally:
        RECORDING.tape, RECORDING.paused = tape, paused
    if tape is None:
        return as_read(out)
    if all(x._entry is None for x in inputs):
        # Without tape entries, so that no gradient flows through this call into a Tensor from outside.
        return structure.map_leaves(lambda x: x if x._entry is None and type(x) is Tensor else wrap(in_trace(x)), out)
    if TRACING.trace is not None:
        for x in inputs:
            if x._entry is not None:
                TRACING.trace.lift(x)  # make an outside Tensor an input of the trace, so that its gradient is returned
    leaves, shape_of_out = structure.flatten(out)
    outputs = [_as_result(leaf) for leaf in leaves]
    entry = entry_of(op, (attrs, shape_of_out), inputs, saved, outputs)
    add_entry(tape, entry)
    return structure.unflatten(shape_of_out, tracked_outputs(entry, outputs))


def entry_of(
    op: Any, attrs: Any, inputs: Sequence[Tensor], saved: Any, outputs: Sequence[Any], saves_out: bool = True
) -> Entry:
    """The entry of an operation on Tensors with these output arrays."""
    specs = [(part.shape, part.dtype) for part in outputs]
    parents, indices = [x._entry for x in inputs], [x._index for x in inputs]
    return Entry(op, attrs, parents, indices, saved, outputs if saves_out else None, specs)


def as_read(values: Any) -> Any:
    """The same structure with the present values of its Parameters, which later assignments do not change."""
    return values if type(values) is Tensor else structure.map_leaves(snapshot, values)


def _as_result(x: Tensor) -> Any:
    """The elements of a result. In the step of a loop they get a new Value, even if they come from outside."""
    # Without it, the Tensor is not a result of the step, and a higher-order gradient would not search for its inputs.
    if TRACING.trace is not None and TRACING.trace.outside((x,)):
        return TRACING.trace.record(alias, (wrap(x._data) if type(x) is Tensor else x,), {})
    return in_trace(x)


class Composite:
    """A function of Tensors and keyword attributes with a custom backward pass: one operation on the tape."""

    def __init__(self, forward: Callable[..., Any]) -> None:
        self.name = forward.__name__.strip("_")
        self.forward = forward
        self.__doc__ = forward.__doc__
        self.bprop: Callable[..., Sequence[Any]] | None = None

    def def_bprop(self, bprop: Callable[..., Sequence[Any]]) -> Callable[..., Sequence[Any]]:
        """Define the backward pass: `bprop(*inputs, out, dout, **attrs)`, as for a Primitive."""
        self.bprop = bprop
        return bprop

    def __call__(self, *inputs: Tensor, **attrs: Any) -> Any:
        return custom(self, lambda: self.forward(*inputs, **attrs), inputs, attrs)

    def pull(self, entry: Entry, douts: list[Tensor | None]) -> Sequence[Any]:
        """Call the bprop for one entry."""
        assert self.bprop is not None  # every Composite is followed by its def_bprop
        (dout,), (out,) = douts, rebuilt(entry)
        return self.bprop(*entry.inputs, out, dout, **entry.attrs[0])


alias = Primitive("alias", lambda x: x)  # the same value with a new tape entry
alias.as_stored = EVERYWHERE
alias.additive = True
alias.def_bprop(lambda _x, _out, dout: (dout,))
alias.over_time = lambda arrays, varying, attrs: arrays[0]
