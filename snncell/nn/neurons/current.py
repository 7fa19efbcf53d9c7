"""Neurons with synapses: the input is a current that decays by itself."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np

from snncell import ops
from snncell.base.arguments.shown import show
from snncell.cell.cell import Cell
from snncell.cell.fields import field, with_fields
from snncell.cell.ranges import DECAY, FINITE, Range, numbers_of, quote_value, unknown
from snncell.errors import ArgumentError
from snncell.nn.neurons.base import Neuron
from snncell.nn.neurons.constants import Membrane, add_rest, from_rest
from snncell.tape.tensor import Tensor, beside

ORDERS = ("decay jump read", "jump read decay", "jump decay read", "read decay jump")
ORDER = field(
    ORDERS[0],
    ORDERS,
    "order of the three parts of a step, in the order snnTorch and SpikingJelly, Norse (the state is the current after "
    "its decay), sinabs, Norse's LSNN (one step later)",
)


def synapse(i: Any, x: Any, alpha: Any, order: str) -> tuple[Any, Any]:
    """One step of a current i: the part that the membrane reads, and the state to carry on."""
    if order == "decay jump read":
        i = alpha * i + x
        return i, i
    if order == "jump read decay":
        i = i + x
        return i, alpha * i
    if order == "jump decay read":
        i = alpha * (i + x)
        return i, i
    return i, alpha * i + x


@with_fields
class CubaLIFNode(Neuron):
    """A leaky neuron that is driven by a synaptic current.

    i = alpha i + x
    h = v_rest + beta (v - v_rest) + current_gain i
    s and v as for every `Neuron`

    Frameworks carry out the parts of the first line in different orders, which `order` names: the current decays, jumps
    by the input, and is read by the membrane.

    Inputs, Returns: x, v, i, the input, the potential and the current, of one shape; (s, v, i).

    Source: Neftci, Mostafa, Zenke, "Surrogate Gradient Learning in Spiking Neural Networks", IEEE SPM 2019.

    Example:
        >>> spike, v, i = nn.CubaLIFNode(alpha=0.5, beta=0.5)(Tensor([0.5]), Tensor([0.0]), Tensor([0.6]))
        >>> print(v, i)
        [0.8] [0.8]
    """

    alpha: Any = field(0.9, DECAY, "decay of the current")
    beta: Any = field(0.9, DECAY, "decay of the potential")
    current_gain: Any = field(1.0, FINITE, "factor of the current that the membrane reads; 1 - beta makes v follow i")
    v_rest: Any = field(0.0, FINITE, "resting potential")
    order: str = ORDER
    starts = "v_rest"
    other_states = (0.0,)

    def construct(self, x: Tensor, v: Tensor, i: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        v, late = self.recall(v)
        current, i = synapse(i, self.gained(x), self.alpha, self.order)
        h = add_rest(self.beta * from_rest(v, self.v_rest) + self.read(current), self.v_rest)
        return (*self.fired(h, late), i)

    def read(self, current: Tensor) -> Any:
        """By how much the current raises the potential in a step."""
        return current * self.current_gain


@with_fields
class AlphaNode(Neuron):
    """A neuron whose response to an input rises and falls: the difference of two exponentials.

    e = alpha e + x
    i = beta i - x
    h = k (e + i),  k = ln alpha / (ln beta - ln alpha) + 1
    s = surrogate(h - v_threshold)
    e, i, v = (1 - s) (e, i, h)              reset="zero"
    e = e - s v_threshold / k                reset="subtract", which lowers h by v_threshold

    The potential has no memory of its own; it is a state so that it can be recorded, and for a delayed reset.

    Inputs, Returns: x, e, i, v, the input, the slow and the fast exponential, the potential; (s, e, i, v).

    Source: Rall 1967; the spike response model of Gerstner et al., Neuronal Dynamics, section 6.4; snnTorch, Alpha.

    Example:
        >>> spike, e, i, v = nn.AlphaNode(0.9, 0.8)(Tensor([1.0]), Tensor([0.0]), Tensor([0.0]), Tensor([0.0]))
        >>> print(e, i, v)  # an input acts one step later
        [1.] [-1.] [0.]
    """

    alpha: Any = field(0.9, DECAY, "decay of the slow exponential")
    beta: Any = field(0.8, DECAY, "decay of the fast one, below alpha")
    resets = ("subtract", "zero", None)
    delays = (None, "reset+input", "spike")  # a delayed reset takes the input of its step, too
    starts = 0.0
    other_states = (0.0, 0.0)

    def _complete(self, given: dict[str, Any]) -> None:
        """Set alpha anew, now that its lower end is known."""
        self.alpha = self.__dict__["alpha"]

    def range_of(self, name: str) -> Range:
        """The range of a constant: 0 < beta < alpha < 1."""
        if name not in ("alpha", "beta") or not {"alpha", "beta"} <= self.__dict__.keys():
            return super().range_of(name)
        text = "keeps 0 < beta < alpha < 1"
        return Range(self.beta, 1.0, text=text) if name == "alpha" else Range(0.0, self.alpha, text=text)

    def check_constant(self, name: str, value: Any) -> None:
        """Refuse a value that a constant cannot have, or that one decay cannot have beside the other."""
        if name not in ("alpha", "beta"):
            super().check_constant(name, value)
            return
        DECAY.check(value, type(self).__name__, name)
        both = {key: self.__dict__[key] for key in ("alpha", "beta") if key in self.__dict__} | {name: value}
        if len(both) == 2 and not any(unknown(x) for x in both.values()):
            slow, fast = numbers_of(both["alpha"]), numbers_of(both["beta"])
            if not np.all((fast > 0.0) & (fast < slow) & (slow < 1.0)):
                values = f"alpha is {quote_value(both['alpha'])} and beta {quote_value(both['beta'])}"
                raise ArgumentError(f"{type(self).__name__}: 0 < beta < alpha < 1, but {values}.")

    def scale(self, alpha: Any, beta: Any) -> Any:
        """k: how high the response is."""
        tensor = next((x for x in (alpha, beta) if isinstance(x, Tensor)), None)
        if tensor is None:
            return math.log(alpha) / (math.log(beta) - math.log(alpha)) + 1.0
        with beside(tensor):  # a number beside a Tensor has its precision
            slow, fast = (ops.log(x if isinstance(x, Tensor) else Tensor(x, tensor.dtype)) for x in (alpha, beta))
        return slow / (fast - slow) + 1.0

    def construct(self, x: Tensor, e: Tensor, i: Tensor, v: Tensor) -> tuple[Tensor, ...]:
        alpha, beta, x = self.alpha, self.beta, self.gained(x)
        k = self.scale(alpha, beta)
        late = None if self.delay is None else self.spikes(v)
        e, i = alpha * e + x, beta * i - x
        h = k * (e + i)
        if late is None:
            s = self.spikes(h)
            return (s, *self.cleared(s, e, i, h, k))
        e, i, h = self.cleared(late, e, i, h, k)
        return (late if self.delay == "spike" else self.spikes(h)), e, i, h

    def cleared(self, s: Tensor, e: Tensor, i: Tensor, h: Tensor, k: Any) -> tuple[Tensor, Tensor, Tensor]:
        """The states after the reset."""
        if self.reset == "zero":
            return self.after_reset(e, s), self.after_reset(i, s), self.after_reset(h, s)
        return self.after_reset(e, s, self.v_threshold / k), i, self.after_reset(h, s)


# --- a synapse before any neuron --------------------------------------------------------------------------------------


def _neuron(cell: Any, who: str, name: str) -> Any:
    """A Cell of one step, after checking that it is one."""
    if not isinstance(cell, Cell) or not hasattr(cell, "init_state"):
        raise ArgumentError(f"{who}: {name} is a neuron, an object such as nn.ALIFNode(), not {show(cell)}.")
    return cell


@with_fields(by_place="cell alpha order")
class WithSynapse(Membrane):
    """A neuron whose input is a synaptic current, which decays by itself and jumps by what comes in.

    i = alpha i + x
    s, *states = cell(i, *states)

    CubaLIFNode(alpha, beta) has the spikes and potentials of WithSynapse(LeakyNode(beta), alpha). It is a Cell of one
    step whose first state is the current; run it by `MultiStep`, which makes one kernel of both.

    Inputs, Returns: x, i, *states, the input, the current and the neuron's own states; (s, i, *states).

    Source: Neftci, Mostafa, Zenke, "Surrogate Gradient Learning in Spiking Neural Networks", IEEE SPM 2019; the
    adaptive neurons with synapses of Norse (LSNN, LIFAdEx) and sinabs (ALIF with tau_syn).

    Example:
        >>> adaptive = nn.WithSynapse(nn.ALIFNode(alpha=0.8), alpha=0.5)
        >>> spikes, (i, v, a) = nn.MultiStep(adaptive, return_states=True)(ops.ones((4, 1)) * 0.9)
        >>> print(spikes[:, 0], i)
        [0. 1. 0. 1.] [1.6875]
    """

    cell: Annotated[Any, field(meaning="the neuron, a Cell of one step with `init_state`", convert=_neuron)]
    alpha: Any = field(0.9, DECAY, "decay of the current, exp(-dt / tau_syn)")
    order: str = ORDER
    learnable: str | Sequence[str] = field((), None, '"alpha", if it is to be learned', keep=False)

    def construct(self, x: Tensor, i: Tensor, *states: Tensor) -> tuple[Tensor, ...]:
        current, i = synapse(i, x, self.alpha, self.order)
        s, *after = self.cell(current, *states)
        return (s, i, *after)

    def _refuse_shapes(self, x: tuple[int, ...], states: list[tuple[int, ...]]) -> None:
        """Raise unless the current broadcasts to the input; the neuron looks at its own states."""
        super()._refuse_shapes(x, states[:1])

    def init_state(self, x: Tensor) -> tuple[Tensor, ...]:
        """No current, and the neuron's own initial states."""
        first = self.cell.init_state(x)
        return (self.filled(x, 0.0), *(first if isinstance(first, tuple) else (first,)))
