"""Parameter: a named Tensor whose value can be replaced, for example by an optimiser."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import numpy as np

from snncell import dtype as dtypes
from snncell.base.arguments.shown import show
from snncell.base.signals import Write, hold_attributes, undoing, write
from snncell.errors import ArgumentError, AssignError, DTypeError, ParameterError, ShapeError, TensorIndexError
from snncell.kernels.space import HOST, Space, move_to_space, space_by_name, space_of
from snncell.tape.state import RECORDING, TRACING, Entry, Undo
from snncell.tape.tensor import Tensor, on_device_of, snapshot, to_array, wrap

next_number = itertools.count(1).__next__  # numbers for Parameters without a name


class Owner(NamedTuple):
    """An attribute of a Cell that holds a Parameter or a Cell."""

    cell: weakref.ref[Any]
    label: str  # the name in error messages, such as "Dense.weight"
    key: str  # the attribute's name; an item of a list has ".position" after it, such as "layers.0"


class Home:
    """The attributes that hold a Parameter or a Cell, oldest first, and the attribute that names it."""

    __slots__ = ("holders", "owner")

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget all holders."""
        self.holders: list[Owner] = []
        self.owner: Owner | None = None


def refuse_equal_names(parameters: Iterable[Parameter], what: str) -> None:
    """Raise a ParameterError if two Parameters of the same Cell, or two without a Cell, share a name."""
    seen: dict[Any, tuple[int, Parameter]] = {}
    for position, parameter in enumerate(parameters):
        cell = None if parameter.owner is None else id(parameter.owner.cell())
        first, other = seen.setdefault((cell, parameter.name), (position, parameter))
        if other is not parameter:
            homes = [p.owner.label if p.owner else f"element {i}" for i, p in ((first, other), (position, parameter))]
            raise ParameterError(
                f"{what}: {homes[0]} and {homes[1]} are different Parameters with the same name, {parameter.name!r}. "
                f"Give them different names, or none."
            )


def refuse_same_names(parameters: Iterable[tuple[str, Parameter]], what: str) -> None:
    """Raise a ParameterError if two of these Parameters share a name; `parameters` are pairs (path, Parameter)."""
    seen: dict[str, str] = {}
    for path, parameter in parameters:
        if (other := seen.setdefault(parameter.name, path)) != path:
            raise ParameterError(
                f"{what}: {other} and {path} are different Parameters with the same name, {parameter.name!r}. Rename "
                f"one: parameter.name = ..., or all by their paths: cell.update_parameters_name()."
            )


_KEPT = ("layerwise_parallel", "parallel_optimizer", "storage_format")  # attributes that a clone copies


class Parameter(Tensor):
    """A Tensor that belongs to a Cell and that an optimiser updates.

    Write to it by `p[0] = 1.`, `set_data` or `ops.assign`. This replaces its array, so earlier results never change.

    Args:
        default_input: the initial value, as for `Tensor`, but not a bool; an int becomes an int32.
        name: its name; by default the name of the first attribute that holds it. If its Cell becomes part of another
            Cell, the name becomes the path, such as `fc1.weight`.
        requires_grad: whether you can take gradients with respect to it.
        layerwise_parallel, parallel_optimizer, storage_format: attributes of MindSpore without effect here. So are
            `sliced`, `unique` and `key`. `inited_param` is None, and `param_info` is the Parameter itself.
        device: "CPU" or "GPU"; by default the device of `set_context`.
    """

    __slots__ = ("__dict__", "_name", "born_in", "home")
    _name: str | None
    sliced = unique = False
    key = -1
    inited_param = None
    _number = 0  # the number in "Parameter#1", assigned when the name is first read
    _source: Entry | None = None  # its tape entry, kept while it is frozen
    follows = False  # whether its value moves to the device of each Program that reads it; True for the random state

    def __init__(
        self,
        default_input: Any,
        name: str | None = None,
        requires_grad: bool = True,
        layerwise_parallel: bool = False,
        parallel_optimizer: bool = True,
        storage_format: str = "",
        device: str | None = None,
    ) -> None:
        if isinstance(default_input, bool):
            raise ParameterError(
                f"Parameter: default_input is a number or an array, not {default_input}. Write Tensor({default_input}) "
                "for a Parameter of booleans, and requires_grad=... for whether it is trained."
            )
        traced = isinstance(default_input, Tensor) and default_input.device == "cpu"
        if traced and TRACING.trace is not None and not isinstance(default_input._data, np.ndarray):
            raise TRACING.trace.made_inside("A Parameter, or a layer with one,")
        # As in MindSpore, a Python int becomes int32.
        narrow = type(default_input) is int and -(2**31) <= default_input < 2**31
        super().__init__(default_input, dtypes.int32 if narrow else None, device=device)
        self.layerwise_parallel, self.parallel_optimizer = layerwise_parallel, parallel_optimizer
        self.storage_format = storage_format
        self.hooks: Any = {}  # hooks on its gradient, kept while it is frozen
        self.born_in = TRACING.trace
        self.name = name
        self.home = Home()
        # Functions (parameter, value) -> value that project a written value into a valid range.
        self.limits: tuple[Callable[[Parameter, Tensor], Tensor], ...] = ()
        self.requires_grad = requires_grad

    @property
    def name(self) -> str:
        """Its path in the network, or the given name, or "Parameter#1" without a name."""
        if self._name is None:
            self._number = self._number or next_number()
            return f"Parameter#{self._number}"
        return self._name

    @name.setter
    def name(self, name: str | None) -> None:
        if name is not None and (not isinstance(name, str) or not name.strip()):
            raise ParameterError(f"Parameter: name is a str that is not empty, or None, not {name!r}.")
        self._name = None if name is None else name.strip()

    @property
    def owner(self) -> Owner | None:
        """The attribute that names it, or None."""
        return self.home.owner

    @property
    def anonymous(self) -> bool:
        """True if it has no name; "Parameter#1" does not count."""
        return self._name is None

    @property
    def requires_grad(self) -> bool:
        """True if you can take gradients with respect to this Parameter."""
        return self._entry is not None

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        if not isinstance(value, (bool, np.bool_)):
            raise ParameterError(f"Parameter {self.name!r}: requires_grad is True or False, not {show(value)}.")
        if not value:
            self._entry = None
        elif self._entry is None:
            # Reuse the old entry, because running gradients and compiled functions identify the Parameter by it.
            if self._source is None or self._source.specs != ((self.shape, self._data.dtype),):
                self._source = Entry.source(self._data)
                self._source.hooks = self.hooks
            self._entry = self._source

    def _hooks_on(self) -> Any:
        return self.hooks

    def value(self) -> Tensor:
        """The present value, as a Tensor that later writes do not change and that gradients flow through."""
        return snapshot(self)

    data = property(value)

    def set_data(self, data: Any, slice_shape: bool = False) -> Parameter:
        """Replace the value by a copy of `data`, which must have the same shape.

        Args:
            data: as for `Tensor`.
            slice_shape: must be False; MindSpore's argument for distributed Parameters.
        Raises: ShapeError if the shape differs; DTypeError if the conversion would lose values (float64 into float32,
            float into int); AssignError while a gradient with respect to this Parameter is being recorded.
        """
        if slice_shape:
            raise ArgumentError("set_data: slice_shape=True is for parts of a Parameter, which snncell does not have.")
        value = data if isinstance(data, Tensor) else Tensor(data, None if hasattr(data, "dtype") else self.dtype)
        self.assign(value, "set_data")
        return self

    def assign_value(self, value: Any) -> Parameter:
        """An alias of `set_data`."""
        return self.set_data(value)

    def init_data(self, layout: Any = None, set_sliced: bool = False) -> Parameter:
        """Return the Parameter, which always has values here; MindSpore's arguments have no effect."""
        return self

    @property
    def param_info(self) -> Parameter:
        """The Parameter itself, which has MindSpore's attributes of parameter info."""
        return self

    def value_in(self, space: Space) -> Any:
        """The array that a Program in `space` reads as its value."""
        return move_to_space(self._data, space) if self.follows else self._data

    def write_of(self, array: Any) -> Write:
        """A write for `commit` that replaces the value by an array."""
        return self, "_data", array

    def put(self, array: Any) -> Write:
        """A write for `commit` that replaces the value by a result of a Program, moved to the old value's device."""
        source, target = space_of(array), space_of(self._data)
        # A single element, such as an optimiser's counter, may be on any device, because `Plan` moves it.
        moves = target is not source and array.size > 1 and not self.follows
        return self.write_of(move_to_space(array, target) if moves else source.without_base(array))

    def move(self, device: str) -> None:
        """Move the value to "cpu" or "gpu"."""
        commit([self.moving(device)])

    def moving(self, device: str) -> Write:
        """A write for `commit` that moves the value to "cpu" or "gpu"."""
        self._refuse_write_in_gradient("to")
        return self.write_of(move_to_space(self._data, space_by_name(device, "Parameter.move")))

    def assign(self, value: Tensor, what: str = "assign") -> None:
        """Replace the value now. During a trace, nothing is replaced; each run of the Program replaces it."""
        assign_all([(self, value)], what)

    def refuse(self, value: Tensor, what: str) -> None:
        """Raise if `value` cannot become the Parameter's value."""
        if value.shape != self.shape:
            raise ShapeError(
                f"{what}: Parameter {self.name!r} has shape {self.shape}, the new value {value.shape}. "
                f"Reshape the value, or make a new Parameter."
            )
        if not fits(value.dtype, self.dtype):
            raise DTypeError(
                f"{what}: {value.dtype} values do not fit Parameter {self.name!r} of dtype {self.dtype} without loss. "
                f"Convert them first: value.astype({self.dtype.name!r})."
            )
        self._refuse_write_in_gradient(what)

    def _project(self, value: Tensor) -> Tensor:
        """Cast a new value, and project it by `limits`."""
        if self.limits:
            value = value.astype(self.dtype)
            for limit in self.limits:
                value = limit(self, value)
        return value

    def _refuse_write_in_gradient(self, what: str) -> None:
        if (RECORDING.tape is not None or RECORDING.paused) and self.requires_grad:
            raise AssignError(
                f"{what}: Parameter {self.name!r} is written while a gradient is being recorded. Write to it after the "
                f"gradient is computed, or create it with requires_grad=False if it is a statistic."
            )

    def __setitem__(self, index: Any, value: Any) -> None:
        self._refuse_write_in_gradient("p[...] = value")
        if TRACING.trace is not None:
            raise TRACING.trace.needs_value("p[...] = value on a Parameter")
        array = to_array(value)
        weak = not hasattr(value, "dtype")  # Python numbers adopt the Parameter's dtype, but floats never become ints
        kind = dtypes.as_dtype(array.dtype)
        if kind.category > self.dtype.category or not (weak or fits(kind, self.dtype)):
            raise DTypeError(
                f"p[...] = value: {kind} values do not fit Parameter {self.name!r} of dtype {self.dtype} without loss. "
                f"Convert them first: value.astype({self.dtype.name!r})."
            )
        try:
            new = self._data.copy()
            new[_as_arrays(index)] = array
        except IndexError as error:
            raise TensorIndexError(f"Parameter {self.name!r} of shape {self.shape}: {error}.") from None
        except ValueError as error:
            raise ShapeError(f"Parameter {self.name!r} of shape {self.shape}, p[{index!r}] = value: {error}.") from None
        commit([self.write_of(self._project(wrap(new))._data if self.limits else new)])

    def clone(self, init: Any = "same") -> Parameter:
        """A new Parameter with the same name and settings.

        Args: init: "same" to copy the value, or as for `initializer`: a name, an Initializer, a number, or a Tensor.
        Example:
            >>> Parameter([1.0, 2.0], name="w").clone("zeros").tolist()
            [0.0, 0.0]
        """
        with on_device_of(self):
            same = isinstance(init, str) and init == "same"
            value = self._data if same else Parameter._initial_values(init, self.shape, self.dtype)
            copied = type(self)(value, self.name, self.requires_grad)
        copied.__dict__.update({name: getattr(self, name) for name in _KEPT})
        return copied

    copy = clone

    def __repr__(self) -> str:
        shape, dtype = self.shape, self.dtype
        return f"Parameter (name={self.name}, shape={shape}, dtype={dtype!r}, requires_grad={self.requires_grad})"

    __str__ = __repr__

    def _facts(self) -> dict[str, str]:
        return {"name": str(self.name), **super()._facts()} | ({} if self.requires_grad else {"without": "gradient"})

    def __reduce__(self) -> tuple[Any, ...]:
        return Parameter, (move_to_space(self._data, HOST), self._name, self.requires_grad)

    def __deepcopy__(self, memo: Any) -> Parameter:
        with on_device_of(self):
            return Parameter(self._data, self._name, self.requires_grad)


class ParameterTuple(tuple[Parameter, ...]):
    """A tuple of Parameters. Raises: ParameterError if an element is not a Parameter, or if two have the same name."""

    def __new__(cls, parameters: Iterable[Parameter] = ()) -> ParameterTuple:
        if not isinstance(parameters, Iterable) or isinstance(parameters, (str, bytes, dict, Tensor)):
            raise ParameterError(f"ParameterTuple: parameters are Parameters, in a list, not {show(parameters)}.")
        members = tuple(parameters)
        for number, parameter in enumerate(members):
            if not isinstance(parameter, Parameter):
                raise ParameterError(f"ParameterTuple: element {number} of parameters is a {type(parameter).__name__}.")
        refuse_equal_names(members, "ParameterTuple")
        return super().__new__(cls, members)

    def clone(self, prefix: str, init: Any = "same") -> ParameterTuple:
        """Copies of all Parameters, named `prefix.name`; `init` is as in `Parameter.clone`."""
        if not isinstance(prefix, str) or not prefix:
            raise ParameterError(f"ParameterTuple.clone: prefix is a str that is not empty, not {show(prefix)}.")
        copies = [parameter.clone(init) for parameter in self]
        for copied in copies:
            copied.name = f"{prefix}.{copied.name}"
        return ParameterTuple(copies)


def _as_arrays(index: Any) -> Any:
    """Convert Tensors in an index to NumPy arrays. They are masks or positions."""
    if isinstance(index, tuple):
        return tuple(_as_arrays(part) for part in index)
    return index.asnumpy() if isinstance(index, Tensor) else index


def commit(writes: Sequence[Write]) -> None:
    """Write several Parameters atomically: an interruption comes before or after all of them."""
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in writes]
    if RECORDING.undo is not None:
        # An interruption between `note` and `write` is harmless, because `undo` then writes values that did not change.
        RECORDING.undo.note(before)
    write(writes)


def assign_all(pairs: Sequence[tuple[Parameter, Tensor]], what: str = "assign", in_range: bool = False) -> None:
    """Assign to several Parameters. If one of the values does not fit, none is assigned. Errors name `what`, the
    caller. Each value is projected into the range of its Parameter, unless all are `in_range`. The limit of a range can
    be another Parameter. For example, v_threshold must stay above v_reset. If `pairs` contain both, the new v_reset is
    the limit.
    """
    for parameter, value in pairs:
        parameter.refuse(value, what)
    limited = [] if in_range else [parameter for parameter, _ in pairs if parameter.limits]
    if not limited:
        _write(pairs, what)
    elif len(pairs) == 1:
        _write([(parameter, parameter._project(value)) for parameter, value in pairs], what)
    else:
        undo = Undo()
        with together(undo):
            _write(pairs, what)
            for parameter in limited:
                _write([(parameter, parameter._project(parameter.value()))], what)
            undo.clear()


def _write(pairs: Sequence[tuple[Parameter, Tensor]], what: str) -> None:
    if TRACING.trace is not None:
        for parameter, value in pairs:
            TRACING.trace.write(parameter, value)
    else:
        commit([p.write_of(value._copied(p.dtype, p.device, what)) for p, value in pairs])


def together(undo: Undo) -> AbstractContextManager[Any]:
    """Context manager: write Parameters as a transaction. The last line of the block must be `undo.clear()`. If an
    error or an interruption comes before it, all Parameters get their old values back.
    """
    undo.outer = RECORDING.undo
    return hold_attributes(vars(RECORDING), {"undo": undo}, {"undo": undo.outer}, undoing(undo))


def fits(source: dtypes.DType, target: dtypes.DType) -> bool:
    """True if a value of dtype `source` may become one of dtype `target`. The categories are, in this order, bool,
    integer, float and complex. The target's category must be later than that of the source. If it is the same, the
    target must have all values of the source.
    """
    if source.category == target.category:
        return bool(np.can_cast(source.dtype, target.dtype))
    return source.category < target.category
