"""The network of an estimator: encoder, spiking layers, scores."""

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

# Encoders by name, (x, steps) -> (T, B, F). All except "current" take values in [0, 1].
ENCODERS: dict[str, Callable[..., Tensor]] = {
    "current": encode.current,
    "latency": functools.partial(encode.latency, normalize=True),  # the latest spikes fall into the last step
    "phase": encode.phase,
    "rate": encode.rate,
}


class Scores(Cell):
    """Outputs (B, C) of a network for samples (B, F): encode, run, average over time."""

    def __init__(self, encoder: Any, steps: int) -> None:
        super().__init__()
        self.encoder, self.steps = encoder, steps  # a name of `ENCODERS`, a function (x, steps), or None; and T
        self.network: Cell | None = None  # (T, B, F), or (B, F) without an encoder -> (T, B, C) or (B, C)

    def encode(self, x: Tensor) -> Tensor:
        """The input of the network. Axes after B of an encoder's output (T, B, ...) are flattened."""
        if self.encoder is None:
            return x
        encoder = ENCODERS[self.encoder] if isinstance(self.encoder, str) else self.encoder
        spikes = as_tensor(encoder(x, self.steps), "encoder", "its result")
        return spikes.flatten(start_dim=2) if spikes.ndim > 3 else spikes

    def construct(self, x: Tensor) -> Tensor:
        assert self.network is not None
        scores: Tensor = self.network(self.encode(x))
        return scores.mean(0) if scores.ndim == 3 else scores


def network_of(who: str, settings: dict[str, Any], sample: np.ndarray[Any, Any], outputs: int) -> Scores:
    """Make the network for the settings, given one sample (1, F) and the number of outputs."""
    scores = Scores(settings["encoder"], settings["steps"])
    inputs = scores.encode(Tensor(sample)).shape[-1]
    factory = settings["network"]
    if factory is None:
        if settings["encoder"] is None:
            raise ArgumentError(
                f"{who}: encoder=None gives no time steps, but the spiking layers need them. Pass encoder='current', "
                f"or your own network=."
            )
        scores.network = _layers(who, settings, inputs, outputs)
        return scores
    scores.network = _call_maker(who, "network", factory, "a function (n_features, n_outputs)", inputs, outputs)
    if not isinstance(scores.network, Cell):
        raise ArgumentError(
            f"{who}: network must be a function (n_features, n_outputs) that returns a Cell, but it returned "
            f"{came(scores.network)}."
        )
    shape = scores(Tensor(sample)).shape
    if shape != (1, outputs):
        raise ArgumentError(
            f"{who}: for samples (B, {sample.shape[1]}) the network must return (T, B, {outputs}) or (B, {outputs}), "
            f"so that the mean over time is (B, {outputs}). For one sample the mean had the shape {shape}."
        )
    return scores


def _call_maker(who: str, name: str, maker: Any, words: str, *args: Any) -> Any:
    """Call a function or class from the settings, which must take these arguments and be no Cell."""
    if isinstance(maker, Cell) or not callable(maker):
        raise ArgumentError(f"{who}: {name} must be {words} that makes one for each fit, not {came(maker)}.")
    if wrong := misfit(maker, args):
        raise ArgumentError(f"{who}: {name} is called as {words}, but {show(maker)} does not take that: {wrong}.")
    return maker(*args)


def _layers(who: str, settings: dict[str, Any], inputs: int, outputs: int) -> Cell:
    hidden, layers = settings["hidden"], list[Cell]()
    for width in [hidden] if isinstance(hidden, int) else hidden:
        neuron = make_setting(who, "neuron", settings["neuron"], nn, Neuron)
        if settings["surrogate"] is not None:
            neuron.surrogate_function = make_setting(who, "surrogate", settings["surrogate"], surrogate, Cell)
        layers += [nn.Dense(inputs, width), nn.MultiStep(neuron)]
        inputs = width
    return nn.SequentialCell(*layers, nn.Dense(inputs, outputs))


def make_setting(who: str, name: str, value: Any, module: ModuleType, kind: type) -> Any:
    """Make an object of a class `kind` from a setting: a class name, a class or function, or an object to copy."""
    if isinstance(value, kind) and not isinstance(value, type):
        return copy.deepcopy(value)
    maker = find_class(who, name, value, module, kind) if isinstance(value, str) else value
    found = maker
    if callable(maker) and not isinstance(maker, Cell):
        found = _call_maker(who, name, maker, "a function () or a class without arguments")
    if not isinstance(found, kind):
        own = " To use your own network of Cells, pass network=." if isinstance(found, Cell) else ""
        raise ArgumentError(
            f"{who}: {name} must be the name of a class in {module.__name__}, such a class, a function that makes an "
            f"object of it, or a {kind.__name__}, not {came(found)}.{own}"
        )
    return found


def find_class(who: str, name: str, value: str, module: ModuleType, kind: type) -> Any:
    """Look up a class of a module by name."""
    classes = {one: getattr(module, one) for one in module.__all__ if isinstance(getattr(module, one), type)}
    known = [one for one, found in classes.items() if issubclass(found, kind) and found is not kind]
    if value not in known:
        raise ArgumentError(
            f"{who}: {name} must be one of {', '.join(known)}, not {value!r}{suggest_name(value, {}, known, '')}"
        )
    return classes[value]


def optimiser_of(who: str, settings: dict[str, Any], net: Cell) -> Optimizer:
    """Make the optimiser for the Parameters of a network."""
    maker, rate = settings["optimizer"], settings["learning_rate"]
    if isinstance(maker, str):
        maker = find_class(who, "optimizer", maker, nn, Optimizer)
    rate = copy.deepcopy(rate) if isinstance(rate, LearningRateSchedule) else rate
    decay = {} if settings["weight_decay"] is None else {"weight_decay": settings["weight_decay"]}
    found = maker(net.trainable_params(), rate, **decay)
    if not isinstance(found, Optimizer):
        raise ArgumentError(
            f"{who}: optimizer must be a class of nn, its name, or a function (params, learning_rate) that makes an "
            f"optimiser, not {came(found)}."
        )
    return found


def refuse_range(who: str, encoder: Any, values: np.ndarray[Any, Any]) -> None:
    """Raise an ArgumentError for values outside of [0, 1], if the encoder needs that range."""
    if encoder not in ("latency", "phase", "rate") or not values.size:
        return
    low, high = float(values.min()), float(values.max())
    if low < 0.0 or high > 1.0:
        raise ArgumentError(
            f"{who}: encoder={encoder!r} takes values in [0, 1], but X has values in [{low:g}, {high:g}]. Scale them: "
            f"make_pipeline(MinMaxScaler(clip=True), {who}(encoder={encoder!r}))."
        )
