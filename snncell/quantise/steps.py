"""Neurons in whole numbers: one step, and steps in time."""

from __future__ import annotations

from dataclasses import dataclass, field
import numpy as np

from snncell.quantise.integer import Array, IntegerLayer, IntegerProduct, shift_round


@dataclass(frozen=True, eq=False)
class IntegerNeuron(IntegerLayer):
    """One step of a neuron, in whole numbers.

    h = clip(round((v_from_v v + v_from_x x + v_from_i i + v_from_1) / 2^shift), low, high)
    i = clip(round((i_from_x x + i_from_i i) / 2^i_shift), low, high)
    s, v by the threshold, the reset and the delay, as `nn.Neuron` has them

    Attributes:
        low, high: where states saturate.
        threshold, reset_to: in units of the state; threshold is None where nothing fires.
        reset: "subtract", "zero", "value" or None; delay: None, "reset", "reset+input" or "spike".
        inclusive: whether it fires at the threshold too.
        most: the largest number of spikes in a step, 1, more, or None for any.
        worth: what a spike is multiplied by.
    """

    low: int
    high: int
    shift: int
    v_from_v: Array
    v_from_x: Array
    v_from_1: Array
    start: Array
    threshold: Array | None = None
    reset_to: Array = field(default_factory=lambda: np.zeros((), np.int32))
    reset: str | None = "subtract"
    delay: str | None = None
    inclusive: bool = False
    most: int | None = 1
    worth: Array | None = None
    v_from_i: Array | None = None
    i_from_x: Array | None = None
    i_from_i: Array | None = None
    i_shift: int = 0

    def states(self, x: Array) -> tuple[Array, ...]:
        """The states before the first step, for an input of one."""
        v = np.broadcast_to(self.start, x.shape).astype(np.int32)
        return (v,) if self.v_from_i is None else (v, np.zeros_like(v))

    def step(self, x: Array, *states: Array) -> tuple[Array, ...]:
        """One step: the output and the states."""
        v = states[0]
        late = None if self.delay is None else self._spikes(v)
        at_end = self.reset == "subtract" or self.delay == "reset+input"
        if late is not None and not at_end:
            v = self._after(v, late)
        h = self.v_from_v * v + self.v_from_x * x + self.v_from_1
        currents: tuple[Array, ...] = ()
        if self.v_from_i is not None:
            h = h + self.v_from_i * states[1]
            currents = (self._saturated(self.i_from_x * x + self.i_from_i * states[1], self.i_shift),)
        h = self._saturated(h, self.shift)
        if self.threshold is None:
            return h, h, *currents
        if late is None:
            s = self._spikes(h)
            return self._given(s), self._after(h, s), *currents
        h = self._after(h, late) if at_end else h
        s = late if self.delay == "spike" else self._spikes(h)
        return self._given(s), np.clip(h, self.low, self.high), *currents

    def _saturated(self, x: Array, shift: int) -> Array:
        return np.clip(shift_round(x, shift), self.low, self.high)

    def _given(self, s: Array) -> Array:
        return s if self.worth is None else s * self.worth

    def _spikes(self, h: Array) -> Array:
        assert self.threshold is not None
        if self.most == 1:
            return (h >= self.threshold if self.inclusive else h > self.threshold).astype(np.int32)
        count = np.maximum(h // self.threshold if self.inclusive else -(-h // self.threshold) - 1, 0)
        return count if self.most is None else np.minimum(count, self.most)

    def _after(self, h: Array, s: Array) -> Array:
        """The potential after the reset."""
        if self.reset == "subtract":
            return h - s * self.threshold
        if self.reset is None:
            return h
        fired = np.minimum(s, 1)
        return h * (1 - fired) + fired * (self.reset_to if self.reset == "value" else 0)


@dataclass(frozen=True, eq=False)
class IntegerSteps(IntegerLayer):
    """A neuron over time, with a product of its output of the step before, if there is one.

    Attributes:
        neuron: one step.
        feedback: the layer that its output comes back through, or None.
        input_shift, feedback_shift: by how much input and feedback are shifted to one unit.
    """

    neuron: IntegerNeuron
    feedback: IntegerProduct | None = None
    input_shift: int = 0
    feedback_shift: int = 0

    def run(self, x: Array) -> Array:
        """(T, B, ...) -> (T, B, ...)."""
        states = self.neuron.states(x[0])
        out, outs = np.zeros(x.shape[1:], np.int32), []
        for now in x:
            given = now.astype(np.int32) << self.input_shift
            if self.feedback is not None:
                given = given + (self.feedback.run(out) << self.feedback_shift)
            out, *rest = self.neuron.step(given, *states)
            states = tuple(rest)
            outs.append(out)
        return np.stack(outs)
