"""The check of arguments: made once for each signature, of its annotations, around all that a package shows.

`guard(globals())` at the end of a package's `__init__` is all that is to be written: its functions and classes check
what they are given, those that are added later too. Nothing that users define is checked. A value that already is as
its annotation says costs a look at its type.
"""

from __future__ import annotations

import difflib
import functools
import inspect
import re
import typing
from collections.abc import Callable, Iterator
from typing import Any

from snncell.arguments.kinds import REFUSED, UNFIT, Kind, kind_of, refusal
from snncell.arguments.names import missing_from
from snncell.arguments.shown import brief
from snncell.errors import (
    ArgumentError,
    ArgumentTypeError,
    CallError,
    DTypeError,
    ParameterError,
    ShapeError,
    SnncellError,
    TensorIndexError,
)

_PACKAGE = __name__.partition(".")[0]
# Names of arguments that people bring along from other libraries, and ours.
_COMMON = {
    "lr": "learning_rate",
    "bias": "has_bias",
    "dim": "axis",
    "dims": "axis",
    "keepdim": "keepdims",
    "in_features": "in_channels",
    "out_features": "out_channels",
    "epoch": "epochs",
    "threshold": "v_threshold",
    "spike_grad": "surrogate_function",
}


class Plan:
    """The kind of each argument of a function, by its place and by its name."""

    def __init__(self, function: Callable[..., Any]) -> None:
        hints = typing.get_type_hints(function, include_extras=True)
        self.places: list[tuple[str, Kind]] = []
        self.names: dict[str, Kind] = {}
        self.rest: tuple[str, Kind] | None = None
        self.open = False  # whether it takes arguments of any name
        self.defaults: dict[str, Any] = {}
        self.closed = not any(_runs_code(hint) for name, hint in hints.items() if name != "return")
        for p in inspect.signature(function).parameters.values():
            kind = kind_of(hints.get(p.name, Any))
            self.defaults[p.name] = p.default
            if p.kind is p.VAR_POSITIONAL:
                self.rest = p.name, kind
            elif p.kind is p.VAR_KEYWORD:
                self.open = True
                self.names |= dict(_unpacked(hints.get(p.name, Any)))
            else:
                self.names[p.name] = kind
                if p.kind is not p.KEYWORD_ONLY:
                    self.places.append((p.name, kind))

    def taken(self, who: str, args: tuple[Any, ...], kwargs: dict[str, Any], skip: int = 0) -> tuple[Any, ...]:
        """The arguments as the function takes them, by place; those by name are changed in the dict.

        Raises:
            ArgumentTypeError: for one of another type.
            ArgumentError: for one that makes no sense.
        """
        places = self.places
        for i in range(skip, len(args)):
            name, kind = places[i] if i < len(places) else self.rest or ("", None)
            value = args[i]
            if kind is not None and type(value) not in kind.types:
                new = self.one(who, name, kind, value)
                if new is not value:
                    args = (*args[:i], new, *args[i + 1 :])
        for name, value in kwargs.items():
            kind = self.names.get(name)
            if kind is None and not self.open:
                self.refuse_name(who, name)
            if kind is not None and type(value) not in kind.types:
                kwargs[name] = self.one(who, name, kind, value)
        return args

    def kind_at(self, place: int) -> Kind | None:
        """The kind of an argument by its place, if there may be one."""
        return self.places[place][1] if place < len(self.places) else None if self.rest is None else self.rest[1]

    def given(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        """The arguments of a call, for an error: "x=float32[2, 3], axis=1"."""
        places = [name for name, _ in self.places]
        named = {(places[i] if i < len(places) else f"*{i}"): value for i, value in enumerate(args)} | kwargs
        return ", ".join(f"{name}={brief(value)}" for name, value in named.items() if name != "self")

    def refuse_name(self, who: str, name: str) -> None:
        """Raise for an argument that there is not, naming those that there are.

        Raises:
            CallError: always.
        """
        known = [other for other in self.names if other != "self"]
        meant = _COMMON.get(name) if _COMMON.get(name) in known else None
        meant = meant or next(iter(difflib.get_close_matches(name, known, 1)), None)
        mend = f" Did you mean {meant}?" if meant else ""
        raise CallError(f"{who}: has no argument {name}.{mend} It takes {', '.join(known) or 'none by name'}.")

    def one(self, who: str, name: str, kind: Kind, value: Any) -> Any:
        """One argument as the function takes it: a default always is."""
        default = self.defaults.get(name)
        if value is default:
            return value
        taken = kind.take(value)
        if taken is REFUSED or taken is UNFIT:
            error = ArgumentTypeError if taken is REFUSED else ArgumentError
            raise error(refusal(who, name, kind, value, default))
        if kind.by_type:
            kind.types.add(type(value))
        return taken


def _runs_code(hint: Any) -> bool:
    """True if an argument brings code of the user's along, whose errors are left as they are."""
    parts = (hint, *typing.get_args(hint))
    return any(part is Callable or typing.get_origin(part) is Callable or hasattr(part, "construct") for part in parts)


def _unpacked(hint: Any) -> Iterator[tuple[str, Kind]]:
    """The kinds of what `**options: Unpack[...]` takes."""
    if typing.get_origin(hint) is typing.Unpack:
        (shape,) = typing.get_args(hint)
        for name, inner in typing.get_type_hints(shape, include_extras=True).items():
            yield name, kind_of(inner)


@functools.cache
def plan_of(function: Callable[..., Any]) -> Plan:
    """The plan of a function, made when it is first called."""
    return Plan(function)


def says_something(function: Callable[..., Any]) -> bool:
    """True if an annotation of an argument is anything but Any, or `Own`."""
    hints = {name: hint for name, hint in function.__annotations__.items() if name != "return"}
    return any(hint not in ("Any", Any) and not str(hint).endswith("Own()]") for hint in hints.values())


def from_inside(error: SnncellError, who: str, given: str) -> SnncellError | None:
    """An error with the call that it comes from, if it does not name it, or with what that was given, if it names no
    argument; None for one that says both.
    """
    text = str(error)
    if error.told or type(error) not in _TOLD:
        return None
    named = who in text.partition(": ")[0]
    if not named:
        text = f"{who}({given}): {text}"
    elif given and not _names_one_of(given, text):
        text = f"{text} It was given {given}."
    else:
        return None
    told: SnncellError = type(error)(text)
    told.told = not named  # a layer around an operation that names itself says which layer it is
    return told


def _names_one_of(given: str, text: str) -> bool:
    names = [name for name in re.findall(r"(\w+)=", given) if name]
    return any(re.search(rf"\b{name}\b", text) for name in names)


_CHECKED: dict[Callable[..., Any], Callable[..., Any]] = {}  # what two modules show is one function
_TOLD = (ArgumentError, ArgumentTypeError, DTypeError, ShapeError, TensorIndexError, ParameterError)


def checked(function: Callable[..., Any], face: str, name: str) -> Callable[..., Any]:
    """A function that checks its arguments; it says that it is the face's, where it can be found."""
    plan: Plan | None = None

    @functools.wraps(function)
    def check_and_call(*args: Any, **kwargs: Any) -> Any:
        nonlocal plan
        if plan is None:
            plan = plan_of(function)
        args = plan.taken(name, args, kwargs)
        try:
            return function(*args, **kwargs)
        except SnncellError as error:
            if plan.closed and (told := from_inside(error, name, plan.given(args, kwargs))):
                raise told from None
            raise

    check_and_call.__module__, check_and_call.__qualname__ = face, name
    return check_and_call


def checked_init(init: Callable[..., Any], name: str) -> Callable[..., Any]:
    """An `__init__` or `__call__` that checks its arguments."""
    plan: Plan | None = None

    @functools.wraps(init)
    def check_and_begin(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        nonlocal plan
        if plan is None:
            plan = plan_of(init)
        who = type(self).__name__
        args = plan.taken(who, (self, *args), kwargs, 1)
        try:
            return init(*args, **kwargs)
        except SnncellError as error:
            outermost = getattr(type(self), name) is check_and_begin  # not that of a class above
            if outermost and (told := from_inside(error, who, plan.given(args, kwargs))):
                raise told from None
            raise

    return check_and_begin


def ours(one: Any) -> bool:
    """True if a function or class is the package's own."""
    return (getattr(one, "__module__", None) or "").partition(".")[0] == _PACKAGE


def guard(face: dict[str, Any], own: bool = False) -> None:
    """Let the functions and classes that a module shows check their arguments, and say of a name that it has not which
    one was meant; `face` is its globals(). With `own`, only what is defined in it and below.
    """
    face.setdefault("__getattr__", missing_from(face["__name__"]))
    for name, one in list(face.items()):
        if name.startswith("_") or not ours(one) or (own and not one.__module__.startswith(face["__name__"])):
            continue
        if inspect.isfunction(one) and not hasattr(one, "__wrapped__") and says_something(one):
            face[name] = _CHECKED.setdefault(one, checked(one, face["__name__"], name))
        elif isinstance(one, type) and not issubclass(one, BaseException):
            _guard_class(one)


def _guard_class(one: type) -> None:
    for name in ("__init__", "__call__"):
        owner = next((kind for kind in one.__mro__ if name in vars(kind)), object)
        method = vars(owner).get(name)
        if not inspect.isfunction(method) or hasattr(method, "__wrapped__") or not ours(owner):
            continue
        if not hasattr(owner, "__dataclass_fields__") and says_something(method):
            setattr(owner, name, checked_init(method, name))
