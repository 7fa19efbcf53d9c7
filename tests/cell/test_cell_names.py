"""Names of Parameters follow paths after inserting, deleting, sharing, renaming, wrapping and copying."""

import copy
import pickle
import random

import numpy as np
import pytest
from cells import Leaf
from naming import C, P

import snncell
from snncell import Parameter, ParameterTuple, Tensor, nn, ops
from snncell.errors import ArgumentTypeError, MissingNameError, NameClashError, ParameterError


def names(cell):
    return [p.name for p in cell.get_parameters()]


def paths(cell):
    return [path for path, _ in cell.parameters_and_names()]


class Mid(nn.Cell):
    def __init__(self):
        super().__init__()
        self.first = Leaf()
        self.own = Parameter(Tensor([1.0]))


# --- names by path ----------------------------------------------------------------------------------------------------


def test_names_are_paths():
    class Net(nn.Cell):
        def __init__(self):
            super().__init__()
            self.fc1 = nn.Dense(4, 3)
            self.mid = Mid()
            self.seq = nn.SequentialCell(nn.SequentialCell(nn.Dense(2, 2)))
            self.cells_of_it = nn.CellList([nn.Dense(1, 1)])

    net = Net()
    assert names(net) == paths(net)
    assert names(net)[:5] == ["fc1.weight", "fc1.bias", "mid.own", "mid.first.w", "mid.first.b"]
    assert names(net)[5:] == ["seq.0.0.weight", "seq.0.0.bias", "cells_of_it.0.weight", "cells_of_it.0.bias"]
    assert [p.name for p in net.trainable_params()] == [n for n in names(net) if n != "mid.first.b"]
    assert net.mid.param_prefix == "mid" and net.mid.first.param_prefix == "mid.first" and net.param_prefix == ""


def test_attributes_set_later_are_named_by_their_path():
    net = nn.Cell()
    net.mid = Mid()
    net.mid.late = nn.Dense(1, 1)
    net.mid.first.more = Parameter(Tensor([1.0]), name="mine")
    net.mid.first.w = Parameter(Tensor([2.0, 2.0]))
    assert names(net) == paths(net)


def test_explicit_name_lasts_until_the_cell_is_part_of_another():
    leaf = Leaf()
    leaf.other = Parameter(Tensor([1.0]), name=" mine ")
    assert leaf.other.name == "mine"
    net = nn.SequentialCell(leaf)
    assert leaf.other.name == "0.other" and names(net) == paths(net)


def test_unnamed_parameters_are_numbered():
    a, b = Parameter(Tensor([1.0])), Parameter(Tensor([1.0]))
    assert a.anonymous and a.name.startswith("Parameter#") and a.name != b.name and a.name == a.name
    assert repr(a) == f"Parameter (name={a.name}, shape=(1,), dtype=Float32, requires_grad=True)"
    cell = nn.Cell()
    cell.w = a
    assert a.name == "w" and not a.anonymous
    a.name = None
    assert a.anonymous
    for wrong in ("", "  ", 3):
        with pytest.raises(ParameterError, match="name is a str that is not empty, or None"):
            a.name = wrong


def test_lists_and_tuples_of_parameters_are_named_by_index():
    cell = nn.Cell()
    cell.weights = ParameterTuple([Parameter(Tensor([1.0]), name="x"), Parameter(Tensor([1.0]))])
    assert names(cell) == ["x", "weights.1"] and paths(cell) == ["weights.0", "weights.1"]
    net = nn.Cell()
    net.inner = cell
    assert names(net) == ["inner.weights.0", "inner.weights.1"]
    net.layers = [Leaf(), Leaf()]
    net.layers = net.layers[::-1]
    assert names(net) == paths(net)


def test_items_appended_in_place_are_named_when_names_are_refreshed():
    net = nn.Cell()
    net.layers = [Leaf()]
    net.layers.append(Leaf())
    assert names(net) == ["layers.0.w", "layers.0.b", "w", "b"] and paths(net)[2:] == ["layers.1.w", "layers.1.b"]
    net.update_parameters_name()
    assert names(net) == paths(net)


def test_shared_parameters_are_named_once():
    a, b = Leaf(), Leaf()
    b.w = a.w
    net = nn.SequentialCell(a, b)
    assert names(net) == ["0.w", "0.b", "1.b"]
    outer = nn.Cell()
    outer.net = net
    outer.again = net
    outer.inner = net[0]
    assert names(outer) == ["net.0.w", "net.0.b", "net.1.b"] == paths(outer)


def test_slice_and_second_wrapper_do_not_change_names():
    net = nn.SequentialCell(Leaf(), Leaf(), Leaf())
    tail = net[1:]
    assert names(tail) == ["1.w", "1.b", "2.w", "2.b"] and paths(tail) == ["0.w", "0.b", "1.w", "1.b"]
    assert names(net) == paths(net)


def test_released_parameters_are_named_by_their_next_owner():
    net = nn.Cell()
    net.a = Leaf()
    leaf = net.a
    del net.a
    assert names(leaf) == ["a.w", "a.b"]
    net.b = leaf
    assert names(net) == ["b.w", "b.b"]
    net.c, net.b = net.b, Leaf()
    assert names(net.b) == ["b.w", "b.b"]
    assert names(leaf) == ["c.w", "c.b"] and names(net) == paths(net)
    net.b, net.c = net.c, net.b
    assert names(net) == paths(net)


def test_cell_without_auto_prefix_does_not_change_names():
    class Trainer(nn.Cell):
        def __init__(self, net):
            super().__init__(auto_prefix=False)
            self.net = net
            self.count = Parameter(Tensor([0.0]), requires_grad=False)

    net = nn.SequentialCell(Leaf())
    trainer = Trainer(net)
    assert names(trainer) == ["count", "0.w", "0.b"] and paths(trainer)[1:] == ["net.0.w", "net.0.b"]
    outer = nn.Cell()
    outer.net = net
    assert names(outer) == ["net.0.w", "net.0.b"]
    optimiser = nn.Adam([Parameter(Tensor([1.0]))], 0.1)
    assert optimiser.parameters[0].anonymous


def test_optimisers_use_the_names():
    net = nn.SequentialCell(Leaf(), Leaf())
    adam = nn.Adam(net.trainable_params(), 0.1)
    assert names(net) == paths(net)
    assert adam.groups[0].names == ["0.w", "1.w"]
    assert {p.name for p in adam.get_parameters()} >= {"0.w", "1.w", "moment1.0.w", "moment2.1.w", "global_step"}
    with pytest.raises(snncell.errors.ShapeError, match=r"of '1\.w'"):
        adam((net[0].w, Tensor([1.0])))


# --- the methods ------------------------------------------------------------------------------------------------------


def test_update_parameters_name_sets_prefixes():
    net = nn.Cell()
    net.mid = Mid()
    net.update_parameters_name("pre_")
    assert names(net) == ["pre_mid.own", "pre_mid.first.w", "pre_mid.first.b"]
    net.mid.late = Leaf()
    assert names(net)[-1] == "pre_mid.late.b"
    net.mid.update_parameters_name("new.", recurse=False)
    assert names(net)[:2] == ["new.own", "pre_mid.first.w"]
    net.update_parameters_name()
    assert names(net) == paths(net)


def test_update_cell_prefix_recomputes_param_prefixes():
    net = nn.SequentialCell(Mid())
    outer = nn.Cell()
    outer.net = net
    assert net[0].first.param_prefix == "net.0.first"
    net.update_cell_prefix()
    assert net[0].first.param_prefix == "0.first" and names(net)[0] == "net.0.own"


def test_check_names_raises_for_equal_names():
    net = nn.SequentialCell(Leaf(), Leaf())
    net.check_names()
    net[1].w.name = "0.w"
    with pytest.raises(ParameterError, match=r"check_names: 0\.w and 1\.w are different Parameters with the same name"):
        net.check_names()
    net.check_names_and_refresh_name()
    assert names(net) == paths(net)
    net[1].w.name = "special"
    net.check_names_and_refresh_name()
    assert net[1].w.name == "special"


def test_insert_by_name_registers_parameters_and_cells():
    net = nn.ReLU()
    net.insert_child_to_cell("child", nn.Dense(2, 2))
    net.insert_param_to_cell("w", Parameter(Tensor([1.0])))
    assert names(net) == ["w", "child.weight", "child.bias"]
    net.insert_child_to_cell("child", nn.Dense(2, 2, has_bias=False))
    net.insert_param_to_cell("with.dot", Parameter(Tensor([1.0])), check_name_contain_dot=False)
    assert names(net) == ["w", "with.dot", "child.weight"]


@pytest.mark.parametrize(
    ("name", "what", "kind", "match"),
    [
        ("", "child", NameClashError, "child_name is the name of an attribute, without dots, not ''"),
        ("a.b", "child", NameClashError, "without dots"),
        (3, "child", ArgumentTypeError, "child_name is a str"),
        ("taken", "child", NameClashError, r"already has an attribute 'taken', which is not a Cell"),
        ("construct", "child", NameClashError, "already has an attribute 'construct'"),
        ("child", None, ArgumentTypeError, "child_cell is a Cell"),
        ("", "param", NameClashError, "param_name is the name of an attribute"),
        ("a.b", "param", NameClashError, "without dots"),
        ("child", "param", NameClashError, r"'child', which is not a Parameter"),
        ("x", "none", ArgumentTypeError, "param is a Parameter"),
    ],
)
def test_invalid_insertions_raise(name, what, kind, match):
    class Holder(nn.Cell):
        def construct(self, x):
            return x

    net = Holder(taken=3)
    net.child = Leaf()
    insert = net.insert_child_to_cell if what in ("child", None) else net.insert_param_to_cell
    value = {"child": Leaf(), "param": Parameter(Tensor([1.0]))}.get(what)
    with pytest.raises(kind, match=match.replace("Cell has", "Holder has")):
        insert(name, value)
    assert issubclass(NameClashError, KeyError)


def test_traversals_list_cells_and_parameters():
    net = nn.SequentialCell(Mid(), Leaf())
    assert list(net.name_cells()) == ["0", "1"] and net.cells() == [net[0], net[1]]
    assert net.get_sub_cell("0.first") is net[0].first and net.get_sub_cell("") is net
    with pytest.raises(MissingNameError, match=r"get_sub_cell: SequentialCell has no Cell '0\.third'"):
        net.get_sub_cell("0.third")
    assert [path for path, _ in net.cells_and_names({net[0]}, "net")] == ["net", "net.1"]
    order = []
    assert net.apply(lambda cell: order.append(cell)) is net
    assert order == [net[0].first, net[0], net[1], net]
    assert net.init_parameters_data() == {p: p for p in net.get_parameters()}


# --- copies, files ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("twin_of", [copy.deepcopy, lambda cell: pickle.loads(pickle.dumps(cell))])
def test_copies_keep_names_and_are_independent(twin_of):
    net = nn.Cell()
    net.mid = Mid()
    twin = twin_of(net)
    assert names(twin) == names(net) == paths(net)
    twin.mid.late = Leaf()
    assert names(twin) == paths(twin)
    inner = twin_of(net.mid)
    assert names(inner) == names(net.mid)
    other = nn.Cell()
    other.part = inner
    assert names(other) == paths(other) and names(net) == paths(net)


def test_checkpoints_have_paths_from_the_saved_cell(tmp_path):
    net = nn.SequentialCell(nn.Dense(2, 2))
    snncell.save_checkpoint(net, tmp_path / "bare")
    outer = nn.Cell()
    outer.net = net
    value = net[0].weight.asnumpy().copy()
    net[0].weight.set_data(ops.zeros((2, 2)))
    snncell.load_checkpoint(tmp_path / "bare", net)
    assert np.array_equal(net[0].weight.asnumpy(), value)
    found = snncell.load_checkpoint(tmp_path / "bare")
    assert {path: p.name for path, p in found.items()} == {"0.weight": "0.weight", "0.bias": "0.bias"}


# --- random trees -----------------------------------------------------------------------------------------------------


class Pair:
    """A Cell or Parameter together with its model."""

    def __init__(self, real, model):
        self.real, self.model = real, model


class Forest:
    """Random changes of Cells, and the same changes of the model."""

    KEYS = ("a", "b", "c", "items")

    def __init__(self, seed):
        self.draw = random.Random(seed)
        self.value = 0
        self.cells = [Pair(nn.Cell(), C()) for _ in range(4)]
        self.parameters = []

    def parameter(self):
        self.value += 1
        name = self.draw.choice([None, None, f"own{self.value}"])
        real = Parameter(Tensor(float(self.value)), name=name)
        self.parameters.append(Pair(real, P(float(self.value), name or "")))
        return self.parameters[-1]

    def cell(self):
        self.cells.append(Pair(nn.Cell(), C()))
        for key in ("w", "b")[: self.draw.randrange(3)]:
            p = self.parameter()
            self.set(self.cells[-1], key, p)
        return self.cells[-1]

    def anything(self):
        kinds = [self.parameter, self.cell, lambda: self.draw.choice(self.cells)]
        if self.parameters:
            kinds.append(lambda: self.draw.choice(self.parameters))
        return self.draw.choice(kinds)()

    def set(self, cell, key, value):
        several = isinstance(value, list)
        if isinstance(cell.model.attrs.get(key), P) and (several or isinstance(value.model, C)):
            self.delete(cell, key)
        setattr(cell.real, key, [one.real for one in value] if several else value.real)
        if several or cell.model.attrs.get(key) is not value.model:
            cell.model.set(key, [one.model for one in value] if several else value.model)

    def delete(self, cell, key):
        delattr(cell.real, key)
        cell.model.delete(key)

    def change(self):
        cell = self.draw.choice(self.cells)
        key = self.draw.choice(self.KEYS)
        step = self.draw.choice(["set", "set", "set", "list", "delete", "move", "prefix", "name", "wrap", "copy"])
        if step == "set":
            self.set(cell, key, self.anything())
        elif step == "list":
            self.set(cell, key, [self.anything() for _ in range(self.draw.randrange(1, 4))])
        elif step in ("delete", "move") and key in cell.model.attrs:
            held, value = cell.real.__dict__[key], cell.model.attrs[key]
            self.delete(cell, key)
            if step == "move" and "moved" not in cell.model.attrs:
                cell.real.moved = held
                cell.model.set("moved", value)
        elif step == "prefix":
            prefix = self.draw.choice(["", "pre_", "x."])
            cell.real.update_parameters_name(prefix)
            cell.model.rename(prefix)
        elif step == "name" and self.parameters:
            p = self.draw.choice(self.parameters)
            self.value += 1
            p.real.name = p.model.name = f"named{self.value}"
        elif step == "wrap":
            self.set(self.cell(), "wrapped", cell)
        elif step == "copy":
            self.cells.append(Pair(copy.deepcopy(cell.real), cell.model.copied()))

    def check(self):
        for cell in self.cells:
            wanted = [(path, p.name, p.value) for path, p in cell.model.paths()]
            found = [
                (path, "" if p.anonymous else p.name, float(p.item())) for path, p in cell.real.parameters_and_names()
            ]
            assert found == wanted
            assert [f"{path}." if path else "" for path, _ in cell.real.cells_and_names()] == [
                *cell.model.cells().values()
            ]
            assert all(
                twin._naming.prefix == model.prefix
                for (_, twin), model in zip(cell.real.cells_and_names(), cell.model.cells(), strict=True)
            )


@pytest.mark.sampled(44)
@pytest.mark.parametrize("seed", range(60))
def test_random_forests_have_the_names_of_the_model(seed):
    forest = Forest(seed)
    for _ in range(40):
        forest.change()
        forest.check()


def random_tree(draw, depth=0):
    """A tree of Cells that are set in random order, with children before or after they have children."""
    cell = nn.Cell()
    waiting = ["parameter", "parameter", "cell", "cell", "list"][: draw.randrange(1, 6)]
    draw.shuffle(waiting)
    for number, kind in enumerate(waiting):
        key = f"{kind}{number}"
        if kind == "parameter" or depth > 2:
            setattr(cell, key, Parameter(Tensor(draw.random())))
        elif kind == "list":
            setattr(cell, key, [Parameter(Tensor(draw.random())), random_tree(draw, depth + 1)])
        elif draw.random() < 0.5:
            setattr(cell, key, random_tree(draw, depth + 1))
        else:
            setattr(cell, key, nn.Cell())
            getattr(cell, key).inner = random_tree(draw, depth + 1)
    return cell


@pytest.mark.parametrize("seed", range(20))
def test_random_trees_are_named_by_path_and_load_their_checkpoints(seed):
    draw = random.Random(seed)
    net = random_tree(draw)
    assert names(net) == paths(net)
    twin = copy.deepcopy(net)
    for p in twin.get_parameters():
        p.set_data(p * 0.0)
    outer = nn.SequentialCell(nn.SequentialCell(twin))
    assert names(outer) == paths(outer) == [f"0.0.{path}" for path in paths(net)]
    assert twin.load_state_dict(net.state_dict()) == ([], [])
    assert [p.item() for p in twin.get_parameters()] == [p.item() for p in net.get_parameters()]
