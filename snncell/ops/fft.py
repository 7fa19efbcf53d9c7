"""Fourier transforms along the last axis (SciPy's), with y_k = sum_n x_n exp(-2 pi i k n / N).

Each transform is linear, and its gradient is its adjoint, which is again a Fourier transform.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from snncell import dtype as dtypes
from snncell.base.arguments.kinds import Numbers
from snncell.base.signals import import_once
from snncell.errors import ShapeError
from snncell.kernels.products import device as complexes
from snncell.ops.base import Grads, as_float, as_int, astype, to_compute_dtype, zeros_like
from snncell.tape.primitive import Primitive, with_axis_of_steps
from snncell.tape.tensor import Tensor, on_device_of, snapshot

__all__ = ["fft", "ifft", "imag", "irfft", "real", "rfft"]


def _transform(name: str, there: Callable[..., Any]) -> Primitive:
    """An operation from `scipy.fft`, imported on first use because the import is slow."""
    op = Primitive(name, lambda *args, **options: getattr(import_once("scipy.fft"), name)(*args, **options))
    op.def_on_gpu(there)
    return op


_fft, _ifft = _transform("fft", complexes.fft), _transform("ifft", partial(complexes.fft, inverse=True))
_rfft, _irfft = _transform("rfft", complexes.rfft), _transform("irfft", complexes.irfft)
_fft.def_bprop(lambda x, _out, dout: (ifft(dout) * x.shape[-1],))
_ifft.def_bprop(lambda x, _out, dout: (fft(dout) / x.shape[-1],))


@_rfft.def_bprop
def _(x: Tensor, _out: Tensor, dout: Tensor) -> Grads:
    n = x.shape[-1]
    # irfft counts each frequency twice, except the first and, for even n, the last. The adjoint counts each once.
    return (_irfft.bind(dout / _multiplicity(n, dout), n=n) * n,)


@_irfft.def_bprop
def _(_x: Tensor, _out: Tensor, dout: Tensor, *, n: int) -> Grads:
    spectrum = _rfft.bind(dout)
    return (spectrum * _multiplicity(n, spectrum) / n,)


def _multiplicity(n: int, like: Tensor) -> Tensor:
    """How often each of the n // 2 + 1 frequencies of a real signal occurs in its full spectrum."""
    counts = np.full(n // 2 + 1, 2.0)
    counts[0] = 1
    if n % 2 == 0:
        counts[-1] = 1
    with on_device_of(like):
        return Tensor(counts, dtypes.float64 if like.dtype == dtypes.complex128 else dtypes.float32)


def fft(x: Numbers) -> Tensor:
    """Discrete Fourier transform: the complex spectrum of a real or complex signal (..., N)."""
    return _of_complex(_fft, x)


def ifft(x: Numbers) -> Tensor:
    """Inverse Fourier transform: the complex signal of a spectrum (..., N)."""
    return _of_complex(_ifft, x)


def rfft(x: Numbers) -> Tensor:
    """Fourier transform of a real signal (..., N): the non-negative frequencies, complex (..., N // 2 + 1)."""
    tensor = _signal(x, "rfft")
    if tensor.dtype.category == 3:
        raise ShapeError("rfft: takes a real signal; use fft for a complex one.")
    return _rfft.bind(to_compute_dtype(tensor))


def irfft(x: Numbers, n: int | None = None) -> Tensor:
    """Inverse of `rfft`: (..., n // 2 + 1) -> (..., n), by default for an even n; other lengths raise a ShapeError."""
    tensor = _signal(x, "irfft")
    length = 2 * (tensor.shape[-1] - 1) if n is None else as_int(n, "irfft", "n")
    if tensor.shape[-1] != length // 2 + 1 or length < 1:
        raise ShapeError(
            f"irfft: {tensor.shape[-1]} frequencies do not belong to a signal of length {length}; pass n // 2 + 1."
        )
    return _of_complex(_irfft, tensor, n=length)


def _of_complex(op: Primitive, x: Any, **options: int) -> Tensor:
    signal = _signal(x, op.name)
    return op.bind(astype(signal, _complex_of(signal)), **options)


def _signal(x: Any, name: str) -> Tensor:
    tensor = as_float(x, name)
    if not tensor.ndim or not tensor.shape[-1]:
        raise ShapeError(f"{name}: needs a last axis of at least one element, but the shape is {tensor.shape}.")
    return tensor


def _complex_of(x: Tensor) -> Any:
    return dtypes.complex128 if x.dtype in (dtypes.float64, dtypes.complex128) else dtypes.complex64


_real, _imag = Primitive("real", lambda x: x.real), Primitive("imag", lambda x: x.imag)
_real.def_on_gpu(complexes.real)
_imag.def_on_gpu(complexes.imag)

for _op in (_fft, _ifft, _rfft, _irfft, _real, _imag):
    with_axis_of_steps(_op)  # transforms use the last axis


_real.def_bprop(lambda _x, _out, dout: (dout,))  # the tape converts it to complex, with imaginary part 0
_imag.def_bprop(lambda _x, _out, dout: (astype(dout, _complex_of(dout)) * 1j,))  # for a + ib it is dL/da + i dL/db


def real(x: Numbers) -> Tensor:
    """Real part."""
    tensor = as_float(x, "real")
    return snapshot(tensor) if tensor.dtype.category < 3 else _real.bind(tensor)


def imag(x: Numbers) -> Tensor:
    """Imaginary part; 0 for real numbers."""
    tensor = as_float(x, "imag")
    return zeros_like(tensor) if tensor.dtype.category < 3 else _imag.bind(tensor)
