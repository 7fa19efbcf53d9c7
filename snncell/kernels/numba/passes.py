"""Numba's compilation pipeline, shortened for kernels, with one LLVM optimisation of the whole kernel.

By default, Numba makes a library for each called function. LLVM optimises it and generates machine code, and does both
again after inlining the function into its caller. Its pipeline also has passes for closures, array expressions and
inlined overloads, which kernels do not use, and checks after each pass. In the pipeline here, a callee is typed and
lowered once, and LLVM first sees it as part of the kernel. Types of functions and calls are looked up once per process,
and there is no static single assignment before type inference. Therefore a variable of a kernel must have one type.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache
from types import ModuleType
from typing import Any, NamedTuple

from snncell.base.signals import import_once
from snncell.kernels.intrinsics.builtins import PENDING
from snncell.kernels.numba.lowering import Lower

bytecode: Any = import_once("numba.core.bytecode")
codegen: Any = import_once("numba.core.codegen")
compiler: Any = import_once("numba.core.compiler")
config: Any = import_once("numba.core.config")
descriptions: Any = import_once("numba.core.funcdesc")
extending: Any = import_once("numba.extending")
interpreter: Any = import_once("numba.core.interpreter")
llvm: Any = import_once("llvmlite.binding")
postproc: Any = import_once("numba.core.postproc")
registry: Any = import_once("numba.core.registry")
targetconfig: Any = import_once("numba.core.targetconfig")
transforms: Any = import_once("numba.core.transforms")
typed: Any = import_once("numba.core.typed_passes")
types: Any = import_once("numba.core.types")


class TypedFunction(NamedTuple):
    """A typed and lowered function."""

    library: Any
    fndesc: Any
    signature: Any


class KernelInterpreter(interpreter.Interpreter):  # type: ignore[misc]
    """Numba's translation of bytecode, without its rewrites of `with`, dictionaries and starred arguments."""

    def post_process(self, peepholes: Any, func_ir: Any) -> Any:
        """Return the code as it is."""
        return func_ir


class TypesOfCalls:
    """Numba's typing context, which looks up each function, and each call by the types of its arguments, once."""

    def __init__(self, context: Any) -> None:
        self._context = context
        self._found: dict[Any, Any] = {}
        self._values: dict[Any, Any] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    def forget_values(self) -> None:
        """Forget the types of values, because functions have been added to some of them."""
        self._values.clear()

    def resolve_value_type(self, value: Any) -> Any:
        """The type of a value that is used as a constant."""
        if not callable(value) and not isinstance(value, ModuleType):
            return self._context.resolve_value_type(value)
        if value not in self._values:
            self._values[value] = self._context.resolve_value_type(value)
        return self._values[value]

    def resolve_static_getitem(self, value: Any, index: Any) -> Any:
        """The signature of `value[index]` for a constant index."""
        if isinstance(value, types.BaseTuple):
            return value[index](value, types.literal(index))
        return self._context.resolve_static_getitem(value, index)

    def resolve_function_type(self, function: Any, arguments: Any, named: Any) -> Any:
        """The signature of a call, or None if there is none."""
        # Types of calls do not depend on the values of constants, except for elements of a tuple.
        if not isinstance(function, str) and not any(isinstance(x, types.BaseTuple) for x in arguments):
            arguments = tuple(map(types.unliteral, arguments))
        found = None if named else self._found.get((function, arguments))
        if found is None:
            found = self._context.resolve_function_type(function, arguments, named)
            if not named:
                self._found[function, arguments] = found
        return found


@cache
def types_of_calls() -> TypesOfCalls:
    """The typing context of all kernels."""
    return TypesOfCalls(registry.cpu_target.typing_context)


class Whole(codegen.JITCodeLibrary):  # type: ignore[misc]
    """The code library of a kernel, which is optimised once, when all callees are linked in."""

    def _optimize_functions(self, module: Any) -> None:
        module.data_layout = self._codegen._data_layout

    def _optimize_final_module(self) -> None:
        # Not -O3, which also unswitches loops: that takes a fifth of the compile time and makes no kernel faster
        # (benchmarks/first_calls.py). Unrolling takes a fifth of LLVM's time, and unrolled lanes of a sum are not
        # vectorised. With it, `python -m benchmarks --rows max-pool` takes 1.5 times as long, and conv-5x5 3 % less.
        options = llvm.create_pipeline_tuning_options(speed_level=min(2, config.OPT))
        options.loop_vectorization, options.slp_vectorization = bool(config.LOOP_VECTORIZE), bool(config.SLP_VECTORIZE)
        options.loop_unrolling = False
        builder = llvm.create_pass_builder(self._codegen._tm, options)
        passes = builder.getModulePassManager()
        passes.add_refprune_pass()
        # Remove unused declarations of Numba's runtime, so that a kernel without calls to it loads without it.
        passes.add_global_dead_code_eliminate_pass()
        passes.add_strip_dead_prototype_pass()
        passes.run(self._final_module, builder)


class InlinedCode(Whole):
    """The code library of a function that is inlined into kernels: it is not optimised and not compiled on its own."""

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_final_module(self) -> None:
        self._finalized = True


def compile_whole(function: Callable[..., Any], arguments: tuple[Any, ...]) -> TypedFunction:
    """Compile a kernel, a function without a result that is called by its address."""
    flags = _flags()
    # Only a kernel that allocates arrays needs reference counts.
    flags.nrt = "empty" in function.__code__.co_names
    return _compile_function(function, arguments, types.void, Whole, flags)


def register_pending() -> None:
    """Register with Numba the functions, types and lowerings in PENDING, where kernel modules have put them."""
    array_types: Any = import_once("snncell.kernels.intrinsics.array_types")
    if PENDING:
        types_of_calls().forget_values()
    while PENDING:
        how, function, *rest = PENDING.pop(0)
        if how == "declare_type":
            extending.type_callable(function)(lambda context, result=rest[0]: result)
        elif how == "lower":
            kinds = [getattr(types if hasattr(types, kind) else array_types, kind) for kind in rest[0]]
            extending.lower_builtin(function, *kinds)(rest[1])
        else:
            _register(function, how == "inline")
    # Numba does this for each function. Here, only a kernel registers something: the unpacking of its arguments.
    registry.cpu_target.typing_context.refresh()
    registry.cpu_target.target_context.refresh()


def _register(function: Callable[..., Any], inline: bool) -> None:
    compiled: dict[tuple[Any, ...], Any] = {}

    def of(arguments: tuple[Any, ...]) -> Any:
        if arguments not in compiled:
            flags = _flags()
            # LLVM would not inline a long function by itself. A loop with a call is not vectorised, and inside the
            # function LLVM would not know that the caller's arrays do not alias.
            flags.forceinline = inline
            compiled[arguments] = _compile_function(function, arguments, None, InlinedCode, flags)
        return compiled[arguments]

    def signature_of(*arguments: Any) -> Any:
        return of(tuple(map(types.unliteral, arguments))).signature

    signature_of.pysig = inspect.signature(function)  # type: ignore[attr-defined]  # Numba's name for it
    extending.type_callable(function)(lambda context: signature_of)

    @extending.lower_builtin(function, types.VarArg(types.Any))  # type: ignore[untyped-decorator]
    def lower(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        own = of(signature.args)
        context.active_code_library.add_linking_library(own.library)
        return context.call_internal(builder, own.fndesc, own.signature, arguments)


def _flags() -> Any:
    flags = compiler.Flags()
    flags.error_model = "numpy"  # 1 / 0 is inf as in NumPy; Python's check for zero would prevent vectorisation
    flags.boundscheck = False  # the planner has already checked every shape
    # No "fastmath", because reordering sums would change which neurons spike.
    flags.no_cpython_wrapper = flags.no_cfunc_wrapper = True  # unused, and they take a quarter of the compile time
    flags.no_compile = True  # `compile_kernel` decides when machine code is generated
    return flags


def _library(kind: Any, function: Callable[..., Any]) -> Any:
    library = kind(registry.cpu_target.target_context.codegen(), function.__name__)
    library.enable_object_caching()
    return library


def _compile_function(
    function: Callable[..., Any], arguments: tuple[Any, ...], returns: Any, library: Any, flags: Any
) -> TypedFunction:
    """From Python bytecode to LLVM IR, for functions of loops and arithmetic."""
    calls, own = types_of_calls(), _library(library, function)
    target = compiler._make_subtarget(registry.cpu_target.target_context, flags)
    target.typing_context = calls
    with targetconfig.ConfigStack().enter(flags.copy()):
        identity = bytecode.FunctionIdentity.from_function(function)
        code = KernelInterpreter(identity).interpret(bytecode.ByteCode(identity))
        code.blocks = transforms.canonicalize_cfg(code.blocks)
        typemap, result, of_calls, _ = typed.type_inference_stage(calls, target, code, arguments, returns)
        if flags.nrt:  # find the last use of each variable
            postproc.PostProcessor(code).run(emit_dels=True)
        description = descriptions.PythonFunctionDescriptor.from_specialized_function(
            code,
            typemap,
            result,
            of_calls,
            mangler=target.mangler,
            inline=flags.forceinline,
            noalias=flags.noalias,
            abi_tags=[flags.get_mangle_string()],
        )
        with target.push_code_library(own):
            Lower(target, own, description, code).lower()
    return TypedFunction(own, description, result(*arguments))
