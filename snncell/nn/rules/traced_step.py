"""Derivatives of one time step for online learning: of the next states by states, weights and constants.

A step is elementwise if each neuron's next state depends on its own states and inputs alone. Its Jacobian is then
diagonal, and one Jacobian-vector product with a vector of ones gives the diagonal. The tape of the step shows where
this fails: an operation *mixes* neurons, such as a product of spikes and recurrent weights.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np

from snncell.cell.cell import Cell
from snncell.compiler.ir.operations import CAST, Elementwise, Reduction
from snncell.compiler.ir.product import Dot, Product
from snncell.errors import ArgumentError, SnncellError
from snncell.tape import structure
from snncell.tape.backward import ancestors, pullback, zeros_of
from snncell.tape.parameter import Parameter
from snncell.tape.primitive import alias
from snncell.tape.state import TRACING, Entry, Tape, Value, record_on, settings
from snncell.tape.tensor import Tensor, wrap
from snncell.tape.tracing import Trace
from snncell.tape.transforms import Recording, full, stop_gradient

WHO = "Online"
_ELEMENTS = (Elementwise, type(CAST))
COMBINING = (Product, Reduction, *_ELEMENTS)  # kinds of operations that combine neurons; _ELEMENTS do by broadcasting


class Entrance(NamedTuple):
    """A place where a Parameter enters the states: a weight (N, I) in a product, or a constant of the neurons."""

    parameter: Parameter
    source: Tensor  # the Tensor by which to differentiate: the product of a weight, or the constant
    pre: Tensor | None = None  # the other operand of the product, (B, I)
    turned: bool = False  # whether the weight is (I, N)


class Mixing(NamedTuple):
    """An operation through which a state of one neuron reaches the next state of another."""

    state: int
    entry: Entry


class TracedStep:
    """One step of `cell` on a tape, with its derivatives.

    Attributes:
        out, after: the output and the next states.
        entrances: the places where Parameters enter the next states through elementwise operations.
        mixing: the operations that mix neurons.
        elsewhere: Parameter -> another operation by which it enters the next states.
        unused: Parameters that affect neither output nor states.
        constant: True if the tape has no path from Parameters or states to the output.
    """

    def __init__(self, cell: Cell, x: Tensor, states: Sequence[Tensor]) -> None:
        self.floats = [i for i, state in enumerate(states) if state.dtype.is_float]
        self.parameters = cell.trainable_params()
        watched = [0] * x.dtype.is_float + [1 + i for i in self.floats]
        recording = Recording(lambda x, *states: _run(cell, x, states), (x, *states), watched, None, {}, WHO)
        self.out, *self.after = recording.out
        self.rows = [self.after[i] for i in self.floats]
        self.sources = recording.sources[x.dtype.is_float :]  # of the float states
        self.x = recording.sources[0]._entry if x.dtype.is_float else None
        self.entries = recording.tape.live()
        self.entrances: list[Entrance] = []
        self.mixing: list[Mixing] = []
        self.elsewhere: dict[Parameter, str] = {}
        self._cut: set[Entry] = set()  # operations through which derivatives of the states do not pass
        # mixing operation -> operands that are states of the step before
        self._old: dict[Entry, set[Entry | None]] = {}
        begin = {source._entry for source in self.sources}
        reached = ancestors([x._entry for x in structure.flatten((self.out, self.after))[0]], begin)
        self.unused = [p for p in self.parameters if p._entry not in reached]
        learned = begin | {p._entry for p in self.parameters}
        outputs = ancestors([x._entry for x in structure.flatten(self.out)[0]], learned)
        self.constant = bool(self.parameters) and learned.isdisjoint(outputs)
        self._analyse(ancestors([row._entry for row in self.rows], begin))

    def _analyse(self, relevant: set[Any]) -> None:
        """Find entrances and mixing operations among the entries that the next states depend on."""
        own = {p._entry: p for p in self.parameters}
        states: dict[Any, set[int]] = {s._entry: {i} for i, s in zip(self.floats, self.sources, strict=True)}
        inside: dict[Any, set[Parameter]] = {entry: {p} for entry, p in own.items()}
        matrices: dict[Any, tuple[Parameter, bool]] = {entry: (p, True) for entry, p in own.items() if p.ndim == 2}
        products: dict[Any, set[Parameter]] = {}  # weights whose products enter an entry through elementwise operations
        live = set(states)  # entries with a derivative along a state or a product
        fresh = {self.x}  # entries that depend on the input of this step
        for entry in self.entries:
            if entry not in relevant or entry.op is None or entry in states:
                continue
            from_states = set().union(*(states.get(parent, ()) for parent in entry.parents))
            parameters = set().union(*(inside.get(parent, ()) for parent in entry.parents))
            of_matrices = [matrices[parent] for parent in entry.parents if parent in matrices]
            if not fresh.isdisjoint(entry.parents) or (isinstance(entry.op, Dot) and not from_states):
                fresh.add(entry)
            if entry.parents[0] in matrices and (entry.op.name == "transpose" or entry.op in (CAST, alias)):
                p, turned = matrices[entry.parents[0]]
                matrices[entry], inside[entry] = (p, turned != (entry.op.name == "transpose")), parameters
            elif isinstance(entry.op, Dot) and entry.parents[1] in matrices and len(entry.specs[0][0]) == 2:
                p, turned = matrices[entry.parents[1]]
                self.entrances.append(Entrance(p, _output(entry), stop_gradient(entry.inputs[0]), turned))
                self._lose(entry, entry.parents[:1], states, inside, products)
                self._cut_at(entry, from_states, states, fresh)
                products[entry] = {p}
                live.add(entry)
            elif _is_elementwise(entry, live) and not any(turned is False for _, turned in of_matrices):
                states |= {entry: from_states} if any(parent in states for parent in entry.parents) else {}
                inside[entry] = parameters
                products[entry] = set().union(*(products.get(parent, ()) for parent in entry.parents))
                live |= set() if live.isdisjoint(entry.parents) else {entry}
            else:
                self._lose(entry, entry.parents, states, inside, products)
                if any(parent in states for parent in entry.parents):
                    self._cut_at(entry, from_states, states, fresh)
        constants = set().union(*(inside.get(row._entry, ()) for row in self.rows))
        self.entrances += [Entrance(p, wrap(p._data, p._entry)) for p in self.parameters if p in constants]

    def _lose(self, entry: Entry, parents: Sequence[Any], states: Any, *parameters: Any) -> None:
        """Note Parameters that no trace can follow through an operation: their operand depends on no state."""
        op: Any = entry.op
        for of_entries in parameters:
            for parent in parents:
                for p in () if states.get(parent) else of_entries.get(parent, ()):
                    self.elsewhere.setdefault(p, op.name)

    def _cut_at(self, entry: Entry, from_states: set[int], states: Any, fresh: set[Any]) -> None:
        """Stop the derivatives of the states at this operation; if states reach it, note that it mixes neurons."""
        self._cut.add(entry)
        self.mixing += [Mixing(i, entry) for i in sorted(from_states)]
        self._old[entry] = {parent for parent in entry.parents if parent in states and parent not in fresh}
        states[entry] = from_states

    def drop_mixing(self) -> None:
        """Stop gradients from mixing operations to the states of the step before, as `stop_gradient` would."""
        for entry, parents in self._old.items():
            entry.parents = [None if parent in parents else parent for parent in entry.parents]

    def parameter_sources(self) -> list[Tensor]:
        """The Parameters as sources of derivatives."""
        return [wrap(p._data, p._entry) for p in self.parameters]

    def diagonals(self, spikes: bool = True) -> tuple[list[list[Any]], list[list[Any]]]:
        """The derivatives of the next states, one list for each state and one for each entrance; None without a path.

        With spikes=False, the derivatives of spike functions count as 0.
        """
        sources = [*self.sources, *(entrance.source for entrance in self.entrances)]
        kept = [e for e in self.entries if e not in self._cut and (spikes or not _is_spike(e))]
        reach: dict[Any, set[int]] = {}
        for number, source in enumerate(sources):
            reach.setdefault(source._entry, set()).add(number)
        for entry in kept:
            if entry not in reach:
                reach[entry] = set().union(*(reach.get(parent, ()) for parent in entry.parents))
        along = self.linear(self.rows, sources, kept)
        columns = []
        for number, source in enumerate(sources):
            there = [number in reach.get(row._entry, ()) for row in self.rows]
            ones = [full(1.0, s) if s is source else None for s in sources]
            column = along(ones) if any(there) else [None] * len(there)
            columns.append([t if reached else None for t, reached in zip(column, there, strict=True)])
        return columns[: len(self.sources)], columns[len(self.sources) :]

    def reaches(self, source: Tensor, result: Tensor) -> bool:
        """True if `result` depends on `source` in this or a later step, by operations that do not mix neurons; also if
        it is not on the tape.
        """
        found, count = {source._entry}, 0
        while len(found) > count:
            count = len(found)
            found |= {before._entry for row, before in zip(self.rows, self.sources, strict=True) if row._entry in found}
            for entry in self.entries:
                if entry not in self._cut and not found.isdisjoint(entry.parents):
                    found.add(entry)
        return result.shape == source.shape and (result._entry is None or result._entry in found)

    def linear(self, rows: Sequence[Tensor], sources: Sequence[Tensor], entries: Iterable[Entry]) -> Callable[..., Any]:
        """The Jacobian-vector product of `rows` by `sources`, a function of one direction (or None) per source."""

        def pull(*seeds: Tensor) -> Any:
            found = pullback(list(entries), rows, seeds, sources)
            specs = [(source.shape, source._data.dtype) for source in sources]
            return tuple(zeros_of(spec) if g is None else g for g, spec in zip(found, specs, strict=True))

        zeros = [full(0.0, row) for row in rows]
        reverse = Recording(pull, zeros, range(len(zeros)), None, {}, WHO)

        def along(directions: Sequence[Tensor | None]) -> list[Tensor]:
            found = pullback(reverse.tape.live(), reverse.out, directions, reverse.sources)
            pairs = zip(found, rows, strict=True)
            tangents: list[Tensor] = [stop_gradient(full(0.0, row) if t is None else t) for t, row in pairs]
            return tangents

        return along


def _run(cell: Cell, x: Tensor, states: Sequence[Tensor]) -> Any:
    result = cell(x, *states)
    if not isinstance(result, tuple) or len(result) != len(states) + 1:
        got = f"{len(result)} values" if isinstance(result, tuple) else f"a {type(result).__name__}"
        raise ArgumentError(
            f"{WHO}: {type(cell).__name__}.construct took {len(states)} state(s), so it must return (output, *states) "
            f"with as many; it returned {got}."
        )
    return result


def _maps_elements(op: Any) -> bool:
    return isinstance(op, _ELEMENTS) or op is alias


def _output(entry: Entry) -> Tensor:
    (shape, dtype), *_ = entry.specs
    return wrap(np.broadcast_to(np.zeros((), dtype), shape), entry)


_ELEMENTWISE: weakref.WeakKeyDictionary[Cell, bool] = weakref.WeakKeyDictionary()  # Cells with a bprop


def _is_spike(entry: Entry) -> bool:
    """True for a spike function: a Cell with a custom gradient that is elementwise."""
    cell = getattr(entry.op, "cell", None)
    if cell is None or getattr(cell, "primitive", None) is not None:
        return cell is not None
    if cell not in _ELEMENTWISE:
        _ELEMENTWISE[cell] = False
        with suppress(SnncellError, TypeError):
            probe = AbstractStep(cell.construct, [full(0.0, wrap(np.zeros((2, 3), entry.specs[0][1])))])
            _ELEMENTWISE[cell] = all(_maps_elements(one.op) for one in probe.trace.instructions)
    return _ELEMENTWISE[cell]


def _is_elementwise(entry: Entry, live: Any) -> bool:
    """True if each element of the result depends on one element of each operand that is live."""
    if not (_maps_elements(entry.op) or _is_spike(entry)):
        return False
    pairs = zip(entry.parents, entry.indices, strict=True)
    return all(p.specs[i][0] == entry.specs[0][0] for p, i in pairs if p is not None and p in live)


# --- a step without values --------------------------------------------------------------------------------------------


class AbstractStep:
    """Trace `fn` on Tensors that have the shapes of `inputs` but no values; no operation runs."""

    def __init__(self, fn: Callable[..., Any], inputs: Sequence[Tensor]) -> None:
        outer = TRACING.trace
        parents = () if outer is None else (outer, *getattr(outer, "lineage", ()), *getattr(outer, "parents", ()))
        self.trace = Trace(parents, who=WHO)
        with settings(trace=self.trace, tape=None, notes=None, watch=None), record_on(Tape()):
            self.result = fn(*(self.trace.new_input(x.shape, x._data.dtype) for x in inputs))
        self._maker = {out: one for one in self.trace.instructions for out in one.outputs}

    def is_shared(self, x: Tensor) -> bool:
        """True if all elements of `x` are equal for any inputs, because `x` is computed from single numbers alone."""
        waiting, seen = [x._data], set()
        single = {value for p, value in self.trace.parameters.items() if p.size == 1}
        constants = {value: data for data, value in self.trace.constants.values()}
        while waiting:
            value = waiting.pop()
            if not isinstance(value, Value):
                if np.size(value) and np.ptp(value):
                    return False
                continue
            if value in seen or value in single:
                continue
            seen.add(value)
            if value in constants:
                waiting.append(constants[value])
            elif value in self._maker and _maps_elements(self._maker[value].op):
                waiting += [x for x in self._maker[value].inputs if isinstance(x, Value)]
            else:
                return False
        return True
