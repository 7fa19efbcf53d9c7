"""Running a Cell in fewer bits than its Parameters have."""

from __future__ import annotations

from typing import Any

from snncell import dtype as dtypes
from snncell.errors import ArgumentError
from snncell.tape import structure
from snncell.tape.parameter import Parameter


def run_mixed(cell: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call `cell.construct` with its float32 inputs and own Parameters as `cell.compute_dtype`; give float32.

    With `cell.narrow_out`, the results stay as they are.

    The Parameters stay what they are: casts are operations, so a gradient comes back through them as float32.

    Raises:
        ArgumentError: if construct sets an attribute, which nobody would find again.
    """
    narrow = dtypes.as_dtype(cell.compute_dtype)
    inner = object.__new__(type(cell))  # the Cell with Tensors in the places of its Parameters
    inner.__dict__.update(cell.__dict__)
    for name, value in vars(cell).items():
        if isinstance(value, Parameter):
            inner.__dict__[name] = _as(narrow, value)
        elif isinstance(value, (list, tuple)) and any(isinstance(item, Parameter) for item in value):
            inner.__dict__[name] = [_as(narrow, item) if isinstance(item, Parameter) else item for item in value]
    leaves, tree = structure.flatten((args, kwargs))
    args, kwargs = structure.unflatten(tree, [_as(narrow, x) for x in leaves])
    out = inner.construct(*args, **kwargs)
    if inner.__dict__["version"] != cell.version:
        raise ArgumentError(
            f"{type(cell).__name__}: construct sets an attribute, which is lost in mixed precision. Leave it in "
            f"float32: amp.auto_mixed_precision(net, ..., black_list=[{type(cell).__name__}])."
        )
    if cell.narrow_out:
        return out
    leaves, tree = structure.flatten(out)
    return structure.unflatten(tree, [x.astype(dtypes.float32) if x.dtype is narrow else x for x in leaves])


def _as(narrow: dtypes.DType, x: Any) -> Any:
    """A float32 in fewer bits; anything else as it is."""
    return x.astype(narrow) if x.dtype is dtypes.float32 else x
