"""Audit of surrogate gradients: is each framework's backward pass the derivative of the function that it documents?

`python -m snncell.testing.audit` prints a table of every surrogate of the installed frameworks, and a snippet for each
difference. `--only NAME` chooses a framework, `--markdown FILE` writes the report to a file. A surrogate need not be a
derivative of anything, so only a contradiction to the framework's own primitive or docstring counts as a difference.
"""

from __future__ import annotations

import argparse
import datetime
import platform
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np

from snncell.errors import ArgumentError
from snncell.testing.frameworks import FRAMEWORKS, Claim, Constants, Framework, Function, Spike

__all__ = ["AuditRow", "audit_framework", "audit_spike", "main"]

AGREES, DIFFERS, SILENT, SKIPPED = "agrees", "differs", "nothing claimed", "not audited"
TOLERANCE = 1e-4  # of the largest claimed derivative; the small terms that keep a logarithm finite are below it
STEP = 1e-6
# An odd offset keeps the points away from the kinks, which are at round numbers.
POINTS = np.linspace(-4.0, 4.0, 401) + 0.0013717
FAR = np.array([-10.0, -5.0, 5.0, 10.0], np.float32)
WIDE = np.linspace(-200.0, 200.0, 400_001)  # for the area under the derivative


@dataclass(frozen=True)
class AuditRow:
    """One comparison of a backward pass with a claim; `error` is relative to the largest claimed derivative."""

    spike: str
    verdict: str
    claim: str = ""
    error: float = 0.0
    note: str = ""
    snippet: str = ""


def derivative(claim: Claim, x: np.ndarray) -> np.ndarray:
    """The claimed derivative at some points: the formula, or central differences of the primitive."""
    if claim.kind == "derivative":
        return claim.function(x)
    with np.errstate(all="ignore"):
        slopes: np.ndarray = (claim.function(x + STEP) - claim.function(x - STEP)) / (2 * STEP)
    return slopes


def variants(spike: Spike) -> Iterator[Constants]:
    """The default constants, then for each constant the same ones with only this one changed."""
    yield spike.constants
    for name, value in spike.constants.items():
        changed = value + 1 if isinstance(value, int) else 1.5 * value + 0.25 * (value == 0)
        yield {**spike.constants, name: changed}


def compare(found: np.ndarray, claimed: np.ndarray) -> tuple[float, int, str]:
    """The worst error, relative to the largest claimed derivative; its index; and found / claimed if constant."""
    known = np.isfinite(claimed)
    largest = np.abs(claimed[known]).max() if known.any() else 0.0
    with np.errstate(all="ignore"):
        errors = np.where(known & np.isfinite(found), np.abs(found - claimed) / max(largest, 1e-12), np.inf)
    worst = int(np.argmax(errors))
    large = known & (np.abs(claimed) > 1e-2 * largest)
    ratios = found[large] / claimed[large]
    constant = ratios.size > 1 and np.ptp(ratios) <= 1e-3 * np.abs(ratios).max()
    return float(errors[worst]), worst, f"{np.median(ratios):.4g} times the claim" if constant else ""


def audit_spike(spike: Spike, template: str = "") -> list[AuditRow]:
    """Compare the backward pass of a spike function with its claims, for its constants and for changed ones."""
    default = spike.call(spike.constants)
    try:
        found = [(constants, spike.backward(constants)(POINTS)) for constants in variants(spike)]
        again, single = spike.backward(spike.constants)(POINTS), spike.backward(spike.constants)(FAR)
    except Exception as fault:  # another framework may raise anything, for example if an argument is required
        return [AuditRow(default, SKIPPED, note=f"{type(fault).__name__}: {str(fault)[:90]}")]
    if not np.array_equal(found[0][1], again, equal_nan=True):
        return [AuditRow(default, SILENT, note="the backward pass is random")]
    worst: dict[str, AuditRow] = {}
    for constants, slopes in found:
        for claim in spike.claims(constants):
            row = compare_claim(spike, constants, slopes, claim, template)
            # If the claim fails for the default constants, keep this row, because most users have these constants.
            known = worst.setdefault(claim.source, row)
            if known.verdict == AGREES and row.error > known.error:
                worst[claim.source] = row
    rows = list(worst.values()) or [AuditRow(default, SILENT)]
    rows[0] = replace(rows[0], note="; ".join(filter(None, [rows[0].note, describe(spike.backward(spike.constants))])))
    idle = [name for name in spike.constants if not has_effect(spike, name, found)]
    rows += [AuditRow(default, DIFFERS, f"its argument {name}", note=f"{name} has no effect") for name in idle]
    if not np.isfinite(single).all():
        place = int(np.argmin(np.isfinite(single)))
        values = {"x": FAR[place], "found": single[place], "claimed": 0.0, "kind": "derivative, about"}
        shown = show_snippet(template, spike, spike.constants, values | {"dtype": "float32"})
        rows.append(AuditRow(default, DIFFERS, "finite values in float32", np.inf, f"{single} at x = {FAR}", shown))
    return rows


def compare_claim(spike: Spike, constants: Constants, slopes: np.ndarray, claim: Claim, template: str) -> AuditRow:
    """The row of one comparison: a claim and the backward pass for the same constants."""
    claimed = derivative(claim, POINTS)
    error, place, note = compare(slopes, claimed)
    agrees = error <= TOLERANCE
    values = {"x": POINTS[place], "found": slopes[place], "claimed": claimed[place], "kind": claim.kind}
    shown = show_snippet(template, spike, constants, values | {"dtype": "float64"})
    name = f"{claim.kind}: {claim.source}"
    return AuditRow(spike.call(constants), AGREES if agrees else DIFFERS, name, error, "" if agrees else note, shown)


def show_snippet(template: str, spike: Spike, constants: Constants, values: dict[str, Any]) -> str:
    """Lines of Python that print the backward pass at the worst point."""
    arguments = ", ".join(f"{value:g}" for value in constants.values())
    return template.format(spike=spike.call(constants), name=spike.name, values=arguments, **values)


def has_effect(spike: Spike, name: str, found: Sequence[tuple[Constants, np.ndarray]]) -> bool:
    """Whether a changed constant changes the backward pass, or the function that it claims."""
    slopes, claims = found[0][1], spike.claims(spike.constants)
    for constants, moved in found:
        if constants[name] != spike.constants[name]:
            pairs = zip(claims, spike.claims(constants), strict=True)
            if np.array_equal(slopes, moved) and all(
                np.array_equal(one.function(POINTS), other.function(POINTS)) for one, other in pairs
            ):
                return False
    return True


def describe(backward: Function) -> str:
    """Information that is no fault: the area under the derivative, its symmetry and its sign."""
    wide, mirrored = backward(WIDE), backward(-POINTS)
    slopes = backward(POINTS)
    notes = [] if np.allclose(slopes, mirrored, atol=1e-6) else ["not symmetric"]
    if (slopes < -1e-9).any():
        notes.append("partly negative")
    finite = np.isfinite(wide)
    if finite.all() and np.abs(wide[[0, -1]]).max() < 1e-3:  # else it has no end, and no area
        notes.append(f"area {np.trapezoid(wide, WIDE):.3g}")
    return ", ".join(notes)


def audit_framework(framework: Framework) -> tuple[str, list[AuditRow]]:
    """The version of a framework, or the reason why it has none, and the findings for all of its surrogates."""
    try:
        module = import_module(framework.module)
    except Exception as fault:  # a broken installation is a result, too
        missing = isinstance(fault, ModuleNotFoundError) and fault.name == framework.package
        return ("is not installed" if missing else f"is not audited, because its import fails: {fault}"), []
    try:
        found = version(framework.package)
    except PackageNotFoundError:  # imported from a folder
        found = str(getattr(import_module(framework.package), "__version__", "of an unknown version"))
    return found, [row for spike in framework.spikes(module) for row in audit_spike(spike, framework.snippet)]


# --- neurons of SpikingJelly: 100 steps with smooth spikes ------------------------------------------------------------


TRUNCATED = {"SLTTLIFNode"}  # its docstring says that it truncates the temporal gradient


def audit_neurons(steps: int = 100, neurons: int = 3) -> list[AuditRow]:
    """Gradients through time of every neuron that takes a surrogate, with spikes by its primitive, in float64."""
    torch, functional = import_module("torch"), import_module("spikingjelly.activation_based.functional")
    neuron = import_module("spikingjelly.activation_based.neuron")
    sigmoid = import_module("spikingjelly.activation_based.surrogate").Sigmoid(spiking=False)
    base, rows = neuron.BaseNode, []
    for name, kind in sorted(vars(neuron).items()):
        if not (isinstance(kind, type) and issubclass(kind, base) and kind is not base):
            continue
        try:
            node = kind(surrogate_function=sigmoid, step_mode="s").double()
        except Exception as fault:
            rows.append(AuditRow(name, SKIPPED, note=f"needs other arguments: {str(fault)[:60]}"))
            continue
        weights = torch.linspace(0.5, 1.5, steps * neurons, dtype=torch.float64).reshape(steps, neurons)

        def loss(x: Any, node: Any = node, weights: Any = weights) -> Any:
            functional.reset_net(node)
            torch.manual_seed(0)
            return (torch.stack([node(now) for now in x]) * weights).sum()

        rows.append(check_through_time(name, loss, torch, steps, neurons))
    return rows


def check_through_time(name: str, loss: Callable[[Any], Any], torch: Any, steps: int, neurons: int) -> AuditRow:
    """Compare the gradient of a loss over all steps with finite differences in a random direction."""
    generator = torch.Generator().manual_seed(1)
    x = 1.5 * torch.rand(steps, neurons, dtype=torch.float64, generator=generator)
    way = torch.randn(steps, neurons, dtype=torch.float64, generator=generator)
    try:
        leaf = x.clone().requires_grad_(True)
        loss(leaf).backward()
        slope = float((leaf.grad * way).sum())
        with torch.no_grad():
            coarse, fine = ((float(loss(x + h * way)) - float(loss(x - h * way))) / (2 * h) for h in (1e-5, 1e-6))
    except Exception as fault:
        return AuditRow(name, SKIPPED, note=f"{type(fault).__name__}: {str(fault)[:90]}")
    size = max(abs(fine), 1e-9)
    if abs(coarse - fine) > 1e-4 * size:
        return AuditRow(name, SILENT, note="not smooth with a smooth surrogate")
    error = abs(slope - fine) / size
    if name in TRUNCATED:
        return AuditRow(name, SILENT, error=error, note="no gradient through time, as documented")
    return AuditRow(name, AGREES if error < TOLERANCE else DIFFERS, f"{steps} steps, finite differences", error)


# --- the report -------------------------------------------------------------------------------------------------------


def report(frameworks: Sequence[Framework]) -> Iterator[str]:
    """The lines of the report, in Markdown."""
    yield f"Date: {datetime.date.today()}. Python {platform.python_version()}, NumPy {np.__version__}."
    for framework in frameworks:
        found, rows = audit_framework(framework)
        if framework.package == "spikingjelly" and rows:
            rows = [*rows, *audit_neurons()]
        verdicts = (AGREES, DIFFERS, SILENT, SKIPPED)
        counts = ", ".join(f"{sum(row.verdict == verdict for row in rows)} {verdict}" for verdict in verdicts)
        yield from ("", f"## {framework.package} {found}", "", counts if rows else "No surrogate to audit.")
        if rows:
            yield from ("", "| surrogate | compared with | result | error | note |", "| --- | --- | --- | --- | --- |")
        for row in rows:
            cells = (row.spike, row.claim, row.verdict, f"{row.error:.1e}" if row.claim else "", row.note)
            yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
        for row in rows:
            if row.verdict == DIFFERS and row.snippet:
                yield from ("", f"{row.spike}, {row.claim}:", "", "```python", row.snippet, "```")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the audit: the command line of `python -m snncell.testing.audit`."""
    parser = argparse.ArgumentParser(prog="python -m snncell.testing.audit", description=__doc__)
    parser.add_argument("--only", metavar="NAME", help="audit only this package, for example snntorch")
    parser.add_argument("--markdown", metavar="FILE", help="write the report to a file")
    chosen = parser.parse_args(arguments)
    known = [framework for framework in FRAMEWORKS if chosen.only in (None, framework.package)]
    if not known:
        names = ", ".join(framework.package for framework in FRAMEWORKS)
        raise ArgumentError(f"audit: --only must be one of {names}, not {chosen.only!r}.")
    lines = []
    for line in report(known):
        print(line, flush=True)
        lines.append(line)
    if chosen.markdown:
        with open(chosen.markdown, "w", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    with suppress(BrokenPipeError):
        main()
