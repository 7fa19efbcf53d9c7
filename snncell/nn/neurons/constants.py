"""Constants of neurons: numbers, or Tensors and Parameters that broadcast; and the Cell that holds them by name."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any, Self

from snncell import ops
from snncell.cell.cell import Cell
from snncell.cell.fields import shown_fields
from snncell.cell.held import Ranged, meeting, precision_of
from snncell.cell.ranges import Derived
from snncell.dtype import bfloat16, float16, float32
from snncell.errors import ArgumentError, ShapeError
from snncell.nn.neurons.elsewhere import make_like
from snncell.tape.parameter import Parameter
from snncell.tape.tensor import Tensor


def from_rest(v: Any, rest: Any) -> Any:
    """v - rest, and no operation where rest is the number 0, which a compiled loop would subtract."""
    return v if not isinstance(rest, Tensor) and rest == 0.0 else v - rest


def add_rest(v: Any, rest: Any) -> Any:
    """v + rest, and no operation where rest is the number 0."""
    return v if not isinstance(rest, Tensor) and rest == 0.0 else v + rest


class Membrane(Ranged, Cell):
    """A Cell of one step, `construct(x, *states) -> (output, *states)`, with named constants.

    Each constant is a number, which compiled kernels take as an argument, or a Tensor or Parameter that broadcasts to
    the neurons: one value for a layer, or one for each neuron. Those named in `learnable` become Parameters. A call
    uses them in the precision of its input, float32 or float64.

    The range of a field says what a constant must be (`nn.with_fields`); a class without fields says it by name,
    `ranges = {"rho": nn.Range(0.0, 1.0, "both")}`. The others are any finite numbers. A constant is checked when it is
    made and when it is set, `neuron.rho = 1.2`. A learned one stays in its range by projected gradients: whatever is
    written to the Parameter is replaced by the nearest value in the range, no nearer to an open end than a thousandth
    of the first distance. `constants_and_ranges` lists all.

    Args:
        constants: by name.
        learnable: the names of those to be learned, a str or several. Of numbers, lists and arrays they are float32; a
            Tensor of float64 keeps its precision.

    Raises:
        ArgumentError: for a constant that is no number, Tensor or Parameter, or out of its range, or a name that is no
            constant.
    """

    def __init__(self, constants: dict[str, Any], learnable: str | Sequence[str] = ()) -> None:
        super().__init__()
        who = type(self).__name__
        learned = (learnable,) if isinstance(learnable, str) else tuple(learnable)
        if unknown := [name for name in learned if name not in constants]:
            raise ArgumentError(f"{who}: no constant {unknown[0]!r} to learn; there are {', '.join(constants)}.")
        self.declare(*constants)
        for name, value in constants.items():
            setattr(self, name, self.to_learn(name, value) if name in learned else value)

    def having(self, **constants: Any) -> Self:
        """The Cell itself with further constants, as presets have them; None stands for none."""
        for name, value in constants.items():
            if value is not None:
                self.declare(name)
                setattr(self, name, value)
        return self

    def to_learn(self, name: str, value: Any) -> Any:
        """A constant as a Parameter, if it is not learned already."""
        if isinstance(value, (Parameter, Derived)):
            return value
        is_float = isinstance(value, Tensor) and value.dtype.is_float
        return Parameter(Tensor(self.checked(name, value), None if is_float else float32), name=name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        shapes = [shape for arg in args if isinstance(shape := getattr(arg, "shape", None), tuple)]
        if len(shapes) == len(args) > 1 and any(shape != shapes[0] for shape in shapes[1:]):
            self._refuse_shapes(shapes[0], shapes[1:])
        with meeting(precision_of(args)):
            return self._in_half(args, super().__call__(*args, **kwargs))

    def _in_half(self, args: tuple[Any, ...], results: Any) -> Any:
        """Bring results of inputs in half precision back to it, where constants of float32 have made them wider."""
        dtypes = {arg.dtype for arg in args if isinstance(arg, Tensor)}
        if len(dtypes) != 1 or not dtypes <= {float16, bfloat16}:
            return results
        (dtype,) = dtypes
        return tuple([r.astype(dtype) for r in results]) if isinstance(results, tuple) else results.astype(dtype)

    def _refuse_shapes(self, x: tuple[int, ...], states: list[tuple[int, ...]]) -> None:
        """Raise unless each state broadcasts to the input, naming the first that does not."""
        names = list(inspect.signature(self.construct).parameters)[1:]
        for name, shape in zip(names, states, strict=False):
            if len(shape) > len(x) or any(n not in (1, m) for n, m in zip(shape[::-1], x[::-1], strict=False)):
                raise ShapeError(
                    f"{type(self).__name__}: the state {name} has shape {shape}, but the input {x}: there is a state "
                    f"for each element of the input. Another batch begins with states of its own, init_state(x)."
                )

    def on_grid(self, name: str, value: Any) -> Any:
        """A state of that name, rounded where `snncell.quantise` has states on a grid."""
        return value if self.quantisers is None else self.quantisers.state(name, value)

    def gained(self, x: Any) -> Any:
        """The input times its gain, and no operation where that is the number 1."""
        return x if not isinstance(self.input_gain, Tensor) and self.input_gain == 1.0 else x * self.input_gain

    def filled(self, x: Tensor, value: Any) -> Tensor:
        """A state for the input `x` with one value, or one for each neuron."""
        dtype = x.dtype if x.dtype.is_float else float32
        if isinstance(value, Tensor):
            return ops.zeros(x.shape, dtype) + value.astype(dtype)
        return ops.full(x.shape, value, dtype)

    @classmethod
    def like(cls, framework: str, **settings: Any) -> Membrane:
        """A neuron that does what this one does in another framework: its spikes, states and gradients.

        Args:
            framework: "SpikingJelly", "snnTorch", "Norse", "sinabs", "Spyx" or "NIR", in small letters or capitals, as
                far as it has the neuron.
            settings: that framework's own parameters, by its names; those left out have its defaults, the surrogate
                included. Surrogates are objects of `snncell.surrogate`. A Parameter is learned, through the conversion
                to this library's constants where there is one, unless its requires_grad is False; a learn_beta=False
                beside one that is learned is an error.

        Returns:
            a neuron of whatever class fits. `nn/neurons/presets` has the settings, and says what the states are.
            It has the defects of the framework's code only with as_shipped=True: in snnTorch, Leaky and Synaptic with
            reset_delay=False and "subtract" swallow a spike where the rest is above the threshold, and Alpha's
            "subtract" lowers nothing by the threshold; in sinabs, MembraneReset raises every potential by its value,
            and ALIF's current takes the gain of the membrane, at every step.

        Raises:
            ArgumentError: for an unknown framework, a parameter that it does not have, one that has no counterpart
                here, saying what to use, or a Parameter that cannot be learned there.

        Example:
            >>> node = nn.LIFNode.like("snntorch", beta=0.5, threshold=0.8)
            >>> spikes = nn.MultiStep(node)(Tensor([[0.6], [0.6], [0.6], [0.0]]))
            >>> print(spikes[:, 0])
            [0. 1. 0. 0.]
        """
        node: Membrane = make_like(cls.__name__, framework, settings)
        return node

    def extend_repr(self) -> str:
        values = {name: self.__dict__[name] for name in self._constants}
        shown = {n: f"Parameter{v.shape}" if isinstance(v, Parameter) else str(v) for n, v in values.items()}
        return ", ".join(f"{name}={text}" for name, text in (shown | shown_fields(self) | shown).items())

    _constants: tuple[str, ...]
    input_gain: Any
