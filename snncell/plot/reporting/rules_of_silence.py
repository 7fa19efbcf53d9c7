"""Findings about silence: neurons that never fire, an output that says nothing, and what follows from them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from snncell.plot.reporting.baseline import at_chance, equal_samples, trained
from snncell.plot.reporting.facts import PASSES_NOTHING, Array, Facts, Layer, finite
from snncell.plot.reporting.findings import Finding, counted, number, percent
from snncell.plot.reporting.rules_of_activity import is_narrow
from snncell.plot.reporting.worst import silent_samples

# Some neurons are silent over a batch in every net that computes with few spikes, and at initialisation whole layers
# are: below a tenth nothing is said, beyond it is a note, as long as the gradient can wake them. A layer sleeps fast if
# no potential comes within nine tenths of the threshold, or none is where the surrogate is a hundredth of its peak.
DEAD_NOTE, WAKES, FAR = 0.1, 0.01, 0.9
# Neurons that no gradient can wake stay as they are. In nets that learn, half of a layer may be so, over the few
# samples of a batch, and the rest does its work: two thirds are a loss, nine tenths a fault.
LOST_WARNING, LOST_ALARM = 2 / 3, 0.9
# Of the samples; a net is none the worse for it while it is not trained, or where they are near their first spike.
SILENT_NOTE, SILENT_WARNING = 0.1, 0.2


def _seen(layer: Layer) -> str:
    if len(layer.shape) < 2:
        return "over the batch"
    return f"in {counted(layer.shape[1], 'sample')} of {counted(layer.shape[0], 'step')}"


def _silent_before(facts: Facts, layer: Layer) -> Layer | None:
    """The layer before this one, if it sends nothing."""
    position = list(facts.layers).index(layer)
    before = facts.layers[position - 1] if position else None
    return before if before is not None and before.silent else None


# --- silence ----------------------------------------------------------------------------------------------------------


def dead(facts: Facts) -> Iterator[Finding]:
    """Neurons that never fired; a last layer without any spike is `silent_output`."""
    for layer in facts.layers:
        if layer.rates is None or (layer.silent and layer is facts.layers[-1] and len(facts.layers) > 1):
            continue
        never = layer.rates == 0
        share = float(never.mean())
        reach = _reach(layer)
        lost = float((never & (reach < PASSES_NOTHING)).mean()) if reach is not None else 0.0
        severity = _how_dead(share, lost, _asleep(layer))
        if severity is None:
            continue
        cause = _silent_before(facts, layer) if layer.silent else None
        too_narrow = is_narrow(layer) is not None
        units = f"{percent(share)} of {counted(never.size, layer.unit)}"
        words = f"{units} never fired {_seen(layer)}{_slope_words(layer, never)}"
        stuck = _stuck(facts, layer)
        if cause is not None:
            severity, words = "note", f"{words} It gets no spikes: {cause.name} before it is silent."
        elif stuck:
            severity, words = "alarm", f"{words} Training has not woken them: {stuck}."
        if too_narrow:
            severity = "note"
        yield Finding("dead", layer.name, severity, words, _mend_of_silence(cause, too_narrow, lost > 0))


def _mend_of_silence(cause: Layer | None, too_narrow: bool, lost: bool) -> str:
    if cause is not None or too_narrow:
        return "Take a wider surrogate first, see there." if cause is None else f"Mend {cause.name} first."
    mend = "Raise the input or the weights before it, lower v_threshold, or take a longer tau"
    if lost:
        return f"{mend}; a wider surrogate reaches neurons further from the threshold."
    return f"{mend}; a regulariser of rates (nn.SilenceRegulariser) has the gradient wake them."


def _reach(layer: Layer) -> Array | None:
    """The largest derivative, in parts of its peak, that each unit's surrogate had at any step."""
    return None if layer.relative_slopes is None else layer.relative_slopes.max(0)


def _asleep(layer: Layer) -> bool:
    """True if a silent layer is far from its first spike, in every sample."""
    return layer.silent and bool(_asleep_in(layer).all())


def _asleep_in(layer: Layer) -> Array:
    """True for each sample of a layer that is far from a spike, (B,); False where it is not known."""
    samples = layer.shape[1] if len(layer.shape) > 1 else 1
    if layer.above is None or not layer.above.size or not finite(layer.above):
        return np.zeros(samples, bool)
    highest = layer.above.reshape(len(layer.above), samples, -1).max((0, 2))
    far = np.zeros(samples, bool) if layer.threshold is None else highest < -FAR * abs(layer.threshold)
    if layer.slope is None:
        return far
    slopes = layer.slope.relative(layer.above).reshape(len(layer.above), samples, -1)
    asleep: Array = far | (slopes.max((0, 2)) < WAKES)
    return asleep


def _stuck(facts: Facts, layer: Layer) -> str:
    """The sign that a layer without any spike keeps a trained net from learning; "" if nothing shows it."""
    if not layer.silent or not trained(facts) or not finite(layer.above):
        return ""
    return _same_for_all(facts) or at_chance(facts)


def _same_for_all(facts: Facts) -> str:
    samples = equal_samples(facts)
    return f"the output is the same for all {samples} samples, though the inputs differ" if samples else ""


def _how_dead(share: float, lost: float, asleep: bool) -> str | None:
    if lost > LOST_ALARM:
        return "alarm"
    if lost > LOST_WARNING or asleep:
        return "warning"
    return "note" if share > DEAD_NOTE else None


def _slope_words(layer: Layer, never: Array) -> str:
    reach = _reach(layer)
    if reach is None:
        return "."
    best = float(reach[never].max())
    if not np.isfinite(best):
        return "; their potentials are not finite."
    lost = float((reach[never] < PASSES_NOTHING).mean())
    if lost == 1.0:
        return (
            f"; their surrogate is below {number(PASSES_NOTHING)} of its peak at every potential they had "
            f"({f'it reaches {number(best)} of it' if best else 'it is 0 there'}), so no gradient can wake them."
        )
    if lost:
        return (
            f"; the surrogate of {percent(lost)} of these is below {number(PASSES_NOTHING)} of its peak at every step, "
            f"so no gradient can wake them."
        )
    return f"; their surrogate reaches {number(best)} of its peak, so a gradient can still wake them."


def silent_output(facts: Facts) -> Iterator[Finding]:
    """A last layer of spiking neurons that gave no spike."""
    layer = facts.layers[-1] if facts.layers else None
    if layer is None or len(facts.layers) < 2 or not layer.silent:
        return
    cause, best = _silent_before(facts, layer), _best(layer)
    text = f"the output layer gave no spike {_seen(layer)}" + (
        "." if best is None else f"; its surrogate reaches {number(best)} of its peak."
    )
    if cause is not None:
        yield Finding("silent output", layer.name, "note", text, f"Mend {cause.name} first, which sends it no spikes.")
        return
    stuck = _stuck(facts, layer)
    text += f" Training has not woken it: {stuck}." if stuck else ""
    mend = "Lower its v_threshold, raise its weights, or read potentials instead of spikes: nn.LINode, fire=False."
    lost = stuck or (finite(layer.above) and (best is None or best < PASSES_NOTHING))
    severity = "alarm" if lost else "warning" if _asleep(layer) else "note"
    yield Finding("silent output", layer.name, severity, text, mend)


def _best(layer: Layer) -> float | None:
    """The largest derivative of a layer, in parts of its peak, where that is known and finite."""
    reach = _reach(layer)
    best = None if reach is None else float(reach.max())
    return best if best is not None and np.isfinite(best) else None


def silent_in_some(facts: Facts) -> Iterator[Finding]:
    """A layer that fires, and gives no spike for some of the samples, which what comes after it cannot tell apart."""
    for layer in facts.layers:
        silent = silent_samples(layer)
        if silent is None or layer.silent or float(silent.mean()) <= SILENT_NOTE:
            continue
        many = int(silent.sum())
        asleep = float((silent & _asleep_in(layer)).mean())
        severity = "warning" if trained(facts) and asleep > SILENT_WARNING else "note"
        text = (
            f"it gives no spike for {many} of {counted(len(silent), 'sample')}, sample {int(np.argmax(silent))} the "
            f"first of them; what comes after it cannot tell these apart."
        )
        mend = "Bring samples to one scale (inputs of equal strength), raise the input, or lower v_threshold."
        yield Finding("silent samples", layer.name, severity, text, mend)


# --- what follows from it ---------------------------------------------------------------------------------------------


def equal_outputs(facts: Facts) -> Iterator[Finding]:
    """Outputs that do not depend on the sample, while the inputs do."""
    text = _same_for_all(facts)
    if not text:
        return
    silent = next((layer.name for layer in facts.layers if layer.silent), None)
    if silent is None:
        mend = "Look at the layers for a part that is silent or saturated; the loss cannot tell the samples apart."
        yield Finding("equal outputs", "", "alarm", f"{text}.", mend)
    else:  # before training, layers that are silent yet near their thresholds wake by themselves
        severity = "warning" if trained(facts) else "note"
        text = f"{text}: no spike comes from {silent}, and the loss cannot tell the samples apart."
        yield Finding("equal outputs", "", severity, text, f"Mend {silent} first.")


def explained(facts: Facts, finding: Finding) -> Finding:
    """The finding, as a note if it follows from a layer at its place or after it that no gradient passes."""
    names = [layer.name for layer in facts.layers]
    place = names.index(finding.layer) if finding.layer in names else 0
    causes = [(what, name) for what, name in _blocking(facts) if names.index(name) >= place]
    if not causes:
        return finding
    what, name = causes[0]
    text = f"{finding.text} It follows from the {what} of {name}."
    return replace(finding, severity="note", text=text, mend=f"Mend {name} first.")


def _blocking(facts: Facts) -> list[tuple[str, str]]:
    """The layers in the way of gradients: those that none can wake, slept through a training, or see too little."""
    silent = {layer.name for layer in facts.layers if layer.silent}
    found = [*dead(facts), *silent_output(facts)]
    quiet = [f.layer for f in found if f.severity == "alarm" or (f.severity == "warning" and f.layer in silent)]
    narrow = [layer.name for layer in facts.layers if is_narrow(layer) is not None]
    return [("silence", name) for name in quiet] + [("narrow surrogate", name) for name in narrow]


RULES = (dead, silent_output, silent_in_some, equal_outputs)
