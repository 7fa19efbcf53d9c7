"""Wrong calls of everything public: none ends in an error of something below (but those listed), a crash, or no answer.

A sample of them by default, another one each day is no test that can be repeated, so always the same; all of them with
WRONG_CALLS=all in the environment, or by `python tests/wrong_calls.py`.
"""

from __future__ import annotations

import collections
import gc
import os
import warnings
from pathlib import Path

import pytest
import wrong_calls
from matplotlib import pyplot

ALL = os.environ.get("WRONG_CALLS") == "all"
SAMPLE = 1500
UNNAMED, NONSENSE = 0.039, 0.0131  # of all calls, at most: what is reached, to be made less
# Calls that end in a foreign error all the same: no others may, and whoever mends one takes it off.
KNOWN = set((Path(__file__).parent / "wrong_calls_known.txt").read_text(encoding="utf-8").splitlines())


@pytest.fixture(scope="module")
def outcomes():
    jobs = wrong_calls.calls([]) if ALL else wrong_calls.sample(SAMPLE)
    return list(wrong_calls.run(jobs))


@pytest.mark.parametrize("name", [subject.name for subject in wrong_calls.subjects()])
def test_a_right_call_is_right(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # a report is a file
    (subject,) = [subject for subject in wrong_calls.subjects() if subject.name == name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a film that nobody plays
        wrong_calls.call(subject, None, None)
        pyplot.close("all")
        if name == "animate":
            gc.collect()  # the film says so as it goes


def test_no_wrong_call_ends_in_a_foreign_error(outcomes):
    found = {
        f"{name}, {argument} = {wrong}": text for name, argument, wrong, what, text in outcomes if what == "foreign"
    }
    assert not found.keys() - KNOWN, "\n".join(f"{call}: {found[call]}" for call in sorted(found.keys() - KNOWN))
    if ALL:
        mended = KNOWN - found.keys()
        assert not mended, f"mended, to be taken off wrong_calls_known.txt: {sorted(mended)}"


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
