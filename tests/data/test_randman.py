"""Random manifolds: shapes, counts, seeds, smoothness, and a task that can be solved by times and not by counts."""

import numpy as np
import pytest

import snncell
from snncell.data import batches, randman
from snncell.data.made import classification
from snncell.errors import ArgumentError

SMALL = {"classes": 3, "units": 5, "samples": 20, "steps": 30}


def when(patterns):
    """(T, N, units) -> the step of each unit's spike, (N, units)."""
    return patterns.argmax(0)


@pytest.mark.parametrize("spikes", [1, 3])
def test_every_unit_fires_as_often_as_it_should(spikes):
    patterns, labels = randman(**SMALL, spikes=spikes, seed=0)
    assert patterns.shape == (30, 60, 5) and patterns.dtype == np.float32
    assert labels.shape == (60,) and labels.dtype == np.int64
    assert set(np.unique(patterns)) == {0.0, 1.0}
    counts = patterns.sum(0)
    assert counts.max() == spikes and counts.min() >= 1  # fewer where two meet
    assert np.bincount(labels).tolist() == [20, 20, 20]


def test_the_times_of_each_unit_go_over_all_steps():
    patterns, labels = randman(**SMALL, seed=1)
    for label in range(3):
        times = when(patterns[:, labels == label])
        assert (times.min(0) == 0).all() and (times.max(0) == 29).all()


@pytest.mark.parametrize("fraction", [0.5, 0.1])
def test_a_fraction_of_the_steps(fraction):
    patterns, _ = randman(**SMALL, fraction=fraction, seed=1)
    assert when(patterns).max() == 30 * fraction
    assert not patterns[int(30 * fraction) + 1 :].any()


def test_the_same_seed_gives_the_same_data():
    first, again, other = (randman(**SMALL, seed=seed) for seed in (4, 4, 5))
    np.testing.assert_array_equal(first[0], again[0])
    np.testing.assert_array_equal(first[1], again[1])
    assert (first[0] != other[0]).any()
    draws = []
    for seed in (1, 1, 2):
        snncell.set_seed(seed)
        draws.append(randman(**SMALL)[0].tobytes())
    assert draws[0] == draws[1] != draws[2]


KEPT_LABELS = [0, 1, 1, 0, 0, 1]
KEPT_TIMES = [[0, 11, 1, 15], [19, 19, 0, 0], [7, 0, 19, 19], [19, 19, 0, 0], [1, 0, 19, 19], [0, 14, 8, 2]]


def test_a_seed_keeps_its_data():
    """Data that is made again with a later version must be what was trained on."""
    patterns, labels = randman(classes=2, units=4, samples=3, steps=20, seed=0)
    assert labels.tolist() == KEPT_LABELS
    assert when(patterns).tolist() == KEPT_TIMES


def surface(z, units, alpha, rng):
    """The units' functions from 0 to 1, (N, units), as their definition has them."""
    drawn = rng.random((classification._harmonics(alpha), 3, units, z.shape[1]))
    f = classification._surface(z[:, None], drawn, alpha)
    return (f - f.min(0)) / (f.max(0) - f.min(0))


def roughness(alpha):
    z = np.stack([np.linspace(0, 1, 150), np.full(150, 0.3)], 1)
    return np.abs(np.diff(surface(z, 20, alpha, np.random.default_rng(0)), 2, axis=0)).mean()


def test_surfaces_are_smoother_with_a_larger_alpha():
    found = [roughness(alpha) for alpha in (0.8, 1.0, 2.0, 3.0)]
    assert sorted(found, reverse=True) == found
    assert found[-1] < 0.1 * found[0]


def test_near_points_fire_at_near_times():
    z = np.random.default_rng(2).random((200, 2)) * 0.9
    both = surface(np.concatenate([z, z + 1e-4]), 20, 2.0, np.random.default_rng(1))
    assert np.abs(both[:200] - both[200:]).max() < 0.02


def test_a_surface_is_the_product_of_its_sums():
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
    """All of it in NumPy, with no kernel."""
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


def drawn_arguments(seed):
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
def test_the_kernel_changes_no_bit(seed):
    arguments = drawn_arguments(seed)
    found, expected = randman(**arguments), by_definition(**arguments)
    assert found[0].tobytes() == expected[0].tobytes() and found[1].tobytes() == expected[1].tobytes()


@pytest.mark.compiled
def test_the_kernel_changes_no_bit_of_rough_surfaces():
    arguments = {**drawn_arguments(0), "classes": 1, "samples": 700, "alpha": 0.5}
    assert randman(**arguments)[0].tobytes() == by_definition(**arguments)[0].tobytes()


def test_what_the_kernel_may_have_wrong_is_computed_anew(monkeypatch):
    """With an estimate that is off by up to its bound, the patterns are the same."""
    arguments = {**SMALL, "dim": 2, "alpha": 2.0, "spikes": 1, "fraction": 1.0, "seed": 2}
    estimate, rng = classification._estimate, np.random.default_rng(0)

    def worse(*given):
        f, slack = estimate(*given)
        return f + rng.uniform(-1e-3, 1e-3, f.shape), slack + 1e-3

    monkeypatch.setattr(classification, "_estimate", worse)
    assert randman(**arguments)[0].tobytes() == by_definition(**arguments)[0].tobytes()


@pytest.mark.parametrize(("alpha", "dim", "samples"), [(2.0, 1, 3), (2.0, 4, 520), (30.0, 2, 5)])
def test_the_estimate_is_within_its_bound(alpha, dim, samples):
    rng = np.random.default_rng(1)
    z, drawn = rng.random((samples, dim)), rng.random((classification._harmonics(alpha), 3, 3, dim))
    f, slack = classification._estimate(z, drawn, alpha)
    exact = classification._surface(z[:, None], drawn, alpha)
    assert 0 < np.abs(f - exact).max() < slack < 1e-10


def test_neighbours_in_time_tell_the_classes_apart_and_counts_do_not():
    patterns, labels = randman(classes=4, units=10, samples=100, dim=1, seed=6)
    times = when(patterns).astype(float)
    train, test = slice(0, 300), slice(300, 400)
    distance = np.abs(times[test, None] - times[None, train]).sum(2)
    assert (labels[train][distance.argmin(1)] == labels[test]).mean() > 0.95
    assert (patterns.sum(0) == 1).all()


def test_batches_of_patterns():
    patterns, labels = randman(**SMALL, seed=0)
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
        ({"seed": "a"}, "seed is an integer, not 'a'"),
    ],
)
def test_nonsense_is_refused(wrong, text):
    with pytest.raises(ArgumentError, match=f"randman: {text}"):
        randman(**{**SMALL, **wrong})
