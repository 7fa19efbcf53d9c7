"""Results in a JSON file, part by part, so that an interrupted run keeps them and a later run can replace some."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.measure import Timing

SHARED_FACTS = ("date", "processor", "versions", "threads")  # equal for all results of a run
Points = dict[float, list[Timing]]


@dataclass
class Result:
    """A row (timings, notes), a sweep (points), a figure (Markdown) or a page (nothing), with the facts of its run."""

    about: dict[str, str]
    timings: list[Timing] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    points: Points = field(default_factory=dict)
    text: str = ""

    @staticmethod
    def from_json(fields: dict[str, Any]) -> Result:
        timings = [Timing(**each) for each in fields["timings"]]
        points = {float(x): [Timing(**each) for each in one] for x, one in fields["points"].items()}
        return Result(fields["about"], timings, fields["notes"], points, fields["text"])

    def matches(self, about: dict[str, str]) -> bool:
        """Return True if a run with these facts measured it."""
        return all(self.about.get(name) == about.get(name) for name in SHARED_FACTS)


class Results:
    """All results by kind ("rows", "sweeps", "figures", "pages") and name, in a file or in memory only."""

    def __init__(self, file: Path | None) -> None:
        self.file = file
        self.kinds: dict[str, dict[str, Result]] = {}
        if file and file.exists():
            for kind, each in json.loads(file.read_text(encoding="utf-8")).items():
                self.kinds[kind] = {name: Result.from_json(fields) for name, fields in each.items()}

    def get(self, kind: str) -> dict[str, Result]:
        return self.kinds.get(kind, {})

    def put(self, kind: str, name: str, result: Result) -> None:
        """Store a result, and replace the file in one step, so that it is complete at any time."""
        self.kinds.setdefault(kind, {})[name] = result
        if self.file:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            new = self.file.with_suffix(".new")
            fields = {kind: {name: asdict(each) for name, each in own.items()} for kind, own in self.kinds.items()}
            new.write_text(json.dumps(fields, indent=1) + "\n", encoding="utf-8")
            new.replace(self.file)


def differences(results: dict[str, Result], about: dict[str, str]) -> str:
    """Return lines that name the results of other runs with the differing facts, or an empty text without such."""
    groups: dict[str, list[str]] = {}
    for name, each in results.items():
        if facts := [str(each.about.get(key)) for key in SHARED_FACTS if each.about.get(key) != about.get(key)]:
            groups.setdefault("; ".join(facts), []).append(name)
    return "\n".join(f"- from another run ({facts}): {', '.join(names)}" for facts, names in groups.items())
