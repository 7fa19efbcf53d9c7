"""The packages that NIR needs, imported when they are first used."""

from __future__ import annotations

from typing import Any

from snncell.base.signals import import_once
from snncell.errors import NirError


def package(name: str, who: str) -> Any:
    """The package `name`, "nir" or "h5py"."""
    try:
        return import_once(name)
    except ImportError as error:
        raise NirError(f"{who}: needs the package {name}: pip install snncell[nir] ({error})") from None
