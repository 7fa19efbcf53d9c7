"""Base class of spiking neurons: threshold, reset, delay and number of spikes per time step."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Annotated, Any, ClassVar, cast

from snncell import ops
from snncell.base.arguments.kinds import Own, misfit
from snncell.base.signals import deferring
from snncell.cell.cell import Cell
from snncell.cell.fields import field, fields_of, with_fields
from snncell.cell.ranges import FINITE, Range, one_of, quote_value
from snncell.dtype import is_storage_only
from snncell.errors import ArgumentError, CallError, SnncellError
from snncell.nn.neurons.constants import Membrane
from snncell.nn.neurons.convert import frameworks_with
from snncell.surrogate import relusigmoid
from snncell.surrogate.base import Inclusive, Wrapper, check_spike_function
from snncell.tape.tensor import Tensor

__all__ = ["Neuron"]

# --- spike functions --------------------------------------------------------------------------------------------------


class Counting(Wrapper):
    """Multi-spike function (MultiSpike in sinabs): one spike for each time that the threshold fits into the potential.

    x is v / v_threshold - 1, so the number of spikes is floor(x + 1), from 0 to `most`. With compare=">", a potential
    equal to a multiple of the threshold gives one spike less. The gradient is that of a neuron with at most one spike:
    it has one peak at x = 0, and none at the other multiples of the threshold.
    """

    def __init__(self, surrogate_function: Any, most: int | None = None, compare: str = ">=") -> None:
        super().__init__(surrogate_function)
        self.most = most
        self.compare = compare

    def construct(self, x: Tensor) -> Tensor:
        count = ops.maximum(ops.floor(x) + 1.0 if self.compare == ">=" else ops.ceil(x), 0.0)
        return count if self.most is None else ops.minimum(count, float(self.most))


class Rounding(Cell):
    """Integer spike function of `ILIFNode`: round(clip(x, 0, most)), with the derivative of the clip."""

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


# The default in signatures. Each neuron replaces it by a new object, because otherwise a hook or a changed constant
# would affect every neuron.
DEFAULT = relusigmoid()
SPIKE_FUNCTION = ("surrogate_function", "compare", "max_spikes")  # the options that determine the spike function


def spike_function(surrogate_function: Any, compare: str, max_spikes: int | None, who: str) -> Any:
    """Create the spike function of a neuron from its options: plain, inclusive (">=") or counting."""
    own = relusigmoid() if surrogate_function is DEFAULT else check_spike_function(surrogate_function, who)
    one_of(compare, (">", ">="), who, "compare")
    whole = isinstance(max_spikes, (int, float)) and not isinstance(max_spikes, bool) and 1 <= max_spikes <= 2**53
    if max_spikes is not None and (not whole or max_spikes % 1):
        raise ArgumentError(
            f"{who}: max_spikes must be a whole number of at least 1, or None for no limit, not "
            f"{quote_value(max_spikes)}."
        )
    if max_spikes != 1:
        return Counting(own, max_spikes, compare)
    return Inclusive(own) if compare == ">=" else own


def beyond(h: Any, v_threshold: Any, counted: bool) -> Any:
    """The argument of the spike function: h - v_threshold, or h / v_threshold - 1 if spikes are counted."""
    if counted:
        return h / v_threshold - 1.0
    return h - v_threshold


# --- ranges of a threshold --------------------------------------------------------------------------------------------

_THRESHOLD = Range(0.0, text='is positive (with reset="value" it may be negative, but above v_reset)')
_COUNTED = "is positive if a step can have several spikes; leave max_spikes at 1, or shift v"


def _range_above(v_reset: Any, counted: bool) -> Range:
    """The range of the threshold with reset="value", given the value to which it resets."""
    if counted and isinstance(v_reset, Tensor):
        return Range(ops.maximum(v_reset, 0.0), text=f"{_COUNTED}, and above v_reset")
    if counted and v_reset <= 0.0:
        return Range(0.0, text=_COUNTED)
    return Range(v_reset, text=f"is above v_reset, which is {v_reset}")


# --- neurons ----------------------------------------------------------------------------------------------------------


@with_fields(kw_only=True)
class Neuron(Membrane):
    """Base class of spiking neurons: threshold, spike and reset.

    A subclass computes the charged potential h from the input x and the state v. `Neuron` then fires and resets:

        s = surrogate(h - v_threshold)           1 if h > v_threshold, else 0; smooth only in the backward pass
        v = h - s * v_threshold                  reset="subtract"
        v = (1 - s) h + s * v_reset              reset="value", or "zero" (v_reset = 0)
        v = h                                    reset=None

    A call computes one time step: from the input x and the states, all of the same shape, it returns (s, *states). Wrap
    the neuron in `MultiStep`, which runs it over an input of shape (T, B, ...) and compiles the loop.

    Use the default reset="subtract" if spike counts should encode the input, because it keeps the charge above the
    threshold. The resets "value" and "zero" discard this charge, as most biological models do.

    To write a neuron, define `charge(x, v)`, which returns h, in a subclass. For more states or another output, define
    `construct` instead, with a call of `recall` at its beginning and of `fired` at its end. Constants are fields
    (`nn.with_fields`), or a dict that you pass to `__init__`. You can change every option later, for example
    `node.reset = "zero"`. An invalid value raises an error and leaves the neuron unchanged.

    Args:
        constants: the constants of the subclass, by name.
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
    own_function = False  # whether the class fixes its spike function, as ILIFNode does
    _called_methods = frozenset(["charge"])  # methods whose values `snncell.jit` must watch; see `EventNeuron`
    one_at_most = False  # whether max_spikes must be 1

    v_threshold: Any = field(1.0, FINITE, 'potential at which it fires: positive, or above v_reset with reset="value"')
    v_reset: Any = field(0.0, FINITE, 'potential after a spike with reset="value"; usually also at the beginning')
    reset: str | None = field("subtract", resets, "effect of a spike on the potential")
    detach_reset: bool = field(
        False, None, "whether the backward pass treats the reset as a constant, which often trains more stably"
    )
    surrogate_function: Any = field(
        DEFAULT, None, "the spike function, a Cell from `snncell.surrogate` with a step forward and a smooth gradient"
    )
    compare: str = field(">", None, '">" fires only above the threshold, ">=" also at it', quiet=True)
    delay: str | None = field(
        None,
        None,
        "when the reset acts, because frameworks differ in it. None: in the step of the spike. "
        '"reset": in the next step. A reset to a value acts at the beginning of this step. A subtraction acts at its '
        "end, because otherwise the subtracted amount would decay in this step. "
        '"reset+input": at the end of the next step, after its input. '
        '"spike": as "reset", and the spike too is returned one step later. '
        "With a delay, the state is the potential before the reset",
        quiet=True,
    )
    input_gain: Any = field(1.0, FINITE, "factor of the input")
    max_spikes: Annotated[int | None, Own()] = field(
        1,
        None,
        "the largest number of spikes in a step, or None for no limit. With more than 1, s = floor(h / v_threshold), "
        "the surrogate receives h / v_threshold - 1, and v_threshold must be positive",
        quiet=True,
    )
    learnable: str | Sequence[str] = field((), None, 'names of the constants to learn, for example "tau"', keep=False)
    starts: ClassVar[Any] = "v_reset"  # initial value of the first state: the name of a constant, or a number
    other_states: ClassVar[tuple[str | float, ...]] = ()  # initial values of the other states
    charge: ClassVar[Callable[..., Any]]  # only annotated, so that a subclass may have a constant named `charge`

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
        """Create the initial states; the potential starts at v_reset unless the class says otherwise."""
        values = [getattr(self, one) if isinstance(one, str) else one for one in (self.starts, *self.other_states)]
        states = [self.filled(x, value) for value in values]
        return tuple(states) if self.other_states else states[0]

    def starting_at(self, name: str) -> Neuron:
        """Set the constant that is the initial potential, because frameworks differ in it, and return the neuron."""
        setattr(self, "starts", name)  # by `__setattr__`, so that compiled Cells notice the change
        return self

    @classmethod
    def _refuse_options(cls, unknown: list[str]) -> None:
        """Raise a CallError that lists the options, and the frameworks that have the unknown ones."""
        who = cls.__name__
        if cls.own_function and (refused := [name for name in SPIKE_FUNCTION if name in unknown]):
            raise ArgumentError(
                f"{who} has a fixed spike function and does not take {refused[0]}. Leave it out; most=... sets the "
                f"largest number of spikes."
            )
        text = f"{who} has no option {unknown[0]!r}. Its options are {', '.join(_options_of(cls))}."
        owner, frameworks = frameworks_with(who, unknown)
        if frameworks:
            settings = ", ".join(f"{name}=..." for name in unknown)
            text += f' For the names of {" or ".join(frameworks)}, call nn.{owner}.like("{frameworks[0]}", {settings}).'
        raise CallError(text)

    # --- changing options after construction --------------------------------------------------------------------------

    def _make_function(self, surrogate_function: Any, compare: str, max_spikes: int | None) -> Any:
        who = type(self).__name__
        if self.one_at_most:
            one_of(max_spikes, (1,), who, "max_spikes")
        return spike_function(surrogate_function, compare, max_spikes, who)

    def fire_by(self, function: Any, max_spikes: int | None) -> None:
        """Set the spike function and the spike limit, and check threshold and reset against them."""
        super().__setattr__("surrogate_function", function)
        super().__setattr__("max_spikes", max_spikes)
        for name in ("v_threshold", "v_reset"):
            setattr(self, name, self.__dict__[name])

    def _is_made(self) -> bool:
        return "max_spikes" in self.__dict__  # `fire_by` sets it last; until then the options need not be consistent

    def __setattr__(self, name: str, value: Any) -> None:
        if name in SPIKE_FUNCTION and self._is_made():
            self._change_firing(name, value)
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

    def _change_firing(self, name: str, value: Any) -> None:
        """Change an option of the spike function and create the function anew; on an error, keep the old one."""
        who, before = type(self).__name__, {each: self.__dict__[each] for each in SPIKE_FUNCTION}
        if self.own_function:
            raise ArgumentError(f"{who} has a fixed spike function, so {name} cannot change. Create a new {who}.")
        # `spike_function` wraps the user's function; unwrap it before wrapping it anew.
        wrapped = before["compare"] == ">=" or before["max_spikes"] != 1
        plain = before["surrogate_function"].surrogate_function if wrapped else before["surrogate_function"]
        after = {**before, "surrogate_function": plain, name: value}
        after["surrogate_function"] = self._make_function(**after)
        deferring(self._take_firing, after, before)  # so that Ctrl-C cannot interrupt it halfway

    def _take_firing(self, values: dict[str, Any], before: dict[str, Any] | None) -> None:
        try:
            super().__setattr__("compare", values["compare"])
            self.fire_by(values["surrogate_function"], values["max_spikes"])
        except BaseException:
            if before is not None:
                self._take_firing(before, None)
            raise

    def range_of(self, name: str) -> Range:
        """The range of a constant; the threshold must be above 0, or above the value of the reset."""
        if name == "v_threshold" and self._is_made():
            return _range_above(self.v_reset, self.max_spikes != 1) if self.reset == "value" else _THRESHOLD
        if name == "v_reset" and self._is_made() and self.reset == "value":
            return Range(high=self.v_threshold, text="is below v_threshold")
        return super().range_of(name)

    def check_constant(self, name: str, value: Any) -> None:
        if name == "v_reset" and self._is_made() and self.reset == "value":
            FINITE.check(value, type(self).__name__, name)
            _range_above(value, self.max_spikes != 1).check(self.v_threshold, type(self).__name__, "v_threshold")
        else:
            super().check_constant(name, value)

    # --- a step -------------------------------------------------------------------------------------------------------

    def _charge_and_fire(self, x: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        v, late = self.recall(v)
        try:
            h = self.charge(x, v)
        except (AttributeError, TypeError):
            charge: Any = getattr(self, "charge", None)
            wrong = "" if charge is None else misfit(charge, (x, v))
            if charge is None or wrong:
                raise SnncellError(
                    f"{type(self).__name__} must define charge(self, x, v), which returns the charged potential h, or "
                    f"its own construct.{f' Its charge takes {inspect.signature(charge)}.' if wrong else ''}"
                ) from None
            raise
        return self.fired(h, late)

    # An attribute for mypy, because subclasses with more states could not override a method.
    construct = cast("Any", _charge_and_fire)

    def spikes(self, h: Any, threshold: Any = None) -> Any:
        """The number of spikes for the charged potential h: 0 or 1, or more if max_spikes allows it."""
        return self.fire_at(beyond(h, self.v_threshold if threshold is None else threshold, self.max_spikes != 1))

    def fire_at(self, above: Any) -> Any:
        """Apply the spike function; float16 and bfloat16 keep their dtype, although relusigmoid returns float32."""
        spikes = self.surrogate_function(above)
        return spikes.astype(above.dtype) if is_storage_only(above.dtype.dtype) else spikes

    def after_reset(self, h: Any, spike: Any, drop: Any = None) -> Any:
        """The potential after the reset; `drop` is the amount that "subtract" subtracts, by default v_threshold."""
        s = ops.stop_gradient(spike) if self.detach_reset else spike
        if self.reset is None:
            return h
        if self.reset == "subtract":
            v_threshold = self.v_threshold if drop is None else drop
            return h - s * v_threshold
        s = s if self.max_spikes == 1 else ops.minimum(s, 1.0)
        v_reset = self.v_reset if self.reset == "value" else 0.0
        if not isinstance(v_reset, Tensor) and v_reset == 0.0:  # saves an addition in the compiled loop
            return h * (1.0 - s)
        return h * (1.0 - s) + s * v_reset

    def recall(self, v: Tensor, threshold: Any = None) -> tuple[Tensor, Tensor | None]:
        """Apply a delayed reset at the start of a step; return the potential, and the delayed spike or None."""
        if self.delay is None:
            return v, None
        late = self.spikes(v, threshold)  # v is the potential before the reset, so the last spike needs no state
        return (v if self._resets_at_end() else self.after_reset(v, late)), late

    def _resets_at_end(self) -> bool:
        # An amount subtracted at the beginning of the step would decay with the potential.
        return self.reset == "subtract" or self.delay == "reset+input"

    def fired(self, h: Tensor, late: Tensor | None, threshold: Any = None, drop: Any = None) -> tuple[Tensor, Tensor]:
        """End a time step: return the spikes and the next potential, from the charged potential h."""
        h = self.on_grid(h)
        if late is None:
            spike = self.spikes(h, threshold)
            return spike, self.after_reset(h, spike, drop)
        if self._resets_at_end():
            h = self.after_reset(h, late, drop)
        return (late if self.delay == "spike" else self.spikes(h, threshold)), h


def _options_of(neuron: type[Neuron]) -> list[str]:
    """The arguments that a neuron's constructor accepts, including arguments for its base classes."""
    names: dict[str, None] = {}
    for kind in neuron.__mro__:
        if "__init__" in vars(kind):
            own = list(inspect.signature(vars(kind)["__init__"]).parameters.values())[1:]
            names |= dict.fromkeys(p.name for p in own if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY))
            if not any(p.kind is p.VAR_KEYWORD for p in own):
                break
    return [name for name in names if name != "constants"]
