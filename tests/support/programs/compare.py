"""Run a program in every form, and compare the results with snncell's tape, step by step and uncompiled.

The results of the tape are compared with PyTorch.
"""

from __future__ import annotations

import linecache
import traceback
from collections.abc import Callable, Collection, Iterable
from typing import Any, NamedTuple

import numpy as np

from snncell import testing

from .forms import KINDS, forms, leaves
from .render import Snncell, Torch
from .syntax import Program

TOLERANCE = 1e-8  # relative to the largest element of a result; faults cause much larger differences


TORCH_FORM = "unfused, compared with PyTorch"


class Failure(NamedTuple):
    """A form of a program with a wrong result."""

    kind: str
    form: str
    why: str

    @property
    def of_torch(self) -> bool:
        return self.form == TORCH_FORM

    @property
    def sides(self) -> dict[str, bool]:
        """The options of `check` for the comparison that shows this failure."""
        return {"torch": self.of_torch, "own": not self.of_torch}

    def is_like(self, other: Failure) -> bool:
        """Return True if it is probably the same fault: an error of the same class, or a wrong number."""
        return (self.kind, self.form, self._error()) == (other.kind, other.form, other._error())

    def _error(self) -> str:
        return self.why.strip().splitlines()[-1].split(":")[0] if self.why.startswith("Traceback") else ""

    def __str__(self) -> str:
        return f"{self.kind}, {self.form}: {self.why}"


class Side:
    """A program rendered for one library; results are computed on demand."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.text = self.renderer().text(program)
        name = f"<program {program.seed} for {self.renderer.__name__.lower()}>"
        linecache.cache[name] = (len(self.text), None, self.text.splitlines(keepends=True), name)
        self.namespace: dict[str, Any] = {}
        exec(compile(self.text, name, "exec"), self.namespace)

    renderer: type[Snncell]


class InSnncell(Side):
    """The forms of a program in snncell."""

    renderer = Snncell

    def __init__(self, program: Program) -> None:
        super().__init__(program)
        self.forms = forms(self.namespace)

    def unfused(self, kind: str) -> list[Any]:
        """Return the results of a kind uncompiled, step by step on the tape."""
        with testing.unfused():
            return self.forms[kind, "eager"]()


class InTorch(Side):
    """The kinds of a program in PyTorch."""

    renderer = Torch

    def __init__(self, program: Program) -> None:
        from .in_torch import kinds

        super().__init__(program)
        self.kinds = kinds(self.namespace)

    def results(self, kind: str) -> list[Any]:
        """Return the results of a kind as arrays."""
        return [leaf.detach().numpy(force=True) for leaf in leaves(self.kinds[kind]())]


def difference(results: list[Any], expected: list[Any]) -> str:
    """Describe the difference of results; "" if they are equal."""
    if len(results) != len(expected):
        return f"{len(results)} results, expected {len(expected)}"
    for n, (a, b) in enumerate(zip(results, expected, strict=True)):
        if (a.shape, a.dtype) != (b.shape, b.dtype):
            return f"result {n} is {a.dtype}{list(a.shape)}, expected {b.dtype}{list(b.shape)}"
        scale = max(1.0, float(np.abs(b).max(initial=0.0))) if a.dtype.kind == "f" else 0.0
        if not np.allclose(a, b, rtol=0.0, atol=TOLERANCE * scale, equal_nan=True):
            return f"result {n} is {a.tolist()}, expected {b.tolist()}"
    return ""


def check(
    program: Program,
    kinds: Iterable[str] = KINDS,
    torch: bool = True,
    own: bool = True,
    only: Collection[tuple[str, str]] = (),
) -> list[Failure]:
    """Return the failures of a program.

    Args:
        program: the program.
        kinds: the kinds of results to compare.
        torch: whether to compare with PyTorch.
        own: whether to compare snncell's forms with each other.
        only: the (kind, form) pairs to compare; all by default.
    """
    failures: list[Failure] = []
    side = InSnncell(program)
    other = InTorch(program) if torch else None
    for kind in kinds if program.linear else [kind for kind in kinds if kind != "second"]:
        try:
            expected = side.unfused(kind)
        except Exception:
            failures.append(Failure(kind, "unfused", traceback.format_exc()))
            continue
        if other is not None:
            failures += _failure(kind, TORCH_FORM, lambda: expected, other.results(kind))  # noqa: B023
        for (of, form), run in side.forms.items() if own else ():
            if of == kind and (not only or (of, form) in only):
                failures += _failure(kind, form, run, expected)
    return failures


def _failure(kind: str, form: str, run: Callable[[], list[Any]], expected: list[Any]) -> list[Failure]:
    try:
        why = difference(run(), expected)
    except Exception:
        why = traceback.format_exc()
    return [Failure(kind, form, why)] if why else []
