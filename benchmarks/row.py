"""A row of the benchmark: one workload with its shapes, weights and contestants.

A contestant is a function from the arrays of a row (inputs and weights, by NumPy) to a `Contestant`. Its name starts
with the name of the framework, for example "PyTorch, one thread". All contestants get the same arrays, and their
results are compared at a smaller size before the measurement, so that no contestant computes less than the others.
Each row with a contestant of PyTorch also has the compiled ones of `peers.COMPILED`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.checking import check_results
from benchmarks.peers import COMPILED, compiling, peer_of, reset_torch_compile, run_on_one_thread

Run = Callable[..., Any]
OURS, PYTORCH, ONE_THREAD = "snncell", "PyTorch", "PyTorch, one thread"
UNROLLED = 128  # most steps of a compiled network: `torch.compile` unrolls the loop, a minute for 64 steps


@dataclass(frozen=True)
class Contestant:
    """A contestant with its arrays.

    Attributes:
        run: the measured function. It returns after all work is done. With `prepare`, it takes the result of `prepare`.
        compute_results: returns the compared arrays of any framework by name ("spikes", "losses", gradients). By
            default these are the results of `run`.
        prepare: runs before `run` and is not measured.
        reference: an snncell contestant with the equations of this contestant, if they differ from the row's.
    """

    run: Run
    compute_results: Callable[[], dict[str, Any]] | None = None
    prepare: Run | None = None
    reference: Contestant | None = None

    def run_once(self) -> Any:
        return self.run() if self.prepare is None else self.run(self.prepare())

    def on_one_thread(self) -> Contestant:
        """Return the same contestant of PyTorch with one thread."""
        return Contestant(run_on_one_thread(self.run), None, self.prepare and run_on_one_thread(self.prepare))

    def results(self) -> dict[str, Any]:
        return self.run() if self.compute_results is None else self.compute_results()


@dataclass(frozen=True)
class Row:
    """A workload.

    Attributes:
        name: the name for `--rows`.
        title: the name in tables.
        sizes: the sizes of the measurement, a dataclass or a tuple.
        small_sizes: the sizes at which results are compared.
        make_arrays: a function from sizes to arrays; the same sizes give the same arrays.
        contestants: functions from these arrays to a Contestant.
        goal: the goal for the time of the fastest peer divided by snncell's, if there is one.
        group: the table that has this row.
        remark: a note for readers of the table.
    """

    name: str
    title: str
    sizes: Any
    small_sizes: Any
    make_arrays: Callable[[Any], tuple[Any, ...]]
    contestants: dict[str, Callable[..., Contestant]]
    goal: float | None = None
    group: str = "nets"
    remark: str = ""

    @property
    def steps(self) -> int:
        """The number of time steps, or 0 for a layer without time."""
        if self.group == "layers":
            return 0
        return int(self.sizes[0] if isinstance(self.sizes, tuple) else getattr(self.sizes, "steps", 0))

    def compiled_names(self, peers: list[str]) -> list[str]:
        """Return the names of compiled contestants.

        They compile the loop of the neuron and the network. Rows with many steps compile one time step instead,
        because `torch.compile` unrolls loops. In rows of single neurons the neuron is the network.
        """
        if PYTORCH not in self.contestants or PYTORCH not in peers:
            return []
        parts = ["time step"] if self.steps > UNROLLED else ["neuron", "network"]
        if self.group in ("neurons", "layers"):
            parts = [part for part in parts if part != "neuron"]
        return [name for name, part in COMPILED.items() if part in parts]

    def make(self, name: str, arrays: tuple[Any, ...]) -> Contestant:
        if name == ONE_THREAD:
            return self.contestants[PYTORCH](*arrays).on_one_thread()
        if name not in COMPILED:
            return self.contestants[name](*arrays)
        with compiling(COMPILED[name]):
            return self.contestants[PYTORCH](*arrays)

    def make_all(self, sizes: Any, peers: list[str], compiled: Iterable[str] = ()) -> dict[str, Contestant]:
        """Create the contestants of snncell and of `peers` for these sizes, and the compiled ones."""
        arrays = self.make_arrays(sizes)
        names = [name for name in self.contestants if peer_of(name) in (OURS, *peers)]
        if compiled := list(compiled):
            reset_torch_compile()
        contestants = {name: self.make(name, arrays) for name in (*names, *compiled)}
        if PYTORCH in contestants:
            contestants[ONE_THREAD] = contestants[PYTORCH].on_one_thread()
        return contestants

    def resize(self, changes: dict[str, Any]) -> Any:
        """Return a copy of the sizes with some changes."""
        return replace(self.sizes, **changes) if changes else self.sizes

    def compare(self, peers: list[str], compiled: Iterable[str] = ()) -> list[str]:
        """Raise an error if results differ from snncell's. Return notes on the distances."""
        contestants = self.make_all(self.small_sizes, peers, compiled)
        contestants.pop(ONE_THREAD, None)
        ours, notes = contestants.pop(OURS).results(), []
        for name, each in contestants.items():
            expected = ours if each.reference is None else each.reference.results()
            notes.append(check_results(f"{self.name}, {name}", expected, each.results()))
        return notes
