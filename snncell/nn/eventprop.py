"""EventProp: a layer of spiking neurons that takes and gives spike times, with the exact gradient of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from snncell import dtype as dtypes, ops
from snncell.cell import Cell
from snncell.common.initializer import Normal, initializer
from snncell.errors import ArgumentError, DTypeError, ShapeError
from snncell.kernels.space import DEVICE, IN_USE
from snncell.nn.layer import positive
from snncell.ops.sorting import permuted
from snncell.tape.parameter import Parameter
from snncell.tape.primitive import Primitive
from snncell.tape.tensor import Tensor

NEVER = 1e30  # stands for infinity in what is computed: differences of two such are no NaN
NEWTON_STEPS = 48  # each doubles the digits; where V just touches the threshold, each gives one more bit
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
        if IN_USE and hasattr(x, "memory") and x.size:
            every = {"axis": tuple(range(x.ndim)), "keepdims": False}
            if not DEVICE.arithmetic["min"].on_device([x], every).host() > -np.inf:
                raise _no_time()
        return super().run(arrays, inputs, attrs)


_checked = _Times("spike_times", _times)
_checked.def_there(lambda x: x)


@_checked.def_bprop
def _(_x: Tensor, _out: Tensor, dout: Tensor) -> Sequence[Any]:
    return (dout,)


class _SpikeTimes(Cell):
    """The spike times of neurons from sorted events, and the adjoint; the equations are those of `EventPropLIF`.

    Inputs:
        times: (E, B), ascending.
        weights: (E, B, N), what each event adds to the current of each neuron.

    Returns:
        (K, B, N).
    """

    def __init__(self, tau_mem: float, tau_syn: float, v_threshold: float, spikes: int, t_max: float) -> None:
        super().__init__()
        self.tau_mem = tau_mem
        self.tau_syn = tau_syn if tau_syn != tau_mem else tau_mem * (1.0 - NEARLY)
        self.v_threshold = v_threshold
        self.spikes = spikes
        self.end = min(t_max, NEVER)

    # --- a membrane between two events --------------------------------------------------------------------------------

    def waves(self, s: Any) -> tuple[Any, Any, Any]:
        """The decay of V and of I over a time, and kappa: accurate for close time constants and long times too."""
        of_v, of_i = ops.exp(s / -self.tau_mem), ops.exp(s / -self.tau_syn)
        difference = abs(self.tau_mem - self.tau_syn)
        nearer = ops.expm1(s * (-difference / (self.tau_mem * self.tau_syn)))
        slower = of_v if self.tau_mem > self.tau_syn else of_i
        return of_v, of_i, slower * nearer * (-self.tau_syn / difference)

    def potential(self, v: Any, i: Any, s: Any) -> tuple[Any, Any]:
        """V after a time `s`, and its slope, from V and I before it."""
        of_v, of_i, kappa = self.waves(s)
        later = v * of_v + i * kappa
        return later, (i * of_i - later) / self.tau_mem

    def until_peak(self, v: Any, i: Any) -> tuple[Any, Any]:
        """Whether V rises towards a peak above 0, and the time until then; there is at most one."""
        difference = self.tau_mem - self.tau_syn
        rising = (i > v) & (i > 0.0)
        scale = ops.where(rising, difference * v + self.tau_syn * i, 1.0)  # above 0 where a peak above 0 is
        rising = rising & (scale > 0.0)
        ratio = ops.where(rising, i - v, 0.0) / ops.where(rising, scale, 1.0)
        return rising, ops.log1p(ratio * difference) * (self.tau_mem * self.tau_syn / difference)

    # --- forward ------------------------------------------------------------------------------------------------------

    def construct(self, times: Tensor, weights: Tensor) -> Tensor:
        begin = ops.minimum(times, self.end)[..., None]
        stop = ops.concat([begin[1:], ops.full((1, *begin.shape[1:]), self.end, begin.dtype)])
        number = ops.arange(times.shape[0], dtype="int32").reshape(-1, 1, 1)
        zeros = ops.zeros_like(weights[0])
        spike, at, i = zeros - NEVER, ops.zeros_like(zeros, dtypes.int32) - 1, zeros
        found, places = [], []
        for _ in range(self.spikes):
            spike, at, i = self._next((begin, stop, weights, number), spike, at, i)
            found.append(ops.where(spike < self.end, spike, math.inf))
            places.append(at)
        self.save_for_bprop(ops.stack(places))
        return ops.stack(found)

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
        return ops.where(spiked, begin + s, NEVER), where, ops.where(spiked, i * ops.exp(s / -self.tau_syn), 0.0)

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

    def bprop(self, times: Tensor, weights: Tensor, out: Tensor, dout: Tensor) -> tuple[Tensor, Tensor]:
        (places,) = self.saved_for_bprop
        begin = ops.minimum(times, self.end)[..., None]
        number = ops.arange(times.shape[0], dtype="int32").reshape(-1, 1, 1)
        spiked = out < math.inf
        spikes = ops.where(spiked, out, self.end)
        sent = ops.unstack(self._sent(begin, weights, number, spikes, spiked, places, dout))
        pairs = list(zip(sent, ops.unstack(spikes), ops.unstack(places), strict=True))

        def step(_: Any, event: Any) -> Any:
            begin, weight, number = event
            of_weight = of_time = 0.0
            for a, spike, place in pairs:
                before = number <= place
                s = ops.where(before, spike - begin, 0.0)
                _, of_i, kappa = self.waves(s)
                of_weight = of_weight + a * kappa
                of_time = of_time + ops.where(before, a, 0.0) * (kappa - of_i) / self.tau_mem  # -kappa' of it
            return (), (of_weight, of_time * weight)

        _, (of_weights, of_times) = ops.scan(step, (), (begin, weights, number))
        return of_times.sum(-1), of_weights

    def _sent(
        self, begin: Tensor, weights: Tensor, number: Tensor, spikes: Tensor, spiked: Tensor, places: Tensor, dout: Any
    ) -> Tensor:
        """What each spike sends back, a_k: (K, B, N)."""

        def arrive(current: Any, event: Any) -> Any:
            begin, weight, number = event
            before = number <= places
            decay = ops.exp(ops.where(before, begin - spikes, 0.0) / self.tau_syn)
            return current + ops.where(before, weight * decay, 0.0), None

        current, _ = ops.scan(arrive, ops.zeros_like(spikes), (begin, weights, number))
        slope = (current - self.v_threshold) / self.tau_mem
        least = float(np.finfo(slope.dtype.dtype).eps) * self.v_threshold / self.tau_mem  # what rounding makes of 0
        slope = ops.where(spiked, ops.maximum(slope, least), 1.0)
        gaps = ops.concat([spikes[1:] - spikes[:-1], ops.zeros_like(spikes[:1])])

        def send(carry: Any, spike: Any) -> Any:
            received, later = carry
            gap, given, slope, spiked = spike
            received = (received + later) * ops.exp(gap / -self.tau_mem)
            a = (received * (self.v_threshold / self.tau_mem) - given) / slope
            a = ops.where(spiked, a, 0.0)
            return (received, a), a

        nothing = ops.zeros_like(spikes[0])
        sent: Tensor = ops.scan(send, (nothing, nothing), (gaps, dout, slope, spiked), reverse=True)[1]
        return sent


class EventPropLIF(Cell):
    r"""A dense layer of leaky integrate-and-fire neurons from spike times to spike times, with exact gradients.

    tau_mem dV/dt = -V + I,   tau_syn dI/dt = -I
    an input spike adds its weight to I; where V reaches v_threshold the neuron spikes, and V becomes 0

    There are no time steps: between two events V is a sum of two exponentials with at most one peak, so whether it
    reaches the threshold is known, and when is found to rounding. With kappa, what one unit of weight makes of V,

    V(t) = sum_e w_e kappa(t - t_e) - v_threshold sum_k exp(-(t - T_k) / tau_mem)
    kappa(s) = tau_syn / (tau_mem - tau_syn) (exp(-s / tau_mem) - exp(-s / tau_syn)),   s > 0

    The gradient is that of the implicit V(T_k) = v_threshold. With g_k the gradient of a loss by the output time T_k
    and V'(T_k) = (I(T_k) - v_threshold) / tau_mem the slope right before the spike, a spike sends back

    a_k = -(g_k - (v_threshold / tau_mem) sum_{j > k} a_j exp(-(T_j - T_k) / tau_mem)) / V'(T_k)

    to the weights sum_k a_k kappa(T_k - t_e), and to the input times -w_e sum_k a_k kappa'(T_k - t_e), over the spikes
    T_k after t_e. In the words of the paper, the adjoint variables are

    lambda_V(t) = -(1 / tau_mem) sum_{T_k > t} a_k exp(-(T_k - t) / tau_mem)
    lambda_I(t) = -(1 / tau_syn) sum_{T_k > t} a_k kappa(T_k - t)

    which obey tau_mem lambda_V' = -lambda_V and tau_syn lambda_I' = lambda_V - lambda_I backwards in time; lambda_V
    jumps by (v_threshold lambda_V + g_k) / (tau_mem V'(T_k)) at T_k, and the gradient of w_e is -tau_syn lambda_I(t_e).

    Two things have no gradient, as in the paper. A neuron that does not spike: its times are inf, and it learns nothing
    from them. Start with weights that make it spike (the default does), and let the loss be finite without it, for
    instance ops.minimum(T, t_max); what brings silent neurons back is a step of the optimiser's own, as adding a little
    to the weights of neurons that were silent in a whole batch. And the appearance of a spike: where V just touches the
    threshold V' is 0 and gradients grow without bound, so clip them.

    Args:
        in_channels: input neurons, N_in.
        out_channels: neurons of the layer, N_out.
        tau_mem, tau_syn: time constants of V and I, in the unit of the times. Equal ones are taken 1e-12 apart.
        v_threshold: in the unit of V.
        spikes: K, how many spikes of a neuron are given. Those that follow are not computed.
        t_max: no spike is given from here on, in the unit of the times.
        weight_init: of the weight, (out_channels, in_channels). By default normal with mean 3 / (n p) and deviation
            1 / (sqrt(n) p) thresholds, with n = in_channels and p = max kappa: if each input spikes once and all
            together, V peaks at 3 +- 1 thresholds. Give more where few inputs spike, or spikes are far apart.
        dtype: of the weight and of what is computed, float32 or float64.

    Inputs:
        times: (B, N_in), or (B, N_in, K_in) where inputs spike several times, in any order; inf where there is no
            spike. So layers follow each other as they are.

    Returns:
        The first K spike times of each neuron, (B, N_out, K), ascending; inf where there are fewer.

    Raises:
        ArgumentError: for counts, time constants or a threshold that are not positive; for times that are NaN or -inf
            (jitted on a GPU, where nothing waits to look, those count as no spike).
        ShapeError: for times of another shape.
        DTypeError: for another dtype.

    Source: Wunderlich and Pehle, "Event-based backpropagation can compute exact gradients for spiking neural networks",
    Scientific Reports 11, 2021.

    Example:
        >>> layer = nn.EventPropLIF(2, 1, tau_mem=20.0, tau_syn=5.0, weight_init=4.0)
        >>> times = Tensor([[0.0, 3.0]])  # in ms, as the time constants are
        >>> print(layer(times).asnumpy().round(3))
        >>> print(grad(lambda t: layer(t).sum())(times))
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        tau_mem: float = 20.0,
        tau_syn: float = 5.0,
        v_threshold: float = 1.0,
        spikes: int = 1,
        t_max: float = math.inf,
        weight_init: Any = None,
        dtype: Any = dtypes.float32,
    ) -> None:
        super().__init__()
        self.in_channels = positive(in_channels, "EventPropLIF", "in_channels")
        self.out_channels = positive(out_channels, "EventPropLIF", "out_channels")
        self.tau_mem, self.tau_syn = _above_zero(tau_mem, "tau_mem"), _above_zero(tau_syn, "tau_syn")
        self.v_threshold = _above_zero(v_threshold, "v_threshold")
        self.spikes = positive(spikes, "EventPropLIF", "spikes")
        self.t_max = _number(t_max, "t_max")
        kind = dtypes.as_dtype(dtype)
        if kind not in (dtypes.float32, dtypes.float64):
            raise DTypeError(f"EventPropLIF: dtype is float32 or float64, not {kind}.")
        self.neurons = _SpikeTimes(self.tau_mem, self.tau_syn, self.v_threshold, self.spikes, self.t_max)
        weight_init = self._firing() if weight_init is None else weight_init
        self.weight = Parameter(initializer(weight_init, (out_channels, in_channels), kind))

    def _firing(self) -> Normal:
        """Weights that make neurons spike."""
        mem, syn = self.neurons.tau_mem, self.neurons.tau_syn
        peak = math.exp(math.log(syn / mem) * mem / (mem - syn))  # of kappa
        scale = self.v_threshold / peak
        return Normal(scale / math.sqrt(self.in_channels), 3.0 * scale / self.in_channels)

    def construct(self, times: Tensor) -> Tensor:
        if times.ndim not in (2, 3) or times.shape[1] != self.in_channels or 0 in times.shape:
            raise ShapeError(
                f"{self!r}: times has shape {times.shape}; it is (B, {self.in_channels}) or "
                f"(B, {self.in_channels}, K), with at least one of each."
            )
        if times.dtype.category > 2:
            raise DTypeError(f"EventPropLIF: times are real numbers, not {times.dtype}.")
        flat = ops.reshape(_checked.bind(times.astype(self.weight.dtype)), (times.shape[0], -1))
        order = ops.argsort(flat)
        sources = order // (flat.shape[1] // self.in_channels)
        weights = ops.gather(self.weight.T, sources.T)  # (E, B, N_out)
        found = self.neurons(permuted(flat, order).T, weights)
        return ops.transpose(found, (1, 2, 0))

    def extend_repr(self) -> str:
        return (
            f"in_channels={self.in_channels}, out_channels={self.out_channels}, tau_mem={self.tau_mem}, "
            f"tau_syn={self.tau_syn}, v_threshold={self.v_threshold}, spikes={self.spikes}, t_max={self.t_max}"
        )


def _number(value: Any, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, np.number)) or math.isnan(value):
        raise ArgumentError(f"EventPropLIF: {name} is a number, not {value!r}.")
    return float(value)


def _above_zero(value: Any, name: str) -> float:
    number = _number(value, name)
    if not 0 < number < math.inf:
        raise ArgumentError(f"EventPropLIF: {name} is positive and finite, not {value!r}.")
    return number
