"""Mixed precision: low-precision layers with float32 weights, scaled losses, and skipped steps."""

from __future__ import annotations

import copy
import itertools
import pickle
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import snncell as ms
from snncell import Tensor, amp, nn, ops, train
from snncell.errors import ArgumentError, CheckpointError, TrainingError
from snncell.train.finite import ScaledLoss

HALVES = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
RUNS: dict[str, Callable[[Any], Any]] = {"eager": lambda f: f, "jitted": ms.jit}
T, B = 5, 4


def draw_array(*shape: int, seed: int = 0) -> Tensor:
    return Tensor(np.random.default_rng(seed).normal(size=shape).astype(np.float32))


# --- layers -----------------------------------------------------------------------------------------------------------

LAYERS: dict[str, tuple[Callable[[Any], Any], tuple[int, ...]]] = {
    "dense": (lambda dtype: nn.Dense(6, 3, dtype=dtype), (B, 6)),
    "no bias": (lambda dtype: nn.Dense(6, 3, has_bias=False, dtype=dtype), (T, B, 6)),
    "activation": (lambda dtype: nn.Dense(6, 3, activation="relu", dtype=dtype), (B, 6)),
    "conv1d": (lambda dtype: nn.Conv1d(2, 3, 3, has_bias=True, dtype=dtype), (B, 2, 7)),
    "conv2d": (lambda dtype: nn.Conv2d(2, 3, 3, stride=2, dtype=dtype), (B, 2, 7, 7)),
    "transposed": (lambda dtype: nn.Conv2dTranspose(2, 3, 3, dtype=dtype), (B, 2, 5, 5)),
}


def twins(kind: str, half: str) -> tuple[Any, Any]:
    """A float32 layer in mixed precision, and a layer with the same Parameters in low precision."""
    make, _ = LAYERS[kind]
    ms.set_seed(1)
    mixed, stored = make(ms.float32), make(half)
    for own, other in zip(stored.get_parameters(), mixed.get_parameters(), strict=True):
        own.set_data(other.value().astype(half))
    return amp.auto_mixed_precision(mixed, "O1", half), stored


@pytest.mark.sampled(8)
@pytest.mark.parametrize(("kind", "half", "run"), list(itertools.product(LAYERS, HALVES, RUNS)))
def test_mixed_layer_equals_low_precision_layer_with_casts(kind: str, half: str, run: str) -> None:
    mixed, stored = twins(kind, half)
    x = draw_array(*LAYERS[kind][1])

    def of(layer: Any, cast: Any) -> Any:
        def loss(x: Tensor) -> Any:
            y = cast(layer, x)
            return (y * ops.cos(y)).sum(), y

        return RUNS[run](ops.value_and_grad(loss, 0, layer.trainable_params(), has_aux=True))(x)

    (_, y), (dx, dw) = of(mixed, lambda layer, x: layer(x))
    (_, y2), (dx2, dw2) = of(stored, lambda layer, x: layer(x.astype(half)).astype("float32"))
    for found, expected in ((y, y2), (dx, dx2), *zip(dw, dw2, strict=True)):
        assert found.dtype is ms.float32
        np.testing.assert_array_equal(found.asnumpy(), expected.asnumpy().astype(np.float32))
    exact = mixed.weight.value()
    assert (exact.asnumpy() != stored.weight.asnumpy().astype(np.float32)).any(), "the weights keep all their digits"


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("half", "run"), list(itertools.product(HALVES, RUNS)))
def test_neurons_norms_and_their_states_are_float32(half: str, run: str) -> None:
    seen: dict[str, Any] = {}

    class Watched(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.into, self.norm = nn.Dense(6, 8), nn.BatchNorm1d(8)
            back = nn.Recurrent(nn.LIFNode(v_threshold=0.3), nn.Dense(8, 8))
            self.hidden = nn.MultiStep(back, return_states=True)

        def construct(self, x: Tensor) -> Tensor:
            current = self.norm(self.into(x[0]))
            spikes, states = self.hidden(ops.stack([current] * T))
            seen.update(current=current.dtype, spikes=spikes.dtype, **{f"{n}": s.dtype for n, s in enumerate(states)})
            return spikes

    net = amp.auto_mixed_precision(Watched(), "O1", half).set_train()
    RUNS[run](lambda x: net(x))(draw_array(T, B, 6))
    assert set(seen.values()) == {ms.float32} and len(seen) > 3
    assert {p.dtype for p in net.get_parameters()} == {ms.float32}
    assert net.hidden.cell.feedback.compute_dtype == net.into.compute_dtype == half


def test_float64_and_integer_inputs_keep_their_dtype() -> None:
    layer = amp.auto_mixed_precision(nn.Dense(3, 2), "O1")
    assert layer(Tensor(np.ones((1, 3)))).dtype is ms.float64
    spikes = np.array([[1, 0, 1]], np.uint8)
    same = layer(Tensor(spikes)).asnumpy() == layer(Tensor(spikes.astype(np.float32))).asnumpy()
    assert same.all() and layer(Tensor(spikes)).dtype is ms.float32
    wide = amp.auto_mixed_precision(nn.Dense(3, 2, dtype=ms.float64), "O1")
    x = Tensor(np.random.default_rng(0).random((1, 3)))
    plain = (x.asnumpy() @ wide.weight.asnumpy().T) + wide.bias.asnumpy()
    np.testing.assert_allclose(wide(x).asnumpy(), plain, rtol=1e-14)


def test_event_lists_equal_dense_frames() -> None:
    frames = (np.random.default_rng(0).random((20, 6)) < 0.3).astype(np.float32)
    starts = np.concatenate([[0], np.cumsum((frames != 0).sum(1))])
    places = np.nonzero(frames)[1]
    lists = ms.data.EventLists(Tensor(starts), Tensor(places), Tensor(np.ones(len(places), np.float32)), (20, 6))
    layer = amp.auto_mixed_precision(nn.Dense(6, 3), "O1")
    found, expected = (
        ops.value_and_grad(lambda x=x: ops.square(layer(x)).sum(), None, layer.trainable_params())()
        for x in (lists, Tensor(frames))
    )
    for one, other in zip([found[0], *found[1]], [expected[0], *expected[1]], strict=True):
        assert one.dtype is ms.float32
        np.testing.assert_allclose(one.asnumpy(), other.asnumpy(), rtol=2e-3)


def test_jitted_function_is_retraced_when_precision_changes() -> None:
    layer, x = nn.Dense(6, 3), draw_array(T, B, 6)
    for run in (ms.jit(lambda x: layer(x)), layer, ms.jit(nn.TimeDistributed(layer))):
        plain = run(x).asnumpy()
        amp.auto_mixed_precision(layer, "O1", ms.bfloat16)
        assert (run(x).asnumpy() != plain).any()
        amp.auto_mixed_precision(layer, "O0")
        np.testing.assert_array_equal(run(x).asnumpy(), plain)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda net: pickle.loads(pickle.dumps(net))], ids=["copy", "pickle"])
def test_copy_computes_as_original(copied: Any) -> None:
    net, x = amp.auto_mixed_precision(nn.Dense(6, 3), "O1"), draw_array(B, 6)
    np.testing.assert_array_equal(copied(net)(x).asnumpy(), net(x).asnumpy())


class Own(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.parts = [ms.Parameter(draw_array(6, seed=n)) for n in range(2)]

    def construct(self, x: Tensor) -> Tensor:
        return x * self.parts[0] + self.parts[1]


class Noting(Own):
    def construct(self, x: Tensor) -> Tensor:
        self.last = x.shape
        return x * self.parts[0]


def test_white_and_black_list_select_classes() -> None:
    own, x = amp.auto_mixed_precision(Own(), "O1", white_list=[Own]), draw_array(B, 6)
    a, b = (p.asnumpy().astype(np.float16) for p in own.parts)
    expected = (x.asnumpy().astype(np.float16) * a + b).astype(np.float32)
    np.testing.assert_array_equal(own(x).asnumpy(), expected)
    net = nn.SequentialCell(nn.Dense(6, 6), nn.Conv1d(1, 1, 1))
    amp.auto_mixed_precision(net, "O1", black_list=[nn.Dense])
    assert [cell.compute_dtype for cell in net] == [None, "float16"]
    eprop = nn.SequentialCell(nn.FeedbackDense(6, 6), nn.Dense(6, 2))
    assert [cell.compute_dtype for cell in amp.auto_mixed_precision(eprop, "O1")] == [None, "float16"]


def test_unsupported_layers_raise() -> None:
    with pytest.raises(ArgumentError, match="IFNode has no layer to compute in float16"):
        amp.auto_mixed_precision(nn.IFNode(), "O1")
    with pytest.raises(ArgumentError, match="float16 or bfloat16, not float32"):
        amp.auto_mixed_precision(nn.Dense(1, 1), "O1", ms.float32)
    with pytest.raises(ArgumentError, match="FeedbackDense of white_list has a bprop"):
        amp.auto_mixed_precision(nn.FeedbackDense(2, 2), "O1", white_list=[nn.FeedbackDense])
    with pytest.raises(ArgumentError, match="black_list is a list of classes of Cells"):
        amp.auto_mixed_precision(nn.Dense(1, 1), "O1", black_list=["Dense"])  # type: ignore[list-item]
    noting = amp.auto_mixed_precision(Noting(), "O1", white_list=[Noting])
    with pytest.raises(ArgumentError, match=r"construct sets an attribute.*black_list=\[Noting\]"):
        noting(draw_array(B, 6))


# --- scales -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("seed", "run"), list(itertools.product(range(6), RUNS)))
def test_dynamic_scale_follows_its_rule(seed: int, run: str) -> None:
    rng = np.random.default_rng(seed)
    factor, window = float(rng.choice([2.0, 4.0])), int(rng.integers(1, 4))
    scale = begun = float(2.0 ** rng.integers(0, 6))
    scaler, row, lost = amp.DynamicLossScaler(begun, factor, window), 0, 0
    adjust = RUNS[run](lambda finite: scaler.adjust(finite))
    outcomes = rng.random(60) < 0.6
    for finite in outcomes:
        adjust(Tensor(bool(finite)))
        if finite:
            row += 1
            if row == window:
                scale, row = scale * factor, 0
        else:
            lost += scale == 1.0
            scale, row = max(scale / factor, 1.0), 0
        assert (scaler.scale_value.item(), scaler.counter.item()) == (scale, row)
    counts = scaler.taken.item(), scaler.skipped.item(), scaler.lost.item()
    assert counts == (outcomes.sum(), 60 - outcomes.sum(), lost)


def test_scale_does_not_grow_to_infinity() -> None:
    scaler = amp.DynamicLossScaler(2.0**127, 2.0, 1)
    scaler.adjust(Tensor(True))
    assert scaler.scale_value.item() == 2.0**127


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 3e38, 0.0])
def test_all_finite_detects_single_nonfinite_element(value: float, run: str) -> None:
    for place in range(3):
        arrays = [np.zeros((3, 50), np.float32) for _ in range(3)]
        arrays[place][2, 37] = value
        found = RUNS[run](lambda *x: amp.all_finite(x))(*map(Tensor, arrays))
        assert found.item() is bool(np.isfinite(value))
    assert amp.all_finite([]).item() is True


def net_of(half: str | None, seed: int = 1) -> Any:
    ms.set_seed(seed)
    net = nn.SequentialCell(
        nn.Dense(6, 8), nn.TimeDistributed(nn.BatchNorm1d(8)), nn.MultiStep(nn.LIFNode(v_threshold=0.2)), nn.Dense(8, 2)
    )
    return (net if half is None else amp.auto_mixed_precision(net, "O1", half)).set_train()


OPTIMISERS: dict[str, Callable[[Any], nn.Optimizer]] = {
    "SGD": lambda p: nn.SGD(p, 0.1),
    "Momentum": lambda p: nn.Momentum(p, 0.05, 0.9, weight_decay=0.01),
    "Adam": lambda p: nn.Adam(p, nn.ExponentialDecayLR(0.05, 0.5, 2)),
    "AdamW": lambda p: nn.AdamW(p, 0.05),
    "RMSProp": lambda p: nn.RMSProp(p, 0.01, centered=True),
    "groups": lambda p: nn.Adam([{"params": p[:2], "lr": 0.1}, {"params": p[2:], "weight_decay": 0.1}], 0.01),
}
CLIPS: dict[str, Callable[[Any], Any] | None] = {
    "no clip": None,
    "norm": lambda grads: train.clip_by_global_norm(grads, 0.05),
    "value": lambda grads: train.clip_by_value(grads, 0.01),
}
SCALERS: dict[str, Callable[[], Any]] = {
    "static": lambda: 2.0**20,
    "dynamic": lambda: amp.DynamicLossScaler(2.0**12, 2.0, 2),
}
X, Y = draw_array(T, B, 6), Tensor(np.arange(B) % 2)
LOSS = nn.CECountLoss()


def eager_step(net: Any, optimiser: nn.Optimizer, clip: Any, scaler: Any) -> Callable[..., Any]:
    """A training step written by a user."""
    if isinstance(scaler, float):
        scaler = amp.StaticLossScaler(scaler)
    scale = scaler.scale if scaler else lambda loss: loss
    gradients = ops.grad(lambda x, y: scale(LOSS(net(x), y)), None, optimiser.parameters)

    def step(x: Tensor, y: Tensor) -> None:
        grads = gradients(x, y)
        if scaler:
            grads = scaler.unscale(grads)
            finite = amp.all_finite(grads)
            amp.step_if(finite, optimiser, grads if clip is None else clip(grads))
            scaler.adjust(finite)
        else:
            optimiser(grads if clip is None else clip(grads))

    return step


def step_of(run: str, net: Any, optimiser: nn.Optimizer, clip: Any, scaler: Any) -> Callable[..., Any]:
    if run == "eager":
        return eager_step(net, optimiser, clip, scaler)
    return train.training_step(net, LOSS, optimiser, clip, None, loss_scale=scaler)


def bits(*cells: nn.Cell) -> list[bytes]:
    return [p.asnumpy().tobytes() for cell in cells for p in cell.get_parameters()]


CROSS = list(itertools.product(OPTIMISERS, CLIPS, SCALERS, RUNS))


@pytest.mark.sampled(2)
@pytest.mark.uncompiled
@pytest.mark.parametrize(("optimiser", "clip", "scaler", "run"), CROSS)
def test_scale_of_power_of_two_keeps_every_bit_of_float32(optimiser: str, clip: str, scaler: str, run: str) -> None:
    results = []
    for scale in (None, SCALERS[scaler]()):
        net = net_of(None)
        made = OPTIMISERS[optimiser](net.trainable_params())
        step = step_of(run, net, made, CLIPS[clip], scale)
        for _ in range(4):
            step(X, Y)
        results.append(bits(net, made))
    assert results[0] == results[1]
    assert made.global_step.item() == 4 and results[0] != bits(net_of(None), made)


@pytest.mark.sampled(2)
@pytest.mark.uncompiled
@pytest.mark.parametrize(("half", "optimiser", "clip", "run"), list(itertools.product(HALVES, OPTIMISERS, CLIPS, RUNS)))
def test_overflowing_step_changes_nothing(half: str, optimiser: str, clip: str, run: str) -> None:
    net = net_of(half)
    made = OPTIMISERS[optimiser](net.trainable_params())
    scaler = amp.DynamicLossScaler(2.0**10, 2.0, 1000)
    step = step_of(run, net, made, CLIPS[clip], scaler)
    step(X, Y)  # there are moments
    assert scaler.taken.item() == 1
    scaler.scale_value.set_data(2.0**127)
    before = bits(made, *([] if run == "eager" else [net]))  # statistics are a matter of the whole step
    weights = [p.asnumpy().tobytes() for p in net.trainable_params()]
    step(Tensor(X.asnumpy() * 1e3), Y)
    assert bits(made, *([] if run == "eager" else [net])) == before
    assert weights == [p.asnumpy().tobytes() for p in net.trainable_params()]
    assert scaler.scale_value.item() == 2.0**126 and scaler.skipped.item() == 1
    scaler.scale_value.set_data(2.0**10)
    step(X, Y)
    assert made.global_step.item() == 2 and bits(made) != before


@pytest.mark.sampled(3)
@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("scale", [None, 2.0**24, "dynamic"])
def test_scale_rescues_gradients_that_vanish_in_float16(scale: Any, run: str) -> None:
    net = amp.auto_mixed_precision(nn.Dense(6, 2, weight_init="zeros", bias_init="zeros"), "O1")
    small = 2.0**-30

    def loss(y: Tensor, target: Tensor) -> Tensor:
        return nn.CrossEntropyLoss()(y, target) * small

    scaler = amp.DynamicLossScaler(2.0**40, 2.0, 100) if scale == "dynamic" else scale and amp.StaticLossScaler(scale)
    sgd = nn.SGD(net.trainable_params(), 0.5 / small)
    of_loss = ops.grad(lambda x, y: (scaler.scale if scaler else abs)(loss(net(x), y)), None, sgd.parameters)

    def by_hand(x: Tensor, y: Tensor) -> None:
        grads = of_loss(x, y)
        grads = scaler.unscale(grads) if scaler else grads
        amp.step_if(finite := amp.all_finite(grads), sgd, grads)
        if scaler:
            scaler.adjust(finite)

    step = by_hand if run == "eager" else train.training_step(net, loss, sgd, None, None, loss_scale=scaler)
    for _ in range(60):
        step(X[0], Y)
    learned = float(loss(net(X[0]), Y)) / small / np.log(2)
    assert learned == pytest.approx(1.0) if scale is None else learned < 0.5


def test_gradients_of_float16_parameters_are_unscaled_in_float32() -> None:
    scaler = amp.StaticLossScaler(2.0**20)
    assert scaler.unscale([Tensor(np.float16([2.0**-10]))])[0].item() == 2.0**-30
    assert scaler.unscale(Tensor(2.0**20)).item() == 1.0  # a loss by itself
    assert scaler.scale(Tensor(np.float16(1.0))).item() == 2.0**20


# --- fit --------------------------------------------------------------------------------------------------------------

FULL = np.random.default_rng(0).normal(size=(T, 24, 6)).astype(np.float32), np.arange(24) % 2


def fitted(epochs: int, net: Any, made: nn.Optimizer, scaler: Any, **options: Any) -> train.Result:
    data = train.Batches(*FULL, batch_size=4, time_first=True)
    return train.fit(net, LOSS, made, data, epochs, loss_scale=scaler, progress=False, **options)


@pytest.mark.parametrize("accumulate", [1, 4])
def test_fit_resumes_from_checkpoint_bit_for_bit(tmp_path: Any, accumulate: int) -> None:
    def begun() -> tuple[Any, nn.Optimizer, amp.DynamicLossScaler]:
        net = net_of("float16")
        return net, nn.Adam(net.trainable_params(), 0.02), amp.DynamicLossScaler(2.0**21, 2.0, 5)

    net, made, scaler = begun()
    whole = fitted(5, net, made, scaler, accumulate=accumulate, clip_norm=1.0)
    skipped = [record["skipped"] for record in whole.history]
    assert skipped[0] > 0 and sum(skipped) == scaler.skipped.item()
    assert [record["loss_scale"] for record in whole.history][-1] == scaler.scale_value.item()
    assert scaler.taken.item() == made.global_step.item() == whole.history[-1]["step"]

    class Saves(train.Callback):
        def on_fit_begin(self, training: train.Training) -> None:
            training.save(tmp_path / "begun")

        def on_step_end(self, training: train.Training) -> None:
            if training.epoch == 2 and training.batch == 4:
                training.save(tmp_path / "within")

    options = {"accumulate": accumulate, "clip_norm": 1.0}
    net2, made2, scaler2 = begun()
    fitted(2, net2, made2, scaler2, callbacks=[Saves()], checkpoint=tmp_path / "after", **options)
    for file in ("begun", "within", "after"):
        net3, made3, scaler3 = begun()
        again = fitted(5, net3, made3, scaler3, resume=tmp_path / file, **options)
        assert bits(net3, made3, scaler3) == bits(net, made, scaler)
        assert again.history == whole.history
    kept = ScaledLoss(scaler, None)
    for damage in ({"before": {}}, {"before": {**kept.before, "lost": -1}}, {"lost": np.zeros(2)}):
        with pytest.raises(ArgumentError, match=r"its counts are|'lost' is float64"):
            kept.resume({**kept.state(), **damage}, None)  # type: ignore[arg-type]
    net4, made4, _ = begun()
    with pytest.raises(CheckpointError, match="loss_scale"):
        fitted(5, net4, made4, amp.DynamicLossScaler(2.0**21, 2.0, 6), resume=tmp_path / "after", **options)
    amp.auto_mixed_precision(net4, "O0")
    with pytest.raises(CheckpointError, match=r'compute_dtype was "float16" and is missing'):
        fitted(5, net4, made4, amp.DynamicLossScaler(2.0**21, 2.0, 5), resume=tmp_path / "after", **options)


def test_fit_names_other_causes_than_the_scale() -> None:
    net = net_of("float16")
    made = nn.SGD(net.trainable_params(), 0.1)

    def steep(y: Tensor, target: Tensor) -> Tensor:
        return LOSS(y, target) * 1e7

    data = train.Batches(*FULL, batch_size=4, time_first=True)
    weights = [p.asnumpy() for p in net.trainable_params()]
    with pytest.raises(
        TrainingError, match=r"in epoch 1 3 step.s. had gradients .* smallest loss scale, 1, so the scale is not"
    ):
        train.fit(net, steep, made, data, 2, loss_scale=amp.DynamicLossScaler(8.0), progress=False)
    with pytest.raises(TrainingError, match=r"none of the 6 step.s. had finite gradients with the loss scale 8\."):
        train.fit(net, steep, made, data, 2, loss_scale=8, progress=False)
    for before, parameter in zip(weights, net.trainable_params(), strict=True):
        np.testing.assert_array_equal(before, parameter.asnumpy())


@pytest.mark.parametrize("wrong", [0.0, -1.0, True, "dynamic", amp.DynamicLossScaler, np.inf])
def test_invalid_scale_raises(wrong: Any) -> None:
    net = net_of(None)
    made = nn.SGD(net.trainable_params(), 0.1)
    with pytest.raises(ArgumentError, match="loss_scale must be a number above 0, or a scaler"):
        fitted(1, net, made, wrong)


def test_infinite_gradient_in_threaded_product_does_not_warn() -> None:
    x = np.ones((512, 512), np.float32)
    x[3, 5], x[3, 6] = np.inf, -np.inf
    assert np.isnan(ops.matmul(Tensor(x), Tensor(np.ones((512, 1024), np.float32))).asnumpy()[3]).all()
