"""Compiled loops over time: kernels, explain, fused operations, errors and traces."""

import copy
import itertools
import os
import pickle
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from interpreting import as_python, traced
from test_scan import NEURON, XS, C, Leaky, W, both, close, loop_of, normal, plain, python_loop

import snncell
from snncell import Parameter, Tensor, explain, grad, jit, nn, ops, testing, value_and_grad
from snncell.compiler.backends import cpu_loop
from snncell.compiler.backends.cpu_loop import STACK
from snncell.compiler.passes.simplify import canonical_step
from snncell.errors import ArgumentError, BpropError, DTypeError, ShapeError, TraceError
from snncell.kernels.loops import BLOCK, SLACK

__all__ = ["plain"]  # a fixture

pytestmark = pytest.mark.usefixtures("plain")  # nothing here depends on Numba's compilation of loops

HERE = Path(__file__).name


class Step(nn.Cell):
    """A step function with a user-defined slope."""

    def construct(self, x):
        return (x > 0.0).astype(x.dtype)

    def bprop(self, x, out, dout):
        return (dout / (1.0 + ops.abs(x)),)  # the slope


class Own(nn.Cell):
    """A user-defined neuron."""

    def __init__(self, tau=2.0, v_threshold=0.5):
        super().__init__()
        self.tau = tau
        self.v_threshold = v_threshold
        self.fires = Step()

    def construct(self, x, v):
        h = v + (x - v) / self.tau  # the membrane
        spike = self.fires(h - self.v_threshold)
        return spike, h * (1.0 - spike)


def scans(fn, *args):
    """Return the loops over time in the Program of `fn`."""
    return [step for step in traced(fn, *args).instructions if step.op.name == "scan"]


def line_of(text):
    """Return a place in this file as explain prints it."""
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    return next(f"{HERE}:{number}: {line.strip()}" for number, line in enumerate(lines, 1) if text in line)


# --- kernels ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def sources(monkeypatch):
    """Collect the sources of the loops over time that are built."""
    built = []

    def build(name, source, signature):
        built.append("\n".join(line for line in source.splitlines() if not line.lstrip().startswith("#")))
        return as_python(name, source)

    monkeypatch.setattr(cpu_loop, "build", build)
    return built


def training(net):
    return value_and_grad(lambda x: net(x).mean())


def test_custom_neuron_has_one_forward_and_one_backward_kernel(sources):
    training(nn.MultiStep(Own()))(XS)
    assert len(sources) == 2
    text = explain(training(nn.MultiStep(Own())), XS, detail="launches")
    assert "MultiStep(Own): one kernel" in text and "backward of MultiStep(Own): one kernel" in text
    assert text.count("one kernel") == 2 and "no single kernel" not in text


@pytest.mark.parametrize("how", [lambda fn: fn, jit], ids=["eager", "jit"])
def test_other_numbers_lengths_and_batches_reuse_the_kernels(sources, how):
    cell = Own()
    step = how(training(nn.MultiStep(cell)))
    step(XS)
    known = set(sources)
    cell.tau, cell.v_threshold = 3.5, 0.25
    for shape in ((4, 2, 3), (9, 2, 3), (4, 5, 3), (4, 2, 7), (3, 2, 4, 5)):
        step(normal(*shape))
    assert set(sources) == known and len(known) == 2


def test_one_kernel_serves_one_and_all_threads(monkeypatch):
    built, called = set(), []

    def build(name, source, signature):
        built.add((source, signature))
        return lambda units, grain, *_: called.append((units, grain))

    monkeypatch.setattr(cpu_loop, "build", build)
    for neurons in (3, 300_000):
        nn.MultiStep(Own())(Tensor(np.zeros((4, 1, neurons), np.float32)))
    assert len(built) == 1
    (_, alone), (blocks, shared) = called
    assert (alone, shared) == (0, 1) and blocks > 2


class Many(nn.Cell):
    """A neuron with many constants for each element of a sample."""

    def __init__(self, constants):
        super().__init__()
        self.constants = [Tensor(np.linspace(-1.0, 1.0, 3) + n) for n in range(constants)]

    def construct(self, x, v):
        for constant in self.constants:
            v = v * 0.5 + constant * x
        return v, v

    def init_state(self, x):
        return (ops.zeros_like(x),)


@pytest.mark.parametrize("constants", [1, STACK // (8 * (BLOCK + SLACK)), STACK // (8 * (BLOCK + SLACK)) + 1, 30])
def test_block_arrays_are_on_the_stack_while_there_is_room(sources, constants):
    net = nn.MultiStep(Many(constants))
    found = net(XS)
    with testing.unfused():
        np.testing.assert_allclose(found.asnumpy(), net(XS).asnumpy(), rtol=1e-12)
    (source,) = sources
    assert source.count(" = strip(") == min(constants, STACK // (8 * (BLOCK + SLACK)))
    assert source.count(" = heap(") == max(0, constants - STACK // (8 * (BLOCK + SLACK)))


# --- explain ----------------------------------------------------------------------------------------------------------


def test_explain_names_user_lines_of_both_directions():
    text = explain(training(nn.MultiStep(Own())), XS, detail="launches")
    forward, reverse = text[text.index("MultiStep(Own):") :].split("backward of MultiStep(Own):")
    membrane, slope = line_of("# the membrane"), line_of("# the slope")
    assert membrane in forward and slope not in forward
    assert f"backward of {membrane}" in reverse and slope in reverse
    stored = forward[forward.index("stores for the backward pass, at each step:\n") :].splitlines()
    assert stored[1].strip() == f"float64[2, 3]: add, {membrane}" and "float64" not in stored[2]
    text = explain(training(nn.MultiStep(Own())), XS, detail="program")
    program = text[text.index(" = scan(") :].splitlines()
    assert program[1] == "      program(%0:float64[2,3], %1:float64[2,3])"
    assert program[2].startswith("        ") and program[2].endswith(membrane)


def test_explain_names_the_reason_for_step_by_step_and_hoisted_values():
    def total(x):
        def step(c, now):
            c = ops.tanh(now @ W + c @ W).max(0, keepdims=True) + c  # the products
            return both(c)

        return ops.scan(step, C, x)[1].sum()

    text = explain(value_and_grad(total), XS, detail="launches")
    assert "scan: 4 steps one by one" in text
    assert f"no single kernel, because max is not an elementwise operation: {line_of('# the products')}" in text
    assert "for all steps together, before the loop:" in text and "for all steps together, after the loop:" in text
    mixed = explain(
        lambda x: ops.scan(lambda c, x: ((c[0] * 0.5, c[1] + x), None), (C[0], C), x)[0], XS, detail="launches"
    )
    assert "no single kernel, because its values have different shapes: (3,) and (2, 3), a state" in mixed
    turning = explain(
        lambda x: ops.scan(lambda c, x: (c * 1j + x, None), C * (1.0 + 0.0j), x)[0], XS, detail="launches"
    )
    assert "no single kernel, because kernels have no complex numbers; use two states, real and imagin" in turning


@pytest.mark.parametrize(("every", "rows"), [(1, 4), (2, 2), (3, 2), (4, 1), (9, 1)])
def test_states_are_checkpointed_every_few_steps(every, rows):
    net = nn.MultiStep(Own(), checkpoint_every=every)
    forward, _ = scans(training(net), XS)
    assert [out.shape for out in forward.outputs][-1] == (rows, 2, 3)
    assert sum(out.shape[:1] == (4,) for out in forward.outputs[:-1]) == 1  # the spikes
    text = explain(training(net), XS, detail="launches")
    assert f"stores the state every {every} steps for the backward pass: float64[2, 3]" in text
    assert f"recomputes the states between checkpoints, {every} steps at a time" in text


@pytest.mark.compiled
def test_generated_files_are_named_and_show_user_lines(tmp_path):
    script = tmp_path / "users.py"
    script.write_text(
        "import snncell as ms\nfrom snncell import ops\n\n\ndef step(c, x):\n    c = c * 0.5 + x  # mine\n"
        "    return c, c\n\n\nops.scan(step, ops.zeros((2, 3)), ops.ones((4, 2, 3)))\n"
    )
    environment = {**os.environ, "SNNCELL_DEBUG": "1", "SNNCELL_CACHE_DIR": str(tmp_path / "kernels")}
    done = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True, check=True)
    (path,) = [line.removeprefix("snncell: ") for line in done.stderr.splitlines() if line.startswith("snncell: ")]
    lines = [line.strip() for line in Path(path).read_text().splitlines()]
    comment = lines.index("# mul, users.py:6: c = c * 0.5 + x  # mine")
    assert " * " in lines[comment + 1] and lines[comment + 1].startswith("t")


# --- fusion into loops ------------------------------------------------------------------------------------------------


def test_bias_before_and_mean_after_are_fused_into_the_loop():
    bias = Parameter(NEURON.asnumpy() * 1.0)

    def total(x, net=None):
        out = (net or nn.MultiStep(Own()))(x * 2.0 + bias)
        return (out.mean(0) * NEURON).sum()

    step = value_and_grad(total, 0, bias)
    text = explain(total, XS, detail="launches")
    body = text[text.index("MultiStep(Own): one kernel") :]
    assert body.index("add ") < body.index(line_of("# the membrane")) and line_of("out = (net or") in body
    assert "loop loop_add" not in text and "loop loop_mul_add" not in text
    (scan,) = scans(lambda x: total(x), XS)
    assert any(out.shape[:1] == (4,) for out in scan.outputs)  # before optimisation
    (scan,) = [launch.instruction for launch in jit_plan(total).launches if hasattr(launch, "instruction")]
    assert all(out.shape == (2, 3) for out in scan.outputs)  # only sums leave the loop
    expected = value_and_grad(lambda x: total(x, loop_of(Own())), 0, bias)(XS)
    close(step(XS), expected)
    close(jit(step)(XS), expected)


def test_loop_with_products_fuses_only_operations_over_its_rows():
    def total(a, b):
        made = ops.exp(a) * b + 1.0  # over one row, and over two
        return ops.scan(lambda c, x: both(ops.tanh(c @ W + x)), C, made)[1].sum()

    a, b = normal(4, 1, 3), XS
    text = explain(total, a, b, detail="launches")
    assert "scan: one kernel" in text and "no single kernel" not in text
    expected = python_loop(lambda c, x: both(ops.tanh(c @ W + x)), C, ops.exp(a) * b + 1.0)[1].sum()
    close(jit(total)(a, b), expected)


def jit_plan(fn):
    return jit(fn).lookup((XS,), {})[0].plan([XS._data])


def test_sequence_with_other_consumers_stays_outside():
    def fn(x):
        y = x * 2.0
        return ops.scan(lambda c, x: (c * 0.5 + x, c), C, y)[1].sum(0), y

    close(jit(fn)(XS), fn(XS))
    assert jit_plan(fn).launches[0].group.instructions[0].op.name == "mul"


def test_unused_results_and_sums_are_not_computed():
    def last(x):
        return ops.scan(lambda c, x: (c * 0.5 + x, (ops.exp(c), ops.sin(x @ W))), C, x)[0]

    (forward,) = scans(last, XS)
    assert len(forward.outputs) == 1
    assert [step.op.name for step in canonical_step(forward.op.loop.body).instructions] == ["mul", "add"]
    p = Parameter(NEURON.asnumpy() * 1.0)
    (reverse,) = scans(grad(lambda x: ops.scan(lambda c, x: (c * p + ops.tanh(x * p), None), C, x)[0]), XS)
    assert len(reverse.outputs) == 2  # of the state and of x, no sum for p


# --- traces -----------------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:.*is traced for the 9th time")
def test_traced_loop_sees_every_change_of_its_cell():
    cell = Leaky()
    net = nn.MultiStep(cell)
    jitted = jit(net)

    def check():
        expected = loop_of(cell)(XS), grad(loop_of(cell))(XS)
        for mode, run in itertools.product((snncell.PYNATIVE_MODE, snncell.GRAPH_MODE), (net, jitted)):
            snncell.set_context(mode=mode)
            try:
                close((run(XS), grad(run)(XS)), expected)
            finally:
                snncell.set_context(mode=snncell.PYNATIVE_MODE)
        if cell.leak.requires_grad:
            close(grad(net, None, cell.leak)(XS), grad(loop_of(cell), None, cell.leak)(XS))

    check()
    for change in (
        lambda: net.set_train(),
        lambda: setattr(cell, "gain", 3.0),
        lambda: cell.leak.set_data(Tensor(np.ones(3))),
        lambda: setattr(cell.leak, "requires_grad", False),
        lambda: setattr(cell.leak, "requires_grad", True),
        lambda: setattr(cell, "leak", Parameter(np.array([0.1, 0.2, 0.3]))),
    ):
        change()
        check()
    net.cell = Own()
    close(net(XS), loop_of(net.cell)(XS))


def test_differentiated_tensor_attribute_gets_its_gradient():
    cell = Own()
    net = nn.MultiStep(cell)

    def over(run):
        def total(tau):
            cell.tau = tau
            return (run(XS) * XS).sum()

        return grad(total)(Tensor(np.array(2.5)))

    expected = over(loop_of(cell))
    assert expected.item() != 0
    net(XS)
    close(over(net), expected)


def test_hooks_and_checked_gradients_see_every_step():
    net, seen = nn.MultiStep(Own()), []
    expected = net(XS)
    hook = net.cell.fires.register_forward_hook(lambda cell, inputs, out: seen.append(out.asnumpy()))
    close(net(XS), expected, rtol=0)
    np.testing.assert_array_equal(np.stack(seen), expected.asnumpy())
    hook.remove()
    net(XS)
    assert len(seen) == 4

    class Wrong(Step):
        def construct(self, x):
            return x * x

    net.cell.fires = Wrong()
    grad(net)(XS)
    net.cell.fires.bprop_debug = True
    with pytest.raises(BpropError, match="The bprop of Wrong gives"):
        grad(net)(XS)


def test_copies_of_a_used_loop_are_independent():
    net = nn.MultiStep(Leaky())
    expected = net(XS)
    grad(net)(XS)
    for copied in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        close(copied(XS), expected, rtol=0)
        copied.cell.leak.set_data(Tensor(np.zeros(3)))
        assert (copied(XS).asnumpy() != expected.asnumpy()).any()
        close(net(XS), expected, rtol=0)


def test_any_number_of_shapes_compiles_without_warning():
    cell = Leaky()
    net = nn.MultiStep(cell)
    for steps in (*range(1, 37), 1, 2):
        x = normal(steps, 1, 3)
        close(net(x), loop_of(cell)(x))
    assert len(net._loop.compiled) == 32


@pytest.mark.parametrize("what", ["shapes", "attributes"])
def test_repeated_tracing_is_reported_once(what):
    net = nn.MultiStep(Leaky().set_train())
    fn = jit(lambda x: net(x))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for n in range(1, 15):
            net.cell.gain = n if what == "attributes" else 1
            fn(normal(n if what == "shapes" else 4, 1, 3))
    (warning,) = caught
    shapes = "argument 0 is float64[8, 1, 3] in one call and float64[9, 1, 3] in another"
    assert {"shapes": shapes, "attributes": "an attribute of Leaky has changed"}[what] in str(warning.message)


# --- errors -----------------------------------------------------------------------------------------------------------


def keep(cell, x, v):
    cell.last = v * x
    return x, v


CELLS = {  # construct(self, x, v), by the name of the Cell
    "If": lambda self, x, v: (v if v.sum() > 0 else x, v),
    "Float": lambda self, x, v: (v * float(x.sum()), v),
    "Numpy": lambda self, x, v: (np.tanh(x), v),
    "Array": lambda self, x, v: (x.asnumpy(), v),
    "Makes": lambda self, x, v: (x * Parameter(2.0, "made"), v),
    "Keeps": keep,
    "Shrinks": lambda self, x, v: (x, v.sum(0)),
    "Narrows": lambda self, x, v: (x, v.astype("float32")),
    "Loses": lambda self, x, v, u: (x, v),
}
MISTAKES = {
    "If": (TraceError, r"if/while.* MultiStep\(If\)(.|\n)*v\.sum\(\) > 0(.|\n)*ops\.select.* instead of if"),
    "Float": (TraceError, r"float\(\) .* MultiStep\(Float\)(.|\n)*float\(x\.sum"),
    "Numpy": (DTypeError, r"np\.tanh takes arrays(.|\n)*operation of snncell(.|\n)*np\.tanh\(x\)"),
    "Array": (TraceError, r"asnumpy\(\) .* MultiStep\(Array\)(.|\n)*x\.asnumpy"),
    "Makes": (TraceError, r"'made' is created inside .*MultiStep\(Makes\)(.|\n)*\"made\""),
    "Keeps": (TraceError, r"Keeps\.last is set to a Tensor inside .* Return it as a result or a state"),
    "Shrinks": (ShapeError, r"MultiStep\(Shrinks\): state v has shape \(2, 3\) before .* \(3,\) after"),
    "Narrows": (DTypeError, r"MultiStep\(Narrows\): state v has dtype Float64 before .* Float32 after"),
    "Loses": (ArgumentError, r"Loses\.construct took 2 state\(s\) .* returned 2 values"),
}


@pytest.mark.parametrize("how", [lambda net: net, jit, lambda net: grad(lambda x: net(x).sum())])
@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_in_a_cell_raise_with_its_name(name, how):
    kind, message = MISTAKES[name]
    with pytest.raises(kind, match=message) as caught:
        how(nn.MultiStep(type(name, (nn.Cell,), {"construct": CELLS[name]})()))(XS)
    assert "\n  at " not in str(caught.value) or f"\n  at {HERE}:" in str(caught.value)
    assert (ops.ones(1) + 1.0).item() == 2.0  # eager again


def test_zero_steps_between_checkpoints_raise():
    with pytest.raises(ArgumentError, match="MultiStep: checkpoint_every is an integer of at least 1, not 0"):
        nn.MultiStep(Own(), checkpoint_every=0)(XS)


# --- regressions ------------------------------------------------------------------------------------------------------


def test_chain_before_a_loop_is_fused_into_it(plain):
    def program(n):
        def f(x):
            for _ in range(n):
                x = x * 2.0 + 1.0
            return ops.scan(lambda c, now: (ops.tanh(c * 0.5 + now), c), C, x)[1]

        return f

    moved = {explain(program(n), XS, detail="launches").splitlines()[0].partition("; ")[2] for n in (0, 1, 2, 5)}
    assert len(moved) == 1  # the sequence is read once, with any operations before it
    for n in (1, 5):
        np.testing.assert_allclose(jit(program(n))(XS).asnumpy(), program(n)(XS).asnumpy(), rtol=1e-12)
        wanted = grad(lambda x, n=n: program(n)(x).sum())(XS).asnumpy()
        np.testing.assert_allclose(jit(grad(lambda x, n=n: program(n)(x).sum()))(XS).asnumpy(), wanted, rtol=1e-12)


class Fails(nn.Cell):
    broken = False

    def construct(self, x):
        return ops.exp(x)

    def bprop(self, x, out, dout):
        if Fails.broken:
            Fails.broken = False
            raise KeyboardInterrupt
        return (dout * out,)


@pytest.mark.parametrize("how", [jit, lambda fn: fn], ids=["jit", "eager"])
def test_interrupted_gradient_can_be_computed_again(plain, how):
    Fails.broken = True
    net = nn.MultiStep(nn.LIFNode(surrogate_function=Fails()))
    gradient = grad(how(lambda x: net(x).sum()))
    with pytest.raises(KeyboardInterrupt):
        gradient(XS)
    found = gradient(XS).asnumpy()
    np.testing.assert_array_equal(found, gradient(XS).asnumpy())
    assert found.any()


def test_bit_views_of_floats_in_a_loop_raise():
    with pytest.raises(DTypeError, match="bitwise_and: takes integers or booleans"):
        ops.scan(lambda c, x: (c & x, c), ops.ones(3), ops.ones((2, 3)))


def test_parameter_keeps_no_larger_array_alive(plain):
    p = Parameter(np.zeros((2, 3)), requires_grad=False)
    rows = ops.ones((50, 2, 3), "float64")
    jit(lambda x: ops.assign(p, x[0]).value())(rows)
    assert p._data.base is None or p._data.base.nbytes == p._data.nbytes
    jit(lambda x: ops.assign(p, ops.broadcast_to(x, (2, 3))).value())(ops.ones(3, "float64"))
    assert p._data.flags.c_contiguous


def test_explain_lists_a_stored_value_merged_with_an_equal_one() -> None:
    def step(c, x):
        return ops.stop_gradient(ops.tanh(c + x)) * 0.5, ops.square(ops.tanh(c + x))

    def loss(x):
        return ops.scan(step, ops.zeros((2, 4)), x)[1].mean()

    text = snncell.explain(snncell.value_and_grad(loss), ops.ones((5, 2, 4)), detail="launches")
    assert "stores for the backward pass, at each step:\n            float32[2, 4]: tanh, " in text
