"""Package metadata: one version, consistent requirements, supported Python versions, and a complete sdist."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

import snncell

ROOT = Path(__file__).parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = PYPROJECT["project"]
CONDA_NAMES = {"matplotlib": "matplotlib-base"}  # without the windows of Qt


def read(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))
    return found


# --- Pythons ----------------------------------------------------------------------------------------------------------


def test_listed_python_versions_equal_allowed_versions() -> None:
    named = {
        found[1]
        for line in PROJECT["classifiers"]
        if (found := re.fullmatch(r".*Python :: (3\.\d+)", line)) is not None
    }
    allowed = SpecifierSet(PROJECT["requires-python"])
    assert named == {version for number in range(40) if (version := f"3.{number}") in allowed}


def test_oldest_python_is_target_of_linter_and_recipe() -> None:
    oldest = next(number for number in range(40) if f"3.{number}" in SpecifierSet(PROJECT["requires-python"]))
    assert PYPROJECT["tool"]["ruff"]["target-version"] == f"py3{oldest}"
    assert read("packaging/recipe.yaml")["context"]["python_min"] == f"3.{oldest}"


# --- requirements -----------------------------------------------------------------------------------------------------

EVERY = [*PROJECT["dependencies"], *(one for extra in PROJECT["optional-dependencies"].values() for one in extra)]


@pytest.mark.parametrize("text", [text for text in sorted(set(EVERY)) if not text.startswith(("tbb", "torch"))])
def test_requirement_has_lower_and_upper_bound(text: str) -> None:
    assert {one.operator for one in Requirement(text).specifier} == {">=", "<"}


def test_package_has_same_bounds_in_every_extra() -> None:
    bounds: dict[str, set[SpecifierSet]] = {}
    for requirement in map(Requirement, EVERY):
        bounds.setdefault(requirement.name, set()).add(requirement.specifier)
    assert {name for name, found in bounds.items() if len(found) > 1} == {"numpy"}  # numba-cuda's


def test_recipe_requirements_equal_pyproject() -> None:
    recipe = read("packaging/recipe.yaml")
    names = {CONDA_NAMES.get(one.name, one.name): one.specifier for one in map(Requirement, PROJECT["dependencies"])}
    names["python"] = SpecifierSet(PROJECT["requires-python"])
    lines = [line.replace("${{ python_min }}", recipe["context"]["python_min"]) for line in requirements(recipe, "run")]
    assert {line.partition(" ")[0]: SpecifierSet(line.partition(" ")[2]) for line in lines} == names
    builders = [f"{one.name} {one.specifier}" for one in map(Requirement, PYPROJECT["build-system"]["requires"])]
    assert set(builders) < set(requirements(recipe, "host"))


def requirements(recipe: dict[str, Any], when: str) -> list[str]:
    found: list[str] = recipe["requirements"][when]
    return found


# --- one version, one license -----------------------------------------------------------------------------------------


def test_version_is_the_same_everywhere() -> None:
    assert read("packaging/recipe.yaml")["context"]["version"] == snncell.__version__
    assert read("CITATION.cff")["version"] == snncell.__version__
    (newest,) = re.findall(r"\A# Changelog\n\n## (\S+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"))
    assert newest == snncell.__version__


def test_citation_file_is_valid_cff() -> None:
    citation = read("CITATION.cff")
    assert citation["cff-version"] == "1.2.0" and citation["type"] == "software"
    # What its schema requires.
    assert citation["message"] and citation["title"] and all(author["name"] for author in citation["authors"])
    assert citation["license"] == PROJECT["license"] == read("packaging/recipe.yaml")["about"]["license"]


def test_recipe_has_valid_sections() -> None:
    recipe = read("packaging/recipe.yaml")
    assert recipe["schema_version"] == 1
    # The sections of rattler-build's format; it refuses others.
    assert recipe.keys() <= {
        "schema_version",
        "context",
        "package",
        "source",
        "build",
        "requirements",
        "tests",
        "about",
    } | {"extra"}
    assert recipe["build"]["noarch"] == "python" and recipe["package"]["name"] == PROJECT["name"]
    assert recipe["about"]["summary"] == PROJECT["description"]
    assert (ROOT / recipe["about"]["license_file"]).is_file()


# --- the sdist --------------------------------------------------------------------------------------------------------


def test_sdist_has_every_file_of_repository() -> None:
    included = PYPROJECT["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
    assert [name for name in included if not (ROOT / name.strip("/")).exists()] == []
    if not (ROOT / ".git").exists():
        pytest.skip("this is no clone but an sdist: there is no list of files to compare with")
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split(
        "\n"
    )
    own = {"pyproject.toml", ".gitignore"}  # hatchling takes these anyway
    assert {name.partition("/")[0] for name in listed if name} - own == {name.strip("/") for name in included}
