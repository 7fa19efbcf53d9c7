"""Translate the source of a kernel to Numba's intermediate representation (Numba IR).

Numba itself translates bytecode, with a variable for each place of the interpreter's stack. Here, most variables have
one value and need no memory, and a function reads each constant and global name once.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import operator
import textwrap
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import lru_cache
from types import ModuleType
from typing import Any

from snncell.base.signals import import_once
from snncell.kernels.intrinsics.builtins import independent

bytecode: Any = import_once("numba.core.bytecode")
ir: Any = import_once("numba.core.ir")

# Python's operators: as an expression, and with an assignment.
_BINARY: dict[type[ast.AST], tuple[Any, Any]] = {
    ast.Add: (operator.add, operator.iadd),
    ast.Sub: (operator.sub, operator.isub),
    ast.Mult: (operator.mul, operator.imul),
    ast.Div: (operator.truediv, operator.itruediv),
    ast.FloorDiv: (operator.floordiv, operator.ifloordiv),
    ast.Mod: (operator.mod, operator.imod),
    ast.Pow: (operator.pow, operator.ipow),
    ast.LShift: (operator.lshift, operator.ilshift),
    ast.RShift: (operator.rshift, operator.irshift),
    ast.BitAnd: (operator.and_, operator.iand),
    ast.BitOr: (operator.or_, operator.ior),
    ast.BitXor: (operator.xor, operator.ixor),
}
_COMPARE: dict[type[ast.AST], Any] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
_UNARY: dict[type[ast.AST], Any] = {ast.USub: operator.neg, ast.Invert: operator.invert, ast.Not: operator.not_}


def _unsupported(node: ast.AST) -> NotImplementedError:
    text = ast.unparse(node)
    return NotImplementedError(f"Kernels cannot contain `{text}`. Use other syntax, or translate it in syntax.py.")


def statements_of(function: Callable[..., Any]) -> Any:
    """Translate a function to Numba IR."""
    return _Translation(function).translate()


@lru_cache(maxsize=4)
def _definitions(source: str) -> dict[str, ast.FunctionDef]:
    return {node.name: node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)}


def _syntax(function: Callable[..., Any]) -> ast.FunctionDef:
    generated = function.__globals__.get("__source__")
    if generated is not None:
        return _definitions(generated)[function.__name__]
    node = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    assert isinstance(node, ast.FunctionDef)
    return node


class _Translation:
    def __init__(self, function: Callable[..., Any]) -> None:
        self.function, self.identity = function, bytecode.FunctionIdentity.from_function(function)
        self.loc = ir.Loc(function.__code__.co_filename, function.__code__.co_firstlineno)
        self.scope = ir.Scope(parent=None, loc=self.loc)
        self.local = {*function.__code__.co_varnames, *function.__code__.co_cellvars}
        closure = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        self.known = vars(builtins) | function.__globals__ | {name: cell.cell_contents for name, cell in closure}
        self.variables: dict[str, Any] = {}
        # The variable with the present value of each local name. After a branch or a loop that assigns the name, this
        # is unknown. The value is then read from memory, where each assignment also stores it.
        self.current: dict[str, Any] = {}
        self.memory: set[str] = set()  # the names whose values are read from memory
        self.head: list[Any] = []  # constants and global names, at the start of the first block
        self.shared: dict[Any, Any] = {}  # their variables
        self.blocks: list[tuple[int, list[Any]]] = []  # in the order of the code, with a label
        self.loops: list[tuple[int, int]] = []  # where `continue` and `break` go
        self.independent: list[tuple[int, int]] = []  # the innermost loops over `independent`: the head, and the end
        self.count = self.label = 0
        self.place(self.new_label())

    def translate(self) -> Any:
        node = _syntax(self.function)
        names = tuple(argument.arg for argument in node.args.args)
        for index, name in enumerate(names):
            self.assign(name, ir.Arg(name=name, index=index, loc=self.loc))
        self.run(node.body)
        if not self.ended():
            self.leave(self.constant(None))
        order = {label: number for number, (label, _) in enumerate(self.blocks)}
        definitions, blocks = defaultdict(list), {}
        for label, lines in self.blocks:
            block = blocks[order[label]] = ir.Block(self.scope, self.loc)
            for line in (*self.head, *lines) if order[label] == 0 else lines:
                if isinstance(line, tuple):  # a jump or a branch
                    *condition, targets = line
                    kind = ir.Branch if condition else ir.Jump
                    line = kind(*condition, *(order[target] for target in targets), loc=self.loc)
                elif isinstance(line, ir.Assign):
                    if line.target.name in self.local and line.target.name not in self.memory:
                        continue
                    definitions[line.target.name].append(line.value)
                block.append(line)
        reached = _reached(blocks)
        blocks = {label: block for label, block in blocks.items() if label in reached}
        code = ir.FunctionIR(blocks, False, self.identity, self.loc, definitions, len(names), names)
        code.memory = self.memory
        code.independent = {order[head]: range(order[head], order[after]) for head, after in self.independent}
        return code

    # --- Blocks -------------------------------------------------------------------------------------------------------

    def new_label(self) -> int:
        self.label += 1
        return self.label

    def place(self, label: int) -> None:
        """Begin a block; if the previous block has no jump at its end, add one to here."""
        if self.blocks and not self.ended():
            self.jump(label)
        self.blocks.append((label, []))

    def emit(self, line: Any) -> None:
        self.blocks[-1][1].append(line)

    def ended(self) -> bool:
        lines = self.blocks[-1][1]
        return bool(lines) and isinstance(lines[-1], tuple | ir.Return)

    def jump(self, label: int) -> None:
        self.emit(((label,),))

    def branch(self, condition: Any, true: int, false: int) -> None:
        self.emit((condition, (true, false)))

    # --- Variables ----------------------------------------------------------------------------------------------------

    def variable(self, name: str) -> Any:
        if name not in self.variables:
            self.variables[name] = ir.Var(self.scope, name, self.loc)
        return self.variables[name]

    def assign(self, name: str, value: Any) -> None:
        """Assign a value to a local name."""
        if not isinstance(value, ir.Var):
            value = self.keep(value)
        self.current[name] = value
        self.put(self.variable(name), value)

    def put(self, target: Any, value: Any) -> Any:
        self.emit(ir.Assign(value, target, self.loc))
        return target

    def keep(self, value: Any) -> Any:
        """Assign a value to a new variable."""
        return self.put(self.temporary(), value)

    def temporary(self) -> Any:
        self.count += 1
        return self.variable(f"${self.count}")

    def read(self, name: str) -> Any:
        """The present value of a local name."""
        if name not in self.current:
            self.memory.add(name)
            self.current[name] = self.keep(self.variable(name))
        return self.current[name]

    def once(self, key: Any, value: Any) -> Any:
        """The variable of a constant or a global name."""
        if key not in self.shared:
            target = self.shared[key] = self.temporary()
            self.head.append(ir.Assign(value, target, self.loc))
        return self.shared[key]

    def constant(self, value: Any) -> Any:
        return self.once((type(value), repr(value)), ir.Const(value, self.loc))

    # --- Statements ---------------------------------------------------------------------------------------------------

    def run(self, nodes: Sequence[ast.stmt]) -> None:
        for node in nodes:
            if self.ended():
                return
            handle = getattr(self, f"_{type(node).__name__.lower()}", None)
            if handle is None:
                raise _unsupported(node)
            handle(node)

    def leave(self, value: Any) -> None:
        self.emit(ir.Return(self.keep(ir.Expr.cast(value, self.loc)), self.loc))

    def _return(self, node: ast.Return) -> None:
        self.leave(self.constant(None) if node.value is None else self.value(node.value))

    def _pass(self, node: ast.Pass) -> None:
        pass

    def _expr(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Constant):
            self.value(node.value)

    def _break(self, node: ast.Break) -> None:
        self.jump(self.loops[-1][1])

    def _continue(self, node: ast.Continue) -> None:
        self.jump(self.loops[-1][0])

    def _assign(self, node: ast.Assign) -> None:
        (target, *others) = node.targets
        if not others and isinstance(target, ast.Tuple | ast.List) and isinstance(node.value, ast.Tuple):
            if len(target.elts) != len(node.value.elts):
                raise _unsupported(node)
            values = [self.value(each) for each in node.value.elts]
            for each, value in zip(target.elts, values, strict=True):
                self.store(each, value)
            return
        value = self.value(node.value)
        for each in node.targets:
            self.store(each, value)

    def store(self, target: ast.expr, value: Any) -> None:
        if isinstance(target, ast.Name):
            self.assign(target.id, value)
        elif isinstance(target, ast.Subscript):
            self.set_item(self.value(target.value), self.value(target.slice), value)
        elif isinstance(target, ast.Tuple | ast.List):
            pieces = self.keep(ir.Expr.exhaust_iter(value, len(target.elts), self.loc))
            for index, each in enumerate(target.elts):
                piece = ir.Expr.static_getitem(pieces, index, None, self.loc)
                self.store(each, piece if isinstance(each, ast.Name) else self.keep(piece))
        else:
            raise _unsupported(target)

    def set_item(self, array: Any, index: Any, value: Any) -> None:
        self.emit(ir.SetItem(target=array, index=index, value=value, loc=self.loc))

    def _augassign(self, node: ast.AugAssign) -> None:
        plain, inplace = _BINARY[type(node.op)]
        if isinstance(node.target, ast.Name):
            old, value = self.read(node.target.id), self.value(node.value)
            self.assign(node.target.id, ir.Expr.inplace_binop(inplace, plain, old, value, self.loc))
        elif isinstance(node.target, ast.Subscript):
            array, index = self.value(node.target.value), self.value(node.target.slice)
            old = self.keep(ir.Expr.getitem(array, index, self.loc))
            value = ir.Expr.inplace_binop(inplace, plain, old, self.value(node.value), self.loc)
            self.set_item(array, index, self.keep(value))
        else:
            raise _unsupported(node)

    def _if(self, node: ast.If) -> None:
        then, otherwise, after = self.new_label(), self.new_label(), self.new_label()
        self.test(node.test, then, otherwise if node.orelse else after)
        before, ends = self.current, []
        for label, body in ((then, node.body), (otherwise, node.orelse)):
            self.current = dict(before)
            if body:
                self.place(label)
                self.run(body)
            if not body or not self.ended():
                ends.append(self.current)
            if body is node.body and node.orelse and not self.ended():
                self.jump(after)
        self.place(after)
        first, *others = ends or [before]
        self.current = {name: x for name, x in first.items() if all(end.get(name) is x for end in others)}

    def _while(self, node: ast.While) -> None:
        head, body, after = self.new_label(), self.new_label(), self.new_label()
        self.place(head)
        before = self.enter(node)
        self.test(node.test, body, after)
        self.loop(node, head, body, after, before)

    def _for(self, node: ast.For) -> None:
        head, body, after = self.new_label(), self.new_label(), self.new_label()
        iterator = self.keep(ir.Expr.getiter(self.value(node.iter), self.loc))
        known = self.global_value(node.iter.func) if isinstance(node.iter, ast.Call) else None
        inner = any(isinstance(x, ast.For | ast.While) for each in node.body for x in ast.walk(each))
        if known is not None and known[1].value is independent and not inner:
            self.independent.append((head, after))
        self.place(head)
        before = self.enter(node)
        pair = self.keep(ir.Expr.iternext(iterator, self.loc))
        value = self.keep(ir.Expr.pair_first(pair, self.loc))
        self.branch(self.keep(ir.Expr.pair_second(pair, self.loc)), body, after)
        self.loop(node, head, body, after, before, value)

    def enter(self, node: ast.For | ast.While) -> dict[str, Any]:
        """Forget the values of names that a loop assigns; return the other values, which stay valid after the loop."""
        stored = {x.id for x in ast.walk(node) if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Store)}
        self.current = {name: x for name, x in self.current.items() if name not in stored}
        return dict(self.current)

    def loop(
        self, node: ast.For | ast.While, head: int, body: int, after: int, before: dict[str, Any], value: Any = None
    ) -> None:
        if node.orelse:
            raise _unsupported(node)
        self.place(body)
        if isinstance(node, ast.For):
            self.store(node.target, value)
        self.loops.append((head, after))
        self.run(node.body)
        self.loops.pop()
        if not self.ended():
            self.jump(head)
        self.place(after)
        self.current = before

    # --- Expressions --------------------------------------------------------------------------------------------------

    def test(self, node: ast.expr, true: int, false: int) -> None:
        """Branch on a condition."""
        node = _unchained(node)
        if isinstance(node, ast.BoolOp):
            *first, last = node.values
            before = None
            for each in first:
                following = self.new_label()
                self.test(each, *((following, false) if isinstance(node.op, ast.And) else (true, following)))
                self.place(following)
                before = dict(self.current) if before is None else before  # the first condition is always evaluated
            self.test(last, true, false)
            assert before is not None  # an operator has at least two operands
            self.current = before
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            self.test(node.operand, false, true)
        else:
            self.branch(self.value(node), true, false)

    def value(self, node: ast.expr) -> Any:
        """The variable with the value of an expression."""
        found = self.known_value(node)
        if found is not None:
            return found
        node = _unchained(node)
        if isinstance(node, ast.IfExp | ast.BoolOp):
            return self.choice(node)
        handle = getattr(self, f"_value_{type(node).__name__.lower()}", None)
        if handle is None:
            raise _unsupported(node)
        return self.keep(handle(node))

    def known_value(self, node: ast.expr) -> Any:
        """The variable of a name or constant, or None for other expressions."""
        folded = _folded(node)
        if folded is not None:
            return self.constant(folded.value)
        if isinstance(node, ast.Name) and node.id in self.local:
            return self.read(node.id)
        named = self.global_value(node)
        return None if named is None else self.once(*named)

    def global_value(self, node: ast.expr) -> tuple[str, Any] | None:
        """A global name, or an attribute of a module."""
        if isinstance(node, ast.Name) and node.id not in self.local:
            if node.id not in self.known:
                raise _unsupported(node)
            return node.id, ir.Global(node.id, self.known[node.id], self.loc)
        if isinstance(node, ast.Attribute):
            owner = self.global_value(node.value)
            if owner is not None and isinstance(owner[1].value, ModuleType):
                name = f"{owner[0]}.{node.attr}"
                return name, ir.Global(name, getattr(owner[1].value, node.attr), self.loc)
        return None

    def choice(self, node: ast.IfExp | ast.BoolOp) -> Any:
        """The value of a conditional expression."""
        then, otherwise, after = self.new_label(), self.new_label(), self.new_label()
        tested = None
        if isinstance(node, ast.IfExp):
            self.test(node.test, then, otherwise)
            values = [node.body, node.orelse]
        else:
            first, *rest = node.values
            tested = self.value(first)
            self.branch(tested, *((then, otherwise) if isinstance(node.op, ast.And) else (otherwise, then)))
            values = [rest[0] if len(rest) == 1 else ast.BoolOp(node.op, rest)]
        before, target = self.current, self.temporary()
        self.memory.add(target.name)
        for label, index in ((then, 0), (otherwise, 1)):
            self.current = dict(before)
            self.place(label)
            self.put(target, self.value(values[index]) if index < len(values) else tested)
            if index == 0:
                self.jump(after)
        self.place(after)
        self.current = before
        return target

    def _value_binop(self, node: ast.BinOp) -> Any:
        plain, _ = _BINARY.get(type(node.op), (None, None))
        if plain is None:
            raise _unsupported(node)
        return ir.Expr.binop(plain, self.value(node.left), self.value(node.right), self.loc)

    def _value_unaryop(self, node: ast.UnaryOp) -> Any:
        if isinstance(node.op, ast.UAdd):
            raise _unsupported(node)
        return ir.Expr.unary(_UNARY[type(node.op)], self.value(node.operand), self.loc)

    def _value_compare(self, node: ast.Compare) -> Any:
        if type(node.ops[0]) not in _COMPARE:
            raise _unsupported(node)
        left, right = self.value(node.left), self.value(node.comparators[0])
        return ir.Expr.binop(_COMPARE[type(node.ops[0])], left, right, self.loc)

    def _value_call(self, node: ast.Call) -> Any:
        if node.keywords or any(isinstance(each, ast.Starred) for each in node.args):
            raise _unsupported(node)
        function = self.value(node.func)
        return ir.Expr.call(function, [self.value(each) for each in node.args], (), self.loc)

    def _value_attribute(self, node: ast.Attribute) -> Any:
        return ir.Expr.getattr(self.value(node.value), node.attr, self.loc)

    def _value_subscript(self, node: ast.Subscript) -> Any:
        array, index, constant = self.value(node.value), self.value(node.slice), _folded(node.slice)
        if constant is not None:  # its type may depend on the number, if the array is a tuple
            return ir.Expr.static_getitem(array, constant.value, index, self.loc)
        return ir.Expr.getitem(array, index, self.loc)

    def _value_tuple(self, node: ast.Tuple) -> Any:
        return ir.Expr.build_tuple([self.value(each) for each in node.elts], self.loc)


def _folded(node: ast.expr) -> ast.Constant | None:
    """The constant that an expression of constants is equal to."""
    if isinstance(node, ast.Constant):
        return node
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        own = _folded(node.operand)
        value: Any = None if own is None else own.value
        return None if own is None else ast.Constant(-value)
    if isinstance(node, ast.BinOp):
        left, right = _folded(node.left), _folded(node.right)
        if left is not None and right is not None and right.value != 0:
            return ast.Constant(_BINARY[type(node.op)][0](left.value, right.value))
    return None


def _unchained(node: ast.expr) -> ast.expr:
    """`a < b and b < c` instead of `a < b < c`."""
    if not isinstance(node, ast.Compare) or len(node.ops) == 1:
        return node
    operands = [node.left, *node.comparators]
    triples = zip(operands, node.ops, operands[1:], strict=False)
    return ast.BoolOp(ast.And(), [ast.Compare(left, [comparison], [right]) for left, comparison, right in triples])


def _reached(blocks: dict[int, Any]) -> set[int]:
    """The labels of blocks that can be reached."""
    reached, waiting = set[int](), [0]
    while waiting:
        label = waiting.pop()
        if label not in reached:
            reached.add(label)
            waiting += blocks[label].terminator.get_targets()
    return reached
