"""Makes a failing program small: one change after the other, as long as it fails in the same form."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from .operations import LINEAR, ODD, TABLE
from .syntax import Custom, Function, Let, Neuron, Program, Run, Scan, Var, nodes, renamed

Fails = Callable[[Program], bool]


def shrunk(program: Program, fails: Fails, tries: int = 600) -> Program:
    """A program that still `fails`, from which nothing can be taken without its passing; or what `tries` led to."""
    while True:
        for candidate in _smaller(program):
            tries -= 1
            if tries < 0:
                return program
            if _holds_together(candidate) and fails(candidate):
                program = candidate
                break
        else:
            return program


def _smaller(program: Program) -> Iterator[Program]:
    """Programs with a little less, what takes most away first."""
    main = program.main
    if len(main.results) > 1:
        yield from (_with(program, main=replace(main, results=(result,))) for result in main.results)
    if program.given:
        yield from (_without_input(program, name) for name in program.given)
    for body in _functions(program):
        for n in reversed(range(len(body.body))):
            yield from _without_statement(program, body, n)
    for body in _functions(program):
        yield from (_exchanged(program, body, new) for new in _simpler(program, body))
    for custom in program.customs:
        yield from (_in_custom(program, custom, new) for new in _simpler_custom(custom))
    for node in nodes((program.main, program.customs, program.neurons)):
        yield from (_replaced(program, node, new) for new in _simpler_node(node))
    yield from (_with(program, values=new) for new in _rounder(program))


def _functions(program: Program) -> list[Function]:
    return [node for node in nodes((program.main, program.neurons, program.customs)) if isinstance(node, Function)]


def _replaced(program: Program, old: Any, new: Any) -> Program:
    """The program with a node in the place of another."""

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


_exchanged = _in_custom = _replaced


def _with(program: Program, **parts: Any) -> Program:
    """The program with other parts, and without the Cells and Tensors that nothing uses any more."""
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
    read |= {source.split(".")[0] for source in new.given.values()}
    kept = [v for v in new.globals if v.name in read]
    if not any(v.name[0] == "p" for v in kept):
        kept += new.named("p")[:1]
    return replace(new, globals=tuple(kept))


def _without_input(program: Program, name: str) -> Program:
    """The program with the Parameter in the place of an input that has its value."""
    old = next(v for v in program.main.params if v.name == name)
    source = next(v for v in program.globals if v.name == program.given[name].split(".")[0])
    main = replace(program.main, params=tuple(v for v in program.main.params if v != old))
    rest = {other: value for other, value in program.given.items() if other != name}
    return _with(renamed(program, old, source), main=renamed(main, old, source), given=rest)


def _without_statement(program: Program, function: Function, n: int) -> Iterator[Program]:
    """The program without a statement, what it gave replaced by something else of that type."""
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
        yield _replaced(program, function, shorter)
        return
    for choice in range(3):
        new, possible = shorter, True
        for out, found in zip(statement.outs, choices, strict=True):
            if _uses(new, out):
                possible = possible and choice < len(found)
                new = renamed(new, out, found[choice]) if possible else new
        if possible:
            yield _replaced(program, function, new)


def _uses(tree: Any, v: Var) -> bool:
    return any(isinstance(node, Var) and node == v for node in nodes(tree))


def _simpler(program: Program, function: Function) -> Iterator[Function]:
    """A step of a loop without one of its results or states is made in `_simpler_node`; here results by operands."""
    for position, result in enumerate(function.results):
        for other in (*function.params, *program.globals):
            if other.type == result.type and other != result and result not in function.params:
                results = (*function.results[:position], other, *function.results[position + 1 :])
                yield replace(function, results=results)


def _simpler_custom(custom: Custom) -> Iterator[Custom]:
    if custom.weights:
        count = len(custom.reverse.results) - len(custom.weights)
        yield replace(custom, weights=(), reverse=replace(custom.reverse, results=custom.reverse.results[:count]))


def _simpler_node(node: Any) -> Iterator[Any]:
    """Loops without what is special about them, without a state or a result; one operand less; a plainer operation."""
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
    """A loop with a state, a sequence or a result less, as far as nothing uses it."""
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


def _rounder(program: Program) -> Iterator[dict[str, Any]]:
    """Elements of one digit."""
    for name, value in program.values.items():
        rounder = _rounded(value)
        if rounder != value:
            yield {**program.values, name: rounder}


def _rounded(value: Any) -> Any:
    if isinstance(value, list):
        return [_rounded(part) for part in value]
    return round(value, 1) if isinstance(value, float) else value


def _holds_together(program: Program) -> bool:
    """True if every name is known where it is used, and the results of the program are its own."""
    known = {v.name for v in program.globals}
    if any(v.name[0] == "s" for v in program.main.results):
        return False
    functions = [custom.forward for custom in program.customs] + [custom.reverse for custom in program.customs]
    functions += [neuron.step for neuron in program.neurons]
    return all(_closed(function, known) for function in (*functions, program.main)) and all(
        _fit_to_reverse(custom, program.linear) for custom in program.customs
    )


def _fit_to_reverse(custom: Custom, linear: bool) -> bool:
    """True if the reverse surely gives nothing where nothing arrives, and is linear where it has to be."""
    fit = set(custom.reverse.params[-len(custom.forward.results) :])
    touched = set(fit)
    for statement in custom.reverse.body:
        given = [v for v in nodes(statement) if isinstance(v, Var) and v not in statement.outs]
        some = [v for v in given if v in fit]
        touched |= set(statement.outs) if touched & set(given) else set()
        if isinstance(statement, Let) and some:
            moved = TABLE[statement.op].kind in ("same", "reshape") or statement.op in LINEAR
            once = len(touched & set(given)) == len(some) == given.count(some[0]) == 1
            if moved or (statement.op == "mul" and (once or not linear)) or (statement.op in ODD and not linear):
                fit.add(statement.out)
    return fit >= set(custom.reverse.results)


def _closed(function: Function, around: set[str]) -> bool:
    known = around | {v.name for v in function.params}
    for statement in function.body:
        inner = getattr(statement, "step", None) or getattr(statement, "function", None)
        if inner is not None and not _closed(inner, known):
            return False
        own = {v.name for v in nodes(inner) if isinstance(v, Var)} if inner is not None else set()
        used = [v for v in nodes(statement) if isinstance(v, Var) and v not in statement.outs]
        if any(v.name not in known and v.name not in own for v in used):
            return False
        known |= {v.name for v in statement.outs}
    return all(v.name in known for v in function.results)
