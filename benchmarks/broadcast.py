"""Cost of broadcast operands in a loop over time: `python -m benchmarks.broadcast [--shapes NAME ...] [--batch N]`.

An LIF neuron gets `x * factor + offset` instead of x, where factor and offset have the shape of a pattern. For example,
a fused normalisation has one number per channel. Each pattern takes turns with the loop without operands, and the table
shows the ratio. "backward" is the gradient of x, factor and offset, with the forward pass.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import snncell
from benchmarks.timing import in_turns
from snncell import Tensor, nn, ops

Shape = tuple[int, ...]
RANDOM = np.random.default_rng(0)
ALONE = "without"


def patterns(shape: Shape) -> dict[str, Shape]:
    """Return shapes of operands by name, which broadcast to a sequence with this shape. Axis 0 is time."""
    steps, *step = shape
    names = {2: ("batch", "last axis"), 4: ("batch", "axis 1", "axis 2", "axis 3")}[len(step)]
    shapes: dict[str, Shape] = {"scalar": ()}
    for axis, name in enumerate(names):
        shapes[name] = tuple(n if k == axis else 1 for k, n in enumerate(step))
    if len(step) == 4:
        batch, first, second, third = step
        shapes["axes 2, 3"] = (second, third)
        shapes["axes 1, 3"] = (first, 1, third)
        shapes["axes 1, 2"] = (first, second, 1)
        shapes["axes 0, 1"] = (batch, first, 1, 1)
        shapes["axes 0, 2"] = (batch, 1, second, 1)
        shapes["axes 1, 2, 3"] = (first, second, third)
    shapes["all axes"] = tuple(step)
    shapes["time"] = (steps, *(1 for _ in step))
    shapes["time, axis 1"] = (steps, 1, step[1], *(1 for _ in step[2:]))
    return shapes


def sequence_shapes(batch: int) -> dict[str, Shape]:
    return {
        "channels first": (4, batch, 64, 32, 32),
        "channels last": (4, batch, 32, 32, 64),
        "small images": (4, batch * 64, 64, 4, 4),
        "three channels last": (4, batch, 150, 150, 3),
        "dense": (100, batch * 4, 512),
    }


def uniform(shape: Shape) -> Tensor:
    return Tensor(RANDOM.uniform(0.5, 1.5, shape).astype(np.float32))


def contestants(shape: Shape, backward: bool) -> dict[str, Callable[[], Any]]:
    """Return functions without arguments: the loop without operands, then one loop for each pattern."""
    layer = nn.MultiStep(nn.LIFNode())
    x = Tensor(RANDOM.standard_normal(shape).astype(np.float32))
    grad = Tensor(RANDOM.standard_normal(shape).astype(np.float32))

    def run(function: Callable[..., Tensor], *operands: Tensor) -> Callable[[], Any]:
        if not backward:
            return partial(snncell.jit(function), x, *operands)

        def weighted(x: Tensor, grad: Tensor, *operands: Tensor) -> Tensor:
            return ops.sum(function(x, *operands) * grad)

        positions = (0, *range(2, 2 + len(operands)))
        return partial(snncell.jit(snncell.grad(weighted, positions)), x, grad, *operands)

    functions = {ALONE: run(lambda x: layer(x))}
    for name, own in patterns(shape).items():
        functions[name] = run(lambda x, factor, offset: layer(x * factor + offset), uniform(own), uniform(own))
    return functions


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=8, help="images of 65,536 elements in a step")
    parser.add_argument("--shapes", nargs="*", choices=list(sequence_shapes(1)), default=list(sequence_shapes(1)))
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--patterns", nargs="*", default=[], help="patterns by name, by default all")
    parser.add_argument("--passes", nargs="*", choices=["forward", "backward"], default=["forward", "backward"])
    arguments = parser.parse_args()
    for name in arguments.shapes:
        shape = sequence_shapes(arguments.batch)[name]
        for kind in arguments.passes:
            functions = contestants(shape, kind == "backward")
            if arguments.patterns:
                functions = {each: run for each, run in functions.items() if each in {ALONE, *arguments.patterns}}
            times = in_turns(functions, rounds=arguments.rounds)
            base = times[ALONE]
            print(f"\n{kind}, {name} {shape}\n{'operands':<16} {'min, ms':>9} {'median':>9} {'ratio':>7} {'median':>7}")
            for each, own in times.items():
                low, middle = min(own), statistics.median(own)
                ratios = low / min(base), middle / statistics.median(base)
                print(f"{each:<16} {low * 1e3:>9.3f} {middle * 1e3:>9.3f} {ratios[0]:>7.2f} {ratios[1]:>7.2f}")


if __name__ == "__main__":
    main()
