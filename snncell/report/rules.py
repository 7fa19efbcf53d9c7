"""The table of rules: the text, the advice and the limits of everything that a report can say.

A rule is named by the kind of its findings and, after a colon, by its case; measures yield numbers under this name. How
bad it is: `note`, `warning` and `alarm` are at least that, `graded` what its limits say. `findings.Rule` has the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from snncell.report import activity, gradients, training
from snncell.report.activity import SATURATED, STUCK
from snncell.report.facts import Facts
from snncell.report.findings import Finding, Limits, Rule, Words, above, below, by_severity


def _rule(severity: str | None, words: Words, mend: Words = "", follows: bool = False, **limits: Limits | str) -> Rule:
    return Rule(words, mend, severity, limits, follows)


graded, note, warning, alarm = (partial(_rule, severity) for severity in (None, "note", "warning", "alarm"))

_CLIPPED = "gradients (train.fit(clip_norm=1.0))"
_OF_GRADIENTS = (
    "If it explodes, mend that first; else look for a reverse that divides by zero: snncell.testing.check_bprop, "
    "snncell.set_context(check_finite=True)."
)
_FOLLOWS = " Also not finite: {follows}."
_NEVER_FIRED = (
    "{share:%} of {it.rates.size:{it.unit}} never fired {where}",
    "; their potentials are {broken}",
    "; their surrogate is below {nothing} of its peak at every potential they had (it reaches {faint} of it), so no "
    "gradient can wake them",
    "; their surrogate is below {nothing} of its peak at every potential they had (it is {zero} there), so no gradient "
    "can wake them",
    "; the surrogate of {lost_of_them:%} of these is below {nothing} of its peak at every step, so no gradient can "
    "wake them",
    "; their surrogate reaches {reaches} of its peak, so a gradient can still wake them",
    ".",
    " It gets no spikes: {cause.name} before it is silent.",
    " Training has not woken them: {stuck}.",
)
_SILENT_OUTPUT = (
    "the output layer gave no spike {where}",
    "; its surrogate reaches {reaches} of its peak",
    ".",
    " Training has not woken it: {stuck}.",
)
_FIRED_TOO_OFTEN = (
    "{share:%} of {it.rates.size:{it.unit}} fired at more than {rate:%} of the steps; the layer's mean rate is {mean} "
    "spikes per step.",
    " {everywhere:%} did so in the last {worst.steps} of {it.shape[0]} steps, in all samples together, and "
    "{worst.share:%} in sample {worst.sample}.",
    " In sample {sample.sample}, {sample.share:%} did so in the last {sample.steps} of {it.shape[0]} steps",
    ", with potentials more than {far} thresholds up",
    "; more than {limit:%} did in {beyond} of {it.shape[1]:sample}.",
)
_LESS = (
    "Lower the input or the weights before it, raise v_threshold, or normalise the current (nn.BatchNorm1d before the "
    "neurons)."
)
_WAKE = "Raise the input or the weights before it, lower v_threshold, or take a longer tau; "
_WIDER = "a lower sharpness of {it.slope.name}, or a surrogate with long tails such as surrogate.ATan()"
_NARROW = (
    "the derivative of {it.slope.name} is below {nothing} of its peak at {share:%} of the steps of neurons that fire: "
    "it reaches {it.slope.width} from the threshold, their potentials spread over {spread} to either side."
)
_RUN_AWAY = (
    "in sample {sample}, mean |v| grows from {early} in the second quarter of the steps to {late} in the last one",
    ", at a threshold of {threshold}",
    "; it grows tenfold or more in {many:sample}.",
    " The spectral radius of its feedback is {radius}.",
)
_CONSTANT = (
    "{constant.name} of the {it.neuron} is {constant.furthest:.5g}",
    " ({outside} of its {several} entries are outside, and this one furthest)",
    "; {constant.name} {constant.text}.",
)
_GROWS_BACKWARDS = (
    "the gradient grows by a factor of {factor} per step backwards through time, {total} over {steps} steps."
)
_SHRINKS_BACKWARDS = (
    "the gradient shrinks to {factor} per step backwards through time: the first steps get {total} of what the last "
    "ones get."
)
_TINY_UPDATES = "one update changes weights by at most {largest} of their size: nothing will be learned soon."
_STANDS = "the training loss hardly falls: {first} in epoch 1, {last} in epoch {epochs}"
_RISES = "the {what} loss rises: {least} in epoch {best}, {last} in epoch {epochs}"
_LOST_AGAIN = _RISES + ": {lost:%} of what it had fallen by is lost again."
_ABOVE_THE_FIRST = _RISES + ", more than the {first} of the first."
_SLOWER = "Lower the learning rate, or let it decay (nn.CosineDecayLR)."
_STOP = "Stop earlier (train.fit(patience=...)), or regularise: weight_decay, nn.Dropout, more data."
_RATE_GOES = "{name} goes from {first} in epoch 1 to {last} in epoch {epochs}"

# A gradient that a sum over time accumulates grows linearly. Resets and adaptation alone come to some hundreds over a
# sequence, in nets that learn; a thousand is a fault, and after a million float32 has forgotten what late steps say.
_EXPLODING = above(warning=1e3, alarm=1e6)
# From the last to the first steps: what comes early has no say beside what comes late.
_VANISHING = 1e-4

RULES: dict[str, Rule] = {
    # --- numbers that are not finite ----------------------------------------------------------------------------------
    "not finite: in a weight": alarm(
        ("{bad} of {size} weights are {what}.", _FOLLOWS),
        "Load the last weights that were finite; lower the learning rate, or clip gradients.",
    ),
    "not finite: in an input": alarm(
        ("{bad} of {size} entries are {what}, the first at index {first}.", _FOLLOWS),
        "Clean the data: np.nan_to_num, or drop these.",
    ),
    "not finite: in a layer": alarm(
        ("{what} from step {step} on in its {quantity}, {bad} of {size} entries at that step.", _FOLLOWS),
        "snncell.set_context(check_finite=True) names the neuron and the operation; look for a division by zero, a "
        "logarithm or a root in its step, and for potentials that run away.",
    ),
    "not finite: in the loss": alarm(
        ("the loss is {loss}.", _FOLLOWS),
        "Look at the loss: a logarithm of 0, or a target out of range.",
    ),
    "not finite: in a current's gradient": alarm(
        (
            "the gradient of its current is not finite at {bad} of {size} steps, backwards from step {last}.",
            _FOLLOWS,
        ),
        _OF_GRADIENTS,
    ),
    "not finite: in a weight's gradient": alarm(
        ("{bad} of {size} entries are {what} in its gradient.", _FOLLOWS), _OF_GRADIENTS
    ),
    # --- the loss -----------------------------------------------------------------------------------------------------
    "mis-scaled loss: a sum": graded(
        "the loss is a sum over the batch: {facts.loss} of the whole batch, {facts.halves} of half of it, so that the "
        "size of a step depends on the batch size.",
        'Take the mean over samples: reduction="mean", or .mean() in place of .sum().',
        # 1 of a mean, 2 of a sum. Between lies a sum beside other terms, and what a batch's statistics do to a mean.
        ratio=above(warning=1.8),
    ),
    # Gradient over weight, of all Parameters at once: where only some are so, the net is at fault, not the loss. Beyond
    # a hundred, a rate of 0.001 changes weights by a tenth in one step; at 1e-7 entries come near the 1e-8 that Adam
    # adds to them.
    "mis-scaled loss: large gradients": graded(
        "gradients are at least {least} times as large as the weights, in {where}.",
        f"Divide the loss: by samples, steps or neurons; or clip the {_CLIPPED}.",
        least=above(warning=1e2),
    ),
    "mis-scaled loss: tiny gradients": graded(
        "gradients are at most {most} of the weights, in {where}.",
        "Multiply the loss, or look for what stops the gradient: a loss that is met already, a flat surrogate.",
        most=below(warning=1e-7),
        follows=True,
    ),
    # --- updates ------------------------------------------------------------------------------------------------------
    "learning rate: large updates": warning(
        "one update changes it by {largest} times its size (about 0.001 is usual, beyond {usual} the net is soon "
        "another one); {change} by more than {limit}.",
        "Lower the learning rate, {lower} times to begin with, or clip gradients.",
        largest=above(alarm=1.0),  # the net is another one after one step
    ),
    "learning rate: tiny updates": graded(
        _TINY_UPDATES,
        "Raise the learning rate, unless training is to end.",
        largest=below(note=1e-6),
        follows=True,
    ),
    "learning rate: tiny updates, and the loss stands": graded(
        _TINY_UPDATES,
        "Raise the learning rate.",
        largest=below(warning=1e-6),
        follows=True,
    ),
    "learning rate: loss far above chance": warning(
        (
            "the training loss is {loss} in epoch {epoch}, far above the {facts.guessing} of guessing",
            ", and {last} in epoch {epochs}",
            ": the net is sure of what is wrong, as after a learning rate that is too high.",
        ),
        "Begin again from new weights with a learning rate a hundred times lower; if the loss was as large before the "
        "first update, scale the outputs down.",
    ),
    # --- over the epochs ----------------------------------------------------------------------------------------------
    "loss curve: not finite": alarm(
        "the training loss is not finite from epoch {epoch} on.",
        f"Lower the learning rate, or clip {_CLIPPED}.",
    ),
    "loss curve: stands": note(_STANDS + ".", "If it has not learned already, see the other findings."),
    "loss curve: stands at chance": warning(
        _STANDS + "; {why}.",
        "See the other findings; where they name nothing, raise the learning rate, or train on one batch alone.",
        follows=True,
    ),
    "loss curve: training above its first": alarm(_ABOVE_THE_FIRST, _SLOWER),
    "loss curve: test above its first": warning(_ABOVE_THE_FIRST, _STOP),
    # Of what the loss had won, lost again: a little is what batches differ by.
    "loss curve: training rises": graded(_LOST_AGAIN, _SLOWER, lost=above(note=0.1, warning=0.3)),
    "loss curve: test rises": graded(_LOST_AGAIN, _STOP, lost=above(note=0.3)),
    "growth: a rate": warning(
        _RATE_GOES + ": neurons are on their way to firing all the time.",
        "Regularise the rates (nn.TargetRateRegulariser), lower the learning rate, or normalise the current.",
    ),
    "growth: a rate dies out": graded(
        _RATE_GOES + ", {left:%} of what it was: neurons fall silent.",
        "Lower the learning rate, or keep neurons awake by a regulariser (nn.SilenceRegulariser).",
        # Rates settle within a few times of what they were; one that has fallen so far is on its way to its end.
        left=below(warning=0.05),
    ),
    "growth: not finite": alarm(
        "{name} is not finite from epoch {epoch} on.",
        "See where it comes from; snncell.set_context(check_finite=True) names the first operation.",
    ),
    "growth: in every epoch": graded(
        "|{name}| grows in every epoch, from {first} to {last} in {epochs} epochs.",
        f"Lower the learning rate, clip {_CLIPPED}, or add weight_decay.",
        # Norms and potentials may change by orders of magnitude once, but not in every epoch.
        growth=above(warning=100.0),
    ),
    "accuracy": note(
        (
            "{right:%} of {samples:sample} {are} read right; by chance, with {classes} classes, {chance:%}.",
            " Every sample is taken for class {only}.",
            " Most often, {often:time}, class {label} is taken for class {guess}.",
        ),
    ),
    # --- what was asked of the training -------------------------------------------------------------------------------
    "labels: of no class": alarm(
        "{wrong:label} of {count} are no class of the {classes} outputs, 0 to {last}: labels go from {least} to "
        "{most}.",
        "Count classes from 0 on, or give the net an output for each.",
    ),
    "labels: of one class": graded(
        "all {count} labels are class {label}, and the net has {classes} outputs.",
        "Shuffle the data before they are cut into batches; give a report a batch as in training.",
        count=above(warning=7),  # so few may be of one class by chance
    ),
    "silent output: label": warning(
        "the neuron of the label is silent (its spike time is inf) in {count} of {samples:sample}; these have no "
        "gradient, and teach nothing.",
        "Mask these samples out of the loss and its regulariser, as the docstring of nn.EventPropLIF shows, and raise "
        "the weights of neurons that are silent in a whole batch.",
    ),
    "not recorded": note(
        "the {cell} runs its time steps itself, so none of them can be recorded.",
        "Look at what it returns: a spike time of inf, or an output of zeros, is a silent neuron.",
    ),
    "not trained: nothing there": warning(
        "the net has no Parameter that could be trained.",
        "Set requires_grad=True for those that are to learn: net.set_grad().",
    ),
    "not trained: left out": warning(
        "the optimiser does not have {left:Parameter} of {count} that could be trained: {names}.",
        "Make it from net.trainable_params(); freeze what is not to learn (requires_grad=False).",
    ),
    # --- gradients ----------------------------------------------------------------------------------------------------
    "no gradient: no input": note(
        ("{its} is exactly zero, as all its inputs are 0", ": no spike comes from {silent}", "."),
        "It comes with the first spikes, see there.",
    ),
    "no gradient: behind a flat surrogate": note(
        "{its} is exactly zero; the surrogate's derivative is 0 at every potential of {flat}.",
        "Mend {flat} first.",
    ),
    "no gradient: anywhere": alarm(
        "no Parameter gets a gradient: all {count} are exactly zero.",
        "Look at the last layer first: a loss that does not depend on the net, or ops.stop_gradient, argmax or a "
        "comparison on the way to it.",
    ),
    "no gradient": alarm(
        "{its} is exactly zero.",
        "Look for a comparison (v > 1) where a spike function belongs, ops.stop_gradient, a Cell that is never called, "
        "a bprop that returns zeros or forgets the Parameter (internal_params), or silent layers on its way to the "
        "loss; freeze what is not to learn (requires_grad=False).",
    ),
    "exploding recurrence: a gradient": graded(
        (
            _GROWS_BACKWARDS,
            " The spectral radius of its feedback is {radius}; times the surrogate's derivative (root mean square), "
            "a step multiplies by about {feedback}.",
        ),
        "Scale the feedback weights down (spectral radius times mean derivative below 1), take a lower or wider "
        f"surrogate, or clip the {_CLIPPED}.",
        total=_EXPLODING,
    ),
    "exploding gradient: through time": graded(
        (
            _GROWS_BACKWARDS,
            " Its feedback does not amplify: it multiplies by about {feedback} per step.",
            " Its reset multiplies the gradient of a neuron at the threshold by {reset}.",
        ),
        "Take a lower or wider surrogate, by which reset and adaptation multiply, detach the reset "
        f"(detach_reset=True), cut the sequence (nn.Truncated), or clip the {_CLIPPED}.",
        total=_EXPLODING,
    ),
    "vanishing gradient: through time": graded(
        _SHRINKS_BACKWARDS,
        "Take a wider surrogate or detach the reset (detach_reset=True), which stands in the way at every step; a "
        "readout that looks at every step (its mean) brings gradients to early ones.",
        total=below(warning=_VANISHING),
        follows=True,
    ),
    "vanishing gradient: by the leak": graded(
        _SHRINKS_BACKWARDS + " A step keeps {it.leak} of the potential, which explains it: the neuron forgets.",
        "If early steps matter, take a longer tau, or a readout that looks at every step (its mean).",
        total=below(note=_VANISHING),
        follows=True,
    ),
    # Between neighbouring layers. Surrogates pass a few hundredths of a gradient in working nets, products of default
    # weights about one: a thousand either way is out of proportion.
    "exploding gradient: through depth": graded(
        "the gradient at {it.name} is {ratio} times as large as at {after.name}, the layer after it.",
        "Lower the weights between {it.name} and {after.name}, or normalise the current between them.",
        ratio=above(warning=1e2, alarm=1e4),
    ),
    "vanishing gradient: through depth": graded(
        "the gradient at {it.name} is {ratio} of that at {after.name}, the layer after it.",
        "Bring the potentials of {it.name} nearer to its threshold or take a wider surrogate there, raise the weights "
        "between the two, or add a shortcut (nn.SEWBlock).",
        ratio=below(warning=1e-3),
        follows=True,
    ),
    "detached reset": note(
        "the reset of {names} counts as a constant in the reverse (detach_reset=True), {share:%} of the layers: "
        "gradients are not those of the whole dynamics.",
        "Nothing, if it is meant so, as in many papers; else detach_reset=False.",
    ),
    # --- silence ------------------------------------------------------------------------------------------------------
    # Some neurons are silent over a batch in every net that computes with few spikes, and at initialisation whole
    # layers are: below a tenth nothing is said, beyond it is a note, as long as the gradient can wake them. Neurons
    # that none can wake stay as they are. In nets that learn, half of a layer may be so, over the few samples of a
    # batch, and the rest does its work: two thirds are a loss, nine tenths a fault.
    "dead": graded(
        _NEVER_FIRED,
        f"{_WAKE}a regulariser of rates (nn.SilenceRegulariser) has the gradient wake them.",
        share=above(note=0.1),
        asleep="warning",
        stuck="alarm",
    ),
    "dead: out of reach": graded(
        _NEVER_FIRED,
        f"{_WAKE}a wider surrogate reaches neurons further from the threshold.",
        share=above(note=0.1),
        lost=above(warning=2 / 3, alarm=0.9),
        asleep="warning",
        stuck="alarm",
    ),
    "dead: under a narrow surrogate": graded(
        _NEVER_FIRED, "Take a wider surrogate first, see there.", share=above(note=0.1)
    ),
    "dead: behind a silent layer": note(_NEVER_FIRED, "Mend {cause.name} first."),
    "silent output": note(
        _SILENT_OUTPUT,
        "Lower its v_threshold, raise its weights, or read potentials instead of spikes: nn.LINode, fire=False.",
        asleep="warning",
        lost="alarm",
        stuck="alarm",
    ),
    "silent output: behind a silent layer": note(_SILENT_OUTPUT, "Mend {cause.name} first, which sends it no spikes."),
    "silent samples": graded(
        "it gives no spike for {silent} of {it.shape[1]:sample}, sample {first} the first of them; what comes after it "
        "cannot tell these apart.",
        "Bring samples to one scale (inputs of equal strength), raise the input, or lower v_threshold.",
        # A net is none the worse for it while it is not trained, or where samples are near their first spike.
        share=above(note=0.1),
        asleep=above(warning=0.2),
    ),
    "equal outputs": alarm(
        "{same}.",
        "Look at the layers for a part that is silent or saturated; the loss cannot tell the samples apart.",
    ),
    "equal outputs: of silence": note(
        "{same}: no spike comes from {silent}, and the loss cannot tell the samples apart.",
        "Mend {silent} first.",
        # Before training, layers that are silent yet near their thresholds wake by themselves.
        trained="warning",
    ),
    # --- too much -----------------------------------------------------------------------------------------------------
    # A neuron that fires at 95 of 100 steps says next to nothing; a few such are biases, half of a layer is a fault. In
    # the late steps of a sample, staying on may be an answer, and is no alarm by itself.
    "saturated": graded(
        _FIRED_TOO_OFTEN,
        _LESS,
        share=above(note=0.1, warning=SATURATED, alarm=0.5),
        late=above(note=STUCK),
    ),
    "saturated: late": warning(
        _FIRED_TOO_OFTEN,
        f"{_LESS} Look at these samples for inputs out of scale; neurons that stay on need a leak or a full reset.",
    ),
    # --- the surrogate ------------------------------------------------------------------------------------------------
    # Of neurons that fire, potentials cross the threshold, so a surrogate that nine in ten steps do not see is narrow
    # (`activity.narrowness`). Beyond ten thresholds it is the potentials that are too wide.
    "narrow surrogate": warning(
        _NARROW,
        f"Take a wider surrogate: {_WIDER}; or scale the weights so that potentials stay near the threshold.",
        share=above(alarm=0.99),
    ),
    "narrow surrogate: beside wide potentials": warning(
        _NARROW,
        f"Scale the weights before it down, or give it a reset: potentials span many thresholds. Else {_WIDER}.",
        share=above(alarm=0.99),
    ),
    "wide surrogate": graded(
        "the derivative of {it.slope.name} is above {near_peak} of its peak at {share:%} of the steps: gradients do "
        "not tell neurons near their threshold from others.",
        "Take a narrower surrogate (about one threshold wide): a higher sharpness of {it.slope.name}.",
        share=above(warning=0.95),  # it tells nearly no potential from another
    ),
    # --- potentials ---------------------------------------------------------------------------------------------------
    "large potentials": warning(
        (
            "in sample {worst.sample} the potentials of {worst.share:%} of the neurons are more than {thresholds} "
            "thresholds {side} where they began, in the last {worst.steps} of {it.shape[0]} steps (root mean square); "
            "the largest there is {largest} thresholds away.",
            " The surrogate is flat at {flat:%} of these steps.",
        ),
        "Scale the inputs or the weights before it down (inputs of 0 to 255 by 1 / 255), normalise the current "
        "(nn.BatchNorm1d before the neurons), and look at the neuron's leak, reset and feedback.",
        far_too_large="alarm",
    ),
    "large potentials: without a threshold": graded(
        "potentials reach {largest}, in sample {sample} at step {step}, and are finite by luck.",
        "Scale its input down, and look at its leak and at the weights before it.",
        largest=above(alarm=1e6),  # float32 then resolves no input of the size of one
    ),
    "exploding recurrence: potentials": alarm(_RUN_AWAY, "Give the neuron a reset or a leak, or lower its input."),
    "exploding recurrence: potentials, by feedback": alarm(
        _RUN_AWAY,
        "Scale the feedback weights down (spectral radius about 1), or give the neuron a reset and a leak.",
    ),
    "constant out of range": warning(_CONSTANT, "Give a value of that range when the neuron is made."),
    "constant out of range: learned": warning(
        _CONSTANT,
        "It is learned: put it back, and lower its learning rate, or learn it in a form that stays in its range, as "
        "nn.ParametricLIFNode does.",
    ),
    "constant out of range: a step keeps too much": graded(
        "a step of the {it.neuron} multiplies a small change of the potential by {leak:.5g}, measured at rest without "
        "input: potentials grow by themselves, {growth} times in {steps:step}.",
        "Keep the factor of the potential at 1 or below, of learned ones too: ops.sigmoid of a Parameter.",
        leak=above(warning=1.005),  # measured in float32: one part in two hundred is no rounding
    ),
}


MEASURES = (*training.MEASURES, *gradients.MEASURES, *activity.MEASURES)


def diagnose(facts: Facts) -> tuple[Finding, ...]:
    """The findings of all rules, the worst first."""
    rules = [(RULES[m.rule], RULES[m.rule].judge(m)) for measure in MEASURES for m in measure(facts)]
    findings = [finding for _, finding in rules if finding is not None]
    blocking = _blocking(facts, findings)
    names = [layer.name for layer in facts.layers]
    explained = []
    for rule, finding in rules:
        if finding is None:
            continue
        # What follows from a layer at its place or after it, which no gradient passes, is a note.
        place = names.index(finding.layer) if finding.layer in names else 0
        causes = [(what, name) for what, name in blocking if rule.follows and names.index(name) >= place]
        if causes:
            what, name = causes[0]
            text = f"{finding.text} It follows from the {what} of {name}."
            finding = replace(finding, severity="note", text=text, mend=f"Mend {name} first.")
        explained.append(finding)
    return by_severity(explained)


def _blocking(facts: Facts, findings: Sequence[Finding]) -> list[tuple[str, str]]:
    """The layers in the way of gradients: those that none can wake, slept through a training, or see too little."""
    silent = {layer.name for layer in facts.layers if layer.silent}
    quiet = [
        ("silence", finding.layer)
        for finding in findings
        if finding.kind in ("dead", "silent output")
        and (finding.severity == "alarm" or (finding.severity == "warning" and finding.layer in silent))
    ]
    return quiet + [("narrow surrogate", finding.layer) for finding in findings if finding.kind == "narrow surrogate"]
