"""Setup of all tests: tiers, the seed, threads, and a separate cache of compiled kernels."""

from __future__ import annotations

import gc
import os
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytest

# Tests import modules of tests/support, tests/tables and shared test files by their bare names. The folder tests itself
# must not be on the path, because its folders have the names of packages, for example nir and sklearn.
TESTS = Path(__file__).parent
sys.path[:] = [path for path in sys.path if path != str(TESTS)]
sys.path += [
    str(TESTS / "support"),
    str(TESTS / "tables"),
    *sorted({str(file.parent) for file in TESTS.glob("*/test_*.py")}),
]

from tiers import chosen  # noqa: E402

import snncell  # noqa: E402
from snncell.kernels.numba import build  # noqa: E402
from snncell.kernels.numba.native import kernel_of  # noqa: E402

# Other versions of Matplotlib draw different pixels. After an intended change of a figure, run
# pytest tests/plot/test_plot_*.py --mpl-generate-path=tests/baseline, and inspect the new images.
PICTURES = (TESTS / "baseline" / "MATPLOTLIB").read_text(encoding="utf-8").strip()


def pytest_configure(config: pytest.Config) -> None:
    if sys.dont_write_bytecode:
        # PYTHONDONTWRITEBYTECODE, as in many containers. The tests start hundreds of processes, and without bytecode
        # each of them would compile the package again, for half a second.
        sys.dont_write_bytecode, sys.pycache_prefix = False, folder_of_tests(config, "bytecode")
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix
    if not os.environ.get("SNNCELL_CACHE_DIR"):
        # Compiled kernels stay between test runs; a kernel's file name contains a digest of its source. CI sets the
        # variable to start with an empty folder, and `pytest --cache-clear` empties pytest's.
        os.environ["SNNCELL_CACHE_DIR"] = folder_of_tests(config, "kernels")
        config.add_cleanup(lambda: os.environ.pop("SNNCELL_CACHE_DIR", None))
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # Background processes of a shell script ignore Ctrl-C, and so would the processes that tests start.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if hasattr(config, "workerinput"):
        # The workers share the cores. Two threads per worker, so that kernels use several threads, as for users. Numba
        # has not been imported yet.
        os.environ.setdefault("NUMBA_NUM_THREADS", str(min(2, os.cpu_count() or 1)))


def folder_of_tests(config: pytest.Config, name: str) -> str:
    """A folder of pytest's cache, or one for this run alone if that cache is disabled; workers inherit its path."""
    cache = getattr(config, "cache", None)
    if cache is not None:
        return str(cache.mkdir(name))
    folder = tempfile.TemporaryDirectory(prefix=f"snncell-{name}-", ignore_cleanup_errors=True)
    config.add_cleanup(folder.cleanup)
    return folder.name


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Number of processes for `-n auto`, the default: one process for a single file or for tests selected by name.

    One process also runs `tests/device`, because there is one GPU and one list of simulated kernels.
    """
    paths = {Path(arg.partition("::")[0]) for arg in config.args}
    if config.option.collectonly or (len(paths) == 1 and all(not p.is_dir() or p.name == "device" for p in paths)):
        return 0
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, 8) if cores > 1 else 0  # each needs memory for what it has compiled


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Run the tests of a file in one process and in order, because they share trained nets.

    All files of `tests/device` run in the same process, because they measure the memory of the one GPU.
    """
    from xdist.scheduler import LoadFileScheduling

    class Files(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            return "tests/device" if file.startswith("tests/device/") else file

    config.option.loadscopereorder = False  # `pytest_collection_modifyitems` sorts the files
    return Files(config, log) if config.getoption("dist") == "loadfile" else None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Pause garbage collection while tests are imported and collected: it takes a third of that time for nothing."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> Iterator[None]:
    """Select the cases of a test: at most `SNNCELL_CASES`, and those of `sampled(n)`; the others are slow.

    Cases that are not selected become no tests at all, because creating a test takes as long as running a short one.
    """
    yield
    cases: list[Any] = metafunc._calls  # pytest has no public name for it
    parameters = [case.params for case in cases]
    left_out: set[int] = set()
    most = int(os.environ.get("SNNCELL_CASES", sys.maxsize))
    if most < len(cases):
        left_out |= set(range(len(cases))) - chosen(parameters, most)
    if sampled := metafunc.definition.get_closest_marker("sampled"):
        slow = set(range(len(cases))) - chosen(parameters, *sampled.args)
        if metafunc.config.option.markexpr == "not slow" and not any("::" in arg for arg in metafunc.config.args):
            left_out |= slow
        for number in slow - left_out:
            cases[number].marks.append(pytest.mark.slow.mark)
    cases[:] = [case for number, case in enumerate(cases) if number not in left_out]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    here = ".".join(version("matplotlib").split(".")[:2])
    if here != PICTURES and not config.getoption("--mpl-generate-path"):
        other = pytest.mark.skip(reason=f"the pictures in tests/baseline are matplotlib {PICTURES}'s, this is {here}")
        for item in items:
            if item.get_closest_marker("mpl_image_compare"):
                item.add_marker(other)
    if hasattr(config, "workerinput"):
        # Files that start processes come first, because few of their tests take long and partly wait. Otherwise they
        # would come last, and one worker would wait for the other. The others come by their number of tests.
        sizes = Counter(item.path for item in items)
        items.sort(key=lambda item: (not starts_processes(item), -sizes[item.path], item.path))
    if os.environ.get("NUMBA_DISABLE_JIT") == "1":
        skip = pytest.mark.skip(reason="NUMBA_DISABLE_JIT=1: there is no compiler to test")
        for item in items:
            if item.get_closest_marker("compiled"):
                item.add_marker(skip)


def starts_processes(item: pytest.Item) -> bool:
    """True if the file of a test starts Python processes or jobs of ranks."""
    return item.path.parent.name == "distributed" or hasattr(getattr(item, "module", None), "subprocess")


def pytest_collection_finish() -> None:
    """Exclude the collected tests and their imports from garbage collection, because tests collect garbage often."""
    gc.freeze()
    gc.set_threshold(10_000)  # the default, 700 new objects, costs a twentieth of all tests


# These are hooks, because each fixture of all tests would cost a second for 20,000 tests.


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Exclude objects of earlier files from garbage collection; otherwise each collection would take a second."""
    if item.path is not _file[-1]:
        _file[:] = [item.path]
        gc.collect()
        gc.freeze()


_file: list[Path | None] = [None]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown() -> Iterator[None]:
    """Close all figures after each test, because Matplotlib warns about many open figures."""
    try:
        return (yield)
    finally:
        if "matplotlib.pyplot" in sys.modules:
            sys.modules["matplotlib.pyplot"].close("all")


@pytest.hookimpl(wrapper=True)
def pytest_runtestloop() -> Iterator[Any]:
    """Check each argument of a compiled kernel, because kernels themselves do not check them."""

    def checked(name, linked, signature, share, loaded):
        kernel = kernel_of(name, linked, signature, share, loaded)

        def call(units, grain, *arguments):
            for n, (x, kind) in enumerate(zip(arguments, signature, strict=True)):
                if isinstance(kind, tuple):
                    dtype, ndim, writable = kind
                    assert type(x) is np.ndarray and x.dtype == dtype.dtype and x.ndim == ndim, (name, n, x, kind)
                    assert x.flags.c_contiguous and x.flags.writeable >= writable, (name, n, x.flags, kind)
                else:
                    assert isinstance(x, (bool, int, float, complex)), (name, n, x, kind)
            return kernel(units, grain, *arguments)

        call.loaded, call.linked = kernel.loaded, kernel.linked
        return call

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(build, "kernel_of", checked)
        return (yield)


@pytest.fixture(autouse=True)
def _seeded() -> None:
    snncell.set_seed(0)


@pytest.fixture(scope="session")
def torch():
    """PyTorch on one thread, if it is installed."""
    module = pytest.importorskip("torch", reason="PyTorch is not installed: there is nothing to compare with")
    module.set_num_threads(1)
    return module


@pytest.fixture
def rng():
    """Random numbers that are the same in every run."""
    return np.random.default_rng(0)


@pytest.fixture(params=["eager", pytest.param("jit", marks=pytest.mark.compiled)])
def run(request):
    """Run a function eagerly or compiled."""
    return (lambda fn: fn) if request.param == "eager" else snncell.jit
