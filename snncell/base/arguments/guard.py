"""The check of arguments by annotations: `guard(globals())` at the end of a package puts it around all that it shows.

Nothing that users define is checked. A value of the right type costs a look at its type.
"""

from __future__ import annotations

import ast
import functools
import inspect
import sys
import typing
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Never

import numpy as np

from snncell.base.arguments.elsewhere import ARGUMENTS
from snncell.base.arguments.kinds import REFUSED, UNFIT, Kind, kind_of, refusal
from snncell.base.arguments.names import list_public, missing_from
from snncell.base.arguments.shown import brief, from_inside, nearest
from snncell.base.frames import hide_frames
from snncell.errors import (
    ArgumentError,
    ArgumentTypeError,
    ArgumentWarning,
    CallError,
    DeviceMemoryError,
    SnncellError,
)

_PACKAGE = __name__.partition(".")[0]

# --- arguments in each other's place ----------------------------------------------------------------------------------

Place = tuple[str, Kind]


def suggest_place(
    places: list[Place], rest: Place | None, who: str, name: str, value: Any, args: tuple[Any, ...]
) -> str:
    """The mend for an argument of `args` that was refused and would fit elsewhere; "" if it would not."""
    if rest is not None and name == rest[0]:
        several = isinstance(value, (list, tuple)) and value and all(_fits(rest[1], item) for item in value)
        return f" Give them one by one: *{name}." if several else ""
    kind = dict(places).get(name)
    for (other, kind_of_other), other_value in zip(places, args, strict=False):
        if kind is None or other in (name, "self") or other_value is value:
            continue
        if kind.words == "anything" or kind_of_other.words == "anything":
            continue  # a place where anything fits says nothing of what was meant
        if _fits(kind, other_value) and _fits(kind_of_other, value):
            order = ", ".join(one for one, _ in places if one in (name, other))
            return f" They are swapped: {who}({order})."
    return ""


def _fits(kind: Kind, value: Any) -> bool:
    if type(value) in kind.types:
        return True
    taken = kind.take(value)
    return taken is not REFUSED and taken is not UNFIT


@dataclass(frozen=True)
class ByName:
    """For `Annotated[float, ByName(warning)]`: an argument by place that may be meant for another one.

    `warning(value)` returns the text, "" for a value that means the same either way.
    """

    warning: Callable[[Any], str]


@dataclass(frozen=True)
class Unlike:
    """For `Annotated[float, Unlike(warning)]`: PyTorch has another default or convention.

    `warning(name of the class, arguments of the call by name)` returns the text, "" for no warning.
    """

    warning: Callable[[str, Mapping[str, Any]], str]


def warn_of(words: str, category: type[Warning] = ArgumentWarning) -> None:
    """Warn at the innermost line outside of the package."""
    frame, depth = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == _PACKAGE:
        frame, depth = frame.f_back, depth + 1
    warnings.warn(words, category, stacklevel=depth)


class ArgumentKinds:
    """The kind of each argument of a function, by its place and by its name."""

    def __init__(self, function: Callable[..., Any]) -> None:
        hints = typing.get_type_hints(function, include_extras=True)
        self.places: list[tuple[str, Kind]] = []
        self.names: dict[str, Kind] = {}
        self.rest: tuple[str, Kind] | None = None
        self.function = function
        self.signature = inspect.signature(function)
        # Whether it takes arguments of any name, or refuses them in words of its own.
        self.open = getattr(function, "refuses_names", False)
        self.defaults: dict[str, Any] = {}
        marks = [(name, mark) for name, hint in hints.items() for mark in getattr(hint, "__metadata__", ())]
        self.marks = {name: mark for name, mark in marks if isinstance(mark, (ByName, Unlike))}
        runs_code = any(_runs_code(hint) for name, hint in hints.items() if name != "return")
        self.closed = not runs_code or function.__name__.startswith("__")  # what is made runs nothing yet
        for p in self.signature.parameters.values():
            kind = kind_of(hints.get(p.name, Any))
            self.defaults[p.name] = p.default
            if p.kind is p.VAR_POSITIONAL:
                self.rest = p.name, kind
            elif p.kind is p.VAR_KEYWORD:
                self.names |= dict(_kinds_of_options(hints.get(p.name, Any)))
                # A class hands what it has no name for on to the one above it, which has better words for it.
                self.open = function.__name__ == "__init__" or typing.get_origin(hints.get(p.name)) is not typing.Unpack
            else:
                self.names[p.name] = kind
                if p.kind is not p.KEYWORD_ONLY:
                    self.places.append((p.name, kind))

    def taken(self, who: str, args: tuple[Any, ...], kwargs: dict[str, Any], skip: int = 0) -> tuple[Any, ...]:
        """The checked arguments by place; those by name are changed in the dict."""
        places = self.places
        for i in range(skip, len(args)):
            name, kind = places[i] if i < len(places) else self.rest or ("", None)
            value = args[i]
            if kind is not None and type(value) not in kind.types:
                new = self.one(who, name, kind, value, args)
                if new is not value:
                    args = (*args[:i], new, *args[i + 1 :])
        for name, value in kwargs.items():
            kind = self.names.get(name)
            if kind is None and not self.open:
                refuse_name(who, name, [other for other in self.names if other != "self"])
            if kind is not None and type(value) not in kind.types:
                kwargs[name] = self.one(who, name, kind, value)
        if self.marks:
            self._warn(who, args, kwargs)
        return args

    def _warn(self, who: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Warn of arguments that a user of PyTorch may mean otherwise."""
        placed = {name: value for (name, _), value in zip(self.places, args, strict=False)}
        given = {**placed, **kwargs}
        for name, mark in self.marks.items():
            if isinstance(mark, Unlike):
                words = mark.warning(who, given) if name in given else ""
            else:
                words = mark.warning(placed[name]) if name in placed else ""
            if words:
                warn_of(words)

    def tell(self, error: Exception, who: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Raise an error from inside of a call anew, with the call and its arguments, if it does not name them."""
        if isinstance(error, SnncellError):
            if self.closed and (told := from_inside(error, who, self.given(args, kwargs))):
                raise told from None
        elif isinstance(error, TypeError):
            self.refuse_call(who, args, kwargs)
        elif isinstance(error, MemoryError) and self.closed:
            cause = str(error) or "Python or NumPy could not allocate an array or a list"
            raise DeviceMemoryError(
                f"{who}({self.given(args, kwargs)}): the main memory is full: {cause}. Take fewer samples, "
                f"steps or neurons at once."
            ) from error

    def refuse_call(self, who: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Raise a CallError if arguments are missing, or there are too many."""
        try:
            self.signature.bind(*args, **kwargs)
        except TypeError as misfit:
            known = ", ".join(name for name in self.defaults if name not in ("self", "flags"))
            mend = ""
            if self.function.__name__ == "__init__" and any(hasattr(x, "asnumpy") for x in args[1:]):
                mend = f" It is made first, and called with data: {who}({known and '...'})(x)."
            raise CallError(f"{who}: {misfit}. It takes {known or 'no arguments'}.{mend}") from None

    def kind_at(self, place: int) -> Kind | None:
        """The kind of an argument by its place, if it takes one."""
        return self.places[place][1] if place < len(self.places) else None if self.rest is None else self.rest[1]

    def given(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        """The arguments of a call, for an error: "x=float32[2, 3], axis=1"."""
        names = [name for name, _ in self.places]
        rest = "*" if self.rest is None else self.rest[0]
        names += [f"{rest}[{i}]" for i in range(len(args) - len(names))]
        named = dict(zip(names, args, strict=False)) | kwargs
        return ", ".join(f"{name}={brief(value)}" for name, value in named.items() if name != "self")

    def one(self, who: str, name: str, kind: Kind, value: Any, args: tuple[Any, ...] = ()) -> Any:
        """One checked argument; a default always passes."""
        default = self.defaults.get(name)
        if value is default:
            return value
        taken = kind.take(value)
        if taken is REFUSED or taken is UNFIT:
            error = ArgumentTypeError if taken is REFUSED else ArgumentError
            raise error(
                refusal(who, name, kind, value, default) + suggest_place(self.places, self.rest, who, name, value, args)
            )
        if kind.by_type:
            kind.types.add(type(value))
        return taken


SEEDS = ("seed", "random_state", "generator", "rng")  # as other libraries call them


def nearest_argument(name: str, known: Sequence[str]) -> str | None:
    """The argument that other libraries call by this name, or the one of the nearest name, if any."""
    here = [other for other in ARGUMENTS.get(name, ()) if all(part in known for part in other.split(" and "))]
    return here[0] if here else nearest(name, known)


def refuse_name(who: str, name: str, known: Sequence[str]) -> Never:
    """Raise a CallError for an unknown argument; it lists the known ones."""
    meant = nearest_argument(name, known)
    mend = f" Did you mean {meant}?" if meant else ""
    if name in SEEDS and meant not in ARGUMENTS.get(name, ()):
        mend = " snncell.set_seed(seed) decides its random numbers."
    raise CallError(f"{who}: has no argument {name}.{mend} It takes {', '.join(known) or 'none by name'}.")


def _runs_code(hint: Any) -> bool:
    """True if an argument is code of the user's, whose errors are left as they are."""
    parts = (hint, *typing.get_args(hint))
    callbacks = any(hasattr(one, "on_fit_begin") for part in parts for one in typing.get_args(part))
    return callbacks or any(
        part is Callable or typing.get_origin(part) is Callable or hasattr(part, "construct") for part in parts
    )


def _kinds_of_options(hint: Any) -> Iterator[tuple[str, Kind]]:
    """The kinds of what `**options: Unpack[...]` takes."""
    if typing.get_origin(hint) is typing.Unpack:
        (shape,) = typing.get_args(hint)
        for name, inner in typing.get_type_hints(shape, include_extras=True).items():
            yield name, kind_of(inner)


@functools.cache
def plan_of(function: Callable[..., Any]) -> ArgumentKinds:
    """The plan of a function, made when it is first called."""
    return ArgumentKinds(function)


def _hints(function: Callable[..., Any]) -> list[str]:
    """The annotations of the arguments, as they are written."""
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


def says_something(function: Callable[..., Any]) -> bool:
    """True if an annotation of an argument is anything but Any, or `Own`."""
    return any(hint not in ("Any", "typing.Any") and not hint.endswith("Own()]") for hint in _hints(function))


_CHECKED: dict[Callable[..., Any], Callable[..., Any]] = {}  # what two modules show is one function


def check_arguments(function: Callable[..., Any], name: str, skip: int, face: str = "") -> Callable[..., Any]:
    """A function that checks its arguments, but the first `skip`.

    Args:
        function: of a module, with the module as `face`, or a method, without a face.
        name: its name; a method is called in errors by its class, too.
        skip: the number of arguments that are not checked.
        face: the module that the function says to be of.
    """
    plan: ArgumentKinds | None = None

    @functools.wraps(function)
    def check_and_call(*args: Any, **kwargs: Any) -> Any:
        nonlocal plan
        try:
            # With the first call: annotations may name classes of modules that are imported later than this one.
            if plan is None:
                plan = plan_of(function)
            who = name
            if not face:
                who = type(args[0]).__name__ + ("" if name.startswith("__") else f".{name}")
            args = plan.taken(who, args, kwargs, skip)
            try:
                return function(*args, **kwargs)
            except Exception as error:
                if face or getattr(type(args[0]), name) is check_and_call:  # the outermost, not that of a class above
                    plan.tell(error, who, args, kwargs)
                raise
        except Exception as error:
            hide_frames(error)
            raise

    if any("Annotated[" in hint for hint in _hints(function)):
        check_and_call.__signature__ = plain_signature(function)  # type: ignore[attr-defined]
    if face:
        check_and_call.__module__, check_and_call.__qualname__ = face, name
    return check_and_call


def ours(one: Any) -> bool:
    """True if a function or class is the package's own."""
    return (getattr(one, "__module__", None) or "").partition(".")[0] == _PACKAGE


def guard(face: dict[str, Any], own: bool = False) -> None:
    """Let the functions and classes that a module shows check their arguments, and suggest names for missing ones.

    Args:
        face: the module's globals().
        own: whether to leave out what is imported, and names that are not in `__all__`, if it has one.
    """
    face.setdefault("__getattr__", missing_from(face["__name__"]))
    list_public(face)
    shown = face.get("__all__", face) if own else face
    for name, one in list(face.items()):
        if name.startswith("_") or not ours(one) or name not in shown:
            continue
        if own and not one.__module__.startswith(face["__name__"]):
            continue
        if inspect.isfunction(one) and not hasattr(one, "__wrapped__") and _hints(one):
            face[name] = _CHECKED.setdefault(one, check_arguments(one, name, 0, face["__name__"]))
        elif isinstance(one, type) and not issubclass(one, BaseException):
            _guard_class(one)


def _guard_class(one: type) -> None:
    if one.__name__ == "Tensor":  # which is often made, and checks its arguments itself
        return
    flags = [name for name in dir(one) if not name.startswith("_") and name not in ("construct", "init_state")]
    for name in ("__init__", "__call__", "init_state", *flags):
        owner = next((kind for kind in one.__mro__ if name in vars(kind)), object)
        method = vars(owner).get(name)
        if not inspect.isfunction(method) or hasattr(method, "__wrapped__") or not ours(owner):
            continue
        if name == "__init__":
            needs_check = bool(_hints(method))
        else:
            always = name in ("__call__", "init_state")
            needs_check = says_something(method) if always else "bool" in _hints(method)
        if needs_check:
            setattr(owner, name, check_arguments(method, name, 1))
    maker = getattr(vars(one).get("__new__"), "__func__", None)  # of arrays, which are not made by `__init__`
    if issubclass(one, np.ndarray) and maker is not None and not hasattr(maker, "__wrapped__"):
        one.__new__ = check_arguments(maker, one.__name__, 1, one.__module__)  # type: ignore[method-assign]
