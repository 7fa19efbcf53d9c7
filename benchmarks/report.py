"""Measure the accuracy of `plot.report` on random healthy and faulty networks.

    python benchmarks/report.py [--part "held out"] [--healthy 50] [--sick 2] [--markdown FILE]

A healthy network is one whose loss falls when it is trained, and is lower than with other samples' labels; a sick one
has one of the sicknesses of `tests/support/sick_nets.py` planted in it, from mild to strong. Limits of the report were
chosen on the tuning seeds and on the examples; what counts are those held out. A sickness is named if a warning or
an alarm is of one of its kinds, or the report refuses the batch with an error that names it. Any warning or alarm about
a healthy network is a false one.

Everything runs eagerly, step by step, so that nothing is compiled for networks that run once.
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
from timing import tell

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))  # the networks are the tests' own

from drawn_nets import healthy
from sick_nets import REFUSED, SICKNESSES, sick

import snncell
from snncell import testing
from snncell.errors import SnncellError
from snncell.report.probe import examine
from snncell.report.rules import diagnose

# The first seed of each part. The earlier held-out seeds were known when the limits were last chosen.
PARTS = {"held out": 40_000, "held out before": 20_000, "tuning": 0}
TITLES = {"held out": "## Held-out seeds", "held out before": "## Earlier held-out seeds", "tuning": "## Tuning seeds"}


@dataclass
class Seen:
    """The report of one network: the highest severity of each kind, or the refusal of the batch."""

    about: str
    severities: dict[str, str] = field(default_factory=dict)
    refused: str = ""

    def more_than_notes(self) -> set[str]:
        """Kinds of warnings and alarms."""
        return {kind for kind, severity in self.severities.items() if severity != "note"}

    def alarms(self) -> set[str]:
        """Kinds of alarms."""
        return {kind for kind, severity in self.severities.items() if severity == "alarm"}

    def names(self, kinds: frozenset[str]) -> bool:
        """True if the report names one of these kinds."""
        return bool(self.more_than_notes() & kinds) or (REFUSED in kinds and REFUSED in self.refused)


def reported(case: Any) -> Seen:
    """The findings of a report."""
    try:
        findings = diagnose(examine(*case.given)[0])
    except SnncellError as error:
        return Seen(case.about, refused=str(error))
    seen: dict[str, str] = {}
    for finding in findings:  # the worst first
        seen.setdefault(finding.kind, finding.severity)
    return Seen(case.about, seen)


def run(part: str, well: int, ill: int) -> tuple[list[Seen], dict[str, list[Seen]]]:
    """Report on `healthy` networks without a fault, and on `sick` networks for each fault."""
    first = PARTS[part]
    with testing.unfused():
        fine = []
        for seed in range(first, first + well):
            fine.append(reported(healthy(seed)))
            _say(f"{part} healthy {seed}", fine[-1])
        planted = defaultdict(list)
        for name in SICKNESSES:
            for seed in range(first, first + ill):
                planted[name].append(reported(sick(name, seed)[0]))
                _say(f"{part} {name} {seed}", planted[name][-1])
    return fine, planted


def _say(what: str, seen: Seen) -> None:
    found = [f"{severity} {kind}" for kind, severity in seen.severities.items() if severity != "note"]
    print(f"{what}: {seen.about}: {', '.join(found) or seen.refused or 'nothing'}", file=sys.stderr, flush=True)


# --- tables -----------------------------------------------------------------------------------------------------------


def tables(part: str, fine: list[Seen], planted: dict[str, list[Seen]]) -> list[str]:
    """Markdown lines: totals, hits for each fault, hits and false alarms for each kind."""
    ill = [(name, seen) for name, all_seen in planted.items() for seen in all_seen]
    named = sum(seen.names(SICKNESSES[name].kinds) for name, seen in ill)
    anything = sum(bool(seen.more_than_notes() or seen.refused) for _, seen in ill)
    of_ill, of_fine = max(len(ill), 1), max(len(fine), 1)
    warned, alarmed = (sum(bool(found(seen)) for seen in fine) for found in (Seen.more_than_notes, Seen.alarms))
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
    for name, all_seen in planted.items():
        kinds = SICKNESSES[name].kinds
        hits = sum(seen.names(kinds) for seen in all_seen)
        loud = sum(bool(seen.alarms() & kinds) or bool(seen.refused) for seen in all_seen)
        quiet = sum(not seen.more_than_notes() and not seen.refused for seen in all_seen)
        lines.append(f"| {name} | {len(all_seen)} | {hits} | {loud} | {quiet} | {_said(kinds)} |")
    return [*lines, "", *_by_kind(fine, ill), ""]


def _said(kinds: frozenset[str]) -> str:
    """The kinds as text."""
    return ", ".join([*sorted(kinds - {REFUSED}), *(["refused by an error"] if REFUSED in kinds else [])])


def _by_kind(fine: list[Seen], ill: list[tuple[str, Seen]]) -> list[str]:
    """Count each kind: as the expected finding, as another finding, and for healthy networks."""
    expected, beside, false, alarms = Counter[str](), Counter[str](), Counter[str](), Counter[str]()
    for name, seen in ill:
        for kind in seen.more_than_notes():
            (expected if kind in SICKNESSES[name].kinds else beside)[kind] += 1
    for seen in fine:
        false.update(seen.more_than_notes())
        alarms.update(seen.alarms())
    lines = ["| kind | names the planted fault | other findings | false, for healthy networks | of these, alarms |"]
    lines.append("| --- | --- | --- | --- | --- |")
    for kind in snncell.report.findings.KINDS:
        if any(counts[kind] for counts in (expected, beside, false)):
            lines.append(f"| {kind} | {expected[kind]} | {beside[kind]} | {false[kind]} | {alarms[kind]} |")
    return lines


def main() -> None:
    """Report on all networks, and print or write the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--healthy", type=int, default=50, help="networks of a part")
    parser.add_argument("--sick", type=int, default=2, help="networks of a part with each sickness")
    parser.add_argument("--part", choices=[*PARTS, "all"], default="held out")
    parser.add_argument("--markdown", type=Path)
    options = parser.parse_args()
    lines = ["# Accuracy of `plot.report`", ""]
    asked = f"--part '{options.part}' --healthy {options.healthy} --sick {options.sick}"
    lines.append(f"- command: python benchmarks/report.py {asked} --markdown FILE")
    lines.append(f"- Python {platform.python_version()}, snncell {snncell.__version__}, numpy {np.__version__}")
    lines.append(
        "- the limits of the report were chosen on the tuning seeds and on the examples; the held-out seeds were drawn"
    )
    lines += ["  once, after that", ""]
    for part in PARTS if options.part == "all" else [options.part]:
        lines += tables(part, *run(part, options.healthy, options.sick))
    tell(lines, options.markdown)


if __name__ == "__main__":
    main()
