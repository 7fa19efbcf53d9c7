"""Lowering of kernels: from typed Numba IR to LLVM IR with few instructions.

Numba allocates stack memory for each variable that several basic blocks use, and for each field of a loop over a range.
LLVM must replace this memory by registers, which takes compile time. The lowering here allocates memory only for
variables that have another value after a branch or an iteration. It looks up the implementations of calls once per
process, and prepares no texts of error messages.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Sequence
from typing import Any

from snncell.base.signals import import_once
from snncell.kernels.intrinsics.builtins import free

ir: Any = import_once("numba.core.ir")
instructions: Any = import_once("llvmlite.ir.instructions")
llvm: Any = import_once("llvmlite.ir")
lowering: Any = import_once("numba.core.lowering")
types: Any = import_once("numba.core.types")
utils: Any = import_once("numba.core.ir_utils")
values: Any = import_once("llvmlite.ir.values")


class DistinctNode(values.MDValue):  # type: ignore[misc]
    """A metadata node that differs from all others, for example the identity of a loop."""

    accesses: Any

    def __init__(self, module: Any) -> None:
        super().__init__(module, (), name=str(len(module.metadata)))

    def descr(self, buf: Any) -> None:
        """Write the definition of the node."""
        buf += f"distinct !{{ {', '.join(x.get_reference() for x in self.operands)} }}", "\n"

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other


class Builder(llvm.IRBuilder):  # type: ignore[misc]
    """Emits LLVM IR without aggregates (LLVM's structs, such as Numba's tuples) that are built only to read a field.
    Each instruction on an aggregate contains the text of its type. The arguments of a kernel are one aggregate, so this
    text would be long, and take time to write and to parse.
    """

    def __init__(self, block: Any) -> None:
        super().__init__(block)
        self._made: list[Any] = []
        self.accesses: Any = None  # the group of accesses to which loads and stores of array elements belong
        self.heap: list[Any] = []  # variables with the addresses of heap memory; the function must free this memory

    def insert_value(self, agg: Any, value: Any, idx: Any, name: str = "") -> Any:
        self._made.append(super().insert_value(agg, value, idx, name))
        return self._made[-1]

    def extract_value(self, agg: Any, idx: Any, name: str = "") -> Any:
        while isinstance(idx, int) and isinstance(agg, instructions.InsertValue) and len(agg.indices) == 1:
            if agg.indices[0] == idx:
                return agg.operands[1]
            agg = agg.operands[0]
        return super().extract_value(agg, idx, name)

    def load(self, ptr: Any, *rest: Any, **named: Any) -> Any:
        return self._grouped(super().load(ptr, *rest, **named), ptr)

    def store(self, value: Any, ptr: Any, *rest: Any, **named: Any) -> Any:
        return self._grouped(super().store(value, ptr, *rest, **named), ptr)

    def _grouped(self, access: Any, pointer: Any) -> Any:
        # An access group tells LLVM that iterations are independent. Variables on the stack are not in the group,
        # because an iteration may read the value that the previous iteration has written.
        if self.accesses and not isinstance(pointer, llvm.AllocaInstr):
            access.set_metadata("llvm.access.group", self.accesses)
        return access

    def free_all(self) -> None:
        """Free the memory that the function has allocated, before it returns."""
        for block in self.function.blocks if self.heap else ():
            if isinstance(block.terminator, instructions.Ret):
                self.position_before(block.terminator)
                for place in self.heap:
                    free(self, place)

    def remove_unused(self) -> None:
        """Remove the aggregates that no instruction uses."""
        users: Counter[int] = Counter()
        for block in self.function.blocks if self._made else ():
            for each in block.instructions:
                users.update(map(id, each.operands))
                users.update(id(value) for value, _ in getattr(each, "incomings", ()))
        for each in reversed(self._made):
            if users[id(each)] == 0:
                users.subtract(map(id, each.operands))
                each.parent.instructions.remove(each)


class Lower(lowering.Lower):  # type: ignore[misc]
    """Numba's lowering without debug information, reference counts, and special code for constant operands."""

    def setup_function(self, fndesc: Any) -> None:
        """Declare the function, and begin its code."""
        super().setup_function(fndesc)
        self.builder = Builder(self.entry_block)
        self.call_helper = self.call_conv.init_call_helper(self.builder)

    def _find_singly_assigned_variable(self) -> None:
        self._blk_local_varmap: dict[str, Any] = {}
        self._singly_assigned_vars = self.fndesc.typemap.keys() - self.func_ir.memory

    def alloca_lltype(self, name: str, lltype: Any, datamodel: Any = None) -> Any:
        """Allocate memory for a variable."""
        with self.builder.goto_entry_block():
            return self.builder.alloca(lltype, name=name)

    def storevar(self, value: Any, name: str, argidx: int | None = None) -> None:
        if name in self._singly_assigned_vars:
            super().storevar(value, name)
        else:
            self.builder.store(value, self.getvar(name))

    def lower(self) -> None:
        """Lower the function, and add its code to the library."""
        self.genlower = None
        self._loops = {header: self._independent_loop() for header in self.func_ir.independent}
        self._accesses = {x: self._loops[header] for header, body in self.func_ir.independent.items() for x in body}
        self.lower_normal_function(self.fndesc)
        self.builder.remove_unused()
        self.builder.free_all()
        self.library.add_ir_module(self.module)

    def _independent_loop(self) -> DistinctNode:
        """The identity of a loop over `independent`: LLVM may vectorise it without checks whether arrays overlap."""
        own = DistinctNode(self.module)
        own.accesses = DistinctNode(self.module)  # the group of its array accesses
        own.operands = (own, self.module.add_metadata(["llvm.loop.parallel_accesses", own.accesses]))
        return own

    def lower_function_body(self) -> Any:
        self._labels = {id(block): label for label, block in self.blocks.items()}
        return super().lower_function_body()

    def lower_block(self, block: Any) -> None:
        """Lower the statements of a block, without a search for handlers of exceptions and without texts for errors."""
        loop = self._accesses.get(self._labels[id(block)])
        for statement in block.body:
            self.loc = statement.loc
            if isinstance(statement, ir.Assign):
                operation = getattr(statement.value, "op", "")
                self.builder.accesses = loop and operation in ("getitem", "static_getitem") and loop.accesses
                name = statement.target.name
                self.storevar(self.lower_assign(self.typeof(name), statement), name)
            else:
                self.builder.accesses = loop and isinstance(statement, ir.SetItem) and loop.accesses
                self.lower_inst(statement)
                if loop and isinstance(statement, ir.Jump) and self._loops.get(statement.target) is loop:
                    self.builder.basic_block.terminator.set_metadata("llvm.loop", loop)

    def lower_binop(self, resty: Any, expr: Any, op: Any) -> Any:
        """Lower an operator with two operands."""
        signature = self.fndesc.calltypes[expr]
        if op in (operator.floordiv, operator.mod) and {*signature.args, resty} == {types.int64}:
            number, divisor = (self._loaded(x, types.int64) for x in (expr.lhs, expr.rhs))
            if isinstance(divisor, llvm.Constant) and divisor.constant > 0:
                return self._divided(op, number, divisor)
        return self._converted(op, signature, (expr.lhs, expr.rhs), resty)

    def _divided(self, op: Any, number: Any, divisor: Any) -> Any:
        """The quotient or remainder of a division by a positive constant, rounded down, without Numba's branches."""
        builder, size, quotient = self.builder, divisor.constant, op is operator.floordiv
        if size & (size - 1) == 0:
            shift = divisor.type(size.bit_length() - 1)
            return builder.ashr(number, shift) if quotient else builder.and_(number, divisor.type(size - 1))
        rest = builder.srem(number, divisor)
        negative = builder.icmp_signed("<", rest, divisor.type(0))
        if quotient:
            return builder.sub(builder.sdiv(number, divisor), builder.zext(negative, divisor.type))
        return builder.select(negative, builder.add(rest, divisor), rest)

    def lower_getitem(self, resty: Any, expr: Any, value: Any, index: Any, signature: Any) -> Any:
        """Lower `value[index]`."""
        return self._converted(operator.getitem, signature, (value, index), resty)

    def lower_setitem(self, target_var: Any, index_var: Any, value_var: Any, signature: Any) -> Any:
        """Lower `target[index] = value`."""
        return self._called(operator.setitem, signature, (target_var, index_var, value_var))

    def lower_call(self, resty: Any, expr: Any) -> Any:
        """Lower a call."""
        function, signature = self.typeof(expr.func.name), self.fndesc.calltypes[expr]
        if (
            isinstance(function, types.Function | types.NumberClass)
            and len(expr.args) == len(signature.args)
            and not (expr.kws or expr.vararg or expr.target or isinstance(signature.return_type, types.Phantom))
            and not any(isinstance(kind, types.BaseTuple) for kind in signature.args)
        ):
            return self._converted(function, signature, expr.args, resty)
        return super().lower_call(resty, expr)

    def _converted(self, function: Any, signature: Any, operands: Sequence[Any], result: Any) -> Any:
        """The result of a call, as another type."""
        value = self._called(function, signature, operands)
        value = self.context.get_dummy_value() if value is None else value
        return self.context.cast(self.builder, value, signature.return_type, result)

    def _called(self, function: Any, signature: Any, operands: Sequence[Any]) -> Any:
        """The result of a call, by the implementation that `TypesOfCalls` remembers."""
        values = [self._loaded(x, kind) for x, kind in zip(operands, signature.args, strict=True)]
        implement, own, libraries = self.context.typing_context.implementation(self.context, function, signature)
        result = implement(self.context, self.builder, own, values, loc=self.loc)
        self.context.add_linking_libs(libraries)
        return result

    def lower_expr(self, resty: Any, expr: Any) -> Any:
        """Lower an expression to a value of type `resty`."""
        if expr.op == "unary":
            return self._converted(expr.fn, self.fndesc.calltypes[expr], [expr.value], resty)
        if expr.op == "call" and isinstance(resty, types.RangeType):
            return self._range(resty, expr.args)
        if expr.op == "getiter" and (step := self._step_of(expr.value)) > 0:
            return self._iterator(resty, expr.value, step)
        if expr.op == "iternext" and isinstance(self.typeof(expr.value.name), types.RangeIteratorType):
            return self._next(resty, expr.value)
        if expr.op in ("pair_first", "pair_second"):
            return self.builder.extract_value(self.loadvar(expr.value.name), int(expr.op == "pair_second"))
        if expr.op == "static_getitem":
            if isinstance(self.typeof(expr.value.name), types.BaseTuple):
                return self.builder.extract_value(self.loadvar(expr.value.name), expr.index)
            return self.lower_getitem(resty, expr, expr.value, expr.index_var, self.fndesc.calltypes[expr])
        return super().lower_expr(resty, expr)

    def _loaded(self, variable: Any, kind: Any) -> Any:
        return self.context.cast(self.builder, self.loadvar(variable.name), self.typeof(variable.name), kind)

    def _struct(self, kind: Any, fields: dict[int, Any]) -> Any:
        value = llvm.Constant(self.context.get_value_type(kind), llvm.Undefined)
        for place, field in fields.items():
            value = self.builder.insert_value(value, field, place)
        return value

    # --- Loops over ranges: a range is (start, stop, step), its iterator (next number, stop, step, iterations left) ---

    def _range(self, kind: Any, arguments: Any) -> Any:
        number = self.context.get_value_type(kind.dtype)
        given = [self._loaded(x, kind.dtype) for x in arguments]
        start, stop, step = {1: [number(0), *given, number(1)], 2: [*given, number(1)], 3: given}[len(given)]
        return self._struct(kind, {0: start, 1: stop, 2: step})

    def _step_of(self, value: Any) -> int:
        """The step of a range, or 0 if the step is not a constant."""
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
