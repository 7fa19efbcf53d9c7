"""Cells and Parameters: paths, names, sharing, training state, copies, and how they print."""

import copy
import pickle

import numpy as np
import pytest

import snncell
from snncell import Parameter, ParameterTuple, Tensor, nn, ops
from snncell.errors import AssignError, DTypeError, ParameterError, ShapeError, SnncellError, TensorIndexError


class Branch(nn.Cell):
    def __init__(self):
        super().__init__()
        self.first = Leaf()
        self.own = Parameter(Tensor([1.0]))
        self.second = Leaf()


class Leaf(nn.Cell):
    def __init__(self):
        super().__init__()
        self.w = Parameter(Tensor([1.0, 2.0]))
        self.b = Parameter(Tensor([0.0]), requires_grad=False)

    def construct(self, x):
        return x * self.w + self.b


class Root(nn.Cell):
    def __init__(self):
        super().__init__()
        self.mid = Branch()
        self.top = Parameter(Tensor([1.0]))
        self.seq = nn.SequentialCell(nn.Dense(2, 2), Leaf())


PATHS = [
    "top",
    "mid.own",
    "mid.first.w",
    "mid.first.b",
    "mid.second.w",
    "mid.second.b",
    "seq.0.weight",
    "seq.0.bias",
    "seq.1.w",
    "seq.1.b",
]


# --- paths and names -------------------------------------------------------------------------------------------------


def test_own_parameters_come_first_then_the_children_depth_first():
    net = Root()
    assert [path for path, _ in net.parameters_and_names()] == PATHS
    assert list(net.parameters_dict()) == PATHS
    assert len(list(net.get_parameters())) == len(PATHS)


def test_trainable_and_untrainable_parameters():
    net = Root()
    assert len(net.trainable_params()) == 7 and len(net.untrainable_params()) == 3
    net.set_grad(False)
    assert net.trainable_params() == []
    net.set_grad()
    assert len(net.trainable_params()) == len(PATHS)


def test_cells_by_path():
    net = Root()
    assert [path for path, _ in net.cells_and_names()] == [
        "",
        "mid",
        "mid.first",
        "mid.second",
        "seq",
        "seq.0",
        "seq.1",
    ]
    assert net.cells() == [net.mid, net.seq] and list(net.name_cells()) == ["mid", "seq"]


def test_own_parameters_alone():
    assert [path for path, _ in Root().parameters_and_names(expand=False)] == ["top"]


def test_an_attribute_gives_its_name_to_a_parameter_without_one():
    leaf = Leaf()
    assert leaf.w.name == "w"
    leaf.other = Parameter(Tensor([1.0]), name="mine")
    assert leaf.other.name == "mine" and "other" in leaf.parameters_dict()


def test_wrapping_does_not_rename():
    leaf = Leaf()
    net = nn.SequentialCell(nn.SequentialCell(leaf), nn.Dense(2, 2))
    assert leaf.w.name == "w" and net.parameters_dict()["0.0.w"] is leaf.w


def test_update_parameters_name_is_the_one_way_to_rename():
    net = Branch()
    net.update_parameters_name("left.")
    assert [p.name for p in net.get_parameters()] == ["left.own", "left.w", "left.b", "left.w", "left.b"]


@pytest.mark.parametrize("container", [list, tuple])
def test_lists_and_tuples_of_cells_and_parameters_are_registered(container):
    net = nn.Cell()
    net.layers = container([Leaf(), Leaf()])
    net.scales = container([Parameter(Tensor([1.0])), Parameter(Tensor([2.0]))])
    assert list(net.parameters_dict()) == [
        "scales.0",
        "scales.1",
        "layers.0.w",
        "layers.0.b",
        "layers.1.w",
        "layers.1.b",
    ]
    assert [p.name for p in net.scales] == ["scales.0", "scales.1"]
    net.set_train()
    assert all(layer.training for layer in net.layers)


def test_a_replaced_or_deleted_attribute_is_registered_no_more():
    net = Branch()
    net.first = nn.Dense(1, 1)
    assert "first.weight" in net.parameters_dict() and "first.w" not in net.parameters_dict()
    del net.second
    assert not any(path.startswith("second") for path in net.parameters_dict())


def test_internal_params_lists_no_parameter_twice():
    leaf = Leaf()
    leaf.internal_params = [leaf.w]
    assert list(leaf.parameters_dict()) == ["w", "b"]


def test_a_cell_without_super_init_says_what_is_missing():
    class Forgetful(nn.Cell):
        def __init__(self):
            self.w = Parameter(Tensor([1.0]))

    with pytest.raises(SnncellError, match=r"Forgetful: call super\(\).__init__\(\) before setting self\.w"):
        Forgetful()


def test_a_cell_without_construct_says_so():
    with pytest.raises(SnncellError, match="Branch has no method construct"):
        Branch()(Tensor([1.0]))


# --- sharing ---------------------------------------------------------------------------------------------------------


def test_a_shared_cell_is_listed_once_and_its_gradients_add_up():
    leaf = Leaf()
    net = nn.SequentialCell(leaf, leaf)
    assert list(net.parameters_dict()) == ["0.w", "0.b"]
    assert [path for path, _ in net.cells_and_names()] == ["", "0"]
    # b = 0, so y = w^2 x and dy/dw = 2 w x
    assert ops.grad(net, None, leaf.w)(Tensor([3.0, 3.0])).asnumpy().tolist() == [6.0, 12.0]


def test_a_shared_parameter_is_listed_once_and_its_gradients_add_up():
    a, b = Leaf(), Leaf()
    b.w = a.w
    net = nn.SequentialCell(a, b)
    assert list(net.parameters_dict()) == ["0.w", "0.b", "1.b"]
    assert ops.grad(net, None, a.w)(Tensor([3.0, 3.0])).asnumpy().tolist() == [6.0, 12.0]
    nn.SGD(net.trainable_params(), 0.1)


def test_cells_that_hold_each_other_are_walked_once():
    a, b = Leaf(), Leaf()
    a.other, b.other = b, a
    assert list(a.parameters_dict()) == ["w", "b", "other.w", "other.b"]


# --- equal names -----------------------------------------------------------------------------------------------------


def clashing():
    net = nn.Cell()
    net.left = Parameter(Tensor([1.0]), name="same")
    net.right = Parameter(Tensor([2.0]), name="same")
    return net


def test_equal_names_are_refused_by_an_optimiser_naming_both():
    with pytest.raises(ParameterError, match=r"SGD.*Cell\.left.*Cell\.right.*'same'"):
        nn.SGD(clashing().trainable_params(), 0.1)
    loose = [Parameter(Tensor([1.0]), name="same") for _ in range(2)]
    with pytest.raises(ParameterError, match=r"Adam.*element 0.*element 1.*'same'"):
        nn.Adam(loose)


def test_equal_names_are_refused_at_save_naming_both(tmp_path):
    with pytest.raises(ParameterError, match=r"save_checkpoint.*left.*right.*'same'"):
        snncell.save_checkpoint(clashing(), tmp_path / "net.ckpt")
    assert list(tmp_path.iterdir()) == []


def test_the_same_name_in_different_cells_is_no_clash(tmp_path):
    net = Root()
    nn.SGD(net.trainable_params(), 0.1)
    snncell.save_checkpoint(net, tmp_path / "net.ckpt")


# --- training state --------------------------------------------------------------------------------------------------


def test_a_fresh_cell_predicts():
    assert (nn.Cell().training, nn.Cell().phase) == (False, "predict")


def test_set_train_reaches_all_cells_below():
    net = Root()
    assert net.set_train() is net
    assert {cell.phase for _, cell in net.cells_and_names()} == {"train"}
    net.mid.set_train(False)
    assert net.phase == "train" and net.mid.first.phase == "predict" and net.seq[0].training


# --- writing to Parameters -------------------------------------------------------------------------------------------


@pytest.fixture
def p():
    return Parameter(Tensor([1.0, 2.0, 3.0]), name="p")


def test_set_data_copies(p):
    new = np.ones(3, np.float32)
    assert p.set_data(new) is p
    new[0] = 100.0
    assert p.asnumpy().tolist() == [1.0, 1.0, 1.0]
    other = Parameter(Tensor([5.0, 5.0, 5.0]), name="other")
    p.set_data(other)
    other[0] = 0.0
    assert p.asnumpy().tolist() == [5.0, 5.0, 5.0]


@pytest.mark.parametrize("write", [Parameter.set_data, ops.assign], ids=["set_data", "assign"])
def test_writes_of_another_shape_are_refused(p, write):
    with pytest.raises(ValueError, match=r"'p' has shape \(3,\), the new value \(4,\)"):
        write(p, ops.ones(4))
    with pytest.raises(ShapeError, match=r"the new value \(1, 3\)"):
        write(p, ops.ones((1, 3)))
    assert p.asnumpy().tolist() == [1.0, 2.0, 3.0]


@pytest.mark.parametrize("write", [Parameter.set_data, ops.assign], ids=["set_data", "assign"])
def test_writes_that_would_lose_values_are_refused(p, write):
    with pytest.raises(
        TypeError, match=r"Float64 values do not fit Parameter 'p' of dtype Float32.*astype\('float32'\)"
    ):
        write(p, Tensor(np.ones(3)))
    counter = Parameter(Tensor([1, 2]), name="n")
    with pytest.raises(DTypeError, match="Float32 values do not fit Parameter 'n' of dtype Int64"):
        write(counter, Tensor([1.0, 2.0]))
    assert p.asnumpy().tolist() == [1.0, 2.0, 3.0] and counter.asnumpy().tolist() == [1, 2]


@pytest.mark.parametrize("write", [Parameter.set_data, ops.assign], ids=["set_data", "assign"])
def test_writes_that_lose_nothing_keep_the_parameters_dtype(p, write):
    write(p, Tensor([3, 4, 5]))
    assert p.dtype == "float32" and p.asnumpy().tolist() == [3.0, 4.0, 5.0]
    write(p, Tensor(np.ones(3, np.float16)))
    assert p.dtype == "float32" and p.asnumpy().tolist() == [1.0, 1.0, 1.0]
    write(p, [7.0, 8.0, 9.0])
    assert p.asnumpy().tolist() == [7.0, 8.0, 9.0]


def test_assign_is_for_parameters():
    with pytest.raises(DTypeError, match="first argument is a Parameter, not a Tensor"):
        ops.assign(Tensor([1.0]), Tensor([2.0]))


def test_assign_add(p):
    ops.assign_add(p, Tensor([1.0, 1.0, 1.0]))
    assert p.asnumpy().tolist() == [2.0, 3.0, 4.0]


def test_index_writes_leave_earlier_results_alone(p):
    view, before = p.asnumpy(), p * 1.0
    p[1:] = 0.0
    p[0] = Tensor(9.0)
    assert p.asnumpy().tolist() == [9.0, 0.0, 0.0]
    assert view.tolist() == before.asnumpy().tolist() == [1.0, 2.0, 3.0]
    p[np.array([True, False, True])] = 4.0
    assert p.asnumpy().tolist() == [4.0, 0.0, 4.0]


def test_index_writes_that_do_not_fit(p):
    with pytest.raises(TensorIndexError, match=r"'p' of shape \(3,\).*index 5"):
        p[5] = 1.0
    with pytest.raises(ShapeError, match=r"'p' of shape \(3,\)"):
        p[:] = [1.0, 2.0]
    assert p.asnumpy().tolist() == [1.0, 2.0, 3.0]


def test_index_writes_refuse_lossy_casts_as_set_data_does():
    n = Parameter(Tensor([1, 2]), name="n")
    with pytest.raises(DTypeError, match="'n'"):
        n[0] = Tensor(2.7)
    assert n.asnumpy().tolist() == [1, 2]


def test_writes_while_a_gradient_is_recorded_are_refused(p):
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


def test_a_tensor_cannot_be_written_to():
    with pytest.raises(AssignError, match="Tensor's values do not change"):
        Tensor([1.0])[0] = 2.0


def test_an_array_handed_out_is_read_only(p):
    with pytest.raises(ValueError, match="read-only"):
        p.asnumpy()[0] = 1.0


# --- ParameterTuple, copies ------------------------------------------------------------------------------------------


def test_a_clone_has_new_names_and_values_of_its_own(p):
    frozen = Parameter(Tensor([1]), name="n", requires_grad=False)
    copies = ParameterTuple((p, frozen)).clone("copy")
    assert type(copies) is ParameterTuple
    assert [(c.name, c.requires_grad) for c in copies] == [("copy.p", True), ("copy.n", False)]
    copies[0][0] = 100.0
    assert p.asnumpy()[0] == 1.0


def test_a_parameter_tuple_holds_parameters():
    with pytest.raises(ParameterError, match="element 1 is a Tensor"):
        ParameterTuple((Parameter(1.0), Tensor(1.0)))


@pytest.mark.parametrize(
    "how", [copy.deepcopy, lambda net: pickle.loads(pickle.dumps(net))], ids=["deepcopy", "pickle"]
)
def test_copies_of_a_cell_are_whole_and_apart(how):
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


def test_a_copy_of_a_custom_reverse_has_parameters_of_its_own():
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


def test_copies_of_a_parameter_and_a_tensor(p):
    for twin in (copy.deepcopy(p), copy.copy(p), pickle.loads(pickle.dumps(p))):
        assert type(twin) is Parameter and twin.name == "p" and twin.asnumpy().tolist() == p.asnumpy().tolist()
        twin[0] = 50.0
        assert p.asnumpy()[0] == 1.0
    t = Tensor(np.ones((2, 2), np.float16))
    for twin in (copy.deepcopy(t), pickle.loads(pickle.dumps(t))):
        assert type(twin) is Tensor and twin.dtype == "float16" and twin.asnumpy().tolist() == [[1, 1], [1, 1]]


# --- printing --------------------------------------------------------------------------------------------------------


def test_the_repr_shows_the_tree_and_the_settings():
    net = nn.SequentialCell(nn.Dense(3, 4), nn.SequentialCell(nn.Dropout(p=0.25), nn.ReLU()))
    assert repr(net) == (
        "SequentialCell<\n"
        "  (0): Dense<in_channels=3, out_channels=4, has_bias=True>\n"
        "  (1): SequentialCell<\n"
        "    (0): Dropout<p=0.25>\n"
        "    (1): ReLU<>\n"
        "  >\n"
        ">"
    )


def test_the_repr_of_a_parameter():
    assert (
        repr(Parameter(ops.ones((5, 3)), name="w"))
        == "Parameter (name=w, shape=(5, 3), dtype=Float32, requires_grad=True)"
    )
