"""jit: trace a function once per signature, and replay its Program. Options, pickling, `explain`."""

from __future__ import annotations

import copy
import functools
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from types import FunctionType, MethodType
from typing import Annotated, Any, Literal

from snncell.base.arguments.kinds import Own
from snncell.base.arguments.shown import came, show
from snncell.base.config import FINITE
from snncell.base.frames import hide_frames
from snncell.compiler.compiled import Compiled
from snncell.compiler.explain import Explanation, explain_layers, explain_plan, explain_stages, signature_difference
from snncell.compiler.state.values import same_value
from snncell.errors import ArgumentError, DTypeError, JitPickleError, ShapeError, TraceError
from snncell.tape import structure
from snncell.tape.state import CHECKING, RECORDING, TRACING, Value, recording_on, stale_error
from snncell.tape.structure import TENSORS, with_tensors
from snncell.tape.tensor import Tensor, snapshot

# --- Options of MindSpore ---------------------------------------------------------------------------------------------


Level = Literal["O0", "O1", "O2"]
Detail = Literal["layers", "launches", "program"]


class JitConfig:
    """MindSpore's compiler settings, for `jit(jit_config=...)` and `Cell.set_jit_config`, so that MindSpore scripts run
    unchanged. They have no effect, because there is only one way to compile.
    """

    def __init__(
        self,
        jit_level: Literal["", "O0", "O1", "O2", "O3"] = "",
        exc_mode: Literal["auto", "sink", "no_sink"] = "auto",
        jit_syntax_level: Literal["", "STRICT", "LAX"] = "",
        debug_level: Literal["", "RELEASE", "DEBUG"] = "",
        infer_boost: Literal["", "on", "off"] = "",
    ) -> None:
        self.jit_level, self.exc_mode, self.jit_syntax_level = jit_level, exc_mode, jit_syntax_level
        self.debug_level, self.infer_boost = debug_level, infer_boost

    @property
    def jit_config_dict(self) -> dict[str, str]:
        """The settings by name."""
        return dict(vars(self))


def refuse_options(jit_config: Any, dynamic: Any, compile_once: Any, hash_args: Any, options: dict[str, Any]) -> None:
    """Raise ArgumentError for an unsupported option of `jit`."""
    if jit_config is not None and not isinstance(jit_config, JitConfig):
        raise ArgumentError(f"jit: jit_config must be a JitConfig, not {came(jit_config)}.")
    if type(dynamic) not in (int, bool) or dynamic:
        raise ArgumentError(
            f"jit: dynamic={show(dynamic)} is not supported, because jit traces the function for each shape. This "
            f"takes milliseconds if the kernels are in the cache. Leave it out, and pad inputs to a few shapes."
        )
    if compile_once:
        raise ArgumentError(
            "jit: compile_once=True is not supported, because it would ignore changes of a Cell's attributes. jit "
            "traces the function again only if an attribute has changed. Leave it out."
        )
    if hash_args is not None:
        raise ArgumentError(
            "jit: hash_args is not necessary: jit compares the values that the function reads outside of its arguments "
            "at each call, and traces it again if one has changed. Leave it out."
        )
    if options:
        raise ArgumentError(f"jit: there is no option {show(next(iter(options)))}.")


def as_signature(given: Annotated[Any, Own()]) -> tuple[Tensor | None, ...] | None:
    """Check `input_signature`, and return it as a tuple."""
    each = tuple(given) if isinstance(given, (tuple, list)) else (given,)
    for number, one in enumerate(each):
        if one is not None and not isinstance(one, Tensor):
            raise ArgumentError(
                f"jit: input_signature must have a Tensor like each argument, for example ops.zeros((2, 3)), or None "
                f"for an argument that may be anything; element {number} is {came(one)}."
            )
    return None if given is None else each


def refuse_other_arguments(signature: Sequence[Tensor | None], args: Sequence[Any], name: str) -> None:
    """Raise ArgumentError, ShapeError or DTypeError for arguments that differ from `input_signature`."""
    who = f"jit({name}): input_signature"
    if len(args) != len(signature):
        raise ArgumentError(f"{who} has {len(signature)} argument(s), but the call has {len(args)}.")
    for number, (wanted, x) in enumerate(zip(signature, args, strict=True)):
        if wanted is None:
            continue
        leaves = structure.flatten(x)[0]
        if not isinstance(x, Tensor):
            of_tensors = " of Tensors" if leaves else ""
            raise ArgumentError(f"{who}: argument {number} must be a Tensor, not {came(x)}{of_tensors}.")
        if x.shape != wanted.shape:
            raise ShapeError(f"{who}: argument {number} must have shape {wanted.shape}, not {x.shape}.")
        if x.dtype != wanted.dtype:
            raise DTypeError(f"{who}: argument {number} must be {wanted.dtype.name}, not {x.dtype.name}.")


# --- Calls ------------------------------------------------------------------------------------------------------------


Signature = tuple[Tensor | None, ...] | None
STORM = 8  # more traces than this of one function are probably a mistake


class Jitted:
    """The result of `jit`, called like the function that it wraps. It keeps at most `limit` compiled signatures, the
    newest. With a `signature`, arguments must match its Tensors.
    """

    def __init__(
        self, fn: Callable[..., Any], name: str | None = None, limit: int | None = None, signature: Signature = None
    ) -> None:
        self.fn, self.limit, self.signature = fn, limit, signature
        self.name = str(name or getattr(fn, "__name__", type(fn).__name__))
        self.compiled: dict[Any, Compiled] = {}
        self.stale = 0  # the number of traces that were out of date
        self.reported = False  # True once the user was warned of repeated tracing

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            if self.signature is not None:
                args = with_tensors(args)
                refuse_other_arguments(self.signature, args, self.name)
            if TRACING.trace is not None:
                return self.fn(*args, **kwargs)  # part of the Program that is being traced
            if FINITE or TRACING.unfused:  # run operation by operation, so that each one can be checked
                return structure.map_leaves(snapshot, self.fn(*with_tensors(args), **with_tensors(kwargs)))
            compiled, leaves = self.lookup(args, kwargs)
            return compiled(leaves)
        except Exception as error:
            hide_frames(error)
            raise

    def __repr__(self) -> str:
        return f"<snncell.jit of {self.name}, compiled for {len(self.compiled)} signature(s)>"

    def __reduce__(self) -> Any:
        function = self.fn  # pickle itself handles Cells and methods
        if isinstance(function, FunctionType):
            named: Any = sys.modules.get(function.__module__)
            for name in function.__qualname__.split("."):
                named = getattr(named, name, None)
            if named is self:  # decorated: unpickling imports the name
                return function.__qualname__
            if named is not function:  # for example a lambda
                raise JitPickleError(
                    f"jit({self.name}): Python pickles functions by name, but cannot find {function.__qualname__} in "
                    f"{function.__module__}. Define the function at the top level of a module; or pickle the Cell that "
                    f"it calls, and jit that again."
                )
        return _jit_function, (function, self.name, self.limit, self.signature)

    def __copy__(self) -> Jitted:
        return _jit_function(self.fn, self.name, self.limit, self.signature)

    def __deepcopy__(self, memo: Any) -> Jitted:
        return _jit_function(copy.deepcopy(self.fn, memo), self.name, self.limit, self.signature)

    def __get__(self, instance: Any, owner: type) -> Any:
        return self if instance is None else MethodType(self, instance)  # a decorated method

    def lookup(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Compiled, list[Tensor]]:
        """Find or make the trace for these arguments; return it with the Tensors among them."""
        if kwargs or not TENSORS.issuperset(map(type, args)):
            args, kwargs = with_tensors(args), with_tensors(kwargs)
        leaves, tree = structure.flatten((args, kwargs))
        for leaf in leaves:
            if isinstance(leaf._data, Value):
                raise stale_error()
        taped = RECORDING.tape is not None
        watched = None if CHECKING.watch is None else CHECKING.watch.key
        specs = tuple([(leaf._data.shape, leaf._data.dtype) for leaf in leaves])
        # The signature includes the settings of this thread that affect the trace.
        signature = ((None,) * len(leaves), taped, CHECKING.smooth, CHECKING.wide, CHECKING.stops, watched, tree, specs)
        compiled = self._compiled_for(signature, leaves)
        # A Parameter argument is treated as a Tensor, unless the function takes a gradient with respect to it.
        targets = compiled.gradient_targets
        entries = [x._entry if x._entry in targets else None for x in leaves] if targets else ()
        if any(entry is not None for entry in entries):
            compiled = self._compiled_for((tuple(entries), *signature[1:]), leaves)
        return compiled, leaves

    def _compiled_for(self, signature: Any, leaves: list[Tensor]) -> Compiled:
        try:
            compiled = self.compiled.get(signature)
        except TypeError as error:
            raise ArgumentError(
                f"jit({self.name}): arguments must be Tensors, numbers, or tuples, lists and dicts of these. Any other "
                f"argument must be hashable, because it is part of the signature: {error}."
            ) from None
        if compiled is None or not compiled.up_to_date():
            self._report_storm(signature, compiled)
            entries, taped, *_, tree, _ = signature
            start = time.perf_counter()
            outdated, compiled = compiled, Compiled(self.name, self.fn, leaves, tree, taped, entries)
            compiled.seconds = time.perf_counter() - start
            if outdated is not None:
                self._refuse_counters(outdated, compiled)
            if self.limit is not None and len(self.compiled) >= self.limit:
                del self.compiled[next(iter(self.compiled))]
            self.compiled[signature] = compiled
        return compiled

    def _refuse_counters(self, outdated: Compiled, compiled: Compiled) -> None:
        """Raise if the function reads and changes a value at each call, which a trace cannot do."""
        # A value that is the same after each trace, as in `self.shape = x.shape`, is not a counter.
        before, now = outdated.own_changes, compiled.own_changes
        counting = [x.words for spot, x in now.items() if spot in before and not same_value(x.now, before[spot].now)]
        if counting:
            raise TraceError(
                f"jit({self.name}): the function reads and changes {counting[0]} at each call, but a compiled function "
                f"runs no Python code. Make it a Parameter (requires_grad=False) and write to it by ops.assign, or "
                f"pass it as an argument and return the new value."
            )

    def _report_storm(self, signature: Any, outdated: Compiled | None) -> None:
        """Warn once, with the reason, if a function is traced repeatedly."""
        self.stale += outdated is not None
        if self.reported or self.limit is not None or max(self.stale, len(self.compiled)) < STORM:
            return
        self.reported = True
        if outdated is not None and self.stale >= STORM:
            cause = f"{outdated.describe_change()} has changed between the calls. Make it an argument or a Parameter"
        else:
            other = [known for known in self.compiled if known != signature][-1]
            changed = signature_difference(other, signature)
            cause = f"{changed}. Pad to a few shapes, or pass a number that changes as a Tensor"
        warnings.warn(
            f"jit({self.name}) is traced for the {STORM + 1}th time, because {cause}. Each trace takes as long as many "
            f"calls.",
            RuntimeWarning,
            stacklevel=4,
        )

    def explain(self, *args: Any, detail: Detail = "layers", **kwargs: Any) -> Explanation:
        """Explain the compiled function for these arguments, as text; see `explain`."""
        with recording_on(None):
            compiled, leaves = self.lookup(args, kwargs)
        plan = compiled.plan([leaf._data for leaf in leaves])
        if detail == "layers":
            return explain_layers(self.name, plan)
        return Explanation(explain_plan(self.name, plan) if detail == "launches" else plan.program)

    def explain_passes(self, *args: Any, **kwargs: Any) -> Explanation:
        """Its Program for these arguments after each pass, as text; see `explain_passes`."""
        with recording_on(None):
            compiled, leaves = self.lookup(args, kwargs)
        return explain_stages(compiled.traced, compiled.plan([leaf._data for leaf in leaves]).space)


def jit(
    fn: Annotated[Callable[..., Any] | None, Own()] = None,
    *,
    input_signature: Annotated[Any, Own()] = None,
    jit_config: Annotated[JitConfig | None, Own()] = None,
    capture_mode: Literal["ast", "bytecode", "trace"] = "trace",
    jit_level: Level = "O0",
    fullgraph: bool = True,
    dynamic: Annotated[int, Own()] = 0,
    compile_once: bool = False,
    hash_args: Annotated[Any, Own()] = None,
    **options: Any,
) -> Any:
    """Compile a function of Tensors: trace it once per signature, and replay it as a list of kernels.

    To trace `fn`, `jit` runs it once, with shapes and dtypes instead of values, and records its operations. This list
    of operations is the Program. Gradients, optimiser steps and writes to Parameters inside `fn` become part of it.

    The signature consists of the shapes and dtypes of Tensors, and of the values of all other arguments. Each new value
    of a Python number therefore causes a new trace (but no compilation). You should pass a number that changes at every
    step as a Tensor or a Parameter. Results agree with eager ones to rounding, and to the bit in arithmetic and
    comparisons. With `snncell.set_context(check_finite=True)`, `fn` is not compiled but runs operation by operation.

    At each call, `jit` compares the Python values that `fn` reads outside of its arguments, and traces `fn` again if
    one has changed. For example, `loss_weight[0] = 0.5` between two calls takes effect. `jit` compares globals,
    variables of enclosing functions, defaults, attributes of objects, containers, environment variables, NumPy arrays
    and PyTorch tensors. It also compares the values that functions called by `fn` read, but does not follow code of
    libraries. The comparison of an array needs a copy and about 0.1 ms per MB at each call; above 16 MB you get a
    warning. Tensors cost nothing. Functions that read a clock or a file, such as `time.time()` and `open()`, cause a
    warning, because a trace keeps the first result. Pass such values as arguments.

    Python code runs when `fn` is traced, not at each call. For example, `log.append(...)` appends once for each trace,
    if `fn` does not read the list `log`. `jit` raises an error for code that would give wrong results:

    - random numbers of `np.random` or `random`: use `ops.normal` or `ops.uniform` instead;
    - a value that `fn` both reads and changes at each call;
    - a Tensor that is stored in an attribute or a global;
    - an iterator that is read or returned;
    - a result that is an object with Tensors inside. You can return Tensors in tuples, lists, dicts, views of dicts,
      and dataclasses.

    Args:
        fn: a function or Cell. A branch on a Tensor's value is an error, because the value is not known in the trace.
            If you leave `fn` out, `jit` returns a decorator.
        input_signature: example Tensors with the shapes and dtypes of the arguments. Pass a Tensor for a function of
            one argument, else a tuple with one Tensor for each, or None for an argument that may be anything. Arguments
            of other shapes or dtypes raise an error, so that they never cause a new trace.
        jit_config, capture_mode, jit_level, fullgraph: options of MindSpore without an effect, because there is only
            one way to compile, by tracing, and no fallback.
        dynamic, compile_once, hash_args, options: options of MindSpore, too. An unsupported value raises an error that
            names the alternative.
    Returns: A callable with the same arguments and results.
    Raises: TraceError if `fn` uses the value of a traced Tensor, naming the line, and for the errors above;
        ArgumentError for an argument that is neither a Tensor nor hashable.
    Example:
        >>> jit(lambda x: x * 2 + 1)(Tensor([1.0, 2.0]))
        Tensor(shape=[2], dtype=Float32, value= [ 3.00000000e+00,  5.00000000e+00])
    """
    refuse_options(jit_config, dynamic, compile_once, hash_args, options)
    signature = as_signature(input_signature)
    if fn is None:
        return functools.partial(jit, input_signature=input_signature)
    if not callable(fn) or isinstance(fn, type):
        raise TraceError(f"jit: fn must be a function or a Cell, not {came(fn)}.")
    return _jit_function(fn, signature=signature)


def _jit_function(
    fn: Callable[..., Any], name: str | None = None, limit: int | None = None, signature: Signature = None
) -> Jitted:
    jitted = Jitted(fn, name, limit, signature)
    if hasattr(fn, "__name__"):
        functools.update_wrapper(jitted, fn, updated=())
    return jitted


def explain(fn: Callable[..., Any], *inputs: Any, detail: Detail = "layers", **kwargs: Any) -> Explanation:
    """Explain how `fn` is compiled for these inputs: per layer the fused kernels, stored values, bytes, and slow parts.

    Use it when a network is slower than you expect, or to check that a neuron of your own becomes one kernel. Nothing
    is run. To see the backward pass, pass a function that takes the gradient, for example the whole training step.

    - `detail="layers"` is a table on one screen. For each layer, by its path in the network, it says whether the
      forward and the backward pass are fused and, if not, why. It also shows which results the layer stores for the
      backward pass, and the bytes that its launches read and write.
    - `detail="launches"` lists every launch in order: its bytes, the operations that it fuses with their lines in your
      code, and the reason why it is not fused with earlier launches. A loop over time is shown with the values that it
      stores, and with the instructions before, in and after it.
    - `detail="program"` prints the compiled Program, one operation per line.

    Args:
        fn: a function or Cell, jitted or not.
        inputs, kwargs: arguments like those that you will call it with; only shapes, dtypes and Python values count.
        detail: "layers", "launches" or "program". If `fn` has an argument of this name, too, wrap it:
            `explain(lambda x: fn(x, detail=2), x)`.
    Returns: A string that a notebook shows as a table, and a console as it is.
    Example:
        >>> "Dense, compiled for the CPU" in explain(nn.Dense(3, 2), ops.ones((5, 3)))
        True
        >>> text = explain(lambda x: ops.exp(x) * 2.0, ops.ones(3), detail="launches")
        >>> print(text.splitlines()[0])
        <lambda>: 1 loop, 0 loops over time, 0 calls, 0 views; one run reads and writes 24 B
    """
    return as_jitted("explain", fn).explain(*inputs, detail=detail, **kwargs)


def explain_passes(fn: Callable[..., Any], *inputs: Any, **kwargs: Any) -> Explanation:
    """Show the Program that `fn` becomes for these inputs after each compiler pass, as text.

    The first Program is the traced one. For each of its loops over time, the Program of one time step follows, also
    after each pass. It shows the values that a step stores for the backward pass, and the instructions before, in and
    after the loop. A pass without effect is one line, "no change". Nothing is run. `snncell/compiler/passes` lists the
    passes, with the purpose of each.

    Args:
        fn: a function or Cell, jitted or not.
        inputs, kwargs: arguments like those that you will call it with.
    Example:
        >>> print(explain_passes(lambda x: ops.exp(x) * 2.0, ops.ones(3)).splitlines()[0])
        traced:
    """
    return as_jitted("explain_passes", fn).explain_passes(*inputs, **kwargs)


def as_jitted(who: str, fn: Any, argument: str = "fn") -> Jitted:
    """Return a jitted function unchanged; wrap any other function or Cell. Errors name the caller and argument."""
    if not callable(fn) or isinstance(fn, (Tensor, type)):
        raise TraceError(f"{who}: {argument} must be a function or a Cell, not {came(fn)}.")
    return fn if isinstance(fn, Jitted) else Jitted(fn)
