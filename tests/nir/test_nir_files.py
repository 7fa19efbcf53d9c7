"""Damaged and hostile NIR files: reading raises NirError quickly and without large allocations."""

from __future__ import annotations

import os
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

nir = pytest.importorskip("nir")
h5py = pytest.importorskip("h5py")

from nir_graphs import random_graph  # noqa: E402

from snncell.errors import NirError  # noqa: E402
from snncell.nir import from_nir, to_nir  # noqa: E402

DT = 1e-3

pytestmark = [pytest.mark.filterwarnings("ignore:from_nir. dt="), pytest.mark.uncompiled]


@pytest.fixture(scope="module")
def contents(tmp_path_factory) -> list[bytes]:
    """The bytes of some valid files."""
    found = []
    for seed in (1, 4, 7, 11, 42):
        graph, shape = random_graph(seed, DT)
        path = tmp_path_factory.mktemp("nir") / "graph.nir"
        nir.write(path, to_nir(from_nir(graph, DT), DT, shape))
        found.append(path.read_bytes())
    return found


def read(path: Path) -> str:
    """The error text when reading a file, "" if it contains a valid graph."""
    try:
        from_nir(path, DT)
    except NirError as error:
        return str(error)
    return ""


HEAP = 4096  # bytes of a heap of text at least


def damaged(content: bytes, rng: Any) -> bytes:
    """A truncated file, or one with changed bytes outside heaps; HDF5 hangs on some damaged heaps."""
    data, how = bytearray(content), rng.integers(4)
    heaps = [content[at : at + HEAP] for at in range(len(content)) if content.startswith(b"GCOL", at)]
    if how == 0:
        return bytes(data[: rng.integers(len(data))])
    if how == 1:
        for place in rng.integers(len(data), size=rng.integers(1, 8)):
            data[place] = rng.integers(256)
    else:
        length = (8, 64)[how - 2]
        place = rng.integers(len(data) - length)
        data[place : place + length] = b"\xff" * length if rng.random() < 0.3 else rng.bytes(length)
    for heap in heaps:
        at = content.index(heap)
        data[at : at + HEAP] = heap
    return bytes(data)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("seed", range(4))
def test_damaged_file_raises_nir_error_or_is_read(seed, contents, tmp_path):
    rng, path, refused = np.random.default_rng(seed), tmp_path / "graph.nir", 0
    for _ in range(100):
        path.write_bytes(damaged(contents[rng.integers(len(contents))], rng))
        refused += bool(read(path))
    assert refused > 20


def test_truncated_file_raises(contents, tmp_path):
    path = tmp_path / "graph.nir"
    for length in [*range(0, 200, 7), *range(200, len(contents[0]) - 1, len(contents[0]) // 60)]:
        path.write_bytes(contents[0][:length])
        assert "graph.nir" in read(path)


def test_invalid_path_raises(tmp_path):
    assert "does not exist" in read(tmp_path / "nothing.nir")
    assert "does not exist" in read(tmp_path)
    (tmp_path / "text.nir").write_text("no HDF5")
    assert "text.nir is damaged, or not an HDF5 file" in read(tmp_path / "text.nir")


def file_of(path: Path) -> Any:
    """An open, writable file with a graph of one Scale node."""
    scale = nir.Scale(np.ones(3))
    nir.write(path, nir.NIRGraph.from_list(scale))
    return h5py.File(path, "r+")


def missing_group(file: Any) -> None:
    del file["node"]


def missing_nodes(file: Any) -> None:
    del file["node/nodes"]


def missing_type(file: Any) -> None:
    del file["node/nodes/scale/type"]


def missing_parameter(file: Any) -> None:
    del file["node/nodes/scale/scale"]


def unknown_parameter(file: Any) -> None:
    file["node/nodes/scale/gain"] = np.ones(3)


def unknown_type(file: Any) -> None:
    del file["node/nodes/scale/type"]
    file["node/nodes/scale/type"] = "Izhikevich"


def cycle_of_groups(file: Any) -> None:
    file["node/nodes/again"] = file["node"]


def soft_link(file: Any) -> None:
    file["node/nodes/again"] = h5py.SoftLink("/node")


def external_link(file: Any) -> None:
    file["node/nodes/again"] = h5py.ExternalLink("/etc/passwd", "/")


def twice(file: Any) -> None:
    file["node/nodes/again"] = file["node/nodes/scale"]


def absurd_shape(file: Any) -> None:
    del file["node/nodes/scale/scale"]
    file.create_dataset("node/nodes/scale/scale", (2**40,), "f4", chunks=(1024,))


def absurd_chunk(file: Any) -> None:
    del file["node/nodes/scale/scale"]
    file.create_dataset("node/nodes/scale/scale", (3,), "f4", chunks=(2**28,), maxshape=(None,))


def absurd_input(file: Any) -> None:
    file["node/nodes/input/shape"][...] = [2**40]


def negative_input(file: Any) -> None:
    file["node/nodes/input/shape"][...] = [-3]


def elsewhere(file: Any) -> None:
    del file["node/nodes/scale/scale"]
    file.create_dataset("node/nodes/scale/scale", (3,), "f8", external=[("/etc/passwd", 0, 24)])


def virtual(file: Any) -> None:
    del file["node/nodes/scale/scale"]
    layout = h5py.VirtualLayout((3,), "f8")
    layout[:] = h5py.VirtualSource("other.h5", "scale", (3,))
    file.create_virtual_dataset("node/nodes/scale/scale", layout)


def text_parameter(file: Any) -> None:
    del file["node/nodes/scale/scale"]
    file["node/nodes/scale/scale"] = "many"


def compound(file: Any) -> None:
    del file["node/nodes/scale/scale"]
    file["node/nodes/scale/scale"] = np.zeros(3, [("a", "f4"), ("b", "i4")])


def edges_of_three(file: Any) -> None:
    del file["node/edges"]
    file["node/edges"] = [("input", "scale", "output")]


def edges_of_numbers(file: Any) -> None:
    del file["node/edges"]
    file["node/edges"] = np.zeros((2, 2))


def deep(file: Any) -> None:
    group = file["node/nodes"]
    for _ in range(200):
        group = group.create_group("inside")
        group["type"] = "NIRGraph"
        group = group.create_group("nodes")


def a_node_alone(file: Any) -> None:
    del file["node"]
    file["node/type"], file["node/scale"] = "Scale", np.ones(3)


WORDS = {
    missing_group: "it has no group /node",
    missing_nodes: "a graph must have nodes and edges",
    missing_type: "scale has no type",
    missing_parameter: r"node 'scale' \(Scale\): scale is missing. Its parameters are scale",
    unknown_parameter: r"node 'scale' \(Scale\): unknown parameter 'gain'",
    unknown_type: "node 'scale' has the unknown type 'Izhikevich'. NIR has Input,",
    cycle_of_groups: "by links",
    soft_link: "is a link to another place",
    external_link: "is a link to another place",
    twice: "occurs twice in the file",
    absurd_shape: r"would be float32\[1099511627776\], more than the limit for a file of this size",
    absurd_chunk: "more than the limit for a file of this size",
    absurd_input: "Axes must not be empty, and all together at most",
    negative_input: "Axes must not be empty",
    elsewhere: "stores its elements in another file",
    virtual: "stores its elements in another file",
    text_parameter: "scale must contain real numbers, not <U4",
    compound: "must contain numbers or text",
    edges_of_three: "edges must be pairs of names",
    edges_of_numbers: "an edge must be a pair of names",
    deep: "nested more than 64 deep",
    a_node_alone: "its /node must be an NIRGraph, not a single Scale",
}


@pytest.mark.sampled(13)
@pytest.mark.parametrize("change", WORDS, ids=lambda change: change.__name__)
def test_hostile_file_raises_without_large_allocation(change, tmp_path):
    path = tmp_path / "graph.nir"
    with file_of(path) as file:
        change(file)
    tracemalloc.start()
    try:
        with pytest.raises(NirError, match=f"from_nir: .*graph.nir: .*{WORDS[change]}"):
            from_nir(path, DT)
        assert tracemalloc.get_traced_memory()[1] < 2**24
    finally:
        tracemalloc.stop()


def test_graph_that_contains_itself_raises():
    graph = nir.NIRGraph.from_list(nir.Scale(np.ones(3)))
    graph.nodes["scale"] = graph
    with pytest.raises(NirError, match="graphs are nested more than 64 deep, or contain themselves"):
        from_nir(graph, DT)


def test_file_is_closed_after_reading(tmp_path):
    path = tmp_path / "graph.nir"
    file_of(path).close()
    from_nir(path, DT)
    (tmp_path / "bad.nir").write_bytes(path.read_bytes()[:500])
    read(tmp_path / "bad.nir")
    for one in (path, tmp_path / "bad.nir"):
        os.rename(one, tmp_path / "other.nir")
        with h5py.File(path, "w"):
            pass
