"""Memory spaces, the host (CPU) and the device (GPU), with the array operations that plans and loops need in both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from snncell.base import config
from snncell.dtype import compute_dtype
from snncell.errors import DeviceError
from snncell.kernels import arrays, sums
from snncell.kernels.cuda import arrays as device_arrays, exchange, functions as functions
from snncell.kernels.cuda.runtime import IN_USE as IN_USE, runtime

_HOSTS = (np.ndarray, np.generic)  # np.generic because indexing a NumPy array may give a scalar


class _Host:
    """The host. The documentation of a method here also applies to the device."""

    device = "cpu"  # the name for users
    empty = staticmethod(arrays.empty)

    def zeros(self, shape: Sequence[int], dtype: Any) -> Any:
        return np.zeros(shape, dtype)

    def contiguous(self, array: Any) -> Any:
        return array if array.flags.c_contiguous else np.ascontiguousarray(array)

    def copy(self, array: Any) -> Any:
        return np.array(array, order="C")

    def add(self, total: Any, term: Any) -> Any:
        """`total + term`; `total` may be overwritten."""
        total += term
        return total

    def sum(self, array: Any, axes: tuple[int, ...] = (0,)) -> Any:
        """The sum along axes."""
        return self.cast(sums.total(self.widen(array), axes), array.dtype)

    def times(self, array: Any, number: float) -> Any:
        return self.cast(self.widen(array) * number, array.dtype)

    def widen(self, array: Any) -> Any:
        """Convert an array to the dtype in which its elements are computed."""
        return self.cast(array, compute_dtype(array.dtype))

    def cast(self, array: Any, dtype: Any) -> Any:
        if array.dtype != dtype and array.ndim and self.uniform(array):
            return np.broadcast_to(array[(0,) * array.ndim].astype(dtype), array.shape)
        return array.astype(dtype, copy=False)

    def constant(self, array: Any) -> Any:
        """A constant of a plan, in this space and at a fixed address."""
        return move_to_space(array, self)

    def without_base(self, array: Any) -> Any:
        """Return the array, or a copy if the array keeps a larger one alive, for example as a row of it."""
        owner = array
        while isinstance(owner.base, np.ndarray):
            owner = owner.base
        return array if array.flags.c_contiguous and owner.nbytes <= array.nbytes else np.array(array, order="C")

    def uniform(self, array: Any) -> bool:
        """True if one element is broadcast to the whole shape."""
        return array.size > 0 and not any(array.strides)

    def require(self, array: Any, what: str) -> Any:
        """Return an array of this space. Move a single element here; raise for a larger array, which `what` names."""
        if isinstance(array, _HOSTS):
            return array
        if array.uniform:
            return array.host()
        raise DeviceError(f'{what} is on the GPU, but the others are on the CPU. Move it by .to("cpu"), or move them.')


class _DeviceSpace:
    device = "gpu"

    empty = staticmethod(device_arrays.empty)
    zeros = staticmethod(device_arrays.zeros)
    contiguous = staticmethod(device_arrays.contiguous)
    adopted = staticmethod(exchange.adopt_array)
    interface = staticmethod(exchange.interface_of)
    capsule = staticmethod(exchange.device_capsule)

    def __init__(self) -> None:
        # Operations that loops over time need in addition to those of their body: `ops` registers them here.
        self.arithmetic: dict[str, Any] = {}

    def copy(self, array: Any) -> Any:
        return array.copy()

    def add(self, total: Any, term: Any) -> Any:
        return self.arithmetic["add"].on_device([total, term], {})

    def sum(self, array: Any, axes: tuple[int, ...] = (0,)) -> Any:
        return self.arithmetic["sum"].on_device([array], {"axis": axes, "keepdims": False})

    def times(self, array: Any, number: float) -> Any:
        return self.arithmetic["mul"].on_device([array, number], {})

    def cast(self, array: Any, dtype: Any) -> Any:
        return array if array.dtype == dtype else self.arithmetic["cast"].on_device([array], {"dtype": dtype})

    def widen(self, array: Any) -> Any:
        return self.cast(array, compute_dtype(array.dtype))

    def constant(self, array: Any) -> Any:
        array = move_to_space(array, self)
        return array.copy() if hasattr(array.memory, "detach") else array  # copy the memory of a CUDA graph

    def without_base(self, array: Any) -> Any:
        whole: bool = array.contiguous and array.memory.block.size <= 2 * array.nbytes + 512
        return array if whole else array.copy()

    def uniform(self, array: Any) -> bool:
        return bool(array.uniform)

    def require(self, array: Any, what: str) -> Any:
        if not isinstance(array, _HOSTS):
            return array
        array = np.asarray(array)
        if array.size <= 1 or HOST.uniform(array):
            return device_arrays.from_host(array)
        raise DeviceError(f'{what} is on the CPU, but the others are on the GPU. Move it by .to("gpu"), or move them.')

    def operands(self, inputs: Sequence[Any], name: str) -> list[Any]:
        """Move the operands of an operation to the device: single elements are copied, Python numbers stay numbers."""
        return [self.require(x, f"{name}: input {n}") if hasattr(x, "dtype") else x for n, x in enumerate(inputs, 1)]

    def has(self, data: Any) -> bool:
        """True if an object of another library has its elements on a card."""
        if isinstance(data, (np.ndarray, np.generic, float, int, list, tuple, type)) or hasattr(data, "_data"):
            return False  # a class has no elements; a Tensor's own array is tested instead
        if hasattr(data, "__cuda_array_interface__"):
            return True
        return hasattr(data, "__dlpack_device__") and data.__dlpack_device__()[0] == exchange.CUDA


Space: TypeAlias = _Host | _DeviceSpace
HOST, DEVICE = _Host(), _DeviceSpace()
config.CHECKS.append(runtime)


def space_of(array: Any) -> Space:
    """The space of an array."""
    return HOST if isinstance(array, _HOSTS) else DEVICE


def space_by_name(device: Any, who: str) -> Space:
    """The space with the name "cpu" or "gpu"; `who` is the caller's name for the error."""
    places: dict[str, Space] = {"cpu": HOST, "gpu": DEVICE, "cuda": DEVICE}
    space = places.get(str(device).lower())
    if space is None:
        raise DeviceError(f'{who}: device must be "cpu" or "gpu", not {device!r}. (To convert the dtype, use astype.)')
    return space


def move_to_space(array: Any, space: Space) -> Any:
    """Return the array if it is in `space`, else a copy there."""
    if space_of(array) is space:
        return array
    return array.host() if space is HOST else device_arrays.from_host(array)
