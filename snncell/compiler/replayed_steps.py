"""The steps of a loop over time as `nan_replay` runs them again, and the names of states and sequences in errors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from snncell.tape.parameter import Parameter
from snncell.tape.source_location import SourceLine
from snncell.tape.tensor import Tensor


class ReplayedSteps(NamedTuple):
    """The steps of a loop over time.

    Attributes:
        f: one step, `(states, slices) -> (states, results)`.
        written: the Parameters that a step writes: they are further states.
        backwards: whether the steps run from the last to the first.
        who: the loop's name in errors.
        names: of the states, as far as they have any.
        smooth: whether spikes were smooth.
        place: the place in the user's code where the loop was called.
    """

    f: Callable[[list[Tensor], list[Tensor]], tuple[list[Tensor], list[Tensor]]]
    written: list[Parameter]
    backwards: bool
    who: str
    names: Sequence[str]
    smooth: bool
    place: SourceLine

    def turns(self, count: int) -> list[int]:
        """The numbers of the time steps, in the order in which they run."""
        return list(range(count))[:: -1 if self.backwards else 1]

    def state(self, number: int) -> str:
        """The name of a state."""
        if number < len(self.names):
            return f"state {self.names[number]}"
        return f"state {number}"

    def sequence(self, number: int, count: int) -> str:
        """The name of one of `count` sequences."""
        return "its input" if count == 1 else f"its input {number}"

    def result(self, number: int, states: int) -> str:
        """The name of a result, the first of which are the states."""
        own = states - len(self.written)
        if number >= states:
            return "its output"
        return self.state(number) if number < own else f"Parameter {self.written[number - own].name!r}"

    def input(self, number: int, states: int, sequences: int, captured: Sequence[Tensor] = ()) -> str:
        """The name of an input: a state, a sequence, or what was captured."""
        if number < states:
            return self.result(number, states)
        if number < states + sequences:
            return self.sequence(number - states, sequences)
        fixed = captured[number - states - sequences]
        return f"Parameter {fixed.name!r}" if isinstance(fixed, Parameter) else "what is the same at every step"


def join_names(names: Sequence[str]) -> str:
    """Names in a sentence, each once."""
    names = list(dict.fromkeys(names))
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
