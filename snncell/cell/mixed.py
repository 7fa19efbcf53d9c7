"""Running a Cell with other numbers than its Parameters hold: in fewer bits, or rounded to a grid."""

from __future__ import annotations

from typing import Any

from snncell import dtype as dtypes
from snncell.errors import ArgumentError
from snncell.tape import structure
from snncell.tape.parameter import Parameter


def refuse_quantised(cell: Any, path: str, narrow: str, who: str) -> None:
    """Raise an ArgumentError for a Cell whose weights are on a grid, and that is to compute in few bits."""
    if cell.quantisers is not None:
        raise ArgumentError(
            f"{who}: {path or 'the net'} ({type(cell).__name__}) is quantised, and {narrow} has fewer bits than sums "
            f"on its grid need. quantise.restore(net) undoes that."
        )


def run_with_others(cell: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call `cell.construct` with other Tensors in the places of its Parameters, its inputs and its results.

    With `cell.quantisers` they are on the grids that it gives; with `cell.compute_dtype` float32 is that dtype on the
    way in, and float32 again on the way out, unless the Cell has `narrow_out`; no Cell has both. The Parameters stay
    what they are: what is put in their places is computed from them by operations, so a gradient comes back to them.

    Raises:
        ArgumentError: if construct sets an attribute, which nobody would find again.
    """
    inner = object.__new__(type(cell))  # the Cell with Tensors in the places of its Parameters
    inner.__dict__.update(cell.__dict__)
    if cell.quantisers is None:
        narrow = dtypes.as_dtype(cell.compute_dtype)
        args, kwargs = _narrow_parameters(inner, args, kwargs, narrow)
        out = _construct_copy(cell, inner, args, kwargs)
        if cell.narrow_out:
            return out
        leaves, tree = structure.flatten(out)
        return structure.unflatten(tree, [x.astype(dtypes.float32) if x.dtype is narrow else x for x in leaves])
    inner.__dict__.update(cell.quantisers.in_place(cell))
    out = _construct_copy(cell, inner, cell.quantisers.inputs(args), kwargs)
    return cell.quantisers.results(cell, out)


def _narrow_parameters(inner: Any, args: tuple[Any, ...], kwargs: dict[str, Any], narrow: dtypes.DType) -> Any:
    """Put casts in the places of the Parameters; the inputs, cast."""
    for name, value in vars(inner).items():
        if isinstance(value, Parameter):
            inner.__dict__[name] = _as(narrow, value)
        elif isinstance(value, (list, tuple)) and any(isinstance(item, Parameter) for item in value):
            inner.__dict__[name] = [_as(narrow, item) if isinstance(item, Parameter) else item for item in value]
    leaves, tree = structure.flatten((args, kwargs))
    return structure.unflatten(tree, [_as(narrow, x) for x in leaves])


def _construct_copy(cell: Any, inner: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The result of the copy, which nothing may have been kept on."""
    name = type(cell).__name__
    if "construct" in vars(cell):
        raise ArgumentError(
            f"{name}: its construct was set on the object, and reads the Parameters as they are, not in few bits. "
            f"Define it in a subclass of {name}, or leave the Cell out of quantise.prepare or amp."
        )
    out = inner.construct(*args, **kwargs)
    if inner.__dict__["version"] == cell.version:
        return out
    if cell.quantisers is None:
        where = "mixed precision. Leave it in float32: amp.auto_mixed_precision(net, ..., black_list=[{}])."
    else:
        where = "a quantised Cell. Leave it as it is: quantise.prepare(net, ..., skip=[{}])."
    raise ArgumentError(f"{name}: construct sets an attribute, which is lost in {where.format(name)}")


def _as(narrow: dtypes.DType, x: Any) -> Any:
    """A float32 in fewer bits; anything else as it is."""
    return x.astype(narrow) if x.dtype is dtypes.float32 else x
