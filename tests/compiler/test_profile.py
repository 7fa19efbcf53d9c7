"""Profiles: sums of launches, layers by path, traces, nothing written, errors."""

from __future__ import annotations

import json
import math
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import snncell
from snncell import Parameter, Tensor, jit, nn, ops, value_and_grad
from snncell.compiler.profile import BETWEEN, TRACKS, Profile, profile
from snncell.errors import ArgumentError, TraceError

RNG = np.random.default_rng(0)


class Net(nn.Cell):
    """A spiking convolution and a readout."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.TimeDistributed(nn.Conv2d(1, 4, 3))
        self.norm = nn.TimeDistributed(nn.BatchNorm2d(4))
        self.lif = nn.MultiStep(nn.LIFNode())
        self.flat = nn.TimeDistributed(nn.Flatten())
        self.head = nn.Dense(4 * 36, 5)

    def construct(self, x: Tensor) -> Tensor:
        return self.head(self.flat(self.lif(self.norm(self.conv(x))))).mean(0)


def training(
    network: type[nn.Cell] = Net, seed: int = 0
) -> tuple[nn.Cell, nn.Adam, Callable[..., Any], tuple[Tensor, Tensor]]:
    """A network, its optimiser, a jitted training step and a batch."""
    snncell.set_seed(seed)
    net, loss = network(), nn.CrossEntropyLoss()
    optimiser = nn.Adam(net.trainable_params(), 1e-2)
    gradients = value_and_grad(lambda x, y: loss(net(x), y), None, optimiser.parameters)

    def step(x: Tensor, y: Tensor) -> Tensor:
        value, grads = gradients(x, y)
        optimiser(grads)
        return value

    x = (RNG.random((4, 3, 1, 6, 6)) < 0.3).astype(np.float32)
    return net, optimiser, jit(step), (Tensor(x), Tensor([0, 1, 2]))


def close(a: float, b: float) -> bool:
    return math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-12)


def test_layers_are_the_sums_of_their_launches() -> None:
    _, _, step, batch = training()
    found = profile(step, *batch, repeat=3)
    for row in found.rows:
        own = [launch for launch in found.launches if launch.layer == row.name]
        for key in ("seconds", "share", "bytes", "operations", "bound") if row.name != BETWEEN else ():
            assert close(getattr(row, key), sum(getattr(launch, key) for launch in own)), (row.name, key)
        assert close(row.forward + row.backward + row.optimiser, 0.0 if row.name == BETWEEN else row.seconds)
        assert math.isnan(row.times_bound) if row.name == BETWEEN else close(row.times_bound, row.seconds / row.bound)
    assert close(sum(row.share for row in found.rows), 1.0)
    assert [row.seconds for row in found.rows] == sorted((row.seconds for row in found.rows), reverse=True)


def test_bytes_are_those_of_explain() -> None:
    _, _, step, batch = training()
    total = sum(launch.bytes for launch in profile(step, *batch, repeat=1).launches)
    (said,) = re.findall(r"one run reads and writes ([\d.]+) kB", step.explain(*batch))
    assert float(f"{total / 1000:.3g}") == float(said)


def test_layers_have_paths_and_tracks() -> None:
    _, _, step, batch = training()
    rows = {row.name: row for row in profile(step, *batch, repeat=2).rows}
    assert {"conv.cell Conv2d", "norm.cell BatchNorm2d", "lif MultiStep(LIFNode)", "head Dense", "Adam"} <= rows.keys()
    for name in ("conv.cell Conv2d", "lif MultiStep(LIFNode)", "head Dense"):
        assert rows[name].forward > 0 and rows[name].backward > 0 and rows[name].optimiser == 0
    norm = rows["norm.cell BatchNorm2d"]
    assert norm.forward > 0 == norm.backward  # in evaluation, its backward pass is part of the neuron's loop
    assert rows["Adam"].optimiser > 0 and rows["Adam"].backward == 0


def test_profiling_does_not_change_training() -> None:
    class Noisy(Net):
        def construct(self, x: Tensor) -> Tensor:
            return super().construct(x + 0.1 * ops.normal(x.shape, 0.0, 1.0))

    def trained(profiled: bool) -> list[Any]:
        net, optimiser, step, _ = training(Noisy, seed=3)
        x = Tensor(np.random.default_rng(1).random((4, 3, 1, 6, 6), np.float32))
        results = []
        for _ in range(3):
            if profiled:
                before = [p.asnumpy().copy() for p in (*net.get_parameters(), *optimiser.get_parameters())]
                profile(step, x, Tensor([0, 1, 2]), repeat=2)
                after = [p.asnumpy() for p in (*net.get_parameters(), *optimiser.get_parameters())]
                assert all(np.array_equal(a, b) for a, b in zip(before, after, strict=True))
            results.append(step(x, Tensor([0, 1, 2])).asnumpy())
        return [*results, *(p.asnumpy() for p in (*net.get_parameters(), *optimiser.get_parameters()))]

    for a, b in zip(trained(False), trained(True), strict=True):
        assert np.array_equal(a, b)


def test_states_of_neurons_stay_as_they_are() -> None:
    stream = nn.Stateful(nn.MultiStep(nn.LIFNode()))
    run = jit(stream)
    chunk = ops.full((2, 1, 3), 0.4)
    run(chunk)
    (before,) = (state.asnumpy().copy() for state in stream.states)
    assert before.any()
    found = profile(run, chunk, repeat=2)
    assert np.array_equal(stream.states[0].asnumpy(), before)
    assert any("LIFNode" in row.name for row in found.rows)


def test_trace_has_an_event_for_each_launch(tmp_path: Path) -> None:
    _, _, step, batch = training()
    found = profile(step, *batch, repeat=3)
    found.save(tmp_path / "trace.json")
    trace = json.loads((tmp_path / "trace.json").read_text(encoding="utf-8"))
    events = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    assert len(events) == len(found.launches)
    assert [event["name"] for event in events] == [launch.name for launch in found.launches]
    named = {e["tid"]: e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "thread_name"}
    assert tuple(named.values()) == TRACKS
    for event, launch in zip(events, found.launches, strict=True):
        assert event["dur"] > 0 and event["ts"] >= 0 and named[event["tid"]] == launch.track
        args = event["args"]
        assert args["bytes"] == launch.bytes and args["shape"] == list(launch.shape) and ".py:" in args["line"]
    starts = [event["ts"] for event in events]
    assert starts == sorted(starts) and starts[-1] + events[-1]["dur"] < 1e6 * 100 * found.seconds


@pytest.mark.compiled
def test_slow_layer_ranks_first() -> None:
    class Slow(nn.Cell):
        """A layer that runs step by step, with a sum over neurons in each of many steps."""

        def construct(self, x: Tensor) -> Tensor:
            return ops.scan(lambda c, row: (ops.cumsum(row + c, 1) * 0.1, c), ops.zeros_like(x[0]), x)[1]

    net = nn.SequentialCell(nn.Dense(8, 8), Slow(), nn.Dense(8, 8))
    found = profile(net, Tensor(RNG.random((300, 2, 8), np.float32)), repeat=3)
    layers = [row for row in found.rows if row.name != BETWEEN]
    assert layers[0].name == "1 Slow" and layers[0].share > 0.5
    inside = [launch for launch in found.launches if launch.layer == "1 Slow" and launch.name == "cumsum"]
    assert len(inside) == 1 and inside[0].seconds > 0  # a launch that runs at each step


class WithDense(nn.Cell):
    """A neuron with a product of its input, which its loop runs for all steps together."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Dense(64, 48)

    def construct(self, x: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        v = 0.9 * v + self.dense(x)
        return ops.greater(v, 1.0).astype("float32"), v

    def init_state(self, x: Tensor) -> tuple[Tensor]:
        return (ops.zeros((x.shape[0], 48)),)


@pytest.mark.compiled
@pytest.mark.parametrize("density", [0.03, 0.9])
def test_products_inside_of_loops_have_rows_of_their_own(density: float) -> None:
    x = Tensor((RNG.random((30, 16, 64)) < density).astype(np.float32))
    net = nn.MultiStep(WithDense())
    found = profile(value_and_grad(lambda x: net(x).sum(), None, net.trainable_params()), x, repeat=2)
    rows = {(launch.name, launch.track): launch for launch in found.launches}
    elementwise = 30 * 16 * 48 * 4
    dense = 2 * 30 * 16 * 48 * 64
    forward, backward = rows["MultiStep(WithDense)", "forward"], rows["backward of MultiStep(WithDense)", "backward"]
    assert backward.operations == pytest.approx(elementwise, rel=0.6)
    if density > 0.5:  # the product runs before the kernel
        assert rows["matmul", "forward"].operations == dense and rows["matmul", "forward"].path == "dense"
        assert forward.density is None and forward.operations == pytest.approx(elementwise, rel=0.6)
    else:  # the kernel adds the rows of the events
        assert ("matmul", "forward") not in rows and forward.path == "events"
        assert forward.density == pytest.approx(np.count_nonzero(x.asnumpy()) / x.size)
        assert forward.operations == pytest.approx(dense * forward.density + elementwise, rel=0.4)
    (rest,) = [row for row in found.rows if row.name == BETWEEN]
    assert close(sum(launch.share for launch in found.launches), 1.0 - rest.share)


def test_density_and_path_of_events() -> None:
    layer = nn.Dense(512, 256)
    few = (RNG.random((200, 512)) < 0.02).astype(np.float32)
    for x, path in ((few, "events"), (RNG.random((200, 512), np.float32), "dense")):
        (row,) = [row for row in profile(layer, Tensor(x), repeat=1).rows if row.name == "Dense"]
        assert row.path == path and row.density == pytest.approx(np.count_nonzero(x) / x.size)
        (launch,) = [x for x in profile(layer, Tensor(x), repeat=1).launches if x.density is not None]
        assert launch.operations == pytest.approx(2 * 200 * 512 * 256 * (launch.density if path == "events" else 1.0))


def test_density_of_event_lists() -> None:
    dense = (RNG.random((200, 512)) < 0.02).astype(np.float32)
    rows, places = np.nonzero(dense)
    starts = np.concatenate([[0], np.cumsum((dense != 0).sum(1))])
    values = dense[rows, places]
    lists = snncell.data.EventLists(Tensor(starts), Tensor(places.astype(np.int32)), Tensor(values), dense.shape)
    found = profile(nn.Dense(512, 256), lists, repeat=1)
    (launch,) = [launch for launch in found.launches if launch.name == "matmul"]
    assert launch.path == "events" and launch.density == pytest.approx(np.count_nonzero(dense) / dense.size)
    assert launch.operations == pytest.approx(2 * 256 * np.count_nonzero(dense))


def test_operations_of_convolutions_and_gradients() -> None:
    conv = nn.Conv2d(3, 5, 3, pad_mode="pad", padding=0)
    gradient = snncell.grad(lambda x: (conv(x) * conv(x)).sum(), 0, conv.trainable_params())
    found = profile(gradient, ops.ones((2, 3, 7, 7)), repeat=1)
    counts = {launch.name: launch.operations for launch in found.launches if launch.name.startswith("conv")}
    assert counts == dict.fromkeys(("conv", "conv_back", "conv_weight"), 2 * 2 * 5 * 25 * 3 * 9)


def test_text_says_what_was_measured() -> None:
    _, _, step, batch = training()
    found = profile(step, *batch, repeat=2)
    text = str(found)
    assert text == repr(found) and max(map(len, text.splitlines())) <= 118 and len(text.splitlines()) < 40
    for part in ("step, compiled for the CPU", "lif MultiStep(LIFNode)", "medians of 2 steps", "longer", "Compiled in"):
        assert part in text
    assert "not jitted" not in text
    total = 1e3 * sum(row.seconds for row in found.rows)  # of which the shares are
    assert f"Shares are of the sum of all rows, {total:.3g} ms" in " ".join(text.split())
    launches = str(profile(step, *batch, repeat=1, detail="launches"))
    assert launches.count("\n") > text.count("\n") and "conv_weight" in launches and "of one step" in launches
    assert max(map(len, launches.splitlines())) <= 118
    html = found._repr_html_()
    assert html.count("<tr") == len(found.rows) + 1 and "lif MultiStep(LIFNode)" in html
    assert str(pickle.loads(pickle.dumps(found))) == text


def test_plain_functions_are_compiled_and_the_text_says_so() -> None:
    found = profile(lambda x: ops.exp(x) * 2.0, ops.ones(3), repeat=1)
    assert "<lambda> is not jitted, so this is the time of snncell.jit(<lambda>)" in " ".join(str(found).split())
    assert [launch.name for launch in found.launches] == ["loop_exp_mul"]
    assert found.launches[0].operations == 6 and found.launches[0].bytes == 24


def test_each_signature_and_method_can_be_profiled() -> None:
    class Model:
        @jit
        def run(self, x: Tensor) -> Tensor:
            return ops.exp(x)

    model = Model()
    for n in (3, 5):
        model.run(ops.ones(n))
    for n in (3, 5, 7):
        found = profile(model.run, ops.ones(n), repeat=1)
        assert found.launches[0].shape == (n,) and "not jitted" not in str(found)


def test_steps_by_hand_have_an_optimiser_track() -> None:
    weight = Parameter(Tensor(RNG.random((4, 4), np.float32)), name="w")

    def step(x: Tensor) -> Tensor:
        value, grad = value_and_grad(lambda x: ops.tanh(x @ weight).sum(), None, [weight])(x)
        ops.assign(weight, weight - 0.1 * ops.exp(grad[0]))
        return value

    tracks = [launch.track for launch in profile(jit(step), ops.ones((3, 4)), repeat=1).launches]
    assert tracks[0] == "forward" and "backward" in tracks and tracks[-1] == "optimiser"


def test_plot_draws_a_bar_for_each_layer() -> None:
    _, _, step, batch = training()
    found = profile(step, *batch, repeat=1)
    axes = found.plot()
    assert [text.get_text() for text in axes.get_yticklabels()] == [row.name for row in found.rows]
    assert f"{1e3 * found.seconds:.3g} ms a step" in axes.get_title()
    axes.figure.canvas.draw()
    page, bars, drawn = axes.figure.bbox, axes.bbox, axes.get_legend().get_window_extent()
    texts = [drawn, axes.xaxis.label.get_window_extent(), *(text.get_window_extent() for text in axes.texts)]
    assert all(text.x0 >= page.x0 and text.x1 <= page.x1 and text.y0 >= page.y0 for text in texts)
    assert drawn.y1 < bars.y0  # below the bars and their shares
    ends = [sum(bar.get_width() for bar in axes.patches if round(bar.get_y()) == n) for n in range(len(found.rows))]
    assert np.allclose(ends, [1e3 * row.seconds for row in found.rows])
    assert found.plot(axes, title="mine") is axes and axes.get_title() == "mine"


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (
            lambda: profile(jit(ops.exp), ops.ones(2), repeat=0),
            ArgumentError,
            r"profile: repeat is an integer of at least",
        ),
        (
            lambda: profile(nn.ReLU, ops.ones(2)),
            TraceError,
            r"profile: step must be a function or a Cell, not .*nn\.ReLU",
        ),
        (lambda: profile(3, ops.ones(2)), TraceError, r"profile: .*, not a int"),
        (lambda: profile(lambda x: x, ops.ones(2)), ArgumentError, r"<lambda> runs no kernel .* Pass what it computes"),
        (lambda: profile(lambda x: float(x) + 1, ops.ones(())), TraceError, r"test_profile\.py"),
        (
            lambda: jit(lambda x: (profile(ops.exp, x), x)[1])(ops.ones(2)),
            TraceError,
            r"exp is being traced. Call snncell\.profile outside",
        ),
    ],
)
def test_errors_name_the_input_and_the_fix(call: Callable[[], Profile], error: type, words: str) -> None:
    with pytest.raises(error, match=words):
        call()


def test_check_finite_is_refused() -> None:
    snncell.set_context(check_finite=True)
    try:
        with pytest.raises(TraceError, match=r"exp runs operation by operation.*check_finite=False"):
            profile(jit(ops.exp), ops.ones(2))
    finally:
        snncell.set_context(check_finite=False)
