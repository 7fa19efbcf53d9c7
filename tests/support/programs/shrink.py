"""Reduce a failing program: apply one change after the other, as long as it fails in the same form."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from .operations import LINEAR, ODD, TABLE
from .syntax import Custom, Function, Let, Neuron, Program, Run, Scan, Var, nodes, rename

Fails = Callable[[Program], bool]


def shrink(program: Program, fails: Fails, tries: int = 600) -> Program:
    """Reduce a program until each further change makes it pass, or until `tries` changes were tested."""
    while True:
        for candidate in _smaller(program):
            tries -= 1
            if tries < 0:
                return program
            if _is_valid(candidate) and fails(candidate):
                program = candidate
                break
        else:
            return program


def _smaller(program: Program) -> Iterator[Program]:
    """Yield slightly smaller programs, the smallest ones first."""
    main = program.main
    if len(main.results) > 1:
        yield from (_with(program, main=replace(main, results=(result,))) for result in main.results)
    if program.sources:
        yield from (_without_input(program, name) for name in program.sources)
    for body in _functions(program):
        for n in reversed(range(len(body.body))):
            yield from _without_statement(program, body, n)
    for body in _functions(program):
        yield from (_replace_node(program, body, new) for new in _simpler(program, body))
    for custom in program.customs:
        yield from (_replace_node(program, custom, new) for new in _simpler_custom(custom))
    for node in nodes((program.main, program.customs, program.neurons)):
        yield from (_replace_node(program, node, new) for new in _simpler_node(node))
    yield from (_with(program, values=new) for new in _round_values(program))


def _functions(program: Program) -> list[Function]:
    return [node for node in nodes((program.main, program.neurons, program.customs)) if isinstance(node, Function)]


def _replace_node(program: Program, old: Any, new: Any) -> Program:
    """Return the program with `new` instead of the node `old`."""

    def swap(tree: Any) -> Any:
        if tree is old:
            return new
        if isinstance(tree, Var):
            return tree
        if type(tree) is tuple:
            return tuple([swap(part) for part in tree])
        if hasattr(tree, "__dataclass_fields__"):
            return replace(tree, **{name: swap(getattr(tree, name)) for name in tree.__dataclass_fields__})
        return tree

    return _with(program, **{part: swap(getattr(program, part)) for part in ("main", "customs", "neurons")})


def _with(program: Program, **parts: Any) -> Program:
    """Return the program with other parts, and without unused Cells and Tensors."""
    new = replace(program, **parts)
    while True:
        called = {getattr(node, "custom", None) for node in nodes((new.main, new.customs, new.neurons))}
        runs = {node.neuron for node in nodes(new.main) if isinstance(node, Run)}
        customs = tuple([custom for custom in new.customs if custom.name in called])
        neurons = tuple([neuron for neuron in new.neurons if neuron.name in runs])
        if len(customs) == len(new.customs) and len(neurons) == len(new.neurons):
            break
        new = replace(new, customs=customs, neurons=neurons)
    read = {node.name for node in nodes((new.main, new.customs, new.neurons)) if isinstance(node, Var)}
    read |= {source.split(".")[0] for source in new.sources.values()}
    used = [v for v in new.globals if v.name in read]
    if not any(v.name[0] == "p" for v in used):
        used += new.named("p")[:1]
    return replace(new, globals=tuple(used))


def _without_input(program: Program, name: str) -> Program:
    """Replace an input that is the value of a Parameter by the Parameter."""
    old = next(v for v in program.main.params if v.name == name)
    source = next(v for v in program.globals if v.name == program.sources[name].split(".")[0])
    main = replace(program.main, params=tuple(v for v in program.main.params if v != old))
    rest = {other: value for other, value in program.sources.items() if other != name}
    return _with(rename(program, old, source), main=rename(main, old, source), sources=rest)


def _without_statement(program: Program, function: Function, n: int) -> Iterator[Program]:
    """Yield the program without a statement, with its results replaced by other values of the same type."""
    statement = function.body[n]
    body = (*function.body[:n], *function.body[n + 1 :])
    before = [v for earlier in function.body[:n] for v in earlier.outs]
    operands = [v for v in nodes(statement) if isinstance(v, Var)]
    choices = [
        [
            v
            for v in dict.fromkeys((*operands, *before[::-1], *function.params, *program.globals))
            if v.type == out.type and v not in statement.outs
        ]
        for out in statement.outs
    ]
    shorter = replace(function, body=body)
    if not statement.outs:
        yield _replace_node(program, function, shorter)
        return
    for choice in range(3):
        new, possible = shorter, True
        for out, values in zip(statement.outs, choices, strict=True):
            if _uses(new, out):
                possible = possible and choice < len(values)
                new = rename(new, out, values[choice]) if possible else new
        if possible:
            yield _replace_node(program, function, new)


def _uses(tree: Any, v: Var) -> bool:
    return any(isinstance(node, Var) and node == v for node in nodes(tree))


def _simpler(program: Program, function: Function) -> Iterator[Function]:
    """Yield the function with results replaced by arguments or globals."""
    for position, result in enumerate(function.results):
        for other in (*function.params, *program.globals):
            if other.type == result.type and other != result and result not in function.params:
                results = (*function.results[:position], other, *function.results[position + 1 :])
                yield replace(function, results=results)


def _simpler_custom(custom: Custom) -> Iterator[Custom]:
    if custom.weights:
        count = len(custom.backward.results) - len(custom.weights)
        yield replace(custom, weights=(), backward=replace(custom.backward, results=custom.backward.results[:count]))


def _simpler_node(node: Any) -> Iterator[Any]:
    """Yield loops without options, states or results, and plainer operations."""
    if isinstance(node, Scan):
        if node.reverse:
            yield replace(node, reverse=False)
        if node.checkpoint_every:
            yield replace(node, checkpoint_every=None)
        yield from _narrower(node)
    elif isinstance(node, Neuron):
        if node.checkpoint_every:
            yield replace(node, checkpoint_every=None)
    elif isinstance(node, Run):
        if node.states:
            yield replace(node, states=())
    elif isinstance(node, Let):
        plain = {"unary": "scaled", "binary": "add"}.get(TABLE[node.op].kind)
        if plain is not None and node.op not in (plain, "mul", "scaled"):
            yield replace(node, op=plain, settings=(("n", 0.5),) if plain == "scaled" else ())
            if plain == "add":
                yield replace(node, op="mul", settings=())


def _narrower(scan: Scan) -> Iterator[Scan]:
    """Yield the loop without one of its unused states, sequences or results."""
    states, step = len(scan.init), scan.step
    cut = lambda items, n: (*items[:n], *items[n + 1 :])  # noqa: E731
    for n in range(states):
        param = step.params[n]
        others = cut(step.results, n)
        if not any(_uses(part, param) for part in (*step.body, *others)) and len(scan.outs) > 1:
            smaller = replace(step, params=cut(step.params, n), results=others)
            yield replace(scan, step=smaller, init=cut(scan.init, n), outs=cut(scan.outs, n))
    for n in range(states, len(scan.outs)):
        if len(scan.outs) > 1:
            yield replace(scan, step=replace(step, results=cut(step.results, n)), outs=cut(scan.outs, n))
    for n in range(len(scan.xs)):
        param = step.params[states + n]
        if len(scan.xs) > 1 and not any(_uses(part, param) for part in (*step.body, *step.results)):
            yield replace(scan, step=replace(step, params=cut(step.params, states + n)), xs=cut(scan.xs, n))


def _round_values(program: Program) -> Iterator[dict[str, Any]]:
    """Yield the values with the elements of one array rounded to one digit."""
    for name, value in program.values.items():
        rounded = _round(value)
        if rounded != value:
            yield {**program.values, name: rounded}


def _round(value: Any) -> Any:
    if isinstance(value, list):
        return [_round(part) for part in value]
    return round(value, 1) if isinstance(value, float) else value


def _is_valid(program: Program) -> bool:
    """Return True if every name is defined before its use, and no result is a Parameter that is written."""
    known = {v.name for v in program.globals}
    if any(v.name[0] == "s" for v in program.main.results):
        return False
    functions = [custom.forward for custom in program.customs] + [custom.backward for custom in program.customs]
    functions += [neuron.step for neuron in program.neurons]
    return all(_is_closed(function, known) for function in (*functions, program.main)) and all(
        _is_valid_backward(custom, program.linear) for custom in program.customs
    )


def _is_valid_backward(custom: Custom, linear: bool) -> bool:
    """Return True if zero gradients of the outputs give zero gradients, and the pass is linear if `linear`.

    The check is conservative: it tracks the values that are valid gradients, and all values that depend on gradients.
    """
    valid = set(custom.backward.params[-len(custom.forward.results) :])
    dependent = set(valid)
    for statement in custom.backward.body:
        operands = [v for v in nodes(statement) if isinstance(v, Var) and v not in statement.outs]
        gradients = [v for v in operands if v in valid]
        dependent |= set(statement.outs) if dependent & set(operands) else set()
        if isinstance(statement, Let) and gradients:
            moved = TABLE[statement.op].kind in ("same", "reshape") or statement.op in LINEAR
            once = len(dependent & set(operands)) == len(gradients) == operands.count(gradients[0]) == 1
            if moved or (statement.op == "mul" and (once or not linear)) or (statement.op in ODD and not linear):
                valid.add(statement.out)
    return valid >= set(custom.backward.results)


def _is_closed(function: Function, around: set[str]) -> bool:
    """Return True if the function uses only its own names and the names `around` it."""
    known = around | {v.name for v in function.params}
    for statement in function.body:
        inner = getattr(statement, "step", None) or getattr(statement, "function", None)
        if inner is not None and not _is_closed(inner, known):
            return False
        own = {v.name for v in nodes(inner) if isinstance(v, Var)} if inner is not None else set()
        used = [v for v in nodes(statement) if isinstance(v, Var) and v not in statement.outs]
        if any(v.name not in known and v.name not in own for v in used):
            return False
        known |= {v.name for v in statement.outs}
    return all(v.name in known for v in function.results)
