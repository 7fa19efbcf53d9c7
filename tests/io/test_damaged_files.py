"""Fuzzing of checkpoints: loading a damaged file raises an error and changes nothing, or loads everything."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from random_cases import seeds
from safetensors.numpy import load_file, save_file

import snncell
from snncell import Parameter, nn, ops, quantise, train
from snncell.errors import CheckpointError
from snncell.ops.random import present_key

SEEDS = seeds(5000 if os.environ.get("SNNCELL_TEST_SIZE") == "large" else 150)  # of the damage, for each loader


class Net(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Dense(2, 3)
        self.norm = nn.BatchNorm1d(3)
        self.out = nn.Dense(3, 2)

    def construct(self, x: Any) -> Any:
        return self.out(ops.tanh(self.norm(self.dense(x))))


def parts() -> tuple[Net, nn.Adam]:
    net = Net()
    return net, nn.Adam(net.trainable_params(), 0.1)


def samples() -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(8, 2)).astype(np.float32)
    return x, (x[:, 0] > x[:, 1]).astype(np.int64)


def fit(net: Net, adam: nn.Adam, epochs: int, file: Path, resume: bool = False) -> train.Result:
    options: dict[str, Any] = {"test": samples(), "batch_size": 4, "patience": 5, "progress": False}
    loss = nn.CrossEntropyLoss()
    return train.fit(net, loss, adam, samples(), epochs, checkpoint=file, resume=resume, **options)


class Loader(NamedTuple):
    """A way to load: writes a file, and loads another one into Parameters."""

    write: Callable[[Path], Any]
    load: Callable[[Path, Net, nn.Adam], Any]


def written_by_fit(path: Path) -> None:
    snncell.set_seed(3)
    fit(*parts(), 2, path)


def resumed(path: Path, net: Net, adam: nn.Adam) -> None:
    fit(net, adam, 2, path, resume=True)  # there is nothing left to train


def weights(path: Path) -> None:
    snncell.save_checkpoint(Net(), path)


def of_optimiser(path: Path) -> None:
    adam = parts()[1]
    adam([ops.ones(p.shape) for p in adam.parameters])
    snncell.save_checkpoint(adam, path)


def of_training(path: Path) -> None:
    train.save_state(path, *parts(), {"a": 1}, {"more": np.ones(2)})


def integers(path: Path) -> None:
    net = nn.SequentialCell(nn.Dense(2, 3), nn.MultiStep(nn.IFNode()), nn.Dense(3, 2))
    quantise.export(quantise.prepare(net, quantise.Uniform(4), quantise.FixedPoint(12, 8))).save(path)


LOADERS = {
    "load_checkpoint": Loader(weights, lambda path, net, adam: snncell.load_checkpoint(path, net)),
    "an optimiser's": Loader(of_optimiser, lambda path, net, adam: snncell.load_checkpoint(path, adam)),
    "load_param_into_net": Loader(
        weights, lambda path, net, adam: snncell.load_param_into_net(net, snncell.load_checkpoint(path))
    ),
    "load_state": Loader(of_training, lambda path, net, adam: train.load_state(path, net, adam, {"a": 1})),
    "fit": Loader(written_by_fit, resumed),
    "an integer network's": Loader(integers, lambda path, net, adam: quantise.IntegerNet.load(path)),
}


# --- damage -----------------------------------------------------------------------------------------------------------

Content = tuple[dict[str, Any], dict[str, str]]


def some(rng: np.random.Generator, names: Any) -> str:
    return str(rng.choice(sorted(names)))


def missing(rng: np.random.Generator, arrays: dict[str, Any], text: dict[str, str]) -> None:
    del arrays[some(rng, arrays)]


def extra(rng: np.random.Generator, arrays: dict[str, Any], text: dict[str, str]) -> None:
    prefix = rng.choice(["net/", "optimiser/", "more/", ""])
    arrays[f"{prefix}extra"] = np.ones(3, np.float32)


def renamed(rng: np.random.Generator, arrays: dict[str, Any], text: dict[str, str]) -> None:
    name = some(rng, arrays)
    arrays[rng.choice([name + "x", name[:-1], name.upper(), "", "é" * 3])] = arrays.pop(name)


def reshaped(rng: np.random.Generator, arrays: dict[str, Any], text: dict[str, str]) -> None:
    name = some(rng, arrays)
    found = arrays[name]
    arrays[name] = [found.reshape(-1, 1), np.concatenate([found.reshape(-1)] * 2), found.reshape(-1)[:0], found[None]][
        rng.integers(4)
    ]


def retyped(rng: np.random.Generator, arrays: dict[str, Any], text: dict[str, str]) -> None:
    name = some(rng, arrays)
    arrays[name] = arrays[name].astype(rng.choice(["float64", "float16", "int32", "int64", "uint8", "bool", "uint32"]))


def swapped(rng: np.random.Generator, arrays: dict[str, Any], text: dict[str, str]) -> None:
    one, other = some(rng, arrays), some(rng, arrays)
    arrays[one], arrays[other] = arrays[other], arrays[one]


def negative(rng: np.random.Generator, arrays: dict[str, Any], text: dict[str, str]) -> None:
    arrays["random"] = np.array([[-1, 0], [0, -5]][rng.integers(2)])


VALUES: list[Any] = [
    "C128",
    [2**70, 0],
    2**64,
    float("nan"),
    float("inf"),
    None,
    [],
    {},
    "text",
    -1,
    10**30,
    True,
    [[]],
    1.5,
]


def places(tree: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of all nodes in a tree of dicts and lists."""
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    return [path, *(found for key, value in items for found in places(value, (*path, key)))]


def changed(rng: np.random.Generator, tree: Any) -> Any:
    """A tree with one node replaced or removed; the first level is as likely as all others together."""
    known = [path for path in places(tree) if path]
    first = [path for path in known if len(path) == 1]
    known = first if rng.random() < 0.5 else known
    if not known:
        return copy.deepcopy(VALUES[rng.integers(len(VALUES))])
    *above, last = known[rng.integers(len(known))]
    node = tree
    for key in above:
        node = node[key]
    if rng.random() < 0.3:
        del node[last]
    else:
        node[last] = copy.deepcopy(VALUES[rng.integers(len(VALUES))])
    return tree


def noted(rng: np.random.Generator, arrays: dict[str, Any], text: dict[str, str]) -> None:
    """Replace a value of the JSON metadata, or remove a key."""
    name = rng.choice(["notes", "made"]) if "notes" in text else ""
    tree = json.loads(text.get(name, '{"a": 1}'))
    known = [path for path in places(tree) if path]
    if not known:
        text["notes"] = rng.choice(["nan", "[]", "null", "{", "", "[" * 100_000])
        return
    tree = changed(rng, tree)
    text[name or "notes"] = json.dumps(tree)


def untold(rng: np.random.Generator, arrays: dict[str, Any], text: dict[str, str]) -> None:
    text.pop(some(rng, text))


BY_CONTENT = [missing, extra, renamed, reshaped, retyped, swapped, negative, noted, noted, noted, untold]


def cut(rng: np.random.Generator, content: bytes) -> bytes:
    return content[: rng.integers(len(content))]


def flipped(rng: np.random.Generator, content: bytes) -> bytes:
    """Flip bits, mostly in the header."""
    found = bytearray(content)
    end = len(found) if rng.random() < 0.2 else 8 + int.from_bytes(content[:8], "little")
    for _ in range(rng.integers(1, 4)):
        found[rng.integers(end)] ^= 1 << int(rng.integers(8))
    return bytes(found)


def doubled(rng: np.random.Generator, content: bytes) -> bytes:
    place = rng.integers(len(content))
    return content[:place] + content[max(0, place - 20) :]


def described(rng: np.random.Generator, content: bytes) -> bytes:
    """Valid JSON in the header with one or two values, keys or entries changed; the arrays stay the same."""
    length = int.from_bytes(content[:8], "little")
    tree = json.loads(content[8 : 8 + length])
    for _ in range(rng.integers(1, 3)):
        tree = changed(rng, tree)
    header = json.dumps(tree).encode()
    return len(header).to_bytes(8, "little") + header + content[8 + length :]


BY_BYTES = [cut, flipped, flipped, described, described, doubled]


def damage(path: Path, seed: int) -> str:
    """Damage a file, and return a description."""
    rng = np.random.default_rng(seed)
    ways: list[Any] = [*BY_CONTENT, *BY_BYTES]
    way = ways[seed % len(ways)]
    if way in BY_BYTES:
        path.write_bytes(way(rng, path.read_bytes()))
        return f"{way.__name__} ({seed})"
    content = path.read_bytes()
    text = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")]).get("__metadata__", {})
    arrays = load_file(path)
    way(rng, arrays, text)
    save_file({name: np.ascontiguousarray(array) for name, array in arrays.items()}, path, text)
    return f"{way.__name__} ({seed})"


# --- tests ------------------------------------------------------------------------------------------------------------


def bits(*cells: Any) -> list[bytes]:
    return [
        present_key().asnumpy().tobytes(),
        *(p.asnumpy().tobytes() for cell in cells for p in cell.get_parameters()),
    ]


@pytest.mark.sampled(2)
@pytest.mark.compiled
@pytest.mark.random
@pytest.mark.parametrize("name", LOADERS)
def test_damaged_file_loads_completely_or_changes_nothing(tmp_path: Path, name: str) -> None:
    loader = LOADERS[name]
    whole = tmp_path / "whole"
    snncell.set_seed(1)
    loader.write(whole)
    snncell.set_seed(2)
    net, adam = parts()
    beginning = {p: p._data for p in (*net.get_parameters(), *adam.get_parameters())}
    refused = 0
    path = tmp_path / "damaged"
    for seed in SEEDS:
        snncell.set_seed(5)
        for p, array in beginning.items():
            p._data = array
        before = bits(net, adam)
        path.write_bytes(whole.read_bytes())
        how = damage(path, seed)
        try:
            loader.load(path, net, adam)
        except CheckpointError:
            refused += 1
            assert bits(net, adam) == before, f"{how}: refused, and something is changed"
        except Exception as error:
            raise AssertionError(f"{how}: {type(error).__name__}: {error}") from error
    assert refused > len(SEEDS) // 3


def test_missing_optimiser_moment_raises_and_nothing_is_loaded(tmp_path: Path) -> None:
    train.save_state(tmp_path / "run", *parts())
    arrays = load_file(tmp_path / "run")
    content = (tmp_path / "run").read_bytes()
    text = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])["__metadata__"]
    del arrays["optimiser/moment2.3"]
    save_file(arrays, tmp_path / "run", text)
    net, adam = parts()
    before = bits(net, adam)
    with pytest.raises(CheckpointError, match=r"run is damaged: 'optimiser/moment2\.3' is missing"):
        train.load_state(tmp_path / "run", net, adam)
    assert bits(net, adam) == before


@pytest.mark.parametrize("position", range(6))
def test_read_only_parameter_raises_and_keeps_the_others(position: int) -> None:
    net = Net()
    values = {path: Parameter(ops.ones_like(p) * 7.0) for path, p in net.parameters_dict().items()}
    for number, p in enumerate(net.get_parameters()):
        p.requires_grad = number == position  # a gradient is being recorded, so this one cannot be written

    def loading(x: Any) -> Any:
        snncell.load_param_into_net(net, values)
        return x.sum()

    before = bits(net)
    with pytest.raises(snncell.errors.AssignError, match="while a gradient is being recorded"):
        snncell.grad(loading)(ops.ones(2))
    assert bits(net) == before
