"""A row of the benchmark: one workload with its shapes, weights and contestants.

A contestant is a function of the arrays of a row (inputs, weights: NumPy's) that gives a `Contestant`; its name is that
of a peer, with more behind a comma ("PyTorch, one thread"). All get the same arrays, and what they find is compared at
a smaller size before anything is measured: nobody computes less. Each row with a contestant of PyTorch also has the
compiled ones of `peers.COMPILED`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.checking import agree
from benchmarks.peers import COMPILED, compiling, forget_compiled, one_thread, peer_of

Run = Callable[..., Any]
OURS, PYTORCH, ONE_THREAD = "snncell", "PyTorch", "PyTorch, one thread"
UNROLLED = 128  # steps; `torch.compile` unrolls a loop, and needs a minute for 64 steps and many for more than this


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

    def on_one_thread(self) -> Contestant:
        """The same contestant of PyTorch with one thread."""
        return Contestant(one_thread(self.run), None, self.before and one_thread(self.before))

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

    @property
    def steps(self) -> int:
        """The number of time steps; 0 without time steps."""
        if self.group == "layers":
            return 0
        return int(self.sizes[0] if isinstance(self.sizes, tuple) else getattr(self.sizes, "steps", 0))

    def compiled(self, peers: list[str]) -> list[str]:
        """The compiled contestants: the neuron's loop and the network, or in rows of many steps only one time step.

        A neuron alone is the whole network, and a layer has no time steps.
        """
        if PYTORCH not in self.contestants or PYTORCH not in peers:
            return []
        parts = ["time step"] if self.steps > UNROLLED else ["neuron", "network"]
        if self.group in ("neurons", "layers"):
            parts = [part for part in parts if part != "neuron"]
        return [name for name, part in COMPILED.items() if part in parts]

    def make(self, name: str, given: tuple[Any, ...]) -> Contestant:
        """A contestant for the arrays of the row."""
        if name == ONE_THREAD:
            return self.contestants[PYTORCH](*given).on_one_thread()
        if name not in COMPILED:
            return self.contestants[name](*given)
        with compiling(COMPILED[name]):
            return self.contestants[PYTORCH](*given)

    def made(self, sizes: Any, peers: list[str], compiled: Iterable[str] = ()) -> dict[str, Contestant]:
        """The available contestants for these sizes, with some of the compiled ones."""
        given = self.given(sizes)
        names = [name for name in self.contestants if peer_of(name) in (OURS, *peers)]
        if compiled := list(compiled):
            forget_compiled()
        made = {name: self.make(name, given) for name in (*names, *compiled)}
        if PYTORCH in made:
            made[ONE_THREAD] = made[PYTORCH].on_one_thread()
        return made

    def resized(self, changes: dict[str, Any]) -> Any:
        """A copy of the sizes with some changes."""
        return replace(self.sizes, **changes) if changes else self.sizes

    def compare(self, peers: list[str], compiled: Iterable[str] = ()) -> list[str]:
        """Raise an error if results differ from snncell's. Return notes on the distances."""
        made = self.made(self.checked, peers, compiled)
        made.pop(ONE_THREAD, None)
        ours = made.pop(OURS)
        mine, words = ours.results(), []
        for name, each in made.items():
            expected = mine if each.reference is None else each.reference.results()
            words.append(agree(f"{self.name}, {name}", expected, each.results()))
        return words
