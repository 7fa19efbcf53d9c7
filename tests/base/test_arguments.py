"""Argument checks from annotations, short error messages, and suggestions for unknown names."""

from __future__ import annotations

import copy
import importlib
import importlib.util
import inspect
import math
import pickle
import re
import subprocess
import sys
import typing
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import numpy as np
import pytest

import snncell
from snncell import Parameter, Tensor, encode, nn, ops, surrogate, train
from snncell.base.arguments import elsewhere
from snncell.base.arguments.guard import plan_of
from snncell.base.arguments.kinds import REFUSED, UNFIT, Count, ExtendedReal, Within, kind_of
from snncell.base.arguments.shown import show
from snncell.errors import (
    ArgumentError,
    ArgumentTypeError,
    CallError,
    DTypeError,
    MissingNameError,
    ShapeError,
    SnncellError,
)

# --- kinds ------------------------------------------------------------------------------------------------------------

TAKEN: list[tuple[Any, Any, Any]] = [
    (int, 3, 3), (int, np.int32(3), 3), (int, True, REFUSED), (int, 1.0, REFUSED), (int, "1", REFUSED),
    (int, 2**63 - 1, 2**63 - 1), (int, 2**63, UNFIT), (int, 10**400, UNFIT), (Count, 0, UNFIT), (Count, 2**31, UNFIT),
    (float, 3, 3), (float, 0.5, 0.5), (float, np.float32(0.5), 0.5), (float, False, REFUSED), (float, 1j, REFUSED),
    (float, math.nan, UNFIT), (float, math.inf, UNFIT), (float, 10**400, UNFIT), (float, "1", REFUSED),
    (ExtendedReal, math.inf, math.inf), (ExtendedReal, math.nan, UNFIT), (ExtendedReal, 10**400, UNFIT),
    (Annotated[float, Within(0.0, 1.0, open_high=True)], 0, 0), (Annotated[float, Within(0.0, 1.0)], 1, 1),
    (Annotated[float, Within(0.0, 1.0, open_high=True)], 1.0, UNFIT), (Annotated[float, Within(0.0)], -0.1, UNFIT),
    (bool, np.True_, True), (bool, 1, REFUSED), (str, "a", "a"), (str, b"a", REFUSED),
    (Literal["a", "b"], "b", "b"), (Literal["a", "b"], "c", UNFIT), (Literal["a", "b"], 1, REFUSED),
    (int | None, None, None), (int | None, "a", REFUSED), (float | None, math.nan, UNFIT),
    (tuple[float, float], (0, 1), (0, 1)), (tuple[float, float], (0,), UNFIT), (tuple[int, ...], [1, 2], [1, 2]),
    (Sequence[int], [np.int64(1), 2], [1, 2]), (Sequence[int], "ab", REFUSED), (Sequence[int], [1, "a"], REFUSED),
    (Sequence[float], [1.0, math.nan], UNFIT), (Sequence[int], np.arange(2), [0, 1]), (dict[str, Any], {}, {}),
    (dict[str, Any], [], REFUSED), (Any, object, object),
]  # fmt: skip


@pytest.mark.parametrize(("annotation", "given", "expected"), TAKEN)
def test_annotation_accepts_its_values_and_rejects_others(annotation, given, expected):
    found = kind_of(annotation).take(given)
    assert found is expected if expected in (REFUSED, UNFIT) or expected is None else found == expected
    if isinstance(expected, (bool, int, float)):
        assert type(found) in (bool, int, float)


def test_every_public_annotation_is_understood():
    for name in ("nn", "ops", "surrogate", "encode", "data", "train", "plot", "io", "testing"):
        face = importlib.import_module(f"snncell.{name}")
        for one in vars(face).values():
            function = one.__init__ if isinstance(one, type) else one
            if inspect.isfunction(function) and function.__module__.startswith("snncell"):
                plan_of(inspect.unwrap(function))


# --- the check --------------------------------------------------------------------------------------------------------

REFUSALS = [
    (lambda: nn.Dense("3", 4), ArgumentTypeError, r"Dense: in_channels is an integer of at least 1, not '3'"),
    (lambda: nn.Dense(3, 2**40), ArgumentError, r"Dense: out_channels is an integer .* not 1099511627776"),
    (lambda: nn.Dense(3, 10**400), ArgumentError, r"out_channels .* not an integer of 1329 bits"),
    (lambda: nn.Dense(2**30, 2**30), ArgumentError, r"Dense.*takes .* GiB, and this machine has"),
    (lambda: nn.Dense(3, 4, dtype=None), ArgumentTypeError, "Dense: dtype is a dtype of floats"),
    (lambda: nn.Dense(3, 4, dtype="int64"), ArgumentError, "Dense: dtype is a dtype of floats"),
    (lambda: nn.Dense(3, 4, has_bias=1), ArgumentTypeError, "has_bias is True or False, not 1; leave it out for True"),
    (lambda: nn.Dense(3, 4, weight_init="nrmal"), ArgumentError, "Dense: weight_init is a number, a Tensor, an Init"),
    (lambda: nn.BatchNorm1d(3, eps=math.nan), ArgumentError, "BatchNorm1d: eps is a finite number .* not nan"),
    (lambda: nn.Dropout(math.nan), ArgumentError, r"Dropout: keep_prob is a finite number in \[0, 1\], not nan"),
    (lambda: nn.Dropout(p=-0.1), ArgumentError, r"Dropout: p is a finite number in \[0, 1\], not -0.1; omit it"),
    (lambda: ops.squeeze(Tensor([1.0]), "a"), ArgumentError, "squeeze: axis is an integer or a list of integers, not"),
    (lambda: nn.SGD([Parameter(1.0)], math.inf), ArgumentError, "SGD: learning_rate must be a finite number"),
    (lambda: nn.MSELoss("average"), ArgumentError, 'MSELoss: reduction is "mean", "sum" or "none", not \'average\''),
    (lambda: ops.sum(Tensor([1.0]), axis="rows"), ArgumentTypeError, "sum: axis is an integer or a list of integers"),
    (lambda: ops.pad(Tensor([1.0]), (1, 1), value="3"), ArgumentTypeError, "pad: value is a number or True or False"),
    (lambda: ops.full((2,), 1j, "float32"), DTypeError, "complex numbers"),
    (lambda: Tensor(math.nan, "int32"), DTypeError, "Tensor: nan holds numbers that Int32 cannot represent"),
    (lambda: Tensor(300, "uint8"), DTypeError, "Tensor: 300 holds numbers that UInt8 cannot represent"),
    (lambda: ops.zeros((2**40,)), ArgumentError, r"zeros: an array of shape \(1099511627776,\) takes 4,096 GiB"),
    (lambda: ops.zeros((2,), None), ArgumentTypeError, "zeros: dtype is a dtype .* not None"),
    (lambda: encode.population(Tensor([0.5]), 2**40), ArgumentError, "population: neurons is an integer"),
    (lambda: train.Batches(None), ArgumentTypeError, "Batches: arrays is a Tensor, an array, or numbers, not None"),
    (lambda: train.Batches(1), SnncellError, "Batches"),
    (lambda: Parameter(object), DTypeError, "holds no numbers"),
    (lambda: nn.Dense(3, 4)(None), CallError, r"Dense: x is a Tensor or an EventLists, not None"),
    (lambda: nn.Dense(3, 4)("abc"), CallError, r"Dense: x is a Tensor or an EventLists, not 'abc'"),
    (lambda: nn.Dropout()(None), CallError, r"Dropout: x is a Tensor, not None"),
    (lambda: nn.MSELoss()(Tensor([1.0]), labels="spikes"), CallError, r"MSELoss: labels is a Tensor, not 'spikes'"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "kind", "text"), REFUSALS)
def test_invalid_arguments_raise(call, kind, text):
    with pytest.raises(kind, match=text):
        call()


def test_argument_type_error_is_a_type_error():
    assert issubclass(ArgumentTypeError, ArgumentError) and issubclass(ArgumentTypeError, TypeError)


def test_numpy_numbers_are_accepted_as_python_numbers():
    layer = nn.Dense(np.int64(3), np.int32(4))
    assert type(layer.in_channels) is int and layer.weight.shape == (4, 3)
    assert nn.Dropout(p=np.float32(0.25)).p == 0.25


def test_user_defined_classes_are_not_checked():
    class Mine(nn.Cell):
        def __init__(self, size: int) -> None:
            super().__init__()
            self.size = size

        def construct(self, x: Tensor) -> Any:
            return x

    assert Mine("three")(None) is None
    with pytest.raises(TypeError) as caught:
        type("Broken", (nn.Cell,), {"construct": lambda self, x: len(3)})()(Tensor(1.0))
    assert not isinstance(caught.value, SnncellError)


def test_subclass_of_a_layer_is_named_and_checked():
    class Wide(nn.Dense):
        def __init__(self, size: Any) -> None:
            super().__init__(3, size)

    assert Wide(5).weight.shape == (5, 3)
    with pytest.raises(ArgumentTypeError, match="Wide: out_channels is an integer of at least 1, not 'five'"):
        Wide("five")


def test_error_inside_a_layer_names_the_layer_its_inputs_and_constants():
    node = nn.LIFNode(tau=Tensor(np.full(7, 2.0, np.float32)))
    with pytest.raises(ShapeError, match=r"LIFNode\(x=float32\[2, 8\], v=float32\[2, 8\].*tau is float32\[7\]\): .*"):
        node(ops.ones((2, 8)), ops.zeros((2, 8)))


def test_signatures_and_pickles_are_those_of_the_functions():
    assert list(inspect.signature(ops.sum).parameters) == ["x", "axis", "keepdims"]
    assert list(inspect.signature(nn.Dense).parameters)[:2] == ["in_channels", "out_channels"]
    assert typing.get_type_hints(nn.Dense.__init__)["has_bias"] is bool
    for one in (ops.sum, snncell.grad, encode.rate, nn.Dense):
        assert pickle.loads(pickle.dumps(one)) is one
    layer = pickle.loads(pickle.dumps(copy.deepcopy(nn.Dense(3, 4))))
    assert layer.weight.shape == (4, 3)


# --- operations -------------------------------------------------------------------------------------------------------

FUNCTIONS = sorted(name for name, one in vars(ops).items() if hasattr(one, "formula"))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_elementwise_operation_accepts_operands_by_name(name):
    function = getattr(ops, name)
    kind = {"bitwise_and": "int64", "bitwise_or": "int64", "bitwise_xor": "int64"}.get(name, "float32")
    given = [Tensor([[0.25, 0.5]], kind) for _ in function.operands]
    by_name = function(**dict(zip(function.operands, given, strict=True)))
    np.testing.assert_array_equal(by_name.asnumpy(), function(*given).asnumpy())
    with pytest.raises(
        CallError, match=rf"{function.name} has no argument z\. It takes {', '.join(function.operands)}"
    ):
        function(*given, z=1)


def test_padding_accepts_the_form_of_numpy():
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    for pairs in (((0, 1), (2, 3)), ((1, 2),), [[0, 0], [1, 0]]):
        np.testing.assert_array_equal(ops.pad(Tensor(x), pairs).asnumpy(), np.pad(x, pairs))
    np.testing.assert_array_equal(ops.pad(Tensor(x), (2, 3, 0, 1)).asnumpy(), np.pad(x, ((0, 1), (2, 3))))
    for pairs in (((0, 1), (2, 3), (0, 0)), ((1, 2, 3), (1, 2, 3)), ((0, 1), 2), ((0, -1), (2, 3))):
        with pytest.raises(SnncellError, match="pad: padding"):
            ops.pad(Tensor(x), pairs)


def test_multi_step_of_a_vector_raises():
    net = nn.SequentialCell(nn.MultiStep(nn.IFNode()))
    with pytest.raises(
        ShapeError, match=r"MultiStep: .*shape \(8,\)\. For one step of 8 neurons pass x\.reshape\(\(1, -1\)\)"
    ):
        net(ops.ones((8,)))
    assert net(ops.ones((8,)).reshape((1, -1))).shape == (1, 8)


# --- messages ---------------------------------------------------------------------------------------------------------

HOSTILE = "x y" * 40_000


@pytest.mark.parametrize(
    "text", ["a" * 100_000, HOSTILE, '"' * 100_000, "\\'" * 50_000, "\n" * 100_000, "[1, " * 30_000]
)
def test_messages_are_short_for_any_quoted_value(text):
    for message in (f"load: {text!r} is not there.", f"load: {text} is not there.", text, f"{[text]}"):
        assert len(str(SnncellError(message))) < 4_200
    assert len(str(SnncellError(f"load: {'a' * 100_000!r} is not there."))) < 300
    assert str(SnncellError(f"load: {text!r} is not there.")).endswith("is not there.")


def test_hostile_names_do_not_appear_in_messages():
    for call in (
        lambda: nn.Dense(3, 4, activation=HOSTILE),
        lambda: nn.LIFNode(reset=HOSTILE),
        lambda: nn.LIFNode.like(HOSTILE),
        lambda: Tensor(1.0, HOSTILE),
        lambda: snncell.load_checkpoint("a" * 5_000),
        lambda: nn.LIFNode(**{HOSTILE: 1}),
        lambda: getattr(nn, HOSTILE),
    ):
        with pytest.raises(SnncellError) as caught:
            call()
        assert len(str(caught.value)) < 2_000


def test_every_value_can_be_shown():
    class Broken:
        def __repr__(self) -> str:
            raise RuntimeError

    assert show(10**5000) == "an integer of 16610 bits"
    assert show(Broken()) == "a Broken whose repr fails"
    assert len(show("a" * 10**6)) < 300 and len(show([1] * 10**5)) < 300
    assert show(Tensor(np.ones((2, 3)))) == "a Tensor of shape (2, 3)"


# --- names ------------------------------------------------------------------------------------------------------------

NAMES = [
    (lambda: nn.ModuleList, r"module 'snncell\.nn' has no attribute 'ModuleList'; use nn\.CellList\."),
    (lambda: nn.Conv3d, r"no attribute 'Conv3d'\. Layers have one or two spatial axes, .*nn\.TimeDistributed"),
    (lambda: nn.Dens, r"Did you mean nn\.Dense\?"),
    (lambda: nn.relu, r"Did you mean nn\.ReLU\?"),
    (lambda: nn.matmul, r"it is ops\.matmul\."),
    (lambda: ops.concatenate, r"use ops\.concat\."),
    (lambda: surrogate.fast_sigmoid, r"Did you mean surrogate\.FastSigmoid\?"),
    (lambda: snncell.LIFNode, r"it is nn\.LIFNode\."),
    (lambda: snncell.tensor, r"Did you mean snncell\.Tensor\?"),
    (lambda: encode.poisson, r"use encode\.rate\."),
    (lambda: train.DataLoader, r"use train\.Batches\."),
    (lambda: Tensor(1.0).detach, r"Tensor has no attribute 'detach'; use ops\.stop_gradient"),
    (lambda: Parameter(1.0).backward, r"Parameter has no attribute 'backward'\. Gradients are functions"),
    (lambda: Parameter(1.0).unknown, r"Parameter has no attribute 'unknown'\."),
    (lambda: nn.Dense(3, 4).parameters(), r"Dense has no attribute 'parameters'; use cell\.trainable_params"),
    (lambda: nn.Dense(3, 4).weigth, r"Dense has no attribute 'weigth'\. Did you mean \.weight\?"),
]  # fmt: skip


def test_seed_argument_raises_with_a_hint_to_set_seed():
    with pytest.raises(snncell.errors.CallError, match=r"no argument seed\. snncell\.set_seed\(seed\) seeds"):
        snncell.train.Batches(np.ones((2, 1)), np.ones(2), seed=1)


NAMES += [
    (lambda: Tensor([1.0]).data, r"x\.asnumpy\(\) returns the values; p\.set_data"),
    (lambda: snncell.train.LearningRateScheduler, r"Pass a schedule to the optimiser, such as nn\.CosineDecayLR"),
    (lambda: snncell.train.OnRequestExit, r"train\.fit\(checkpoint=\.\.\.\) saves .* SIGTERM"),
    (lambda: snncell.train.callback, r"from snncell\.train import LossMonitor"),
]


@pytest.mark.parametrize(("get", "text"), NAMES)
def test_unknown_name_raises_with_a_suggestion(get, text):
    with pytest.raises(MissingNameError, match=text) as caught:
        get()
    assert isinstance(caught.value, AttributeError)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def elsewheres() -> dict[str, tuple[set[str], dict[str, str]]]:
    """Return each table of foreign names, with the existing names of the same owner."""
    tables = {name: (set(vars(importlib.import_module(name))), table) for name, table in elsewhere.MODULES.items()}
    tables["snncell"][0].update(snncell.__dir__())
    here = set(dir(Parameter)) - {"requires_grad", "clone", "data"}  # attributes of Parameters that Tensors do not have
    return tables | {"Tensor": (here, elsewhere.TENSOR), "Cell": (set(dir(nn.Cell)), elsewhere.CELL)}


# Roots of the names in a suggestion, where the rest is looked up.
ROOTS: dict[str, Any] = {
    **dict.fromkeys(["nn", "ops", "surrogate", "encode", "train", "data", "plot", "amp", "snncell"]),
    "x": Tensor(1.0),
    "p": Parameter(1.0),
    "cell": nn.Cell(),
}
CODE = re.compile(rf"(?<![\w.])({'|'.join(ROOTS)})\.([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)")


def is_there(root: str, path: str) -> bool:
    """True if the code in a suggestion refers to an existing name."""
    found = ROOTS[root]
    if found is None:
        found = snncell if root == "snncell" else importlib.import_module(f"snncell.{root}")
    for part in path.split("."):
        module = f"{getattr(found, '__name__', '')}.{part}"
        if not hasattr(found, part) and (not inspect.ismodule(found) or not importlib.util.find_spec(module)):
            return False
        found = getattr(found, part) if hasattr(found, part) else importlib.import_module(module)
    return True


def test_foreign_names_do_not_exist_here():
    there = {place: sorted(own & table.keys()) for place, (own, table) in elsewheres().items()}
    assert not any(there.values()), f"these are there now, and go from base/arguments/elsewhere.py: {there}"


def test_every_suggestion_refers_to_existing_names():
    for place, (_, table) in elsewheres().items():
        for name, answer in table.items():
            code = CODE.findall(answer)
            assert code, f"{place} {name}: {answer!r} names nothing"
            wrong = [f"{root}.{path}" for root, path in code if not is_there(root, path)]
            assert not wrong, f"{place} {name}: {wrong} is not there"


def test_every_foreign_name_raises_with_its_suggestion():
    modules = {name: importlib.import_module(name) for name in elsewhere.MODULES}
    for place, (_, table) in elsewheres().items():
        owner = {"Tensor": Tensor(1.0), "Cell": nn.ReLU()}.get(place) or modules[place]
        for name, answer in table.items():
            with pytest.raises(MissingNameError) as caught:
                getattr(owner, name)
            assert str(caught.value).endswith(answer if answer.endswith(".") else f"; use {answer}.")


def test_tables_have_hundreds_of_foreign_names():
    assert sum(len(table) for _, table in elsewheres().values()) > 500


def test_hasattr_of_an_unknown_name_is_false():
    assert not hasattr(nn, "Module") and not hasattr(Tensor(1.0), "detach") and not hasattr(nn.ReLU(), "eval")
    assert getattr(nn.ReLU(), "bprop", None) is None


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: nn.Adam([Parameter([1.0], name="p")], lr=0.1), "Adam has no argument lr. Did you mean learning_rate"),
        (lambda: nn.Dense(3, 5, bias=False), "Dense has no argument bias. Did you mean has_bias"),
        (lambda: nn.GRU(3, 5, bias=False), "GRU has no argument bias. Did you mean has_bias"),
        (lambda: nn.LeakyReLU(negative_slope=0.1), "LeakyReLU has no argument negative_slope. Did you mean alpha"),
        (lambda: nn.Conv2d(2, 2, 3, groups=2), "Conv2d has no argument groups. Did you mean group"),
        (lambda: ops.mse_loss(Tensor([1.0]), labels=[1.0]), "mse_loss has no argument labels. Did you mean target"),
        (lambda: ops.softmax(Tensor([1.0]), dim=-1), "softmax has no argument dim. Did you mean axis"),
        (lambda: ops.max_pool2d(ops.ones((1, 1, 2, 2)), 2, strid=2), "max_pool2d has no argument strid. Did you mean"),
        (
            lambda: nn.MultiStep(nn.LIFNode(), return_state=True),
            "MultiStep has no argument return_state. Did you mean return_states",
        ),
        (
            lambda: snncell.set_context(check_finit=True),
            "set_context has no argument check_finit. Did you mean check_finite",
        ),
    ],
)
def test_unknown_argument_raises_with_the_valid_ones(call, words):
    with pytest.raises(TypeError, match=words) as caught:
        call()
    assert isinstance(caught.value, SnncellError) and "It takes " in str(caught.value)


def test_failing_property_raises_its_own_error():
    class Broken(nn.Cell):
        @property
        def rate(self):
            return self.missing_part * 2

    with pytest.raises(AttributeError, match="missing_part"):
        Broken().rate  # noqa: B018 (it is looked at)
    with pytest.raises(AttributeError, match="a Tensor on the CPU has no __cuda_array_interface__"):
        Tensor([1.0]).__cuda_array_interface__  # noqa: B018


# --- imports ----------------------------------------------------------------------------------------------------------

OF_MINDSPORE = """
from {0}.train.callback import Callback, LossMonitor
from {0}.train.serialization import load_checkpoint, save_checkpoint
from {0}.ops import composite as C, functional as F, operations as P
import {0}.ops.operations as Q
from {0}.ops.composite import GradOperation
from {0}.common import Parameter, ParameterTuple, Tensor, set_seed
from {0}.common import dtype as mstype
from {0}.common.api import jit
from {0}.common.dtype import float32
from {0}.common.parameter import Parameter
from {0}.common.tensor import Tensor
from {0}.context import set_context
import {0}.context as context
from {0}.nn.cell import Cell
from {0}.nn.learning_rate_schedule import ExponentialDecayLR
from {0}.nn.metrics import Accuracy
from {0}.nn.wrap import TrainOneStepCell
assert P is Q is F is C and P.ReLU and mstype.float32 is float32
import {0}, sys
assert {0}.ops.__spec__.name == {0}.ops.__name__ == "{0}.ops" and sys.modules["{0}.ops"] is P
"""


def test_imports_by_mindspore_paths_resolve():
    code = OF_MINDSPORE.format("snncell")  # in a separate process, because it adds attributes to packages
    assert [path for path in elsewhere.PATHS if path not in code] == ["snncell.ops.functional"]  # which F is
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("from snncell import jit_class", r"cannot import 'jit_class' from 'snncell'; use snncell\.jit\."),
        ("from snncell.nn import Module", r"use nn\.Cell\."),
        ("import snncell.numpy as mnp", r"use snncell\.ops\."),
        ("from snncell.ops import Relu", r"Did you mean ops\.ReLU\?"),
        ("from snncell.nn import Accuracy", r"train\.Accuracy"),
    ],
)
def test_imports_of_missing_names_raise_with_a_suggestion(line, words):
    with pytest.raises(ImportError, match=words):
        exec(line, {})
    with pytest.raises(ImportError, match=r"cannot import name 'zzzz'"):
        exec("from snncell.nn import zzzz", {})
