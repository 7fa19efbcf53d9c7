"""Where the kernel of a loop over time finds what comes from outside of it: rows of sequences, and constants.

The kernel runs over one axis of elements. What is not there for each of them (one number for all, one for each neuron
of a batch, one for each channel) is looked up by the element's place along the axes: constants once for a block,
sequences by a table of indices that is made once for a block.
"""

from __future__ import annotations

from snncell.compiler.emit import Statements, join_axes, pattern_of
from snncell.tape.tracing import Value


class Places:
    """Where a kernel finds what comes from outside: rows of sequences, and constants."""

    def __init__(self, shape: tuple[int, ...], rows: list[Value], fixed: list[Value]) -> None:
        patterns = {value: pattern_of(value, shape) for value in (*rows, *fixed)}
        self.sizes, _, runs = join_axes(shape, (), list(patterns.values()))
        self.present = {value: [all(own[axis] for axis in run) for run in runs] for value, own in patterns.items()}
        self.numbers = {value: n for n, value in enumerate(rows)}
        self.prepare: list[str] = []
        self.elements: dict[Value, str] = {}
        for n, value in enumerate(fixed):
            self._constant(n, value)
        for n, value in enumerate(rows):
            if self._kind(value) == "some":
                self.prepare += self._indices(f"j{n}", "np.int64", value, "{0}")

    def _kind(self, value: Value) -> str:
        axes = [has or size == 1 for has, size in zip(self.present[value], self.sizes, strict=True)]
        return "all" if all(axes) and value.shape else "some" if any(self.present[value]) else "one"

    def _constant(self, n: int, value: Value) -> None:
        kind = self._kind(value)
        self.elements[value] = f"d{n}" if kind == "one" else f"d{n}[i]"
        if kind == "some":
            self.prepare += self._indices(f"d{n}", f"np.{value.dtype.type.__name__}", value, f"a{n}[{{0}}]")
        else:
            self.prepare.append(f"d{n} = a{n}[{'0' if kind == 'one' else 'low:high'}]")

    def _indices(self, name: str, dtype: str, value: Value, element: str) -> list[str]:
        """Fill an array of the block with what belongs to each element, by its place along the axes."""
        terms: list[str] = []
        inner: list[str] = []
        own: list[str] = []
        for axis in reversed(range(len(self.sizes))):
            if self.present[value][axis]:
                place = f"(low + i) // ({' * '.join(inner)})" if inner else "(low + i)"
                scale = f" * {' * '.join(own)}" if own else ""
                terms.append(f"{place} % n{axis}{scale}")
                own.append(f"n{axis}")
            inner.append(f"n{axis}")
        index = " + ".join(terms)
        return [
            f"{name} = np.empty(count, {dtype})",
            "for i in range(count):",
            f"    {name}[i] = {element.format(index)}",
        ]

    def load(self, statements: Statements, values: list[Value]) -> list[str]:
        """Give each of `values` a name in the body; the statements that a step needs for it."""
        rows = []
        for value in values:
            if value in self.elements:
                statements.load(value, self.elements[value])
            elif value in self.numbers:
                n, kind = self.numbers[value], self._kind(value)
                part = {"all": ", low:high", "some": "", "one": ", 0"}[kind]
                rows.append(f"r{n} = x{n}[t * h{n}{part}]")
                statements.load(value, {"all": f"r{n}[i]", "some": f"r{n}[j{n}[i]]", "one": f"r{n}"}[kind])
        return rows
