"""Text of errors and reports: cut long quotations, find the nearest name."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

QUOTE = 200  # characters of what an error quotes: a name, a value, a path
MESSAGE = 4000  # characters of a whole message
LIKENESS = 0.75  # of two names that one may take for each other: random_split and RandomFlipUD have 0.70
_MORE = f"{{{QUOTE + 1},}}"
# A quotation opens behind no letter and before no space: what stands between two quotations is none.
_LONG = re.compile(
    rf"""(?<![\w)\]])'(?=\S)(?:[^'\\]|\\.){_MORE}'|(?<![\w)\]])"(?=\S)(?:[^"\\]|\\.){_MORE}"|\S{_MORE}""", re.DOTALL
)


def cut(text: str, most: int = QUOTE) -> str:
    """A text of at most about `most` characters: of a longer one the beginning and the end, and how long it was."""
    if len(text) <= most:
        return text
    return f"{text[: most * 2 // 3]}...({len(text)} characters)...{text[-(most // 6) :]}"


def shorten(message: str) -> str:
    """A message with what is long in it cut: quoted texts, runs without a space, and at last the whole."""
    if len(message) <= QUOTE:
        return message
    return cut(_LONG.sub(lambda quotation: cut(quotation[0]), message), MESSAGE)


def percent(part: float) -> str:
    """A part of one, in two digits."""
    return f"{100 * part:.2g} %"


def nearest(name: str, names: Iterable[str]) -> str | None:
    """The name that a misspelt one is nearest to, for "Did you mean ...?"; None if none is near.

    Case, underscores and hyphens do not count: fast_sigmoid is FastSigmoid.
    """
    plain = {_plain(one): one for one in names}
    near = difflib.get_close_matches(_plain(name)[:100], plain, 1, LIKENESS)
    return plain[near[0]] if near else None


def _plain(name: str) -> str:
    return re.sub("[-_ ]", "", name.lower())
