"""From facts to findings: all rules, the worst finding first."""

from __future__ import annotations

from snncell.plot.reporting import (
    rules_of_activity,
    rules_of_epochs,
    rules_of_gradients,
    rules_of_potentials,
    rules_of_silence,
    rules_of_training,
)
from snncell.plot.reporting.facts import Facts
from snncell.plot.reporting.findings import Finding, by_severity

RULES = (
    *rules_of_training.RULES,
    *rules_of_epochs.RULES,
    *rules_of_gradients.RULES,
    *rules_of_silence.RULES,
    *rules_of_activity.RULES,
    *rules_of_potentials.RULES,
)


def diagnose(facts: Facts) -> tuple[Finding, ...]:
    """The findings of all rules, the worst first."""
    return by_severity(finding for rule in RULES for finding in rule(facts))
