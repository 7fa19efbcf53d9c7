"""Results in a JSON file, part by part: an interrupted run keeps its parts, and a later run adds or replaces some."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.measure import Timing

ALIKE = ("date", "processor", "versions", "threads")  # facts that results of one run share
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
    def read(found: dict[str, Any]) -> Result:
        timings = [Timing(**each) for each in found["timings"]]
        points = {float(x): [Timing(**each) for each in one] for x, one in found["points"].items()}
        return Result(found["about"], timings, found["notes"], points, found["text"])

    def like(self, about: dict[str, str]) -> bool:
        """True if a run with these facts measured it."""
        return all(self.about.get(name) == about.get(name) for name in ALIKE)


class Results:
    """All results by kind ("rows", "sweeps", "figures", "pages") and name, in a file or in memory only."""

    def __init__(self, file: Path | None) -> None:
        self.file = file
        self.kinds: dict[str, dict[str, Result]] = {}
        if file and file.exists():
            for kind, each in json.loads(file.read_text(encoding="utf-8")).items():
                self.kinds[kind] = {name: Result.read(found) for name, found in each.items()}

    def of(self, kind: str) -> dict[str, Result]:
        return self.kinds.get(kind, {})

    def put(self, kind: str, name: str, result: Result) -> None:
        """Keep a result, and write the file, which is whole at any time."""
        self.kinds.setdefault(kind, {})[name] = result
        if self.file:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            new = self.file.with_suffix(".new")
            found = {kind: {name: asdict(each) for name, each in own.items()} for kind, own in self.kinds.items()}
            new.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
            new.replace(self.file)


def differences(results: dict[str, Result], about: dict[str, str]) -> str:
    """Name the results of other runs, with the facts in which these runs differ; empty if there are none."""
    groups: dict[str, list[str]] = {}
    for name, each in results.items():
        if facts := [str(each.about.get(key)) for key in ALIKE if each.about.get(key) != about.get(key)]:
            groups.setdefault("; ".join(facts), []).append(name)
    return "\n".join(f"- from another run ({facts}): {', '.join(names)}" for facts, names in groups.items())
