"""Wrong calls of everything public: none ends in an error of something below, a crash, or no answer.

A sample of them by default, another one each day is no test that can be repeated, so always the same; all of them with
WRONG_CALLS=all in the environment, or by `python tests/support/wrong_calls.py`.
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
ALL = os.environ.get("WRONG_CALLS") == "all"
SAMPLE = 1500
SUBJECTS = {subject.name: subject for subject in wrong_calls.subjects()}
UNNAMED, NONSENSE = 0.008, 0.001  # of all calls, at most


@pytest.fixture(scope="module")
def outcomes():
    jobs = wrong_calls.calls([]) if ALL else wrong_calls.sample(SAMPLE)
    return list(wrong_calls.run(jobs))


@pytest.mark.sampled(107)
@pytest.mark.parametrize("name", SUBJECTS)
def test_a_right_call_is_right(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # a report is a file
    subject = SUBJECTS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a film that nobody plays
        wrong_calls.call(subject, {})
        pyplot.close("all")
        if name == "animate":
            gc.collect()  # the film says so as it goes


def test_no_wrong_call_ends_in_a_foreign_error(outcomes):
    found = {
        f"{name}, {argument} = {wrong}": text for name, argument, wrong, what, text in outcomes if what == "foreign"
    }
    assert not found, "\n".join(f"{call}: {text}" for call, text in sorted(found.items()))


@pytest.mark.random
def test_no_call_with_several_unusual_arguments_ends_in_a_foreign_error_or_badly():
    outcomes = wrong_calls.run(wrong_calls.several(len(seeds(200))))
    found = [one for one in outcomes if one[3] in ("foreign", "crash", "hang")]
    assert not found, found


# Calls that ended in errors of Python, NumPy or Matplotlib, or that took nonsense, one of each kind.
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
def test_these_calls_end_in_an_error_of_snncell_or_make_sense(name, arguments, wrong):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found, text = wrong_calls.outcome(SUBJECTS[name], arguments, wrong)
    pyplot.close("all")
    assert found in ("named", "unnamed", "taken"), text


@pytest.mark.parametrize("outcome", ["crash", "hang"])
def test_no_wrong_call_ends_badly(outcomes, outcome):
    found = [f"{name}, {argument} = {wrong}" for name, argument, wrong, what, _ in outcomes if what == outcome]
    assert not found, "\n".join(found)


@pytest.mark.skipif(not ALL, reason="shares are of all calls: WRONG_CALLS=all")
def test_errors_name_the_callable_and_the_argument_and_nonsense_is_refused(outcomes):
    counts = collections.Counter(what for *_, what, _ in outcomes)
    assert counts["unnamed"] <= UNNAMED * len(outcomes), wrong_calls.table(outcomes)
    assert counts["nonsense"] <= NONSENSE * len(outcomes), wrong_calls.table(outcomes)


def test_a_bad_outcome_is_seen():
    """The classification itself: an error of Python's is foreign, one of ours that says too little is unnamed."""
    subject = next(subject for subject in wrong_calls.subjects() if subject.name == "Dense")
    broken = subject._replace(make=lambda: lambda **_: len(3))
    assert wrong_calls.outcome(broken, "in_channels", "str")[0] == "foreign"

    def mute(**_: object) -> None:
        raise wrong_calls.SnncellError("no")

    assert wrong_calls.outcome(subject._replace(make=lambda: mute), "in_channels", "str")[0] == "unnamed"
    assert wrong_calls.outcome(subject._replace(make=lambda: lambda **_: None), "in_channels", "str")[0] == "nonsense"
    assert wrong_calls.outcome(subject, "in_channels", "str")[0] == "named"
