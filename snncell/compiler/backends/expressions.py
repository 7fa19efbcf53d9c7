"""Formulas as text: the statements of a loop's body and the head of its file.

    mul(x, 0.5)   ->   # mul, net.py:12: v = v * 0.5
                       t1 = f4(v0 * s0)

Both targets take their statements from here. Python numbers become arguments of the kernel (s0): another number is
another call, not another kernel. Every result is cast to the dtype it is computed in (f4).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from snncell import dtype as dtypes
from snncell.compiler.ir.formula import Cast, Elementwise, Reduction, Sum
from snncell.kernels.cpu import loops
from snncell.kernels.policy import CALL_COST
from snncell.kernels.scalar import CUDA_IMPORTS, LOOP, LOOP_IMPORTS, SIMULATOR_IMPORTS, is_simulated
from snncell.tape.tracing import Instruction
from snncell.tape.value import Value


class Statements:
    """The statements of a loop's body, and the names of the Values in it."""

    def __init__(
        self, scalars: list[tuple[Any, Any]] | None = None, functions: dict[str, str] = LOOP, mark: str = ""
    ) -> None:
        self.functions = functions  # the target's names of scalar functions
        self.mark = mark  # a suffix of names, for a second body in one kernel
        self.lines: list[str] = []
        self.names: dict[Value, str] = {}
        self.scalars: list[tuple[Any, Any]] = [] if scalars is None else scalars

    def load(self, value: Value, element: str) -> None:
        """Give a Value a name that holds an element from outside."""
        self.names[value] = f"v{len(self.names)}{self.mark}"
        self.lines.append(f"{self.names[value]} = {element}")

    def compute(self, instruction: Instruction) -> None:
        """Append an elementwise instruction, under the user's line that it comes from."""
        assert isinstance(instruction.op, Elementwise)  # the caller's choice
        (out,) = instruction.outputs
        code = dtypes.compute_dtype(instruction.op.operand_dtype(instruction.inputs))
        operands = [
            self.names[x] if isinstance(x, Value) else self._scalar(x, instruction, code) for x in instruction.inputs
        ]
        name = f"t{len(self.names)}{self.mark}"  # numbered within the loop, so that equal loops have equal sources
        self.names[out] = name
        comment = comment_on(instruction)
        if not self.lines or self.lines[-1] != comment:
            self.lines.append(comment)
        result = instruction.op.expression(operands, code.str[1:], self.functions)
        self.lines.append(f"{name} = {code_of(out)}({_as_integer(result, instruction, out.dtype)})")
        self.lines += self.rounding(out, name)

    def rounding(self, value: Value, name: str) -> list[str]:
        """The statement that rounds an element to float16 or bfloat16, as each eager operation does; else none."""
        return (
            [f"{name} = {self.functions[value.dtype.name].format(name)}"] if dtypes.is_storage_only(value.dtype) else []
        )

    def _scalar(self, number: Any, instruction: Instruction, dtype: Any) -> str:
        """A Python number as an argument."""
        # Equal numbers do not share one: the source, by which compiled kernels are found, must not depend on values.
        condition = instruction.inputs[0] is number and getattr(instruction.op, "rule", "") == "select"
        self.scalars.append((number, np.dtype(bool) if condition else dtype))
        return f"s{len(self.scalars) - 1}"


def _as_integer(result: str, instruction: Instruction, dtype: Any) -> str:
    """The text of a float that is cast to a small integer: by way of int32, so that it wraps as in C and NumPy.

    A direct cast leaves the result of a number out of range undefined.
    """
    source = instruction.inputs[0]
    from_float = isinstance(instruction.op, Cast) and isinstance(source, Value) and dtypes.is_float(source.dtype)
    if not from_float or dtype.kind not in "iu" or dtype.itemsize > 2:
        return result
    return f"np.int32({result})"


def file_head(
    instructions: Sequence[Instruction], others: Sequence[Value] = (), summed: Sequence[Value] = (), more: str = ""
) -> str:
    """The file above the function: a docstring, imports (and `more`), and the casts that its statements use.

    Besides the Values of the instructions there may be `others`; partial sums of those that are `summed` are added up
    too.
    """
    return _head(LOOP_IMPORTS + more, instructions, others, summed)


def cuda_head(instructions: Sequence[Instruction], others: Sequence[Value] = ()) -> str:
    """The same above a CUDA kernel."""
    return _head(SIMULATOR_IMPORTS if is_simulated() else CUDA_IMPORTS, instructions, others, ())


def _head(imports: str, instructions: Sequence[Instruction], others: Sequence[Value], summed: Sequence[Value]) -> str:
    values = [
        *others,
        *(
            x
            for instruction in instructions
            for x in (*instruction.inputs, *instruction.outputs)
            if isinstance(x, Value)
        ),
    ]
    kinds = {*map(kind_of, values), *map(far_of, summed)}
    used = sorted((kind.code, kind.dtype) for kind in kinds)
    casts = "".join(f"{code} = np.{dtype.type.__name__}\n" for code, dtype in used)
    names = ", ".join(instruction.op.name for instruction in instructions)
    return f'"""Generated by snncell: {names}."""\n\n{imports}\n{casts}'


def cost_of(instructions: Sequence[Instruction]) -> int:
    """The cost of one element, in elements of plain arithmetic."""
    return 1 + CALL_COST * sum(
        instruction.op.slow_calls for instruction in instructions if isinstance(instruction.op, Elementwise)
    )


def reduction_of(target: str, term: str, instruction: Instruction) -> loops.Reduced:
    """The arguments of a template for a reduction."""
    assert isinstance(instruction.op, Reduction)  # the caller's choice
    code, kind = code_of(instruction.inputs[0]), dtypes.compute_dtype(instruction.inputs[0].dtype)
    far = far_of(instruction.inputs[0]).code if isinstance(instruction.op, Sum) else code
    return loops.Reduced(target, term, instruction.op.join, f"{code}({instruction.op.start(kind)})", code, far)


def sum_of_elements(value: Value, target: str = "", term: str = "") -> loops.Reduced:
    """The arguments of a template for a sum of a Value's elements, which loops over time add up."""
    code = code_of(value)
    return loops.Reduced(target, term, "{0} + {1}", f"{code}(0)", code, far_of(value).code)


def comment_on(instruction: Instruction) -> str:
    """The user's line that a statement comes from."""
    return f"# {instruction.op.name}, {instruction.line}".encode("ascii", "replace").decode()


def as_scalar(number: Any, dtype: Any) -> Any:
    """A Python number as it is passed to a kernel: rounded to the dtype, infinite beyond its range."""
    with np.errstate(all="ignore"):
        return dtype.type(number).item()


def kind_of(value: Value) -> dtypes.DType:
    """The dtype that a Value's elements are computed in."""
    return dtypes.BY_NUMPY[dtypes.compute_dtype(value.dtype)]


def far_of(value: Value) -> dtypes.DType:
    """The dtype in which partial sums of a Value's elements are added up."""
    return dtypes.BY_NUMPY[dtypes.far(dtypes.compute_dtype(value.dtype))]


def code_of(value: Value) -> str:
    """The name of the cast to that, in generated files."""
    return kind_of(value).code
