"""The function under check: a random projection of its outputs, and the derivatives of that number."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import numpy as np

from snncell.errors import GradientError
from snncell.ops.random import present_key, replaying
from snncell.tape import structure
from snncell.tape.parameter import Parameter
from snncell.tape.state import settings
from snncell.tape.tensor import Tensor
from snncell.tape.transforms import grad, vjp
from snncell.testing.compare import draw_gradients, floats
from snncell.testing.precision import InFloat64, is_real, to_float64
from snncell.testing.stops import Noted, Replayed

Array = Any
Scalar = Callable[..., Tensor]


class Tolerance(NamedTuple):
    """The tolerance of two numbers that are to agree, and the step of the differences.

    `fine`: whether these are of the fourth order, from values at 1 and 2 steps to either side, so that the steps may be
    large enough for gradients that are small. `others`: factors of the step that count as well: small ones have
    rounding in them, large ones curvature.
    """

    eps: float
    rtol: float
    atol: float
    fine: bool = False
    others: tuple[float, ...] = (10.0, 100.0)

    def agree(self, analytic: float, numeric: float, extra: float = 0.0) -> bool:
        """True if they are the same; NaN is not."""
        return abs(analytic - numeric) <= self.atol + extra + self.rtol * max(abs(analytic), abs(numeric))


class Problem:
    """The subject of a check: a function, its arguments, and what it is differentiated with respect to.

    Args:
        fn: a function or Cell.
        inputs: its arguments.
        weights: Parameters and their names.
        cells: those that it runs, in float64.
        seed: of the projection.
        detached: whether stop_gradient is meant, so that what it gives is held constant in differences.
        who: the check, for errors.
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        inputs: Sequence[Any],
        weights: Sequence[tuple[str, Parameter]],
        cells: InFloat64,
        seed: int,
        detached: bool = False,
        who: str = "check_grads",
    ) -> None:
        self.fn, self.cells, self.seed, self.detached, self.who = fn, cells, seed, detached, who
        self.inputs = [to_float64(x) for x in inputs]
        self.key = present_key()  # random numbers are replayed from here, the same ones at every point
        self.positions = [i for i, x in enumerate(self.inputs) if is_real(x)]
        self.weights = [p for _, p in weights]
        self.names = [f"input {i}" for i in self.positions] + [f"Parameter {name!r}" for name, _ in weights]
        self.sources = [*(self.inputs[i] for i in self.positions), *self.weights]
        if not self.sources:
            raise GradientError(f"{who}: no float Tensor among the inputs.")
        self.point: list[Array] = [np.array(x.asnumpy()) for x in self.sources]

    def arguments(self, moving: Sequence[Tensor]) -> list[Any]:
        """The arguments, with others in the place of those that are differentiated."""
        args = list(self.inputs)
        for position, x in zip(self.positions, moving, strict=True):
            args[position] = x
        return args

    def scalar(self, *moving: Tensor) -> Tensor:
        """The function, projected."""
        with replaying(self.key):
            # Other numbers than the directions', which are drawn from `seed`; `pulled` and `rounding` use them, too.
            return self.projected(self.fn(*self.arguments(moving)), self.seed + 1)

    def projected(self, out: Any, seed: int) -> Tensor:
        """The sum of all float outputs times random numbers."""
        leaves, rng = floats(out), np.random.default_rng(seed)
        if not leaves:
            raise GradientError(f"{self.who}: the function returned no float Tensor.")
        parts = [(leaf * Tensor(rng.standard_normal(leaf.shape)).to(leaf.device)).sum() for leaf in leaves]
        return sum(parts[1:], parts[0])

    def derived(self, fn: Scalar, level: int) -> Scalar:
        """The gradient of `fn`, projected: what is checked in the next order."""
        return lambda *moving: self.projected(self.gradient_of(fn)(*moving), level)

    def gradient_of(self, fn: Scalar) -> Callable[..., list[Tensor]]:
        """A function that gives the gradients of `fn` with respect to the inputs, and then the weights."""
        gradient = grad(fn, tuple(range(len(self.positions))) or None, tuple(self.weights) or None)

        def flat(*moving: Tensor) -> list[Tensor]:
            return structure.flatten(gradient(*moving))[0]

        return flat

    def gradient(self, fn: Scalar, point: Sequence[Array] | None = None) -> list[Array]:
        """The gradients of `fn` as arrays."""
        tensors = self._tensors(self.point if point is None else point)
        with self.cells.evaluation(self._moved(tensors)):
            return [g.asnumpy() for g in self.gradient_of(fn)(*tensors[: len(self.positions)])]

    def value(self, fn: Scalar, point: Sequence[Array], noted: Noted | None = None) -> float:
        """`fn` at another point; what `noted` holds stays constant."""
        tensors = self._tensors(point)
        held: AbstractContextManager[None] = nullcontext()
        if noted is not None:
            held = settings(stops=Replayed(noted), unfused=True)
        with held, self.cells.evaluation(self._moved(tensors)):
            return float(fn(*tensors[: len(self.positions)]).item())

    def noted(self, fn: Scalar, point: Sequence[Array]) -> Noted | None:
        """The values of stop_gradient at this point, if they are to be held constant."""
        if not self.detached:
            return None
        noted, tensors = Noted(), self._tensors(point)
        with settings(stops=noted, unfused=True), self.cells.evaluation(self._moved(tensors)):
            fn(*tensors[: len(self.positions)])
        return noted

    def slope(
        self, fn: Scalar, direction: Sequence[Array | None], eps: float, point: Sequence[Array], fine: bool = False
    ) -> float:
        """The derivative of `fn` along a direction, by central differences."""
        noted = self.noted(fn, point)

        def apart(by: float) -> float:
            return self.value(fn, move_point(point, direction, by), noted) - self.value(
                fn, move_point(point, direction, -by), noted
            )

        # The weights 8 and -1 cancel the term in eps^2: what is left is in eps^4.
        return (8.0 * apart(eps) - apart(2 * eps)) / (12 * eps) if fine else apart(eps) / (2 * eps)

    def run(self, point: Sequence[Array] | None = None) -> Any:
        """The function itself, unprojected."""
        tensors = self._tensors(self.point if point is None else point)
        with self.cells.evaluation(self._moved(tensors)), replaying(self.key):
            return self.fn(*self.arguments(tensors[: len(self.positions)]))

    def pulled(self, point: Sequence[Array]) -> tuple[list[Array], list[Array]]:
        """The outputs, and the gradients of what they are projected to."""
        tensors, rng = self._tensors(point), np.random.default_rng(self.seed + 1)
        with self.cells.evaluation(self._moved(tensors)), replaying(self.key):
            args = self.arguments(tensors[: len(self.positions)])
            out, pull = vjp(self.fn, *args, weights=tuple(self.weights))
            leaves = structure.flatten(out)[0]
            of_inputs, of_weights = pull(*draw_gradients(leaves, rng))
        gradients = [of_inputs[i] for i in self.positions] + list(of_weights)
        return [x.asnumpy() for x in leaves], [g.asnumpy() for g in gradients]

    def rounding(self, point: Sequence[Array], eps: float) -> float:
        """The part of a slope that rounding of the outputs may make: two of their last places, over the step."""
        leaves, rng = floats(self.run(point)), np.random.default_rng(self.seed + 1)
        size = sum(float(np.abs(leaf.asnumpy() * rng.standard_normal(leaf.shape)).sum()) for leaf in leaves)
        return 2 * float(np.finfo(np.float64).eps) * size / eps

    def _tensors(self, point: Sequence[Array]) -> list[Tensor]:
        return [Tensor(x).to(source.device) for x, source in zip(point, self.sources, strict=True)]

    def _moved(self, tensors: Sequence[Tensor]) -> list[tuple[Parameter, Any]]:
        return [(p, x._data) for p, x in zip(self.weights, tensors[len(self.positions) :], strict=True)]


def move_point(point: Sequence[Array], direction: Sequence[Array | None], by: float) -> list[Array]:
    """A point, moved along a direction; None leaves an array in place."""
    return [x if v is None else x + by * v for x, v in zip(point, direction, strict=True)]


def directional_derivative(gradients: Sequence[Array], direction: Sequence[Array | None]) -> float:
    """The derivative along a direction, from gradients."""
    return sum(float((g * v).sum()) for g, v in zip(gradients, direction, strict=True) if v is not None)
