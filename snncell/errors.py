"""Errors of snncell: each derives from SnncellError and from the built-in class that it refines."""

from __future__ import annotations

import pickle
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


QUOTE = 200  # characters of what an error quotes: a name, a value, a path
MESSAGE = 4000  # characters of a whole message
_MORE = f"{{{QUOTE + 1},}}"
# A quotation opens behind no letter and before no space: what stands between two quotations is none.
_LONG = re.compile(
    rf"""(?<![\w)\]])'(?=\S)(?:[^'\\]|\\.){_MORE}'|(?<![\w)\]])"(?=\S)(?:[^"\\]|\\.){_MORE}"|\S{_MORE}""", re.DOTALL
)


def cut(text: str, most: int = QUOTE) -> str:
    """A text of at most about `most` characters: of a longer one the beginning, the end, and its length."""
    if len(text) <= most:
        return text
    return f"{text[: most * 2 // 3]}...({len(text)} characters)...{text[-(most // 6) :]}"


def _shorten(message: str) -> str:
    """A message whose quotations and runs without a space are cut, and then the whole message."""
    return message if len(message) <= QUOTE else cut(_LONG.sub(lambda quotation: cut(quotation[0]), message), MESSAGE)


class SnncellError(Exception):
    """Base of all errors that snncell raises on purpose.

    Its message is bounded, whatever it quotes: of what is quoted, or has no space in it, 200 characters are shown, and
    of the whole 4,000.
    """

    told = False  # whether it says in which call it was, if it came from inside of one

    def __init__(self, *args: object) -> None:
        super().__init__(*(_shorten(arg) if isinstance(arg, str) else arg for arg in args))


class ShapeError(SnncellError, ValueError):
    """Shapes that do not fit each other, or do not fit the operation."""


class DTypeError(SnncellError, TypeError):
    """A dtype that the operation does not take, or a conversion that would lose values."""


class ArgumentError(SnncellError, ValueError):
    """An argument outside the values that make sense (a learning rate of NaN, a label out of range)."""


class ArgumentTypeError(ArgumentError, TypeError):
    """An argument of another type than the callable takes (a str where a number belongs)."""


class ArgumentWarning(SnncellError, UserWarning):  # noqa: N818 (it is a warning)
    """An argument that is right, and may mean something else than it was written for (a share that is kept, given
    where others have the share that is dropped); warned of once for each line, and raised where warnings are errors.
    """


class MissingNameError(SnncellError, AttributeError):
    """A name that a module, a Tensor or a Cell does not have; the message says which of its names was meant.

    That is looked for when the message is read: `hasattr` stays quick.
    """

    def __init__(self, text: str, rest: Callable[[], str] = str) -> None:
        super().__init__(text)
        self.rest = rest

    def __str__(self) -> str:
        return f"{self.args[0]}{self.rest()}"

    def __reduce__(self) -> tuple[object, ...]:
        return MissingNameError, (str(self),)


class MissingImportError(SnncellError, ImportError):
    """An import of a name or module that snncell does not have, with what it is here."""


class PackageError(SnncellError, ImportError):
    """A part of snncell that needs a package which is not installed."""


class TensorIndexError(SnncellError, IndexError):
    """An index that the Tensor, or the data set, does not have, or of a kind that is not supported."""


class GradientError(SnncellError, TypeError, ValueError):
    """A gradient asked for with respect to something that has none."""


class OutsideTensorError(GradientError):
    """A compiled function uses a Tensor from outside of it that a gradient is being taken through."""


class BpropError(SnncellError, TypeError, ValueError):
    """A custom reverse that returned the wrong count, shape, dtype, or key."""


class CallError(SnncellError, TypeError):
    """A Cell called with arguments that its construct does not take, or a neuron made with options it does not have."""


class ConstructError(SnncellError, AttributeError, NotImplementedError):
    """A Cell that is called and has no construct, as a CellList has none."""


class MissingCellError(ArgumentError, KeyError):
    """A name that an nn.CellDict does not have."""

    __str__ = Exception.__str__  # a KeyError's is the repr


class TraceError(SnncellError, TypeError):
    """A traced function that needs a value which exists only when the Program runs."""


class ParameterError(SnncellError, TypeError, ValueError):
    """Parameters with clashing names, or something else where one is expected."""


class AssignError(SnncellError, TypeError, ValueError):
    """A write to a Tensor, or to a Parameter while a gradient is being recorded."""


class DeviceError(SnncellError, RuntimeError):
    """A device that is not there, or an operation that has no rule for it."""


class DeviceMemoryError(DeviceError, MemoryError):
    """A device, or the main memory, has no room for an array, even after freed memory was given back."""


class KernelMemoryError(SnncellError, MemoryError):
    """There is no memory for what a kernel computes with."""


class CheckpointError(SnncellError, ValueError):
    """A checkpoint that is missing, damaged, or does not fit the Cell."""


class FileError(SnncellError, ValueError):
    """A file of events that is missing, damaged, or of no known format; the message says which file, and which byte."""


class NirError(SnncellError, ValueError):
    """A graph of NIR that is damaged or does not fit together, or a network that NIR has no words for."""


class TrainingError(SnncellError, ArithmeticError):
    """A training that cannot go on: its loss, or a Parameter, is no finite number."""


class NotFiniteError(SnncellError, FloatingPointError):
    """NaN or inf, found where it starts while `set_context(check_finite=True)` holds.

    Attributes:
        operation: what gave it.
        step: the time step, in a loop over time.
        entry: the first entry of the result that is not finite, in C order.
        layer: the attribute path of the layer in the outermost Cell that was running; "" if there is none.
        line: the user's line, as text.
        fault: all of it, as `tape/finite.py` keeps it.
    """

    operation: str = ""
    step: int | None = None
    entry: tuple[int, ...] = ()
    layer: str = ""
    line: str = ""
    fault: object = None


class CacheError(SnncellError, PermissionError):
    """A folder for compiled kernels that other users can write: what lies in it would be run."""


class ForkError(SnncellError, RuntimeError):
    """A process forked while another thread was inside of what the child needs; it would wait for ever."""


class WorkerError(SnncellError, RuntimeError):
    """A process that made batches, and ended before they were made."""


class RankError(SnncellError, RuntimeError):
    """A rank of a job on several processes that differs from the others, or has left them."""


class JitPickleError(SnncellError, pickle.PicklingError, TypeError):
    """A jitted function that cannot be pickled, for Python finds the function itself by no name."""


class GradientCheckError(SnncellError, AssertionError):
    """A gradient that disagrees with finite differences or with the tape.

    `difference` is that of the worst entry, where single entries were compared.
    """

    difference = 0.0


class RecordError(ArgumentError, KeyError):
    """A monitor, or a run that callbacks are told of, does not have what is asked of it."""

    __str__ = Exception.__str__  # a KeyError's is the repr


class NameClashError(ArgumentError, KeyError):
    """A name for something of a Cell that it cannot have, or that something else has."""

    __str__ = Exception.__str__  # a KeyError's is the repr


__all__: list[str] = []
__all__.extend(name for name, one in list(globals().items()) if isinstance(one, type) and issubclass(one, SnncellError))
