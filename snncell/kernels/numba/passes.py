"""Numba's compilation pipeline, shortened for kernels, with one LLVM optimisation of the whole kernel.

Numba's own pipeline makes a library for each called function. LLVM optimises it and generates machine code, and does
both again after inlining the function into its caller. It also has passes for closures, array expressions and inlined
overloads, which kernels do not use, and checks after each pass.

Here, `syntax.py` translates a function to Numba IR, whose types are inferred in one pass, and `lowering.py` emits LLVM
IR. A callee is typed and lowered once. It is then inlined, or compiled once for all kernels, which call it by a symbol.
Types and implementations of calls are looked up once per process.
"""

from __future__ import annotations

import inspect
import operator
import re
from collections.abc import Callable, Sequence
from functools import cache
from types import ModuleType
from typing import Any, NamedTuple

from snncell.base.signals import import_once
from snncell.kernels.intrinsics.builtins import PENDING
from snncell.kernels.numba.lowering import Lower
from snncell.kernels.numba.native import SHARED
from snncell.kernels.numba.syntax import statements_of

cgutils: Any = import_once("numba.core.cgutils")
codegen: Any = import_once("numba.core.codegen")
compiler: Any = import_once("numba.core.compiler")
config: Any = import_once("numba.core.config")
descriptions: Any = import_once("numba.core.funcdesc")
errors: Any = import_once("numba.core.errors")
extending: Any = import_once("numba.extending")
ir: Any = import_once("numba.core.ir")
llvm: Any = import_once("llvmlite.binding")
registry: Any = import_once("numba.core.registry")
targetconfig: Any = import_once("numba.core.targetconfig")
typed: Any = import_once("numba.core.typed_passes")
types: Any = import_once("numba.core.types")

# The functions of these modules that kernels call are compiled once for all kernels. The code of other functions may
# depend on constants of a kernel.
SHARED_MODULES = "snncell.kernels.intrinsics."


class TypedFunction(NamedTuple):
    """A typed and lowered function."""

    library: Any
    fndesc: Any
    signature: Any


class TypesOfCalls:
    """Numba's typing context, which looks up each function, and each call by the types of its arguments, once."""

    def __init__(self, context: Any) -> None:
        self._context = context
        self._found: dict[Any, Any] = {}
        self._values: dict[Any, Any] = {}
        self._implementations: dict[Any, Any] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    def forget_values(self) -> None:
        """Forget the types and implementations of values, because some have been added."""
        self._values.clear()
        self._implementations.clear()

    def resolve_value_type(self, value: Any) -> Any:
        """The type of a value that is used as a constant."""
        if not callable(value) and not isinstance(value, ModuleType):
            return self._context.resolve_value_type(value)
        if value not in self._values:
            self._values[value] = self._context.resolve_value_type(value)
        return self._values[value]

    def resolve_getattr(self, kind: Any, name: str) -> Any:
        """The type of an attribute, such as a function of a module, or None if there is none."""
        if (kind, name) not in self._values:
            self._values[kind, name] = self._context.resolve_getattr(kind, name)
        return self._values[kind, name]

    def resolve_setitem(self, array: Any, index: Any, value: Any) -> Any:
        """The signature of `array[index] = value`."""
        key = operator.setitem, (array, index, value)
        if key not in self._found:
            self._found[key] = self._context.resolve_setitem(array, index, value)
        return self._found[key]

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

    def implementation(self, target: Any, function: Any, signature: Any) -> tuple[Any, Any, Any]:
        """The function that emits the code of a call, its own signature, and libraries that the code needs."""
        key = function, signature.args, signature.return_type
        found = self._implementations.get(key)
        if found is None:
            if not isinstance(function, types.Type):  # an operator: `+=` is lowered as `+`
                function = self.resolve_value_type(function)
                signature = self.resolve_function_type(function, signature.args, {})
            wrapped = target.get_function(function, signature)
            found = wrapped._imp, wrapped._sig, getattr(wrapped, "libs", ())
            self._implementations[key] = found
        return found


@cache
def types_of_calls() -> TypesOfCalls:
    """The typing context of all kernels."""
    return TypesOfCalls(registry.cpu_target.typing_context)


class Whole(codegen.JITCodeLibrary):  # type: ignore[misc]
    """The code library of a kernel, which is optimised once, when all callees are linked in."""

    _final_module: Any

    def add_ir_module(self, ir_module: Any) -> None:
        """Add LLVM IR, which is not optimised yet."""
        module = llvm.parse_assembly(cgutils.normalize_ir_text(str(ir_module)))
        module.name = ir_module.name
        if next(self._final_module.functions, None) is None:
            self._final_module = module
        else:
            self._final_module.link_in(module)

    def add_linking_library(self, library: Any) -> None:
        if not isinstance(library, SharedCode):
            library._ensure_finalized()
        self._linking_libraries.append(library)

    def shared(self) -> list[SharedCode]:
        """The functions that this code calls by their symbols, apart from those that they call in turn."""
        return [library for library in self._callees({}) if isinstance(library, SharedCode)]

    def finalize(self) -> None:
        """Link the code with that of all functions that it calls, optimise it, and generate machine code."""
        for library in self._callees({}):
            if not isinstance(library, SharedCode):
                self._final_module.link_in(library._get_module_for_linking(), preserve=True)
        self._final_module.verify()
        self._optimize_final_module()
        self._finalize_final_module()

    def _callees(self, found: dict[Any, None]) -> dict[Any, None]:
        for library in self._linking_libraries:
            if library not in found:
                found[library] = None
                if isinstance(library, InlinedCode):
                    library._callees(found)
        return found

    def _optimize_final_module(self) -> None:
        # Not -O3, which also unswitches loops: that takes a fifth of the compile time and makes no kernel faster
        # (benchmarks/first_calls.py). Unrolling takes a fifth of LLVM's time, and unrolled lanes of a sum are not
        # vectorised. With it, `python -m benchmarks --rows max-pool` takes 1.5 times as long, and conv-5x5 3 % less.
        options = llvm.create_pipeline_tuning_options(speed_level=min(2, config.OPT))
        options.loop_vectorization, options.slp_vectorization = bool(config.LOOP_VECTORIZE), bool(config.SLP_VECTORIZE)
        options.loop_unrolling = False
        builder = llvm.create_pass_builder(self._codegen._tm, options)
        passes = builder.getModulePassManager()
        # Remove unused declarations of Numba's runtime, so that a kernel without calls to it loads without it.
        passes.add_global_dead_code_eliminate_pass()
        passes.add_strip_dead_prototype_pass()
        passes.run(self._final_module, builder)


class InlinedCode(Whole):
    """The code library of a function that is inlined into kernels: it is not optimised and not compiled on its own."""

    def finalize(self) -> None:
        """Let kernels discard the function after inlining it."""
        for function in self._final_module.functions:
            if not function.is_declaration:
                function.linkage = "linkonce_odr"
        self._shared_module = self._final_module
        self._finalized = True


class SharedCode(Whole):
    """The code library of a function that kernels call by `symbol`: it is compiled once for all kernels."""

    symbol: str


def compile_whole(function: Callable[..., Any], arguments: tuple[Any, ...]) -> TypedFunction:
    """Compile a kernel, a function without a result that is called by its address."""
    return _compile_function(function, arguments, types.void, Whole, _flags())


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

    shared = not inline and function.__module__.startswith(SHARED_MODULES)

    def of(arguments: tuple[Any, ...]) -> Any:
        if shared:  # fewer variants
            arguments = tuple(types.int64 if isinstance(kind, types.Integer) else kind for kind in arguments)
        if arguments not in compiled:
            flags = _flags()
            # LLVM would not inline a long function by itself. But it does not vectorise a loop with a call, and it
            # cannot know inside a called function that the caller's arrays do not overlap.
            flags.forceinline = inline
            symbol = None
            if shared:
                kinds = "_".join([*function.__module__.split(".")[-1:], function.__name__, *map(str, arguments)])
                symbol = SHARED + re.sub(r"\W+", "_", kinds)
            compiled[arguments] = _compile_function(function, arguments, None, InlinedCode, flags, symbol)
        return compiled[arguments]

    def signature_of(*arguments: Any) -> Any:
        return of(tuple(map(types.unliteral, arguments))).signature

    signature_of.pysig = inspect.signature(function)  # type: ignore[attr-defined]  # Numba's name for it
    extending.type_callable(function)(lambda context: signature_of)

    @extending.lower_builtin(function, types.VarArg(types.Any))  # type: ignore[untyped-decorator]
    def lower(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        own = of(signature.args)
        context.active_code_library.add_linking_library(own.library)
        # Without the test of an error code, because these functions raise no exceptions.
        callee = context.declare_function(builder.module, own.fndesc)
        callee.attributes.add("nounwind")
        operands = context.get_arg_packer(own.fndesc.argtypes).as_arguments(builder, arguments)
        with builder.goto_entry_block():
            result, error = (builder.alloca(argument.type.pointee) for argument in callee.args[:2])
        builder.call(callee, [result, error, *operands])
        return context.get_returned_value(builder, own.fndesc.restype, builder.load(result))


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
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
    returns: Any,
    library: Any,
    flags: Any,
    symbol: str | None = None,
) -> TypedFunction:
    """Translate a Python function of loops and arithmetic to LLVM IR."""
    calls, own = types_of_calls(), _library(SharedCode if symbol else library, function)
    own.symbol = symbol
    target = compiler._make_subtarget(registry.cpu_target.target_context, flags)
    target.typing_context = calls
    with targetconfig.ConfigStack().enter(flags.copy()):
        code = statements_of(function)
        typemap, result, of_calls = infer_types(calls, target, code, arguments, returns)
        description = descriptions.PythonFunctionDescriptor.from_specialized_function(
            code,
            typemap,
            result,
            of_calls,
            mangler=(lambda *_, **__: symbol) if symbol else target.mangler,
            inline=flags.forceinline,
            noalias=flags.noalias,
            abi_tags=(),
        )
        with target.push_code_library(own):
            Lower(target, own, description, code).lower()
    return TypedFunction(own, description, result(*arguments))


# --- Type inference in one pass over the statements, in the order of the code -----------------------------------------

# Numba infers types by a fixed-point iteration, because types of variables may widen. A variable of a kernel keeps its
# type, and each operand is assigned before it is used. Therefore one pass is enough.


class TypedCode(NamedTuple):
    """The types of a function's variables, of its result, and of its calls."""

    typemap: dict[str, Any]
    result: Any
    calls: dict[Any, Any]


class _WideningError(Exception):
    """One pass is not enough, or there is an error in the code."""


def infer_types(calls: Any, target: Any, code: Any, arguments: tuple[Any, ...], returns: Any) -> TypedCode:
    """Infer the types of a function; `returns` is the type of its result, or None to infer it. If a variable gets a
    second type later in the code, Numba's inference takes over, because it finds the common type. It also takes over
    after an error, because its error messages explain the fault.
    """
    try:
        with calls.callstack.register(target.target, None, code.func_id, arguments):
            return _Inference(calls, code, arguments).infer(returns)
    except (_WideningError, KeyError, ValueError, errors.NumbaError):
        return TypedCode(*typed.type_inference_stage(calls, target, code, arguments, returns)[:3])


class _Inference:
    def __init__(self, calls: Any, code: Any, arguments: tuple[Any, ...]) -> None:
        self.context, self.blocks = calls, [block for _, block in sorted(code.blocks.items())]
        self.types = {f"arg.{name}": kind for name, kind in zip(code.arg_names, arguments, strict=True)}
        self.calls: dict[Any, Any] = {}

    def infer(self, returns: Any) -> TypedCode:
        results = {}
        for block in self.blocks:
            for statement in block.body:
                if isinstance(statement, ir.Assign):
                    self.assign(statement.target.name, self.type_of(statement.value))
                elif isinstance(statement, ir.SetItem):
                    operands = (self.types[x.name] for x in (statement.target, statement.index, statement.value))
                    self.calls[statement] = self.signature(self.context.resolve_setitem(*operands))
                elif isinstance(statement, ir.Return):
                    results[statement.value.name] = self.types[statement.value.name]
                elif not isinstance(statement, ir.Branch | ir.Jump):
                    raise _WideningError
        kinds = {*results.values(), *([] if returns is None else [returns])} or {types.none}
        if len(kinds) > 1:
            raise _WideningError
        (result,) = kinds
        return TypedCode(self.types, result, self.calls)

    def assign(self, name: str, kind: Any) -> None:
        known = self.types.setdefault(name, kind)
        if known is not kind and known != kind:
            raise _WideningError

    def type_of(self, value: Any) -> Any:
        if isinstance(value, ir.Expr):
            infer = getattr(self, f"_{value.op}", None)
            if infer is None:
                raise _WideningError
            return infer(value)
        if isinstance(value, ir.Var):
            return self.types[value.name]
        if isinstance(value, ir.Arg):
            return self.types[f"arg.{value.name}"]
        if not isinstance(value, ir.Const | ir.Global):
            raise _WideningError
        kind = self.context.resolve_value_type(value.value)
        if isinstance(kind, types.Array | types.BaseTuple | types.Dispatcher):
            raise _WideningError
        return kind

    def signature(self, found: Any) -> Any:
        if found is None:
            raise _WideningError
        return found

    def call(self, expression: Any, function: Any, operands: Sequence[Any]) -> Any:
        kinds = tuple(self.types[x.name] for x in operands)
        found = self.signature(self.context.resolve_function_type(function, kinds, {}))
        self.calls[expression] = found
        return found.return_type

    def _call(self, expression: Any) -> Any:
        function = self.types[expression.func.name]
        if expression.kws or expression.vararg is not None or isinstance(function, types.BoundFunction):
            raise _WideningError
        function = function.instance_type if isinstance(function, types.TypeRef) else function
        return self.call(expression, function, expression.args)

    def _binop(self, expression: Any) -> Any:
        return self.call(expression, self.context.resolve_value_type(expression.fn), (expression.lhs, expression.rhs))

    _inplace_binop = _binop

    def _unary(self, expression: Any) -> Any:
        return self.call(expression, self.context.resolve_value_type(expression.fn), [expression.value])

    def _getitem(self, expression: Any) -> Any:
        function = self.context.resolve_value_type(operator.getitem)
        return self.call(expression, function, (expression.value, expression.index))

    def _static_getitem(self, expression: Any) -> Any:
        kind = self.types[expression.value.name]
        if not isinstance(kind, types.BaseTuple):
            function = self.context.resolve_value_type(operator.getitem)
            return self.call(expression, function, (expression.value, expression.index_var))
        self.calls[expression] = None
        return self.signature(self.context.resolve_static_getitem(kind, expression.index)).return_type

    def _getiter(self, expression: Any) -> Any:
        return self.call(expression, expression.op, [expression.value])

    _iternext = _getiter

    def _pair_first(self, expression: Any) -> Any:
        return self.types[expression.value.name].first_type

    def _pair_second(self, expression: Any) -> Any:
        return self.types[expression.value.name].second_type

    def _getattr(self, expression: Any) -> Any:
        return self.signature(self.context.resolve_getattr(self.types[expression.value.name], expression.attr))

    def _exhaust_iter(self, expression: Any) -> Any:
        kind = self.types[expression.value.name]
        if not isinstance(kind, types.BaseTuple) or len(kind) != expression.count:
            raise _WideningError
        return kind

    def _build_tuple(self, expression: Any) -> Any:
        kinds = tuple(self.types[x.name] for x in expression.items)
        same = kinds and all(kind == kinds[0] for kind in kinds)
        return types.UniTuple(kinds[0], len(kinds)) if same else types.Tuple(kinds)

    def _cast(self, expression: Any) -> Any:
        return self.types[expression.value.name]
