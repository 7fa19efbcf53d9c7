"""Report of a failing program: reduced, as text that you can run, with the failure."""

from __future__ import annotations

from .compare import Failure, check
from .forms import FORMS
from .render import Snncell, Torch
from .shrink import shrink
from .syntax import Program


def program_text(program: Program) -> str:
    """Return the text of a program for snncell."""
    return f"# seed {program.seed}\n{Snncell().text(program)}"


def report_failure(program: Program, failure: Failure) -> str:
    """Reduce a program, and return its text, code that shows the failure, and the failure."""

    def same_failures(candidate: Program) -> list[Failure]:
        try:
            failures = check(candidate, (failure.kind,), only=[(failure.kind, failure.form)], **failure.sides)
        except Exception:  # PyTorch refuses it, or the program is invalid
            return []
        return [other for other in failures if other.is_like(failure)]

    small = shrink(program, lambda candidate: bool(same_failures(candidate)))
    why = str((same_failures(small) or [failure])[0])
    parts = [f"=== seed {program.seed} fails: {failure.kind}, {failure.form}", program_text(small), _driver(failure)]
    if failure.of_torch:
        parts.append(f"# the same in PyTorch\n{Torch().text(small)}")
    return "\n\n".join([*parts, why])


def _driver(failure: Failure) -> str:
    """Return lines that run a program in the failing form and on the tape."""
    form = f"forms(globals())[{(failure.kind, failure.form if (failure.kind, failure.form) in FORMS else 'eager')!r}]"
    return "\n".join(
        [
            "# PYTHONPATH=tests/support",
            "from programs.forms import forms",
            "from snncell import testing",
            "",
            f'print("result", {form}())',
            "with testing.unfused():",
            f'    print("expected", forms(globals())[{(failure.kind, "eager")!r}]())',
        ]
    )
