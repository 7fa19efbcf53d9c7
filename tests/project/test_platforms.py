"""Platforms: what Linux can check for Windows and macOS, namely POSIX-only names and every threading layer."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import snncell

ROOT = Path(snncell.__file__).parent
MODULES = {"fcntl", "grp", "posix", "pty", "pwd", "resource", "syslog", "termios"}
NAMES = {
    "os": {
        *("chown", "fchmod", "fork", "forkpty", "getegid", "geteuid", "getgid", "getpgid", "getsid", "getuid", "kill"),
        *("killpg", "mkfifo", "nice", "pipe2", "posix_spawn", "register_at_fork", "sched_getaffinity", "setsid"),
        *("sched_setaffinity", "statvfs", "sysconf", "uname", "wait", "wait4", "WEXITSTATUS"),
    },
    "signal": {
        *("SIGALRM", "SIGCHLD", "SIGHUP", "SIGKILL", "SIGPIPE", "SIGQUIT", "SIGSTOP", "SIGUSR1", "SIGUSR2", "alarm"),
        *("pthread_kill", "pthread_sigmask", "setitimer", "sigwait"),
    },
    "time": {"clock_getres", "pthread_getcpuclockid", "tzset"},
}

# Where one is used all the same, and what keeps it from other systems.
GUARDED = {
    ("base.signals", "os.register_at_fork"): "asks whether it is there: where nothing forks, nothing is to be done",
    ("kernels.numba.files", "os.geteuid"): "Windows has returned before",
    ("kernels.numba.files", "os.getuid"): "asks whether it is there",
    ("kernels.numba.files", "os.kill"): "Windows has returned before; there, it would end the process",
    ("tape.state", "os.register_at_fork"): "asks whether it is there: where nothing forks, nothing is to be done",
    ("ops.base", "os.sysconf"): "catches that it is not there",
    ("distributed.job", "os.sched_getaffinity"): "asks whether it is there",
}


def test_posix_only_names_are_listed_with_their_guard() -> None:
    found = set()
    imports = re.compile(rf"^\s*(import|from) .*\b({'|'.join([*NAMES, *MODULES])})\b", re.MULTILINE)
    for path in ROOT.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if not imports.search(text):  # parsing all files would take a second
            continue
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                if node.attr in NAMES.get(node.value.id, ()):
                    found.add((module, f"{node.value.id}.{node.attr}"))
            elif isinstance(node, ast.Import):
                found |= {(module, alias.name) for alias in node.names if alias.name in MODULES}
            elif isinstance(node, ast.ImportFrom):
                named = NAMES.get(str(node.module), set()) & {alias.name for alias in node.names}
                found |= {(module, f"{node.module}.{name}") for name in named}
                assert node.module not in MODULES, module
    assert found == GUARDED.keys()


# What others import is there before: theirs to get right, and NumPy is built for this system.
ELSEWHERE = """
import concurrent.futures.thread, ctypes, importlib.metadata, importlib.resources, multiprocessing.connection, os
import signal, subprocess, sys, tempfile
import numba, numpy as np, ml_dtypes, safetensors.numpy, scipy.linalg, threadpoolctl, tqdm

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name in missing:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

platform, names, missing = sys.argv[1], sys.argv[2].split(), sys.argv[3].split()
sys.meta_path.insert(0, Missing())
for name in missing:
    sys.modules.pop(name, None)
for name in names:
    owner, _, attribute = name.partition(".")
    if hasattr(sys.modules[owner], attribute):
        delattr(sys.modules[owner], attribute)
sys.platform = platform

import snncell
from snncell import data, nn, ops, train

snncell.set_seed(0)
net = nn.SequentialCell(nn.Dense(2, 20), nn.MultiStep(nn.LIFNode()), nn.Dense(20, 2), nn.Readout("mean"))
x = np.random.default_rng(0).uniform(size=(8, 64, 2)).astype(np.float32)
y = (x[0, :, 0] > x[0, :, 1]).astype(np.int64)
optimiser, loss = nn.Adam(net.trainable_params(), learning_rate=0.05), nn.CrossEntropyLoss()
gradients = snncell.value_and_grad(lambda: loss(net(x), y), None, net.trainable_params())

@snncell.jit
def step():
    value, grads = gradients()
    optimiser(grads)
    return value

losses = [float(step()) for _ in range(10)]
assert losses[-1] < losses[0], losses
print("trained", float((ops.ones((600, 600)) @ ops.ones((600, 600))).sum()))
"""
ALL = " ".join(f"{owner}.{name}" for owner, names in NAMES.items() for name in sorted(names) if name != "kill")
LINUX_ALONE = "os.sched_getaffinity os.sched_setaffinity os.pipe2"


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("platform", "names", "modules"),
    [("win32", ALL, " ".join(sorted(MODULES - {"posix"}))), ("darwin", LINUX_ALONE, "")],
    ids=["win32", "darwin"],
)
def test_net_trains_without_posix_names(tmp_path, platform, names, modules) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ELSEWHERE, platform, names, modules],
        env={**os.environ, "SNNCELL_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"trained {float(600**3)}\n"


# --- threading layers -------------------------------------------------------------------------------------------------

FORKED = """
import hashlib, os, signal, sys, warnings
import numpy as np
import snncell
from snncell import jit, ops
from snncell.kernels.numba import policy

def digest():
    x = snncell.Tensor(np.random.default_rng(0).normal(size=(600, 1000)).astype(np.float32))
    return hashlib.sha256(f(x).asnumpy().tobytes()).hexdigest()

def softened():
    return jit(lambda x: ops.softmax(ops.exp(x) * 2.0, -1).sum(0))

f = softened()
before = digest()
reading, writing = os.pipe()
child = os.fork()
if child == 0:
    signal.alarm(60)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", RuntimeWarning)
        found = [digest(), digest()]
    said = [one for one in said if "on one thread" in str(one.message)]
    os.write(writing, f"{found[0]} {found[1]} {len(said)}".encode())
    os._exit(0)
os.close(writing)
with os.fdopen(reading) as pipe:
    print(before, digest(), pipe.read(), os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), policy.threading_layer())
policy.set_number_of_threads(1)
f = softened()  # because the function that was traced for two threads has its parts already
print(digest())
print(getattr(sys.modules.get("numba.np.ufunc.omppool"), "openmp_vendor", None))
"""
LAYERS = ["workqueue", "omp", "tbb"]


def forked(layer: str) -> str:
    environment = {**os.environ, "NUMBA_THREADING_LAYER": layer, "NUMBA_NUM_THREADS": "2"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORKED],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    if "cannot load this threading layer" in done.stderr:
        pytest.skip(f"Numba cannot load {layer} here")
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.sampled(1)
@pytest.mark.compiled
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no forks")
@pytest.mark.parametrize("layer", LAYERS)
def test_every_threading_layer_gives_same_bits_in_forked_processes(layer: str) -> None:
    before, after, *in_child, warned, code, used, one_thread, vendor = forked(layer).split()
    assert (code, used) == ("0", layer)
    assert {before, after, *in_child} == {one_thread}
    # GNU's OpenMP cannot be forked: a child has one thread, and is told so once.
    assert int(warned) == (layer == "omp" and vendor == "GNU")


@pytest.mark.compiled
def test_missing_threading_layer_raises() -> None:
    script = "from snncell.kernels.numba import policy; policy.number_of_threads()"
    environment = {**os.environ, "NUMBA_THREADING_LAYER": "threads"}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False)
    last = done.stderr.splitlines()[-1]
    assert last.startswith("snncell.errors.ArgumentError: NUMBA_THREADING_LAYER=threads: Numba cannot load")
    assert last.endswith("or set it to workqueue, which is part of Numba.")
