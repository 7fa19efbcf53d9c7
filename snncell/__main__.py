"""Command line: `python -m snncell demo`, `info` and `cache`."""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import platform
import sys

import numpy as np

import snncell
from snncell.base.signals import import_once
from snncell.errors import ArgumentError, CacheError, DeviceError
from snncell.kernels.cuda.runtime import runtime
from snncell.kernels.numba import store
from snncell.kernels.numba.files import cache_folder, refuse
from snncell.kernels.numba.policy import PARALLEL_SIZE, threading_layer


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _cuda() -> str:
    try:
        device = runtime()
    except DeviceError as error:
        return str(error)
    return f"{device.name}, compute capability {device.capability[0]}.{device.capability[1]}"


def _cache() -> dict[str, str]:
    """Rows with the folder of compiled kernels and its size."""
    folder = cache_folder()
    if folder is None:
        return {"cache folder": "none, because this user has no home folder; set SNNCELL_CACHE_DIR to a folder"}
    count, size = store.size(folder)
    rows = {"cache folder": str(folder)}
    try:
        most = f"{store.size_limit() / store.MEGABYTE:g} MB"
    except ArgumentError as error:
        return rows | {"cache size": f"{size / store.MEGABYTE:.1f} MB in {count} files", "cache limit": str(error)}
    return rows | {"cache size": f"{size / store.MEGABYTE:.1f} MB of at most {most} in {count} files"}


def cache(clear: bool) -> int:
    """Print the folder of compiled kernels and its size, or delete its files. Return the exit status."""
    folder = cache_folder()
    if clear and folder is not None and folder.is_dir():
        try:
            refuse(folder)
        except CacheError as error:
            print(error, file=sys.stderr)
            return 1
        count, size = store.clear(folder)
        print(f"removed {count} files ({size / store.MEGABYTE:.1f} MB) from {folder}")
        return 0
    _print_rows(_cache())
    return 0


def _print_rows(rows: dict[str, str]) -> None:
    for name, value in rows.items():
        print(f"{name:<14}{value}")


def info() -> None:
    """Print versions, threads, BLAS, CUDA, and the cache folder with its size."""
    numba = import_once("numba")
    blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    packages = "numpy numba numba-cuda scipy matplotlib safetensors tbb"
    rows = {
        "snncell": snncell.__version__,
        "Python": f"{platform.python_version()} on {platform.platform()}",
        **{name: _version(name) for name in packages.split()},
        "threads": f"{numba.config.NUMBA_NUM_THREADS} on {os.cpu_count()} processors",
        "layer": threading_layer(),
        "parallel": f"elementwise loops from {PARALLEL_SIZE} elements",
        "BLAS": f"{blas.get('name')} {blas.get('version')}",
        "CUDA": _cuda(),
        **_cache(),
    }
    _print_rows(rows)


def _epochs(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be an integer of at least 1, not {text!r}")
    return int(text)


def main(arguments: list[str] | None = None) -> int:
    """Run a command, and return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m snncell", description="Spiking neural networks in plain Python, compiled by Numba."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    demo = commands.add_parser(
        "demo", help="train a spiking network on handwritten digits, and write plots and a report"
    )
    demo.add_argument(
        "--epochs", type=_epochs, default=30, help="passes over the training data, at least 1 (default: 30)"
    )
    demo.add_argument(
        "--seed", type=int, default=0, help="seed of the weights and of the order of samples (default: 0)"
    )
    demo.add_argument("--folder", default="demo", help="folder for the plots and the report (default: demo)")
    commands.add_parser("info", help="print versions, threads, BLAS, CUDA and the cache folder")
    store = commands.add_parser("cache", help="print the folder of compiled kernels and its size")
    store.add_argument("--clear", action="store_true", help="delete the compiled kernels")
    options = parser.parse_args(arguments)
    if options.command == "info":
        info()
    elif options.command == "cache":
        return cache(options.clear)
    else:
        from snncell.demo import run

        run(options.epochs, options.seed, options.folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
