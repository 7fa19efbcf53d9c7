"""Checkpoints: saved values can be loaded, writes are atomic, and a failed load changes nothing."""

import os
import re
import signal
import stat
import subprocess
import sys

import numpy as np
import pytest
from safetensors.numpy import save_file

import snncell
from snncell import Parameter, Tensor, nn, ops, train
from snncell.errors import ArgumentTypeError, CheckpointError


def network(seed=0):
    snncell.set_seed(seed)
    return nn.SequentialCell(nn.Dense(3, 4), nn.BatchNorm1d(4), nn.Dense(4, 2))


def values(net):
    return {path: p.asnumpy().copy() for path, p in net.parameters_dict().items()}


def assert_same(mine, theirs):
    assert list(mine) == list(theirs)
    for path in mine:
        np.testing.assert_array_equal(mine[path], theirs[path], err_msg=path)


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "net.ckpt"
    snncell.save_checkpoint(network(), path)
    return path


# --- round trips -----------------------------------------------------------------------------------------------------


def test_saved_values_are_loaded(saved):
    net = network(seed=1)
    found = snncell.load_checkpoint(saved)
    assert set(found) == set(values(net)) and all(isinstance(p, Parameter) for p in found.values())
    assert snncell.load_param_into_net(net, found) == ([], [])
    assert_same(values(net), values(network()))


def test_load_into_net_in_one_call(saved):
    net = network(seed=1)
    snncell.load_checkpoint(saved, net)
    assert_same(values(net), values(network()))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "int64", "uint8", "bool"])
@pytest.mark.parametrize("shape", [(), (0,), (2, 3)], ids=str)
def test_every_dtype_and_shape_keeps_bits(tmp_path, dtype, shape):
    net = nn.Cell()
    array = np.random.default_rng(0).uniform(0, 100, shape).astype(dtype)
    net.p = Parameter(array, requires_grad=False)
    snncell.save_checkpoint(net, str(tmp_path / "p"))
    found = snncell.load_checkpoint(tmp_path / "p")["p"]
    assert found.dtype == dtype and found.shape == shape and found.asnumpy().tobytes() == array.tobytes()


def test_special_values_keep_bits(tmp_path):
    net = nn.Cell()
    array = np.array([np.nan, np.inf, -np.inf, -0.0, 1e-45], np.float32)
    net.p = Parameter(array)
    snncell.save_checkpoint(net, tmp_path / "p")
    assert snncell.load_checkpoint(tmp_path / "p")["p"].asnumpy().tobytes() == array.tobytes()


def test_optimiser_is_saved_with_its_moments(tmp_path):
    def trained(steps, optimiser, net):
        for _ in range(steps):
            optimiser(ops.grad(net, None, net.trainable_params())(Tensor([[1.0, 2.0]])))
        return optimiser

    def fresh():
        net = nn.Dense(2, 1, weight_init="ones", bias_init="zeros")
        return nn.Adam(net.trainable_params(), 0.1), net

    whole = trained(5, *fresh())
    snncell.save_checkpoint(trained(3, *fresh()), tmp_path / "adam")
    resumed, net = fresh()
    snncell.load_checkpoint(tmp_path / "adam", resumed)
    trained(2, resumed, net)
    assert_same(values(resumed), values(whole))


def test_paths_are_attribute_paths_independent_of_parameter_names(saved):
    net = network(seed=1)
    net.update_parameters_name("renamed.")
    snncell.load_checkpoint(saved, net)
    assert_same(values(net), values(network()))


def test_partial_load_reads_matching_values(saved):
    net = nn.SequentialCell(nn.Dense(3, 4))
    missing, unused = snncell.load_param_into_net(net, snncell.load_checkpoint(saved))
    assert missing == [] and "2.weight" in unused
    np.testing.assert_array_equal(net[0].weight.asnumpy(), network()[0].weight.asnumpy())


# --- files that cannot be used ---------------------------------------------------------------------------------------


def test_missing_file_raises_with_its_name(tmp_path):
    with pytest.raises(CheckpointError, match=r"there is no file .*absent\.ckpt"):
        snncell.load_checkpoint(tmp_path / "absent.ckpt")
    with pytest.raises(ValueError, match="absent"):
        snncell.load_checkpoint(tmp_path / "absent.ckpt")


def test_folder_as_checkpoint_raises(tmp_path):
    with pytest.raises(CheckpointError, match="cannot be read"):
        snncell.load_checkpoint(tmp_path)


@pytest.mark.parametrize("part", [0, 1, 7, 8, 50, -1], ids=str)
def test_truncated_file_raises_and_loads_nothing(saved, part):
    content = saved.read_bytes()
    saved.write_bytes(content[:part])
    net = network(seed=1)
    before = values(net)
    with pytest.raises(CheckpointError, match=r"net\.ckpt is damaged or no safetensors file"):
        snncell.load_checkpoint(saved, net)
    assert_same(values(net), before)


@pytest.mark.parametrize(
    "content",
    [b"text, not tensors\n" * 10, b"\x00" * 64, b"\xff" * 64, b"PK\x03\x04" + b"\x00" * 100],
    ids=["text", "zeros", "ones", "zip"],
)
def test_file_of_another_format_raises(tmp_path, content):
    path = tmp_path / "foreign.bin"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=r"foreign\.bin is damaged or no safetensors file"):
        snncell.load_checkpoint(path)


def test_unsupported_dtype_in_file_raises(tmp_path):
    save_file({"p": np.ones(2, np.uint32)}, tmp_path / "p")
    with pytest.raises(CheckpointError, match="p"):
        snncell.load_checkpoint(tmp_path / "p")


def test_wrong_shapes_raise_and_load_nothing(saved):
    found = snncell.load_checkpoint(saved)
    net = nn.SequentialCell(nn.Dense(3, 4), nn.BatchNorm1d(4), nn.Dense(4, 5))  # only the last layer differs
    before = values(net)
    with pytest.raises(CheckpointError, match=r"'2\.weight' is Float32\[2, 4\] in the checkpoint and Float32\[5, 4\]"):
        snncell.load_param_into_net(net, found)
    assert_same(values(net), before)


def test_wrong_dtypes_raise_and_load_nothing(saved):
    found = snncell.load_checkpoint(saved)
    found["2.bias"] = Parameter(np.ones(2))  # float64
    net = network(seed=1)
    before = values(net)
    with pytest.raises(CheckpointError, match=r"'2\.bias' is Float64\[2\]"):
        snncell.load_param_into_net(net, found)
    assert_same(values(net), before)


def test_strict_load_requires_equal_paths(saved):
    net = nn.SequentialCell(nn.Dense(3, 4), nn.BatchNorm1d(4))
    before = values(net)
    with pytest.raises(CheckpointError, match=r"does not fit SequentialCell.*not in the Cell: \['2\.\w+', '2\.\w+'\]"):
        snncell.load_checkpoint(saved, net)
    bigger = nn.SequentialCell(nn.Dense(3, 4), nn.BatchNorm1d(4), nn.Dense(4, 2), nn.Dense(2, 2))
    with pytest.raises(CheckpointError, match=r"Not in the checkpoint: \['3\.weight', '3\.bias'\]"):
        snncell.load_checkpoint(saved, bigger)
    assert_same(values(net), before)


def test_values_that_are_not_tensors_raise(saved):
    net = network()
    with pytest.raises(CheckpointError, match=r"0\.bias"):
        snncell.load_param_into_net(net, {"0.bias": "text"})


# --- writing ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["fsync", "replace"])
def test_interrupted_write_keeps_old_file(saved, monkeypatch, where):
    before = saved.read_bytes()

    def fails(*args, **options):
        raise OSError("the disk is full")

    monkeypatch.setattr(os, where, fails)
    with pytest.raises(CheckpointError, match=r"net\.ckpt cannot be written.*disk is full"):
        snncell.save_checkpoint(network(seed=1), saved)
    assert saved.read_bytes() == before
    assert [p.name for p in saved.parent.iterdir()] == ["net.ckpt"]  # no half-written file stays behind


def test_keyboard_interrupt_keeps_old_file(saved, monkeypatch):
    before = saved.read_bytes()

    def interrupted(*args, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        snncell.save_checkpoint(network(seed=1), saved)
    assert saved.read_bytes() == before
    assert [p.name for p in saved.parent.iterdir()] == ["net.ckpt"]


def test_file_is_complete_before_rename(saved, monkeypatch):
    seen = []
    replace = os.replace

    def watching(source, target):
        seen.append(snncell.load_checkpoint(source).keys())  # whole at this moment
        replace(source, target)

    monkeypatch.setattr(os, "replace", watching)
    snncell.save_checkpoint(network(seed=1), saved)
    assert len(seen) == 1 and "0.weight" in seen[0]


KILLED_WHILE_WRITING = """
import os, signal, sys
import snncell
from snncell import nn
os.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
snncell.save_checkpoint(nn.Dense(2, 2), sys.argv[1])
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="there is no SIGKILL here")
def test_temporary_file_of_killed_process_is_removed_at_next_write(saved):
    before = saved.read_bytes()
    foreign = saved.with_name(".snncell-notes.tmp")
    foreign.write_text("a file of somebody else")
    subprocess.run([sys.executable, "-c", KILLED_WHILE_WRITING, str(saved)], check=False)
    assert len(list(saved.parent.iterdir())) == 3 and saved.read_bytes() == before
    snncell.save_checkpoint(network(seed=1), saved.with_name("other.ckpt"))
    assert {p.name for p in saved.parent.iterdir()} == {"net.ckpt", "other.ckpt", foreign.name}


def by_checkpoint(array, path):
    net = nn.Cell()
    net.p = Parameter(array, name="p", requires_grad=False)
    snncell.save_checkpoint(net, path)


def beside_a_training(array, path):
    net = nn.Dense(2, 2)
    train.save_state(path, net, nn.SGD(net.trainable_params(), 0.1), arrays={"p": array})


@pytest.mark.parametrize(
    ("write", "dtype"),
    [
        (by_checkpoint, "complex128"),
        *((beside_a_training, dtype) for dtype in ("complex128", "uint16", "uint64", "U3", "O", "M8[s]")),
    ],
)
def test_unsupported_dtype_raises_before_anything_is_written(tmp_path, write, dtype):
    array = np.zeros(2, dtype)
    with pytest.raises(CheckpointError, match=rf"'(more/)?p' is of dtype {re.escape(str(array.dtype))}.*Convert it"):
        write(array, tmp_path / "p")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("dtype", ["complex64", ">f4", ">i8"])
def test_other_dtypes_and_byte_orders_in_training_state_survive(tmp_path, dtype):
    net = nn.Dense(2, 2)
    adam = nn.Adam(net.trainable_params(), 0.1)
    array = np.arange(6).reshape(2, 3).astype(dtype)
    train.save_state(tmp_path / "p", net, adam, arrays={"p": array})
    _, arrays = train.load_state(tmp_path / "p", net, adam)
    np.testing.assert_array_equal(arrays["p"], array)


def test_overwritten_file_has_new_content(saved):
    snncell.save_checkpoint(network(seed=1), saved)
    assert_same(values(network(seed=1)), {k: v.asnumpy() for k, v in ordered(saved).items()})


def ordered(path):
    found = snncell.load_checkpoint(path)
    return {name: found[name] for name in network().parameters_dict()}


def test_missing_folder_raises(tmp_path):
    with pytest.raises(CheckpointError, match="there is no folder"):
        snncell.save_checkpoint(network(), tmp_path / "absent" / "net.ckpt")


def test_file_has_default_permissions(saved):
    plain = saved.parent / "plain"
    plain.write_bytes(b"")
    assert stat.S_IMODE(saved.stat().st_mode) == stat.S_IMODE(plain.stat().st_mode)


@pytest.mark.parametrize("name", [None, 3, b"net.ckpt"])
def test_invalid_path_raises(name):
    with pytest.raises(CheckpointError, match="ckpt_file_name is the path of a checkpoint, not"):
        snncell.save_checkpoint(network(), name)


def test_saving_other_objects_than_cells_and_dicts_raises(tmp_path):
    with pytest.raises(CheckpointError, match=r"save_obj is a Cell, the dict of one, or a list of .*, not a list"):
        snncell.save_checkpoint([network()], tmp_path / "x")
    with pytest.raises(CheckpointError, match=r"3 of save_obj is .*; a checkpoint has Tensors"):
        snncell.save_checkpoint({3: network()[0].weight}, tmp_path / "x")
    assert list(tmp_path.iterdir()) == []


CHOSEN = [
    ({}, ["first.weight", "first.bias", "second.weight", "second.bias"]),
    ({"filter_prefix": "first"}, ["second.weight", "second.bias"]),
    ({"filter_prefix": ("first.b", "second.w")}, ["first.weight", "second.bias"]),
    ({"specify_prefix": ["second", "first.b"]}, ["first.bias", "second.weight", "second.bias"]),
    ({"choice_func": lambda path: path.endswith("bias")}, ["first.bias", "second.bias"]),
    ({"filter_prefix": "first", "choice_func": lambda path: path.endswith("bias")}, ["second.bias"]),
]


def two_layers(fill):
    net = nn.Cell()
    net.first, net.second = nn.Dense(2, 2, fill, fill), nn.Dense(2, 2, fill, fill)
    return net


@pytest.mark.parametrize(("options", "expected"), CHOSEN)
def test_part_of_checkpoint_is_selected_by_paths(options, expected, tmp_path):
    snncell.save_checkpoint(two_layers("ones"), tmp_path / "p")
    assert sorted(snncell.load_checkpoint(tmp_path / "p", **options)) == sorted(expected)
    net = two_layers("zeros")
    if len(expected) < 4:
        with pytest.raises(CheckpointError, match="Not in the checkpoint"):
            snncell.load_checkpoint(tmp_path / "p", net, **options)
        assert not any(p.asnumpy().any() for p in net.get_parameters())
    snncell.load_checkpoint(tmp_path / "p", net, strict_load=False, **options)
    assert sorted(path for path, p in net.parameters_and_names() if p.asnumpy().all()) == sorted(expected)
    if choose := options.get("choice_func"):
        snncell.save_checkpoint(two_layers("ones"), tmp_path / "q", choice_func=choose)
        assert all(map(choose, snncell.load_checkpoint(tmp_path / "q")))
    with pytest.raises(CheckpointError, match=r"the filters select none of first\.bias, "):
        snncell.load_checkpoint(tmp_path / "p", specify_prefix="third")


def test_extra_values_are_saved_with_cell(tmp_path):
    more = {"epoch": 7, "best": 0.5, "done": True, "seen": Tensor([1, 2]), "again": Parameter(Tensor([3.0]), name="x")}
    options = {"integrated_save": False, "async_save": True, "crc_check": True, "format": "safetensors"}
    snncell.save_checkpoint(two_layers("ones"), tmp_path / "p", append_dict=more, **options)
    found = snncell.load_checkpoint(tmp_path / "p", format="safetensors", crc_check=True)
    assert {name: found[name].tolist() for name in more} == {**more, "seen": [1, 2], "again": [3.0]}
    assert snncell.load_param_into_net(two_layers("zeros"), found) == ([], sorted(more))
    for wrong, text in (({"first.bias": 1.0}, "is already in use"), ({"text": "a"}, "'text' of save_obj is")):
        with pytest.raises(CheckpointError, match=text):
            snncell.save_checkpoint(two_layers("ones"), tmp_path / "q", append_dict=wrong)
    for refused in (
        lambda: snncell.save_checkpoint(two_layers("ones"), tmp_path / "q", enc_key=b"secret"),
        lambda: snncell.load_checkpoint(tmp_path / "p", dec_key=b"secret"),
    ):
        with pytest.raises(ArgumentTypeError, match="_key is None"):
            refused()
    assert not (tmp_path / "q").exists()
