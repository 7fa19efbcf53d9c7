"""Random programs agree in all forms, and with PyTorch; see `programs/`.

Most kernels run as the Python source that is generated for them, because compiling one kernel takes longer than running
hundreds of programs. A few are compiled. For more programs, use `python -m programs`.
"""

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from interpreting import interpreted
from programs.compare import Failure, check
from programs.forms import FORMS
from programs.generate import make
from programs.operations import TABLE
from programs.report import program_text, report_failure
from programs.shrink import shrink
from programs.syntax import Call, Custom, Let, Neuron, Run, Scan, nodes

from snncell.ops import activation
from snncell.tape import primitive

__all__ = ["interpreted"]  # a fixture

COUNT, TOGETHER = 300, 20
CHUNKS = range(0, COUNT, TOGETHER)

pytestmark = [pytest.mark.programs, pytest.mark.filterwarnings("ignore::RuntimeWarning")]


def all_right(program, **settings):
    """Fail with the minimised program if any form differs."""
    failures = check(program, **settings)
    if failures:
        pytest.fail(report_failure(program, failures[0]), pytrace=False)


@pytest.mark.sampled(1)
@pytest.mark.uncompiled
@pytest.mark.parametrize("first", CHUNKS)
def test_every_form_equals_the_tape(interpreted, first):
    for seed in range(first, first + TOGETHER):
        all_right(make(seed), torch=False, only=FORMS[seed % 2 :: 2])


@pytest.mark.sampled(1)
@pytest.mark.uncompiled
@pytest.mark.peer
@pytest.mark.parametrize("first", CHUNKS)
def test_tape_agrees_with_pytorch(torch, first):
    for seed in range(first, first + TOGETHER):
        all_right(make(seed), own=False)


def looping(program):
    """True if a custom gradient is called in a loop."""
    steps = [node.step for node in nodes(program) if isinstance(node, (Scan, Neuron))]
    return any(isinstance(statement, Call) for step in steps for statement in step.body)


@pytest.mark.sampled(1)
@pytest.mark.compiled
@pytest.mark.parametrize("seed", [seed for seed in range(200) if looping(make(seed, statements=1))][:6])
def test_compiled_kernels_equal_the_tape(seed):
    all_right(make(seed, statements=1), torch=False, only=[("gradient", "jit of gradient"), ("gradient", "eager")])


# --- contents of the programs -----------------------------------------------------------------------------------------


def test_seed_determines_the_program():
    show = [sys.executable, "-m", "programs", "--show", "--count", "5"]
    here = Path(__file__).parents[1] / "support"
    shown = subprocess.run(show, cwd=here, capture_output=True, text=True, check=True).stdout
    assert shown == "\n\n".join(program_text(make(seed)) for seed in range(5)) + "\n"
    assert shown.count("def program") == 5


def operand_kinds(program):
    """The kinds of operands that custom gradients inside loops have."""
    origin = {out: node for node in nodes(program) if hasattr(node, "outs") for out in node.outs}

    def of_parameters(v):
        source = origin.get(v)
        return v.name[0] == "p" or (isinstance(source, Let) and all(map(of_parameters, source.operands)))

    def kind(v, step, states):
        if v in step.params:
            return "state" if v in states else "input of the step"
        if v.is_global:
            return {"p": "Parameter", "s": "Parameter that is written to", "k": "Tensor from outside"}[v.name[0]]
        source = origin.get(v)
        if isinstance(source, Call):
            return "result of a custom gradient"
        inside = any(v in statement.outs for statement in step.body)
        if of_parameters(v):
            return "computed from Parameters, " + ("inside" if inside else "outside")
        return "computed inside" if inside else "computed outside"

    for node in nodes(program):
        step = node.step if isinstance(node, (Scan, Neuron)) else None
        calls = [statement for statement in step.body if isinstance(statement, Call)] if step else []
        states = () if step is None else step.params[: len(node.init)] if isinstance(node, Scan) else step.params[1:]
        yield from (kind(v, step, states) for call in calls for v in call.operands)


def test_programs_cover_all_operations_and_custom_gradient_operands():
    found, kinds = Counter(), Counter()
    for seed in range(COUNT):
        program = make(seed)
        kinds.update(operand_kinds(program))
        for node in nodes(program):
            if isinstance(node, Let):
                found[node.op] += 1
            elif isinstance(node, Custom):
                found["internal_params"] += bool(node.weights)
                found["several outputs"] += len(node.forward.results) > 1
                found["None for an input"] += bool(node.silent)
                found["several inputs"] += len(node.forward.params) > 1
            elif isinstance(node, (Scan, Neuron)):
                found["checkpoint_every"] += node.checkpoint_every is not None
                found["reverse=True"] += getattr(node, "reverse", False)
            found[type(node).__name__] += 1
        found["an input is a Parameter's value"] += bool(program.sources)
        found["not linear"] += not program.linear
    assert TABLE.keys() <= found.keys()
    few = {name: n for name, n in (found | kinds).items() if n < 5 and name not in TABLE}
    assert not few
    wanted = ["state", "input of the step", "Parameter", "Parameter that is written to", "Tensor from outside"]
    wanted += ["result of a custom gradient", "computed from Parameters, inside", "computed from Parameters, outside"]
    assert set(wanted) <= kinds.keys()
    for name in ("Scan", "Run", "Gradient", "Assign", "Call", "internal_params", "reverse=True", "checkpoint_every"):
        assert found[name] >= 30, name


# --- planted faults are found and minimised ---------------------------------------------------------------------------


def first_failure(seeds, **settings):
    return next((program, found[0]) for program in map(make, seeds) if (found := check(program, **settings)))


@pytest.mark.peer
def test_operation_that_returns_a_parameter_is_found_and_minimised(torch, monkeypatch):
    monkeypatch.setattr("snncell.ops.shape.snapshot", lambda x: x)
    program, failure = first_failure(range(5), kinds=("training",), own=False)
    text = report_failure(program, failure)
    assert failure.kind == "training" and f"# seed {program.seed}" in text
    assert text.count("\n    v") < 8  # the fault is in the code that runs the program


def test_custom_gradient_lost_in_loops_is_found_and_minimised(interpreted, monkeypatch):
    plain = primitive.custom

    def losing(op, forward, inputs, attrs=None):
        if primitive.TRACING.trace is not None and all(type(x) is not primitive.Tensor for x in inputs):
            return forward()
        return plain(op, forward, inputs, attrs)

    monkeypatch.setattr("snncell.cell.calls.custom", losing)
    program, failure = first_failure(range(100), kinds=("gradient",), torch=False)
    text = report_failure(program, failure)
    assert "def bprop" in text and text.count("\n") < 90


@pytest.mark.peer
def test_wrong_gradient_is_found_by_pytorch(torch, monkeypatch):
    right = activation.sigmoid.bprop
    monkeypatch.setattr(activation.sigmoid, "bprop", lambda *args, **kw: [g * 1.001 for g in right(*args, **kw)])
    program, failure = first_failure(range(60), kinds=("gradient",), own=False)
    assert failure.of_torch and "torch.sigmoid" in report_failure(program, failure)


def test_shrinking_keeps_the_failing_part_and_drops_the_rest():
    program = next(p for p in map(make, range(100)) if any(isinstance(node, Run) for node in nodes(p)))
    small = shrink(program, lambda candidate: any(isinstance(node, Run) for node in nodes(candidate)), tries=2000)
    assert len(small.main.body) <= 2 and not small.customs
    assert Failure("gradient", "eager", "x").is_like(Failure("gradient", "eager", "y"))
