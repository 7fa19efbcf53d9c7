"""Scripts after the chapters of MindSpore's guides that touch Cells: they run when the import is read as snncell.

A script is code for MindSpore, and stays so: nothing is changed but the name of the package in its imports. What a
print gives stands in its lines `# prints ...`, as on the pages of the documentation.
"""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

import snncell

FOLDER = Path(__file__).parents[1] / "mindspore_guides"
SCRIPTS = sorted(FOLDER.glob("*.py"))
SAME = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
IMPORT = re.compile(r"^(import|from) mindspore\b", re.M)
PRINTS = re.compile(r"^# prints (.*)$", re.M)


@pytest.mark.sampled(3)
@pytest.mark.compiled
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_a_guide_runs_with_its_import_changed(script, tmp_path, monkeypatch, capsys):
    text = script.read_text(encoding="utf-8")
    assert IMPORT.search(text) and "snncell" not in text
    monkeypatch.chdir(tmp_path)
    try:
        exec(compile(IMPORT.sub(r"\1 snncell", text), str(script), "exec"), {"__name__": "guide"})
    finally:
        snncell.set_context(mode=snncell.PYNATIVE_MODE)
    printed, said = capsys.readouterr().out, "\n".join(PRINTS.findall(text))
    assert said and doctest.OutputChecker().check_output(said, printed, SAME), f"{script.name} prints\n{printed}"


def test_the_chapters_are_there():
    chapters = {"network_construction", "automatic_differentiation", "custom_bprop", "parameter", "hooks"}
    assert chapters | {"mixed_precision", "training_loop"} <= {script.stem for script in SCRIPTS}
