"""The cache folder: hostile content, location, size limit, and locking between processes."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import socket
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from snncell import __main__ as commands
from snncell.errors import ArgumentError, CacheError
from snncell.kernels.numba import files, store

POSIX = pytest.mark.skipif(sys.platform == "win32", reason="Windows: no such files, and modes say nothing")
ROOT = hasattr(os, "geteuid") and os.geteuid() == 0
KEY, CODE, SOURCE = b"key", b"code" * 50, "x = 1\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An existing cache folder for this test alone."""
    chosen = tmp_path / "kernels"
    chosen.mkdir(mode=0o700)
    monkeypatch.setenv("SNNCELL_CACHE_DIR", str(chosen))
    monkeypatch.delenv("SNNCELL_CACHE_MB", raising=False)
    monkeypatch.setattr(files, "_warned", False)
    monkeypatch.setattr(store, "_written", {})
    return chosen


def name(number: int, suffix: str = ".nbc") -> str:
    return f"loop_{number:016x}.{number:016x}{suffix}" if suffix != ".py" else f"loop_{number:016x}.py"


# --- hostile content --------------------------------------------------------------------------------------------------


def huge(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 42)  # a sparse file: it uses no disk space, but it does not fit into memory


def bound_socket(path: Path) -> None:
    here = Path.cwd()
    os.chdir(path.parent)  # the whole path may be too long for a socket
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(here)


def make_link(to: str) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        target = path.parent.parent / "elsewhere"
        if to == "a file":
            target.write_bytes(files.seal(KEY, CODE))
        elif to == "a folder":
            target.mkdir()
        elif to == "itself":
            target = path
        path.symlink_to(Path("/dev/zero") if to == "a device" else target)

    return make


def device(path: Path) -> None:
    try:
        os.mknod(path, 0o600 | 0o020000, os.makedev(1, 5))  # /dev/zero, which has no end
    except PermissionError:
        pytest.skip("only root can make a device")


def of_mode(mode: int, content: bytes = b"") -> Callable[[Path], None]:
    def make(path: Path) -> None:
        path.write_bytes(content or files.seal(KEY, CODE))
        path.chmod(mode)

    return make


def anothers(path: Path) -> None:
    path.write_bytes(files.seal(KEY, CODE))
    try:
        os.chown(path, os.geteuid() + 4321, -1)
    except PermissionError:
        pytest.skip("only root can give a file away")


HOSTILE: dict[str, Callable[[Path], None]] = {
    "a pipe": lambda path: os.mkfifo(path),
    "a folder": lambda path: path.mkdir(),
    "a folder with something in it": lambda path: (path / "inside").mkdir(parents=True),
    "a socket": bound_socket,
    "a device": device,
    "a huge file": huge,
    "an unreadable file": of_mode(0o000),
    "a file that others can write": of_mode(0o666),
    "another user's file": anothers,
    "a file cut short": of_mode(0o600, b" "),
    **{f"a link to {to}": make_link(to) for to in ("a file", "a folder", "nothing", "itself", "a device")},
}
PLACES = {
    "source": lambda folder: folder / name(1, ".py"),
    "code": lambda folder: folder / name(1),
    "code of a card": lambda folder: folder / name(1, ".cubin"),
    "claim": lambda folder: folder / (name(1) + ".claim"),
    "temporary": lambda folder: folder / f".snncell-{files.owner()}-hostile.tmp",
}


@contextlib.contextmanager
def promptly(seconds: float = 30.0) -> Iterator[None]:
    """End the run with a traceback if a call blocks on a pipe without another end."""
    faulthandler.dump_traceback_later(seconds, exit=True)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()


@POSIX
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("thing", HOSTILE)
def test_hostile_content_of_the_folder_is_not_loaded_and_does_not_block(folder: Path, place: str, thing: str) -> None:
    where = PLACES[place](folder)
    HOSTILE[thing](where)
    beside = folder.parent / "elsewhere"
    before = beside.read_bytes() if beside.is_file() else None
    with promptly(), warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for suffix in (".nbc", ".cubin"):
            path = folder / name(1, suffix)
            store.claim(path)
            found = store.read_sealed(path, KEY)
            assert found is None or (ROOT and thing == "an unreadable file" and path == where)
            store.write_sealed(path, KEY, CODE)
            blocked = path == where and thing.startswith("a folder")
            assert store.read_sealed(path, KEY) == (None if blocked else CODE)
            store.release(path)
        source = folder / name(1, ".py")
        assert store.write_source(source, SOURCE) != (source == where and thing.startswith("a folder"))
        store.tidy(folder, 0.0)
        store.clear(folder)
    assert len(said) <= 1 and all(issubclass(each.category, RuntimeWarning) for each in said)
    assert (beside.read_bytes() if beside.is_file() else None) == before  # nothing was written through a link
    assert {path.name for path in folder.iterdir()} <= {where.name}


@POSIX
@pytest.mark.parametrize(
    "thing", ["a pipe", "a socket", "a device", "a huge file", "a link to nothing", "a link to itself"]
)
@pytest.mark.parametrize("below", [False, True])
def test_non_folder_in_place_of_the_folder_disables_the_cache(
    tmp_path: Path, thing: str, below: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").mkdir()
    HOSTILE[thing](tmp_path / "a" / "b")
    chosen = tmp_path / "a" / "b" / "c" if below else tmp_path / "a" / "b"
    if thing == "a link to nothing" and below:
        pytest.skip("the system follows links above the folder")
    monkeypatch.setenv("SNNCELL_CACHE_DIR", str(chosen))
    monkeypatch.setattr(files, "_warned", False)
    with promptly(), pytest.warns(RuntimeWarning, match="cannot be written.*Set SNNCELL_CACHE_DIR") as said:
        assert [store.place_of("x.py") for _ in range(2)] == [(chosen / "x.py", False)] * 2
    assert len(said) == 1


@POSIX
def test_link_to_a_folder_is_followed_only_if_the_user_owns_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    link = folder.parent / "link"
    link.symlink_to(folder)
    monkeypatch.setenv("SNNCELL_CACHE_DIR", str(link))
    assert store.place_of("x.py") == (link / "x.py", True)
    try:
        os.chown(link, os.geteuid() + 4321, -1, follow_symlinks=False)
    except PermissionError:
        own = os.geteuid()
        # The reverse case: the link does not belong to that user.
        monkeypatch.setattr(os, "geteuid", lambda: own + 4321)
        folder.chmod(0o700)
    with pytest.raises(CacheError, match=r"it is a link, and it belongs to another user|belongs to another user"):
        store.place_of("x.py")


# --- location ---------------------------------------------------------------------------------------------------------

HOME = pytest.mark.skipif(sys.platform in ("win32", "darwin"), reason="the folder is named by other variables here")


@pytest.fixture
def unnamed(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.delenv("SNNCELL_CACHE_DIR")
    monkeypatch.setattr(files, "_warned", False)
    return monkeypatch


@HOME
@pytest.mark.parametrize("relative", ["cache", "./cache", "", "~/cache", ".."])
def test_relative_system_folder_is_ignored(unnamed: pytest.MonkeyPatch, relative: str) -> None:
    unnamed.setenv("XDG_CACHE_HOME", relative)
    unnamed.setenv("HOME", "/home/somebody")
    assert files.cache_folder() == Path("/home/somebody/.cache/snncell")
    unnamed.setenv("XDG_CACHE_HOME", "/caches")
    assert files.cache_folder() == Path("/caches/snncell")


@HOME
@pytest.mark.parametrize("home", [None, "relative/home"])
def test_user_without_a_home_works_without_a_folder(unnamed: pytest.MonkeyPatch, home: str | None) -> None:
    import pwd

    def unknown(_: int) -> None:
        raise KeyError("uid not found")

    unnamed.delenv("XDG_CACHE_HOME", raising=False)
    unnamed.delenv("HOME") if home is None else unnamed.setenv("HOME", home)
    unnamed.setattr(pwd, "getpwuid", unknown)
    assert files.cache_folder() is None
    with pytest.warns(RuntimeWarning, match="has no home folder.*Set SNNCELL_CACHE_DIR") as said:
        assert [store.place_of("x.py") for _ in range(2)] == [(Path("x.py"), False)] * 2
    assert len(said) == 1


WITHOUT_HOME = """
import os, pwd, warnings
os.environ.pop("HOME", None)
pwd.getpwuid = lambda number: {}[number]  # as for `docker run -u 12345`
import snncell
from snncell import __main__ as commands
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    for number in (1.0, 2.0):
        print(snncell.jit(lambda x: x * 3.5 - number)(snncell.Tensor([1.0])).item())
    print(snncell.jit(lambda x: snncell.ops.abs(x).sum())(snncell.Tensor([1.0])).item())
assert len(said) == 1 and "has no home folder" in str(said[0].message), said
commands.main(["info"])
assert commands.main(["cache"]) == commands.main(["cache", "--clear"]) == 0
"""


@HOME
def test_container_without_a_user_compiles_with_one_warning(tmp_path: Path) -> None:
    environment = {k: v for k, v in os.environ.items() if k not in ("SNNCELL_CACHE_DIR", "XDG_CACHE_HOME", "HOME")}
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_HOME], env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[:3] == ["2.5", "1.5", "1.0"]
    assert "cache folder  none" in done.stdout and list(tmp_path.iterdir()) == []


@HOME
@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077])
def test_folder_and_its_new_parents_are_private_to_the_owner(
    tmp_path: Path, unnamed: pytest.MonkeyPatch, mask: int
) -> None:
    unnamed.delenv("XDG_CACHE_HOME", raising=False)
    unnamed.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir(mode=0o755)
    before = os.umask(mask)
    try:
        path, kept = store.place_of(name(1))
        store.claim(path)
        store.write_sealed(path, KEY, CODE)
        modes = {each.name: each.stat().st_mode & 0o777 for each in (tmp_path / "home").rglob("*")}
    finally:
        os.umask(before)
        store.release(path)
    assert kept and modes == {
        ".cache": 0o700, "snncell": 0o700, path.name: 0o600, path.name + ".claim": 0o600
    }  # fmt: skip


def test_relative_folder_below_a_deleted_folder_disables_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone() -> str:
        raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr(os, "getcwd", gone)
    monkeypatch.setenv("SNNCELL_CACHE_DIR", f"relative-{tmp_path.name}")
    assert files.cache_folder() is None


# --- size limit -------------------------------------------------------------------------------------------------------


def make_files(folder: Path, count: int, size: int = 1000) -> list[Path]:
    """Create files, the least recently used first."""
    paths = [folder / name(number, (".py", ".nbc", ".cubin")[number % 3]) for number in range(count)]
    for number, path in enumerate(paths):
        path.write_bytes(bytes(size))
        os.utime(path, (time.time() - 1e6 + number,) * 2)
    return paths


def test_least_recently_used_files_are_removed_first(folder: Path) -> None:
    paths = make_files(folder, 30)
    store.tidy(folder, 30_000.0)
    assert all(path.exists() for path in paths)
    store.tidy(folder, 29_999.0)
    left = [path for path in paths if path.exists()]
    assert left == paths[-26:]  # down to nine tenths
    store.tidy(folder, 0.0)
    assert list(folder.iterdir()) == []


def test_reading_a_file_counts_as_use(folder: Path) -> None:
    paths = make_files(folder, 6)
    paths[1].write_bytes(files.seal(KEY, CODE))
    paths[0].write_text(SOURCE)
    for path in paths[:2]:
        os.utime(path, (time.time() - 2e6,) * 2)
    assert store.read_sealed(paths[1], KEY) == CODE and store.write_source(paths[0], SOURCE)
    assert store.read_sealed(paths[2], KEY) is None  # a rejected file does not count as used
    times = {path: path.stat().st_mtime_ns for path in paths}
    assert set(sorted(paths, key=times.__getitem__)[-2:]) == set(paths[:2])
    assert store.read_sealed(paths[1], KEY) == CODE
    assert {path: path.stat().st_mtime_ns for path in paths} == times  # a second use within the hour writes nothing
    store.tidy(folder, 3000.0)
    assert paths[0].exists() and paths[1].exists() and not paths[2].exists()


FOREIGN = [
    "model.py", "loop.nbc", "loop_0123456789abcdef.txt", "loop_0123456789ABCDEF.py", "loop_0123456789abcde.py",
    ".hidden", "notes.tmp", ".12345678-12.tmp", "loop_0123456789abcdef.py.bak", "x.claim", "a.py.claim",
]  # fmt: skip


def test_foreign_files_are_kept(folder: Path) -> None:
    for each in FOREIGN:
        (folder / each).write_bytes(bytes(1000))
        os.utime(folder / each, (1.0, 1.0))
    (folder / name(7)).mkdir()
    make_files(folder, 3)
    store.tidy(folder, 0.0)
    assert {path.name for path in folder.iterdir()} == {*FOREIGN, name(7)}
    make_files(folder, 3)
    assert store.size(folder) == (3, 3000) and store.clear(folder) == (3, 3000)
    assert {path.name for path in folder.iterdir()} == {*FOREIGN, name(7)}


def dead() -> int:
    """The process id of an exited process."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    return process.pid


def test_temporary_files_of_dead_processes_are_removed(folder: Path) -> None:
    here = files.owner().partition("-")[0]
    left = folder / f".snncell-{here}-{dead()}-abc.tmp", folder / f".snncell-00000000-{os.getpid()}-old.tmp"
    stays = (  # of this process; of another machine
        folder / f".snncell-{files.owner()}-abc.tmp",
        folder / f".snncell-00000000-{dead()}-abc.tmp",
    )
    for path in (*left, *stays):
        path.write_bytes(b"x")
    os.utime(left[1], (time.time() - 2 * files.LONGEST_WRITE,) * 2)
    (folder / (name(1) + ".claim")).write_text(f"{here}-{dead()}")
    store.write_source(folder / name(1, ".py"), SOURCE)  # the first write scans the folder
    assert {path.name for path in folder.iterdir()} == {name(1, ".py"), *(path.name for path in stays)}


def test_folder_is_scanned_once_and_then_periodically(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[float] = []
    monkeypatch.setattr(store, "tidy", lambda _, most: looks.append(most))
    monkeypatch.setenv("SNNCELL_CACHE_MB", "1")
    for number in range(40):
        store.write_sealed(folder / name(number), KEY, bytes(5000))
        store.read_sealed(folder / name(number), KEY)
    assert looks == [float(1 << 20)] * (1 + 39 // 14)  # after each 16th of a megabyte


@pytest.mark.parametrize(
    ("given", "megabytes"), [("", 512.0), ("20", 20.0), ("0.5", 0.5), ("0", 0.0), ("inf", float("inf"))]
)
def test_size_limit_is_read_from_the_environment(monkeypatch: pytest.MonkeyPatch, given: str, megabytes: float) -> None:
    monkeypatch.setenv("SNNCELL_CACHE_MB", given)
    assert store.size_limit() == megabytes * (1 << 20)


@pytest.mark.parametrize("given", ["much", "-1", "nan", "512MB", "x" * 100_000])
def test_size_limit_that_is_not_a_number_raises(folder: Path, monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    monkeypatch.setenv("SNNCELL_CACHE_MB", given[:100_000])
    with pytest.raises(ArgumentError, match=r"SNNCELL_CACHE_MB is the size.*a number of megabytes") as refused:
        store.write_source(folder / name(1, ".py"), SOURCE)
    assert len(str(refused.value)) < 400


def test_commands_show_and_empty_the_cache(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_files(folder, 3, 500_000)
    assert commands.main(["cache"]) == 0
    said = capsys.readouterr().out
    assert str(folder) in said and "1.4 MB of at most 512 MB in 3 files" in said
    commands.info()
    assert "cache size    1.4 MB of at most 512 MB in 3 files" in capsys.readouterr().out
    assert commands.main(["cache", "--clear"]) == 0
    assert capsys.readouterr().out == f"removed 3 files (1.4 MB) from {folder}\n"
    assert list(folder.iterdir()) == []
    if sys.platform != "win32":
        make_files(folder, 3)
        folder.chmod(0o777)
        assert commands.main(["cache", "--clear"]) == 1
        assert "other users than its owner can write it" in capsys.readouterr().err and len(list(folder.iterdir())) == 3


# --- locking between processes ----------------------------------------------------------------------------------------

CLAIMING = """
import sys, time
from pathlib import Path
from snncell.kernels.numba import files, store
path = Path(sys.argv[1])
store.claim(path, lambda: print("waits", flush=True))
found = store.read_sealed(path, b"key")
print("finds" if found else "makes", flush=True)
sys.stdin.readline()
if not found:
    store.write_sealed(path, b"key", b"code")
if "dies" not in sys.argv:
    store.release(path)
"""


@contextlib.contextmanager
def process(path: Path, *more: str) -> Iterator[subprocess.Popen[str]]:
    options = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", CLAIMING, str(path), *more], **options) as started:
        try:
            yield started
        finally:
            started.kill()


def test_second_process_waits_for_the_file_of_the_first(folder: Path) -> None:
    path = folder / name(1)
    with process(path) as first:
        assert first.stdout.readline() == "makes\n"
        with process(path) as second:
            assert second.stdout.readline() == "waits\n"
            first.communicate("\n", timeout=30)
            assert second.stdout.readline() == "finds\n"
            second.communicate("\n", timeout=30)
    assert [path.name for path in folder.iterdir()] == [path.name]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("ends", ["dies", "killed", "zombie"])
def test_claim_of_a_dead_process_is_ignored(folder: Path, ends: str) -> None:
    if ends == "zombie" and not Path("/proc/self/stat").exists():
        pytest.skip("without /proc nothing tells a zombie from a living process")
    path = folder / name(1)
    with process(path, "dies") as first:
        assert first.stdout.readline() == "makes\n"
        if ends == "dies":
            first.communicate("\n", timeout=30)
        elif ends == "killed":
            first.kill()
            first.wait()
        else:
            first.kill()  # its parent, this process, has not waited for it yet
            os.waitid(os.P_PID, first.pid, os.WEXITED | os.WNOWAIT)
        told: list[int] = []
        path.unlink(missing_ok=True)
        assert (folder / (path.name + ".claim")).exists()
        store.claim(path, lambda: told.append(1))
        assert told == [] and (folder / (path.name + ".claim")).read_text() == files.owner()
    store.release(path)
    assert list(folder.iterdir()) == []


def test_waiting_for_a_claim_ends_after_a_timeout(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = folder / name(1)
    place = folder / (path.name + ".claim")
    with process(path) as other:
        assert other.stdout.readline() == "makes\n"
        monkeypatch.setattr(store, "LONGEST", 0.2)
        told: list[int] = []
        os.utime(place, (time.time() + 1000,) * 2)  # by a clock that runs ahead
        store.claim(path, lambda: told.append(1))
        assert told == [1] and place.read_text() != files.owner()
        store.release(path)
        assert place.exists()  # the file belongs to the other process
        os.utime(place, (time.time() - 1000,) * 2)
        store.claim(path, lambda: told.append(1))
        assert told == [1] and place.read_text() == files.owner()  # too old to count
        store.release(path)


def test_own_and_inherited_claims_are_not_waited_for(folder: Path) -> None:
    path, told = folder / name(1), []
    store.claim(path)
    store.claim(path, lambda: told.append(1))
    if hasattr(os, "fork"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of threads: the child calls nothing that acquires their locks
            child = os.fork()
        if not child:
            store.claim(path, lambda: os._exit(3))
            with store.release_claims():
                pass
            os._exit(0 if files.owner() in (folder / (path.name + ".claim")).read_text() else 4)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert told == []
    store.release(path)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here")
def test_forked_child_keeps_the_claims_of_its_parent(folder: Path) -> None:
    path = folder / name(1)
    with store.release_claims():
        store.claim(path)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            child = os.fork()
        if not child:
            store.release(path)
            os._exit(0)
        os.waitpid(child, 0)
        assert (folder / (path.name + ".claim")).read_text() == files.owner()
    assert list(folder.iterdir()) == []


def test_interrupted_compilation_releases_its_claims(folder: Path) -> None:
    def compiled() -> None:
        with store.release_claims():
            for number in range(3):
                store.claim(folder / name(number))
            assert len(list(folder.iterdir())) == 3
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compiled()
    assert list(folder.iterdir()) == []


@POSIX
def test_waiting_can_be_interrupted(folder: Path) -> None:
    path = folder / name(1)

    def interrupt() -> None:
        raise KeyboardInterrupt

    with process(path) as other:
        assert other.stdout.readline() == "makes\n"
        with pytest.raises(KeyboardInterrupt), store.release_claims():
            store.claim(path, interrupt)
        assert (folder / (path.name + ".claim")).exists()


def test_concurrent_threads_lose_no_files(folder: Path) -> None:
    """Threads write, read, tidy and clear the same few files: no call fails, and no read returns partial content."""
    failures: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            for turn in range(60):
                number = (seed + turn) % 4
                path = folder / name(number)
                code = bytes([number]) * 20_000
                assert store.read_sealed(path, KEY) in (None, code)
                store.write_sealed(path, KEY, code)
                if turn % 10 == seed:
                    store.clear(folder) if seed % 2 else store.tidy(folder, 30_000.0)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failures == [] and not [path for path in folder.iterdir() if path.suffix == ".tmp"]
