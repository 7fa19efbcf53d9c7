"""CUDA graphs: a jitted step recorded as one graph gives the values of plain launches and never changes old results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import snncell
from snncell import Parameter, Tensor, explain, jit, nn, ops, value_and_grad
from snncell.compiler.runtime import plan as plans
from snncell.compiler.runtime.plan import is_graph_faster
from snncell.errors import DeviceError
from snncell.kernels.cuda.runtime import runtime


@pytest.fixture(autouse=True)
def always(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Record every step that can be recorded; the fixture lists the graphs that were launched."""
    played: list[Any] = []
    play = runtime().play
    monkeypatch.setattr(runtime(), "play", lambda recording: played.append(recording) or play(recording))
    monkeypatch.setattr("snncell.compiler.runtime.plan.is_graph_faster", lambda launches, copied: True)
    return played


def normal(*shape: int, seed: int = 0) -> Tensor:
    return Tensor(np.random.default_rng(seed).normal(size=shape).astype(np.float32)).to("gpu")


def test_recorded_training_steps_equal_cpu(always: list[Any]) -> None:
    results = []
    for device in ("cpu", "gpu"):
        rng = np.random.default_rng(0)
        snncell.set_seed(3)
        w, b = (Tensor(rng.normal(size=shape).astype(np.float32)) for shape in ((4, 3), (4,)))
        net = nn.SequentialCell(nn.Dense(3, 4, w, b), nn.Dropout(p=0.5), nn.MultiStep(nn.LIFNode())).set_train()
        net.to(device)
        optimiser = nn.Adam(net.trainable_params(), 0.1)
        both = value_and_grad(lambda x, net=net: ops.square(net(x).mean(0) - 0.3).sum(), None, net.trainable_params())

        @jit
        def step(x: Tensor, both: Any = both, optimiser: Any = optimiser) -> Tensor:
            loss, grads = both(x)
            optimiser(grads)
            return loss  # type: ignore[no-any-return]

        losses = []
        for turn in range(6):
            x = normal(5, 2, 3, seed=turn).to(device) * 3.0
            losses.append(step(x))
            if turn == 3:
                net[0].bias.set_data(net[0].bias + 0.5)
            if turn == 4:
                optimiser.learning_rate.set_data(np.float32(0.2))
        results.append([*(float(loss) for loss in losses), *(p.asnumpy() for p in net.trainable_params())])
    assert len(always) == 5  # all but the first
    assert len({round(x, 6) for x in results[0][:6]}) > 3
    for mine, theirs in zip(*results, strict=True):
        np.testing.assert_allclose(theirs, mine, rtol=1e-4, atol=1e-5)


def test_replay_does_not_change_earlier_results(always: list[Any]) -> None:
    p = Parameter(normal(3))

    @jit
    def step(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        p.set_data(p * 2.0 + x)
        return p * 1.0, x, ops.transpose(ops.reshape(p + x, (1, 3)))

    xs = [normal(3, seed=n) for n in range(1, 7)]
    expected, held, values = p.asnumpy(), [], []
    for x in xs:
        held.append((step(x), p.value(), p.value()[1:]))
        expected = expected * 2 + x.asnumpy()
        values.append(expected)
    assert len(always) == 5
    for x, value, ((first, second, third), whole, part) in zip(xs, values, held, strict=True):
        np.testing.assert_array_equal(first.asnumpy(), value)
        np.testing.assert_array_equal(second.asnumpy(), x.asnumpy())
        np.testing.assert_array_equal(third.asnumpy()[:, 0], value + x.asnumpy())
        np.testing.assert_array_equal(whole.asnumpy(), value)
        np.testing.assert_array_equal(part.asnumpy(), value[1:])


def test_results_can_be_inputs_of_next_step(always: list[Any]) -> None:
    step = jit(lambda x, y: (y + 1.0, x * 2.0))
    x, y = ops.zeros(2).to("gpu"), ops.ones(2).to("gpu")
    a, b = np.zeros(2), np.ones(2)
    for _ in range(6):
        x, y = step(x, y)
        a, b = b + 1.0, a * 2.0
        np.testing.assert_array_equal(x.asnumpy(), a)
        np.testing.assert_array_equal(y.asnumpy(), b)
    assert len(always) == 5


def test_released_results_are_not_copied(always: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    detached: list[Any] = []
    detach = plans.GraphMemory.detach
    monkeypatch.setattr(plans.GraphMemory, "detach", lambda self: detached.append(self) or detach(self))
    p = Parameter(normal(3))

    @jit
    def step(x: Tensor) -> Tensor:
        p.set_data(p + x)
        return p.sum()

    x = normal(3, seed=1)
    for _ in range(5):
        float(step(x))
    assert always and not detached
    held = p.value()
    step(x)
    assert len(detached) == 1
    del held


def test_step_can_swap_two_parameters(always: list[Any]) -> None:
    a, b = Parameter(normal(2, seed=1), name="a"), Parameter(normal(2, seed=2), name="b")

    @jit
    def swap() -> None:
        old = a * 1.0
        a.set_data(b)
        b.set_data(old)

    first, second = a.asnumpy(), b.asnumpy()
    for _ in range(4):
        swap()
        first, second = second, first
        np.testing.assert_array_equal(a.asnumpy(), first)
        np.testing.assert_array_equal(b.asnumpy(), second)


def test_unrecordable_step_runs_by_plain_launches_and_warns(always: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(self: Any, run: Any) -> Any:
        raise DeviceError("the card does not capture today")

    monkeypatch.setattr(type(runtime()), "_capture", refused)
    step = jit(lambda x: ops.tanh(x).sum())
    x = normal(4)
    for _ in range(3):
        np.testing.assert_allclose(step(x).asnumpy(), np.tanh(x.asnumpy()).sum(), rtol=1e-6)
    assert not always
    assert "one CUDA graph, but not possible: the card does not capture today" in explain(step, x, detail="launches")


def test_profile_times_launches_and_leaves_the_graph_alone(always: list[Any]) -> None:
    results = []
    for profiled in (False, True):
        snncell.set_seed(3)
        weight = Parameter(normal(4, 3, seed=1), name="w")

        @jit
        def step(x: Tensor, weight: Parameter = weight) -> Tensor:
            value, (grad,) = value_and_grad(
                lambda x: ops.tanh(x @ weight + ops.normal((2, 3), 0.0, 1.0)).sum(), None, [weight]
            )(x)
            ops.assign(weight, weight - 0.1 * grad)
            return value  # type: ignore[no-any-return]

        x, losses = normal(2, 4), []
        for _ in range(4):
            losses.append(float(step(x)))
            if profiled:
                found = snncell.profile(step, x, repeat=2)
                assert found.device == "GPU" and all(launch.seconds > 0 for launch in found.launches)
                assert {"forward", "backward"} <= {launch.track for launch in found.launches}
        results.append([*losses, weight.asnumpy().tolist()])
    assert results[0] == results[1] and len(always) == 6


def test_step_is_recorded_only_if_launches_cost_more_than_copies() -> None:
    assert is_graph_faster(20, 1000)
    assert not is_graph_faster(1, 0)
    assert not is_graph_faster(3, 1 << 30)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("from_outside", [0, 1, 2])
def test_interruption_leaves_recorded_step_finished_or_not_started(
    when: str, from_outside: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    p, q = Parameter(normal(3)), Parameter(normal(3, seed=1))

    @jit
    def step(x: Tensor) -> Tensor:
        total = p + q + x
        ops.assign(p, total * 0.5)
        ops.assign(q, total - q)
        return total

    x = normal(3, seed=2)
    for _ in range(3):
        step(x)
    for parameter in (p, q)[:from_outside]:  # it is not where the recording has it
        parameter.set_data(parameter * 2.0)
    kept = [parameter.value() for parameter in (p, q)]
    old = [np.array(value.asnumpy()) for value in kept]
    play = runtime().play

    def interrupted(recording: Any) -> None:
        if when == "after":
            play(recording)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(runtime(), "play", interrupted)
        with pytest.raises(KeyboardInterrupt):
            step(x)
    total = old[0] + old[1] + x.asnumpy()
    new = [total * np.float32(0.5), total - old[1]]
    for parameter, values in zip((p, q), old if when == "before" else new, strict=True):
        np.testing.assert_array_equal(parameter.asnumpy(), values)
    again = [parameter.value() for parameter in (p, q)]
    present = [np.array(value.asnumpy()) for value in again]
    step(x)
    for values, before in zip((*kept, *again), (*old, *present), strict=True):  # what was handed out stays
        np.testing.assert_array_equal(values.asnumpy(), before)
    total = present[0] + present[1] + x.asnumpy()
    np.testing.assert_array_equal(p.asnumpy(), total * np.float32(0.5))
    np.testing.assert_array_equal(q.asnumpy(), total - present[1])
