"""The audit of gradients: snncell's surrogates agree, and planted faults of a fake framework are found."""

import sys
import types

import numpy as np
import pytest

from snncell import surrogate
from snncell.errors import ArgumentError
from snncell.testing import audit
from snncell.testing.frameworks import FRAMEWORKS, Claim, Framework, Spike

ROWS = {framework.package: framework for framework in FRAMEWORKS}


def bell(x, k):
    return k / 4 / np.cosh(k * x / 2) ** 2


def spike(backward, kind="primitive", **constants):
    """A logistic function of sharpness k, with a backward pass of your choice."""
    formula = {"primitive": lambda x, k: 0.5 + 0.5 * np.tanh(k * x / 2), "derivative": bell}[kind]
    constants = constants or {"k": 1.0}
    return Spike(
        "Fake",
        constants,
        lambda c: lambda x: backward(x, **c),
        lambda c: [Claim(kind, "formula", lambda x: formula(x, **c))],
    )


def test_own_surrogates_agree_and_none_is_left_out():
    _, rows = audit.audit_framework(ROWS["snncell"])
    assert {row.verdict for row in rows} == {audit.AGREES}
    kinds = (name for name in surrogate.__all__ if isinstance(getattr(surrogate, name), type))
    expected = {name for name in kinds if issubclass(getattr(surrogate, name), surrogate.Surrogate)} - {"Surrogate"}
    assert {row.spike.split("(")[0] for row in rows} == expected


@pytest.mark.parametrize("kind", ["primitive", "derivative"])
def test_correct_backward_agrees(kind):
    assert [row.verdict for row in audit.audit_spike(spike(bell, kind))] == [audit.AGREES]


@pytest.mark.parametrize(
    ("backward", "note"),
    [
        (lambda x, k: 1.001 * bell(x, k), "1.001 times the claim"),
        (lambda x, k: -bell(x, k), "-1 times the claim"),
        (lambda x, k: bell(x, 1 / k), "times"),  # correct by default, where k is 1, as a sigma in the wrong place
        (lambda x, k: bell(x, k) / k, "0.6667 times the claim"),
        (lambda x, k: bell(x, 1.0), ""),
        (lambda x, k: bell(x, k) * np.where(x > 3.9, np.nan, 1.0), ""),
    ],
)
@pytest.mark.parametrize("kind", ["primitive", "derivative"])
def test_planted_fault_is_found(kind, backward, note):
    rows = audit.audit_spike(spike(backward, kind), "{spike} {x} {found} {claimed} {kind}")
    assert rows[0].verdict == audit.DIFFERS
    assert note in rows[0].note or note == "times"
    assert rows[0].snippet.startswith("Fake(k=") and rows[0].snippet.endswith(kind)


def test_argument_without_effect_is_found():
    idle = Spike("Fake", {"k": 1.0}, lambda c: lambda x: 1 / (1 + abs(x)) ** 2)
    assert [row.note for row in audit.audit_spike(idle)][1:] == ["k has no effect"]


def test_overflow_in_float32_is_found():
    def overflows(x, k):
        e = np.exp(-k * x)
        return k * e / (e + 1) ** 2

    with np.errstate(all="ignore"):
        rows = audit.audit_spike(spike(overflows, k=25.0))
    assert [row.claim for row in rows if row.verdict == audit.DIFFERS] == ["finite values in float32"]


def test_missing_random_and_broken_spikes_are_no_findings(rng):
    noise = audit.audit_spike(spike(lambda x, k: rng.random(x.shape)))
    broken = audit.audit_spike(spike(lambda x: x))
    assert [noise[0].verdict, broken[0].verdict] == [audit.SILENT, audit.SKIPPED]
    assert broken[0].note.startswith("TypeError: ")
    silent = audit.audit_spike(Spike("Fake", {}, lambda c: lambda x: np.ones_like(x)))
    assert [row.verdict for row in silent] == [audit.SILENT]


def test_report_names_missing_packages_and_writes_markdown(monkeypatch, tmp_path, capsys):
    fake = types.ModuleType("fake_snn")
    fake.__version__ = "7.0"
    monkeypatch.setitem(sys.modules, "fake_snn", fake)
    rows = (
        Framework("fake_snn", "fake_snn", lambda module: iter([spike(lambda x, k: 2 * bell(x, k))]), "print({x})"),
        Framework("no_such_snn", "no_such_snn", iter, ""),
    )
    monkeypatch.setattr(audit, "FRAMEWORKS", rows)
    audit.main(["--markdown", str(tmp_path / "page.md")])
    printed = capsys.readouterr().out
    assert (tmp_path / "page.md").read_text(encoding="utf-8") == printed
    assert "## fake_snn 7.0" in printed and "## no_such_snn is not installed" in printed
    assert "2 times the claim" in printed and "```python\nprint(" in printed
    with pytest.raises(ArgumentError, match="--only must be one of fake_snn, no_such_snn, not 'torch'"):
        audit.main(["--only", "torch"])


@pytest.mark.peer
@pytest.mark.parametrize("package", [package for package in ROWS if package not in ("snncell", "eventax")])
def test_surrogates_of_installed_framework_are_audited(package):
    found, rows = audit.audit_framework(ROWS[package])
    if not rows:
        pytest.skip(f"{package} {found}: nothing to audit")
    assert {row.verdict for row in rows} & {audit.AGREES, audit.DIFFERS}
    faults = {row.spike.split("(")[0] for row in rows if row.verdict == audit.DIFFERS}
    if found == "0.1.10" and package == "braintools":  # the faults that its version 0.2.0 fixed
        assert {"ERF", "GaussianGrad", "Arctan", "PiecewiseQuadratic"} <= faults
    if package == "spikingjelly":
        assert not faults
        assert not [row for row in audit.audit_neurons(steps=20) if row.verdict == audit.DIFFERS]
