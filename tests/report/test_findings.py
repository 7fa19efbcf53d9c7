"""Rules of the report: each rule must produce its finding for some facts and none for others."""

import math
import re
import string
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from snncell import errors
from snncell.monitoring import Cost
from snncell.plot import Finding
from snncell.report import activity, training
from snncell.report.activity import LATE_STEPS
from snncell.report.facts import ConstantFacts, Facts, LayerFacts, Slope, Weight, batch_axis
from snncell.report.findings import KINDS, by_severity, format_number, format_percent
from snncell.report.rules import MEASURES, RULES, diagnose
from snncell.report.training import trend

T, B, N = 40, 8, 20
RNG = np.random.default_rng(0)


def triangle(width=1.0):
    return Slope("Triangle", lambda x: np.maximum(0.0, 1.0 - np.abs(x) / width))


def layer(name="lif", **changes):
    """A healthy layer: potentials around the threshold, spikes at a fifth of the steps, a level gradient."""
    above = RNG.normal(-0.4, 0.5, (T, B, N))
    facts = LayerFacts(
        name,
        "LIFNode",
        above=above,
        spikes=(above > 0).astype(np.float32),
        v=above + 1.0,
        grad=RNG.normal(0.0, 1e-3, (T, B, N)),
        slope=triangle(),
        threshold=1.0,
        reach=1.0,
        leak=0.5,
    )
    return replace(facts, **changes)


def staying_on(share, samples, start=T // 2, above=2.0, **changes):
    """A layer with the given share firing at every step from `start` on, in some samples."""
    facts = layer(**changes)
    potentials = facts.above.copy()
    potentials[start:, :samples, : round(share * N)] = above
    return replace(facts, above=potentials, spikes=(potentials > 0).astype(np.float32))


def far(thresholds, share=1.0, sample=3, **changes):
    """A layer with the given share several thresholds above rest, late in one sample."""
    facts = layer(**changes)
    potentials = facts.above.copy()
    potentials[-T // 3 :, sample, : round(share * N)] = thresholds - 1.0
    return replace(facts, above=potentials)


def weight(name="dense.weight", size=0.1, grad=1e-2, update=1e-4):
    entries = RNG.normal(0.0, 1.0, (N, N))
    return Weight(name, size * entries, grad * entries, None if update is None else update * entries)


def net(*layers, **changes):
    layers = layers or (layer("lif1"), layer("lif2"))
    facts = Facts(
        layers=layers,
        weights=[weight("dense1.weight"), weight("dense2.weight")],
        inputs=[RNG.random((T, B, N))],
        output=RNG.random((B, 5)),
        target=np.arange(B) % 5,
        loss=1.6,
        halves=1.6,
        guessing=math.log(5),
        differentiated=True,
        updates=0,
        history=[{"epoch": 1, "loss": 2.0, "test_loss": 2.1}, {"epoch": 2, "loss": 1.5, "test_loss": 1.7}],
    )
    return replace(facts, **changes)


def quiet(above, **changes):
    """A layer that never fires, with potentials around `above`."""
    potentials = above + RNG.normal(0.0, 0.01, (T, B, N))
    return layer(above=potentials, spikes=np.zeros((T, B, N)), v=potentials + 1.0, **changes)


def growing(factor, **changes):
    """A layer whose gradient changes by `factor` per step backwards."""
    return layer(grad=RNG.normal(0.0, 1e-3, (T, B, N)) * factor ** np.arange(T)[::-1, None, None], **changes)


def some_dead(share, above):
    """A layer with the given share at `above`, which never fires."""
    facts = layer()
    count = int(share * N)
    potentials = facts.above.copy()
    potentials[:, :, :count] = above
    return replace(facts, above=potentials, spikes=(potentials > 0).astype(np.float32))


def epochs(*losses, **more):
    """The records of a training with these losses and further values."""
    return [{"epoch": n, "loss": loss, **more} for n, loss in enumerate(losses, 1)]


SAME = np.ones((B, 5))
TIME = np.arange(T)[:, None, None]


def rates(*of_epochs, norm=None):
    """Records with a falling loss, these firing rates, and another number."""
    others = [{}] * len(of_epochs) if norm is None else [{"weight_norm": x} for x in norm]
    found = epochs(*np.linspace(2.0, 1.0, len(of_epochs)))
    return [{**a, "firing_rate": rate, **b} for a, rate, b in zip(found, of_epochs, others, strict=True)]


def silent_for(samples, above):
    """A layer "a" at `above` in some samples, without spikes there."""
    facts = layer("a")
    potentials = facts.above.copy()
    potentials[:, :samples] = above
    return replace(facts, above=potentials, spikes=(potentials > 0).astype(np.float32))


def with_nan(array, step):
    array = array.copy()
    array[step:, 2, 3:6] = np.nan
    return array


def worst(facts):
    """(kind, layer, severity) of every finding more severe than a note."""
    return {(f.kind, f.layer, f.severity) for f in diagnose(facts) if f.severity != "note"}


def notes(facts):
    return {(f.kind, f.layer) for f in diagnose(facts) if f.severity == "note"}


def test_healthy_facts_give_only_the_accuracy_note():
    assert worst(net()) == set()
    assert notes(net()) == {("accuracy", "")}


def test_unknown_facts_give_no_finding():
    assert diagnose(Facts()) == ()
    assert diagnose(Facts(layers=(LayerFacts("lif"),), weights=[Weight("w", np.ones(3))])) == ()


def test_every_measure_is_registered():
    functions = [each for module in (training, activity) for each in vars(module).values()]
    measures = [f for f in functions if getattr(f, "__annotations__", {}).get("return") == "Iterator[Measurement]"]
    public = [f for f in measures if not f.__name__.startswith("_")]
    assert len(MEASURES) == len(public) > 20 and set(MEASURES) == set(public)


def test_every_kind_has_a_rule():
    assert {name.partition(":")[0] for name in RULES} == KINDS.keys()


# What is wrong, and all that may be said of it beyond notes.
FAULTS = {
    "dead, out of reach": (net(layer("a"), some_dead(0.95, -5.0)), {("dead", "lif", "alarm")}),
    "most out of reach": (net(layer("a"), some_dead(0.7, -5.0)), {("dead", "lif", "warning")}),
    "a silent layer, out of reach": (net(quiet(-5.0, name="b"), layer("c")), {("dead", "b", "alarm")}),
    "a silent layer, far away": (
        net(quiet(-0.97, name="b", slope=triangle(2.0)), layer("c")),
        {("dead", "b", "warning")},
    ),
    "a silent output": (net(layer("a"), quiet(-5.0)), {("silent output", "lif", "alarm")}),
    "a silent layer that training has not woken, seen by the outputs": (
        net(quiet(-0.3, name="b"), layer("c"), output=SAME),
        {("dead", "b", "alarm"), ("equal outputs", "", "warning")},
    ),
    "seen by the loss": (net(quiet(-0.3, name="b"), layer("c"), history=epochs(1.9, 1.6)), {("dead", "b", "alarm")}),
    "seen by the accuracy": (
        net(quiet(-0.3, name="b"), layer("c"), guessing=None, history=epochs(1.9, 1.5, 1.2, accuracy=0.25)),
        {("dead", "b", "alarm")},
    ),
    "seen by the outputs, after updates without a log": (
        net(quiet(-0.3, name="b"), layer("c"), output=SAME, history=(), updates=500),
        {("dead", "b", "alarm"), ("equal outputs", "", "warning")},
    ),
    "a silent output that training has not woken": (
        net(layer("a"), quiet(-0.3), history=epochs(1.61, 1.6)),
        {("silent output", "lif", "alarm")},
    ),
    "a loss at chance that hardly falls": (
        net(history=epochs(1.62, 1.62, 1.61, 1.62, 1.615)),
        {("loss curve", "", "warning")},
    ),
    "accuracies at chance and a loss that hardly falls": (
        net(guessing=None, history=epochs(*[3.0] * 5, test_accuracy=0.2)),
        {("loss curve", "", "warning")},
    ),
    "a rate too low for a loss to fall": (
        net(weights=[weight(update=1e-9)], history=epochs(1.3, 1.3)),
        {("learning rate", "dense.weight", "warning")},
    ),
    "a loss far above chance": (
        net(history=epochs(221.0, 135.0, 140.0, 62.0)),
        {("learning rate", "", "warning")},
    ),
    "a loss that was far above chance, and is not below it": (
        net(history=epochs(1.7, 221.0, 40.0, 1.65)),
        {("learning rate", "", "warning")},
    ),
    "what follows from silence": (
        net(
            layer("a", grad=RNG.normal(0.0, 1e-7, (T, B, N))),
            quiet(-5.0, name="b"),
            weights=[weight(grad=1e-10, update=1e-9)],
            history=epochs(*[1.61] * 5),
        ),
        {("silent output", "b", "alarm")},
    ),
    "what follows from a narrow surrogate": (
        net(layer("a", slope=triangle(0.001), grad=RNG.normal(0.0, 1e-7, (T, B, N))), layer("b")),
        {("narrow surrogate", "a", "alarm")},
    ),
    "equal outputs": (net(output=np.ones((B, 5))), {("equal outputs", "", "alarm")}),
    "saturated": (net(layer("a", spikes=np.ones((T, B, N))), layer("b")), {("saturated", "a", "alarm")}),
    "staying on late, in one sample": (net(staying_on(0.55, 1, name="a"), layer("b")), {("saturated", "a", "warning")}),
    "staying on late, in all samples": (
        net(staying_on(0.35, B, name="a"), layer("b")),
        {("saturated", "a", "warning")},
    ),
    "held there, by fewer": (
        net(staying_on(0.45, 1, above=12.0, name="a"), layer("b")),
        {("saturated", "a", "warning")},
    ),
    "staying on late, in most samples": (
        net(staying_on(0.6, 5, name="a"), layer("b")),
        {("saturated", "a", "warning")},
    ),
    "staying on, far up": (
        net(staying_on(0.6, 1, above=400.0, name="a"), layer("b")),
        {("saturated", "a", "warning"), ("large potentials", "a", "alarm")},
    ),
    "half of the potentials large in a sample": (
        net(far(40.0, 0.6, name="a"), layer("b")),
        {("large potentials", "a", "warning")},
    ),
    "a few potentials larger": (net(far(70.0, 0.15, name="a"), layer("b")), {("large potentials", "a", "warning")}),
    "potentials far below": (net(far(-150.0, 0.3, name="a"), layer("b")), {("large potentials", "a", "warning")}),
    "potentials as large as nothing is": (
        net(far(-5000.0, 0.15, name="a"), layer("b")),
        {("large potentials", "a", "alarm")},
    ),
    "a readout that explodes and is finite": (
        net(layer("a"), layer("out", spiking=False, slope=None, above=None, v=np.full((T, B, N), 3e7), reach=None)),
        {("large potentials", "out", "alarm")},
    ),
    "potentials that run away in one sample": (
        net(layer("a", v=np.ones((T, B, N)) * np.where(np.arange(B) == 2, 1.4, 1.0)[:, None] ** TIME)),
        {("exploding recurrence", "a", "alarm")},
    ),
    "a decay above 1": (
        net(layer("a", constants=[ConstantFacts("alpha", np.array(1.0095), 0.0, 1.0, "both", "is from 0 to 1", True)])),
        {("constant out of range", "a", "warning")},
    ),
    "a constant that is NaN": (
        net(layer("a", constants=[ConstantFacts("beta", np.array([0.5, np.nan]))])),
        {("constant out of range", "a", "warning")},
    ),
    "a time constant at the open end": (
        net(layer("a", constants=[ConstantFacts("tau", np.array(1.0), 1.0, np.inf, "", "is above 1")])),
        {("constant out of range", "a", "warning")},
    ),
    "a step that keeps more than there was": (net(layer("a", leak=1.2)), {("constant out of range", "a", "warning")}),
    "a surrogate that is the same everywhere": (
        net(layer("a", slope=triangle(300.0)), layer("b")),
        {("wide surrogate", "a", "warning")},
    ),
    "no spike for some samples": (net(silent_for(3, -3.0), layer("b")), {("silent samples", "a", "warning")}),
    "labels of no class": (net(target=np.arange(B) % 5 + 1), {("labels", "", "alarm")}),
    "labels below 0": (net(target=np.arange(B) % 5 - 1), {("labels", "", "alarm")}),
    "labels of one class": (net(target=np.full(B, 2)), {("labels", "", "warning")}),
    "a Parameter that the optimiser does not have": (
        net(weights=[weight("d1.weight"), replace(weight(), update=None, left_out=True)]),
        {("not trained", "dense.weight", "warning")},
    ),
    "nothing to train": (net(weights=[]), {("not trained", "", "warning")}),
    "rates that grow over the epochs": (
        net(history=rates(0.1, 0.2, 0.35, 0.6)),
        {("growth", "", "warning")},
    ),
    "rates that die out": (net(history=rates(0.2, 0.05, 0.008)), {("growth", "", "warning")}),
    "a norm that grows in every epoch": (
        net(history=rates(0.1, 0.1, 0.1, 0.1, norm=(1.0, 8.0, 60.0, 500.0))),
        {("growth", "", "warning")},
    ),
    "a norm that is not finite": (
        net(history=rates(0.1, 0.1, norm=(1.0, np.inf))),
        {("growth", "", "alarm")},
    ),
    "potentials that run away": (
        net(layer("a", v=np.ones((T, B, N)) * 1.4 ** np.arange(T)[:, None, None], recurrent=True, radius=1.4)),
        {("exploding recurrence", "a", "alarm")},
    ),
    "narrow": (net(layer("a", slope=triangle(0.01)), layer("b")), {("narrow surrogate", "a", "warning")}),
    "very narrow": (net(layer("a", slope=triangle(0.001)), layer("b")), {("narrow surrogate", "a", "alarm")}),
    "exploding through time": (net(growing(1.2)), {("exploding gradient", "lif", "warning")}),
    "exploding far": (net(growing(1.6)), {("exploding gradient", "lif", "alarm")}),
    "exploding recurrence": (
        net(growing(1.5, recurrent=True, radius=4.0)),
        {("exploding recurrence", "lif", "alarm")},
    ),
    "exploding by a reset": (
        net(growing(1.5, recurrent=True, radius=0.1, drop=5.0)),
        {("exploding gradient", "lif", "alarm")},
    ),
    "vanishing through time": (net(growing(0.5, leak=1.0)), {("vanishing gradient", "lif", "warning")}),
    "vanishing faster than the leak": (net(growing(0.2)), {("vanishing gradient", "lif", "warning")}),
    "exploding through depth": (
        net(layer("a", grad=RNG.normal(0.0, 1.0, (T, B, N))), layer("b")),
        {("exploding gradient", "a", "warning")},
    ),
    "vanishing through depth": (
        net(layer("a", grad=RNG.normal(0.0, 1e-7, (T, B, N))), layer("b")),
        {("vanishing gradient", "a", "warning")},
    ),
    "no gradient": (
        net(weights=[weight("d1.weight", grad=0.0), weight("d2.weight")]),
        {("no gradient", "d1.weight", "alarm")},
    ),
    "no gradient at all": (
        net(weights=[weight("d1.weight", grad=0.0), weight("d2.weight", grad=0.0)]),
        {("no gradient", "", "alarm")},
    ),
    "a sum": (net(loss=12.8, halves=6.4), {("mis-scaled loss", "", "warning")}),
    "huge gradients": (
        net(weights=[weight("d1.weight", grad=1e2), weight(grad=1e3)]),
        {("mis-scaled loss", "", "warning")},
    ),
    "tiny gradients": (net(weights=[weight(grad=1e-10)]), {("mis-scaled loss", "", "warning")}),
    "a rate too high": (
        net(weights=[weight("d1.weight", update=0.5), weight("d2.weight")]),
        {("learning rate", "d1.weight", "alarm")},
    ),
    "a rate rather high": (
        net(weights=[weight("d1.weight", update=0.03)], updates=1000),
        {("learning rate", "d1.weight", "warning")},
    ),
    "a loss that rises": (
        net(history=[{"loss": 1.0}, {"loss": 0.4}, {"loss": 1.2}]),
        {("loss curve", "", "alarm")},
    ),
    "a loss that rises again": (
        net(history=[{"loss": 1.0}, {"loss": 0.4}, {"loss": 0.6}]),
        {("loss curve", "", "warning")},
    ),
    "a loss that is NaN": (net(history=[{"loss": 1.0}, {"loss": np.nan}]), {("loss curve", "", "alarm")}),
    "a test loss above its first": (
        net(history=[{"loss": 1.0, "test_loss": 1.0}, {"loss": 0.1, "test_loss": 1.3}]),
        {("loss curve", "", "warning")},
    ),
    "NaN in a weight": (
        net(weights=[Weight("d1.weight", np.array([[np.nan, 1.0]]), np.ones((1, 2)))]),
        {("not finite", "d1.weight", "alarm")},
    ),
    "NaN in the input": (net(inputs=[with_nan(np.ones((T, B, N)), 3)]), {("not finite", "input", "alarm")}),
    "NaN in a loss": (net(loss=np.nan), {("not finite", "loss", "alarm")}),
    "infinite gradient": (
        net(layer("a", grad=np.full((T, B, N), np.inf)), layer("b")),
        {("not finite", "gradient at a", "alarm")},
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_fault_gives_finding_of_its_kind_only(name):
    facts, expected = FAULTS[name]
    assert worst(facts) == expected


# What may look like a fault and is none, and the note that is made of it.
HARMLESS = {
    "a loss that hardly moves": (
        net(history=[{"loss": 2.31, "test_loss": 2.31}, {"loss": 2.3, "test_loss": 2.311}]),
        ("loss curve", ""),
    ),
    "some are silent, and can be woken": (net(layer("a"), some_dead(0.6, -0.5)), ("dead", "lif")),
    "a silent layer near the threshold": (net(quiet(-0.3, name="b"), layer("c")), ("dead", "b")),
    "a silent output near the threshold": (net(layer("a"), quiet(-0.3)), ("silent output", "lif")),
    "a few that always fire": (
        net(layer("a", spikes=np.repeat([1.0, 0.0], [3, N - 3]) * np.ones((T, B, N))), layer("b")),
        ("saturated", "a"),
    ),
    "what a leak forgets": (net(growing(0.5)), ("vanishing gradient", "lif")),
    "a third stays on in a sample": (net(staying_on(0.35, 1, name="a"), layer("b")), ("saturated", "a")),
    "no spike for some samples of a net that is not trained": (
        net(silent_for(3, -3.0), layer("b"), history=()),
        ("silent samples", "a"),
    ),
    "samples near their first spike": (net(silent_for(3, -0.4), layer("b")), ("silent samples", "a")),
    "half of a layer out of reach": (net(layer("a"), some_dead(0.5, -5.0)), ("dead", "lif")),
    "a detached reset": (net(layer("a", detached=True), layer("b")), ("detached reset", "a")),
    "equal outputs before training": (
        net(quiet(-0.3, name="b"), layer("c"), output=SAME, history=(), updates=None),
        ("equal outputs", ""),
    ),
    "a silent layer beside a loss that falls": (
        net(quiet(-0.3, name="b"), layer("c"), history=epochs(1.6, 1.2, 0.9, accuracy=0.6)),
        ("dead", "b"),
    ),
    "weights behind a silent layer": (
        net(
            quiet(-0.3, name="b"),
            layer("c"),
            weights=[weight("d1.weight"), weight("d2.weight", grad=0.0)],
            costs={"d2": Cost(100, 0, 0.0, True)},
        ),
        ("no gradient", "d2.weight"),
    ),
    "a rate too low": (net(weights=[weight(update=1e-9)], updates=5), ("learning rate", "dense.weight")),
    "a loss that rises a little": (net(history=epochs(1.0, 0.4, 0.5)), ("loss curve", "")),
    "overfitting": (
        net(
            history=[{"loss": 1.0, "test_loss": 1.0}, {"loss": 0.5, "test_loss": 0.5}, {"loss": 0.1, "test_loss": 0.8}]
        ),
        ("loss curve", ""),
    ),
}


@pytest.mark.parametrize("name", HARMLESS)
def test_harmless_facts_give_notes(name):
    facts, expected = HARMLESS[name]
    assert worst(facts) == set()
    assert expected in notes(facts)


SILENT_RULES = {
    "multiples of a spike are no saturation": net(layer("a", spikes=RNG.integers(1, 4, (T, B, N)))),
    "a potential is no rate": net(layer("a"), layer("out", spiking=False, slope=None, above=None)),
    "a sum over time grows too": net(layer("a", v=np.ones((T, B, N)) * np.arange(T)[:, None, None] * 5.0)),
    "a gradient that accumulates": net(layer("a", grad=np.ones((T, B, N)) * np.arange(T, 0, -1)[:, None, None])),
    "adam's first steps": net(weights=[weight(update=0.02)], updates=0),
    "a wide spread under a wide surrogate": net(
        layer("a", above=RNG.normal(-1.0, 3.0, (T, B, N)), slope=triangle(50.0))
    ),
    "one huge gradient": net(weights=[weight("d1.weight"), weight(grad=1e3)]),
    "a surrogate that never ends": net(layer("a", slope=Slope("StraightThrough", np.ones_like))),
    "an output that stays on for its class": net(layer("a"), staying_on(0.5, 1)),
    "firing at each of few steps": net(
        layer(
            "a",
            **{kind: getattr(staying_on(0.4, 2, start=0), kind)[: LATE_STEPS - 1] for kind in ("spikes", "above")},
            v=np.ones((LATE_STEPS - 1, B, N)),
        ),
        layer("b"),
    ),
    "potentials of twenty thresholds": net(far(20.0, name="a"), layer("b")),
    "neurons that inhibition sinks": net(far(-70.0, 0.6, name="a"), layer("b")),
    "some gain of a reset": net(growing(1.15)),
    "constants at the closed ends": net(
        layer("a", constants=[ConstantFacts("alpha", np.array([0.0, 1.0]), 0.0, 1.0, "both")], leak=1.0)
    ),
    "rates that settle": net(history=rates(0.02, 0.08, 0.1, 0.1)),
    "a norm that grew once": net(history=rates(0.1, 0.1, 0.1, norm=(1.0, 500.0, 400.0))),
    "a loss that began far above chance": net(history=epochs(30.0, 5.0, 1.2)),
    "words in a log": net(history=[{"loss": 1.0, "note": "warm-up"}, {"loss": 0.5, "note": "main"}]),
    "a few samples of one class": net(target=np.zeros(4, int), output=RNG.random((4, 5)), inputs=[]),
    "equal samples": net(inputs=[np.ones((T, B, N))], output=np.ones((B, 5))),
    "a loss that wavers where it is small": net(history=[{"loss": 2.0}, {"loss": 0.01}, {"loss": 0.05}]),
}


@pytest.mark.parametrize("name", SILENT_RULES)
def test_normal_facts_give_no_finding(name):
    assert worst(SILENT_RULES[name]) == set()
    assert notes(SILENT_RULES[name]) == {("accuracy", "")}


def test_worst_sample_and_last_third_of_steps_reveal_hidden_faults():
    """Silent for 20 steps, then a quarter of the neurons far above threshold in one of 16 samples; alpha above 1."""
    rng = np.random.default_rng(3)
    above = np.full((100, 16, 128), -0.9) + rng.normal(0.0, 0.02, (100, 16, 128))
    above[20:] += rng.random((80, 16, 128)) < 0.05
    above[20:, 5, :34] = 366.0
    spikes = (above > 0).astype(np.float32)
    alpha = ConstantFacts("alpha", np.array(1.0095), 0.0, 1.0, "both", "is what a step keeps, from 0 to 1", True)
    hidden = layer("lif", above=above, spikes=spikes, v=above - spikes + 1.0, constants=[alpha])
    hidden = replace(hidden, grad=rng.normal(0.0, 1e-3, above.shape))
    assert not (hidden.rates > 0.95).any()
    found = {f.kind: f for f in diagnose(net(hidden, layer("b"))) if f.severity != "note"}
    assert set(found) == {"saturated", "large potentials", "constant out of range"}
    assert found["saturated"].text.startswith("0 % of 128 neurons fired at more than 95 % of the time steps")
    assert (
        "In sample 5, 27 % did so in the last 33 of 100 steps, with potentials more than 50 thresholds above "
        "their initial value; " in found["saturated"].text
    )
    assert "in sample 5 the potentials of 27 % of the neurons" in found["large potentials"].text
    assert "The largest is 367 thresholds" in found["large potentials"].text
    assert "The surrogate is flat at 27 % of these steps" in found["large potentials"].text
    assert "alpha of the LIFNode is 1.0095; alpha is what a step keeps, from 0 to 1." in (
        found["constant out of range"].text
    )


def test_growth_by_surrogate_alone_is_not_an_explosion():
    slopes = 2.0 ** -np.arange(T)[:, None, None] * np.ones((T, B, N))
    spikes = (RNG.random((T, B, N)) < 0.2) * 1.0
    explained = layer("a", above=slopes - 1.0, grad=1e-3 * slopes * 2.0**T, spikes=spikes, v=np.ones((T, B, N)))
    level = replace(explained, above=np.full((T, B, N), -0.5))
    assert worst(net(level, layer("b"))) == {("exploding gradient", "a", "alarm")}
    assert worst(net(explained, layer("b"))) == set()


def test_exploding_gradient_names_layer_where_it_begins():
    facts = net(replace(growing(1.5), name="early"), replace(growing(1.5), name="late"), layer("readout"))
    assert worst(facts) == {("exploding gradient", "late", "alarm")}


def test_silent_layer_after_a_silent_layer_is_not_blamed():
    facts = net(quiet(-5.0, name="a"), quiet(-1.0, name="b"), quiet(-1.0, name="c"))
    assert worst(facts) == {("dead", "a", "alarm")}
    texts = {f.layer: f.mend for f in diagnose(facts) if f.kind in ("dead", "silent output")}
    assert texts["b"].startswith("Fix a first") and texts["c"].startswith("Fix b first")


# --- texts ------------------------------------------------------------------------------------------------------------


def text_of(facts, kind):
    (found,) = [finding.text for finding in diagnose(facts) if finding.kind == kind]
    return found


WORDS = [
    (net(output=np.eye(5)[[3] * B] + RNG.random((B, 5)) / 9), "accuracy", "Every sample is classified as class 3."),
    (net(layer("a"), some_dead(0.6, -5.0)), "dead", "60 % of 20 neurons never fired in 8 samples of 40 steps"),
    (net(layer("a"), some_dead(0.6, -5.0)), "dead", "below 0.001 of its peak at all their potentials"),
    (net(layer("a"), some_dead(0.6, -5.0)), "dead", "at all their potentials (it is 0)"),
    (net(quiet(np.nan, name="b"), layer("c")), "dead", "steps; their potentials are not finite."),
    (
        net(quiet(-0.3, name="b"), layer("c"), output=SAME),
        "dead",
        "Training has not made them fire: the output is the same for all 8 samples, though the inputs differ.",
    ),
    (
        net(quiet(-0.3, name="b"), layer("c"), history=epochs(1.9, 1.6)),
        "dead",
        "Training has not made them fire: the loss is 1.6 after 2 epochs, and the loss of guessing is 1.61.",
    ),
    (
        net(quiet(-0.3, name="b"), layer("c"), guessing=None, history=epochs(3.0, 2.0, 1.0, accuracy=0.2)),
        "dead",
        "at most 20 % were classified correctly in 3 epochs, and guessing gets 25 %.",
    ),
    (net(quiet(-0.3, name="b"), layer("c"), output=SAME), "equal outputs", "because b gives no spikes."),
    (net(history=epochs(221.0, 62.0)), "learning rate", "is 62 in epoch 2, far above the 1.61 of guessing"),
    (net(weights=[weight(grad=1e-10)]), "mis-scaled loss", "in the one Parameter that has some."),
    (net(growing(1.5)), "exploding gradient", "grows by a factor of 1.5 per step"),
    (
        net(growing(1.5, recurrent=True, radius=4.0)),
        "exploding recurrence",
        "spectral radius of the feedback weights is 4.",
    ),
    (net(growing(1.5, recurrent=True, radius=0.1, drop=5.0)), "exploding gradient", "at the threshold by 2."),
    (net(growing(0.5)), "vanishing gradient", "a step keeps 0.5 of the potential"),
    (
        net(layer("a", v=with_nan(layer().v, 37)), layer("b")),
        "not finite",
        "its potential is NaN from step 37 on, in 3 of 160",
    ),
    (net(loss=12.8, halves=6.4), "mis-scaled loss", "12.8 for the whole batch, 6.4 for half of it"),
    (net(weights=[weight(update=0.5)]), "learning rate", "by 5 times its size"),
    (
        net(output=np.eye(5)[np.arange(B) % 5]),
        "accuracy",
        "100 % of 8 samples are classified correctly; chance is 20 % for 5 classes",
    ),
]


@pytest.mark.parametrize(("facts", "kind", "words"), WORDS)
def test_texts_of_findings_contain_numbers(facts, kind, words):
    assert words in text_of(facts, kind)


@pytest.mark.parametrize(
    ("scale", "mend"), [(1.0, "Use a wider surrogate"), (100.0, "Scale the weights before the layer down")]
)
def test_surrogate_width_is_judged_relative_to_threshold(scale, mend):
    facts = net(layer("a", slope=triangle(0.001), above=RNG.normal(-0.4, 0.5, (T, B, N)) * scale), layer("b"))
    (found,) = [finding for finding in diagnose(facts) if finding.kind == "narrow surrogate"]
    assert found.mend.startswith(mend)


def test_first_nan_is_named_with_its_consequences():
    late, early = layer("a", v=with_nan(layer().v, 20)), layer("b", above=with_nan(layer().above, 10))
    facts = net(late, early, loss=np.nan)
    (found,) = [finding for finding in diagnose(facts) if finding.kind == "not finite"]
    assert (found.layer, "Also not finite: a, loss." in found.text) == ("b", True)


def test_count_of_one_is_singular():
    one = quiet(-5.0, name="b")
    one = replace(one, **{name: getattr(one, name)[:, :1, :1] for name in ("above", "spikes", "v", "grad")})
    assert "100 % of 1 neuron never fired in 1 sample of 40 steps" in text_of(net(one, layer("c")), "dead")
    facts = net(output=np.eye(5)[:1], target=np.array([1]))
    assert text_of(facts, "accuracy").startswith("0 % of 1 sample is classified correctly")


def test_facts_print_in_one_line():
    facts = net()
    assert repr(facts).startswith("Facts(2 layers, 2 weights, 2 epochs, loss=1.6; ") and len(repr(facts)) < 150
    assert repr(facts.layers[0]) == "Layer('lif1', LIFNode, shape=(40, 8, 20))"
    assert repr(facts.weights[0]) == "Weight('dense1.weight', shape=(20, 20))"


def test_convolution_findings_count_channels():
    above = np.full((T, B, 4, 5, 5), -0.5)
    above[:, :, :3, 2, 2] = 0.5  # three of four channels fire at one place
    facts = net(layer("conv", above=above, spikes=(above > 0) * 1.0, v=above + 1, grad=None), layer("b"))
    assert "25 % of 4 channels never fired" in text_of(facts, "dead")


def test_findings_are_sorted_by_severity_and_have_actions():
    found = diagnose(net(growing(1.2), layer("b", detached=True), loss=12.8, halves=6.4, weights=[weight(update=9.0)]))
    assert [f.severity for f in found] == sorted([f.severity for f in found], key=["alarm", "warning", "note"].index)
    assert found == by_severity(reversed(found))
    assert all(f.mend for f in found if f.severity != "note")
    assert {f.kind for f in found} <= KINDS.keys()


def test_documentation_page_lists_all_kinds():
    page = (Path(__file__).parents[2] / "docs" / "why-not-learning.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([a-z -]+) \| (.*) \|$", page, re.MULTILINE)
    assert KINDS.items() <= set(rows)


def test_finding_prints_as_sentence_and_checks_its_arguments():
    finding = Finding("dead", "lif1", "alarm", "90 % never fired.", "Lower v_threshold.")
    assert str(finding) == "alarm: lif1: 90 % never fired. Lower v_threshold."
    assert str(Finding("accuracy", "", "note", "all right.")) == "note: all right."
    with pytest.raises(errors.ArgumentError, match=r"kind must be one of 'not finite', .*, not 'deaf'"):
        Finding("deaf", "", "note", "")
    with pytest.raises(errors.ArgumentError, match="severity must be one of alarm, warning, note, not 'bad'"):
        Finding("dead", "", "bad", "")


@pytest.mark.parametrize(
    ("share", "words"),
    [
        (0.0, "0 %"),
        (1.0, "100 %"),
        (0.612, "61 %"),
        (0.004, "0.4 %"),
        (1e-5, "< 0.1 %"),
        (0.996, "99.6 %"),
        (0.99999, "> 99.9 %"),
    ],
)
def test_percent_is_0_or_100_only_if_exact(share, words):
    assert format_percent(share) == words


def test_numbers_have_three_significant_digits():
    assert [format_number(x) for x in (0.0012345, 12.0, 1e-7, 3370.4, 2.05e5)] == [
        "0.00123",
        "12",
        "1e-07",
        "3370",
        "2.05e+05",
    ]


# --- measures ---------------------------------------------------------------------------------------------------------


def test_surrogate_width_and_peak_are_measured():
    slope = Slope("half as high", lambda x: 0.5 * np.maximum(0.0, 1.0 - np.abs(x) / 3.0))
    assert slope.peak.item() == pytest.approx(0.5)
    assert slope.width == pytest.approx(3.0, rel=0.03)
    np.testing.assert_allclose(slope.relative(np.array([[0.0, 1.5, 4.0]])), [[1.0, 0.5, 0.0]])
    assert Slope("StraightThrough", np.ones_like).width == np.inf
    flat = Slope("flat", np.zeros_like)
    assert flat.width == 0.0 and not flat.relative(np.zeros((2, 3))).any()


def test_surrogate_can_have_a_width_per_neuron():
    widths = np.array([1.0, 2.0])
    slope = Slope("two", lambda x: np.maximum(0.0, 1.0 - np.abs(x) / widths) * widths, (2,))
    np.testing.assert_allclose(slope.peak, widths)
    np.testing.assert_allclose(slope.relative(np.full((4, 3, 2), 0.5))[0, 0], [0.5, 0.75])


def test_trend_is_growth_factor_over_steps_with_gradient():
    norms = 2.0 ** -np.arange(20.0)
    norms[5] = 0.0
    found = trend(norms)
    assert (found.factor, found.steps) == (pytest.approx(2.0), 19)
    assert found.total == pytest.approx(2.0**19)
    assert trend(norms[:5]) is None and trend(np.full(20, np.nan)) is None and trend(None) is None


@pytest.mark.parametrize(
    ("shape", "samples", "axis"),
    [((40, 8, 20), 8, 1), ((8, 20), 8, 0), ((8, 3, 5, 5), 8, 0), ((8,), 8, 0), ((7, 6), 8, None)],
)
def test_sample_axis_is_identified(shape, samples, axis):
    assert batch_axis(shape, samples) == axis


def test_growing_state_over_many_steps_is_found_without_overflow():
    facts = Facts([LayerFacts("a", leak=1.5, v=np.zeros((5000, 1, 1)))])
    assert "grow even without input, by a factor of inf in 5000 steps" in text_of(facts, "constant out of range")


def test_empty_log_column_gives_no_finding():
    assert diagnose(Facts(history=[{"loss": 1.0, "firing_rate": ""}, {"loss": 0.5, "firing_rate": ""}])) == ()


# --- table of rules ---------------------------------------------------------------------------------------------------


def names_in(words):
    """The field names in format strings, including those in format specifications."""
    for part in (words,) if isinstance(words, str) else words:
        for _, name, spec, _ in string.Formatter().parse(part):
            if name is not None:
                yield name.partition(".")[0].partition("[")[0]
                yield from names_in(spec)


def rare():
    """Facts for rules, and parts of their texts, that the tables above do not cover."""
    dead = some_dead(0.6, -0.5)
    faint = replace(quiet(-0.9995, name="b"), above=np.full((T, B, N), -0.9995))
    some_lost = quiet(-0.5, name="b")
    some_lost.above[:, :, :3] = -5.0
    return [
        net(layer("a", v=with_nan(layer().v, 37)), layer("b"), loss=np.nan),
        net(weights=[Weight("w", np.ones(3), np.full(3, np.nan))]),
        net(layer("a", slope=Slope("flat", np.zeros_like)), layer("b"), weights=[weight(grad=0.0)]),
        net(quiet(-5.0, name="a"), quiet(-1.0, name="b"), quiet(-1.0, name="c"), output=SAME),
        net(replace(dead, above=5.0 * dead.above, slope=triangle(0.001)), layer("b")),
        net(layer("a", slope=triangle(0.001), above=RNG.normal(-0.4, 50.0, (T, B, N))), layer("b")),
        net(quiet(np.nan, name="b"), layer("c")),
        net(faint, layer("c")),
        net(some_lost, layer("c")),
        net(layer("a", constants=[ConstantFacts("beta", np.array([0.5, 2.0]), 0.0, 1.0)])),
        Facts(output=np.array([[np.inf, 1.0], [1.0, np.inf]]), target=np.array([0, 0]), unseen=["a.b (EventPropLIF)"]),
    ]


def test_every_rule_applies_to_some_facts_and_uses_known_measures():
    given = [facts for table in (FAULTS, HARMLESS) for facts, _ in table.values()]
    measured, said = {}, set()
    for facts in [*given, *rare()]:
        for measurement in (each for measure in MEASURES for each in measure(facts)):
            measured.setdefault(measurement.rule.partition(":")[0], set()).update(measurement.numbers)
            finding = RULES[measurement.rule].judge(measurement)
            if finding is not None:
                said.add(measurement.rule)
                assert "None" not in finding.text + finding.mend
    assert said == RULES.keys()
    for name, rule in RULES.items():
        needed = {*names_in(rule.words), *names_in(rule.mend), *rule.limits}
        assert needed <= measured[name.partition(":")[0]], name
