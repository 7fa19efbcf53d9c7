"""The operations whose semantics the compiler knows: elementwise formulas, reductions, and views.

A formula is written once, as a Python function that uses operators and the names in `kernels/scalar.py`. In eager mode
the function runs unchanged, with these names bound to NumPy's functions. In a generated loop, its expression is
inlined, with the names bound to scalar functions and the literals cast to the operands' precision.
"""

from __future__ import annotations

import ast
import builtins
import copy
import inspect
import re
import textwrap
from collections.abc import Callable, Sequence
from functools import cached_property
from types import FunctionType
from typing import Any

import numpy as np

from snncell import dtype as dtypes
from snncell.errors import ArgumentError, ShapeError, SnncellError
from snncell.kernels import sums
from snncell.kernels.products import device
from snncell.kernels.scalar import LOOP, NUMPY, SLOW
from snncell.kernels.space import space_of
from snncell.tape.primitive import EVERYWHERE, Primitive
from snncell.tape.state import Value
from snncell.tape.tracing import Instruction

MAX_INSTRUCTIONS = 64  # per loop: it spills long before, and compile time grows faster than linearly
# The dtypes of generated loops; NumPy computes complex numbers.
COMPILED = frozenset(np.dtype(d.dtype) for d in dtypes.ALL if d.name not in ("complex64", "complex128"))


_OPERAND = re.compile(r"\bOPERAND(\d+)\b")


class FusibleOperation(Primitive):
    """An operation that can be fused into loops: an elementwise one, or a reduction."""

    as_stored: tuple[str, ...] = ("gpu",)

    def on_device(self, arrays: Sequence[Any], attrs: dict[str, Any]) -> Any:
        """Run the operation as a separate kernel; `compiler/runtime/launches.py` implements this."""
        raise NotImplementedError


class Elementwise(FusibleOperation):
    """An operation in which each output element is a formula of the broadcast inputs' elements. The formula is a
    function with one statement, the `return` of an expression. The dtype rule is one of these:

    same      operands are converted to one dtype, which is also the result's
    float     like "same", but integers become float32
    whole     like "same", but integers are kept
    compare   the result is bool
    test      like "compare", but integers become float32
    logical   all dtypes are bool
    select    the first operand is bool, and the others are converted to one dtype
    """

    def __init__(self, formula: Callable[..., Any], rule: str) -> None:
        names = {**NUMPY, "__builtins__": builtins}
        super().__init__(formula.__name__, FunctionType(formula.__code__, names, formula.__name__))
        self.__doc__ = formula.__doc__
        self.formula = formula
        self.rule = rule
        self.arity = formula.__code__.co_argcount
        # By (cast of literals, target): the expression with OPERAND0, OPERAND1, ... for the arguments.
        self._templates: dict[tuple[str, bool], str] = {}
        self.integer_loops = True  # True if a generated loop may compute it on integers
        self.of_complex: Elementwise | None = None  # the operation that replaces it on the GPU for complex operands

    @property
    def __signature__(self) -> inspect.Signature:
        """The formula's signature, for `help`."""
        return inspect.signature(self.formula)

    def failure(self, inputs: Sequence[Any], attrs: dict[str, Any], error: Exception) -> SnncellError:
        if isinstance(error, ValueError):  # in most cases, shapes do not broadcast
            try:
                broadcast_shape(self.name, [x.shape for x in inputs if hasattr(x, "shape")])
            except ShapeError as mismatch:
                return mismatch
            return ArgumentError(f"{self.name}: {error}")  # the shapes are valid, so a value is not
        return super().failure(inputs, attrs, error)

    def operand_dtype(self, inputs: Sequence[Any]) -> Any:
        """The NumPy dtype in which the formula is computed."""
        operands = inputs[1:] if self.rule == "select" else inputs
        return next(x.dtype for x in operands if hasattr(x, "dtype"))

    def abstract(self, inputs: tuple[Any, ...], attrs: dict[str, Any]) -> list[tuple[Any, Any]]:
        shape = broadcast_shape(self.name, [x.shape for x in inputs if isinstance(x, Value)])
        dtype = self.operand_dtype(inputs)
        if dtype.kind == "c":
            return super().abstract(inputs, attrs)
        return [(shape, np.dtype(bool) if self.rule in ("compare", "test", "logical") else dtype)]

    def over_time(self, arrays: Sequence[Any], varying: Sequence[bool], attrs: dict[str, Any]) -> Any:
        """Evaluate the formula for all steps of a loop over time."""
        # Broadcasting aligns axes from the right, so insert axes of length 1 between time and the axes of the step. For
        # example, (T, N) with a constant (B, N) becomes (T, 1, N).
        pairs = list(zip(arrays, varying, strict=True))
        ndim = max(np.ndim(x) - varies for x, varies in pairs)
        aligned = [
            x.reshape(x.shape[:1] + (1,) * (ndim + 1 - x.ndim) + x.shape[1:]) if varies else x for x, varies in pairs
        ]
        return self.run_here(aligned, arrays, attrs)

    @cached_property
    def slow_calls(self) -> int:
        """The number of slow scalar functions per element; `**` counts as one."""
        nodes = list(ast.walk(self._parsed[1]))
        called = [node.func for node in nodes if isinstance(node, ast.Call)]
        slow = sum(isinstance(function, ast.Name) and function.id in SLOW for function in called)
        return slow + sum(isinstance(node, ast.Pow) for node in nodes)

    @cached_property
    def is_involution(self) -> bool:
        """True if the formula is -x or ~x, so that applying it twice gives x."""
        body = self._parsed[1]
        if not isinstance(body, ast.UnaryOp):
            return False
        return isinstance(body.op, (ast.USub, ast.Invert)) and isinstance(body.operand, ast.Name)

    @cached_property
    def _parsed(self) -> tuple[list[str], ast.expr]:
        (function,) = ast.parse(textwrap.dedent(inspect.getsource(self.formula))).body
        assert isinstance(function, ast.FunctionDef)  # formulas are written with def
        returns = [statement for statement in function.body if isinstance(statement, ast.Return)]
        assert len(returns) == 1 and returns[0].value is not None, f"formula {function.name}: one return, no statements"
        return [argument.arg for argument in function.args.args], returns[0].value

    def expression(self, operands: Sequence[str], literal: str, names: dict[str, str] = LOOP) -> str:
        """The formula on `operands`, with literals cast by `literal`, and functions named by `names` (LOOP or CUDA)."""
        key = (literal, names is LOOP)
        if key not in self._templates:
            arguments, body = self._parsed
            slots = {name: f"OPERAND{n}" for n, name in enumerate(arguments)}
            # A copy: the transformer changes the tree it walks.
            self._templates[key] = ast.unparse(_Fill(slots, literal, names).visit(copy.deepcopy(body)))
        # Substitute all operands at once, because the text of an operand must not be substituted itself.
        return _OPERAND.sub(lambda match: operands[int(match[1])], self._templates[key])


class Cast(Elementwise):
    """Conversion to the dtype in its attributes."""

    as_stored = EVERYWHERE
    additive = True  # up to rounding, for floats; gradients of other dtypes are never added
    upper_bound = staticmethod(lambda x: x)

    def __init__(self) -> None:
        super().__init__(_cast, "same")
        self.name, self.evaluate = "cast", _cast_array

    def abstract(self, inputs: tuple[Any, ...], attrs: dict[str, Any]) -> list[tuple[Any, Any]]:
        return [(inputs[0].shape, attrs["dtype"])]

    def on_device(self, arrays: Sequence[Any], attrs: dict[str, Any]) -> Any:
        (x,) = arrays
        if x.dtype.kind == "c" and attrs["dtype"].kind not in "cb":  # a boolean also depends on the imaginary part
            x = device.real(x)
        return x if x.dtype == attrs["dtype"] else super().on_device([x], attrs)

    def operations(self, inputs: Sequence[Any], outputs: Sequence[Any], attrs: dict[str, Any], used: float) -> float:
        """0, because a conversion is not counted as arithmetic."""
        return 0.0


def _cast(x: Any) -> Any:
    return x


def _cast_array(x: Any, dtype: Any) -> Any:
    if x.dtype.kind != "c" or dtype.kind in "cb":
        return x.astype(dtype)
    return x.real.astype(dtype)  # NumPy would warn that it discards the imaginary part


CAST = Cast()


class Reduction(FusibleOperation):
    """An operation that combines the elements along some axes."""

    def __init__(self, name: str, evaluate: Callable[..., Any], join: str, start: Callable[[Any], str]) -> None:
        super().__init__(name, evaluate)  # (array, axis=tuple, keepdims=bool)
        self.join = join  # the combining expression of {0} and {1}
        self.start = start  # for a NumPy dtype, the text of the neutral element

    def over_time(self, arrays: Sequence[Any], varying: Sequence[bool], attrs: dict[str, Any]) -> Any:
        """The reduction within each step."""
        attrs = {"axis": tuple(axis + 1 for axis in attrs["axis"]), "keepdims": attrs["keepdims"]}
        return self.run_here(arrays, arrays, attrs)

    def abstract(self, inputs: tuple[Any, ...], attrs: dict[str, Any]) -> list[tuple[Any, Any]]:
        (x,) = inputs
        shape = [1 if axis in attrs["axis"] else n for axis, n in enumerate(x.shape)]
        if not attrs["keepdims"]:
            shape = [n for axis, n in enumerate(x.shape) if axis not in attrs["axis"]]
        return [(tuple(shape), x.dtype)]


class Sum(Reduction):
    """The sum of elements."""

    additive = True
    times: Elementwise  # the product, for the sum of n equal elements x; called with x and n

    def __init__(self) -> None:
        super().__init__("sum", sums.total, "{0} + {1}", lambda dtype: "0")


def can_compile(dtypes_used: Sequence[Any]) -> bool:
    """True if generated loops support all of these dtypes."""
    return COMPILED.issuperset(dtypes_used)


def loop_shape(instruction: Instruction) -> tuple[int, ...] | None:
    """The index space of an instruction that can be fused into a loop, else None."""
    values = [x for x in (*instruction.inputs, *instruction.outputs) if isinstance(x, Value)]
    return loop_shape_of_any(instruction) if can_compile([value.dtype for value in values]) else None


def loop_shape_of_any(instruction: Instruction) -> tuple[int, ...] | None:
    """`loop_shape` without the check of dtypes."""
    if isinstance(instruction.op, Elementwise):
        if not instruction.op.integer_loops and not dtypes.is_float(instruction.outputs[0].dtype):
            return None
        return instruction.outputs[0].shape
    return instruction.inputs[0].shape if isinstance(instruction.op, Reduction) else None


def is_elementwise(instruction: Instruction) -> bool:
    """True if the instruction is elementwise and can be fused into a generated loop."""
    return isinstance(instruction.op, Elementwise) and loop_shape(instruction) is not None


def is_float_value(x: Any) -> bool:
    """True for a Value of floats."""
    return isinstance(x, Value) and dtypes.is_float(x.dtype)


def can_sum_early(x: Value) -> bool:
    """True for floats that a pass may sum earlier: in a storage format, the sum could overflow or lose digits."""
    return dtypes.is_float(x.dtype) and not dtypes.is_storage_only(x.dtype)


def merges_steps(instruction: Instruction) -> bool:
    """True for a reshape (T, B, ...) -> (T B, ...)."""
    if not isinstance(instruction.op, Reshape):
        return False
    shape, before = instruction.outputs[0].shape, instruction.inputs[0].shape
    return len(before) == len(shape) + 1 and before[2:] == shape[1:] and before[0] > 1


def broadcast_shape(name: str, shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """The shape to which `shapes` broadcast; a ShapeError names the operation `name` and the shapes."""
    if len(shapes) == 1:
        return shapes[0]
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        shown = " and ".join(map(str, shapes))
        raise ShapeError(
            f"{name}: shapes {shown} do not broadcast. Counted from the right, each axis must be equal or 1; "
            f"reshape or expand_dims one of them."
        ) from None


class _Fill(ast.NodeTransformer):
    """Puts operands and a target's functions into a formula, and casts its literals."""

    def __init__(self, operands: dict[str, str], literal: str, names: dict[str, str]) -> None:
        self.operands = operands
        self.literal = literal
        self.names = names

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Name(self.operands[node.id])

    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        return _expression(f"{self.literal}({node.value!r})")

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        self.generic_visit(node)
        if not isinstance(node.op, ast.FloorDiv) or not self.literal.startswith("i"):
            return node
        # For the smallest int64, Numba's x // -1 is 0, but NumPy's wraps around to x.
        left, right = (f"({ast.unparse(side)})" for side in (node.left, node.right))
        return _expression(f"-{left} if {right} == {self.literal}(-1) else {left} // {right}")

    def visit_Call(self, node: ast.Call) -> ast.expr:
        assert isinstance(node.func, ast.Name)  # formulas call names only
        arguments = [ast.unparse(self.visit(argument)) for argument in node.args]
        template = self.names[node.func.id]
        return _expression(template.format(*(f"({argument})" for argument in arguments), cast=self.literal))


def _expression(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


# --- Views ------------------------------------------------------------------------------------------------------------


class ViewOperation(Primitive):
    """The same elements in another shape or order; copied only if strides cannot express the result."""

    as_stored = EVERYWHERE
    view = selects = additive = True


class Reshape(ViewOperation):
    """The same elements in the same order."""

    def __init__(self) -> None:
        super().__init__("reshape", lambda x, shape: x.reshape(shape))

    def over_time(self, arrays: Sequence[Any], varying: Sequence[bool], attrs: dict[str, Any]) -> Any:
        """Reshape each step."""
        return arrays[0].reshape(len(arrays[0]), *attrs["shape"])


class Transpose(ViewOperation):
    """The same elements with their axes in another order."""

    def __init__(self) -> None:
        super().__init__("transpose", lambda x, axes: x.transpose(axes))

    def over_time(self, arrays: Sequence[Any], varying: Sequence[bool], attrs: dict[str, Any]) -> Any:
        """Transpose each step."""
        return arrays[0].transpose((0, *(axis + 1 for axis in attrs["axes"])))


class Broadcast(ViewOperation):
    """The same elements repeated along new axes, or along axes of length 1."""

    def __init__(self) -> None:
        super().__init__("broadcast_to", lambda x, shape: np.broadcast_to(x, shape))

    def over_time(self, arrays: Sequence[Any], varying: Sequence[bool], attrs: dict[str, Any]) -> Any:
        """Broadcast each step: new axes are inserted after time."""
        (x,), shape = arrays, attrs["shape"]
        new = (1,) * (len(shape) + 1 - x.ndim)
        return np.broadcast_to(x.reshape(len(x), *new, *x.shape[1:]), (len(x), *shape))


class Contiguous(Primitive):
    """The same elements contiguous in memory; the array itself if it is contiguous already."""

    as_stored = EVERYWHERE
    view = selects = True
    differentiable = False

    def __init__(self) -> None:
        super().__init__("contiguous", lambda x: space_of(x).contiguous(x))


CONTIGUOUS = Contiguous()
