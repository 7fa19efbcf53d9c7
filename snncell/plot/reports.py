"""report: what a net does over a batch, what is wrong with it, in words and pictures on one page."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, overload

from snncell.cell.cell import Cell
from snncell.errors import ArgumentError
from snncell.nn.optim.optimizer import Optimizer
from snncell.plot.page import about, summary, write_html, write_pdf
from snncell.plot.pictures import Section, sections
from snncell.report.diagnose import diagnose
from snncell.report.facts import Facts
from snncell.report.findings import Finding
from snncell.report.probe import examine

ENDINGS = (".html", ".htm", ".pdf")


class Report(Sequence[Finding]):
    """The findings of a report, the worst first, as a sequence; `print` shows them as text.

    Attributes:
        path: the page that was written.
        title: of the page.
        facts: what the findings were made from, as arrays.
        sections: the parts of the page; each has a `title`, a `text`, and `pictures` with `caption` and `figure`.
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

    def __iter__(self) -> Iterator[Finding]:
        return iter(self._findings)

    def of(self, kind: str) -> tuple[Finding, ...]:
        """The findings of one kind, of those that `Finding` lists."""
        return tuple(finding for finding in self if finding.kind == kind)

    def __str__(self) -> str:
        head = f"{self.title}: {about(self.facts)}\n{summary(self)}"
        return "\n".join([head, *(f"- {finding}" for finding in self), f"The page is {self.path}."])

    def __repr__(self) -> str:
        return f"Report({summary(self)!r}, path={str(self.path)!r})"


def report(
    net: Cell,
    batch: Any,
    loss: Callable[..., Any] | None = None,
    optimiser: Optimizer | None = None,
    log: Any = None,
    path: str | os.PathLike[str] = "report.html",
    title: str | None = None,
) -> Report:
    """Look at a net over one batch, and write a page that says in plain words what it does and what is wrong with it.

    `Finding` lists what it finds: silent and saturated neurons, surrogates too narrow, gradients that explode, vanish
    or are missing, a loss or updates of the wrong size, where a NaN begins. Below stand tables and pictures, all within
    the one file.

    The net is called on the batch, in training or in prediction as it is, and on each half of it if there is a loss;
    each `Stateful` begins at rest. Afterwards Parameters, kept states, the optimiser and the random numbers are what
    they were, to the bit, also after an error.

    Args:
        net: the network; its neurons run over time when it is called.
        batch: x, or a tuple (x, y) or (x, ..., y), arrays or Tensors as `train.fit` gives them to the net; of a few
            dozen samples, since a neuron that is silent in two need not be dead.
        loss: of what the net gives and y (without y, of what it gives alone), a number; without it gradients are
            left out.
        optimiser: one of the net's Parameters; one update is tried to see how large it is.
        log: what `train.fit` gave back, its history, or the path of its log.
        path, title: where the page is written, .html or .pdf, and what stands above it.

    Raises:
        ArgumentError: for a net without neurons, or whose neurons do not run; an empty batch; an optimiser of other
            Parameters; a log that is none; a path that cannot be written.
        ShapeError, DTypeError, CallError: for a batch that does not fit the net or the loss, such as x alone where the
            loss needs y.

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
    name = title or f"Report on {type(net).__name__}"
    write = write_pdf if place.suffix.lower() == ".pdf" else write_html
    shown = sections(facts, monitor)
    write(place, name, findings, facts, shown)
    return Report(findings, facts, shown, name, place)


def _path_to_write(path: Any) -> Path:
    """The path, if its ending is known and its folder is there."""
    if not isinstance(path, (str, os.PathLike)):
        raise ArgumentError(f"report: path is a file named *.html or *.pdf, not {path!r:.60}.")
    place = Path(path)
    if place.suffix.lower() not in ENDINGS:
        raise ArgumentError(f"report: path is a file named *.html or *.pdf, not {place.name!r}.")
    if not place.parent.is_dir():
        raise ArgumentError(
            f"report: there is no folder {str(place.parent)!r} to write {place.name!r} to; make it first."
        )
    if place.is_dir():
        raise ArgumentError(f"report: {str(place)!r} is a folder; name a file in it.")
    return place
