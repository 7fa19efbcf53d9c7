"""Constants of neurons and spike functions: range checks, learned constants that stay in range, and precision."""

from __future__ import annotations

import threading
import weakref
from contextlib import AbstractContextManager
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from snncell.base.signals import hold_attributes
from snncell.cell.fields import Field
from snncell.cell.ranges import FINITE, Derived, Range, check_constant, numbers_of
from snncell.dtype import BY_NUMPY, DType, float32, float64
from snncell.tape.parameter import Parameter
from snncell.tape.state import TRACING, Value
from snncell.tape.tensor import Tensor, wrap


class Constant(NamedTuple):
    """A constant of a neuron or of a spike function.

    Attributes:
        name: the attribute's name.
        value: the present value in its own units, as float64.
        range: the valid numbers.
        learned: whether it is a Parameter, or computed from one.
    """

    name: str
    value: np.ndarray[Any, Any]
    range: Range
    learned: bool

    @property
    def outside(self) -> bool:
        """True if any element is out of range or not finite."""
        return not self.range.holds(self.value)


class _Precision(threading.local):
    """The precision of the input of the neuron that this thread is computing."""

    dtype: DType | None = None


PRECISION = _Precision()


def constants_in(dtype: DType | None) -> AbstractContextManager[Any]:
    """Context manager: use constants in the precision for inputs of a dtype."""
    return hold_attributes(vars(PRECISION), {"dtype": dtype}, {"dtype": PRECISION.dtype})


def precision_of(args: Any) -> DType | None:
    """The precision of constants for the first input: float64 for float64, float32 for other real dtypes, else None."""
    dtype = getattr(args[0], "dtype", None) if args else None
    known = BY_NUMPY.get(getattr(dtype, "dtype", dtype))
    return None if known is None or known.category > 2 else known if known is float64 else float32


_MISSING = object()


def _make_constant(kind: type, name: str) -> None:
    """Replace a class attribute by a `ConstantAttribute` with this default, unless it is a property or a field."""
    default = getattr(kind, name, _MISSING)
    if not hasattr(default, "__get__") and not isinstance(default, Field):
        setattr(kind, name, ConstantAttribute(name, default))


class ConstantAttribute:
    """Descriptor of a constant. Within a call it has the precision of the input (see `Ranged.in_use`)."""

    def __init__(self, name: str, default: Any) -> None:
        self.name, self.default = name, default

    def __get__(self, owner: Any, kind: Any = None) -> Any:
        if owner is None:
            return self
        value = owner.__dict__.get(self.name, self.default)
        if value is _MISSING:
            raise AttributeError(f"{type(owner).__name__} has no constant {self.name!r} yet.")
        return value if type(value) is float else owner.in_use(self.name, value)

    def __set__(self, owner: Any, value: Any) -> None:
        owner.__dict__[self.name] = value

    def __delete__(self, owner: Any) -> None:
        del owner.__dict__[self.name]


class _Memory:
    """Cached facts about an object's constants. It is not a dict, because traces would watch a dict."""

    def __init__(self) -> None:
        self.gaps: dict[
            str, tuple[Any, Any]
        ] = {}  # the smallest distances of learned constants from their range's ends
        self.narrow: dict[str, tuple[Tensor, Tensor]] = {}  # fixed constants: the float64 and the float32 Tensor
        self.domains: dict[str, Range] = {}  # the ranges of Parameters from which derived constants are computed


class Ranged:
    """Base class of objects with constants: attributes with a valid range, which learned constants never leave. A class
    lists the ranges of its constants by name in `ranges`, and inherits those of its bases. A constant without a range
    may be any finite number. Override `range_of` for ranges that depend on attributes.
    """

    ranges: ClassVar[dict[str, Range]] = {}
    clamped: tuple[str, ...] = ()  # learned constants that may leave their range; they are clamped where they are used

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        ranges: dict[str, Range] = {}
        for base in reversed(cls.__mro__):
            ranges |= vars(base).get("ranges", {})
        cls.ranges = ranges
        for name in vars(cls).get("ranges", {}):
            _make_constant(cls, name)

    @classmethod
    def hold(cls, ranges: dict[str, Range]) -> None:
        """Make these attributes constants with these ranges."""
        cls.ranges = cls.ranges | ranges
        for name in ranges:
            _make_constant(cls, name)

    def declare(self, *names: str) -> None:
        """Append attributes to the declared constants."""
        self.__dict__["_constants"] = tuple(dict.fromkeys((*self.__dict__.get("_constants", ()), *names)))
        for name in names:
            _make_constant(type(self), name)

    def range_of(self, name: str) -> Range:
        """The present range of a constant."""
        return self._memory.domains.get(name) or self.ranges.get(name, FINITE)

    def check_constant(self, name: str, value: Any) -> None:
        """Raise an error for an invalid value of a constant, before it is set."""
        self.range_of(name).check(value, type(self).__name__, name)

    @property
    def constants_and_ranges(self) -> tuple[Constant, ...]:
        """The declared constants with their present values and ranges, and whether they are learned."""
        constants = []
        for name in self.__dict__.get("_constants", ()):
            held = self.__dict__.get(name)
            with constants_in(float64):
                value = numbers_of(getattr(self, name))
            constants.append(Constant(name, value, self.range_of(name), isinstance(held, (Parameter, Derived))))
        return tuple(constants)

    # --- setting ------------------------------------------------------------------------------------------------------

    def __setattr__(self, name: str, value: Any) -> None:
        state = self.__dict__
        # "version" is missing until `Cell.__init__` has run.
        if "version" not in state or (name not in self.ranges and name not in state.get("_constants", ())):
            super().__setattr__(name, value)
            return
        value = self._constant(name, value)
        super().__setattr__(name, value)
        if isinstance(value, Parameter):
            self.keep(name, value)
        elif isinstance(value, Derived):
            self.take_sources(value)

    def _constant(self, name: str, value: Any) -> Any:
        """Check a new value, and convert it to its stored form."""
        if isinstance(value, Derived):
            now = value.value()
            self.check_constant(name, now)
            if value.parameter is not None:
                return value.parameter
            self._memory.gaps[name] = self.range_of(name).gaps(now)
            return value
        return self.checked(name, value)

    def checked(self, name: str, value: Any) -> Any:
        """Check that a value is a valid constant in its range, and return it in its stored form."""
        value = check_constant(value, type(self).__name__, name)
        self.check_constant(name, value)
        return value

    def take_sources(self, derived: Derived) -> None:
        """Make the Parameters of a derived constant attributes, under the user's names."""
        for source in derived.sources():
            parameter = source.parameter
            if parameter is None or any(value is parameter for value in self.__dict__.values()):
                continue
            name = source.name if not hasattr(self, source.name) else f"{source.name}_given"
            self._memory.domains[name] = source.domain
            super().__setattr__(name, parameter)
            self.keep(name, parameter)

    def keep(self, name: str, parameter: Parameter) -> None:
        """Project every later write to a Parameter into the range of its constant."""
        if name not in self.clamped:
            self._memory.gaps[name] = self.range_of(name).gaps(parameter)
            self._limit(name, parameter)

    def _limit(self, name: str, parameter: Parameter) -> None:
        limit = _Limit(self, name)
        if limit not in parameter.limits:
            parameter.limits = (*parameter.limits, limit)

    def clamping(self, *names: str) -> Self:
        """Let these learned constants leave their ranges, and clamp them where they are used. Returns self."""
        self.clamped = names
        for name in names:
            self._memory.gaps.pop(name, None)
            parameter = self.__dict__[name]
            if isinstance(parameter, Parameter):
                parameter.limits = tuple(limit for limit in parameter.limits if limit != _Limit(self, name))
        return self

    @property
    def _memory(self) -> _Memory:
        memory: _Memory = self.__dict__.setdefault("_memory_", _Memory())
        return memory

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[misc]
        self.declare(*state.get("_constants", ()))
        for name, value in list(self.__dict__.items()):
            if isinstance(value, Parameter) and name in self._memory.gaps:
                self._limit(name, value)

    # --- use ----------------------------------------------------------------------------------------------------------

    def in_use(self, name: str, value: Any) -> Any:
        """A constant for a computation: evaluated if it is derived, and in the precision of the input."""
        if isinstance(value, Derived):
            allowed, value = self.range_of(name), value.value()
            value = allowed.project(value, self._memory.gaps[name]) if allowed.bounded else value
        elif not isinstance(value, Tensor) or PRECISION.dtype is None:
            return value
        elif name in self.clamped and isinstance(value, Parameter):
            value = self.range_of(name).project(value, (0.0, 0.0))
        if value.dtype is not float64 or PRECISION.dtype is not float32:
            return value
        return self._narrow(name, value)

    def _narrow(self, name: str, value: Tensor) -> Tensor:
        """A float64 constant as float32; the conversion of a fixed constant is cached."""
        if type(value) is not Tensor or value._entry is not None or isinstance(value._data, Value):
            return value.astype(float32)
        known = self._memory.narrow.get(name)
        if known is None or known[0] is not value:
            known = value, wrap(value._copied(float32, value.device, name))
            self._memory.narrow[name] = known
        return known[1]


class _Limit:
    """Projects values written to a Parameter into the range of a constant, while the Parameter is that constant."""

    def __init__(self, owner: Any, name: str) -> None:
        self.owner, self.name = weakref.ref(owner), name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Limit) and self.name == other.name and self.owner() is other.owner()

    __hash__ = None  # type: ignore[assignment]

    def __call__(self, parameter: Parameter, value: Tensor) -> Tensor:
        owner = self.owner()
        if owner is None or owner.__dict__.get(self.name) is not parameter:
            return value
        if TRACING.trace is not None:
            TRACING.trace.cells[owner] = None  # the trace is out of date when the range changes
        projected: Tensor = owner.range_of(self.name).project(value, owner._memory.gaps[self.name])
        return projected
