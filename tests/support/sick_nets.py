"""Faults planted in random networks, each with the kinds of findings that identify it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from drawn_nets import Case, draw, train

from snncell import Tensor, nn, ops, surrogate

Plant = Callable[[Case, Any], None]
REFUSED = "out of range"  # in the words of an error, where a report refuses a batch for its labels


class Sickness(NamedTuple):
    """A planted fault, the kinds of findings that identify it, and the requirements on the net."""

    plant: Plant
    kinds: frozenset[str]
    drawn: dict[str, Any]


SICKNESSES: dict[str, Sickness] = {}


def sickness(name: str, *kinds: str, **drawn: Any) -> Callable[[Plant], Plant]:
    """Register a function that plants a fault."""

    def enter(plant: Plant) -> Plant:
        SICKNESSES[name] = Sickness(plant, frozenset(kinds), drawn)
        return plant

    return enter


def sick(name: str, seed: int, **drawn: Any) -> tuple[Case, frozenset[str]]:
    """A net with this fault, and the kinds that identify it."""
    plant, kinds, needed = SICKNESSES[name]
    number = list(SICKNESSES).index(name)
    case = draw(1_000_000 * (number + 1) + seed, **{**drawn, **needed})
    plant(case, np.random.default_rng([seed, number]))
    return case, kinds


def _one_hidden(case: Case, rng: Any) -> int:
    return int(rng.choice(list(case.net.hidden)))


def _scaled(parameter: Any, factor: float) -> None:
    parameter.set_data(Tensor((parameter.asnumpy() * factor).astype(np.float32)))


def _shifted(net: Any, number: int, by: Any) -> None:
    """Add a constant current to a layer, or one per sample and step, (T, B) or (T, 1)."""
    net.hooks[number] = lambda x: x + Tensor(np.asarray(by, np.float32).reshape((*np.shape(by), *[1] * (x.ndim - 2))))


def _unit(net: Any, number: int) -> float:
    """The distance from rest to threshold, so that a planted fault has the same relative size for every neuron."""
    return float(np.mean(np.asarray(net.cell(number).v_threshold)))


# --- silence ----------------------------------------------------------------------------------------------------------


@sickness("dead layer", "dead", "silent output")
def _dead(case: Case, rng: Any) -> None:
    number = _one_hidden(case, rng)
    if rng.random() < 0.5:
        _shifted(case.net, number, -float(rng.uniform(30.0, 300.0)) * _unit(case.net, number))
    else:
        case.net.cell(number).v_threshold = float(rng.uniform(200.0, 2000.0))


@sickness("dead in some samples", "silent samples", "dead", "silent output", "equal outputs")
def _dead_in_some(case: Case, rng: Any) -> None:
    steps, batch = case.x.shape[:2]
    by = np.zeros((steps, batch))
    by[:, rng.permutation(batch)[: max(3, batch // 3)]] = -float(rng.uniform(5.0, 30.0)) * _unit(case.net, 0)
    _shifted(case.net, 0, by)
    case.log = train(case, 6)


# --- too much ---------------------------------------------------------------------------------------------------------


@sickness("saturated layer", "saturated", "large potentials")
def _saturated(case: Case, rng: Any) -> None:
    number = _one_hidden(case, rng)
    _shifted(case.net, number, float(10.0 ** rng.uniform(0.5, 2.0)) * _unit(case.net, number))


@sickness("saturated in some samples", "saturated", "large potentials", steps=(16, 60))
def _saturated_in_some(case: Case, rng: Any) -> None:
    steps, batch = case.x.shape[:2]
    by = np.zeros((steps, batch))
    number = _one_hidden(case, rng)
    some = rng.permutation(batch)[: int(rng.integers(1, 3))]
    by[:, some] = float(10.0 ** rng.uniform(0.5, 1.5)) * _unit(case.net, number)
    _shifted(case.net, number, by)


@sickness("saturated late", "saturated", "large potentials", "exploding recurrence", steps=(24, 60))
def _saturated_late(case: Case, rng: Any) -> None:
    steps = len(case.x)
    number = _one_hidden(case, rng)
    late = (np.arange(steps) >= steps * rng.uniform(0.4, 0.6)) * float(10.0 ** rng.uniform(0.5, 1.5))
    _shifted(case.net, number, (late * _unit(case.net, number))[:, None])


@sickness("late, and in some samples", "saturated", "large potentials", "exploding recurrence", steps=(24, 60))
def _late_in_some(case: Case, rng: Any) -> None:
    steps, batch = case.x.shape[:2]
    number = _one_hidden(case, rng)
    by = np.zeros((steps, batch))
    by[int(steps * rng.uniform(0.4, 0.6)) :, rng.permutation(batch)[:1]] = 10.0 ** rng.uniform(0.5, 1.5)
    _shifted(case.net, number, by * _unit(case.net, number))


@sickness("feedback that excites itself", "saturated", "exploding recurrence", recurrent=True, steps=(20, 60))
def _excited(case: Case, rng: Any) -> None:
    number = _one_hidden(case, rng)
    back = case.net.neurons[number].cell.feedback.weight
    entries = np.abs(back.asnumpy()) * float(rng.uniform(2.0, 20.0))
    back.set_data(Tensor(entries.astype(np.float32)))


# --- potentials -------------------------------------------------------------------------------------------------------


@sickness("raw inputs, 0 to 255", "large potentials", "saturated", "narrow surrogate", "dead")
def _raw(case: Case, rng: Any) -> None:
    case.x = (case.x * 255.0).astype(np.float32)


@sickness("potentials that explode", "large potentials", "exploding recurrence", conv=False, steps=(24, 60))
def _exploding_potentials(case: Case, rng: Any) -> None:
    number = _one_hidden(case, rng)
    node = Growing(1.0 + float(rng.uniform(0.1, 0.5)))
    case.net.neurons[number].cell = node
    case.optimiser = nn.Adam(case.net.trainable_params(), 1e-3)
    _scaled(case.net.dense(number).weight, 3.0)


class Growing(nn.Cell):
    """A custom neuron with a growing state: v = growth v + x - s."""

    spike = surrogate.ATan()

    def __init__(self, growth: float) -> None:
        super().__init__()
        self.growth = growth

    def construct(self, x, v):
        h = self.growth * v + x
        s = self.spike(h - 1.0)
        return s, h - s


@sickness("weights that exploded", "large potentials", "learning rate", "loss curve")
def _exploded(case: Case, rng: Any) -> None:
    case.optimiser = nn.SGD(case.net.trainable_params(), 1e-3)
    for number in case.net.hidden:
        _scaled(case.net.dense(number).weight, float(10.0 ** rng.uniform(1.5, 4.0)))


@sickness("decay out of range", "constant out of range", kind="ALIF")
def _decay(case: Case, rng: Any) -> None:
    set_constant(case.net.cell(_one_hidden(case, rng)), "alpha", float(1.0 + 10.0 ** rng.uniform(-3.0, -0.5)))


@sickness("decay learned out of range", "constant out of range", kind="Leaky")
def _learned_decay(case: Case, rng: Any) -> None:
    node = case.net.cell(_one_hidden(case, rng))
    node.beta = nn.LeakyNode(0.9, learnable="beta").beta
    case.optimiser = nn.Adam(case.net.trainable_params(), 1e-3)
    node.beta._data = np.array(rng.choice([1.0095, 1.2, -0.1]), np.float32)  # as no write to it would


@sickness("a custom neuron that keeps too much", "constant out of range", conv=False)
def _keeps_too_much(case: Case, rng: Any) -> None:
    case.net.neurons[_one_hidden(case, rng)].cell = Growing(1.0 + float(rng.uniform(0.01, 0.3)))
    case.optimiser = nn.Adam(case.net.trainable_params(), 1e-3)


@sickness("time constant out of range", "constant out of range", kind="LIF")
def _tau(case: Case, rng: Any) -> None:
    set_constant(case.net.cell(_one_hidden(case, rng)), "tau", float(rng.choice([0.9, 0.4, -2.0])))


@sickness("threshold out of range", "constant out of range", kind="IF")
def _threshold(case: Case, rng: Any) -> None:
    set_constant(case.net.cell(_one_hidden(case, rng)), "v_threshold", float(rng.choice([-0.2, 0.0])))


def set_constant(node: Any, name: str, value: float) -> None:
    """Set a constant to a value that the constructor would reject."""
    node.__dict__[name] = value


# --- surrogates and gradients -----------------------------------------------------------------------------------------


@sickness("surrogate too narrow", "narrow surrogate", "dead", "vanishing gradient", "no gradient")
def _narrow(case: Case, rng: Any) -> None:
    for number in case.net.hidden:
        width = float(10.0 ** rng.uniform(-3.5, -1.7)) * _unit(case.net, number)
        case.net.cell(number).surrogate_function = surrogate.Triangle(width=width)


@sickness("surrogate too wide", "wide surrogate", "exploding gradient", "exploding recurrence", "mis-scaled loss")
def _wide(case: Case, rng: Any) -> None:
    for number in case.net.hidden:
        width = float(10.0 ** rng.uniform(1.5, 4.0)) * _unit(case.net, number)
        case.net.cell(number).surrogate_function = surrogate.Triangle(width=width)


class Faded(nn.Cell):
    """Identity with a backward pass that scales gradients."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def construct(self, x):
        return x * 1.0

    def bprop(self, x, out, dout):
        return (dout * self.factor,)


@sickness("vanishing through depth", "vanishing gradient", "no gradient", "mis-scaled loss", depth=3)
def _vanishing(case: Case, rng: Any) -> None:
    case.net.hooks[int(rng.integers(1, 3))] = Faded(float(10.0 ** rng.uniform(-8.0, -3.0)))


@sickness("exploding through depth", "exploding gradient", "exploding recurrence", depth=3)
def _exploding(case: Case, rng: Any) -> None:
    case.net.hooks[int(rng.integers(1, 3))] = Faded(float(10.0 ** rng.uniform(3.0, 7.0)))


@sickness(
    "exploding through time", "exploding gradient", "exploding recurrence", "saturated", recurrent=True, steps=(30, 60)
)
def _exploding_in_time(case: Case, rng: Any) -> None:
    number = _one_hidden(case, rng)
    case.net.cell(number).surrogate_function = surrogate.ATan()
    _scaled(case.net.neurons[number].cell.feedback.weight, float(rng.uniform(4.0, 20.0)))


@sickness("detached", "no gradient")
def _detached(case: Case, rng: Any) -> None:
    case.net.hooks[_one_hidden(case, rng)] = ops.stop_gradient


@sickness("a reverse of zeros", "no gradient")
def _zeros(case: Case, rng: Any) -> None:
    case.net.hooks[_one_hidden(case, rng)] = Faded(0.0)


@sickness("not in the optimiser", "not trained")
def _left_out(case: Case, rng: Any) -> None:
    left = id(case.net.dense(_one_hidden(case, rng)).weight)
    case.optimiser = nn.Adam([p for p in case.net.trainable_params() if id(p) != left], 1e-3)
    case.log = train(case, 3)


@sickness("learned constants not in the optimiser", "not trained", kind="ParametricLIF")
def _constants_left_out(case: Case, rng: Any) -> None:
    own = {id(case.net.cell(n).w) for n in case.net.hidden}
    case.optimiser = nn.Adam([p for p in case.net.trainable_params() if id(p) not in own], 1e-3)


# --- training ---------------------------------------------------------------------------------------------------------


@sickness("learning rate too high", "learning rate", "loss curve")
def _fast(case: Case, rng: Any) -> None:
    case.optimiser = nn.Adam(case.net.trainable_params(), float(10.0 ** rng.uniform(-0.7, 1.5)))
    if rng.random() < 0.5:
        case.log = train(case, 5)


@sickness("learning rate too low", "learning rate", "loss curve")
def _slow(case: Case, rng: Any) -> None:
    case.optimiser = nn.Adam(case.net.trainable_params(), float(10.0 ** rng.uniform(-10.0, -7.0)))
    case.log = train(case, 6)


@sickness("loss stuck", "loss curve", "silent output", "dead")
def _stuck(case: Case, rng: Any) -> None:
    case.loss = nn.CrossEntropyLoss()
    classes = int(case.y.max()) + 1
    case.optimiser = nn.Adam(case.net.trainable_params(), 3e-4)
    last = case.net.dense(len(case.net.neurons) - 1)
    _scaled(last.weight, 0.02)  # an output that begins at chance, as nets that learn nothing end there
    if last.bias is not None:
        _scaled(last.bias, 0.0)
    case.log = train(case, 8, targets=lambda epoch: rng.integers(0, classes, len(case.y)))


@sickness("loss a sum", "mis-scaled loss")
def _summed(case: Case, rng: Any) -> None:
    case.loss = nn.CrossEntropyLoss(reduction="sum")


@sickness("labels from 1", "labels", REFUSED)
def _labels(case: Case, rng: Any) -> None:
    case.y = case.y + int(rng.integers(1, 3))


@sickness("labels of one class", "labels")
def _one_class(case: Case, rng: Any) -> None:
    case.y = np.full_like(case.y, int(rng.integers(0, case.y.max() + 1)))


@sickness("NaN in the input", "not finite")
def _nan_input(case: Case, rng: Any) -> None:
    case.x = case.x.copy()
    case.x.reshape(-1)[rng.integers(0, case.x.size, 3)] = np.nan


@sickness("NaN in a weight", "not finite")
def _nan_weight(case: Case, rng: Any) -> None:
    weight = case.net.dense(int(rng.integers(0, len(case.net.neurons)))).weight
    entries = weight.asnumpy().copy()
    entries.reshape(-1)[rng.integers(0, entries.size)] = np.nan
    weight.set_data(Tensor(entries))


@sickness("NaN in a step", "not finite")
def _nan_step(case: Case, rng: Any) -> None:
    by = np.zeros(case.x.shape[:2])
    by[rng.integers(0, len(by)), rng.integers(0, by.shape[1])] = np.nan
    _shifted(case.net, _one_hidden(case, rng), by)


@sickness("activity that grows over epochs", "growth", "saturated", "large potentials")
def _growth(case: Case, rng: Any) -> None:
    case.optimiser = nn.Adam(case.net.trainable_params(), 1e-3)
    for epoch in range(8):
        for number in case.net.hidden:
            _shifted(case.net, number, 0.5 * epoch * _unit(case.net, number))  # as biases that grow
        case.log += train(case, 1, steps=1)
        case.log[-1]["epoch"] = len(case.log)
