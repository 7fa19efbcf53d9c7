"""The spike times of neurons with two exponentials, found from event to event, and the adjoint that is their gradient.

The equations, and what the names mean, are in `eventprop.py`.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from snncell import dtype as dtypes, ops
from snncell.cell import Cell
from snncell.compiler.jit import Jitted
from snncell.errors import ArgumentError
from snncell.kernels.cuda.arrays import DeviceArray
from snncell.kernels.space import DEVICE, IN_USE
from snncell.nn.time import KEPT_TRACES
from snncell.tape.primitive import Primitive
from snncell.tape.tensor import Tensor

NEVER = 1e30  # stands for infinity in what is computed: differences of two such are no NaN
NEWTON_STEPS = 48  # each doubles the digits; where V just touches the threshold, each gives one more bit
TOGETHER = 4  # spikes whose gradients are computed by one kernel: it takes the longer to compile the more they are
NEARLY = 2.0**-40  # how far equal time constants are taken apart, relatively


def _times(x: Any) -> Any:
    if x.size and not x.min() > -np.inf:  # false for NaN too
        raise _no_time()
    return x


def _no_time() -> ArgumentError:
    return ArgumentError(
        "EventPropLIF: times holds NaN or -inf. A time is a number, or inf where there is no spike, for instance "
        "ops.where(ops.isnan(times), float('inf'), times)."
    )


class _Times(Primitive):
    """Spike times as they are, refused where they are none. A compiled Program on the GPU does not wait to look."""

    def run(self, arrays: Sequence[Any], inputs: Sequence[Any], attrs: dict[str, Any]) -> Any:
        """Evaluate in an eager call."""
        (x,) = arrays
        if IN_USE and isinstance(x, DeviceArray) and x.size:
            every = {"axis": tuple(range(x.ndim)), "keepdims": False}
            if not DEVICE.arithmetic["min"].on_device([x], every).host() > -np.inf:
                raise _no_time()
        return super().run(arrays, inputs, attrs)


checked_times = _Times("spike_times", _times)
checked_times.def_there(lambda x: x)


@checked_times.def_bprop
def _(_x: Tensor, _out: Tensor, dout: Tensor) -> Sequence[Any]:
    return (dout,)


class SpikeTimes(Cell):
    """The spike times of neurons from sorted events, and the adjoint; the equations are those of `EventPropLIF`.

    Inputs:
        times: (E, B), ascending.
        weights: (E, B, N), what each event adds to the current of each neuron.

    Returns:
        (K, B, N).
    """

    def __init__(self, tau_mem: float, tau_syn: float, v_threshold: float, spikes: int, t_max: float) -> None:
        super().__init__()
        self.tau_mem, self.tau_syn = tau_mem, tau_syn
        self.v_threshold = v_threshold
        self.spikes = spikes
        self.t_max = t_max

    def taus(self) -> tuple[float, float]:
        """The time constants of V and I; never the same, for where they meet the formulas divide 0 by 0."""
        return self.tau_mem, self.tau_syn if self.tau_syn != self.tau_mem else self.tau_mem * (1.0 - NEARLY)

    # --- a membrane between two events --------------------------------------------------------------------------------

    def waves(self, s: Any) -> tuple[Any, Any, Any]:
        """The decay of V and of I over a time, and kappa: accurate for close time constants and long times too."""
        mem, syn = self.taus()
        of_v, of_i = ops.exp(s / -mem), ops.exp(s / -syn)
        nearer = ops.expm1(s * (-abs(mem - syn) / (mem * syn)))
        return of_v, of_i, (of_v if mem > syn else of_i) * nearer * (-syn / abs(mem - syn))

    def potential(self, v: Any, i: Any, s: Any) -> tuple[Any, Any]:
        """V after a time `s`, and its slope, from V and I before it."""
        of_v, of_i, kappa = self.waves(s)
        later = v * of_v + i * kappa
        return later, (i * of_i - later) / self.tau_mem

    def until_peak(self, v: Any, i: Any) -> tuple[Any, Any]:
        """True where V rises towards a peak above 0, and the time until then; there is at most one."""
        mem, syn = self.taus()
        rising = (i > v) & (i > 0.0)
        scale = ops.where(rising, (mem - syn) * v + syn * i, 1.0)  # above 0 where a peak above 0 is
        rising = rising & (scale > 0.0)
        ratio = ops.where(rising, i - v, 0.0) / ops.where(rising, scale, 1.0)
        return rising, ops.log1p(ratio * (mem - syn)) * (mem * syn / (mem - syn))

    # --- forward ------------------------------------------------------------------------------------------------------

    def construct(self, times: Tensor, weights: Tensor) -> Tensor:
        spike_times: Tensor
        spike_times, places = self._compiled("find", times, weights)
        self.save_for_bprop(places)
        return spike_times

    def bprop(self, times: Tensor, weights: Tensor, out: Tensor, dout: Tensor) -> tuple[Tensor, Tensor]:
        grads: tuple[Tensor, Tensor] = self._compiled("send_back", times, weights, out, dout, *self.saved_for_bprop)
        return grads

    def _compiled(self, method: str, *arguments: Tensor) -> Any:
        """Call a method, traced once for each kind of arguments, not at each call."""
        loop = self._loop or Jitted(self._run_method, "EventPropLIF", KEPT_TRACES)
        self.__dict__["_loop"] = loop
        return loop(method, *arguments)

    def _run_method(self, method: str, *arguments: Tensor) -> Any:
        return getattr(self, method)(*arguments)

    def find(self, times: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        """The spike times, and the number of the event that each follows (-1 where there is no spike)."""
        end = min(self.t_max, NEVER)
        begin = ops.minimum(times, end)[..., None]
        stop = ops.concat([begin[1:], ops.full((1, *begin.shape[1:]), end, begin.dtype)])
        number = ops.arange(times.shape[0], dtype="int32").reshape(-1, 1, 1)
        zeros = ops.zeros_like(weights[0])
        spike, at, i = zeros - NEVER, ops.zeros_like(zeros, dtypes.int32) - 1, zeros
        spike_times, places = [], []
        for _ in range(self.spikes):
            spike, at, i = self._next((begin, stop, weights, number), spike, at, i)
            spike_times.append(ops.where(spike < end, spike, math.inf))
            places.append(at)
        return ops.stack(spike_times), ops.stack(places)

    def _next(self, events: Any, spike: Tensor, at: Tensor, i: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The spike after one, the event that it follows, and the current there.

        Args:
            events: times from and until, weights, and numbers of the events.
            spike: the time of the spike before, after which V is 0.
            at: the number of the event that this spike followed.
            i: the current there.
        """

        def step(carry: Any, event: Any) -> Any:
            v, i, *held, where = carry
            begin, stop, weight, number = event
            i = i + ops.where(number > at, weight, 0.0)
            begin = ops.maximum(begin, spike)
            length = ops.maximum(stop, spike) - begin
            rising, peak = self.until_peak(v, i)
            most = ops.minimum(peak, length)
            crosses = rising & (self.potential(v, i, most)[0] >= self.v_threshold) & (where < 0)
            now = (v, i, begin, most)
            held = [ops.where(crosses, a, b) for a, b in zip(now, held, strict=True)]
            of_v, of_i, kappa = self.waves(length)
            return (v * of_v + i * kappa, i * of_i, *held, ops.where(crosses, number, where)), None

        zeros = ops.zeros_like(i)
        nowhere = ops.zeros_like(at) - 1
        last, _ = ops.scan(step, (zeros, i, zeros, zeros, zeros, zeros, nowhere), events)
        v, i, begin, most, where = last[2:]
        s = self._crossing(v, i, most)
        spiked = where >= 0
        # Where there is no spike, time is over: no event is left for those that would follow.
        return ops.where(spiked, begin + s, NEVER), where, ops.where(spiked, i * ops.exp(s / -self.taus()[1]), 0.0)

    def _crossing(self, v: Tensor, i: Tensor, most: Tensor) -> Tensor:
        """When V reaches the threshold, at the latest after `most`: by Newton from the left.

        V is concave as long as it rises, so a tangent reaches the threshold before V does: no step goes too far.
        """

        def step(s: Any, _: Any) -> Any:
            potential, slope = self.potential(v, i, s)
            missing = ops.maximum(self.v_threshold - potential, 0.0)
            return ops.minimum(s + missing / ops.maximum(slope, 1e-30), most), None

        s: Tensor = ops.scan(step, ops.zeros_like(most), ops.zeros((NEWTON_STEPS,), most.dtype))[0]
        return s

    # --- reverse ------------------------------------------------------------------------------------------------------

    def send_back(
        self, times: Tensor, weights: Tensor, out: Tensor, dout: Tensor, places: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The gradients of the times and weights of the events."""
        end = min(self.t_max, NEVER)
        begin = ops.minimum(times, end)[..., None]
        number = ops.arange(times.shape[0], dtype="int32").reshape(-1, 1, 1)
        spiked = out < math.inf
        spikes = ops.where(spiked, out, end)
        sent = ops.unstack(self._sent(begin, weights, number, spikes, spiked, places, dout))
        pairs = list(zip(sent, ops.unstack(spikes), ops.unstack(places), strict=True))

        gradients = [
            self._received((begin, weights, number), pairs[first : first + TOGETHER])
            for first in range(0, len(pairs), TOGETHER)
        ]
        of_times, of_weights = (functools.reduce(operator.add, parts) for parts in zip(*gradients, strict=True))
        return of_times.sum(-1), of_weights

    def _received(self, events: Any, spikes: Any) -> Any:
        """The gradient that some of the spikes send to the time and the weight of each event."""

        def step(_: Any, event: Any) -> Any:
            begin, weight, number = event
            of_weight = of_time = 0.0
            for a, spike, place in spikes:
                before = number <= place
                s = ops.where(before, spike - begin, 0.0)
                _, of_i, kappa = self.waves(s)
                of_weight = of_weight + a * kappa
                of_time = of_time + ops.where(before, a, 0.0) * (kappa - of_i) / self.tau_mem  # -kappa' of it
            return (), (of_time * weight, of_weight)

        return ops.scan(step, (), events)[1]

    def _sent(
        self, begin: Tensor, weights: Tensor, number: Tensor, spikes: Tensor, spiked: Tensor, places: Tensor, dout: Any
    ) -> Tensor:
        """The gradient that each spike sends back, a_k: (K, B, N)."""

        def arrive(current: Any, event: Any) -> Any:
            begin, weight, number = event
            before = number <= places
            decay = ops.exp(ops.where(before, begin - spikes, 0.0) / self.taus()[1])
            return current + ops.where(before, weight * decay, 0.0), None

        current, _ = ops.scan(arrive, ops.zeros_like(spikes), (begin, weights, number))
        slope = (current - self.v_threshold) / self.tau_mem
        least = float(np.finfo(slope.dtype.dtype).eps) * self.v_threshold / self.tau_mem  # what rounding makes of 0
        slope = ops.where(spiked, ops.maximum(slope, least), 1.0)
        gaps = ops.concat([spikes[1:] - spikes[:-1], ops.zeros_like(spikes[:1])])

        def send(carry: Any, spike: Any) -> Any:
            received, later = carry
            gap, gradient, slope, spiked = spike
            received = (received + later) * ops.exp(gap / -self.tau_mem)
            a = (received * (self.v_threshold / self.tau_mem) - gradient) / slope
            a = ops.where(spiked, a, 0.0)
            return (received, a), a

        nothing = ops.zeros_like(spikes[0])
        sent: Tensor = ops.scan(send, (nothing, nothing), (gaps, dout, slope, spiked), reverse=True)[1]
        return sent
