"""Random networks with data to learn, reproducible by seed: many neurons, shapes, inputs and readouts.

A healthy net learns: its weights are scaled so that its neurons fire, and a short training on its data lowers the
loss below the loss with other samples' labels. The second condition matters because a bias alone can lower the loss,
while a silent or disconnected layer gives all samples the same output. These checks do not use a report, so they
can judge one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import snncell
from snncell import Tensor, nn, ops, surrogate

# What a healthy net gets below in a training: of the loss before it, and of the loss with other samples' labels.
HEALTHY_FALL, HEALTHY_APART = 0.9, 0.9
DRAWS = 32  # of nets for one seed, until one learns

SURROGATES: dict[str, Callable[[], Any]] = {
    "relusigmoid": surrogate.relusigmoid,
    "ATan": surrogate.ATan,
    "Sigmoid": surrogate.Sigmoid,
    "Triangle": surrogate.Triangle,
    "FastSigmoid": surrogate.FastSigmoid,
    "Gaussian": surrogate.Gaussian,
    "SoftSign": surrogate.SoftSign,
}


def neuron_of(rng: Any, kind: str, spike: Any) -> Any:
    """A neuron with constants in the ranges used in papers."""
    common = {"surrogate_function": spike, "detach_reset": bool(rng.random() < 0.3)}
    reset = str(rng.choice(["subtract", "zero"]))
    high = float(rng.uniform(0.3, 1.2))
    plain = {**common, "reset": reset, "v_threshold": high}
    tau = float(rng.uniform(1.5, 10.0))
    if kind == "LIF":
        return nn.LIFNode(tau, decay_input=bool(rng.random() < 0.5), **plain)
    if kind == "ParametricLIF":
        return nn.ParametricLIFNode(tau, **plain)
    if kind == "IF":
        return nn.IFNode(**plain)
    if kind == "Leaky":
        return nn.LeakyNode(float(rng.uniform(0.6, 0.98)), **plain)
    if kind == "ALIF":
        rho = float(rng.uniform(0.8, 0.98))
        jump = 1.0 - rho if rng.random() < 0.5 else 1.0
        beta = float(rng.uniform(0.1, 0.6 if jump == 1.0 else 1.8))
        return nn.ALIFNode(float(rng.uniform(0.7, 0.95)), rho, beta, jump, v_threshold=high, **common)
    if kind == "Cuba":
        return nn.CubaLIFNode(float(rng.uniform(0.5, 0.9)), float(rng.uniform(0.6, 0.95)), **plain)
    if kind == "EIF":
        return nn.EIFNode(tau, v_threshold=1.5, v_reset=0.0, reset="value", **common)
    if kind == "MultiSpike":
        return nn.MultiSpikeLIFNode(1.0 - 1.0 / tau, v_threshold=high, surrogate_function=spike)
    assert kind == "KLIF"
    return nn.KLIFNode(**common)


KINDS = ("LIF", "ParametricLIF", "IF", "Leaky", "ALIF", "Cuba", "EIF", "MultiSpike", "KLIF")


class Drawn(nn.Cell):
    """Layers of weights and neurons, and a readout; planted faults are hooks between them.

    Attributes:
        weights, neurons: one per layer; the last ones are the output's.
        hooks: per layer, functions applied to its current before the neurons.
    """

    def __init__(self, weights: list[Any], neurons: list[Any], read: str) -> None:
        super().__init__()
        self.weights, self.neurons = nn.CellList(weights), nn.CellList([nn.MultiStep(each) for each in neurons])
        self.read = read
        self.hooks: dict[int, Callable[[Any], Any]] = {}

    def construct(self, x):
        for number, neurons in enumerate(self.neurons):
            x = neurons(self.current(number, x))
        return {"mean": lambda: x.mean(0), "last": lambda: x[-1], "max": lambda: ops.max(x, 0)}[self.read]()

    def current(self, number: int, x: Any) -> Any:
        """The input current of a layer's neurons."""
        current = self.weights[number](x)
        return self.hooks[number](current) if number in self.hooks else current

    def cell(self, number: int) -> Any:
        """The neuron of a layer."""
        ran = self.neurons[number].cell
        return ran.cell if isinstance(ran, nn.Recurrent) else ran

    def dense(self, number: int) -> Any:
        """The Cell with the weights of a layer."""
        found = self.weights[number]
        return next(c for _, c in found.cells_and_names() if isinstance(c, (nn.Dense, nn.Conv2d)))

    @property
    def hidden(self) -> range:
        """The indices of the hidden layers."""
        return range(len(self.neurons) - 1)


@dataclass
class Case:
    """A network with the arguments of a report, and known facts about it.

    about: a description of the random choices.
    net, x, y, loss, optimiser, log: the arguments of a report.
    met: whether the layers fire at the target rates.
    falls: the loss after training divided by the loss before; 1.0 if not trained.
    apart: the loss after training divided by the loss with other samples' labels, see function `apart`.
    """

    about: str
    net: Any
    x: Any
    y: Any
    loss: Any
    optimiser: Any = None
    log: list[dict[str, Any]] = field(default_factory=list)
    met: bool = True
    falls: float = 1.0
    apart: float = 1.0

    @property
    def given(self) -> tuple[Any, ...]:
        """The arguments of a report, in order."""
        return self.net, (self.x, self.y), self.loss, self.optimiser, self.log or None


# --- drawing ----------------------------------------------------------------------------------------------------------


def inputs_of(rng: Any, steps: int, labels: Any, width: int, kind: str) -> Any:
    """Inputs (T, B, width) that depend on the class: constant currents, spike rates or waves, with noise."""
    classes = int(labels.max()) + 1
    shapes = rng.random((classes, width)) * (rng.random((classes, width)) < 0.6)
    time = np.arange(steps)[:, None, None]
    if kind == "currents":
        x = shapes[labels] + 0.2 * rng.random((steps, len(labels), width))
    elif kind == "spikes":
        x = rng.random((steps, len(labels), width)) < 0.02 + 0.5 * shapes[labels]
    else:
        phases = rng.uniform(0.0, 2.0 * np.pi, (classes, width))[labels]
        x = 0.5 + 0.5 * np.sin(2.0 * np.pi * time / max(8, steps / 3) + phases) * shapes[labels]
    return x.astype(np.float32)


def draw(seed: int, sizes: tuple[int, int] = (8, 40), steps: tuple[int, int] = (8, 45), **fixed: Any) -> Case:
    """A random network and its data, not trained.

    Args:
        seed: determines all random choices.
        sizes: smallest and largest width of the hidden layers.
        steps: smallest and largest number of time steps.
        fixed: values for choices that are random otherwise: kind, recurrent, conv, depth.
    """
    rng = np.random.default_rng(seed)
    snncell.set_seed(seed)
    batch, classes, length = int(rng.integers(8, 25)), int(rng.integers(2, 6)), int(rng.integers(*steps))
    depth = fixed.get("depth", int(rng.integers(1, 4)))
    conv = fixed.get("conv", rng.random() < 0.12) and not fixed.get("recurrent", False)
    kind = str(fixed.get("kind", rng.choice(KINDS)))
    recurrent = fixed.get("recurrent", rng.random() < 0.35) and not conv
    spike = str(rng.choice(list(SURROGATES)))
    width = 36 if conv else int(rng.integers(6, 30))
    labels = np.arange(batch) % classes
    source = str(rng.choice(["currents", "spikes", "waves"]))
    x = inputs_of(rng, length, labels, width, source)
    weights: list[Any] = []
    neurons: list[Any] = []
    for number in range(depth):
        size = int(rng.integers(*sizes))
        if conv and number == 0:
            x, size = x.reshape(length, batch, 1, 6, 6), 4
            weights.append(nn.TimeDistributed(nn.Conv2d(1, size, 3, pad_mode="valid")))
            neurons.append(neuron_of(rng, kind, SURROGATES[spike]()))
            width = size * 16
            continue
        dense = nn.Dense(width, size)
        flat = nn.TimeDistributed(nn.SequentialCell(nn.Flatten(), dense)) if conv and number == 1 else dense
        neuron = neuron_of(rng, kind, SURROGATES[spike]())
        if recurrent:
            back = nn.Dense(size, size, has_bias=False)
            back.weight.set_data(Tensor(rng.normal(0.0, 0.5 / np.sqrt(size), (size, size)).astype(np.float32)))
            neuron = nn.Recurrent(neuron, back)
        weights.append(flat)
        neurons.append(neuron)
        width = size
    last = nn.Dense(width, classes)
    weights.append(nn.TimeDistributed(nn.SequentialCell(nn.Flatten(), last)) if conv and depth == 1 else last)
    out = str(rng.choice(["potentials", "potentials", "spikes"]))
    neurons.append(
        nn.LINode(tau=float(rng.uniform(2.0, 8.0)), decay_input=False)
        if out == "potentials"
        else nn.LIFNode(float(rng.uniform(2.0, 6.0)), surrogate_function=surrogate.ATan())
    )
    read = "mean" if out == "spikes" else str(rng.choice(["mean", "last", "max"]))
    net = Drawn(weights, neurons, read)
    squared = rng.random() < 0.25
    loss = _squared if squared else nn.CrossEntropyLoss()
    met = True
    scaled = rng.random() < 0.75 or kind in ("EIF", "Cuba")
    if scaled:
        met = scale(net, x, rng)
    about = (
        f"{depth} x {'recurrent ' if recurrent else ''}{'conv ' if conv else ''}{kind}, {spike}, T {length}, {source}, "
        f"{read} of {out}, {'MSE' if squared else 'cross-entropy'}, {'scaled' if scaled else 'as initialised'}"
    )
    rate = float(10.0 ** rng.uniform(-2.7, -1.8))
    return Case(about, net, x, labels, loss, nn.Adam(net.trainable_params(), rate), met=met)


def _squared(out: Any, y: Any) -> Any:
    """Mean squared error against one-hot targets."""
    target = ops.one_hot(y, out.shape[-1])
    return ops.square(out - target).mean()


def scale(net: Drawn, x: Any, rng: Any) -> bool:
    """Scale the weights of each spiking layer, first to last, until it fires at a random target rate.

    Returns:
        Whether a factor between a quarter and 16 suffices for every layer.
    """
    met = True
    flowing = Tensor(x)
    for number, neurons in enumerate(net.neurons):
        if isinstance(net.cell(number), nn.LINode):
            return met
        wanted = float(rng.uniform(0.04, 0.2))
        dense = net.dense(number)
        first = {p.name: (p, p.asnumpy()) for p in dense.get_parameters()}
        low, high = -2.0, 4.0
        for _ in range(9):
            middle = (low + high) / 2
            for parameter, value in first.values():
                parameter.set_data(Tensor((value * 2.0**middle).astype(np.float32)))
            out = neurons(net.current(number, flowing))
            low, high = (middle, high) if float((out.asnumpy() != 0).mean()) < wanted else (low, middle)
        flowing = neurons(net.current(number, flowing))
        met &= 0.5 * wanted < float((flowing.asnumpy() != 0).mean()) < 2.0 * wanted
    return met


# --- training ---------------------------------------------------------------------------------------------------------


def train(case: Case, epochs: int, steps: int = 2, targets: Callable[[Any], Any] | None = None) -> list[dict[str, Any]]:
    """Train on the batch itself, eagerly, and return records as `train.fit` would.

    Args:
        case: provides net, optimiser and data.
        epochs: number of records.
        steps: updates per record.
        targets: a function from the epoch's number to replacement labels.
    """
    gradients = ops.value_and_grad(
        lambda x, y: _with_output(case, x, y), None, case.net.trainable_params(), has_aux=True
    )
    records = []
    for epoch in range(epochs):
        y = case.y if targets is None else targets(epoch)
        seen: list[dict[str, float]] = []
        for _ in range(steps):
            with snncell.monitor(case.net) as monitor:
                (loss, out), found = gradients(Tensor(case.x), Tensor(y))
            held = {id(p): g for p, g in zip(case.net.trainable_params(), found, strict=True)}
            case.optimiser([held[id(p)] for p in case.optimiser.parameters])
            rates = [float(monitor.rates(name).mean()) for name in monitor.layers if monitor.fires(name)]
            right = float((out.asnumpy().argmax(-1) == y).mean())
            seen.append({"loss": float(loss), "accuracy": right, "firing_rate": float(np.mean(rates))})
        means = {name: float(np.mean([one[name] for one in seen])) for name in seen[0]}
        step, rate = int(case.optimiser.global_step.item()), float(case.optimiser.get_lr())
        records.append({"epoch": epoch + 1, "step": step, "learning_rate": rate, **means})
    return records


def _with_output(case: Case, x: Any, y: Any) -> tuple[Any, Any]:
    out = case.net(x)
    return case.loss(out, y), out


def apart(case: Case) -> float:
    """The loss divided by its mean with other samples' labels; 1 if the outputs do not depend on the samples.

    Labels are rotated, so the other samples belong to other classes, each class equally often.
    """
    out, classes = case.net(Tensor(case.x)), int(case.y.max()) + 1
    right, *wrong = (float(case.loss(out, Tensor(np.roll(case.y, by)))) for by in range(classes))
    return right / float(np.mean(wrong))


def healthy(seed: int, **drawn: Any) -> Case:
    """The first net of a seed that learns: untrained for an even seed, trained and with its log for an odd one.

    Raises:
        RuntimeError: if none of `DRAWS` nets learns.
    """
    for attempt in range(DRAWS):
        case = draw(1000 * seed + attempt, **drawn)
        if not case.met:
            continue
        before = [(p, p.asnumpy()) for p in case.net.get_parameters()]
        first = float(case.loss(case.net(Tensor(case.x)), Tensor(case.y)))
        log = train(case, 6, steps=2)
        case.falls = log[-1]["loss"] / first
        case.apart = apart(case)
        if not (case.falls < HEALTHY_FALL and case.apart < HEALTHY_APART):
            continue
        if seed % 2:
            case.log = log
        else:
            for parameter, value in before:
                parameter.set_data(Tensor(value))
            case.optimiser = nn.Adam(case.net.trainable_params(), float(case.optimiser.get_lr()))
        return case
    raise RuntimeError(f"no net of seed {seed} learned in {DRAWS} draws")
