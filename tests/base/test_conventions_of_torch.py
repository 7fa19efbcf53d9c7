"""Warnings for arguments that PyTorch defines otherwise: the stride of pooling, the momentum of batch normalisation."""

from __future__ import annotations

import re
import warnings
from typing import Any

import pytest

from snncell import nn
from snncell.errors import ArgumentWarning

POOLS = [one for name, one in vars(nn).items() if re.fullmatch(r"(Max|Avg|Sum)Pool\dd", name)]
NORMS = {
    "BatchNorm1d": lambda **more: nn.BatchNorm1d(3, **more),
    "BatchNorm2d": lambda **more: nn.BatchNorm2d(3, **more),
    "ThresholdBatchNorm": lambda **more: nn.ThresholdBatchNorm(3, 0.5, 0.7, **more),
    "BatchNormThroughTime": lambda **more: nn.BatchNormThroughTime(3, 2, **more),
    "TemporalEffectiveBatchNorm": lambda **more: nn.TemporalEffectiveBatchNorm(3, 2, **more),
}


@pytest.mark.parametrize("pool", POOLS, ids=lambda one: one.__name__)
def test_a_pool_without_a_stride_warns_at_the_callers_line_and_writes_both_ways_out(pool: Any) -> None:
    window = (2, 2) if pool.__name__.endswith("2d") else 2
    for make in (lambda: pool(window), lambda: pool(kernel_size=window), lambda: pool(window, pad_mode="same")):
        with pytest.warns(ArgumentWarning, match="stride is 1 by default") as told:
            made = make()
        assert made.stride == 1 and len(told) == 1 and told[0].filename == __file__
        text = str(told[0].message)
        ways = [part.split(" for ")[0] for part in re.split("write |, or ", text)[1:]]
        assert [eval(way, vars(nn)).stride for way in ways] == [window, 1]
    pool(), pool(1), pool(window, 1), pool(window, stride=window)  # nothing is warned of


@pytest.mark.parametrize("name", NORMS)
@pytest.mark.parametrize("momentum", [0.0, 0.1, 0.3])
def test_a_small_momentum_warns_and_writes_both_ways_out(name: str, momentum: float) -> None:
    with pytest.warns(ArgumentWarning, match=f"PyTorch's momentum={momentum:g} is the opposite") as told:
        layer = NORMS[name](momentum=momentum)
    assert len(told) == 1
    text = str(told[0].message)
    layer.momentum = 0.75
    exec(re.search(r"layer\.momentum = [\d.]+\d|layer\.momentum = \d", text)[0])
    assert layer.momentum == momentum
    assert NORMS[name](momentum=float(re.search(r"write momentum=([\d.]+)", text)[1])).momentum == 1.0 - momentum
    for fine in ({}, {"momentum": 0.5}, {"momentum": 0.9}, {"momentum": 1.0}):
        NORMS[name](**fine)


def test_the_warning_comes_once_for_each_line() -> None:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("default")
        for _ in range(3):
            nn.MaxPool2d(2)
    assert len(told) == 1
