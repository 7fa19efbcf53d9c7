"""Texts of values for error messages, which are always short and never raise another error; HTML for notebooks."""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from snncell.errors import (
    QUOTE,
    ArgumentError,
    ArgumentTypeError,
    DTypeError,
    ParameterError,
    ShapeError,
    SnncellError,
    TensorIndexError,
    cut,
)

_AT = re.compile(r"^<.* at 0x[0-9a-fA-F]+>$")  # the default repr of objects
_DIGITS = 100  # the most digits of an integer that is shown in full


def show(value: Any) -> str:
    """The `repr` of a value, cut if it is long; classes, modules and functions by their names."""
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > _DIGITS * 3:
        return f"an integer of {value.bit_length()} bits"
    if isinstance(value, type):
        return f"the class {value.__name__}"
    if isinstance(value, (str, bytes, list, tuple)) and len(value) > QUOTE:
        return f"{cut(repr(value[:QUOTE]))} (of length {len(value)})"
    shape = getattr(value, "shape", None)
    if isinstance(shape, tuple) and shape and hasattr(value, "dtype"):
        if fields := getattr(value.dtype, "names", None):
            ours = type(value).__module__.partition(".")[0] == __name__.partition(".")[0]
            return repr(value) if ours else cut(f"an array of shape {shape} with the fields {', '.join(fields)}")
        kind = f"dtype {value.dtype} and " if getattr(value.dtype, "kind", "f") in "OUSMm" else ""  # no numbers
        return f"a {type(value).__name__} of {kind}shape {shape}"
    try:
        text = repr(value)
    except Exception:  # from a user-defined repr
        return f"a {type(value).__name__} whose repr fails"
    if isinstance(value, (list, tuple)) and "\n" in text:
        return cut(f"a {type(value).__name__} of {len(value)}: {', '.join(map(brief, value))}")
    if "\n" not in text and not _AT.search(text):
        return cut(text)
    return f"the function {value.__name__}" if inspect.isroutine(value) else f"a {type(value).__name__}"


def came(value: Any) -> str:
    """The type of a wrong value; for a class of layers or spike functions, with the code that creates an instance."""
    what = show(value) if isinstance(value, type) else f"a {type(value).__name__}"
    return what + suggest_instance(value)


# Losses by other libraries' names, without "_" and "loss".
LOSSES = {
    **dict.fromkeys(["crossentropy", "categoricalcrossentropy", "sparsecategoricalcrossentropy"], "CrossEntropyLoss"),
    **dict.fromkeys(["mse", "meansquarederror", "l2"], "MSELoss"),
    **dict.fromkeys(["mae", "meanabsoluteerror", "l1"], "L1Loss"),
    **dict.fromkeys(["bce", "binarycrossentropy"], "BCELoss"),
    "nll": "NLLLoss",
}


def suggest_instance(value: Any) -> str:
    """The hint "; create an instance: nn.ReLU()" if a class of Cells, or the name of a loss, was passed for a Cell."""
    if isinstance(value, str):
        loss = LOSSES.get(value.replace("_", "").lower().removesuffix("loss"))
        return f"; create an instance: nn.{loss}()" if loss else ""
    if isinstance(value, (list, tuple)):
        return next(filter(None, map(suggest_instance, value)), "")
    package, _, rest = getattr(value, "__module__", "").partition(".")
    own = package == __name__.partition(".")[0]
    if not isinstance(value, type) or not (own or hasattr(value, "construct")):
        return ""
    prefix = f"{rest.removeprefix('common.').partition('.')[0]}." if own else ""
    try:
        parameters = inspect.signature(value).parameters.values()
        needed = [p for p in parameters if p.default is p.empty and p.kind < p.KEYWORD_ONLY]
    except (TypeError, ValueError):
        needed = []
    names = ", ".join("..." if p.kind is p.VAR_POSITIONAL else p.name for p in needed)
    return f"; create an instance: {prefix}{value.__name__}({names})"


def brief(value: Any) -> str:
    """A value in a list of arguments; an array by its dtype and shape."""
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    if isinstance(shape, tuple) and dtype is not None:
        if getattr(dtype, "names", None):
            return show(value)
        return f"{str(dtype).lower()}{list(shape)}"
    return cut(show(value), 60)


_EXTENDED = (ArgumentError, ArgumentTypeError, DTypeError, ShapeError, TensorIndexError, ParameterError)
_NAME = re.compile(r"(\w+)(?:\[\d+\])?=")
_ARRAY = re.compile(_NAME.pattern + r"\w+\[[\d, ]*\]")  # x=float32[2, 3]


def from_inside(error: SnncellError, who: str, arguments: str) -> SnncellError | None:
    """The error with the call and its arguments in the message; None if the message contains both already."""
    text = str(error)
    if error.names_call or type(error) not in _EXTENDED:
        return None
    named = who in text.partition(": ")[0]
    arrays = _ARRAY.findall(arguments) if isinstance(error, (ShapeError, DTypeError)) else []
    names = arrays or _NAME.findall(arguments)
    if not named:
        text = f"{who}({arguments}): {text}"
    # Ignore names in the suggested code: "take ops.real(x) first", "convert it by x.astype('int64')".
    elif arguments and not any(re.search(rf"\b{name}\b(?!\)|\.\w)", text) for name in names):
        text = f"{text} Arguments: {arguments}."
    else:
        return None
    extended: SnncellError = type(error)(text).with_traceback(error.__traceback__)
    for note in getattr(error, "__notes__", ()):
        extended.add_note(note)
    extended.names_call = not named  # if False, the layer that called the operation adds its name, too
    return extended


def percent(part: float) -> str:
    """A fraction as a percentage with two digits."""
    return f"{100 * part:.2g} %"


_LIKENESS = 0.75  # the smallest similarity of a suggested name; random_split and RandomFlipUD have 0.70


def nearest(name: str, names: Iterable[str]) -> str | None:
    """The name most similar to a misspelt one, for "Did you mean ...?", or None. Case, underscores and hyphens do not
    count, so fast_sigmoid matches FastSigmoid.
    """
    # Names with the same case of the first letter come last, and so replace equal names: Relu is ReLU, not relu.
    alike = sorted(names, key=lambda one: one[:1].isupper() == name[:1].isupper())
    plain = {plain_name(one): one for one in alike}
    near = difflib.get_close_matches(plain_name(name)[:100], plain, 1, _LIKENESS)
    return plain[near[0]] if near else None


def plain_name(name: str) -> str:
    """A name in lower case without underscores, hyphens and spaces."""
    return re.sub("[-_ ]", "", name.lower())


# --- HTML for notebooks -----------------------------------------------------------------------------------------------

# All text is escaped. No colours are set, because notebooks have a light or a dark theme.
_LEFT, _RIGHT = "text-align: left; vertical-align: top", "text-align: right; vertical-align: top"


class Markup(str):
    """HTML whose text is escaped already."""

    __slots__ = ()


def markup(part: str) -> Markup:
    """Escape text; Markup is returned unchanged."""
    return part if isinstance(part, Markup) else Markup(escape(part).replace("\n", "<br>"))


def join_parts(parts: Iterable[str]) -> Markup:
    """Concatenate several pieces."""
    return Markup("".join(map(markup, parts)))


def element(tag: str, *parts: str, style: str = "") -> Markup:
    """An HTML element around pieces."""
    return Markup(f"<{tag}{f' style={chr(34)}{escape(style)}{chr(34)}' if style else ''}>{join_parts(parts)}</{tag}>")


def table(head: Sequence[str], rows: Iterable[Sequence[str]], numbers: int = 0, headed: bool = True) -> Markup:
    """A table whose last `numbers` columns are aligned to the right; `headed` is False for a nested table."""
    styles = [_LEFT] * (len(head) - numbers) + [_RIGHT] * numbers

    def row(tag: str, cells: Sequence[str]) -> Markup:
        return element("tr", *(element(tag, cell, style=style) for cell, style in zip(cells, styles, strict=True)))

    body = (row("td", cells) for cells in rows)
    return element("table", element("thead", row("th", head)) if headed else Markup(), element("tbody", *body))


ROWS = 30  # of a table that fits on a screen


def titled_table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]], numbers: int = 0) -> Markup:
    """A table under its title, for `_repr_html_`; after `ROWS` rows it is cut, with the number of other rows."""
    more = [(f"and {len(rows) - ROWS:,} more", *[""] * (len(head) - 1))] if len(rows) > ROWS else []
    return element("div", element("b", title), table(head, [*rows[:ROWS], *more], numbers))


def cut_lines(lines: Sequence[str]) -> list[str]:
    """Lines for `repr`, cut after `ROWS` lines in the same way."""
    return [*lines[:ROWS], *([f"... and {len(lines) - ROWS:,} more"] if len(lines) > ROWS else [])]


def fold_details(summary: str, content: str, shown: bool = False) -> Markup:
    """A summary that shows or hides the content when clicked."""
    return Markup(f"<details{' open' if shown else ''}>{element('summary', summary)}{markup(content)}</details>")


def array(title: str, facts: dict[str, str], values: str) -> Markup:
    """An array: facts about it by name, and some of its values."""
    words = join_parts(one for name, text in facts.items() for one in (Markup(" &middot; "), f"{name} {text}".strip()))
    return element("div", element("b", title), words, element("pre", values, style="margin: .2em 0 0 0"))
