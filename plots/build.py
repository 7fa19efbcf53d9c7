"""Draw the gallery: `python plots/build.py` runs the script of every picture.

`python plots/build.py raster weights` draws these two only, and `--folder` chooses another folder. `--page` writes
docs/gallery.md from the docstrings of the scripts.
"""

from __future__ import annotations

import argparse
import sys
import time
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

HERE = Path(__file__).resolve().parent
PAGE = HERE.parent / "docs" / "gallery.md"
SHARED = ("build", "trained")  # scripts without a picture
SIZE = 250_000, 400_000  # maximum size in bytes of a picture and of an animation
INTRODUCTION = """\
# Gallery

On this page you can find a plot and copy the short script that draws it. `python plots/build.py` draws all of them. The
functions are on the page of [`plot`](reference/plot.md).
"""


def names() -> list[str]:
    """Return the names of all scripts, sorted."""
    return sorted(path.stem for path in HERE.glob("*.py") if path.stem not in SHARED)


@cache
def load(name: str) -> ModuleType:
    """Import the script of a picture."""
    if str(HERE) not in sys.path:
        sys.path.append(str(HERE))  # so that the script can import `trained`
    found = spec_from_file_location(f"gallery_{name}", HERE / f"{name}.py")
    assert found is not None and found.loader is not None
    script = module_from_spec(found)
    found.loader.exec_module(script)
    return script


def caption(name: str) -> str:
    """Return the caption of a picture: the docstring of its script, in one line."""
    return " ".join((load(name).__doc__ or "").split())


def picture(name: str) -> str:
    """Return the file name of a picture."""
    return f"{name}.gif" if hasattr(load(name), "animation") else f"{name}.png"


def build(name: str, folder: Path = HERE) -> Path:
    """Draw and save one picture."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    script, path = load(name), folder / picture(name)
    moving: Any = getattr(script, "animation", None)
    with mpl.rc_context(mpl.rcParamsDefault), mpl.rc_context({"backend": "Agg"}):
        if moving is not None:
            moving().save(path, writer="pillow", dpi=script.DPI)
        else:
            script.main().savefig(path, dpi=200, metadata={"Software": None})
        plt.close("all")
    most = SIZE[path.suffix == ".gif"]
    if path.stat().st_size > most:
        sys.exit(f"{path} has {path.stat().st_size} bytes, more than the limit of {most}: draw fewer elements.")
    return path


def page() -> str:
    """Return docs/gallery.md: each picture with its caption and its script."""
    parts = [INTRODUCTION]
    for name in names():
        title = name.replace("_", " ").capitalize().replace("Conv lstm", "ConvLSTM")
        link = f"[`{name}.py`](../plots/{name}.py)"
        parts.append(f"## {title}\n\n![{title}](../plots/{picture(name)})\n\n{caption(name)} {link}\n")
    return "\n".join(parts)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Draws the gallery.")
    parser.add_argument("names", nargs="*", help="pictures to draw; by default all")
    parser.add_argument("--folder", type=Path, default=HERE, help="output folder; by default that of the scripts")
    parser.add_argument("--page", action="store_true", help="write only docs/gallery.md")
    chosen = parser.parse_args(arguments)
    if chosen.page:
        PAGE.parent.mkdir(exist_ok=True)
        PAGE.write_text(page(), encoding="utf-8")
        return
    if unknown := set(chosen.names) - set(names()):
        parser.error(f"unknown picture {', '.join(sorted(unknown))}; the pictures are {', '.join(names())}")
    chosen.folder.mkdir(parents=True, exist_ok=True)
    for name in chosen.names or names():
        start = time.perf_counter()
        path = build(name, chosen.folder)
        print(f"{path.name:<24}{path.stat().st_size / 1000:6.0f} kB{time.perf_counter() - start:7.1f} s", flush=True)


if __name__ == "__main__":
    main()
