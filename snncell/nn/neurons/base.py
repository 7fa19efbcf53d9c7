"""The base of spiking neurons: when they fire, and how they are reset."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Annotated, Any, Never, TypedDict

from snncell import ops
from snncell.arguments.kinds import Own
from snncell.common.ranges import FINITE, Range
from snncell.dtype import only_stored
from snncell.errors import ArgumentError, CallError
from snncell.interrupts import deferring
from snncell.nn.neurons.constants import Membrane, one_of
from snncell.nn.neurons.counting import spike_function
from snncell.nn.neurons.elsewhere import frameworks_with
from snncell.surrogate import relusigmoid
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


_NOTHING = object()
_FIRING = ("surrogate_function", "compare", "max_spikes")  # what a spike function is made from
_THRESHOLD = Range(0.0, text='is positive (with reset="value" it may be negative, but above v_reset)')
_COUNTED = "is positive where spikes are counted in thresholds; leave max_spikes at 1, or shift v"


def _above(v_reset: Any, counted: bool) -> Range:
    """The range of a threshold where a reset goes to a value, and with spikes that are counted in thresholds."""
    if counted and isinstance(v_reset, Tensor):
        return Range(ops.maximum(v_reset, 0.0), text=f"{_COUNTED}, and above v_reset")
    if counted and v_reset <= 0.0:
        return Range(0.0, text=_COUNTED)
    return Range(v_reset, text=f"is above v_reset, which is {v_reset}")


class Neuron(Membrane):
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

    A neuron of one's own is a subclass with the equation of h; a step begins with `recall`, and ends with `fired`.

    Raises:
        ArgumentError: for values that make no sense.
        CallError: for an option that the neuron does not take.

    Example:
        >>> class Cubic(nn.Neuron):
        ...     def construct(self, x, v):
        ...         v, late = self.recall(v)
        ...         return self.fired(v - self.steepness * v * v * v + x, late)
        >>> node = Cubic({"steepness": 0.5}, reset="zero", learnable="steepness")
        >>> print(nn.MultiStep(node)(ops.ones((4, 1)) * 0.6)[:, 0])
        [0. 1. 0. 1.]
    """

    v_threshold: Any
    v_reset: Any
    input_gain: Any
    reset: str | None
    delay: str | None
    surrogate_function: Any
    max_spikes: int | None
    starts: str = "v_reset"
    own_function = False  # whether it has a spike function that is not made from what is given
    one_at_most = False  # whether a step gives one spike at most
    resets: tuple[str | None, ...] = ("subtract", "zero", "value", None)
    delays: tuple[str | None, ...] = (None, "reset", "reset+input", "spike")

    def __init__(
        self,
        constants: dict[str, Any],
        *,
        v_threshold: Any = 1.0,
        v_reset: Any = 0.0,
        reset: str | None = "subtract",
        detach_reset: bool = False,
        surrogate_function: Any = relusigmoid(),
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

    def fire_by(self, function: Any, max_spikes: int | None) -> None:
        """Fire by this function as it is, so often in a step; from here on threshold and reset have their ranges."""
        super().__setattr__("surrogate_function", function)
        super().__setattr__("max_spikes", max_spikes)
        for name in ("v_threshold", "v_reset"):
            setattr(self, name, self.__dict__[name])

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _FIRING and "max_spikes" in self.__dict__:
            self._fire_anew(name, value)
            return
        allowed = {"reset": self.resets, "delay": self.delays}.get(name)
        before = self.__dict__.get(name, _NOTHING)
        super().__setattr__(name, value if allowed is None else one_of(value, allowed, type(self).__name__, name))
        if name == "reset" and before is not _NOTHING:
            try:
                self.check_constant("v_threshold", self.v_threshold)
            except ArgumentError:
                super().__setattr__(name, before)
                raise

    def _fire_anew(self, name: str, value: Any) -> None:
        """Set what the spike function is made from, and make it again; all as it was if that cannot be.

        Raises:
            ArgumentError: for values that make no sense, or a neuron that has a spike function of its own.
        """
        who, before = type(self).__name__, {each: self.__dict__[each] for each in _FIRING}
        if self.own_function:
            raise ArgumentError(f"{who}: its spike function is its own; make another {who} for another {name}.")
        made = before["compare"] == ">=" or before["max_spikes"] != 1  # of what was given, by `spike_function`
        given = before["surrogate_function"].surrogate_function if made else before["surrogate_function"]
        now = {**before, "surrogate_function": given, name: value}
        one_of(now["compare"], (">", ">="), who, "compare")
        if self.one_at_most:
            one_of(now["max_spikes"], (1,), who, "max_spikes")
        now["surrogate_function"] = spike_function(**now, who=who)
        deferring(self._take_firing, now, before)

    def _take_firing(self, values: dict[str, Any], before: dict[str, Any] | None) -> None:
        try:
            super().__setattr__("compare", values["compare"])
            self.fire_by(values["surrogate_function"], values["max_spikes"])
        except BaseException:
            if before is not None:
                self._take_firing(before, None)
            raise

    def range_of(self, name: str) -> Range:
        """The range of a constant: a threshold lies above 0, or above the value that a reset goes to."""
        if "max_spikes" not in self.__dict__ or name not in ("v_threshold", "v_reset"):
            return super().range_of(name)
        value = self.reset == "value"
        if name == "v_reset":
            return Range(high=self.v_threshold, text="is below v_threshold") if value else super().range_of(name)
        if not value:
            return _THRESHOLD
        return _above(self.v_reset, self.max_spikes != 1)

    def check_constant(self, name: str, value: Any) -> None:
        """Refuse a value that a constant cannot have, or that v_threshold cannot have beside it."""
        if name != "v_reset" or "max_spikes" not in self.__dict__ or self.reset != "value":
            super().check_constant(name, value)
            return
        FINITE.check(value, type(self).__name__, name)
        _above(value, self.max_spikes != 1).check(self.v_threshold, type(self).__name__, "v_threshold")

    def gained(self, x: Any) -> Any:
        """The input times its gain."""
        if not isinstance(self.input_gain, Tensor) and self.input_gain == 1.0:
            return x
        return x * self.input_gain

    def spikes(self, h: Any, threshold: Any = None) -> Any:
        """The number of spikes that the potential gives: 0 or 1, or more with max_spikes."""
        threshold = self.v_threshold if threshold is None else threshold
        above = h - threshold if self.max_spikes == 1 else h / threshold - 1.0
        return self.fire_at(above)

    def fire_at(self, above: Any) -> Any:
        """The spike function's answer; float16 and bfloat16 stay what they are, though relusigmoid gives float32."""
        spikes = self.surrogate_function(above)
        return spikes.astype(above.dtype) if only_stored(above.dtype.dtype) else spikes

    def after_reset(self, h: Any, spike: Any, drop: Any = None) -> Any:
        """The potential after the reset, from the one before it and the spikes; `drop` in place of v_threshold."""
        s = ops.stop_gradient(spike) if self.detach_reset else spike
        if self.reset == "subtract":
            return h - s * (self.v_threshold if drop is None else drop)
        if self.reset is None:
            return h
        if self.max_spikes != 1:
            s = ops.minimum(s, 1.0)
        kept = h * (1.0 - s)
        target = self.v_reset if self.reset == "value" else 0.0
        return kept if not isinstance(target, Tensor) and target == 0.0 else kept + s * target

    def recall(self, v: Tensor, threshold: Any = None) -> tuple[Tensor, Tensor | None]:
        """At the beginning of a step: v, reset if the spike of the step before does it now, and that spike."""
        if self.delay is None:
            return v, None
        late = self.spikes(v, threshold)
        return (v if self._resets_at_end() else self.after_reset(v, late)), late

    def _resets_at_end(self) -> bool:
        return self.reset == "subtract" or self.delay == "reset+input"

    def fired(self, h: Tensor, late: Tensor | None, threshold: Any = None, drop: Any = None) -> tuple[Tensor, Tensor]:
        """At the end of a step: the spikes, and the potential to carry on, from the charged one."""
        if late is None:
            spike = self.spikes(h, threshold)
            return spike, self.after_reset(h, spike, drop)
        if self._resets_at_end():
            h = self.after_reset(h, late, drop)
        return (late if self.delay == "spike" else self.spikes(h, threshold)), h

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
        given = ", ".join(f"{name}=..." for name in unknown)
        text += f' In the words of {" or ".join(frameworks)}: nn.{owner}.like("{frameworks[0]}", {given}).'
    raise CallError(text)


def _options_of(neuron: type[Neuron]) -> list[str]:
    """The names that `__init__` of a neuron takes: its own arguments, and those that it hands to the classes above."""
    found: dict[str, None] = {}
    for kind in neuron.__mro__[: neuron.__mro__.index(Neuron) + 1]:
        if "__init__" in vars(kind):
            own = list(inspect.signature(vars(kind)["__init__"]).parameters.values())[1:]
            found |= dict.fromkeys(p.name for p in own if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY))
            handed = [str(p.annotation) for p in own if p.kind is p.VAR_KEYWORD]
            if handed[:1] in ([], ["Unpack[Options]"], ["Unpack[Firing]"]):  # what is below it is said already
                shared = {"Unpack[Options]": Options, "Unpack[Firing]": Firing}
                found |= dict.fromkeys(name for one in handed for name in shared[one].__annotations__)
                break
    found.pop("constants", None)
    return list(found)
