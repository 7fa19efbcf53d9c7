"""Export as C: compiled by the host compiler, without warnings or undefined behaviour, it gives the bits of the net."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from interpreting import plainly
from test_integer_nets import Drawn

import snncell as ms
from snncell import Tensor, nn, quantise
from snncell.errors import ArgumentError, ShapeError
from snncell.quantise import integer
from snncell.quantise.c_layers import WRITERS, CValue, LayerWriter
from snncell.quantise.integer import shift_round

Q = quantise
COMPILER = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), "")
compiled = pytest.mark.skipif(not COMPILER, reason="no C compiler: neither cc nor gcc nor clang is on PATH")
STRICT = ("-std=c99", "-O0", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror")
SANITIZERS = ("-fsanitize=undefined,address", "-fno-sanitize-recover=all")


def compile_c(file: Path, *options: str) -> Path:
    program = file.with_suffix(".out")
    command = [COMPILER, *STRICT, *options, str(file), "-o", str(program)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return program


@cache
def sanitizers() -> tuple[str, ...]:
    """The options of the compiler that detect undefined behaviour, or none if it has none."""
    command = [COMPILER, *SANITIZERS, "-x", "c", "-", "-o", "/dev/null"]
    done = subprocess.run(command, input="int main(void) { return 0; }", text=True, check=False, capture_output=True)
    return SANITIZERS if done.returncode == 0 else ()


@compiled
def test_compiler_detects_undefined_behaviour(tmp_path: Path) -> None:
    if not sanitizers():
        pytest.skip(f"{COMPILER} has no sanitizers: undefined behaviour of C files is not detected")
    (tmp_path / "overflow.c").write_text("int main(int one, char **v) { (void)v; return 2147483647 + one == 0; }\n")
    done = subprocess.run([compile_c(tmp_path / "overflow.c", *sanitizers())], capture_output=True, check=False)
    assert done.returncode != 0 and b"overflow" in done.stderr


def run_c(net: Q.IntegerNet, x: Any, folder: Path, lead: int = 2) -> Any:
    """The outputs of the C program, (T, B, ...)."""
    Q.export_c(net, folder / "net.c", input_shape=x.shape[lead:])
    program = compile_c(folder / "net.c", *sanitizers(), "-DSNNCELL_MAIN")
    samples = np.moveaxis(x.reshape(*x.shape[:lead], *(1,) * (2 - lead), -1), 0, 1)  # (B, T, inputs)
    text = " ".join(f"{len(one)} " + " ".join(map("{:.9g}".format, one.ravel().tolist())) for one in samples)
    done = subprocess.run([program], input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return np.moveaxis(np.array(done.stdout.split(), np.int64).reshape(*samples.shape[:2], -1), 0, 1)


def compare(net: Q.IntegerNet, x: Any, folder: Path, lead: int = 2) -> None:
    expected, found = net.run(x), run_c(net, x, folder, lead)
    if any(isinstance(layer, integer.IntegerReadout) for layer in net.layers):
        found = found[-1]
    np.testing.assert_array_equal(found.reshape(expected.shape), expected, err_msg=(folder / "net.c").read_text())


@compiled
@pytest.mark.parametrize("start", range(0, 400, 8))
@pytest.mark.sampled(1)
@pytest.mark.uncompiled
def test_random_networks_give_same_bits_in_c(start: int, tmp_path: Any) -> None:
    count = 0
    for seed in range(start, start + 8):
        with plainly():
            drawn = Drawn(seed)
            try:
                whole = Q.export(drawn.net)
            except ArgumentError:
                continue
        x, count = drawn.x, count + 1
        if any(isinstance(layer, integer.Encode) for layer in whole.layers):
            x = np.random.default_rng(seed).normal(0, 2, x.shape).astype(np.float32)
        compare(whole, x, tmp_path)
    assert count >= 3  # the export refuses the others


# --- what random networks do not contain ------------------------------------------------------------------------------


def prepared(*layers: Any, **options: Any) -> Q.IntegerNet:
    largest = options.pop("largest_input", 1)
    grids = {"weights": Q.Uniform(4, scale_bits=2), "states": Q.FixedPoint(10, 6), **options}
    return Q.export(Q.prepare(nn.SequentialCell(*layers), **grids), largest_input=largest)


def over_time(*cells: Any) -> Any:
    return nn.TimeDistributed(nn.SequentialCell(*cells))


BETAS = Tensor(np.linspace(0.5, 0.95, 5).astype(np.float32))
CASES: dict[str, tuple[tuple[int, ...], Callable[[], Q.IntegerNet]]] = {
    "Conv1d": (
        (9, 4, 11),
        lambda: prepared(
            over_time(nn.Conv1d(4, 6, 3, stride=2, dilation=2, group=2, pad_mode="pad", padding=3, has_bias=True)),
            nn.MultiStep(nn.LeakyNode(0.9, v_threshold=0.1)),
            nn.AxonalDelay(6, 2, Tensor([0.0, 1.0, 2.0, 2.0, 1.0, 0.0])),
            nn.Readout("sum"),
        ),
    ),
    "dilated Conv2d of 1 x 2 groups": (
        (4, 2, 6, 5),
        lambda: prepared(
            over_time(nn.Conv2d(2, 4, (2, 3), stride=(1, 2), dilation=(2, 1), group=2, pad_mode="same"), nn.Flatten()),
            nn.MultiStep(nn.IFNode(v_threshold=0.2)),
        ),
    ),
    "rows of a Dense": ((5, 3, 6), lambda: prepared(nn.Dense(6, 4), nn.MultiStep(nn.LIFNode(2.0, v_threshold=0.1)))),
    "counts": ((5, 6), lambda: prepared(nn.Dense(6, 3), nn.MultiStep(nn.LINode()), largest_input=300)),
    "constants of each neuron": (
        (30, 2, 6),
        lambda: prepared(
            nn.Dense(6, 5),
            nn.MultiStep(
                nn.LeakyNode(BETAS, v_threshold=BETAS * 0.3, learnable=("beta", "v_threshold"), max_spikes=None)
            ),
            weights=Q.Uniform(4, per_channel=True, scale_bits=2),
        ),
    ),
    "recurrent rows": (
        (8, 2, 5),
        lambda: prepared(
            nn.MultiStep(nn.Recurrent(nn.IFNode(v_threshold=0.3), nn.Dense(5, 5))),
            nn.Dense(5, 2),
            nn.Readout("last"),
        ),
    ),
    "one layer": ((4, 3), lambda: prepared(nn.Dense(3, 2))),
    "pixels": (
        (4, 2, 4, 4),
        lambda: prepared(
            over_time(nn.MaxPool2d(2, 1)),
            nn.AxonalDelay(2, 2, Tensor([0.0, 2.0])),
            nn.Flatten(2),
            nn.Dense(18, 4),
            activations=Q.FixedPoint(6, 3),
        ),
    ),
    "layers after a readout": (
        (6, 4),
        lambda: prepared(nn.MultiStep(nn.IFNode()), nn.Readout("max"), nn.Dense(4, 3), nn.Dense(3, 2)),
    ),
}


@compiled
@pytest.mark.parametrize("case", CASES)
def test_layer_gives_same_bits_in_c(case: str, tmp_path: Any) -> None:
    shape, make = CASES[case]
    ms.set_seed(0)
    net, rng = make(), np.random.default_rng(1)
    x = rng.integers(-net.largest_input, net.largest_input + 1, (shape[0], 3, *shape[1:]))
    if case == "pixels":  # also halves between two steps, and values beyond the grid
        x = (rng.integers(-640, 640, x.shape) / 128).astype(np.float32)
    net.save(tmp_path / "net.safetensors")
    compare(Q.IntegerNet.load(tmp_path / "net.safetensors"), x, tmp_path)


@compiled
def test_images_without_time_are_exported(tmp_path: Any) -> None:
    whole = prepared(nn.Conv2d(1, 2, 3, pad_mode="same"), nn.MaxPool2d(2, 2), nn.Flatten(), nn.Dense(8, 3))
    compare(whole, np.random.default_rng(0).integers(0, 2, (7, 1, 4, 4)), tmp_path, lead=1)


@compiled
@pytest.mark.parametrize("case", ["Conv1d", "constants of each neuron", "recurrent rows", "pixels"])
def test_stated_memory_is_that_of_object_file(case: str, tmp_path: Any) -> None:
    if not shutil.which("nm"):
        pytest.skip("nm is not on PATH")
    shape, make = CASES[case]
    memory = Q.export_c(make(), tmp_path / "net.c", input_shape=shape[1:])
    listing = subprocess.run(
        ["nm", "-S", "-t", "d", compile_c(tmp_path / "net.c", "-c")], capture_output=True, text=True, check=True
    )
    found = {"r": 0, "b": 0}
    for line in listing.stdout.splitlines():
        if len(fields := line.split()) == 4 and fields[2].lower() in found:
            found[fields[2].lower()] += int(fields[1])
    assert memory == (found["r"], found["b"])
    text = (tmp_path / "net.c").read_text()
    assert f"{memory.flash} bytes of weights" in text and f"{memory.ram} bytes: " in text


def test_every_integer_layer_has_form_in_c() -> None:
    assert set(integer.KINDS.values()) - {integer.OverTime, integer.IntegerNeuron} == WRITERS.keys()


FORMULAS: tuple[Callable[[Any], Any], ...] = (
    lambda v: shift_round(v, 2),
    lambda v: -(-v // 3) - 1,
    lambda v: np.minimum(v, 2) * -3,
    lambda v: np.clip(v << 1, -4, 5),
    lambda v: v & 1,
    lambda v: v == 0,
)


@pytest.mark.parametrize("formula", FORMULAS)
def test_bounds_contain_all_values(formula: Callable[[Any], Any]) -> None:
    """A bound that is too small would let an overflow pass, or remove a saturation."""
    for low, high in ((-8, 4), (-9, 5), (1, 7)):
        values, found = (
            formula(np.arange(low, high + 1)),
            formula(CValue(LayerWriter(steps_net(), (2,)), "", low, high)),
        )
        assert found.low <= values.min() and values.max() <= found.high


# --- errors -----------------------------------------------------------------------------------------------------------


def product(weight: int, multiplier: int) -> integer.IntegerProduct:
    return integer.IntegerProduct(0, "dense", np.full((1, 2), weight, np.int8), None, np.array(multiplier, np.int32))


def steps(**options: Any) -> integer.IntegerSteps:
    arrays = {name: np.array(1, np.int32) for name in ("v_from_v", "v_from_x", "v_from_1", "start", "threshold")}
    return integer.IntegerSteps(0, integer.IntegerNeuron(0, **{"low": -9, "high": 9, "shift": 2, **arrays, **options}))


WRONG: dict[str, tuple[str, type, Callable[[Path], Any]]] = {
    "extension": ("\"digits.c\", not 'net.h'", ArgumentError, lambda p: Q.export_c(steps_net(), p / "net.h")),
    "identifier": ("not '3d.c'", ArgumentError, lambda p: Q.export_c(steps_net(), p / "3d.c")),
    "folder": ("cannot be written", ArgumentError, lambda p: Q.export_c(net_of(product(1, 1)), p / "none" / "net.c")),
    "no shape": (
        r"input_shape is missing.*input_shape=\(2, 34, 34\)",
        ArgumentError,
        lambda p: Q.export_c(steps_net(), p / "net.c"),
    ),
    "other shape": (
        r"layer 0: Product dense \(1, 2\) int8.*does not take the shape \(3,\).*Set input_shape",
        ShapeError,
        lambda p: Q.export_c(net_of(product(1, 1)), p / "net.c", input_shape=3),
    ),
    "shape of 0": (
        "no elements.*larger input_shape",
        ArgumentError,
        lambda p: Q.export_c(steps_net(), p / "net.c", input_shape=(0,)),
    ),
    "nothing": ("computes nothing", ArgumentError, lambda p: Q.export_c(net_of(), p / "net.c", input_shape=3)),
    "float32": ("weights are not quantised", ArgumentError, lambda p: Q.export_c(nn.Dense(2, 1), p / "net.c")),
    "class": ("net is", ArgumentError, lambda p: Q.export_c(3, p / "net.c")),
    "sums": (
        r"layer 0: .*its sums reach 4\.\d+e\+09, which does not fit into int32.*fewer bits",
        ArgumentError,
        lambda p: Q.export_c(net_of(product(127, 2**24)), p / "net.c"),
    ),
    "potential": (
        r"layer 0: Neuron.*a value reaches \d+, which does not fit into int32",
        ArgumentError,
        lambda p: Q.export_c(steps_net(v_from_v=np.array(2**28, np.int32)), p / "net.c", input_shape=2),
    ),
    "threshold of 0": (
        "a threshold is not above 0",
        ArgumentError,
        lambda p: Q.export_c(steps_net(threshold=np.array(0, np.int32), most=3), p / "net.c", input_shape=2),
    ),
    "neuron after a readout": (
        r"layer 1: Neuron.*its inputs are not \(T, B, ...\).*Readout last",
        ArgumentError,
        lambda p: Q.export_c(net_of(integer.IntegerReadout(0, "max", 1.0), steps()), p / "net.c", input_shape=2),
    ),
    "joined batch": (
        r"layer 0: Flatten.*joins the axes of time or batch.*nn.Flatten\(2\)",
        ArgumentError,
        lambda p: Q.export_c(net_of(integer.IntegerFlatten(0, 0, 2), product(1, 1)), p / "net.c", input_shape=2),
    ),
    "own layer": (
        r"layer 0: Layer.*has no form in C.*quantise\.export",
        ArgumentError,
        lambda p: Q.export_c(net_of(integer.IntegerLayer(0)), p / "net.c", input_shape=2),
    ),
}


def net_of(*layers: Any) -> Q.IntegerNet:
    return Q.IntegerNet(layers)


def steps_net(**options: Any) -> Q.IntegerNet:
    return net_of(steps(**options))


@pytest.mark.parametrize("case", WRONG)
def test_wrong_use_raises_with_fix(case: str, tmp_path: Any) -> None:
    text, kind, call = WRONG[case]
    with pytest.raises(kind, match=text), np.errstate(all="ignore"):
        call(tmp_path)
    assert not list(tmp_path.iterdir())
