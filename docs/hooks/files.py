"""Add the pictures, measurements and examples of the repository to the site."""

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
