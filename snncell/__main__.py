"""`python -m snncell demo` and `python -m snncell info`."""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import os
import platform
import sys

import snncell
from snncell.errors import DeviceError
from snncell.kernels.build import cache_folder
from snncell.kernels.cuda.runtime import runtime
from snncell.kernels.policy import PARALLEL_SIZE, threading_layer


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _blas() -> str:
    import numpy as np

    blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    return f"{blas.get('name')} {blas.get('version')}"


def _cuda() -> str:
    try:
        device = runtime()
    except DeviceError as error:
        return str(error)
    return f"{device.name}, compute capability {device.capability[0]}.{device.capability[1]}"


def info() -> None:
    """Print versions, threads, BLAS, CUDA, and the cache folder."""
    numba = importlib.import_module("numba")
    rows = {
        "snncell": snncell.__version__,
        "Python": f"{platform.python_version()} on {platform.platform()}",
        **{
            name: _version(name)
            for name in ("numpy", "numba", "numba-cuda", "scipy", "matplotlib", "safetensors", "tbb")
        },
        "threads": f"{numba.config.NUMBA_NUM_THREADS} of {os.cpu_count()} processors, layer: {threading_layer()}",
        "parallel from": f"{PARALLEL_SIZE} elements of plain arithmetic on",
        "BLAS": _blas(),
        "CUDA": _cuda(),
        "cache folder": str(cache_folder()),
    }
    for name, value in rows.items():
        print(f"{name:<14}{value}")


def _epochs(text: str) -> int:
    """A number of epochs from the command line."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"a whole number of epochs from 1 on, not {text!r}")
    return int(text)


def main(arguments: list[str] | None = None) -> int:
    """Run a command; 0 if it went well."""
    parser = argparse.ArgumentParser(prog="python -m snncell", description="Spiking networks with custom reverses.")
    commands = parser.add_subparsers(dest="command", required=True)
    demo = commands.add_parser("demo", help="train a spiking network on handwritten digits and draw what it does")
    demo.add_argument("--epochs", type=_epochs, default=30, help="times through the data, 1 or more")
    demo.add_argument("--seed", type=int, default=0)
    demo.add_argument("--folder", default="plots", help="where the pictures go")
    commands.add_parser("info", help="print versions, threads, BLAS, CUDA, cache folder")
    chosen = parser.parse_args(arguments)
    if chosen.command == "info":
        info()
    else:
        from snncell.demo import run

        run(chosen.epochs, chosen.seed, chosen.folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
