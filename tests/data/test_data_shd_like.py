"""Made words in the shape of SHD: their numbers, what tells them apart and what does not, and the file's layout."""

import itertools
import pickle

import numpy as np
import pytest

from snncell.data import SHDLike, write_shd_like
from snncell.data.made import shd_like
from snncell.errors import ArgumentError, FileError, TensorIndexError

SAMPLES, TRAIN = 900, 600


@pytest.fixture(scope="module")
def spoken():
    words = SHDLike(SAMPLES, seed=5)
    return words, [words[i] for i in range(SAMPLES)]


def shares_of_right_answers(features, labels):
    """Of a ridge regression on those after TRAIN."""
    x = features - features[:TRAIN].mean(0)
    y = np.eye(20)[labels]
    kernel = x[:TRAIN] @ x[:TRAIN].T + 10.0 * np.eye(TRAIN)
    weights = x[:TRAIN].T @ np.linalg.solve(kernel, y[:TRAIN] - y[:TRAIN].mean(0))
    return ((x[TRAIN:] @ weights).argmax(1) == labels[TRAIN:]).mean()


def counted(events, bins, channels):
    """Roots of the counts in so many parts of the recording and of the channels."""
    t = events["t"] - events["t"][0]
    place = t * bins // (t[-1] + 1) * channels + events["x"].astype(np.int64) * channels // 700
    return np.sqrt(np.bincount(place, minlength=bins * channels))


def test_times_tell_the_words_apart_and_counts_do_not(spoken):
    _, samples = spoken
    labels = np.array([label for _, label in samples])
    chance = 6 * np.sqrt(0.05 * 0.95 / (SAMPLES - TRAIN))
    for channels in (700, 70):
        counts = np.array([counted(events, 1, channels) for events, _ in samples])
        assert shares_of_right_answers(counts, labels) < 0.05 + chance
    patterns = np.array([counted(events, 12, 35) for events, _ in samples])
    assert shares_of_right_answers(patterns, labels) > 0.9


def test_numbers_are_as_they_should_be(spoken):
    words, samples = spoken
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


def test_noise_is_even_over_the_channels():
    words = SHDLike(40, seed=1, events=2000)
    words.vocabulary = words.vocabulary._replace(centres=np.zeros(18, np.float32), slopes=np.zeros(18, np.float32))
    words.vocabulary = words.vocabulary._replace(shifts=np.zeros(12, np.float32), width=0.0)
    units = np.concatenate([words.spoken(i)[1] for i in range(40)])
    elsewhere = units[units > 0]
    mean = 0.03 * len(units)
    assert abs(len(elsewhere) - mean) < 6 * np.sqrt(mean) + mean / 700  # those in channel 0
    halves = (elsewhere > 349).sum()
    assert abs(halves - len(elsewhere) / 2) < 6 * np.sqrt(len(elsewhere) / 4)


def test_words_are_orders_of_the_sounds_that_are_far_from_each_other():
    orders = SHDLike(1).vocabulary.orders
    assert (np.sort(orders, 1) == np.arange(6)).all()
    assert max((a == b).sum() for a, b in itertools.combinations(orders, 2)) <= 2
    for classes in (1, 2, 150, 720):
        found = SHDLike(1, classes=classes).vocabulary.orders
        assert len({tuple(order) for order in found}) == len(found) == classes


def test_a_sample_depends_on_the_seeds_and_its_number_alone():
    first, again = SHDLike(5, seed=2), pickle.loads(pickle.dumps(SHDLike(9, seed=2)))
    for i in (4, 0, 2):
        assert first[i][0].tobytes() == again[i][0].tobytes() and first[i][1] == again[i][1]
    assert first[-1][0].tobytes() == first[4][0].tobytes()
    other = SHDLike(5, seed=3)
    assert other.classes == first.classes != SHDLike(5, seed=2, words=1).classes
    assert other[0][0].tobytes() != first[0][0].tobytes() != first[1][0].tobytes()
    assert len(list(first)) == 5


def test_a_transform_gets_the_events():
    assert SHDLike(3, seed=1, transform=len)[2] == (len(SHDLike(3, seed=1)[2][0]), SHDLike(3, seed=1)[2][1])


@pytest.mark.parametrize(("channels", "events"), [(1, 3), (2, 500), (65535, 40)])
def test_any_number_of_channels_and_events(channels, events):
    for found, _ in SHDLike(20, channels=channels, events=events):
        assert found.sensor_size == (channels, 1, 1) and (found["x"] < channels).all()


def test_a_file_is_laid_out_as_those_of_shd(tmp_path, monkeypatch):
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


def test_without_h5py_the_error_says_what_brings_it(tmp_path, monkeypatch):
    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr(shd_like, "import_once", missing)
    with pytest.raises(ArgumentError, match=r'need h5py: pip install "snncell\[events\]"'):
        write_shd_like(tmp_path / "made.h5", 1)


def test_where_a_file_cannot_be_written_the_error_says_which(tmp_path):
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
    ],
)
def test_nonsense_is_refused(error, text, call):
    with pytest.raises(error, match=text):
        call()
