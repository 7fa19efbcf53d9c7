"""The network of an estimator: an encoder, spiking layers, and scores."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

from snncell import encode, nn, surrogate
from snncell.base.arguments.kinds import misfit
from snncell.base.arguments.names import suggest_name
from snncell.base.arguments.shown import came, show
from snncell.cell.cell import Cell
from snncell.errors import ArgumentError
from snncell.nn.neurons.base import Neuron
from snncell.nn.optim.optimizer import Optimizer
from snncell.nn.optim.schedules import LearningRateSchedule
from snncell.ops.base import as_tensor
from snncell.tape.tensor import Tensor

# Encoders by name, (x, steps) -> (T, B, F); all but "current" take values in [0, 1].
ENCODERS: dict[str, Callable[..., Tensor]] = {
    "current": encode.current,
    "latency": functools.partial(encode.latency, normalize=True),  # the last spikes come in the last step
    "phase": encode.phase,
    "rate": encode.rate,
}


class Scores(Cell):
    """The outputs (B, C) of a network for samples (B, F): encoded, and averaged over time where there is one.

    Args:
        network: takes what the encoder gives, (T, B, F), or without one (B, F); gives (T, B, C) or (B, C).
        encoder: a name among `ENCODERS`, a function (x, steps), or None.
        steps: T.
    """

    def __init__(self, encoder: Any, steps: int) -> None:
        super().__init__()
        self.encoder, self.steps = encoder, steps
        self.network: Cell | None = None

    def encoded(self, x: Tensor) -> Tensor:
        """The input of the network: of an encoder's output (T, B, ...) all axes behind B are one."""
        if self.encoder is None:
            return x
        encoder = ENCODERS[self.encoder] if isinstance(self.encoder, str) else self.encoder
        spikes = as_tensor(encoder(x, self.steps), "encoder", "its result")
        return spikes.flatten(start_dim=2) if spikes.ndim > 3 else spikes

    def construct(self, x: Tensor) -> Tensor:
        assert self.network is not None
        scores: Tensor = self.network(self.encoded(x))
        return scores.mean(0) if scores.ndim == 3 else scores


def network_of(who: str, settings: dict[str, Any], sample: np.ndarray[Any, Any], outputs: int) -> Scores:
    """The network that settings ask for, for samples as (1, F)."""
    scores = Scores(settings["encoder"], settings["steps"])
    inputs = scores.encoded(Tensor(sample)).shape[-1]
    factory = settings["network"]
    if factory is None:
        if settings["encoder"] is None:
            raise ArgumentError(
                f"{who}: without an encoder there is no time, which the spiking layers need; give encoder='current', "
                f"or a network of your own."
            )
        scores.network = _layers(who, settings, inputs, outputs)
        return scores
    scores.network = _call_maker(who, "network", factory, "a function (n_features, n_outputs)", inputs, outputs)
    if not isinstance(scores.network, Cell):
        raise ArgumentError(
            f"{who}: network is a function (n_features, n_outputs) that gives a Cell; it gave {came(scores.network)}."
        )
    shape = scores(Tensor(sample)).shape
    if shape != (1, outputs):
        raise ArgumentError(
            f"{who}: for samples (B, {sample.shape[1]}) the network gives outputs (T, B, {outputs}) or (B, {outputs}), "
            f"whose mean over time is (B, {outputs}); of one sample it was {shape}."
        )
    return scores


def _call_maker(who: str, name: str, maker: Any, words: str, *args: Any) -> Any:
    """The result of a function or class among the settings, called with arguments.

    Raises:
        ArgumentError: if it does not take them, or is itself a Cell; an error in it comes as it is.
    """
    if isinstance(maker, Cell) or not callable(maker):
        raise ArgumentError(f"{who}: {name} is {words} that makes one, not {came(maker)}: each fit makes a new one.")
    if wrong := misfit(maker, args):
        raise ArgumentError(f"{who}: {name} is called as {words}, which {show(maker)} does not take: {wrong}.")
    return maker(*args)


def _layers(who: str, settings: dict[str, Any], inputs: int, outputs: int) -> Cell:
    """Layers of spiking neurons, and one of weights whose outputs are averaged."""
    hidden, layers = settings["hidden"], list[Cell]()
    for width in [hidden] if isinstance(hidden, int) else hidden:
        neuron = make_setting(who, "neuron", settings["neuron"], nn, Neuron)
        if settings["surrogate"] is not None:
            neuron.surrogate_function = make_setting(who, "surrogate", settings["surrogate"], surrogate, Cell)
        layers += [nn.Dense(inputs, width), nn.MultiStep(neuron)]
        inputs = width
    return nn.SequentialCell(*layers, nn.Dense(inputs, outputs))


def make_setting(who: str, name: str, value: Any, face: ModuleType, kind: type) -> Any:
    """An object of a kind from the name of a class, from what makes one when it is called, or as a copy of one."""
    if isinstance(value, kind) and not isinstance(value, type):
        return copy.deepcopy(value)
    maker = find_class(who, name, value, face, kind) if isinstance(value, str) else value
    found = maker
    if callable(maker) and not isinstance(maker, Cell):
        found = _call_maker(who, name, maker, "a function () or a class without arguments")
    if not isinstance(found, kind):
        own = " A network of Cells of one's own is made by network=." if isinstance(found, Cell) else ""
        raise ArgumentError(
            f"{who}: {name} is the name of a class in {face.__name__}, such a class, a function that makes one, or a "
            f"{kind.__name__}, not {came(found)}.{own}"
        )
    return found


def find_class(who: str, name: str, value: str, face: ModuleType, kind: type) -> Any:
    """A class of a module, by its name."""
    classes = {one: getattr(face, one) for one in face.__all__ if isinstance(getattr(face, one), type)}
    known = [one for one, found in classes.items() if issubclass(found, kind) and found is not kind]
    if value not in known:
        raise ArgumentError(
            f"{who}: {name} is one of {', '.join(known)}, not {value!r}{suggest_name(value, {}, known, '')}"
        )
    return classes[value]


def optimiser_of(who: str, settings: dict[str, Any], net: Cell) -> Optimizer:
    """The optimiser of a network's Parameters."""
    maker, rate = settings["optimizer"], settings["learning_rate"]
    if isinstance(maker, str):
        maker = find_class(who, "optimizer", maker, nn, Optimizer)
    rate = copy.deepcopy(rate) if isinstance(rate, LearningRateSchedule) else rate
    decay = {} if settings["weight_decay"] is None else {"weight_decay": settings["weight_decay"]}
    found = maker(net.trainable_params(), rate, **decay)
    if not isinstance(found, Optimizer):
        raise ArgumentError(
            f"{who}: optimizer is a class of nn, its name, or a function (params, learning_rate) that makes one, "
            f"not {came(found)}."
        )
    return found


def refuse_range(who: str, encoder: Any, values: np.ndarray[Any, Any]) -> None:
    """Raise an ArgumentError for values that an encoder does not take."""
    if encoder not in ("latency", "phase", "rate") or not values.size:
        return
    low, high = float(values.min()), float(values.max())
    if low < 0.0 or high > 1.0:
        raise ArgumentError(
            f"{who}: encoder={encoder!r} takes values in [0, 1], and X has some in [{low:g}, {high:g}]. Scale them: "
            f"make_pipeline(MinMaxScaler(clip=True), {who}(encoder={encoder!r}))."
        )
