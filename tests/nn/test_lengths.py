"""Sequences of different lengths: padding, masks, and decoders, losses and runs that ignore the padding."""

import numpy as np
import pytest
from neuron_table import NEURONS

import snncell
from snncell import Tensor, data, encode, errors, nn, ops, testing, train

RNG = np.random.default_rng(0)
T, B, N = 7, 5, 3
LENGTHS = np.array([3, 7, 1, 5, 2])
DECODERS = {
    "spike_count": encode.spike_count,
    "firing_rate": encode.firing_rate,
    "firing_rate, in Hz": lambda x, **o: encode.firing_rate(x, 0.002, **o),
    "first_spike_time": lambda x, **o: encode.first_spike_time(x, 9.0, **o),
    "population_vector": lambda x, **o: encode.population_vector(x, [0.0, 0.5, 1.0], **o),
    "last_membrane": encode.last_membrane,
    "mean_membrane": encode.mean_membrane,
    "max_membrane": encode.max_membrane,
}
SPIKES = (RNG.random((T, B, 2, N)) < 0.4) * RNG.integers(1, 3, (T, B, 2, N)).astype(np.float64)


@pytest.mark.sampled(59)
@pytest.mark.parametrize("kind", [list, np.asarray, Tensor, lambda x: Tensor(x, "int16")])
@pytest.mark.parametrize("padding", [0.0, 5.0, -5.0, np.nan])
@pytest.mark.parametrize("name", DECODERS)
def test_decoders_of_padded_batches_equal_single_samples(name, padding, kind):
    x = np.where(np.arange(T)[:, None, None, None] < LENGTHS[:, None, None], SPIKES, padding)
    for decode in (DECODERS[name], snncell.jit(DECODERS[name])):
        found = decode(Tensor(x), lengths=Tensor(kind(LENGTHS)) if decode is not DECODERS[name] else kind(LENGTHS))
        for sample, length in enumerate(LENGTHS):
            alone = DECODERS[name](Tensor(SPIKES[:length, sample : sample + 1]))
            np.testing.assert_allclose(found[sample], alone[0], rtol=1e-12)


@pytest.mark.parametrize("name", DECODERS)
def test_padding_has_zero_gradient_and_samples_keep_theirs(name):
    x = Tensor(np.where(SPIKES > 0, SPIKES, RNG.normal(-1.0, 0.1, SPIKES.shape)))
    weights = Tensor(RNG.normal(size=DECODERS[name](x).shape))
    found = snncell.grad(lambda x: (DECODERS[name](x, lengths=LENGTHS) * weights).sum())(x).asnumpy()
    for sample, length in enumerate(LENGTHS):
        alone = snncell.grad(lambda x, n=sample: (DECODERS[name](x)[0] * weights[n]).sum())
        expected = alone(x[:length, sample : sample + 1])
        np.testing.assert_allclose(found[:length, sample], expected[:, 0], rtol=1e-10)
        assert not found[length:, sample].any()


@pytest.mark.parametrize("name", ["spike_count", "firing_rate", "last_membrane", "mean_membrane", "max_membrane"])
def test_decoders_with_lengths_are_differentiable(name):
    testing.check_grads(lambda x: DECODERS[name](x, lengths=LENGTHS), Tensor(RNG.normal(size=(T, B, N))), order=2)


# --- losses -----------------------------------------------------------------------------------------------------------

CLASSES = 4
LABELS = np.array([0, 3, 1, 2, 0])
LOSSES = {
    "CERateLoss": (nn.CERateLoss, {"label_smoothing": 0.1}),
    "CERateLoss, several neurons": (nn.CERateLoss, {"num_classes": 2}),
    "CECountLoss": (nn.CECountLoss, {}),
    "CEMaxMembraneLoss": (nn.CEMaxMembraneLoss, {}),
    "TETLoss": (nn.TETLoss, {"mse_weight": 0.3, "mse_target": 0.7}),
    "MSECountLoss": (nn.MSECountLoss, {"correct_rate": 0.7, "incorrect_rate": 0.3}),
    "MSECountLoss, several neurons": (nn.MSECountLoss, {"correct_rate": 0.29, "num_classes": 2}),
    "MSERateLoss": (nn.MSERateLoss, {"correct_rate": 0.7, "num_classes": 2}),
    "MSEMembraneLoss": (nn.MSEMembraneLoss, {}),
    "CETemporalLoss": (nn.CETemporalLoss, {}),
    "CETemporalLoss, reciprocal": (nn.CETemporalLoss, {"inverse": "reciprocal"}),
    "MSETemporalLoss": (nn.MSETemporalLoss, {}),
    "MSETemporalLoss, of three spikes": (
        nn.MSETemporalLoss,
        {"on_target": [0, 1, -1], "off_target": [-3, -2, -1], "tolerance": 0.5},
    ),
    "VanRossumLoss": (nn.VanRossumLoss, {"tau": 2.0}),
}
OUTPUTS = (RNG.random((T, B, CLASSES)) < 0.35).astype(np.float64)
TRAINS = (RNG.random((T, B, CLASSES)) < 0.35).astype(np.float64)


def loss_and_target(name):
    kind, options = LOSSES[name]
    target = TRAINS if kind is nn.VanRossumLoss else LABELS % options.get("num_classes", CLASSES)
    return kind(reduction="none", **options), target


def one(target, sample, length):
    return target[:length, sample : sample + 1] if target.ndim > 1 else target[sample : sample + 1]


@pytest.mark.parametrize("padding", [0.0, 1.0, -5.0, np.nan])
@pytest.mark.parametrize("name", LOSSES)
def test_losses_of_padded_batches_equal_single_samples(name, padding):
    loss, target = loss_and_target(name)
    there = np.arange(T)[:, None, None] < LENGTHS[:, None]
    x = Tensor(np.where(there, OUTPUTS, padding))
    y = np.where(there, target, padding) if target.ndim > 1 else target
    found = loss(x, Tensor(y), lengths=LENGTHS)
    axis = 1 if found.ndim == 3 else 0
    weights = RNG.normal(size=found.shape)
    gradient = snncell.grad(lambda x: (loss(x, Tensor(y), lengths=LENGTHS) * Tensor(weights)).sum())(x).asnumpy()
    for sample, length in enumerate(LENGTHS):
        alone, own = Tensor(OUTPUTS[:length, sample : sample + 1]), Tensor(one(target, sample, length))
        expected = loss(alone, own).asnumpy()
        np.testing.assert_allclose(np.take(found.asnumpy(), [sample], axis), expected, rtol=1e-10)
        weighing = Tensor(np.take(weights, [sample], axis))
        mine = snncell.grad(lambda x, own=own, w=weighing: (loss(x, own) * w).sum())(alone).asnumpy()
        np.testing.assert_allclose(gradient[:length, sample], mine[:, 0], rtol=1e-9, atol=1e-12)
        assert not gradient[length:, sample].any()


@pytest.mark.sampled(3)
@pytest.mark.compiled
@pytest.mark.parametrize("name", LOSSES)
def test_compiled_losses_accept_lengths_as_an_argument(name):
    loss, target = loss_and_target(name)
    eager = loss(Tensor(OUTPUTS), Tensor(target), lengths=LENGTHS)
    found = snncell.jit(lambda x, y, lengths: loss(x, y, lengths))(Tensor(OUTPUTS), Tensor(target), Tensor(LENGTHS))
    np.testing.assert_allclose(found.asnumpy(), eager.asnumpy(), rtol=1e-12)


@pytest.mark.parametrize("name", LOSSES)
def test_full_lengths_change_nothing_and_invalid_lengths_raise(name):
    loss, target = loss_and_target(name)
    plain = loss(Tensor(OUTPUTS), Tensor(target)).asnumpy()
    found = loss(Tensor(OUTPUTS), Tensor(target), lengths=np.full(B, T)).asnumpy()
    np.testing.assert_allclose(found, plain, rtol=1e-12)
    with pytest.raises(
        errors.ShapeError, match=r"lengths must have one number of steps per sample.* needs \(5,\), not"
    ):
        loss(Tensor(OUTPUTS), Tensor(target), lengths=[1, 2])
    with pytest.raises(errors.DTypeError, match="lengths are integers"):
        loss(Tensor(OUTPUTS), Tensor(target), lengths=[1.0] * B)


@pytest.mark.parametrize("name", LOSSES)
def test_empty_sample_does_not_give_nan(name):
    loss, target = loss_and_target(name)
    found = loss(Tensor(OUTPUTS), Tensor(target), lengths=np.zeros(B, int)).asnumpy()
    assert np.isfinite(found).all()


def test_membrane_losses_ignore_the_values_of_padding():
    loss, lengths = nn.MSEMembraneLoss(reduction="none"), np.full(B, 2)
    target = np.where(np.arange(T)[:, None, None] < 2, TRAINS, np.nan)
    found = loss(Tensor(OUTPUTS), Tensor(target), lengths=lengths).asnumpy()
    np.testing.assert_allclose(found, loss(Tensor(OUTPUTS[:2]), Tensor(TRAINS[:2])).asnumpy(), rtol=1e-12)


# --- length 0 ---------------------------------------------------------------------------------------------------------


def test_length_zero_gives_the_result_of_an_empty_sequence():
    ended = np.zeros(B, int)
    for name in ("spike_count", "firing_rate", "last_membrane", "mean_membrane"):
        assert not DECODERS[name](SPIKES, lengths=ended).asnumpy().any()
    assert (encode.max_membrane(SPIKES, lengths=ended) == -np.inf).all()


@pytest.mark.parametrize("name", DECODERS)
@pytest.mark.parametrize(
    ("lengths", "error", "message"),
    [
        (LENGTHS[:4], errors.ShapeError, r"one number of steps per sample; .* needs \(5,\), not \(4,\)"),
        (3, errors.ShapeError, r"needs \(5,\), not \(\)"),
        (LENGTHS.astype(float), errors.DTypeError, "lengths are integers, not Float64"),
    ],
)
def test_lengths_of_the_wrong_shape_or_dtype_raise(name, lengths, error, message):
    with pytest.raises(error, match=message):
        DECODERS[name](SPIKES, lengths=lengths)


@pytest.mark.parametrize("kind", [list, np.asarray, Tensor, lambda x: Tensor(x, "int16")])
@pytest.mark.parametrize(("wrong", "more"), [({1: -1}, ""), ({3: T + 1}, ""), ({1: -5, 4: 99}, ", and 1 more")])
@pytest.mark.parametrize("name", [*DECODERS, *LOSSES])
def test_lengths_out_of_range_raise(name, wrong, more, kind):
    lengths = [wrong.get(sample, int(length)) for sample, length in enumerate(LENGTHS)]
    first, value = next(iter(wrong.items()))
    words = rf"{name.split(',')[0]}.*lengths must .* from 0 to T=7, not {value} \(sample {first}{more}\).*np\.minimum"
    if name in DECODERS:
        given, inputs = DECODERS[name], (SPIKES,)
    else:
        given, target = loss_and_target(name)
        inputs = Tensor(OUTPUTS), Tensor(target)
    with pytest.raises(errors.ArgumentError, match=words):
        given(*inputs, lengths=kind(lengths))


def test_lengths_are_checked_in_gradients_and_as_jit_constants():
    lengths = [1, 2, 3, 4, T + 1]
    for given in (lengths, Tensor(lengths)):
        with pytest.raises(errors.ArgumentError, match=r"not 8 \(sample 4"):
            snncell.grad(lambda x, given=given: encode.firing_rate(x, lengths=given).sum())(Tensor(SPIKES))
        with pytest.raises(errors.ArgumentError, match=r"not 8 \(sample 4"):
            snncell.jit(lambda x, given=given: encode.firing_rate(x, lengths=given))(Tensor(SPIKES))


@pytest.mark.parametrize("dtype", ["int8", "int64", "uint8"])
@pytest.mark.parametrize("shape", [(), (4,), (2, 3)])
def test_mask_is_true_within_the_length(shape, dtype):
    lengths = RNG.integers(0, 9, shape).astype(dtype)
    expected = np.arange(6) < lengths[..., None]
    for axis in range(-len(shape) - 1, len(shape) + 1):
        mask = ops.sequence_mask(Tensor(lengths), 6, axis)
        assert mask.dtype.name == "bool"
        np.testing.assert_array_equal(mask, np.moveaxis(expected, -1, axis))
    assert ops.sequence_mask(Tensor(lengths), 0).shape == (*shape, 0)


def test_mask_of_invalid_lengths_raises():
    with pytest.raises(errors.DTypeError, match="lengths are integers, not Float32"):
        ops.sequence_mask([1.5], 3)
    for wrong in (2.0, -1, None):
        with pytest.raises(errors.ArgumentError, match=r"sequence_mask: maxlen (is|must be) "):
            ops.sequence_mask([1], wrong)


# --- padding ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float64", "uint8"])
@pytest.mark.parametrize("steps", [None, 4, 9])
def test_padding_keeps_sequences_and_fills_the_rest(steps, dtype):
    given = [RNG.integers(0, 9, (length, 2)).astype(dtype) for length in LENGTHS]
    x, lengths = data.padded(given, steps, 7)
    assert x.shape == (steps or 7, B, 2) and x.dtype == dtype and lengths.dtype == np.int64
    np.testing.assert_array_equal(lengths, np.minimum(LENGTHS, steps or 7))
    for n, (sequence, length) in enumerate(zip(given, lengths, strict=True)):
        np.testing.assert_array_equal(x[:length, n], sequence[:length])
        assert (x[length:, n] == 7).all()


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: data.padded([]), errors.ArgumentError, "needs at least one sequence"),
        (lambda: data.padded([[1.0]], 0), errors.ArgumentError, "steps is an integer of at least 1, not 0"),
        (lambda: data.padded([[[1.0]], [[1.0, 2.0]]]), errors.ShapeError, r"length, not \(1, 1\), \(1, 2\)"),
        (lambda: data.padded([1.0, 2.0]), errors.ShapeError, r"sequences must be \(T_n, \.\.\.\) .* not \(\)"),
    ],
)
def test_invalid_sequences_raise_in_padding(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_time_first_batches_accept_lengths_per_sample():
    x, lengths = data.padded([np.full((length, 2), length) for length in LENGTHS])
    seen = []
    for values, steps, target in train.Batches(x, lengths, np.arange(B), batch_size=2, time_first=True):
        assert values.shape == (T, len(target), 2)
        np.testing.assert_array_equal((values.asnumpy()[:, :, 0] > 0).sum(0), steps)
        np.testing.assert_array_equal(steps, LENGTHS[target.asnumpy()])
        seen += target.tolist()
    assert sorted(seen) == list(range(B))


# --- regularisers and the accuracy ------------------------------------------------------------------------------------

REGULARISERS = [
    nn.L1RateSparsity(0.5),
    nn.SilenceRegulariser(2.0),
    nn.SparsityRegulariser(1.0),
    nn.TargetRateRegulariser(0.2),
    nn.CountBoundRegulariser(1.5, 1.0, 0.5),
]


@pytest.mark.sampled(12)
@pytest.mark.parametrize("padding", [0.0, 5.0, np.nan])
@pytest.mark.parametrize("number", range(len(REGULARISERS)))
def test_padding_does_not_change_regularisers(number, padding):
    regulariser = REGULARISERS[number]
    there = np.arange(T)[:, None, None, None] < LENGTHS[:, None, None]
    spikes = Tensor(np.where(there, SPIKES, padding))
    longer = ops.concat([spikes, ops.full((9, *SPIKES.shape[1:]), padding, "float64")])
    for compiled in (lambda f: f, snncell.jit):
        both = compiled(lambda x, lengths: ops.value_and_grad(lambda x: regulariser(x, lengths), 0)(x))
        value, gradient = both(spikes, Tensor(LENGTHS))
        again, more = both(longer, Tensor(LENGTHS))
        assert value == again and (more[:T] == gradient).all() and not more.asnumpy()[T:].any()
    if number != 3:  # regularisers of spike counts treat the padding as silent steps
        silent = regulariser(Tensor(np.where(there, SPIKES, 0.0)))
        np.testing.assert_allclose(value.asnumpy(), silent.asnumpy(), rtol=1e-12)
    else:
        rate = np.where(there, SPIKES, 0.0).sum((0, 1)) / LENGTHS.sum()
        np.testing.assert_allclose(value.asnumpy(), ((rate - 0.2) ** 2).sum(), rtol=1e-12)
    whole = regulariser(Tensor(SPIKES), np.full(B, T)).asnumpy()
    np.testing.assert_allclose(whole, regulariser(Tensor(SPIKES)).asnumpy(), rtol=1e-12)
    with pytest.raises(errors.ArgumentError, match=rf"{type(regulariser).__name__}.*from 0 to T=7, not 8"):
        regulariser(Tensor(SPIKES), [1, 2, 3, 4, 8])


@pytest.mark.parametrize("padding", [0.0, 50.0, np.nan])
def test_accuracy_of_padded_batches_equals_single_samples(padding):
    there = np.arange(T)[:, None, None] < LENGTHS[:, None]
    x = Tensor(np.where(there, OUTPUTS, padding))
    alone = [
        train.accuracy(Tensor(OUTPUTS[:n, b : b + 1]), Tensor(LABELS[b : b + 1])).item() for b, n in enumerate(LENGTHS)
    ]
    for call in (train.accuracy, snncell.jit(train.accuracy)):
        assert call(x, Tensor(LABELS), lengths=Tensor(LENGTHS)).item() == np.float32(np.mean(alone))
    hot = np.eye(CLASSES)[LABELS]
    assert train.accuracy(x, Tensor(hot), lengths=LENGTHS).item() == pytest.approx(np.mean(alone))
    with pytest.raises(errors.ShapeError, match=r"lengths need outputs over time \(T, B, C\)"):
        train.accuracy(x[0], Tensor(LABELS), lengths=LENGTHS)


# --- MultiStep --------------------------------------------------------------------------------------------------------


@pytest.mark.sampled(2)
@pytest.mark.parametrize("padding", [0.0, np.nan])
@pytest.mark.parametrize("name", [*NEURONS, "recurrent"])
def test_multi_step_with_lengths_equals_single_samples_bitwise(name, padding):
    snncell.set_seed(0)
    cell = (
        nn.Recurrent(nn.LIFNode(tau=2.0), nn.Dense(N, N))
        if name == "recurrent"
        else NEURONS[name].make(NEURONS[name].resets[0])
    )
    low, high = (-0.5, 2.0) if name == "recurrent" else NEURONS[name].inputs
    x = RNG.uniform(low, high, (T, B, N)).astype(np.float32)
    padded = np.where(np.arange(T)[:, None, None] < LENGTHS[:, None], x, padding).astype(np.float32)
    longer = np.concatenate([padded, np.full((5, B, N), padding, np.float32)])
    run = nn.MultiStep(cell, return_states=True)
    alone = [run(Tensor(x[:length, b : b + 1])) for b, length in enumerate(LENGTHS)]
    for call in (lambda x, n: run(x, lengths=n), snncell.jit(lambda x, n: run(x, lengths=n))):
        for given in (padded, longer):
            out, states = call(Tensor(given), Tensor(LENGTHS))
            for b, (length, (own, last)) in enumerate(zip(LENGTHS, alone, strict=True)):
                np.testing.assert_array_equal(out[:length, b : b + 1], own)
                assert not out.asnumpy()[length:, b].any()
                for state, one in zip(states, last, strict=True):
                    np.testing.assert_array_equal(state[b : b + 1], one)


def test_multi_step_gradients_with_lengths_equal_single_samples():
    run, weights = nn.MultiStep(nn.LIFNode(tau=2.0), return_states=True), Tensor(RNG.normal(size=(T, B, N)))
    x = np.where(np.arange(T)[:, None, None] < LENGTHS[:, None], RNG.uniform(0, 2, (T, B, N)), np.nan)

    def total(x, weights, lengths=None):
        out, (v,) = run(x, lengths=lengths)
        return (out * weights).sum() + (v * v).sum()

    found = snncell.grad(lambda x: total(x, weights, LENGTHS))(Tensor(x)).asnumpy()
    for b, length in enumerate(LENGTHS):
        own = weights[:length, b : b + 1]
        alone = snncell.grad(lambda x, own=own: total(x, own))(Tensor(x[:length, b : b + 1]))
        np.testing.assert_allclose(found[:length, b : b + 1], alone, rtol=1e-12, atol=1e-15)
        assert not found[length:, b].any()
    with pytest.raises(errors.ArgumentError, match=r"MultiStep: lengths must .* from 0 to T=7, not 8"):
        run(Tensor(x), lengths=[1, 2, 3, 4, 8])
