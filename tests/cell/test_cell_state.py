"""State of Cells: buffers, state dicts and their hooks, extra state, flags, inputs, compilation, precision."""

import copy
import pickle

import numpy as np
import pytest
from cells import Leaf
from interrupting import each_interruption

import snncell
from snncell import Parameter, Tensor, nn, ops, train
from snncell.errors import (
    ArgumentError,
    ArgumentTypeError,
    CheckpointError,
    MissingNameError,
    NameClashError,
)


class Counted(nn.Cell):
    """A Cell with a buffer, a non-persistent buffer, and extra state."""

    def __init__(self):
        super().__init__()
        self.w = Parameter(Tensor([1.0, 2.0]))
        self.register_buffer("mean", Tensor([4, 5, 6]))
        self.register_buffer("cache", Tensor([0.0]), persistent=False)
        self.register_buffer("later", None)
        self.note = "as made"

    def get_extra_state(self):
        return self.note

    def set_extra_state(self, state):
        self.note = state


def as_lists(state):
    return {path: value.asnumpy().tolist() if isinstance(value, Tensor) else value for path, value in state.items()}


# --- buffers ----------------------------------------------------------------------------------------------------------


def test_buffers_are_tensors_not_parameters():
    net = nn.SequentialCell(Counted())
    assert type(net[0].mean) is Tensor and net[0].mean.asnumpy().tolist() == [4, 5, 6]
    assert [path for path, _ in net.named_buffers()] == ["0.mean", "0.cache"]
    assert [path for path, _ in net.named_buffers("net", recurse=False)] == []
    assert [path for path, _ in net[0].named_buffers("net")] == ["net.mean", "net.cache"]
    assert [b.shape for b in net.buffers()] == [(3,), (1,)] and list(net.buffers(recurse=False)) == []
    assert [path for path, _ in net.parameters_and_names()] == ["0.w"]
    assert net.get_buffer("0.mean") is net[0].mean
    for path in ("0.w", "0.no", "1.mean"):
        with pytest.raises(MissingNameError):
            net.get_buffer(path)


def test_buffer_can_be_replaced_by_a_tensor_and_deleted():
    cell = Counted()
    cell.mean = Tensor([7])
    cell.register_buffer("mean", Tensor([8]))
    assert cell.get_buffer("mean").asnumpy().tolist() == [8]
    with pytest.raises(ArgumentTypeError, match=r"Counted\.mean is a buffer: a Tensor or None, not"):
        cell.mean = 3.0
    cell.mean = None
    assert [path for path, _ in cell.named_buffers()] == ["cache"]
    del cell.mean
    cell.mean = 3.0
    assert "mean" not in cell.state_dict()


def test_one_tensor_can_be_two_buffers():
    cell, x = nn.Cell(), Tensor([1.0])
    cell.register_buffer("a", x)
    cell.register_buffer("b", x)
    assert [path for path, _ in cell.named_buffers()] == ["a"]
    assert [path for path, _ in cell.named_buffers(remove_duplicate=False)] == ["a", "b"]


@pytest.mark.parametrize(
    ("name", "tensor", "kind", "match"),
    [
        ("", Tensor([1.0]), NameClashError, "name is the name of an attribute"),
        ("a.b", Tensor([1.0]), NameClashError, "without dots"),
        ("w", Tensor([1.0]), NameClashError, "already has an attribute 'w'"),
        ("construct", Tensor([1.0]), NameClashError, "already has an attribute 'construct'"),
        (3, Tensor([1.0]), ArgumentTypeError, "name is a str"),
        ("x", 3.0, ArgumentTypeError, "tensor is a Tensor or None"),
        ("x", Parameter(Tensor([1.0])), ArgumentTypeError, "tensor is a Tensor or None"),
    ],
)
def test_invalid_buffers_raise(name, tensor, kind, match):
    with pytest.raises(kind, match=match):
        Leaf().register_buffer(name, tensor)


@pytest.mark.compiled
def test_jitted_cell_uses_a_replaced_buffer():
    class Shift(nn.Cell):
        def __init__(self):
            super().__init__()
            self.register_buffer("by", Tensor([1.0]))

        def construct(self, x):
            return x + self.by

    cell = Shift()
    jitted = snncell.jit(cell)
    assert jitted(Tensor([1.0])).item() == 2.0
    cell.by = Tensor([5.0])
    assert jitted(Tensor([1.0])).item() == 6.0


def test_copies_and_checkpoints_include_buffers(tmp_path):
    net = nn.SequentialCell(Counted())
    net[0].mean = Tensor([1, 2, 3])
    assert pickle.loads(pickle.dumps(net))[0].get_buffer("mean").asnumpy().tolist() == [1, 2, 3]
    twin = copy.deepcopy(net)
    twin[0].mean = Tensor([0, 0, 0])
    assert net[0].mean.asnumpy().tolist() == [1, 2, 3]
    snncell.save_checkpoint(net, tmp_path / "net")
    assert sorted(snncell.load_checkpoint(tmp_path / "net", twin)) == ["0.mean", "0.w"]
    assert twin[0].mean.asnumpy().tolist() == [1, 2, 3] and type(twin[0].mean) is Tensor
    assert net.to("cpu") is net and net[0].mean.asnumpy().tolist() == [1, 2, 3]


# --- state dicts ------------------------------------------------------------------------------------------------------


def test_state_dict_has_the_objects_of_the_cell_by_path():
    net = nn.SequentialCell(Counted(), Leaf())
    state = net.state_dict()
    assert list(state) == ["0.w", "0.mean", "0._extra_state", "1.w", "1.b"]
    assert state["0.w"] is net[0].w and state["0.mean"] is net[0].mean and state["0._extra_state"] == "as made"
    into = {}
    assert net.state_dict(destination=into, prefix="net.") is into and next(iter(into)) == "net.0.w"


def test_state_dict_loads_into_another_cell():
    net, twin = nn.SequentialCell(Counted(), Leaf()), nn.SequentialCell(Counted(), Leaf())
    net[0].w.set_data(Tensor([8.0, 9.0]))
    net[0].mean, net[0].note = Tensor([0, 0, 1]), "changed"
    found = twin.load_state_dict(net.state_dict())
    assert found == ([], []) and found.missing_keys == found.unexpected_keys == []
    assert as_lists(twin.state_dict()) == as_lists(net.state_dict()) and twin[0].w is not net[0].w


def test_state_dict_is_saved_to_and_loaded_from_a_file(tmp_path):
    net, twin = nn.SequentialCell(nn.Dense(2, 3)), nn.SequentialCell(nn.Dense(2, 3))
    snncell.save_checkpoint(net.state_dict(), tmp_path / "net")
    twin.load_state_dict(snncell.load_checkpoint(tmp_path / "net"))
    assert as_lists(twin.state_dict()) == as_lists(net.state_dict())
    with pytest.raises(CheckpointError, match="'a' of save_obj is"):
        snncell.save_checkpoint({"a": 3}, tmp_path / "other")


def test_shared_parameters_are_saved_once_and_found_by_any_path():
    net = nn.SequentialCell(Leaf(), Leaf())
    net[1].w = net[0].w
    assert list(net.state_dict()) == ["0.w", "0.b", "1.b"]
    state = {"1.w": np.array([5.0, 6.0], np.float32), "0.b": Tensor([1.0]), "1.b": Tensor([2.0])}
    assert net.load_state_dict(state) == ([], [])
    assert net[0].w.asnumpy().tolist() == [5.0, 6.0]


def test_strict_loading_reports_all_mismatches_and_loads_nothing():
    net = nn.SequentialCell(Leaf(), Counted())
    state = {"0.w": Tensor([7.0, 7.0]), "2.w": Tensor([1.0])}
    with pytest.raises(
        CheckpointError, match=r"Not in the state: \['0\.b', '1\.w', '1\.mean', '1\._extra_state'\]; not"
    ):
        net.load_state_dict(state)
    assert net[0].w.asnumpy().tolist() == [1.0, 2.0]
    found = net.load_state_dict(state, strict=False)
    assert found == (["0.b", "1.w", "1.mean", "1._extra_state"], ["2.w"])
    assert net[0].w.asnumpy().tolist() == [7.0, 7.0]


@pytest.mark.parametrize(
    ("value", "match"),
    [
        (Tensor([1.0]), r"'0\.w' is Float32\[1\] in the state and Float32\[2\] in the Cell"),
        (np.array([1.0, 2.0]), "'0.w' is Float64"),
        ("text", "'0.w' is .*, not a Tensor"),
    ],
)
def test_incompatible_state_dicts_raise(value, match):
    net = nn.SequentialCell(Leaf())
    with pytest.raises(CheckpointError, match=match):
        net.load_state_dict({"0.w": value, "0.b": Tensor([9.0])})
    assert net[0].b.item() == 0.0
    with pytest.raises(ArgumentTypeError, match="state_dict is a dict"):
        net.load_state_dict([("0.w", 3)])


def test_save_hooks_are_called():
    net = nn.SequentialCell(Leaf())
    told = []
    handles = [
        net[0].register_state_dict_pre_hook(lambda cell, prefix, keep: told.append((cell, prefix, keep))),
        net[0].register_state_dict_post_hook(lambda cell, state, prefix, meta: state.update({f"{prefix}more": 1})),
    ]
    assert list(net.state_dict()) == ["0.w", "0.b", "0.more"] and told == [(net[0], "0.", False)]
    for handle in handles:
        handle.remove()
    assert list(net.state_dict()) == ["0.w", "0.b"]


def test_load_hooks_are_called():
    net = nn.SequentialCell(Leaf())

    def rename(cell, state, prefix, meta, strict, missing, unexpected, errors):
        state[f"{prefix}w"] = state.pop("0.old")

    net[0].register_load_state_dict_pre_hook(rename)
    net.register_load_state_dict_post_hook(lambda cell, keys: keys.missing_keys.remove("0.b"))
    given = {"0.old": Tensor([3.0, 4.0])}
    assert net.load_state_dict(given) == ([], []) and list(given) == ["0.old"]
    assert net[0].w.asnumpy().tolist() == [3.0, 4.0]
    net.register_load_state_dict_post_hook(lambda cell, keys: keys.unexpected_keys.append("mine"))
    with pytest.raises(CheckpointError, match="not in the Cell: \\['mine'\\]"):
        net.load_state_dict({"0.old": Tensor([0.0, 0.0])})
    assert net[0].w.asnumpy().tolist() == [3.0, 4.0]
    net[0].register_load_state_dict_pre_hook(lambda *args: args[-1].append("It is too old."))
    with pytest.raises(CheckpointError, match="SequentialCell: It is too old"):
        net.load_state_dict({"0.old": Tensor([0.0, 0.0])})


def test_extra_state_methods_raise_by_default():
    with pytest.raises(MissingNameError, match="Leaf has no extra state"):
        Leaf().get_extra_state()
    with pytest.raises(MissingNameError, match="Leaf cannot load extra state"):
        Leaf().set_extra_state(3)


# --- flags, inputs, compilation ---------------------------------------------------------------------------------------


def test_flags_are_set_on_one_cell_or_recursively():
    net = nn.SequentialCell(Leaf())
    assert net.get_flags() == {} and net.add_flags(sink_mode=True) is net
    assert net.sink_mode is True and net.get_flags() == {"sink_mode": True} and net[0].get_flags() == {}
    assert net.add_flags_recursive(fast=1) is net and net[0].fast == 1
    assert nn.Cell(flags={"a": 2}).a == 2 and nn.Cell(flags={"a": 2}).get_flags() == {"a": 2}
    assert nn.Cell(auto_prefix=False, b=3).b == 3
    assert net.cls_name == "SequentialCell"


def test_set_grad_sets_requires_grad_of_all_parameters():
    net = nn.SequentialCell(Leaf())
    assert net.requires_grad is False and net[0].b.requires_grad is False
    assert net.set_grad() is net and net.requires_grad is net[0].requires_grad is True and net[0].b.requires_grad
    net.set_grad(False)
    assert net.requires_grad is False and net.trainable_params() == []


def test_set_inputs_stores_the_inputs():
    class Two(nn.Cell):
        def construct(self, x, y=None):
            return x if y is None else x + y

    cell, x = Two(), Tensor([1.0])
    assert cell.get_inputs() is None
    cell.set_inputs(x)
    assert cell.get_inputs() == (x, None)
    cell.set_inputs(y=x, x=x)
    assert cell.get_inputs() == (x, x)
    with pytest.raises(ArgumentError, match="by position or by name, not both"):
        cell.set_inputs(x, y=x)
    with pytest.raises(snncell.errors.CallError, match=r"Two\.construct takes"):
        cell.set_inputs(x, x, x)
    for config in ({"jit_level": "O1"}, snncell.JitConfig(jit_level="O1")):
        cell.set_jit_config(config)
    with pytest.raises(ArgumentTypeError, match="jit_config is a JitConfig or a dict"):
        cell.set_jit_config(3)


@pytest.mark.compiled
def test_compile_traces_before_the_first_call():
    traced = []

    class Told(Leaf):
        def construct(self, x):
            traced.append(x.shape)
            return super().construct(x)

    cell, x = Told(), Tensor([1.0, 2.0])
    assert not cell.compiled
    cell.compile(x)
    assert cell.compiled and traced == [(2,)]
    snncell.set_context(mode=snncell.GRAPH_MODE)
    try:
        assert cell(x).asnumpy().tolist() == [1.0, 4.0] and traced == [(2,)]
    finally:
        snncell.set_context(mode=snncell.PYNATIVE_MODE)
    cell.set_inputs(Tensor([[1.0, 2.0]]))
    cell.compile()
    assert traced == [(2,), (1, 2)]


# --- precision --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [snncell.float16, snncell.bfloat16])
def test_to_float_computes_and_returns_half_precision(kind):
    net, x = nn.SequentialCell(nn.Dense(8, 4), nn.ReLU()), ops.full((2, 8), 0.3)
    plain = net(x)
    assert net.to_float(kind) is net
    out = net(x)
    assert out.dtype is kind and net[0].weight.dtype is snncell.float32
    gradient = snncell.grad(lambda x: net(x).astype(snncell.float32).sum(), None, net[0].weight)(x)
    assert gradient.dtype is snncell.float32
    assert not np.array_equal(out.asnumpy().astype(np.float32), plain.asnumpy())
    np.testing.assert_allclose(out.asnumpy().astype(np.float32), plain.asnumpy(), atol=0.05)
    net.to_float(snncell.float32)
    assert np.array_equal(net(x).asnumpy(), plain.asnumpy())


def test_to_float_supports_loops_over_time_and_custom_gradients():
    net = nn.SequentialCell(nn.Dense(3, 4), nn.MultiStep(nn.LIFNode())).to_float("float16")
    assert net[1].compute_dtype is None and net(ops.ones((5, 2, 3))).shape == (5, 2, 4)

    class Own(Leaf):
        def bprop(self, x, out, dout):
            return (dout,)

    with pytest.raises(ArgumentError, match="to_float: Own has a bprop, which uses its Parameters"):
        nn.SequentialCell(Own()).to_float(snncell.float16)
    with pytest.raises(ArgumentError, match="dst_type is float16, bfloat16 or float32"):
        net.to_float(snncell.float64)


# --- training ---------------------------------------------------------------------------------------------------------


def training():
    net = nn.SequentialCell(nn.Dense(2, 2), Counted())
    return net, nn.Adam(net.trainable_params(), 0.1)


def test_resumed_training_restores_buffers(tmp_path):
    net, adam = training()
    net[1].mean = Tensor([1, 0, 9])
    snncell.train.save_state(tmp_path / "state", net, adam)
    twin, other = training()
    snncell.train.load_state(tmp_path / "state", twin, other)
    assert twin[1].mean.asnumpy().tolist() == [1, 0, 9] and twin[1].cache.item() == 0.0
    assert np.array_equal(twin[0].weight.asnumpy(), net[0].weight.asnumpy())
    twin[1].mean = Tensor([1, 0])
    with pytest.raises(CheckpointError, match=r"'buffer/1\.mean' is int64"):
        snncell.train.load_state(tmp_path / "state", twin, other)


def test_training_saved_with_short_names_can_be_resumed(tmp_path):
    net, adam = training()
    for p in adam.parameters:
        p.name = p.name.rpartition(".")[2]
    snncell.train.save_state(tmp_path / "state", net, nn.Adam(adam.parameters, 0.1))
    twin, other = training()
    assert other.groups[0].names == ["0.weight", "0.bias", "1.w"]
    snncell.train.load_state(tmp_path / "state", twin, other)
    assert np.array_equal(twin[0].weight.asnumpy(), net[0].weight.asnumpy())
    swapped = nn.Adam([*reversed(twin.trainable_params())], 0.1)
    with pytest.raises(CheckpointError, match="another optimiser"):
        snncell.train.load_state(tmp_path / "state", twin, swapped)


# --- repr -------------------------------------------------------------------------------------------------------------


class OnlyExt(nn.Cell):
    def extend_repr(self):
        return "alpha=3"


class Inner(nn.Cell):
    def __init__(self):
        super().__init__()
        self.fc = nn.Dense(4, 3)
        self.act = nn.ReLU()


class Both(OnlyExt):
    def __init__(self):
        super().__init__()
        self.inner = Inner()
        self.layers = [OnlyExt()]


INNER = "Inner(\n  (fc): Dense(input_channels=4, output_channels=3, has_bias=True)\n  (act): ReLU()\n)"


@pytest.mark.parametrize(
    ("cell", "wanted"),
    [
        (nn.Dense(4, 3), "Dense(input_channels=4, output_channels=3, has_bias=True)"),
        (nn.Dense(4, 3, has_bias=False), "Dense(input_channels=4, output_channels=3)"),
        (
            nn.Dense(4, 3, has_bias=False, activation="relu"),
            "Dense(\n  input_channels=4, output_channels=3, activation=ReLU()\n  (activation): ReLU()\n)",
        ),
        (nn.Dropout(keep_prob=0.8), "Dropout(keep_prob=0.8)"),
        (nn.Dropout(p=0.2), "Dropout(p=0.2)"),
        (nn.ReLU(), "ReLU()"),
        (nn.Cell(), "Cell()"),
        (OnlyExt(), "OnlyExt(alpha=3)"),
        (Inner(), INNER),
        (nn.SequentialCell(), "SequentialCell()"),
        (Both(), "Both(\n  alpha=3\n  (inner): " + INNER.replace("\n", "\n  ") + "\n  (layers.0): OnlyExt(alpha=3)\n)"),
    ],
    ids=lambda x: x.cls_name if isinstance(x, nn.Cell) else "",
)
def test_repr_includes_extra_settings(cell, wanted):
    assert repr(cell) == str(cell) == wanted


def test_copies_can_delete_a_buffer_independently():
    for copied in (copy.copy, copy.deepcopy):
        cell = Counted()
        twin = copied(cell)
        del twin.mean
        assert [path for path, _ in twin.named_buffers()] == ["cache"]
        assert [path for path, _ in cell.named_buffers()] == ["mean", "cache"] and "mean" in cell.state_dict()


LOADS = {
    "load_state_dict": lambda cell, state, file: cell.load_state_dict(state),
    "load_param_into_net": lambda cell, state, file: snncell.load_param_into_net(cell, state),
    "load_state": lambda cell, state, file: train.load_state(file, cell, nn.SGD([cell.w], 0.1)),
}


class Two(nn.Cell):
    """A Parameter and two buffers."""

    def __init__(self, start):
        super().__init__()
        self.w = Parameter(Tensor([start, 2.0]))
        self.register_buffer("first", Tensor([start]))
        self.register_buffer("wide", Tensor([start, start], "float64"))


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # as in test_interrupts.py
@pytest.mark.parametrize("way", LOADS)
def test_interrupted_load_has_loaded_all_or_nothing(way, tmp_path):
    source, cell, file = Two(5.0), Two(1.0), tmp_path / "training.safetensors"
    train.save_state(file, source, nn.SGD([source.w], 0.1))
    old, new = as_lists(cell.state_dict()), as_lists(source.state_dict())
    state, seen = dict(source.state_dict()), []
    for _ in each_interruption(lambda: LOADS[way](cell, state, file), 150):
        seen.append(as_lists(cell.state_dict()))
        for name in ("first", "wide"):
            setattr(cell, name, Tensor(old[name], cell.get_buffer(name).dtype))
        cell.w.set_data(Tensor(old["w"]))
    assert all(one in (old, new) for one in seen), [one for one in seen if one not in (old, new)]
    assert old in seen and len(seen) > 20


@pytest.mark.parametrize("way", ["load_state_dict", "load_param_into_net"])
def test_buffers_keep_their_dtype_and_are_not_parameters(way):
    cell = Two(1.0)
    given = {"w": Tensor([0.0, 1.0]), "first": Parameter(Tensor([3])), "wide": Tensor([0.5, 0.5])}
    LOADS[way](cell, given, None)
    assert [type(b) is Tensor for b in cell.buffers()] == [True, True]
    assert [b.dtype for b in cell.buffers()] == [snncell.float32, snncell.float64]
    assert as_lists(cell.state_dict()) == {"w": [0.0, 1.0], "first": [3.0], "wide": [0.5, 0.5]}
    assert [path for path, _ in cell.parameters_and_names()] == ["w"]


def test_rejected_extra_state_changes_nothing():
    class Refusing(Counted):
        def set_extra_state(self, state):
            raise ValueError(state)

    cell = Refusing()
    before = as_lists(cell.state_dict())
    with pytest.raises(ValueError, match="other"):
        cell.load_state_dict({"w": Tensor([7.0, 7.0]), "mean": Tensor([1, 2, 3]), "_extra_state": "other"})
    assert as_lists(cell.state_dict()) == before


class Weighted(nn.Cell):
    """A loss with a buffer."""

    def __init__(self, weight):
        super().__init__()
        self.register_buffer("weight", Tensor([weight]))

    def construct(self, output, target):
        return ((output - target) ** 2.0).mean() * self.weight[0]


def test_training_saves_the_buffers_of_its_loss(tmp_path):
    def trained(weight, epochs, **options):
        snncell.set_seed(1)
        net, loss = nn.Dense(2, 1), Weighted(weight)
        data = ops.ones((8, 2)), ops.zeros((8, 1))
        sgd = nn.SGD(net.trainable_params(), 0.1)
        result = train.fit(net, loss, sgd, data, epochs, accuracy=None, progress=False, **options)
        return result.history, loss.weight.item()

    file = tmp_path / "training.safetensors"
    trained(2.0, 1, checkpoint=file)
    assert trained(3.0, 2, resume=file) == trained(2.0, 2)


def test_multiline_settings_are_printed_on_separate_lines():
    class Two(nn.Cell):
        def extend_repr(self):
            return "a=1\nb=2"

    assert repr(Two()) == "Two(\n  a=1\n  b=2\n)"
