"""The settings of a Cell and all below it: training or prediction, gradients, devices, precision, flags."""

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
    """Settings of a Cell and all below it."""

    training: bool
    bprop: Callable[..., Any] | None = None
    compute_dtype: str | None = None  # what its products are computed in, if not as its Parameters are: `snncell.amp`
    narrow_out = False  # whether its results stay in that
    quantisers: Any = None  # a Cell that rounds what it computes with to grids: `snncell.quantise`
    _over_time = False  # whether it runs its `cell` at each time step
    _recomputed = False

    @property
    def cls_name(self) -> str:
        """The name of its class."""
        return type(self).__name__

    @property
    def phase(self) -> str:
        """ "train" or "predict"."""
        return "train" if self.training else "predict"

    def set_train(self, mode: bool = True) -> Self:
        """Switch this Cell and all below it to training, or to prediction."""
        for _, cell in self.cells_and_names():
            cell.training = bool(mode)
        return self

    def set_grad(self, requires_grad: bool = True) -> Self:
        """Switch gradients of all Parameters on or off; `cell.requires_grad` is the last setting."""
        for parameter in self.get_parameters():
            parameter.requires_grad = bool(requires_grad)
        for _, cell in self.cells_and_names():
            cell.__dict__["_gradients"] = bool(requires_grad)
        return self

    @property
    def requires_grad(self) -> bool:
        """The last setting by `set_grad`, which `cell.requires_grad = False` calls; False before."""
        return bool(self.__dict__.get("_gradients", False))

    @requires_grad.setter
    def requires_grad(self, requires_grad: bool) -> None:
        self.set_grad(requires_grad)

    def to(self, device: Any = None, dtype: Any = None, non_blocking: bool = False) -> Self:
        """Move the Parameters and buffers to `device`, "cpu" or "gpu", and return the Cell.

        Args:
            device: a name in upper or lower case, or None to leave them.
            dtype: None, because Parameters keep their dtype.
            non_blocking: accepted without effect.

        Raises:
            DeviceError: for another name, or without a GPU.
            ArgumentError: for a dtype.
        """
        if dtype is not None or isinstance(device, (dtypes.DType, Tensor)):
            raise ArgumentError(
                f"to: {type(self).__name__} goes to a device, and its Parameters keep their dtype. Layers are made "
                f"with a dtype; cell.to_float(snncell.float16) has this one compute in few bits."
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
        """Compute in float16 or bfloat16, in this Cell and all below: y = f(half(x), half(W)), y is of `dst_type`.

        Parameters and their gradients keep their dtype. `amp.auto_mixed_precision` does this only for layers with large
        products, and gives float32 after each. Cells with a `bprop` and no Parameters are not changed.

        Args:
            dst_type: float16, bfloat16, or float32 to undo it.

        Raises:
            ArgumentError: for another dtype, a quantised Cell, or one with both a `bprop` and Parameters.

        Example:
            >>> net = nn.Dense(3, 4).to_float(snncell.float16)
            >>> net(ops.ones((2, 3))).dtype, net.weight.dtype
            (Float16, Float32)
        """
        kind = dtypes.as_dtype(dst_type)
        if kind not in _FLOATS:
            raise ArgumentError(f"to_float: dst_type is float16, bfloat16 or float32, not {came(dst_type)}.")
        cells = list(self._in_few_bits())
        if kind is not dtypes.float32:
            for path, cell in self.cells_and_names():
                refuse_quantised(cell, path, kind.name, "to_float")
        for cell in cells:
            if kind is not dtypes.float32:
                cell.compute_dtype, cell.narrow_out = kind.name, True
            elif cell.compute_dtype is not None:
                del cell.compute_dtype  # as if it had never been set, for checkpoints too
                cell.__dict__.pop("narrow_out", None)
        return self

    def _in_few_bits(self) -> Iterator[Any]:
        for _, cell in self.cells_and_names():
            if cell.bprop is None and not cell._over_time:
                yield cell
            elif any(True for _ in cell.get_parameters(expand=False)):
                raise ArgumentError(
                    f"to_float: {type(cell).__name__} has a bprop, which knows its Parameters as they are: cast in its "
                    f"construct and bprop what is to have fewer bits."
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
        """Gradient checkpointing: run the Cell again in the backward pass, instead of keeping its intermediate values.

        Gradients and random numbers are the same, it keeps only inputs and outputs, and costs a second forward pass.
        Statistics are written once; hooks of the Cells below are called once more. A `MultiStep` without
        `checkpoint_every` keeps its states at every sqrt(T)-th step. In a jitted function the compiler decides, and
        this has no effect.

        Args:
            output_recompute: False, because the following operations need the outputs.
            context_fn: None.
            use_reentrant, early_stop, kwargs: MindSpore's, without effect; kwargs are `mp_comm_recompute`,
                `parallel_optimizer_comm_recompute` and `recompute_slice_activation`.

        Raises:
            ArgumentError: for output_recompute, a context_fn, or another name.
        """
        if output_recompute or context_fn is not None:
            raise ArgumentError(
                "recompute: output_recompute=True and context_fn are not there; outputs are kept. Call recompute() on "
                "the Cell that holds both, if the output of one is to go as well."
            )
        for name in kwargs:
            if name not in _OF_CLUSTERS:
                raise ArgumentError(f"recompute: takes no {name!r}; of MindSpore's others {', '.join(_OF_CLUSTERS)}.")
        self._recomputed = True
        return self

    # --- flags --------------------------------------------------------------------------------------------------------

    def add_flags(self, **flags: Any) -> Self:
        """Set attributes that `get_flags` tells of."""
        for name, value in flags.items():
            setattr(self, name, value)
        if flags:
            self.__dict__["_flags_set"] = {**self.__dict__.get("_flags_set", {}), **flags}
        return self

    def add_flags_recursive(self, **flags: Any) -> Self:
        """Set attributes of this Cell and all below it."""
        for _, cell in self.cells_and_names():
            cell.add_flags(**flags)
        return self

    def get_flags(self) -> dict[str, Any]:
        """The attributes that `add_flags` set, with the values that they were given."""
        return dict(self.__dict__.get("_flags_set", {}))


@contextmanager
def phases(*parts: Any) -> Iterator[None]:
    """Restore after the body whether each Cell in these parts is in training; other parts are ignored."""
    cells = [cell for part in parts if isinstance(part, Modes) for _, cell in part.cells_and_names()]
    before = [(cell, cell.training) for cell in cells]
    try:
        yield
    finally:
        for cell, training in before:
            cell.training = training


# --- other numbers than the Parameters hold: in fewer bits, or rounded to a grid --------------------------------------


def refuse_quantised(cell: Any, path: str, narrow: str, who: str) -> None:
    """Raise an ArgumentError for a Cell whose weights are on a grid, and that is to compute in few bits."""
    if cell.quantisers is not None:
        raise ArgumentError(
            f"{who}: {path or 'the net'} ({type(cell).__name__}) is quantised, and {narrow} has fewer bits than sums "
            f"on its grid need. quantise.restore(net) undoes that."
        )


def run_with_others(cell: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call `cell.construct` with other Tensors in the places of its Parameters, its inputs and its results.

    With `cell.quantisers` they are on its grids; with `cell.compute_dtype` they are of that dtype, and results are
    float32 again, unless the Cell has `narrow_out`; no Cell has both. Operations compute them from the Parameters, so
    gradients reach these. If construct sets an attribute, which would be lost, it is an ArgumentError.
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
