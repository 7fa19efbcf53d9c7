"""When a neuron fires, how often in a step, when its reset comes, and to what."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from snncell import ops
from snncell.base.signals import deferring
from snncell.cell.cell import Cell
from snncell.cell.ranges import FINITE, Range, one_of, quote_value
from snncell.dtype import is_storage_only
from snncell.errors import ArgumentError, SnncellError
from snncell.nn.neurons.constants import Membrane
from snncell.surrogate import relusigmoid
from snncell.surrogate.base import check_spike_function
from snncell.surrogate.wrappers import Inclusive, Wrapper
from snncell.tape.tensor import Tensor

# --- spike functions that give several spikes in a step ---------------------------------------------------------------


class Counting(Wrapper):
    """The number of thresholds that fit into the potential: floor(h / v_threshold), from x = h / v_threshold - 1.

    Its reverse is that of one spike at the first threshold: the surrogate's, of x. `most` is the largest number, or
    None; compare=">=" counts a threshold that is met exactly, ">" does not.

    Source: sinabs, MultiSpike and MaxSpike.
    """

    def __init__(self, surrogate_function: Any, most: int | None = None, compare: str = ">=") -> None:
        super().__init__(surrogate_function)
        self.most = most
        self.compare = compare

    def construct(self, x: Tensor) -> Tensor:
        count = ops.maximum(ops.floor(x) + 1.0 if self.compare == ">=" else ops.ceil(x), 0.0)
        return count if self.most is None else ops.minimum(count, float(self.most))


class Rounding(Cell):
    """The integer nearest to x, from 0 to `most`, with the derivative of x itself there, and 0 beyond.

    construct: round(clip(x, 0, most)); primitive: clip(x, 0, most); bprop: 1 where 0 <= x <= most, else 0, with x the
    potential in thresholds.

    Source: Luo et al., "Integer-Valued Training and Spike-Driven Inference Spiking Neural Network for High-Performance
    and Energy-Efficient Object Detection", ECCV 2024; SpikingJelly's MultiLevelSpikeCount.
    """

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most

    def construct(self, x: Tensor) -> Tensor:
        return ops.round(ops.clip(x, 0.0, float(self.most)))

    def bprop(self, x: Tensor, out: Tensor, dout: Tensor) -> tuple[Tensor]:
        inside = ops.logical_and(x >= 0.0, x <= float(self.most))
        return (dout * inside.astype(dout.dtype),)

    def primitive(self, x: Tensor) -> Tensor:
        return ops.clip(x, 0.0, float(self.most))


# What signatures show as the default. A neuron gets one of its own in its place: a hook, or a constant that is set,
# would else be every neuron's.
DEFAULT = relusigmoid()


def spike_function(surrogate_function: Any, compare: str, max_spikes: int | None, who: str) -> Any:
    """The spike function of a neuron, made to fire at the threshold too, or to count, where that is asked for."""
    surrogate_function = (
        relusigmoid() if surrogate_function is DEFAULT else check_spike_function(surrogate_function, who)
    )
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
        return Counting(surrogate_function, max_spikes, compare)
    return Inclusive(surrogate_function) if compare == ">=" else surrogate_function


# --- equations, which `explain` and generated kernels quote -----------------------------------------------------------


def beyond(h: Any, v_threshold: Any) -> Any:
    """The argument of the spike function."""
    return h - v_threshold


def beyond_in_thresholds(h: Any, v_threshold: Any) -> Any:
    """The argument of a spike function that counts thresholds."""
    return h / v_threshold - 1.0


def subtract_threshold(h: Any, s: Any, v_threshold: Any) -> Any:
    """The reset "subtract"."""
    return h - s * v_threshold


def reset_to_zero(h: Any, s: Any) -> Any:
    """The reset "zero"."""
    return h * (1.0 - s)


def reset_to_value(h: Any, s: Any, v_reset: Any) -> Any:
    """The reset "value"."""
    return h * (1.0 - s) + s * v_reset


# --- the threshold ----------------------------------------------------------------------------------------------------

SPIKE_FUNCTION = ("surrogate_function", "compare", "max_spikes")  # options: what a spike function is made from
_THRESHOLD = Range(0.0, text='is positive (with reset="value" it may be negative, but above v_reset)')
_COUNTED = "is positive where spikes are counted in thresholds; leave max_spikes at 1, or shift v"


def _above(v_reset: Any, counted: bool) -> Range:
    """The range of a threshold where a reset goes to a value, and with spikes that are counted in thresholds."""
    if counted and isinstance(v_reset, Tensor):
        return Range(ops.maximum(v_reset, 0.0), text=f"{_COUNTED}, and above v_reset")
    if counted and v_reset <= 0.0:
        return Range(0.0, text=_COUNTED)
    return Range(v_reset, text=f"is above v_reset, which is {v_reset}")


class Thresholded(Membrane):
    """A membrane with a threshold: what `Neuron` says of spikes, resets and delays is done here, and nowhere else.

    Threshold, reset and max_spikes limit one another, and the spike function is made from three options. All of them
    can be set later, one at a time: each is checked against the others, and where it is refused all stays as it was.
    """

    v_threshold: Any
    v_reset: Any
    reset: str | None
    delay: str | None
    detach_reset: bool
    compare: str
    surrogate_function: Any
    max_spikes: int | None
    own_function = False  # whether it has a spike function that is not made from what is given
    charge: Callable[..., Any]  # a neuron's own, so that another one may have a constant of that name
    one_at_most = False  # whether a step gives one spike at most
    resets: tuple[str | None, ...] = ("subtract", "zero", "value", None)
    delays: tuple[str | None, ...] = (None, "reset", "reset+input", "spike")

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
        one_of(after["compare"], (">", ">="), who, "compare")
        if self.one_at_most:
            one_of(after["max_spikes"], (1,), who, "max_spikes")
        after["surrogate_function"] = spike_function(**after, who=who)
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
    construct: Callable[..., Any] = _charge_and_fire

    def spikes(self, h: Any, threshold: Any = None) -> Any:
        """The number of spikes that the potential gives: 0 or 1, or more with max_spikes."""
        threshold = self.v_threshold if threshold is None else threshold
        return self.fire_at((beyond if self.max_spikes == 1 else beyond_in_thresholds)(h, threshold))

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
            return subtract_threshold(h, s, self.v_threshold if drop is None else drop)
        s = s if self.max_spikes == 1 else ops.minimum(s, 1.0)
        target = self.v_reset if self.reset == "value" else 0.0
        to_zero = not isinstance(target, Tensor) and target == 0.0  # a compiled loop would add s * 0
        return reset_to_zero(h, s) if to_zero else reset_to_value(h, s, target)

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
