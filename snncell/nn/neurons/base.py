"""The base of spiking neurons: when a neuron fires, how often in a step, when its reset comes, and to what."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Annotated, Any, ClassVar, cast

from snncell import ops
from snncell.base.arguments.kinds import Own
from snncell.base.signals import deferring
from snncell.cell.cell import Cell
from snncell.cell.fields import field, fields_of, with_fields
from snncell.cell.ranges import FINITE, Range, one_of, quote_value
from snncell.dtype import is_storage_only
from snncell.errors import ArgumentError, CallError, SnncellError
from snncell.nn.neurons.constants import Membrane
from snncell.nn.neurons.elsewhere import frameworks_with
from snncell.surrogate import relusigmoid
from snncell.surrogate.base import check_spike_function
from snncell.surrogate.wrappers import Inclusive, Wrapper
from snncell.tape.tensor import Tensor

# --- spike functions --------------------------------------------------------------------------------------------------


class Counting(Wrapper):
    """The number of thresholds that fit into the potential, at most `most`, for x = h / v_threshold - 1.

    Its derivative is that of one spike at the first threshold. Source: sinabs, MultiSpike and MaxSpike.
    """

    def __init__(self, surrogate_function: Any, most: int | None = None, compare: str = ">=") -> None:
        super().__init__(surrogate_function)
        self.most = most
        self.compare = compare

    def construct(self, x: Tensor) -> Tensor:
        count = ops.maximum(ops.floor(x) + 1.0 if self.compare == ">=" else ops.ceil(x), 0.0)
        return count if self.most is None else ops.minimum(count, float(self.most))


class Rounding(Cell):
    """The integer nearest to x, from 0 to `most`, with the derivative of clip(x, 0, most), as `ILIFNode` fires."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most

    def construct(self, x: Tensor) -> Tensor:
        return ops.round(self.primitive(x))

    def bprop(self, x: Tensor, out: Tensor, dout: Tensor) -> tuple[Tensor]:
        inside = ops.logical_and(x >= 0.0, x <= float(self.most))
        return (dout * inside.astype(dout.dtype),)

    def primitive(self, x: Tensor) -> Tensor:
        return ops.clip(x, 0.0, float(self.most))


# What signatures show as the default. A neuron gets one of its own in its place: a hook, or a constant that is set,
# would else be every neuron's.
DEFAULT = relusigmoid()
SPIKE_FUNCTION = ("surrogate_function", "compare", "max_spikes")  # options: what a spike function is made from


def spike_function(surrogate_function: Any, compare: str, max_spikes: int | None, who: str) -> Any:
    """The spike function of a neuron: it fires at the threshold too, or counts, where the options ask for that."""
    own = relusigmoid() if surrogate_function is DEFAULT else check_spike_function(surrogate_function, who)
    one_of(compare, (">", ">="), who, "compare")
    if max_spikes is not None and (
        isinstance(max_spikes, bool)
        or not isinstance(max_spikes, (int, float))
        or not 1 <= max_spikes <= 2**53
        or max_spikes % 1
    ):
        raise ArgumentError(
            f"{who}: max_spikes is a whole number from 1 on, or None for any, not {quote_value(max_spikes)}."
        )
    if max_spikes != 1:
        return Counting(own, max_spikes, compare)
    return Inclusive(own) if compare == ">=" else own


def beyond(h: Any, v_threshold: Any, counted: bool) -> Any:
    """The argument of the spike function; of one that counts thresholds, in thresholds."""
    if counted:
        return h / v_threshold - 1.0
    return h - v_threshold


# --- ranges of a threshold --------------------------------------------------------------------------------------------

_THRESHOLD = Range(0.0, text='is positive (with reset="value" it may be negative, but above v_reset)')
_COUNTED = "is positive where spikes are counted in thresholds; leave max_spikes at 1, or shift v"


def _above(v_reset: Any, counted: bool) -> Range:
    """The range of a threshold where a reset goes to a value, and with spikes that are counted in thresholds."""
    if counted and isinstance(v_reset, Tensor):
        return Range(ops.maximum(v_reset, 0.0), text=f"{_COUNTED}, and above v_reset")
    if counted and v_reset <= 0.0:
        return Range(0.0, text=_COUNTED)
    return Range(v_reset, text=f"is above v_reset, which is {v_reset}")


# --- neurons ----------------------------------------------------------------------------------------------------------


@with_fields(kw_only=True)
class Neuron(Membrane):
    """A spiking neuron: what happens to the charged potential h at the threshold.

    s = surrogate(h - v_threshold)
    v = h - s v_threshold                    reset="subtract"
    v = (1 - s) h + s v_reset                reset="value" (v_reset), or "zero" (0)
    v = h                                    reset=None

    It takes the input x and its states, of one shape, and returns (s, *states).

    Args:
        constants: the neuron's own, by name.

    A neuron of your own is a subclass with `charge(x, v)`, the equation of h. One with more states, or another output,
    has a `construct` in its place, which begins with `recall` and ends with `fired`. Its constants are fields
    (`nn.with_fields`), or a dict that its `__init__` hands on. You can set every option later: it is checked against
    the others, and a value that is refused changes nothing.

    Raises:
        ArgumentError: for a constant out of its range, or an unknown value of an option.
        CallError: for an option that the neuron does not take; it lists those of the neuron.

    Example:
        >>> class Cubic(nn.Neuron):
        ...     def charge(self, x, v):
        ...         return v - self.steepness * v * v * v + x
        >>> node = Cubic({"steepness": 0.5}, reset="zero", learnable="steepness")
        >>> print(nn.MultiStep(node)(ops.ones((4, 1)) * 0.6)[:, 0])
        [0. 1. 0. 1.]
    """

    resets: ClassVar[tuple[str | None, ...]] = ("subtract", "zero", "value", None)
    delays: ClassVar[tuple[str | None, ...]] = (None, "reset", "reset+input", "spike")
    own_function = False  # whether its spike function is not made from what is given
    one_at_most = False  # whether a step gives one spike at most

    v_threshold: Any = field(1.0, FINITE, 'where it fires: positive, with reset="value" above v_reset')
    v_reset: Any = field(0.0, FINITE, 'where reset="value" puts the potential')
    reset: str | None = field("subtract", resets, "effect of a spike on the potential")
    detach_reset: bool = field(False, None, "whether the reset counts as a constant in the backward pass")
    surrogate_function: Any = field(DEFAULT, None, "the spike function, a Cell")
    compare: str = field(">", None, '">" fires above the threshold, ">=" at it too', quiet=True)
    delay: str | None = field(
        None,
        None,
        'None; "reset": the reset comes at the beginning of the next step, but what it subtracts at its end, and so '
        'has not decayed; "reset+input": every reset comes at the end of the next step, with its input; "spike": as '
        '"reset", and the spike itself comes in the next step; the state is the potential before the reset',
        quiet=True,
    )
    input_gain: Any = field(1.0, FINITE, "factor of the input")
    max_spikes: Annotated[int | None, Own()] = field(
        1,
        None,
        "most spikes in a step, or None for any number: with more than 1, s = floor(h / v_threshold), the spike "
        "function sees h / v_threshold - 1, so that its width is in thresholds, and v_threshold is positive",
        quiet=True,
    )
    learnable: str | Sequence[str] = field((), None, "names of the constants to learn", keep=False)
    starts: ClassVar[Any] = "v_reset"  # the first value of the first state: a constant, or a number
    other_states: ClassVar[tuple[str | float, ...]] = ()  # those of the others
    charge: ClassVar[Callable[..., Any]]  # a neuron's own, so that another one may have a constant of that name

    def __init__(self, constants: dict[str, Any], **options: Any) -> None:
        shared = fields_of(Neuron)
        if unknown := [name for name in options if name not in shared]:
            self._refuse_options(unknown)
        given = {name: one.default for name, one in shared.items()} | options
        own = {name: given[name] for name in ("v_threshold", "v_reset", "input_gain")}
        super().__init__(constants | own, given["learnable"])
        for name in ("reset", "delay", "detach_reset", "compare"):
            setattr(self, name, given[name])
        self.fire_by(self._make_function(*(given[name] for name in SPIKE_FUNCTION)), given["max_spikes"])

    def init_state(self, x: Tensor) -> Any:
        """The states before the first step; the potential is v_reset, unless the class or a preset says otherwise."""
        values = [getattr(self, one) if isinstance(one, str) else one for one in (self.starts, *self.other_states)]
        states = [self.filled(x, value) for value in values]
        return tuple(states) if self.other_states else states[0]

    def starting_at(self, name: str) -> Neuron:
        """The neuron itself, with that constant as its first potential, in which frameworks differ."""
        setattr(self, "starts", name)  # a change like any other, which a compiled Cell notices
        return self

    @classmethod
    def _refuse_options(cls, unknown: list[str]) -> None:
        """Raise a CallError that lists the options of the neuron, and names the frameworks whose words were given."""
        who = cls.__name__
        if cls.own_function and (refused := [name for name in SPIKE_FUNCTION if name in unknown]):
            raise ArgumentError(
                f"{who}: its spike function is its own, and takes no {refused[0]}. Leave it out; most=... is the "
                f"largest number of spikes."
            )
        text = f"{who}: there is no option {unknown[0]!r}; it takes {', '.join(_options_of(cls))}."
        owner, frameworks = frameworks_with(who, unknown)
        if frameworks:
            settings = ", ".join(f"{name}=..." for name in unknown)
            text += f' In the words of {" or ".join(frameworks)}: nn.{owner}.like("{frameworks[0]}", {settings}).'
        raise CallError(text)

    # --- options that are set later -----------------------------------------------------------------------------------

    def _make_function(self, surrogate_function: Any, compare: str, max_spikes: int | None) -> Any:
        who = type(self).__name__
        if self.one_at_most:
            one_of(max_spikes, (1,), who, "max_spikes")
        return spike_function(surrogate_function, compare, max_spikes, who)

    def fire_by(self, function: Any, max_spikes: int | None) -> None:
        """Fire by this function as it is, so often in a step; from here on threshold and reset have their ranges."""
        super().__setattr__("surrogate_function", function)
        super().__setattr__("max_spikes", max_spikes)
        for name in ("v_threshold", "v_reset"):
            setattr(self, name, self.__dict__[name])

    def _is_made(self) -> bool:
        return "max_spikes" in self.__dict__  # what `fire_by` sets last; before it, options may not fit each other yet

    def __setattr__(self, name: str, value: Any) -> None:
        if name in SPIKE_FUNCTION and self._is_made():
            self._fire_anew(name, value)
            return
        allowed = {"reset": self.resets, "delay": self.delays}.get(name)
        before = self.__dict__.get(name)
        super().__setattr__(name, value if allowed is None else one_of(value, allowed, type(self).__name__, name))
        if name == "reset" and self._is_made():
            try:
                self.check_constant("v_threshold", self.v_threshold)
            except ArgumentError:
                super().__setattr__(name, before)
                raise

    def _fire_anew(self, name: str, value: Any) -> None:
        """Set what the spike function is made from, and make it again; all as it was if that cannot be."""
        who, before = type(self).__name__, {each: self.__dict__[each] for each in SPIKE_FUNCTION}
        if self.own_function:
            raise ArgumentError(f"{who}: its spike function is its own; make another {who} for another {name}.")
        # The function that was given stands inside of the one that `spike_function` made of it.
        wrapped = before["compare"] == ">=" or before["max_spikes"] != 1
        plain = before["surrogate_function"].surrogate_function if wrapped else before["surrogate_function"]
        after = {**before, "surrogate_function": plain, name: value}
        after["surrogate_function"] = self._make_function(**after)
        deferring(self._take_firing, after, before)  # Ctrl-C comes before all of it, or after

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
        if name == "v_threshold" and self._is_made():
            return _above(self.v_reset, self.max_spikes != 1) if self.reset == "value" else _THRESHOLD
        if name == "v_reset" and self._is_made() and self.reset == "value":
            return Range(high=self.v_threshold, text="is below v_threshold")
        return super().range_of(name)

    def check_constant(self, name: str, value: Any) -> None:
        """Refuse a value that a constant cannot have, or that v_threshold cannot have beside it."""
        if name == "v_reset" and self._is_made() and self.reset == "value":
            FINITE.check(value, type(self).__name__, name)
            _above(value, self.max_spikes != 1).check(self.v_threshold, type(self).__name__, "v_threshold")
        else:
            super().check_constant(name, value)

    # --- a step -------------------------------------------------------------------------------------------------------

    def _charge_and_fire(self, x: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        if getattr(self, "charge", None) is None:
            raise SnncellError(
                f"{type(self).__name__} has neither charge(self, x, v), the equation of h, nor a construct of its own."
            )
        v, late = self.recall(v)
        return self.fired(self.charge(x, v), late)

    # For mypy no method, which a neuron of more states could not override.
    construct = cast("Any", _charge_and_fire)

    def spikes(self, h: Any, threshold: Any = None) -> Any:
        """The number of spikes that the potential gives: 0 or 1, or more with max_spikes."""
        return self.fire_at(beyond(h, self.v_threshold if threshold is None else threshold, self.max_spikes != 1))

    def fire_at(self, above: Any) -> Any:
        """The spike function's answer; float16 and bfloat16 stay what they are, though relusigmoid gives float32."""
        spikes = self.surrogate_function(above)
        return spikes.astype(above.dtype) if is_storage_only(above.dtype.dtype) else spikes

    def after_reset(self, h: Any, spike: Any, drop: Any = None) -> Any:
        """The potential after the reset, from the one before it and the spikes; `drop` in place of v_threshold."""
        s = ops.stop_gradient(spike) if self.detach_reset else spike
        if self.reset is None:
            return h
        if self.reset == "subtract":
            v_threshold = self.v_threshold if drop is None else drop
            return h - s * v_threshold
        s = s if self.max_spikes == 1 else ops.minimum(s, 1.0)
        v_reset = self.v_reset if self.reset == "value" else 0.0
        if not isinstance(v_reset, Tensor) and v_reset == 0.0:  # a compiled loop would add s * 0
            return h * (1.0 - s)
        return h * (1.0 - s) + s * v_reset

    def recall(self, v: Tensor, threshold: Any = None) -> tuple[Tensor, Tensor | None]:
        """At the beginning of a step: v, reset if the spike of the step before does it now, and that spike."""
        if self.delay is None:
            return v, None
        late = self.spikes(v, threshold)  # v is the potential before the reset, so the last spike is no state
        return (v if self._resets_at_end() else self.after_reset(v, late)), late

    def _resets_at_end(self) -> bool:
        # What is subtracted at the beginning would decay with the potential.
        return self.reset == "subtract" or self.delay == "reset+input"

    def fired(self, h: Tensor, late: Tensor | None, threshold: Any = None, drop: Any = None) -> tuple[Tensor, Tensor]:
        """At the end of a step: the spikes, and the potential to carry on, from the charged one."""
        h = self.on_grid("v", h)
        if late is None:
            spike = self.spikes(h, threshold)
            return spike, self.after_reset(h, spike, drop)
        if self._resets_at_end():
            h = self.after_reset(h, late, drop)
        return (late if self.delay == "spike" else self.spikes(h, threshold)), h


def _options_of(neuron: type[Neuron]) -> list[str]:
    """The names that `__init__` of a neuron takes: its own arguments, and those that it hands to the classes above."""
    names: dict[str, None] = {}
    for kind in neuron.__mro__:
        if "__init__" in vars(kind):
            own = list(inspect.signature(vars(kind)["__init__"]).parameters.values())[1:]
            names |= dict.fromkeys(p.name for p in own if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY))
            if not any(p.kind is p.VAR_KEYWORD for p in own):
                break
    return [name for name in names if name != "constants"]
