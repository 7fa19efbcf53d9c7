"""Parameters: assignment, copies of Parameters and of their Cells, and repr."""

import copy
import pickle

import numpy as np
import pytest
from cells import Leaf

from snncell import Parameter, ParameterTuple, Tensor, nn, ops
from snncell.errors import AssignError, DTypeError, ParameterError, ShapeError, TensorIndexError

# --- assignment -------------------------------------------------------------------------------------------------------


@pytest.fixture
def p():
    return Parameter(Tensor([1.0, 2.0, 3.0]), name="p")


def test_set_data_copies_its_argument(p):
    new = np.ones(3, np.float32)
    assert p.set_data(new) is p
    new[0] = 100.0
    assert p.asnumpy().tolist() == [1.0, 1.0, 1.0]
    other = Parameter(Tensor([5.0, 5.0, 5.0]), name="other")
    p.set_data(other)
    other[0] = 0.0
    assert p.asnumpy().tolist() == [5.0, 5.0, 5.0]


@pytest.mark.parametrize("write", [Parameter.set_data, ops.assign], ids=["set_data", "assign"])
def test_assigning_another_shape_raises(p, write):
    with pytest.raises(ValueError, match=r"'p' has shape \(3,\), the new value \(4,\)"):
        write(p, ops.ones(4))
    with pytest.raises(ShapeError, match=r"the new value \(1, 3\)"):
        write(p, ops.ones((1, 3)))
    assert p.asnumpy().tolist() == [1.0, 2.0, 3.0]


@pytest.mark.parametrize("write", [Parameter.set_data, ops.assign], ids=["set_data", "assign"])
def test_assigning_with_a_lossy_cast_raises(p, write):
    with pytest.raises(
        TypeError, match=r"Float64 values do not fit Parameter 'p' of dtype Float32.*astype\('float32'\)"
    ):
        write(p, Tensor(np.ones(3)))
    counter = Parameter(Tensor([1, 2]), name="n")
    with pytest.raises(DTypeError, match="Float32 values do not fit Parameter 'n' of dtype Int64"):
        write(counter, Tensor([1.0, 2.0]))
    assert p.asnumpy().tolist() == [1.0, 2.0, 3.0] and counter.asnumpy().tolist() == [1, 2]


@pytest.mark.parametrize("write", [Parameter.set_data, ops.assign], ids=["set_data", "assign"])
def test_lossless_assignment_keeps_the_parameter_dtype(p, write):
    write(p, Tensor([3, 4, 5]))
    assert p.dtype == "float32" and p.asnumpy().tolist() == [3.0, 4.0, 5.0]
    write(p, Tensor(np.ones(3, np.float16)))
    assert p.dtype == "float32" and p.asnumpy().tolist() == [1.0, 1.0, 1.0]
    write(p, [7.0, 8.0, 9.0])
    assert p.asnumpy().tolist() == [7.0, 8.0, 9.0]


def test_assign_accepts_only_parameters():
    with pytest.raises(DTypeError, match="variable is a Parameter, not a Tensor"):
        ops.assign(Tensor([1.0]), Tensor([2.0]))


def test_assign_add_adds_to_the_parameter(p):
    ops.assign_add(p, Tensor([1.0, 1.0, 1.0]))
    assert p.asnumpy().tolist() == [2.0, 3.0, 4.0]


def test_index_assignment_does_not_change_earlier_results(p):
    view, before = p.asnumpy(), p * 1.0
    p[1:] = 0.0
    p[0] = Tensor(9.0)
    assert p.asnumpy().tolist() == [9.0, 0.0, 0.0]
    assert view.tolist() == before.asnumpy().tolist() == [1.0, 2.0, 3.0]
    p[np.array([True, False, True])] = 4.0
    assert p.asnumpy().tolist() == [4.0, 0.0, 4.0]


def test_index_assignment_of_another_shape_raises(p):
    with pytest.raises(TensorIndexError, match=r"'p' of shape \(3,\).*index 5"):
        p[5] = 1.0
    with pytest.raises(ShapeError, match=r"'p' of shape \(3,\)"):
        p[:] = [1.0, 2.0]
    assert p.asnumpy().tolist() == [1.0, 2.0, 3.0]


def test_index_assignment_with_a_lossy_cast_raises():
    n = Parameter(Tensor([1, 2]), name="n")
    with pytest.raises(DTypeError, match="'n'"):
        n[0] = Tensor(2.7)
    assert n.asnumpy().tolist() == [1, 2]


def test_assignment_while_recording_a_gradient_raises(p):
    def set_it(x):
        p.set_data(ops.zeros(3))
        return x

    def index_it(x):
        p[0] = 1.0
        return x

    for fn in (set_it, index_it):
        with pytest.raises(AssignError, match=r"'p' is written while a gradient is being recorded"):
            ops.grad(fn)(Tensor([1.0]))
    p.requires_grad = False
    ops.grad(set_it)(Tensor([1.0]))
    assert not p.asnumpy().any()


def test_index_assignment_to_a_tensor_raises():
    with pytest.raises(AssignError, match="You cannot write to a Tensor"):
        Tensor([1.0])[0] = 2.0


def test_array_of_a_parameter_is_read_only(p):
    with pytest.raises(ValueError, match="read-only"):
        p.asnumpy()[0] = 1.0


# --- ParameterTuple, copies -------------------------------------------------------------------------------------------


def test_clone_has_new_names_and_independent_values(p):
    frozen = Parameter(Tensor([1]), name="n", requires_grad=False)
    copies = ParameterTuple((p, frozen)).clone("copy")
    assert type(copies) is ParameterTuple
    assert [(c.name, c.requires_grad) for c in copies] == [("copy.p", True), ("copy.n", False)]
    copies[0][0] = 100.0
    assert p.asnumpy()[0] == 1.0


def test_parameter_tuple_accepts_only_parameters():
    with pytest.raises(ParameterError, match="element 1 of parameters is a Tensor"):
        ParameterTuple((Parameter(1.0), Tensor(1.0)))


@pytest.mark.parametrize(
    "how", [copy.deepcopy, lambda net: pickle.loads(pickle.dumps(net))], ids=["deepcopy", "pickle"]
)
def test_copies_of_a_cell_are_complete_and_independent(how):
    net = nn.SequentialCell(nn.Dense(3, 4), nn.BatchNorm1d(4), nn.Dense(4, 2))
    net.set_train()
    x = Tensor(np.random.default_rng(0).standard_normal((5, 3)).astype(np.float32))
    twin = how(net)
    assert repr(twin) == repr(net) and list(twin.parameters_dict()) == list(net.parameters_dict())
    assert [p.name for p in twin.get_parameters()] == [p.name for p in net.get_parameters()]
    assert [p.requires_grad for p in twin.get_parameters()] == [p.requires_grad for p in net.get_parameters()]
    assert twin.phase == "train"
    np.testing.assert_array_equal(twin(x).asnumpy(), net(x).asnumpy())
    twin[0].weight[0, 0] = 100.0
    assert net[0].weight.asnumpy()[0, 0] != 100.0
    found = ops.grad(twin, 0, twin.trainable_params())(x)
    assert len(found[1]) == 6
    nn.SGD(twin.trainable_params(), 0.1)


@pytest.mark.parametrize(
    "how", [copy.deepcopy, lambda net: pickle.loads(pickle.dumps(net))], ids=["deepcopy", "pickle"]
)
def test_copies_keep_sharing(how):
    a, b = Leaf(), Leaf()
    b.w = a.w
    twin = how(nn.SequentialCell(a, b, a))
    assert twin[0].w is twin[1].w and twin[0] is twin[2] and twin[0].w is not a.w


def test_copy_of_a_cell_with_custom_gradient_has_new_parameters():
    class Scaled(nn.Cell):
        def __init__(self):
            super().__init__()
            self.w = Parameter(Tensor([2.0]))
            self.internal_params = [self.w]

        def construct(self, x):
            return x * self.w

        def bprop(self, x, out, dout):
            return (dout * self.w,), {self.w: dout * x}

    twin = copy.deepcopy(Scaled())
    assert twin.internal_params[0] is twin.w
    assert ops.grad(twin, None, twin.w)(Tensor([3.0])).asnumpy().tolist() == [3.0]


def test_copies_of_a_parameter_and_a_tensor_are_independent(p):
    for twin in (copy.deepcopy(p), copy.copy(p), pickle.loads(pickle.dumps(p))):
        assert type(twin) is Parameter and twin.name == "p" and twin.asnumpy().tolist() == p.asnumpy().tolist()
        twin[0] = 50.0
        assert p.asnumpy()[0] == 1.0
    t = Tensor(np.ones((2, 2), np.float16))
    for twin in (copy.deepcopy(t), pickle.loads(pickle.dumps(t))):
        assert type(twin) is Tensor and twin.dtype == "float16" and twin.asnumpy().tolist() == [[1, 1], [1, 1]]


# --- repr -------------------------------------------------------------------------------------------------------------


def test_repr_shows_the_tree_and_the_settings():
    net = nn.SequentialCell(nn.Dense(3, 4), nn.SequentialCell(nn.Dropout(p=0.25), nn.ReLU()))
    assert repr(net) == (
        "SequentialCell(\n"
        "  (0): Dense(input_channels=3, output_channels=4, has_bias=True)\n"
        "  (1): SequentialCell(\n"
        "    (0): Dropout(p=0.25)\n"
        "    (1): ReLU()\n"
        "  )\n"
        ")"
    )


def test_repr_of_a_parameter_shows_name_and_value():
    assert (
        repr(Parameter(ops.ones((5, 3)), name="w"))
        == "Parameter (name=w, shape=(5, 3), dtype=Float32, requires_grad=True)"
    )
