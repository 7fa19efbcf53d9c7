"""Compiling with Numba: the passes that kernels need, and one optimisation of the whole by LLVM.

Numba makes a library of its own of each function that another calls: LLVM optimises it, makes machine code of it, and
does both once more where it has become part of the caller. Its pipeline has passes for closures, array expressions
and overloads that are inlined, none of which a kernel has. So here is a shorter one. A function that kernels call is
typed and lowered once; LLVM first sees it as part of the kernel.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from snncell.base.signals import import_once

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
    """The passes from Python's bytecode to LLVM's instructions, for functions of loops and arithmetic."""

    def define_pipelines(self) -> list[Any]:
        """One list of passes, in order."""
        manager = from_machinery.PassManager("kernel")
        for one in (
            untyped.TranslateByteCode,
            untyped.FixupArgs,
            untyped.ReconstructSSA,
            typed.NopythonTypeInference,
            typed.PreLowerStripPhis,
            *([typed.IRLegalization] if self.state.flags.nrt else []),  # where the last use of each variable is
            typed.AnnotateTypes,
            typed.NativeLowering,
            typed.NoPythonBackend,
        ):
            manager.add_pass(one, one.__name__)
        manager.finalize()
        return [manager]


class Whole(codegen.JITCodeLibrary):  # type: ignore[misc]
    """The code of a kernel: optimised once, when all of its parts are there."""

    def _optimize_functions(self, module: Any) -> None:
        module.data_layout = self._codegen._data_layout

    def _optimize_final_module(self) -> None:
        # Not -O3, which adds copies of loops for conditions that do not change in them: a fifth of the time of
        # compilation, and none of the kernels' (benchmarks/first_calls.py).
        passes, builder = self._codegen._module_pass_manager(opt=min(2, config.OPT))
        # Functions of Numba's runtime are there to be linked; what calls none of them is to be loaded without it.
        passes.add_global_dead_code_eliminate_pass()
        passes.add_strip_dead_prototype_pass()
        passes.run(self._final_module, builder)


class InlinedCode(Whole):
    """The code of a function that becomes part of kernels: neither optimised nor made into machine code."""

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_final_module(self) -> None:
        self._finalized = True


def compile_whole(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    """Compile a function that returns nothing, to be called by its address."""
    flags = _flags()
    # References are counted only where there are any: in arrays of its own.
    flags.nrt = "empty" in function.__code__.co_names
    return _compile_function(function, arguments, types.void, Whole, flags)


def compile_threads(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    """The same of a function with a `prange`, for which Numba has passes that take most of the time of compilation."""
    flags = _flags()
    flags.nrt = True
    flags.auto_parallel = cpu.ParallelOptions(True)
    return _compile_function(function, arguments, types.void, codegen.JITCodeLibrary, flags, compiler.Compiler)


def register(function: Callable[..., Any], inline: bool) -> None:
    """Let kernels call a function; with `inline` it becomes part of them where it is called."""
    compiled: dict[tuple[Any, ...], Any] = {}

    def of(arguments: tuple[Any, ...]) -> Any:
        if arguments not in compiled:
            flags = _flags()
            # LLVM would leave a long function a call: a loop with a call is not vectorised, and within the function it
            # would not be known that arrays of its caller do not overlap.
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
    flags.error_model = "numpy"  # 1 / 0 is inf as in NumPy; Python's check for it would stop vectorisation
    flags.boundscheck = False  # the planner has checked every shape
    # Not "fastmath": to reorder sums would change which neuron spikes.
    flags.no_cpython_wrapper = flags.no_cfunc_wrapper = True  # it is called by its address; they take a quarter of it
    flags.no_compile = True  # what is done with the code is said here
    return flags


def _compile_function(
    function: Callable[..., Any], arguments: Any, returns: Any, library: Any, flags: Any, passes: Any = Pipeline
) -> Any:
    target = registry.cpu_target
    own = library(target.target_context.codegen(), function.__name__)
    own.enable_object_caching()
    return compiler.compile_extra(
        target.typing_context, target.target_context, function, arguments, returns, flags, {}, own, passes
    )
