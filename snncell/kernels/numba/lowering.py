"""Lowering of kernels: from Numba's typed statements to LLVM IR with few instructions.

Numba gives memory to each variable that several blocks use, and to each field of a loop over a range. LLVM replaces
this memory by registers, which takes a part of the compile time. Here, only variables that change have memory.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

from snncell.base.signals import import_once
from snncell.kernels.intrinsics.builtins import independent

analysis: Any = import_once("numba.core.analysis")
ir: Any = import_once("numba.core.ir")
llvm: Any = import_once("llvmlite.ir")
lowering: Any = import_once("numba.core.lowering")
types: Any = import_once("numba.core.types")
utils: Any = import_once("numba.core.ir_utils")
values: Any = import_once("llvmlite.ir.values")


class DistinctNode(values.MDValue):  # type: ignore[misc]
    """A metadata node that differs from all others, for example the identity of a loop."""

    def __init__(self, module: Any) -> None:
        super().__init__(module, (), name=str(len(module.metadata)))

    def descr(self, buf: Any) -> None:
        """Write the definition of the node."""
        buf += f"distinct !{{ {', '.join(x.get_reference() for x in self.operands)} }}", "\n"

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other


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

    # --- Loops over `independent`: LLVM may vectorise them without checks whether arrays overlap ----------------------

    def pre_lower(self) -> None:
        """Find the innermost loops over `independent`, and make their metadata."""
        super().pre_lower()
        self._accesses: dict[int, Any] = {}  # the group of array accesses of the loop to which a block belongs
        self._loops: dict[int, Any] = {}  # by header: the identity of the loop
        self._label = 0
        loops = analysis.compute_cfg_from_blocks(self.blocks).loops()
        for header, loop in loops.items():
            inner = not any(other != header and other in loop.body for other in loops)
            steps = [each.value for label in loop.body for each in self.blocks[label].find_exprs("iternext")]
            if inner and any(map(self._is_independent, steps)):
                accesses, own = DistinctNode(self.module), DistinctNode(self.module)
                parallel = self.module.add_metadata(["llvm.loop.parallel_accesses", accesses])
                own.operands = (own, parallel)
                self._loops[header] = own
                self._accesses |= dict.fromkeys(loop.body, accesses)

    def _is_independent(self, iterator: Any) -> bool:
        """True if an iterator is that of `independent(n)`."""
        begin = self._definition(iterator)
        call = begin and self._definition(begin.value)
        return (
            bool(call)
            and getattr(call, "op", "") == "call"
            and getattr(self._definition(call.func), "value", None) is independent
        )

    def lower_block(self, block: Any) -> None:
        """Lower a block."""
        self._label = next(label for label, each in self.blocks.items() if each is block)
        super().lower_block(block)

    def lower_inst(self, inst: Any) -> None:
        """Lower a statement."""
        accesses = self._accesses.get(self._label)
        if accesses is None:
            super().lower_inst(inst)
            return
        known = {block: len(block.instructions) for block in self.function.blocks}
        super().lower_inst(inst)
        if isinstance(inst, ir.Jump) and inst.target in self._loops:
            self.builder.basic_block.terminator.set_metadata("llvm.loop", self._loops[inst.target])
        elif isinstance(inst, ir.SetItem | ir.StaticSetItem) or (
            isinstance(inst, ir.Assign) and getattr(inst.value, "op", "") in ("getitem", "static_getitem")
        ):
            for block in self.function.blocks:
                for each in block.instructions[known.get(block, 0) :]:
                    # A variable in memory may have its value from the iteration before.
                    if each.opname in ("load", "store") and not isinstance(each.operands[-1], llvm.AllocaInstr):
                        each.set_metadata("llvm.access.group", accesses)

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
