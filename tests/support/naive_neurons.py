"""Reference neurons: one neuron and one step in plain Python, written from the papers, without shared code.

`World` defines spikes and resets: sharp or smooth, at or above the threshold. If the reset must be constant in a
derivative, one run records the spikes and later runs reuse them.
"""

import math

import numpy as np


def sigmoid(x):
    return 1.0 / (1.0 + math.exp(-x))


class World:
    """The rules for spikes and resets."""

    def __init__(self, reset="subtract", v_reset=0.0, v_threshold=1.0, smooth=False, detach=False, inclusive=False):
        self.kind, self.v_reset, self.v_threshold = reset, v_reset, v_threshold
        self.smooth, self.detach, self.inclusive = smooth, detach, inclusive
        self.recorded, self.played = [], None

    def again(self):
        """Reuse the recorded spikes for the detached reset from this point."""
        self.played = iter(list(self.recorded))

    def spike(self, x):
        if self.smooth:
            return math.atan(math.pi * x) / math.pi + 0.5  # the primitive of ATan(2)
        return 1.0 if x > 0.0 or (self.inclusive and x == 0.0) else 0.0

    def held(self, s):
        if not self.detach:
            return s
        if self.played is not None:
            return next(self.played)
        self.recorded.append(s)
        return s

    def reset(self, h, s, drop=None):
        s = self.held(s)
        if self.kind == "subtract":
            return h - s * (self.v_threshold if drop is None else drop)
        if self.kind is None:
            return h
        return (1.0 - s) * h + s * (self.v_reset if self.kind == "value" else 0.0)

    def fire(self, h):
        s = self.spike(h - self.v_threshold)
        return s, self.reset(h, s)


def run(step, world, x, states):
    """Run `step(world, x, *states)` over (T, N), neuron by neuron; return outputs (T, N) and all states per step."""
    steps, neurons = x.shape
    out, after = np.zeros(x.shape), [np.zeros(x.shape) for _ in states]
    for n in range(neurons):
        now = [float(state[n]) for state in states]
        for t in range(steps):
            out[t, n], *now = step(world, float(x[t, n]), *now)
            for record, value in zip(after, now, strict=True):
                record[t, n] = value
    return out, after


# --- integrate and fire -----------------------------------------------------------------------------------------------


def integrate(world, x, v):
    s, v = world.fire(v + x)
    return s * world.v_threshold, v


def euler(x, v, tau, decay_input, rest):
    return v + (x - (v - rest)) / tau if decay_input else v - (v - rest) / tau + x


def lif(world, x, v, tau, decay_input, v_rest):
    return world.fire(euler(x, v, tau, decay_input, v_rest))


def leaky(world, x, v, beta, input_gain=1.0):
    return world.fire(beta * v + input_gain * x)


def delayed(world, x, v, beta, delay):
    """The reset one step late; `delay` selects the quantities that are delayed."""
    late = world.spike(v - world.v_threshold)
    if world.kind == "subtract" or delay == "reset+input":
        h = world.reset(beta * v + x, late)
    else:
        h = beta * world.reset(v, late) + x
    return (late if delay == "spike" else world.spike(h - world.v_threshold)), h


# --- synapses ---------------------------------------------------------------------------------------------------------


def cuba(world, x, v, i, alpha, beta, current_gain, v_rest, order):
    if order == "decay jump read":
        i = i * alpha
        i = i + x
        read = i
    elif order == "jump read decay":
        i = i + x
        read = i
        i = i * alpha
    elif order == "jump decay read":
        i = i + x
        i = i * alpha
        read = i
    else:
        read = i
        i = i * alpha
        i = i + x
    h = v_rest + beta * (v - v_rest) + current_gain * read
    return (*world.fire(h), i)


def behind_synapse(world, x, i, v, a, leak, **constants):
    """An adaptive neuron with an input current that jumps, is read, and decays."""
    i = i + x
    s, v, a = adaptive(world, i, v, a, **constants)
    return s, i * leak, v, a


def alpha(world, x, e, i, v, alpha, beta):
    k = math.log(alpha) / (math.log(beta) - math.log(alpha)) + 1.0
    e, i = alpha * e + x, beta * i - x
    h = k * (e + i)
    s = world.spike(h - world.v_threshold)
    if world.kind == "subtract":
        e, v = world.reset(e, s, world.v_threshold / k), world.reset(h, s)
    else:
        e, i, v = world.reset(e, s), world.reset(i, s), world.reset(h, s)
    return s, e, i, v


def adaptive(world, x, v, a, alpha, rho, beta, jump, subtracts):
    threshold = world.v_threshold + beta * a
    h = alpha * v + x
    s = world.spike(h - threshold)
    v = world.reset(h, s, threshold if subtracts == "threshold" else None)
    return s, v, rho * a + jump * s


def coba(world, x, v, g_e, g_i, tau, alpha_e, alpha_i, e_exc, e_inh, v_rest, scheme, order):
    """The membrane equation in the form of its currents; the exponential scheme solves it for constant conductances."""
    jump_e, jump_i = (x, 0.0) if x > 0.0 else (0.0, -x)
    if order == "jump decay read":
        jump_e, jump_i = jump_e * alpha_e, jump_i * alpha_i
    g_e, g_i = g_e * alpha_e + jump_e, g_i * alpha_i + jump_i
    slope = -(1.0 + g_e + g_i) / tau
    rise = ((v_rest - v) + g_e * (e_exc - v) + g_i * (e_inh - v)) / tau
    h = v + rise * (1.0 if scheme == "euler" else math.expm1(slope) / slope)
    return (*world.fire(h), g_e, g_i)


def plastic(world, x, u, r, U, tau_f, tau_d):  # noqa: N803 (its name in papers)
    """Both recover from the last step; then a spike uses a share u of the resources."""
    r = r + (1.0 - r) * -math.expm1(-1.0 / tau_d)
    u = u * math.exp(-1.0 / tau_f)
    u = u + U * (1.0 - u) * x
    return u * r * x, u, r * (1.0 - u * x)


# --- runaway potentials -----------------------------------------------------------------------------------------------


def eif(world, x, v, tau, delta_t, theta_rh, v_rest):
    return world.fire(v + (x + v_rest - v + delta_t * math.exp((v - theta_rh) / delta_t)) / tau)


def adex(world, x, v, w, tau, tau_w, a, b, delta_t, theta_rh, v_rest):
    h = v + (x + v_rest - v + delta_t * math.exp((v - theta_rh) / delta_t) - w) / tau
    s, after = world.fire(h)
    return s, after, w + (a * (v - v_rest) - w) / tau_w + b * s


def qif(world, x, v, tau, v_c, a0, v_rest):
    return world.fire(v + (x + a0 * (v - v_rest) * (v - v_c)) / tau)


def adaptive_qif(world, x, v, w, tau, tau_w, a, b, v_c, a0, v_rest):
    h = v + (x + a0 * (v - v_rest) * (v - v_c) - w) / tau
    s, after = world.fire(h)
    return s, after, w + (a * (h - v_rest) - w) / tau_w + b * s


def izhikevich(world, x, v, u, a, b, d, dt, substeps):
    """The program of the paper, with the reset at the end of the step; `world.v_reset` is its c."""
    for _ in range(substeps):
        v = v + dt / substeps * (0.04 * v**2 + 5.0 * v + 140.0 - u + x)
    u = u + dt * a * (b * v - u)
    s, v = world.fire(v)
    return s, v, u + d * s


# --- gates ------------------------------------------------------------------------------------------------------------


def klif(world, x, v, tau, k, scale_reset, decay_input, v_rest):
    h = max(0.0, k * euler(x, v, tau, decay_input, v_rest))
    s = world.spike(h - world.v_threshold)
    return s, world.reset(h / k, s, world.v_threshold / k) if scale_reset else world.reset(h, s)


def clif(world, x, v, m, tau, v_rest):
    h = euler(x, v, tau, False, v_rest)
    s = world.spike(h - world.v_threshold)
    m = m * sigmoid(h / tau) + s
    return s, world.reset(h, s, world.v_threshold + sigmoid(m)), m


def two_compartments(world, x, v, d, beta1, beta2, gamma):
    d = d + beta1 * v + x
    h = v + beta2 * d
    s = world.spike(h - world.v_threshold)
    held = world.held(s)
    if world.kind == "subtract":
        return s, h - held * world.v_threshold, d - held * gamma
    if world.kind is None:
        return s, h, d
    return s, (1.0 - held) * h + held * (world.v_reset if world.kind == "value" else 0.0), d


def glif(world, x, v, last, alpha, beta, gamma, tau, v_threshold, linear_decay, v_subreset, conduct):
    s = world.held(last)
    leak = (1.0 - alpha * (1.0 - tau)) * v
    h = leak - (1.0 - alpha) * linear_decay + x * (1.0 - beta * (1.0 - conduct))
    h = h - s * (gamma * leak + (1.0 - gamma) * v_subreset)
    now = world.spike(h - v_threshold)
    return now, h, now


# --- others -----------------------------------------------------------------------------------------------------------


def resonate(world, x, v, u, b, omega, dt):
    z = complex(u, v) * np.exp(complex(b, omega) * dt) + x
    s, v = world.fire(z.imag)
    return s, v, z.real


def balanced(world, x, v, u, q, omega, damping, jump, gamma):
    z = complex(math.sqrt(1.0 - omega**2) - damping - jump * q, omega) * complex(v, u) + x
    s = world.spike(z.real - world.v_threshold - q)
    return s, world.reset(z.real, s), z.imag, gamma * q + s


def counting(world, x, v, beta, most):
    h = beta * v + x
    if world.smooth:
        s = world.spike(h / world.v_threshold - 1.0)
    else:
        s = float(min(most, max(0, math.floor(h / world.v_threshold))))
    one = s if world.kind == "subtract" or world.smooth else min(s, 1.0)
    return s, world.reset(h, one)


def integer(world, x, v, tau, most, v_rest):
    h = euler(x, v, tau, False, v_rest)
    s = min(max(h / world.v_threshold, 0.0), float(most))
    s = s if world.smooth else float(round(s))
    return s, world.reset(h, s if world.kind == "subtract" else min(s, 1.0))


def refractory(world, x, v, rho, tau, refractory, decay_input, v_rest):
    if rho > 0.0:
        return 0.0, world.reset(v, 0.0), max(0.0, rho - 1.0)
    s, v = world.fire(euler(x, v, tau, decay_input, v_rest))
    return s, v, refractory if s > 0.5 else 0.0


def integrator(world, x, v, tau, decay_input, v_rest):
    v = euler(x, v, tau, decay_input, v_rest)
    return v, v
