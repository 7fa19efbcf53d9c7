"""Runs a program in every form, and compares what comes of it: with snncell's own tape, step by step and with nothing
compiled, and that with PyTorch."""

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

TOLERANCE = 1e-8  # of the largest element of a result; what is wrong is wrong by far more


BESIDE_TORCH = "unfused, beside PyTorch"


class Failure(NamedTuple):
    """A form of a program that does not give what it should."""

    kind: str
    form: str
    why: str

    @property
    def of_torch(self) -> bool:
        return self.form == BESIDE_TORCH

    @property
    def sides(self) -> dict[str, bool]:
        """Which comparison shows it, for `check`."""
        return {"torch": self.of_torch, "own": not self.of_torch}

    def is_like(self, other: Failure) -> bool:
        """True if it is the same fault, as far as can be told: an error of the same class, or a wrong number."""
        return (self.kind, self.form, self._error()) == (other.kind, other.form, other._error())

    def _error(self) -> str:
        return self.why.strip().splitlines()[-1].split(":")[0] if self.why.startswith("Traceback") else ""

    def __str__(self) -> str:
        return f"{self.kind}, {self.form}: {self.why}"


class Side:
    """The results of a program on one side, computed when they are asked for."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.text = self.renderer().text(program)
        name = f"<program {program.seed} for {self.renderer.__name__.lower()}>"
        linecache.cache[name] = (len(self.text), None, self.text.splitlines(keepends=True), name)
        self.known: dict[str, Any] = {}
        exec(compile(self.text, name, "exec"), self.known)

    renderer: type[Snncell]


class InSnncell(Side):
    """The forms of a program in snncell."""

    renderer = Snncell

    def __init__(self, program: Program) -> None:
        super().__init__(program)
        self.forms = forms(self.known)

    def unfused(self, kind: str) -> list[Any]:
        """The results of a kind with nothing compiled, step by step on the tape."""
        with testing.unfused():
            return self.forms[kind, "eager"]()


class InTorch(Side):
    """The kinds of a program in PyTorch."""

    renderer = Torch

    def __init__(self, program: Program) -> None:
        from .in_torch import kinds

        super().__init__(program)
        self.kinds = kinds(self.known)

    def results(self, kind: str) -> list[Any]:
        """The arrays that a kind gives."""
        return [leaf.detach().numpy(force=True) for leaf in leaves(self.kinds[kind]())]


def difference(found: list[Any], expected: list[Any]) -> str:
    """The difference of results; nothing if they are the same."""
    if len(found) != len(expected):
        return f"{len(found)} results, expected {len(expected)}"
    for n, (a, b) in enumerate(zip(found, expected, strict=True)):
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
    """The faults of a program.

    Args:
        program: the program.
        kinds: what is asked of it.
        torch: whether PyTorch's results are compared.
        own: whether snncell's forms are compared with each other.
        only: the forms that are, if not all, as (kind, form).
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
            failures += _failure(kind, BESIDE_TORCH, lambda: expected, other.results(kind))  # noqa: B023
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
