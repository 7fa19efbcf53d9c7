"""Explanations of a compiled function in words: its launches, loops over time, passes and CUDA kernels.

For each launch: the operations that it fuses, the bytes that it moves, and why two loops are not one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from snncell.compiler.backends.groups import emit_cuda
from snncell.compiler.fuse import fuse
from snncell.compiler.ir.loop import Body, LoopOperation
from snncell.compiler.ir.operations import MAX_INSTRUCTIONS, FusibleOperation, Reduction, can_compile
from snncell.compiler.ir.product import choice_in_loop
from snncell.compiler.ir.program import Program, by_line, values_in
from snncell.compiler.pipeline import optimise, stages, stages_of_body
from snncell.compiler.runtime.launches import DeviceLaunch, LoopLaunch, OperationCall, PlanEntry, Segments, bytes_moved
from snncell.compiler.runtime.loop_run import Lowered, adds_up, gathers
from snncell.compiler.runtime.plan import Plan
from snncell.kernels.space import DEVICE, HOST, Space
from snncell.tape import structure
from snncell.tape.state import Value
from snncell.tape.tracing import Instruction

# --- launches ---------------------------------------------------------------------------------------------------------


def explain_plan(name: str, plan: Plan) -> str:
    """Explain a plan: a summary, the launches in order, and the Program that they came from."""
    loops = sum(isinstance(launch, LoopLaunch) for launch in plan.launches)
    calls = [launch for launch in plan.launches if isinstance(launch, OperationCall)]
    scans = sum(bool(call.instruction.op.inside()) for call in calls)
    views = sum(call.instruction.op.view for call in calls)
    others = f"{_count(len(calls) - scans - views, 'call')}, {_count(views, 'view')}"
    if plan.graph is not None:
        others += f"; one CUDA graph{f', but not possible: {plan.graph.reason}' if plan.graph.reason else ''}"
    head = [
        f"{name}: {_count(loops, 'loop')}, {_count(scans, 'loop')} over time, {others}; "
        f"{_bytes(plan.moved())} read and written by one run",
        "",
        "launches:",
    ]
    launch_of: dict[Value, int] = {}
    joined = {run.launches[0]: len(run.launches) - 1 for run in plan.runs if isinstance(run, Segments)}
    for number, launch in enumerate(plan.launches, 1):
        if launch in joined:
            head.append(f"      {number} to {number + joined[launch]} are one launch:")
        if not (isinstance(launch, OperationCall) and launch.instruction.op.view):  # another view of the same elements
            head += _lines(number, launch, launch_of, plan)
        launch_of.update(dict.fromkeys(launch.group.writes, number))
    return "\n".join([*head, "", str(plan.program)])


def _lines(number: int, launch: PlanEntry, launch_of: dict[Value, int], plan: Plan) -> list[str]:
    moved = _bytes(bytes_moved(launch))
    if isinstance(launch, LoopLaunch):
        threads = "all threads" if launch.parallel else "one thread"
        threads = "on the device" if isinstance(launch, DeviceLaunch) else threads
        head = f"{number:4}. loop {launch.name} over {launch.sizes}, {threads}, {moved}"
        details = by_line(launch.group.instructions)
        reasons = _boundaries(launch, launch_of, plan.launches)
        details += [f"apart from {other}, {why}" for other, why in reasons.items()]
    else:
        (instruction,) = launch.group.instructions
        head = f"{number:4}. call {instruction.op.name:<14} {instruction.line}, {moved}"
        details = instruction.op.explained(instruction.attrs, plan.space)
        if plan.space is HOST:  # on the device all are dense
            details = [*details, *instruction.op.choice(instruction.inputs, instruction.attrs)]
        details = details or [f"no loop: {why_no_loop(instruction)}"]
    return [head, *(f"        {line}" for line in details)]


def _boundaries(launch: PlanEntry, launch_of: dict[Value, int], launches: list[PlanEntry]) -> dict[int, str]:
    """The loops that this one takes something from, and why the two are not one; the rules are those of `fuse`."""
    reasons: dict[int, str] = {}
    for value in launch.group.reads:
        number = launch_of.get(value)
        if number is None or not isinstance(launches[number - 1], LoopLaunch):
            continue
        other = launches[number - 1].group
        size = len(other.instructions)
        if any(isinstance(x.op, Reduction) and value in x.outputs for x in other.instructions):
            # The reason that counts, whatever else stands between the two.
            reasons[number] = "whose sum is complete only when that loop has ended"
            continue
        if other.shape != launch.group.shape:
            why = f"which runs over {other.shape}"
        elif size >= MAX_INSTRUCTIONS:
            why = f"which has {MAX_INSTRUCTIONS} instructions, the most that a loop gets"
        elif size + len(launch.group.instructions) > MAX_INSTRUCTIONS:
            why = f"for together they have more than {MAX_INSTRUCTIONS} instructions, the most that a loop gets"
        else:
            why = "because something in between has to wait for that, or the axes of sums differ"
        reasons.setdefault(number, why)
    return reasons


def why_no_loop(instruction: Instruction) -> str:
    """Say why an instruction is a call of NumPy, not part of a generated loop."""
    if not isinstance(instruction.op, FusibleOperation):
        return f"{instruction.op.name} is no elementwise operation and no reduction"
    dtypes = {x.dtype for x in (*values_in(instruction), *instruction.outputs)}
    if refused := sorted(str(dtype) for dtype in dtypes if not can_compile([dtype])):
        return f"{', '.join(refused)} is left to NumPy"
    return f"NumPy refuses some integers in {instruction.op.name}, and so must we"


def _bytes(number: float) -> str:
    for unit in ("B", "kB", "MB"):
        if number < 1000:
            return f"{number:.3g} {unit}"
        number /= 1000
    return f"{number:.3g} GB"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


# --- loops over time --------------------------------------------------------------------------------------------------


def explain_loop(lowered: Lowered, steps: int, space: Space) -> list[str]:
    """The form that a loop takes in a space, and why; the values it stores; where its instructions run."""
    schedule, loop, body, parts = lowered.schedule, lowered.loop, lowered.loop.body, lowered.schedule.parts
    if not lowered.has_loop:
        return [
            f"{schedule.who}: {lowered.plan_in(space, steps).explained()}",
            *_list_reasons("once", schedule.invariant),
            *_list_reasons("for all steps together", parts.all_steps),
            *_list_reasons("on sums over all steps", [*parts.reductions, *body.fused_sums]),
        ]
    kernel = lowered.loop_in(space)
    lines = [f"{schedule.who}: {kernel.explained(steps)}"]
    if lowered.reason is not None:
        lines.append(f"no single kernel, because {lowered.reason}")
    lines += _explain_storage(lowered)
    if loop.recompute is not None:
        interval = loop.recompute.interval
        lines.append(f"computes the states between the stored ones again, {interval} steps at a time")
    gathered = _by_rule([x for x in schedule.products if gathers(kernel, x)], steps)
    added = _by_rule([x for x in parts.reductions if adds_up(kernel, x)], steps)
    products = [*schedule.prologue, *schedule.products]
    outside = [x for x in products if not any(x in own for own in gathered.values())]
    after = [x for x in parts.reductions if not any(x in own for own in added.values())]
    for title, placed in (
        ("once before the loop", schedule.invariant),
        *((f"{rule}, else for all steps together, before it", own) for rule, own in gathered.items()),
        ("for all steps together, before the loop", outside),
        ("in the loop", parts.loop),
        ("for all steps together, after the loop", parts.epilogue),
        ("on sums over time, after the loop", after),
        *((f"{rule}, else after it", own) for rule, own in added.items()),
        ("taken into the loop, added up over time", body.fused_sums),
    ):
        lines += _list_reasons(title, placed)
    return lines


def _explain_storage(lowered: Lowered) -> list[str]:
    """The values that a loop stores for its backward pass, and where they come from."""
    parts, body, carry = lowered.schedule.parts, lowered.loop.body, lowered.schedule.carry
    if lowered.loop.interval is not None:
        return [f"stores the state every {lowered.loop.interval} steps for the reverse: {_specs(carry)}"]
    stored = [value for y, value in zip(body.ys, parts.ys, strict=True) if body.is_saved(y)]
    if not stored:
        return []
    origin = {x._data: "an input" for x in (*body.xs, *body.consts)}
    for instruction in parts.program.instructions:
        origin.update(dict.fromkeys(instruction.outputs, f"{instruction.op.name}, {instruction.line}"))
    origin |= {value: f"state {n} before it" for n, value in enumerate(carry, 1)}
    lines = [f"    {_specs([value])}: {origin.get(value, 'a constant')}" for value in stored]
    return ["stores for the reverse, of each step, and nothing else:", *lines]


def _list_reasons(title: str, placed: Sequence[Instruction]) -> list[str]:
    return [f"  {title}:", *(f"    {line}" for line in by_line(placed))] if placed else []


def _by_rule(products: Sequence[Instruction], steps: int) -> dict[str, list[Instruction]]:
    """The products that the loop may carry out, by the rule for when it does."""
    found: dict[str, list[Instruction]] = {}
    for product in products:
        if rule := choice_in_loop(product, steps):
            found.setdefault(rule, []).append(product)
    return found


def _specs(values: Sequence[Value]) -> str:
    return ", ".join(f"{value.dtype}{list(value.shape)}" for value in values)


# --- passes -----------------------------------------------------------------------------------------------------------


def explain_stages(program: Program, space: Space) -> str:
    """A traced Program after each pass, then the step of each loop in it; of a pass that changes nothing, its name."""
    return "\n".join(_stage_lines(stages(program, space))).rstrip()


def _stage_lines(after: Iterable[tuple[str, Program]]) -> list[str]:
    """A Program after each pass, then the steps of the loops in the last one."""
    lines: list[str] = []
    before = ""
    for name, program in after:
        text = str(program)
        lines += [f"{name}: no change", ""] if text == before else [f"{name}:", text, ""]
        before = text
    for instruction in program.instructions:
        if not isinstance(instruction.op, LoopOperation):
            continue
        loop, line = instruction.op.loop, instruction.line
        forward = loop.recompute.forward if loop.recompute else None
        states = [x._data for x in forward.carry] if forward else []
        bodies: list[tuple[str, Body, list[Value]]] = [(f"a step of {loop.who}", loop.body, states)]
        bodies += [(f"a step that {loop.who} computes again", forward, [])] if forward else []
        for title, body, states in bodies:
            lines += [f"--- {title}, {line}", "", *_stage_lines(stages_of_body(body, states))]
    return lines


def signature_difference(old: Any, new: Any) -> str:
    """Name the difference of two signatures as the caller sees it."""
    (*before, tree, specs), (*now, new_tree, new_specs) = old, new
    if before != now:
        return "a gradient, smooth spikes, or what a monitor records are wanted in one call and not in another"
    if tree == new_tree:
        names = structure.paths(tree)
        pairs = zip(names, specs, new_specs, strict=True)
        return "; ".join(
            f"{name} is {a[1]}{list(a[0])} in one call and {b[1]}{list(b[0])} in another"
            for name, a, b in pairs
            if a != b
        )
    values = zip(structure.statics(tree), structure.statics(new_tree), strict=False)
    changes = [f"{a!r} in one call and {b!r} in another" for a, b in values if a != b or type(a) is not type(b)]
    return "a fixed argument is " + changes[0] if changes else "the arguments have another structure"


def kernels_on_device(program: Program) -> Iterator[tuple[str, str, tuple[Any, ...]]]:
    """Name, source and signature of each kernel of a Program's own, to be read and compiled without a card.

    A loop that goes step by step has none.
    """
    for group in fuse(optimise(program, DEVICE)):
        op = group.instructions[0].op
        if isinstance(op, LoopOperation):
            if (loop := op.device_kernel()) is not None:
                yield loop
        elif group.shape is not None:
            kernel = emit_cuda(group, set())
            yield kernel.name, kernel.source, kernel.signature
            if kernel.sums:
                yield f"join_{kernel.name}", kernel.source, kernel.join
