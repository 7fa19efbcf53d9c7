"""Products with delays on the device: one product by cuBLAS for each delay."""

from __future__ import annotations

from snncell.kernels.cuda.arrays import DeviceArray, contiguous, empty, zeros
from snncell.kernels.cuda.build import run
from snncell.kernels.products.device import matmul
from snncell.kernels.space import DEVICE


def product(x: DeviceArray, taps: DeviceArray, back: bool) -> DeviceArray:
    """y[t] = sum_d x[t - d] @ taps[d]; with `back`, y[t] = sum_d x[t + d] @ taps[d].T."""
    steps, batch, inputs = x.shape
    outputs = taps.shape[1 if back else 2]
    out = zeros((steps, batch, outputs), taps.dtype)
    for d in range(min(len(taps), steps)):
        source, target = slice(d, None), slice(None, steps - d)
        if not back:
            source, target = target, source
        part = matmul(x[source].reshape(-1, inputs), taps[d].T if back else taps[d])
        out[target] = DEVICE.add(out[target], part.reshape(steps - d, batch, outputs))
    return out


def weight_gradient(x: DeviceArray, y: DeviceArray, delays: int) -> DeviceArray:
    """The gradient of the taps, sum_{t, b} x[t - d, b, i] y[t, b, j]: (delays, N_in, N_out)."""
    steps, (_, batch, outputs) = len(x), y.shape
    out = zeros((delays, x.shape[2], outputs), y.dtype)
    for d in range(min(delays, steps)):
        out[d] = matmul(x[: steps - d].reshape((steps - d) * batch, -1).T, y[d:].reshape(-1, outputs))
    return out


_OF_ONE = """
j = i % outputs
now = i // outputs
total = {cast}(0)
for source in range(inputs):
    before = now - i8(delays[source * outputs + j]) * batch
    if before >= 0:
        total += weights[source * outputs + j] * x[before * inputs + source]
out[i] = total
"""


def product_per_synapse(x: DeviceArray, weights: DeviceArray, delays: DeviceArray, longest: int) -> DeviceArray:
    """y[t, b, j] = sum_i w[i, j] x[t - delay[i, j], b, i], with one thread per element of y."""
    steps, batch, inputs = x.shape
    out = empty((steps, batch, weights.shape[1]), weights.dtype)
    if out.size:
        numbers = {"batch": batch, "inputs": inputs, "outputs": weights.shape[1]}
        given = {"x": contiguous(x), "weights": contiguous(weights), "delays": contiguous(delays)}
        body = _OF_ONE.format(cast={4: "f4", 8: "f8"}[weights.dtype.itemsize])
        run("product_per_synapse", body, out.size, numbers, given, {"out": out})
    return out
