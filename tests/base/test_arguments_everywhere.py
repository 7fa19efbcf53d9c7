"""Argument checks cover the whole public API: presets, methods, keywords, flags, classes instead of objects."""

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
from snncell.nn.neurons.convert import PRESETS

PUBLIC = wrong_calls.public()
SUBJECTS = [subject for subject in wrong_calls.subjects() if not subject.name.endswith("()")]
X = ops.ones((2, 3))

# --- presets of other frameworks --------------------------------------------------------------------------------------

# Values that are invalid for every constant and flag.
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
    """Settings that have no default in a preset."""
    given = inspect.signature(PRESETS[neuron, framework]).parameters.values()
    numbers = {
        p.name: {"alpha": 0.75}.get(p.name, 2.0 if "tau" in p.name else 0.5) for p in given if p.default is p.empty
    }
    return {"beta": 0.9} if framework == "snntorch.Lapicque" else numbers


@pytest.mark.parametrize(("neuron", "framework"), PRESETS)
def test_preset_works_with_its_defaults(neuron, framework):
    getattr(nn, neuron).like(framework, **required(neuron, framework))


@pytest.mark.sampled(250)
@pytest.mark.parametrize(("neuron", "framework", "word"), SETTINGS)
def test_preset_with_an_invalid_setting_raises(neuron, framework, word):
    hint = str(inspect.signature(PRESETS[neuron, framework]).parameters[word].annotation)
    for name, wrong in JUNK.items():
        if name == "bool" and hint == "bool":
            continue
        with pytest.raises(SnncellError) as refused:
            getattr(nn, neuron).like(framework, **required(neuron, framework) | {word: wrong})
        assert neuron in str(refused.value) or "like" in str(refused.value), (name, str(refused.value))


def test_preset_accepts_numbers_of_all_kinds():
    def after(tau):
        return nn.MultiStep(nn.LIFNode.like("nir", tau=tau, r=1.0, v_leak=0.0, v_threshold=1.0, dt=0.001))(X * 3.0)

    expected = after(0.01).asnumpy()
    for tau in (np.float32(0.01), np.full(3, 0.01), [0.01] * 3, Tensor(0.01), Parameter(np.full(3, 0.01))):
        assert np.array_equal(after(tau).asnumpy(), expected), tau


# --- flags ------------------------------------------------------------------------------------------------------------


def _flags() -> dict[str, tuple[Any, str]]:
    """Public functions, classes and methods with each boolean argument. Inherited ones are listed once."""
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
def test_flag_must_be_a_boolean(flag):
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
    """Values for the arguments without a default."""
    subject = next(subject for subject in SUBJECTS if subject.make() is one)
    base = wrong_calls.base(subject)
    return {} if base.pop("*", None) else base  # invalid flags raise before missing arguments do


def test_public_api_has_many_flags():
    assert len(FLAGS) > 80
    assert {"Dense, has_bias", "sum, keepdims", "grad, has_aux"} <= FLAGS.keys()
    assert any(name.endswith(".set_train, mode") for name in FLAGS)


# --- names ------------------------------------------------------------------------------------------------------------

METHODS = [name for name in dir(Tensor) if not name.startswith("_") and callable(getattr(Tensor, name))]
OF_AXES = [name for name in METHODS if "axis" in inspect.signature(getattr(Tensor, name)).parameters]


@pytest.mark.parametrize("name", METHODS)
def test_tensor_method_with_an_unknown_argument_raises_with_its_name(name):
    with pytest.raises(TypeError) as refused:
        getattr(X, name)(nonsense=1)
    named = isinstance(refused.value, SnncellError)
    assert named or not inspect.signature(getattr(X, name)).parameters, str(refused.value)
    assert "nonsense" in str(refused.value)


@pytest.mark.parametrize("name", OF_AXES)
def test_tensor_methods_accept_dim_and_functions_suggest_axis(name):
    with contextlib.suppress(SnncellError):  # from other arguments, which are missing, or from shapes
        getattr(X, name)(dim=0)
    takes_axis = name in vars(ops) and "axis" in inspect.signature(getattr(ops, name)).parameters
    if takes_axis and name != "permute":  # these methods accept a variadic axis
        with pytest.raises(CallError, match=r" has no argument dim\. Did you mean axis\?"):
            getattr(ops, name)(X, dim=0)


def test_method_accepts_an_axis_by_either_name():
    found = [
        X.argmax(dim=0),
        X.cumsum(dim=1),
        X.index_select(dim=1, index=[0]),
        X.expand_dims(dim=0),
        X.chunk(2, dim=1)[0],
    ]
    same = [X.argmax(0), X.cumsum(1), X.index_select(1, [0]), X.expand_dims(0), X.chunk(2, 1)[0]]
    assert [x.tolist() for x in found] == [x.tolist() for x in same]


def test_tensor_methods_accept_keepdim_and_functions_suggest_keepdims():
    assert len(OF_AXES) > 10 and X.sum(0, keepdim=True).shape == X.sum(0, keepdims=True).shape
    with pytest.raises(CallError, match=r"sum has no argument keepdim\. Did you mean keepdims\?"):
        ops.sum(X, 0, keepdim=True)
    with pytest.raises(CallError, match=r"ReduceSum has no argument keepdim\. Did you mean keep_dims\?"):
        ops.ReduceSum(keepdim=True)


CLASSES = [name for name, one in PUBLIC.items() if isinstance(one, type) and not issubclass(one, (tuple, Tensor))]


# These accept any name.
@pytest.mark.parametrize("name", [name for name in CLASSES if name not in ("Cell", "Surrogate")])
def test_class_with_a_misspelt_argument_raises_with_a_suggestion(name):
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


def test_class_without_options_rejects_all_arguments():
    with pytest.raises(CallError, match="ReLU has no argument inplace"):
        nn.ReLU(inplace=True)
    with pytest.raises(ArgumentTypeError, match=r"Create the Cell first, then call it with data: ReLU\(\)\(x\)"):
        nn.ReLU(X)

    class Mine(nn.Cell):
        pass

    assert Mine(depth=3).depth == 3


def test_missing_argument_raises_with_its_name():
    with pytest.raises(
        CallError, match=r"Dense: missing a required argument: 'out_channels'\. It takes in_channels, out"
    ):
        nn.Dense(3)
    with pytest.raises(CallError, match="sum: missing a required argument: 'x'"):
        ops.sum()


# --- classes instead of objects ---------------------------------------------------------------------------------------

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
def test_class_instead_of_an_object_raises_with_the_constructor_call(call, text):
    with pytest.raises(SnncellError, match=text):
        call()


# --- individual messages ----------------------------------------------------------------------------------------------


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
def test_cell_with_forward_raises_with_a_hint_to_construct(around):
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


def test_individual_error_messages_are_complete():
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
def test_out_of_memory_error_names_the_call(monkeypatch, error):
    def full(*_):
        raise error

    monkeypatch.setattr("snncell.ops.base.refuse_size", full)
    with pytest.raises(DeviceMemoryError, match=r"eye\(n=3\): the main memory is full: (Python|Unable).*Take"):
        ops.eye(3)


# --- the environment --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("variable", "given"), [("SNNCELL_CACHE_MB", "abc"), ("SNNCELL_DEBUG", "yes")])
def test_environment_variables_are_checked_even_with_a_full_cache(monkeypatch, variable, given):
    monkeypatch.setenv(variable, given)
    with pytest.raises(ArgumentError, match=f"{variable} (is|must be) .* not '{given}'"):
        build.keep("kernel", "", "")


def test_misspelt_environment_variable_is_reported(monkeypatch):
    monkeypatch.setenv("SNNCELL_CACHEDIR", "here")
    monkeypatch.setenv("SNNCELL_PANELS", "1")
    files.warn_of_misspelt.cache_clear()
    with pytest.warns(
        RuntimeWarning,
        match="SNNCELL_CACHEDIR is not an environment variable of snncell. Do you mean SNNCELL_CACHE_DIR",
    ) as all:
        files.warn_of_misspelt()
    assert len(all) == 1
