"""The classical recurrent networks over time: RNN, GRU, LSTM. Time is the first axis, as everywhere."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Literal

from snncell import dtype as dtypes, ops
from snncell.base.arguments.guard import warn_of
from snncell.base.arguments.kinds import Count, FloatDtype, Probability
from snncell.cell.cell import Cell
from snncell.common.initializer import Uniform, initializer
from snncell.errors import ShapeError
from snncell.nn.gates import GRU_EQUATIONS, LSTM_EQUATIONS, SIMPLE, Gated, States, rows
from snncell.nn.sequences import runs_over, within_lengths
from snncell.ops.base import as_tensor
from snncell.ops.control import run_scan
from snncell.tape.parameter import Parameter
from snncell.tape.tensor import Tensor


class _RecurrentNetwork(Cell):
    """The base of recurrent networks: layers one on the other, each in one direction or in both."""

    equations: Gated

    def __init__(
        self,
        input_size: Count,
        hidden_size: Count,
        num_layers: Count = 1,
        has_bias: bool = True,
        batch_first: bool = False,
        dropout: Probability = 0.0,
        bidirectional: bool = False,
        dtype: FloatDtype = dtypes.float32,
    ) -> None:
        super().__init__()
        if dropout and num_layers == 1:
            warn_of(
                f"{type(self).__name__}: dropout={dropout:g} is between layers, of which there is one: nothing is "
                f"dropped. Write num_layers=2 or more, or put an nn.Dropout(p={dropout:g}) behind it."
            )
        self.input_size, self.hidden_size, self.num_layers = input_size, hidden_size, num_layers
        self.has_bias, self.batch_first, self.dropout = has_bias, batch_first, dropout
        self.bidirectional = bidirectional
        long, even = self.equations.gates * hidden_size, Uniform(1 / math.sqrt(hidden_size))
        for layer, _, suffix in self._passes():
            width = input_size if layer == 0 else hidden_size * (1 + bidirectional)
            shapes: dict[str, tuple[int, ...]] = {"weight_ih": (long, width), "weight_hh": (long, hidden_size)}
            if has_bias:
                shapes |= {"bias_ih": (long,), "bias_hh": (long,)}
            for name, shape in shapes.items():
                setattr(self, f"{name}_{suffix}", Parameter(initializer(even, shape, dtype)))

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
        runs_over(x, type(self).__name__)
        there = None if seq_length is None else within_lengths(x, seq_length, type(self).__name__)
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
        to_h = [weight.T for weight in rows(getattr(self, f"weight_hh_{suffix}"), gates)]
        of_x = ops.matmul(x, getattr(self, f"weight_ih_{suffix}").T)
        if self.has_bias:
            of_x = of_x + getattr(self, f"bias_ih_{suffix}")
            of_h = rows(getattr(self, f"bias_hh_{suffix}"), gates)

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


class RNN(_RecurrentNetwork):
    """h[t] = tanh(W_ih x[t] + b_ih + W_hh h[t-1] + b_hh), the simple recurrent network of Elman.

    Args:
        input_size, hidden_size: I and H.
        num_layers: how many are one on the other.
        nonlinearity: "tanh" or "relu".
        has_bias: whether there are b_ih and b_hh.
        batch_first: whether inputs and outputs are (B, T, ...); states never are.
        dropout: probability with which, in training, elements between layers are 0; with one layer there is an
            ArgumentWarning, for nothing is dropped.
        bidirectional: whether a second network goes from the last step to the first; outputs are side by side.
        dtype: of the Parameters, weight_ih_l0 (H, I), weight_hh_l0 (H, H), bias_ih_l0 and bias_hh_l0 (H,), for each
            layer l1, ... and those backwards l0_reverse; all begun evenly within 1 / sqrt(H).

    Inputs:
        x: (T, B, I).
        hx: the state before, (layers and directions, B, H); zeros if left out.
        seq_length: integers (B,): how many steps each sample has; behind its end the output is 0.

    Returns:
        The output (T, B, H), or (T, B, 2 H), and the last states as hx.

    Raises:
        ShapeError: naming this Cell, for other shapes.

    Source: Elman, "Finding Structure in Time", Cognitive Science 1990. Names and weights are MindSpore's, PyTorch's.
    """

    equations = SIMPLE["tanh"]

    def __init__(
        self,
        input_size: Count,
        hidden_size: Count,
        num_layers: Count = 1,
        nonlinearity: Literal["tanh", "relu"] = "tanh",
        has_bias: bool = True,
        batch_first: bool = False,
        dropout: Probability = 0.0,
        bidirectional: bool = False,
        dtype: FloatDtype = dtypes.float32,
    ) -> None:
        super().__init__(input_size, hidden_size, num_layers, has_bias, batch_first, dropout, bidirectional, dtype)
        self.nonlinearity, self.equations = nonlinearity, SIMPLE[nonlinearity]


class GRU(_RecurrentNetwork):
    """The gated recurrent unit.

    r = sigmoid(W_ir x + b_ir + W_hr h + b_hr),  z = sigmoid(W_iz x + b_iz + W_hz h + b_hz)
    n = tanh(W_in x + b_in + r (W_hn h + b_hn)),  h' = (1 - z) n + z h

    Args, inputs and results are those of `RNN`; weights have their rows in the order r, z, n.

    Source: Cho and others, "Learning Phrase Representations using RNN Encoder-Decoder", EMNLP 2014.

    Example:
        >>> out, h = nn.GRU(3, 4)(ops.ones((6, 2, 3)))  # (T, B, I)
        >>> out.shape, h.shape
        ((6, 2, 4), (1, 2, 4))
    """

    equations = GRU_EQUATIONS


class LSTM(_RecurrentNetwork):
    """Long short-term memory.

    i, f, o = sigmoid(W x + b_i + U h + b_h) and g = tanh(the same), each with rows of its own
    c' = f c + i g,  h' = o tanh(c')

    Args and inputs are those of `RNN`, with hx the pair (h, c); the last states are such a pair. Weights have their
    rows in the order i, f, g, o.

    Source: Hochreiter and Schmidhuber, "Long Short-Term Memory", Neural Computation 1997, with the forget gate of Gers,
    Schmidhuber and Cummins, 2000.

    Example:
        >>> out, (h, c) = nn.LSTM(3, 4, num_layers=2, bidirectional=True)(ops.ones((6, 2, 3)))
        >>> out.shape, h.shape, c.shape
        ((6, 2, 8), (4, 2, 4), (4, 2, 4))
    """

    equations = LSTM_EQUATIONS
