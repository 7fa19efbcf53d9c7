"""Accuracy of `plot.report` on random healthy and faulty networks.

    python benchmarks/report.py [--part "held out"] [--healthy 50] [--sick 2] [--markdown FILE]

Training reduces the loss of a healthy network below its loss with the labels of other samples. A faulty network has one
of the faults of `tests/support/sick_nets.py`, mild or strong. The limits of the report were chosen on the tuning seeds
and on the examples, so only the held-out seeds measure accuracy.

The report names a fault if it has a warning or an alarm of one of the fault's kinds, or refuses the batch with an error
that names the fault. Any warning or alarm about a healthy network is false.

Networks run eagerly, because each runs only once, and compilation would take longer.
"""

from __future__ import annotations

import argparse
import platform
import sys
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from timing import publish

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))  # the networks are the tests' own

from drawn_nets import healthy
from sick_nets import REFUSED, SICKNESSES, sick

import snncell
from snncell import testing
from snncell.errors import SnncellError
from snncell.report.probe import examine
from snncell.report.rules import diagnose

# The first seed of each part. Earlier held-out seeds had been used before the limits were last chosen.
PARTS = {"held out": 40_000, "held out before": 20_000, "tuning": 0}
TITLES = {"held out": "## Held-out seeds", "held out before": "## Earlier held-out seeds", "tuning": "## Tuning seeds"}


@dataclass
class Summary:
    """The report on one network: the highest severity of each kind, or the error that refuses the batch."""

    about: str
    severities: dict[str, str] = field(default_factory=dict)
    refused: str = ""

    def warnings(self) -> set[str]:
        """Return the kinds of warnings and alarms."""
        return {kind for kind, severity in self.severities.items() if severity != "note"}

    def alarms(self) -> set[str]:
        """Return the kinds of alarms."""
        return {kind for kind, severity in self.severities.items() if severity == "alarm"}

    def names(self, kinds: frozenset[str]) -> bool:
        """Return True if the report names one of these kinds."""
        return bool(self.warnings() & kinds) or (REFUSED in kinds and REFUSED in self.refused)


def summarise(case: Any) -> Summary:
    """Run the report on a network."""
    try:
        findings = diagnose(examine(*case.given)[0])
    except SnncellError as error:
        return Summary(case.about, refused=str(error))
    severities: dict[str, str] = {}
    for finding in findings:  # the worst first
        severities.setdefault(finding.kind, finding.severity)
    return Summary(case.about, severities)


def run(part: str, healthy_count: int, count: int) -> tuple[list[Summary], dict[str, list[Summary]]]:
    """Run the report on `healthy_count` healthy networks, and on `count` networks with each fault."""
    first = PARTS[part]
    with testing.unfused():
        fine = []
        for seed in range(first, first + healthy_count):
            fine.append(summarise(healthy(seed)))
            _print(f"{part} healthy {seed}", fine[-1])
        faulty = defaultdict(list)
        for name in SICKNESSES:
            for seed in range(first, first + count):
                faulty[name].append(summarise(sick(name, seed)[0]))
                _print(f"{part} {name} {seed}", faulty[name][-1])
    return fine, faulty


def _print(name: str, summary: Summary) -> None:
    findings = [f"{severity} {kind}" for kind, severity in summary.severities.items() if severity != "note"]
    text = ", ".join(findings) or summary.refused or "nothing"
    print(f"{name}: {summary.about}: {text}", file=sys.stderr, flush=True)


# --- tables -----------------------------------------------------------------------------------------------------------


def tables(part: str, fine: list[Summary], faulty: dict[str, list[Summary]]) -> list[str]:
    """Return Markdown lines: totals, hits for each fault, hits and false alarms for each kind."""
    ill = [(name, summary) for name, summaries in faulty.items() for summary in summaries]
    named = sum(summary.names(SICKNESSES[name].kinds) for name, summary in ill)
    anything = sum(bool(summary.warnings() or summary.refused) for _, summary in ill)
    of_ill, of_fine = max(len(ill), 1), max(len(fine), 1)
    warned, alarmed = (sum(bool(kinds(summary)) for summary in fine) for kinds in (Summary.warnings, Summary.alarms))
    lines = [
        TITLES[part],
        "",
        f"- of {len(ill)} faulty networks, the report named the fault of {named} ({named / of_ill:.0%}), and had a "
        f"finding for {anything} ({anything / of_ill:.0%})",
        f"- of {len(fine)} healthy networks, {warned} got a warning or an alarm ({warned / of_fine:.0%}), "
        f"{alarmed} an alarm ({alarmed / of_fine:.0%})",
        "",
        "| fault | networks | named | by an alarm | no finding | kinds that name it |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for name, summaries in faulty.items():
        kinds = SICKNESSES[name].kinds
        hits = sum(summary.names(kinds) for summary in summaries)
        alarms = sum(bool(summary.alarms() & kinds) or bool(summary.refused) for summary in summaries)
        nothing = sum(not summary.warnings() and not summary.refused for summary in summaries)
        lines.append(f"| {name} | {len(summaries)} | {hits} | {alarms} | {nothing} | {_join(kinds)} |")
    return [*lines, "", *_by_kind(fine, ill), ""]


def _join(kinds: frozenset[str]) -> str:
    return ", ".join([*sorted(kinds - {REFUSED}), *(["refused by an error"] if REFUSED in kinds else [])])


def _by_kind(fine: list[Summary], ill: list[tuple[str, Summary]]) -> list[str]:
    """Return a table that counts each kind as expected finding, as other finding, and for healthy networks."""
    expected, other, false, alarms = Counter[str](), Counter[str](), Counter[str](), Counter[str]()
    for name, summary in ill:
        for kind in summary.warnings():
            (expected if kind in SICKNESSES[name].kinds else other)[kind] += 1
    for summary in fine:
        false.update(summary.warnings())
        alarms.update(summary.alarms())
    lines = ["| kind | names the fault | other findings | false, for healthy networks | of these, alarms |"]
    lines.append("| --- | --- | --- | --- | --- |")
    for kind in snncell.report.findings.KINDS:
        if any(counts[kind] for counts in (expected, other, false)):
            lines.append(f"| {kind} | {expected[kind]} | {other[kind]} | {false[kind]} | {alarms[kind]} |")
    return lines


def main() -> None:
    """Run the report on all networks, print the tables, and write them to the file of `--markdown`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--healthy", type=int, default=50, help="networks of a part")
    parser.add_argument("--sick", type=int, default=2, help="networks of a part with each fault")
    parser.add_argument("--part", choices=[*PARTS, "all"], default="held out")
    parser.add_argument("--markdown", type=Path)
    options = parser.parse_args()
    lines = ["# Accuracy of `plot.report`", ""]
    arguments = f"--part '{options.part}' --healthy {options.healthy} --sick {options.sick}"
    lines.append(f"- command: python benchmarks/report.py {arguments} --markdown FILE")
    lines.append(f"- Python {platform.python_version()}, snncell {snncell.__version__}, numpy {np.__version__}")
    lines.append(
        "- the limits of the report were chosen on the tuning seeds and on the examples; the held-out seeds ran once,"
    )
    lines += ["  after that", ""]
    for part in PARTS if options.part == "all" else [options.part]:
        lines += tables(part, *run(part, options.healthy, options.sick))
    publish(lines, options.markdown)


if __name__ == "__main__":
    main()
