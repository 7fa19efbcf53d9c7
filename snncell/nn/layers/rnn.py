"""Recurrent networks RNN, GRU and LSTM, and their one-step Cells. Time is the first axis."""

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
from snncell.errors import ArgumentTypeError, ShapeError
from snncell.nn.time.axis import check_time_axis, length_mask
from snncell.ops.base import as_tensor
from snncell.ops.control import run_scan
from snncell.tape.parameter import Parameter
from snncell.tape.tensor import Tensor

__all__ = ["GRU", "LSTM", "RNN", "GRUCell", "LSTMCell", "RNNCell"]

# --- equations --------------------------------------------------------------------------------------------------------

Parts = Sequence[Tensor]  # the terms of each gate, (B, H)
States = tuple[Tensor, ...]  # (B, H) each; the first is the output


class GatedEquations(NamedTuple):
    """The equations of a recurrent network."""

    gates: int  # the number of gates, which are blocks of rows of the weights
    states: int
    step: Callable[[Parts, Parts, States], States]  # (terms of x, terms of the previous output, states) -> next states


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


def create_gates(gates: int, inputs: int, size: int, has_bias: bool, dtype: Any) -> Iterator[tuple[str, Parameter]]:
    """Create weights and biases of all gates by name, uniform within +-1 / sqrt(hidden_size)."""
    even, rows = Uniform(1 / math.sqrt(size)), gates * size
    yield "weight_ih", Parameter(initializer(even, (rows, inputs), dtype))
    yield "weight_hh", Parameter(initializer(even, (rows, size), dtype))
    if has_bias:
        yield "bias_ih", Parameter(initializer(even, (rows,), dtype))
        yield "bias_hh", Parameter(initializer(even, (rows,), dtype))


def split_gates(weight: Tensor, gates: int) -> list[Tensor]:
    """Split a weight or bias into the rows of each gate."""
    return list(ops.split(weight, weight.shape[0] // gates))


# --- cells of one step ------------------------------------------------------------------------------------------------


HAS_BIAS = field(True, meaning="whether to add the biases b_ih and b_hh")
NONLINEARITY = field("tanh", meaning='the activation, "tanh" or "relu"', quiet=True)
DTYPE = field(dtypes.float32, meaning="dtype of the Parameters", keep=False)


@with_fields
class _RecurrentCell(Cell):
    """Base of one-step Cells: weights, and their products with the input and the previous output."""

    equations: ClassVar[GatedEquations]
    input_size: Annotated[Count, field(meaning="I, the number of inputs")]
    hidden_size: Annotated[Count, field(meaning="H, the number of hidden units")]
    has_bias: bool = HAS_BIAS

    def _complete(self, given: dict[str, Any]) -> None:
        sizes = self.equations.gates, self.input_size, self.hidden_size
        made = dict(create_gates(*sizes, self.has_bias, given["dtype"]))
        self.weight_ih, self.weight_hh = made["weight_ih"], made["weight_hh"]
        self.bias_ih, self.bias_hh = made.get("bias_ih"), made.get("bias_hh")  # None without a bias, as in MindSpore

    def construct(self, x: Tensor, hx: Any) -> Any:
        return self.after(x, (hx,))[0]

    def after(self, x: Tensor, given: Sequence[Any]) -> States:
        if any(state is None for state in given):
            zeros = ", ".join([f"ops.zeros((B, {self.hidden_size}))"] * len(given))
            raise ArgumentTypeError(
                f"{self!r}: hx is the state, not None. In the first step, pass zeros: hx="
                f"{zeros if len(given) == 1 else f'({zeros})'}."
            )
        states = tuple(as_tensor(state, type(self).__name__, "hx") for state in given)
        lengths = (self.input_size, *(self.hidden_size,) * len(states))
        for what, length in zip((x, *states), lengths, strict=True):
            if what.ndim != 2 or what.shape != (x.shape[0], length):
                raise ShapeError(
                    f"{self!r}: x must be (B, {self.input_size}) and hx (B, {self.hidden_size})"
                    f"{' each' if len(states) > 1 else ''}, but x has shape {x.shape}, and hx "
                    f"{', '.join(str(s.shape) for s in states)}."
                )
        of_x, of_h = ops.matmul(x, self.weight_ih.T), ops.matmul(states[0], self.weight_hh.T)
        if self.has_bias:
            of_x, of_h = of_x + self.bias_ih, of_h + self.bias_hh
        by_gate, feedback = (ops.split(one, self.hidden_size, 1) for one in (of_x, of_h))
        return self.equations.step(by_gate, feedback, states)


@with_fields
class RNNCell(_RecurrentCell):
    """One time step of `RNN`: h' = tanh(W_ih x + b_ih + W_hh h + b_hh).

    Use it in your own loop. The Parameters are weight_ih (H, I), weight_hh (H, H), bias_ih and bias_hh (H,).
    Inputs: x: (B, I); hx: the state, (B, H).
    Example:
        >>> nn.RNNCell(3, 4)(ops.ones((2, 3)), ops.zeros((2, 4))).shape
        (2, 4)
    """

    equations = RNN_EQUATIONS["tanh"]
    nonlinearity: Literal["tanh", "relu"] = NONLINEARITY
    dtype: FloatDtype = DTYPE

    def _complete(self, given: dict[str, Any]) -> None:
        self.equations = RNN_EQUATIONS[self.nonlinearity]  # type: ignore[misc]
        super()._complete(given)


@with_fields
class GRUCell(_RecurrentCell):
    """One time step of `GRU`, with the same equations.

    The Parameters are weight_ih (3 H, I), weight_hh (3 H, H), bias_ih and bias_hh (3 H,), with rows in order r, z, n.
    Inputs: x: (B, I); hx: the state, (B, H).
    """

    equations = GRU_EQUATIONS
    dtype: FloatDtype = DTYPE


@with_fields
class LSTMCell(_RecurrentCell):
    """One time step of `LSTM`, with the same equations.

    The Parameters are weight_ih (4 H, I), weight_hh (4 H, H), bias_ih and bias_hh (4 H,), rows in order i, f, g, o.
    Inputs: x: (B, I); hx: the states (h, c), each (B, H).
    Returns: (h, c).
    Example:
        >>> h, c = nn.LSTMCell(3, 4)(ops.ones((2, 3)), (ops.zeros((2, 4)), ops.zeros((2, 4))))
        >>> h.shape
        (2, 4)
    """

    equations = LSTM_EQUATIONS
    dtype: FloatDtype = DTYPE

    def construct(self, x: Tensor, hx: Any) -> tuple[Tensor, Tensor]:
        hx = (None, None) if hx is None else hx
        if not isinstance(hx, (tuple, list)) or len(hx) != 2:
            raise ShapeError(f"{self!r}: hx must be the pair of states (h, c), each (B, {self.hidden_size}).")
        h, c = self.after(x, hx)
        return h, c


# --- networks over time -----------------------------------------------------------------------------------------------


@with_fields
class _RecurrentNetwork(Cell):
    """Base of recurrent networks: stacked layers in one or both directions."""

    _all_steps = True
    equations: ClassVar[GatedEquations]
    input_size: Annotated[Count, field(meaning="I, the number of inputs")]
    hidden_size: Annotated[Count, field(meaning="H, the number of hidden units")]
    num_layers: Count = field(1, meaning="number of stacked layers")
    has_bias: bool = HAS_BIAS
    batch_first: bool = field(False, meaning="whether inputs and outputs, but not states, are (B, T, ...)")
    dropout: Probability = field(0.0, meaning="probability of dropping an element between two layers in training")
    bidirectional: bool = field(
        False, meaning="whether to run a second network backwards in time, and concatenate the outputs"
    )
    dtype: FloatDtype = DTYPE

    def _complete(self, given: dict[str, Any]) -> None:
        if self.dropout and self.num_layers == 1:
            warn_of(
                f"{type(self).__name__}: dropout={self.dropout:g} acts between layers, so with one layer nothing is "
                f"dropped. Write num_layers=2 or more, or put an nn.Dropout(p={self.dropout:g}) after it."
            )
        gates, size = self.equations.gates, self.hidden_size
        for layer, _, suffix in self._passes():
            width = self.input_size if layer == 0 else size * (1 + self.bidirectional)
            for name, parameter in create_gates(gates, width, size, self.has_bias, given["dtype"]):
                setattr(self, f"{name}_{suffix}", parameter)

    def _passes(self) -> Iterator[tuple[int, int, str]]:
        """Layer, direction (1 is backwards), and the suffix of the names of their Parameters."""
        for layer in range(self.num_layers):
            for direction in range(1 + self.bidirectional):
                yield layer, direction, f"l{layer}{'_reverse' * direction}"

    def construct(self, x: Tensor, hx: Any = None, seq_length: Any = None) -> tuple[Tensor, Any]:
        if x.ndim != 3 or x.shape[2] != self.input_size:
            layout = "(B, T, " if self.batch_first else "(T, B, "
            raise ShapeError(f"{self!r}: the input must be {layout}{self.input_size}), but has shape {x.shape}.")
        if self.batch_first:
            x = x.swapaxes(0, 1)
        check_time_axis(x, type(self).__name__)
        valid = None if seq_length is None else length_mask(x, seq_length, type(self).__name__)
        if valid is not None:
            x = ops.select(valid, x, 0.0)  # because NaN in the padding would make gradients NaN
        first, last = self._states(x, hx), []
        count = 1 + self.bidirectional
        for layer in range(self.num_layers):
            if layer and self.training and self.dropout:
                x = ops.dropout(x, float(self.dropout))
            outputs = []
            for direction, suffix in [(d, s) for of, d, s in self._passes() if of == layer]:
                begin = tuple(state[layer * count + direction] for state in first)
                states, out = self._one_pass(x, begin, suffix, bool(direction), valid)
                outputs.append(out)
                last.append(states)
            x = ops.concat(outputs, -1) if self.bidirectional else outputs[0]
        end = tuple(ops.stack(column) for column in zip(*last, strict=True))
        return x.swapaxes(0, 1) if self.batch_first else x, end if self.equations.states > 1 else end[0]

    def _one_pass(
        self, x: Tensor, begin: States, suffix: str, backwards: bool, valid: Tensor | None
    ) -> tuple[States, Tensor]:
        """Run one layer in one direction; return the last states and the output of each step."""
        gates = self.equations.gates
        # Split the weights by gate before the loop, and multiply the inputs of all steps in one product.
        to_h = [weight.T for weight in split_gates(getattr(self, f"weight_hh_{suffix}"), gates)]
        of_x = ops.matmul(x, getattr(self, f"weight_ih_{suffix}").T)
        if self.has_bias:
            of_x = of_x + getattr(self, f"bias_ih_{suffix}")
            of_h = split_gates(getattr(self, f"bias_hh_{suffix}"), gates)

        def step(states: States, now: Any) -> tuple[States, Tensor]:
            parts, valid_now = now
            products = [ops.matmul(states[0], weight) for weight in to_h]
            if self.has_bias:
                products = [product + bias for product, bias in zip(products, of_h, strict=True)]
            after = self.equations.step(parts, products, states)
            if valid_now is None:
                return after, after[0]
            kept = tuple(ops.select(valid_now, new, old) for new, old in zip(after, states, strict=True))
            return kept, ops.select(valid_now, after[0], 0.0)

        each = ops.split(of_x, self.hidden_size, -1)
        last, out = run_scan(step, begin, (each, valid), reverse=backwards, who=type(self).__name__)
        return last, out

    def _states(self, x: Tensor, hx: Any) -> States:
        """The initial states, each (layers * directions, B, H)."""
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
            raise ShapeError(f"{self!r}: hx must be {names} (layers * directions, B, H) = {shape}, not {came}.")
        return given


@with_fields(by_place="input_size hidden_size num_layers nonlinearity has_bias batch_first dropout bidirectional dtype")
class RNN(_RecurrentNetwork):
    """Simple (Elman) recurrent network: h[t] = tanh(W_ih x[t] + b_ih + W_hh h[t-1] + b_hh).

    Use it as a baseline without spikes; for long sequences prefer `GRU` or `LSTM`, because their gradients vanish less.

    The Parameters are weight_ih_l0 (H, I), weight_hh_l0 (H, H), bias_ih_l0 and bias_hh_l0 (H,). Further layers have the
    suffix l1, ..., and backward directions l0_reverse, .... All are uniform within +-1 / sqrt(H).
    Inputs:
        x: (T, B, I).
        hx: the initial state, (layers * directions, B, H); zeros by default.
        seq_length: integers (B,), the number of steps of each sample, by default T; later outputs are 0.
    Returns: The output (T, B, H), or (T, B, 2 H) if bidirectional, and the last states, in the shape of hx.
    Source: Elman, "Finding Structure in Time", Cognitive Science 1990; names and weights as in MindSpore and PyTorch.
    Example:
        >>> out, h = nn.RNN(3, 4)(ops.ones((6, 2, 3)))  # (T, B, I)
        >>> out.shape, h.shape
        ((6, 2, 4), (1, 2, 4))
    """

    equations = RNN_EQUATIONS["tanh"]
    nonlinearity: Literal["tanh", "relu"] = NONLINEARITY

    if TYPE_CHECKING:

        def __init__(
            self, input_size: Count, hidden_size: Count, num_layers: Count = ...,
            nonlinearity: Literal["tanh", "relu"] = ..., has_bias: bool = ..., batch_first: bool = ...,
            dropout: Probability = ..., bidirectional: bool = ..., dtype: FloatDtype = ...,
        ) -> None: ...  # fmt: skip

    def _complete(self, given: dict[str, Any]) -> None:
        self.equations = RNN_EQUATIONS[self.nonlinearity]  # type: ignore[misc]
        super()._complete(given)


@with_fields
class GRU(_RecurrentNetwork):
    """Gated recurrent unit (GRU).

        r = sigmoid(W_ir x + b_ir + W_hr h + b_hr)
        z = sigmoid(W_iz x + b_iz + W_hz h + b_hz)
        n = tanh(W_in x + b_in + r (W_hn h + b_hn))
        h' = (1 - z) n + z h

    Inputs and results are the same as for `RNN`. The rows of the weights are in the order r, z, n.
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

        i, f, o = sigmoid(W x + b + U h + b'), each with its own W, U, b and b'
        g = tanh(W x + b + U h + b'), with its own weights too
        c' = f c + i g
        h' = o tanh(c')

    Inputs and results are those of `RNN`, but hx and the last states are pairs (h, c). The weights' rows are ordered
    i, f, g, o.
    Source: Hochreiter and Schmidhuber, Neural Computation 1997; forget gate: Gers, Schmidhuber and Cummins, 2000.
    Example:
        >>> out, (h, c) = nn.LSTM(3, 4, num_layers=2, bidirectional=True)(ops.ones((6, 2, 3)))
        >>> out.shape, h.shape, c.shape
        ((6, 2, 8), (4, 2, 4), (4, 2, 4))
    """

    equations = LSTM_EQUATIONS
