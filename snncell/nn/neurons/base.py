"""The base of spiking neurons: their options, and a step, in which they charge, fire and are reset."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Annotated, Any

from snncell.base.arguments.kinds import Own
from snncell.cell.fields import field, fields_of, with_fields
from snncell.cell.ranges import FINITE, one_of
from snncell.errors import ArgumentError, CallError
from snncell.nn.neurons.elsewhere import frameworks_with
from snncell.nn.neurons.firing import DEFAULT, SPIKE_FUNCTION, Thresholded, spike_function
from snncell.tape.tensor import Tensor


@with_fields(kw_only=True)
class Neuron(Thresholded):
    """A spiking neuron: what happens to the charged potential h at the threshold.

    s = surrogate(h - v_threshold)
    v = h - s v_threshold                    reset="subtract"
    v = (1 - s) h + s v_reset                reset="value" (v_reset), or "zero" (0)
    v = h                                    reset=None

    Args:
        constants: the neuron's own, by name.

    A neuron of your own is a subclass with `charge(x, v)`, the equation of h. One with more states, or another output,
    has a `construct` in its place, which begins with `recall` and ends with `fired`. Its constants are fields
    (`nn.with_fields`), or a dict that its `__init__` hands on.

    Raises:
        ArgumentError: for values that make no sense.
        CallError: for an option that the neuron does not take; it lists those of the neuron.

    Example:
        >>> class Cubic(nn.Neuron):
        ...     def charge(self, x, v):
        ...         return v - self.steepness * v * v * v + x
        >>> node = Cubic({"steepness": 0.5}, reset="zero", learnable="steepness")
        >>> print(nn.MultiStep(node)(ops.ones((4, 1)) * 0.6)[:, 0])
        [0. 1. 0. 1.]
    """

    v_threshold: Any = field(1.0, FINITE, 'where it fires: positive, with reset="value" above v_reset')
    v_reset: Any = field(0.0, FINITE, 'where reset="value" puts the potential')
    reset: str | None = field("subtract", Thresholded.resets, "effect of a spike on the potential")
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
    starts = "v_reset"

    def __init__(self, constants: dict[str, Any], **options: Any) -> None:
        shared = fields_of(Neuron)
        if unknown := [name for name in options if name not in shared]:
            self._refuse_options(unknown)
        given = {name: one.default for name, one in shared.items()} | options
        own = {name: given[name] for name in ("v_threshold", "v_reset", "input_gain")}
        super().__init__(constants | own, given["learnable"])
        who, most = type(self).__name__, given["max_spikes"]
        for name in ("reset", "delay", "detach_reset"):
            setattr(self, name, given[name])
        self.compare = one_of(given["compare"], (">", ">="), who, "compare")
        if self.one_at_most:
            one_of(most, (1,), who, "max_spikes")
        self.fire_by(spike_function(given["surrogate_function"], self.compare, most, who), most)

    def init_state(self, x: Tensor) -> Any:
        """The state before the first step: v_reset everywhere."""
        return self.filled(x, getattr(self, self.starts))

    def starting_at(self, name: str) -> Neuron:
        """The neuron itself, with that constant as its first potential: frameworks differ in it."""
        self.starts = name
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
