"""Surrogates of installed frameworks, their backward passes, and the primitives or derivatives that they document.

Each framework is one row of `FRAMEWORKS`. Its surrogates are found in its module, so the audit sees new ones, too.
The formulas in `DOCUMENTED` are those of the frameworks' own docstrings; `snncell.testing.audit` compares the two.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
from numpy import absolute, arctan, cos, exp, pi, sqrt, tanh

__all__ = ["FRAMEWORKS", "Claim", "Constants", "Framework", "Function", "Spike", "numbers_of_signature"]

Function = Callable[[np.ndarray], np.ndarray]
Constants = Mapping[str, float]


@dataclass(frozen=True)
class Claim:
    """A primitive, whose derivative the backward pass should be, or a formula of the backward pass itself."""

    kind: str  # "primitive" or "derivative"
    source: str  # the formula and its place
    function: Function


@dataclass(frozen=True)
class Spike:
    """A spike function: its constants by default, its backward pass and its claims for any constants."""

    name: str
    constants: Constants
    backward: Callable[[Constants], Function]
    claims: Callable[[Constants], list[Claim]] = lambda constants: []

    def call(self, constants: Constants) -> str:
        """The call that makes this spike function, for the report."""
        return f"{self.name}({', '.join(f'{name}={value:g}' for name, value in constants.items())})"


@dataclass(frozen=True)
class Framework:
    """A framework: its package on PyPI, the module of its surrogates, and a snippet that shows one backward pass."""

    package: str
    module: str
    spikes: Callable[[Any], Iterator[Spike]] = field(repr=False)
    snippet: str = field(repr=False)


def numbers_of_signature(kind: Any) -> dict[str, float]:
    """The arguments of a class or function that have a number as default."""
    defaults = {name: p.default for name, p in inspect.signature(kind).parameters.items()}
    return {name: d for name, d in defaults.items() if isinstance(d, (int, float)) and not isinstance(d, bool)}


# --- formulas of docstrings -------------------------------------------------------------------------------------------


def normal(x: np.ndarray, mean: float, deviation: float) -> np.ndarray:
    """The normal density."""
    bell: np.ndarray = exp(-((x - mean) ** 2) / (2 * deviation**2)) / (deviation * sqrt(2 * pi))
    return bell


def many_normals(x: np.ndarray, h: float, s: float, sigma: float, scale: float) -> np.ndarray:
    """The multi-Gaussian derivative of Yin et al., 2021: a positive bell, and two wide negative ones."""
    sides = normal(x, sigma, s * sigma) + normal(x, -sigma, s * sigma)
    return np.asarray(scale * ((1 + h) * normal(x, 0.0, sigma) - h * sides))


def erf(x: np.ndarray) -> np.ndarray:
    """The error function of each element."""
    return np.array([math.erf(value) for value in x.ravel()]).reshape(x.shape)


def fast_sigmoid(x: np.ndarray, slope: float) -> np.ndarray:
    """The derivative of the fast sigmoid x / (1 + slope |x|)."""
    return np.asarray(1 / (1 + slope * absolute(x)) ** 2)


# The versions whose docstrings these are. A later version may document another formula, so the report names them.
READ = {
    "spikingjelly": "2.0.0",
    "snntorch": "1.0.0",
    "norse": "1.1.0",
    "sinabs": "3.1.3",
    "spyx": "1.0.0",
    "braintools": "0.1.10",
}
P, D = "primitive", "derivative"
Formula = tuple[str, str, Callable[..., np.ndarray]]
HALF_TANH: Formula = (P, "1/2 + 1/2 tanh(k x)", lambda x, k: 0.5 + 0.5 * tanh(k * x))
HALF_CIRC: Formula = (P, "1/2 + 1/2 x / sqrt(x^2 + alpha^2)", lambda x, alpha: 0.5 + 0.5 * x / sqrt(x**2 + alpha**2))

DOCUMENTED: dict[str, dict[str, list[Formula]]] = {
    "spikingjelly": {
        "SuperSpike": [(D, "alpha / (1 + |x|)^2", lambda x, alpha: alpha / (1 + absolute(x)) ** 2)],
        "FakeNumericalGradient": [(D, "clip(sign(x) / x, alpha)", lambda x, alpha: np.minimum(1 / absolute(x), alpha))],
    },
    "snntorch": {
        "straight_through_estimator": [(D, "1", lambda x: np.ones_like(x))],
        "triangular": [
            (D, "U_thr below the threshold, else -U_thr", lambda x, threshold: np.where(x < 0, threshold, -threshold))
        ],
        "fast_sigmoid": [
            (P, "U / (1 + k |U|)", lambda x, slope: x / (1 + slope * absolute(x))),
            (D, "1 / (1 + k |U|)^2", fast_sigmoid),
        ],
        "atan": [
            (P, "1/pi arctan(pi U alpha / 2)", lambda x, alpha: arctan(pi * x * alpha / 2) / pi),
            (D, "1/pi 1 / (1 + (pi U alpha / 2)^2)", lambda x, alpha: 1 / pi / (1 + (pi * x * alpha / 2) ** 2)),
        ],
        "heaviside": [(D, "1 above the threshold, else 0", lambda x: (x >= 0) * 1.0)],
        "sigmoid": [
            (P, "1 / (1 + exp(-k U))", lambda x, slope: 0.5 + 0.5 * tanh(slope * x / 2)),
            (
                D,
                "k exp(-k U) / (exp(-k U) + 1)^2",
                lambda x, slope: slope * exp(-slope * absolute(x)) / (exp(-slope * absolute(x)) + 1) ** 2,
            ),
        ],
        "spike_rate_escape": [(D, "k exp(-beta |U - 1|)", lambda x, beta, slope: slope * exp(-beta * absolute(x - 1)))],
        "LSO": [(D, "1 above the threshold, else k", lambda x, slope: np.where(x >= 0, 1.0, slope))],
        "SFS": [
            (P, "U / (1 + k |U|) H(U - B)", lambda x, slope, **c: x / (1 + slope * absolute(x)) * (x > c["B"])),
            (D, "1 / (1 + k |U|)^2 if U > B, else 0", lambda x, slope, **c: fast_sigmoid(x, slope) * (x > c["B"])),
        ],
    },
    "norse": {
        "HeaviErfc": [
            (P, "1/2 + 1/2 erf(k x), which the docstring writes as erfc", lambda x, k: 0.5 + 0.5 * erf(k * x))
        ],
        "HeaviTanh": [HALF_TANH],
        "Logistic": [HALF_TANH],
        "HeaviCirc": [HALF_CIRC],
        "CircDist": [HALF_CIRC],
    },
    "sinabs": {
        "Gaussian": [
            (
                D,
                "the normal density of mean mu and standard deviation sigma, times grad_scale",
                lambda x, mu, sigma, grad_scale: grad_scale * normal(x, mu, sigma),
            )
        ]
    },
    "spyx": {
        "custom": [(D, "1, the straight-through estimator", lambda x: np.ones_like(x))],
        "tanh": [
            (D, "4 / (e^-kx + e^kx)^2", lambda x, k: 4 / (exp(-k * x) + exp(k * x)) ** 2),
            (P, "tanh(k x)", lambda x, k: tanh(k * x)),
        ],
        "boxcar": [(D, "h where |x| <= w / 2", lambda x, width, height: height * (absolute(x) <= width / 2))],
        "triangular": [(D, "max(0, 1 - |k x|)", lambda x, k: np.maximum(0, 1 - absolute(k * x)))],
        "superspike": [(D, "1 / (1 + k |U|)^2", lambda x, k: fast_sigmoid(x, k))],
    },
    "braintools": {
        "PiecewiseQuadratic": [
            (D, "alpha - alpha^2 |x|, at least 0", lambda x, alpha: np.maximum(0, alpha - alpha**2 * absolute(x)))
        ],
        "Arctan": [
            (D, "alpha / (2 (1 + (pi/2 alpha x)^2))", lambda x, alpha: alpha / 2 / (1 + (pi / 2 * alpha * x) ** 2))
        ],
        "ERF": [(D, "alpha / sqrt(pi) e^(-alpha^2 x^2)", lambda x, alpha: alpha / sqrt(pi) * exp(-((alpha * x) ** 2)))],
        "PiecewiseLeakyRelu": [(D, "1/w where |x| <= w, else c", lambda x, c, w: np.where(absolute(x) <= w, 1 / w, c))],
        "QPseudoSpike": [
            (D, "(1 + 2 |x| / (alpha - 1))^-alpha", lambda x, alpha: (1 + 2 * absolute(x) / (alpha - 1)) ** -alpha)
        ],
        "SquarewaveFourierSeries": [
            (
                D,
                "sum of 4/T cos((2 i - 1) 2 pi x / T) for i = 1 to n",
                lambda x, n, t_period: sum(
                    4 / t_period * cos((2 * i - 1) * 2 * pi * x / t_period) for i in range(1, n + 1)
                ),
            )
        ],
        "ReluGrad": [
            (D, "max(0, alpha (width - |x|))", lambda x, alpha, width: np.maximum(0, alpha * (width - absolute(x))))
        ],
        "GaussianGrad": [
            (
                D,
                "alpha / (sigma sqrt(2 pi)) exp(-x^2 / (2 sigma^2))",
                lambda x, sigma, alpha: alpha * normal(x, 0, sigma),
            )
        ],
        "MultiGaussianGrad": [
            (D, "scale ((1 + h) N(0, sigma) - h N(sigma, s sigma) - h N(-sigma, ...))", many_normals)
        ],
        "InvSquareGrad": [(D, "1 / (alpha |x| + 1)^2", lambda x, alpha: fast_sigmoid(x, alpha))],
        "SlayerGrad": [(D, "exp(-alpha |x|)", lambda x, alpha: exp(-alpha * absolute(x)))],
    },
}


def docstring_claims(package: str, name: str, constants: Constants) -> list[Claim]:
    """The claims in the docstring of a surrogate, for some constants."""
    rows = DOCUMENTED[package].get(name, [])
    place = f"docstring of {READ[package]}"
    return [Claim(kind, f"{place}: {text}", partial(formula, **constants)) for kind, text, formula in rows]


# --- evaluation in each framework -------------------------------------------------------------------------------------


def of_torch(function: Any) -> Function:
    """The gradient of a PyTorch function, as a function of arrays."""
    torch = import_module("torch")

    def gradient(x: np.ndarray) -> np.ndarray:
        leaf = torch.tensor(x, requires_grad=True)
        function(leaf).sum().backward()
        return np.array(leaf.grad.numpy())

    return gradient


def to_torch(function: Any) -> Function:
    """A PyTorch function, as a function of arrays."""
    torch = import_module("torch")
    return lambda x: np.array(function(torch.tensor(x)).detach().numpy())


def in_jax(function: Any, differentiate: bool = True) -> Function:
    """The gradient of a JAX function, or the function itself, as a function of arrays, in the dtype of x."""
    jax = import_module("jax")

    def call(x: np.ndarray) -> np.ndarray:
        with jax.enable_x64(True):
            value = jax.numpy.asarray(x)
            if not differentiate:
                return np.array(function(value))
            out, pull = jax.vjp(function, value)
            return np.array(pull(jax.numpy.ones_like(out))[0])

    return call


def build(evaluate: Callable[[Any], Function], make: Any, constants: Constants) -> Function:
    """The backward pass of the spike function `make(**constants)`, by `of_torch` or `in_jax`."""
    return evaluate(make(**constants))


def classes(module: Any, base: Any) -> Iterator[tuple[str, Any]]:
    """The classes of a module that derive from `base`, by name."""
    for name, kind in sorted(vars(module).items()):
        if isinstance(kind, type) and issubclass(kind, base) and kind is not base:
            yield name, kind


def functions(module: Any) -> Iterator[tuple[str, Any]]:
    """Factories: public functions of the module without required arguments."""
    for name, make in sorted(vars(module).items()):
        if not inspect.isfunction(make) or make.__module__ != module.__name__ or name.startswith("_"):
            continue
        if all(p.default is not p.empty for p in inspect.signature(make).parameters.values()):
            yield name, make


# --- one function per framework: its spike functions ------------------------------------------------------------------


def of_snncell(module: Any) -> Iterator[Spike]:
    """The spike functions of snncell."""
    snncell = import_module("snncell")
    for name, kind in classes(module, module.Surrogate):
        try:
            cell = kind()
        except TypeError:  # a wrapper of a surrogate
            kind = partial(kind, module.ATan())
            cell = kind()
        names = {name: getattr(cell, name) for name in cell.constants}
        constants = {name: value for name, value in names.items() if isinstance(value, (int, float))}

        def backward(constants: Constants, kind: Any = kind) -> Function:
            return lambda x: np.array(snncell.grad(kind(**constants))(snncell.Tensor(x)).asnumpy())

        def claims(constants: Constants, kind: Any = kind) -> list[Claim]:
            made = kind(**constants)
            return [Claim(P, "primitive", lambda x: np.array(made.primitive(snncell.Tensor(x)).asnumpy()))]

        yield Spike(name, constants, backward, claims)


def of_spikingjelly(module: Any) -> Iterator[Spike]:
    """The spike functions of SpikingJelly."""
    for name, kind in classes(module, module.SurrogateFunctionBase):

        def claims(constants: Constants, name: str = name, kind: Any = kind) -> list[Claim]:
            rows = docstring_claims("spikingjelly", name, constants)
            try:
                kind(**constants, spiking=False)(import_module("torch").zeros(1))
            except (NotImplementedError, TypeError):  # it has no primitive
                return rows
            return [Claim(P, "primitive_function", to_torch(kind(**constants, spiking=False))), *rows]

        yield Spike(name, numbers_of_signature(kind), partial(build, of_torch, kind), claims)


def of_factories(package: str, evaluate: Callable[[Any], Function], module: Any) -> Iterator[Spike]:
    """The spike functions of snnTorch and Spyx, which functions make."""
    for name, make in functions(module):
        yield Spike(
            name, numbers_of_signature(make), partial(build, evaluate, make), partial(docstring_claims, package, name)
        )


def of_norse(module: Any) -> Iterator[Spike]:
    """The spike functions of Norse."""
    functions_of_torch = import_module("torch").autograd.Function
    functions_of_torch = dict(classes(module, functions_of_torch)) | dict(
        classes(import_module("norse.torch.functional.superspike"), functions_of_torch)
    )
    for name, kind in functions_of_torch.items():
        constant = [*inspect.signature(kind.forward).parameters][-1]  # the last argument of every one

        def backward(constants: Constants, kind: Any = kind) -> Function:
            return of_torch(lambda x: kind.apply(x, *constants.values()))

        yield Spike(name, {constant: 1.0}, backward, partial(docstring_claims, "norse", name))


def of_sinabs(module: Any) -> Iterator[Spike]:
    """The spike functions of sinabs."""
    for name, kind in classes(module, object):

        def backward(constants: Constants, kind: Any = kind) -> Function:
            return to_torch(lambda x: kind(**constants)(x + 1.0, 1.0))  # a threshold of 1

        yield Spike(name, numbers_of_signature(kind), backward, partial(docstring_claims, "sinabs", name))


def of_braintools(module: Any) -> Iterator[Spike]:
    """The spike functions of braintools."""
    for name, kind in classes(module, module.Surrogate):

        def claims(constants: Constants, name: str = name, kind: Any = kind) -> list[Claim]:
            rows = docstring_claims("braintools", name, constants)
            if kind.surrogate_fun is module.Surrogate.surrogate_fun:  # it has no primitive
                return rows
            return [Claim(P, "surrogate_fun", in_jax(kind(**constants).surrogate_fun, False)), *rows]

        yield Spike(name, numbers_of_signature(kind), partial(build, in_jax, kind), claims)


TORCH = "import torch\n{imports}\nx = torch.tensor([{x:.6g}], dtype=torch.{dtype}, requires_grad=True)\n{call}\n"
TORCH += "print(x.grad.item())  # {found:.6g}, and by its {kind}: {claimed:.6g}"
JAX = "import jax\n{imports}\nprint(jax.grad({call})({x:.6g}))  # {found:.4g}, and by its {kind}: {claimed:.4g}"


def snippet(template: str, imports: str, call: str) -> str:
    """A template with the imports and the call of one framework."""
    return template.replace("{imports}", imports).replace("{call}", call)


FRAMEWORKS = (
    Framework(
        "snncell",
        "snncell.surrogate",
        of_snncell,
        "import numpy, snncell\nspike = snncell.surrogate.{spike}\n"
        "x = snncell.Tensor(numpy.array({x:.6g}))\n"
        "print(snncell.grad(spike)(x))  # {found:.6g}, and by its {kind}: {claimed:.6g}",
    ),
    Framework(
        "spikingjelly",
        "spikingjelly.activation_based.surrogate",
        of_spikingjelly,
        snippet(TORCH, "from spikingjelly.activation_based import surrogate", "surrogate.{spike}(x).sum().backward()"),
    ),
    Framework(
        "snntorch",
        "snntorch.surrogate",
        partial(of_factories, "snntorch", of_torch),
        snippet(TORCH, "from snntorch import surrogate", "surrogate.{spike}(x).sum().backward()"),
    ),
    Framework(
        "norse",
        "norse.torch.functional.threshold",
        of_norse,
        snippet(TORCH, "from norse.torch.functional.threshold import *", "{name}.apply(x, {values}).sum().backward()"),
    ),
    Framework(
        "sinabs",
        "sinabs.activation.surrogate_gradient_fn",
        of_sinabs,
        "import torch\nfrom sinabs.activation import surrogate_gradient_fn\n"
        "print(surrogate_gradient_fn.{spike}(torch.tensor(1.0 + {x:.6g}), 1.0))  # by its {kind}: {claimed:.6g}",
    ),
    Framework(
        "spyx", "spyx.axn", partial(of_factories, "spyx", in_jax), snippet(JAX, "from spyx import axn", "axn.{spike}")
    ),
    Framework(
        "braintools",
        "braintools.surrogate",
        of_braintools,
        snippet(JAX, "from braintools import surrogate", "surrogate.{spike}"),
    ),
    # Eventax has no surrogate, because its gradients are those of spike times. The audit reports its version only.
    Framework("eventax", "eventax.evnn", lambda module: iter(()), ""),
)
