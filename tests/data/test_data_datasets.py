"""Data sets of event files on disk: samples, labels, classes, indices, and use in other processes."""

from __future__ import annotations

import multiprocessing
import pickle
import re
import sys
from concurrent.futures import ThreadPoolExecutor

import event_files as write
import numpy as np
import pytest
import scipy.io

from snncell import data
from snncell.data.events import Events
from snncell.errors import ArgumentError, FileError, TensorIndexError


def same(events, columns) -> None:
    for name in columns:
        np.testing.assert_array_equal(events[name], columns[name], name)


def put(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def nmnist(folder, rng):
    kept = []
    for label in (7, 0, 3):
        for number in range(2):
            columns = write.drawn(rng, 30)
            write.write_bin(put(folder / str(label) / f"{number:05}.bin"), columns)
            kept.append((label, number, columns))
    return [(label, columns) for label, _, columns in sorted(kept, key=lambda each: each[:2])]


def ncaltech(folder, rng):
    expected = []
    for label, name in enumerate(("BACKGROUND", "airplanes", "yin_yang")):
        columns = write.drawn(rng, 40, (240, 180, 2))
        write.write_bin(put(folder / name / "image_0001.bin"), columns)
        expected.append((label, columns))
    return expected


def cifar(folder, rng):
    expected = []
    for label, name in ((0, "airplane"), (3, "cat"), (9, "truck")):
        columns = write.drawn(rng, 40, (128, 128, 2))
        write.write_aedat_2(put(folder / name / f"cifar10_{name}_0.aedat"), columns)
        expected.append((label, columns))
    return expected


def asl(folder, rng):
    expected = []
    for label, name in ((0, "a"), (9, "k"), (23, "y")):
        columns = write.drawn(rng, 40, (240, 180, 2))
        arrays = {"ts": columns["t"], "x": columns["x"], "y": columns["y"], "pol": columns["p"]}
        scipy.io.savemat(put(folder / name / f"{name}_0001.mat"), {own: each[:, None] for own, each in arrays.items()})
        expected.append((label, columns))
    return expected


def gestures(folder, rng):
    expected = []
    for name in ("user01_fluorescent", "user02_led"):
        columns = write.drawn(rng, 600, (128, 128, 2), longest=10_000)
        write.write_aedat_3(put(folder / f"{name}.aedat"), columns, rng)
        lines = ["class,startTime_usec,endTime_usec"]
        for label, begin, end in ((3, 0, 2000), (11, 1500, 4000), (1, 7000, 9999)):  # the first two overlap
            chosen = (columns["t"] >= begin) & (columns["t"] < end)
            expected.append((label - 1, {own: column[chosen] for own, column in columns.items()}))
            lines.append(f"{label},{begin},{end}")
        (folder / f"{name}_labels.csv").write_text("\n".join(lines) + "\n")
    return expected


def table_files(folder, rng):
    columns = [write.drawn(rng, 60, (50, 40, 2)) for _ in range(4)]
    write.write_csv(put(folder / "left" / "a.csv"), columns[0])
    np.save(put(folder / "left" / "b.npy"), write.structured(columns[1]))
    np.savez(put(folder / "right" / "deeper" / "a.npz"), **columns[2])
    write.write_aedat_2(put(folder / "right" / "z"), columns[3])
    (folder / "left" / ".hidden").touch()
    (folder / "README").write_text("not a class")
    return list(zip((0, 0, 1, 1), columns, strict=True))


def shd_files(folder, rng):
    h5py = pytest.importorskip("h5py")
    write.write_shd(folder / "shd_train.h5", rng, [12, 0, 300, 2500, 1])
    with h5py.File(folder / "shd_train.h5") as file:
        expected = []
        for label, times, units in zip(file["labels"], file["spikes/times"], file["spikes/units"], strict=True):
            t = np.rint(times.astype(np.float64) * 1e6)
            expected.append((int(label), {"t": t, "x": units, "p": np.zeros(len(units))}))
    return expected


SETS = {
    "NMNIST": (nmnist, data.NMNIST, (34, 34, 2), 10),
    "NCaltech101": (ncaltech, data.NCaltech101, (240, 180, 2), 3),
    "CIFAR10DVS": (cifar, data.CIFAR10DVS, (128, 128, 2), 10),
    "ASLDVS": (asl, data.ASLDVS, (240, 180, 2), 24),
    "DVSGesture": (gestures, data.DVSGesture, (128, 128, 2), 11),
    "EventFolder": (table_files, data.EventFolder, (128, 128, 2), 2),
    "SHD": (shd_files, lambda folder, **options: data.SHD(folder / "shd_train.h5", **options), (700, 1, 1), 3),
}


@pytest.fixture(params=SETS)
def dataset_case(request, tmp_path):
    """A data set, its expected content, its sensor, its number of classes, and a function to make it with options."""
    write_it, make, sensor, classes = SETS[request.param]
    expected = write_it(tmp_path, np.random.default_rng(0))
    return make(tmp_path), expected, sensor, classes, lambda **options: make(tmp_path, **options)


def test_samples_equal_the_files(dataset_case):
    dataset, expected, sensor, classes, _ = dataset_case
    assert len(dataset) == len(expected) and dataset.sensor_size == sensor and len(dataset.classes) == classes
    assert all(type(name) is str for name in dataset.classes) and type(dataset.classes) is tuple
    for number, (label, columns) in enumerate(expected):
        events, own = dataset[number]
        assert type(events) is Events
        assert (type(own), own) == (int, label) and events.sensor_size == sensor
        same(events, columns)
    assert dataset.labels.tolist() == [label for label, _ in expected]
    assert str(len(expected)) in repr(dataset) and str(sensor) in repr(dataset)


def test_indexing_behaves_like_a_sequence(dataset_case):
    dataset, expected, *_ = dataset_case
    last = len(expected) - 1
    for index in (-1, np.int64(last), np.int8(-1)):
        events, label = dataset[index]
        assert label == expected[last][0]
        same(events, expected[last][1])
    for index in (last + 1, -last - 2, 10**20):
        with pytest.raises(TensorIndexError, match=rf"index {index} is out of range for {last + 1} samples\."):
            dataset[index]
    assert issubclass(TensorIndexError, IndexError)
    assert [label for _, label in dataset] == dataset.labels.tolist()  # iteration ends at the IndexError


def test_transform_is_applied_to_the_events(dataset_case):
    dataset = dataset_case[-1](transform=len)
    assert [count for count, _ in dataset] == [len(events) for events, _ in dataset_case[0]]


def summary(dataset, index):
    events, label = dataset[index]
    return len(events), int(events["t"].sum()), int(events["x"].astype(np.int64).sum()), label


def test_data_sets_can_be_pickled_and_read_by_threads(dataset_case):
    dataset, expected, *_ = dataset_case
    alone = [summary(dataset, index) for index in range(len(expected))]
    copy = pickle.loads(pickle.dumps(dataset))
    assert repr(copy) == repr(dataset)
    with ThreadPoolExecutor(8) as threads:
        indices = list(range(len(expected))) * 10
        assert list(threads.map(lambda index: summary(copy, index), indices)) == alone * 10


@pytest.mark.sampled(5)
@pytest.mark.skipif(sys.platform == "win32", reason="there is no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_data_sets_can_be_read_by_forked_workers(dataset_case):
    dataset, expected, *_ = dataset_case
    alone = [summary(dataset, index) for index in range(len(expected))]
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert pool.starmap(summary, [(dataset, index) for index in range(len(expected))]) == alone


def test_data_sets_can_be_read_by_spawned_workers(tmp_path):
    jobs, alone = [], []
    for name, (write_it, make, _, _) in SETS.items():
        (tmp_path / name).mkdir()
        write_it(tmp_path / name, np.random.default_rng(1))
        dataset = make(tmp_path / name)
        jobs.append((dataset, 0))
        alone.append(summary(dataset, 0))
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.starmap(summary, jobs) == alone


# --- folders ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [data.NMNIST, data.DVSGesture])
def test_training_part_is_the_default(tmp_path, make):
    writer, names = (nmnist, ("Train", "Test")) if make is data.NMNIST else (gestures, ("train", "test"))
    training = writer(put(tmp_path / "both" / names[0] / "x").parent, np.random.default_rng(0))
    testing = writer(put(tmp_path / "both" / names[1] / "x").parent, np.random.default_rng(1))
    for train, expected in ((None, training), (True, training), (False, testing)):
        same(make(tmp_path / "both", train)[0][0], expected[0][1])
    writer(put(tmp_path / "one" / names[1] / "x").parent, np.random.default_rng(1))
    same(make(tmp_path / "one")[0][0], testing[0][1])
    with pytest.raises(FileError, match=rf"a folder {names[0]} is expected, but there is only {names[1]}"):
        make(tmp_path / "one", train=True)


def test_dvs_gesture_follows_the_trial_lists(tmp_path):
    expected = gestures(tmp_path, np.random.default_rng(0))
    (tmp_path / "trials_to_train.txt").write_text("user02_led.aedat\n")
    (tmp_path / "trials_to_test.txt").write_text("user01_fluorescent.aedat\nuser09_led.aedat\n")
    for train, first in ((None, 3), (True, 3), (False, 0)):
        dataset = data.DVSGesture(tmp_path, train)
        assert len(dataset) == 3
        same(dataset[0][0], expected[first][1])


def test_dvs_gesture_layouts_of_tonic_and_spikingjelly(tmp_path):
    rng = np.random.default_rng(0)
    columns = [write.drawn(rng, 50, (128, 128, 2)) for _ in range(3)]
    for label, each in zip((0, 2, 10), columns, strict=True):
        table = np.stack([each[name] for name in "xypt"], 1).astype(np.float64)
        np.save(put(tmp_path / "tonic" / "ibmGestureTrain" / "user01_led" / f"{label}.npy"), table)
        np.savez(put(tmp_path / "jelly" / "train" / str(label) / f"user01_led_{label}.npz"), **each)
    for folder, scale in (("tonic", 1000), ("jelly", 1)):
        dataset = data.DVSGesture(tmp_path / folder)
        if folder == "tonic":
            assert dataset.labels.tolist() == [0, 10, 2]  # in the order of their names
        for events, label in dataset:
            each = columns[(0, 2, 10).index(label)]
            same(events, each | {"t": each["t"] * scale})


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("12,0,5", r"line 2 \(byte 10\): a class from 1 to 11, and a start before the end, are expected, not 12,0,5"),
        ("3,9,5", r"line 2 \(byte 10\): a class from 1 to 11, and a start before"),
        ("3,9", r"line 2 \(byte 10\): class, startTime_usec, endTime_usec are expected, not '3,9'"),
        ("3,a,5", r"line 2 \(byte 10\): class, startTime_usec"),
    ],
)
def test_invalid_labels_raise(tmp_path, line, said):
    gestures(tmp_path, np.random.default_rng(0))
    (tmp_path / "user01_fluorescent_labels.csv").write_text(f"class,s,e\n{line}\n")
    with pytest.raises(FileError, match=f"user01_fluorescent_labels.csv, {said}"):
        data.DVSGesture(tmp_path)
    (tmp_path / "user01_fluorescent_labels.csv").unlink()
    with pytest.raises(FileError, match=r"user01_fluorescent_labels.csv: cannot be read: No such file"):
        data.DVSGesture(tmp_path)


@pytest.mark.parametrize(
    "make", [data.NMNIST, data.NCaltech101, data.CIFAR10DVS, data.ASLDVS, data.DVSGesture, data.EventFolder]
)
def test_folder_without_recordings_raises(tmp_path, make):
    with pytest.raises(FileError, match="none: a folder is expected: No such file or directory"):
        make(tmp_path / "none")
    with pytest.raises(FileError, match=r"are expected, but none was found"):
        make(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(FileError, match="file: a folder is expected: Not a directory"):
        make(tmp_path / "file")
    with pytest.raises(ArgumentError):
        make(3)


def test_folder_of_another_class_raises(tmp_path):
    write.write_bin(put(tmp_path / "dragon" / "a.bin"), write.drawn(np.random.default_rng(0), 3))
    with pytest.raises(FileError, match=r"a folder for each of airplane, .* is expected, not 'dragon'"):
        data.CIFAR10DVS(tmp_path)


def test_folder_sensor_is_the_smallest_that_fits_all_recordings(tmp_path):
    for number, size in enumerate(((30, 5), (4, 60))):
        columns = {"t": np.arange(2), "x": np.array([0, size[0] - 1]), "y": np.array([0, size[1] - 1])}
        write.write_csv(put(tmp_path / "one" / f"{number}.csv"), columns | {"p": np.arange(2)})
    dataset = pickle.loads(pickle.dumps(data.EventFolder(tmp_path)))
    assert repr(dataset) == "EventFolder: 2 samples of 1 classes"  # without reading all recordings
    assert dataset[0][0].sensor_size == dataset.sensor_size == (30, 60, 2)
    dataset = data.EventFolder(tmp_path, sensor_size=(20, 60, 2))
    assert len(dataset[1][0]) == 2
    with pytest.raises(FileError, match=r"0.csv, line 3 \(byte 16\): x must be at least 0 and below 20 of sensor_size"):
        dataset[0]


def test_damaged_file_is_named_on_access(tmp_path):
    nmnist(tmp_path, np.random.default_rng(0))
    (tmp_path / "3" / "00001.bin").write_bytes(bytes(7))
    dataset = data.NMNIST(tmp_path)
    assert len(dataset[2][0]) == 30
    with pytest.raises(FileError, match=r"3.00001\.bin, byte 5: an event of 5 bytes"):
        dataset[3]


# --- SHD --------------------------------------------------------------------------------------------------------------

LAYOUTS = {
    "contiguous": {},
    "chunked": {"chunks": (3,), "maxshape": (None,)},
    "packed": {"chunks": (4,), "compression": "gzip", "shuffle": True},
    "latest": {"libver": "latest", "chunks": (3,)},
    "newest contiguous": {"libver": "latest"},
    "user block": {"userblock_size": 1024},
    "another filter": {"chunks": (2,), "compression": "lzf"},
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_shd_layouts_are_read(tmp_path, layout):
    h5py = pytest.importorskip("h5py")
    rng = np.random.default_rng(len(layout))
    lengths = [*map(int, rng.integers(0, 60, 40)), 0, 5000, 40_000]
    write.write_shd(tmp_path / "shd.h5", rng, lengths, **LAYOUTS[layout])
    dataset = data.SHD(tmp_path / "shd.h5")
    with h5py.File(tmp_path / "shd.h5") as file:
        for number, length in enumerate(lengths):
            events, label = dataset[number]
            assert len(events) == length and label == file["labels"][number]
            np.testing.assert_array_equal(events["t"], np.rint(file["spikes/times"][number].astype(np.float64) * 1e6))
            np.testing.assert_array_equal(events["x"], file["spikes/units"][number])
        np.testing.assert_array_equal(dataset.speakers, file["extra/speaker"])
    assert dataset.classes == ("word 0", "word 1", "word 2")


def read_sample(dataset, number):
    events, label = dataset[number]
    return events.tolist(), label


OPENED = []  # a data set that forked processes inherit


def read_opened(number):
    return read_sample(OPENED[0], number)


@pytest.mark.skipif(sys.platform == "win32", reason="there is no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_open_shd_can_be_pickled_forked_and_read_by_threads(tmp_path, monkeypatch):
    pytest.importorskip("h5py")
    write.write_shd(tmp_path / "shd.h5", np.random.default_rng(0), [*range(0, 3000, 100)])
    dataset = data.SHD(tmp_path / "shd.h5")
    expected = [read_sample(dataset, number) for number in range(len(dataset))]
    again = pickle.loads(pickle.dumps(dataset))
    assert [read_sample(again, number) for number in range(len(again))] == expected
    monkeypatch.setattr(sys.modules[__name__], "OPENED", [dataset])
    numbers = [*range(len(dataset))] * 4
    with ThreadPoolExecutor(4) as threads:
        by_threads = threads.map(read_opened, numbers)
        with multiprocessing.get_context("fork").Pool(2) as pool:
            assert pool.map(read_opened, numbers) == list(by_threads) == expected * 4


def test_shd_like_file_can_be_replaced_while_open(tmp_path):
    pytest.importorskip("h5py")
    data.write_shd_like(tmp_path / "words.h5", 3, events=50)
    dataset = data.SHD(tmp_path / "words.h5")
    before = read_sample(dataset, 0)
    data.write_shd_like(tmp_path / "words.h5", 2, seed=1, events=50)
    assert read_sample(dataset, 0) == before and len(data.SHD(tmp_path / "words.h5")) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["words.h5"]


def test_shd_without_class_names_and_speakers(tmp_path):
    h5py = pytest.importorskip("h5py")
    write.write_shd(tmp_path / "shd.h5", np.random.default_rng(0), [3, 4, 5], speaker=False)
    with h5py.File(tmp_path / "shd.h5", "a") as file:
        del file["extra"]
        file["labels"][...] = [0, 4, 1]
    dataset = data.SHD(tmp_path / "shd.h5")
    assert dataset.speakers is None and dataset.classes == ("0", "1", "2", "3", "4")


def test_float16_time_resolution_equals_the_docstring():
    for begin, step in ((0.125, 122), (0.5, 488), (1.0, 977)):
        assert round(float(np.spacing(np.float16(begin))) * 1e6) == step
        assert re.search(rf"{step}( microseconds)?\s+from\s+{begin:g}", data.SHD.__doc__)


def change(path, name, value):
    import h5py

    with h5py.File(path, "a") as file:
        del file[name]
        if value is not None:
            file[name] = value


def ragged(rows, dtype):
    import h5py

    array = np.empty(len(rows), h5py.vlen_dtype(dtype))
    array[:] = [np.array(row, dtype) for row in rows]
    return array


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("spikes/times", None, r"dataset /spikes/times: a dataset as in SHD is expected, but it is missing"),
        ("spikes/units", np.zeros(2), r"/spikes/units: a list of integers of any length per sample is expected"),
        ("spikes/times", ([[1], [2]], np.int32), r"dataset /spikes/times: a list of floats, in seconds, of any length"),
        ("labels", [0], r"/labels: equally many samples are expected in each of them, not 2 in /spikes/times, 2 in"),
        ("labels", [0, 3], r"dataset /labels, index 1: a label from 0 to 2 is expected, not 3"),
        ("labels", [-1, 0], r"dataset /labels, index 0: a label from 0 to 2"),
        ("labels", [0.5, 0], r"dataset /labels: one integer per sample is expected, not float64"),
        ("extra/speaker", [0, 1, 2], r"dataset /extra/speaker: 2 speakers are expected, not 3"),
        ("spikes/times", ([[0.1], [0.2, 0.3]], "f2"), r"dataset /spikes/times, index 0: equally many times and units"),
        ("spikes/times", ([[np.nan] * 3, [0]], "f2"), r"dataset /spikes/times, index 0: times in seconds are expected"),
        ("spikes/units", ([[1, 700, 2], [0]], "u2"), r"dataset /spikes/units, index 0, spike 1: x must be at least 0"),
    ],
)  # fmt: skip
def test_file_errors_name_the_dataset_and_index(tmp_path, name, value, said):
    pytest.importorskip("h5py")
    path = tmp_path / "shd.h5"
    write.write_shd(path, np.random.default_rng(0), [3, 4])
    change(path, name, ragged(*value) if isinstance(value, tuple) else value)
    with pytest.raises(FileError, match=said):
        data.SHD(path)[0]


def test_shapes_larger_than_the_file_are_not_allocated(tmp_path):
    h5py = pytest.importorskip("h5py")
    path = tmp_path / "shd.h5"
    write.write_shd(path, np.random.default_rng(0), [3, 4])
    with h5py.File(path, "a") as file:
        del file["labels"]
        file.create_dataset("labels", (1 << 40,), "i8", chunks=(1 << 10,), compression="gzip")
    with pytest.raises(FileError, match=r"dataset /labels: shape \(1099511627776,\) of int64 is too large for a file"):
        data.SHD(path)


def test_missing_h5py_error_names_the_extra(tmp_path, monkeypatch):
    pytest.importorskip("h5py")
    write.write_shd(tmp_path / "shd.h5", np.random.default_rng(0), [3])
    monkeypatch.setitem(sys.modules, "h5py", None)
    for read in (data.SHD, data.read_events):
        with pytest.raises(FileError, match=r"HDF5 needs h5py: pip install snncell\[events\]"):
            read(tmp_path / "shd.h5")


def test_files_that_are_not_hdf5_raise(tmp_path):
    for content, said in (
        (b"t,x,p\n1,2,0\n", "byte 0: an HDF5 file is expected"),
        (b"\x1f\x8b\x08", "compressed by gzip"),
    ):
        (tmp_path / "file").write_bytes(content)
        with pytest.raises(FileError, match=said):
            data.SHD(tmp_path / "file")
    with pytest.raises(FileError, match="cannot be read: No such file"):
        data.SHD(tmp_path / "none")
    with pytest.raises(FileError, match="it is a folder"):
        data.SHD(tmp_path)


def test_invalid_indices_raise(tmp_path) -> None:
    put(tmp_path / "3/a.bin").write_bytes(b"\x01\x02\x80\x00\x05")
    ds = data.NMNIST(tmp_path)
    assert ds[np.int8(0)][1] == 3
    for index, words in (("a", "an index must be an integer, not 'a'"), (slice(0, 2), "For several samples, use")):
        with pytest.raises(ArgumentError, match=words):
            ds[index]
