"""The table of rules of a report: the text, the fix and the limits of each finding.

The name of a rule is the kind of its findings and, after a colon, the case, for example "dead: out of reach". Measures
yield numbers under this name. `note`, `warning` and `alarm` set the lowest severity; with `graded` only the limits do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from snncell.report import activity, training
from snncell.report.activity import SATURATED, STUCK
from snncell.report.facts import Facts
from snncell.report.findings import Finding, Limits, Rule, Words, above, below, by_severity


def _rule(severity: str | None, words: Words, mend: Words = "", follows: bool = False, **limits: Limits | str) -> Rule:
    return Rule(words, mend, severity, limits, follows)


graded, note, warning, alarm = (partial(_rule, severity) for severity in (None, "note", "warning", "alarm"))

_CLIPPED = "gradients (train.fit(clip_norm=1.0))"
_OF_GRADIENTS = (
    "If it explodes, fix that first. Otherwise look for a custom gradient that divides by zero: "
    "snncell.testing.check_bprop, snncell.set_context(check_finite=True)."
)
_FOLLOWS = " Also not finite: {follows}."
_NEVER_FIRED = (
    "{share:%} of {it.rates.size:{it.unit}} never fired {where}",
    "; their potentials are {broken}",
    "; the derivative of their surrogate is below {nothing} of its peak at all their potentials (at most {faint} of "
    "it), so no gradient can make them fire",
    "; the derivative of their surrogate is below {nothing} of its peak at all their potentials (it is {zero}), so no "
    "gradient can make them fire",
    "; for {lost_of_them:%} of these, the derivative of the surrogate is below {nothing} of its peak at every step, so "
    "no gradient can make them fire",
    "; the derivative of their surrogate reaches {reaches:%} of its peak, so a gradient can still make them fire",
    ".",
    " The layer receives no spikes, because {cause.name} before it is silent.",
    " Training has not made them fire: {stuck}.",
)
_SILENT_OUTPUT = (
    "the output layer gave no spike {where}",
    "; the derivative of its surrogate reaches {reaches:%} of its peak",
    ".",
    " Training has not made it fire: {stuck}.",
)
_FIRED_TOO_OFTEN = (
    "{share:%} of {it.rates.size:{it.unit}} fired at more than {rate:%} of the time steps; the layer's mean rate is "
    "{mean} spikes per step.",
    " In the last {worst.steps} of {it.shape[0]} steps, {everywhere:%} did so over all samples, and {worst.share:%} in "
    "sample {worst.sample}.",
    " In sample {sample.sample}, {sample.share:%} did so in the last {sample.steps} of {it.shape[0]} steps",
    ", with potentials more than {far} thresholds above their initial value",
    "; more than {limit:%} of the neurons did so in {beyond} of {it.shape[1]:sample}.",
)
_LESS = (
    "Lower the input or the weights before the layer, raise v_threshold, or normalise the current "
    "(nn.TimeDistributed(nn.BatchNorm1d(...)) before the neurons)."
)
_WAKE = "Raise the input or the weights before the layer, lower v_threshold, or use a longer tau; "
_WIDER = "a lower sharpness of {it.slope.name}, or a surrogate with long tails such as surrogate.ATan()"
_NARROW = (
    "at {share:%} of the steps of neurons that fire, the derivative of {it.slope.name} is below {nothing} of its peak. "
    "It is nearly 0 beyond a distance of {it.slope.width} from the threshold, but their potentials spread over "
    "+-{spread} (5th to 95th percentile)."
)
_RUN_AWAY = (
    "in sample {sample}, mean |v| grows from {early} in the second quarter of the steps to {late} in the last quarter",
    ", at a threshold of {threshold}",
    "; it grows by a factor of ten or more in {many:sample}.",
    " The spectral radius of the feedback weights is {radius}.",
)
_CONSTANT = (
    "{constant.name} of the {it.neuron} is {constant.furthest:.5g}",
    " ({outside} of its {several} entries are out of range, this one furthest)",
    "; {constant.name} {constant.text}.",
)
_GROWS_BACKWARDS = (
    "the gradient grows by a factor of {factor} per step backwards through time, {total} over {steps} steps."
)
_SHRINKS_BACKWARDS = (
    "the gradient shrinks by a factor of {factor} per step backwards through time: the first steps receive {total} of "
    "the gradient of the last steps."
)
_TINY_UPDATES = "one update changes weights by at most {largest} of their size, so the network will learn very slowly."
_STANDS = "the training loss hardly falls: {first} in epoch 1, {last} in epoch {epochs}"
_RISES = "the {what} loss rises from {least} in epoch {best} to {last} in epoch {epochs}"
_LOST_AGAIN = _RISES + ", and so loses {lost:%} of its earlier decrease."
_ABOVE_THE_FIRST = _RISES + ", above the {first} of epoch 1."
_SLOWER = "Lower the learning rate, or use a schedule that decays (nn.CosineDecayLR)."
_STOP = "Stop earlier (train.fit(patience=...)), or regularise with weight_decay, nn.Dropout or more data."
_RATE_GOES = "{name} changes from {first} in epoch 1 to {last} in epoch {epochs}"

# Limits for the growth of a gradient from the last step to the first. A sum over time grows linearly. In networks that
# learn, resets and adaptation multiply the gradient by several hundred over a sequence. A factor of a thousand is a
# fault. At a million, float32 loses the gradient of late steps.
_EXPLODING = above(warning=1e3, alarm=1e6)
# If the gradient shrinks to less than this from the last step to the first, early steps do not influence the weights.
_VANISHING = 1e-4

RULES: dict[str, Rule] = {
    # --- numbers that are not finite ----------------------------------------------------------------------------------
    "not finite: in a weight": alarm(
        ("{bad} of {size} weights are {what}.", _FOLLOWS),
        "Load the last finite weights. Then lower the learning rate, or clip gradients.",
    ),
    "not finite: in an input": alarm(
        ("{bad} of {size} entries are {what}, the first at index {first}.", _FOLLOWS),
        "Clean the data, for example with np.nan_to_num, or drop these samples.",
    ),
    "not finite: in a layer": alarm(
        ("its {quantity} is {what} from step {step} on, in {bad} of {size} entries at that step.", _FOLLOWS),
        "snncell.set_context(check_finite=True) names the neuron and the operation. Look for a division by zero, a "
        "logarithm or a root in its step, and for potentials that grow without limit.",
    ),
    "not finite: in the loss": alarm(
        ("the loss is {loss}.", _FOLLOWS),
        "Check the loss for a logarithm of 0, and the targets for values out of range.",
    ),
    "not finite: in a current's gradient": alarm(
        ("the gradient of its current is not finite at {bad} of {size} steps, from step {last} backwards.", _FOLLOWS),
        _OF_GRADIENTS,
    ),
    "not finite: in a weight's gradient": alarm(
        ("{bad} of {size} entries of its gradient are {what}.", _FOLLOWS), _OF_GRADIENTS
    ),
    # --- the loss -----------------------------------------------------------------------------------------------------
    "mis-scaled loss: a sum": graded(
        "the loss is a sum over the batch: {facts.loss} for the whole batch, {facts.halves} for half of it. So the "
        "size of an update depends on the batch size.",
        'Use the mean over samples: reduction="mean", or .mean() instead of .sum().',
        # The ratio is 1 for a mean and 2 for a sum. A sum with other terms, or a mean with batch statistics, is in
        # between.
        ratio=above(warning=1.8),
    ),
    # Both rules need gradients that are large (or tiny) relative to the weights in all Parameters. If only some of them
    # are, the network is the cause, not the loss. At a ratio of a hundred, a learning rate of 0.001 changes weights by
    # a tenth in one step. At 1e-7, gradients become as small as the epsilon of Adam, 1e-8.
    "mis-scaled loss: large gradients": graded(
        "gradients are at least {least} times as large as the weights, in {where}.",
        f"Divide the loss by the number of samples, steps or neurons, or clip the {_CLIPPED}.",
        least=above(warning=1e2),
    ),
    "mis-scaled loss: tiny gradients": graded(
        "gradients are at most {most} of the weights, in {where}.",
        "Multiply the loss by a constant, or find the reason for the small gradient, such as a loss that is already at "
        "its minimum, or a flat surrogate.",
        most=below(warning=1e-7),
        follows=True,
    ),
    # --- updates ------------------------------------------------------------------------------------------------------
    "learning rate: large updates": warning(
        "one update changes it by {largest} times its size (about 0.001 is usual, and {usual} is too much); {change} "
        "by more than {limit}.",
        "Lower the learning rate, first by a factor of {lower}, or clip gradients.",
        largest=above(alarm=1.0),  # one step replaces the weights
    ),
    "learning rate: tiny updates": graded(
        _TINY_UPDATES,
        "Raise the learning rate, unless the training is about to end.",
        largest=below(note=1e-6),
        follows=True,
    ),
    "learning rate: tiny updates, and the loss stands": graded(
        _TINY_UPDATES, "Raise the learning rate.", largest=below(warning=1e-6), follows=True
    ),
    "learning rate: loss far above chance": warning(
        (
            "the training loss is {loss} in epoch {epoch}, far above the {facts.guessing} of guessing",
            ", and {last} in epoch {epochs}",
            ": the network is confident in wrong answers. A usual cause is a learning rate that is too high.",
        ),
        "Start again from new weights with a learning rate a hundred times lower. If the loss was already as large "
        "before the first update, scale the outputs down.",
    ),
    # --- over the epochs ----------------------------------------------------------------------------------------------
    "loss curve: not finite": alarm(
        "the training loss is not finite from epoch {epoch} on.", f"Lower the learning rate, or clip {_CLIPPED}."
    ),
    "loss curve: stands": note(_STANDS + ".", "If the network has not learned the task yet, see the other findings."),
    "loss curve: stands at chance": warning(
        _STANDS + "; {why}.",
        "See the other findings. If there are none, raise the learning rate, or try to fit a single batch.",
        follows=True,
    ),
    "loss curve: training above its first": alarm(_ABOVE_THE_FIRST, _SLOWER),
    "loss curve: test above its first": warning(_ABOVE_THE_FIRST, _STOP),
    # The limits are parts of the earlier decrease. A small rise may only be a difference between batches.
    "loss curve: training rises": graded(_LOST_AGAIN, _SLOWER, lost=above(note=0.1, warning=0.3)),
    "loss curve: test rises": graded(_LOST_AGAIN, _STOP, lost=above(note=0.3)),
    "growth: a rate": warning(
        _RATE_GOES + ": the neurons will soon fire at every step.",
        "Regularise the firing rates (nn.TargetRateRegulariser), lower the learning rate, or normalise the current.",
    ),
    "growth: a rate dies out": graded(
        _RATE_GOES + ", {left:%} of its first value: neurons become silent.",
        "Lower the learning rate, or add a regulariser against silent neurons (nn.SilenceRegulariser).",
        # Rates usually settle within a factor of a few. A rate that has fallen to a twentieth will reach 0.
        left=below(warning=0.05),
    ),
    "growth: not finite": alarm(
        "{name} is not finite from epoch {epoch} on.",
        "Find the origin: snncell.set_context(check_finite=True) names the first operation that is not finite.",
    ),
    "growth: in every epoch": graded(
        "|{name}| grows in every epoch, from {first} to {last} in {epochs} epochs.",
        f"Lower the learning rate, clip {_CLIPPED}, or add weight_decay.",
        # Norms and potentials may grow by orders of magnitude in some epochs, but should not grow in every epoch.
        growth=above(warning=100.0),
    ),
    "accuracy": note(
        (
            "{right:%} of {samples:sample} {are} classified correctly; chance is {chance:%} for {classes} classes.",
            " Every sample is classified as class {only}.",
            " The most frequent error, {often:time}, is class {guess} for class {label}.",
        )
    ),
    # --- setup of the training ----------------------------------------------------------------------------------------
    "labels: of no class": alarm(
        "{wrong:label} of {count} are out of range: there are {classes} outputs, for classes 0 to {last}, and labels "
        "from {least} to {most}.",
        "Number the classes from 0, or give the network one output per class.",
    ),
    "labels: of one class": graded(
        "all {count} labels are class {label}, but the network has {classes} outputs.",
        "Shuffle the data before you make batches, and pass a batch as in training to the report.",
        count=above(warning=7),  # fewer labels may be equal by chance
    ),
    "silent output: label": warning(
        "the neuron of the label is silent (its spike time is inf) in {count} of {samples:sample}; these have no "
        "gradient, so the network learns nothing from them.",
        "Mask these samples in the loss and in its regulariser, as the docstring of nn.EventPropLIF shows, and raise "
        "the weights of neurons that are silent in a whole batch.",
    ),
    "not recorded": note(
        "the {cell} runs its time steps itself, so its activity cannot be recorded.",
        "Look at its output: a spike time of inf, or an output of zeros, means a silent neuron.",
    ),
    "not trained: nothing there": warning(
        "the network has no trainable Parameter.",
        "Set requires_grad=True for Parameters that should learn, for example by net.set_grad().",
    ),
    "not trained: left out": warning(
        "the optimiser does not have {left:Parameter} of {count} that are trainable: {names}.",
        "Pass net.trainable_params() to the optimiser, and freeze Parameters that should not learn "
        "(requires_grad=False).",
    ),
    # --- gradients ----------------------------------------------------------------------------------------------------
    "no gradient: no input": note(
        ("{its} is exactly zero, because all its inputs are 0", ": no spike comes from {silent}", "."),
        "It becomes nonzero with the first spikes, see the findings about silent layers.",
    ),
    "no gradient: flat surrogate": note(
        "{its} is exactly zero; the surrogate's derivative is 0 at every potential of {flat}.", "Fix {flat} first."
    ),
    "no gradient: anywhere": alarm(
        "no Parameter receives a gradient: all {count} gradients are exactly zero.",
        "Check the path from the last layer to the loss: the loss may not depend on the network, or there is an "
        "ops.stop_gradient, an argmax or a comparison.",
    ),
    "no gradient": alarm(
        "{its} is exactly zero.",
        "Look for a comparison (v > 1) instead of a spike function, ops.stop_gradient, a Cell that is not called, a "
        "bprop that returns zeros or omits the Parameter (internal_params), or silent layers between it and the loss. "
        "Freeze Parameters that should not learn (requires_grad=False).",
    ),
    "exploding recurrence: a gradient": graded(
        (
            _GROWS_BACKWARDS,
            " The spectral radius of the feedback weights is {radius}. Together with the surrogate's derivative (root "
            "mean square), they multiply the gradient by about {feedback} per step.",
        ),
        "Scale the feedback weights down (spectral radius times mean derivative below 1), use a surrogate with a "
        f"smaller derivative, or clip the {_CLIPPED}.",
        total=_EXPLODING,
    ),
    "exploding gradient: through time": graded(
        (
            _GROWS_BACKWARDS,
            " The feedback does not amplify it: a step multiplies by about {feedback}.",
            " Its reset multiplies the gradient of a neuron at the threshold by {reset}.",
        ),
        "Reset and adaptation multiply the gradient by the derivative of the surrogate. Use a surrogate with a smaller "
        "derivative, detach the reset (detach_reset=True), truncate the sequence (nn.Truncated), or clip the "
        f"{_CLIPPED}.",
        total=_EXPLODING,
    ),
    "vanishing gradient: through time": graded(
        _SHRINKS_BACKWARDS,
        "Use a wider surrogate, or detach the reset (detach_reset=True), because the gradient through the reset "
        "reduces the sum at every step. A readout over all steps, such as a mean, gives early steps a direct gradient.",
        total=below(warning=_VANISHING),
        follows=True,
    ),
    "vanishing gradient: by the leak": graded(
        _SHRINKS_BACKWARDS + " The reason is the leak: a step keeps {it.leak} of the potential.",
        "If early steps matter, use a longer tau, or a readout over all time steps, such as a mean.",
        total=below(note=_VANISHING),
        follows=True,
    ),
    # Ratios between neighbouring layers. In networks that learn, surrogates pass a few hundredths of a gradient, and
    # products with default weights pass about all of it. A factor of a hundred or more upwards, or a thousand
    # downwards, is a fault.
    "exploding gradient: through depth": graded(
        "the gradient at {it.name} is {ratio} times as large as at {after.name}, the layer after it.",
        "Lower the weights between {it.name} and {after.name}, or normalise the current between them.",
        ratio=above(warning=1e2, alarm=1e4),
    ),
    "vanishing gradient: through depth": graded(
        "the gradient at {it.name} is {ratio} of that at {after.name}, the layer after it.",
        "Bring the potentials of {it.name} closer to its threshold, use a wider surrogate there, raise the weights "
        "between the two layers, or add a shortcut (nn.SEWBlock).",
        ratio=below(warning=1e-3),
        follows=True,
    ),
    "detached reset": note(
        "the reset of {names} is a constant in the backward pass (detach_reset=True), in {share:%} of the layers, so "
        "gradients leave out a part of the dynamics.",
        "Nothing to do if you intend this, as many papers do. Otherwise set detach_reset=False.",
    ),
    # --- silence ------------------------------------------------------------------------------------------------------
    # Some neurons are silent over a batch in every network with sparse spikes, and whole layers are at initialisation.
    # So up to a tenth of silent neurons gives no finding, and more give a note, as long as a gradient can make them
    # fire. Without such a gradient they stay silent. Even in networks that learn, up to half of a layer may be silent
    # over the few samples of a batch. Therefore two thirds give a warning, and nine tenths an alarm.
    "dead": graded(
        _NEVER_FIRED,
        f"{_WAKE}a regulariser of firing rates (nn.SilenceRegulariser) gives silent neurons a gradient.",
        share=above(note=0.1),
        asleep="warning",
        stuck="alarm",
    ),
    "dead: out of reach": graded(
        _NEVER_FIRED,
        f"{_WAKE}a wider surrogate has a gradient for neurons further from the threshold.",
        share=above(note=0.1),
        lost=above(warning=2 / 3, alarm=0.9),
        asleep="warning",
        stuck="alarm",
    ),
    "dead: under a narrow surrogate": graded(
        _NEVER_FIRED, "Use a wider surrogate first, see the finding about it.", share=above(note=0.1)
    ),
    "dead: after a silent layer": note(_NEVER_FIRED, "Fix {cause.name} first."),
    "silent output": note(
        _SILENT_OUTPUT,
        "Lower its v_threshold, raise its weights, or use potentials instead of spikes (nn.LINode, fire=False).",
        asleep="warning",
        lost="alarm",
        stuck="alarm",
    ),
    "silent output: after a silent layer": note(
        _SILENT_OUTPUT, "Fix {cause.name} first, because it sends no spikes to the output layer."
    ),
    "silent samples": graded(
        "it gives no spike for {silent} of {it.shape[1]:sample}, first for sample {first}. Layers after it cannot "
        "distinguish these samples.",
        "Normalise the samples so that their inputs are equally strong, raise the input, or lower v_threshold.",
        # This is harmless before training, and for samples whose potentials come close to the threshold.
        share=above(note=0.1),
        asleep=above(warning=0.2),
    ),
    "equal outputs": alarm(
        "{same}.", "Look for layers that are silent or saturated, because the loss cannot distinguish the samples."
    ),
    "equal outputs: because of silence": note(
        "{same}, because {silent} gives no spikes. The loss cannot distinguish the samples.",
        "Fix {silent} first.",
        # Before training this is harmless, because training makes silent layers near their threshold fire.
        trained="warning",
    ),
    # --- too much -----------------------------------------------------------------------------------------------------
    # A neuron that fires at 95 of 100 steps carries almost no information. A few such neurons act as biases, but half
    # of a layer is a fault. At the late steps of a sample, constant firing may be the answer of the neuron, so it alone
    # gives no alarm.
    "saturated": graded(
        _FIRED_TOO_OFTEN, _LESS, share=above(note=0.1, warning=SATURATED, alarm=0.5), late=above(note=STUCK)
    ),
    "saturated: late": warning(
        _FIRED_TOO_OFTEN,
        f"{_LESS} Check whether the inputs of these samples are too large. Neurons that fire at every step need a leak "
        "or a full reset.",
    ),
    # --- the surrogate ------------------------------------------------------------------------------------------------
    # The potentials of neurons that fire cross the threshold. So a surrogate is too narrow if it has no gradient at
    # nine of ten steps (`activity.narrowness`). If the potentials spread over more than ten thresholds, they are the
    # cause, not the surrogate.
    "narrow surrogate": warning(
        _NARROW,
        f"Use a wider surrogate ({_WIDER}), or scale the weights so that potentials stay near the threshold.",
        share=above(alarm=0.99),
    ),
    "narrow surrogate: wide potentials": warning(
        _NARROW,
        "Scale the weights before the layer down, or use a reset, because potentials span many thresholds. Otherwise "
        f"use {_WIDER}.",
        share=above(alarm=0.99),
    ),
    "wide surrogate": graded(
        "the derivative of {it.slope.name} is above {near_peak} of its peak at {share:%} of the steps, so gradients do "
        "not distinguish neurons near their threshold from others.",
        "Use a narrower surrogate, about one threshold wide: a higher sharpness of {it.slope.name}.",
        share=above(warning=0.95),  # the derivative then hardly depends on the potential
    ),
    # --- potentials ---------------------------------------------------------------------------------------------------
    "large potentials": warning(
        (
            "in sample {worst.sample} the potentials of {worst.share:%} of the neurons are more than {thresholds} "
            "thresholds {side} their initial value, in the last {worst.steps} of {it.shape[0]} steps (root mean "
            "square). The largest is {largest} thresholds away.",
            " The surrogate is flat at {flat:%} of these steps.",
        ),
        "Scale the inputs or the weights before the layer down (for example, pixels of 0 to 255 by 1 / 255), normalise "
        "the current (nn.TimeDistributed(nn.BatchNorm1d(...)) before the neurons), and check the neuron's leak, reset "
        "and feedback.",
        far_too_large="alarm",
    ),
    "large potentials: without a threshold": graded(
        "potentials reach {largest}, in sample {sample} at step {step}, close to the limit of float32.",
        "Scale the input down, and check the leak and the weights before the layer.",
        largest=above(alarm=1e6),  # float32 resolves only steps of 0.06 there
    ),
    "exploding recurrence: potentials": alarm(_RUN_AWAY, "Use a neuron with a reset or a leak, or lower its input."),
    "exploding recurrence: potentials, by feedback": alarm(
        _RUN_AWAY, "Scale the feedback weights down (spectral radius about 1), or use a neuron with a reset and a leak."
    ),
    "constant out of range": warning(_CONSTANT, "Pass a value in this range to the neuron."),
    "constant out of range: learned": warning(
        _CONSTANT,
        "The constant is learned: reset it and lower its learning rate, or learn it in a form that stays in its range, "
        "as nn.ParametricLIFNode does.",
    ),
    "constant out of range: a step keeps too much": graded(
        "a step of the {it.neuron} multiplies a small change of the potential by {leak:.5g} (measured at rest). So "
        "potentials grow even without input, by a factor of {growth} in {steps:step}.",
        "Keep the factor of the potential at 1 or below. For a learned factor, use ops.sigmoid of a Parameter.",
        leak=above(warning=1.005),  # the measurement is in float32, and half a percent is more than rounding
    ),
}


MEASURES = (*training.MEASURES, *activity.MEASURES)


def diagnose(facts: Facts) -> tuple[Finding, ...]:
    """Apply all rules; the worst findings come first."""
    rules = [(RULES[m.rule], RULES[m.rule].judge(m)) for measure in MEASURES for m in measure(facts)]
    findings = [finding for _, finding in rules if finding is not None]
    blocking = _blocking(facts, findings)
    names = [layer.name for layer in facts.layers]
    explained = []
    for rule, finding in rules:
        if finding is None:
            continue
        # The cause of a finding can be that this layer or a later one stops gradients. The finding is then a note.
        place = names.index(finding.layer) if finding.layer in names else 0
        causes = [(what, name) for what, name in blocking if rule.follows and names.index(name) >= place]
        if causes:
            what, name = causes[0]
            text = f"{finding.text} The cause is the {what} of {name}."
            finding = replace(finding, severity="note", text=text, mend=f"Fix {name} first.")
        explained.append(finding)
    return by_severity(explained)


def _blocking(facts: Facts, findings: Sequence[Finding]) -> list[tuple[str, str]]:
    """Layers that stop gradients, with the reason: silence that training cannot end, or a narrow surrogate."""
    silent = {layer.name for layer in facts.layers if layer.silent}
    quiet = [each for each in findings if each.kind in ("dead", "silent output") and each.severity != "note"]
    quiet = [each for each in quiet if each.severity == "alarm" or each.layer in silent]
    narrow = [("narrow surrogate", each.layer) for each in findings if each.kind == "narrow surrogate"]
    return [("silence", each.layer) for each in quiet] + narrow
