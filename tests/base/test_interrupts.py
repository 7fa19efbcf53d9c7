"""Ctrl-C at every point of a training step: all or nothing is applied, and locks, settings and BLAS are restored."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytest
from interrupting import blas, each_interruption, left_behind, present_settings

import snncell
from snncell import Parameter, Tensor, nn, ops
from snncell.base.signals import Restoring, deferring, undoing
from snncell.ops.random import _state

# The number of interrupted points of each step: all with SNNCELL_TEST_SIZE=large, otherwise an even sample.
MOST = None if os.environ.get("SNNCELL_TEST_SIZE") == "large" else 100
REAL = 2500 if MOST is None else 40  # signals
FIRST = 50 if MOST is None else 3  # interrupted first calls


class Case(NamedTuple):
    """A step, and the groups of Parameters that it writes atomically."""

    step: Callable[[], Any]
    together: Sequence[Sequence[Parameter]]


def data(rows: int = 6, columns: int = 5) -> Tensor:
    return Tensor(np.random.default_rng(1).normal(size=(rows, columns)).astype(np.float32))


def layers() -> nn.Cell:
    snncell.set_seed(1)
    return nn.SequentialCell(
        nn.Dense(5, 4), nn.BatchNorm1d(4), nn.Dropout(p=0.4), nn.Tanh(), nn.Dense(4, 3)
    ).set_train()


OPTIMISERS = {
    "SGD": lambda p: nn.SGD(p, 0.1, momentum=0.9, weight_decay=0.1),
    "RMSProp": lambda p: nn.RMSProp(p, 0.1, centered=True),
    "Adam": lambda p: nn.Adam(p, nn.ExponentialDecayLR(0.1, 0.9, 2)),
    "AdamW": lambda p: nn.AdamW(p, 0.1),
}


def training(optimiser: str, wrap: Callable[..., Any]) -> Case:
    net, x = layers(), data()
    of = OPTIMISERS[optimiser](net.trainable_params())
    gradient = snncell.value_and_grad(lambda x: ops.square(net(x)).sum(), None, net.trainable_params())

    def step(x: Tensor) -> Tensor:
        loss, grads = gradient(x)
        of(grads)
        return loss

    kept = [p for p in of.get_parameters() if not p.name.endswith("learning_rate")]
    run = wrap(step)
    if wrap is snncell.jit:  # the Program writes all its Parameters and the random state together
        return Case(lambda: run(x), [[*dict.fromkeys((*net.get_parameters(), *kept)), _state]])
    return Case(lambda: run(x), [net.untrainable_params(), kept, [_state]])


class Counted(nn.Cell):
    """Write two Parameters and draw random numbers at each time step. The loop runs step by step."""

    def __init__(self) -> None:
        super().__init__()
        self.sum = Parameter(Tensor([0.0, 0.0, 0.0]), requires_grad=False)
        self.count = Parameter(Tensor(0), requires_grad=False)

    def construct(self, x: Tensor) -> Tensor:
        def body(carry: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
            ops.assign(self.sum, self.sum + ops.flip(x, 0))
            ops.assign(self.count, self.count + 1)
            return carry + x * ops.uniform((3,)), x[:2]

        carry, _ = ops.scan(body, ops.zeros(3), x)
        return carry


def loop(wrap: Callable[..., Any]) -> Case:
    cell = Counted()
    run, x = wrap(cell), data(4, 3)
    return Case(lambda: run(x), [[cell.sum, cell.count, _state]])


def stateful(wrap: Callable[..., Any]) -> Case:
    cell = nn.Stateful(nn.ALIFNode())
    run, x = wrap(cell), data(2, 3)
    run(x)
    return Case(lambda: run(x), [cell._parameters()])


def reset(_: Any) -> Case:
    cell = nn.Stateful(nn.ALIFNode())
    cell(data(2, 3))
    return Case(cell.reset, [cell._parameters()])


def gradient_outside(wrap: Callable[..., Any]) -> Case:
    net, x = layers(), data()
    run = wrap(lambda x: ops.square(net(x)).sum())
    gradient = snncell.value_and_grad(run, None, net.trainable_params())
    together = [net[1].moving_mean, net[1].moving_variance, *([_state] if wrap is snncell.jit else [])]
    return Case(lambda: gradient(x), [together])


def eager(fn: Callable[..., Any]) -> Callable[..., Any]:
    return fn


CASES: dict[str, Callable[[], Case]] = {
    **{f"eager {name}": lambda name=name: training(name, eager) for name in OPTIMISERS},
    "jitted Adam": lambda: training("Adam", snncell.jit),
    "eager loop": lambda: loop(eager),
    "jitted loop": lambda: loop(snncell.jit),
    "eager states": lambda: stateful(eager),
    "jitted states": lambda: stateful(snncell.jit),
    "reset": lambda: reset(eager),
    "eager gradient": lambda: gradient_outside(eager),
    "gradient of a jitted function": lambda: gradient_outside(snncell.jit),
}


# Python itself loses an interruption that arrives while a generator is being closed.
LOST = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.mark.sampled(1)
@LOST
@pytest.mark.compiled
@pytest.mark.parametrize("name", CASES)
def test_interrupted_step_is_applied_completely_or_not_at_all(name: str) -> None:
    step, together = CASES[name]()
    step()
    parameters = list(dict.fromkeys(p for group in together for p in group))
    before = {p: p._data for p in parameters}
    step()
    after = {p: np.array(p._data) for p in parameters}

    def begin() -> None:
        for p, array in before.items():
            setattr(*p.write_of(array))

    def fresh() -> None:
        step()

    faults: dict[str, str] = {}
    settings, threads, interruptions = present_settings(), blas(), 0
    begin()
    for where in each_interruption(fresh, MOST):
        interruptions += 1
        wrong = left_behind(settings, threads)
        for group in together:
            done = [not np.array_equal(p._data, before[p]) for p in group]
            if any(done) != all(done):
                names = [p.name for p, ran in zip(group, done, strict=True) if ran]
                wrong.append(f"{names} are written of {len(group)}")
        begin()
        step()
        for p in parameters:
            if not np.array_equal(p._data, after[p]):
                wrong.append(f"the next step gives another {p.name}")
        begin()
        if wrong:
            faults[where] = "; ".join(wrong)
            break
    assert not faults, "\n".join(f"{where}: {what}" for where, what in faults.items())
    assert interruptions >= 30


@LOST
@pytest.mark.compiled
@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="this system has no timers that send signals")
@pytest.mark.parametrize("name", ["jitted Adam", "eager Adam"])
def test_signals_at_random_times_leave_a_step_atomic(name: str) -> None:
    step, together = CASES[name]()
    step()
    begun = time.perf_counter()
    step()
    duration = time.perf_counter() - begun
    settings, threads, came, rng = present_settings(), blas(), 0, random.Random(0)
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        wanted = REAL if name.startswith("jitted") else max(20, REAL // 12)
        for number in range(50 * wanted):  # many arrive before or after the step
            if came == wanted:
                break
            arrays = {p: p._data for group in together for p in group}
            try:
                signal.setitimer(signal.ITIMER_REAL, max(1e-6, rng.random() * duration * 1.1))
                step()
                signal.setitimer(signal.ITIMER_REAL, 0)
            except KeyboardInterrupt:
                came += 1
            assert not left_behind(settings, threads), number
            for group in together:
                written = [p._data is not arrays[p] for p in group]
                assert any(written) == all(written), (number, [p.name for p in group], written)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert came == wanted


# --- components -------------------------------------------------------------------------------------------------------


def test_context_of_c_functions_is_exited_at_every_interruption() -> None:
    items: list[int] = []

    def body() -> None:
        with Restoring(partial(items.append, 1), partial(items.__delitem__, -1)):
            len(items)
        assert items == []

    for _ in each_interruption(body):
        assert items == []


def test_context_that_is_not_entered_does_nothing() -> None:
    items: list[int] = []
    Restoring(partial(items.append, 1), partial(items.__delitem__, -1))
    context = Restoring(dict, undoing([]))
    del context
    assert items == []


def test_signals_are_deferred_until_a_function_returns() -> None:
    seen: list[str] = []

    def function() -> str:
        signal.raise_signal(signal.SIGINT)
        deferring(signal.raise_signal, signal.SIGINT)  # nested in another deferring call
        seen.append("whole")
        return "result"

    handler = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        deferring(function)
    assert seen == ["whole"] and signal.getsignal(signal.SIGINT) is handler
    signal.signal(signal.SIGINT, lambda *_: seen.append("handled"))  # a handler that raises nothing
    try:
        assert deferring(function) == "result"
    finally:
        signal.signal(signal.SIGINT, handler)
    assert seen == ["whole", "whole", "handled"]


def test_deferred_signals_are_delivered_after_an_error() -> None:
    def function() -> None:
        signal.raise_signal(signal.SIGINT)
        raise ValueError("the function's own")

    handler = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt) as found:
        deferring(function)
    assert isinstance(found.value.__context__, ValueError)
    assert signal.getsignal(signal.SIGINT) is handler


# --- the first call ---------------------------------------------------------------------------------------------------

FIRST_CALL = """
import signal, sys
import numpy as np
import snncell
from snncell import Tensor, nn, ops

signal.signal(signal.SIGINT, signal.default_int_handler)

class Interrupting:  # Ctrl-C as a module begins to be imported
    left = int(sys.argv[1])

    def find_spec(self, name, path=None, target=None):
        if name.startswith(("numba", "llvmlite", "scipy", "threadpoolctl")):
            self.left -= 1
            if self.left == 0:
                signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, Interrupting())
net = nn.SequentialCell([nn.Dense(30, 31), nn.MultiStep(nn.LIFNode()), nn.Dense(31, 2)])
x = Tensor(np.random.default_rng(0).normal(size=(4, 6, 30)).astype(np.float32))
run = snncell.jit(lambda x: (net(x), ops.abs(ops.fft(x)), ops.erf(x)))
interrupted = False
try:
    run(x)
except KeyboardInterrupt:
    interrupted = True
found = run(x)
print(interrupted, Interrupting.left > 0 or interrupted, np.isfinite(found[0].asnumpy()).all())
"""


@pytest.mark.sampled(1)
@pytest.mark.compiled
@pytest.mark.parametrize("number", range(FIRST))
def test_interrupted_first_call_can_be_repeated(number: int) -> None:
    module = 1 + number * 400 // FIRST
    done = subprocess.run(
        [sys.executable, "-c", FIRST_CALL, str(module)], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[1:] == ["True", "True"]
    assert done.stdout.split()[0] == "True" or number > 0
