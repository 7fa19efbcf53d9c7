"""Add the pictures, measurements and examples of the repository to the site, and adapt the links to them.

Links in the source are those of a clone, for example ../plots/raster.png in docs/index.md.
"""

import re
from pathlib import Path

from mkdocs.structure.files import File

ROOT = Path(__file__).parents[2]
FOLDERS = {"plots": ("*.png", "*.gif", "*.py"), "benchmarks/results": ("*.md", "*.png"), "examples": ("*.py",)}


def on_files(files, config):
    """Add one file for each, for example plots/raster.png, benchmarks/core.md or examples/own_neuron.py."""
    for folder, patterns in FOLDERS.items():
        for path in sorted(path for pattern in patterns for path in (ROOT / folder).glob(pattern)):
            place = f"{folder.partition('/')[0]}/{path.name}"
            files.append(File.generated(config, place, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown, **_):
    """Map ../plots/x.png to plots/x.png, ../benchmarks/results/x.md to benchmarks/x.md, ../../docs/x.md to ../x.md."""
    markdown = re.sub(r"\]\(((?:\.\./)*)\.\./(plots|examples|benchmarks)/(?:results/)?", r"](\1\2/", markdown)
    return markdown.replace("](../../docs/", "](../")
