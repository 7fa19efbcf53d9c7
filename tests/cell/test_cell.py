"""Cells: paths and names of their contents, sharing, name clashes, and training state."""

import pytest
from cells import Leaf

import snncell
from snncell import Parameter, Tensor, nn, ops
from snncell.errors import ParameterError, SnncellError


class Branch(nn.Cell):
    def __init__(self):
        super().__init__()
        self.first = Leaf()
        self.own = Parameter(Tensor([1.0]))
        self.second = Leaf()


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


# --- paths and names --------------------------------------------------------------------------------------------------


def test_own_parameters_come_first_then_children_depth_first():
    net = Root()
    assert [path for path, _ in net.parameters_and_names()] == PATHS
    assert list(net.parameters_dict()) == PATHS
    assert len(list(net.get_parameters())) == len(PATHS)


def test_trainable_and_untrainable_parameters_are_listed_separately():
    net = Root()
    assert len(net.trainable_params()) == 7 and len(net.untrainable_params()) == 3
    net.set_grad(False)
    assert net.trainable_params() == []
    net.set_grad()
    assert len(net.trainable_params()) == len(PATHS)


def test_cells_are_listed_by_path():
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


def test_own_parameters_exclude_those_of_children():
    assert [path for path, _ in Root().parameters_and_names(expand=False)] == ["top"]


def test_attribute_names_an_unnamed_parameter():
    leaf = Leaf()
    assert leaf.w.name == "w"
    leaf.other = Parameter(Tensor([1.0]), name="mine")
    assert leaf.other.name == "mine" and "other" in leaf.parameters_dict()


def test_wrapping_prefixes_the_names():
    leaf = Leaf()
    net = nn.SequentialCell(nn.SequentialCell(leaf), nn.Dense(2, 2))
    assert leaf.w.name == "0.0.w" and net.parameters_dict()["0.0.w"] is leaf.w


def test_update_parameters_name_names_by_path():
    net = Branch()
    net.update_parameters_name("left.")
    names = ["left.own", "left.first.w", "left.first.b", "left.second.w", "left.second.b"]
    assert [p.name for p in net.get_parameters()] == names
    net.update_parameters_name("right_", recurse=False)
    assert [p.name for p in net.get_parameters()] == ["right_own", *names[1:]]


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


def test_replaced_or_deleted_attribute_is_unregistered():
    net = Branch()
    net.first = nn.Dense(1, 1)
    assert "first.weight" in net.parameters_dict() and "first.w" not in net.parameters_dict()
    del net.second
    assert not any(path.startswith("second") for path in net.parameters_dict())


def test_internal_params_list_each_parameter_once():
    leaf = Leaf()
    leaf.internal_params = [leaf.w]
    assert list(leaf.parameters_dict()) == ["w", "b"]


def test_cell_without_super_init_raises_with_the_missing_call():
    class Forgetful(nn.Cell):
        def __init__(self):
            self.w = Parameter(Tensor([1.0]))

    with pytest.raises(SnncellError, match=r"Forgetful\.__init__ must call super\(\)\.__init__\(\)"):
        Forgetful()


def test_cell_without_construct_raises():
    with pytest.raises(SnncellError, match="Branch has no method construct"):
        Branch()(Tensor([1.0]))


# --- sharing ----------------------------------------------------------------------------------------------------------


def test_shared_cell_is_listed_once_and_its_gradients_are_summed():
    leaf = Leaf()
    net = nn.SequentialCell(leaf, leaf)
    assert list(net.parameters_dict()) == ["0.w", "0.b"]
    assert [path for path, _ in net.cells_and_names()] == ["", "0"]
    # b = 0, so y = w^2 x and dy/dw = 2 w x
    assert ops.grad(net, None, leaf.w)(Tensor([3.0, 3.0])).asnumpy().tolist() == [6.0, 12.0]


def test_shared_parameter_is_listed_once_and_its_gradients_are_summed():
    a, b = Leaf(), Leaf()
    b.w = a.w
    net = nn.SequentialCell(a, b)
    assert list(net.parameters_dict()) == ["0.w", "0.b", "1.b"]
    assert ops.grad(net, None, a.w)(Tensor([3.0, 3.0])).asnumpy().tolist() == [6.0, 12.0]
    nn.SGD(net.trainable_params(), 0.1)


def test_cells_that_reference_each_other_are_visited_once():
    a, b = Leaf(), Leaf()
    a.other, b.other = b, a
    assert list(a.parameters_dict()) == ["w", "b", "other.w", "other.b"]


# --- equal names ------------------------------------------------------------------------------------------------------


def make_clashing_net():
    net = nn.Cell()
    net.left = Parameter(Tensor([1.0]), name="same")
    net.right = Parameter(Tensor([2.0]), name="same")
    return net


def test_equal_names_raise_in_an_optimiser_with_both_paths():
    with pytest.raises(ParameterError, match=r"SGD.*Cell\.left.*Cell\.right.*'same'"):
        nn.SGD(make_clashing_net().trainable_params(), 0.1)
    loose = [Parameter(Tensor([1.0]), name="same") for _ in range(2)]
    with pytest.raises(ParameterError, match=r"Adam.*element 0.*element 1.*'same'"):
        nn.Adam(loose)


def test_equal_names_raise_at_save_with_both_paths(tmp_path):
    with pytest.raises(ParameterError, match=r"save_checkpoint.*left.*right.*'same'"):
        snncell.save_checkpoint(make_clashing_net(), tmp_path / "net.ckpt")
    assert list(tmp_path.iterdir()) == []


def test_equal_names_in_different_cells_do_not_clash(tmp_path):
    net = Root()
    nn.SGD(net.trainable_params(), 0.1)
    snncell.save_checkpoint(net, tmp_path / "net.ckpt")


# --- training state ---------------------------------------------------------------------------------------------------


def test_new_cell_is_in_evaluation_mode():
    assert (nn.Cell().training, nn.Cell().phase) == (False, "predict")


def test_set_train_reaches_all_descendants():
    net = Root()
    assert net.set_train() is net
    assert {cell.phase for _, cell in net.cells_and_names()} == {"train"}
    net.mid.set_train(False)
    assert net.phase == "train" and net.mid.first.phase == "predict" and net.seq[0].training
