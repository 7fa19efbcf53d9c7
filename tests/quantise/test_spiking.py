"""ANN-to-SNN conversion: spike counts by formula, accuracy, folding, branches, export, refusals, and SpikingJelly."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import snncell
from snncell import Tensor, nn, ops, quantise, testing
from snncell.data import digits
from snncell.encode import current
from snncell.errors import ArgumentError, ShapeError
from snncell.quantise.spiking import _HalfUp

Chain, Dense, ReLU = nn.SequentialCell, nn.Dense, nn.ReLU


def numbers(*shape: int, seed: int = 0, dtype: Any = snncell.float32) -> Tensor:
    return Tensor(np.random.default_rng(seed).random(shape), dtype)


def thresholds(net: Any) -> list[Any]:
    limits = [cell.v_threshold for _, cell in net.cells_and_names() if isinstance(cell, nn.IFNode)]
    return [limit.item() if limit.size == 1 else limit for limit in limits]


class Block(nn.Cell):
    """A residual block with separate normalisations, and one ReLU that is called twice."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1, self.conv2 = (nn.Conv2d(channels, channels, 3) for _ in range(2))
        self.bn1, self.bn2 = (nn.BatchNorm2d(channels) for _ in range(2))
        self.relu = ReLU()

    def construct(self, x: Any) -> Any:
        hidden = self.relu(self.bn1(self.conv1(x)))
        return self.relu(self.bn2(self.conv2(hidden)) + x)


def residual() -> Any:
    snncell.set_seed(0)
    net = Chain(
        nn.Conv2d(1, 4, 3), ReLU(), Block(4), nn.AvgPool2d(2, stride=2), nn.Flatten(), Dense(64, 3), nn.Softmax()
    )
    for seed in range(3):  # moving statistics other than 0 and 1
        net.set_train(True)(numbers(8, 1, 8, 8, seed=seed))
    return net


# --- the QCFS activation ----------------------------------------------------------------------------------------------


def test_qcfs_is_clip_floor_shift_with_straight_through_gradient():
    x = numbers(40, dtype=snncell.float64) * 5.0 - 1.0
    cell = quantise.QCFS(4, 2.5, dtype=snncell.float64)
    value, (by_x, (by_limit,)) = snncell.value_and_grad(
        lambda x: ops.sum(ops.square(cell(x))), 0, cell.trainable_params()
    )(x)
    z = x.asnumpy()
    y = 2.5 / 4 * np.clip(np.floor(z * 4 / 2.5 + 0.5), 0, 4)
    inside, above = (z >= 0.0) & (z <= 2.5), z > 2.5
    np.testing.assert_allclose(cell(x).asnumpy(), y, rtol=1e-14)
    np.testing.assert_allclose(value.asnumpy(), (y**2).sum())
    np.testing.assert_allclose(by_x.asnumpy(), 2.0 * y * inside)
    np.testing.assert_allclose(by_limit.asnumpy(), (2.0 * y * ((y - z) / 2.5 * inside + above)).sum())
    testing.check_bprop(_HalfUp(3), numbers(3, 4, dtype=snncell.float64) * 5.0 - 1.0)


# --- the first layer, by formula --------------------------------------------------------------------------------------


@pytest.mark.parametrize("initial", [0.0, 0.3, 0.5])
def test_mean_spikes_of_first_layer_follow_formula(initial):
    x = numbers(50, 6, dtype=snncell.float64) * 6.0 - 2.0
    snn = quantise.to_spiking(ReLU(), x, percentile=80.0, initial=initial)
    (theta,) = thresholds(snn)
    z = x.asnumpy()
    assert theta == pytest.approx(np.quantile(np.maximum(z, 0.0), 0.8))
    for steps in (1, 5, 64):
        mean = snn(current(x, steps)).asnumpy()
        expected = theta / steps * np.clip(np.floor(steps * z / theta + initial), 0, steps)
        np.testing.assert_allclose(mean, expected, atol=1e-12)
        assert np.abs(mean - np.clip(z, 0.0, theta)).max() <= theta / steps


def test_channels_have_own_thresholds():
    x = numbers(40, 3, 2, 2) * Tensor(np.array([1.0, 8.0, -1.0], np.float32).reshape(3, 1, 1))  # the last one is silent
    snn = quantise.to_spiking(nn.ReLU6(), x, percentile=90.0, per_channel=True)
    first, _, last = (ops.relu(x)[:, channel].asnumpy() for channel in range(3))
    (theta,) = thresholds(snn)
    assert theta.shape == (3, 1, 1) and not last.any()
    np.testing.assert_allclose(theta.asnumpy().ravel(), [np.quantile(first, 0.9), 6.0, 6.0], rtol=1e-6)
    mean = snn(current(x, 50)).asnumpy()
    clipped = np.clip(x.asnumpy(), 0.0, theta.asnumpy())
    assert (np.abs(mean - clipped) <= 1.001 * theta.asnumpy() / 50).all()


def test_spiking_net_equals_qcfs_after_as_many_steps_as_levels():
    x = numbers(50, 3, dtype=snncell.float64) * 4.0 - 1.0
    ann = quantise.QCFS(6, np.array([1.5, 0.7, 2.0]), dtype=snncell.float64)
    snn = quantise.to_spiking(ann, x, percentile=1.0)  # its own limits are the thresholds
    np.testing.assert_allclose(snn(current(x, 6)).asnumpy(), ann(x).asnumpy(), atol=1e-12)


# --- networks ---------------------------------------------------------------------------------------------------------


def test_spiking_net_reaches_accuracy_of_ann_on_digits():
    (images, labels), (test_images, test_labels) = digits()
    snncell.set_seed(0)
    ann = Chain(nn.Flatten(), Dense(64, 32), nn.BatchNorm1d(32), ReLU(), nn.Dropout(p=0.1), Dense(32, 10))
    adam = nn.Adam(ann.trainable_params(), 1e-2)
    snncell.train.fit(ann, nn.CrossEntropyLoss(), adam, (images, labels), 5, progress=False)
    before = [p.asnumpy() for p in ann.get_parameters()]
    snn = quantise.to_spiking(ann.set_train(), images[:400])
    assert ann.training and not snn.training
    ann.set_train(False)
    x = Tensor(test_images)

    def accuracy(scores: Tensor) -> float:
        return float((scores.asnumpy().argmax(1) == test_labels).mean())

    spiking = [accuracy(snn(current(x, steps))) for steps in (1, 64)]
    assert accuracy(ann(x)) > 0.93
    assert spiking[0] < spiking[1] - 0.05 and abs(spiking[1] - accuracy(ann(x))) < 0.01
    for p in snn.get_parameters():
        p.set_data(p * 0.0)
    for p, old in zip(ann.get_parameters(), before, strict=True):
        np.testing.assert_array_equal(p.asnumpy(), old)


def test_residual_net_converges_to_ann_and_exports_to_nir():
    ann, x = residual(), numbers(4, 1, 8, 8)
    snn = quantise.to_spiking(ann, x, percentile=100.0)
    ann.set_train(False)
    errors = [np.abs(snn(current(x, steps)).asnumpy() - ann(x).asnumpy()).max() for steps in (8, 256)]
    assert errors[0] > 4.0 * errors[1] and errors[1] < 5e-4
    assert len(set(thresholds(snn))) == 3  # the ReLU that is called twice has two
    steps = current(x, 8)
    np.testing.assert_allclose(snncell.jit(snn)(steps).asnumpy(), snn(steps).asnumpy(), atol=1e-6)
    nir = pytest.importorskip("nir", reason="nir is not installed")
    graph = snncell.nir.to_nir(snn, 1e-3, (1, 8, 8), lossy=True)
    assert isinstance(graph, nir.NIRGraph) and any("starts at v_reset=" in text for text in snncell.nir.losses(graph))
    again = Chain(snncell.nir.from_nir(graph, 1e-3), nn.Readout("mean"), nn.Softmax())
    np.testing.assert_allclose(again(steps).asnumpy(), snn(steps).asnumpy(), atol=1e-6)
    snncell.nir.to_nir(again[0], 1e-3, (1, 8, 8))  # an imported network keeps its metadata, so nothing is lost


def test_folded_weights_equal_normalisation_in_prediction_mode():
    options = {"dtype": snncell.float64}
    ann = Chain(Dense(4, 5, **options), nn.BatchNorm1d(5, beta_init="normal", gamma_init=1.5, **options), ReLU())
    ann.set_train()(numbers(30, 4, dtype=snncell.float64))
    x = numbers(30, 4, seed=1, dtype=snncell.float64)
    snn = quantise.to_spiking(ann, x)
    np.testing.assert_allclose(snn[0](x).asnumpy(), ann.set_train(False)[:2](x).asnumpy(), rtol=1e-12)
    folded, steps = quantise.to_spiking(quantise.fold(ann), x), current(x, 8)
    np.testing.assert_allclose(folded(steps).asnumpy(), snn(steps).asnumpy(), rtol=1e-12)


def test_layer_that_is_called_twice_keeps_one_weight():
    dense, x = Dense(3, 3, "identity", 0.1), numbers(20, 3)
    snn = quantise.to_spiking(Chain(dense, ReLU(), dense, nn.ReLU6()), x * 50.0, percentile=100.0)
    assert [p.name for p in snn.trainable_params()] == ["0.weight", "0.bias"]
    assert snn[0] is snn[2] and snn[0] is not dense
    assert thresholds(quantise.to_spiking(nn.ReLU6(), x * 50.0)) == [6.0]
    unused = quantise.to_spiking(Own(lambda own, x: (own.softmax(x), own.relu(x))[1]), x)
    assert [type(cell) for cell in unused] == [nn.MultiStep, nn.Readout]


def test_checkpoint_restores_thresholds_and_initial_potentials(tmp_path):
    ann, x = Chain(Dense(3, 3, "identity"), ReLU()), numbers(20, 3)
    snn, other = (quantise.to_spiking(ann, samples) for samples in (x, 5.0 * x))
    snncell.save_checkpoint(snn, tmp_path / "snn.npz")
    assert thresholds(snn) != thresholds(other)
    snncell.load_checkpoint(tmp_path / "snn.npz", net=other)
    np.testing.assert_array_equal(snn(current(x, 3)).asnumpy(), other(current(x, 3)).asnumpy())


def test_spiking_net_exports_to_integers():
    ann, x = Chain(Dense(4, 6), quantise.QCFS(8, 2.0), Dense(6, 3)), numbers(8, 4)
    snn = quantise.to_spiking(ann, x)
    snn = Chain(*snn[:-1], nn.Readout("sum"))
    grids = quantise.Uniform(8, scale_bits=4), quantise.FixedPoint(12, 7), quantise.FixedPoint(8, 6)
    quantise.prepare(snn, *grids)
    steps = current(x, 8)
    whole = quantise.export(snn)
    np.testing.assert_array_equal(whole.run(steps.asnumpy()) * whole.step, snn(steps).asnumpy())
    np.testing.assert_allclose(snn(steps).asnumpy() / 8, ann(x).asnumpy(), atol=0.1)


# --- refusals ---------------------------------------------------------------------------------------------------------


class Own(nn.Cell):
    def __init__(self, function: Callable[[Any, Any], Any]) -> None:
        super().__init__()
        self.dense, self.norm, self.relu, self.softmax = Dense(3, 3), nn.BatchNorm1d(3), ReLU(), nn.Softmax()
        self.function = function

    def construct(self, x: Any) -> Any:
        return self.function(self, x)


def hooked() -> Any:
    net = Chain(Dense(3, 3), ReLU())
    net[0].register_forward_hook(lambda *_: None)
    return net


AVERAGE = r"2 \(MaxPool2d\) has no spiking form, because the maximum of spikes .*; train with nn.AvgPool2d instead"
FOLDED = r"BatchNorm1d\) has no spiking form, because it does not directly follow a Dense, Conv1d or Conv2d"
TWICE = r"dense \(Dense\) is used with the batch normalisation after it and without, or twice"
END = r"softmax \(Softmax\) has no spiking form, because it is not at the end"
REFUSED: dict[str, Callable[[], Any]] = {
    r"1\.1 \(GELU\) has no spiking form, .*; train with nn.ReLU or": lambda: Chain(ReLU(), Chain(ReLU(), nn.GELU())),
    r"1 \(LeakyReLU\) has no spiking form": lambda: Chain(Dense(3, 3), nn.LeakyReLU()),
    r"0 \(LayerNorm\) .*because it divides by .*batch normalisation": lambda: Chain(nn.LayerNorm((3,)), ReLU()),
    r"1 \(MultiStep\) .*because it has a time axis already": lambda: Chain(ReLU(), nn.MultiStep(nn.LIFNode())),
    r"0 \(TimeDistributed\) takes a time axis": lambda: Chain(nn.TimeDistributed(Dense(3, 3)), ReLU()),
    AVERAGE: lambda: Chain(nn.Unflatten(1, (1, 1, 3)), ReLU(), nn.MaxPool2d(1, stride=1)),
    f"1 .{FOLDED}": lambda: Chain(ReLU(), nn.BatchNorm1d(3)),
    f"norm .{FOLDED}": lambda: Own(lambda own, x: own.relu(own.norm(x))),
    TWICE: lambda: Own(lambda own, x: (lambda y: own.relu(own.norm(y) + y))(own.dense(x))),
    f"{TWICE}, so": lambda: Own(lambda own, x: own.relu(own.dense(own.norm(own.dense(x))))),
    f"{TWICE}, so the": lambda: Own(lambda own, x: own.relu(own.norm(own.dense(own.dense(x))))),
    END: lambda: Own(lambda own, x: own.relu(own.softmax(own.dense(x)))),
    f"{END}; only": lambda: Own(lambda own, x: own.softmax(own.relu(x)) + x),
    f"{END}; only there": lambda: Own(lambda own, x: (own.softmax(x), own.softmax(own.relu(x)))[1]),
    r"the net \(Own\): its construct does .*: arithmetic": lambda: Own(lambda own, x: own.relu(x) * 2.0),
    r"the net \(Own\): its construct does .*: concat of a signal. Instead, add": lambda: Own(
        lambda own, x: own.dense(ops.concat([own.relu(x), x], 1))
    ),
    r"the net \(Own\): its construct does .*: reshape of a signal.* nn.Flatten": lambda: Own(
        lambda own, x: own.relu(x.reshape((-1, 3)))
    ),
    r"the net \(Own\): its construct does .*: relu of a signal.* the layer nn.ReLU": lambda: Own(
        lambda own, x: own.dense(ops.relu(x))
    ),
    r"0 \(Dense\) has an activation. Make it a Cell of its own": lambda: Chain(Dense(3, 3, activation="relu")),
    "Dense calls no ReLU, ReLU6 or QCFS, so there is nothing to convert": lambda: Dense(3, 3),
    r"0 \(Dense\) has a forward hook": hooked,
    r"0 \(Dense\) is prepared for quantisation": lambda: quantise.prepare(Chain(Dense(3, 3)), quantise.Uniform(4)),
    r"1 \(ReLU\) returns 0 for all samples \(a dead layer\)": lambda: Chain(Dense(3, 3, "zeros", -1.0), ReLU()),
    r"1 \(ReLU\) returns inf for some of the samples": lambda: Chain(Dense(3, 3, 3e38, 3e38), ReLU()),
}


@pytest.mark.parametrize("words", REFUSED)
def test_network_without_spiking_form_is_refused(words):
    net = REFUSED[words]()
    with pytest.raises(ArgumentError, match=f"to_spiking: .*{words}"):
        quantise.to_spiking(net, numbers(6, 3))


def test_invalid_samples_and_options_are_refused():
    net = Chain(Dense(3, 3), ReLU())
    for samples, options, kind, words in (
        (
            np.zeros((4, 5)),
            {},
            ShapeError,
            r"the input has shape \(4, 5\); its last axis must have length in_channels = 3",
        ),
        (np.zeros((0, 3)), {}, ArgumentError, r"samples must have at least one element, but their shape is \(0, 3\)"),
        (numbers(6, 3), {"percentile": 0.0}, ArgumentError, r"percentile is a finite number in \(0, 100\], not 0"),
        (numbers(6, 3), {"initial": 1.5}, ArgumentError, r"initial is a finite number in \[0, 1\], not 1.5"),
    ):
        with pytest.raises(kind, match=words):
            quantise.to_spiking(net, samples, **options)
    with pytest.raises(
        ArgumentError, match=r"0 \(Dense\) returns \(4, 3, 3\), .* normalises axis 1, so it cannot be folded"
    ):
        quantise.to_spiking(Chain(Dense(3, 3), nn.BatchNorm1d(3), ReLU()), numbers(4, 3, 3))
    sparse = Tensor(np.eye(10, dtype=np.float32))
    with pytest.raises(
        ArgumentError, match=r"is positive for 10 % of its outputs, so percentile=80 of them is 0\. Pass"
    ):
        quantise.to_spiking(ReLU(), sparse, percentile=80.0)


# --- SpikingJelly -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.peer
def test_thresholds_and_outputs_equal_spikingjelly():
    recipe = pytest.importorskip("spikingjelly.activation_based.ann2snn.recipes.rate_coding", reason="no SpikingJelly")
    import torch
    from spikingjelly.activation_based.ann2snn import FXConverter

    torch.manual_seed(0)
    layers = (torch.nn.Conv2d(1, 4, 3, padding=1), torch.nn.BatchNorm2d(4), torch.nn.ReLU(), torch.nn.AvgPool2d(2))
    peer = torch.nn.Sequential(
        *layers, torch.nn.Flatten(), torch.nn.Linear(64, 12), torch.nn.ReLU(), torch.nn.Linear(12, 3)
    )
    x = numbers(32, 1, 8, 8)
    there = torch.tensor(x.asnumpy())
    peer.train()(there)
    peer.eval()
    norm = nn.BatchNorm2d(4)
    cells = (nn.Conv2d(1, 4, 3, has_bias=True), norm, ReLU(), nn.AvgPool2d(2, stride=2), nn.Flatten(), Dense(64, 12))
    ann = Chain(*cells, ReLU(), Dense(12, 3))
    statistics = ((norm.moving_mean, peer[1].running_mean), (norm.moving_variance, peer[1].running_var))
    pairs = zip(ann.trainable_params(), peer.parameters(), strict=True)
    for ours, theirs in (*pairs, *statistics):
        ours.set_data(Tensor(theirs.detach().numpy()))
    for mode, percentile, each in (("Max", 100.0, False), ("99%", 99.0, False), ("99%", 99.0, True)):
        settings = recipe.RateCodingRecipe([there], mode=mode, channel_wise=each)
        converted = FXConverter(settings).convert(copy.deepcopy(peer))
        snn = quantise.to_spiking(ann, x, percentile=percentile, initial=0.0, per_channel=each)
        scales = [m.scale.numpy() for name, m in converted.named_modules() if name.endswith("scaler1")]
        for theta, scale in zip(thresholds(snn), scales, strict=True):
            own = np.broadcast_to(np.ravel(ops.cast(theta, snncell.float32).asnumpy()), scale.ravel().shape)
            active = scale.ravel() > 1e-5  # SpikingJelly gives silent channels 1e-6
            np.testing.assert_allclose(own[active], scale.ravel()[active], rtol=1e-5)
        with torch.no_grad():
            expected = torch.stack([converted(there) for _ in range(12)]).numpy()
        np.testing.assert_allclose(snn[:-1](current(x, 12)).asnumpy(), expected, atol=1e-5)
