"""Random splits of data sets."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import snncell
from snncell import data, nn, ops, train
from snncell.errors import ArgumentError, ArgumentTypeError, TensorIndexError


@pytest.mark.parametrize(
    ("lengths", "expected"),
    [([7, 3], [7, 3]), ([0.7, 0.3], [7, 3]), ([0.5, 0.25, 0.25], [6, 2, 2]), ([10], [10]), ([1.0, 0.0], [10, 0]),
     ([0, 10], [0, 10]), (np.array([4, 6]), [4, 6])],
)  # fmt: skip
def test_each_sample_is_in_exactly_one_part(lengths: Any, expected: list[int]) -> None:
    parts = data.random_split([*range(10)], lengths, seed=3)
    assert [len(part) for part in parts] == expected
    assert sorted(sample for part in parts for sample in part) == [*range(10)]


def test_order_follows_the_seed() -> None:
    def split_order(seed: int | None) -> list[int]:
        return [*data.random_split([*range(50)], [0.5, 0.5], seed)[0]]

    assert split_order(1) == split_order(1) != split_order(2)
    assert split_order(1) != [*range(25)]
    snncell.set_seed(5)
    first, second = split_order(None), split_order(None)
    snncell.set_seed(5)
    assert first == split_order(None) != second


def test_arrays_are_split_together_and_can_train_a_net() -> None:
    x, y = ops.uniform((20, 2)), ops.arange(20) % 2
    learned, held_out = data.random_split((x, y), [0.75, 0.25], seed=0)
    assert learned[0].shape == (15, 2) and held_out[1].shape == (5,)
    rows = {tuple(row): label for row, label in zip(x.asnumpy().tolist(), y.asnumpy().tolist(), strict=True)}
    for inputs, labels in (learned, held_out):
        for row, label in zip(inputs.asnumpy().tolist(), labels.asnumpy().tolist(), strict=True):
            assert rows[tuple(row)] == label
    net = nn.Dense(2, 2)
    adam = nn.Adam(net.trainable_params(), 0.01)
    record = train.fit(net, nn.CrossEntropyLoss(), adam, learned, 1, validation=held_out, progress=False).best
    assert "test_loss" in record


def test_subset_is_a_data_set_with_the_same_sensor() -> None:
    whole = data.MovingDigits(10, seed=0)
    part = data.Subset(whole, [3, 0, -1])
    assert len(part) == 3 and part.sensor_size == whole.sensor_size
    np.testing.assert_array_equal(part[0][0], whole[3][0])
    np.testing.assert_array_equal(part[-1][0], whole[9][0])
    with pytest.raises(TensorIndexError, match="Subset: index 3 is out of range for 3 samples"):
        part[3]
    with pytest.raises(ArgumentTypeError, match=r"Subset: an index must be an integer, not slice\(0, 2, None\)"):
        part[0:2]
    with pytest.raises(ArgumentTypeError, match=r"Subset: an index must be an integer, not array\(0\.5\)"):
        part[np.array(0.5)]
    with pytest.raises(ArgumentTypeError, match=r"Subset: an index must be an integer, not array\(\[0\]\)"):
        part[np.array([0])]


def test_arrays_without_a_tuple_name_the_right_call() -> None:
    for given in ((np.zeros((4, 3)), np.arange(4), [3, 1]), ([0, 1, 2, 3], [3, 1, 0, 2], np.array([3, 1]))):
        with pytest.raises(ArgumentError, match=r"pass them as one tuple: random_split\(\(x, y\), \[0.8, 0.2\]\)"):
            data.random_split(*given)


@pytest.mark.parametrize(
    ("dataset", "lengths", "match"),
    [
        ([1, 2, 3], [2, 2], "lengths add up to 4; they must add up to the 3 samples of the data set, or to 1"),
        ([1, 2, 3], [0.5, 0.4], "lengths add up to 0.9"),
        ([1, 2, 3], [0.5, 2.5], "lengths=.0.5, 2.5. are numbers of samples, .* each must be a whole number"),
        ([1, 2, 3], [-1, 4], "lengths must be a list of numbers of samples"),
        ([1, 2, 3], 0.5, "lengths must be a list of numbers of samples"),
        ([1, 2, 3], [], "lengths must be a list of numbers of samples"),
        (iter([1]), [1], "random_split: a data set must support"),
        ((np.zeros(3), np.zeros(2)), [3], "the arrays have different lengths: 2, 3"),
    ],
)
def test_invalid_splits_raise(dataset: Any, lengths: Any, match: str) -> None:
    with pytest.raises(ArgumentError, match=match):
        data.random_split(dataset, lengths)


def test_indices_outside_of_the_data_set_raise() -> None:
    for indices in ([2], [-3]):
        with pytest.raises(ArgumentError, match=r"Subset: indices must lie in \[0, 2\), .* has 2 samples"):
            data.Subset([1, 2], indices)


@pytest.mark.parametrize("indices", [int, 3, [0.5], ["a"], [[0]], [[0], [0, 1]], None, "01", [True]])
def test_indices_of_invalid_types_raise(indices: Any) -> None:
    with pytest.raises(ArgumentError, match="Subset: indices must be a list of positions"):
        data.Subset([1, 2], indices)


def test_validation_and_test_name_the_same_argument() -> None:
    net, batch = nn.Dense(2, 2), (ops.ones((4, 2)), ops.arange(4) % 2)
    sgd = nn.SGD(net.trainable_params(), 0.1)
    records = [
        train.fit(net, nn.CrossEntropyLoss(), sgd, batch, 1, progress=False, **{name: batch}).best
        for name in ("validation", "test")
    ]
    assert records[0].keys() == records[1].keys() and "test_accuracy" in records[0]
    with pytest.raises(ArgumentError, match="test is another name of validation"):
        train.fit(net, nn.CrossEntropyLoss(), sgd, batch, 1, validation=batch, test=batch)
