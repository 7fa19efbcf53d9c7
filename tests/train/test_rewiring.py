"""DEEP R and RigL: the number of synapses, moved weights and moments, signs, gradients at all places, and resuming."""

from __future__ import annotations

import numpy as np
import pytest

import snncell
from snncell import Tensor, nn, ops, train
from snncell.errors import ArgumentError
from snncell.ops.random import present_key
from snncell.train import rewiring

LOSS = nn.MSELoss()


def net_of(seed=0, dtype="float32"):
    """A net with a sparse layer, and random numbers and statistics that rewiring must not touch."""
    snncell.set_seed(seed)
    layer, neurons = nn.SparseDense(12, 8, density=0.25, dtype=dtype), nn.MultiStep(nn.LIFNode(tau=2.0))
    return nn.SequentialCell(layer, neurons, nn.Dropout(p=0.2), nn.Readout("sum"), nn.BatchNorm1d(8), nn.Dense(8, 4))


def data_of(count=32):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(6, count, 12)).astype(np.float32)
    return train.Batches(x, x[:, :, :4].sum(0), batch_size=8, time_first=True)


def fit(net, optimiser, epochs=3, **options):
    return train.fit(net, LOSS, optimiser, data_of(), epochs, accuracy=None, progress=False, **options)


class Follow(train.Callback):
    """Compare weights and moments before and after each rewiring."""

    order = 9

    def __init__(self, inner):
        self.inner, self.moved = inner, 0

    def on_fit_begin(self, training):
        self.inner.on_fit_begin(training)

    def on_step_end(self, training):
        layer = training.net[0]
        own = [layer.weight, *training.optimiser.moments_of(layer.weight)]
        before = dict(zip(layer.places().tolist(), zip(*(p.tolist() for p in own), strict=True), strict=True))
        self.inner.on_step_end(training)
        places, after = layer.places().tolist(), [p.tolist() for p in own]
        assert len(own) == 3 and places == sorted(set(places)) and len(places) == len(before)
        for place, (weight, *moments) in zip(places, zip(*after, strict=True), strict=True):
            if place in before and moments == list(before[place][1:]):
                assert abs(weight - before[place][0]) < 0.1
            else:
                assert weight == 0.0 and moments == [0.0, 0.0]
                self.moved += 1


@pytest.mark.parametrize("make", [lambda: train.DeepR(l1=0.05, temperature=1e-4), lambda: train.RigL(2)])
def test_rewiring_keeps_the_count_and_moves_weights_and_moments(make):
    net, follow = net_of(), Follow(make())
    fit(net, nn.Adam(net.trainable_params(), 0.01), callbacks=[follow])
    assert follow.moved > 2


@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_synapses_of_deep_r_keep_their_signs(dtype):
    net, deep = net_of(dtype=dtype), train.DeepR(l1=0.2)
    layer = net[0]
    adam = nn.Adam(net.trainable_params(), 0.02)
    before = dict(zip(layer.places().tolist(), np.signbit(layer.weight.asnumpy()).tolist(), strict=True))
    fit(net, adam, 1, callbacks=[deep])
    after = dict(zip(layer.places().tolist(), np.signbit(layer.weight.asnumpy()).tolist(), strict=True))
    # A place that lost its synapse may have got a new one of the other sign, but only a few have.
    same = [before[place] == after[place] for place in before.keys() & after.keys()]
    assert 6 < len(same) < 24 and np.mean(same) > 0.8
    assert not any((layer.weight.asnumpy() < 0) != np.signbit(layer.weight.asnumpy()) * (layer.weight.asnumpy() != 0))


def test_rigl_grows_the_largest_gradients_without_side_effects(monkeypatch):
    monkeypatch.setattr(rewiring, "_BLOCK", 20)  # several blocks
    net, found = net_of(), {}
    layer, steepest = net[0], rewiring._steepest

    class Check(train.RigL):
        def on_step_end(self, training):
            state = [p.asnumpy() for p in net.get_parameters() if p.name.startswith("4.")]
            key = present_key().asnumpy()
            super().on_step_end(training)
            after = [p.asnumpy() for p in net.get_parameters() if p.name.startswith("4.")]
            for one, other in zip([*state, key], [*after, present_key().asnumpy()], strict=True):
                np.testing.assert_array_equal(one, other)

    def compare(pairs, taken, count):
        grown = steepest(pairs, taken, count)
        dense = np.abs(sum(x.T @ y for x, y in pairs)).reshape(-1)
        dense[taken] = -1.0
        assert set(grown) == set(np.argsort(-dense)[:count]) and len(taken) + count == 24
        found.setdefault("gradient", dense)
        return grown

    monkeypatch.setattr(rewiring, "_steepest", compare)
    fit(net, nn.Adam(net.trainable_params(), 0.01), 2, callbacks=[Check(3, fraction=0.5)])
    assert found["gradient"].max() > 0 and layer.weight.shape == (24,)


def test_gradients_at_all_places_are_those_of_a_dense_layer():
    snncell.set_seed(0)
    layer = nn.SparseDense(5, 4, density=0.3, dtype="float64")
    x, y = ops.normal((6, 5), dtype=snncell.float64), ops.normal((6, 4), dtype=snncell.float64)
    optimiser = nn.SGD(layer.trainable_params(), 0.1)
    training = train.Training(layer, LOSS, optimiser, None, None, 1, present=(x, y))
    ((own, slope),) = rewiring._operands(training, [layer])[0]
    w, b = Tensor(layer.to_scipy().toarray()), layer.bias.value()
    dense = snncell.grad(lambda w: LOSS(ops.matmul(x, w.T) + b, y))(w)
    np.testing.assert_allclose((own.T @ slope).T, dense.asnumpy(), rtol=1e-12)


def test_deep_r_does_not_hide_a_nan():
    layer, deep = nn.SparseDense(5, 4, density=0.5), train.DeepR()
    layer.weight.set_data(layer.weight.value().where(ops.arange(10) > 0, float("nan")))
    sgd = nn.SGD(layer.trainable_params(), 0.1)
    deep._walk(train.Training(layer, LOSS, sgd, None, None, 1), layer, np.signbit(layer.weight.asnumpy()))
    assert np.isnan(layer.weight.asnumpy()).sum() == 1


class Stop(train.Callback):
    """End the training after an epoch."""

    def __init__(self, last):
        self.last = last

    def on_epoch_end(self, training):
        if training.epoch == self.last:
            training.stop()


@pytest.mark.parametrize("make", [lambda: train.DeepR(l1=0.05, temperature=1e-4), lambda: train.RigL(2)])
def test_resumed_training_has_the_same_bits(make, tmp_path):
    results = []
    for parts in ([9], [2, 9]):
        for n, last in enumerate(parts):
            net, file = net_of(), tmp_path / f"{len(parts)}.ckpt"
            adam = nn.Adam(net.trainable_params(), 0.01)
            fit(net, adam, 4, callbacks=[make(), Stop(last)], checkpoint=file, resume=bool(n))
        results.append([p.asnumpy() for p in net.get_parameters()])
    for one, other in zip(*results, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("make", [train.DeepR, train.RigL])
def test_nets_without_trained_sparse_layers_are_refused(make):
    net = nn.SequentialCell(nn.Readout("sum"), nn.Dense(12, 4))
    with pytest.raises(ArgumentError, match=rf"{make.__name__}: the net has no nn.SparseDense .* density=0.1"):
        fit(net, nn.SGD(net.trainable_params(), 0.1), callbacks=[make()])
