"""Checkpoints: save and load Parameters as a safetensors file, keyed by attribute path."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np

from snncell import dtype as dtypes
from snncell.base.arguments.guard import guard as _guard
from snncell.base.arguments.kinds import Own
from snncell.base.arguments.shown import came, show
from snncell.base.signals import import_once
from snncell.cell.cell import Cell
from snncell.cell.state import replace_buffers
from snncell.errors import CheckpointError, DTypeError, ParameterError
from snncell.kernels.numba import files
from snncell.tape.parameter import Parameter, assign_all, fits, refuse_equal_names, together
from snncell.tape.state import Undo
from snncell.tape.tensor import Tensor

__all__ = ["load_checkpoint", "load_param_into_net", "save_checkpoint"]


def _argument(who: str) -> str:
    """The name of the argument of `who` that is the path."""
    names = {"fit": "checkpoint"} | dict.fromkeys(("save_state", "load_state", "save", "load"), "file")
    return names.get(who, "ckpt_file_name")


def _path(file: Any, who: str) -> Path:
    if not isinstance(file, (str, os.PathLike)):
        raise CheckpointError(f"{who}: {_argument(who)} is the path of a checkpoint, not {show(file)}.")
    return Path(file)


def save_checkpoint(
    save_obj: Annotated[Cell | dict[str, Tensor], Own()],
    ckpt_file_name: Annotated[str | os.PathLike[str], Own()],
    integrated_save: bool = True,
    async_save: bool = False,
    append_dict: dict[str, Any] | None = None,
    enc_key: None = None,
    enc_mode: Literal["AES-GCM", "AES-CBC", "SM4-CBC"] = "AES-GCM",
    choice_func: Callable[[str], Any] | None = None,
    crc_check: bool = False,
    format: Literal["ckpt", "safetensors"] = "ckpt",
) -> None:
    """Save all Parameters and persistent buffers of a Cell to a safetensors file.

    The file is replaced atomically, so after a crash it is either the old or the new file. Its keys are paths from the
    Cell that you save, so you can also load the file into this Cell as a part of another network.

    Args:
        save_obj: the Cell, its `state_dict`, or a list of {"name": path, "data": Tensor}.
        ckpt_file_name: the path.
        append_dict: further Tensors, numbers and bools by name; the names must be new.
        choice_func: a function of a path that returns True to save it. Default: save all.
        format: accepted without effect: the file is always safetensors.
        integrated_save, async_save, crc_check, enc_mode: accepted without effect.
        enc_key: None, because files are not encrypted.
    Raises: ParameterError if two Parameters of one Cell share a name; CheckpointError if the file cannot be written, or
        for an invalid value in append_dict, or for a dtype that these files cannot hold (complex128).
    """
    if isinstance(save_obj, Cell):
        refuse_equal_names(save_obj.get_parameters(), "save_checkpoint")
        tensors = _tensors_of(save_obj)
    else:
        tensors = _as_tensors(save_obj)
    tensors = {path: x for path, x in tensors.items() if choice_func is None or choice_func(path)}
    for name, value in (append_dict or {}).items():
        if name in tensors:
            raise CheckpointError(f"save_checkpoint: {name!r} of append_dict is already in use; choose another name.")
        tensors |= _as_tensors({name: Tensor(value) if isinstance(value, (bool, int, float)) else value})
    arrays = {path: x.asnumpy() for path, x in tensors.items()}
    write_arrays(ckpt_file_name, arrays, {"writer": "snncell"}, "save_checkpoint")


def _tensors_of(net: Cell) -> dict[str, Tensor]:
    buffers = {path: vars(cell)[name] for path, (cell, name) in net.kept_buffers().items()}
    return net.parameters_dict() | buffers


def _as_tensors(save_obj: Any) -> dict[str, Tensor]:
    """Check a dict of Tensors by path, or convert a list of such pairs to one."""
    if isinstance(save_obj, (list, tuple)) and all(isinstance(x, dict) and {"name", "data"} <= {*x} for x in save_obj):
        named = {entry["name"]: entry["data"] for entry in save_obj}
        if len(named) < len(save_obj):
            raise CheckpointError("save_checkpoint: two entries of save_obj have one name.")
        save_obj = named
    if not isinstance(save_obj, dict):
        raise CheckpointError(
            'save_checkpoint: save_obj is a Cell, the dict of one, or a list of {"name": ..., "data": ...}, not '
            f"{came(save_obj)}."
        )
    for path, value in save_obj.items():
        if not isinstance(path, str) or not isinstance(value, Tensor):
            raise CheckpointError(f"save_checkpoint: {path!r} of save_obj is {came(value)}; a checkpoint has Tensors.")
    return save_obj


def path_to_write(file: str | os.PathLike[str], who: str) -> Path:
    """Check that a file can be created at a path, and return the path."""
    target = _path(file, who)
    if not target.name:
        raise CheckpointError(
            f"{who}: {_argument(who)}={os.fspath(file)!r} names no file to write; give its name, with the folder."
        )
    if not target.parent.is_dir():
        raise CheckpointError(f"{who}: there is no folder {target.parent} to write {target.name} into.")
    return target


def write_arrays(file: str | os.PathLike[str], arrays: dict[str, Any], text: dict[str, str], who: str) -> None:
    """Write arrays and texts atomically to a safetensors file, and remove temporary files of killed processes."""
    save: Any = import_once("safetensors.numpy").save
    known = {dtype.dtype for dtype in _DTYPES.values()}
    native = {name: np.array(a, a.dtype.newbyteorder("="), order="C") for name, a in arrays.items()}
    for name, array in native.items():
        if array.dtype not in known:
            raise CheckpointError(
                f"{who}: {name!r} is of dtype {array.dtype}, which safetensors files of snncell do not hold; they hold "
                f"{', '.join(sorted(map(str, known)))}. Convert it first, for example by "
                + ('astype("complex64").' if array.dtype.kind == "c" else 'astype("float32").')
            )
    target = path_to_write(file, who)
    content = save(native, text)
    files.remove_abandoned(target.parent)
    try:
        files.write(target, content, shared=True)
    except OSError as error:
        raise CheckpointError(f"{who}: {_argument(who)} {target} cannot be written: {error}.") from None


def read_arrays(file: str | os.PathLike[str], who: str) -> tuple[dict[str, Any], dict[str, str]]:
    """Read the arrays and the texts of a safetensors file."""
    safetensors: Any = import_once("safetensors")
    SafetensorError, deserialize = safetensors.SafetensorError, safetensors.deserialize  # noqa: N806 (a class)
    source = _path(file, who)
    try:
        content = source.read_bytes()
        arrays = {name: _array(**view) for name, view in sorted(deserialize(content))}
        header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    except FileNotFoundError:
        raise CheckpointError(f"{who}: {_argument(who)}: there is no file {source}.") from None
    except OSError as error:
        raise CheckpointError(f"{who}: {_argument(who)} {source} cannot be read: {error}.") from None
    except DTypeError as error:
        raise CheckpointError(f"{who}: {source}: {error}") from None
    except (SafetensorError, ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise CheckpointError(f"{who}: {source} is damaged or no safetensors file: {error}.") from None
    return arrays, header.get("__metadata__") or {}


def load_checkpoint(
    ckpt_file_name: Annotated[str | os.PathLike[str], Own()],
    net: Cell | None = None,
    strict_load: bool = True,
    filter_prefix: str | Sequence[str] | None = None,
    dec_key: None = None,
    dec_mode: Literal["AES-GCM", "AES-CBC", "SM4-CBC"] = "AES-GCM",
    specify_prefix: str | Sequence[str] | None = None,
    choice_func: Callable[[str], Any] | None = None,
    crc_check: bool = False,
    remove_redundancy: bool = False,
    format: Literal["ckpt", "safetensors"] = "ckpt",
) -> dict[str, Parameter]:
    """Load a checkpoint: a dict of Parameters by attribute path. With `net`, also load them into that Cell.

    Args:
        ckpt_file_name: the path.
        net: the Cell to load them into. Default: only return them.
        strict_load: whether `net` and the file must have exactly the same paths.
        filter_prefix: skip paths that begin with one of these.
        specify_prefix: read only paths that begin with one of these. Default: all.
        choice_func: a function of a path that returns True to read it. Default: read all.
        dec_key: None, because files are not encrypted.
        dec_mode, crc_check, remove_redundancy, format: accepted without effect.
    Raises: CheckpointError if the file is missing or damaged, or does not fit `net`; then `net` stays unchanged.
    """
    source = _path(ckpt_file_name, "load_checkpoint")
    arrays, _ = read_arrays(source, "load_checkpoint")
    without, within = _prefixes(filter_prefix), _prefixes(specify_prefix)
    try:
        parameters = {
            path: Parameter(array, name=path)
            for path, array in arrays.items()
            if not path.startswith(without)
            and (not within or path.startswith(within))
            and (choice_func is None or choice_func(path))
        }
        if arrays and not parameters:
            raise CheckpointError(f"the filters select none of {', '.join(arrays)}.")
        if net is not None:
            load_param_into_net(net, parameters, strict_load)
    except (CheckpointError, DTypeError, ParameterError) as error:  # ParameterError: an entry without a name
        raise CheckpointError(f"load_checkpoint: {source}: {error}") from None
    return parameters


def _prefixes(given: str | Sequence[str] | None) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given or ())


# safetensors' names of dtypes. Its NumPy reader does not support bfloat16, so `_array` reads the bytes.
_DTYPES = {
    "BOOL": dtypes.bool_, "BF16": dtypes.bfloat16, "F16": dtypes.float16, "F32": dtypes.float32, "F64": dtypes.float64,
    "U8": dtypes.uint8, "I8": dtypes.int8, "I16": dtypes.int16, "I32": dtypes.int32, "I64": dtypes.int64,
    "C64": dtypes.complex64,
}  # fmt: skip


def _array(dtype: str, shape: Sequence[int], data: bytes) -> Any:
    return np.frombuffer(data, dtypes.as_dtype(_DTYPES.get(dtype, dtype)).dtype).reshape(shape)


def _misfit(net: Cell, missing: list[str], unused: list[str]) -> CheckpointError:
    if any(path.startswith("optimiser/") for path in unused):
        return CheckpointError(
            "load_param_into_net: the file is the checkpoint of a training: train.load_state(file, net) loads the "
            "weights, train.load_state(file, net, optimiser) all that the training needs to continue."
        )
    return CheckpointError(
        f"load_param_into_net: the checkpoint does not fit {type(net).__name__}. Not in the checkpoint: "
        f"{missing or 'nothing'}; not in the Cell: {unused or 'nothing'}."
    )


def load_param_into_net(
    net: Cell, parameter_dict: dict[str, Any], strict_load: bool = False, remove_redundancy: bool = False
) -> tuple[list[str], list[str]]:
    """Load Parameters into a Cell by attribute path. If one of them does not fit, nothing is loaded (CheckpointError).

    Args:
        net: the Cell.
        parameter_dict: the result of `load_checkpoint`.
        strict_load: whether the Cell and the dict must have exactly the same paths.
        remove_redundancy: accepted without effect.
    Returns: The paths that only the Cell has, and the paths that only the dict has.
    """
    if not isinstance(net, Cell) or not isinstance(parameter_dict, dict):
        raise CheckpointError(
            f"load_param_into_net: takes a Cell and the dict that load_checkpoint gives, not a {type(net).__name__} "
            f"and a {type(parameter_dict).__name__}."
        )
    buffers, own = net.kept_buffers(), _tensors_of(net)
    missing = [path for path in own if path not in parameter_dict]
    unused = [path for path in parameter_dict if path not in own]
    if strict_load and (missing or unused):
        raise _misfit(net, missing, unused)
    shared = [path for path in own if path in parameter_dict]
    for path in shared:
        have, want = parameter_dict[path], own[path]
        if not isinstance(have, Tensor):
            raise CheckpointError(f"load_param_into_net: {path!r} is a {type(have).__name__}, not a Tensor.")
        if have.shape != want.shape or not fits(have.dtype, want.dtype):
            raise CheckpointError(
                f"load_param_into_net: {path!r} is {have.dtype}{list(have.shape)} in the checkpoint and "
                f"{want.dtype}{list(want.shape)} in {type(net).__name__}."
            )
    pairs = [(p, parameter_dict[path]) for path in shared if isinstance(p := own[path], Parameter)]
    with together(written := Undo()):
        assign_all(pairs, "load_param_into_net")
        replace_buffers(written, [(*buffers[path], parameter_dict[path]) for path in shared if path in buffers])
        written.clear()
    return missing, unused


_guard(globals(), own=True)
