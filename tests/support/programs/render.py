"""Render a program as source text for snncell and for PyTorch, like a user's code.

Both texts define names for `forms.py` and `in_torch.py`: `program`, `inputs`, `trained` and `written` Parameters,
`positions` of the inputs with gradients, and `sources`, for each input the Parameter whose value it is, or None.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from .operations import TABLE
from .syntax import Assign, Call, Custom, Function, Gradient, Let, Neuron, Program, Run, Scan, Var

INDENT = "    "


def indent(lines: Iterable[str]) -> list[str]:
    return [INDENT + line if line else line for line in lines]


def names(variables: Iterable[Var]) -> str:
    return ", ".join(v.name for v in variables)


def tuple_text(variables: Sequence[Var]) -> str:
    """Return the text of a tuple, also as an assignment target."""
    return f"({names(variables)}{',' if len(variables) == 1 else ''})"


class Snncell:
    """Renderer for snncell."""

    header = ("import snncell", "from snncell import Parameter, Tensor, nn, ops")

    def text(self, program: Program) -> str:
        """Return the text of a program."""
        self.customs = {custom.name: custom for custom in program.customs}
        self.neurons = {neuron.name: neuron for neuron in program.neurons}
        lines = [*self.header, ""]
        arrays = [v for v in program.main.params if v.name not in program.sources]
        lines += [self.definition(v, program.values[v.name]) for v in (*program.globals, *arrays)]
        lines += [f"{name} = {self.source(source)}" for name, source in program.sources.items()]
        for custom in program.customs:
            lines += ["", "", *self.custom(custom)]
        for neuron in program.neurons:
            lines += ["", "", *self.neuron(neuron)]
        lines += ["", "", *self.main(program.main)]
        positions = [n for n, v in enumerate(program.main.params) if v.name not in program.sources]
        lines += [
            "",
            "",
            f"inputs = {tuple_text(program.main.params)}",
            f"trained = [{names(program.named('p'))}]",
            f"written = [{', '.join(self.state(v) for v in program.named('s'))}]",
            f"positions = {tuple(positions)}",
            f"sources = [{', '.join(program.sources.get(v.name, 'None').split('.')[0] for v in program.main.params)}]",
        ]
        return "\n".join(lines) + "\n"

    def statements(self, body: Iterable[Any]) -> list[str]:
        """Return the lines of a body."""
        return [line for statement in body for line in getattr(self, type(statement).__name__.lower())(statement)]

    def define(self, function: Function, results: str, first: Iterable[str] = ()) -> list[str]:
        """Return the lines of a function; `first` are additional lines at its start."""
        body = [*self.writes(function), *first, *self.statements(function.body), f"return {results}"]
        return [f"def {function.name}({names(function.params)}):", *indent(body)]

    def writes(self, function: Function) -> list[str]:
        return []

    # --- definitions --------------------------------------------------------------------------------------------------

    def definition(self, v: Var, value: Any) -> str:
        tensor = f'Tensor({value}, "{v.type.dtype}")'
        if v.name[0] not in "ps":
            return f"{v.name} = {tensor}"
        frozen = ", requires_grad=False" if v.name[0] == "s" else ""
        return f'{v.name} = Parameter({tensor}, name="{v.name}"{frozen})'

    def source(self, source: str) -> str:
        return source

    def state(self, v: Var) -> str:
        return v.name

    def main(self, function: Function) -> list[str]:
        return self.define(function, tuple_text(function.results))

    def custom(self, custom: Custom) -> list[str]:
        inputs, outs = custom.forward.params, custom.forward.results
        own = custom.backward.params[len(inputs) :]
        known, douts = own[: len(outs)], own[len(outs) :]
        gradients = iter(custom.backward.results)
        shares = [next(gradients).name if v.type.is_float and v not in custom.silent else "None" for v in inputs]
        of_inputs = f"({', '.join(shares)},)"
        of_weights = ", ".join(f"{v.name}: {next(gradients).name}" for v in custom.weights)
        lines = [f"class {custom.name}Cell(nn.Cell):"]
        if custom.weights:
            body = [f"self.{v.name} = {v.name}" for v in custom.weights]
            own_params = f"self.internal_params = [{names(custom.weights)}]"
            lines += indent(["def __init__(self):", *indent(["super().__init__()", *body, own_params]), ""])
        forward = ["def construct(self, " + names(inputs) + "):"]
        forward += indent([*self.statements(custom.forward.body), f"return {names(outs)}"])
        backward = ["def bprop(self, " + names(inputs) + ", out, dout):"]
        unpack = [f"{names(known)} = out", f"{names(douts)} = dout"]
        returned = f"{of_inputs}, {{{of_weights}}}" if custom.weights else of_inputs
        backward += indent([*unpack, *self.statements(custom.backward.body), f"return {returned}"])
        return [*lines, *indent([*forward, "", *backward]), "", "", f"{custom.name} = {custom.name}Cell()"]

    def neuron(self, neuron: Neuron) -> list[str]:
        step = neuron.step
        body = [*self.statements(step.body), f"return {names(step.results)}"]
        lines = [f"class {neuron.name}Cell(nn.Cell):"]
        lines += indent([f"def construct(self, {names(step.params)}):", *indent(body)])
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
        ys = tuple_text(statement.outs[states:])
        unpack = [f"{tuple_text(step.params[:states])} = carry"] * bool(states)
        unpack += [f"{tuple_text(step.params[states:])} = x"]
        collected = tuple_text(step.results[states:]) if len(step.results) > states else "None"
        body = [*unpack, *self.statements(step.body), f"return {tuple_text(step.results[:states])}, {collected}"]
        lines = [f"def {step.name}(carry, x):", *indent([*self.writes(step), *body])]
        options = self.options(statement)
        outs = f"{tuple_text(statement.outs[:states]) if states else '_'}, {ys if len(ys) > 2 else '_'}"
        return [
            "",
            *lines,
            "",
            f"{outs} = {self.scanned}({step.name}, {tuple_text(statement.init)}, {tuple_text(statement.xs)}{options})",
        ]

    scanned = "ops.scan"

    def options(self, statement: Scan) -> str:
        every = statement.checkpoint_every
        return ", reverse=True" * statement.reverse + (f", checkpoint_every={every}" if every else "")

    def run(self, statement: Run) -> list[str]:
        y, *states = statement.outs
        return [f"{y.name}, {tuple_text(states)} = {statement.neuron}({names((statement.x, *statement.states))})"]

    def gradient(self, statement: Gradient) -> list[str]:
        function, count = statement.function, len(statement.at)
        positions = tuple(range(count)) if count > 1 else 0
        of_inputs = statement.outs[0].name if count == 1 else tuple_text(statement.outs[:count])
        weights = f", [{names(statement.weights)}]" if statement.weights else ""
        outs = f"{of_inputs}, {tuple_text(statement.outs[count:])}" if statement.weights else of_inputs
        call = f"snncell.grad({function.name}, {positions}{weights})({names(statement.at)})"
        return ["", *self.define(function, names(function.results)), "", f"{outs} = {call}"]

    def assign(self, statement: Assign) -> list[str]:
        return [f"ops.assign({statement.target.name}, {statement.value.name})"]


class Torch(Snncell):
    """Renderer for PyTorch: custom Cells are autograd Functions, loops are Python loops, and a write to a Parameter
    assigns a new Tensor to a global.
    """

    header = ("import torch", "from programs.in_torch import gradient, run, scan, sum_to_input")

    def definition(self, v: Var, value: Any) -> str:
        trained = ", requires_grad=True" if v.name[0] == "p" else ""
        return f"{v.name} = torch.tensor({value}, dtype=torch.{v.type.dtype}{trained})"

    def source(self, source: str) -> str:
        return source.removesuffix(".value()")

    def state(self, v: Var) -> str:
        return f'"{v.name}"'

    def main(self, function: Function) -> list[str]:
        return self.define(function, tuple_text(function.results))

    def writes(self, function: Function) -> list[str]:
        own = [statement for statement in function.body if isinstance(statement, Assign)]
        targets = list(dict.fromkeys(statement.target.name for statement in own))
        return [f"global {', '.join(targets)}"] if targets else []

    def custom(self, custom: Custom) -> list[str]:
        inputs, outs = custom.forward.params, custom.forward.results
        own = custom.backward.params[len(inputs) :]
        known, douts = own[: len(outs)], own[len(outs) :]
        args = (*inputs, *custom.weights)
        copies = [f"{o.name} = {v.name} * 1" for o, v in zip(known, outs, strict=True)]
        gradients = iter(custom.backward.results)
        shares = [
            f"sum_to_input({next(gradients).name}, {v.name})" if v.type.is_float and v not in custom.silent else "None"
            for v in args
        ]
        forward = [f"def forward(ctx, {names(args)}):"]
        forward += indent(
            [
                *self.writes(custom.forward),
                *self.statements(custom.forward.body),
                *copies,
                f"ctx.save_for_backward({names((*args, *known))})",
                f"return {names(known)}",
            ]
        )
        backward = [f"def backward(ctx, {names(douts)}):"]
        unpack = f"{tuple_text((*args, *known))} = ctx.saved_tensors"
        backward += indent([unpack, *self.statements(custom.backward.body), f"return {', '.join(shares)}"])
        lines = [f"class {custom.name}Function(torch.autograd.Function):"]
        lines += indent(["@staticmethod", *forward, "", "@staticmethod", *backward])
        weights = "".join(f", {v.name}" for v in custom.weights)
        lines += ["", "", f"def {custom.name}({names(inputs)}):"]
        return [*lines, *indent([f"return {custom.name}Function.apply({names(inputs)}{weights})"])]

    def neuron(self, neuron: Neuron) -> list[str]:
        step = neuron.step
        body = [*self.writes(step), *self.statements(step.body), f"return {names(step.results)}"]
        return [f"def {neuron.name}({names(step.params)}):", *indent(body)]

    def formula(self, statement: Let) -> str:
        return TABLE[statement.op].torch

    scanned = "scan"

    def options(self, statement: Scan) -> str:
        return ", reverse=True" * statement.reverse

    def run(self, statement: Run) -> list[str]:
        y, *states = statement.outs
        initial = tuple_text(statement.states) if statement.states else f"[None] * {len(states)}"
        return [f"{y.name}, {tuple_text(states)} = run({statement.neuron}, {statement.x.name}, {initial})"]

    def gradient(self, statement: Gradient) -> list[str]:
        function = statement.function
        weights = [v.name for v in statement.weights]
        call = f"gradient({function.name}, {tuple_text(statement.at)}, {weights}, globals())"
        return ["", *self.define(function, names(function.results)), "", f"{tuple_text(statement.outs)} = {call}"]

    def assign(self, statement: Assign) -> list[str]:
        return [f"{statement.target.name} = {statement.value.name}.detach() * 1"]
