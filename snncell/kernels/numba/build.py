"""Build kernels from generated source or from functions; the same source gives the same kernel."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from snncell.base.signals import BUILDING, deferring, let_fork, refuse_unfinished
from snncell.kernels.numba import policy, progress, store
from snncell.kernels.numba.code import code_of, digest_of, function_of, keep, of_slots, source_of, without_comments
from snncell.kernels.numba.launcher import share
from snncell.kernels.numba.native import kernel_of

_built: dict[tuple[Any, ...], Callable[..., Any]] = {}


def build(name: str, source: str, signature: Sequence[Any]) -> Callable[..., Any]:
    """The kernel called `name` in `source`, compiled for `signature`: see `native.kernel_of`."""
    code = without_comments(source)
    key = (name, code, tuple(signature))
    kernel = _built.get(key)
    if kernel is None:
        # Before the lock, which a thread that builds one kernel after the other would not leave to a fork.
        refuse_unfinished()
        let_fork()
        with BUILDING:
            kernel = _built.get(key)  # another thread may have built it meanwhile
            if kernel is None:
                # Numba's state would be left in pieces: an interruption waits until this kernel is done.
                kernel = _built[key] = deferring(_compile_kernel, name, source, code, signature)
    return kernel


def _compile_kernel(name: str, source: str, code: str, signature: Sequence[Any]) -> Callable[..., Any]:
    if not policy.compiles():
        function = function_of(keep(name, source, code)[0], source, name)
        return lambda units, _, *arguments: function(0, units, *arguments)
    linked, loaded = code_of(name, of_slots(name, source, signature), of_slots(name, code, signature))
    return kernel_of(name, linked, signature, share, loaded)


def build_function(kernel: Callable[..., Any], signature: Sequence[Any], **given: Any) -> Callable[..., Any]:
    """The kernel that a function is the source of; `given` as for `source_of`."""
    return build(kernel.__name__, source_of(kernel, **given), signature)


def expect(kernels: Iterable[tuple[str, str, Sequence[Any]]]) -> None:
    """Say which kernels are about to be built, as the arguments of `build`, before the first of them is compiled."""
    if not progress.listening():
        return
    with_code = store.compiled_names()
    for name, source, signature in kernels:
        code = without_comments(source)
        file = f"{name}_{digest_of(of_slots(name, code, signature))}"
        if (name, code, tuple(signature)) not in _built and file not in with_code:
            progress.expect([file])
