"""The base of spiking neurons: their options, and a step, in which they charge, fire and are reset."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Never, TypedDict

from snncell.arguments.kinds import Own
from snncell.common.ranges import one_of
from snncell.errors import CallError, SnncellError
from snncell.nn.neurons.elsewhere import frameworks_with
from snncell.nn.neurons.firing import DEFAULT, SPIKE_FUNCTION, Thresholded, spike_function
from snncell.tape.tensor import Tensor


class Options(TypedDict, total=False):
    """The keywords of every spiking neuron; `Neuron` says what each means."""

    compare: str
    delay: str | None
    input_gain: Any
    max_spikes: Annotated[int | None, Own()]
    learnable: str | Sequence[str]


class Firing(Options, total=False):
    """Options, and what is said of threshold, reset and spike function; `Neuron` says what each means."""

    v_threshold: Any
    v_reset: Any
    reset: str | None
    detach_reset: bool
    surrogate_function: Any


def to_value(options: Firing, v_reset: float = 0.0) -> Firing:
    """Options whose reset is to a value unless they say otherwise: a runaway potential is no place to go on from."""
    return {"reset": "value", "v_reset": v_reset, **options}


class Neuron(Thresholded):
    """A spiking neuron: what happens to the charged potential h at the threshold.

    s = surrogate(h - v_threshold)
    v = h - s v_threshold                    reset="subtract"
    v = (1 - s) h + s v_reset                reset="value" (v_reset), or "zero" (0)
    v = h                                    reset=None

    Args:
        constants: the neuron's own, by name.
        v_threshold: above v_reset; without reset="value" positive.
        v_reset: where reset="value" puts the potential.
        reset: "subtract", "zero", "value" or None.
        detach_reset: whether the reset counts as a constant in the reverse.
        surrogate_function: the spike function, a Cell.
        compare: ">" fires above the threshold; ">=" at it too.
        delay: None; "reset": the reset comes at the beginning of the next step, but what it subtracts at its end,
            and so has not decayed; "reset+input": every reset comes at the end of the next step, with its input;
            "spike": as "reset", and the spike itself comes in the next step. The state is the potential before the
            reset.
        input_gain: what the input is multiplied by.
        max_spikes: 1; more, or None for any number, lets a step give floor(h / v_threshold) spikes. The spike function
            then sees h / v_threshold - 1, so that its width is in thresholds, and v_threshold is positive.
        learnable: the names of the constants to be learned, v_threshold, v_reset and input_gain among them.
        unknown: there are no other options; what is left over is an error that lists those of the neuron.

    A neuron of one's own is a subclass with `charge(x, v)`, the equation of h. One with more states, or another output,
    has a `construct` in its place, which begins with `recall` and ends with `fired`.

    Raises:
        ArgumentError: for values that make no sense.
        CallError: for an option that the neuron does not take.

    Example:
        >>> class Cubic(nn.Neuron):
        ...     def charge(self, x, v):
        ...         return v - self.steepness * v * v * v + x
        >>> node = Cubic({"steepness": 0.5}, reset="zero", learnable="steepness")
        >>> print(nn.MultiStep(node)(ops.ones((4, 1)) * 0.6)[:, 0])
        [0. 1. 0. 1.]
    """

    input_gain: Any
    starts: str = "v_reset"
    charge: Callable[..., Any]  # a neuron's own, so that another one may have a constant of that name

    def __init__(
        self,
        constants: dict[str, Any],
        *,
        v_threshold: Any = 1.0,
        v_reset: Any = 0.0,
        reset: str | None = "subtract",
        detach_reset: bool = False,
        surrogate_function: Any = DEFAULT,
        compare: str = ">",
        delay: str | None = None,
        input_gain: Any = 1.0,
        max_spikes: Annotated[int | None, Own()] = 1,
        learnable: str | Sequence[str] = (),
        **unknown: Never,
    ) -> None:
        if unknown:
            _refuse_options(type(self), list(unknown))
        shared = {"v_threshold": v_threshold, "v_reset": v_reset, "input_gain": input_gain}
        super().__init__(constants | shared, learnable)
        who = type(self).__name__
        self.reset = reset
        self.delay = delay
        self.detach_reset = detach_reset
        self.compare = one_of(compare, (">", ">="), who, "compare")
        self.fire_by(spike_function(surrogate_function, compare, max_spikes, who), max_spikes)

    def gained(self, x: Any) -> Any:
        """The input times its gain."""
        if not isinstance(self.input_gain, Tensor) and self.input_gain == 1.0:
            return x
        return x * self.input_gain

    def _charge_and_fire(self, x: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        if getattr(self, "charge", None) is None:
            raise SnncellError(
                f"{type(self).__name__} has neither charge(self, x, v), the equation of h, nor a construct of its own."
            )
        v, late = self.recall(v)
        return self.fired(self.charge(x, v), late)

    # For mypy no method, which a neuron of more states could not override.
    construct: Callable[..., Any] = _charge_and_fire

    def init_state(self, x: Tensor) -> Any:
        """The state before the first step: v_reset everywhere."""
        return self.filled(x, getattr(self, self.starts))

    def starting_at(self, name: str) -> Neuron:
        """The neuron itself, whose first potential is now that constant: frameworks differ in it."""
        self.starts = name
        return self

    def extend_repr(self) -> str:
        options = f"{super().extend_repr()}, reset={self.reset!r}, detach_reset={self.detach_reset}"
        options += "" if self.compare == ">" else f", compare={self.compare!r}"
        options += "" if self.delay is None else f", delay={self.delay!r}"
        return options + ("" if self.max_spikes == 1 else f", max_spikes={self.max_spikes}")


def _refuse_options(neuron: type[Neuron], unknown: list[str]) -> None:
    """Raise a CallError that lists the options of a neuron, and names the frameworks whose words were given."""
    who = neuron.__name__
    text = f"{who}: there is no option {unknown[0]!r}; it takes {', '.join(_options_of(neuron))}."
    owner, frameworks = frameworks_with(who, unknown)
    if frameworks:
        settings = ", ".join(f"{name}=..." for name in unknown)
        text += f' In the words of {" or ".join(frameworks)}: nn.{owner}.like("{frameworks[0]}", {settings}).'
    raise CallError(text)


def _options_of(neuron: type[Neuron]) -> list[str]:
    """The names that `__init__` of a neuron takes: its own arguments, and those that it hands to the classes above."""
    names: dict[str, None] = {}
    for kind in neuron.__mro__[: neuron.__mro__.index(Neuron) + 1]:
        if "__init__" in vars(kind):
            own = list(inspect.signature(vars(kind)["__init__"]).parameters.values())[1:]
            names |= dict.fromkeys(p.name for p in own if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY))
            unpacked = [str(p.annotation) for p in own if p.kind is p.VAR_KEYWORD]
            if unpacked[:1] in ([], ["Unpack[Options]"], ["Unpack[Firing]"]):  # what is below it is said already
                shared = {"Unpack[Options]": Options, "Unpack[Firing]": Firing}
                names |= dict.fromkeys(name for one in unpacked for name in shared[one].__annotations__)
                break
    none = ("constants", *(SPIKE_FUNCTION if neuron.own_function else ()))
    return [name for name in names if name not in none]
