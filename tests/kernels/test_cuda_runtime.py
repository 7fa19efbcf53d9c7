"""The CUDA backend on a simulated card: memory, copies, launches, products, errors."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib.metadata
import os
import select
import signal
import sys
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from fake_card import STREAM, Card, Status

from snncell.errors import ArgumentError, DeviceError, DeviceMemoryError, DTypeError
from snncell.kernels.arrays import _round_up_size
from snncell.kernels.cuda import exchange, libraries, runtime as finding
from snncell.kernels.cuda.base import Matrix, MemoryBlock, Runtime
from snncell.kernels.cuda.libraries import gemm_arguments
from snncell.kernels.cuda.runtime import DriverRuntime

MEBI = 1 << 20


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> Iterator[Card]:
    """A card that is detected as a real one, and removed after the test."""
    made = Card()
    for name, module in made.modules().items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "1.0")
    before = len(finding.IN_USE)
    yield made
    del finding.IN_USE[before:]


@pytest.fixture
def device(card: Card) -> DriverRuntime:
    return finding._driver_runtime()


def upload(device: Runtime, array: Any) -> MemoryBlock:
    """Return a block that begins with the array."""
    block = device.allocate(array.nbytes)
    device.upload(array, block)
    return block


def download(device: Runtime, block: MemoryBlock, offset: int, shape: Any, dtype: Any) -> Any:
    array = np.empty(shape, dtype)
    device.download(block, offset, array)
    return array


# --- memory -----------------------------------------------------------------------------------------------------------


def test_card_reports_name_capability_and_stream(device: DriverRuntime) -> None:
    assert (device.name, device.capability, device.stream) == ("Card of Python's", (8, 6), STREAM)


def test_released_memory_is_reused_and_counted(device: DriverRuntime, card: Card) -> None:
    first, second = device.allocate(MEBI), device.allocate(5)
    assert first.size >= MEBI and second.size >= 5 and first.pointer != second.pointer
    assert (device.live, device.held) == (first.size + second.size, 0) and card.used == device.live
    pointer = first.pointer
    device.release(first)
    del first
    assert (device.live, device.held) == (second.size, _round_up_size(MEBI))
    again = device.allocate(MEBI - 1)
    assert again.pointer == pointer and device.held == 0
    device.release(again)
    del again
    device.empty_pool()
    assert (device.live, device.held) == (second.size, 0) and card.used == second.size


def test_unreleased_block_is_freed_when_it_is_collected(device: DriverRuntime, card: Card) -> None:
    block = device.allocate(MEBI)
    assert card.used >= MEBI
    del block
    assert card.used == device.live == device.held == 0


def test_empty_allocation_has_an_address(device: DriverRuntime) -> None:
    assert device.allocate(0).pointer


def test_cpu_pool_limit_does_not_limit_device_memory(device: DriverRuntime) -> None:
    import snncell

    before = snncell.get_context("pool_limit")
    snncell.set_context(pool_limit=0)
    try:
        device.release(device.allocate(MEBI))
        assert device.held >= MEBI
    finally:
        snncell.set_context(pool_limit=before)


def test_foreign_memory_never_enters_the_pool(device: DriverRuntime) -> None:
    owner = np.zeros(4)
    block = MemoryBlock(owner.ctypes.data, owner.nbytes, owner=owner)
    assert block.owner is owner and block.pool is None
    device.release(block)
    assert device.held == 0


def test_full_card_is_retried_after_emptying_the_pool(device: DriverRuntime, card: Card) -> None:
    device.release(device.allocate(700 * MEBI))
    assert device.held >= 700 * MEBI
    block = device.allocate(600 * MEBI)  # of another size; the card cannot hold both
    assert block.size >= 600 * MEBI and device.held == 0


def test_out_of_memory_error_lists_the_memory_users(device: DriverRuntime) -> None:
    kept = device.allocate(512 * MEBI)
    device.release(device.allocate(256 * MEBI))
    words = (
        r"Out of memory on Card of Python's: there is no room for an array of 1.0 GiB. Live arrays hold 512.0 MiB. "
        r"Freed arrays held 256.0 MiB, which snncell has .* Of the card's 1.0 GiB, 512.0 MiB are free. Use a smaller"
    )
    with pytest.raises(DeviceMemoryError, match=words) as caught:
        device.allocate(1 << 30)
    assert isinstance(caught.value, MemoryError) and isinstance(caught.value, DeviceError)
    assert device.live == kept.size
    assert device.allocate(256 * MEBI).size >= 256 * MEBI


def test_concurrent_threads_share_the_memory_count(device: DriverRuntime) -> None:
    def work() -> None:
        for size in range(1, 200):
            block = device.allocate(size * 1000)
            device.release(block)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert device.live == 0 and device.held == device._total
    device.empty_pool()
    assert device._total == 0


# --- copies -----------------------------------------------------------------------------------------------------------


@pytest.mark.sampled(3)
@pytest.mark.parametrize("size", [0, 1, 1000, finding.STAGED // 2, finding.STAGED // 2 + 1, 3 * finding.STAGED + 5])
def test_uploaded_array_can_change_immediately(device: DriverRuntime, size: int) -> None:
    array = np.random.default_rng(0).integers(0, 256, size, np.uint8)
    expected = array.copy()
    block = device.allocate(size + 64)
    device.upload(array, block, 64)
    array[:] = 0
    np.testing.assert_array_equal(download(device, block, 64, size, np.uint8), expected)


def test_many_small_uploads_do_not_overlap(device: DriverRuntime, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finding, "STAGED", 1 << 10)
    block = device.allocate(4 * 3000)
    for number in range(1000):
        device.upload(np.full(3, number, np.int32), block, 12 * number)
    np.testing.assert_array_equal(download(device, block, 0, 3000, np.int32), np.repeat(np.arange(1000), 3))


@pytest.mark.parametrize("array", [np.array(2.5), np.arange(6).reshape(2, 3), np.array([True, False])])
def test_downloaded_arrays_equal_the_uploaded_ones(device: DriverRuntime, array: Any) -> None:
    block = upload(device, array)
    np.testing.assert_array_equal(download(device, block, 0, array.shape, array.dtype), array)


def test_arrays_that_are_not_c_contiguous_raise(device: DriverRuntime) -> None:
    block = device.allocate(100)
    for way in (device.upload, lambda array, block: device.download(block, 0, array)):
        with pytest.raises(ValueError, match="Unable to avoid"):
            way(np.zeros((3, 4)).T, block)


def test_copies_and_zeros_are_written_at_their_offsets(device: DriverRuntime) -> None:
    source, target = upload(device, np.arange(100, dtype=np.int32)), device.allocate(400)
    device.clear(target, 0, 400)
    device.copy(source, 40, target, 80, 40)
    device.copy(source, 0, target, 0, 0)
    device.clear(target, 0, 0)
    expected = np.zeros(100, np.int32)
    expected[20:30] = np.arange(10, 20)
    np.testing.assert_array_equal(download(device, target, 0, 100, np.int32), expected)


def test_work_waits_for_other_streams(device: DriverRuntime, card: Card) -> None:
    device.wait_for(None)
    device.wait_for(1)
    assert card.launched == [("waited", 1)]


# --- kernels ----------------------------------------------------------------------------------------------------------


def test_kernel_arguments_are_addresses_and_numbers(device: DriverRuntime, card: Card) -> None:
    block = device.allocate(64)
    kernel = device.load(b"good", "twice")
    arguments = [7, (block, 16, np.dtype(np.float32)), np.float32(2.5), np.complex64(1 + 2j), np.bool_(True)]
    device.launch(kernel, 3, 128, arguments, shared=8)
    ((grid, threads, shared, name, packed),) = card.launched
    assert (grid, threads, shared, name) == (3, 128, 8, "twice")
    assert packed == (7, block.pointer + 16, np.float32(2.5), 1.0, 2.0, np.bool_(True))
    assert [type(x) for x in packed[2:5]] == [np.float32] * 3  # a complex number becomes two arguments


def test_empty_grid_launches_nothing(device: DriverRuntime, card: Card) -> None:
    device.launch("kernel", 0, 128, [])
    assert card.launched == []


def test_kernels_that_fail_to_load_or_launch_raise_with_their_name(device: DriverRuntime) -> None:
    with pytest.raises(DeviceError, match="the kernel twice cannot be loaded: CUDA_ERROR_NO_BINARY"):
        device.load(b"bad", "twice")
    with pytest.raises(DeviceError, match="cannot be launched on 1 blocks of 2048 threads: CUDA_ERROR_INVALID_VALUE"):
        device.launch("kernel", 1, 2048, [])


def test_every_thread_finds_the_card(device: DriverRuntime, card: Card) -> None:
    found: list[Any] = []
    block = upload(device, np.arange(4))

    def work() -> None:
        found.append(download(device, block, 0, 4, np.int64))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert [x.tolist() for x in found] == [[0, 1, 2, 3]] and len(card.threads) == 2


def test_driver_errors_are_included_in_the_exception(device: DriverRuntime, card: Card) -> None:
    card.fails["cuStreamSynchronize"] = Status.CUDA_ERROR_ILLEGAL_ADDRESS
    with pytest.raises(DeviceError, match="cuStreamSynchronize failed: CUDA_ERROR_ILLEGAL_ADDRESS, cuda_error_illegal"):
        device.synchronize()
    card.fails["cuMemHostAlloc"] = Status.CUDA_ERROR_OUT_OF_MEMORY
    with pytest.raises(DeviceMemoryError, match="cuMemHostAlloc failed: the card has no memory left"):
        device.upload(np.zeros(3), device.allocate(24))
    np.testing.assert_array_equal(download(device, upload(device, np.arange(3)), 0, 3, np.int64), np.arange(3))


# --- products ---------------------------------------------------------------------------------------------------------

TOLERANCES = {
    "float16": 1e-2,
    "bfloat16": 5e-2,
    "float32": 1e-5,
    "float64": 1e-12,
    "complex64": 1e-5,
    "complex128": 1e-12,
}


def operand(
    rng: Any, batch: int, rows: int, columns: int, turned: bool, gap: int, dtype: str
) -> tuple[Any, Any, int, int]:
    """A batch of matrices, the array that stores it, and the strides of rows and matrices in this array."""
    stored = (columns, rows) if turned else (rows, columns)
    whole = rng.normal(size=(batch, stored[0] + gap, stored[1] + gap))
    whole = (whole + 1j * rng.normal(size=whole.shape) if dtype.startswith("complex") else whole).astype(dtype)
    view = whole[:, : stored[0], : stored[1]]
    leading, stride = whole.shape[2], whole.shape[1] * whole.shape[2]
    return (view.transpose(0, 2, 1) if turned else view), whole, leading, stride


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("turned", [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize(
    ("sizes", "batch", "gap"), [((3, 4, 5), 1, 0), ((3, 4, 5), 3, 2), ((1, 6, 1), 2, 0), ((1, 1, 4), 1, 1)]
)
def test_products_equal_numpy(device: DriverRuntime, dtype: str, turned: Any, sizes: Any, batch: int, gap: int) -> None:
    rng = np.random.default_rng(0)
    m, n, k = sizes
    a, stored_a, lead_a, step_a = operand(rng, batch, m, k, turned[0], gap, dtype)
    b, stored_b, lead_b, step_b = operand(rng, batch, k, n, turned[1], gap, dtype)
    _, stored_c, lead_c, step_c = operand(rng, batch, m, n, False, gap, dtype)
    wide = np.complex128 if dtype.startswith("complex") else np.float64
    expected = stored_c.copy()
    expected[:, :m, :n] = a.astype(wide) @ b.astype(wide)
    lead = np.zeros(3, dtype)  # the matrices start at an offset in their blocks
    blocks = [upload(device, np.concatenate([lead, x.reshape(-1)])) for x in (stored_c, stored_a, stored_b)]
    matrices = [
        Matrix(block, lead.nbytes, leading, stride, transposed)
        for block, leading, stride, transposed in zip(
            blocks, (lead_c, lead_a, lead_b), (step_c, step_a, step_b), (False, *turned), strict=True
        )
    ]
    out, left, right = matrices
    device.matmul(out, left, right, sizes, dtype=np.dtype(dtype), batch=batch)
    found = download(device, out.block, out.offset, stored_c.shape, dtype)
    np.testing.assert_allclose(
        found.astype(wide), expected.astype(wide), rtol=TOLERANCES[dtype], atol=TOLERANCES[dtype]
    )


def test_one_matrix_is_shared_by_a_whole_batch(device: DriverRuntime) -> None:
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=(3, 2, 4)), rng.normal(size=(4, 5))
    out = device.allocate(3 * 2 * 5 * 8)
    operands = Matrix(out, 0, 5, 10), Matrix(upload(device, a), 0, 4, 8), Matrix(upload(device, b), 0, 5, 0)
    device.matmul(*operands, (2, 5, 4), dtype=np.float64, batch=3)
    np.testing.assert_allclose(download(device, out, 0, (3, 2, 5), np.float64), a @ b)


def test_cublas_computes_the_transposed_product() -> None:
    block = MemoryBlock(0, 0)
    out, a, b = Matrix(block, 0, 4), Matrix(block, 0, 3, turned=True), Matrix(block, 0, 9)
    gemm = gemm_arguments(out, a, b, (3, 4, 5))
    assert gemm == ((False, True), (4, 3, 5), b, a, (9, 3, 4))
    # With one row, NumPy accepts any row stride, but cuBLAS does not.
    assert gemm_arguments(out, Matrix(block, 0, 0), b, (1, 4, 5)).leading == (9, 5, 4)


def test_empty_products_are_zeros(device: DriverRuntime) -> None:
    out = upload(device, np.ones(6))
    for sizes, batch in [((0, 3, 2), 1), ((2, 0, 2), 1), ((2, 3, 2), 0)]:
        device.matmul(*[Matrix(out, 0, 3, 6)] * 3, sizes, dtype=np.float64, batch=batch)
    np.testing.assert_array_equal(download(device, out, 0, 6, np.float64), np.ones(6))
    device.matmul(*[Matrix(out, 0, 3, 6)] * 3, (2, 3, 0), dtype=np.float64)
    np.testing.assert_array_equal(download(device, out, 0, 6, np.float64), np.zeros(6))


def test_cublas_is_created_once_and_uses_full_precision(device: DriverRuntime) -> None:
    cublas = sys.modules["nvmath.bindings.cublas"]
    block = upload(device, np.ones(4, np.float32))
    for dtype in (np.float32, np.float64):
        device.matmul(*[Matrix(block, 0, 1)] * 3, (1, 1, 1), dtype=dtype)
    start = [("create",), ("stream", STREAM), ("workspace", libraries.WORKSPACE), ("math", 16)]
    assert cublas.calls == [*start, ("gemm", 68), ("gemm", 70)]  # the stream is set before its workspace


def test_products_of_integers_raise(device: DriverRuntime) -> None:
    block = device.allocate(64)
    with pytest.raises(
        DTypeError, match=r"The GPU cannot multiply int32 matrices. Convert them to one of these dtypes: float16, bfl"
    ):
        device.matmul(*[Matrix(block, 0, 1)] * 3, (1, 1, 1), dtype=np.int32)


@pytest.mark.parametrize("name", ["cublas", "cufft"])
def test_missing_library_raises_with_the_extra_to_install(
    device: DriverRuntime, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    block = device.allocate(64)

    def use() -> None:
        if name == "cublas":
            device.matmul(*[Matrix(block, 0, 1)] * 3, (1, 1, 1), dtype=np.float32)
        else:
            device.fft("c2c", (block, 0), (block, 0), 2, 1, False, False)

    words = r'on the GPU need a library that cannot be loaded \(.+\). Install it by pip install "snncell\[cuda\]\"'
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, f"nvmath.bindings.{name}", None)
        with pytest.raises(DeviceError, match=words):
            use()
    with monkeypatch.context() as patch:

        def create() -> int:
            raise RuntimeError("libcublas.so.13 is not there")

        patch.setattr(sys.modules[f"nvmath.bindings.{name}"], "create", create)
        with pytest.raises(DeviceError, match=words):
            use()
    use()


# --- Fourier transforms -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize(("length", "batch"), [(1, 1), (8, 3), (7, 2)])
@pytest.mark.parametrize("kind", ["c2c", "c2c inverse", "r2c", "c2r"])
def test_fourier_transforms_equal_numpy(
    device: DriverRuntime, kind: str, length: int, batch: int, double: bool
) -> None:
    rng = np.random.default_rng(2)
    real = rng.normal(size=(batch, length)).astype(np.float64 if double else np.float32)
    both = (real + 1j * rng.normal(size=real.shape)).astype(np.complex128 if double else np.complex64)
    source, expected = {
        "c2c": (both, np.fft.fft(both)),
        "c2c inverse": (both, np.fft.ifft(both) * length),
        "r2c": (real, np.fft.rfft(real)),
        "c2r": (np.fft.rfft(real), real * length),
    }[kind]
    given = np.ascontiguousarray(source, both.dtype if kind != "r2c" else real.dtype)
    block, out = upload(device, given), device.allocate(8 + expected.nbytes)
    inverse = kind == "c2c inverse"
    device.fft(kind[:3], (block, 0), (out, 8), length, batch, double=double, inverse=inverse)
    dtype = real.dtype if kind == "c2r" else both.dtype
    tolerance = 1e-10 if double else 1e-4
    np.testing.assert_allclose(
        download(device, out, 8, expected.shape, dtype), expected, rtol=tolerance, atol=tolerance
    )
    # The input is unchanged.
    np.testing.assert_array_equal(download(device, block, 0, given.shape, given.dtype), given)
    device.release(block)
    device.release(out)


def test_plans_are_cached_and_the_oldest_are_dropped(device: DriverRuntime, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libraries, "PLANS", 2)
    cufft = sys.modules["nvmath.bindings.cufft"]
    block = device.allocate(1000)
    for length in (4, 5, 4, 6, 4):  # 5 is the oldest when 6 is added
        device.fft("c2c", (block, 0), (block, 0), length, 1, False, False)
    assert cufft.made == 3 and {plan.length for plan in cufft.alive.values()} == {4, 6}
    device.fft("c2c", (block, 0), (block, 0), 9, 0, False, False)
    assert cufft.made == 3
    assert device.live == block.size and device.held >= 1000  # the work area is released


# --- detection of the card --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("missing", ["cuda.bindings.driver", "cuda.bindings.nvjitlink", "cuda.core"])
def test_missing_packages_raise_with_a_fix(card: Card, monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    for found, driver in [(True, ""), (False, "This machine also has no NVIDIA driver, which the GPU needs.")]:
        monkeypatch.setattr(finding, "has_driver", lambda found=found: found)
        words = rf'not installed \(.*{missing}.*\). Run: pip install "snncell\[cuda\]". ?{driver}$'
        with pytest.raises(DeviceError, match=words):
            finding._driver_runtime()


def test_missing_compiler_raises_with_a_fix(card: Card, monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", version)
    with pytest.raises(DeviceError, match=r'not installed \(.*numba-cuda.*\). Run: pip install "snncell\[cuda\]"'):
        finding._driver_runtime()


def test_missing_driver_and_missing_card_raise_different_errors(card: Card, monkeypatch: pytest.MonkeyPatch) -> None:
    driver_module = sys.modules["cuda.bindings.driver"]
    for status, words in [
        (
            Status.CUDA_ERROR_NO_DEVICE,
            r"driver finds no card.*check that CUDA_VISIBLE_DEVICES does not hide it \(it is '3'\)",
        ),
        (
            Status.CUDA_ERROR_SYSTEM_DRIVER_MISMATCH,
            r"driver is inconsistent \(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH\).*Restart",
        ),
        (Status.CUDA_ERROR_UNKNOWN, r"does not start \(CUDA_ERROR_UNKNOWN\). Check whether nvidia-smi works"),
    ]:
        card.fails["cuInit"] = status
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
        with pytest.raises(DeviceError, match=words):
            finding._driver_runtime()
    assert card.threads == set()  # nothing else was queried

    def absent(flags: int) -> Any:
        raise RuntimeError("Failure finding libcuda.so")

    monkeypatch.setattr(driver_module, "cuInit", absent, raising=False)
    with pytest.raises(DeviceError, match=r"This machine has no NVIDIA driver, which the GPU needs. Install it"):
        finding._driver_runtime()


def test_old_driver_or_card_raises_with_the_requirement(card: Card, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(sys.modules["cuda.bindings.driver"], "cuDriverGetVersion", lambda: (0, 12_040), raising=False)
        words = (
            r"driver is too old: it supports CUDA 12.4, but .* for CUDA 13. Update .*pip install \"numba-cuda\[cu12\]\""
        )
        with pytest.raises(DeviceError, match=words):
            finding._driver_runtime()
    monkeypatch.setattr(sys.modules["cuda.core"].Device, "compute_capability", (6, 1))
    with pytest.raises(DeviceError, match=r"has compute capability 6.1, but snncell needs 7.5"):
        finding._driver_runtime()


def test_concurrent_threads_create_the_runtime_once(card: Card, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NUMBA_ENABLE_CUDASIM", raising=False)
    make, second = finding._driver_runtime, threading.Barrier(2)

    def slowly() -> DriverRuntime:
        with contextlib.suppress(threading.BrokenBarrierError):
            second.wait(0.1)  # until another thread arrives here
        return make()

    monkeypatch.setattr(finding, "_driver_runtime", slowly)
    monkeypatch.setattr(finding, "_runtime", None)
    found: list[Any] = []
    threads = [threading.Thread(target=lambda: found.append(finding.runtime())) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 2 and found[0] is found[1] and type(found[0]) is DriverRuntime


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_forked_child_raises_and_does_not_hang(card: Card, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NUMBA_ENABLE_CUDASIM", raising=False)
    monkeypatch.setattr(finding, "_runtime", None)
    device = finding.runtime()
    block = device.allocate(100)
    device.release(device.allocate(MEBI))
    held = card.used
    ready, done = threading.Event(), threading.Event()

    def hold() -> None:  # locks of a thread that does not exist in the child
        with finding._lock, device._counting:
            ready.set()
            done.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    ready.wait()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        problems: list[Any] = []
        sys.unraisablehook = problems.append
        right = 0
        for use in (
            finding.runtime,
            device.synchronize,
            lambda: device.load(b"good", "k"),
            lambda: device.allocate(1 << 20),
        ):
            try:
                use()
            except DeviceError as error:
                right += "CUDA cannot be used in a forked child after the parent has used it" in str(error)
        del block
        device.empty_pool()
        os._exit(right + 10 * (card.used == held and not problems))  # the memory of the parent is not freed
    os.close(writer)
    if not select.select([reader], [], [], 30)[0]:  # end of file, when the child has exited
        os.kill(child, signal.SIGKILL)
    os.close(reader)
    done.set()
    thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 14
    assert finding.runtime() is device and device.live == block.size


# --- exchange ---------------------------------------------------------------------------------------------------------


class Owner:
    """An object with observable destruction."""


class Exporter:
    """A host array that `exchange` exports as a capsule."""

    def __init__(self, array: Any, owner: Any) -> None:
        self.array, self.owner = array, owner

    def __dlpack__(self, **options: Any) -> Any:
        array = self.array
        return exchange.capsule_of(
            array.ctypes.data, array.shape, array.strides, array.dtype, self.owner, (exchange.CPU, 0)
        )

    def __dlpack_device__(self) -> tuple[int, int]:
        return exchange.CPU, 0


ARRAYS = {
    "matrix": np.arange(12, dtype=np.float32).reshape(3, 4),
    "transposed": np.arange(12, dtype=np.int64).reshape(3, 4).T,
    "steps": np.arange(40, dtype=np.uint8)[3::7],
    "broadcast": np.broadcast_to(np.array([1.5, 2.5], np.float16), (3, 2)),
    "complex": np.array([1 + 2j, 3j], np.complex64),
    "bool": np.array([[True], [False]]),
    "scalar": np.array(7.0),
    "nothing": np.zeros((0, 3), np.int16),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_capsules_are_exchanged_with_numpy(name: str) -> None:
    array = ARRAYS[name]
    read = np.from_dlpack(Exporter(array, None))
    assert read.dtype == array.dtype
    np.testing.assert_array_equal(read, array)
    assert array.size == 0 or read.ctypes.data == array.ctypes.data
    found = exchange.from_dlpack(Exporter(array, None))
    assert (found.shape, found.dtype, found.device) == (array.shape, array.dtype, (exchange.CPU, 0))
    assert found.pointer == array.ctypes.data
    if array.size > 1:
        assert found.strides == array.strides
    before, after = found.span
    low, high = np.lib.array_utils.byte_bounds(array)
    assert array.size == 0 or (found.pointer - before, found.pointer + after) == (low, high)


def test_numpy_capsules_are_imported() -> None:
    array = np.arange(6, dtype=np.int32).reshape(2, 3)
    references = sys.getrefcount(array)
    found = exchange.from_dlpack(array)
    assert (found.pointer, found.shape, found.strides) == (array.ctypes.data, (2, 3), (12, 4))
    assert sys.getrefcount(array) == references + 1
    del found
    assert sys.getrefcount(array) == references


@pytest.mark.parametrize("how", ["consumed by NumPy", "consumed by us", "not consumed"])
def test_owner_lives_as_long_as_its_consumers(how: str) -> None:
    owner = Owner()
    alive = weakref.ref(owner)
    exporter = Exporter(ARRAYS["matrix"], owner)
    holder: Any
    if how == "consumed by NumPy":
        holder = np.from_dlpack(exporter)
    elif how == "consumed by us":
        holder = exchange.from_dlpack(exporter)
    else:
        holder = exporter.__dlpack__()
    del owner, exporter
    gc.collect()
    assert alive() is not None
    del holder
    assert alive() is None


def test_capsule_is_consumed_once() -> None:
    capsule = Exporter(ARRAYS["matrix"], None).__dlpack__()
    exchange.from_dlpack(capsule)
    with pytest.raises(DeviceError, match="is not an unused DLPack capsule"):
        exchange.from_dlpack(capsule)
    with pytest.raises(DeviceError, match="42 is not an unused DLPack capsule"):
        exchange.from_dlpack(42)


@pytest.mark.parametrize(("code", "bits", "lanes"), [(4, 32, 1), (4, 16, 2), (2, 32, 4), (2, 24, 1), (0, 4, 1)])
def test_unsupported_dtypes_raise_and_release_the_capsule(code: int, bits: int, lanes: int) -> None:
    owner = Owner()
    alive = weakref.ref(owner)
    capsule = Exporter(ARRAYS["matrix"], owner).__dlpack__()
    del owner
    managed = exchange._Managed.from_address(exchange._pointer(id(capsule), exchange._NAME))
    managed.tensor.dtype = exchange._DType(code, bits, lanes)
    with pytest.raises(DTypeError, match="from_dlpack: snncell has no dtype"):
        exchange.from_dlpack(capsule)
    gc.collect()
    assert alive() is None


def test_device_producer_receives_our_stream() -> None:
    asked: list[Any] = []

    class Producer(Exporter):
        def __dlpack__(self, **options: Any) -> Any:
            asked.append(options)
            array = self.array
            return exchange.capsule_of(array.ctypes.data, array.shape, array.strides, array.dtype, None)

        def __dlpack_device__(self) -> tuple[int, int]:
            return exchange.CUDA, 0

    found = exchange.from_dlpack(Producer(ARRAYS["matrix"], None), stream=STREAM)
    assert asked == [{"stream": STREAM}] and found.device == (exchange.CUDA, 0)


@pytest.mark.parametrize(("stream", "wait"), [(None, True), (1, True), (2, True), (0x7F0000001000, True), (-1, False)])
def test_valid_consumer_streams_are_accepted(stream: int | None, wait: bool) -> None:
    assert exchange.must_wait(stream) is wait


@pytest.mark.parametrize("stream", [0, -2, True, "1", 1.0])
def test_invalid_consumer_streams_raise(stream: Any) -> None:
    with pytest.raises(ArgumentError, match="__dlpack__: stream must be None, -1"):
        exchange.must_wait(stream)


def test_consumer_can_outlive_the_module() -> None:
    import subprocess

    script = """
import sys
import numpy as np
from snncell.kernels.cuda import exchange
class Exporter:
    def __init__(self, array): self.array = array
    def __dlpack__(self, **options):
        a = self.array
        return exchange.capsule_of(a.ctypes.data, a.shape, a.strides, a.dtype, a, (1, 0))
    def __dlpack_device__(self): return 1, 0
kept = np.from_dlpack(Exporter(np.arange(5.0)))
sys.kept = np.from_dlpack(Exporter(np.arange(5.0)))
np.kept = Exporter(np.arange(5.0)).__dlpack__()
"""
    done = subprocess.run([sys.executable, "-X", "dev", "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


class Interfaced:
    """An object with the given interface dictionary."""

    def __init__(self, **entries: Any) -> None:
        self.__cuda_array_interface__ = entries


@pytest.mark.parametrize(
    ("shape", "strides", "dtype", "typestr", "given"),
    [
        ((2, 3), (12, 4), np.float32, "<f4", None),
        ((3, 2), (4, 12), np.int32, "<i4", (4, 12)),
        ((4,), (0,), np.complex64, "<c8", (0,)),
        ((5,), (1,), np.bool_, "|b1", None),
        ((), (), np.float16, "<f2", None),
    ],
)
def test_exported_interface_is_imported_unchanged(
    shape: Any, strides: Any, dtype: Any, typestr: str, given: Any
) -> None:
    described = exchange.interface(0x7000, shape, strides, np.dtype(dtype), STREAM)
    assert described == {
        "shape": shape, "typestr": typestr, "data": (0x7000, True), "strides": given, "stream": STREAM, "version": 3,
    }  # fmt: skip
    found = exchange.from_interface(Interfaced(**described))
    assert (found.pointer, found.shape, found.dtype, found.stream) == (0x7000, shape, np.dtype(dtype), STREAM)
    assert found.strides == strides


def test_empty_array_has_no_address() -> None:
    described = exchange.interface(0x7000, (0, 3), (12, 4), np.dtype(np.float32), None)
    assert described["data"] == (0, True) and described["stream"] is None
    assert exchange.from_interface(Interfaced(**described)).span == (0, 0)


def test_old_interface_version_means_the_default_stream() -> None:
    entries = {"shape": (2,), "typestr": "<f4", "data": (0x7000, True)}
    found = exchange.from_interface(Interfaced(**entries, version=2))
    assert found.stream == 1
    assert exchange.from_interface(Interfaced(**entries, version=3)).stream is None


@pytest.mark.parametrize(
    ("entries", "kind", "words"),
    [
        ({"typestr": ">f4"}, DTypeError, "Interfaced: the GPU cannot compute with its dtype .>f4."),
        ({"typestr": "<M8[s]"}, DTypeError, "cannot compute with its dtype"),
        ({"mask": "something"}, DeviceError, "masked arrays are not supported"),
        ({"stream": 0}, DeviceError, "gives the stream 0"),
    ],
)
def test_invalid_interfaces_raise(entries: Any, kind: Any, words: str) -> None:
    usual = {"shape": (2,), "typestr": "<f4", "data": (0x7000, False), "version": 3}
    with pytest.raises(kind, match=words):
        exchange.from_interface(Interfaced(**{**usual, **entries}))


def test_structures_match_dlpack() -> None:
    assert ctypes.sizeof(exchange._Tensor) == 48 and ctypes.sizeof(exchange._Managed) == 64  # on 64-bit machines
