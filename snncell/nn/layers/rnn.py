"""Recurrent networks RNN, GRU and LSTM, and their Cells of one step. Time is the first axis."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple

from snncell import dtype as dtypes, ops
from snncell.base.arguments.guard import warn_of
from snncell.base.arguments.kinds import Count, FloatDtype, Probability
from snncell.cell.cell import Cell
from snncell.cell.fields import field, with_fields
from snncell.common.initializer import Uniform, initializer
from snncell.errors import ShapeError
from snncell.nn.time.axis import check_time_axis, length_mask
from snncell.ops.base import as_tensor
from snncell.ops.control import run_scan
from snncell.tape.parameter import Parameter
from snncell.tape.tensor import Tensor

__all__ = ["GRU", "LSTM", "RNN", "GRUCell", "LSTMCell", "RNNCell"]

# --- equations --------------------------------------------------------------------------------------------------------

Parts = Sequence[Tensor]  # (B, H) for each gate
States = tuple[Tensor, ...]  # (B, H) each, the output first


class GatedEquations(NamedTuple):
    """A recurrent network's equations.

    Attributes:
        gates: how many blocks of rows its weights have.
        states: how many states it has.
        step: the states after a step, from what each gate has of the input, what it has of the output before, and the
            states before.
    """

    gates: int
    states: int
    step: Callable[[Parts, Parts, States], States]


def _tanh(of_x: Parts, of_h: Parts, _states: States) -> States:
    return (ops.tanh(of_x[0] + of_h[0]),)


def _relu(of_x: Parts, of_h: Parts, _states: States) -> States:
    return (ops.relu(of_x[0] + of_h[0]),)


def _gru(of_x: Parts, of_h: Parts, states: States) -> States:
    (h,) = states
    reset, update = (ops.sigmoid(a + b) for a, b in zip(of_x[:2], of_h[:2], strict=True))
    new = ops.tanh(of_x[2] + reset * of_h[2])
    return (new + update * (h - new),)


def _lstm(of_x: Parts, of_h: Parts, states: States) -> States:
    _, c = states
    i, f, g, o = (a + b for a, b in zip(of_x, of_h, strict=True))
    c = ops.sigmoid(f) * c + ops.sigmoid(i) * ops.tanh(g)
    return ops.sigmoid(o) * ops.tanh(c), c


RNN_EQUATIONS = {"tanh": GatedEquations(1, 1, _tanh), "relu": GatedEquations(1, 1, _relu)}
GRU_EQUATIONS = GatedEquations(3, 1, _gru)
LSTM_EQUATIONS = GatedEquations(4, 2, _lstm)


def create_gates(
    gates: int, input_size: int, hidden_size: int, has_bias: bool, dtype: Any
) -> Iterator[tuple[str, Parameter]]:
    """The weights and biases of all gates, by their names, uniform within 1 / sqrt(hidden_size)."""
    even, rows = Uniform(1 / math.sqrt(hidden_size)), gates * hidden_size
    yield "weight_ih", Parameter(initializer(even, (rows, input_size), dtype))
    yield "weight_hh", Parameter(initializer(even, (rows, hidden_size), dtype))
    if has_bias:
        yield "bias_ih", Parameter(initializer(even, (rows,), dtype))
        yield "bias_hh", Parameter(initializer(even, (rows,), dtype))


def split_gates(weight: Tensor, gates: int) -> list[Tensor]:
    """The rows of a weight or a bias of each gate."""
    return list(ops.split(weight, weight.shape[0] // gates))


# --- cells of one step ------------------------------------------------------------------------------------------------


HAS_BIAS = field(True, meaning="whether there are biases, b_ih and b_hh")
NONLINEARITY = field("tanh", meaning='"tanh" or "relu"')
DTYPE = field(dtypes.float32, meaning="of the Parameters", keep=False)


@with_fields
class _RecurrentCell(Cell):
    """The base of Cells of one step: their weights, and the products of these with the input and the last output."""

    equations: ClassVar[GatedEquations]
    input_size: Annotated[Count, field(meaning="I")]
    hidden_size: Annotated[Count, field(meaning="H")]
    has_bias: bool = HAS_BIAS
    dtype: FloatDtype = DTYPE
    bias_ih: Parameter | None = None  # without a bias, as in MindSpore
    bias_hh: Parameter | None = None

    def _complete(self, given: dict[str, Any]) -> None:
        sizes = self.equations.gates, self.input_size, self.hidden_size
        made = dict(create_gates(*sizes, self.has_bias, given["dtype"]))
        self.weight_ih, self.weight_hh = made["weight_ih"], made["weight_hh"]
        if self.has_bias:
            self.bias_ih, self.bias_hh = made["bias_ih"], made["bias_hh"]

    def after(self, x: Tensor, states: States) -> States:
        """The states after a step."""
        lengths = (self.input_size, *(self.hidden_size,) * len(states))
        for what, length in zip((x, *states), lengths, strict=True):
            if what.ndim != 2 or what.shape != (x.shape[0], length):
                raise ShapeError(
                    f"{self!r}: x is (B, {self.input_size}) and hx (B, {self.hidden_size})"
                    f"{' each' if len(states) > 1 else ''}; x has shape {x.shape}, hx "
                    f"{', '.join(str(s.shape) for s in states)}."
                )
        of_x, of_h = ops.matmul(x, self.weight_ih.T), ops.matmul(states[0], self.weight_hh.T)
        if self.has_bias:
            of_x, of_h = of_x + self.bias_ih, of_h + self.bias_hh
        by_gate, feedback = (ops.split(one, self.hidden_size, 1) for one in (of_x, of_h))
        return self.equations.step(by_gate, feedback, states)

    def extend_repr(self) -> str:
        return f"input_size={self.input_size}, hidden_size={self.hidden_size}, has_bias={self.has_bias}"


@with_fields(by_place="input_size hidden_size has_bias nonlinearity dtype")
class RNNCell(_RecurrentCell):
    """One step of `RNN`: h' = tanh(W_ih x + b_ih + W_hh h + b_hh).

    The Parameters are weight_ih (H, I), weight_hh (H, H), bias_ih and bias_hh (H,), all uniform within 1 / sqrt(H).

    Inputs:
        x: (B, I).
        hx: (B, H).

    Raises:
        ShapeError: naming this Cell, for other shapes.

    Example:
        >>> nn.RNNCell(3, 4)(ops.ones((2, 3)), ops.zeros((2, 4))).shape
        (2, 4)
    """

    equations = RNN_EQUATIONS["tanh"]
    nonlinearity: Literal["tanh", "relu"] = NONLINEARITY

    if TYPE_CHECKING:

        def __init__(
            self,
            input_size: Count,
            hidden_size: Count,
            has_bias: bool = ...,
            nonlinearity: Literal["tanh", "relu"] = ...,
            dtype: FloatDtype = ...,
        ) -> None: ...

    def _complete(self, given: dict[str, Any]) -> None:
        self.equations = RNN_EQUATIONS[self.nonlinearity]  # type: ignore[misc]
        super()._complete(given)

    def construct(self, x: Tensor, hx: Tensor) -> Tensor:
        return self.after(x, (hx,))[0]


@with_fields
class GRUCell(_RecurrentCell):
    """One step of `GRU`, where its equations are.

    The Parameters are weight_ih (3 H, I), weight_hh (3 H, H), bias_ih and bias_hh (3 H,), with rows in the order
    r, z, n.

    Inputs:
        x: (B, I).
        hx: (B, H).

    Raises:
        ShapeError: naming this Cell, for other shapes.
    """

    equations = GRU_EQUATIONS

    def construct(self, x: Tensor, hx: Tensor) -> Tensor:
        return self.after(x, (hx,))[0]


@with_fields
class LSTMCell(_RecurrentCell):
    """One step of `LSTM`, where its equations are.

    The Parameters are weight_ih (4 H, I), weight_hh (4 H, H), bias_ih and bias_hh (4 H,), with rows in the order
    i, f, g, o.

    Inputs:
        x: (B, I).
        hx: the pair (h, c), each (B, H).

    Raises:
        ShapeError: naming this Cell, for other shapes.

    Example:
        >>> h, c = nn.LSTMCell(3, 4)(ops.ones((2, 3)), (ops.zeros((2, 4)), ops.zeros((2, 4))))
        >>> h.shape
        (2, 4)
    """

    equations = LSTM_EQUATIONS

    def construct(self, x: Tensor, hx: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        if not isinstance(hx, (tuple, list)) or len(hx) != 2:
            raise ShapeError(f"{self!r}: hx is the pair of states (h, c), each (B, {self.hidden_size}).")
        h, c = self.after(x, tuple(hx))
        return h, c


# --- networks over time -----------------------------------------------------------------------------------------------


@with_fields
class _RecurrentNetwork(Cell):
    """The base of recurrent networks: a stack of layers, each in one direction or in both."""

    equations: ClassVar[GatedEquations]
    input_size: Annotated[Count, field(meaning="I")]
    hidden_size: Annotated[Count, field(meaning="H")]
    num_layers: Count = field(1, meaning="how many are one on the other")
    has_bias: bool = HAS_BIAS
    batch_first: bool = field(False, meaning="whether inputs and outputs are (B, T, ...); states never are")
    dropout: Probability = field(
        0.0,
        meaning="probability with which, in training, elements between layers are 0; with one layer there is an "
        "ArgumentWarning, for nothing is dropped",
    )
    bidirectional: bool = field(
        False, meaning="whether a second network goes from the last step to the first; outputs are side by side"
    )
    dtype: FloatDtype = DTYPE

    def _complete(self, given: dict[str, Any]) -> None:
        if self.dropout and self.num_layers == 1:
            warn_of(
                f"{type(self).__name__}: dropout={self.dropout:g} is between layers, of which there is one: nothing is "
                f"dropped. Write num_layers=2 or more, or put an nn.Dropout(p={self.dropout:g}) behind it."
            )
        gates, size = self.equations.gates, self.hidden_size
        for layer, _, suffix in self._passes():
            width = self.input_size if layer == 0 else size * (1 + self.bidirectional)
            for name, parameter in create_gates(gates, width, size, self.has_bias, given["dtype"]):
                setattr(self, f"{name}_{suffix}", parameter)

    def _passes(self) -> Iterator[tuple[int, int, str]]:
        """Layer, direction (0, or 1 for backwards) and what the names of their Parameters end in."""
        for layer in range(self.num_layers):
            for direction in range(1 + self.bidirectional):
                yield layer, direction, f"l{layer}{'_reverse' * direction}"

    def construct(self, x: Tensor, hx: Any = None, seq_length: Any = None) -> tuple[Tensor, Any]:
        if x.ndim != 3 or x.shape[2] != self.input_size:
            layout = "(B, T, " if self.batch_first else "(T, B, "
            raise ShapeError(f"{self!r}: takes {layout}{self.input_size}), the input has shape {x.shape}.")
        if self.batch_first:
            x = x.swapaxes(0, 1)
        check_time_axis(x, type(self).__name__)
        there = None if seq_length is None else length_mask(x, seq_length, type(self).__name__)
        if there is not None:
            x = ops.select(there, x, 0.0)  # what is NaN there would be NaN in gradients too
        first, last = self._states(x, hx), []
        count = 1 + self.bidirectional
        for layer in range(self.num_layers):
            if layer and self.training and self.dropout:
                x = ops.dropout(x, float(self.dropout))
            outputs = []
            for direction, suffix in [(d, s) for of, d, s in self._passes() if of == layer]:
                begin = tuple(state[layer * count + direction] for state in first)
                states, out = self._one_pass(x, begin, suffix, bool(direction), there)
                outputs.append(out)
                last.append(states)
            x = ops.concat(outputs, -1) if self.bidirectional else outputs[0]
        end = tuple(ops.stack(column) for column in zip(*last, strict=True))
        return x.swapaxes(0, 1) if self.batch_first else x, end if self.equations.states > 1 else end[0]

    def _one_pass(
        self, x: Tensor, begin: States, suffix: str, backwards: bool, there: Tensor | None
    ) -> tuple[States, Tensor]:
        """One layer in one direction: the last states, and the output at each step."""
        gates = self.equations.gates
        # A gate each, so that the loop takes nothing apart; what it has of the input is a product over all steps.
        to_h = [weight.T for weight in split_gates(getattr(self, f"weight_hh_{suffix}"), gates)]
        of_x = ops.matmul(x, getattr(self, f"weight_ih_{suffix}").T)
        if self.has_bias:
            of_x = of_x + getattr(self, f"bias_ih_{suffix}")
            of_h = split_gates(getattr(self, f"bias_hh_{suffix}"), gates)

        def step(states: States, now: Any) -> tuple[States, Tensor]:
            parts, going_on = now
            products = [ops.matmul(states[0], weight) for weight in to_h]
            if self.has_bias:
                products = [product + bias for product, bias in zip(products, of_h, strict=True)]
            after = self.equations.step(parts, products, states)
            if going_on is None:
                return after, after[0]
            kept = tuple(ops.select(going_on, new, old) for new, old in zip(after, states, strict=True))
            return kept, ops.select(going_on, after[0], 0.0)

        each = ops.split(of_x, self.hidden_size, -1)
        last, out = run_scan(step, begin, (each, there), reverse=backwards, who=type(self).__name__)
        return last, out

    def _states(self, x: Tensor, hx: Any) -> States:
        """The states before the first step, (layers and directions, B, H) each."""
        count = self.equations.states
        shape = (self.num_layers * (1 + self.bidirectional), x.shape[1], self.hidden_size)
        if hx is None:
            dtype = dtypes.promote(x.dtype, next(iter(self.get_parameters())).dtype)
            return (ops.zeros(shape, dtype),) * count
        states = tuple(hx) if isinstance(hx, (tuple, list)) else (hx,)
        given = tuple(as_tensor(state, type(self).__name__, "hx") for state in states)
        if len(given) != count or any(state.shape != shape for state in given):
            names = "the pair (h, c), each" if count == 2 else "of shape"
            came = ", ".join(str(tuple(state.shape)) for state in given)
            came = came if len(given) == count else f"{len(given)} Tensor(s) of shape {came}"
            raise ShapeError(f"{self!r}: hx is {names} (layers and directions, B, H) = {shape}, not {came}.")
        return given

    def extend_repr(self) -> str:
        return (
            f"input_size={self.input_size}, hidden_size={self.hidden_size}, num_layers={self.num_layers}, "
            f"has_bias={self.has_bias}, batch_first={self.batch_first}, dropout={self.dropout}, "
            f"bidirectional={self.bidirectional}"
        )


@with_fields(by_place="input_size hidden_size num_layers nonlinearity has_bias batch_first dropout bidirectional dtype")
class RNN(_RecurrentNetwork):
    """Simple (Elman) recurrent network: h[t] = tanh(W_ih x[t] + b_ih + W_hh h[t-1] + b_hh).

    The Parameters are weight_ih_l0 (H, I), weight_hh_l0 (H, H), bias_ih_l0 and bias_hh_l0 (H,), the same for each layer
    l1, ..., and those backwards, l0_reverse; all are uniform within 1 / sqrt(H).

    Inputs:
        x: (T, B, I).
        hx: the state before, (layers and directions, B, H); zeros if left out.
        seq_length: integers (B,): how many steps each sample has; after its end the output is 0.

    Returns:
        The output (T, B, H), or (T, B, 2 H), and the last states as hx.

    Raises:
        ShapeError: naming this Cell, for other shapes.

    Source: Elman, "Finding Structure in Time", Cognitive Science 1990. Names and weights are MindSpore's, PyTorch's.
    """

    equations = RNN_EQUATIONS["tanh"]
    nonlinearity: Literal["tanh", "relu"] = NONLINEARITY

    if TYPE_CHECKING:

        def __init__(
            self,
            input_size: Count,
            hidden_size: Count,
            num_layers: Count = ...,
            nonlinearity: Literal["tanh", "relu"] = ...,
            has_bias: bool = ...,
            batch_first: bool = ...,
            dropout: Probability = ...,
            bidirectional: bool = ...,
            dtype: FloatDtype = ...,
        ) -> None: ...

    def _complete(self, given: dict[str, Any]) -> None:
        self.equations = RNN_EQUATIONS[self.nonlinearity]  # type: ignore[misc]
        super()._complete(given)


@with_fields
class GRU(_RecurrentNetwork):
    """Gated recurrent unit (GRU).

    r = sigmoid(W_ir x + b_ir + W_hr h + b_hr),  z = sigmoid(W_iz x + b_iz + W_hz h + b_hz)
    n = tanh(W_in x + b_in + r (W_hn h + b_hn)),  h' = (1 - z) n + z h

    Inputs and results are those of `RNN`; weights have their rows in the order r, z, n.

    Source: Cho and others, "Learning Phrase Representations using RNN Encoder-Decoder", EMNLP 2014.

    Example:
        >>> out, h = nn.GRU(3, 4)(ops.ones((6, 2, 3)))  # (T, B, I)
        >>> out.shape, h.shape
        ((6, 2, 4), (1, 2, 4))
    """

    equations = GRU_EQUATIONS


@with_fields
class LSTM(_RecurrentNetwork):
    """Long short-term memory (LSTM).

    i, f, o = sigmoid(W x + b_i + U h + b_h) and g = tanh(the same), each with rows of its own
    c' = f c + i g,  h' = o tanh(c')

    Inputs are those of `RNN`, with hx the pair (h, c); the last states are such a pair. Weights have their
    rows in the order i, f, g, o.

    Source: Hochreiter and Schmidhuber, "Long Short-Term Memory", Neural Computation 1997, with the forget gate of Gers,
    Schmidhuber and Cummins, 2000.

    Example:
        >>> out, (h, c) = nn.LSTM(3, 4, num_layers=2, bidirectional=True)(ops.ones((6, 2, 3)))
        >>> out.shape, h.shape, c.shape
        ((6, 2, 8), (4, 2, 4), (4, 2, 4))
    """

    equations = LSTM_EQUATIONS
