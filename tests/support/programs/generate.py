"""Generate a random program from a seed: its inputs, and statements of every kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .blocks import MOST, PLAIN, SHAPED, TIMES, Block, Names, broadcast_shape, is_float
from .operations import KINDS, LINEAR, ODD, TABLE
from .syntax import Assign, Call, Custom, Function, Gradient, Neuron, Program, Run, Scan, Type, Var

SHAPES = [(3,), (2, 3), (3, 3), (), (1,), (2, 1)]
STATE = 4.0  # the bound of states
UNKNOWN = 6.0  # the assumed bound of gradients

Rules = dict[Callable[[Block], bool], int]


class Maker(Names):
    """Generator of one program."""

    def __init__(self, seed: int, statements: int = 9) -> None:
        super().__init__(seed)
        self.seed, self.statements = seed, statements
        self.globals: list[Var] = []
        self.values: dict[str, Any] = {}
        self.sources: dict[str, str] = {}
        self.customs: list[Custom] = []
        self.writing: set[str] = set()  # names of Cells whose forward pass writes a Parameter
        self.depth = 0  # backward passes under construction: in a loop they must not write
        self.neurons: list[Neuron] = []
        self.rare: set[Var] = set()  # computed from Parameters or by a custom Cell: operands that would be rare
        # The second-order gradient of a loop computes a step again, so a custom backward pass gets its output gradient
        # in parts. A loop that is the same at every step of an outer loop runs once, and gets the sum of the gradients.
        # Both give the same results only if the backward pass is linear.
        self.linear = self.rng.random() < 0.7
        self.inside: Rules = {**SHAPED, self.call: 12, self.assign: 6, **({self.gradient: 1} if self.linear else {})}
        self.cells: Rules = {**PLAIN, self.call: 1, **({self.gradient_of_values: 1} if self.linear else {})}

    # --- inputs and globals -------------------------------------------------------------------------------------------

    def with_values(self, first: str, kind: Type) -> Var:
        """Define a name with random elements."""
        draw = np.random.default_rng([self.seed, self.count])
        numbers = draw.integers(0, 3, kind.shape) if not kind.is_float else draw.uniform(-1.5, 1.5, kind.shape)
        var = self.new(first, kind, {"s": STATE}.get(first, 2.0))
        self.values[var.name] = np.round(numbers, 2).astype(kind.dtype).tolist()
        return var

    def program(self) -> Program:
        steps = self.rng.randint(1, TIMES)
        inputs = [self.with_values("x", Type((steps, 2, 3))), self.with_values("x", Type(self.rng.choice(SHAPES)))]
        self.globals = [self.with_values("p", Type(self.rng.choice(SHAPES))) for _ in range(self.rng.randint(1, 3))]
        if self.rng.random() < 0.15:
            source = self.rng.choice(self.globals)
            inputs.append(self.new("x", source.type, 2.0))
            self.sources[inputs[-1].name] = f"{source.name}.value()"
        if self.rng.random() < 0.5:
            self.globals.append(self.with_values("s", Type(self.rng.choice(SHAPES[:3]))))
        self.globals.append(self.with_values("k", Type(self.rng.choice(SHAPES))))
        if self.rng.random() < 0.4:
            self.globals.append(self.with_values("k", Type((3,), self.rng.choice(("int64", "bool")))))
        rules: Rules = {**self.inside, self.scan: 7, self.run: 5}
        block = Block(self, tuple(inputs), self.globals, rules)
        block.grow(self.rng.randint(min(3, self.statements), self.statements))
        main = self.function("program", block, self.results_of(block))
        cells = tuple(self.customs), tuple(self.neurons)
        return Program(self.seed, main, tuple(self.globals), *cells, self.values, self.sources, self.linear)

    def results_of(self, block: Block) -> tuple[Var, ...]:
        """Return the unused values, floats first, without Parameters that are written, because they would change."""
        floats = [v for v in block.own if v.type.is_float and v not in block.used]
        floats = floats or [v for v in block.own if v.type.is_float][-1:]
        if not floats:
            unary = KINDS["unary"][0]
            floats = [block.let(unary, (block.params[0],), block.params[0].type)]
        others = [v for v in block.own if not v.type.is_float][-1:]
        return (*floats, *others)

    def function(self, name: str, block: Block, results: tuple[Var, ...]) -> Function:
        return Function(name, block.params, tuple(block.statements), results)

    def name(self, first: str) -> str:
        self.count += 1
        return f"{first}{self.count - 1}"

    def params(self, kinds: list[Type], bounds: list[float]) -> tuple[Var, ...]:
        return tuple([self.new("a", kind, bound) for kind, bound in zip(kinds, bounds, strict=True)])

    # --- custom backward passes ---------------------------------------------------------------------------------------

    def call(self, block: Block) -> bool:
        """Add a call of a Cell with a custom backward pass, new or existing."""
        if self.customs and self.rng.random() < 0.25:
            return self.call_again(block)
        operands: list[Var] = []
        for _ in range(self.rng.choice((1, 1, 2, 2, 3))):
            fits = is_float if not operands or self.rng.random() < 0.85 else lambda v: not v.type.is_float
            self.compute_from_parameter(block)
            test = lambda v: fits(v) and broadcast_shape(*operands, v) is not None  # noqa: B023, E731
            rare = self.rng.random() < 0.4 and block.pick(lambda v: v in self.rare and test(v))  # noqa: B023
            operand = rare or block.pick(test)
            operands += [operand] if operand is not None else []
        if not operands:
            return False
        custom = self.custom(tuple(operands), block)
        self.customs.append(custom)
        self.add_call(block, custom, tuple(operands))
        return True

    def compute_from_parameter(self, block: Block) -> None:
        """Sometimes add a statement on a Parameter, like the rounding of quantised weights."""
        p = block.pick(lambda v: v.name[0] == "p") if self.rng.random() < 0.15 else None
        if p is not None:
            self.rare.add(block.let(self.rng.choice(KINDS["unary"][:9]), (p,), p.type))

    def call_again(self, block: Block) -> bool:
        known = [custom for custom in self.customs if not self.depth or custom.name not in self.writing]
        if not known:
            return False
        custom = self.rng.choice(known)
        operands = [block.pick(lambda v: v.type == param.type) for param in custom.forward.params]  # noqa: B023
        present = tuple([v for v in operands if v is not None])
        if len(present) < len(operands):
            return False
        self.add_call(block, custom, present)
        return True

    def add_call(self, block: Block, custom: Custom, operands: tuple[Var, ...]) -> None:
        outs = tuple([self.new("v", v.type, self.bounds[v.name]) for v in custom.forward.results])
        self.rare |= set(outs)
        block.add(Call(outs, custom.name, operands), operands)

    def custom(self, operands: tuple[Var, ...], block: Block) -> Custom:
        """Generate an elementwise Cell for these operands, with a custom backward pass."""
        inputs = self.params([v.type for v in operands], [max(2.0, block.bound(v)) for v in operands])
        floats = [v for v in inputs if v.type.is_float]
        weights = [v for v in self.globals if v.name[0] == "p" and broadcast_shape(*inputs, v) is not None]
        chosen = tuple(self.rng.sample(weights, 1)) if weights and self.rng.random() < 0.3 else ()
        shape = broadcast_shape(*inputs, *chosen)
        assert shape is not None  # operands broadcast
        # An argument that is a Parameter must not be written.
        writes = not self.depth and not any(v.name[0] == "s" for v in operands)
        forward = Block(self, inputs, self.globals, {**self.cells, **({self.assign: 1} if writes else {})})
        results = tuple([self.result_of_all(forward, (*inputs, *chosen)) for _ in range(self.rng.choice((1, 1, 1, 2)))])
        results = tuple(dict.fromkeys(results))
        outs = self.params([v.type for v in results], [self.bounds[v.name] for v in results])
        douts = self.params([v.type for v in results], [STATE for _ in results])
        readable = [v for v in self.globals if v.name[0] != "s"]  # the backward pass may run after a write
        known = (*inputs, *outs) if self.linear else (*inputs, *outs, *douts)
        backward = Block(self, known, readable, self.cells)
        silent = tuple([v for v in floats if self.rng.random() < 0.1])
        self.depth += 1
        wanted = (*(f for f in floats if f not in silent), *chosen)
        gradients = [self.input_gradient(backward, douts, shape) for _ in wanted]
        self.depth -= 1
        name = self.name("C")
        if any(isinstance(s, Assign) or (isinstance(s, Call) and s.custom in self.writing) for s in forward.statements):
            self.writing.add(name)
        return Custom(
            name,
            self.function("construct", forward, results),
            Function("bprop", (*inputs, *outs, *douts), tuple(backward.statements), tuple(gradients)),
            chosen,
            silent,
        )

    def result_of_all(self, block: Block, operands: tuple[Var, ...]) -> Var:
        """Add statements that compute a float from all operands, in their broadcast shape."""
        total = operands[0]
        if not total.type.is_float:
            total = block.let(KINDS["as float"][0], (total,), Type(total.type.shape))
        for other in operands[1:]:
            shape = broadcast_shape(total, other)
            assert shape is not None
            if other.type.is_float:
                total = block.let(self.rng.choice(KINDS["binary"]), (total, other), Type(shape))
            elif other.type.dtype == "bool":
                total = block.let(KINDS["mask"][1], (other, total), Type(shape))
            else:
                other = block.let(KINDS["as float"][0], (other,), Type(other.type.shape))
                total = block.let(KINDS["binary"][0], (total, other), Type(shape))
        block.grow(self.rng.randint(0, 2))
        block.join_up()
        result = block.newest(lambda v: v.type == Type(total.type.shape) and v in block.own)
        return result or block.let(self.rng.choice(KINDS["unary"][:9]), (total,), total.type)

    def input_gradient(self, block: Block, douts: tuple[Var, ...], shape: tuple[int, ...]) -> Var:
        """Add statements that compute a gradient for an input, in the broadcast shape of all inputs."""
        own = list(block.own)
        dout = self.rng.choice(douts)
        if self.rng.random() < 0.3:
            odd = LINEAR if self.linear else ODD
            dout = block.let(self.rng.choice([TABLE[name] for name in odd]), (dout,), dout.type)
            block.own = own if self.linear else block.own  # no other statement may use it
        block.grow(self.rng.randint(0, 2))
        block.join_up()
        factor = block.newest(lambda v: v.type.is_float and broadcast_shape(v, dout) == shape)
        if factor is None or self.rng.random() < 0.2:
            return dout
        own = list(block.own)
        product = block.let(KINDS["binary"][2], (factor, dout), Type(shape))
        block.own = own if self.linear else block.own
        return product

    # --- loops over time ----------------------------------------------------------------------------------------------

    def scan(self, block: Block) -> bool:
        """Add a loop over one or two sequences, with up to three states."""
        self.compute_from_parameter(block)
        first = block.pick(lambda v: bool(v.type.shape) and v.type.shape[0] <= TIMES)
        if first is None:
            return False
        steps = first.type.shape[0]
        more = block.pick(lambda v: v.type.shape[:1] == (steps,)) if self.rng.random() < 0.3 else None
        xs = [v for v in (first, more) if v is not None]
        states = [
            block.pick(lambda v: len(v.type.shape) < 3 and (v.type.is_float or self.rng.random() < 0.3))
            for _ in range(self.rng.choice((0, 1, 1, 1, 2, 2, 3)))
        ]
        init = [v for v in states if v is not None]
        kinds = [*(v.type for v in init), *(Type(v.type.shape[1:], v.type.dtype) for v in xs)]
        limits = [*(max(STATE, block.bound(v)) for v in init), *(block.bound(v) for v in xs)]
        params = self.params(kinds, limits)
        inner = self.inner_block(block, params)
        inner.grow(self.rng.randint(1, 6))
        inner.join_up()
        after = [inner.next_state(v) for v in params[: len(init)]]
        room = lambda v: np.prod(v.type.shape, initial=1.0) * steps <= 2 * MOST and len(v.type.shape) < 3  # noqa: E731
        ys = [inner.newest(room) for _ in range(self.rng.choice((0, 1, 1, 2)))]
        collected = [v for v in ys if v is not None]
        if not init and not collected:
            return False
        outs = [self.new("v", v.type, b) for v, b in zip(after, limits, strict=False)]
        outs += [self.new("v", Type((steps, *v.type.shape), v.type.dtype), self.bounds[v.name]) for v in collected]
        step = self.function(self.name("step"), inner, (*after, *collected))
        every = self.rng.choice((None, None, 1, 2, 3))
        block.add(Scan(tuple(outs), step, tuple(init), tuple(xs), self.rng.random() < 0.3, every), (*init, *xs))
        return True

    def inner_block(self, block: Block, params: tuple[Var, ...]) -> Block:
        """Create the block of a nested function."""
        depth = getattr(block, "depth", 0) + 1
        rules = {**self.inside, **({self.scan: 1, self.run: 1} if depth < 2 and self.linear else {})}
        inner = Block(self, params, block.known(), rules)
        inner.depth = depth  # type: ignore[attr-defined]
        return inner

    def run(self, block: Block) -> bool:
        """Add a neuron over time, new or existing."""
        x = block.pick(lambda v: v.type.is_float and len(v.type.shape) >= 2 and v.type.shape[0] <= TIMES)
        if x is None:
            return False
        kind = Type(x.type.shape[1:])
        known = [n for n in self.neurons if n.step.params[0].type == kind]
        neuron = self.rng.choice(known) if known and self.rng.random() < 0.4 else self.neuron(kind, block.bound(x))
        count = len(neuron.step.params) - 1
        initial = [block.pick(lambda v: v.type == kind and block.bound(v) <= STATE) for _ in range(count)]
        states = tuple([v for v in initial if v is not None])
        states = states if len(states) == count and self.rng.random() < 0.6 else ()
        y = neuron.step.results[0].type
        outs = (self.new("v", Type((x.type.shape[0], *y.shape)), STATE), *(self.new("v", kind, STATE) for _ in initial))
        block.add(Run(outs, neuron.name, x, states), (x, *states))
        return True

    def neuron(self, kind: Type, bound: float) -> Neuron:
        states = self.rng.choice((1, 1, 2))
        params = self.params([kind] * (1 + states), [max(bound, STATE), *[STATE] * states])
        block = Block(self, params, self.globals, self.inside)
        block.grow(self.rng.randint(1, 5))
        block.join_up()
        after = [block.next_state(v) for v in params[1:]]
        out = block.newest(lambda v: v.type.is_float and len(v.type.shape) < 3) or params[0]
        if block.bound(out) > STATE:
            out = block.scale(out, STATE)
        step = self.function("construct", block, (out, *after))
        self.neurons.append(Neuron(self.name("N"), step, self.rng.choice((None, None, 1, 2))))
        return self.neurons[-1]

    # --- nested gradients, and writes ---------------------------------------------------------------------------------

    def gradient_of_values(self, block: Block) -> bool:
        """Add a gradient with respect to values only.

        Cells use it, because an autograd Function of PyTorch has other names for the Parameters of a Cell.
        """
        return self.gradient(block, of_weights=False)

    def gradient(self, block: Block, of_weights: bool = True) -> bool:
        """Add a gradient with respect to one or two values, and sometimes to a Parameter."""
        values = [block.pick(is_float) for _ in range(self.rng.choice((1, 1, 2)))]
        at = tuple([v for v in values if v is not None])
        if not at:
            return False
        params = self.params([v.type for v in at], [block.bound(v) for v in at])
        trained = [v for v in self.globals if v.name[0] == "p"]
        weights = (self.rng.choice(trained),) if of_weights and self.rng.random() < 0.25 else ()
        # With weights, use only globals. In PyTorch, the weight is a new node of the graph, and a value read from the
        # Parameter earlier is not connected to it.
        around = self.globals if weights else block.known()
        inner = Block(self, params, around, {**SHAPED, self.call: 3})
        inner.grow(self.rng.randint(1, 3))
        inner.join_up()
        result = inner.newest(is_float) or params[0]
        outs = tuple([self.new("v", v.type, UNKNOWN) for v in (*at, *weights)])
        block.add(Gradient(outs, self.function(self.name("inner"), inner, (result,)), at, weights), at)
        return True

    def assign(self, block: Block) -> bool:
        """Add a write to a Parameter that is not trained."""
        target = block.pick(lambda v: v.name[0] == "s")
        value = target and block.newest(lambda v: v.type == target.type and block.bound(v) <= STATE)
        if target is None or value is None or value == target:
            return False
        block.add(Assign(target, value), (value,))
        return True


def make(seed: int, statements: int = 9) -> Program:
    """Generate the program of a seed. Its main function has at most `statements` statements."""
    return Maker(seed, statements).program()
