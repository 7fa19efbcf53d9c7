"""Neurons with synapses: currents, conductances, a synapse for any neuron, and short-term plasticity."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np

from snncell import ops
from snncell.base.arguments.shown import show
from snncell.cell.cell import Cell
from snncell.cell.fields import field, with_fields
from snncell.cell.ranges import DECAY, FINITE, POSITIVE, TAU, Range, is_traced, numbers_of, quote_value
from snncell.errors import ArgumentError
from snncell.nn.neurons.base import Neuron
from snncell.nn.neurons.constants import Membrane, add_rest, from_rest
from snncell.nn.neurons.convert import decay_from_tau
from snncell.tape.tensor import Tensor, on_device_of

__all__ = ["AlphaNode", "CobaLIFNode", "CubaLIFNode", "ShortTermPlasticity", "WithSynapse"]

SHARE = Range(0.0, 1.0, "high")
ORDERS = ("decay jump read", "jump read decay", "jump decay read", "read decay jump")
ORDER = field(
    ORDERS[0],
    ORDERS,
    "order in which the current decays, jumps by the input, and is read by the membrane. snnTorch and SpikingJelly use "
    "the first, Norse the second (the state is the decayed current), sinabs the third, and Norse's LSNN the last (an "
    "input acts one step later)",
)


def synapse(i: Any, x: Any, alpha: Any, order: str) -> tuple[Any, Any]:
    """One time step of a current i: the value that the membrane reads, and the next state."""
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
    """Current-based LIF (CUBA-LIF): a leaky neuron driven by a synaptic current that decays exponentially.

        i = alpha i + x
        h = v_rest + beta (v - v_rest) + current_gain * i
        s = surrogate(h - v_threshold)
        v = h - s * v_threshold                  reset="subtract"; see `Neuron` for the others

    Use it if an input spike should act over several steps: the current is a low-pass filter before a `LeakyNode`. With
    its options it is snnTorch's Synaptic, SpikingJelly's CUBALIFNode, Norse's LIF or NIR's CubaLIF (see `like`). With
    the default decay factors of 0.9, current and potential forget over about 10 steps.
    Inputs: x, v, i: the input, the potential and the current, of the same shape.
    Returns: (s, v, i).
    Source: Neftci, Mostafa, Zenke, "Surrogate Gradient Learning in Spiking Neural Networks", IEEE SPM 2019.
    Example:
        >>> spike, v, i = nn.CubaLIFNode(alpha=0.5, beta=0.5)(Tensor([0.5]), Tensor([0.0]), Tensor([0.6]))
        >>> print(v, i)
        [0.8] [0.8]
    """

    alpha: Any = field(0.9, DECAY, "decay factor of the current")
    beta: Any = field(0.9, DECAY, "decay factor of the potential")
    current_gain: Any = field(1.0, FINITE, "gain from current to potential; with 1 - beta, v approaches v_rest + i")
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
        """The rise of the potential by the current in a step."""
        return current * self.current_gain


@with_fields
class CobaLIFNode(Neuron):
    """Conductance-based LIF (COBA-LIF): synapses are conductances, which pull v to their reversal potentials.

        g_e = alpha_e g_e + max(x, 0)            excitatory conductance, in units of the leak conductance
        g_i = alpha_i g_i + max(-x, 0)           inhibitory conductance
        g = 1 + g_e + g_i,  u = (v_rest + g_e e_exc + g_i e_inh) / g
        h = u + (v - u) exp(-g / tau)            scheme="exponential"
        h = v + (u - v) g / tau                  scheme="euler"
        s = surrogate(h - v_threshold)
        v = (1 - s) h + s * v_reset              reset="value"; see `Neuron` for the others

    Compared with `CubaLIFNode`, an input has less effect close to its reversal potential, and strong input shortens the
    time constant to tau / g (shunting). Exponential Euler solves tau dv/dt = g (u - v) exactly for a conductance that
    is constant within a step, so v stays between e_inh and e_exc for any input. The Euler step is Norse's, and is
    stable only for g < 2 tau. x is the net input: excitation and inhibition of a step cancel before they reach the
    neuron. The defaults are the paper's, with steps of 1 ms and potentials (V + 60 mV) / 10 mV: rest at 0, threshold at
    1, reversal potentials of 0 and -80 mV, and time constants of 20 ms (membrane), 5 ms and 10 ms (synapses).
    Inputs: x, v, g_e, g_i: the input, the potential and the conductances, of the same shape.
    Returns: (s, v, g_e, g_i).
    Source: Vogels and Abbott, "Signal Propagation and Logic Gating in Networks of Integrate-and-Fire Neurons", Journal
    of Neuroscience 2005; exponential Euler: Boergers and Nectow, SIAM J. Scientific Computing 2013; Norse, CobaLIF.
    Example:
        >>> spike, v, g_e, g_i = nn.CobaLIFNode()(Tensor([0.6, -6.7]), *[ops.zeros((2,))] * 3)
        >>> print(ops.round(v * 1000.0))  # a spike of a weight of 6 nS, and one of -67 nS; the leak is 10 nS
        [ 173. -556.]
    """

    tau: Any = field(20.0, TAU, "time constant of the membrane without input, C / g_leak")
    alpha_e: Any = field(0.819, DECAY, "decay factor of g_e")
    alpha_i: Any = field(0.905, DECAY, "decay factor of g_i")
    e_exc: Any = field(6.0, FINITE, "excitatory reversal potential")
    e_inh: Any = field(-2.0, FINITE, "inhibitory reversal potential")
    v_rest: Any = field(0.0, FINITE, "resting potential, the reversal potential of the leak")
    scheme: str = field("exponential", ("exponential", "euler"), "the discretisation of the membrane equation")
    order: str = field(
        ORDERS[0], ORDERS, "order in which conductances decay, jump by the input, and are read", quiet=True
    )
    reset = field("value")
    starts = "v_rest"
    other_states = (0.0, 0.0)

    def construct(self, x: Tensor, v: Tensor, g_e: Tensor, g_i: Tensor) -> tuple[Tensor, ...]:
        v, late = self.recall(v)
        x = self.gained(x)
        x = x if x.dtype.is_float else x.astype(v.dtype)  # because -x of a byte is 256 - x
        e, g_e = synapse(g_e, ops.relu(x), self.alpha_e, self.order)
        i, g_i = synapse(g_i, ops.relu(-x), self.alpha_i, self.order)
        g, current = 1.0 + e + i, add_rest(self.e_exc * e + self.e_inh * i, self.v_rest)
        if self.scheme == "euler":
            h = v + (current - g * v) / self.tau
        else:
            u = current / g
            h = u + (v - u) * ops.exp(-g / self.tau)
        return (*self.fired(h, late), g_e, g_i)


@with_fields
class AlphaNode(Neuron):
    """Alpha neuron (spike response model): the response to an input rises and falls like an alpha function.

        e = alpha e + x
        i = beta i - x
        h = k (e + i),  k = ln alpha / (ln beta - ln alpha) + 1
        s = surrogate(h - v_threshold)
        e, i, v = (1 - s) (e, i, h)              reset="zero"
        e = e - s * v_threshold / k              reset="subtract", which lowers h by v_threshold

    Use it if the shape of the postsynaptic potential matters, for example with temporal codes. The potential v follows
    from the exponentials e and i; it is a state only for monitors and delayed resets.
    Inputs: x, e, i, v: the input, the slow and the fast exponential, and the potential, of the same shape.
    Returns: (s, e, i, v).
    Source: Rall 1967; the spike response model of Gerstner et al., Neuronal Dynamics, section 6.4; snnTorch, Alpha.
    Example:
        >>> spike, e, i, v = nn.AlphaNode(0.9, 0.8)(Tensor([1.0]), Tensor([0.0]), Tensor([0.0]), Tensor([0.0]))
        >>> print(e, i, v)  # an input acts one step later
        [1.] [-1.] [0.]
    """

    alpha: Any = field(0.9, DECAY, "decay factor of the slow exponential")
    beta: Any = field(0.8, DECAY, "decay factor of the fast exponential, which must be below alpha")
    resets = ("subtract", "zero", None)
    delays = (None, "reset+input", "spike")  # a delayed reset acts after the input of its step
    starts = 0.0
    other_states = (0.0, 0.0)

    def _complete(self, given: dict[str, Any]) -> None:
        """Check alpha again, now that beta, its lower limit, is known."""
        self.alpha = self.__dict__["alpha"]

    def range_of(self, name: str) -> Range:
        if name not in ("alpha", "beta") or not {"alpha", "beta"} <= self.__dict__.keys():
            return super().range_of(name)
        text = "keeps 0 < beta < alpha < 1"
        return Range(self.beta, 1.0, text=text) if name == "alpha" else Range(0.0, self.alpha, text=text)

    def check_constant(self, name: str, value: Any) -> None:
        if name not in ("alpha", "beta"):
            super().check_constant(name, value)
            return
        DECAY.check(value, type(self).__name__, name)
        both = {key: self.__dict__[key] for key in ("alpha", "beta") if key in self.__dict__} | {name: value}
        if len(both) == 2 and not any(is_traced(x) for x in both.values()):
            slow, fast = numbers_of(both["alpha"]), numbers_of(both["beta"])
            if not np.all((fast > 0.0) & (fast < slow) & (slow < 1.0)):
                values = f"alpha is {quote_value(both['alpha'])} and beta {quote_value(both['beta'])}"
                raise ArgumentError(f"{type(self).__name__} needs 0 < beta < alpha < 1, but {values}.")

    def scale(self, alpha: Any, beta: Any) -> Any:
        """The factor k, which normalises the response."""
        tensor = next((x for x in (alpha, beta) if isinstance(x, Tensor)), None)
        if tensor is None:
            return math.log(alpha) / (math.log(beta) - math.log(alpha)) + 1.0
        with on_device_of(tensor):  # converts the number to the Tensor's dtype
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
            return (s, *self._reset_states(s, e, i, h, k))
        e, i, h = self._reset_states(late, e, i, h, k)
        return (late if self.delay == "spike" else self.spikes(h)), e, i, h

    def _reset_states(self, s: Tensor, e: Tensor, i: Tensor, h: Tensor, k: Any) -> tuple[Tensor, Tensor, Tensor]:
        if self.reset == "zero":
            return self.after_reset(e, s), self.after_reset(i, s), self.after_reset(h, s)
        return self.after_reset(e, s, self.v_threshold / k), i, self.after_reset(h, s)


# --- a synapse before any neuron --------------------------------------------------------------------------------------


def _neuron(cell: Any, who: str, name: str) -> Any:
    if not isinstance(cell, Cell) or not hasattr(cell, "init_state"):
        raise ArgumentError(f"{who}: {name} must be a neuron, an object such as nn.ALIFNode(), not {show(cell)}.")
    return cell


@with_fields(by_place="cell alpha order")
class WithSynapse(Membrane):
    """Synaptic current for any neuron: the input first passes through an exponentially decaying current.

        i = alpha i + x
        s, *states = cell(i, *states)

    Use it to give neurons such as `ALIFNode` or `EIFNode` a synapse. `WithSynapse(LeakyNode(beta), alpha)` has the
    spikes and potentials of `CubaLIFNode(alpha, beta)`. `MultiStep` compiles current and neuron into one kernel.
    Inputs: x, i, *states: the input, the current, and the states of `cell`, of the same shape.
    Returns: (s, i, *states).
    Source: Neftci, Mostafa, Zenke, "Surrogate Gradient Learning in Spiking Neural Networks", IEEE SPM 2019; the
    adaptive neurons with synapses of Norse (LSNN, LIFAdEx) and sinabs (ALIF with tau_syn).
    Example:
        >>> adaptive = nn.WithSynapse(nn.ALIFNode(alpha=0.8), alpha=0.5)
        >>> spikes, (i, v, a) = nn.MultiStep(adaptive, return_states=True)(ops.ones((4, 1)) * 0.9)
        >>> print(spikes[:, 0], i)
        [0. 1. 0. 1.] [1.6875]
    """

    cell: Annotated[Any, field(meaning="the neuron, a Cell of one step with `init_state`", convert=_neuron)]
    alpha: Any = field(0.9, DECAY, "decay factor of the current, exp(-dt / tau_syn)")
    order: str = ORDER
    learnable: str | Sequence[str] = field((), None, 'pass "alpha" to learn it', keep=False)

    def construct(self, x: Tensor, i: Tensor, *states: Tensor) -> tuple[Tensor, ...]:
        current, i = synapse(i, x, self.alpha, self.order)
        s, *after = self.cell(current, *states)
        return (s, i, *after)

    def _refuse_shapes(self, x: tuple[int, ...], states: list[tuple[int, ...]]) -> None:
        """Check only the current; the neuron checks its own states."""
        super()._refuse_shapes(x, states[:1])

    def init_state(self, x: Tensor) -> tuple[Tensor, ...]:
        """Start with a current of 0 and the neuron's own initial states."""
        first = self.cell.init_state(x)
        return (self.filled(x, 0.0), *(first if isinstance(first, tuple) else (first,)))


@with_fields
class ShortTermPlasticity(Membrane):
    """Short-term plasticity (STP): the strength of a synapse changes with its own recent spikes (Tsodyks-Markram).

        u = u exp(-1 / tau_f)                    facilitation decays,
        r = 1 - (1 - r) exp(-1 / tau_d)          and resources recover, since the last step
        u = u + x U (1 - u)                      a spike raises u, the share of the resources that it uses
        y = x u r                                the spike, scaled by its strength
        r = r - y

    Use it between presynaptic spikes and a layer with weights. All synapses of a presynaptic neuron share u and r, so
    they have the same strength, U for the first spike. A large U with tau_d > tau_f depresses, a small U with
    tau_f > tau_d facilitates. Between spikes this solves du/dt = -u / tau_f and dr/dt = (1 - r) / tau_d exactly.
    Inputs: x: spikes, 0 or 1; u and r: the states, of the same shape.
    Returns: (y, u, r).
    Source: Markram, Wang and Tsodyks, "Differential signaling via the same axon of neocortical pyramidal neurons", PNAS
    1998; Tsodyks and Wu, "Short-term synaptic plasticity", Scholarpedia 2013. The defaults are its depressing synapse
    (in ms). Its facilitating synapse has U=0.15, tau_f=750 and tau_d=50.
    Example:
        >>> strengths = nn.MultiStep(nn.ShortTermPlasticity(U=0.5, tau_f=1.0, tau_d=100.0))(ops.ones((4, 1)))
        >>> print(strengths[:, 0].asnumpy().round(3))
        [0.5   0.299 0.13  0.057]
    """

    U: Any = field(0.45, SHARE, "share of the resources that the first spike uses")
    tau_f: Any = field(50.0, POSITIVE, "time constant of facilitation, in steps")
    tau_d: Any = field(750.0, POSITIVE, "time constant of recovery from depression, in steps")
    learnable: str | Sequence[str] = field((), None, 'names of the constants to learn, for example "U"', keep=False)

    def construct(self, x: Tensor, u: Tensor, r: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        u, r = u * decay_from_tau(self.tau_f), 1.0 - (1.0 - r) * decay_from_tau(self.tau_d)
        u = u + x * self.U * (1.0 - u)
        y = x * u * r
        return y, u, r - y

    def init_state(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Start without facilitation and with all resources."""
        return self.filled(x, 0.0), self.filled(x, 1.0)
