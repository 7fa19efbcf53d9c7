"""Argument checks by annotations: `guard(globals())` at the end of a package wraps its functions and classes.

User-defined functions and classes are not checked. Checking a valid argument costs one look at its type.
"""

from __future__ import annotations

import ast
import functools
import inspect
import sys
import typing
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Never

import numpy as np

from snncell.base.arguments.elsewhere import ARGUMENTS
from snncell.base.arguments.kinds import REFUSED, UNFIT, Kind, kind_of, refusal
from snncell.base.arguments.names import list_public, missing_from
from snncell.base.arguments.shown import brief, from_inside, nearest
from snncell.base.frames import hide_frames
from snncell.errors import ArgumentError, ArgumentTypeError, ArgumentWarning, CallError, DeviceMemoryError, SnncellError

_PACKAGE = __name__.partition(".")[0]


Place = tuple[str, Kind]


def suggest_place(places: list[Place], rest: Place | None, who: str, name: str, value: Any, args: Sequence[Any]) -> str:
    """Return a hint if an invalid argument fits another position, or ""."""
    if rest is not None and name == rest[0]:
        several = isinstance(value, (list, tuple)) and value and all(_fits(rest[1], item) for item in value)
        return f" Give them one by one: *{name}." if several else ""
    kind = dict(places).get(name)
    for (other, kind_of_other), other_value in zip(places, args, strict=False):
        if kind is None or other in (name, "self") or other_value is value:
            continue
        if kind.words == "anything" or kind_of_other.words == "anything":
            continue  # an argument that accepts anything does not show a swap
        if _fits(kind, other_value) and _fits(kind_of_other, value):
            order = ", ".join(one for one, _ in places if one in (name, other))
            return f" They are swapped: {who}({order})."
    return ""


def _fits(kind: Kind, value: Any) -> bool:
    if type(value) in kind.types:
        return True
    converted = kind.take(value)
    return converted is not REFUSED and converted is not UNFIT


@dataclass(frozen=True)
class ByName:
    """For `Annotated[float, ByName(warning)]`: warn if an argument is passed by position, where users of PyTorch expect
    another argument. `warning(value)` returns the text, or "" if the value cannot be confused.
    """

    warning: Callable[[Any], str]


@dataclass(frozen=True)
class Unlike:
    """For `Annotated[float, Unlike(warning)]`: warn about a default or convention that differs from PyTorch's.
    `warning(class name, arguments by name)` returns the text, or "" for no warning.
    """

    warning: Callable[[str, Mapping[str, Any]], str]


def warn_of(words: str, category: type[Warning] = ArgumentWarning) -> None:
    """Issue a warning at the innermost line outside of the package."""
    frame, depth = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == _PACKAGE:
        frame, depth = frame.f_back, depth + 1
    warnings.warn(words, category, stacklevel=depth)


class ArgumentKinds:
    """The kind of each argument of a function, by position and by name."""

    def __init__(self, function: Callable[..., Any]) -> None:
        hints = typing.get_type_hints(function, include_extras=True)
        self.places: list[tuple[str, Kind]] = []
        self.names: dict[str, Kind] = {}
        self.rest: tuple[str, Kind] | None = None
        self.function = function
        self.signature = inspect.signature(function)
        # Whether it accepts any name, or raises its own error for unknown names.
        self.open = getattr(function, "refuses_names", False)
        self.defaults: dict[str, Any] = {}
        marks = [(name, mark) for name, hint in hints.items() for mark in getattr(hint, "__metadata__", ())]
        self.marks = {name: mark for name, mark in marks if isinstance(mark, (ByName, Unlike))}
        runs_code = any(_runs_code(hint) for name, hint in hints.items() if name != "return")
        self.closed = not runs_code or function.__name__.startswith("__")  # constructors do not run the user's code
        for p in self.signature.parameters.values():
            kind = kind_of(hints.get(p.name, Any))
            self.defaults[p.name] = p.default
            if p.kind is p.VAR_POSITIONAL:
                self.rest = p.name, kind
            elif p.kind is p.VAR_KEYWORD:
                listed = typing.get_origin(hints.get(p.name)) is typing.Unpack
                for shape in typing.get_args(hints[p.name]) if listed else ():
                    inner = typing.get_type_hints(shape, include_extras=True)
                    self.names |= {name: kind_of(hint) for name, hint in inner.items()}
                # A class passes unknown names to its base class, which raises the error.
                self.open = function.__name__ == "__init__" or not listed
            else:
                self.names[p.name] = kind
                if p.kind is not p.KEYWORD_ONLY:
                    self.places.append((p.name, kind))

    def check_call(self, who: str, args: tuple[Any, ...], kwargs: dict[str, Any], skip: int = 0) -> tuple[Any, ...]:
        """The checked positional arguments; keyword arguments are replaced in the dict."""
        places = self.places
        for i in range(skip, len(args)):
            name, kind = places[i] if i < len(places) else self.rest or ("", None)
            value = args[i]
            if kind is not None and type(value) not in kind.types:
                new = self.check_value(who, name, kind, value, args)
                if new is not value:
                    args = (*args[:i], new, *args[i + 1 :])
        for name, value in kwargs.items():
            kind = self.names.get(name)
            if kind is None and not self.open:
                refuse_name(who, name, [other for other in self.names if other != "self"])
            if kind is not None and type(value) not in kind.types:
                kwargs[name] = self.check_value(who, name, kind, value)
        if self.marks:
            self._warn(who, args, kwargs)
        return args

    def _warn(self, who: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        placed = {name: value for (name, _), value in zip(self.places, args, strict=False)}
        given = {**placed, **kwargs}
        for name, mark in self.marks.items():
            if isinstance(mark, Unlike):
                words = mark.warning(who, given) if name in given else ""
            else:
                words = mark.warning(placed[name]) if name in placed else ""
            if words:
                warn_of(words)

    def raise_with_call(self, error: Exception, who: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Raise an error again with the call and its arguments in the message, unless it names them already."""
        if isinstance(error, SnncellError):
            if self.closed and (extended := from_inside(error, who, self.describe_call(args, kwargs))):
                raise extended from None
        elif isinstance(error, TypeError):
            self.refuse_call(who, args, kwargs)
        elif isinstance(error, MemoryError) and self.closed:
            cause = str(error) or "Python or NumPy could not allocate an array or a list"
            raise DeviceMemoryError(
                f"{who}({self.describe_call(args, kwargs)}): the main memory is full: {cause}. Take fewer samples, "
                f"steps or neurons at once."
            ) from error

    def refuse_call(self, who: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Raise a CallError for missing or surplus arguments."""
        try:
            self.signature.bind(*args, **kwargs)
        except TypeError as misfit:
            known = ", ".join(name for name in self.defaults if name not in ("self", "flags"))
            hint = ""
            if self.function.__name__ == "__init__" and any(hasattr(x, "asnumpy") for x in args[1:]):
                hint = f" Create it first, then call it with data: {who}({known and '...'})(x)."
            raise CallError(f"{who}: {misfit}. It takes {known or 'no arguments'}.{hint}") from None

    def kind_at(self, place: int) -> Kind | None:
        """The kind of the argument at a position, or None."""
        return self.places[place][1] if place < len(self.places) else None if self.rest is None else self.rest[1]

    def describe_call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        """The arguments of a call as text, such as "x=float32[2, 3], axis=1"."""
        names = [name for name, _ in self.places]
        rest = "*" if self.rest is None else self.rest[0]
        names += [f"{rest}[{i}]" for i in range(len(args) - len(names))]
        named = dict(zip(names, args, strict=False)) | kwargs
        return ", ".join(f"{name}={brief(value)}" for name, value in named.items() if name != "self")

    def check_value(self, who: str, name: str, kind: Kind, value: Any, args: tuple[Any, ...] = ()) -> Any:
        """Check one argument; its default is always valid."""
        default = self.defaults.get(name)
        if value is default:
            return value
        converted = kind.take(value)
        if converted is REFUSED or converted is UNFIT:
            error = ArgumentTypeError if converted is REFUSED else ArgumentError
            raise error(
                refusal(who, name, kind, value, default) + suggest_place(self.places, self.rest, who, name, value, args)
            )
        if kind.by_type:
            kind.types.add(type(value))
        return converted


SEEDS = ("seed", "random_state", "generator", "rng")  # other libraries' names


def nearest_argument(name: str, known: Sequence[str]) -> str | None:
    """The argument that other libraries call by this name, or the one with the nearest name, or None."""
    matches = [other for other in ARGUMENTS.get(name, ()) if all(part in known for part in other.split(" and "))]
    return matches[0] if matches else nearest(name, known)


def refuse_name(who: str, name: str, known: Sequence[str]) -> Never:
    """Raise a CallError for an unknown argument; it lists the known ones."""
    meant = nearest_argument(name, known)
    hint = f" Did you mean {meant}?" if meant else ""
    if name in SEEDS and meant not in ARGUMENTS.get(name, ()):
        hint = " snncell.set_seed(seed) seeds its random numbers."
    if not hint and known[:1] == ["constants"]:
        hint = f' Pass constants by name in a dictionary: {who}({{"{name}": ...}}).'
    raise CallError(f"{who} has no argument {name}.{hint} It takes {', '.join(known) or 'none by name'}.")


def _runs_code(hint: Any) -> bool:
    """True if an argument can be the user's code, because the errors of such code must not be changed."""
    parts = (hint, *typing.get_args(hint))
    callbacks = any(hasattr(one, "on_fit_begin") for part in parts for one in typing.get_args(part))
    return callbacks or any(Callable in (part, typing.get_origin(part)) or hasattr(part, "construct") for part in parts)


@functools.cache
def plan_of(function: Callable[..., Any]) -> ArgumentKinds:
    """The ArgumentKinds of a function, cached."""
    return ArgumentKinds(function)


def _hints(function: Callable[..., Any]) -> list[str]:
    return [str(hint) for name, hint in function.__annotations__.items() if name != "return"]


class _WithoutMarks(ast.NodeTransformer):
    """`Annotated[X, mark]` as X."""

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.value, ast.Name) and node.value.id == "Annotated" and isinstance(node.slice, ast.Tuple):
            return node.slice.elts[0]
        return node


def plain_signature(function: Callable[..., Any]) -> inspect.Signature:
    """The signature for `help` and notebooks, without the marks for this check in `Annotated[...]`."""
    signature = inspect.signature(function)
    parameters = [
        p.replace(annotation=ast.unparse(_WithoutMarks().visit(ast.parse(p.annotation, mode="eval"))))
        if isinstance(p.annotation, str) and "Annotated[" in p.annotation
        else p
        for p in signature.parameters.values()
    ]
    return signature.replace(parameters=parameters)


_GUARDED: set[str] = set()  # the modules that have called `guard`
_CHECKED: dict[Callable[..., Any], Callable[..., Any]] = {}  # so that two modules export one identical wrapper


def check_arguments(function: Callable[..., Any], name: str, skip: int, module: str = "") -> Callable[..., Any]:
    """Wrap a function to check its arguments, except the first `skip`. Errors contain `name`. `module` becomes the
    `__module__` of the wrapper; for a method it is "", and errors also contain the class.
    """
    plan: ArgumentKinds | None = None

    @functools.wraps(function)
    def check_and_call(*args: Any, **kwargs: Any) -> Any:
        nonlocal plan
        try:
            # Resolve annotations at the first call, because they may name classes of modules imported later.
            if plan is None:
                plan = plan_of(function)
            who = name
            if not module:
                who = type(args[0]).__name__ + ("" if name.startswith("__") else f".{name}")
            args = plan.check_call(who, args, kwargs, skip)
            try:
                return function(*args, **kwargs)
            except Exception as error:
                if module or getattr(type(args[0]), name) is check_and_call:  # not the method of a base class
                    plan.raise_with_call(error, who, args, kwargs)
                raise
        except Exception as error:
            hide_frames(error)
            raise

    if any("Annotated[" in hint for hint in _hints(function)):
        check_and_call.__signature__ = plain_signature(function)  # type: ignore[attr-defined]
    if module:
        check_and_call.__module__, check_and_call.__qualname__ = module, name
    return check_and_call


def ours(one: Any) -> bool:
    """True if a function or class belongs to this package."""
    return (getattr(one, "__module__", None) or "").partition(".")[0] == _PACKAGE


def guard(namespace: dict[str, Any], own: bool = False) -> None:
    """Let the functions and classes in `namespace`, a module's globals(), check their arguments, and let the module
    suggest names for missing ones. `own` skips names that are imported or missing in `__all__`.
    """
    namespace.setdefault("__getattr__", missing_from(namespace["__name__"]))
    list_public(namespace)
    _GUARDED.add(namespace["__name__"])
    module = namespace["__name__"]
    shown = namespace.get("__all__", namespace) if own else namespace
    for name, one in list(namespace.items()):
        if name.startswith("_") or not ours(one) or name not in shown:
            continue
        if own and not one.__module__.startswith(module):
            continue
        if inspect.isfunction(one) and not hasattr(one, "__wrapped__") and _hints(one):
            namespace[name] = _CHECKED.setdefault(one, check_arguments(one, name, 0, module))
        elif inspect.isfunction(one) and one.__module__ not in _GUARDED and one.__module__.startswith(module):
            one.__module__ = module  # where users import it, as `help` and pickle name it
        elif isinstance(one, type) and not issubclass(one, BaseException):
            _guard_class(one)


def _guard_class(one: type) -> None:
    if one.__name__ == "Tensor":  # checks its arguments itself, because it is created often
        return
    flags = [name for name in dir(one) if not name.startswith("_") and name not in ("construct", "init_state")]
    for name in ("__init__", "__call__", "init_state", *flags):
        owner = next((kind for kind in one.__mro__ if name in vars(kind)), object)
        method = vars(owner).get(name)
        if not inspect.isfunction(method) or hasattr(method, "__wrapped__") or not ours(owner):
            continue
        hints = _hints(method)
        if name in ("__call__", "init_state"):
            needs_check = any(hint not in ("Any", "typing.Any") and not hint.endswith("Own()]") for hint in hints)
        else:
            needs_check = bool(hints) if name == "__init__" else "bool" in hints
        if needs_check:
            setattr(owner, name, check_arguments(method, name, 1))
    maker = getattr(vars(one).get("__new__"), "__func__", None)  # NumPy arrays are created by `__new__`
    if issubclass(one, np.ndarray) and maker is not None and not hasattr(maker, "__wrapped__"):
        one.__new__ = check_arguments(maker, one.__name__, 1, one.__module__)  # type: ignore[method-assign]
