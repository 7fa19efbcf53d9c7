"""Arrays of other libraries instead of Tensors: each kind of array in each place that accepts data."""

import collections

import numpy as np
import pytest

import snncell
from snncell import Tensor, errors, nn, ops, train
from snncell.plot.sources import as_array
from snncell.report.probe import parts
from snncell.tape.structure import as_data, is_array, with_tensors

try:
    import torch
except ImportError:
    torch = None

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(8, 3)).astype(np.float32), np.arange(8) % 2
ONE_HOT = np.eye(2, dtype=np.float32)[Y]
NET, LOSS = nn.Dense(3, 2), nn.CrossEntropyLoss()
Pair = collections.namedtuple("Pair", ["x", "y"])


class OfDLPack:
    """An array that supports only DLPack."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


class OfArray:
    """An array that has only __array__."""

    def __init__(self, array):
        self.array = array

    def __array__(self, dtype=None, copy=None):
        return self.array


class OfInterface:
    """An array that has only NumPy's array interface."""

    def __init__(self, array):
        self.array = array

    @property
    def __array_interface__(self):
        return self.array.__array_interface__


KINDS = {
    "NumPy": lambda a: a,
    "Tensor": Tensor,
    "DLPack": OfDLPack,
    "__array__": OfArray,
    "interface": OfInterface,
    "list": lambda a: a.tolist(),
    "tuple": lambda a: tuple(map(tuple, a.tolist())) if a.ndim > 1 else tuple(a.tolist()),
    "torch": lambda a: torch.tensor(a),
    "torch, strided": lambda a: torch.tensor(np.repeat(a, 2, 0))[::2],
}


def weights_after(data):
    snncell.set_seed(1)
    net = nn.Dense(3, 2, weight_init="ones")
    train.fit(net, LOSS, nn.SGD(net.trainable_params(), 0.1), data, 1, batch_size=8, progress=False)
    return net.weight


def after_a_step(*batch):
    snncell.set_seed(1)
    net = nn.Dense(3, 2, weight_init="ones")
    train.training_step(net, LOSS, nn.SGD(net.trainable_params(), 0.1))(*batch)
    return net.weight


def numbers(means):
    return [means[name] for name in sorted(means)]


# All places that accept data, each with a function of the tested array constructor.
PLACES = {
    "Tensor": lambda f: Tensor(f(X)),
    "operation": lambda f: ops.exp(f(X)),
    "operator": lambda f: Tensor(X) * f(X),
    "fit, arrays": lambda f: weights_after((f(X), f(Y))),
    "fit, batches": lambda f: weights_after([(f(X), f(Y))]),
    "fit, batches of lists": lambda f: weights_after([[f(X), f(Y)]]),
    "fit, named tuples": lambda f: weights_after([Pair(f(X), f(Y))]),
    "fit, probabilities": lambda f: weights_after([(f(X), f(ONE_HOT))]),
    "evaluate, arrays": lambda f: numbers(train.evaluate(NET, LOSS, (f(X), f(Y)), batch_size=3)),
    "evaluate, batches": lambda f: numbers(train.evaluate(NET, LOSS, [(f(X[:5]), f(Y[:5])), (f(X[5:]), f(Y[5:]))])),
    "evaluate, a tuple": lambda f: numbers(train.evaluate(Joined(), LOSS, [((f(X), f(X)), f(Y))])),
    "evaluate, a list": lambda f: numbers(train.evaluate(Joined(), LOSS, [([f(X), f(X)], f(Y))])),
    "evaluate, a dict": lambda f: numbers(train.evaluate(Joined(), LOSS, [({"a": f(X), "b": f(X)}, f(Y))])),
    "evaluate, a named tuple": lambda f: numbers(train.evaluate(Joined(), LOSS, [(Pair(f(X), f(X)), f(Y))])),
    "evaluate, two inputs": lambda f: numbers(train.evaluate(Two(), LOSS, [(f(X), f(X), f(Y))])),
    "Batches": lambda f: next(iter(train.Batches(f(X), f(Y), batch_size=8, shuffle=False)))[0],
    "batches": lambda f: next(iter(snncell.data.batches(f(X), batch_size=8, shuffle=False)))[0],
    "training_step": lambda f: after_a_step(f(X), f(Y)),
    "measure": lambda f: train.measure(NET, LOSS)(f(X), f(Y))[0],
    "accuracy": lambda f: train.accuracy(Tensor(X[:, :2]), f(Y)),
    "accuracy, probabilities": lambda f: train.accuracy(Tensor(X[:, :2]), f(ONE_HOT)),
    "CrossEntropyLoss": lambda f: LOSS(f(X[:, :2]), f(Y)),
    "MSELoss": lambda f: nn.MSELoss()(f(X), f(X + 1)),
    "L1Loss": lambda f: nn.L1Loss()(Tensor(X), f(X + 1)),
    "CERateLoss": lambda f: nn.CERateLoss()(Tensor(X[None, :, :2]), f(Y)),
    "MSECountLoss": lambda f: nn.MSECountLoss()(Tensor(X[None, :, :2]), f(Y)),
    "MSETemporalLoss": lambda f: nn.MSETemporalLoss()(Tensor(X[None, :, :2]), f(Y)),
    "report": lambda f: parts((f(X), f(Y)))[0][0],
    "VanRossumLoss": lambda f: nn.VanRossumLoss()(Tensor(X[None]), f(X[None])),
}
# A list is not an array, so calls and traces treat it as a fixed Python value.
ARRAYS_ALONE = {
    "call": lambda f: NET(f(X)),
    "call by name": lambda f: NET(x=f(X)),
    "jit": lambda f: snncell.jit(lambda a: a * 2.0)(f(X)),
    "jit of a dict": lambda f: snncell.jit(lambda d: d["a"] * 2.0)({"a": f(X)}),
    "plots": lambda f: as_array(f(X), "f"),
}


class Joined(nn.Cell):
    """A net with a structure of two arrays as input."""

    def __init__(self):
        super().__init__()
        self.dense = nn.Dense(3, 2, weight_init="ones")

    def construct(self, both):
        a, b = both.values() if isinstance(both, dict) else both
        return self.dense(a) + self.dense(b)


class Two(nn.Cell):
    """A net with two arrays as inputs."""

    def __init__(self):
        super().__init__()
        self.dense = nn.Dense(3, 2, weight_init="ones")

    def construct(self, a, b):
        return self.dense(a) + self.dense(b)


def value(place, kind):
    snncell.set_seed(1)
    return np.asarray({**PLACES, **ARRAYS_ALONE}[place](KINDS[kind]))


OTHERS = [kind for kind in KINDS if kind != "NumPy"]
CASES = [(place, kind) for place in PLACES for kind in OTHERS]
CASES += [(place, kind) for place in ARRAYS_ALONE for kind in OTHERS if kind not in ("list", "tuple")]


@pytest.mark.sampled(37)
@pytest.mark.parametrize(("place", "kind"), CASES)
def test_each_kind_of_array_is_accepted_like_numpy_arrays(place, kind):
    if kind.startswith("torch"):
        pytest.importorskip("torch", reason="PyTorch is not installed")
    found, expected = value(place, kind), value(place, "NumPy")
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "int32", "int64", "uint8", "bool"])
@pytest.mark.parametrize("kind", ["Tensor", "DLPack", "__array__", "interface", "torch", "torch, strided"])
def test_foreign_arrays_keep_their_dtype(kind, dtype):
    if kind.startswith("torch"):
        pytest.importorskip("torch", reason="PyTorch is not installed")
    array = np.arange(6).reshape(2, 3).astype(dtype)
    for found in (Tensor(KINDS[kind](array)), nn.Flatten()(KINDS[kind](array)), as_data((KINDS[kind](array), 1))[0]):
        assert found.dtype.name == dtype
        np.testing.assert_array_equal(found, array)


def test_pytorch_loader_is_a_source_of_batches():
    data = pytest.importorskip("torch.utils.data", reason="PyTorch is not installed")
    pairs = data.TensorDataset(torch.tensor(X), torch.tensor(Y))
    found, expected = weights_after(data.DataLoader(pairs, batch_size=8)), weights_after([(X, Y)])
    np.testing.assert_array_equal(found, expected)
    rows = [(x, int(y)) for x, y in zip(X, Y, strict=True)]  # NumPy arrays and numbers, which it collates
    means = train.evaluate(NET, LOSS, data.DataLoader(rows, batch_size=3))
    assert means == pytest.approx(train.evaluate(NET, LOSS, (X, Y), batch_size=3))


def test_bfloat16_of_pytorch_stays_bfloat16():
    pytest.importorskip("torch", reason="PyTorch is not installed")
    x = torch.tensor(X).to(torch.bfloat16)
    for found in (Tensor(x), Tensor([x])[0], train.Batches(x, Y, shuffle=False).arrays[0]):
        np.testing.assert_array_equal(np.asarray(found).astype(np.float32), x.float().numpy())


def test_jitted_function_reads_the_present_values_of_foreign_arrays():
    pytest.importorskip("torch", reason="PyTorch is not installed")
    double, x = snncell.jit(lambda a: ops.exp(a) * 0.0 + a), torch.ones(3)
    assert double(x).tolist() == [1.0] * 3
    x.add_(1.0)
    assert double(x).tolist() == [2.0] * 3 and len(double.compiled) == 1


def test_is_array_recognises_arrays_of_other_libraries():
    there = [X, OfDLPack(X), OfArray(X), OfInterface(X), np.zeros(())]
    assert all(map(is_array, there))
    assert not any(map(is_array, [1, 1.0, "a", None, np.float32(1), [X], (X,), {"a": X}, Tensor(X), np.ndarray, NET]))
    tree = with_tensors({"a": [X, 1], "b": Pair(X, "c")})
    assert isinstance(tree["b"], Pair) and isinstance(tree["a"][0], Tensor) and tree["a"][1] == 1
    assert as_data([[1, 2], [3, 4]]).shape == (2, 2) and as_data(3).shape == ()
    assert [x.shape for x in as_data([X, [1.0, 2.0]])] == [(8, 3), (2,)]


class Keeps:
    """An array that does not export its elements."""

    def __array__(self, dtype=None, copy=None):
        raise RuntimeError("it is elsewhere")


def test_array_without_exportable_elements_raises_with_its_name():
    words = r"a test_foreign_arrays\.Keeps does not export its elements: it is else"
    with pytest.raises(errors.ArgumentError, match=words):
        Tensor(Keeps())
    with pytest.raises(errors.ArgumentError, match="Keeps does not export"):
        train.evaluate(NET, LOSS, [(Keeps(), Y)])


def test_pytorch_tensors_that_require_a_gradient_raise():
    pytest.importorskip("torch", reason="PyTorch is not installed")
    with pytest.raises(errors.ArgumentError, match=r"a torch\.Tensor does not .* require gradient, use tensor\.detach"):
        NET(torch.tensor(X, requires_grad=True))


BATCHES = {
    "a dict": ({"x": X, "y": Y}, r"not a dict of 2\. Convert dicts b to tuples .* yields \(b\['x'\], b\['y'\]\)"),
    "one array": (X, "not an? ndarray"),
    "no target": ((X,), "not a tuple of 1"),
    "a target that is a dict": ((X, {"y": Y}), "ends with its target, .* not with a dict"),
    "a target that is a number": ((X, 1), r"ends with its target, .* not with a int\(\)"),
    "nothing": (None, "not a NoneType"),
}


@pytest.mark.parametrize("name", BATCHES)
def test_invalid_batches_raise(name):
    batch, message = BATCHES[name]
    with pytest.raises(errors.ArgumentError, match=message):
        train.evaluate(NET, LOSS, [batch])


# --- accuracy of probabilities ----------------------------------------------------------------------------------------

TIMES = RNG.normal(size=(5, 8, 2)).astype(np.float32)


@pytest.mark.sampled(12)
@pytest.mark.parametrize("outputs", [TIMES[0], TIMES, (TIMES, TIMES)], ids=["(B, C)", "(T, B, C)", "a tuple"])
@pytest.mark.parametrize(
    "labels",
    [ONE_HOT, ONE_HOT.astype(np.float16), ONE_HOT.astype(np.int64), ONE_HOT.astype(bool), 0.8 * ONE_HOT + 0.1],
    ids=["float32", "float16", "int64", "bool", "smoothed"],
)
def test_accuracy_of_probabilities_equals_that_of_class_numbers(outputs, labels):
    for measured in (train.accuracy, snncell.jit(train.accuracy)):
        assert measured(outputs, labels).item() == train.accuracy(outputs, Y).item()


@pytest.mark.parametrize("labels", [3.0 * ONE_HOT, ONE_HOT - 0.5, 0.0 * ONE_HOT, np.stack([2 - Y, Y - 1], 1)])
def test_accuracy_of_targets_that_are_not_probabilities_raises(labels):
    for measured in (train.accuracy, snncell.jit(train.accuracy)):
        with pytest.raises(errors.ArgumentError, match=r"accuracy: .* add up to 1 .* give accuracy=None"):
            measured(TIMES[0], labels)


def test_accuracy_of_a_single_output_raises():
    with pytest.raises(errors.DTypeError, match="measure something else: accuracy=None"):
        train.evaluate(nn.Dense(3, 1), nn.MSELoss(), (X, np.ones((8, 1), np.float32)))
