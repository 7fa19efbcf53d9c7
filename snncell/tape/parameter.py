"""Parameter: a Tensor with a name whose value is replaced as training goes on."""

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
from snncell.tape.tensor import Tensor, beside, snapshot, to_array, wrap

# --- names ------------------------------------------------------------------------------------------------------------

next_number = itertools.count(1).__next__  # of the next Parameter that has no name when it is asked for


class Owner(NamedTuple):
    """An attribute of a Cell that holds a Parameter or a Cell."""

    cell: weakref.ref[Any]
    label: str  # for errors: Dense.weight
    key: str  # the attribute; of an item of a list, with its position after a dot


class Home:
    """The attributes that hold a Parameter or a Cell, in their order in time, and the one that names it."""

    __slots__ = ("holders", "owner")

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget all holders."""
        self.holders: list[Owner] = []
        self.owner: Owner | None = None


def refuse_equal_names(parameters: Iterable[Parameter], what: str) -> None:
    """Raise a ParameterError if two Parameters of one Cell, or two outside of Cells, have one name."""
    seen: dict[Any, tuple[int, Parameter]] = {}
    for position, parameter in enumerate(parameters):
        cell = None if parameter.owner is None else id(parameter.owner.cell())
        first, other = seen.setdefault((cell, parameter.name), (position, parameter))
        if other is not parameter:
            homes = [p.owner.label if p.owner else f"element {i}" for i, p in ((first, other), (position, parameter))]
            raise ParameterError(
                f"{what}: {homes[0]} and {homes[1]} are different Parameters with one name, {parameter.name!r}. "
                f"Give each a name of its own, or none."
            )


def refuse_same_names(parameters: Iterable[tuple[str, Parameter]], what: str) -> None:
    """Raise a ParameterError if two Parameters, given with their paths, have one name."""
    seen: dict[str, str] = {}
    for path, parameter in parameters:
        if (other := seen.setdefault(parameter.name, path)) != path:
            raise ParameterError(
                f"{what}: {other} and {path} are different Parameters with one name, {parameter.name!r}. Rename one: "
                f"parameter.name = ..., or all by their paths: cell.update_parameters_name()."
            )


_KEPT = ("layerwise_parallel", "parallel_optimizer", "storage_format")  # by a clone


class Parameter(Tensor):
    """A Tensor that a Cell owns and an optimiser updates.

    A write (`p[0] = 1.`, `set_data`, `ops.assign`) replaces its array, so it never changes earlier results.

    Args:
        default_input: the initial value, as for `Tensor`, but no bool; an int gives an int32.
        name: its name; by default that of the first attribute that it becomes. If its Cell becomes part of another
            one, the name becomes the path, `fc1.weight`.
        requires_grad: whether gradients may be taken with respect to it.
        layerwise_parallel, parallel_optimizer, storage_format: MindSpore's, attributes without effect, like `sliced`,
            `unique` and `key`; `inited_param` is None and `param_info` the Parameter itself.
        device: "CPU" or "GPU"; by default that of `set_context`.
    """

    __slots__ = ("__dict__", "_name", "born_in", "home")
    _name: str | None
    sliced = unique = False
    key = -1
    inited_param = None
    _number = 0  # of one without a name, once it has been asked for
    _source: Entry | None = None  # its entry on the tape, kept while it is frozen
    follows = False  # whether its value moves to where Programs that read it run, as the state of random numbers does

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
        # A number is an int32, as in MindSpore, if it is one.
        narrow = type(default_input) is int and -(2**31) <= default_input < 2**31
        super().__init__(default_input, dtypes.int32 if narrow else None, device=device)
        self.layerwise_parallel, self.parallel_optimizer = layerwise_parallel, parallel_optimizer
        self.storage_format = storage_format
        self.hooks: Any = {}  # on its gradient; they stay while it is frozen
        self.born_in = TRACING.trace
        self.name = name
        self.home = Home()
        # What brings a value that is written into a range: functions (parameter, value) -> value.
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
        """The attribute of a Cell that names it, if there is one."""
        return self.home.owner

    @property
    def anonymous(self) -> bool:
        """True without a name; `Parameter#1` is none."""
        return self._name is None

    @property
    def requires_grad(self) -> bool:
        """True if gradients may be taken with respect to this Parameter."""
        return self._entry is not None

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        if not isinstance(value, (bool, np.bool_)):
            raise ParameterError(f"Parameter {self.name!r}: requires_grad is True or False, not {show(value)}.")
        if not value:
            self._entry = None
        elif self._entry is None:
            # The same entry as before: gradients under way and compiled functions know the Parameter by it.
            if self._source is None or self._source.specs != ((self.shape, self._data.dtype),):
                self._source = Entry.source(self._data)
                self._source.hooks = self.hooks
            self._entry = self._source

    def _hooks_on(self) -> Any:
        return self.hooks

    def value(self) -> Tensor:
        """The present value, as a Tensor that later writes leave alone and that gradients flow through."""
        value: Tensor = snapshot(self)
        return value

    data = property(value)

    def set_data(self, data: Any, slice_shape: bool = False) -> Parameter:
        """Replace the value by a copy of `data`, of the same shape.

        Args:
            data: as for `Tensor`.
            slice_shape: MindSpore's; only False.

        Raises:
            ShapeError: if the shape differs.
            DTypeError: if the conversion would lose values (float64 into float32, float into int).
            AssignError: while a gradient with respect to this Parameter is being recorded.
        """
        if slice_shape:
            raise ArgumentError("set_data: slice_shape=True is for parts of a Parameter, of which there are none here.")
        value = data if isinstance(data, Tensor) else Tensor(data, None if hasattr(data, "dtype") else self.dtype)
        self.assign(value, "set_data")
        return self

    def assign_value(self, value: Any) -> Parameter:
        """The same as `set_data`."""
        return self.set_data(value)

    def init_data(self, layout: Any = None, set_sliced: bool = False) -> Parameter:
        """The Parameter itself, which has its values already; the arguments are MindSpore's, without effect."""
        return self

    @property
    def param_info(self) -> Parameter:
        """The Parameter itself, whose attributes are its name and settings."""
        return self

    def value_in(self, space: Space) -> Any:
        """The array that a Program in `space` reads as its value."""
        return move_to_space(self._data, space) if self.follows else self._data

    def write_of(self, array: Any) -> Write:
        """The write that makes an array the value, for `commit`."""
        return self, "_data", array

    def put(self, array: Any) -> Write:
        """The write of an array that a Program has computed, moved to where the value was."""
        source, target = space_of(array), space_of(self._data)
        # A single element (an optimiser's counter) may be anywhere, for Programs move those (`Plan`).
        moves = target is not source and array.size > 1 and not self.follows
        return self.write_of(move_to_space(array, target) if moves else source.of_its_own(array))

    def move(self, device: str) -> None:
        """Put the value on "cpu" or "gpu"."""
        commit([self.moving(device)])

    def moving(self, device: str) -> Write:
        """The write that puts the value on "cpu" or "gpu"."""
        self._refuse_write_in_gradient("to")
        return self.write_of(move_to_space(self._data, space_by_name(device, "Parameter.move")))

    def assign(self, value: Tensor, what: str = "assign") -> None:
        """Make `value` the Parameter's value: now, or inside a trace when the Program runs."""
        assign_all([(self, value)], what)

    def refuse(self, value: Tensor, what: str) -> None:
        """Raise if `value` cannot be the Parameter's value."""
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

    def _limited(self, value: Tensor) -> Tensor:
        """The value to write, brought into the range of what the Parameter is."""
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
        weak = not hasattr(value, "dtype")  # Python numbers take the Parameter's precision, but floats are no integers
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
        commit([self.write_of(self._limited(wrap(new))._data if self.limits else new)])

    def clone(self, init: Any = "same") -> Parameter:
        """A new Parameter with the same name and settings.

        Args:
            init: "same" for the same value, or as for `initializer`: a name, an Initializer, a number, or a Tensor.

        Example:
            >>> Parameter([1.0, 2.0], name="w").clone("zeros").tolist()
            [0.0, 0.0]
        """
        with beside(self):
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
        with beside(self):
            return Parameter(self._data, self._name, self.requires_grad)


class ParameterTuple(tuple[Parameter, ...]):
    """A tuple of Parameters; a ParameterError if an element is no Parameter, or two of them have one given name."""

    def __new__(cls, parameters: Iterable[Parameter] = ()) -> ParameterTuple:
        if not isinstance(parameters, Iterable) or isinstance(parameters, (str, bytes, dict, Tensor)):
            raise ParameterError(f"ParameterTuple: parameters are Parameters, in a list, not {show(parameters)}.")
        members = tuple(parameters)
        for position, parameter in enumerate(members):
            if not isinstance(parameter, Parameter):
                raise ParameterError(
                    f"ParameterTuple: element {position} of parameters is a {type(parameter).__name__}."
                )
        refuse_equal_names(members, "ParameterTuple")
        return super().__new__(cls, members)

    def clone(self, prefix: str, init: Any = "same") -> ParameterTuple:
        """Copies of all Parameters, named `prefix.name`; the prefix is not empty, `init` is as in `Parameter.clone`."""
        if not isinstance(prefix, str) or not prefix:
            raise ParameterError(f"ParameterTuple.clone: prefix is a str that is not empty, not {show(prefix)}.")
        copies = [parameter.clone(init) for parameter in self]
        for copied in copies:
            copied.name = f"{prefix}.{copied.name}"
        return ParameterTuple(copies)


def _as_arrays(index: Any) -> Any:
    """An index with the elements of the Tensors in it, masks and positions, as NumPy takes it."""
    if isinstance(index, tuple):
        return tuple(_as_arrays(part) for part in index)
    return index.asnumpy() if isinstance(index, Tensor) else index


def commit(writes: Sequence[Write]) -> None:
    """Give Parameters their values, all of them or none: an interruption comes before or after it."""
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in writes]
    if RECORDING.undo is not None:  # an interruption in between restores what has not changed, which is harmless
        RECORDING.undo.note(before)
    write(writes)


def assign_all(pairs: Sequence[tuple[Parameter, Tensor]], what: str = "assign", in_range: bool = False) -> None:
    """Assign to several Parameters: all of them, or none if one of the values does not fit.

    Args:
        pairs: each with its value, which is brought into its range. If a range ends at another Parameter, its new value
            counts.
        what: for errors.
        in_range: whether the values are in their ranges, because the Parameters had them together.
    """
    for parameter, value in pairs:
        parameter.refuse(value, what)
    limited = [] if in_range else [parameter for parameter, _ in pairs if parameter.limits]
    if not limited:
        _write(pairs, what)
    elif len(pairs) == 1:
        _write([(parameter, parameter._limited(value)) for parameter, value in pairs], what)
    else:
        undo = Undo()
        with together(undo):
            _write(pairs, what)
            for parameter in limited:
                _write([(parameter, parameter._limited(parameter.value()))], what)
            undo.clear()


def _write(pairs: Sequence[tuple[Parameter, Tensor]], what: str) -> None:
    if TRACING.trace is not None:
        for parameter, value in pairs:
            TRACING.trace.write(parameter, value)
    else:
        commit([p.write_of(value._copied(p.dtype, p.device, what)) for p, value in pairs])


def together(undo: Undo) -> AbstractContextManager[Any]:
    """Write Parameters in the body as a transaction, which `undo.clear()`, its last line, commits.

    If an error or an interruption comes before, each Parameter gets its old value back.
    """
    undo.outer = RECORDING.undo
    return hold_attributes(vars(RECORDING), {"undo": undo}, {"undo": undo.outer}, undoing(undo))


def fits(source: dtypes.DType, target: dtypes.DType) -> bool:
    """True if values of `source` may be stored as `target`: the same kind and no narrower, or integers as floats."""
    if source.category == target.category:
        return bool(np.can_cast(source.dtype, target.dtype))
    return source.category < target.category
