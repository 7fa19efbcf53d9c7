"""Weight initialisation: rules, by name or as an object, and `initializer`, which makes a Tensor from a rule."""

from __future__ import annotations

import math
import re
from typing import Annotated, Any, Literal

import numpy as np

from snncell import dtype as dtypes
from snncell.base.arguments.guard import guard as _guard
from snncell.base.arguments.kinds import UNFIT, Count, Dtype, Kind, Lengths, NotNegative, Positive, Share, Size, kind_of
from snncell.errors import ArgumentError, ShapeError
from snncell.kernels.space import HOST
from snncell.ops import random
from snncell.ops.base import as_shape
from snncell.tape.state import TRACING, settings
from snncell.tape.tensor import Tensor


class Initializer:
    """Base class of weight initialisation rules: `__call__(shape)` returns the values as a float64 array.

    Your own rule can define that method or, as in MindSpore, `_initialize(arr)`, which writes the values into an array.

    Args: kwargs: settings, which become `self._kwargs`.
    Example:
        >>> class Identity(snncell.common.initializer.Initializer):
        ...     def _initialize(self, arr):
        ...         for i in range(min(arr.shape)):
        ...             arr[i, i] = 1.0
        >>> nn.Dense(3, 2, weight_init=Identity()).weight.tolist()
        [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
    """

    def __init__(self, **kwargs: Any) -> None:
        self._kwargs = kwargs

    def __call__(self, shape: tuple[Size, ...]) -> Any:
        values = np.zeros(shape)
        self._initialize(values)
        return values

    def _initialize(self, arr: Any) -> None:
        raise ArgumentError(
            f"{type(self).__name__}: an Initializer must define _initialize(self, arr), which writes values into an "
            f"array, or __call__(self, shape), which returns them."
        )


def fans(shape: tuple[int, ...]) -> tuple[int, int]:
    """Fan-in and fan-out: the numbers of inputs and outputs of a weight (out, in, *kernel)."""
    if not shape:
        return 1, 1
    if len(shape) == 1:
        return shape[0], shape[0]
    field = math.prod(shape[2:])
    return shape[1] * field, shape[0] * field


def _uniform(shape: tuple[int, ...], bound: float) -> Any:
    return _draw(random.uniform, shape, -bound, bound)


def _normal(shape: tuple[int, ...], sigma: float, mean: float = 0.0) -> Any:
    return _draw(random.normal, shape, mean, sigma)


def _draw(draw: Any, shape: tuple[int, ...], first: float, second: float) -> Any:
    """Random numbers; in a traced function this is an error, because each trace would create another layer."""
    if TRACING.trace is not None:
        raise TRACING.trace.made_inside("A layer or Parameter with random initial values")
    return draw(shape, first, second, dtypes.float64).asnumpy()


class Constant(Initializer):
    """One value for all elements."""

    def __init__(self, value: float) -> None:
        self.value = value

    def __call__(self, shape: tuple[Size, ...]) -> Any:
        return np.full(shape, self.value)


class Zero(Constant):
    """Zeros."""

    def __init__(self) -> None:
        super().__init__(0.0)


class One(Constant):
    """Ones."""

    def __init__(self) -> None:
        super().__init__(1.0)


class Normal(Initializer):
    """Normal distribution with a standard deviation `sigma` and a mean."""

    def __init__(self, sigma: NotNegative = 0.01, mean: float = 0.0) -> None:
        self.sigma, self.mean = sigma, mean

    def __call__(self, shape: tuple[Size, ...]) -> Any:
        return _normal(shape, self.sigma, self.mean)


class TruncatedNormal(Normal):
    """Normal distribution truncated to [a, b], in standard deviations from the mean, with over 0.1 % of it inside."""

    def __init__(self, sigma: NotNegative = 0.01, mean: float = 0.0, a: float = -2.0, b: float = 2.0) -> None:
        super().__init__(sigma, mean)
        if not a < b or (math.erf(b / math.sqrt(2)) - math.erf(a / math.sqrt(2))) / 2 < 1e-3:
            raise ArgumentError(f"TruncatedNormal: a={a} and b={b} leave a thousandth of the distribution, or less.")
        self.a, self.b = a, b

    def __call__(self, shape: tuple[Size, ...]) -> Any:
        values = np.array(_normal(shape, 1.0))
        while (far := (values < self.a) | (values > self.b)).any():
            values[far] = _normal((int(far.sum()),), 1.0)
        return values * self.sigma + self.mean


class Uniform(Initializer):
    """Uniform distribution over [-scale, scale]."""

    def __init__(self, scale: NotNegative = 0.07) -> None:
        self.scale = scale

    def __call__(self, shape: tuple[Size, ...]) -> Any:
        return _uniform(shape, self.scale)


class XavierUniform(Initializer):
    """Xavier (Glorot) uniform: over +-gain sqrt(6 / (in + out)) (Glorot and Bengio 2010)."""

    def __init__(self, gain: float = 1.0) -> None:
        self.gain = gain

    def __call__(self, shape: tuple[Size, ...]) -> Any:
        return _uniform(shape, self.gain * math.sqrt(6 / sum(fans(shape))))


class XavierNormal(XavierUniform):
    """Xavier (Glorot) normal: standard deviation gain sqrt(2 / (in + out)) (Glorot and Bengio 2010)."""

    def __call__(self, shape: tuple[Size, ...]) -> Any:
        return _normal(shape, self.gain * math.sqrt(2 / sum(fans(shape))))


class HeUniform(Initializer):
    """He (Kaiming) uniform: over +-gain sqrt(3 / fan), with gain sqrt(2 / (1 + slope^2)) (He et al. 2015).

    Args:
        negative_slope: the slope of the leaky ReLU that follows the layer; 0 for a ReLU.
        mode: "fan_in" or "fan_out".
        nonlinearity: "leaky_relu", "relu" (gain sqrt(2)) or "linear" (gain 1).
    """

    def __init__(
        self,
        negative_slope: float = 0.0,
        mode: Literal["fan_in", "fan_out"] = "fan_in",
        nonlinearity: Literal["leaky_relu", "relu", "linear"] = "leaky_relu",
    ) -> None:
        gains = {"leaky_relu": math.sqrt(2 / (1 + negative_slope**2)), "relu": math.sqrt(2), "linear": 1.0}
        self.gain = gains[nonlinearity]
        self.mode = mode

    def deviation(self, shape: tuple[int, ...]) -> float:
        """The standard deviation, gain / sqrt(fan)."""
        return self.gain / math.sqrt(max(fans(shape)[self.mode == "fan_out"], 1))

    def __call__(self, shape: tuple[Size, ...]) -> Any:
        return _uniform(shape, math.sqrt(3) * self.deviation(shape))


class HeNormal(HeUniform):
    """He (Kaiming) normal: standard deviation gain / sqrt(fan) (He et al. 2015)."""

    def __call__(self, shape: tuple[Size, ...]) -> Any:
        return _normal(shape, self.deviation(shape))


class Identity(Initializer):
    """The identity matrix."""

    def __call__(self, shape: tuple[Size, ...]) -> Any:
        if len(shape) != 2:
            raise ShapeError(f"initializer 'identity' needs a matrix, not shape {shape}.")
        return np.eye(*shape)


class Orthogonal(Initializer):
    """Orthogonal initialisation: orthonormal rows or columns, whichever are fewer, times a gain (Saxe et al. 2014)."""

    def __init__(self, gain: float = 1.0) -> None:
        self.gain = gain

    def __call__(self, shape: tuple[Size, ...]) -> Any:
        if len(shape) < 2:
            raise ShapeError(f"initializer 'orthogonal' needs at least two axes, not shape {shape}.")
        rows, columns = shape[0], math.prod(shape[1:])
        q, r = np.linalg.qr(_normal((max(rows, columns), min(rows, columns)), 1.0))
        # Signs that make the diagonal of r positive make the decomposition unique, and all orthogonal matrices equally
        # likely.
        q = q * np.sign(np.diag(r))
        return self.gain * (q if rows >= columns else q.T).reshape(shape)


class Dirac(Initializer):
    """Dirac initialisation of a kernel (out, in, *kernel), 3 to 5 axes: a 1 in the middle passes each channel on.

    Args: groups: the groups of the convolution; out must be a multiple of it.
    """

    def __init__(self, groups: Count = 1) -> None:
        self.groups = groups

    def __call__(self, shape: tuple[Size, ...]) -> Any:
        if len(shape) not in (3, 4, 5) or shape[0] % self.groups:
            raise ShapeError(
                f"initializer 'dirac' needs a kernel of 3 to 5 axes, of which the first is a multiple of "
                f"{self.groups}, not shape {shape}."
            )
        values, of_group = np.zeros(shape), shape[0] // self.groups
        middle: Any = tuple(n // 2 for n in shape[2:])
        for channel in range(min(of_group, shape[1])):
            of_groups: Any = (slice(channel, None, of_group), channel, *middle)
            values[of_groups] = 1.0
        return values


class Sparse(Initializer):
    """Sparse initialisation: a normal matrix with a share of zeros at random rows of each column.

    Args:
        sparsity: the share of zeros in each column, rounded up to whole rows.
        sigma: the standard deviation of the other elements.
    """

    def __init__(self, sparsity: Share, sigma: NotNegative = 0.01) -> None:
        self.sparsity, self.sigma = sparsity, sigma

    def __call__(self, shape: tuple[Size, ...]) -> Any:
        if len(shape) != 2:
            raise ShapeError(f"initializer 'sparse' needs a matrix, not shape {shape}.")
        values = np.array(_normal(shape, self.sigma))
        count = math.ceil(self.sparsity * shape[0])
        ranks = np.argsort(random.uniform(shape, dtype=dtypes.float64).asnumpy(), axis=0, kind="stable")
        np.put_along_axis(values, ranks[:count], 0.0, axis=0)
        return values


class VarianceScaling(Initializer):
    """Variance scaling: random numbers with variance scale / fan.

    Args:
        scale: above 0.
        mode: "fan_in", "fan_out", or "fan_avg", the mean of both.
        distribution: "truncated_normal" (at two standard deviations, with corrected variance), "untruncated_normal", or
            "uniform".
    """

    def __init__(
        self,
        scale: Positive = 1.0,
        mode: Literal["fan_in", "fan_out", "fan_avg"] = "fan_in",
        distribution: Literal["uniform", "truncated_normal", "untruncated_normal"] = "truncated_normal",
    ) -> None:
        self.scale, self.mode, self.distribution = scale, mode, distribution

    def __call__(self, shape: tuple[Size, ...]) -> Any:
        into, out = fans(shape)
        fan = {"fan_in": into, "fan_out": out, "fan_avg": (into + out) / 2}[self.mode]
        deviation = math.sqrt(self.scale / max(fan, 1))
        if self.distribution == "uniform":
            return _uniform(shape, math.sqrt(3) * deviation)
        if self.distribution == "untruncated_normal":
            return _normal(shape, deviation)
        return TruncatedNormal(deviation / _CUT)(shape)


_CUT = 0.87962566103423978  # the standard deviation of the standard normal distribution truncated at +-2

_RULES: tuple[type[Initializer], ...] = (
    Zero, One, Normal, Uniform, XavierUniform, XavierNormal, HeUniform, HeNormal, TruncatedNormal, Identity, Orthogonal,
    Dirac, VarianceScaling,
)  # fmt: skip
_BY_NAME = {re.sub("(?<=[a-z])(?=[A-Z])", "_", rule.__name__).lower(): rule for rule in _RULES}
_BY_NAME |= {"zeros": Zero, "ones": One} | {name.replace("_", ""): rule for name, rule in _BY_NAME.items()}


def _beginning(value: Any) -> Any:
    if isinstance(value, str):
        return value if value.lower() in _BY_NAME else UNFIT
    return value if isinstance(value, (Initializer, Tensor)) else kind_of(float).take(value)


_INITS = f"a number, a Tensor, an Initializer, or its name ({', '.join(sorted(_BY_NAME))})"
Init = Annotated[Any, Kind(_INITS, _beginning, set())]  # for arguments with initial values, such as weight_init


def initializer(init: Init, shape: Lengths | None = None, dtype: Dtype = dtypes.float32) -> Tensor:
    """Make a Tensor of initial values.

    Args:
        init: a name ("zeros", "ones", "normal", "uniform", "xavier_uniform", "xavier_normal", "he_uniform",
            "he_normal", "truncatedNormal", "identity", "orthogonal", "dirac", "variance_scaling"; any other name is an
            ArgumentError), an `Initializer`, a number, or a Tensor, which must have the shape.
        shape, dtype: the shape and dtype of the result.
    """
    sizes = as_shape(() if shape is None else shape, "initializer")
    if isinstance(init, Tensor):
        if shape is not None and init.shape != sizes:
            raise ShapeError(f"initializer: the Tensor has shape {init.shape}, not {sizes}.")
        return Tensor(init, dtype)
    if isinstance(init, str):
        init = _BY_NAME[init.lower()]()
    elif not isinstance(init, Initializer):
        init = Constant(init)
    with settings(space=HOST):  # so that one seed gives bitwise equal values on every device
        values = init(sizes)
    return Tensor(values, dtype)


_guard(globals(), own=True)
Tensor._initial_values = staticmethod(initializer)
