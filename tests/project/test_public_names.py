"""Public names as `dir()` lists them, and their signatures as `help()` shows them."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

PACKAGES = [
    "snncell",
    *(
        f"snncell.{name}"
        for name in (
            "amp", "common.initializer", "data", "distributed", "dtype", "encode", "energy", "errors", "io",
            "mindspore", "mindspore.context", "monitoring", "nir", "nn", "ops", "plot", "quantise", "sklearn",
            "surrogate", "testing", "torch", "train",
        )
    ),
]  # fmt: skip
# Marks for the check of arguments, private names, and objects that have no repr of their own.
PRIVATE = re.compile(r"\bAnnotated\b|\b(Own|Within|Kind|ByName|Unlike)\(|\b_[A-Za-z]\w*|<[\w.]+ object at")


def package_of(name: str) -> ModuleType:
    if name == "snncell.sklearn":
        pytest.importorskip("sklearn")
    return importlib.import_module(name)


def signatures(package: ModuleType) -> Iterator[tuple[str, str]]:
    """The name and the signature of each public function and class of a package."""
    for name in package.__all__:
        one: Any = getattr(package, name)
        if callable(one) and not isinstance(one, ModuleType):
            try:
                yield name, str(inspect.signature(one))
            except ValueError:  # of a class made in C
                continue


@pytest.mark.parametrize("name", PACKAGES)
def test_dir_lists_only_public_names(name: str) -> None:
    package = package_of(name)
    names = {one for one in dir(package) if not one.startswith("__")}
    assert names >= set(package.__all__)
    assert not [one for one in names if one.startswith("_")]
    if name != "snncell":  # which has packages
        assert not [one for one in names if isinstance(getattr(package, one), ModuleType)]


@pytest.mark.parametrize("name", PACKAGES)
def test_signatures_contain_no_private_names(name: str) -> None:
    found = {one: signature for one, signature in signatures(package_of(name)) if PRIVATE.search(signature)}
    assert not found


@pytest.mark.parametrize("name", PACKAGES)
def test_functions_have_their_public_module(name: str) -> None:
    package = package_of(name)
    for one in map(vars(package).get, package.__all__):
        if inspect.isfunction(one):
            assert one.__module__ in (*PACKAGES, "snncell.tape.state")  # of which two packages show functions
            assert getattr(importlib.import_module(one.__module__), one.__name__, one) is one
            assert inspect.getsource(one)


def test_check_of_signatures_finds_private_names() -> None:
    for signature in ("(x: 'Annotated[Any, Own()]')", "(x: Any = <a.B object at 0x1>)", "(x: '_Pair')"):
        assert PRIVATE.search(signature)
    assert not PRIVATE.search("(x: 'Count | None' = None, from_: float = 0.0) -> 'tuple[Tensor, ...]'")
