"""Options of `jit` that MindSpore has: those with a meaning here, and those that say what holds anyway."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from snncell.base.arguments.kinds import Own
from snncell.base.arguments.shown import came, show
from snncell.errors import ArgumentError, DTypeError, ShapeError
from snncell.tape import structure
from snncell.tape.tensor import Tensor

Level = Literal["O0", "O1", "O2"]


class JitConfig:
    """MindSpore's settings of its compiler, which `jit(jit_config=...)` and `Cell.set_jit_config` take.

    There is one way to compile here, so that none of them changes a result, or the time it takes: a script that sets
    them runs as it is.

    Args:
        jit_level: "O0", "O1" or "O2"; "" for none.
        exc_mode: "auto", "sink" or "no_sink".
        jit_syntax_level: "STRICT" or "LAX".
        debug_level: "RELEASE" or "DEBUG".
        infer_boost: "on" or "off".

    Raises:
        ArgumentError: for others.
    """

    def __init__(
        self,
        jit_level: Literal["", "O0", "O1", "O2", "O3"] = "",
        exc_mode: Literal["auto", "sink", "no_sink"] = "auto",
        jit_syntax_level: Literal["", "STRICT", "LAX"] = "",
        debug_level: Literal["", "RELEASE", "DEBUG"] = "",
        infer_boost: Literal["", "on", "off"] = "",
    ) -> None:
        self.jit_level, self.exc_mode, self.jit_syntax_level = jit_level, exc_mode, jit_syntax_level
        self.debug_level, self.infer_boost = debug_level, infer_boost

    @property
    def jit_config_dict(self) -> dict[str, str]:
        """The settings by name."""
        return dict(vars(self))


def refuse_options(jit_config: Any, dynamic: Any, compile_once: Any, hash_args: Any, options: dict[str, Any]) -> None:
    """Raise an ArgumentError for an option of `jit` that asks for what there is not."""
    if jit_config is not None and not isinstance(jit_config, JitConfig):
        raise ArgumentError(f"jit: jit_config is a JitConfig, not {came(jit_config)}.")
    if type(dynamic) not in (int, bool) or dynamic:
        raise ArgumentError(
            f"jit: dynamic={show(dynamic)}: each shape is traced by itself, which takes milliseconds once its kernels "
            f"are known; leave it out. A few shapes are had by padding."
        )
    if compile_once:
        raise ArgumentError(
            "jit: compile_once=True would go on with an attribute of a Cell as it was when traced; "
            "it is traced again when one has changed, and else not. Leave it out."
        )
    if hash_args is not None:
        raise ArgumentError(
            "jit: hash_args: values that a function reads outside of its arguments are compared at each call, and if "
            "one has changed, it is traced again. Leave it out."
        )
    if options:
        raise ArgumentError(f"jit: there is no option {show(next(iter(options)))}.")


def as_signature(given: Annotated[Any, Own()]) -> tuple[Tensor | None, ...] | None:
    """The arguments that a function is to be called with, as Tensors of their shapes and dtypes."""
    if given is None:
        return None
    each = tuple(given) if isinstance(given, (tuple, list)) else (given,)
    for number, one in enumerate(each):
        if one is not None and not isinstance(one, Tensor):
            raise ArgumentError(
                f"jit: input_signature holds a Tensor like each argument, such as ops.zeros((2, 3)), or None "
                f"for what it may be; element {number} is {came(one)}."
            )
    return each


def refuse_other_arguments(signature: Sequence[Tensor | None], args: Sequence[Any], name: str) -> None:
    """Raise for arguments that are not as `input_signature` says.

    Raises:
        ArgumentError: for another number of them, or no Tensor.
        ShapeError: for another shape.
        DTypeError: for another dtype.
    """
    who = f"jit({name}): input_signature"
    if len(args) != len(signature):
        raise ArgumentError(f"{who} has {len(signature)} argument(s), and there are {len(args)}.")
    for number, (wanted, x) in enumerate(zip(signature, args, strict=True)):
        if wanted is None:
            continue
        leaves = structure.flatten(x)[0]
        if not isinstance(x, Tensor):
            raise ArgumentError(f"{who}: argument {number} is a Tensor, not {came(x)}{' of them' if leaves else ''}.")
        if x.shape != wanted.shape:
            raise ShapeError(f"{who}: argument {number} has shape {wanted.shape}, this one {x.shape}.")
        if x.dtype != wanted.dtype:
            raise DTypeError(f"{who}: argument {number} is of {wanted.dtype.name}, this one of {x.dtype.name}.")
