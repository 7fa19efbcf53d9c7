"""Error classes: each derives from SnncellError and from the built-in class that it refines."""

from __future__ import annotations

import pickle
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


QUOTE = 200  # the most characters of a quoted name, value or path
MESSAGE = 4000  # the most characters of a whole message
_MORE = f"{{{QUOTE + 1},}}"
# An opening quote follows no letter and precedes no space. This excludes the text between two quotations.
_LONG = re.compile(
    rf"""(?<![\w)\]])'(?=\S)(?:[^'\\]|\\.){_MORE}'|(?<![\w)\]])"(?=\S)(?:[^"\\]|\\.){_MORE}"|\S{_MORE}""", re.DOTALL
)


def cut(text: str, most: int = QUOTE) -> str:
    """Shorten a text to about `most` characters: its beginning, its length and its end."""
    if len(text) <= most:
        return text
    return f"{text[: most * 2 // 3]}...({len(text)} characters)...{text[-(most // 6) :]}"


def _shorten(message: str) -> str:
    """Shorten long quotations and long runs without a space, and then the whole message."""
    return message if len(message) <= QUOTE else cut(_LONG.sub(lambda quotation: cut(quotation[0]), message), MESSAGE)


class SnncellError(Exception):
    """Base class of all errors that snncell raises on purpose.

    Messages are bounded: a quotation, or a text without spaces, is cut to 200 characters, and a message to 4,000.
    """

    names_call = False  # whether the message already names the layer or function that the user called

    def __init__(self, *args: object) -> None:
        super().__init__(*(_shorten(arg) if isinstance(arg, str) else arg for arg in args))


class ShapeError(SnncellError, ValueError):
    """Shapes that do not match each other or the operation."""


class DTypeError(SnncellError, TypeError):
    """A dtype that the operation does not support, or a conversion that would lose values."""


class ArgumentError(SnncellError, ValueError):
    """An argument with an invalid value, for example a learning rate of NaN or a label out of range."""


class ArgumentTypeError(ArgumentError, TypeError):
    """An argument of the wrong type, for example a str instead of a number."""


class ArgumentWarning(SnncellError, UserWarning):  # noqa: N818 (it is a warning)
    """A valid argument that may not mean what you intended. Warned once per line; raised where warnings are errors.

    For example, the argument of a dropout layer is the share that it keeps in one framework, and drops in another.
    """


class MissingNameError(SnncellError, AttributeError):
    """A name that a module, a Tensor or a Cell does not have. The message suggests similar names.

    The suggestions are computed when the message is read, so that `hasattr` stays fast.
    """

    def __init__(self, text: str, rest: Callable[[], str] = str) -> None:
        super().__init__(text)
        self.rest = rest

    def __str__(self) -> str:
        return f"{self.args[0]}{self.rest()}"

    def __reduce__(self) -> tuple[object, ...]:
        return MissingNameError, (str(self),)


class MissingImportError(SnncellError, ImportError):
    """An import of a name or module that snncell does not have. The message gives its name in snncell."""


class PackageError(SnncellError, ImportError):
    """A missing optional package."""


class TensorIndexError(SnncellError, IndexError):
    """An index that is out of range, or of a kind that is not supported, for a Tensor or a data set."""


class GradientError(SnncellError, TypeError, ValueError):
    """A gradient with respect to a value that has none."""


class OutsideTensorError(GradientError):
    """A compiled function that uses a Tensor from outside while you take a gradient with respect to that Tensor."""


class BpropError(SnncellError, TypeError, ValueError):
    """A custom gradient (`bprop`) that returned the wrong count, shape, dtype or key."""


class CallError(SnncellError, TypeError):
    """A Cell called with arguments that its construct does not take, or a neuron created with unknown options."""


class ConstructError(SnncellError, AttributeError, NotImplementedError):
    """A call of a Cell without a construct, such as a CellList."""


class MissingCellError(ArgumentError, KeyError):
    """A name that an nn.CellDict does not contain."""

    __str__ = Exception.__str__  # a KeyError's is the repr


class TraceError(SnncellError, TypeError):
    """A traced function that needs a value at trace time, although values exist only when the Program runs."""


class ParameterError(SnncellError, TypeError, ValueError):
    """Parameters with clashing names, or another object instead of a Parameter."""


class AssignError(SnncellError, TypeError, ValueError):
    """An invalid write: to a Tensor, or to a Parameter while a gradient is being recorded."""


class DeviceError(SnncellError, RuntimeError):
    """A missing device, or an operation that is not implemented on it."""


class DeviceMemoryError(DeviceError, MemoryError):
    """Out of memory: the GPU or the main memory has no room for an array, even after freed memory was returned."""


class KernelMemoryError(SnncellError, MemoryError):
    """Out of memory for the buffers of a kernel."""


class CheckpointError(SnncellError, ValueError):
    """A checkpoint that is missing, is damaged, or does not fit the Cell."""


class FileError(SnncellError, ValueError):
    """An event file that is missing, damaged, or of an unknown format. The message names the file and the byte."""


class NirError(SnncellError, ValueError):
    """An invalid NIR graph, or a network that NIR cannot represent."""


class TrainingError(SnncellError, ArithmeticError):
    """Training that cannot continue, because its loss or a Parameter is NaN or infinite."""


class NotFiniteError(SnncellError, FloatingPointError):
    """A NaN or inf, reported by the operation that first produced it, with `set_context(check_finite=True)`.

    Attributes:
        operation: the operation that produced it.
        step: the time step, in a loop over time.
        entry: the index of the first such element of the result, in C order.
        layer: the attribute path of the layer in the outermost Cell that was running, or "".
        line: the user's line, as text.
        fault: the full record, as `tape/finite.py` keeps it.
    """

    operation: str = ""
    step: int | None = None
    entry: tuple[int, ...] = ()
    layer: str = ""
    line: str = ""
    fault: object = None


class CacheError(SnncellError, PermissionError):
    """A kernel cache folder that other users can write, which is unsafe because its files are executed."""


class ForkError(SnncellError, RuntimeError):
    """A process that was forked while another thread held a lock. The child would wait for this lock for ever."""


class WorkerError(SnncellError, RuntimeError):
    """A worker process that ended before it finished its batches."""


class RankError(SnncellError, RuntimeError):
    """A rank of a distributed job that differs from the others or has left the job."""


class JitPickleError(SnncellError, pickle.PicklingError, TypeError):
    """A jitted function that cannot be pickled, because Python cannot find the function by its name."""


class GradientCheckError(SnncellError, AssertionError):
    """A gradient that disagrees with finite differences or with the tape.

    `difference` is the difference of the worst entry, if the check compared single entries.
    """

    difference = 0.0


class RecordError(ArgumentError, KeyError):
    """A request for data that a monitor did not record, or that a training run does not have."""

    __str__ = Exception.__str__  # a KeyError's is the repr


class NameClashError(ArgumentError, KeyError):
    """An invalid name for an attribute of a Cell, or one that is already in use."""

    __str__ = Exception.__str__  # a KeyError's is the repr


__all__: list[str] = []
__all__.extend(name for name, one in list(globals().items()) if isinstance(one, type) and issubclass(one, SnncellError))
