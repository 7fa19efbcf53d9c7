"""Invalid calls of the whole public API: none ends in a foreign error, a crash, or a hang.

A sample of the calls runs by default, and it is fixed so that failures can be repeated. WRONG_CALLS=different in the
environment runs about half of them, those that differ most. To run all of them, set WRONG_CALLS=all, or run
`python tests/support/wrong_calls.py`.
"""

from __future__ import annotations

import collections
import gc
import os
import warnings

import pytest
import wrong_calls
from matplotlib import pyplot
from random_cases import seeds

pytestmark = pytest.mark.uncompiled
SAMPLE = 1500
JOBS = {"all": lambda: wrong_calls.calls([]), "different": wrong_calls.most_different}
CHOSEN = os.environ.get("WRONG_CALLS", "")
SUBJECTS = {subject.name: subject for subject in wrong_calls.subjects()}
UNNAMED, NONSENSE = 0.008, 0.001  # fractions of all calls, at most


@pytest.fixture(scope="module")
def outcomes():
    return list(wrong_calls.run(JOBS[CHOSEN]() if CHOSEN else wrong_calls.sample(SAMPLE)))


@pytest.mark.sampled(107)
@pytest.mark.parametrize("name", SUBJECTS)
def test_valid_call_succeeds(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # a report is a file
    subject = SUBJECTS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an animation that is never shown
        wrong_calls.call(subject, {})
        pyplot.close("all")
        if name == "animate":
            gc.collect()  # the animation warns when it is deleted


def test_no_invalid_call_ends_in_a_foreign_error(outcomes):
    found = {
        f"{name}, {argument} = {wrong}": text for name, argument, wrong, what, text in outcomes if what == "foreign"
    }
    assert not found, "\n".join(f"{call}: {text}" for call, text in sorted(found.items()))


@pytest.mark.random
def test_several_unusual_arguments_cause_no_foreign_error_crash_or_hang():
    outcomes = wrong_calls.run(wrong_calls.several(len(seeds(200))))
    found = [one for one in outcomes if one[3] in ("foreign", "crash", "hang")]
    assert not found, found


# One call of each kind that once ended in an error of Python, NumPy or Matplotlib, or accepted nonsense.
FIXED = [
    *(
        (f"{name}.init_state()", "x", wrong)
        for name in ("LIFNode", "AdExNode", "Recurrent")
        for wrong in ("None", "str")
    ),
    ("Parameter", "default_input", "np.ndarray"),
    ("Tensor", "data", "np.ndarray"),
    ("explain", "inputs", "Cell class"),
    ("AdExNode", "v_reset", "2**70"),
    ("ALIFNode", "alpha", "array of complex128"),
    ("STDP()", "pre", "Tensor of no steps"),
    ("WithSynapse()", "x", "np.ndarray"),
    ("arange", "start", "-2**70"),
    ("arange", "start & stop", "2**70 & right"),
    ("linspace", "end", "2**70"),
    ("norm", "ord & dim", "inf & []"),
    ("fit", "data", "np.ndarray"),
    ("animate", "images", "empty array"),
    ("psth", "spikes", "Tensor of no steps"),
    ("psth", "spikes", "empty array"),
    ("raster", "spikes", "Tensor of no steps"),
    ("surrogate", "range", "(0, 2**70)"),
]


@pytest.mark.parametrize(("name", "arguments", "wrong"), FIXED)
def test_former_failures_raise_snncell_errors_or_succeed(name, arguments, wrong):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found, text = wrong_calls.outcome(SUBJECTS[name], arguments, wrong)
    pyplot.close("all")
    assert found in ("named", "unnamed", "taken"), text


@pytest.mark.parametrize("outcome", ["crash", "hang"])
def test_no_invalid_call_ends_in_a_bad_outcome(outcomes, outcome):
    found = [f"{name}, {argument} = {wrong}" for name, argument, wrong, what, _ in outcomes if what == outcome]
    assert not found, "\n".join(found)


@pytest.mark.skipif(not CHOSEN, reason="too few calls for shares: WRONG_CALLS=all")
def test_errors_name_the_argument_and_nonsense_is_rarely_accepted(outcomes):
    counts = collections.Counter(what for *_, what, _ in outcomes)
    total = len(wrong_calls.calls([]))  # most calls with these outcomes are also among the different ones
    assert counts["unnamed"] <= UNNAMED * total, wrong_calls.table(outcomes)
    assert counts["nonsense"] <= NONSENSE * total, wrong_calls.table(outcomes)


def test_bad_outcomes_are_classified_correctly():
    """The classification: a Python error is foreign, and an snncell error without the argument's name is unnamed."""
    subject = next(subject for subject in wrong_calls.subjects() if subject.name == "Dense")
    broken = subject._replace(make=lambda: lambda **_: len(3))
    assert wrong_calls.outcome(broken, "in_channels", "str")[0] == "foreign"

    def mute(**_: object) -> None:
        raise wrong_calls.SnncellError("no")

    assert wrong_calls.outcome(subject._replace(make=lambda: mute), "in_channels", "str")[0] == "unnamed"
    assert wrong_calls.outcome(subject._replace(make=lambda: lambda **_: None), "in_channels", "str")[0] == "nonsense"
    assert wrong_calls.outcome(subject, "in_channels", "str")[0] == "named"
