"""Table of all neurons: distinct constants, the reference step, and inputs that make the neuron fire."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import naive_neurons as naive
import numpy as np

from snncell import nn, surrogate

ALL = ("subtract", "zero", "value", None)


class Entry(NamedTuple):
    """A neuron and its test setup."""

    kind: Any
    constants: dict[str, Any]
    step: Callable[..., Any]
    inputs: tuple[float, float]
    states: tuple[tuple[float, float], ...] = ((-0.5, 0.7),)
    resets: tuple[str | None, ...] = ALL
    firing: dict[str, Any] = {"v_threshold": 0.8, "v_reset": -0.2}  # noqa: RUF012
    to_loop: Callable[[dict[str, Any]], dict[str, Any]] = lambda constants: constants
    plain: bool = True  # whether it has resets and spike functions to choose

    @property
    def spike_function(self) -> dict[str, Any]:
        """The option that selects ATan as surrogate, unless the neuron has its own spike function."""
        return {} if self.kind.own_function else {"surrogate_function": surrogate.ATan()}

    def make(self, reset: str | None = "subtract", detach: bool = False, **options: Any) -> Any:
        """The neuron with ATan as surrogate."""
        if not self.plain:
            return self.kind(**self.constants)
        given: dict[str, Any] = {**self.spike_function, "detach_reset": detach, **self.firing}
        if self.kind is not nn.GLIFNode:
            given["reset"] = reset
        return self.kind(**self.constants, **given, **options)

    def loop(self, world: naive.World, x: Any, states: Any) -> Any:
        """The reference loop of the neuron."""
        constants = self.to_loop(self.constants)

        def step(world: naive.World, x: float, *states: float) -> Any:
            return self.step(world, x, *states, **constants)

        return naive.run(step, world, x, states)

    def world(self, reset: str | None, **options: Any) -> naive.World:
        """The rules for spikes and resets of the neuron."""
        inclusive = self.kind in (nn.MultiSpikeLIFNode, nn.IzhikevichNode)
        return naive.World(
            reset, inclusive=inclusive, **({"v_reset": 0.0, "v_threshold": 0.8} | self.firing), **options
        )

    def drawn(self, steps: int = 10, neurons: int = 7, seed: int = 0) -> tuple[Any, list[Any]]:
        """Random inputs (T, N) and initial states (N,), float64."""
        rng = np.random.default_rng(seed)
        x = rng.uniform(*self.inputs, (steps, neurons))
        return x, [rng.uniform(*bounds, neurons) for bounds in self.states]


def without(*names: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """The constants except the given names."""
    return lambda constants: {name: value for name, value in constants.items() if name not in names}


EULER = {"tau": 3.0, "decay_input": True, "v_rest": 0.1}
CUBA = {"alpha": 0.6, "beta": 0.8, "current_gain": 0.7, "v_rest": 0.1}
ALIF = {"alpha": 0.8, "rho": 0.9}
EXP = {"delta_t": 0.5, "theta_rh": 0.6, "v_rest": 0.05}
QUADRATIC = {"v_c": 0.6, "a0": 1.3, "v_rest": 0.05}
GATES = {"alpha": 0.6, "beta": 0.3, "gamma": 0.7, "tau": 0.4, "v_threshold": 0.55}
GATES |= {"linear_decay": 0.1, "v_subreset": 0.45, "conduct": 0.8}
IZHIKEVICH = {"inputs": (-20.0, 60.0), "states": ((-70.0, 25.0), (-14.0, -10.0)), "resets": ("value",)}
TWO = ((-0.5, 0.7), (0.0, 0.4))
COBA = {"tau": 4.0, "alpha_e": 0.6, "alpha_i": 0.8, "e_exc": 3.0, "e_inh": -0.7, "v_rest": 0.1}

NEURONS: dict[str, Entry] = {
    "IF": Entry(nn.IFNode, {}, naive.integrate, (-0.3, 1.0)),
    "LIF": Entry(nn.LIFNode, EULER, naive.lif, (-0.3, 5.0)),
    "LIF undivided": Entry(nn.LIFNode, EULER | {"decay_input": False}, naive.lif, (-0.3, 1.2)),
    "Leaky": Entry(nn.LeakyNode, {"beta": 0.7, "input_gain": 1.4}, naive.leaky, (-0.3, 0.9)),
    "PLIF": Entry(nn.ParametricLIFNode, EULER, naive.lif, (-0.3, 5.0)),
    "PLIF undivided": Entry(nn.ParametricLIFNode, EULER | {"decay_input": False}, naive.lif, (-0.3, 1.2)),
    "CUBA": Entry(nn.CubaLIFNode, CUBA | {"order": "decay jump read"}, naive.cuba, (-0.3, 0.9), TWO),
    "CUBA of Norse": Entry(nn.CubaLIFNode, CUBA | {"order": "jump read decay"}, naive.cuba, (-0.3, 0.9), TWO),
    "CUBA of sinabs": Entry(nn.CubaLIFNode, CUBA | {"order": "jump decay read"}, naive.cuba, (-0.3, 1.5), TWO),
    "CUBA, read first": Entry(nn.CubaLIFNode, CUBA | {"order": "read decay jump"}, naive.cuba, (-0.3, 1.2), TWO),
    "COBA": Entry(
        nn.CobaLIFNode,
        COBA | {"scheme": "exponential", "order": "decay jump read"},
        naive.coba,
        (-0.5, 1.2),
        (*TWO, (0.0, 0.4)),
    ),
    "COBA of Norse": Entry(
        nn.CobaLIFNode,
        COBA | {"scheme": "euler", "order": "jump decay read"},
        naive.coba,
        (-0.5, 1.5),
        (*TWO, (0.0, 0.4)),
    ),
    "Alpha": Entry(
        nn.AlphaNode,
        {"alpha": 0.85, "beta": 0.6},
        naive.alpha,
        (-0.3, 1.3),
        ((0.0, 0.5), (-0.5, 0.0), (0.0, 0.1)),
        ("subtract", "zero", None),
    ),
    "ALIF": Entry(
        nn.ALIFNode, ALIF | {"beta": 0.5, "jump": 1.0, "subtracts": "v_threshold"}, naive.adaptive, (-0.3, 1.2), TWO
    ),
    "ALIF of 2018": Entry(
        nn.ALIFNode, ALIF | {"beta": 1.6, "jump": 0.1, "subtracts": "threshold"}, naive.adaptive, (-0.3, 1.2), TWO
    ),
    "EIF": Entry(nn.EIFNode, {"tau": 2.5} | EXP, naive.eif, (-0.5, 1.8)),
    "AdEx": Entry(nn.AdExNode, {"tau": 2.5, "tau_w": 6.0, "a": 0.3, "b": 0.4} | EXP, naive.adex, (-0.5, 2.5), TWO),
    "QIF": Entry(nn.QIFNode, {"tau": 2.5} | QUADRATIC, naive.qif, (-0.5, 1.5)),
    "adaptive QIF": Entry(
        nn.AdaptiveQIFNode,
        {"tau": 2.5, "tau_w": 6.0, "a": 0.3, "b": 0.4} | QUADRATIC,
        naive.adaptive_qif,
        (-0.5, 2.0),
        TWO,
    ),
    "Izhikevich": Entry(
        nn.IzhikevichNode,
        {"a": 0.03, "b": 0.2, "d": 6.0, "dt": 0.5, "substeps": 2},
        naive.izhikevich,
        firing={"v_threshold": 30.0, "v_reset": -60.0},
        **IZHIKEVICH,
    ),
    "KLIF": Entry(nn.KLIFNode, EULER | {"k": 1.4, "scale_reset": False}, naive.klif, (-0.3, 4.0)),
    "KLIF scaled": Entry(nn.KLIFNode, EULER | {"k": 1.4, "scale_reset": True}, naive.klif, (-0.3, 4.0)),
    "CLIF": Entry(nn.CLIFNode, {"tau": 3.0, "v_rest": 0.1}, naive.clif, (-0.3, 1.2), TWO),
    "GLIF": Entry(nn.GLIFNode, GATES, naive.glif, (-0.3, 1.2), ((-0.5, 0.7), (0.0, 0.0)), (None,), {}),
    "TC-LIF": Entry(
        nn.TCLIFNode, {"beta1": -0.4, "beta2": 0.6, "gamma": 0.3}, naive.two_compartments, (-0.4, 0.7), TWO
    ),
    "resonate": Entry(nn.ResonateNode, {"b": -0.2, "omega": 1.1, "dt": 0.8}, naive.resonate, (-1.0, 1.5), TWO),
    "balanced": Entry(
        nn.BalancedResonateNode,
        {"omega": 0.8, "damping": 0.1, "jump": 0.2, "gamma": 0.7},
        naive.balanced,
        (-1.0, 3.0),
        (*TWO, (0.0, 0.3)),
    ),
    "multi-spike": Entry(
        nn.MultiSpikeLIFNode,
        {"beta": 0.7, "max_spikes": 3},
        naive.counting,
        (-0.5, 2.6),
        to_loop=lambda constants: {"beta": constants["beta"], "most": constants["max_spikes"]},
    ),
    "ILIF": Entry(nn.ILIFNode, {"tau": 1.5, "most": 3, "v_rest": 0.1}, naive.integer, (-0.5, 2.6)),
    "refractory": Entry(
        nn.RefractoryLIFNode,
        {"tau": 3.0, "refractory": 2.0, "decay_input": False, "v_rest": 0.1},
        naive.refractory,
        (-0.2, 1.3),
        ((-0.5, 0.7), (-0.5, -0.1)),
    ),
    "ALIF behind a synapse": Entry(
        nn.WithSynapse,
        {"cell": nn.ALIFNode(**ALIF, beta=0.5, v_threshold=0.8, reset=None, surrogate_function=surrogate.ATan())}
        | {"alpha": 0.6, "order": "jump read decay"},
        naive.behind_synapse,
        (-0.3, 1.2),
        ((0.0, 0.4), *TWO),
        (None,),
        {"v_threshold": 0.8},
        lambda constants: {"leak": constants["alpha"]} | ALIF | {"beta": 0.5, "jump": 1.0, "subtracts": "v_threshold"},
        plain=False,
    ),
    "STP": Entry(
        nn.ShortTermPlasticity,
        {"U": 0.3, "tau_f": 4.0, "tau_d": 3.0},
        naive.plastic,
        (0.0, 1.0),
        ((0.0, 0.4), (0.5, 1.0)),
        (None,),
        plain=False,
    ),
    "LI": Entry(nn.LINode, EULER, naive.integrator, (-1.0, 2.0), resets=(None,), plain=False),
}
CASES = [(name, reset) for name, entry in NEURONS.items() for reset in entry.resets]
