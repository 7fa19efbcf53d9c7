"""Fields: declare the constants and options of a class once, each with its default, range and meaning.

    @with_fields
    class Cubic(nn.Neuron):
        '''h = v - steepness v^3 + x'''

        steepness: Any = field(0.5, Range(0.0), "how strongly a high potential is pulled back")

The decorator makes the class's signature, argument checks, docstring and `repr` from its fields.
"""

from __future__ import annotations

import ast
import builtins
import functools
import inspect
import re
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, TypeVar, dataclass_transform, overload

from snncell.base.arguments.guard import refuse_name
from snncell.base.arguments.kinds import join_words
from snncell.cell.ranges import FINITE, Range, check_constant, one_of
from snncell.dtype import NUMBERS
from snncell.tape.parameter import Parameter

Kind = TypeVar("Kind", bound=type)
REQUIRED = inspect.Parameter.empty


@dataclass(frozen=True)
class Field:
    """The result of `field`, which documents its arguments. `with_fields` adds `name`, `annotation` and `kw_only`."""

    default: Any = REQUIRED
    range: Range | tuple[Any, ...] | None = None
    meaning: str = ""
    learned: Literal["by request", "always", "never"] = "by request"
    follows: str = ""
    convert: Callable[[Any, str, str], Any] | None = None
    read: Callable[[Any], Any] | None = None
    keep: bool = True
    quiet: bool = False
    init: bool = True
    name: str = ""
    annotation: Any = Any
    kw_only: bool = False

    def but(self, default: Any) -> Any:
        """A copy of the field with another default."""
        return replace(self, default=default)

    def text(self) -> str:
        """Its line in the docstring: meaning, range and default."""
        words = ""
        if isinstance(self.range, Range) and self.range.words() != FINITE.words():
            words = f", {self.range.words().removeprefix('is ')}"
        if isinstance(self.range, tuple):
            words = f": {join_words([_quote(one) for one in self.range])}"
        shown = self.follows or ("" if self.default is REQUIRED else _quote(self.default))
        return f"{self.meaning}{words}." + (f" Default: {shown}." if shown else "")

    def parameter(self) -> inspect.Parameter:
        """Its parameter in the class's signature."""
        kind = inspect.Parameter.KEYWORD_ONLY if self.kw_only else inspect.Parameter.POSITIONAL_OR_KEYWORD
        return inspect.Parameter(self.name, kind, default=self.default, annotation=self.annotation)

    def prepare(self, value: Any, who: str) -> Any:
        """Check and convert an argument."""
        if self.convert is not None:
            return self.convert(value, who, self.name)
        if isinstance(self.range, tuple):
            return one_of(value, self.range, who, self.name)
        return value


def _quote(value: Any) -> str:
    if isinstance(value, str):
        return f'"{value}"'
    if inspect.isfunction(value):  # its repr contains an address
        return value.__qualname__
    return f"{type(value).__name__}()" if hasattr(value, "construct") else repr(value)


def field(
    default: Any = REQUIRED,
    range: Any = None,
    meaning: str = "",
    *,
    learned: Literal["by request", "always", "never"] = "by request",
    follows: str = "",
    convert: Callable[[Any, str, str], Any] | None = None,
    read: Callable[[Any], Any] | None = None,
    keep: bool = True,
    quiet: bool = False,
    init: bool = True,
) -> Any:
    """Declare a constant or an option of a class. `with_fields` makes signature, checks, docstring and repr from it.

    In a class body, `name: type = field(...)` declares a field, and `name: Annotated[type, field(meaning=...)]` a
    required argument. `name = field(default)` changes the default of a field of a base class.

    Args:
        default: its default.
        range: an `nn.Range` for a constant, a tuple of the allowed values of an option, or None for any value.
        meaning: one line for the docstring.
        learned: "by request" to learn it if `learnable` names it; "always" or "never".
        follows: the name of another constant, whose value, learned or not, replaces None.
        convert: a function (value, class name, argument name) that checks and converts an argument.
        read: a function of the object that computes the present value, for an argument that is not stored.
        keep: whether the argument becomes an attribute.
        quiet: True to leave it out of `repr` while it has its default.
        init: False for a field of a base class that is not an argument of this class.
    Example:
        >>> @nn.with_fields
        ... class Cubic(nn.Neuron):
        ...     steepness: object = nn.field(0.5, nn.Range(0.0), "pull on a high potential")
        ...
        ...     def charge(self, x, v):
        ...         return v - self.steepness * v * v * v + x
        >>> Cubic(0.25, reset="zero").steepness
        0.25
    """
    return Field(default, range, meaning, learned, follows, convert, read, keep and read is None, quiet, init)


# --- classes ----------------------------------------------------------------------------------------------------------


@overload
def with_fields(kind: Kind, /) -> Kind: ...
@overload
def with_fields(*, kw_only: bool = False, by_place: str = "") -> Callable[[Kind], Kind]: ...
@dataclass_transform(eq_default=False)
def with_fields(kind: Any = None, /, *, kw_only: bool = False, by_place: str = "") -> Any:
    """Class decorator: make `__init__`, the Args section of the docstring, and `repr` from a class's fields.

    Positional arguments come in the order of a dataclass: first the fields of base classes. For further initialisation,
    define a method `_complete(given)`. `__init__` calls it last, with all arguments in a dict. A class that defines
    `__init__(self, ..., **options)` keeps it, and its signature shows the fields in place of `options`.

    Args:
        kind: the class.
        kw_only: True if its own fields are keyword-only arguments.
        by_place: the names of the positional arguments, in order, separated by spaces; all others are keyword-only.
    Example:
        >>> @nn.with_fields
        ... class Power(nn.Cell):
        ...     exponent: float = nn.field(2.0, meaning="the power of the input")
        ...
        ...     def construct(self, x):
        ...         return x**self.exponent
        >>> Power(3.0)
        Power(exponent=3.0)
    """
    if kind is None:
        return functools.partial(_give_fields, kw_only=kw_only, by_place=tuple(by_place.split()))
    return _give_fields(kind, kw_only, ())


def fields_of(kind: type) -> dict[str, Field]:
    """The fields of a class by name, its own first."""
    return getattr(kind, "__fields__", {})


def fields_defined_with(kind: type, attribute: str) -> dict[str, Field]:
    """The fields of the class that defines `attribute`, without fields that subclasses add."""
    return fields_of(next(one for one in kind.__mro__ if attribute in vars(one)))


def as_number(value: Any, who: str, name: str) -> float:
    """Convert an argument to a Python float (for `field(convert=...)`)."""
    return float(value)


def _give_fields(kind: Any, kw_only: bool, by_place: tuple[str, ...]) -> Any:
    above, own = fields_of(kind), dict(_own_fields(kind, kw_only))
    both = above | own
    if by_place:
        both = {name: both[name] for name in by_place} | both  # the positional arguments first
        both = {name: replace(one, kw_only=name not in by_place) for name, one in both.items()}
    positional = [name for name, one in both.items() if not one.kw_only]  # in the order of a dataclass
    new = [name for name in own if name not in above]
    kind.__fields__ = {name: both[name] for name in dict.fromkeys([*positional, *new, *above])}
    for name, one in own.items():
        if name in vars(kind):
            delattr(kind, name)
        if one.read is not None:
            setattr(kind, name, property(one.read, doc=one.meaning))
    if hasattr(kind, "hold"):
        ranges = {one.name: one.range for one in own.values() if _is_constant(kind, one) and one.keep}
        kind.hold(ranges | {name: one for name, one in kind.ranges.items() if name in own})
    if "__init__" in vars(kind):
        _describe(kind.__init__, kind, list(inspect.signature(kind.__init__).parameters.values())[:-1])
    else:
        kind.__init__ = _make_init(kind)
    if getattr(kind, "extend_repr", None) is None or kind.extend_repr.__qualname__ == "Cell.extend_repr":
        kind.extend_repr = lambda self: ", ".join(f"{name}={text}" for name, text in shown_fields(self).items())
    if kind.__doc__:
        kind.__doc__ = _with_arguments(inspect.cleandoc(kind.__doc__), kind, above)
    return kind


def _own_fields(kind: type, kw_only: bool) -> Iterator[tuple[str, Field]]:
    """The fields in the body of a class: new ones, and inherited ones with a new default."""
    above, hints = fields_of(kind), inspect.get_annotations(kind)
    for name in [*hints, *(name for name in vars(kind) if name not in hints)]:
        one, hint = vars(kind).get(name), hints.get(name, "Any")
        if "Annotated" in str(hint) and name not in vars(kind):  # a required argument
            one = next((mark for mark in _evaluate(hint, kind).__metadata__ if isinstance(mark, Field)), None)
            hint = _annotated_type(hint) if isinstance(hint, str) else hint.__origin__
        if not isinstance(one, Field):
            continue
        if name in above and name not in hints:
            default = one.default if one.init else above[name].default
            yield name, replace(above[name], default=default, follows=one.follows, init=one.init)
        else:
            yield name, replace(one, name=name, annotation=hint, kw_only=kw_only)


def _annotated_type(annotated: str) -> str:
    """The source text of the type in `Annotated[type, field(...)]`."""
    subscript: Any = ast.parse(annotated, mode="eval").body
    return ast.get_source_segment(annotated, subscript.slice.elts[0]) or ""


def _is_constant(kind: type, one: Field) -> bool:
    return isinstance(one.range, Range) and hasattr(kind, "hold") and one.convert is None


# --- __init__ ---------------------------------------------------------------------------------------------------------


def _make_init(kind: Any) -> Callable[..., None]:
    def __init__(self: Any, *args: Any, **given: Any) -> None:  # noqa: N807 (it becomes the class's)
        if unknown := [name for name in given if name not in signature.parameters]:
            refuse_unknown(type(self), unknown)
        bound = signature.bind(self, *args, **given)
        bound.apply_defaults()
        values = dict(bound.arguments)
        _initialise(values.pop("self"), kind, values)

    this = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    signature = _describe(__init__, kind, [this])
    __init__.made_of_fields = True  # type: ignore[attr-defined]
    return __init__


def _describe(init: Any, kind: Any, first: list[inspect.Parameter]) -> inspect.Signature:
    """Give `__init__` the signature of the class's fields, after its own parameters."""
    names = [p.name for p in first]
    parameters = [one.parameter() for one in fields_of(kind).values() if one.init and one.name not in names]
    parameters.sort(key=lambda p: p.kind)
    signature = inspect.Signature([*first, *parameters], return_annotation=None)
    hints = {p.name: _evaluate(p.annotation, kind) for p in signature.parameters.values() if p.name != "self"}
    init.__signature__, init.__annotations__ = signature, hints | {"return": None}
    init.__module__, init.__qualname__ = kind.__module__, f"{kind.__qualname__}.__init__"
    init.refuses_names = True  # it raises its own error for unknown names
    return signature


def _evaluate(annotation: Any, kind: type) -> Any:
    """Evaluate an annotation in the module of its class; Any for unknown names."""
    if not isinstance(annotation, str):
        return annotation
    for one in kind.__mro__:
        with suppress(NameError, AttributeError, TypeError):
            return eval(annotation, dict(vars(sys.modules.get(one.__module__, builtins))))
    return Any


def refuse_unknown(kind: type, names: list[str]) -> None:
    """Raise a CallError for unknown arguments."""
    refuse = getattr(kind, "_refuse_options", None)
    if refuse is not None:
        refuse(names)
    refuse_name(kind.__name__, names[0], list(inspect.signature(kind).parameters))


def _initialise(cell: Any, kind: Any, values: dict[str, Any]) -> None:
    """Initialise a new object: call the hand-written `__init__` of a base class, then set the remaining fields."""
    who, fields = type(cell).__name__, fields_of(kind)
    follow = [one for one in fields.values() if one.follows and values.get(one.name, 0) is None]
    values |= {one.name: values[one.follows] for one in follow}
    above, takes, unpacks = _find_written_init(kind)
    first = {name: values[name] for name in values if name in takes and fields[name].convert is None}
    rest = [fields[name] for name in values if name not in first]
    if "constants" in (*takes, unpacks):
        on_request = [one for one in rest if _is_constant(kind, one) and one.keep and one.learned == "by request"]
        constants = {one.name: values[one.name] for one in on_request}
        rest = [one for one in rest if one.name not in constants]
        first |= constants if unpacks == "constants" else {"constants": constants}
    above.__init__(cell, **first)
    for one in rest:
        values[one.name] = value = one.prepare(values[one.name], who)
        if not one.keep:
            continue
        if _is_constant(kind, one):
            cell.declare(one.name)
            value = cell.to_learn(one.name, value) if one.learned == "always" else value
        elif isinstance(one.range, Range) and one.convert is None and value is not None:
            value = one.range.check(value if one.range.whole else check_constant(value, who, one.name), who, one.name)
        setattr(cell, one.name, value)
    for one in follow:
        if one.follows in vars(cell) and not isinstance(vars(cell)[one.name], Parameter):
            setattr(cell, one.name, vars(cell)[one.follows])
    if hasattr(cell, "_complete"):
        cell._complete(values)


@functools.cache
def _find_written_init(kind: type) -> tuple[Any, set[str], str]:
    """The next class with a hand-written `__init__`, its arguments, and the name of its ** argument."""
    inits = ((base, vars(base)["__init__"]) for base in kind.__mro__ if "__init__" in vars(base))
    above = next(base for base, init in inits if not getattr(init, "made_of_fields", False))
    takes = inspect.signature(vars(above)["__init__"]).parameters
    unpacks = next((p.name for p in takes.values() if p.kind is p.VAR_KEYWORD), "")
    return above, {*takes} - {unpacks} | (fields_of(above).keys() if unpacks else set()), unpacks


def shown_fields(cell: Any) -> dict[str, str]:
    """The texts of an object's fields for `repr`, without Cells, because `repr` lists children separately."""
    shown = {}
    for name, one in fields_of(type(cell)).items():
        value = vars(cell).get(name, REQUIRED)
        if value is REQUIRED or not one.init or hasattr(value, "construct"):
            continue
        if isinstance(value, Parameter):
            shown[name] = f"Parameter{value.shape}"
        elif not (one.quiet and type(value) is type(one.default) and value == one.default):
            shown[name] = repr(value.item() if isinstance(value, NUMBERS) else value)
    return shown


_SECTION = re.compile(r"^(Args|Inputs|Returns|Raises|Attributes|Note|Source|Example)\b.*:", re.M)


def _with_arguments(doc: str, kind: type, above: dict[str, Field]) -> str:
    """The docstring of a class with its fields in the Args section."""
    fields = {name: one for name, one in fields_of(kind).items() if one.init}
    bases = [base for base in reversed(kind.__mro__[1:]) if not base.__name__.startswith("_")]  # documented ones
    known = {name for base in bases for name in fields_of(base)}
    same = [n for n, one in fields.items() if n in known and _default_of(one) == _default_of(above[n])]
    entries = [f"{name}: {one.text()}" for name, one in fields.items() if name not in same]
    for names in textwrap.wrap(", ".join(same), 80):  # each line needs its colon, for docstring parsers
        first = next(base for base in bases if same[0] in fields_of(base))
        entries.append(f"{names.removesuffix(',')}: see `{first.__name__}`.")
    wrap = partial(textwrap.fill, width=112, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)
    text = textwrap.indent("\n".join(map(wrap, entries)), "    ")
    section = _SECTION.search(doc)
    if section is not None and section[1] == "Args":
        return f"{doc[: section.end()]}\n{text}{doc[section.end() :]}"
    place = len(doc) if section is None else section.start()
    return f"{doc[:place].rstrip()}\n\nArgs:\n{text}\n\n{doc[place:]}".rstrip()


def _default_of(one: Field) -> tuple[Any, str]:
    return one.default, one.follows
