"""Diagonal state space models: the linear recurrent unit (LRU), initialised as in LRU or S4D."""

from __future__ import annotations

import math
from typing import Annotated, Any

import numpy as np

from snncell import dtype as dtypes, ops
from snncell.base.arguments.kinds import Count, FloatDtype, Own, Positive
from snncell.base.arguments.shown import came, show
from snncell.cell.cell import Cell
from snncell.cell.fields import field, with_fields
from snncell.common.initializer import Normal, Uniform, initializer
from snncell.errors import ArgumentError, ShapeError
from snncell.nn.layers.linear import FAN_IN_UNIFORM, create_parameter
from snncell.nn.time.axis import check_time_axis
from snncell.ops.base import same_dtype
from snncell.ops.control import run_scan
from snncell.tape.parameter import Parameter
from snncell.tape.tensor import Tensor

__all__ = ["LRU"]


@with_fields
class LRU(Cell):
    """Linear recurrent unit (LRU): a diagonal state space model (SSM) with complex eigenvalues, for long memory.

        lambda = exp(-exp(nu) + i exp(theta))                |lambda| < 1, so it is always stable
        h[t] = lambda h[t-1] + exp(gamma) (B x[t])           N complex states, h[-1] = 0
        y[t] = Re(C h[t]) + D x[t]

    Use it for long sequences: a layer of LIF neurons forgets within a few of its time constants, and its gradients
    vanish as fast. The recurrence is linear, so put a spike function or a neuron after it. State n is a damped
    oscillation with a period of 2 pi / exp(theta[n]) steps, which remembers about exp(-nu[n]) steps. In float32,
    |lambda| rounds to 1 if nu is below -16. At first exp(gamma) = sqrt(1 - |lambda|^2), so that for white noise a state
    has the variance of its input. eigenvalue_init chooses the initial eigenvalues:

        "ring"       |lambda|^2 uniform between the squares of `radius`, phases uniform up to max_phase (LRU)
        "s4d-lin"    exp(step (-1/2 + i pi n))                             n = 0, ..., N - 1 (S4D-Lin)
        "s4d-inv"    exp(step (-1/2 + i 2 N / pi (2 N / (2 n + 1) - 1)))   (S4D-Inv)

    `step` is drawn for each state between 0.001 and 0.1, uniformly on a logarithmic scale, as in S4D and S5, so S4D's
    initial memory is 20 to 2000 steps. You can also pass complex numbers (N,). A phase of 0 starts at 1e-6.

    The Parameters are nu, theta and gamma (N,), weight_in (2, N, in_channels) and weight_out (2, out_channels, N), the
    real and imaginary parts of B and C, and weight_skip (out_channels, in_channels), which is D. All are real, so that
    the loop over time becomes one kernel. The cost is linear in T. `eigenvalues()` returns lambda.
    Inputs:
        x: (T, B, in_channels).
        re, im: the real and imaginary part of the first state, (B, N) each; zeros by default.
    Returns: y, (T, B, out_channels); with return_states (y, (re, im)), to continue with the next part of a stream.
    Raises: ShapeError for x or a state of another shape; ArgumentError unless 0 < |lambda| < 1.
    Source: Orvieto et al., "Resurrecting Recurrent Neural Networks for Long Sequences", ICML 2023; Gu, Gupta, Goel and
        Re, "On the Parameterization and Initialization of Diagonal State Space Models", NeurIPS 2022, whose B is not
        scaled by gamma but by an integral over a step; Smith, Warrington and Linderman, "Simplified State Space Layers
        for Sequence Modeling" (S5), ICLR 2023.
    Example:
        >>> layer = nn.LRU(3, 5, state_size=16)
        >>> layer(ops.ones((100, 2, 3))).shape  # (T, B, N)
        (100, 2, 5)
        >>> bool((ops.abs(layer.eigenvalues()) < 1.0).all())
        True
    """

    _all_steps = True

    in_channels: Annotated[Count, field(meaning="length of the last axis of x")]
    out_channels: Annotated[Count, field(meaning="length of the last axis of y")]
    state_size: Annotated[Count, field(meaning="N, the number of complex states")]
    eigenvalue_init: Annotated[Any, Own()] = field(
        "ring", meaning='"ring", "s4d-lin", "s4d-inv", or complex numbers (N,)', keep=False
    )
    radius: Annotated[Any, Own()] = field(
        (0.9, 0.999), meaning="smallest and largest |lambda| of the ring, in [0, 1]", keep=False
    )
    max_phase: Positive = field(math.pi, meaning="largest phase of the ring, at most 2 pi, in radians", keep=False)
    has_skip: bool = field(True, meaning="whether to add D x")
    return_states: bool = field(False, meaning="whether to return the last states, too")
    dtype: FloatDtype = field(dtypes.float32, meaning="dtype of the Parameters", keep=False)
    weight_skip: Parameter | None = None

    def _complete(self, given: dict[str, Any]) -> None:
        ins, outs, states, dtype = self.in_channels, self.out_channels, self.state_size, given["dtype"]
        values = _first_eigenvalues(states, given["eigenvalue_init"], given["radius"], given["max_phase"])
        size = np.abs(values)
        self.nu = Parameter(Tensor(np.log(-np.log(size)), dtype))
        self.theta = Parameter(Tensor(np.log(np.maximum(np.angle(values) % (2.0 * np.pi), 1e-6)), dtype))
        self.gamma = Parameter(Tensor(0.5 * np.log1p(-(size**2)), dtype))
        self.weight_in = create_parameter(None, Normal(1.0 / math.sqrt(2 * ins)), (2, states, ins), dtype)
        self.weight_out = create_parameter(None, Normal(1.0 / math.sqrt(states)), (2, outs, states), dtype)
        if self.has_skip:
            self.weight_skip = create_parameter(None, FAN_IN_UNIFORM, (outs, ins), dtype)

    def eigenvalues(self) -> Tensor:
        """The eigenvalues lambda as complex numbers, (N,)."""
        re, im = self._eigenvalues(self.nu, self.theta)
        return re + im * 1j

    @staticmethod
    def _eigenvalues(nu: Tensor, theta: Tensor) -> tuple[Tensor, Tensor]:
        size, phase = ops.exp(-ops.exp(nu)), ops.exp(theta)
        return size * ops.cos(phase), size * ops.sin(phase)

    def construct(self, x: Tensor, *states: Tensor) -> Any:
        check_time_axis(x, "LRU")
        if x.ndim != 3 or x.shape[2] != self.in_channels or not x.shape[0]:
            raise ShapeError(
                f"{self!r}: the input must be a sequence (T, B, {self.in_channels}) with at least one step, but has "
                f"shape {x.shape}. Call the layer with all time steps, outside of nn.MultiStep."
            )
        x, b, c, gamma, nu, theta = same_dtype(
            [x, self.weight_in, self.weight_out, self.gamma, self.nu, self.theta], "LRU"
        )
        b = b * ops.exp(gamma).expand_dims(1)
        re, im = self._eigenvalues(nu, theta)

        def step(h: tuple[Tensor, Tensor], now: tuple[Tensor, Tensor]) -> Any:
            after = re * h[0] - im * h[1] + now[0], re * h[1] + im * h[0] + now[1]
            return after, after

        drive = ops.matmul(x, b[0].T), ops.matmul(x, b[1].T)
        last, h = run_scan(step, self._first_states(drive[0], states), drive, who="LRU", names=("re", "im"))
        y = ops.matmul(h[0], c[0].T) - ops.matmul(h[1], c[1].T)
        if self.weight_skip is not None:
            y = y + ops.matmul(x, self.weight_skip.T)
        return (y, last) if self.return_states else y

    def _first_states(self, drive: Tensor, states: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        if not states:
            return (ops.zeros_like(drive[0]),) * 2
        shape = drive.shape[1:]
        if len(states) != 2 or any(not isinstance(one, Tensor) or one.shape != shape for one in states):
            raise ShapeError(
                f"{self!r}: the first state must be two Tensors re, im of shape (B, N) = {shape}, not "
                f"{', '.join(came(one) for one in states)}. Pass them one by one: layer(x, *states)."
            )
        return states


def _first_eigenvalues(count: int, how: Any, radius: Any, max_phase: float) -> Any:
    """The initial eigenvalues, complex128 (N,)."""
    who = "LRU"
    if isinstance(how, str):
        if how not in ("ring", "s4d-lin", "s4d-inv"):
            raise ArgumentError(
                f'{who}: eigenvalue_init is "ring", "s4d-lin", "s4d-inv", or complex numbers ({count},), not {how!r}.'
            )
        draws = [initializer(Uniform(0.5), (count,), dtypes.float64).asnumpy() + 0.5 for _ in range(2)]
        if how == "ring":
            low, high = _check_ring(radius, max_phase)
            size = np.sqrt(low**2 + draws[0] * (high**2 - low**2))
            return np.clip(size, 1e-6, 1.0 - 1e-6) * np.exp(1j * max_phase * draws[1])
        n, step = np.arange(count), np.exp(np.log(0.001) + draws[0] * np.log(100.0))
        turn = np.pi * n if how == "s4d-lin" else 2 * count / np.pi * (2 * count / (2 * n + 1) - 1)
        return np.exp(step * (-0.5 + 1j * turn))
    try:
        values = np.asarray(how.asnumpy() if isinstance(how, Tensor) else how)
    except ValueError as error:
        raise ArgumentError(
            f"{who}: eigenvalue_init must be complex numbers of shape (state_size,) = ({count},), but its rows have "
            f"different lengths."
        ) from error
    if values.dtype.kind not in "cf" or values.shape != (count,):
        raise ArgumentError(
            f"{who}: eigenvalue_init must be complex numbers of shape (state_size,) = ({count},), not "
            f"{values.dtype} of shape {values.shape}."
        )
    size = np.abs(values)
    if not ((size > 0.0) & (size < 1.0)).all():
        bad = values[~((size > 0.0) & (size < 1.0))][0]
        raise ArgumentError(
            f"{who}: eigenvalue_init must have absolute values above 0 and below 1, so that states decay, but one is "
            f"{bad:.6g}. For a pole a of a model in continuous time, pass np.exp(step * a)."
        )
    return values.astype(np.complex128)


def _check_ring(radius: Any, max_phase: float) -> tuple[float, float]:
    pair: Any = radius if isinstance(radius, (tuple, list)) and len(radius) == 2 else (None, None)
    real = all(isinstance(end, (int, float)) and not isinstance(end, bool) for end in pair)
    if not real or not 0.0 <= pair[0] <= pair[1] <= 1.0:
        raise ArgumentError(
            f"LRU: radius must be a pair of the smallest and the largest |lambda| in [0, 1], for example (0.9, 0.999), "
            f"not {show(radius)}."
        )
    if max_phase > 2.0 * math.pi:
        raise ArgumentError(f"LRU: max_phase must be at most 2 pi, not {max_phase:g}.")
    return float(pair[0]), float(pair[1])
