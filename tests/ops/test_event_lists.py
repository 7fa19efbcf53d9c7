"""Event lists: layers give the same results as for the dense array, for every dtype and mode."""

from __future__ import annotations

import itertools
import os

import numpy as np
import pytest

import snncell
from snncell import Tensor, data, nn, ops
from snncell.data.frames import join_event_lists
from snncell.errors import ArgumentError, DTypeError, GradientError, ShapeError, TensorIndexError
from snncell.tape.event_lists import EventLists

COMPILED = os.environ.get("NUMBA_DISABLE_JIT", "0") in ("", "0")
MODES = ["eager", "jit"] if COMPILED else ["eager"]


def random_counts(rng, shape, density, dtype="uint8"):
    """Counts, mostly zeros."""
    x = (rng.random(shape) < density) * rng.integers(1, 4, shape)
    return (x > 0 if dtype == "bool" else x).astype(dtype)


def lists_of(dense, axes, room=0):
    """The lists of an array whose first axes are rows, with `room` unused elements after the last event."""
    flat = dense.reshape(int(np.prod(dense.shape[:axes])), -1)
    rows, places = np.nonzero(flat)
    indptr = np.concatenate([[0], np.cumsum((flat != 0).sum(1))])
    filler = np.full(room, 7)
    return EventLists(
        Tensor(indptr), Tensor(np.concatenate([places, filler]).astype(np.int32)),
        Tensor(np.concatenate([flat[rows, places], filler.astype(dense.dtype)])), dense.shape,
    )  # fmt: skip


def both(f, net, dense, lists, mode):
    """Values of a function and gradients of the net's Parameters, for the array and for the lists."""
    step = snncell.value_and_grad(f, None, net.trainable_params())
    step = snncell.jit(step) if mode == "jit" else step
    return [[step(x)[0], *step(x)[1]] for x in (Tensor(dense), lists)]


def assert_alike(expected, found, exact=True):
    for one, other in zip(expected, found, strict=True):
        assert one.dtype == other.dtype and one.shape == other.shape
        a, b = (np.asarray(x.astype("float64").asnumpy()) for x in (one, other))
        if exact:
            np.testing.assert_array_equal(a, b)
        else:
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5 * max(1.0, np.abs(a).max()))


# --- layers -----------------------------------------------------------------------------------------------------------


@pytest.mark.sampled(11)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", ["uint8", "bool", "int16", "float32", "float64"])
@pytest.mark.parametrize("density", [0.0, 0.02, 0.5, 1.0])
@pytest.mark.parametrize("inner", [1, 63, 300, 2100])
def test_dense_layer_of_lists_equals_the_array(mode, dtype, density, inner):
    rng = np.random.default_rng(inner)
    x = random_counts(rng, (6, 5, inner), density, dtype)
    net = nn.Dense(inner, 33)
    expected, found = both(lambda x: (net(x) ** 2).sum(), net, x, lists_of(x, 2, room=3), mode)
    assert_alike(expected, found)


OPTIONS = [
    {"kernel_size": size, "stride": stride, "group": group, "pad_mode": mode, "dilation": dilation}
    for size, stride, group, mode, dilation in itertools.product((1, 3), (1, 2), (1, 2), ("same", "valid"), (1, 2))
]


@pytest.mark.sampled(6)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("axes", [1, 2])
def test_convolution_of_lists_equals_the_array(axes, options, monkeypatch):
    rng = np.random.default_rng(3)
    for density, dtype, mode in ((0.03, "uint8", "eager"), (0.03, "float32", MODES[-1]), (0.9, "bool", "eager")):
        monkeypatch.setattr("snncell.kernels.conv.events.is_faster", lambda *_, sparse=density < 0.5, **__: sparse)
        x = random_counts(rng, (3, 2, 4, *(11, 9)[:axes]), density, dtype)
        net = nn.TimeDistributed((nn.Conv1d, nn.Conv2d)[axes - 1](4, 6, has_bias=True, **options))
        expected, found = both(lambda x, net=net: (net(x) ** 2).sum(), net, x, lists_of(x, 2, room=1), mode)
        assert_alike(expected, found)


@pytest.mark.parametrize("weight", ["float16", "bfloat16", "float64", "complex64"])
@pytest.mark.parametrize("values", ["float16", "uint8", "float64"])
def test_result_dtypes_equal_those_of_the_array(weight, values):
    rng = np.random.default_rng(0)
    x = random_counts(rng, (7, 40), 0.1, values)
    w = Tensor(rng.normal(size=(40, 5)).astype(np.float32)).astype(weight)
    assert_alike([ops.matmul(Tensor(x), w)], [ops.matmul(lists_of(x, 1), w)], exact=False)
    if weight != "complex64":
        images, kernel = x.reshape(7, 2, 4, 5), ops.reshape(w, (5, 40))[:, :18].reshape((5, 2, 3, 3))
        lists = lists_of(images, 1)
        assert_alike([ops.conv2d(Tensor(images), kernel)], [ops.conv2d(lists, kernel)], exact=False)


def test_products_with_vectors_empty_rows_and_empty_lists():
    x = random_counts(np.random.default_rng(0), (4, 3, 6), 0.5)
    vector = Tensor(np.arange(6, dtype=np.float32))
    assert_alike([ops.matmul(Tensor(x), vector)], [ops.matmul(lists_of(x, 2), vector)])
    for shape in ((0, 6), (4, 0), (2, 0, 6)):
        starts, nothing = np.zeros(int(np.prod(shape[:-1])) + 1, np.int64), np.zeros(0, np.int32)
        none = EventLists(Tensor(starts), Tensor(nothing), Tensor(nothing), shape)
        assert ops.matmul(none, ops.ones((shape[-1], 3))).asnumpy().tolist() == np.zeros((*shape[:-1], 3)).tolist()
        assert none.to_dense().shape == shape


@pytest.mark.parametrize("layer", ["dense", "conv"])
def test_second_order_gradients_equal_those_of_the_array(layer):
    rng = np.random.default_rng(1)
    x = random_counts(rng, (5, 2, 6, 6) if layer == "conv" else (5, 72), 0.1)
    w = Tensor(rng.normal(size=(3, 2, 3, 3) if layer == "conv" else (72, 4)))

    def value(w, x):
        y = ops.conv2d(x, w) if layer == "conv" else ops.matmul(x, w)
        return (ops.tanh(y) ** 2).sum()

    def norm(w, x):
        return (snncell.grad(value)(w, x) ** 2).sum()

    results = [snncell.grad(lambda w, x=x: norm(w, x))(w) for x in (Tensor(x), lists_of(x, 1))]
    np.testing.assert_allclose(results[0].asnumpy(), results[1].asnumpy(), rtol=1e-10)
    snncell.testing.check_grads(lambda w: value(w, lists_of(x, 1)), w)


@pytest.mark.skipif(not COMPILED, reason="NUMBA_DISABLE_JIT=1: there is no compiler to test")
def test_explain_names_the_density_limit_of_events():
    lists = lists_of(random_counts(np.random.default_rng(0), (100, 700), 0.01), 1)
    net = nn.Dense(700, 256)
    assert "% of listed elements, else by BLAS" in str(snncell.explain(lambda x: net(x), lists, detail="launches"))


def test_training_on_lists_equals_training_on_arrays():
    x = random_counts(np.random.default_rng(2), (8, 4, 2, 5, 5), 0.1)
    labels = Tensor([0, 1, 2, 1])

    def trained(x):
        snncell.set_seed(0)
        net = nn.SequentialCell(
            nn.TimeDistributed(nn.Conv2d(2, 3, 3)), nn.MultiStep(nn.LIFNode()), nn.TimeDistributed(nn.Flatten()),
            nn.Dense(75, 3),
        )  # fmt: skip
        optimiser = nn.Adam(net.trainable_params(), 0.01)
        loss = nn.CrossEntropyLoss()

        def forward(x):
            return loss(net(x).mean(0), labels)

        step = snncell.value_and_grad(forward, None, net.trainable_params())
        for _ in range(3):
            optimiser(step(x)[1])
        return [p.asnumpy() for p in net.trainable_params()]

    for one, other in zip(trained(Tensor(x)), trained(lists_of(x, 2)), strict=True):
        np.testing.assert_array_equal(one, other)


def test_flatten_in_time_distributed_accepts_lists():
    x = random_counts(np.random.default_rng(2), (3, 4, 2, 5), 0.3)
    net = nn.SequentialCell(nn.TimeDistributed(nn.Flatten()), nn.Dense(10, 3))
    assert_alike([net(Tensor(x))], [net(lists_of(x, 2))])
    assert nn.TimeDistributed(nn.Flatten())(lists_of(x, 2)).shape == (3, 4, 10)


# --- errors -----------------------------------------------------------------------------------------------------------

HOSTILE = {
    "descending rows": ([0, 2, 1, 3], [0, 1, 2], (3, 4)),
    "before the first": ([-1, 1, 1, 3], [0, 1, 2], (3, 4)),
    "behind the last": ([0, 1, 2, 9], [0, 1, 2], (3, 4)),
    "far behind": ([0, 1, 2, 2**62], [0, 1, 2], (3, 4)),
    "an index below 0": ([0, 1, 2, 3], [0, -1, 2], (3, 4)),
    "an index behind the row": ([0, 1, 2, 3], [0, 1, 4], (3, 4)),
    "indices that descend": ([0, 0, 0, 3], [2, 1, 3], (3, 4)),
    "an index twice": ([0, 0, 0, 3], [1, 1, 3], (3, 4)),
    "an index of more than 32 bits": ([0, 1, 2, 3], [0, 2**32 + 1, 2], (3, 4)),
    "an index of the largest of 32 bits": ([0, 1, 2, 3], [0, 2**31 - 1, 2], (3, 4)),
    "an index far below 0": ([0, 1, 2, 3], [0, -(2**32), 2], (3, 4)),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_invalid_lists_raise_in_every_layer(name):
    indptr, indices, shape = HOSTILE[name]
    lists = EventLists(Tensor(indptr), Tensor(np.array(indices)), Tensor(np.ones(3, np.float32)), shape)
    images = lists.reshape(3, 1, 2, 2)
    weight = Tensor(np.ones((4, 2), np.float32))
    calls = [
        lists.to_dense,
        lambda: join_event_lists([lists, lists], 3),
        lambda: ops.matmul(lists, weight),
        lambda: nn.Dense(4, 2)(lists),
        lambda: ops.conv2d(images, ops.ones((1, 1, 2, 2))),
    ]
    for call in calls:
        with pytest.raises(TensorIndexError, match=r"of the event lists is invalid. Its events are listed"):
            call()


def test_unsupported_operations_name_supported_ones():
    x = random_counts(np.random.default_rng(0), (3, 2, 4, 5, 5), 0.2)
    lists = lists_of(x, 2)
    flat = lists.reshape(3, 2, -1)
    for call, error, words in [
        (lambda: ops.exp(lists), DTypeError, r"exp: x is a Tensor, not event lists.*to_dense"),
        (lambda: ops.matmul(ops.ones((2, 3)), flat), DTypeError, r"matmul: y is a Tensor, not event lists"),
        (lambda: nn.MultiStep(nn.LIFNode())(flat), ArgumentError, r"MultiStep: .*not event lists.*TimeDistributed"),
        (lambda: nn.Conv2d(4, 3, 3)(lists), ShapeError, r"TimeDistributed"),
        (lambda: ops.conv2d(lists.reshape(6, 4, 5, 5)._replace(shape=(3, 8, 5, 5)), ops.ones((1, 8, 3, 3))),
         ShapeError, r"go together|rows with one axis|one row each"),
        (lambda: ops.matmul(lists, ops.ones((5, 3))), ShapeError, r"ops\.flatten\(x, 2\)"),
        (lambda: ops.matmul(flat, ops.ones((99, 3))), ShapeError, r"multiplied by \(100, m\), not \(99, 3\)"),
        (lambda: nn.Dense(99, 3)(flat), ShapeError, r"in_channels = 99"),
        (lambda: lists.reshape(3, 200, -1), ShapeError, r"would split or join"),
        (lambda: lists.reshape(7, -1), ShapeError, r"do not fill"),
        (lambda: lists._replace(indices=Tensor([1])).to_dense(), ShapeError, r"event lists are indptr"),
        (lambda: lists._replace(indptr=lists.indptr.astype("float32")).to_dense(), DTypeError, "integers, not Float32"),
        (lambda: lists._replace(indices=lists.indices > 0).to_dense(), DTypeError, "integers, not Int64 and Bool"),
        (lambda: lists._replace(shape=(5, 120)).to_dense(), ShapeError, r"event lists are indptr"),
    ]:  # fmt: skip
        with pytest.raises(error, match=words):
            call()


@pytest.mark.parametrize("sign", ["+", "-", "*", "/", "@", "**", "<", ">="])
def test_tuple_operators_raise(sign):
    lists = lists_of(random_counts(np.random.default_rng(0), (3, 8), 0.5, "float32"), 1)
    for other in (2, 0.5, Tensor([1.0]), np.ones(3), lists):
        for text in (f"lists {sign} other", f"other {sign} lists"):
            with pytest.raises(DTypeError, match=r"vent lists"):
                eval(text, {"lists": lists, "other": other})


def test_values_get_no_gradient():
    lists = lists_of(random_counts(np.random.default_rng(0), (3, 8), 0.5, "float32"), 1)
    for call in (lambda x: ops.matmul(x, ops.ones((8, 2))).sum(), lambda x: x.to_dense().sum()):
        with pytest.raises(GradientError, match=r"No gradient flows into the values of event lists"):
            snncell.grad(lambda v, call=call: call(lists._replace(values=v)))(lists.values)


# --- lists from events ------------------------------------------------------------------------------------------------

SENSORS = [(700, 1, 1), (9, 1, 2), (6, 5, 2), (40, 33, 1), (1, 1, 1)]
WAYS = [
    {"n_bins": 1}, {"n_bins": 7}, {"window": 100}, {"window": 100, "overlap": 60}, {"window": 100, "last": "drop"},
    {"count": 9}, {"count": 9, "overlap": 4}, {"count": 50, "last": "drop"},
]  # fmt: skip


def random_recording(rng, sensor, events, *, rows, ordered=True, spread=1000):
    t = rng.integers(0, spread, events) + 10**9
    columns = {"x": rng.integers(0, sensor[0], events), "p": rng.integers(0, sensor[2], events)}
    if rows:
        columns["y"] = rng.integers(0, sensor[1], events)
    return data.Events(np.sort(t) if ordered else t, **columns, sensor_size=sensor)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("sensor", SENSORS, ids=str)
@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("dtype", ["uint8", "bool", "int16", "float16", "float32"])
def test_lists_of_events_equal_their_frames(sensor, way, dtype):
    rng = np.random.default_rng(7)
    rows = sensor[1] > 1
    batch = [random_recording(rng, sensor, n, rows=rows, ordered=n % 2 == 0) for n in (0, 300, 41, 1, 2000)]
    for events in (batch, batch[:1], batch[1], batch[2]):
        frames = data.to_frames(events, dtype=dtype, **way)
        lists = data.to_event_lists(events, dtype=dtype, **way)
        assert lists.shape == frames.shape and lists.to_dense().dtype == Tensor(frames).dtype
        np.testing.assert_array_equal(lists.to_dense().asnumpy(), frames)
        listed = int(lists.indptr[-1])
        assert listed == np.count_nonzero(frames) and len(lists.values) >= listed
        assert not lists.values[listed:].astype("float32").asnumpy().any()


def test_event_outside_of_the_sensor_is_named_by_its_index():
    events = data.Events([5, 3, 9], x=[0, 1, 4], sensor_size=(5, 1, 1))
    events["x"][0] = 7
    for call in (data.to_frames, data.to_event_lists):
        with pytest.raises(ArgumentError, match=rf"{call.__name__}: event 0 \(x=7, p=0\) lies outside"):
            call([events[1:], events], n_bins=2)


def test_sample_lists_join_to_batch_lists():
    rng = np.random.default_rng(1)
    batch = [random_recording(rng, (9, 4, 2), n, rows=True) for n in (30, 0, 200)]
    transform = data.ToEventLists(window=150)
    apart = [transform(events) for events in batch]
    frames = data.to_frames(batch, window=150)
    for steps in (len(frames), len(frames) + 3):
        lists = join_event_lists(apart, steps)
        assert lists.shape == (steps, *frames.shape[1:])
        np.testing.assert_array_equal(lists.to_dense().asnumpy()[: len(frames)], frames)
        assert not lists.to_dense().asnumpy()[len(frames) :].any()
    with pytest.raises(ShapeError, match="may differ only in T"):
        join_event_lists([apart[0], data.ToEventLists(window=150, dtype="float32")(batch[1])], 9)


@pytest.mark.sampled(10)
@pytest.mark.parametrize("buckets", [None, [12], 2])
@pytest.mark.parametrize("way", [{"n_bins": 7}, {"window": 150}], ids=str)
@pytest.mark.parametrize("workers", [{"workers": 0}, {"workers": 2}, {"workers": 1, "processes": True}], ids=str)
def test_loader_lists_equal_loader_frames(buckets, way, workers):
    rng = np.random.default_rng(1)
    samples = [(random_recording(rng, (9, 4, 2), n, rows=True, spread=100 + n), n % 2) for n in (30, 0, 200, 800, 5)]
    apart = data.ToEventLists(**way)
    options = {"batch_size": 2, "shuffle": True, "seed": 3, "buckets": buckets, **workers}
    for transform in (apart, lambda events: apart(events)):  # whole batches, and sample by sample
        if workers.get("processes") and transform is not apart:
            continue  # the same as in a thread
        frames = data.Loader(samples, transform=data.ToFrame(**way), **options)
        lists = data.Loader(samples, transform=transform, **options)
        for (x, lengths, y), (listed, own, labels) in zip(frames, lists, strict=True):
            assert isinstance(listed, EventLists) and listed.shape == x.shape
            assert isinstance(listed.indices, Tensor)
            np.testing.assert_array_equal(listed.to_dense().asnumpy(), x.asnumpy())
            assert lengths.tolist() == own.tolist() and y.tolist() == labels.tolist()


class Net(nn.Cell):
    """Two layers for recordings of different lengths."""

    def __init__(self):
        super().__init__()
        self.first, self.neurons, self.last = nn.Dense(30, 16), nn.MultiStep(nn.LIFNode()), nn.Dense(16, 2)

    def construct(self, x, lengths):
        return self.last(self.neurons(self.first(ops.flatten(x, 2)), lengths=lengths))


def test_fit_with_lists_equals_frames():
    rng = np.random.default_rng(1)
    samples = [
        (random_recording(rng, (30, 1, 1), 40 + 60 * (n % 2), rows=False, spread=900 + n), n % 2) for n in range(12)
    ]

    def losses(transform):
        snncell.set_seed(0)
        net, loader = Net(), data.Loader(samples, 4, transform=transform, seed=1)
        optimiser = nn.Adam(net.trainable_params(), 0.01)
        found = snncell.train.fit(
            net, nn.CERateLoss(), optimiser, loader, epochs=2, progress=False, firing_rate=net.neurons
        )
        return [(record["loss"], record["accuracy"], record["firing_rate"]) for record in found.history]

    assert losses(data.ToEventLists(window=100)) == losses(data.ToFrame(window=100))


def test_report_of_lists_equals_the_array(tmp_path):
    x = random_counts(np.random.default_rng(2), (8, 4, 10), 0.3)
    pages = []
    for batch in (Tensor(x), lists_of(x, 2)):
        snncell.set_seed(0)
        net = nn.SequentialCell(nn.Dense(10, 8), nn.MultiStep(nn.LIFNode()), nn.Dense(8, 2))
        path = tmp_path / f"{len(pages)}.html"
        snncell.plot.report(net, (batch, Tensor([0, 1, 0, 1])), nn.CERateLoss(), path=path)
        pages.append(path.read_text(encoding="utf-8"))
    assert len(pages[0]) > 1000 and abs(len(pages[0]) - len(pages[1])) < 100


@pytest.mark.parametrize("layer", ["dense", "conv"])
def test_monitor_costs_of_lists_equal_the_array(layer):
    x = random_counts(np.random.default_rng(2), (8, 4, 2, 5, 5), 0.3)
    first = nn.Conv2d(2, 3, 3) if layer == "conv" else nn.SequentialCell(nn.Flatten(), nn.Dense(50, 3))
    net = nn.SequentialCell(nn.TimeDistributed(first), nn.MultiStep(nn.LIFNode()))
    costs = []
    for batch in (Tensor(x), lists_of(x, 2)):
        with snncell.monitor(net, inputs=True) as m:
            net(batch)
        costs.append(m.costs())
    assert costs[0] == costs[1] and len(costs[0]) == 1


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("shape", [(0, 5), (0, 3, 5), (3, 0, 5)])
def test_gradient_of_a_product_without_rows_is_zero(shape, mode):
    x, weight = lists_of(np.zeros((1, 5), "float32"), 1), Tensor(np.ones((5, 2), "float32"))
    lists = x._replace(indptr=Tensor(np.zeros(1, np.int64)), shape=shape)
    gradient = snncell.grad(lambda w: ops.matmul(lists, w).sum())
    found = (snncell.jit(gradient) if mode == "jit" else gradient)(weight)
    np.testing.assert_array_equal(found.asnumpy(), np.zeros((5, 2), "float32"))


@pytest.mark.parametrize("before", [0, 1, 4])
def test_lists_with_an_offset_are_joined(before):
    rng = np.random.default_rng(before)
    dense = [random_counts(rng, (steps, 6), 0.5) for steps in (2, 5, 3)]
    lists = []
    for each in dense:
        x = lists_of(each, 1, room=2)
        ahead = np.full(before, 3)
        indices = Tensor(np.concatenate([ahead, x.indices.asnumpy()]).astype(np.int32))
        values = Tensor(np.concatenate([ahead, x.values.asnumpy()]).astype(each.dtype))
        lists.append(EventLists(Tensor(x.indptr.asnumpy() + before), indices, values, x.shape))
    expected = np.stack([np.pad(each, ((0, 5 - len(each)), (0, 0))) for each in dense], 1)
    np.testing.assert_array_equal(join_event_lists(lists, 5).to_dense().asnumpy(), expected)


BLOCKS = {
    "recompute": lambda layer: lambda lists: snncell.recompute(layer, lists),
    "jit": snncell.jit,
    "recompute in jit": lambda layer: snncell.jit(lambda lists: snncell.recompute(layer, lists)),
    "jit in recompute": lambda layer: lambda lists: snncell.recompute(snncell.jit(layer), lists),
    "hook": lambda layer: [layer.register_backward_hook(lambda *_: None), layer][1],
}


@pytest.mark.parametrize("name", BLOCKS)
@pytest.mark.parametrize("dtype", ["float32", "float64", "bool", "uint8"])
def test_checkpointed_blocks_accept_event_lists(name, dtype):
    dense = (np.random.default_rng(0).random((5, 8)) < 0.3).astype(dtype)
    starts, places = np.r_[0, np.cumsum((dense != 0).sum(1))], np.nonzero(dense)[1].astype(np.int32)
    lists = EventLists(Tensor(starts), Tensor(places), Tensor(dense[dense != 0]), dense.shape)
    layer = nn.Dense(8, 3)

    def gradients(block, x):
        return snncell.grad(lambda: ops.sin(block(x)).sum(), None, layer.trainable_params())()

    expected = gradients(layer, Tensor(dense))
    for found, right in zip(gradients(BLOCKS[name](layer), lists), expected, strict=True):
        np.testing.assert_allclose(found.asnumpy(), right.asnumpy(), rtol=1e-5, atol=1e-6)
    if dtype.startswith("float"):

        def of_values(values):
            return BLOCKS[name](layer)(lists._replace(values=values)).sum()

        with pytest.raises(GradientError, match="No gradient flows into the values"):
            snncell.grad(of_values)(lists.values)
