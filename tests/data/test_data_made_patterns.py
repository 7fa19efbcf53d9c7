"""Synthetic data: Poisson patterns, spike-time tasks, Yin-Yang, random manifolds, SHD-like words."""

import hashlib
import inspect
import itertools
import pickle

import numpy as np
import pytest

import snncell
from snncell import data
from snncell.data import SHDLike, batches, randman, write_shd_like, yin_yang
from snncell.data.made import classification, shd_like
from snncell.errors import ArgumentError, ArgumentTypeError, FileError, TensorIndexError


def near(count, draws, probability):
    """True if a binomial count is within six standard deviations."""
    return abs(count - draws * probability) <= 6 * np.sqrt(draws * probability * (1 - probability))


# --- Poisson patterns -------------------------------------------------------------------------------------------------

SMALL = {"classes": 4, "units": 30, "samples": 25, "steps": 60}


def test_undisturbed_samples_equal_their_template():
    patterns, labels = data.poisson_patterns(**SMALL, rate=0.1, seed=0)
    assert patterns.shape == (60, 100, 30) and patterns.dtype == np.float32 and labels.dtype == np.int64
    assert np.bincount(labels).tolist() == [25] * 4 and (np.diff(labels) != 0).any()
    templates = np.stack([patterns[:, labels == label][:, 0] for label in range(4)], 1)
    np.testing.assert_array_equal(patterns, templates[:, labels])
    assert near(templates.sum(), templates.size, 0.1)
    assert near((templates[:, 0] * templates[:, 1]).sum(), templates[:, 0].size, 0.01)  # independent of each other


def test_deletions_and_insertions_have_their_rates():
    settings = {"classes": 1, "units": 40, "samples": 200, "steps": 100, "rate": 0.2}
    template = data.poisson_patterns(**settings, seed=3)[0][:, :1] > 0
    deleted = data.poisson_patterns(**settings, deletions=0.3, seed=3)[0] > 0
    assert not (deleted & ~template).any()
    assert near(deleted.sum(), 200 * template.sum(), 0.7)
    inserted = data.poisson_patterns(**settings, insertions=0.04, seed=3)[0] > 0
    assert (inserted >= template).all()
    assert near((inserted & ~template).sum(), 200 * (~template).sum(), 0.04)


def test_jitter_has_its_standard_deviation():
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
    assert edge.sum() < 0.2 * edge.size  # spikes that leave the pattern are lost


def test_nearest_template_classifies_patterns_but_counts_do_not():
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
def test_seed_reproduces_data_and_set_seed_is_the_default(name):
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
def test_single_sample_with_minimal_sizes(name):
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
def test_label_is_the_line_with_the_first_pulse(steps, lines):
    spikes, labels = data.pulse_order(3000, steps, lines, seed=1)
    assert spikes.shape == (steps, 3000, lines) and labels.dtype == np.int64
    assert (spikes.sum(0) == 1).all() and spikes.sum(2).max() == 1
    np.testing.assert_array_equal(spikes.argmax(0).argmin(1), labels)
    assert all(near((labels == line).sum(), 3000, 1 / lines) for line in range(lines))
    assert all(near(count, 3000, lines / steps) for count in spikes.sum((1, 2)))  # all times are equally likely


def test_label_is_true_if_the_delays_differ():
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
def test_label_is_true_if_both_cues_are_equal(cues):
    spikes, labels = data.delayed_match(600, cues, cue=15, delay=20, units=8, rate=0.5, noise=0.02, seed=3)
    populations = spikes.reshape(50, 600, cues, 8)
    first, second = populations[:15].sum((0, 3)), populations[-15:].sum((0, 3))
    np.testing.assert_array_equal(first.argmax(1) == second.argmax(1), labels == 1)
    assert near(labels.sum(), 600, 0.5) and near((first.argmax(1) == 0).sum(), 600, 1 / cues)
    assert near(first.max(1).sum(), 600 * 15 * 8, 0.5)
    assert near(populations[15:35].sum(), populations[15:35].size, 0.02)


def test_recalled_value_is_the_last_stored_one():
    slots, slot, units = 12, 5, 3
    spikes, labels = data.store_recall(400, slots, slot, units, rate=1.0, command=0.25, seed=4)
    assert spikes.shape == (60, 400, 12) and labels.shape == (60, 400) and labels.dtype == np.int64
    active = spikes.reshape(slots, slot, 400, 4, units)
    assert (active == active[:, :1, :, :, :1]).all()  # at a rate of 1 whole populations fire in every step of the slot
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


def test_label_is_the_side_with_more_cues():
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
    more = np.abs(2 * heard.argmax(2).sum(0) - 5)  # the difference in cues
    at_least_four = 0.7**5 + 0.3**5 + 5 * (0.7**4 * 0.3 + 0.3**4 * 0.7)
    assert near((more >= 3).sum(), 500, at_least_four) and near(labels.sum(), 500, 0.5)
    assert (data.cue_accumulation(30, **sizes, rate=1.0, bias=1.0, seed=0)[0][:70, :, :14].sum((0, 2)) == 350).all()


def test_target_is_the_sum_of_the_two_marked_numbers():
    x, sums = data.adding_problem(4000, 20, seed=6)
    assert x.shape == (20, 4000, 2) and sums.dtype == np.float32
    assert (x[:10, :, 1].sum(0) == 1).all() and (x[10:, :, 1].sum(0) == 1).all()
    np.testing.assert_allclose((x[:, :, 0] * x[:, :, 1]).sum(0), sums, rtol=1e-6)
    # For a sum s of two uniform numbers, (s - 1)^2 has mean 1/6 and variance 7/180.
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
def test_invalid_arguments_raise(text, call):
    with pytest.raises(ArgumentError, match=text):
        call()


# --- yin-yang ---------------------------------------------------------------------------------------------------------

# The first bytes of the digests of coordinates and labels in the authors' files.
THEIRS = [
    ("training", 5000, 42, "f5a4054d56f2a058", "534d12acda4f9dbc"),
    ("validation", 1000, 41, "5eac358bdf212276", "5a4c2f605814a620"),
    ("test", 1000, 40, "7bab3ed668ed4992", "daa0f8f4e3b37b1d"),
]


def digest(array):
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()[:16]


@pytest.mark.parametrize(("name", "samples", "seed", "coordinates", "labels"), THEIRS, ids=[row[0] for row in THEIRS])
def test_yin_yang_equals_the_authors_data_bitwise(name, samples, seed, coordinates, labels):
    found, classes = yin_yang(samples, seed)
    assert (found.shape, found.dtype, classes.dtype) == ((samples, 4), np.float64, np.int64)
    assert (digest(found), digest(classes)) == (coordinates, labels)
    assert digest(yin_yang(samples // 2, seed)[0]) == digest(
        found[: samples // 2]
    )  # a smaller set is the beginning of the full one


@pytest.mark.parametrize(("small", "big"), [(0.1, 0.5), (0.2, 0.5), (0.3, 1.0), (0.05, 0.3)])
def test_yin_yang_points_lie_in_the_region_of_their_class(small, big):
    found, labels = yin_yang(3000, 7, small, big)
    x, y = found[:, 0], found[:, 1]
    np.testing.assert_array_equal(found[:, 2:], 1.0 - found[:, :2])
    assert (np.hypot(x - big, y - big) <= big).all()
    left, right = np.hypot(x - 0.5 * big, y - big), np.hypot(x - 1.5 * big, y - big)
    np.testing.assert_array_equal(labels == 2, np.minimum(left, right) < small)
    # Half a turn maps each half of the sign to the other.
    half = np.where(y > big, right > 0.5 * big, left <= 0.5 * big)
    np.testing.assert_array_equal(labels[labels < 2] == 1, half[labels < 2])
    # Classes are drawn uniformly, so that each count is binomial. 3,000 draws of 1 / 3 have deviation 25.8.
    assert np.abs(np.bincount(labels) - 1000).max() < 6 * np.sqrt(3000 * 2 / 9)
    # Within a class points are uniform. The dots are mirror images, with half of the points in each.
    dots = labels == 2
    assert abs((left[dots] < small).sum() - dots.sum() / 2) < 6 * np.sqrt(dots.sum() / 4)


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"r_small": 0.25}, "r_small must be at least r_big / 100 and below r_big / 2, not 0.25 of 0.5"),
        ({"r_small": 0.004}, "r_small must be at least r_big / 100 and below r_big / 2, not 0.004 of 0.5"),
        ({"r_big": 1e300}, r"r_big is a finite number in \[1e-06, 1e\+06\]"),
        ({"r_big": 0.2}, "r_small must be at least r_big / 100 and below r_big / 2, not 0.1 of 0.2"),
        ({"r_small": 0.0}, "r_small is a finite number above 0"),
        ({"samples": 0}, "samples is an integer of at least 1"),
        ({"seed": -1}, "seed is an integer"),
        ({"seed": 2**32}, "seed is an integer"),
    ],
)
def test_invalid_arguments_of_yin_yang(wrong, text):
    with pytest.raises(ArgumentError, match=f"yin_yang: {text}"):
        yin_yang(**{"samples": 3, **wrong})


# --- random manifolds -------------------------------------------------------------------------------------------------

SMALL_MANIFOLDS = {"classes": 3, "units": 5, "samples": 20, "steps": 30}


def spike_steps(patterns):
    """(T, N, units) -> the step of each unit's spike, (N, units)."""
    return patterns.argmax(0)


@pytest.mark.parametrize("spikes", [1, 3])
def test_randman_units_have_the_right_number_of_spikes(spikes):
    patterns, labels = randman(**SMALL_MANIFOLDS, spikes=spikes, seed=0)
    assert patterns.shape == (30, 60, 5) and patterns.dtype == np.float32
    assert labels.shape == (60,) and labels.dtype == np.int64
    assert set(np.unique(patterns)) == {0.0, 1.0}
    counts = patterns.sum(0)
    assert counts.max() == spikes and counts.min() >= 1  # fewer if two spikes coincide
    assert np.bincount(labels).tolist() == [20, 20, 20]


def test_randman_spike_times_cover_all_steps():
    patterns, labels = randman(**SMALL_MANIFOLDS, seed=1)
    for label in range(3):
        times = spike_steps(patterns[:, labels == label])
        assert (times.min(0) == 0).all() and (times.max(0) == 29).all()


@pytest.mark.parametrize("fraction", [0.5, 0.1])
def test_randman_uses_a_fraction_of_the_steps(fraction):
    patterns, _ = randman(**SMALL_MANIFOLDS, fraction=fraction, seed=1)
    assert spike_steps(patterns).max() == 30 * fraction
    assert not patterns[int(30 * fraction) + 1 :].any()


def test_randman_seed_reproduces_data():
    first, again, other = (randman(**SMALL_MANIFOLDS, seed=seed) for seed in (4, 4, 5))
    np.testing.assert_array_equal(first[0], again[0])
    np.testing.assert_array_equal(first[1], again[1])
    assert (first[0] != other[0]).any()
    draws = []
    for seed in (1, 1, 2):
        snncell.set_seed(seed)
        draws.append(randman(**SMALL_MANIFOLDS)[0].tobytes())
    assert draws[0] == draws[1] != draws[2]


KEPT_LABELS = [0, 1, 1, 0, 0, 1]
KEPT_TIMES = [[0, 11, 1, 15], [19, 19, 0, 0], [7, 0, 19, 19], [19, 19, 0, 0], [1, 0, 19, 19], [0, 14, 8, 2]]


def test_randman_data_of_a_seed_is_stable_across_versions():
    """A later version must reproduce the data on which a network was trained."""
    patterns, labels = randman(classes=2, units=4, samples=3, steps=20, seed=0)
    assert labels.tolist() == KEPT_LABELS
    assert spike_steps(patterns).tolist() == KEPT_TIMES


def surface(z, units, alpha, rng):
    """The units' functions from 0 to 1, (N, units), by their definition."""
    drawn = rng.random((classification._harmonics(alpha), 3, units, z.shape[1]))
    f = classification._surface(z[:, None], drawn, alpha)
    return (f - f.min(0)) / (f.max(0) - f.min(0))


def roughness(alpha):
    z = np.stack([np.linspace(0, 1, 150), np.full(150, 0.3)], 1)
    return np.abs(np.diff(surface(z, 20, alpha, np.random.default_rng(0)), 2, axis=0)).mean()


def test_larger_alpha_gives_smoother_surfaces():
    found = [roughness(alpha) for alpha in (0.8, 1.0, 2.0, 3.0)]
    assert sorted(found, reverse=True) == found
    assert found[-1] < 0.1 * found[0]


def test_nearby_points_have_similar_spike_times():
    z = np.random.default_rng(2).random((200, 2)) * 0.9
    both = surface(np.concatenate([z, z + 1e-4]), 20, 2.0, np.random.default_rng(1))
    assert np.abs(both[:200] - both[200:]).max() < 0.02


def test_surface_is_the_product_of_its_sums():
    rng, z = np.random.default_rng(3), np.random.default_rng(4).random((5, 2))
    assert classification._harmonics(2.0) == 31
    found = classification._surface(z[:, None], rng.random((31, 3, 3, 2)), 2.0)
    rng = np.random.default_rng(3)
    sums = np.zeros((5, 3, 2))
    for k in range(1, 32):  # (1e-3)^(-1/2) = 31.6
        a, b, phi = rng.random((3, 3, 2))
        for s, u, d in np.ndindex(5, 3, 2):
            sums[s, u, d] += (k + 1) ** -2.0 * a[u, d] * np.sin(2 * np.pi * (k * b[u, d] * z[s, d] + phi[u, d]))
    np.testing.assert_allclose(found, sums[..., 0] * sums[..., 1], rtol=1e-12)


def by_definition(classes, units, samples, steps, dim, alpha, spikes, fraction, seed):
    """The whole data set in NumPy, without a kernel."""
    rng = np.random.Generator(np.random.Philox(seed))
    patterns = np.zeros((steps, classes, samples, units), np.float32)
    for label in range(classes):
        z = rng.random((samples, dim))
        for _ in range(spikes):
            drawn = [rng.random((3, units, dim)) for _ in range(classification._harmonics(alpha))]
            f = classification._surface(z[:, None], drawn, alpha)
            g = (f - f.min(0)) / np.maximum(f.max(0) - f.min(0), np.finfo(float).tiny)
            step = np.minimum(g * (fraction * steps), steps - 1).astype(int)
            patterns[step, label, np.arange(samples)[:, None], np.arange(units)] = 1.0
    order = rng.permutation(classes * samples)
    return patterns.reshape(steps, -1, units)[:, order], np.repeat(np.arange(classes), samples)[order]


def random_arguments(seed):
    rng = np.random.default_rng(seed)
    return {
        "classes": int(rng.integers(1, 4)),
        "units": int(rng.integers(1, 7)),
        "samples": int(rng.choice([2, 3, 30, 600])),
        "steps": int(rng.integers(1, 200)),
        "dim": int(rng.integers(1, 6)),
        "alpha": float(rng.choice([1.5, 2.0, 4.0, 20.0])),
        "spikes": int(rng.integers(1, 3)),
        "fraction": float(rng.choice([1.0, 0.3])),
        "seed": seed,
    }


@pytest.mark.compiled
@pytest.mark.parametrize("seed", range(25))
def test_randman_kernel_equals_numpy_bitwise(seed):
    arguments = random_arguments(seed)
    found, expected = randman(**arguments), by_definition(**arguments)
    assert found[0].tobytes() == expected[0].tobytes() and found[1].tobytes() == expected[1].tobytes()


@pytest.mark.compiled
def test_randman_kernel_equals_numpy_bitwise_for_rough_surfaces():
    arguments = {**random_arguments(0), "classes": 1, "samples": 700, "alpha": 0.5}
    assert randman(**arguments)[0].tobytes() == by_definition(**arguments)[0].tobytes()


def test_uncertain_kernel_results_are_recomputed(monkeypatch):
    """The patterns do not change if the estimate is wrong by up to its error bound."""
    arguments = {**SMALL_MANIFOLDS, "dim": 2, "alpha": 2.0, "spikes": 1, "fraction": 1.0, "seed": 2}
    estimate, rng = classification._estimate, np.random.default_rng(0)

    def worse(*given):
        f, slack = estimate(*given)
        return f + rng.uniform(-1e-3, 1e-3, f.shape), slack + 1e-3

    monkeypatch.setattr(classification, "_estimate", worse)
    assert randman(**arguments)[0].tobytes() == by_definition(**arguments)[0].tobytes()


@pytest.mark.parametrize(("alpha", "dim", "samples"), [(2.0, 1, 3), (2.0, 4, 520), (30.0, 2, 5)])
def test_kernel_estimate_is_within_its_error_bound(alpha, dim, samples):
    rng = np.random.default_rng(1)
    z, drawn = rng.random((samples, dim)), rng.random((classification._harmonics(alpha), 3, 3, dim))
    f, slack = classification._estimate(z, drawn, alpha)
    exact = classification._surface(z[:, None], drawn, alpha)
    assert 0 < np.abs(f - exact).max() < slack < 1e-10


def test_spike_times_classify_randman_but_counts_do_not():
    patterns, labels = randman(classes=4, units=10, samples=100, dim=1, seed=6)
    times = spike_steps(patterns).astype(float)
    train, test = slice(0, 300), slice(300, 400)
    distance = np.abs(times[test, None] - times[None, train]).sum(2)
    assert (labels[train][distance.argmin(1)] == labels[test]).mean() > 0.95
    assert (patterns.sum(0) == 1).all()


def test_batches_of_patterns_have_their_shapes():
    patterns, labels = randman(**SMALL_MANIFOLDS, seed=0)
    seen = [x.shape for x, _ in batches(patterns.swapaxes(0, 1), labels, batch_size=25)]
    assert seen == [(25, 30, 5), (25, 30, 5), (10, 30, 5)]


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"classes": 0}, "classes is an integer of at least 1, not 0"),
        ({"units": -1}, "units is an integer of at least 1, not -1"),
        ({"samples": 1}, "samples is an integer of at least 2, not 1"),
        ({"steps": 0}, "steps is an integer of at least 1, not 0"),
        ({"dim": 0}, "dim is an integer of at least 1, not 0"),
        ({"spikes": 0}, "spikes is an integer of at least 1, not 0"),
        ({"units": 2.5}, "units is an integer of at least 1, not 2.5"),
        ({"alpha": 0.0}, "alpha is a finite number above 0, not 0.0"),
        ({"alpha": float("nan")}, "alpha is a finite number above 0, not nan"),
        ({"fraction": 0.0}, r"fraction is a finite number in \(0, 1\], not 0.0"),
        ({"fraction": 1.5}, r"fraction is a finite number in \(0, 1\], not 1.5"),
        ({"seed": -1}, "seed is an integer of at least 0, not -1"),
        ({"seed": "a"}, "seed is an integer of at least 0, not 'a'"),
    ],
)
def test_invalid_arguments_of_randman(wrong, text):
    with pytest.raises(ArgumentError, match=f"randman: {text}"):
        randman(**{**SMALL_MANIFOLDS, **wrong})


# --- SHD-like words ---------------------------------------------------------------------------------------------------

SAMPLES, TRAIN = 900, 600


@pytest.fixture(scope="module")
def shd_words():
    words = SHDLike(SAMPLES, seed=5)
    return words, [words[i] for i in range(SAMPLES)]


def shares_of_right_answers(features, labels):
    """The accuracy of a ridge regression on the samples after TRAIN."""
    x = features - features[:TRAIN].mean(0)
    y = np.eye(20)[labels]
    kernel = x[:TRAIN] @ x[:TRAIN].T + 10.0 * np.eye(TRAIN)
    weights = x[:TRAIN].T @ np.linalg.solve(kernel, y[:TRAIN] - y[:TRAIN].mean(0))
    return ((x[TRAIN:] @ weights).argmax(1) == labels[TRAIN:]).mean()


def binned_counts(events, bins, channels):
    """Square roots of the counts in bins of time and of channels."""
    t = events["t"] - events["t"][0]
    place = t * bins // (t[-1] + 1) * channels + events["x"].astype(np.int64) * channels // 700
    return np.sqrt(np.bincount(place, minlength=bins * channels))


def test_spike_times_classify_words_but_counts_do_not(shd_words):
    _, samples = shd_words
    labels = np.array([label for _, label in samples])
    chance = 6 * np.sqrt(0.05 * 0.95 / (SAMPLES - TRAIN))
    for channels in (700, 70):
        counts = np.array([binned_counts(events, 1, channels) for events, _ in samples])
        assert shares_of_right_answers(counts, labels) < 0.05 + chance
    patterns = np.array([binned_counts(events, 12, 35) for events, _ in samples])
    assert shares_of_right_answers(patterns, labels) > 0.9


def test_shd_like_statistics_equal_their_settings(shd_words):
    words, samples = shd_words
    assert len(words) == SAMPLES and words.sensor_size == (700, 1, 1) and len(set(words.classes)) == 20
    numbers = np.array([len(events) for events, _ in samples])
    assert abs(numbers.mean() - 8000) < 6 * numbers.std() / np.sqrt(SAMPLES)
    labels = np.bincount([label for _, label in samples], minlength=20)
    assert np.abs(labels - SAMPLES / 20).max() < 6 * np.sqrt(SAMPLES * 0.05 * 0.95)
    ends = np.array([events["t"][-1] for events, _ in samples])
    assert ends.min() > 400_000 and ends.max() < 1_045_000
    for events, label in samples[:20]:
        assert type(label) is int and events.dtype.names == ("t", "x", "p") and events.sensor_size == (700, 1, 1)
        assert (np.diff(events["t"]) >= 0).all() and events["x"].max() < 700 and (events["p"] == 0).all()
        assert events["t"][0] >= 19_900


def test_noise_is_uniform_over_channels():
    words = SHDLike(40, seed=1, events=2000)
    words.vocabulary = words.vocabulary._replace(centres=np.zeros(18, np.float32), slopes=np.zeros(18, np.float32))
    words.vocabulary = words.vocabulary._replace(shifts=np.zeros(12, np.float32), width=0.0)
    units = np.concatenate([words.spoken(i)[1] for i in range(40)])
    elsewhere = units[units > 0]
    mean = 0.03 * len(units)
    assert abs(len(elsewhere) - mean) < 6 * np.sqrt(mean) + mean / 700  # events in channel 0
    halves = (elsewhere > 349).sum()
    assert abs(halves - len(elsewhere) / 2) < 6 * np.sqrt(len(elsewhere) / 4)


def test_words_are_distant_orders_of_the_sounds():
    orders = SHDLike(1).vocabulary.orders
    assert (np.sort(orders, 1) == np.arange(6)).all()
    assert max((a == b).sum() for a, b in itertools.combinations(orders, 2)) <= 2
    for classes in (1, 2, 150, 720):
        found = SHDLike(1, classes=classes).vocabulary.orders
        assert len({tuple(order) for order in found}) == len(found) == classes


def test_shd_like_samples_depend_only_on_seeds_and_index():
    first, again = SHDLike(5, seed=2), pickle.loads(pickle.dumps(SHDLike(9, seed=2)))
    for i in (4, 0, 2):
        assert first[i][0].tobytes() == again[i][0].tobytes() and first[i][1] == again[i][1]
    assert first[-1][0].tobytes() == first[4][0].tobytes()
    other = SHDLike(5, seed=3)
    assert other.classes == first.classes != SHDLike(5, seed=2, words=1).classes
    assert other[0][0].tobytes() != first[0][0].tobytes() != first[1][0].tobytes()
    assert len(list(first)) == 5


def test_transform_gets_the_events():
    assert SHDLike(3, seed=1, transform=len)[2] == (len(SHDLike(3, seed=1)[2][0]), SHDLike(3, seed=1)[2][1])


@pytest.mark.parametrize(("channels", "events"), [(1, 3), (2, 500), (65535, 40)])
def test_any_number_of_channels_and_events_is_valid(channels, events):
    for found, _ in SHDLike(20, channels=channels, events=events):
        assert found.sensor_size == (channels, 1, 1) and (found["x"] < channels).all()


def test_written_file_has_the_layout_of_shd(tmp_path, monkeypatch):
    h5py = pytest.importorskip("h5py", reason="HDF5 files need h5py (the extra events)")
    monkeypatch.setattr(shd_like, "TOGETHER", 4)
    path = tmp_path / "made.h5"
    write_shd_like(path, 10, seed=3, words=2, classes=7, events=300)
    made = SHDLike(10, seed=3, words=2, classes=7, events=300)
    with h5py.File(path) as file:
        assert set(file) == {"spikes", "labels", "extra"} and set(file["spikes"]) == {"times", "units"}
        assert set(file["extra"]) == {"keys", "speaker", "meta_info"}
        assert set(file["extra/meta_info"]) == {"age", "body_height", "gender"}
        assert h5py.check_vlen_dtype(file["spikes/times"].dtype) == np.float16
        assert h5py.check_vlen_dtype(file["spikes/units"].dtype) == np.uint16
        assert file["labels"].shape == file["extra/speaker"].shape == file["spikes/times"].shape == (10,)
        assert tuple(key.decode() for key in file["extra/keys"]) == made.classes
        assert file["extra/speaker"][:].max() < len(file["extra/meta_info/gender"]) == 12
        for number, (events, label) in enumerate(made):
            times, units = file["spikes/times"][number], file["spikes/units"][number]
            assert file["labels"][number] == label
            np.testing.assert_array_equal(np.rint(times.astype(float) * 1e6), events["t"])
            np.testing.assert_array_equal(units, events["x"])


def test_missing_h5py_error_names_the_extra(tmp_path, monkeypatch):
    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr(shd_like, "import_once", missing)
    with pytest.raises(ArgumentError, match=r'need h5py: pip install "snncell\[events\]"'):
        write_shd_like(tmp_path / "made.h5", 1)


def test_write_error_names_the_file(tmp_path):
    pytest.importorskip("h5py", reason="HDF5 files need h5py (the extra events)")
    with pytest.raises(FileError, match=r"write_shd_like: path '.*nowhere.made\.h5' cannot be written: "):
        write_shd_like(tmp_path / "nowhere" / "made.h5", 1)


@pytest.mark.parametrize(
    ("error", "text", "call"),
    [
        (ArgumentError, "samples is an integer of at least 1, not 0", lambda: SHDLike(0)),
        (ArgumentError, "seed is an integer of at least 0, not -1", lambda: SHDLike(1, seed=-1)),
        (ArgumentError, r"classes is an integer in \[1, 720\], not 721", lambda: SHDLike(1, classes=721)),
        (ArgumentError, "channels is an integer in", lambda: SHDLike(1, channels=70000)),
        (ArgumentError, "write_shd_like: classes is", lambda: write_shd_like("x.h5", classes=0)),
        (TensorIndexError, "SHDLike: index -4 is out of range for 3 samples", lambda: SHDLike(3)[-4]),
        (ArgumentTypeError, r"SHDLike: an index must be an integer, not 0\.5", lambda: SHDLike(3)[0.5]),
    ],
)
def test_invalid_arguments_of_shd_like_words(error, text, call):
    with pytest.raises(error, match=text):
        call()
