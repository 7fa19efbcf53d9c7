"""Analysis of networks by quantise.export, quantise.fold, nir.to_nir and nn.Stateful, on random networks.

The result must compute the same function as the network, or the call must raise an error that names a Cell. All
numbers are short binary fractions, so that sums are exact in any order and no spike depends on rounding.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from random_cases import random_cases

import snncell
from snncell import Tensor, nn, quantise, surrogate
from snncell.errors import ArgumentError, NirError
from snncell.nir import from_nir, losses, to_nir
from snncell.nn.dataflow import kind_of, overridden

T, B, N = 4, 2, 4
DT = 1e-3


@pytest.fixture(autouse=True)
def _uncompiled() -> Iterator[None]:
    with snncell.testing.unfused():
        yield


# --- user-defined Cells -----------------------------------------------------------------------------------------------


class Twice(nn.Cell):
    """Calls its member twice."""

    def __init__(self, member: nn.Cell) -> None:
        super().__init__()
        self.member = member

    def construct(self, x: Any) -> Any:
        return self.member(self.member(x))


class Backwards(nn.Cell):
    """Calls its members in reverse order, out of a list."""

    def __init__(self, *members: nn.Cell) -> None:
        super().__init__()
        self.members = list(members)

    def construct(self, x: Any) -> Any:
        for member in reversed(self.members):
            x = member(x)
        return x


class Skip(nn.Cell):
    """Adds its input."""

    def __init__(self, member: nn.Cell) -> None:
        super().__init__()
        self.member = member

    def construct(self, x: Any) -> Any:
        return x + self.member(x)


class SkipSequence(nn.SequentialCell):
    """A SequentialCell that adds its input."""

    def construct(self, x: Any) -> Any:
        return x + super().construct(x)


class Partly(nn.Cell):
    """Leaves some members out, and ignores the result of another."""

    def __init__(self, member: nn.Cell, other: nn.Cell) -> None:
        super().__init__()
        self.member, self.other = member, other

    def construct(self, x: Any) -> Any:
        self.other(x)
        return self.member(x)


class Keeping(nn.Cell):
    """Stores its input in an attribute."""

    def __init__(self, member: nn.Cell) -> None:
        super().__init__()
        self.member = member

    def construct(self, x: Any) -> Any:
        self.seen = x
        return self.member(x)


class Firing(nn.Cell):
    """A spike function without a base class."""

    bar = 0.0

    def construct(self, x: Any) -> Any:
        return (x > self.bar).astype(x.dtype)

    def bprop(self, x: Any, out: Any, dout: Any) -> Any:
        return (dout,)

    def primitive(self, x: Any) -> Any:
        return x


class FiringLate(Firing):
    """A spike function with its own threshold."""

    bar = 0.5


def halve_output(kind: type) -> type:
    """A subclass whose construct returns half of the result of its base class."""

    def construct(self: Any, x: Any, *states: Any) -> Any:
        out = kind.construct(self, x, *states)
        return (out[0] * 0.5, *out[1:]) if isinstance(out, tuple) else out * 0.5

    return type(f"Half{kind.__name__}", (kind,), {"construct": construct})


# --- networks ---------------------------------------------------------------------------------------------------------


def every_path(cell: Any, path: str) -> Iterator[tuple[str, Any]]:
    """The Cells of a network with all paths to each of them."""
    yield path, cell
    for name, child in cell._members():
        if isinstance(child, nn.Cell):
            yield from every_path(child, f"{path}.{name}" if path else name)


class RandomNet:
    """A network (T, B, N) -> (T, B, N) of random pieces, with at most one distortion."""

    def __init__(self, seed: int, norms: bool = False) -> None:
        self.rng, self.norms = np.random.default_rng(seed), norms
        self.made: list[nn.Cell] = []
        self.features: set[str] = set()
        self.x = (self.rng.random((T, B, N)) < 0.5).astype(np.float32)
        self.net = nn.SequentialCell(*[self.piece(2) for _ in range(self.rng.integers(1, 5))])
        if self.chance(0.15):
            self.net.append(nn.Readout("sum"))
        self.distort()
        for _, cell in self.net.cells_and_names():
            if isinstance(cell, (nn.BatchNorm1d, nn.ThresholdBatchNorm)):
                for parameter, values in ((cell.moving_mean, (-0.5, 0.0, 1.0)), (cell.gamma, (0.5, 1.0, -2.0))):
                    parameter.set_data(self.fractions(N, values))
                cell.moving_variance.set_data(self.fractions(N, (4.0, 0.25)))

    def chance(self, p: float) -> bool:
        return bool(self.rng.random() < p)

    def one_of(self, *values: Any) -> Any:
        return values[self.rng.integers(len(values))]

    def fractions(self, shape: Any, values: tuple[float, ...]) -> Tensor:
        return Tensor(self.rng.choice(values, shape).astype(np.float32))

    def dense(self) -> nn.Cell:
        weight, bias = self.fractions((N, N), (-0.5, -0.25, 0.0, 0.5, 1.0)), self.fractions(N, (-0.25, 0.0, 0.25))
        return nn.Dense(N, N, weight, bias, has_bias=self.chance(0.7))

    def neuron(self) -> nn.Cell:
        function = surrogate.ATan()
        if self.chance(0.15):
            self.features.add("spike function")
            function = self.one_of(surrogate.StochasticSpike(surrogate.ATan()), Firing(), FiringLate())
        options: Any = {"reset": self.one_of("zero", "value"), "surrogate_function": function}
        return self.one_of(
            lambda: nn.LeakyNode(0.5, **options),
            lambda: nn.LIFNode(2.0, decay_input=False, **options),
            lambda: nn.IFNode(**options),
            lambda: nn.LINode(2.0),
        )()

    def stepping(self) -> nn.Cell:
        neuron = self.neuron()
        return nn.MultiStep(nn.Recurrent(neuron, self.dense()) if self.chance(0.2) else neuron)

    def norm(self) -> nn.Cell:
        self.features.add("norm")
        return self.one_of(
            lambda: nn.TimeDistributed(nn.BatchNorm1d(N, eps=0.0)), lambda: nn.ThresholdBatchNorm(N, eps=0.0)
        )()

    def piece(self, depth: int) -> nn.Cell:
        if self.made and self.chance(0.15):
            self.features.add("repeated")
            return self.made[self.rng.integers(len(self.made))]
        kinds: list[Callable[[], nn.Cell]] = [
            self.dense,
            self.dense,
            self.stepping,
            self.stepping,
            lambda: nn.TimeDistributed(self.dense()),
            lambda: nn.Flatten(2),
            lambda: nn.Dropout(p=0.5),
        ]
        if self.norms:
            kinds += [lambda: nn.SequentialCell(self.dense(), self.norm())] * 3 + [self.norm]
        if depth:
            below = lambda: self.piece(depth - 1)  # noqa: E731
            kinds += [
                lambda: nn.SequentialCell(*[below() for _ in range(self.rng.integers(1, 4))]),
                lambda: nn.TimeDistributed(nn.SequentialCell(self.dense(), self.dense())),
                lambda: self.own(below),
            ]
        self.made.append(self.one_of(*kinds)())
        return self.made[-1]

    def own(self, below: Callable[[], nn.Cell]) -> nn.Cell:
        kind = self.one_of(Twice, Backwards, Skip, SkipSequence, Partly, Keeping)
        self.features.add(kind.__name__)
        return kind(*[below() for _ in range(2 if kind in (Backwards, Partly) else 1)])

    def distort(self) -> None:
        """Change the computation of one Cell of the net without changing its attributes."""
        cells = [cell for _, cell in self.net.cells_and_names() if not isinstance(cell, (surrogate.Surrogate, Firing))]
        cell: Any = cells[self.rng.integers(len(cells))]
        kind = self.one_of(None, None, "same", "half", "object", "hook", "pre-hook")
        if kind == "same":  # the identity, for comparison
            cell.__class__ = type("Same", (type(cell),), {"__doc__": "The same."})
        elif kind == "half":
            cell.__class__ = halve_output(type(cell))
        elif kind == "object":
            plain = cell.construct
            scaled = lambda out: (out[0] * 0.5, *out[1:]) if isinstance(out, tuple) else out * 0.5  # noqa: E731
            cell.construct = lambda x, *states: scaled(plain(x, *states))
        elif kind == "hook":
            cell.register_forward_hook(lambda cell, inputs, out: None if isinstance(out, tuple) else out * 0.5)
        elif kind == "pre-hook":
            cell.register_forward_pre_hook(lambda cell, inputs: (inputs[0] * 0.5, *inputs[1:]))
        self.features |= set() if kind in (None, "same") else {kind}

    def output(self, net: Any) -> Any:
        return net.set_train(False)(Tensor(self.x)).asnumpy()

    def names_a_cell(self, error: str, who: str) -> bool:
        """Return True if an error begins with `who` and names a Cell of the net."""
        found = re.match(rf"{who}: (?:some of the net.*?\n- )?(.*?)(?::| is | \((\w+)\))", error, re.S)
        paths = {path for path, _ in every_path(self.net, "")}
        paths |= {"the net", type(self.net).__name__} | {re.sub(r"\.cell\b", "", path) for path in paths}
        return found is not None and found[1] in paths - {""}


def attempt(call: Callable[[], Any], kind: type[Exception]) -> tuple[Any, str]:
    """Return the result of a call, or the text of its error."""
    try:
        return call(), ""
    except kind as error:
        return None, str(error)


# --- single cases -----------------------------------------------------------------------------------------------------


def on_object(cell: Any) -> Any:
    """A Cell whose construct is set on the object."""
    cell.construct = lambda x, *states: x * 2.0
    return cell


def lif(**options: Any) -> Any:
    """A neuron that NIR can represent."""
    return nn.LIFNode(2.0, reset="zero", **options)


class RunTwice(nn.Cell):
    """Adds a signal to the output of batch normalisation, or of a recurrent layer with a bias."""

    def __init__(self, branch: nn.Cell) -> None:
        super().__init__()
        self.dense, self.branch = nn.Dense(N, N), branch

    def construct(self, x: Any) -> Any:
        x = self.dense(x)
        return sum([x, self.branch(x)])


REFUSED: dict[str, tuple[str, Callable[[], nn.Cell]]] = {
    "subclass": (r"0 \(HalfDense\): replaces construct of Dense", lambda: halve_output(nn.Dense)(N, N)),
    "container": (r"0 \(HalfSequentialCell\): .*arithmetic", lambda: halve_output(nn.SequentialCell)(nn.Dense(N, N))),
    "steps": (r"0 \(HalfMultiStep\): replaces construct of MultiStep", lambda: halve_output(nn.MultiStep)(lif())),
    "recurrent": (
        r"0\.cell \(HalfRecurrent\) replaces construct of Recurrent",
        lambda: nn.MultiStep(halve_output(nn.Recurrent)(lif(), nn.Dense(N, N))),
    ),
    "feedback": (
        r"0\.cell\.feedback \(HalfDense\) replaces construct of Dense",
        lambda: nn.MultiStep(nn.Recurrent(lif(), halve_output(nn.Dense)(N, N))),
    ),
    "object": (r"0 \(Dense\): has another construct, set on the object", lambda: on_object(nn.Dense(N, N))),
    "neuron": (
        r"0\.cell \(LIFNode\) has another construct, set on the object",
        lambda: nn.MultiStep(on_object(lif())),
    ),
    "kept": (r"0 \(Keeping\): .*keeping 'seen' on self", lambda: Keeping(nn.Dense(N, N))),
    "decision": (r"0 \(Branching\): .*a decision that depends on the value", lambda: Branching()),
    "call": (r"the net \(SequentialCell\): .*arithmetic", lambda: ComputingInCall()),
    "caught": (r"0\.member \(Branching\): .*a decision that depends on the value", lambda: CatchingErrors()),
}


class Branching(nn.Cell):
    """Branches on its input."""

    def construct(self, x: Any) -> Any:
        return x if x == 0.0 else x * 2.0


class ComputingInCall(nn.Cell):
    """Computes in its call."""

    def __call__(self, x: Any) -> Any:
        return x * 2.0


class CatchingErrors(nn.Cell):
    """Computes something else if a Cell raises an error."""

    def __init__(self) -> None:
        super().__init__()
        self.member = Branching()

    def construct(self, x: Any) -> Any:
        try:
            return self.member(x)
        except Exception:
            return x


@pytest.mark.parametrize("case", REFUSED)
@pytest.mark.parametrize("who", ["export", "to_nir"])
def test_hidden_computation_raises_an_error_that_names_the_cell(who: str, case: str) -> None:
    text, make = REFUSED[case]
    net = nn.SequentialCell(make())
    if who == "export":
        attempt(lambda: quantise.prepare(net, quantise.Uniform(4), quantise.FixedPoint(12, 8)), ArgumentError)
    before = dict(vars(net[0]))
    if who == "to_nir":
        pytest.importorskip("nir")
        with pytest.raises(NirError, match=f"(?s)to_nir: {text}"):
            to_nir(net, DT, N)
    else:
        with pytest.raises(ArgumentError, match=f"(?s)export: {text}"):
            quantise.export(net)
    after = dict(vars(net[0]))
    assert all(after[name] is value for name, value in before.items() if name != "version")
    assert after.keys() == before.keys()


@pytest.mark.parametrize("function", [surrogate.StochasticSpike(surrogate.ATan()), FiringLate()], ids=repr)
def test_to_nir_rejects_custom_spike_rules(function: Any) -> None:
    pytest.importorskip("nir")
    with pytest.raises(NirError, match=rf"0 \(LIFNode\) fires by the rule of {type(function).__name__}"):
        to_nir(nn.SequentialCell(nn.MultiStep(lif(surrogate_function=function))), DT, N)
    assert to_nir(nn.MultiStep(lif(surrogate_function=Firing())), DT, N).nodes


@pytest.mark.parametrize(
    "branch",
    [
        lambda: nn.ThresholdBatchNorm(N, 0.5),
        lambda: nn.MultiStep(nn.Recurrent(lif(), nn.Dense(N, N))),
    ],
    ids=["norm", "recurrent"],
)
def test_to_nir_keeps_weights_shared_with_a_skip_connection(branch: Callable[[], nn.Cell]) -> None:
    pytest.importorskip("nir")
    net, x = RunTwice(branch()), Tensor(np.ones((T, B, N), np.float32))
    try:
        back = from_nir(to_nir(net, DT, N), DT)
    except NirError as error:
        assert "do not use its output elsewhere" in str(error)  # noqa: PT017 (or the same numbers)
    else:
        np.testing.assert_allclose(back(x).asnumpy(), net(x).asnumpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "narrow",
    [
        lambda net: quantise.prepare(net, quantise.Uniform(2)),
        lambda net: snncell.amp.auto_mixed_precision(net, "O1"),
    ],
    ids=["quantise", "amp"],
)
def test_construct_set_on_an_instance_raises_if_parameters_are_replaced(narrow: Any) -> None:
    net = nn.SequentialCell(on_object(nn.Dense(N, N)))
    narrow(net)
    with pytest.raises(ArgumentError, match=r"Dense: its construct was set on the object.*Define it in a subclass"):
        net(Tensor(np.ones((T, B, N), np.float32)))


def test_subclass_with_only_init_is_treated_as_its_base() -> None:
    class Encoder(nn.Dense):
        """A Dense of fixed size."""

        def __init__(self) -> None:
            super().__init__(N, 2)

    assert kind_of(Encoder()) is nn.Dense
    assert overridden(halve_output(nn.Dense)(N, N)) == (nn.Dense, ["construct"])
    assert kind_of(on_object(nn.Dense(N, N))) is object
    assert [kind_of(cell) for cell in (lif(), nn.Dropout(p=0.5))] == [nn.LIFNode, nn.Dropout]


# --- random structures ------------------------------------------------------------------------------------------------

CHAINED = {"repeated", "Twice", "Backwards"}  # structures other than a chain of layers
TOO_LARGE = r"more than int32|are exact up to|bits before it is rounded|units"


@random_cases(120)
def test_export_equals_the_network(seed: int) -> None:
    case = RandomNet(seed)
    prepare = lambda: quantise.prepare(  # noqa: E731
        case.net, quantise.Uniform(3, scale_bits=1), quantise.FixedPoint(10, 4), decay_bits=2
    )
    if attempt(prepare, ArgumentError)[1]:  # no layer to quantise
        return
    whole, refused = attempt(lambda: quantise.export(case.net), ArgumentError)
    if refused:
        assert case.names_a_cell(refused, "export"), refused
        assert case.features - CHAINED or re.search(TOO_LARGE, refused), refused
        return
    np.testing.assert_array_equal(whole.run(case.x) * whole.step, case.output(case.net))


@random_cases(120)
def test_fold_equals_the_network(seed: int) -> None:
    case = RandomNet(seed, norms=True)
    folded, refused = attempt(lambda: quantise.fold(case.net), ArgumentError)
    if refused:
        assert case.names_a_cell(refused, "fold") or "has no batch normalisation" in refused, refused
    elif "spike function" not in case.features:  # StochasticSpike draws
        np.testing.assert_allclose(case.output(folded), case.output(case.net), rtol=1e-5, atol=1e-6)


@random_cases(120)
def test_nir_equals_the_network(seed: int) -> None:
    pytest.importorskip("nir")
    case = RandomNet(seed, norms=True)
    before = {path: dict(vars(cell)) for path, cell in case.net.cells_and_names()}
    graph, refused = attempt(lambda: to_nir(case.net, DT, N, lossy=True), NirError)
    if refused:
        assert case.names_a_cell(refused, "to_nir"), refused
        assert case.features - CHAINED - {"Skip", "SkipSequence"}, refused
    elif all("(Dropout)" in text for text in losses(graph)):
        back = from_nir(graph, DT)
        np.testing.assert_allclose(case.output(back), case.output(case.net), rtol=1e-5, atol=1e-6)
    for path, cell in case.net.cells_and_names():  # the net is unchanged
        assert vars(cell).keys() == before[path].keys()


@random_cases(60)
def test_stateful_equals_its_multi_step(seed: int) -> None:
    case = RandomNet(seed)
    case.features.clear()
    case.net = case.stepping()
    if case.chance(0.5):
        case.net.recompute()
    case.distort()
    case.net.set_train(case.chance(0.5))
    if "spike function" in case.features:  # StochasticSpike draws
        return
    x, cut = Tensor(case.x), int(case.rng.integers(1, T))
    stream = nn.Stateful(case.net)
    assert stream.cell is case.net
    whole = case.net(x).asnumpy()
    parts = [stream(part).asnumpy() for part in (x[:cut], x[cut:])]
    np.testing.assert_array_equal(np.concatenate(parts), whole)
