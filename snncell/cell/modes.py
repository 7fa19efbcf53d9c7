"""Settings of a Cell and its descendants: training mode, gradients, device, precision, flags."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Self

from snncell import dtype as dtypes
from snncell.base.arguments.shown import came
from snncell.cell.tree import Tree
from snncell.errors import ArgumentError
from snncell.tape import structure
from snncell.tape.parameter import Parameter, commit
from snncell.tape.tensor import Tensor

_FLOATS = (dtypes.float16, dtypes.bfloat16, dtypes.float32)
_OF_CLUSTERS = ("mp_comm_recompute", "parallel_optimizer_comm_recompute", "recompute_slice_activation")


class Modes(Tree):
    """The part of Cell with settings that apply to all its descendants."""

    training: bool
    bprop: Callable[..., Any] | None = None
    compute_dtype: str | None = None  # the dtype of its products, if not that of its Parameters: `snncell.amp`
    narrow_out = False  # whether its results keep compute_dtype
    quantisers: Any = None  # a Cell that rounds weights and inputs to grids: `snncell.quantise`
    _over_time = False  # whether it runs its `cell` at each time step
    _all_steps = False  # whether it runs over all time steps itself, so that it needs no MultiStep
    _recomputed = False

    @property
    def cls_name(self) -> str:
        """The name of the class."""
        return type(self).__name__

    @property
    def phase(self) -> str:
        """The mode as MindSpore's word: "train" or "predict"."""
        return "train" if self.training else "predict"

    def set_train(self, mode: bool = True) -> Self:
        """Switch this Cell and its descendants to training mode, or to prediction with `set_train(False)`.

        You should switch to prediction before you evaluate, because layers such as Dropout and BatchNorm differ.
        """
        for _, cell in self.cells_and_names():
            cell.training = bool(mode)
        return self

    def set_grad(self, requires_grad: bool = True) -> Self:
        """Set `requires_grad` of all Parameters; `cell.requires_grad` returns the last setting."""
        for parameter in self.get_parameters():
            parameter.requires_grad = bool(requires_grad)
        for _, cell in self.cells_and_names():
            cell.__dict__["_gradients"] = bool(requires_grad)
        return self

    @property
    def requires_grad(self) -> bool:
        """The last setting by `set_grad`; False before the first one. Assigning to it calls `set_grad`."""
        return bool(self.__dict__.get("_gradients", False))

    @requires_grad.setter
    def requires_grad(self, requires_grad: bool) -> None:
        self.set_grad(requires_grad)

    def to(self, device: Any = None, dtype: Any = None, non_blocking: bool = False) -> Self:
        """Move the Parameters and buffers to `device`, "cpu" or "gpu", and return the Cell.

        Args:
            device: the name in upper or lower case, or None to leave them where they are.
            dtype: None, because Parameters keep their dtype.
            non_blocking: accepted without effect.
        """
        if dtype is not None or isinstance(device, (dtypes.DType, Tensor)):
            raise ArgumentError(
                f"to: {type(self).__name__} can only move to a device; its Parameters keep their dtype. Create layers "
                f"with a dtype, or call cell.to_float(snncell.float16) to compute in float16."
            )
        if device is None:
            return self
        commit([parameter.moving(device) for parameter in self.get_parameters()])
        for _, cell in self.cells_and_names():
            for name in cell._buffers:
                if cell.__dict__[name] is not None:
                    setattr(cell, name, cell.__dict__[name].to(device))
        return self

    def to_float(self, dst_type: Any) -> Self:
        """Compute this Cell and its descendants in float16 or bfloat16: y = f(half(x), half(W)), y is of `dst_type`.

        Parameters and their gradients keep their dtype. A Cell with a `bprop` but no Parameters does not change. A Cell
        with a `bprop` and Parameters, or a quantised Cell, raises an ArgumentError. In contrast,
        `amp.auto_mixed_precision` changes only layers with large products, and converts their results to float32.

        Args: dst_type: float16, bfloat16, or float32 to undo it.
        Example:
            >>> net = nn.Dense(3, 4).to_float(snncell.float16)
            >>> net(ops.ones((2, 3))).dtype, net.weight.dtype
            (Float16, Float32)
        """
        kind = dtypes.as_dtype(dst_type)
        if kind not in _FLOATS:
            raise ArgumentError(f"to_float: dst_type is float16, bfloat16 or float32, not {came(dst_type)}.")
        cells = list(self._cells_to_narrow())
        if kind is not dtypes.float32:
            for path, cell in self.cells_and_names():
                refuse_quantised(cell, path, kind.name, "to_float")
        for cell in cells:
            if kind is not dtypes.float32:
                cell.compute_dtype, cell.narrow_out = kind.name, True
            elif cell.compute_dtype is not None:
                del cell.compute_dtype  # deleted, not set to None, so that checkpoints do not change
                cell.__dict__.pop("narrow_out", None)
        return self

    def _cells_to_narrow(self) -> Iterator[Any]:
        for _, cell in self.cells_and_names():
            if cell.bprop is None and not cell._over_time:
                yield cell
            elif any(True for _ in cell.get_parameters(expand=False)):
                raise ArgumentError(
                    f"to_float: {type(cell).__name__} has a bprop, which uses its Parameters in float32. Cast the "
                    f"values that should have fewer bits in its construct and bprop."
                )

    def recompute(
        self,
        *,
        use_reentrant: bool = True,
        output_recompute: bool = False,
        early_stop: bool = True,
        context_fn: None = None,
        **kwargs: Any,
    ) -> Self:
        """Gradient checkpointing: rerun the Cell in the backward pass instead of storing its intermediate values.

        It stores only inputs and outputs and costs a second forward pass; gradients and random numbers stay the same.
        Statistics are updated once, but hooks of descendants are called twice. A `MultiStep` without `checkpoint_every`
        stores its states at every sqrt(T)-th time step. In a jitted function, the compiler decides what to store.

        Args:
            output_recompute: False, because the following operations need the outputs.
            context_fn: None.
            use_reentrant, early_stop, kwargs: MindSpore's arguments, without effect; kwargs are `mp_comm_recompute`,
                `parallel_optimizer_comm_recompute` and `recompute_slice_activation`.
        """
        if output_recompute or context_fn is not None:
            raise ArgumentError(
                "recompute: output_recompute=True and context_fn are not supported; outputs are always stored. To free "
                "the output of a Cell too, call recompute() on the Cell that contains it and the next one."
            )
        for name in kwargs:
            if name not in _OF_CLUSTERS:
                raise ArgumentError(
                    f"recompute: unknown argument {name!r}. MindSpore's arguments that it accepts are "
                    f"{', '.join(_OF_CLUSTERS)}."
                )
        self._recomputed = True
        return self

    # --- flags --------------------------------------------------------------------------------------------------------

    def add_flags(self, **flags: Any) -> Self:
        """Set attributes that `get_flags` returns."""
        for name, value in flags.items():
            setattr(self, name, value)
        if flags:
            self.__dict__["_flags_set"] = {**self.__dict__.get("_flags_set", {}), **flags}
        return self

    def add_flags_recursive(self, **flags: Any) -> Self:
        """Call `add_flags` on this Cell and all its descendants."""
        for _, cell in self.cells_and_names():
            cell.add_flags(**flags)
        return self

    def get_flags(self) -> dict[str, Any]:
        """The attributes set by `add_flags`, with their values at that time."""
        return dict(self.__dict__.get("_flags_set", {}))


@contextmanager
def phases(*parts: Any) -> Iterator[None]:
    """Context manager: restore the training mode of every Cell in `parts` at the end; other objects are ignored."""
    cells = [cell for part in parts if isinstance(part, Modes) for _, cell in part.cells_and_names()]
    before = [(cell, cell.training) for cell in cells]
    try:
        yield
    finally:
        for cell, training in before:
            cell.training = training


# --- computing with narrowed or quantised Parameters ------------------------------------------------------------------


def refuse_quantised(cell: Any, path: str, narrow: str, who: str) -> None:
    """Raise an ArgumentError if a Cell that should compute in float16 or bfloat16 is quantised."""
    if cell.quantisers is not None:
        raise ArgumentError(
            f"{who}: {path or 'the net'} ({type(cell).__name__}) is quantised, and {narrow} has too few bits for the "
            f"sums on its grid. quantise.restore(net) undoes the quantisation."
        )


def run_with_others(cell: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call `cell.construct` with its Parameters and inputs replaced by converted Tensors, and convert the results. With
    `cell.quantisers`, the Tensors are rounded to grids. With `cell.compute_dtype`, they have that dtype, and results
    become float32 again unless the Cell has `narrow_out`. A Cell never has both. Gradients reach the Parameters through
    the conversions. Construct runs on a copy of the Cell, so it must not set attributes (ArgumentError).
    """
    inner = object.__new__(type(cell))  # a copy of the Cell with Tensors in place of its Parameters
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
    """Replace the Parameters of the copy by Tensors of dtype `narrow`, and return the inputs in this dtype."""
    for name, value in vars(inner).items():
        if isinstance(value, Parameter):
            inner.__dict__[name] = _cast_to(narrow, value)
        elif isinstance(value, (list, tuple)) and any(isinstance(item, Parameter) for item in value):
            inner.__dict__[name] = [_cast_to(narrow, item) if isinstance(item, Parameter) else item for item in value]
    leaves, tree = structure.flatten((args, kwargs))
    return structure.unflatten(tree, [_cast_to(narrow, x) for x in leaves])


def _construct_copy(cell: Any, inner: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    name = type(cell).__name__
    if "construct" in vars(cell):
        raise ArgumentError(
            f"{name}: its construct was set on the object, so it reads the Parameters in their full precision. "
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


def _cast_to(narrow: dtypes.DType, x: Any) -> Any:
    return x.astype(narrow) if x.dtype is dtypes.float32 else x
