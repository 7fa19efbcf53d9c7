"""CellList, SequentialCell and CellDict: list and dict behaviour, and the names of Parameters."""

import random
from collections import OrderedDict

import pytest
from cells import Leaf

from snncell import Parameter, Tensor, nn, ops
from snncell.errors import (
    ArgumentError,
    ArgumentTypeError,
    ConstructError,
    MissingCellError,
    NameClashError,
    TensorIndexError,
)

LISTS = [nn.SequentialCell, nn.CellList]


def names(cell):
    return [p.name for p in cell.get_parameters()]


def leaves(count):
    return [Leaf() for _ in range(count)]


def same(cells, wanted):
    return len(cells) == len(wanted) and all(a is b for a, b in zip(cells, wanted, strict=True))


@pytest.mark.parametrize("kind", LISTS)
def test_constructors_accept_cells_lists_and_dicts(kind):
    cells = leaves(3)
    for made in (kind(*cells), kind(cells), kind(tuple(cells)), kind(iter(cells))):
        assert same(made, cells) and made[-1] is cells[2] and cells[1] in made and Leaf() not in made
    assert len(kind()) == 0 and bool(kind())
    named = kind(OrderedDict(first=cells[0], second=cells[1]))
    assert [path for path, _ in named.cells_and_names()] == ["", "first", "second"]


@pytest.mark.parametrize("kind", LISTS)
@pytest.mark.parametrize("seed", range(10))
def test_list_operations_match_python_lists_and_names_are_paths(kind, seed):
    draw = random.Random(seed)
    wanted = leaves(2)
    outer = nn.Cell()
    outer.net = kind(wanted)
    net = outer.net
    for _ in range(25):
        step, new = draw.randrange(7), Leaf()
        index = draw.randrange(-len(wanted), len(wanted)) if wanted else 0
        cut = slice(*draw.choice([(1, None), (None, -1), (0, 2), (None, None, 2), (2, 1)]))
        if step == 0:
            assert net.append(new) is net
            wanted.append(new)
        elif step == 1:
            assert net.insert(index, new) is net
            wanted.insert(index, new)
        elif step == 2:
            more = leaves(draw.randrange(3))
            assert net.extend(more) is net
            wanted.extend(more)
        elif step == 3 and wanted:
            del net[index]
            del wanted[index]
        elif step == 4:
            del net[cut]
            del wanted[cut]
        elif step == 5 and wanted:
            net[index] = wanted[index] = new
        else:
            part = net[cut]
            assert type(part) is kind and same(part, wanted[cut])
        assert same(net, wanted)
        assert names(outer) == [path for path, _ in outer.parameters_and_names()]
        assert [path for path, _ in net.parameters_and_names()] == [f"{n}.{w}" for n in range(len(net)) for w in "wb"]


def test_ordered_dict_names_keep_their_positions():
    net = nn.SequentialCell(OrderedDict(a=Leaf(), b=Leaf()))
    net.insert(1, Leaf()).append(Leaf())
    assert [path for path, _ in net.cells_and_names()][1:] == ["a", "1", "b", "3"]
    del net[0]
    assert [path for path, _ in net.cells_and_names()][1:] == ["0", "b", "2"]
    assert names(net) == [path for path, _ in net.parameters_and_names()]


def test_sequential_calls_its_current_cells():
    net, x = nn.SequentialCell(Leaf()), Tensor([1.0, 1.0])
    leaf = net[0]
    assert net.append(leaf)(x).asnumpy().tolist() == [1.0, 4.0]
    assert net.insert(0, Leaf())(x).asnumpy().tolist() == [1.0, 8.0]
    assert nn.SequentialCell()(x) is x


@pytest.mark.parametrize("kind", LISTS)
def test_invalid_indices_and_items_raise(kind):
    net = kind(leaves(2))
    for index in (2, -3, 100):
        with pytest.raises(TensorIndexError, match=f"{kind.__name__}: index {index} is out of range for 2 Cells"):
            net[index]
        with pytest.raises(TensorIndexError):
            del net[index]
        with pytest.raises(TensorIndexError):
            net[index] = Leaf()
    with pytest.raises(TensorIndexError):
        net.insert(3, Leaf())
    for index in ("0", 1.0, True):
        with pytest.raises(ArgumentTypeError, match="an index must be an int or a slice"):
            net[index]
    for change in (lambda: net.append(3), lambda: net.insert(0, "x"), lambda: net.extend([Leaf(), 3])):
        with pytest.raises(ArgumentError, match=f"{kind.__name__}: element . of cells must be a Cell"):
            change()
    with pytest.raises(ArgumentError, match="element 0 of cells must be a Cell"):
        net[0] = len
    assert len(net) == 2


# --- dicts ------------------------------------------------------------------------------------------------------------


def test_cell_dict_behaves_like_a_dict():
    a, b, c = leaves(3)
    net = nn.CellDict({"a": a, "b": b})
    assert list(net) == list(net.keys()) == ["a", "b"] and list(net.values()) == [a, b]
    assert list(net.items()) == [("a", a), ("b", b)] and len(net) == 2 and net["a"] is a and "a" in net
    net["c"] = c
    net.update([("a", b)])
    assert list(net.items()) == [("a", b), ("b", b), ("c", c)] and net.pop("c") is c and "c" not in net
    net.update(nn.CellDict({"d": c}))
    del net["a"]
    assert names(net) == ["b.w", "b.b", "d.w", "d.b"]
    net.clear()
    assert len(net) == 0 and bool(net) and list(net.get_parameters()) == []
    assert [path for path, _ in nn.CellDict([("x", a)]).parameters_and_names()] == ["x.w", "x.b"]


@pytest.mark.parametrize(
    ("change", "kind", "match"),
    [
        (lambda net: net["no"], MissingCellError, "CellDict has no Cell 'no'; its keys are a"),
        (lambda net: net.pop("no"), KeyError, "has no Cell 'no'"),
        (lambda net: net.__delitem__("no"), MissingCellError, "has no Cell 'no'"),
        (lambda net: net.update({"keys": Leaf()}), NameClashError, "already has an attribute 'keys'"),
        (lambda net: net.update({"a.b": Leaf()}), NameClashError, "without dots"),
        (lambda net: net.update({3: Leaf()}), ArgumentTypeError, "child_name is a str"),
        (lambda net: net.update({"x": 3}), ArgumentError, "element x of cells must be a Cell"),
        (lambda net: net.update(3), ArgumentError, "cells must be a dict, or pairs"),
    ],
)
def test_cell_dict_rejects_invalid_items(change, kind, match):
    net = nn.CellDict({"a": Leaf()})
    with pytest.raises(kind, match=match):
        change(net)
    assert list(net) == ["a"]
    assert issubclass(NameClashError, KeyError)


def test_calling_a_cell_without_construct_raises():
    class Empty(nn.Cell):
        pass

    for cell in (Empty(), nn.CellList([nn.ReLU()]), nn.CellDict({"a": nn.ReLU()}), nn.Cell()):
        for kind in (ConstructError, AttributeError, NotImplementedError):
            with pytest.raises(kind, match=f"{type(cell).__name__} has no method construct"):
                cell(ops.ones(2))


@pytest.mark.parametrize("part", [slice(None), slice(1, None), slice(None, None, -1), slice(2, 0, -1)])
def test_slices_keep_given_names(part):
    """Default names, which are numbers, start from 0 again."""
    cells = [(name, nn.Dense(1, 1)) for name in ("first", "1", "last")]
    net = nn.SequentialCell(OrderedDict(cells))
    found, expected = net[part], cells[part]
    assert list(found) == [cell for _, cell in expected]
    named = [name if name != "1" else str(place) for place, (name, _) in enumerate(expected)]
    assert [path for path, _ in found.parameters_and_names()] == [
        f"{name}.{each}" for name in named for each in ("weight", "bias")
    ]
    assert [p.name for p in net.get_parameters()][::2] == ["first.weight", "1.weight", "last.weight"]


HIDDEN = {
    "dict of Cells": lambda: {"first": nn.Dense(2, 2)},
    "nested list": lambda: [[nn.Dense(2, 2)]],
    "list in a tuple": lambda: ([nn.Dense(2, 2)],),
    "dict of Parameters": lambda: {"gain": Parameter([1.0])},
    "list in a dict": lambda: {"all": [nn.Dense(2, 2)]},
}


@pytest.mark.parametrize("kind", HIDDEN)
def test_unregistered_cells_warn(kind):
    net = nn.SequentialCell(nn.Dense(2, 2))
    net[0].layers = HIDDEN[kind]()
    with pytest.warns(
        RuntimeWarning, match=r"^Dense\.layers is a .* not registered: .*(an nn\.CellDict|nn\.CellList in)"
    ):
        assert len(net.trainable_params()) == 2
    net[0].members = list(net[0].layers.values() if isinstance(net[0].layers, dict) else net[0].layers[0])
    if kind != "list in a dict":
        net.trainable_params()  # registered by the list: warnings are errors


def test_requires_grad_of_a_cell_sets_its_parameters():
    net = nn.SequentialCell(nn.Dense(2, 2), nn.Dense(2, 2))
    net[0].requires_grad = False
    assert [p.name for p in net.trainable_params()] == ["1.weight", "1.bias"]
    net[0].weight.requires_grad = True
    net[0].requires_grad = False
    assert len(net.trainable_params()) == 2
    net.requires_grad = True
    assert len(net.trainable_params()) == 4 and net[0].requires_grad
