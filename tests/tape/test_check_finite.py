"""`set_context(check_finite=True)`: NaN and infinity raise where they first appear, and results stay unchanged."""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest

import snncell
from snncell import Parameter, Tensor, jit, nn, ops, value_and_grad
from snncell.base import config
from snncell.errors import ArgumentError, NotFiniteError

STEPS, FAULTY, BATCH, WIDTH = 60, 37, 3, 4
SPOT = (1, 2)  # the sample and neuron with the fault
NAN = math.nan


@pytest.fixture(autouse=True)
def _checked() -> Iterator[None]:
    snncell.set_context(check_finite=True)
    yield
    snncell.set_context(check_finite=False, mode=snncell.PYNATIVE_MODE)


def inputs(value: float = 0.5) -> np.ndarray:
    return np.full((STEPS, BATCH, WIDTH), value, np.float32)


def faulty_inputs(value: float = NAN) -> Tensor:
    x = inputs()
    x[(FAULTY, *SPOT)] = value
    return Tensor(x)


# --- nets with a fault ------------------------------------------------------------------------------------------------


class Fading(nn.Cell):
    """A neuron with a state that decreases by 1 at each step, so that `formula` meets its fault at step 37."""

    def __init__(self, formula: Callable[[Tensor], Tensor], last: float) -> None:
        super().__init__()
        self.formula, self.last = formula, last

    def construct(self, x: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        v = v - 1.0 + x * 0.0
        return self.formula(v), v

    def init_state(self, x: Tensor) -> Tensor:
        start = np.full(x.shape, 1000.0, np.float32)
        start[SPOT] = FAULTY + 1 + self.last  # so that the state equals `last` after step 37
        return Tensor(start)


class Rising(nn.Cell):
    """A neuron with a state that increases by 1: the input of its spike function is 0 at step 37, for one neuron."""

    def __init__(self, surrogate_function: nn.Cell) -> None:
        super().__init__()
        self.surrogate_function = surrogate_function

    def construct(self, x: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        v = v + 1.0 + x * 0.0
        return self.surrogate_function(v), v

    def init_state(self, x: Tensor) -> Tensor:
        start = np.full(x.shape, 0.5, np.float32)
        start[SPOT] = -FAULTY - 1
        return Tensor(start)


class Root(snncell.surrogate.Surrogate):
    """A spike function with a gradient that divides by 0 where its input is 0."""

    def bprop(self, x: Tensor, out: Tensor, dout: Tensor) -> Any:
        return (dout / ops.sqrt(ops.abs(x)),)


def three_layers(neuron: nn.Cell, before: nn.Cell | None = None) -> nn.Cell:
    return nn.SequentialCell(
        before or nn.Dense(WIDTH, WIDTH),
        nn.MultiStep(nn.LIFNode()),
        nn.Dense(WIDTH, WIDTH),
        nn.MultiStep(neuron),
        nn.Dense(WIDTH, WIDTH),
        nn.MultiStep(nn.LIFNode()),
    )


def gradients(net: nn.Cell, x: Any = None) -> Any:
    return value_and_grad(lambda x: net(x).sum(), None, net.trainable_params())(Tensor(inputs()) if x is None else x)


class Feedback(nn.Cell):
    """The current fed back to the neuron: a formula of its output."""

    def __init__(self, formula: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.formula = formula

    def construct(self, x: Tensor) -> Tensor:
        return self.formula(x)


class Growing(nn.Cell):
    """A neuron with a state that overflows at step 38."""

    def construct(self, x: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        v = v * 10.0
        return v * 0.0 + x, v

    def init_state(self, x: Tensor) -> Tensor:
        return ops.ones_like(x)


def recurrent() -> Any:
    net = nn.SequentialCell(nn.Dense(WIDTH, WIDTH), nn.MultiStep(nn.Recurrent(Growing(), Feedback(ops.tanh))))
    return net(Tensor(inputs()))


def in_feedback() -> Any:
    return nn.SequentialCell(nn.MultiStep(nn.Recurrent(nn.LIFNode(), Feedback(ops.log))))(Tensor(inputs()))


def own_scan() -> Any:
    def step(v: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        v = v - 1.0
        return v, x * ops.sqrt(v)

    return ops.scan(step, Fading(ops.sqrt, -0.5).init_state(Tensor(inputs())[0]), Tensor(inputs()))


def own_scan_reversed() -> Any:
    def step(v: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        v = v + x
        return v, ops.log(v)

    x = np.ones((STEPS, 2), np.float32)
    x[STEPS - 1] = 0.0  # the first step in this direction
    return ops.scan(step, ops.zeros(2), Tensor(x), reverse=True)


def nested() -> Any:
    def inner(v: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        v = v - 1.0
        return v, x + ops.sqrt(v)

    def outer(v: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        v = v + 1.0
        return v, ops.scan(inner, 8.5 - v, x)[1].sum(0)

    return ops.scan(outer, ops.zeros(2), ops.ones((5, 6, 2)))


def masked_too_late(formula: Callable[[Tensor], Tensor]) -> Any:
    """The forward pass masks values that are not finite, but the backward pass multiplies them by 0."""
    x = np.ones((6, 3), np.float32)
    x[4, 1] = 0.0

    def step(v: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        return v + x, ops.select(x > 0.0, formula(x), 0.0)

    return value_and_grad(lambda x: ops.scan(step, ops.zeros(3), x)[1].sum())(Tensor(x))


def too_large_a_sum() -> Any:
    x, weight = Tensor(np.full((4, 1), 2e38, np.float32)), Parameter([1.0], name="w")

    def weighted(x: Tensor) -> Tensor:
        return ops.scan(lambda v, x: (v, x * weight * 1e-38), ops.zeros(1), x)[1]

    return ops.vjp(weighted, x, weights=weight)[1](Tensor(np.full((4, 1), 1e38, np.float32)))


class LogLoss(nn.Cell):
    def construct(self, p: Tensor) -> Tensor:
        return -ops.log(p).mean()


class Hidden(nn.Cell):
    """A Cell that is not an attribute of any other."""

    def __init__(self) -> None:
        super().__init__()
        self.losses = {"log": LogLoss()}

    def construct(self, p: Tensor) -> Tensor:
        return self.losses["log"](p)


def not_again() -> Any:
    traced = threading.Lock()  # holds a state that no trace reads

    def step(v: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        return v, ops.sqrt(x) if traced.acquire(blocking=False) else x

    x = np.ones((6, 3), np.float32)
    x[4, 1] = -1.0
    return ops.scan(step, ops.zeros(3), Tensor(x))


def second_order() -> Any:
    def slope(x: Tensor) -> Tensor:
        return snncell.grad(lambda x: ops.scan(lambda v, x: (v, x**1.5), ops.zeros(1), x)[1].sum())(x).sum()

    return snncell.grad(slope)(Tensor([[1.0], [0.0], [2.0]]))


def exploding_update() -> Any:
    net = nn.SequentialCell(nn.Dense(2, 2))
    opt = nn.SGD(net.trainable_params(), 1e30)
    x = Tensor(np.full((1, 2), 1e20, np.float32))
    opt(value_and_grad(lambda x: (net(x) * 1.0).sum(), None, net.trainable_params())(x)[1])


def weight_of(value: float) -> nn.Cell:
    net = three_layers(nn.LIFNode())
    weight = net[2].weight.asnumpy().copy()
    weight[1, 3] = value
    net[2].weight.set_data(weight)
    return net


def training_step(compiled: bool) -> Any:
    net = three_layers(Fading(ops.sqrt, -0.5))
    opt = nn.Adam(net.trainable_params(), 1e-3)

    def step(x: Tensor) -> Tensor:
        loss, grads = value_and_grad(lambda x: net(x).sum(), None, net.trainable_params())(x)
        opt(grads)
        return loss

    return (jit(step) if compiled else step)(Tensor(inputs()))


def in_graph_mode() -> Any:
    snncell.set_context(mode=snncell.GRAPH_MODE)
    return three_layers(Fading(ops.sqrt, -0.5))(Tensor(inputs()))


class Constant(nn.Cell):
    """A bprop that returns a Tensor which no operation has computed."""

    def construct(self, x: Tensor) -> Tensor:
        return x * 1.0

    def bprop(self, x: Tensor, out: Tensor, dout: Tensor) -> Any:
        return (Tensor(np.full(x.shape, np.nan, np.float32)),)


def with_hook() -> Any:
    neuron = Fading(ops.sqrt, -0.5)
    neuron.register_forward_hook(lambda cell, x, out: None)
    return nn.SequentialCell(nn.MultiStep(neuron))(Tensor(inputs()))


class Case(NamedTuple):
    run: Callable[[], Any]
    says: str  # the first line of the error, as a pattern
    line: str
    where: str
    step: int | None
    entry: tuple[int, ...]
    layer: str


SQRT = r"sqrt gives NaN at entry \(1, 2\), of finite operands: it starts here\. It reaches its output of that step\."
AT = r"MultiStep\(Fading\), time step 37: "
FORMULA = r"test_check_finite\.py:\d+: return self\.formula\(v\), v"
IN_LAYER = r"in Fading, layer '3' of SequentialCell"

CASES = {
    "input of Dense": Case(
        lambda: three_layers(nn.LIFNode())(faulty_inputs()),
        r"input x of SequentialCell holds NaN at entry \(37, 1, 2\), time step 37 where axis 0 is time: it came from "
        r"outside\. The first operation that uses it is matmul\.",
        r"linear\.py:\d+: .*ops\.matmul",
        r"in Dense, layer '0' of SequentialCell",
        FAULTY,
        (FAULTY, *SPOT),
        "0",
    ),
    "input of a loop": Case(
        lambda: three_layers(nn.LIFNode(), nn.MultiStep(nn.LIFNode()))(faulty_inputs()),
        r"MultiStep\(LIFNode\), time step 37: its input holds NaN at entry \(1, 2\): it came from outside\. "
        r"The first operation that uses it is \w+\. It reaches state v of that step\.",
        r"integrate\.py:\d+: return v \+ ",
        r"in LIFNode, layer '0' of SequentialCell",
        FAULTY,
        SPOT,
        "0",
    ),
    "sqrt of the state": Case(
        lambda: three_layers(Fading(ops.sqrt, -0.5))(Tensor(inputs())), AT + SQRT, FORMULA, IN_LAYER, FAULTY, SPOT, "3"
    ),
    "log of the state": Case(
        lambda: three_layers(Fading(ops.log, 0.0))(Tensor(inputs())),
        AT + SQRT.replace("sqrt gives NaN", "log gives -inf"),
        FORMULA,
        IN_LAYER,
        FAULTY,
        SPOT,
        "3",
    ),
    "0 / 0 of the state": Case(
        lambda: three_layers(Fading(lambda v: v / v, 0.0))(Tensor(inputs())),
        AT + SQRT.replace("sqrt", "div"),
        r"test_check_finite\.py:\d+: lambda: three_layers\(Fading\(lambda v: v / v, 0\.0\)\)",
        IN_LAYER,
        FAULTY,
        SPOT,
        "3",
    ),
    "forward, under a tape": Case(
        lambda: gradients(three_layers(Fading(ops.sqrt, -0.5))), AT + SQRT, FORMULA, IN_LAYER, FAULTY, SPOT, "3"
    ),
    "a surrogate's bprop": Case(
        lambda: gradients(three_layers(Rising(Root()))),
        r"backward of MultiStep\(Rising\), time step 37: div gives -inf at entry \(1, 2\), of finite operands: it "
        r"starts here\. It reaches the gradient of state v and its input of that step\.",
        r"test_check_finite\.py:\d+: return \(dout / ops\.sqrt\(ops\.abs\(x\)\),\)",
        r"in Root \('3\.cell\.surrogate_function'\) of Rising, layer '3' of SequentialCell",
        FAULTY,
        SPOT,
        "3",
    ),
    "the reverse of an operation": Case(
        lambda: gradients(three_layers(Fading(lambda v: ops.sqrt(v * v), 0.0))),
        r"backward of MultiStep\(Fading\), time step 37: div gives NaN at entry \(1, 2\), of finite operands: it",
        r"backward of test_check_finite\.py:\d+: lambda: gradients\(three_layers\(Fading\(lambda v: ops\.sqrt",
        IN_LAYER,
        FAULTY,
        SPOT,
        "3",
    ),
    "checkpoints": Case(
        lambda: gradients(nn.SequentialCell(nn.Dense(4, 4), nn.MultiStep(Rising(Root()), checkpoint_every=7))),
        r"backward of MultiStep\(Rising\), time step 37: div gives inf at entry \(1, 2\)",
        r"test_check_finite\.py:\d+: return \(dout",
        r"in Root \('1\.cell\.surrogate_function'\) of Rising, layer '1'",
        FAULTY,
        SPOT,
        "1",
    ),
    "an update": Case(
        exploding_update,
        r"mul gives inf at entry \(0, 0\) \(and 3 more, of 4\), of finite operands: it starts here \(Parameter "
        r"'0\.weight' \(Dense\.weight\)\)\.",
        r"algorithms\.py:\d+: ",
        r"in SGD$",
        None,
        (0, 0),
        "",
    ),
    "inf in a weight": Case(
        lambda: weight_of(math.inf)(Tensor(inputs())),
        r"Parameter '2\.weight' holds inf at entry \(1, 3\): it came from outside\. The first operation",
        r"linear\.py:\d+: .*ops\.matmul",
        r"in Dense, layer '2' of SequentialCell",
        None,
        (1, 3),
        "2",
    ),
    "an eager loss": Case(
        lambda: LogLoss()(Tensor([0.5, 0.0, 0.0])),
        r"log gives -inf at entry \(1,\) \(and 1 more, of 3\), of finite operands: it starts here\.",
        r"test_check_finite\.py:\d+: return -ops\.log\(p\)\.mean\(\)",
        r"in LogLoss$",
        None,
        (1,),
        "",
    ),
    "the reverse of an eager loss": Case(
        lambda: value_and_grad(lambda x: ops.sqrt(x).sum())(Tensor([1.0, 0.0])),
        r"in the backward pass, div gives inf at entry \(1,\), of finite operands: it starts here\.",
        r"backward of test_check_finite\.py:\d+: lambda: value_and_grad\(lambda x: ops\.sqrt",
        "",
        None,
        (1,),
        "",
    ),
    "a jitted training step": Case(lambda: training_step(True), AT + SQRT, FORMULA, IN_LAYER, FAULTY, SPOT, "3"),
    "GRAPH_MODE": Case(in_graph_mode, AT + SQRT, FORMULA, IN_LAYER, FAULTY, SPOT, "3"),
    "Recurrent": Case(
        recurrent,
        r"MultiStep\(Recurrent\), time step 38: mul gives inf at entry \(0, 0\) \(and 11 more, of 12\), of finite "
        r"operands: it starts here\. It reaches state out, state number 1",
        r"test_check_finite\.py:\d+: v = v \* 10\.0",
        r"in Growing \('1\.cell\.cell'\) of Recurrent, layer '1' of SequentialCell",
        38,
        (0, 0),
        "1",
    ),
    "what comes back": Case(
        in_feedback,
        r"MultiStep\(Recurrent\), time step 0: log gives -inf at entry \(0, 0\) \(and 11 more, of 12\), of finite",
        r"test_check_finite\.py:\d+: return self\.formula\(x\)",
        r"in Feedback \('0\.cell\.feedback'\) of Recurrent, layer '0' of SequentialCell",
        0,
        (0, 0),
        "0",
    ),
    "ops.scan": Case(
        own_scan,
        "scan, time step 37: " + SQRT,
        r"test_check_finite\.py:\d+: return v, x \* ops\.sqrt\(v\)",
        "",
        FAULTY,
        SPOT,
        "",
    ),
    "ops.scan backwards": Case(
        own_scan_reversed,
        r"scan, time step 59: log gives -inf at entry \(0,\) \(and 1 more, of 2\), of finite",
        r"test_check_finite\.py:\d+: return v, ops\.log\(v\)",
        "",
        59,
        (0,),
        "",
    ),
    "hooks": Case(
        with_hook,
        r"MultiStep\(Fading\), time step 37: sqrt gives NaN at entry \(1, 2\), of finite operands: it starts here\.",
        FORMULA,
        r"in Fading, layer '0' of SequentialCell",
        FAULTY,
        SPOT,
        "0",
    ),
    "a bprop that returns NaN": Case(
        lambda: value_and_grad(Constant())(ops.ones((2, 2))),
        r"in the backward pass, the bprop of Constant gives NaN at entry \(0, 0\) \(and 3 more, of 4\), for input 'x', "
        r"but no checked operation produced it\.",
        r"backward of test_check_finite\.py:\d+: ",
        r"in Constant$",
        None,
        (0, 0),
        "",
    ),
    "a gradient from outside": Case(
        lambda: ops.vjp(lambda x: x * 2.0, ops.ones(2))[1](Tensor([1.0, NAN])),
        r"in the backward pass, operand 0, a float32\[2\] that is not an operation's result, holds NaN at entry "
        r"\(1,\): it came from",
        r"backward of test_check_finite\.py:\d+: lambda: ops\.vjp",
        "",
        None,
        (1,),
        "",
    ),
    "the gradient of a loop from outside": Case(
        lambda: ops.vjp(nn.MultiStep(nn.LIFNode()), Tensor(inputs()))[1](faulty_inputs()),
        r"backward of MultiStep\(LIFNode\), time step 37: the gradient of its output holds NaN at entry \(1, "
        r"2\): it came",
        r".*\.py:\d+: ",
        r"of LIFNode$|in LIFNode$",
        FAULTY,
        SPOT,
        "",
    ),
    "a first state": Case(
        lambda: nn.MultiStep(nn.LIFNode())(Tensor(inputs()), _state(NAN)),
        r"MultiStep\(LIFNode\), time step 0: its state v before the first step holds NaN at entry \(1, 2\): it "
        r"came from",
        r"integrate\.py:\d+: ",
        r"in LIFNode$",
        0,
        SPOT,
        "",
    ),
    "bfloat16": Case(
        lambda: ops.log(Tensor([1.0, 0.0]).astype("bfloat16")),
        r"log gives -inf at entry \(1,\), of finite operands",
        r"test_check_finite\.py:\d+: ",
        "",
        None,
        (1,),
        "",
    ),
    "complex": Case(
        lambda: Tensor(np.array([1 + 1j, 0j])) / Tensor(np.array([1 + 1j, 0j])),
        r"div gives NaN at entry \(1,\), of finite operands",
        r"test_check_finite\.py:\d+: ",
        "",
        None,
        (1,),
        "",
    ),
    "a scalar": Case(
        lambda: Tensor(0.0) / 0.0,
        r"div gives NaN, of finite operands",
        r"test_check_finite\.py:\d+: ",
        "",
        None,
        (),
        "",
    ),
    "a loop in a loop": Case(
        nested,
        r"scan, time step 2: scan, time step 5: sqrt gives NaN at entry \(0,\) \(and 1 more, of 2\), of finite",
        r"test_check_finite\.py:\d+: return v, x \+ ops\.sqrt\(v\)",
        "",
        2,
        (0,),
        "",
    ),
    "masked too late": Case(
        lambda: masked_too_late(ops.log),
        r"backward of scan, time step 4: div gives NaN at entry \(1,\), of finite operands: it starts here\. It "
        r"reaches "
        r"the gradient of its input of that step\.",
        r"backward of test_check_finite\.py:\d+: return v \+ x, ops\.select",
        "",
        4,
        (1,),
        "",
    ),
    "masked too late, from the forward": Case(
        lambda: masked_too_late(lambda x: ops.exp(ops.log(x - 0.5))),
        r"scan, time step 4: log gives NaN at entry \(1,\), of finite operands: it starts here\.",
        r"test_check_finite\.py:\d+: lambda: masked_too_late",
        "",
        4,
        (1,),
        "",
    ),
    "a sum over time": Case(
        too_large_a_sum,
        r"backward of scan: the gradient of Parameter 'w' gives inf at entry \(0,\), but no operation "
        r"of a single step does: a sum over time overflows, or the result depends on rounding\.",
        r"test_check_finite\.py:\d+: return ops\.scan",
        "",
        None,
        (0,),
        "",
    ),
    "the second order": Case(
        second_order,
        r"in the backward pass, the backward of backward of scan gives inf at entry \(1, 0\)",
        r"backward of backward of test_check_finite\.py:\d+: return snncell\.grad",
        "",
        None,
        (1, 0),
        "",
    ),
    "a Cell in a dict": Case(
        lambda: Hidden()(Tensor([0.5, 0.0])),
        r"log gives -inf at entry \(1,\), of finite operands",
        r"test_check_finite\.py:\d+: return -ops\.log",
        r"in LogLoss within Hidden$",
        None,
        (1,),
        "",
    ),
    "what does not come again": Case(
        not_again,
        r"scan, time step 4: its output gives NaN at entry \(1,\), but no operation of a single step does",
        r"test_check_finite\.py:\d+: return ops\.scan",
        "",
        4,
        (1,),
        "",
    ),
    "a number": Case(
        lambda: ops.ones(2) * NAN,
        r"operand 1, nan, holds NaN: it came from outside\. The first operation that uses it is mul\.",
        r"test_check_finite\.py:\d+: ",
        "",
        None,
        (),
        "",
    ),
    "a Parameter": Case(
        lambda: Parameter([1.0, NAN], name="p") * 2.0,
        r"Parameter 'p' holds NaN at entry \(1,\): it came from outside\.",
        r"test_check_finite\.py:\d+: ",
        "",
        None,
        (1,),
        "",
    ),
    "inf minus inf": Case(
        lambda: Tensor([math.inf]) - math.inf,
        r"sub gives NaN at entry \(0,\), from inf in operand 0, a float32\[1\] that is not an operation's result: "
        r"it starts here",
        r"test_check_finite\.py:\d+: ",
        "",
        None,
        (0,),
        "",
    ),
}


def _state(value: float) -> Tensor:
    state = np.zeros((BATCH, WIDTH), np.float32)
    state[SPOT] = value
    return Tensor(state)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", CASES)
def test_planted_fault_is_found(name: str) -> None:
    case = CASES[name]
    with pytest.raises(NotFiniteError, match=rf"(?s)^{case.says}.*\n  at {case.line}") as caught:
        case.run()
    error = caught.value
    assert re.search(case.where, str(error).splitlines()[-1])
    assert (error.step, error.entry, error.layer) == (case.step, case.entry, case.layer)
    assert re.match(case.line, error.line)


def test_error_is_a_floating_point_error_of_snncell() -> None:
    with pytest.raises(FloatingPointError, match="it starts here"):
        ops.log(Tensor(0.0))


# --- valid infinities -------------------------------------------------------------------------------------------------


class Masked(nn.Cell):
    """The running maximum of the unmasked inputs: infinity is the initial value and the mask value."""

    def construct(self, x: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        v = ops.maximum(v, ops.select(x > 0.3, x, -math.inf))
        return ops.select(v > 0.0, v, 0.0), v

    def init_state(self, x: Tensor) -> Tensor:
        return ops.full(x.shape, -math.inf)


def attention(x: Tensor) -> Tensor:
    mask = Tensor(np.triu(np.full((WIDTH, WIDTH), -np.inf, np.float32), 1))
    scores = ops.matmul(ops.transpose(x, (0, 2, 1)), x)[0] + mask
    return ops.softmax(scores, -1).sum()


MASK = Parameter(np.array([0.0, 0.0, -np.inf, 0.0], np.float32), name="mask", requires_grad=False)
HEALTHY: dict[str, Callable[[Tensor], Any]] = {
    "three layers": three_layers(nn.LIFNode()),
    "a recurrent net": nn.MultiStep(nn.Recurrent(nn.LIFNode(), nn.Dense(WIDTH, WIDTH))),
    "a state of -inf": nn.MultiStep(Masked()),
    "a mask of -inf": attention,
    "a mask in a select": lambda x: ops.softmax(ops.select(x > 0.2, x, -math.inf), -1).sum(),
    "a mask in a Parameter": lambda x: ops.softmax(x + MASK, -1).sum(),
    "missing values that are replaced": lambda x: (x + ops.where(ops.isnan(Tensor([NAN, 1.0])), 0.0, 1.0)[0]).sum(),
    "pooling at a border": lambda x: ops.max_pool2d(x.reshape((STEPS, 1, BATCH, WIDTH)), 2, 2).sum(),
    "a loop with a mask": lambda x: ops.scan(
        lambda v, x: (ops.maximum(v, x), v), ops.full((BATCH, WIDTH), -math.inf), x
    )[0],
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", HEALTHY)
def test_healthy_nets_raise_nothing_and_have_equal_bits(name: str, rng: np.random.Generator) -> None:
    run = HEALTHY[name]
    weights = run.trainable_params() if isinstance(run, nn.Cell) else None
    x = Tensor(rng.random((STEPS, BATCH, WIDTH)).astype(np.float32))

    def found() -> list[np.ndarray]:
        value, grads = value_and_grad(lambda x: run(x).sum(), 0, weights or None)(x)
        return [t.asnumpy() for t in (run(x), value, *([*grads[:1], *grads[1]] if weights else [grads]))]

    checked = found()
    snncell.set_context(check_finite=False)
    for a, b in zip(checked, found(), strict=True):
        np.testing.assert_array_equal(a, b)
        assert a.tobytes() == b.tobytes()


@pytest.mark.parametrize("compiled", [False, True])
def test_training_has_equal_bits(compiled: bool) -> None:
    def trained(checked: bool) -> list[np.ndarray]:
        snncell.set_context(check_finite=checked)
        snncell.set_seed(3)
        net = nn.SequentialCell(nn.Dense(WIDTH, 5), nn.MultiStep(nn.LIFNode()), nn.Dropout(p=0.3), nn.Dense(5, 2))
        net.set_train()
        opt = nn.Adam(net.trainable_params(), 1e-2)

        def step(x: Tensor) -> Tensor:
            noisy = x + ops.uniform(x.shape)
            loss, grads = value_and_grad(lambda x: ops.square(net(x)).sum(), None, net.trainable_params())(noisy)
            opt(grads)
            return loss

        run = jit(step) if compiled and checked else step  # a jitted step that is checked runs eagerly
        losses = [run(Tensor(inputs())).asnumpy() for _ in range(3)]
        return [*losses, *(p.asnumpy() for p in net.get_parameters()), *(p.asnumpy() for p in opt.get_parameters())]

    for a, b in zip(trained(True), trained(False), strict=True):
        np.testing.assert_array_equal(a, b)


def test_jitted_function_returns_values_not_parameters() -> None:
    p = Parameter(np.zeros(2, np.float32), name="p")

    @jit
    def step(x: Any) -> Tensor:
        p.set_data(p + x)
        return p

    first = step(np.ones(2, np.float32))
    step(np.ones(2, np.float32))
    np.testing.assert_array_equal(first.asnumpy(), [1.0, 1.0])
    assert type(first) is Tensor


def test_failed_loop_restores_parameters_and_random_state() -> None:
    count = Parameter(np.zeros((), np.float32), name="count", requires_grad=False)

    def step(v: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        ops.assign_add(count, 1.0)
        return v - 1.0, ops.sqrt(v) + ops.uniform((2,)) * x + count

    snncell.set_seed(5)
    with pytest.raises(NotFiniteError, match=r"scan, time step 4: sqrt gives NaN"):
        ops.scan(step, ops.full((2,), 3.5), ops.ones((9, 2)))
    assert count.asnumpy() == 0.0
    after = ops.uniform((3,)).asnumpy()
    snncell.set_seed(5)
    np.testing.assert_array_equal(after, ops.uniform((3,)).asnumpy())


def test_rerun_of_a_failed_step_draws_equal_random_numbers() -> None:
    def step(v: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        u = ops.uniform((2,))
        return v, ops.log(ops.relu(u - 0.3)) * x

    snncell.set_seed(1)
    draws = ops.stack([ops.uniform((2,)) for _ in range(9)]).asnumpy()
    turn, entry = np.argwhere(draws <= 0.3)[0]
    snncell.set_seed(1)
    with pytest.raises(NotFiniteError, match=rf"scan, time step {turn}: log gives -inf at entry \({entry},\)"):
        ops.scan(step, ops.zeros(2), ops.ones((9, 2)))


# --- the setting ------------------------------------------------------------------------------------------------------


def test_setting_can_be_read_and_switched_off() -> None:
    assert snncell.get_context("check_finite") is True
    assert len(config.FINITE) == 1
    snncell.set_context(pool_limit=snncell.get_context("pool_limit"))
    assert snncell.get_context("check_finite") is True
    snncell.set_context(check_finite=False)
    assert snncell.get_context("check_finite") is False
    assert not config.FINITE
    assert ops.log(Tensor(0.0)).asnumpy() == -np.inf


@pytest.mark.parametrize("value", [1, 0, "yes", 1.0, [True]])
def test_invalid_setting_raises(value: Any) -> None:
    with pytest.raises(ArgumentError, match=f"check_finite is True or False, not {re.escape(repr(value))}"):
        snncell.set_context(check_finite=value)
    assert snncell.get_context("check_finite") is True


def test_functions_compiled_before_the_setting_are_checked() -> None:
    net = three_layers(Fading(ops.sqrt, -0.5))
    fast = jit(lambda x: net(x))
    snncell.set_context(check_finite=False)
    assert np.isnan(net[3](Tensor(inputs())).asnumpy()).any()
    fast(Tensor(inputs()))
    snncell.set_context(check_finite=True)
    for run in (net, fast):
        with pytest.raises(NotFiniteError, match=AT):
            run(Tensor(inputs()))


def test_explain_still_describes_compiled_kernels() -> None:
    assert "one kernel" in snncell.explain(nn.MultiStep(nn.LIFNode()), Tensor(inputs()), detail="launches")


@pytest.mark.compiled
@pytest.mark.parametrize("compiled", [False, True])
def test_gradient_is_checked_if_switched_on_after_the_forward(compiled: bool) -> None:
    snncell.set_context(check_finite=False)
    scale = Parameter(np.ones(1, np.float32), name="scale")
    run = nn.MultiStep(Feedforward(scale))
    pull = ops.vjp(jit(run) if compiled else run, Tensor(inputs(0.0)), weights=scale)[1]
    snncell.set_context(check_finite=True)
    with pytest.raises(
        NotFiniteError, match=r"backward of jit\(MultiStep.*which ran before check_finite was on, gives inf"
    ):
        pull(ops.ones((STEPS, BATCH, WIDTH)))


class Feedforward(nn.Cell):
    """A neuron with an infinite slope at 0."""

    def __init__(self, scale: Parameter) -> None:
        super().__init__()
        self.scale = scale

    def construct(self, x: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        return ops.sqrt(x * self.scale), v


@pytest.mark.compiled
def test_loop_rerun_without_a_fault_is_monitored_as_usual() -> None:
    class Last(nn.Cell):
        """A state that becomes infinite on purpose."""

        def construct(self, x: Tensor, v: Tensor, until: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            v = v * 0.5 + x
            return v, v, ops.select(until > 2.5, math.inf, until + 1.0)

    net = nn.MultiStep(Last())
    with snncell.monitor(net, grad=True) as m:
        dx = snncell.grad(lambda x: ops.square(net(x)).sum())(Tensor(inputs()))
    np.testing.assert_array_equal(m.grad["cell" if "cell" in m.layers else m.layers[0]], dx)


@pytest.mark.compiled
def test_values_read_only_by_a_monitor_are_not_checked() -> None:
    class Far(nn.Cell):
        """A neuron that is infinitely far above its threshold."""

        def __init__(self) -> None:
            super().__init__()
            self.fire = snncell.surrogate.ATan()

        def construct(self, x: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
            return self.fire(1.0 / (v * 0.0)), v + x

    net = nn.MultiStep(Far())
    alone = net(Tensor(inputs()))
    with snncell.monitor(net, above=True):
        np.testing.assert_array_equal(net(Tensor(inputs())), alone)


def test_logsumexp_of_zero_probability_does_not_raise() -> None:
    x = Tensor(np.array([[-math.inf, -math.inf], [0.0, -math.inf]], np.float32))
    value, dx = value_and_grad(lambda x: ops.logsumexp(x, axis=1)[1] + ops.exp(ops.logsumexp(x, axis=1)).sum())(x)
    np.testing.assert_array_equal(ops.logsumexp(x, axis=1), np.float32([-math.inf, 0.0]))
    assert value.item() == 1.0
    np.testing.assert_array_equal(dx, np.float32([[0.0, 0.0], [2.0, 0.0]]))
