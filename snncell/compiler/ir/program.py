"""Program: the computation of a traced function, as printable straight-line instructions in single assignment."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias

from snncell.tape.parameter import Parameter, assign_all
from snncell.tape.primitive import Primitive
from snncell.tape.state import Value
from snncell.tape.tensor import Tensor, snapshot, wrap
from snncell.tape.tracing import Instruction, Trace


class Program(NamedTuple):
    """Instructions in order; each Value is assigned once."""

    inputs: list[Value]  # the arguments, then the captures from parent traces
    parameters: dict[Parameter, Value]  # the Parameters that are read, each with its Value at the start
    constants: list[tuple[Any, Value]]  # arrays
    instructions: list[Instruction]
    outputs: list[Value]
    written: dict[Parameter, Value]  # the Parameters that are written at the end, each with its new Value
    step: Any = None  # for the step of a loop, the roles of its inputs and outputs (`ir.loop.Step`)

    def results(self) -> list[Value]:
        """All results of a run: outputs, and new values of Parameters."""
        return [*self.outputs, *self.written.values()]

    def __str__(self) -> str:
        lines = ["program(" + ", ".join(map(repr, self.inputs)) + ")"]
        lines += [f"  {value!r} = Parameter {parameter.name}" for parameter, value in self.parameters.items()]
        lines += [f"  {value!r} = constant" for _, value in self.constants]
        parts = None if self.step is None else self.step.parts
        for title, instructions in [("", self.instructions)] if parts is None else parts.sections():
            lines += [f"  # {title}:"] if title else []
            for instruction in instructions:
                lines += [f"  {_instruction_text(instruction)}", *(f"      {line}" for line in instruction.op.inside())]
        lines += [f"  Parameter {parameter.name} = %{value.number}" for parameter, value in self.written.items()]
        lines.append("  return " + ", ".join(f"%{value.number}" for value in self.outputs))
        return "\n".join(lines)


def with_inputs(
    instruction: Instruction,
    inputs: Sequence[Any],
    outputs: Sequence[Value] | None = None,
    op: Primitive | None = None,
    attrs: dict[str, Any] | None = None,
) -> Instruction:
    """Copy an instruction with other inputs, results, op or attributes, because other Programs may share it."""
    attrs = instruction.attrs if attrs is None else attrs
    new = Instruction(op or instruction.op, tuple(inputs), attrs, instruction.line)
    new.outputs = instruction.outputs if outputs is None else tuple(outputs)
    return new


def rename_inputs(instruction: Instruction, replaced: dict[Value, Value]) -> Instruction:
    """The instruction with replaced inputs; the same object if no input is replaced."""
    inputs = tuple(replaced.get(x, x) if isinstance(x, Value) else x for x in instruction.inputs)
    return instruction if inputs == instruction.inputs else with_inputs(instruction, inputs)


def substitute(program: Program, replaced: dict[Value, Value]) -> Program:
    """Rename Values in the inputs of instructions, in the outputs and in the writes to Parameters. If a pass drops an
    instruction, it must map each result to the Value that replaces it. This Value must not be replaced itself.
    """
    if not replaced:
        return program
    return program._replace(
        instructions=[rename_inputs(instruction, replaced) for instruction in program.instructions],
        outputs=[replaced.get(value, value) for value in program.outputs],
        written={parameter: replaced.get(value, value) for parameter, value in program.written.items()},
    )


def by_line(instructions: Sequence[Instruction]) -> list[str]:
    """The names of instructions, grouped by the user's line."""
    groups = itertools.groupby(instructions, lambda instruction: instruction.line)
    return [f"{' '.join(instruction.op.name for instruction in group):<24} {line}" for line, group in groups]


def _instruction_text(instruction: Instruction) -> str:
    operands = ", ".join(f"%{x.number}" if isinstance(x, Value) else repr(x) for x in instruction.inputs)
    options = "".join(f", {key}={value!r}" for key, value in instruction.attrs.items())
    text = f"{', '.join(map(repr, instruction.outputs))} = {instruction.op.name}({operands}{options})"
    return f"{text:<64} # {instruction.line}"


def program_of_trace(
    trace: Trace, outputs: list[Value], before: Sequence[Instruction] = (), known: Collection[Value] = frozenset()
) -> Program:
    """The Program of a finished trace. It begins with the instructions `before`. It excludes those that compute `known`
    Values, because these are inputs.
    """
    inputs = [*trace.inputs, *(value for _, value in trace.captures.values())]
    own = [one for one in trace.instructions if not any(out in known for out in one.outputs)]
    constants = list(trace.constants.values())
    return Program(inputs, trace.parameters, constants, [*before, *own], outputs, trace.written)


def values_in(*instructions: Instruction) -> list[Value]:
    """The Values among the inputs of instructions."""
    return [x for instruction in instructions for x in instruction.inputs if isinstance(x, Value)]


def results_of(*instructions: Instruction) -> list[Value]:
    """The Values that instructions compute."""
    return [value for instruction in instructions for value in instruction.outputs]


def bytes_of(value: Value) -> int:
    """The size of a Value's array."""
    return math.prod(value.shape) * int(value.dtype.itemsize)


def operations_in(instructions: Iterable[Instruction], used: float = 1.0) -> float:
    """Count multiplications and additions; `used` is the share of their first operands that products compute with."""
    return sum(one.op.operations(one.inputs, one.outputs, one.attrs, used) for one in instructions)


def makers_in(program: Program) -> dict[Value, Instruction]:
    """The instruction that computes each Value."""
    return {value: instruction for instruction in program.instructions for value in instruction.outputs}


Users: TypeAlias = dict[Value, list[Instruction | None]]


def users_of(program: Program) -> Users:
    """The instructions that use each Value, once per operand; None stands for the results."""
    users: Users = {}
    for instruction in program.instructions:
        for value in values_in(instruction):
            users.setdefault(value, []).append(instruction)
    for value in program.results():
        users.setdefault(value, []).append(None)
    return users


def find_used_values(program: Program) -> set[Value]:
    """The Values that are operands of instructions, or results."""
    return {*program.results(), *values_in(*program.instructions)}


def outside_of(instructions: Sequence[Instruction], results: Sequence[Value], own: Sequence[Value]) -> list[Value]:
    """The Values that instructions and results use, and that neither the instructions nor `own` define."""
    inside = {*own, *results_of(*instructions)}
    return list(dict.fromkeys(x for x in (*values_in(*instructions), *results) if x not in inside))


def last_uses(instructions: list[Any], results: list[Value]) -> list[list[Value]]:
    """The Values that die after each group (an object with `reads` and `writes`), by a liveness scan."""
    live = set(results)
    dying: list[list[Value]] = []
    for instruction in reversed(instructions):
        values = dict.fromkeys([*instruction.reads, *instruction.writes])
        dying.append([value for value in values if value not in live])
        live.update(values)
    return dying[::-1]


def interpret(program: Program, inputs: Sequence[Tensor]) -> list[Tensor]:
    """Run a Program operation by operation; inside of a trace, the operations are added to that trace."""
    known: dict[Value, Tensor] = dict(zip(program.inputs, inputs, strict=True))
    known.update((value, parameter) for parameter, value in program.parameters.items())
    known.update((value, wrap(array)) for array, value in program.constants)
    for instruction in program.instructions:
        operands = [known[x] if isinstance(x, Value) else x for x in instruction.inputs]
        out = instruction.op.bind(*operands, **instruction.attrs)
        known.update(zip(instruction.outputs, out if instruction.op.multiple else (out,), strict=True))
    # Before the writes, because an output that is a Parameter's Value is its old value.
    results = [snapshot(known[value]) for value in program.outputs]
    assign_all([(parameter, known[value]) for parameter, value in program.written.items()], in_range=True)
    return results
