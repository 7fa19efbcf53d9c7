"""Encoders and decoders: golden values, NumPy loops, expected rates, snnTorch and SpikingJelly."""

import math
import warnings

import naive
import numpy as np
import pytest

import snncell
from snncell import Tensor, encode, ops, testing
from snncell.errors import ArgumentError, ArgumentTypeError, ShapeError

GOLDEN = np.array([0.0, 0.005, 0.1, 0.5, 1.0], np.float32)
X = np.random.default_rng(0).uniform(0, 1, (3, 4)).astype(np.float32)


def fired_at(spikes):
    """(T, N) -> the step of each neuron's only spike; None if it does not fire."""
    values = spikes.asnumpy()
    assert set(values.ravel().tolist()) <= {0.0, 1.0}
    assert (values.sum(0) <= 1).all()
    return [int(column.argmax()) if column.any() else None for column in values.T]


# name -> (function, kind of input: values in [0, 1], any values, a sequence, or spikes)
CALLS = {
    "rate": (lambda x: encode.rate(x, 5), "unit"),
    "latency": (lambda x: encode.latency(x, 5, linear=True, normalize=True), "unit"),
    "phase": (lambda x: encode.phase(x, 5), "unit"),
    "population": (lambda x: encode.population(x, 3, 5), "unit"),
    "current": (lambda x: encode.current(x, 5), "any"),
    "lif": (lambda x: encode.lif(x * 8.0, 5, tau=3.0), "any"),
    "delta": (lambda x: encode.delta(x, 0.2, off_spike=True), "sequence"),
    "spike_count": (encode.spike_count, "spikes"),
    "firing_rate": (encode.firing_rate, "spikes"),
    "first_spike_time": (encode.first_spike_time, "spikes"),
    "population_vector": (lambda s: encode.population_vector(s, encode.field_centres(4)), "spikes"),
    "last_membrane": (encode.last_membrane, "spikes"),
    "mean_membrane": (encode.mean_membrane, "spikes"),
    "max_membrane": (encode.max_membrane, "spikes"),
}


def test_every_public_name_is_in_the_table():
    assert set(encode.__all__) == CALLS.keys() | {"field_centres"}
    here = {n for n, v in vars(encode).items() if n[0] != "_" and getattr(v, "__module__", "") == encode.__name__}
    assert here == set(encode.__all__)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", CALLS)
def test_time_is_the_first_axis_and_the_dtype_is_kept(name, dtype):
    call, takes = CALLS[name]
    found = call(Tensor(X, dtype))
    expected = {"unit": (5, 3, 4), "any": (5, 3, 4), "sequence": (3, 4), "spikes": (4,)}[takes]
    expected = {"population": (5, 3, 4, 3), "population_vector": ()}.get(name, expected)
    assert found.shape == expected
    assert found.dtype.name.lower() == dtype


@pytest.mark.compiled
@pytest.mark.parametrize("name", CALLS)
def test_jitted_equals_eager(name):
    call, _ = CALLS[name]
    snncell.set_seed(5)
    eager = call(Tensor(X)).asnumpy()
    snncell.set_seed(5)
    np.testing.assert_allclose(snncell.jit(call)(Tensor(X)).asnumpy(), eager, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("values", [[0.2, -0.5, 1.0], [0.0, 1.5], [3, 255], [0.5, float("nan")]], ids=str)
@pytest.mark.parametrize("name", [name for name, (_, takes) in CALLS.items() if takes == "unit"])
def test_values_outside_of_the_unit_interval_raise(name, values):
    least, most = np.min(values), np.max(values)
    text = rf"{name}: x must be in \[0, 1\], .* from {least:g} to {most:g}\..* x / 255 .*ops\.clip\(x, 0, 1\)"
    with pytest.raises(ArgumentError, match=text):
        CALLS[name][0](Tensor(values))


@pytest.mark.compiled
@pytest.mark.parametrize("name", [name for name, (_, takes) in CALLS.items() if takes == "unit"])
def test_traced_values_are_not_checked(name):
    assert snncell.jit(CALLS[name][0])(Tensor([[0.5, 2.0]])).shape[:3] == (5, 1, 2)


@pytest.mark.parametrize("steps", [0, -1, 2.5, True, None])
@pytest.mark.parametrize("name", ["latency", "phase", "population", "current", "lif"])
def test_steps_must_be_a_positive_integer(name, steps):
    call = encode.population if name == "population" else getattr(encode, name)
    if steps is None and name in ("population", "latency"):
        return  # None is valid here
    with pytest.raises(ArgumentError, match="steps is an integer"):
        call(Tensor(X), *([3] if name == "population" else []), steps)


@pytest.mark.parametrize("name", [name for name, (_, takes) in CALLS.items() if takes in ("sequence", "spikes")])
def test_sequences_need_at_least_one_step(name):
    with pytest.raises(ShapeError, match=rf"{name}: .* be \(T, B, \.\.\.\) with at least one step, .* \(0, 4\)"):
        CALLS[name][0](ops.zeros((0, 4)))


@pytest.mark.parametrize("name", CALLS)
def test_text_as_input_raises(name):
    if name != "lif":  # the table multiplies the text by a number first
        with pytest.raises(ArgumentTypeError, match=rf"{name}: \w+ is a Tensor, an array, or numbers, not '0.5'"):
            CALLS[name][0]("0.5")


# --- rate ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("gain", "offset"), [(1.0, 0.0), (0.5, 0.0), (2.0, 0.0), (0.5, 0.25), (1.0, -0.3)])
def test_rates_are_within_the_binomial_bounds(gain, offset):
    x, steps, copies = np.array([0.0, 0.03, 0.5, 0.9, 1.0]), 400, 50
    spikes = encode.rate(Tensor(np.tile(x, (copies, 1)), "float32"), steps, gain, offset).asnumpy()
    assert set(np.unique(spikes)) <= {0.0, 1.0}
    p, n = np.clip(x * gain + offset, 0, 1), steps * copies
    bound = 5 * np.sqrt(n * p * (1 - p)) + 1e-3  # beyond 5 deviations with probability 5e-7; exact if p is 0 or 1
    assert (np.abs(spikes.sum((0, 1)) - n * p) <= bound).all()


def test_steps_and_neurons_are_independent():
    spikes = encode.rate(ops.full((2, 50), 0.5), 2000).asnumpy().reshape(2000, -1) - 0.5
    between = spikes.T @ spikes / 2000
    assert np.abs(between - np.diag(np.diag(between))).max() < 0.25 * 5 / math.sqrt(2000)
    assert np.abs((spikes[1:] * spikes[:-1]).mean(0)).max() < 0.25 * 5 / math.sqrt(2000)


def test_same_seed_gives_the_same_spikes(run):
    encoder, x = run(lambda x: encode.rate(x, 6)), Tensor(X)
    draws = []
    for seed in (3, 3, 4):
        snncell.set_seed(seed)
        draws.append(encoder(x).asnumpy().tobytes() + encoder(x).asnumpy().tobytes())
    assert draws[0] == draws[1] != draws[2]
    assert draws[0][: len(draws[0]) // 2] != draws[0][len(draws[0]) // 2 :]  # each call draws new numbers


def test_rates_can_vary_over_time():
    x = np.zeros((4, 2), np.float32)
    x[[1, 3], :] = 1.0
    np.testing.assert_array_equal(encode.rate(Tensor(x)).asnumpy(), x)
    np.testing.assert_array_equal(encode.rate(Tensor(x), first_spike_time=2).asnumpy()[:, 0], [0, 0, 0, 1])


def test_rate_has_no_spikes_before_first_spike_time():
    assert encode.rate([1.0], 4, first_spike_time=3).tolist() == [[0.0], [0.0], [0.0], [1.0]]
    for first in (-1, 4):
        with pytest.raises(ArgumentError, match=rf"rate: first_spike_time must be in \[0, 4\), not {first}"):
            encode.rate([1.0], 4, first_spike_time=first)


@pytest.mark.parametrize("name", ["gain", "offset"])
@pytest.mark.parametrize("value", [math.nan, math.inf, "2", None])
def test_gain_and_offset_must_be_finite(name, value):
    with pytest.raises(ArgumentError, match=f"rate: {name} is a finite number, not "):
        encode.rate([0.5], 3, **{name: value})


# --- latency ---------------------------------------------------------------------------------------------------------

LATENCIES = {
    "snnTorch, linear, normalized": ({"linear": True, "normalize": True}, [7, 7, 6, 4, 0]),
    "SpikingJelly, linear": ({"linear": True, "convention": "spikingjelly"}, [7, 7, 6, 4, 0]),
    "SpikingJelly, logarithm": ({"convention": "spikingjelly"}, [7, 5, 2, 1, 0]),
    "snnTorch, logarithm, normalized": ({"normalize": True}, [7, 7, 0, 0, 0]),
    "snnTorch, linear": ({"linear": True}, [1, 1, 1, 0, 0]),
    "snnTorch, logarithm, bypass": ({"bypass": True}, [None, None, 0, 0, 0]),
    "snnTorch, clip": ({"linear": True, "normalize": True, "clip": True}, [None, None, 6, 4, 0]),
}


@pytest.mark.parametrize("name", LATENCIES)
def test_latency_golden_values(run, name):
    options, expected = LATENCIES[name]
    assert fired_at(run(lambda x: encode.latency(x, 8, **options))(Tensor(GOLDEN))) == expected


def test_latency_spikes_after_the_last_step_raise():
    with pytest.raises(ArgumentError, match=r"latest spike would come at step 12, but steps=8 ends at step 7\. Use"):
        encode.latency(Tensor(GOLDEN), 8)
    assert encode.latency(Tensor(GOLDEN), bypass=True).shape == (13, 5)


def naive_latency(x, steps, linear, normalize, threshold, tau, first):
    """Times in float64 before rounding."""
    if linear:
        scale = steps - 1 - first if normalize else tau
        return np.minimum(scale * (1 - x), scale * (1 - threshold)) + first
    t = np.array([tau * math.log(max(v, threshold + 1e-7) / (max(v, threshold + 1e-7) - threshold)) for v in x])
    return t / t.max() * (steps - 1 - first) + first if normalize else t + first


OPTIONS = {
    "linear": {"linear": True, "tau": 6.0},
    "linear, normalized": {"linear": True, "normalize": True, "threshold": 0.2},
    "linear, later": {"linear": True, "normalize": True, "first_spike_time": 4},
    "logarithm": {"tau": 3.0, "threshold": 0.1, "bypass": True},
    "logarithm, normalized": {"normalize": True, "tau": 5.0, "threshold": 0.05},
    "logarithm, later": {"normalize": True, "first_spike_time": 3, "clip": True, "threshold": 0.3},
}


def clear_inputs(options, steps=30):
    """Values whose times are not close to a half, so that rounding is unambiguous, and their steps."""
    given = {"linear": False, "normalize": False, "threshold": 0.01, "tau": 1.0, "first_spike_time": 0, **options}
    x = np.random.default_rng(7).uniform(0, 1, 500).astype(np.float32)
    x[0] = 0.0  # the largest time, by which the others are scaled
    order = [given[key] for key in ("linear", "normalize", "threshold", "tau", "first_spike_time")]
    t = naive_latency(x.astype(float), steps, *order)
    kept = np.abs(t % 1 - 0.5) > 1e-3
    kept[0] = True
    dropped = (np.round(t) >= steps) | (x < given["threshold"]) * bool(options.get("clip"))
    return x[kept], [None if gone else int(step) for gone, step in zip(dropped[kept], np.round(t)[kept], strict=True)]


@pytest.mark.parametrize("name", OPTIONS)
def test_latency_equals_the_formula(name):
    x, expected = clear_inputs(OPTIONS[name])
    assert fired_at(encode.latency(Tensor(x, "float64"), 30, **OPTIONS[name])) == expected


@pytest.mark.parametrize("steps", [1, 2, 50, 300, 1000])
@pytest.mark.parametrize("linear", [True, False])
def test_spikingjelly_latency_does_not_overflow(steps, linear):
    x = np.linspace(0, 1, 97)
    t = (
        (steps - 1) * (1 - x)
        if linear
        else np.array([-np.log(v + (1 - v) * math.exp(1 - steps)) if v else steps - 1 for v in x])
    )
    kept = np.abs(t % 1 - 0.5) > 1e-3
    found = fired_at(encode.latency(Tensor(x[kept], "float32"), steps, linear, convention="spikingjelly"))
    assert found == np.round(t[kept]).astype(int).tolist()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"threshold": 0.0}, r"threshold is a finite number in \(0, 1\), not 0.0"),
        ({"threshold": 1.0}, r"threshold is a finite number in \(0, 1\), not 1.0"),
        ({"tau": 0.0}, r"tau is a finite number above 0, not 0.0"),
        ({"tau": math.inf}, r"tau is a finite number above 0, not inf"),
        ({"first_spike_time": 8}, r"first_spike_time must be in \[0, steps\) with steps = 8, not 8"),
        ({"first_spike_time": -1}, r"first_spike_time must be in .* not -1"),
        ({"convention": "norse"}, r'convention is "snntorch" or "spikingjelly", not \'norse\''),
        ({"convention": "spikingjelly", "tau": 2.0}, r'"spikingjelly" takes only linear and steps'),
        ({"convention": "spikingjelly", "normalize": True}, r'"spikingjelly" takes only linear and steps'),
        ({"steps": None}, r"latency: pass steps"),
        ({"steps": None, "bypass": True, "normalize": True}, r"latency: pass steps"),
        ({"steps": None, "convention": "spikingjelly"}, r"latency: pass steps"),
    ],
)
def test_latency_rejects_invalid_arguments(options, text):
    with pytest.raises(ArgumentError, match=text):
        encode.latency(Tensor(GOLDEN), **{"steps": 8, **options})


@pytest.mark.compiled
def test_number_of_steps_cannot_be_traced():
    with pytest.raises(ArgumentError, match=r"pass steps, because a jitted function"):
        snncell.jit(lambda x: encode.latency(x, bypass=True))(Tensor(GOLDEN))


# --- delta, phase ----------------------------------------------------------------------------------------------------

DELTAS = {
    "golden": ([0, 1, 1, 0.2, 0.9], {"threshold": 0.5, "off_spike": True}, [0, 1, 0, -1, 1]),
    "the first against 0": ([0.7, 0.7], {"threshold": 0.5}, [1, 0]),
    "the first against itself": ([0.7, 0.7], {"threshold": 0.5, "padding": True}, [0, 0]),
    "on alone": ([0, 1, 1, 0.2, 0.9], {"threshold": 0.5}, [0, 1, 0, 0, 1]),
    "just as much": ([1.0, 2.0, 2.9, 3.0, 4.0, 3.0], {"threshold": 1.0, "off_spike": True}, [1, 1, 0, 0, 1, -1]),
}


@pytest.mark.parametrize("name", DELTAS)
def test_delta_golden_values(run, name):
    x, options, expected = DELTAS[name]
    found = run(lambda x: encode.delta(x, **options))(Tensor(np.array(x, np.float32)[:, None]))
    assert found.asnumpy()[:, 0].tolist() == expected


@pytest.mark.parametrize("threshold", [0.0, -1.0, math.nan, math.inf, None])
def test_delta_threshold_must_be_positive(threshold):
    with pytest.raises(ArgumentError, match="delta: threshold is a finite number above 0"):
        encode.delta(Tensor(X), threshold)


PHASES = {0.0: "0000", 0.25: "0100", 0.5: "1000", 0.9375: "1111", 0.99: "1111", 1.0: "1111", 0.3: "0100"}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_phase_golden_values(run, dtype):
    found = run(lambda x: encode.phase(x, 4))(Tensor(list(PHASES), dtype)).asnumpy()
    assert ["".join(str(int(s)) for s in code) for code in found.T] == list(PHASES.values())


@pytest.mark.parametrize("digits", [1, 8, 23, 40])
def test_phase_weights_sum_to_the_value(digits):
    x = np.concatenate([X.ravel().astype(float), [0.0, 1.0]])
    code = encode.phase(Tensor(x), digits).asnumpy()
    off = x - (code * 0.5 ** np.arange(1, digits + 1)[:, None]).sum(0)
    assert (off >= 0).all() and (off <= 0.5**digits).all()
    assert code[:, -1].all()  # the value 1 has ones in all digits


def test_phases_repeat_periodically():
    once, twice = encode.phase(Tensor(X), 3), encode.phase(Tensor(X), 7, period=3)
    np.testing.assert_array_equal(twice.asnumpy(), np.concatenate([once.asnumpy()] * 3)[:7])
    with pytest.raises(ArgumentError, match="phase: period is an integer of at least 1, not 0"):
        encode.phase(Tensor(X), 7, period=0)


# --- populations, currents -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("neurons", [1, 2, 7])
@pytest.mark.parametrize(("low", "high", "width"), [(0.0, 1.0, None), (-2.0, 3.0, None), (0.0, 1.0, 0.3)])
def test_population_responses_equal_their_formula(neurons, low, high, width):
    x = low + (high - low) * X.astype(float)
    found = encode.population(Tensor(x), neurons, None, low, high, width).asnumpy()
    centres = [(low + high) / 2] if neurons == 1 else np.linspace(low, high, neurons)
    sigma = width or (high - low) / max(neurons - 1, 1) / 1.5
    for index in np.ndindex(x.shape):
        for n, centre in enumerate(centres):
            np.testing.assert_allclose(
                found[(*index, n)], math.exp(-((x[index] - centre) ** 2) / 2 / sigma**2), rtol=1e-12
            )
    testing.check_grads(lambda z: encode.population(z, neurons, 3, low, high, width), Tensor(np.clip(x, 0.01, 0.99)))


def test_population_round_trip_through_rate_spikes():
    x = np.linspace(0.2, 0.8, 7, dtype=np.float32)
    spikes = encode.rate(encode.population(Tensor(x), 21, width=0.05), 4000)
    assert spikes.shape == (4000, 7, 21)
    found = encode.population_vector(spikes, encode.field_centres(21))
    np.testing.assert_allclose(found.asnumpy(), x, atol=0.01)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"neurons": 0}, "neurons is an integer of at least 1, not 0"),
        ({"width": 0.0}, "width is a finite number above 0, not 0.0"),
        ({"low": 1.0, "high": 1.0}, "high must be a finite number above 1, not 1.0"),
        ({"low": 0.6, "high": 0.9}, r"x must be in \[0.6, 0.9\]"),
    ],
)
def test_population_rejects_invalid_arguments(options, text):
    with pytest.raises(ArgumentError, match=f"population: {text}"):
        encode.population(Tensor([0.5]), **{"neurons": 3, **options})


def test_currents_repeat_the_input_and_pass_its_gradient():
    np.testing.assert_array_equal(encode.current(Tensor(X), 4).asnumpy(), np.stack([X] * 4))
    testing.check_grads(lambda x: encode.current(x, 4), Tensor(X), order=2)
    assert encode.current([300, -2], 3).dtype == snncell.float32


@pytest.mark.parametrize(("reset", "decay_input"), [("zero", True), ("subtract", False)])
def test_lif_spikes_equal_the_loop(reset, decay_input):
    x = np.random.default_rng(9).uniform(0, 3, (1, 20))
    spikes, _, _ = naive.lif_forward(np.repeat(x, 40, 0), np.zeros(20), 5.0, 1.0, 0.0, reset, decay_input)
    found = encode.lif(Tensor(x), 40, 5.0, 1.0, reset, decay_input).asnumpy()
    np.testing.assert_array_equal(found[:, 0], spikes)


def test_lif_first_spike_equals_the_analytic_time():
    x, tau = np.array([[1.05, 1.5, 4.0]]), 100.0
    first = encode.first_spike_time(encode.lif(Tensor(x), 500, tau)).asnumpy()
    np.testing.assert_allclose(first, tau * np.log(x / (x - 1)), rtol=0.02, atol=1)
    with pytest.raises(ShapeError, match=r"lif: x must be \(B, \.\.\.\), not a single number; write \[x\]"):
        encode.lif(0.5, 3)


# --- decoders --------------------------------------------------------------------------------------------------------

V = np.random.default_rng(2).normal(size=(6, 3, 4))
DECODERS = {
    "spike_count": (encode.spike_count, lambda v: sum(v)),
    "firing_rate": (encode.firing_rate, lambda v: sum(v) / len(v)),
    "firing_rate in Hz": (lambda v: encode.firing_rate(v, 0.002), lambda v: sum(v) / len(v) / 0.002),
    "last_membrane": (encode.last_membrane, lambda v: v[5]),
    "mean_membrane": (encode.mean_membrane, lambda v: sum(v) / 6),
    "max_membrane": (encode.max_membrane, lambda v: np.maximum.reduce(list(v))),
}


@pytest.mark.parametrize("name", DECODERS)
def test_decoders_equal_the_loop_and_are_differentiable(name):
    decode, expected = DECODERS[name]
    np.testing.assert_allclose(decode(Tensor(V)).asnumpy(), expected(V), rtol=1e-12)
    testing.check_grads(decode, Tensor(V), order=2)


def test_first_spike_decoder():
    spikes = np.zeros((4, 1, 3))
    spikes[[2, 3], 0, 0] = spikes[0, 0, 1] = 1.0
    assert encode.first_spike_time(Tensor(spikes)).tolist() == [[2.0, 0.0, 3.0]]
    assert encode.first_spike_time(Tensor(spikes), silent=math.inf).tolist() == [[2.0, 0.0, math.inf]]
    found = ops.grad(lambda s: encode.first_spike_time(s).sum())(Tensor(spikes)).asnumpy()
    assert [tuple(i) for i in np.argwhere(found)] == [(0, 0, 1), (2, 0, 0), (3, 0, 2)]


@pytest.mark.parametrize("shape", [(4,), (4, 2)], ids=str)
def test_population_vectors_equal_their_formula(shape):
    rng = np.random.default_rng(3)
    centres, spikes = rng.normal(size=shape), rng.uniform(0.1, 1, (6, 3, 2, 4))
    found = encode.population_vector(Tensor(spikes), Tensor(centres)).asnumpy()
    counts = sum(spikes)
    for index in np.ndindex(3, 2):
        expected = sum(counts[index][n] * centres[n] for n in range(4)) / sum(counts[index])
        np.testing.assert_allclose(found[index], expected, rtol=1e-12)
    testing.check_grads(encode.population_vector, Tensor(spikes), Tensor(centres))


def test_silent_population_decodes_to_the_middle_without_gradient():
    spikes = np.zeros((3, 2, 4), np.float32)
    spikes[1, 0, 3] = 1.0
    value, found = ops.value_and_grad(lambda s: encode.population_vector(s, [0.0, 1.0, 2.0, 5.0]))(
        Tensor(spikes[:, 1:])
    )
    assert value.tolist() == [2.0] and not found.asnumpy().any()
    assert encode.population_vector(Tensor(spikes), [0.0, 1.0, 2.0, 5.0]).tolist() == [5.0, 2.0]
    with pytest.raises(ShapeError, match=r"\(4,\) neurons need centres \(N,\) or \(N, D\), not \(3,\)"):
        encode.population_vector(Tensor(spikes), [0.0, 1.0, 2.0])


# --- peers -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def spikegen(torch):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip("snntorch.spikegen", reason="snnTorch is not installed: nothing to compare with")


@pytest.fixture(scope="module")
def encoding(torch):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip(
            "spikingjelly.activation_based.encoding", reason="SpikingJelly is not installed: nothing to compare with"
        )


@pytest.mark.peer
@pytest.mark.parametrize("name", OPTIONS)
def test_latency_equals_snntorch(torch, spikegen, name):
    x, _ = clear_inputs(OPTIONS[name])
    theirs = spikegen.latency(torch.tensor(x), num_steps=30, **OPTIONS[name]).numpy()
    np.testing.assert_array_equal(encode.latency(Tensor(x), 30, **OPTIONS[name]).asnumpy(), theirs)


@pytest.mark.peer
@pytest.mark.parametrize("linear", [True, False])
def test_latency_equals_spikingjelly(torch, encoding, linear):
    x = np.random.default_rng(8).uniform(0, 1, 500)
    t = 19 * (1 - x) if linear else 19 - np.log((math.exp(19) - 1) * x + 1)
    x = x[np.abs(t % 1 - 0.5) > 1e-3].astype(np.float32)
    theirs = encoding.LatencyEncoder(20, "linear" if linear else "log").single_step_encode(torch.tensor(x)).numpy()
    np.testing.assert_array_equal(encode.latency(Tensor(x), 20, linear, convention="spikingjelly").asnumpy(), theirs)


@pytest.mark.peer
@pytest.mark.parametrize(
    "options", [{}, {"off_spike": True}, {"padding": True, "off_spike": True, "threshold": 0.3}], ids=str
)
def test_delta_equals_snntorch(torch, spikegen, options):
    x = np.random.default_rng(6).normal(size=(20, 3)).astype(np.float32)
    theirs = spikegen.delta(torch.tensor(x), **options).numpy()
    np.testing.assert_array_equal(encode.delta(Tensor(x), **options).asnumpy(), theirs)


@pytest.mark.peer
@pytest.mark.parametrize("digits", [1, 4, 10])
def test_phase_equals_spikingjelly(torch, encoding, digits):
    x = X * (1 - 2.0**-digits)
    theirs = encoding.WeightedPhaseEncoder(digits).single_step_encode(torch.tensor(x)).numpy()
    np.testing.assert_array_equal(encode.phase(Tensor(x), digits).asnumpy(), theirs)


@pytest.mark.peer
def test_population_equals_spikingjelly(torch, encoding):
    theirs = encoding.PopEncoder(4, 6, 5, (-1.0, 2.0), 0.4)(torch.tensor(X)).detach().numpy()
    found = encode.population(Tensor(X), 6, 5, -1.0, 2.0, 0.4)
    np.testing.assert_allclose(found.reshape((5, 3, 24)).asnumpy(), theirs, rtol=1e-5, atol=1e-7)
