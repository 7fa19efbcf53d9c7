"""Text of `explain` and `explain_passes`: layers, launches, loops over time, compiler passes, and CUDA kernels."""

from __future__ import annotations

import functools
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from snncell.base.arguments.shown import Markup, element, join_parts, table
from snncell.compiler.backends.groups import emit_cuda
from snncell.compiler.fuse import fuse
from snncell.compiler.ir.operations import MAX_INSTRUCTIONS, FusibleOperation, Reduction, can_compile
from snncell.compiler.ir.product import EVENTS, PRODUCT_OF_EVENTS, choice_in_loop
from snncell.compiler.ir.program import Body, LoopOperation, LoopSummary, Program, by_line, bytes_of, values_in
from snncell.compiler.ir.windows import is_reduction_of_windows, is_spread
from snncell.compiler.passes import optimise, stages, stages_of_body
from snncell.compiler.passes.pool_in_loops import obstacle_to_fusion
from snncell.compiler.runtime.launches import DeviceLaunch, LoopLaunch, OperationCall, PlanEntry, Segments, bytes_moved
from snncell.compiler.runtime.loop_run import Lowered, StepLoop, adds_up, gathers, pooled_by
from snncell.compiler.runtime.plan import Plan
from snncell.kernels.space import DEVICE, HOST, Space
from snncell.tape import structure
from snncell.tape.state import Value
from snncell.tape.tracing import Instruction

# --- launches ---------------------------------------------------------------------------------------------------------


class Explanation(str):
    """Text that Python and notebooks show as it is, as the last expression of a cell, too."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return element("pre", self)


def explain_plan(name: str, plan: Plan) -> str:
    """Explain a plan by its launches, in order, after a line of totals."""
    head = [f"{name}: {totals(plan)}", "", "launches:"]
    launch_of: dict[Value, int] = {}
    joined = {run.launches[0]: len(run.launches) - 1 for run in plan.runs if isinstance(run, Segments)}
    for number, launch in enumerate(plan.launches, 1):
        if launch in joined:
            head.append(f"      {number} to {number + joined[launch]} are one launch:")
        if not is_view(launch):
            head += _lines(number, launch, launch_of, plan)
        launch_of.update(dict.fromkeys(launch.group.writes, number))
    return "\n".join(head)


def totals(plan: Plan) -> str:
    """The numbers of loops and calls in a plan, and the bytes that one run moves."""
    loops = sum(isinstance(launch, LoopLaunch) for launch in plan.launches)
    calls = [launch for launch in plan.launches if isinstance(launch, OperationCall)]
    scans = sum(bool(call.instruction.op.inside()) for call in calls)
    views = sum(map(is_view, calls))
    others = f"{count(len(calls) - scans - views, 'call')}, {count(views, 'view')}"
    if plan.graph is not None:
        others += f"; one CUDA graph{f', but not possible: {plan.graph.reason}' if plan.graph.reason else ''}"
    over_time = f"{count(loops, 'loop')}, {count(scans, 'loop')} over time"
    return f"{over_time}, {others}; one run reads and writes {in_bytes(plan.moved())}"


def is_view(launch: PlanEntry) -> bool:
    """True for a launch that gives another view of the same elements, and moves nothing."""
    return isinstance(launch, OperationCall) and bool(launch.instruction.op.view)


def _lines(number: int, launch: PlanEntry, launch_of: dict[Value, int], plan: Plan) -> list[str]:
    moved = in_bytes(bytes_moved(launch))
    if isinstance(launch, LoopLaunch):
        threads = "all threads" if launch.parallel else "one thread"
        threads = "on the device" if isinstance(launch, DeviceLaunch) else threads
        head = f"{number:4}. loop {launch.name} over {launch.sizes}, {threads}, {moved}"
        details = by_line(launch.group.instructions)
        reasons = _boundaries(launch, launch_of, plan.launches)
        details += [f"not fused with {other}: {why}" for other, why in reasons.items()]
    else:
        (instruction,) = launch.group.instructions
        head = f"{number:4}. call {instruction.op.name:<14} {instruction.line}, {moved}"
        details = instruction.op.describe(instruction.attrs, plan.space)
        if plan.space is HOST:  # on the device all products are dense
            details = [*details, *instruction.op.choice(instruction.inputs, instruction.attrs)]
        details = details or [f"no loop: {why_own_launch(instruction, plan)}"]
    return [head, *(f"        {line}" for line in details)]


def _boundaries(launch: PlanEntry, launch_of: dict[Value, int], launches: list[PlanEntry]) -> dict[int, str]:
    """For each loop with a result that this launch reads, the reason why `fuse` has not fused the two."""
    reasons: dict[int, str] = {}
    for value in launch.group.reads:
        number = launch_of.get(value)
        if number is None or not isinstance(launches[number - 1], LoopLaunch):
            continue
        other = launches[number - 1].group
        size = len(other.instructions)
        if any(isinstance(x.op, Reduction) and value in x.outputs for x in other.instructions):
            reasons[number] = "its sum is complete only at the end of that loop"  # replaces any other reason
            continue
        if other.shape != launch.group.shape:
            why = f"it runs over {other.shape}"
        elif size >= MAX_INSTRUCTIONS:
            why = f"it has {MAX_INSTRUCTIONS} instructions, the largest number for one loop"
        elif size + len(launch.group.instructions) > MAX_INSTRUCTIONS:
            why = f"together they would have more than {MAX_INSTRUCTIONS} instructions, the largest number for one loop"
        else:
            why = "another launch has to run between them, or they sum along different axes"
        reasons.setdefault(number, why)
    return reasons


def why_own_launch(instruction: Instruction, plan: Plan) -> str:
    """The reason why an instruction is a launch of its own, not a part of a generated loop or of a loop over time."""
    if not (is_reduction_of_windows(instruction) or is_spread(instruction)):
        return why_no_loop(instruction)
    reason = obstacle_to_fusion(instruction, plan.program) if plan.space is HOST else "loops on a GPU do not pool"
    return f"not part of a loop over time, because {reason}"


def why_no_loop(instruction: Instruction) -> str:
    """The reason why an instruction is a call of NumPy instead of a part of a generated loop."""
    if not isinstance(instruction.op, FusibleOperation):
        return f"{instruction.op.name} is neither elementwise nor a reduction"
    dtypes = {x.dtype for x in (*values_in(instruction), *instruction.outputs)}
    if refused := sorted(str(dtype) for dtype in dtypes if not can_compile([dtype])):
        return f"NumPy computes in {', '.join(refused)}"
    return f"{instruction.op.name} must raise an error for some integers, as NumPy does"


def in_bytes(number: float) -> str:
    """A number of bytes in words, such as "1.64 MB"."""
    for unit in ("B", "kB", "MB"):
        if number < 1000:
            return f"{number:.3g} {unit}"
        number /= 1000
    return f"{number:.3g} GB"


def count(number: int, noun: str) -> str:
    """A number with its noun, such as "1,200 loops"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


# --- loops over time --------------------------------------------------------------------------------------------------


def explain_loop(lowered: Lowered, steps: int, space: Space) -> list[str]:
    """The form that a loop takes in a space, and why; the values it stores; where its instructions run."""
    loop = lowered.loop
    if not lowered.has_loop:
        lines = [f"{loop.who}: {lowered.plan_in(space, steps).describe()}"]
    else:
        lines = [f"{loop.who}: {lowered.loop_in(space).describe(steps)}"]
        if lowered.reason is not None:
            lines.append(f"no single kernel, because {lowered.reason}")
        lines += _explain_storage(lowered)
        if loop.recompute is not None:
            lines.append(f"recomputes the states between checkpoints, {loop.recompute.interval} steps at a time")
        lines += [
            f"{one.op.name} is not in the kernel, because {why}" for one, why in lowered.obstacles_to_pooling(space)
        ]
    for title, placed in places_in_loop(lowered, steps, space):
        lines += [f"  {title}:", *(f"    {line}" for line in by_line(placed))]
    return lines


def summarise_loop(lowered: Lowered, steps: int, space: Space) -> LoopSummary:
    """Describe how a loop runs in a space: its form, the reason if it is slow, and the place of each instruction."""
    places = places_in_loop(lowered, steps, space)
    if not lowered.has_loop:
        return LoopSummary(lowered.plan_in(space, steps).describe(), "", places)
    kernel = lowered.loop_in(space)
    slow = ""
    if isinstance(kernel, StepLoop):
        slow = lowered.reason or "the products of each step are calls of cuBLAS"
    return LoopSummary(kernel.describe(steps), slow, places)


def places_in_loop(lowered: Lowered, steps: int, space: Space) -> list[tuple[str, Sequence[Instruction]]]:
    """The instructions of a loop by the place where they run, with a title for each place."""
    schedule, body, parts = lowered.schedule, lowered.loop.body, lowered.schedule.parts
    if not lowered.has_loop:
        places = [
            ("once", schedule.invariant),
            ("for all steps together", parts.all_steps),
            ("on sums over all steps", [*parts.reductions, *body.fused_sums]),
        ]
        return [(title, placed) for title, placed in places if placed]
    kernel = lowered.loop_in(space)
    gathered = _conditional_products([x for x in schedule.products if gathers(kernel, x)], steps)
    added = _conditional_products([x for x in parts.reductions if adds_up(kernel, x)], steps)
    products, pooled = [*schedule.prologue, *schedule.products, *schedule.spreads], list(pooled_by(kernel))
    outside = [x for x in products if not any(x in own for own in (*gathered.values(), pooled))]
    after = [x for x in parts.reductions if not any(x in own for own in added.values())]
    places = [
        ("once, before the loop", schedule.invariant),
        *((f"{rule}, else for all steps together before the loop", own) for rule, own in gathered.items()),
        ("for all steps together, before the loop", outside),
        ("in the loop", parts.loop),
        ("in the loop, block by block", pooled),
        ("for all steps together, after the loop", [x for x in parts.epilogue if x not in pooled]),
        ("on sums over time, after the loop", after),
        *((f"{rule}, else after the loop", own) for rule, own in added.items()),
        ("in the loop, accumulated over time", body.fused_sums),
    ]
    return [(title, placed) for title, placed in places if placed]


def _explain_storage(lowered: Lowered) -> list[str]:
    parts, body, carry = lowered.schedule.parts, lowered.loop.body, lowered.schedule.carry
    if lowered.loop.interval is not None:
        return [f"stores the state every {lowered.loop.interval} steps for the backward pass: {_specs(carry)}"]
    stored = [value for y, value in zip(body.ys, parts.ys, strict=True) if body.is_saved(y)]
    if not stored:
        return []
    origin = {x._data: "an input" for x in (*body.xs, *body.consts)}
    for instruction in parts.program.instructions:
        origin.update(dict.fromkeys(instruction.outputs, f"{instruction.op.name}, {instruction.line}"))
    origin |= {value: f"state {n} before it" for n, value in enumerate(carry, 1)}
    lines = [f"    {_specs([value])}: {origin.get(value, 'a constant')}" for value in stored]
    return ["stores for the backward pass, at each step:", *lines]


def _conditional_products(products: Sequence[Instruction], steps: int) -> dict[str, list[Instruction]]:
    """The products that the loop may compute, by the rule for when it does."""
    found: dict[str, list[Instruction]] = {}
    for product in products:
        if rule := choice_in_loop(product, steps):
            found.setdefault(rule, []).append(product)
    return found


def _specs(values: Sequence[Value]) -> str:
    return ", ".join(f"{value.dtype}{list(value.shape)}" for value in values)


# --- passes -----------------------------------------------------------------------------------------------------------


def explain_stages(program: Program, space: Space) -> Explanation:
    """A traced Program after each pass, then the step of each loop in it."""
    return Explanation("\n".join(_stage_lines(stages(program, space))).rstrip())


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
        bodies += [(f"a step that {loop.who} recomputes", forward, [])] if forward else []
        for title, body, states in bodies:
            lines += [f"--- {title}, {line}", "", *_stage_lines(stages_of_body(body, states))]
    return lines


def signature_difference(old: Any, new: Any) -> str:
    """Name the difference of two signatures as the caller sees it."""
    (*before, tree, specs), (*now, new_tree, new_specs) = old, new
    if before != now:
        return "one call takes a gradient, has smooth spikes or a monitor, and another does not"
    if tree == new_tree:
        pairs = zip(structure.paths(tree), specs, new_specs, strict=True)
        differ = [(name, f"{a[1]}{list(a[0])}", f"{b[1]}{list(b[0])}") for name, a, b in pairs if a != b]
        return "; ".join(f"{name} is {a} in one call and {b} in another" for name, a, b in differ)
    values = zip(structure.statics(tree), structure.statics(new_tree), strict=False)
    changes = [f"{a!r} in one call and {b!r} in another" for a, b in values if a != b or type(a) is not type(b)]
    return "a fixed argument is " + changes[0] if changes else "the arguments have another structure"


def kernels_on_device(program: Program) -> Iterator[tuple[str, str, tuple[Any, ...]]]:
    """Name, source and signature of each device kernel of a Program, without loops that run step by step."""
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


# --- layers -----------------------------------------------------------------------------------------------------------

WIDTH = 118  # columns
OUTSIDE = "outside of layers"  # the name of code that no Cell runs
_HINT = (
    'explain(..., detail="launches") lists every launch with its source lines, detail="program" the compiled Program.'
)


@dataclass
class Direction:
    """One direction of a layer: the phrases about its launches, and its reasons to be slow."""

    phrases: list[str] = field(default_factory=list)
    slow: list[str] = field(default_factory=list)
    loops: int = 0
    fused: int = 0  # operations in these loops
    elsewhere: dict[str, list[str]] = field(default_factory=dict)  # operations in launches of other layers

    def words(self) -> str:
        """The direction in one line."""
        phrases = [f"{n} x {phrase}" if n > 1 else phrase for phrase, n in Counter(self.phrases).items()]
        elsewhere = [f"{where}: {', '.join(dict.fromkeys(names))}" for where, names in self.elsewhere.items()]
        loops = [f"{count(self.loops, 'fused loop')} ({count(self.fused, 'operation')})"] if self.loops else []
        return "; ".join([*phrases, *elsewhere, *loops])


@dataclass
class Layer:
    """A row of the table."""

    name: str
    forward: Direction = field(default_factory=Direction)
    backward: Direction = field(default_factory=Direction)
    stored: dict[Value, None] = field(default_factory=dict)
    moved: int = 0  # bytes
    updates: bool = False  # Parameters, after the backward pass

    def facts(self) -> dict[str, str]:
        """The cells of the row by their titles, without empty ones."""
        forward = "update" if self.updates and not self.backward.words() else "forward"
        facts = {forward: self.forward.words(), "backward": self.backward.words()}
        arrays = Counter(f"{value.dtype}{list(value.shape)}" for value in self.stored if bytes_of(value))
        listed = [f"{number} x {array}" if number > 1 else array for array, number in arrays.items()]
        listed += ["the events of its input"] if len(self.stored) > arrays.total() else []  # as many as there are
        if listed:
            size = in_bytes(sum(map(bytes_of, self.stored)))
            facts["stored"] = f"{f'{size} ' if arrays else ''}for the backward pass: {', '.join(listed)}"
        facts["slow"] = "; ".join(dict.fromkeys([*self.forward.slow, *self.backward.slow]))
        return {title: text for title, text in facts.items() if text}


def explain_layers(name: str, plan: Plan) -> LayerTable:
    """Explain a plan by a row for each layer, in the order of the forward pass."""
    rows: dict[str, Layer] = {}
    for launch in plan.launches:
        if not is_view(launch):
            _add(rows, launch, plan)
    _note_stored(rows, plan)
    for layer in updated_layers(plan).intersection(rows):
        rows[layer].updates = True
    stored = sum(bytes_of(value) for row in rows.values() for value in row.stored)
    total = f"total: {totals(plan)}{f'; {in_bytes(stored)} stored' if stored else ''}"
    return LayerTable(name, list(rows.values()), total, "GPU" if plan.space is not HOST else "CPU")


class LayerTable(Explanation):
    """The table as text, and as HTML in a notebook."""

    __slots__ = ("_html",)

    _html: Markup

    def __new__(cls, name: str, rows: Sequence[Layer], total: str, device: str) -> LayerTable:
        title = f"{name}, compiled for the {device}"
        lines = [f"{title:<{WIDTH - 20}}{'bytes moved':>20}", ""]
        wrap = functools.partial(textwrap.wrap, width=WIDTH, break_on_hyphens=False)
        for row in rows:
            lines.append(f"{row.name or OUTSIDE:<{WIDTH - 12}}{in_bytes(row.moved):>12}")
            for kind, text in row.facts().items():
                lines += wrap(text, initial_indent=f"    {kind:<10}", subsequent_indent=" " * 14)
        made = super().__new__(cls, "\n".join([*lines, "", *wrap(total), *wrap(_HINT)]))
        body = []
        for row in rows:
            facts = "\n".join(f"{kind}: {text}" for kind, text in row.facts().items())
            body.append((row.name or OUTSIDE, facts, in_bytes(row.moved)))
        head = ("layer", "launches", "bytes moved")
        made._html = element("div", element("b", title), table(head, body, numbers=1), join_parts([total, "\n", _HINT]))
        return made

    def __reduce__(self) -> tuple[type, tuple[str]]:
        return Explanation, (str(self),)  # pickle and copy keep the text; rows refer to values of the trace

    def _repr_html_(self) -> str:
        return self._html


# --- rows of the table ------------------------------------------------------------------------------------------------


def _row(rows: dict[str, Layer], layer: str) -> Layer:
    return rows.setdefault(layer, Layer(layer))


def _direction_of(rows: dict[str, Layer], instruction: Instruction) -> Direction:
    row = _row(rows, instruction.line.layer)
    return row.backward if instruction.line.backward else row.forward


def layer_of(instructions: Sequence[Instruction]) -> tuple[str, bool]:
    """The layer with most of a launch's instructions, and whether the launch belongs to the backward pass."""
    return Counter((x.line.layer, x.line.backward) for x in instructions).most_common(1)[0][0]


def updated_layers(plan: Plan) -> set[str]:
    """The layers that write to Parameters with a gradient: optimisers."""
    # Statistics and states, which do not require a gradient, are written in the forward pass.
    written = {value for parameter, value in plan.program.written.items() if parameter.requires_grad}
    return {x.line.layer for x in plan.program.instructions if written.intersection(x.outputs)}


def _add(rows: dict[str, Layer], launch: PlanEntry, plan: Plan) -> None:
    instructions = launch.group.instructions
    if isinstance(launch, LoopLaunch):
        layer, backward = layer_of(instructions)
        row = _row(rows, layer)
        own = row.backward if backward else row.forward
        own.loops, own.fused = own.loops + 1, own.fused + len(instructions)
        _note_elsewhere(rows, layer, "", instructions)
    else:
        (instruction,) = instructions
        row = _row(rows, instruction.line.layer)
        own = _direction_of(rows, instruction)
        if isinstance(instruction.op, LoopOperation):
            summary = instruction.op.summary(instruction.attrs["steps"], plan.space)
            own.phrases.append(f"{'not fused' if summary.slow else 'fused'}: {summary.form}")
            if summary.slow:
                own.slow.append(f"the time steps run one by one, because {summary.slow}")
            for title, placed in summary.places:
                _note_elsewhere(rows, row.name, title, placed)
        elif instruction.op is not EVENTS:  # the products of these events say enough
            own.phrases.append(_describe_call(instruction, plan))
    row.moved += bytes_moved(launch)


def _note_elsewhere(rows: dict[str, Layer], layer: str, title: str, instructions: Sequence[Instruction]) -> None:
    """Note the instructions of other layers in a launch of `layer`; the title is their place in its loop over time."""
    where = f"{'fused into' if not title or title.startswith('in the loop') else 'in the launch of'} {_short(layer)}"
    place = "" if title in ("", "in the loop") else f" ({_brief(title)})"
    for instruction in instructions:
        if instruction.line.layer != layer:
            names = _direction_of(rows, instruction).elsewhere.setdefault(where, [])
            names.append(f"{_plain(instruction.op.name)}{place}")


def _describe_call(instruction: Instruction, plan: Plan) -> str:
    op = instruction.op
    lines = list(op.describe(instruction.attrs, plan.space))
    if plan.space is HOST:
        lines += op.choice(instruction.inputs, instruction.attrs)
    return _brief(
        f"{_plain(op.name)} {'; '.join(lines)}" if lines else f"separate call: {why_own_launch(instruction, plan)}"
    )


def _note_stored(rows: dict[str, Layer], plan: Plan) -> None:
    """Note the results of each layer's forward pass that launches of the backward pass read from memory."""
    makers: dict[Value, Instruction] = {}
    source: dict[Value, Value] = {}  # of views
    for launch in plan.launches:
        instructions = launch.group.instructions
        if any(instruction.line.backward for instruction in instructions):
            for value in (source.get(value, value) for value in launch.group.reads):
                if value in makers and not makers[value].line.backward:
                    _row(rows, makers[value].line.layer).stored[value] = None
        for instruction in instructions:
            if is_view(launch):
                viewed = next(iter(values_in(instruction)))
                source.update(dict.fromkeys(instruction.outputs, source.get(viewed, viewed)))
            else:
                makers.update(dict.fromkeys(instruction.outputs, instruction))


def _short(layer: str) -> str:
    """The path of a layer, or its class if it has no path."""
    return layer.partition(" ")[0] or f"code {OUTSIDE}"


def _plain(name: str) -> str:
    return "matmul" if name == PRODUCT_OF_EVENTS.name else name


def _brief(text: str) -> str:
    text = text.partition(": for operands of these sizes")[0]  # `detail="launches"` gives the reason
    return text.replace(" in the first operand", "").removeprefix("in the loop").lstrip(", ")
