"""Poisson patterns and tasks of spike times: labels that follow from the spikes, and their distributions."""

import inspect

import numpy as np
import pytest

import snncell
from snncell import data
from snncell.errors import ArgumentError


def near(count, draws, probability):
    """True if a binomial count is within six standard deviations."""
    return abs(count - draws * probability) <= 6 * np.sqrt(draws * probability * (1 - probability))


# --- Poisson patterns -------------------------------------------------------------------------------------------------

SMALL = {"classes": 4, "units": 30, "samples": 25, "steps": 60}


def test_without_disturbance_all_samples_of_a_class_are_its_template():
    patterns, labels = data.poisson_patterns(**SMALL, rate=0.1, seed=0)
    assert patterns.shape == (60, 100, 30) and patterns.dtype == np.float32 and labels.dtype == np.int64
    assert np.bincount(labels).tolist() == [25] * 4 and (np.diff(labels) != 0).any()
    templates = np.stack([patterns[:, labels == label][:, 0] for label in range(4)], 1)
    np.testing.assert_array_equal(patterns, templates[:, labels])
    assert near(templates.sum(), templates.size, 0.1)
    assert near((templates[:, 0] * templates[:, 1]).sum(), templates[:, 0].size, 0.01)  # one knows nothing of the other


def test_deletions_and_insertions_come_as_often_as_they_should():
    settings = {"classes": 1, "units": 40, "samples": 200, "steps": 100, "rate": 0.2}
    template = data.poisson_patterns(**settings, seed=3)[0][:, :1] > 0
    deleted = data.poisson_patterns(**settings, deletions=0.3, seed=3)[0] > 0
    assert not (deleted & ~template).any()
    assert near(deleted.sum(), 200 * template.sum(), 0.7)
    inserted = data.poisson_patterns(**settings, insertions=0.04, seed=3)[0] > 0
    assert (inserted >= template).all()
    assert near((inserted & ~template).sum(), 200 * (~template).sum(), 0.04)


def test_jitter_moves_spikes_as_far_as_it_says():
    settings = {"classes": 1, "units": 2000, "samples": 20, "steps": 400, "rate": 1 / 400}
    template = data.poisson_patterns(**settings, seed=5)[0][:, 0]
    moved = data.poisson_patterns(**settings, jitter=3.0, seed=5)[0]
    lonely = (template.sum(0) == 1) & (template[20:-20].sum(0) == 1)  # one spike, far from the ends
    assert (moved.sum(0)[:, lonely] == 1).all()
    distance = moved.argmax(0)[:, lonely] - template.argmax(0)[lonely]
    variance = 9.0 + 1 / 12  # rounding adds a twelfth
    assert abs(distance.mean()) < 6 * np.sqrt(variance / distance.size)
    assert abs(distance.var() - variance) < 6 * variance * np.sqrt(2 / distance.size)
    edge = data.poisson_patterns(1, 10, 50, 3, rate=1.0, jitter=50.0, seed=0)[0]
    assert edge.sum() < 0.2 * edge.size  # what moves out of the pattern is lost


def test_the_nearest_template_tells_disturbed_patterns_apart_and_counts_do_not():
    patterns, labels = data.poisson_patterns(
        8, 40, 60, 80, rate=0.05, jitter=1.0, deletions=0.2, insertions=0.01, seed=1
    )
    seen = np.apply_along_axis(np.convolve, 0, patterns, np.hanning(9), "same").transpose(1, 0, 2).reshape(480, -1)
    centres = np.stack([seen[:240][labels[:240] == label].mean(0) for label in range(8)])
    assert (((seen[240:, None] - centres) ** 2).sum(2).argmin(1) == labels[240:]).mean() > 0.98


# --- tasks ------------------------------------------------------------------------------------------------------------

TASKS = {
    "pulse_order": {"steps": 12, "lines": 3},
    "delay_xor": {"jitter": 1.0},
    "delayed_match": {"cues": 3, "cue": 5, "delay": 4, "units": 4},
    "store_recall": {"slots": 4, "slot": 3, "units": 2},
    "cue_accumulation": {"cues": 3, "cue": 4, "pause": 2, "delay": 3, "decision": 2, "units": 2},
    "adding_problem": {"steps": 9},
    "poisson_patterns": {"classes": 2, "units": 3, "steps": 9},
}


@pytest.mark.parametrize("name", TASKS)
def test_a_seed_gives_the_same_data_and_set_seed_decides_without_one(name):
    make, settings = getattr(data, name), TASKS[name]
    first, again, other = (make(samples=40, seed=seed, **settings) for seed in (4, 4, 5))
    assert all(a.tobytes() == b.tobytes() for a, b in zip(first, again, strict=True))
    assert first[0].tobytes() != other[0].tobytes()
    assert first[0].dtype == np.float32 and first[0].ndim == 3
    draws = []
    for seed in (1, 1, 2):
        snncell.set_seed(seed)
        draws.append(make(samples=40, **settings)[0].tobytes())
    assert draws[0] == draws[1] != draws[2]


@pytest.mark.parametrize("name", TASKS)
def test_one_sample_and_the_least_of_everything(name):
    least = {"cues": 1} if name == "cue_accumulation" else {}
    if name == "delayed_match":
        least = {"cues": 2, "cue": 1, "delay": 0, "units": 1}
    x, _ = getattr(data, name)(samples=1, seed=0, **least)
    assert x.ndim == 3 and np.isfinite(x).all()
    with pytest.raises(ArgumentError, match=f"{name}: samples is an integer of at least 1, not 0"):
        getattr(data, name)(samples=0)
    with pytest.raises(ArgumentError, match=f"{name}: seed is an integer of at least 0, not -1"):
        getattr(data, name)(seed=-1)
    assert inspect.signature(getattr(data, name)).parameters["seed"].default is None


@pytest.mark.parametrize(("steps", "lines"), [(50, 2), (5, 5), (30, 4)])
def test_the_label_is_the_line_whose_pulse_is_first(steps, lines):
    spikes, labels = data.pulse_order(3000, steps, lines, seed=1)
    assert spikes.shape == (steps, 3000, lines) and labels.dtype == np.int64
    assert (spikes.sum(0) == 1).all() and spikes.sum(2).max() == 1
    np.testing.assert_array_equal(spikes.argmax(0).argmin(1), labels)
    assert all(near((labels == line).sum(), 3000, 1 / lines) for line in range(lines))
    assert all(near(count, 3000, lines / steps) for count in spikes.sum((1, 2)))  # every time as often


def test_the_label_is_whether_the_delays_differ():
    spikes, labels = data.delay_xor(2000, steps=25, early=3, late=12, seed=2)
    times = spikes.argmax(0)
    assert (spikes.sum(0) == 1).all() and (times[:, 0] == 3).all() and set(np.unique(times)) == {3, 12}
    np.testing.assert_array_equal(labels, times[:, 1] != times[:, 2])
    for case in ((3, 3), (3, 12), (12, 3), (12, 12)):
        assert near((times[:, 1:] == case).all(1).sum(), 2000, 0.25)
    jittered, same = data.delay_xor(2000, steps=25, early=3, late=12, jitter=1.5, seed=2)
    np.testing.assert_array_equal(same, labels)
    moved = jittered.argmax(0)[:, 1:] - times[:, 1:]
    inside, variance = moved[times[:, 1:] == 12], 1.5**2 + 1 / 12
    assert (jittered.argmax(0)[:, 0] == 3).all() and abs(inside.var() - variance) < 6 * variance * np.sqrt(
        2 / len(inside)
    )
    extreme = data.delay_xor(500, steps=4, early=0, late=3, jitter=20.0, seed=0)[0]
    assert (extreme.sum(0) == 1).all()


@pytest.mark.parametrize("cues", [2, 5])
def test_the_label_is_whether_both_cues_are_the_same(cues):
    spikes, labels = data.delayed_match(600, cues, cue=15, delay=20, units=8, rate=0.5, noise=0.02, seed=3)
    populations = spikes.reshape(50, 600, cues, 8)
    first, second = populations[:15].sum((0, 3)), populations[-15:].sum((0, 3))
    np.testing.assert_array_equal(first.argmax(1) == second.argmax(1), labels == 1)
    assert near(labels.sum(), 600, 0.5) and near((first.argmax(1) == 0).sum(), 600, 1 / cues)
    assert near(first.max(1).sum(), 600 * 15 * 8, 0.5)
    assert near(populations[15:35].sum(), populations[15:35].size, 0.02)


def test_what_is_recalled_is_what_was_stored_last():
    slots, slot, units = 12, 5, 3
    spikes, labels = data.store_recall(400, slots, slot, units, rate=1.0, command=0.25, seed=4)
    assert spikes.shape == (60, 400, 12) and labels.shape == (60, 400) and labels.dtype == np.int64
    active = spikes.reshape(slots, slot, 400, 4, units)
    assert (active == active[:, :1, :, :, :1]).all()  # at a rate of 1 whole populations, all slot long
    bits, store, recall = active[:, 0, :, :2, 0], active[:, 0, :, 2, 0], active[:, 0, :, 3, 0]
    assert (store[0] == 1).all() and (recall[-1] == 1).all() and not (store * recall).any()
    np.testing.assert_array_equal(bits.sum(2), 1 - recall)
    for sample in range(400):
        stored = None
        for number in range(slots):
            stored = bits[number, sample].argmax() if store[number, sample] else stored
            found = labels[number * slot : (number + 1) * slot, sample]
            assert (found == (stored if recall[number, sample] else -100)).all()
    middle = 400 * (slots - 2)
    assert near(store[1:-1].sum(), middle, 0.25) and near(recall[1:-1].sum(), middle, 0.25)
    quiet = data.store_recall(50, slots, slot, units, rate=0.3, noise=0.05, seed=1)[0]
    loud = data.store_recall(50, slots, slot, units, rate=1.0, seed=1)[0] > 0
    assert near(quiet[loud].sum(), loud.sum(), 0.3) and near(quiet[~loud].sum(), (~loud).sum(), 0.05)


def test_the_label_is_the_side_that_had_more_cues():
    sizes = {"cues": 5, "cue": 10, "pause": 4, "delay": 30, "decision": 6, "units": 7}
    spikes, labels = data.cue_accumulation(500, **sizes, rate=0.6, noise=0.1, seed=5)
    assert spikes.shape == (5 * 14 + 36, 500, 28)
    populations = spikes.reshape(-1, 500, 4, 7).sum(3)
    cues = populations[:70].reshape(5, 14, 500, 4)
    heard = cues[:, :10].sum(1)[:, :, :2]
    assert ((heard > 0).sum(2) == 1).all() and not cues[:, 10:, :, :3].any()
    np.testing.assert_array_equal(heard.argmax(2).sum(0) > 2, labels == 1)
    assert not populations[70:, :, :2].any() and not populations[:-6, :, 2].any()
    assert near(populations[-6:, :, 2].sum(), 6 * 500 * 7, 0.6)
    assert near(populations[:, :, 3].sum(), len(spikes) * 500 * 7, 0.1)
    more = np.abs(2 * heard.argmax(2).sum(0) - 5)  # by how many cues
    at_least_four = 0.7**5 + 0.3**5 + 5 * (0.7**4 * 0.3 + 0.3**4 * 0.7)
    assert near((more >= 3).sum(), 500, at_least_four) and near(labels.sum(), 500, 0.5)
    assert (data.cue_accumulation(30, **sizes, rate=1.0, bias=1.0, seed=0)[0][:70, :, :14].sum((0, 2)) == 350).all()


def test_the_sum_is_that_of_the_two_marked_numbers():
    x, sums = data.adding_problem(4000, 20, seed=6)
    assert x.shape == (20, 4000, 2) and sums.dtype == np.float32
    assert (x[:10, :, 1].sum(0) == 1).all() and (x[10:, :, 1].sum(0) == 1).all()
    np.testing.assert_allclose((x[:, :, 0] * x[:, :, 1]).sum(0), sums, rtol=1e-6)
    # The square of the sum of two even numbers less 1 has mean 1/6 and variance 7/180: see its moments.
    assert abs(((sums - 1) ** 2).mean() - 1 / 6) < 6 * np.sqrt(7 / 180 / 4000)
    assert data.adding_problem(3, 2, seed=0)[0][:, :, 1].all()


@pytest.mark.parametrize(
    ("text", "call"),
    [
        ("poisson_patterns: rate is a finite number in", lambda: data.poisson_patterns(rate=1.5)),
        ("poisson_patterns: deletions is a finite number in", lambda: data.poisson_patterns(deletions=-0.1)),
        ("poisson_patterns: jitter is a finite number of at least 0", lambda: data.poisson_patterns(jitter=-1.0)),
        (
            "pulse_order: steps must be at least the number of lines, 4, not 3",
            lambda: data.pulse_order(steps=3, lines=4),
        ),
        ("pulse_order: lines is an integer of at least 2, not 1", lambda: data.pulse_order(lines=1)),
        ("delay_xor: needs early < late < steps, not 5, 5 and 30", lambda: data.delay_xor(early=5, late=5)),
        ("delay_xor: needs early < late < steps, not 5, 15 and 15", lambda: data.delay_xor(steps=15)),
        ("delayed_match: cues is an integer of at least 2, not 1", lambda: data.delayed_match(cues=1)),
        ("store_recall: command is a finite number in", lambda: data.store_recall(command=0.6)),
        ("store_recall: slots is an integer of at least 2, not 1", lambda: data.store_recall(slots=1)),
        ("cue_accumulation: cues must be odd, so that one side has more, not 6", lambda: data.cue_accumulation(cues=6)),
        ("cue_accumulation: bias is a finite number in", lambda: data.cue_accumulation(bias=0.3)),
        ("adding_problem: steps is an integer of at least 2, not 1", lambda: data.adding_problem(steps=1)),
    ],
)
def test_nonsense_is_refused(text, call):
    with pytest.raises(ArgumentError, match=text):
        call()
