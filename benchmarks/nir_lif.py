"""LIF task of the NIR paper: spikes and voltage of one neuron compared with other simulators.

tau v' = x - v with tau = 2.5 ms, and v is reset to 0 when it passes 0.1. The input is 1 in 34 of 1,000 steps of 0.1 ms,
and 0 in the others. The paper shows the voltages and spikes of the simulators in a figure, and its repository has them
as files (github.com/neuromorphs/NIR, paper/01_lif). `PUBLISHED` has numbers that were computed from these files.

Source: Pedersen et al., "Neuromorphic intermediate representation", Nature Communications 2024.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

import snncell
from snncell import Tensor

DT, TAU, THRESHOLD = 1e-4, 2.5e-3, 0.1
INPUT_SPIKES = (6, 22, 27, 31, 32, 35, 37, 40, 41, *range(43, 54), *range(67, 79), 84, 85)  # in units of 10 steps

# Simulators, steps with spikes, and the root-mean-square distance of the voltage from the exact solution in percent of
# the threshold. The voltages of Nengo, snnTorch and SpiNNaker2 are multiplied by 0.1, 0.04 and 0.04, because they have
# other units, and those of Lava are shifted by one step.
PUBLISHED = (
    ("Norse, snnTorch and SpiNNaker2", (460, 510, 710, 760), 0.933),
    ("Nengo", (460, 510, 710, 760), 1.008),
    ("Lava on a CPU, floating point", (461, 511, 711, 761), 0.933),
    ("Spyx", (461, 511, 711, 761), 6.389),
    ("Rockpool and Sinabs", (450, 500, 710, 760), 12.865),
)
EXACT_TIMES = "46.084, 51.090, 71.092, 76.091"  # the published spikes of the exact solution, in ms


def absent() -> str:
    """Return the reason why the task cannot run here, or an empty text."""
    return "" if importlib.util.find_spec("nir") else 'needs the package nir: pip install "snncell[nir]"'


def inputs() -> Any:
    """Return the input of each step."""
    x = np.zeros(1000)
    x[10 * np.array(INPUT_SPIKES)] = 1.0
    return x


def exact(x: Any) -> tuple[list[float], Any]:
    """Return spike times, and the voltage at the end of each step, for an input that is constant in each step."""
    v, times, trace = 0.0, [], []
    for step, now in enumerate(x):
        left = DT
        while now > THRESHOLD and (wait := TAU * math.log((now - v) / (now - THRESHOLD))) <= left:
            left -= wait
            v = 0.0
            times.append((step + 1) * DT - left)
        v = now + (v - now) * math.exp(-left / TAU)
        trace.append(v)
    return times, np.array(trace)


def simulate(method: str) -> tuple[tuple[int, ...], Any]:
    """Return the steps with spikes, and the voltage after each step, of a network that snncell reads from a graph."""
    import nir

    one, zero = np.ones(1), np.zeros(1)
    graph = nir.NIRGraph.from_list(
        nir.Affine(weight=np.ones((1, 1)), bias=zero),
        nir.LIF(tau=TAU * one, r=one, v_leak=zero, v_threshold=THRESHOLD * one, v_reset=zero),
    )
    net = snncell.nir.from_nir(graph, DT, method)
    with snncell.monitor(net, v=True) as record:
        spikes = net(Tensor(inputs().astype(np.float32).reshape(-1, 1, 1)))
    (v,) = record.v.values()
    return tuple(np.flatnonzero(spikes.asnumpy()).tolist()), v.ravel()


def distance(v: Any) -> float:
    """Return the root-mean-square distance of a voltage from the exact solution, in percent of the threshold."""
    return float(100.0 * np.sqrt(np.square(v - exact(inputs())[1]).mean()) / THRESHOLD)


def run(seed: int, epochs: int) -> Iterator[Any]:
    """Yield the distance as a share of the threshold, then the voltage. Nothing is trained."""
    _, v = simulate("euler")
    yield distance(v) / 100.0
    yield [Tensor(v)]


def details() -> list[str]:
    """Return lines with the spikes of the exact solution and of each simulator."""
    times = ", ".join(f"{1e3 * time:.3f}" for time in exact(inputs())[0])
    ours = [(f'here, method="{method}"', *simulate(method)) for method in ("euler", "exponential")]
    rows = [(f"published, {name}", steps, far) for name, steps, far in PUBLISHED]
    rows += [(name, steps, distance(v)) for name, steps, v in ours]
    return [
        f"- spikes of the exact solution: published {EXACT_TIMES} ms, here {times} ms",
        *(f"- {name}: spikes in steps {', '.join(map(str, steps))}; distance {far:.3f}" for name, steps, far in rows),
    ]
