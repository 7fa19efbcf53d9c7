"""Neurons of other frameworks: the table of presets that `like` calls, and of names that have no preset and why."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from snncell.arguments.guard import plan_of
from snncell.common.derived import Derived
from snncell.errors import ArgumentError, SnncellError
from snncell.tape.parameter import Parameter

PRESETS: dict[tuple[str, str], Callable[..., Any]] = {}  # (neuron, framework): filled by `presets`
ABSENT: dict[tuple[str, str], str] = {}  # (framework, a name of its own): why it has none, and what to use


def preset(neuron: str, framework: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Enter a function as what `neuron.like(framework, ...)` calls."""

    def enter(function: Callable[..., Any]) -> Callable[..., Any]:
        PRESETS[neuron, framework] = function
        return function

    return enter


def absent(framework: str, **reasons: str) -> None:
    """Enter parameters and classes of a framework that `like` has not, each with a sentence on what to use."""
    ABSENT.update({(framework, name): reason for name, reason in reasons.items()})


def made_like(neuron: str, framework: Any, settings: dict[str, Any]) -> Any:
    """The neuron that does what `neuron` does in a framework, by that framework's own parameters.

    Raises:
        ArgumentError: for an unknown framework, an unknown or missing parameter, or a name that has no counterpart; for
            a Parameter that cannot be learned.
    """
    who = f"{neuron}.like"
    known = {name.lower(): name for owner, name in PRESETS if owner == neuron}
    name = known.get(framework.lower()) if isinstance(framework, str) else None
    if name is None:
        _refuse_framework(who, framework, list(known.values()))
    found = PRESETS[neuron, str(name)]
    parameters = inspect.signature(found).parameters
    if unknown := [word for word in settings if word not in parameters]:
        reason = ABSENT.get((str(name).partition(".")[0], unknown[0]))
        if reason is not None:
            raise ArgumentError(f"{who}: {name} has {unknown[0]!r}, but like does not take it: {reason}")
        raise ArgumentError(f"{who}: {name} has no {unknown[0]!r} here; known are {', '.join(parameters)}.")
    required = [word for word, p in parameters.items() if p.default is p.empty]
    if missing := [word for word in required if word not in settings]:
        raise ArgumentError(f"{who}: {name} needs {missing[0]}=..., which has no default there.")
    plan, checked = plan_of(found), dict(settings)
    plan.taken(f"{who}: {name}", (), checked)
    try:
        return _learning(found, checked, f"{who}: {name}")
    except SnncellError as error:
        plan.tell(error, who, (), {"framework": name, **settings})
        raise


def _learning(found: Callable[..., Any], settings: dict[str, Any], who: str) -> Any:
    """Make a preset of its settings; Parameters among them are learned through whatever it makes of them.

    Raises:
        ArgumentError: for a Parameter that nothing is computed from, or one with a learn_... beside it that says
            otherwise.
    """
    for word, x in settings.items():
        learn = settings.get(f"learn_{word}")
        if isinstance(x, Parameter) and isinstance(learn, bool) and learn != x.requires_grad:
            raise ArgumentError(
                f"{who}: {word} is a Parameter with requires_grad={x.requires_grad}, and learn_{word}={learn} says "
                f"otherwise. A Parameter says itself whether it is learned: leave learn_{word} out, or "
                + (f"give its value, {word}.value()." if x.requires_grad else "set requires_grad=True.")
            )
    given = {word: Derived.of(x, word) if isinstance(x, Parameter) else x for word, x in settings.items()}
    made = found(**given)
    learned = {id(parameter) for parameter in made.get_parameters()}
    if lost := [word for word, x in settings.items() if isinstance(x, Parameter) and id(x) not in learned]:
        raise ArgumentError(
            f"{who} has {lost[0]!r}, but not to be learned: nothing is computed from it with a gradient. Give its "
            f"value instead of a Parameter."
        )
    return made


def _refuse_framework(who: str, framework: Any, known: list[str]) -> None:
    """Raise: there is no such preset, and maybe a reason for it."""
    family, _, kind = framework.lower().partition(".") if isinstance(framework, str) else ("", "", "")
    wanted = kind or who.removesuffix(".like").lower()
    for (owner, name), reason in ABSENT.items():
        if owner == family and name.lower() == wanted:
            raise ArgumentError(f"{who}: there is none like {family}'s {name}: {reason}")
    listed = ", ".join(map(repr, known)) or "none"
    owners = sorted({owner for owner, name in PRESETS if name.partition(".")[0] == family})
    others = f" With {family!r} there are {', '.join(f'{owner}.like' for owner in owners)}." if owners else ""
    raise ArgumentError(f"{who}: no framework {framework!r} with this neuron; known are {listed}.{others}")


def frameworks_with(neuron: str, words: Sequence[str]) -> tuple[str, list[str]]:
    """A neuron, and the frameworks that know all the words of it: the neuron itself, or else `LIFNode`."""
    for owner in (neuron, "LIFNode"):
        own = {name: inspect.signature(function).parameters for (of, name), function in PRESETS.items() if of == owner}
        if found := [name for name, parameters in own.items() if set(words) <= set(parameters)]:
            return owner, [name for name in found if "." not in name] or found
    return neuron, []
