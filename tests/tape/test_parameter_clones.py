"""Parameters in MindSpore's API: clones with initial values, settings, and initialisers by name and as classes."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

import snncell as ms
from snncell import Parameter, ParameterTuple, Tensor, nn
from snncell.common import initializer as rules
from snncell.common.initializer import initializer
from snncell.errors import AssignError, ParameterError, SnncellError


@pytest.fixture
def p() -> Parameter:
    return Parameter(Tensor([[1.0, 2.0], [3.0, 4.0]]), name="w", layerwise_parallel=True)


@pytest.mark.parametrize(
    ("init", "expected"),
    [
        ("same", [[1.0, 2.0], [3.0, 4.0]]),
        ("zeros", [[0.0, 0.0], [0.0, 0.0]]),
        ("ones", [[1.0, 1.0], [1.0, 1.0]]),
        (rules.One(), [[1.0, 1.0], [1.0, 1.0]]),
        (2, [[2.0, 2.0], [2.0, 2.0]]),
        (0.5, [[0.5, 0.5], [0.5, 0.5]]),
        (Tensor([[5.0, 6.0], [7.0, 8.0]]), [[5.0, 6.0], [7.0, 8.0]]),
        ("identity", [[1.0, 0.0], [0.0, 1.0]]),
    ],
)
def test_clone_keeps_name_and_settings_and_has_the_requested_value(p, init, expected):
    p.requires_grad = False
    for found in (p.clone(init), p.clone(init=init)):
        assert found.tolist() == expected and found.dtype == p.dtype and found is not p
        assert (found.name, found.requires_grad, found.layerwise_parallel) == ("w", False, True)
    found[0, 0] = 9.0
    assert p[0, 0].item() == 1.0


def test_random_clones_are_drawn_anew(p):
    ms.set_seed(1)
    drawn = p.clone("normal")
    ms.set_seed(1)
    np.testing.assert_array_equal(drawn.asnumpy(), initializer("normal", (2, 2)).asnumpy())
    assert p.clone("xavier_uniform").tolist() != p.clone("xavier_uniform").tolist()


@pytest.mark.parametrize(
    ("init", "text"),
    [
        ("nothing", "its name .*, not .nothing."),
        (Tensor([1.0]), r"has shape \(1,\), not \(2, 2\)"),
        (None, "not None"),
    ],
)
def test_invalid_clone_values_raise(p, init, text):
    with pytest.raises(SnncellError, match=text):
        p.clone(init)


def test_tuple_is_cloned_with_a_prefix(p):
    both = ParameterTuple([p, Parameter([1.0], name="b", requires_grad=False)])
    found = both.clone("opt", init="zeros")
    assert [q.name for q in found] == ["opt.w", "opt.b"] and [q.requires_grad for q in found] == [True, False]
    assert [q.tolist() for q in found] == [[[0.0, 0.0], [0.0, 0.0]], [0.0]] and both[0].name == "w"
    assert [q.tolist() for q in both.clone("m")] == [q.tolist() for q in both]
    for prefix in ("", None, 3):
        with pytest.raises(SnncellError, match="prefix is a str that is not empty"):
            both.clone(prefix)


def test_settings_are_stored():
    q = Parameter([1.0], "q", True, False, False, "NCHW", "CPU")
    assert (q.layerwise_parallel, q.parallel_optimizer, q.storage_format) == (False, False, "NCHW")
    assert q.device == "cpu" and Parameter([1.0]).parallel_optimizer and copy.copy(q).tolist() == [1.0]
    with pytest.raises(SnncellError, match="Parameter"):
        Parameter([1.0], device="mars")
    with pytest.raises(SnncellError, match="slice_shape=True is for parts"):
        q.set_data([1.0, 2.0], slice_shape=True)


def test_requires_grad_must_be_a_boolean(p):
    for wrong in (1, 0.0, "no", None):
        with pytest.raises(SnncellError, match="requires_grad is True or False"):
            p.requires_grad = wrong
    p.requires_grad = False
    assert not p.requires_grad


@pytest.mark.parametrize("name", ["sliced", "unique", "key", "inited_param", "layerwise_parallel", "storage_format"])
def test_cluster_settings_are_stored_without_effect(p, name):
    assert hasattr(Parameter(1.0), name)
    setattr(p, name, "mine")
    assert getattr(p, name) == "mine" and getattr(Parameter(1.0), name) != "mine"
    assert (p.param_info.name, p.param_info.requires_grad) == ("w", True)


@pytest.mark.parametrize(
    ("number", "dtype"),
    [
        (3, ms.int32),
        (-(2**31), ms.int32),
        (2**31, ms.int64),
        (0.5, ms.float32),
        ([3], ms.int64),
        (np.int64(3), ms.int64),
    ],
)
def test_number_becomes_a_32_bit_parameter(number, dtype):
    p = Parameter(number, name="n")
    assert p.dtype == dtype and p.tolist() == number
    for flag in (True, False):
        with pytest.raises(
            ParameterError, match=rf"default_input is a number or an array, not {flag}.* Tensor\({flag}\)"
        ):
            Parameter(flag)
    assert Parameter(Tensor(True)).dtype == ms.bool_


def test_copies_assignment_and_lazy_values_work(p):
    found = p.copy()
    assert isinstance(found, Parameter) and found.name == "w" and found.tolist() == p.tolist()
    assert found.assign_value(Tensor([[0.0, 0.0], [0.0, 1.0]])) is found and found.sum().item() == 1.0
    lazy = Parameter(initializer("ones", [2, 3], ms.float32), name="lazy")
    assert lazy.init_data() is lazy and lazy.tolist() == [[1.0] * 3] * 2
    assert initializer("ones", (2,)).init_data().tolist() == [1.0, 1.0]
    with pytest.raises(AssignError, match="cannot be modified"):
        Tensor([1.0]).assign_value(1.0)
    assert p.value() is not p and type(p.value()) is Tensor


@pytest.mark.parametrize("dtype", [ms.float16, ms.float32, ms.float64, ms.int32], ids=repr)
@pytest.mark.parametrize(
    "init",
    ["ones", rules.One(), 1, 1.0, initializer("ones", (2, 3)), "normal", rules.Normal(2.0), "he_uniform"],
    ids=lambda rule: rule if isinstance(rule, str) else f"{type(rule).__name__}",
)
def test_tensor_is_created_from_a_shape_and_an_initialiser(init, dtype):
    """MindSpore's way to specify initial values, as in `initializer`: drawn at once, also for a Parameter."""
    ms.set_seed(3)
    expected = initializer(init, (2, 3), dtype)
    ms.set_seed(3)
    for shape in ((2, 3), [2, 3]):
        ms.set_seed(3)
        found = Tensor(shape=shape, dtype=dtype, init=init)
        assert (found.shape, found.dtype) == ((2, 3), dtype) and found.tolist() == expected.tolist()
        assert Parameter(found.init_data(), name="w").tolist() == found.tolist()


def test_tensor_accepts_data_input_data_and_a_device():
    for made in (
        Tensor([1.0], ms.float16),
        Tensor(data=[1.0], dtype=ms.float16),
        Tensor(input_data=[1.0], dtype="float16"),
    ):
        assert made.tolist() == [1.0] and made.dtype == ms.float16
    assert Tensor(input_data=[1.0], const_arg=True, device="CPU").device == "cpu"


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: Tensor(shape=(2,), dtype=ms.float32), "init is missing"),
        (lambda: Tensor(shape=(2,), init="ones"), "dtype is missing"),
        (lambda: Tensor(dtype=ms.float32, init="ones"), "shape is missing"),
        (lambda: Tensor(init="ones"), "shape and dtype is missing"),
        (lambda: Tensor([1.0], shape=(1,)), "data is given twice, or together with shape"),
        (
            lambda: Tensor(input_data=[1.0], shape=(1,), dtype=ms.float32, init="ones"),
            "data is given twice, or together with shape",
        ),
        (lambda: Tensor([1.0], input_data=[1.0]), "data is given twice"),
        (lambda: Tensor(shape=(2,), dtype=ms.float32, init="nothing"), "init .*not 'nothing'"),
        (lambda: Tensor(shape=(2,), dtype=ms.float32, init=initializer("ones", (3,))), "has shape"),
        (lambda: Tensor(shape=(-2,), dtype=ms.float32, init="ones"), "-2"),
        (lambda: Tensor(), "Tensor: data: "),
        (lambda: Tensor([1.0], device="Ascend"), "device must be .* not 'Ascend'"),
        (lambda: Tensor([1.0]).init_data(shape=(3,)), r"init_data: .* with shape \(1,\)"),
        (lambda: Tensor([1.0]).init_data(0), "init_data: a Tensor is not split"),
    ],
)
def test_tensor_with_an_incomplete_description_raises(call, text):
    with pytest.raises(SnncellError, match=text):
        call()


# --- initialisers -----------------------------------------------------------------------------------------------------

CLASSES: list[tuple[Any, tuple[int, ...], float, float]] = [  # an initialiser, a shape, and the expected deviation
    (rules.XavierUniform(gain=2), (300, 200), 2 * (2 / 500) ** 0.5, 0.0),
    (rules.XavierNormal(), (300, 200), (2 / 500) ** 0.5, 0.0),
    (rules.HeUniform(), (300, 200), (2 / 200) ** 0.5, 0.0),
    (rules.HeNormal(mode="fan_out", nonlinearity="relu"), (300, 200), (2 / 300) ** 0.5, 0.0),
    (rules.Normal(0.5, 1.0), (300, 200), 0.5, 1.0),
    (rules.Uniform(0.07), (300, 200), 0.07 / 3**0.5, 0.0),
    (rules.TruncatedNormal(2.0), (300, 200), 2.0 * 0.8796256610342398, 0.0),
    (rules.VarianceScaling(2.0), (300, 200), (2 / 200) ** 0.5, 0.0),
    (rules.VarianceScaling(1.0, "fan_avg", "uniform"), (300, 200), (1 / 250) ** 0.5, 0.0),
    (rules.VarianceScaling(1.0, "fan_out", "untruncated_normal"), (300, 200), (1 / 300) ** 0.5, 0.0),
]


@pytest.mark.parametrize(("init", "shape", "deviation", "mean"), CLASSES, ids=lambda x: type(x).__name__)
def test_initialisers_have_the_expected_deviation(init, shape, deviation, mean):
    values = initializer(init, shape, ms.float64).asnumpy()
    n = values.size
    assert abs(values.mean() - mean) < 6 * deviation / n**0.5
    assert abs(values.std() / deviation - 1) < 6 / n**0.5
    layer = nn.Dense(200, 300, weight_init=init)
    assert layer.weight.shape == (300, 200)


def test_truncated_normals_stay_within_their_bounds():
    values = rules.TruncatedNormal(2.0, 1.0, -0.5, 1.5)((1000,))
    assert values.min() >= 1.0 - 0.5 * 2.0 and values.max() <= 1.0 + 1.5 * 2.0 and values.min() < 0.05
    for bounds in ((2.0, 1.0), (8.0, 9.0)):
        with pytest.raises(SnncellError, match="leave a thousandth of the distribution, or less"):
            rules.TruncatedNormal(1.0, 0.0, *bounds)


def test_dirac_passes_channels_through():
    kernel = rules.Dirac()((4, 3, 3, 3))
    image = np.random.default_rng(0).normal(size=(1, 3, 5, 5)).astype(np.float32)
    out = ms.ops.conv2d(Tensor(image), Tensor(kernel, "float32"), pad_mode="same").asnumpy()
    np.testing.assert_array_equal(out[:, :3], image)
    assert not out[:, 3].any()
    grouped = rules.Dirac(2)((4, 2, 3))
    assert [tuple(i) for i in np.argwhere(grouped)] == [(0, 0, 1), (1, 1, 1), (2, 0, 1), (3, 1, 1)]
    with pytest.raises(SnncellError, match="'dirac' needs a kernel of 3 to 5 axes"):
        rules.Dirac()((3, 3))


def test_sparse_sets_a_fraction_of_each_column_to_0():
    values = rules.Sparse(0.3, 1.0)((10, 50))
    assert ((values == 0).sum(0) == 3).all() and values.std() > 0.5
    assert len({tuple(np.flatnonzero(column == 0)) for column in values.T}) > 10
    with pytest.raises(SnncellError, match="'sparse' needs a matrix"):
        rules.Sparse(0.3)((10,))


@pytest.mark.parametrize("name", ["zeros", "One", "XavierUniform", "xavier_uniform", "HeNormal", "truncatedNormal"])
def test_initialisers_are_found_by_name(name):
    assert initializer(name, (3, 4)).shape == (3, 4)


def test_custom_initialisers_write_into_an_array_or_return_one():
    class Ramp(rules.Initializer):
        def _initialize(self, arr):
            arr[:] = np.arange(arr.size).reshape(arr.shape) * self._kwargs["step"]

    class Twos(rules.Initializer):
        def __call__(self, shape):
            return np.full(shape, 2.0)

    class Nothing(rules.Initializer):
        pass

    assert initializer(Ramp(step=0.5), (2, 2)).tolist() == [[0.0, 0.5], [1.0, 1.5]]
    assert nn.Dense(2, 1, weight_init=Ramp(step=1)).weight.tolist() == [[0.0, 1.0]]
    assert Tensor(shape=(2,), dtype=ms.float16, init=Twos()).tolist() == [2.0, 2.0]
    with pytest.raises(SnncellError, match=r"Nothing: an Initializer must define _initialize\(self, arr\)"):
        initializer(Nothing(), (2,))
