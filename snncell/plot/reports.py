"""Network report: examine a net on a batch, and write findings and figures to an HTML or PDF page."""

from __future__ import annotations

import base64
import io
import math
import os
import textwrap
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from html import escape
from pathlib import Path
from typing import Any, overload

import numpy as np

from snncell.base.arguments.shown import titled_table
from snncell.cell.cell import Cell
from snncell.errors import ArgumentError
from snncell.nn.optim.optimizer import Optimizer
from snncell.plot.pictures import Picture, Section, sections
from snncell.report.activity import SATURATED_RATE, share_staying_on
from snncell.report.facts import PASSES_NOTHING, Facts, LayerFacts
from snncell.report.findings import SEVERITIES, Finding, count_noun, format_number, format_percent
from snncell.report.probe import examine
from snncell.report.rules import diagnose

ENDINGS = (".html", ".htm", ".pdf")
MARKS = {"alarm": "■", "warning": "▲", "note": "○"}  # distinguishable without colour
NONE = "-"

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #222; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin: 0 0 .2rem; } h2 { font-size: 1.15rem; margin: 2.2rem 0 .4rem;
border-bottom: 1px solid #ccc; } p { margin: .3rem 0 .8rem; }
ul.findings { list-style: none; padding: 0; } ul.findings li { border-left: .3rem solid #bbb; padding: .1rem .8rem;
margin: .6rem 0; break-inside: avoid; } ul.findings li.alarm { border-color: #000; background: #f3f3f3; }
ul.findings li.warning { border-color: #777; } .mend { color: #555; } .mark { display: inline-block; width: 1.2em; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; font-size: .9rem; } th, td { padding: .2rem .7rem;
text-align: right; border-bottom: 1px solid #ddd; } th.word, td.word { text-align: left; }
thead th { border-bottom: 2px solid #888; vertical-align: bottom; } figure { display: inline-block; vertical-align: top;
margin: .4rem 1.2rem 1rem 0; width: 29rem; max-width: 100%; break-inside: avoid; } figure img { width: 100%; }
figcaption { font-size: .85rem; color: #444; } code { font-size: .92em; } h2, h2 + p { break-after: avoid; }
@media print { body { margin: 0; max-width: none; font-size: 10pt; } figure { width: 46%; margin-right: 2%; }
th, td { padding: .15rem .4rem; } }
"""


class Report(Sequence[Finding]):
    """The findings of a report as a sequence, most severe first. `print` shows them as text.

    Attributes:
        path: the written page.
        title: the title of the page.
        facts: the measurements from which the findings were made, as arrays.
        sections: the sections of the page; each has a `title`, a `text`, and `pictures` with `caption` and `figure`.
    """

    def __init__(
        self, findings: Sequence[Finding], facts: Facts, sections: Sequence[Section], title: str, path: Path
    ) -> None:
        self._findings = tuple(findings)
        self.facts, self.sections, self.title, self.path = facts, tuple(sections), title, path

    @overload
    def __getitem__(self, index: int) -> Finding: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Finding]: ...

    def __getitem__(self, index: int | slice) -> Finding | Sequence[Finding]:
        return self._findings[index]

    def __len__(self) -> int:
        return len(self._findings)

    def of(self, kind: str) -> tuple[Finding, ...]:
        """The findings of one kind; see `Finding` for all kinds."""
        return tuple(finding for finding in self if finding.kind == kind)

    def __str__(self) -> str:
        head = f"{self.title}: {_about(self.facts)}\n{_summary(self)}"
        return "\n".join([head, *(f"- {finding}" for finding in self), f"The page is {self.path}."])

    def __repr__(self) -> str:
        return f"Report({_summary(self)!r}, path={str(self.path)!r})"

    def _repr_html_(self) -> str:
        """For notebooks: a table of the findings."""
        rows = [(finding.severity, finding.layer, finding.text, finding.mend) for finding in self]
        title = f"{self.title}: {_about(self.facts)}\n{_summary(self)} The page is {self.path}."
        return titled_table(title, ("severity", "layer", "finding", "fix"), rows)


def report(
    net: Cell,
    batch: Any,
    loss: Callable[..., Any] | None = None,
    optimiser: Optimizer | None = None,
    log: Any = None,
    path: str | os.PathLike[str] = "report.html",
    title: str | None = None,
) -> Report:
    """Diagnose a network on one batch, and write a page that explains in words its activity and its problems.

    You can use it when a network does not learn. For example, it finds silent and saturated neurons, narrow surrogates,
    exploding, vanishing and missing gradients, updates of the wrong size, and the origin of a NaN. `Finding` lists all
    kinds. The page is one file, with the findings first, then tables and figures.

    The net is called on the batch, in its current mode (training or evaluation), and each `Stateful` starts from rest.
    With a loss, the net is also called on each half of the batch, to find a loss that is a sum over the samples instead
    of their mean. Afterwards, even after an error, Parameters, kept states, optimiser and random numbers are restored.

    Args:
        net: the network. Its neurons must run over time when it is called.
        batch: x, or a tuple (x, y) or (x, ..., y), arrays or Tensors, as `train.fit` passes them to the net. You should
            use a few dozen samples, because a neuron that is silent in two samples need not be dead.
        loss: a function of the net's output and y, if there is a y, that returns a number; needed for gradients.
        optimiser: an optimiser of the net's Parameters. One update is tried to measure its size.
        log: the result of `train.fit`, its history, or the path of its log.
        path, title: the file of the page, .html or .pdf, and its title.
    Raises: ArgumentError if the net has no neurons or does not run them; ShapeError, DTypeError, CallError for a batch
        that does not fit the net or the loss, for example x alone if the loss needs y.
    Example:
        >>> import tempfile, pathlib
        >>> net = nn.SequentialCell(nn.Dense(4, 8), nn.MultiStep(nn.LIFNode(v_threshold=50.0)))
        >>> found = snncell.plot.report(net, ops.ones((10, 2, 4)), path=pathlib.Path(tempfile.mkdtemp(), "r.html"))
        >>> found[0].kind, found[0].layer, found[0].severity
        ('dead', '1', 'alarm')
    """
    place = _path_to_write(path)
    facts, monitor = examine(net, batch, loss, optimiser, log)
    findings = diagnose(facts)
    name, shown = title or f"Report on {type(net).__name__}", sections(facts, monitor)
    found = Report(findings, facts, shown, name, place)
    (_write_pdf if place.suffix.lower() == ".pdf" else _write_html)(found)
    return found


def _path_to_write(path: Any) -> Path:
    place = Path(path)
    if place.suffix.lower() not in ENDINGS:
        raise ArgumentError(f"report: path must be a file named *.html or *.pdf, not {place.name!r}.")
    if not place.parent.is_dir():
        raise ArgumentError(
            f"report: the folder {str(place.parent)!r} for {place.name!r} does not exist. Create it first."
        )
    if place.is_dir():
        raise ArgumentError(f"report: {str(place)!r} is a folder. Pass the path of a file in it.")
    return place


# --- Words and numbers ------------------------------------------------------------------------------------------------


def _summary(findings: Sequence[Finding]) -> str:
    counts = Counter(finding.severity for finding in findings)
    if not counts["alarm"] and not counts["warning"]:
        notes = f"; {count_noun(counts['note'], 'note')}" if counts["note"] else ""
        return f"Nothing alarming was found{notes}."
    return f"{', '.join(count_noun(counts[severity], severity) for severity in SEVERITIES if counts[severity])}."


def _about(facts: Facts) -> str:
    """The sizes of the network and of the batch, in a sentence."""
    shapes = [layer.shape for layer in facts.layers if len(layer.shape) > 1]
    words = [f"{count_noun(len(facts.layers), 'layer')} of neurons"]
    words += [f"{sum(weight.value.size for weight in facts.weights)} weights"] if facts.weights else []
    words += [f"{count_noun(shapes[0][1], 'sample')} of {count_noun(shapes[0][0], 'step')}"] if shapes else []
    words += [f"loss {format_number(facts.loss)}"] if facts.loss is not None else []
    return ", ".join(words) + ("" if facts.differentiated else "; no gradients, because no loss was given") + "."


Table = tuple[list[str], list[list[str]]]


def _table_of_layers(facts: Facts) -> Table:
    head = ["layer", "neuron", "size", "spikes / step", "never fired", "saturated", "late"]
    head += ["thresholds", "surrogate flat", "gradient norm"]
    return head, [_row_of(layer) for layer in facts.layers]


def _row_of(layer: LayerFacts) -> list[str]:
    rates, slopes, norms, late = layer.rates, layer.relative_slopes, layer.norms, share_staying_on(layer)
    fired = [NONE] * 3
    if rates is not None:
        never, nearly_always = (format_percent(float(x.mean())) for x in (rates == 0, rates > SATURATED_RATE))
        fired = [format_number(float(rates.mean())), never, nearly_always]
    return [
        *(layer.name, layer.neuron, " x ".join(map(str, layer.shape[2:])) or "1", *fired),
        NONE if late is None else format_percent(late.share),
        NONE if layer.heights is None or not layer.heights.size else format_number(float(np.abs(layer.heights).max())),
        NONE if slopes is None else format_percent(float((slopes < PASSES_NOTHING).mean())),
        NONE if norms is None else format_number(float(np.sqrt((norms**2).sum()))),
    ]


def _table_of_costs(facts: Facts) -> Table:
    rows = [
        [name, f"{cost.macs:,}", f"{cost.synops:,}", NONE if math.isnan(cost.density) else format_percent(cost.density)]
        for name, cost in facts.costs.items()
    ]
    return ["layer", "MACs, dense", "SynOps", "inputs not 0"], rows


COLUMNS = (
    f"Surrogate flat: the share of steps at which its derivative is below {format_number(PASSES_NOTHING)} of its peak. "
    f"Saturated: neurons that fired at more than {format_percent(SATURATED_RATE)} of the steps of all samples. Late: "
    "the same for the last third of the steps, in the sample with the most such neurons. Thresholds: the largest "
    "distance of a potential from its initial value, before the reset, in units of the threshold. Gradient norm: the "
    "norm of the gradient of the loss with respect to the currents of all steps."
)
COSTS = "Operations of the whole batch over all steps: multiply-accumulates, and the number of them with nonzero input."


def _write_html(report: Report) -> None:
    facts = report.facts
    parts = [
        f"<h1>{escape(report.title)}</h1><p>{escape(_about(facts))}</p>",
        f"<h2>Findings</h2><p><strong>{escape(_summary(report))}</strong></p>",
        f'<ul class="findings">{"".join(map(_item, report))}</ul>' if len(report) else "",
        f"<h2>Layers</h2>{_table(_table_of_layers(facts))}<p>{escape(COLUMNS)}</p>",
        f"<h2>Operations</h2>{_table(_table_of_costs(facts))}<p>{escape(COSTS)}</p>" if facts.costs else "",
    ]
    for section in report.sections:
        pictures = "".join(map(_figure, section.pictures))
        parts.append(f"<h2>{escape(section.title)}</h2><p>{escape(section.text)}</p>\n{pictures}")
    head = f'<meta charset="utf-8"><title>{escape(report.title)}</title><style>{_STYLE}</style>'
    view = '<meta name="viewport" content="width=device-width, initial-scale=1">'
    body = "\n".join(part for part in parts if part)
    page = f'<!DOCTYPE html>\n<html lang="en"><head>{head}{view}</head>\n<body>\n{body}\n</body></html>\n'
    report.path.write_text(page, encoding="utf-8")


def _item(finding: Finding) -> str:
    place = f"<code>{escape(finding.layer)}</code>: " if finding.layer else ""
    mend = f' <span class="mend">{escape(finding.mend)}</span>' if finding.mend else ""
    kind = f"<strong>{finding.severity}, {escape(finding.kind)}</strong>"
    head = f'<span class="mark">{MARKS[finding.severity]}</span>{kind}'
    return f'<li class="{finding.severity}">{head}<br>{place}{escape(finding.text)}{mend}</li>\n'


def _table(table: Table) -> str:
    head, rows = table
    words = {number for number, name in enumerate(head) if name in ("layer", "neuron")}
    kinds = [' class="word"' if n in words else "" for n in range(len(head))]
    top = "".join(f"<th{kind}>{escape(name)}</th>" for kind, name in zip(kinds, head, strict=True))
    lines = ["".join(f"<td{kind}>{escape(cell)}</td>" for kind, cell in zip(kinds, row, strict=True)) for row in rows]
    body = "".join(f"<tr>{line}</tr>\n" for line in lines)
    return f'<div class="scroll"><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'


def _figure(picture: Picture) -> str:
    caption, image = escape(picture.caption), ""
    if picture.figure is not None:
        data = base64.b64encode(png(picture.figure)).decode("ascii")
        image = f'<img alt="{caption}" src="data:image/png;base64,{data}">'
    return f"<figure>{image}<figcaption>{caption}</figcaption></figure>\n"


def png(figure: Any) -> bytes:
    """Render a figure as PNG."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    stream = io.BytesIO()
    canvas: Any = FigureCanvasAgg(figure)
    canvas.print_png(stream)  # the same bytes as `savefig`, which draws each figure twice
    return stream.getvalue()


_PAPER = (8.27, 11.69)  # inches: A4
_ROWS = 3  # rows of two figures per page
_LETTERS, _LINES = 108, 72  # letters per line and lines per page of text


def _write_pdf(report: Report) -> None:
    from matplotlib.backends.backend_pdf import PdfPages
    from matplotlib.figure import Figure

    with PdfPages(report.path, metadata={"Title": report.title}) as pdf:
        lines = _lines_of(report)
        look: dict[str, Any] = {"va": "top", "family": "monospace", "fontsize": 7.5, "linespacing": 1.3}
        for first in range(0, len(lines), _LINES):
            page = Figure(figsize=_PAPER)
            page.text(0.07, 0.95, "\n".join(lines[first : first + _LINES]), parse_math=False, **look)
            pdf.savefig(page)
        pictures = [(s.title, picture) for s in report.sections for picture in s.pictures if picture.figure is not None]
        for first in range(0, len(pictures), 2 * _ROWS):
            pdf.savefig(_page_of_pictures(pictures[first : first + 2 * _ROWS]))


def _lines_of(report: Report) -> list[str]:
    wrap = partial(textwrap.wrap, width=_LETTERS)
    lines = [report.title, *wrap(_about(report.facts)), "", _summary(report), ""]
    for finding in report:
        lines += [*wrap(f"{MARKS[finding.severity]} {finding}", subsequent_indent="  "), ""]
    for table in (_table_of_layers(report.facts), _table_of_costs(report.facts)):
        lines += [*_columns(table), ""] if table[1] else []
    for section in report.sections:
        lines += wrap(f"{section.title}: {section.text}", subsequent_indent="  ")
    return lines


def _columns(table: Table) -> list[str]:
    """Format a table as lines; a wide table is cut into parts that each repeat the first column."""
    rows = [table[0], *table[1]]
    widths = [max(len(row[n]) for row in rows) for n in range(len(rows[0]))]
    parts = [[0]]
    for n in range(1, len(widths)):
        if len(parts[-1]) > 1 and sum(widths[m] + 2 for m in [*parts[-1], n]) > _LETTERS:
            parts.append([0])
        parts[-1].append(n)
    lines = [["  ".join(row[n].ljust(widths[n]) for n in part).rstrip() for row in rows] for part in parts]
    return [line for number, part in enumerate(lines) for line in ([""] if number else []) + part]


def _page_of_pictures(pictures: Sequence[tuple[str, Picture]]) -> Any:
    import matplotlib.image as mpl_image
    from matplotlib.figure import Figure

    page = Figure(figsize=_PAPER)
    heads = dict.fromkeys(title for title, _ in pictures)
    page.text(0.07, 0.965, ", ".join(heads), va="top", fontsize=11, parse_math=False)
    for place, (_, picture) in enumerate(pictures):
        row, column = divmod(place, 2)
        axes = page.add_axes((0.07 + 0.44 * column, 0.95 - (row + 1) * 0.3 + 0.035, 0.42, 0.255))
        axes.imshow(mpl_image.imread(io.BytesIO(png(picture.figure))), interpolation="none")
        axes.set_anchor("N")
        axes.set_axis_off()
        caption = textwrap.fill(picture.caption, 62)
        axes.text(0.0, -0.02, caption, transform=axes.transAxes, va="top", fontsize=7, parse_math=False)
    return page
