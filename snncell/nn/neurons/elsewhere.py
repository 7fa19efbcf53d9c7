"""Neurons of other frameworks: the table of presets that `like` calls, and of names that have no preset and why."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

from snncell.base.arguments.guard import plan_of
from snncell.cell.ranges import Derived
from snncell.errors import ArgumentError, SnncellError
from snncell.tape.parameter import Parameter

PRESETS: dict[tuple[str, str], Callable[..., Any]] = {}  # (neuron, framework): filled by `presets`
ABSENT: dict[tuple[str, str], str] = {}  # (framework, a name of its own): why it has none, and what to use


class FrameworkSettings:
    """The settings of a framework's neurons: a subclass annotates each, with the default that most of them have there.

    An object of it is what a preset is made of: `p.tau` is what was given as tau, or the default.
    """

    def __init__(self, values: dict[str, Any]) -> None:
        vars(self).update(values)

    @classmethod
    def preset(cls, neurons: dict[str, str], words: str, make: Callable[[Any], Any], **defaults: Any) -> None:
        """Enter a function of settings as what `neuron.like(framework, ...)` calls.

        Args:
            neurons: by name, each with the framework, or "framework.Class" where that has several that fit it.
            words: which settings the framework's class has, in its order.
            make: the neuron of its settings.
            defaults: those that the class does not have from `cls`.
        """
        hints = {word: hint for kind in reversed(cls.__mro__) for word, hint in inspect.get_annotations(kind).items()}
        parameters = [
            inspect.Parameter(
                word,
                inspect.Parameter.POSITIONAL_OR_KEYWORD,
                default=defaults.get(word, getattr(cls, word, inspect.Parameter.empty)),
                annotation=hints[word],
            )
            for word in words.split()
        ]

        @functools.wraps(make)
        def like(**values: Any) -> Any:
            return make(cls(defaults | values))

        # For the check of arguments: the framework's words, and not the one argument of the function.
        like.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        like.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        PRESETS.update(dict.fromkeys(neurons.items(), like))


def absent(framework: str, **reasons: str) -> None:
    """Enter parameters and classes of a framework that `like` has not, each with a sentence on what to use."""
    ABSENT.update({(framework, name): reason for name, reason in reasons.items()})


def make_like(neuron: str, framework: Any, settings: dict[str, Any]) -> Any:
    """The neuron that does what `neuron` does in a framework, by that framework's own parameters."""
    who = f"{neuron}.like"
    known = {name.lower(): name for owner, name in PRESETS if owner == neuron}
    name = known.get(framework.lower()) if isinstance(framework, str) else None
    if name is None:
        _refuse_framework(who, framework, list(known.values()))
    preset = PRESETS[neuron, str(name)]
    parameters = inspect.signature(preset).parameters
    if unknown := [word for word in settings if word not in parameters]:
        reason = ABSENT.get((str(name).partition(".")[0], unknown[0]))
        if reason is not None:
            raise ArgumentError(f"{who}: {name} has {unknown[0]!r}, but like does not take it: {reason}")
        raise ArgumentError(f"{who}: {name} has no {unknown[0]!r} here; known are {', '.join(parameters)}.")
    required = [word for word, p in parameters.items() if p.default is p.empty]
    if missing := [word for word in required if word not in settings]:
        raise ArgumentError(f"{who}: {name} needs {missing[0]}=..., which has no default there.")
    plan, checked = plan_of(preset), dict(settings)
    plan.taken(f"{who}: {name}", (), checked)
    try:
        return _learning(preset, checked, f"{who}: {name}")
    except SnncellError as error:
        plan.tell(error, who, (), {"framework": name, **settings})
        raise


def _learning(preset: Callable[..., Any], settings: dict[str, Any], who: str) -> Any:
    """Make a preset of its settings; Parameters among them are learned through whatever it makes of them."""
    for word, x in settings.items():
        learn = settings.get(f"learn_{word}")
        if isinstance(x, Parameter) and isinstance(learn, bool) and learn != x.requires_grad:
            raise ArgumentError(
                f"{who}: {word} is a Parameter with requires_grad={x.requires_grad}, and learn_{word}={learn} says "
                f"otherwise. A Parameter says itself whether it is learned: leave learn_{word} out, or "
                + (f"give its value, {word}.value()." if x.requires_grad else "set requires_grad=True.")
            )
    node = preset(**{word: Derived.of(x, word) if isinstance(x, Parameter) else x for word, x in settings.items()})
    learned = {id(parameter) for parameter in node.get_parameters()}
    if lost := [word for word, x in settings.items() if isinstance(x, Parameter) and id(x) not in learned]:
        raise ArgumentError(
            f"{who} has {lost[0]!r}, but not to be learned: nothing is computed from it with a gradient. Give its "
            f"value instead of a Parameter."
        )
    return node


def _refuse_framework(who: str, framework: Any, known: list[str]) -> None:
    """Raise: there is no such preset, and maybe a reason for it."""
    family, _, kind = framework.lower().partition(".") if isinstance(framework, str) else ("", "", "")
    sought = kind or who.removesuffix(".like").lower()
    for (owner, name), reason in ABSENT.items():
        if owner == family and name.lower() == sought:
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
