"""Conversions from other frameworks: time constants and decay factors, and the presets behind `LIFNode.like`.

snncell's neurons take a time constant tau in steps (Euler), or a decay factor, the share of the potential that a step
keeps. Each conversion takes a number, a NumPy array or a Tensor. A Parameter that you pass to `like` arrives as a
`Derived`, and the result is a `Derived` too, so that training can learn it. See docs/coming-from/index.md.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from snncell import ops
from snncell.base.arguments.guard import plan_of
from snncell.base.arguments.kinds import Constant, Positive
from snncell.cell.ranges import POSITIVE, Derived, Range, is_traced, numbers_of, quote_value
from snncell.errors import ArgumentError, SnncellError
from snncell.tape.parameter import Parameter
from snncell.tape.tensor import Tensor

__all__ = [
    "decay_from_euler", "decay_from_lava", "decay_from_rate", "decay_from_tau", "euler_from_decay",
    "steps_from_seconds", "tau_from_decay",
]  # fmt: skip

# --- constants --------------------------------------------------------------------------------------------------------


def positive(value: Any, who: str, name: str) -> Any:
    """Return a number or Derived after checking that it is positive."""
    return _checked(who, name, value, POSITIVE)


def _checked(who: str, name: str, value: Any, domain: Range, hint: str = "", by: Any = 1.0) -> Any:
    """Return `value` after checking that `value * by` is in the domain; a Parameter is limited to that domain."""
    now = value.value() if isinstance(value, Derived) else value
    if not is_traced(now) and not domain.holds(numbers_of(now) * by):
        raise ArgumentError(f"{who}: {name} {domain.text}, not {quote_value(now if by == 1.0 else now * by)}{hint}.")
    if isinstance(value, Derived):
        return value.restrict(Range(domain.low / by, domain.high / by, domain.closed))
    return value


def _exp(x: Any) -> Any:
    if isinstance(x, Derived):
        return x.apply(_exp)
    return ops.exp(x) if isinstance(x, Tensor) else np.exp(x) if isinstance(x, np.ndarray) else math.exp(x)


def _log(x: Any) -> Any:
    if isinstance(x, Derived):
        return x.apply(_log)
    return ops.log(x) if isinstance(x, Tensor) else np.log(x) if isinstance(x, np.ndarray) else math.log(x)


_BETWEEN = Range(0.0, 1.0, text="is a number between 0 and 1")


def steps_from_seconds(tau: Constant, dt: Positive) -> Any:
    """Convert a time constant from seconds to steps: tau / dt.

    Args:
        tau: the time constant in seconds, above dt; a number, an array or a Tensor.
        dt: the length of a step in seconds.
    Example:
        >>> nn.steps_from_seconds(0.02, dt=0.001)
        20.0
    """
    who, hint = "steps_from_seconds", "; use a shorter dt and more steps"
    if not dt > 0:
        raise ArgumentError(f"{who}: dt must be a positive number of seconds, not {quote_value(dt)}.")
    return _checked(who, "tau", tau, Range(dt, text=f"is above dt, which is {dt!r} s"), hint) / dt


def decay_from_tau(tau: Constant, dt: Positive = 1.0) -> Any:
    """The decay factor of a time constant by the exact solution: exp(-dt / tau).

    Args:
        tau: the time constant, positive, in the unit of dt; a number, an array or a Tensor.
        dt: the length of a step. With the default 1, tau is in steps.
    Example:
        >>> round(nn.decay_from_tau(10.0), 4)
        0.9048
    """
    step = positive(dt, "decay_from_tau", "dt")
    domain = Range(0.0, closed="high", text="is positive")  # an infinite tau gives 1
    return _exp(-step / _checked("decay_from_tau", "tau", tau, domain))


def tau_from_decay(decay: Constant, dt: Positive = 1.0) -> Any:
    """The time constant of a decay factor by the exact solution: -dt / ln(decay), in the unit of dt.

    Raises: ArgumentError unless the decay factor is between 0 and 1.
    Example:
        >>> round(nn.tau_from_decay(nn.decay_from_tau(10.0)), 4)
        10.0
    """
    return -dt / _log(_checked("tau_from_decay", "decay", decay, _BETWEEN))


def euler_from_decay(decay: Constant) -> Any:
    """The tau of `LIFNode` that has this decay factor: 1 / (1 - decay) steps.

    Raises: ArgumentError unless the decay factor is between 0 and 1.
    Example:
        >>> nn.euler_from_decay(0.5)
        2.0
    """
    return 1.0 / (1.0 - _checked("euler_from_decay", "decay", decay, _BETWEEN))


def decay_from_euler(tau: Constant) -> Any:
    """The decay factor of an Euler step with a time constant of tau steps: 1 - 1 / tau.

    Raises: ArgumentError unless tau is above 1.
    Example:
        >>> nn.decay_from_euler(4.0)
        0.75
    """
    domain = Range(1.0, closed="high", text="is a number of steps above 1")
    return 1.0 - 1.0 / _checked("decay_from_euler", "tau", tau, domain)


def decay_from_rate(tau_inv: Constant, dt: Positive) -> Any:
    """The decay factor of Norse's neurons: 1 - dt tau_inv.

    Args:
        tau_inv: the inverse time constant in 1 / s; a number, an array or a Tensor.
        dt: the length of a step in seconds.
    Raises: ArgumentError unless dt tau_inv lies in (0, 1], because the time constant must be at least dt.
    Example:
        >>> nn.decay_from_rate(500.0, dt=0.001)
        0.5
    """
    domain = Range(0.0, 1.0, "high", "is above 0 and at most 1")
    hint = f": the time constant 1 / tau_inv must be at least dt={dt!r} s. Use a shorter dt"
    return 1.0 - dt * _checked("decay_from_rate", "dt tau_inv", tau_inv, domain, hint, dt)


def decay_from_lava(decay: Constant) -> Any:
    """The decay factor of lava's neurons from an integer decay of 12 bits: 1 - decay / 4096.

    Raises: ArgumentError for a number outside 0 to 4096.
    Example:
        >>> nn.decay_from_lava(1024)
        0.75
    """
    domain = Range(0.0, 4096.0, "both", "is an integer from 0 to 4096")
    return 1.0 - _checked("decay_from_lava", "decay", decay, domain) / 4096


# --- presets of neurons, by `like` ------------------------------------------------------------------------------------

PRESETS: dict[tuple[str, str], Callable[..., Any]] = {}  # (neuron, framework) -> function; `presets` fills it
ABSENT: dict[tuple[str, str], str] = {}  # (framework, its class or parameter) -> reason and alternative


class FrameworkSettings:
    """Base class of a framework's settings: a subclass annotates each setting, with its usual default."""

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
    """Create the neuron of a preset; training learns Parameters among the settings, through the conversions."""
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
            f"{who}: {lost[0]!r} cannot be learned, because no gradient reaches it. Pass a number, not a Parameter."
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
    """The neuron and its frameworks that have all these settings; for another neuron, those of `LIFNode`."""
    for owner in (neuron, "LIFNode"):
        own = {name: inspect.signature(function).parameters for (of, name), function in PRESETS.items() if of == owner}
        if found := [name for name, parameters in own.items() if set(words) <= set(parameters)]:
            return owner, [name for name in found if "." not in name] or found
    return neuron, []
