"""A program as text: as a user of snncell writes it, and as a user of PyTorch does.

Both texts make the names `program`, `inputs`, `trained`, `written`, `positions` (which inputs gradients are taken with
respect to) and `given` (the Parameter whose value an input is, if it is one's): what `forms.py` and `in_torch.py` need.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from .operations import TABLE
from .syntax import Assign, Call, Custom, Function, Gradient, Let, Neuron, Program, Run, Scan, Var

INDENT = "    "


def indented(lines: Iterable[str]) -> list[str]:
    return [INDENT + line if line else line for line in lines]


def names(variables: Iterable[Var]) -> str:
    return ", ".join(v.name for v in variables)


def grouped(variables: Sequence[Var]) -> str:
    """A tuple, as it is written or taken apart."""
    return f"({names(variables)}{',' if len(variables) == 1 else ''})"


class Snncell:
    """The text for snncell."""

    header = ("import snncell", "from snncell import Parameter, Tensor, nn, ops")

    def text(self, program: Program) -> str:
        """The whole program."""
        self.customs = {custom.name: custom for custom in program.customs}
        self.neurons = {neuron.name: neuron for neuron in program.neurons}
        lines = [*self.header, ""]
        given = [v for v in program.main.params if v.name not in program.given]
        lines += [self.made(v, program.values[v.name]) for v in (*program.globals, *given)]
        lines += [f"{name} = {self.taken(source)}" for name, source in program.given.items()]
        for custom in program.customs:
            lines += ["", "", *self.custom(custom)]
        for neuron in program.neurons:
            lines += ["", "", *self.neuron(neuron)]
        lines += ["", "", *self.main(program.main)]
        positions = [n for n, v in enumerate(program.main.params) if v.name not in program.given]
        lines += [
            "",
            "",
            f"inputs = {grouped(program.main.params)}",
            f"trained = [{names(program.named('p'))}]",
            f"written = [{', '.join(self.state(v) for v in program.named('s'))}]",
            f"positions = {tuple(positions)}",
            f"given = [{', '.join(program.given.get(v.name, 'None').split('.')[0] for v in program.main.params)}]",
        ]
        return "\n".join(lines) + "\n"

    def statements(self, body: Iterable[Any]) -> list[str]:
        """The lines of a body."""
        return [line for statement in body for line in getattr(self, type(statement).__name__.lower())(statement)]

    def define(self, function: Function, results: str, first: Iterable[str] = ()) -> list[str]:
        """A function, whose statements may begin with some that are not the program's."""
        body = [*self.writes(function), *first, *self.statements(function.body), f"return {results}"]
        return [f"def {function.name}({names(function.params)}):", *indented(body)]

    def writes(self, function: Function) -> list[str]:
        return []

    # --- what is there ------------------------------------------------------------------------------------------------

    def made(self, v: Var, value: Any) -> str:
        tensor = f'Tensor({value}, "{v.type.dtype}")'
        if v.name[0] not in "ps":
            return f"{v.name} = {tensor}"
        frozen = ", requires_grad=False" if v.name[0] == "s" else ""
        return f'{v.name} = Parameter({tensor}, name="{v.name}"{frozen})'

    def taken(self, source: str) -> str:
        return source

    def state(self, v: Var) -> str:
        return v.name

    def main(self, function: Function) -> list[str]:
        return self.define(function, grouped(function.results))

    def custom(self, custom: Custom) -> list[str]:
        inputs, outs = custom.forward.params, custom.forward.results
        own = custom.reverse.params[len(inputs) :]
        known, douts = own[: len(outs)], own[len(outs) :]
        gradients = iter(custom.reverse.results)
        shares = [next(gradients).name if v.type.is_float and v not in custom.silent else "None" for v in inputs]
        of_inputs = f"({', '.join(shares)},)"
        of_weights = ", ".join(f"{v.name}: {next(gradients).name}" for v in custom.weights)
        lines = [f"class {custom.name}Cell(nn.Cell):"]
        if custom.weights:
            body = [f"self.{v.name} = {v.name}" for v in custom.weights]
            own_params = f"self.internal_params = [{names(custom.weights)}]"
            lines += indented(["def __init__(self):", *indented(["super().__init__()", *body, own_params]), ""])
        forward = ["def construct(self, " + names(inputs) + "):"]
        forward += indented([*self.statements(custom.forward.body), f"return {names(outs)}"])
        reverse = ["def bprop(self, " + names(inputs) + ", out, dout):"]
        apart = [f"{names(known)} = out", f"{names(douts)} = dout"]
        returned = f"{of_inputs}, {{{of_weights}}}" if custom.weights else of_inputs
        reverse += indented([*apart, *self.statements(custom.reverse.body), f"return {returned}"])
        return [*lines, *indented([*forward, "", *reverse]), "", "", f"{custom.name} = {custom.name}Cell()"]

    def neuron(self, neuron: Neuron) -> list[str]:
        step = neuron.step
        body = [*self.statements(step.body), f"return {names(step.results)}"]
        lines = [f"class {neuron.name}Cell(nn.Cell):"]
        lines += indented([f"def construct(self, {names(step.params)}):", *indented(body)])
        options = f"return_states=True, checkpoint_every={neuron.checkpoint_every}"
        return [*lines, "", "", f"{neuron.name} = nn.MultiStep({neuron.name}Cell(), {options})"]

    # --- statements ---------------------------------------------------------------------------------------------------

    def formula(self, statement: Let) -> str:
        return TABLE[statement.op].snncell

    def let(self, statement: Let) -> list[str]:
        operands = [v.name for v in statement.operands]
        return [f"{statement.out.name} = {self.formula(statement).format(*operands, **dict(statement.settings))}"]

    def call(self, statement: Call) -> list[str]:
        return [f"{names(statement.outs)} = {statement.custom}({names(statement.operands)})"]

    def scan(self, statement: Scan) -> list[str]:
        step, states = statement.step, len(statement.init)
        ys = grouped(statement.outs[states:])
        apart = [f"{grouped(step.params[:states])} = carry"] * bool(states)
        apart += [f"{grouped(step.params[states:])} = x"]
        collected = grouped(step.results[states:]) if len(step.results) > states else "None"
        body = [*apart, *self.statements(step.body), f"return {grouped(step.results[:states])}, {collected}"]
        lines = [f"def {step.name}(carry, x):", *indented([*self.writes(step), *body])]
        options = self.options(statement)
        outs = f"{grouped(statement.outs[:states]) if states else '_'}, {ys if len(ys) > 2 else '_'}"
        return [
            "",
            *lines,
            "",
            f"{outs} = {self.scanned}({step.name}, {grouped(statement.init)}, {grouped(statement.xs)}{options})",
        ]

    scanned = "ops.scan"

    def options(self, statement: Scan) -> str:
        every = statement.checkpoint_every
        return ", reverse=True" * statement.reverse + (f", checkpoint_every={every}" if every else "")

    def run(self, statement: Run) -> list[str]:
        y, *states = statement.outs
        given = names((statement.x, *statement.states))
        return [f"{y.name}, {grouped(states)} = {statement.neuron}({given})"]

    def gradient(self, statement: Gradient) -> list[str]:
        function, count = statement.function, len(statement.at)
        positions = tuple(range(count)) if count > 1 else 0
        of_inputs = statement.outs[0].name if count == 1 else grouped(statement.outs[:count])
        weights = f", [{names(statement.weights)}]" if statement.weights else ""
        outs = f"{of_inputs}, {grouped(statement.outs[count:])}" if statement.weights else of_inputs
        taken = f"snncell.grad({function.name}, {positions}{weights})({names(statement.at)})"
        return ["", *self.define(function, names(function.results)), "", f"{outs} = {taken}"]

    def assign(self, statement: Assign) -> list[str]:
        return [f"ops.assign({statement.target.name}, {statement.value.name})"]


class Torch(Snncell):
    """The text for PyTorch: custom reverses are autograd Functions, loops are loops of Python, and a Parameter that is
    written to is a global name that gets another Tensor."""

    header = ("import torch", "from programs.in_torch import fitted, gradient, run, scan")

    def made(self, v: Var, value: Any) -> str:
        trained = ", requires_grad=True" if v.name[0] == "p" else ""
        return f"{v.name} = torch.tensor({value}, dtype=torch.{v.type.dtype}{trained})"

    def taken(self, source: str) -> str:
        return source.removesuffix(".value()")

    def state(self, v: Var) -> str:
        return f'"{v.name}"'

    def main(self, function: Function) -> list[str]:
        return self.define(function, grouped(function.results))

    def writes(self, function: Function) -> list[str]:
        own = [statement for statement in function.body if isinstance(statement, Assign)]
        targets = list(dict.fromkeys(statement.target.name for statement in own))
        return [f"global {', '.join(targets)}"] if targets else []

    def custom(self, custom: Custom) -> list[str]:
        inputs, outs = custom.forward.params, custom.forward.results
        own = custom.reverse.params[len(inputs) :]
        known, douts = own[: len(outs)], own[len(outs) :]
        given = (*inputs, *custom.weights)
        copies = [f"{o.name} = {v.name} * 1" for o, v in zip(known, outs, strict=True)]
        gradients = iter(custom.reverse.results)
        shares = [
            f"fitted({next(gradients).name}, {v.name})" if v.type.is_float and v not in custom.silent else "None"
            for v in given
        ]
        forward = [f"def forward(ctx, {names(given)}):"]
        forward += indented(
            [
                *self.writes(custom.forward),
                *self.statements(custom.forward.body),
                *copies,
                f"ctx.save_for_backward({names((*given, *known))})",
                f"return {names(known)}",
            ]
        )
        reverse = [f"def backward(ctx, {names(douts)}):"]
        apart = f"{grouped((*given, *known))} = ctx.saved_tensors"
        reverse += indented([apart, *self.statements(custom.reverse.body), f"return {', '.join(shares)}"])
        lines = [f"class {custom.name}Function(torch.autograd.Function):"]
        lines += indented(["@staticmethod", *forward, "", "@staticmethod", *reverse])
        weights = "".join(f", {v.name}" for v in custom.weights)
        lines += ["", "", f"def {custom.name}({names(inputs)}):"]
        return [*lines, *indented([f"return {custom.name}Function.apply({names(inputs)}{weights})"])]

    def neuron(self, neuron: Neuron) -> list[str]:
        step = neuron.step
        body = [*self.writes(step), *self.statements(step.body), f"return {names(step.results)}"]
        return [f"def {neuron.name}({names(step.params)}):", *indented(body)]

    def formula(self, statement: Let) -> str:
        return TABLE[statement.op].torch

    scanned = "scan"

    def options(self, statement: Scan) -> str:
        return ", reverse=True" * statement.reverse

    def run(self, statement: Run) -> list[str]:
        y, *states = statement.outs
        given = grouped(statement.states) if statement.states else f"[None] * {len(states)}"
        return [f"{y.name}, {grouped(states)} = run({statement.neuron}, {statement.x.name}, {given})"]

    def gradient(self, statement: Gradient) -> list[str]:
        function = statement.function
        weights = [v.name for v in statement.weights]
        taken = f"gradient({function.name}, {grouped(statement.at)}, {weights}, globals())"
        return ["", *self.define(function, names(function.results)), "", f"{grouped(statement.outs)} = {taken}"]

    def assign(self, statement: Assign) -> list[str]:
        return [f"{statement.target.name} = {statement.value.name}.detach() * 1"]
