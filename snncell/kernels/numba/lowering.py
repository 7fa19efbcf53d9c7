"""Lowering of kernels: from Numba's typed statements to LLVM IR with few instructions.

Numba gives memory to each variable that several blocks use, and to each field of a loop over a range. LLVM replaces
this memory by registers, which takes a part of the compile time. Here, only variables that change have memory.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

from snncell.base.signals import import_once

analysis: Any = import_once("numba.core.analysis")
ir: Any = import_once("numba.core.ir")
llvm: Any = import_once("llvmlite.ir")
lowering: Any = import_once("numba.core.lowering")
types: Any = import_once("numba.core.types")
utils: Any = import_once("numba.core.ir_utils")


class Lower(lowering.Lower):  # type: ignore[misc]
    """Numba's lowering, without debug information and without what Numba's other passes need, such as constant operands
    of operators. A kernel that counts references has memory for all variables, and keeps their old values.
    """

    def _find_singly_assigned_variable(self) -> None:
        if self.context.enable_nrt:
            super()._find_singly_assigned_variable()
            return
        blocks = self.func_ir.blocks
        before = analysis.compute_cfg_from_blocks(blocks).dominators()
        number: Counter[str] = Counter()
        home, used = {}, defaultdict(set)
        for label, block in blocks.items():
            for each in block.find_insts(ir.Assign):
                number[each.target.name] += 1
                home[each.target.name] = label
        for label, names in analysis.compute_use_defs(blocks).usemap.items():
            for name in names:
                used[name].add(label)
        self._blk_local_varmap: dict[str, Any] = {}
        # Blocks are lowered in the order of their labels.
        self._singly_assigned_vars = {
            name
            for name, label in home.items()
            if number[name] == 1 and all(label < other and label in before[other] for other in used[name])
        }

    def alloca_lltype(self, name: str, lltype: Any, datamodel: Any = None) -> Any:
        """Allocate memory for a variable."""
        if self.context.enable_nrt:  # memory must be zero, because the first assignment releases the old value
            return lowering.cgutils.alloca_once(self.builder, lltype, name=name)
        with self.builder.goto_entry_block():
            return self.builder.alloca(lltype, name=name)

    def storevar(self, value: Any, name: str, argidx: int | None = None) -> None:
        """Assign a value to a variable."""
        if self.context.enable_nrt or name in self._singly_assigned_vars:
            super().storevar(value, name)
        else:
            self.builder.store(value, self.getvar(name))

    def lower_binop(self, resty: Any, expr: Any, op: Any) -> Any:
        """Lower an operator with two operands."""
        context, calls = self.context, self.context.typing_context
        kinds = self.fndesc.calltypes[expr].args
        operands = [self._loaded(x, kind) for x, kind in zip((expr.lhs, expr.rhs), kinds, strict=True)]
        function = calls.resolve_value_type(op)
        signature = calls.resolve_function_type(function, kinds, {})
        result = context.get_function(function, signature)(self.builder, operands)
        return context.cast(self.builder, result, signature.return_type, resty)

    def lower_expr(self, resty: Any, expr: Any) -> Any:
        """Lower an expression to a value of type `resty`."""
        if expr.op == "call" and isinstance(resty, types.RangeType):
            return self._range(resty, expr.args)
        if expr.op == "getiter" and (step := self._step_of(expr.value)) > 0:
            return self._iterator(resty, expr.value, step)
        if expr.op == "iternext" and isinstance(self.typeof(expr.value.name), types.RangeIteratorType):
            return self._next(resty, expr.value)
        if expr.op in ("pair_first", "pair_second"):
            return self.builder.extract_value(self.loadvar(expr.value.name), int(expr.op == "pair_second"))
        if expr.op == "static_getitem" and isinstance(self.typeof(expr.value.name), types.BaseTuple):
            return self.builder.extract_value(self.loadvar(expr.value.name), expr.index)
        return super().lower_expr(resty, expr)

    def _loaded(self, variable: Any, kind: Any) -> Any:
        return self.context.cast(self.builder, self.loadvar(variable.name), self.typeof(variable.name), kind)

    def _struct(self, kind: Any, fields: dict[int, Any]) -> Any:
        value = llvm.Constant(self.context.get_value_type(kind), llvm.Undefined)
        for place, field in fields.items():
            value = self.builder.insert_value(value, field, place)
        return value

    # --- Loops over ranges: the state has (start, stop, step), the iterator (next number, stop, step, count left) -----

    def _range(self, kind: Any, arguments: Any) -> Any:
        number = self.context.get_value_type(kind.dtype)
        given = [self._loaded(x, kind.dtype) for x in arguments]
        start, stop, step = {
            1: [number(0), *given, number(1)],
            2: [*given, number(1)],
            3: given,
        }[len(given)]
        return self._struct(kind, {0: start, 1: stop, 2: step})

    def _step_of(self, value: Any) -> int:
        """The step of a range, or 0 if it is no constant."""
        if not isinstance(self.typeof(value.name), types.RangeType):
            return 0
        call = self._definition(value)
        if call is None or len(call.args) < 3:
            return 0 if call is None else 1
        step = self._definition(call.args[2])
        return step.value if isinstance(step, ir.Const | ir.Global | ir.FreeVar) else 0

    def _definition(self, variable: Any) -> Any:
        """The only definition of a variable, or None if it has several, such as `a if x else b`."""
        return utils.guard(utils.get_definition, self.func_ir, variable)

    def _iterator(self, kind: Any, given: Any, step: int) -> Any:
        """The iterator of a range with a positive step; Numba's also counts down, and raises for a step of 0."""
        builder, state = self.builder, self.loadvar(given.name)
        start, stop = (builder.extract_value(state, place) for place in (0, 1))
        number, count = start.type, builder.sub(stop, start)
        if step > 1:
            count = builder.sdiv(builder.add(count, number(step - 1)), number(step))
        with builder.goto_entry_block():
            following, left = builder.alloca(number), builder.alloca(number)
        builder.store(start, following)
        builder.store(count, left)
        return self._struct(kind, {0: following, 2: number(step), 3: left})

    def _next(self, kind: Any, given: Any) -> Any:
        builder, iterator = self.builder, self.loadvar(given.name)
        following, step, left = (builder.extract_value(iterator, place) for place in (0, 2, 3))
        number, count = builder.load(following), builder.load(left)
        builder.store(builder.add(number, step), following)
        builder.store(builder.sub(count, count.type(1), flags=["nsw"]), left)
        return self._struct(kind, {0: number, 1: builder.icmp_signed(">", count, count.type(0))})
