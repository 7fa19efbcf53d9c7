"""The table of `explain`: a compiled function layer by layer, as the trace has noted (`base/frames.py`).

A launch belongs to the layer with most of its instructions; for its other layers, the report names this launch.
"""

from __future__ import annotations

import functools
import textwrap
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from snncell.base.arguments.shown import Markup, element, join_parts, table
from snncell.compiler.explain import Explanation, count, in_bytes, is_view, totals, why_no_loop
from snncell.compiler.ir.loop import LoopOperation
from snncell.compiler.ir.product import EVENTS, PRODUCT_OF_EVENTS
from snncell.compiler.ir.program import bytes_of, values_in
from snncell.compiler.runtime.launches import LoopLaunch, PlanEntry, bytes_moved
from snncell.compiler.runtime.plan import Plan
from snncell.kernels.space import HOST, Space
from snncell.tape.state import Value
from snncell.tape.tracing import Instruction

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
        """All of it in one line."""
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
        """The cells of the row by their titles; those without content are left out."""
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
            _add(rows, launch, plan.space)
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


# --- rows -------------------------------------------------------------------------------------------------------------


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


def _add(rows: dict[str, Layer], launch: PlanEntry, space: Space) -> None:
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
            summary = instruction.op.summary(instruction.attrs["steps"], space)
            own.phrases.append(f"{'not fused' if summary.slow else 'fused'}: {summary.form}")
            if summary.slow:
                own.slow.append(f"the time steps run one by one, because {summary.slow}")
            for title, placed in summary.places:
                _note_elsewhere(rows, row.name, title, placed)
        elif instruction.op is not EVENTS:  # the products of these events say enough
            own.phrases.append(_describe_call(instruction, space))
    row.moved += bytes_moved(launch)


def _note_elsewhere(rows: dict[str, Layer], layer: str, title: str, instructions: Sequence[Instruction]) -> None:
    """Note the instructions of other layers in a launch of `layer`; the title is their place in its loop over time."""
    where = f"{'fused into' if not title or title.startswith('in the loop') else 'in the launch of'} {_short(layer)}"
    place = "" if title in ("", "in the loop") else f" ({_brief(title)})"
    for instruction in instructions:
        if instruction.line.layer != layer:
            names = _direction_of(rows, instruction).elsewhere.setdefault(where, [])
            names.append(f"{_plain(instruction.op.name)}{place}")


def _describe_call(instruction: Instruction, space: Space) -> str:
    op = instruction.op
    lines = list(op.describe(instruction.attrs, space))
    if space is HOST:
        lines += op.choice(instruction.inputs, instruction.attrs)
    return _brief(f"{_plain(op.name)} {'; '.join(lines)}" if lines else f"separate call: {why_no_loop(instruction)}")


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
