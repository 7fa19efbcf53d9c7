"""Profiler: the time of each layer and of each launch of a compiled step."""

from __future__ import annotations

import json
import math
import statistics
import textwrap
import time
from collections.abc import Callable, Sequence
from types import MethodType
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np

from snncell.base.arguments.guard import guard
from snncell.base.arguments.kinds import Count, Own, Path
from snncell.base.arguments.names import plugin
from snncell.base.arguments.shown import ROWS, element, join_parts, table
from snncell.base.config import FINITE
from snncell.compiler.clock import LaunchEvent, TimedPlan
from snncell.compiler.explain import OUTSIDE, WIDTH, layer_of, updated_layers
from snncell.compiler.jit import Jitted, as_jitted
from snncell.compiler.runtime.plan import Plan
from snncell.errors import ArgumentError, TraceError
from snncell.kernels.limits import copy_bandwidth, product_rate
from snncell.kernels.numba.threads import BLAS
from snncell.kernels.space import HOST
from snncell.tape.state import TRACING, quietly, recording_on

__all__ = ["Profile", "profile"]

Track = Literal["forward", "backward", "optimiser"]
TRACKS: tuple[Track, ...] = ("forward", "backward", "optimiser")
BETWEEN = "Python, between launches"


class LaunchTime(NamedTuple):
    """One launch of a profiled step.

    Attributes:
        name: the kernel or the operation.
        layer: the path and the class of its layer.
        track: "forward", "backward" or "optimiser".
        seconds: its median time in a step, without the launches inside of it.
        share: its part of the step's time.
        bytes: bytes that it reads from and writes to memory.
        operations: multiplications and additions.
        bound: the least time in seconds in which this machine can process its bytes and operations.
        times_bound: seconds / bound.
        density: the share of nonzero elements in the operand in which the CPU searches for events, or None.
        path: "events", "dense", or both with a comma; "" if the CPU does not search for events.
        shape: the shape that it runs over.
        line: the line of code.
    """

    name: str
    layer: str
    track: Track
    seconds: float
    share: float
    bytes: int
    operations: float
    bound: float
    times_bound: float
    density: float | None
    path: str
    shape: tuple[int, ...]
    line: str


class LayerTime(NamedTuple):
    """One layer of a profiled step: sums over its launches, with the attribute names of `LaunchTime`.

    Attributes:
        name: the path and the class of the layer.
        times_bound: seconds / bound; NaN without launches.
        density: the density of the sparsest operand in which the CPU searches for events, or None.
        forward, backward, optimiser: the parts of `seconds`.
    """

    name: str
    seconds: float
    share: float
    bytes: int
    operations: float
    bound: float
    times_bound: float
    density: float | None
    path: str
    forward: float
    backward: float
    optimiser: float


def profile(
    step: Annotated[Callable[..., Any], Own()],
    *inputs: Any,
    repeat: Count = 10,
    detail: Literal["layers", "launches"] = "layers",
    **kwargs: Any,
) -> Profile:
    """Profiler: measure the time of each layer and of each launch (the call of a kernel) in a compiled step.

    Use it to find out where the time of a training step goes. You can print the result, show it in a notebook, or draw
    it by `.plot()`. After `.save("trace.json")` you can open it in Perfetto (https://ui.perfetto.dev).
    `snncell.explain` says why a layer is slow.

    `step` runs 2 `repeat` + 2 times on these inputs: half of the runs have a clock around each launch, the others have
    none and give the time of the step. Profiling has no effect on training, because nothing that `step` writes is kept:
    Parameters, statistics, states of neurons, the optimiser and the random numbers stay as they are. Each run thus
    starts from the same values. In a job of several ranks, each rank must profile the same step.

    The clocks take 1 to 2 µs for each launch: 6 % of a step of 0.25 ms with 10 launches, less than 0.1 % of a step of
    60 ms with 40 launches. On a GPU they take more, because the host has to wait for each launch. The output states how
    much longer a step takes with the clocks.

    The bound estimates the least time that a launch needs on this machine. It is the longer of two times: the time for
    its bytes at the bandwidth of a copy, and the time for its operations at the rate of a large matrix product. Both
    rates are measured at the first profile. A launch at 1.2 times its bound cannot become much faster, one at 10 times
    can. A matrix product counts 2 n k m operations, or fewer if it uses the nonzero elements only. An elementwise
    operation counts one for each element. A launch can take less time than its bound if it needs fewer operations, like
    a Winograd convolution, or if its data are in a cache.

    Args:
        step: a function or Cell. If it is not jitted, its compiled form is profiled, and the output says so.
        inputs, kwargs: arguments of one call. Use real data: the shapes and dtypes decide which compiled version of
            `step` runs, and the number of spikes decides whether matrix products use events or all elements.
        repeat: the number of timed runs; times are medians.
        detail: "layers" prints a row for each layer, "launches" a row for each launch.
    Returns: A `Profile`.
    Raises: TraceError if `step` cannot be compiled, or if you call `profile` in a jitted function or with
        `check_finite`; ArgumentError if `step` has no launches, for example because it returns its input.
    Example:
        >>> net = nn.SequentialCell(nn.Dense(20, 10), nn.MultiStep(nn.LIFNode()))
        >>> measured = snncell.profile(net, ops.ones((8, 4, 20)), repeat=3)
        >>> sorted(row.name for row in measured.rows)
        ['0 Dense', '1 MultiStep(LIFNode)', 'Python, between launches']
    """
    owner: Any = getattr(step, "__func__", None)
    if isinstance(step, MethodType) and isinstance(owner, Jitted):  # a decorated method
        inputs, step = (step.__self__, *inputs), owner
    jitted = as_jitted("profile", step, "step")
    if TRACING.trace is not None:
        raise TraceError(f"profile: {jitted.name} is being traced. Call snncell.profile outside of jitted functions.")
    if FINITE or TRACING.unfused:
        raise TraceError(
            f"profile: {jitted.name} runs operation by operation, because of check_finite or testing.unfused(), so it "
            f"has no launches. Profile it after snncell.set_context(check_finite=False)."
        )
    measured = _measure(jitted, inputs, kwargs, repeat)
    return Profile(jitted.name, *measured, jitted is step, detail)


def _measure(
    jitted: Jitted, inputs: tuple[Any, ...], kwargs: dict[str, Any], repeat: int
) -> tuple[TimedPlan, list[_ClockedRun], float, float, float]:
    """The timed plan, its runs, the time of a step, the overhead of the clocks, and the time of compilation."""
    with recording_on(None):
        compiled, leaves = jitted.lookup(inputs, kwargs)
        arrays = [leaf._data for leaf in leaves]
        plan = compiled.plan(arrays)
        timed = TimedPlan(plan)
        if not timed.launches:
            raise ArgumentError(
                f"profile: {jitted.name} runs no kernel for these inputs, so there is nothing to time. Pass what it "
                f"computes with as Tensors, and return the results."
            )
        values = [parameter.value_in(plan.space) for parameter, _ in plan.parameters]

        def run(one: Plan) -> float:
            start = time.perf_counter()
            jitted.lookup(inputs, kwargs)
            BLAS.run(quietly, one.compute, arrays, values)  # new values of Parameters are dropped
            timed.wait()
            return time.perf_counter() - start

        first = run(plan)  # builds the kernels of calls
        timed.looking = True
        run(timed.plan)
        timed.looking = False
        plain, runs = [], []
        for _ in range(repeat):
            plain.append(run(plan))
            timed.log.clear()
            start = time.perf_counter()
            runs.append(_ClockedRun(start, run(timed.plan), list(timed.log)))
    seconds = statistics.median(plain)
    # Compare the fastest runs, because other programs on the machine delay some runs by more than the clocks do.
    overhead = min(one.seconds for one in runs) / min(plain) - 1.0
    return timed, runs, seconds, overhead, compiled.seconds + max(0.0, first - seconds)


class _ClockedRun(NamedTuple):
    start: float
    seconds: float
    events: list[LaunchEvent]


class Profile:
    """The result of `snncell.profile`: the times of a compiled step, by layer and by launch.

    Attributes:
        name: the name of the step.
        device: "CPU" or "GPU".
        seconds: the median time of a step without clocks.
        rows: a `LayerTime` for each layer, and one for Python between launches, slowest first.
        launches: a `LaunchTime` for each launch, in the order of a step. A loop over time has one for its kernel, and
            further ones for operations that it runs for all steps together.
        overhead: how much longer a step takes with the clocks, as a fraction of `seconds`.
        compile_seconds: the time of tracing and compiling. It is short if the kernels were in the cache on disk.
        bandwidth: the bandwidth of a copy on this machine, in bytes per second, read and written.
        rate: the rate of a large float32 product on this machine, in operations per second.
        repeat: the number of timed runs.
    """

    def __init__(
        self,
        name: str,
        timed: TimedPlan,
        runs: Sequence[_ClockedRun],
        seconds: float,
        overhead: float,
        compile_seconds: float,
        is_jitted: bool,
        detail: Literal["layers", "launches"],
    ) -> None:
        space = timed.plan.space
        self.name, self.seconds, self.compile_seconds, self.repeat = name, seconds, compile_seconds, len(runs)
        self.device = "CPU" if space is HOST else "GPU"
        self.overhead = overhead
        self.bandwidth, self.rate = copy_bandwidth(space), product_rate(space)
        self._is_jitted, self._detail = is_jitted, detail
        run = sorted(runs, key=lambda run: run.seconds)[len(runs) // 2]
        numbers = list(dict.fromkeys(event.number for event in sorted(run.events, key=lambda event: event.start)))
        self.launches, rest = _launch_times(timed, numbers, runs)
        self.rows = _layer_times(self.launches, rest)
        self._events = [
            (numbers.index(event.number), event.start - run.start, event.end - event.start) for event in run.events
        ]

    def __str__(self) -> str:
        head, rows = self._table()
        words = len(head) - _NUMBERS[self._detail]
        widths = [max(map(len, column)) + 2 for column in zip(head, *rows, strict=True)]
        names = max(1, words - 1)  # columns that may be cut: layers, and names of launches
        widths[:names] = [min(width, (WIDTH - sum(widths[names:])) // names) for width in widths[:names]]
        lines = [self._title(), ""]
        for cells in (head, *rows):
            line = ""
            for title, cell, width in zip(head, cells, widths, strict=True):
                is_path = title == "layer"
                line += f"{_cut(cell, width - 1, is_path):<{width}}" if title in head[:words] else f"{cell:>{width}}"
            lines.append(line.rstrip())
        for note in self._notes():
            lines += ["", *textwrap.wrap(note, WIDTH, break_on_hyphens=False)]
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        head, rows = self._table()
        notes = join_parts(part for note in self._notes() for part in (note, "\n"))
        return element("div", element("b", self._title()), table(head, rows, _NUMBERS[self._detail]), notes)

    def plot(self, ax: Any = None, title: str | None = None) -> Any:
        """Draw the time of each layer as bars, split into forward pass, backward pass and optimiser; return Axes."""
        return plugin("plot of a profile")(self, ax, title)

    def save(self, path: Path) -> None:
        """Save one step of median length in Chrome's trace-event format (JSON), which Perfetto and chrome://tracing
        open. Forward pass, backward pass and optimiser are tracks. Each launch is an event with its layer, shape, line,
        bytes and operations.
        """
        named: list[dict[str, Any]] = [{"name": "process_name", "ph": "M", "pid": 1, "args": {"name": self.name}}]
        for number, track in enumerate(TRACKS, 1):
            named.append({"name": "thread_name", "ph": "M", "pid": 1, "tid": number, "args": {"name": track}})
            order = {"sort_index": number}
            named.append({"name": "thread_sort_index", "ph": "M", "pid": 1, "tid": number, "args": order})
        events = []
        for number, start, seconds in self._events:
            launch = self.launches[number]
            facts = launch._asdict()
            args = {key: facts[key] for key in ("layer", "shape", "line", "bytes", "operations", "density", "path")}
            place = {"pid": 1, "tid": TRACKS.index(launch.track) + 1, "cat": launch.track, "args": args}
            events.append({"name": launch.name, "ph": "X", "ts": 1e6 * start, "dur": 1e6 * seconds, **place})
        facts = {key: getattr(self, key) for key in ("name", "device", "seconds", "overhead", "bandwidth", "rate")}
        trace = {"traceEvents": [*named, *events], "displayTimeUnit": "ms", "otherData": facts}
        with open(path, "w", encoding="utf-8") as file:
            json.dump(trace, file, allow_nan=False)

    # --- texts --------------------------------------------------------------------------------------------------------

    def _title(self) -> str:
        return f"{self.name}, compiled for the {self.device}: {_number(1e3 * self.seconds)} ms a step"

    def _notes(self) -> list[str]:
        runs = f"{self.repeat} steps" if self.repeat > 1 else "one step"
        slower = f"with a clock around each launch a step takes {_share(max(0.0, self.overhead))} longer"
        notes = [
            f"Times are medians of {runs}; {slower}. Shares are of the sum of all rows, "
            f"{_number(1e3 * sum(row.seconds for row in self.rows))} ms, from the runs with clocks; the time in the "
            f"first line is from the runs without. Compiled in {self.compile_seconds:.2g} s. Bounds: bytes at "
            f"{self.bandwidth / 1e9:.3g} GB/s (a copy), operations at {self.rate / 1e9:.3g} Gflop/s (a matrix product)."
        ]
        if not self._is_jitted:
            notes.append(
                f"{self.name} is not jitted, so this is the time of snncell.jit({self.name}), not of its calls."
            )
        more = 'detail="launches" lists every launch, ' if self._detail == "layers" else ""
        notes.append(
            f'{more}save("trace.json") writes a trace for Perfetto, and explain(...) says why a layer is slow.'
        )
        return notes

    def _table(self) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        """Titles and rows of the table; the last columns are numbers."""
        if self._detail == "launches":
            launches = sorted(self.launches, key=lambda launch: -launch.seconds)
            rows = [(x.name, x.layer or OUTSIDE, x.track, *_times(x), *_facts(x)) for x in launches]
            rest = next(row for row in self.rows if row.name == BETWEEN)
            rows.append((BETWEEN, "", "", *_times(rest), *_facts(rest)))
            return ("launch", "layer", "track", "ms", "share", *_TITLES), rows
        rows = [(x.name, *_times(x), *map(_milliseconds, x[-3:]), *_facts(x)) for x in self.rows[:ROWS]]
        if more := self.rows[ROWS:]:
            empty = [""] * (len(TRACKS) + len(_TITLES))
            share = _share(sum(row.share for row in more))
            rows.append((f"and {len(more)} more", _milliseconds(sum(row.seconds for row in more)), share, *empty))
        return ("layer", "ms", "share", *TRACKS, *_TITLES), rows


_TITLES = "MB", "Mflop", "x bound", "nonzero"
_NUMBERS = {"layers": 9, "launches": 6}  # the columns with numbers


def _times(row: LayerTime | LaunchTime) -> tuple[str, str]:
    return _milliseconds(row.seconds), _share(row.share)


def _facts(row: LayerTime | LaunchTime) -> tuple[str, ...]:
    """The table cells of the columns in `_TITLES`."""
    path = "mixed" if "," in row.path else row.path
    density = "" if row.density is None else f"{_number(100 * row.density)} % {path}"
    times = "" if math.isnan(row.times_bound) else _number(row.times_bound)
    return (*(_number(x / 1e6) if x else "" for x in (row.bytes, row.operations)), times, density)


def _milliseconds(seconds: float) -> str:
    return _number(1e3 * seconds) if seconds else ""


def _share(part: float) -> str:
    return f"{100 * part:.1f} %"


def _number(value: float) -> str:
    """A number with three digits, one digit if it is small, or as a whole number."""
    return f"{value:.0f}" if value >= 999.5 else f"{value:.3g}" if value >= 0.01 else f"{value:.1g}"


def _cut(text: str, width: int, is_path: bool) -> str:
    """Shorten a path at its beginning, and any other name at its end."""
    if len(text) <= width:
        return text
    return f"...{text[3 - width :]}" if is_path else f"{text[: width - 3]}..."


# --- rows -------------------------------------------------------------------------------------------------------------


def _launch_times(
    timed: TimedPlan, numbers: Sequence[int], runs: Sequence[_ClockedRun]
) -> tuple[list[LaunchTime], float]:
    """A row for each launch, in the order of `numbers`, and the time of the rest of a step. The time and operations of
    a loop over time are without those of the launches inside of it.
    """
    times, rests = [], []
    for run in runs:
        own, rest = [0.0] * len(timed.launches), run.seconds
        for event in run.events:
            seconds, parent = event.end - event.start, timed.launches[event.number].parent
            own[event.number] += seconds
            if parent is None:
                rest -= seconds
            else:
                own[parent] -= seconds
        times.append(own)
        rests.append(rest)
    medians = [statistics.median(each) for each in zip(*times, strict=True)]
    rest = statistics.median(rests)
    operations = [launch.operations(launch.used) for launch in timed.launches]
    for launch in timed.launches:
        if launch.parent is not None:
            operations[launch.parent] -= launch.operations(timed.launches[launch.parent].used)
    space, updates, rows = timed.plan.space, updated_layers(timed.plan), list[LaunchTime]()
    for number in numbers:
        launch, seconds, work = timed.launches[number], medians[number], max(0.0, operations[number])
        layer, backward = layer_of(launch.instructions)
        # Code outside of layers can belong to the forward pass and to the optimiser.
        updating = layer in updates and (layer or any(row.track == "backward" for row in rows))
        track: Track = "backward" if backward else "optimiser" if updating else "forward"
        wide = any(x.dtype == np.float64 for one in launch.instructions for x in one.outputs)
        rate = product_rate(space, np.dtype(np.float64 if wide else np.float32))
        bound = max(launch.bytes / copy_bandwidth(space), work / rate)
        share, times_bound = seconds / (sum(medians) + rest), seconds / bound if bound else math.nan
        named = launch.name, layer, track, seconds, share, launch.bytes, work, bound, times_bound
        events = launch.density, ", ".join(sorted(launch.paths))
        rows.append(LaunchTime(*named, *events, launch.shape, str(launch.place)))
    return rows, rest


def _layer_times(launches: Sequence[LaunchTime], rest: float) -> list[LayerTime]:
    """A row for each layer, and one for the rest of a step, slowest first."""
    layers: dict[str, list[LaunchTime]] = {}
    for launch in launches:
        layers.setdefault(launch.layer or OUTSIDE, []).append(launch)
    total = sum(launch.seconds for launch in launches) + rest
    rows = [LayerTime(BETWEEN, rest, rest / total, 0, 0.0, 0.0, math.nan, None, "", 0.0, 0.0, 0.0)]
    for name, own in layers.items():
        seconds, share, moved, work, bound = (
            sum(getattr(launch, key) for launch in own) for key in ("seconds", "share", "bytes", "operations", "bound")
        )
        density = min((launch.density for launch in own if launch.density is not None), default=None)
        path = ", ".join(sorted({path for launch in own for path in launch.path.split(", ") if path}))
        tracks = [sum(launch.seconds for launch in own if launch.track == track) for track in TRACKS]
        times_bound = seconds / bound if bound else math.nan
        rows.append(LayerTime(name, seconds, share, moved, work, bound, times_bound, density, path, *tracks))
    return sorted(rows, key=lambda row: -row.seconds)


guard(globals(), own=True)
