"""Numba's compilation pipeline, shortened for kernels, with one LLVM optimisation of the whole kernel.

By default, Numba makes a library for each called function. LLVM optimises it and generates machine code, and does both
again after inlining the function into its caller. Its pipeline also has passes for closures, array expressions and
inlined overloads, which kernels do not use. In the pipeline here, a callee is typed and lowered once, and LLVM first
sees it as part of the kernel. Two more changes save about a fifth of the remaining compile time: types of calls are
looked up once per process, and there is no static single assignment before type inference. Therefore a variable of a
kernel must have one type.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache
from typing import Any

from snncell.base.signals import import_once
from snncell.kernels.intrinsics.builtins import PENDING

cpu: Any = import_once("numba.core.cpu")
codegen: Any = import_once("numba.core.codegen")
config: Any = import_once("numba.core.config")
compiler: Any = import_once("numba.core.compiler")
extending: Any = import_once("numba.extending")
registry: Any = import_once("numba.core.registry")
types: Any = import_once("numba.core.types")
typed: Any = import_once("numba.core.typed_passes")
untyped: Any = import_once("numba.core.untyped_passes")
from_machinery: Any = import_once("numba.core.compiler_machinery")


class Pipeline(compiler.CompilerBase):  # type: ignore[misc]
    """The passes from Python bytecode to LLVM IR, for functions of loops and arithmetic."""

    def define_pipelines(self) -> list[Any]:
        """One list of passes, in order."""
        manager = from_machinery.PassManager("kernel")
        for one in (
            untyped.TranslateByteCode,
            untyped.FixupArgs,
            typed.NopythonTypeInference,
            typed.PreLowerStripPhis,
            *([typed.IRLegalization] if self.state.flags.nrt else []),  # finds the last use of each variable
            typed.AnnotateTypes,
            typed.NativeLowering,
            typed.NoPythonBackend,
        ):
            manager.add_pass(one, one.__name__)
        manager.finalize()
        return [manager]


class TypesOfCalls:
    """Numba's typing context, which looks up each combination of a function and the types of its arguments once."""

    def __init__(self, context: Any) -> None:
        self._context = context
        self._found: dict[Any, Any] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    def resolve_function_type(self, function: Any, arguments: Any, named: Any) -> Any:
        """The signature of a call, or None if there is none."""
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
        # (benchmarks/first_calls.py).
        passes, builder = self._codegen._module_pass_manager(opt=min(2, config.OPT))
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


def compile_whole(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    """Compile a kernel, a function without a result that is called by its address."""
    flags = _flags()
    # Only a kernel that allocates arrays needs reference counts.
    flags.nrt = "empty" in function.__code__.co_names
    return _compile_function(function, arguments, types.void, Whole, flags)


def compile_threads(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    """Compile a kernel with a `prange` by Numba's full pipeline; its parallel passes take most of the compile time."""
    flags = _flags()
    flags.nrt = True
    flags.auto_parallel = cpu.ParallelOptions(True)
    return _compile_function(function, arguments, types.void, codegen.JITCodeLibrary, flags, compiler.Compiler)


def register_pending() -> None:
    """Register with Numba the functions, types and lowerings in PENDING, where kernel modules have put them."""
    array_types: Any = import_once("snncell.kernels.intrinsics.array_types")
    while PENDING:
        how, function, *rest = PENDING.pop(0)
        if how == "declare_type":
            extending.type_callable(function)(lambda context, result=rest[0]: result)
        elif how == "lower":
            kinds = [getattr(types if hasattr(types, kind) else array_types, kind) for kind in rest[0]]
            extending.lower_builtin(function, *kinds)(rest[1])
        else:
            _register(function, how == "inline")


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


def _compile_function(
    function: Callable[..., Any], arguments: Any, returns: Any, library: Any, flags: Any, passes: Any = Pipeline
) -> Any:
    target = registry.cpu_target
    typing_context = types_of_calls() if passes is Pipeline else target.typing_context
    own = library(target.target_context.codegen(), function.__name__)
    own.enable_object_caching()
    return compiler.compile_extra(
        typing_context, target.target_context, function, arguments, returns, flags, {}, own, passes
    )
