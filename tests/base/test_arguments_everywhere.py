"""The check of arguments reaches everything public: presets, methods, keywords, flags, classes in place of objects."""

from __future__ import annotations

import contextlib
import functools
import inspect
import typing
from typing import Any

import numpy as np
import pytest
import wrong_calls

import snncell
from snncell import Parameter, Tensor, data, monitoring, nn, ops, surrogate, train
from snncell.base.arguments.guard import plan_of
from snncell.errors import ArgumentError, ArgumentTypeError, CallError, DeviceMemoryError, SnncellError
from snncell.kernels.numba import build, files
from snncell.nn.neurons.elsewhere import PRESETS

PUBLIC = wrong_calls.public()
SUBJECTS = [subject for subject in wrong_calls.subjects() if not subject.name.endswith("()")]
X = ops.ones((2, 3))

# --- presets of other frameworks --------------------------------------------------------------------------------------

# What belongs in no constant and no flag.
JUNK = {
    "text": "0.5", "word": "no", "bytes": b"1", "bool": True, "complex": 1j, "NaN": float("nan"), "list of str": ["a"],
    "ragged": [[1.0], [1.0, 2.0]], "nothing": [], "class": int, "array of str": np.array(["a"]),
    "empty array": np.zeros(0), "complex array": np.ones(2, complex), "booleans": np.ones(2, bool), "huge": 10**400,
    "Tensor of booleans": Tensor([True]), "empty Tensor": Tensor(np.zeros(0)), "object": object(), "dict": {},
}  # fmt: skip
SETTINGS = [
    (neuron, framework, word) for neuron, framework in PRESETS for word in plan_of(PRESETS[neuron, framework]).names
]


def required(neuron: str, framework: str) -> dict[str, Any]:
    """Settings that a preset has no default for."""
    given = inspect.signature(PRESETS[neuron, framework]).parameters.values()
    numbers = {
        p.name: {"alpha": 0.75}.get(p.name, 2.0 if "tau" in p.name else 0.5) for p in given if p.default is p.empty
    }
    return {"beta": 0.9} if framework == "snntorch.Lapicque" else numbers


@pytest.mark.parametrize(("neuron", "framework"), PRESETS)
def test_a_preset_is_right_by_its_defaults(neuron, framework):
    getattr(nn, neuron).like(framework, **required(neuron, framework))


@pytest.mark.sampled(250)
@pytest.mark.parametrize(("neuron", "framework", "word"), SETTINGS)
def test_a_preset_refuses_what_its_setting_cannot_be(neuron, framework, word):
    hint = str(inspect.signature(PRESETS[neuron, framework]).parameters[word].annotation)
    for name, wrong in JUNK.items():
        if name == "bool" and hint == "bool":
            continue
        with pytest.raises(SnncellError) as refused:
            getattr(nn, neuron).like(framework, **required(neuron, framework) | {word: wrong})
        assert neuron in str(refused.value) or "like" in str(refused.value), (name, str(refused.value))


def test_a_preset_takes_numbers_of_all_kinds():
    def after(tau):
        return nn.MultiStep(nn.LIFNode.like("nir", tau=tau, r=1.0, v_leak=0.0, v_threshold=1.0, dt=0.001))(X * 3.0)

    expected = after(0.01).asnumpy()
    for tau in (np.float32(0.01), np.full(3, 0.01), [0.01] * 3, Tensor(0.01), Parameter(np.full(3, 0.01))):
        assert np.array_equal(after(tau).asnumpy(), expected), tau


# --- flags ------------------------------------------------------------------------------------------------------------


def _flags() -> dict[str, tuple[Any, str]]:
    """Public functions, classes and methods, with each argument that is True or False; inherited ones once."""
    callables: dict[str, Any] = {}
    for name, one in PUBLIC.items():
        callables[name] = one
        if isinstance(one, type):
            public = (m for m in dir(one) if not m.startswith("_") and not issubclass(one, Tensor) and m != "function")
            callables |= {f"{name}.{m}": getattr(one, m) for m in public if inspect.isfunction(getattr(one, m))}
    found, seen = {}, set()
    for name, one in callables.items():
        function = inspect.unwrap(one.__init__ if isinstance(one, type) else one)
        if not inspect.isfunction(function) or not function.__module__.startswith("snncell.") or function in seen:
            continue
        seen.add(function)
        hints = typing.get_type_hints(function)
        found |= {f"{name}, {argument}": (one, argument) for argument, hint in hints.items() if hint is bool}
    found |= {f"Tensor.{name}, keepdims": (getattr(X, name), "keepdims") for name in ("sum", "argmax", "std", "any")}
    return {key: value for key, value in found.items() if value[1] != "return"}


FLAGS = _flags()


@pytest.mark.parametrize("flag", FLAGS)
def test_a_flag_is_true_or_false(flag):
    one, argument = FLAGS[flag]
    for wrong in ("no", "False", 0, 1, 0.0, [], Tensor(True)):
        given = {argument: wrong}
        if inspect.ismethod(one) or (inspect.isfunction(one) and "." in one.__qualname__):
            call = one if inspect.ismethod(one) else functools.partial(one, nn.Dense(2, 2))
        else:
            call = functools.partial(one, **_with(one))
        with pytest.raises(SnncellError, match=rf"\b{argument} is True or False"):
            call(**given)


def _with(one: Any) -> dict[str, Any]:
    """Arguments without a default."""
    subject = next(subject for subject in SUBJECTS if subject.make() is one)
    base = wrong_calls.base(subject)
    return {} if base.pop("*", None) else base  # flags are refused before anything is found to be missing


def test_there_are_flags_everywhere():
    assert len(FLAGS) > 80
    assert {"Dense, has_bias", "sum, keepdims", "grad, has_aux"} <= FLAGS.keys()
    assert any(name.endswith(".set_train, mode") for name in FLAGS)


# --- names ------------------------------------------------------------------------------------------------------------

METHODS = [name for name in dir(Tensor) if not name.startswith("_") and callable(getattr(Tensor, name))]
OF_AXES = [name for name in METHODS if "axis" in inspect.signature(getattr(Tensor, name)).parameters]


@pytest.mark.parametrize("name", METHODS)
def test_a_method_of_tensors_says_that_it_has_no_such_argument(name):
    with pytest.raises(TypeError) as refused:
        getattr(X, name)(nonsense=1)
    named = isinstance(refused.value, SnncellError)
    assert named or not inspect.signature(getattr(X, name)).parameters, str(refused.value)
    assert "nonsense" in str(refused.value)


@pytest.mark.parametrize("name", OF_AXES)
def test_a_method_of_tensors_takes_pytorchs_dim_and_a_function_says_axis(name):
    with contextlib.suppress(SnncellError):  # of other arguments, which are missing, or of shapes
        getattr(X, name)(dim=0)
    takes_axis = name in vars(ops) and "axis" in inspect.signature(getattr(ops, name)).parameters
    if takes_axis and name != "permute":  # whose axis is all that follows
        with pytest.raises(CallError, match=r": has no argument dim\. Did you mean axis\?"):
            getattr(ops, name)(X, dim=0)


def test_a_method_takes_an_axis_by_either_name():
    found = [
        X.argmax(dim=0),
        X.cumsum(dim=1),
        X.index_select(dim=1, index=[0]),
        X.expand_dims(dim=0),
        X.chunk(2, dim=1)[0],
    ]
    same = [X.argmax(0), X.cumsum(1), X.index_select(1, [0]), X.expand_dims(0), X.chunk(2, 1)[0]]
    assert [x.tolist() for x in found] == [x.tolist() for x in same]


def test_a_method_of_tensors_takes_pytorchs_keepdim_and_a_function_says_keepdims():
    assert len(OF_AXES) > 10 and X.sum(0, keepdim=True).shape == X.sum(0, keepdims=True).shape
    with pytest.raises(CallError, match=r"sum: has no argument keepdim\. Did you mean keepdims\?"):
        ops.sum(X, 0, keepdim=True)
    with pytest.raises(CallError, match=r"ReduceSum: has no argument keepdim\. Did you mean keep_dims\?"):
        ops.ReduceSum(keepdim=True)


CLASSES = [name for name, one in PUBLIC.items() if isinstance(one, type) and not issubclass(one, (tuple, Tensor))]


@pytest.mark.parametrize("name", [name for name in CLASSES if name not in ("Cell", "Surrogate")])  # they take any name
def test_a_class_says_which_argument_was_meant(name):
    one = PUBLIC[name]
    for argument in [
        p.name
        for p in inspect.signature(one).parameters.values()
        if p.kind is p.KEYWORD_ONLY or p.kind is p.POSITIONAL_OR_KEYWORD
    ]:
        if len(argument) < 4:
            continue
        wrong = argument[0] + argument[2] + argument[1] + argument[3:]  # two letters swapped
        if wrong == argument:
            continue
        with pytest.raises(CallError) as refused:
            one(**{wrong: 1})
        assert argument in str(refused.value)
        assert wrong in str(refused.value) or "missing" in str(refused.value)


def test_what_has_no_options_takes_none():
    with pytest.raises(CallError, match="ReLU: has no argument inplace"):
        nn.ReLU(inplace=True)
    with pytest.raises(ArgumentTypeError, match=r"Create the Cell first, then call it with data: ReLU\(\)\(x\)"):
        nn.ReLU(X)

    class Mine(nn.Cell):
        pass

    assert Mine(depth=3).depth == 3


def test_what_is_missing_is_named():
    with pytest.raises(
        CallError, match=r"Dense: missing a required argument: 'out_channels'\. It takes in_channels, out"
    ):
        nn.Dense(3)
    with pytest.raises(CallError, match="sum: missing a required argument: 'x'"):
        ops.sum()


# --- classes where objects belong -------------------------------------------------------------------------------------

NET = nn.Dense(2, 2)
DATA = (np.ones((4, 2), np.float32), np.zeros(4, np.int64))
INSTEAD = [
    (lambda: nn.SequentialCell(nn.Dense(2, 2), nn.ReLU), r"SequentialCell.*not the class ReLU; .*: nn\.ReLU\(\)"),
    (lambda: nn.SequentialCell([nn.ReLU]), r"nn\.ReLU\(\)"),
    (lambda: nn.SequentialCell().append(nn.ReLU), r"nn\.ReLU\(\)"),
    (lambda: nn.CellList([nn.ReLU]), r"CellList: element 0 of cells .* nn\.ReLU\(\)"),
    (lambda: nn.MultiStep(nn.Dense), r"MultiStep: cell .* nn\.Dense\(in_channels, out_channels\)"),
    (lambda: nn.TimeDistributed(nn.ReLU), r"TimeDistributed: cell .* nn\.ReLU\(\)"),
    (lambda: nn.Truncated(nn.LIFNode, 3), r"Truncated: cell .* nn\.LIFNode\(\)"),
    (lambda: nn.Stateful(nn.LIFNode), r"Stateful: cell .* nn\.LIFNode\(\)"),
    (lambda: nn.SEWBlock(nn.ReLU), r"SEWBlock: branch .* nn\.ReLU\(\)"),
    (lambda: nn.Dense(2, 2, activation=nn.ReLU), r"Dense: activation .* nn\.ReLU\(\)"),
    (lambda: nn.LIFNode(surrogate_function=surrogate.ATan), r"LIFNode: surrogate_function .* surrogate\.ATan\(\)"),
    (lambda: snncell.jit(nn.ReLU), r"jit: fn .* nn\.ReLU\(\)"),
    (lambda: snncell.grad(nn.ReLU), r"grad: fn .* nn\.ReLU\(\)"),
    (lambda: train.Spikes(nn.MultiStep), r"Spikes: cells .* nn\.MultiStep\(cell\)"),
    (lambda: monitoring.Monitor(nn.LIFNode), r"Monitor: net .* nn\.LIFNode\(\)"),
    (lambda: train.evaluate(NET, nn.MSELoss, DATA), r"evaluate: loss .* nn\.MSELoss\(\)"),
    (lambda: train.fit(NET, nn.MSELoss, nn.SGD([Parameter(1.0)]), DATA, 1), r"fit: loss .* nn\.MSELoss\(\)"),
    (lambda: train.fit(NET, nn.CrossEntropyLoss(), nn.SGD, DATA, 1), r"not .*the class SGD; .* nn\.SGD\(params\)"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "text"), INSTEAD)
def test_a_class_in_the_place_of_an_object_says_how_one_is_made(call, text):
    with pytest.raises(SnncellError, match=text):
        call()


# --- single words -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "around",
    [
        lambda cell: cell,
        nn.MultiStep,
        nn.Stateful,
        nn.TimeDistributed,
        lambda cell: nn.MultiStep(nn.Recurrent(cell, nn.Dense(3, 3))),
        lambda cell: nn.MultiStep(nn.Truncated(cell, 2)),
    ],
)
def test_a_cell_with_forward_is_told_of_construct(around):
    class Theirs(nn.Cell):
        def forward(self, x, v):
            return x, v

    class Begun(Theirs):
        def init_state(self, x):
            return ops.zeros_like(x)

    for cell in (Theirs(), Begun()):
        with pytest.raises(
            SnncellError, match=r"no method construct.* It has forward, PyTorch's name.*: rename forward to construct"
        ):
            around(cell)(ops.ones((4, 2, 3)))


def test_words_of_single_errors():
    with pytest.raises(ArgumentError, match="padding is a list of which each element is an integer or a list of integ"):
        ops.pad(X, "same")
    for mode in ("graph", True, 7, 0.0, [0], np.zeros(2)):
        with pytest.raises(ArgumentError, match=r"mode is GRAPH_MODE \(0\) or PYNATIVE_MODE \(1\), not"):
            snncell.set_context(mode=mode)
    with pytest.raises(DeviceMemoryError, match=r"padded\(sequences=.*steps=1099511627776\)"):
        data.padded([[[1.0]]], steps=2**40)
    with pytest.raises(SnncellError, match=r"LIFNode\(x=\[\[1.0\], \[1.0, 2.0\]\]"):
        nn.LIFNode()([[1.0], [1.0, 2.0]], X)


@pytest.mark.parametrize("error", [MemoryError(), MemoryError("Unable to allocate 3.35 GiB")])
def test_a_full_memory_is_named_with_the_call_whatever_the_error_says(monkeypatch, error):
    def full(*_):
        raise error

    monkeypatch.setattr("snncell.ops.base.refuse_size", full)
    with pytest.raises(DeviceMemoryError, match=r"eye\(n=3\): the main memory is full: (Python|Unable).*Take"):
        ops.eye(3)


# --- the environment --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("variable", "given"), [("SNNCELL_CACHE_MB", "abc"), ("SNNCELL_DEBUG", "yes")])
def test_a_variable_of_the_environment_is_checked_where_all_is_in_the_cache_too(monkeypatch, variable, given):
    monkeypatch.setenv(variable, given)
    with pytest.raises(ArgumentError, match=f"{variable} (is|must be) .* not '{given}'"):
        build.keep("kernel", "", "")


def test_a_misspelt_variable_of_the_environment_is_told(monkeypatch):
    monkeypatch.setenv("SNNCELL_CACHEDIR", "here")
    monkeypatch.setenv("SNNCELL_PANELS", "1")
    files.warn_of_misspelt.cache_clear()
    with pytest.warns(
        RuntimeWarning,
        match="SNNCELL_CACHEDIR is not an environment variable of snncell. Do you mean SNNCELL_CACHE_DIR",
    ) as all:
        files.warn_of_misspelt()
    assert len(all) == 1
