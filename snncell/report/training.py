"""Measures of the training: gradients, values that are not finite, losses, updates, labels, and records of a log."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from snncell.report.facts import Array, Facts, LayerFacts, Weight, all_finite, batch_axis, l2_norm
from snncell.report.findings import Measurement, count_noun, format_number, format_percent, make_measurement

EXPLODING_FACTOR = 1.1  # per step; a gradient that only adds up over many steps has a factor near 1
# The leak counts as the cause of a decrease up to twice as fast as the leak's, because resets also reduce the gradient.
LEAK_EXPLAINS = 2.0
# The gradient is proportional to the surrogate's derivative. The derivative is the cause if the logarithm of its growth
# is at least half of the logarithm of the gradient's growth.
SLOPES_EXPLAIN = 0.5
# The feedback is the cause if its gain is at least half of the factor per step. Half is enough, because the gain is
# only an estimate from means.
FEEDBACK_EXPLAINS = 0.5
FEWEST_STEPS = 6  # with fewer, the factor per step is not reliable
# The gradient of a layer has passed through the later layers. If a later layer's rate of growth (log of the factor) is
# at least this part of the layer's own rate, the later layer is the cause.
INHERITED = 0.7


class Trend(NamedTuple):
    """The change of a layer's gradient backwards through time."""

    factor: float  # per step backwards: a least-squares fit of log norm over the steps with a nonzero norm
    steps: int  # from the first to the last of these steps

    @property
    def total(self) -> float:
        """The factor over all steps."""
        return float(np.exp(np.clip(self.steps * np.log(self.factor), -700.0, 700.0)))


def trend(norms: Array | None) -> Trend | None:
    """The trend of norms (T,), or None if too few of them are finite and positive."""
    if norms is None:
        return None
    steps = np.flatnonzero((norms > 0) & np.isfinite(norms))
    if len(steps) < FEWEST_STEPS:
        return None
    slope = np.polyfit(steps, np.log(norms[steps]), 1)[0]
    return Trend(float(np.exp(-slope)), int(steps[-1] - steps[0]))


def through_time(facts: Facts) -> Iterator[Measurement]:
    """Measure gradients that grow or shrink backwards through time, in each layer that causes this."""
    later: list[Trend] = []
    for layer in reversed(facts.layers):
        own = trend(layer.norms)
        if own is None:
            continue
        if own.factor > EXPLODING_FACTOR and not _is_inherited(own, later) and not _of_slopes(layer, own):
            yield _growing(layer, own)
        elif own.factor < 1.0 and not _is_inherited(own, later):
            leak = layer.leak if layer.leak is not None and 0 < layer.leak < 1 else None
            forgets = leak is not None and np.log(own.factor) >= LEAK_EXPLAINS * np.log(leak)
            rule = "vanishing gradient: by the leak" if forgets else "vanishing gradient: through time"
            yield make_measurement(rule, layer, factor=own.factor, total=own.total)
        later.append(own)


def _is_inherited(own: Trend, later: list[Trend]) -> bool:
    rate = np.log(own.factor)
    return any(np.log(other.factor) / rate > INHERITED for other in later)


def _of_slopes(layer: LayerFacts, own: Trend) -> bool:
    """True if gradients are larger at early steps only because potentials drift away from the threshold."""
    if layer.slope is None or layer.above is None:
        return False
    slopes = layer.slope.relative(layer.above).astype(np.float64).reshape(*layer.above.shape[:2], -1)
    squares = (slopes**2).sum(2)
    of_slopes = trend(np.sqrt((squares if layer.before_end is None else squares * layer.before_end).sum(1)))
    return of_slopes is not None and np.log(of_slopes.total) > SLOPES_EXPLAIN * np.log(own.total)


def _growing(layer: LayerFacts, own: Trend) -> Measurement:
    feedback = _gain_of_feedback(layer)
    numbers = {"factor": own.factor, "total": own.total, "steps": own.steps, "feedback": feedback}
    if layer.recurrent and (feedback is None or feedback > FEEDBACK_EXPLAINS * own.factor):
        return make_measurement("exploding recurrence: a gradient", layer, radius=layer.radius, **numbers)
    reset = None  # the factor of one step at the threshold, where v' = leak h - drop f(h)
    if layer.drop and layer.slope is not None and layer.leak is not None:
        reset = layer.leak * abs(1.0 - layer.drop * float(layer.slope.peak.mean()))
    reset = reset if reset is not None and reset > 1 else None
    return make_measurement("exploding gradient: through time", layer, reset=reset, **numbers)


def _gain_of_feedback(layer: LayerFacts) -> float | None:
    """The factor that the feedback gives a gradient. For random W, |W' D g| is about radius(W) rms(D) |g|."""
    if layer.radius is None or layer.slope is None or layer.above is None or not all_finite(layer.above):
        return None
    slopes = layer.by_unit(layer.slope.derivative(layer.above)).astype(np.float64)
    return layer.radius * float(np.sqrt((slopes**2).mean()))


def through_depth(facts: Facts) -> Iterator[Measurement]:
    """Measure the ratio of the gradients of neighbouring layers at late steps."""
    known = [layer for layer in facts.layers if layer.grad is not None and all_finite(layer.grad)]
    for before, after in pairwise(known):
        # Compare the last steps. Their gradients have passed through few time steps, so the depth causes a difference.
        low, high = (_late(layer) for layer in (before, after))
        if low and high:
            rule = "exploding gradient: through depth" if low > high else "vanishing gradient: through depth"
            yield make_measurement(rule, before, after=after, ratio=low / high)


def _late(layer: LayerFacts) -> float:
    """The median norm at the last steps with a nonzero gradient: an eighth of these steps, but at least four."""
    assert layer.norms is not None  # the caller has checked `grad`
    norms = layer.norms[layer.norms > 0]
    return float(np.median(norms[-max(4, len(norms) // 8) :])) if len(norms) else 0.0


def no_gradient(facts: Facts) -> Iterator[Measurement]:
    """Measure Parameters whose gradient is exactly zero, grouped by Cell."""
    if not facts.differentiated:
        return
    without: dict[str, list[Weight]] = {}
    for weight in facts.weights:
        if weight.grad is None or (all_finite(weight.grad) and l2_norm(weight.grad) == 0.0 and weight.grad.size):
            without.setdefault(weight.name.rpartition(".")[0], []).append(weight)
    silent = ", ".join(layer.name for layer in facts.layers if layer.silent)
    for cell in [cell for cell in without if cell in facts.costs and facts.costs[cell].density == 0.0]:
        yield _of_one_cell("no gradient: no input", without.pop(cell), silent=silent)
    # If a surrogate is flat everywhere, other rules explain the reason.
    slopes = {layer.name: layer.relative_slopes for layer in facts.layers}
    flat = ", ".join(name for name, of_layer in slopes.items() if of_layer is not None and not of_layer.any())
    cut = sum(map(len, without.values()))
    if not flat and cut == len(facts.weights) and cut > 1:
        yield make_measurement("no gradient: anywhere", count=cut)
        return
    for weights in without.values():
        yield _of_one_cell("no gradient: flat surrogate" if flat else "no gradient", weights, flat=flat)


def _of_one_cell(rule: str, weights: list[Weight], **numbers: str) -> Measurement:
    names = " and ".join(weight.name for weight in weights)
    its = "its gradient" if len(weights) == 1 else f"the gradient of {names}"
    return make_measurement(rule, weights[0], its=its, **numbers)


def detached_resets(facts: Facts) -> Iterator[Measurement]:
    """Measure neurons whose reset is a constant in the backward pass."""
    if names := [layer.name for layer in facts.layers if layer.detached]:
        place, share = names[0] if len(names) == 1 else "", len(names) / len(facts.layers)
        yield make_measurement("detached reset", place, names=", ".join(names), share=share)


AT_CHANCE = 0.02  # a network has learned nothing if its loss is at most this fraction below the loss of guessing
GUESSED = 1.1  # up to this multiple of the chance level, an accuracy may be luck
FEWEST_EPOCHS = 3  # with fewer epochs, an accuracy at chance level proves nothing
FLAT = 0.02  # a loss fluctuates by this fraction of its first value even without learning
FIRST_UPDATES = 10  # with fewer updates, the network counts as untrained
SAME = 1e-6  # a relative difference of outputs below this is float32 rounding
# Update relative to the weight. About 1e-3 works well; a tenth replaces the weights within ten steps. The first updates
# of Adam are the rate times the sign of the gradient, at least three times as large as later ones.
LARGE_UPDATE, FIRST_FACTOR = 0.1, 3.0
FAR_ABOVE_CHANCE = 3.0  # in multiples of the loss of guessing; an untrained network has about 1
WAITED = 5  # in epochs: a loss that has not fallen by then will not fall later
# Spikes per step: rates usually stay within a factor of a few. A network whose rates grow by this factor to this value
# will saturate.
RATE_GROWS, RATE_HIGH = 3.0, 0.4
GROWING_EPOCHS = 3  # with fewer epochs, growth is not reliable
_NO_MEASURES = ("epoch", "step", "seconds")


# --- Chance level, and evidence of learning ---------------------------------------------------------------------------


def logged_numbers(facts: Facts, name: str) -> list[float]:
    """The numbers under a name in the records of the log, some of which may lack it."""
    return [float(record[name]) for record in facts.history if record.get(name) not in (None, "")]


def is_trained(facts: Facts) -> bool:
    """True if the network has been trained: there is a log, or its optimiser has taken steps."""
    return bool(facts.history) or (facts.updates or 0) >= FIRST_UPDATES


def is_classification(shape: Sequence[int], labels: Array) -> bool:
    """True if outputs of this shape, (B, C) or (T, B, C), can be scores for labels (B,)."""
    if labels.dtype.kind not in "iu" or labels.ndim != 1 or len(shape) not in (2, 3) or shape[-1] < 2:
        return False
    return shape[-2] == len(labels) > 0 and bool(labels.min() >= 0 and labels.max() < shape[-1])


def predictions(facts: Facts) -> tuple[Array, Array, int] | None:
    """Predictions (B,), labels (B,) and the number of classes, if outputs are scores and targets class numbers."""
    out, labels = facts.output, facts.target
    if out is None or labels is None or not is_classification(out.shape, labels):
        return None
    if facts.unseen:  # the outputs may be spike times, where the smallest one decides
        return None
    scores = out.sum(0) if out.ndim == 3 else out
    return (scores.argmax(1), labels, scores.shape[1]) if all_finite(scores) else None


def at_chance(facts: Facts) -> str:
    """A sentence that the loss or the accuracy in the log is at chance level; "" if that is not so."""
    losses = logged_numbers(facts, "loss")
    if losses and facts.guessing is not None and losses[-1] >= (1 - AT_CHANCE) * facts.guessing:
        epochs, guessing = count_noun(len(losses), "epoch"), format_number(facts.guessing)
        return f"the loss is {format_number(losses[-1])} after {epochs}, and the loss of guessing is {guessing}"
    right = logged_numbers(facts, "accuracy") or logged_numbers(facts, "test_accuracy")
    out, labels = facts.output, facts.target
    if len(right) < FEWEST_EPOCHS or out is None or labels is None or not is_classification(out.shape, labels):
        return ""
    commonest = float(np.bincount(labels).max()) / len(labels)
    chance = max(1 / out.shape[-1], commonest)
    if max(right) > GUESSED * chance:
        return ""
    most = f"at most {format_percent(max(right))} were classified correctly in {len(right)} epochs"
    return f"{most}, and guessing gets {format_percent(chance)}"


def hardly_falls(losses: Sequence[float]) -> bool:
    """True if the trend of a loss is smaller than its fluctuations."""
    if len(losses) < 2 or not all(map(math.isfinite, losses)):
        return False
    first, limit = losses[0], FLAT * abs(losses[0])
    return first - min(losses) <= limit and losses[-1] - first <= limit


def same_outputs(facts: Facts) -> str:
    """A sentence that the output is the same for all samples although the inputs differ; "" if that is not so."""
    out = facts.output
    if out is None or not all_finite(out) or not facts.layers:
        return ""
    samples = facts.layers[0].shape[1] if len(facts.layers[0].shape) > 1 else 0
    axis = batch_axis(out.shape, samples)
    if axis is None or samples < 2 or not any(_differ(x, batch_axis(x.shape, samples)) for x in facts.inputs):
        return ""
    return "" if _differ(out, axis) else f"the output is the same for all {samples} samples, though the inputs differ"


def _differ(x: Array, axis: int | None) -> bool:
    if axis is None:
        return False
    rows = np.moveaxis(x, axis, 0).astype(np.float64)
    return l2_norm(rows - rows[:1]) > SAME * max(l2_norm(rows), 1e-30)


# --- Not finite -------------------------------------------------------------------------------------------------------


def not_finite(facts: Facts) -> Iterator[Measurement]:
    """Measure where a NaN or an infinite number occurs first, with the names of the places it spreads to."""
    if places := [*_bad_inputs(facts), *_bad_layers(facts), *_bad_results(facts)]:
        first, *rest = places
        names = list(dict.fromkeys(place.place for place in rest if place.place != first.place))
        follows = {"follows": ", ".join(names)} if names else {}
        yield first._replace(numbers={**first.numbers, **follows})


def _bad_inputs(facts: Facts) -> Iterator[Measurement]:
    for weight in facts.weights:
        if not all_finite(weight.value):
            yield make_measurement("not finite: in a weight", weight, **_count_bad(weight.value))
    for position, x in enumerate(facts.inputs):
        if not all_finite(x):
            name = "input" if len(facts.inputs) == 1 else f"input {position}"
            first = tuple(int(i) for i in np.argwhere(~np.isfinite(x))[0])
            yield make_measurement("not finite: in an input", name, first=str(first), **_count_bad(x))


def _bad_layers(facts: Facts) -> list[Measurement]:
    """The first bad step of each layer; the earliest one is the first result."""
    places: list[Measurement] = []
    for layer in facts.layers:
        recorded = [("potential", layer.v), ("potential", layer.above), ("output", layer.spikes)]
        bad = [(_bad_steps(x)[0], quantity, x) for quantity, x in recorded if x is not None and not all_finite(x)]
        if bad:
            step, quantity, x = min(bad, key=lambda each: each[0])
            numbers = {"step": step, "quantity": quantity, **_count_bad(x[step])}
            places.append(make_measurement("not finite: in a layer", layer, **numbers))
    return sorted(places, key=lambda place: place.numbers["step"])


def _bad_results(facts: Facts) -> Iterator[Measurement]:
    if facts.loss is not None and not math.isfinite(facts.loss):
        yield make_measurement("not finite: in the loss", "loss", loss=str(facts.loss))
    for layer in facts.layers:
        if layer.grad is not None and not all_finite(layer.grad):
            steps, place = _bad_steps(layer.grad), f"gradient at {layer.name}"
            numbers = {"bad": len(steps), "size": len(layer.grad), "last": steps[-1]}
            yield make_measurement("not finite: in a current's gradient", place, **numbers)
    for weight in facts.weights:
        if weight.grad is not None and not all_finite(weight.grad):
            place, bad = f"gradient of {weight.name}", _count_bad(weight.grad)
            yield make_measurement("not finite: in a weight's gradient", place, **bad)


def _bad_steps(x: Array) -> Array:
    return np.flatnonzero(~np.isfinite(x.reshape(len(x), -1)).all(1))


def _count_bad(x: Array) -> dict[str, int | str]:
    """The number of entries that are not finite, the number of all entries, and "NaN" or "infinite"."""
    what = "NaN" if np.isnan(x).any() else "infinite"
    return {"bad": int((~np.isfinite(x)).sum()), "size": x.size, "what": what}


# --- Loss and updates -------------------------------------------------------------------------------------------------


def summed_loss(facts: Facts) -> Iterator[Measurement]:
    """Measure the ratio of the loss of a batch to the mean loss of its halves."""
    if facts.loss is not None and facts.halves and math.isfinite(facts.loss):
        yield make_measurement("mis-scaled loss: a sum", facts=facts, ratio=facts.loss / facts.halves)


def size_of_gradients(facts: Facts) -> Iterator[Measurement]:
    """Measure the smallest and the largest gradient relative to its weight, over all Parameters."""
    ratios = [ratio for _, ratio in _ratios(facts, "grad") if ratio > 0]
    if ratios:
        where = "the one Parameter that has some" if len(ratios) == 1 else f"all {len(ratios)} Parameters"
        yield make_measurement("mis-scaled loss: large gradients", least=min(ratios), where=where)
        yield make_measurement("mis-scaled loss: tiny gradients", most=max(ratios), where=where)


def _ratios(facts: Facts, change: str) -> list[tuple[Weight, float]]:
    """The norms of finite gradients or updates relative to their weights, without biases if there are matrices."""
    weights = [weight for weight in facts.weights if weight.value.ndim > 1] or list(facts.weights)
    changes = [(w, getattr(w, change)) for w in weights if all_finite(w.value) and w.size > 0]
    return [(w, l2_norm(x) / w.size) for w, x in changes if x is not None and all_finite(x)]


def size_of_updates(facts: Facts) -> Iterator[Measurement]:
    """Measure updates that are large or tiny relative to the weights."""
    ratios = _ratios(facts, "update")
    if not ratios or facts.updates is None:
        return
    worst, largest = max(ratios, key=lambda each: each[1])
    limit = LARGE_UPDATE * (FIRST_FACTOR if facts.updates < FIRST_UPDATES else 1.0)
    if largest > limit:
        many = sum(ratio > limit for _, ratio in ratios)
        numbers = {"largest": largest, "limit": limit, "lower": max(10.0, largest / 1e-2)}
        change = f"{many} of {count_noun(len(ratios), 'Parameter')} change{'s' if many == 1 else ''}"
        change = change if worst.group is None else f"it is in group {worst.group} of the optimiser, and {change}"
        yield make_measurement("learning rate: large updates", worst, usual=LARGE_UPDATE, change=change, **numbers)
    elif largest > 0:
        stands = ", and the loss stands" if hardly_falls(logged_numbers(facts, "loss")) else ""
        yield make_measurement(f"learning rate: tiny updates{stands}", worst, largest=largest)


# --- Labels, optimiser and log ----------------------------------------------------------------------------------------


def invalid_labels(facts: Facts) -> Iterator[Measurement]:
    """Measure labels outside of the classes of the output, or all equal."""
    out, target = facts.output, facts.target
    if out is None or target is None or target.dtype.kind not in "iu" or target.ndim != 1 or not target.size:
        return
    count, classes = len(target), out.shape[-1]
    if out.ndim not in (2, 3) or classes < 2 or batch_axis(out.shape, count) != out.ndim - 2:
        return
    wrong, least, most = int(((target < 0) | (target >= classes)).sum()), target.min(), target.max()
    if wrong:
        ends = {"last": classes - 1, "least": least, "most": most}
        yield make_measurement("labels: of no class", wrong=wrong, count=count, classes=classes, **ends)
    elif least == most:
        yield make_measurement("labels: of one class", count=count, label=least, classes=classes)


def not_trained(facts: Facts) -> Iterator[Measurement]:
    """Measure trainable Parameters that the optimiser does not have."""
    if facts.differentiated and not facts.weights:
        yield make_measurement("not trained: nothing there")
    if left := [weight.name for weight in facts.weights if weight.left_out]:
        names = ", ".join(left[:5]) + (", ..." if len(left) > 5 else "")
        place = left[0] if len(left) == 1 else ""
        yield make_measurement("not trained: left out", place, left=len(left), count=len(facts.weights), names=names)


def loss_curve(facts: Facts) -> Iterator[Measurement]:
    """Measure a loss that is not finite, rises, hardly falls, or rises only on the validation data."""
    losses, tests = logged_numbers(facts, "loss"), logged_numbers(facts, "test_loss")
    bad = [epoch for epoch, loss in enumerate(losses, 1) if not math.isfinite(loss)]
    if bad:
        yield make_measurement("loss curve: not finite", epoch=bad[0])
    elif hardly_falls(losses):
        why = at_chance(facts) if len(losses) >= WAITED else ""
        rule = "loss curve: stands at chance" if why else "loss curve: stands"
        yield make_measurement(rule, first=losses[0], last=losses[-1], epochs=len(losses), why=why)
    else:
        yield from _rising("training", losses)
    if all(map(math.isfinite, tests)):
        yield from _rising("test", tests)


def _rising(what: str, losses: list[float]) -> Iterator[Measurement]:
    if len(losses) < 2 or hardly_falls(losses):
        return
    best = int(np.argmin(losses))
    first, least, last = losses[0], losses[best], losses[-1]
    numbers = {"what": what, "first": first, "least": least, "last": last, "best": best + 1, "epochs": len(losses)}
    if last > first:
        yield make_measurement(f"loss curve: {what} above its first", **numbers)
    elif least < first:
        yield make_measurement(f"loss curve: {what} rises", lost=(last - least) / (first - least), **numbers)


def far_above_chance(facts: Facts) -> Iterator[Measurement]:
    """Measure a loss that was far above chance and is still above chance, as after updates that were too large."""
    losses = logged_numbers(facts, "loss")
    if facts.guessing is None or not losses or not all(map(math.isfinite, losses)) or losses[-1] < facts.guessing:
        return
    limit, last = FAR_ABOVE_CHANCE * facts.guessing, len(losses) - 1
    epoch = last if losses[-1] > limit else int(np.argmax(losses))
    if losses[epoch] > limit:
        numbers = {"loss": losses[epoch], "epoch": epoch + 1, "epochs": len(losses)}
        numbers |= {"last": losses[-1]} if epoch != last else {}
        yield make_measurement("learning rate: loss far above chance", facts=facts, **numbers)


def growing_numbers(facts: Facts) -> Iterator[Measurement]:
    """Measure numbers in the log, except losses and accuracies, that grow without limit, and rates that vanish."""
    for name in dict.fromkeys(name for record in facts.history for name in record):
        if name in _NO_MEASURES or "learning_rate" in name or "loss" in name or "accuracy" in name:
            continue
        try:
            series = logged_numbers(facts, name)
        except (TypeError, ValueError):  # words
            continue
        bad = [epoch for epoch, value in enumerate(series, 1) if not np.isfinite(value)]
        if "rate" in name:
            if len(series) > 1 and not bad:
                yield from _of_rate(name, series)
        elif bad:
            yield make_measurement("growth: not finite", name=name, epoch=bad[0])
        elif len(series) >= GROWING_EPOCHS and series[0] and (np.diff(np.abs(series)) > 0).all():
            first, last = abs(series[0]), abs(series[-1])
            numbers = {"first": first, "last": last, "epochs": len(series), "growth": last / first}
            yield make_measurement("growth: in every epoch", name=name, **numbers)


def _of_rate(name: str, series: list[float]) -> Iterator[Measurement]:
    """Measure a firing rate that grows towards saturation, or falls towards silence."""
    first, last = series[0], series[-1]
    numbers = {"name": name, "first": first, "last": last, "epochs": len(series)}
    if last > RATE_HIGH and last > RATE_GROWS * first:
        yield make_measurement("growth: a rate", **numbers)
    elif first > 0 and last >= 0:
        yield make_measurement("growth: a rate dies out", left=last / first, **numbers)


def classification_accuracy(facts: Facts) -> Iterator[Measurement]:
    """Measure the accuracy, and the most frequent confusion of two classes."""
    read = predictions(facts)
    if read is None:
        return
    guesses, labels, classes = read
    numbers = {"samples": len(labels), "are": "is" if len(labels) == 1 else "are", "classes": classes}
    wrong = [(int(a), int(b)) for a, b in zip(labels, guesses, strict=True) if a != b]
    if wrong and (guesses == guesses[0]).all():
        numbers["only"] = int(guesses[0])
    elif wrong:
        label, guess = pair = max(dict.fromkeys(wrong), key=wrong.count)
        numbers |= {"often": wrong.count(pair), "label": label, "guess": guess}
    yield make_measurement("accuracy", right=float((guesses == labels).mean()), chance=1 / classes, **numbers)


def silent_labels(facts: Facts) -> Iterator[Measurement]:
    """Measure samples whose label neuron never spikes, for outputs of spike times (B, C)."""
    times, labels = facts.output, facts.target
    if times is None or labels is None or times.ndim != 2 or labels.shape != times.shape[:1]:
        return
    if labels.dtype.kind not in "iu" or not np.isposinf(times).any() or not (labels < times.shape[1]).all():
        return
    silent = np.isposinf(np.take_along_axis(times, labels[:, None].astype(np.int64), 1))
    if silent.any():
        yield make_measurement("silent output: label", "output", count=int(silent.sum()), samples=len(labels))


def not_recorded(facts: Facts) -> Iterator[Measurement]:
    """Measure spiking layers that a monitor cannot record."""
    for name in facts.unseen:
        path, _, cell = name.rpartition(" ")
        yield make_measurement("not recorded", path, cell=cell.strip("()"))


MEASURES = (
    silent_labels, not_recorded, not_finite, summed_loss, size_of_gradients, size_of_updates, loss_curve,
    far_above_chance, classification_accuracy, invalid_labels, not_trained, growing_numbers, no_gradient, through_time,
    through_depth, detached_resets,
)  # fmt: skip
