"""Spike times and their adjoint on a GPU, with one thread per neuron and sample, in float64.

A crossing is found by Newton's method from the left: V is concave while it rises, so no step overshoots.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from snncell.kernels.cuda.arrays import DeviceArray, contiguous, empty
from snncell.kernels.cuda.build import run
from snncell.kernels.cuda.indexing import argsort
from snncell.kernels.eventprop.adjoint import least_slope
from snncell.kernels.space import DEVICE

NEWTON_STEPS = 64  # each doubles the number of correct digits; if V only touches the threshold, each adds one bit
_INT32, _INT64, _FLOAT64 = np.dtype(np.int32), np.dtype(np.int64), np.dtype(np.float64)


def _waves(s: str, of_v: str, of_i: str) -> str:
    """Statements for the decay of V and of I over a time, and for kappa."""
    return f"""\
{of_v} = exp(-({s}) / mem)
{of_i} = exp(-({s}) / syn)
kappa = ({of_v} if mem > syn else {of_i}) * expm1(({s}) * (-abs(mem - syn) / (mem * syn))) * (-syn / abs(mem - syn))
"""


def _indent_text(text: str, by: int) -> str:
    return text.replace("\n", "\n" + "    " * by).rstrip(" ")


_FIND = f"""
sample = i // neurons
n = i - sample * neurons
first = sample * events
for k in range(wanted):
    found[i * wanted + k] = np.inf
    places[i * wanted + k] = -1
    currents[i * wanted + k] = 0.0
v = f8(0)
c = f8(0)
number = 0
event = 0
while event < events and number < wanted and f8(times[first + order[first + event]]) < end:
    now = f8(times[first + order[first + event]])
    until = end
    if event + 1 < events and f8(times[first + order[first + event + 1]]) < end:
        until = f8(times[first + order[first + event + 1]])
    left = until - now
    c += f8(weights[(order[first + event] // of_each) * neurons + n])
    rises = True
    while rises:
        rises = False
        scale = (mem - syn) * v + syn * c
        if c > v and c > 0.0 and scale > 0.0:
            most = log1p((c - v) / scale * (mem - syn)) * (mem * syn / (mem - syn))
            most = most if most < left else left
            {_indent_text(_waves("most", "of_v", "of_c"), 3)}
            rises = v * of_v + c * kappa >= threshold
        if rises:
            s = f8(0)
            step = 0
            while step < {NEWTON_STEPS}:
                {_indent_text(_waves("s", "of_v", "of_c"), 4)}
                potential = v * of_v + c * kappa
                slope = (c * of_c - potential) / mem
                later = s + (threshold - potential) / (slope if slope > 1e-300 else 1e-300)
                later = later if later < most else most
                step = step + 1 if later > s else {NEWTON_STEPS}
                s = later if later > s else s
            now += s
            left -= s
            v = f8(0)
            c *= exp(-s / syn)
            found[i * wanted + number] = now
            if f8(found[i * wanted + number]) < end:
                places[i * wanted + number] = event
                currents[i * wanted + number] = c
                number += 1
            else:
                found[i * wanted + number] = np.inf
                number = wanted
            rises = number < wanted
    {_indent_text(_waves("left", "of_v", "of_c"), 1)}
    v = v * of_v + c * kappa
    c *= of_c
    event += 1
"""
_BACK = f"""
sample = i // neurons
n = i - sample * neurons
first = sample * events
received = f8(0)
later = f8(np.inf)
event = -1
k = wanted - 1
while k >= 0:
    if places[i * wanted + k] >= 0:
        now = f8(found[i * wanted + k])
        received *= exp((now - later) / mem)
        slope = (currents[i * wanted + k] - threshold) / mem
        slope = slope if slope > least else least
        sent[i * wanted + k] = (received * (threshold / mem) - f8(gradients[i * wanted + k])) / slope
        received += sent[i * wanted + k]
        later = now
        event = max(event, places[i * wanted + k])
    k -= 1
for e in range(events):
    of_times[(first + e) * neurons + n] = 0.0
    of_weights[(first + e) * neurons + n] = 0.0
p = f8(0)
q = f8(0)
until = f8(np.inf)
k = wanted - 1
while event >= 0:
    source = order[first + event]
    begin = f8(times[first + source])
    {_indent_text(_waves("until - begin", "of_p", "of_q"), 1)}
    p = p * of_p + q * kappa
    q *= of_q
    while k >= 0 and (places[i * wanted + k] < 0 or places[i * wanted + k] == event):
        if places[i * wanted + k] >= 0:
            s = f8(found[i * wanted + k]) - begin
            {_indent_text(_waves("s", "of_p", "of_q"), 3)}
            p += sent[i * wanted + k] * kappa
            q += sent[i * wanted + k] * of_q
        k -= 1
    of_weights[(first + source) * neurons + n] = p
    of_times[(first + source) * neurons + n] = f8(weights[(source // of_each) * neurons + n]) * (p - q) / mem
    until = begin
    event -= 1
"""


def find(
    times: DeviceArray,
    weights: DeviceArray,
    spikes: int,
    tau_mem: float,
    tau_syn: float,
    v_threshold: float,
    t_max: float,
) -> tuple[DeviceArray, DeviceArray, DeviceArray, DeviceArray]:
    """See `spike_times.find`."""
    samples, neurons = times.shape[0], weights.shape[1]
    flat, weights = contiguous(times).reshape((samples, -1)), contiguous(weights)
    order = argsort(flat)
    found, places, currents = (empty((samples, neurons, spikes), dtype) for dtype in (times.dtype, _INT32, _FLOAT64))
    numbers = {"neurons": neurons, "events": flat.shape[1], "of_each": times.shape[2], "wanted": spikes}
    constants = _constants(mem=tau_mem, syn=tau_syn, threshold=v_threshold, end=times.dtype.type(t_max))
    given = {"times": flat, "order": order, "weights": weights}
    filled = {"found": found, "places": places, "currents": currents}
    run("find_spikes", _FIND, samples * neurons, numbers | constants, given, filled)
    return found, order, places, currents


def send_back(
    times: DeviceArray,
    weights: DeviceArray,
    order: DeviceArray,
    found: DeviceArray,
    places: DeviceArray,
    currents: DeviceArray,
    gradients: DeviceArray,
    tau_mem: float,
    tau_syn: float,
    v_threshold: float,
) -> tuple[DeviceArray, DeviceArray]:
    """See `adjoint.send_back`. The gradients of the events of one source are summed after the kernel."""
    samples, neurons, spikes = found.shape
    inputs, of_each = times.shape[1:]
    events = inputs * of_each
    flat, weights = contiguous(times), contiguous(weights)
    of_times, of_weights = (empty((samples, events, neurons), times.dtype) for _ in range(2))
    sent = empty(found.shape, _FLOAT64)
    numbers = {"neurons": neurons, "events": events, "of_each": of_each, "wanted": spikes}
    least = least_slope(times.dtype, v_threshold, tau_mem)
    constants = _constants(mem=tau_mem, syn=tau_syn, threshold=v_threshold, least=least)
    arrays = {"times": flat, "order": order, "weights": weights, "found": found, "places": places}
    arrays |= {"currents": currents, "gradients": gradients}
    given = {name: contiguous(array) for name, array in arrays.items()}
    filled = {"of_times": of_times, "of_weights": of_weights, "sent": sent}
    run("send_spikes_back", _BACK, samples * neurons, numbers | constants, given, filled)
    by_source = of_weights.reshape((samples, inputs, of_each, neurons))
    return DEVICE.sum(of_times, (2,)).reshape(times.shape), DEVICE.sum(by_source, (0, 2))


def _constants(**constants: Any) -> dict[str, float]:
    return {name: float(number) for name, number in constants.items()}
