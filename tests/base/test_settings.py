"""Settings in MindSpore's API: options of jit, context, device, seed."""

from __future__ import annotations

import copy
import subprocess
import sys

import pytest

import snncell
from snncell import Tensor, jit, ops
from snncell.errors import ArgumentError, DTypeError, ShapeError, SnncellError


def double(x, y=1.0):
    return x * 2.0 * y


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"jit_config": snncell.JitConfig(jit_level="O1", exc_mode="sink", debug_level="DEBUG")},
        {"capture_mode": "ast", "jit_level": "O2", "fullgraph": False},
        {"dynamic": 0, "compile_once": False, "hash_args": None},
        {"input_signature": ops.zeros(2)},
    ],
)
def test_options_without_effect_are_accepted(options):
    as_decorator, as_function = jit(**options)(double), jit(double, **options)
    for function in (as_decorator, as_function, copy.deepcopy(as_function)):
        assert function(Tensor([1.0, 2.0])).tolist() == [2.0, 4.0]
        assert function.__name__ == "double"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dynamic": 1}, "dynamic=1 is not supported, because jit traces the function for each shape"),
        ({"compile_once": True}, "compile_once=True is not supported, because it would ignore changes"),
        ({"hash_args": 3}, "hash_args is not necessary: jit compares the values that the function reads outside"),
        ({"jit_config": "O2"}, "jit_config must be a JitConfig, not a str"),
        ({"jit_level": "O7"}, "jit_level"),
        ({"capture_mode": "magic"}, "capture_mode"),
        ({"backend": "ge"}, "there is no option 'backend'"),
        ({"input_signature": (ops.zeros(2), "a")}, "element 1 is a str"),
    ],
)
def test_unsupported_options_raise(options, message):
    with pytest.raises(SnncellError, match=message):
        jit(double, **options)


def test_input_signature_rejects_other_arguments():
    fixed = jit(double, input_signature=(ops.zeros((2, 3)), None))
    assert fixed(ops.ones((2, 3)), 3.0).shape == (2, 3) and fixed(ops.ones((2, 3)), ops.ones(3)).shape == (2, 3)
    for args, error, message in (
        (
            (ops.ones((2, 4)), 1.0),
            ShapeError,
            r"jit\(double\): input_signature: argument 0 must have shape \(2, 3\), not",
        ),
        ((ops.ones((2, 3), "float64"), 1.0), DTypeError, "argument 0 must be float32, not float64"),
        ((ops.ones((2, 3)),), ArgumentError, r"has 2 argument\(s\), but the call has 1"),
        (((ops.ones((2, 3)),), 1.0), ArgumentError, "argument 0 must be a Tensor, not a tuple"),
    ):
        with pytest.raises(error, match=message):
            fixed(*args)


@pytest.mark.parametrize("config", [{"jit_level": "O9"}, {"exc_mode": "never"}, {"jit_syntax_level": "MAYBE"}])
def test_jit_config_accepts_the_options_of_mindspore(config):
    with pytest.raises(ArgumentError, match=next(iter(config))):
        snncell.JitConfig(**config)


def test_context_module_has_the_functions_of_mindspore():
    from snncell import context

    before = context.get_context("mode")
    try:
        context.set_context(mode=context.GRAPH_MODE, device_id=0)
        assert snncell.get_context("mode") == snncell.GRAPH_MODE and snncell.get_context("device_id") == 0
    finally:
        context.set_context(mode=before)
    snncell.set_device("CPU", 0)
    snncell.set_deterministic(True)
    for call in (lambda: snncell.set_context(device_id=1), lambda: snncell.set_device("CPU", "0")):
        with pytest.raises(ArgumentError, match="device_id is 0, because a process uses one device"):
            call()
    with pytest.raises(ArgumentError, match='"CPU" or "GPU"'):
        snncell.set_device("Ascend")


def test_set_seed_restarts_the_random_sequence():
    snncell.set_seed(11)
    assert snncell.get_seed() == 11
    first = ops.uniform((4,)).tolist()
    snncell.set_seed(snncell.get_seed())
    assert ops.uniform((4,)).tolist() == first


def test_model_is_exported_and_imported_lazily():
    code = (
        "import sys, snncell; print('snncell.train' in sys.modules, snncell.Model and 'snncell.train' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]


def test_context_settings_without_effect_are_accepted():
    before = snncell.get_context("mode")
    for value in (True, False):
        snncell.set_context(pynative_synchronize=value, deterministic="ON" if value else "OFF", save_graphs=0)
    snncell.set_context(mode=before, save_graphs=False)
    for wrong in (True, 1, 2, "no"):
        with pytest.raises(ArgumentError, match=r"save_graphs is False, not .*explain_passes"):
            snncell.set_context(save_graphs=wrong)
