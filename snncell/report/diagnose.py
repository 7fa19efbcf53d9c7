"""Diagnosis: judge all measures of the facts by the table of rules, the worst finding first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from snncell.report import activity, gradients, training
from snncell.report.facts import Facts
from snncell.report.findings import Finding, by_severity
from snncell.report.rules import RULES

MEASURES = (*training.MEASURES, *gradients.MEASURES, *activity.MEASURES)


def diagnose(facts: Facts) -> tuple[Finding, ...]:
    """The findings of all rules, the worst first."""
    judged = []
    for measure in MEASURES:
        for measurement in measure(facts):
            rule = RULES[measurement.rule]
            finding = rule.judge(measurement)
            if finding is not None:
                judged.append((rule, finding))
    blocking = _blocking(facts, [finding for _, finding in judged])
    return by_severity(
        _explain_finding(facts, finding, blocking) if rule.follows else finding for rule, finding in judged
    )


def _explain_finding(facts: Facts, finding: Finding, blocking: Sequence[tuple[str, str]]) -> Finding:
    """The finding, as a note if it follows from a layer at its place or after it that no gradient passes."""
    names = [layer.name for layer in facts.layers]
    place = names.index(finding.layer) if finding.layer in names else 0
    for what, name in blocking:
        if names.index(name) >= place:
            text = f"{finding.text} It follows from the {what} of {name}."
            return replace(finding, severity="note", text=text, mend=f"Mend {name} first.")
    return finding


def _blocking(facts: Facts, findings: Sequence[Finding]) -> list[tuple[str, str]]:
    """The layers in the way of gradients: those that none can wake, slept through a training, or see too little."""
    silent = {layer.name for layer in facts.layers if layer.silent}
    quiet = [
        ("silence", finding.layer)
        for finding in findings
        if finding.kind in ("dead", "silent output")
        and (finding.severity == "alarm" or (finding.severity == "warning" and finding.layer in silent))
    ]
    return quiet + [("narrow surrogate", finding.layer) for finding in findings if finding.kind == "narrow surrogate"]
