"""Type inference for kernels: one pass over the statements, in the order of the code.

Numba infers types by a fixed-point iteration, because types of variables may widen. A variable of a kernel keeps its
type, and each operand is assigned before it is used. Therefore one pass is enough.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, NamedTuple

from snncell.base.signals import import_once

errors: Any = import_once("numba.core.errors")
ir: Any = import_once("numba.core.ir")
typed: Any = import_once("numba.core.typed_passes")
types: Any = import_once("numba.core.types")


class TypedCode(NamedTuple):
    """The types of a function's variables, of its result, and of its calls."""

    typemap: dict[str, Any]
    result: Any
    calls: dict[Any, Any]


class _WideningError(Exception):
    """One pass is not enough, or finds an error."""


def infer_types(calls: Any, target: Any, code: Any, arguments: tuple[Any, ...], returns: Any) -> TypedCode:
    """Infer the types of a function, with the result `returns` unless it is None.

    If a variable gets another type later in the code, or if there is an error, Numba's inference takes over: the first
    gives the common type, and the second is explained.
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
