"""Encoders, decoders, losses of spikes and regularisers on the device against the CPU: the rows of their tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from test_encode import CALLS, X
from test_regularisers import TABLE, X as ACTIVITY
from test_spike_losses import LABELS, LOSSES, REAL, SPIKES, outputs_for

import snncell
from snncell import Tensor, nn, ops

MODES = {"eager": lambda fn: fn, "jit": snncell.jit}


def same_on_both(fn: Callable[..., Any], *arrays: Any) -> None:
    """Check that `fn` gives the CPU's results on the device, and gives them there."""
    found = []
    for device in ("cpu", "gpu"):
        snncell.set_seed(3)
        results = fn(*[Tensor(x).to(device) for x in arrays])
        found.append(results if isinstance(results, tuple) else (results,))
    for here, there in zip(*found, strict=True):
        assert there.device == "gpu"
        np.testing.assert_allclose(there.asnumpy(), here.asnumpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", CALLS)
def test_encoders_and_decoders(name: str, mode: str) -> None:
    same_on_both(MODES[mode](CALLS[name][0]), X)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", LOSSES)
def test_losses_of_spikes(name: str, mode: str) -> None:
    kind, arguments, _ = LOSSES[name]
    x = outputs_for(kind, arguments).astype(np.float32)
    same_on_both(MODES[mode](ops.value_and_grad(kind(**arguments))), x, LABELS)


@pytest.mark.parametrize("mode", MODES)
def test_van_rossum(mode: str) -> None:
    both = ops.value_and_grad(nn.VanRossumLoss(3.0))
    same_on_both(MODES[mode](both), REAL.astype(np.float32), SPIKES.astype(np.float32))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", TABLE)
def test_regularisers(name: str, mode: str) -> None:
    kind, arguments, _ = TABLE[name]
    same_on_both(MODES[mode](ops.value_and_grad(kind(**arguments))), ACTIVITY.astype(np.float32))
