"""Sequence lengths: padding changes no bit of training, evaluation, and the counts of a monitor."""

import numpy as np
import pytest

import snncell
from snncell import Tensor, data, errors, nn, train

RNG = np.random.default_rng(0)
RECORDINGS = [(RNG.random((RNG.integers(3, 10), 3)).astype(np.float32) * (0.5 + n % 2), n % 2) for n in range(12)]
PADDED = ([9], [10], [25])


class Net(nn.Cell):
    """A spiking net over time, for sequences with lengths."""

    def __init__(self, keep_states=True, pool=1):
        super().__init__()
        snncell.set_seed(0)
        self.dense, self.norm = nn.Dense(3, 8), nn.ThresholdBatchNorm(8)
        self.hidden = nn.MultiStep(nn.LIFNode(tau=2.0, v_threshold=0.3))
        self.readout, self.out = nn.Dense(8, 2), nn.MultiStep(nn.LIFNode(tau=2.0, v_threshold=0.02))
        self.keep_states, self.pool = keep_states, pool

    def construct(self, x, lengths):
        x = self.norm(self.dense(x), lengths)
        x = self.hidden(x, lengths=lengths) if self.keep_states else self.hidden(x)
        return self.out(self.readout(x))[:: self.pool]


def loader(buckets):
    return data.Loader(RECORDINGS, 5, buckets=buckets, seed=1)


def of_time_first(output, y, lengths):
    """A custom loss."""
    return nn.MSECountLoss(correct_rate=0.6)(output, y, lengths=lengths)


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize("keep_states", [True, False])
@pytest.mark.parametrize("loss", [nn.CERateLoss(), nn.MSEMembraneLoss(), of_time_first])
def test_padding_changes_no_bit_of_training_and_evaluation(loss, keep_states):
    found = []
    for buckets in PADDED:
        net = Net(keep_states)
        adam = nn.Adam(net.trainable_params(), 0.02)
        options = {"firing_rate": [net.hidden, net.out], "progress": False}
        history = train.fit(net, loss, adam, loader(buckets), 2, validation=loader(buckets), **options).history
        del options["progress"]
        history.append(train.evaluate(net, loss, loader(buckets), **options))
        found.append((history, [p.asnumpy() for p in net.get_parameters()]))
    for history, parameters in found[1:]:
        assert history == found[0][0]
        for one, other in zip(parameters, found[0][1], strict=True):
            np.testing.assert_array_equal(one, other)


def test_metrics_of_padded_batch_equal_metrics_of_samples():
    net = Net().set_train(False)
    x, lengths = data.padded([x for x, _ in RECORDINGS], 12)
    y = np.array([y for _, y in RECORDINGS])
    found = train.evaluate(net, nn.CERateLoss(), [(x, lengths, y)], firing_rate=net.hidden)
    alone = [
        train.evaluate(
            net, nn.CERateLoss(), [(x[:n, b : b + 1], lengths[b : b + 1], y[b : b + 1])], firing_rate=net.hidden
        )
        for b, n in enumerate(lengths)
    ]
    assert found["loss"] == pytest.approx(np.mean([each["loss"] for each in alone]))
    assert found["accuracy"] == pytest.approx(np.mean([each["accuracy"] for each in alone]))
    rates = [each["firing_rate"] for each in alone]
    assert found["firing_rate"] == pytest.approx(np.average(rates, weights=lengths))


def test_loss_without_lengths_and_decoded_accuracy_receive_no_lengths():
    class Decoding(Net):
        def construct(self, x, lengths):
            return snncell.encode.firing_rate(super().construct(x, lengths), lengths=lengths)

    for buckets in PADDED:
        found = train.evaluate(Decoding(), nn.CrossEntropyLoss(), loader(buckets))
        assert sorted(found) == ["accuracy", "loss"]


def test_output_with_another_number_of_steps_raises():
    with pytest.raises(
        errors.ShapeError, match=r"input has 9 or 5 steps, but its output, of shape \(3, 5, 2\), has not"
    ):
        train.evaluate(Net(pool=3), nn.CERateLoss(), loader([9]), accuracy=None)


@pytest.mark.parametrize("padding", [0.0, 2.0])
def test_firing_rate_counts_only_valid_steps(padding):
    x, lengths = data.padded([x for x, _ in RECORDINGS], 12, padding)
    layer = nn.MultiStep(nn.LIFNode(tau=2.0, v_threshold=0.3))
    with train.Spikes(layer) as spikes:
        out = layer(Tensor(x)).asnumpy()
        there = np.arange(12)[:, None] < lengths
        assert spikes.rate(lengths).item() == np.float32(out[there].mean())
        layer(Tensor(x))
        with pytest.raises(errors.ArgumentError, match="from 0 to T=12, not 13"):
            spikes.rate([13] * 12)


# --- monitors ---------------------------------------------------------------------------------------------------------


@pytest.mark.sampled(8)
@pytest.mark.parametrize("options", [{}, {"every": 2}, {"samples": 3}, {"neurons": 2}, {"calls": None}])
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("keep_states", [True, False])
def test_monitor_counts_only_valid_steps(keep_states, compiled, options):
    net = Net(keep_states).set_train(False)
    call = snncell.jit(lambda x, lengths: net(x, lengths)) if compiled else net
    found = []
    for steps, padding in ((9, 0.0), (9, 3.0), (20, 3.0)):
        x, lengths = data.padded([x for x, _ in RECORDINGS], steps, padding)
        with snncell.monitor(net, **options) as m:
            for _ in range(2):
                call(Tensor(x), Tensor(lengths))
        found.append([m.rates(name) for name in m.layers] + [m.spikes[name].sum((0, 1)) for name in m.layers])
        assert all(m.spikes[name].any() for name in m.layers)
    for other in found[1:]:
        for one, expected in zip(other, found[0], strict=True):
            np.testing.assert_array_equal(one, expected)


def test_monitor_rates_of_padded_batch_equal_rates_of_samples():
    net = Net().set_train(False)
    x, lengths = data.padded([x for x, _ in RECORDINGS], 12)
    with snncell.monitor(net) as m:
        net(Tensor(x), Tensor(lengths))
    count = 0.0
    for b, n in enumerate(lengths):
        with snncell.monitor(net) as alone:
            net(Tensor(x[:n, b : b + 1]), Tensor(lengths[b : b + 1]))
        np.testing.assert_array_equal(m.spikes["hidden"][:n, b], alone.spikes["hidden"][:, 0])
        count = count + alone.spikes["hidden"].sum((0, 1))
    np.testing.assert_allclose(m.rates("hidden"), count / lengths.sum())


def test_innermost_cell_with_lengths_determines_valid_steps():
    net = nn.SequentialCell(nn.MultiStep(nn.IFNode()))
    with snncell.monitor(net) as m:
        net(Tensor(np.full((4, 2, 3), 2.0)))
    assert m.rates("0").tolist() == [1.0] * 3  # without lengths, all steps

    class Two(nn.Cell):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.MultiStep(nn.IFNode()), nn.MultiStep(nn.IFNode())

        def construct(self, x, lengths):
            return self.a(x, lengths=lengths - 1) + self.b(x)

    two = Two()
    with snncell.monitor(two) as m:
        two(Tensor(np.full((4, 2, 3), 2.0)), Tensor([2, 3]))
    assert m.spikes["a"].sum((0, 2)).tolist() == [3, 6] and m.spikes["b"].sum((0, 2)).tolist() == [6, 9]
    assert m.rates("a").tolist() == m.rates("b").tolist() == [1.0] * 3
