"""Presets of other frameworks' neurons: the table that `like` calls, and names without a preset."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from snncell.base.arguments.guard import plan_of
from snncell.cell.ranges import Derived
from snncell.errors import ArgumentError, SnncellError
from snncell.tape.parameter import Parameter

PRESETS: dict[tuple[str, str], Callable[..., Any]] = {}  # (neuron, framework) -> function; `presets` fills it
ABSENT: dict[tuple[str, str], str] = {}  # (framework, its class or parameter) -> reason and alternative


class FrameworkSettings:
    """Settings of a framework's neurons, for presets; a subclass annotates them with their usual defaults."""

    framework: ClassVar[str]

    def __init__(self, values: dict[str, Any]) -> None:
        vars(self).update(values)

    @classmethod
    def preset(cls, neurons: str, words: str, make: Callable[[Any], Any], **defaults: Any) -> None:
        """Register `make(settings)` as the function that `neuron.like(framework, ...)` calls.

        `neurons` are names such as "LIFNode", or "LIFNode.Alpha" if several classes of the framework are LIF neurons.
        `words` are the settings of the framework's class, as in its signature; `defaults` replace those of `cls`.
        """
        hints = {word: hint for kind in reversed(cls.__mro__) for word, hint in inspect.get_annotations(kind).items()}
        usual = {word: defaults.get(word, getattr(cls, word, inspect.Parameter.empty)) for word in words.split()}
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        parameters = [inspect.Parameter(n, kind, default=x, annotation=hints[n]) for n, x in usual.items()]

        @functools.wraps(make)
        def like(**values: Any) -> Any:
            return make(cls(defaults | values))

        # The check of arguments needs the framework's parameters, not the single argument of `make`.
        like.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        like.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        for neuron, _, variant in (name.partition(".") for name in neurons.split()):
            PRESETS[neuron, f"{cls.framework}.{variant}" if variant else cls.framework] = like


def absent(framework: str, **reasons: str) -> None:
    """Register parameters and classes that `like` does not support, each with a sentence on the alternative."""
    ABSENT.update({(framework, name): reason for name, reason in reasons.items()})


def make_like(neuron: str, framework: Any, settings: dict[str, Any]) -> Any:
    """Create the neuron that reproduces a framework's neuron, from that framework's settings."""
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
            raise ArgumentError(f"{who}: {name} has {unknown[0]!r}, but `like` does not take it: {reason}")
        raise ArgumentError(f"{who}: unknown setting {unknown[0]!r} of {name}. It takes {', '.join(parameters)}.")
    required = [word for word, p in parameters.items() if p.default is p.empty]
    if missing := [word for word in required if word not in settings]:
        raise ArgumentError(f"{who}: {name} needs {missing[0]}=..., because it has no default in that framework.")
    plan, checked = plan_of(preset), dict(settings)
    plan.check_call(f"{who}: {name}", (), checked)
    try:
        return _make_learnable(preset, checked, f"{who}: {name}")
    except SnncellError as error:
        plan.raise_with_call(error, who, (), {"framework": name, **settings})
        raise


def _make_learnable(preset: Callable[..., Any], settings: dict[str, Any], who: str) -> Any:
    """Create a preset; Parameters among its settings are learned through the conversions."""
    for word, x in settings.items():
        learn = settings.get(f"learn_{word}")
        if isinstance(x, Parameter) and isinstance(learn, bool) and learn != x.requires_grad:
            raise ArgumentError(
                f"{who}: {word} is a Parameter with requires_grad={x.requires_grad}, which contradicts "
                f"learn_{word}={learn}. The Parameter decides whether it is learned: leave learn_{word} out, or "
                + (f"pass its value, {word}.value()." if x.requires_grad else "set requires_grad=True.")
            )
    node = preset(**{word: Derived.of(x, word) if isinstance(x, Parameter) else x for word, x in settings.items()})
    learned = {id(parameter) for parameter in node.get_parameters()}
    if lost := [word for word, x in settings.items() if isinstance(x, Parameter) and id(x) not in learned]:
        raise ArgumentError(
            f"{who}: {lost[0]!r} cannot be learned, because no gradient reaches it. Pass its value instead of a "
            f"Parameter."
        )
    return node


def _refuse_framework(who: str, framework: Any, known: list[str]) -> None:
    """Raise an ArgumentError for an unknown preset, with the reason if one is registered."""
    family, _, kind = framework.lower().partition(".") if isinstance(framework, str) else ("", "", "")
    sought = kind or who.removesuffix(".like").lower()
    for (owner, name), reason in ABSENT.items():
        if owner == family and name.lower() == sought:
            raise ArgumentError(f"{who}: there is no preset for {family}'s {name}: {reason}")
    listed = ", ".join(map(repr, known)) or "none"
    owners = sorted({owner for owner, name in PRESETS if name.partition(".")[0] == family})
    others = f" {family!r} has {', '.join(f'{owner}.like' for owner in owners)}." if owners else ""
    raise ArgumentError(f"{who}: no preset {framework!r} for this neuron. Its presets are {listed}.{others}")


def frameworks_with(neuron: str, words: Sequence[str]) -> tuple[str, list[str]]:
    """The frameworks that know all these settings, for the given neuron, or else for `LIFNode`."""
    for owner in (neuron, "LIFNode"):
        own = {name: inspect.signature(function).parameters for (of, name), function in PRESETS.items() if of == owner}
        if found := [name for name, parameters in own.items() if set(words) <= set(parameters)]:
            return owner, [name for name in found if "." not in name] or found
    return neuron, []
