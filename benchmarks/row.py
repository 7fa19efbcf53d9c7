"""A row of the benchmark: one workload with its shapes, weights and contestants.

A contestant is a function of the arrays of a row (inputs, weights: NumPy's) that gives a `Contestant`; its name is that
of a peer, with more behind a comma ("PyTorch, one thread"). All get the same arrays, and what they find is compared at
a smaller size before anything is measured: nobody computes less.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.checking import agree
from benchmarks.peers import one_thread, peer_of

Run = Callable[..., Any]
OURS = "snncell"


@dataclass(frozen=True)
class Contestant:
    """A contestant with its arrays.

    run: what is measured, to the end of the work; with `before`, it takes what that gives, which is not measured.
    reference: what snncell computes with this contestant's own equations, if they differ from the row's.
    found: what is compared, arrays of anybody's by name: "spikes", gradients, "losses"; by default what `run` gives.
    """

    run: Run
    found: Callable[[], dict[str, Any]] | None = None
    before: Run | None = None
    reference: Contestant | None = None

    def once(self) -> Any:
        """Run it, with its preparation."""
        return self.run() if self.before is None else self.run(self.before())

    def results(self) -> dict[str, Any]:
        return self.run() if self.found is None else self.found()


@dataclass(frozen=True)
class Row:
    """A workload.

    name: as `--rows` has it.
    title: as the table has it.
    sizes: of what is measured, a dataclass or a tuple; `checked`: of what is compared.
    given: a function of sizes that gives the arrays, the same for the same sizes.
    contestants: functions of these arrays.
    goal: the fastest peer's time in ours, if there is one.
    group: rows of one group stand in one table.
    remark: what a reader should know of it.
    """

    name: str
    title: str
    sizes: Any
    checked: Any
    given: Callable[[Any], tuple[Any, ...]]
    contestants: dict[str, Callable[..., Contestant]]
    goal: float | None = None
    group: str = "nets"
    remark: str = ""

    def made(self, sizes: Any, peers: list[str]) -> dict[str, Contestant]:
        """The available contestants for these sizes."""
        given = self.given(sizes)
        made = {name: make(*given) for name, make in self.contestants.items() if peer_of(name) in (OURS, *peers)}
        if "PyTorch" in made:
            several = made["PyTorch"]
            before = several.before and one_thread(several.before)
            made["PyTorch, one thread"] = Contestant(one_thread(several.run), None, before)
        return made

    def resized(self, changes: dict[str, Any]) -> Any:
        """A copy of the sizes with some changes."""
        return replace(self.sizes, **changes) if changes else self.sizes

    def compare(self, peers: list[str]) -> list[str]:
        """Raise an error if results differ from snncell's. Return notes on the distances."""
        made = {name: each for name, each in self.made(self.checked, peers).items() if "," not in name}
        ours = made.pop(OURS)
        mine, words = ours.results(), []
        for name, each in made.items():
            expected = mine if each.reference is None else each.reference.results()
            words.append(agree(f"{self.name}, {name}", expected, each.results()))
        return words
