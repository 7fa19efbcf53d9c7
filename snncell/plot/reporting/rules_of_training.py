"""Findings about numbers that are not finite, the loss, updates, and how a training went."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from snncell.plot.reporting.baseline import FIRST_UPDATES, at_chance, hardly_falls, predictions, values
from snncell.plot.reporting.facts import Array, Facts, Weight, finite, norm
from snncell.plot.reporting.findings import Finding, counted, number, percent
from snncell.plot.reporting.rules_of_silence import explained

# The loss of a batch over the mean of its halves: 1 of a mean, 2 of a sum. Between lies a sum beside other terms, and
# what a batch's own statistics do to a mean.
SUMMED = 1.8
# Gradient over weight, of all Parameters at once. Beyond a hundred, a rate of 0.001 changes weights by a tenth in one
# step; at 1e-7 entries come near the 1e-8 that Adam adds to them. Where only some are so, the net is at fault, not the
# loss.
GRADIENT_LARGE, GRADIENT_TINY = 1e2, 1e-7
# Update over weight. About 1e-3 is what works; beyond a tenth the net is another one after ten steps, and at 1 after
# one. Adam's first updates are the rate times the sign of the gradient, three times those to come or more.
UPDATE_LARGE, UPDATE_REPLACES, UPDATE_TINY = 0.1, 1.0, 1e-6
FIRST_FACTOR = 3.0
# Of what the loss had won, lost again: a little is what batches differ by.
LOSS_NOTE, LOSS_RISES = 0.1, 0.3
# A loss that many times that of guessing is of scores that are confident and wrong: untrained nets begin near one.
FAR_ABOVE_CHANCE = 3.0
# After so many epochs a loss that has not moved will not move by itself.
WAITED = 5


# --- not finite -------------------------------------------------------------------------------------------------------


def not_finite(facts: Facts) -> Iterator[Finding]:
    """Where a NaN or an infinite number comes first; what follows from it is named with it."""
    places = [*_in_weights(facts), *_in_inputs(facts), *_in_layers(facts), *_in_results(facts)]
    if not places:
        return
    (layer, text, mend), *rest = places
    follows = list(dict.fromkeys(name for name, _, _ in rest if name != layer))
    text += f" Also not finite: {', '.join(follows)}." if follows else ""
    yield Finding("not finite", layer, "alarm", text, mend)


Place = tuple[str, str, str]


def _in_weights(facts: Facts) -> Iterator[Place]:
    for weight in facts.weights:
        if not finite(weight.value):
            mend = "Load the last weights that were finite; lower the learning rate, or clip gradients."
            yield weight.name, f"{_counted(weight.value, 'weights')}.", mend


def _in_inputs(facts: Facts) -> Iterator[Place]:
    for position, x in enumerate(facts.inputs):
        if not finite(x):
            name = "input" if len(facts.inputs) == 1 else f"input {position}"
            first = tuple(int(i) for i in np.argwhere(~np.isfinite(x))[0])
            yield name, f"{_counted(x)}, the first at index {first}.", "Clean the data: np.nan_to_num, or drop these."


def _in_layers(facts: Facts) -> Iterator[Place]:
    """The earliest step first, and at one step the earlier layer."""
    found = []
    for position, layer in enumerate(facts.layers):
        recorded = [("potential", layer.v), ("potential", layer.above), ("output", layer.spikes)]
        bad = [(first_bad_step(x), what, x) for what, x in recorded if x is not None and not finite(x)]
        if bad:
            step, what, x = min(bad, key=lambda each: each[0])
            found.append((step, position, layer.name, what, x))
    for step, _, name, what, x in sorted(found, key=lambda each: each[:2]):
        bad_here = int((~np.isfinite(x[step])).sum())
        kind = "NaN" if np.isnan(x[step]).any() else "an infinite number"
        text = f"{kind} from step {step} on in its {what}, {bad_here} of {x[step].size} entries at that step."
        mend = (
            "snncell.set_context(check_finite=True) names the neuron and the operation; look for a division by zero, a "
            "logarithm or a root in its step, and for potentials that run away."
        )
        yield name, text, mend


def first_bad_step(x: Array) -> int:
    """The first step of (T, ...) with an entry that is not finite."""
    return int(np.argmax(~np.isfinite(x.reshape(len(x), -1)).all(1)))


_OF_GRADIENTS = (
    "If it explodes, mend that first; else look for a reverse that divides by zero: snncell.testing.check_bprop, "
    "snncell.set_context(check_finite=True)."
)


def _in_results(facts: Facts) -> Iterator[Place]:
    if facts.loss is not None and not math.isfinite(facts.loss):
        yield "loss", f"the loss is {facts.loss}.", "Look at the loss: a logarithm of 0, or a target out of range."
    for layer in facts.layers:
        if layer.grad is not None and not finite(layer.grad):
            steps = np.flatnonzero(~np.isfinite(layer.grad.reshape(len(layer.grad), -1)).all(1))
            text = f"the gradient of its current is not finite at {len(steps)} of {len(layer.grad)} steps"
            text += f", backwards from step {steps[-1]}."
            yield f"gradient at {layer.name}", text, _OF_GRADIENTS
    for weight in facts.weights:
        if weight.grad is not None and not finite(weight.grad):
            text = f"{_counted(weight.grad)} in its gradient."
            yield f"gradient of {weight.name}", text, _OF_GRADIENTS


def _counted(x: Array, what: str = "entries") -> str:
    kind = "NaN" if np.isnan(x).any() else "infinite"
    return f"{int((~np.isfinite(x)).sum())} of {x.size} {what} are {kind}"


# --- the loss ---------------------------------------------------------------------------------------------------------


def summed_loss(facts: Facts) -> Iterator[Finding]:
    """A loss that is a sum over the batch."""
    if facts.loss is None or facts.halves is None or not facts.halves or not math.isfinite(facts.loss):
        return
    ratio = facts.loss / facts.halves
    if ratio > SUMMED:
        text = (
            f"the loss is a sum over the batch: {number(facts.loss)} of the whole batch, {number(facts.halves)} of "
            f"half of it, so that the size of a step depends on the batch size."
        )
        mend = 'Take the mean over samples: reduction="mean", or .mean() in place of .sum().'
        yield Finding("mis-scaled loss", "", "warning", text, mend)


def size_of_gradients(facts: Facts) -> Iterator[Finding]:
    """Gradients that are huge or tiny beside the weights, all over the net."""
    ratios = [
        norm(weight.grad) / weight.size
        for weight in _judged(facts)
        if weight.grad is not None and finite(weight.grad) and norm(weight.grad) > 0
    ]
    if not ratios:
        return
    least, most = min(ratios), max(ratios)
    if least > GRADIENT_LARGE:
        text = f"gradients are at least {number(least)} times as large as the weights, in {_all(ratios)}."
        mend = "Divide the loss: by samples, steps or neurons; or clip the gradients (train.fit(clip_norm=1.0))."
        yield Finding("mis-scaled loss", "", "warning", text, mend)
    elif most < GRADIENT_TINY:
        text = f"gradients are at most {number(most)} of the weights, in {_all(ratios)}."
        mend = "Multiply the loss, or look for what stops the gradient: a loss that is met already, a flat surrogate."
        yield explained(facts, Finding("mis-scaled loss", "", "warning", text, mend))


def _all(ratios: list[float]) -> str:
    return "the one Parameter that has some" if len(ratios) == 1 else f"all {len(ratios)} Parameters"


def _judged(facts: Facts) -> list[Weight]:
    """The Parameters whose size means something: matrices and kernels, whose entries are drawn to a scale."""
    some = [weight for weight in facts.weights if weight.value.ndim > 1] or list(facts.weights)
    return [weight for weight in some if finite(weight.value) and weight.size > 0]


# --- updates ----------------------------------------------------------------------------------------------------------


def learning_rate(facts: Facts) -> Iterator[Finding]:
    """Updates that are large or tiny beside the weights, the worst named."""
    ratios = {
        weight.name: norm(weight.update) / weight.size
        for weight in _judged(facts)
        if weight.update is not None and finite(weight.update)
    }
    if not ratios or facts.updates is None:
        return
    worst = max(ratios, key=lambda name: ratios[name])
    largest = ratios[worst]
    slack = FIRST_FACTOR if facts.updates < FIRST_UPDATES else 1.0
    if largest > UPDATE_LARGE * slack:
        severity = "alarm" if largest > UPDATE_REPLACES else "warning"
        text = (
            f"one update changes it by {number(largest)} times its size (about 0.001 is usual, beyond "
            f"{number(UPDATE_LARGE)} the net is soon another one); {_how_many(ratios, UPDATE_LARGE * slack)}."
        )
        mend = f"Lower the learning rate, {number(max(10.0, largest / 1e-2))} times to begin with, or clip gradients."
        yield Finding("learning rate", worst, severity, text, mend)
    elif 0 < largest < UPDATE_TINY:
        text = f"one update changes weights by at most {number(largest)} of their size: nothing will be learned soon."
        stands = hardly_falls(values(facts, "loss"))
        mend = f"Raise the learning rate{'' if stands else ', unless training is to end'}."
        yield explained(facts, Finding("learning rate", worst, "warning" if stands else "note", text, mend))


def _how_many(ratios: dict[str, float], limit: float) -> str:
    many = sum(ratio > limit for ratio in ratios.values())
    return (
        f"{many} of {counted(len(ratios), 'Parameter')} change{'s' if many == 1 else ''} by more than {number(limit)}"
    )


# --- a training -------------------------------------------------------------------------------------------------------


def history(facts: Facts) -> Iterator[Finding]:
    """A loss that is not finite, rises, hardly falls, or rises on the test data alone."""
    losses = values(facts, "loss")
    bad = [n for n, loss in enumerate(losses, 1) if not math.isfinite(loss)]
    if bad:
        mend = "Lower the learning rate, or clip gradients (train.fit(clip_norm=1.0))."
        yield Finding("loss curve", "", "alarm", f"the training loss is not finite from epoch {bad[0]} on.", mend)
    elif hardly_falls(losses):
        yield _stands(facts, losses)
    elif len(losses) > 1:
        yield from _rising("training", losses, "Lower the learning rate, or let it decay (nn.CosineDecayLR).")
    tests = values(facts, "test_loss")
    if len(tests) > 1 and all(map(math.isfinite, tests)):
        mend = "Stop earlier (train.fit(patience=...)), or regularise: weight_decay, nn.Dropout, more data."
        yield from _rising("test", tests, mend)


def _stands(facts: Facts, losses: list[float]) -> Finding:
    """A loss that hardly falls; after a while at what guessing has, something is wrong."""
    text = (
        f"the training loss hardly falls: {number(losses[0])} in epoch 1, {number(losses[-1])} in epoch {len(losses)}"
    )
    why = at_chance(facts) if len(losses) >= WAITED else ""
    if not why:
        mend = "If it has not learned already, see the other findings."
        return Finding("loss curve", "", "note", f"{text}.", mend)
    mend = "See the other findings; where they name nothing, raise the learning rate, or train on one batch alone."
    return explained(facts, Finding("loss curve", "", "warning", f"{text}; {why}.", mend))


def far_above_chance(facts: Facts) -> Iterator[Finding]:
    """A loss that was many times that of guessing and is not below it now, as after updates that were too large."""
    losses = values(facts, "loss")
    if facts.guessing is None or not losses or not all(map(math.isfinite, losses)) or losses[-1] < facts.guessing:
        return
    worst = int(np.argmax(losses))
    if losses[worst] > FAR_ABOVE_CHANCE * facts.guessing:
        epoch = worst if losses[-1] <= FAR_ABOVE_CHANCE * facts.guessing else len(losses) - 1
        now = "" if epoch == len(losses) - 1 else f", and {number(losses[-1])} in epoch {len(losses)}"
        text = (
            f"the training loss is {number(losses[epoch])} in epoch {epoch + 1}, far above the "
            f"{number(facts.guessing)} of guessing{now}: the net is sure of what is wrong, as after a learning rate "
            f"that is too high."
        )
        mend = (
            "Begin again from new weights with a learning rate a hundred times lower; if the loss was as large before "
            "the first update, scale the outputs down."
        )
        yield Finding("learning rate", "", "warning", text, mend)


def _rising(what: str, losses: list[float], mend: str) -> Iterator[Finding]:
    best = int(np.argmin(losses))
    first, least, last = losses[0], losses[best], losses[-1]
    text = f"the {what} loss rises: {number(least)} in epoch {best + 1}, {number(last)} in epoch {len(losses)}"
    if hardly_falls(losses):
        return
    if last > first:
        severity = "alarm" if what == "training" else "warning"
        yield Finding("loss curve", "", severity, f"{text}, more than the {number(first)} of the first.", mend)
    elif last - least > (LOSS_NOTE if what == "training" else LOSS_RISES) * (first - least):
        lost = (last - least) / (first - least)
        severity = "warning" if what == "training" and lost > LOSS_RISES else "note"
        words = f"{text}: {percent(lost)} of what it had fallen by is lost again."
        yield Finding("loss curve", "", severity, words, mend)


def accuracy(facts: Facts) -> Iterator[Finding]:
    """The share of samples that are read right, and the classes that are confused most."""
    found = predictions(facts)
    if found is None:
        return
    guesses, labels, classes = found
    right = float((guesses == labels).mean())
    chance = percent(1 / classes)
    be = "is" if len(labels) == 1 else "are"
    text = (
        f"{percent(right)} of {counted(len(labels), 'sample')} {be} read right; by chance, with {classes} classes, "
        f"{chance}."
    )
    wrong = [(int(a), int(b)) for a, b in zip(labels, guesses, strict=True) if a != b]
    if wrong and (guesses == guesses[0]).all():
        text += f" Every sample is taken for class {guesses[0]}."
    elif wrong:
        pair = max(dict.fromkeys(wrong), key=wrong.count)
        often = wrong.count(pair)
        text += f" Most often, {often} time{'s' if often > 1 else ''}, class {pair[0]} is taken for class {pair[1]}."
    yield Finding("accuracy", "", "note", text)


RULES = (not_finite, summed_loss, size_of_gradients, learning_rate, history, far_above_chance, accuracy)
