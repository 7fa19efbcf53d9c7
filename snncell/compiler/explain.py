"""A plan in words: its kernels, the operations that each fuses, the bytes it moves, and why two loops are not one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from snncell.compiler.ir.formula import MAX_STEPS, Elementwise, Reduction, can_compile
from snncell.compiler.ir.program import Program, by_line
from snncell.compiler.runtime.launches import DeviceLaunch, Launch, OperationCall, bytes_moved
from snncell.compiler.runtime.plan import Plan
from snncell.compiler.runtime.segments import Segments
from snncell.kernels.space import HOST
from snncell.tape import structure
from snncell.tape.tracing import Instruction
from snncell.tape.value import Value


def report(name: str, plan: Plan) -> str:
    """A summary, the launches in order, and the Program they came from."""
    loops = sum(isinstance(launch, (Launch, DeviceLaunch)) for launch in plan.launches)
    calls = [launch for launch in plan.launches if isinstance(launch, OperationCall)]
    scans = sum(bool(call.step.op.inside()) for call in calls)
    views = sum(call.step.op.view for call in calls)
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
        if not (isinstance(launch, OperationCall) and launch.step.op.view):  # another view of the same elements
            head += _lines(number, launch, launch_of, plan)
        launch_of.update(dict.fromkeys(launch.group.writes, number))
    return "\n".join([*head, "", str(plan.program)])


def report_on_passes(stages: Iterable[tuple[str, Program]]) -> str:
    """The Program after each pass; of one that changes nothing, its name."""
    lines: list[str] = []
    before = ""
    for name, program in stages:
        text = str(program)
        lines += [f"{name}: no change", ""] if text == before else [f"{name}:", text, ""]
        before = text
    return "\n".join(lines).rstrip()


def _lines(
    number: int, launch: Launch | DeviceLaunch | OperationCall, launch_of: dict[Value, int], plan: Plan
) -> list[str]:
    if not isinstance(launch, OperationCall):
        threads = "all threads" if launch.parallel else "one thread"
        threads = "on the device" if isinstance(launch, DeviceLaunch) else threads
        lines = [f"{number:4}. loop {launch.name} over {launch.sizes}, {threads}, {_bytes(bytes_moved(launch))}"]
        lines += [f"        {line}" for line in by_line(launch.group.instructions)]
        return [
            *lines,
            *(f"        apart from {other}, {why}" for other, why in _boundaries(launch, launch_of, plan.launches)),
        ]
    instruction = launch.step
    lines = [f"{number:4}. call {instruction.op.name:<14} {instruction.line}, {_bytes(bytes_moved(launch))}"]
    details = instruction.op.explained(instruction.attrs, plan.space)
    if plan.space is HOST:  # on the device all are dense
        details = [*details, *instruction.op.choice(instruction.inputs, instruction.attrs)]
    return [*lines, *(f"        {line}" for line in details or [f"no loop: {why_no_loop(instruction)}"])]


def _boundaries(
    launch: Launch | DeviceLaunch, launch_of: dict[Value, int], launches: list[Any]
) -> list[tuple[int, str]]:
    """The loops that this one takes something from, and why the two are not one; the rules are those of `fuse`."""
    reasons: dict[int, str] = {}
    for value in launch.group.reads:
        number = launch_of.get(value)
        other = None if number is None else launches[number - 1]
        if number is None or other is None or isinstance(other, OperationCall):
            continue
        if any(
            isinstance(instruction.op, Reduction) and value in instruction.outputs
            for instruction in other.group.instructions
        ):
            # The reason that counts, whatever else stands between the two.
            reasons[number] = "whose sum is complete only when that loop has ended"
        elif other.group.shape != launch.group.shape:
            reasons.setdefault(number, f"which runs over {other.group.shape}")
        elif len(other.group.instructions) >= MAX_STEPS:
            reasons.setdefault(number, f"which has {MAX_STEPS} steps, the most that a loop gets")
        elif len(other.group.instructions) + len(launch.group.instructions) > MAX_STEPS:
            reasons.setdefault(number, f"for together they have more than {MAX_STEPS} steps, the most that a loop gets")
        else:
            reasons.setdefault(number, "because something in between has to wait for that, or the axes of sums differ")
    return list(reasons.items())


def why_no_loop(instruction: Instruction) -> str:
    """Say why a step is a call of NumPy, not part of a generated loop."""
    if not isinstance(instruction.op, (Elementwise, Reduction)):
        return f"{instruction.op.name} is no elementwise operation and no reduction"
    values = [x for x in (*instruction.inputs, *instruction.outputs) if isinstance(x, Value)]
    if not can_compile([value.dtype for value in values]):
        kinds = ", ".join(sorted({str(v.dtype) for v in values if not can_compile([v.dtype])}))
        return f"{kinds} is left to NumPy"
    return f"NumPy refuses some integers in {instruction.op.name}, and so must we"


def _bytes(number: float) -> str:
    for unit in ("B", "kB", "MB"):
        if number < 1000:
            return f"{number:.3g} {unit}"
        number /= 1000
    return f"{number:.3g} GB"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def difference(old: Any, new: Any) -> str:
    """The difference of two signatures, in the words of the caller."""
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
