"""The report of a program that fails: its text in snncell, made small, ready to run, and the failure."""

from __future__ import annotations

from .compare import Failure, check
from .forms import FORMS
from .render import Snncell, Torch
from .shrink import shrunk
from .syntax import Program


def described(program: Program) -> str:
    """The program's text in snncell."""
    return f"# seed {program.seed}\n{Snncell().text(program)}"


def minimised(program: Program, failure: Failure) -> str:
    """The smallest program found that fails as this one does: both texts, and how to see it fail."""

    def found(candidate: Program) -> list[Failure]:
        try:
            failures = check(candidate, (failure.kind,), only=[(failure.kind, failure.form)], **failure.sides)
        except Exception:  # PyTorch refuses it, or it is no program any more
            return []
        return [other for other in failures if other.is_like(failure)]

    small = shrunk(program, lambda candidate: bool(found(candidate)))
    why = str((found(small) or [failure])[0])
    parts = [f"=== seed {program.seed} fails: {failure.kind}, {failure.form}", described(small), _driver(failure)]
    if failure.of_torch:
        parts.append(f"# the same in PyTorch\n{Torch().text(small)}")
    return "\n\n".join([*parts, why])


def _driver(failure: Failure) -> str:
    """Lines that run a program in the form that fails, and as it should be; `programs` is the tests' package."""
    form = f"forms(globals())[{(failure.kind, failure.form if (failure.kind, failure.form) in FORMS else 'eager')!r}]"
    return "\n".join(
        [
            "# PYTHONPATH=tests/support",
            "from programs.forms import forms",
            "from snncell import testing",
            "",
            f'print("found", {form}())',
            "with testing.unfused():",
            f'    print("expected", forms(globals())[{(failure.kind, "eager")!r}]())',
        ]
    )
