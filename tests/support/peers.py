"""Neurons of other frameworks: random settings, and the results of the framework's own class.

A `Peer` draws the settings of one preset and runs the framework's class with them. Inputs are float64, and so are the
framework's numbers, unless its code requires float32. Settings are float32 numbers, so both libraries represent them
exactly.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

from snncell import Parameter, nn, surrogate as s

Draw = tuple[dict[str, Any], dict[str, Any]]  # settings of `like`, and of the framework where they differ


STATES = 0.3  # the weight of states beside that of outputs, in what is differentiated


class Run(NamedTuple):
    """The results of a framework: outputs and states (T, B, N), gradients of the input and of learned constants.

    Learned constants are named by their path in the snncell neuron, or by "settings" and the name of the argument.
    """

    outputs: Any
    states: list[Any]
    gradient: Any
    learned: dict[str, Any]


class Random:
    """A seeded generator of settings."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def number(self, low: float, high: float) -> float:
        """A float32 number, as a Python float."""
        return float(np.float32(self.rng.uniform(low, high)))

    def one(self, *of: Any) -> Any:
        """One of several values."""
        return of[int(self.rng.integers(len(of)))]

    def some(self, **of: Callable[[], Any]) -> dict[str, Any]:
        """A random subset of the settings; the others keep the framework's default."""
        return {name: draw() for name, draw in of.items() if self.rng.random() < 0.5}

    def flag(self) -> bool:
        """True or False."""
        return bool(self.rng.random() < 0.5)


def trained(random: Random, settings: dict[str, Any], theirs: dict[str, Any], *names: str) -> Draw:
    """The settings with some converted to Parameters, and the framework's settings, which list them."""
    chosen = [name for name in names if name in settings and random.flag()]
    learned = {name: Parameter(np.float64(settings[name]), name=name) for name in chosen}
    return settings | learned, theirs | {"trained": tuple(chosen)}


class Peer(NamedTuple):
    """A preset, a function that draws its settings, the framework's neuron, and the input size that makes it fire."""

    kind: Any
    framework: str
    draw: Callable[[Random], Draw]
    run: Callable[..., Run]
    scale: tuple[float, float]
    fires: bool = True

    def make(self, settings: dict[str, Any]) -> Any:
        """The snncell neuron."""
        return self.kind.like(self.framework, **settings)


# --- running a framework of PyTorch -----------------------------------------------------------------------------------


def numbers(tensor: Any) -> Any:
    """A torch Tensor as a NumPy array."""
    return tensor.detach().numpy()


def by_torch(steps: Callable[[Any], tuple[Any, list[Any]]], learned: dict[str, Any], x: Any, weights: Any) -> Run:
    """Run `steps(x) -> (outputs, states)` on (T, B, N), and differentiate a sum of outputs and states by weights."""
    torch = import_module("torch")
    given = torch.tensor(x, requires_grad=True)
    y, states = steps(given)
    own = torch.tensor(weights)
    loss = (y * own).sum()
    for state in states:
        loss = loss + STATES * (state * own).sum()
    loss.backward()
    found = {name: np.zeros(p.shape) if p.grad is None else numbers(p.grad) for name, p in learned.items()}
    return Run(numbers(y), [numbers(state) for state in states], numbers(given.grad), found)


def stepped(step: Callable[[Any], tuple[Any, list[Any]]]) -> Callable[[Any], tuple[Any, list[Any]]]:
    """Turn a function of one step, `step(x) -> (output, states)`, into a function of (T, B, N)."""
    torch = import_module("torch")

    def steps(x: Any) -> tuple[Any, list[Any]]:
        outputs, after = [], []
        for now in x:
            out, states = step(now)
            outputs.append(out)
            after.append([torch.as_tensor(state).expand(now.shape) for state in states])
        return torch.stack(outputs), [torch.stack(list(one)) for one in zip(*after, strict=True)]

    return steps


# --- SpikingJelly -----------------------------------------------------------------------------------------------------

JELLY_SURROGATES = ("Sigmoid", "ATan", "PiecewiseExp", "SuperSpike", "Erf", "SoftSign", "QPseudoSpike")


def jelly(name: str, states: str = "v", learned: dict[str, str] | None = None) -> Callable[..., Run]:
    """Run a SpikingJelly neuron; states have their names there, learned constants their snncell names."""

    def run(settings: dict[str, Any], x: Any, weights: Any) -> Run:
        there = import_module("spikingjelly.activation_based.neuron")
        surrogates = import_module("spikingjelly.activation_based.surrogate")
        given = dict(settings)
        if (function := given.get("surrogate_function")) is not None:
            given["surrogate_function"] = getattr(surrogates, function[0])(*function[1])
        if (most := given.pop("max_spike_count", None)) is not None:
            given["surrogate_function"] = surrogates.MultiLevelSpikeCount(most)
        node = getattr(there, name)(**given).double().train()

        def step(now: Any) -> tuple[Any, list[Any]]:
            return node(now), [getattr(node, one) for one in states.split()]

        return by_torch(stepped(step), {mine: getattr(node, of) for mine, of in (learned or {}).items()}, x, weights)

    return run


def jelly_integrator(settings: dict[str, Any], x: Any, weights: Any) -> Run:
    """Run NonSpikingLIFNode, which takes all time steps at once."""
    torch, there = import_module("torch"), import_module("spikingjelly.activation_based.neuron")

    def steps(x: Any) -> tuple[Any, list[Any]]:
        v = torch.stack(list(there.NonSpikingLIFNode(**settings, decode=None)(x)))
        return v, [v]

    return by_torch(steps, {}, x, weights)


def jelly_draw(*also: str, reset: bool = True, detach: bool = True, tau: bool = True) -> Callable[[Random], Draw]:
    """Settings that SpikingJelly neurons share, and random numbers for further names."""
    ranges = {
        "v_c": (0.3, 0.9), "a0": (0.2, 1.5), "v_rest": (-0.2, 0.1), "delta_T": (0.3, 1.5), "theta_rh": (0.3, 1.0),
        "w_rest": (-0.3, 0.3), "tau_w": (1.2, 8.0), "a": (-0.3, 0.3), "b": (0.0, 0.5), "c_decay": (0.1, 0.95),
        "v_decay": (0.1, 0.95), "omega": (0.3, 2.0), "dt": (0.3, 1.2), "init_tau": (1.1, 9.0), "damping": (-0.6, -0.05),
    }  # fmt: skip

    def draw(random: Random) -> Draw:
        settings = random.some(v_threshold=lambda: random.number(0.4, 1.6))
        if tau:
            settings |= random.some(tau=lambda: random.number(1.1, 9.0))
        if reset:
            settings |= random.some(v_reset=lambda: random.one(None, 0.0, random.number(-0.5, 0.3)))
        if detach:
            settings |= random.some(detach_reset=random.flag)
        for name in also:
            if name in ranges:
                key = "b" if name == "damping" else name
                settings |= random.some(**{key: lambda name=name: random.number(*ranges[name])})
            elif name == "max_spike_count":
                settings |= random.some(max_spike_count=lambda: random.one(1, 2, 5))
            else:
                settings |= random.some(**{name: random.flag})
        if "v_rest" in also and settings.get("v_reset", 0.0) is not None:  # it may not lie below v_reset there
            settings |= {"v_rest": (rest := random.number(-0.2, 0.1)), "v_reset": rest - random.number(0.0, 0.3)}
        theirs = dict(settings)
        if "max_spike_count" not in also and random.flag():
            name = random.one(*JELLY_SURROGATES)
            alpha = random.number(1.2, 4.0)
            settings["surrogate_function"] = getattr(s, name)(alpha)
            theirs["surrogate_function"] = (name, (alpha,))
        return settings, theirs

    return draw


# --- snnTorch ---------------------------------------------------------------------------------------------------------

TORCH_SURROGATES = {
    "atan": (s.ATan, (0.5, 4.0)),
    "fast_sigmoid": (s.FastSigmoid, (1.0, 30.0)),
    "sigmoid": (s.Sigmoid, (1.0, 5.0)),
    "straight_through_estimator": (s.StraightThrough, None),
}


def snntorch(name: str, order: tuple[int, ...]) -> Callable[..., Run]:
    """Run a snnTorch neuron; `order` lists its states in snncell's order."""

    def run(settings: dict[str, Any], x: Any, weights: Any) -> Run:
        there, functions = import_module("snntorch"), import_module("snntorch.surrogate")
        given = dict(settings)
        if (function := given.get("spike_grad")) is not None:
            given["spike_grad"] = getattr(functions, function[0])(*function[1])
        node = getattr(there, name)(**given).double()
        there.SpikingNeuron.init()  # it would be kept in a list of all for ever
        states: list[Any] = []

        def step(now: Any) -> tuple[Any, list[Any]]:
            out, *after = node(now, *states)
            states[:] = after
            return out, [after[n] for n in order]

        pairs = {"beta": "beta", "alpha": "alpha", "threshold": "v_threshold"}
        pairs["graded_spikes_factor"] = "graded_spikes_factor"
        learned = {mine: getattr(node, of) for of, mine in pairs.items() if given.get(f"learn_{of}")}
        return by_torch(stepped(step), learned, x, weights)

    return run


def snntorch_draw(*names: str, delay: bool = True, inhibition: bool = True) -> Callable[[Random], Draw]:
    """Settings of a snnTorch neuron: the required names and the shared ones."""

    def draw(random: Random) -> Draw:
        settings: dict[str, Any] = {"beta": random.number(0.1, 0.98)} if "beta" in names else {}
        if "alpha" in names:
            settings["alpha"] = random.number(0.1, 0.98)
        if "response" in names:  # Alpha: the fast exponential below the slow one
            fast = random.number(0.1, 0.7)
            settings |= {"beta": fast, "alpha": random.number(fast + 0.1, 0.98)}
        if "R" in names:
            two = {"beta": random.number(0.45, 0.95), "R": random.number(2.0, 6.0), "C": random.number(0.6, 2.0)}
            for left in random.one(("beta",), ("R",), ("C",), ("R", "C")):
                del two[left]
            settings |= two | random.some(time_step=lambda: random.number(0.3, 1.0) if "beta" not in two else 1.0)
        learnable = [name for name in ("beta", "alpha") if name in names]
        learnable += ["beta"] if "response" in names else []  # learn_alpha of Alpha raises a TypeError there
        settings |= random.some(**{f"learn_{name}": random.flag for name in [*learnable, "threshold"]})
        settings |= random.some(
            threshold=lambda: random.number(0.4, 1.6),
            reset_mechanism=lambda: random.one("subtract", "zero", "none"),
        )
        if delay:
            settings |= random.some(reset_delay=random.flag)
        at_once = settings.get("reset_delay") is False
        if inhibition and not at_once:
            settings |= random.some(inhibition=random.flag)
        if "graded" in names and not settings.get("inhibition"):
            settings |= random.some(graded_spikes_factor=lambda: random.number(0.3, 2.0))
            settings |= random.some(learn_graded_spikes_factor=random.flag)
        theirs = dict(settings)
        if random.flag():
            name = random.one(*TORCH_SURROGATES)
            make, bounds = TORCH_SURROGATES[name]
            args = () if bounds is None else (random.number(*bounds),)
            settings["spike_grad"] = make(*args)
            theirs["spike_grad"] = (name, args)
        swallows = at_once and settings.get("reset_mechanism", "subtract") == "subtract"
        if swallows or (settings.get("reset_mechanism") == "subtract" and "response" in names):
            settings["as_shipped"] = True
        return settings, theirs

    return draw


# --- Norse ------------------------------------------------------------------------------------------------------------


def norse_draw(*names: str, recurrent: bool = False) -> Callable[[Random], Draw]:
    """Settings of a Norse neuron: rates of the given names, and the shared ones."""
    ranges = {
        "tau_syn_inv": (20.0, 900.0), "tau_mem_inv": (20.0, 900.0), "tau_adapt_inv": (1.0, 600.0),
        "tau_ada_inv": (1.0, 600.0), "v_leak": (-0.2, 0.2), "v_th": (0.4, 1.2), "v_reset": (-0.4, 0.2),
        "beta": (0.1, 2.0), "adaptation_current": (-0.5, 1.0), "adaptation_spike": (0.0, 0.3), "delta_T": (0.3, 1.0),
    }  # fmt: skip

    def draw(random: Random) -> Draw:
        settings: dict[str, Any] = {}
        for name in names:
            if name == "rho_reset":
                settings |= random.some(rho_reset=lambda: float(random.one(1, 2, 3)))
            elif name == "reset_method":
                settings |= random.some(reset_method=lambda: random.one("reset_value", "reset_subtract"))
            elif name == "dt":
                settings |= random.some(dt=lambda: random.number(0.0005, 0.001))
            else:
                settings |= random.some(**{name: lambda name=name: random.number(*ranges[name])})
        if "v_th" in names and random.flag():
            settings["method"] = random.one("super", "triangle", "tanh", "circ", "heavi_erfc")
            if settings["method"] != "super":
                settings["alpha"] = random.number(0.3, 3.0)
        if recurrent and random.flag():
            settings["recurrent"] = True
        # v_leak and v_reset are first states, which are constants there; so is LSNN's first threshold.
        fixed = {"v_leak", "v_reset", "dt", "rho_reset", "reset_method"} | ({"v_th"} if "beta" in names else set())
        return trained(random, settings, settings, *[name for name in names if name not in fixed])

    return draw


def izhikevich_draw(random: Random) -> Draw:
    """Settings of Norse's Izhikevich neuron, near those of the paper."""
    ranges = {"a": (0.01, 0.1), "b": (0.1, 0.26), "c": (-70.0, -50.0), "d": (0.0, 8.0)}
    settings: dict[str, Any] = {name: random.number(*bounds) for name, bounds in ranges.items()}
    settings |= random.some(v_th=lambda: random.number(20.0, 40.0), tau_inv=lambda: random.number(100.0, 400.0))
    if random.flag():
        settings |= {"method": random.one("triangle", "tanh", "circ", "heavi_erfc"), "alpha": random.number(0.3, 3.0)}
    return settings, settings


def norse(name: str, functions: str, states: str, feed_forward: str, recurrent: str = "") -> Callable[..., Run]:
    """Run a step function of Norse, with its states in snncell's order."""

    def run(settings: dict[str, Any], x: Any, weights: Any) -> Run:
        torch, there = import_module("torch"), import_module(f"norse.torch.functional.{functions}")
        dt, through = settings.get("dt", 0.001), settings.get("recurrent", False)
        words = {"method", "reset_method"}
        given = {
            key: value if key in words else torch.tensor(value, dtype=torch.float64)
            for key, value in settings.items()
            if key not in ("dt", "recurrent", "trained")
        }
        learned = {f"settings {key}": given[key].requires_grad_() for key in settings.get("trained", ())}
        if "reset_method" in given:
            given["reset_method"] = getattr(import_module("norse.torch.functional.reset"), given["reset_method"])
        if functions == "lif_refrac":
            own = {key: given.pop(key) for key in list(given) if key == "rho_reset"}
            lif = import_module("norse.torch.functional.lif").LIFParameters(**given)
            p, inner = there.LIFRefracParameters(lif=lif, **own), lif
        else:
            p = inner = getattr(there, f"{name}Parameters")(**given)
        shape = x.shape[1:]
        zero = torch.zeros(shape, dtype=torch.float64)
        # The parameters that are left out are float32 there; of the states only the first potential shows it.
        first = {"v": zero + getattr(inner, "v_leak", 0.0)}
        first |= {"i": zero, "a": zero, "rho": zero, "z": zero}
        first["b"] = zero + inner.v_th if functions == "lsnn" else zero
        if functions == "iaf":
            first["v"] = zero + p.v_reset
        if functions == "izhikevich":
            first |= {"v": zero - 65.0, "u": (zero - 65.0) * p.b}
        eye, no = torch.eye(shape[-1], dtype=torch.float64), torch.zeros(shape[-1], shape[-1], dtype=torch.float64)
        state = [_norse_state(there, name, first, through)]

        def step(now: Any) -> tuple[Any, list[Any]]:
            if through:
                out, state[0] = getattr(there, recurrent)(now, state[0], eye, no, p, dt)
            else:
                out, state[0] = getattr(there, feed_forward)(now, state[0], p, dt)
            found = _flat(state[0])
            if functions == "lsnn":
                found["b"] = found["b"] - p.v_th
            return out, [found[one] for one in states.split()]

        return by_torch(stepped(step), learned, x, weights)

    return run


def _norse_state(there: Any, name: str, first: dict[str, Any], through: bool) -> Any:
    """The initial state of a Norse neuron."""
    if name == "LIFRefrac":
        lif = _norse_state(import_module("norse.torch.functional.lif"), "LIF", first, through)
        kind = there.LIFRefracState if through else there.LIFRefracFeedForwardState
        return kind(lif, first["rho"])
    kind = getattr(there, f"{name}State" if through or name in ("LI", "Izhikevich") else f"{name}FeedForwardState")
    return kind(**{field: first[field] for field in kind._fields})


def _flat(state: Any) -> dict[str, Any]:
    """The states of a Norse neuron by name."""
    found: dict[str, Any] = {}
    for field in state._fields:
        value = getattr(state, field)
        found |= _flat(value) if hasattr(value, "_fields") else {field: value}
    return found


# --- sinabs -----------------------------------------------------------------------------------------------------------


def sinabs_draw(*names: str) -> Callable[[Random], Draw]:
    """Settings of a sinabs layer: time constants of the given names, and the shared ones."""

    def draw(random: Random) -> Draw:
        taus = {name: random.number(0.5, 12.0) for name in names if name in ("tau_mem", "tau_adapt")}
        settings: dict[str, Any] = taus | random.some(min_v_mem=lambda: random.number(-0.6, -0.01))
        if "tau_syn" in names:
            settings |= random.some(tau_syn=lambda: random.number(0.5, 8.0))
        if names != ("tau_syn",):
            settings |= random.some(norm_input=random.flag, train_alphas=random.flag)
        taus = () if settings.get("train_alphas") else ("tau_mem", "tau_syn", "tau_adapt")
        if names == ("tau_mem",):
            return trained(random, settings, settings, *taus)
        settings |= random.some(
            spike_threshold=lambda: random.number(0.4, 1.6),
            spike_fn=lambda: random.one("MultiSpike", "SingleSpike", 2, 3),
            reset_fn=lambda: random.one("MembraneSubtract", "MembraneReset"),
        )
        if settings.get("reset_fn") == "MembraneReset":
            settings |= random.some(reset_value=lambda: random.number(-0.3, 0.2))
        else:
            settings |= random.some(subtract_value=lambda: random.number(0.2, 1.0))
        if "tau_adapt" in names:
            settings |= random.some(adapt_scale=lambda: random.number(0.1, 3.0))
        settings |= {"as_shipped": True} if _runs_down(settings, names) or settings.get("reset_value") else {}
        theirs = dict(settings)
        single = settings.get("spike_fn", "SingleSpike" if "tau_adapt" in names else "") == "SingleSpike"
        if random.flag() and ("tau_adapt" not in names or single):
            sigma = random.number(0.2, 1.0)
            name = random.one("Gaussian", "MultiGaussian")
            settings["surrogate_grad_fn"] = getattr(s, name)(sigma)
            theirs["surrogate_grad_fn"] = (name, {"sigma": sigma})
        else:
            own = random.some(grad_width=lambda: random.number(0.2, 1.5), grad_scale=lambda: random.number(0.3, 2.0))
            settings |= own
            theirs["surrogate_grad_fn"] = ("SingleExponential", own)
        return trained(random, settings, theirs, *taus)

    return draw


def _runs_down(settings: dict[str, Any], names: tuple[str, ...]) -> bool:
    """True if ALIF multiplies its current by the membrane gain at every step; such settings are not trained."""
    if "tau_adapt" not in names or "tau_syn" not in settings or not settings.get("norm_input", True):
        return False
    settings.pop("train_alphas", None)
    return True


def sinabs(name: str) -> Callable[..., Run]:
    """Run a sinabs layer step by step."""

    def run(settings: dict[str, Any], x: Any, weights: Any) -> Run:
        torch, layers = import_module("torch"), import_module("sinabs.layers")
        activation = import_module("sinabs.activation")
        given = {key: value for key, value in settings.items() if key not in ("as_shipped", "trained")}
        if (function := given.get("surrogate_grad_fn")) is not None:
            given["surrogate_grad_fn"] = getattr(activation, function[0])(**function[1])
        if (fn := given.get("spike_fn")) is not None:
            given["spike_fn"] = getattr(activation, fn) if isinstance(fn, str) else activation.MaxSpike(fn)
        reset = given.pop("reset_fn", "MembraneSubtract")
        words = {word: given.pop(word) for word in ("reset_value", "subtract_value") if word in given}
        if name != "ExpLeak":
            given["reset_fn"] = getattr(activation, reset)(**words)
        if "spike_threshold" in given:
            given["spike_threshold"] = torch.tensor(given["spike_threshold"])
        layer = getattr(layers, name)(**given).double()
        if name == "ALIF":
            layer.b0 = torch.as_tensor(layer.b0, dtype=torch.float64)
        step = _alif_step(layer, x) if name == "ALIF" else _lif_step(layer)
        learned = {f"settings {key}": getattr(layer, key) for key in settings.get("trained", ())}
        if settings.get("train_alphas"):
            here = {"ALIF": ("alpha", "rho")}.get(name, ("beta",))
            there = ("alpha_mem", "alpha_adapt")
            learned = {mine: getattr(layer, of) for mine, of in zip(here, there, strict=False)}
            if "tau_syn" in settings:
                learned["cell.alpha" if name == "ALIF" else "alpha"] = layer.alpha_syn
                if name == "ALIF":
                    learned = {"cell.alpha": layer.alpha_mem, "cell.rho": layer.alpha_adapt, "alpha": layer.alpha_syn}
        return by_torch(stepped(step), learned, x, weights)

    return run


def _lif_step(layer: Any) -> Callable[[Any], tuple[Any, list[Any]]]:
    def step(now: Any) -> tuple[Any, list[Any]]:
        out = layer(now[:, None])[:, 0]
        return out, [layer.v_mem] + ([layer.i_syn] if getattr(layer, "i_syn", None) is not None else [])

    return step


def _alif_step(layer: Any, x: Any) -> Callable[[Any], tuple[Any, list[Any]]]:
    """Call the layer's step with states kept here, because the layer loses its current between calls."""
    torch, functional = import_module("torch"), import_module("sinabs.layers.functional.alif")
    zero = torch.zeros(x.shape[1:], dtype=torch.float64)
    state = [{"v_mem": zero, "b": zero, "spike_threshold": zero, "i_syn": zero}]

    def step(now: Any) -> tuple[Any, list[Any]]:
        out, state[0] = functional.alif_forward_single(
            now,
            layer.alpha_mem_calculated,
            layer.alpha_adapt_calculated,
            layer.alpha_syn_calculated,
            layer.adapt_scale,
            dict(state[0]),
            layer.spike_fn,
            layer.reset_fn,
            layer.surrogate_grad_fn,
            layer.min_v_mem,
            layer.b0,
            layer.norm_input,
        )
        found = [state[0]["v_mem"], state[0]["b"]]
        return out, found if layer.alpha_syn_calculated is None else [state[0]["i_syn"], *found]

    return step


# --- Spyx -------------------------------------------------------------------------------------------------------------

SPYX_SURROGATES: dict[str, Callable[[float], Any]] = {
    "superspike": s.FastSigmoid,
    "tanh": s.Tanh,
    "arctan": lambda k: s.Scaled(s.ATan(2.0 * k), 1.0 / (np.pi * k)),
    "triangular": lambda k: s.Triangle(1.0, 1.0 / k),
}


def spyx_draw(*names: str) -> Callable[[Random], Draw]:
    """Settings of a Spyx neuron: decay factors of the given names, and the shared ones."""

    def draw(random: Random) -> Draw:
        settings: dict[str, Any] = {name: random.number(0.1, 0.98) for name in names}
        settings |= random.some(threshold=lambda: random.number(0.4, 1.6))
        theirs = dict(settings)
        if random.flag():
            name, k = random.one(*SPYX_SURROGATES), random.number(0.5, 5.0)
            settings["activation"], theirs["activation"] = SPYX_SURROGATES[name](k), (name, k)
        return settings, theirs

    return draw


def spyx(name: str, states: int) -> Callable[..., Run]:
    """Run a Spyx neuron."""

    def run(settings: dict[str, Any], x: Any, weights: Any) -> Run:
        jax, there, axn = import_module("jax"), import_module("spyx.nn"), import_module("spyx.axn")
        jax.config.update("jax_enable_x64", True)
        given = dict(settings)
        if (function := given.get("activation")) is not None:
            given["activation"] = getattr(axn, function[0])(function[1])
        node = getattr(there, name)(x.shape[2:], **given, rngs=import_module("flax.nnx").Rngs(0))

        def steps(x: Any) -> Any:
            state, outputs, after = node.initial_state(x.shape[1]).astype(x.dtype), [], []
            for now in x:
                out, state = node(now, state)
                outputs.append(out)
                after.append(jax.numpy.split(state, states, -1))
            return jax.numpy.stack(outputs), [jax.numpy.stack(one) for one in zip(*after, strict=True)]

        (y, after), pull = jax.vjp(steps, jax.numpy.asarray(x))
        own = [jax.numpy.asarray(STATES * weights, one.dtype) for one in after]
        (gradient,) = pull((jax.numpy.asarray(weights, y.dtype), own))
        return Run(np.asarray(y), [np.asarray(one) for one in after], np.asarray(gradient), {})

    return run


# --- all of them ------------------------------------------------------------------------------------------------------

NONLINEAR = ("tau", "v_rest", "a0", "v_c")
LIF_RATES = ("tau_syn_inv", "tau_mem_inv", "v_leak", "v_th", "v_reset", "dt")
ADEX = ("adaptation_current", "adaptation_spike", "delta_T", "tau_ada_inv")
PEERS: dict[str, Peer] = {
    "SpikingJelly IF": Peer(nn.IFNode, "spikingjelly", jelly_draw(tau=False), jelly("IFNode"), (0.5, 2.0)),
    "SpikingJelly LIF": Peer(nn.LIFNode, "spikingjelly", jelly_draw("decay_input"), jelly("LIFNode"), (1.0, 6.0)),
    "SpikingJelly PLIF": Peer(
        nn.ParametricLIFNode,
        "spikingjelly",
        jelly_draw("init_tau", "decay_input", tau=False),
        jelly("ParametricLIFNode", learned={"w": "w"}),
        (1.0, 6.0),
    ),
    "SpikingJelly CUBA": Peer(
        nn.CubaLIFNode,
        "spikingjelly",
        jelly_draw("c_decay", "v_decay", detach=False, tau=False),
        jelly("CUBALIFNode", "v c"),
        (0.3, 1.5),
    ),
    "SpikingJelly QIF": Peer(
        nn.QIFNode, "spikingjelly", jelly_draw("v_c", "a0", "v_rest"), jelly("QIFNode"), (1.0, 3.0)
    ),
    "SpikingJelly EIF": Peer(
        nn.EIFNode, "spikingjelly", jelly_draw("delta_T", "theta_rh", "v_rest"), jelly("EIFNode"), (0.5, 3.0)
    ),
    "SpikingJelly Izhikevich": Peer(
        nn.IzhikevichNode,
        "spikingjelly",
        jelly_draw("v_c", "a0", "v_rest", "w_rest", "tau_w", "a", "b"),
        jelly("IzhikevichNode", "v w"),
        (1.0, 4.0),
    ),
    "SpikingJelly KLIF": Peer(
        nn.KLIFNode,
        "spikingjelly",
        jelly_draw("scale_reset", "decay_input"),
        jelly("KLIFNode", learned={"k": "k"}),
        (1.0, 6.0),
    ),
    "SpikingJelly CLIF": Peer(
        nn.CLIFNode,
        "spikingjelly",
        jelly_draw(reset=False, detach=False),
        jelly("ComplementaryLIFNode", "v m"),
        (0.8, 3.0),
    ),
    "SpikingJelly ILIF": Peer(
        nn.ILIFNode, "spikingjelly", jelly_draw("max_spike_count", reset=False), jelly("ILIFNode"), (1.0, 5.0)
    ),
    "SpikingJelly RAF": Peer(
        nn.ResonateNode,
        "spikingjelly",
        jelly_draw("damping", "omega", "dt", tau=False),
        jelly("RAFNode", "v u"),
        (0.8, 3.0),
    ),
    "SpikingJelly LI": Peer(
        nn.LINode,
        "spikingjelly",
        lambda random: (given := random.some(tau=lambda: random.number(1.1, 9.0)), given),
        jelly_integrator,
        (1.0, 4.0),
        False,
    ),
    "snnTorch Leaky": Peer(
        nn.LIFNode, "snntorch", snntorch_draw("beta", "graded"), snntorch("Leaky", (0,)), (0.5, 2.5)
    ),
    "snnTorch Synaptic": Peer(
        nn.CubaLIFNode, "snntorch", snntorch_draw("alpha", "beta"), snntorch("Synaptic", (1, 0)), (0.3, 1.5)
    ),
    "snnTorch Alpha": Peer(
        nn.AlphaNode,
        "snntorch",
        snntorch_draw("response", delay=False, inhibition=False),
        snntorch("Alpha", (0, 1, 2)),
        (1.0, 4.0),
    ),
    "snnTorch Lapicque": Peer(
        nn.LIFNode, "snntorch.Lapicque", snntorch_draw("R", delay=False), snntorch("Lapicque", (0,)), (0.5, 2.5)
    ),
    "Norse LIF": Peer(
        nn.LIFNode,
        "norse",
        norse_draw(*LIF_RATES, recurrent=True),
        norse("LIF", "lif", "v i", "lif_feed_forward_step", "lif_step"),
        (2.0, 12.0),
    ),
    "Norse IAF": Peer(
        nn.IFNode, "norse", norse_draw("v_th", "v_reset"), norse("IAF", "iaf", "v", "iaf_feed_forward_step"), (0.5, 2.0)
    ),
    "Norse LIFBox": Peer(
        nn.LIFNode,
        "norse.LIFBox",
        norse_draw("tau_mem_inv", "v_leak", "v_th", "v_reset", "reset_method", "dt"),
        norse("LIFBox", "lif_box", "v", "lif_box_feed_forward_step"),
        (2.0, 10.0),
    ),
    "Norse LSNN": Peer(
        nn.ALIFNode,
        "norse",
        norse_draw(*LIF_RATES, "tau_adapt_inv", "beta", recurrent=True),
        norse("LSNN", "lsnn", "i v b", "lsnn_feed_forward_step", "lsnn_step"),
        (2.0, 12.0),
    ),
    "Norse LIFAdEx": Peer(
        nn.AdExNode,
        "norse",
        norse_draw(*LIF_RATES, *ADEX),
        norse("LIFAdEx", "lif_adex", "i v a", "lif_adex_feed_forward_step"),
        (2.0, 10.0),
    ),
    "Norse LIFRefrac": Peer(
        nn.RefractoryLIFNode,
        "norse",
        norse_draw(*LIF_RATES, "rho_reset", recurrent=True),
        norse("LIFRefrac", "lif_refrac", "i v rho", "lif_refrac_feed_forward_step", "lif_refrac_step"),
        (2.0, 12.0),
    ),
    "Norse LI": Peer(
        nn.LINode,
        "norse",
        norse_draw("tau_syn_inv", "tau_mem_inv", "v_leak", "dt"),
        norse("LI", "leaky_integrator", "i v", "li_feed_forward_step"),
        (1.0, 4.0),
        False,
    ),
    "Norse Izhikevich": Peer(
        nn.IzhikevichNode,
        "norse",
        izhikevich_draw,
        norse("Izhikevich", "izhikevich", "v u", "izhikevich_feed_forward_step"),
        (20.0, 90.0),
    ),
    "sinabs IAF": Peer(nn.IFNode, "sinabs", sinabs_draw("tau_syn"), sinabs("IAF"), (0.5, 2.0)),
    "sinabs LIF": Peer(nn.LIFNode, "sinabs", sinabs_draw("tau_mem", "tau_syn"), sinabs("LIF"), (1.0, 6.0)),
    "sinabs ALIF": Peer(
        nn.ALIFNode, "sinabs", sinabs_draw("tau_mem", "tau_adapt", "tau_syn"), sinabs("ALIF"), (1.0, 8.0)
    ),
    "sinabs ExpLeak": Peer(nn.LINode, "sinabs", sinabs_draw("tau_mem"), sinabs("ExpLeak"), (1.0, 3.0), False),
    "Spyx IF": Peer(nn.IFNode, "spyx", spyx_draw(), spyx("IF", 1), (0.5, 2.0)),
    "Spyx LIF": Peer(nn.LIFNode, "spyx", spyx_draw("beta"), spyx("LIF", 1), (0.5, 2.0)),
    "Spyx CuBaLIF": Peer(nn.CubaLIFNode, "spyx", spyx_draw("alpha", "beta"), spyx("CuBaLIF", 2), (0.3, 1.5)),
    "Spyx ALIF": Peer(nn.ALIFNode, "spyx", spyx_draw("beta", "gamma"), spyx("ALIF", 2), (0.5, 3.0)),
    "Spyx LI": Peer(
        nn.LINode,
        "spyx",
        lambda random: (given := {"beta": random.number(0.1, 0.98)}, given),
        spyx("LI", 1),
        (0.5, 2.0),
        False,
    ),
}
