"""Reference implementation of spiking neurons: NumPy float64 loops, written from the equations in the literature.

It shares no code with the package. The backward passes are written by hand, as backpropagation through time.
Time is axis 0; x is (T, N).
"""

import math

import numpy as np


def sigmoid(x):
    return 1.0 / (1.0 + np.exp(-x))


# --- surrogate derivatives -------------------------------------------------------------------------------------------


def relusigmoid_slope(x):
    return 5.0 * sigmoid(5.0 * x) * (1.0 - sigmoid(5.0 * x))


def sigmoid_slope(x, alpha=4.0):
    return alpha * sigmoid(alpha * x) * (1.0 - sigmoid(alpha * x))


def atan_slope(x, alpha=2.0):
    return alpha / 2.0 / (1.0 + (math.pi / 2.0 * alpha * x) ** 2)


def tanh_slope(x, alpha=1.0):
    return 4.0 / (np.exp(-alpha * x) + np.exp(alpha * x)) ** 2


def normal_density(x, mean, deviation):
    return np.exp(-((x - mean) ** 2) / (2.0 * deviation**2)) / math.sqrt(2.0 * math.pi * deviation**2)


def erf_slope(x, alpha=2.0):
    return alpha / math.sqrt(math.pi) * np.exp(-((alpha * x) ** 2))


def gaussian_slope(x, sigma=0.5):
    return normal_density(x, 0.0, sigma)


def multi_gaussian_slope(x, sigma=0.5, h=0.15, s=6.0):
    left, right = normal_density(x, -sigma, s * sigma), normal_density(x, sigma, s * sigma)
    return (1.0 + h) * normal_density(x, 0.0, sigma) - h * right - h * left


def fast_sigmoid_slope(x, slope=25.0):
    return 1.0 / (1.0 + slope * np.abs(x)) ** 2


def sparse_fast_sigmoid_slope(x, slope=25.0, bound=1.0):
    return (np.abs(x) < bound) / (1.0 + slope * np.abs(x)) ** 2


def super_spike_slope(x, alpha=1.0):
    return alpha / (1.0 + np.abs(x)) ** 2


def soft_sign_slope(x, alpha=2.0):
    return 1.0 / (2.0 * alpha * (1.0 / alpha + np.abs(x)) ** 2)


def nonzero_sign_log_abs_slope(x, alpha=1.0):
    return 1.0 / (1.0 / alpha + np.abs(x))


def algebraic_slope(x, alpha=1.0):
    return (1.0 + (x / alpha) ** 2) ** -1.5


def q_pseudo_spike_slope(x, alpha=2.0):
    return (1.0 + 2.0 * np.abs(x) / (alpha - 1.0)) ** -alpha


def piecewise_exp_slope(x, alpha=1.0):
    return alpha / 2.0 * np.exp(-alpha * np.abs(x))


def spike_rate_escape_slope(x, beta=1.0, slope=25.0):
    return slope * np.exp(-beta * np.abs(x - 1.0))


def escape_rate_slope(x, rate=1.0, width=0.5):
    hazard = rate * np.exp(x / width)
    return hazard / width * np.exp(-hazard)


def triangle_slope(x, height=1.0, width=1.0):
    return height * np.maximum(0.0, 1.0 - np.abs(x) / width)


def piecewise_quadratic_slope(x, alpha=1.0):
    return np.maximum(0.0, alpha - alpha**2 * np.abs(x))


def rect_slope(x, alpha=1.0):
    return alpha * (np.abs(x) < 0.5 / alpha)


def boxcar_slope(x, width=2.0, height=0.5):
    return height * (np.abs(x) < width / 2.0)


def leaky_relu_slope(x, leak=0.1, k=1.0):
    return np.where(x > 0, k, leak)


def piecewise_leaky_relu_slope(x, w=1.0, c=0.01):
    return np.where(np.abs(x) < w, 1.0 / (2.0 * w), c)


def log_tailed_relu_slope(x, alpha=0.0):
    return np.where(x <= 0, alpha, np.where(x <= 1, 1.0, 1.0 / x))


def s2nn_slope(x, alpha=4.0, beta=1.0):
    return np.where(x < 0, alpha * sigmoid(alpha * x) * (1.0 - sigmoid(alpha * x)), beta / (x + 1.0))


# --- integrate and fire ----------------------------------------------------------------------------------------------


def if_forward(x, v0, threshold=1.0):
    """h = v + x; where h > threshold, a spike of the size of the threshold; v = h - spike. Returns spikes, h, v."""
    steps, neurons = x.shape
    spikes, hs, vs = np.zeros_like(x), np.zeros_like(x), np.zeros_like(x)
    for n in range(neurons):
        v = v0[n]
        for t in range(steps):
            h = v + x[t, n]
            s = threshold if h - threshold > 0 else 0.0
            v = h - s
            spikes[t, n], hs[t, n], vs[t, n] = s, h, v
    return spikes, hs, vs


def if_backward(hs, d_spikes, d_last, slope, threshold=1.0):
    """Gradients of x and v0 for given gradients of the spikes and of the last v."""
    steps, neurons = hs.shape
    dx, dv0 = np.zeros_like(hs), np.zeros(neurons)
    for n in range(neurons):
        carry = d_last[n]
        for t in reversed(range(steps)):
            g = threshold * slope(hs[t, n] - threshold)
            dh = d_spikes[t, n] * g + carry * (1.0 - g)
            dx[t, n] = dh
            carry = dh
        dv0[n] = carry
    return dx, dv0


# --- leaky integrate and fire ----------------------------------------------------------------------------------------


def lif_forward(x, v0, tau=2.0, threshold=1.0, v_reset=0.0, reset="subtract", decay_input=True):
    """Returns spikes (0 or 1), h before and v after the reset, each (T, N)."""
    steps, neurons = x.shape
    spikes, hs, vs = np.zeros_like(x), np.zeros_like(x), np.zeros_like(x)
    for n in range(neurons):
        v = v0[n]
        for t in range(steps):
            h = v + (x[t, n] - (v - v_reset)) / tau if decay_input else v - (v - v_reset) / tau + x[t, n]
            s = 1.0 if h - threshold > 0 else 0.0
            v = after_reset(h, s, threshold, v_reset, reset)
            spikes[t, n], hs[t, n], vs[t, n] = s, h, v
    return spikes, hs, vs


def after_reset(h, s, threshold, v_reset, reset):
    if reset == "subtract":
        return h - s * threshold
    if reset == "zero":
        return (1.0 - s) * h
    if reset == "value":
        return (1.0 - s) * h + s * v_reset
    return h


def reset_slope(h, s, g, threshold, v_reset, reset, detach):
    """dv/dh of the reset; g is ds/dh."""
    if reset is None:
        return 1.0
    through_spike = 0.0 if detach else g
    if reset == "subtract":
        return 1.0 - threshold * through_spike
    target = v_reset if reset == "value" else 0.0
    return (1.0 - s) + (target - h) * through_spike


def lif_backward(
    hs, d_spikes, d_last, slope, tau=2.0, threshold=1.0, v_reset=0.0, reset="subtract", detach=False, decay_input=True
):
    """Gradients of x and v0 for given gradients of the spikes and of the last v."""
    steps, neurons = hs.shape
    dx, dv0 = np.zeros_like(hs), np.zeros(neurons)
    for n in range(neurons):
        carry = d_last[n]
        for t in reversed(range(steps)):
            h = hs[t, n]
            s = 1.0 if h - threshold > 0 else 0.0
            g = slope(h - threshold)
            dh = d_spikes[t, n] * g + carry * reset_slope(h, s, g, threshold, v_reset, reset, detach)
            dx[t, n] = dh / tau if decay_input else dh
            carry = dh * (1.0 - 1.0 / tau)
        dv0[n] = carry
    return dx, dv0


# --- a recurrent layer of integrate-and-fire neurons -----------------------------------------------------------------


def recurrent_forward(x, weight, bias, tau=2.0):
    """LIF (soft reset, threshold 1, undivided input) driven by x + weight @ (previous spikes) + bias, from rest."""
    steps, neurons = x.shape
    spikes, hs = np.zeros_like(x), np.zeros_like(x)
    out, v = np.zeros(neurons), np.zeros(neurons)
    for t in range(steps):
        for n in range(neurons):
            current = x[t, n] + bias[n]
            for m in range(neurons):
                current += weight[n, m] * out[m]
            hs[t, n] = v[n] - v[n] / tau + current
        for n in range(neurons):
            spikes[t, n] = 1.0 if hs[t, n] - 1.0 > 0 else 0.0
            v[n] = hs[t, n] - spikes[t, n]
        out = spikes[t].copy()
    return spikes, hs


def recurrent_backward(spikes, hs, weight, d_spikes, slope, tau=2.0):
    """Gradients of x, weight and bias."""
    steps, neurons = hs.shape
    dx, dw, db = np.zeros_like(hs), np.zeros_like(weight), np.zeros(neurons)
    d_out, d_v = np.zeros(neurons), np.zeros(neurons)
    for t in reversed(range(steps)):
        dh = np.zeros(neurons)
        for n in range(neurons):
            g = slope(hs[t, n] - 1.0)
            dh[n] = (d_spikes[t, n] + d_out[n]) * g + d_v[n] * (1.0 - g)
            dx[t, n] = dh[n]
            db[n] += dh[n]
            for m in range(neurons):
                if t:
                    dw[n, m] += dh[n] * spikes[t - 1, m]
        d_out, d_v = np.zeros(neurons), np.zeros(neurons)
        for n in range(neurons):
            d_v[n] = dh[n] * (1.0 - 1.0 / tau)
            for m in range(neurons):
                d_out[m] += weight[n, m] * dh[n]
    return dx, dw, db


# --- layers ----------------------------------------------------------------------------------------------------------


def same_padding(length, kernel, stride, dilation):
    """Padding before and after for an output of length ceil(length / stride); an odd element is added after."""
    out = -(-length // stride)
    total = max((out - 1) * stride + dilation * (kernel - 1) + 1 - length, 0)
    return total // 2, total - total // 2


def conv2d(x, weight, bias, stride, padding, dilation, groups):
    """(N, C, H, W) with weight (O, C / groups, KH, KW); padding is (top, bottom, left, right)."""
    top, bottom, left, right = padding
    x = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)))
    batch, _, height, width = x.shape
    outputs, share, kh, kw = weight.shape
    rows = (height - dilation[0] * (kh - 1) - 1) // stride[0] + 1
    columns = (width - dilation[1] * (kw - 1) - 1) // stride[1] + 1
    y = np.zeros((batch, outputs, rows, columns))
    for n, o, i, j in np.ndindex(y.shape):
        first = o // (outputs // groups) * share
        for c, a, b in np.ndindex(share, kh, kw):
            y[n, o, i, j] += (
                weight[o, c, a, b] * x[n, first + c, i * stride[0] + a * dilation[0], j * stride[1] + b * dilation[1]]
            )
        if bias is not None:
            y[n, o, i, j] += bias[o]
    return y


def pool2d(x, kernel, stride, what):
    """`what` (np.max, np.mean) of each window of (N, C, H, W), without padding."""
    batch, channels, height, width = x.shape
    rows, columns = (height - kernel[0]) // stride[0] + 1, (width - kernel[1]) // stride[1] + 1
    y = np.zeros((batch, channels, rows, columns))
    for n, c, i, j in np.ndindex(y.shape):
        top, left = i * stride[0], j * stride[1]
        y[n, c, i, j] = what(x[n, c, top : top + kernel[0], left : left + kernel[1]])
    return y


def cross_entropy(logits, labels, weight=None, ignore_index=-100, smoothing=0.0):
    """The mean over (N,) labels of (N, C) logits, computed sample by sample."""
    batch, classes = logits.shape
    weight = np.ones(classes) if weight is None else weight
    total, count = 0.0, 0.0
    for n in range(batch):
        if labels[n] == ignore_index:
            continue
        peak = logits[n].max()
        normaliser = peak + math.log(sum(math.exp(z - peak) for z in logits[n]))
        for c in range(classes):
            share = smoothing / classes + (1.0 - smoothing if c == labels[n] else 0.0)
            total += weight[c] * share * (normaliser - logits[n, c])
        count += weight[labels[n]]
    return total / count
